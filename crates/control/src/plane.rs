//! The control plane of one host: every part of this crate, joined.
//!
//! Pure: time and input go in, commands and events come out. No clock, no socket, no thread.
//!
//! ```text
//!   add_vnet, add_port, bind ──┐                         ┌──> command  (FDB, tunnels, frames)
//!   add_host ──────────────────┤                         ├──> event    (for people)
//!   punt, used, decap ─────────┤          Plane          ├──> datagram_out
//!   connected, disconnected ───┤                         ├──> write    (bytes to a peer)
//!   stream, datagram, tick ────┤                         ├──> due      (connect, hung)
//!   send_message, ask_host ────┘                         └──> message_event, talk
//!
//!   frames ──> policer ──> learner ──> mobility ──> table, publisher ──> sessions
//!   sessions ──> table ──> follow ──> FDB, tunnels, own claims
//! ```
//!
//! **Calls.** After each input, and at [`Plane::deadline`], the caller calls [`Plane::tick`] and
//! then takes everything out: [`Plane::ready`] until it returns no host, and for each host
//! [`Plane::due`] and [`Plane::write`]; then commands, events, questions, messages and datagrams
//! until there are none. A caller that takes everything has nothing to do before the next deadline.
//!
//! **The forwarding table (FDB) is a cache.** An entry is made when a frame needs it, follows the
//! vport table at once, and goes when it is unused. A host with a million vports in its table has
//! only the peers of its endpoints in its forwarding table, and tunnels to their hosts only.
//!
//! **Not here.** Storm control looks at each frame: it is the switch's. A caller that starts a
//! plane beside a running switch reports the content of its forwarding table ([`Plane::adopt`]), or
//! clears it, and every endpoint in use misses once.
//!
//! | file | content |
//! |---|---|
//! | `surface` | input and output, as values |
//! | `hosts`, `peers` | members, sessions, liveness, deadlines |
//! | `changes` | changes of the configuration of a running plane |
//! | `punts`, `ask` | handling of punted frames; questions in a sender's name |
//! | `bindings` | endpoints that are configured, here and elsewhere |
//! | `addresses` | IP addresses that go from one endpoint to another; questions to their owners |
//! | `follow`, `fdb`, `tunnels` | follow-up of changes: FDB, flows, tunnels, own claims |
//! | `foreign` | endpoints of hosts that do not speak the protocol |
//! | `own` | own claims, for a speaker of another protocol |
//! | `nets`, `agenda`, `outbox` | members of networks; deadlines; bounded output |
//! | `talk`, `messages` | questions to other members, and theirs; messages of any size |
//! | `holds` | receivers that do not keep up, here and elsewhere |
//! | `restart` | a new plane beside a running switch, a new switch, departure |
//! | `inspect` | queries for people |

mod addresses;
mod agenda;
mod ask;
mod bind;
mod bindings;
mod changes;
mod fdb;
mod follow;
mod foreign;
mod holds;
mod hosts;
mod inspect;
mod lives;
mod messages;
mod nets;
mod outbox;
mod own;
mod peers;
mod punts;
mod restart;
mod surface;
mod talk;
mod tunnels;
mod words;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use sluice_base::{HostId, IpPrefix, Nanos, PortId, Vni, mix};

pub use self::bind::BindError;
pub use self::bindings::{BindingConflicts, BoundAt};
pub use self::foreign::Told;
pub use self::messages::MessageEvent;
pub use self::surface::{
    Command, Config, Counts, End, Event, Full, Health, HostInfo, Kind, Location, TunnelInfo,
    VportInfo,
};

use self::addresses::AddressConflicts;
use self::agenda::Agenda;
use self::bindings::Ended;
use self::fdb::Fdb;
use self::foreign::Foreign;
use self::lives::Incarnations;
use self::nets::Nets;
use self::outbox::Outbox;
use self::own::OwnChanges;
use self::peers::Peers;
use self::tunnels::Tunnels;
use crate::clock::Clock;
use crate::directory::PortRule;
use crate::hold::{HoldRequester, HoldResponder};
use crate::learn::{self, Learner};
use crate::liveness::Liveness;
use crate::mobility::{Mobility, Why};
use crate::publisher::Publisher;
use crate::punt::{self, Policer};
use crate::resolve::{self, Resolver};
use crate::session;
use crate::table::Table;
use crate::vport::{Claim, Key, Origin, Precedence};

