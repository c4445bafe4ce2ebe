use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{Mac, PortId, Vni};

use super::*;
use crate::vport::{Ips, Origin};

const A: HostId = HostId(1);
const B: HostId = HostId(2);

fn key(n: u8) -> Key {
    Key { vni: Vni::new(1).unwrap(), mac: Mac([2, 0, 0, 0, 0, n]) }
}

fn claim(n: u8, moves: u32) -> Claim {
    Claim { key: key(n), port: PortId(1), ips: Ips::default(), origin: Origin::Learned, moves }
}

/// Entries that a reader gets: sequence, key, and true if the vport is there.
fn read(publisher: &Publisher, cursor: u64) -> Vec<(u64, u8, bool)> {
    let change = |(sequence, change): (u64, Change<'_>)| match change {
        Change::Claimed(claim) => (sequence, claim.key.mac.0[5], true),
        Change::Withdrawn(key) => (sequence, key.mac.0[5], false),
    };
    publisher.after(cursor).map(change).collect()
}

#[test]
fn changes_of_one_vport_coalesce() {
    let mut publisher = Publisher::new(1, 10);
    publisher.set_peer(A, 0);
    assert_eq!([1, 2, 3].map(|n| publisher.claim(&claim(n, 0))), [1, 2, 3]);
    assert_eq!(publisher.claim(&claim(2, 1)), 4);
    assert_eq!(publisher.claim(&claim(2, 1)), 4, "nothing is different");
    assert_eq!(publisher.withdraw(key(1)), Some(5));
    assert_eq!(publisher.withdraw(key(1)), None, "it is gone");
    assert_eq!(publisher.withdraw(key(9)), None);
    assert_eq!(read(&publisher, 0), [(3, 3, true), (4, 2, true), (5, 1, false)]);
    assert_eq!(read(&publisher, 3), [(4, 2, true), (5, 1, false)]);
    assert_eq!(publisher.digest(), [claim(2, 1), claim(3, 0)].iter().collect());
    assert_eq!(publisher.claim(&claim(1, 0)), 6);
    assert_eq!((read(&publisher, 4), publisher.tombstone_count()), (Vec::from([(6, 1, true)]), 0));
}

#[test]
fn a_tombstone_stays_until_everybody_has_it() {
    let mut publisher = Publisher::new(1, 10);
    publisher.set_peer(A, 0);
    publisher.set_peer(B, 0);
    publisher.claim(&claim(1, 0));
    publisher.withdraw(key(1));
    publisher.acked(A, 2);
    assert_eq!((publisher.horizon(), publisher.tombstone_count()), (0, 1));
    publisher.acked(B, 1);
    assert_eq!((publisher.horizon(), publisher.tombstone_count()), (0, 1));
    publisher.acked(B, 2);
    assert_eq!((publisher.horizon(), publisher.tombstone_count()), (2, 0));
    assert_eq!(publisher.acked_by(B), Some(2));
    // A peer that does not count holds nothing up.
    publisher.claim(&claim(1, 0));
    publisher.acked(A, 4);
    publisher.withdraw(key(1));
    publisher.forget(B);
    assert_eq!((publisher.horizon(), publisher.acked_by(B)), (4, None));
}

#[test]
fn the_oldest_of_too_many_tombstones_is_forgotten() {
    let mut publisher = Publisher::new(1, 2);
    publisher.set_peer(A, 0);
    for n in 1..=3 {
        publisher.claim(&claim(n, 0));
    }
    for n in 1..=3 {
        publisher.withdraw(key(n));
    }
    assert_eq!((publisher.tombstone_count(), publisher.horizon()), (2, 4));
    assert_eq!(read(&publisher, 0), [(5, 2, false), (6, 3, false)]);
    // Its slot serves another vport, and its old entries stay void.
    publisher.claim(&claim(9, 0));
    assert_eq!(read(&publisher, 0), [(5, 2, false), (6, 3, false), (7, 9, true)]);
    assert_eq!(publisher.slots.len(), 3);
}

#[test]
#[should_panic(expected = "no endpoint")]
fn a_group_address_is_not_claimed() {
    let mut broadcast = claim(1, 0);
    broadcast.key.mac = Mac::BROADCAST;
    Publisher::new(1, 1).claim(&broadcast);
}

proptest! {
    /// A reader that stops anywhere and goes on has all claims, or the horizon has passed it.
    #[test]
    fn a_reader_misses_nothing(
        ops in prop::collection::vec((0..8_u8, 0..20_u8, any::<u8>()), 1..400),
        tombstones_max in 0..6_usize,
    ) {
        let mut publisher = Publisher::new(1, tombstones_max);
        publisher.set_peer(A, 0);
        let mut model = BTreeMap::new();
        let (mut replica, mut cursor) = (BTreeMap::new(), 0);
        for (op, n, some) in ops {
            match op {
                0..4 => {
                    publisher.claim(&claim(n, u32::from(some)));
                    model.insert(key(n), claim(n, u32::from(some)));
                }
                4..6 => {
                    let there = model.remove(&key(n)).is_some();
                    prop_assert_eq!(publisher.withdraw(key(n)).is_some(), there);
                }
                _ => {
                    if publisher.horizon() > cursor {
                        (replica, cursor) = (BTreeMap::new(), 0);
                    }
                    let from = cursor;
                    for (sequence, change) in publisher.after(from).take(usize::from(some % 16)) {
                        prop_assert!(sequence > cursor);
                        cursor = sequence;
                        match change {
                            Change::Claimed(claim) => drop(replica.insert(claim.key, *claim)),
                            Change::Withdrawn(key) => drop(replica.remove(&key)),
                        }
                    }
                    if from > 0 {
                        publisher.acked(A, cursor);
                    }
                }
            }
            if cursor == publisher.last() {
                prop_assert_eq!(&replica, &model);
            }
            let held = publisher.tombstone_count();
            prop_assert!(held <= tombstones_max);
            prop_assert!(publisher.log_len() <= 2 * (model.len() + held) + LOG_SMALL);
            prop_assert_eq!(publisher.digest(), model.values().collect());
            prop_assert!(publisher.after(0).count() <= model.len() + held);
        }
    }
}
