//! The connections to other members, by host: begun, accepted, identified, closed.
//!
//! ```text
//!   connect(host) ──────────────> MINE: belongs to the host that was asked for ──┐
//!                    └── no TCP, or no TLS, for too long: closed                   ├─> open
//!   accepted ──> UNKNOWN ── certificate names the member whose address that is ──┘
//!      │            └── another name, silence for too long, a newer one from there: closed
//!      └── from no member's address: closed
//! ```
//!
//! Of two members the one with the lower number connects, from its own address. The other one
//! identifies it by its certificate; the same certificate from another address is a copy of that
//! host. The number of unidentified connections is bounded for each address, and the newest ones
//! stay, so that a silent peer keeps no other out.
//!
//! A connection whose peer has shown a certificate of an authority that is not trusted any more
//! ends, with its keys; the two begin another one with their present certificates.
//!
//! An open connection brings the keys of the failure detector's datagrams ([`DatagramKeys`]).

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use sluice_base::{HostId, Nanos};

use super::identity::{Identity, is_of};
use super::link::{Failure, Link};
use super::seal::DatagramKeys;
use super::trust::Trust;
use crate::config::{FabricPlan, HostPlan};
use crate::enroll::profile::serial;
use crate::sys::log::say;
use crate::sys::poller::Poller;

/// Most unidentified connections from one address.
const UNKNOWN_MAX: usize = 4;
/// Longest time for TLS.
const HANDSHAKE_LIFE: Nanos = Nanos::from_millis(2_000);
/// Longest time for TCP: less than the kernel waits before it retries, so that a restored path is
/// found by the next attempt.
const CONNECT_LIFE: Nanos = Nanos::from_millis(400);
/// Time after which the same complaint about a peer is logged again.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Stands for unidentified peers. No member has this number.
const STRANGER: HostId = HostId(0);

/// A connection and its host.
struct Wire {
    link: Link,
    host: Option<HostId>,
    since: Nanos,
    /// True if the socket may have more to read.
    ready: bool,
    /// True if the session knows that it is open.
    reported: bool,
    /// Bytes received that are not a complete message.
    unread: Vec<u8>,
}

impl Wire {
    /// Returns the time at which it ends unless it is open by then.
    fn ends(&self) -> Option<Nanos> {
        let life = if self.link.is_connected() { HANDSHAKE_LIFE } else { CONNECT_LIFE };
        (!self.reported).then(|| self.since.after(life))
    }
}

/// All connections.
pub(super) struct Wires {
    identity: Identity,
    trust: Arc<Trust>,
    listener: TcpListener,
    /// True if connections may wait to be accepted.
    accepting: bool,
    /// Connections by their index in the poller.
    wires: Vec<Option<Wire>>,
    first_index: usize,
    complaints: std::collections::BTreeMap<HostId, (String, Nanos)>,
    seals: DatagramKeys,
    /// Serial numbers of certificates that are not believed any more.
    revoked: BTreeSet<String>,
}

/// Events of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkEvent {
    /// The connection is open.
    Open,
    /// Bytes were received, or there may be room again.
    Moved,
    /// The connection is gone.
    Gone,
}

impl Wires {
    /// Starts to listen. `index` is the listener's index in the poller, `first_index` the first one
    /// for connections.
    pub(super) fn listen(
        at: SocketAddr,
        (identity, trust): (Identity, Arc<Trust>),
        poller: &Poller,
        index: usize,
        first_index: usize,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        poller.add(index, listener.as_fd(), true)?;
        let complaints = std::collections::BTreeMap::new();
        let wires = Vec::new();
        let seals = DatagramKeys::default();
        let (accepting, revoked) = (true, BTreeSet::new());
        Ok(Self {
            revoked,
            identity,
            trust,
            listener,
            accepting,
            wires,
            first_index,
            complaints,
            seals,
        })
    }

    /// Uses this identity for every connection that begins from now on, and returns the hosts whose
    /// open connections began with a certificate that it does not believe.
    pub(super) fn show(&mut self, identity: Identity) -> Vec<HostId> {
        self.identity = identity;
        self.outdated()
    }

