//! Port of a TAP.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use sluice_base::{Batch, Buf as _, Nanos, Priority};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::incoming::{self, Came};
use super::rings::{self, Tap, Written};
use crate::error::OpenError;
use crate::finish::{Finisher, finish, tunnel_strip};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::gro::{Gro, Joined};
use crate::net_header::{HEADER_SIZE, header_of, of_buffers};
use crate::netns;
use crate::offload::{Kind, Offload};
use crate::pool::Pool;
use crate::port::{Amount, Losses, Lossless, Outside, PollFd, Port, Read, ReceivingSockets, Ring};
use crate::rcvbuf::{Admit, Receivers, SocketHolds, SocketsShot};
use crate::stuck_head::StuckHead;
use crate::sys::tap_netns;

/// Configuration of a TAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Name of the device. An existing persistent device is attached to, otherwise it is created,
    /// and goes away with the port unless it is kept ([`super::KeptTap`]).
    pub device: String,
    /// Network namespace of the device, as a path such as `/run/netns/c1`; `None` for the caller's.
    pub netns: Option<std::path::PathBuf>,
    /// Layer-3 MTU to set.
    pub mtu: u16,
    /// MAC to set, the container's; `None` leaves the device its own.
    pub mac: Option<sluice_base::Mac>,
    /// IP addresses to add, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes to add when the device is made.
    pub routes: Vec<TapRoute>,
    /// Size of the ring in frames (`txqueuelen`).
    pub ring_frames: u32,
    /// True if the port sets the device up; otherwise the container's owner does.
    pub up: bool,
    /// True if the container may leave checksums and segmentation to the port; default false.
    pub offload: bool,
    /// True if a full ring holds its senders, where the kernel can (Linux 7.3); default true.
    pub holds: bool,
}

/// A route over the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapRoute {
    /// First address of the destination.
    pub ip: IpAddr,
    /// Prefix length.
    pub prefix: u8,
    /// The router; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
}

impl TapConfig {
    /// Default size of the ring in frames.
    pub const RING_FRAMES: u32 = 20_000;

    /// A device with default settings.
    #[must_use]
    pub fn new(device: &str, mtu: u16) -> Self {
        Self {
            device: device.to_owned(),
            netns: None,
            mtu,
            mac: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            ring_frames: Self::RING_FRAMES,
            up: true,
            offload: false,
            holds: true,
        }
    }
}

/// Maximum of frames of one `read`: more would let one busy container keep the others waiting.
const READ_FRAMES_MAX: usize = 16;
/// Interval of retries when the kernel had no memory for a frame.
const NO_MEMORY_RETRY: Nanos = Nanos::from_millis(1);
/// Refusals for want of memory until a frame is given up.
const SIGNS_FULL: u32 = 50;

/// A TAP.
#[derive(Debug)]
pub struct TapPort {
    tap: Option<Tap>,
    mtu: u16,
    ring_frames: u32,
    waits: Option<Waits>,
    patience: StuckHead,
    /// Frames larger than a slot of the pool.
    truncated: u64,
    /// Frames that requested what cannot be done.
    invalid_offloads: u64,
    lost: Losses,
    finisher: Finisher,
    /// Segments for the container that become super-frames.
    gro: Gro,
    receivers: Receivers,
}

/// Reason why `offer` returned no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    ForWritable,
    ForMemory,
}

/// Consequence of a write.
enum Settled {
    Sent,
    Waits(Waits),
    /// The kernel never takes it, for this error.
    Lost(i32),
}

impl Written {
    fn settle(self, patience: &mut StuckHead) -> Settled {
        match self {
            Self::All => {
                patience.passed();
                Settled::Sent
            }
            Self::WouldBlock => Settled::Waits(Waits::ForWritable),
            // Other frames may need less.
            Self::NoMemory(errno) if patience.is_over() => Settled::Lost(errno),
            Self::NoMemory(_) => Settled::Waits(Waits::ForMemory),
            Self::Refused(errno) => Settled::Lost(errno),
        }
    }
}

