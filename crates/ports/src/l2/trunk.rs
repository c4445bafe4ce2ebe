//! Bare metal: a device behind which plain hosts, or a physical switch, know nothing of Sluice.
//!
//! One device is one port of the switch ([`Vlan::Access`]: untagged frames), or one for each of its
//! VLANs (802.1Q), each of another network. The ports share the ring of received frames; each has
//! a way out of its own.
//!
//! ```text
//!                        tag  ┌ parked ┐
//!   wire ─▶ [ ring ] ─▶ ─ 10 ─┴────────┴─▶ port of VLAN 10 ─▶ switch
//!                       ─ 20 ─┬────────┬─▶ port of VLAN 20 ─▶ switch
//!                             └ parked ┘
//!   wire ◀─ device ◀─ [ staged, tag 10 ] ◀─ port of VLAN 10 ◀─ switch
//!                  ◀─ [ staged, tag 20 ] ◀─ port of VLAN 20 ◀─ switch
//! ```
//!
//! **In.** The tag chooses the port and comes off ([`sort`]); the switch is told what it said. Only
//! the outermost tag counts, and only one of TPID 0x8100; what is behind it is the tenant's.
//! Whoever reads first sorts: frames for others are parked with them, at most
//! [`PARKED_FRAMES_MAX`] each, and who was asleep is woken by its bell, for epoll asks again
//! whether the ring has frames and by then it may have none.
//!
//! **A VLAN without room** is not read. Its frames are parked, then they stand at the head of the
//! ring, and behind them the frames of all the others: a wire has one queue. Flow control has
//! priorities and no VLANs, so then the wire pauses every priority that it may, until the ring is
//! empty ([`pauses`]). What is behind the head is as much as the ring was made for.
//!
//! **Out.** The tag is put on, with the priority of the frame as its PCP. Frames of a native VLAN
//! leave without, unless they have a tag of their own, which the neighbour would take for the
//! VLAN's.
//!
//! **Flow control** is of the wire and untagged. What the neighbour says is told to every port;
//! what the ports say is merged.

mod pauses;
mod sort;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use sluice_base::{Batch, Buf as _, Nanos, Priority, PriorityMask};
use sluice_switch::{Egress, Sink, Taken, Window};
use sluice_wire::{ethernet, mac_control, vlan};

use self::pauses::{Heard, Pauses};
use self::sort::{Place, Sorter};
use super::driver::{L2Config, L2Port};
use super::outgoing::Outgoing;
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::pool::Pool;
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Ring};
use crate::staging::ADDRESSES_SIZE;

/// How many frames wait for one port of a device while another one reads on. Each takes a slot of
/// the pool.
pub const PARKED_FRAMES_MAX: usize = 64;
/// How many frames of others one read sorts at most.
const OTHERS_MAX: usize = 256;

/// When the kernel had no room for a frame of flow control, the time after which to try again.
const FLOW_CONTROL_RETRY: Nanos = Nanos::from_micros(200);

/// Which frames of a device are a port's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vlan {
    /// All that are untagged, and none that has a VLAN: the device has no other port.
    Access,
    /// Those of a VLAN, 1 to 4094.
    Tagged(u16),
    /// Those of a VLAN, and the untagged ones, as which they also leave.
    Native(u16),
}

/// A device whose ports share it.
#[derive(Clone, Debug)]
pub struct Trunk(Arc<Mutex<Shared>>);

/// What the ports of a device have in common.
#[derive(Debug)]
struct Shared {
    device: L2Port,
    sorter: Sorter,
    lanes: Vec<Lane>,
    pauses: Pauses,
    /// How many frames stood in the ring when everything was paused last.
    paused_at: usize,
}

/// A port as its device sees it.
#[derive(Debug)]
struct Lane {
    vlan: Option<Vlan>,
    parked: VecDeque<FrameBuf>,
    heard: Option<Heard>,
    /// Frames that it took.
    taken: u64,
    /// It said that there is nothing, and sleeps.
    idle: bool,
    bell: Arc<OwnedFd>,
}

/// What a look at the ring brought.
enum Next {
    /// A frame for who asked.
    Frame(FrameBuf),
    /// A frame for somebody else, or for nobody.
    Other,
    /// The kernel has nothing.
    Empty,
    /// The pool has nothing.
    NoSlot,
    /// The frame at the head is for a port that takes no more.
    Blocked(usize),
}

