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
    }
}
