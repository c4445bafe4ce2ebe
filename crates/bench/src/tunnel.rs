//! The benchmark of the tunnel path: a frame goes from a virtual machine through two switches and
//! the headers of VXLAN between them to another machine, as it does in the simulator.
//!
//! ```text
//!  VM ── window, receive ──> A ── transmit ── 50 bytes, frame ── receive ──> B ── transmit ──> VM
//! ```
//!
//! Each switch has a tunnel to each of 254 hosts, and the frames use all of them. There is only one
//! B: the frames of A to a host arrive at B with both outer addresses exchanged, as if they came
//! from that host. The exchange leaves the checksum as it is.

use std::net::Ipv4Addr;

use sluice_base::{
    Batch, BitRate, Buf, ByteCount, InputId, Mac, Nanos, PortId, PriorityMask, Prng, TunnelId,
    VnetId, Vni,
};
use sluice_switch::{
    Command, Destination, Egress, InputFull, Limit, PauseConfig, PortConfig, PortRole, Switch,
    SwitchConfig, Taken, TunnelConfig, VnetConfig,
};

use crate::forward::{self, FRAME_BYTES};

/// Number of hosts behind tunnels.
pub(crate) const TUNNELS: usize = 254;
/// Number of addresses behind tunnels on one side, and behind ports on the other.
pub(crate) const MACS: usize = 256;
/// Number of virtual machines of a host.
const MACHINES: usize = 4;
/// Ports of a switch: those of its machines, and the underlay's.
pub(crate) const PORTS: usize = MACHINES + 1;
/// Size of the outer headers of VXLAN.
const OUTER_BYTES: usize = 50;
/// Number of buffers of a machine, and of the network card of B.
const BUFFERS: usize = 1024;
const BATCH: usize = 64;

/// A frame in memory of its own.
#[derive(Debug)]
struct Parcel {
    bytes: Box<[u8; FRAME_BYTES + OUTER_BYTES]>,
    size: u32,
}

impl Buf for Parcel {
    #[inline]
    fn head(&self) -> &[u8] {
        &self.bytes[..self.size as usize]
    }

    #[inline]
    fn size(&self) -> u32 {
        self.size
    }

    fn truncate(&mut self, size: u32) {
        self.size = size;
    }
}

/// Two switches with their buffers.
pub(crate) struct Tunnel {
    /// Largest batch of a receive.
    batch_max: usize,
    from: Switch<Parcel>,
    to: Switch<Parcel>,
    /// Buffers of each machine of `from` that are not in the switch.
    idle: Vec<Batch<Parcel>>,
    /// Buffers of the network card of `to` that are not in the switch.
    card: Batch<Parcel>,
    batch: Batch<Parcel>,
    now: Nanos,
    /// The machine that sends next.
    turn: usize,
}

const CARD: Mac = Mac([2, 2, 0, 0, 0, 1]);
const LOCAL: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 1);
const UNDERLAY: PortId = PortId(4);
const _: () = assert!(MACHINES == 4, "the underlay comes behind the machines");

fn config(lossy: bool) -> SwitchConfig {
    let mut config = forward::config(&forward::Setup { ports: PORTS, macs: MACS, lossy });
    let limit = |frames: u32| Limit { frames, bytes: ByteCount(u64::from(frames) * 1600) };
    let pause = PauseConfig {
        priorities: PriorityMask::ALL,
        xoff: ByteCount(400_000),
        xon: ByteCount(200_000),
        link: BitRate::from_gbps(10),
        source: CARD,
    };
    for port in &mut config.ports {
        *port = PortConfig { input: limit(64), output: limit(256), mtu: 1450, ..*port };
    }
    let card = &mut config.ports[MACHINES];
    card.role = PortRole::Underlay { local: LOCAL, mac: CARD };
    card.input = limit(512);
    card.input_full = if lossy { InputFull::Drop } else { InputFull::Pause(pause) };
    card.rx_pause = !lossy;
    card.mtu = 1500;
    config.tunnels = (0..TUNNELS)
        .map(|at| TunnelConfig {
            port: UNDERLAY,
            remote: Ipv4Addr::from_bits(LOCAL.to_bits() + 1 + u32::try_from(at).expect("small")),
            next_hop: Some(CARD),
            foreign: false,
        })
        .collect();
    let tunnels = (0..TUNNELS).map(TunnelId::from_index).collect();
    config.vnets = vec![VnetConfig { vni: Vni::new(42), mtu: 1450, tunnels }];
    config
}

fn switch(lossy: bool, place: impl Fn(usize) -> Destination) -> Switch<Parcel> {
    let mut switch =
        Switch::new(&config(lossy), 1, Nanos::ZERO).expect("the configuration is complete");
    for number in 0..MACS {
        let mac = forward::mac(number);
        let command = Command::Install { vnet: VnetId(0), mac, to: place(number) };
        switch.command(Nanos::ZERO, command).expect("the table has room");
    }
    switch
}

