//! What goes into a [`Plane`](super::Plane) and what comes out of it, as values.

use alloc::vec::Vec;
use core::net::IpAddr;

use sluice_base::{DropReason, HostId, Mac, Nanos, PortId, PriorityMask, Vni};

use crate::bridge::Bound;
use crate::hold::Receiver;
use crate::learn;
use crate::mobility::{self, Refusal};
use crate::vport::Key;
use crate::{liveness, punt, resolve, rpc, session};

/// Whose control plane this is, how it behaves and how much it may hold.
#[derive(Clone, Debug)]
pub struct Config {
    /// This host.
    pub own: HostId,
    /// Higher after each start, above zero.
    pub incarnation: u64,
    /// The fabric that all its members belong to.
    pub fabric: [u8; 16],
    /// Versions of the protocol between hosts to speak, oldest and newest.
    pub versions: (u8, u8),
    /// Times and bounds of sessions.
    pub session: session::Timing,
    /// Times of the failure detector.
    pub liveness: liveness::Timing,
    /// Claims of all hosts.
    pub claims_max: u32,
    /// Claims of one host.
    pub claims_per_host: u32,
    /// Withdrawals that are kept for peers that have not heard of them
    /// ([`crate::publisher::Publisher::new`]).
    pub tombstones_max: usize,
    /// How much is punted; its count of ports is set by [`Self::ports_max`].
    pub punt: punt::Config,
    /// How much is learned; its count of ports is set by [`Self::ports_max`].
    pub learn: learn::Config,
    /// How much is asked in a sender's name; its count of ports is set by [`Self::ports_max`].
    pub resolve: resolve::Config,
    /// When an endpoint moves too often.
    pub mobility: mobility::Limits,
    /// [`PortId`]s are below it. At most 65,535: one number more stands for all other hosts.
    pub ports_max: u16,
    /// Encap flows: remote endpoints in the chip.
    pub flow_limit: usize,
    /// For how long what is in the chip stays there unused.
    pub flow_life: Nanos,
    /// For how long a decap flow is kept after its first frame; the next one is a first one again.
    pub decap_life: Nanos,
    /// For how long a tunnel stays open that no flow needs.
    pub tunnel_life: Nanos,
    /// For how long the claims of a host that is gone are kept.
    pub stale_life: Nanos,
    /// For how long a learned endpoint is answered for after it said itself that it has an address;
    /// then the question goes to it.
    pub confirmed_life: Nanos,
}

impl Config {
    /// For host `own` with up to that many ports: what the parts take for themselves, 1.2 million
    /// claims, 56 Ki encap flows that stay for 5 minutes unused, and a day for hosts that are gone.
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

/// Where a frame goes from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Out of one of its ports.
    Port(PortId),
    /// In VXLAN to another host.
    Host(HostId),
}

/// Where a punted frame came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PuntFrom {
    /// At a port of this host.
    Port(PortId),
    /// In VXLAN from another host.
    Host(HostId),
}

/// What another host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It speaks for its own endpoints.
    Member,
    /// A VTEP that does not speak the protocol: its endpoints are learned from its frames.
    Foreign,
}

