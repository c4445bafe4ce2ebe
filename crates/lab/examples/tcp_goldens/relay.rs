//! The wire between the namespaces: it delays, logs and drops.
//!
//! Both TAPs are read as soon as they have frames. A frame gets the time at which it was read and
//! leaves by the other TAP [`DELAY_MS`] later. The log begins with the first segment of data, which
//! is at time zero, and ends when all data is acknowledged. Only acknowledgements of the receiver
//! are logged, and no segment of the handshake.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use rustix::event::{PollFlags, Timespec, poll};
use sluice_base::{Batch, ByteCount, Priority, PriorityMask};
use sluice_ports::tap::TapPort;
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port as _};
use sluice_switch::{Egress, Sink as _, Taken, Window};

use crate::scenarios::{DELAY_MS, Scenario};
use crate::segment::{self, Segment};

const DELAY: Duration = Duration::from_millis(DELAY_MS);
/// Time limit of a run.
const RUN_MAX: Duration = Duration::from_secs(30);
/// Longest wait of the relay before it checks whether it should stop.
const IDLE: Duration = Duration::from_millis(50);
const BATCH_FRAMES: usize = 16;
/// Frames of the longest queue, of one batch, and some spare.
const POOL_FRAMES: u32 = 64;

/// Kind of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Data: first byte counted from zero, size, and whether some of the bytes were sent before.
    Data { seq: u32, size: u32, again: bool },
    /// An acknowledgement, with its SACK blocks (first and last plus one).
    Ack { ack: u32, sack: Vec<(u32, u32)> },
}

/// A segment when it came to the relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The time since the first segment of data.
    pub(crate) at: Duration,
    pub(crate) what: What,
    /// True if the relay dropped the segment.
    pub(crate) lost: bool,
}

impl Entry {
    /// Returns the time rounded to milliseconds.
    pub(crate) fn at_ms(&self) -> u64 {
        u64::try_from((self.at + Duration::from_micros(500)).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_data(&self) -> bool {
        matches!(self.what, What::Data { .. })
    }
}

/// Direction of a frame: the index of the TAP that it comes from.
const FROM_SENDER: usize = 0;

/// State of the connection so far.
struct Log<'a> {
    scenario: &'a Scenario,
    /// The sequence number of the first byte of data.
    base: Option<u32>,
    begin: Option<Instant>,
    /// Number of transmissions by the first byte of the segment.
    sent: BTreeMap<u32, u32>,
    end_sent: u32,
    acks: u32,
    entries: Vec<Entry>,
    done: bool,
}

impl Log<'_> {
    /// Logs a segment. Returns true if the segment is forwarded.
    fn pass(&mut self, from: usize, segment: &Segment, now: Instant) -> bool {
        if segment.syn {
            if from == FROM_SENDER {
                self.base = Some(segment.seq.wrapping_add(1));
            }
            return true;
        }
        let Some(base) = self.base else { return true };
        let (what, lost) = if from == FROM_SENDER {
            if segment.size == 0 {
                return true;
            }
            self.data(segment.seq.wrapping_sub(base), segment.size)
        } else {
            self.ack(segment, base)
        };
        let begin = *self.begin.get_or_insert(now);
        if !self.done {
            self.entries.push(Entry { at: now.duration_since(begin), what, lost });
        }
        self.done |= segment.ack.wrapping_sub(base) == self.scenario.bytes() && !lost;
        !lost
    }

    fn data(&mut self, seq: u32, size: u32) -> (What, bool) {
        let again = seq < self.end_sent;
        self.end_sent = self.end_sent.max(seq + size);
        let time = self.sent.entry(seq).or_default();
        *time += 1;
        let lost = &self.scenario.lost_data;
        let lost = lost.iter().any(|(lost, times)| *lost == seq && times.contains(time));
        (What::Data { seq, size, again }, lost)
    }

