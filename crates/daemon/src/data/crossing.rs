//! The ways between the workers of a host: rings of handles, and who wakes whom.
//!
//! ```text
//!   worker A ── over ──────▶ worker B        frames that A lends for a port of B
//!            ◀── back ──────                 their handles, when B is done with them
//! ```
//!
//! There is a pair of rings for each two workers and direction. Both have room for all that may be
//! lent ([`CrossingConfig::loans_max`](sluice_switch::CrossingConfig::loans_max)), so nobody ever
//! finds one full, and no frame waits behind one for another port: the switch bounds what is lent
//! by port and priority.
//!
//! **Memory.** What a handle points at was written before the handle was put into its ring, and is
//! read after it was taken out; the ring orders the two (release and acquire). A handle has one
//! owner at any time.
//!
//! **No wake-up is lost**, see `bell.rs`.
//!
//! **A recall.** A worker whose guest takes its memory away needs the handles of that input at
//! once. It says which, wakes the other, and waits; the other first takes in what is on its way,
//! then copies what waits of them into its own pool, and sends the handles home. Frames of others
//! stay as they are: they would end where the pool has no room. Who waits for a recall serves those
//! of others meanwhile, so that two who recall from each other both go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_base::{InputId, PortId};
use sluice_ports::udp::Buckets;
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{Crossing, Loan, SwitchConfig, Taker};

use super::bell::Bell;
use crate::config::Workers;
use crate::poller::Waker;

/// The bell of a worker, and what makes it heard.
#[derive(Debug)]
struct Door {
    bell: Bell,
    waker: Waker,
}

impl Door {
    fn ring(&self) {
        if self.bell.ring() {
            self.waker.wake();
        }
    }
}

/// No input is wanted.
const NONE: u32 = u32::MAX;

/// What a worker has of its ways to another one.
pub(super) struct Link {
    /// The number of the other one.
    pub(super) worker: usize,
    over: Producer<Crossing<FrameBuf>>,
    back: Consumer<(FrameBuf, Loan)>,
    come: Consumer<Crossing<FrameBuf>>,
    home: Producer<(FrameBuf, Loan)>,
    /// Of which input this worker wants its handles back from the other, and the reverse.
    wanted: Arc<AtomicU32>,
    wanted_there: Arc<AtomicU32>,
    /// Whether something was put in since the other one's bell was rung.
    put: bool,
    door: Arc<Door>,
}

impl Link {
    /// A frame that the other lends.
    pub(super) fn arrived(&mut self) -> Option<Crossing<FrameBuf>> {
        self.come.pop().ok()
    }

    /// Frames that are on their way from the other.
    fn arriving(&self) -> usize {
        self.come.slots()
    }

    /// A handle that the other is done with.
    pub(super) fn returned(&mut self) -> Option<(FrameBuf, Loan)> {
        self.back.pop().ok()
    }

    /// Sends a handle home.
    pub(super) fn give_back(&mut self, buf: FrameBuf, loan: Loan) {
        let pushed = self.home.push((buf, loan));
        assert!(pushed.is_ok(), "there is room for all that may be lent");
        self.put = true;
    }

    /// Whether something is there for this worker.
    fn has_something(&self) -> bool {
        let is_wanted = self.wanted_there.load(Ordering::Acquire) != NONE;
        !self.come.is_empty() || !self.back.is_empty() || is_wanted
    }

    /// The input of which the other wants its handles back since this was asked last. What it lent
    /// before is in the ring then.
    pub(super) fn wanted(&self) -> Option<InputId> {
        // An exchange costs more than a look, and there is mostly nothing.
        if self.wanted_there.load(Ordering::Relaxed) == NONE {
            return None;
        }
        let input = self.wanted_there.swap(NONE, Ordering::AcqRel);
        u16::try_from(input).ok().map(InputId)
    }

    /// Tells the other of what was put in.
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.put) {
            self.door.ring();
        }
    }
}

/// Carries frames over a link.
pub(super) struct Carrier<'a> {
    pub(super) link: &'a mut Link,
    pub(super) pool: &'a mut Pool,
    /// Of a shared underlay, which must know how long its frames are under way.
    pub(super) buckets: Option<&'a mut Buckets>,
}

impl Taker<FrameBuf> for Carrier<'_> {
    fn copy(&mut self, buf: &FrameBuf) -> Option<FrameBuf> {
        let copy = self.pool.copy_of(buf)?;
        if let Some(buckets) = &mut self.buckets {
            buckets.copied(buf, &copy);
        }
        Some(copy)
    }

    fn take(&mut self, frame: Crossing<FrameBuf>) {
        let pushed = self.link.over.push(frame);
        assert!(pushed.is_ok(), "there is room for all that may be lent");
        self.link.put = true;
    }
}

/// A port of another worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elsewhere {
    pub(super) port: PortId,
    /// The place of its worker among the links.
    pub(super) link: usize,
    /// It is to move: nothing more is lent to it.
    pub(super) held: bool,
}

/// The ways of one worker to all others.
pub(super) struct Crossings {
    pub(super) links: Vec<Link>,
    /// Ports of others.
    pub(super) elsewhere: Vec<Elsewhere>,
    /// How many ports the host has; those of the ways follow them.
    pub(super) ports: usize,
    door: Option<Arc<Door>>,
    /// How many workers have still something to drain, and whether this is one of them.
    to_drain: Arc<AtomicUsize>,
    drains: bool,
}

