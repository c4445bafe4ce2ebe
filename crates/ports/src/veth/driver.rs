//! Port of a veth pair.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::LinkFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sluice_base::{Batch, Nanos, Priority};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::counters::{ContainerCounters, KernelCounters, of_xsk};
use super::kept::{self, Known, TakenUp};
use super::pair::{self, Place, SwitchEnd};
use super::pending::{InVain, Pending};
use super::receivers;
use super::waking::{self, Words as _};
use crate::device::DeviceCounters;
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, is_unfinished};
use crate::handed::PortHandover;
use crate::l2::outgoing::Outgoing;
use crate::net_header::of_buffers;
use crate::netlink::{Changes, GROUP_LINK, Netlink};
use crate::netns;
use crate::pool::Pool;
use crate::port::{
    Amount, Handover, Losses, Lossless, Outside, PollFd, Port, Read, ReceivingSockets, Ring,
};
use crate::rcvbuf::{Admit, Receivers, SocketHolds, SocketsShot};
use crate::tap::TapRoute;

/// Configuration of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VethConfig {
    /// Name of the container's end, which must not be there yet.
    pub device: String,
    /// Network namespace of the container, as a path such as `/run/netns/c1`; `None` for the
    /// caller's.
    pub netns: Option<PathBuf>,
    /// Layer-3 MTU of both ends.
    pub mtu: u16,
    /// MAC to set, the container's; `None` leaves the device its own.
    pub mac: Option<sluice_base::Mac>,
    /// IP addresses to add, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Routes to add.
    pub routes: Vec<TapRoute>,
    /// True if the port sets the device up; otherwise the container's owner does.
    pub up: bool,
}

impl VethConfig {
    /// A device with default settings.
    #[must_use]
    pub fn new(device: &str, mtu: u16) -> Self {
        Self {
            device: device.to_owned(),
            netns: None,
            mtu,
            mac: None,
            addresses: Vec::new(),
            routes: Vec::new(),
            up: true,
        }
    }

    /// Size of the largest frame: Ethernet and two tags.
    pub(super) fn frame_size_max(&self) -> usize {
        usize::from(self.mtu) + 14 + 8
    }
}

/// Maximum of frames of one `read`: more would let one busy container keep the others waiting.
const READ_FRAMES_MAX: usize = 64;
/// Polls in a row for a frame on its way, which is a few microseconds long.
const POLLS_MAX: usize = 4;

/// A veth pair.
#[derive(Debug)]
pub struct VethPort {
    open: Option<Open>,
    out: Outgoing,
    finisher: Finisher,
    receivers: Receivers,
    mtu: u16,
    chunks: u32,
    waiting_max: u32,
    /// Frames larger than a slot of the pool.
    truncated: u64,
}

/// Resources of an open pair.
#[derive(Debug)]
struct Open {
    end: SwitchEnd,
    pending: Pending,
    /// Tells when to look for late frames again.
    timer: OwnedFd,
    kernel: Arc<KernelCounters>,
    /// Tells of the carrier, and that the pair is gone.
    links: Netlink,
    /// False while the container's card is down: the kernel drops what is sent to it, unseen.
    has_carrier: bool,
}

/// Result of a look for frames.
enum Pulled {
    Frames,
    /// None are there; a descriptor tells of the next one.
    Nothing,
}

impl Open {
    /// Runs the NAPI while frames are on their way and none has come. Nothing waits at the AF_XDP
    /// socket.
    fn pull(&mut self) -> io::Result<Pulled> {
        let SwitchEnd { xsk, poller, hint, .. } = &mut self.end;
        for _ in 0..POLLS_MAX {
            if hint.sent() != self.pending.received() {
                poller.poll();
                if xsk.has_frame() {
                    return Ok(Pulled::Frames);
                }
                continue;
            }
            hint.clear();
            if waking::arm(hint, self.pending.received()) {
                // The kernel may have run the NAPI itself, after a year.
                if xsk.has_frame() {
                    return Ok(Pulled::Frames);
                }
                xsk.error()?;
                if let Some(span) = self.pending.look_after() {
                    poller.poll();
                    if xsk.has_frame() {
                        return Ok(Pulled::Frames);
                    }
                    set_timer(&self.timer, span)?;
                }
                return Ok(Pulled::Nothing);
            }
        }
        xsk.error()?;
        if let InVain::Wait(wait) = self.pending.in_vain(hint.sent()) {
            set_timer(&self.timer, wait)?;
            hint.clear();
            hint.ask();
        } else {
            // The next call arms for what comes from now on.
            set_timer(&self.timer, Duration::from_nanos(1))?;
        }
        Ok(Pulled::Nothing)
    }

    /// Shows the kernel which frames were taken, and a later process too.
    fn publish(&mut self) {
        self.end.xsk.publish();
        self.end.hint.keep_counts(self.pending.received(), self.pending.absent());
    }

