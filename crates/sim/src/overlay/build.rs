//! Builds the virtual switches of a data centre: every VM in one network, every host a tunnel end.

use std::net::Ipv4Addr;

use sluice_base::{
    BitRate, ByteCount, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId, Vni,
};
use sluice_host::Host;
use sluice_switch::{
    ClassConfig, ConfigError, ControlConfig, Destination, FdbConfig, HandoffConfig, InputFull,
    Limit, PauseConfig, PoolConfig, PortConfig, PortRole, RateLimit, Service, Sources, SparePlaces,
    SwitchConfig, Tags, Trust, TunnelConfig, UnresolvedConfig, VnetConfig,
};
use sluice_wire::{EtherType, ethernet, ipv4};

use super::{Head, Parcel};

/// The virtual network of every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayConfig {
    /// Virtual machines of a host.
    pub vms_per_host: u32,
    /// The priorities that a full output of the virtual switch holds back; others it drops.
    pub lossless: PriorityMask,
    /// The order among priorities at each port.
    pub service: [Service; Priority::COUNT],
    /// Layer-3 MTU of the tenants: 50 bytes less than the underlay's.
    pub mtu: u16,
    /// The priorities that have a queue of their own in a VM's card, so that its frames wait for
    /// nobody else's; all others share one queue.
    pub own_queues: PriorityMask,
    /// Bound of each of a VM's inputs.
    pub vm_in: Limit,
    /// Bound of the queue to a VM, if the virtual switch drops.
    pub vm_out: Limit,
    /// Rate of a VM's receiver, if it is limited: bits of its frames per second.
    pub vm_rate: Option<BitRate>,
    /// Bound of the network card's receive buffer.
    pub card_in: Limit,
    /// Bound of the queue to the network card in each tunnel, if the virtual switch drops.
    pub card_out: Limit,
    /// Bound of each half of the host pool.
    pub pool: Limit,
    /// XOFF and XON of the network card's buffer, if the physical network is paused.
    pub card_pause: Option<(ByteCount, ByteCount)>,
    /// The priorities that the card pauses; of others it drops what finds no room.
    pub card_priorities: PriorityMask,
}

impl OverlayConfig {
    /// Number of queues of a VM's card.
    pub(super) fn vm_queues(&self) -> u8 {
        self.queue_of().into_iter().max().map_or(1, |last| last + 1)
    }

    /// Returns the queue of each priority in a VM's card.
    pub(super) fn queue_of(&self) -> [u8; Priority::COUNT] {
        let is_own = |priority: &Priority| self.own_queues.contains(*priority);
        let shared = u8::from(self.own_queues != PriorityMask::ALL);
        let mut queue_of = [0; Priority::COUNT];
        for (at, priority) in (shared..).zip(Priority::all().filter(is_own)) {
            queue_of[priority.index()] = at;
        }
        queue_of
    }
}

/// All priorities have the same weight.
pub const SAME_WEIGHT: [Service; Priority::COUNT] = [Service::Weighted(1); Priority::COUNT];

/// A virtual switch that cannot be made.
pub type OverlayError = ConfigError;

/// Largest number of addresses in the forwarding table (FDB) of a host. If there are fewer
/// addresses, the table has room for exactly these, for the caches' sake.
const FDB_MACS_MAX: u32 = 1024;

const VNET: VnetId = VnetId(0);

/// Returns the address of a VM, by its number among all VMs.
fn vm_mac(vm: u32) -> Mac {
    Mac::from_u64(0x0201_0000_0000 | u64::from(vm))
}

fn vm_ip(vm: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 + vm + 1)
}

fn card_mac(host: u32) -> Mac {
    Mac::from_u64(0x0202_0000_0000 | u64::from(host))
}

fn card_ip(host: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac10_0000 + host + 1)
}

/// Returns the headers of the frames of a connection, as its VM writes them.
pub(crate) fn vm_head(from: u32, to: u32, priority: Priority, ports: (u16, u16)) -> Head {
    let mut bytes = [0; ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN + 4];
    ethernet::Repr { dst: vm_mac(to), src: vm_mac(from), ethertype: EtherType::IPV4 }
        .emit(&mut bytes);
    let ip = ipv4::Repr {
        src: vm_ip(from),
        dst: vm_ip(to),
        protocol: ipv4::PROTOCOL_TCP,
        dscp: priority.get() * 8,
        ecn: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: 20,
    };
    ip.emit(&mut bytes[ethernet::HEADER_SIZE..]);
    let at = ethernet::HEADER_SIZE + ipv4::HEADER_SIZE_MIN;
    bytes[at..at + 2].copy_from_slice(&ports.0.to_be_bytes());
    bytes[at + 2..].copy_from_slice(&ports.1.to_be_bytes());
    Head::new(&bytes)
}

