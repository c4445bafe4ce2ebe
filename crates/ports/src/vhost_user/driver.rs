//! The port: what the worker calls.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use rustix::event::epoll::{self, EventData, EventFlags};
use sluice_base::{Batch, Nanos};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::device::{EVENT_IDX, RINGS, features};
use super::incoming::{Incoming, Refused};
use super::log::Logging;
use super::outgoing::{Outgoing, Placed};
use super::ring::{Fault, Ring};
use super::session::{Answer, Ask, Change, Driver, Role, Session, Setup};
use crate::bell::{self, Bell};
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::pool::Pool;
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Rest, Wanted};

/// The guest's receive queue and its transmit queue, as vhost-user numbers them.
const RECEIVE: u8 = 0;
const TRANSMIT: u8 = 1;

/// How soon to look for buffers again while nobody sleeps.
const LOOK_AGAIN: Nanos = Nanos::from_micros(1);

/// How a port for a virtual machine is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserConfig {
    /// The socket.
    pub socket: PathBuf,
    /// Who listens there.
    pub role: Role,
    /// The largest layer-3 packet.
    pub mtu: u16,
    /// Whether chains of the guest's transmit queue are used in the order in which it made them
    /// available.
    pub in_order: bool,
    /// Whether the guest may leave checksums and segmentation to the port, and the port to it.
    pub offload: bool,
}

/// What belongs to a ring beside itself.
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
    /// Tells of kicks and of changes.
    epoll: OwnedFd,
    asks: Option<Receiver<Ask>>,
    session: Session,
    incoming: Option<Incoming>,
    outgoing: Option<Outgoing>,
    wires: [Wires; RINGS],
    /// The transmit queue waits for its handles before it stops; where its base is awaited.
    stopping: Option<SyncSender<Answer>>,
    /// Why a ring stands still until it is set up anew.
    faults: [Option<Fault>; RINGS],
    refused: Refused,
    /// The last read found nothing.
    drained: bool,
    /// The last frame found no buffers.
    full: bool,
    /// A kick tells of buffers.
    armed: bool,
    lost: Losses,
    finisher: Finisher,
    open: bool,
}

impl VhostUserPort {
    /// Opens the port; the front end may come later, and go, and come again.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &VhostUserConfig) -> Result<Self, OpenError> {
        let name = config.socket.display().to_string();
        let failed = |what| OpenError::device(&name, what);
        let bell = Bell::new().map_err(failed("make a bell for it"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|errno| failed("make an epoll for it")(errno.into()))?;
        watch(&epoll, bell.fd()).map_err(failed("watch its bell"))?;
        // One at a time: the session waits for each answer.
        let (asks, receiver) = sync_channel(1);
        let driver = Driver::new(asks, bell);
        let offered = features(config.in_order, config.offload);
        let session = Session::start(&config.socket, config.role, offered, driver)
            .map_err(failed("listen at its socket"))?;
        Ok(Self {
            config: config.clone(),
            epoll,
            asks: Some(receiver),
            session,
            incoming: None,
            outgoing: None,
            wires: Default::default(),
            stopping: None,
            faults: [None; RINGS],
            refused: Refused::default(),
            drained: false,
            full: false,
            armed: false,
            lost: Losses::default(),
            finisher: Finisher::new(),
            open: true,
        })
    }

