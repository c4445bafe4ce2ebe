//! Bare metal: a device that leads to plain hosts, or to a physical switch, without Sluice.
//!
//! One device is one port of the switch ([`Vlan::Access`]: untagged frames), or one for each of its
//! VLANs (802.1Q), each of another network. The ports share the ring of received frames; each has
//! an egress path of its own.
//!
//! ```text
//!                        tag  ┌ aside ┐
//!   wire ─▶ [ ring ] ─▶ ─ 10 ─┴───────┴─▶ port of VLAN 10 ─▶ switch
//!                       ─ 20 ─┬───────┬─▶ port of VLAN 20 ─▶ switch
//!                             └ aside ┘
//!   wire ◀─ device ◀─ [ staged, tag 10 ] ◀─ port of VLAN 10 ◀─ switch
//!                  ◀─ [ staged, tag 20 ] ◀─ port of VLAN 20 ◀─ switch
//! ```
//!
//! **Ingress.** The tag chooses the port and is removed ([`sort`]); the switch gets its value. Only
//! the outermost tag counts, and only TPID 0x8100; anything behind it is the tenant's. The first
//! reader sorts: it [sets frames of other ports aside](super::aside) for them, and wakes a sleeping
//! port by its notification eventfd. epoll alone would not do: it polls the ring again, which may
//! be empty by then.
//!
//! **A VLAN without room** is not read, nor is one whose worker has no time. Its frames are set
//! aside by priority, so they block no others. Flow control has priorities and no VLANs: all VLANs
//! share the room of a priority, and once half of it is taken the wire pauses that priority itself,
//! until there is room again ([`pauses`]).
//!
//! **Egress.** A tag is inserted, with the priority of the frame as its PCP. Frames of a native
//! VLAN leave without, unless they have a tag of their own, which the neighbour would take for the
//! VLAN's.
//!
//! **Flow control** belongs to the wire and is untagged. Every port gets the neighbour's messages;
//! the ports' own messages are merged.

mod pauses;
mod sort;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use sluice_base::{Batch, Buf as _, Nanos, Priority, PriorityMask, VlanTag};
use sluice_switch::{Classifier, Egress, Sink, Taken, Window};
use sluice_wire::{ethernet, mac_control, vlan};

use self::pauses::{Heard, Pauses};
use self::sort::{Place, Sorter};
use super::aside::{Room, Store, Taker};
use super::driver::{ASIDE_MAX, L2Config, L2Port, frame_size};
use super::outgoing::Outgoing;
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::pool::Pool;
use crate::port::{
    Amount, FlowControl, HeldBack, Losses, Lossless, Outside, PollFd, Port, Read, ReadAhead, Ring,
};
use crate::staging::ADDRESSES_SIZE;

/// Interval of retries when the kernel had no room for a flow-control frame.
const FLOW_CONTROL_RETRY: Nanos = Nanos::from_micros(200);

/// Frames of a device that belong to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// All untagged frames, and no frame of a VLAN: the device has no other port.
    Access,
    /// Frames of a VLAN, 1 to 4094.
    Tagged(u16),
    /// Frames of a VLAN, and untagged ones, as which they also leave.
    Native(u16),
}

/// A device whose ports share it.
#[derive(Clone, Debug)]
pub struct Trunk(Arc<Mutex<Shared>>);

/// State that the ports of a device share.
#[derive(Debug)]
struct Shared {
    device: L2Port,
    sorter: Sorter,
    vlans: Vec<VlanState>,
    pauses: Pauses,
    room: Room,
    /// Priorities that the neighbour was told to pause for want of room.
    told: PriorityMask,
    /// Bytes of each priority that were set aside at that time.
    told_at: [u64; Priority::COUNT],
}

/// Receive state of a VLAN port at its device.
#[derive(Debug)]
struct VlanState {
    vlan: Option<Vlan>,
    store: Store,
    classifier: Option<Classifier>,
    heard: Option<Heard>,
    /// True if its thread does not read before it is woken by `bell`.
    idle: bool,
    bell: Arc<OwnedFd>,
}

/// Result of a look at the ring.
enum Next {
    /// A frame for the caller.
    Taken,
    /// A frame for another port, for later, or for none.
    Other,
    /// The ring is empty.
    Empty,
    /// The pool is empty.
    NoSlot,
}

