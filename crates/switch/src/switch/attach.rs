//! Ports that attach while the switch runs.
//!
//! **Aim.** A container or a VM gets a port when it starts, and the next one can have it when it
//! ends. A port allocates no memory: it takes a *spare port*, a place of the port table whose
//! inputs, queue group and queues were made by [`Switch::new`], for the ports of the configuration
//! or for its spare ones.
//!
//! ```text
//!                attach                     detach
//!      FREE ───────────────> ATTACHED ───────────────> DETACHED
//!       ^ spare ports         ^ ports of the               │
//!       │ begin here            configuration begin here   │
//!       └── its driver has all its handles back, and its ──┘
//!           frames in the shared buffer are delivered
//! ```
//!
//! **Detached ports.** `detach` ends the frames of a port and those for it, and removes every
//! reference to it: its membership, its addresses in the forwarding table (FDB), its bindings,
//! events about it. Its counters can be read until the spare port is reused. The spare port is not
//! reused while a frame or a handle of the old port is in the switch, since it would go back to the
//! wrong driver, count for the wrong port, or be taken for one of the new port. When the new port
//! comes, the counters of the old one are added to those of all ports that are gone, which are kept
//! under [`Switch::pool_input`], and the new port starts at zero.
//!
//! **Port numbers.** The free spare port that was left longest ago is used first, so that a number
//! does not come back at once. A command applies to the port that has the number when the command
//! is executed: after detaching a port, send no more commands for it.
//!
//! **Limits.** Only access ports attach: an underlay port has tunnels, which the configuration
//! fixes. A spare port takes a port of at most the queues and limits that it was made for.

use alloc::boxed::Box;

use sluice_base::{Buf, Destination, Nanos, PortId, VnetId};

use crate::config::{ConfigError, Limit, PortConfig, PortRole, SpareConfig, SwitchConfig};
use crate::ingress::Input;
use crate::mac_table;
use crate::place::NO_PORT;
use crate::sizes::{own_slots, priorities_of};
use crate::surface::Notice;
use crate::switch::Switch;
use crate::validate;

/// Reason why a port cannot be attached. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// The port is not an access port.
    NotAccess,
    /// The configuration of the port is invalid; the number of the port in the error has no
    /// meaning.
    Config(ConfigError),
    /// No spare port, free or not, was made for so many queues or such limits.
    TooLarge,
    /// Every spare port that the port fits in is in use.
    Full,
    /// As `Full`, but some of these ports were detached. A spare port is free once the handles of
    /// its port are reclaimed and its frames in the shared buffer are delivered. Try again then.
    Busy,
}

/// The state of a spare port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// There is no port. One may be attached.
    Free,
    /// There is a port.
    Attached,
    /// Its port was detached, and frames or handles of it are still in the switch.
    Detached,
}

/// The place of each port of the port table: the limits of a port that may attach there.
#[derive(Debug)]
pub(crate) struct SparePorts(Box<[SparePort]>);

/// Size of a spare port, and the moment of its last change.
#[derive(Clone, Copy, Debug)]
struct SparePort {
    is_access: bool,
    queues: u8,
    input: Limit,
    /// Number of slots that each of its inputs has for itself.
    own_slots: u32,
    output: Limit,
    /// Moment at which a port last came or went.
    since: Nanos,
}

impl SparePort {
    fn takes(&self, port: &PortConfig) -> bool {
        let fits =
            |limit: Limit, most: Limit| limit.frames <= most.frames && limit.bytes <= most.bytes;
        self.is_access
            && port.queues <= self.queues
            && fits(port.input, self.input)
            && own_slots(port.input.frames, port.input_full) <= self.own_slots
            && fits(port.output, self.output)
    }
}

impl SparePorts {
    /// Returns a place for each port of the configuration, with the limits of that port.
    pub(crate) fn new(config: &SwitchConfig, now: Nanos) -> Self {
        let spare_port = |port: &PortConfig| SparePort {
            is_access: matches!(port.role, PortRole::Access { .. }),
            queues: port.queues,
            input: port.input,
            own_slots: own_slots(port.input.frames, port.input_full),
            output: port.output,
            since: now,
        };
        Self(config.ports.iter().map(spare_port).collect())
    }
}

impl<B: Buf> Switch<B> {
    /// Attaches an access port: it joins its network, and its driver may read and take frames from
    /// now on. It starts like a port of a new switch: no address leads to it, no machine is bound
    /// to it, its counters are zero and its rate limiter is idle. Its inputs are [`Self::input`] of
    /// its queues.
    ///
    /// # Errors
    /// [`AttachError`]; nothing was changed.
    pub fn attach(&mut self, now: Nanos, port: &PortConfig) -> Result<PortId, AttachError> {
        let PortRole::Access { vnet } = port.role else { return Err(AttachError::NotAccess) };
        let has_vnet = |vnet| self.networks.check(vnet).is_ok();
        validate::check_port(has_vnet, PortId(NO_PORT), port).map_err(AttachError::Config)?;
        let id = self.free_spare_port(port)?;
        self.occupy(id, port, vnet);
        self.spare_ports.0[id.index()].since = now;
        self.inputs_changed();
        self.egress.set_careful(id.index(), self.is_careful(id.index()));
        Ok(id)
    }

