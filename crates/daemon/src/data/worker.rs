//! A data worker: one thread that owns a switch and the ports that it serves: every port of the
//! host, unless there are several workers (`worker/handoff.rs`).
//!
//! [`Worker::run`] is the whole loop. A turn goes once over the ports: what the switch promises to
//! take is read and received, what waits is offered to the drivers, and what ended goes back to
//! the pool. Nothing in it blocks, logs or allocates.
//!
//! **Held back** means that the window of an input is closed and its port is simply not read; one
//! that tells priorities apart is read for those that are open, and flow control is heard always.
//! No descriptor has to be watched for that: a window opens only when a frame ends, and a turn in
//! which one ended is followed by another turn.
//!
//! **Sleeping.** After a turn that moved nothing the worker sleeps until a descriptor or a deadline
//! wakes it. While turns read many frames it pauses for `pace` after each, so that they come in
//! batches and a busy host is not woken for each; after others it goes on at once (`pace.rs`). A
//! port whose frames were cut off by the batch, and by nothing else, is read on without a sleep.
//! With machines it is otherwise, as their queues are memory: after work with them the worker looks
//! on for a while (`spin.rs`), and then arms their notifications.
//!
//! **No wake-up is lost**: descriptors are edge-triggered, a port's flag is cleared only by a
//! driver that found nothing, and an edge after that is kept by the kernel until [`Poller::wait`]
//! collects it. Notifications are armed before a sleep and the queues checked once more
//! ([`arm_notifications`](sluice_ports::SharedRings::arm_notifications)); frames found then are
//! served as after an event of a descriptor. A thread that asks a question puts it into the channel
//! first and makes the edge afterwards.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use sluice_base::{Batch, InputId, Nanos, PortId};
use sluice_host::Host;
use sluice_ports::{FrameBuf, Pool, Port, Queues, TxBackoff, Waits};

use self::attach::{copy_to_shared, hand_back};
use self::ending::{Ending, aside};
pub(super) use self::ending::{Known, Left, YieldStep};
use self::isolated::Isolated;
pub(super) use self::meter::Meter;
use self::migration::Migration;
pub(super) use self::migration::MigrationStep;
use self::pace::Pace;
pub(super) use self::places::{NewAddresses, PlaceStep};
pub(super) use self::request::WorkerRequest;
use self::spin::Spin;
use self::spread::Spread;
pub(super) use self::spread::{Part, Step};
pub(super) use self::times::Times;
use self::times::{Spent, Stopwatch};
pub(super) use self::underlay::Device;
use super::capture::Captures;
use super::chip::ChipLink;
use super::control_link::{CONTROL, ControlLink};
use super::handoff::Handoffs;
use super::look;
use super::snapshot;
use crate::sys::clock;
use crate::sys::log::say;
use crate::sys::poller::{Event, Poller};

/// The largest batch that the switch takes.
pub(super) const BATCH: usize = 64;
/// Frames read from a TAP at a time: each is a system call, and other ports wait meanwhile.
const TAP_BATCH: usize = 16;
/// The shortest sleep for a deadline, so that a driver without room cannot make the worker spin:
/// what it does not take stays due (`Switch::deadline`).
const SLEEP_MIN: Nanos = Nanos::from_micros(50);
/// For how long the worker goes on with queues that are memory before it collects what descriptors
/// tell: a system call, which takes as long as a turn.
const UNTOLD_MAX: Nanos = Nanos::from_micros(20);

/// Times of the worker's pauses and polling.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// The pause behind a batch while busy.
    pub(super) pace: Nanos,
    /// Longest time to poll machines' queues before sleeping.
    pub(super) spin: Nanos,
}

/// A port that was opened: its number, and its name.
pub(super) type Opened = (PortId, String, Box<dyn Port>);

/// A port and what the worker remembers of it.
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) port: Box<dyn Port>,
    pub(super) id: PortId,
    /// Its first input; each queue has one.
    input: InputId,
    pub(super) queues: u8,
    batch: usize,
    /// Its queues are shared rings, and may be looked at at any time.
    is_memory: bool,
    /// True if the kernel may have frames.
    readable: bool,
    /// True if a descriptor had an event since
    /// [`handle_events`](sluice_ports::SharedRings::handle_events).
    has_events: bool,
    /// Room in the driver.
    pub(super) room: TxBackoff,
    /// True if the poller reports room.
    watched: bool,
    /// Reason why the port is closed, if the device went away.
    pub(super) gone: Option<io::Error>,
    /// True if the port keeps flow control apart from data, and priorities from each other.
    tells_apart: bool,
    /// False if its device has no carrier: then the kernel ends what it is given.
    has_carrier: bool,
    /// It is to move: nothing more is read.
    held: bool,
    /// Frames that came and went, as far as this worker moved them.
    moved: u64,
}

