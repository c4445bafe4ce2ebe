//! Comparison of two traces.
//!
//! The two directions are compared by themselves, since the order of two crossing segments depends
//! on the machine. In each of them the segments must be the same in the same order, and each must
//! follow the one before after the same time. The tolerance of that time is [`STEP_MS`], a quarter
//! of a round trip, so that no segment can be in another round trip; the sum of all errors must
//! stay below half a round trip. A span of [`SILENCE_MS`] or more is a timer. Timers of the kernel
//! are late by one tick of 4 ms and then by an eighth of their time, because its timer wheel is
//! that coarse (`kernel/time/timer.c`), and later segments are compared from there.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::golden::{Deviation, Entry, Golden, Rescue, What};

/// Largest difference of the time between two segments.
const STEP_MS: u64 = 5;
/// Time without any segment after which a timer has sent the next one.
const SILENCE_MS: u64 = 100;
/// A tick of the kernel (`CONFIG_HZ=250`).
const TICK_MS: u64 = 4;
/// A timer of the kernel is late by at most its time divided by this, beside a tick.
const WHEEL: u64 = 8;

/// Compares the trace of the simulator with the trace of the kernel.
pub(crate) fn compare(golden: &Golden, trace: &[Entry]) -> Result<(), String> {
    let round_trip_ms = 2 * golden.scenario.delay_ms;
    let mut trace = trace.to_vec();
    for rescue in &golden.rescues {
        take_rescue(golden, rescue, &mut trace)?;
    }
    let trace = &trace[..];
    let difference = difference(&golden.trace, trace, round_trip_ms);
    match (&golden.deviation, difference) {
        (None, None) => Ok(()),
        (None, Some(difference)) => Err(difference.text),
        (Some(_), None) => Err("the deviation is not needed: remove it".to_owned()),
        (Some(deviation), Some(difference)) => {
            let at_ms = difference.at_us / 1000;
            let from = deviation.from_ms..deviation.from_ms + round_trip_ms;
            if !from.contains(&at_ms) {
                return Err(format!("the deviation is not from here on: {}", difference.text));
            }
            loosely(golden, deviation, trace)
        }
    }
}

/// Takes the rescue and its acknowledgement out of the simulator's trace.
fn take_rescue(golden: &Golden, rescue: &Rescue, left: &mut Vec<Entry>) -> Result<(), String> {
    let is_rescue = |entry: &Entry| {
        let What::Data { seq, again: true, .. } = entry.what else { return false };
        seq == rescue.seq && entry.at_us / 1000 == rescue.at_ms
    };
    if golden.trace.iter().any(|entry| is_again_of(entry, rescue.seq)) {
        return Err("the kernel sent the rescue, too: remove the deviation".to_owned());
    }
    let at = left.iter().position(is_rescue).ok_or("there is no rescue: remove the deviation")?;
    left.remove(at);
    // The segment was there before, so that the answer repeats the one before it.
    let arrival_us = (rescue.at_ms + golden.scenario.delay_ms) * 1000;
    let mut repeated = (1..left.len()).filter(|&n| {
        let is_ack = !left[n].is_data() && left[n].at_us == arrival_us;
        let before = left[..n].iter().rev().find(|entry| !entry.is_data());
        is_ack && before.is_some_and(|before| before.what == left[n].what)
    });
    let answer = repeated.next().ok_or("nothing answers the rescue")?;
    left.remove(answer);
    Ok(())
}

fn is_again_of(entry: &Entry, byte: u64) -> bool {
    matches!(entry.what, What::Data { seq, again: true, .. } if seq == byte)
}

/// Begin of a difference of two traces.
struct Difference {
    /// The kernel's time, or the simulator's if the kernel sent nothing more.
    at_us: u64,
    text: String,
}

