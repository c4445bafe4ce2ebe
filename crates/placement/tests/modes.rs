//! Behaviour of each mode, on small hosts where the answer is obvious.

use sluice_base::Priority;
use sluice_placement::{
    Config, ConfigError, Core, CoreIndex, CoreLoad, EntryId, EntryLoad, Mode, Move, Placement,
    Share, Why,
};

const HIGH: Priority = Priority::new(6).unwrap();
const LOW: Priority = Priority::ZERO;

/// Cores; those marked `v` run a vCPU.
fn cores(marks: &str) -> Vec<Core> {
    let core = |(number, mark)| Core { number, runs_vcpu: mark == 'v', ..Core::default() };
    (0..).zip(marks.chars()).map(core).collect()
}

fn config(mode: Mode) -> Config {
    Config { high_from: Some(HIGH), rest_periods: 0, ..Config::new(mode, 100) }
}

struct Run {
    placement: Placement,
    foreign: Vec<CoreLoad>,
    loads: Vec<EntryLoad>,
}

impl Run {
    fn new(config: Config, marks: &str) -> Self {
        let placement = Placement::new(config, &cores(marks)).unwrap();
        let foreign = vec![CoreLoad::default(); marks.len()];
        Self { placement, foreign, loads: vec![EntryLoad::default(); 100] }
    }

    /// Places an entry with a load in hundredths of a core, and returns its core.
    fn place(&mut self, entry: u32, priority: Priority, percent: u32) -> (u16, Why) {
        self.load(entry, percent);
        let made = self.placement.place(EntryId(entry), priority);
        (made.core.0, made.why)
    }

    fn load(&mut self, entry: u32, percent: u32) {
        let half = Share::percent(percent).0 / 2;
        self.loads[entry as usize] = EntryLoad { decap: Share(half), deliver: Share(half) };
    }

    fn period(&mut self) -> Vec<Move> {
        let mut moves = Vec::new();
        self.placement.period(&self.foreign, &self.loads, &mut moves);
        moves
    }

    fn settle(&mut self) -> Vec<Move> {
        (0..60).flat_map(|_| self.period()).collect()
    }

    fn at(&self, entry: u32) -> u16 {
        self.placement.entry(EntryId(entry)).unwrap().core.0
    }
}

#[test]
fn rss_knows_nothing_and_moves_nothing() {
    let mut run = Run::new(config(Mode::Rss), "vv..");
    for entry in 0..8 {
        assert_eq!(run.place(entry, HIGH, 60), (u16::try_from(entry % 4).unwrap(), Why::Hash));
    }
    assert_eq!(run.settle(), []);
}

#[test]
fn rss_plus_plus_balances_load_ignores_vcpu_pinning() {
    let mut run = Run::new(config(Mode::RssPlusPlus), "v.");
    // By hash all of them are on core 0.
    (0..4).for_each(|nth| assert_eq!(run.place(2 * nth, LOW, 20).0, 0));
    let moves = run.settle();
    assert!(moves.iter().all(|m| matches!(m.why, Why::Balance(_))), "{moves:?}");
    let on_first = (0..4).filter(|nth| run.at(2 * nth) == 0).count();
    assert_eq!(on_first, 2);
}

#[test]
fn balance_moves_the_entry_that_helps_most() {
    let mut run = Run::new(config(Mode::RssPlusPlus), "..");
    for (nth, percent) in (0..).zip([10, 30, 20]) {
        run.place(2 * nth, LOW, percent);
    }
    let moved: Vec<EntryId> = run.settle().iter().map(|m| m.entry).collect();
    assert_eq!(moved, [EntryId(2)], "half of the gap");
}

