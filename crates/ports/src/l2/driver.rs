//! Port of a device.

mod incoming;
mod parts;

use parts::KernelCounters;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sluice_base::{Batch, Buf as _, Mac, Nanos, Priority};
use sluice_switch::{Classifier, Egress, Sink, Taken, Window};

use sluice_wire::vlan;

use super::aside::{Room, Store, Taker};
use super::handing::{INDEX, QUIET, fits, ring_name};
use super::icmp_suppress::KernelBypass;
use super::joined::Joined;
use super::offload::{Offloads, finish_checksum};
use super::outgoing::Outgoing;
use super::rings::{Kind, RingPlan, RxFrame, RxRing, SeriesQueue, WIRE_OVERHEAD};
use crate::chip::Way;
use crate::device::{Device, device};
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::handed::PortHandover;
use crate::pool::{Pool, SlotMut};
use crate::port::{
    Amount, Counters, FlowControl, Handover, Losses, Lossless, Outside, PollFd, Port, Read,
    ReadAhead, Ring, UNREADABLE,
};
use crate::staging::ADDRESSES_SIZE;

/// Share of the kernel's own stack in the frames that this port receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelShare {
    /// Everything.
    All,
    /// Everything but VXLAN to this address, which the kernel would answer with ICMP: an underlay,
    /// whose address the kernel keeps.
    NoVxlan(std::net::Ipv4Addr),
    /// Nothing: a cable of a physical switch.
    Nothing,
}

/// Configuration of a device's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L2Config {
    /// Name of the device, in the namespace of the caller.
    pub device: String,
    /// The layer-3 MTU; `None` for the device's.
    pub mtu: Option<u16>,
    /// The headroom that the ring must hold, in bytes on the wire.
    pub ring_bytes: u64,
    /// Size of the smallest frame in the headroom, in bytes on the wire.
    pub wire_bytes_min: u32,
    /// Maximum of memory for the ring.
    pub ring_memory_bytes_max: u64,
    /// The kernel's share of the received frames.
    pub kernel: KernelShare,
    /// The way of its frames if a chip forwards for the switch.
    pub way: Option<Way>,
}

impl L2Config {
    /// Default headroom: 1 Gbit/s for 50 ms.
    pub const RING_BYTES: u64 = 6_250_000;
    /// Default maximum of memory for a ring.
    pub const RING_MEMORY_BYTES_MAX: u64 = 128 << 20;

    /// A device with default settings.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            mtu: None,
            ring_bytes: Self::RING_BYTES,
            wire_bytes_min: 64 + WIRE_OVERHEAD,
            ring_memory_bytes_max: Self::RING_MEMORY_BYTES_MAX,
            kernel: KernelShare::All,
            way: None,
        }
    }
}

/// Need of a port whose frames a chip forwards.
pub(super) const WITHOUT_CHIP: &str =
    "`kind = \"software\"` of `[chip]`: the kernel forwards, and drops when a queue is full";

/// True if a port takes datagrams that come as one: an underlay, or a cable.
fn takes_series(kernel: KernelShare) -> bool {
    kernel != KernelShare::All
}

/// The device of a configuration, and the MTU for it.
fn look_up(config: &L2Config) -> Result<(Device, u16), OpenError> {
    let name = config.device.as_str();
    let found = device(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => OpenError::NoSuchDevice {
            device: name.to_owned(),
            place: "this network namespace".to_owned(),
        },
        _ => OpenError::device(name, "look it up")(error),
    })?;
    let mtu = config.mtu.unwrap_or_else(|| u16::try_from(found.mtu).unwrap_or(u16::MAX));
    if u32::from(mtu) > found.mtu {
        let (needed, there) = (mtu.into(), found.mtu as usize);
        let device = name.to_owned();
        return Err(OpenError::FrameSize { device, mtu: mtu.into(), needed, there });
    }
    Ok((found, mtu))
}

/// Switches the offloads of a device off, as far as they are to be. A kernel that forwards has
/// super-frames as it likes.
fn offloads_of(config: &L2Config) -> Result<Offloads, OpenError> {
    match config.way {
        Some(_) => Offloads::left(&config.device),
        None => Offloads::off(&config.device, matches!(config.kernel, KernelShare::NoVxlan(_))),
    }
}

