//! The TAP itself: an open file, and the device behind it.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use super::driver::TapConfig;
use sluice_switch::Egress;

use crate::device::{DeviceCounters, ioctl_socket};
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::netlink::Netlink;
use crate::sockets::SocketCounters;
use crate::sys::{DeviceRequest, tap_without_offloads, write_gathered};

/// Resources of an open TAP.
#[derive(Debug)]
pub(super) struct Tap {
    file: OwnedFd,
    pub(super) counters: DeviceCounters,
    pub(super) sockets: SocketCounters,
    pub(super) index: u32,
}

/// Opens the TAP in the namespace of the calling thread.
pub(super) fn open(config: &TapConfig) -> Result<Tap, OpenError> {
    let file = attach(&config.device)?;
    set_up(config, None, &config.device, file)
}

/// Attaches to the TAP of this name in the namespace of the calling thread, making it if there is
/// none.
pub(super) fn attach(name: &str) -> Result<OwnedFd, OpenError> {
    let device = |what| OpenError::device(name, what);
    let request =
        DeviceRequest::new(name).ok_or_else(|| OpenError::BadName { device: name.to_owned() })?;
    let file: OwnedFd = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(device("open /dev/net/tun for it"))?
        .into();
    request.attach_tap(file.as_fd()).map_err(device("attach to it as a TAP"))?;
    tap_without_offloads(file.as_fd()).map_err(device("switch its offloads off"))?;
    Ok(file)
}

/// Configures the device. For a device that was configured as `given` before, only differences to
/// `config` are set: later changes of its owner stay.
pub(super) fn set_up(
    config: &TapConfig,
    given: Option<&TapConfig>,
    name: &str,
    file: OwnedFd,
) -> Result<Tap, OpenError> {
    let device = |what| OpenError::device(name, what);
    let request =
        DeviceRequest::new(name).ok_or_else(|| OpenError::BadName { device: name.to_owned() })?;
    let socket = ioctl_socket().map_err(device("open a socket for it"))?;
    let fd = socket.as_fd();
    if given.is_none_or(|given| given.ring_frames != config.ring_frames) {
        request.set_queue_frames(fd, config.ring_frames).map_err(device("set its txqueuelen"))?;
    }
    if given.is_none_or(|given| given.mtu != config.mtu) {
        request.set_mtu(fd, config.mtu).map_err(device("set its MTU"))?;
    }
    if let Some(mac) = config.mac
        && given.is_none_or(|given| given.mac != Some(mac))
    {
        request.set_mac(fd, mac).map_err(device("set its MAC"))?;
    }
    if config.up && given.is_none_or(|given| !given.up) {
        request.set_up(fd).map_err(device("set it up"))?;
    }
    let index = request.index(fd).map_err(device("find its index"))?;
    let before = given.map_or(&[][..], |given| &given.addresses);
    if config.addresses != before {
        let mut netlink = Netlink::open().map_err(device("open a socket for its addresses"))?;
        for &(ip, prefix) in before.iter().filter(|known| !config.addresses.contains(known)) {
            netlink.del_address(index, ip, prefix).map_err(device("take an address from it"))?;
        }
        for &(ip, prefix) in config.addresses.iter().filter(|wanted| !before.contains(wanted)) {
            netlink.add_address(index, ip, prefix).map_err(device("give it its IP address"))?;
        }
    }
    if given.is_none() && !config.routes.is_empty() {
        let mut netlink = Netlink::open().map_err(device("open a socket for its routes"))?;
        for route in &config.routes {
            netlink
                .add_route(index, route.ip, route.prefix, route.gateway)
                .map_err(device("give it its route"))?;
        }
    }
    let counters = DeviceCounters::new(index).map_err(device("read its counters"))?;
    let sockets =
        SocketCounters::new().map_err(device("read the counters of sockets behind it"))?;
    Ok(Tap { file, counters, sockets, index })
}

/// Result of a write.
pub(super) enum Written {
    /// The kernel took it.
    All,
    /// The kernel has no room now, and signals room later.
    WouldBlock,
    /// The kernel has no memory now.
    NoMemory(i32),
    /// The kernel will never take it.
    Refused(i32),
}

impl Tap {
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Reads one frame; `None` if there is none.
    pub(super) fn read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(&self.file, &mut *into) {
                Ok(size) => return Ok(Some(size)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Writes one frame, gathered.
    pub(super) fn write(&self, frame: &Egress<'_, FrameBuf>) -> Written {
        loop {
            match write_gathered(self.file.as_fd(), frame) {
                Ok(()) => return Written::All,
                Err(libc::EAGAIN) => return Written::WouldBlock,
                Err(libc::EINTR) => {}
                Err(errno @ (libc::ENOBUFS | libc::ENOMEM)) => return Written::NoMemory(errno),
                Err(errno) => return Written::Refused(errno),
            }
        }
    }
}