fn difference(kernel: &[Entry], trace: &[Entry], round_trip_ms: u64) -> Option<Difference> {
    let one = |data| one_direction(kernel, trace, data, round_trip_ms);
    [one(true), one(false)].into_iter().flatten().min_by_key(|difference| difference.at_us)
}

fn one_direction(
    kernel: &[Entry],
    trace: &[Entry],
    data: bool,
    round_trip_ms: u64,
) -> Option<Difference> {
    let mut kernel = kernel.iter().filter(|entry| entry.is_data() == data);
    let mut trace = trace.iter().filter(|entry| entry.is_data() == data);
    let mut before = (0, 0);
    // Lateness of the kernel by the timers so far.
    let mut late_us = 0_i64;
    loop {
        let (a, b) = (kernel.next(), trace.next());
        let (Some(a), Some(b)) = (a, b) else {
            return a.or(b).map(|entry| Difference { at_us: entry.at_us, text: text(a, b, "") });
        };
        let differs = |why| Some(Difference { at_us: a.at_us, text: text(Some(a), Some(b), why) });
        if a.what != b.what || a.lost != b.lost {
            return differs("");
        }
        let (step_a, step_b) = (a.at_us.abs_diff(before.0), b.at_us.abs_diff(before.1));
        let is_timer = step_a.min(step_b) >= SILENCE_MS * 1000;
        let slack_ms = if is_timer { TICK_MS + step_b / 1000 / WHEEL } else { 0 };
        if step_a.abs_diff(step_b) > (STEP_MS + slack_ms) * 1000 {
            return differs(", not after the same time");
        }
        let later = a.at_us.cast_signed() - b.at_us.cast_signed();
        if is_timer {
            late_us = later;
        }
        if (later - late_us).unsigned_abs() > round_trip_ms * 1000 / 2 {
            return differs(", and the differences of time add up");
        }
        before = (a.at_us, b.at_us);
    }
}

fn text(kernel: Option<&Entry>, trace: Option<&Entry>, why: &str) -> String {
    let line = |entry: Option<&Entry>| {
        entry.map_or("nothing more".to_owned(), |entry| entry.to_string().trim().to_owned())
    };
    format!("kernel `{}`, simulator `{}`{why}", line(kernel), line(trace))
}

/// Checks the weaker rules for a deviation, if the segments are not the same.
fn loosely(golden: &Golden, deviation: &Deviation, trace: &[Entry]) -> Result<(), String> {
    let kernel = &golden.trace;
    let (sent, expected) = (transmissions(trace), transmissions(kernel));
    if let Some((segment, times)) = expected.iter().find(|(seg, n)| sent.get(seg) != Some(n)) {
        let got = sent.get(segment).copied().unwrap_or_default();
        return Err(format!("segment {} was sent {got} times, {times} by the kernel", segment.0));
    }
    if let Some((segment, _)) = sent.iter().find(|(segment, _)| !expected.contains_key(segment)) {
        return Err(format!("the kernel sent no segment {} of {} bytes", segment.0, segment.1));
    }
    let mut end = 0;
    for entry in trace {
        if let What::Data { seq, size, again: false } = entry.what {
            if seq != end {
                return Err(format!("new data begins at {seq}, not at {end}"));
            }
            end += size;
        }
    }
    let (got, base) = (timeouts(trace), timeouts(kernel));
    if got != base + deviation.timeouts {
        let more = deviation.timeouts;
        return Err(format!("{got} time-outs, where the kernel had {base} and {more} are granted"));
    }
    let ends = [kernel, trace].map(|trace| trace.last().map_or(0, |entry| entry.at_us));
    if ends[0].abs_diff(ends[1]) > deviation.end_ms * 1000 {
        let [a, b] = ends.map(|us| us / 1000);
        return Err(format!("the end is at {b} ms, the kernel's at {a} ms"));
    }
    let (apart, needed) = (deviation.apart, apart(golden, trace));
    if apart != needed {
        return Err(format!("at most {needed} segments apart, where {apart} are granted"));
    }
    Ok(())
}

