//! A host in a namespace: its certificates, its configuration, and its daemon.
//!
//! A host has a folder, with `host.toml` and `log` in it. Hosts of a fabric are `h1`, `h2` and so
//! on; host N has the address 192.0.2.N at its device `up0`.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Error;
use crate::namespace::Netns;
use crate::tool::{cannot_start, checked};

/// Makes certificates for the hosts of a fabric by `sluice fabric cert`. Each host's are in a folder
/// of its name; those of an earlier run are replaced.
///
/// # Errors
/// The program cannot be started, or fails.
pub fn certificates<S: AsRef<str>>(
    program: &Path,
    folder: &Path,
    hosts: &[S],
) -> Result<(), Error> {
    let mut command = Command::new(program);
    command.args(["fabric", "cert", "--replace", "--out"]).arg(folder);
    let made = command.args(hosts.iter().map(AsRef::as_ref)).stdin(Stdio::null()).output();
    let made = made.map_err(|source| cannot_start(&program.to_string_lossy(), source))?;
    checked("sluice fabric cert", &made)
}

/// Starts `sluice daemon` in a namespace, with the `host.toml` of a folder. What it says is added to
/// the `log` of the folder.
///
/// # Errors
/// The log cannot be opened, or the program cannot be started.
pub fn daemon(netns: &Netns, program: &Path, folder: &Path) -> io::Result<Child> {
    let log = File::options().create(true).append(true).open(folder.join("log"))?;
    let mut command = netns.command(program);
    command.args(["daemon", "--config"]).arg(folder.join("host.toml"));
    command.stdout(log.try_clone()?).stderr(log).spawn()
}

/// A host of a fabric whose files say everything: an `l2` underlay, policy `ZL`, and the network
/// `blue` at all hosts.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Its number in the fabric, from 1.
    pub id: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Name of the fabric.
    pub fabric: &'a str,
    /// Folder with the [`certificates`] of all hosts.
    pub certificates: &'a Path,
    /// More lines of `[host]`.
    pub host: &'a str,
    /// More lines of `[fabric]`.
    pub settings: &'a str,
    /// More lines of the network.
    pub vnet: &'a str,
    /// More tables, such as ports.
    pub more: &'a str,
}

impl Member<'_> {
    /// Returns its configuration behind the name and the directory, which come first in `[host]`.
    #[must_use]
    pub fn file(&self) -> String {
        let Self { id, hosts, fabric, host, settings, vnet, more, .. } = self;
        let certificates = self.certificates.join(format!("h{id}"));
        let mut text = format!(
            r#"policy = "ZL"
{host}
[underlay]
kind = "l2"
device = "up0"
address = "192.0.2.{id}"
[fabric]
name = "{fabric}"
id = {id}
certificates = "{certificates}"
{settings}
[[vnet]]
name = "blue"
vni = 42
{vnet}
"#,
            certificates = certificates.display(),
        );
        for other in (1..=*hosts).filter(|other| other != id) {
            // Writing to a string cannot fail.
            _ = write!(
                text,
                "[[peer]]\nname = \"h{other}\"\nid = {other}\nvtep = \"192.0.2.{other}\"\n\
                 vnets = [\"blue\"]\n"
            );
        }
        text + more
    }
}

#[cfg(test)]
mod tests;
