//! Hosts, physical switches and cables of a scenario.

use sluice_base::{BitRate, Nanos};
use sluice_sim::topology::{Cable, FatTree, LeafSpine, Node, Topology};

use crate::sim::scenario::Shape;

/// Returns a topology of hosts around one switch.
pub(crate) fn star(hosts: u32, rate: BitRate, delay: Nanos) -> Topology {
    let cable = |host: u32| Cable { a: Node::Host(host), b: Node::Switch(0), rate, delay };
    Topology { hosts, switches: 1, cables: (0..hosts).map(cable).collect() }
}

/// Returns the topology, with the delays of the links that have their own.
pub(super) fn topology(shape: &Shape, clients: u32) -> Topology {
    let mut topology = regular(shape, clients);
    for link in shape.links() {
        let own = |node| matches!(node, Node::Host(host) if link.hosts.contains(&host));
        for cable in topology.cables.iter_mut().filter(|cable| own(cable.a) || own(cable.b)) {
            cable.delay = Nanos(link.delay_ns);
        }
    }
    topology
}

/// Returns the topology in which all links of a kind are alike.
fn regular(shape: &Shape, clients: u32) -> Topology {
    let (mbps, delay_ns) = shape.link();
    let (rate, delay) = (BitRate::from_mbps(mbps), Nanos(delay_ns));
    match *shape {
        Shape::Star { hosts, .. } => star(hosts, rate, delay),
        Shape::LeafSpine { leaves, hosts_per_leaf, spines, spine_mbps, .. } => LeafSpine {
            leaves,
            hosts_per_leaf,
            spines,
            host_rate: rate,
            switch_rate: BitRate::from_mbps(spine_mbps),
            delay,
        }
        .build(),
        Shape::FatTree {
            pods,
            edges_per_pod,
            hosts_per_edge,
            middles_per_pod,
            cores_per_middle,
            ..
        } => {
            let tree = FatTree {
                pods,
                edges_per_pod,
                hosts_per_edge,
                middles_per_pod,
                cores_per_middle,
                rate,
                delay,
            };
            tree.build().with_clients(clients, tree.cores(), rate, delay)
        }
    }
}
