//! Failure detection between hosts: SWIM (Das, Gupta and Motivala, DSN 2002) with suspicion, by
//! `foca`.
//!
//! Every host probes one other at a time, asks others to probe it when it does not answer, suspects
//! it, and declares it dead when it does not object. News of hosts ride on probes. This module
//! gives the protocol its clock, its random numbers and its encoding, and reports changes.
//!
//! ```text
//!   datagram, time ──> Liveness ──> datagrams to hosts
//!                              └──> Change: up, suspected, down
//! ```
//!
//! Liveness is a hint, never a vote: it decides that vports are stale, which forward as before.
//! Membership is configuration. A host that was declared dead by mistake hears of it, takes the
//! next round of its incarnation and is back.
//!
//! A suspicion ends by an objection, or by the time-out of the host that raised it. A host that
//! only heard of a suspicion has no such time-out, and the own time-out is void once this host has
//! taken another round. Without objection or declaration such a host would suspect for ever. So
//! this module ends a suspicion that lasts several times as long as it should, with a declaration
//! of death to which the suspected host can object.
//!
//! **Trust.** The caller names the sender of a datagram, which it knows by a key, and the life that
//! this host has shown on its connection. News of another host are believed for the life that its
//! connection has shown (`trust`). A host that hears of its own death takes the next round and
//! tells all members. The number of datagrams that are accepted from a host is bounded.

mod codec;
mod trust;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::num::{NonZeroU8, NonZeroUsize};
use core::time::Duration;

use foca::{Foca, Identity as _, Member, NoCustomBroadcast, Notification, State, Timer};
use sluice_base::{HostId, Nanos, Prng};

use crate::bucket::{Bucket, Pace, Rate};
use codec::Codec;
pub use codec::Malformed;

/// The largest datagram in bytes: it fits into an Ethernet frame behind IPv6 and UDP headers.
pub const DATAGRAM_MAX: usize = 1_400;

/// A life of a host: the time between two starts of its control process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The host.
    pub host: HostId,
    /// Number of its start: higher than at all earlier ones.
    pub incarnation: u64,
    /// Number of times that the host came back in this life after it had been declared dead.
    pub round: u32,
}

impl foca::Identity for Life {
    type Addr = HostId;

    fn renew(&self) -> Option<Self> {
        Some(Self { round: self.round.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> HostId {
        self.host
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        (self.incarnation, self.round) > (adversary.incarnation, adversary.round)
    }
}

/// Times of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Period of probes. A probe without an answer by its end is a suspicion.
    pub probe: Nanos,
    /// Time for the answer to a direct probe, before others are asked to probe.
    pub round_trip: Nanos,
    /// Time for a suspected host to object, before it is declared dead.
    pub suspicion: Nanos,
}

impl Default for Timing {
    /// Returns times with which a host that hangs is suspected within 0.2 s in a small fabric and
    /// dead after 0.3 s more.
    fn default() -> Self {
        Self {
            probe: Nanos::from_millis(100),
            round_trip: Nanos::from_millis(40),
            suspicion: Nanos::from_millis(300),
        }
    }
}

/// Change in the state of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The host is alive, in this life.
    Up(HostId, u64),
    /// The host did not answer; perhaps it will object.
    Suspected(HostId),
    /// The host is dead, or left.
    Down(HostId),
}

impl Change {
    const fn host(self) -> HostId {
        match self {
            Self::Up(host, _) | Self::Suspected(host) | Self::Down(host) => host,
        }
    }
}

/// State of a host by the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thought {
    Alive(u64),
    Suspected,
    Down,
}

/// Rate of datagrams that are accepted from one host: several times as many as the protocol has.
const DATAGRAMS: Rate = Rate { per_second: 200, burst: 200 };

/// Longest suspicion, in multiples of its regular time.
const SUSPICIONS_MAX: u64 = 4;

/// Actions that the protocol asks for.
#[derive(Debug)]
struct Wishes {
    own: HostId,
    sends: VecDeque<(HostId, Vec<u8>)>,
    timers: Vec<(Timer<Life>, Nanos)>,
    /// This host has taken another round, because it had been declared dead.
    rejoined: bool,
}

impl foca::Runtime<Life> for Wishes {
    // States are compared instead: there is no notification of a suspicion.
    fn notify(&mut self, what: Notification<'_, Life>) {
        self.rejoined |= matches!(what, Notification::Rejoin(_));
    }

    fn send_to(&mut self, to: Life, data: &[u8]) {
        // An earlier life or round of this host is greeted as one that is down.
        if to.host == self.own {
            return;
        }
        self.sends.push_back((to.host, data.to_vec()));
    }

