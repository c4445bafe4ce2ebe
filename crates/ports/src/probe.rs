//! Questions about what this kernel can do for ports, which change nothing.

use std::io;
use std::net::UdpSocket;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::guard::Guard;
use crate::rcvbuf::{KernelRoom, RoomSource as _};
use crate::sys;

/// Features of this kernel's TAPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapFeatures {
    /// A container may leave checksums and segmentation to its TAP (`IFF_VNET_HDR`).
    pub offloads: bool,
    /// A full TAP holds its senders (`IFF_BACKPRESSURE`, Linux 7.3).
    pub back_pressure: bool,
}

/// Returns the features of TAPs.
///
/// # Errors
/// The kernel's error: there is no `/dev/net/tun`, or this process may not open it.
pub fn tap_features() -> io::Result<TapFeatures> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let tun = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
    let bits = sys::tun_features(&tun)?;
    let has = |bit: libc::c_int| bits & bit.cast_unsigned() != 0;
    let (offloads, back_pressure) = (has(libc::IFF_VNET_HDR), has(sys::IFF_BACKPRESSURE));
    Ok(TapFeatures { offloads, back_pressure })
}

/// Makes an AF_XDP socket.
///
/// # Errors
/// The kernel's error: it has none, or this process may not make one.
pub fn af_xdp() -> io::Result<()> {
    rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

/// Loads the programs of an underlay's guard, and attaches them nowhere.
///
/// # Errors
/// The kernel's error: it takes no programs of this process.
pub fn programs() -> io::Result<()> {
    Guard::new(&[], 0).map(drop)
}

/// Asks a socket to give and take datagrams together (`UDP_SEGMENT`, `UDP_GRO`).
///
/// # Errors
/// The kernel's error: it knows no such option.
pub fn datagrams_together() -> io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    sys::set_option(&socket, libc::SOL_UDP, libc::UDP_SEGMENT, &1_000)?;
    sys::set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, &1)
}

/// Loads the programs that read the room of UDP sockets, and tries the one that is asked. Returns
/// true if the kernel also signals when a socket was drained.
///
/// # Errors
/// Says what is lacking, so that datagrams are not held for sockets.
pub fn socket_room() -> Result<bool, String> {
    KernelRoom::open(None, None).map(|room| room.is_signalled())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No row of `sluice doctor` may differ from what ports then meet.
    #[test]
    fn probes_agree_with_what_kernel_allows() {
        datagrams_together().unwrap();
        let is_root = rustix::process::geteuid().is_root();
        let tun = std::path::Path::new("/dev/net/tun").exists();
        assert!(!tun || !is_root || tap_features().unwrap().offloads);
        if !is_root {
            assert!(programs().is_err(), "programs need a capability");
        }
    }
}