impl Trunk {
    /// Opens a device. `pausable` are the priorities that its neighbour may be told to pause.
    ///
    /// # Errors
    /// As [`L2Port::open`].
    pub fn open(config: &L2Config, pausable: PriorityMask) -> Result<Self, OpenError> {
        Ok(Self(Arc::new(Mutex::new(Shared {
            device: L2Port::open(config)?,
            sorter: Sorter::new(),
            lanes: Vec::new(),
            pauses: Pauses::new(pausable),
            paused_at: 0,
        }))))
    }

    /// The port of a VLAN.
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
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(|e| failed("make a bell for it")(e.into()))?);
        let lane = shared.add(vlan, Arc::clone(&bell));
        let mtu = shared.device.mtu();
        drop(shared);
        let open = Open { shared: Arc::clone(&self.0), ring, bell };
        Ok(VlanPort { open: Some(open), lane, vlan, mtu, out, owes: false, saw: None })
    }
}

/// Nothing that panics leaves what is shared in disorder.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lane {
    /// Something waits for it.
    fn wake(&mut self) {
        if self.idle {
            self.idle = false;
            // A counter that is full is readable already.
            _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl Shared {
    /// A lane for a VLAN: one that was closed and is empty, or a new one.
    fn add(&mut self, vlan: Vlan, bell: Arc<OwnedFd>) -> usize {
        let lane = Lane {
            vlan: Some(vlan),
            parked: VecDeque::with_capacity(PARKED_FRAMES_MAX),
            heard: None,
            taken: 0,
            idle: false,
            bell,
        };
        let free = self.lanes.iter().position(|old| old.vlan.is_none() && old.parked.is_empty());
        let at = free.unwrap_or(self.lanes.len());
        if at == self.lanes.len() {
            self.lanes.push(lane);
        } else {
            self.lanes[at] = lane;
        }
        self.sorter.add(at, vlan);
        self.pauses.add(at);
        at
    }

    /// Takes a lane out, and closes the device behind the last one.
    fn remove(&mut self, at: usize) -> io::Result<()> {
        let lane = &mut self.lanes[at];
        let Some(vlan) = lane.vlan.take() else { return Ok(()) };
        lane.heard = None;
        let left = self.lanes.iter().position(|lane| lane.vlan.is_some());
        self.sorter.remove(at, vlan, left);
        if let Some(message) = self.pauses.remove(at) {
            self.say(&message);
        }
        if left.is_none() { self.device.close() } else { Ok(()) }
    }

    /// What was parked for ports that are closed now goes back to the pool.
    fn sweep(&mut self, pool: &mut Pool) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.vlan.is_none()) {
            lane.parked.drain(..).for_each(|buf| pool.give_back(buf));
        }
    }

    /// The next frame of a lane, or what stands in its way.
    fn next(&mut self, me: usize, pool: &mut Pool) -> Next {
        if let Some(heard) = self.lanes[me].heard {
            let Some(mut slot) = pool.take() else { return Next::NoSlot };
            let room = slot.bytes_mut().first_chunk_mut().expect("a slot holds any frame");
            heard.message().emit(heard.source, room);
            self.lanes[me].heard = None;
            return Next::Frame(slot.freeze(0, mac_control::FRAME_SIZE));
        }
        if let Some(buf) = self.lanes[me].parked.pop_front() {
            return Next::Frame(buf);
        }
        let Some(frame) = self.device.front() else { return Next::Empty };
        match self.sorter.place(frame.bytes, frame.tag) {
            Place::Everyone(source, message) => {
                self.device.skip_front();
                for lane in self.lanes.iter_mut().filter(|lane| lane.vlan.is_some()) {
                    lane.heard = Some(Heard::after(lane.heard, source, &message));
                    lane.wake();
                }
                Next::Other
            }
            Place::Lane { lane, .. }
                if lane != me && self.lanes[lane].parked.len() >= PARKED_FRAMES_MAX =>
            {
                Next::Blocked(lane)
            }
            Place::Lane { lane, tag, tagless } => {
                let Some(slot) = pool.take() else { return Next::NoSlot };
                let buf = match self.device.take_front(slot, tagless) {
                    Ok(buf) => buf.with_vlan_tag(tag),
                    Err(slot) => {
                        pool.cancel(slot);
                        return Next::Other;
                    }
                };
                if lane == me {
                    return Next::Frame(buf);
                }
                self.lanes[lane].parked.push_back(buf);
                self.lanes[lane].wake();
                Next::Other
            }
        }
    }

    /// The head of the ring waits for a port without room: everything is paused. There is no clock
    /// here; if frames come all the same, the pause has run out or was lost, and is said again.
    /// A port that pauses a priority repeats it in time, and with it this.
    fn pause_all(&mut self) {
        let waiting = self.device.waiting();
        if self.pauses.pauses_all() && waiting <= self.paused_at {
            return;
        }
        if let Some(message) = self.pauses.all()
            && self.say(&message) == Taken::All
        {
            self.paused_at = waiting;
        }
    }

    /// The ring is empty.
    fn resume_all(&mut self) {
        if let Some(message) = self.pauses.no_longer_all() {
            self.say(&message);
        }
    }

    /// Sends a frame of flow control by the device's own way out.
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
        // A device that is gone is told by the way out of each port.
        _ = self.device.flush();
        taken
    }
}

