//! Messages of any size to a peer and from it, in fragments.
//!
//! ```text
//!   send ──> waiting ── cut as there is room ──> window ── FragmentAck ──> gone
//!   fragments of the peer ── in order ──> assembly ── last byte ──> received
//! ```
//!
//! **Best effort.** A message arrives whole, once and in its order, or not at all. The end of the
//! connection loses all messages that wait or are under way, in both directions; no side tells the
//! other which they were.
//!
//! **Bounds.** A message has at most [`MESSAGE_SIZE_MAX`] bytes; [`WAITING_MAX`] messages and
//! [`WAITING_BYTES_MAX`] bytes may wait. Of the peer there is one unfinished message, whose memory
//! grows with the bytes received, and whole ones of one window. A peer that ignores its window is
//! disconnected.
//!
//! **Turns.** Fragments go before claims, and take at most half of a write while claims wait
//! ([`Fragments::share`]). Holds go before both, behind one window of fragments at most
//! ([`FRAGMENT_WINDOW`]).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use sluice_wire::fabric::{
    FRAGMENT_SIZE_MIN, FRAGMENT_WINDOW, Fragment, MESSAGE_SIZE_MAX, Message,
};

use super::Error;

/// Messages that may wait for one peer.
pub const WAITING_MAX: usize = 256;
/// Bytes of messages that may wait for one peer.
pub const WAITING_BYTES_MAX: usize = 2 * MESSAGE_SIZE_MAX;

/// Bytes of a message for which a frame is worthwhile, unless they are its last ones.
const BYTES_MIN: usize = 64;
/// Room for any such frame.
const ROOM_MIN: usize = FRAGMENT_SIZE_MIN + BYTES_MIN;

/// Reason why a message is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SendError {
    /// There is no connection to the host.
    NotConnected,
    /// The host runs a version that takes no messages.
    TooOld,
    /// Too many messages, or too many bytes, wait for the host.
    Busy,
    /// The message is larger than [`MESSAGE_SIZE_MAX`].
    TooBig,
    /// The message has no bytes.
    Empty,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConnected => f.write_str("there is no connection to it"),
            Self::TooOld => f.write_str("its version takes no configuration; update it"),
            Self::Busy => f.write_str("too many messages wait for it"),
            Self::TooBig => write!(f, "the message is larger than {MESSAGE_SIZE_MAX} B"),
            Self::Empty => f.write_str("the message is empty"),
        }
    }
}

impl core::error::Error for SendError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Down,
    /// A connection to a peer that takes no messages.
    Old,
    Up,
}

/// The message of the peer that is not whole yet.
#[derive(Debug)]
struct Assembly {
    total: usize,
    bytes: Vec<u8>,
}

/// Messages to a peer and from it.
#[derive(Debug)]
pub(super) struct Fragments {
    line: Line,
    /// Messages to be sent. The first may be sent in part.
    waiting: VecDeque<Arc<[u8]>>,
    waiting_bytes: usize,
    /// Number of the first message that waits.
    message: u32,
    /// Bytes of it that were sent.
    offset: usize,
    /// Size of the frames sent on this connection, and of those acknowledged.
    sent: u64,
    acked: u64,
    /// True if claims were before fragments in the last write without room for both.
    claims_went_first: bool,
    /// Messages of the peer that were received whole, or begun.
    begun: u32,
    assembly: Option<Assembly>,
    /// Size of the frames taken on this connection, and of those that the peer was told of.
    taken: u64,
    told: u64,
    received: VecDeque<Vec<u8>>,
}

impl Fragments {
    pub(super) const fn new() -> Self {
        Self {
            line: Line::Down,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            message: 1,
            offset: 0,
            sent: 0,
            acked: 0,
            claims_went_first: false,
            begun: 0,
            assembly: None,
            taken: 0,
            told: 0,
            received: VecDeque::new(),
        }
    }

    /// Notes a connection, on which both sides have greeted. `knows`: the peer's version takes
    /// messages.
    pub(super) fn up(&mut self, knows: bool) {
        self.down();
        self.line = if knows { Line::Up } else { Line::Old };
    }

    /// Notes the end of the connection. Messages that were received whole stay.
    pub(super) fn down(&mut self) {
        let received = core::mem::take(&mut self.received);
        *self = Self { received, ..Self::new() };
    }

    /// Returns true if the peer is connected and takes messages.
    pub(super) fn is_up(&self) -> bool {
        self.line == Line::Up
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: Arc<[u8]>) -> Result<(), SendError> {
        match self.line {
            Line::Down => return Err(SendError::NotConnected),
            Line::Old => return Err(SendError::TooOld),
            Line::Up => {}
        }
        if message.is_empty() {
            return Err(SendError::Empty);
        }
        if message.len() > MESSAGE_SIZE_MAX {
            return Err(SendError::TooBig);
        }
        if self.waiting.len() == WAITING_MAX
            || self.waiting_bytes + message.len() > WAITING_BYTES_MAX
        {
            return Err(SendError::Busy);
        }
        self.waiting_bytes += message.len();
        self.waiting.push_back(message);
        Ok(())
    }

