use super::*;

const HOP: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 7];

fn neighbour(index: u32, state: NeighbourState, mac: Option<&[u8]>) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = index;
    message.header.state = state;
    message.attributes.push(NeighbourAttribute::Destination(NeighbourAddress::Inet(HOP)));
    message.attributes.extend(mac.map(|mac| NeighbourAttribute::LinkLayerAddress(mac.to_vec())));
    message
}

/// Every state of the kernel's table, with and without an address.
#[test]
fn only_usable_states_give_a_mac() {
    use NeighbourState as S;
    let states = [
        (S::None, false),
        (S::Incomplete, false),
        (S::Reachable, true),
        (S::Stale, true),
        (S::Delay, true),
        (S::Probe, true),
        (S::Failed, false),
        (S::Noarp, true),
        (S::Permanent, true),
        (S::Other(0x300), false),
    ];
    for (state, usable) in states {
        let with = neighbour(1, state, Some(&MAC));
        assert_eq!(neighbor_mac(&with), usable.then_some(Mac(MAC)), "{state:?}");
        assert_eq!(neighbor_mac(&neighbour(1, state, None)), None, "{state:?}");
        assert_eq!(neighbor_mac(&neighbour(1, state, Some(&MAC[..5]))), None);
    }
}

#[test]
fn changes_of_other_devices_and_neighbours_are_ignored() {
    let mut neighbours = Neighbours::open("lo").unwrap();
    let mine = neighbours.index;
    neighbours.known.insert(HOP, Known { hop: Some(HOP), ..Known::default() });
    let known_mac = |neighbours: &Neighbours| neighbours.known[&HOP].mac;
    let new = |index, state| RouteNetlinkMessage::NewNeighbour(neighbour(index, state, Some(&MAC)));
    neighbours.take_in(&new(mine + 1, NeighbourState::Reachable));
    assert_eq!(known_mac(&neighbours), None);
    neighbours.take_in(&new(mine, NeighbourState::Reachable));
    assert_eq!(known_mac(&neighbours), Some(Mac(MAC)));
    neighbours.next_use = Nanos(9);
    neighbours.take_in(&RouteNetlinkMessage::DelNeighbour(neighbour(
        mine,
        NeighbourState::Stale,
        Some(&MAC),
    )));
    assert_eq!((known_mac(&neighbours), neighbours.next_use), (None, Nanos::ZERO), "again at once");
}

/// The loopback has no next hops, and a destination that is local is none.
#[test]
fn a_local_destination_has_no_next_hop() {
    let mut neighbours = Neighbours::open("lo").unwrap();
    assert_eq!(neighbours.deadline(), Nanos::MAX);
    neighbours.watch(HOP);
    assert_eq!(neighbours.poll(Nanos(5)).unwrap(), []);
    assert_eq!(neighbours.deadline(), Nanos(5).after(RESOLVE_EVERY));
}
