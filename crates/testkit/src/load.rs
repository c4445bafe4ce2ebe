//! A generator: one thread sends and receives for several guests.
//!
//! ```text
//!   each turn:   every source   up to a burst, if its rate allows and its ring has room
//!                every sink     up to a burst, if it is awake and its rate allows
//!   a run:       settle ── window ── sources stop, sinks drain ── report
//! ```
//!
//! Rates are counted in the window only. Loss is counted over the whole run, after all sinks were
//! drained: frames that were sent and never came. A source whose ring is full is *held*, which is
//! no loss; it does not catch up with the frames that it did not send meanwhile.
//!
//! A source writes the first line or two of a frame and a sink reads them. With `touch` each
//! writes, or reads, one word of every line, as a guest does that uses its data. Without it, the
//! payload stays in the switch's cache, which makes every switch look faster than it is.
//!
//! The clock is an argument. Nothing is allocated during a run.

pub mod clock;
pub mod frame;
pub mod order;

#[cfg(test)]
mod tests;

use std::hint::black_box;

pub use clock::{Clock, Tsc};
use frame::{FLOW_AT, MARK_AT, Mark};
use hdrhistogram::Histogram;
use order::Order;

use crate::guest::memory::LINE;
use crate::guest::{Bytes, Guest};

/// Upper bound of the recorded latencies, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Interval, in frames, at which latency is recorded: a prime, so that it is not always the first
/// frame of a burst.
const LATENCY_EVERY: u64 = 37;
/// A sink is drained when no frame came for this part of a second.
const QUIET_PART: u64 = 50;
/// Upper bound of the frames that a source sends at once when its turn comes late.
const DEBT_MAX: u64 = 256;

/// A source of frames.
#[derive(Clone, Debug)]
pub struct Source {
    /// Index of the guest.
    pub guest: usize,
    /// Index of its queue pair.
    pub pair: usize,
    /// The frame: see [`frame::plain`] and [`frame::vxlan`].
    pub template: Vec<u8>,
    /// Bytes in front of a plain frame: 0, or [`frame::VXLAN_BYTES`].
    pub skip: usize,
    /// Frames per second; `None`: as many as it can.
    pub rate: Option<u64>,
    /// Flows, which differ by their UDP source port.
    pub flows: u16,
}

/// A sink of frames.
#[derive(Clone, Debug)]
pub struct Sink {
    /// Index of the guest.
    pub guest: usize,
    /// Bytes in front of a plain frame.
    pub skip: usize,
    /// Frames per second that it takes; `None`: as many as it can.
    pub rate: Option<u64>,
    /// Microseconds for which it sleeps before it takes the frames that are there, again and again.
    pub sleep_us: Option<u64>,
}

/// A run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Time before the window, in milliseconds.
    pub settle_ms: u64,
    /// The window, in milliseconds.
    pub window_ms: u64,
    /// Upper bound of frames at a time.
    pub burst: usize,
    /// True if frames are used, not only passed on.
    pub touch: bool,
}

/// Result of one source.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// Frames in the whole run.
    pub frames: u64,
    /// Frames in the window.
    pub in_window: u64,
    /// Its frames that never came.
    pub lost: u64,
    /// Its frames that came twice.
    pub duplicated: u64,
    /// Its frames that came after a later one of their flow.
    pub reordered: u64,
}

/// Result of one sink.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Frames in the whole run.
    pub frames: u64,
    /// Frames in the window.
    pub in_window: u64,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Result of each source.
    pub sent: Vec<Sent>,
    /// Result of each sink.
    pub taken: Vec<Taken>,
    /// Latency from source to sink, in nanoseconds, of frames taken in the window.
    pub latency: Histogram<u64>,
    /// Frames of an earlier run, or without a mark.
    pub foreign: u64,
    /// Measured length of the window, in nanoseconds.
    pub window_ns: u64,
}

