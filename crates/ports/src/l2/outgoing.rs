//! Egress path of a device: frames are staged and sent by `sendmmsg` from a socket that receives
//! nothing. Frames that the kernel does not take now stay staged, in order.
//!
//! **A frame that the device never takes** (larger than the far MTU of a veth pair, say) is refused
//! by the same error as one without room, and all frames would wait behind it for ever. The error
//! does not tell the cases apart; a probe frame does: if the device takes the probe and then
//! refuses the first frame again, time after time, there is room and the device never takes that
//! frame. It is dropped and counted (`stuck_head.rs`). The probe is a PFC frame without any
//! priority: nobody forwards it, and it breaks no order.

use std::io;

use sluice_base::{Mac, Nanos, Priority, PriorityMask};
use sluice_switch::{Egress, Taken, resize_outer};
use sluice_wire::{checksum, ipv4, mac_control, vlan};

use super::driver::frame_size_max;
use super::rings::TxSocket;
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::port::{Amount, Losses, PollFd};
use crate::series::{Series, SeriesHeaders, taken};
use crate::staging::{NotStaged, Staging};
use crate::stuck_head::StuckHead;

/// Size of the outer headers of a tunnel, offset of the payload of UDP in them, and of its header.
const OUTER_SIZE: usize = 50;
const DATAGRAM_AT: usize = 42;
const UDP_AT: u16 = 34;
const UDP_HEADER_SIZE: u16 = 8;
const ETHERNET_SIZE: usize = sluice_wire::ethernet::HEADER_SIZE;
const _: () = assert!(DATAGRAM_AT == (UDP_AT + UDP_HEADER_SIZE) as usize);

/// Interval of retries when the kernel had no room and signals none.
const NO_ROOM_RETRY: Nanos = Nanos::from_micros(200);
/// Interval of retries when the device is down.
const DOWN_RETRY: Nanos = Nanos::from_millis(10);

/// Refusals before the first probe: mostly there is no room for a moment.
const REFUSED_MIN: u32 = 8;
/// Signs needed to give a frame up, unless others were refused for good just before: more than 50
/// ms. Another sender may fill the last place between two calls now and then, and of a device's
/// several queues one may stand still alone, but not for longer than any pause lasts by itself
/// (33.6 ms at 1 Gbit/s).
const SIGNS_FULL: u32 = 250;

/// Reason why frames stay staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    ForWritable,
    For(Nanos),
}

/// One egress path.
#[derive(Debug)]
pub(crate) struct Outgoing {
    /// `None` once it is closed.
    socket: Option<TxSocket>,
    staging: Staging,
    /// Frames that were staged.
    sent: u64,
    waits: Waits,
    lost: Losses,
    /// Number of times that the kernel dropped a frame that was kept here and sent again.
    refused: u64,
    unwanted: Unwanted,
    finisher: Finisher,
    mtu: u16,
    /// Several datagrams leave as one; `None` if the device does not take them so.
    series: Option<SeriesHeaders>,
    /// True if the kernel refused what leaves as one, and each leaves for itself since.
    parted: bool,
}

/// State of the first staged frame, which the kernel refused.
#[derive(Debug)]
struct Unwanted {
    /// The probe: a PFC frame without any priority.
    probe: [u8; mac_control::FRAME_SIZE],
    /// Refusals of the first frame.
    refused: u32,
    patience: StuckHead,
}

/// Meaning of a refusal.
enum Meaning {
    /// There may be no room.
    NoRoom,
    /// There was room for the probe: try the frame again at once.
    Again,
    /// The device never takes the frame.
    Never,
}

/// Returns the outer headers of a series, up to its first datagram: sizes are those of all
/// together, and the checksum is left open, as the sum of the pseudo-header. `None` for headers
/// that are not those of a tunnel without tag.
fn outer_of(header: &[u8], series: &Series<'_>) -> Option<[u8; DATAGRAM_AT]> {
    let mut outer: [u8; OUTER_SIZE] = header.try_into().ok()?;
    if outer[ETHERNET_SIZE - 2..ETHERNET_SIZE] != [0x08, 0x00] {
        return None;
    }
    let in_front = u16::try_from(OUTER_SIZE - DATAGRAM_AT).expect("8 bytes");
    resize_outer(&mut outer, series.size.checked_sub(in_front)?);
    let packet = ipv4::Packet::new_checked(&outer[ETHERNET_SIZE..]).ok()?;
    let size = series.size + UDP_HEADER_SIZE;
    let sum = checksum::pseudo_ipv4(packet.src(), packet.dst(), ipv4::PROTOCOL_UDP, size);
    outer[DATAGRAM_AT - 2..DATAGRAM_AT].copy_from_slice(&sum.to_be_bytes());
    outer.first_chunk().copied()
}

