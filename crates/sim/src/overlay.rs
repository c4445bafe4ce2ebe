//! A host with virtual machines behind the product's own virtual switch.
//!
//! The switch is driven as the daemon drives it: window, receive, transmit, reclaim. A frame that
//! waits is a handle in the switch. The handle holds the number of a packet of the world and the
//! first bytes of the frame as they would be on the wire, so that the switch classifies,
//! encapsulates and decapsulates real headers.
//!
//! ```text
//!   VM ── send latency ──> ring ── window ──> switch ──> network card (asked when it is free)
//!   VM <── receive latency ── switch <── frames and pause frames of the network card
//! ```
//!
//! A VM's ring has no bound of its own: TCP fills it with no more than its window, and frames that
//! the switch does not promise to take wait there, as in the zero-loss path of a guest.

mod build;
mod heads;

use std::collections::VecDeque;
use std::rc::Rc;

use sluice_base::{InputId, Mac, Nanos, PortId, Priority};
use sluice_host::Host;
use sluice_switch::Sink;
use sluice_wire::mac_control::{FRAME_SIZE, Message};

pub use build::{OverlayConfig, OverlayError, SAME_WEIGHT};
pub(crate) use build::{make_host, vm_head};
pub(crate) use heads::{Head, Heads, pause_of};
/// Bound of a buffer of a virtual switch, for configurations.
pub use sluice_switch::{Limit, Service};

use crate::packets::{PacketId, Packets};
use crate::topology::LinkId;

/// A frame as the virtual switch sees it.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub(crate) head: Rc<Head>,
    pub(crate) size: u16,
    /// True if the frame has its outer headers.
    pub(crate) is_outer: bool,
    pub(crate) packet: PacketId,
}

impl sluice_base::Buf for Parcel {
    #[inline]
    fn head(&self) -> &[u8] {
        if self.is_outer { self.head.outer(self.size) } else { self.head.inner(self.size) }
    }

    #[inline]
    fn size(&self) -> u32 {
        self.size.into()
    }

    fn truncate(&mut self, _size: u32) {
        unreachable!("a simulated link pads nothing");
    }
}

/// Frames of one ring that are read before the other ports are looked at.
const TURN_FRAMES: usize = 64;
/// Frames for which a ring has room before it grows: the usual number.
const RING_FRAMES: usize = 8;

/// A virtual machine's side of a transmit queue of its port.
#[derive(Debug)]
struct Ring {
    /// Frames, each with its time of arrival in the ring.
    frames: VecDeque<(Nanos, Parcel)>,
}

impl Ring {
    /// Returns true if the first frame has arrived.
    fn is_ready(&self, now: Nanos) -> bool {
        self.frames.front().is_some_and(|frame| frame.0 <= now)
    }

    /// Takes out the first frame if it has arrived.
    #[inline]
    fn pop_ready(&mut self, now: Nanos) -> Option<Parcel> {
        if !self.is_ready(now) {
            return None;
        }
        self.frames.pop_front().map(|(_, parcel)| parcel)
    }
}

/// A host. Its fields stand in this order so that data used in every turn lies together, beside the
/// data of the switch that every frame uses.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct VirtualHost {
    /// Each VM's rings, in the order of its queues.
    rings: Box<[Ring]>,
    /// Time of the next event of this host.
    pub(crate) due: Nanos,
    pub(crate) card: LinkId,
    /// Frames in all rings.
    waiting: u32,
    /// Queues of a VM's card, and the one of each priority.
    queues: u8,
    queue_of: [u8; Priority::COUNT],
    host: Host<Parcel>,
}

impl VirtualHost {
    /// Creates a host with `make`. The rings come before it in memory, so that they lie beside the
    /// tables that every frame touches.
    pub(crate) fn new<E>(
        config: &OverlayConfig,
        card: LinkId,
        make: impl FnOnce() -> Result<Host<Parcel>, E>,
    ) -> Result<Self, E> {
        let ring = |_| Ring { frames: VecDeque::with_capacity(RING_FRAMES) };
        let queues = config.vm_queues();
        let rings = (0..config.vms_per_host as usize * usize::from(queues)).map(ring).collect();
        let queue_of = config.queue_of();
        Ok(Self { rings, due: Nanos::MAX, card, waiting: 0, queues, queue_of, host: make()? })
    }