/// Returns the largest difference of the two in segments after a round trip. After a silence, which
/// ends by a timer, times count from its end. The rest is left out if the other trace has no such
/// silence.
fn apart(golden: &Golden, trace: &[Entry]) -> u64 {
    let round_trip_us = 2 * golden.scenario.delay_ms * 1000;
    let traces = [&golden.trace[..], trace];
    let [kernel, simulator] = traces.map(talks);
    let both = if kernel.len() == simulator.len() { kernel.len() } else { 1 };
    let mut apart = 0;
    for (a, b) in kernel.iter().zip(&simulator).take(both) {
        // Data leaves at multiples of the round trip, data of RACK half a round trip later: at this
        // time none does.
        let mut span_us = round_trip_us / 4 * 3;
        while span_us < a.len_us().max(b.len_us()) {
            let at = [a.start_us + span_us, b.start_us + span_us];
            let [a, b] = [passed(traces[0], at[0]), passed(traces[1], at[1])];
            apart = apart.max(a.abs_diff(b).div_ceil(golden.scenario.mss.into()));
            span_us += round_trip_us;
        }
    }
    apart
}

/// A part of a trace between silences.
struct Talk {
    start_us: u64,
    end_us: u64,
}

impl Talk {
    const fn len_us(&self) -> u64 {
        self.end_us - self.start_us
    }
}

fn talks(trace: &[Entry]) -> Vec<Talk> {
    let parts = trace.chunk_by(|a, b| b.at_us.saturating_sub(a.at_us) < SILENCE_MS * 1000);
    let talk =
        |part: &[Entry]| Talk { start_us: part[0].at_us, end_us: part[part.len() - 1].at_us };
    parts.map(talk).collect()
}

/// Number of bytes that passed the wire by then, each counted once.
fn passed(trace: &[Entry], at_us: u64) -> u64 {
    let before = trace.iter().filter(|entry| entry.at_us <= at_us && !entry.lost);
    let segments: BTreeMap<u64, u64> = before
        .filter_map(|entry| match entry.what {
            What::Data { seq, size, .. } => Some((seq, size)),
            What::Ack { .. } => None,
        })
        .collect();
    segments.values().sum()
}

/// Number of transmissions of each segment: by its first byte and its size.
fn transmissions(trace: &[Entry]) -> BTreeMap<(u64, u64), usize> {
    let mut sent = BTreeMap::new();
    for entry in trace {
        if let What::Data { seq, size, .. } = entry.what {
            *sent.entry((seq, size)).or_default() += 1;
        }
    }
    sent
}

/// Number of retransmissions after a silence.
pub(crate) fn timeouts(trace: &[Entry]) -> usize {
    let silent = |pair: &&[Entry]| pair[1].at_us - pair[0].at_us >= SILENCE_MS * 1000;
    let again = |pair: &&[Entry]| matches!(pair[1].what, What::Data { again: true, .. });
    trace.windows(2).filter(silent).filter(again).count()
}

/// Returns both traces, the kernel's on the left.
pub(crate) fn beside(kernel: &[Entry], trace: &[Entry]) -> String {
    let mut text = format!("{:46}  simulator\n", "    kernel");
    let lines = |trace: &[Entry], data| -> Vec<String> {
        trace.iter().filter(|e| e.is_data() == data).map(ToString::to_string).collect()
    };
    for data in [true, false] {
        let (a, b) = (lines(kernel, data), lines(trace, data));
        for row in 0..a.len().max(b.len()) {
            let line = |lines: &[String]| lines.get(row).cloned().unwrap_or_default();
            let (a, b) = (line(&a), line(&b));
            // The time may differ a little, so it is no reason for a mark.
            let same = a.get(5..) == b.get(5..);
            writeln!(text, "{} {a:45} {b}", if same { ' ' } else { '*' }).expect("a string");
        }
    }
    text
}
