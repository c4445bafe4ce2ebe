//! Resolution: where an address is, answered here instead of asked everywhere.
//!
//! An endpoint asks with ARP or with a Neighbor Solicitation, and its question goes to everybody.
//! Who has the address is mostly known here, so that this host answers in the place of the target
//! (as RFC 9161 does for EVPN) and nobody else hears of it. What is not known for sure is asked on:
//! at the other ports of the network, and at the hosts that have it.
//!
//! ```text
//!                       the address is
//!   the frame is        live           stale  unknown  the asker's own   behind the asker's port
//!   a question          answer (1)     flood  flood    ignore            ignore
//!   a probe (DAD)       forward (2)    flood  flood    flood             ignore
//!   an announcement     flood, whoever has it: all shall hear it
//!   a reply, unicast    ignore: the data path brings it to whom it is for
//! ```
//!
//! (1) Forwarded to the endpoint that has it, and to nobody else, if that has not said so itself
//! for long (RFC 9161 clause 3.2 and those that follow). (2) Answered if the endpoint is bound: it
//! has the address by configuration, and nobody else can use it.
//!
//! A probe (RFC 5227 section 2.1.1; RFC 4862 clause 5.4) asks whether somebody *else* has the
//! address. A claim of the asker itself is no answer to that: it is asked on, in case that somebody
//! has it whom nobody knows.
//!
//! Floods cost every host of the network. The same one goes once in a gap, and there is a budget
//! for each port and one for all ports of the host.

use alloc::boxed::Box;
use alloc::vec;
use core::net::{IpAddr, Ipv6Addr};

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_wire::{EtherType, arp, ethernet, icmpv6, ipv6};

use crate::bucket::{Bucket, Pace, Rate};
use crate::directory::{Directory, Found, Places, State};
use crate::frame::{Body, Frame, TAGS_MAX};
use crate::learn::{is_unicast_v4, is_unicast_v6};
use crate::recent::{Mark, Recent};
use crate::vport::Origin;

/// The smallest frame in bytes, without frame check sequence (IEEE 802.3 clause 4A.4.2).
const FRAME_SIZE_MIN: usize = 60;
const TAG_SIZE: usize = sluice_wire::vlan::TAG_SIZE;
const PAYLOAD_START_MAX: usize = ethernet::HEADER_SIZE + TAGS_MAX * TAG_SIZE;
/// The size of the largest answer in bytes.
pub const ANSWER_SIZE_MAX: usize = PAYLOAD_START_MAX + ipv6::HEADER_SIZE + icmpv6::SIZE_MAX;

const _: () = assert!(ANSWER_SIZE_MAX >= FRAME_SIZE_MIN);

/// A frame that this host has made.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    bytes: [u8; ANSWER_SIZE_MAX],
    size: usize,
}

impl Answer {
    /// The frame from its destination address on, without frame check sequence.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.size]
    }
}

/// Why a frame goes to everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Why {
    /// Nobody is known to have the address.
    Unknown,
    /// Who has it may be dead.
    Stale,
    /// The asker wants to know whether somebody else has it.
    Probe,
    /// It is an announcement.
    Announcement,
}

/// Why nothing is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ignored {
    /// It is no question and no announcement.
    NotAsked,
    /// It goes to one address; the data path brings it there.
    Unicast,
    /// No interface can have the address.
    NoTarget,
    /// The asker asks for itself.
    Itself,
    /// Who has it is at the asker's own port and hears the question.
    SamePort,
    /// It went to everybody just now.
    Repeated,
    /// Its port, or all ports together, have flooded enough.
    FloodLimit,
}

impl Ignored {
    /// How many there are.
    pub const COUNT: usize = 7;
}

/// What to do with a punted frame of neighbours.
#[derive(Clone, Copy, Debug)]
pub enum Action<'a> {
    /// Send this out of the asker's port.
    Answer(Answer),
    /// Send a copy of the frame, as it is, out of the ports of its network, and in VXLAN to the
    /// hosts that have the network.
    Flood {
        /// Why.
        why: Why,
        /// To whom.
        to: Receivers<'a>,
    },
    /// Take the frame, as it is, to the endpoint that has the address, and to nobody else.
    Forward(Found),
    /// Do nothing.
    Ignore(Ignored),
}

