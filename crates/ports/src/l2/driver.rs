//! A device as a port.

use std::cell::Cell;
use std::io;

use sluice_base::{Batch, Nanos};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::offload::{Offloads, finish_checksum};
use super::quiet::Quiet;
use super::rings::{RingPlan, RxFrame, RxRing, TxSocket, WIRE_OVERHEAD};
use crate::device::{DeviceCounters, device, softnet_dropped};
use crate::error::OpenError;
use crate::pool::{Pool, PoolBuf};
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Ring};
use crate::staging::{NotStaged, Staging, payload};

/// What the kernel's own stack sees of the frames that this port receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelShare {
    /// Everything.
    All,
    /// Everything but VXLAN to this address, which it would answer with ICMP: an underlay, whose
    /// address the kernel keeps.
    NoVxlan(std::net::Ipv4Addr),
    /// Nothing: a cable of a physical switch.
    Nothing,
}

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L2Config {
    /// The device, in the namespace of the caller.
    pub device: String,
    /// The layer-3 MTU; `None`: the device's.
    pub mtu: Option<u16>,
    /// The headroom that the ring must hold, in bytes on the wire.
    pub ring_bytes: u64,
    /// The smallest frame that the headroom is filled with, in bytes on the wire.
    pub wire_bytes_min: u32,
    /// The most memory that the ring may take.
    pub ring_memory_bytes_max: u64,
    /// What the kernel sees.
    pub kernel: KernelShare,
}

impl L2Config {
    /// The headroom by default: 1 Gbit/s for 50 ms.
    pub const RING_BYTES: u64 = 6_250_000;
    /// The most memory of a ring by default.
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
        }
    }
}

/// The largest frame of an MTU: Ethernet and two tags.
pub(super) fn frame_size_max(mtu: u16) -> usize {
    usize::from(mtu) + 14 + 8
}

/// When the kernel had no room and will not say when it has, the time after which to try again.
const NO_ROOM_RETRY: Nanos = Nanos::from_micros(200);
/// When the device is down, the time after which to try again.
const DOWN_RETRY: Nanos = Nanos::from_millis(10);

/// A device.
#[derive(Debug)]
pub struct L2Port {
    open: Option<Open>,
    plan: RingPlan,
    ring_bytes_asked: u64,
    mtu: u16,
    staging: Staging,
    waits: Waits,
    waiting_max: usize,
    own: OwnCounters,
    lost: Losses,
}

/// What is held while the port is open.
#[derive(Debug)]
struct Open {
    ring: RxRing,
    sender: TxSocket,
    counters: DeviceCounters,
    softnet_dropped: u64,
    quiet: Quiet,
    offloads: Offloads,
}

/// What this driver counts itself.
#[derive(Debug, Default)]
struct OwnCounters {
    /// Frames that found the ring full; the kernel forgets them when asked.
    ring_drops: Cell<u64>,
    /// Frames larger than a slot of the ring or of the pool.
    truncated: u64,
    /// Frames whose checksum was left open and is not one that can be finished here.
    checksum_open: u64,
    /// Times that the kernel threw a frame away and it was kept here and sent again.
    refused: u64,
}

/// Why frames stay staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    ForWritable,
    For(Nanos),
}