/// Keeps the switch's frames from the kernel.
fn quiet_of(config: &L2Config, index: u32, kept: Option<OwnedFd>) -> io::Result<KernelBypass> {
    match &config.way {
        Some(way) => way.obey(index).map(KernelBypass::Tcx),
        None => KernelBypass::take_up(index, config.kernel, kept),
    }
}

/// Size of the largest frame of an MTU: Ethernet and two tags.
pub(super) fn frame_size_max(mtu: u16) -> usize {
    usize::from(mtu) + 14 + 8
}

/// Headroom of the ring for flow control: one piece of memory, some hundred frames.
const CONTROL_RING_BYTES: u64 = 0;
/// MTU of its slots, which hold the smallest frames and some more.
const CONTROL_MTU: u16 = 128;
/// Minimum of memory for packets that are larger than a slot: some 60.
const SERIES_BYTES_MIN: u64 = 4 << 20;
/// Maximum of flow-control frames passed on by one call.
const HEARD_MAX: usize = 64;
/// Maximum of frames of one read, also of those that become one.
const SEGMENTS_READ_MAX: usize = 256;
/// Maximum of frames that one read sets aside.
pub(super) const ASIDE_MAX: usize = 256;

/// The port of a device.
#[derive(Debug)]
pub struct L2Port {
    open: Option<Open>,
    device: String,
    plan: RingPlan,
    ring_bytes_asked: u64,
    mtu: u16,
    mac: Mac,
    out: Outgoing,
    waiting_max: usize,
    own: OwnCounters,
    classifier: Option<Classifier>,
    store: Store,
    room: Room,
    /// Copy of a frame while its place is being decided.
    scratch: Box<[u8]>,
    /// Frames that came as one.
    joined: Joined,
    /// True if no more frames are taken from the ring.
    stopped: bool,
    kernel: KernelShare,
    /// True if a chip forwards for the switch.
    has_chip: bool,
}

/// Resources of an open port.
#[derive(Debug)]
struct Open {
    control: RxRing,
    ring: RxRing,
    index: u32,
    kernel: Arc<KernelCounters>,
    quiet: KernelBypass,
    offloads: Offloads,
}

impl Open {
    /// Returns the number of frames that found a ring full since the last call.
    fn drops(&self) -> io::Result<u64> {
        Ok(self.ring.drops()? + self.control.drops()?)
    }
}

/// Counters of this driver.
#[derive(Debug, Default)]
struct OwnCounters {
    /// Frames that found the ring full; the kernel resets its own counter when it is read.
    ring_drops: Cell<u64>,
    /// Frames larger than a slot of the ring or of the pool.
    truncated: u64,
    /// Frames with an open checksum that cannot be finished here.
    checksum_open: u64,
}

