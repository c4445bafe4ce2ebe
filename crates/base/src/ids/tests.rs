use super::*;
use alloc::string::ToString;

#[test]
fn a_mac_survives_text_and_number() {
    let mac: Mac = "02:00:5e:10:00:ff".parse().unwrap();
    assert_eq!(mac.to_string(), "02:00:5e:10:00:ff");
    assert_eq!(Mac::from_u64(mac.to_u64()), mac);
}

#[test]
fn text_that_is_no_mac_is_refused() {
    for bad in [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:00:00",
        "2:0:0:0:0:1",
        "02:00:00:00:00:zz",
        "+2:00:00:00:00:01",
    ] {
        assert_eq!(bad.parse::<Mac>(), Err(ParseMacError), "{bad:?}");
    }
}

#[test]
fn only_sixteen_addresses_are_reserved() {
    assert!(Mac::PAUSE.is_reserved() && Mac::PAUSE.is_group());
    assert!("01:80:c2:00:00:0f".parse::<Mac>().unwrap().is_reserved());
    assert!(!"01:80:c2:00:00:10".parse::<Mac>().unwrap().is_reserved());
    assert!(!Mac::BROADCAST.is_reserved() && Mac::BROADCAST.is_group());
}

#[test]
fn a_vni_has_24_bits() {
    assert_eq!(Vni::new(0x00ff_ffff).map(Vni::get), Some(0x00ff_ffff));
    assert_eq!(Vni::new(0x0100_0000), None);
}

#[test]
fn a_mask_is_a_set() {
    let mut mask = PriorityMask::NONE;
    let three = Priority::new(3).unwrap();
    mask.insert(three);
    assert!(mask.contains(three) && !mask.contains(Priority::ZERO));
    mask.remove(three);
    assert!(mask.is_empty());
    assert_eq!(Priority::new(8), None);
}

#[test]
fn the_nearest_priority_of_a_set() {
    let p = Priority::from_low_bits;
    let mut set = PriorityMask::NONE;
    assert_eq!(set.nearest(p(4)), p(4), "there is none");
    [3, 6].iter().for_each(|n| set.insert(p(*n)));
    for (asked, nearest) in [(0, 3), (3, 3), (5, 3), (6, 6), (7, 3)] {
        assert_eq!(set.nearest(p(asked)), p(nearest), "{asked}");
    }
}
