//! The loop: measure, decide, carry out, report.

mod mechanism;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use sluice_api::placement::{PolicyFile, PolicyVersion};
use sluice_base::Priority;
use sluice_cpus::{machines, topology};
use sluice_placement::{
    Core, CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Move, Placement, Share,
};

use crate::cli::Arguments;
use crate::device;
use crate::drill::Drill;
use crate::due::Due;
use crate::follow::{Follow, Found};
use crate::force::EffectivePolicy;
use crate::placing::{self, HIGH, Plan};
use crate::report::{self, Report, State, warn};
use crate::rules::{MATCHES_MAX, Rules};
use crate::stat::{self, CoreTime};
use crate::status::StatusFile;
use crate::waits::Waits;
use crate::xdp::Work;

use self::mechanism::{By, attach};

/// Limit of the wait at the end for flows that do not pause.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// Interval of looks for vCPUs and another policy, and of reports: the control process ignores a
/// status older than 5 s.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Time of silence after which a bucket of high priority gives its core up.
const FORGET_AFTER_MS: u32 = 5_000;
/// Minimum and maximum cost of a packet, in nanoseconds: an estimate outside comes from other work.
const PACKET_NS: (u64, u64) = (200, 50_000);

struct Steering<'a> {
    arguments: &'a Arguments,
    follow: Option<Follow>,
    status: Option<StatusFile>,
    force: EffectivePolicy,
    /// Rules that the program does not take yet, and the stamp of their policy.
    waiting: Option<(Rules, PolicyVersion)>,
    by: By,
    cores: stat::Cores,
    numbers: Vec<u16>,
    /// Cores that may do the work, according to the arguments.
    usable: Vec<u16>,
    /// NUMA node of the device.
    node: Option<u16>,
    placement: Placement,
    /// Plan of `placement`.
    plan: Plan,
    /// True if the newest rules have flows of high priority, also while they wait.
    wants_high: bool,
    high_from: u32,
    /// Number of silent periods of each bucket of high priority.
    silent: Vec<u32>,
    last: Vec<Work>,
    looked: Instant,
    /// Use of each core in the last period.
    did: BTreeMap<u16, CoreTime>,
    /// Average cost of a packet.
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
    let end = time.map(|time| Instant::now() + time);
    let is_over = || stop.load(Ordering::Relaxed) || end.is_some_and(|end| Instant::now() >= end);
    let mut ended = steering.begin().and_then(|()| steering.go_on(is_over));
    let last = steering.state();
    // For any end: packets that wait for a core must not be overtaken.
    let released = steering.release();
    if ended.is_ok() {
        ended = last.and_then(|last| steering.report.tell(&last)).and(released);
    }
    match ended {
        Err(error) if report::is_closed(&error) => Ok(()),
        ended => ended,
    }
}

