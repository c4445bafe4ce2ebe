//! Checks of a configuration's meaning: names that exist, numbers that fit, and combinations that
//! can keep the promises of the policy. Every check reports the error and the remedy.

mod chip;
mod evpn;
mod fabric;
mod links;
mod members;
mod sockets;
mod underlay;
mod vlans;
mod workers;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use sluice_api::config::{HostConfig, Role, UnderlayKind};
use sluice_base::{Mac, Vni};

use super::build::MTU_DEFAULT;
use super::document::{Document, Step, path_text, suggestion};
use super::report::{Problem, Report};
use super::{DeviceFacts, Devices};

use Step::{At, Key};

/// Bytes that VXLAN over IPv4 adds around a tenant's frame, from layer 3 to layer 3: inner Ethernet
/// 14, VXLAN 8, UDP 8, IP 20.
pub(super) const OVERHEAD: u16 = 50;
/// Smallest MTU that carries IPv4 well (RFC 791: 68; RFC 1122 wants 576).
const MTU_MIN: u16 = 576;
/// Longest name of a network device.
pub(super) const DEVICE_NAME_SIZE_MAX: usize = 15;
/// Most ports that may be added at run time.
const SPARE_PORTS_MAX: u16 = 4096;
/// Shortest silence of a data process that differs from a busy machine.
const DATA_HUNG_MS_MIN: u32 = 500;
/// Names that have another meaning in answers.
pub(super) const RESERVED: [&str; 3] = ["control", "pool", "underlay"];

/// A configuration under examination.
pub(super) struct Check<'a> {
    document: &'a Document<'a>,
    config: &'a HostConfig,
    devices: &'a dyn Devices,
    report: &'a mut Report,
    /// Positions of the networks; of several with one name the first.
    vnets: BTreeMap<&'a str, usize>,
}

impl<'a> Check<'a> {
    pub(super) fn new(
        document: &'a Document<'a>,
        config: &'a HostConfig,
        devices: &'a dyn Devices,
        report: &'a mut Report,
    ) -> Self {
        let names = config.vnets.iter().map(|vnet| vnet.name.as_str());
        let vnets = names.enumerate().map(|(at, name)| (name, at)).rev().collect();
        Self { document, config, devices, report, vnets }
    }

    /// Runs every check.
    pub(super) fn all(mut self) {
        self.host();
        self.lifetime();
        self.api();
        self.policy();
        self.underlay();
        self.chip();
        self.buffers();
        self.classes();
        self.vnets();
        self.ports();
        self.workers();
        self.peers();
        self.fabric();
        self.evpn();
        self.vports();
        self.vport_policies();
    }

    fn problem(&mut self, path: &[Step<'_>], what: impl Into<String>, remedy: impl Into<String>) {
        self.report.problems.push(Problem {
            line: self.document.line(path),
            key: path_text(path),
            what: what.into(),
            remedy: remedy.into(),
        });
    }

    fn facts(&self, device: &str) -> Option<DeviceFacts> {
        self.devices.facts(device)
    }

    fn api(&mut self) {
        if let Err((keys, what, remedy)) = self.config.api.check() {
            let path: Vec<_> = ["api"].iter().chain(keys).map(|key| Key(key)).collect();
            self.problem(&path, what, remedy);
        }
    }

    fn host(&mut self) {
        let host = &self.config.host;
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if host.name.is_empty() || !host.name.chars().all(good) || host.name.starts_with('.') {
            self.problem(
                &[Key("host"), Key("name")],
                format!("`{}` cannot be the name of a directory", host.name),
                "Use letters, digits, `-`, `_` and `.`, and do not begin with a dot.",
            );
        }
        if host.chip_macs == 0 {
            self.problem(
                &[Key("host"), Key("chip_macs")],
                "a MAC table without entries forwards nothing",
                "Leave the key out for the default of 294912 entries.",
            );
        }
        if host.chip_flows == 0 {
            self.problem(
                &[Key("host"), Key("chip_flows")],
                "a forwarding table without flows sends nothing to other hosts",
                "Leave the key out for the default of 57344 flows.",
            );
        }
        if host.pace_us > 10_000 {
            self.problem(
                &[Key("host"), Key("pace_us")],
                "a busy worker would sleep for more than 10 ms at a time",
                "Use 50 to 200; the default is 100.",
            );
        }
        if host.spare_ports.is_some_and(|ports| ports > SPARE_PORTS_MAX) {
            self.problem(
                &[Key("host"), Key("spare_ports")],
                format!("memory would be taken for more than {SPARE_PORTS_MAX} ports"),
                "Use as many as this host may have containers at a time; the default is 64.",
            );
        }
        if host.unresolved_timeout_ms == 0 {
            self.problem(
                &[Key("host"), Key("unresolved_timeout_ms")],
                "a frame could not wait for its destination at all",
                "Leave the key out for the default of 1000 ms.",
            );
        }
        if host.run_dir.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
            self.problem(
                &[Key("host"), Key("run_dir")],
                "is not an absolute path",
                "Use a path that begins with `/`; the default is `/run/sluice/NAME`.",
            );
        }
    }

