//! Which data worker serves which port.
//!
//! A port goes where the configuration says, or where another port of its device is, or to the
//! worker that has the fewest, the first of those. So the same file always means the same.

use std::fmt;

use sluice_api::config::{HostConfig, PortKind};
use sluice_base::Priority;
use sluice_switch::{Limit, SwitchConfig};

/// Frames of a priority that may be on their way to, or wait in, a port of another worker.
const LEND_MAX: u16 = 16;
/// So many frames may be on their way from one worker to another; with many ports fewer of each.
const LOANS_MAX: usize = 8_192;

/// The data workers of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// How many there are.
    pub count: usize,
    /// By number of port.
    pub ports: Vec<Placed>,
}

/// Where a port is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The worker, from 0.
    pub worker: usize,
    /// Why that one.
    pub why: Why,
}

/// Why a port is served by its worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is no other.
    Only,
    /// The configuration says so.
    Configured,
    /// Another port of its device is there.
    SharesDevice(String),
    /// It had the fewest ports.
    FewestPorts,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => f.write_str("there is one worker"),
            Self::Configured => f.write_str("the configuration says so"),
            Self::SharesDevice(port) => write!(f, "it shares its device with {port}"),
            Self::FewestPorts => f.write_str("that worker had the fewest ports"),
        }
    }
}

impl Workers {
    /// Of a checked configuration.
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
            let only = Placed { worker: 0, why: Why::Only };
            return Self { count, ports: vec![only; said.len()] };
        }
        let mut ports: Vec<Option<Placed>> = said
            .iter()
            .map(|said| said.map(|worker| Placed { worker, why: Why::Configured }))
            .collect();
        for at in 0..ports.len() {
            if ports[at].is_none() {
                ports[at] = Some(choose(config, count, &ports, at));
            }
        }
        Self { count, ports: ports.into_iter().flatten().collect() }
    }

    /// The worker of each port.
    #[must_use]
    pub fn owners(&self) -> Vec<usize> {
        self.ports.iter().map(|placed| placed.worker).collect()
    }

    /// The switch of one worker. The pool is shared out, so that several need no more memory than
    /// one.
    #[must_use]
    pub fn shard(&self, whole: &SwitchConfig, worker: usize) -> SwitchConfig {
        if self.count == 1 {
            return whole.clone();
        }
        let classes = self.ports.len() * Priority::COUNT;
        let lend_max = u16::try_from(LOANS_MAX / classes.max(1)).unwrap_or(LEND_MAX);
        // A full port of another worker has its share of an input and what is lent to it: with a
        // quarter, others go on.
        let least = whole.ports.iter().map(|port| port.input.frames / 4).min().unwrap_or(0);
        let lend_max = lend_max.min(u16::try_from(least).unwrap_or(u16::MAX)).clamp(1, LEND_MAX);
        let mut shard = whole.shard(&self.owners(), self.count, worker, lend_max);
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

/// The worker of a port that the configuration does not place.
fn choose(config: &HostConfig, count: usize, ports: &[Option<Placed>], at: usize) -> Placed {
    if let Some((worker, beside)) = shared(config, ports, at) {
        return Placed { worker, why: Why::SharesDevice(beside) };
    }
    let load = |worker: &usize| ports.iter().flatten().filter(|p| p.worker == *worker).count();
    let worker = (0..count).min_by_key(load).unwrap_or(0);
    Placed { worker, why: Why::FewestPorts }
}

/// Where another port of the same device is, and its name.
fn shared(config: &HostConfig, ports: &[Option<Placed>], at: usize) -> Option<(usize, String)> {
    let port = config.ports.get(at).filter(|port| port.kind == PortKind::L2)?;
    let others = config.ports.iter().zip(ports).enumerate();
    others.filter(|(other, _)| *other != at).find_map(|(_, (other, placed))| {
        let same = other.kind == PortKind::L2 && other.device == port.device;
        let placed = placed.as_ref().filter(|_| same)?;
        Some((placed.worker, other.name.clone()))
    })
}

#[cfg(test)]
mod tests;
