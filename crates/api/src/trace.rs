//! What `sluice trace` says of a frame: hop by hop what would become of it, why, and what the
//! counters of the very entries that it would use have seen.
//!
//! The same types go from host to host as the bodies of questions and answers. A host of another
//! version may know verdicts that this one does not: they are read as [`Verdict::Unknown`], and
//! their sentence and remedy come with them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::foreign::{LIST_MAX, clean};
use crate::show::{DropRow, PauseRow, PortRow, TunnelRow};

/// The version of these types.
pub const VERSION: u32 = 1;
/// How long a trace may take in ms, if nobody says.
pub const LIMIT_MS: u32 = 2_000;
/// The longest limit in ms.
pub const LIMIT_MS_MAX: u32 = 8_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The name of the network.
    pub vnet: String,
    /// The sender: its MAC, one of its IP addresses, or the port that it is behind: of this host,
    /// or of the one that has a port of that name; or `HOST/PORT`.
    pub from: String,
    /// The receiver, named the same ways.
    pub to: String,
    /// The port of this host at which the frame comes in; absent: where its sender is known to be.
    pub port: Option<String>,
    /// How long the answer may take, in ms.
    pub limit_ms: u32,
}

/// The same between hosts, which may call a network by different names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// The network's number on the wire.
    pub vni: u32,
    /// The MAC of the sender.
    pub from: String,
    /// The MAC of the receiver, or one of its IP addresses.
    pub to: String,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// The version of the types.
    pub version: u32,
    /// The network, as the host calls it that was asked.
    pub vnet: String,
    /// The MAC of the sender.
    pub from: String,
    /// What was asked for.
    pub to: String,
    /// The gravest verdict; of equal ones the first.
    pub verdict: Verdict,
    /// How grave it is.
    pub grade: Grade,
    /// Where: the name of the host, absent if it is delivered.
    pub at: Option<String>,
    /// Why, in a sentence.
    pub why: String,
    /// What to do; empty if nothing is wrong.
    pub remedy: String,
    /// The hosts on its way, in order.
    pub hops: Vec<Hop>,
}

/// What one host does with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The host.
    pub host: String,
    /// `asked`, `source` or `destination`.
    pub role: String,
    /// What happens there, in order. What comes after a [`Grade::Stop`] is not looked at.
    pub steps: Vec<Step>,
}

/// One thing that a host looks at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What is looked at: `source`, `port`, `resolve`, `chip`, `class`, `tunnel`, `agree`,
    /// `decap`, `output`, `host`.
    pub what: String,
    /// What is found.
    pub verdict: Verdict,
    /// How grave it is.
    pub grade: Grade,
    /// The same in a sentence, with names.
    pub why: String,
    /// What to do; empty if nothing is wrong.
    pub remedy: String,
    /// What counters and clocks have seen there so far, by name: frames, or nanoseconds if the name
    /// ends so.
    pub seen: BTreeMap<String, u64>,
}

/// How grave a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The frame goes on.
    Pass,
    /// It goes on, and something is not as it should be.
    Warn,
    /// Nobody can say.
    Unknown,
    /// It ends here.
    Stop,
}

impl Grade {
    /// The word used in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Stop => "stop",
        }
    }

    /// The exit code of `sluice trace`. 1 and 2 say that there is no verdict: nobody answered, or
    /// the arguments are wrong.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::Warn => 3,
            Self::Stop => 4,
            Self::Unknown => 5,
        }
    }
}

macro_rules! verdicts {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $grade:ident, $remedy:literal;)*) => {
        /// What is found.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Verdict {
            $($(#[$doc])* $variant,)*
        }

        impl Verdict {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word used in every output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// How grave it is.
            #[must_use]
            pub const fn grade(self) -> Grade {
                match self { $(Self::$variant => Grade::$grade),* }
            }

            /// What to do, in a sentence; empty if nothing is wrong.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),* }
            }
        }
    };
}