impl Trunk {
    /// Opens a device. `pausable` are the priorities for which its neighbour may be sent a pause.
    ///
    /// # Errors
    /// As [`L2Port::open`].
    pub fn open(config: &L2Config, pausable: PriorityMask) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Mutex::new(Shared {
            device: L2Port::open_for_trunk(config)?,
            sorter: Sorter::new(),
            vlans: Vec::new(),
            pauses: Pauses::new(pausable),
            room: Room::new(config.ring_bytes),
            told: PriorityMask::NONE,
            told_at: [0; Priority::COUNT],
        }))))
    }

    /// Makes the port of a VLAN.
    ///
    /// # Errors
    /// [`OpenError`] if the kernel gives no descriptor, or the device was closed.
    ///
    /// # Panics
    /// If the VLAN has a port, no VLAN has this number, or another port gets the untagged frames.
    pub fn port(&self, vlan: Vlan) -> Result<VlanPort, OpenError> {
        let mut shared = lock(&self.0);
        let out = shared.device.another_way_out()?;
        let name = shared.device.device().to_owned();
        let failed = |what| OpenError::device(&name, what);
        let ring = shared.device.ring_fd().map_err(failed("wait on it once more"))?;
        let control = shared.device.control_fd().map_err(failed("wait on it once more"))?;
        let notifier = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let notifier =
            Arc::new(notifier.map_err(|e| failed("create an eventfd for it")(e.into()))?);
        let state = shared.add(vlan, Arc::clone(&notifier));
        let mtu = shared.device.mtu();
        drop(shared);
        let open = Open { shared: Arc::clone(&self.0), ring, control, bell: notifier };
        Ok(VlanPort { open: Some(open), state, vlan, mtu, out, owes: false, stopped: false })
    }
}