impl Unwanted {
    fn new(mac: Mac) -> Self {
        let mut probe = [0; mac_control::FRAME_SIZE];
        mac_control::Message::Pfc { enabled: PriorityMask::NONE, quanta: [0; 8] }
            .emit(mac, &mut probe);
        Self { probe, refused: 0, patience: StuckHead::new(SIGNS_FULL) }
    }

    /// Notes that a frame left.
    #[inline]
    fn passed(&mut self) {
        self.refused = 0;
        self.patience.passed();
    }

    /// Interprets a refusal for want of room.
    #[cold]
    fn why(&mut self, socket: &TxSocket) -> Meaning {
        self.refused += 1;
        let is_short = self.patience.is_short();
        if (self.refused < REFUSED_MIN && !is_short) || socket.send_one(&self.probe).is_err() {
            return Meaning::NoRoom;
        }
        match self.patience.is_over() {
            true => {
                self.refused = 0;
                Meaning::Never
            }
            false if is_short => Meaning::Again,
            false => Meaning::NoRoom,
        }
    }
}

impl Outgoing {
    /// Opens an egress path of the device of this index.
    pub(crate) fn open(device: &str, index: u32, mac: Mac, mtu: u16) -> Result<Self, OpenError> {
        let failed = OpenError::device(device, "open a socket to send on it");
        Ok(Self {
            socket: Some(TxSocket::open(index).map_err(failed)?),
            staging: Staging::new(frame_size_max(mtu)),
            sent: 0,
            waits: Waits::No,
            lost: Losses::default(),
            refused: 0,
            unwanted: Unwanted::new(mac),
            finisher: Finisher::new(),
            mtu,
            series: None,
            parted: false,
        })
    }

    /// Lets several datagrams leave as one. A kernel that does not take them so leaves it at one by
    /// one.
    pub(crate) fn take_series(&mut self) {
        let taken = self.socket.as_mut().map(TxSocket::take_series);
        self.series = taken.is_some_and(|taken| taken.is_ok()).then(SeriesHeaders::new);
    }

    /// True if the kernel refused what leaves as one.
    pub(crate) const fn is_parted(&self) -> bool {
        self.parted
    }

    /// Stages one frame, with a tag behind its addresses if `tag` is given.
    #[inline]
    pub(crate) fn offer(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        tag: Option<[u8; vlan::TAG_SIZE]>,
    ) -> Taken {
        if is_unfinished(frame) {
            if tag.is_none()
                && let Some(taken) = self.offer_series(frame)
            {
                return taken;
            }
            return finish(
                self,
                |own| &mut own.finisher,
                frame,
                |own, frame| own.offer(frame, tag),
            );
        }
        if self.socket.is_none() {
            return Taken::No;
        }
        let mut staged = self.stage(frame, tag);
        if staged == Err(NotStaged::Full) && self.waits == Waits::No {
            // An error comes again from `flush`, whose caller can handle it.
            let _reported_by_flush = self.flush();
            staged = self.stage(frame, tag);
        }
        match staged {
            Ok(()) => {
                self.sent += 1;
                Taken::All
            }
            Err(NotStaged::Full) => Taken::No,
            Err(NotStaged::TooLarge) => {
                self.lost.refuse(libc::EMSGSIZE, frame.priority, frame_size(frame));
                Taken::All
            }
        }
    }

    /// Gives the segments of a super-frame to the kernel from where they lie, as one datagram for
    /// the device to cut. `None` if they have to be staged.
    fn offer_series(&mut self, frame: &Egress<'_, FrameBuf>) -> Option<Taken> {
        self.series.as_ref()?;
        if !self.staging.is_empty() && self.waits == Waits::No {
            // An error comes again from `flush`, whose caller can handle it.
            let _reported_by_flush = self.flush();
        }
        if !self.staging.is_empty() {
            return None;
        }
        let Self { socket: Some(socket), series: Some(headers), .. } = self else { return None };
        let mut next = frame.first;
        while let Some(series) = headers.make(frame, next, DATAGRAM_AT) {
            // The kernel cuts by the size that it is told, whatever the device's MTU is.
            if usize::from(series.each) + DATAGRAM_AT - ETHERNET_SIZE > self.mtu.into() {
                break;
            }
            let Some(outer) = outer_of(frame.header, &series) else { break };
            match socket.send_series(&outer, UDP_AT, &series) {
                Ok(()) => {
                    next += series.count;
                    self.sent += u64::from(series.count);
                    self.unwanted.passed();
                }
                Err(error) => match error.raw_os_error().unwrap_or_default() {
                    libc::EINTR => {}
                    libc::EAGAIN => {
                        self.waits = Waits::ForWritable;
                        return Some(taken(frame, next));
                    }
                    libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP => {
                        (self.series, self.parted) = (None, true);
                        break;
                    }
                    // Staged, they are tried again or counted.
                    _ => break,
                },
            }
        }
        (next > frame.first).then(|| taken(frame, next))
    }

