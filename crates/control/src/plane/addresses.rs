//! IP addresses that go from one endpoint to another, and questions to owners for their addresses.
//!
//! ```text
//!   an own endpoint announces an address of another ──> claimed, one sequence higher
//!   … uses it without an announcement ──> claimed, one sequence lower: the other one is asked
//!
//!   another endpoint's claim of an own one's address
//!     bound, or a higher sequence ──> it leaves the own claim at once
//!     else ──> doubt
//!   a question or probe that reached the own endpoint ──> doubt
//!
//!   doubt ── the endpoint confirms it ──> nothing
//!         └─ silent for a second ──> it leaves the own claim
//! ```
//!
//! An endpoint that used an address and is its only holder in the end is **announced** to all by
//! its host, and so is an endpoint that is bound: neighbours that talked to another MAC learn of it
//! at once.
//!
//! An announcement never takes an address from a binding. An address that a bound endpoint
//! **shares** ([`Precedence::Shared`]) moves as a learned one does, and goes when its link is down.
//! When an address leaves another claim, the best remaining claim gets the higher sequence, so that
//! a claim with a low sequence does not stay so.
//!
//! An address is **confirmed** if the endpoint itself said lately that it has it, as far as this
//! host heard it. This host does not answer for an unconfirmed address: the question goes to the
//! endpoint (RFC 9161 clause 3.2 and the following ones), and so does every probe (RFC 5227 section
//! 2.1.1, RFC 4862 clause 5.4).
//!
//! Only the host of an endpoint hears its answer. A host that takes a question to an endpoint of
//! another host tells that host ([`Topic::OWNER`]), which then has a doubt.
//!
//! **Limits.** The number of doubts is bounded; beyond it an address stays until the next question.
//! The number of confirmations is bounded; a forgotten one costs a question to its endpoint.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_wire::fabric::{AskedFor, OWNER_SIZE_MAX, Topic};

use super::Plane;
use super::agenda::Agenda;
use super::ask;
use super::surface::{Command, Event, Location};
use crate::directory::Places;
use crate::frame::Frame;
use crate::learn;
use crate::recent::{Mark, Recent};
use crate::rpc::Failure;
use crate::table::{Change, OwnerState, Vport};
use crate::vport::{Claim, IP_SEQUENCE_FIRST, IP_SEQUENCE_SHARED, Ips, Key, Precedence};

/// Time for an endpoint to answer: as long as a prober waits (RFC 4861 clause 10, RETRANS_TIMER).
const ANSWER_MAX: Nanos = Nanos::from_millis(1_000);
/// Time between two questions to an endpoint.
const ASK_AGAIN: Nanos = Nanos::from_millis(400);
/// Largest number of doubts at a time.
const DOUBTS_MAX: usize = 4_096;
/// Number of confirmations that are remembered.
const CONFIRMED_MAX: u32 = 1 << 16;
/// Number of endpoints of other hosts, asked for lately, that are remembered.
const TOLD_MAX: u32 = 1 << 12;

/// Own addresses that another endpoint may have, and addresses that were confirmed.
#[derive(Debug)]
pub(super) struct AddressConflicts {
    /// Times of the next question or decision.
    due: Agenda<(Key, IpAddr)>,
    /// Times until which an answer counts.
    until: BTreeMap<(Key, IpAddr), Nanos>,
    confirmed: Recent,
    /// Endpoints of other hosts that were asked for lately.
    told: Recent,
}

impl AddressConflicts {
    pub(super) fn new(confirmed_life: Nanos, seed: u64) -> Self {
        let confirmed = Recent::new(CONFIRMED_MAX, confirmed_life, seed);
        let told = Recent::new(TOLD_MAX, ASK_AGAIN, seed);
        Self { due: Agenda::new(), until: BTreeMap::new(), confirmed, told }
    }

    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.due.deadline()
    }

    /// Sets the time for which an address is confirmed from now on.
    pub(super) const fn set_confirmed_life(&mut self, life: Nanos) {
        self.confirmed.set_life(life);
    }

    pub(super) fn is_confirmed(&self, now: Nanos, key: Key, ip: IpAddr) -> bool {
        self.confirmed.contains(now, &mark(key, ip))
    }

    fn confirm(&mut self, now: Nanos, key: Key, ip: IpAddr) {
        self.end(key, ip);
        self.confirmed.insert(now, mark(key, ip));
    }

    fn end(&mut self, key: Key, ip: IpAddr) {
        self.due.remove((key, ip));
        self.until.remove(&(key, ip));
    }
}

