//! The port, as the worker drives it.

mod deliver;
mod parts;
mod room;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::event::epoll::{self, EventData, EventFlags};
use sluice_base::{Batch, Nanos, Priority, PriorityMask};
use sluice_switch::Window;

use super::config::VhostUserConfig;
use super::device::{EVENT_IDX, Offer, features};
use super::incoming::{Incoming, Refused};
use super::log::Logging;
use super::outgoing::Outgoing;
use super::queues::{Pairs, QUEUES_MAX, Routes};
use super::ring::{Fault, Ring};
use super::session::{Answer, Ask, Change, Driver, Session, Setup};
use super::waking::Full;
use crate::error::OpenError;
use crate::finish::Finisher;
use crate::frame::FrameBuf;
use crate::handed::PortHandover;
use crate::notifier::{self, Notifier};
use crate::pool::Pool;
use crate::port::{
    Amount, ArmResult, Counters, Handover, Losses, Lossless, Outside, PollFd, Port, PortRequest,
    Queues, Read, ReceivingSockets, SharedRings,
};
use crate::rcvbuf::{GuestRoom, Receivers};

/// Number of the receive queue of a pair in vhost-user.
const fn receive(pair: usize) -> usize {
    2 * pair
}

/// Number of the transmit queue of a pair.
const fn transmit(pair: usize) -> usize {
    2 * pair + 1
}

/// Interval of looks for buffers while the worker is awake.
const LOOK_AGAIN: Nanos = Nanos::from_micros(1);

/// Descriptors and state of a ring.
#[derive(Debug, Default)]
struct Wires {
    kick: Option<OwnedFd>,
    call: Option<OwnedFd>,
    enabled: bool,
}

/// A port for a virtual machine.
#[derive(Debug)]
pub struct VhostUserPort {
    config: VhostUserConfig,
    /// Signals kicks and changes.
    epoll: OwnedFd,
    asks: Option<Receiver<Ask>>,
    session: Session,
    /// Transmit queue of each pair.
    incoming: Vec<Option<Incoming>>,
    outgoing: Vec<Option<Outgoing>>,
    /// Receive queue of each priority.
    routes: Routes,
    /// Descriptors of each ring.
    wires: Vec<Wires>,
    /// Pair whose transmit queue waits for its handles before it stops, and the channel for its
    /// base.
    stopping: Option<(usize, SyncSender<Answer>)>,
    /// Fault of each ring that is stopped until it is set up anew.
    faults: Vec<Option<Fault>>,
    refused: Refused,
    /// Pairs whose last read found nothing.
    drained: Pairs,
    /// Pairs whose last frame found no buffers.
    full: Full,
    lost: Losses,
    finisher: Finisher,
    /// UDP sockets in the guest, as far as an agent there tells of them.
    receivers: Receivers<GuestRoom>,
    /// True if frames that were refused for a socket may find room since the guest's ring stopped.
    is_reset: bool,
    open: bool,
}