impl TapPort {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &TapConfig) -> Result<Self, OpenError> {
        let tap = netns::within(config.netns.as_deref(), || rings::open(config))?;
        Ok(Self::new(config, tap))
    }

    pub(super) fn new(config: &TapConfig, tap: Tap) -> Self {
        let receivers = match tap_netns(tap.fd()) {
            // The sockets of the process's own namespace are others'.
            Ok(namespace) if !config.up && netns::is_own(namespace.as_fd()) => Receivers::lacking(
                "a restart of the data process once the device is in its container".to_owned(),
            ),
            Ok(namespace) => Receivers::open(Some(namespace.as_fd())),
            Err(error) => Receivers::lacking(format!("the namespace of its device: {error}")),
        };
        Self {
            tap: Some(tap),
            mtu: config.mtu,
            ring_frames: config.ring_frames,
            waits: None,
            patience: StuckHead::new(SIGNS_FULL),
            truncated: 0,
            invalid_offloads: 0,
            lost: Losses::default(),
            finisher: Finisher::new(),
            gro: Gro::default(),
            receivers,
        }
    }
}

impl Sink<FrameBuf> for TapPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if self.waits.is_some() && self.gro.waiting().frames > 0 {
            // The kernel had no room for what was taken before.
            return Taken::No;
        }
        if is_unfinished(frame) {
            return if self.write_joined() { self.offer_unfinished(frame) } else { Taken::No };
        }
        if self.tap.as_ref().is_some_and(|tap| tap.may_leave_offloads) {
            match self.gro.join(frame) {
                Joined::Taken => return Taken::All,
                Joined::Apart => {}
                Joined::Behind if !self.write_joined() => return Taken::No,
                // Nothing waits any more.
                Joined::Behind if self.gro.join(frame) == Joined::Taken => return Taken::All,
                Joined::Behind => {}
            }
        }
        self.write(&of_buffers(0), frame)
    }

    fn hold_port(&mut self) {
        self.receivers.hold_port();
    }
}

impl TapPort {
    /// Offers an unfinished frame: as it is, if nothing of it was sent yet.
    #[cold]
    fn offer_unfinished(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let is_untouched = frame.first == 0 && frame.tunnel.is_none();
        let tap = self.tap.as_ref().filter(|_| is_untouched);
        let left = frame.buf.and_then(FrameBuf::offload);
        let left = left.map(|left| left.without(tunnel_strip(frame)));
        match left.filter(|left| tap.is_some_and(|tap| tap.takes(left))) {
            Some(left) if !left.is_super() => self.write(&header_of(&left, 0), frame),
            Some(left) if is_tcp(&left) || self.receivers.takes_whole(frame) => {
                self.write_now(&header_of(&left, 0), frame)
            }
            _ => finish(self, |own| &mut own.finisher, frame, Self::offer),
        }
    }

    /// Writes a frame, unless the socket that it is for has no room.
    fn write(&mut self, header: &[u8; HEADER_SIZE], frame: &Egress<'_, FrameBuf>) -> Taken {
        match self.receivers.admit(header, frame) {
            Admit::Pass => self.write_now(header, frame),
            Admit::Waits | Admit::Stuck => Taken::All,
            Admit::Full => Taken::Later,
        }
    }

    fn write_now(&mut self, header: &[u8; HEADER_SIZE], frame: &Egress<'_, FrameBuf>) -> Taken {
        let Some(tap) = &self.tap else { return Taken::No };
        match tap.write(header, frame).settle(&mut self.patience) {
            Settled::Sent => self.waits = None,
            Settled::Waits(waits) => self.waits = Some(waits),
            Settled::Lost(errno) => {
                self.waits = None;
                // A super-frame counts with the headers of its segments.
                let whole = frame.buf.filter(|_| is_unfinished(frame));
                let size = whole.map_or(frame_size(frame), |buf| buf.size() as usize);
                self.lost.refuse(errno, frame.priority, size);
            }
        }
        if self.waits.is_some() { Taken::No } else { Taken::All }
    }

    /// Writes the super-frames that are in the making. Returns false if the kernel does not take
    /// all of them now.
    fn write_joined(&mut self) -> bool {
        let Some(tap) = &self.tap else { return true };
        while let Some(merged) = self.gro.first() {
            let header = merged.left.as_ref().map_or(of_buffers(0), |left| header_of(left, 0));
            match tap.write(&header, &merged.frame()).settle(&mut self.patience) {
                Settled::Sent => {}
                Settled::Waits(waits) => {
                    self.waits = Some(waits);
                    return false;
                }
                Settled::Lost(errno) => {
                    for size in merged.sizes() {
                        self.lost.refuse(errno, merged.priority, size);
                    }
                }
            }
            self.gro.remove_first();
        }
        true
    }
}

