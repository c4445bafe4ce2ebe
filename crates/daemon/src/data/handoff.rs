//! The links between the workers of a host: rings of handles, and wake-ups.
//!
//! ```text
//!   worker A ── over ──────▶ worker B        frames of A for a port of B
//!            ◀── back ──────                 their handles, when B is done with them
//! ```
//!
//! Each two workers have a pair of rings for each direction. Both rings have room for all remote
//! references that may be outstanding
//! ([`HandoffConfig::remote_refs_max`](sluice_switch::HandoffConfig::remote_refs_max)), so no ring
//! is ever full. No frame waits behind one for another port: the switch bounds the remote
//! references by port and priority.
//!
//! **Memory.** The buffer of a handle is written before the handle is put into its ring, and read
//! after the handle was taken out; the ring orders the two (release and acquire). A handle has one
//! owner at any time.
//!
//! **No wake-up is lost**, see `sleep_flag.rs`.
//!
//! **Revocation.** A worker whose guest takes its memory away needs the handles of that input at
//! once. It names the input, wakes the other worker, and waits. The other worker first takes in the
//! frames on their way, then copies the waiting ones of that input into its own pool, and returns
//! the handles to their owner. Frames of other inputs stay as they are: they would be lost if the
//! pool had no room. A worker that waits for its handles serves the revocations of others
//! meanwhile, so that two workers that revoke handles from each other both continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use rtrb::{Consumer, Producer, RingBuffer};
use sluice_base::{InputId, PortId};
use sluice_ports::buckets::Buckets;
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{Handoff, HandoffSink, RemoteRef, SwitchConfig};

use super::sleep_flag::SleepFlag;
use crate::config::Workers;
use crate::sys::poller::Waker;

/// The wake-up flag of a worker, and the waker that ends its sleep.
#[derive(Debug)]
struct Door {
    flag: SleepFlag,
    waker: Waker,
}

impl Door {
    fn ring(&self) {
        if self.flag.must_wake() {
            self.waker.wake();
        }
    }
}

/// No input is wanted.
const NONE: u32 = u32::MAX;

/// The ends of the rings to and from one other worker.
pub(super) struct Link {
    /// Number of the other worker.
    pub(super) worker: usize,
    over: Producer<Handoff<FrameBuf>>,
    back: Consumer<(FrameBuf, RemoteRef)>,
    come: Consumer<Handoff<FrameBuf>>,
    to_owner: Producer<(FrameBuf, RemoteRef)>,
    /// Input of which this worker wants its handles back from the other, and the reverse.
    wanted: Arc<AtomicU32>,
    wanted_there: Arc<AtomicU32>,
    /// True if something was put in since the other worker was last woken.
    put: bool,
    door: Arc<Door>,
}

impl Link {
    /// Takes a frame that the other worker sent.
    pub(super) fn arrived(&mut self) -> Option<Handoff<FrameBuf>> {
        self.come.pop().ok()
    }

    /// Returns the number of frames on their way from the other worker.
    fn arriving(&self) -> usize {
        self.come.slots()
    }

    /// Takes a handle that the other worker has released.
    pub(super) fn returned(&mut self) -> Option<(FrameBuf, RemoteRef)> {
        self.back.pop().ok()
    }

    /// Returns a handle to its owner.
    pub(super) fn give_back(&mut self, buf: FrameBuf, remote: RemoteRef) {
        let pushed = self.to_owner.push((buf, remote));
        assert!(pushed.is_ok(), "there is room for all remote references");
        self.put = true;
    }

    /// Returns true if something is there for this worker.
    fn has_something(&self) -> bool {
        let is_wanted = self.wanted_there.load(Ordering::Acquire) != NONE;
        !self.come.is_empty() || !self.back.is_empty() || is_wanted
    }

    /// Returns the input of which the other worker wants its handles back, if it asked since the
    /// last call. All frames that the other worker sent before are in the ring by then.
    pub(super) fn wanted(&self) -> Option<InputId> {
        // An exchange costs more than a load, and mostly nothing is revoked.
        if self.wanted_there.load(Ordering::Relaxed) == NONE {
            return None;
        }
        let input = self.wanted_there.swap(NONE, Ordering::AcqRel);
        u16::try_from(input).ok().map(InputId)
    }

    /// Wakes the other worker if something was put in.
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
    /// Buckets of a shared underlay, which must know how long its frames are under way.
    pub(super) buckets: Option<&'a mut Buckets>,
}

impl HandoffSink<FrameBuf> for Carrier<'_> {
    fn copy(&mut self, buf: &FrameBuf) -> Option<FrameBuf> {
        let copy = self.pool.copy_of(buf)?;
        if let Some(buckets) = &mut self.buckets {
            buckets.copied(buf, &copy);
        }
        Some(copy)
    }

    fn take(&mut self, frame: Handoff<FrameBuf>) {
        let pushed = self.link.over.push(frame);
        assert!(pushed.is_ok(), "there is room for all remote references");
        self.link.put = true;
    }
}

