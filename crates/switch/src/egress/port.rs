//! Ports: their settings, their flow control and rate, and how they come and go.

use alloc::boxed::Box;
use core::mem;
use core::ops::Range;

use sluice_base::{Mac, Nanos, PortId, Priority, PriorityMask};
use sluice_wire::mac_control;

use crate::config::{Hold, InputFull, PortConfig, PortRole, RateLimit, SwitchConfig, Tags, Trust};
use crate::inspect::{Counter, Marks};
use crate::pause::{LINK_DEFAULT, PauseReceiver, PauseSender};
use crate::place::{ETHERNET_BYTES, Held};
use crate::shaper::Shaper;
use crate::slots::NIL;
use crate::tunnel::Outer;

use super::{EgressTables, Port, QueueGroup};

/// State of the egress of a port that migrates: its rate, its counters and high-water marks.
#[derive(Debug)]
pub(crate) struct PortEgress {
    shaper: Shaper,
    restrained: bool,
    sent: [Counter; Priority::COUNT],
    queued: Marks,
}

impl Port {
    /// Returns a port in its initial state, with its own queue group.
    pub(crate) fn new(port: &PortConfig, group: u32, first_input: u16, elsewhere: bool) -> Self {
        let pause = match port.input_full {
            InputFull::Pause(pause) => Some(pause),
            InputFull::Wait | InputFull::Drop => None,
        };
        let link = pause.map(|p| p.link).or(port.rate.map(|r| r.rate)).unwrap_or(LINK_DEFAULT);
        Self {
            role: port.role,
            has_bundles: matches!(port.role, PortRole::Underlay { .. }),
            detached: false,
            elsewhere,
            careful: false,
            offloaded: port.is_offloaded,
            tags: port.tags,
            group,
            first_input,
            queues: port.queues,
            restrained: pause.is_some()
                || port.rx_pause
                || port.rate.is_some()
                || port.group_rate.is_some(),
            active: 0,
            class_turn: 0,
            shaper: Shaper::new(port.rate),
            timed_groups: 0,
            hold: port.hold,
            pause_in: PauseReceiver::new(port.rx_pause, link),
            pause_out: pause.map(|pause| PauseSender::new(pause, port.input)),
            trust: port.trust,
            default_priority: port.default_priority,
            frame_size_max: u32::from(port.mtu) + ETHERNET_BYTES,
            outer: match port.role {
                PortRole::Underlay { local, mac } => Some(Outer::new(mac, local)),
                PortRole::Access { .. } | PortRole::Handoff => None,
            },
        }
    }

    #[inline]
    pub(crate) const fn role(&self) -> PortRole {
        self.role
    }

    #[inline]
    pub(crate) const fn is_detached(&self) -> bool {
        self.detached
    }

    /// Returns true if another switch reads and writes it.
    #[inline]
    pub(crate) const fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    /// Returns true if its frames need more than the fast path.
    #[inline]
    pub(crate) const fn is_careful(&self) -> bool {
        self.careful
    }

    /// Returns true if a device forwards between it and others of which this is true.
    #[inline]
    pub(crate) const fn is_offloaded(&self) -> bool {
        self.offloaded
    }

    #[inline]
    pub(crate) const fn tags(&self) -> Tags {
        self.tags
    }

    #[inline]
    pub(crate) const fn trust(&self) -> Trust {
        self.trust
    }

    #[inline]
    pub(crate) const fn default_priority(&self) -> Priority {
        self.default_priority
    }

    /// Returns its own queue group.
    #[inline]
    pub(crate) const fn group(&self) -> u32 {
        self.group
    }

    #[inline]
    pub(crate) const fn first_input(&self) -> u16 {
        self.first_input
    }

    #[inline]
    pub(crate) const fn queues(&self) -> u8 {
        self.queues
    }

    /// Returns its inputs.
    #[inline]
    pub(crate) fn inputs(&self) -> Range<u16> {
        self.first_input..self.first_input + u16::from(self.queues)
    }

    /// Returns true if it has a queue group per tunnel.
    #[inline]
    pub(crate) const fn has_bundles(&self) -> bool {
        self.has_bundles
    }