    /// Reads what became of the devices, so that the next change makes an edge.
    fn follow_links(&mut self) {
        loop {
            match self.links.changes() {
                // The XDP socket says that the device is gone.
                Ok(Changes::Some(messages)) => {
                    let carrier = carrier(&messages, self.end.pair.index);
                    self.has_carrier = carrier.unwrap_or(self.has_carrier);
                }
                // Rare: only then the kernel is asked, who may take its time.
                Ok(Changes::Overrun) => {
                    self.has_carrier = self.kernel.carrier().ok().flatten().unwrap_or(true);
                }
                Ok(Changes::None) | Err(_) => return,
            }
        }
    }
}

/// Returns what the last message about a device says of its carrier.
fn carrier(messages: &[RouteNetlinkMessage], index: u32) -> Option<bool> {
    let of = |message: &RouteNetlinkMessage| match message {
        RouteNetlinkMessage::NewLink(link) if link.header.index == index => {
            Some(link.header.flags.contains(LinkFlags::LowerUp))
        }
        _ => None,
    };
    messages.iter().rev().find_map(of)
}

/// Makes the timer readable after this time, once.
fn set_timer(timer: &OwnedFd, after: Duration) -> io::Result<()> {
    let value = Timespec {
        tv_sec: i64::try_from(after.as_secs()).expect("a short time"),
        tv_nsec: after.subsec_nanos().into(),
    };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(())
}

impl VethPort {
    /// Makes the pair, and tests that it holds its senders.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy; [`OpenError::NotHeld`] if this kernel does
    /// not hold the senders of such a pair.
    pub fn open(config: &VethConfig) -> Result<Self, OpenError> {
        let (place, container) = Place::open(config.netns.as_deref())?;
        let work = || pair::open(config, config.frame_size_max(), container.as_fd());
        let end = netns::private(work)?;
        end.hint.keep_namespace(place.id);
        let failed = OpenError::device(&config.device, "ask for the program that wakes the switch");
        let hinted = end.hint.device().map_err(failed)?;
        let index = netns::within(config.netns.as_deref(), || pair::settle(config, hinted))?;
        Self::of(config, TakenUp { end, place, index, arrivals: None })
    }

    /// Takes over the pair of an earlier process, or makes one, and returns the port with copies of
    /// its descriptors. While another process has these the card stays, whatever becomes of the
    /// port: [`remove`](super::remove) deletes it.
    ///
    /// # Errors
    /// As for [`Self::open`]; also if the pair can be neither taken over nor replaced.
    pub fn open_kept(
        config: &VethConfig,
        known: Option<Known>,
    ) -> Result<(Self, PortHandover), OpenError> {
        let taken_up = known.map(|known| kept::take_up(config, known)).transpose()?.flatten();
        let mut port = match taken_up {
            Some(taken_up) => Self::of(config, taken_up)?,
            None => Self::open(config)?,
        };
        let failed = OpenError::device(&config.device, "copy its descriptors");
        let copies = port.hand_over().map_err(failed)?.unwrap_or_default();
        port.open.iter_mut().for_each(|open| open.end.pair.is_kept = true);
        Ok((port, copies))
    }

    /// Opens what a process has of its own.
    fn of(config: &VethConfig, pair: TakenUp) -> Result<Self, OpenError> {
        let failed = |what| OpenError::device(&config.device, what);
        let TakenUp { end, place, index, arrivals } = pair;
        let receivers = receivers::open(&place, index, arrivals);
        let path = Path::new(netns::OWN);
        let (out, switch_end, links) = netns::inside(end.namespace.as_fd(), path, || {
            let own = end.pair.index;
            let out = Outgoing::open(&config.device, own, end.mac, config.mtu)?;
            let links = Netlink::subscribe(GROUP_LINK).map_err(failed("follow it"))?;
            let counters = DeviceCounters::new(own).map_err(failed("read its counters"))?;
            Ok((out, counters, links))
        })?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| failed("make a timer for it")(errno.into()))?;
        let chunks = end.xsk.chunks();
        let (received, absent) = end.hint.counts();
        let pending = Pending::new(received, absent);
        let container = ContainerCounters::new(place, index);
        let kernel = KernelCounters { container, switch_end };
        let has_carrier = kernel.carrier().map_err(failed("ask for its carrier"))?.unwrap_or(true);
        let kernel = Arc::new(kernel);
        let open = Open { end, pending, timer, kernel, links, has_carrier };
        Ok(Self {
            open: Some(open),
            out,
            finisher: Finisher::new(),
            receivers,
            mtu: config.mtu,
            chunks,
            waiting_max: 0,
            truncated: 0,
        })
    }

    /// Tells the receivers what was sent.
    #[inline]
    fn tell(&mut self) {
        let total = self.out.sent();
        if let Some(arrivals) = self.receivers.arrivals_mut() {
            arrivals.note_sent(total);
        }
    }
}

