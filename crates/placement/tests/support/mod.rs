//! Hosts with cores and entries for the tests, and a checker of the rules that shares no code with
//! the crate.
#![allow(dead_code, reason = "each test takes its part")]

use proptest::prelude::*;
use sluice_base::{Priority, mix};
use sluice_placement::Mode;
use sluice_placement::{
    Config, Core, CoreIndex, CoreLoad, EntryId, EntryLoad, Move, Placement, Share,
};

/// A host and the loads of its entries.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) cores: Vec<(Core, CoreLoad)>,
    /// Load, and whether its priority is high.
    pub(crate) entries: Vec<(EntryLoad, bool)>,
    /// NUMA node of the card.
    pub(crate) node: Option<u16>,
}

pub(crate) fn worlds() -> impl Strategy<Value = Host> {
    let core = (prop_oneof![3 => Just(false), 2 => Just(true)], 0..60_u32, 0..30_u32);
    let load = prop_oneof![6 => 0..8_u32, 3 => 5..30_u32, 1 => 30..120_u32];
    let entry = (load, 0..100_u32, prop_oneof![5 => Just(false), 1 => Just(true)]);
    let cores = proptest::collection::vec(core, 1..10);
    let entries = proptest::collection::vec(entry, 0..40);
    // Threads of a physical core, and cores of a node, if there are several of them.
    let shape = (prop_oneof![Just(1_u16), Just(2)], prop_oneof![Just(1_u16), Just(4)]);
    let node = prop_oneof![Just(None), Just(Some(0)), Just(Some(1))];
    (cores, entries, shape, node).prop_map(|(cores, entries, shape, node)| Host {
        cores: cores
            .iter()
            .zip(0..)
            .map(|(core, number)| make_core(*core, number, shape))
            .collect(),
        entries: entries.into_iter().map(make_entry).collect(),
        node,
    })
}

fn make_core(
    (runs_vcpu, user, softirq): (bool, u32, u32),
    number: u16,
    (threads, node): (u16, u16),
) -> (Core, CoreLoad) {
    let user = Share::percent(if runs_vcpu { user } else { user / 6 });
    let physical = (threads > 1).then_some(number / threads);
    let node = (node > 1).then_some(number / node);
    let core = Core { number, physical, node, runs_vcpu, excluded: false };
    (core, CoreLoad { user, softirq: Share::percent(softirq / 6), wait: Share::ZERO })
}

fn make_entry((load, decap, is_high): (u32, u32, bool)) -> (EntryLoad, bool) {
    let whole = Share::percent(load).0;
    let decap = Share(whole / 100 * decap);
    (EntryLoad { decap, deliver: Share(whole - decap.0) }, is_high)
}

/// A running host.
pub(crate) struct World {
    pub(crate) world: Host,
    pub(crate) config: Config,
    pub(crate) placement: Placement,
    pub(crate) log: Vec<Move>,
    excluded: Vec<bool>,
    loads: Vec<EntryLoad>,
}

pub(crate) const HIGH: u8 = 6;

impl World {
    pub(crate) fn start(world: &Host, mode: Mode) -> Self {
        let mut config = Config::new(mode, 64);
        config.high_from = Priority::new(HIGH);
        config.node = world.node;
        // Few, so that the limit matters.
        config.moves_max = 3;
        let cores: Vec<Core> = world.cores.iter().map(|core| core.0).collect();
        let mut placement = Placement::new(config.clone(), &cores).unwrap();
        // The cores' loads are known before the first packet comes.
        let foreign: Vec<CoreLoad> = world.cores.iter().map(|core| core.1).collect();
        (0..40).for_each(|_| placement.period(&foreign, &[], &mut Vec::new()));
        for (at, (_, is_high)) in (0..).zip(&world.entries) {
            let priority = Priority::new(if *is_high { HIGH } else { 0 }).unwrap();
            placement.place(EntryId(at), priority);
        }
        let excluded = vec![false; cores.len()];
        let loads = world.entries.iter().map(|entry| entry.0).collect();
        Self { world: world.clone(), config, placement, log: Vec::new(), excluded, loads }
    }

    /// Runs one period; returns the number of moves.
    pub(crate) fn period(&mut self) -> usize {
        let foreign: Vec<CoreLoad> = self.world.cores.iter().map(|core| core.1).collect();
        let before = self.log.len();
        self.placement.period(&foreign, &self.loads, &mut self.log);
        self.log.len() - before
    }

    /// Changes loads by a tenth up or down, at most two hundredths of a core in all.
    pub(crate) fn shake(&mut self, noise: u64, period: u64) {
        let most = 20_000 / u32::try_from(self.loads.len().max(1)).unwrap();
        for (at, (load, (before, _))) in self.loads.iter_mut().zip(&self.world.entries).enumerate()
        {
            let up = mix(noise ^ period << 32 ^ at as u64) & 1 == 0;
            let by = (before.decap.0 / 10).min(most);
            load.decap = Share(if up { before.decap.0 + by } else { before.decap.0 - by });
        }
    }

