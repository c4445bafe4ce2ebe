//! Resolution of addresses (proxy ARP): questions are answered here instead of flooded everywhere.
//!
//! An endpoint asks with ARP or with a Neighbor Solicitation, and its question goes to all
//! endpoints. The holder of the address is mostly known here, so that this host answers in the
//! place of the target (as RFC 9161 does for EVPN) and no other endpoint hears the question. If the
//! holder is not known for sure, the question goes on to the other ports of the network and to the
//! hosts that have it.
//!
//! ```text
//!                       the address is
//!   the frame is        live           stale  unknown  the asker's own   behind the asker's port
//!   a question          answer (1)     flood  flood    flood             flood
//!   a probe (DAD)       forward (2)    flood  flood    flood             flood
//!   an announcement     flood, for any holder: all shall hear it
//!   anything else       flood: an answer to all, a target that nobody can have, malformed frames
//! ```
//!
//! (1) Forwarded to the holder of the address alone, if the holder has not confirmed the address
//! for long (RFC 9161 clause 3.2 and the following ones). (2) Answered if the holder is bound: it
//! has the address by configuration, and no other endpoint can use it.
//!
//! A probe (RFC 5227 section 2.1.1; RFC 4862 clause 5.4) asks if *another* endpoint has the
//! address. A claim of the asker itself is no answer to that: the probe goes on, in case that an
//! unknown endpoint has the address.
//!
//! **Nothing is swallowed.** The switch took the frame, so a frame that is not answered is flooded,
//! or forwarded: an endpoint behind the asker's own port may have moved, and each asker waits for
//! an answer of its own. No budget applies here: the switch charged the frame to its port before it
//! took it.
//!
//! **Questions of this host itself**, in a sender's name ([`Resolver::ask`]), are frames of no
//! endpoint. The same target is asked for once in a gap, for all senders together, and each port
//! has a budget, so that frames to unknown addresses cost the hosts of the network little. The
//! frames that wait for the answer stay in the switch, and are dropped there under a reason.

use alloc::boxed::Box;
use alloc::vec;
use core::net::{IpAddr, Ipv6Addr};

use sluice_base::{Mac, Nanos, PortId, Vni};
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv6};

use crate::bucket::{Bucket, Pace, Rate};
use crate::directory::{Directory, Found, State};
use crate::frame::{Body, Frame, TAGS_MAX};
use crate::learn::{is_unicast_v4, is_unicast_v6};
use crate::recent::{Mark, Recent};

/// Size of the smallest frame in bytes, without frame check sequence (IEEE 802.3 clause 4A.4.2).
const FRAME_SIZE_MIN: usize = 60;
const TAG_SIZE: usize = sluice_wire::vlan::TAG_SIZE;
const PAYLOAD_START_MAX: usize = ethernet::HEADER_SIZE + TAGS_MAX * TAG_SIZE;
/// Size of the largest answer in bytes.
pub const ANSWER_SIZE_MAX: usize = PAYLOAD_START_MAX + ipv6::HEADER_SIZE + icmpv6::SIZE_MAX;

const _: () = assert!(ANSWER_SIZE_MAX >= FRAME_SIZE_MIN);

/// A frame that this host has made.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    bytes: [u8; ANSWER_SIZE_MAX],
    size: usize,
}

impl Answer {
    /// Returns the frame from its destination address on, without frame check sequence.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// Reason why a frame is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No endpoint is known to have the address.
    Unknown,
    /// The holder of the address may be dead.
    Stale,
    /// The asker wants to know if another endpoint has the address.
    Probe,
    /// The frame is an announcement.
    Announcement,
    /// The frame is not for this host to answer.
    Other(Ignored),
}

/// Reason why a frame is not for this host to answer, or a question is not asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ignored {
    /// The frame is no question and no announcement.
    NotAsked,
    /// The frame goes to one address; the data path brings it there.
    Unicast,
    /// No interface can have the address.
    NoTarget,
    /// The asker asks for itself.
    Itself,
    /// The holder of the address is at the asker's own port and hears the question.
    SamePort,
    /// The target was asked for just now.
    Repeated,
    /// The budget of the port is spent.
    AskLimit,
}