impl Report {
    /// Returns the frames of all sources that never came.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent.iter().map(|sent| sent.lost).sum()
    }

    /// Returns the frames of all sources that came twice or out of order.
    #[must_use]
    pub fn disordered(&self) -> u64 {
        self.sent.iter().map(|sent| sent.duplicated + sent.reordered).sum()
    }

    /// Converts a number of frames of the window to frames per second.
    #[must_use]
    pub fn per_second(&self, frames: u64) -> u64 {
        let rate = u128::from(frames) * 1_000_000_000 / u128::from(self.window_ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    /// Returns the frames per second that all sources sent.
    #[must_use]
    pub fn sent_rate(&self) -> u64 {
        self.per_second(self.sent.iter().map(|sent| sent.in_window).sum())
    }

    /// Returns the frames per second that all sinks took.
    #[must_use]
    pub fn taken_rate(&self) -> u64 {
        self.per_second(self.taken.iter().map(|taken| taken.in_window).sum())
    }
}

/// A rate in frames, counted in ticks, and the frames that it allowed so far.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Frames per tick, times 2^32; `None`: no limit.
    per_tick: Option<u64>,
    done: u64,
    begin: u64,
}

impl Pace {
    fn new(rate: Option<u64>, clock: &impl Clock, begin: u64) -> Self {
        let per_tick = |rate: u64| {
            u64::try_from((u128::from(rate) << 32) / u128::from(clock.per_second()))
                .unwrap_or(u64::MAX)
        };
        Self { per_tick: rate.map(per_tick), done: 0, begin }
    }

    /// Returns the number of frames that may go now.
    #[inline]
    fn allowed(&mut self, now: u64) -> usize {
        let Some(per_tick) = self.per_tick else { return usize::MAX };
        let ticks = u128::from(now.saturating_sub(self.begin));
        let due = u64::try_from((ticks * u128::from(per_tick)) >> 32).unwrap_or(u64::MAX);
        if due > self.done + DEBT_MAX {
            self.done = due - DEBT_MAX;
        }
        usize::try_from(due.saturating_sub(self.done)).unwrap_or(0)
    }

    #[inline]
    fn spend(&mut self, frames: usize) {
        self.done += frames as u64;
    }
}

/// A source at work.
struct Sending {
    source: Source,
    stream: u16,
    pace: Pace,
    /// Index of the next flow, as wide as a register for the reason given in `Ring`.
    flow: usize,
    sequences: Vec<u32>,
    sent: Sent,
}

/// A sink at work.
struct Taking {
    sink: Sink,
    pace: Pace,
    asleep_until: u64,
    taken: Taken,
}

/// Frames that came, by source and flow.
struct Seen {
    run: u16,
    orders: Vec<Vec<Order>>,
    latency: Histogram<u64>,
    counter: u64,
    foreign: u64,
    ns_per_tick: u64,
    checksum: u64,
}

/// Guests that are driven together, by the thread that calls [`Load::run`].
#[derive(Debug)]
pub struct Load {
    guests: Vec<Guest>,
    runs: u16,
}

impl Load {
    /// Returns a generator for these guests, which are connected.
    #[must_use]
    pub fn new(guests: Vec<Guest>) -> Self {
        Self { guests, runs: 0 }
    }

    /// Returns the guests.
    pub fn guests(&mut self) -> &mut [Guest] {
        &mut self.guests
    }

    /// Takes the guests out of the generator.
    #[must_use]
    pub fn into_guests(self) -> Vec<Guest> {
        self.guests
    }

    /// Discards the frames that wait in all receive rings.
    pub fn drain(&mut self) {
        for guest in &mut self.guests {
            for pair in 0..guest.pairs() {
                while guest.pair(pair).receiver.burst(64, |_| ()) > 0 {}
            }
        }
    }

