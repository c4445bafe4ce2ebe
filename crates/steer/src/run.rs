//! The loop: look, decide, carry out, tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluice_base::Priority;
use sluice_placement::{
    Config, Core, CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Move, Placement, Share,
};
use sluice_ports::machines;

use crate::cli::Arguments;
use crate::device::{self, Way};
use crate::drill::Drill;
use crate::report::{Report, State};
use crate::rps::Rps;
use crate::stat::{self, Did};
use crate::waits::Waits;
use crate::xdp::{Program, Settings, Work};

/// Of high priority are these buckets: a quarter, where there are networks of high priority.
const HIGH: Priority = Priority::new(7).unwrap();
/// A packet is behind its queue, but may not be in its socket yet: so long a pause is waited for,
/// and so long a one from half of the patience on.
const SETTLE: Duration = Duration::from_millis(2);
const HURRY: Duration = Duration::from_micros(50);
/// How long flows that do not pause are waited for at the end.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// How often vCPUs are looked for.
const PINNING_EVERY: Duration = Duration::from_secs(1);
/// What a packet takes at least and at most, in nanoseconds: a guess outside of it comes from work
/// that is none of ours.
const PACKET_NS: (u64, u64) = (200, 50_000);

/// How packets get to their cores.
enum By {
    Program(Box<Program>),
    Rps(Rps),
}

struct Steering<'a> {
    arguments: &'a Arguments,
    by: By,
    cores: stat::Cores,
    numbers: Vec<u16>,
    placement: Placement,
    high_from: u32,
    last: Vec<Work>,
    looked: Instant,
    /// Averaged.
    packet_ns: u64,
    vcpus: BTreeSet<u16>,
    waits: Waits,
    drill: Option<Drill>,
    report: Report,
}

pub(crate) fn run(arguments: &Arguments, time: Option<Duration>) -> anyhow::Result<()> {
    device::check(&arguments.device)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut steering = Steering::new(arguments)?;
    let (begin, period) = (Instant::now(), Duration::from_millis(arguments.period_ms.into()));
    let (mut next, mut next_pinning) = (begin + period, begin + PINNING_EVERY);
    while !stop.load(Ordering::Relaxed) && time.is_none_or(|time| begin.elapsed() < time) {
        steering.drill()?;
        let left = steering.due(next).saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left.min(Duration::from_millis(50)));
            continue;
        }
        if Instant::now() < next {
            continue;
        }
        next += period;
        if Instant::now() >= next_pinning {
            next_pinning += PINNING_EVERY;
            steering.look_for_machines()?;
        }
        steering.period()?;
    }
    if let By::Program(program) = &mut steering.by {
        program.release(RELEASE_MAX)?;
    }
    steering.report.finish()
}

/// The cores that may do the work.
fn usable(arguments: &Arguments, online: &[u16]) -> anyhow::Result<Vec<u16>> {
    let Some(asked) = &arguments.cores else { return Ok(online.to_vec()) };
    for core in &asked.0 {
        ensure!(online.contains(core), "core {core} is not online; there are {online:?}");
    }
    ensure!(!asked.0.is_empty(), "--cores: no core is left for the work");
    Ok(asked.0.clone())
}