    /// Returns the largest frame without tag that may leave, Ethernet header included.
    #[inline]
    pub(crate) const fn frame_size_max(&self) -> u32 {
        self.frame_size_max
    }

    /// Returns the largest layer-3 packet that may leave.
    pub(crate) const fn mtu(&self) -> u32 {
        self.frame_size_max - ETHERNET_BYTES
    }

    /// Returns the time for which a receiver of this priority may hold its senders.
    pub(crate) const fn hold(&self, priority: Priority) -> Hold {
        self.hold[priority.index()]
    }

    /// Returns the priorities with frames that may be sent.
    #[inline]
    pub(crate) const fn active(&self) -> PriorityMask {
        PriorityMask(self.active)
    }

    /// Returns true if it has a rate or flow control, which are checked before each frame.
    #[inline]
    pub(crate) const fn is_restrained(&self) -> bool {
        self.restrained
    }

    /// Returns the side of its flow control that pauses the neighbour.
    #[inline]
    pub(crate) const fn pause_out(&self) -> Option<&PauseSender> {
        self.pause_out.as_ref()
    }

    /// Returns the side of its flow control that the neighbour pauses.
    #[inline]
    pub(crate) const fn pause_in(&self) -> &PauseReceiver {
        &self.pause_in
    }

    /// Returns true if a frame of flow control is due.
    #[inline]
    pub(crate) fn owes_pause(&self, now: Nanos) -> bool {
        self.pause_out.as_ref().is_some_and(|pause| pause.is_due(now))
    }

    /// Returns the outer headers of its tunnels' frames.
    #[inline]
    pub(crate) const fn outer(&self) -> Option<&Outer> {
        self.outer.as_ref()
    }

    /// Returns true if only its deficit ends the turn of a queue. With a rate, or with another
    /// priority that waits, one frame may change the turn. A pause does not come meanwhile.
    #[inline]
    pub(crate) const fn is_alone(&self) -> bool {
        !self.shaper.is_limited() && self.active & self.active.wrapping_sub(1) == 0
    }

    /// Returns true if a frame waits and the rate allows one.
    #[inline]
    pub(crate) fn may_send(&self, now: Nanos) -> bool {
        self.active != 0 && (!self.restrained || self.shaper.is_ready(now))
    }

    /// Returns true if it has no [`Self::deadline`]: no frame waits that a rate or a pause may hold
    /// back, and it pauses nobody.
    #[inline]
    pub(super) fn is_timeless(&self) -> bool {
        let is_held = self.shaper.is_limited() || !self.pause_in.paused().is_empty();
        !self.restrained
            || ((self.active == 0 || !is_held)
                && self.pause_out.as_ref().is_none_or(PauseSender::is_silent))
    }

    /// Returns the next moment at which its rate allows a frame, a received pause that holds a
    /// frame ends, or a sent pause must be repeated.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        if self.detached {
            return None;
        }
        let refresh = self.pause_out.as_ref().and_then(PauseSender::deadline);
        if self.active == 0 {
            return refresh;
        }
        let active = PriorityMask(self.active);
        let open = active.without(self.pause_in.paused());
        let rate = (!open.is_empty() && self.shaper.is_limited()).then(|| self.shaper.ready_at());
        let pause = self.pause_in.deadline(active);
        [rate, pause, refresh].into_iter().flatten().min()
    }

    /// Makes the frame of flow control that is due. `offer` passes it to the driver, and returns
    /// false if the driver has no room. A pause frame is charged to the rate, but never waits for
    /// it. Returns false if the driver refused it.
    fn send_pause(&mut self, now: Nanos, offer: impl FnOnce(&[u8]) -> bool) -> bool {
        let Some(pause) = &mut self.pause_out else { return true };
        let mut frame = [0; mac_control::FRAME_SIZE];
        pause.frame(now, &mut frame);
        if !offer(&frame) {
            return false;
        }
        pause.sent(now);
        self.shaper.charge(now, u32::try_from(frame.len()).expect("60"));
        true
    }
}

