//! The scenario of a golden with two of the simulator's endpoints.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sluice_base::Nanos;
use sluice_sim::tcp::{Algorithm, Config, Connection, Role, Segment};

use crate::golden::{Entry, Scenario, What};

/// Time of the first write: long after the handshake.
const BEGIN: Nanos = Nanos::from_millis(200);
/// End of the run. No scenario takes longer; an endpoint that never ends does.
const END: Nanos = Nanos::from_millis(60_000);
const SENDER: usize = 0;

/// The wire, with a record of its segments.
struct Wire<'a> {
    scenario: &'a Scenario,
    /// In each direction: segments with their times of arrival.
    queues: [VecDeque<(Nanos, Segment)>; 2],
    /// Number of transmissions of a segment that begins at this byte.
    sent: BTreeMap<u64, u64>,
    end_sent: u64,
    acks: u64,
    trace: Vec<Entry>,
}

impl Wire<'_> {
    fn bytes(&self) -> u64 {
        self.scenario.sends.iter().map(|(_, bytes)| bytes).sum()
    }

    fn put(&mut self, from: usize, now: Nanos, segment: Segment) {
        let logged = if from == SENDER { segment.len > 0 } else { now >= BEGIN };
        let mut lost = false;
        if logged {
            let what = if from == SENDER { self.data(&segment) } else { self.ack(&segment) };
            lost = what.1;
            let at_us = now.0.saturating_sub(BEGIN.0) / 1000;
            self.trace.push(Entry { at_us, what: what.0, lost });
        }
        if !lost {
            let due = Nanos(now.0 + Nanos::from_millis(self.scenario.delay_ms).0);
            self.queues[from].push_back((due, segment));
        }
    }

    fn data(&mut self, segment: &Segment) -> (What, bool) {
        let again = segment.seq < self.end_sent;
        self.end_sent = self.end_sent.max(segment.end());
        let time = self.sent.entry(segment.seq).or_default();
        *time += 1;
        let mut lost = self.scenario.lost_data.iter();
        let lost = lost.any(|(seq, times)| *seq == segment.seq && times.contains(time));
        (What::Data { seq: segment.seq, size: segment.len.into(), again }, lost)
    }

    fn ack(&mut self, segment: &Segment) -> (What, bool) {
        self.acks += 1;
        let blocks = segment.sack.as_slice().iter();
        let absolute = |&(first, end): &(u32, u32)| {
            (segment.ack + u64::from(first), segment.ack + u64::from(end))
        };
        let what = What::Ack { ack: segment.ack, sack: blocks.map(absolute).collect() };
        (what, self.scenario.lost_acks.contains(&self.acks))
    }

    /// Returns true if the sender will learn that all arrived.
    fn done(&self) -> bool {
        let all = self.bytes();
        self.trace
            .last()
            .is_some_and(|e| !e.lost && matches!(e.what, What::Ack { ack, .. } if ack == all))
    }
}

/// Returns the settings that match the golden's kernel.
fn config(scenario: &Scenario) -> Config {
    let algorithm = if scenario.cubic { Algorithm::Cubic } else { Algorithm::NewReno };
    let mut config = Config::linux_2013(algorithm);
    config.mss = scenario.mss;
    config.initial_window = scenario.initial_window;
    config.sack = scenario.sack;
    config.ack_every = if scenario.delayed_acks { 2 } else { 1 };
    if !scenario.quick_acks {
        config.quick_acks = 0;
    }
    // The kernel has neither time stamps nor F-RTO here, so it cannot know that the time-out was
    // early.
    config.undo = false;
    config
}

/// Runs two endpoints until all data is acknowledged, or for a minute. Returns their segments.
pub(crate) fn run(scenario: &Scenario) -> Vec<Entry> {
    run_with(scenario, config(scenario))
}

/// As [`run`], with losses found by time, as the kernel has them with SACK.
pub(crate) fn run_by_time(scenario: &Scenario) -> Vec<Entry> {
    run_with(scenario, Config { rack: true, ..config(scenario) })
}

fn run_with(scenario: &Scenario, config: Config) -> Vec<Entry> {
    let config = Arc::new(config);
    let mut ends =
        [Role::Client, Role::Server].map(|role| Connection::new(&config, role, Nanos::ZERO));
    let mut wire = Wire {
        scenario,
        queues: Default::default(),
        sent: BTreeMap::new(),
        end_sent: 0,
        acks: 0,
        trace: Vec::new(),
    };
    let mut sends: VecDeque<(Nanos, u64)> = scenario
        .sends
        .iter()
        .map(|&(at_ms, bytes)| (Nanos(BEGIN.0 + Nanos::from_millis(at_ms).0), bytes))
        .collect();
    let mut now = Nanos::ZERO;
    while now < END {
        for (from, end) in ends.iter_mut().enumerate() {
            while let Some(segment) = end.poll(now) {
                wire.put(from, now, segment);
                if wire.done() {
                    return wire.trace;
                }
            }
        }
        let arrivals = wire.queues.iter().filter_map(|queue| queue.front()).map(|(due, _)| *due);
        let timers = ends.iter().filter_map(Connection::deadline);
        let writes = sends.front().map(|(at, _)| *at);
        let Some(next) = arrivals.chain(timers).chain(writes).min() else { break };
        now = next.max(now);
        step(now, &mut ends, &mut wire, &mut sends);
    }
    wire.trace
}

/// Handles one event: an arrival before a write, a write before a timer.
fn step(
    now: Nanos,
    ends: &mut [Connection; 2],
    wire: &mut Wire<'_>,
    sends: &mut VecDeque<(Nanos, u64)>,
) {
    for (from, queue) in wire.queues.iter_mut().enumerate() {
        if queue.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, segment)) = queue.pop_front()
        {
            ends[1 - from].receive(now, &segment);
            return;
        }
    }
    if sends.front().is_some_and(|(at, _)| *at <= now)
        && let Some((_, bytes)) = sends.pop_front()
    {
        ends[SENDER].write(now, bytes);
        return;
    }
    for end in ends {
        end.expire(now);
    }
}
