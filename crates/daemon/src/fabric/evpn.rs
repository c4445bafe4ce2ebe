//! EVPN: this host as a BGP speaker, between the control plane and [`sluice_evpn`].
//!
//! ```text
//!   member ── own claims, plan ──> Port ──> thread ══ BGP ══ neighbors
//!          <── places of MACs ─────────────── │
//!   control <── VTEPs: peers ─────────────────┘
//! ```
//!
//! | file | content |
//! |---|---|
//! | this one | the way to the thread; what the member does with news |
//! | `thread` | the speaker, its sockets, own endpoints that are to be announced |
//! | `answer` | its state, for people |
//!
//! **Nobody waits for the other's queue.** Own claims wait by name, the newest of each; news come a
//! batch at a time, and the next one when the member has taken it.
//!
//! **A VTEP is a peer.** The data process knows tunnels by peers of the configuration. A VTEP that
//! neighbors name and the configuration does not becomes a peer by [`ForeignHosts`]; places at it
//! are told again once the plan has it.
//!
//! **Endpoints of members** are known by the fabric: what neighbors say of a member's VTEP changes
//! nothing here. Between the two orders of claims only one decides.

mod answer;
mod thread;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sluice_api::fabric as api;
use sluice_base::{HostId, Nanos, Vni};
use sluice_control::plane::{Kind, Told};
use sluice_control::vport::{Claim, Ips, Key, Origin};
use sluice_evpn::RemoteMac;

use super::Fabric;
use super::member::Member;
use crate::config::{EvpnPlan, FabricPlan};
use crate::sys::log::say;

/// VTEPs that neighbors have named, each with the networks of which it takes frames to all.
pub(crate) type Vteps = BTreeMap<Ipv4Addr, BTreeSet<Vni>>;

/// Longest time for the goodbye to neighbors.
const LEAVE_MAX: Duration = Duration::from_millis(500);
/// Most moves that a neighbor is believed. The fabric's order of claims goes on above them.
const MOVES_MAX: u32 = 1 << 30;
/// Longest time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The one who makes peers of VTEPs.
pub(crate) trait ForeignHosts: fmt::Debug + Send + Sync {
    /// Takes the VTEPs that are known now. It is called once a second at least, and does not wait.
    /// `all` is false while neighbors have not told all of theirs yet: then those of before stay.
    fn set(&self, now: Nanos, vteps: &Vteps, all: bool);

    /// Forgets all VTEPs: this host does not speak any more.
    fn forget(&self);
}

/// News of the neighbors.
#[derive(Debug)]
pub(super) enum News {
    /// The place of a MAC; `None`: behind no other VTEP, or this host has it.
    Mac {
        key: Key,
        to: Option<RemoteMac>,
        /// True if it was announced for this host until now.
        is_taken: bool,
    },
    /// A VTEP takes frames to all of a network, and tells its endpoints there; or does so no more.
    Vtep { vni: Vni, vtep: Ipv4Addr, is_there: bool },
    /// An own endpoint was announced with this number of moves.
    Announced { key: Key, moves: u32 },
    /// Nothing is known any more.
    Nothing,
}

/// Requests that wait for the thread.
#[derive(Debug, Default)]
struct Inbox {
    /// Own claims that have changed; `None`: withdrawn.
    own: BTreeMap<Key, Option<Claim>>,
    /// True if what was known of own claims is no more: all that there are follow.
    forget_own: bool,
    /// A plan that is to be followed.
    plan: Option<Option<EvpnPlan>>,
    /// True if hosts, networks or room may have come for what the member has heard in vain.
    tell_again: bool,
    questions: Vec<SyncSender<Option<api::Evpn>>>,
    goodbye: Option<SyncSender<()>>,
}

/// The way to the thread.
#[derive(Debug)]
pub(super) struct Port {
    inbox: Mutex<Inbox>,
    wake: OwnedFd,
    /// True if there is a thread.
    is_served: AtomicBool,
    /// True if the plan of this host has a speaker.
    is_spoken: AtomicBool,
}

impl Port {
    pub(super) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (is_served, is_spoken) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self { inbox: Mutex::default(), wake, is_served, is_spoken })
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        change(&mut self.inbox());
        // A counter that is full is readable already.
        _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Takes everything that waits.
    fn take(&self) -> Inbox {
        // Before the inbox: what comes afterwards wakes again.
        _ = rustix::io::read(&self.wake, &mut [0; 8]);
        std::mem::take(&mut *self.inbox())
    }
}

