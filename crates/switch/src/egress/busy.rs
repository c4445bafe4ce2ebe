//! Ports that may have something to send, a bit each: a worker walks these instead of all ports.

use alloc::boxed::Box;
use alloc::vec;

/// Set of port numbers.
#[derive(Debug)]
pub(crate) struct BusyPorts(Box<[u64]>);

impl BusyPorts {
    /// Creates an empty set for so many ports.
    pub(crate) fn new(ports: usize) -> Self {
        Self(vec![0; ports.div_ceil(64)].into())
    }

    #[inline]
    pub(crate) fn insert(&mut self, port: usize) {
        self.0[port / 64] |= 1 << (port % 64);
    }

    #[inline]
    pub(crate) fn remove(&mut self, port: usize) {
        self.0[port / 64] &= !(1 << (port % 64));
    }

    /// Returns true if a port is in the set. A port that is not there is not in it.
    #[inline]
    pub(crate) fn contains(&self, port: usize) -> bool {
        self.0.get(port / 64).is_some_and(|bits| bits >> (port % 64) & 1 == 1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Returns the first port of the set from `from` on.
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = *self.0.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.0.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_walked_in_order_across_words() {
        let mut busy = BusyPorts::new(200);
        assert!(busy.is_empty() && busy.next(0).is_none());
        for port in [199, 0, 63, 64, 130] {
            busy.insert(port);
        }
        let walk = core::iter::successors(busy.next(0), |port| busy.next(port + 1));
        assert_eq!(walk.collect::<vec::Vec<_>>(), [0, 63, 64, 130, 199]);
        busy.remove(63);
        assert!(busy.contains(64) && !busy.contains(63) && !busy.contains(5_000));
        assert_eq!(busy.next(1), Some(64));
        assert_eq!(busy.next(5_000), None, "no such port");
    }
}
