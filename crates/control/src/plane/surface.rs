//! Input and output of a [`Plane`](super::Plane), as values.

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{DropReason, HostId, Mac, Nanos, PortId, PriorityMask, ReceiverState, Vni};

use crate::bridge::Bound;
use crate::learn;
use crate::mobility::{self, Refusal};
use crate::vport::Key;
use crate::{liveness, punt, resolve, rpc, session};

/// Identity, behaviour and bounds of a control plane.
#[derive(Clone, Debug)]
pub struct Config {
    /// This host.
    pub own: HostId,
    /// Number of this run: higher after each start, above zero.
    pub incarnation: u64,
    /// The fabric that all its members belong to.
    pub fabric: [u8; 16],
    /// Versions of the protocol between hosts to speak, oldest and newest.
    pub versions: (u8, u8),
    /// Times and bounds of sessions.
    pub session: session::Timing,
    /// Times of the failure detector.
    pub liveness: liveness::Timing,
    /// Largest number of claims of all hosts.
    pub claims_max: u32,
    /// Largest number of claims of one host.
    pub claims_per_host: u32,
    /// Withdrawals that are kept for peers that have not heard of them
    /// ([`crate::publisher::Publisher::new`]).
    pub tombstones_max: usize,
    /// Limits of punts; the count of ports is set by [`Self::ports_max`].
    pub punt: punt::Config,
    /// Limits of learning; the count of ports is set by [`Self::ports_max`].
    pub learn: learn::Config,
    /// Limits of questions in a sender's name; the count of ports is set by [`Self::ports_max`].
    pub resolve: resolve::Config,
    /// Thresholds of moves that are too many.
    pub mobility: mobility::Limits,
    /// Bound of [`PortId`]s, which are below it. At most 65,535: one number more stands for all
    /// other hosts.
    pub ports_max: u16,
    /// Largest number of encap flows: remote endpoints in the forwarding table (FDB).
    pub flow_limit: usize,
    /// Time for which an unused endpoint stays in the forwarding table.
    pub flow_life: Nanos,
    /// Time for which a decap flow is kept after its first frame; the next frame is a first one
    /// again.
    pub decap_life: Nanos,
    /// Time for which a tunnel stays open that no flow needs.
    pub tunnel_life: Nanos,
    /// Time for which the claims of a host that is gone are kept.
    pub stale_life: Nanos,
    /// Time for which a learned endpoint is answered for after it said itself that it has an
    /// address; then the question goes to it.
    pub confirmed_life: Nanos,
}

impl Config {
    /// Returns the configuration of host `own` with up to that many ports: defaults of all parts,
    /// 1.2 million claims, 56 Ki encap flows that stay for 5 minutes unused, and a day for hosts
    /// that are gone.
    #[must_use]
    pub fn new(own: HostId, incarnation: u64, fabric: [u8; 16], ports_max: u16) -> Self {
        let minutes = |count: u64| Nanos::from_millis(count * 60_000);
        Self {
            own,
            incarnation,
            fabric,
            versions: sluice_wire::fabric::VERSIONS,
            session: session::Timing::DEFAULT,
            liveness: liveness::Timing::default(),
            claims_max: 1_200_000,
            claims_per_host: 1 << 17,
            tombstones_max: 1 << 16,
            punt: punt::Config::new(ports_max),
            learn: learn::Config::new(ports_max),
            resolve: resolve::Config::new(ports_max),
            mobility: mobility::Limits::default(),
            ports_max,
            flow_limit: 56 * 1024,
            flow_life: minutes(5),
            decap_life: minutes(5),
            tunnel_life: minutes(1),
            stale_life: minutes(24 * 60),
            confirmed_life: Nanos::from_millis(1_000),
        }
    }
}

/// Location of an endpoint, or of the sender of a frame, as seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Location {
    /// Out of one of its ports.
    Port(PortId),
    /// In VXLAN to another host.
    Host(HostId),
}

/// Kind of another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A host that speaks for its own endpoints.
    Member,
    /// A VTEP that does not speak the protocol: its endpoints are learned from its frames.
    Foreign,
}