impl Tunnel {
    /// Makes the switches, their tables and their buffers; `batch_max` frames are sent at a time.
    pub(crate) fn new(batch_max: usize, lossy: bool) -> Self {
        let mut prng = Prng::new(7);
        let macs = u64::try_from(MACS).expect("small");
        let mut idle: Vec<Batch<Parcel>> =
            (0..MACHINES).map(|_| Batch::with_limit(BUFFERS)).collect();
        for at in 0..MACHINES * BUFFERS {
            let dst = usize::try_from(prng.below(macs)).expect("small");
            let mut bytes = Box::new([0; FRAME_BYTES + OUTER_BYTES]);
            let src = forward::mac(MACS + at % MACHINES);
            forward::write_frame(&mut bytes[..], src, forward::mac(dst));
            let size = u32::try_from(FRAME_BYTES).expect("small");
            idle[at % MACHINES].push(Parcel { bytes, size }).expect("sized for it");
        }
        let mut card = Batch::with_limit(BUFFERS);
        for _ in 0..BUFFERS {
            let bytes = Box::new([0; FRAME_BYTES + OUTER_BYTES]);
            card.push(Parcel { bytes, size: 0 }).expect("sized for it");
        }
        Self {
            batch_max,
            from: switch(lossy, |mac| Destination::Tunnel(TunnelId::from_index(mac % TUNNELS))),
            to: switch(lossy, |mac| Destination::Port(PortId::from_index(mac % MACHINES))),
            idle,
            card,
            batch: Batch::with_limit(BATCH),
            now: Nanos::ZERO,
            turn: 0,
        }
    }

    /// Forwards at least `frames` frames; returns the number forwarded.
    pub(crate) fn forward(&mut self, frames: u64) -> u64 {
        let mut done = 0;
        while done < frames {
            done += self.turn();
        }
        done
    }

    /// Forwards a batch of one machine all the way.
    fn turn(&mut self) -> u64 {
        self.now = self.now.after(Nanos::from_micros(1));
        let machine = self.turn;
        self.turn = (machine + 1) % MACHINES;
        self.send(machine);
        self.carry();
        self.arrive();
        let taken = self.deliver();
        self.reclaim(machine);
        taken
    }

    #[inline(never)]
    fn send(&mut self, machine: usize) {
        let input = self.from.input(PortId::from_index(machine), 0);
        let room = self.from.window(input).of_any().frames as usize;
        self.batch.refill(&mut self.idle[machine], room.min(self.batch_max));
        self.from.receive(self.now, input, &mut self.batch);
        assert!(self.from.notice().is_none(), "every address is in the table");
    }

    /// Moves the frames in A's egress queue for its network card to B.
    #[inline(never)]
    fn carry(&mut self) {
        let (card, batch) = (&mut self.card, &mut self.batch);
        let mut sink = |frame: &Egress<'_, Parcel>| {
            let (Some(inner), Some(mut outer)) = (frame.buf, card.pop()) else {
                return Taken::No;
            };
            let (front, rest) = outer.bytes.split_at_mut(OUTER_BYTES);
            front.copy_from_slice(frame.header);
            rest.copy_from_slice(&inner.bytes[..FRAME_BYTES]);
            // The addresses of the outer IPv4 header.
            let (before, after) = front[26..34].split_at_mut(4);
            before.swap_with_slice(after);
            outer.size = frame.size;
            batch.push(outer).map_or(Taken::No, |()| Taken::All)
        };
        if self.from.busy_port(UNDERLAY) == Some(UNDERLAY) {
            self.from.transmit(self.now, UNDERLAY, &mut sink);
        }
    }

    #[inline(never)]
    fn arrive(&mut self) {
        let input = self.to.input(UNDERLAY, 0);
        let room = self.to.window(input).of_any().frames as usize;
        assert!(room >= self.batch.len(), "B takes them as fast as A sends");
        self.to.receive(self.now, input, &mut self.batch);
        assert!(self.to.notice().is_none(), "every address is in the table");
    }

    #[inline(never)]
    fn deliver(&mut self) -> u64 {
        let (mut taken, mut bytes) = (0, 0_u64);
        let mut next = self.to.busy_port(PortId(0));
        while let Some(port) = next {
            let mut sink = |frame: &Egress<'_, Parcel>| {
                bytes += u64::from(frame.size);
                Taken::All
            };
            taken += u64::from(self.to.transmit(self.now, port, &mut sink));
            next = self.to.busy_port(PortId(port.0 + 1));
        }
        std::hint::black_box(bytes);
        taken
    }

    #[inline(never)]
    fn reclaim(&mut self, machine: usize) {
        self.from.reclaim(InputId::from_index(machine), &mut self.idle[machine]);
        let card = self.to.input(UNDERLAY, 0);
        self.to.reclaim(card, &mut self.card);
    }

    /// Returns true if every frame is accounted for and none was dropped.
    pub(crate) fn is_clean(&self) -> bool {
        [&self.from, &self.to].iter().all(|switch| {
            let audit = switch.audit();
            audit.is_closed() && audit.total(|row| row.frames.dropped) == 0
        })
    }
}
