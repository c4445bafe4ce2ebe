use sluice_base::Mac;

use super::*;
use crate::config::{Limits, NeighborConfig, RouteTarget};
use crate::route::Mobility;

const NOW: Nanos = Nanos::from_millis(1_000);
const OWN: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const LINK: Link = Link { neighbor: NeighborId(0), side: Side::Passive };

fn network() -> Network {
    Network { vni: Vni::new(42).unwrap(), target: RouteTarget::of_as(65000, 42) }
}

fn key(number: u64) -> MacKey {
    MacKey { vni: network().vni, mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

fn endpoint(number: u64, is_sticky: bool) -> Endpoint {
    let mobility = Mobility { is_sticky, sequence: 0 };
    Endpoint { key: key(number), ips: Vec::new(), mobility }
}

fn speaker(vtep: Ipv4Addr, neighbor: Ipv4Addr, limits: Limits) -> Speaker {
    let neighbor = NeighborConfig { address: neighbor.into(), remote_as: 65000, is_passive: true };
    let config = Config {
        local_as: 65000,
        router_id: vtep,
        vtep,
        hold_s: Config::HOLD_S,
        stale_max: Config::STALE_MAX,
        neighbors: vec![neighbor],
        limits,
    };
    Speaker::new(config, 1, NOW)
}

/// Two speakers whose bytes go from one to the other at once.
fn pair(limits: Limits) -> [Speaker; 2] {
    let mut pair = [speaker(OWN, OTHER, limits), speaker(OTHER, OWN, Limits::default())];
    pair[1].connected(NOW, NeighborId(0));
    assert_eq!(pair[0].accept(NOW, OTHER.into()), Some(LINK));
    pump(&mut pair);
    pair
}

fn pump(pair: &mut [Speaker; 2]) {
    let active = Link { side: Side::Active, ..LINK };
    while deliver(pair, (0, LINK), (1, active)) + deliver(pair, (1, active), (0, LINK)) > 0 {}
}

/// Delivers the output of one end of a connection to the other end; returns its size.
fn deliver(pair: &mut [Speaker; 2], from: (usize, Link), to: (usize, Link)) -> usize {
    let bytes = take(&mut pair[from.0], from.1);
    pair[to.0].receive(NOW, to.1, &bytes);
    bytes.len()
}

fn take(speaker: &mut Speaker, link: Link) -> Vec<u8> {
    let bytes = speaker.output(NOW, link).to_vec();
    speaker.sent(NOW, link, bytes.len());
    bytes
}

#[test]
fn collision_keeps_connection_of_higher_identifier() {
    // Both connect at once. The one that is looked at first would win without the rule.
    let limits = Limits::default();
    let mut pair = [speaker(OWN, OTHER, limits), speaker(OTHER, OWN, limits)];
    let active = Link { side: Side::Active, ..LINK };
    pair[0].connected(NOW, NeighborId(0));
    pair[1].connected(NOW, NeighborId(0));
    assert_eq!(pair[1].accept(NOW, OWN.into()), Some(LINK));
    assert_eq!(pair[0].accept(NOW, OTHER.into()), Some(LINK));
    let ends = [((0, active), (1, LINK)), ((1, active), (0, LINK))];
    let both_ways = ends.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
    for _ in 0..4 {
        // What is on its way crosses what is on its way back.
        let sent: Vec<_> =
            both_ways.clone().map(|(from, to)| (take(&mut pair[from.0], from.1), to)).collect();
        for (bytes, to) in sent {
            pair[to.0].receive(NOW, to.1, &bytes);
        }
    }
    let sides = [0, 1].map(|index: usize| pair[index].neighbors[0].established());
    assert_eq!(sides, [Some(Side::Passive), Some(Side::Active)]);
    let ups = [0, 1].map(|index: usize| {
        let events = std::iter::from_fn(|| pair[index].event());
        events.filter(|event| matches!(event, Event::Up(_))).count()
    });
    assert_eq!(ups, [1, 1]);
}

#[test]
fn strangers_are_not_accepted() {
    let mut speaker = speaker(OWN, OTHER, Limits::default());
    assert_eq!(speaker.accept(NOW, Ipv4Addr::new(192, 0, 2, 9).into()), None);
    assert_eq!(speaker.accept(NOW, OTHER.into()), Some(LINK));
    // One connection of each side.
    assert_eq!(speaker.accept(NOW, OTHER.into()), None);
}

#[test]
fn endpoint_without_network_refused() {
    let mut speaker = speaker(OWN, OTHER, Limits::default());
    assert_eq!(speaker.announce(endpoint(1, false)), Err(Refusal::NoNetwork));
    speaker.add_network(NOW, network());
    assert_eq!(speaker.announce(endpoint(1, false)), Ok(0));
    speaker.remove_network(network().vni);
    assert_eq!(
        (speaker.exported(), speaker.announce(endpoint(1, false))),
        (0, Err(Refusal::NoNetwork))
    );
}

#[test]
fn sticky_endpoint_of_another_vtep_stays() {
    let mut pair = pair(Limits::default());
    for speaker in &mut pair {
        speaker.add_network(NOW, network());
    }
    assert_eq!(pair[1].announce(endpoint(1, true)), Ok(0));
    pump(&mut pair);
    assert_eq!(pair[0].announce(endpoint(1, false)), Err(Refusal::Sticky(OTHER)));
    // One that is to stay here as well moves.
    assert_eq!(pair[0].announce(endpoint(1, true)), Ok(1));
    pump(&mut pair);
    let taken: Vec<_> = std::iter::from_fn(|| pair[1].change()).collect();
    let is_taken = |change: &Change| matches!(change, Change::Mac { is_taken: true, .. });
    assert!(taken.iter().any(is_taken), "{taken:?}");
}

#[test]
fn network_added_later_is_asked_for() {
    let mut pair = pair(Limits::default());
    pair[1].add_network(NOW, network());
    pair[1].announce(endpoint(1, false)).unwrap();
    pump(&mut pair);
    assert_eq!(pair[0].neighbors()[0].kept_out.not_ours, 2);
    pair[0].add_network(NOW, network());
    pump(&mut pair);
    assert_eq!(pair[0].remote(key(1)).map(|remote| remote.vtep), Some(OTHER));
    // A network with another target is another one.
    let target = RouteTarget::of_as(65000, 43);
    pair[0].add_network(NOW, Network { target, ..network() });
    pump(&mut pair);
    assert_eq!(pair[0].remote(key(1)), None);
}

#[test]
fn neighbor_with_too_many_routes_rests() {
    let mut pair = pair(Limits { routes_per_neighbor: 2, routes_per_mac: 4 });
    for speaker in &mut pair {
        speaker.add_network(NOW, network());
    }
    for number in 0..4 {
        pair[1].announce(endpoint(number, false)).unwrap();
    }
    pump(&mut pair);
    let info = &pair[0].neighbors()[0];
    assert_eq!((info.routes, info.last_ending.clone()), (0, Some(Ending::Sent(6, 1))));
    pair[0].disconnected(NOW, LINK);
    assert_eq!(pair[0].accept(NOW, OTHER.into()), None);
    let later = NOW.after(crate::neighbor::IDLE);
    pair[0].tick(later);
    assert_eq!(pair[0].accept(later, OTHER.into()), Some(LINK));
}
