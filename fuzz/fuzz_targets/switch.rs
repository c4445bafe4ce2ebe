//! Fuzzes a switch with random steps: raw frames into access and underlay inputs, drivers with and
//! without room, control's commands, time.
//!
//! Nothing may panic. The audit closes after every step. Every handle comes back to the driver that
//! gave it: there are never more handles out than were given, and after a detach of all ports none
//! is left.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use sluice_base::{
    Batch, BitRate, Buf, ByteCount, InputId, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId,
    VlanTag, VnetId, Vni,
};
use sluice_switch::{
    ClassConfig, Command, ControlConfig, Destination, Egress, FdbConfig, HandoffConfig, InputFull,
    Limit, PauseConfig, PoolConfig, PortConfig, PortRole, RateLimit, Service, Sources, SparePlaces,
    Switch, SwitchConfig, Tags, Taken, Target, Trust, TunnelConfig, UnresolvedConfig, VnetConfig,
};
use sluice_wire::{EtherType, ethernet, ipv4, udp, vxlan};

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const UNDERLAY_MAC: Mac = Mac([2, 0xee, 0, 0, 0, 1]);
const RATE: RateLimit =
    RateLimit { rate: BitRate::from_mbps(100), catch_up: Nanos(10_000), overhead: 24 };
const PORTS: u16 = 4;
const UNDERLAY: u16 = 3;

/// A handle with its owner.
struct Handle {
    owner: InputId,
    bytes: Vec<u8>,
    size: u32,
}

impl Buf for Handle {
    fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(Self::HEAD_SIZE_MAX)]
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn truncate(&mut self, size: u32) {
        assert!(size < self.size, "only less than there is");
        self.bytes.truncate(size as usize);
        self.size = size;
    }

    /// Derives the tag from the source address.
    fn vlan_tag(&self) -> VlanTag {
        match self.bytes.get(11) {
            None | Some(0..=63) => VlanTag::AsIs,
            Some(64..=127) => VlanTag::NotAllowed,
            Some(byte) => VlanTag::TakenOff(u16::from(*byte) << 9 | u16::from(*byte) & 1),
        }
    }
}

/// The remaining bytes of an input; zeros once there are none.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn below(&mut self, bound: u16) -> u16 {
        u16::from(self.byte()) % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let count = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes.to_vec()
    }
}

fn limit(frames: u32, bytes: u64) -> Limit {
    Limit { frames, bytes: ByteCount(bytes) }
}

fn sources(port: u8, kind: u8) -> Sources {
    match port {
        1 => Sources::Learn,
        2 if kind & 128 != 0 => Sources::Bound,
        _ => Sources::Any,
    }
}

fn config(source: &mut Source<'_>) -> SwitchConfig {
    let (lossless, kind, sizes) = (source.byte(), source.byte(), source.byte());
    let small = u32::from(sizes % 16);
    let pause = PauseConfig {
        priorities: PriorityMask(source.byte()),
        xoff: ByteCount(3_000),
        xon: ByteCount(1_000),
        link: BitRate::from_gbps(10),
        source: UNDERLAY_MAC,
    };
    let port = |n: u8| PortConfig {
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        role: PortRole::Access { vnet: VnetId(u16::from(n == 2)) },
        is_offloaded: n < 2 && kind & 128 != 0,
        queues: 1,
        input: limit(1 + small, 1_618 + u64::from(sizes) * 16),
        input_full: match (kind >> (2 * n)) % 4 {
            0 => InputFull::Drop,
            1 => InputFull::Pause(PauseConfig { xoff: ByteCount(1_500), ..pause }),
            _ => InputFull::Wait,
        },
        output: limit(1 + small, 10_000),
        rate: (n == 1).then_some(RATE),
        group_rate: (n == 3 && kind & 64 != 0).then_some(RATE),
        mtu: if n == 3 { 1_550 } else { 1_500 },
        rx_pause: n != 2,
        trust: if kind & 1 == 0 { Trust::PcpThenDscp } else { Trust::Nothing },
        default_priority: Priority::ZERO,
        sources: sources(n, kind),
        tags: if n == 2 { Tags::Trunk } else { Tags::Kept },
        hold: Default::default(),
    };
    let mut ports: Vec<PortConfig> = (0..4).map(port).collect();
    ports[3].role = PortRole::Underlay { local: LOCAL, mac: UNDERLAY_MAC };
    let tunnel = |n: u8| TunnelConfig {
        port: PortId(UNDERLAY),
        remote: Ipv4Addr::new(10, 0, 0, n),
        next_hop: (n == 2).then_some(Mac([2, 0xdd, 0, 0, 0, n])),
        foreign: n == 3,
    };
    let vnet = |n: u32, tunnels: &[u16]| {
        let tunnels = tunnels.iter().map(|t| TunnelId(*t)).collect();
        VnetConfig { vni: Vni::new(n), mtu: 1_500, tunnels }
    };
    SwitchConfig {
        ports,
        vnets: vec![vnet(0, &[0, 1]), vnet(1, &[1])],
        tunnels: vec![tunnel(2), tunnel(3)],
        classes: std::array::from_fn(|p| ClassConfig {
            service: if p > 5 { Service::Strict } else { Service::Weighted(1 + p as u8) },
            lossless: lossless >> p & 1 == 1,
        }),
        dscp_to_priority: std::array::from_fn(|dscp| Priority::all().nth(dscp >> 3).unwrap()),
        priority_to_dscp: std::array::from_fn(|priority| (priority << 3) as u8),
        pool: PoolConfig {
            from_underlay: limit(small / 2, 10_000),
            from_local: limit(small / 2, 10_000),
            pair_share: u16::from(sizes),
            replicated_frames: small / 2,
            copies_per_group: 1 + small / 3,
        },
        fdb: FdbConfig { macs: 4, flows: 2 },
        unresolved: unresolved(small),
        control: ControlConfig { punts: 6, bindings: vec![], allowed: vec![] },
        spare_places: SparePlaces::default(),
        spare: None,
        handoff: HandoffConfig::default(),
        isolation: None,
    }
}

