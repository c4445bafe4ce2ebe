//! Conversion of a checked configuration to a switch. The four policies become settings of places
//! here only: a full output holds or drops (first letter), and a full input from a wire pauses or
//! drops (second letter).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;

use sluice_api::config::{self as api, HostConfig, Link, Policy, PortKind, Role};
use sluice_base::{
    BitRate, ByteCount, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId, Vni,
};
use sluice_ports::l2::Vlan;
use sluice_switch::{
    Binding, BoundIps, ClassConfig, ControlConfig, Destination, FdbConfig, HandoffConfig,
    InputFull, Limit, PauseConfig, PoolConfig, PortConfig, PortRole, RateLimit, Service, Sources,
    SwitchConfig, Tags, Trust, TunnelConfig, UnresolvedConfig, VnetConfig,
};

use super::Devices;
use super::attachment;
use super::check::OVERHEAD;
use super::fabric::Bound;
use super::headroom::{
    DELAY_DEFAULT, Headroom, RATE_DEFAULT, RING_MEMORY_BYTES_MAX, STALL_DEFAULT,
};
use super::numbers::Numbers;
use super::plan::{Attachment, Fingerprint, Plan, PortPlan};
use super::workers::Workers;

/// Unused time that a shaper may use later, unless configured.
const CATCH_UP_DEFAULT: Nanos = Nanos::from_micros(200);
/// Overhead of a frame on a wire: preamble, delimiter, check sequence, gap (802.3 clause 3).
const WIRE_OVERHEAD: u16 = 24;
/// Ethernet header and one 802.1Q tag.
const ETHERNET_SIZE_MAX: u16 = 18;
/// An 802.1Q tag.
const TAG_SIZE: u16 = 4;
/// Smallest frame on a wire without check sequence, rounded down: an input must be able to count as
/// many as fit, or the number of frames would bind before XOFF is sent.
const FRAME_SIZE_MIN: u64 = 60;
/// Destinations that may be unresolved at a time.
const UNRESOLVED_DESTINATIONS: u16 = 64;
/// Frames of lossy priorities that may wait for unresolved destinations.
const UNRESOLVED_FRAMES: u32 = 64;
/// The shortest time between two punts for one destination.
const PUNT_GAP: Nanos = Nanos::from_millis(100);
/// Default layer-3 MTU.
pub(super) const MTU_DEFAULT: u16 = 1500;

mod isolation;
mod notes;
mod places;
mod underlay;

/// Returns XOFF and XON of a link in bytes: as configured, or 60 % and 40 % of the input.
pub(super) fn thresholds(link: &Link, input: api::Size) -> (u64, u64) {
    let xoff = link.xoff_bytes.unwrap_or(input.bytes / 10 * 6);
    let xon = link.xon_bytes.unwrap_or_else(|| (input.bytes / 10 * 4).min(xoff.saturating_sub(1)));
    (xoff, xon)
}

/// Returns the headroom that a link needs beyond XOFF.
pub(super) fn headroom(config: &HostConfig, link: &Link, mtu: u16) -> Headroom {
    let lossy = config.classes.iter().filter(|class| !class.lossless).count();
    Headroom {
        rate: link.rate_mbps.map_or(RATE_DEFAULT, BitRate::from_mbps),
        delay: link.delay_ns.map_or(DELAY_DEFAULT, |ns| Nanos(ns.into())),
        stall: link.stall_ms.map_or(STALL_DEFAULT, |ms| Nanos::from_millis(ms.into())),
        frame_max: ByteCount(
            u64::from(mtu) + u64::from(ETHERNET_SIZE_MAX) + u64::from(WIRE_OVERHEAD),
        ),
        lossless: u8::try_from(8_usize.saturating_sub(lossy)).unwrap_or(8),
    }
}