fn mark(key: Key, ip: IpAddr) -> Mark {
    Mark::new(key.vni, key.mac, Some(ip), 0)
}

impl Plane {
    /// Takes a frame that may confirm an address of its source.
    pub(super) fn heard(&mut self, now: Nanos, vni: Vni, frame: &Frame<'_>) {
        if let Some(ip) = learn::confirmed(frame) {
            self.learner.heard(vni, ip, frame.src);
            self.doubts.confirm(now, Key { vni, mac: frame.src }, ip);
        }
    }

    /// Returns a claim with the sequences for its addresses. An `announced` address is taken from
    /// its holder.
    pub(super) fn with_sequences(&self, claim: &Claim, announced: Option<IpAddr>) -> Claim {
        let mut ips = Ips::default();
        for ip in claim.ips.iter() {
            let sequence = self.sequence_of(claim.key, ip, announced == Some(ip));
            ips.set(ip, sequence).expect("as many as there were");
        }
        Claim { ips, ..*claim }
    }

    fn sequence_of(&self, key: Key, ip: IpAddr, is_announced: bool) -> u32 {
        let own = self.table.claims(key).filter_map(|vport| vport.claim.ips.sequence(ip)).max();
        let others = || {
            let all = self.table.all_with_ip(key.vni, ip);
            all.filter(|vport| vport.claim.key != key)
        };
        let sequence = |vport: Vport| vport.claim.ips.sequence(ip);
        let highest = others().filter_map(sequence).max();
        let is_live = others().any(|vport| vport.state == OwnerState::Live);
        match (own, highest) {
            (None, None) => IP_SEQUENCE_FIRST,
            (Some(own), None) => own,
            (own, Some(highest)) if is_announced && own <= Some(highest) => {
                highest.saturating_add(1)
            }
            (Some(own), _) => own,
            // A holder that is gone is not asked.
            (None, Some(highest)) if !is_live => highest.saturating_add(1),
            (None, Some(highest)) => highest.saturating_sub(1),
        }
    }

    /// Notes that a bound endpoint has one shared address more or less.
    pub(super) fn share(&mut self, now: Nanos, key: Key, ip: IpAddr, has: bool, announced: bool) {
        if !has {
            return self.drop_ip(now, key, ip);
        }
        let Some(mut claim) = self.own_claim(key).filter(|claim| !claim.is_bound_with(ip)) else {
            return;
        };
        let sequence = self.sequence_of(key, ip, announced);
        let sequence = sequence.checked_sub(IP_SEQUENCE_SHARED).unwrap_or(sequence);
        let only = Claim { ips: [ip].into_iter().collect(), ..claim };
        let is_inherited = !self.inherited(&only).is_empty();
        let shared = IP_SEQUENCE_SHARED.saturating_add(sequence);
        if claim.ips.set(ip, shared).is_err() {
            // The new address replaces another one: without it, the old holder would keep the
            // address.
            let first = claim.ips_of(Precedence::Shared).iter().next().filter(|_| announced);
            let Some(first) = first else {
                return self.outbox.event(Event::TooManyIps(key, ip));
            };
            claim.ips.remove(first);
            claim.ips.set(ip, shared).expect("there is room again");
        }
        self.publish(now, &claim);
        if is_inherited && !announced {
            self.announce(key, ip);
        }
    }

    /// Returns the addresses of a bound endpoint whose own addresses are `bound`: its shared
    /// addresses stay.
    pub(super) fn with_shared(&self, port: PortId, key: Key, mut bound: Ips) -> Ips {
        let there = self.own_claim(key).filter(|claim| claim.port == port);
        let shared = there.map(|claim| claim.ips_of(Precedence::Shared)).unwrap_or_default();
        let is_kept = |ip| self.nets.is_up(port) && self.nets.allows(port, ip);
        for (ip, sequence) in shared.with_sequences().filter(|(ip, _)| is_kept(*ip)) {
            if !bound.contains(ip) {
                // An address without room is heard again.
                _ = bound.set(ip, sequence);
            }
        }
        bound
    }

