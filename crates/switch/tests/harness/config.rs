//! Configurations: plain ones to build on, and random ones.

use std::net::Ipv4Addr;

use sluice_base::{
    BitRate, ByteCount, Mac, Nanos, PortId, Priority, PriorityMask, Prng, TunnelId, VnetId, Vni,
};
use sluice_switch::{
    ClassConfig, ControlConfig, FdbConfig, HandoffConfig, Hold, InputFull, IsolationConfig, Limit,
    PauseConfig, PoolConfig, PortConfig, PortRole, RateLimit, Service, Sources, SpareConfig,
    SparePlaces, SwitchConfig, Tags, Trust, TunnelConfig, UnresolvedConfig, VnetConfig,
};

/// Returns the address of the VTEP of switch `n`.
pub fn vtep(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

/// Returns the MAC of the underlay interface of switch `n`.
pub fn underlay_mac(n: u8) -> Mac {
    Mac([2, 0xee, 0, 0, 0, n])
}

/// Returns the next hop of tunnel `n`.
pub fn next_hop(n: usize) -> Mac {
    Mac([2, 0xdd, 0, 0, 0, u8::try_from(n).unwrap()])
}

pub fn limit(frames: u32, bytes: u64) -> Limit {
    Limit { frames, bytes: ByteCount(bytes) }
}

pub fn mask(of: &[u8]) -> PriorityMask {
    PriorityMask(of.iter().fold(0, |mask, p| mask | 1 << p))
}

/// Returns an access port of network `vnet`.
pub fn access(vnet: u16) -> PortConfig {
    PortConfig {
        role: PortRole::Access { vnet: VnetId(vnet) },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit(64, 200_000),
        input_full: InputFull::Wait,
        output: limit(64, 200_000),
        rate: None,
        group_rate: None,
        mtu: 1500,
        rx_pause: true,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}

/// Returns PFC for priorities 3 and 4 of an input of 200,000 bytes.
pub fn pause_config() -> PauseConfig {
    PauseConfig {
        priorities: mask(&[3, 4]),
        xoff: ByteCount(60_000),
        xon: ByteCount(30_000),
        link: BitRate::from_gbps(10),
        source: underlay_mac(1),
    }
}

/// Returns a port whose input has 400,000 bytes and pauses its wire in time.
pub fn pausing(mut port: PortConfig) -> PortConfig {
    let pause = PauseConfig { xoff: ByteCount(240_000), xon: ByteCount(160_000), ..pause_config() };
    port.input = limit(8_192, 400_000);
    port.input_full = InputFull::Pause(pause);
    port
}

/// Returns the underlay port of switch `n`.
pub fn underlay(n: u8) -> PortConfig {
    PortConfig {
        role: PortRole::Underlay { local: vtep(n), mac: underlay_mac(n) },
        input: limit(4096, 200_000),
        input_full: InputFull::Pause(pause_config()),
        mtu: 1550,
        ..access(0)
    }
}

/// Returns a switch of these ports: one network, no tunnels, all priorities lossless and strict.
pub fn config(ports: Vec<PortConfig>) -> SwitchConfig {
    SwitchConfig {
        ports,
        vnets: vec![VnetConfig { vni: Vni::new(100), mtu: 1500, tunnels: vec![] }],
        tunnels: vec![],
        classes: [ClassConfig { service: Service::Strict, lossless: true }; 8],
        dscp_to_priority: std::array::from_fn(|dscp| Priority::all().nth(dscp >> 3).unwrap()),
        priority_to_dscp: std::array::from_fn(|priority| u8::try_from(priority << 3).unwrap()),
        pool: PoolConfig {
            from_underlay: limit(64, 200_000),
            from_local: limit(64, 200_000),
            pair_share: 128,
            replicated_frames: 16,
            copies_per_group: 16,
        },
        fdb: FdbConfig { macs: 256, flows: 256 },
        unresolved: UnresolvedConfig {
            destinations: 16,
            frames: 16,
            timeout: Nanos::from_millis(10),
            punt_gap: Nanos::from_millis(1),
        },
        control: ControlConfig::default(),
        spare_places: SparePlaces::default(),
        spare: None,
        handoff: HandoffConfig::default(),
        isolation: None,
    }
}

/// Adds tunnels over `port` to switches `remotes`, for every network.
pub fn with_tunnels(mut config: SwitchConfig, port: u16, remotes: &[u8]) -> SwitchConfig {
    for &remote in remotes {
        let tunnel = TunnelId::from_index(config.tunnels.len());
        config.tunnels.push(TunnelConfig {
            port: PortId(port),
            remote: vtep(remote),
            next_hop: Some(next_hop(usize::from(remote))),
            foreign: false,
        });
        for vnet in &mut config.vnets {
            vnet.tunnels.push(tunnel);
        }
    }
    config
}

/// MTU of ports, which takes frames of usual headers and sizes.
pub const MTU: u16 = 1500;

/// Returns a configuration of a few ports with small limits, drawn from `rng`.
pub fn random(rng: &mut Prng) -> SwitchConfig {
    let vnets = 1 + rng.below(3);
    let vnets_count = vnets;
    let lossless = match rng.below(4) {
        0 => 0,
        1 => pick(rng, 256),
        _ => 0xff_u8,
    };
    let mut ports: Vec<PortConfig> =
        (0..2 + rng.below(5)).map(|_| random_access(rng, vnets)).collect();
    let underlays = u16::from(rng.chance(3, 4));
    for _ in 0..underlays {
        ports.push(random_underlay(rng, lossless));
    }
    let underlay_port = PortId::from_index(ports.len() - 1);
    let tunnels: Vec<TunnelConfig> = (0..if underlays > 0 { 1 + rng.below(3) } else { 0 })
        .map(|n| TunnelConfig {
            port: underlay_port,
            remote: vtep(2 + u8::try_from(n).unwrap()),
            next_hop: rng.chance(3, 4).then(|| next_hop(usize::try_from(n).unwrap())),
            foreign: rng.chance(1, 4),
        })
        .collect();
    let vnets = (0..vnets)
        .map(|n| VnetConfig {
            vni: if rng.chance(7, 8) { Vni::new(100 + u32::try_from(n).unwrap()) } else { None },
            mtu: if rng.chance(1, 8) { 600 } else { MTU },
            tunnels: (0..tunnels.len())
                .filter(|_| rng.chance(3, 4))
                .map(TunnelId::from_index)
                .collect(),
        })
        .collect();
    let part = |rng: &mut Prng| {
        let frames = pick(rng, 9);
        limit(frames, rng.below(20_000))
    };
    let shares = [0, 1, 32, 64, 128, 200, 256];
    let spare = rng.chance(1, 2).then(|| {
        let ports = 1 + pick::<u16>(rng, 3);
        SpareConfig { ports, like: random_access(rng, vnets_count) }
    });
    let config = SwitchConfig {
        spare,
        vnets,
        tunnels,
        classes: std::array::from_fn(|p| ClassConfig {
            service: if rng.chance(1, 3) {
                Service::Strict
            } else {
                Service::Weighted(1 + pick::<u8>(rng, 4))
            },
            lossless: lossless >> p & 1 == 1,
        }),
        pool: PoolConfig {
            from_underlay: part(rng),
            from_local: part(rng),
            pair_share: shares[pick::<u8>(rng, 7) as usize],
            replicated_frames: pick(rng, 6),
            copies_per_group: pick(rng, 6),
        },
        fdb: FdbConfig { macs: 2 + few_or_many(rng, 4, 63), flows: 1 + few_or_many(rng, 4, 63) },
        unresolved: UnresolvedConfig {
            destinations: 1 + pick::<u16>(rng, 4),
            frames: pick(rng, 8),
            timeout: Nanos::from_micros(500),
            punt_gap: Nanos::from_micros(100),
        },
        control: ControlConfig { punts: pick(rng, 12), ..ControlConfig::default() },
        ..config(ports)
    };
    isolating(with_spare_places(config))
}

/// Gives two in three configurations places for networks and tunnels that come. Uses random numbers
/// of its own, so that existing seeds give the same cases.
fn with_spare_places(mut config: SwitchConfig) -> SwitchConfig {
    let mut rng = Prng::new(u64::from(config.fdb.flows) << 20 | config.pool.from_local.bytes.0);
    if rng.chance(1, 3) {
        return config;
    }
    let (vnets, tunnels) = (config.vnets.len(), config.tunnels.len());
    let spare = |count: usize, more: usize| count..count + more;
    config.spare_places = SparePlaces {
        vnets: spare(vnets, pick(&mut rng, 4)).map(VnetId::from_index).collect(),
        tunnels: spare(tunnels, pick(&mut rng, 4)).map(TunnelId::from_index).collect(),
    };
    config
}

/// Makes one in three configurations isolate receivers. Uses random numbers of its own, so that
/// existing seeds give the same cases.
fn isolating(mut config: SwitchConfig) -> SwitchConfig {
    let mut rng = Prng::new(u64::from(config.fdb.macs) << 20 | config.pool.from_local.bytes.0);
    if !rng.chance(1, 3) {
        return config;
    }
    config.isolation = Some(IsolationConfig {
        patience: Nanos::from_micros(50 + rng.below(100)),
        reserve: limit(pick(&mut rng, 12), rng.below(20_000)),
        holds: pick(&mut rng, 3),
        broadcasts_per_second: pick::<u32>(&mut rng, 3) * 10_000,
    });
    for port in config.ports.iter_mut().chain(config.spare.as_mut().map(|spare| &mut spare.like)) {
        let most = Nanos::from_micros(1 + rng.below(1_000));
        port.hold = [if rng.chance(1, 2) { Hold::For(most) } else { Hold::Forever }; 8];
    }
    config
}

pub fn pick<T: TryFrom<u64>>(rng: &mut Prng, bound: u64) -> T {
    T::try_from(rng.below(bound)).ok().expect("the bound fits")
}

/// Returns a number below `few`, or half of the time below `many`.
pub fn few_or_many(rng: &mut Prng, few: u64, many: u64) -> u32 {
    let bound = if rng.chance(1, 2) { few } else { many };
    pick(rng, bound)
}

fn random_rate(rng: &mut Prng) -> RateLimit {
    RateLimit {
        rate: BitRate::from_mbps([50, 300, 1_000, 10_000][pick::<u8>(rng, 4) as usize]),
        catch_up: Nanos(rng.below(50_000)),
        overhead: if rng.chance(1, 2) { 24 } else { 0 },
    }
}

/// Returns an access port of one of `vnets` networks.
pub fn random_access(rng: &mut Prng, vnets: u64) -> PortConfig {
    let frames = 1 + pick::<u32>(rng, 16);
    let bytes = u64::from(MTU) + 18 + if rng.chance(1, 3) { rng.below(8_000) } else { 100_000 };
    let output = 1 + few_or_many(rng, 16, 200);
    let output_bytes = few_or_many(rng, 20_000, 400_000);
    let pause = PauseConfig {
        priorities: PriorityMask(pick(rng, 256)),
        xoff: ByteCount(1 + rng.below(bytes - 2)),
        xon: ByteCount::ZERO,
        link: BitRate::from_mbps(if rng.chance(1, 2) { 10_000 } else { 100 }),
        source: Mac([2, 0xcc, 0, 0, 0, 1]),
    };
    let input_full = match rng.below(6) {
        0 => InputFull::Drop,
        1 => InputFull::Pause(pause),
        _ => InputFull::Wait,
    };
    let port = PortConfig {
        queues: if matches!(input_full, InputFull::Pause(_)) { 1 } else { 1 + pick::<u8>(rng, 2) },
        input: limit(frames, bytes),
        input_full,
        output: limit(output, u64::from(MTU) + 18 + u64::from(output_bytes)),
        rate: rng.chance(1, 3).then(|| random_rate(rng)),
        group_rate: rng.chance(1, 4).then(|| random_rate(rng)),
        rx_pause: rng.chance(3, 4),
        trust: if rng.chance(7, 8) { Trust::PcpThenDscp } else { Trust::Nothing },
        default_priority: Priority::new(pick(rng, 8)).unwrap(),
        sources: match rng.below(6) {
            0 => Sources::Bound,
            1 | 2 => Sources::Learn,
            _ => Sources::Any,
        },
        ..access(pick(rng, vnets))
    };
    // Uses a number that was drawn already, so that existing seeds give the same cases.
    let tags = if port.default_priority.get() % 4 == 1 { Tags::Trunk } else { Tags::Kept };
    PortConfig { tags, ..port }
}

/// Returns a port that fits into a spare port: of at most its queues and limits.
pub fn fitted(mut port: PortConfig, spare_port: &PortConfig) -> PortConfig {
    let least =
        |a: Limit, b: Limit| Limit { frames: a.frames.min(b.frames), bytes: a.bytes.min(b.bytes) };
    port.queues = port.queues.min(spare_port.queues);
    port.input = least(port.input, spare_port.input);
    port.output = least(port.output, spare_port.output);
    if let InputFull::Pause(pause) = port.input_full {
        // More priorities need more slots.
        let fits = match spare_port.input_full {
            InputFull::Pause(there) => {
                pause.priorities.0.count_ones() <= there.priorities.0.count_ones()
            }
            InputFull::Wait | InputFull::Drop => false,
        };
        if !fits || pause.xoff >= port.input.bytes {
            port.input_full = InputFull::Wait;
        }
    }
    port
}

fn random_underlay(rng: &mut Prng, lossless: u8) -> PortConfig {
    let plain = random_access(rng, 1);
    let pause = PauseConfig {
        priorities: PriorityMask(if rng.chance(3, 4) { lossless } else { pick(rng, 256) }),
        xoff: ByteCount(2_000),
        xon: ByteCount(rng.below(2_000)),
        link: BitRate::from_gbps(10),
        source: underlay_mac(1),
    };
    let drop = rng.chance(1, 3);
    PortConfig {
        role: PortRole::Underlay { local: vtep(1), mac: underlay_mac(1) },
        queues: if drop { plain.queues } else { 1 },
        input: limit(plain.input.frames, plain.input.bytes.0 + 2_000),
        input_full: if drop { InputFull::Drop } else { InputFull::Pause(pause) },
        mtu: MTU + 50,
        output: limit(plain.output.frames, plain.output.bytes.0 + 50),
        ..plain
    }
}