    /// Does one change. `None`: the answer comes later.
    fn change(&mut self, change: Change) -> Option<Answer> {
        match change {
            Change::Start(ring, setup) => return Some(self.start(ring, *setup)),
            Change::Stop(RECEIVE) => return Some(Ok(self.stop_outgoing())),
            Change::Stop(_) => return self.stop_incoming().map(Ok),
            Change::Enable(ring, enabled) => self.wires[usize::from(ring)].enabled = enabled,
            Change::Call(ring, call) => {
                let wires = &mut self.wires[usize::from(ring)];
                wires.call = call;
                // What was used before it came was told to nobody.
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
        // Its handles would come back to this one.
        if number == TRANSMIT && self.incoming.is_some() {
            return Err(format!("ring {number} has not stopped yet"));
        }
        if let Some(kick) = &setup.kick {
            watch(&self.epoll, kick).map_err(|error| format!("ring {number}: {error}"))?;
        }
        let at = usize::from(number);
        self.wires[at] = Wires { kick: setup.kick, call: setup.call, enabled: setup.enabled };
        self.faults[at] = None;
        if number == TRANSMIT {
            let in_order = self.config.in_order;
            let ring = Incoming::new(ring, setup.memory, 0, in_order, setup.features);
            self.incoming = Some(ring);
        } else {
            self.outgoing = Some(Outgoing::new(ring, setup.memory, setup.features));
        }
        self.log_to(number, setup.logging);
        Ok(0)
    }

    /// Where a ring is to mark what it writes from now on.
    fn log_to(&mut self, number: u8, logging: Option<Logging>) {
        if number == RECEIVE {
            self.outgoing.as_mut().into_iter().for_each(|ring| ring.log_to(logging.clone()));
        } else {
            self.incoming.as_mut().into_iter().for_each(|ring| ring.log_to(logging.clone()));
        }
    }

    fn stop_outgoing(&mut self) -> u16 {
        self.full = false;
        let Some(mut ring) = self.outgoing.take() else { return 0 };
        if ring.publish() {
            interrupt(&self.wires[usize::from(RECEIVE)]);
        }
        self.unwire(RECEIVE);
        ring.base()
    }

    /// `None` while handles are out.
    fn stop_incoming(&mut self) -> Option<u16> {
        if self.incoming.as_ref().is_some_and(|ring| ring.out() > 0) {
            return None;
        }
        let Some(mut ring) = self.incoming.take() else { return Some(0) };
        if ring.publish() {
            interrupt(&self.wires[usize::from(TRANSMIT)]);
        }
        self.refused.oversize += ring.refused.oversize;
        self.refused.offload += ring.refused.offload;
        self.unwire(TRANSMIT);
        Some(ring.base())
    }

    fn unwire(&mut self, ring: u8) {
        // Closing the last descriptor takes it out of the epoll, but the front end has another.
        if let Some(kick) = self.wires[usize::from(ring)].kick.take() {
            let _ = epoll::delete(&self.epoll, &kick);
        }
        self.wires[usize::from(ring)] = Wires::default();
        self.faults[usize::from(ring)] = None;
    }

    /// A ring breaks the rules: it stands still until it is set up anew.
    #[cold]
    fn fail(&mut self, ring: u8, fault: Fault) {
        // What breaks a rule in memory that reads as zeros is not the guest's doing.
        let fault = if self.is_gone() { Fault::Gone } else { fault };
        self.faults[usize::from(ring)] = Some(fault);
    }

    /// Whether the guest's memory went away.
    #[inline]
    fn is_gone(&self) -> bool {
        self.incoming.as_ref().is_some_and(Incoming::is_gone)
            || self.outgoing.as_ref().is_some_and(Outgoing::is_gone)
    }

    /// Stops all rings of a guest whose memory went away.
    #[inline]
    fn look_at_memory(&mut self) {
        if self.is_gone() && self.faults.contains(&None) {
            self.faults.fill(Some(Fault::Gone));
        }
    }

    /// Takes what the bells have told; what they told of is looked at afterwards.
    fn quiet(&self) {
        let mut events = Vec::with_capacity(RINGS + 1);
        let now = rustix::event::Timespec::default();
        // Nothing to be done about an error: then nothing was taken.
        let spare = rustix::buffer::spare_capacity(&mut events);
        let _ = epoll::wait(&self.epoll, spare, Some(&now));
    }

    fn is_usable(&self, ring: u8) -> bool {
        self.wires[usize::from(ring)].enabled && self.faults[usize::from(ring)].is_none()
    }
}

/// Tells of every edge of a descriptor.
fn watch(epoll: &OwnedFd, fd: impl AsFd) -> io::Result<()> {
    let flags = EventFlags::IN | EventFlags::ET;
    Ok(epoll::add(epoll, fd, EventData::new_u64(0), flags)?)
}

fn interrupt(wires: &Wires) {
    if let Some(call) = &wires.call {
        bell::ring(call.as_fd());
    }
}

impl VhostUserPort {
    /// Offers an unfinished frame: as it is, if the guest finishes it.
    #[cold]
    fn offer_unfinished(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        let is_untouched = frame.first == 0 && frame.header.is_empty() && frame.strip == 0;
        let usable = is_untouched && self.is_usable(RECEIVE);
        if let Some(ring) = self.outgoing.as_mut().filter(|_| usable)
            && let Some(left) = frame.buf.and_then(FrameBuf::offload)
            && ring.takes(left)
        {
            match ring.write_unfinished(frame, left) {
                // Its segments may fit.
                Ok(Placed::TooLarge) if left.is_super() => {}
                placed => return self.settle(frame, placed),
            }
        }
        finish(self, |own| &mut own.finisher, frame, Self::offer)
    }

    /// What became of a frame, as the switch wants to know it.
    #[inline]
    fn settle(&mut self, frame: &Egress<'_, FrameBuf>, placed: Result<Placed, Fault>) -> Taken {
        match placed {
            Ok(Placed::Written) => {
                self.full = false;
                Taken::All
            }
            Ok(Placed::NoRoom) => {
                (self.full, self.armed) = (true, false);
                Taken::No
            }
            Ok(Placed::TooLarge) => {
                self.lost.count(libc::EMSGSIZE, frame_size(frame));
                Taken::All
            }
            Err(fault) => {
                self.fail(RECEIVE, fault);
                self.lost.count(libc::EFAULT, frame_size(frame));
                Taken::All
            }
        }
    }
}

impl Sink<FrameBuf> for VhostUserPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if is_unfinished(frame) {
            return self.offer_unfinished(frame);
        }
        let usable = self.is_usable(RECEIVE);
        let Some(ring) = self.outgoing.as_mut().filter(|_| usable) else {
            if !self.open {
                return Taken::No;
            }
            // As on a wire that is not plugged in. Who comes later has not asked for it.
            self.lost.count(libc::ENETDOWN, frame_size(frame));
            return Taken::All;
        };
        let placed = ring.write(frame);
        self.settle(frame, placed)
    }
}

