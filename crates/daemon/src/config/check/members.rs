//! Ports, peers and endpoints: names that exist, and addresses that are unique.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use sluice_api::config::{PortKind, Role, Vport};
use sluice_base::Mac;
use sluice_switch::ALLOWED_MAX;

use super::sockets::Sockets;
use super::{At, Check, Key, RESERVED, is_host_address};

/// Claimed place of an address, and the entry that claims it.
#[derive(PartialEq, Eq)]
struct Said<'a> {
    to: (&'static str, &'a str),
    list: &'static str,
    index: usize,
}

impl Check<'_> {
    pub(super) fn ports(&mut self) {
        let mut names = BTreeMap::new();
        let mut devices = BTreeMap::new();
        let mut sockets = Sockets::new();
        for (index, port) in self.config.ports.iter().enumerate() {
            let at = |key| [Key("port"), At(index), Key(key)];
            if RESERVED.contains(&port.name.as_str()) {
                self.problem(
                    &at("name"),
                    format!("`{}` means something else in answers", port.name),
                    "Choose another name.",
                );
            }
            if let Some(first) = names.insert(&port.name, index) {
                self.twice(&at("name"), &format!("port `{}`", port.name), "port", first);
            }
            if port.kind != PortKind::VhostUser {
                match devices.entry((&port.netns, &port.device)) {
                    Entry::Vacant(place) => {
                        place.insert(index);
                    }
                    Entry::Occupied(first) => self.shared_device(*first.get(), index),
                }
                self.device_name(&at("device"), &port.device);
                self.no_socket(index);
            }
            if port.kind == PortKind::L2 {
                self.no_offload(index);
            }
            self.known(&at("vnet"), "vnet", &port.vnet);
            if port.priority > 7 {
                self.problem(
                    &at("priority"),
                    format!("there is no priority {}", port.priority),
                    "Use 0 to 7.",
                );
            }
            if port.service_mbps == Some(0) {
                self.problem(
                    &at("service_mbps"),
                    "a vNIC that takes nothing",
                    "Leave the key out for a vNIC that is not limited.",
                );
            }
            if self.config.host.role == Role::Switch && port.kind != PortKind::L2 {
                self.problem(
                    &at("kind"),
                    "a switch has cables only",
                    "Use `kind = \"l2\"`, or `role = \"host\"`.",
                );
            }
            self.allowed(index);
            match port.kind {
                PortKind::Tap | PortKind::Veth | PortKind::Kernel => self.card(index),
                PortKind::VhostUser => self.vhost_user(index, &mut sockets),
                PortKind::L2 => self.l2(index),
            }
        }
    }

    /// Checks that shared addresses belong to a bound port.
    fn allowed(&mut self, index: usize) {
        let port = &self.config.ports[index];
        let at = [Key("port"), At(index), Key("allow_ip")];
        if port.allowed.len() > ALLOWED_MAX {
            self.problem(
                &at,
                format!("{} entries are more than the {ALLOWED_MAX} of a port", port.allowed.len()),
                "Use prefixes, such as `10.0.0.0/24`.",
            );
        }
        if !port.allowed.is_empty() && (port.mac.is_none() || self.config.fabric.is_none()) {
            self.problem(
                &at,
                "a port that is bound to no MAC takes any address",
                "Take it out, or bind the port: `mac`, in a fabric.",
            );
        }
    }

    /// Checks a TAP or a veth pair.
    fn card(&mut self, index: usize) {
        let port = &self.config.ports[index];
        let at = |key| [Key("port"), At(index), Key(key)];
        let what = if port.kind == PortKind::Tap { "a TAP" } else { "a veth pair" };
        if port.link.is_some() {
            self.problem(
                &at("link"),
                format!("{what} is no cable"),
                "Take it out; `service_mbps` is the rate of a vNIC.",
            );
        }
        for (key, there) in [("vlan", port.vlan.is_some()), ("native", port.native)] {
            if there {
                self.problem(
                    &at(key),
                    format!("{what} has no VLANs: its container's frames are those of its network"),
                    "Take it out; `kind = \"l2\"` is for a device with tagged frames.",
                );
            }
        }
        if port.kind != PortKind::Tap && port.ring_frames.is_some() {
            self.problem(
                &at("ring_frames"),
                "the ring of a veth pair is the kernel's, and a full one holds its senders",
                "Take it out; it is for `kind = \"tap\"`.",
            );
        }
        if port.ring_frames == Some(0) {
            self.problem(
                &at("ring_frames"),
                "a TAP without a ring loses every frame",
                "Leave the key out for the default of 20000.",
            );
        }
        if let Some(netns) = &port.netns
            && !netns.starts_with('/')
        {
            self.problem(
                &at("netns"),
                format!("`{netns}` is not the path of a network namespace"),
                format!("Use a path such as `/run/netns/{netns}`."),
            );
        }
    }

    fn l2(&mut self, index: usize) {
        let port = &self.config.ports[index];
        let at = |key| [Key("port"), At(index), Key(key)];
        for (key, there) in [
            ("netns", port.netns.is_some()),
            ("service_mbps", port.service_mbps.is_some()),
            ("ring_frames", port.ring_frames.is_some()),
        ] {
            if there {
                self.problem(
                    &at(key),
                    "only a TAP has this",
                    "Take it out; the settings of a cable stand in `link`.",
                );
            }
        }
        if self.facts(&port.device).is_none() {
            self.problem(
                &at("device"),
                format!("there is no network device `{}` here", port.device),
                "`ip link` lists the devices of this network namespace.",
            );
        }
        self.vlan(index);
        self.cable(index);
    }

    pub(super) fn peers(&mut self) {
        let mut names = BTreeMap::new();
        let mut vteps = BTreeMap::new();
        for (index, peer) in self.config.peers.iter().enumerate() {
            let at = |key| [Key("peer"), At(index), Key(key)];
            if let Some(first) = names.insert(&peer.name, index) {
                self.twice(&at("name"), &format!("peer `{}`", peer.name), "peer", first);
            }
            if let Some(first) = vteps.insert(peer.vtep, index) {
                self.twice(&at("vtep"), &format!("VTEP {}", peer.vtep), "peer", first);
            }
            if self.config.underlay.as_ref().is_some_and(|u| u.address == peer.vtep) {
                self.problem(
                    &at("vtep"),
                    format!("{} is this host's own address", peer.vtep),
                    "A peer is another host; take the entry out, or mend the address.",
                );
            }
            if !is_host_address(peer.vtep) {
                self.problem(
                    &at("vtep"),
                    format!("{} is not the address of one host", peer.vtep),
                    "Use the underlay address of the peer.",
                );
            }
            self.next_hop(index);
            let mut vnets = BTreeMap::new();
            for (position, vnet) in peer.vnets.iter().enumerate() {
                self.known(&at("vnets"), "vnet", vnet);
                if vnets.insert(vnet, position).is_some() {
                    let what = format!("network `{vnet}` is named twice");
                    self.problem(&at("vnets"), what, "Take one of the two out.");
                }
            }
        }
    }

    pub(super) fn vports(&mut self) {
        let config = self.config;
        let mut seen: BTreeMap<(&str, Mac), Said<'_>> = BTreeMap::new();
        for (index, port) in config.ports.iter().enumerate() {
            let Some(text) = &port.mac else { continue };
            let at = [Key("port"), At(index), Key("mac")];
            let Some(mac) = self.mac(&at, text) else { continue };
            let said = Said { to: ("port", &port.name), list: "port", index };
            if let Some(first) = seen.insert((&port.vnet, mac), said) {
                self.twice(&at, &format!("{mac} in network `{}`", port.vnet), "port", first.index);
            }
        }
        for (index, vport) in config.vports.iter().enumerate() {
            let at = |key| [Key("vport"), At(index), Key(key)];
            self.known(&at("vnet"), "vnet", &vport.vnet);
            let to = self.place(index, vport);
            let Some(mac) = self.mac(&at("mac"), &vport.mac) else { continue };
            let Some(to) = to else { continue };
            let said = Said { to, list: "vport", index };
            if let Some(first) = seen.insert((&vport.vnet, mac), said) {
                // A port with its own MAC and a vport that adds its IP agree.
                if first.list == "vport" || first.to != to {
                    let what = format!("{mac} in network `{}`", vport.vnet);
                    self.twice(&at("mac"), &what, first.list, first.index);
                }
            }
        }
    }

    fn place<'v>(&mut self, index: usize, vport: &'v Vport) -> Option<(&'static str, &'v str)> {
        let at = |key| [Key("vport"), At(index), Key(key)];
        match (&vport.peer, &vport.port) {
            (Some(peer), None) => {
                let found = self.known(&at("peer"), "peer", peer)?;
                if self.config.peers[found].id.is_some() {
                    self.problem(
                        &at("peer"),
                        format!(
                            "`{peer}` is a member of the fabric and tells of its own endpoints"
                        ),
                        "Take the entry out.",
                    );
                }
                if !self.config.peers[found].vnets.contains(&vport.vnet) {
                    self.problem(
                        &at("peer"),
                        format!("peer `{peer}` does not have network `{}`", vport.vnet),
                        format!("Add `{}` to the `vnets` of that peer.", vport.vnet),
                    );
                }
                Some(("peer", peer))
            }
            (None, Some(port)) => {
                let found = self.known(&at("port"), "port", port)?;
                let has = &self.config.ports[found].vnet;
                if *has != vport.vnet {
                    self.problem(
                        &at("port"),
                        format!("port `{port}` is in network `{has}`, not in `{}`", vport.vnet),
                        "Name a port of the same network.",
                    );
                }
                Some(("port", port))
            }
            (Some(_), Some(_)) => {
                self.problem(
                    &[Key("vport"), At(index)],
                    "is said to be on a peer and behind a local port",
                    "Take one of `peer` and `port` out.",
                );
                None
            }
            (None, None) => {
                self.problem(
                    &[Key("vport"), At(index)],
                    "does not say where it is",
                    "Add `peer = …` for an endpoint on another host, or `port = …`.",
                );
                None
            }
        }
    }
}
