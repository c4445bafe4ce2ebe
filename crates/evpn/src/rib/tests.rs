use sluice_base::Mac;

use super::*;
use crate::route::{ENCAPSULATION, mobility_community};

const OWN: Own = Own {
    local_as: 65000,
    router_id: Ipv4Addr::new(10, 0, 0, 1),
    vtep: Ipv4Addr::new(10, 0, 0, 1),
};
const LOW: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const HIGH: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);

fn vni() -> Vni {
    Vni::new(42).unwrap()
}

fn key(number: u64) -> MacKey {
    MacKey { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

fn target() -> RouteTarget {
    RouteTarget::of_as(65000, 42)
}

fn rib(limits: Limits) -> Rib {
    let mut rib = Rib::new(OWN, limits, 2);
    rib.add_network(Network { vni: vni(), target: target() });
    rib
}

fn attributes(vtep: Ipv4Addr, sequence: u32, is_sticky: bool) -> Attributes {
    let mobility = mobility_community(Mobility { is_sticky, sequence });
    Attributes {
        next_hop: Some(vtep),
        communities: vec![target().octets(), ENCAPSULATION, mobility],
        replication: Some(42),
        ..Attributes::default()
    }
}

fn mac(vtep: Ipv4Addr, number: u64, ip: Option<IpAddr>) -> Route {
    let [a, b, c, d] = vtep.octets();
    let nlri = Nlri::MacIp { rd: [0, 1, a, b, c, d, 0, 42], tag: 0, mac: key(number).mac, ip };
    Route { nlri, label: Some(42) }
}

fn update(attributes: Attributes, routes: &[Route]) -> Update {
    Update { reach: routes.to_vec(), attributes, ..Update::default() }
}

fn announce(rib: &mut Rib, neighbor: usize, vtep: Ipv4Addr, sequence: u32) {
    let update = update(attributes(vtep, sequence, false), &[mac(vtep, 1, None)]);
    rib.update(neighbor, &update).unwrap();
}

fn withdraw(rib: &mut Rib, neighbor: usize, nlri: Nlri) {
    let update = Update { withdrawn: vec![nlri], ..Update::default() };
    rib.update(neighbor, &update).unwrap();
}

fn place(rib: &Rib, number: u64) -> Option<Ipv4Addr> {
    rib.best(key(number)).map(|remote| remote.vtep)
}

#[test]
fn higher_sequence_then_lower_vtep_wins() {
    let mut rib = rib(Limits::default());
    announce(&mut rib, 0, HIGH, 0);
    announce(&mut rib, 1, LOW, 0);
    assert_eq!(place(&rib, 1), Some(LOW));
    announce(&mut rib, 0, HIGH, 1);
    assert_eq!(place(&rib, 1), Some(HIGH));
    announce(&mut rib, 1, LOW, 2);
    assert_eq!(place(&rib, 1), Some(LOW));
    assert_eq!(rib.mobility_max(key(1)).unwrap().sequence, 2);
    withdraw(&mut rib, 1, mac(LOW, 1, None).nlri);
    assert_eq!(place(&rib, 1), Some(HIGH));
    withdraw(&mut rib, 0, mac(HIGH, 1, None).nlri);
    assert_eq!(place(&rib, 1), None);
}

#[test]
fn sticky_comes_before_any_sequence() {
    let mut rib = rib(Limits::default());
    announce(&mut rib, 0, LOW, 7);
    rib.update(1, &update(attributes(HIGH, 0, true), &[mac(HIGH, 1, None)])).unwrap();
    assert_eq!(place(&rib, 1), Some(HIGH));
}

#[test]
fn addresses_are_those_of_best_vtep() {
    let mut rib = rib(Limits::default());
    let [one, two] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    let routes = [mac(LOW, 1, None), mac(LOW, 1, Some(two)), mac(LOW, 1, Some(one))];
    rib.update(0, &update(attributes(LOW, 1, false), &routes)).unwrap();
    rib.update(1, &update(attributes(HIGH, 0, false), &[mac(HIGH, 1, Some(one))])).unwrap();
    assert_eq!(rib.best(key(1)).unwrap().ips, [one, two]);
    withdraw(&mut rib, 0, routes[1].nlri);
    assert_eq!(rib.best(key(1)).unwrap().ips, [one]);
}

#[test]
fn routes_not_for_here_kept_out() {
    let mut rib = rib(Limits::default());
    let good = attributes(LOW, 0, false);
    let looped = Attributes { as_path: vec![64999, 65000], ..good.clone() };
    let reflected = Attributes { originator: Some(OWN.router_id), ..good.clone() };
    let own = Attributes { next_hop: Some(OWN.vtep), ..good.clone() };
    let elsewhere = Attributes { next_hop: None, ..good.clone() };
    let other = RouteTarget::of_as(65000, 43).octets();
    let foreign = Attributes { communities: vec![other, ENCAPSULATION], ..good.clone() };
    let geneve = [0x03, 0x0c, 0, 0, 0, 0, 0, 19];
    let geneve = Attributes { communities: vec![target().octets(), geneve], ..good.clone() };
    for attributes in [looped, reflected, own, elsewhere, foreign, geneve] {
        rib.update(0, &update(attributes, &[mac(LOW, 1, None)])).unwrap();
    }
    // The label is another network's, and the address is a group's.
    let label = Route { label: Some(43), ..mac(LOW, 1, None) };
    rib.update(0, &update(good.clone(), &[label])).unwrap();
    let nlri = Nlri::MacIp { rd: [0; 8], tag: 0, mac: Mac::BROADCAST, ip: None };
    rib.update(0, &update(good, &[Route { nlri, label: Some(42) }])).unwrap();
    let expected =
        KeptOut { not_ours: 2, looped: 3, other_tunnel: 2, malformed: 1, ..KeptOut::default() };
    assert_eq!((rib.kept_out(0), rib.len(0)), (expected, 0));
    assert_eq!(rib.changed_mac(), None);
}

#[test]
fn route_kept_out_replaces_earlier_one() {
    let mut rib = rib(Limits::default());
    announce(&mut rib, 0, LOW, 0);
    let mut now_elsewhere = attributes(LOW, 0, false);
    now_elsewhere.communities.remove(0);
    rib.update(0, &update(now_elsewhere, &[mac(LOW, 1, None)])).unwrap();
    assert_eq!(place(&rib, 1), None);
}

#[test]
fn end_of_rib_sweeps_what_was_not_repeated() {
    let mut rib = rib(Limits::default());
    let routes = [mac(LOW, 1, None), mac(LOW, 2, None)];
    rib.update(0, &update(attributes(LOW, 0, false), &routes)).unwrap();
    rib.down(0);
    assert_eq!((place(&rib, 1), place(&rib, 2)), (Some(LOW), Some(LOW)));
    announce(&mut rib, 0, LOW, 0);
    rib.end_refresh(0);
    assert_eq!((place(&rib, 1), place(&rib, 2)), (Some(LOW), None));
}

#[test]
fn routes_of_ended_session_come_last() {
    let mut rib = rib(Limits::default());
    announce(&mut rib, 0, LOW, 9);
    announce(&mut rib, 1, HIGH, 0);
    while rib.changed_mac().is_some() {}
    rib.down(0);
    assert_eq!((place(&rib, 1), rib.changed_mac()), (Some(HIGH), Some(key(1))));
    // A refresh alone changes nothing.
    announce(&mut rib, 0, LOW, 9);
    rib.begin_refresh(0);
    assert_eq!(place(&rib, 1), Some(LOW));
}

#[test]
fn vteps_counted_by_their_routes() {
    let mut rib = rib(Limits::default());
    let multicast = |last| {
        let originator = IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        Route { nlri: Nlri::Multicast { rd: [0; 8], tag: 0, originator }, label: None }
    };
    rib.update(0, &update(attributes(LOW, 0, false), &[multicast(2)])).unwrap();
    rib.update(1, &update(attributes(LOW, 0, false), &[multicast(2)])).unwrap();
    assert_eq!((rib.changed_vtep(), rib.has_vtep(vni(), LOW)), (Some((vni(), LOW)), true));
    withdraw(&mut rib, 0, multicast(2).nlri);
    assert!(rib.has_vtep(vni(), LOW));
    rib.clear(1);
    assert!(!rib.has_vtep(vni(), LOW));
}

#[test]
fn neighbor_cannot_make_tables_grow() {
    let limits = Limits { routes_per_neighbor: 4, routes_per_mac: 2 };
    let mut rib = rib(limits);
    let [one, two] = [1, 2].map(|last| Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))));
    let routes = [mac(LOW, 1, None), mac(LOW, 1, one), mac(LOW, 1, two)];
    rib.update(0, &update(attributes(LOW, 0, false), &routes)).unwrap();
    assert_eq!((rib.len(0), rib.kept_out(0).too_many), (2, 1));
    let routes = [2, 3, 4].map(|number| mac(LOW, number, None));
    let result = rib.update(0, &update(attributes(LOW, 0, false), &routes));
    assert_eq!((result, rib.len(0)), (Err(TooManyRoutes), 4));
}

#[test]
fn removed_network_leaves_nothing() {
    let mut rib = rib(Limits::default());
    announce(&mut rib, 0, LOW, 0);
    while rib.changed_mac().is_some() {}
    rib.remove_network(vni());
    assert_eq!((place(&rib, 1), rib.changed_mac(), rib.len(0)), (None, Some(key(1)), 0));
    announce(&mut rib, 0, LOW, 0);
    assert_eq!((place(&rib, 1), rib.kept_out(0).not_ours), (None, 1));
}
