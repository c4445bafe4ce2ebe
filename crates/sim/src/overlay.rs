//! A host with virtual machines behind the product's own virtual switch.
//!
//! The switch is driven as the daemon drives it: window, receive, transmit, reclaim. A frame that
//! waits is a handle in the switch; what it holds is a number of the world's packets and the first
//! bytes of the frame as they would be on the wire, so that the switch classifies, encapsulates
//! and decapsulates real headers.
//!
//! ```text
//!   VM ── send latency ──> ring ── window ──> switch ──> network card (asked when it is free)
//!   VM <── receive latency ── switch <── frames and pause frames of the network card
//! ```
//!
//! A VM's ring has no end of its own: TCP fills it with no more than its window, and what the
//! switch does not promise to take waits there, as the zero-loss path of a guest does.

mod build;
mod heads;
mod packets;

use std::collections::VecDeque;
use std::rc::Rc;

use sluice_base::{Batch, InputId, Mac, Nanos, PortId, Priority};
use sluice_host::Host;
use sluice_switch::{Egress, Sink, Taken};
use sluice_wire::mac_control::{FRAME_SIZE, Message};

pub use build::{OverlayConfig, OverlayError};
pub(crate) use build::{make_host, vm_head};
pub(crate) use heads::{Head, OuterHeads};
pub(crate) use packets::{PacketId, Packets};
/// What a buffer of a virtual switch may hold, for who configures one.
pub use sluice_switch::Limit;

use crate::topology::LinkId;

const BATCH: usize = 64;

/// A frame as the virtual switch sees it.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) head: Rc<Head>,
    pub(crate) size: u32,
    pub(crate) packet: PacketId,
}

impl sluice_base::Buf for Parcel {
    #[inline]
    fn head(&self) -> &[u8] {
        self.head.shown(self.size)
    }

    #[inline]
    fn size(&self) -> u32 {
        self.size
    }
}

/// What a host's switch gave its network card.
pub(crate) enum Outgoing {
    /// A tenant's frame behind outer headers.
    Frame { head: Rc<Head>, size: u32, packet: PacketId, priority: Priority },
    /// Flow control for the link's other end.
    Pause(Message),
}

/// The room of a network card that is free: one frame.
struct OneFrame<'a, F> {
    out: Option<Outgoing>,
    /// Finds the head of a frame behind its outer headers.
    outer: &'a mut F,
}