impl<B> EgressTables<B> {
    #[inline]
    pub(crate) const fn ports(&self) -> &[Port] {
        &self.ports
    }

    #[inline]
    pub(crate) fn port(&self, at: usize) -> &Port {
        &self.ports[at]
    }

    /// Returns the side of a port's flow control that pauses its sender.
    pub(crate) fn pause_of(&self, port: u16) -> Option<&PauseSender> {
        self.ports.get(usize::from(port))?.pause_out()
    }

    /// Takes a pause from the neighbour of a port.
    pub(crate) fn hear_pause(&mut self, port: u16, now: Nanos, message: &mac_control::Message) {
        self.ports[usize::from(port)].pause_in.receive(now, message);
    }

    /// Sends the frame of flow control that is due at a port, as [`Port::send_pause`].
    pub(crate) fn send_pause(
        &mut self,
        now: Nanos,
        at: usize,
        offer: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        self.ports[at].send_pause(now, offer)
    }

    /// Notes what waits at an input of a port in one priority, after frames came.
    #[inline]
    pub(crate) fn input_rose(&mut self, port: u16, priority: Priority, held: Held) {
        let at = usize::from(port);
        if let Some(pause) = &mut self.ports[at].pause_out {
            let bytes = pause.weight(held.frames, held.bytes);
            pause.rose(priority, bytes);
            if pause.has_due() {
                self.busy.insert(at);
            }
        }
    }

    /// Notes what waits at an input of a port in one priority, after frames left.
    #[inline]
    pub(crate) fn input_fell(&mut self, port: u16, priority: Priority, held: Held) {
        let at = usize::from(port);
        if let Some(pause) = &mut self.ports[at].pause_out {
            let bytes = pause.weight(held.frames, held.bytes);
            pause.fell(priority, bytes);
            if pause.has_due() {
                self.busy.insert(at);
            }
        }
    }

    /// Ends the pauses that are over, and marks the ports that have to repeat one.
    pub(crate) fn advance_pauses(&mut self, now: Nanos) {
        for (at, port) in self.ports.iter_mut().enumerate() {
            port.pause_in.expire(now);
            if port.owes_pause(now) {
                self.busy.insert(at);
            }
        }
    }

    /// Prepares the rate and the flow control of a port for frames that go now.
    pub(crate) fn ask_restraints(&mut self, now: Nanos, at: usize) {
        self.ports[at].pause_in.expire(now);
        if self.ports[at].timed_groups > 0 {
            self.open_timed(now);
        }
    }

    /// Marks a port as one that has nothing to send, if that is so.
    #[inline]
    pub(crate) fn rest(&mut self, now: Nanos, at: usize) {
        let port = &self.ports[at];
        if port.active == 0 && (!port.restrained || !port.owes_pause(now)) {
            self.busy.remove(at);
        }
    }

    /// Marks a port that is elsewhere as one that has nothing to hand over, if that is so.
    pub(crate) fn rest_elsewhere(&mut self, at: usize) {
        if self.ports[at].active == 0 {
            self.busy.remove(at);
        }
    }

    /// Returns true if a port has anything to send now.
    pub(crate) fn has_work(&self, now: Nanos, at: usize) -> bool {
        let p = &self.ports[at];
        if p.owes_pause(now) {
            return true;
        }
        if !p.shaper.is_ready(now) {
            return false;
        }
        let open = |group: &u32| {
            let group = &self.groups[*group as usize];
            usize::from(group.port) == at && group.shaper.is_ready(now)
        };
        if p.timed_groups > 0 && self.lists.timed().iter().any(open) {
            return true;
        }
        let paused = p.pause_in.paused();
        p.active & !paused.0 != 0
            || p.pause_in.deadline(paused).is_some_and(|until| until <= now && p.active != 0)
    }

    /// Sets whether frames of a port need more than the fast path.
    pub(crate) fn set_careful(&mut self, at: usize, careful: bool) {
        self.ports[at].careful = careful;
    }