/// Command for the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Install an endpoint in the forwarding table, over an older entry, and release the frames
    /// that wait.
    Install {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
        /// Location of the endpoint.
        to: Location,
    },
    /// Take an endpoint out of the forwarding table.
    Remove {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
    },
    /// Drop the frames that wait for an endpoint: no host has it.
    Reject {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
    },
    /// Send a frame. A frame to a host needs no tunnel: it is encapsulated in software.
    Send {
        /// The network.
        vni: Vni,
        /// Location of its destination.
        to: Location,
        /// The frame from its destination address on, without frame check sequence.
        frame: Vec<u8>,
    },
    /// Flood a frame as if it had just come in there, uncharged: a frame that the switch took, or a
    /// question in the name of a sender there.
    Flood {
        /// The network.
        vni: Vni,
        /// Ingress of the frame.
        from: Location,
        /// The frame from its destination address on, without frame check sequence.
        frame: Vec<u8>,
    },
    /// Count frames that the switch took as dropped: they are neither answered nor flooded. This
    /// comes after all other commands, with all drops since the last one.
    Refuse {
        /// Ingress port of the frames.
        port: PortId,
        /// Reason of the drop.
        reason: DropReason,
        /// Number of frames.
        frames: u64,
        /// Number of their bytes.
        bytes: u64,
    },
    /// Open the tunnel to a host. This comes before the commands that need it.
    OpenTunnel {
        /// The host.
        host: HostId,
    },
    /// Close the tunnel to a host. Nothing in the forwarding table needs it.
    CloseTunnel {
        /// The host.
        host: HostId,
    },
    /// Remove a decap flow. Its next frame is a first one again.
    ForgetDecap {
        /// The network.
        vni: Vni,
        /// The host that the flow comes from.
        host: HostId,
    },
    /// Make a bound endpoint cease to use an address, or to be bound: another host has taken it
    /// over.
    Unbind {
        /// The port.
        port: PortId,
        /// The endpoint.
        mac: Mac,
        /// The address; `None`: all of its binding.
        ip: Option<IpAddr>,
    },
    /// Hold the frames for an endpoint behind a host, in the inputs of their senders, as that host
    /// asks; without priorities, release them. This comes before all other commands, and again and
    /// again while it stands: a switch that hears nothing of it for [`crate::hold::LEASE`] releases
    /// the frames.
    Hold {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
        /// Its host.
        host: HostId,
        /// Priorities to hold.
        held: PriorityMask,
        /// Held priorities whose frames are dropped: the hold contract of the receiver is over.
        stuck: PriorityMask,
    },
}

/// Reason why a flow or tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// No use for its life.
    Idle,
    /// No room, and it was used least recently.
    Evicted,
    /// The endpoint is elsewhere.
    Moved,
    /// No host claims the endpoint any more.
    Withdrawn,
    /// The host or the network is no longer configured.
    Removed,
}

/// Resource that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Full {
    /// The vport table.
    Claims,
    /// Endpoints that are wanted and that no host claims yet.
    Wanted,
    /// Encap flows: the least recently used one went.
    Flows,
    /// Commands that wait to be taken.
    Commands,
    /// Endpoints of foreign hosts: the one that was silent for longest went.
    Foreign,
}

