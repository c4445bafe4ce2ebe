//! Hosts with more work than time: softirq work comes first, vCPUs get the remainder.

use proptest::prelude::*;
use sluice_base::Priority;
use sluice_placement::{
    Config, Core, CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Move, Placement, Share,
};

const HIGH: Priority = Priority::new(6).unwrap();
const WHOLE: u32 = 1_000_000;

/// A host on which every core runs machines: the demand of its entries, and of its vCPUs.
struct Host {
    placement: Placement,
    /// Demand of each entry, in hundredths of a core.
    offered: Vec<u32>,
    /// Demand of each core's vCPUs, in hundredths.
    needed: Vec<u32>,
    /// Cores on which vCPUs starved in the last period.
    starved: Vec<usize>,
}

impl Host {
    fn new(needed: &[u32], entries: &[(u32, usize, bool)]) -> Self {
        let core = |number| Core { number, runs_vcpu: true, ..Core::default() };
        let cores: Vec<Core> = (0..).take(needed.len()).map(core).collect();
        let config = Config { high_from: Some(HIGH), ..Config::new(Mode::Adaptive, 64) };
        let mut placement = Placement::new(config, &cores).unwrap();
        for (entry, (_, receiver, is_high)) in (0..).map(EntryId).zip(entries) {
            let receiver = CoreIndex(u16::try_from(receiver % needed.len()).unwrap());
            placement.set_receiver(entry, Some(receiver));
            placement.place(entry, if *is_high { HIGH } else { Priority::ZERO });
        }
        let offered = entries.iter().map(|entry| entry.0).collect();
        Self { placement, offered, needed: needed.to_vec(), starved: Vec::new() }
    }

    /// Entries of a full core get a part of their demand, vCPUs the rest.
    fn period(&mut self) -> Vec<Move> {
        let mut wanted = vec![0; self.needed.len()];
        for (entry, state) in self.placement.entries() {
            let share = self.offered[entry.index()] * 10_000;
            wanted[state.core.index()] += share / 10 * 9;
            wanted[state.delivery.unwrap_or(state.core).index()] += share / 10;
        }
        let served = |core: usize, share: u32| {
            let all = u64::from(wanted[core].max(WHOLE));
            Share(u32::try_from(u64::from(share) * u64::from(WHOLE) / all).unwrap())
        };
        let mut loads = vec![EntryLoad::default(); self.offered.len()];
        for (entry, state) in self.placement.entries() {
            let share = self.offered[entry.index()] * 10_000;
            let (core, other) = (state.core, state.delivery.unwrap_or(state.core));
            let decap = served(core.index(), share / 10 * 9);
            loads[entry.index()] = EntryLoad { decap, deliver: served(other.index(), share / 10) };
        }
        let load = |core: usize| {
            let need = self.needed[core] * 10_000;
            let user = need.min(WHOLE.saturating_sub(wanted[core]));
            let wait = Share(if user < need { WHOLE - user } else { 0 });
            CoreLoad { user: Share(user), softirq: Share::ZERO, wait }
        };
        let cores: Vec<CoreLoad> = (0..self.needed.len()).map(load).collect();
        let starves = |core: &usize| cores[*core].user.0 * 64 < cores[*core].wait.0;
        self.starved = (0..cores.len()).filter(starves).collect();
        let mut moves = Vec::new();
        self.placement.period(&cores, &loads, &mut moves);
        moves
    }

    fn settle(&mut self) {
        (0..400).for_each(|_| _ = self.period());
    }

    fn at(&self, entry: u32) -> usize {
        self.placement.entry(EntryId(entry)).unwrap().core.index()
    }
}

#[test]
fn what_is_too_much_goes_to_one_core() {
    // Each core has two machines, and work for more than a whole core.
    let entries: Vec<(u32, usize, bool)> = (0..8).map(|at| (80, at % 4, false)).collect();
    let mut host = Host::new(&[15; 4], &entries);
    host.period();
    assert_eq!(host.starved.len(), 4, "spread evenly, all of them starve");
    host.settle();
    assert_eq!(host.starved.len(), 1, "{:?}", host.starved);
    assert_eq!(host.placement.overflow_core().map(CoreIndex::index), Some(host.starved[0]));
    // With less work, all of it goes back.
    host.offered.fill(30);
    host.settle();
    assert_eq!((host.starved.len(), host.placement.overflow_core()), (0, None));
}

#[test]
fn high_priority_entry_kept_off_starved_core() {
    let entries: Vec<(u32, usize, bool)> = (0..8).map(|at| (90, at % 4, at == 0)).collect();
    let mut host = Host::new(&[20; 4], &entries);
    host.settle();
    assert!(!host.starved.contains(&0), "{:?}", host.starved);
    let alone = (1..8).all(|entry| host.at(entry) != host.at(0));
    assert!(alone, "entry 0 shares core {}", host.at(0));
}

#[test]
fn oversized_entry_moves_to_receiver_core_first() {
    // Entry 0 is received on core 1, and harms others on core 0.
    let mut host = Host::new(&[10, 10], &[(120, 1, false), (10, 0, false)]);
    host.settle();
    assert_eq!(host.starved.len(), 1);
    assert_eq!(host.at(0), host.starved[0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// With constant work moves end, and one core has the overflow.
    #[test]
    fn machines_starve_on_one_core_at_most(
        needed in proptest::collection::vec(3..25_u32, 2..6),
        entries in proptest::collection::vec((5..130_u32, 0..6_usize, Just(false)), 1..14),
    ) {
        let mut host = Host::new(&needed, &entries);
        host.settle();
        let mut moves = Vec::new();
        for _ in 0..40 {
            moves.extend(host.period());
        }
        prop_assert!(moves.is_empty(), "{:?}", moves);
        prop_assert!(host.starved.len() <= 1, "{:?} starve", host.starved);
    }
}