impl Port for VhostUserPort {
    fn kind(&self) -> &'static str {
        "vhost-user"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        vec![PollFd { fd: self.epoll.as_fd(), read: true, write: false }]
    }

    fn attend(&mut self) -> Wanted {
        self.quiet();
        self.full = false;
        if let Some(reply) = self.stopping.take() {
            let Some(base) = self.stop_incoming() else {
                self.stopping = Some(reply);
                return Wanted::Handles;
            };
            // Whoever asked may have gone away.
            let _ = reply.send(Ok(base));
        }
        while let Some((change, reply)) = self.asks.as_ref().and_then(|asks| asks.try_recv().ok()) {
            match self.change(change) {
                Some(answer) => _ = reply.send(answer),
                None => {
                    self.stopping = Some(reply);
                    return Wanted::Handles;
                }
            }
        }
        Wanted::Nothing
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        self.look_at_memory();
        let usable = self.is_usable(TRANSMIT) && self.stopping.is_none();
        let Some(ring) = self.incoming.as_mut().filter(|_| usable) else {
            return Ok(Read { frames: 0, more: false });
        };
        let before = batch.len();
        let read = ring.read(window, limit, pool, batch);
        self.drained = batch.len() == before && ring.is_drained();
        if ring.publish() {
            interrupt(&self.wires[usize::from(TRANSMIT)]);
        }
        match read {
            Ok(read) => Ok(read),
            Err(fault) => {
                self.fail(TRANSMIT, fault);
                Ok(Read { frames: batch.len() - before, more: false })
            }
        }
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn rest(&mut self) -> Rest {
        // Another port may have touched it since.
        self.look_at_memory();
        let mut more = false;
        if std::mem::take(&mut self.drained) && self.is_usable(TRANSMIT) {
            match self.incoming.as_mut().map_or(Ok(false), Incoming::arm) {
                Ok(came) => more |= came,
                Err(fault) => self.fail(TRANSMIT, fault),
            }
        }
        if self.full && self.is_usable(RECEIVE) {
            match self.outgoing.as_mut().map_or(Ok(false), Outgoing::arm) {
                Ok(came) => {
                    more |= came;
                    self.armed = !came;
                }
                // What waits for it must be offered once more, to be counted.
                Err(fault) => {
                    self.fail(RECEIVE, fault);
                    more = true;
                }
            }
        }
        if more { Rest::More } else { Rest::Armed }
    }

    fn give_back(&mut self, bufs: &mut Batch<FrameBuf>, pool: &mut Pool) {
        for buf in bufs.drain() {
            match (buf.guest_number(), &mut self.incoming) {
                (Some(number), Some(ring)) => ring.give_back(number),
                (Some(_), None) => unreachable!("a ring stops when its handles are back"),
                (None, _) => pool.give_back(buf),
            }
        }
        if self.incoming.as_mut().is_some_and(Incoming::publish) {
            interrupt(&self.wires[usize::from(TRANSMIT)]);
        }
    }

    fn spill(&mut self, buf: FrameBuf, pool: &mut Pool) -> Result<FrameBuf, FrameBuf> {
        let (Some(number), Some(ring)) = (buf.guest_number(), &mut self.incoming) else {
            return Ok(buf);
        };
        let Some(copy) = pool.copy_of(&buf) else { return Err(buf) };
        ring.give_back(number);
        Ok(copy)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.outgoing.as_mut().is_some_and(Outgoing::publish) {
            interrupt(&self.wires[usize::from(RECEIVE)]);
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        self.full && self.armed
    }

    fn retry_after(&self) -> Option<Nanos> {
        (self.full && !self.armed).then_some(LOOK_AGAIN)
    }

    fn pending(&self) -> Amount {
        Amount::default()
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn kernel_counters(&self) -> io::Result<Counters> {
        let now = self.incoming.as_ref().map(|ring| ring.refused).unwrap_or_default();
        Ok(Counters::from([
            ("guest_oversize", self.refused.oversize + now.oversize),
            ("guest_offload", self.refused.offload + now.offload),
        ]))
    }

    fn is_up(&self) -> Option<bool> {
        let runs = self.incoming.is_some() && self.outgoing.is_some();
        Some(runs && self.is_usable(TRANSMIT) && self.is_usable(RECEIVE))
    }

    fn problem(&self) -> Option<String> {
        let fault = self.faults.iter().flatten().next();
        let stopped = fault.map(|fault| format!("the guest's ring is stopped: {fault}"));
        stopped.or_else(|| self.session.problem())
    }

    fn ring(&self) -> crate::port::Ring {
        let size = self.incoming.as_ref().map_or(0, Incoming::size);
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
        self.stop_outgoing();
        // With handles out, what they point at stays.
        if self.stop_incoming().is_none() {
            self.wires[usize::from(TRANSMIT)].enabled = false;
        }
        Ok(())
    }
}

impl Drop for VhostUserPort {
    fn drop(&mut self) {
        let _always_ok = self.close();
    }
}