    /// Executes one run.
    ///
    /// # Panics
    /// If the guest of a source or sink, or the queue pair of a source, does not exist, or a frame
    /// is too short.
    pub fn run(
        &mut self,
        sources: &[Source],
        sinks: &[Sink],
        run: Run,
        clock: &impl Clock,
    ) -> Report {
        self.runs = self.runs.wrapping_add(1);
        let per_ms = clock.per_second() / 1000;
        let begin = clock.now();
        let mut sending = sending(sources, clock, begin);
        let mut taking = taking(sinks, clock, begin);
        let mut seen = Seen::new(self.runs, sources, clock);
        let window_begin = begin + run.settle_ms * per_ms;
        let window_end = window_begin + run.window_ms * per_ms;
        let mut now = begin;
        while now < window_begin {
            now = self.turn(&mut sending, &mut taking, &mut seen, run, clock);
        }
        let before = (counts(&sending), taken_counts(&taking));
        seen.latency.reset();
        let from = now;
        while now < window_end {
            now = self.turn(&mut sending, &mut taking, &mut seen, run, clock);
        }
        let window_ns = seen.ns(now - from);
        for (sending, before) in sending.iter_mut().zip(before.0) {
            sending.sent.in_window = sending.sent.frames - before;
        }
        for (taking, before) in taking.iter_mut().zip(before.1) {
            taking.taken.in_window = taking.taken.frames - before;
        }
        let latency = seen.latency.clone();
        self.finish(&mut taking, &mut seen, run, clock);
        black_box(seen.checksum);
        Report {
            sent: sending.iter().map(|sending| seen.judge(sending)).collect(),
            taken: taking.into_iter().map(|taking| taking.taken).collect(),
            latency,
            foreign: seen.foreign,
            window_ns,
        }
    }

    /// Lets the sinks take the frames that are still under way, as fast as they can.
    fn finish(&mut self, taking: &mut [Taking], seen: &mut Seen, run: Run, clock: &impl Clock) {
        let quiet = clock.per_second() / QUIET_PART;
        let mut last = clock.now();
        loop {
            let now = clock.now();
            for taking in &mut *taking {
                taking.pace.per_tick = None;
                (taking.sink.sleep_us, taking.asleep_until) = (None, 0);
                if taking.turn(&mut self.guests[taking.sink.guest], seen, run, now) > 0 {
                    last = now;
                }
            }
            if now > last + quiet {
                return;
            }
        }
    }

    /// Serves every source and every sink once. Returns the time at which the turn began.
    #[inline]
    fn turn(
        &mut self,
        sending: &mut [Sending],
        taking: &mut [Taking],
        seen: &mut Seen,
        run: Run,
        clock: &impl Clock,
    ) -> u64 {
        let now = clock.now();
        for sending in sending {
            sending.turn(&mut self.guests[sending.source.guest], seen.run, run, now);
        }
        for taking in taking {
            let frames = taking.turn(&mut self.guests[taking.sink.guest], seen, run, now);
            if let Some(sleep_us) = taking.sink.sleep_us
                && frames < run.burst
                && now >= taking.asleep_until
            {
                taking.asleep_until = now + sleep_us * (clock.per_second() / 1_000_000);
            }
        }
        now
    }
}

fn sending(sources: &[Source], clock: &impl Clock, begin: u64) -> Vec<Sending> {
    let sending = |(stream, source): (usize, &Source)| Sending {
        source: source.clone(),
        stream: u16::try_from(stream).expect("not so many sources"),
        pace: Pace::new(source.rate, clock, begin),
        flow: 0,
        sequences: vec![0; usize::from(source.flows.max(1))],
        sent: Sent::default(),
    };
    sources.iter().enumerate().map(sending).collect()
}

fn taking(sinks: &[Sink], clock: &impl Clock, begin: u64) -> Vec<Taking> {
    let taking = |sink: &Sink| Taking {
        sink: sink.clone(),
        pace: Pace::new(sink.rate, clock, begin),
        asleep_until: 0,
        taken: Taken::default(),
    };
    sinks.iter().map(taking).collect()
}

fn counts(sending: &[Sending]) -> Vec<u64> {
    sending.iter().map(|sending| sending.sent.frames).collect()
}

fn taken_counts(taking: &[Taking]) -> Vec<u64> {
    taking.iter().map(|taking| taking.taken.frames).collect()
}

impl Sending {
    #[inline]
    fn turn(&mut self, guest: &mut Guest, run: u16, how: Run, now: u64) {
        let sender = &mut guest.pair(self.source.pair).sender;
        let allowed = self.pace.allowed(now).min(how.burst);
        let frames = allowed.min(sender.room());
        for _ in 0..frames {
            let sequence = &mut self.sequences[self.flow];
            let flow = u16::try_from(self.flow).unwrap_or(0);
            let mark = Mark { run, stream: self.stream, flow, sequence: *sequence, time: now };
            *sequence = sequence.wrapping_add(1);
            let source = &self.source;
            sender
                .stage(source.template.len(), |bytes| write(bytes, source, flow, mark, how.touch));
            self.flow += 1;
            if self.flow == self.sequences.len() {
                self.flow = 0;
            }
        }
        if frames > 0 {
            sender.flush();
            self.pace.spend(frames);
            self.sent.frames += frames as u64;
        }
    }
}