/// Creates a host by number, out of so many. Its ports are its VMs' and then the underlay's.
pub(crate) fn make_host(
    config: &OverlayConfig,
    host: u32,
    hosts: u32,
    link: BitRate,
    seed: u64,
) -> Result<Host<Parcel>, OverlayError> {
    let vms = config.vms_per_host;
    let mut ports: Vec<PortConfig> = (0..vms).map(|_| vm_port(config)).collect();
    ports.push(card_port(config, host, link));
    let underlay = PortId::from_index(ports.len() - 1);
    let others = || (0..hosts).filter(move |other| *other != host);
    let tunnels: Vec<TunnelConfig> = others()
        .map(|other| TunnelConfig {
            port: underlay,
            remote: card_ip(other),
            next_hop: Some(card_mac(other)),
            foreign: false,
        })
        .collect();
    let tunnel_of = |other: u32| {
        let at = other - u32::from(other > host);
        TunnelId::from_index(at as usize)
    };
    let place_of = |vm: u32| {
        let other = vm / vms;
        if other == host {
            Destination::Port(PortId::from_index((vm % vms) as usize))
        } else {
            Destination::Tunnel(tunnel_of(other))
        }
    };
    let addresses = (0..hosts * vms).map(|vm| (VNET, vm_mac(vm), place_of(vm)));
    let macs = u32::min(FDB_MACS_MAX, hosts * vms);
    Host::new(&switch_config(config, ports, tunnels, macs), addresses, seed, Nanos::ZERO)
}

fn switch_config(
    config: &OverlayConfig,
    ports: Vec<PortConfig>,
    tunnels: Vec<TunnelConfig>,
    macs: u32,
) -> SwitchConfig {
    let members = (0..tunnels.len()).map(TunnelId::from_index).collect();
    let class = |at: usize| ClassConfig {
        service: config.service[at],
        lossless: Priority::all().nth(at).is_some_and(|own| config.lossless.contains(own)),
    };
    let priority_of = |dscp: usize| Priority::all().nth(dscp / 8).unwrap_or(Priority::ZERO);
    SwitchConfig {
        ports,
        vnets: vec![VnetConfig { vni: Vni::new(42), mtu: config.mtu, tunnels: members }],
        tunnels,
        classes: std::array::from_fn(class),
        dscp_to_priority: std::array::from_fn(priority_of),
        priority_to_dscp: [0, 8, 16, 24, 32, 40, 48, 56],
        pool: PoolConfig {
            from_underlay: config.pool,
            from_local: config.pool,
            pair_share: 128,
            replicated_frames: 4,
            copies_per_group: 4,
        },
        fdb: FdbConfig { macs, flows: macs },
        unresolved: UnresolvedConfig {
            destinations: 64,
            frames: 64,
            timeout: Nanos::from_millis(1000),
            punt_gap: Nanos::ZERO,
        },
        // No control process attaches.
        control: ControlConfig { punts: 0, ..ControlConfig::default() },
        spare_places: SparePlaces::default(),
        spare: None,
        handoff: HandoffConfig::default(),
        isolation: None,
    }
}

fn vm_port(config: &OverlayConfig) -> PortConfig {
    let mut queue_priorities = [PriorityMask::NONE; Priority::COUNT];
    for (priority, queue) in Priority::all().zip(config.queue_of()) {
        queue_priorities[usize::from(queue)].insert(priority);
    }
    let frame = u64::from(config.mtu) + 14;
    let rate = config.vm_rate.map(|rate| RateLimit {
        rate,
        // Two frames of burst: a VM takes one while the next one comes.
        catch_up: rate.time_for(ByteCount(2 * frame)),
        overhead: 0,
    });
    PortConfig {
        role: PortRole::Access { vnet: VNET },
        queues: config.vm_queues(),
        queue_priorities,
        input: config.vm_in,
        input_full: InputFull::Wait,
        output: config.vm_out,
        rate,
        group_rate: None,
        mtu: config.mtu,
        rx_pause: false,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}

fn card_port(config: &OverlayConfig, host: u32, link: BitRate) -> PortConfig {
    let mac = card_mac(host);
    let input_full = match config.card_pause {
        Some((xoff, xon)) => InputFull::Pause(PauseConfig {
            priorities: config.card_priorities,
            xoff,
            xon,
            link,
            source: mac,
        }),
        None => InputFull::Drop,
    };
    PortConfig {
        role: PortRole::Underlay { local: card_ip(host), mac },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: config.card_in,
        input_full,
        output: config.card_out,
        mtu: config.mtu + 50,
        rx_pause: config.card_pause.is_some(),
        rate: None,
        ..vm_port(config)
    }
}