impl Attached {
    /// The input of a queue.
    pub(super) fn input(&self, queue: u8) -> InputId {
        InputId(self.input.0 + u16::from(queue))
    }

    /// All of its inputs.
    pub(super) fn inputs(&self) -> impl Iterator<Item = InputId> + use<> {
        let first = self.input.0;
        (first..first + u16::from(self.queues)).map(InputId)
    }

    /// The next turn reads it, offers to it and asks what it wants.
    fn tell(&mut self) {
        self.has_events = true;
        self.room.note_event();
    }
}

/// The worker.
pub(super) struct Worker {
    host: Host<FrameBuf>,
    ports: Vec<Attached>,
    /// By number of port, its position in `ports`. Positions change when a port goes, numbers do
    /// not; the poller tells numbers.
    positions: Vec<Option<usize>>,
    tunnels: usize,
    pool: Pool,
    batch: Batch<FrameBuf>,
    handoffs: Handoffs,
    poller: Poller,
    asks: Receiver<WorkerRequest>,
    orders: ControlLink,
    pacing: Pacing,
    /// The port that is served first in this turn. It rotates, or the first one would starve the
    /// others of a full output.
    first: usize,
    asked: bool,
    ending: Ending,
    spin: Spin,
    pace: Pace,
    /// When descriptors were asked last.
    collected: Nanos,
    watch: Stopwatch,
    /// Kind of the last turn.
    spent: Spent,
    /// Counters for the rebalancer, if there is one.
    meter: Option<Arc<Meter>>,
    /// The underlay that it shares with other workers.
    spread: Option<Spread>,
    /// Of ports that move.
    migration: Migration,
    /// Of receivers that are isolated.
    isolated: Isolated,
    /// Absent while nothing is captured.
    captures: Option<Box<Captures>>,
}

/// Outcome of a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// Something moved.
    worked: bool,
    /// Something that came from, or went to, a queue that is memory.
    in_memory: bool,
    /// A port has more, and only the batch was full.
    backlog: bool,
    /// Frames that were read.
    frames: usize,
}

impl Worker {
    pub(super) fn new(
        host: Host<FrameBuf>,
        ports: Vec<Opened>,
        pool: Pool,
        poller: Poller,
        asks: Receiver<WorkerRequest>,
        pacing: Pacing,
    ) -> io::Result<Self> {
        let mut worker = Self {
            ports: Vec::with_capacity(ports.len()),
            positions: Vec::new(),
            tunnels: host.switch().tunnel_places(),
            host,
            pool,
            batch: Batch::with_limit(BATCH),
            handoffs: Handoffs::none(),
            poller,
            asks,
            orders: ControlLink::default(),
            pacing,
            first: 0,
            asked: false,
            ending: Ending::default(),
            spin: Spin::new(pacing.spin),
            pace: Pace::new(pacing.pace),
            collected: Nanos::ZERO,
            watch: Stopwatch::new(clock::now()),
            spent: Spent::Looking,
            meter: None,
            spread: None,
            migration: Migration::default(),
            isolated: Isolated::default(),
            captures: None,
        };
        for (id, name, port) in ports {
            worker.adopt(name, port, id)?;
        }
        Ok(worker)
    }

    /// Writes into a chip what the switch knows.
    pub(super) fn set_chip(&mut self, chip: ChipLink) {
        self.orders.set_chip(chip);
    }

