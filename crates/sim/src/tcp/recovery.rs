//! Loss recovery: with SACK by RFC 6675, without by RFC 6582 (NewReno), after a time-out by
//! RFC 5681 clause 3.1 and RFC 6298 clause 5.
//!
//! With SACK, `cwnd - pipe` bytes may be sent, and `NextSeg` chooses them. Without, every duplicate
//! lets one more segment into the network: the window is inflated by it, and a partial
//! acknowledgement deflates it again. After a time-out both are alike: outstanding bytes that the
//! peer does not hold count as lost and are sent again in slow start.
//!
//! The timer restarts with every acknowledgement that moves `una`, also with partial ones: the
//! "slow but steady" variant of RFC 6582 clause 4, as in FreeBSD. A repair that began with a
//! time-out ends before a new fast recovery can begin (RFC 6582 clause 3.2 step 4).
//!
//! A time-out can be early, above all in a lossless network: the path was paused. Then the first
//! acknowledgement after it answers the first copy. The sender detects that, and restores window
//! and control (RFC 4015, without its second reading of the RTT).
//!
//! Losses are found by time as well if the configuration says so (`rack.rs`).
//!
//! Not modelled: D-SACK, undo of fast recoveries, proportional rate reduction.

use sluice_base::Nanos;

use super::Stats;
use super::config::Config;
use super::control::{Control, Window};
use super::receiver::is_stamped;
use super::scoreboard::{Assessment, DUP_THRESHOLD, Outstanding};
use super::segment::{Segment, stamp_of};
use super::sender::{Phase, Sender, length};

/// Largest number of segments that limited transmit sends without SACK (RFC 3042).
const LIMITED_TRANSMIT_MAX: u8 = 2;

/// State before a time-out, until it is known if the time-out was right.
#[derive(Clone, Debug)]
pub(super) struct Undo {
    at: Nanos,
    window: Window,
    control: Control,
}

impl Sender {
    /// Handles an acknowledgement that is not the common case: no news, SACK blocks, or a running
    /// repair.
    #[cold]
    pub(super) fn acknowledged_disordered(
        &mut self,
        now: Nanos,
        segment: &Segment,
        opened: bool,
        config: &Config,
        stats: &mut Stats,
    ) {
        let news = config.sack && self.absorb(segment);
        if self.rack.is_some() {
            self.rack_delivered(now, segment.ack.max(self.una), config);
        }
        if segment.ack > self.una {
            self.advance(now, segment, config, stats);
        } else if segment.ack == self.una && self.nxt > self.una {
            // RFC 6675 clause 2 counts acknowledgements with new SACK information, RFC 5681 clause
            // 2 the ones without any news.
            let duplicate = if config.sack { news } else { segment.len == 0 && !opened };
            if duplicate {
                stats.duplicate_acks += 1;
                self.duplicate(now, config, stats);
            }
        }
        if self.phase == Phase::Open && self.is_late() {
            self.calm = false;
            self.enter_recovery(now, config, stats);
        }
        if !self.calm {
            self.settle(config);
        }
    }

    /// Takes the SACK blocks over. Returns true if one of them is news.
    fn absorb(&mut self, segment: &Segment) -> bool {
        let mut news = false;
        for &(start, end) in segment.sack.as_slice() {
            let start = (segment.ack + u64::from(start)).max(self.una);
            let end = (segment.ack + u64::from(end)).min(self.nxt);
            if start < end {
                self.calm = false;
                news |= self.board.get_or_insert_default().insert(start, end);
            }
        }
        news
    }

    /// Moves `una` on while the connection is not calm.
    fn advance(&mut self, now: Nanos, segment: &Segment, config: &Config, stats: &mut Stats) {
        let acked = segment.ack - self.una;
        let flight = self.nxt - self.una;
        self.una = segment.ack;
        self.high_rxt = self.high_rxt.max(self.una);
        self.timeouts = 0;
        if let Some(board) = &mut self.board {
            board.trim(self.una);
        }
        if let Some(undo) = self.board.as_mut().and_then(|board| board.undo.take())
            && self.was_early(now, segment, undo.at)
        {
            stats.timeouts_undone += 1;
            self.window = undo.window;
            self.control.restore(undo.control);
            self.recover = self.una;
            self.reopen();
        }
        self.sample(now, segment, config);
        let repaired = self.una >= self.recover;
        match self.phase {
            Phase::Open => {
                self.duplicates = 0;
                self.grow(now, acked, flight, config);
            }
            Phase::Recovery if repaired => self.leave_recovery(config),
            Phase::Recovery => self.partial(acked, config),
            Phase::Loss => {
                // L is one segment after a time-out (RFC 3465 clause 2.3): a jump over data that
                // the peer held says nothing about the network.
                self.grow(now, acked.min(u64::from(config.mss)), u64::MAX / 4, config);
                if repaired {
                    self.reopen();
                }
            }
        }
        self.restart_timer(now, config);
    }

