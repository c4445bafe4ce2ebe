//! Invalid configurations, one of every kind.

use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;

use sluice_base::{
    BitRate, ByteCount, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId, Vni,
};

use crate::*;

fn limit(frames: u32, bytes: u64) -> Limit {
    Limit { frames, bytes: ByteCount(bytes) }
}

fn access() -> PortConfig {
    PortConfig {
        role: PortRole::Access { vnet: VnetId(0) },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit(16, 100_000),
        input_full: InputFull::Wait,
        output: limit(16, 100_000),
        rate: None,
        group_rate: None,
        mtu: 1_500,
        rx_pause: true,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}

fn pause(xon: u64, xoff: u64, gbps: u64) -> InputFull {
    InputFull::Pause(PauseConfig {
        priorities: PriorityMask::ALL,
        xoff: ByteCount(xoff),
        xon: ByteCount(xon),
        link: BitRate::from_gbps(gbps),
        source: Mac([2; 6]),
    })
}

/// Returns a configuration of an access port, an underlay port with one tunnel, and a network with
/// that tunnel.
pub(crate) fn config() -> SwitchConfig {
    let role = PortRole::Underlay { local: Ipv4Addr::new(10, 0, 0, 1), mac: Mac([2; 6]) };
    SwitchConfig {
        ports: vec![access(), PortConfig { role, mtu: 1_550, ..access() }],
        vnets: vec![VnetConfig { vni: Vni::new(1), mtu: 1_500, tunnels: vec![TunnelId(0)] }],
        tunnels: vec![TunnelConfig {
            port: PortId(1),
            remote: Ipv4Addr::new(10, 0, 0, 2),
            next_hop: None,
            foreign: false,
        }],
        classes: [ClassConfig { service: Service::Strict, lossless: true }; 8],
        dscp_to_priority: [Priority::ZERO; 64],
        priority_to_dscp: [0; 8],
        pool: PoolConfig {
            from_underlay: limit(4, 10_000),
            from_local: limit(4, 10_000),
            pair_share: 128,
            replicated_frames: 4,
            copies_per_group: 4,
        },
        fdb: FdbConfig { macs: 16, flows: 16 },
        unresolved: UnresolvedConfig {
            destinations: 4,
            frames: 4,
            timeout: Nanos::from_millis(1),
            punt_gap: Nanos::from_micros(100),
        },
        control: ControlConfig::default(),
        handoff: HandoffConfig::default(),
        isolation: None,
        spare_places: SparePlaces::default(),
        spare: None,
    }
}

fn error(change: impl Fn(&mut SwitchConfig)) -> Option<ConfigError> {
    let mut config = config();
    change(&mut config);
    Switch::<Vec<u8>>::new(&config, 1, Nanos::ZERO).err()
}

#[test]
fn the_configuration_that_the_others_differ_from_works() {
    assert_eq!(error(|_| {}), None);
    assert_eq!(error(|c| c.ports[0].input_full = pause(1, 50_000, 10)), None);
}

#[test]
fn every_configuration_error_is_found() {
    type Change = fn(&mut SwitchConfig);
    let no_such = |what, index, by| ConfigError::NoSuch { what, index, by };
    let thresholds = ConfigError::Thresholds { port: PortId(0) };
    let table: Vec<(Change, ConfigError)> = vec![
        (
            |c| c.ports[0].role = PortRole::Access { vnet: VnetId(1) },
            no_such("network", 1, "a port"),
        ),
        (|c| c.ports[0].queues = 0, no_such("queue", 0, "a port")),
        (
            |c| c.ports[0].queue_priorities[0] = PriorityMask::NONE,
            ConfigError::NoPriority { port: PortId(0), queue: 0 },
        ),
        (|c| c.tunnels[0].port = PortId(9), no_such("port", 9, "a tunnel")),
        (|c| c.vnets[0].tunnels = vec![TunnelId(1)], no_such("tunnel", 1, "a network")),
        (|c| c.tunnels[0].port = PortId(0), ConfigError::NotUnderlay { tunnel: TunnelId(0) }),
        (
            |c| c.tunnels.push(c.tunnels[0]),
            ConfigError::TunnelTwice { remote: Ipv4Addr::new(10, 0, 0, 2) },
        ),
        (|c| c.vnets.push(c.vnets[0].clone()), ConfigError::VniTwice { vni: Vni::new(1).unwrap() }),
        (|c| c.vnets[0].mtu = 1_501, ConfigError::MtuTooLarge { vnet: VnetId(0), mtu_max: 1_500 }),
        (
            |c| c.classes[5].service = Service::Weighted(0),
            ConfigError::ZeroWeight { priority: Priority::new(5).unwrap() },
        ),
        (
            |c| {
                let nothing = RateLimit { rate: BitRate(0), catch_up: Nanos::ZERO, overhead: 0 };
                c.ports[0].group_rate = Some(nothing);
            },
            ConfigError::RateTooSmall { port: PortId(0) },
        ),
        (
            |c| c.ports[1].output.frames = 0,
            ConfigError::LimitTooSmall {
                what: "output",
                port: Some(PortId(1)),
                bytes_min: ByteCount(1_568),
            },
        ),
        (
            |c| c.ports[0].input.bytes = ByteCount(1_517),
            ConfigError::LimitTooSmall {
                what: "input",
                port: Some(PortId(0)),
                bytes_min: ByteCount(1_518),
            },
        ),
        (
            |c| c.unresolved.destinations = 0,
            ConfigError::LimitTooSmall {
                what: "unresolved",
                port: None,
                bytes_min: ByteCount::ZERO,
            },
        ),
        (|c| c.ports[0].input_full = pause(5_000, 5_000, 10), thresholds.clone()),
        (|c| c.ports[0].input_full = pause(5_000, 100_000, 10), thresholds.clone()),
        (|c| c.ports[0].input_full = pause(5_000, 50_000, 0), thresholds.clone()),
        (
            |c| {
                c.ports[0].input_full = pause(1, 50_000, 10);
                c.ports[0].queues = 2;
            },
            thresholds,
        ),
    ];
    for (at, (change, expected)) in table.into_iter().enumerate() {
        assert_eq!(error(change), Some(expected), "row {at}");
    }
}

#[test]
fn bindings_to_unbound_port_or_over_limit_refused() {
    let binding = |n: u8| Binding { port: PortId(0), mac: Mac([2, 0, 0, 0, 0, n]), ips: [None; 4] };
    let no_port = |index| Some(ConfigError::NoSuch { what: "bound port", index, by: "a binding" });
    assert_eq!(error(|c| c.control.bindings = vec![binding(1)]), no_port(0));
    let bound = |c: &mut SwitchConfig, bindings: Vec<Binding>| {
        c.ports[0].sources = Sources::Bound;
        c.control.bindings = bindings;
    };
    assert_eq!(error(|c| bound(c, vec![binding(1)])), None);
    assert_eq!(error(|c| bound(c, vec![Binding { port: PortId(9), ..binding(1) }])), no_port(9));
    let group = Binding { mac: Mac::BROADCAST, ..binding(1) };
    assert_eq!(error(|c| bound(c, vec![group])), no_port(0));
    let limit = BOUND_MACS_MAX;
    let many = ConfigError::TooMany { what: "bindings of a port", limit };
    assert_eq!(error(|c| bound(c, (0..8).map(binding).collect())), None);
    assert_eq!(error(|c| bound(c, (0..9).map(binding).collect())), Some(many));
}