    /// Runs until it is told to drain. The clock is read once per turn.
    pub(super) fn run(&mut self) -> io::Result<Left> {
        loop {
            let now = clock::now();
            if self.ending.is_frozen() {
                self.wait_frozen(now)?;
            }
            self.watch.split(now, self.spent);
            self.watch.turn();
            let mut turn = Turn { worked: self.receive_handoffs(), ..Turn::default() };
            let count = self.ports.len();
            for index in (self.first..count).chain(0..self.first) {
                if self.ports[index].has_events {
                    self.handle_events(index);
                }
                self.receive_burst(now, index, &mut turn);
            }
            turn.worked |= self.orders.serve(now, &mut self.host, &mut self.pool) > 0;
            for index in (self.first..count).chain(0..self.first) {
                let sent = self.transmit_burst(now, index);
                turn.worked |= sent;
                turn.in_memory |= sent && self.ports[index].is_memory;
            }
            turn.worked |= self.send_handoffs();
            turn.worked |= self.give_back();
            turn.worked |= self.return_handoffs();
            self.host.switch_mut().advance(now);
            if self.captures.is_some() {
                self.capture_dropped(now);
            }
            self.first = if self.first + 1 < count { self.first + 1 } else { 0 };

            if self.asked {
                turn.worked |= self.answer(now);
            }
            self.publish(turn.frames);
            self.tell_of_port();
            self.tell_of_buckets();
            self.isolated.tell(&self.host, &self.ports);
            if let Some(left) = self.has_drained(now, turn.worked) {
                return Ok(left);
            }
            self.sleep(now, turn)?;
        }
    }

    /// Takes in what every queue of a port has.
    fn receive_burst(&mut self, now: Nanos, index: usize, turn: &mut Turn) {
        let mut more = false;
        if self.ports[index].tells_apart {
            turn.worked |= self.hear(now, index);
        }
        for queue in 0..self.ports[index].queues {
            more |= self.take_queue(now, index, queue, turn);
        }
        self.ports[index].readable &= more;
    }

    /// Flow control comes first, whatever waits and whatever the window is.
    fn hear(&mut self, now: Nanos, index: usize) -> bool {
        let attached = &mut self.ports[index];
        let (switch, input, id) = (self.host.switch_mut(), attached.input, attached.id);
        let captures = &mut self.captures;
        let Some(flow_control) = attached.port.flow_control() else { return false };
        flow_control.receive_control(&mut |frame| {
            if let Some(captures) = captures {
                captures.heard(id, frame);
            }
            switch.hear(now, input, frame);
        }) > 0
    }

    /// Takes frames of a queue: window, copy to the shared buffer, read, receive. Returns true if
    /// the queue may have more.
    fn take_queue(&mut self, now: Nanos, index: usize, queue: u8, turn: &mut Turn) -> bool {
        let attached = &mut self.ports[index];
        let input = attached.input(queue);
        let switch = self.host.switch_mut();
        let mut window = switch.window(input);
        if window.needs_copy {
            copy_to_shared(switch, input, &mut attached.port, &mut self.pool);
            window = switch.window(input);
        }
        if !attached.tells_apart {
            window = window.of_any();
        }
        // Frames that a port set aside came before it was told to stop.
        let is_done = self.ending.reads_nothing() && aside(&mut *attached.port) == 0;
        let stopped = attached.held || is_done;
        if !attached.readable || window.is_shut() || stopped {
            return true;
        }
        let limit = attached.batch;
        let mut more = false;
        match attached.read(queue, window, limit, &mut self.pool, &mut self.batch) {
            Ok(read) => {
                more = read.more;
                turn.worked |= read.frames + read.others > 0;
                turn.frames += read.frames;
                attached.moved += read.frames as u64;
                turn.in_memory |= read.frames > 0 && attached.is_memory;
                turn.backlog |= read.more && (read.frames == limit || read.others >= limit);
            }
            Err(error) => self.lose(now, index, error),
        }
        let switch = self.host.switch_mut();
        if !self.batch.is_empty() {
            if let Some(captures) = &mut self.captures {
                captures.received(self.ports[index].id, self.batch.as_slice());
            }
            switch.receive(now, input, &mut self.batch);
            // Frames beyond a share may leave in this turn; only the remaining ones are copied.
            if switch.replicates(input) {
                copy_to_shared(switch, input, &mut self.ports[index].port, &mut self.pool);
            }
        }
        more
    }

