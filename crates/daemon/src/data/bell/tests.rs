//! All interleavings of two threads that the memory model of C++11 allows (loom).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

use super::*;

impl Flag for AtomicBool {
    fn exchange(&self, value: bool) -> bool {
        self.swap(value, Ordering::AcqRel)
    }
}

/// The state between two workers: a count of entries, as a ring has one, and the wake-up.
struct Way {
    bell: Bell<AtomicBool>,
    put: AtomicU32,
    woken: AtomicBool,
}

impl Way {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bell: Bell { asleep: AtomicBool::new(false) },
            put: AtomicU32::new(0),
            woken: AtomicBool::new(false),
        })
    }

    fn put(&self) {
        self.put.fetch_add(1, Ordering::Release);
        if self.bell.ring() {
            self.woken.store(true, Ordering::Release);
        }
    }

    /// Arms the wake-up and checks once more. Returns true if the worker sleeps now.
    fn lie_down(&self, seen: u32) -> bool {
        self.bell.lie_down();
        let quiet = self.put.load(Ordering::Acquire) == seen;
        if !quiet {
            self.bell.get_up();
        }
        quiet
    }
}

#[test]
fn whoever_sleeps_has_seen_everything_or_is_woken() {
    loom::model(|| {
        let way = Way::new();
        let other = Arc::clone(&way);
        let putter = thread::spawn(move || other.put());
        let sleeps = way.lie_down(0);
        putter.join().unwrap();
        let woken = way.woken.load(Ordering::Acquire);
        assert!(!sleeps || woken, "it sleeps for ever, and something is there");
    });
}

#[test]
fn of_two_who_put_at_least_one_wakes_the_sleeper() {
    loom::model(|| {
        let way = Way::new();
        let putters: Vec<_> = (0..2)
            .map(|_| {
                let way = Arc::clone(&way);
                thread::spawn(move || way.put())
            })
            .collect();
        let sleeps = way.lie_down(0);
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        let woken = way.woken.load(Ordering::Acquire);
        assert!(!sleeps || woken, "it sleeps for ever, and something is there");
    });
}

/// A recall: the flag is taken before the ring is read, so that all frames sent before it was
/// raised are found.
#[test]
fn a_recall_finds_all_that_was_lent_before_it() {
    loom::model(|| {
        let (wanted, lent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (wants, lends) = (Arc::clone(&wanted), Arc::clone(&lent));
        let lender = thread::spawn(move || {
            lends.store(1, Ordering::Release);
            wants.store(true, Ordering::Release);
        });
        if wanted.load(Ordering::Relaxed) && wanted.exchange(false) {
            assert_eq!(lent.load(Ordering::Acquire), 1, "a handle stays behind");
        }
        lender.join().unwrap();
    });
}

/// A completion: the buffer's owner may sleep meanwhile, is woken, and then uses the memory again.
/// The memory is not ordered by itself: its contents are visible only through the two rings.
#[test]
fn a_handle_that_is_back_gives_its_memory_back() {
    loom::model(|| {
        let (memory, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let back = Way::new();
        let (its_memory, its_over, its_back) =
            (Arc::clone(&memory), Arc::clone(&over), Arc::clone(&back));
        let taker = thread::spawn(move || {
            if its_over.load(Ordering::Acquire) == 0 {
                return false;
            }
            assert_eq!(its_memory.load(Ordering::Relaxed), 1, "what was lent");
            its_back.put();
            true
        });
        memory.store(1, Ordering::Relaxed);
        over.store(1, Ordering::Release);
        let sleeps = back.lie_down(0);
        if !sleeps {
            memory.store(2, Ordering::Relaxed);
        }
        let was_taken = taker.join().unwrap();
        let woken = back.woken.load(Ordering::Acquire);
        assert!(!sleeps || !was_taken || woken, "a handle is back, and its lender sleeps");
    });
}
