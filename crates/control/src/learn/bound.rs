//! What endpoints may say that are bound: with which addresses they speak, and what they share.

use core::net::IpAddr;

use sluice_wire::ipv6;

use super::said::Said;
use super::{Intent, Reason};
use crate::directory::{Found, State};
use crate::vport::{Claim, Standing};

/// Whether the holder of an address keeps it when another endpoint says that it has it: it is bound
/// with it, or shares it, and the port of the other one does not allow it. Nobody speaks for a
/// holder that shares and is gone.
pub(super) fn keeps(holder: &Found, ip: IpAddr, is_allowed: bool) -> bool {
    match holder.claim.standing(ip) {
        Some(Standing::Bound) => true,
        Some(Standing::Shared) => !is_allowed && holder.state != State::Stale,
        Some(Standing::Learned) | None => false,
    }
}

/// What is new of a bound endpoint that has an address, or has it as a router, which its port
/// allows.
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

/// A bound endpoint uses the addresses that it is bound with, and those that its port allows. Bound
/// without any it is bound by its MAC alone (a list of its port is the switch's to see). Link-local
/// addresses that are made of no other MAC are its own as well: without one there is no IPv6 (RFC
/// 4291 clause 2.8), and systems make theirs of a secret (RFC 7217).
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
    let ok = said.uses.is_none_or(own) || claim.ips_of(Standing::Bound).is_empty();
    if ok { Ok(()) } else { Err(Reason::SpoofedIp) }
}
