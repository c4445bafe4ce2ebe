use super::*;

#[test]
fn netlink_unknown_device_gives_enodev() {
    let error = Netlink::open().unwrap().link_stats(0x7fff_ffff).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    let error = Netlink::open().unwrap().qdisc_drops(0x7fff_ffff).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    // The loopback device, which every namespace has, has no queueing discipline.
    assert_eq!(Netlink::open().unwrap().qdisc_drops(1).unwrap(), 0);
}

#[test]
fn without_changes_there_are_none() {
    let mut netlink = Netlink::subscribe(0).unwrap();
    assert!(matches!(netlink.changes().unwrap(), Changes::None));
}