/// What the switch is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Put an endpoint into the chip, over what it knew of it, and release the frames that wait.
    Install {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
        /// Where it is.
        to: Way,
    },
    /// Take an endpoint out of the chip.
    Remove {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
    },
    /// End the frames that wait for an endpoint: nobody is found.
    Reject {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
    },
    /// Send a frame. One to a host needs no tunnel: it is encapsulated in software.
    Send {
        /// The network.
        vni: Vni,
        /// To whom.
        to: Way,
        /// From its destination address on, without frame check sequence.
        frame: Vec<u8>,
    },
    /// Flood a frame as if it had just come in there, uncharged: one that the switch took, or a
    /// question in the name of a sender there.
    Flood {
        /// The network.
        vni: Vni,
        /// Where it came in.
        from: Way,
        /// From its destination address on, without frame check sequence.
        frame: Vec<u8>,
    },
    /// Count frames that the switch took as ended: they are neither answered nor flooded. It comes
    /// after all other commands, with everything that has come together.
    Refuse {
        /// Where they came in.
        port: PortId,
        /// Why they end.
        reason: DropReason,
        /// How many.
        frames: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// Make the tunnel to a host. It comes before whatever needs it.
    OpenTunnel {
        /// The host.
        host: HostId,
    },
    /// Give the tunnel to a host back. Nothing in the chip needs it.
    CloseTunnel {
        /// The host.
        host: HostId,
    },
    /// Take a decap flow out of the chip. Its next frame is a first one again.
    ForgetDecap {
        /// The network.
        vni: Vni,
        /// The host that the flow comes from.
        host: HostId,
    },
    /// Have a bound endpoint use an address no more, or be bound no more: another host has taken it
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
    /// asks; without priorities, let them go. It comes before all others, and again and again while
    /// it stands: whoever hears nothing of it for [`crate::hold::LEASE`] lets go.
    Hold {
        /// The network.
        vni: Vni,
        /// The endpoint.
        mac: Mac,
        /// Its host.
        host: HostId,
        /// Priorities to hold.
        held: PriorityMask,
        /// Those among them whose frames end: the hold contract of the receiver is over.
        stuck: PriorityMask,
    },
}

/// Why a flow or tunnel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// It was not used for its life.
    Idle,
    /// There was no room, and it was used least recently.
    Evicted,
    /// The endpoint is elsewhere.
    Moved,
    /// Nobody claims the endpoint any more.
    Withdrawn,
    /// The host or the network is no longer configured.
    Removed,
}

/// What is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Full {
    /// The vport table.
    Claims,
    /// What waits for an endpoint that nobody claims yet.
    Wanted,
    /// Encap flows: the least recently used one went.
    Flows,
    /// Commands that wait to be carried out.
    Commands,
    /// Endpoints of foreign hosts: the one that was not heard of for longest went.
    Foreign,
}

/// Something to tell people.
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
        /// Where it was.
        from: HostId,
        /// Where it is.
        to: HostId,
        /// Why.
        why: mobility::Why,
    },
    /// Nobody claims an endpoint any more.
    VportWithdrawn(Key, HostId, mobility::Why),
    /// Several endpoints have one address.
    Conflict {
        /// The endpoint that came last.
        key: Key,
        /// The address.
        ip: IpAddr,
        /// Who else has it, if that is known.
        holder: Option<Mac>,
    },
    /// An address left an own endpoint: another one has announced it, or is bound with it.
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
    /// An own endpoint is bound elsewhere, too, or its address to another one: neither is later.
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
    /// An endpoint has moved too often lately: so many times.
    MovesOften(Key, u32),
    /// A frame says of its source what must not be believed: spoofed, over its quota, and so on.
    Refused(PortId, Key, learn::Reason),
    /// An endpoint at an own port is not claimed: frozen, sticky or bound elsewhere.
    Held(PortId, Key, Refusal),
    /// Somebody is behind an own port.
    LinkUp(PortId),
    /// Nobody is behind an own port any more: its link is down, or its namespace is gone.
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
    /// So many claims of a host are stale now.
    ClaimsStale(HostId, u64),
    /// So many claims of a host are live again.
    ClaimsLive(HostId, u64),
    /// All claims of a host are forgotten.
    ClaimsEvicted(HostId),
    /// A tunnel was made.
    TunnelOpened(HostId),
    /// A tunnel was given back.
    TunnelClosed(HostId, End),
    /// An encap flow was made.
    FlowMade(Key, HostId),
    /// An encap flow ended.
    FlowEnded(Key, HostId, End),
    /// A decap flow was made.
    DecapMade(Vni, HostId),
    /// A decap flow ended.
    DecapEnded(Vni, HostId, End),
    /// An own port does not take what comes, and has lost its claim on what all share; or other
    /// priorities of it, or other hosts send to it.
    Isolated(PortId, Receiver),
    /// An own port takes what comes again.
    Restored(PortId),
    /// A host asks that frames for an endpoint of its be held here.
    HoldBegun(Key, HostId),
    /// They are not held any more.
    HoldEnded(Key, HostId),
    /// A host sends to an isolated port, and its version knows no holds.
    HoldsUnknown(HostId),
    /// A host did something wrong in questions and answers, for the first time on its connection.
    WrongTalk(HostId, rpc::Wrong),
    /// A host claims what it is not believed of, for the first time in its snapshot.
    OutOfBounds(HostId, Key, Bound),
    /// Something is full.
    Full(Full),
}

