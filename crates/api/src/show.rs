//! The answers of `sluice show`, version 1. One JSON object per question.

use serde::{Deserialize, Serialize};

use crate::port::AllowedIp;

/// The version of these types.
pub const VERSION: u32 = 2;

/// What may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// The ports.
    Ports,
    /// The queues that hold frames.
    Queues,
    /// Drops by port, priority and reason.
    Drops,
    /// The audit.
    Audit,
    /// Pauses sent and received.
    Pauses,
    /// The tunnels.
    Tunnels,
    /// The MAC table.
    Mac,
    /// Where the time of the workers goes.
    Worker,
    /// Which worker serves which port, and why.
    Placement,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The version of the types.
    pub version: u32,
    /// The host that answers.
    pub host: String,
    /// Its policy.
    pub policy: crate::config::Policy,
    /// Nanoseconds since the data process started.
    pub at_ns: u64,
    /// Frames that were lost outside the switch, beside drops and the audit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<LossRow>,
    /// The guard of the devices that lead to other hosts, beside ports and drops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<GuardRow>,
    /// What was asked for.
    #[serde(flatten)]
    pub body: Body,
}

/// The rows of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// The ports.
    Ports(Vec<PortRow>),
    /// The queues that hold frames.
    Queues(Vec<QueueRow>),
    /// Drops.
    Drops(Vec<DropRow>),
    /// The audit.
    Audit(Audit),
    /// Pauses.
    Pauses(Vec<PauseRow>),
    /// The tunnels.
    Tunnels(Vec<TunnelRow>),
    /// The MAC table.
    Mac(Vec<MacRow>),
    /// Where the time of the workers goes, the first one first.
    Worker(Vec<WorkerTimes>),
    /// Which worker serves which port.
    Placement(Vec<PlacementRow>),
}

/// A port and the worker that serves it, or the buckets of flows of a shared port that a worker has
/// for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlacementRow {
    /// The port.
    pub port: String,
    /// Its worker, from 0; absent: each of them has a part of it.
    pub worker: Option<u16>,
    /// The CPU that the worker is pinned to.
    pub cpu: Option<u32>,
    /// Why it is this worker.
    pub why: String,
    /// Absent: the row is about all of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BucketsRow>,
}

/// Buckets of flows: what hashes alike by the addresses of the inner frame.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BucketsRow {
    /// Their numbers: of 256, and from 256 on of flows of high priority.
    pub list: Vec<u16>,
    /// They are of flows of high priority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub high: bool,
    /// What they take of their worker's time, in hundredths.
    pub load_percent: f64,
}

/// Where a data worker's time went since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTimes {
    /// Turns that moved something, in nanoseconds.
    pub busy_ns: u64,
    /// Turns that looked and found nothing.
    pub looking_ns: u64,
    /// Sleep.
    pub asleep_ns: u64,
    /// Turns.
    pub turns: u64,
    /// The CPU that it is pinned to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortRow {
    /// Its name.
    pub port: String,
    /// Its kind: `tap`, `l2`, `udp`, `memory`.
    pub kind: String,
    /// Its network, or `underlay`.
    pub vnet: String,
    /// `yes`, or `no, needs …`.
    pub lossless: String,
    /// Frames that entered the switch here.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that the driver took to send.
    pub tx_frames: u64,
    /// Their bytes on the wire.
    pub tx_bytes: u64,
    /// Frames that the driver has taken and not yet handed to the kernel.
    pub driver_pending: u64,
    /// Frames that the driver had taken and the kernel refused for good.
    pub driver_lost: u64,
    /// Frames held at the input now.
    pub held_frames: u32,
    /// The most bytes ever held at the input.
    pub held_bytes_max: u64,
    /// The most frames ever held at the input.
    pub held_frames_max: u32,
    /// Frames that wait for this output now.
    pub queued_frames: u32,
    /// The most bytes that ever waited for this output.
    pub queued_bytes_max: u64,
    /// The most frames that ever waited for this output.
    pub queued_frames_max: u32,
    /// The most frames the kernel's receive ring was ever seen to hold (headroom in use).
    pub ring_frames_max: u64,
    /// How many frames the kernel's receive ring can hold.
    pub ring_frames: u64,
    /// Frames of priorities that the switch takes nothing of, set aside so that they do not stand
    /// before the others.
    #[serde(default)]
    pub aside_frames: u64,
    /// Their bytes.
    #[serde(default)]
    pub aside_bytes: u64,
    /// The most frames that were ever set aside.
    #[serde(default)]
    pub aside_frames_max: u64,
    /// The most bytes that were ever set aside.
    #[serde(default)]
    pub aside_bytes_max: u64,
    /// Kernel counters that can hide a loss on this path, by name (`tap.tx_dropped`,
    /// `packet.tp_drops`, `qdisc.dropped`, …), since the port was opened.
    pub kernel: std::collections::BTreeMap<String, u64>,
    /// Addresses that its endpoint may speak as beside its own.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// Those of them, and of the driver's, that are losses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<LossRow>,
}