impl Crossings {
    /// Of a worker that is alone.
    pub(super) fn none() -> Self {
        Self {
            links: Vec::new(),
            elsewhere: Vec::new(),
            ports: 0,
            door: None,
            to_drain: Arc::new(AtomicUsize::new(1)),
            drains: true,
        }
    }

    /// The place of the link to a worker.
    pub(super) fn link_to(&self, worker: usize) -> Option<usize> {
        self.links.iter().position(|link| link.worker == worker)
    }

    /// Frames that are on their way to this worker: no switch has them.
    pub(super) fn arriving(&self) -> u64 {
        self.links.iter().map(|link| link.arriving() as u64).sum()
    }

    /// Whether nothing is there for this worker, which sleeps now and will be woken.
    pub(super) fn lie_down(&self) -> bool {
        let Some(Door { bell, .. }) = self.door.as_deref() else { return true };
        bell.lie_down();
        let quiet = !self.links.iter().any(Link::has_something);
        if !quiet {
            bell.get_up();
        }
        quiet
    }

    /// This worker is awake.
    pub(super) fn get_up(&self) {
        if let Some(door) = &self.door {
            door.bell.get_up();
        }
    }

    /// Asks all others for the handles of an input.
    pub(super) fn want_back(&mut self, input: InputId) {
        for link in &mut self.links {
            link.wanted.store(input.0.into(), Ordering::Release);
            link.put = true;
            link.ring();
        }
    }

    /// What was asked for is back: whoever has not heard of it yet does not have to.
    pub(super) fn want_nothing(&self) {
        self.links.iter().for_each(|link| link.wanted.store(NONE, Ordering::Relaxed));
    }

    /// This worker has drained. Returns whether all have: until then others may send by its ports.
    pub(super) fn drained(&mut self) -> bool {
        if std::mem::take(&mut self.drains) {
            self.to_drain.fetch_sub(1, Ordering::AcqRel);
        }
        self.to_drain.load(Ordering::Acquire) == 0
    }
}

/// The ways between the workers of a host, by worker.
pub(super) fn between(workers: &Workers, whole: &SwitchConfig, wakers: &[Waker]) -> Vec<Crossings> {
    let count = workers.count;
    if count == 1 {
        return vec![Crossings::none()];
    }
    let door = |waker: &Waker| Arc::new(Door { bell: Bell::default(), waker: waker.clone() });
    let doors: Vec<Arc<Door>> = wakers.iter().map(door).collect();
    let to_drain = Arc::new(AtomicUsize::new(count));
    let mut all: Vec<Crossings> = doors
        .iter()
        .map(|door| Crossings {
            links: Vec::new(),
            elsewhere: Vec::new(),
            ports: workers.ports.len(),
            door: Some(Arc::clone(door)),
            to_drain: Arc::clone(&to_drain),
            drains: true,
        })
        .collect();
    let loans = |worker| workers.shard(whole, worker).crossing.loans_max();
    let room = |worker| usize::try_from(loans(worker)).unwrap_or(usize::MAX).max(1);
    let room: Vec<usize> = (0..count).map(room).collect();
    for a in 0..count {
        for b in a + 1..count {
            let (there, here) = pair((a, b), &room, &doors);
            all[a].links.push(there);
            all[b].links.push(here);
        }
    }
    for (at, crossings) in all.iter_mut().enumerate() {
        let place = |owner: usize| crossings.links.iter().position(|link| link.worker == owner);
        let ports = workers.owners().into_iter().enumerate();
        let ports = ports.filter_map(|(port, owner)| Some((port, owner.filter(|own| *own != at)?)));
        crossings.elsewhere = ports
            .filter_map(|(port, owner)| {
                let (port, link) = (PortId::from_index(port), place(owner)?);
                Some(Elsewhere { port, link, held: false })
            })
            .collect();
    }
    all
}

/// The two ends of the ways between two workers; `room` is how much each may lend.
fn pair((a, b): (usize, usize), room: &[usize], doors: &[Arc<Door>]) -> (Link, Link) {
    let (a_over, b_come) = RingBuffer::new(room[a]);
    let (b_home, a_back) = RingBuffer::new(room[a]);
    let (b_over, a_come) = RingBuffer::new(room[b]);
    let (a_home, b_back) = RingBuffer::new(room[b]);
    let [a_wants, b_wants] = [(); 2].map(|()| Arc::new(AtomicU32::new(NONE)));
    let to_b = Link {
        worker: b,
        over: a_over,
        back: a_back,
        come: a_come,
        home: a_home,
        wanted: Arc::clone(&a_wants),
        wanted_there: Arc::clone(&b_wants),
        put: false,
        door: Arc::clone(&doors[b]),
    };
    let to_a = Link {
        worker: a,
        over: b_over,
        back: b_back,
        come: b_come,
        home: b_home,
        wanted: b_wants,
        wanted_there: a_wants,
        put: false,
        door: Arc::clone(&doors[a]),
    };
    (to_b, to_a)
}