impl VhostUserPort {
    /// Opens the port; the front end may come later, and go, and come again.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &VhostUserConfig) -> Result<Self, OpenError> {
        Self::adopt(config, None)
    }

    /// Opens the port with the state that an earlier process handed over: its guest continues
    /// without an interruption. If the state has no session the front end connects again.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn adopt(config: &VhostUserConfig, from: Option<PortHandover>) -> Result<Self, OpenError> {
        let name = config.socket.display().to_string();
        let failed = |what| OpenError::device(&name, what);
        let notifier = Notifier::new().map_err(failed("create an eventfd for it"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| failed("create an epoll instance for it")(errno.into()))?;
        watch(&epoll, notifier.fd()).map_err(failed("watch its eventfd"))?;
        // One at a time: the session waits for each answer.
        let (asks, receiver) = sync_channel(1);
        let driver = Driver::new(asks, notifier);
        let pairs = config.queues.len().clamp(1, QUEUES_MAX);
        let receivers = room::receivers(pairs);
        if let Some(timer) = receivers.timer() {
            watch(&epoll, timer).map_err(failed("watch a timer for it"))?;
        }
        let offered = features(config.in_order, config.offload, pairs);
        let offer = Offer { features: offered, pairs, mtu: config.mtu };
        let handed = from.unwrap_or_default();
        let session = Session::start(&config.socket, config.role, offer, driver, handed)
            .map_err(failed("listen at its socket"))?;
        Ok(Self {
            config: config.clone(),
            epoll,
            asks: Some(receiver),
            session,
            incoming: (0..pairs).map(|_| None).collect(),
            outgoing: (0..pairs).map(|_| None).collect(),
            routes: Routes::new(&config.queues),
            wires: (0..2 * pairs).map(|_| Wires::default()).collect(),
            stopping: None,
            faults: vec![None; 2 * pairs],
            refused: Refused::default(),
            drained: Pairs::default(),
            full: Full::default(),
            lost: Losses::default(),
            finisher: Finisher::new(),
            receivers,
            is_reset: false,
            open: true,
        })
    }

    /// Does one change. `None` if the answer comes later.
    fn change(&mut self, change: Change) -> Option<Answer> {
        match change {
            Change::Start(ring, setup) => return Some(self.start(ring, *setup)),
            Change::Stop(ring) if ring.is_multiple_of(2) => {
                return Some(Ok(self.stop_outgoing(usize::from(ring / 2))));
            }
            Change::Stop(ring) => return self.stop_incoming(usize::from(ring / 2)).map(Ok),
            Change::Enable(ring, enabled) => {
                self.wires[usize::from(ring)].enabled = enabled;
                self.find_routes();
            }
            Change::Call(ring, call) => {
                let wires = &mut self.wires[usize::from(ring)];
                wires.call = call;
                // Chains used before the call descriptor came caused no interrupt.
                interrupt(wires);
            }
            Change::Log(ring, logging) => self.log_to(ring, logging),
            Change::Kick(ring, kick) => {
                if let Some(Err(error)) = kick.as_ref().map(|kick| watch(&self.epoll, kick)) {
                    return Some(Err(error.to_string()));
                }
                self.wires[usize::from(ring)].kick = kick;
            }
        }
        Some(Ok(0))
    }

    fn start(&mut self, number: u8, setup: Setup) -> Answer {
        let has = |bit| setup.features & bit != 0;
        let ring = Ring::new(&setup.memory, setup.place, setup.base, has(EVENT_IDX));
        let ring = ring.ok_or_else(|| {
            format!("ring {number} lies outside shared memory, or on no boundary of its kind")
        })?;
        let (at, pair) = (usize::from(number), usize::from(number / 2));
        let transmits = at == transmit(pair);
        // The handles of the old ring would come back to the new one.
        if transmits && self.incoming[pair].is_some() {
            return Err(format!("ring {number} has not stopped yet"));
        }
        if let Some(kick) = &setup.kick {
            watch(&self.epoll, kick).map_err(|error| format!("ring {number}: {error}"))?;
        }
        self.wires[at] = Wires { kick: setup.kick, call: setup.call, enabled: setup.enabled };
        self.faults[at] = None;
        if transmits {
            let (queue, in_order) = (u32::from(number / 2), self.config.in_order);
            let ring = Incoming::new(ring, setup.memory, queue, in_order, setup.features);
            self.incoming[pair] = Some(ring);
        } else {
            self.outgoing[pair] = Some(Outgoing::new(ring, setup.memory, setup.features));
        }
        self.log_to(number, setup.logging);
        self.find_routes();
        Ok(0)
    }

    /// Sets the dirty log of a ring's writes.
    fn log_to(&mut self, number: u8, logging: Option<Logging>) {
        let pair = usize::from(number / 2);
        if usize::from(number) == receive(pair) {
            self.outgoing[pair].as_mut().into_iter().for_each(|ring| ring.log_to(logging.clone()));
        } else {
            self.incoming[pair].as_mut().into_iter().for_each(|ring| ring.log_to(logging.clone()));
        }
    }

    fn stop_outgoing(&mut self, pair: usize) -> u16 {
        self.full.found(pair);
        self.forget_agent();
        let Some(mut ring) = self.outgoing[pair].take() else { return 0 };
        if ring.publish() {
            interrupt(&self.wires[receive(pair)]);
        }
        self.unwire(receive(pair));
        ring.base()
    }

    /// Stops a transmit queue; `None` while handles are out.
    fn stop_incoming(&mut self, pair: usize) -> Option<u16> {
        if self.incoming[pair].as_ref().is_some_and(|ring| ring.out() > 0) {
            return None;
        }
        let Some(mut ring) = self.incoming[pair].take() else { return Some(0) };
        if ring.publish() {
            interrupt(&self.wires[transmit(pair)]);
        }
        self.refused.oversize += ring.refused.oversize;
        self.refused.offload += ring.refused.offload;
        self.receivers.ignore(ring.told.ignored);
        self.unwire(transmit(pair));
        Some(ring.base())
    }

    fn unwire(&mut self, ring: usize) {
        // Closing the last descriptor removes it from the epoll, but the front end has another.
        if let Some(kick) = self.wires[ring].kick.take() {
            let _ = epoll::delete(&self.epoll, &kick);
        }
        self.wires[ring] = Wires::default();
        self.faults[ring] = None;
        self.find_routes();
    }

    /// Stops a ring that breaks the rules until it is set up anew.
    #[cold]
    fn fail(&mut self, ring: usize, fault: Fault) {
        // A fault in memory that reads as zeros is not the guest's doing.
        let fault = if self.is_gone() { Fault::Gone } else { fault };
        self.faults[ring] = Some(fault);
        self.find_routes();
    }

    /// Publishes chains that were given back to the guest.
    fn publish_incoming(&mut self) {
        for (pair, ring) in self.incoming.iter_mut().enumerate() {
            if ring.as_mut().is_some_and(Incoming::publish) {
                interrupt(&self.wires[transmit(pair)]);
            }
        }
    }

    /// Computes the receive queue of each priority after rings came, went, or stopped.
    fn find_routes(&mut self) {
        let mut usable = Pairs::default();
        for pair in 0..self.outgoing.len() {
            if self.outgoing[pair].is_some() && self.is_usable(receive(pair)) {
                usable.insert(pair);
            }
        }
        self.routes.use_only(usable);
        // Full queues are determined anew, since frames take other queues now.
        self.full = Full::default();
    }

    /// Returns true if no frame of any priority has room.
    fn is_full(&self) -> bool {
        let full = self.full.pairs();
        !full.is_empty() && self.routes.priorities(full) == PriorityMask::ALL
    }

    /// Returns true if the guest's memory went away. All rings are in the same memory.
    #[inline]
    fn is_gone(&self) -> bool {
        self.incoming.iter().flatten().next().is_some_and(Incoming::is_gone)
            || self.outgoing.iter().flatten().next().is_some_and(Outgoing::is_gone)
    }

    /// Stops all rings of a guest whose memory went away.
    #[inline]
    fn look_at_memory(&mut self) {
        if self.is_gone() && self.faults.contains(&None) {
            self.faults.fill(Some(Fault::Gone));
            self.find_routes();
        }
    }

    /// Asks for kicks of a pair, for frames only if they would be read. Returns true if frames or
    /// room are there.
    fn arm(&mut self, pair: usize, reads: bool) -> bool {
        let mut more = false;
        if reads && self.drained.has(pair) && self.is_usable(transmit(pair)) {
            match self.incoming[pair].as_mut().map_or(Ok(false), Incoming::arm) {
                Ok(came) => more |= came,
                Err(fault) => self.fail(transmit(pair), fault),
            }
        }
        if self.full.has(pair) && self.is_usable(receive(pair)) {
            match self.outgoing[pair].as_mut().map_or(Ok(false), Outgoing::arm) {
                Ok(came) => {
                    self.full.asked(pair, came);
                    more |= came;
                }
                // The waiting frame must be offered once more, to be counted.
                Err(fault) => {
                    self.fail(receive(pair), fault);
                    more = true;
                }
            }
        }
        more
    }

    /// Consumes the pending events; the caller looks at their rings afterwards.
    fn consume_events(&self) {
        let mut events = Vec::with_capacity(self.wires.len() + 1);
        let now = rustix::event::Timespec::default();
        // After an error there are no events, and nothing else to do.
        let spare = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.epoll, spare, Some(&now));
    }

    fn is_usable(&self, ring: usize) -> bool {
        self.wires[ring].enabled && self.faults[ring].is_none()
    }
}