    /// Transmit, flush. Returns whether a frame left.
    fn transmit_burst(&mut self, now: Nanos, index: usize) -> bool {
        let attached = &mut self.ports[index];
        // A port without its device, or carrier, takes nothing until that is back.
        if !attached.room.is_due(now) || attached.gone.is_some() || !attached.has_carrier {
            return false;
        }
        let sockets = attached.port.receiving_sockets();
        let resumed = sockets.is_some_and(|sockets| sockets.resume(now));
        if resumed {
            self.host.switch_mut().resume_port(attached.id);
        }
        let was_missing = attached.room.is_missing();
        let mut flushed = if was_missing { attached.port.flush() } else { Ok(()) };
        let switch = self.host.switch_mut();
        let (mut taken, mut waits) = (0, Waits::No);
        if flushed.is_ok() && switch.has_work(now, attached.id) {
            let (id, driver) = (attached.id, &mut attached.port);
            taken = match &mut self.captures {
                None => switch.transmit(now, id, driver),
                Some(captures) => switch.transmit(now, id, &mut captures.sink(id, driver)),
            };
            attached.moved += u64::from(taken);
            waits = Waits::of(&*attached.port);
            flushed = attached.port.flush();
        }
        underlay::learn(now, switch, attached.id, &mut *attached.port);
        if attached.port.pending().frames > 0 {
            waits = Waits::of(&*attached.port);
        }
        if was_missing || waits != Waits::No {
            flushed = flushed.and_then(|()| self.wait_for_room(now, index, waits));
        }
        if let Err(error) = flushed {
            self.lose(now, index, error);
        }
        taken > 0 || resumed
    }

    /// Notes what a port without room waits for.
    #[cold]
    fn wait_for_room(&mut self, now: Nanos, index: usize, waits: Waits) -> io::Result<()> {
        let attached = &mut self.ports[index];
        attached.room.offered(now, waits);
        let wanted = waits == Waits::ForRoom;
        if !attached.watched && !wanted {
            return Ok(());
        }
        let mut fds = attached.port.poll_fds();
        fds.retain(|poll| poll.write);
        // Asked anew each time, the poller tells of room that came before a driver made its wish
        // known, of which a TAP makes no edge. One of several that has room would tell of that.
        if attached.watched != wanted || fds.len() == 1 {
            attached.watched = wanted;
            for poll in fds {
                self.poller.set(attached.id.index(), poll.fd, poll.read, wanted)?;
            }
        }
        Ok(())
    }

    /// Handles of frames that ended go back to the pool. Returns whether there were any.
    fn give_back(&mut self) -> bool {
        let mut any = false;
        let switch = self.host.switch_mut();
        for attached in &mut self.ports {
            for input in attached.inputs() {
                any |= switch.has_ended(input);
                let (port, pool) = (&mut attached.port, &mut self.pool);
                hand_back(switch, input, port, pool, &mut self.batch);
            }
        }
        for input in [switch.control_input(), switch.pool_input()] {
            while switch.has_ended(input) {
                any = true;
                switch.reclaim(input, &mut self.batch);
                for buf in self.batch.drain() {
                    if let Some(spread) = &self.spread {
                        spread.ended(&mut self.ports, &buf);
                    }
                    self.pool.give_back(buf);
                }
            }
        }
        any
    }

    fn sleep(&mut self, now: Nanos, turn: Turn) -> io::Result<()> {
        if turn.in_memory {
            self.spin.worked(now);
        }
        self.spent = if turn.worked { Spent::Busy } else { Spent::Looking };
        let looks_on = self.spin.goes_on(now);
        if looks_on && now.since(self.collected) < UNTOLD_MAX {
            return Ok(());
        }
        self.collected = now;
        if turn.worked || looks_on || self.arm_notifications() || !self.handoffs.prepare_sleep() {
            let paces = turn.worked && !turn.in_memory && !looks_on && !turn.backlog;
            if paces && let Some(pause) = self.pace.after(turn.frames) {
                self.watch.split(clock::now(), Spent::Busy);
                clock::sleep(pause);
                self.spent = Spent::Asleep;
            }
            return self.collect(Nanos::ZERO);
        }
        self.spent = Spent::Asleep;
        self.collect(self.next(now).since(now).max(SLEEP_MIN))?;
        self.handoffs.cancel_sleep();
        self.spin.slept(clock::now().since(now));
        Ok(())
    }

