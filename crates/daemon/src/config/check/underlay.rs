//! An underlay in memory (`vhost-user`): no kernel knows its addresses, so the file names them. It
//! has no wire, so the keys for the headroom of a wire have no meaning.

use sluice_api::config::{Underlay, UnderlayKind};

use super::sockets::is_socket_path;
use super::{At, Check, Key};
use crate::sys::run_dir::SOCKET_PATH_SIZE_MAX;

/// Reasons why keys of the other kinds of underlays have no meaning here.
const NO_DEVICE: &str = "an underlay of kind `vhost-user` has a socket and no device";
const NO_WIRE: &str = "an underlay of kind `vhost-user` is memory: nothing is under way on it, and \
                       a sender waits in its own ring";

impl Check<'_> {
    /// Checks its socket and its own addresses.
    pub(super) fn vhost_underlay(&mut self, underlay: &Underlay) {
        let at = |key| [Key("underlay"), Key(key)];
        match underlay.socket.as_deref() {
            None => self.problem(
                &at("socket"),
                "an underlay of kind `vhost-user` needs the path of its socket",
                "Add `socket = \"/run/sluice/underlay.sock\"`, and give the front end the same.",
            ),
            Some(path) if !is_socket_path(path) => self.problem(
                &at("socket"),
                format!("`{path}` is not a path that a socket can have"),
                format!("Use one from `/` on, of at most {SOCKET_PATH_SIZE_MAX} bytes."),
            ),
            Some(path) => {
                let is_it = |port: &&sluice_api::config::Port| port.socket.as_deref() == Some(path);
                if let Some(port) = self.config.ports.iter().find(is_it) {
                    let what = format!("socket `{path}` is port `{}`'s, too", port.name);
                    self.problem(&at("socket"), what, "Give each a socket of its own.");
                }
            }
        }
        match &underlay.mac {
            Some(mac) => _ = self.mac(&at("mac"), mac),
            None => self.problem(
                &at("mac"),
                "no kernel has an address for this underlay",
                "Add `mac = …`: the next hop of the other hosts' frames to this one.",
            ),
        }
        if !underlay.device.is_empty() {
            self.problem(&at("device"), NO_DEVICE, "Take it out.");
        }
        self.no_wire(underlay);
        self.no_kernel_address();
    }

    /// Checks that no key describes a wire.
    fn no_wire(&mut self, underlay: &Underlay) {
        let link = &underlay.link;
        for (key, there) in [
            ("delay_ns", link.delay_ns.is_some()),
            ("stall_ms", link.stall_ms.is_some()),
            ("ring_bytes", link.ring_bytes.is_some()),
            ("xoff_bytes", link.xoff_bytes.is_some()),
            ("xon_bytes", link.xon_bytes.is_some()),
        ] {
            if there {
                let at = [Key("underlay"), Key("link"), Key(key)];
                self.problem(&at, NO_WIRE, "Take it out; `rate_mbps`, `in` and `out` stay.");
            }
        }
    }

    /// Checks for an address of the kernel: members of a fabric talk over the kernel's network,
    /// which this underlay is no part of.
    fn no_kernel_address(&mut self) {
        let why = "the kernel does not have the address of an underlay of kind `vhost-user`";
        let remedy = "Add `address = …`: one of the kernel's, by which members reach each other.";
        let Some(fabric) = &self.config.fabric else { return };
        if fabric.address.is_none() {
            self.problem(&[Key("fabric"), Key("address")], why, remedy);
        }
    }

    /// Checks the next hop to a peer: it is configured only if no kernel knows it.
    pub(super) fn next_hop(&mut self, index: usize) {
        let at = |key| [Key("peer"), At(index), Key(key)];
        let peer = &self.config.peers[index];
        let Some(underlay) = &self.config.underlay else { return };
        match (underlay.kind, &peer.next_hop) {
            (UnderlayKind::VhostUser, None) => self.problem(
                &at("next_hop"),
                format!("no kernel finds the way to peer `{}` over this underlay", peer.name),
                "Add `next_hop = …`: the MAC of its underlay, or of the router to it.",
            ),
            (UnderlayKind::VhostUser, Some(mac)) => _ = self.mac(&at("next_hop"), mac),
            (UnderlayKind::L2 | UnderlayKind::Udp, Some(_)) => self.problem(
                &at("next_hop"),
                "the kernel finds the way to the peers",
                "Take it out, or use `kind = \"vhost-user\"` for the underlay.",
            ),
            (UnderlayKind::L2 | UnderlayKind::Udp, None) => {}
        }
        let needs_address = self.config.fabric.is_some() && peer.id.is_some();
        if underlay.kind == UnderlayKind::VhostUser && needs_address && peer.address.is_none() {
            self.problem(
                &at("address"),
                "the kernel does not reach a member at its VTEP over this underlay",
                "Add `address = …`: where that member listens.",
            );
        }
    }

    /// Checks that keys of an underlay of kind `vhost-user` are absent.
    pub(super) fn no_vhost_underlay(&mut self, underlay: &Underlay) {
        let keys = [
            ("socket", underlay.socket.is_some()),
            ("client", underlay.client),
            ("mac", underlay.mac.is_some()),
        ];
        for (key, there) in keys {
            if there {
                self.problem(
                    &[Key("underlay"), Key(key)],
                    "only an underlay of kind `vhost-user` has this",
                    "Take it out: a device has its own.",
                );
            }
        }
    }
}
