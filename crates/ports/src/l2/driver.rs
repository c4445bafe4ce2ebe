//! The l2 port.

use std::io;

use sluice_base::Batch;
use sluice_switch::{Egress, Sink, Taken, Window};

use crate::error::OpenError;
use crate::pool::{Pool, PoolBuf};
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Ring};

/// What the kernel's own stack sees of the frames that this port receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelShare {
    /// Everything.
    All,
    /// Everything but VXLAN to this address, which it would answer with ICMP: an underlay, whose
    /// address the kernel keeps.
    NoVxlan(std::net::Ipv4Addr),
    /// Nothing: a cable of a physical switch.
    Nothing,
}

/// How a device is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct L2Config {
    /// The device, in the namespace of the caller.
    pub device: String,
    /// The layer-3 MTU; `None`: the device's.
    pub mtu: Option<u16>,
    /// The headroom that the ring must hold, in bytes on the wire.
    pub ring_bytes: u64,
    /// The smallest frame that the headroom is filled with, in bytes on the wire.
    pub wire_bytes_min: u32,
    /// The most memory that the ring may take.
    pub ring_memory_bytes_max: u64,
    /// What the kernel sees.
    pub kernel: KernelShare,
}

impl L2Config {
    /// The headroom by default: 1 Gbit/s for 50 ms.
    pub const RING_BYTES: u64 = 6_250_000;
    /// The most memory of a ring by default.
    pub const RING_MEMORY_BYTES_MAX: u64 = 64 << 20;

    /// A device with default settings.
    #[must_use]
    pub fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            mtu: None,
            ring_bytes: Self::RING_BYTES,
            wire_bytes_min: 64 + super::WIRE_OVERHEAD,
            ring_memory_bytes_max: Self::RING_MEMORY_BYTES_MAX,
            kernel: KernelShare::All,
        }
    }
}

impl L2Port {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &L2Config) -> Result<Self, OpenError> {
        Ok(Self { lost: Losses::default(), mtu: config.mtu.unwrap_or(1500) })
    }

    /// The plan that the ring was made by.
    #[must_use]
    pub fn ring_plan(&self) -> super::RingPlan {
        super::RingPlan { frames: 0, memory_bytes: 0, covered_bytes: 0 }
    }
}

/// The port.
#[derive(Debug)]
pub struct L2Port {
    lost: Losses,
    mtu: u16,
}

impl Sink<PoolBuf> for L2Port {
    fn offer(&mut self, _frame: &Egress<'_, PoolBuf>) -> Taken {
        Taken::No
    }
}

impl Port for L2Port {
    fn kind(&self) -> &'static str {
        "l2"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        Vec::new()
    }

    fn read(
        &mut self,
        _window: Window,
        _limit: usize,
        _pool: &mut Pool,
        _batch: &mut Batch<PoolBuf>,
    ) -> io::Result<Read> {
        Ok(Read { frames: 0, more: false })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn pending(&self) -> Amount {
        Amount::default()
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn kernel_counters(&self) -> io::Result<Counters> {
        Ok(Counters::new())
    }

    fn ring(&self) -> Ring {
        Ring { capacity_frames: 0, waiting_frames_max: None }
    }

    fn lossless(&self) -> Lossless {
        Lossless::No { needs: "to be written" }
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
}
