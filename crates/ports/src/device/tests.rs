use super::*;

#[test]
fn the_loopback_is_a_device() {
    let lo = device("lo").unwrap();
    assert_eq!((lo.index > 0, lo.mac), (true, Mac::default()));
}

#[test]
fn an_unknown_or_impossible_name_is_no_device() {
    for name in ["no-such-dev", "", "a/b", "longer-than-fifteen"] {
        let error = device(name).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{name:?}");
    }
}

#[test]
fn hexadecimal_columns_are_summed() {
    assert_eq!(sum_hex_column("00 0000000a 1\n00 00000006 2\n", 1), 16);
    assert_eq!(sum_hex_column("title\n00\n", 1), 0);
    assert!(softnet_dropped().is_ok());
}

#[test]
fn the_loopback_has_counters() {
    let counters = DeviceCounters::new(device("lo").unwrap().index).unwrap();
    let mut rows = Counters::new();
    counters.read(&mut rows).unwrap();
    assert_eq!(rows.len(), 8);
}

#[test]
fn made_up_speed_of_software_is_none() {
    assert_eq!(speed_mbps("lo").unwrap(), None);
    let missing = speed_mbps("sluice-none").unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
    for kind in [InfoKind::Veth, InfoKind::Tun, InfoKind::Bridge, InfoKind::Dummy] {
        assert!(!has_real_speed(Some(&kind)), "{kind:?}");
    }
    assert!(has_real_speed(None) && has_real_speed(Some(&InfoKind::Bond)));
}