    fn lifetime(&mut self) {
        let host = &self.config.host;
        if host.state_dir.as_ref().is_some_and(|dir| !dir.starts_with('/')) {
            self.problem(
                &[Key("host"), Key("state_dir")],
                "is not an absolute path",
                "Use a path that begins with `/`; the default is `/var/lib/sluice/NAME`.",
            );
        }
        if (1..DATA_HUNG_MS_MIN).contains(&host.data_hung_ms) {
            self.problem(
                &[Key("host"), Key("data_hung_ms")],
                format!(
                    "a busy machine may keep a process from answering for {} ms",
                    host.data_hung_ms
                ),
                format!("Use {DATA_HUNG_MS_MIN} or more, or 0 for never; the default is 5000."),
            );
        }
    }

    fn policy(&mut self) {
        let host = &self.config.host;
        let kind = self.config.underlay.as_ref().map(|underlay| underlay.kind);
        if let Some(lossy) = kind.map(|kind| host.policy.on(kind)).filter(|on| *on != host.policy) {
            let lossy = lossy.name();
            self.problem(
                &[Key("underlay"), Key("kind")],
                format!(
                    "policy {} pauses the physical network, and a UDP socket can neither send nor \
                     see pause frames",
                    host.policy.name()
                ),
                format!(
                    "Use `kind = \"l2\"` on a device that carries PFC, or `policy = \"{lossy}\"`."
                ),
            );
        }
        if host.role == Role::Switch {
            self.switch_role();
        } else if self.config.underlay.is_none() && !self.config.peers.is_empty() {
            self.problem(
                &[Key("peer")],
                "there are peers and no underlay to reach them by",
                "Add an `[underlay]` with `kind`, `device` and `address`.",
            );
        }
    }

    fn switch_role(&mut self) {
        let why = "a switch has cables only";
        let remedy = "Take it out, or use `role = \"host\"`.";
        if self.config.underlay.is_some() {
            self.problem(&[Key("underlay")], why, remedy);
        }
        if !self.config.peers.is_empty() {
            self.problem(&[Key("peer")], why, remedy);
        }
    }

    fn buffers(&mut self) {
        let buffers = &self.config.buffers;
        for (name, size) in [
            ("vport_in", buffers.vport_in),
            ("vport_out", buffers.vport_out),
            ("underlay_in", buffers.underlay_in),
            ("underlay_out", buffers.underlay_out),
            ("cable", buffers.cable),
            ("pool_from_underlay", buffers.pool_from_underlay),
            ("pool_from_local", buffers.pool_from_local),
        ] {
            self.size(&[Key("buffers"), Key(name)], size);
        }
        if !(1..=100).contains(&buffers.pair_share_percent) {
            self.problem(
                &[Key("buffers"), Key("pair_share_percent")],
                format!("{} % is no share", buffers.pair_share_percent),
                "Use 1 to 100; the default is 50.",
            );
        }
    }