/// Returns the cores that may do the work.
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
        ensure!(
            arguments.high_flow.len() <= MATCHES_MAX,
            "--high-flow: {} matches, {MATCHES_MAX} are the most; name networks instead of flows",
            arguments.high_flow.len()
        );
        let cores = stat::Cores::new()?;
        let numbers = cores.numbers();
        let usable = usable(arguments, &numbers)?;
        let mut follow = arguments.follow.as_deref().map(Follow::new);
        let kept = follow.as_mut().and_then(policy);
        let mut force = EffectivePolicy::new(arguments, kept.as_deref(), &usable);
        let (buckets, device) = (arguments.buckets, arguments.device.as_str());
        // Matches may come later.
        let may_be_high = follow.is_some() || force.has_high();
        let high = if may_be_high { buckets / 4 } else { 0 };
        let vcpus = vcpu_cores(arguments);
        let all = all_cores(&numbers, &usable, &force, &vcpus);
        let plan = Plan::new(force.mode, force.has_high(), &all);
        let node = topology::node_of_device(device);
        let placement = plan.placement((buckets, node), &all)?;
        if let Some(note) = plan.note {
            ensure!(follow.is_some(), note);
        }
        let by = attach(arguments, &usable, high, &force.rules)?;
        by.note(&mut force);
        let every = arguments.drill_ms.map(|every| Duration::from_millis(every.into()));
        ensure!(
            every.is_none() || matches!(by, By::Program(_)),
            "--drill-ms needs the program: RPS has no buckets"
        );
        let drill = every.map(|every| Drill::new(every, usable.clone(), buckets));
        let status = follow.as_ref().map(|follow| StatusFile::new(follow.folder(), device));
        let mut new = Self {
            arguments,
            follow,
            status,
            wants_high: force.has_high(),
            force,
            waiting: None,
            by,
            cores,
            numbers,
            usable,
            node,
            placement,
            plan,
            high_from: buckets - high,
            silent: vec![0; high as usize],
            last: vec![Work::default(); buckets as usize],
            looked: Instant::now(),
            did: BTreeMap::new(),
            packet_ns: 2_000,
            vcpus,
            waits: Waits::new(machines::pinned()),
            drill,
            report: Report::new(arguments.json),
        };
        new.mask()?;
        new.warn(&[]);
        Ok(new)
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        let (mode, by) = (self.force.mode.name(), self.by.name());
        let text = format!("{}: {mode} by {by}; Ctrl-C ends it", self.arguments.device);
        Ok(self.report.say(&text)?)
    }

    fn release(&mut self) -> anyhow::Result<()> {
        match &mut self.by {
            By::Program(program) => program.release(RELEASE_MAX),
            By::Rps(_) => Ok(()),
        }
    }

    /// Runs the periodic work until `is_over`.
    fn go_on(&mut self, is_over: impl Fn() -> bool) -> anyhow::Result<()> {
        let now = Instant::now();
        let period = Duration::from_millis(self.arguments.period_ms.into());
        let (mut periods, mut looks) = (Due::new(now, period), Due::new(now, LOOK_EVERY));
        while !is_over() {
            self.drill()?;
            let now = Instant::now();
            let next = self.due(periods.at().min(looks.at()));
            let left = next.saturating_duration_since(now);
            if !left.is_zero() {
                std::thread::sleep(left.min(Duration::from_millis(50)));
                continue;
            }
            let is_to_look = looks.is_due(now);
            if is_to_look {
                self.look_for_machines()?;
                self.look_for_policy()?;
            }
            if periods.is_due(now) {
                self.period()?;
                periods.done(Instant::now());
            }
            if is_to_look {
                self.tell()?;
                looks.done(Instant::now());
            }
        }
        Ok(())
    }

    /// Checks for another policy.
    fn look_for_policy(&mut self) -> anyhow::Result<()> {
        if let Some((rules, stamp)) = self.waiting.take() {
            self.set_rules(rules, stamp)?;
        }
        let Some(kept) = self.follow.as_mut().and_then(policy) else { return Ok(()) };
        let mut wanted = EffectivePolicy::new(self.arguments, Some(&kept), &self.usable);
        self.by.note(&mut wanted);
        self.apply(wanted)
    }

    /// Puts other settings in force.
    fn apply(&mut self, mut wanted: EffectivePolicy) -> anyhow::Result<()> {
        let notes = self.notes();
        let (rules, stamp) = (wanted.rules.clone(), wanted.stamp);
        self.wants_high = wanted.has_high();
        self.report.say(&format!(
            "policy {} of host {}: {}, excluded cores {:?}, {} matches of high priority",
            wanted.stamp.version,
            wanted.stamp.by,
            wanted.mode.name(),
            wanted.excluded,
            wanted.rules.matches.len()
        ))?;
        // Until the program has the rules, the earlier ones stay in force.
        std::mem::swap(&mut self.force, &mut wanted);
        (self.force.rules, self.force.stamp) = (wanted.rules, wanted.stamp);
        self.arrange()?;
        self.warn(&notes);
        self.mask()?;
        self.set_rules(rules, stamp)
    }

    /// Sets the flows of high priority, as soon as the program takes them.
    fn set_rules(&mut self, rules: Rules, stamp: PolicyVersion) -> anyhow::Result<()> {
        self.waiting = None;
        if let By::Program(program) = &mut self.by
            && !program.set_rules(&rules)?
        {
            self.waiting = Some((rules, stamp));
            return Ok(());
        }
        (self.force.rules, self.force.stamp) = (rules, stamp);
        Ok(())
    }

    /// Updates the placement's cores; builds a new placement if the plan changed.
    fn arrange(&mut self) -> anyhow::Result<()> {
        let all = all_cores(&self.numbers, &self.usable, &self.force, &self.vcpus);
        let plan = Plan::new(self.force.mode, self.wants_high, &all);
        if plan == self.plan {
            self.set_cores(&all);
            return Ok(());
        }
        let placement = plan.placement((self.arguments.buckets, self.node), &all)?;
        let old = std::mem::replace(&mut self.placement, placement);
        self.plan = plan;
        let moves = placing::carry_over(&old, &mut self.placement, self.force.mode);
        self.apply_moves(&moves)
    }

    /// Deviations from the settings, with reasons.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.force.notes.clone();
        notes.extend(self.plan.note.map(str::to_owned));
        notes
    }

    /// Prints deviations, unless they are in `before`.
    fn warn(&self, before: &[String]) {
        for note in self.notes().iter().filter(|note| !before.contains(note)) {
            warn(&format!("{}: {note}", self.arguments.device));
        }
    }

    /// Sets pinning and exclusion of each core. There must be a usable core at any time, so cores
    /// that become free come first.
    fn set_cores(&mut self, all: &[Core]) {
        for excluded in [false, true] {
            for (at, core) in (0..).zip(all).filter(|(_, core)| core.excluded == excluded) {
                self.placement.set_core(CoreIndex(at), core.runs_vcpu, excluded);
            }
        }
    }

    fn apply_moves(&mut self, moves: &[Move]) -> anyhow::Result<()> {
        if let By::Program(program) = &mut self.by {
            for change in moves {
                program.want(change.entry.0, self.numbers[change.core.index()])?;
            }
        }
        self.report.moves(moves, &self.numbers);
        Ok(())
    }

    /// Checks for machines that came or went.
    fn look_for_machines(&mut self) -> anyhow::Result<()> {
        self.waits.set(machines::pinned());
        let now = vcpu_cores(self.arguments);
        if now == self.vcpus {
            return Ok(());
        }
        self.vcpus = now;
        let notes = self.notes();
        self.arrange()?;
        self.warn(&notes);
        self.mask()
    }

    /// Sets the mask of RPS: the usable cores without machines, or all usable ones if each has a
    /// machine.
    fn mask(&mut self) -> anyhow::Result<()> {
        let may = |core: &u16| !self.force.excluded.contains(core);
        let usable: Vec<u16> = self.usable.iter().copied().filter(may).collect();
        let free: Vec<u16> =
            usable.iter().copied().filter(|core| !self.vcpus.contains(core)).collect();
        let knows_pinning = !matches!(self.force.mode, Mode::Rss | Mode::RssPlusPlus);
        let By::Rps(rps) = &mut self.by else { return Ok(()) };
        rps.set(if free.is_empty() || !knows_pinning { &usable } else { &free })
    }

    /// Time of the next work, if all but the drill comes at `next`.
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
        self.did = self.cores.look()?;
        let now = Instant::now();
        let period_ns = u64::try_from((now - self.looked).as_nanos()).unwrap_or(u64::MAX);
        self.looked = now;
        let By::Program(program) = &mut self.by else { return Ok(()) };
        // The queue of a core that went offline is processed on another one.
        if self.usable.iter().any(|core| !self.did.contains_key(core)) {
            program.trust_no_queue()?;
        }
        let work = program.work()?;
        let packets: Vec<u64> =
            work.iter().zip(&self.last).map(|(new, old)| new.packets - old.packets).collect();
        self.last = work;
        self.packet_ns = packet_cost(self.packet_ns, &self.did, &packets, period_ns);
        let load = |packets: u64| EntryLoad {
            decap: Share::of_period(packets.saturating_mul(self.packet_ns), period_ns),
            deliver: Share::ZERO,
        };
        let loads: Vec<EntryLoad> = packets.iter().map(|packets| load(*packets)).collect();
        let mut moves = self.place(&packets);
        let waits = self.waits.look(period_ns);
        let foreign = foreign(&self.placement, &self.numbers, &self.did, &waits);
        if self.drill.is_none() {
            self.placement.period(&foreign, &loads, &mut moves);
        }
        self.apply_moves(&moves)
    }

    /// Places buckets that had packets, and forgets silent ones of high priority, so that others
    /// get their cores.
    fn place(&mut self, packets: &[u64]) -> Vec<Move> {
        let mut moves = Vec::new();
        let silent_max = (FORGET_AFTER_MS / self.arguments.period_ms).max(1);
        for (bucket, packets) in (0..).zip(packets) {
            let entry = EntryId(bucket);
            let is_placed = self.placement.entry(entry).is_some();
            let high = bucket.checked_sub(self.high_from).map(|at| at as usize);
            if let Some(at) = high {
                let silent = &mut self.silent[at];
                *silent = if *packets > 0 { 0 } else { silent.saturating_add(1) };
                if is_placed && *silent > silent_max {
                    self.placement.remove(entry);
                }
            }
            if *packets > 0 && !is_placed {
                let priority = if high.is_some() { HIGH } else { Priority::ZERO };
                moves.push(self.placement.place(entry, priority));
            }
        }
        moves
    }

    /// The current state, with the loads of the last period.
    fn state(&self) -> anyhow::Result<State> {
        let mut notes = self.notes();
        if self.waiting.is_some() {
            notes.push("flows that do not pause hold other matches back".to_owned());
        }
        let mut state = State::of_cores(&self.force, notes, &self.numbers, &self.did, &self.vcpus);
        if let By::Program(program) = &self.by {
            state.placed(&self.placement, program.counts()?, self.packet_ns);
        }
        if let Some(drill) = &self.drill {
            state.drilled(drill.ordered());
        }
        Ok(state)
    }

    /// Reports the state: on standard output, and to the control process.
    fn tell(&mut self) -> anyhow::Result<()> {
        let state = self.state()?;
        self.report.tell(&state)?;
        if let Some(status) = &mut self.status {
            let may = |core| self.usable.contains(&core);
            let place = state.place(&self.arguments.device, self.by.kind(), &self.force, may);
            status.write(&place, state.notes());
        }
        Ok(())
    }
}

