//! Endpoints that are known by configuration, and rival bindings of other hosts.
//!
//! ```text
//!   another host is bound with the MAC, or another endpoint with the IP address
//!     later than the own binding ──> the own one ends: retracted, taken from the switch, reported
//!     neither is later ──> conflict: the order of claims decides, alike at all hosts
//!     earlier ──> its host ends it
//! ```
//!
//! A binding is **later** if it was taken over ([`Plane::take`]): its MAC has more moves, its
//! addresses have higher sequences than a first binding. A host that adds a port takes over no
//! binding of another host, unless it is commanded to ([`Plane::bound_elsewhere`],
//! [`Plane::next_taking`]). So two bindings of which neither is later were configured while their
//! hosts did not know each other.
//!
//! The number of the taking is part of the claim, so that it is known after a restart of either
//! host. An endpoint that lost its last address is bound no more: without any it could use all
//! addresses.

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, Nanos, PortId};

use super::Plane;
use super::bind::BindError;
use super::surface::{Command, Event};
use crate::directory::Places as _;
use crate::mobility::Why;
use crate::table::{Change, OwnerState, Vport};
use crate::vport::{Claim, IP_SEQUENCE_DOWN, IP_SEQUENCE_FIRST, Ips, Key, Origin, Precedence};

/// A binding of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundAt {
    /// The endpoint that is bound.
    pub key: Key,
    /// The address that the endpoint is bound with; `None`: the binding of the MAC is meant.
    pub ip: Option<IpAddr>,
    /// Its host.
    pub host: HostId,
    /// Its port there.
    pub port: PortId,
}

/// Two bindings of the same MAC or address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingConflicts {
    /// The binding that all hosts follow.
    pub first: BoundAt,
    /// The other one.
    pub second: BoundAt,
}

/// A part of an own binding that another host took over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    port: PortId,
    key: Key,
    /// The address; `None`: the whole binding.
    ip: Option<IpAddr>,
}

impl Ended {
    pub(super) fn is_at(&self, port: PortId) -> bool {
        self.port == port
    }
}

impl Plane {
    /// Binds an endpoint to a port: it is claimed until [`Self::unbind`], with these addresses, and
    /// the ones that it shares ([`Self::allow`]).
    ///
    /// # Errors
    /// The endpoint is not claimed; nothing is changed.
    pub fn bind(&mut self, now: Nanos, port: PortId, key: Key, ips: Ips) -> Result<(), BindError> {
        self.take(now, port, key, ips, 0)
    }

    /// As [`Self::bind`], for a binding that was taken over, with the number `taken` that
    /// [`Self::next_taking`] returned then.
    ///
    /// # Errors
    /// As of [`Self::bind`].
    pub fn take(
        &mut self,
        now: Nanos,
        port: PortId,
        key: Key,
        ips: Ips,
        taken: u32,
    ) -> Result<(), BindError> {
        let now = self.clock.at(now);
        if !self.nets.is_member(port, key.vni) {
            return Err(BindError::NoSuchPort(port));
        }
        if key.mac.is_group() {
            return Err(BindError::GroupAddress(key.mac));
        }
        self.ended.retain(|ended| (ended.port, ended.key) != (port, key));
        if taken > 0 {
            self.taken.insert(key, taken);
        } else {
            self.taken.remove(&key);
        }
        let bound = self.bound_ips(port, key, &ips);
        let ips = self.with_shared(port, key, bound);
        let wanted = Claim { key, port, ips, origin: Origin::Bound, moves: 0 };
        // A binding elsewhere is not outbid by the same binding here.
        let moves = if self.table.claims(key).any(|vport| self.is_rival(&vport)) {
            self.own_claim(key).map_or(0, |claim| claim.moves)
        } else {
            let claim = self.mobility.learn(now, &self.table, self.own, &wanted);
            claim.map_err(BindError::Refused)?.moves
        };
        if !self.publish(now, &Claim { moves: moves.max(taken), ..wanted }) {
            return Err(BindError::Full);
        }
        // Not IPv6: it is not known if the endpoint is a router, and a neighbour that hears that a
        // router is none gives up its routes (RFC 4861 clause 7.2.5).
        for ip in bound.iter().filter(IpAddr::is_ipv4) {
            self.announce(key, ip);
        }
        self.mac_is_bound(now, key);
        for ip in bound.iter() {
            self.ip_is_bound(now, key, ip);
        }
        Ok(())
    }

