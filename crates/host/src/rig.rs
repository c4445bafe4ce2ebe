//! Small lossless configurations of a host, and a driver made of vectors, for examples and tests.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{
    Batch, BitRate, ByteCount, Mac, Nanos, PortId, Priority, PriorityMask, VnetId, Vni,
};
use sluice_switch::{
    ClassConfig, ControlConfig, Egress, FdbConfig, HandoffConfig, InputFull, Limit, PauseConfig,
    PoolConfig, PortConfig, PortRole, Service, Sources, SparePlaces, SwitchConfig, Tags, Taken,
    Trust, TunnelConfig, UnresolvedConfig, VnetConfig,
};

use crate::Host;

/// The largest batch.
const BATCH: usize = 64;

/// Returns a limit of `frames` frames of 1,600 bytes.
#[must_use]
pub fn limit(frames: u32) -> Limit {
    Limit { frames, bytes: ByteCount(u64::from(frames) * 1600) }
}

/// Returns a container's port in the first network; `frames` is its limit.
#[must_use]
pub fn container(frames: u32) -> PortConfig {
    PortConfig {
        role: PortRole::Access { vnet: VnetId(0) },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit(frames),
        input_full: InputFull::Wait,
        output: limit(frames),
        rate: None,
        group_rate: None,
        mtu: 1450,
        rx_pause: false,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}

/// Returns an underlay port that sends and applies pauses (802.1Qbb).
#[must_use]
pub fn underlay(local: Ipv4Addr, mac: Mac, frames: u32) -> PortConfig {
    let bytes = limit(frames).bytes.0;
    let pause = PauseConfig {
        priorities: PriorityMask::ALL,
        xoff: ByteCount(bytes * 6 / 10),
        xon: ByteCount(bytes * 4 / 10),
        link: BitRate::from_gbps(1),
        source: mac,
    };
    PortConfig {
        role: PortRole::Underlay { local, mac },
        input_full: InputFull::Pause(pause),
        mtu: 1500,
        rx_pause: true,
        ..container(frames)
    }
}

/// Returns the configuration of one lossless network, VNI 42, of these ports. `peers` are other
/// hosts of the network, reached through the last port, with their next hops.
#[must_use]
pub fn host(ports: Vec<PortConfig>, peers: &[(Ipv4Addr, Mac)]) -> SwitchConfig {
    let port = PortId::from_index(ports.len().saturating_sub(1));
    let tunnel = |&(remote, mac): &(Ipv4Addr, Mac)| TunnelConfig {
        port,
        remote,
        next_hop: Some(mac),
        foreign: false,
    };
    let tunnels: Vec<_> = peers.iter().map(tunnel).collect();
    let ids = (0..tunnels.len()).map(sluice_base::TunnelId::from_index);
    SwitchConfig {
        ports,
        vnets: vec![VnetConfig { vni: Vni::new(42), mtu: 1450, tunnels: ids.collect() }],
        tunnels,
        classes: [ClassConfig { service: Service::Weighted(1), lossless: true }; Priority::COUNT],
        dscp_to_priority: core::array::from_fn(|dscp| {
            Priority::all().nth(dscp / 8).unwrap_or(Priority::ZERO)
        }),
        priority_to_dscp: [0, 8, 16, 24, 32, 40, 48, 56],
        pool: PoolConfig {
            from_underlay: limit(64),
            from_local: limit(64),
            pair_share: 128,
            replicated_frames: 16,
            copies_per_group: 16,
        },
        fdb: FdbConfig { macs: 64, flows: 64 },
        unresolved: UnresolvedConfig {
            destinations: 16,
            frames: 64,
            timeout: Nanos::from_millis(1000),
            punt_gap: Nanos::from_millis(100),
        },
        control: ControlConfig::default(),
        spare_places: SparePlaces::default(),
        spare: None,
        handoff: HandoffConfig::default(),
        isolation: None,
    }
}

/// Acts as a driver on ingress: hands over as many of `frames` as the switch promises to take.
/// Returns their number.
pub fn give(
    host: &mut Host<Vec<u8>>,
    now: Nanos,
    port: PortId,
    frames: impl IntoIterator<Item = Vec<u8>>,
) -> usize {
    let input = host.switch().input(port, 0);
    let window = host.switch().window(input).of_any().frames as usize;
    let mut batch = Batch::with_limit(BATCH);
    for frame in frames.into_iter().take(window.min(BATCH)) {
        batch.push(frame).expect("not more than its limit");
    }
    let count = batch.len();
    host.switch_mut().receive(now, input, &mut batch);
    host.resolve(now, |_| {});
    count
}

/// Acts as a driver on egress: returns frames as they are on the wire, at most `room` of them.
/// Handles of frames that ended go back to their drivers, which are vectors and keep nothing.
pub fn take(host: &mut Host<Vec<u8>>, now: Nanos, port: PortId, room: usize) -> Vec<Vec<u8>> {
    let mut taken = Vec::new();
    host.switch_mut().transmit(now, port, &mut |frame: &Egress<'_, Vec<u8>>| {
        if taken.len() == room {
            return Taken::No;
        }
        let body = frame.buf.map_or(&[][..], |buf| &buf[frame.strip.into()..]);
        taken.push([frame.header, body].concat());
        Taken::All
    });
    for input in 0..=host.switch().pool_input().0 {
        let mut ended = Batch::with_limit(BATCH);
        host.switch_mut().reclaim(sluice_base::InputId(input), &mut ended);
    }
    host.switch_mut().advance(now);
    taken
}