/// Who gets a flooded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receivers<'a> {
    asker: PortId,
    ports: &'a [PortId],
    hosts: &'a [HostId],
}

impl Receivers<'_> {
    /// The ports of this host, without the asker's.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + '_ {
        self.ports.iter().copied().filter(|&port| port != self.asker)
    }

    /// The other hosts.
    pub fn hosts(&self) -> impl Iterator<Item = HostId> + '_ {
        self.hosts.iter().copied()
    }
}

/// How much is flooded.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many ports there are; [`PortId`]s are below it.
    pub ports: u16,
    /// How many frames of a port.
    pub port: Rate,
    /// How many frames of all ports.
    pub all: Rate,
    /// For how long the same is not flooded again.
    pub gap: Nanos,
    /// How many floods are remembered for that.
    pub floods: u32,
}

impl Config {
    /// For a host of that many ports: a hundred floods a second of a port, a thousand of the host,
    /// and the same one once in 200 ms, below the second after which a question is repeated (RFC
    /// 4861 clause 10).
    #[must_use]
    pub const fn new(ports: u16) -> Self {
        Self {
            ports,
            port: Rate { per_second: 100, burst: 50 },
            all: Rate { per_second: 1_000, burst: 500 },
            gap: Nanos::from_millis(200),
            floods: 1 << 14,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Port {
    bucket: Bucket,
    answered: u64,
    forwarded: u64,
    flooded: u64,
    ignored: [u64; Ignored::COUNT],
}

/// Answers what is known and asks on what is not.
#[derive(Debug)]
pub struct Resolver {
    port_pace: Pace,
    all_pace: Pace,
    all: Bucket,
    ports: Box<[Port]>,
    floods: Recent,
}

/// What a frame of neighbours wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// To know who has the address.
    Question(IpAddr),
    /// To know whether anybody else has it.
    Probe(IpAddr),
    /// To tell everybody.
    Announcement(IpAddr),
}

impl Resolver {
    /// A resolver with full budgets. The seed makes collisions in its memory hard to provoke.
    #[must_use]
    pub fn new(config: &Config, seed: u64) -> Self {
        Self {
            port_pace: Pace::new(config.port),
            all_pace: Pace::new(config.all),
            all: Bucket::default(),
            ports: vec![Port::default(); usize::from(config.ports)].into(),
            floods: Recent::new(config.floods, config.gap, seed),
        }
    }

    /// What to do with `frame`, which came in at the local port `asker` of network `vni`.
    ///
    /// # Panics
    /// If there is no such port.
    #[inline]
    pub fn resolve<'a>(
        &mut self,
        now: Nanos,
        asker: PortId,
        vni: Vni,
        frame: &Frame<'_>,
        directory: &impl Directory,
        places: &'a impl Places,
    ) -> Action<'a> {
        let mut verdict = decide(asker, vni, frame, directory);
        if let Ok(Verdict::Flood(wants, _)) = verdict
            && let Err(ignored) = self.may_flood(now, asker, vni, frame.src, wants)
        {
            verdict = Err(ignored);
        }
        let counters = &mut self.ports[asker.index()];
        match verdict {
            Err(ignored) => {
                counters.ignored[ignored as usize] += 1;
                Action::Ignore(ignored)
            }
            Ok(Verdict::Answer(holder)) => {
                counters.answered += 1;
                Action::Answer(answer(frame, holder))
            }
            Ok(Verdict::Forward(found)) => {
                counters.forwarded += 1;
                Action::Forward(found)
            }
            Ok(Verdict::Flood(_, why)) => {
                counters.flooded += 1;
                let (ports, hosts) = (places.ports(vni), places.hosts(vni));
                Action::Flood { why, to: Receivers { asker, ports, hosts } }
            }
        }
    }

