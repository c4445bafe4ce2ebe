//! Equal-cost paths: at each switch a flow's hash picks one of the links that lead closer.
//!
//! The table holds, per (switch, switch of the destination), the links of all shortest paths. A
//! flow's path is looked up once, when the flow begins, and its frames follow it: every switch
//! picks by the same hash of the same flow, so that a look-up at each hop would give the same
//! links.

use std::collections::VecDeque;

use super::{LinkId, Node, Topology, TopologyError};

/// Largest number of links of a path.
pub const HOPS_MAX: usize = 8;

/// The links from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    links: [LinkId; HOPS_MAX],
}

impl Path {
    const NO_LINK: LinkId = LinkId(u32::MAX);

    /// Returns the link of a hop; the first is the sender's own.
    ///
    /// # Panics
    /// If there is no such hop.
    #[inline]
    #[must_use]
    pub fn link(&self, hop: u8) -> LinkId {
        self.links[usize::from(hop)]
    }

    /// Iterates over the links in their order.
    pub fn links(&self) -> impl Iterator<Item = LinkId> + '_ {
        self.links.iter().copied().take_while(|l| *l != Self::NO_LINK)
    }
}

/// The table of shortest paths.
#[derive(Clone, Debug)]
pub struct Routes {
    /// Per host: its link and the number of its switch in `leaves`.
    hosts: Vec<(LinkId, u32)>,
    /// The switches that have hosts.
    leaves: Vec<u32>,
    /// Per (switch, leaf): first and count of its links.
    spans: Vec<(u32, u32)>,
    links: Vec<LinkId>,
    /// Per link: the switch at its end; `None` if it ends at a host.
    ends: Vec<Option<u32>>,
}

impl Routes {
    /// Finds all shortest paths.
    ///
    /// # Errors
    /// The first part of the topology that cannot work.
    pub fn new(topology: &Topology) -> Result<Self, TopologyError> {
        check(topology)?;
        let mut leaf_of = vec![u32::MAX; topology.switches as usize];
        let mut leaves = Vec::new();
        let mut hosts = vec![(LinkId(0), u32::MAX); topology.hosts as usize];
        for (link, _) in topology.links() {
            if let (Node::Host(h), Node::Switch(s)) = topology.ends(link) {
                if leaf_of[s as usize] == u32::MAX {
                    leaf_of[s as usize] = u32::try_from(leaves.len()).expect("a switch each");
                    leaves.push(s);
                }
                hosts[h as usize] = (link, leaf_of[s as usize]);
            }
        }
        let ends = topology
            .links()
            .map(|(link, _)| match topology.ends(link).1 {
                Node::Switch(s) => Some(s),
                Node::Host(_) => None,
            })
            .collect();
        let mut routes = Self {
            hosts,
            spans: vec![(0, 0); topology.switches as usize * leaves.len()],
            leaves,
            links: Vec::new(),
            ends,
        };
        for leaf in 0..routes.leaves.len() {
            routes.fill(topology, leaf);
        }
        Ok(routes)
    }

    /// Adds the links towards one leaf, by breadth-first search from it.
    fn fill(&mut self, topology: &Topology, leaf: usize) {
        let count = topology.switches as usize;
        let mut out: Vec<Vec<(LinkId, u32)>> = vec![Vec::new(); count];
        for (link, _) in topology.links() {
            if let (Node::Switch(from), Node::Switch(to)) = topology.ends(link) {
                out[from as usize].push((link, to));
            }
        }
        let mut distance = vec![u32::MAX; count];
        let mut queue = VecDeque::from([self.leaves[leaf]]);
        distance[self.leaves[leaf] as usize] = 0;
        while let Some(at) = queue.pop_front() {
            for (_, to) in &out[at as usize] {
                if distance[*to as usize] == u32::MAX {
                    distance[*to as usize] = distance[at as usize] + 1;
                    queue.push_back(*to);
                }
            }
        }
        for (from, links) in out.iter().enumerate() {
            let first = u32::try_from(self.links.len()).expect("fewer than 2^32 entries");
            let closer = links.iter().filter(|(_, to)| {
                distance[from] != u32::MAX && distance[*to as usize] < distance[from]
            });
            self.links.extend(closer.map(|(link, _)| *link));
            let end = u32::try_from(self.links.len()).expect("fewer than 2^32 entries");
            self.spans[from * self.leaves.len() + leaf] = (first, end - first);
        }
    }

    /// Returns the path of a flow between two hosts.
    ///
    /// # Errors
    /// There is none, or it is too long.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn path(&self, from: u32, to: u32, flow: u64) -> Result<Path, TopologyError> {
        let (first, _) = self.hosts[from as usize];
        let (back, leaf) = self.hosts[to as usize];
        let mut links = [Path::NO_LINK; HOPS_MAX];
        links[0] = first;
        let mut count = 1;
        let mut at = self.ends[first.index()].expect("a host's cable leads to a switch");
        while at != self.leaves[leaf as usize] {
            let (begin, choices) = self.spans[at as usize * self.leaves.len() + leaf as usize];
            if choices == 0 {
                return Err(TopologyError::NotJoined { from, to });
            }
            if count == HOPS_MAX - 1 {
                return Err(TopologyError::TooLong { from, to });
            }
            let choice = mix(flow, at) % u64::from(choices);
            let place = usize::try_from(u64::from(begin) + choice).expect("an index");
            links[count] = self.links[place];
            at = self.ends[links[count].index()].expect("a link between switches");
            count += 1;
        }
        links[count] = back.reverse();
        Ok(Path { links })
    }

    /// Number of hosts.
    #[must_use]
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the link from a host to its switch.
    #[must_use]
    pub fn link_of(&self, host: u32) -> LinkId {
        self.hosts[host as usize].0
    }
}

/// Returns another number for each (flow, switch), so that two switches in a row do not pick alike.
fn mix(flow: u64, switch: u32) -> u64 {
    let x = (flow ^ u64::from(switch).wrapping_mul(0xd6e8_feb8_6659_fd93))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

fn check(topology: &Topology) -> Result<(), TopologyError> {
    let mut cables = vec![0; topology.hosts as usize];
    for (at, cable) in topology.cables.iter().enumerate() {
        for (node, other) in [(cable.a, cable.b), (cable.b, cable.a)] {
            let known = match node {
                Node::Host(h) => h < topology.hosts,
                Node::Switch(s) => s < topology.switches,
            };
            if !known {
                return Err(TopologyError::NoSuchNode(node));
            }
            if let (Node::Host(h), Node::Switch(_)) = (node, other) {
                cables[h as usize] += 1;
            }
        }
        if cable.rate.0 == 0 {
            return Err(TopologyError::NoRate { cable: at });
        }
    }
    match cables.iter().position(|count| *count != 1) {
        Some(host) => Err(TopologyError::HostCables {
            host: u32::try_from(host).expect("fewer than 2^32 hosts"),
            cables: cables[host],
        }),
        None => Ok(()),
    }
}
