//! The bounded ring between two sides, and the descriptors they wake each other with.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::EventfdFlags;

/// Frames in one direction.
#[derive(Debug, Default)]
pub(super) struct Ring {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    limit: usize,
    waiting_max: usize,
    /// Somebody found it full and waits.
    starved: bool,
    /// The reader's side is gone: nobody will ever read.
    closed: bool,
}

impl Ring {
    fn new(limit: usize, frame_size_max: usize) -> Self {
        Self {
            frames: VecDeque::with_capacity(limit),
            spare: (0..limit).map(|_| Vec::with_capacity(frame_size_max)).collect(),
            limit,
            ..Self::default()
        }
    }

    /// Copies a frame in; false if the ring is full or closed.
    pub(super) fn push(&mut self, header: &[u8], payload: &[u8]) -> bool {
        if self.frames.len() == self.limit || self.closed {
            self.starved = true;
            return false;
        }
        let mut frame = self.spare.pop().expect("a spare for each free place");
        frame.clear();
        frame.extend_from_slice(header);
        frame.extend_from_slice(payload);
        self.frames.push_back(frame);
        self.waiting_max = self.waiting_max.max(self.frames.len());
        true
    }

    /// The first frame.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(Vec::as_slice)
    }

    /// Takes the first frame away. True if somebody waits for the room.
    pub(super) fn pop(&mut self) -> bool {
        if let Some(frame) = self.frames.pop_front() {
            self.spare.push(frame);
        }
        std::mem::take(&mut self.starved)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    pub(super) fn waiting_max(&self) -> usize {
        self.waiting_max
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }
}

/// A ring that two sides hold.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Ring>>);

impl Shared {
    pub(super) fn new(limit: usize, frame_size_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Ring::new(limit, frame_size_max))))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ring> {
        // A panic of the other side leaves a ring that is still whole.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A descriptor that one side waits on and the other side kicks.
#[derive(Clone, Debug)]
pub(super) struct Bell(Arc<OwnedFd>);

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        Ok(Self(Arc::new(rustix::event::eventfd(0, flags)?)))
    }

    /// Wakes who waits on it.
    pub(super) fn ring(&self) {
        // It fails only when 2^64 - 2 kicks wait to be read, and then it is readable anyway.
        let _full = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
