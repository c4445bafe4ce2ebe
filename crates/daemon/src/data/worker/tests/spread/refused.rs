//! A kernel that accepts no other program.

use super::*;

/// Waits until a note contains `wanted`.
fn says(shown: &Shown, wanted: &str) {
    let until = Instant::now() + PATIENCE * 2;
    while !shown.lock().unwrap().notes.iter().any(|note| note.contains(wanted)) {
        assert!(Instant::now() < until, "{:?}", shown.lock().unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn kernel_refuses_bucket_program_flows_forward_unchanged() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let (selector, parts) = spread.take_parts();
    let selector = selector.unwrap();
    selector.0.lock().unwrap();
    // First other flows of high priority are refused, and then flows that are to leave a CPU.
    let mut mover = Mover::new(spread.askers.clone(), selector);
    let before = mover.table;
    let changes: Vec<Change> =
        (0..BUCKETS).step_by(2).map(|bucket| Change { bucket, from: 0, to: 1 }).collect();
    spread.under_load(|| {
        std::thread::sleep(Duration::from_millis(100));
        for _ in 0..3 {
            let refused = mover.round(&changes).unwrap_err().to_string();
            assert!(refused.contains("the kernel refuses"), "{refused}");
            // No worker may hold any of these matches while another does not.
            mover.set_high(high(&[&format!("vni={VNI}")])).unwrap_err();
        }
    });
    assert_eq!((mover.table, mover.high.len()), (before, 0));
    let parts = (Some(mover.into_selector()), parts);
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[2]));
    let placed = buckets::follow(
        "underlay",
        PolicyWatch::of("h1", Mode::Adaptive),
        cpus,
        parts,
        &spread.askers,
    );
    let placed = placed.unwrap();
    spread.under_load(|| says(&placed, "flows stay where they are: the kernel refuses"));
    assert!(spread.seen(0) > 100 && spread.seen(1) > 100, "both get frames");
    spread.nothing_is_lost();
    spread.end();
}

#[test]
fn kernel_refusal_after_gathering_leaves_nothing_pending() {
    if !Selector::can_change() {
        return;
    }
    let _alone = alone();
    let mut spread = start_spread();
    let (selector, parts) = spread.take_parts();
    // All buckets are gathered already when the kernel begins to refuse.
    let mut mover = Mover::new(spread.askers.clone(), selector.unwrap());
    for from in [0, 1] {
        let mut changes = gathering(&mover.table, |_| true).unwrap();
        changes.retain(|change| change.from == from);
        mover.round(&changes).unwrap();
    }
    let selector = mover.into_selector();
    selector.0.lock().unwrap();
    let parts = (Some(selector), parts);
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[2]));
    let wanted = PolicyWatch::of("h1", Mode::Adaptive);
    wanted.set(policy(1, &format!("high = [\"vni={VNI}\"]")));
    let placed = buckets::follow("underlay", wanted, cpus, parts, &spread.askers).unwrap();
    spread.under_load(|| {
        says(&placed, "flows of high priority are those of before: the kernel refuses");
        // Flows are still to leave the CPU of a virtual machine, which the kernel refuses, too.
        says(&placed, "flows stay where they are: the kernel refuses");
    });
    let rows = placed.lock().unwrap().rows.clone();
    let soon = rows.iter().find(|row| row.why.contains("soon"));
    assert!(soon.is_none(), "nothing is on its way: {rows:?}");
    assert!(spread.seen(0) > 100 && spread.seen(1) > 100, "both get frames");
    spread.nothing_is_lost();
    spread.end();
}