    /// Ends a frame that the device cannot take now, and counts it.
    pub(crate) fn lose(&mut self, frame: &Egress<'_, FrameBuf>, errno: i32) -> Taken {
        if is_unfinished(frame) {
            let lose = |own: &mut Self, frame: &Egress<'_, FrameBuf>| own.lose(frame, errno);
            return finish(self, |own| &mut own.finisher, frame, lose);
        }
        self.lost.count(errno, frame_size(frame));
        Taken::All
    }

    #[inline]
    fn stage(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        tag: Option<[u8; vlan::TAG_SIZE]>,
    ) -> Result<(), NotStaged> {
        match tag {
            None => self.staging.push(frame, 0),
            Some(tag) => self.staging.push_tagged(frame, tag),
        }
    }

    /// Passes staged frames to the kernel until none is left or it takes no more.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        self.waits = Waits::No;
        while !self.staging.is_empty() {
            let error = match socket.send(&self.staging) {
                Ok(sent) => {
                    for _ in 0..sent {
                        self.staging.pop();
                        self.unwanted.passed();
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error().unwrap_or_default() {
                libc::EINTR => continue,
                libc::EAGAIN => self.waits = Waits::ForWritable,
                errno @ (libc::ENOBUFS | libc::ENOMEM) => {
                    match self.unwanted.why(socket) {
                        Meaning::Never => {
                            self.staging.refuse(errno, &mut self.lost);
                            continue;
                        }
                        Meaning::Again => continue,
                        Meaning::NoRoom => {}
                    }
                    self.refused += 1;
                    self.waits = Waits::For(NO_ROOM_RETRY);
                }
                libc::ENETDOWN => self.waits = Waits::For(DOWN_RETRY),
                libc::ENXIO | libc::ENODEV => return Err(error),
                errno => {
                    self.staging.refuse(errno, &mut self.lost);
                    continue;
                }
            }
            break;
        }
        Ok(())
    }

    /// As [`crate::Port::wants_write`].
    pub(crate) fn wants_write(&self) -> bool {
        self.waits == Waits::ForWritable
    }

    /// As [`crate::Port::retry_after`].
    pub(crate) fn retry_after(&self) -> Option<Nanos> {
        match self.waits {
            Waits::For(span) => Some(span),
            Waits::No | Waits::ForWritable => None,
        }
    }

    /// The descriptor that signals room, while it is open.
    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let socket = self.socket.as_ref()?;
        Some(PollFd { fd: socket.fd(), read: false, write: true })
    }

    /// Frames that the kernel has not taken yet.
    pub(crate) fn pending(&self) -> Amount {
        self.staging.amount()
    }

    /// As [`crate::Port::take_refused`].
    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
    }

    /// Frames that the kernel refused for good.
    pub(crate) fn lost(&self) -> &Losses {
        &self.lost
    }

    /// Frames that were staged since this was opened.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends a frame of the port's own behind all that were staged, if the kernel takes it now.
    pub(crate) fn send_behind(&mut self, frame: &[u8]) {
        // An error comes again from the caller's own flush.
        let _reported_by_flush = self.flush();
        if self.staging.is_empty()
            && let Some(socket) = &self.socket
        {
            // Another one is sent if this one is not.
            _ = socket.send_one(frame);
        }
    }

    /// Number of times that the kernel dropped a frame that was kept and sent again.
    pub(crate) fn refused(&self) -> u64 {
        self.refused
    }

    /// Counts a frame that is not sent any more, since the device goes.
    pub(crate) fn give_up(&mut self, size: usize) {
        self.lost.count(libc::ENETDOWN, size);
    }

    /// Closes the socket and gives up staged frames.
    pub(crate) fn close(&mut self) {
        self.waits = Waits::No;
        self.staging.clear();
        self.socket = None;
    }
}
