//! The measures: senders, receivers and figures of each.

use std::time::{Duration, Instant};

use sluice_testkit::load::frame::{self, VXLAN_BYTES};
use sluice_testkit::load::{Load, Report, Run, Sink, Source, Tsc, pin};

use super::machine::{GUEST_CORE, Machine, processor_seconds};
use super::subject::{Bench, REMOTE, Subject, VNI, VTEPS, Wiring, between, end, sink};
use super::{Cells, Plan};

/// Rate of an overloaded receiver, in frames per second.
const TAKES: u64 = 1_000_000;
/// Sleep of a sleeping receiver, in microseconds.
const SLEEP_US: u64 = 2_000;
/// Rate of a stuck receiver, in frames per second.
const STUCK_TAKES: u64 = 10_000;
/// Rate of a sender that stays below the limit of the switch, in frames per second.
const LIGHT: u64 = 1_000_000;
/// Number of ports of an idle switch.
const IDLE_PORTS: usize = 16;
/// Time for which an idle switch is observed.
const IDLE: Duration = Duration::from_secs(3);

/// A group of measures that share one start of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    VmToVm,
    Overload,
    Asleep,
    Victim,
    VictimQueues,
    Latency,
    Vxlan,
    IdleCpu,
}

pub(super) const GROUPS: [(Group, &str); 8] = [
    (Group::VmToVm, "vm_to_vm"),
    (Group::Overload, "overload"),
    (Group::Asleep, "asleep"),
    (Group::Victim, "victim"),
    (Group::VictimQueues, "victim_queues"),
    (Group::Latency, "latency"),
    (Group::Vxlan, "vxlan"),
    (Group::IdleCpu, "idle_cpu"),
];

impl Group {
    /// Returns the ports that the group needs of a subject; `None` if the subject cannot have them.
    fn wiring(self, subject: Subject) -> Option<Wiring> {
        let wiring = match self {
            Self::VmToVm | Self::Latency => Wiring::guests(2),
            Self::IdleCpu if subject.switches() => Wiring::guests(IDLE_PORTS),
            Self::IdleCpu => Wiring::guests(2),
            // Two senders if frames are switched by address, otherwise one.
            Self::Overload | Self::Asleep if subject.switches() => Wiring::guests(3),
            Self::Overload | Self::Asleep => Wiring::guests(2),
            Self::Victim => Wiring::guests(4),
            Self::VictimQueues => Wiring { pairs: 2, quarter_pool: true, ..Wiring::guests(3) },
            Self::Vxlan => Wiring { underlay: true, ..Wiring::guests(2) },
        };
        subject.can(wiring).then_some(wiring)
    }

    /// Starts the subject, measures the group once, and ends the subject.
    ///
    /// # Errors
    /// If the subject does not start or dies.
    pub(super) fn measure(
        self,
        subject: Subject,
        machine: &Machine,
        plan: &Plan,
        cells: &mut Cells,
    ) -> anyhow::Result<()> {
        let Some(wiring) = self.wiring(subject) else { return Ok(()) };
        let mut bench = subject.bench(machine, wiring)?;
        let mut at = At { subject, plan, cells };
        match self {
            Self::VmToVm => at.vm_to_vm(&mut bench)?,
            Self::Overload => at.overload(&mut bench.load, wiring.guests - 1, None),
            Self::Asleep => at.overload(&mut bench.load, wiring.guests - 1, Some(SLEEP_US)),
            Self::Victim => at.victim(&mut bench.load),
            Self::VictimQueues => at.victim_of_queue(&mut bench.load),
            Self::Latency => at.latency(&mut bench.load),
            Self::Vxlan => at.vxlan(&mut bench, wiring.guests)?,
            Self::IdleCpu => at.idle_cpu(&bench, wiring)?,
        }
        let violation = bench.load.guests().iter().find_map(|guest| guest.violation());
        anyhow::ensure!(violation.is_none(), "{} breaks virtio: {violation:?}", subject.name());
        Ok(())
    }
}

