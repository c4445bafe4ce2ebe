//! The switch: its tables, its construction, and the parts of its interface other than ingress and
//! egress.

mod account;
mod aside;
mod attach;
mod audit;
mod batch;
mod changes;
mod detach;
mod dispose;
mod drop_watch;
mod free_places;
mod handoff;
mod hear;
mod hold;
mod inspect;
mod isolation;
mod migrate;
mod migrate_buffers;
mod port_changes;
mod punt;
mod receive;
mod reclaim;
mod replicate;
mod run;
mod shared_buffer;
mod sources;
mod storm;
mod too_big;
mod transmit;
mod tunnel_changes;
mod underlay;
mod unresolved;
mod vnet_changes;
mod window;

use sluice_base::{Buf, Command, Destination, InputId, Nanos, PortId, Priority, VnetId};

use crate::config::{ConfigError, PortRole, SwitchConfig};
use crate::dscp::Dscp;
use crate::egress::EgressTables;
use crate::fdb::Fdb;
use crate::ingress::Ingress;
use crate::inspect::Counter;
use crate::ledger::Ledger;
use crate::mac_table;
use crate::networks::Networks;
use crate::place::NO_PORT;
use crate::pool::Pool;
use crate::sizes::{CONTROL_FRAMES, buffer_count, slot_count};
use crate::slots::Slots;
use crate::surface::{CommandError, Notice, Target};
use crate::validate;

use self::attach::SparePorts;
use self::drop_watch::DropWatch;
use self::handoff::RemoteRefs;
use self::hold::Holds;
use self::isolation::Isolation;
use self::punt::{CONTROL_PRIORITY, Control};
use self::sources::SourceChecks;
use self::storm::Storms;
use self::too_big::TooBig;
use self::underlay::Paths;
use self::unresolved::Unresolved;

pub use self::attach::{AttachError, PortState};
pub use self::changes::ChangeError;
pub use self::drop_watch::DroppedFrame;
pub use self::free_places::FreePlaces;
pub use self::handoff::{Handoff, HandoffSink, RemoteRef};
pub use self::hear::Classifier;
pub use self::hold::HOLD_LEASE;
pub use self::migrate::MigratedPort;
pub use self::port_changes::PortValues;
pub use self::punt::PuntCounters;

/// A virtual or physical switch. See the crate's documentation. The order of its fields keeps those
/// together that every frame touches. Tables that never grow are slices, which take two words and
/// not three: if many switches share a cache, each cache line counts.
#[derive(Debug)]
#[repr(C)]
pub struct Switch<B> {
    ingress: Ingress<B>,
    egress: EgressTables<B>,
    ledger: Ledger,
    slots: Slots<B>,
    networks: Networks,
    control: Control,
    dscp: Dscp,
    /// Last of the fields that every frame touches: first the part that a lookup reads, then the
    /// rest.
    fdb: Fdb,
    pool: Pool,
    unresolved: Unresolved,
    sources: SourceChecks,
    spare_ports: SparePorts,
    remote_refs: RemoteRefs,
    isolation: Isolation,
    holds: Holds,
    storms: Storms,
    too_big: TooBig,
    paths: Paths,
    drop_watch: DropWatch,
}

impl<B: Buf> Switch<B> {
    /// Makes a switch and allocates all the memory that it ever uses.
    ///
    /// # Errors
    /// The first fault of the configuration.
    pub fn new(config: &SwitchConfig, seed: u64, now: Nanos) -> Result<Self, ConfigError> {
        validate::check(config)?;
        let config = config.with_spare();
        let config = config.as_ref();
        // Tables that every frame touches are made first and together: they lie on few pages.
        let ingress = Ingress::new(config);
        let inputs = ingress.count();
        let slots = u32::try_from(slot_count(config)).expect("checked by `validate`");
        let egress = EgressTables::new(config, slots, inputs);
        // The last input stands for ports that are gone.
        let ledger = Ledger::new(inputs + 1);
        let networks = Networks::new(config, inputs);
        let fdb = Fdb::new(config, seed);
        let reserved = slots - u32::try_from(buffer_count(config)).expect("a part of them");
        let mut switch = Self {
            slots: Slots::new(slots, reserved),
            ledger,
            networks,
            fdb,
            control: Control::new(
                config.control.punts,
                config.unresolved.destinations,
                config.ports.len(),
            ),
            sources: SourceChecks::new(config),
            pool: Pool::new(config),
            dscp: Dscp::new(config),
            unresolved: Unresolved::new(config, inputs),
            spare_ports: SparePorts::new(config, now),
            remote_refs: RemoteRefs::new(&config.handoff, config.ports.len(), inputs),
            isolation: Isolation::new(config, inputs),
            holds: Holds::new(config),
            storms: Storms::new(config),
            too_big: TooBig::new(config.ports.len()),
            paths: Paths::new(config.tunnel_places()),
            drop_watch: DropWatch::default(),
            ingress,
            egress,
        };
        switch.begin(now, config);
        Ok(switch)
    }