impl L2Port {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &L2Config) -> Result<Self, OpenError> {
        Self::adopt(config, None)
    }

    /// Opens the port as that of a trunk, which takes frames from its ring alone.
    pub(super) fn open_for_trunk(config: &L2Config) -> Result<Self, OpenError> {
        Self::open_with(config, None, None)
    }

    /// Opens the port with state that an earlier process handed over, frames in its ring included.
    /// State that does not fit this configuration is closed, and opened anew.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn adopt(config: &L2Config, handed: Option<PortHandover>) -> Result<Self, OpenError> {
        let before = handed.as_ref().map(|handed| handed.numbers.clone()).unwrap_or_default();
        let series = takes_series(config.kernel)
            .then_some(SeriesQueue { bytes: config.ring_bytes.max(SERIES_BYTES_MIN) });
        let mut port = Self::open_with(config, handed, series)?;
        // Only now: a port that cannot be opened leaves the device as the earlier process has it.
        if let Some(open) = &mut port.open
            && before.get(INDEX) == Some(&open.index.into())
        {
            open.offloads.were_on_before(&before);
        }
        if port.open.as_ref().is_some_and(|open| open.offloads.leave_checksums()) {
            port.out.take_series();
        }
        Ok(port)
    }

    fn open_with(
        config: &L2Config,
        handed: Option<PortHandover>,
        series: Option<SeriesQueue>,
    ) -> Result<Self, OpenError> {
        let name = config.device.as_str();
        let failed = |what| OpenError::device(name, what);
        let (found, mtu) = look_up(config)?;
        let plan = RingPlan::new(
            config.ring_bytes,
            config.wire_bytes_min,
            mtu,
            config.ring_memory_bytes_max,
        );
        let control = RingPlan::new(CONTROL_RING_BYTES, 1, CONTROL_MTU, 0);
        let fits = |handed: &_| fits(handed, config, found.index, &plan, series.is_some());
        // What a chip has is never handed over: the kernel forwards on meanwhile.
        let mut handed = handed.filter(|handed| config.way.is_none() && fits(handed));
        // A tunnel's segments leave as one datagram, of which a device makes checksums.
        let is_underlay = matches!(config.kernel, KernelShare::NoVxlan(_));
        let offloads = offloads_of(config)?;
        // Before the ring, so that not even its first frame is answered.
        let kept = handed.as_mut().and_then(|handed| handed.take_file(QUIET));
        let quiet = quiet_of(config, found.index, kept)
            .map_err(failed("keep the kernel from answering VXLAN on it"))?;
        let mut ring_of = |plan: &RingPlan, kind, series| {
            let name = ring_name(kind);
            let inherited = handed.as_mut().and_then(|handed| {
                let next = usize::try_from(*handed.numbers.get(name)?).ok()?;
                Some((handed.take_file(name)?, next))
            });
            match inherited {
                Some((socket, next)) => RxRing::take_up(socket, plan, next)
                    .map_err(failed("map the ring that was handed over")),
                None => RxRing::open(found.index, plan, (kind, config.way.as_ref()), series)
                    .map_err(|(what, error)| failed(what)(error)),
            }
        };
        let open = Open {
            // Flow control first: each frame is in one of the two rings.
            control: ring_of(&control, Kind::Control, None)?,
            kernel: Arc::new(KernelCounters::open(name, found.index, mtu)?),
            index: found.index,
            ring: ring_of(&plan, Kind::Data(config.kernel), series)?,
            quiet,
            offloads,
        };
        Ok(Self {
            open: Some(open),
            device: config.device.clone(),
            plan,
            ring_bytes_asked: config.ring_bytes,
            mtu,
            mac: found.mac,
            out: Outgoing::open(name, found.index, found.mac, mtu)?,
            waiting_max: 0,
            own: OwnCounters::default(),
            classifier: None,
            store: Store::default(),
            room: Room::new(config.ring_bytes),
            scratch: vec![0; frame_size_max(mtu)].into_boxed_slice(),
            joined: Joined::new(!is_underlay),
            stopped: false,
            kernel: config.kernel,
            has_chip: config.way.is_some(),
        })
    }

    /// The plan of the ring.
    #[must_use]
    pub fn ring_plan(&self) -> RingPlan {
        self.plan
    }

    /// Opens another egress path of the same device, with a socket and a staging area of its own.
    pub(super) fn another_way_out(&self) -> Result<Outgoing, OpenError> {
        let index = self.open.as_ref().map_or(0, |open| open.index);
        Outgoing::open(&self.device, index, self.mac, self.mtu)
    }

    /// The name of the device.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// The address of the device.
    pub(super) fn mac(&self) -> Mac {
        self.mac
    }

    /// A duplicate of the ring's descriptor, for a second waiter.
    pub(super) fn ring_fd(&self) -> io::Result<OwnedFd> {
        let open = self.open.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        open.ring.fd().try_clone_to_owned()
    }

    /// A duplicate of the descriptor of the flow-control ring.
    pub(super) fn control_fd(&self) -> io::Result<OwnedFd> {
        let open = self.open.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        open.control.fd().try_clone_to_owned()
    }

    /// Number of frames that wait in the ring.
    pub(super) fn waiting(&mut self) -> usize {
        let waiting = self.open.as_ref().map_or(0, |open| open.ring.waiting());
        self.waiting_max = self.waiting_max.max(waiting);
        waiting
    }

    /// The frame at the head of the ring.
    pub(super) fn front(&self) -> Option<RxFrame<'_>> {
        self.open.as_ref()?.ring.front()
    }

    /// Copies the frame at the head of the ring into a slot, whole or without a tag, and frees its
    /// place. Returns the slot if the frame does not fit into it.
    pub(super) fn take_front(
        &mut self,
        mut slot: SlotMut,
        tagless: bool,
    ) -> Result<FrameBuf, SlotMut> {
        let Some(open) = &mut self.open else { return Err(slot) };
        let Some(frame) = open.ring.front() else { return Err(slot) };
        // The kernel removed the tag already, unless it does not know this kind.
        let in_bytes = tagless && frame.tag.is_none();
        let frame = RxFrame { tag: frame.tag.filter(|_| !tagless), ..frame };
        let copied = copy_out(&frame, slot.bytes_mut(), &mut self.own);
        open.ring.release();
        match copied {
            None => Err(slot),
            Some(size) if in_bytes => {
                slot.bytes_mut().copy_within(..ADDRESSES_SIZE, vlan::TAG_SIZE);
                Ok(slot.freeze(vlan::TAG_SIZE, size - vlan::TAG_SIZE))
            }
            Some(size) => Ok(slot.freeze(0, size)),
        }
    }

    /// Copies the frame at the head of the ring into the scratch buffer, whole or without a tag,
    /// and frees its place. `None` if it does not fit.
    pub(super) fn copy_front(&mut self, tagless: bool) -> Option<&[u8]> {
        let open = self.open.as_mut()?;
        let frame = open.ring.front()?;
        let in_bytes = tagless && frame.tag.is_none();
        let frame = RxFrame { tag: frame.tag.filter(|_| !tagless), ..frame };
        let copied = copy_out(&frame, &mut self.scratch, &mut self.own);
        open.ring.release();
        let size = copied?;
        if !in_bytes {
            return Some(&self.scratch[..size]);
        }
        self.scratch.copy_within(..ADDRESSES_SIZE, vlan::TAG_SIZE);
        Some(&self.scratch[vlan::TAG_SIZE..size])
    }

    /// Frees the place of the frame at the head of the ring, unread.
    pub(super) fn skip_front(&mut self) {
        if let Some(open) = &mut self.open {
            open.ring.release();
        }
    }

    /// Method that keeps frames from the kernel's stack: `off`, `tcx` or `socket`.
    #[must_use]
    pub fn quiet_method(&self) -> &'static str {
        self.open.as_ref().map_or("off", |open| open.quiet.method())
    }

    /// Number of times that the kernel dropped a frame and reported it: the frame was kept and sent
    /// again. Each time also shows in `qdisc.dropped` or `device.tx_dropped`, where it is no loss.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.out.refused()
    }
}