/// Writes a frame: its headers, its mark, and with `touch` one word of every other line.
#[inline]
fn write(bytes: Bytes<'_>, source: &Source, flow: u16, mark: Mark, touch: bool) {
    let head = if source.skip == 0 { LINE } else { 2 * LINE };
    if let Some(template) = source.template.first_chunk::<LINE>() {
        bytes.write(0, template);
    }
    if head > LINE {
        let end = source.template.len().min(head);
        bytes.write(LINE, &source.template[LINE..end]);
    }
    bytes.write(source.skip + FLOW_AT, &(flow.wrapping_add(1024)).to_be_bytes());
    mark.write(bytes, source.skip + MARK_AT);
    if touch {
        let mut at = head;
        while at + 8 <= bytes.len() {
            bytes.write_u64(at, mark.time);
            at += LINE;
        }
    }
}

impl Taking {
    #[inline]
    fn turn(&mut self, guest: &mut Guest, seen: &mut Seen, run: Run, now: u64) -> usize {
        if now < self.asleep_until {
            return 0;
        }
        let allowed = self.pace.allowed(now).min(run.burst);
        if allowed == 0 {
            return 0;
        }
        let skip = self.sink.skip;
        let (mut frames, mut ours) = (0, 0);
        for pair in 0..guest.pairs() {
            frames += guest.pair(pair).receiver.burst(allowed - frames, |received| {
                let head = received.head();
                ours += u64::from(seen.see(head, skip, now));
                if run.touch {
                    let mut at = LINE;
                    while at + 8 <= head.len() {
                        seen.checksum ^= head.read_u64(at);
                        at += LINE;
                    }
                }
            });
        }
        self.pace.spend(frames);
        self.taken.frames += ours;
        frames
    }
}

impl Seen {
    fn new(run: u16, sources: &[Source], clock: &impl Clock) -> Self {
        let orders =
            sources.iter().map(|source| vec![Order::default(); source.flows.max(1).into()]);
        let ns = (1_000_000_000u128 << 32) / u128::from(clock.per_second());
        Self {
            run,
            orders: orders.collect(),
            latency: Histogram::new_with_max(LATENCY_NS_MAX, 3).expect("bounds that it takes"),
            counter: 0,
            foreign: 0,
            ns_per_tick: u64::try_from(ns).unwrap_or(u64::MAX),
            checksum: 0,
        }
    }

    fn ns(&self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * u128::from(self.ns_per_tick)) >> 32).unwrap_or(u64::MAX)
    }

    /// Records one frame. Returns true if it is one of this run.
    #[inline]
    fn see(&mut self, bytes: Bytes<'_>, skip: usize, now: u64) -> bool {
        let mark = Mark::read(bytes, skip + MARK_AT).filter(|mark| mark.run == self.run);
        let order = mark.and_then(|mark| {
            self.orders.get_mut(usize::from(mark.stream))?.get_mut(usize::from(mark.flow))
        });
        let (Some(mark), Some(order)) = (mark, order) else {
            self.foreign += 1;
            return false;
        };
        order.see(mark.sequence);
        self.counter += 1;
        if self.counter == LATENCY_EVERY {
            self.counter = 0;
            let ns = self.ns(now.saturating_sub(mark.time));
            self.latency.saturating_record(ns);
        }
        true
    }

    fn judge(&self, sending: &Sending) -> Sent {
        let mut sent = sending.sent.clone();
        let orders = &self.orders[usize::from(sending.stream)];
        let mut came = 0;
        for order in orders {
            sent.duplicated += order.duplicated;
            sent.reordered += order.reordered;
            came += order.frames - order.duplicated;
        }
        sent.lost = sent.frames.saturating_sub(came);
        sent
    }
}

/// Binds the calling thread to one core.
///
/// # Errors
/// The error of the kernel.
pub fn pin(core: usize) -> std::io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).map_err(Into::into)
}