/// Pair of a handle, by its number.
const fn pair_of(number: u32) -> usize {
    (number >> 16) as usize
}

/// Request for the handles of a pair's transmit queue.
#[expect(clippy::cast_possible_truncation, reason = "eight at most")]
const fn wanted(pair: usize) -> PortRequest {
    PortRequest::Handles(pair as u8)
}

/// Watches a descriptor, edge-triggered.
fn watch(epoll: &OwnedFd, fd: impl AsFd) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    Ok(epoll::add(epoll, fd, EventData::new_u64(0), flags)?)
}

fn interrupt(wires: &Wires) {
    if let Some(call) = &wires.call {
        notifier::notify(call.as_fd());
    }
}

impl Port for VhostUserPort {
    fn kind(&self) -> &'static str {
        "vhost-user"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        vec![PollFd { fd: self.epoll.as_fd(), read: true, write: false }]
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        self.read_from(0, window, limit, pool, batch)
    }

    fn shared_rings(&mut self) -> Option<&mut dyn SharedRings> {
        Some(self)
    }

    fn give_back(&mut self, bufs: &mut Batch<FrameBuf>, pool: &mut Pool) {
        for buf in bufs.drain() {
            let Some(number) = buf.guest_number() else {
                pool.give_back(buf);
                continue;
            };
            match &mut self.incoming[pair_of(number)] {
                Some(ring) => ring.give_back(number),
                None => unreachable!("a ring stops when its handles are back"),
            }
        }
        self.publish_incoming();
    }

    fn flush(&mut self) -> io::Result<()> {
        for (pair, ring) in self.outgoing.iter_mut().enumerate() {
            if ring.as_mut().is_some_and(Outgoing::publish) {
                interrupt(&self.wires[receive(pair)]);
            }
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        self.is_full() && self.full.are_armed()
    }

    fn retry_after(&self) -> Option<Nanos> {
        let looks = self.is_full() && !self.full.are_armed();
        if looks { Some(LOOK_AGAIN) } else { self.receivers.retry_after() }
    }

    fn pending(&self) -> Amount {
        self.receivers.waiting()
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
    }

    fn outside(&self) -> Outside {
        let sum = |of: fn(&Refused) -> u64| {
            let now = self.incoming.iter().flatten().map(|ring| of(&ring.refused));
            of(&self.refused) + now.sum::<u64>()
        };
        let rows = Counters::from([
            ("guest_oversize", sum(|refused| refused.oversize)),
            ("guest_offload", sum(|refused| refused.offload)),
            ("guest_invalid", self.receivers.invalid()),
        ]);
        Outside::of_driver(rows, self.device())
    }

    fn receiving_sockets(&mut self) -> Option<&mut dyn ReceivingSockets> {
        Some(self)
    }

    fn handover(&mut self) -> Option<&mut dyn Handover> {
        Some(self)
    }

    fn ring(&self) -> crate::port::Ring {
        let size: u32 = self.incoming.iter().flatten().map(|ring| u32::from(ring.size())).sum();
        crate::port::Ring { capacity_frames: size.into(), waiting_frames_max: None }
    }

    fn lossless(&self) -> Lossless {
        Lossless::Yes
    }

    fn mtu(&self) -> u16 {
        self.config.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.open = false;
        // First the channel, so that the session's thread waits for no answer.
        self.asks = None;
        self.stopping = None;
        self.session.close();
        for pair in 0..self.incoming.len() {
            self.stop_outgoing(pair);
            // With handles out, the memory behind them stays.
            if self.stop_incoming(pair).is_none() {
                self.wires[transmit(pair)].enabled = false;
            }
        }
        Ok(())
    }
}

