//! Counters of the kernel's TCP and of devices, read through the `/proc` of a process that is in
//! the namespace.

use std::collections::BTreeMap;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// TCP counters of loss recovery: retransmissions, time-outs, probes, duplicates.
const REPAIRS: [&str; 8] = [
    "RetransSegs",
    "TCPTimeouts",
    "TCPLossProbes",
    "TCPLossProbeRecovery",
    "TCPFastRetrans",
    "TCPSpuriousRTOs",
    "TCPDSACKRecv",
    "TCPLostRetransmit",
];

/// Counters of frames that the switch delivered and the namespace's own stack lost.
const LOSSES: [&str; 7] = [
    "TCPBacklogDrop",
    "TCPRcvQDrop",
    "TCPZeroWindowDrop",
    "TCPOFODrop",
    "RcvPruned",
    "ListenDrops",
    "InDiscards",
];

/// Reads the counters of the namespaces of these processes, summed: repairs, losses.
pub(crate) fn read(pids: &[u32]) -> (Counters, Counters) {
    let (mut repairs, mut losses) = (Counters::new(), Counters::new());
    for pid in pids {
        for file in ["snmp", "netstat"] {
            let text = std::fs::read_to_string(format!("/proc/{pid}/net/{file}"));
            let Ok(text) = text else { continue };
            for (name, value) in parse(&text) {
                if REPAIRS.contains(&name) {
                    *repairs.entry(name.to_owned()).or_default() += value;
                } else if LOSSES.contains(&name) {
                    *losses.entry(name.to_owned()).or_default() += value;
                }
            }
        }
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap_or_default();
        for (name, value) in device_losses(&text) {
            *losses.entry(name).or_default() += value;
        }
    }
    (repairs, losses)
}

/// Parses pairs of lines, `Group: names…` and `Group: values…`.
fn parse(text: &str) -> Vec<(&str, u64)> {
    let lines: Vec<&str> = text.lines().collect();
    let pairs =
        lines.chunks_exact(2).filter(|pair| pair[0].split(':').next() == pair[1].split(':').next());
    pairs
        .flat_map(|pair| {
            let names = pair[0].split_whitespace().skip(1);
            let values = pair[1].split_whitespace().skip(1);
            // Negative values exist (MaxConn -1); none of them is a counter.
            names.zip(values).filter_map(|(name, value)| Some((name, value.parse().ok()?)))
        })
        .collect()
}

/// Reads `rx_dropped` and `tx_dropped` of `eth0`, the container's device.
fn device_losses(text: &str) -> Vec<(String, u64)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
    let Some(line) = line else { return Vec::new() };
    let fields: Vec<u64> = line.split_whitespace().filter_map(|f| f.parse().ok()).collect();
    [(3, "eth0.rx_dropped"), (11, "eth0.tx_dropped")]
        .into_iter()
        .filter_map(|(at, name)| Some((name.to_owned(), *fields.get(at)?)))
        .collect()
}

/// Frames that a device has received and sent.
pub(crate) fn device(text: &str, name: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(9)?.parse().ok()?))
}

/// Returns the increase of each counter.
pub(crate) fn difference(before: &Counters, after: &Counters) -> Counters {
    let grown = |(name, value): (&String, &u64)| {
        let more = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    };
    after.iter().filter_map(grown).collect()
}

#[cfg(test)]
mod tests;
