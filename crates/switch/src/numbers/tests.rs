use super::*;
use alloc::collections::BTreeMap;
use proptest::prelude::*;

proptest! {
    #[test]
    fn numbers_lookup_finds_exactly_inserted_keys(
        entries in prop::collection::btree_map(0_u32..500, any::<u16>(), 0..300),
        step in 1_u32..100_000,
    ) {
        let spread: BTreeMap<u32, u16> = entries.iter().map(|(k, v)| (k * step, *v)).collect();
        let table = Numbers::new(spread.iter().map(|(k, v)| (*k, *v)));
        for key in (0..500).map(|k| k * step).chain([1, u32::MAX]) {
            prop_assert_eq!(table.find(key), spread.get(&key).copied());
        }
    }
}

#[test]
fn an_empty_table_finds_nothing() {
    let table = Numbers::new([].into_iter());
    assert_eq!((table.find(0), table.find(7)), (None, None));
}

#[test]
fn of_equal_keys_the_first_one_counts() {
    let table = Numbers::new([(0, 5), (0, 6)].into_iter());
    assert_eq!(table.find(0), Some(5));
}
