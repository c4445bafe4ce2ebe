//! Loss detection by time, and tail loss probes (RFC 8985): the repair of a Linux of today.
//!
//! ```text
//!   acknowledgement ── delivered ──> latest: the segment sent last of those that arrived
//!                                      │ sent before it by a reordering window: lost
//!                                      ▼
//!                edge (originals), relost (retransmissions), reorder_at (not yet)
//!   new data, acknowledgement ── arm ──> probe_at ──> one segment more, or the last again
//! ```
//!
//! Bytes are sent for the first time in their order, so that the lost originals are those below one
//! edge that the peer does not hold. Retransmissions have an entry each. The reordering window is a
//! quarter of the least round trip, and none in a repair or after three duplicates (clause 6.2 step
//! 4 without reordering seen: nothing here reorders a flow).
//!
//! A probe comes two round trips after the last news, not in a repair, once a tail (clause 7). If
//! the peer needed it, the loss that it repaired halves the window as any other does (clause 7.4).
//! One deadline serves all timers of a sender: [`Sender::deadline`] is the earliest of them here,
//! and `rto_at` keeps the retransmission timer's.

use std::collections::VecDeque;

use sluice_base::Nanos;

use super::Stats;
use super::config::Config;
use super::scoreboard::{DUP_THRESHOLD, Scoreboard};
use super::segment::Segment;
use super::sender::{Phase, Sender};

/// Linux adds this to the time of a probe and of the reordering timer.
const SLACK: Nanos = Nanos::from_millis(2);

/// Returns the least number of whole ticks that a span fits in.
fn in_ticks(span: Nanos, tick: Nanos) -> Nanos {
    let tick = tick.0.max(1);
    Nanos(span.0.div_ceil(tick) * tick)
}

/// A segment on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    start: u64,
    end: u64,
    at: Nanos,
}

impl Sent {
    /// Returns true if the segment was sent before the one that was sent at `latest.0` and ends at
    /// `latest.1` (clause 6.2 step 2).
    fn is_before(&self, latest: (Nanos, u64)) -> bool {
        (self.at, self.end) < latest
    }
}

/// Times of the segments of a sender, as far as it knows them.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    /// First transmissions that are not acknowledged, in their order.
    sent: VecDeque<Sent>,
    /// Retransmissions of which nothing is known, in the order of their times.
    again: VecDeque<Sent>,
    /// Retransmissions that were lost: to be sent once more.
    relost: VecDeque<(u64, u64)>,
    /// The segment sent last of all that arrived: its time and its end.
    latest: (Nanos, u64),
    /// Its round trip time.
    rtt: Nanos,
    /// The least round trip time, `MAX` before the first.
    rtt_min: Nanos,
    /// Edge below which bytes that are not held are lost.
    edge: u64,
    /// Times at which the timers expire, `MAX` if they do not run.
    rto_at: Nanos,
    reorder_at: Nanos,
    probe_at: Nanos,
    /// The byte after all that was sent when the probe was; 0 if no probe is out.
    probe_end: u64,
    /// True if the probe repeats bytes.
    probe_repeats: bool,
    /// Number of probes sent.
    probes: u32,
}

impl Rack {
    pub(super) fn new() -> Self {
        Self {
            sent: VecDeque::new(),
            again: VecDeque::new(),
            relost: VecDeque::new(),
            latest: (Nanos::ZERO, 0),
            rtt: Nanos::ZERO,
            rtt_min: Nanos::MAX,
            edge: 0,
            rto_at: Nanos::MAX,
            reorder_at: Nanos::MAX,
            probe_at: Nanos::MAX,
            probe_end: 0,
            probe_repeats: false,
            probes: 0,
        }
    }

    /// Edge below which bytes that are not held are lost.
    pub(super) const fn edge(&self) -> u64 {
        self.edge
    }

    /// The next time at which a timer expires.
    fn earliest(&self) -> Nanos {
        self.rto_at.min(self.reorder_at).min(self.probe_at)
    }

    pub(super) const fn sampled(&mut self, rtt: Nanos) {
        if rtt.0 < self.rtt_min.0 {
            self.rtt_min = rtt;
        }
    }

    pub(super) fn sent(&mut self, start: u64, end: u64, at: Nanos) {
        self.sent.push_back(Sent { start, end, at });
    }

    pub(super) fn sent_again(&mut self, start: u64, end: u64, at: Nanos) {
        self.again.push_back(Sent { start, end, at });
    }

