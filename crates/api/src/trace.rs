//! Output of `sluice trace`: the path of a frame hop by hop, with reasons, and the counters of the
//! entries that the frame would use.
//!
//! The same types travel between hosts as the bodies of questions and answers. A host of another
//! version may know verdicts that this one does not: they are read as [`Verdict::Unknown`], and
//! their sentence and remedy come with them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::foreign::{LIST_MAX, clean};
use crate::show::{DropRow, PauseRow, PortRow, TunnelRow};

/// Version of these types.
pub const VERSION: u32 = 1;
/// Default time limit of a trace, in ms.
pub const LIMIT_MS: u32 = 2_000;
/// Longest time limit, in ms.
pub const LIMIT_MS_MAX: u32 = 8_000;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Name of the network.
    pub vnet: String,
    /// Sender: its MAC, one of its IP addresses, or its port: a port of this host, or of the one
    /// host that has a port of that name; or `HOST/PORT`.
    pub from: String,
    /// Receiver, named in the same forms.
    pub to: String,
    /// Ingress port at this host; absent: the port of the sender.
    pub port: Option<String>,
    /// Time limit of the answer, in ms.
    pub limit_ms: u32,
}

/// A question between hosts, which may have different names for a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Between {
    /// VNI of the network.
    pub vni: u32,
    /// MAC of the sender.
    pub from: String,
    /// MAC of the receiver, or one of its IP addresses.
    pub to: String,
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trace {
    /// Version of the types.
    pub version: u32,
    /// Network, by its name at the host that was asked.
    pub vnet: String,
    /// MAC of the sender.
    pub from: String,
    /// Receiver as in the question.
    pub to: String,
    /// Gravest verdict; of equal ones the first.
    pub verdict: Verdict,
    /// Grade of the verdict.
    pub grade: Grade,
    /// Name of the verdict's host, absent if the frame is delivered.
    pub at: Option<String>,
    /// Reason, in a sentence.
    pub why: String,
    /// Remedy; empty if nothing is wrong.
    pub remedy: String,
    /// Hosts on the path, in order.
    pub hops: Vec<Hop>,
}

/// Steps at one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// Name of the host.
    pub host: String,
    /// `asked`, `source` or `destination`.
    pub role: String,
    /// Steps, in order. Steps after a [`Grade::Stop`] are not examined.
    pub steps: Vec<Step>,
}

/// One step of the path at a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Object of the step: `source`, `port`, `resolve`, `chip`, `class`, `tunnel`, `agree`,
    /// `decap`, `output`, `host`.
    pub what: String,
    /// Verdict of the step.
    pub verdict: Verdict,
    /// Grade of the verdict.
    pub grade: Grade,
    /// Reason in a sentence, with names.
    pub why: String,
    /// Remedy; empty if nothing is wrong.
    pub remedy: String,
    /// Values of counters and clocks so far, by name: frames, or nanoseconds if the name ends so.
    pub seen: BTreeMap<String, u64>,
}

/// Grade of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// The frame continues.
    Pass,
    /// The frame continues, and something is not as it should be.
    Warn,
    /// The outcome is unknown.
    Unknown,
    /// The frame ends here.
    Stop,
}

impl Grade {
    /// Returns the word used in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Unknown => "unknown",
            Self::Stop => "stop",
        }
    }

    /// Returns the exit code of `sluice trace`. 1 and 2 mean that there is no verdict: no host
    /// answered, or the arguments are wrong.
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
        /// A verdict.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Verdict {
            $($(#[$doc])* $variant,)*
        }

        impl Verdict {
            /// All verdicts.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the word used in every output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the grade of the verdict.
            #[must_use]
            pub const fn grade(self) -> Grade {
                match self { $(Self::$variant => Grade::$grade),* }
            }

            /// Returns the remedy, in a sentence; empty if nothing is wrong.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self { $(Self::$variant => $remedy),* }
            }
        }
    };
}