/// Number of endpoints that age in one tick.
const AGE_STEP: u32 = 1 << 10;

/// The control plane of one host.
#[derive(Debug)]
pub struct Plane {
    own: HostId,
    fabric: [u8; 16],
    versions: (u8, u8),
    timing: session::Timing,
    stale_life: Nanos,
    claims_per_host: u32,
    unknown_life: Nanos,
    seed: u64,
    /// The port number that stands for all other hosts.
    hosts_port: PortId,
    clock: Clock,
    nets: Nets,
    table: Table,
    publisher: Publisher,
    mobility: Mobility,
    policer: Policer,
    learner: Learner,
    resolver: Resolver,
    liveness: Liveness,
    peers: Peers,
    fdb: Fdb,
    tunnels: Tunnels,
    foreign: Foreign,
    own_changes: OwnChanges,
    /// Own receivers that do not keep up.
    hold_requester: HoldRequester,
    /// Receivers of other hosts that do not keep up.
    hold_responder: HoldResponder,
    /// Own addresses in doubt, and confirmed addresses.
    doubts: AddressConflicts,
    /// Own bindings that were taken over from other hosts, with the number of the taking.
    taken: BTreeMap<Key, u32>,
    /// Own bindings that other hosts have taken over.
    ended: Vec<Ended>,
    /// Endpoints that no host claims and that frames are sent to.
    wanted: Agenda<Key>,
    wanted_max: usize,
    /// Endpoints that were in the forwarding table before this plane started, until a host claims
    /// them.
    adopted: Agenda<Key>,
    /// Hosts whose claims are being forgotten, in steps.
    evicting: Vec<HostId>,
    lives: Incarnations,
    outbox: Outbox,
}

impl Plane {
    /// Creates the control plane of a host, without any knowledge. The seed serves hashes that must
    /// not be guessed and times that must differ between hosts.
    ///
    /// # Panics
    /// If the incarnation is zero, or a bound is zero that must not be.
    #[must_use]
    pub fn new(config: &Config, seed: u64, now: Nanos) -> Self {
        let mut clock = Clock::default();
        clock.at(now);
        let own = config.own;
        let ports = config.ports_max.checked_add(1).expect("one number stands for other hosts");
        let seed_of = |part: u64| mix(seed ^ mix(part));
        let learn = learn::Config { ports: config.ports_max, ..config.learn };
        let entries = usize::try_from(learn.entries).expect("32 bits");
        let claims_half = usize::try_from(config.claims_max / 2).expect("32 bits");
        Self {
            own,
            fabric: config.fabric,
            versions: config.versions,
            timing: config.session,
            stale_life: config.stale_life,
            claims_per_host: config.claims_per_host,
            unknown_life: config.punt.unknown_life,
            seed,
            hosts_port: PortId(config.ports_max),
            clock,
            nets: Nets::default(),
            table: Table::new(config.claims_max, seed_of(1)),
            publisher: Publisher::new(config.incarnation, config.tombstones_max),
            mobility: Mobility::new(config.mobility),
            policer: Policer::new(&punt::Config { ports, ..config.punt }, seed_of(2)),
            learner: Learner::new(&learn, seed_of(3)),
            resolver: Resolver::new(&resolve::Config { ports, ..config.resolve }, seed_of(4)),
            liveness: Liveness::new(own, config.incarnation, config.liveness, seed_of(5)),
            peers: Peers::new(),
            fdb: Fdb::new(config.flow_limit, entries, config.flow_life),
            tunnels: Tunnels::new(config.decap_life, config.tunnel_life),
            foreign: Foreign::new(entries, claims_half, learn.lifetime),
            own_changes: OwnChanges::default(),
            hold_requester: HoldRequester::default(),
            hold_responder: HoldResponder::default(),
            doubts: AddressConflicts::new(config.confirmed_life, seed_of(6)),
            taken: BTreeMap::new(),
            ended: Vec::new(),
            wanted: Agenda::new(),
            wanted_max: usize::try_from(config.punt.unknowns).expect("32 bits"),
            adopted: Agenda::new(),
            evicting: Vec::new(),
            lives: Incarnations::default(),
            outbox: Outbox::default(),
        }
    }