    pub(crate) fn underlay(&self) -> PortId {
        PortId::from_index(self.rings.len() / usize::from(self.queues))
    }

    /// Returns the ring that takes a VM's frames of this priority.
    #[inline]
    fn ring(&self, vm: usize, priority: Priority) -> usize {
        vm * usize::from(self.queues) + usize::from(self.queue_of[priority.index()])
    }

    /// Puts a frame of a VM into its ring, where it is at `ready`.
    #[inline]
    pub(crate) fn send(&mut self, vm: usize, priority: Priority, ready: Nanos, parcel: Parcel) {
        self.waiting += 1;
        let ring = self.ring(vm, priority);
        self.rings[ring].frames.push_back((ready, parcel));
    }

    /// Lets the switch read the VMs' rings, as far as it has room; returns true if it has read a
    /// frame.
    pub(crate) fn read_rings(&mut self, now: Nanos, packets: &mut Packets) -> bool {
        let mut any = false;
        for ring in 0..self.rings.len() {
            if !self.rings[ring].is_ready(now) {
                continue;
            }
            let input = self.input(ring);
            let most = self.rings[ring].frames.len().min(TURN_FRAMES);
            let mut window = self.window(input);
            if window < most && self.reclaim_input(input, packets) {
                window = self.window(input);
            }
            let mut read = 0;
            while read < window.min(most) {
                let Some(parcel) = self.rings[ring].pop_ready(now) else { break };
                read += 1;
                self.host.switch_mut().receive_one(now, input, parcel);
            }
            if self.rings[ring].frames.is_empty() {
                // The ring begins at its first place again, which is in cache.
                self.rings[ring].frames.clear();
            }
            if read > 0 {
                any = true;
                self.waiting -= u32::try_from(read).expect("no more than a turn's frames");
                self.host.resolve(now, |_| {});
            }
        }
        any
    }

    /// Hands the switch one frame, so that its code for batches takes no room in the instruction
    /// cache beside its code for single frames.
    fn switch_receives(&mut self, now: Nanos, input: InputId, parcel: Parcel) {
        self.host.switch_mut().receive_one(now, input, parcel);
        self.host.resolve(now, |_| {});
    }

    /// Returns the input of a ring: the switch numbers the queues of its ports, those of the VMs
    /// first.
    #[inline]
    fn input(&self, ring: usize) -> InputId {
        InputId::from_index(ring)
    }

    /// Returns the input of the network card, whose one queue comes after all rings.
    #[inline]
    fn card_input(&self) -> InputId {
        InputId::from_index(self.rings.len())
    }

    /// Returns the number of frames that the switch promises to take, after it has copied frames to
    /// the shared buffer if it must.
    fn window(&mut self, input: InputId) -> usize {
        let window = self.host.switch().window(input).of_any();
        if window.needs_copy { self.window_after_copy(input) } else { window.frames as usize }
    }

    #[cold]
    fn window_after_copy(&mut self, input: InputId) -> usize {
        // The pool's handle is the same one: it holds no memory of the VM.
        self.host.switch_mut().copy_to_shared(input, Ok);
        self.host.switch().window(input).of_any().frames as usize
    }

    /// Takes a frame at the network card. False if the switch had not promised to take it.
    pub(crate) fn receive(&mut self, now: Nanos, parcel: Parcel, packets: &mut Packets) -> bool {
        let input = self.card_input();
        let mut window = self.window(input);
        if window == 0 && self.reclaim_input(input, packets) {
            window = self.window(input);
        }
        if window == 0 {
            packets.give_back(parcel.packet);
            return false;
        }
        self.switch_receives(now, input, parcel);
        true
    }

    /// Takes a pause frame at the network card.
    #[inline(never)]
    pub(crate) fn receive_pause(&mut self, now: Nanos, message: Message) {
        let mut bytes = [0; FRAME_SIZE];
        message.emit(Mac([2, 0, 0, 0, 0, 1]), &mut bytes);
        let input = self.card_input();
        let size = u16::try_from(FRAME_SIZE).expect("64 bytes");
        let head = Rc::new(Head::bare(&bytes));
        let parcel = Parcel { head, size, is_outer: true, packet: PacketId::NONE };
        self.switch_receives(now, input, parcel);
    }