#[test]
fn assigned_in_advance_stays_so() {
    let reserved = vec![(HIGH, CoreIndex(2))];
    let mut run = Run::new(Config { reserved, ..config(Mode::Predetermined) }, "v...");
    assert_eq!(run.place(0, HIGH, 50), (2, Why::Reserved));
    assert_eq!(run.place(1, HIGH, 50), (2, Why::Reserved));
    // Not on the reserved core, and not on the machine's.
    assert_eq!(
        (2..8).map(|entry| run.place(entry, LOW, 50).0).collect::<Vec<_>>(),
        [1, 3, 1, 3, 1, 3]
    );
    assert_eq!(run.settle(), []);
}

#[test]
fn first_packet_prefers_least_loaded_core_without_vcpu() {
    let mut run = Run::new(config(Mode::OnTheFly), "v...");
    run.foreign[1].user = Share::percent(50);
    run.foreign[2].softirq = Share::percent(20);
    run.period();
    assert_eq!(run.place(0, LOW, 40), (3, Why::LeastLoaded));
    run.period();
    assert_eq!(run.place(1, LOW, 40), (2, Why::LeastLoaded));
    // It stays, though the loads change.
    run.foreign[3].user = Share::percent(40);
    assert_eq!(run.settle(), []);
}

#[test]
fn simultaneous_entries_spread_evenly_over_cores() {
    let mut run = Run::new(config(Mode::OnTheFly), "....");
    let mut counts = [0; 4];
    (0..40).for_each(|entry| counts[usize::from(run.place(entry, LOW, 1).0)] += 1);
    assert_eq!(counts, [10; 4]);
}

#[test]
fn vcpu_arriving_on_core_displaces_entry() {
    let mut run = Run::new(config(Mode::OnTheFly), "..");
    assert_eq!(run.place(0, LOW, 30).0, 0);
    run.period();
    assert!(run.placement.set_core(CoreIndex(0), true, false));
    let moves = run.period();
    assert_eq!(moves.len(), 1, "{moves:?}");
    assert_eq!((moves[0].core, moves[0].why), (CoreIndex(1), Why::LeavesVcpu));
}

#[test]
fn entry_on_vcpu_only_host_shares_idlest_core() {
    let mut run = Run::new(config(Mode::Adaptive), "vv");
    run.foreign[0].user = Share::percent(60);
    run.period();
    assert_eq!(run.place(0, LOW, 20).0, 1);
    assert_eq!(run.settle(), []);
}

#[test]
fn high_priority_entries_get_own_cores_displacing_others() {
    let mut run = Run::new(config(Mode::Adaptive), "v...");
    (0..6).for_each(|entry| _ = run.place(entry, LOW, 10));
    run.settle();
    assert_eq!(run.place(10, HIGH, 40).1, Why::OwnCore);
    assert_eq!(run.place(11, HIGH, 40).1, Why::OwnCore);
    let moves = run.settle();
    assert!(moves.iter().any(|m| m.why == Why::Displaced), "{moves:?}");
    assert_ne!(run.at(10), run.at(11));
    for entry in 0..6 {
        assert!(![0, run.at(10), run.at(11)].contains(&run.at(entry)), "entry {entry}");
    }
    // A third one has no core left for itself that runs no machine: the other entries make way.
    run.place(12, HIGH, 40);
    run.settle();
    let highs = [run.at(10), run.at(11), run.at(12)];
    assert!((1..4).all(|core| highs.contains(&core)), "{highs:?}");
}

#[test]
fn an_elephant_is_split_and_joined_again() {
    let mut run = Run::new(config(Mode::Adaptive), "v..");
    run.place(0, LOW, 120);
    let moves = run.settle();
    assert_eq!(moves.iter().filter(|m| m.why == Why::Split).count(), 1, "{moves:?}");
    let state = *run.placement.entry(EntryId(0)).unwrap();
    let delivery = state.delivery.expect("it is split");
    assert!(delivery != state.core && delivery != CoreIndex(0) && state.core != CoreIndex(0));
    let half = Share::percent(60);
    assert_eq!(run.placement.load_of(delivery).0, half);
    assert_eq!(run.placement.load_of(state.core).0, half);
    // A slightly lower load changes nothing.
    run.load(0, 70);
    assert_eq!(run.settle(), []);
    run.load(0, 30);
    let moves = run.settle();
    assert_eq!(moves.iter().map(|m| m.why).collect::<Vec<_>>(), [Why::Joined]);
    assert_eq!(run.placement.load_of(delivery).0, Share::ZERO);
}