    /// Makes the addresses of own endpoints follow the claims of others.
    pub(super) fn addresses_follow(&mut self, now: Nanos, change: &Change) {
        for (ip, _) in change.come.with_sequences() {
            let there = self.table.find(change.key);
            if let Some(there) = there.filter(|there| there.state == OwnerState::Live) {
                self.address_came(now, &there, ip);
            }
        }
        for (ip, sequence) in change.gone.with_sequences() {
            self.address_left(now, change.key.vni, ip, sequence);
        }
    }

    /// Notes that another endpoint claims an address.
    fn address_came(&mut self, now: Nanos, there: &Vport, ip: IpAddr) {
        let Some(sequence) = there.claim.ips.sequence(ip) else { return };
        if there.owner != self.own {
            // Its host has heard the endpoint.
            self.doubts.confirm(now, there.claim.key, ip);
        }
        let standing = there.claim.standing(ip);
        for (key, own) in self.own_with_ip(there.claim.key.vni, ip) {
            if key == there.claim.key {
                continue;
            }
            if (standing, Some(sequence)) > (own.standing(ip), own.ips.sequence(ip)) {
                self.outbox.event(Event::AddressMoved { from: key, to: there.claim.key.mac, ip });
                self.drop_ip(now, key, ip);
            } else {
                self.doubt(now, key, ip, false);
            }
        }
    }

    /// Notes that an endpoint has ceased to claim an address, which had this sequence.
    fn address_left(&mut self, now: Nanos, vni: Vni, ip: IpAddr, sequence: u32) {
        let Some(best) = self.table.find_ip(vni, ip) else { return };
        let is_lower = best.claim.ips.sequence(ip).is_some_and(|own| own <= sequence);
        if best.owner != self.own || best.claim.is_bound_with(ip) || !is_lower {
            return;
        }
        let Some(mut claim) = self.own_claim(best.claim.key) else { return };
        claim.ips.set(ip, sequence.saturating_add(1)).expect("it is there");
        self.publish(now, &claim);
        self.announce(claim.key, ip);
    }

    /// Announces an address of an own endpoint to all, in its name: the endpoint has not announced
    /// it, and neighbours that talked to another holder of the address go on sending there.
    pub(super) fn announce(&mut self, key: Key, ip: IpAddr) {
        let Some(claim) = self.own_claim(key) else { return };
        if self.outbox.has_room() {
            self.outbox.counts.announced += 1;
            let (from, frame) = (Location::Port(claim.port), ask::announcement(key.mac, ip));
            self.outbox.command(Command::Flood { vni: key.vni, from, frame });
        }
    }

    /// Returns the addresses of a claim that only endpoints of stale hosts have had until now.
    pub(super) fn inherited(&self, claim: &Claim) -> Vec<IpAddr> {
        let is_inherited = |ip: &IpAddr| {
            let mut others = self.table.all_with_ip(claim.key.vni, *ip).peekable();
            others.peek().is_some()
                && others
                    .all(|vport| vport.claim.key != claim.key && vport.state == OwnerState::Stale)
        };
        claim.ips.iter().filter(is_inherited).collect()
    }

    /// Returns the own endpoints that have an address and are not bound with it.
    fn own_with_ip(&self, vni: Vni, ip: IpAddr) -> Vec<(Key, Claim)> {
        let all = self.table.all_with_ip(vni, ip);
        let own = all.filter(|vport| vport.owner == self.own && !vport.claim.is_bound_with(ip));
        own.map(|vport| (vport.claim.key, vport.claim)).collect()
    }

    /// Removes an address from an own endpoint that is not bound with it.
    fn drop_ip(&mut self, now: Nanos, key: Key, ip: IpAddr) {
        self.doubts.end(key, ip);
        self.doubts.confirmed.remove(&mark(key, ip));
        self.learner.forget_ip(key, ip);
        let own = self.own_claim(key).filter(|claim| !claim.is_bound_with(ip));
        if let Some(mut claim) = own
            && claim.ips.remove(ip)
        {
            self.publish(now, &claim);
        }
    }