    /// Has every port tell when something comes. Returns whether something did already.
    fn arm_notifications(&mut self) -> bool {
        let mut more = false;
        let (switch, stopped) = (self.host.switch(), self.ending.reads_nothing());
        for attached in self.ports.iter_mut().filter(|attached| attached.is_memory) {
            let mut reads = Queues::default();
            if attached.readable && !attached.held && !stopped {
                let is_open = |queue: &u8| switch.window(attached.input(*queue)).frames > 0;
                (0..attached.queues).filter(is_open).for_each(|queue| reads.insert(queue));
            }
            let Some(rings) = attached.port.shared_rings() else { continue };
            let answer = rings.arm_notifications(reads);
            if attached.room.note_armed(answer, attached.port.wants_write()) {
                attached.tell();
                more = true;
            }
        }
        more
    }

    /// Waits until descriptors tell of something, so long at most, and notes what they tell.
    fn collect(&mut self, timeout: Nanos) -> io::Result<()> {
        let Self { ports, positions, asked, orders, .. } = self;
        self.poller.wait(timeout, |event| {
            let (Event::Readable(index) | Event::Writable(index)) = event else {
                *asked = true;
                return;
            };
            if index == CONTROL {
                orders.wake();
                return;
            }
            // An edge of a port that has just gone is nobody's.
            let Some(position) = positions.get(index).copied().flatten() else { return };
            let attached = &mut ports[position];
            attached.readable |= event == Event::Readable(index);
            // Some ports have one descriptor for both.
            attached.tell();
        })
    }

    /// When the next turn is due if nothing happens.
    fn next(&self, now: Nanos) -> Nanos {
        let switch = self.host.switch().deadline();
        let retries = self.ports.iter().filter_map(|attached| attached.room.deadline());
        let drain = self.ending.until().map(|until| until.min(now.after(self.pacing.pace)));
        let control = self.orders.deadline();
        switch.into_iter().chain(retries).chain(drain).chain(control).min().unwrap_or(Nanos::MAX)
    }

    /// Answers what it is asked. Returns whether a turn must follow.
    #[cold]
    fn answer(&mut self, now: Nanos) -> bool {
        self.asked = false;
        let mut again = false;
        while let Ok(ask) = self.asks.try_recv() {
            match ask {
                WorkerRequest::Show(question, reply) => {
                    let times = self.watch.times();
                    let shot = snapshot::take(
                        &self.host,
                        &mut self.ports,
                        self.tunnels,
                        times,
                        question,
                        now,
                    );
                    // The thread that asked may be gone.
                    _ = reply.send(shot);
                }
                WorkerRequest::Look(wanted, reply) => {
                    _ = reply.send(look::take(
                        &self.host,
                        &mut self.ports,
                        self.tunnels,
                        &wanted,
                        now,
                    ));
                }
                WorkerRequest::NextHop(tunnel, mac) => {
                    let done = self.host.switch_mut().set_next_hop(now, tunnel, mac);
                    if let Err(error) = done {
                        say!(warn: "tunnel {tunnel}: {error:?}");
                    }
                }
                WorkerRequest::Device(device) => again |= self.hear_of_device(now, device),
                WorkerRequest::Add(coming, reply) => _ = reply.send(self.add(now, coming)),
                WorkerRequest::Del(port, reply) => _ = reply.send(self.delete(now, port)),
                WorkerRequest::Rebind(port, to, reply) => {
                    _ = reply.send(self.rebind(now, port, &to.0, &to.1));
                }
                WorkerRequest::IsOpen(port, reply) => _ = reply.send(self.is_open(port)),
                WorkerRequest::Attach(stream) => {
                    if let Err(error) =
                        self.orders.attach(now, stream, &mut self.host, &self.poller)
                    {
                        say!(warn: "control cannot attach: {error}");
                    }
                }
                WorkerRequest::Move(step, reply) => again |= self.step(&step, reply),
                WorkerRequest::Migrate(step) => again |= self.migration_step(step),
                WorkerRequest::Places(step) => {
                    self.place_step(now, step);
                    // A turn follows each change, however many there are.
                    self.asked = true;
                    return true;
                }
                WorkerRequest::Capture(capture) => self.begin_capture(capture),
                WorkerRequest::CaptureEnd(number, reply) => self.end_capture(number, &reply),
                WorkerRequest::Yield(step) => again |= self.yield_step(now, step),
                WorkerRequest::Drain => self.drain(now),
            }
        }
        again
    }
}

mod attach;
mod capture;
mod ending;
mod handoff;
mod isolated;
mod meter;
mod migration;
mod pace;
mod places;
mod request;
mod spin;
mod spread;
mod times;
mod underlay;

#[cfg(test)]
mod tests;
