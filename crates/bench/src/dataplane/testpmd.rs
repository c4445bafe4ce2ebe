//! The upper bound: DPDK's `testpmd`, which copies frames between pairs of vhost-user ports and
//! does not look at addresses. Ports 0 and 1 are a pair, 2 and 3 another.
//!
//! It listens on the sockets. Frames for a full receiver are dropped, and counted for no port.

use std::path::Path;
use std::process::{Command, Stdio};

use super::machine::{Running, SWITCH_CORE, is_installed, program};
use super::subject::{Ports, Wiring};

pub(super) fn obstacle() -> Option<String> {
    (!is_installed("dpdk-testpmd"))
        .then(|| "testpmd is not installed (Debian: apt-get install dpdk-dev)".to_owned())
}

/// Returns the version, for people.
pub(super) fn version() -> String {
    let output = Command::new("dpdk-testpmd").arg("--version").output();
    let output = output.map(|o| [o.stdout, o.stderr].concat()).unwrap_or_default();
    let text = String::from_utf8_lossy(&output).into_owned();
    let line = text.lines().find(|line| line.contains("RTE Version")).unwrap_or("DPDK");
    line.trim_start_matches("EAL: RTE Version: ").to_owned()
}

pub(super) fn start(dir: &Path, wiring: Wiring) -> anyhow::Result<Ports> {
    let sockets: Vec<_> = (0..wiring.ports()).map(|port| dir.join(format!("p{port}"))).collect();
    let mut command = program(dir, "testpmd", false)?;
    command.arg("dpdk-testpmd");
    command.arg(format!("--lcores=0@{SWITCH_CORE},1@{SWITCH_CORE}"));
    command.args(["--in-memory", "--single-file-segments", "--no-pci", "--no-telemetry"]);
    command.args(["-m", "192"]);
    for (port, socket) in sockets.iter().enumerate() {
        _ = std::fs::remove_file(socket);
        command.arg("--vdev").arg(format!("net_vhost{port},iface={}", socket.display()));
    }
    command.args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1"]);
    command.args(["--total-num-mbufs=32768", "--no-lsc-interrupt"]);
    // testpmd ends with its input, so it gets an input that stays open.
    let switch = Running(command.stdin(Stdio::piped()).spawn()?);
    Ok(Ports { sockets, switch, _others: Vec::new() })
}