/// Locks the shared state, which no panic leaves in disorder.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VlanState {
    fn priority(&self, frame: &[u8], tag: VlanTag) -> Priority {
        let of = |by: &Classifier| by.priority(frame, frame_size(frame), tag);
        self.classifier.as_ref().map_or(Priority::ZERO, of)
    }

    /// Sets a frame aside for the port.
    fn set_aside(&mut self, room: &mut Room, frame: &[u8], tag: VlanTag) {
        let priority = self.priority(frame, tag);
        if self.store.push(room, priority, frame, tag) {
            self.wake();
        }
    }

    /// Wakes the port's thread, since a frame or message waits for it.
    fn wake(&mut self) {
        if self.idle {
            self.idle = false;
            // A counter that is full is readable already.
            _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Shared {
    /// Adds the state of a VLAN port, in the place of a closed one if there is any.
    fn add(&mut self, vlan: Vlan, notifier: Arc<OwnedFd>) -> usize {
        let state = VlanState {
            vlan: Some(vlan),
            store: Store::default(),
            classifier: None,
            heard: None,
            idle: false,
            bell: notifier,
        };
        let free = self.vlans.iter().position(|old| old.vlan.is_none());
        let at = free.unwrap_or(self.vlans.len());
        if at == self.vlans.len() {
            self.vlans.push(state);
        } else {
            self.vlans[at] = state;
        }
        self.sorter.add(at, vlan);
        self.pauses.add(at);
        at
    }

    /// Removes the state of a VLAN port, and closes the device with the last one.
    fn remove(&mut self, at: usize) -> io::Result<()> {
        let state = &mut self.vlans[at];
        let Some(vlan) = state.vlan.take() else { return Ok(()) };
        state.heard = None;
        state.store.clear(&mut self.room);
        let left = self.vlans.iter().position(|state| state.vlan.is_some());
        self.sorter.remove(at, vlan, left);
        if let Some(message) = self.pauses.remove(at) {
            self.say(&message);
        }
        self.judge();
        if left.is_none() { self.device.close() } else { Ok(()) }
    }

    /// Reads the neighbour's flow-control frames, for every port.
    fn listen(&mut self) {
        let Self { device, sorter, vlans, room, .. } = self;
        device.receive_control(&mut |bytes| match sorter.place(bytes, None) {
            Place::Everyone(source, message) => {
                for state in vlans.iter_mut().filter(|state| state.vlan.is_some()) {
                    state.heard = Some(Heard::after(state.heard, source, &message));
                    state.wake();
                }
            }
            // It is malformed: a switch counts it.
            Place::Vlan { vlan, tag, .. } => vlans[vlan].set_aside(room, bytes, tag),
        });
    }

    /// Looks at the head of the ring for the VLAN port `me`.
    fn next(&mut self, me: usize, taker: &mut Taker<'_>, pool: &mut Pool) -> Next {
        let Some(frame) = self.device.front() else { return Next::Empty };
        let Place::Vlan { vlan, tag, tagless } = self.sorter.place(frame.bytes, frame.tag) else {
            // Flow control has a ring of its own.
            self.device.skip_front();
            return Next::Other;
        };
        let state = &mut self.vlans[vlan];
        if vlan == me && taker.takes_any() && state.store.waiting().is_empty() {
            let Some(slot) = pool.take() else { return Next::NoSlot };
            return match self.device.take_front(slot, tagless) {
                Ok(buf) => {
                    taker.push(buf.with_vlan_tag(tag));
                    Next::Taken
                }
                Err(slot) => {
                    pool.cancel(slot);
                    Next::Other
                }
            };
        }
        let Some(bytes) = self.device.copy_front(tagless) else { return Next::Other };
        if vlan == me && taker.take(&state.store, state.priority(bytes, tag), bytes, tag, pool) {
            return Next::Taken;
        }
        state.set_aside(&mut self.room, bytes, tag);
        Next::Other
    }

    /// Pauses each priority of which much is set aside, or ends that pause. There is no clock here;
    /// if frames come all the same, the pause has run out or was lost, and is sent again. A port
    /// that pauses a priority repeats its message in time, and this pause with it.
    fn judge(&mut self) {
        let (bytes_max, mut held, mut again) = (self.room.bytes_max(), self.told, false);
        for priority in Priority::all() {
            let used = self.room.used(priority);
            if used >= bytes_max / 2 {
                held.insert(priority);
            } else if used <= bytes_max / 8 {
                held.remove(priority);
            }
            let before = self.told_at[priority.index()];
            again |= held.contains(priority) && used > before + bytes_max / 16;
        }
        if held == self.told && !again {
            return;
        }
        let message = self.pauses.hold(held);
        if message.is_none_or(|message| self.say(&message) == Taken::All) {
            self.told = held;
            self.told_at = std::array::from_fn(|at| {
                self.room.used(Priority::from_low_bits(u8::try_from(at).expect("below eight")))
            });
        }
    }

    /// Sends a flow-control frame by the device's own egress path.
    fn say(&mut self, message: &mac_control::Message) -> Taken {
        let mut header = [0; mac_control::FRAME_SIZE];
        message.emit(self.device.mac(), &mut header);
        let egress = Egress {
            header: &header,
            buf: None,
            strip: 0,
            size: u32::try_from(header.len()).expect("60"),
            first: 0,
            priority: Priority::from_low_bits(7),
            tunnel: None,
        };
        let taken = self.device.offer(&egress);
        // The egress path of each port reports a device that is gone.
        _ = self.device.flush();
        taken
    }
}

/// A port of a device that may have several.
#[derive(Debug)]
pub struct VlanPort {
    open: Option<Open>,
    /// Index of its state at the device.
    state: usize,
    vlan: Vlan,
    mtu: u16,
    out: Outgoing,
    /// True if flow control of this port may be staged at the device.
    owes: bool,
    /// True if no more frames are taken from the ring.
    stopped: bool,
}

/// Resources of an open port.
#[derive(Debug)]
struct Open {
    shared: Arc<Mutex<Shared>>,
    ring: OwnedFd,
    control: OwnedFd,
    bell: Arc<OwnedFd>,
}

impl VlanPort {
    /// The tag of an outgoing frame.
    fn tag_for(&self, frame: &Egress<'_, FrameBuf>) -> Option<[u8; vlan::TAG_SIZE]> {
        let vid = match self.vlan {
            Vlan::Access => return None,
            Vlan::Native(_) if !has_tag(frame) => return None,
            Vlan::Tagged(vid) | Vlan::Native(vid) => vid,
        };
        let ([a, b], [c, d]) =
            (sort::TPID.to_be_bytes(), vlan::tci_of(frame.priority, vid).to_be_bytes());
        Some([a, b, c, d])
    }

    /// Sends a frame that the switch made itself, which is flow control: merged with the other
    /// ports', for the wire has one state.
    fn offer_pause(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let Some(open) = &self.open else { return Taken::No };
        let view = ethernet::Frame::new_checked(frame.header).ok();
        let message = view.and_then(|view| mac_control::Message::parse(view.payload()).ok());
        debug_assert!(message.is_some(), "the switch makes frames of flow control only");
        let mut shared = lock(&open.shared);
        let message = message.and_then(|message| shared.pauses.merge(self.state, &message));
        let taken = message.map_or(Taken::All, |message| shared.say(&message));
        self.owes = shared.device.pending().frames > 0;
        taken
    }
}

/// Returns true if an outgoing frame has a tag of its own.
fn has_tag(frame: &Egress<'_, FrameBuf>) -> bool {
    let byte = |at: usize| {
        let in_buf = || frame.buf?.head().get(usize::from(frame.strip) + at - frame.header.len());
        frame.header.get(at).or_else(in_buf).copied()
    };
    let ethertype = byte(ADDRESSES_SIZE).zip(byte(ADDRESSES_SIZE + 1));
    ethertype.is_some_and(|(a, b)| sort::is_tag(u16::from_be_bytes([a, b])))
}

impl Sink<FrameBuf> for VlanPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if frame.buf.is_none() {
            return self.offer_pause(frame);
        }
        let tag = self.tag_for(frame);
        self.out.offer(frame, tag)
    }
}