    /// Believes the certificates with these serial numbers no more. Returns the hosts whose open
    /// connections began with one of them.
    pub(super) fn revoke(&mut self, serials: BTreeSet<String>) -> Vec<HostId> {
        self.revoked = serials;
        self.outdated()
    }

    fn outdated(&self) -> Vec<HostId> {
        let open = self.wires.iter().flatten().filter(|wire| wire.reported);
        let outdated = open.filter(|wire| self.doubt(&wire.link).is_some());
        outdated.filter_map(|wire| wire.host).collect()
    }

    /// Returns the reason why the certificate of a peer is not believed now, although it was when
    /// the handshake began.
    fn doubt(&self, link: &Link) -> Option<Failure> {
        let certificate = link.certificate()?;
        if !self.identity.believes(certificate) {
            return Some(Failure::Outdated);
        }
        let serial = serial(certificate)?;
        self.revoked.contains(&serial).then_some(Failure::Revoked)
    }

    /// Ends the connection of a host, and the keys that came from it.
    pub(super) fn outdate(&mut self, host: HostId) {
        self.close(host);
        self.seals.remove(host);
    }

    /// Notes that a peer connects.
    pub(super) fn note_accept(&mut self) {
        self.accepting = true;
    }

    /// Notes an event of the poller for a connection.
    pub(super) fn wake(&mut self, index: usize) {
        if let Some(Some(wire)) = self.wires.get_mut(index - self.first_index) {
            wire.ready = true;
        }
    }

    /// Begins to connect to a host. Returns false if it failed at once.
    pub(super) fn connect(
        &mut self,
        now: Nanos,
        own: SocketAddr,
        host: &HostPlan,
        poller: &Poller,
    ) -> bool {
        self.close(host.host);
        let Some(at) = host.at else { return false };
        match Link::connect(own.ip(), at, &host.name, &self.identity) {
            Ok(link) => self.add(now, link, Some(host.host), poller),
            Err(error) => {
                self.complain(now, host.host, &host.name, &error);
                false
            }
        }
    }

