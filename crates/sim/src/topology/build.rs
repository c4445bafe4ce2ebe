//! Builders of the usual data centres.

use sluice_base::{BitRate, Nanos};

use super::{Cable, Node, Topology};

/// Leaves with hosts, each joined to every spine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// Number of leaves.
    pub leaves: u32,
    /// Hosts of each leaf.
    pub hosts_per_leaf: u32,
    /// Number of spines.
    pub spines: u32,
    /// The rate of a host's cable.
    pub host_rate: BitRate,
    /// The rate of a cable between switches.
    pub switch_rate: BitRate,
    /// The delay of every cable.
    pub delay: Nanos,
}

impl LeafSpine {
    /// Builds the topology. Hosts are numbered leaf by leaf; switches: leaves, then spines.
    #[must_use]
    pub fn build(&self) -> Topology {
        let hosts = self.leaves * self.hosts_per_leaf;
        let mut cables = Vec::new();
        for host in 0..hosts {
            let leaf = Node::Switch(host / self.hosts_per_leaf);
            cables.push(Cable {
                a: Node::Host(host),
                b: leaf,
                rate: self.host_rate,
                delay: self.delay,
            });
        }
        for leaf in 0..self.leaves {
            for spine in 0..self.spines {
                cables.push(Cable {
                    a: Node::Switch(leaf),
                    b: Node::Switch(self.leaves + spine),
                    rate: self.switch_rate,
                    delay: self.delay,
                });
            }
        }
        Topology { hosts, switches: self.leaves + self.spines, cables }
    }
}

/// A tree of three layers: edge switches with hosts, middle switches that join the edges of a pod,
/// and cores that join the pods. All cables have one rate.
///
/// Middle switch `m` of each pod is joined to the cores `m * cores_per_middle ..` of its own group,
/// so that a core has one cable to each pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatTree {
    /// Number of pods.
    pub pods: u32,
    /// Edge switches of a pod.
    pub edges_per_pod: u32,
    /// Hosts of an edge switch.
    pub hosts_per_edge: u32,
    /// Middle switches of a pod; every edge switch has a cable to each.
    pub middles_per_pod: u32,
    /// Cores above each middle switch.
    pub cores_per_middle: u32,
    /// The rate of every cable.
    pub rate: BitRate,
    /// The delay of every cable.
    pub delay: Nanos,
}

impl FatTree {
    /// Returns 256 hosts: 16 racks of 16 in 4 pods, 4 ways up from each rack, 16 cores.
    #[must_use]
    pub const fn racks_256(rate: BitRate, delay: Nanos) -> Self {
        Self {
            pods: 4,
            edges_per_pod: 4,
            hosts_per_edge: 16,
            middles_per_pod: 4,
            cores_per_middle: 4,
            rate,
            delay,
        }
    }

    /// Number of hosts.
    #[must_use]
    pub const fn host_count(&self) -> u32 {
        self.pods * self.edges_per_pod * self.hosts_per_edge
    }

    /// Builds the topology. Hosts are numbered edge by edge; switches: edges, middles pod by pod,
    /// cores.
    #[must_use]
    pub fn build(&self) -> Topology {
        let hosts = self.host_count();
        let edges = self.pods * self.edges_per_pod;
        let middles = self.pods * self.middles_per_pod;
        let cores = self.middles_per_pod * self.cores_per_middle;
        let mut cables = Vec::new();
        let mut join = |a, b| cables.push(Cable { a, b, rate: self.rate, delay: self.delay });
        for host in 0..hosts {
            join(Node::Host(host), Node::Switch(host / self.hosts_per_edge));
        }
        for edge in 0..edges {
            let pod = edge / self.edges_per_pod;
            for middle in 0..self.middles_per_pod {
                let middle = edges + pod * self.middles_per_pod + middle;
                join(Node::Switch(edge), Node::Switch(middle));
            }
        }
        for pod in 0..self.pods {
            for core in 0..cores {
                let middle = edges + pod * self.middles_per_pod + core / self.cores_per_middle;
                join(Node::Switch(middle), Node::Switch(edges + middles + core));
            }
        }
        Topology { hosts, switches: edges + middles + cores, cables }
    }
}

impl FatTree {
    /// Returns the numbers of the cores.
    #[must_use]
    pub const fn cores(&self) -> std::ops::Range<u32> {
        let edges = self.pods * self.edges_per_pod;
        let first = edges + self.pods * self.middles_per_pod;
        first..first + self.middles_per_pod * self.cores_per_middle
    }
}

impl Topology {
    /// Adds hosts behind the other ones, each with a cable to one of these switches in turn:
    /// clients at the uplinks of a data centre.
    #[must_use]
    pub fn with_clients(
        mut self,
        clients: u32,
        switches: std::ops::Range<u32>,
        rate: BitRate,
        delay: Nanos,
    ) -> Self {
        for (client, switch) in (0..clients).zip(switches.cycle()) {
            let host = Node::Host(self.hosts + client);
            self.cables.push(Cable { a: host, b: Node::Switch(switch), rate, delay });
        }
        self.hosts += clients;
        self
    }
}
