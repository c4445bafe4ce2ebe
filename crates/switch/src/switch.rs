//! The switch: its tables, its construction, and the parts of its interface other than ingress and
//! egress.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use sluice_base::{Buf, InputId, Nanos, PortId, Priority, PriorityMask, VnetId};

use crate::attach::{Bay, make_bays};
use crate::build::{
    buffer_count, make_inputs, make_lanes, make_ports, make_tunnels, make_vnets, make_vnis,
    make_vteps, mask_of, node_count, partitions, slot_count, unresolved_lanes,
};
use crate::busy::BusyPorts;
use crate::common::Class;
use crate::config::{ConfigError, PortRole, Service, SwitchConfig, UnresolvedConfig};
use crate::cross::Lending;
use crate::hold::Holds;
use crate::inspect::Marks;
use crate::isolation::Isolation;
use crate::ledger::Ledger;
use crate::mac_table::{self, MacTable};
use crate::numbers::Numbers;
use crate::place::{Input, Lane, Partition, Port, Tunnel, Vnet};
use crate::punt::{CONTROL_PRIORITY, Control};
use crate::queues::Queues;
use crate::receive::NO_PORT;
use crate::shares::Shares;
use crate::slots::{Home, NIL, Slots};
use crate::sources::{Watch, make_watches};
use crate::spill::Share;
use crate::surface::{Command, CommandError, Destination, Notice, Target};
use crate::too_big::TooBig;
use crate::transmit::weight_of;
use crate::validate;

/// Frames that a driver may have received beyond the limit of an input, because they end at once:
/// the largest batch.
pub(crate) const BATCH_MAX: u32 = 64;
/// Frames that control may have in the switch.
pub(crate) const CONTROL_FRAMES: u32 = 64;

