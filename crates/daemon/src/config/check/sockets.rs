//! Ports for virtual machines: the sockets to their front ends.

use std::collections::BTreeMap;

use super::{At, Check, Key};
use crate::sys::run_dir::SOCKET_PATH_SIZE_MAX;

/// Sockets in the file, each with the index of its port.
pub(super) type Sockets<'a> = BTreeMap<&'a str, usize>;

/// Returns true if a socket can have this path.
pub(super) fn is_socket_path(path: &str) -> bool {
    path.starts_with('/') && path.len() <= SOCKET_PATH_SIZE_MAX
}

impl<'c> Check<'c> {
    pub(super) fn vhost_user(&mut self, index: usize, sockets: &mut Sockets<'c>) {
        let port = &self.config.ports[index];
        let at = |key| [Key("port"), At(index), Key(key)];
        match port.socket.as_deref() {
            None => self.problem(
                &at("socket"),
                "a port for a virtual machine needs the path of its socket",
                format!(
                    "Add `socket = \"/run/sluice/{}.sock\"`, and give QEMU the same.",
                    port.name
                ),
            ),
            Some(path) if !is_socket_path(path) => self.problem(
                &at("socket"),
                format!("`{path}` is not a path that a socket can have"),
                format!("Use one from `/` on, of at most {SOCKET_PATH_SIZE_MAX} bytes."),
            ),
            Some(path) => {
                if let Some(first) = sockets.insert(path, index) {
                    self.twice(&at("socket"), &format!("socket `{path}`"), "port", first);
                }
            }
        }
        self.queues(index);
        for (key, there) in [
            ("device", !port.device.is_empty()),
            ("netns", port.netns.is_some()),
            ("ring_frames", port.ring_frames.is_some()),
            ("vlan", port.vlan.is_some()),
            ("native", port.native),
            ("link", port.link.is_some()),
        ] {
            if there {
                self.problem(
                    &at(key),
                    "a port for a virtual machine has a socket and no device",
                    "Take it out; the length of its rings is set with the machine.",
                );
            }
        }
    }

    /// Checks that each priority has one queue.
    fn queues(&mut self, index: usize) {
        let port = &self.config.ports[index];
        if port.queues.is_empty() {
            return;
        }
        let at = [Key("port"), At(index), Key("queues")];
        let mut all: Vec<u8> = port.queues.iter().flatten().copied().collect();
        all.sort_unstable();
        if port.queues.iter().any(Vec::is_empty) || all != [0, 1, 2, 3, 4, 5, 6, 7] {
            self.problem(
                &at,
                "the queues have not each priority from 0 to 7 once, and each queue at least one",
                "Use a list for each queue, such as `queues = [[0, 1, 2, 3], [4, 5, 6, 7]]`.",
            );
        }
    }

    /// Checks that a port for a virtual machine or a container only leaves offloads.
    pub(super) fn no_offload(&mut self, index: usize) {
        if !self.config.ports[index].offload {
            self.problem(
                &[Key("port"), At(index), Key("offload")],
                "only a port for a virtual machine or a container has this",
                "Take it out, or use `kind = \"vhost-user\"` or `kind = \"tap\"`.",
            );
        }
    }

    /// Checks that only a port for a virtual machine has a socket.
    pub(super) fn no_socket(&mut self, index: usize) {
        let port = &self.config.ports[index];
        let at = |key| [Key("port"), At(index), Key(key)];
        let keys = [
            ("socket", port.socket.is_some()),
            ("client", port.client),
            ("in_order", port.in_order),
            ("queues", !port.queues.is_empty()),
        ];
        for (key, there) in keys {
            if there {
                self.problem(
                    &at(key),
                    "only a port for a virtual machine has this",
                    "Take it out, or use `kind = \"vhost-user\"`.",
                );
            }
        }
    }
}
