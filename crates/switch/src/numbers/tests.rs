use super::*;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use proptest::prelude::*;

fn table(entries: impl Iterator<Item = (u32, u16)> + Clone) -> Numbers {
    let mut table = Numbers::new(entries.clone().count());
    entries.for_each(|(key, index)| table.insert(key, index));
    table
}

proptest! {
    #[test]
    fn numbers_lookup_finds_exactly_inserted_keys(
        entries in prop::collection::btree_map(0_u32..500, any::<u16>(), 0..300),
        step in 1_u32..100_000,
    ) {
        let spread: BTreeMap<u32, u16> = entries.iter().map(|(k, v)| (k * step, *v)).collect();
        let table = table(spread.iter().map(|(k, v)| (*k, *v)));
        for key in (0..500).map(|k| k * step).chain([1, u32::MAX]) {
            prop_assert_eq!(table.find(key), spread.get(&key).copied());
        }
    }

    #[test]
    fn removed_numbers_leave_the_others_findable(
        steps in prop::collection::vec((0_u32..24, any::<bool>()), 0..300),
        spread in 1_u32..100_000,
    ) {
        let (mut table, mut model) = (Numbers::new(24), BTreeMap::new());
        for (at, (key, comes)) in (0_u16..).zip(steps) {
            let key = key * spread;
            if !comes {
                table.remove(key);
                model.remove(&key);
            } else if let Entry::Vacant(place) = model.entry(key) {
                table.insert(key, at);
                place.insert(at);
            }
            for key in (0..24).map(|key| key * spread) {
                prop_assert_eq!(table.find(key), model.get(&key).copied());
            }
        }
    }
}

#[test]
fn an_empty_table_finds_nothing() {
    let mut table = Numbers::new(0);
    table.remove(7);
    assert_eq!((table.find(0), table.find(7)), (None, None));
}

#[test]
fn of_equal_keys_the_first_one_counts() {
    assert_eq!(table([(0, 5), (0, 6)].into_iter()).find(0), Some(5));
}
