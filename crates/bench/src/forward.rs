//! The loop of the core benchmark: every port sends frames to uniformly random addresses behind
//! other ports, and a sink takes them at once.
//!
//! Each port owns its buffers, in the pool that the live drivers use. A buffer's frame holds its
//! source and destination addresses; a returned buffer is sent again. So the buffers are distinct,
//! the heads are not in the first-level cache, and only the switch runs.

use sluice_base::{
    Batch, BitRate, ByteCount, InputId, Mac, Nanos, PortId, Priority, PriorityMask, Prng, VnetId,
};
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{
    ClassConfig, Command, ControlConfig, Destination, Egress, FdbConfig, HandoffConfig, InputFull,
    Limit, PoolConfig, PortConfig, PortRole, Service, Sources, SparePlaces, Switch, SwitchConfig,
    Tags, Taken, Trust, UnresolvedConfig, VnetConfig,
};

/// Parameters of a benchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) ports: usize,
    pub(crate) macs: usize,
    pub(crate) lossy: bool,
}

/// Largest batch of a receive.
const BATCH: usize = 64;
/// Ports that are read before outputs are served.
const PORTS_PER_TURN: usize = 64;
/// Size of every frame, without frame check sequence.
pub(crate) const FRAME_BYTES: usize = 60;

/// A switch with its ports' buffers.
pub(crate) struct Forward {
    switch: Switch<FrameBuf>,
    inputs: Vec<InputId>,
    /// Buffers of each port that are not in the switch.
    idle: Vec<Batch<FrameBuf>>,
    batch: Batch<FrameBuf>,
    /// Owns the memory of the buffers.
    _pool: Pool,
    now: Nanos,
    /// The port that is read next.
    turn: usize,
}

pub(crate) fn config(setup: &Setup) -> SwitchConfig {
    let limit = Limit { frames: 64, bytes: ByteCount(1 << 20) };
    let port = PortConfig {
        role: PortRole::Access { vnet: VnetId(0) },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit,
        input_full: InputFull::Wait,
        output: Limit { frames: 1024, bytes: ByteCount(1 << 24) },
        rate: None,
        group_rate: None,
        mtu: 1500,
        rx_pause: false,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    };
    let class = ClassConfig { service: Service::Weighted(1), lossless: !setup.lossy };
    SwitchConfig {
        ports: vec![port; setup.ports],
        vnets: vec![VnetConfig { vni: None, mtu: 1500, tunnels: vec![] }],
        tunnels: vec![],
        classes: [class; 8],
        dscp_to_priority: std::array::from_fn(|d| {
            Priority::from_low_bits(u8::try_from(d / 8).expect("below eight"))
        }),
        priority_to_dscp: std::array::from_fn(|p| u8::try_from(p * 8).expect("below 64")),
        pool: PoolConfig {
            from_underlay: limit,
            from_local: limit,
            pair_share: 128,
            replicated_frames: 16,
            copies_per_group: 16,
        },
        fdb: FdbConfig { macs: 4096, flows: 4096 },
        unresolved: UnresolvedConfig {
            destinations: 16,
            frames: 64,
            timeout: Nanos::from_millis(1000),
            punt_gap: Nanos::from_millis(10),
        },
        control: ControlConfig::default(),
        spare_places: SparePlaces::default(),
        spare: None,
        handoff: HandoffConfig::default(),
        isolation: None,
    }
}

pub(crate) fn mac(number: usize) -> Mac {
    Mac::from_u64(0x0200_0000_0000 | u64::try_from(number).expect("small"))
}

/// Writes an IPv4 UDP frame of the smallest size, as a tenant would send it.
pub(crate) fn write_frame(buffer: &mut [u8], src: Mac, dst: Mac) {
    buffer[..6].copy_from_slice(&dst.0);
    buffer[6..12].copy_from_slice(&src.0);
    buffer[12..14].copy_from_slice(&[0x08, 0x00]);
    buffer[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
    buffer[22..24].copy_from_slice(&[64, 17]);
}

impl Forward {
    /// Makes the switch, its table and its buffers.
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut switch =
            Switch::new(&config(setup), 1, Nanos::ZERO).expect("the configuration is complete");
        for number in 0..setup.macs {
            let to = Destination::Port(PortId::from_index(number % setup.ports));
            let command = Command::Install { vnet: VnetId(0), mac: mac(number), to };
            switch.command(Nanos::ZERO, command).expect("the table has room");
        }
        let per_port = 8192_usize.div_ceil(setup.ports);
        let slots = u32::try_from(setup.ports * per_port).expect("a few thousand");
        let mut pool =
            Pool::new(sluice_ports::PoolConfig::for_mtu(slots, 1500)).expect("a few megabytes");
        let mut prng = Prng::new(7);
        let mut draw = |bound: usize| {
            let bound = u64::try_from(bound).expect("small");
            usize::try_from(prng.below(bound)).expect("small")
        };
        let mut idle: Vec<Batch<FrameBuf>> =
            (0..setup.ports).map(|_| Batch::with_limit(per_port)).collect();
        let own = setup.macs / setup.ports;
        for at in 0..setup.ports * per_port {
            let port = at % setup.ports;
            let src = port + setup.ports * draw(own);
            let dst = loop {
                let number = draw(setup.macs);
                if number % setup.ports != port {
                    break number;
                }
            };
            let mut slot = pool.take().expect("sized for it");
            write_frame(slot.bytes_mut(), mac(src), mac(dst));
            idle[port].push(slot.freeze(0, FRAME_BYTES)).expect("sized for it");
        }
        let inputs = (0..setup.ports).map(|p| switch.input(PortId::from_index(p), 0)).collect();
        Self {
            switch,
            inputs,
            idle,
            batch: Batch::with_limit(BATCH),
            _pool: pool,
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

    /// Runs one turn of a worker's loop: a batch from each of a few ports, then every port that has
    /// frames to send.
    fn turn(&mut self) -> u64 {
        self.now = self.now.after(Nanos::from_micros(10));
        let count = self.inputs.len();
        let (first, ports) = (self.turn, count.min(PORTS_PER_TURN));
        self.turn = (first + ports) % count;
        for step in 0..ports {
            self.read((first + step) % count);
        }
        let (mut taken, mut bytes) = (0, 0_u64);
        let mut next = self.switch.busy_port(PortId(0));
        while let Some(port) = next {
            let mut sink = |frame: &Egress<'_, FrameBuf>| {
                bytes += u64::from(frame.size);
                Taken::All
            };
            taken += u64::from(self.switch.transmit(self.now, port, &mut sink));
            next = self.switch.busy_port(PortId(port.0 + 1));
        }
        std::hint::black_box(bytes);
        for step in 0..ports {
            let port = (first + step) % count;
            self.switch.reclaim(self.inputs[port], &mut self.idle[port]);
        }
        taken
    }

    fn read(&mut self, port: usize) {
        let input = self.inputs[port];
        let room = self.switch.window(input).of_any().frames as usize;
        self.batch.refill(&mut self.idle[port], room);
        self.switch.receive(self.now, input, &mut self.batch);
    }

    /// Returns true if every frame is accounted for and none was dropped.
    pub(crate) fn is_clean(&self) -> bool {
        let audit = self.switch.audit();
        audit.is_closed() && audit.total(|row| row.frames.dropped) == 0
    }
}

/// Returns the link rate that the frames would need, for people.
pub(crate) fn line_rate(frames_per_s: f64) -> BitRate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "for display")]
    let bits = (frames_per_s * (FRAME_BYTES as f64 + 24.0) * 8.0) as u64;
    BitRate(bits)
}
