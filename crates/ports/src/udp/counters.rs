//! Counters of the kernel behind which a loss of a socket's frames could hide, of this namespace
//! and of the machine.

use std::io;

use crate::device::{softnet_dropped, sum_hex_column};
use crate::port::{Counters, DeviceState, KernelSide};
use crate::sockets::snmp_counter;

/// Rows, and the kernel's names of them in `/proc/net/snmp`.
const ROWS: [(&str, &str); 5] = [
    ("udp.rcvbuf_errors", "RcvbufErrors"),
    ("udp.sndbuf_errors", "SndbufErrors"),
    ("udp.in_errors", "InErrors"),
    ("udp.csum_errors", "InCsumErrors"),
    ("udp.mem_errors", "MemErrors"),
];

/// The counters, since this was made.
#[derive(Debug)]
pub(super) struct KernelCounters {
    before: Counters,
}

impl KernelCounters {
    /// Begins to count.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { before: now()? })
    }
}

impl KernelSide for KernelCounters {
    fn read(&self, rows: &mut Counters) -> io::Result<()> {
        for (name, now) in now()? {
            rows.insert(name, now.wrapping_sub(self.before.get(name).copied().unwrap_or(0)));
        }
        Ok(())
    }

    fn device(&self) -> DeviceState {
        DeviceState::default()
    }
}

/// The kernel's counters now.
fn now() -> io::Result<Counters> {
    let mut rows = Counters::from([("softnet.dropped", softnet_dropped()?)]);
    let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
    for (row, name) in ROWS {
        if let Some(value) = snmp_counter(&snmp, "Udp:", name) {
            rows.insert(row, value);
        }
    }
    // Only the first network namespace has this file; it counts for all namespaces.
    if let Ok(text) = std::fs::read_to_string("/proc/net/stat/arp_cache") {
        let mut names = text.lines().next().unwrap_or_default().split_whitespace();
        if let Some(column) = names.position(|name| name == "unresolved_discards") {
            rows.insert("neigh.unresolved_discards", sum_hex_column(&text, column));
        }
    }
    Ok(rows)
}