    /// Accepts waiting connections from addresses of members.
    pub(super) fn accept(&mut self, now: Nanos, plan: &FabricPlan, poller: &Poller) {
        while self.accepting {
            let (stream, from) = match self.listener.accept() {
                Ok((stream, from)) => (stream, from.ip()),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.accepting = false;
                    return;
                }
                // The failed one is gone; the next may be fine. A lack of descriptors ends the
                // turn, and the next event tries again.
                Err(error) => {
                    self.accepting = error.kind() == std::io::ErrorKind::ConnectionAborted;
                    continue;
                }
            };
            let is_expected =
                |host: &HostPlan| host.host < plan.own && host.at.is_some_and(|at| at.ip() == from);
            if !plan.hosts.iter().any(is_expected) {
                self.complain(now, STRANGER, &from.to_string(), &Failure::Stranger);
                continue;
            }
            self.make_room(from);
            if let Ok(link) = Link::accept(stream, &self.identity) {
                self.add(now, link, None, poller);
            }
        }
    }

    /// Ends the oldest unidentified connections from an address, if their number has reached the
    /// limit.
    fn make_room(&mut self, from: IpAddr) {
        let is_from = |wire: &Wire| wire.link.peer().is_ok_and(|peer| peer.ip() == from);
        let unknown = |(at, place): (usize, &Option<Wire>)| {
            let wire = place.as_ref().filter(|wire| wire.host.is_none() && is_from(wire))?;
            Some((wire.since, at))
        };
        let mut waiting: Vec<_> = self.wires.iter().enumerate().filter_map(unknown).collect();
        waiting.sort_unstable();
        for (_, at) in waiting.iter().rev().skip(UNKNOWN_MAX - 1) {
            self.wires[*at] = None;
        }
    }

    fn add(&mut self, now: Nanos, link: Link, host: Option<HostId>, poller: &Poller) -> bool {
        let free = self.wires.iter().position(Option::is_none).unwrap_or_else(|| {
            self.wires.push(None);
            self.wires.len() - 1
        });
        let index = self.first_index + free;
        let watched = poller.add(index, link.as_fd(), true);
        if watched.and_then(|()| poller.set(index, link.as_fd(), true, true)).is_err() {
            return false;
        }
        let (ready, reported, unread) = (true, false, Vec::new());
        self.wires[free] = Some(Wire { link, host, since: now, ready, reported, unread });
        true
    }

    /// Reads and writes on every connection with an event. `each` gets the events of a host's
    /// connection, and takes from the front of the bytes received.
    pub(super) fn work(
        &mut self,
        now: Nanos,
        plan: &FabricPlan,
        mut each: impl FnMut(HostId, LinkEvent, &mut Vec<u8>),
    ) {
        for at in 0..self.wires.len() {
            let Some(wire) = self.wires[at].as_mut().filter(|wire| wire.ready) else { continue };
            let worked = wire.link.work(&mut wire.unread);
            wire.ready = matches!(worked, Ok(true));
            // The handshake does not know of revoked certificates, and may have begun when other
            // authorities were trusted.
            let is_new = wire.link.is_open() && !wire.reported;
            let host = wire.host;
            if let Some(doubt) =
                self.wires[at].as_ref().filter(|_| is_new).and_then(|wire| self.doubt(&wire.link))
            {
                match host {
                    Some(host) => self.lose(now, at, plan, (host, &doubt), &mut each),
                    None => self.refuse(now, at, &doubt),
                }
                continue;
            }
            let Some(wire) = self.wires[at].as_mut() else { continue };
            if wire.host.is_none() && wire.link.is_open() {
                let host = match who(&wire.link, plan) {
                    Ok(host) => host,
                    Err(error) => {
                        self.refuse(now, at, &error);
                        continue;
                    }
                };
                wire.host = Some(host);
                self.replace_older(at, host, &mut each);
            }
            let Some(wire) = self.wires[at].as_mut() else { continue };
            let Some(host) = wire.host else {
                if let Err(error) = worked {
                    self.refuse(now, at, &error);
                }
                continue;
            };
            if wire.link.is_open() && !wire.reported {
                wire.reported = true;
                self.complaints.remove(&host);
                if let (Some(name), Some(shown)) = (plan.host_name(host), wire.link.certificate()) {
                    self.trust.shown(name, shown);
                }
                if let Some(secret) = wire.link.secret() {
                    self.seals.add(host, &secret, wire.link.began());
                }
                each(host, LinkEvent::Open, &mut wire.unread);
            }
            // Bytes received before the end count.
            each(host, LinkEvent::Moved, &mut wire.unread);
            if let Err(error) = &worked {
                self.lose(now, at, plan, (host, error), &mut each);
            }
        }
        self.end_late(now, plan, &mut each);
    }

    /// Ends the older connection of a member that connects again: the member has lost it, even if
    /// this side has not noticed.
    fn replace_older(
        &mut self,
        at: usize,
        host: HostId,
        each: &mut impl FnMut(HostId, LinkEvent, &mut Vec<u8>),
    ) {
        for other in 0..self.wires.len() {
            if other != at && wire_host(&self.wires[other]) == Some(host) {
                self.wires[other] = None;
                each(host, LinkEvent::Gone, &mut Vec::new());
            }
        }
    }

    fn refuse(&mut self, now: Nanos, at: usize, error: &Failure) {
        if let Some(wire) = self.wires[at].take() {
            let from = wire.link.peer().map(|peer| peer.ip().to_string());
            let from = from.unwrap_or_else(|_| "somewhere".to_owned());
            self.complain(now, STRANGER, &from, error);
        }
    }

    /// Logs a failure, and not the same one again for a while. All strangers count as one peer, and
    /// get a line once in a while whatever they do, so that they cannot fill the log.
    fn complain(&mut self, now: Nanos, host: HostId, name: &str, error: &Failure) {
        let text = format!("{name}: {error}");
        let again = Nanos(u64::try_from(SAY_AGAIN.as_nanos()).unwrap_or(u64::MAX));
        let known = self.complaints.get(&host);
        let is_new = |said: &String| host != STRANGER && *said != text;
        if known.is_none_or(|(said, at)| is_new(said) || now.since(*at) >= again) {
            say!("{text}");
            self.complaints.insert(host, (text, now));
        }
    }

    /// Ends connections that are not open in time.
    fn end_late(
        &mut self,
        now: Nanos,
        plan: &FabricPlan,
        each: &mut impl FnMut(HostId, LinkEvent, &mut Vec<u8>),
    ) {
        for at in 0..self.wires.len() {
            let late = |wire: &&Wire| wire.ends().is_some_and(|end| now > end);
            let Some(wire) = self.wires[at].as_ref().filter(late) else { continue };
            let is_connected = wire.link.is_connected();
            let Some(host) = wire.host else {
                self.wires[at] = None;
                continue;
            };
            let error = if is_connected { Failure::NoHandshake } else { Failure::NoConnection };
            self.lose(now, at, plan, (host, &error), each);
        }
    }

    /// Handles the end of a host's connection, and logs the reason.
    fn lose(
        &mut self,
        now: Nanos,
        at: usize,
        plan: &FabricPlan,
        (host, error): (HostId, &Failure),
        each: &mut impl FnMut(HostId, LinkEvent, &mut Vec<u8>),
    ) {
        self.wires[at] = None;
        each(host, LinkEvent::Gone, &mut Vec::new());
        self.complain(now, host, plan.host_name(host).unwrap_or_default(), error);
    }

    /// Seals a datagram for a host; `None` if there was no connection to it yet.
    pub(super) fn seal(&mut self, host: HostId, datagram: &[u8]) -> Option<Vec<u8>> {
        self.seals.seal(host, datagram)
    }

    /// Opens a datagram of a host, if the host has written it.
    pub(super) fn unseal<'a>(&mut self, host: HostId, sealed: &'a [u8]) -> Option<&'a [u8]> {
        self.seals.open(host, sealed)
    }

    /// Returns the time at which a connection ends that is not open.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        let ends = self.wires.iter().flatten().filter_map(Wire::ends).map(|at| at.after(Nanos(1)));
        let at_once = self.wires.iter().flatten().any(|wire| wire.ready) || self.accepting;
        at_once.then_some(Nanos::ZERO).into_iter().chain(ends).min()
    }

    /// Returns the open connection of a host.
    pub(super) fn link(&mut self, host: HostId) -> Option<&mut Link> {
        let of_host = |wire: &&mut Wire| wire.host == Some(host) && wire.reported;
        self.wires.iter_mut().flatten().find(of_host).map(|wire| &mut wire.link)
    }

    /// Closes the connection of a host, if there is one. The poller forgets it with its socket.
    pub(super) fn close(&mut self, host: HostId) {
        for at in 0..self.wires.len() {
            if wire_host(&self.wires[at]) == Some(host) {
                self.shut(at);
            }
        }
    }

    /// Forgets a host, which is no member any more: its connection, and the keys of its datagrams.
    pub(super) fn forget(&mut self, host: HostId) {
        self.close(host);
        self.seals.remove(host);
        self.complaints.remove(&host);
    }

    fn shut(&mut self, at: usize) {
        if let Some(wire) = self.wires[at].take() {
            wire.link.close();
        }
    }
}

fn wire_host(wire: &Option<Wire>) -> Option<HostId> {
    wire.as_ref().and_then(|wire| wire.host)
}

/// Returns the member that a certificate names, if it is one that connects to this host, from that
/// address.
fn who(link: &Link, plan: &FabricPlan) -> Result<HostId, Failure> {
    let certificate = link.certificate().ok_or(Failure::NoMember)?;
    let mut members = plan.hosts.iter().filter(|host| host.at.is_some());
    let found = members.find(|host| is_of(certificate, &host.name)).ok_or(Failure::NoMember)?;
    let is_there = link.peer().is_ok_and(|peer| found.at.is_some_and(|at| at.ip() == peer.ip()));
    if !is_there {
        return Err(Failure::Copy(found.name.clone()));
    }
    if found.host > plan.own {
        return Err(Failure::WrongWay(found.name.clone()));
    }
    Ok(found.host)
}
