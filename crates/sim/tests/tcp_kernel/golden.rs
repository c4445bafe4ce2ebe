//! The text of a golden: `key: value` lines, an empty line, and one line for each segment.

use std::fmt;

/// Content of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Data: its first byte, its size, and true if bytes of it were sent before.
    Data { seq: u64, size: u64, again: bool },
    /// An acknowledgement with its SACK blocks (first and last plus one).
    Ack { ack: u64, sack: Vec<(u64, u64)> },
}

/// A segment at the time when its sender put it on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Microseconds since the first segment of data.
    pub(crate) at_us: u64,
    pub(crate) what: What,
    /// True if the wire lost the segment.
    pub(crate) lost: bool,
}

impl Entry {
    pub(crate) const fn is_data(&self) -> bool {
        matches!(self.what, What::Data { .. })
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:5}  ", (self.at_us + 500) / 1000)?;
        match &self.what {
            What::Data { seq, size, again } => {
                write!(f, "data {seq:6} +{size}{}", if *again { " again" } else { "" })?;
            }
            What::Ack { ack, sack } => {
                write!(f, "     ack {ack:6}{}", if sack.is_empty() { "" } else { " sack" })?;
                for (first, end) in sack {
                    write!(f, " {first}-{end}")?;
                }
            }
        }
        f.write_str(if self.lost { " LOST" } else { "" })
    }
}

/// Data and losses of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) cubic: bool,
    pub(crate) sack: bool,
    /// True if every second segment is acknowledged instead of each.
    pub(crate) delayed_acks: bool,
    /// True if the first ones are acknowledged each, nevertheless.
    pub(crate) quick_acks: bool,
    pub(crate) mss: u32,
    pub(crate) initial_window: u32,
    /// Delay in one direction.
    pub(crate) delay_ms: u64,
    /// Writes: time in milliseconds, and bytes.
    pub(crate) sends: Vec<(u64, u64)>,
    /// Lost segments by their first byte, with the numbers of their lost transmissions, from 1.
    pub(crate) lost_data: Vec<(u64, Vec<u64>)>,
    /// Lost acknowledgements by their number, from 1.
    pub(crate) lost_acks: Vec<u64>,
}

/// Permission for the simulator to send other segments: its begin, its reason and the remaining
/// bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deviation {
    /// Its word in `docs/tcp-oracles.md`.
    pub(crate) name: String,
    /// Begin of the round trip in which the first difference lies.
    pub(crate) from_ms: u64,
    /// Largest difference in segments sent after a round trip. As long as one of the two has a
    /// time-out that the other has not, they are not compared.
    pub(crate) apart: u64,
    /// Largest difference of the ends.
    pub(crate) end_ms: u64,
    /// Number of time-outs that the simulator has beyond the kernel's.
    pub(crate) timeouts: usize,
}

/// A retransmission that the simulator makes and the kernel does not (RFC 6675 clause 4, rule 4 of
/// `NextSeg`). The retransmission and its acknowledgement are left out; everything else is
/// compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rescue {
    pub(crate) seq: u64,
    pub(crate) at_ms: u64,
}

/// A golden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Golden {
    pub(crate) scenario: Scenario,
    pub(crate) deviation: Option<Deviation>,
    pub(crate) rescues: Vec<Rescue>,
    pub(crate) trace: Vec<Entry>,
}

/// Reads a golden. Every line must be understood.
pub(crate) fn parse(text: &str) -> Result<Golden, String> {
    let (head, body) = text.split_once("\n\n").ok_or("there is no empty line")?;
    let mut golden = Golden {
        scenario: Scenario::default(),
        deviation: None,
        rescues: Vec::new(),
        trace: Vec::new(),
    };
    for line in head.lines() {
        let wrong = || format!("cannot read `{line}`");
        let (key, value) = line.split_once(": ").ok_or_else(wrong)?;
        key_value(&mut golden, key, value).ok_or_else(wrong)?;
    }
    for line in body.lines() {
        golden.trace.push(entry(line).ok_or_else(|| format!("cannot read `{line}`"))?);
    }
    let Scenario { mss, initial_window, delay_ms, sends, .. } = &golden.scenario;
    if *mss == 0 || *initial_window == 0 || *delay_ms == 0 || sends.is_empty() {
        return Err("a key is missing".to_owned());
    }
    Ok(golden)
}