impl Port for VlanPort {
    fn kind(&self) -> &'static str {
        "l2"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let readable = self
            .open
            .iter()
            .flat_map(|open| [open.ring.as_fd(), open.control.as_fd(), open.bell.as_fd()]);
        let readable = readable.map(|fd| PollFd { fd, read: true, write: false });
        readable.chain(self.out.poll_fd()).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let Some(open) = &self.open else {
            return Ok(Read { frames: 0, more: false, others: 0 });
        };
        let mut guard = lock(&open.shared);
        let shared = &mut *guard;
        shared.device.waiting();
        let mut taker = Taker::new(window, limit, batch);
        let state = &mut shared.vlans[self.state];
        taker.serve(&mut state.store, &mut shared.room, pool);
        let (mut others, mut is_empty) = (0, self.stopped);
        while others < ASIDE_MAX && !taker.is_done() && !is_empty {
            match shared.next(self.state, &mut taker, pool) {
                Next::Taken => {}
                Next::Other => others += 1,
                Next::Empty => is_empty = true,
                Next::NoSlot => break,
            }
        }
        let state = &mut shared.vlans[self.state];
        let more = !is_empty || !state.store.waiting().is_empty();
        // After `more: false` this port reads again only when woken, even if this read brought
        // frames. After a read without frames it may sleep, also while frames wait.
        state.idle = !more || (taker.frames() == 0 && others == 0);
        shared.judge();
        Ok(Read { frames: taker.frames(), more, others })
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.owes
            && let Some(open) = &self.open
        {
            let mut shared = lock(&open.shared);
            shared.device.flush()?;
            self.owes = shared.device.pending().frames > 0;
        }
        self.out.flush()
    }

    fn wants_write(&self) -> bool {
        self.out.wants_write()
    }

    fn retry_after(&self) -> Option<Nanos> {
        // No descriptor signals room for the device's own frames to this port.
        self.out.retry_after().or_else(|| self.owes.then_some(FLOW_CONTROL_RETRY))
    }

    fn pending(&self) -> Amount {
        self.out.pending()
    }

    fn lost(&self) -> &Losses {
        self.out.lost()
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.out.take_refused()
    }

    /// Counters of the device, which could hide a loss of any of its ports.
    fn outside(&self) -> Outside {
        let Some(open) = &self.open else { return Outside::default() };
        let shared = lock(&open.shared);
        let mut outside = shared.device.outside();
        outside.add("aside.full", shared.room.full());
        outside
    }

    fn flow_control(&mut self) -> Option<&mut dyn FlowControl> {
        Some(self)
    }

    fn read_ahead(&mut self) -> Option<&mut dyn ReadAhead> {
        Some(self)
    }

    fn ring(&self) -> Ring {
        let ring = self.open.as_ref().map(|open| lock(&open.shared).device.ring());
        ring.unwrap_or(Ring { capacity_frames: 0, waiting_frames_max: None })
    }

    fn lossless(&self) -> Lossless {
        let device = self.open.as_ref().map(|open| lock(&open.shared).device.lossless());
        device.unwrap_or(Lossless::No { needs: "to be open" })
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.out.close();
        self.owes = false;
        self.open.take().map_or(Ok(()), |open| lock(&open.shared).remove(self.state))
    }
}

impl FlowControl for VlanPort {
    fn receive_control(&mut self, tell: &mut dyn FnMut(&[u8])) -> usize {
        let Some(open) = &self.open else { return 0 };
        let mut shared = lock(&open.shared);
        shared.listen();
        let Some(heard) = shared.vlans[self.state].heard.take() else { return 0 };
        let mut frame = [0; mac_control::FRAME_SIZE];
        heard.message().emit(heard.source, &mut frame);
        tell(&frame);
        1
    }

    fn classify_by(&mut self, classifier: &Classifier) {
        if let Some(open) = &self.open {
            lock(&open.shared).vlans[self.state].classifier = Some(classifier.clone());
        }
    }
}

impl ReadAhead for VlanPort {
    /// Frames set aside for all ports of the device, which share the room.
    fn aside(&self) -> HeldBack {
        self.open.as_ref().map_or(HeldBack::default(), |open| lock(&open.shared).room.amount())
    }

    fn stop_reading(&mut self) {
        self.stopped = true;
    }

    fn resume_reading(&mut self) {
        self.stopped = false;
    }
}

impl Drop for VlanPort {
    fn drop(&mut self) {
        // The device may be gone, and then there is nothing to restore.
        _ = self.close();
    }
}