    /// Returns true if the first acknowledgement after a time-out at `then` answers a segment that
    /// was sent before it.
    fn was_early(&self, now: Nanos, segment: &Segment, then: Nanos) -> bool {
        if is_stamped(segment) {
            let ahead = stamp_of(then).wrapping_sub(segment.echo);
            return ahead > 0 && ahead < 1 << 31;
        }
        self.rtt.srtt().is_some_and(|srtt| now.since(then).0 < srtt.0 / 2)
    }

    /// RFC 6582 clause 3.2 step 3, partial acknowledgement. With SACK the pipe is enough.
    fn partial(&mut self, acked: u64, config: &Config) {
        if config.sack {
            return;
        }
        self.force = true;
        let mss = u64::from(config.mss);
        self.inflation = self.inflation.saturating_sub(acked);
        if acked >= mss {
            self.inflation += mss;
        }
    }

    /// Ends the recovery: everything that was outstanding when it began has arrived.
    fn leave_recovery(&mut self, config: &Config) {
        let mss = u64::from(config.mss);
        self.window.cwnd = if config.sack {
            self.window.ssthresh
        } else {
            // RFC 6582 clause 3.2 step 3, full acknowledgement, option 1: no burst.
            self.window.ssthresh.min((self.nxt - self.una).max(mss) + mss)
        };
        self.reopen();
    }

    fn reopen(&mut self) {
        self.phase = Phase::Open;
        self.force = false;
        self.duplicates = 0;
        self.inflation = 0;
        self.control.reopened(self.nxt);
    }

    /// Handles a duplicate acknowledgement.
    fn duplicate(&mut self, now: Nanos, config: &Config, stats: &mut Stats) {
        self.calm = false;
        self.duplicates = self.duplicates.saturating_add(1);
        match self.phase {
            Phase::Open => {
                let lost = if config.sack {
                    self.duplicates >= DUP_THRESHOLD || self.assess(config).lost_edge > self.una
                } else {
                    // RFC 6582 clause 3.2 step 2: duplicates that a repair itself caused do not
                    // begin another.
                    self.duplicates >= DUP_THRESHOLD
                        && (self.una > self.recover || self.recover == 0)
                };
                if lost {
                    self.enter_recovery(now, config, stats);
                }
            }
            Phase::Recovery if !config.sack => self.inflation += u64::from(config.mss),
            Phase::Recovery | Phase::Loss => {}
        }
    }

    /// Enters fast recovery (RFC 6675 clause 5 step 4, RFC 6582 clause 3.2 step 2).
    pub(super) fn enter_recovery(&mut self, now: Nanos, config: &Config, stats: &mut Stats) {
        stats.fast_recoveries += 1;
        // Segments that limited transmit sent beyond the window do not count (RFC 5681 clause 3.2).
        let flight = (self.nxt - self.una).min(self.window.cwnd);
        self.window.ssthresh = self.control.reduce(&self.window, flight, config);
        self.window.cwnd = self.window.ssthresh;
        self.phase = Phase::Recovery;
        self.recover = self.nxt;
        self.high_rxt = self.una;
        self.inflation =
            if config.sack { 0 } else { u64::from(self.duplicates) * u64::from(config.mss) };
        self.force = true;
        self.rescued = false;
        self.timed_end = 0;
        if let Some(rack) = &mut self.rack {
            rack.repair_began();
        }
        self.restart_timer(now, config);
    }

    /// Handles the expiry of the retransmission timer with data in flight.
    pub(super) fn timed_out(&mut self, now: Nanos, config: &Config, stats: &mut Stats) {
        stats.timeouts += 1;
        // Only a first time-out can be undone, not one amid another repair, and not one of a timer
        // that was backed off: its SRTT is old, and every answer would look early.
        let first = self.timeouts == 0 && self.phase == Phase::Open && !self.rtt.is_backed_off();
        let undo = (config.undo && first).then(|| Undo {
            at: now,
            window: self.window,
            control: self.control.clone(),
        });
        if undo.is_some() || self.board.is_some() {
            self.board.get_or_insert_default().undo = undo;
        }
        if self.timeouts == 0 {
            // RFC 5681 clause 3.1: the threshold is held when the same data times out again.
            let flight = if self.phase == Phase::Loss { self.pipe } else { self.nxt - self.una };
            self.window.ssthresh = self.control.reduce(&self.window, flight, config);
        }
        self.timeouts = self.timeouts.saturating_add(1);
        self.rtt.back_off();
        self.window.cwnd = u64::from(config.mss);
        self.phase = Phase::Loss;
        self.calm = false;
        self.force = true;
        self.recover = self.nxt;
        self.high_rxt = self.una;
        self.inflation = 0;
        self.duplicates = 0;
        self.timed_end = 0;
        if let Some(rack) = &mut self.rack {
            rack.timed_out();
        }
        self.restart_timer(now, config);
        self.settle(config);
    }