impl Sink<FrameBuf> for VethPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if self.open.as_ref().is_some_and(|open| !open.has_carrier) {
            return self.out.lose(frame, libc::ENETDOWN);
        }
        if is_unfinished(frame) {
            return finish(self, |own| &mut own.finisher, frame, Self::offer);
        }
        self.tell();
        match self.receivers.admit(&of_buffers(0), frame) {
            Admit::Pass => self.out.offer(frame, None),
            Admit::Waits | Admit::Stuck => Taken::All,
            Admit::Full => Taken::Later,
        }
    }

    fn hold_port(&mut self) {
        self.receivers.hold_port();
    }
}

impl Port for VethPort {
    fn kind(&self) -> &'static str {
        "veth"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let own = self.open.iter().flat_map(|open| {
            [open.end.hint.fd(), open.timer.as_fd(), open.links.fd(), open.end.xsk.fd()]
        });
        let own = own.chain(self.receivers.fds());
        let own = own.map(|fd| PollFd { fd, read: true, write: false });
        own.chain(self.out.poll_fd()).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let mut read = Read { frames: 0, more: false, others: 0 };
        let Some(open) = &mut self.open else { return Ok(read) };
        let limit = limit.min(READ_FRAMES_MAX).min(window.frames as usize).min(batch.room());
        let (mut tries, mut bytes) = (0, 0);
        read.more = true;
        while tries < limit && bytes < window.bytes.0 {
            if !open.end.xsk.has_frame() {
                open.publish();
                if matches!(open.pull()?, Pulled::Nothing) {
                    open.follow_links();
                    read.more = false;
                    return Ok(read);
                }
                self.waiting_max = self.waiting_max.max(open.end.xsk.waiting());
            }
            let Some(mut slot) = pool.take() else { break };
            tries += 1;
            let taken = open.end.xsk.take_front(slot.bytes_mut());
            open.pending.came();
            let Some(size) = taken else {
                self.truncated += 1;
                read.others += 1;
                pool.cancel(slot);
                continue;
            };
            batch.push(slot.freeze(0, size)).expect("room was counted before");
            read.frames += 1;
            bytes += size as u64;
        }
        open.publish();
        Ok(read)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn wants_write(&self) -> bool {
        self.out.wants_write()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.out.retry_after().or(self.receivers.retry_after())
    }

    fn pending(&self) -> Amount {
        self.out.pending().and(self.receivers.waiting())
    }

    fn lost(&self) -> &Losses {
        self.out.lost()
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.out.take_refused()
    }

    fn outside(&self) -> Outside {
        let Some(open) = &self.open else { return Outside::default() };
        let mut own = of_xsk(&open.end.xsk);
        own.insert("ring.truncated", self.truncated);
        Outside::of_kernel(own, Arc::clone(&open.kernel) as _)
    }

    fn receiving_sockets(&mut self) -> Option<&mut dyn ReceivingSockets> {
        Some(self)
    }

    fn handover(&mut self) -> Option<&mut dyn Handover> {
        Some(self)
    }

    fn ring(&self) -> Ring {
        Ring {
            capacity_frames: self.chunks.into(),
            waiting_frames_max: Some(self.waiting_max.into()),
        }
    }

    fn lossless(&self) -> Lossless {
        Lossless::Yes
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        for size in self.receivers.give_up() {
            self.out.give_up(size);
        }
        self.out.close();
        self.open.take().map_or(Ok(()), |mut open| open.end.pair.close())
    }
}

impl ReceivingSockets for VethPort {
    fn hold(&mut self, holds: SocketHolds) {
        self.receivers.hold(holds);
    }

    #[inline]
    fn resume(&mut self, now: Nanos) -> bool {
        if self.open.as_ref().is_none_or(|open| !open.has_carrier) {
            return false;
        }
        self.tell();
        let out = &mut self.out;
        let resumed = self.receivers.resume(now, |waiting| {
            (out.offer(&waiting.frame(), None) == Taken::All).then(|| out.sent())
        });
        if resumed {
            // An error comes again from the caller's own flush.
            let _reported_by_flush = self.out.flush();
        }
        if let Some(marker) = self.receivers.marker(now) {
            self.out.send_behind(&marker);
        }
        resumed
    }

    fn shot(&self) -> SocketsShot {
        self.receivers.shot()
    }

    fn take_stuck(&mut self) -> Option<(Priority, Amount)> {
        self.receivers.take_stuck()
    }
}

impl Handover for VethPort {
    fn hand_over(&mut self) -> io::Result<Option<PortHandover>> {
        let Some(open) = &self.open else { return Ok(None) };
        let mut handed = kept::copies(&open.end)?;
        if let Some(arrivals) = self.receivers.arrivals() {
            arrivals.hand_over(&mut handed)?;
        }
        Ok(Some(handed))
    }
}
