//! `sluice trace`: the path of a frame, hop by hop, and the counters of the entries on it.
//!
//! ```text
//!   asked host ── the sender is mine? ── no: Topic::TRACE ──> the sender's host
//!        │ yes                                                     │
//!        └────────────────────────┬────────────────────────────────┘
//!              facts of control, a look at the switch, verdicts (`judge`)
//!                                 │ another host has the receiver
//!                                 └──> Topic::ARRIVAL ──> facts, look, verdicts there
//! ```
//!
//! A trace runs in a thread of its own that may wait; the fabric's thread and the worker only read
//! their state and continue. Each host on the path gets less time than the one that asks it, so
//! that a host that hangs costs only its own part of the answer. A host that is asked asks at most
//! the receiver's, which asks no other: there is no cycle.

mod facts;
mod judge;
mod names;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sluice_api::agree::Difference;
use sluice_api::trace::{Between, Hop, LIMIT_MS_MAX, Look, Looked, Question, Step, Trace, Verdict};
use sluice_base::{HostId, Mac, Nanos, Vni};
use sluice_control::directory::State;
use sluice_control::plane::Plane;
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

pub(super) use self::facts::Facts;
use self::facts::{Claimed, Frame, LocalPort, To};
use self::judge::Next;
pub(super) use self::names::{Found, NameQuery as Named, find};
use super::Fabric;
use super::ports::Ports;
use crate::config::FabricPlan;
use crate::ipc::protocol::{self, Request};
use crate::sys::clock;
use crate::sys::run_dir::DATA_SOCKET;

/// Origin of a question, which decides about the facts.
#[derive(Clone, Debug)]
pub(super) enum Query {
    /// A question at this host.
    Asked(Question),
    /// A member's question: this host has the sender.
    Trace(HostId, Between),
    /// A member's question: this host has the receiver, and the member the sender.
    Arrival(HostId, Between),
}

/// Deadline of the answer.
#[derive(Clone, Copy, Debug)]
struct Time(Nanos);

impl Time {
    fn new(limit: Nanos) -> Self {
        Self(clock::now().after(limit))
    }

    fn left(self) -> Nanos {
        self.0.since(clock::now())
    }

    /// Returns most of the time left, so that an answer is possible when it is used up.
    fn most(self) -> Nanos {
        Nanos(self.left().0 / 8 * 7)
    }
}

/// Returns the facts of control. Runs in the fabric's thread.
pub(super) fn facts(
    plan: &FabricPlan,
    here: (&Ports, &Plane),
    wanted: &Query,
) -> Result<Facts, String> {
    match wanted {
        Query::Asked(question) => {
            let (_, vni) = plan.vnet_named(&question.vnet)?;
            let frame = Frame::read(vni, &question.from, &question.to)?;
            Facts::gather(plan, here, frame, question.port.as_deref())
        }
        Query::Trace(host, between) => {
            let frame = read(between)?;
            // A host that is not in the network learns nothing about it.
            let members = plan.hosts.iter().filter(|known| known.vnets.contains(&frame.vni));
            if !members.into_iter().any(|known| known.host == *host) {
                return Err("it is not in the network".to_owned());
            }
            Facts::gather(plan, here, frame, None)
        }
        Query::Arrival(host, between) => Facts::of_arrival(plan, here, read(between)?, *host),
    }
}

fn read(between: &Between) -> Result<Frame, String> {
    let vni = Vni::new(between.vni).ok_or_else(|| format!("{} is no VNI", between.vni))?;
    Frame::read(vni, &between.from, &between.to)
}

/// Answers a question of this host.
pub(super) fn run(fabric: &Fabric, question: &Question) -> Result<Trace, String> {
    let limit = question.limit_ms.clamp(1, LIMIT_MS_MAX);
    let time = Time::new(Nanos::from_millis(limit.into()));
    let question = match names::resolved(fabric, question, time)? {
        Ok(question) => question,
        Err(why) => return Ok(unheard(fabric, question, why)),
    };
    let facts = fabric.facts(Query::Asked(question), span(time.left()))?;
    let hops = hops(fabric, &facts, time, true);
    Ok(trace(&facts, hops))
}