impl Event {
    /// The name of its kind.
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

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Punts that were looked at.
    pub punts: u64,
    /// Punts that the policer refused; [`punt::Policer::refused`] says why.
    pub punts_refused: u64,
    /// Punts that were no frame, or not from a port or host of that network.
    pub punts_unfit: u64,
    /// Frames that the switch took and that were given back to be flooded.
    pub flooded: u64,
    /// Frames that the switch took and that ended, for [`Command::Refuse`]'s reasons.
    pub refused: u64,
    /// Frames of other hosts for an endpoint that is elsewhere.
    pub misdirected: u64,
    /// Questions that were asked of all in the name of a sender.
    pub asked: u64,
    /// Frames to senders whose frames go where nobody is, of who has the address now, and their
    /// questions that were taken to that endpoint.
    pub told: u64,
    /// Questions to own endpoints whether they have an address still.
    pub probed: u64,
    /// Announcements in the name of own endpoints.
    pub announced: u64,
    /// Installs and frames that were given up because commands were not taken.
    pub commands_lost: u64,
    /// Events that were given up because they were not taken.
    pub events_lost: u64,
    /// Datagrams that were given up because they were not taken.
    pub datagrams_lost: u64,
    /// Claims that the table had no room for, own and foreign ones.
    pub claims_refused: u64,
    /// Destinations that could not be remembered as wanted.
    pub wanted_refused: u64,
    /// Encap flows that went for want of room.
    pub flows_evicted: u64,
    /// Endpoints of foreign hosts that went for want of room.
    pub foreign_evicted: u64,
    /// Endpoints of isolated ports that senders were not told of: more than a message names.
    pub holds_cut: u64,
}

/// Where the liveness of a host stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Nothing was heard of it.
    Unknown,
    /// It is alive, in this incarnation.
    Alive(u64),
    /// It did not answer.
    Suspected,
    /// It is dead, or left.
    Down,
}

/// A host, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// The host.
    pub host: HostId,
    /// What it is.
    pub kind: Kind,
    /// What the failure detector thinks.
    pub health: Health,
    /// Whether a session is up.
    pub is_up: bool,
    /// Since when its claims are stale, if they are.
    pub stale_since: Option<Nanos>,
    /// The incarnation and sequence of its claims that are here.
    pub have: sluice_wire::fabric::Have,
    /// Changes of this host that it has not acknowledged.
    pub lag: u64,
    /// How much it claims.
    pub claims: u64,
    /// What has happened in the session; nothing for a foreign host.
    pub counts: session::Counts,
}

/// An endpoint, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VportInfo {
    /// Who has it, where, since when, and what it is called.
    pub vport: crate::table::Vport,
    /// Whether it is this host's, live or stale.
    pub state: crate::directory::State,
    /// Where the chip sends it, if it is there, and when it was used last.
    pub installed: Option<(Way, Nanos)>,
    /// Until when it is frozen, if it is.
    pub frozen_until: Option<Nanos>,
    /// Whether it has moved too often lately.
    pub moves_often: bool,
    /// Its moves that are remembered, the oldest first.
    pub history: Vec<mobility::Move>,
}

/// A tunnel, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelInfo {
    /// The host at its other end.
    pub host: HostId,
    /// When it was made.
    pub opened: Nanos,
    /// Encap flows in it.
    pub encap_flows: u32,
    /// Decap flows in it.
    pub decap_flows: u32,
}
