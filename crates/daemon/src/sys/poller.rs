//! Sleeping until an event: epoll, edge-triggered.
//!
//! The kernel remembers an edge until it is collected. A frame that comes after a port said "no
//! more" and before the thread sleeps is such an edge, and [`Poller::wait`] returns at once; so is
//! a question from another thread. Nothing has to be armed and nothing can be missed, as long as a
//! flag is only cleared by the driver that found nothing.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use sluice_base::Nanos;

use crate::sys::clock::timespec;

const EVENTS_MAX: usize = 64;
/// The longest single sleep: an hour. An idle host wakes no more often.
const SLEEP_MAX: Nanos = Nanos::from_millis(3_600_000);

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The port of this index may have received frames.
    Readable(usize),
    /// The port of this index may have room again.
    Writable(usize),
    /// A thread called [`Waker::wake`].
    Woken,
}

/// Wakes the worker from another thread.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    pub(crate) fn wake(&self) {
        // A counter that is full is readable already.
        _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }
}

/// Descriptors of all ports and of the waker.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    waker: Waker,
}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &waker, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, waker: Waker(Arc::new(waker)) })
    }

    pub(crate) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches a descriptor of port `index`, and not yet for room: that costs a wake-up for every
    /// frame that leaves, so it is watched ([`Self::set`]) only while frames wait.
    pub(crate) fn add(&self, index: usize, fd: BorrowedFd<'_>, read: bool) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, data(index), flags(read, false))?)
    }

    /// Changes the events of a descriptor. If the descriptor is ready now, an event is reported
    /// again.
    pub(crate) fn set(
        &self,
        index: usize,
        fd: BorrowedFd<'_>,
        read: bool,
        write: bool,
    ) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, data(index), flags(read, write))?)
    }

    /// Stops watching a descriptor. Its uncollected events are forgotten.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until an event or until `timeout` is over, and reports the events.
    pub(crate) fn wait(&self, timeout: Nanos, mut each: impl FnMut(Event)) -> io::Result<()> {
        let timeout = timespec(timeout.min(SLEEP_MAX));
        let mut room = [const { MaybeUninit::uninit() }; EVENTS_MAX];
        let events = match epoll::wait(&self.epoll, &mut room, Some(&timeout)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            let Some(index) = usize::try_from(event.data.u64()).ok().and_then(|n| n.checked_sub(1))
            else {
                each(Event::Woken);
                continue;
            };
            // A copy: the kernel's struct is packed.
            let flags = event.flags;
            let failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
            if failed || flags.contains(EventFlags::IN) {
                each(Event::Readable(index));
            }
            if failed || flags.contains(EventFlags::OUT) {
                each(Event::Writable(index));
            }
        }
        Ok(())
    }
}

fn data(index: usize) -> EventData {
    EventData::new_u64(index as u64 + 1)
}

fn flags(read: bool, write: bool) -> EventFlags {
    let mut flags = EventFlags::ET;
    flags.set(EventFlags::IN, read);
    flags.set(EventFlags::OUT, write);
    flags
}
