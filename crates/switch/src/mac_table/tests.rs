use alloc::vec::Vec;

use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn mac(number: u64) -> u64 {
    key(1, Mac::from_u64(number))
}

#[test]
fn an_entry_is_found_changed_and_removed() {
    let mut table = MacTable::new(4, 4, 1);
    assert_eq!(table.insert(mac(1), 10, false), Inserted::default());
    assert_eq!(table.insert(mac(1), 11, false), Inserted { before: Some(10), evicted: None });
    assert_eq!((table.lookup(mac(1)), table.len()), (Some(11), 1));
    assert_eq!(table.remove(mac(1)), Some(11));
    assert_eq!((table.lookup(mac(1)), table.len()), (None, 0));
}

#[test]
fn a_full_table_evicts_what_was_not_used() {
    let mut table = MacTable::new(3, 3, 1);
    for n in 1..=3 {
        table.insert(mac(n), 0, false);
    }
    // The hand clears every mark once; then only 2 is looked up.
    let first = table.insert(mac(4), 0, false).evicted.expect("full").0;
    let rest: Vec<u64> = (1..=4).map(mac).filter(|k| *k != first).collect();
    table.lookup(rest[0]);
    let second = table.insert(mac(5), 0, false).evicted.expect("full").0;
    assert_ne!(second, rest[0]);
    assert_eq!(table.len(), 3);
}

#[test]
fn new_flow_at_flow_limit_evicts_another_flow() {
    let mut table = MacTable::new(8, 2, 1);
    for n in 1..=4 {
        table.insert(mac(n), 1, false);
    }
    table.insert(mac(11), 2, true);
    table.insert(mac(12), 2, true);
    // The hand clears the marks of both; then one is looked up, and stays.
    let first = table.insert(mac(13), 2, true).evicted.expect("two at most").0;
    assert!([mac(11), mac(12)].contains(&first));
    let second = table.insert(mac(14), 2, true).evicted.expect("two at most").0;
    assert!([mac(11), mac(12), mac(13)].contains(&second) && second != first);
    // A local address that becomes a flow makes room as well, and the other way round.
    let moved = table.insert(mac(1), 2, true);
    assert_eq!(moved.before, Some(1));
    assert_eq!(moved.evicted.expect("two at most").1, 2);
    assert_eq!((table.len(), table.flows()), (5, 2));
    table.insert(mac(1), 1, false);
    assert_eq!((table.len(), table.flows()), (5, 1));
    for n in 20..60 {
        table.insert(mac(n), 2, true);
        assert_eq!((table.len(), table.flows()), (6, 2));
    }
    for n in 1..=4 {
        assert_eq!(table.lookup(mac(n)), Some(1), "{n} is local");
    }
    let [others, flows] = table.evicted();
    assert_eq!((others, flows), (0, 42));
}

#[test]
fn full_fdb_evicts_local_entry_only_without_flows() {
    let mut table = MacTable::new(4, 4, 1);
    for n in 1..=4 {
        table.insert(mac(n), 1, false);
    }
    assert_eq!(table.insert(mac(5), 2, true).evicted.expect("full").1, 1);
    assert_eq!(table.insert(mac(6), 2, true).evicted, Some((mac(5), 2)));
    // A local entry evicts any other.
    assert!(table.insert(mac(7), 1, false).evicted.is_some());
    assert_eq!(table.len(), 4);
}

#[test]
fn fdb_walk_reports_each_use_once_eviction_unchanged() {
    let mut table = MacTable::new(8, 8, 1);
    for n in 1..=4 {
        table.insert(mac(n), 0, false);
    }
    let round = |table: &mut MacTable| {
        let mut reported = BTreeMap::new();
        while !table.walk_used(3, |key, _, used| {
            assert_eq!(reported.insert(key, used), None, "told twice in a round");
        }) {}
        reported
    };
    assert_eq!(round(&mut table), BTreeMap::new(), "to be put in is no use");
    table.lookup(mac(1));
    table.meet(mac(2));
    table.lookup(mac(3));
    table.meet(mac(3));
    let used = |as_destination, as_source| Used { as_destination, as_source };
    let expected =
        [(mac(1), used(true, false)), (mac(2), used(false, true)), (mac(3), used(true, true))];
    assert_eq!(round(&mut table), BTreeMap::from(expected));
    assert_eq!(round(&mut table), BTreeMap::new());
    let (mut walked, mut other) = (MacTable::new(4, 2, 9), MacTable::new(4, 2, 9));
    for n in 0..200 {
        for table in [&mut walked, &mut other] {
            table.insert(mac(n * 7 % 13), 0, n % 3 == 0);
            table.lookup(mac(n * 5 % 11));
            table.meet(mac(n * 3 % 11));
        }
        walked.walk_used(u32::try_from(n % 5).unwrap(), |_, _, _| {});
        let keys = |table: &MacTable| table.iter().map(|(_, mac, _)| mac).collect::<Vec<_>>();
        assert_eq!(keys(&walked), keys(&other));
    }
}

proptest! {
    #[test]
    fn fdb_below_capacity_behaves_like_map(
        ops in prop::collection::vec((0u8..3, 0u64..40), 0..200),
    ) {
        let mut table = MacTable::new(64, 64, 7);
        let mut model = BTreeMap::new();
        for (op, n) in ops {
            match op {
                0 => {
                    table.insert(mac(n), u32::try_from(n).unwrap(), n % 3 == 0);
                    model.insert(mac(n), n);
                }
                1 => {
                    prop_assert_eq!(table.remove(mac(n)).map(u64::from), model.remove(&mac(n)));
                }
                _ => {
                    let found = table.lookup(mac(n)).map(u64::from);
                    prop_assert_eq!(found, model.get(&mac(n)).copied());
                }
            }
            prop_assert_eq!(table.len(), model.len());
        }
    }

    #[test]
    fn it_never_holds_more_than_its_limit(keys in prop::collection::vec(0u64..1000, 0..300)) {
        let mut table = MacTable::new(16, 16, 3);
        for n in keys {
            table.insert(mac(n), 0, false);
            prop_assert!(table.len() <= 16);
            prop_assert_eq!(table.lookup(mac(n)), Some(0));
        }
    }
}