/// A port of a device that may have several.
#[derive(Debug)]
pub struct VlanPort {
    open: Option<Open>,
    lane: usize,
    vlan: Vlan,
    mtu: u16,
    out: Outgoing,
    /// Flow control of this port may be staged at the device.
    owes: bool,
    /// Who blocked the ring when this port read last, and how much that one had taken by then.
    saw: Option<(usize, u64)>,
}

/// What is held while the port is open.
#[derive(Debug)]
struct Open {
    shared: Arc<Mutex<Shared>>,
    ring: OwnedFd,
    bell: Arc<OwnedFd>,
}

impl VlanPort {
    /// The tag that a frame leaves with.
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

    /// What the switch made itself is flow control: of this port, but the wire has one.
    fn offer_pause(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let Some(open) = &self.open else { return Taken::No };
        let view = ethernet::Frame::new_checked(frame.header).ok();
        let message = view.and_then(|view| mac_control::Message::parse(view.payload()).ok());
        debug_assert!(message.is_some(), "the switch makes frames of flow control only");
        let mut shared = lock(&open.shared);
        let message = message.and_then(|message| shared.pauses.merge(self.lane, &message));
        let taken = message.map_or(Taken::All, |message| shared.say(&message));
        self.owes = shared.device.pending().frames > 0;
        taken
    }

    /// Pauses everything if the ring was blocked by one who has not taken a frame since the last
    /// read, which was in another turn; or ends that.
    fn judge(&mut self, shared: &mut Shared, blocked_by: Option<usize>, is_empty: bool) {
        let saw = blocked_by.map(|lane| (lane, shared.lanes[lane].taken));
        if saw.is_some() && saw == self.saw {
            shared.pause_all();
        }
        if is_empty {
            shared.resume_all();
        }
        self.saw = saw;
    }
}

/// Whether a frame that is to leave has a tag of its own.
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
        let readable = self.open.iter().flat_map(|open| [open.ring.as_fd(), open.bell.as_fd()]);
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
        let Some(open) = &self.open else { return Ok(Read { frames: 0, more: false }) };
        let shared = Arc::clone(&open.shared);
        let mut shared = lock(&shared);
        shared.device.waiting();
        shared.sweep(pool);
        let limit = limit.min(window.frames as usize).min(batch.room());
        let (mut frames, mut bytes, mut others) = (0, 0, 0);
        let (mut blocked_by, mut is_empty) = (None, false);
        while frames < limit && bytes < window.bytes.0 && others < OTHERS_MAX {
            match shared.next(self.lane, pool) {
                Next::Frame(buf) => {
                    bytes += u64::from(buf.size());
                    frames += 1;
                    batch.push(buf).expect("room was counted before");
                }
                Next::Other => others += 1,
                Next::Empty => {
                    is_empty = true;
                    break;
                }
                Next::NoSlot => break,
                Next::Blocked(lane) => {
                    blocked_by = Some(lane);
                    break;
                }
            }
        }
        let lane = &mut shared.lanes[self.lane];
        lane.taken += frames as u64;
        lane.idle = is_empty;
        self.judge(&mut shared, blocked_by, is_empty);
        Ok(Read { frames, more: !is_empty })
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
        // Nobody tells this port of room for the device's own frames.
        self.out.retry_after().or_else(|| self.owes.then_some(FLOW_CONTROL_RETRY))
    }

    fn pending(&self) -> Amount {
        self.out.pending()
    }

    fn lost(&self) -> &Losses {
        self.out.lost()
    }

    /// Those of the device: behind them a loss of any of its ports could hide.
    fn kernel_counters(&self) -> io::Result<Counters> {
        let Some(open) = &self.open else { return Ok(Counters::new()) };
        lock(&open.shared).device.kernel_counters()
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
        self.open.take().map_or(Ok(()), |open| lock(&open.shared).remove(self.lane))
    }
}

impl Drop for VlanPort {
    fn drop(&mut self) {
        // The device may be gone, and then there is nothing to restore.
        _ = self.close();
    }
}
