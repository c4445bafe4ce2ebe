//! Every order of a worker with its driver and a guest, as the memory model of C++11 allows it
//! (loom). The worker's part ([`TxBackoff`]) and the driver's ([`arm`], [`Full`]) are the real
//! ones; the guest behaves as virtio demands of a driver, and fills its ring all at once or in
//! parts.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU16, Ordering, fence};
use loom::thread;
use sluice_base::Nanos;

use super::*;
use crate::port::ArmResult;
use crate::tx_backoff::{TxBackoff, Waits};

/// Time after which a driver without room is asked again while the worker is awake.
const LOOK_AGAIN: Nanos = Nanos(1);
/// Index at which the ring is empty: the guest has all buffers, or no frame.
const BASE: u16 = u16::MAX;

/// State that guest and device share: a ring's words, and the edge that a kick makes. The kernel
/// makes and collects edges one after the other, so both are exchanges.
struct Shared {
    available: AtomicU16,
    event: AtomicU16,
    suppressed: AtomicBool,
    edge: AtomicBool,
    event_idx: bool,
}

impl Shared {
    fn new(event_idx: bool) -> Arc<Self> {
        Arc::new(Self {
            available: AtomicU16::new(BASE),
            // The value of an earlier request.
            event: AtomicU16::new(BASE - 1),
            suppressed: AtomicBool::new(true),
            edge: AtomicBool::new(false),
            event_idx,
        })
    }

    /// The guest makes `count` entries available at once, and kicks if that is wanted.
    fn fill(&self, count: u16) {
        let before = self.available.load(Ordering::Relaxed);
        let now = before.wrapping_add(count);
        self.available.store(now, Ordering::Release);
        fence(Ordering::SeqCst);
        let wanted = if self.event_idx {
            let event = self.event.load(Ordering::Relaxed);
            now.wrapping_sub(event).wrapping_sub(1) < count
        } else {
            !self.suppressed.load(Ordering::Relaxed)
        };
        if wanted {
            self.edge.swap(true, Ordering::AcqRel);
        }
    }
}

impl Words for Shared {
    fn ask(&self, beyond: u16) {
        if self.event_idx {
            self.event.store(beyond, Ordering::Relaxed);
        } else {
            self.suppressed.store(false, Ordering::Relaxed);
        }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn index(&self) -> u16 {
        self.available.load(Ordering::Acquire)
    }
}

/// One schedule: steps in which the ring is filled, number of times that the worker arms
/// notifications before it serves the port (more than one if another port has more), and time of a
/// turn.
#[derive(Clone, Copy, Debug)]
struct Plan {
    event_idx: bool,
    fills: &'static [u16],
    rests: usize,
    turn: Nanos,
}

fn each_plan(fills: &[&'static [u16]], check: fn(Plan)) {
    for &fills in fills {
        for event_idx in [false, true] {
            for (rests, turn) in [(1, Nanos(0)), (2, Nanos(0)), (1, LOOK_AGAIN)] {
                let plan = Plan { event_idx, fills, rests, turn };
                loom::model(move || check(plan));
            }
        }
    }
}

/// A worker with one port, whose frame needs two buffers.
struct Worker {
    now: Nanos,
    room: TxBackoff,
    full: Full,
    /// The index at which the frame found no room.
    missed: u16,
    sent: bool,
}

impl Worker {
    const NEEDED: u16 = 2;

    fn offer(&mut self, shared: &Shared) {
        if !self.room.is_due(self.now) {
            return;
        }
        let available = shared.index();
        self.sent = available.wrapping_sub(BASE) >= Self::NEEDED;
        if self.sent {
            self.full.found(0);
            return self.room.offered(self.now, Waits::No);
        }
        self.missed = available;
        self.full.missed(0);
        self.room.offered(self.now, Waits::For(LOOK_AGAIN));
    }

    /// Returns true if it has to serve before it sleeps.
    fn arm_notifications(&mut self, shared: &Shared) -> bool {
        if self.full.has(0) {
            let came = arm(shared, self.missed) != self.missed;
            self.full.asked(0, came);
        }
        let came = self.full.has(0) && !self.full.are_armed();
        let answer = if came { ArmResult::More } else { ArmResult::Armed };
        self.room.note_armed(answer, self.full.has(0) && self.full.are_armed())
    }

    /// Notes an event of a descriptor.
    fn note_event(&mut self) {
        self.full = Full::default();
        self.room.note_event();
    }
}

/// A worker that waits for room sends its frame, or is woken.
fn room_is_found(plan: Plan) {
    let shared = Shared::new(plan.event_idx);
    let guests = Arc::clone(&shared);
    let guest = thread::spawn(move || plan.fills.iter().for_each(|&count| guests.fill(count)));
    let mut worker = Worker {
        now: Nanos(10),
        room: TxBackoff::default(),
        full: Full::default(),
        missed: BASE,
        sent: false,
    };
    let mut turns = 0;
    loop {
        worker.offer(&shared);
        if worker.sent {
            break;
        }
        turns += 1;
        assert!(turns < 10, "it does not come to rest: {plan:?}");
        worker.now = worker.now.after(plan.turn);
        let mut again = worker.arm_notifications(&shared);
        for _ in 1..plan.rests {
            let more = worker.arm_notifications(&shared);
            assert!(more || !again, "room that came is there until it is used: {plan:?}");
            again |= more;
        }
        if shared.edge.swap(false, Ordering::AcqRel) {
            worker.note_event();
        } else if !again {
            break;
        } else {
            worker.full = Full::default();
        }
    }
    guest.join().unwrap();
    let is_woken = shared.edge.swap(false, Ordering::AcqRel);
    assert!(worker.sent || is_woken, "a frame waits for ever, and there is room: {plan:?}");
}

#[test]
fn a_worker_without_room_sends_or_is_woken() {
    each_plan(&[&[2], &[1, 1]], room_is_found);
}

/// A worker that found no frames reads all that come, or is woken.
fn frames_are_found(plan: Plan) {
    let shared = Shared::new(plan.event_idx);
    let guests = Arc::clone(&shared);
    let guest = thread::spawn(move || plan.fills.iter().for_each(|&count| guests.fill(count)));
    let mut served = BASE;
    loop {
        let available = shared.index();
        if available != served {
            served = available;
            continue;
        }
        let more = (0..plan.rests).map(|_| arm(&*shared, served) != served);
        let answers: Vec<bool> = more.collect();
        assert!(answers.is_sorted(), "frames that came are there until they are read: {plan:?}");
        if !answers.contains(&true) && !shared.edge.swap(false, Ordering::AcqRel) {
            break;
        }
    }
    guest.join().unwrap();
    let is_woken = shared.edge.swap(false, Ordering::AcqRel);
    let all = plan.fills.iter().fold(BASE, |at, count| at.wrapping_add(*count));
    assert!(served == all || is_woken, "frames wait for ever: {plan:?}");
}

#[test]
fn a_worker_without_frames_reads_or_is_woken() {
    each_plan(&[&[2], &[1, 1]], frames_are_found);
}
