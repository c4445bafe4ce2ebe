//! Network namespaces, and work inside of them.
//!
//! A namespace is entered by a thread of its own that ends afterwards. No other thread of the
//! program ever leaves its first namespace. A program started by such a thread starts in the
//! namespace.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, anyhow, bail, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The programs that build a lab.
const TOOLS: [&str; 3] = ["ip", "ethtool", "tc"];

/// Requires root and the programs of iproute2 and ethtool.
pub(crate) fn requirements() -> anyhow::Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "a lab needs root: it makes network namespaces and devices"
    );
    for tool in TOOLS {
        ensure!(has_tool(tool), "a lab needs the program `{tool}` (packages iproute2 and ethtool)");
    }
    Ok(())
}

/// Returns true if there is a program of that name.
pub(crate) fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns the path of a namespace's file.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new("/run/netns").join(name)
}

/// Returns true if there is a namespace of that name.
pub(crate) fn exists(name: &str) -> bool {
    path(name).exists()
}

/// Returns the identity of a namespace, equal to that of `/proc/PID/ns/net` of the processes in it.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
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
    let file = File::open(path(name)).with_context(|| format!("opening namespace {name}"))?;
    let outcome = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .with_context(|| format!("entering namespace {name}"))?;
                act()
            })
            .join()
    });
    outcome.map_err(|_| anyhow!("a thread in namespace {name} panicked"))?
}

/// Runs `ip` on a list of commands in the calling thread's namespace.
pub(crate) fn ip(lines: &[String]) -> anyhow::Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Own process group, so that Ctrl-C does not kill the tools of a clean-up.
        .process_group(0)
        .spawn()
        .context("starting ip")?;
    if let Some(mut input) = child.stdin.take() {
        // A failing `ip` closes its input early; its own message is the better error.
        let _ = input.write_all((lines.join("\n") + "\n").as_bytes());
    }
    finish("ip", child)
}

/// Runs a program; its failure is an error.
pub(crate) fn tool(name: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // Own process group, so that Ctrl-C does not kill the tools of a clean-up.
        .process_group(0)
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    finish(name, child)
}

fn finish(name: &str, child: std::process::Child) -> anyhow::Result<()> {
    let output = child.wait_with_output().with_context(|| format!("waiting for {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().take(4).collect();
        bail!("{name} failed: {}", said.join("; "));
    }
    Ok(())
}

/// Switches off all offloads of a device, so that its frames are as on a wire.
pub(crate) fn offloads_off(device: &str) -> anyhow::Result<()> {
    let mut arguments = vec!["-K", device];
    for offload in ["tso", "gso", "gro", "tx", "rx"] {
        arguments.extend([offload, "off"]);
    }
    tool("ethtool", &arguments)
}

/// Writes a kernel setting of the calling thread's namespace; `name` as in `net.ipv4.ip_forward`.
pub(crate) fn setting(name: &str, value: &str) -> anyhow::Result<()> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    std::fs::write(&path, value).with_context(|| format!("writing {value} to {name}"))
}

/// Switches IPv6 off for new devices, in the calling thread's namespace.
pub(crate) fn ipv6_off() -> anyhow::Result<()> {
    if !Path::new("/proc/sys/net/ipv6").exists() {
        return Ok(());
    }
    setting("net.ipv6.conf.all.disable_ipv6", "1")?;
    setting("net.ipv6.conf.default.disable_ipv6", "1")
}