impl L2Port {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &L2Config) -> Result<Self, OpenError> {
        let name = config.device.as_str();
        let failed = |what| OpenError::device(name, what);
        let found = device(name).map_err(|error| match error.raw_os_error() {
            Some(libc::ENODEV) => OpenError::NoSuchDevice {
                device: name.to_owned(),
                place: "this network namespace".to_owned(),
            },
            _ => failed("look it up")(error),
        })?;
        let mtu = config.mtu.unwrap_or_else(|| u16::try_from(found.mtu).unwrap_or(u16::MAX));
        if u32::from(mtu) > found.mtu {
            let (needed, there) = (mtu.into(), found.mtu as usize);
            let device = name.to_owned();
            return Err(OpenError::FrameSize { device, mtu: mtu.into(), needed, there });
        }
        let offloads = Offloads::off(name)?;
        let plan = RingPlan::new(
            config.ring_bytes,
            config.wire_bytes_min,
            mtu,
            config.ring_memory_bytes_max,
        );
        // Before the ring, so that not even its first frame is answered.
        let quiet = Quiet::open(found.index, config.kernel)
            .map_err(failed("keep the kernel from answering VXLAN on it"))?;
        let open = Open {
            counters: DeviceCounters::new(found.index).map_err(failed("read its counters"))?,
            softnet_dropped: softnet_dropped().map_err(failed("read softnet_stat for it"))?,
            sender: TxSocket::open(found.index).map_err(failed("open a socket to send on it"))?,
            ring: RxRing::open(found.index, &plan).map_err(|(what, error)| failed(what)(error))?,
            quiet,
            offloads,
        };
        Ok(Self {
            open: Some(open),
            plan,
            ring_bytes_asked: config.ring_bytes,
            mtu,
            staging: Staging::new(frame_size_max(mtu)),
            waits: Waits::No,
            waiting_max: 0,
            own: OwnCounters::default(),
            lost: Losses::default(),
        })
    }

    /// The plan that the ring was made by.
    #[must_use]
    pub fn ring_plan(&self) -> RingPlan {
        self.plan
    }

    /// How the kernel is kept away: `off`, `tcx` or `socket`.
    #[must_use]
    pub fn quiet_method(&self) -> &'static str {
        self.open.as_ref().map_or("off", |open| open.quiet.method())
    }

    /// How often the kernel threw a frame away and said so: the frame was kept and sent again. Each
    /// time also shows in `qdisc.dropped` or `device.tx_dropped`, where it is no loss.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.own.refused
    }

    /// Hands staged frames over until none is left or the kernel takes no more.
    fn send_staged(&mut self) -> io::Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        self.waits = Waits::No;
        while !self.staging.is_empty() {
            let error = match open.sender.send(&self.staging) {
                Ok(sent) => {
                    for _ in 0..sent {
                        self.staging.pop();
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error().unwrap_or_default() {
                libc::EINTR => continue,
                libc::EAGAIN => self.waits = Waits::ForWritable,
                libc::ENOBUFS | libc::ENOMEM => {
                    self.own.refused += 1;
                    self.waits = Waits::For(NO_ROOM_RETRY);
                }
                libc::ENETDOWN => self.waits = Waits::For(DOWN_RETRY),
                libc::ENXIO | libc::ENODEV => return Err(error),
                errno => {
                    self.lost.count(errno, self.staging.pop());
                    continue;
                }
            }
            break;
        }
        Ok(())
    }
}

/// Copies a frame out of the ring, with its tag back in place and its checksum finished. `None`: it
/// does not fit.
fn copy_out(frame: &RxFrame<'_>, to: &mut [u8], own: &mut OwnCounters) -> Option<usize> {
    const ADDRESSES: usize = 12;
    let tag: &[u8] = frame.tag.as_ref().map_or(&[], |tag| tag);
    let size = frame.bytes.len() + tag.len();
    if frame.size > frame.bytes.len() || size > to.len() {
        own.truncated += 1;
        return None;
    }
    let to = &mut to[..size];
    let cut = if tag.is_empty() { 0 } else { ADDRESSES.min(frame.bytes.len()) };
    to[..cut].copy_from_slice(&frame.bytes[..cut]);
    to[cut..cut + tag.len()].copy_from_slice(tag);
    to[cut + tag.len()..].copy_from_slice(&frame.bytes[cut..]);
    if frame.checksum_open && !finish_checksum(to) {
        own.checksum_open += 1;
    }
    Some(size)
}

impl Sink<PoolBuf> for L2Port {
    fn offer(&mut self, frame: &Egress<'_, PoolBuf>) -> Taken {
        if self.open.is_none() {
            return Taken::No;
        }
        let mut staged = self.staging.push(frame, 0);
        if staged == Err(NotStaged::Full) && self.waits == Waits::No {
            // An error comes again from `flush`, whose caller can say what to do.
            let _told_by_flush = self.send_staged();
            staged = self.staging.push(frame, 0);
        }
        match staged {
            Ok(()) => Taken::All,
            Err(NotStaged::Full) => Taken::No,
            Err(NotStaged::TooLarge) => {
                self.lost.count(libc::EMSGSIZE, frame.header.len() + payload(frame).len());
                Taken::All
            }
        }
    }
}

impl Port for L2Port {
    fn kind(&self) -> &'static str {
        "l2"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        self.open.as_ref().map_or_else(Vec::new, |open| {
            vec![
                PollFd { fd: open.ring.fd(), read: true, write: false },
                PollFd { fd: open.sender.fd(), read: false, write: true },
            ]
        })
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<PoolBuf>,
    ) -> io::Result<Read> {
        let Some(open) = &mut self.open else { return Ok(Read { frames: 0, more: false }) };
        self.waiting_max = self.waiting_max.max(open.ring.waiting());
        let limit = limit.min(window.frames as usize).min(batch.room());
        let (mut frames, mut bytes, mut tries) = (0, 0, 0);
        while tries < limit && bytes < window.bytes.0 {
            let Some(frame) = open.ring.front() else {
                return Ok(Read { frames, more: false });
            };
            let Some(mut slot) = pool.take() else { break };
            tries += 1;
            let copied = copy_out(&frame, slot.bytes_mut(), &mut self.own);
            open.ring.release();
            let Some(size) = copied else {
                pool.cancel(slot);
                continue;
            };
            batch.push(slot.freeze(0, size)).expect("room was counted before");
            frames += 1;
            bytes += size as u64;
        }
        Ok(Read { frames, more: true })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_staged()
    }

    fn wants_write(&self) -> bool {
        self.waits == Waits::ForWritable
    }

    fn retry_after(&self) -> Option<Nanos> {
        match self.waits {
            Waits::For(span) => Some(span),
            Waits::No | Waits::ForWritable => None,
        }
    }

    fn pending(&self) -> Amount {
        self.staging.amount()
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn kernel_counters(&self) -> io::Result<Counters> {
        let mut rows = Counters::new();
        let Some(open) = &self.open else { return Ok(rows) };
        let drops = self.own.ring_drops.get() + open.ring.drops()?;
        self.own.ring_drops.set(drops);
        rows.insert("ring.drops", drops);
        rows.insert("ring.truncated", self.own.truncated);
        rows.insert("ring.checksum_open", self.own.checksum_open);
        open.counters.read(&mut rows)?;
        rows.insert("softnet.dropped", softnet_dropped()?.wrapping_sub(open.softnet_dropped));
        Ok(rows)
    }

    fn ring(&self) -> Ring {
        Ring {
            capacity_frames: self.plan.frames.into(),
            waiting_frames_max: Some(self.waiting_max as u64),
        }
    }

    /// Given PFC from the other end of the link: the ring holds what it was asked to hold.
    fn lossless(&self) -> Lossless {
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
        self.waits = Waits::No;
        self.staging.clear();
        self.open.take().map_or(Ok(()), |mut open| open.offloads.restore())
    }
}