    /// Initialises the state that depends on the tables.
    fn begin(&mut self, now: Nanos, config: &SwitchConfig) {
        self.leave_free(config.spare.as_ref());
        self.sources_changed();
        self.places_changed();
        for (at, tunnel) in config.numbered_tunnels() {
            self.change_next_hop(now, at, tunnel.next_hop);
        }
    }

    /// Returns the input of a port's queue.
    #[must_use]
    pub fn input(&self, port: PortId, queue: u8) -> InputId {
        let port = self.egress.port(port.index());
        assert!(queue < port.queues(), "the port has {} queues", port.queues());
        InputId(port.first_input() + u16::from(queue))
    }

    /// Returns the port that an input belongs to; `None` for the control input and for the pool's
    /// number.
    #[must_use]
    pub fn port_of(&self, input: InputId) -> Option<PortId> {
        let port = self.ingress.inputs().get(input.index())?.port();
        (port != NO_PORT).then_some(PortId(port))
    }

    /// Returns the input under which control's own frames are counted.
    #[must_use]
    pub fn control_input(&self) -> InputId {
        InputId::from_index(self.ingress.count() - 1)
    }

    /// Returns the number under which handles of the host pool are reclaimed. It also has the
    /// counters of ports that are gone, once their numbers belong to other ports.
    #[must_use]
    pub fn pool_input(&self) -> InputId {
        InputId::from_index(self.ingress.count())
    }

    /// Returns the number of handles that the switch can hold at the same time, over all inputs and
    /// the pool. A driver that reads into memory of its own needs as many buffers.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Takes a frame that control made. It is counted under the control input.
    ///
    /// # Errors
    /// The frame, if control has too many in the switch, or the target does not exist.
    pub fn inject(&mut self, now: Nanos, buf: B, to: Target) -> Result<(), B> {
        let i = self.ingress.input(self.control_input().0);
        if i.held().frames + i.unreclaimed() >= CONTROL_FRAMES || self.slots.free_count() == 0 {
            return Err(buf);
        }
        let priority = CONTROL_PRIORITY;
        match to {
            Target::Port(port) if port.index() < self.egress.ports().len() => {
                let group = self.egress.port(port.index()).group();
                self.inject_to_group(0, priority, buf, group);
                Ok(())
            }
            Target::Tunnel(vnet, tunnel) if self.networks.check(vnet).is_ok() => {
                let Ok(group) = self.group_of(vnet, Destination::Tunnel(tunnel)) else {
                    return Err(buf);
                };
                self.inject_to_group(vnet.0, priority, buf, group);
                Ok(())
            }
            Target::Address(vnet, mac) if self.networks.check(vnet).is_ok() => {
                // Its destination may differ from its header, so the frame cannot be deferred and
                // read again.
                let key = mac_table::key(vnet.0, mac);
                let known = mac.is_group()
                    || self.fdb.lookup(key).is_some()
                    || self.fdb.pending(key).is_some();
                if !known && self.egress.free_count() == 0 {
                    return Err(buf);
                }
                let slot = self.injected_slot(vnet.0, priority, buf);
                self.forward(now, slot, mac);
                Ok(())
            }
            _ => Err(buf),
        }
    }

    fn inject_to_group(&mut self, vnet: u16, priority: Priority, buf: B, group: u32) {
        let slot = self.injected_slot(vnet, priority, buf);
        self.hold_at_input(slot);
        self.settle(slot, self.admit(slot, group));
    }