    /// Ends a binding. The endpoint is claimed again when it is learned. Nothing happens if it is
    /// not bound here.
    pub fn unbind(&mut self, now: Nanos, key: Key) {
        let now = self.clock.at(now);
        self.taken.remove(&key);
        if self.own_claim(key).is_some_and(|claim| claim.origin == Origin::Bound) {
            self.retract(now, key, Why::Withdrawn);
        }
    }

    /// Returns addresses as a binding claims them: not answered for while the link is down.
    pub(super) fn bound_ips(&self, port: PortId, key: Key, ips: &Ips) -> Ips {
        let first = IP_SEQUENCE_FIRST.saturating_add(self.taking(key));
        ips.all_at(if self.nets.is_up(port) { first } else { IP_SEQUENCE_DOWN })
    }

    fn taking(&self, key: Key) -> u32 {
        self.taken.get(&key).copied().unwrap_or(0)
    }

    /// Returns the binding of another live host for this endpoint, or of another endpoint for one
    /// of these addresses. A binding of a stale host does not count.
    #[must_use]
    pub fn bound_elsewhere(&self, key: Key, ips: &[IpAddr]) -> Option<BoundAt> {
        let of_mac = self.table.claims(key).find(|vport| self.is_rival(vport));
        let of_ips = ips.iter().find_map(|&ip| {
            let is_bound = |vport: &Vport| self.is_rival(vport) && vport.claim.is_bound_with(ip);
            let mut others = self.table.all_with_ip(key.vni, ip);
            let rival = others.find(|vport| vport.claim.key != key && is_bound(vport));
            rival.map(|vport| at(&vport, Some(ip)))
        });
        of_mac.map(|vport| at(&vport, None)).or(of_ips)
    }

    /// Returns the number with which a binding of this endpoint is later than all known ones.
    #[must_use]
    pub fn next_taking(&self, key: Key, ips: &[IpAddr]) -> u32 {
        let moves = self.table.claims(key).map(|vport| vport.claim.moves);
        let bound = ips.iter().flat_map(|&ip| {
            let all = self.table.all_with_ip(key.vni, ip);
            let bound = all.filter(move |vport| vport.claim.is_bound_with(ip));
            bound.filter_map(move |vport| vport.claim.ips.sequence(ip))
        });
        moves.chain(bound).max().unwrap_or(0).saturating_add(1)
    }

    /// Returns the bindings that two hosts have: MACs at any two, and addresses of this host's
    /// bindings.
    #[must_use]
    pub fn rivals(&self) -> Vec<BindingConflicts> {
        let mut all = Vec::new();
        for key in self.table.contested() {
            let mut bound = self.table.claims(key).filter(is_bound);
            let Some(first) = bound.next() else { continue };
            let first = at(&first, None);
            all.extend(bound.map(|second| BindingConflicts { first, second: at(&second, None) }));
        }
        for own in self.table.claims_of(self.own).filter(|own| own.origin == Origin::Bound) {
            for ip in own.ips_of(Precedence::Bound).iter() {
                let bound = self.bound_with(&own.key, ip);
                let best = self.table.find_ip(own.key.vni, ip);
                let Some(first) = best.filter(|_| bound.iter().any(|v| v.claim.key == own.key))
                else {
                    continue;
                };
                let others = bound.iter().filter(|vport| vport.claim.key != first.claim.key);
                let first = at(&first, Some(ip));
                all.extend(
                    others.map(|second| BindingConflicts { first, second: at(second, Some(ip)) }),
                );
            }
        }
        all
    }

    /// Returns the endpoints of live hosts that are bound with an address, in the network of `key`.
    fn bound_with(&self, key: &Key, ip: IpAddr) -> Vec<Vport> {
        let all = self.table.all_with_ip(key.vni, ip);
        all.filter(|vport| is_bound(vport) && vport.claim.is_bound_with(ip)).collect()
    }

