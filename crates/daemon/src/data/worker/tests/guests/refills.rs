//! Guests with small rings that fill them all at once, at random moments: a side that waits for
//! room, or for frames, continues each time.
//!
//! The failure to find is a missing wake-up: the worker asks for a kick too late, and the guest,
//! whose buffers are all there, never kicks. The model in `sluice_ports` covers every order of the
//! two; here the real code runs, with all layers in between.

use sluice_base::Prng;

use super::*;

/// Frames of one schedule, and the longest pause of a guest.
const FRAMES: u32 = 3_000;
const PAUSE_US_MAX: u64 = 300;

/// Returns the number of schedules; `make soak` runs more of them, and optimized.
fn schedules() -> u64 {
    let asked = std::env::var("SLUICE_REFILLS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(12)
}

fn guest(prng: &mut Prng) -> GuestConfig {
    let mut features = feature::ALL;
    for feature in [feature::EVENT_IDX, feature::INDIRECT_DESC] {
        if prng.below(2) == 0 {
            features &= !feature;
        }
    }
    // A frame may need several of its buffers: some came, and not enough.
    let (receive_buffer_bytes, required) = if prng.below(2) == 0 {
        (2048, feature::VERSION_1)
    } else {
        (300, feature::VERSION_1 | feature::MRG_RXBUF)
    };
    let ring_size = 1 << (3 + prng.below(4));
    GuestConfig { features, required, receive_buffer_bytes, ring_size, ..GuestConfig::default() }
}

/// A guest that pauses at random moments, and then does all that it can at once.
struct Pauses {
    prng: Prng,
    until: Instant,
}

impl Pauses {
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let over = now >= self.until;
        if over {
            self.until = now + Duration::from_micros(self.prng.below(PAUSE_US_MAX));
        }
        over
    }
}

#[test]
fn guest_bulk_ring_refill_always_resumes_delivery() {
    for seed in 0..schedules() {
        let mut prng = Prng::new(seed);
        let configs = [guest(&mut prng), guest(&mut prng)];
        let in_order = prng.below(2) == 0;
        let of = |at: usize| configs[at].clone();
        let mut vms = vms_in_order(&containers(2, 64), of, Role::Server, in_order);
        let [mut sends, mut takes] = [1, 2]
            .map(|stream| Pauses { prng: Prng::new(seed * 2 + stream), until: Instant::now() });
        let (mut sent, mut seen) = (0, 0);
        let mut moved = Instant::now();
        while seen < FRAMES {
            if sends.is_over() {
                while sent < FRAMES && vms.guests[0].send(&frame(0, 1, sent)) {
                    sent += 1;
                }
            }
            if takes.is_over() {
                let receiver = &mut vms.guests[1].pair(0).receiver;
                receiver.burst(usize::MAX, |received| {
                    assert_eq!(number(&received.to_vec()), seen, "seed {seed}: in order, once");
                    seen += 1;
                    moved = Instant::now();
                });
            }
            assert!(
                moved.elapsed() < PATIENCE,
                "seed {seed}: {seen} of {sent} frames came, and no more do: {configs:?}"
            );
        }
        assert_eq!(vms.guests.iter().find_map(Guest::violation), None, "seed {seed}");
        assert_eq!(vms.drops(), 0, "seed {seed}");
        vms.end();
    }
}