/// Event for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An endpoint is known.
    VportAdded(Key, HostId),
    /// An endpoint has other addresses or another port at its host.
    VportChanged(Key, HostId),
    /// An endpoint went from one host to another.
    VportMoved {
        /// The endpoint.
        key: Key,
        /// Its host before.
        from: HostId,
        /// Its host after.
        to: HostId,
        /// Reason of the move.
        why: mobility::Why,
    },
    /// No host claims an endpoint any more.
    VportWithdrawn(Key, HostId, mobility::Why),
    /// Several endpoints have one address.
    Conflict {
        /// The endpoint that came last.
        key: Key,
        /// The address.
        ip: IpAddr,
        /// Another holder of the address, if one is known.
        holder: Option<Mac>,
    },
    /// An address left an own endpoint: another endpoint has announced it, or is bound with it.
    AddressMoved {
        /// The endpoint that had it.
        from: Key,
        /// The endpoint that has it.
        to: Mac,
        /// The address.
        ip: IpAddr,
    },
    /// An address left an own endpoint, which did not answer for it.
    AddressSilent {
        /// The endpoint.
        key: Key,
        /// The address.
        ip: IpAddr,
    },
    /// An own endpoint is bound elsewhere, too, or its address to another endpoint: neither binding
    /// is later.
    BoundTwice {
        /// The own endpoint.
        key: Key,
        /// The address; `None`: the MAC.
        ip: Option<IpAddr>,
        /// The other host.
        host: HostId,
    },
    /// An own binding, or an address of it, was taken over by another host.
    BindingTaken {
        /// The own endpoint.
        key: Key,
        /// The address; `None`: the MAC.
        ip: Option<IpAddr>,
        /// The host that has it.
        to: HostId,
    },
    /// An endpoint has more addresses than are kept.
    TooManyIps(Key, IpAddr),
    /// An endpoint has moved too often lately, this many times.
    MovesOften(Key, u32),
    /// A frame gives information on its source that must not be believed: spoofed, over its quota,
    /// and so on.
    Refused(PortId, Key, learn::Reason),
    /// An endpoint at an own port is not claimed: frozen, sticky or bound elsewhere.
    Held(PortId, Key, Refusal),
    /// The link of an own port is up.
    LinkUp(PortId),
    /// The link of an own port is down, or its namespace is gone.
    LinkDown(PortId),
    /// A host is alive, in this incarnation.
    HostUp(HostId, u64),
    /// A host does not answer.
    HostSuspected(HostId),
    /// A host is dead or has left.
    HostDown(HostId),
    /// A host knows this one in a later incarnation than the present.
    Outdone(HostId, u64),
    /// A session with a host began.
    SessionUp(HostId),
    /// A session with a host ended.
    SessionDown(HostId),
    /// A host was silent for too long on its connection, or has had none for as long.
    SessionHung(HostId),
    /// The claims of a host, this many, are stale now.
    ClaimsStale(HostId, u64),
    /// The claims of a host, this many, are live again.
    ClaimsLive(HostId, u64),
    /// All claims of a host are forgotten.
    ClaimsEvicted(HostId),
    /// A tunnel was opened.
    TunnelOpened(HostId),
    /// A tunnel was closed.
    TunnelClosed(HostId, End),
    /// An encap flow was made.
    FlowMade(Key, HostId),
    /// An encap flow ended.
    FlowEnded(Key, HostId, End),
    /// A decap flow was made.
    DecapMade(Vni, HostId),
    /// A decap flow ended.
    DecapEnded(Vni, HostId, End),
    /// An own port does not keep up, and has lost its claim on the shared buffer; or its priorities
    /// or senders have changed.
    Isolated(PortId, ReceiverState),
    /// An own port keeps up again.
    Restored(PortId),
    /// A host asks that frames for an endpoint of its own be held here.
    HoldBegun(Key, HostId),
    /// The frames are not held any more.
    HoldEnded(Key, HostId),
    /// A host sends to an isolated port, and its version knows no holds.
    HoldsUnknown(HostId),
    /// A host made an error in questions and answers, for the first time on its connection.
    WrongTalk(HostId, rpc::Wrong),
    /// A host made a claim beyond its bounds, for the first time in its snapshot.
    OutOfBounds(HostId, Key, Bound),
    /// A resource is full.
    Full(Full),
}

