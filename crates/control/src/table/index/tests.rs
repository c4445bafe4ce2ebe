use alloc::collections::BTreeMap;

use proptest::prelude::*;
use sluice_base::{Mac, Vni};

use super::*;
use crate::hash::Hasher;
use crate::vport::Key;

proptest! {
    /// Hashes of few values and few first places, so that runs are long and wrap around, and many
    /// are equal.
    #[test]
    fn index_matches_map_model_of_item_hashes(
        ops in prop::collection::vec((any::<bool>(), 0u32..40), 0..200),
    ) {
        let mut index = Index::new(1);
        let mut model = BTreeMap::new();
        let hash = |item: u32| u64::from(item % 13) * 3;
        for (there, item) in ops {
            match (there, model.contains_key(&item)) {
                (true, false) => {
                    index.insert(hash(item), item);
                    model.insert(item, hash(item));
                }
                (false, true) => {
                    index.remove(hash(item), item);
                    model.remove(&item);
                }
                _ => {}
            }
            prop_assert_eq!(index.len(), model.len());
            for item in 0..40 {
                let found = index.find(hash(item), |there| there == item);
                prop_assert_eq!(found.is_some(), model.contains_key(&item), "item {}", item);
            }
        }
    }
}

#[test]
fn an_item_takes_another_s_place() {
    let mut index = Index::new(5000);
    index.insert(77, 1);
    index.insert(77, 2);
    index.replace(77, 1, 3);
    assert_eq!(index.find(77, |item| item != 2), Some(3));
    assert_eq!(index.find(78, |_| true), None);
    index.remove(77, 2);
    assert_eq!((index.find(77, |_| true), index.len()), (Some(3), 1));
}

/// Addresses that are given out in a row, as they are, fill all segments alike.
#[test]
fn addresses_in_a_row_spread_evenly() {
    let hasher = Hasher::new(5);
    let mut index = Index::new(64 * SEGMENT_ITEMS);
    for number in 0..64 * SEGMENT_ITEMS {
        let key = Key { vni: Vni::new(7).unwrap(), mac: Mac::from_u64(u64::from(number)) };
        index.insert(hasher.of_key(key), number);
    }
    assert!(index.segment_items_max() < 1200, "{}", index.segment_items_max());
}
