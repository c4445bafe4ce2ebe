use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIFE: Nanos = Nanos(100);

fn mark(number: u64) -> Mark {
    Mark::new(Vni::new(7).unwrap(), Mac::from_u64(number), None, 3)
}

#[test]
fn a_mark_is_remembered_for_its_time() {
    let mut recent = Recent::new(16, LIFE, 1);
    assert!(!recent.contains(Nanos(10), &mark(1)), "new");
    recent.insert(Nanos(10), mark(1));
    // (moment, remembered)
    for (now, expected) in [(10, true), (109, true), (110, false), (500, false)] {
        assert_eq!(recent.contains(Nanos(now), &mark(1)), expected, "at {now}");
    }
    assert!(!recent.contains(Nanos(10), &mark(2)));
    recent.insert(Nanos(105), mark(1));
    assert!(recent.contains(Nanos(204), &mark(1)), "what is inserted again is renewed");
    assert!(recent.remove(&mark(1)) && !recent.remove(&mark(1)));
    assert!(!recent.contains(Nanos(106), &mark(1)));
}

#[test]
fn every_part_of_a_mark_counts() {
    let (a, b) = (Vni::new(1).unwrap(), Vni::new(2).unwrap());
    let (m, n) = (Mac::from_u64(1), Mac::from_u64(2));
    let v4 = Ipv4Addr::new(10, 0, 0, 1);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let marks = [
        Mark::new(a, m, None, 0),
        Mark::new(b, m, None, 0),
        Mark::new(a, n, None, 0),
        Mark::new(a, m, None, 1),
        Mark::new(a, m, None, u16::MAX),
        Mark::new(a, m, Some(v4.into()), 0),
        Mark::new(a, m, Some(v4.to_ipv6_mapped().into()), 0),
        Mark::new(a, m, Some(v6.into()), 0),
        Mark::new(a, m, Some(Ipv6Addr::UNSPECIFIED.into()), 0),
    ];
    for (at, mark) in marks.iter().enumerate() {
        assert!(!marks[at + 1..].contains(mark), "mark {at}");
    }
}

#[test]
fn the_oldest_of_a_full_set_gives_way() {
    let mut recent = Recent::new(4, LIFE, 1);
    for number in 0..5 {
        recent.insert(Nanos(number), mark(number));
    }
    let there: Vec<bool> = (0..5).map(|number| recent.contains(Nanos(5), &mark(number))).collect();
    assert_eq!(there, [false, true, true, true, true]);
}

proptest! {
    #[test]
    fn recent_set_remembers_only_inserted_unexpired_marks(
        steps in prop::collection::vec((0..40_u64, 0..30_u64, any::<bool>()), 1..300), seed: u64,
    ) {
        let mut recent = Recent::new(16, LIFE, seed);
        let mut until = BTreeMap::new();
        let mut now = Nanos(1);
        for (number, gap, inserts) in steps {
            now = now.after(Nanos(gap));
            if recent.contains(now, &mark(number)) {
                prop_assert!(until.get(&number).is_some_and(|&until| now < until));
            }
            if inserts {
                recent.insert(now, mark(number));
                until.insert(number, now.after(LIFE));
                prop_assert!(recent.contains(now, &mark(number)));
            }
        }
    }
}
