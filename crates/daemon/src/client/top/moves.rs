//! Places of ports and buckets, and moves to another worker between two pictures.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_api::show::PlacementRow;

use super::WorkerNow;

/// A port, or buckets of one, that moved to another worker for the same reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MovedNow {
    /// Name of the port.
    pub port: String,
    /// Number of its buckets that moved; 0: the port itself.
    pub buckets: usize,
    /// The worker before.
    pub from: u16,
    /// The worker now.
    pub to: u16,
    /// Reason of the move.
    pub why: String,
}

/// Returns the number of ports and buckets of a worker.
pub(super) fn of_worker(worker: usize, rows: &[PlacementRow]) -> WorkerNow {
    let rows = || rows.iter().filter(|row| row.worker.is_some_and(|of| usize::from(of) == worker));
    let buckets = |row: &PlacementRow| row.buckets.as_ref().map_or(0, |of| of.list.len());
    WorkerNow {
        ports: rows().filter(|row| row.buckets.is_none()).count(),
        buckets: rows().map(buckets).sum(),
        ..WorkerNow::default()
    }
}

/// Worker and reason, by port and bucket. A port itself has no bucket.
type Places<'a> = BTreeMap<(&'a str, Option<u16>), (u16, &'a str)>;

fn places(rows: &[PlacementRow]) -> Places<'_> {
    let mut places = Places::new();
    for row in rows {
        let Some(worker) = row.worker else { continue };
        let mut put = |bucket| places.insert((&row.port, bucket), (worker, &row.why));
        match &row.buckets {
            Some(buckets) => buckets.list.iter().for_each(|bucket| _ = put(Some(*bucket))),
            None => _ = put(None),
        }
    }
    places
}

/// Returns the moves to another worker. A new port or bucket has not moved.
pub(super) fn between(before: &[PlacementRow], after: &[PlacementRow]) -> Vec<MovedNow> {
    let before = places(before);
    let mut moved: BTreeMap<(&str, bool, u16, u16, &str), usize> = BTreeMap::new();
    for ((port, bucket), (to, why)) in places(after) {
        let Some((from, _)) = before.get(&(port, bucket)) else { continue };
        if *from != to {
            *moved.entry((port, bucket.is_some(), *from, to, why)).or_default() += 1;
        }
    }
    let row = |((port, of_it, from, to, why), count): ((&str, bool, u16, u16, &str), usize)| {
        let buckets = if of_it { count } else { 0 };
        MovedNow { port: port.to_owned(), buckets, from, to, why: why.to_owned() }
    };
    moved.into_iter().map(row).collect()
}
