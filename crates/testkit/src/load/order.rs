//! Order check of the frames of one flow, by their sequence numbers.
//!
//! A number beyond the next one leaves a gap. A number before it that fills a gap was overtaken;
//! one that fills no gap came twice. The last [`GAPS_MAX`] gaps are remembered; a frame that fills
//! an older one counts as duplicated. Numbers wrap; half of them is the farthest jump.

use std::collections::VecDeque;

/// Number of gaps that are remembered.
pub const GAPS_MAX: usize = 1024;

/// The receiver's side of a flow.
#[derive(Clone, Debug, Default)]
pub struct Order {
    next: u32,
    /// First number of each gap, and its length.
    gaps: VecDeque<(u32, u32)>,
    /// Frames that came after one with a higher number.
    pub reordered: u64,
    /// Frames that came twice.
    pub duplicated: u64,
    /// Frames that came at all, duplicates included.
    pub frames: u64,
}

impl Order {
    /// Records one frame.
    #[inline]
    pub fn see(&mut self, sequence: u32) {
        self.frames += 1;
        if sequence == self.next {
            self.next = sequence.wrapping_add(1);
        } else {
            self.unexpected(sequence);
        }
    }

    fn unexpected(&mut self, sequence: u32) {
        let ahead = sequence.wrapping_sub(self.next);
        if ahead < u32::MAX / 2 {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back((self.next, ahead));
            self.next = sequence.wrapping_add(1);
            return;
        }
        let is_in = |&(first, count): &(u32, u32)| sequence.wrapping_sub(first) < count;
        let Some(index) = self.gaps.iter().rposition(is_in) else {
            self.duplicated += 1;
            return;
        };
        self.reordered += 1;
        let (first, count) = self.gaps[index];
        let before = sequence.wrapping_sub(first);
        let after = count - before - 1;
        self.gaps[index].1 = before;
        if after > 0 {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back((sequence.wrapping_add(1), after));
        }
    }
}
