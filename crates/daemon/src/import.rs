//! `sluice fabric import`: files that say everything become a fabric.
//!
//! ```text
//!   h1.toml  h2.toml  h3.toml                       on each host, while it forwards
//!      └────── agree ──────┘                        ┌────────────────────────────────────────────┐
//!        │ every disagreement │ settings, networks  │ create or join ── its file becomes short ──│
//!        ▼ with both files    ▼                     │ `sluice upgrade`: another data process     │
//!      refused              shown, or written ────> │ takes over, control becomes a member       │
//!                                                   └────────────────────────────────────────────┘
//! ```
//!
//! Hosts that are not members yet stay reachable: the short file has them as `[[foreign]]`, hosts
//! that do not speak the protocol, until a member has their name. A host becomes a member beside
//! its running daemon, so the daemon is not stopped, and everything that can fail has been tried
//! before its file is replaced.
//!
//! | file | content |
//! |---|---|
//! | `agree` | comparison of the files, and the fabric that they describe |
//! | `local` | the part of a file that stays the host's own |
//! | `convert` | a host that becomes a member |

mod agree;
mod convert;
mod local;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use sluice_api::fabric_config::{Editable, FabricConfig};

use self::agree::{Agreed, Imported, agree};
pub use self::convert::{Way, convert};

/// Files of hosts that are to be a fabric.
#[derive(Clone, Debug)]
pub struct Import {
    /// The files, each of one host.
    pub files: Vec<PathBuf>,
    /// Name of the fabric, for files that name none.
    pub fabric: Option<String>,
}

/// Content of a file.
#[derive(Clone, Debug)]
struct Source {
    path: PathBuf,
    text: String,
}

impl Import {
    /// Reads and compares the files.
    fn read(&self) -> anyhow::Result<Agreed> {
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Ok(Source { path: path.clone(), text })
        };
        let sources: anyhow::Result<Vec<Source>> = self.files.iter().map(read).collect();
        agree(&sources?, self.fabric.as_deref()).map_err(|problems| {
            anyhow::anyhow!("the files do not make a fabric:\n  {}", problems.join("\n  "))
        })
    }
}

/// Compares files of hosts, and prints the fabric that they make and the commands that make it. It
/// writes the parts into `folder`, if one is named, and replaces no file there.
///
/// # Errors
/// Every disagreement, with both files; or a file that cannot be read or written.
pub fn show(import: &Import, folder: Option<&Path>) -> anyhow::Result<()> {
    let agreed = import.read()?;
    let parts = parts(&agreed)?;
    let mut text = String::new();
    match folder {
        Some(folder) => {
            for (name, part) in &parts {
                let path = folder.join(name);
                write_new(&path, part)?;
                text += &format!("written: {}\n", path.display());
            }
        }
        None => {
            for (name, part) in &parts {
                text += &format!("# {name}\n{part}\n");
            }
        }
    }
    text += &steps(&agreed);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Returns the parts of a fabric as files, by name: the shared one, and one for each host.
fn parts(agreed: &Agreed) -> anyhow::Result<BTreeMap<String, String>> {
    let mut shared = FabricConfig::new(&agreed.fabric)?;
    shared.apply(&agreed.change)?;
    let mut parts = BTreeMap::new();
    let head = format!("# shared by all members of fabric {}\n", agreed.fabric);
    parts.insert("fabric.toml".to_owned(), head + &Editable::of(&shared).text());
    for host in &agreed.hosts {
        if parts.insert(format!("{}.toml", host.name), host.local.clone()).is_some() {
            bail!("a host named `{}` would have the file of the shared part; rename it", host.name);
        }
    }
    Ok(parts)
}

/// Writes a file that is not there.
fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| {
        format!("cannot write {}, and no file is replaced; name another folder", path.display())
    })
}

/// Returns the commands that make the fabric.
fn steps(agreed: &Agreed) -> String {
    let mut text = String::new();
    for note in &agreed.notes {
        text += &format!("note: {note}\n");
    }
    let Some((first, others)) = agreed.hosts.split_first() else { return text };
    let files: Vec<String> =
        agreed.hosts.iter().map(|host| host.path.display().to_string()).collect();
    text += &format!(
        "\nnothing has changed. Next, one host after the other:\n\
         {}# sluice fabric import --create {}\n",
        first.name,
        files.join(" ")
    );
    text += &next_steps(others, first, None);
    text += "\nEach command makes its host a member and has another data process take over: its \
             ports keep forwarding. Where that cannot be, as with another number of workers at a \
             `udp` underlay, it says so, and that host's ports stand still until its data process \
             has started, some tenths of a second.\n";
    text
}

/// Returns the commands of the hosts that join, with a token of its own for each.
fn next_steps(others: &[Imported], member: &Imported, tokens: Option<&[String]>) -> String {
    let line = |(nth, host): (usize, &Imported)| {
        let token = tokens.and_then(|tokens| tokens.get(nth));
        format!(
            "{}# sluice fabric import --join {} --token {} {}\n",
            host.name,
            member.vtep,
            token.map_or("TOKEN", String::as_str),
            host.path.display()
        )
    };
    others.iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests;
