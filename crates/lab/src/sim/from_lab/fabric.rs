//! The machines of a lab as a data centre: hosts around the switch of their subnet, a router
//! between the subnets; or one bridge with all containers.
//!
//! ```text
//!  h0 ─┬─ s0 ─ r0 ─ s1 ─┬─ h1        c0 ─┐            ┌─ c2
//!  h2 ─┘                └─ h3        c1 ─┴─ one host ─┴─ c3      (linux-bridge)
//! ```
//!
//! The router is one more switch with the same ports: it has a rate, and it pauses. The lab's is
//! the kernel's, without either. A bridge is a host with a virtual switch that drops; its link
//! carries nothing. A container takes frames from it as from a token bucket (`tbf`) with the lab's
//! rate and bytes of queue, and a burst of two frames where the lab's is `catch_up_us` long.

use anyhow::Context;
use sluice_base::{BitRate, ByteCount, Nanos, PriorityMask};
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::topology::{Cable, Node, Topology};

use super::super::experiment::{Parts, frames, pause_response, star};
use super::super::scenario::{default_delay_ns, default_receive_ns, default_send_ns};
use crate::plan::Plan;
use crate::plan::vxlan::Shaped;
use crate::scenario::{Fabric, Scenario};
use crate::settings::Settings;

const ETHERNET: u16 = 14;
/// Overhead of a frame on a wire, in bytes (802.3 clause 3).
const WIRE_OVERHEAD: u16 = 24;
/// The smallest frame, for a limit in bytes that is no limit in frames.
const FRAME_BYTES_MIN: u64 = 60;

/// Hosts and containers of a lab, by the numbers that the simulator gives them.
pub(super) struct Machines<'a> {
    plan: &'a Plan,
    is_bridge: bool,
    /// Containers of a host; every simulated host has as many.
    pub(super) each: u32,
}

impl<'a> Machines<'a> {
    pub(super) fn new(scenario: &Scenario, plan: &'a Plan) -> anyhow::Result<Self> {
        let is_bridge = scenario.lab.fabric == Fabric::LinuxBridge;
        let most = if is_bridge {
            plan.containers.len()
        } else {
            let counts = (0..plan.hosts.len()).map(|host| plan.containers_of(host).count());
            counts.max().unwrap_or(0)
        };
        Ok(Self { plan, is_bridge, each: u32::try_from(most)? })
    }

    /// Returns the number of a container among all simulated machines.
    pub(super) fn station(&self, name: &str) -> anyhow::Result<u32> {
        let container = self.plan.container(name).context("a container")?;
        let host = if self.is_bridge { 0 } else { container.host };
        let own = |other: &&crate::plan::Container| self.is_bridge || other.host == host;
        let mut all = self.plan.containers.iter().filter(own);
        let at = all.position(|other| other.name == name).context("a container of its host")?;
        Ok(u32::try_from(host)? * self.each + u32::try_from(at)?)
    }

    /// Returns the container that asks.
    pub(super) fn first(&self) -> &crate::plan::Container {
        &self.plan.containers[0]
    }

    /// Returns the workers in the order in which they are asked.
    pub(super) fn workers(&self) -> anyhow::Result<Vec<u32>> {
        self.plan.workers().iter().map(|worker| self.station(&worker.name)).collect()
    }
}

/// Returns the data centre of a lab.
pub(super) fn parts(scenario: &Scenario, settings: &Settings, each: u32) -> Parts {
    let lab = &scenario.lab;
    let rate = BitRate::from_mbps(settings.link_mbps);
    let delay = Nanos(default_delay_ns());
    let (hosts, subnets) = (u32::from(lab.hosts), u32::from(lab.subnets));
    let is_bridge = lab.fabric == Fabric::LinuxBridge;
    let topology = match (is_bridge, subnets) {
        (true, _) => star(1, rate, delay),
        (false, 1) => star(hosts, rate, delay),
        (false, _) => routed(hosts, subnets, rate, delay),
    };
    let buffer = settings.switch_kb * 1000;
    let sluice = OverlayConfig {
        vms_per_host: each,
        lossless: PriorityMask::NONE,
        service: SAME_WEIGHT,
        own_queues: PriorityMask::NONE,
        mtu: lab.mtu,
        vm_in: frames(settings.vport_in_frames),
        vm_out: frames(settings.vport_out(each)),
        vm_rate: settings.service_mbps.map(BitRate::from_mbps),
        card_in: frames(settings.underlay_in_frames),
        card_out: frames(settings.underlay_out_frames),
        pool: frames(settings.pool_frames),
        card_pause: None,
        card_priorities: PriorityMask::ALL,
    };
    Parts {
        topology,
        net: NetConfig {
            lossless: PriorityMask::NONE,
            buffer: ByteCount(buffer),
            buffering: Buffering::Output,
            xoff: ByteCount(buffer / 10 * 6),
            xon: ByteCount(buffer / 10 * 4),
            mark: None,
            latency: Nanos::ZERO,
            pause_response: pause_response(rate),
            overhead: WIRE_OVERHEAD,
            frame_max: lab.mtu + 50 + ETHERNET,
        },
        overlay: Some(if is_bridge { bridge(sluice, settings) } else { sluice }),
        send_latency: Nanos(default_send_ns()),
        receive_latency: Nanos(default_receive_ns()),
        lossless: PriorityMask::ALL,
        adds_headroom: true,
    }
}

/// Returns hosts at the switch of their subnet, and a router that joins the switches.
fn routed(hosts: u32, subnets: u32, rate: BitRate, delay: Nanos) -> Topology {
    let own = |host: u32| Node::Switch(host % subnets);
    let near = (0..hosts).map(|host| (Node::Host(host), own(host)));
    let legs = (0..subnets).map(|subnet| (Node::Switch(subnet), Node::Switch(subnets)));
    let cables = near.chain(legs).map(|(a, b)| Cable { a, b, rate, delay }).collect();
    Topology { hosts, switches: subnets + 1, cables }
}

/// Returns the bridge of a lab without hosts: containers with a token bucket each.
fn bridge(sluice: OverlayConfig, settings: &Settings) -> OverlayConfig {
    let bucket = Shaped::container("", settings);
    let bytes = bucket.limit_bytes(settings.catch_up_us);
    let most = u32::try_from(bytes / FRAME_BYTES_MIN).unwrap_or(u32::MAX).min(1 << 16);
    OverlayConfig {
        vm_out: Limit { frames: most, bytes: ByteCount(bytes) },
        vm_rate: Some(BitRate::from_mbps(bucket.rate_mbps)),
        ..sluice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routed_hosts_have_switch_per_subnet() {
        let topology = routed(4, 2, BitRate::from_mbps(1000), Nanos(1000));
        assert_eq!((topology.hosts, topology.switches), (4, 3));
        let ends: Vec<(Node, Node)> = topology.cables.iter().map(|c| (c.a, c.b)).collect();
        let expected = [
            (Node::Host(0), Node::Switch(0)),
            (Node::Host(1), Node::Switch(1)),
            (Node::Host(2), Node::Switch(0)),
            (Node::Host(3), Node::Switch(1)),
            (Node::Switch(0), Node::Switch(2)),
            (Node::Switch(1), Node::Switch(2)),
        ];
        assert_eq!(ends, expected);
    }
}