    /// Sets the address and the MTU of an underlay's device. Returns false if the port is no
    /// underlay.
    pub(crate) fn set_underlay(&mut self, port: PortId, mac: Mac, mtu: u16) -> bool {
        let Some(p) = self.ports.get_mut(port.index()) else { return false };
        let PortRole::Underlay { local, .. } = p.role else { return false };
        p.role = PortRole::Underlay { local, mac };
        p.outer = Some(Outer::new(mac, local));
        p.frame_size_max = u32::from(mtu) + ETHERNET_BYTES;
        if let Some(pause) = &mut p.pause_out {
            pause.set_source(mac);
        }
        true
    }

    /// Puts a port into a place that is free.
    pub(crate) fn occupy(&mut self, id: PortId, port: &PortConfig) {
        let at = id.index();
        let (group, first) = (self.ports[at].group, self.ports[at].first_input);
        self.ports[at] = Port::new(port, group, first, false);
        let old = mem::replace(&mut self.groups[group as usize], QueueGroup::of_port(id, port));
        debug_assert!(old.frames == 0 && old.parked == NIL && old.copies == 0, "{old:?}");
        self.busy.remove(at);
        for priority in Priority::all() {
            let class = self.class_of(at, priority.index());
            let class = &mut self.classes[class];
            debug_assert!(class.is_idle(), "frames wait for nobody");
            class.deficit = 0;
            class.sent = Counter::default();
        }
    }

    /// Sets the rate of a port that this switch reads and writes.
    pub(crate) fn set_rate(&mut self, at: usize, rate: Option<RateLimit>) {
        let p = &mut self.ports[at];
        p.shaper.set_limit(rate);
        p.restrained = p.shaper.is_limited()
            || p.pause_out.is_some()
            || p.pause_in.obeys()
            || self.groups[p.group as usize].shaper.is_limited();
    }

    /// Sets the priority of a port's frames without one.
    pub(crate) fn set_default_priority(&mut self, at: usize, priority: Priority) {
        self.ports[at].default_priority = priority;
    }

    /// Marks a port as gone: none of its queue groups takes frames any more. Returns true if it was
    /// there.
    pub(crate) fn detach(&mut self, at: usize) -> bool {
        let was_there = !mem::replace(&mut self.ports[at].detached, true);
        self.end_timed(self.ports[at].group);
        for group in self.groups.iter_mut().filter(|group| usize::from(group.port) == at) {
            group.plain = false;
        }
        was_there
    }

    /// Gives the state of a port that another switch reads and writes from now on.
    pub(crate) fn export_port(&mut self, at: usize) -> PortEgress {
        let sent = core::array::from_fn(|priority| {
            let class = self.class_of(at, priority);
            mem::take(&mut self.classes[class].sent)
        });
        let p = &mut self.ports[at];
        p.elsewhere = true;
        let queued = mem::take(&mut self.groups[p.group as usize].marks);
        let (shaper, restrained) =
            (mem::replace(&mut p.shaper, Shaper::new(None)), mem::take(&mut p.restrained));
        PortEgress { shaper, restrained, sent, queued }
    }

    /// Takes the state of a port that this switch reads and writes from now on.
    pub(crate) fn import_port(&mut self, at: usize, its: PortEgress) {
        let PortEgress { shaper, restrained, sent, queued } = its;
        let p = &mut self.ports[at];
        (p.elsewhere, p.shaper, p.restrained) = (false, shaper, restrained);
        self.groups[p.group as usize].marks.rise_to(queued);
        for (priority, sent) in sent.into_iter().enumerate() {
            let class = self.class_of(at, priority);
            self.classes[class].sent.add_all(sent);
        }
    }
}

impl PortEgress {
    /// Returns the frames of each priority that left.
    pub(crate) const fn sent(&self) -> &[Counter; Priority::COUNT] {
        &self.sent
    }
}

/// Returns the ports of a configuration.
pub(super) fn make_ports(config: &SwitchConfig) -> Box<[Port]> {
    let mut first_input = 0;
    let ports = config.ports.iter().enumerate().map(|(at, port)| {
        let first = first_input;
        first_input += u16::from(port.queues);
        let group = u32::try_from(at).expect("fewer than 2^16 ports");
        Port::new(port, group, first, config.handoff.is_elsewhere(at))
    });
    ports.collect()
}