/// Destination of figures.
struct At<'a> {
    subject: Subject,
    plan: &'a Plan,
    cells: &'a mut Cells,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people, far below 2^53")]
impl At<'_> {
    /// Does one run, in a thread on the guests' core.
    fn run(&self, load: &mut Load, sources: &[Source], sinks: &[Sink], touch: bool) -> Report {
        let run = Run {
            settle_ms: self.plan.settle_ms,
            window_ms: self.plan.window_ms,
            burst: 32,
            touch,
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // Without pinning the figures are worse, not wrong.
                _ = pin(GUEST_CORE);
                load.drain();
                load.run(sources, sinks, run, &Tsc::measured())
            });
            thread.join().expect("a run does not panic")
        })
    }

    fn vm_to_vm(&mut self, bench: &mut Bench) -> anyhow::Result<()> {
        for bytes in [64, 512, 1500] {
            for touch in [false, true] {
                let before = bench.busy_ns(self.subject)?;
                let sources = [between(0, 1, bytes, None)];
                let report = self.run(&mut bench.load, &sources, &[sink(1)], touch);
                self.path("vm_to_vm", "uni", bytes, touch, &report);
                self.busy("vm_to_vm", before, bench, &report, (bytes, touch))?;
            }
        }
        let sources = [between(0, 1, 64, None), between(1, 0, 64, None)];
        let report = self.run(&mut bench.load, &sources, &[sink(0), sink(1)], false);
        self.path("vm_to_vm", "bidir", 64, false, &report);
        Ok(())
    }

    /// Adds the time per frame that the switch spent in turns that moved frames, over the whole run
    /// since `before`.
    fn busy(
        &mut self,
        measure: &str,
        before: Option<u64>,
        bench: &Bench,
        report: &Report,
        (bytes, touch): (usize, bool),
    ) -> anyhow::Result<()> {
        let (Some(before), Some(after)) = (before, bench.busy_ns(self.subject)?) else {
            return Ok(());
        };
        let frames: u64 = report.taken.iter().map(|taken| taken.frames).sum();
        let cell = self.cells.cell("busy_time", self.subject, "ns/frame");
        cell.with("frame_bytes", bytes)
            .with("of", measure)
            .with("touch", touch)
            .add_plain((after - before) as f64 / frames.max(1) as f64);
        Ok(())
    }

    fn path(&mut self, measure: &str, direction: &str, bytes: usize, touch: bool, report: &Report) {
        let cell = self.cells.cell(measure, self.subject, "frames/s");
        let cell =
            cell.with("frame_bytes", bytes).with("direction", direction).with("touch", touch);
        cell.add(report.taken_rate() as f64, report);
    }

    /// Measures senders that together send more than the last guest takes.
    fn overload(&mut self, load: &mut Load, to: usize, sleep_us: Option<u64>) {
        for bytes in [64, 1500] {
            let senders = to as u64;
            let rate = sleep_us.map(|_| LIGHT / senders);
            let sources: Vec<_> = (0..to).map(|from| between(from, to, bytes, rate)).collect();
            let takes = if sleep_us.is_some() { None } else { Some(TAKES) };
            let sinks = [Sink { rate: takes, sleep_us, ..sink(to) }];
            let report = self.run(load, &sources, &sinks, false);
            let measure = if sleep_us.is_some() { "asleep" } else { "overload" };
            let cell = self.cells.cell(measure, self.subject, "frames/s");
            let cell = cell.with("frame_bytes", bytes).with("senders", senders);
            cell.add(report.taken_rate() as f64, &report);
        }
    }

    /// Measures the rate of a victim while guest 0 sends as fast as it can to guest 1, which is
    /// stuck. The victim's traffic goes from guest 2 to guest 3, which have no part in the flood,
    /// or from guest 0 itself to guest 2.
    fn victim(&mut self, load: &mut Load) {
        self.victim_case(load, "switch", between(2, 3, 64, Some(LIGHT)), 3);
        if self.subject.switches() {
            self.victim_case(load, "sender", between(0, 2, 64, Some(LIGHT)), 2);
        }
    }

    /// Measures a victim of guest 0 itself, on a queue pair that the flood does not use.
    fn victim_of_queue(&mut self, load: &mut Load) {
        let source = Source { pair: 1, ..between(0, 2, 64, Some(LIGHT)) };
        self.victim_case(load, "sender, not queue", source, 2);
    }

    fn victim_case(&mut self, load: &mut Load, shares: &str, source: Source, to: usize) {
        let stuck = Sink { rate: Some(STUCK_TAKES), ..sink(1) };
        let sources = [source, between(0, 1, 64, None)];
        let report = self.run(load, &sources, &[sink(to), stuck], false);
        let taken = report.per_second(report.taken[0].in_window);
        let cell = self.cells.cell("victim", self.subject, "frames/s");
        let cell = cell.with("frame_bytes", 64).with("shares", shares);
        cell.add_of(taken as f64, report.sent[0].lost, LIGHT);
    }

    fn latency(&mut self, load: &mut Load) {
        for bytes in [64, 1500] {
            let report = self.run(load, &[between(0, 1, bytes, Some(LIGHT))], &[sink(1)], false);
            for (name, percentile) in [("50", 50.0), ("99", 99.0), ("99.9", 99.9)] {
                let ns = report.latency.value_at_percentile(percentile);
                let cell = self.cells.cell("latency", self.subject, "ns");
                let cell = cell.with("frame_bytes", bytes).with("percentile", name);
                cell.add(ns as f64, &report);
            }
        }
    }

    /// Measures a guest to the underlay and back. Sluice promises no loss: a loss is an error.
    fn vxlan(&mut self, bench: &mut Bench, underlay: usize) -> anyhow::Result<()> {
        for bytes in [64, 1450] {
            let out = Source {
                guest: 0,
                pair: 0,
                template: frame::plain(end(0), REMOTE, bytes),
                skip: 0,
                rate: None,
                flows: 1,
            };
            let sinks = [Sink { skip: VXLAN_BYTES, ..sink(underlay) }];
            self.vxlan_way(bench, ("vxlan_encap", "out"), (&out, &sinks), bytes)?;
            let inner = frame::plain(REMOTE, end(0), bytes);
            let back = Source {
                guest: underlay,
                pair: 0,
                template: frame::vxlan(VTEPS[0], VTEPS[1], VNI, &inner),
                skip: VXLAN_BYTES,
                rate: None,
                flows: 1,
            };
            self.vxlan_way(bench, ("vxlan_decap", "in"), (&back, &[sink(0)]), bytes)?;
        }
        Ok(())
    }

    fn vxlan_way(
        &mut self,
        bench: &mut Bench,
        (measure, direction): (&str, &str),
        (source, sinks): (&Source, &[Sink]),
        bytes: usize,
    ) -> anyhow::Result<()> {
        let before = bench.busy_ns(self.subject)?;
        let report = self.run(&mut bench.load, std::slice::from_ref(source), sinks, false);
        self.path(measure, direction, bytes, false, &report);
        self.busy(measure, before, bench, &report, (bytes, false))?;
        let (lost, disordered) = (report.lost(), report.disordered());
        let is_kept = self.subject != Subject::Sluice || (lost, disordered) == (0, 0);
        anyhow::ensure!(is_kept, "{measure}: {lost} frames lost, {disordered} out of order");
        Ok(())
    }

    fn idle_cpu(&mut self, bench: &Bench, wiring: Wiring) -> anyhow::Result<()> {
        let (before, begin) = (processor_seconds(bench.pid())?, Instant::now());
        std::thread::sleep(IDLE);
        let used = processor_seconds(bench.pid())? - before;
        let cell = self.cells.cell("idle_cpu", self.subject, "cores");
        cell.with("ports", wiring.ports()).add_plain(used / begin.elapsed().as_secs_f64());
        Ok(())
    }
}