impl Ignored {
    /// Number of reasons.
    pub const COUNT: usize = 7;
}

/// Decision on a frame of neighbours that the switch took.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Send this out of the asker's port.
    Answer(Answer),
    /// Have the switch flood the frame, as it is.
    Flood(Why),
    /// Take the frame, as it is, to the endpoint that has the address, and to no other.
    Forward(Found),
}

/// Bounds of what this host asks in the name of senders.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Number of ports; [`PortId`]s are below it.
    pub ports: u16,
    /// Rate of questions for frames of a port.
    pub asks: Rate,
    /// Time for which the same target is not asked for again.
    pub gap: Nanos,
    /// Number of targets that are remembered for the gap.
    pub targets: u32,
}

impl Config {
    /// Returns the bounds for a host of that many ports: a hundred questions a second for a port,
    /// and the same target once in 200 ms, below the second after which a question is repeated (RFC
    /// 4861 clause 10).
    #[must_use]
    pub const fn new(ports: u16) -> Self {
        Self::with_rate(ports, 100)
    }

    /// As [`Self::new`], with that many questions a second for a port; half a second's worth may be
    /// asked at once.
    #[must_use]
    pub const fn with_rate(ports: u16, per_second: u32) -> Self {
        Self {
            ports,
            asks: Rate { per_second, burst: per_second.div_ceil(2) },
            gap: Nanos::from_millis(200),
            targets: 1 << 14,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    bucket: Bucket,
    answered: u64,
    forwarded: u64,
    flooded: u64,
    asked: u64,
    not_asked: [u64; Ignored::COUNT],
}

/// Answers questions for known addresses, and passes the others on.
#[derive(Debug)]
pub struct Resolver {
    pace: Pace,
    ports: Box<[Port]>,
    targets: Recent,
}

/// Purpose of a frame of neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// Find the holder of the address.
    Question(IpAddr),
    /// Find another endpoint that has the address.
    Probe(IpAddr),
    /// Tell all endpoints.
    Announcement(IpAddr),
}

impl Resolver {
    /// Creates a resolver with full budgets. The seed makes collisions in its memory hard to
    /// provoke.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        Self {
            pace: Pace::new(config.asks),
            ports: vec![Port::default(); usize::from(config.ports)].into(),
            targets: Recent::new(config.targets, config.gap, seed),
        }
    }

    /// Sets the rate of questions for frames of a port. Buckets keep what they have.
    pub fn set_rate(&mut self, asks: Rate) {
        self.pace = Pace::new(asks);
    }

    /// Decides on `frame`, which the switch took at the local port `asker` of network `vni`.
    ///
    /// # Panics
    /// If there is no such port.
    #[inline]
    pub fn resolve(
        &mut self,
        asker: PortId,
        vni: Vni,
        frame: &Frame<'_>,
        directory: &impl Directory,
    ) -> Action {
        let counters = &mut self.ports[asker.index()];
        let why = match decide(asker, vni, frame, directory) {
            Ok(Verdict::Answer(holder)) => {
                counters.answered += 1;
                return Action::Answer(answer(frame, holder));
            }
            Ok(Verdict::Forward(found)) => {
                counters.forwarded += 1;
                return Action::Forward(found);
            }
            Ok(Verdict::Flood(_, why)) => why,
            Err(why) => Why::Other(why),
        };
        counters.flooded += 1;
        Action::Flood(why)
    }

    /// Decides on `question`, which this host has made for a frame that came in at `asker`. A
    /// question that is refused may be tried again.
    ///
    /// # Errors
    /// The reason why the question is not asked. It is counted.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn ask(
        &mut self,
        now: Nanos,
        asker: PortId,
        vni: Vni,
        question: &Frame<'_>,
        directory: &impl Directory,
    ) -> Result<Action, Ignored> {
        let asked = self.may_ask(now, asker, vni, question, directory);
        let counters = &mut self.ports[asker.index()];
        match asked {
            Ok(_) => counters.asked += 1,
            Err(why) => counters.not_asked[why as usize] += 1,
        }
        asked
    }

    fn may_ask(
        &mut self,
        now: Nanos,
        asker: PortId,
        vni: Vni,
        question: &Frame<'_>,
        directory: &impl Directory,
    ) -> Result<Action, Ignored> {
        let (action, wanted) = match decide(asker, vni, question, directory)? {
            Verdict::Answer(holder) => (Action::Answer(answer(question, holder)), None),
            Verdict::Forward(found) => (Action::Forward(found), None),
            Verdict::Flood(Wants::Question(ip), why) => (Action::Flood(why), Some(ip)),
            Verdict::Flood(..) => return Err(Ignored::NotAsked),
        };
        // One flood serves all ports that want the target.
        let mark = wanted.map(|ip| Mark::new(vni, Mac::default(), Some(ip), 0));
        if mark.is_some_and(|mark| self.targets.contains(now, &mark)) {
            return Err(Ignored::Repeated);
        }
        if !self.pace.try_take(now, &mut self.ports[asker.index()].bucket) {
            return Err(Ignored::AskLimit);
        }
        if let Some(mark) = mark {
            self.targets.insert(now, mark);
        }
        Ok(action)
    }

    /// Number of questions of `port` that were answered.
    #[must_use]
    pub fn answered(&self, port: PortId) -> u64 {
        self.ports[port.index()].answered
    }

    /// Number of questions of `port` that went to the endpoint that was asked for.
    #[must_use]
    pub fn forwarded(&self, port: PortId) -> u64 {
        self.ports[port.index()].forwarded
    }

    /// Number of frames of `port` that were flooded.
    #[must_use]
    pub fn flooded(&self, port: PortId) -> u64 {
        self.ports[port.index()].flooded
    }

    /// Number of questions that were asked for frames of `port`.
    #[must_use]
    pub fn asked(&self, port: PortId) -> u64 {
        self.ports[port.index()].asked
    }

    /// Number of questions that were not asked for frames of `port`, for that reason.
    #[must_use]
    pub fn not_asked(&self, port: PortId, why: Ignored) -> u64 {
        self.ports[port.index()].not_asked[why as usize]
    }
}