    /// Takes the news of an acknowledgement: everything below `una` has arrived, and what the
    /// scoreboard holds (clause 6.2 steps 1 and 2).
    pub(super) fn delivered(&mut self, now: Nanos, una: u64, board: Option<&Scoreboard>) {
        while let Some(first) = self.sent.pop_front_if(|first| first.end <= una) {
            self.arrived(now, first);
        }
        let highest = board.map_or(0, Scoreboard::highest);
        let held = self.sent.partition_point(|sent| sent.end <= highest);
        if held > 0 {
            self.arrived(now, self.sent[held - 1]);
        }
        let has = |sent: &Sent| {
            let from = sent.start.max(una);
            from >= sent.end || board.is_some_and(|board| board.hole(from, sent.end).is_none())
        };
        for at in 0..self.again.len() {
            let sent = self.again[at];
            // An answer that comes too soon is the original's.
            if has(&sent) && (self.rtt_min == Nanos::MAX || now.since(sent.at) >= self.rtt_min) {
                self.arrived(now, sent);
            }
        }
        let latest = self.latest;
        for sent in std::mem::take(&mut self.again) {
            if has(&sent) {
                continue;
            }
            if sent.is_before(latest) {
                self.relost.push_back((sent.start, sent.end));
            } else {
                self.again.push_back(sent);
            }
        }
        self.relost.retain(|&(start, end)| !has(&Sent { start, end, at: Nanos::ZERO }));
    }

    fn arrived(&mut self, now: Nanos, sent: Sent) {
        if (sent.at, sent.end) > self.latest {
            self.latest = (sent.at, sent.end);
            self.rtt = now.since(sent.at);
        }
    }

    /// Moves the edge over originals that are lost by now, and sets the timer for those that are
    /// not yet (clause 6.2 step 5).
    fn detect(&mut self, now: Nanos, window: Nanos, tick: Nanos) {
        let before = self.sent.partition_point(|sent| sent.is_before(self.latest));
        let due = |sent: &Sent| Nanos(sent.at.0 + self.rtt.0 + window.0);
        let lost = self.sent.partition_point(|sent| due(sent) <= now).min(before);
        if lost > 0 {
            self.edge = self.edge.max(self.sent[lost - 1].end);
        }
        self.reorder_at = Nanos::MAX;
        if lost < before {
            let left = due(&self.sent[before - 1]).since(now);
            self.reorder_at = now.after(in_ticks(Nanos(left.0 + SLACK.0), tick));
            // A kernel has one timer for both.
            self.probe_at = Nanos::MAX;
        }
    }

    /// Number of bytes of retransmissions that were lost and are not sent again.
    pub(super) fn relost_bytes(&self) -> u64 {
        self.relost.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the next lost retransmission, to be sent again.
    pub(super) fn take_relost(&mut self) -> Option<(u64, u64)> {
        self.relost.pop_front()
    }

    /// Notes that the retransmission timer expired: everything outstanding counts as lost.
    pub(super) fn timed_out(&mut self) {
        self.again.clear();
        self.relost.clear();
        self.reorder_at = Nanos::MAX;
        self.probe_at = Nanos::MAX;
        self.probe_end = 0;
    }

    /// Notes that a repair began: the probe has done its work, and its bytes are in the first hole.
    pub(super) fn repair_began(&mut self) {
        self.probe_end = 0;
        self.relost.clear();
    }

    /// Number of probes sent.
    pub(super) const fn probes(&self) -> u32 {
        self.probes
    }

    /// The time of the retransmission timer, `MAX` if it does not run.
    pub(super) const fn rto_at(&self) -> Nanos {
        self.rto_at
    }
}

impl Sender {
    /// Takes the news of an acknowledgement whose number is `una`.
    pub(super) fn rack_delivered(&mut self, now: Nanos, una: u64, config: &Config) {
        let window = self.reordering_window();
        let Some(rack) = &mut self.rack else { return };
        rack.delivered(now, una, self.board.as_deref());
        rack.detect(now, window, config.probe_tick);
        if rack.rto_at != Nanos::MAX {
            self.deadline = rack.earliest();
        }
    }

    fn reordering_window(&self) -> Nanos {
        let least = self.rack.as_ref().map_or(Nanos::MAX, |rack| rack.rtt_min);
        if self.phase != Phase::Open || self.duplicates >= DUP_THRESHOLD || least == Nanos::MAX {
            return Nanos::ZERO;
        }
        Nanos(least.0 / 4)
    }

    /// Returns true if the first outstanding byte is lost by time.
    pub(super) fn is_late(&self) -> bool {
        self.rack.as_ref().is_some_and(|rack| rack.edge > self.una)
    }

