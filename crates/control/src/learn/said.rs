//! Information on its source in a frame of ARP (RFC 826, RFC 5227) or Neighbor Discovery (RFC
//! 4861).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_base::Mac;
use sluice_wire::{arp, icmpv6};

use super::Reason;
use crate::frame::{Body, Frame};

/// Information on its source in a frame, beyond the header.
pub(super) struct Said {
    /// An address that the source uses.
    pub(super) uses: Option<IpAddr>,
    /// An address that the source has, and true if it may be published: an address of a router may
    /// not.
    pub(super) has: Option<(IpAddr, bool)>,
    /// True for an announcement to all.
    pub(super) announces: bool,
    /// The address for which the source probes.
    pub(super) probes: Option<IpAddr>,
}

impl Said {
    const NOTHING: Self = Self { uses: None, has: None, announces: false, probes: None };
}

/// Returns the address of its source that `frame` teaches, if it teaches any.
///
/// # Errors
/// The source is no endpoint, or its message must not be believed.
pub(crate) fn taught(frame: &Frame<'_>) -> Result<Option<IpAddr>, Reason> {
    if frame.src.is_group() {
        return Err(Reason::GroupSource);
    }
    if frame.src == Mac::default() {
        return Err(Reason::ZeroSource);
    }
    let has = said(frame)?.has;
    Ok(has.filter(|(_, tell)| *tell).map(|(ip, _)| ip))
}

/// Returns the address that the source of `frame` says it has, if that may be believed. Such a
/// source is present and uses the address.
pub(crate) fn confirmed(frame: &Frame<'_>) -> Option<IpAddr> {
    said(frame).ok()?.uses
}

/// Returns the address that the source of `frame` announces to all, if that may be believed.
pub(crate) fn announced(frame: &Frame<'_>) -> Option<IpAddr> {
    let said = said(frame).ok()?;
    said.uses.filter(|_| said.announces)
}

/// Reads the information on its source from `frame`, if it may be believed.
pub(super) fn said(frame: &Frame<'_>) -> Result<Said, Reason> {
    match frame.body {
        Body::Malformed => Err(Reason::Malformed),
        Body::Other => Ok(Said::NOTHING),
        Body::Arp(arp) if arp.sender_mac != frame.src => Err(Reason::SenderMismatch),
        // A probe: the sender has no address yet (RFC 5227 section 2.1.1).
        Body::Arp(arp) if arp.sender_ip.is_unspecified() => {
            let probes = arp.is_probe().then_some(arp.target_ip.into());
            Ok(Said { probes, ..Said::NOTHING })
        }
        Body::Arp(arp) if !is_unicast_v4(arp.sender_ip) => Err(Reason::BadAddress),
        Body::Arp(arp) => {
            let ip = IpAddr::V4(arp.sender_ip);
            // A reply to all is as good as a gratuitous one. A unicast reply is no news for other
            // endpoints.
            let tells = arp.is_gratuitous() || arp.operation == arp::Operation::REPLY;
            let announces = tells && frame.dst.is_group();
            Ok(Said { uses: Some(ip), has: Some((ip, true)), announces, probes: None })
        }
        Body::Neighbor { src, message, .. } => {
            let said = said_by_neighbor(frame.src, src, message)?;
            Ok(Said { announces: said.announces && frame.dst.is_group(), ..said })
        }
    }
}

fn said_by_neighbor(mac: Mac, src: Ipv6Addr, message: icmpv6::Repr) -> Result<Said, Reason> {
    let (link, target) = match message {
        icmpv6::Repr::Solicitation { source_mac, .. } => (source_mac, None),
        icmpv6::Repr::Advertisement { target, target_mac, router, .. } => {
            (target_mac, Some((target, !router)))
        }
    };
    if link.is_some_and(|link| link != mac) {
        return Err(Reason::SenderMismatch);
    }
    let announces = matches!(message, icmpv6::Repr::Advertisement { solicited: false, .. });
    let probes = match message {
        icmpv6::Repr::Solicitation { target, .. } => Some(target.into()),
        icmpv6::Repr::Advertisement { .. } => None,
    };
    match target {
        Some((ip, _)) if !is_unicast_v6(ip) => Err(Reason::BadAddress),
        Some((ip, tell)) => {
            let has = Some((ip.into(), tell));
            Ok(Said { uses: Some(ip.into()), has, announces, probes: None })
        }
        None if src.is_unspecified() => Ok(Said { probes, ..Said::NOTHING }),
        None if !is_unicast_v6(src) => Err(Reason::BadAddress),
        None => Ok(Said { uses: Some(src.into()), ..Said::NOTHING }),
    }
}

/// Returns true if an interface can have the address (RFC 1122 section 3.2.1.3).
pub(crate) const fn is_unicast_v4(ip: Ipv4Addr) -> bool {
    let first = ip.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// Returns true if an interface of a link can have the address (RFC 4291 clauses 2.5.2, 2.5.3 and
/// 2.7).
pub(crate) const fn is_unicast_v6(ip: Ipv6Addr) -> bool {
    !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast()
}
