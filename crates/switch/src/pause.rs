//! Priority flow control of one port (802.1Q clause 36; 802.3 annex 31B for PAUSE).
//!
//! ```text
//!  as receiver, per priority            as sender, per priority
//!    OPEN  -- bytes >= xoff --> PAUSING   GO -- quanta > 0 --> PAUSED until t
//!    PAUSING -- bytes <= xon --> OPEN     PAUSED -- quanta = 0, or t passed --> GO
//!    PAUSING: XOFF again before it lapses
//! ```
//!
//! **A neighbour in software stalls**: it may not run for 50 ms, while the longest pause that it
//! can ask for lasts 33.6 ms at 1 Gbit/s and 3.4 ms at 10. Its headroom covers one stall, but not
//! every stall of a pause of several seconds. So it repeats XOFF after a quarter of the time, and
//! the sending side reads the longest pause as "until XON" and waits for [`GRACE`] longer. If a
//! neighbour lets such a pause run out without another frame, pauses end on time from then on,
//! until it sends XON or repeats a pause that still holds.
//!
//! Entering PAUSING makes an XOFF due at once, leaving it an XON. A bit per priority tells that one
//! is due; the frame is made when the port can send it, so that no frame has to be stored and data
//! cannot starve it. One frame covers all priorities that are due.

use sluice_base::{BitRate, Nanos, Priority, PriorityMask};
use sluice_wire::mac_control::{FRAME_SIZE, Message, QUANTUM_BITS};

use crate::config::{Limit, PauseConfig};

/// The longest pause that a frame can ask for.
const QUANTA_MAX: u16 = u16::MAX;
/// Time by which the longest pause is extended: as long as a reader in software may stall.
const GRACE: Nanos = Nanos::from_millis(50);

/// The receiving side, which pauses the neighbour. The fields that every frame needs come first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PauseSender {
    /// Priorities that are paused at the neighbour.
    pausing: PriorityMask,
    due: PriorityMask,
    /// Lower bound of the bytes that a frame counts: the bytes of the input's limit divided by its
    /// frames, so that small frames cause XOFF in time as well.
    frame_bytes_min: u64,
    config: PauseConfig,
    refresh_at: Nanos,
    xoff_sent: [u64; 8],
    xon_sent: [u64; 8],
}

