//! The orders of a driver and its senders, as the memory model of C++11 allows them (loom). The
//! driver's part ([`arm`]) is the real one; a sender does what the program and the kernel do.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::thread;

use super::*;

/// The words, the ring of the veth, and the edge that a wake-up makes.
struct Shared {
    sent: AtomicU64,
    wanted: AtomicU64,
    ring: AtomicU64,
    edge: AtomicBool,
}

impl Shared {
    fn new(wanted: u64) -> Arc<Self> {
        let (sent, ring) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { sent, wanted: AtomicU64::new(wanted), ring, edge: AtomicBool::new(false) })
    }

    fn send(&self) {
        self.sent.fetch_add(1, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.wanted.load(Ordering::Relaxed) != 0 && self.wanted.swap(0, Ordering::AcqRel) != 0 {
            self.edge.swap(true, Ordering::AcqRel);
        }
        self.ring.fetch_add(1, Ordering::AcqRel);
    }
}

impl Words for Shared {
    fn ask(&self) {
        self.wanted.store(1, Ordering::Relaxed);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }
}

/// Looks a few times, and returns true if the driver sleeps then.
fn look(shared: &Shared, received: &mut u64, looks: usize) -> bool {
    for _ in 0..looks {
        *received += shared.ring.swap(0, Ordering::AcqRel);
        if arm(shared, *received) {
            return true;
        }
    }
    false
}

/// Checks the orders of this many senders with a driver that looks so often, in which a thread is
/// interrupted twice at most.
fn check(wanted: u64, senders: usize, looks: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(move || {
        let shared = Shared::new(wanted);
        let send = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.send())
        };
        let threads: Vec<_> = (0..senders).map(send).collect();
        let mut received = 0;
        let asleep = look(&shared, &mut received, looks);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let left = shared.ring.load(Ordering::Acquire);
        let woken = shared.edge.load(Ordering::Acquire);
        assert!(!asleep || left == 0 || woken, "it sleeps beside {left} frames");
    });
}

#[test]
fn sleeping_driver_is_woken_by_every_frame() {
    for (wanted, senders, looks) in [(0, 1, 2), (1, 1, 2), (0, 2, 1), (1, 2, 1)] {
        check(wanted, senders, looks);
    }
}

#[test]
fn driver_sleeps_when_everything_came() {
    loom::model(|| {
        let shared = Shared::new(0);
        let mut received = 0;
        assert!(look(&shared, &mut received, 1));
        shared.send();
        assert!(shared.edge.load(Ordering::Acquire));
        assert!(look(&shared, &mut received, 1));
        assert_eq!(received, 1);
    });
}
