use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

fn mac(number: u64) -> u64 {
    key(1, Mac::from_u64(number))
}

#[test]
fn an_entry_is_found_changed_and_removed() {
    let mut table = MacTable::new(4, 1);
    assert_eq!(table.insert(mac(1), 10), None);
    assert_eq!(table.insert(mac(1), 11), None);
    assert_eq!((table.lookup(mac(1)), table.len()), (Some(11), 1));
    assert_eq!(table.remove(mac(1)), Some(11));
    assert_eq!((table.lookup(mac(1)), table.len()), (None, 0));
}

#[test]
fn a_full_table_evicts_what_was_not_used() {
    let mut table = MacTable::new(3, 1);
    for n in 1..=3 {
        table.insert(mac(n), 0);
    }
    // The hand clears every mark once; then only 2 is looked up.
    let first = table.insert(mac(4), 0).expect("full");
    let rest: Vec<u64> = (1..=4).map(mac).filter(|k| *k != first).collect();
    table.lookup(rest[0]);
    let second = table.insert(mac(5), 0).expect("full");
    assert_ne!(second, rest[0]);
    assert_eq!(table.len(), 3);
}

proptest! {
    #[test]
    fn it_behaves_like_a_map_while_it_has_room(
        ops in prop::collection::vec((0u8..3, 0u64..40), 0..200),
    ) {
        let mut table = MacTable::new(64, 7);
        let mut model = BTreeMap::new();
        for (op, n) in ops {
            match op {
                0 => {
                    table.insert(mac(n), u32::try_from(n).unwrap());
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
        let mut table = MacTable::new(16, 3);
        for n in keys {
            table.insert(mac(n), 0);
            prop_assert!(table.len() <= 16);
            prop_assert_eq!(table.lookup(mac(n)), Some(0));
        }
    }
}