impl<F: FnMut(&Egress<'_, Parcel>, &Parcel) -> Rc<Head>> Sink<Parcel> for OneFrame<'_, F> {
    fn offer(&mut self, frame: &Egress<'_, Parcel>) -> Taken {
        if self.out.is_some() {
            return Taken::No;
        }
        self.out = Some(match frame.buf {
            Some(parcel) => Outgoing::Frame {
                head: (self.outer)(frame, parcel),
                size: frame.size,
                packet: parcel.packet,
                priority: frame.priority,
            },
            None => Outgoing::Pause(heads::pause_of(frame.header)),
        });
        Taken::All
    }

    fn is_full(&self) -> bool {
        self.out.is_some()
    }
}

/// A virtual machine's side of its port.
#[derive(Debug, Default)]
struct Ring {
    /// Frames and when they get there.
    frames: VecDeque<(Nanos, Parcel)>,
}

impl Ring {
    /// Whether its first frame is there.
    fn is_ready(&self, now: Nanos) -> bool {
        self.frames.front().is_some_and(|frame| frame.0 <= now)
    }
}

/// A host.
#[derive(Debug)]
pub(crate) struct VirtualHost {
    host: Host<Parcel>,
    rings: Vec<Ring>,
    pub(crate) card: LinkId,
    batch: Batch<Parcel>,
    /// When the next event of this host comes.
    pub(crate) due: Nanos,
}

impl VirtualHost {
    pub(crate) fn new(host: Host<Parcel>, vms: usize, card: LinkId) -> Self {
        Self {
            host,
            rings: (0..vms).map(|_| Ring::default()).collect(),
            card,
            batch: Batch::with_limit(BATCH),
            due: Nanos::MAX,
        }
    }

    pub(crate) fn underlay(&self) -> PortId {
        PortId::from_index(self.rings.len())
    }

    /// A VM sends a frame, which is in its ring at `ready`.
    #[inline]
    pub(crate) fn send(&mut self, vm: usize, ready: Nanos, parcel: Parcel) {
        self.rings[vm].frames.push_back((ready, parcel));
    }

    /// The switch reads what the VMs' rings hold, as far as it has room.
    pub(crate) fn read_rings(&mut self, now: Nanos) {
        for vm in 0..self.rings.len() {
            if !self.rings[vm].is_ready(now) {
                continue;
            }
            let input = self.input(vm);
            let window = self.window(input);
            for _ in 0..window.min(BATCH) {
                if !self.rings[vm].is_ready(now) {
                    break;
                }
                let (_, parcel) = self.rings[vm].frames.pop_front().expect("looked at just now");
                self.batch.push(parcel).expect("no more than a batch");
            }
            if !self.batch.is_empty() {
                self.host.switch_mut().receive(now, input, &mut self.batch);
                self.host.resolve(now);
            }
        }
    }

    fn input(&self, port: usize) -> InputId {
        self.host.switch().input(PortId::from_index(port), 0)
    }

    /// What the switch promises to take, after it has moved what it wants out of the way.
    fn window(&mut self, input: InputId) -> usize {
        let window = self.host.switch().window(input);
        if !window.spill {
            return window.frames as usize;
        }
        // The pool's handle is the same one: it holds no memory of the VM.
        self.host.switch_mut().spill(input, Ok);
        self.host.switch().window(input).frames as usize
    }

    /// A frame has come in at the network card. False if the switch had not promised to take it.
    pub(crate) fn receive(&mut self, now: Nanos, parcel: Parcel, packets: &mut Packets) -> bool {
        let input = self.input(self.underlay().index());
        if self.window(input) == 0 {
            packets.give_back(parcel.packet);
            return false;
        }
        self.batch.push(parcel).expect("it is empty");
        self.host.switch_mut().receive(now, input, &mut self.batch);
        self.host.resolve(now);
        true
    }

    /// A pause frame has come in at the network card.
    pub(crate) fn receive_pause(&mut self, now: Nanos, message: Message) {
        let mut bytes = [0; FRAME_SIZE];
        message.emit(Mac([2, 0, 0, 0, 0, 1]), &mut bytes);
        let input = self.input(self.underlay().index());
        let size = u32::try_from(FRAME_SIZE).expect("64 bytes");
        let head = Rc::new(Head::new(&bytes));
        let parcel = Parcel { head, size, packet: PacketId::NONE };
        self.batch.push(parcel).expect("it is empty");
        self.host.switch_mut().receive(now, input, &mut self.batch);
    }

    /// Frames in a VM's ring.
    pub(crate) fn ring_frames(&self, vm: usize) -> usize {
        self.rings[vm].frames.len()
    }

    /// Whether a ring holds something that the switch may read.
    pub(crate) fn has_ready(&self, now: Nanos) -> bool {
        self.rings.iter().any(|ring| ring.is_ready(now))
    }

    /// Everything that may leave to VMs does; `to_vm` gets the VM and the packet.
    pub(crate) fn serve_vms(&mut self, now: Nanos, mut to_vm: impl FnMut(u32, PacketId)) {
        let underlay = self.underlay();
        let mut next = self.host.switch().busy_port(PortId(0));
        while let Some(port) = next.filter(|port| *port < underlay) {
            let mut sink = |frame: &Egress<'_, Parcel>| {
                if let Some(parcel) = frame.buf {
                    to_vm(u32::from(port.0), parcel.packet);
                }
                Taken::All
            };
            self.host.switch_mut().transmit(now, port, &mut sink);
            next = self.host.switch().busy_port(PortId(port.0 + 1));
        }
    }

    /// Whether the switch may have something for the network card.
    #[inline]
    pub(crate) fn has_out(&self) -> bool {
        let underlay = self.underlay();
        self.host.switch().busy_port(underlay) == Some(underlay)
    }

    /// The next frame for the network card.
    pub(crate) fn next_out(
        &mut self,
        now: Nanos,
        mut outer: impl FnMut(&Egress<'_, Parcel>, &Parcel) -> Rc<Head>,
    ) -> Option<Outgoing> {
        let underlay = self.underlay();
        if !self.has_out() {
            return None;
        }
        let mut sink = OneFrame { out: None, outer: &mut outer };
        self.host.switch_mut().transmit(now, underlay, &mut sink);
        sink.out
    }

    /// Gives ended handles back to where they came from; returns whether any had ended.
    pub(crate) fn reclaim(&mut self, packets: &mut Packets) -> bool {
        let mut any = false;
        let last = self.host.switch().pool_input();
        for input in (0..=last.0).map(InputId) {
            while self.host.switch().has_ended(input) {
                any = true;
                self.host.switch_mut().reclaim(input, &mut self.batch);
                for parcel in self.batch.drain() {
                    packets.give_back(parcel.packet);
                }
            }
        }
        any
    }

    /// When this host has something to do next, if nothing comes in.
    pub(crate) fn next_time(&self, now: Nanos) -> Option<Nanos> {
        let ring = self.rings.iter().filter_map(|r| r.frames.front()).map(|f| f.0);
        let switch = self.host.switch().deadline();
        ring.chain(switch).filter(|at| *at > now).min()
    }

    pub(crate) fn advance(&mut self, now: Nanos) {
        self.host.switch_mut().advance(now);
    }

    pub(crate) const fn host(&self) -> &Host<Parcel> {
        &self.host
    }

    /// XOFF and XON that it sent.
    pub(crate) fn pauses_sent(&self, now: Nanos) -> (u64, u64) {
        let states = Priority::all()
            .map(|priority| self.host.switch().pause_state(now, self.underlay(), priority));
        states.fold((0, 0), |sum, s| (sum.0 + s.xoff_sent, sum.1 + s.xon_sent))
    }

    /// The most frames that waited for one of its VMs.
    pub(crate) fn vm_queue_max(&self) -> u64 {
        let frames = |vm| self.host.switch().queued_marks(PortId::from_index(vm)).frames_max;
        (0..self.rings.len()).map(|vm| u64::from(frames(vm))).max().unwrap_or(0)
    }

    /// The most bytes that waited in the network card's receive buffer.
    pub(crate) fn card_held_max(&self) -> u64 {
        self.host.switch().held_marks(self.input(self.underlay().index())).bytes_max
    }
}