    /// Adds a network of this host.
    pub fn add_vnet(&mut self, vni: Vni) {
        self.nets.add(vni);
        self.report_again(|there, _| there == vni);
    }

    /// Removes a network of this host: its ports there claim nothing, and the forwarding table has
    /// nothing of it. Claims of other hosts in the network stay in the table.
    pub fn remove_vnet(&mut self, now: Nanos, vni: Vni) {
        self.remove_vnets(now, &BTreeSet::from([vni]));
    }

    /// Removes networks as [`Self::remove_vnet`], by one walk of each table for all of them.
    pub fn remove_vnets(&mut self, now: Nanos, vnis: &BTreeSet<Vni>) {
        let now = self.clock.at(now);
        for vni in vnis {
            self.nets.remove(*vni);
        }
        self.report_again(|there, _| vnis.contains(&there));
        self.hold_responder.end_vnis(vnis);
        self.withdraw_own(now, |claim| vnis.contains(&claim.key.vni));
        let installed = self.fdb.iter().filter(|(key, ..)| vnis.contains(&key.vni));
        let keys: Vec<_> = installed.map(|(key, ..)| key).collect();
        for key in keys {
            self.uninstall(now, key, End::Removed);
        }
        let flows: Vec<_> = self.tunnels.decaps().filter(|flow| vnis.contains(&flow.0)).collect();
        for (vni, host, _) in flows {
            self.end_decap(now, vni, host, End::Removed);
        }
    }

    /// Adds a port to a network, with the `rule` by which it gets its endpoints. A port may be in
    /// several networks; the last rule applies to all of them. False if this host does not have the
    /// network.
    ///
    /// # Panics
    /// If the number of the port is not below [`Config::ports_max`].
    pub fn add_port(&mut self, now: Nanos, port: PortId, vni: Vni, rule: PortRule) -> bool {
        self.clock.at(now);
        assert!(port < self.hosts_port, "port {port} is not below the configured number");
        let fits = self.nets.is_local(vni);
        if fits {
            self.nets.add_port(port, vni, rule);
        }
        fits
    }

    /// Removes a port and its claims. Nothing happens if it is not there.
    pub fn remove_port(&mut self, now: Nanos, port: PortId) {
        let now = self.clock.at(now);
        if self.nets.remove_port(port) {
            self.port_is_fine(now, port);
            self.ended.retain(|ended| !ended.is_at(port));
            self.withdraw_own(now, |claim| claim.port == port);
            self.learner.port_down(port);
        }
    }

    /// Notes that the link of a port is up or down. When it goes down, endpoints that were learned
    /// there are withdrawn at once. Bound endpoints keep their addresses, and are not answered for.
    /// Nothing happens if the port is not there.
    pub fn port_link(&mut self, now: Nanos, port: PortId, is_up: bool) {
        let now = self.clock.at(now);
        if !self.nets.set_link(port, is_up) {
            return;
        }
        self.outbox.event(if is_up { Event::LinkUp(port) } else { Event::LinkDown(port) });
        if !is_up {
            self.withdraw_own(now, |claim| claim.port == port && claim.origin != Origin::Bound);
            self.learner.port_down(port);
        }
        // Shared addresses are learned, and go.
        self.publish_bound(now, port);
    }

    /// Publishes the claims of the endpoints that are bound to a port anew, with the addresses that
    /// they may have now.
    fn publish_bound(&mut self, now: Nanos, port: PortId) {
        let claims = self.table.claims_of(self.own);
        let bound = claims.filter(|claim| claim.port == port && claim.origin == Origin::Bound);
        for claim in bound.collect::<Vec<_>>() {
            let ips = self.bound_ips(port, claim.key, &claim.ips_of(Precedence::Bound));
            self.publish(now, &Claim { ips, ..claim });
        }
    }

