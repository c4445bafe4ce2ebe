//! Variants: the place of a lab's bottleneck, and the size of every buffer.
//!
//! * `vm-bound`: a container's vNIC takes 500 Mbit/s behind links of 1 Gbit/s. The virtual
//!   switch has the shortest queue of the path, so a lossy virtual switch is the place of drops.
//! * `wire-bound`: only the links limit. Only the physical switch's queue fills.
//! * `vm-bound-total`: `vm-bound` under `LL`, with an egress queue per container that holds as much
//!   as the whole host under `ZZ`. It answers "lossless only has more memory".
//!
//! The buffers of a variant are the same under every policy.

use serde::{Deserialize, Serialize};
use sluice_api::config::{Buffers, Link, Size};

/// Place of the bottleneck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The vNIC of a container is slower than the link.
    #[default]
    VmBound,
    /// The links are the slowest part.
    WireBound,
    /// As `vm-bound`, with the memory that `ZZ` may use given to the egress queues.
    VmBoundTotal,
}

impl Variant {
    /// Returns the name used in files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::VmBound => "vm-bound",
            Self::WireBound => "wire-bound",
            Self::VmBoundTotal => "vm-bound-total",
        }
    }
}

/// Numbers of a scenario that replace its variant's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Rate of every link in Mbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_mbps: Option<u64>,
    /// Unused time that a link may still use later, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catch_up_us: Option<u32>,
    /// Rate of a vNIC in Mbit/s; 0: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Frames at a container's input and at its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vport_frames: Option<u32>,
    /// Frames in a host's receive queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic_frames: Option<u32>,
    /// KB per port of the physical switch, in and out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switch_kb: Option<u64>,
    /// The longest time a reader may be descheduled, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_ms: Option<u32>,
}

/// Every rate and buffer of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The variant.
    pub variant: Variant,
    /// Rate of every link in Mbit/s.
    pub link_mbps: u64,
    /// Unused time that a link may still use later, in microseconds.
    pub catch_up_us: u32,
    /// The longest time a reader may be descheduled in milliseconds; `None`: the daemon's default.
    pub stall_ms: Option<u32>,
    /// Rate of a vNIC in Mbit/s.
    pub service_mbps: Option<u64>,
    /// Frames at a container's input.
    pub vport_in_frames: u32,
    /// Frames at a container's output.
    pub vport_out_frames: u32,
    /// Frames in a host's receive queue.
    pub underlay_in_frames: u32,
    /// Frames per tunnel that wait for the link.
    pub underlay_out_frames: u32,
    /// Frames in each half of the host pool.
    pub pool_frames: u32,
    /// KB per port of the physical switch, in and out.
    pub switch_kb: u64,
}

impl Settings {
    /// Returns the variant with the changes of a scenario. `switch_kb` is the value of a sweep.
    #[must_use]
    pub fn new(variant: Variant, change: &Override, switch_kb: Option<u64>) -> Self {
        let service = match variant {
            Variant::VmBound | Variant::VmBoundTotal => Some(500),
            Variant::WireBound => None,
        };
        let frames = change.vport_frames.unwrap_or(64);
        Self {
            variant,
            link_mbps: change.link_mbps.unwrap_or(1000),
            catch_up_us: change.catch_up_us.unwrap_or(200),
            stall_ms: change.stall_ms,
            service_mbps: change.service_mbps.or(service).filter(|&rate| rate > 0),
            vport_in_frames: frames,
            vport_out_frames: frames,
            underlay_in_frames: change.nic_frames.unwrap_or(256),
            underlay_out_frames: 256,
            pool_frames: 256,
            switch_kb: switch_kb.or(change.switch_kb).unwrap_or(200),
        }
    }

    /// Returns the frames that one container's egress queue may hold on a host with this number of
    /// containers. Under `vm-bound-total` these are its own, those of the inputs of all containers
    /// and of both pools: all that a host may hold under `ZZ` and not under `LL`.
    #[must_use]
    pub const fn vport_out(&self, containers: u32) -> u32 {
        match self.variant {
            Variant::VmBoundTotal => {
                self.vport_out_frames + containers * self.vport_in_frames + 2 * self.pool_frames
            }
            Variant::VmBound | Variant::WireBound => self.vport_out_frames,
        }
    }

    /// Returns the buffers of a host with this number of containers.
    #[must_use]
    pub fn buffers(&self, containers: u32) -> Buffers {
        Buffers {
            vport_in: Size::frames(self.vport_in_frames),
            vport_out: Size::frames(self.vport_out(containers)),
            underlay_in: Size::frames(self.underlay_in_frames),
            underlay_out: Size::frames(self.underlay_out_frames),
            cable: Size::bytes(self.switch_kb * 1000),
            pool_from_underlay: Size::frames(self.pool_frames),
            pool_from_local: Size::frames(self.pool_frames),
            ..Buffers::default()
        }
    }

    /// Returns the parameters of a cable.
    #[must_use]
    pub fn link(&self) -> Link {
        Link {
            rate_mbps: Some(self.link_mbps),
            catch_up_us: Some(self.catch_up_us),
            stall_ms: self.stall_ms,
            ..Link::default()
        }
    }
}

#[cfg(test)]
mod tests;