    /// Returns the state of a spare port. The call is cheap while its port is attached; otherwise
    /// it walks the queues.
    ///
    /// # Panics
    /// If there is no such spare port.
    #[must_use]
    pub fn port_state(&self, port: PortId) -> PortState {
        match self.egress.port(port.index()).is_detached() {
            false => PortState::Attached,
            true if self.has_left(port) => PortState::Free,
            true => PortState::Detached,
        }
    }

    /// Returns the free spare port that was left longest ago, of those that the port fits in.
    fn free_spare_port(&self, port: &PortConfig) -> Result<PortId, AttachError> {
        let (mut found, mut error) = (None, AttachError::TooLarge);
        for (at, spare_port) in
            self.spare_ports.0.iter().enumerate().filter(|(_, spare_port)| spare_port.takes(port))
        {
            let id = PortId::from_index(at);
            match self.port_state(id) {
                PortState::Free => found = found.into_iter().chain([(spare_port.since, id)]).min(),
                PortState::Detached => error = AttachError::Busy,
                PortState::Attached if error == AttachError::TooLarge => error = AttachError::Full,
                PortState::Attached => {}
            }
        }
        found.map(|(_, id)| id).ok_or(error)
    }

    /// Returns true if no frame and no handle of a detached port is in the switch.
    fn has_left(&self, port: PortId) -> bool {
        let first = usize::from(self.egress.port(port.index()).first_input());
        let inputs = first..first + usize::from(self.spare_ports.0[port.index()].queues);
        self.ingress.inputs()[inputs.clone()].iter().all(Input::is_clear)
            // Checks for copies of its broadcasts; the source of an access port's frame is its
            // input.
            && !self.egress.leaves().any(|leaf| {
                inputs.contains(&usize::from(self.egress.queue(leaf).source()))
            })
    }

    /// Puts a port into a free spare port.
    fn occupy(&mut self, id: PortId, port: &PortConfig, vnet: VnetId) {
        let at = id.index();
        self.egress.occupy(id, port);
        let first = self.egress.port(at).first_input();
        for queue in 0..self.spare_ports.0[at].queues {
            let input = first + u16::from(queue);
            self.close_counters(input);
            let limits = (queue < port.queues).then_some((port.input, port.input_full));
            self.ingress.occupy(input, vnet.0, limits, priorities_of(port, queue));
        }
        self.sources.restart(at, port.sources);
        self.control.restart(at);
        self.networks.join(vnet, id);
    }

    /// Adds the counters of an input to those of the ports that are gone, and resets them.
    fn close_counters(&mut self, input: u16) {
        let counters = self.ledger.export(input);
        self.ledger.import(self.pool_input().0, counters);
    }

    /// Removes every destination that leads to the port: the first part of a detachment.
    pub(crate) fn leave(&mut self, now: Nanos, port: PortId) {
        let at = port.index();
        if self.egress.detach(at) {
            self.spare_ports.0[at].since = now;
        }
        let group = self.egress.port(at).group();
        if self.spare_ports.0[at].is_access {
            self.leave_vnet(port);
            self.fdb.remove_group(group);
        }
        let sources = self.sources.of(at);
        self.sources.restart(at, sources);
        self.forget_notices(now, port);
        self.inputs_changed();
    }

    /// Discards events about frames of a port: its number may belong to another port when they are
    /// read.
    fn forget_notices(&mut self, now: Nanos, port: PortId) {
        self.end_taken(Some(port));
        self.control.forget(port);
        let (fdb, egress) = (&mut self.fdb, &mut self.egress);
        self.control.retain_misses(|notice| {
            let Notice::Miss { vnet, mac, from, .. } = notice else { return true };
            if *from != Some(Destination::Port(port)) {
                return true;
            }
            // Frames of other ports may wait for the same address: the miss is reported again.
            if let Some(group) = fdb.pending(mac_table::key(vnet.0, *mac)) {
                egress.punt_again(group, now);
            }
            false
        });
    }

    /// Rejects unresolved destinations for which no frame waits any more: the last part of a
    /// detachment.
    pub(crate) fn forget_questions(&mut self, now: Nanos) {
        let mut at = 0;
        while let Some((group, vnet, mac)) = self.egress.unresolved_at(at) {
            if self.egress.group(group).has_parked() {
                at += 1;
            } else {
                // `reject` takes the queue group out of the list, so `at` is the next one.
                self.reject(now, vnet, mac);
            }
        }
    }

    /// Marks the spare ports, which are the last ones, as free.
    pub(crate) fn leave_free(&mut self, spare: Option<&SpareConfig>) {
        let spare = spare.map_or(0, |spare| usize::from(spare.ports));
        let count = self.egress.ports().len();
        for at in count - spare..count {
            self.egress.detach(at);
            self.leave_vnet(PortId::from_index(at));
        }
        self.inputs_changed();
    }

    fn leave_vnet(&mut self, port: PortId) {
        if let PortRole::Access { vnet } = self.egress.port(port.index()).role() {
            self.networks.leave(vnet, port);
        }
    }

    /// Recomputes the limits that depend on the smallest input, of attached ports and of control.
    fn inputs_changed(&mut self) {
        let egress = &self.egress;
        let is_live = |input: &Input<B>| {
            let port = egress.ports().get(usize::from(input.port()));
            input.limit().frames > 0 && port.is_none_or(|port| !port.is_detached())
        };
        self.ingress.inputs_changed(is_live);
        let inputs = self.ingress.inputs().iter().filter(|input| is_live(input));
        let common_max = egress.common_max_of(inputs.map(Input::limit));
        self.egress.set_common_max(common_max);
    }
}

#[cfg(test)]
mod tests;
