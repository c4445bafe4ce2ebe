//! Learning: which endpoints are at this host's ports, from the frames that they send.
//!
//! A punted frame shows the port of its source, and ARP and Neighbor Discovery an IP address. The
//! [`Learner`] derives the claim that the host shall publish, or the reason against one. Endpoints
//! that speak neither are learned from their data, without IP address.
//!
//! ```text
//!   frame ── source fit to be one? ── port in the network? ── is its message true?
//!         ── not bound elsewhere? ─┬─ bound here: its own MAC and addresses?  ──> seen
//!                                  └─ learning: room, quota ──> learned, or seen again
//!
//!   nothing ─┬─ not seen for its lifetime ─┬─ has addresses: it is asked ── silent ──> gone
//!            │                             └─ has none ─────────────────────────────> gone
//!            └─ its port went down ─────────────────────────────────────────────────> gone
//! ```
//!
//! - An endpoint that is **bound** or **sticky** somewhere else does not move because of a frame.
//! - A **bound** endpoint uses the addresses that it is bound with, and may share those that its
//!   port allows: they are learned, and move among such ports only, by announcements.
//! - A learned endpoint moves to the port at which it speaks; between hosts their claims decide.
//! - An IP address that another MAC has **moves** when the new one announces it: by a gratuitous
//!   ARP (RFC 5227 section 2.3), by an unsolicited advertisement (RFC 4861 clause 7.2.6), or by its
//!   first use after an unanswered probe. Any other use of the address is a **conflict** (RFC 5227
//!   section 2.4): the conflict is reported, and both endpoints may claim the address. Only an
//!   address that is bound to another endpoint is refused.
//! - IPv6 addresses are learned from advertisements only, and addresses of routers are not learned:
//!   an answer in the place of a router that does not say "router" makes neighbours drop it as a
//!   router (RFC 4861 clause 7.2.5). A question for an unknown address goes to the endpoint itself.
//!
//! State is bounded, by a number of endpoints in all and by a number at each port. Old endpoints
//! are found in the order in which they were last seen, so that [`Learner::tick`] keeps to its
//! limit of work.

use alloc::boxed::Box;
use alloc::vec;
use core::net::IpAddr;

use sluice_base::{Mac, Nanos, PortId, Vni};

use crate::directory::{Directory, Places, PortRule, State};
use crate::frame::Frame;
use crate::vport::{Ips, Key, Origin};
use bound::{check_binding, keeps, share};
use entries::{By, Entries, Entry, List, NIL};
use probes::Probes;
use said::said;

pub(crate) use said::{announced, confirmed, is_unicast_v4, is_unicast_v6, taught};

mod bound;
mod entries;
mod probes;
mod said;

/// Time that an endpoint has to answer after it was silent for its lifetime.
const ANSWER_MAX: Nanos = Nanos::from_millis(1_000);

/// Consequence of a frame for its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The endpoint is new here, or has other addresses now: claim it so.
    Learned {
        /// The endpoint.
        key: Key,
        /// The port.
        port: PortId,
        /// All of its addresses.
        ips: Ips,
        /// [`Origin::Learned`] or [`Origin::Sticky`].
        origin: Origin,
        /// The address that the endpoint announces with this frame.
        announced: Option<IpAddr>,
    },
    /// A bound endpoint gains or loses an address of those that its port allows.
    Shared {
        /// The endpoint.
        key: Key,
        /// The address.
        ip: IpAddr,
        /// True if the address may be published. An address of a router is not claimed.
        has: bool,
        /// True if the endpoint takes the address from another endpoint with this frame.
        announced: bool,
    },
    /// Nothing new: the endpoint is alive.
    Seen {
        /// The endpoint.
        key: Key,
    },
}

/// Remark on an address that a frame names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Another endpoint, which is live, has the address as well.
    Conflict {
        /// The address.
        ip: IpAddr,
        /// Holder of the address.
        holder: Mac,
    },
    /// The endpoint has too many addresses; this one is not among them.
    TooManyIps {
        /// The address.
        ip: IpAddr,
    },
}