    fn submit_after(&mut self, event: Timer<Life>, after: Duration) {
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.timers.push((event, Nanos(after)));
    }
}

/// Random numbers as the protocol asks for them.
struct Random(Prng);

impl rand_core::TryRng for Random {
    type Error = core::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        Ok((self.0.next_u64() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        Ok(self.0.next_u64())
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in out.chunks_mut(8) {
            let bytes = self.0.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }
}

/// The failure detector of one host.
pub struct Liveness {
    foca: Foca<Life, Codec, Random, NoCustomBroadcast>,
    wishes: Wishes,
    /// Timers by time and number, so that equal times keep their order.
    timers: BTreeMap<(Nanos, u64), Timer<Life>>,
    next_timer: u64,
    thoughts: BTreeMap<HostId, Thought>,
    /// Times at which suspicions end that nothing else ends.
    patience: BTreeMap<HostId, Nanos>,
    patience_span: Nanos,
    changes: VecDeque<Change>,
    /// The latest life of each host that was believed.
    lives: BTreeMap<HostId, Life>,
    pace: Pace,
    budgets: BTreeMap<HostId, Bucket>,
    /// Datagrams that were no message of the protocol, not for this life, not to be believed, or
    /// too many.
    refused: u64,
}

impl core::fmt::Debug for Liveness {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Liveness").field("thoughts", &self.thoughts).finish_non_exhaustive()
    }
}

impl Liveness {
    /// Creates the detector of the host `own`, which has started as `incarnation`, higher than ever
    /// before.
    #[must_use]
    pub fn new(own: HostId, incarnation: u64, timing: Timing, seed: u64) -> Self {
        let life = Life { host: own, incarnation, round: 0 };
        Self {
            foca: Foca::new(life, config(timing), Random(Prng::new(seed)), Codec),
            wishes: Wishes { own, sends: VecDeque::new(), timers: Vec::new(), rejoined: false },
            timers: BTreeMap::new(),
            next_timer: 0,
            thoughts: BTreeMap::new(),
            patience: BTreeMap::new(),
            patience_span: Nanos(timing.suspicion.0.saturating_mul(SUSPICIONS_MAX)),
            changes: VecDeque::new(),
            lives: BTreeMap::new(),
            pace: Pace::new(DATAGRAMS),
            budgets: BTreeMap::new(),
            refused: 0,
        }
    }

    /// Greets a host that may or may not be there. A host that has just started greets all members;
    /// a host that knows no other one does so now and then.
    pub fn greet(&mut self, now: Nanos, host: HostId) {
        // The life of the host is not known yet; an announcement is accepted for any life.
        let anyone = Life { host, incarnation: 0, round: 0 };
        let done = self.foca.announce(anyone, &mut self.wishes);
        self.apply_actions(now, done.is_ok());
    }

    /// Takes a datagram of the host `from`. `shown` is the incarnation of a member, as its
    /// connection has shown it; `None`: the host is no member, or was never connected.
    pub fn receive(
        &mut self,
        now: Nanos,
        from: HostId,
        datagram: &[u8],
        shown: impl Fn(HostId) -> Option<u64>,
    ) {
        if !self.pace.try_take(now, self.budgets.entry(from).or_default()) {
            self.refused += 1;
            return;
        }
        let own = *self.foca.identity();
        let known = |host| {
            if host == own.host {
                return Some(own);
            }
            let incarnation = shown(host)?;
            let life = self.lives.get(&host).filter(|life| life.incarnation == incarnation);
            Some(life.copied().unwrap_or(Life { host, incarnation, round: 0 }))
        };
        let Ok(believed) = trust::believe(datagram, (own.host, from), known) else {
            self.refused += 1;
            return;
        };
        for life in believed.others.iter().chain([&believed.src]) {
            let latest = self.lives.entry(life.host).or_insert(*life);
            if life.win_addr_conflict(latest) {
                *latest = *life;
            }
        }
        let done = self.foca.handle_data(&believed.datagram, &mut self.wishes);
        self.apply_actions(now, done.is_ok());
    }

    /// Changes the incarnation of this host, which has heard that it was in a later one.
    pub fn reincarnate(&mut self, now: Nanos, incarnation: u64) {
        let host = self.foca.identity().host;
        let done =
            self.foca.change_identity(Life { host, incarnation, round: 0 }, &mut self.wishes);
        self.wishes.rejoined |= done.is_ok();
        self.apply_actions(now, true);
    }

