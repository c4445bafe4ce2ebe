//! Hosts as a Linux of today has them: a bridge for the containers, and the kernel's VXLAN device.
//!
//! ```text
//!  eth0 ══ h0c0 ─┐                                       ┌─ h1c0 ══ eth0
//!                ├ br0 ─ vx0 ─ up0 ══ s0 ══ up0 ─ vx0 ─ br0 ┤
//!  eth0 ══ h0c1 ─┘       physical switch of the lab       └─ h1c1 ══ eth0
//! ```
//!
//! Only the hosts are the kernel's: addresses, cables and the physical switch are those of the lab
//! with Sluice under `LL`. A container takes frames at the rate of a vNIC, from a queue as long as
//! that of its port (`tbf`); an uplink sends at the rate of the link, from a queue of the kernel's
//! default length. Who is where stands in the forwarding table beforehand.

use std::net::Ipv4Addr;

use super::{Container, HostNode, Plan, VNI};
use crate::settings::Settings;

/// Length of a device's queue in frames, if nobody sets it.
const QUEUE_FRAMES: u32 = 1000;
/// The queue of a token bucket is in bytes: of full frames with their headers.
const FRAME_BYTES: u64 = 1600;

/// A shaped device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shaped {
    pub(crate) device: String,
    pub(crate) rate_mbps: u64,
    pub(crate) queue_frames: u32,
}

impl Shaped {
    /// Returns the device of a container, at a bridge.
    pub(crate) fn container(device: &str, settings: &Settings) -> Self {
        let rate_mbps = settings.service_mbps.unwrap_or(settings.link_mbps);
        Self { device: device.to_owned(), rate_mbps, queue_frames: settings.vport_out_frames }
    }

    fn uplink(settings: &Settings) -> Self {
        let rate_mbps = settings.link_mbps;
        Self { device: "up0".to_owned(), rate_mbps, queue_frames: QUEUE_FRAMES }
    }

    /// Returns the bytes that leave at once after a pause. 200 us at 1 Gbit/s are 25 KB; `tbf`
    /// wants at least one full frame.
    fn burst_bytes(&self, catch_up_us: u32) -> u64 {
        (self.rate_mbps * u64::from(catch_up_us) / 8).max(2 * FRAME_BYTES)
    }

    /// Returns the bytes that may wait.
    pub(crate) fn limit_bytes(&self, catch_up_us: u32) -> u64 {
        u64::from(self.queue_frames) * FRAME_BYTES + self.burst_bytes(catch_up_us)
    }

    /// Returns the words of `tc` that make its token bucket.
    pub(crate) fn words(&self, catch_up_us: u32) -> Vec<String> {
        let (burst, limit) = (self.burst_bytes(catch_up_us), self.limit_bytes(catch_up_us));
        let (device, rate) = (&self.device, self.rate_mbps);
        let line =
            format!("qdisc add dev {device} root tbf rate {rate}mbit burst {burst} limit {limit}");
        line.split(' ').map(str::to_owned).collect()
    }
}

/// Returns the shaped devices of a host.
pub(crate) fn shaped(plan: &Plan, host: &HostNode, settings: &Settings) -> Vec<Shaped> {
    let containers = own(plan, host).map(|c| Shaped::container(&c.name, settings));
    containers.chain([Shaped::uplink(settings)]).collect()
}

fn own<'a>(plan: &'a Plan, host: &HostNode) -> impl Iterator<Item = &'a Container> {
    let index = plan.hosts.iter().position(|other| other.name == host.name);
    plan.containers.iter().filter(move |container| Some(container.host) == index)
}

/// Returns the commands that lay the cables between hosts and containers.
pub(super) fn cable_commands(plan: &Plan) -> impl Iterator<Item = String> + '_ {
    plan.containers.iter().map(|container| {
        let host = &plan.hosts[container.host];
        let near = (host.netns.as_str(), container.name.as_str());
        let ends = sluice_netns::veth_arguments(near, (container.netns.as_str(), "eth0"));
        format!("link add {ends}")
    })
}

/// Returns the `ip` commands that make a host's bridge and VXLAN device, for `up0` that is there.
pub(super) fn host_commands(plan: &Plan, host: &HostNode) -> Vec<String> {
    let mut lines = vec![
        "link add name br0 type bridge".to_owned(),
        "link set dev br0 up".to_owned(),
        format!(
            "link add name vx0 type vxlan id {VNI} local {} dstport 4789 dev up0 nolearning",
            host.vtep
        ),
        format!("link set dev vx0 mtu {} master br0", plan.mtu),
        "link set dev vx0 up".to_owned(),
    ];
    for container in own(plan, host) {
        lines.push(format!("link set dev {} mtu {} master br0", container.name, plan.mtu));
        lines.push(format!("link set dev {} up", container.name));
    }
    lines
}

/// Returns the MAC of each container of other hosts, with the VTEP behind which it is.
pub(crate) fn elsewhere(plan: &Plan, host: &HostNode) -> Vec<(String, Ipv4Addr)> {
    let others = plan.containers.iter().map(|c| (c, &plan.hosts[c.host]));
    let others = others.filter(|(_, there)| there.name != host.name);
    others.map(|(container, there)| (container.mac.to_string(), there.vtep)).collect()
}
