//! The thread that is this host's part of the fabric: it owns the control plane, and connects it to
//! the clock, the network and the switch.
//!
//! ```text
//!   data ══ punts, commands ╗
//!   members ══ TCP, TLS ════╬══ poller ──> one turn: read all, tick, write all ──> sleep
//!   members ── UDP, SWIM ───╣
//!   questions ── channel ───╝
//! ```
//!
//! A turn never waits. Messages caused by a punt go to data and to every member in the same turn. A
//! peer that takes nothing delays no other: messages for a member wait in the log, and events of
//! data wait in the switch.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use sluice_api::fabric as api;
use sluice_base::{HostId, Nanos, PortId};
use sluice_control::plane::{Event as Noted, Kind, Plane};
use sluice_control::rpc::Failure;
use sluice_control::session::Due;
use sluice_control::vport::Key;

use super::answer::Answers;
use super::calls::{Call, Calls};
use super::data::Data;
use super::endpoint_traces::EndpointTraces;
use super::evpn::News;
use super::identity::Identity;
use super::incarnation::Incarnations;
use super::ports::Ports;
use super::rate_limiter::RateLimiter;
use super::seal::SEAL_SIZE;
use super::taps::Taps;
use super::watchers::{Watcher, Watchers};
use super::wires::{LinkEvent, Wires};
use super::{ConfigPort, Fabric, binding, thaw, trace};
use crate::config::{Bound, FabricPlan, LocalPort};
use crate::sys::clock;
use crate::sys::log::{self, say};
use crate::sys::poller::{Event, Poller};
use crate::sys::threads;

/// Indices of the poller.
pub(super) const LISTENER: usize = 0;
const UDP: usize = 1;
const DATA: usize = 2;
pub(super) const FIRST_WIRE: usize = 3;

/// Datagrams that are read before others are served.
const DATAGRAMS_MAX: usize = 256;

/// A turn that is noted in the log: members take a host that is silent for longer to hang.
const TURN_LONG: Nanos = Nanos::from_millis(200);