/// The right decision, regardless of budgets.
#[derive(Clone, Copy)]
enum Verdict {
    /// The holder of the address would answer this.
    Answer(Mac),
    /// The holder of the address is to answer this itself.
    Forward(Found),
    Flood(Wants, Why),
}

fn decide(
    asker: PortId,
    vni: Vni,
    frame: &Frame<'_>,
    directory: &impl Directory,
) -> Result<Verdict, Ignored> {
    let wants = wants_of(frame)?;
    let (Wants::Question(ip) | Wants::Probe(ip) | Wants::Announcement(ip)) = wants;
    let can_be = match ip {
        IpAddr::V4(ip) => is_unicast_v4(ip),
        IpAddr::V6(ip) => is_unicast_v6(ip),
    };
    if !can_be {
        return Err(Ignored::NoTarget);
    }
    if let Wants::Announcement(_) = wants {
        return Ok(Verdict::Flood(wants, Why::Announcement));
    }
    let Some(found @ Found { claim, state, .. }) = directory.find_ip(vni, ip) else {
        return Ok(Verdict::Flood(wants, Why::Unknown));
    };
    let is_probe = wants == Wants::Probe(ip);
    match state {
        _ if claim.key.mac == frame.src && is_probe => Ok(Verdict::Flood(wants, Why::Probe)),
        _ if claim.key.mac == frame.src => Err(Ignored::Itself),
        State::Stale => Ok(Verdict::Flood(wants, Why::Stale)),
        State::Own if claim.port == asker => Err(Ignored::SamePort),
        // Its link is down: a flood may find the address at another endpoint all the same.
        _ if claim.is_down(ip) => Ok(Verdict::Flood(wants, Why::Stale)),
        _ if claim.is_bound_with(ip) => Ok(Verdict::Answer(claim.key.mac)),
        _ if is_probe || !directory.is_confirmed(claim.key, ip) => Ok(Verdict::Forward(found)),
        State::Own | State::Authoritative => Ok(Verdict::Answer(claim.key.mac)),
    }
}