verdicts! {
    /// It reaches the machine behind its port.
    Delivered = "delivered", Pass, "";
    /// The sender is bound to the port.
    Bound = "bound", Pass, "";
    /// The sender is bound to the port, and at another host as well.
    BoundTwice = "bound_twice", Warn,
        "Delete one of the two ports, or let one take the binding: `sluice port add --move`.";
    /// The sender was learned at the port.
    Learned = "learned", Pass, "";
    /// The sender would be learned at the port from this frame.
    WouldLearn = "would_learn", Pass, "";
    /// The sender is at another host, which was asked.
    SourceElsewhere = "source_elsewhere", Pass, "";
    /// Nobody has heard of the sender.
    SourceUnknown = "source_unknown", Stop,
        "Let it send a frame, or say with --port where it is.";
    /// The port is bound, and not to the sender.
    SpoofedMac = "spoofed_mac", Stop,
        "Let the machine use its own address, or add a `[[vport]]` for this one to the port.";
    /// The port has as many learned endpoints as it may; the frame goes on, its sender is not
    /// known to others.
    OverQuota = "over_quota", Warn,
        "Raise `fabric.learn_max`, or find out why so many addresses are behind the port.";
    /// The sender moved too often, and stays where it is known to be.
    Frozen = "frozen", Warn,
        "Look for two machines with one address: `sluice vport history MAC`.";
    /// The sender is known to be elsewhere: others send to that place.
    ElsewhereClaimed = "claimed_elsewhere", Warn,
        "If it moved here, let it send a frame; if not, two machines have one address.";
    /// The port takes frames.
    PortUp = "port_up", Pass, "";
    /// The port's device went away.
    PortGone = "port_gone", Stop, "Give the port its device back, and start the host again.";
    /// The port's device is not up.
    PortDown = "port_down", Stop, "Set the device up: `ip link set DEVICE up` in its namespace.";
    /// The port is not read until what it sent is taken.
    HeldBack = "held_back", Warn, "Look at who does not take its frames: `sluice show queues`.";
    /// What leaves by the port waits: its device takes nothing.
    Blocked = "blocked", Warn,
        "The machine behind the port does not read; frames wait, and then their senders.";
    /// What leaves by the port waits: the other end said pause.
    Paused = "paused", Warn, "Look at the switch at the other end: it cannot take more.";
    /// The address is known to be an endpoint's.
    Resolved = "resolved", Pass, "";
    /// Nobody has that IP address: the question goes to the ports and hosts that it concerns.
    IpUnknown = "ip_unknown", Stop,
        "Let the receiver send a frame with this address, or look for a typing error.";
    /// The address is of an endpoint whose host is silent: nobody answers for it.
    IpStale = "ip_stale", Warn, "Look after that host: `sluice fabric members`.";
    /// The frame is for a group, and copied to its members.
    Group = "group", Pass, "";
    /// The chip knows the receiver.
    Installed = "installed", Pass, "";
    /// Its host asked that frames for the receiver be held here: it does not take them.
    HeldRemote = "held_remote", Warn,
        "Look at the receiver, and at its host with `sluice fabric holds`; what is held waits.";
    /// The same, and for longer than its hold contract: frames for it end.
    StuckRemote = "stuck_remote", Warn,
        "The receiver has not read for longer than its `hold`: look at it, or give it another.";
    /// The chip does not, control does: the first frame waits and is answered for.
    WouldInstall = "would_install", Pass, "";
    /// Nobody claims the receiver: the frame waits, is asked for, and ends as `unresolved`.
    DestinationUnknown = "destination_unknown", Stop,
        "Let the receiver send a frame, or look for a typing error: `sluice vport list`.";
    /// The chip sends it elsewhere than control would.
    ChipDiffers = "chip_differs", Warn,
        "It should pass within a second; if it stays, tell the makers, with this answer.";
    /// Sender and receiver are behind one port.
    SamePort = "same_port", Stop, "The machine behind the port has to hand it over itself.";
    /// Its priority is lossless on the whole way.
    Lossless = "lossless", Pass, "";
    /// Its priority may be dropped when a queue is full.
    Lossy = "lossy", Pass, "";
    /// The receiver's host says otherwise what both must say alike.
    Differs = "differs", Warn, "Let both hosts say the same: `sluice fabric members`.";
    /// The tunnel is there.
    TunnelUp = "tunnel_up", Pass, "";
    /// The next hop of the tunnel is not known: the frame waits, and ends as `tunnel_down`.
    NextHopUnknown = "next_hop_unknown", Stop,
        "Look for the VTEP: `ip neigh` and `ip route get` in the namespace of the underlay.";
    /// The receiver's host does not have the network.
    NotInNetwork = "not_in_network", Stop, "Add the network to the `vnets` of that `[[peer]]`.";
    /// The receiver's host is silent: frames go there, and nobody knows what becomes of them.
    HostStale = "host_stale", Unknown, "Look after that host: `sluice fabric members`.";
    /// The receiver's host speaks no fabric protocol.
    ForeignHost = "foreign_host", Unknown, "Ask its own tools.";
    /// There is no connection to the host's control plane, or it broke while it was asked.
    NotConnected = "not_connected", Unknown,
        "Look at the log of both hosts, and `sluice fabric members`.";
    /// The host did not answer in time.
    NoAnswer = "no_answer", Unknown, "Ask again with a longer --limit-ms, or look after that host.";
    /// The host's version answers no such questions.
    TooOld = "too_old", Unknown, "Upgrade that host.";
    /// The host refused, or could not be asked one question more.
    Refused = "refused", Unknown, "Ask again; if it stays so, look at that host's log.";
    /// The host's answer cannot be read, or is too large.
    Unreadable = "unreadable", Unknown, "Compare the versions of the hosts.";
    /// The data process of the host does not answer.
    SwitchSilent = "switch_silent", Unknown,
        "Look at the log of that host: control starts a data process that ended again.";
    /// The frame is taken out of its tunnel.
    Accepted = "accepted", Pass, "";
    /// The receiver's host does not know where it comes from.
    UnknownVtep = "unknown_vtep", Stop, "Add the sender's host as a `[[peer]]` there.";
    /// The receiver's host does not have the network, or its sender's host may not use it there.
    UnknownVni = "unknown_vni", Stop,
        "Add the network there, and to the `vnets` of the sender's host.";
    /// The receiver is not at the host where the sender's host believes it to be.
    MovedAway = "split_horizon", Stop,
        "It should pass within a second; if it stays, let the receiver send a frame.";
    /// The receiver is at this port.
    Here = "here", Pass, "";
    /// What a newer version says.
    Unknown = "unknown", Unknown, "";
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Verdict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = Self::ALL.iter().find(|verdict| verdict.name() == name);
        Ok(known.copied().unwrap_or(Self::Unknown))
    }
}