fn key_value(golden: &mut Golden, key: &str, value: &str) -> Option<()> {
    let scenario = &mut golden.scenario;
    match key {
        "about" | "kernel" | "date" => {}
        "algorithm" => scenario.cubic = one_of(value, ["reno", "cubic"])?,
        "sack" => scenario.sack = one_of(value, ["off", "on"])?,
        "acks" => {
            (scenario.delayed_acks, scenario.quick_acks) = match value {
                "each" => (false, false),
                "delayed" => (true, false),
                "quick" => (true, true),
                _ => return None,
            }
        }
        "mss" => scenario.mss = value.parse().ok()?,
        "initial_window" => scenario.initial_window = value.parse().ok()?,
        "delay_ms" => scenario.delay_ms = value.parse().ok()?,
        "send" => {
            let (bytes, at) = value.strip_suffix(" ms")?.split_once(" at ")?;
            scenario.sends.push((at.parse().ok()?, bytes.parse().ok()?));
        }
        "lose" => {
            if let Some(number) = value.strip_prefix("ack number ") {
                scenario.lost_acks.push(number.parse().ok()?);
            } else {
                let (seq, times) = value.strip_prefix("data ")?.split_once(", transmission ")?;
                let times: Option<_> = times.split(' ').map(|time| time.parse().ok()).collect();
                scenario.lost_data.push((seq.parse().ok()?, times?));
            }
        }
        "deviation" if value.starts_with("rescue ") => {
            golden.rescues.push(parse_rescue(value)?);
        }
        "deviation" if golden.deviation.is_none() => {
            golden.deviation = Some(parse_deviation(value)?);
        }
        _ => return None,
    }
    Some(())
}

/// Returns true if a word is the second of two; `None` if it is neither.
fn one_of(value: &str, words: [&str; 2]) -> Option<bool> {
    words.iter().position(|word| *word == value).map(|index| index == 1)
}

/// Reads `NAME from 20 ms, apart 2, end 20 ms, timeouts 0: reason`.
pub(crate) fn parse_deviation(value: &str) -> Option<Deviation> {
    let (terms, reason) = value.split_once(": ")?;
    let (name, terms) = terms.split_once(" from ")?;
    let mut terms = terms.split(", ");
    let from_ms = terms.next()?.strip_suffix(" ms")?.parse().ok()?;
    let apart = terms.next()?.strip_prefix("apart ")?.parse().ok()?;
    let end_ms = terms.next()?.strip_prefix("end ")?.strip_suffix(" ms")?.parse().ok()?;
    let timeouts = terms.next()?.strip_prefix("timeouts ")?.parse().ok()?;
    let complete = terms.next().is_none() && !name.is_empty() && !reason.is_empty();
    let name = name.to_owned();
    complete.then_some(Deviation { name, from_ms, apart, end_ms, timeouts })
}

/// Reads `rescue of 29000 at 40 ms: reason`.
fn parse_rescue(value: &str) -> Option<Rescue> {
    let (terms, reason) = value.strip_prefix("rescue of ")?.split_once(" ms: ")?;
    let (seq, at_ms) = terms.split_once(" at ")?;
    let rescue = Rescue { seq: seq.parse().ok()?, at_ms: at_ms.parse().ok()? };
    (!reason.is_empty()).then_some(rescue)
}

fn entry(line: &str) -> Option<Entry> {
    let mut words = line.split_whitespace().peekable();
    let at_us = words.next()?.parse::<u64>().ok()? * 1000;
    let kind = words.next()?;
    let number = words.next()?.parse().ok()?;
    let what = match kind {
        "data" => {
            let size = words.next()?.strip_prefix('+')?.parse().ok()?;
            let again = words.next_if_eq(&"again").is_some();
            What::Data { seq: number, size, again }
        }
        "ack" => {
            let mut sack = Vec::new();
            if words.next_if_eq(&"sack").is_some() {
                while let Some((first, end)) = words.peek().and_then(|word| word.split_once('-')) {
                    sack.push((first.parse().ok()?, end.parse().ok()?));
                    words.next();
                }
            }
            What::Ack { ack: number, sack }
        }
        _ => return None,
    };
    let lost = words.next_if_eq(&"LOST").is_some();
    words.next().is_none().then_some(Entry { at_us, what, lost })
}
