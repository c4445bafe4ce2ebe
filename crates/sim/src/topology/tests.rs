use std::collections::BTreeSet;

use sluice_base::{BitRate, Nanos};

use super::{Cable, FatTree, LeafSpine, Node, Routes, Topology, TopologyError};

const RATE: BitRate = BitRate::from_gbps(10);
const DELAY: Nanos = Nanos(500);

fn tree() -> (Topology, Routes) {
    let topology = FatTree::racks_256(RATE, DELAY).build();
    let routes = Routes::new(&topology).unwrap();
    (topology, routes)
}

#[test]
fn the_tree_has_the_cables_of_its_layers() {
    let (topology, _) = tree();
    assert_eq!((topology.hosts, topology.switches), (256, 16 + 16 + 16));
    assert_eq!(topology.cables.len(), 256 + 64 + 64);
}

#[test]
fn tree_path_is_connected_hops_match_turning_layer() {
    let (topology, routes) = tree();
    for (from, to, hops) in [(0, 1, 2), (0, 16, 4), (0, 64, 6), (255, 0, 6), (17, 60, 4)] {
        for flow in 0..64 {
            let path: Vec<_> = routes.path(from, to, flow).unwrap().links().collect();
            assert_eq!(path.len(), hops);
            let mut at = Node::Host(from);
            for link in path {
                let (begin, end) = topology.ends(link);
                assert_eq!(begin, at);
                at = end;
            }
            assert_eq!(at, Node::Host(to));
        }
    }
}

#[test]
fn flows_spread_over_all_equal_paths() {
    let (_, routes) = tree();
    let paths: BTreeSet<Vec<_>> =
        (0..1000).map(|flow| routes.path(0, 64, flow).unwrap().links().collect()).collect();
    // 4 ways up from the edge, 4 from the middle; the way down is then given.
    assert_eq!(paths.len(), 16);
}

#[test]
fn one_flow_has_one_path() {
    let (_, routes) = tree();
    assert_eq!(routes.path(3, 200, 77), routes.path(3, 200, 77));
}

#[test]
fn leaf_and_spine_join_every_pair() {
    let shape = LeafSpine {
        leaves: 3,
        hosts_per_leaf: 2,
        spines: 2,
        host_rate: RATE,
        switch_rate: RATE,
        delay: DELAY,
    };
    let routes = Routes::new(&shape.build()).unwrap();
    for from in 0..6 {
        for to in (0..6).filter(|to| *to != from) {
            let hops = if from / 2 == to / 2 { 2 } else { 4 };
            assert_eq!(routes.path(from, to, 9).unwrap().links().count(), hops);
        }
    }
}

#[test]
fn what_cannot_work_is_refused_by_name() {
    let cable = |a, b| Cable { a, b, rate: RATE, delay: DELAY };
    let topology = |cables| Topology { hosts: 2, switches: 2, cables };
    let (h0, h1, s0, s1) = (Node::Host(0), Node::Host(1), Node::Switch(0), Node::Switch(1));
    let refused = |cables| Routes::new(&topology(cables)).unwrap_err();
    assert_eq!(refused(vec![cable(h0, s0)]), TopologyError::HostCables { host: 1, cables: 0 });
    assert_eq!(
        refused(vec![cable(h0, s0), cable(h0, s1), cable(h1, s1)]),
        TopologyError::HostCables { host: 0, cables: 2 }
    );
    assert_eq!(
        refused(vec![cable(h0, Node::Switch(7))]),
        TopologyError::NoSuchNode(Node::Switch(7))
    );
    let slow = Cable { rate: BitRate(0), ..cable(h0, s0) };
    assert_eq!(refused(vec![slow]), TopologyError::NoRate { cable: 0 });
    let routes = Routes::new(&topology(vec![cable(h0, s0), cable(h1, s1)])).unwrap();
    assert_eq!(routes.path(0, 1, 0), Err(TopologyError::NotJoined { from: 0, to: 1 }));
}

#[test]
fn clients_are_behind_cores_in_turn() {
    let rate = BitRate::from_gbps(10);
    let tree = FatTree {
        pods: 2,
        edges_per_pod: 2,
        hosts_per_edge: 8,
        middles_per_pod: 2,
        cores_per_middle: 2,
        rate,
        delay: Nanos(500),
    };
    let plain = tree.build();
    assert_eq!(tree.cores(), 8..12);
    let more = plain.clone().with_clients(6, tree.cores(), rate, Nanos(500));
    assert_eq!((more.hosts, more.switches), (plain.hosts + 6, plain.switches));
    let own: Vec<(Node, Node)> =
        more.cables[plain.cables.len()..].iter().map(|cable| (cable.a, cable.b)).collect();
    let expected: Vec<(Node, Node)> = [8, 9, 10, 11, 8, 9]
        .into_iter()
        .zip(32..)
        .map(|(s, h)| (Node::Host(h), Node::Switch(s)))
        .collect();
    assert_eq!(own, expected);
    // Core, middle, edge: four links to every host.
    let routes = Routes::new(&more).unwrap();
    for host in 0..32 {
        assert_eq!(routes.path(33, host, 7).unwrap().links().count(), 4);
    }
}
