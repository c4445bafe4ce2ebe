//! Rows about receivers that do not take what comes: ports, and UDP sockets behind them.
//!
//! A receiver that is over its share, and takes some, is slow: its senders are held, as a lossless
//! network does. One that takes nothing for [`PATIENCE_NS`] is named with a warning, and so is one
//! whose hold contract is over.

use std::collections::BTreeMap;

use sluice_api::doctor::Row;
use sluice_api::show::{Body, PauseRow};
use sluice_api::trace::Grade;

use super::{few, lasted};
use crate::metrics::DataAnswers;

/// Time without a frame taken after which a receiver is not slow but held.
const PATIENCE_NS: u64 = 1_000_000_000;

/// State of a receiver; the later, the graver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    /// It takes less than what comes.
    Slow,
    /// It takes nothing, and its senders are held.
    Held,
    /// It takes nothing, and its hold contract is over.
    Stuck,
}

pub(super) fn rows(data: &DataAnswers) -> Vec<Row> {
    let Body::Pauses(rows) = &data.pauses.body else { return Vec::new() };
    let now_ns = data.pauses.at_ns;
    let all = [of_ports(now_ns, rows), of_sockets(now_ns, rows)].concat();
    let names = |state| -> Vec<String> {
        all.iter().filter(|(of, _)| *of == state).map(|(_, name)| name.clone()).collect()
    };
    let row = |seen: String| Row::pass("ports", "receivers", seen);
    let stuck = "Look at what does not read there. Its frames end as `receiver_stuck` until it \
                 takes one; those of others go on.";
    let held = "Look at what does not read there. Its senders are held, and nobody else.";
    let mut graver: Vec<Row> = [("stuck", State::Stuck, stuck), ("held", State::Held, held)]
        .into_iter()
        .map(|(word, state, remedy)| (word, names(state), remedy))
        .filter(|(_, names, _)| !names.is_empty())
        .map(|(word, names, remedy)| {
            row(format!("{word}: {}", few(&names, "; "))).but(Grade::Warn, remedy)
        })
        .collect();
    let slow = names(State::Slow);
    match (slow.is_empty(), graver.is_empty()) {
        (true, true) => graver.push(row("all take what comes".to_owned())),
        (true, false) => {}
        (false, _) => graver.push(row(format!("slow: {}", few(&slow, "; ")))),
    }
    graver
}

/// Returns the ports that do not take what comes. A port is one receiver, on several priorities.
fn of_ports(now_ns: u64, rows: &[PauseRow]) -> Vec<(State, String)> {
    let mut by_port: BTreeMap<&str, Vec<&PauseRow>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.isolated.is_some()) {
        by_port.entry(&row.port).or_default().push(row);
    }
    by_port.into_iter().map(|(port, rows)| of_port(now_ns, port, &rows)).collect()
}

/// Names a port: `web priority 0, 3 for 4.2 s, waiting: h2`.
fn of_port(now_ns: u64, port: &str, rows: &[&PauseRow]) -> (State, String) {
    let isolations = || rows.iter().filter_map(|row| row.isolated.as_ref());
    let moved_ns = isolations().map(|isolation| isolation.moved_ns).max().unwrap_or(now_ns);
    let state = if isolations().any(|isolation| isolation.stuck) {
        State::Stuck
    } else if now_ns.saturating_sub(moved_ns) >= PATIENCE_NS {
        State::Held
    } else {
        State::Slow
    };
    let priorities: Vec<String> = rows.iter().map(|row| row.priority.to_string()).collect();
    let since_ns = isolations().map(|isolation| isolation.since_ns).min().unwrap_or(now_ns);
    let priorities = priorities.join(", ");
    let time = lasted(now_ns.saturating_sub(since_ns));
    let mut text = format!("{port} priority {priorities} for {time}");
    let mut waiting: Vec<String> =
        isolations().flat_map(|isolation| isolation.waiting.iter().cloned()).collect();
    waiting.sort_unstable();
    waiting.dedup();
    if !waiting.is_empty() {
        text += &format!(", waiting: {}", few(&waiting, ", "));
    }
    (state, text)
}

/// Returns the UDP sockets that have no room. One that takes some is held for long, too: that it
/// takes nothing shows at the end of its contract only.
fn of_sockets(now_ns: u64, rows: &[PauseRow]) -> Vec<(State, String)> {
    let sockets = rows.iter().flat_map(|row| row.sockets.iter().map(|socket| (&row.port, socket)));
    sockets
        .map(|(port, socket)| {
            let state = if socket.stuck { State::Stuck } else { State::Slow };
            let time = lasted(now_ns.saturating_sub(socket.since_ns));
            (state, format!("socket {} behind {port} for {time}", socket.address))
        })
        .collect()
}