/// A port of another worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elsewhere {
    pub(super) port: PortId,
    /// Index of its worker's link.
    pub(super) link: usize,
    /// True if the port is about to migrate: no more frames are sent to it.
    pub(super) held: bool,
}

/// Links of one worker to all others.
pub(super) struct Handoffs {
    pub(super) links: Vec<Link>,
    /// Ports of other workers.
    pub(super) elsewhere: Vec<Elsewhere>,
    /// Number of ports of the host. The ports of the links come after these.
    pub(super) ports: usize,
    door: Option<Arc<Door>>,
    /// Number of workers that still have something to drain, and whether this is one of them.
    to_drain: Arc<AtomicUsize>,
    drains: bool,
}

impl Handoffs {
    /// Makes the links of the only worker of a host: none.
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

    /// Returns the index of the link to a worker.
    pub(super) fn link_to(&self, worker: usize) -> Option<usize> {
        self.links.iter().position(|link| link.worker == worker)
    }

    /// Returns the number of frames on their way to this worker: no switch holds them.
    pub(super) fn arriving(&self) -> u64 {
        self.links.iter().map(|link| link.arriving() as u64).sum()
    }

    /// Arms the wake-up of this worker, and returns true if nothing is there for it, so that it may
    /// sleep.
    pub(super) fn prepare_sleep(&self) -> bool {
        let Some(Door { flag, .. }) = self.door.as_deref() else { return true };
        flag.prepare_sleep();
        let quiet = !self.links.iter().any(Link::has_something);
        if !quiet {
            flag.cancel_sleep();
        }
        quiet
    }

    /// Marks this worker as awake.
    pub(super) fn cancel_sleep(&self) {
        if let Some(door) = &self.door {
            door.flag.cancel_sleep();
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

    /// Withdraws the revocation, since all handles are back: workers that have not read it yet need
    /// not.
    pub(super) fn want_nothing(&self) {
        self.links.iter().for_each(|link| link.wanted.store(NONE, Ordering::Relaxed));
    }

    /// Notes that this worker has drained. Returns true if all have: until then others may send
    /// through its ports.
    pub(super) fn drained(&mut self) -> bool {
        if std::mem::take(&mut self.drains) {
            self.to_drain.fetch_sub(1, Ordering::AcqRel);
        }
        self.to_drain.load(Ordering::Acquire) == 0
    }
}

/// Returns the links between the workers of a host, by worker.
pub(super) fn between(workers: &Workers, whole: &SwitchConfig, wakers: &[Waker]) -> Vec<Handoffs> {
    let count = workers.count;
    if count == 1 {
        return vec![Handoffs::none()];
    }
    let door = |waker: &Waker| Arc::new(Door { flag: SleepFlag::default(), waker: waker.clone() });
    let doors: Vec<Arc<Door>> = wakers.iter().map(door).collect();
    let to_drain = Arc::new(AtomicUsize::new(count));
    let mut all: Vec<Handoffs> = doors
        .iter()
        .map(|door| Handoffs {
            links: Vec::new(),
            elsewhere: Vec::new(),
            ports: workers.ports.len(),
            door: Some(Arc::clone(door)),
            to_drain: Arc::clone(&to_drain),
            drains: true,
        })
        .collect();
    let remote_refs = |worker| workers.shard(whole, worker).handoff.remote_refs_max();
    let room = |worker| usize::try_from(remote_refs(worker)).unwrap_or(usize::MAX).max(1);
    let room: Vec<usize> = (0..count).map(room).collect();
    for a in 0..count {
        for b in a + 1..count {
            let (there, here) = pair((a, b), &room, &doors);
            all[a].links.push(there);
            all[b].links.push(here);
        }
    }
    for (at, handoffs) in all.iter_mut().enumerate() {
        let place = |owner: usize| handoffs.links.iter().position(|link| link.worker == owner);
        let ports = workers.owners().into_iter().enumerate();
        let ports = ports.filter_map(|(port, owner)| Some((port, owner.filter(|own| *own != at)?)));
        handoffs.elsewhere = ports
            .filter_map(|(port, owner)| {
                let (port, link) = (PortId::from_index(port), place(owner)?);
                Some(Elsewhere { port, link, held: false })
            })
            .collect();
    }
    all
}

/// Returns the two ends of the links between two workers; `room` is the most each may have
/// outstanding.
fn pair((a, b): (usize, usize), room: &[usize], doors: &[Arc<Door>]) -> (Link, Link) {
    let (a_over, b_come) = RingBuffer::new(room[a]);
    let (b_to_owner, a_back) = RingBuffer::new(room[a]);
    let (b_over, a_come) = RingBuffer::new(room[b]);
    let (a_to_owner, b_back) = RingBuffer::new(room[b]);
    let [a_wants, b_wants] = [(); 2].map(|()| Arc::new(AtomicU32::new(NONE)));
    let to_b = Link {
        worker: b,
        over: a_over,
        back: a_back,
        come: a_come,
        to_owner: a_to_owner,
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
        to_owner: b_to_owner,
        wanted: b_wants,
        wanted_there: a_wants,
        put: false,
        door: Arc::clone(&doors[a]),
    };
    (to_b, to_a)
}