    fn is_rival(&self, vport: &Vport) -> bool {
        is_bound(vport) && vport.owner != self.own
    }

    /// Makes own bindings follow the bindings of others.
    pub(super) fn bindings_follow(&mut self, now: Nanos, change: &Change) {
        let is_others = change.after.is_some_and(|after| after.owner != self.own);
        if !is_others {
            return;
        }
        self.mac_is_bound(now, change.key);
        for (ip, _) in change.come.with_sequences() {
            self.ip_is_bound(now, change.key, ip);
        }
    }

    /// Compares the own binding of an endpoint with a rival one, if there are both.
    fn mac_is_bound(&mut self, now: Nanos, key: Key) {
        let own = self.own_claim(key).filter(|claim| claim.origin == Origin::Bound);
        let rival = self.table.claims(key).find(|vport| self.is_rival(vport));
        let (Some(own), Some(rival)) = (own, rival) else { return };
        if rival.claim.moves > own.moves {
            self.end_binding(now, &own, None, rival.owner);
        } else if rival.claim.moves == own.moves {
            self.outbox.event(Event::BoundTwice { key, ip: None, host: rival.owner });
        }
    }

    /// Compares the own binding of an address with a rival one, if there are both.
    fn ip_is_bound(&mut self, now: Nanos, key: Key, ip: IpAddr) {
        let bound = self.bound_with(&key, ip);
        let own = bound.iter().find(|vport| vport.owner == self.own);
        let rivals = bound.iter().filter(|vport| vport.owner != self.own);
        let rival = rivals.max_by_key(|vport| vport.claim.ips.sequence(ip));
        let (Some(own), Some(rival)) = (own, rival) else { return };
        // The sequence in an own claim is void while its link is down.
        let own_sequence = IP_SEQUENCE_FIRST.saturating_add(self.taking(own.claim.key));
        let sequence = rival.claim.ips.sequence(ip).unwrap_or(IP_SEQUENCE_DOWN);
        if sequence > own_sequence {
            self.end_binding(now, &own.claim, Some(ip), rival.owner);
        } else if sequence == own_sequence || sequence == IP_SEQUENCE_DOWN {
            let (key, host) = (own.claim.key, rival.owner);
            self.outbox.event(Event::BoundTwice { key, ip: Some(ip), host });
        }
    }

    /// Ends an own binding, or one address of it, that another host has taken over.
    fn end_binding(&mut self, now: Nanos, own: &Claim, ip: Option<IpAddr>, to: HostId) {
        let Claim { key, port, mut ips, .. } = *own;
        self.outbox.event(Event::BindingTaken { key, ip, to });
        let is_left = ip.is_some_and(|ip| {
            ips.remove(ip);
            !Claim { ips, ..*own }.ips_of(Precedence::Bound).is_empty()
        });
        let ended = Ended { port, key, ip: ip.filter(|_| is_left) };
        self.ended.push(ended);
        self.end_at_switch(&ended);
        if is_left {
            self.publish(now, &Claim { ips, ..*own });
        } else {
            self.taken.remove(&key);
            self.retract(now, key, Why::Withdrawn);
        }
    }

    /// Repeats ended bindings to a new switch, which has the bindings of the configuration.
    pub(super) fn end_bindings_again(&mut self) {
        for ended in self.ended.clone() {
            self.end_at_switch(&ended);
        }
    }

    fn end_at_switch(&mut self, ended: &Ended) {
        let Ended { port, key, ip } = *ended;
        self.outbox.command(Command::Unbind { port, mac: key.mac, ip });
    }
}

fn is_bound(vport: &Vport) -> bool {
    vport.state == OwnerState::Live && vport.claim.origin == Origin::Bound
}

fn at(vport: &Vport, ip: Option<IpAddr>) -> BoundAt {
    let Claim { key, port, .. } = vport.claim;
    BoundAt { key, ip, host: vport.owner, port }
}
