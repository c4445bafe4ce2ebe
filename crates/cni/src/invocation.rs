//! The environment of an execution (section 2, "Parameters").

use std::fmt;
use std::path::PathBuf;

use sluice_api::port::Place;

use crate::error::{Code, Error};

/// Longest name of a network device.
const DEVICE_NAME_SIZE_MAX: usize = 15;
/// Longest name of a container; runtimes use 64 hexadecimal digits.
const CONTAINER_NAME_SIZE_MAX: usize = 256;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Add,
    Del,
    Check,
    Gc,
    Status,
    Version,
}

impl Command {
    /// Reads `CNI_COMMAND`.
    pub(crate) fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let text = required(variable, "CNI_COMMAND")?;
        let all = [Self::Add, Self::Del, Self::Check, Self::Gc, Self::Status, Self::Version];
        all.into_iter().find(|command| command.text() == text).ok_or_else(|| {
            wrong("CNI_COMMAND", &text, "use ADD, DEL, CHECK, GC, STATUS or VERSION")
        })
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// Returns true for the commands that CNI 1.1.0 brought.
    pub(crate) const fn needs_1_1(self) -> bool {
        matches!(self, Self::Gc | Self::Status)
    }

    const fn is_about_a_container(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The checked environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) command: Command,
    /// Empty for GC and STATUS.
    pub(crate) container: String,
    /// Empty for GC and STATUS.
    pub(crate) interface: String,
    /// `None` if the runtime names none, as at a DEL of a container that is gone.
    pub(crate) netns: Option<String>,
    /// Folders of plugins.
    pub(crate) path: Vec<PathBuf>,
    /// The MAC of `CNI_ARGS`.
    pub(crate) mac: Option<String>,
}

impl Invocation {
    /// Reads the variables that a command needs.
    pub(crate) fn read(
        command: Command,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let path = variable("CNI_PATH").unwrap_or_default();
        let path = path.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect();
        let mut invocation = Self {
            command,
            container: String::new(),
            interface: String::new(),
            netns: None,
            path,
            mac: None,
        };
        if !command.is_about_a_container() {
            return Ok(invocation);
        }
        invocation.container = container(required(variable, "CNI_CONTAINERID")?)?;
        invocation.interface = interface(required(variable, "CNI_IFNAME")?)?;
        invocation.netns = match command {
            Command::Del => variable("CNI_NETNS").filter(|path| !path.is_empty()),
            _ => Some(netns(required(variable, "CNI_NETNS")?)?),
        };
        invocation.mac = variable("CNI_ARGS").as_deref().and_then(mac_of);
        Ok(invocation)
    }

    /// Returns the place of the container's port.
    pub(crate) fn place(&self) -> Option<Place> {
        self.netns.as_deref().map(place_of)
    }
}

/// Returns the place of a namespace by its path. The number of a process is said as one: the host
/// forgets such a port with the machine's restart, when another process may have the number.
pub(crate) fn place_of(netns: &str) -> Place {
    let pid = netns.strip_prefix("/proc/").and_then(|rest| rest.strip_suffix("/ns/net"));
    match pid.and_then(|pid| pid.parse().ok()) {
        Some(pid) => Place::Pid(pid),
        None => Place::Netns(netns.to_owned()),
    }
}

/// Checks a container's name (section 2, "Parameters").
fn container(text: String) -> Result<String, Error> {
    let is_first = |c: char| c.is_ascii_alphanumeric();
    let is_other = |c: char| is_first(c) || matches!(c, '_' | '.' | '-');
    let fits = text.starts_with(is_first) && text.chars().all(is_other);
    if !fits || text.len() > CONTAINER_NAME_SIZE_MAX {
        let remedy = "use letters, digits, `_`, `.` and `-`, the first a letter or a digit";
        return Err(wrong("CNI_CONTAINERID", &text, remedy));
    }
    Ok(text)
}

/// Rule for the name of a device, as a remedy.
pub(crate) const DEVICE_NAME_REMEDY: &str = "use 1 to 15 characters without spaces, `/` and `:`";

/// Returns true if the kernel takes a text as the name of a device (`dev_valid_name`).
pub(crate) fn is_device_name(text: &str) -> bool {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | ':');
    let fits = (1..=DEVICE_NAME_SIZE_MAX).contains(&text.len());
    fits && text != "." && text != ".." && !text.contains(is_bad)
}

fn interface(text: String) -> Result<String, Error> {
    match is_device_name(&text) {
        true => Ok(text),
        false => Err(wrong("CNI_IFNAME", &text, DEVICE_NAME_REMEDY)),
    }
}

fn netns(text: String) -> Result<String, Error> {
    match text.starts_with('/') {
        true => Ok(text),
        false => Err(wrong("CNI_NETNS", &text, "give the absolute path of a network namespace")),
    }
}

/// Returns the value of `MAC` among `KEY=VALUE;…`. Other keys are other plugins'.
fn mac_of(args: &str) -> Option<String> {
    args.split(';').find_map(|pair| pair.strip_prefix("MAC=")).map(str::to_owned)
}

fn required(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &'static str,
) -> Result<String, Error> {
    variable(name).filter(|text| !text.is_empty()).ok_or_else(|| {
        Error::new(
            Code::Environment,
            format!("{name} is not set"),
            "a container runtime, or cnitool, sets it; this program is no command for people",
        )
    })
}

fn wrong(name: &str, text: &str, remedy: &str) -> Error {
    Error::new(Code::Environment, format!("{name}: `{text}` cannot be used"), remedy)
}

#[cfg(test)]
mod tests;