    /// Takes a fragment of the peer.
    ///
    /// # Errors
    /// It does not follow the one before it, or is beyond a bound.
    pub(super) fn take(&mut self, fragment: &Fragment<'_>) -> Result<(), Error> {
        let Fragment { message, total, offset, bytes } = *fragment;
        let (total, offset) = (size_of_number(total), size_of_number(offset));
        let has = self.assembly.as_ref().map_or(0, |assembly| assembly.bytes.len());
        let number = self.begun.wrapping_add(u32::from(self.assembly.is_none()));
        let same = self.assembly.as_ref().is_none_or(|assembly| assembly.total == total);
        let fits = total <= MESSAGE_SIZE_MAX && bytes.len() <= total.saturating_sub(offset);
        if (message, offset) != (number, has) || !same || !fits || bytes.is_empty() {
            let (message, offset) = (fragment.message, fragment.offset);
            return Err(Error::WrongFragment { message, offset });
        }
        self.taken += frame_size(bytes.len());
        if self.taken - self.told > FRAGMENT_WINDOW as u64 {
            return Err(Error::FragmentFlood { waiting: self.taken - self.told });
        }
        self.begun = number;
        let mut assembly =
            self.assembly.take().unwrap_or_else(|| Assembly { total, bytes: Vec::new() });
        assembly.bytes.extend_from_slice(bytes);
        if assembly.bytes.len() == total {
            self.received.push_back(assembly.bytes);
        } else {
            self.assembly = Some(assembly);
        }
        Ok(())
    }

    /// Takes an acknowledgement of the peer.
    ///
    /// # Errors
    /// It goes back, or acknowledges what was not sent.
    pub(super) fn acked(&mut self, taken: u64) -> Result<(), Error> {
        if !(self.acked..=self.sent).contains(&taken) {
            return Err(Error::WrongFragmentAck { taken, sent: self.sent });
        }
        self.acked = taken;
        Ok(())
    }

    #[cfg(test)]
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the next message of the peer.
    pub(super) fn received(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }

    pub(super) const fn ack_owed(&self) -> bool {
        self.told < self.taken
    }

    /// Returns the content of the acknowledgement that is owed.
    pub(super) const fn take_ack(&mut self) -> u64 {
        self.told = self.taken;
        self.taken
    }

    fn window(&self) -> usize {
        let under_way = usize::try_from(self.sent - self.acked).unwrap_or(usize::MAX);
        FRAGMENT_WINDOW.saturating_sub(under_way)
    }

    /// Returns the smallest frame that may be written next; `None` if there is none.
    fn next_min(&self) -> Option<usize> {
        let left = self.waiting.front()?.len() - self.offset;
        let size = FRAGMENT_SIZE_MIN + left.min(BYTES_MIN);
        (size <= self.window()).then_some(size)
    }

    /// Returns true if a fragment is to be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.next_min().is_some()
    }

    /// Returns the part of a budget that fragments may take before claims: half of it while claims
    /// wait, or all and nothing in turn where half of it has no room for a fragment.
    pub(super) fn share(&mut self, budget: usize, claims_wait: bool) -> usize {
        if !claims_wait || budget / 2 >= ROOM_MIN {
            return if claims_wait { budget / 2 } else { budget };
        }
        if !self.is_ready() {
            return 0;
        }
        self.claims_went_first = !self.claims_went_first;
        if self.claims_went_first { 0 } else { budget }
    }

    /// Appends fragments to `out`, up to `budget` bytes.
    pub(super) fn write(&mut self, budget: usize, out: &mut Vec<u8>) {
        let start = out.len();
        while let Some(min) = self.next_min() {
            let room = self.window().min(budget - (out.len() - start));
            if room < min {
                return;
            }
            let Some(message) = self.waiting.front() else { return };
            let left = &message[self.offset..];
            let bytes = &left[..left.len().min(room - FRAGMENT_SIZE_MIN)];
            let fragment = Fragment {
                message: self.message,
                total: number_of_size(message.len()),
                offset: number_of_size(self.offset),
                bytes,
            };
            let at = out.len();
            out.resize(at + fragment.frame_size(), 0);
            Message::Fragment(fragment).emit(&mut out[at..]);
            self.sent += frame_size(bytes.len());
            self.offset += bytes.len();
            if self.offset == message.len() {
                self.waiting_bytes -= message.len();
                self.waiting.pop_front();
                (self.message, self.offset) = (self.message.wrapping_add(1), 0);
            }
        }
    }
}

fn frame_size(bytes: usize) -> u64 {
    (FRAGMENT_SIZE_MIN + bytes) as u64
}

fn number_of_size(size: usize) -> u32 {
    u32::try_from(size).expect("checked: at most 16 MiB")
}

fn size_of_number(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
