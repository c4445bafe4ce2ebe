use super::*;
use crate::tcp::segment::{Flags, SackBlocks};
use crate::tcp::{Algorithm, Config};

/// A sender with everything up to `sent` segments outstanding.
struct Harness {
    sender: Sender,
    config: Config,
    stats: Stats,
}

impl Harness {
    fn new(config: Config, sent: u64) -> Self {
        let mut sender = Sender::new(&config, Nanos::ZERO);
        let mss = u64::from(config.mss);
        sender.end = 1_000 * mss;
        sender.offered(0, u32::MAX);
        sender.window.cwnd = sent * mss;
        let mut h = Self { sender, config, stats: Stats::default() };
        assert_eq!(h.poll_all().len() as u64, sent);
        h
    }

    /// Returns the segments that may be sent, by number.
    fn poll_all(&mut self) -> Vec<u64> {
        let mss = u64::from(self.config.mss);
        let mut sent = Vec::new();
        while let Some((seq, _)) = self.sender.poll(Nanos(1), &self.config, &mut self.stats) {
            sent.push(seq / mss);
        }
        sent
    }

    /// Takes an acknowledgement up to a segment, with blocks of segments.
    fn ack(&mut self, up_to: u64, held: &[(u32, u32)]) -> Vec<u64> {
        let mss = self.config.mss;
        let mut segment = Segment {
            ack: up_to * u64::from(mss),
            window: u32::MAX,
            flags: Flags::ACK,
            ..Segment::default()
        };
        let mut sack = SackBlocks::NONE;
        for (start, end) in held {
            let base = u32::try_from(up_to).unwrap();
            sack.push((start - base) * mss, (end - base) * mss);
        }
        segment.sack = sack;
        // The window edge is at its largest from the start, so no ACK opens it.
        self.sender.edge = u64::MAX / 2;
        self.sender.acknowledged(Nanos(2), &segment, &self.config, &mut self.stats);
        self.poll_all()
    }
}

fn config(sack: bool) -> Config {
    Config { mss: 1_000, sack, send_buffer: 1 << 20, ..Config::freebsd9(Algorithm::NewReno) }
}

/// The six cases of ns-3, src/internet/test/tcp-classic-recovery-test.cc: segment size, threshold,
/// duplicates. On entry the window is the threshold and is inflated by the duplicates, each further
/// one adds a segment, at the end the window is the threshold. In ns-3 the threshold is given, here
/// it follows from the flight; the window before has no part in it, so that the last two cases are
/// alike.
#[test]
fn ns3_classic_recovery() {
    let table = [
        (500, 2_500, 3),
        (1_000, 2_500, 3),
        (500, 2_500, 4),
        (500, 1_000, 3),
        (500, 2_500, 3),
        (500, 2_500, 3),
    ];
    for (mss, ssthresh, duplicates) in table {
        let config = Config { mss, ..config(false) };
        let mut h =
            Harness { sender: Sender::new(&config, Nanos::ZERO), config, stats: Stats::default() };
        let mss = u64::from(mss);
        let sender = &mut h.sender;
        (sender.end, sender.nxt) = (100_000, 2 * ssthresh);
        sender.window.cwnd = 2 * ssthresh;
        sender.duplicates = duplicates;
        sender.enter_recovery(Nanos(1), &h.config, &mut h.stats);
        assert_eq!(sender.window.cwnd, ssthresh);
        assert_eq!(sender.window.ssthresh, ssthresh);
        assert_eq!(sender.inflation, u64::from(duplicates) * mss);
        sender.duplicate(Nanos(1), &h.config, &mut h.stats);
        assert_eq!(sender.inflation, u64::from(duplicates + 1) * mss);
        assert_eq!(sender.window.cwnd, ssthresh);
        sender.leave_recovery(&h.config);
        assert_eq!((sender.window.cwnd, sender.inflation), (ssthresh, 0));
    }
}