    /// Sets loads at random.
    pub(crate) fn storm(&mut self, noise: u64, period: u64) {
        for (at, load) in self.loads.iter_mut().enumerate() {
            let drawn = mix(noise ^ period << 32 ^ at as u64);
            let share = |bits: u64| Share(u32::try_from(bits % 600_000).unwrap());
            *load = EntryLoad { decap: share(drawn), deliver: share(drawn >> 32) };
        }
    }

    /// Excludes a core. Returns false if it is the last one.
    pub(crate) fn exclude(&mut self, core: usize) -> bool {
        let is = self.world.cores[core].0;
        let index = CoreIndex(u16::try_from(core).unwrap());
        self.excluded[core] = self.placement.set_core(index, is.runs_vcpu, true);
        self.excluded[core]
    }

    pub(crate) fn entries_on(&self, core: usize) -> usize {
        let on = |at: CoreIndex| at.index() == core;
        let all = self.placement.entries();
        all.filter(|(_, s)| on(s.core) || s.delivery.is_some_and(on)).count()
    }
}

/// Loads of each core, summed up from the nominal loads of entries.
fn totals(run: &World) -> Vec<(u64, u64, u32)> {
    let foreign = |load: &CoreLoad| u64::from(load.user.0) + u64::from(load.softirq.0);
    let mut sums: Vec<(u64, u64, u32)> =
        run.world.cores.iter().map(|(_, load)| (foreign(load), foreign(load), 0)).collect();
    for (entry, state) in run.placement.entries() {
        let (load, is_high) = run.world.entries[entry.index()];
        let parts = match state.delivery {
            None => vec![(state.core, load.sum())],
            Some(there) => vec![(state.core, load.decap), (there, load.deliver)],
        };
        for (core, share) in parts {
            let sum = &mut sums[core.index()];
            sum.0 += u64::from(share.0);
            if is_high {
                sum.1 += u64::from(share.0);
                sum.2 += 1;
            }
        }
    }
    sums
}

/// The first broken rule, in words.
pub(crate) fn broken_rule(run: &World) -> Option<String> {
    let sums = totals(run);
    let limit = u64::from(run.config.full_at.0);
    // Averages end a few millionths off.
    let spare = u64::from(run.config.hysteresis.0) + 1_000;
    for (entry, state) in run.placement.entries().filter(|(_, state)| state.delivery.is_none()) {
        let (load, is_high) = run.world.entries[entry.index()];
        let has_room = |core: usize| {
            let there = if is_high { sums[core].1 } else { sums[core].0 };
            !run.excluded[core] && there + u64::from(load.sum().0) + spare <= limit
        };
        let is_vm = |core: usize| run.world.cores[core].0.runs_vcpu;
        let others = || (0..sums.len()).filter(|core| *core != state.core.index());
        let here = state.core.index();
        if run.excluded[here] {
            return Some(format!("{entry:?} is on an excluded core"));
        }
        if is_vm(here)
            && let Some(free) = others().find(|core| !is_vm(*core) && has_room(*core))
        {
            return Some(format!("{entry:?} is on core {here} with a vCPU, and {free} is free"));
        }
        let highs = |core: usize| sums[core].2 - u32::from(is_high && core == here);
        let alone = |core: &usize| !is_vm(*core) && highs(*core) == 0 && has_room(*core);
        if highs(here) > 0
            && let Some(free) = others().find(alone)
        {
            let kind = if is_high { "two of high priority are" } else { "it is with a high one" };
            return Some(format!("{entry:?}: {kind} on core {here}, and {free} is free"));
        }
        let physical = |core: usize| run.world.cores[core].0.physical;
        let is_beside = |core: usize| {
            let mut all = (0..sums.len()).filter(|other| *other != core);
            physical(core).is_some()
                && all.any(|other| {
                    physical(other) == physical(core) && (is_vm(other) || highs(other) > 0)
                })
        };
        let apart = |core: &usize| alone(core) && !is_beside(*core);
        if (is_vm(here) || is_beside(here))
            && let Some(free) = others().find(apart)
        {
            return Some(format!("{entry:?} is on core {here} beside others, and {free} is apart"));
        }
        let is_far = |core: usize| {
            let there = run.world.cores[core].0.node;
            there.is_some() && run.world.node.is_some() && there != run.world.node
        };
        let near = |core: &usize| apart(core) && !is_far(*core);
        if is_far(here)
            && let Some(free) = others().find(near)
        {
            return Some(format!(
                "{entry:?} is on core {here} of another node, and {free} is near"
            ));
        }
    }
    None
}

/// Load of the core that has most.
pub(crate) fn fullest(run: &World) -> u64 {
    totals(run).into_iter().map(|sum| sum.0).max().unwrap_or(0)
}
