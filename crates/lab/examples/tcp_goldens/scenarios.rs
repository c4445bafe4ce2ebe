//! The scenarios: the segments that are lost, and the deviations expected of the simulator.

/// The payload of a full segment, in bytes.
pub(crate) const MSS: u32 = 1000;
/// The delay of every frame in one direction; a round trip takes twice this time.
pub(crate) const DELAY_MS: u64 = 10;

// Reasons of the simulator's deviations from the kernel.
const PRR: &str = "the kernel sends in recovery by RFC 6937, the simulator by the pipe of RFC 6675";
const PRR_WITHOUT_SACK: &str =
    "the kernel sends in recovery by RFC 6937, the simulator by the inflated window of RFC 6582";
const RACK: &str = "the kernel finds losses by time as well (RFC 8985, not to be switched off), \
                    the simulator by RFC 6675 alone";
const RACK_AND_PRR: &str = "the kernel finds losses by time as well, those of retransmissions, too \
                            (RFC 8985, not to be switched off), and sends in recovery by RFC \
                            6937; the simulator has RFC 6675 alone, so this is a time-out";
const RESCUE: &str = "RFC 6675 clause 4 allows one such segment for each recovery, the kernel \
                      sends none";
const FULL_ACK: &str = "after recovery the kernel's window is ssthresh, the simulator's not more \
                        than what is in flight and one segment; RFC 6582 clause 3.2 allows both";
const AND_WHOLE_SEGMENTS: &str = "; and its CUBIC counts in whole segments, not in bytes";
const WHOLE_SEGMENTS: &str = "CUBIC of the kernel counts in whole segments, the simulator in bytes";
const QUICK_ACKS: &str = "this kernel answers every segment of the transfer, the simulator the \
                          first 16 and then every second";
const FLIGHT_SIZE: &str = "the kernel reduces its window, the simulator what was in flight (RFC \
                           5681 equation 4, RFC 9438 clause 4.6)";
const CREDIT: &str = "the segment that ends recovery counts for the next increase of the kernel's \
                      window, not for the simulator's";

/// Acknowledgement strategy of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acks {
    /// Every segment at once.
    Each,
    /// Every second segment, or after a while.
    Delayed,
    /// The kernel's default: each of the first segments, then every second.
    Quick,
}

/// One transfer with its losses.
pub(crate) struct Scenario {
    /// The name of its file.
    pub(crate) name: &'static str,
    /// Description of the transfer, in words.
    pub(crate) about: &'static str,
    /// The congestion control, as the kernel calls it.
    pub(crate) algorithm: &'static str,
    pub(crate) sack: bool,
    pub(crate) acks: Acks,
    /// Initial congestion window in segments.
    pub(crate) initial_window: u32,
    /// Writes of the sender: milliseconds after the first write, bytes.
    pub(crate) sends: Vec<(u64, u32)>,
    /// Lost segments by their first byte, with the numbers of their lost transmissions, from 1.
    pub(crate) lost_data: Vec<(u32, Vec<u32>)>,
    /// Lost acknowledgements by their number, from 1.
    pub(crate) lost_acks: Vec<u32>,
    /// Deviations of the simulator, as `docs/tcp-oracles.md` describes them.
    pub(crate) deviations: Vec<String>,
}

impl Scenario {
    /// Returns the number of bytes that are written.
    pub(crate) fn bytes(&self) -> u32 {
        self.sends.iter().map(|(_, bytes)| bytes).sum()
    }

    fn lose(mut self, segments: &[u32]) -> Self {
        self.lost_data.extend(segments.iter().map(|segment| (segment * MSS, vec![1])));
        self
    }

    fn lose_times(mut self, segment: u32, times: &[u32]) -> Self {
        self.lost_data.push((segment * MSS, times.to_vec()));
        self
    }

    fn lose_acks(mut self, numbers: &[u32]) -> Self {
        self.lost_acks.extend(numbers);
        self
    }

    fn without_sack(mut self) -> Self {
        self.sack = false;
        self
    }

    fn initial_window(mut self, segments: u32) -> Self {
        self.initial_window = segments;
        self
    }

    fn then(mut self, at_ms: u64, segments: u32) -> Self {
        self.sends.push((at_ms, segments * MSS));
        self
    }

    fn acks(mut self, acks: Acks) -> Self {
        self.acks = acks;
        self
    }

    /// Adds a deviation: from a time on, `limits` hold instead of equality.
    fn deviates(mut self, name: &str, from_ms: u64, limits: &str, reason: &str) -> Self {
        self.deviations.push(format!("{name} from {from_ms} ms, {limits}: {reason}"));
        self
    }

    fn prr(self, from_ms: u64, limits: &str) -> Self {
        let recovery = if self.sack { PRR } else { PRR_WITHOUT_SACK };
        let growth = if self.algorithm == "cubic" { AND_WHOLE_SEGMENTS } else { "" };
        self.deviates("prr", from_ms, limits, &format!("{recovery}{growth}"))
    }