/// Requests of other threads.
#[derive(Debug)]
pub(super) enum MemberRequest {
    /// Answer a question.
    Question(api::Question, SyncSender<Result<api::Answer, String>>),
    /// Send every event from now on, until the receiver is gone.
    Watch(Watcher),
    /// Tell those who watch of something that another thread knows: its kind, and its object.
    Tell(&'static str, String),
    /// The data process was started or taken over: attach to it.
    Attach(PathBuf),
    /// Add a port.
    AddPort(Box<(PortId, LocalPort, Option<Bound>)>, SyncSender<Result<(), String>>),
    /// Delete the port of this name.
    DelPort(String, SyncSender<()>),
    /// The device behind a port has a user, or none any more.
    Link(PortId, bool),
    /// Return the facts about a frame's path.
    Facts(trace::Query, SyncSender<Result<trace::Facts, String>>),
    /// Return the endpoints that a name means.
    Named(trace::Named, SyncSender<Result<trace::Found, String>>),
    /// Return the binding of another port to an endpoint, or to its addresses.
    Binding(Box<(Key, Vec<IpAddr>)>, SyncSender<binding::Found>),
    /// Allow an endpoint to move again. The answer is its key, and true if it was frozen.
    Thaw(thaw::Named, SyncSender<Result<(Key, bool), String>>),
    /// Like `Thaw`, for an endpoint that a member names.
    ThawKey(Key, SyncSender<bool>),
    /// Use this for connections from now on.
    Identity(Box<Identity>),
    /// Believe the certificates with these serial numbers no more.
    Revoked(BTreeSet<String>),
    /// Ask a member.
    Call(Call),
    /// Answer a member's question, by its ticket.
    Reply(HostId, u64, Result<Vec<u8>, Failure>),
    /// Send a message to the configuration of a member.
    Message(HostId, Arc<[u8]>),
    /// News of BGP neighbors; the answer comes when they are taken.
    Evpn(Vec<News>, SyncSender<()>),
    /// Take over a plan.
    Reconfigure(Box<FabricPlan>, SyncSender<Result<(), String>>),
    /// Say goodbye to all members.
    Leave(SyncSender<()>),
}

/// The thread's state.
pub(super) struct Member {
    pub(super) plan: FabricPlan,
    /// Ports of this host: those of the plan, and those that were added.
    pub(super) ports: Ports,
    pub(super) plane: Plane,
    pub(super) started: Nanos,
    pub(super) incarnations: Incarnations,
    pub(super) poller: Poller,
    pub(super) wires: Wires,
    pub(super) udp: UdpSocket,
    pub(super) asks: Receiver<MemberRequest>,
    pub(super) data: Option<Data>,
    /// End of the silence at the start: until this moment, or until the contents of the forwarding
    /// table are known, no member is spoken to. A member would take missing claims for withdrawn
    /// ones.
    pub(super) silent_until: Option<Nanos>,
    pub(super) watchers: Watchers,
    pub(super) few: RateLimiter,
    /// TAPs whose links are watched.
    pub(super) taps: Taps,
    /// True if the UDP socket may have more.
    pub(super) udp_ready: bool,
    /// Bytes for the next write to a connection.
    pub(super) outgoing: Vec<u8>,
    /// Questions to members, and members' questions.
    pub(super) calls: Calls,
    /// The configuration of this host.
    pub(super) config: Arc<dyn ConfigPort>,
    /// Traces of endpoints that come here.
    pub(super) traces: EndpointTraces,
    /// Handle for threads that answer.
    pub(super) handle: Fabric,
}

impl Member {
    /// Gives the configuration to the plane.
    pub(super) fn begin(&mut self, now: Nanos) -> anyhow::Result<()> {
        self.poller.add(UDP, self.udp.as_fd(), true)?;
        for (vni, _) in &self.plan.vnets {
            self.plane.add_vnet(*vni);
        }
        self.add_planned(now);
        for host in &self.plan.hosts {
            let kind = if host.at.is_some() { Kind::Member } else { Kind::Foreign };
            self.plane.add_host(now, host.host, &host.vnets, kind);
        }
        self.bind_planned(now);
        Ok(())
    }

    /// Runs turns for as long as the process lives, or until told to leave.
    pub(super) fn run(mut self) {
        threads::go_first();
        loop {
            let now = clock::now();
            self.traces.begin_turn(now);
            if let Some(done) = self.answer(now) {
                self.leave(now);
                // The sockets are free before the answer: the next member may listen.
                drop(self);
                _ = done.send(());
                return;
            }
            self.read(now);
            self.plane.tick(now);
            self.end_silence(now);
            if self.silent_until.is_none() {
                self.serve_peers(now);
            }
            self.talk(now);
            self.pass_messages();
            self.apply_outputs();
            self.pass_own_changes();
            self.trace_endpoints();
            self.write_others(now);
            let timeout = self.next(now);
            let took = clock::now().since(now);
            if took >= TURN_LONG {
                say!(
                    "the fabric's thread was busy for {took}; members have heard nothing meanwhile"
                );
            }
            if let Err(error) = self.sleep(timeout) {
                say!(warn: "the fabric cannot wait for events: {error}");
                clock::sleep(Nanos::from_millis(100));
            }
        }
    }