impl<'a> Steering<'a> {
    fn new(arguments: &'a Arguments) -> anyhow::Result<Self> {
        let cores = stat::Cores::new()?;
        let numbers = cores.numbers();
        let usable = usable(arguments, &numbers)?;
        let high = if arguments.high.is_empty() { 0 } else { arguments.buckets / 4 };
        let mut config = Config::new(arguments.mode, arguments.buckets);
        config.high_from = Some(HIGH);
        // The kernel's path has no second stage that could be placed apart.
        config.split_at = None;
        let vcpus = vcpu_cores(arguments);
        let core = |number: &u16| Core {
            number: *number,
            runs_vcpu: vcpus.contains(number),
            excluded: !usable.contains(number),
        };
        let all: Vec<Core> = numbers.iter().map(core).collect();
        if arguments.mode == Mode::Predetermined && high > 0 {
            // The first core without a machine is for the networks of high priority.
            let first = all.iter().position(|core| !core.runs_vcpu && !core.excluded);
            let first = first.context("predetermined: every core runs a machine")?;
            config.reserved = vec![(HIGH, CoreIndex(u16::try_from(first)?))];
        }
        let placement = Placement::new(config, &all).map_err(|error| anyhow::anyhow!("{error}"))?;
        let by = attach(arguments, &usable, high)?;
        let every = arguments.drill_ms.map(|every| Duration::from_millis(every.into()));
        ensure!(
            every.is_none() || matches!(by, By::Program(_)),
            "--drill-ms needs the program: RPS has no buckets"
        );
        let drill = every.map(|every| Drill::new(every, usable, arguments.buckets));
        let report = Report::new(arguments, &by.name());
        let mut new = Self {
            arguments,
            by,
            cores,
            numbers,
            placement,
            high_from: arguments.buckets - high,
            last: vec![Work::default(); arguments.buckets as usize],
            looked: Instant::now(),
            packet_ns: 2_000,
            vcpus,
            waits: Waits::new(machines::pinned()),
            drill,
            report,
        };
        new.mask()?;
        Ok(new)
    }

    /// Machines come and go.
    fn look_for_machines(&mut self) -> anyhow::Result<()> {
        self.waits.set(machines::pinned());
        let now = vcpu_cores(self.arguments);
        if now == self.vcpus {
            return Ok(());
        }
        self.vcpus = now;
        for (at, number) in (0..).zip(self.numbers.clone()) {
            let excluded = self.is_excluded(number);
            self.placement.set_core(CoreIndex(at), self.vcpus.contains(&number), excluded);
        }
        self.mask()
    }

    fn is_excluded(&self, core: u16) -> bool {
        self.arguments.cores.as_ref().is_some_and(|cores| !cores.0.contains(&core))
    }

    /// With RPS: the cores without machines; all that may, if every one has some.
    fn mask(&mut self) -> anyhow::Result<()> {
        let may = |core: &u16| !self.is_excluded(*core);
        let usable: Vec<u16> = self.numbers.iter().copied().filter(may).collect();
        let free: Vec<u16> =
            usable.iter().copied().filter(|core| !self.vcpus.contains(core)).collect();
        let knows_pinning = !matches!(self.arguments.mode, Mode::Rss | Mode::RssPlusPlus);
        let By::Rps(rps) = &mut self.by else { return Ok(()) };
        rps.set(if free.is_empty() || !knows_pinning { &usable } else { &free })
    }

    /// When there is something to do, if decisions come at `next`.
    fn due(&self, next: Instant) -> Instant {
        self.drill.as_ref().map_or(next, |drill| drill.due().min(next))
    }

    fn drill(&mut self) -> anyhow::Result<()> {
        let (Some(drill), By::Program(program)) = (&mut self.drill, &mut self.by) else {
            return Ok(());
        };
        drill.turn(program, |bucket| self.placement.entry(EntryId(bucket)).is_some())
    }