impl SharedRings for VhostUserPort {
    #[expect(clippy::cast_possible_truncation, reason = "eight at most")]
    fn queues(&self) -> u8 {
        self.incoming.len() as u8
    }

    fn read_from(
        &mut self,
        queue: u8,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        self.look_at_memory();
        let pair = usize::from(queue);
        let stops = self.stopping.as_ref().is_some_and(|(stopping, _)| *stopping == pair);
        let usable = self.is_usable(transmit(pair)) && !stops;
        let Some(ring) = self.incoming[pair].as_mut().filter(|_| usable) else {
            return Ok(Read { frames: 0, more: false, others: 0 });
        };
        let before = batch.len();
        let read = ring.read(window, limit, pool, batch);
        if batch.len() == before && ring.is_drained() {
            self.drained.insert(pair);
        } else {
            self.drained.remove(pair);
        }
        if ring.publish() {
            interrupt(&self.wires[transmit(pair)]);
        }
        match read {
            Ok(read) => Ok(read),
            Err(fault) => {
                self.fail(transmit(pair), fault);
                Ok(Read { frames: batch.len() - before, more: false, others: 0 })
            }
        }
    }

    fn copy_to_pool(&mut self, buf: FrameBuf, pool: &mut Pool) -> Result<FrameBuf, FrameBuf> {
        let Some(number) = buf.guest_number() else { return Ok(buf) };
        let Some(ring) = &mut self.incoming[pair_of(number)] else { return Ok(buf) };
        let Some(copy) = pool.copy_of(&buf) else { return Err(buf) };
        ring.give_back(number);
        Ok(copy)
    }

    fn handle_events(&mut self) -> PortRequest {
        self.consume_events();
        self.full = Full::default();
        if let Some((pair, reply)) = self.stopping.take() {
            let Some(base) = self.stop_incoming(pair) else {
                self.stopping = Some((pair, reply));
                return wanted(pair);
            };
            // The receiver of the answer may have gone away.
            let _ = reply.send(Ok(base));
        }
        while let Some((change, reply)) = self.asks.as_ref().and_then(|asks| asks.try_recv().ok()) {
            // The only change that may have to wait is a stop.
            let ring = if let Change::Stop(ring) = &change { *ring } else { 0 };
            match self.change(change) {
                Some(answer) => _ = reply.send(answer),
                None => {
                    let pair = usize::from(ring / 2);
                    self.stopping = Some((pair, reply));
                    return wanted(pair);
                }
            }
        }
        PortRequest::Nothing
    }

    fn arm_notifications(&mut self, reads: Queues) -> ArmResult {
        // Another port may have accessed the memory since.
        self.look_at_memory();
        let mut more = false;
        for pair in 0..self.incoming.len() {
            more |= self.arm(pair, reads.has(pair));
        }
        if more { ArmResult::More } else { ArmResult::Armed }
    }
}

impl Drop for VhostUserPort {
    fn drop(&mut self) {
        let _always_ok = self.close();
    }
}