    fn read(&mut self, now: Nanos) {
        if let Some(data) = &mut self.data
            && let Err(error) = data.read(now, &self.plan, &mut self.plane)
        {
            say!(warn: "the data process is gone: {error}");
            self.data = None;
            self.plane.fdb_lost(now);
        }
        let Self { wires, plane, plan, poller, silent_until, .. } = self;
        let (mut moved, mut failed) = (Vec::new(), Vec::new());
        if silent_until.is_none() {
            wires.accept(now, plan, poller);
        }
        wires.work(now, plan, |host, happened, bytes| match happened {
            LinkEvent::Open => plane.connected(now, host),
            LinkEvent::Gone => plane.disconnected(now, host),
            LinkEvent::Moved => match plane.stream(now, host, bytes) {
                Ok(size) => {
                    bytes.drain(..size);
                    moved.push(host);
                }
                Err(error) => {
                    bytes.clear();
                    say!(warn: "{}: {error}", plan.host_name(host).unwrap_or_default());
                    failed.push(host);
                }
            },
        });
        for host in moved {
            // The connection may have room again.
            self.write_to(now, host);
        }
        for host in failed {
            self.end_connection(now, host);
        }
        self.read_datagrams(now);
        self.outlive(now);
    }

    /// Ends the connection of a host. The reason is sent first.
    pub(super) fn end_connection(&mut self, now: Nanos, host: HostId) {
        self.write_to(now, host);
        self.wires.close(host);
        self.plane.disconnected(now, host);
    }

    /// Ends connections that began with a certificate which is not believed any more. They are
    /// made anew if their hosts have others by now.
    fn outdate(&mut self, now: Nanos, hosts: Vec<HostId>) {
        for host in hosts {
            self.write_to(now, host);
            self.wires.outdate(host);
            self.plane.disconnected(now, host);
        }
    }

    /// Continues with the next incarnation if a member knows a later one of this host.
    fn outlive(&mut self, now: Nanos) {
        let Some(known) = self.plane.outdone() else { return };
        let next = self.incarnations.soon_after(known);
        if next <= self.plane.incarnation() {
            return;
        }
        for host in self.plane.reincarnate(now, next) {
            self.end_connection(now, host);
        }
    }

