//! Ports of a member for the VLANs of its trunks.
//!
//! The fabric says which VLANs of a trunk are which networks, the host's file which device the
//! trunk is, and which ports the host has beside it. What the file has holds: a VLAN that would
//! clash with it has no port here. While the member is connected it refuses such a VLAN; one that
//! was away leaves it out, and says so.

use std::collections::BTreeSet;

use sluice_api::config::{LocalConfig, Port, PortKind, Trunk};
use sluice_api::fabric_config::{FabricConfig, Vlan};

/// Ports of VLANs, and the reasons why other VLANs have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrunkPorts {
    /// The ports.
    pub(crate) ports: Vec<Port>,
    /// The reasons, with the remedies.
    pub(crate) left_out: Vec<String>,
}

/// Returns the ports of a member for the VLANs of its trunks.
pub(crate) fn ports(local: &LocalConfig, shared: &FabricConfig) -> TrunkPorts {
    let mut all = TrunkPorts::default();
    for trunk in &local.trunks {
        for (number, vlan) in shared.vlans.get(&trunk.name).into_iter().flatten() {
            let name = format!("{}.{number}", trunk.name);
            match clash(local, trunk, (&name, *number), vlan) {
                Some(why) => all.left_out.push(why),
                None => all.ports.push(Port {
                    worker: trunk.worker,
                    vlan: Some(*number),
                    native: vlan.native,
                    link: trunk.link.clone(),
                    ..Port::new(&name, PortKind::L2, &vlan.vnet, &trunk.device)
                }),
            }
        }
    }
    all
}

/// Returns the reason why a VLAN has no port beside those of the file.
fn clash(
    local: &LocalConfig,
    trunk: &Trunk,
    (name, number): (&str, u16),
    vlan: &Vlan,
) -> Option<String> {
    let device = &trunk.device;
    let of_device = |port: &&Port| port.kind == PortKind::L2 && port.device == *device;
    let file = |what: &str, port: &Port| {
        format!(
            "VLAN {number} of trunk `{}`: {what} port `{}` of this host's file; take that port \
             out, and `sluice reload`",
            trunk.name, port.name
        )
    };
    if let Some(port) = local.ports.iter().find(|port| port.name == name) {
        return Some(file("its port would have the name of", port));
    }
    let ports = || local.ports.iter().filter(of_device);
    if let Some(port) = ports().find(|port| port.vlan.is_none()) {
        return Some(file(&format!("all frames of `{device}` are of"), port));
    }
    if let Some(port) = ports().find(|port| port.vlan == Some(number)) {
        return Some(file(&format!("that VLAN of `{device}` is of"), port));
    }
    if let Some(port) = ports().find(|port| port.vnet == vlan.vnet) {
        return Some(file(&format!("network `{}` is behind `{device}` by", vlan.vnet), port));
    }
    let native = ports().find(|port| vlan.native && port.native)?;
    Some(file(&format!("the untagged frames of `{device}` are of"), native))
}

/// Returns the reason against the trunks of a file.
///
/// # Errors
/// The reason, with the remedy.
pub(super) fn check(local: &LocalConfig) -> Result<(), String> {
    let (mut names, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for Trunk { name, device, .. } in &local.trunks {
        if !names.insert(name) {
            return Err(format!("two `[[trunk]]` have the name `{name}`; give one another"));
        }
        if !devices.insert(device) {
            return Err(format!(
                "two `[[trunk]]` have the device `{device}`; a device is one trunk"
            ));
        }
        if local.underlay.as_ref().is_some_and(|underlay| underlay.device == *device) {
            return Err(format!(
                "`[[trunk]]` `{name}` has the device of the underlay, `{device}`; use another"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