/// Frames of a port that were lost outside the switch, in the kernel or in a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossRow {
    /// The port.
    pub port: String,
    /// The counter that saw it: one of [`PortRow::kernel`], or `driver.lost`.
    pub counter: String,
    /// Frames since the port was opened.
    pub frames: u64,
    /// How long before the answer the counter was seen to rise last, in nanoseconds: up to a second
    /// less than it is.
    pub ago_ns: u64,
}

/// A device that leads to other hosts, and whether what Sluice did not send is kept from speaking
/// to their VTEPs there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRow {
    /// The device.
    pub device: String,
    /// Why it has no guard; absent: it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Counters of the whole machine: a loss of theirs may be anybody's.
const OF_MACHINE: [&str; 2] = ["softnet.dropped", "neigh.unresolved_discards"];

/// A port's losses, without those that may be another's, in words: `lost 12 frames outside the
/// switch (ring.drops), last 3.0 s ago`.
#[must_use]
pub fn losses_text(losses: &[LossRow]) -> Option<String> {
    let own = |row: &&LossRow| !OF_MACHINE.contains(&row.counter.as_str());
    let losses: Vec<&LossRow> = losses.iter().filter(own).collect();
    let last = losses.iter().map(|row| row.ago_ns).min()?;
    let frames: u64 = losses.iter().map(|row| row.frames).sum();
    let counters: Vec<&str> = losses.iter().map(|row| row.counter.as_str()).collect();
    let frames = if frames == 1 { "1 frame".to_owned() } else { format!("{frames} frames") };
    Some(format!(
        "lost {frames} outside the switch ({}), last {} ago",
        counters.join(", "),
        seconds(last)
    ))
}

/// A time in seconds with one decimal: `3.0 s`.
#[must_use]
pub fn seconds(ns: u64) -> String {
    format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
}

/// A queue that holds frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Where its frames came from: a port or a peer.
    pub source: String,
    /// Where they go: a port, a peer, or `unresolved MAC`.
    pub lane: String,
    /// Their priority.
    pub priority: u8,
    /// How many.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// Frames that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropRow {
    /// The port at which they were classified.
    pub port: String,
    /// Their priority.
    pub priority: u8,
    /// The reason.
    pub reason: String,
    /// Its class.
    pub class: String,
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The audit: `received + injected + copied = delivered + consumed + resident + dropped`, per port
/// and priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// Whether every row closes in frames and in bytes.
    pub closed: bool,
    /// The rows.
    pub rows: Vec<AuditRow>,
}

/// One (port, priority) of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The port, `control` for injected frames.
    pub port: String,
    /// The priority.
    pub priority: u8,
    /// In frames.
    pub frames: Balance,
    /// In bytes.
    pub bytes: Balance,
}

/// The terms of the audit in one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Entered here.
    pub received: u64,
    /// Made by control.
    pub injected: u64,
    /// Extra frames of replication.
    pub copied: u64,
    /// Taken by an output driver.
    pub delivered: u64,
    /// Consumed by the switch (pause frames).
    pub consumed: u64,
    /// In the switch, counted by walking its queues.
    pub resident: u64,
    /// Dropped, over all reasons.
    pub dropped: u64,
    /// Dropped for congestion.
    pub dropped_congestion: u64,
}

/// Pauses of one (port, priority).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseRow {
    /// The port.
    pub port: String,
    /// The priority.
    pub priority: u8,
    /// XOFF sent, refreshes included.
    pub xoff_sent: u64,
    /// XON sent.
    pub xon_sent: u64,
    /// Pauses received.
    pub received: u64,
    /// How long the output was paused in all.
    pub paused_ns: u64,
    /// Whether it is paused now.
    pub paused: bool,
    /// Whether this input pauses its sender now.
    pub pausing: bool,
    /// Its receiver, if that is isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<Isolation>,
}

/// A receiver that held more than its share of what others need too, and has no claim on it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// Since when, from the start of the data process on.
    pub since_ns: u64,
    /// When a frame last left it, or nothing waited for it, as far as was seen.
    pub moved_ns: u64,
    /// The endpoints behind its port, the first few.
    pub endpoints: Vec<String>,
    /// Those whose frames wait for it, and the hosts that were asked to hold it.
    pub waiting: Vec<String>,
    /// Frames that it has in the reserve.
    pub reserve_frames: u32,
    /// Their bytes.
    pub reserve_bytes: u64,
    /// Whether hosts that send to it are asked to hold it.
    pub held_at_senders: bool,
    /// Whether its hold contract is over: what comes ends under `receiver_stuck`.
    pub stuck: bool,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRow {
    /// The peer.
    pub peer: String,
    /// Its VTEP.
    pub vtep: std::net::Ipv4Addr,
    /// The next hop's MAC, `unresolved` if it is not known.
    pub next_hop: String,
    /// Frames sent through it.
    pub tx_frames: u64,
    /// Frames received through it.
    pub rx_frames: u64,
    /// Frames that wait for it.
    pub queued_frames: u32,
    /// The layer-3 MTU of the way to the peer, if it was learned and is less than the device's.
    #[serde(default)]
    pub path_mtu: Option<u16>,
}

/// An entry of the MAC table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MacRow {
    /// The network.
    pub vnet: String,
    /// The address.
    pub mac: String,
    /// The port or peer it is behind.
    pub to: String,
}

#[cfg(test)]
mod tests;
