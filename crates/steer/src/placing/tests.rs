use std::collections::BTreeSet;

use sluice_api::placement::Stamp;
use sluice_placement::{CoreLoad, EntryId, EntryLoad, Share};

use super::*;
use crate::rules::Rules;

fn force(mode: Mode, networks: bool) -> Force {
    let rules = Rules { networks, matches: Vec::new() };
    let (stamp, excluded, notes) = (Stamp::default(), BTreeSet::new(), Vec::new());
    Force { stamp, mode, excluded, rules, notes }
}

fn cores(vcpus: [bool; 2]) -> Vec<Core> {
    (0..)
        .zip(vcpus)
        .map(|(number, runs_vcpu)| Core { number, runs_vcpu, ..Core::default() })
        .collect()
}

#[test]
fn a_core_is_reserved_where_one_is_free_and_something_is_of_high_priority() {
    for (mode, networks, vcpus, wanted) in [
        (Mode::Predetermined, true, [true, false], None),
        (Mode::Predetermined, true, [true, true], Some(NONE_FREE)),
        (Mode::Predetermined, false, [true, true], None),
        (Mode::Adaptive, true, [true, true], None),
    ] {
        let (mut placement, note) = new(&force(mode, networks), (16, None), &cores(vcpus)).unwrap();
        assert_eq!(note, wanted, "{mode:?}");
        if (mode, wanted) == (Mode::Predetermined, None) && networks {
            assert_eq!(placement.place(EntryId(3), HIGH).core, CoreIndex(1));
        }
    }
}

/// Everything is on core 1, as it is while a vCPU is pinned to core 0.
fn on_one() -> Placement {
    let (mut placement, _) =
        new(&force(Mode::Adaptive, false), (16, None), &cores([true, false])).unwrap();
    for entry in 0..8 {
        assert_eq!(placement.place(EntryId(entry), Priority::ZERO).core, CoreIndex(1));
    }
    placement
}

#[test]
fn buckets_go_by_hash_at_once_and_by_load_when_it_was_measured() {
    let old = on_one();
    for mode in [Mode::Rss, Mode::Predetermined] {
        let (mut placement, _) = new(&force(mode, false), (16, None), &cores([false; 2])).unwrap();
        let moves = carry_over(&old, &mut placement, mode);
        let moved: Vec<u32> = moves.iter().map(|one| one.entry.0).collect();
        assert_eq!(moved, [0, 2, 4, 6], "{mode:?}");
        assert_eq!(placement.entries().count(), 8);
    }
    for mode in [Mode::RssPlusPlus, Mode::Adaptive] {
        let (mut placement, _) = new(&force(mode, false), (16, None), &cores([false; 2])).unwrap();
        assert!(carry_over(&old, &mut placement, mode).is_empty());
        assert!(placement.entries().all(|(_, state)| state.core == CoreIndex(1)));
        let load = EntryLoad { decap: Share::percent(10), deliver: Share::ZERO };
        let mut moves = Vec::new();
        for _ in 0..20 {
            placement.period(&[CoreLoad::default(); 2], &[load; 8], &mut moves);
        }
        let left = placement.entries().filter(|(_, state)| state.core == CoreIndex(0)).count();
        assert!((3..=5).contains(&left), "{mode:?}: {left}");
    }
}
