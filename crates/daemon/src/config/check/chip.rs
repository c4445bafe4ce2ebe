//! The kernel as a chip: what it needs of a host.

use sluice_api::config::{ChipKind, PortKind, Role, UnderlayKind};

use super::Check;
use super::Step::{At, Key};

impl Check<'_> {
    pub(super) fn chip(&mut self) {
        let chip = self.config.chip;
        for (key, value) in [("macs", chip.macs), ("flows", chip.flows)] {
            if value == 0 {
                self.problem(
                    &[Key("chip"), Key(key)],
                    "a chip without room forwards nothing",
                    "Leave the key out for the default, or use `kind = \"software\"`.",
                );
            }
        }
        if chip.kind == ChipKind::Software {
            let ports = self.config.ports.iter().enumerate();
            let kernel = ports.filter(|(_, port)| port.kind == PortKind::Kernel);
            for at in kernel.map(|(at, _)| at).collect::<Vec<_>>() {
                self.problem(
                    &[Key("port"), At(at), Key("kind")],
                    "the kernel is not the chip of this host",
                    "Write `kind = \"kernel\"` into `[chip]`, or use `kind = \"veth\"`.",
                );
            }
            return;
        }
        let underlay = self.config.underlay.as_ref().map(|underlay| underlay.kind);
        let needs = [
            (self.config.host.role == Role::Host, "a host (`role`)"),
            (underlay == Some(UnderlayKind::L2), "an underlay of kind `l2`"),
            (self.config.host.workers == 1, "one worker (`workers`)"),
        ];
        for (_, what) in needs.iter().filter(|(is_there, _)| !is_there) {
            self.problem(
                &[Key("chip"), Key("kind")],
                format!("the kernel as chip needs {what}"),
                "Use `kind = \"software\"`.",
            );
        }
        if chip.kind == ChipKind::Switchdev {
            self.ports_of_switch();
        }
    }

    /// Checks that access ports are those of one switch, which judges no senders.
    fn ports_of_switch(&mut self) {
        let mut first = None;
        for at in 0..self.config.ports.len() {
            let port = &self.config.ports[at];
            if !port.is_of_switch(ChipKind::Switchdev) {
                continue;
            }
            if port.mac.is_some() {
                self.problem(
                    &[Key("port"), At(at), Key("mac")],
                    "a switch judges no senders, and nobody can be bound to its port",
                    "Leave it out, or write `kind = \"kernel\"` into `[chip]`.",
                );
            }
            let (device, switch) = (port.device.clone(), self.devices.switch_of(&port.device));
            let what = match (&first, &switch) {
                _ if self.facts(&device).is_none() => continue,
                (_, None) => format!("`{device}` is no port of a switch (no `phys_switch_id`)"),
                (Some(first), Some(switch)) if first != switch => {
                    format!("`{device}` is a port of another switch than the ports before")
                }
                _ => {
                    first = switch;
                    continue;
                }
            };
            self.problem(
                &[Key("port"), At(at), Key("device")],
                what,
                "Take a port of the switch, or write `kind = \"kernel\"` into `[chip]`.",
            );
        }
    }
}

#[cfg(test)]
mod tests;