    /// Whether a flood is new, and within its budgets. One that is refused may be tried again.
    fn may_flood(
        &mut self,
        now: Nanos,
        asker: PortId,
        vni: Vni,
        src: Mac,
        wants: Wants,
    ) -> Result<(), Ignored> {
        // A question is anybody's. A probe and an announcement are their sender's: another's with
        // the same address at the same time is just what they are for.
        let mark = match wants {
            Wants::Question(ip) => Mark::new(vni, Mac::default(), Some(ip), 0),
            Wants::Probe(ip) => Mark::new(vni, src, Some(ip), 1),
            Wants::Announcement(ip) => Mark::new(vni, src, Some(ip), 2),
        };
        if self.floods.contains(now, &mark) {
            return Err(Ignored::Repeated);
        }
        let bucket = &mut self.ports[asker.index()].bucket;
        // The port pays only for what the host may do.
        if !self.port_pace.has(now, *bucket) || !self.all_pace.try_take(now, &mut self.all) {
            return Err(Ignored::FloodLimit);
        }
        self.port_pace.take(now, bucket);
        self.floods.insert(now, mark);
        Ok(())
    }

    /// How many questions of `port` were answered.
    #[must_use]
    pub fn answered(&self, port: PortId) -> u64 {
        self.ports[port.index()].answered
    }

    /// How many questions of `port` went to the endpoint that was asked for.
    #[must_use]
    pub fn forwarded(&self, port: PortId) -> u64 {
        self.ports[port.index()].forwarded
    }

    /// How many frames of `port` went to everybody.
    #[must_use]
    pub fn flooded(&self, port: PortId) -> u64 {
        self.ports[port.index()].flooded
    }

    /// How many frames of `port` were ignored, for that reason.
    #[must_use]
    pub fn ignored(&self, port: PortId, why: Ignored) -> u64 {
        self.ports[port.index()].ignored[why as usize]
    }
}

/// What is right to do, were there no budgets.
#[derive(Clone, Copy)]
enum Verdict {
    /// The holder of the address would answer this.
    Answer(Mac),
    /// The holder of the address is to say so itself.
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
        // Its link is down: whoever is asked for by name may be found all the same.
        _ if claim.is_down(ip) => Ok(Verdict::Flood(wants, Why::Stale)),
        _ if claim.origin == Origin::Bound => Ok(Verdict::Answer(claim.key.mac)),
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

/// The frame with which `holder` would answer the question in `frame`, with the tags of the
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
    // The header is written over the place of the tags, and its type again behind them.
    ethernet::Repr { dst, src: holder, ethertype }.emit(&mut bytes);
    let type_start = ethernet::HEADER_SIZE - size_of::<EtherType>();
    bytes.copy_within(type_start..ethernet::HEADER_SIZE, type_start + tags);
    bytes[type_start..type_start + tags].copy_from_slice(frame.tags);
    let size = (ethernet::HEADER_SIZE + tags + size).max(FRAME_SIZE_MIN);
    Answer { bytes, size }
}

/// Writes the advertisement of `target` at `holder` for `asker`, and returns to whom it goes (RFC
/// 4861 clause 7.2.4). Who asks without an address is told together with all others. It overrides,
/// as the target's own would.
fn advertise(asker: Ipv6Addr, target: Ipv6Addr, holder: Mac, out: &mut [u8]) -> Ipv6Addr {
    let solicited = !asker.is_unspecified();
    let dst = if solicited { asker } else { icmpv6::ALL_NODES };
    let message = icmpv6::Repr::Advertisement {
        target,
        target_mac: Some(holder),
        router: false,
        solicited,
        overrides: true,
    };
    let header = ipv6::Repr {
        src: target,
        dst,
        next_header: icmpv6::PROTOCOL,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: icmpv6::HOP_LIMIT,
        payload_size: u16::try_from(message.size()).expect("32 bytes"),
    };
    header.emit(out);
    message.emit(target, dst, &mut out[ipv6::HEADER_SIZE..]);
    dst
}

#[cfg(test)]
mod tests;
