//! Properties of a device.

use std::path::{Path, PathBuf};

use anyhow::ensure;

/// Method of steering packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum XdpMode {
    /// By the driver if it can, else by the kernel, else by RPS.
    Auto,
    /// By the driver.
    Native,
    /// By the kernel, for any device.
    Generic,
    /// No program: the kernel's hash, and the mask of cores that run no machines.
    Rps,
}

fn folder(device: &str) -> PathBuf {
    Path::new("/sys/class/net").join(device)
}

/// # Errors
/// There is none of that name here.
pub(crate) fn check(device: &str) -> anyhow::Result<()> {
    let is_name = !device.is_empty() && device.len() < 16 && !device.contains('/');
    ensure!(is_name && device != "..", "{device:?}: a device's name has 1 to 15 bytes and no '/'");
    ensure!(
        folder(device).exists(),
        "device {device}: there is none of that name in this network namespace \
         (`ip link` lists them)"
    );
    Ok(())
}

/// Returns true if packets may come with an unfinished checksum, as on a veth pair: the driver's
/// XDP would lose that mark, and so every such packet.
pub(crate) fn is_virtual(device: &str) -> bool {
    // A physical device has a bus behind it.
    !folder(device).join("device").exists()
}
