//! The host before anybody is asked: its directories, its processes, and the network
//! namespaces that its ports are in. All of it is there if the host is dead.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use sluice_api::client::{FindError, HostSelector};

use super::collect;
use crate::ipc::protocol::Request;
use crate::sys::run_dir::{self, Role};

/// Longest wait for the ports that were added.
const PORTS_MAX: Duration = Duration::from_secs(5);
/// Most namespaces that are looked at.
const NAMESPACES_MAX: usize = 256;

/// The host.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Its name; `machine` without a host.
    pub(super) name: String,
    pub(super) run_dir: Option<PathBuf>,
    /// The reason why there is nobody to ask.
    pub(super) silent: Option<String>,
    pub(super) control: Option<u32>,
    pub(super) data: Option<u32>,
    /// The file that control was started with.
    pub(super) config: Option<PathBuf>,
    /// Directory of what outlives the machine's start.
    pub(super) state_dir: Option<PathBuf>,
    /// Namespaces of its ports: a name, and a path.
    pub(super) namespaces: Vec<(String, PathBuf)>,
}

impl Found {
    /// Looks for the host that is meant.
    ///
    /// # Errors
    /// If it is one of several.
    pub(super) fn find(whom: &HostSelector) -> Result<Self, FindError> {
        let socket = match whom.lasting_socket() {
            Ok(socket) => socket,
            Err(error @ FindError::None { .. }) => {
                let silent = Some(error.to_string());
                return Ok(Self { name: "machine".to_owned(), silent, ..Self::default() });
            }
            Err(error) => return Err(error),
        };
        let run_dir = socket.parent().unwrap_or(Path::new(".")).to_owned();
        let name = run_dir.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut found = Self {
            name: name.unwrap_or_else(|| "host".to_owned()),
            control: pid(&run_dir, "control"),
            data: pid(&run_dir, "data"),
            run_dir: Some(run_dir.clone()),
            ..Self::default()
        };
        if found.control.is_none() {
            let processes = if found.data.is_some() { "control process" } else { "process" };
            found.silent = Some(format!("no {processes} of it runs in {}", run_dir.display()));
        }
        found.config = found.control.and_then(config_of);
        found.state_dir = Some(found.look_for_state());
        found.namespaces = found.look_for_namespaces();
        Ok(found)
    }

    /// Directories that may have keys in them.
    pub(super) fn folders(&self) -> BTreeSet<PathBuf> {
        let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
        folders.extend(self.run_dir.iter().chain(&self.state_dir).cloned());
        for (file, text) in self.configurations() {
            let named = value_of(&text, "fabric", "certificates").map(PathBuf::from);
            folders.extend(named.map(|path| file.parent().unwrap_or(Path::new("/")).join(path)));
        }
        folders
    }

    /// Texts of the configurations of both processes.
    fn configurations(&self) -> Vec<(PathBuf, toml::Table)> {
        let own = self.run_dir.as_ref().map(|dir| dir.join(run_dir::CONFIG_FILE));
        let files = self.config.clone().into_iter().chain(own);
        let read = |path: PathBuf| {
            let text = fs::read_to_string(&path).ok()?;
            Some((path, toml::from_str(&text).ok()?))
        };
        files.filter_map(read).collect()
    }

    fn look_for_state(&self) -> PathBuf {
        let texts = self.configurations();
        let said = |key| texts.iter().find_map(|(_, text)| value_of(text, "host", key));
        let said = said("state_dir").or_else(|| said("run_dir"));
        said.map_or_else(|| run_dir::state_of_host(&self.name), PathBuf::from)
    }

    fn look_for_namespaces(&self) -> Vec<(String, PathBuf)> {
        let mut places = BTreeSet::new();
        for (_, text) in self.configurations() {
            let ports = text.get("port").and_then(toml::Value::as_array);
            let netns = |port: &toml::Value| port.get("netns")?.as_str().map(PathBuf::from);
            places.extend(ports.into_iter().flatten().filter_map(netns));
        }
        let told =
            self.socket().and_then(|socket| collect::ask(&socket, &Request::Ports, PORTS_MAX).ok());
        let kept = self.state_dir.as_ref().map(|dir| dir.join(run_dir::PORTS_FILE));
        let added = told.or_else(|| fs::read_to_string(kept?).ok());
        if let Some(value) = added.and_then(|text| serde_json::from_str::<Value>(&text).ok()) {
            places_of(&value, &mut places);
        }
        let named = |path: PathBuf| (word(&path), path);
        places.into_iter().take(NAMESPACES_MAX).map(named).collect()
    }

    /// Returns the socket to ask.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        self.run_dir.as_ref().map(|dir| dir.join(run_dir::SHOW_SOCKET))
    }
}

/// Collects the namespaces of ports that were added.
fn places_of(value: &Value, places: &mut BTreeSet<PathBuf>) {
    match value {
        Value::Object(map) => {
            if let Some(place) = map.get("place") {
                let netns = place.get("netns").and_then(Value::as_str);
                places.extend(netns.map(|name| Path::new("/run/netns").join(name)));
                let pid = place.get("pid").and_then(Value::as_u64);
                places.extend(pid.map(|pid| PathBuf::from(format!("/proc/{pid}/ns/net"))));
            }
            map.values().for_each(|value| places_of(value, places));
        }
        Value::Array(values) => values.iter().for_each(|value| places_of(value, places)),
        _ => {}
    }
}

/// Returns a word for a namespace that may be a folder's name.
fn word(path: &Path) -> String {
    let text = path.strip_prefix("/run/netns").unwrap_or(path).to_string_lossy();
    text.trim_matches('/').replace('/', "-")
}

fn value_of(text: &toml::Table, table: &str, key: &str) -> Option<String> {
    text.get(table)?.get(key)?.as_str().map(str::to_owned)
}

/// Returns the number of a process of the host, if it runs.
fn pid(run_dir: &Path, name: &str) -> Option<u32> {
    if !Role::is_taken(run_dir, name) {
        return None;
    }
    fs::read_to_string(run_dir.join(format!("{name}.pid"))).ok()?.trim().parse().ok()
}

/// Returns the file that a process was started with.
fn config_of(pid: u32) -> Option<PathBuf> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let path = words.by_ref().skip_while(|word| *word != "--config").nth(1)?.into_owned();
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    Some(folder.join(path))
}

#[cfg(test)]
mod tests;
