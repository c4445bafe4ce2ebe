//! `sluice extcap`: the interface of Wireshark's extcap (extcap(4)). Wireshark runs a program of
//! its `extcap` folder with these options, and each running host is a device to capture on.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sluice_api::capture::Question;
use sluice_api::client::ROOT;

use super::{Style, capture};
use crate::client::show::HostSelector;

/// First part of the names of devices.
const PREFIX: &str = "sluice-";

/// A question of Wireshark.
#[derive(Clone, Debug)]
pub enum Extcap {
    /// The devices.
    Interfaces,
    /// The kind of frames of a device.
    Dlts(String),
    /// The options of a device.
    Config(String),
    /// Frames of a device, into a FIFO.
    Capture {
        /// The device.
        interface: String,
        /// The FIFO.
        fifo: PathBuf,
        /// The frames.
        question: Question,
    },
}

/// Answers. Hosts are those of this machine, or the one of a directory.
///
/// # Errors
/// If the device is no host, or cannot be captured on.
pub fn extcap(asked: Extcap, run_dir: Option<&Path>) -> anyhow::Result<()> {
    match asked {
        Extcap::Interfaces => print!("{}", interfaces(&hosts(run_dir))),
        Extcap::Dlts(_) => println!("dlt {{number=1}}{{name=EN10MB}}{{display=Ethernet}}"),
        Extcap::Config(_) => print!("{CONFIG}"),
        Extcap::Capture { interface, fifo, question } => {
            let name = interface.strip_prefix(PREFIX).with_context(|| {
                format!("`{interface}` is no device of sluice; `--extcap-interfaces` names them")
            })?;
            let whom = run_dir.map_or_else(
                || HostSelector::Host(name.to_owned()),
                |dir| HostSelector::RunDir(dir.to_owned()),
            );
            capture(&whom, question, &Style { out: Some(fifo), ..Style::default() })?;
        }
    }
    Ok(())
}

/// Options of a device, as Wireshark shows them.
const CONFIG: &str = "\
arg {number=0}{call=--port}{display=Port}{type=string}{tooltip=Name of a port; empty: all}
arg {number=1}{call=--vnet}{display=Network}{type=string}{tooltip=Name of a network; empty: all}
arg {number=2}{call=--with-drops}{display=Dropped frames, too}{type=boolflag}{default=false}
arg {number=3}{call=--snaplen}{display=Bytes}{type=unsigned}{range=14,262144}{default=65535}
";

fn interfaces(hosts: &[String]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("extcap {{version={version}}}{{display=Sluice}}\n");
    for host in hosts {
        text += &format!("interface {{value={PREFIX}{host}}}{{display=Sluice, ports of {host}}}\n");
    }
    text
}

/// Returns the names of the hosts that run here.
fn hosts(run_dir: Option<&Path>) -> Vec<String> {
    let name = |dir: &Path| Some(dir.file_name()?.to_string_lossy().into_owned());
    if let Some(dir) = run_dir {
        return name(dir).into_iter().collect();
    }
    let entries = std::fs::read_dir(ROOT).into_iter().flatten().flatten();
    let dirs = entries.map(|entry| entry.path());
    let is_host = |dir: &PathBuf| dir.join(crate::sys::run_dir::SHOW_SOCKET).exists();
    let mut names: Vec<String> = dirs.filter(is_host).filter_map(|dir| name(&dir)).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_is_a_device() {
        let text = interfaces(&["h1".to_owned(), "h2".to_owned()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("extcap {version="));
        assert_eq!(lines[1], "interface {value=sluice-h1}{display=Sluice, ports of h1}");
        assert_eq!(lines.len(), 3);
        assert_eq!(hosts(Some(Path::new("/run/sluice/h9"))), ["h9"]);
    }
}
