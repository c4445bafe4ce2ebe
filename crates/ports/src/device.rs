//! Questions about a network device of this namespace, and its counters of lost frames.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netlink_packet_route::link::{InfoKind, Stats64};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sluice_base::Mac;

use crate::link::LinkNow;
use crate::netlink::Netlink;
use crate::port::Counters;
use crate::sys::{self, DeviceRequest};

/// State of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its MAC.
    pub mac: Mac,
    /// Its layer-3 MTU.
    pub mtu: u32,
    /// True if it is set up.
    pub up: bool,
    /// True if it has a carrier.
    pub running: bool,
}

/// Looks a device up by name.
///
/// # Errors
/// The kernel's error; `ENODEV` if there is none of that name.
pub fn device(name: &str) -> io::Result<Device> {
    let request =
        DeviceRequest::new(name).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let socket = ioctl_socket()?;
    let fd = socket.as_fd();
    let flags = request.flags(fd)?;
    Ok(Device {
        index: request.index(fd)?,
        mac: request.mac(fd)?,
        mtu: request.mtu(fd)?,
        up: flags & libc::IFF_UP != 0,
        running: flags & libc::IFF_RUNNING != 0,
    })
}

/// Returns the speed of a device in Mbit/s, if it says one. The speed of a device that is made by
/// software is made up, as 10 Gbit/s of every veth pair, and is none; a bond and a VLAN have that
/// of the devices below.
///
/// # Errors
/// The kernel's error; `ENODEV` if there is none of that name.
pub fn speed_mbps(name: &str) -> io::Result<Option<u64>> {
    let request =
        DeviceRequest::new(name).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    let socket = ioctl_socket()?;
    let index = request.index(socket.as_fd())?;
    if !has_real_speed(Netlink::open()?.kind(index)?.as_ref()) {
        return Ok(None);
    }
    Ok(request.speed_mbps(socket.as_fd())?.map(u64::from))
}

/// Returns true for devices of hardware, and for those of software that pass on the speed below.
fn has_real_speed(kind: Option<&InfoKind>) -> bool {
    matches!(kind, None | Some(InfoKind::Bond | InfoKind::Vlan | InfoKind::MacVlan))
}

/// The device of this namespace that has an address.
///
/// # Errors
/// The kernel's error.
pub fn device_with(address: Ipv4Addr) -> io::Result<Option<String>> {
    let found = sys::addresses()?.into_iter().find(|(_, own)| *own == address);
    Ok(found.map(|(name, _)| name))
}

/// The IPv4 addresses of this namespace, with the names of their devices.
///
/// # Errors
/// The kernel's error.
pub fn addresses() -> io::Result<Vec<(String, Ipv4Addr)>> {
    sys::addresses()
}

/// Binds a socket to a device: it sends and receives by no other.
///
/// # Errors
/// The kernel's error; `ENODEV` if there is none of that name.
pub fn bind_to(socket: impl AsFd, name: &str) -> io::Result<()> {
    sys::bind_to_device(socket, name)
}

/// Returns true if the frames of a device begin with an Ethernet header.
pub(crate) fn is_ethernet(name: &str) -> io::Result<bool> {
    let request =
        DeviceRequest::new(name).ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
    request.has_ethernet(ioctl_socket()?.as_fd())
}

/// A socket whose only use is to carry ioctls of its namespace.
pub(crate) fn ioctl_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?)
}

/// Values of a device's counters at which a count begins.
#[derive(Clone, Debug)]
pub(crate) struct DeviceStart {
    stats: Stats64,
    qdisc_drops: u32,
}

/// Counters of a device that could hide a loss, since a start.
#[derive(Debug)]
pub(crate) struct DeviceCounters {
    netlink: Mutex<Netlink>,
    index: u32,
    start: DeviceStart,
}

impl DeviceCounters {
    /// Begins to count for a device of the caller's namespace.
    pub(crate) fn new(index: u32) -> io::Result<Self> {
        let mut netlink = Netlink::open()?;
        let stats = netlink.link_stats(index)?;
        let start = DeviceStart { stats, qdisc_drops: netlink.qdisc_drops(index)? };
        Ok(Self { netlink: Mutex::new(netlink), index, start })
    }

    /// Counts on from an earlier start.
    pub(crate) fn since(index: u32, start: DeviceStart) -> io::Result<Self> {
        Ok(Self { netlink: Mutex::new(Netlink::open()?), index, start })
    }

    /// The start.
    pub(crate) fn start(&self) -> DeviceStart {
        self.start.clone()
    }

    fn netlink(&self) -> MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the device is set up.
    pub(crate) fn is_up(&self) -> io::Result<bool> {
        self.netlink().is_up(self.index)
    }

    /// State of the device; `None` if it is gone.
    pub(crate) fn link(&self) -> io::Result<Option<LinkNow>> {
        self.netlink().link(self.index)
    }

    /// Adds the rows. Their names are the kernel's: `rx` counts frames from the device to the
    /// stack.
    pub(crate) fn read(&self, rows: &mut Counters) -> io::Result<()> {
        let mut netlink = self.netlink();
        let (now, then) = (netlink.link_stats(self.index)?, &self.start.stats);
        let mut row = |name, now: u64, then: u64| rows.insert(name, now.wrapping_sub(then));
        row("device.rx_dropped", now.rx_dropped, then.rx_dropped);
        row("device.tx_dropped", now.tx_dropped, then.tx_dropped);
        row("device.rx_errors", now.rx_errors, then.rx_errors);
        row("device.tx_errors", now.tx_errors, then.tx_errors);
        row("device.rx_missed", now.rx_missed_errors, then.rx_missed_errors);
        row("device.rx_fifo", now.rx_fifo_errors, then.rx_fifo_errors);
        row("device.tx_carrier", now.tx_carrier_errors, then.tx_carrier_errors);
        let qdisc_drops = netlink.qdisc_drops(self.index)?;
        rows.insert("qdisc.dropped", qdisc_drops.wrapping_sub(self.start.qdisc_drops).into());
        Ok(())
    }
}

/// Frames that the kernel dropped because the queue between a device's interrupt and the stack was
/// full, on all CPUs and in all namespaces (second column of `/proc/net/softnet_stat`).
pub(crate) fn softnet_dropped() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/net/softnet_stat")?;
    Ok(sum_hex_column(&text, 1))
}

/// The sum of one column of hexadecimal numbers; lines without it count 0.
pub(crate) fn sum_hex_column(text: &str, column: usize) -> u64 {
    let number = |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    text.lines().filter_map(number).sum()
}

#[cfg(test)]
mod tests;