    /// Forgets a host, which is no member any more. Other members learn of that from their own
    /// configuration, and not from this host.
    pub fn forget(&mut self, now: Nanos, host: HostId) {
        let known = self.foca.iter_membership_state().find(|member| member.id().host == host);
        if let Some(member) = known {
            let life = *member.id();
            let down = Member::new(life, member.incarnation(), State::Down);
            let done = self.foca.apply_many(core::iter::once(down), false, &mut self.wishes);
            // The protocol would remember a dead host for ever.
            let _ = self.foca.handle_timer(Timer::RemoveDown(life), &mut self.wishes);
            self.apply_actions(now, done.is_ok());
        }
        self.thoughts.remove(&host);
        self.patience.remove(&host);
        self.lives.remove(&host);
        self.budgets.remove(&host);
        self.changes.retain(|change| change.host() != host);
        self.wishes.sends.retain(|(to, _)| *to != host);
    }

    /// Returns true, once, if this host has begun another life, or another round: all members are
    /// to be greeted.
    pub fn take_rejoined(&mut self) -> bool {
        core::mem::take(&mut self.wishes.rejoined)
    }

    /// Runs the timers that are due.
    pub fn advance(&mut self, now: Nanos) {
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 <= now
        {
            let timer = entry.remove();
            // A cycle that was late has found nothing out; the next one begins by itself.
            let _ = self.foca.handle_timer(timer, &mut self.wishes);
            self.apply_actions(now, true);
        }
        self.end_suspicions(now);
    }

    /// Declares hosts dead that have been suspected for too long.
    fn end_suspicions(&mut self, now: Nanos) {
        let over = |(_, at): &(&HostId, &Nanos)| **at <= now;
        let hosts: Vec<_> = self.patience.iter().filter(over).map(|(host, _)| *host).collect();
        for host in hosts {
            self.patience.remove(&host);
            let suspected = self
                .foca
                .iter_membership_state()
                .find(|member| member.id().host == host && member.state() == State::Suspect);
            let Some(member) = suspected else { continue };
            let dead = Member::new(*member.id(), member.incarnation(), State::Down);
            let done = self.foca.apply_many(core::iter::once(dead), true, &mut self.wishes);
            self.apply_actions(now, done.is_ok());
        }
    }

    /// Announces that this host stops on purpose, so that others need not detect it.
    pub fn leave(&mut self, now: Nanos) {
        let done = self.foca.leave_cluster(&mut self.wishes);
        self.apply_actions(now, done.is_ok());
    }

    /// Returns the time at which [`Self::advance`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let timer = self.timers.first_key_value().map(|((at, _), _)| *at);
        self.patience.values().copied().chain(timer).min()
    }

    /// Returns the next datagram to be sent, and its destination.
    pub fn datagram(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.wishes.sends.pop_front()
    }

    /// Returns the next change.
    pub fn change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Number of datagrams that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes over the actions of the protocol, and compares the states of hosts.
    fn apply_actions(&mut self, now: Nanos, accepted: bool) {
        self.refused += u64::from(!accepted);
        for (timer, after) in self.wishes.timers.drain(..) {
            self.timers.insert((now.after(after), self.next_timer), timer);
            self.next_timer += 1;
        }
        let own = self.foca.identity().host;
        for member in self.foca.iter_membership_state() {
            let life = member.id();
            if life.host == own {
                continue;
            }
            let (thought, change) = match member.state() {
                State::Alive => {
                    let incarnation = life.incarnation;
                    (Thought::Alive(incarnation), Change::Up(life.host, incarnation))
                }
                State::Suspect => (Thought::Suspected, Change::Suspected(life.host)),
                State::Down => (Thought::Down, Change::Down(life.host)),
            };
            if self.thoughts.insert(life.host, thought) != Some(thought) {
                self.changes.push_back(change);
                match thought {
                    Thought::Suspected => {
                        self.patience.insert(life.host, now.after(self.patience_span));
                    }
                    _ => _ = self.patience.remove(&life.host),
                }
            }
        }
    }
}

fn config(timing: Timing) -> foca::Config {
    let duration = |nanos: Nanos| Duration::from_nanos(nanos.0.max(1));
    let some = |count| NonZeroUsize::new(count).expect("not zero");
    foca::Config {
        probe_period: duration(timing.probe),
        probe_rtt: duration(timing.round_trip),
        num_indirect_probes: some(3),
        max_transmissions: NonZeroU8::new(10).expect("not zero"),
        suspect_to_down_after: duration(timing.suspicion),
        remove_down_after: None,
        max_packet_size: some(DATAGRAM_MAX),
        notify_down_members: true,
        periodic_announce: None,
        // Both sides of a partition think that the other one is dead: one of them has to ask.
        periodic_announce_to_down_members: Some(foca::PeriodicParams {
            frequency: Duration::from_secs(1),
            num_members: some(2),
        }),
        periodic_gossip: None,
    }
}

#[cfg(test)]
mod tests;
