use super::*;
use crate::tcp::Algorithm;

fn data(seq: u64, len: u32) -> Segment {
    Segment { seq, len, flags: Flags::ACK, ..Segment::default() }
}

struct Harness {
    receiver: Receiver,
    config: Config,
    stats: Stats,
}

impl Harness {
    fn new(config: Config) -> Self {
        Self { receiver: Receiver::new(&config), config, stats: Stats::default() }
    }

    /// Returns true if an acknowledgement is due at once; sends it.
    fn receive(&mut self, seq: u64, len: u32) -> bool {
        self.receiver.receive(Nanos(7), &data(seq, len), &self.config, &mut self.stats);
        let due = self.receiver.ack_now;
        if due {
            self.receiver.sent();
        }
        due
    }
}

/// RFC 5681 clause 4.2: arrivals that are acknowledged at once.
#[test]
fn when_to_acknowledge() {
    let mut h = Harness::new(Config::freebsd9(Algorithm::NewReno));
    assert!(!h.receive(0, 100), "the first of two waits");
    assert_eq!(h.receiver.deadline, Nanos(7).after(h.config.ack_delay));
    assert!(h.receive(100, 100), "the second does not");
    assert_eq!(h.receiver.deadline, Nanos::MAX);
    assert!(h.receive(300, 100), "beyond a gap");
    assert!(h.receive(500, 100), "beyond another");
    assert!(h.receive(200, 100), "fills a part of a gap");
    assert!(h.receive(400, 100), "fills it all");
    assert_eq!(h.receiver.next, 600);
    assert!(h.receive(0, 100), "nothing new");
    assert!(!h.receive(600, 100), "in order again");
    assert_eq!((h.stats.useless_received, h.stats.disordered_received), (1, 2));
}

#[test]
fn the_part_beyond_the_window_is_cut_off() {
    let config =
        Config { receive_buffer: 250, auto_read: false, ..Config::freebsd9(Algorithm::NewReno) };
    let mut h = Harness::new(config);
    h.receive(0, 100);
    h.receive(100, 200);
    assert_eq!(h.receiver.next, 250);
    assert_eq!(h.receiver.advertise(&h.config), 0);
    assert!(h.receive(250, 1), "a probe is answered");
    assert_eq!(h.receiver.next, 250);
    // Small steps are not worth an update, half of the buffer is.
    h.receiver.take(100, &h.config);
    assert!(!h.receiver.ack_now);
    assert_eq!(h.receiver.advertise(&h.config), 0);
    h.receiver.take(100, &h.config);
    assert!(h.receiver.ack_now);
    assert_eq!(h.receiver.advertise(&h.config), 200);
}

/// RFC 7323 clause 4.3: with a delayed acknowledgement the first stamp is echoed, with a gap the
/// one before the gap.
#[test]
fn which_stamp_is_echoed() {
    let config = Config { quick_acks: 0, ..Config::linux_2013(Algorithm::Cubic) };
    let mut h = Harness::new(config);
    for (seq, stamp, echo) in [(0, 10, 10), (100, 11, 10), (300, 13, 12), (200, 14, 14)] {
        if seq == 300 {
            h.receiver.stamped(&Segment { stamp: 12, ..data(200, 0) });
        }
        h.receiver.stamped(&Segment { stamp, ..data(seq, 100) });
        h.receive(seq, 100);
        assert_eq!(h.receiver.echo, echo);
    }
}

/// RFC 7323 clause 5.5: after an idle time of half of the range a stamp looks old and is not.
#[test]
fn a_stamp_after_a_long_pause() {
    let mut h = Harness::new(Config::linux_2013(Algorithm::Cubic));
    h.receiver.stamped(&Segment { stamp: 10, ..data(0, 100) });
    h.receive(0, 100);
    h.receiver.expire(Nanos::MAX);
    h.receiver.sent();
    h.receiver.stamped(&Segment { stamp: 3 << 30, ..data(0, 100) });
    assert_eq!(h.receiver.echo, 10, "an old copy");
    h.receiver.stamped(&Segment { stamp: 3 << 30, ..data(100, 100) });
    assert_eq!(h.receiver.echo, 3 << 30);
}

#[test]
fn the_first_segments_are_acknowledged_at_once() {
    let mut h = Harness::new(Config::linux_2013(Algorithm::Cubic));
    for i in 0..16 {
        assert!(h.receive(i * 100, 100));
    }
    assert!(!h.receive(1_600, 100));
    assert!(h.receive(1_700, 100));
}