fn wants_of(frame: &Frame<'_>) -> Result<Wants, Ignored> {
    let wants = match frame.body {
        Body::Arp(arp) if arp.is_gratuitous() => Wants::Announcement(arp.sender_ip.into()),
        Body::Arp(arp) if arp.is_probe() => Wants::Probe(arp.target_ip.into()),
        Body::Arp(arp) if arp.operation == arp::Operation::REQUEST => {
            Wants::Question(arp.target_ip.into())
        }
        Body::Neighbor { src, message, .. } => match message {
            icmpv6::Repr::Solicitation { target, .. } if src.is_unspecified() => {
                Wants::Probe(target.into())
            }
            icmpv6::Repr::Solicitation { target, .. } => Wants::Question(target.into()),
            icmpv6::Repr::Advertisement { target, solicited: false, .. } => {
                Wants::Announcement(target.into())
            }
            icmpv6::Repr::Advertisement { .. } => return Err(Ignored::NotAsked),
        },
        Body::Arp(_) | Body::Malformed | Body::Other => return Err(Ignored::NotAsked),
    };
    if frame.dst.is_group() { Ok(wants) } else { Err(Ignored::Unicast) }
}

/// Returns the frame with which `holder` would answer the question in `frame`, with the tags of the
/// question, padded to the smallest frame.
fn answer(frame: &Frame<'_>, holder: Mac) -> Answer {
    let mut bytes = [0; ANSWER_SIZE_MAX];
    let tags = frame.tags.len();
    let payload = &mut bytes[ethernet::HEADER_SIZE + tags..];
    let (dst, ethertype, size) = match frame.body {
        Body::Arp(request) => {
            request.reply(holder).emit(payload);
            (frame.src, EtherType::ARP, arp::SIZE)
        }
        Body::Neighbor { src, message: icmpv6::Repr::Solicitation { target, .. }, .. } => {
            let dst = advertise(src, target, holder, payload);
            let dst = if dst.is_multicast() { ipv6::group_mac(dst) } else { frame.src };
            (dst, EtherType::IPV6, ipv6::HEADER_SIZE + icmpv6::SIZE_MAX)
        }
        _ => unreachable!("only questions are answered"),
    };
    // The header is written over the place of the tags; its type is copied behind the tags again.
    ethernet::Repr { dst, src: holder, ethertype }.emit(&mut bytes);
    let type_start = ethernet::HEADER_SIZE - size_of::<EtherType>();
    bytes.copy_within(type_start..ethernet::HEADER_SIZE, type_start + tags);
    bytes[type_start..type_start + tags].copy_from_slice(frame.tags);
    let size = (ethernet::HEADER_SIZE + tags + size).max(FRAME_SIZE_MIN);
    Answer { bytes, size }
}

/// Writes the advertisement of `target` at `holder` for `asker`, and returns its destination (RFC
/// 4861 clause 7.2.4). An asker without an address is answered at the address of all nodes. The
/// advertisement overrides, as the target's own would.
pub(crate) fn advertise(
    asker: Ipv6Addr,
    target: Ipv6Addr,
    holder: Mac,
    out: &mut [u8],
) -> Ipv6Addr {
    let solicited = !asker.is_unspecified();
    let dst = if solicited { asker } else { icmpv6::ALL_NODES };
    let message = icmpv6::Repr::Advertisement {
        target,
        target_mac: Some(holder),
        router: false,
        solicited,
        overrides: true,
    };
    emit_message(target, dst, message, out);
    dst
}

/// Writes a message of Neighbor Discovery behind its IPv6 header.
pub(crate) fn emit_message(src: Ipv6Addr, dst: Ipv6Addr, message: icmpv6::Repr, out: &mut [u8]) {
    let header = ipv6::Repr {
        src,
        dst,
        next_header: icmpv6::PROTOCOL,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: icmpv6::HOP_LIMIT,
        payload_size: u16::try_from(message.size()).expect("32 bytes"),
    };
    header.emit(out);
    message.emit(src, dst, &mut out[ipv6::HEADER_SIZE..]);
}

#[cfg(test)]
mod tests;
