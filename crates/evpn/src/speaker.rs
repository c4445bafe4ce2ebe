//! The speaker: its neighbors, their routes and those of this host.
//!
//! Pure: time and bytes go in, bytes, changes and events come out.
//!
//! ```text
//!   announce, withdraw ──> exports ──> backlog of each neighbor ──> output
//!   receive ──> sessions ──> RIB ──> change
//!   tick ──> timers            └───> own endpoints that moved away
//! ```
//!
//! **Calls.** After each input, and at [`Speaker::deadline`], the caller calls [`Speaker::tick`]
//! and takes everything out: actions, changes and events until there are none, and for each
//! connection [`Speaker::output`], of which it reports what the network took.
//!
//! **Moves** (RFC 7432 section 15). [`Speaker::announce`] means that an endpoint is here now: its
//! sequence is raised above that of any other VTEP. A route that beats the own one withdraws it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{Nanos, Prng, Vni};

use crate::config::{Config, Network};
use crate::exports::{End, Exports, Next, OwnRoute};
use crate::neighbor::{Link, Neighbor, NeighborId, Side};
use crate::rib::{KeptOut, Own, Rib};
use crate::route::{Endpoint, MacKey, RemoteMac};
use crate::session::{Ending, Identity, Said, Session, State};
use crate::wire::{self, Notification, Origin, Refresh, Update};

/// Events that wait; beyond, the oldest goes.
const EVENTS_MAX: usize = 1 << 10;

/// Work of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to a neighbor; [`Speaker::connected`] or [`Speaker::disconnected`] follows.
    Connect(NeighborId),
    /// Send the rest of the output and close; [`Speaker::disconnected`] follows.
    Close(Link),
}

/// A change of what lies behind other VTEPs, or of what does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A MAC.
    Mac {
        /// The MAC.
        key: MacKey,
        /// Its place; `None`: it is behind no other VTEP, or this host has it.
        to: Option<RemoteMac>,
        /// True if it was announced for this host until now, and is not any more.
        is_taken: bool,
    },
    /// A VTEP that takes frames to all of a network.
    Vtep {
        /// The network.
        vni: Vni,
        /// The VTEP.
        vtep: Ipv4Addr,
        /// True if it does.
        is_there: bool,
    },
}

/// News for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A session is established.
    Up(NeighborId),
    /// A session has ended, established or not.
    Down(NeighborId, Ending),
    /// All routes of a neighbor are known.
    EndOfRib(NeighborId),
    /// Routes of a neighbor that was away were forgotten: their number.
    Forgotten(NeighborId, usize),
}

/// Why an endpoint cannot be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its network is not exported.
    NoNetwork,
    /// Another VTEP has it, and it is to stay there (RFC 7432 section 15.2).
    Sticky(Ipv4Addr),
}

/// A neighbor, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeighborInfo {
    /// Its address.
    pub address: IpAddr,
    /// Its AS.
    pub remote_as: u32,
    /// State of its session; `None`: there is no connection.
    pub state: Option<State>,
    /// Its BGP identifier, while established.
    pub router_id: Option<Ipv4Addr>,
    /// Routes in use.
    pub routes: usize,
    /// Routes that are not in use.
    pub kept_out: KeptOut,
    /// Own routes that it does not know yet.
    pub backlog: usize,
    /// True if its routes are those of a session that ended.
    pub is_stale: bool,
    /// End of its last session.
    pub last_ending: Option<Ending>,
}

/// A BGP speaker.
#[derive(Debug)]
pub struct Speaker {
    config: Config,
    neighbors: Vec<Neighbor>,
    rib: Rib,
    exports: Exports,
    random: Prng,
    actions: VecDeque<Action>,
    events: VecDeque<Event>,
}

