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
struct Channel {
    flag: SleepFlag<AtomicBool>,
    put: AtomicU32,
    woken: AtomicBool,
}

impl Channel {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            flag: SleepFlag { asleep: AtomicBool::new(false) },
            put: AtomicU32::new(0),
            woken: AtomicBool::new(false),
        })
    }

    fn put(&self) {
        self.put.fetch_add(1, Ordering::Release);
        if self.flag.must_wake() {
            self.woken.store(true, Ordering::Release);
        }
    }

    /// Arms the wake-up and checks once more. Returns true if the worker sleeps now.
    fn prepare_sleep(&self, seen: u32) -> bool {
        self.flag.prepare_sleep();
        let quiet = self.put.load(Ordering::Acquire) == seen;
        if !quiet {
            self.flag.cancel_sleep();
        }
        quiet
    }
}

#[test]
fn whoever_sleeps_has_seen_everything_or_is_woken() {
    loom::model(|| {
        let channel = Channel::new();
        let other = Arc::clone(&channel);
        let putter = thread::spawn(move || other.put());
        let sleeps = channel.prepare_sleep(0);
        putter.join().unwrap();
        let woken = channel.woken.load(Ordering::Acquire);
        assert!(!sleeps || woken, "it sleeps for ever, and something is there");
    });
}

#[test]
fn wakeup_two_concurrent_producers_one_wakes_sleeping_worker() {
    loom::model(|| {
        let channel = Channel::new();
        let putters: Vec<_> = (0..2)
            .map(|_| {
                let channel = Arc::clone(&channel);
                thread::spawn(move || channel.put())
            })
            .collect();
        let sleeps = channel.prepare_sleep(0);
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        let woken = channel.woken.load(Ordering::Acquire);
        assert!(!sleeps || woken, "it sleeps for ever, and something is there");
    });
}

/// A revocation: the flag is taken before the ring is read, so that all frames sent before it was
/// raised are found.
#[test]
fn revoke_flag_taken_first_finds_all_earlier_frames() {
    loom::model(|| {
        let (wanted, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (wants, sends) = (Arc::clone(&wanted), Arc::clone(&sent));
        let sender = thread::spawn(move || {
            sends.store(1, Ordering::Release);
            wants.store(true, Ordering::Release);
        });
        if wanted.load(Ordering::Relaxed) && wanted.exchange(false) {
            assert_eq!(sent.load(Ordering::Acquire), 1, "a handle stays behind");
        }
        sender.join().unwrap();
    });
}

/// A completion: the buffer's owner may sleep meanwhile, is woken, and then uses the memory again.
/// The memory is not ordered by itself: its contents are visible only through the two rings.
#[test]
fn returned_handle_orders_memory_reuse_and_wakes_owner() {
    loom::model(|| {
        let (memory, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let back = Channel::new();
        let (its_memory, its_over, its_back) =
            (Arc::clone(&memory), Arc::clone(&over), Arc::clone(&back));
        let taker = thread::spawn(move || {
            if its_over.load(Ordering::Acquire) == 0 {
                return false;
            }
            assert_eq!(its_memory.load(Ordering::Relaxed), 1, "the memory of the frame");
            its_back.put();
            true
        });
        memory.store(1, Ordering::Relaxed);
        over.store(1, Ordering::Release);
        let sleeps = back.prepare_sleep(0);
        if !sleeps {
            memory.store(2, Ordering::Relaxed);
        }
        let was_taken = taker.join().unwrap();
        let woken = back.woken.load(Ordering::Acquire);
        assert!(!sleeps || !was_taken || woken, "a handle is back, and its owner sleeps");
    });
}
