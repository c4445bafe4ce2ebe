//! Output of `sluice steer`: a table or a line of JSON each second, with moves and their reasons.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Write};

use comfy_table::Table;
use serde::Serialize;
use sluice_api::envelope::Envelope;
use sluice_api::placement::{CpuStatus, PlaceStatus};
use sluice_placement::{CoreIndex, Move, Placement, Share};

use crate::force::EffectivePolicy;
use crate::placing::HIGH;
use crate::stat::CoreTime;
use crate::xdp::Counts;

/// Maximum of moves listed one by one in a report.
const MOVES_LISTED: usize = 8;

/// A core in a report; loads in hundredths of a core.
#[derive(Clone, Debug, Serialize)]
struct CoreState {
    core: u16,
    runs_vcpu: bool,
    user_percent: f64,
    softirq_percent: f64,
    kernel_percent: f64,
    /// Estimated load of the work that is placed here.
    placed_percent: f64,
    buckets: u32,
    /// Number of them that are of high priority.
    high_buckets: u32,
}

/// Content of one report.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct State {
    mode: &'static str,
    /// Version of the followed policy; 0 if there is none.
    version: u64,
    /// Number of matches of high priority in force.
    matches: usize,
    notes: Vec<String>,
    cores: Vec<CoreState>,
    #[serde(flatten)]
    counts: Option<Counts>,
    packet_ns: Option<u64>,
    /// Number of moves ordered by `--drill-ms`.
    drilled: Option<u64>,
}

fn percent(share: Share) -> f64 {
    f64::from(share.0) / 10_000.0
}

impl State {
    pub(crate) fn of_cores(
        force: &EffectivePolicy,
        notes: Vec<String>,
        numbers: &[u16],
        did: &BTreeMap<u16, CoreTime>,
        vcpus: &BTreeSet<u16>,
    ) -> Self {
        let of_core = |core: &u16| {
            let did = did.get(core).copied().unwrap_or_default();
            CoreState {
                core: *core,
                runs_vcpu: vcpus.contains(core),
                user_percent: percent(did.user),
                softirq_percent: percent(did.softirq),
                kernel_percent: percent(did.kernel),
                placed_percent: 0.0,
                buckets: 0,
                high_buckets: 0,
            }
        };
        Self {
            mode: force.mode.name(),
            version: force.stamp.version,
            matches: force.rules.matches.len(),
            notes,
            cores: numbers.iter().map(of_core).collect(),
            ..Self::default()
        }
    }

    /// Deviations from the policy, with reasons.
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn drilled(&mut self, ordered: u64) {
        self.drilled = Some(ordered);
    }

    /// Adds the placement.
    pub(crate) fn placed(&mut self, placement: &Placement, counts: Counts, packet_ns: u64) {
        for (at, core) in (0..).zip(&mut self.cores) {
            core.placed_percent = percent(placement.load_of(CoreIndex(at)).0);
        }
        for (_, entry) in placement.entries() {
            let core = &mut self.cores[entry.core.index()];
            core.buckets += 1;
            core.high_buckets += u32::from(entry.priority == HIGH);
        }
        (self.counts, self.packet_ns) = (Some(counts), Some(packet_ns));
    }

    /// Converts the state for the control process, with the cores that may do the work.
    pub(crate) fn place(
        &self,
        device: &str,
        kind: &str,
        force: &EffectivePolicy,
        may: impl Fn(u16) -> bool,
    ) -> PlaceStatus {
        let cpu = |core: &CoreState| CpuStatus {
            cpu: Some(core.core),
            worker: None,
            excluded: force.excluded.contains(&core.core),
            runs_vcpu: core.runs_vcpu,
            buckets: core.buckets,
            high: core.high_buckets,
            load_percent: core.placed_percent,
        };
        PlaceStatus {
            name: device.to_owned(),
            kind: kind.to_owned(),
            stamp: force.stamp,
            mode: self.mode.to_owned(),
            // Without a program no matches are in force, and nothing is counted.
            high: self.counts.map_or(0, |_| u32::try_from(self.matches).unwrap_or(u32::MAX)),
            moves: self.counts.map_or(0, |counts| counts.moved),
            cpus: self.cores.iter().filter(|core| may(core.core)).map(cpu).collect(),
        }
    }
}