/// Returns the ports of the device of an `l2` port, itself included.
pub(super) fn sharing<'a>(
    config: &'a HostConfig,
    port: &api::Port,
) -> impl Iterator<Item = &'a api::Port> {
    let device = port.device.clone();
    let l2 = config.ports.iter().filter(|port| port.kind == PortKind::L2);
    l2.filter(move |other| other.device == device)
}

/// Returns the link of an `l2` port.
pub(super) fn link_of(config: &HostConfig, port: &api::Port) -> Link {
    sharing(config, port).find_map(|port| port.link.clone()).unwrap_or_default()
}

/// Converts a configuration that passed every check to a plan, with these numbers.
pub(super) fn build(
    text: &str,
    config: HostConfig,
    numbers: Numbers,
    devices: &dyn Devices,
) -> Plan {
    let paused = paused_priorities(&config);
    let builder = Builder { config: &config, numbers: &numbers, devices, paused };
    let switch = builder.switch();
    let mut ports: Vec<PortPlan> =
        config.ports.iter().map(|port| builder.port_plan(port)).collect();
    ports.extend(config.underlay.as_ref().map(|underlay| builder.underlay_plan(underlay)));
    let plan = Plan {
        text: text.to_owned(),
        dir: None,
        fingerprint: Fingerprint::of(&config),
        run_dir: run_dir(&config.host),
        state_dir: state_dir(&config.host),
        seed: config.host.seed.unwrap_or(1),
        mtu_max: switch.ports.iter().map(|port| port.mtu).max().unwrap_or(MTU_DEFAULT),
        addresses: builder.addresses(),
        notes: builder.notes(),
        fabric: super::fabric::plan(&config, &numbers, |vnet| builder.vnet_mtu(vnet)),
        workers: Workers::of(&config),
        ports,
        switch,
        numbers,
        config,
    };
    assert_eq!(plan.ports.len(), plan.switch.ports.len());
    plan
}

/// Plans a port that is not in the file, as if it were.
pub(super) fn one_port(
    plan: &Plan,
    port: &api::Port,
    devices: &dyn Devices,
) -> (PortPlan, PortConfig) {
    let (config, numbers) = (&plan.config, &plan.numbers);
    let builder = Builder { config, numbers, devices, paused: paused_priorities(config) };
    (builder.port_plan(port), builder.port(port))
}

/// Returns the directory of a host's sockets.
pub(crate) fn run_dir(host: &api::Host) -> PathBuf {
    host.run_dir.clone().map_or_else(|| crate::sys::run_dir::of_host(&host.name), PathBuf::from)
}

/// Returns the directory of a host's state.
pub(crate) fn state_dir(host: &api::Host) -> PathBuf {
    let said = host.state_dir.as_ref().or(host.run_dir.as_ref());
    said.map_or_else(|| crate::sys::run_dir::state_of_host(&host.name), PathBuf::from)
}

fn paused_priorities(config: &HostConfig) -> PriorityMask {
    let mut mask = PriorityMask::ALL;
    for class in config.classes.iter().filter(|class| !class.lossless) {
        mask.remove(Priority::from_low_bits(class.priority));
    }
    mask
}

struct Builder<'a> {
    config: &'a HostConfig,
    numbers: &'a Numbers,
    devices: &'a dyn Devices,
    paused: PriorityMask,
}

