use core::net::{IpAddr, Ipv4Addr};

use super::*;

fn claim(origin: Origin, moves: u32) -> Claim {
    let key = Key { vni: Vni::new(5000).unwrap(), mac: Mac([2, 0, 0, 0, 0, 1]) };
    Claim { key, port: PortId(3), ips: Ips::default(), origin, moves }
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

#[test]
fn addresses_are_a_set() {
    let mut ips = Ips::default();
    assert!(ips.is_empty());
    for last in [1, 2, 1] {
        ips.insert(ip(last)).unwrap();
    }
    assert_eq!(ips.len(), 2);
    assert_eq!(ips, [ip(2), ip(1)].into_iter().collect());
    assert_ne!(ips, [ip(2), ip(3)].into_iter().collect());
    assert!(ips.remove(ip(1)) && !ips.remove(ip(1)));
    assert_eq!(ips, [ip(2)].into_iter().collect());
}

#[test]
fn a_vport_has_so_many_addresses() {
    let mut ips: Ips = (1..=9).map(ip).collect();
    assert_eq!(ips.len(), IPS_MAX);
    assert_eq!(ips.insert(ip(9)), Err(TooManyIps));
    assert_eq!(ips.insert(ip(1)), Ok(()), "it is there");
}

#[test]
fn claims_are_ordered_alike_everywhere() {
    use Origin::{Bound, Learned, Sticky};
    let (a, b) = (HostId(1), HostId(2));
    let wins = |x: (Origin, u32), y: (Origin, u32)| {
        let (x, y) = (claim(x.0, x.1), claim(y.0, y.1));
        let won = x.beats(a, &y, b);
        assert_ne!(won, y.beats(b, &x, a), "one of two wins");
        won
    };
    assert!(wins((Learned, 1), (Learned, 0)), "the later move");
    assert!(!wins((Learned, 1), (Learned, 2)));
    assert!(wins((Learned, 3), (Learned, 3)), "the lower host");
    assert!(!wins((Learned, 9), (Sticky, 0)), "what is sticky stays");
    assert!(!wins((Sticky, 9), (Bound, 0)), "configuration knows best");
}