/// Returns the time that `quanta` last on a link.
fn pause_time(quanta: u16, link: BitRate) -> Nanos {
    let bits = u128::from(quanta) * u128::from(QUANTUM_BITS);
    let nanos = bits * 1_000_000_000 / u128::from(link.0.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

impl PauseSender {
    /// Returns the state for an input that may hold `limit` in each priority.
    #[must_use]
    pub const fn new(config: PauseConfig, limit: Limit) -> Self {
        Self {
            config,
            frame_bytes_min: limit.bytes.0 / limit.frames as u64,
            pausing: PriorityMask::NONE,
            due: PriorityMask::NONE,
            refresh_at: Nanos::MAX,
            xoff_sent: [0; 8],
            xon_sent: [0; 8],
        }
    }

    /// Returns the level at which a priority is paused, in bytes.
    #[inline]
    pub(crate) const fn xoff(&self) -> u64 {
        self.config.xoff.0
    }

    /// Returns the part of the input's limit that frames and bytes fill, in bytes.
    #[inline]
    pub(crate) fn weight(&self, frames: u32, bytes: u64) -> u64 {
        bytes.max(u64::from(frames) * self.frame_bytes_min)
    }

    /// Returns the priorities that are paused at the neighbour, or whose XOFF is due.
    #[inline]
    #[must_use]
    pub const fn pausing(&self) -> PriorityMask {
        self.pausing
    }

    /// Returns the number of XOFF and of XON sent for a priority.
    #[must_use]
    pub const fn sent_count(&self, priority: Priority) -> (u64, u64) {
        (self.xoff_sent[priority.index()], self.xon_sent[priority.index()])
    }

    /// Takes the new level of a priority at this input, in bytes, after frames came.
    #[inline]
    pub fn rose(&mut self, priority: Priority, bytes: u64) {
        if bytes >= self.config.xoff.0
            && !self.pausing.contains(priority)
            && self.config.priorities.contains(priority)
        {
            self.pausing.insert(priority);
            self.due.insert(priority);
        }
    }

    /// Takes the new level of a priority at this input, in bytes, after frames left.
    #[inline]
    pub fn fell(&mut self, priority: Priority, bytes: u64) {
        if bytes <= self.config.xon.0 && self.pausing.contains(priority) {
            self.pausing.remove(priority);
            self.due.insert(priority);
        }
    }

    /// Returns true if an XOFF or XON is due, refreshes aside.
    #[inline]
    pub(crate) const fn has_due(&self) -> bool {
        self.due.0 != 0
    }

    /// Returns true if a pause frame has to be sent now.
    #[inline]
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        !self.due.is_empty() || (!self.pausing.is_empty() && self.refresh_at <= now)
    }

    /// Returns true if no pause frame is due now, or will be without a new frame.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.due.is_empty() && self.pausing.is_empty()
    }

    /// Returns the moment at which the next pause frame is due, if no other frame comes or goes.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if !self.due.is_empty() {
            return Some(Nanos::ZERO);
        }
        (!self.pausing.is_empty()).then_some(self.refresh_at)
    }

    /// Sets the source address of pause frames.
    pub(crate) const fn set_source(&mut self, mac: sluice_base::Mac) {
        self.config.source = mac;
    }

    /// Writes the pause frame that is due.
    pub(crate) fn frame(&self, now: Nanos, out: &mut [u8; FRAME_SIZE]) {
        self.message(now).emit(self.config.source, out);
    }

    /// Returns the content of the pause frame that is due.
    #[must_use]
    pub fn message(&self, now: Nanos) -> Message {
        let (enabled, quanta) = self.content(now);
        Message::Pfc { enabled, quanta }
    }

    fn content(&self, now: Nanos) -> (PriorityMask, [u16; 8]) {
        // An XOFF or a refresh repeats all pauses in force, so that one refresh serves all.
        let mut enabled = self.due;
        if self.refresh_at <= now || !self.due.and(self.pausing).is_empty() {
            enabled = PriorityMask(enabled.0 | self.pausing.0);
        }
        // The time of a priority that is not enabled is zero, whatever is in force for it.
        let asked = enabled.and(self.pausing);
        let quanta = core::array::from_fn(|p| if asked.0 >> p & 1 == 1 { QUANTA_MAX } else { 0 });
        (enabled, quanta)
    }

    /// Records that the pause frame was sent.
    pub fn sent(&mut self, now: Nanos) {
        let (enabled, _) = self.content(now);
        for priority in Priority::all().filter(|p| enabled.contains(*p)) {
            if self.pausing.contains(priority) {
                self.xoff_sent[priority.index()] += 1;
            } else {
                self.xon_sent[priority.index()] += 1;
            }
        }
        if !enabled.and(self.pausing).is_empty() {
            // A quarter of the pause time: a refresh may be late by three times as much. Frames
            // that come after a refresh later than that add up for as long as the input stays full.
            let quarter = Nanos(pause_time(QUANTA_MAX, self.config.link).0 / 4);
            self.refresh_at = now.after(quarter);
        }
        self.due = PriorityMask::NONE;
        if self.pausing.is_empty() {
            self.refresh_at = Nanos::MAX;
        }
    }
}

/// The sending side: pauses that the neighbour asked for. The fields that every frame needs come
/// first.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct PauseReceiver {
    /// Priorities that may not be sent; exact after [`Self::expire`].
    paused: PriorityMask,
    rx_pause: bool,
    link: BitRate,
    until: [Nanos; 8],
    since: [Nanos; 8],
    received: [u64; 8],
    paused_ns: [u64; 8],
    /// Priorities whose pause is kept for [`GRACE`] longer.
    graced: PriorityMask,
    /// True if such a pause ran out without another pause frame.
    runs_out: bool,
}

/// Link rate that gives the length of pause quanta on a port without a rate.
pub(crate) const LINK_DEFAULT: BitRate = BitRate::from_gbps(10);