impl Builder<'_> {
    fn policy(&self) -> Policy {
        self.config.host.policy
    }

    fn outer_mtu(&self) -> Option<u16> {
        let underlay = self.config.underlay.as_ref()?;
        let of_device = || self.devices.facts(&underlay.device).map(|facts| facts.mtu);
        underlay.mtu.or_else(of_device).or(Some(MTU_DEFAULT))
    }

    fn mac(&self, device: &str) -> Mac {
        self.devices.facts(device).map_or_else(Mac::default, |facts| facts.mac)
    }

    fn vnet_mtu(&self, vnet: &api::Vnet) -> u16 {
        vnet.mtu.unwrap_or(self.inner_mtu())
    }

    /// Returns the MTU that the underlay leaves.
    fn inner_mtu(&self) -> u16 {
        self.outer_mtu().map_or(MTU_DEFAULT, |outer| outer.saturating_sub(OVERHEAD))
    }

    fn vnet_id(&self, name: &str) -> VnetId {
        self.numbers.vnet(name).expect("checked: the network exists")
    }

    fn tunnel_id(&self, name: &str) -> TunnelId {
        self.numbers.tunnel(name).expect("checked: the peer exists")
    }

    fn vnet_of(&self, port: &api::Port) -> &api::Vnet {
        let vnet = self.config.vnets.iter().find(|vnet| vnet.name == port.vnet);
        vnet.expect("checked: the network exists")
    }

    fn underlay_port(&self) -> PortId {
        PortId::from_index(self.config.ports.len())
    }

    fn switch(&self) -> SwitchConfig {
        let config = self.config;
        let mut ports: Vec<PortConfig> = config.ports.iter().map(|port| self.port(port)).collect();
        ports.extend(config.underlay.as_ref().map(|underlay| self.underlay(underlay)));
        let buffers = &config.buffers;
        let mut vnets: Vec<&api::Vnet> = config.vnets.iter().collect();
        vnets.sort_by_key(|vnet| self.vnet_id(&vnet.name));
        let mut peers: Vec<&api::Peer> = config.peers.iter().collect();
        peers.sort_by_key(|peer| self.tunnel_id(&peer.name));
        let tunnels = peers.into_iter().map(|peer| TunnelConfig {
            port: self.underlay_port(),
            remote: peer.vtep,
            next_hop: self.next_hop(peer),
            foreign: config.fabric.is_some() && peer.id.is_none(),
        });
        let mut tunnels_of = self.tunnels_of_vnets();
        // The facts about a device are a question to the kernel.
        let mtu = self.inner_mtu();
        let vnet = |vnet: &api::Vnet| {
            self.vnet(vnet, tunnels_of.remove(vnet.name.as_str()).unwrap_or_default(), mtu)
        };
        SwitchConfig {
            ports,
            vnets: vnets.into_iter().map(vnet).collect(),
            tunnels: tunnels.collect(),
            classes: self.classes(),
            dscp_to_priority: self.dscp_to_priority(),
            priority_to_dscp: [0, 8, 16, 24, 32, 40, 48, 56],
            pool: PoolConfig {
                from_underlay: limit(buffers.pool_from_underlay),
                from_local: limit(buffers.pool_from_local),
                pair_share: u16::from(buffers.pair_share_percent) * 256 / 100,
                replicated_frames: buffers.replicated_frames,
                copies_per_group: buffers.copies_per_output,
            },
            fdb: FdbConfig { macs: config.host.chip_macs, flows: config.host.chip_flows },
            unresolved: UnresolvedConfig {
                destinations: UNRESOLVED_DESTINATIONS,
                frames: UNRESOLVED_FRAMES,
                timeout: Nanos::from_millis(config.host.unresolved_timeout_ms.into()),
                punt_gap: PUNT_GAP,
            },
            control: self.control(),
            spare_places: self.spare_places(),
            spare: self.spare(),
            handoff: HandoffConfig::default(),
            isolation: self.isolation(),
        }
    }

    fn vnet(&self, vnet: &api::Vnet, tunnels: Vec<TunnelId>, mtu: u16) -> VnetConfig {
        VnetConfig {
            vni: vnet.vni.and_then(Vni::new),
            mtu: vnet.mtu.unwrap_or(mtu),
            tunnels: tunnels.into_iter().collect(),
        }
    }

    fn classes(&self) -> [ClassConfig; Priority::COUNT] {
        let lossless = match self.config.host.role {
            Role::Host => self.policy().virtual_lossless(),
            Role::Switch => self.policy().physical_lossless(),
        };
        let mut classes = [ClassConfig { service: Service::Weighted(1), lossless }; 8];
        for class in &self.config.classes {
            let service = match (class.strict, class.weight) {
                (true, _) => Service::Strict,
                (false, weight) => Service::Weighted(weight.unwrap_or(1)),
            };
            classes[usize::from(class.priority)] =
                ClassConfig { service, lossless: lossless && class.lossless };
        }
        classes
    }

    fn dscp_to_priority(&self) -> [Priority; 64] {
        // The upper three bits, as of a class selector (RFC 2474 section 4.2.2): a code point
        // without configuration is served like its neighbours and not as best effort.
        let mut table =
            std::array::from_fn(|dscp| Priority::all().nth(dscp / 8).unwrap_or(Priority::ZERO));
        for class in &self.config.classes {
            for &dscp in &class.dscp {
                table[usize::from(dscp)] = Priority::from_low_bits(class.priority);
            }
        }
        table
    }

    fn port(&self, port: &api::Port) -> PortConfig {
        let vnet = self.vnet_of(port);
        let whole = self.config.complete(port);
        self.port_in(&whole, self.vnet_id(&port.vnet), self.vnet_mtu(vnet))
    }

    fn port_in(&self, port: &api::Port, vnet: VnetId, mtu: u16) -> PortConfig {
        let buffers = &self.config.buffers;
        let link = self.link(port);
        let common = PortConfig {
            role: PortRole::Access { vnet },
            queues: u8::try_from(port.queues.len().max(1)).expect("checked: eight at most"),
            queue_priorities: queue_priorities(port),
            input: limit(buffers.vport_in),
            input_full: InputFull::Wait,
            output: limit(buffers.vport_out),
            rate: None,
            group_rate: None,
            mtu,
            rx_pause: false,
            trust: if port.trust { Trust::PcpThenDscp } else { Trust::Nothing },
            default_priority: Priority::from_low_bits(port.priority),
            sources: self.sources(port),
            tags: self.tags(port),
            hold: self.hold(port.hold),
            is_offloaded: port.is_of_switch(self.config.chip.kind),
        };
        match port.kind {
            // The service rate is the rate at which the machine behind the card takes frames: no
            // wire.
            PortKind::Tap | PortKind::Veth | PortKind::Kernel | PortKind::VhostUser => PortConfig {
                rate: port.service_mbps.map(|mbps| rate(mbps, None, mtu, 0)),
                ..common
            },
            PortKind::L2 => {
                let mac = self.mac(&port.device);
                let wire = self.wire(&link, mac, (buffers.cable, buffers.cable), common);
                let of_policy = self.config.policy_of(port).and_then(|policy| policy.service_mbps);
                let overhead = wire_overhead(wire.tags);
                // A host that was away when the policy was committed has not refused one above the
                // link's rate.
                let slower = of_policy.map(|mbps| {
                    let mbps = link.rate_mbps.unwrap_or(mbps).min(mbps);
                    rate(mbps, link.catch_up_us, mtu, overhead)
                });
                PortConfig { rate: slower.or(wire.rate), ..wire }
            }
        }
    }

    /// Returns the settings of a port at a wire, with its own `mac` and default buffer `sizes`.
    fn wire(
        &self,
        link: &Link,
        mac: Mac,
        sizes: (api::Size, api::Size),
        port: PortConfig,
    ) -> PortConfig {
        let input = link.input.unwrap_or(sizes.0);
        let output = link.output.unwrap_or(sizes.1);
        let pauses = self.policy().physical_lossless();
        let mtu = port.mtu;
        let overhead = wire_overhead(port.tags);
        let mut held = limit(input);
        let input_full = if pauses {
            let (xoff, xon) = thresholds(link, input);
            let smallest = u32::try_from(input.bytes / FRAME_SIZE_MIN).unwrap_or(u32::MAX);
            held.frames = held.frames.max(smallest.min(1 << 16));
            InputFull::Pause(PauseConfig {
                priorities: self.paused,
                xoff: ByteCount(xoff),
                xon: ByteCount(xon),
                link: link.rate_mbps.map_or(RATE_DEFAULT, BitRate::from_mbps),
                source: mac,
            })
        } else {
            InputFull::Drop
        };
        PortConfig {
            input: held,
            input_full,
            output: limit(output),
            rate: link.rate_mbps.map(|mbps| rate(mbps, link.catch_up_us, mtu, overhead)),
            rx_pause: pauses,
            ..port
        }
    }

    /// Returns the handling of tags in the driver of a port. A link of a physical switch passes
    /// them on.
    fn tags(&self, port: &api::Port) -> Tags {
        match (self.config.host.role, port.kind, port.vlan) {
            (_, PortKind::L2, Some(_)) => Tags::Trunk,
            (Role::Host, PortKind::L2, None) => Tags::Access,
            (_, PortKind::Tap | PortKind::Veth | PortKind::Kernel | PortKind::VhostUser, _)
            | (Role::Switch, PortKind::L2, None) => Tags::Kept,
        }
    }

    /// Returns the link of a port. Ports of one device share a link, and one of them configures it.
    fn link(&self, port: &api::Port) -> Link {
        link_of(self.config, port)
    }

    /// Returns the largest MTU of the ports of an `l2` port's device.
    fn device_mtu(&self, port: &api::Port) -> u16 {
        let mtus = sharing(self.config, port).map(|port| self.vnet_mtu(self.vnet_of(port)));
        mtus.max().unwrap_or(MTU_DEFAULT)
    }

    /// Returns the attachment of an `l2` port.
    fn l2(&self, port: &api::Port) -> Attachment {
        let mtu = self.device_mtu(port);
        let ring_bytes = self.ring_bytes(&self.link(port), mtu);
        let device = port.device.clone();
        let vlan = match (self.tags(port), port.vlan) {
            (Tags::Kept, _) => return Attachment::L2 { device, ring_bytes, mtu, vtep: None },
            (_, None) => Vlan::Access,
            (_, Some(vid)) if port.native => Vlan::Native(vid),
            (_, Some(vid)) => Vlan::Tagged(vid),
        };
        let pauses = self.policy().physical_lossless();
        let pausable = if pauses { self.paused } else { PriorityMask::NONE };
        let vnet = self.vnet_id(&port.vnet);
        Attachment::BareMetal { device, vlan, ring_bytes, vnet, mtu, pausable }
    }

    fn port_plan(&self, port: &api::Port) -> PortPlan {
        let mtu = self.vnet_mtu(self.vnet_of(port));
        let virtual_lacks = (!self.policy().virtual_lossless()).then_some("policy ZL or ZZ");
        let (attachment, policy_lacks) = match port.kind {
            PortKind::Tap => (attachment::tap(port, mtu), virtual_lacks),
            PortKind::Veth => (attachment::veth(port, mtu), virtual_lacks),
            PortKind::Kernel => (attachment::kernel(port, self.vnet_id(&port.vnet), mtu), None),
            PortKind::VhostUser => (attachment::machine(port, mtu), virtual_lacks),
            PortKind::L2 => {
                (self.l2(port), (!self.policy().physical_lossless()).then_some("policy LZ or ZZ"))
            }
        };
        let allowed = self.config.complete(port).allowed;
        let (name, vnet) = (port.name.clone(), port.vnet.clone());
        PortPlan { name, vnet, allowed, attachment, policy_lacks }
    }

    fn ring_bytes(&self, link: &Link, mtu: u16) -> u64 {
        link.ring_bytes.unwrap_or_else(|| headroom(self.config, link, mtu).bytes().0)
    }

    /// Returns the settings of control. Without a fabric there is no learning, and no punts.
    fn control(&self) -> ControlConfig {
        let Some(fabric) =
            super::fabric::plan(self.config, self.numbers, |vnet| self.vnet_mtu(vnet))
        else {
            return ControlConfig { punts: 0, ..ControlConfig::default() };
        };
        // An endpoint that the file names at a learning port is known from the start, and the port
        // accepts others, too.
        let is_bound = |bound: &Bound| fabric.ports[&bound.port].is_bound;
        let bindings = fabric.bound.iter().filter(|bound| is_bound(bound)).map(|bound| Binding {
            port: bound.port,
            mac: bound.mac,
            ips: bound_ips(&bound.ips),
        });
        let ports = fabric.ports.iter().filter(|(_, port)| port.is_bound);
        let allowed = ports.flat_map(|(id, port)| port.allowed.iter().map(|prefix| (*id, *prefix)));
        let (bindings, allowed) = (bindings.collect(), allowed.collect());
        ControlConfig { bindings, allowed, ..ControlConfig::default() }
    }

    /// Returns the rule for sources: a port with a MAC is bound, others learn.
    fn sources(&self, port: &api::Port) -> Sources {
        match (&self.config.fabric, &port.mac) {
            (None, _) => Sources::Any,
            (Some(_), Some(_)) => Sources::Bound,
            (Some(_), None) => Sources::Learn,
        }
    }

    fn addresses(&self) -> Vec<(VnetId, Mac, Destination)> {
        let port_id = |name: &str| {
            let index = self.config.ports.iter().position(|port| port.name == name);
            PortId::from_index(index.expect("checked: the port exists"))
        };
        let of_ports = self.config.ports.iter().filter_map(|port| {
            let mac: Mac = port.mac.as_ref()?.parse().ok()?;
            Some((self.vnet_id(&port.vnet), mac, Destination::Port(port_id(&port.name))))
        });
        let of_vports = self.config.vports.iter().filter_map(|vport| {
            let mac: Mac = vport.mac.parse().ok()?;
            let to = match (&vport.port, &vport.peer) {
                (Some(port), _) => Destination::Port(port_id(port)),
                (None, Some(peer)) => Destination::Tunnel(self.tunnel_id(peer)),
                (None, None) => return None,
            };
            Some((self.vnet_id(&vport.vnet), mac, to))
        });
        let mut seen = BTreeSet::new();
        of_ports.chain(of_vports).filter(|(vnet, mac, _)| seen.insert((*vnet, *mac))).collect()
    }
}

