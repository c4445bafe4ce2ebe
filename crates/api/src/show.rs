//! Answers of `sluice show`, one JSON object per question.

use serde::{Deserialize, Serialize};

use crate::port::AllowedIp;

/// Version of these types.
pub const VERSION: u32 = 2;

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Times of the workers.
    Worker,
    /// Worker of each port, and the reason.
    Placement,
    /// The chip: what forwards frames of known addresses.
    Chip,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Shown))]
pub struct Answer {
    /// Version of the types.
    pub version: u32,
    /// Host that answers.
    pub host: String,
    /// Policy of the host.
    pub policy: crate::config::Policy,
    /// Nanoseconds since the data process started.
    pub at_ns: u64,
    /// Frames that were lost outside the switch, beside drops and the audit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<LossRow>,
    /// Guard of the devices that lead to other hosts, beside ports and drops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guard: Vec<GuardRow>,
    /// Rows of the answer.
    #[serde(flatten)]
    pub body: Body,
}

/// The rows of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ShownRows))]
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
    /// Times of the workers, in order.
    Worker(Vec<WorkerTimes>),
    /// Worker of each port.
    Placement(Vec<PlacementRow>),
    /// The chip.
    Chip(ChipRow),
}

/// The chip of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChipRow {
    /// Its kind: `software`, `kernel` or `switchdev`.
    pub kind: String,
    /// Addresses in it.
    pub macs: u64,
    /// Addresses in it that its device forwards; absent: it has no device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offloaded: Option<u64>,
    /// Addresses that it may hold.
    pub macs_max: u64,
    /// Addresses in it that lead to other hosts.
    pub flows: u64,
    /// Addresses that lead to other hosts that it may hold.
    pub flows_max: u64,
    /// Addresses that went for want of a place.
    pub evicted: u64,
    /// Frames that it forwarded; absent: the ports count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded: Option<u64>,
    /// Addresses that were written.
    #[serde(default)]
    pub written: u64,
    /// Addresses that found no place, as all others were in use.
    #[serde(default)]
    pub full: u64,
    /// Writes that it refused.
    #[serde(default)]
    pub refused: u64,
    /// Changes by others in it that were put right.
    #[serde(default)]
    pub mended: u64,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A port and its worker, or the buckets of flows of a shared port that a worker has for one
/// reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlacementRow {
    /// Name of the port.
    pub port: String,
    /// Worker of the port, from 0; absent: each worker has a part of it.
    pub worker: Option<u16>,
    /// CPU to which the worker is pinned.
    pub cpu: Option<u32>,
    /// Reason for this worker.
    pub why: String,
    /// Buckets of the row; absent: the row is about all of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<BucketsRow>,
}

/// Buckets of flows: flows with the same hash of the inner frame's addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketsRow {
    /// Numbers of the buckets: up to 255, and from 256 on for flows of high priority.
    pub list: Vec<u16>,
    /// True if these are buckets for flows of high priority.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub high: bool,
    /// Share of their worker's time, in hundredths.
    pub load_percent: f64,
}