/// Result of a frame from which an endpoint was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Consequence for the endpoint.
    pub intent: Intent,
    /// Remark on its address.
    pub note: Option<Note>,
}

/// Reason why nothing is learned from a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reason {
    /// The source is a group address.
    GroupSource,
    /// The source is all zeros.
    ZeroSource,
    /// The port is not in the network.
    NotMember,
    /// The frame is ARP or Neighbor Discovery that breaks its rules.
    Malformed,
    /// The message names another sender MAC than the frame.
    SenderMismatch,
    /// The frame names an address that no endpoint can have.
    BadAddress,
    /// The endpoint is bound to, or sticky at, another place.
    BoundElsewhere,
    /// The address is bound to another endpoint.
    IpBoundElsewhere,
    /// The port is bound, to another MAC.
    SpoofedMac,
    /// The endpoint is bound, with other addresses.
    SpoofedIp,
    /// The port has as many endpoints as it may.
    Quota,
    /// The host has as many endpoints as it can remember.
    TableFull,
}

impl Reason {
    /// Number of reasons.
    pub const COUNT: usize = 12;

    /// All reasons, in the order of their indices.
    pub const ALL: [Self; Self::COUNT] = [
        Self::GroupSource,
        Self::ZeroSource,
        Self::NotMember,
        Self::Malformed,
        Self::SenderMismatch,
        Self::BadAddress,
        Self::BoundElsewhere,
        Self::IpBoundElsewhere,
        Self::SpoofedMac,
        Self::SpoofedIp,
        Self::Quota,
        Self::TableFull,
    ];

    /// Returns true if the frame pretends something, so that it shall not be answered either. A
    /// lack of room is no pretence.
    #[must_use]
    pub const fn is_pretence(self) -> bool {
        !matches!(self, Self::Quota | Self::TableFull)
    }
}

/// An endpoint that is not here any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The endpoint.
    pub key: Key,
    /// Its last port.
    pub port: PortId,
    /// Reason of the departure.
    pub why: Why,
}

/// Reason why an endpoint is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No frame of the endpoint for its lifetime.
    Aged,
    /// No frame of the endpoint for its lifetime, but it is not gone yet: it is to be asked for its
    /// addresses.
    Silent,
    /// The port of the endpoint went down.
    PortDown,
}

/// Bounds of what is learned.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of ports; [`PortId`]s are below it.
    pub ports: u16,
    /// Number of endpoints that are remembered.
    pub entries: u32,
    /// Time for which a silent endpoint is remembered.
    pub lifetime: Nanos,
}

impl Config {
    /// Returns the bounds for a host of that many ports: 64 Ki endpoints, and 5 minutes, as bridges
    /// have it (IEEE 802.1Q table 8-6).
    #[must_use]
    pub const fn new(ports: u16) -> Self {
        Self { ports, entries: 1 << 16, lifetime: Nanos::from_millis(300_000) }
    }
}

#[derive(Clone, Debug)]
struct Port {
    /// Entries that age.
    list: List,
    /// Number of entries in the list.
    count: u32,
    /// Number of sticky entries, which stand in no list.
    sticky_count: u32,
    /// Number of times that the port went down. Entries of an earlier epoch are on their way out.
    epoch: u32,
    refused: [u64; Reason::COUNT],
}

/// Endpoints that were learned at the ports of a host.
#[derive(Debug)]
pub struct Learner {
    entries: Entries,
    ports: Box<[Port]>,
    /// Entries that age and were not asked, the longest unseen first.
    by_age: List,
    /// Entries that were asked, in the order of asking.
    asked: List,
    /// Entries whose port went down.
    leaving: List,
    lifetime: Nanos,
    probes: Probes,
}

/// A source that may be learned.
struct ObservedSource {
    now: Nanos,
    port: PortId,
    key: Key,
    /// True if this host claims the endpoint, and at this port.
    is_claimed: bool,
    /// The address that the endpoint takes from another one.
    takes: Option<IpAddr>,
}

