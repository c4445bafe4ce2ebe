use std::net::Ipv4Addr;

use super::*;

fn vni() -> Vni {
    Vni::new(42).unwrap()
}

fn network() -> Network {
    Network { vni: vni(), target: RouteTarget::of_as(65000, 42) }
}

fn key(number: u64) -> MacKey {
    MacKey { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
}

fn endpoint(number: u64, ips: &[IpAddr], sequence: u32) -> Endpoint {
    let mobility = Mobility { is_sticky: false, sequence };
    Endpoint { key: key(number), ips: ips.to_vec(), mobility }
}

fn exports() -> Exports {
    let mut exports = Exports::default();
    exports.add_network(network());
    exports
}

#[test]
fn endpoint_has_route_for_each_address() {
    let mut exports = exports();
    let routes = exports.put(endpoint(1, &[ip(2), ip(1), ip(2)], 0));
    let of = |ip| OwnRoute::Mac(key(1), ip);
    assert_eq!(routes, [of(None), of(Some(ip(1))), of(Some(ip(2)))]);
    // A second time nothing is to be sent.
    assert_eq!(exports.put(endpoint(1, &[ip(1), ip(2)], 0)), []);
    // An address that is no more is withdrawn.
    let routes = exports.put(endpoint(1, &[ip(1)], 0));
    assert_eq!(routes, [of(None), of(Some(ip(1))), of(Some(ip(2)))]);
    assert_eq!(exports.common(&of(Some(ip(2)))), None);
    assert!(exports.common(&of(Some(ip(1)))).is_some());
}

#[test]
fn numbers_of_networks_differ() {
    let mut exports = Exports::default();
    let vnis = [42, 0x1_0000 + 42, 43].map(|vni| Vni::new(vni).unwrap());
    for vni in vnis {
        exports.add_network(Network { vni, ..network() });
    }
    assert_eq!(vnis.map(|vni| exports.number_of(vni)), [42, 43, 44]);
    // Its routes can still be withdrawn by their names.
    exports.remove_network(vnis[0]);
    assert_eq!(exports.number_of(vnis[0]), 42);
}

#[test]
fn backlog_packs_routes_with_equal_attributes() {
    let mut exports = exports();
    let mut backlog = Backlog::default();
    for number in 1..=4 {
        backlog.put(&exports.put(endpoint(number, &[], u32::from(number == 3))));
    }
    backlog.put(&exports.put(endpoint(5, &[], 0)));
    exports.remove(key(5));
    let of = |number| OwnRoute::Mac(key(number), None);
    let mut batches = Vec::new();
    while let Some(next) = backlog.next(&exports, 2) {
        batches.push(match next {
            Next::Reach(common, routes) => (common.mobility.map(|it| it.sequence), routes),
            Next::Unreach(routes) => (None, routes),
            Next::End(_) => unreachable!("no marker is due"),
        });
    }
    let expected = [
        (Some(0), vec![of(1), of(2)]),
        (Some(1), vec![of(3)]),
        (Some(0), vec![of(4)]),
        (None, vec![of(5)]),
    ];
    assert_eq!(batches, expected);
    assert!(backlog.is_empty());
}

#[test]
fn marker_comes_behind_all_routes() {
    let exports = exports();
    let mut backlog = Backlog::default();
    backlog.put_all(&exports, Some(End::Rib));
    // A refresh before the first table is complete ends with it.
    backlog.put_all(&exports, None);
    let first = backlog.next(&exports, 90);
    assert!(matches!(first, Some(Next::Reach(_, routes)) if routes == [OwnRoute::Network(vni())]));
    assert_eq!(backlog.next(&exports, 90), Some(Next::End(End::Rib)));
    assert_eq!(backlog.next(&exports, 90), None);
}

#[test]
fn changes_of_one_route_are_one_entry() {
    let mut exports = exports();
    let mut backlog = Backlog::default();
    for sequence in 0..1_000 {
        backlog.put(&exports.put(endpoint(1, &[], sequence)));
    }
    assert_eq!(backlog.len(), 1);
}
