//! Moves on purpose: at a fixed interval one bucket goes to its next core, regardless of placement.
//! It shows the cost of moves on a host, and that they lose no packets there.

use std::time::{Duration, Instant};

use crate::xdp::Program;

/// Maximum of moves made up for at once, if this process was kept from its core.
const BEHIND_MAX: u32 = 100;

/// State of the drill.
#[derive(Debug)]
pub(crate) struct Drill {
    every: Duration,
    next: Instant,
    cores: Vec<u16>,
    /// Index of the last core of each bucket.
    sent_to: Vec<usize>,
    cursor: usize,
    /// Number of moves ordered.
    ordered: u64,
}

impl Drill {
    /// Makes a drill of this number of buckets, between these cores.
    pub(crate) fn new(every: Duration, cores: Vec<u16>, buckets: u32) -> Self {
        let sent_to = vec![0; buckets as usize];
        Self { every, next: Instant::now() + every, cores, sent_to, cursor: 0, ordered: 0 }
    }

    /// Time of the next move.
    pub(crate) fn due(&self) -> Instant {
        self.next
    }

    pub(crate) fn ordered(&self) -> u64 {
        self.ordered
    }

    /// Orders the moves that are due, of placed buckets.
    pub(crate) fn turn(
        &mut self,
        program: &mut Program,
        is_placed: impl Fn(u32) -> bool,
    ) -> anyhow::Result<()> {
        let now = Instant::now();
        if now > self.next + self.every * BEHIND_MAX {
            self.next = now;
        }
        while self.next <= now {
            self.next += self.every;
            let Some((bucket, core)) = self.pick(&is_placed) else { continue };
            program.want(bucket, core)?;
            self.ordered += 1;
        }
        Ok(())
    }

    /// Returns the next placed bucket, and its next core.
    fn pick(&mut self, is_placed: impl Fn(u32) -> bool) -> Option<(u32, u16)> {
        let count = self.sent_to.len();
        let at = (1..=count)
            .map(|step| (self.cursor + step) % count)
            .find(|at| u32::try_from(*at).is_ok_and(&is_placed))?;
        self.cursor = at;
        let to = &mut self.sent_to[at];
        *to = (*to + 1) % self.cores.len();
        Some((u32::try_from(at).ok()?, self.cores[*to]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drill_moves_placed_buckets_round_robin_between_cores() {
        let mut drill = Drill::new(Duration::from_millis(1), vec![3, 5], 8);
        assert_eq!(drill.pick(|_| false), None);
        let picked: Vec<_> = (0..6).filter_map(|_| drill.pick(|at| at % 3 == 1)).collect();
        assert_eq!(picked, [(1, 5), (4, 5), (7, 5), (1, 3), (4, 3), (7, 3)]);
    }
}
