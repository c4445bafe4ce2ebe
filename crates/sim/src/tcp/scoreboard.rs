//! Bytes that the peer holds beyond the cumulative acknowledgement (RFC 6675 clause 4).
//!
//! Ranges of bytes are kept sorted and apart. `IsLost` of clause 4 only ever turns true towards
//! lower offsets, so one number, the lost edge, stands for it: every byte below it that is not held
//! by the peer is lost. The peer does not discard bytes that it has acknowledged (no reneging, RFC
//! 2018 clause 8): a simulated receiver never does.

use super::recovery::Undo;

/// Duplicate acknowledgements, or ranges, that mean a loss (RFC 6675 clause 2).
pub(super) const DUP_THRESHOLD: u8 = 3;

/// The ranges that the peer holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    ranges: Vec<(u64, u64)>,
    /// State before a time-out that may be undone. It stands here because most endpoints have
    /// neither.
    pub(super) undo: Option<Undo>,
}

/// Values that follow from the scoreboard for the bytes in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Assessment {
    /// Edge below which bytes that are not held are lost.
    pub(super) lost_edge: u64,
    /// Bytes thought to be on their way (`pipe` of RFC 6675 clause 4).
    pub(super) pipe: u64,
}

/// The sender's variables that an assessment needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    pub(super) una: u64,
    pub(super) nxt: u64,
    /// Edge below which all bytes were retransmitted (`HighRxt`, as the byte after).
    pub(super) high_rxt: u64,
    /// Edge below which all bytes count as lost, because the timer expired.
    pub(super) lost_floor: u64,
    pub(super) mss: u64,
}

impl Outstanding {
    /// Returns the assessment of an empty scoreboard.
    pub(super) fn assess(&self) -> Assessment {
        let lost_edge = self.lost_floor.max(self.una);
        let high_rxt = self.high_rxt.clamp(self.una, self.nxt);
        Assessment { lost_edge, pipe: self.nxt.saturating_sub(lost_edge) + (high_rxt - self.una) }
    }
}

impl Scoreboard {
    /// Number of bytes that the peer holds out of order.
    pub(super) fn held(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Returns the byte after the highest one held, zero if there is none.
    pub(super) fn highest(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.1)
    }

    /// Notes that the peer holds `start..end`. Returns true if that is news.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return false;
        }
        // The ranges that touch the new one are `first..last`.
        let first = self.ranges.partition_point(|range| range.1 < start);
        let last = first + self.ranges[first..].partition_point(|range| range.0 <= end);
        if first == last {
            self.ranges.insert(first, (start, end));
            return true;
        }
        let merged = (start.min(self.ranges[first].0), end.max(self.ranges[last - 1].1));
        let news = last - first > 1 || merged != self.ranges[first];
        self.ranges[first] = merged;
        self.ranges.drain(first + 1..last);
        news
    }

    /// Forgets everything below `una`, which is acknowledged.
    pub(super) fn trim(&mut self, una: u64) {
        let gone = self.ranges.partition_point(|range| range.1 <= una);
        self.ranges.drain(..gone);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(una);
        }
    }

    /// Computes `IsLost` and `SetPipe` of RFC 6675 clause 4.
    pub(super) fn assess(&self, o: &Outstanding) -> Assessment {
        let lost_floor = self.lost_edge(o.mss).max(o.lost_floor);
        let Assessment { lost_edge, mut pipe } = Outstanding { lost_floor, ..*o }.assess();
        let high_rxt = o.high_rxt.max(o.una);
        for &(start, end) in &self.ranges {
            pipe -= end.max(lost_edge) - start.max(lost_edge);
            pipe -= end.min(high_rxt) - start.min(high_rxt);
        }
        Assessment { lost_edge, pipe }
    }

    /// Returns the start of the highest range that has, with the ranges above, enough ranges or
    /// bytes.
    fn lost_edge(&self, mss: u64) -> u64 {
        let mut bytes = 0;
        for (count, &(start, end)) in (1..).zip(self.ranges.iter().rev()) {
            bytes += end - start;
            if count >= DUP_THRESHOLD || bytes > u64::from(DUP_THRESHOLD - 1) * mss {
                return start;
            }
        }
        0
    }

    /// Returns the first bytes from `from` up to `limit` that are not held.
    pub(super) fn hole(&self, from: u64, limit: u64) -> Option<(u64, u64)> {
        let mut start = from;
        let first = self.ranges.partition_point(|range| range.1 <= from);
        for &(held, end) in &self.ranges[first..] {
            if start < held {
                return (start < limit).then_some((start, held.min(limit)));
            }
            start = end;
        }
        (start < limit).then_some((start, limit))
    }
}

#[cfg(test)]
mod tests;
