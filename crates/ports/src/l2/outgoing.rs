//! The way out of a device: frames are staged and sent by `sendmmsg` from a socket that receives
//! nothing. What the kernel does not take now stays staged, in order.

use std::io;

use sluice_base::Nanos;
use sluice_switch::{Egress, Taken};
use sluice_wire::vlan;

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
    finisher: Finisher,
}

impl Outgoing {
    /// Out of the device of this index.
    pub(super) fn open(device: &str, index: u32, mtu: u16) -> Result<Self, OpenError> {
        let failed = OpenError::device(device, "open a socket to send on it");
        Ok(Self {
            socket: Some(TxSocket::open(index).map_err(failed)?),
            staging: Staging::new(frame_size_max(mtu)),
            waits: Waits::No,
            lost: Losses::default(),
            refused: 0,
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