impl Event {
    /// Returns the name of the kind of event.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::VportAdded(..) => "vport-added",
            Self::VportChanged(..) => "vport-changed",
            Self::VportMoved { .. } => "vport-moved",
            Self::VportWithdrawn(..) => "vport-withdrawn",
            Self::Conflict { .. } => "conflict",
            Self::AddressMoved { .. } => "address-moved",
            Self::AddressSilent { .. } => "address-silent",
            Self::BoundTwice { .. } => "bound-twice",
            Self::BindingTaken { .. } => "binding-taken",
            Self::TooManyIps(..) => "too-many-ips",
            Self::MovesOften(..) => "moves-often",
            Self::Refused(..) => "refused",
            Self::Held(_, _, Refusal::Frozen { .. }) => "frozen",
            Self::Held(..) => "held",
            Self::LinkUp(..) => "link-up",
            Self::LinkDown(..) => "link-down",
            Self::HostUp(..) => "host-up",
            Self::Outdone(..) => "outdone",
            Self::HostSuspected(..) => "host-suspected",
            Self::HostDown(..) => "host-down",
            Self::SessionUp(..) => "session-up",
            Self::SessionDown(..) => "session-down",
            Self::SessionHung(..) => "session-hung",
            Self::ClaimsStale(..) => "claims-stale",
            Self::ClaimsLive(..) => "claims-live",
            Self::ClaimsEvicted(..) => "claims-evicted",
            Self::TunnelOpened(..) => "tunnel-opened",
            Self::TunnelClosed(..) => "tunnel-closed",
            Self::FlowMade(..) => "flow-made",
            Self::FlowEnded(..) => "flow-ended",
            Self::DecapMade(..) => "decap-made",
            Self::DecapEnded(..) => "decap-ended",
            Self::Isolated(..) => "isolated",
            Self::Restored(..) => "restored",
            Self::HoldBegun(..) => "hold-begun",
            Self::HoldEnded(..) => "hold-ended",
            Self::HoldsUnknown(..) => "holds-unknown",
            Self::WrongTalk(..) => "wrong-talk",
            Self::OutOfBounds(..) => "out-of-bounds",
            Self::Full(..) => "full",
        }
    }
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Punts that were admitted.
    pub punts: u64,
    /// Punts that the policer refused, by reason in [`punt::Policer::refused`].
    pub punts_refused: u64,
    /// Punts that were no frame, or not from a port or host of that network.
    pub punts_unfit: u64,
    /// Frames that the switch took and that were given back to be flooded.
    pub flooded: u64,
    /// Frames that the switch took and that were dropped, for [`Command::Refuse`]'s reasons.
    pub refused: u64,
    /// Frames of other hosts for an endpoint that is elsewhere.
    pub misdirected: u64,
    /// Questions that were flooded in the name of a sender.
    pub asked: u64,
    /// Answers to senders that use the old MAC of an address, which name its new holder, and such
    /// questions that were forwarded to that holder.
    pub told: u64,
    /// Questions to own endpoints for their addresses.
    pub probed: u64,
    /// Announcements in the name of own endpoints.
    pub announced: u64,
    /// Installs and frames that were given up because commands were not taken.
    pub commands_lost: u64,
    /// Events that were given up because they were not taken.
    pub events_lost: u64,
    /// Datagrams that were given up because they were not taken.
    pub datagrams_lost: u64,
    /// Messages that were given up because they were not taken.
    pub messages_lost: u64,
    /// Claims for which the table had no room, own and foreign ones.
    pub claims_refused: u64,
    /// Destinations that could not be remembered as wanted.
    pub wanted_refused: u64,
    /// Encap flows that were evicted for want of room.
    pub flows_evicted: u64,
    /// Endpoints of foreign hosts that were evicted for want of room.
    pub foreign_evicted: u64,
    /// Endpoints of isolated ports that did not fit into a message to senders.
    pub holds_cut: u64,
}

/// State of a host by the failure detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing was heard of the host.
    Unknown,
    /// The host is alive, in this incarnation.
    Alive(u64),
    /// The host did not answer.
    Suspected,
    /// The host is dead, or left.
    Down,
}

/// A host, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// The host.
    pub host: HostId,
    /// Kind of the host.
    pub kind: Kind,
    /// State by the failure detector.
    pub health: Health,
    /// True if a session is up.
    pub is_up: bool,
    /// Time since which its claims are stale, if they are.
    pub stale_since: Option<Nanos>,
    /// Incarnation and sequence of its claims that are here.
    pub have: sluice_wire::fabric::Have,
    /// Number of changes of this host that it has not acknowledged.
    pub lag: u64,
    /// Number of its claims.
    pub claims: u64,
    /// Counters of the session; zero for a foreign host.
    pub counts: session::Counts,
}

/// An endpoint, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VportInfo {
    /// The winning claim: host, port, addresses and times.
    pub vport: crate::table::Vport,
    /// State of the claim: this host's, live or stale.
    pub state: crate::directory::State,
    /// Location in the forwarding table, if the endpoint is installed, and time of the last use.
    pub installed: Option<(Location, Nanos)>,
    /// Time of the thaw, if the endpoint is frozen.
    pub frozen_until: Option<Nanos>,
    /// True if the endpoint has moved too often lately.
    pub moves_often: bool,
    /// Its moves that are remembered, the oldest first.
    pub history: Vec<mobility::Move>,
}

/// A tunnel, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelInfo {
    /// The host at its other end.
    pub host: HostId,
    /// Time at which it was made.
    pub opened: Nanos,
    /// Encap flows in it.
    pub encap_flows: u32,
    /// Decap flows in it.
    pub decap_flows: u32,
}