/// RFC 3042: the first two duplicates send one new segment each, the third sends the lost one
/// again. Without limited transmit the first two send nothing.
#[test]
fn limited_transmit() {
    for (limited_transmit, first, second) in [(true, vec![10], vec![11]), (false, vec![], vec![])] {
        let config = Config { limited_transmit, ..config(false) };
        let mut h = Harness::new(config, 10);
        assert_eq!(h.ack(0, &[]), first);
        assert_eq!(h.ack(0, &[]), second);
        assert_eq!(h.ack(0, &[]), [0]);
        assert_eq!(h.sender.window.ssthresh, 5_000, "without what limited transmit sent");

        let config = Config { sack: true, ..h.config };
        let mut h = Harness::new(config, 10);
        assert_eq!(h.ack(0, &[(1, 2)]), first);
        assert_eq!(h.ack(0, &[(1, 3)]), second);
        assert_eq!(h.ack(0, &[(1, 4)]), [0]);
        assert_eq!(h.sender.window.ssthresh, 5_000);
    }
}

/// RFC 6582 clause 3.2, five segments of ten lost: each partial acknowledgement sends the next.
#[test]
fn partial_acknowledgements() {
    let mut h = Harness::new(Config { limited_transmit: false, ..config(false) }, 10);
    for expected in [vec![], vec![], vec![0], vec![], vec![]] {
        assert_eq!(h.ack(0, &[]), expected);
    }
    // Lost: 0, 2, 4, 6, 8. The window is 5 + 5 segments.
    assert_eq!(h.sender.inflation, 5_000);
    assert_eq!(h.ack(2, &[]).first(), Some(&2));
    assert_eq!(h.sender.inflation, 4_000, "two are acknowledged, one is added");
    assert_eq!(h.ack(4, &[]).first(), Some(&4));
    assert_eq!(h.ack(6, &[]).first(), Some(&6));
    assert_eq!(h.ack(8, &[]).first(), Some(&8));
    assert_eq!(h.sender.phase, Phase::Recovery);
    let outstanding = h.sender.nxt - 10_000;
    h.ack(10, &[]);
    assert_eq!(h.sender.phase, Phase::Open);
    assert_eq!(h.sender.window.cwnd, 5_000.min(outstanding.max(1_000) + 1_000));
    assert_eq!((h.stats.retransmissions, h.stats.fast_recoveries), (5, 1));
}

/// RFC 6675 clauses 4 and 5, step by step: ten outstanding, 0 and 4 lost.
#[test]
fn sack_recovery() {
    let mut h = Harness::new(Config { limited_transmit: false, ..config(true) }, 10);
    assert_eq!(h.ack(0, &[(1, 2)]), []);
    assert_eq!(h.ack(0, &[(1, 3)]), []);
    // Three segments held: 0 is lost. cwnd = 5; pipe = 6 of 4..10, and 1 sent again.
    assert_eq!(h.ack(0, &[(1, 4)]), [0]);
    assert_eq!((h.sender.pipe, h.sender.window.cwnd), (7_000, 5_000));
    assert_eq!(h.ack(0, &[(5, 6), (1, 4)]), []);
    assert_eq!(h.ack(0, &[(5, 7), (1, 4)]), []);
    // The third segment beyond 4: it is lost too. pipe = 2 of 8..10, and 1; then 4 and new data.
    assert_eq!(h.ack(0, &[(5, 8), (1, 4)]), [4, 10]);
    assert_eq!(h.sender.pipe, 5_000);
    assert_eq!(h.ack(4, &[(5, 8)]), [11]);
    assert_eq!(h.ack(4, &[(5, 9)]), [12]);
    assert_eq!(h.ack(10, &[]).len(), 2);
    assert_eq!((h.sender.phase, h.sender.calm), (Phase::Open, true));
    assert_eq!(h.sender.window.cwnd, 5_000);
    assert_eq!((h.stats.retransmissions, h.stats.fast_recoveries), (2, 1));
}

