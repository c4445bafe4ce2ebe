//! What a host knows of its fabric: endpoints, networks, members, tunnels and flows. One JSON
//! object per question, and one per line while something is watched.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use self::certificates::{CertificateKind, CertificateRow, CertificateState, Certificates};

mod certificates;

/// What may be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// The endpoints of a network, or of all.
    Vports {
        /// The name of the network.
        vnet: Option<String>,
    },
    /// One endpoint, with its moves and with what every host claims of it.
    Vport {
        /// The name of the network; absent: wherever it is.
        vnet: Option<String>,
        /// Its MAC or one of its IP addresses.
        endpoint: String,
    },
    /// The networks.
    Vnets,
    /// The hosts.
    Members,
    /// The tunnels, and the flows in them.
    Flows,
    /// Receivers that do not take what comes, here and elsewhere.
    Holds,
    /// Certificates of this host and of members.
    Certificates,
    /// MACs and addresses that two hosts are bound with.
    Rivals,
    /// What would become of a frame, and what the entries on its way have seen.
    Trace(crate::trace::Question),
    /// An endpoint that moved too often may move again, at all hosts.
    Thaw {
        /// The name of the network; absent: wherever it is.
        vnet: Option<String>,
        /// Its MAC or one of its IP addresses.
        endpoint: String,
    },
    /// What happens, from now on, a line each.
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
    /// Receivers that do not take what comes.
    Holds(Holds),
    /// Certificates.
    Certificates(Certificates),
    /// MACs and addresses that two hosts are bound with.
    Rivals(Vec<RivalRow>),
    /// What becomes of a frame.
    Trace(Box<crate::trace::Trace>),
    /// Hosts at which an endpoint may move again.
    Thaw(Vec<ThawRow>),
    /// Something happened.
    Event(EventRow),
}

/// An endpoint as one host claims it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VportRow {
    /// The network.
    pub vnet: String,
    /// Its address.
    pub mac: String,
    /// Its IP addresses, as far as they are known.
    pub ips: Vec<IpAddr>,
    /// Those of them that it shares with other bound endpoints, and has for as long as no other one
    /// announces them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<IpAddr>,
    /// The host that has it.
    pub host: String,
    /// The port there: its name on this host, its number elsewhere.
    pub port: String,
    /// `own`; `live`: another host's; `stale`: of a host that may be dead.
    pub state: String,
    /// `learned`, `sticky` or `bound`.
    pub origin: String,
    /// How often it has moved between hosts.
    pub moves: u32,
    /// For how long it has been there, in nanoseconds.
    pub there_ns: u64,
    /// How long ago it was used here last, in nanoseconds.
    pub unused_ns: u64,
}

/// An endpoint, whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vport {
    /// What counts.
    #[serde(flatten)]
    pub best: VportRow,
    /// Where the chip sends its frames; absent if it is not in the chip.
    pub chip: Option<String>,
    /// For how long it stays frozen because it moved too often, in nanoseconds.
    pub frozen_ns: Option<u64>,
    /// It moved more often lately than `moves_max` allows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moves_often: bool,
    /// What other hosts claim of it.
    pub others: Vec<VportRow>,
    /// Its moves that are remembered, the oldest first.
    pub history: Vec<MoveRow>,
    /// Policy of its port; absent if it is at another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<VportPolicy>,
    /// Usage of its port; absent if it is at another host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<VportUsage>,
}

/// Policy of the port of an endpoint, by the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VportPolicy {
    /// The policy of flow control: `LL`, `LZ`, `ZL`, `ZZ`.
    pub flow_control: String,
    /// Priorities that hold their senders rather than drop, towards the endpoint.
    pub lossless: Vec<u8>,
    /// Hold contracts, and the priorities of each.
    pub hold: std::collections::BTreeMap<String, Vec<u8>>,
    /// The priority of its frames that say none.
    pub priority: u8,
    /// True if the priority that its frames say is believed.
    pub trust: bool,
    /// Rate at which it is served, in Mbit/s; absent: as fast as it takes frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Endpoints that the port may have learned; absent: what is bound, and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learn_max: Option<u32>,
    /// Broadcasts of the port a second; 0: any number.
    pub broadcasts_per_second: u32,
}

/// What passed at the port of an endpoint, as long as the port is there. An endpoint that comes
/// from another host begins with what its new port has counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VportUsage {
    /// The number of the port.
    pub port: u16,
    /// Endpoints of the port: the counters are of all of them.
    pub endpoints: u32,
    /// Why nothing is counted: the data process did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// For how long it was counted, in nanoseconds: since the data process began, or since the
    /// port came, if that was later.
    pub within_ns: u64,
    /// Frames that came from it.
    pub rx_frames: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Frames that it took.
    pub tx_frames: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that came from it and were dropped, by priority and reason.
    pub drops: Vec<crate::show::DropRow>,
    /// Frames that were lost between it and the switch, by the counter that saw them.
    pub losses: std::collections::BTreeMap<String, u64>,
}

