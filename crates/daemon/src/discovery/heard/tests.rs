use super::*;

fn at(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

#[test]
fn host_heard_again_younger_not_twice() {
    let mut hosts = HeardHosts::default();
    let h1 = Beacon::waiting("h1", 7474).unwrap().datagram();
    hosts.hear(Nanos::from_millis(0), "eth0", at(1), &h1);
    hosts.hear(Nanos::from_millis(900), "eth0", at(1), &h1);
    hosts.hear(Nanos::from_millis(950), "eth0", at(1), b"garbage");
    // Another host with its name, and the same one by another device.
    hosts.hear(Nanos::from_millis(950), "eth0", at(2), &h1);
    hosts.hear(Nanos::from_millis(950), "eth1", at(1), &h1);
    let heard = hosts.heard(Nanos::from_millis(1_000));
    let rows: Vec<_> = heard.hosts.iter().map(|row| (row.address, row.age_ms)).collect();
    assert_eq!(rows, [(at(1), 100), (at(2), 50), (at(1), 50)]);
    assert_eq!((heard.more, heard.unreadable), (0, 1));
}

#[test]
fn hosts_invented_hide_none_heard_before() {
    let mut hosts = HeardHosts::default();
    let real = Beacon::waiting("real", 7474).unwrap().datagram();
    hosts.hear(Nanos(0), "eth0", at(1), &real);
    for n in 0..1_000 {
        let invented = Beacon::waiting(&format!("a{n}"), 7474).unwrap().datagram();
        hosts.hear(Nanos(1), "eth0", at(9), &invented);
    }
    hosts.hear(Nanos::from_millis(5), "eth0", at(1), &real);
    let heard = hosts.heard(Nanos::from_millis(5));
    assert_eq!(heard.hosts.len(), HEARD_MAX);
    assert_eq!(heard.more, 1_001 - u64::try_from(HEARD_MAX).unwrap());
    assert!(heard.hosts.iter().any(|row| row.host == "real" && row.age_ms == 0));
}