impl Fabric {
    /// Starts the thread, which follows the plan of this host from now on.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn start_evpn(&self, hosts: Arc<dyn ForeignHosts>) -> anyhow::Result<()> {
        self.evpn.is_served.store(true, Ordering::Relaxed);
        thread::start(self.clone(), hosts)
    }

    /// Returns the state of the speaker; `None`: this host speaks no EVPN.
    pub(super) fn evpn_state(&self) -> Result<Option<api::Evpn>, String> {
        if !self.evpn.is_spoken.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (reply, answer) = sync_channel(1);
        self.evpn.put(|inbox| inbox.questions.push(reply));
        let late = || format!("EVPN did not answer within {} s", ANSWER_MAX.as_secs());
        answer.recv_timeout(ANSWER_MAX).map_err(|_| late())
    }

    /// Says goodbye to the neighbors, as far as that takes no time.
    pub(crate) fn leave_evpn(&self) {
        if !self.evpn.is_served.load(Ordering::Relaxed) {
            return;
        }
        let (done, left) = sync_channel(1);
        self.evpn.put(|inbox| inbox.goodbye = Some(done));
        _ = left.recv_timeout(LEAVE_MAX);
    }
}

impl Member {
    /// Lets the speaker follow the plan of this host, when the own endpoints are known. `old` is
    /// the plan that it has followed until now.
    pub(super) fn follow_evpn_plan(&mut self, old: Option<&FabricPlan>) {
        if self.silent_until.is_some() {
            return;
        }
        let was_spoken = old.is_some_and(|old| old.evpn.is_some());
        // What had no place, no host or no network may have it now.
        let tell_again = old.is_none_or(|old| *old != self.plan);
        let plan = self.plan.evpn.clone();
        if plan.is_some() != was_spoken {
            self.plane.watch_own(plan.is_some());
            self.handle.evpn.put(|inbox| (inbox.forget_own, inbox.own) = (true, BTreeMap::new()));
            // Ahead of the plan: what is not announced first is withdrawn.
            self.pass_own_changes();
        }
        self.handle.evpn.is_spoken.store(plan.is_some(), Ordering::Relaxed);
        if plan.is_some() || was_spoken {
            self.handle.evpn.put(|inbox| {
                inbox.plan = Some(plan);
                inbox.tell_again |= tell_again;
            });
        }
    }

    /// Passes changes of own claims on.
    pub(super) fn pass_own_changes(&mut self) {
        let Self { plane, handle, .. } = self;
        let Some(first) = plane.own_change() else { return };
        let rest = std::iter::from_fn(|| plane.own_change());
        handle.evpn.put(|inbox| inbox.own.extend(std::iter::once(first).chain(rest)));
    }

    /// Takes news of the neighbors.
    pub(super) fn hear_evpn(&mut self, now: Nanos, news: Vec<News>) {
        if self.plan.evpn.is_none() {
            self.plane.forget_told(now);
            return;
        }
        for news in news {
            match news {
                News::Mac { key, to, is_taken } => self.place(now, key, to.as_ref(), is_taken),
                News::Vtep { vni, vtep, is_there } => {
                    if let Some((host, Kind::Foreign)) = self.host_at(vtep) {
                        self.plane.set_told(now, host, vni, is_there);
                    }
                }
                News::Announced { key, moves } => {
                    self.plane.raise_own(now, key, moves.min(MOVES_MAX));
                }
                News::Nothing => self.plane.forget_told(now),
            }
        }
    }

    /// Returns the host with a VTEP.
    fn host_at(&self, vtep: Ipv4Addr) -> Option<(HostId, Kind)> {
        let host = self.plan.hosts.iter().find(|host| host.vtep == vtep)?;
        Some((host.host, if host.at.is_some() { Kind::Member } else { Kind::Foreign }))
    }

    fn place(&mut self, now: Nanos, key: Key, to: Option<&RemoteMac>, is_taken: bool) {
        let at = to.and_then(|to| self.host_at(to.vtep));
        let told = to.zip(at).map(|(to, (host, _))| Told {
            host,
            ips: to.ips.iter().copied().collect::<Ips>(),
            origin: if to.mobility.is_sticky { Origin::Sticky } else { Origin::Learned },
            moves: to.mobility.sequence.min(MOVES_MAX),
        });
        self.plane.place_foreign(now, key, told);
        let Some(to) = to.filter(|_| is_taken && !matches!(at, Some((_, Kind::Member)))) else {
            return;
        };
        let sequence = to.mobility.sequence;
        let is_any = to.mobility.is_sticky || sequence > MOVES_MAX;
        let moves = if is_any { u32::MAX } else { sequence };
        let is_given = self.plane.give_up(now, key, moves);
        if !is_given && self.few.admit("EVPN: bound here and announced elsewhere") {
            say!(
                warn: "EVPN: {} {} is bound here, and {} says that it has it to stay; those who \
                       follow EVPN send there",
                key.vni, key.mac, to.vtep
            );
        }
    }
}