    /// Executes a command of the control plane.
    ///
    /// # Errors
    /// A port, network or tunnel of the command does not exist, or the command is not allowed;
    /// nothing was changed.
    pub fn command(&mut self, now: Nanos, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Install { vnet, mac, to } => {
                self.networks.check(vnet)?;
                if mac.is_group() {
                    return Err(CommandError::GroupAddress(mac));
                }
                let mut group = self.group_of(vnet, to)?;
                let key = mac_table::key(vnet.0, mac);
                self.end_holds_elsewhere(key, to);
                if let Destination::Tunnel(tunnel) = to {
                    group = self.holds.group_of(key, tunnel).unwrap_or(group);
                }
                self.install(key, group);
                self.resolve(now, vnet, mac, group);
            }
            Command::Remove { vnet, mac } => {
                self.networks.check(vnet)?;
                self.uninstall(mac_table::key(vnet.0, mac));
            }
            Command::Reject { vnet, mac } => {
                self.networks.check(vnet)?;
                self.reject(now, vnet, mac);
            }
            Command::Unbind { port, mac, ip } => self.unbind(port, mac, ip)?,
            Command::Hold { vnet, mac, tunnel, held, stuck } => {
                self.networks.check(vnet)?;
                self.hold(now, (vnet, mac, tunnel), held, stuck)?;
            }
            Command::ForgetDecap { vnet, tunnel } => {
                self.networks.check(vnet)?;
                self.networks.forget_decap(vnet, tunnel)?;
            }
            Command::Refuse { port, reason, frames, bytes } => {
                self.refuse_taken(port, reason, Counter { frames, bytes })?;
            }
        }
        Ok(())
    }

    pub(crate) fn group_of(&self, vnet: VnetId, to: Destination) -> Result<u32, CommandError> {
        match to {
            Destination::Port(port) => {
                let p = self.egress.ports().get(port.index()).filter(|p| !p.is_detached());
                let p = p.ok_or(CommandError::NoSuchPort(port))?;
                if p.role() != (PortRole::Access { vnet }) {
                    return Err(CommandError::NotAMember(port));
                }
                Ok(p.group())
            }
            Destination::Tunnel(tunnel) => {
                let t = self.networks.tunnels().get(tunnel.index()).filter(|t| t.is_in_use());
                let t = t.ok_or(CommandError::NoSuchTunnel(tunnel))?;
                // Frames from this tunnel would be refused, so frames are not sent into it either.
                if !self.networks.vnet(vnet.0).tunnels().contains(&tunnel.0) {
                    return Err(CommandError::NotInNetwork(tunnel));
                }
                Ok(t.group())
            }
        }
    }

    /// Advances the time: ends pauses and waits that are over. Call it once per turn.
    pub fn advance(&mut self, now: Nanos) {
        self.egress.advance_pauses(now);
        if self.egress.has_timed() {
            self.egress.open_timed(now);
        }
        if !self.egress.waiting().is_empty() || !self.egress.closed().is_empty() {
            self.advance_unresolved(now);
        }
        self.advance_holds(now);
        self.watch_receivers(now);
        if !self.paths.is_empty() {
            self.forget_paths(now);
        }
    }

    /// Returns the moment at which the switch has work next, if no frame comes in before: a rate
    /// allows the next frame, a pause ends or must be repeated, a wait is over.
    ///
    /// The moment is later than `now` once [`Self::advance`] was called with `now`, every port was
    /// offered to a driver with room and every event was read. Work that a driver or reader holds
    /// up stays due, and its moment is at `now` or before it:
    ///
    /// - a pause frame that its driver has not taken: [`Nanos::ZERO`], or the moment at which it
    ///   should have been repeated;
    /// - a frame that its rate allows and its driver has not taken: the moment since which it may
    ///   go;
    /// - a miss that found no room among events that nobody reads: the moment since which it is
    ///   due.
    ///
    /// The switch cannot tell a driver without room from one that was not asked yet, so a caller
    /// that sleeps until this moment needs a minimum sleep, or waits for the driver. A frame
    /// without a rate has no moment: it may go at any time ([`Self::has_work`]).
    #[inline]
    #[must_use]
    pub fn deadline(&self) -> Option<Nanos> {
        if self.has_receiver_news() {
            // Events about receivers are due at once.
            return Some(Nanos::ZERO);
        }
        let watched = [self.isolation.deadline(), self.holds.deadline()];
        let watched = watched.into_iter().flatten().min();
        let egress = self.egress.deadline();
        let waits = !self.egress.waiting().is_empty() || !self.egress.closed().is_empty();
        if egress.is_none() && !waits {
            return watched;
        }
        let unresolved = if waits { self.unresolved_deadline() } else { None };
        [watched, egress, unresolved].into_iter().flatten().min()
    }

    /// Returns the first port from `from` on that may have something to send. A worker walks these
    /// instead of all its ports, after [`Self::advance`].
    #[must_use]
    pub fn busy_port(&self, from: PortId) -> Option<PortId> {
        self.egress.busy_port(from.index()).map(PortId::from_index)
    }

    /// Returns true if a port may have something to send, as [`Self::busy_port`] does for all.
    #[inline]
    #[must_use]
    pub fn is_busy(&self, port: PortId) -> bool {
        self.egress.is_busy(port.index())
    }

    /// Returns the next event; misses first.
    #[inline]
    pub fn notice(&mut self) -> Option<Notice> {
        // Called in every turn, and mostly without an event.
        if self.control.has_misses() {
            return self.control.next_miss();
        }
        if self.has_receiver_news()
            && let Some(notice) = self.next_receiver()
        {
            return Some(notice);
        }
        if !self.too_big.is_silent() {
            return self.too_big.next();
        }
        if self.control.is_silent() { None } else { self.next_punt() }
    }

    #[inline]
    pub(crate) fn tunnel_from(&self, remote: u32, port: u16) -> Option<u16> {
        let tunnel = self.fdb.vtep(remote)?;
        (self.networks.tunnel(tunnel).port() == port).then_some(tunnel)
    }
}