    /// Updates the values that follow from the scoreboard, and checks if all is calm again.
    pub(super) fn settle(&mut self, config: &Config) {
        let held = self.board.as_ref().map_or(0, |board| board.held());
        if self.phase == Phase::Open {
            if held == 0 && self.duplicates == 0 {
                self.calm = true;
                self.inflation = 0;
                return;
            }
            // Limited transmit: bytes that the peer has beyond the gap left the network (RFC 6675
            // clause 5 step 3, RFC 3042).
            self.inflation = if !config.limited_transmit {
                0
            } else if config.sack {
                held
            } else {
                u64::from(self.duplicates.min(LIMITED_TRANSMIT_MAX)) * u64::from(config.mss)
            };
        }
        let Assessment { lost_edge, pipe } = self.assess(config);
        self.lost_edge = lost_edge;
        let relost = self.rack.as_ref().map_or(0, |rack| rack.relost_bytes());
        self.pipe = pipe.saturating_sub(relost);
    }

    fn assess(&self, config: &Config) -> Assessment {
        let outstanding = Outstanding {
            una: self.una,
            nxt: self.nxt,
            high_rxt: if self.phase == Phase::Open { self.una } else { self.high_rxt },
            lost_floor: if self.phase == Phase::Loss { self.recover } else { 0 }
                .max(self.rack.as_ref().map_or(0, |rack| rack.edge())),
            mss: u64::from(config.mss),
        };
        match &self.board {
            Some(board) => board.assess(&outstanding),
            None => outstanding.assess(),
        }
    }

    /// Returns the next bytes to send while a repair runs.
    #[cold]
    pub(super) fn poll_repair(
        &mut self,
        now: Nanos,
        config: &Config,
        stats: &mut Stats,
    ) -> Option<(u64, u32)> {
        if self.force {
            self.force = false;
            if let Some(hole) = self.hole(self.una, self.nxt) {
                return Some(self.send_again(now, hole, config, stats));
            }
        }
        if self.phase == Phase::Recovery && !config.sack {
            let window = self.una + self.window.cwnd + self.inflation;
            return self.poll_new(now, window, config, stats);
        }
        if self.pipe + u64::from(config.mss) > self.window.cwnd {
            return None;
        }
        // A retransmission that was lost comes before all others: it has waited longest.
        if let Some(hole) = self.rack.as_mut().and_then(|rack| rack.take_relost()) {
            return Some(self.send_again(now, (hole.0.max(self.una), hole.1), config, stats));
        }
        let from = self.high_rxt.max(self.una);
        // NextSeg rule 1: lost bytes.
        if let Some(hole) = self.hole(from, self.lost_edge) {
            return Some(self.send_again(now, hole, config, stats));
        }
        // Rule 2: new data.
        if let Some(sent) = self.poll_new(now, u64::MAX, config, stats) {
            return Some(sent);
        }
        if self.phase == Phase::Loss {
            return None;
        }
        // Rule 3: bytes that may be lost.
        let highest = self.board.as_ref().map_or(0, |board| board.highest());
        if let Some(hole) = self.hole(from, highest) {
            return Some(self.send_again(now, hole, config, stats));
        }
        self.rescue(now, config, stats)
    }

    /// Returns the rescue of rule 4: once per recovery, the last segment that the peer does not
    /// hold.
    fn rescue(&mut self, now: Nanos, config: &Config, stats: &mut Stats) -> Option<(u64, u32)> {
        if self.rescued {
            return None;
        }
        let from = self.high_rxt.max(self.una);
        let mut last = self.hole(from, self.recover)?;
        while let Some(next) = self.hole(last.1, self.recover) {
            last = next;
        }
        self.rescued = true;
        stats.rescues += 1;
        let start = last.0.max(last.1.saturating_sub(u64::from(config.mss)));
        let high_rxt = self.high_rxt;
        let sent = self.send_again(now, (start, last.1), config, stats);
        // The rescue leaves HighRxt where it is, so that the bytes before it can still follow.
        self.high_rxt = high_rxt;
        Some(sent)
    }

    fn hole(&self, from: u64, limit: u64) -> Option<(u64, u64)> {
        match &self.board {
            Some(board) => board.hole(from, limit),
            None => (from < limit).then_some((from, limit)),
        }
    }

    /// Sends the beginning of a hole again.
    pub(super) fn send_again(
        &mut self,
        now: Nanos,
        hole: (u64, u64),
        config: &Config,
        stats: &mut Stats,
    ) -> (u64, u32) {
        let (seq, limit) = hole;
        let len = (limit - seq).min(u64::from(config.mss));
        self.high_rxt = self.high_rxt.max(seq + len);
        self.pipe += len;
        if len < u64::from(config.mss) {
            self.control.sent_short(seq, len);
        }
        // Karn: an acknowledgement may now answer either copy.
        self.timed_end = 0;
        self.last_send = now;
        stats.retransmissions += 1;
        stats.bytes_retransmitted += len;
        if let Some(rack) = &mut self.rack {
            rack.sent_again(seq, seq + len, now);
        }
        self.start_timer(now, config);
        (seq, length(len))
    }
}

#[cfg(test)]
mod tests;