    fn size(&mut self, path: &[Step<'_>], size: sluice_api::config::Size) {
        if size.frames == 0 || size.bytes < 1600 {
            self.problem(
                path,
                format!(
                    "{} frames and {} bytes: one full frame does not fit",
                    size.frames, size.bytes
                ),
                "Give at least 1 frame and 1600 bytes; both numbers bind.",
            );
        }
    }

    fn classes(&mut self) {
        let mut seen = [None; 8];
        let mut dscps: BTreeMap<u8, usize> = BTreeMap::new();
        for (index, class) in self.config.classes.iter().enumerate() {
            let at = [Key("class"), At(index), Key("priority")];
            match seen.get_mut(usize::from(class.priority)) {
                None => self.problem(
                    &at,
                    format!("there is no priority {}", class.priority),
                    "Use 0 to 7.",
                ),
                Some(slot) => {
                    if let Some(first) = slot.replace(index) {
                        self.twice(&at, &format!("priority {}", class.priority), "class", first);
                    }
                }
            }
            if class.weight == Some(0) {
                self.problem(
                    &[Key("class"), At(index), Key("weight")],
                    "a weight of 0 would never be served",
                    "Use 1 to 255.",
                );
            }
            if class.strict && class.weight.is_some() {
                self.problem(
                    &[Key("class"), At(index), Key("weight")],
                    "a strict priority has no weight",
                    "Take one of `strict` and `weight` out.",
                );
            }
            for &dscp in &class.dscp {
                let at = [Key("class"), At(index), Key("dscp")];
                if dscp > 63 {
                    self.problem(&at, format!("there is no DSCP {dscp}"), "Use 0 to 63.");
                } else if let Some(first) = dscps.insert(dscp, index) {
                    self.twice(&at, &format!("DSCP {dscp}"), "class", first);
                }
            }
        }
    }

    fn vnets(&mut self) {
        let mut names = BTreeMap::new();
        let mut vnis = BTreeMap::new();
        for (index, vnet) in self.config.vnets.iter().enumerate() {
            if let Some(first) = names.insert(&vnet.name, index) {
                let at = [Key("vnet"), At(index), Key("name")];
                self.twice(&at, &format!("network `{}`", vnet.name), "vnet", first);
            }
            if let Some(priority) = vnet.priority.filter(|priority| *priority > 7) {
                self.problem(
                    &[Key("vnet"), At(index), Key("priority")],
                    format!("there is no priority {priority}"),
                    "Use 0 to 7.",
                );
            }
            if vnet.service_mbps == Some(0) {
                self.problem(
                    &[Key("vnet"), At(index), Key("service_mbps")],
                    "a rate of 0 Mbit/s would serve no port",
                    "Leave it out for no limit.",
                );
            }
            let at = [Key("vnet"), At(index), Key("vni")];
            match vnet.vni {
                Some(vni) if Vni::new(vni).is_none() => self.problem(
                    &at,
                    format!("{vni} does not fit into the 24 bits of a VNI"),
                    format!("Use 0 to {}.", Vni::MAX),
                ),
                Some(vni) => {
                    if let Some(first) = vnis.insert(vni, index) {
                        self.twice(&at, &format!("VNI {vni}"), "vnet", first);
                    }
                }
                None if self.config.underlay.is_some() => self.problem(
                    &at,
                    format!("network `{}` has no number on the underlay", vnet.name),
                    "Add `vni = …`, the same on every host that has this network.",
                ),
                None => {}
            }
            self.vnet_mtu(index);
        }
    }

    fn vport_policies(&mut self) {
        for (vnet, vports) in &self.config.vport_policies {
            for (port, policy) in vports {
                let at = [Key("vport_policy"), Key(vnet), Key(port)];
                if let Err(why) = policy.check(vnet, port) {
                    self.problem(&at, why, "Change it, or take it out.");
                }
            }
        }
    }

    fn vnet_mtu(&mut self, index: usize) {
        let Some(mtu) = self.config.vnets[index].mtu else { return };
        let at = [Key("vnet"), At(index), Key("mtu")];
        if mtu < MTU_MIN {
            self.problem(&at, format!("{mtu} is too small"), format!("Use at least {MTU_MIN}."));
        }
        let Some(underlay) = &self.config.underlay else { return };
        let in_memory = underlay.kind == UnderlayKind::VhostUser;
        let of_device = if in_memory {
            Some(MTU_DEFAULT)
        } else {
            self.facts(&underlay.device).map(|facts| facts.mtu)
        };
        let Some(outer) = underlay.mtu.or(of_device) else { return };
        let mtu_max = outer.saturating_sub(OVERHEAD);
        if mtu > mtu_max {
            let (device, needed) = (&underlay.device, u32::from(mtu) + u32::from(OVERHEAD));
            let raise = if in_memory {
                format!("`mtu = {needed}` in `[underlay]`")
            } else {
                format!("`ip link set {device} mtu {needed}`")
            };
            self.problem(
                &at,
                format!(
                    "{mtu} bytes and {OVERHEAD} of VXLAN headers do not fit into the underlay's \
                     MTU of {outer}"
                ),
                format!("Use {mtu_max} or less, or raise the underlay: {raise}."),
            );
        }
    }

    fn twice(&mut self, path: &[Step<'_>], what: &str, list: &str, first: usize) {
        let line = self.document.line(&[Key(list), At(first)]);
        let line = line.map_or_else(String::new, |line| format!(", first on line {line}"));
        self.problem(path, format!("{what} is there twice{line}"), "Take one of the two out.");
    }

    fn known(&mut self, path: &[Step<'_>], list: &str, name: &str) -> Option<usize> {
        let config = self.config;
        let names = || -> Vec<&str> {
            match list {
                "vnet" => config.vnets.iter().map(|v| v.name.as_str()).collect(),
                "peer" => config.peers.iter().map(|p| p.name.as_str()).collect(),
                _ => config.ports.iter().map(|p| p.name.as_str()).collect(),
            }
        };
        let found = match list {
            // Every peer names every network.
            "vnet" => self.vnets.get(name).copied(),
            _ => names().iter().position(|known| *known == name),
        };
        if found.is_none() {
            self.problem(path, format!("there is no {list} `{name}`"), suggestion(name, &names()));
        }
        found
    }

    fn mac(&mut self, path: &[Step<'_>], text: &str) -> Option<Mac> {
        match text.parse::<Mac>() {
            Ok(mac) if mac.is_group() => {
                self.problem(
                    path,
                    format!("{mac} is a group address, which no endpoint can have"),
                    "The second hexadecimal digit must be even, as in 02:00:00:00:00:01.",
                );
                None
            }
            Ok(mac) => Some(mac),
            Err(error) => {
                self.problem(path, format!("`{text}` is not a MAC address"), capitalised(&error));
                None
            }
        }
    }

    fn device_name(&mut self, path: &[Step<'_>], name: &str) {
        if !is_device_name(name) {
            self.problem(
                path,
                format!("`{name}` cannot be the name of a network device"),
                format!("Use 1 to {DEVICE_NAME_SIZE_MAX} characters without spaces and `/`."),
            );
        }
    }
}

/// Returns true if an address may be that of one host (RFC 1122, section 3.2.1.3).
pub(crate) fn is_host_address(address: Ipv4Addr) -> bool {
    address.octets()[0] != 0 && !address.is_multicast() && !address.is_broadcast()
}

/// Returns true if Linux accepts the name for a device.
pub(super) fn is_device_name(name: &str) -> bool {
    let bad = |c: char| c == '/' || c.is_whitespace();
    !name.is_empty() && name.len() <= DEVICE_NAME_SIZE_MAX && !name.contains(bad)
}

fn capitalised(error: &impl ToString) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}