/// `NextSeg` rules 3 and 4: with no new data, bytes that may be lost are sent again, and at last,
/// once, the highest segment.
#[test]
fn rule_3_and_rescue() {
    let mut h = Harness::new(Config { limited_transmit: false, ..config(true) }, 10);
    h.sender.end = h.sender.nxt;
    assert_eq!(h.ack(0, &[(1, 4)]), [0]);
    assert_eq!(h.ack(0, &[(1, 4), (5, 6)]), []);
    assert_eq!(h.ack(0, &[(1, 4), (5, 7)]), []);
    // Two segments beyond 4 are too few to call it lost; pipe = 4.
    assert_eq!(h.ack(4, &[(5, 7)]), [4]);
    assert_eq!(h.stats.rescues, 0);
    assert_eq!(h.ack(7, &[]), [9]);
    assert_eq!(h.stats.rescues, 1);
    assert_eq!(h.sender.high_rxt, 7_000, "the rescue leaves HighRxt");
    assert_eq!(h.ack(8, &[]), [], "a rescue comes once");
    assert_eq!(h.stats.rescues, 1);
}

/// RFC 5681 clause 3.1 and RFC 6298 clause 5: the window is one segment, the threshold half of the
/// flight and held when the same segment times out again; then slow start resends the bytes that
/// the peer does not hold.
#[test]
fn time_out() {
    let mut h = Harness::new(Config { limited_transmit: false, ..config(true) }, 10);
    h.ack(0, &[(4, 6)]);
    for times in 1..4 {
        let now = h.sender.deadline;
        let rto = h.sender.rtt.rto(&h.config);
        h.sender.expire(now, &h.config, &mut h.stats);
        assert_eq!(h.sender.rtt.rto(&h.config), Nanos(rto.0 * 2));
        assert_eq!(h.sender.deadline, now.after(Nanos(rto.0 * 2)));
        assert_eq!(h.sender.window.ssthresh, 5_000);
        assert_eq!(h.sender.window.cwnd, 1_000);
        assert_eq!(h.poll_all(), [0], "time-out {times}");
    }
    assert_eq!(h.ack(1, &[(4, 6)]), [1, 2]);
    assert_eq!(h.ack(2, &[(4, 6)]), [3, 6]);
    assert_eq!(h.ack(6, &[]), [7, 8, 9]);
    assert_eq!(h.ack(6, &[]), [], "duplicates of a repair begin none");
    assert_eq!(h.sender.phase, Phase::Loss);
    h.ack(10, &[]);
    assert_eq!((h.sender.phase, h.sender.calm), (Phase::Open, true));
    assert_eq!(h.stats.fast_recoveries, 0);
}

/// RFC 6582 clause 3.2 step 2: duplicates that acknowledge just the end of a repair are its own.
#[test]
fn own_duplicates_begin_no_recovery() {
    let mut h = Harness::new(config(false), 10);
    h.sender.expire(h.sender.deadline, &h.config, &mut h.stats);
    h.poll_all();
    h.ack(10, &[]);
    for _ in 0..5 {
        h.ack(10, &[]);
    }
    assert_eq!(h.stats.fast_recoveries, 0);
}

/// Without time stamps an answer within half of SRTT undoes the time-out, a later one does not.
#[test]
fn a_quick_answer_undoes_a_time_out() {
    for (after, undone) in [(49_999, true), (50_000, false)] {
        for sack in [false, true] {
            let mut h = Harness::new(config(sack), 10);
            h.sender.rtt.sample(Nanos::from_micros(100), &h.config);
            let then = h.sender.deadline;
            h.sender.expire(then, &h.config, &mut h.stats);
            assert_eq!(h.poll_all(), [0]);
            let now = Nanos(then.0 + after);
            let segment = Segment { ack: 1_000, flags: Flags::ACK, ..Segment::default() };
            h.sender.acknowledged(now, &segment, &h.config, &mut h.stats);
            assert_eq!(h.stats.timeouts_undone, u32::from(undone));
            assert_eq!(h.sender.calm, undone);
            assert_eq!(h.sender.window.cwnd >= 10_000, undone);
        }
    }
}