    fn period(&mut self) -> anyhow::Result<()> {
        let did = self.cores.look()?;
        let now = Instant::now();
        let period_ns = u64::try_from((now - self.looked).as_nanos()).unwrap_or(u64::MAX);
        self.looked = now;
        let By::Program(program) = &mut self.by else {
            return self.report.tell(&State::of_cores(&self.numbers, &did, &self.vcpus));
        };
        let work = program.work()?;
        let packets: Vec<u64> =
            work.iter().zip(&self.last).map(|(new, old)| new.packets - old.packets).collect();
        self.last = work;
        self.packet_ns = packet_cost(self.packet_ns, &did, &packets, period_ns);
        let load = |packets: u64| EntryLoad {
            decap: Share::of_period(packets.saturating_mul(self.packet_ns), period_ns),
            deliver: Share::ZERO,
        };
        let loads: Vec<EntryLoad> = packets.iter().map(|packets| load(*packets)).collect();
        let mut moves: Vec<Move> = Vec::new();
        for (bucket, _) in (0..).zip(&packets).filter(|(_, packets)| **packets > 0) {
            let entry = EntryId(bucket);
            if self.placement.entry(entry).is_none() {
                let priority = if bucket >= self.high_from { HIGH } else { Priority::ZERO };
                moves.push(self.placement.place(entry, priority));
            }
        }
        let waits = self.waits.look(period_ns);
        let foreign = foreign(&self.placement, &self.numbers, &did, &waits);
        if self.drill.is_none() {
            self.placement.period(&foreign, &loads, &mut moves);
        }
        for change in &moves {
            program.want(change.entry.0, self.numbers[change.core.index()])?;
        }
        let mut state = State::of_cores(&self.numbers, &did, &self.vcpus);
        state.placed(&self.placement, program.counts()?, self.packet_ns);
        if let Some(drill) = &self.drill {
            state.drilled(drill.ordered());
        }
        self.report.moves(&moves, &self.numbers);
        self.report.tell(&state)
    }
}

impl By {
    fn name(&self) -> String {
        match self {
            Self::Program(_) => "XDP and CPU map".to_owned(),
            Self::Rps(_) => "RPS".to_owned(),
        }
    }
}

fn vcpu_cores(arguments: &Arguments) -> BTreeSet<u16> {
    match &arguments.vcpus {
        Some(cores) => cores.0.iter().copied().collect(),
        None => machines::pinned_cores(),
    }
}

fn attach(arguments: &Arguments, cores: &[u16], high: u32) -> anyhow::Result<By> {
    let settings = Settings {
        settle_ns: u64::try_from(SETTLE.as_nanos())?,
        hurry_ns: u64::try_from(HURRY.as_nanos())?,
        patience_ns: u64::from(arguments.patience_ms) * 1_000_000,
        buckets: arguments.buckets,
        high,
        port: arguments.port,
        high_networks: arguments.high.clone(),
    };
    let device = arguments.device.as_str();
    let program = |native| {
        Program::attach(device, native, cores, &settings)
            .map(|program| By::Program(Box::new(program)))
    };
    let rps = || Rps::new(device).map(By::Rps);
    match arguments.xdp {
        Way::Native => program(true),
        Way::Generic => program(false),
        Way::Rps => rps(),
        Way::Auto => {
            if !device::is_virtual(device)
                && let Ok(by) = program(true)
            {
                return Ok(by);
            }
            program(false).or_else(|error| {
                eprintln!("no XDP here, RPS instead: {error:#}");
                rps()
            })
        }
    }
}

/// What a packet takes: what the kernel did on all cores, for all packets.
fn packet_cost(before: u64, did: &BTreeMap<u16, Did>, packets: &[u64], period_ns: u64) -> u64 {
    let all: u64 = packets.iter().sum();
    // Too few to tell from the rest.
    if all < 1_000 {
        return before;
    }
    let kernel: u64 =
        did.values().map(|did| u64::from(did.softirq.0) + u64::from(did.kernel.0)).sum();
    let cost = kernel.saturating_mul(period_ns) / 1_000_000 / all;
    (before * 3 + cost.clamp(PACKET_NS.0, PACKET_NS.1)) / 4
}

/// What each core did beside placed work: what the kernel did there beyond it, and all programs.
fn foreign(
    placement: &Placement,
    numbers: &[u16],
    did: &BTreeMap<u16, Did>,
    waits: &BTreeMap<u16, Share>,
) -> Vec<CoreLoad> {
    let of_core = |(at, number): (u16, &u16)| {
        let did = did.get(number).copied().unwrap_or_default();
        let (placed, _) = placement.load_of(CoreIndex(at));
        let softirq = did.softirq.plus(did.kernel).minus(placed);
        let wait = waits.get(number).copied().unwrap_or_default();
        CoreLoad { user: did.user, softirq, wait }
    };
    (0..).zip(numbers).map(of_core).collect()
}