fn unresolved(frames: u32) -> UnresolvedConfig {
    let (timeout, punt_gap) = (Nanos(50_000), Nanos(10_000));
    UnresolvedConfig { destinations: 2, frames, timeout, punt_gap }
}

/// Encapsulates the bytes as a tenant's frame in VXLAN from a peer.
fn in_vxlan(peer: u8, vni: u8, ecn: u8, inner: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 50];
    let udp_payload = (inner.len() + 8) as u16;
    ethernet::Repr { dst: UNDERLAY_MAC, src: Mac([2; 6]), ethertype: EtherType::IPV4 }
        .emit(&mut out);
    ipv4::Repr {
        src: Ipv4Addr::new(10, 0, 0, peer),
        dst: LOCAL,
        protocol: ipv4::PROTOCOL_UDP,
        dscp: peer << 3,
        ecn,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: udp_payload + 8,
    }
    .emit(&mut out[14..]);
    udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_size: udp_payload }
        .emit(&mut out[34..]);
    vxlan::Repr { vni: Vni::new(u32::from(vni)).unwrap() }.emit(&mut out[42..]);
    out.extend(inner);
    out
}

fn address(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n & 7])
}

/// The switch with its drivers.
struct World {
    switch: Switch<Handle>,
    now: Nanos,
    /// Number of handles in the switch, by input; the last one is the pool's.
    out: Vec<usize>,
}

impl World {
    fn receive(&mut self, input: u16, bytes: Vec<u8>, count: u16) {
        let id = InputId(input);
        let window = self.switch.window(id);
        let size = bytes.len() as u32;
        let mut batch = Batch::with_limit(64);
        let mut sum = 0;
        while batch.len() < usize::from(count).min(window.frames as usize) && sum < window.bytes.0 {
            sum += u64::from(size);
            let _ = batch.push(Handle { owner: id, bytes: bytes.clone(), size });
        }
        self.out[usize::from(input)] += batch.len();
        self.switch.receive(self.now, id, &mut batch);
        assert!(batch.is_empty());
    }

