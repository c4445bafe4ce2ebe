//! Network namespaces of a lab. What they share with benchmarks and tests is [`sluice_netns`].

use std::path::Path;

use anyhow::{Context, ensure};
pub(crate) use sluice_netns::{disable_ipv6, exists, identity, is_installed, path};

/// The programs that build a lab.
const TOOLS: [&str; 3] = ["ip", "ethtool", "tc"];
/// Offloads of a lab's devices: all that make a frame differ from one on a wire, and reception's.
const OFFLOADS: [&str; 5] = ["tso", "gso", "gro", "tx", "rx"];

/// Requires root and the programs of iproute2 and ethtool.
pub(crate) fn requirements() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a lab needs root: it makes network namespaces and devices"
    );
    for tool in TOOLS {
        let hint = "(packages iproute2 and ethtool)";
        ensure!(is_installed(tool), "a lab needs the program `{tool}` {hint}");
    }
    Ok(())
}

/// Makes namespaces. None of them may exist yet.
pub(crate) fn create(names: &[String]) -> anyhow::Result<()> {
    let lines: Vec<String> = names.iter().map(|name| format!("netns add {name}")).collect();
    ip(&lines)
}

/// Deletes the namespaces; a name without a namespace is skipped.
pub(crate) fn delete(names: &[String]) -> anyhow::Result<()> {
    let lines: Vec<String> = names
        .iter()
        .filter(|name| exists(name))
        .map(|name| format!("netns delete {name}"))
        .collect();
    if lines.is_empty() { Ok(()) } else { ip(&lines) }
}

/// Runs a function on a thread inside of a namespace.
pub(crate) fn enter<T: Send>(
    name: &str,
    act: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    sluice_netns::inside(name, act)?
}

/// Runs `ip` on a list of commands in the calling thread's namespace.
pub(crate) fn ip(lines: &[String]) -> anyhow::Result<()> {
    Ok(sluice_netns::run_all(lines)?)
}

/// Runs a program; its failure is an error.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    Ok(sluice_netns::tool(name, arguments)?)
}

/// Switches off all offloads of a device, so that its frames are as on a wire.
pub(crate) fn offloads_off(device: &str) -> anyhow::Result<()> {
    Ok(sluice_netns::offloads_off(device, &OFFLOADS)?)
}

/// Writes a kernel setting of the calling thread's namespace; `name` as in `net.ipv4.ip_forward`.
pub(crate) fn setting(name: &str, value: &str) -> anyhow::Result<()> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    std::fs::write(&path, value).with_context(|| format!("writing {value} to {name}"))
}
