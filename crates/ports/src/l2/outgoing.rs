//! The way out of a device: frames are staged and sent by `sendmmsg` from a socket that receives
//! nothing. What the kernel does not take now stays staged, in order.
//!
//! **A frame that the device never takes** (larger than the far MTU of a veth pair, say)
//! is refused by the same error as one for which there is no room, and everything would
//! wait behind it for ever. The error does not tell them apart, the next frame does: if the device
//! takes one that says nothing and then refuses the first again, time after time, there is room and
//! the frame is not wanted. It ends, counted. That other frame is PFC that speaks of no priority:
//! nobody forwards it, and no order is broken by it.

use std::io;

use sluice_base::{Mac, Nanos, PriorityMask};
use sluice_switch::{Egress, Taken};
use sluice_wire::{mac_control, vlan};

use super::driver::frame_size_max;
use super::rings::TxSocket;
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::port::{Amount, Losses, PollFd};
use crate::staging::{NotStaged, Staging};

/// When the kernel had no room and will not say when it has, the time after which to try again.
const NO_ROOM_RETRY: Nanos = Nanos::from_micros(200);
/// When the device is down, the time after which to try again.
const DOWN_RETRY: Nanos = Nanos::from_millis(10);

/// How often a frame is refused before it is asked why: mostly there is no room for a moment.
const REFUSED_MIN: u32 = 8;
/// How often there must be room for another frame and not for this one, without a time at which
/// there was none for either: more than 50 ms. Somebody else may fill the last place between two
/// calls now and then, and of a device's several queues one may stand still alone, but not for
/// longer than any pause lasts by itself (33.6 ms at 1 Gbit/s).
const PROOFS_MIN: u32 = 250;

/// Why frames stay staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    ForWritable,
    For(Nanos),
}

/// One way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// `None` once it is closed.
    socket: Option<TxSocket>,
    staging: Staging,
    waits: Waits,
    lost: Losses,
    /// Times that the kernel threw a frame away and it was kept here and sent again.
    refused: u64,
    unwanted: Unwanted,
    finisher: Finisher,
}

/// What is known of the first staged frame, which the kernel refused.
#[derive(Debug)]
struct Unwanted {
    /// A frame that says nothing.
    probe: [u8; mac_control::FRAME_SIZE],
    /// How often the first frame was refused.
    refused: u32,
    /// How often there was room for another one meanwhile.
    proofs: u32,
    /// The size from which on frames were not wanted: then once is proof enough.
    size_min: usize,
}

impl Unwanted {
    fn new(mac: Mac) -> Self {
        let mut probe = [0; mac_control::FRAME_SIZE];
        mac_control::Message::Pfc { enabled: PriorityMask::NONE, quanta: [0; 8] }
            .emit(mac, &mut probe);
        Self { probe, refused: 0, proofs: 0, size_min: usize::MAX }
    }

    /// A frame of this size left.
    #[inline]
    fn passed(&mut self, size: usize) {
        (self.refused, self.proofs) = (0, 0);
        if size >= self.size_min {
            self.size_min = usize::MAX;
        }
    }

    /// A frame was refused for want of room: whether that is not so.
    #[cold]
    fn is(&mut self, frame: &[u8], socket: &TxSocket) -> bool {
        let is_known = frame.len() >= self.size_min;
        self.refused += 1;
        if self.refused < REFUSED_MIN && !is_known {
            return false;
        }
        if socket.send_one(&self.probe).is_err() {
            self.proofs = 0;
            return false;
        }
        self.proofs += 1;
        if self.proofs < PROOFS_MIN && !is_known {
            return false;
        }
        self.size_min = self.size_min.min(frame.len());
        (self.refused, self.proofs) = (0, 0);
        true
    }
}

impl Outgoing {
    /// Out of the device of this index.
    pub(super) fn open(device: &str, index: u32, mac: Mac, mtu: u16) -> Result<Self, OpenError> {
        let failed = OpenError::device(device, "open a socket to send on it");
        Ok(Self {
            socket: Some(TxSocket::open(index).map_err(failed)?),
            staging: Staging::new(frame_size_max(mtu)),
            waits: Waits::No,
            lost: Losses::default(),
            refused: 0,
            unwanted: Unwanted::new(mac),
            finisher: Finisher::new(),
        })
    }

    /// Stages one frame, with a tag behind its addresses if it is given one.
    #[inline]
    pub(super) fn offer(
        &mut self,
        frame: &Egress<'_, FrameBuf>,
        tag: Option<[u8; vlan::TAG_SIZE]>,
    ) -> Taken {
        if is_unfinished(frame) {
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
            // An error comes again from `flush`, whose caller can say what to do.
            let _told_by_flush = self.flush();
            staged = self.stage(frame, tag);
        }
        match staged {
            Ok(()) => Taken::All,
            Err(NotStaged::Full) => Taken::No,
            Err(NotStaged::TooLarge) => {
                self.lost.count(libc::EMSGSIZE, frame_size(frame));
                Taken::All
            }
        }
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

    /// Hands staged frames over until none is left or the kernel takes no more.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        self.waits = Waits::No;
        while !self.staging.is_empty() {
            let error = match socket.send(&self.staging) {
                Ok(sent) => {
                    for _ in 0..sent {
                        self.unwanted.passed(self.staging.pop());
                    }
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error().unwrap_or_default() {
                libc::EINTR => continue,
                libc::EAGAIN => self.waits = Waits::ForWritable,
                errno @ (libc::ENOBUFS | libc::ENOMEM) => {
                    if self.unwanted.is(self.staging.get(0), socket) {
                        self.lost.count(errno, self.staging.pop());
                        continue;
                    }
                    self.refused += 1;
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

    /// As [`crate::Port::wants_write`].
    pub(super) fn wants_write(&self) -> bool {
        self.waits == Waits::ForWritable
    }

    /// As [`crate::Port::retry_after`].
    pub(super) fn retry_after(&self) -> Option<Nanos> {
        match self.waits {
            Waits::For(span) => Some(span),
            Waits::No | Waits::ForWritable => None,
        }
    }

    /// The descriptor that tells of room, while it is open.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        let socket = self.socket.as_ref()?;
        Some(PollFd { fd: socket.fd(), read: false, write: true })
    }

    /// Frames that the kernel has not taken yet.
    pub(super) fn pending(&self) -> Amount {
        self.staging.amount()
    }

    /// Frames that the kernel refused for good.
    pub(super) fn lost(&self) -> &Losses {
        &self.lost
    }

    /// How often the kernel threw a frame away that was kept and sent again.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Closes the socket and gives up what is staged.
    pub(super) fn close(&mut self) {
        self.waits = Waits::No;
        self.staging.clear();
        self.socket = None;
    }
}
