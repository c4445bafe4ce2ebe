//! Speakers among each other: any cuts of bytes, connections that are lost, endpoints that move.

#[path = "mesh/world.rs"]
mod world;

use proptest::prelude::*;
use sluice_base::Nanos;
use sluice_evpn::{Event, NeighborId, State};
use world::{World, key, vni, vtep};

/// Long enough for an attempt to connect, its collision, and all routes.
const SETTLED: Nanos = Nanos::from_millis(60_000);
const MILLISECOND: Nanos = Nanos::from_millis(1);

fn settled(count: usize, is_internal: bool) -> World {
    let mut world = World::new(7, count, is_internal);
    world.pass(SETTLED);
    for speaker in &world.speakers {
        for neighbor in speaker.neighbors() {
            assert_eq!(neighbor.state, Some(State::Established), "{neighbor:?}");
        }
    }
    world
}

#[test]
fn neighbors_meet_once() {
    // All begin at the same moment.
    let world = settled(3, true);
    for events in &world.events {
        let ups = events.iter().filter(|event| matches!(event, Event::Up(_))).count();
        assert_eq!(ups, 2, "{events:?}");
    }
}

#[test]
fn routes_known_to_neighbors_of_both_kinds() {
    for is_internal in [true, false] {
        let mut world = settled(2, is_internal);
        world.announce(0, key(1));
        world.pass(MILLISECOND);
        let remote = world.speakers[1].remote(key(1)).unwrap();
        assert_eq!(remote.vtep, vtep(0));
        assert_eq!(remote.ips, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
        assert!(world.flood[1].contains_key(&(vni(), vtep(0))));
        assert_eq!(world.speakers[0].remote(key(1)), None);
        world.withdraw(0, key(1));
        world.pass(MILLISECOND);
        assert_eq!(world.place(1, key(1)), None);
    }
}

#[test]
fn each_move_raises_sequence() {
    let mut world = settled(2, true);
    for step in 0..200_u32 {
        let to = usize::try_from(step % 2).unwrap();
        assert_eq!(world.announce(to, key(1)), step);
        world.pass(MILLISECOND);
        assert_eq!(world.place(1 - to, key(1)), Some(vtep(to)), "after {step} moves");
        assert_eq!(world.place(to, key(1)), None, "after {step} moves");
    }
    // The last one that had it withdrew its route.
    assert_eq!(world.speakers[0].exported(), 1);
}

#[test]
fn equal_sequences_go_to_lower_vtep() {
    let mut world = settled(2, true);
    // Neither knows of the other's.
    world.announce(1, key(1));
    world.announce(0, key(1));
    world.pass(MILLISECOND);
    assert_eq!((world.place(0, key(1)), world.place(1, key(1))), (None, Some(vtep(0))));
    assert_eq!(world.speakers[1].exported(), 1);
}

#[test]
fn silent_neighbor_lost_after_hold_time() {
    let mut world = settled(2, true);
    world.announce(0, key(1));
    world.pass(MILLISECOND);
    (world.is_cut, world.events[1]) = (true, Vec::new());
    world.black_hole();
    world.pass(Nanos::from_millis(8_000));
    assert!(world.events[1].is_empty(), "{:?}", world.events[1]);
    world.pass(Nanos::from_millis(1_500));
    let down = Event::Down(NeighborId(0), sluice_evpn::Ending::Sent(4, 0));
    assert_eq!(world.events[1], [down]);
}

#[test]
fn routes_stay_until_session_is_back() {
    let mut world = settled(2, true);
    world.announce(0, key(1));
    world.announce(0, key(2));
    world.pass(MILLISECOND);
    world.cut_all();
    // Nobody can tell the neighbor of it.
    world.withdraw(0, key(2));
    assert_eq!(world.place(1, key(2)), Some(vtep(0)));
    world.pass(SETTLED);
    assert_eq!(world.place(1, key(1)), Some(vtep(0)));
    assert_eq!(world.place(1, key(2)), None, "End-of-RIB sweeps it");
    let gone = |event: &Event| matches!(event, Event::Forgotten(..));
    assert!(!world.events[1].iter().any(gone), "{:?}", world.events[1]);
}

#[test]
fn routes_go_if_session_stays_away() {
    let mut world = settled(2, true);
    world.announce(0, key(1));
    world.pass(MILLISECOND);
    world.is_cut = true;
    world.cut_all();
    world.pass(Nanos::from_millis(29_000));
    assert_eq!(world.place(1, key(1)), Some(vtep(0)));
    world.pass(Nanos::from_millis(2_000));
    assert_eq!(world.place(1, key(1)), None);
    assert!(world.flood[1].is_empty());
}

#[test]
fn shut_down_withdraws_at_once() {
    let mut world = settled(2, true);
    world.announce(0, key(1));
    world.pass(MILLISECOND);
    world.is_cut = true;
    world.speakers[0].shut_down();
    world.pass(MILLISECOND);
    assert_eq!(world.place(1, key(1)), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happens, in the end one speaker has each endpoint and all others know which.
    #[test]
    fn all_agree_in_the_end(seed in any::<u64>(), is_internal in any::<bool>()) {
        const KEYS: u64 = 6;
        let mut world = World::new(seed, 3, is_internal);
        let mut owners = std::collections::BTreeMap::new();
        for _ in 0..400 {
            let (who, what) = (world.pick(3), key(world.random.below(KEYS)));
            match world.pick(20) {
                0 | 1 => {
                    world.announce(who, what);
                    owners.insert(what, who);
                }
                2 if owners.get(&what) == Some(&who) => {
                    owners.remove(&what);
                    (0..3).for_each(|index| world.withdraw(index, what));
                }
                3 if world.random.chance(1, 4) => world.cut_one(),
                4 => world.pass(Nanos::from_millis(200)),
                _ => world.deliver_some(),
            }
        }
        world.pass(SETTLED);
        for number in 0..KEYS {
            let places = [0, 1, 2].map(|index| world.place(index, key(number)));
            if owners.contains_key(&key(number)) {
                let has = (0..3).filter(|index| places[*index].is_none()).collect::<Vec<_>>();
                prop_assert_eq!(has.len(), 1, "{:?}", places);
                let owner = Some(vtep(has[0]));
                prop_assert!(places.iter().flatten().all(|place| Some(*place) == owner));
            } else {
                prop_assert_eq!(places, [None; 3]);
            }
        }
    }
}