    /// Sets the addresses that endpoints bound to a port may share as well: these are learned from
    /// such an endpoint, and move among the ports that allow them. Those that it may share no more
    /// are withdrawn. Nothing happens if the port is not there.
    pub fn allow(&mut self, now: Nanos, port: PortId, allowed: &[IpPrefix]) {
        let now = self.clock.at(now);
        if self.nets.allow(port, allowed) {
            self.publish_bound(now, port);
        }
    }

    /// Withdraws own claims, and forgets the learned endpoints.
    fn withdraw_own(&mut self, now: Nanos, which: impl Fn(&Claim) -> bool) {
        let claims = self.table.claims_of(self.own).filter(|claim| which(claim));
        let keys: Vec<_> = claims.map(|claim| claim.key).collect();
        for key in keys {
            self.learner.forget(key);
            self.retract(now, key, Why::Withdrawn);
        }
    }

    /// Does everything that is due at `now`, except for sessions, which [`Self::ready`] returns.
    pub fn tick(&mut self, now: Nanos) {
        let now = self.clock.at(now);
        self.liveness.advance(now);
        self.greet(now);
        self.hear(now);
        self.resolve_conflicts(now);
        self.age_own(now);
        self.age_foreign(now);
        self.age_fdb(now);
        self.age_adopted(now);
        self.age_hosts(now);
        self.evict_some(now);
        self.tell_holds(now);
        self.keep_holds(now);
        if self.peers.has_news(&self.publisher) {
            self.peers.wake(&self.publisher);
        }
    }

    fn age_own(&mut self, now: Nanos) {
        let mut gone = Vec::new();
        self.learner.tick(now, AGE_STEP, |which| gone.push(which));
        for learn::Gone { key, port, why } in gone {
            if why == learn::Why::Silent {
                self.ask_all(key);
                continue;
            }
            let own = self.own_claim(key).filter(|claim| claim.port == port);
            if own.is_some_and(|claim| claim.origin == Origin::Learned) {
                self.retract(now, key, Why::Withdrawn);
            }
        }
    }

    fn age_fdb(&mut self, now: Nanos) {
        while let Some(key) = self.fdb.expired(now) {
            self.uninstall(now, key, End::Idle);
        }
        while let Some((vni, host)) = self.tunnels.expired_decap(now) {
            self.end_decap(now, vni, host, End::Idle);
        }
        while let Some(host) = self.tunnels.close_expired(now) {
            self.outbox.command(Command::CloseTunnel { host });
            self.outbox.event(Event::TunnelClosed(host, End::Idle));
        }
        while let Some(key) = self.wanted.due(now) {
            self.wanted.remove(key);
            if self.outbox.has_room() {
                self.outbox.command(Command::Reject { vni: key.vni, mac: key.mac });
            }
        }
    }

    /// Returns the time at which [`Self::tick`] or a session has something to do; `None`: not
    /// before something happens. A moment that has passed means now. The cost does not depend on
    /// the number of hosts.
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        let at_once = self.peers.has_news(&self.publisher) || !self.evicting.is_empty();
        let times = [
            at_once.then_some(Nanos::ZERO),
            self.liveness.deadline(),
            self.learner.deadline(),
            self.peers.deadline(),
            self.fdb.deadline(),
            self.tunnels.deadline(),
            self.foreign.deadline(),
            self.wanted.deadline(),
            self.doubts.deadline(),
            self.adopted.deadline(),
            self.hold_requester.deadline(),
            self.hold_responder.deadline(),
        ];
        times.into_iter().flatten().min().map(|at| self.clock.outside(at))
    }

    /// Returns the next command for the switch. Take all.
    pub fn command(&mut self) -> Option<Command> {
        self.urgent_command().or_else(|| self.outbox.next_command())
    }

    /// Returns the next event. At most some thousands wait; then the oldest goes.
    pub fn event(&mut self) -> Option<Event> {
        self.outbox.next_event()
    }

    /// Returns the next datagram of the failure detector, and its destination.
    pub fn datagram_out(&mut self) -> Option<(HostId, Vec<u8>)> {
        self.outbox.next_datagram()
    }
}

#[cfg(test)]
mod tests;