/// A virtual or physical switch. See the crate's documentation. The order of its fields keeps those
/// together that every frame touches. Tables that never grow are slices, which take two words and
/// not three: if many switches share a cache, each cache line counts.
#[derive(Debug)]
#[repr(C)]
pub struct Switch<B> {
    pub(crate) inputs: Box<[Input<B>]>,
    pub(crate) ports: Box<[Port]>,
    pub(crate) ledger: Ledger,
    /// Classes by priority and port, so that those used together lie together.
    pub(crate) classes: Box<[Class<B>]>,
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) busy: BusyPorts,
    pub(crate) tunnels: Box<[Tunnel]>,
    pub(crate) vnets: Box<[Vnet]>,
    /// VTEP addresses with their tunnels.
    vteps: Numbers,
    /// Network numbers with their networks.
    vnis: Numbers,
    pub(crate) slots: Slots<B>,
    pub(crate) lossless: PriorityMask,
    pub(crate) strict: PriorityMask,
    /// Number of frames that may wait in a common queue: few, compared to the limit of any input.
    pub(crate) common_max: u32,
    /// Slots that inputs use beyond their own, and slots that are not for lossy frames in buffers.
    pub(crate) excess: u32,
    pub(crate) slots_reserved: u32,
    pub(crate) priority_to_dscp: [u8; Priority::COUNT],
    pub(crate) notices: VecDeque<Notice>,
    pub(crate) timed: Vec<u32>,
    pub(crate) waiting_lanes: Vec<u32>,
    /// Lanes of tunnels without a next hop.
    pub(crate) closed: Vec<u32>,
    pub(crate) control: Control,
    pub(crate) dscp_to_priority: [Priority; 64],
    /// Last of the fields that every frame touches: first the part that a lookup reads, then the
    /// rest.
    pub(crate) chip: MacTable,
    pub(crate) queues: Queues,
    pub(crate) pool_ended: u32,
    pub(crate) weights: [u8; Priority::COUNT],
    /// Destinations that are not resolved, with their lanes.
    pub(crate) pending: MacTable,
    pub(crate) free_lanes: Vec<u32>,
    /// Partitions of the pool: for frames from local ports, from the underlay, and the reserve of
    /// isolated receivers.
    pub(crate) pool: [Partition; 3],
    pub(crate) pool_marks: [Marks; 3],
    pub(crate) bodies: u32,
    pub(crate) unresolved_buffered: u32,
    pub(crate) unresolved: UnresolvedConfig,
    pub(crate) replicated_frames: u32,
    pub(crate) copies_per_lane: u32,
    pub(crate) pair_share: u16,
    /// Lower bound of the shares of all inputs.
    pub(crate) share_min: Share,
    /// Source checks by port.
    pub(crate) watch: Vec<Watch>,
    /// True if some port is bound to addresses.
    pub(crate) has_bound_ips: bool,
    /// Bays by port: limits of a port that may attach there.
    pub(crate) bays: Vec<Bay>,
    pub(crate) lending: Lending,
    pub(crate) isolation: Isolation,
    pub(crate) holds: Holds,
    pub(crate) shares: Shares,
    pub(crate) too_big: TooBig,
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
        let inputs: Box<[Input<B>]> = make_inputs(config);
        let ports = make_ports(config);
        // The last input stands for ports that are gone.
        let ledger = Ledger::new(inputs.len() + 1);
        let busy = BusyPorts::new(ports.len());
        let vnets = make_vnets(config, inputs.len());
        let vnis = make_vnis(config);
        let classes = (0..ports.len() * Priority::COUNT).map(|_| Class::new()).collect();
        let vteps = make_vteps(config);
        let lanes = make_lanes(config);
        let slots = u32::try_from(slot_count(config)).expect("checked by `validate`");
        let nodes = node_count(config, slots, inputs.len());
        let mut switch = Self {
            slots: Slots::new(slots),
            queues: Queues::new(nodes),
            ledger,
            busy,
            classes,
            vnets,
            tunnels: make_tunnels(config, inputs.len()),
            vteps,
            vnis,
            chip: MacTable::new(config.chip.macs, config.chip.flows, seed),
            pending: MacTable::new(u32::from(config.unresolved.destinations), 0, seed ^ 1),
            control: Control::new(config.control.punts, ports.len()),
            watch: make_watches(config),
            has_bound_ips: false,
            free_lanes: unresolved_lanes(config, lanes.len()),
            waiting_lanes: Vec::with_capacity(lanes.len()),
            timed: Vec::with_capacity(lanes.len()),
            closed: Vec::with_capacity(config.tunnels.len()),
            notices: VecDeque::with_capacity(usize::from(config.unresolved.destinations)),
            pool: partitions(config),
            pool_marks: [Marks::default(); 3],
            pool_ended: NIL,
            bodies: 0,
            unresolved_buffered: 0,
            excess: 0,
            slots_reserved: slots - u32::try_from(buffer_count(config)).expect("a part of them"),
            lossless: mask_of(|p| config.classes[p].lossless),
            strict: mask_of(|p| config.classes[p].service == Service::Strict),
            weights: core::array::from_fn(|p| weight_of(config.classes[p].service)),
            dscp_to_priority: config.dscp_to_priority,
            priority_to_dscp: config.priority_to_dscp,
            unresolved: config.unresolved,
            replicated_frames: config.pool.replicated_frames,
            copies_per_lane: config.pool.copies_per_lane,
            pair_share: config.pool.pair_share,
            common_max: 0,
            share_min: Share::LEAST,
            bays: make_bays(config, now),
            lending: Lending::new(&config.crossing, ports.len(), inputs.len()),
            isolation: Isolation::new(config, inputs.len()),
            holds: Holds::new(config),
            shares: Shares::new(config, inputs.len()),
            too_big: TooBig::new(ports.len(), config.tunnels.len()),
            inputs,
            ports,
            lanes,
        };
        switch.begin(now, config);
        Ok(switch)
    }

    /// Initialises the state that depends on the tables.
    fn begin(&mut self, now: Nanos, config: &SwitchConfig) {
        self.leave_free(config.spare.as_ref());
        self.sources_changed();
        for (at, tunnel) in config.tunnels.iter().enumerate() {
            self.set_next_hop(now, at, tunnel.next_hop);
        }
    }

    /// Returns the input of a port's queue.
    #[must_use]
    pub fn input(&self, port: PortId, queue: u8) -> InputId {
        let port = &self.ports[port.index()];
        assert!(queue < port.queues, "the port has {} queues", port.queues);
        InputId(port.first_input + u16::from(queue))
    }

    /// Returns the port that an input belongs to; `None` for the control input and for the pool's
    /// number.
    #[must_use]
    pub fn port_of(&self, input: InputId) -> Option<PortId> {
        let port = self.inputs.get(input.index())?.port;
        (port != NO_PORT).then_some(PortId(port))
    }

    /// Returns the input under which control's own frames are counted.
    #[must_use]
    pub fn control_input(&self) -> InputId {
        InputId::from_index(self.inputs.len() - 1)
    }

    /// Returns the number under which handles of the host pool are reclaimed. It also has the
    /// counters of ports that are gone, once their numbers belong to other ports.
    #[must_use]
    pub fn pool_input(&self) -> InputId {
        InputId::from_index(self.inputs.len())
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
        let control = usize::from(self.control_input().0);
        let i = &self.inputs[control];
        if i.held.frames + i.unreclaimed >= CONTROL_FRAMES || self.slots.free_count() == 0 {
            return Err(buf);
        }
        let priority = CONTROL_PRIORITY;
        match to {
            Target::Port(port) if port.index() < self.ports.len() => {
                let lane = self.ports[port.index()].lane;
                self.inject_to_lane(0, priority, buf, lane);
                Ok(())
            }
            Target::Tunnel(vnet, tunnel) if vnet.index() < self.vnets.len() => {
                let Ok(lane) = self.lane_of(vnet, Destination::Tunnel(tunnel)) else {
                    return Err(buf);
                };
                self.inject_to_lane(vnet.0, priority, buf, lane);
                Ok(())
            }
            Target::Address(vnet, mac) if vnet.index() < self.vnets.len() => {
                // Its destination may differ from its header, so the frame cannot be deferred and
                // read again.
                let key = mac_table::key(vnet.0, mac);
                let known = mac.is_group()
                    || self.chip.lookup(key).is_some()
                    || self.pending.lookup(key).is_some();
                if !known && self.free_lanes.is_empty() {
                    return Err(buf);
                }
                let slot = self.injected_slot(vnet.0, priority, buf);
                self.forward(now, slot, mac);
                Ok(())
            }
            _ => Err(buf),
        }
    }

    fn inject_to_lane(&mut self, vnet: u16, priority: Priority, buf: B, lane: u32) {
        let slot = self.injected_slot(vnet, priority, buf);
        self.slots.get_mut(slot).home = Home::Ring;
        self.charge_input(slot);
        self.admit(slot, lane);
    }

    /// Executes a command of the control plane.
    ///
    /// # Errors
    /// A port, network or tunnel of the command does not exist, or the command is not allowed;
    /// nothing was changed.
    pub fn command(&mut self, now: Nanos, command: Command) -> Result<(), CommandError> {
        match command {
            Command::Install { vnet, mac, to } => {
                self.check_vnet(vnet)?;
                if mac.is_group() {
                    return Err(CommandError::GroupAddress(mac));
                }
                let mut lane = self.lane_of(vnet, to)?;
                let key = mac_table::key(vnet.0, mac);
                self.end_holds_elsewhere(key, to);
                if let Destination::Tunnel(tunnel) = to {
                    lane = self.holds.lane_of(key, tunnel).unwrap_or(lane);
                }
                self.install(key, lane);
                self.resolve(now, vnet, mac, lane);
            }
            Command::Remove { vnet, mac } => {
                self.check_vnet(vnet)?;
                self.uninstall(mac_table::key(vnet.0, mac));
            }
            Command::Reject { vnet, mac } => {
                self.check_vnet(vnet)?;
                self.reject(now, vnet, mac);
            }
            Command::NextHop { tunnel, mac } => {
                if tunnel.index() >= self.tunnels.len() {
                    return Err(CommandError::NoSuchTunnel(tunnel));
                }
                self.set_next_hop(now, tunnel.index(), mac);
            }
            Command::Control { attached } => self.attach_control(attached),
            Command::Bind { port, mac, ips } => self.bind(port, mac, ips)?,
            Command::Allow { port, prefix } => self.allow(port, prefix)?,
            Command::Unbind { port, mac } => self.unbind(port, mac)?,
            Command::UnbindIp { port, mac, ip } => self.unbind_ip(port, mac, ip)?,
            Command::Hold { vnet, mac, tunnel, held, stuck } => {
                self.check_vnet(vnet)?;
                self.hold(now, (vnet, mac, tunnel), held, stuck)?;
            }
            Command::Underlay { port, mac, mtu } => self.underlay_changed(port, mac, mtu)?,
            Command::PathMtu { remote, mtu } => {
                if !self.learn_path_mtu(now, remote, mtu) {
                    return Err(CommandError::NoSuchVtep(remote));
                }
            }
            Command::ForgetDecap { vnet, tunnel } => {
                self.check_vnet(vnet)?;
                self.forget_decap(vnet, tunnel)?;
            }
            Command::Refuse { port, reason, sum } => self.refuse_taken(port, reason, sum)?,
        }
        Ok(())
    }

    fn check_vnet(&self, vnet: VnetId) -> Result<(), CommandError> {
        if vnet.index() < self.vnets.len() { Ok(()) } else { Err(CommandError::NoSuchVnet(vnet)) }
    }

    pub(crate) fn lane_of(&self, vnet: VnetId, to: Destination) -> Result<u32, CommandError> {
        match to {
            Destination::Port(port) => {
                let p = self.ports.get(port.index()).filter(|p| !p.detached);
                let p = p.ok_or(CommandError::NoSuchPort(port))?;
                if p.role != (PortRole::Access { vnet }) {
                    return Err(CommandError::NotAMember(port));
                }
                Ok(p.lane)
            }
            Destination::Tunnel(tunnel) => {
                let t = self.tunnels.get(tunnel.index());
                let t = t.ok_or(CommandError::NoSuchTunnel(tunnel))?;
                // Frames from this tunnel would be refused, so frames are not sent into it either.
                if !self.vnets[vnet.index()].tunnels.contains(&tunnel.0) {
                    return Err(CommandError::NotInNetwork(tunnel));
                }
                Ok(t.lane)
            }
        }
    }

    pub(crate) fn is_parked(&self, leaf: u32) -> bool {
        let tail = self.lanes[self.queues.get(leaf).lane as usize].parked;
        if tail == NIL {
            return false;
        }
        let mut at = tail;
        loop {
            if at == leaf {
                return true;
            }
            at = self.queues.ring_head(at);
            if at == tail {
                return false;
            }
        }
    }

    /// Advances the time: ends pauses and waits that are over. Call it once per turn.
    pub fn advance(&mut self, now: Nanos) {
        for at in 0..self.ports.len() {
            let port = &mut self.ports[at];
            port.pause_in.expire(now);
            if port.pause_out.as_ref().is_some_and(|pause| pause.is_due(now)) {
                self.busy.insert(at);
            }
        }
        if !self.timed.is_empty() {
            self.open_timed_lanes(now);
        }
        if !self.waiting_lanes.is_empty() || !self.closed.is_empty() {
            self.advance_unresolved(now);
        }
        self.advance_holds(now);
        self.watch_receivers(now);
        if !self.too_big.paths.is_empty() {
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
        let timed = self.ports.iter().position(|port| !port.is_timeless());
        let waits = !self.timed.is_empty() || !self.waiting_lanes.is_empty();
        if self.has_receiver_news() {
            // Events about receivers are due at once.
            return Some(Nanos::ZERO);
        }
        let watched = [self.isolation.deadline(), self.holds.deadline()];
        let watched = watched.into_iter().flatten().min();
        if timed.is_none() && !waits && self.closed.is_empty() {
            return watched;
        }
        let deadline = self.deadline_from(timed.unwrap_or(self.ports.len()));
        deadline.into_iter().chain(watched).min()
    }

    /// Returns the deadline as [`Self::deadline`]; no port before `from` has one.
    #[inline(never)]
    fn deadline_from(&self, from: usize) -> Option<Nanos> {
        let mut first = None;
        let mut note = |at: Option<Nanos>| first = first.into_iter().chain(at).min();
        for port in self.ports[from..].iter().filter(|port| !port.is_timeless()) {
            note(port.deadline());
        }
        for &lane in &self.timed {
            note(Some(self.lanes[lane as usize].shaper.ready_at()));
        }
        if !self.waiting_lanes.is_empty() || !self.closed.is_empty() {
            note(self.unresolved_deadline());
        }
        first
    }

    /// Returns the first port from `from` on that may have something to send. A worker walks these
    /// instead of all its ports, after [`Self::advance`].
    #[must_use]
    pub fn busy_port(&self, from: PortId) -> Option<PortId> {
        self.busy.next(from.index()).map(PortId::from_index)
    }

    /// Returns true if a port may have something to send, as [`Self::busy_port`] does for all.
    #[inline]
    #[must_use]
    pub fn is_busy(&self, port: PortId) -> bool {
        self.busy.contains(port.index())
    }

    /// Returns the next event; misses first.
    #[inline]
    pub fn notice(&mut self) -> Option<Notice> {
        // Called in every turn, and mostly without an event.
        if !self.notices.is_empty() {
            return self.notices.pop_front();
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
        let tunnel = self.vtep(remote)?;
        (self.tunnels[usize::from(tunnel)].port == port).then_some(tunnel)
    }

    /// Returns the tunnel whose far end has this address, through any port.
    #[inline]
    pub(crate) fn vtep(&self, remote: u32) -> Option<u16> {
        self.vteps.find(remote)
    }

    #[inline]
    pub(crate) fn vnet_of(&self, vni: u32) -> Option<u16> {
        self.vnis.find(vni)
    }
}

impl<B> Switch<B> {
    /// Returns the index of the class of a (port, priority).
    #[inline]
    pub(crate) fn class_of(&self, port: usize, priority: usize) -> usize {
        priority * self.ports.len() + port
    }

    #[inline]
    pub(crate) fn mark_active(&mut self, port: usize, priority: usize) {
        self.ports[port].active |= 1 << priority;
        self.busy.insert(port);
    }

    /// Marks a priority as idle if the frame that left was its last one.
    #[inline]
    pub(crate) fn mark_idle(&mut self, port: usize, priority: usize) {
        if self.classes[self.class_of(port, priority)].is_idle() {
            self.ports[port].active &= !(1 << priority);
        }
    }

    /// Marks a port whose flow control may have a frame to send.
    #[inline]
    pub(crate) fn note_pause_due(&mut self, port: u16) {
        self.busy.insert(port.into());
    }
}