/// Returns true for a super-frame of TCP.
fn is_tcp(left: &Offload) -> bool {
    left.ask().cut.is_some_and(|(kind, _)| kind != Kind::Udp)
}

impl Port for TapPort {
    fn kind(&self) -> &'static str {
        "tap"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let all = |tap| PollFd { fd: Tap::fd(tap), read: true, write: true };
        let sockets = self.receivers.fds().map(|fd| PollFd { fd, read: true, write: false });
        self.tap.iter().map(all).chain(sockets).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let Some(tap) = &self.tap else { return Ok(Read { frames: 0, more: false, others: 0 }) };
        let limit = limit.min(READ_FRAMES_MAX).min(window.frames as usize).min(batch.room());
        let (mut frames, mut bytes) = (0, 0);
        let mut tries = 0;
        while tries < limit && bytes < window.bytes.0 {
            match incoming::read(tap, pool)? {
                Came::Frame(frame) => {
                    bytes += u64::from(frame.size());
                    batch.push(frame).expect("room was counted before");
                    frames += 1;
                }
                Came::Nothing => return Ok(Read { frames, more: false, others: tries - frames }),
                Came::NoMemory => break,
                Came::Oversize => self.truncated += 1,
                Came::Invalid => self.invalid_offloads += 1,
            }
            tries += 1;
        }
        Ok(Read { frames, more: true, others: tries - frames })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.waits = None;
        self.write_joined();
        Ok(())
    }

    fn wants_write(&self) -> bool {
        self.waits == Some(Waits::ForWritable)
    }

    fn retry_after(&self) -> Option<Nanos> {
        match self.waits {
            Some(Waits::ForMemory) => Some(NO_MEMORY_RETRY),
            Some(Waits::ForWritable) => None,
            None => self.receivers.retry_after(),
        }
    }

    fn pending(&self) -> Amount {
        self.gro.waiting().and(self.receivers.waiting())
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
    }

    fn outside(&self) -> Outside {
        let Some(tap) = &self.tap else { return Outside::default() };
        let own =
            [("ring.truncated", self.truncated), ("guest_offload", self.invalid_offloads)].into();
        Outside::of_kernel(own, Arc::clone(&tap.kernel) as _)
    }

    fn receiving_sockets(&mut self) -> Option<&mut dyn ReceivingSockets> {
        Some(self)
    }

    fn ring(&self) -> Ring {
        // The kernel does not show the number of frames that wait in the ring.
        Ring { capacity_frames: self.ring_frames.into(), waiting_frames_max: None }
    }

    fn lossless(&self) -> Lossless {
        match self.tap.as_ref().map_or(Err("to be open"), |tap| tap.holds) {
            Ok(()) => Lossless::Yes,
            Err(needs) => Lossless::No { needs },
        }
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.write_joined();
        while let Some(merged) = self.gro.first() {
            for size in merged.sizes() {
                self.lost.count(libc::ENETDOWN, size);
            }
            self.gro.remove_first();
        }
        for size in self.receivers.give_up() {
            self.lost.count(libc::ENETDOWN, size);
        }
        self.tap = None;
        self.waits = None;
        Ok(())
    }
}

impl ReceivingSockets for TapPort {
    fn hold(&mut self, holds: SocketHolds) {
        self.receivers.hold(holds);
    }

    #[inline]
    fn resume(&mut self, now: Nanos) -> bool {
        let Some(tap) = &self.tap else { return false };
        let (patience, waits, lost) = (&mut self.patience, &mut self.waits, &mut self.lost);
        self.receivers.resume(now, |waiting| {
            match tap.write(&waiting.header, &waiting.frame()).settle(patience) {
                Settled::Sent => {}
                Settled::Waits(what) => {
                    *waits = Some(what);
                    return None;
                }
                Settled::Lost(errno) => lost.refuse(errno, waiting.priority, waiting.bytes.len()),
            }
            // Nobody counts: sending delivers.
            Some(0)
        })
    }

    fn shot(&self) -> SocketsShot {
        self.receivers.shot()
    }

    fn take_stuck(&mut self) -> Option<(Priority, Amount)> {
        self.receivers.take_stuck()
    }
}
