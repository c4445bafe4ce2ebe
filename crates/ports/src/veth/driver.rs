//! Port of a veth pair.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sluice_base::{Batch, Nanos, Priority};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::counters::{ContainerCounters, read_xsk};
use super::pair::{self, Place, SwitchEnd};
use super::pending::{InVain, Pending};
use super::waking::{self, Words as _};
use crate::device::DeviceCounters;
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::l2::outgoing::Outgoing;
use crate::netlink::{Changes, GROUP_LINK, Netlink};
use crate::netns;
use crate::pool::Pool;
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, PortRequest, Read, Ring};
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
    fn frame_size_max(&self) -> usize {
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
    switch_counters: DeviceCounters,
    container: ContainerCounters,
    /// Tells that the pair is gone, which no other descriptor does.
    links: Netlink,
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
        let failed = |what| OpenError::device(&config.device, what);
        let (place, container) = Place::open(config.netns.as_deref())?;
        let (mut end, out, switch_counters, links) = netns::private(|| {
            let end = pair::open(config, config.frame_size_max(), container.as_fd())?;
            let index = end.pair.index;
            let out = Outgoing::open(&config.device, index, end.mac, config.mtu)?;
            let counters = DeviceCounters::new(index).map_err(failed("read its counters"))?;
            let links = Netlink::subscribe(GROUP_LINK).map_err(failed("follow it"))?;
            Ok((end, out, counters, links))
        })?;
        let hint = &mut end.hint;
        let container = netns::within(config.netns.as_deref(), || {
            let index = pair::settle(config, hint)?;
            ContainerCounters::new(place, index).map_err(failed("read its counters"))
        })?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| failed("make a timer for it")(errno.into()))?;
        let chunks = end.xsk.chunks();
        let pending = Pending::new(end.received);
        let open = Open { end, pending, timer, switch_counters, container, links };
        Ok(Self { open: Some(open), out, mtu: config.mtu, chunks, waiting_max: 0, truncated: 0 })
    }
}

impl Sink<FrameBuf> for VethPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        self.out.offer(frame, None)
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
        let mut read = Read { frames: 0, more: false, aside: 0 };
        let Some(open) = &mut self.open else { return Ok(read) };
        let limit = limit.min(READ_FRAMES_MAX).min(window.frames as usize).min(batch.room());
        let (mut tries, mut bytes) = (0, 0);
        read.more = true;
        while tries < limit && bytes < window.bytes.0 {
            if !open.end.xsk.has_frame() {
                open.end.xsk.publish();
                match open.pull() {
                    Ok(Pulled::Frames) => {}
                    Ok(Pulled::Nothing) => {
                        read.more = false;
                        return Ok(read);
                    }
                    Err(error) => return Err(error),
                }
                self.waiting_max = self.waiting_max.max(open.end.xsk.waiting());
            }
            let Some(mut slot) = pool.take() else { break };
            tries += 1;
            let taken = open.end.xsk.take_front(slot.bytes_mut());
            open.pending.came();
            let Some(size) = taken else {
                self.truncated += 1;
                pool.cancel(slot);
                continue;
            };
            batch.push(slot.freeze(0, size)).expect("room was counted before");
            read.frames += 1;
            bytes += size as u64;
        }
        open.end.xsk.publish();
        Ok(read)
    }

    fn handle_events(&mut self) -> PortRequest {
        let Some(open) = &mut self.open else { return PortRequest::Nothing };
        // `read` asks the socket; what counts is the next edge.
        while matches!(open.links.changes(), Ok(Changes::Some(_) | Changes::Overrun)) {}
        PortRequest::Nothing
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn wants_write(&self) -> bool {
        self.out.wants_write()
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.out.retry_after()
    }

    fn pending(&self) -> Amount {
        self.out.pending()
    }

    fn lost(&self) -> &Losses {
        self.out.lost()
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.out.take_refused()
    }

    fn kernel_counters(&self) -> io::Result<Counters> {
        let mut rows = Counters::new();
        let Some(open) = &self.open else { return Ok(rows) };
        open.container.read(&mut rows)?;
        read_xsk(&open.end.xsk, &mut rows)?;
        rows.insert("hint.missing", open.pending.missing());
        rows.insert("ring.truncated", self.truncated);
        Ok(rows)
    }

    fn is_up(&self) -> Option<bool> {
        let link = self.open.as_ref()?.switch_counters.link().ok()?;
        Some(link.is_some_and(|link| link.carrier))
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
        self.out.close();
        self.open.take().map_or(Ok(()), |mut open| open.end.pair.delete())
    }
}