verdicts! {
    /// The frame reaches the machine behind its port.
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
    /// The sender is unknown.
    SourceUnknown = "source_unknown", Stop,
        "Let it send a frame, or say with --port where it is.";
    /// The port is bound, and not to the sender.
    SpoofedMac = "spoofed_mac", Stop,
        "Let the machine use its own address, or add a `[[vport]]` for this one to the port.";
    /// The port has reached its limit of learned endpoints; the frame continues, but its sender is
    /// not announced to others.
    OverQuota = "over_quota", Warn,
        "Raise `fabric.learn_max`, or find out why so many addresses are behind the port.";
    /// The sender moved too often, and stays where it is known to be.
    Frozen = "frozen", Warn,
        "Look for two machines with one address: `sluice vport history MAC`.";
    /// The sender is known to be elsewhere: other hosts send to that place.
    ElsewhereClaimed = "claimed_elsewhere", Warn,
        "If it moved here, let it send a frame; if not, two machines have one address.";
    /// The port accepts frames.
    PortUp = "port_up", Pass, "";
    /// The port's device went away.
    PortGone = "port_gone", Stop, "Give the port its device back, and start the host again.";
    /// The port's device is not up.
    PortDown = "port_down", Stop, "Set the device up: `ip link set DEVICE up` in its namespace.";
    /// The port is not read until its frames are taken.
    HeldBack = "held_back", Warn, "Look at who does not take its frames: `sluice show queues`.";
    /// Frames wait for the port: its device takes nothing.
    Blocked = "blocked", Warn,
        "The machine behind the port does not read; frames wait, and then their senders.";
    /// Frames wait for the port: the other end sent a pause.
    Paused = "paused", Warn, "Look at the switch at the other end: it cannot take more.";
    /// The address is known to be an endpoint's.
    Resolved = "resolved", Pass, "";
    /// No endpoint has that IP address: the ARP or ND question goes to the ports and hosts
    /// concerned.
    IpUnknown = "ip_unknown", Stop,
        "Let the receiver send a frame with this address, or look for a typing error.";
    /// The address is of an endpoint whose host is silent: no host answers for it.
    IpStale = "ip_stale", Warn, "Look after that host: `sluice fabric members`.";
    /// The frame is for a group, and copied to its members.
    Group = "group", Pass, "";
    /// The forwarding table (FDB) has the receiver.
    Installed = "installed", Pass, "";
    /// The receiver's host asked for frames to be held here: the receiver does not take them.
    HeldRemote = "held_remote", Warn,
        "Look at the receiver, and at its host with `sluice fabric holds`; what is held waits.";
    /// Like `HeldRemote`, and for longer than the hold contract: frames for the receiver are
    /// dropped.
    StuckRemote = "stuck_remote", Warn,
        "The receiver has not read for longer than its `hold`: look at it, or give it another.";
    /// The forwarding table does not have the receiver, control does: the first frame waits until
    /// control installs it.
    WouldInstall = "would_install", Pass, "";
    /// No host claims the receiver: the frame waits, is asked for, and ends as `unresolved`.
    DestinationUnknown = "destination_unknown", Stop,
        "Let the receiver send a frame, or look for a typing error: `sluice vport list`.";
    /// The forwarding table sends the frame elsewhere than control would.
    ChipDiffers = "chip_differs", Warn,
        "It should pass within a second; if it stays, tell the makers, with this answer.";
    /// Sender and receiver are behind one port.
    SamePort = "same_port", Stop, "The machine behind the port has to hand it over itself.";
    /// The frame's priority is lossless on the whole path.
    Lossless = "lossless", Pass, "";
    /// The frame's priority may be dropped when a queue is full.
    Lossy = "lossy", Pass, "";
    /// A setting of the receiver's host differs, and must not.
    Differs = "differs", Warn, "Let both hosts say the same: `sluice fabric members`.";
    /// The tunnel is there.
    TunnelUp = "tunnel_up", Pass, "";
    /// The next hop of the tunnel is not known: the frame waits, and ends as `tunnel_down`.
    NextHopUnknown = "next_hop_unknown", Stop,
        "Look for the VTEP: `ip neigh` and `ip route get` in the namespace of the underlay.";
    /// The receiver's host does not have the network.
    NotInNetwork = "not_in_network", Stop, "Add the network to the `vnets` of that `[[peer]]`.";
    /// The receiver's host is silent: frames go there, and their fate is unknown.
    HostStale = "host_stale", Unknown, "Look after that host: `sluice fabric members`.";
    /// The receiver's host speaks no fabric protocol.
    ForeignHost = "foreign_host", Unknown, "Ask its own tools.";
    /// There is no connection to the host's control plane, or it broke while it was asked.
    NotConnected = "not_connected", Unknown,
        "Look at the log of both hosts, and `sluice fabric members`.";
    /// The host did not answer in time.
    NoAnswer = "no_answer", Unknown, "Ask again with a longer --limit-ms, or look after that host.";
    /// The host's version does not answer such questions.
    TooOld = "too_old", Unknown, "Upgrade that host.";
    /// The host refused, or could not be asked another question.
    Refused = "refused", Unknown, "Ask again; if it stays so, look at that host's log.";
    /// The host's answer cannot be read, or is too large.
    Unreadable = "unreadable", Unknown, "Compare the versions of the hosts.";
    /// The data process of the host does not answer.
    SwitchSilent = "switch_silent", Unknown,
        "Look at the log of that host: control starts a data process that ended again.";
    /// The frame is taken out of its tunnel.
    Accepted = "accepted", Pass, "";
    /// The receiver's host does not know the sender's VTEP.
    UnknownVtep = "unknown_vtep", Stop, "Add the sender's host as a `[[peer]]` there.";
    /// The receiver's host does not have the network, or the sender's host may not use it there.
    UnknownVni = "unknown_vni", Stop,
        "Add the network there, and to the `vnets` of the sender's host.";
    /// The receiver is not at the host where the sender's host believes it to be.
    MovedAway = "split_horizon", Stop,
        "It should pass within a second; if it stays, let the receiver send a frame.";
    /// The receiver is at this port.
    Here = "here", Pass, "";
    /// A verdict of a newer version.
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
    /// Makes a step with a verdict, and no counters.
    #[must_use]
    pub fn new(what: &str, verdict: Verdict, why: String) -> Self {
        let (grade, remedy) = (verdict.grade(), verdict.remedy().to_owned());
        Self { what: what.to_owned(), verdict, grade, why, remedy, seen: BTreeMap::new() }
    }

    /// Adds a counter.
    #[must_use]
    pub fn seen(mut self, name: &str, value: u64) -> Self {
        self.seen.insert(name.to_owned(), value);
        self
    }
}

