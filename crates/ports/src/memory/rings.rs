//! The bounded ring between two sides.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

/// Frames in one direction.
#[derive(Debug, Default)]
pub(super) struct Ring {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    limit: usize,
    waiting_max: usize,
    /// True if a sender found it full and waits.
    starved: bool,
    /// True if the reader's side is gone: nobody will ever read.
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

    /// Adds a frame that `write` fills in; false if the ring is full or closed.
    pub(super) fn push(&mut self, size: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.frames.len() == self.limit || self.closed {
            self.starved = true;
            return false;
        }
        let mut frame = self.spare.pop().expect("a spare for each free place");
        frame.resize(size, 0);
        write(&mut frame);
        self.frames.push_back(frame);
        self.waiting_max = self.waiting_max.max(self.frames.len());
        true
    }

    /// The first frame.
    pub(super) fn front(&self) -> Option<&[u8]> {
        self.frames.front().map(Vec::as_slice)
    }

    /// Removes the first frame. Returns true if a sender waits for the room.
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
        // A panic of the other side leaves the ring intact.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
