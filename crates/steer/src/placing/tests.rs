use sluice_placement::{CoreLoad, EntryId, EntryLoad, Share};

use super::*;

fn placement(mode: Mode, vcpus: [bool; 2]) -> Placement {
    let cores = cores(vcpus);
    Plan::new(mode, false, &cores).placement((16, None), &cores).unwrap()
}

fn cores(vcpus: [bool; 2]) -> Vec<Core> {
    (0..)
        .zip(vcpus)
        .map(|(number, runs_vcpu)| Core { number, runs_vcpu, ..Core::default() })
        .collect()
}

#[test]
fn core_reserved_when_free_and_high_priority_exists() {
    for (mode, has_high, vcpus, wanted) in [
        (Mode::Predetermined, true, [true, false], None),
        (Mode::Predetermined, true, [true, true], Some(NONE_FREE)),
        (Mode::Predetermined, false, [true, true], None),
        (Mode::Adaptive, true, [true, true], None),
    ] {
        let plan = Plan::new(mode, has_high, &cores(vcpus));
        assert_eq!(plan.note, wanted, "{mode:?}");
        if (mode, wanted) == (Mode::Predetermined, None) && has_high {
            let mut placement = plan.placement((16, None), &cores(vcpus)).unwrap();
            assert_eq!(placement.place(EntryId(3), HIGH).core, CoreIndex(1));
        }
    }
}

#[test]
fn placement_renewed_when_reserved_core_would_change() {
    let plan = |mode, has_high, vcpus| Plan::new(mode, has_high, &cores(vcpus));
    let first = plan(Mode::Predetermined, true, [false, false]);
    assert_eq!(first, plan(Mode::Predetermined, true, [false, true]), "core 0 either way");
    // A machine comes to the reserved core; to the last free one; nothing is of high priority.
    assert_ne!(first, plan(Mode::Predetermined, true, [true, false]));
    assert_ne!(first, plan(Mode::Predetermined, true, [true, true]));
    assert_ne!(first, plan(Mode::Predetermined, false, [false, false]));
    let mut excluded = cores([false, false]);
    excluded[1].excluded = true;
    assert_ne!(first, Plan::new(Mode::Predetermined, true, &excluded));
    let adaptive = plan(Mode::Adaptive, true, [false, false]);
    assert_eq!(adaptive, plan(Mode::Adaptive, false, [true, true]), "what it can be told");
}

/// All entries on core 1, as while a vCPU is pinned to core 0.
fn on_one() -> Placement {
    let mut placement = placement(Mode::Adaptive, [true, false]);
    for entry in 0..8 {
        assert_eq!(placement.place(EntryId(entry), Priority::ZERO).core, CoreIndex(1));
    }
    placement
}

#[test]
fn hash_modes_rebalance_immediately_load_modes_after_measurement() {
    let old = on_one();
    for mode in [Mode::Rss, Mode::Predetermined] {
        let mut placement = placement(mode, [false; 2]);
        let moves = carry_over(&old, &mut placement, mode);
        let moved: Vec<u32> = moves.iter().map(|one| one.entry.0).collect();
        assert_eq!(moved, [0, 2, 4, 6], "{mode:?}");
        assert_eq!(placement.entries().count(), 8);
    }
    for mode in [Mode::RssPlusPlus, Mode::Adaptive] {
        let mut placement = placement(mode, [false; 2]);
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