impl Speaker {
    /// Creates a speaker without networks. The seed spreads attempts to connect.
    ///
    /// # Panics
    /// If the BGP identifier is zero, or the hold time 1 or 2 s.
    #[must_use]
    pub fn new(config: Config, seed: u64, now: Nanos) -> Self {
        assert!(!config.router_id.is_unspecified(), "a BGP identifier is not zero (RFC 6286)");
        assert!(!(1..3).contains(&config.hold_s), "a hold time is zero or 3 s and more");
        let neighbors: Vec<_> =
            config.neighbors.iter().map(|neighbor| Neighbor::new(now, *neighbor)).collect();
        let Config { local_as, router_id, vtep, limits, .. } = config;
        let rib = Rib::new(Own { local_as, router_id, vtep }, limits, neighbors.len());
        Self {
            config,
            neighbors,
            rib,
            exports: Exports::default(),
            random: Prng::new(seed),
            actions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Exports and imports a network, or changes its target. Neighbors are asked for its routes.
    pub fn add_network(&mut self, now: Nanos, network: Network) {
        let known = self.exports.networks().find(|known| known.vni == network.vni);
        if known == Some(network) {
            return;
        }
        if known.is_some() {
            self.rib.remove_network(network.vni);
        }
        self.rib.add_network(network);
        let routes = self.exports.add_network(network);
        self.send(&routes);
        self.ask_again(now);
    }

    /// Withdraws all of a network, and forgets its routes.
    pub fn remove_network(&mut self, vni: Vni) {
        self.rib.remove_network(vni);
        let routes = self.exports.remove_network(vni);
        self.send(&routes);
    }

    /// Announces an endpoint that is at this host now; the sequence of its announcement is
    /// returned.
    ///
    /// # Errors
    /// It is not to be announced.
    pub fn announce(&mut self, mut endpoint: Endpoint) -> Result<u32, Refusal> {
        let key = endpoint.key;
        if !self.exports.has_network(key.vni) {
            return Err(Refusal::NoNetwork);
        }
        if let Some(remote) = self.rib.best(key) {
            if remote.mobility.is_sticky && !endpoint.mobility.is_sticky {
                return Err(Refusal::Sticky(remote.vtep));
            }
            let before = self.exports.endpoint(key).map(|own| own.mobility);
            let stays = before.filter(|own| self.holds_against(*own, &remote));
            let most = self.rib.mobility_max(key).unwrap_or(remote.mobility).sequence;
            let least = stays.map_or(most.saturating_add(1), |own| own.sequence);
            endpoint.mobility.sequence = endpoint.mobility.sequence.max(least);
        } else if let Some(own) = self.exports.endpoint(key) {
            endpoint.mobility.sequence = endpoint.mobility.sequence.max(own.mobility.sequence);
        }
        let sequence = endpoint.mobility.sequence;
        let routes = self.exports.put(endpoint);
        self.send(&routes);
        self.rib.touch(key);
        Ok(sequence)
    }

    fn holds_against(&self, own: crate::route::Mobility, remote: &RemoteMac) -> bool {
        own.beats(self.config.vtep, remote.mobility, remote.vtep)
    }

    /// Withdraws an endpoint. Nothing happens if it was not announced.
    pub fn withdraw(&mut self, key: MacKey) {
        let routes = self.exports.remove(key);
        if !routes.is_empty() {
            self.send(&routes);
            self.rib.touch(key);
        }
    }

    fn send(&mut self, routes: &[OwnRoute]) {
        for neighbor in &mut self.neighbors {
            if neighbor.established().is_some() {
                neighbor.backlog.put(routes);
            }
        }
    }

    /// Asks all neighbors for their routes once more (RFC 2918).
    fn ask_again(&mut self, now: Nanos) {
        for neighbor in &mut self.neighbors {
            let Some(side) = neighbor.established() else { continue };
            let Some(session) = neighbor.session_mut(side) else { continue };
            if session.peer().is_some_and(|open| open.has_refresh) {
                session.put(now, |out| wire::put_refresh(out, Refresh::Request));
            }
        }
    }

    /// Notes a connection that was asked for. Its first output is due.
    pub fn connected(&mut self, now: Nanos, neighbor: NeighborId) {
        self.begin(now, Link { neighbor, side: Side::Active });
    }

    /// Returns the link of a connection that came from `address`; `None`: it is to be closed.
    pub fn accept(&mut self, now: Nanos, address: IpAddr) -> Option<Link> {
        let known = self.neighbors.iter().position(|known| known.config.address == address)?;
        if !self.neighbors[known].admits() {
            return None;
        }
        let link = Link { neighbor: NeighborId(known), side: Side::Passive };
        self.begin(now, link);
        Some(link)
    }

    fn begin(&mut self, now: Nanos, link: Link) {
        let neighbor = &mut self.neighbors[link.neighbor.0];
        let identity = Identity {
            local_as: self.config.local_as,
            router_id: self.config.router_id,
            hold_s: self.config.hold_s,
            restart_s: self.config.restart_s(),
            remote_as: neighbor.config.remote_as,
        };
        neighbor.begin(link.side, Session::begin(now, identity));
        if neighbor.established().is_some() {
            self.end(link, &Notification::CEASE_COLLISION);
        }
    }

    /// Takes bytes of a connection.
    pub fn receive(&mut self, now: Nanos, link: Link, bytes: &[u8]) {
        if let Some(session) = self.session(link) {
            session.feed(bytes);
        }
        while let Some(said) = self.session(link).and_then(|session| session.next(now)) {
            self.hear(now, link, said);
        }
    }

    fn session(&mut self, link: Link) -> Option<&mut Session> {
        self.neighbors[link.neighbor.0].session_mut(link.side)
    }

    fn hear(&mut self, now: Nanos, link: Link, said: Said) {
        let index = link.neighbor.0;
        match said {
            Said::Open => {
                let own = (self.config.router_id.to_bits(), self.config.local_as);
                if let Some(side) = self.neighbors[index].collision(link.side, own) {
                    self.end(Link { side, ..link }, &Notification::CEASE_COLLISION);
                }
            }
            Said::Established => self.established(now, link),
            Said::Update(update) => self.update(now, link, &update),
            Said::Refresh(refresh) => self.refresh(now, link, refresh),
            Said::Ended => self.ended(now, link),
        }
    }

    fn established(&mut self, now: Nanos, link: Link) {
        let Self { neighbors, exports, config, .. } = self;
        let neighbor = &mut neighbors[link.neighbor.0];
        neighbor.is_up();
        neighbor.backlog = crate::exports::Backlog::default();
        neighbor.backlog.put_all(exports, Some(End::Rib));
        // Those that the neighbor does not repeat go with its End-of-RIB, or after a while.
        neighbor.stale_until = neighbor.stale_until.map(|_| now.after(config.stale_max));
        self.tell(Event::Up(link.neighbor));
        self.end(Link { side: link.side.other(), ..link }, &Notification::CEASE_COLLISION);
    }

    fn update(&mut self, now: Nanos, link: Link, update: &Update) {
        let index = link.neighbor.0;
        if self.rib.update(index, update).is_err() {
            self.end(link, &Notification::CEASE_TOO_MANY_ROUTES);
            self.neighbors[index].rest(now);
            self.rib.clear(index);
            self.ended(now, link);
        } else if update.is_end_of_rib {
            self.neighbors[index].stale_until = None;
            self.rib.end_refresh(index);
            self.tell(Event::EndOfRib(link.neighbor));
        }
    }

    fn refresh(&mut self, now: Nanos, link: Link, refresh: Refresh) {
        let index = link.neighbor.0;
        match refresh {
            Refresh::Begin => self.rib.begin_refresh(index),
            Refresh::End => self.rib.end_refresh(index),
            Refresh::Request => {
                let Self { neighbors, exports, .. } = self;
                let neighbor = &mut neighbors[index];
                let is_first = neighbor.backlog.is_empty();
                let Some(session) = neighbor.session_mut(link.side) else { return };
                let is_marked = session.peer().is_some_and(|open| open.has_enhanced_refresh);
                // A table that is being sent answers the question as well.
                let end = (is_first && is_marked).then_some(End::Refresh);
                if end.is_some() {
                    session.put(now, |out| wire::put_refresh(out, Refresh::Begin));
                }
                neighbor.backlog.put_all(exports, end);
            }
        }
    }

    /// Ends a session with a NOTIFICATION, if there is one.
    fn end(&mut self, link: Link, notification: &Notification) {
        let Some(session) = self.session(link) else { return };
        if session.ending().is_none() {
            session.end(notification);
            self.actions.push_back(Action::Close(link));
        }
    }

    /// Follows the end of a session.
    fn ended(&mut self, now: Nanos, link: Link) {
        let index = link.neighbor.0;
        let stale_max = self.config.stale_max;
        let neighbor = &mut self.neighbors[index];
        let Some(session) = neighbor.session(link.side) else { return };
        let (Some(ending), state) = (session.ending().cloned(), session.state()) else { return };
        neighbor.last_ending = Some(ending.clone());
        if !self.actions.contains(&Action::Close(link)) {
            self.actions.push_back(Action::Close(link));
        }
        if state == State::Established {
            neighbor.backlog = crate::exports::Backlog::default();
            // A neighbor that says it will not be back (RFC 4486): shutdown, removal.
            if matches!(ending, Ending::Told(6, 2 | 3)) {
                self.rib.clear(index);
            } else {
                self.rib.down(index);
                neighbor.stale_until = (self.rib.len(index) > 0).then(|| now.after(stale_max));
            }
        }
        self.tell(Event::Down(link.neighbor, ending));
    }

    /// Notes that a connection is closed, or that an attempt failed.
    pub fn disconnected(&mut self, now: Nanos, link: Link) {
        if let Some(session) = self.session(link)
            && session.ending().is_none()
        {
            session.closed();
            self.ended(now, link);
        }
        self.actions.retain(|action| *action != Action::Close(link));
        self.neighbors[link.neighbor.0].gone(now, link.side, &mut self.random);
    }

    /// Ends all sessions: this speaker is shut down, and its neighbors need not wait for it.
    pub fn shut_down(&mut self) {
        for index in 0..self.neighbors.len() {
            for side in Side::ALL {
                let link = Link { neighbor: NeighborId(index), side };
                self.end(link, &Notification::CEASE_SHUT_DOWN);
            }
        }
    }

    /// Returns the bytes for a connection, as many as are good at a time.
    pub fn output(&mut self, now: Nanos, link: Link) -> &[u8] {
        let Self { neighbors, exports, config, .. } = self;
        let neighbor = &mut neighbors[link.neighbor.0];
        let origin = Origin {
            vtep: config.vtep,
            router_id: config.router_id,
            local_as: config.local_as,
            is_internal: neighbor.config.remote_as == config.local_as,
        };
        while neighbor.session(link.side).is_some_and(Session::has_room)
            && let Some(next) = neighbor.backlog.next(exports, wire::ROUTES_MAX)
        {
            let Some(session) = neighbor.session_mut(link.side) else { break };
            let is_wide = session.peer().is_some_and(|open| open.has_wide_as);
            session.put(now, |out| match next {
                Next::Reach(common, routes) => {
                    wire::put_reach(out, &origin, is_wide, common, &routes, exports);
                }
                Next::Unreach(routes) => wire::put_unreach(out, &origin, &routes, exports),
                Next::End(End::Rib) => wire::put_end_of_rib(out),
                Next::End(End::Refresh) => wire::put_refresh(out, Refresh::End),
            });
        }
        neighbor.session(link.side).map_or(&[], Session::output)
    }

    /// Notes that the network took the first bytes of a connection's output.
    pub fn sent(&mut self, now: Nanos, link: Link, size: usize) {
        if let Some(session) = self.session(link) {
            session.sent(now, size);
        }
    }

    /// Does everything that is due.
    pub fn tick(&mut self, now: Nanos) {
        for index in 0..self.neighbors.len() {
            let id = NeighborId(index);
            for side in Side::ALL {
                let link = Link { neighbor: id, side };
                let Some(session) = self.session(link) else { continue };
                if session.ending().is_none() {
                    session.tick(now);
                    if session.ending().is_some() {
                        self.ended(now, link);
                    }
                }
            }
            let neighbor = &mut self.neighbors[index];
            if neighbor.stale_until.is_some_and(|until| until <= now) {
                neighbor.stale_until = None;
                let before = self.rib.len(index);
                if neighbor.established().is_some() {
                    self.rib.end_refresh(index);
                } else {
                    self.rib.clear(index);
                }
                self.tell(Event::Forgotten(id, before - self.rib.len(index)));
            }
            if self.neighbors[index].wants_connection(now) {
                self.actions.push_back(Action::Connect(id));
            }
        }
    }

    /// Returns the time at which [`Self::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        self.neighbors.iter().filter_map(Neighbor::deadline).min()
    }

    /// Returns the next work of the driver. Take all.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the next change. Take all: an own endpoint that moved away is withdrawn here.
    pub fn change(&mut self) -> Option<Change> {
        if let Some((vni, vtep)) = self.rib.changed_vtep() {
            return Some(Change::Vtep { vni, vtep, is_there: self.rib.has_vtep(vni, vtep) });
        }
        let key = self.rib.changed_mac()?;
        let remote = self.rib.best(key);
        let own = self.exports.endpoint(key).map(|own| own.mobility);
        let is_own = own.is_some_and(|own| {
            remote.as_ref().is_none_or(|remote| self.holds_against(own, remote))
        });
        let is_taken = own.is_some() && !is_own;
        if is_taken {
            let routes = self.exports.remove(key);
            self.send(&routes);
        }
        Some(Change::Mac { key, to: remote.filter(|_| !is_own), is_taken })
    }

    /// Returns the place of a MAC; `None`: it is behind no other VTEP, or this host has it.
    #[must_use]
    pub fn remote(&self, key: MacKey) -> Option<RemoteMac> {
        let own = self.exports.endpoint(key).map(|own| own.mobility);
        self.rib.best(key).filter(|remote| !own.is_some_and(|own| self.holds_against(own, remote)))
    }

    /// Returns true if an endpoint is announced for this host.
    #[must_use]
    pub fn is_announced(&self, key: MacKey) -> bool {
        self.exports.endpoint(key).is_some()
    }

    /// Returns the networks that are exported and imported.
    pub fn networks(&self) -> impl Iterator<Item = Network> + '_ {
        self.exports.networks()
    }

    /// Returns the number of MACs that neighbors have told.
    #[must_use]
    pub fn heard(&self) -> usize {
        self.rib.macs()
    }

    /// Reports all MACs and VTEPs once more, as changes.
    pub fn tell_again(&mut self) {
        self.rib.touch_all();
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the next event.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of own routes.
    #[must_use]
    pub fn exported(&self) -> usize {
        self.exports.len()
    }

    /// Returns the state of all neighbors.
    #[must_use]
    pub fn neighbors(&self) -> Vec<NeighborInfo> {
        let info = |(index, neighbor): (usize, &Neighbor)| {
            let up = neighbor.established().and_then(|side| neighbor.session(side));
            NeighborInfo {
                address: neighbor.config.address,
                remote_as: neighbor.config.remote_as,
                state: neighbor.state(),
                router_id: up.and_then(Session::peer).map(|open| open.router_id),
                routes: self.rib.len(index),
                kept_out: self.rib.kept_out(index),
                backlog: neighbor.backlog.len(),
                is_stale: neighbor.stale_until.is_some(),
                last_ending: neighbor.last_ending.clone(),
            }
        };
        self.neighbors.iter().enumerate().map(info).collect()
    }
}

#[cfg(test)]
mod tests;
