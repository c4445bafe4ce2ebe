//! Storm control: how many frames with many receivers a port and a network may send.
//!
//! A frame to everybody costs as many frames as there are receivers. The data plane asks here
//! before it copies one; what exceeds the budget of its port or of its network is dropped there
//! and counted here. Both budgets are token buckets of frames, one for each kind of frame.

use alloc::boxed::Box;
use alloc::vec;

use sluice_base::{Mac, Nanos, PortId, VnetId};

use crate::bucket::{Bucket, Pace, Rate};

/// Kinds of frames with many receivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// To ff:ff:ff:ff:ff:ff.
    Broadcast,
    /// To another group address.
    Multicast,
    /// To one address, which is not known.
    Unknown,
}

impl Kind {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// The kind of a frame to `dst` that has many receivers.
    #[must_use]
    pub fn of(dst: Mac) -> Self {
        match dst {
            Mac::BROADCAST => Self::Broadcast,
            dst if dst.is_group() => Self::Multicast,
            _ => Self::Unknown,
        }
    }
}

/// Whose budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The port's.
    Port,
    /// The network's.
    Vnet,
}

/// The budgets, in frames, by [`Kind`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many ports there are; [`PortId`]s are below it.
    pub ports: u16,
    /// How many networks there are; [`VnetId`]s are below it.
    pub vnets: u16,
    /// Of each port.
    pub port: [Rate; Kind::COUNT],
    /// Of each network.
    pub vnet: [Rate; Kind::COUNT],
}

#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    bucket: Bucket,
    exceeded: u64,
}

type Budgets = Box<[[Budget; Kind::COUNT]]>;

/// The budgets and what is left of them.
#[derive(Debug)]
pub struct Storm {
    port_paces: [Pace; Kind::COUNT],
    vnet_paces: [Pace; Kind::COUNT],
    ports: Budgets,
    vnets: Budgets,
}

impl Storm {
    /// Full budgets.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let budgets =
            |count: u16| vec![[Budget::default(); Kind::COUNT]; usize::from(count)].into();
        Self {
            port_paces: config.port.map(Pace::new),
            vnet_paces: config.vnet.map(Pace::new),
            ports: budgets(config.ports),
            vnets: budgets(config.vnets),
        }
    }

    /// Whether a frame of that kind from `port` into `vnet` may be copied now. The network pays
    /// only for what the port may send, so that a port without budget costs its network nothing.
    ///
    /// # Errors
    /// Whose budget is used up. It is counted.
    ///
    /// # Panics
    /// If there is no such port or network.
    #[inline]
    pub fn admit(
        &mut self,
        now: Nanos,
        port: PortId,
        vnet: VnetId,
        kind: Kind,
    ) -> Result<(), Exceeded> {
        let kind = kind as usize;
        let port = &mut self.ports[port.index()][kind];
        let vnet = &mut self.vnets[vnet.index()][kind];
        let port_pace = &self.port_paces[kind];
        if !port_pace.has(now, port.bucket) {
            port.exceeded += 1;
            return Err(Exceeded::Port);
        }
        if !self.vnet_paces[kind].try_take(now, &mut vnet.bucket) {
            vnet.exceeded += 1;
            return Err(Exceeded::Vnet);
        }
        port_pace.take(now, &mut port.bucket);
        Ok(())
    }

    /// How many frames of that kind `port` was not allowed to send.
    #[must_use]
    pub fn exceeded_at_port(&self, port: PortId, kind: Kind) -> u64 {
        self.ports[port.index()][kind as usize].exceeded
    }

    /// How many frames of that kind `vnet` did not take.
    #[must_use]
    pub fn exceeded_in_vnet(&self, vnet: VnetId, kind: Kind) -> u64 {
        self.vnets[vnet.index()][kind as usize].exceeded
    }
}

#[cfg(test)]
mod tests;