    /// Sets the timers: `rto_at` for retransmission, and those of this file.
    pub(super) fn arm(&mut self, now: Nanos, rto_at: Nanos, config: &Config) {
        let may_probe = config.tail_loss_probe
            && self.phase == Phase::Open
            && self.calm
            && self.una < self.nxt
            && rto_at != Nanos::MAX;
        let pto = may_probe.then(|| self.probe_time(config));
        let Some(rack) = &mut self.rack else { return };
        rack.rto_at = rto_at;
        rack.probe_at = match pto {
            Some(pto) if rack.probe_end == 0 => now.after(pto).min(rto_at),
            _ => Nanos::MAX,
        };
        if rto_at == Nanos::MAX {
            rack.reorder_at = Nanos::MAX;
        }
        self.deadline = rack.earliest();
    }

    /// Returns the time from the last news to a probe (clause 7.2), in whole ticks as a kernel has
    /// it: two round trips and two milliseconds; with one segment in flight, whose acknowledgement
    /// may be delayed, and the least time-out.
    fn probe_time(&self, config: &Config) -> Nanos {
        let Some(srtt) = self.rtt.srtt() else { return config.rto_initial };
        let single = self.nxt - self.una <= u64::from(config.mss);
        let slack = if single { config.rto_min } else { SLACK };
        in_ticks(Nanos(2 * srtt.0 + slack.0), config.probe_tick)
    }

    /// Handles the timers of this file. Returns false if it is the retransmission timer that
    /// expired.
    pub(super) fn expire_rack(&mut self, now: Nanos, config: &Config, stats: &mut Stats) -> bool {
        let window = self.reordering_window();
        let Some(rack) = &mut self.rack else { return false };
        if rack.reorder_at <= now {
            rack.reorder_at = Nanos::MAX;
            rack.detect(now, window, config.probe_tick);
            self.deadline = rack.earliest();
            if self.is_late() && self.phase == Phase::Open {
                self.calm = false;
                self.enter_recovery(now, config, stats);
            }
            self.settle(config);
            if self.deadline > now {
                return true;
            }
        }
        let Some(rack) = &mut self.rack else { return false };
        if rack.probe_at > now {
            // An acknowledgement may have moved the timer that had the deadline.
            self.deadline = rack.earliest();
            return rack.rto_at > now;
        }
        rack.probe_at = Nanos::MAX;
        // The retransmission timer is that of the first segment, not of the probe.
        rack.rto_at = rack.rto_at.max(now.after(config.probe_tick));
        self.deadline = rack.earliest();
        self.tail_probe = true;
        true
    }

    /// Returns the probe that is due: new data if there is some, else the last segment again.
    #[cold]
    pub(super) fn poll_tail(
        &mut self,
        now: Nanos,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<(u64, u32)> {
        self.tail_probe = false;
        if self.phase != Phase::Open || self.una == self.nxt {
            return None;
        }
        let fresh = self.poll_new(now, u64::MAX, config, stats);
        let last = self.rack.as_ref().and_then(|rack| rack.sent.back().copied());
        let repeats = fresh.is_none();
        let probe = fresh.or_else(|| {
            let last = last?;
            Some(self.send_again(now, (last.start.max(self.una), last.end), config, stats))
        });
        if let Some(rack) = &mut self.rack {
            rack.probes += 1;
            rack.probe_end = self.nxt;
            rack.probe_repeats = repeats;
            rack.probe_at = Nanos::MAX;
            self.deadline = rack.earliest();
        }
        probe
    }

    /// Takes an acknowledgement that may answer a probe (clause 7.4.2), before `una` moves.
    pub(super) fn probe_answered(&mut self, segment: &Segment, config: &Config) {
        let Some(rack) = &mut self.rack else { return };
        if rack.probe_end == 0 || segment.ack < rack.probe_end {
            return;
        }
        let repeats = rack.probe_repeats;
        // A duplicate without news: the original and the probe have both arrived.
        let both = segment.ack == self.una && segment.len == 0 && segment.sack.is_empty();
        let needed = repeats && segment.ack > rack.probe_end;
        if !repeats || both || needed {
            rack.probe_end = 0;
        }
        if needed && self.phase == Phase::Open {
            let flight = (self.nxt - self.una).min(self.window.cwnd);
            self.window.ssthresh = self.control.reduce(&self.window, flight, config);
            self.window.cwnd = self.window.ssthresh;
        }
    }
}