/// Returns the followed policy, if it is another one than before; prints errors.
fn policy(follow: &mut Follow) -> Option<Box<PolicyFile>> {
    match follow.look() {
        Found::New(kept) => Some(kept),
        Found::Same => None,
        Found::Nothing(why) => {
            warn(&why);
            None
        }
    }
}

/// All cores of this machine.
fn all_cores(
    numbers: &[u16],
    usable: &[u16],
    force: &EffectivePolicy,
    vcpus: &BTreeSet<u16>,
) -> Vec<Core> {
    let core = |number: &u16| {
        let seat = topology::of_cpu(*number);
        Core {
            number: *number,
            physical: seat.physical,
            node: seat.node,
            runs_vcpu: vcpus.contains(number),
            excluded: !usable.contains(number) || force.excluded.contains(number),
        }
    };
    numbers.iter().map(core).collect()
}

fn vcpu_cores(arguments: &Arguments) -> BTreeSet<u16> {
    match &arguments.vcpus {
        Some(cores) => cores.0.iter().copied().collect(),
        None => machines::pinned_cores(),
    }
}

/// Updates the average cost of a packet: the kernel's time on all cores, over all packets.
fn packet_cost(before: u64, did: &BTreeMap<u16, CoreTime>, packets: &[u64], period_ns: u64) -> u64 {
    let all: u64 = packets.iter().sum();
    // Too few to tell from other work.
    if all < 1_000 {
        return before;
    }
    let kernel: u64 =
        did.values().map(|did| u64::from(did.softirq.0) + u64::from(did.kernel.0)).sum();
    let cost = kernel.saturating_mul(period_ns) / 1_000_000 / all;
    (before * 3 + cost.clamp(PACKET_NS.0, PACKET_NS.1)) / 4
}

/// Load of each core beside placed work: other kernel work, and all programs.
fn foreign(
    placement: &Placement,
    numbers: &[u16],
    did: &BTreeMap<u16, CoreTime>,
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