/// Returns the trace for a sender whose IP address is unknown.
fn unheard(fabric: &Fabric, question: &Question, why: String) -> Trace {
    let steps = vec![Step::new("source", Verdict::SourceUnknown, why)];
    let hop = Hop { host: fabric.name().to_owned(), role: "asked".to_owned(), steps };
    Trace::new(question.vnet.clone(), question.from.clone(), question.to.clone(), vec![hop])
}

/// Answers a question of a member.
pub(super) fn serve(
    fabric: &Fabric,
    host: HostId,
    topic: Topic,
    limit: Nanos,
    body: &[u8],
) -> Result<Vec<u8>, Failure> {
    // The answer takes time as well.
    let time = Time::new(Nanos(limit.0 / 4 * 3));
    if topic == Topic::PORT {
        return names::serve(fabric, host, body, time);
    }
    let between: Between = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
    let gather = |wanted| fabric.facts(wanted, span(time.left())).map_err(|_| Failure::Refused);
    let answer = match topic {
        Topic::TRACE => {
            let facts = gather(Query::Trace(host, between))?;
            let hops = hops(fabric, &facts, time, false);
            serde_json::to_vec(&trace(&facts, hops))
        }
        Topic::ARRIVAL => {
            serde_json::to_vec(&arrive(fabric, &gather(Query::Arrival(host, between))?, time))
        }
        _ => return Err(Failure::UnknownTopic),
    };
    answer.map_err(|_| Failure::Refused)
}

fn trace(facts: &Facts, hops: Vec<Hop>) -> Trace {
    let vnet = facts.vnet.as_ref().map_or_else(String::new, |(_, name)| name.clone());
    Trace::new(vnet, facts.frame.from.to_string(), facts.frame.to_text(), hops)
}

fn hops(fabric: &Fabric, facts: &Facts, time: Time, may_ask: bool) -> Vec<Hop> {
    if let Some(port) = &facts.port {
        return from_here(fabric, facts, port, time);
    }
    let from = facts.frame.from;
    let here = |verdict, why| Hop {
        host: facts.host_name.clone(),
        role: "asked".to_owned(),
        steps: vec![Step::new("source", verdict, why)],
    };
    match &facts.source {
        None => vec![here(Verdict::SourceUnknown, format!("nobody has heard of {from}"))],
        Some(known) if !may_ask => {
            let why = format!("{from} is known to be at {}, not here", known.host_name);
            vec![here(Verdict::ElsewhereClaimed, why)]
        }
        Some(known) => {
            let why = format!("{from} is at {}, which is asked", known.host_name);
            let mut hops = vec![here(Verdict::SourceElsewhere, why)];
            hops.extend(from_there(fabric, facts, known, time));
            hops
        }
    }
}

/// Traces a frame whose sender is at a port of this host.
fn from_here(fabric: &Fabric, facts: &Facts, port: &LocalPort, time: Time) -> Vec<Hop> {
    let hop = |steps| Hop { host: facts.host_name.clone(), role: "source".to_owned(), steps };
    let looked = match look(fabric, facts, time) {
        Ok(looked) => looked,
        Err(error) => return vec![hop(vec![silent(&error)])],
    };
    let (mut steps, next) = judge::source(facts, &looked, port);
    steps.extend(differs(fabric, facts));
    let mut hops = vec![hop(steps)];
    if let (Next::Host(host, target), Some(peer)) = (next, &facts.peer) {
        let between = between(facts, target.to_string());
        let answer = fabric.call(host, Topic::ARRIVAL, time.most(), &between);
        let steps = match answer.map(|body| serde_json::from_slice::<Hop>(&body)) {
            Ok(Ok(mut hop)) => {
                hop.clean();
                hop.steps
            }
            Ok(Err(error)) => vec![unreadable(&error)],
            Err(failure) => vec![failed(&peer.name, failure, peer.is_stale)],
        };
        hops.push(Hop { host: peer.name.clone(), role: "destination".to_owned(), steps });
    }
    hops
}

/// Returns the differences of the receiver's host that concern this frame.
fn differs(fabric: &Fabric, facts: &Facts) -> Vec<Step> {
    let Some(peer) = &facts.peer else { return Vec::new() };
    let own = facts.vnet.as_ref().map(|(_, name)| name);
    let all = fabric.agreement.of(peer.host);
    let on_the_way = all.iter().filter(|one| {
        one.what.concerns_frames() && (one.vnet.is_none() || one.vnet.as_ref() == own)
    });
    let step = |one: &Difference| {
        let step = Step::new("agree", Verdict::Differs, format!("{}: {one}", peer.name));
        Step { remedy: one.what.remedy().to_owned(), ..step }
    };
    on_the_way.map(step).collect()
}