/// Times of a data worker since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkerTimes {
    /// Turns that moved something, in nanoseconds.
    pub busy_ns: u64,
    /// Turns that found nothing.
    pub looking_ns: u64,
    /// Sleep.
    pub asleep_ns: u64,
    /// Turns.
    pub turns: u64,
    /// CPU to which it is pinned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortRow {
    /// Name of the port.
    pub port: String,
    /// Kind of the port: `tap`, `l2`, `udp`, `memory`.
    pub kind: String,
    /// Network of the port, or `underlay`.
    pub vnet: String,
    /// `yes`, or `no, needs …`.
    pub lossless: String,
    /// Frames that entered the switch here.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Frames that the driver accepted for sending.
    pub tx_frames: u64,
    /// Bytes of these frames on the wire.
    pub tx_bytes: u64,
    /// Frames that the driver has accepted and not yet handed to the kernel.
    pub driver_pending: u64,
    /// Frames that the driver had accepted and the kernel refused for good.
    pub driver_lost: u64,
    /// Frames held at the input now.
    pub held_frames: u32,
    /// Most bytes ever held at the input.
    pub held_bytes_max: u64,
    /// Most frames ever held at the input.
    pub held_frames_max: u32,
    /// Frames that wait for this output now.
    pub queued_frames: u32,
    /// Most bytes that ever waited for this output.
    pub queued_bytes_max: u64,
    /// Most frames that ever waited for this output.
    pub queued_frames_max: u32,
    /// Most frames ever seen in the kernel's receive ring (headroom in use).
    pub ring_frames_max: u64,
    /// Number of frames that the kernel's receive ring can hold.
    pub ring_frames: u64,
    /// Frames of priorities that the switch does not accept now, set aside so that they do not
    /// block the others.
    #[serde(default)]
    pub aside_frames: u64,
    /// Bytes of these frames.
    #[serde(default)]
    pub aside_bytes: u64,
    /// Most frames that were ever set aside.
    #[serde(default)]
    pub aside_frames_max: u64,
    /// Most bytes that were ever set aside.
    #[serde(default)]
    pub aside_bytes_max: u64,
    /// Kernel counters that can hide a loss on this path, by name (`tap.tx_dropped`,
    /// `packet.tp_drops`, `qdisc.dropped`, …), since the port was opened.
    pub kernel: std::collections::BTreeMap<String, u64>,
    /// Addresses that its endpoint may use beside its own.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// Counters of the kernel and the driver that are losses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<LossRow>,
    /// UDP sockets behind a container's card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<SocketsRow>,
}

/// UDP sockets behind a container's card, for which datagrams are held while they have no room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SocketsRow {
    /// Requirement that is missing, so that datagrams are not held; absent: they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// True if the kernel signals a drained socket; otherwise it is polled.
    pub signalled: bool,
    /// Sockets that are held now.
    pub held: Vec<HeldSocketRow>,
    /// Number of times that a socket began to be held.
    pub holds: u64,
    /// Datagrams that waited for a socket.
    pub waited: u64,
    /// Questions for the room of a socket.
    pub asked: u64,
    /// Offers refused because the queue of a socket was full.
    pub full: u64,
    /// Offers refused because no more sockets could be held.
    pub beyond: u64,
    /// Times that the whole port was held for a socket.
    pub port_held: u64,
    /// Datagrams that ended because their socket was beyond its hold.
    pub stuck: u64,
    /// Frames that were sent to the container's card and did not arrive there, where arrivals are
    /// counted (`veth`).
    #[serde(default)]
    pub written_off: u64,
}

/// A UDP socket that has no room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldSocketRow {
    /// Address and port of the datagrams for it.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub address: std::net::SocketAddr,
    /// Priority of the oldest datagram.
    pub priority: u8,
    /// Start of the hold, from the start of the data process on.
    pub since_ns: u64,
    /// Datagrams that wait in the port.
    pub frames: u64,
    /// True if it is beyond its hold: what comes ends as `receiver_stuck`.
    pub stuck: bool,
}

/// Frames of a port that were lost outside the switch, in the kernel or in a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossRow {
    /// Name of the port.
    pub port: String,
    /// Counter of the loss: one of [`PortRow::kernel`], or `driver.lost`.
    pub counter: String,
    /// Frames since the port was opened.
    pub frames: u64,
    /// Time from the last observed increase of the counter to the answer, in nanoseconds: up to a
    /// second less than the real one.
    pub ago_ns: u64,
}

/// A device that leads to other hosts, and whether other programs on it are kept from sending to
/// the hosts' VTEPs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GuardRow {
    /// Name of the device.
    pub device: String,
    /// Reason why it has no guard; absent: it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Counters of the whole machine: their losses may be of any program.
const OF_MACHINE: [&str; 2] = ["softnet.dropped", "neigh.unresolved_discards"];

/// Returns true if a counter of a port counts the losses of the whole machine.
#[must_use]
pub fn is_of_machine(counter: &str) -> bool {
    OF_MACHINE.contains(&counter)
}

