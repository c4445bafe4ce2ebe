//! A host's view of its fabric: endpoints, networks, members, tunnels and flows. One JSON object
//! per question, and one per line while something is watched.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::port::AllowedIp;

pub use self::certificates::{CertificateKind, CertificateRow, CertificateState, Certificates};
pub use self::evpn::{Evpn, EvpnKeptOut, EvpnNeighborRow, EvpnVtepRow};

mod certificates;
mod evpn;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// The endpoints of a network, or of all.
    Vports {
        /// Name of the network.
        vnet: Option<String>,
    },
    /// One endpoint, with its moves and with the claims of all hosts.
    Vport {
        /// Name of the network; absent: any.
        vnet: Option<String>,
        /// MAC or one of the IP addresses of the endpoint.
        endpoint: String,
    },
    /// The networks.
    Vnets,
    /// The hosts.
    Members,
    /// The tunnels, and the flows in them.
    Flows,
    /// Receivers that do not take frames, here and elsewhere.
    Holds,
    /// Certificates of this host and of members.
    Certificates,
    /// MACs and addresses that are bound at two hosts.
    Rivals,
    /// The host as a BGP speaker.
    Evpn,
    /// Path of a frame, and the counters of the entries on it.
    Trace(crate::trace::Question),
    /// Allow an endpoint that moved too often to move again, at all hosts.
    Thaw {
        /// Name of the network; absent: any.
        vnet: Option<String>,
        /// MAC or one of the IP addresses of the endpoint.
        endpoint: String,
    },
    /// Events from now on, a line each.
    Watch,
}

/// The rows of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// Endpoints, the best claim for each.
    Vports(Vec<VportRow>),
    /// One endpoint.
    Vport(Box<Vport>),
    /// Networks.
    Vnets(Vec<VnetRow>),
    /// Hosts.
    Members(Vec<MemberRow>),
    /// Tunnels and flows.
    Flows(Flows),
    /// Receivers that do not take frames.
    Holds(Holds),
    /// Certificates.
    Certificates(Certificates),
    /// MACs and addresses that are bound at two hosts.
    Rivals(Vec<RivalRow>),
    /// The host as a BGP speaker; `None`: it speaks no EVPN.
    Evpn(Option<Evpn>),
    /// Path of a frame.
    Trace(Box<crate::trace::Trace>),
    /// Hosts at which an endpoint may move again.
    Thaw(Vec<ThawRow>),
    /// An event.
    Event(EventRow),
}

/// An endpoint as one host claims it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VportRow {
    /// Name of the network.
    pub vnet: String,
    /// MAC of the endpoint.
    pub mac: String,
    /// Known IP addresses of the endpoint.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub ips: Vec<IpAddr>,
    /// IP addresses that it shares with other bound endpoints, and has for as long as no other one
    /// announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>))]
    pub shared: Vec<IpAddr>,
    /// Host that has it.
    pub host: String,
    /// Port there: its name on this host, its number elsewhere.
    pub port: String,
    /// `own`; `live`: another host's; `stale`: of a host that may be dead.
    pub state: String,
    /// `learned`, `sticky` or `bound`.
    pub origin: String,
    /// Number of its moves between hosts.
    pub moves: u32,
    /// Time since it is there, in nanoseconds.
    pub there_ns: u64,
    /// Time since its last use here, in nanoseconds.
    pub unused_ns: u64,
    /// Policy of its port; absent if it is at another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<VportPolicy>>,
    /// Usage of its port; absent if it is at another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Box<VportUsage>>,
}

/// An endpoint with all details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Vport {
    /// Claim that holds.
    #[serde(flatten)]
    pub best: VportRow,
    /// Destination in the forwarding table (FDB); absent if it has no entry.
    #[serde(rename = "chip")]
    pub fdb: Option<String>,
    /// Time for which it stays frozen because it moved too often, in nanoseconds.
    pub frozen_ns: Option<u64>,
    /// True if it moved more often lately than `moves_max` allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moves_often: bool,
    /// Claims of other hosts.
    pub others: Vec<VportRow>,
    /// Its recorded moves, the oldest first.
    pub history: Vec<MoveRow>,
}