    fn transmit(&mut self, port: u16, mut room: u16) {
        let taken = self.switch.transmit(self.now, PortId(port), &mut |e: &Egress<'_, Handle>| {
            let from_buf = e.buf.map_or(0, |buf| buf.size - u32::from(e.strip));
            assert_eq!(e.size, e.header.len() as u32 + from_buf);
            assert!(e.size <= if port == UNDERLAY { 1_564 } else { 1_518 });
            if room == 0 {
                return Taken::No;
            }
            room -= 1;
            Taken::All
        });
        assert!(taken <= 0x1_0000);
    }

    fn reclaim(&mut self, input: u16, most: usize) -> usize {
        let mut batch = Batch::with_limit(most);
        self.switch.reclaim(InputId(input), &mut batch);
        let count = batch.len();
        for handle in batch.drain() {
            assert_eq!(handle.owner, InputId(input), "handed back to another driver");
            let out = &mut self.out[usize::from(input)];
            *out = out.checked_sub(1).expect("handed back twice");
        }
        count
    }

    fn copy_to_shared(&mut self, input: u16, mut room: u16) {
        let pool = self.switch.pool_input();
        let out = &mut self.out;
        self.switch.copy_to_shared(InputId(input), |handle| {
            if room == 0 {
                return Err(handle);
            }
            room -= 1;
            assert_eq!(handle.owner, InputId(input));
            out[usize::from(input)] -= 1;
            out[usize::from(pool.0)] += 1;
            Ok(Handle { owner: pool, ..handle })
        });
    }

    fn command(&mut self, source: &mut Source<'_>) {
        let (kind, n, place) = (source.byte(), source.byte(), source.byte());
        let vnet = VnetId(u16::from(n >> 4) % 3);
        let mac = address(n);
        let tunnel = TunnelId(u16::from(place) % 3);
        let port = PortId(u16::from(place) % 5);
        let (switch, now) = (&mut self.switch, self.now);
        let (to_port, to_tunnel) = (Destination::Port(port), Destination::Tunnel(tunnel));
        let _ = match kind % 10 {
            0 => switch.command(now, Command::Remove { vnet, mac }),
            1 => switch.command(now, Command::Reject { vnet, mac }),
            2 => switch.set_next_hop(now, tunnel, (place & 16 == 0).then_some(mac)),
            3 => switch.command(now, Command::Install { vnet, mac, to: to_tunnel }),
            6 => {
                switch.attach_control(place & 3 != 0);
                Ok(())
            }
            7 => switch.bind(port, mac, [None; 4]),
            8 => switch.command(now, Command::Unbind { port, mac, ip: None }),
            9 => switch.command(now, Command::ForgetDecap { vnet, tunnel }),
            _ => switch.command(now, Command::Install { vnet, mac, to: to_port }),
        };
    }

    fn inject(&mut self, source: &mut Source<'_>) {
        let (kind, bytes) = (source.byte(), source.bytes());
        let owner = self.switch.control_input();
        let size = bytes.len() as u32;
        let to = if kind & 1 == 0 {
            Target::Port(PortId(u16::from(kind >> 1) % 5))
        } else {
            Target::Address(VnetId(u16::from(kind >> 1) % 3), address(kind >> 4))
        };
        let handle = Handle { owner, bytes, size };
        if self.switch.inject(self.now, handle, to).is_ok() {
            self.out[usize::from(owner.0)] += 1;
        }
    }

    fn step(&mut self, source: &mut Source<'_>) {
        let inputs = self.switch.control_input().0;
        match source.byte() % 16 {
            0..=2 => {
                let (input, count) = (source.below(inputs), 1 + source.below(8));
                let bytes = source.bytes();
                self.receive(input, bytes, count);
            }
            3 | 4 => {
                // A frame with valid headers up to the tenant's payload.
                let (input, dst, dscp) = (source.below(PORTS), source.byte(), source.byte());
                let mut bytes = vec![0; 60 + usize::from(source.byte()) * 6];
                let dst = if dst == 255 { Mac::BROADCAST } else { address(dst) };
                ethernet::Repr { dst, src: Mac([2; 6]), ethertype: EtherType::IPV4 }
                    .emit(&mut bytes);
                bytes[14] = 0x45;
                bytes[15] = dscp;
                let count = 1 + source.below(20);
                if input == UNDERLAY {
                    let (peer, vni) = (2 + source.byte() % 3, source.byte() % 3);
                    let bytes = in_vxlan(peer, vni, dscp, &bytes);
                    self.receive(input, bytes, count);
                } else {
                    self.receive(input, bytes, count);
                }
            }
            5 => {
                let (peer, vni, ecn) = (source.byte() % 5, source.byte() % 3, source.byte());
                let inner = source.bytes();
                let mut bytes = in_vxlan(peer, vni, ecn, &inner);
                // Padding as a link may add it.
                bytes.resize(bytes.len() + usize::from(source.byte() % 5), 0xa5);
                self.receive(UNDERLAY, bytes, 1);
            }
            6..=8 => {
                let (port, room) = (source.below(PORTS), source.below(20));
                self.transmit(port, room);
            }
            9 => {
                let (input, most) = (source.below(inputs + 2), 1 + source.below(40));
                self.reclaim(input, usize::from(most));
            }
            10 => {
                let (input, room) = (source.below(inputs + 1), source.below(10));
                self.copy_to_shared(input, room);
            }
            11 | 12 => self.command(source),
            13 => self.inject(source),
            14 => {
                let later = self.now.after(Nanos(u64::from(source.byte()) * 500));
                self.now = later.max(self.switch.deadline().unwrap_or(later).min(later));
                self.switch.advance(self.now);
                while self.switch.notice().is_some() {}
            }
            _ => {
                let port = source.byte();
                if port < 4 {
                    self.detach(u16::from(port));
                }
            }
        }
        assert!(self.switch.audit().is_closed(), "{:#?}", self.switch.audit());
    }

    fn detach(&mut self, port: u16) {
        let detached = self.switch.detach(self.now, PortId(port));
        assert_eq!(self.out[usize::from(port)], detached.handles as usize);
        while self.reclaim(port, 8) > 0 {}
        assert_eq!(self.out[usize::from(port)], 0, "a handle of a detached port");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source(bytes);
    let config = config(&mut source);
    let Ok(switch) = Switch::new(&config, 1, Nanos::ZERO) else { return };
    let pool = usize::from(switch.pool_input().0);
    let mut world = World { switch, now: Nanos::ZERO, out: vec![0; pool + 1] };
    while !source.0.is_empty() {
        world.step(&mut source);
    }
    for port in 0..PORTS {
        world.detach(port);
    }
    // Frames that wait without a port belong to control: their address is unknown.
    world.now = world.now.after(Nanos::from_millis(1));
    world.switch.advance(world.now);
    let control = world.switch.control_input().0;
    world.copy_to_shared(control, 64);
    for input in [control, control + 1] {
        while world.reclaim(input, 8) > 0 {}
    }
    assert!(world.out.iter().all(|out| *out == 0), "handles that did not come back");
    assert_eq!(world.switch.audit().total(|row| row.frames.resident), 0);
});
