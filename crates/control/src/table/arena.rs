//! Places of one size in chunks. A place does not move while it is taken, so that its number names
//! it. Growth takes one chunk more and copies nothing but the list of chunks.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// No place.
pub(super) const NONE: u32 = u32::MAX;

/// Places of one chunk: at 72 bytes each, 18 memory pages that the kernel has to clear at once.
const CHUNK: u32 = 1024;

/// Content of a place. A free place keeps the number of the next free one in itself.
pub(super) trait Item: Copy {
    /// Returns the word that holds the next free place.
    fn free_link(&mut self) -> &mut u32;
}

/// The places.
#[derive(Debug)]
pub(super) struct Arena<T> {
    chunks: Vec<Box<[T]>>,
    /// Places that were taken at least once.
    touched: u32,
    free: u32,
    count: u32,
}

impl<T: Item> Arena<T> {
    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), touched: 0, free: NONE, count: 0 }
    }

    /// Takes a place for `item`. The caller bounds the number of places, below [`NONE`].
    pub(super) fn take(&mut self, mut item: T) -> u32 {
        self.count += 1;
        if self.free != NONE {
            let at = self.free;
            self.free = *self[at].free_link();
            self[at] = item;
            return at;
        }
        let at = self.touched;
        assert!(at < NONE, "numbers of places are bounded by the caller");
        if at.is_multiple_of(CHUNK) {
            *item.free_link() = NONE;
            self.chunks.push(vec![item; CHUNK as usize].into_boxed_slice());
        }
        self.touched += 1;
        self[at] = item;
        at
    }

    /// Gives a place back.
    pub(super) fn give(&mut self, at: u32) {
        let free = self.free;
        *self[at].free_link() = free;
        self.free = at;
        self.count -= 1;
    }

    /// Number of places that are taken.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Number of bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        let chunks = self.chunks.len() * CHUNK as usize * size_of::<T>();
        chunks + self.chunks.capacity() * size_of::<Box<[T]>>()
    }
}

impl<T> Index<u32> for Arena<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.chunks[(at / CHUNK) as usize][(at % CHUNK) as usize]
    }
}

impl<T> IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.chunks[(at / CHUNK) as usize][(at % CHUNK) as usize]
    }
}