/// Prints a warning; a closed standard error is ignored.
pub(crate) fn warn(text: &str) {
    _ = writeln!(io::stderr(), "{text}");
}

/// Returns true if the error is only that the reader has closed the pipe.
pub(crate) fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Writer of reports.
pub(crate) struct Report {
    out: Box<dyn Write>,
    json: bool,
    moves: Vec<String>,
    moved: usize,
}

impl Report {
    /// Writes to standard output.
    pub(crate) fn new(json: bool) -> Self {
        Self { out: Box::new(io::stdout()), json, moves: Vec::new(), moved: 0 }
    }

    pub(crate) fn moves(&mut self, moves: &[Move], numbers: &[u16]) {
        self.moved += moves.len();
        let room = MOVES_LISTED.saturating_sub(self.moves.len());
        self.moves.extend(moves.iter().take(room).map(|change| {
            let core = numbers[change.core.index()];
            format!("bucket {} to core {core}: {}", change.entry.0, change.why)
        }));
    }

    /// Writes a message at once, except in JSON.
    pub(crate) fn say(&mut self, text: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        writeln!(self.out, "{text}")
    }

    /// Writes a report of the state, and of the moves since the last one.
    pub(crate) fn tell(&mut self, state: &State) -> anyhow::Result<()> {
        let (moves, moved) = (std::mem::take(&mut self.moves), std::mem::take(&mut self.moved));
        if self.json {
            #[derive(Serialize)]
            struct Line<'a> {
                #[serde(flatten)]
                state: &'a State,
                decisions: usize,
                reasons: &'a [String],
            }
            let line = Line { state, decisions: moved, reasons: &moves };
            let line = Envelope::now(None).around(&serde_json::to_string(&line)?);
            return Ok(writeln!(self.out, "{line}")?);
        }
        let mut table = Table::new();
        table.set_header([
            "core",
            "vCPU",
            "user %",
            "softirq %",
            "kernel %",
            "placed %",
            "buckets",
            "high",
        ]);
        for core in &state.cores {
            table.add_row([
                core.core.to_string(),
                if core.runs_vcpu { "yes" } else { "" }.to_owned(),
                format!("{:.0}", core.user_percent),
                format!("{:.0}", core.softirq_percent),
                format!("{:.0}", core.kernel_percent),
                format!("{:.0}", core.placed_percent),
                core.buckets.to_string(),
                core.high_buckets.to_string(),
            ]);
        }
        writeln!(self.out, "{table}")?;
        if let (Some(counts), Some(cost)) = (&state.counts, state.packet_ns) {
            writeln!(
                self.out,
                "steered {}, not placed yet {}, not VXLAN {}, dropped by full queues {}; \
                 {cost} ns a packet; buckets moved {}, without a pause {}",
                counts.steered,
                counts.unplaced,
                counts.other,
                counts.dropped,
                counts.moved,
                counts.forced
            )?;
        }
        for text in state.notes.iter().chain(&moves) {
            writeln!(self.out, "  {text}")?;
        }
        if moved > moves.len() {
            writeln!(self.out, "  and {} more", moved - moves.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Reader that takes a number of lines and then closes.
    struct Head(usize, Arc<Mutex<Vec<u8>>>);

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut lines = self.1.lock().unwrap();
            let seen = lines.iter().filter(|byte| **byte == b'\n').count();
            if seen >= self.0 {
                return Err(ErrorKind::BrokenPipe.into());
            }
            lines.extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn report_to_closed_pipe_ends_without_panic() {
        for json in [true, false] {
            let lines = Arc::default();
            let out = Box::new(Head(1, Arc::clone(&lines)));
            let mut report = Report { out, ..Report::new(json) };
            report.say("begin").unwrap();
            let state = State { notes: vec!["a note".to_owned()], ..State::default() };
            let mut errors = (0..2).map(|_| report.tell(&state)).filter_map(Result::err);
            let error = errors.next().expect("two lines");
            assert!(is_closed(&error), "{error:#}");
            let first = if json { "{" } else { "begin\n" };
            assert!(lines.lock().unwrap().starts_with(first.as_bytes()));
        }
        assert!(!is_closed(&anyhow::anyhow!("something else")));
    }
}
