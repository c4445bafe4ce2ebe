//! Cables: pairs of veth devices between two namespaces.

use crate::{Error, Netns, run, tool};

/// Offloads that are off on a [`cable`]: those that let a frame pass without its checksum, or
/// larger than the MTU.
pub const PLAIN_FRAMES: [&str; 4] = ["tx", "tso", "gso", "gro"];

/// Makes a link between two namespaces, each given with its device; both ends are up. Offloads of
/// both ends are off, so that frames look as on a wire.
///
/// # Errors
/// The kernel refuses, or ethtool is not installed.
pub fn cable(left: (&Netns, &str), right: (&Netns, &str)) -> Result<(), Error> {
    veth_pair(left, right)?;
    for (netns, device) in [left, right] {
        netns.inside(|| offloads_off(device, &PLAIN_FRAMES))??;
    }
    Ok(())
}

/// Makes a pair of veth devices between two namespaces, both up, with the kernel's offloads. The
/// devices are never visible outside of them.
///
/// # Errors
/// The kernel refuses.
pub fn veth_pair(left: (&Netns, &str), right: (&Netns, &str)) -> Result<(), Error> {
    let ((near, device), (far, far_device)) = (left, right);
    run(&format!(
        "ip link add {}",
        veth_arguments((near.name(), device), (far.name(), far_device))
    ))?;
    for (netns, device) in [left, right] {
        netns.ip(&format!("link set {device} up"))?;
    }
    Ok(())
}

/// Returns the arguments of `ip link add` for a pair of veth devices, each with its namespace.
#[must_use]
pub fn veth_arguments((near, device): (&str, &str), (far, far_device): (&str, &str)) -> String {
    format!("{device} netns {near} type veth peer name {far_device} netns {far}")
}

/// Switches offloads of a device off, in the calling thread's namespace.
///
/// # Errors
/// The kernel refuses, or ethtool is not installed.
pub fn offloads_off(device: &str, offloads: &[&str]) -> Result<(), Error> {
    let pairs = offloads.iter().flat_map(|offload| [*offload, "off"]);
    let arguments: Vec<&str> = ["-K", device].into_iter().chain(pairs).collect();
    tool("ethtool", &arguments)
}
