//! The way out of a device: frames are staged and sent by `sendmmsg` from a socket that receives
//! nothing. What the kernel does not take now stays staged, in order.
//!
//! **A frame that the device never takes** (larger than the far MTU of a veth pair, say) is refused
//! by the same error as one for which there is no room, and everything would wait behind it for
//! ever. The error does not tell them apart, the next frame does: if the device takes one that says
//! nothing and then refuses the first again, time after time, there is room and the frame is not
//! wanted. It ends, counted (`patience.rs`). That other frame is PFC that speaks of no priority:
//! nobody forwards it, and no order is broken by it.

use std::io;

use sluice_base::{Mac, Nanos, Priority, PriorityMask};
use sluice_switch::{Egress, Taken};
use sluice_wire::{mac_control, vlan};

use super::driver::frame_size_max;
use super::rings::TxSocket;
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::patience::Patience;
use crate::port::{Amount, Losses, PollFd};
use crate::staging::{NotStaged, Staging};

/// When the kernel had no room and will not say when it has, the time after which to try again.
const NO_ROOM_RETRY: Nanos = Nanos::from_micros(200);
/// When the device is down, the time after which to try again.
const DOWN_RETRY: Nanos = Nanos::from_millis(10);

/// How often a frame is refused before it is asked why: mostly there is no room for a moment.
const REFUSED_MIN: u32 = 8;
/// How often there must be room for another frame and not for this one, unless others were refused
/// for good just before: more than 50 ms. Somebody else may fill the last place between two calls
/// now and then, and of a device's several queues one may stand still alone, but not for longer
/// than any pause lasts by itself (33.6 ms at 1 Gbit/s).
const SIGNS_FULL: u32 = 250;

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
    patience: Patience,
}

/// What a refusal means.
enum Meaning {
    /// There may be no room.
    NoRoom,
    /// There was room for another frame: it is to be tried once more at once.
    Again,
    /// It is never taken.
    Never,
}

impl Unwanted {
    fn new(mac: Mac) -> Self {
        let mut probe = [0; mac_control::FRAME_SIZE];
        mac_control::Message::Pfc { enabled: PriorityMask::NONE, quanta: [0; 8] }
            .emit(mac, &mut probe);
        Self { probe, refused: 0, patience: Patience::new(SIGNS_FULL) }
    }

    /// A frame left.
    #[inline]
    fn passed(&mut self) {
        self.refused = 0;
        self.patience.passed();
    }

    /// A frame was refused for want of room: whether that is so.
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
                self.lost.refuse(libc::EMSGSIZE, frame.priority, frame_size(frame));
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

    /// As [`crate::Port::take_refused`].
    #[inline]
    pub(super) fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
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
