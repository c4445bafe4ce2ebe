//! Both sides of a memory cable.

use std::io;

use sluice_base::{Batch, Priority};
use sluice_switch::{Egress, Sink, Taken, Window};

use super::rings::Shared;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, gather, is_unfinished};
use crate::notifier::Notifier;
use crate::pool::Pool;
use crate::port::{Amount, Losses, Lossless, Outside, PollFd, Port, Read, Ring};

/// Configuration of a memory cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Frames that each direction holds.
    pub ring_frames: usize,
    /// Size of the largest layer-3 packet.
    pub mtu: u16,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { ring_frames: 256, mtu: 1500 }
    }
}

impl MemoryConfig {
    fn frame_size_max(&self) -> usize {
        usize::from(self.mtu) + crate::PoolConfig::FRAME_OVERHEAD
    }
}

/// One side of the cable: its ring to read, its ring to write, and the notification eventfds.
#[derive(Debug)]
struct Side {
    incoming: Shared,
    outgoing: Shared,
    mine: Notifier,
    peers: Notifier,
}

fn sides(config: &MemoryConfig) -> io::Result<(Side, Side)> {
    let ring = || Shared::new(config.ring_frames, config.frame_size_max());
    let (there, back) = (ring(), ring());
    let (left, right) = (Notifier::new()?, Notifier::new()?);
    let a = Side {
        incoming: back.clone(),
        outgoing: there.clone(),
        mine: left.clone(),
        peers: right.clone(),
    };
    let b = Side { incoming: there, outgoing: back, mine: right, peers: left };
    Ok((a, b))
}

/// Makes two ports, each other's peer.
///
/// # Errors
/// If the process has no more descriptors.
pub fn cable(config: &MemoryConfig) -> io::Result<(MemoryPort, MemoryPort)> {
    let (a, b) = sides(config)?;
    Ok((MemoryPort::new(a, config), MemoryPort::new(b, config)))
}

/// Makes one port; the caller, a test, is its peer.
///
/// # Errors
/// If the process has no more descriptors.
pub fn port(config: &MemoryConfig) -> io::Result<(MemoryPort, Probe)> {
    let (a, b) = sides(config)?;
    Ok((MemoryPort::new(a, config), Probe { side: b }))
}

/// A port in this process.
#[derive(Debug)]
pub struct MemoryPort {
    side: Side,
    mtu: u16,
    frame_size_max: usize,
    /// True if frames were put into an empty ring and the peer was not notified yet.
    kick: bool,
    full: bool,
    open: bool,
    lost: Losses,
    finisher: Finisher,
}

impl MemoryPort {
    fn new(side: Side, config: &MemoryConfig) -> Self {
        Self {
            side,
            mtu: config.mtu,
            frame_size_max: config.frame_size_max(),
            kick: false,
            full: false,
            open: true,
            lost: Losses::default(),
            finisher: Finisher::new(),
        }
    }
}

impl Sink<FrameBuf> for MemoryPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if is_unfinished(frame) {
            return finish(self, |own| &mut own.finisher, frame, Self::offer);
        }
        let size = frame_size(frame);
        if !self.open {
            return Taken::No;
        }
        if size > self.frame_size_max {
            self.lost.refuse(libc::EMSGSIZE, frame.priority, size);
            return Taken::All;
        }
        let mut ring = self.side.outgoing.lock();
        let was_empty = ring.is_empty();
        self.full = !ring.push(size, |into| gather(frame, 0, into));
        if self.full {
            return Taken::No;
        }
        self.kick |= was_empty;
        Taken::All
    }
}

impl Port for MemoryPort {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        // One eventfd signals both: new frames, or new room.
        vec![PollFd { fd: self.side.mine.fd(), read: true, write: false }]
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let mut ring = self.side.incoming.lock();
        let frames_max = limit.min(window.frames as usize).min(batch.room());
        let mut read = Amount::default();
        let mut starved = false;
        while read.frames < frames_max as u64 && read.bytes < window.bytes.0 {
            let Some(frame) = ring.front() else { break };
            let Some(mut slot) = pool.take() else { break };
            let size = frame.len();
            slot.bytes_mut()[..size].copy_from_slice(frame);
            batch.push(slot.freeze(0, size)).expect("room was counted before");
            starved |= ring.pop();
            read.add(size);
        }
        if starved {
            self.side.peers.notify();
        }
        let frames = usize::try_from(read.frames).expect("at most `limit`");
        Ok(Read { frames, more: self.open && !ring.is_empty(), others: 0 })
    }

    fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.kick) {
            self.side.peers.notify();
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        self.full
    }

    fn pending(&self) -> Amount {
        Amount::default()
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
    }

    fn outside(&self) -> Outside {
        Outside::default()
    }

    fn ring(&self) -> Ring {
        let ring = self.side.incoming.lock();
        Ring {
            capacity_frames: ring.limit() as u64,
            waiting_frames_max: Some(ring.waiting_max() as u64),
        }
    }

    fn lossless(&self) -> Lossless {
        Lossless::Yes
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.open = false;
        self.side.incoming.lock().close();
        Ok(())
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        let _always_ok = self.close();
    }
}

/// The other side of a port's cable, driven by a test.
#[derive(Debug)]
pub struct Probe {
    side: Side,
}

impl Probe {
    /// Sends a frame to the port; false if the ring is full.
    pub fn send(&self, frame: &[u8]) -> bool {
        let sent = self.side.outgoing.lock().push(frame.len(), |into| into.copy_from_slice(frame));
        self.side.peers.notify();
        sent
    }

    /// The next frame that the port sent.
    pub fn receive(&self) -> Option<Vec<u8>> {
        let mut ring = self.side.incoming.lock();
        let frame = ring.front()?.to_vec();
        if ring.pop() {
            self.side.peers.notify();
        }
        Some(frame)
    }

    /// Number of frames that a ring holds.
    #[must_use]
    pub fn ring_frames(&self) -> usize {
        self.side.outgoing.lock().limit()
    }
}
