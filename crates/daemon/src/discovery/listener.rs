//! Sockets that hear beacons, one for each device.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, sockopt};
use sluice_api::discovery::Heard;
use sluice_base::Nanos;
use sluice_ports::device;

use super::beacon::BEACON_SIZE_MAX;
use super::heard::HeardHosts;
use super::{GROUP, PORT};
use crate::sys::clock;

/// Datagrams that are read of one device before the others are looked at.
const BURST: usize = 64;

/// Reason why nothing can be heard.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The device is missing, or cannot be listened on.
    #[error(
        "cannot listen on {device}: {error}; `ip -br address` shows the devices that are there"
    )]
    Device {
        /// Name of the device.
        device: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// No device leads to other hosts.
    #[error("no device here has an IPv4 address and is up; name one with `--device`")]
    NoDevice,
    /// The kernel does not wait.
    #[error("cannot wait for beacons: {0}")]
    Wait(io::Error),
}

/// Listens on these devices for a span, and returns the hosts that were heard.
///
/// # Errors
/// If a device cannot be listened on.
pub fn listen(devices: &[String], span: Duration) -> Result<Heard, ListenError> {
    if devices.is_empty() {
        return Err(ListenError::NoDevice);
    }
    let mut sockets = Vec::with_capacity(devices.len());
    for device in devices {
        let failed = |error| ListenError::Device { device: device.clone(), error };
        sockets.push((device.as_str(), open(device).map_err(failed)?));
    }
    let span = Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let until = clock::now().after(span);
    let mut heard = HeardHosts::default();
    loop {
        let now = clock::now();
        let left = until.since(now);
        if now >= until {
            return Ok(heard.heard(now));
        }
        let mut fds: Vec<_> =
            sockets.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&clock::timespec(left))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(ListenError::Wait(error.into())),
        }
        for (device, socket) in &sockets {
            read(device, socket, &mut heard);
        }
    }
}

/// Reads what has arrived by one device.
fn read(device: &str, socket: &UdpSocket, heard: &mut HeardHosts) {
    // A larger datagram is cut to one byte too many, and refused.
    let mut bytes = [0; BEACON_SIZE_MAX + 1];
    for _ in 0..BURST {
        // Also an error of the device: it may be back before the span is over.
        let Ok((size, SocketAddr::V4(from))) = socket.recv_from(&mut bytes) else { return };
        heard.hear(clock::now(), device, *from.ip(), &bytes[..size]);
    }
}

/// Opens a socket that receives the group by one device, and nothing else.
fn open(name: &str) -> io::Result<UdpSocket> {
    let index = device::device(name)?.index;
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // Several may listen at a time.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    device::bind_to(&socket, name)?;
    // The address of the group: no datagram to one of this host's own addresses is received.
    bind(&socket, &SocketAddrV4::new(GROUP, PORT))?;
    sockopt::set_ip_add_membership_with_ifindex(&socket, &GROUP, &Ipv4Addr::UNSPECIFIED, index)?;
    Ok(socket.into())
}