    fn read_datagrams(&mut self, now: Nanos) {
        let mut datagram = [0; sluice_control::liveness::DATAGRAM_MAX + SEAL_SIZE];
        for _ in 0..DATAGRAMS_MAX {
            if !self.udp_ready {
                return;
            }
            match self.udp.recv_from(&mut datagram) {
                Ok((size, from)) => {
                    let sender = self.plan.hosts.iter().find(|host| host.at == Some(from));
                    let Some(host) = sender.map(|sender| sender.host) else { continue };
                    if let Some(inside) = self.wires.unseal(host, &datagram[..size]) {
                        self.plane.datagram(now, host, inside);
                    }
                }
                // An ICMP error about an earlier datagram is ignored.
                Err(error) => self.udp_ready = error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
    }

    fn end_silence(&mut self, now: Nanos) {
        if self.silent_until.is_none() {
            return;
        }
        let is_known = self.data.as_ref().is_some_and(Data::has_told_all);
        self.silent_until = self.silent_until.filter(|until| !is_known && now < *until);
        if self.silent_until.is_none() {
            // BGP neighbors take what is not announced then to be gone.
            self.follow_evpn_plan(None);
        }
    }

    fn serve_peers(&mut self, now: Nanos) {
        while let Some(host) = self.plane.ready(now) {
            match self.plane.due(now, host) {
                Due::Nothing => {}
                Due::Connect => {
                    let known = self.plan.hosts.iter().find(|known| known.host == host);
                    let begun = known.is_some_and(|known| {
                        self.wires.connect(now, self.plan.listen, known, &self.poller)
                    });
                    if !begun {
                        self.plane.disconnected(now, host);
                    }
                }
                Due::Hung => self.wires.close(host),
            }
            self.write_to(now, host);
        }
    }

    fn write_to(&mut self, now: Nanos, host: HostId) {
        let Some(link) = self.wires.link(host) else {
            self.plane.write(now, host, 0, &mut self.outgoing);
            return;
        };
        loop {
            self.outgoing.clear();
            if self.plane.write(now, host, link.room(), &mut self.outgoing) == 0 {
                return;
            }
            if link.send(&self.outgoing).is_err() {
                // The next turn's read gets the reason, and closes it.
                return;
            }
        }
    }

    /// Carries out the plane's commands and events: for data, people and the network.
    pub(super) fn apply_outputs(&mut self) {
        if let Some(data) = &mut self.data {
            while !data.is_crammed()
                && let Some(hold) = self.plane.urgent_command()
            {
                data.order(&self.plan, &hold);
            }
            while !data.is_full()
                && let Some(command) = self.plane.command()
            {
                data.order(&self.plan, &command);
                if self.traces.has_room() {
                    self.traces.ordered(clock::now(), &command);
                }
            }
            data.flush();
        } else {
            // Missing entries are requested again.
            while self.plane.command().is_some() {}
        }
        self.send_datagrams();
        while let Some(event) = self.plane.event() {
            // Formatting a hundred thousand endpoints without a reader takes longer than learning
            // them.
            if let Noted::SessionUp(host) = event {
                self.handle.is_connected(host);
            }
            if self.traces.has_room() {
                let log = (self.plan.own, self.plane.sequence());
                self.traces.happened(clock::now(), &event, log, self.plane.hosts());
            }
            let level = super::answer::level(&event);
            let is_for_the_log = log::is_on(level) && self.few.admit(event.name());
            if self.watchers.is_empty() && !is_for_the_log {
                continue;
            }
            let row = Answers::new(&self.plan, &self.ports, &self.plane, clock::now())
                .event(&event, self.started);
            if is_for_the_log {
                log::line(level, format_args!("{} {}", row.event, row.what));
            }
            self.watchers.tell(&row);
        }
    }

    /// Notes what members have of the endpoints that are traced.
    fn trace_endpoints(&mut self) {
        if self.traces.is_open() {
            let (log, hosts) = (self.plane.sequence(), self.plane.hosts());
            self.traces.acknowledged(clock::now(), log, hosts, &self.plan);
        }
    }

    /// Writes the number of lines that were suppressed.
    fn write_others(&mut self, now: Nanos) {
        for (kind, others) in self.few.others(now) {
            say!(warn: "{kind}: {others} more in this second; `sluice vport watch` shows each");
        }
    }

    fn send_datagrams(&mut self) {
        while let Some((host, datagram)) = self.plane.datagram_out() {
            let known = self.plan.hosts.iter().find(|known| known.host == host);
            // A datagram for a host that was never connected is dropped: the host could not open
            // it.
            if let Some(at) = known.and_then(|known| known.at)
                && let Some(sealed) = self.wires.seal(host, &datagram)
            {
                // The protocol tolerates lost datagrams.
                _ = self.udp.send_to(&sealed, at);
            }
        }
    }

    fn answer(&mut self, now: Nanos) -> Option<SyncSender<()>> {
        while let Ok(ask) = self.asks.try_recv() {
            match ask {
                MemberRequest::Question(question, reply) => {
                    let answers = Answers::new(&self.plan, &self.ports, &self.plane, now);
                    // The thread that asked may be gone.
                    _ = reply.try_send(answers.answer(&question));
                }
                MemberRequest::Facts(wanted, reply) => {
                    let known = (&self.ports, &self.plane);
                    _ = reply.try_send(trace::facts(&self.plan, known, &wanted));
                }
                MemberRequest::Named(wanted, reply) => {
                    let known = (&self.ports, &self.plane);
                    _ = reply.try_send(trace::find(&self.plan, known, &wanted));
                }
                MemberRequest::Thaw(named, reply) => {
                    let answers = Answers::new(&self.plan, &self.ports, &self.plane, now);
                    let key = answers.find(named.vnet.as_deref(), &named.endpoint);
                    _ = reply.try_send(key.map(|key| (key, self.plane.thaw(now, key))));
                }
                MemberRequest::Binding(wanted, reply) => {
                    _ = reply.try_send(self.binding_of(wanted.0, &wanted.1));
                }
                MemberRequest::ThawKey(key, reply) => _ = reply.try_send(self.plane.thaw(now, key)),
                MemberRequest::Call(call) => self.call(now, call),
                MemberRequest::Reply(host, ticket, answer) => {
                    let answer = answer.as_deref().map_err(|failure| *failure);
                    self.plane.reply_to(now, host, ticket, answer);
                }
                MemberRequest::Message(host, message) => self.send_message(now, host, message),
                MemberRequest::Evpn(news, taken) => {
                    self.hear_evpn(now, news);
                    _ = taken.try_send(());
                }
                MemberRequest::Reconfigure(plan, reply) => {
                    _ = reply.try_send(self.reconfigure(now, *plan));
                }
                MemberRequest::Watch(watcher) => self.watchers.add(watcher),
                MemberRequest::Tell(event, what) => {
                    let (at_ns, event) = (now.since(self.started).0, event.to_owned());
                    self.watchers.tell(&api::EventRow { at_ns, event, what });
                }
                MemberRequest::Attach(run_dir) => self.attach(now, &run_dir),
                MemberRequest::AddPort(port, reply) => {
                    let (id, port, bound) = *port;
                    _ = reply.try_send(self.add_port(now, id, port, bound));
                }
                MemberRequest::Identity(identity) => {
                    let outdated = self.wires.show(*identity);
                    self.outdate(now, outdated);
                }
                MemberRequest::Revoked(serials) => {
                    let outdated = self.wires.revoke(serials);
                    self.outdate(now, outdated);
                }
                MemberRequest::Link(port, is_up) => self.plane.port_link(now, port, is_up),
                MemberRequest::DelPort(name, reply) => {
                    self.del_port(now, &name);
                    _ = reply.try_send(());
                }
                MemberRequest::Leave(done) => return Some(done),
            }
        }
        None
    }

    fn attach(&mut self, now: Nanos, run_dir: &std::path::Path) {
        self.data = None;
        self.plane.fdb_lost(now);
        match Data::attach(run_dir, self.plan.worker_count()).and_then(|data| {
            for descriptor in data.descriptors() {
                self.poller.add(DATA, descriptor, true)?;
                self.poller.set(DATA, descriptor, true, true)?;
            }
            Ok(data)
        }) {
            Ok(data) => self.data = Some(data),
            Err(error) => say!(warn: "cannot attach to the data process: {error}"),
        }
    }

    /// Says goodbye: members need not find out that this host is gone.
    fn leave(&mut self, now: Nanos) {
        self.plane.leave(now);
        let hosts: Vec<HostId> = self.plan.hosts.iter().map(|host| host.host).collect();
        for &host in &hosts {
            self.write_to(now, host);
        }
        self.send_datagrams();
        for host in hosts {
            self.wires.close(host);
        }
    }

    fn next(&self, now: Nanos) -> Nanos {
        let data = self.data.as_ref().is_some_and(Data::is_ready).then_some(Nanos::ZERO);
        let udp = self.udp_ready.then_some(Nanos::ZERO);
        if let Some(until) = self.silent_until {
            // Deadlines for other members wait.
            return data.or(udp).unwrap_or(until).since(now);
        }
        let due = [self.plane.deadline(), self.wires.deadline(), data, udp, self.traces.deadline()];
        due.into_iter().flatten().min().map_or(Nanos::MAX, |at| at.since(now))
    }

    fn sleep(&mut self, timeout: Nanos) -> std::io::Result<()> {
        let Self { poller, wires, data, udp_ready, .. } = self;
        poller.wait(timeout, |event| match event {
            Event::Readable(LISTENER) => wires.note_accept(),
            Event::Readable(UDP) => *udp_ready = true,
            Event::Readable(DATA) | Event::Writable(DATA) => {
                if let Some(data) = data {
                    data.wake();
                }
            }
            Event::Readable(index) | Event::Writable(index) if index >= FIRST_WIRE => {
                wires.wake(index);
            }
            Event::Readable(_) | Event::Writable(_) | Event::Woken => {}
        })
    }
}