/// Traces a frame whose sender is at another host, which knows more.
fn from_there(fabric: &Fabric, facts: &Facts, known: &Claimed, time: Time) -> Vec<Hop> {
    let name = &known.host_name;
    let alone =
        |step| vec![Hop { host: name.clone(), role: "source".to_owned(), steps: vec![step] }];
    let between = between(facts, facts.frame.to_text());
    let answer = fabric.call(known.host, Topic::TRACE, time.most(), &between);
    match answer.map(|body| serde_json::from_slice::<Trace>(&body)) {
        Ok(Ok(mut trace)) => {
            trace.clean();
            trace.hops
        }
        Ok(Err(error)) => alone(unreadable(&error)),
        Err(failure) => alone(failed(name, failure, known.state == State::Stale)),
    }
}

/// Traces a frame that arrives in VXLAN from another host.
fn arrive(fabric: &Fabric, facts: &Facts, time: Time) -> Hop {
    let steps = match (facts.frame.to, look(fabric, facts, time)) {
        (To::Mac(target), Ok(looked)) => judge::arrival(facts, &looked, target),
        (_, Err(error)) => vec![silent(&error)],
        // The asking host has resolved the address.
        (To::Ip(_), Ok(_)) => Vec::new(),
    };
    Hop { host: facts.host_name.clone(), role: "destination".to_owned(), steps }
}

fn between(facts: &Facts, to: String) -> Between {
    Between { vni: facts.frame.vni.get(), from: facts.frame.from.to_string(), to }
}

/// Returns the state of this host's switch.
fn look(fabric: &Fabric, facts: &Facts, time: Time) -> io::Result<Looked> {
    let own = facts.destination.as_ref().filter(|known| known.state == State::Own);
    let ports = facts.port.iter().map(|port| port.id.0).chain(own.map(|known| known.port.0));
    let target = match facts.frame.to {
        To::Mac(mac) => Some(mac),
        To::Ip(_) => facts.destination.as_ref().map(|known| known.mac),
    };
    let macs = [Some(facts.frame.from), target];
    let question = Look {
        vnet: facts.vnet.as_ref().map_or(u16::MAX, |(id, _)| id.0),
        macs: macs.iter().flatten().map(Mac::to_string).collect(),
        ports: ports.collect(),
        tunnels: facts.peer.iter().map(|peer| peer.tunnel).collect(),
    };
    ask_data(fabric, question, span(Nanos(time.left().0 / 2)).max(Duration::from_millis(1)))
}

/// Asks the data process of this host for the state of ports, tunnels and addresses.
pub(super) fn ask_data(fabric: &Fabric, question: Look, limit: Duration) -> io::Result<Looked> {
    let stream = UnixStream::connect(fabric.run_dir.join(DATA_SOCKET))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let line = protocol::ask(stream, &Request::Look(question))?;
    protocol::expect(&line).map_err(io::Error::other)
}

fn silent(error: &io::Error) -> Step {
    Step::new("host", Verdict::SwitchSilent, format!("the data process does not answer: {error}"))
}

fn unreadable(error: &serde_json::Error) -> Step {
    Step::new("host", Verdict::Unreadable, format!("its answer cannot be read: {error}"))
}

fn failed(host: &str, failure: Failure, is_stale: bool) -> Step {
    let verdict = match failure {
        Failure::NotConnected if is_stale => Verdict::HostStale,
        Failure::NotConnected => Verdict::NotConnected,
        Failure::TooOld | Failure::UnknownTopic => Verdict::TooOld,
        Failure::Busy | Failure::Refused => Verdict::Refused,
        Failure::TooLate => Verdict::NoAnswer,
        Failure::TooBig | Failure::Unknown(_) => Verdict::Unreadable,
    };
    Step::new("host", verdict, format!("{host} was asked: {failure}"))
}

fn span(time: Nanos) -> Duration {
    Duration::from_nanos(time.0)
}