/// Policy of the port of an endpoint, by the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VportPolicy {
    /// Policy of flow control: `LL`, `LZ`, `ZL`, `ZZ`.
    pub flow_control: String,
    /// Priorities that hold their senders rather than drop, towards the endpoint.
    pub lossless: Vec<u8>,
    /// Hold contracts, and the priorities of each.
    pub hold: std::collections::BTreeMap<String, Vec<u8>>,
    /// Priority of its frames without one.
    pub priority: u8,
    /// True if the priority in its frames is trusted.
    pub trust: bool,
    /// Rate at which it is served, in Mbit/s; absent: as fast as it takes frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Addresses that its endpoint may use beside its own.
    #[serde(rename = "allow_ip", default, skip_serializing_if = "Vec::is_empty")]
    pub allowed: Vec<AllowedIp>,
    /// Keys of the values that the fabric's configuration has for this vport.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub of_fabric: Vec<String>,
    /// Most endpoints that the port may learn; absent: only bound ones are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn_max: Option<u32>,
    /// Broadcasts of the port per second; 0: any number.
    pub broadcasts_per_second: u32,
}

/// Traffic at the port of an endpoint, as long as the port is there. An endpoint that comes from
/// another host starts with the counters of its new port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VportUsage {
    /// Number of the port.
    pub port: u16,
    /// Number of endpoints of the port: the counters are of all of them.
    pub endpoints: u32,
    /// Reason why there are no counters: the data process did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// Time for which the counters ran, in nanoseconds: since the data process began, or since the
    /// port was added, if that was later.
    pub within_ns: u64,
    /// Frames received from it.
    pub rx_frames: u64,
    /// Bytes of these frames.
    pub rx_bytes: u64,
    /// Frames delivered to it.
    pub tx_frames: u64,
    /// Bytes of these frames.
    pub tx_bytes: u64,
    /// Frames from it that were dropped, by priority and reason.
    pub drops: Vec<crate::show::DropRow>,
    /// Frames that were lost between it and the switch, by counter.
    pub losses: std::collections::BTreeMap<String, u64>,
}

/// A host, and whether an endpoint was frozen there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ThawRow {
    /// Name of the host.
    pub host: String,
    /// True if it was frozen; absent if the host did not answer.
    pub was_frozen: Option<bool>,
    /// Reason why the host did not thaw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MoveRow {
    /// Time since the move, in nanoseconds.
    pub ago_ns: u64,
    /// Host before the move.
    pub from: String,
    /// Host after the move.
    pub to: String,
    /// Reason of the move.
    pub why: String,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VnetRow {
    /// Name of the network.
    pub vnet: String,
    /// VNI of the network.
    pub vni: u32,
    /// Number of known endpoints.
    pub vports: u32,
    /// Ports of this host in the network.
    pub ports: Vec<String>,
    /// Other hosts that have the network.
    pub hosts: Vec<String>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MemberRow {
    /// Name of the host.
    pub host: String,
    /// Number of the host in the fabric.
    pub id: u16,
    /// VTEP of the host.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub vtep: IpAddr,
    /// `own`, `member`, or `foreign`: a VTEP that does not speak the protocol.
    pub kind: String,
    /// `alive`, `suspected`, `down` or `unknown`.
    pub health: String,
    /// True if its connection is up.
    pub connected: bool,
    /// Highest known incarnation: later starts have higher numbers. Zero: the host was never heard
    /// of.
    #[serde(default)]
    pub incarnation: u64,
    /// Number of endpoints that it claims.
    pub vports: u64,
    /// Time for which these are stale, in nanoseconds; absent: they are live.
    pub stale_ns: Option<u64>,
    /// Sequence up to which its changes are here.
    pub sequence: u64,
    /// Number of this host's changes that it has not acknowledged.
    pub lag: u64,
    /// Records sent to it.
    pub records_sent: u64,
    /// Records that it sent.
    pub records_received: u64,
    /// Questions and answers between it and this host, by name: `asked`, `answered`, `late`,
    /// `served`, …, and its protocol errors, such as `second_answer`.
    #[serde(default)]
    pub talk: std::collections::BTreeMap<String, u64>,
    /// Version of its program; absent: it has not been asked yet, or is too old to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Settings that differ from this host's, and must not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<crate::agree::Difference>,
    /// At this host's own row: its eviction in words, with the remedy; absent: it knows of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<String>,
}

/// Tunnels and flows in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Flows {
    /// The tunnels.
    pub tunnels: Vec<TunnelRow>,
    /// Endpoints of other hosts in the forwarding table.
    pub encap: Vec<EncapRow>,
    /// Networks in which other hosts send.
    pub decap: Vec<DecapRow>,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TunnelRow {
    /// Host at the other end.
    pub host: String,
    /// Time for which it has been open, in nanoseconds.
    pub open_ns: u64,
    /// Number of encap flows in it.
    pub encap_flows: u32,
    /// Number of decap flows in it.
    pub decap_flows: u32,
}

/// Receivers that do not take frames.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Holds {
    /// Ports of this host.
    pub isolated: Vec<IsolatedRow>,
    /// Endpoints of other hosts, whose frames are held here.
    pub held: Vec<HeldRow>,
}