impl Hop {
    /// Returns true if the frame ends there.
    #[must_use]
    pub fn stops(&self) -> bool {
        self.steps.iter().any(|step| step.grade == Grade::Stop)
    }
}

impl Trace {
    /// Summarizes the hops.
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

    /// Limits texts of another host to a bounded length, and removes terminal control codes.
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
    /// Cleans texts like [`Trace::clean`].
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

/// A question of control to its data process; the answer is of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Network, by its number in the configuration.
    pub vnet: u16,
    /// Addresses to look up in the forwarding table.
    pub macs: Vec<String>,
    /// Ports to report, beside those of the addresses.
    pub ports: Vec<u16>,
    /// Tunnels to report, beside those of the addresses.
    pub tunnels: Vec<u16>,
}

/// Destination of an address in the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// Out of this port.
    Port(u16),
    /// Into this tunnel.
    Tunnel(u16),
}

/// The data process's answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// Nanoseconds since the data process started.
    pub at_ns: u64,
    /// Destination of each address that was asked for.
    #[serde(rename = "chip")]
    pub fdb: Vec<Option<Destination>>,
    /// Ports, with the underlay.
    pub ports: Vec<PortLook>,
    /// Tunnels.
    pub tunnels: Vec<TunnelLook>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortLook {
    /// Number in the configuration.
    pub index: u16,
    /// Counters of the port.
    pub row: PortRow,
    /// Reason why it is closed, if its device went away.
    pub gone: Option<String>,
    /// True if its device is set up; absent if that cannot be known.
    pub up: Option<bool>,
    /// Number of frames that the switch would take from it now.
    pub window_frames: u32,
    /// True if its driver had no room at the last attempt.
    pub blocked: bool,
    /// Flow control by priority, if there was any.
    pub pauses: Vec<PauseRow>,
    /// Drops at the port.
    pub drops: Vec<DropRow>,
}

/// A tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelLook {
    /// Number in the configuration.
    pub index: u16,
    /// Counters of the tunnel.
    pub row: TunnelRow,
    /// Frames of the network that came out of the tunnel since the flow was made; absent if none
    /// did.
    pub decap_frames: Option<u64>,
}

#[cfg(test)]
mod tests;