/// A host, and whether an endpoint was frozen there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThawRow {
    /// The host.
    pub host: String,
    /// Whether it was frozen; absent if the host did not answer.
    pub was_frozen: Option<bool>,
    /// Why the host did not do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveRow {
    /// How long ago, in nanoseconds.
    pub ago_ns: u64,
    /// The host that had it.
    pub from: String,
    /// The host that has it.
    pub to: String,
    /// Why.
    pub why: String,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnetRow {
    /// Its name.
    pub vnet: String,
    /// Its number on the wire.
    pub vni: u32,
    /// Endpoints that are known.
    pub vports: u32,
    /// Ports of this host in it.
    pub ports: Vec<String>,
    /// The other hosts that have it.
    pub hosts: Vec<String>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRow {
    /// Its name.
    pub host: String,
    /// Its number in the fabric.
    pub id: u16,
    /// Its VTEP.
    pub vtep: IpAddr,
    /// `own`, `member`, or `foreign`: a VTEP that does not speak the protocol.
    pub kind: String,
    /// `alive`, `suspected`, `down` or `unknown`.
    pub health: String,
    /// Whether its connection is up.
    pub connected: bool,
    /// Which of its starts is known: later ones have higher numbers. Zero: it was never heard of.
    #[serde(default)]
    pub incarnation: u64,
    /// Endpoints that it claims.
    pub vports: u64,
    /// For how long these are stale, in nanoseconds; absent: they are live.
    pub stale_ns: Option<u64>,
    /// The sequence up to which its changes are here.
    pub sequence: u64,
    /// Changes of this host that it has not acknowledged.
    pub lag: u64,
    /// Records sent to it.
    pub records_sent: u64,
    /// Records that it sent.
    pub records_received: u64,
    /// Questions and answers between it and this host, by name: `asked`, `answered`, `late`,
    /// `served`, …, and what it did wrong, such as `second_answer`.
    #[serde(default)]
    pub talk: std::collections::BTreeMap<String, u64>,
    /// What it says otherwise than this host, and must not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<crate::agree::Difference>,
}

/// What goes where, because it was needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// The tunnels.
    pub tunnels: Vec<TunnelRow>,
    /// Endpoints of other hosts in the chip.
    pub encap: Vec<EncapRow>,
    /// Networks of which other hosts send.
    pub decap: Vec<DecapRow>,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelRow {
    /// The host at its other end.
    pub host: String,
    /// For how long it has been open, in nanoseconds.
    pub open_ns: u64,
    /// Encap flows in it.
    pub encap_flows: u32,
    /// Decap flows in it.
    pub decap_flows: u32,
}

/// Receivers that do not take what comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Ports of this host.
    pub isolated: Vec<IsolatedRow>,
    /// Endpoints of other hosts, whose frames are held here.
    pub held: Vec<HeldRow>,
}

/// A port that does not take what comes, and has lost its claim on what all share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IsolatedRow {
    /// Its name.
    pub port: String,
    /// The endpoints at it, network and address.
    pub endpoints: Vec<String>,
    /// Priorities that are isolated.
    pub isolated: Vec<u8>,
    /// Priorities that senders are told to hold.
    pub held: Vec<u8>,
    /// Those among them whose hold contract is over: their frames end as `receiver_stuck`.
    pub stuck: Vec<u8>,
    /// How long ago that began, in nanoseconds.
    pub since_ns: u64,
    /// The hosts that send to it, which were told.
    pub senders: Vec<String>,
    /// Those among them whose version cannot hold frames.
    pub cannot_hold: Vec<String>,
}

/// State of a host and of its fabric (`sluice fabric status`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The host that answers.
    pub host: String,
    /// Why its data process says nothing; absent: it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_silent: Option<String>,
    /// The hosts.
    pub members: Vec<MemberRow>,
    /// Certificates; absent: the host is of a version that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<Certificates>,
    /// Receivers that do not take what comes, a row for each priority: those of this host, and
    /// those of other hosts that are held here.
    pub receivers: Vec<ReceiverRow>,
    /// MACs and addresses that two hosts are bound with: all MACs, and addresses of this host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bound_twice: Vec<RivalRow>,
}

/// A MAC or an address that two hosts are bound with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RivalRow {
    /// The network.
    pub vnet: String,
    /// The MAC or address.
    pub what: String,
    /// The host that all follow.
    pub first: String,
    /// Its port: its name on this host, its number elsewhere.
    pub first_port: String,
    /// The other host.
    pub second: String,
    /// Its port.
    pub second_port: String,
}

/// A priority of a receiver that does not take what comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverRow {
    /// The host that has it.
    pub host: String,
    /// Its port; absent: another host knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The endpoints at it.
    pub endpoints: Vec<String>,
    /// The priority.
    pub priority: u8,
    /// `held`: at its senders; `probation`: it takes what comes again; `stuck`: its hold contract
    /// is over, and what comes ends as `receiver_stuck`.
    pub state: String,
    /// Time since that began, in nanoseconds.
    pub since_ns: u64,
    /// Ports of this host that wait for it, and hosts that were asked to hold it.
    pub waiting: Vec<String>,
}

/// An endpoint of another host, whose frames are held here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRow {
    /// The network.
    pub vnet: String,
    /// The endpoint.
    pub mac: String,
    /// Its host, which asked.
    pub host: String,
    /// Priorities that are held.
    pub held: Vec<u8>,
    /// Those among them whose frames end as `receiver_stuck`.
    pub stuck: Vec<u8>,
    /// How long ago that began, in nanoseconds.
    pub since_ns: u64,
    /// Whether anybody here sends to it.
    pub in_use: bool,
}

/// An encap flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EncapRow {
    /// The network.
    pub vnet: String,
    /// The endpoint.
    pub mac: String,
    /// Its host.
    pub host: String,
    /// How long ago it was used last, in nanoseconds.
    pub unused_ns: u64,
}

/// A decap flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecapRow {
    /// The network.
    pub vnet: String,
    /// The host that it comes from.
    pub host: String,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRow {
    /// Nanoseconds since the control process started.
    pub at_ns: u64,
    /// What kind of thing.
    pub event: String,
    /// What.
    pub what: String,
}
