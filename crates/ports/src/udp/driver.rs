//! The udp port.

use std::io;

use sluice_base::Batch;
use sluice_switch::{Egress, Sink, Taken, Window};

use crate::error::OpenError;
use crate::pool::{Pool, PoolBuf};
use crate::port::{Amount, Counters, Losses, Lossless, PollFd, Port, Read, Ring};

/// The UDP port of VXLAN (RFC 7348 section 5).
pub const VXLAN_PORT: u16 = 4789;

/// How a UDP underlay is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// The address of this host's VTEP, which a device of the kernel has.
    pub local: std::net::Ipv4Addr,
    /// The UDP port that every VTEP listens on.
    pub port: u16,
    /// The MAC that received frames are addressed to: the switch's underlay MAC.
    pub mac: sluice_base::Mac,
    /// The layer-3 MTU of the underlay.
    pub mtu: u16,
    /// The receive buffer of the kernel in bytes.
    pub receive_buffer_bytes: usize,
    /// How many sockets send, each from a port of its own.
    pub senders: usize,
}

impl UdpConfig {
    /// The receive buffer by default.
    pub const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
    /// Sockets that send, by default.
    pub const SENDERS: usize = 8;

    /// An underlay with default settings.
    #[must_use]
    pub fn new(local: std::net::Ipv4Addr, mac: sluice_base::Mac, mtu: u16) -> Self {
        Self {
            local,
            port: VXLAN_PORT,
            mac,
            mtu,
            receive_buffer_bytes: Self::RECEIVE_BUFFER_BYTES,
            senders: Self::SENDERS,
        }
    }
}

impl UdpPort {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &UdpConfig) -> Result<Self, OpenError> {
        Ok(Self { lost: Losses::default(), mtu: config.mtu })
    }
}

/// The port.
#[derive(Debug)]
pub struct UdpPort {
    lost: Losses,
    mtu: u16,
}

impl Sink<PoolBuf> for UdpPort {
    fn offer(&mut self, _frame: &Egress<'_, PoolBuf>) -> Taken {
        Taken::No
    }
}

impl Port for UdpPort {
    fn kind(&self) -> &'static str {
        "udp"
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
