//! Check of the addresses that a bound machine may use.

use core::net::{IpAddr, Ipv6Addr};

use sluice_base::{DropReason, IpPrefix, Mac};
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv4, ipv6};

use crate::surface::BoundIps;
use crate::switch::punt::behind_tag;

/// One machine of a bound port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    mac: u64,
    ips: BoundIps,
}

impl Bound {
    pub(super) const fn new(mac: u64, ips: BoundIps) -> Self {
        Self { mac, ips }
    }

    /// Returns its address as a number.
    #[inline]
    pub(super) const fn mac(&self) -> u64 {
        self.mac
    }

    /// Takes an address from the machine.
    pub(super) fn unbind(&mut self, ip: IpAddr) {
        self.ips.iter_mut().filter(|there| **there == Some(ip)).for_each(|there| *there = None);
    }

    /// Returns true if the machine may have any address.
    pub(super) fn is_free(&self, allowed: &[IpPrefix]) -> bool {
        allowed.is_empty() && !self.has_ips()
    }

    pub(super) fn has_ips(&self) -> bool {
        self.ips.iter().any(Option::is_some)
    }

    pub(super) fn has(&self, ip: IpAddr) -> bool {
        self.ips.contains(&Some(ip))
    }
}

/// A bound machine, and the prefixes that its port allows.
pub(super) struct Speaker<'a> {
    bound: &'a Bound,
    allowed: &'a [IpPrefix],
}

impl<'a> Speaker<'a> {
    pub(super) const fn new(bound: &'a Bound, allowed: &'a [IpPrefix]) -> Self {
        Self { bound, allowed }
    }

    fn is_free(&self) -> bool {
        self.bound.is_free(self.allowed)
    }

    fn has(&self, ip: IpAddr) -> bool {
        let is_allowed = || self.allowed.iter().any(|prefix| prefix.contains(ip));
        self.is_free() || self.bound.has(ip) || is_allowed()
    }

    /// Checks that a frame with the machine's MAC uses the machine's addresses only.
    pub(super) fn judge(&self, head: &[u8]) -> Result<(), DropReason> {
        let frame = ethernet::Frame::new_checked(head).ok();
        let inner = frame.as_ref().and_then(behind_tag);
        let (ethertype, payload) = inner.ok_or(DropReason::SpoofedMac)?;
        match ethertype {
            EtherType::ARP => self.judge_arp(payload),
            _ if self.is_free() => Ok(()),
            EtherType::IPV4 => {
                let ip = ipv4::Packet::new_checked(payload).map_err(|_| DropReason::SpoofedIp)?;
                let asks = ip.src().is_unspecified() && ip.dst().is_broadcast();
                self.own(asks || self.has(ip.src().into()))
            }
            EtherType::IPV6 => {
                let ip = ipv6::Packet::new_checked(payload).map_err(|_| DropReason::SpoofedIp)?;
                self.own(ip.src().is_unspecified() || self.has_v6(ip.src()))?;
                self.judge_advertisement(&ip)
            }
            _ => Ok(()),
        }
    }

    fn judge_arp(&self, payload: &[u8]) -> Result<(), DropReason> {
        // Receivers ignore malformed ARP.
        let Ok(arp) = arp::Packet::new_checked(payload) else { return Ok(()) };
        if !arp.is_well_formed() {
            return Ok(());
        }
        if arp.sender_mac().to_u64() != self.bound.mac {
            return Err(DropReason::SpoofedMac);
        }
        let probes = arp.operation() == arp::Operation::REQUEST && arp.sender_ip().is_unspecified();
        self.own(probes || self.has(arp.sender_ip().into()))
    }

    fn judge_advertisement(&self, ip: &ipv6::Packet<'_>) -> Result<(), DropReason> {
        let message = ip.payload();
        let is_advertisement = ip.next_header() == icmpv6::PROTOCOL
            && icmpv6::Kind::of(message) == Some(icmpv6::Kind::NEIGHBOR_ADVERTISEMENT);
        if !is_advertisement {
            return Ok(());
        }
        let target = message.get(8..icmpv6::HEADER_SIZE).and_then(|t| <[u8; 16]>::try_from(t).ok());
        self.own(target.is_some_and(|target| self.has_v6(target.into())))
    }

    fn has_v6(&self, ip: Ipv6Addr) -> bool {
        ipv6::may_have_link_local(Mac::from_u64(self.bound.mac), ip) || self.has(ip.into())
    }

    fn own(&self, is: bool) -> Result<(), DropReason> {
        if is { Ok(()) } else { Err(DropReason::SpoofedIp) }
    }
}
