//! Partition-Aggregate as processes, and the messages between the program, the aggregator and the
//! workers.
//!
//! ```text
//!  sluice lab run ──jobs, reports (JSON lines over pipes)── aggregator (container 0)
//!                                                              │ request: length, query
//!                                                              ▼ one TCP connection each
//!                                                           worker (every other container)
//! ```
//!
//! A worker answers a request at once, with as many bytes as the request asks for. The first eight
//! bytes of an answer repeat the number of the query. A query ends with the last byte of the last
//! answer.
//!
//! In a virtual machine one process is both aggregator and worker. It takes the jobs of the
//! aggregator, and further jobs: to set the machine up, to answer requests, and to read the
//! kernel's counters. It is controlled over a serial port, never over the measured network.

pub(crate) mod aggregator;
pub(crate) mod echo;
mod flood;
pub(crate) mod processes;
pub(crate) mod socket;
pub(crate) mod worker;

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::counters::Counters;

/// TCP port of the workers.
pub(crate) const PORT: u16 = 5201;
/// Size of a request: the length of the answer and the number of the query, little-endian.
pub(crate) const REQUEST_BYTES: usize = 16;
/// Size of the head of an answer: the number of the query.
pub(crate) const HEAD_BYTES: usize = 8;
/// Socket buffers, large enough that no answer of a scenario ever waits for one.
pub(crate) const BUFFER_BYTES: usize = 4 << 20;

/// A job of the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "job", rename_all = "lowercase")]
pub(crate) enum Job {
    /// Queries of one size.
    Cell(Cell),
    /// Fetch bytes from one container.
    Fetch {
        /// The container that sends.
        from: Ipv4Addr,
        /// Number of bytes.
        bytes: u64,
        /// The congestion control.
        congestion: String,
    },
    /// ICMP echo.
    Ping {
        /// The container that answers.
        to: Ipv4Addr,
        /// Number of echo requests.
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
        /// The address to listen on.
        address: Ipv4Addr,
        /// The congestion control of new connections.
        congestion: String,
    },
    /// Read the kernel's counters.
    Count,
    /// Read the counters of the card.
    Card,
    /// Send datagrams as fast as possible.
    Flood {
        /// The destination.
        to: Ipv4Addr,
        /// Payload of each datagram.
        bytes: u16,
        /// Duration.
        milliseconds: u32,
    },
    /// Count received datagrams.
    Sink,
    /// Report the datagrams received since the last report, once no more arrive.
    Sunk,
}

/// Queries of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The workers, in the order of the first query.
    pub(crate) workers: Vec<Ipv4Addr>,
    /// Bytes of an answer.
    pub(crate) answer_bytes: u64,
    /// Queries before the first that counts (the warm-up).
    pub(crate) warm_up: u32,
    /// Largest number of queries.
    pub(crate) queries: u32,
    /// Smallest number of queries, unless they take more than three times [`Self::seconds`].
    pub(crate) queries_min: u32,
    /// Time of the cell.
    pub(crate) seconds: f64,
    /// Gap between queries.
    pub(crate) gap_us: u32,
    /// The congestion control.
    pub(crate) congestion: String,
    /// Priority of the queries and of their answers.
    pub(crate) priority: u8,
}

/// A report of the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "lowercase")]
pub(crate) enum Report {
    /// The aggregator takes jobs.
    Ready,
    /// Progress of a cell, at most a few times a second.
    Progress {
        /// Queries done.
        queries: u32,
    },
    /// The cell is done.
    Cell {
        /// Completion time of every query.
        fct_ns: Vec<u64>,
        /// Reason of an early end, if any.
        broken: Option<String>,
    },
    /// The bytes have arrived.
    Fetch {
        /// Duration of the transfer.
        ns: u64,
    },
    /// The echoes that came back, with their times.
    Ping {
        /// One time for each echo.
        rtt_ns: Vec<u64>,
    },
    /// The job is done.
    Done,
    /// The counters, as [`crate::counters::read`] has them.
    Counted {
        /// Loss recovery of TCP.
        repairs: Counters,
        /// Losses.
        losses: Counters,
    },
    /// Frames that the card has received and sent.
    Card {
        /// Frames received.
        received: u64,
        /// Frames sent.
        sent: u64,
    },
    /// Datagrams that the kernel has accepted.
    Flooded {
        /// Number of datagrams.
        sent: u64,
    },
    /// Datagrams that the program has received.
    Sunk {
        /// Number of datagrams.
        received: u64,
    },
    /// The job failed.
    Failed {
        /// The reason.
        error: String,
    },
}

/// Returns the payload of a full segment: the MTU without the headers of IPv4 and of TCP with
/// timestamps.
pub(crate) const fn segment_bytes(mtu: u16) -> u64 {
    mtu as u64 - 52
}

#[cfg(test)]
mod tests;