/// Returns the addresses of a bound endpoint in the switch's form.
pub(super) fn bound_ips(ips: &[IpAddr]) -> BoundIps {
    let mut places = BoundIps::default();
    for (place, ip) in places.iter_mut().zip(ips) {
        *place = Some(*ip);
    }
    places
}

/// Returns the allowed priorities of each queue. Every guest has the first queue, and may use no
/// other: its frames may have any priority.
fn queue_priorities(port: &api::Port) -> [PriorityMask; Priority::COUNT] {
    let mut all = [PriorityMask::ALL; Priority::COUNT];
    for (place, mask) in all.iter_mut().zip(attachment::queues_of(port)).skip(1) {
        *place = mask;
    }
    all
}

fn limit(size: api::Size) -> Limit {
    Limit { frames: size.frames, bytes: ByteCount(size.bytes) }
}

/// Returns the overhead of a frame at a wire. The driver adds the tag of a trunk, so the switch
/// does not count its bytes.
const fn wire_overhead(tags: Tags) -> u16 {
    WIRE_OVERHEAD + if matches!(tags, Tags::Trunk) { TAG_SIZE } else { 0 }
}

/// Returns a rate whose burst holds two frames at least, unless it was configured.
fn rate(mbps: u64, catch_up_us: Option<u32>, mtu: u16, overhead: u16) -> RateLimit {
    let rate = BitRate::from_mbps(mbps);
    let frame = u64::from(mtu) + u64::from(ETHERNET_SIZE_MAX) + u64::from(overhead);
    let catch_up = match catch_up_us {
        Some(us) => Nanos::from_micros(us.into()),
        None => CATCH_UP_DEFAULT.max(rate.time_for(ByteCount(2 * frame))),
    };
    RateLimit { rate, catch_up, overhead }
}
