//! Bare-metal ports: assignment of a device's frames to ports.

use sluice_wire::vlan::VID_MAX;

use super::{At, Check, Key};

impl Check<'_> {
    /// Checks the VLAN of one `l2` port, and its device.
    pub(super) fn vlan(&mut self, index: usize) {
        let port = &self.config.ports[index];
        let at = |key| [Key("port"), At(index), Key(key)];
        if let Some(vlan) = port.vlan {
            let what = match vlan {
                0 => Some("VLAN 0 is none: its tag says a priority only".to_owned()),
                1..=VID_MAX => None,
                4095 => Some("VLAN 4095 is reserved (802.1Q table 9-2)".to_owned()),
                _ => Some(format!("{vlan} does not fit into the 12 bits of a VLAN")),
            };
            if let Some(what) = what {
                self.problem(&at("vlan"), what, format!("Use 1 to {VID_MAX}."));
            }
        } else if port.native {
            self.problem(
                &at("native"),
                "there is no VLAN that the untagged frames could be of",
                "Add `vlan = …`, or take it out: without a VLAN all frames are untagged.",
            );
        }
        if self.config.underlay.as_ref().is_some_and(|u| u.device == port.device) {
            self.problem(
                &at("device"),
                format!("`{}` is the device of the underlay", port.device),
                "Use another one: what comes from there is VXLAN, and no machine's frames.",
            );
        }
    }

    /// Checks a port whose device another one, `first`, has already: they must be VLANs of it.
    pub(super) fn shared_device(&mut self, first: usize, index: usize) {
        let ports = &self.config.ports;
        let (port, there) = (&ports[index], &ports[first]);
        let at = |key| [Key("port"), At(index), Key(key)];
        if port.vlan.is_none() && there.vlan.is_none() {
            self.twice(&at("device"), &format!("device `{}`", port.device), "port", first);
            return;
        }
        if port.vlan.is_none() || there.vlan.is_none() {
            let without = if port.vlan.is_none() { &port.name } else { &there.name };
            self.problem(
                &at("device"),
                format!("ports share device `{}`, and `{without}` has no VLAN", port.device),
                "Give it a `vlan`, with `native = true` if its frames are untagged.",
            );
            return;
        }
        let before = || ports[..index].iter().enumerate().filter(|p| p.1.device == port.device);
        let find = |same: fn(&sluice_api::config::Port, &sluice_api::config::Port) -> bool| {
            before().find(|(_, other)| same(other, port)).map(|(at, _)| at)
        };
        let vlan = find(|a, b| a.vlan == b.vlan);
        let vnet = find(|a, b| a.vnet == b.vnet);
        let native = find(|a, b| a.native && b.native);
        let link = find(|a, b| a.link.is_some() && b.link.is_some() && a.link != b.link);
        let device = &port.device;
        if let (Some(first), Some(vlan)) = (vlan, port.vlan) {
            self.twice(&at("vlan"), &format!("VLAN {vlan} of device `{device}`"), "port", first);
        }
        if let Some(first) = vnet {
            let what = format!("network `{}` behind device `{device}`", port.vnet);
            self.twice(&at("vnet"), &what, "port", first);
        }
        if let Some(first) = native {
            self.twice(&at("native"), &format!("native VLAN of `{device}`"), "port", first);
        }
        if link.is_some() {
            self.problem(
                &at("link"),
                format!("the ports of device `{device}` have one cable, and this is another"),
                "Say it at one of them.",
            );
        }
    }
}
