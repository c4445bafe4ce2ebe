//! Sluice itself, with a port of kind `vhost-user` for each guest, and one as its underlay. It
//! listens on the sockets.
//!
//! Sluice takes part if `sluice daemon` supports that kind: [`obstacle`] lets the program check a
//! configuration with such a port.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use sluice_api::config::{Buffers, Size};
use sluice_api::show;

use super::machine::{Running, program};
use super::subject::{Ports, REMOTE, VTEPS, Wiring, end, ip, mac};
use crate::fabric::host::program as find;

pub(super) fn obstacle() -> Option<String> {
    let path = match find() {
        Ok(path) => path,
        Err(error) => return Some(error.to_string()),
    };
    knows_the_kind(&path).err().map(|error| format!("{error:#}"))
}

/// Returns the version, for people.
pub(super) fn version() -> String {
    format!("commit {}", crate::machine::commit())
}

fn knows_the_kind(program: &Path) -> anyhow::Result<()> {
    let dir = std::env::temp_dir().join(format!("sluice-dp-{}-check", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let file = dir.join("host.toml");
    std::fs::write(&file, config(&dir, Wiring::guests(2)))?;
    let output = Command::new(program).args(["daemon", "--check", "--config"]).arg(&file).output();
    _ = std::fs::remove_dir_all(&dir);
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("").trim().to_owned();
    ensure!(output.status.success(), "this build has no port of kind `vhost-user` yet ({said})");
    Ok(())
}

/// Returns the configuration: a network, a port for each guest, and an underlay if there is one.
/// Nothing is dropped anywhere: with an underlay in memory that is policy `ZZ`.
fn config(dir: &Path, wiring: Wiring) -> String {
    let mut text = format!(
        "[host]\nname = \"bench\"\nrun_dir = \"{}\"\nworker_cpu = {}\npolicy = \"ZZ\"\n\n\
         [[vnet]]\nname = \"bench\"\nvni = {}\n",
        dir.join("run").display(),
        super::machine::SWITCH_CORE,
        super::subject::VNI,
    );
    if wiring.quarter_pool {
        let Size { frames, bytes } = Buffers::default().pool_from_local;
        let (frames, bytes) = (frames / 4, bytes / 4);
        _ = writeln!(
            text,
            "\n[buffers]\npool_from_local = {{ frames = {frames}, bytes = {bytes} }}"
        );
    }
    for guest in 0..wiring.guests {
        let mac = mac(end(guest));
        _ = write!(
            text,
            "\n[[port]]\nname = \"p{guest}\"\nkind = \"vhost-user\"\nvnet = \"bench\"\n\
             socket = \"{}\"\nmac = \"{mac}\"\n",
            dir.join(format!("p{guest}")).display(),
        );
        if wiring.pairs == 2 {
            text += "queues = [[0, 1, 2, 3], [4, 5, 6, 7]]\n";
        }
    }
    if wiring.underlay {
        text += &underlay(dir, wiring);
    }
    text
}

/// Returns the configuration of the underlay, at the last port, with the other switch and the
/// endpoint behind it.
fn underlay(dir: &Path, wiring: Wiring) -> String {
    let [other, own] = VTEPS;
    format!(
        "\n[underlay]\nkind = \"vhost-user\"\nsocket = \"{}\"\naddress = \"{}\"\nmac = \"{}\"\n\n\
         [[peer]]\nname = \"other\"\nvtep = \"{}\"\nvnets = [\"bench\"]\nnext_hop = \"{}\"\n\n\
         [[vport]]\nvnet = \"bench\"\nmac = \"{}\"\npeer = \"other\"\n",
        dir.join(format!("p{}", wiring.guests)).display(),
        ip(own),
        mac(own),
        ip(other),
        mac(other),
        mac(REMOTE),
    )
}

/// Returns the nanoseconds in which the switch's thread moved frames.
pub(super) fn busy_ns(dir: &Path) -> anyhow::Result<u64> {
    let mut stream = BufReader::new(UnixStream::connect(dir.join("run/show.sock"))?);
    stream.get_mut().write_all(b"{\"show\":\"worker\"}\n")?;
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let answer: show::Answer = serde_json::from_str(&line).context("what the worker did")?;
    match answer.body {
        show::Body::Worker(workers) => Ok(workers.iter().map(|times| times.busy_ns).sum()),
        other => bail!("no times: {other:?}"),
    }
}

pub(super) fn start(dir: &Path, wiring: Wiring) -> anyhow::Result<Ports> {
    let file = dir.join("host.toml");
    std::fs::write(&file, config(dir, wiring))?;
    let sockets: Vec<PathBuf> =
        (0..wiring.ports()).map(|port| dir.join(format!("p{port}"))).collect();
    let mut command = program(dir, "sluice", false)?;
    command.arg(find()?).args(["daemon", "--config"]).arg(&file);
    let switch = Running(command.stdin(Stdio::null()).spawn()?);
    Ok(Ports { sockets, switch, _others: Vec::new() })
}