/// A port that does not take frames, and has lost its claim on shared buffers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IsolatedRow {
    /// Name of the port.
    pub port: String,
    /// Endpoints at the port, network and address.
    pub endpoints: Vec<String>,
    /// Priorities that are isolated.
    pub isolated: Vec<u8>,
    /// Priorities that senders are asked to hold.
    pub held: Vec<u8>,
    /// Held priorities whose hold contract is over: their frames end as `receiver_stuck`.
    pub stuck: Vec<u8>,
    /// Time since the isolation began, in nanoseconds.
    pub since_ns: u64,
    /// Hosts that send to it, which were notified.
    pub senders: Vec<String>,
    /// Senders whose version cannot hold frames.
    pub cannot_hold: Vec<String>,
}

/// State of a host and of its fabric (`sluice fabric status`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Host that answers.
    pub host: String,
    /// Reason why its data process is silent; absent: it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_silent: Option<String>,
    /// The hosts.
    pub members: Vec<MemberRow>,
    /// Certificates; absent: the host's version does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// Configuration of a fabric that was made by command; absent: the host has it from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Box<crate::transaction::Status>>,
    /// Receivers that do not take frames, a row for each priority: those of this host, and those of
    /// other hosts that are held here.
    pub receivers: Vec<ReceiverRow>,
    /// MACs and addresses that are bound at two hosts: all MACs, and addresses of this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_twice: Vec<RivalRow>,
}

/// A MAC or an address that is bound at two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RivalRow {
    /// Name of the network.
    pub vnet: String,
    /// The MAC or address.
    pub what: String,
    /// Host whose binding all follow.
    pub first: String,
    /// Port there: its name on this host, its number elsewhere.
    pub first_port: String,
    /// The other host.
    pub second: String,
    /// Port of the other host.
    pub second_port: String,
}

/// A priority of a receiver that does not take frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverRow {
    /// Host that has it.
    pub host: String,
    /// Port of the receiver; absent: another host knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Endpoints at the port.
    pub endpoints: Vec<String>,
    /// The priority.
    pub priority: u8,
    /// `held`: held at its senders; `probation`: it takes frames again; `stuck`: its hold contract
    /// is over, and frames for it end as `receiver_stuck`.
    pub state: String,
    /// Time since the state began, in nanoseconds.
    pub since_ns: u64,
    /// Ports of this host that wait for it, and hosts that were asked to hold its frames.
    pub waiting: Vec<String>,
}

/// An endpoint of another host, whose frames are held here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HeldRow {
    /// Name of the network.
    pub vnet: String,
    /// MAC of the endpoint.
    pub mac: String,
    /// Host of the endpoint, which asked for the hold.
    pub host: String,
    /// Priorities that are held.
    pub held: Vec<u8>,
    /// Held priorities whose frames end as `receiver_stuck`.
    pub stuck: Vec<u8>,
    /// Time since the hold began, in nanoseconds.
    pub since_ns: u64,
    /// True if a port here sends to it.
    pub in_use: bool,
}

/// An encap flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EncapRow {
    /// Name of the network.
    pub vnet: String,
    /// MAC of the endpoint.
    pub mac: String,
    /// Host of the endpoint.
    pub host: String,
    /// Time since its last use, in nanoseconds.
    pub unused_ns: u64,
}

/// A decap flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecapRow {
    /// Name of the network.
    pub vnet: String,
    /// Host that sends.
    pub host: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EventRow {
    /// Nanoseconds since the control process started.
    pub at_ns: u64,
    /// Kind of the event.
    pub event: String,
    /// Object of the event.
    pub what: String,
}
