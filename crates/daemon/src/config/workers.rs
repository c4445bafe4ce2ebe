//! Assignment of ports to data workers.
//!
//! A port goes to its configured worker, or to the worker of another port of its device, or to the
//! first of the workers with the fewest ports. So the same file always gives the same assignment.

use std::fmt;

use sluice_api::config::{HostConfig, PortKind, Underlay, UnderlayKind};
use sluice_base::{PortId, Priority};
use sluice_placement::Mode;
use sluice_switch::{Limit, SwitchConfig};

/// Frames of a priority that may be on their way to, or wait in, a port of another worker: with a
/// fifth of a millisecond there and back, 320,000 a second.
const REFS_MAX: u16 = 64;
/// Most frames on their way from one worker to another; with many ports there are fewer of each.
const REMOTE_REFS_MAX: usize = 16_384;

/// The data workers of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// Number of workers.
    pub count: usize,
    /// Assignment by port number.
    pub ports: Vec<Placed>,
}

/// Assignment of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Worker, from 0; `None`: each worker has a socket of its own, and receives a part of the
    /// frames.
    pub worker: Option<usize>,
    /// Reason for this worker.
    pub why: Why,
    /// True if the port may migrate at run time.
    pub moves: bool,
}

impl Placed {
    fn at(worker: Option<usize>, why: Why) -> Self {
        Self { worker, why, moves: false }
    }
}

/// Reason why a port has its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no other.
    Only,
    /// The worker is configured.
    Configured,
    /// Another port of the same device is there.
    SharesDevice(String),
    /// The worker had the fewest ports.
    FewestPorts,
    /// The kernel gives each worker a part of the received frames.
    Spread,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("there is one worker"),
            Self::Configured => f.write_str("the configuration says so"),
            Self::SharesDevice(port) => write!(f, "it shares its device with {port}"),
            Self::FewestPorts => f.write_str("that worker had the fewest ports"),
            Self::Spread => f.write_str("sockets can be shared out by inner flow"),
        }
    }
}

impl Workers {
    /// Assigns the ports of a checked configuration.
    #[must_use]
    pub fn of(config: &HostConfig) -> Self {
        let count = usize::from(config.host.workers.max(1));
        let underlay = config.underlay.iter().map(|underlay| underlay.worker);
        let said: Vec<Option<usize>> = config
            .ports
            .iter()
            .map(|port| port.worker)
            .chain(underlay)
            .map(|worker| worker.map(usize::from))
            .collect();
        if count == 1 {
            let only = Placed::at(Some(0), Why::Only);
            return Self { count, ports: vec![only; said.len()] };
        }
        let mut ports: Vec<Option<Placed>> =
            said.iter().map(|said| said.map(|_| Placed::at(*said, Why::Configured))).collect();
        let at = config.ports.len();
        if spreads(config) && ports[at].is_none() {
            ports[at] = Some(Placed::at(None, Why::Spread));
        }
        for at in 0..ports.len() {
            if ports[at].is_none() {
                ports[at] = Some(choose(config, count, &ports, at));
            }
        }
        Self { count, ports: ports.into_iter().flatten().collect() }
    }

    /// Returns the worker of each port.
    #[must_use]
    pub fn owners(&self) -> Vec<Option<usize>> {
        self.ports.iter().map(|placed| placed.worker).collect()
    }

    /// Returns the ports that may migrate.
    pub fn movable(&self) -> impl Iterator<Item = PortId> {
        let ports = self.ports.iter().enumerate().filter(|(_, placed)| placed.moves);
        ports.map(|(at, _)| PortId::from_index(at))
    }

    /// Returns the switch of one worker. The workers share the memory of the pool, so that several
    /// need no more than one.
    #[must_use]
    pub fn shard(&self, whole: &SwitchConfig, worker: usize) -> SwitchConfig {
        if self.count == 1 {
            return whole.clone();
        }
        let classes = self.ports.len() * Priority::COUNT;
        let refs_max = u16::try_from(REMOTE_REFS_MAX / classes.max(1)).unwrap_or(REFS_MAX);
        let refs_max = refs_max.clamp(1, REFS_MAX);
        let movable: Vec<PortId> = self.movable().collect();
        let mut shard = whole.shard(&self.owners(), &movable, self.count, worker, refs_max);
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        let part = |limit: &mut Limit| {
            limit.frames = limit.frames.div_ceil(count);
            limit.bytes.0 = limit.bytes.0.div_ceil(count.into());
        };
        part(&mut shard.pool.from_local);
        part(&mut shard.pool.from_underlay);
        shard
    }
}

/// Chooses the worker of a port that the configuration does not place.
fn choose(config: &HostConfig, count: usize, ports: &[Option<Placed>], at: usize) -> Placed {
    if let Some((worker, beside)) = shared(config, ports, at) {
        return Placed::at(Some(worker), Why::SharesDevice(beside));
    }
    let load =
        |worker: &usize| ports.iter().flatten().filter(|p| p.worker == Some(*worker)).count();
    let worker = (0..count).min_by_key(load).or(Some(0));
    let placed = Placed::at(worker, Why::FewestPorts);
    // A port on a wire shares its device and its pauses with others.
    let kind = config.ports.get(at).map(|port| port.kind);
    let is_own = matches!(
        kind,
        Some(PortKind::Tap | PortKind::Veth | PortKind::Kernel | PortKind::VhostUser)
    );
    Placed { moves: is_own && config.host.placement != Mode::Rss, ..placed }
}

/// Returns true if all workers may serve the underlay. A rate is counted by one worker.
fn spreads(config: &HostConfig) -> bool {
    let may = |u: &Underlay| u.kind == UnderlayKind::Udp && u.link.rate_mbps.is_none();
    config.underlay.as_ref().is_some_and(may)
}

/// Returns the worker of another port of the same device, and that port's name.
fn shared(config: &HostConfig, ports: &[Option<Placed>], at: usize) -> Option<(usize, String)> {
    let port = config.ports.get(at).filter(|port| port.kind == PortKind::L2)?;
    let others = config.ports.iter().zip(ports).enumerate();
    others.filter(|(other, _)| *other != at).find_map(|(_, (other, placed))| {
        let same = other.kind == PortKind::L2 && other.device == port.device;
        let placed = placed.as_ref().filter(|_| same)?;
        Some((placed.worker?, other.name.clone()))
    })
}

#[cfg(test)]
mod tests;