/// Formats a port's losses, without those that may be another's: `lost 12 frames outside the switch
/// (ring.drops), last 3.0 s ago`.
#[must_use]
pub fn losses_text(losses: &[LossRow]) -> Option<String> {
    let own = |row: &&LossRow| !is_of_machine(&row.counter);
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

/// Formats a time in seconds with one decimal: `3.0 s`.
#[must_use]
pub fn seconds(ns: u64) -> String {
    format!("{}.{} s", ns / 1_000_000_000, ns / 100_000_000 % 10)
}

/// A queue that holds frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct QueueRow {
    /// Source of its frames: a port or a peer.
    pub source: String,
    /// Destination of its frames: a port, a peer, or `unresolved MAC`.
    pub lane: String,
    /// Priority of the frames.
    pub priority: u8,
    /// Number of frames.
    pub frames: u32,
    /// Bytes of the frames.
    pub bytes: u64,
}

/// Frames that were dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DropRow {
    /// Port at which they were classified.
    pub port: String,
    /// Priority of the frames.
    pub priority: u8,
    /// Reason of the drop.
    pub reason: String,
    /// Class of the reason.
    pub class: String,
    /// Number of frames.
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

/// The audit: `received + injected + copied = delivered + consumed + resident + dropped`, per port
/// and priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Audit {
    /// True if every row closes in frames and in bytes.
    pub closed: bool,
    /// The rows.
    pub rows: Vec<AuditRow>,
}

/// A (port, priority) of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditRow {
    /// Name of the port, `control` for injected frames.
    pub port: String,
    /// The priority.
    pub priority: u8,
    /// Terms in frames.
    pub frames: Balance,
    /// Terms in bytes.
    pub bytes: Balance,
}

/// The terms of the audit in one unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Balance {
    /// Entered here.
    pub received: u64,
    /// Made by control.
    pub injected: u64,
    /// Copies made by replication.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
    /// Time for which the output was paused in all.
    pub paused_ns: u64,
    /// True if it is paused now.
    pub paused: bool,
    /// True if this input pauses its sender now.
    pub pausing: bool,
    /// Receiver of the port, if that is isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<Isolation>,
    /// UDP sockets behind the port that have no room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<HeldSocketRow>,
}

/// A receiver that used more than its share of shared buffers, and has no claim on them now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Isolation {
    /// Start of the isolation, from the start of the data process on.
    pub since_ns: u64,
    /// Last time at which a frame left for it, or none waited, as far as observed.
    pub moved_ns: u64,
    /// Endpoints behind its port, the first few.
    pub endpoints: Vec<String>,
    /// Senders whose frames wait for it, and the hosts that were asked to hold them.
    pub waiting: Vec<String>,
    /// Number of its frames in the reserve.
    pub reserve_frames: u32,
    /// Bytes of these frames.
    pub reserve_bytes: u64,
    /// True if hosts that send to it are asked to hold its frames.
    pub held_at_senders: bool,
    /// True if its hold contract is over: frames for it end under `receiver_stuck`.
    pub stuck: bool,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SwitchTunnelRow))]
pub struct TunnelRow {
    /// Name of the peer.
    pub peer: String,
    /// VTEP of the peer.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub vtep: std::net::Ipv4Addr,
    /// MAC of the next hop, `unresolved` if it is not known.
    pub next_hop: String,
    /// Frames sent through it.
    pub tx_frames: u64,
    /// Frames received through it.
    pub rx_frames: u64,
    /// Frames that wait for it.
    pub queued_frames: u32,
    /// Layer-3 MTU of the path to the peer, if it was learned and is less than the device's.
    #[serde(default)]
    pub path_mtu: Option<u16>,
}

/// An entry of the MAC table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MacRow {
    /// The network.
    pub vnet: String,
    /// The address.
    pub mac: String,
    /// Port or peer of the address.
    pub to: String,
}

#[cfg(test)]
mod tests;
