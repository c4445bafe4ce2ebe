//! The tap port.

use std::io;

use sluice_base::Batch;
use sluice_switch::{Egress, Sink, Taken, Window};

use crate::error::OpenError;
use crate::pool::{Pool, PoolBuf};
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Ring};

/// How a TAP is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// The device. A persistent one of that name is attached to, otherwise it is created and goes
    /// away with the port.
    pub device: String,
    /// The network namespace that it lies in, as a path such as `/run/netns/c1`; `None`: the
    /// caller's.
    pub netns: Option<std::path::PathBuf>,
    /// The layer-3 MTU that the device gets.
    pub mtu: u16,
    /// The MAC that the device gets: the container's. `None`: it keeps its own.
    pub mac: Option<sluice_base::Mac>,
    /// The ring in frames (`txqueuelen`).
    pub ring_frames: u32,
    /// Whether the device is set up. Otherwise whoever owns the container does it.
    pub up: bool,
}

impl TapConfig {
    /// The ring in frames by default.
    pub const RING_FRAMES: u32 = 20_000;

    /// A device with default settings.
    #[must_use]
    pub fn new(device: &str, mtu: u16) -> Self {
        Self {
            device: device.to_owned(),
            netns: None,
            mtu,
            mac: None,
            ring_frames: Self::RING_FRAMES,
            up: true,
        }
    }
}

impl TapPort {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &TapConfig) -> Result<Self, OpenError> {
        Ok(Self { lost: Losses::default(), mtu: config.mtu })
    }
}

/// The port.
#[derive(Debug)]
pub struct TapPort {
    lost: Losses,
    mtu: u16,
}

impl Sink<PoolBuf> for TapPort {
    fn offer(&mut self, _frame: &Egress<'_, PoolBuf>) -> Taken {
        Taken::No
    }
}

impl Port for TapPort {
    fn kind(&self) -> &'static str {
        "tap"
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
