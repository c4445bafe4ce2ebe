use super::*;
use crate::Why;

const PATIENCE: Nanos = Nanos(1_000);
const ENTRY: EntryId = EntryId(3);

fn to(core: u16) -> Move {
    Move { entry: ENTRY, core: CoreIndex(core), delivery: None, why: Why::LeastLoaded }
}

fn sent_to(core: u16) -> Dispatch {
    Dispatch::To(CoreIndex(core), None)
}

#[test]
fn entry_moves_once_no_packet_in_flight() {
    let mut table = Table::new(10, Order::Counted { patience: PATIENCE });
    assert_eq!(table.dispatch(Nanos(0), ENTRY), Dispatch::Unplaced);
    table.set(Nanos(0), &to(1));
    assert_eq!(table.dispatch(Nanos(1), ENTRY), sent_to(1));
    table.set(Nanos(2), &to(2));
    assert!(!table.is_settled(ENTRY));
    assert_eq!(table.dispatch(Nanos(3), ENTRY), sent_to(1));
    table.done(ENTRY, 1);
    assert_eq!(table.dispatch(Nanos(4), ENTRY), sent_to(1), "one is still under way");
    table.done(ENTRY, 2);
    assert_eq!(table.dispatch(Nanos(5), ENTRY), sent_to(2));
    assert!(table.is_settled(ENTRY));
}

#[test]
fn busy_entry_held_after_patience_until_drained() {
    let mut table = Table::new(10, Order::Counted { patience: PATIENCE });
    table.set(Nanos(0), &to(1));
    table.dispatch(Nanos(1), ENTRY);
    table.set(Nanos(10), &to(2));
    assert_eq!(table.dispatch(Nanos(1_010), ENTRY), sent_to(1), "just within the patience");
    // Another decision meanwhile does not begin the wait anew.
    table.set(Nanos(1_010), &to(4));
    assert_eq!(table.dispatch(Nanos(1_011), ENTRY), Dispatch::Hold);
    table.done(ENTRY, 1);
    assert_eq!(table.dispatch(Nanos(1_012), ENTRY), Dispatch::Hold);
    table.done(ENTRY, 1);
    assert_eq!(table.dispatch(Nanos(1_013), ENTRY), sent_to(4));
    assert_eq!(table.held(), 2);
}

#[test]
fn uncounted_entry_moves_only_after_quiet_gap() {
    let mut table = Table::new(10, Order::Quiet(Nanos(100)));
    table.set(Nanos(0), &to(1));
    assert_eq!(table.dispatch(Nanos(5), ENTRY), sent_to(1));
    table.set(Nanos(6), &to(2));
    assert_eq!(table.dispatch(Nanos(104), ENTRY), sent_to(1));
    assert_eq!(table.dispatch(Nanos(203), ENTRY), sent_to(1), "the pause begins anew");
    assert_eq!(table.dispatch(Nanos(303), ENTRY), sent_to(2));
}

#[test]
fn delivery_may_be_apart() {
    let mut table = Table::new(10, Order::Counted { patience: PATIENCE });
    table.set(Nanos(0), &Move { delivery: Some(CoreIndex(7)), ..to(1) });
    let apart = Dispatch::To(CoreIndex(1), Some(CoreIndex(7)));
    assert_eq!(table.dispatch(Nanos(1), ENTRY), apart);
    // Joining again is a move, too: delivery is on another core.
    table.set(Nanos(2), &to(1));
    assert_eq!(table.dispatch(Nanos(3), ENTRY), apart);
    table.done(ENTRY, 2);
    assert_eq!(table.dispatch(Nanos(4), ENTRY), sent_to(1));
}
