//! Records of frames whose handles are out.
//!
//! Handles point at records while others are written, so records are accessed by pointer, one at a
//! time, and never as a slice. The record that was given back last is taken next: it is in cache,
//! and the number of records in use stays as small as the number of handles that are out.

use std::ptr::NonNull;

use crate::frame::{More, Record};

/// A record for each descriptor of a ring.
#[derive(Debug)]
pub(super) struct Records {
    base: NonNull<Record>,
    count: u16,
    /// Second part of each record, if frames may be unfinished.
    mores: Option<NonNull<More>>,
    /// Records without a handle, the last one on top.
    free: Vec<u16>,
    /// True for each head whose chain has a handle out.
    is_out: Vec<bool>,
}

// SAFETY: records are plain data, and one thread at a time has them.
unsafe impl Send for Records {}

impl Records {
    pub(super) fn new(count: u16, with_more: bool) -> Self {
        let leak = || {
            let mores: Box<[More]> = (0..count).map(|_| More::EMPTY).collect();
            NonNull::from(Box::leak(mores)).cast::<More>()
        };
        let mores = with_more.then(leak);
        let record = |at: u16| Record {
            // SAFETY: there is one for each record.
            more: mores.map_or(NonNull::dangling(), |mores| unsafe { mores.add(at.into()) }),
            ..Record::EMPTY
        };
        let records: Box<[Record]> = (0..count).map(record).collect();
        let base = NonNull::from(Box::leak(records)).cast();
        let is_out = vec![false; count.into()];
        Self { base, count, mores, free: (0..count).rev().collect(), is_out }
    }

    /// Returns true if the chain of a head has a handle out.
    #[inline]
    pub(super) fn has(&self, head: u16) -> bool {
        self.is_out[usize::from(head)]
    }

    /// Number of handles that are out.
    pub(super) const fn out(&self) -> u16 {
        // There are no more than `count`.
        #[expect(clippy::cast_possible_truncation, reason = "at most `count`")]
        let free = self.free.len() as u16;
        self.count - free
    }

    /// Returns the record to be taken next, for writing, and its number.
    ///
    /// # Panics
    /// If the chain of every head has its handle out.
    #[inline]
    pub(super) fn next(&mut self) -> (u16, &mut Record) {
        let &number = self.free.last().expect("a record for each head");
        // SAFETY: a number below the count; its handle is not out, so nobody looks at it, and
        // `self` is borrowed for as long.
        (number, unsafe { self.at(number).as_mut() })
    }

    /// Returns the record to be taken next, and its second part.
    ///
    /// # Panics
    /// As [`Self::next`], and if frames are always finished.
    pub(super) fn next_with_more(&mut self) -> (&mut Record, &mut More) {
        assert!(self.mores.is_some(), "unfinished frames were not agreed on");
        let (_, record) = self.next();
        let mut more = record.more;
        // SAFETY: it is there, and as much nobody's as the record is.
        (record, unsafe { more.as_mut() })
    }

    /// Takes the next record for the chain of a head; returns it with its number.
    #[inline]
    pub(super) fn take(&mut self, head: u16) -> (u16, NonNull<Record>) {
        let (number, record) = self.next();
        record.chain = head;
        self.free.pop();
        self.is_out[usize::from(head)] = true;
        (number, self.at(number))
    }

    /// Takes back the handle of a record. Returns the head of its chain.
    ///
    /// # Panics
    /// If it was not out.
    #[inline]
    pub(super) fn give_back(&mut self, number: u16) -> u16 {
        assert!(number < self.count, "no record has this number");
        // SAFETY: below the count; the holder of the handle only read, and so does this.
        let head = unsafe { self.at(number).as_ref() }.chain;
        let is_out = std::mem::replace(&mut self.is_out[usize::from(head)], false);
        assert!(is_out, "a handle came back twice");
        self.free.push(number);
        head
    }

    #[inline]
    fn at(&self, number: u16) -> NonNull<Record> {
        // SAFETY: numbers are below the count.
        unsafe { self.base.add(number.into()) }
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        // Memory behind a handle is never freed.
        if self.out() == 0 {
            let all = NonNull::slice_from_raw_parts(self.base, self.count.into());
            // SAFETY: they came out of a box of that size, and nobody else points at them.
            drop(unsafe { Box::from_raw(all.as_ptr()) });
            if let Some(mores) = self.mores {
                let all = NonNull::slice_from_raw_parts(mores, self.count.into());
                // SAFETY: likewise.
                drop(unsafe { Box::from_raw(all.as_ptr()) });
            }
        }
    }
}
