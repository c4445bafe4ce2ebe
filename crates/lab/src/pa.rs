//! Partition-Aggregate as processes: what the program, the aggregator and the workers say to each
//! other.
//!
//! ```text
//!  sluice lab run ──jobs, reports (JSON lines over pipes)── aggregator (container 0)
//!                                                              │ request: length, query
//!                                                              ▼ one TCP connection each
//!                                                           worker (every other container)
//! ```
//!
//! A worker answers a request at once with as many bytes as it asks for, the first eight of which
//! repeat the number of the query. A query ends with the last byte of the last answer.
//!
//! In a virtual machine one process is both, and more: it takes the jobs of the aggregator, and is
//! told to set the machine up, to answer requests, and to read the kernel's counters. It is talked
//! to over a serial port, never over the network that is measured.

pub(crate) mod aggregator;
pub(crate) mod echo;
mod flood;
pub(crate) mod processes;
pub(crate) mod socket;
pub(crate) mod worker;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;

/// The port that workers listen on.
pub(crate) const PORT: u16 = 5201;
/// A request: the length of the answer and the number of the query, little-endian.
pub(crate) const REQUEST_BYTES: usize = 16;
/// The head of an answer: the number of the query.
pub(crate) const HEAD_BYTES: usize = 8;
/// Socket buffers, large enough that no answer of a scenario ever waits for one.
pub(crate) const BUFFER_BYTES: usize = 4 << 20;

/// What the aggregator is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "lowercase")]
pub(crate) enum Job {
    /// Queries of one size.
    Cell(Cell),
    /// Fetch bytes from one container.
    Fetch {
        /// The container that sends.
        from: Ipv4Addr,
        /// How many.
        bytes: u64,
        /// The congestion control.
        congestion: String,
    },
    /// ICMP echo.
    Ping {
        /// The container that answers.
        to: Ipv4Addr,
        /// How many.
        count: u32,
    },
    /// Set this machine up.
    Prepare {
        /// Commands of `ip`.
        commands: Vec<String>,
        /// Settings of the kernel, as `net.ipv4.ip_forward`, with their values.
        settings: Vec<(String, String)>,
    },
    /// Answer requests, as a worker.
    Serve {
        /// Where it listens.
        address: Ipv4Addr,
        /// The congestion control of connections that come from now on.
        congestion: String,
    },
    /// Read the kernel's counters.
    Count,
    /// Read those of the card.
    Card,
    /// Send datagrams as fast as it goes.
    Flood {
        /// Where to.
        to: Ipv4Addr,
        /// The payload of each.
        bytes: u16,
        /// How long.
        milliseconds: u32,
    },
    /// Count datagrams that come.
    Sink,
    /// Say how many came since the last time, when no more come.
    Sunk,
}

/// Queries of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The workers, in the order of the first query.
    pub(crate) workers: Vec<Ipv4Addr>,
    /// Bytes of an answer.
    pub(crate) answer_bytes: u64,
    /// Queries before the first that counts.
    pub(crate) warm_up: u32,
    /// The most queries.
    pub(crate) queries: u32,
    /// The least, within three times the time.
    pub(crate) queries_min: u32,
    /// The time.
    pub(crate) seconds: f64,
    /// Between queries.
    pub(crate) gap_us: u32,
    /// The congestion control.
    pub(crate) congestion: String,
}

/// What the aggregator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "lowercase")]
pub(crate) enum Report {
    /// It takes jobs.
    Ready,
    /// So many queries are done; comes at most a few times a second.
    Progress {
        /// How many.
        queries: u32,
    },
    /// A cell is done.
    Cell {
        /// Completion time of every query.
        fct_ns: Vec<u64>,
        /// Why it ended before its time, if it did.
        broken: Option<String>,
    },
    /// The bytes are there.
    Fetch {
        /// How long it took.
        ns: u64,
    },
    /// The echoes that came back, with their times.
    Ping {
        /// One for each.
        rtt_ns: Vec<u64>,
    },
    /// What was to be done is done.
    Done,
    /// The counters, as [`crate::counters::read`] has them.
    Counted {
        /// What TCP repaired.
        repairs: Counters,
        /// What was lost.
        losses: Counters,
    },
    /// Frames that the card has received and sent.
    Card {
        /// Received.
        received: u64,
        /// Sent.
        sent: u64,
    },
    /// Datagrams that the kernel has taken.
    Flooded {
        /// How many.
        sent: u64,
    },
    /// Datagrams that the program has received.
    Sunk {
        /// How many.
        received: u64,
    },
    /// A job could not be done.
    Failed {
        /// Why.
        error: String,
    },
}

/// Payload of a full segment: the MTU without the headers of IPv4 and of TCP with timestamps.
pub(crate) const fn segment_bytes(mtu: u16) -> u64 {
    mtu as u64 - 52
}

#[cfg(test)]
mod tests;