/// Size of a frame, in the switch's type.
pub(super) fn frame_size(frame: &[u8]) -> u32 {
    u32::try_from(frame.len()).expect("a slot holds less")
}

/// Copies a frame out of the ring, with its tag back in place and its checksum finished. `None` if
/// it does not fit.
fn copy_out(frame: &RxFrame<'_>, to: &mut [u8], own: &mut OwnCounters) -> Option<usize> {
    let tag: &[u8] = frame.tag.as_ref().map_or(&[], |tag| tag);
    let size = frame.bytes.len() + tag.len();
    if frame.size > frame.bytes.len() || size > to.len() {
        own.truncated += 1;
        return None;
    }
    let to = &mut to[..size];
    let cut = if tag.is_empty() { 0 } else { ADDRESSES_SIZE.min(frame.bytes.len()) };
    to[..cut].copy_from_slice(&frame.bytes[..cut]);
    to[cut..cut + tag.len()].copy_from_slice(tag);
    to[cut + tag.len()..].copy_from_slice(&frame.bytes[cut..]);
    if frame.checksum_open && !finish_checksum(to) {
        own.checksum_open += 1;
    }
    Some(size)
}

impl Sink<FrameBuf> for L2Port {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        self.out.offer(frame, None)
    }
}

impl Port for L2Port {
    fn kind(&self) -> &'static str {
        if self.has_chip && self.kernel == KernelShare::Nothing { "kernel" } else { "l2" }
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let rings = self.open.iter().flat_map(|open| [open.ring.fd(), open.control.fd()]);
        let rings = rings.map(|fd| PollFd { fd, read: true, write: false });
        rings.chain(self.out.poll_fd()).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let Some(open) = &mut self.open else {
            return Ok(Read { frames: 0, more: false, others: 0 });
        };
        self.waiting_max = self.waiting_max.max(open.ring.waiting());
        if self.stopped || !window.closed.is_empty() || !self.store.waiting().is_empty() {
            return Ok(self.read_apart(Taker::new(window, limit, batch), pool));
        }
        let limit = limit.min(window.frames as usize).min(batch.room());
        let (mut frames, mut bytes, mut tries) = (0, 0, 0);
        let mut segments = 0;
        while tries < limit && segments < SEGMENTS_READ_MAX && bytes < window.bytes.0 {
            let most = self.fitting(window.bytes.0 - bytes).min(SEGMENTS_READ_MAX - segments);
            if let Some((buf, count)) = self.joined.join(most, pool) {
                (frames, tries, segments) = (frames + 1, tries + 1, segments + count);
                bytes += u64::from(buf.size());
                batch.push(buf).expect("room was counted before");
                continue;
            }
            let Some(mut slot) = pool.take() else { break };
            let Some(copied) = self.next_into(slot.bytes_mut()) else {
                pool.cancel(slot);
                return Ok(Read { frames, more: false, others: tries - frames });
            };
            (tries, segments) = (tries + 1, segments + 1);
            let Some(size) = copied else {
                pool.cancel(slot);
                continue;
            };
            batch.push(slot.freeze(0, size)).expect("room was counted before");
            frames += 1;
            bytes += size as u64;
        }
        Ok(Read { frames, more: true, others: tries - frames })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn wants_write(&self) -> bool {
        self.out.wants_write()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.out.retry_after()
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

    fn outside(&self) -> Outside {
        let Some(open) = &self.open else { return Outside::default() };
        let mut rows = Counters::from([
            ("ring.truncated", self.own.truncated),
            ("aside.full", self.room.full()),
            ("ring.checksum_open", self.own.checksum_open),
            ("series.parted", self.out.is_parted().into()),
        ]);
        match open.drops() {
            Ok(more) => {
                self.own.ring_drops.set(self.own.ring_drops.get() + more);
                rows.insert("ring.drops", self.own.ring_drops.get());
            }
            // A counter that cannot be read is not zero.
            Err(_) => rows.extend([UNREADABLE]),
        }
        Outside::of_kernel(rows, Arc::clone(&open.kernel) as _)
    }

    fn flow_control(&mut self) -> Option<&mut dyn FlowControl> {
        Some(self)
    }

    fn read_ahead(&mut self) -> Option<&mut dyn ReadAhead> {
        Some(self)
    }

    fn handover(&mut self) -> Option<&mut dyn Handover> {
        Some(self)
    }

    fn ring(&self) -> Ring {
        Ring {
            capacity_frames: self.plan.frames.into(),
            waiting_frames_max: Some(self.waiting_max as u64),
        }
    }

    /// Given PFC from the other end of the link: lossless if the ring holds the configured
    /// headroom.
    fn lossless(&self) -> Lossless {
        if self.has_chip {
            return Lossless::No { needs: WITHOUT_CHIP };
        }
        if self.plan.covered_bytes >= self.ring_bytes_asked {
            return Lossless::Yes;
        }
        Lossless::No {
            needs: "more memory for its receive ring, which is smaller than the headroom",
        }
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.out.close();
        while let Some(next) = self.joined.next(&mut self.scratch) {
            self.out.give_up(next.unwrap_or(0));
        }
        self.store.clear(&mut self.room);
        self.open.take().map_or(Ok(()), |mut open| open.offloads.restore())
    }
}

#[cfg(test)]
mod tests;