    /// Number of frames in the ring that takes a VM's frames of this priority.
    pub(crate) fn ring_frames(&self, vm: usize, priority: Priority) -> usize {
        self.rings[self.ring(vm, priority)].frames.len()
    }

    /// Number of frames in the rings of all VMs.
    pub(crate) fn all_ring_frames(&self) -> usize {
        self.rings.iter().map(|ring| ring.frames.len()).sum()
    }

    /// Returns true if a ring holds a frame.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Returns the first VM from this one on for which the switch may have a frame.
    #[inline]
    pub(crate) fn busy_vm(&self, from: PortId) -> Option<PortId> {
        self.host.switch().busy_port(from).filter(|port| *port < self.underlay())
    }

    /// Offers the frames that may leave through a port. Not inlined, and with one kind of sink for
    /// all ports: the egress path is a large part of the code that every frame runs through.
    #[inline(never)]
    pub(crate) fn transmit(&mut self, now: Nanos, port: PortId, sink: &mut impl Sink<Parcel>) {
        self.host.switch_mut().transmit(now, port, sink);
    }

    /// Returns true if the switch may have a frame for the network card.
    #[inline]
    pub(crate) fn has_out(&self) -> bool {
        self.host.switch().is_busy(self.underlay())
    }

    /// Gives ended handles back to their owners, at the end of every turn, so that places of
    /// packets are used again while they are in cache.
    #[inline]
    pub(crate) fn reclaim(&mut self, packets: &mut Packets) {
        // The control input is left out: no frames are injected here.
        for input in 0..=self.card_input().0 {
            while let Some(parcel) = self.host.switch_mut().reclaim_one(InputId(input)) {
                packets.give_back(parcel.packet);
            }
        }
        let pool = self.host.switch().pool_input();
        if self.host.switch().has_ended(pool) {
            self.reclaim_input(pool, packets);
        }
    }

    #[inline(never)]
    fn reclaim_input(&mut self, input: InputId, packets: &mut Packets) -> bool {
        let mut any = false;
        while self.host.switch().has_ended(input) {
            let Some(parcel) = self.host.switch_mut().reclaim_one(input) else { break };
            any = true;
            packets.give_back(parcel.packet);
        }
        any
    }

    /// Returns the time at which the next frame gets into a ring.
    pub(crate) fn next_ready(&self, now: Nanos) -> Option<Nanos> {
        let firsts = self.rings.iter().filter_map(|ring| ring.frames.front()).map(|frame| frame.0);
        firsts.filter(|at| *at > now).min()
    }

    /// Returns the time at which the switch has something to do next, if nothing comes in.
    pub(crate) fn deadline(&self, now: Nanos) -> Option<Nanos> {
        self.host.switch().deadline().filter(|at| *at > now)
    }

    pub(crate) fn advance(&mut self, now: Nanos) {
        self.host.switch_mut().advance(now);
    }

    pub(crate) const fn host(&self) -> &Host<Parcel> {
        &self.host
    }

    /// Numbers of XOFF and XON that the host sent.
    pub(crate) fn pauses_sent(&self, now: Nanos) -> (u64, u64) {
        let states = Priority::all()
            .map(|priority| self.host.switch().pause_state(now, self.underlay(), priority));
        states.fold((0, 0), |sum, s| (sum.0 + s.xoff_sent, sum.1 + s.xon_sent))
    }

    /// Largest number of frames that waited for one of the VMs.
    pub(crate) fn vm_queue_max(&self) -> u64 {
        let frames = |vm| self.host.switch().queued_marks(PortId::from_index(vm)).frames_max;
        (0..self.underlay().index()).map(|vm| u64::from(frames(vm))).max().unwrap_or(0)
    }

    /// Largest number of bytes that waited in the network card's receive buffer.
    pub(crate) fn card_held_max(&self) -> u64 {
        self.host.switch().held_marks(self.card_input()).bytes_max
    }
}