    fn ack(&mut self, segment: &Segment, base: u32) -> (What, bool) {
        self.acks += 1;
        let relative =
            |&(first, end): &(u32, u32)| (first.wrapping_sub(base), end.wrapping_sub(base));
        let sack = segment.sack.iter().map(relative).collect();
        let what = What::Ack { ack: segment.ack.wrapping_sub(base), sack };
        (what, self.scenario.lost_acks.contains(&self.acks))
    }
}

/// Joins the TAPs of the sender and the receiver until all data is acknowledged.
pub(crate) fn run(
    taps: [TapPort; 2],
    scenario: &Scenario,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Entry>> {
    let mut taps = taps;
    let mut pool = Pool::new(PoolConfig { slots: POOL_FRAMES, slot_size: 2112, populate: true })?;
    let mut batch = Batch::with_limit(BATCH_FRAMES);
    let mut queues: [VecDeque<(Instant, Vec<u8>)>; 2] = Default::default();
    let mut log = Log {
        scenario,
        base: None,
        begin: None,
        sent: BTreeMap::new(),
        end_sent: 0,
        acks: 0,
        entries: Vec::new(),
        done: false,
    };
    let end = Instant::now() + RUN_MAX;
    while !log.done {
        ensure!(!stop.load(Ordering::Relaxed), "interrupted");
        ensure!(Instant::now() < end, "not all data was acknowledged after {RUN_MAX:?}");
        wait(&taps, &queues)?;
        for from in [0, 1] {
            read(&mut taps[from], &mut pool, &mut batch)?;
            for frame in batch.drain() {
                let now = Instant::now();
                let segment = segment::parse(frame.bytes());
                if segment.is_some_and(|segment| log.pass(from, &segment, now)) {
                    queues[from].push_back((now + DELAY, frame.bytes().to_vec()));
                }
                pool.give_back(frame);
            }
        }
        for from in [0, 1] {
            deliver(&mut queues[from], &mut taps[1 - from])?;
        }
    }
    Ok(log.entries)
}

/// Waits for a frame, or for the time at which the next one leaves.
fn wait(taps: &[TapPort; 2], queues: &[VecDeque<(Instant, Vec<u8>)>; 2]) -> anyhow::Result<()> {
    let next = queues.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due).min();
    let left = next.map_or(IDLE, |due| due.saturating_duration_since(Instant::now()).min(IDLE));
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(0),
        tv_nsec: left.subsec_nanos().into(),
    };
    let fds: Vec<BorrowedFd<'_>> =
        taps.iter().flat_map(|tap| tap.poll_fds()).map(|port| port.fd).collect();
    let mut fds: Vec<_> =
        fds.iter().map(|fd| rustix::event::PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => bail!("waiting for frames: {errno}"),
    }
}

fn read(tap: &mut TapPort, pool: &mut Pool, batch: &mut Batch<FrameBuf>) -> anyhow::Result<()> {
    let frames = u32::try_from(BATCH_FRAMES)?;
    let window = Window {
        frames,
        bytes: ByteCount(u64::MAX),
        closed: PriorityMask::NONE,
        needs_copy: false,
    };
    tap.read(window, BATCH_FRAMES, pool, batch)?;
    Ok(())
}

/// Forwards the frames that are due.
fn deliver(queue: &mut VecDeque<(Instant, Vec<u8>)>, tap: &mut TapPort) -> anyhow::Result<()> {
    while let Some((_, frame)) = queue.pop_front_if(|(due, _)| *due <= Instant::now()) {
        let size = u32::try_from(frame.len())?;
        let egress = Egress {
            header: &frame,
            buf: None,
            strip: 0,
            size,
            first: 0,
            priority: Priority::ZERO,
            tunnel: None,
        };
        ensure!(tap.offer(&egress) == Taken::All, "a TAP does not take a frame");
        ensure!(tap.lost().total().frames == 0, "a TAP refuses a frame");
    }
    Ok(())
}