impl Learner {
    /// Creates a learner that knows no endpoint. The seed makes collisions hard to provoke.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        let (list, refused) = (List::EMPTY, [0; Reason::COUNT]);
        let port = Port { list, count: 0, sticky_count: 0, epoch: 0, refused };
        Self {
            entries: Entries::new(config.entries, seed),
            ports: vec![port; usize::from(config.ports)].into(),
            by_age: List::EMPTY,
            asked: List::EMPTY,
            leaving: List::EMPTY,
            lifetime: config.lifetime,
            probes: Probes::default(),
        }
    }

    /// Learns from `frame`, which came in at `port` of network `vni`. Time does not go back.
    ///
    /// # Errors
    /// The reason why nothing is learned. The frame is counted under it.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn observe(
        &mut self,
        now: Nanos,
        port: PortId,
        vni: Vni,
        frame: &Frame<'_>,
        directory: &impl Directory,
        places: &impl Places,
    ) -> Result<Observed, Reason> {
        let verdict = self.judge(now, port, vni, frame, directory, places);
        if let Err(reason) = verdict {
            self.ports[port.index()].refused[reason as usize] += 1;
        }
        verdict
    }

    fn judge(
        &mut self,
        now: Nanos,
        port: PortId,
        vni: Vni,
        frame: &Frame<'_>,
        directory: &impl Directory,
        places: &impl Places,
    ) -> Result<Observed, Reason> {
        let key = Key { vni, mac: frame.src };
        if key.mac.is_group() {
            return Err(Reason::GroupSource);
        }
        if key.mac == Mac::default() {
            return Err(Reason::ZeroSource);
        }
        if !places.is_member(port, vni) {
            return Err(Reason::NotMember);
        }
        let mut said = said(frame)?;
        if let Some(ip) = said.probes {
            self.probes.insert(now, vni, ip, key.mac);
        }
        if let Some(ip) = said.uses {
            said.announces |= self.probes.is_won(now, vni, ip, key.mac);
        }
        let known = directory.find(key);
        let here = known.filter(|known| known.state == State::Own && known.claim.port == port);
        let stays = known.is_some_and(|known| known.claim.origin != Origin::Learned);
        if stays && here.is_none() {
            return Err(Reason::BoundElsewhere);
        }
        let bound = here.filter(|here| here.claim.origin == Origin::Bound);
        if let Some(bound) = &bound {
            check_binding(bound, &said, |ip| places.allows(port, ip))?;
        }
        let shares = |ip| bound.is_some() && places.allows(port, ip);
        // Holder of the address that the frame uses, if that is another endpoint.
        let holder = said.uses.and_then(|ip| directory.find_ip(vni, ip));
        let holder = holder.filter(|holder| holder.claim.key.mac != key.mac);
        if let Some((ip, holder)) = said.uses.zip(holder)
            && keeps(&holder, ip, shares(ip))
        {
            return Err(Reason::IpBoundElsewhere);
        }
        let live = holder.filter(|holder| holder.state != State::Stale);
        let announced = said.uses.filter(|_| said.announces);
        let conflict = said.uses.filter(|_| announced.is_none()).zip(live);
        let mut note = conflict.map(|(ip, live)| Note::Conflict { ip, holder: live.claim.key.mac });
        let intent = match (bound, places.rule(port)) {
            (Some(bound), _) => {
                let news = said.has.filter(|(ip, _)| shares(*ip));
                share(&bound.claim, news, announced.is_some() && holder.is_some())
            }
            (None, PortRule::Bound) => return Err(Reason::SpoofedMac),
            (None, PortRule::Learn { quota, sticky }) => {
                // A sticky endpoint stays sticky, even if the rule of its port has changed.
                let sticky = sticky || (stays && bound.is_none());
                // An announced address is taken from the endpoint that others resolve it to.
                let takes = announced.filter(|_| holder.is_some());
                let sight = ObservedSource { now, port, key, is_claimed: here.is_some(), takes };
                self.learn(&sight, quota, sticky, said.has, &mut note)?
            }
        };
        Ok(Observed { intent, note })
    }

    fn learn(
        &mut self,
        sight: &ObservedSource,
        quota: u32,
        sticky: bool,
        has: Option<(IpAddr, bool)>,
        note: &mut Option<Note>,
    ) -> Result<Intent, Reason> {
        let &ObservedSource { now, port, key, is_claimed, takes } = sight;
        let (at, is_new) = match self.entries.find(key) {
            Some(at) if self.is_of(at, port) => (at, false),
            Some(at) if self.entries.get(at).sticky => return Err(Reason::BoundElsewhere),
            _ if self.learned_at(port) >= quota => return Err(Reason::Quota),
            None if self.entries.is_full() => return Err(Reason::TableFull),
            there => {
                match there {
                    Some(at) => self.unlink(at),
                    None => _ = self.entries.insert(key, port, now),
                }
                let at = self.entries.find(key).expect("it was put in just now");
                self.link(now, at, port, sticky);
                (at, true)
            }
        };
        self.touch(now, at);
        let ips = &mut self.entries.get_mut(at).ips;
        // An endpoint that is not claimed, or not here, is news even if it was seen before.
        let mut is_news = is_new || !is_claimed || takes.is_some();
        match has {
            Some((ip, true)) if !ips.contains(ip) => match ips.insert(ip) {
                Ok(()) => is_news = true,
                // The new address replaces another one: without it, the old holder would keep the
                // address.
                Err(_) if takes == Some(ip) => {
                    let first = ips.iter().next().expect("there is no room");
                    ips.remove(first);
                    ips.insert(ip).expect("there is room again");
                    is_news = true;
                }
                Err(_) => *note = note.or(Some(Note::TooManyIps { ip })),
            },
            Some((ip, false)) => is_news |= ips.remove(ip),
            _ => {}
        }
        if !is_news {
            return Ok(Intent::Seen { key });
        }
        let entry = self.entries.get(at);
        let origin = if entry.sticky { Origin::Sticky } else { Origin::Learned };
        let announced = takes.filter(|ip| entry.ips.contains(*ip));
        Ok(Intent::Learned { key, port, ips: entry.ips, origin, announced })
    }

    /// Returns true if an entry is at `port` now, and not on its way out.
    fn is_of(&self, at: u32, port: PortId) -> bool {
        let entry = self.entries.get(at);
        let is_current = entry.sticky || entry.epoch == self.ports[port.index()].epoch;
        entry.port == port && is_current
    }

    /// Adds an entry, which stands in no list, to a port.
    fn link(&mut self, now: Nanos, at: u32, port: PortId, sticky: bool) {
        let state = &mut self.ports[port.index()];
        let entry = self.entries.get_mut(at);
        (entry.port, entry.epoch, entry.sticky, entry.seen) = (port, state.epoch, sticky, now);
        if sticky {
            state.sticky_count += 1;
        } else {
            state.count += 1;
            self.entries.push(&mut state.list, By::Port, at);
            self.entries.push(&mut self.by_age, By::Age, at);
        }
    }

    /// Takes an entry out of its lists.
    fn unlink(&mut self, at: u32) {
        let entry = self.entries.get(at);
        let (port, sticky) = (entry.port, entry.sticky);
        let is_current = self.is_of(at, port);
        let state = &mut self.ports[port.index()];
        if sticky {
            state.sticky_count -= 1;
            return;
        }
        if is_current {
            self.entries.unlink(&mut state.list, By::Port, at);
            state.count -= 1;
        } else {
            self.entries.unlink(&mut self.leaving, By::Port, at);
        }
        self.unlink_age(at);
    }

    fn unlink_age(&mut self, at: u32) {
        let was_asked = self.entries.get_mut(at).asked.take().is_some();
        let list = if was_asked { &mut self.asked } else { &mut self.by_age };
        self.entries.unlink(list, By::Age, at);
    }

    /// Marks an entry as seen now.
    fn touch(&mut self, now: Nanos, at: u32) {
        let entry = self.entries.get_mut(at);
        debug_assert!(entry.seen <= now, "time does not go back");
        entry.seen = now;
        if !entry.sticky {
            self.unlink_age(at);
            self.entries.push(&mut self.by_age, By::Age, at);
        }
    }

    fn remove(&mut self, at: u32) -> Key {
        let key = self.entries.get(at).key;
        self.unlink(at);
        self.entries.remove(at);
        key
    }

    /// Notes that the data plane has seen the endpoint as a source. False if the endpoint is not
    /// known here.
    pub fn refresh(&mut self, now: Nanos, key: Key) -> bool {
        let found = self.entries.find(key);
        let found = found.filter(|&at| self.is_of(at, self.entries.get(at).port));
        if let Some(at) = found {
            self.touch(now, at);
        }
        found.is_some()
    }

    /// Notes that `holder` has an address for which an endpoint probed: the probe is lost.
    pub fn heard(&mut self, vni: Vni, ip: IpAddr, holder: Mac) {
        self.probes.heard(vni, ip, holder);
    }

    /// Removes an address of an endpoint. False if the endpoint is not known to have it.
    pub fn forget_ip(&mut self, key: Key, ip: IpAddr) -> bool {
        self.entries.find(key).is_some_and(|at| self.entries.get_mut(at).ips.remove(ip))
    }

    /// Forgets an endpoint, for example one that has moved to another host. False if it is not
    /// known here.
    pub fn forget(&mut self, key: Key) -> bool {
        self.entries.find(key).map(|at| self.remove(at)).is_some()
    }

    /// Notes that a port went down: the endpoints learned there, but for sticky ones, go with the
    /// next ticks.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn port_down(&mut self, port: PortId) {
        let state = &mut self.ports[port.index()];
        self.entries.append(&mut self.leaving, By::Port, &mut state.list);
        state.epoch = state.epoch.wrapping_add(1);
        state.count = 0;
    }

    /// Takes out the endpoints that are gone at `now`, at most `limit`, and reports each to `tell`.
    /// True if there is more to do at once.
    pub fn tick(&mut self, now: Nanos, limit: u32, mut tell: impl FnMut(Gone)) -> bool {
        for _ in 0..limit {
            let Some((at, why)) = self.next_gone(now) else { return false };
            let Entry { key, port, .. } = *self.entries.get(at);
            if why == Why::Silent {
                self.unlink_age(at);
                self.entries.get_mut(at).asked = Some(now);
                self.entries.push(&mut self.asked, By::Age, at);
            } else {
                self.remove(at);
            }
            tell(Gone { key, port, why });
        }
        self.next_gone(now).is_some()
    }

    fn next_gone(&self, now: Nanos) -> Option<(u32, Why)> {
        if self.leaving.first != NIL {
            return Some((self.leaving.first, Why::PortDown));
        }
        if self.answer_until().is_some_and(|until| until <= now) {
            return Some((self.asked.first, Why::Aged));
        }
        let is_old = self.life_until().is_some_and(|until| until <= now);
        let first = self.by_age.first;
        is_old.then(|| {
            let can_answer = !self.entries.get(first).ips.is_empty();
            (first, if can_answer { Why::Silent } else { Why::Aged })
        })
    }

    /// Returns the time at which [`Self::tick`] has something to do; `None`: not before something
    /// is learned.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.leaving.first != NIL {
            return Some(Nanos::ZERO);
        }
        [self.answer_until(), self.life_until()].into_iter().flatten().min()
    }

    fn life_until(&self) -> Option<Nanos> {
        let first = self.by_age.first;
        (first != NIL).then(|| self.entries.get(first).seen.after(self.lifetime))
    }

    fn answer_until(&self) -> Option<Nanos> {
        let first = self.asked.first;
        let asked = (first != NIL).then(|| self.entries.get(first).asked)?;
        asked.map(|asked| asked.after(ANSWER_MAX))
    }

    /// Number of endpoints that are remembered, departing ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns true if no endpoint is remembered.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of endpoints that were learned at `port`.
    #[must_use]
    pub fn learned_at(&self, port: PortId) -> u32 {
        let state = &self.ports[port.index()];
        state.count + state.sticky_count
    }

    /// Number of frames of `port` that taught nothing, for that reason.
    #[must_use]
    pub fn refused(&self, port: PortId, reason: Reason) -> u64 {
        self.ports[port.index()].refused[reason as usize]
    }
}

#[cfg(test)]
mod tests;