impl PauseReceiver {
    /// Returns the state for a port of this link rate. Without `rx_pause`, pauses are counted only.
    #[must_use]
    pub const fn new(rx_pause: bool, link: BitRate) -> Self {
        Self {
            rx_pause,
            link,
            until: [Nanos::ZERO; 8],
            since: [Nanos::ZERO; 8],
            paused: PriorityMask::NONE,
            received: [0; 8],
            paused_ns: [0; 8],
            graced: PriorityMask::NONE,
            runs_out: false,
        }
    }

    /// Returns true if it obeys the neighbour's pauses.
    pub(crate) const fn obeys(&self) -> bool {
        self.rx_pause
    }

    /// Returns the priorities that may not be sent; exact after [`Self::expire`].
    #[inline]
    #[must_use]
    pub const fn paused(&self) -> PriorityMask {
        self.paused
    }

    /// Returns the number of pauses received for a priority, XON included.
    pub(crate) const fn received_count(&self, priority: Priority) -> u64 {
        self.received[priority.index()]
    }

    /// Takes a pause frame of the neighbour.
    pub fn receive(&mut self, now: Nanos, message: &Message) {
        // A pause that is over must not be counted up to now.
        self.expire(now);
        let (enabled, quanta) = match *message {
            // 802.3 annex 31B: PAUSE is for the whole link.
            Message::Pause { quanta } => (PriorityMask::ALL, [quanta; 8]),
            Message::Pfc { enabled, quanta } => (enabled, quanta),
            Message::Unknown { .. } => return,
        };
        for priority in Priority::all().filter(|p| enabled.contains(*p)) {
            let at = priority.index();
            self.received[at] += 1;
            if !self.rx_pause {
                continue;
            }
            // A new time replaces the old one (802.1Q clause 36.1.3.2).
            let until = now.after(pause_time(quanta[at], self.link));
            // A neighbour that repeats the pause will send XON in the end.
            self.runs_out &= quanta[at] != QUANTA_MAX || !self.paused.contains(priority);
            let has_grace = quanta[at] == QUANTA_MAX && !self.runs_out;
            self.graced.remove(priority);
            self.until[at] = until;
            if has_grace {
                self.graced.insert(priority);
                self.until[at] = until.after(GRACE);
            }
            if quanta[at] == 0 {
                self.runs_out = false;
                self.resume(now, priority);
            } else if !self.paused.contains(priority) {
                self.paused.insert(priority);
                self.since[at] = now;
            }
        }
    }

    fn resume(&mut self, now: Nanos, priority: Priority) {
        if self.paused.contains(priority) {
            self.paused.remove(priority);
            self.paused_ns[priority.index()] += now.since(self.since[priority.index()]).0;
        }
    }

    /// Ends the pauses whose time has passed.
    #[inline]
    pub fn expire(&mut self, now: Nanos) {
        if !self.paused.is_empty() {
            self.expire_paused(now);
        }
    }

    #[inline(never)]
    fn expire_paused(&mut self, now: Nanos) {
        for priority in Priority::all() {
            if self.paused.contains(priority) && self.until[priority.index()] <= now {
                self.resume(self.until[priority.index()], priority);
                self.runs_out |= self.graced.contains(priority);
            }
        }
    }

    /// Returns the moment at which the first pause of `priorities` ends.
    #[must_use]
    pub fn deadline(&self, priorities: PriorityMask) -> Option<Nanos> {
        if self.paused.and(priorities).is_empty() {
            return None;
        }
        Priority::all()
            .filter(|p| self.paused.and(priorities).contains(*p))
            .map(|p| self.until[p.index()])
            .min()
    }

    /// Returns the total time for which a priority was paused.
    #[must_use]
    pub fn paused_time(&self, now: Nanos, priority: Priority) -> Nanos {
        let at = priority.index();
        let running = if self.paused.contains(priority) { now.since(self.since[at]).0 } else { 0 };
        Nanos(self.paused_ns[at] + running)
    }
}

#[cfg(test)]
mod tests;