    fn rescue(mut self, segment: u32, at_ms: u64) -> Self {
        self.deviations.push(format!("rescue of {} at {at_ms} ms: {RESCUE}", segment * MSS));
        self
    }
}

fn transfer(
    algorithm: &'static str,
    name: &'static str,
    segments: u32,
    about: &'static str,
) -> Scenario {
    Scenario {
        name,
        about,
        algorithm,
        sack: true,
        acks: Acks::Each,
        initial_window: 10,
        sends: vec![(0, segments * MSS)],
        lost_data: Vec::new(),
        lost_acks: Vec::new(),
        deviations: Vec::new(),
    }
}

fn reno(name: &'static str, segments: u32, about: &'static str) -> Scenario {
    transfer("reno", name, segments, about)
}

fn cubic(name: &'static str, segments: u32, about: &'static str) -> Scenario {
    transfer("cubic", name, segments, about)
}

/// Returns all scenarios.
pub(crate) fn all() -> Vec<Scenario> {
    [reno_with_sack(), reno_without_sack(), tails(), others()].into_iter().flatten().collect()
}

fn reno_with_sack() -> Vec<Scenario> {
    vec![
        reno("reno-no-loss", 50, "nothing is lost: slow start"),
        reno("reno-delayed-acks", 25, "nothing is lost, and every second segment is answered")
            .acks(Acks::Delayed),
        reno("reno-quick-acks", 49, "nothing is lost, and the receiver answers as it always does")
            .acks(Acks::Quick)
            .deviates("quick-acks", 20, "apart 0, end 50 ms, timeouts 0", QUICK_ACKS),
        reno("reno-delayed-loss", 30, "every second segment is answered, and one is lost")
            .acks(Acks::Delayed)
            .lose(&[10])
            .then(100, 40)
            .rescue(29, 40)
            .deviates("credit", 140, "apart 1, end 10 ms, timeouts 0", CREDIT),
        reno("reno-first", 30, "the first segment of all is lost").lose(&[0]),
        reno("reno-middle", 30, "one segment of the first window is lost")
            .lose(&[4])
            .prr(20, "apart 1, end 10 ms, timeouts 0"),
        reno("reno-second-window", 50, "one segment of the second window is lost")
            .lose(&[14])
            .prr(40, "apart 5, end 10 ms, timeouts 0"),
        reno("reno-two-adjacent", 30, "two segments in a row are lost").lose(&[4, 5]),
        reno("reno-two-apart", 30, "two segments with others between them are lost")
            .lose(&[2, 6])
            .prr(20, "apart 2, end 10 ms, timeouts 0"),
        reno("reno-three", 30, "three segments of the first window are lost")
            .lose(&[1, 3, 6])
            .prr(20, "apart 2, end 30 ms, timeouts 0"),
        reno("reno-last", 20, "the last segment is lost: a time-out").lose(&[19]),
        reno("reno-backoff", 20, "the last segment is lost three times: time-outs back off")
            .lose_times(19, &[1, 2, 3]),
        reno("reno-window", 25, "the whole first window is lost: a time-out")
            .lose(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        reno("reno-retransmission", 30, "a segment and its fast retransmission are lost")
            .lose_times(4, &[1, 2])
            .deviates("rack", 20, "apart 2, end 200 ms, timeouts 1", RACK_AND_PRR),
        reno("reno-acks", 30, "four acknowledgements in a row are lost; later ones make up")
            .lose_acks(&[3, 4, 5, 6]),
        reno("reno-all-acks", 10, "all acknowledgements of a window are lost: a time-out")
            .lose_acks(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        reno(
            "reno-limited-transmit",
            20,
            "a window of three, the second is lost: limited transmit",
        )
        .initial_window(3)
        .lose(&[1])
        .deviates("rack", 25, "apart 4, end 30 ms, timeouts 0", RACK),
        reno("reno-few-duplicates", 5, "too few segments follow the lost one").lose(&[2]).deviates(
            "rack",
            20,
            "apart 1, end 220 ms, timeouts 1",
            RACK,
        ),
        reno("reno-idle", 20, "after an idle second the window begins anew").then(1000, 30),
        reno("reno-app-limited", 5, "the sender has little to say, three times, then much")
            .then(100, 5)
            .then(200, 5)
            .then(300, 30),
    ]
}

fn reno_without_sack() -> Vec<Scenario> {
    vec![
        reno("newreno-middle", 30, "no SACK: one segment is lost")
            .without_sack()
            .lose(&[4])
            .prr(20, "apart 1, end 10 ms, timeouts 0"),
        reno("newreno-two-apart", 30, "no SACK: two are lost, so one partial acknowledgement")
            .without_sack()
            .lose(&[2, 6])
            .prr(20, "apart 1, end 10 ms, timeouts 0"),
        reno("newreno-three", 30, "no SACK: three are lost, so two partial acknowledgements")
            .without_sack()
            .lose(&[1, 3, 6])
            .prr(20, "apart 1, end 10 ms, timeouts 0"),
        reno("newreno-retransmission", 30, "no SACK: a segment is lost again: a time-out")
            .without_sack()
            .lose_times(4, &[1, 2])
            .prr(20, "apart 1, end 35 ms, timeouts 0"),
        reno("newreno-few-duplicates", 5, "no SACK: two duplicates are not enough: a time-out")
            .without_sack()
            .lose(&[2]),
        reno("newreno-limited-transmit", 20, "no SACK: a window of three, one is lost")
            .without_sack()
            .initial_window(3)
            .lose(&[1]),
    ]
}

/// Returns scenarios with losses at the end of the data. Recovery is specified alike for both
/// stacks, and the next burst shows the remaining window.
fn tails() -> Vec<Scenario> {
    vec![
        reno("reno-tail", 30, "the first segment of the last window is lost; then more data")
            .lose(&[10])
            .then(100, 40)
            .rescue(29, 40),
        reno("reno-tail-two", 30, "two of the last window are lost; then more data")
            .lose(&[10, 15])
            .then(100, 40)
            .rescue(29, 40),
        reno("reno-tail-three", 30, "three of the last window are lost; then more data")
            .lose(&[10, 12, 16])
            .then(120, 40)
            .rescue(29, 40),
        reno("newreno-tail", 30, "no SACK: one of the last window is lost; then more data")
            .without_sack()
            .lose(&[10])
            .then(100, 40)
            .deviates("full-ack", 100, "apart 19, end 45 ms, timeouts 0", FULL_ACK),
        reno("newreno-tail-two", 30, "no SACK: two of the last window are lost; then more data")
            .without_sack()
            .lose(&[10, 15])
            .then(120, 40)
            .deviates("full-ack", 120, "apart 19, end 45 ms, timeouts 0", FULL_ACK),
        reno("reno-small-flight", 20, "a loss while half of the window is in use; then more data")
            .then(100, 10)
            .lose(&[20])
            .then(200, 40)
            .rescue(29, 120)
            .deviates("flight-size", 200, "apart 22, end 70 ms, timeouts 0", FLIGHT_SIZE),
        cubic(
            "cubic-small-flight",
            20,
            "a loss while half of the window is in use; then more data",
        )
        .then(100, 10)
        .lose(&[20])
        .then(200, 40)
        .rescue(29, 120)
        .deviates("flight-size", 200, "apart 26, end 90 ms, timeouts 0", FLIGHT_SIZE),
        cubic("cubic-tail", 30, "the first segment of the last window is lost; then more data")
            .lose(&[10])
            .then(100, 60)
            .rescue(29, 40)
            .deviates("whole-segments", 120, "apart 1, end 10 ms, timeouts 0", WHOLE_SEGMENTS),
        cubic("cubic-tail-two", 30, "two of the last window are lost; then more data")
            .lose(&[10, 15])
            .then(100, 60)
            .rescue(29, 40)
            .deviates("whole-segments", 120, "apart 1, end 10 ms, timeouts 0", WHOLE_SEGMENTS),
        cubic("cubic-tail-twice", 30, "two windows with a loss each: convergence; then more data")
            .lose(&[10, 30])
            .then(100, 14)
            .then(200, 40)
            .rescue(29, 40)
            .rescue(43, 120)
            .deviates("whole-segments", 220, "apart 2, end 10 ms, timeouts 0", WHOLE_SEGMENTS),
    ]
}

fn others() -> Vec<Scenario> {
    vec![
        cubic("cubic-no-loss", 50, "nothing is lost: slow start"),
        cubic("cubic-middle", 60, "one segment is lost; the window grows again")
            .lose(&[4])
            .prr(20, "apart 3, end 30 ms, timeouts 0"),
        cubic("cubic-second-window", 60, "one segment of the second window is lost")
            .lose(&[14])
            .prr(40, "apart 3, end 10 ms, timeouts 0"),
        cubic("cubic-three", 60, "three segments of the first window are lost")
            .lose(&[1, 3, 6])
            .deviates("whole-segments", 60, "apart 2, end 10 ms, timeouts 0", WHOLE_SEGMENTS),
        cubic("cubic-last", 20, "the last segment is lost: a time-out").lose(&[19]),
        cubic("cubic-window", 40, "the whole first window is lost: a time-out")
            .lose(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
            .deviates("whole-segments", 340, "apart 1, end 35 ms, timeouts 0", WHOLE_SEGMENTS),
        cubic("cubic-without-sack", 60, "no SACK: one segment is lost")
            .without_sack()
            .lose(&[4])
            .prr(20, "apart 3, end 30 ms, timeouts 0"),
    ]
}