#[test]
fn elephant_leaves_delivery_core_when_vcpu_arrives() {
    let mut run = Run::new(config(Mode::Adaptive), "....");
    run.place(0, LOW, 120);
    run.settle();
    let delivery = run.placement.entry(EntryId(0)).unwrap().delivery.unwrap();
    run.placement.set_core(delivery, true, false);
    run.settle();
    let state = run.placement.entry(EntryId(0)).unwrap();
    assert!(state.core != delivery && state.delivery.is_some_and(|core| core != delivery));
}

#[test]
fn adaptive_entry_forced_to_share_takes_receiver_core() {
    for (mode, core) in [(Mode::Adaptive, 1), (Mode::OnTheFly, 0)] {
        let mut run = Run::new(config(mode), "vv");
        run.foreign[1].user = Share::percent(30);
        run.period();
        run.placement.set_receiver(EntryId(0), Some(CoreIndex(1)));
        assert_eq!(run.place(0, LOW, 20).0, core, "{mode:?}");
        assert_eq!(run.settle(), []);
    }
}

#[test]
fn high_priority_receiver_core_shared_last() {
    let mut run = Run::new(config(Mode::Adaptive), "vvv");
    run.placement.set_receiver(EntryId(0), Some(CoreIndex(0)));
    run.place(0, HIGH, 50);
    run.settle();
    for entry in 1..6 {
        assert_ne!(run.place(entry, LOW, 25).0, 0, "entry {entry}");
        run.settle();
    }
    // Not even if no other core has room.
    assert!((1..6).all(|entry| run.at(entry) != 0));
}

#[test]
fn elephant_delivered_on_receiver_core_if_room_left() {
    for (user, expected) in [(20, Some(CoreIndex(0))), (60, None)] {
        let mut run = Run::new(config(Mode::Adaptive), "vv.");
        run.foreign[0].user = Share::percent(user);
        run.foreign[1].user = Share::percent(60);
        run.placement.set_receiver(EntryId(0), Some(CoreIndex(0)));
        run.place(0, LOW, 80);
        run.settle();
        // More than the core has: a part of it is delivery.
        run.load(0, 100);
        run.settle();
        let state = run.placement.entry(EntryId(0)).unwrap();
        assert_eq!((state.core, state.delivery), (CoreIndex(2), expected), "{user} %");
    }
}

#[test]
fn what_is_removed_takes_nothing() {
    let mut run = Run::new(config(Mode::Adaptive), "..");
    run.place(0, HIGH, 50);
    run.settle();
    run.placement.remove(EntryId(0));
    run.placement.remove(EntryId(0));
    assert_eq!(run.placement.entries().count(), 0);
    assert_eq!(run.placement.load_of(CoreIndex(0)).0, Share::ZERO);
    run.load(0, 0);
    run.settle();
    assert_eq!(run.place(1, HIGH, 10).0, 0, "the core is free again");
}

#[test]
fn the_last_core_cannot_be_excluded() {
    let mut run = Run::new(config(Mode::Adaptive), "..");
    assert!(run.placement.set_core(CoreIndex(0), false, true));
    assert!(!run.placement.set_core(CoreIndex(1), false, true));
    assert_eq!(run.place(0, LOW, 5).0, 1);
}

