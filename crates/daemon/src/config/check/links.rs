//! The underlay and the links: thresholds, rates and the headroom beyond them.

use sluice_api::config::{Link, Role, Size, Underlay, UnderlayKind};

use super::{At, Check, Key, MTU_MIN, Step};
use crate::config::build::{headroom, link_of, sharing, thresholds};

impl Check<'_> {
    pub(super) fn underlay(&mut self) {
        let Some(underlay) = &self.config.underlay else { return };
        if self.config.host.role == Role::Switch {
            return;
        }
        let in_memory = underlay.kind == UnderlayKind::VhostUser;
        if in_memory {
            self.vhost_underlay(underlay);
        } else {
            self.underlay_device(underlay);
        }
        let address = underlay.address;
        if address.is_unspecified() || address.is_multicast() || address.is_broadcast() {
            let remedy = if in_memory {
                "Use the address that the other hosts have for this one.".to_owned()
            } else {
                format!("Use an address of {}, as `ip -4 addr` shows it.", underlay.device)
            };
            let what = format!("{address} is not the address of one host");
            self.problem(&[Key("underlay"), Key("address")], what, remedy);
        }
        let facts = self.facts(&underlay.device).filter(|_| !in_memory);
        let outer = underlay.mtu.or(facts.map(|facts| facts.mtu));
        if let Some(mtu) = outer.filter(|mtu| *mtu < MTU_MIN + super::OVERHEAD) {
            self.problem(
                &[Key("underlay"), Key("mtu")],
                format!("{mtu} leaves too little for the networks"),
                format!("Use at least {}.", MTU_MIN + super::OVERHEAD),
            );
        }
        if let (Some(said), Some(facts)) = (underlay.mtu, facts)
            && said > facts.mtu
        {
            self.problem(
                &[Key("underlay"), Key("mtu")],
                format!("{said} is more than the {} that {} takes", facts.mtu, underlay.device),
                format!(
                    "Use {} or less, or `ip link set {} mtu {said}`.",
                    facts.mtu, underlay.device
                ),
            );
        }
        let buffers = &self.config.buffers;
        let size = underlay.link.input.unwrap_or(buffers.underlay_in);
        let at = [Key("underlay"), Key("link")];
        if in_memory {
            self.rate(&at, &underlay.link, outer.unwrap_or(1500));
        } else {
            self.link(&at, &underlay.link, size, outer.unwrap_or(1500));
        }
    }

    /// Checks the device of an underlay that has one.
    fn underlay_device(&mut self, underlay: &Underlay) {
        let at = [Key("underlay"), Key("device")];
        self.no_vhost_underlay(underlay);
        if underlay.device.is_empty() {
            self.problem(&at, "is missing", "Add a line `device = …`.");
            return;
        }
        self.device_name(&at, &underlay.device);
        if self.facts(&underlay.device).is_none() {
            self.problem(
                &at,
                format!("there is no network device `{}` here", underlay.device),
                "`ip link` lists the devices of this network namespace.",
            );
        }
    }

    /// Checks one link; `input` is the limit of its input.
    pub(super) fn link(&mut self, path: &[Step<'_>], link: &Link, input: Size, mtu: u16) {
        if !self.rate(path, link, mtu) || !self.config.host.policy.physical_lossless() {
            return;
        }
        self.pauses(path, link, input, mtu);
    }

    /// Checks its rate and its buffers. Returns true if it carries anything.
    fn rate(&mut self, path: &[Step<'_>], link: &Link, mtu: u16) -> bool {
        let at = |key| [path, &[Key(key)][..]].concat();
        if link.rate_mbps == Some(0) {
            self.problem(
                &at("rate_mbps"),
                "a link of 0 Mbit/s carries nothing",
                "Leave the key out for a link that is not limited.",
            );
            return false;
        }
        for (key, size) in [("in", link.input), ("out", link.output)] {
            if let Some(size) = size {
                self.size(&at(key), size);
            }
        }
        if let (Some(rate), Some(catch_up)) = (link.rate_mbps, link.catch_up_us) {
            let burst = u128::from(rate) * u128::from(catch_up) / 8;
            let frame = u128::from(mtu) + 14 + 4 + 24;
            if burst < frame {
                self.problem(
                    &at("catch_up_us"),
                    format!("at {rate} Mbit/s this is a burst of {burst} bytes, less than a frame"),
                    format!("Use {} or more.", (frame * 8).div_ceil(u128::from(rate))),
                );
            }
        }
        true
    }

    /// Checks its pause thresholds, and the headroom beyond them.
    fn pauses(&mut self, path: &[Step<'_>], link: &Link, input: Size, mtu: u16) {
        let at = |key| [path, &[Key(key)][..]].concat();
        let (xoff, xon) = thresholds(link, input);
        if xon >= xoff {
            let key = if link.xon_bytes.is_some() { "xon_bytes" } else { "xoff_bytes" };
            self.problem(
                &at(key),
                format!("XON at {xon} bytes is not below XOFF at {xoff}"),
                "XON must be below XOFF, and XOFF below the input buffer; without the keys they \
                 are 40 % and 60 % of it.",
            );
        } else if xoff >= input.bytes {
            self.problem(
                &at("xoff_bytes"),
                format!("XOFF at {xoff} bytes is not below the input buffer of {}", input.bytes),
                "XON must be below XOFF, and XOFF below the input buffer; without the keys they \
                 are 40 % and 60 % of it.",
            );
        }
        let need = headroom(self.config, link, mtu);
        if let Some(ring) = link.ring_bytes
            && ring < need.bytes().0
        {
            self.problem(
                &at("ring_bytes"),
                format!(
                    "a receive ring of {ring} bytes is smaller than the headroom of {}: {} for \
                     2 x {} and a stall of {}, the response, and 2 frames for each of {} lossless \
                     priorities",
                    need.bytes(),
                    need.rate,
                    need.delay,
                    need.stall,
                    need.lossless
                ),
                format!(
                    "Use {} or more, leave the key out, or lower `stall_ms` if the reader is \
                     never descheduled that long.",
                    need.bytes().0
                ),
            );
        }
    }

    pub(super) fn cable(&mut self, index: usize) {
        let port = &self.config.ports[index];
        // Ports of one device share a link, which is checked at the port that configures it.
        if port.link.is_none() && sharing(self.config, port).any(|other| other.link.is_some()) {
            return;
        }
        let link = link_of(self.config, port);
        let size = link.input.unwrap_or(self.config.buffers.cable);
        let vnet = self.config.vnets.iter().find(|vnet| vnet.name == port.vnet);
        let mtu = vnet.and_then(|vnet| vnet.mtu).unwrap_or(1500);
        self.link(&[Key("port"), At(index), Key("link")], &link, size, mtu);
    }
}
