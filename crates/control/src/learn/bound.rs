//! Checks of bound endpoints: the addresses with which they speak, and the addresses that they
//! share.

use core::net::IpAddr;

use sluice_wire::ipv6;

use super::said::Said;
use super::{Intent, Reason};
use crate::directory::{Found, State};
use crate::vport::{Claim, Precedence};

/// Returns true if the holder keeps an address that another endpoint uses. A bound address is kept.
/// A shared address is kept from a port that does not allow it, unless the holder is stale.
pub(super) fn keeps(holder: &Found, ip: IpAddr, is_allowed: bool) -> bool {
    match holder.claim.standing(ip) {
        Some(Precedence::Bound) => true,
        Some(Precedence::Shared) => !is_allowed && holder.state != State::Stale,
        Some(Precedence::Learned) | None => false,
    }
}

/// Returns the news of a bound endpoint. `news` is an address that its port allows, and true if the
/// endpoint has it or false if it has it as a router.
pub(super) fn share(claim: &Claim, news: Option<(IpAddr, bool)>, announced: bool) -> Intent {
    let key = claim.key;
    match news {
        Some((ip, _)) if claim.is_bound_with(ip) => Intent::Seen { key },
        Some((ip, has)) if has != claim.ips.contains(ip) || (has && announced) => {
            Intent::Shared { key, ip, has, announced }
        }
        _ => Intent::Seen { key },
    }
}

/// Checks that a bound endpoint uses only addresses that it is bound with or that its port allows.
/// An endpoint that is bound without addresses is bound by its MAC alone (the switch checks the
/// list of its port). Link-local addresses that are not derived from another MAC are its own as
/// well: without one there is no IPv6 (RFC 4291 clause 2.8), and systems derive theirs from a
/// secret (RFC 7217).
pub(super) fn check_binding(
    bound: &Found,
    said: &Said,
    allows: impl Fn(IpAddr) -> bool,
) -> Result<(), Reason> {
    let claim = &bound.claim;
    let own = |ip: IpAddr| match ip {
        IpAddr::V6(v6) if ipv6::may_have_link_local(claim.key.mac, v6) => true,
        _ => claim.is_bound_with(ip) || allows(ip),
    };
    let ok = said.uses.is_none_or(own) || claim.ips_of(Precedence::Bound).is_empty();
    if ok { Ok(()) } else { Err(Reason::SpoofedIp) }
}
