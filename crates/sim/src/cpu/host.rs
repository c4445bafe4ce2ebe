//! The host as a whole: events and their consequences.

use core::fmt;

use sluice_base::Nanos;
use sluice_placement::{ConfigError, Core as PlacedCore};

use super::core::{Core, Doing, Times};
use super::flow::{Counts, Sender};
use super::guest::Guest;
use super::report::{CoreReport, FlowReport, Report};
use super::scenario::{Policy, Scenario};
use super::steering::{PERIOD_NS, Steering};
use super::work::{Item, Segment};
use crate::events::{EventQueue, Ties};

/// A scenario that cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The configuration of the placement.
    Steering(ConfigError),
    /// The parameter of this name.
    Parameter(&'static str),
    /// A vCPU or an exclusion names a core that the host does not have.
    Core(u16),
    /// This flow names a machine or an entry that does not exist, or offers nothing.
    Flow(usize),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steering(error) => write!(f, "{error}"),
            Self::Parameter(name) => write!(
                f,
                "{name}: must be above zero, refill at most descriptors, jitter at most 100 %"
            ),
            Self::Core(core) => write!(f, "there is no core {core}: number them from 0"),
            Self::Flow(flow) => {
                write!(f, "flow {flow}: give it a machine, an entry, a size and a rate that exist")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Runs a scenario.
///
/// # Errors
/// [`Error`], before anything runs.
pub fn run(scenario: &Scenario) -> Result<Report, Error> {
    let mut host = Host::new(scenario)?;
    host.run_until(scenario.warm_up.0);
    let before = host.snapshot();
    host.run_until(scenario.warm_up.0 + scenario.span.0);
    let after = host.snapshot();
    Ok(host.report(&before, &after))
}

/// Counters at one moment.
struct Snapshot {
    flows: Vec<Counts>,
    cores: Vec<Times>,
}

/// An event.
enum Event {
    Send(usize),
    Arrive(usize),
    CoreDone(usize),
    Period,
}

pub(super) struct Host<'a> {
    scenario: &'a Scenario,
    pub(super) cores: Vec<Core>,
    pub(super) guests: Vec<Guest>,
    pub(super) senders: Vec<Sender>,
    pub(super) steering: Steering,
    events: EventQueue,
    now: u64,
    /// The sender that is asked first when there is room again.
    rotor: usize,
}

fn check(scenario: &Scenario) -> Result<(), Error> {
    if let Some(name) = scenario.params.wrong() {
        return Err(Error::Parameter(name));
    }
    let named = scenario.excluded.iter().chain(scenario.vms.iter().flatten());
    if let Some(core) = named.into_iter().find(|core| **core >= scenario.cores) {
        return Err(Error::Core(*core));
    }
    let is_wrong = |flow: &super::Flow| {
        flow.vm >= scenario.vms.len()
            || flow.entry >= scenario.steering.entries
            || flow.bytes == 0
            || flow.rate.0 == 0
    };
    scenario.flows.iter().position(is_wrong).map_or(Ok(()), |at| Err(Error::Flow(at)))
}

impl<'a> Host<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Result<Self, Error> {
        check(scenario)?;
        let placed = |number: u16| PlacedCore {
            number,
            runs_vcpu: scenario.vms.contains(&Some(number)),
            excluded: scenario.excluded.contains(&number),
            ..PlacedCore::default()
        };
        let placed: Vec<PlacedCore> = (0..scenario.cores).map(placed).collect();
        let mut steering = Steering::new(&scenario.steering, &placed).map_err(Error::Steering)?;
        for flow in &scenario.flows {
            if let Some(core) = scenario.vms[flow.vm] {
                steering.received_on(flow.entry, core);
            }
        }
        let sender = |(at, flow): (usize, &super::Flow)| {
            Sender::new(*flow, flow.gap(scenario.link).0, scenario.seed, at)
        };
        let mut host = Self {
            scenario,
            cores: placed.iter().map(|_| Core::new()).collect(),
            guests: scenario.vms.iter().map(|pin| Guest::new(*pin)).collect(),
            senders: scenario.flows.iter().enumerate().map(sender).collect(),
            steering,
            events: EventQueue::new(Ties::Fifo),
            now: 0,
            rotor: 0,
        };
        for at in 0..host.senders.len() {
            let first = host.senders[at].first_in();
            host.push(first, &Event::Send(at));
        }
        host.push(PERIOD_NS, &Event::Period);
        Ok(host)
    }

    fn push(&mut self, at: u64, event: &Event) {
        let (flows, cores) = (self.senders.len(), self.cores.len());
        let number = match *event {
            Event::Send(flow) => flow,
            Event::Arrive(flow) => flows + flow,
            Event::CoreDone(core) => 2 * flows + core,
            Event::Period => 2 * flows + cores,
        };
        let number = u32::try_from(number).expect("flows and cores are few");
        self.events.push(Nanos(at), number);
    }

    fn event(&self, number: u32) -> Event {
        let (flows, cores) = (self.senders.len(), self.cores.len());
        match number as usize {
            n if n < flows => Event::Send(n),
            n if n < 2 * flows => Event::Arrive(n - flows),
            n if n < 2 * flows + cores => Event::CoreDone(n - 2 * flows),
            _ => Event::Period,
        }
    }

    /// Runs to a moment, and accounts for all time until then.
    pub(super) fn run_until(&mut self, end: u64) {
        while let Some((at, number)) = self.events.pop_until(Nanos(end)) {
            self.now = at.0;
            match self.event(number) {
                Event::Send(flow) => self.send(flow),
                Event::Arrive(flow) => self.arrive(flow),
                Event::CoreDone(core) => self.core_done(core),
                Event::Period => {
                    (0..self.cores.len()).for_each(|core| self.settle(core));
                    self.settle_waits();
                    self.steering.period(self.now);
                    self.push(self.now + PERIOD_NS, &Event::Period);
                }
            }
        }
        self.now = end;
        (0..self.cores.len()).for_each(|core| self.settle(core));
    }

    /// Notes that a vCPU began or ceased to wait.
    fn note_wait(&mut self, vm: usize) {
        if let Some((core, ns)) = self.guests[vm].note_wait(self.now) {
            self.steering.waited(core, ns);
        }
    }

    /// Accounts for waits that go on.
    pub(super) fn settle_waits(&mut self) {
        for guest in &mut self.guests {
            if let Some((core, ns)) = guest.waited(self.now) {
                self.steering.waited(core, ns);
            }
        }
    }

    /// Sends a datagram that is due.
    fn send(&mut self, flow: usize) {
        let params = &self.scenario.params;
        let sender = &mut self.senders[flow];
        sender.is_held = match self.scenario.policy {
            // A segment that waits for its entry's move waits in the card.
            Policy::Drop => false,
            Policy::Hold => {
                !sender.wire.is_empty() || sender.counts.under_way() >= params.guest_ring
            }
        };
        if sender.is_held {
            return;
        }
        let datagram = sender.counts.offered;
        sender.counts.offered += 1;
        let next = self.now + sender.next_in(params.jitter_percent).max(1);
        if sender.wire.len() as u64 >= params.descriptors {
            sender.counts.lost_descriptor += 1;
        } else {
            let was_empty = sender.wire.is_empty();
            sender.wire.extend((0..sender.segments).map(|index| Segment { flow, datagram, index }));
            if was_empty {
                self.push(self.now, &Event::Arrive(flow));
            }
        }
        self.push(next, &Event::Send(flow));
    }

    /// Takes the first segment on a flow's wire.
    fn arrive(&mut self, flow: usize) {
        let sender = &self.senders[flow];
        let Some(&segment) = sender.wire.front() else { return };
        let (entry, priority) = (sender.flow.entry, sender.flow.priority);
        let Some((at, delivery)) = self.steering.dispatch(self.now, entry, priority) else {
            self.senders[flow].is_blocked = true;
            return;
        };
        let has_room = self.cores[at].has_room(&self.scenario.params);
        if !has_room {
            self.steering.done(entry);
        }
        let sender = &mut self.senders[flow];
        match (has_room, self.scenario.policy) {
            (true, _) => {
                self.cores[at].take(Item::Receive(segment, delivery.filter(|other| *other != at)));
            }
            (false, Policy::Hold) => {
                sender.is_blocked = true;
                return;
            }
            (false, Policy::Drop) => {
                if sender.is_first_loss(segment.datagram) {
                    sender.counts.lost_descriptor += 1;
                }
            }
        }
        let sender = &mut self.senders[flow];
        sender.wire.pop_front();
        if sender.wire.is_empty() {
            self.let_go(flow);
        } else {
            let next = self.now + sender.gap.max(1);
            self.push(next, &Event::Arrive(flow));
        }
        self.interrupt(at);
    }

    /// Releases a sender that was held and may have room now.
    fn let_go(&mut self, flow: usize) {
        if std::mem::take(&mut self.senders[flow].is_held) {
            self.push(self.now, &Event::Send(flow));
        }
    }

    /// Lets segments on the wire try anew, in turn: descriptors or an entry are free again.
    fn wake(&mut self) {
        let count = self.senders.len();
        for nth in 0..count {
            let flow = (self.rotor + nth) % count;
            if std::mem::take(&mut self.senders[flow].is_blocked) {
                self.push(self.now, &Event::Arrive(flow));
            }
        }
        self.rotor = (self.rotor + 1) % count.max(1);
    }

    /// Interrupts a core for new work.
    fn interrupt(&mut self, at: usize) {
        let is_free = match self.cores[at].doing {
            Doing::Idle => true,
            Doing::Softirq(_) => false,
            Doing::Thread(_) => self.cores[at].protected_until <= self.now,
        };
        if !is_free || self.cores[at].queue.is_empty() {
            return;
        }
        self.leave(at);
        self.cores[at].busy_since = self.now;
        self.begin_softirq(at, self.scenario.params.interrupt_ns);
    }

    /// Takes a core from its work. A vCPU that floats may go on elsewhere.
    fn leave(&mut self, at: usize) {
        self.settle(at);
        let Doing::Thread(vm) = self.cores[at].doing else { return };
        self.cores[at].begin(self.now, Doing::Idle, 0);
        self.guests[vm].on = None;
        self.note_wait(vm);
        if self.guests[vm].pin.is_none() {
            let is_idle = |core: &usize| *core != at && self.cores[*core].doing == Doing::Idle;
            if let Some(other) = (0..self.cores.len()).find(is_idle) {
                self.next(other);
            }
        }
    }

    fn settle(&mut self, at: usize) {
        let doing = self.cores[at].doing;
        let spent = self.cores[at].settle(self.now);
        if let Doing::Thread(vm) = doing {
            self.guests[vm].remaining -= spent.min(self.guests[vm].remaining);
            self.steering.ran(at, spent);
        }
    }

    fn begin_softirq(&mut self, at: usize, extra_ns: u64) {
        let params = &self.scenario.params;
        let core = &mut self.cores[at];
        let item = core.queue.pop_front().expect("asked before");
        let sender = &mut self.senders[item.segment().flow];
        let deliver_ns = params.deliver_ns(sender.flow.bytes);
        let (receive_ns, deliver_ns) = match item {
            Item::Deliver(_) => (0, deliver_ns),
            Item::Receive(segment, delivery) => {
                let delivers = sender.receive(segment) && delivery.is_none();
                (params.segment_ns, if delivers { deliver_ns } else { 0 })
            }
        };
        self.steering.worked(sender.flow.entry, receive_ns + extra_ns, deliver_ns);
        core.begin(self.now, Doing::Softirq(item), receive_ns + extra_ns + deliver_ns);
        let ends = core.ends;
        self.push(ends, &Event::CoreDone(at));
    }

    fn core_done(&mut self, at: usize) {
        // An event of work that was interrupted comes too early, or when the core is idle.
        if self.cores[at].ends != self.now {
            return;
        }
        self.settle(at);
        match self.cores[at].doing {
            Doing::Softirq(item) => {
                self.finish(at, item);
                self.next(at);
            }
            Doing::Thread(vm) => {
                if self.guests[vm].remaining == 0 {
                    self.taken_by_program(vm);
                }
                self.guests[vm].on = None;
                self.note_wait(vm);
                self.next(at);
            }
            Doing::Idle => {}
        }
    }

    /// Ends a piece of softirq work.
    fn finish(&mut self, at: usize, item: Item) {
        self.cores[at].times.pieces += 1;
        let segment = item.segment();
        let entry = self.senders[segment.flow].flow.entry;
        let mut has_room = false;
        let goes_on = match item {
            Item::Deliver(_) => {
                self.deliver(segment);
                false
            }
            Item::Receive(_, delivery) => {
                has_room = self.cores[at].give_back(&self.scenario.params);
                let sender = &self.senders[segment.flow];
                let is_complete = sender.partial == (segment.datagram, sender.segments)
                    && segment.index + 1 == sender.segments;
                match delivery {
                    Some(other) if is_complete => self.hand_over(other, segment),
                    None if is_complete => {
                        self.deliver(segment);
                        false
                    }
                    _ => false,
                }
            }
        };
        if !goes_on {
            self.steering.done(entry);
        }
        if has_room || !goes_on {
            self.wake();
        }
    }

    /// Hands a datagram to the core that delivers it. False if it was lost.
    fn hand_over(&mut self, other: usize, segment: Segment) -> bool {
        let is_lost = self.scenario.policy == Policy::Drop
            && !self.cores[other].has_room_to_deliver(&self.scenario.params);
        if is_lost {
            self.senders[segment.flow].counts.lost_delivery += 1;
            return false;
        }
        self.cores[other].queue.push_back(Item::Deliver(segment));
        self.interrupt(other);
        true
    }

    /// Puts a datagram into its guest's ring.
    fn deliver(&mut self, segment: Segment) {
        let sender = &mut self.senders[segment.flow];
        let vm = sender.flow.vm;
        if self.guests[vm].ring.len() as u64 >= self.scenario.params.guest_ring
            && self.scenario.policy == Policy::Drop
        {
            sender.counts.lost_guest += 1;
            return;
        }
        self.guests[vm].ring.push_back((segment.flow, segment.datagram));
        self.note_wait(vm);
        let may =
            |core: &usize| self.cores[*core].doing == Doing::Idle && self.guests[vm].may_run(*core);
        if let Some(core) = (0..self.cores.len()).find(may) {
            self.settle(core);
            self.next(core);
        }
    }

    /// Notes that a guest's program has taken a datagram.
    fn taken_by_program(&mut self, vm: usize) {
        let Some((flow, _)) = self.guests[vm].ring.pop_front() else { return };
        self.senders[flow].counts.delivered += 1;
        if self.senders[flow].wire.is_empty() {
            self.let_go(flow);
        }
    }

    /// Chooses the next work of a core.
    fn next(&mut self, at: usize) {
        self.settle(at);
        let params = &self.scenario.params;
        let (now, core) = (self.now, &self.cores[at]);
        let was_softirq = matches!(core.doing, Doing::Softirq(_));
        let is_protected = matches!(core.doing, Doing::Thread(_)) && core.protected_until > now;
        let has_softirq = !core.queue.is_empty();
        let thread = self.runnable(at);
        let ran_long = was_softirq && now - core.busy_since >= params.softirq_run_ns;
        let core = &mut self.cores[at];
        match (has_softirq, thread) {
            (true, Some(vm)) if is_protected => self.begin_thread(at, vm),
            (true, Some(vm)) if ran_long && params.thread_run_ns > 0 => {
                core.protected_until = now + params.thread_run_ns;
                self.begin_thread(at, vm);
            }
            (true, _) => {
                let extra = if was_softirq { 0 } else { params.interrupt_ns };
                if !was_softirq {
                    core.busy_since = now;
                }
                self.begin_softirq(at, extra);
            }
            (false, Some(vm)) => self.begin_thread(at, vm),
            (false, None) => core.begin(now, Doing::Idle, 0),
        }
    }

    /// Returns the vCPU that has its turn: the last one while its quantum lasts, else the next one.
    fn runnable(&self, at: usize) -> Option<usize> {
        let (core, count) = (&self.cores[at], self.guests.len());
        let is_over = self.now - core.turn_since >= self.scenario.params.quantum_ns;
        let skipped = usize::from(is_over);
        let order = (0..count).map(|nth| (core.last_vm + skipped + nth) % count);
        order.into_iter().find(|vm| self.guests[*vm].may_run(at))
    }

    fn begin_thread(&mut self, at: usize, vm: usize) {
        let params = &self.scenario.params;
        let guest = &mut self.guests[vm];
        guest.on = Some(at);
        if guest.remaining == 0 {
            let &(flow, _) = guest.ring.front().expect("it may run");
            guest.remaining = params.guest_work_ns(self.senders[flow].flow.bytes);
        }
        let core = &mut self.cores[at];
        let is_over = self.now - core.turn_since >= params.quantum_ns;
        if core.last_vm != vm || is_over {
            (core.last_vm, core.turn_since) = (vm, self.now);
        }
        let left = core.protected_until.saturating_sub(self.now);
        let remaining = guest.remaining;
        let takes = if core.queue.is_empty() { remaining } else { remaining.min(left) };
        core.begin(self.now, Doing::Thread(vm), takes);
        let ends = core.ends;
        self.note_wait(vm);
        self.push(ends, &Event::CoreDone(at));
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            flows: self.senders.iter().map(|sender| sender.counts).collect(),
            cores: self.cores.iter().map(|core| core.times).collect(),
        }
    }

    fn report(&self, before: &Snapshot, after: &Snapshot) -> Report {
        let flow = |at: usize| {
            let (a, b) = (before.flows[at], after.flows[at]);
            let delivered = b.delivered - a.delivered;
            let bits = u128::from(delivered) * u128::from(self.senders[at].flow.bytes) * 8;
            let span = u128::from(self.scenario.span.0.max(1));
            let way = |counts: Counts| i64::try_from(counts.under_way()).unwrap_or(i64::MAX);
            FlowReport {
                offered: b.offered - a.offered,
                delivered,
                lost_descriptor: b.lost_descriptor - a.lost_descriptor,
                lost_delivery: b.lost_delivery - a.lost_delivery,
                lost_guest: b.lost_guest - a.lost_guest,
                queued: way(b) - way(a),
                throughput_bps: u64::try_from(bits * 1_000_000_000 / span).unwrap_or(u64::MAX),
            }
        };
        let core = |(a, b): (&Times, &Times)| CoreReport {
            softirq_ns: b.softirq - a.softirq,
            softirq_pieces: b.pieces - a.pieces,
            user_ns: b.user - a.user,
            idle_ns: b.idle - a.idle,
        };
        Report {
            flows: (0..self.senders.len()).map(flow).collect(),
            cores: before.cores.iter().zip(&after.cores).map(core).collect(),
            moves: self.steering.moved(),
        }
    }
}