/// Two threads of two physical cores; a machine runs on the second thread of the first one.
#[test]
fn a_physical_core_that_is_shared_comes_later() {
    let core = |number: u16| Core {
        number,
        physical: Some(number / 2),
        runs_vcpu: number == 1,
        ..Core::default()
    };
    let cores: Vec<Core> = (0..4).map(core).collect();
    let mut placement = Placement::new(config(Mode::Adaptive), &cores).unwrap();
    let mut place = |entry, priority| placement.place(EntryId(entry), priority).core.0;
    // Beside the machine only if nothing else is left: before that two share a physical core.
    assert_eq!([place(0, LOW), place(1, LOW)], [2, 3]);
    assert_eq!(place(2, HIGH), 2);
    let mut moves = Vec::new();
    let small = EntryLoad { decap: Share::percent(5), deliver: Share::ZERO };
    (0..20).for_each(|_| placement.period(&[CoreLoad::default(); 4], &[small; 3], &mut moves));
    let at = |entry| placement.entry(EntryId(entry)).unwrap();
    // An entry that makes way is now beside a machine or beside high priority; both are equal.
    assert_eq!([at(0).core.0, at(1).core.0, at(2).core.0], [0, 3, 2]);
}

/// Work stays on the node of the card while a core of it has room, and comes back.
#[test]
fn work_stays_on_the_node_of_the_card() {
    let core = |number: u16| Core { number, node: Some(number / 2), ..Core::default() };
    let cores: Vec<Core> = (0..4).map(core).collect();
    let config = Config { node: Some(1), ..config(Mode::Adaptive) };
    let mut placement = Placement::new(config, &cores).unwrap();
    let mut loads = vec![EntryLoad::default(); 12];
    let mut settle = |placement: &mut Placement, percent| {
        loads.fill(EntryLoad { decap: Share::percent(percent), deliver: Share::ZERO });
        let mut moves = Vec::new();
        (0..60).for_each(|_| placement.period(&[CoreLoad::default(); 4], &loads, &mut moves));
        let on = |core| placement.entries().filter(|(_, state)| state.core.0 == core).count();
        ([0, 1, 2, 3].map(on), moves)
    };
    (0..12).for_each(|entry| _ = placement.place(EntryId(entry), LOW));
    assert_eq!(settle(&mut placement, 12).0, [0, 0, 6, 6]);
    // More work than its node has room for.
    let (on, moves) = settle(&mut placement, 20);
    assert_eq!((on[2], on[3]), (4, 4), "{on:?} {moves:?}");
    let (on, moves) = settle(&mut placement, 10);
    assert_eq!(on, [0, 0, 6, 6]);
    assert!(moves.iter().any(|made| made.why == Why::LeavesNode));
}

#[test]
fn what_cannot_work_is_refused() {
    let made = |change: fn(&mut Config), marks| {
        let mut config = config(Mode::Adaptive);
        change(&mut config);
        Placement::new(config, &cores(marks)).map(drop)
    };
    assert_eq!(made(|_| {}, "."), Ok(()));
    assert_eq!(made(|_| {}, ""), Err(ConfigError::Cores));
    assert_eq!(made(|c| c.entries = 0, "."), Err(ConfigError::Entries(0)));
    assert_eq!(made(|c| c.hysteresis = Share::ZERO, "."), Err(ConfigError::Threshold));
    assert_eq!(made(|c| c.full_at = Share::percent(101), "."), Err(ConfigError::Threshold));
    let away = CoreIndex(7);
    let reserved = |c: &mut Config| c.reserved = vec![(HIGH, CoreIndex(7))];
    assert_eq!(made(reserved, "."), Err(ConfigError::Reserved(away)));
    let twice = [Core::default(); 2];
    let refused = Placement::new(config(Mode::Rss), &twice).map(drop);
    assert_eq!(refused, Err(ConfigError::CoreTwice(0)));
    let excluded = [Core { excluded: true, ..Core::default() }];
    let refused = Placement::new(config(Mode::Rss), &excluded).map(drop);
    assert_eq!(refused, Err(ConfigError::Cores));
}