    /// Begins a doubt: an own endpoint is to confirm an address. `is_asked`: a question has reached
    /// the endpoint already. Nothing happens if the endpoint is bound with the address, or the
    /// doubt is there.
    pub(super) fn doubt(&mut self, now: Nanos, key: Key, ip: IpAddr, is_asked: bool) {
        let own = self.own_claim(key).filter(|claim| !claim.is_bound_with(ip));
        let has_it = own.is_some_and(|claim| claim.ips.contains(ip));
        let is_known = self.doubts.due.contains((key, ip));
        if !has_it || is_known || self.doubts.due.len() >= DOUBTS_MAX {
            return;
        }
        let first = if is_asked { now.after(ASK_AGAIN) } else { now };
        self.doubts.due.set((key, ip), first);
        self.doubts.until.insert((key, ip), now.after(ANSWER_MAX));
    }

    /// Tells another host that a question or probe of an own endpoint goes to an endpoint there:
    /// only that host hears the answer.
    pub(super) fn tell_owner(&mut self, now: Nanos, host: HostId, key: Key, ip: IpAddr) {
        let mark = mark(key, ip);
        if self.doubts.told.contains(now, &mark) {
            return;
        }
        let mut body = [0; OWNER_SIZE_MAX];
        let size = AskedFor { vni: key.vni, mac: key.mac, ip }.emit(&mut body);
        // A host that cannot be reached has no doubt, but its endpoint gets the question anyway.
        if self.ask_member(now, host, Topic::OWNER, ANSWER_MAX, &body[..size]).is_ok() {
            self.doubts.told.insert(now, mark);
        }
    }

    /// Notes that a member has taken a question to an own endpoint.
    pub(super) fn hear_asked_for(&mut self, now: Nanos, host: HostId, ticket: u64, body: &[u8]) {
        let asked = AskedFor::parse(body).map_err(|_| Failure::Refused);
        if let Ok(AskedFor { vni, mac, ip }) = asked {
            self.doubt(now, Key { vni, mac }, ip, true);
        }
        self.reply_member(now, host, ticket, asked.map(|_| &[][..]));
    }

    /// Notes that a question or probe for an address went to one endpoint only.
    pub(super) fn asked_alone(&mut self, now: Nanos, vni: Vni, frame: &Frame<'_>) {
        if frame.dst.is_group() || frame.src == ask::MAC {
            return;
        }
        if let Some(ip) = frame.asks_for() {
            self.doubt(now, Key { vni, mac: frame.dst }, ip, true);
        }
    }

    /// Asks own endpoints that are in doubt, and removes the addresses of silent ones.
    pub(super) fn resolve_conflicts(&mut self, now: Nanos) {
        while let Some((key, ip)) = self.doubts.due.due(now) {
            let until = self.doubts.until.get(&(key, ip)).copied().unwrap_or(now);
            if now >= until {
                self.outbox.event(Event::AddressSilent { key, ip });
                self.drop_ip(now, key, ip);
                continue;
            }
            self.doubts.due.set((key, ip), now.after(ASK_AGAIN).min(until));
            self.ask_endpoint(key, ip);
        }
    }

    /// Asks an own endpoint for its address, with [`ask::MAC`] as the source.
    pub(super) fn ask_endpoint(&mut self, key: Key, ip: IpAddr) {
        let Some(claim) = self.own_claim(key) else { return };
        if self.outbox.has_room() {
            self.outbox.counts.probed += 1;
            let frame = ask::to_endpoint(key.mac, ip);
            self.outbox.command(Command::Send {
                vni: key.vni,
                to: Location::Port(claim.port),
                frame,
            });
        }
    }

    /// Asks an own endpoint that was silent for its lifetime for all of its addresses.
    pub(super) fn ask_all(&mut self, key: Key) {
        let ips = self.own_claim(key).map_or(Ips::default(), |claim| claim.ips);
        ips.iter().for_each(|ip| self.ask_endpoint(key, ip));
    }

    /// Returns true if a frame is for [`ask::MAC`], in whose name endpoints are asked. Frames that
    /// wait for it are rejected.
    pub(super) fn is_for_asker(&mut self, vni: Vni, dst: Mac) -> bool {
        let is = dst == ask::MAC;
        if is && self.outbox.has_room() {
            self.outbox.command(Command::Reject { vni, mac: dst });
        }
        is
    }
}
