//! Cost of a handoff, which passes a frame from one switch of a host to another. Two switches share
//! two ports, in one thread, so that only their own work is measured. For comparison the same
//! frames go through one switch that has both ports.

use sluice_base::{Batch, InputId, Nanos, PortId};
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{
    Command, Destination, Egress, Handoff, HandoffSink, Switch, SwitchConfig, Taken,
};

use crate::forward::{self, FRAME_BYTES, Setup};

/// Frames of one read, and the limit of frames to which the other switch has remote references.
const BATCH: usize = 64;
const REFS_MAX: u16 = 64;
/// Input size. A quarter of it may be referenced remotely without a copy.
const INPUT_FRAMES: u32 = 256;

/// Frames that one switch hands over to the other.
#[derive(Default)]
struct HandoffQueue(Vec<Handoff<FrameBuf>>);

impl HandoffSink<FrameBuf> for HandoffQueue {
    fn copy(&mut self, _: &FrameBuf) -> Option<FrameBuf> {
        None
    }

    fn take(&mut self, frame: Handoff<FrameBuf>) {
        self.0.push(frame);
    }
}

/// Two ports that send frames to each other, each at a switch of its own, or both at one.
pub(crate) struct Pair {
    switches: Vec<Switch<FrameBuf>>,
    inputs: [InputId; 2],
    idle: [Batch<FrameBuf>; 2],
    batch: Batch<FrameBuf>,
    way: HandoffQueue,
    /// Owns the memory of the buffers.
    _pool: Pool,
    now: Nanos,
}

fn config() -> SwitchConfig {
    let mut config = forward::config(&Setup { ports: 2, macs: 2, lossy: false });
    for port in &mut config.ports {
        port.input.frames = INPUT_FRAMES;
    }
    config
}

impl Pair {
    pub(crate) fn new(hands_off: bool) -> Self {
        let whole = config();
        let make = |config: &SwitchConfig| {
            let mut switch = Switch::new(config, 1, Nanos::ZERO).expect("it is complete");
            for number in 0..2 {
                let (vnet, to) =
                    (sluice_base::VnetId(0), Destination::Port(PortId::from_index(number)));
                let command = Command::Install { vnet, mac: forward::mac(number), to };
                switch.command(Nanos::ZERO, command).expect("the table has room");
            }
            switch
        };
        let owners = [Some(0), Some(1)];
        let switches: Vec<_> = if hands_off {
            (0..2).map(|me| make(&whole.shard(&owners, &[], 2, me, REFS_MAX))).collect()
        } else {
            vec![make(&whole)]
        };
        let slots = 2 * 1024;
        let mut pool =
            Pool::new(sluice_ports::PoolConfig::for_mtu(slots, 1500)).expect("a few megabytes");
        let mut idle = [Batch::with_limit(1024), Batch::with_limit(1024)];
        for (port, idle) in idle.iter_mut().enumerate() {
            for _ in 0..1024 {
                let mut slot = pool.take().expect("sized for it");
                forward::write_frame(slot.bytes_mut(), forward::mac(port), forward::mac(1 - port));
                idle.push(slot.freeze(0, FRAME_BYTES)).expect("sized for it");
            }
        }
        let at =
            |port: usize| switches[port.min(switches.len() - 1)].input(PortId::from_index(port), 0);
        let inputs = [at(0), at(1)];
        let batch = Batch::with_limit(BATCH);
        Self {
            switches,
            inputs,
            idle,
            batch,
            way: HandoffQueue::default(),
            _pool: pool,
            now: Nanos::ZERO,
        }
    }

    /// Forwards at least `frames` frames; returns the number forwarded.
    pub(crate) fn forward(&mut self, frames: u64) -> u64 {
        let mut done = 0;
        while done < frames {
            self.now = self.now.after(Nanos::from_micros(10));
            done += self.turn(0) + self.turn(1);
        }
        done
    }

    /// Forwards a batch from one port to the other.
    fn turn(&mut self, from: usize) -> u64 {
        let Self { switches, inputs, idle, batch, way: queue, now, .. } = self;
        let to = PortId::from_index(1 - from);
        let input = inputs[from];
        let here = from.min(switches.len() - 1);
        let room = switches[here].window(input).of_any().frames as usize;
        batch.refill(&mut idle[from], room.min(BATCH));
        switches[here].receive(*now, input, batch);
        let mut sink = |frame: &Egress<'_, FrameBuf>| {
            std::hint::black_box(frame.size);
            Taken::All
        };
        let taken = if let [first, second] = &mut switches[..] {
            let (here, there) = if from == 0 { (first, second) } else { (second, first) };
            here.hand_over(to, queue);
            let handoff = there.input(SwitchConfig::handoff_port(2, from), 0);
            for frame in queue.0.drain(..) {
                there.receive_handoff(handoff, frame);
            }
            let taken = there.transmit(*now, to, &mut sink);
            while let Some((buf, remote)) = there.reclaim_handoff(handoff) {
                assert!(here.handed_back(buf, remote).is_none(), "nothing was copied");
            }
            taken
        } else {
            switches[0].transmit(*now, to, &mut sink)
        };
        switches[here].reclaim(input, &mut idle[from]);
        taken.into()
    }

    /// Returns true if every frame is accounted for and none was dropped.
    pub(crate) fn is_clean(&self) -> bool {
        self.switches.iter().all(|switch| {
            let audit = switch.audit();
            audit.is_closed() && audit.total(|row| row.frames.dropped) == 0
        })
    }
}