impl Step {
    /// A step with a verdict, and nothing seen.
    #[must_use]
    pub fn new(what: &str, verdict: Verdict, why: String) -> Self {
        let (grade, remedy) = (verdict.grade(), verdict.remedy().to_owned());
        Self { what: what.to_owned(), verdict, grade, why, remedy, seen: BTreeMap::new() }
    }

    /// With a counter.
    #[must_use]
    pub fn seen(mut self, name: &str, value: u64) -> Self {
        self.seen.insert(name.to_owned(), value);
        self
    }
}

impl Hop {
    /// Whether the frame ends there.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.steps.iter().any(|step| step.grade == Grade::Stop)
    }
}

impl Trace {
    /// The whole of the hops.
    #[must_use]
    pub fn new(vnet: String, from: String, to: String, hops: Vec<Hop>) -> Self {
        let all = hops.iter().flat_map(|hop| hop.steps.iter().map(move |step| (hop, step)));
        let gravest = all.rev().max_by_key(|(_, step)| step.grade);
        let bad = gravest.filter(|(_, step)| step.grade > Grade::Pass);
        let (verdict, grade, at, why, remedy) = match bad {
            Some((hop, step)) => {
                let at = Some(hop.host.clone());
                (step.verdict, step.grade, at, step.why.clone(), step.remedy.clone())
            }
            None => {
                let last = hops.iter().rev().find_map(|hop| hop.steps.last());
                let why = last.map_or_else(String::new, |step| step.why.clone());
                (Verdict::Delivered, Grade::Pass, None, why, String::new())
            }
        };
        Self { version: VERSION, vnet, from, to, verdict, grade, at, why, remedy, hops }
    }

    /// What another host sent, with no more of it than a screen takes and nothing that would
    /// control one.
    pub fn clean(&mut self) {
        for text in [&mut self.vnet, &mut self.from, &mut self.to, &mut self.why, &mut self.remedy]
        {
            clean(text);
        }
        if let Some(at) = &mut self.at {
            clean(at);
        }
        self.hops.truncate(LIST_MAX);
        self.hops.iter_mut().for_each(Hop::clean);
    }
}

impl Hop {
    /// As [`Trace::clean`].
    pub fn clean(&mut self) {
        clean(&mut self.host);
        clean(&mut self.role);
        self.steps.truncate(LIST_MAX);
        for step in &mut self.steps {
            for text in [&mut step.what, &mut step.why, &mut step.remedy] {
                clean(text);
            }
            let seen = std::mem::take(&mut step.seen).into_iter().take(LIST_MAX);
            step.seen = seen
                .map(|(mut name, value)| {
                    clean(&mut name);
                    (name, value)
                })
                .collect();
        }
    }
}

/// What control asks its data process, all of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// The network, by its number in the configuration.
    pub vnet: u16,
    /// Addresses to look up in the chip.
    pub macs: Vec<String>,
    /// Ports to look at, beside those where the addresses are.
    pub ports: Vec<u16>,
    /// Tunnels to look at, beside those where the addresses are.
    pub tunnels: Vec<u16>,
}

/// Where the chip sends an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Out of this port.
    Port(u16),
    /// Into this tunnel.
    Tunnel(u16),
}

/// What the data process answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// Nanoseconds since the data process started.
    pub at_ns: u64,
    /// Where the chip sends each address that was asked for.
    pub chip: Vec<Option<Way>>,
    /// Ports, and the underlay.
    pub ports: Vec<PortLook>,
    /// Tunnels.
    pub tunnels: Vec<TunnelLook>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortLook {
    /// Its number in the configuration.
    pub index: u16,
    /// Its counters.
    pub row: PortRow,
    /// Why it is closed, if its device went away.
    pub gone: Option<String>,
    /// Whether its device is set up; absent if that cannot be known.
    pub up: Option<bool>,
    /// How many frames the switch would take from it now.
    pub window_frames: u32,
    /// Whether its driver had no room when it was last tried.
    pub blocked: bool,
    /// Its flow control by priority, where there was any.
    pub pauses: Vec<PauseRow>,
    /// What was dropped there.
    pub drops: Vec<DropRow>,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelLook {
    /// Its number in the configuration.
    pub index: u16,
    /// Its counters.
    pub row: TunnelRow,
    /// Frames of the network that came out of it since the flow was made; absent if none did.
    pub decap_frames: Option<u64>,
}

#[cfg(test)]
mod tests;
