//! The TAP itself: an open file, and the device behind it.

use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::driver::TapConfig;
use super::pressure;
use sluice_switch::Egress;

use crate::device::{DeviceCounters, ioctl_socket};
use crate::error::OpenError;
use crate::frame::FrameBuf;
use crate::net_header::HEADER_SIZE;
use crate::netlink::{CONTAINER_FIFO_FRAMES, Netlink};
use crate::netns;
use crate::offload::{Kind, Offload};
use crate::port::{Counters, DeviceState, KernelSide};
use crate::series::segments_max;
use crate::sockets::SocketCounters;
use crate::sys::{
    DeviceRequest, tap_net_header, tap_netns, tap_offloads, tap_state, write_gathered,
};

/// Resources of an open TAP.
#[derive(Debug)]
pub(super) struct Tap {
    file: Arc<OwnedFd>,
    /// True if frames have a [`net_header`](crate::net_header) in front. An earlier release made
    /// TAPs without.
    pub(super) has_net_header: bool,
    /// True if a frame that is read may have offloads to be performed.
    pub(super) may_leave_offloads: bool,
    /// Requirement for a full ring to hold its senders, if it does not.
    pub(super) holds: Result<(), &'static str>,
    pub(super) kernel: Arc<KernelCounters>,
    pub(super) index: u32,
}

/// Counters of the device, and of the sockets behind it, in the namespace to which its owner has
/// moved it.
#[derive(Debug)]
pub(super) struct KernelCounters {
    file: Arc<OwnedFd>,
    here: Mutex<Here>,
}

/// Counters in one namespace.
#[derive(Debug)]
struct Here {
    device: DeviceCounters,
    sockets: SocketCounters,
}

impl Here {
    /// Begins to count in the namespace of the calling thread.
    fn new(index: u32) -> Result<Self, (&'static str, io::Error)> {
        let device = DeviceCounters::new(index).map_err(|error| ("read its counters", error))?;
        let sockets = SocketCounters::new()
            .map_err(|error| ("read the counters of sockets behind it", error))?;
        Ok(Self { device, sockets })
    }

    fn read(&self, rows: &mut Counters) -> io::Result<()> {
        self.device.read(rows)?;
        self.sockets.read(rows)
    }

    /// Goes on counting in the namespace in which the device is now. Its own counters go with it.
    fn follow(&mut self, file: &OwnedFd) -> io::Result<()> {
        let namespace = tap_netns(file.as_fd())?;
        let start = self.device.start();
        let there = || {
            let failed = |what| OpenError::device("a TAP", what);
            let index = index_of(file).map_err(failed("find its index"))?;
            let device = DeviceCounters::since(index, start).map_err(failed("find it"))?;
            let sockets = SocketCounters::new().map_err(failed("read the counters of sockets"))?;
            Ok(Self { device, sockets })
        };
        let moved = netns::inside(namespace.as_fd(), Path::new("of the device"), there);
        *self = moved.map_err(io::Error::other)?;
        Ok(())
    }
}

impl KernelCounters {
    /// Reads something, once more if the device is not where it was.
    fn within<T>(&self, read: impl Fn(&Here) -> io::Result<T>) -> io::Result<T> {
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        read(&here).or_else(|_| {
            here.follow(&self.file)?;
            read(&here)
        })
    }
}

impl KernelSide for KernelCounters {
    fn read(&self, rows: &mut Counters) -> io::Result<()> {
        let read = self.within(|here| {
            let mut rows = Counters::new();
            here.read(&mut rows).map(|()| rows)
        })?;
        rows.extend(read);
        Ok(())
    }

    fn device(&self) -> DeviceState {
        DeviceState { up: self.within(|here| here.device.is_up()).ok(), problem: None }
    }
}

/// Index of the device behind a descriptor, in the device's namespace.
pub(super) fn index_of(file: &OwnedFd) -> io::Result<u32> {
    let state = tap_state(file.as_fd())?;
    let request = DeviceRequest::new(&state.name).ok_or(io::ErrorKind::NotFound)?;
    request.index(ioctl_socket()?.as_fd())
}

/// Opens the TAP in the namespace of the calling thread.
pub(super) fn open(config: &TapConfig) -> Result<Tap, OpenError> {
    let file = attach(&config.device, config.holds)?;
    set_up(config, None, &config.device, file)
}

/// Attaches to the TAP of this name in the namespace of the calling thread, making it if there is
/// none. With `holds` a full ring holds its senders, if the kernel can.
pub(super) fn attach(name: &str, holds: bool) -> Result<OwnedFd, OpenError> {
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
    let holds = holds && pressure::is_known(&file).map_err(device("ask for its features"))?;
    request.attach_tap(file.as_fd(), holds).map_err(device("attach to it as a TAP"))?;
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
    give_addresses(config, given, index).map_err(|(what, error)| device(what)(error))?;
    let state = tap_state(file.as_fd()).map_err(device("ask for its state"))?;
    if state.holds && given.is_none_or(|given| !given.holds) {
        let mut netlink = Netlink::open().map_err(device("open a socket for its queue"))?;
        netlink
            .set_fifo(index, CONTAINER_FIFO_FRAMES)
            .map_err(device("set its queueing discipline"))?;
    }
    let has_net_header = state.has_net_header;
    if has_net_header {
        tap_net_header(file.as_fd()).map_err(device("set the header of its frames"))?;
    }
    let may_leave_offloads = has_net_header && config.offload;
    // Setting them undoes what its owner has chosen since.
    let were_given = given.map(|given| has_net_header && given.offload);
    if were_given != Some(may_leave_offloads) {
        tap_offloads(file.as_fd(), may_leave_offloads).map_err(device("set its offloads"))?;
    }
    let had_mtu = given.map(|given| given.mtu);
    if may_leave_offloads && (were_given != Some(true) || had_mtu != Some(config.mtu)) {
        let mut netlink = Netlink::open().map_err(device("open a socket for its offloads"))?;
        // A kernel that does not let it be set sends more segments at once, which costs speed only.
        _ = netlink.set_segments_max(index, segments_max(config.mtu));
    }
    let here = Here::new(index).map_err(|(what, error)| device(what)(error))?;
    let file = Arc::new(file);
    let kernel = Arc::new(KernelCounters { file: Arc::clone(&file), here: Mutex::new(here) });
    let holds = pressure::judge(&file, config.holds, state.holds);
    Ok(Tap { file, has_net_header, may_leave_offloads, holds, kernel, index })
}

/// Gives the device its addresses, and a new one its routes.
fn give_addresses(
    config: &TapConfig,
    given: Option<&TapConfig>,
    index: u32,
) -> Result<(), (&'static str, io::Error)> {
    let failed = |what: &'static str| move |error: io::Error| (what, error);
    let before = given.map_or(&[][..], |given| &given.addresses);
    if config.addresses != before {
        let mut netlink = Netlink::open().map_err(failed("open a socket for its addresses"))?;
        for &(ip, prefix) in before.iter().filter(|known| !config.addresses.contains(known)) {
            netlink.del_address(index, ip, prefix).map_err(failed("take an address from it"))?;
        }
        for &(ip, prefix) in config.addresses.iter().filter(|wanted| !before.contains(wanted)) {
            netlink.add_address(index, ip, prefix).map_err(failed("give it its IP address"))?;
        }
    }
    if given.is_none() && !config.routes.is_empty() {
        let mut netlink = Netlink::open().map_err(failed("open a socket for its routes"))?;
        for route in &config.routes {
            netlink
                .add_route(index, route.ip, route.prefix, route.gateway)
                .map_err(failed("give it its route"))?;
        }
    }
    Ok(())
}

/// Returns true if this kernel takes super-frames of UDP at a TAP: since Linux 6.2.
fn knows_udp_segmentation() -> bool {
    static KNOWS: OnceLock<bool> = OnceLock::new();
    *KNOWS.get_or_init(|| {
        let name = rustix::system::uname();
        let release = name.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(6), Some(2))
    })
}

/// A frame that was read.
pub(super) struct Found {
    /// Its header; zeros without one.
    pub(super) header: [u8; HEADER_SIZE],
    pub(super) size: usize,
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

    /// Reads one frame into `first` and what lies behind it; `None` if there is none.
    pub(super) fn read(&self, first: &mut [u8], rest: &mut [u8]) -> io::Result<Option<Found>> {
        let mut header = [0; HEADER_SIZE];
        let header_size = if self.has_net_header { HEADER_SIZE } else { 0 };
        loop {
            let mut parts = [
                IoSliceMut::new(&mut header[..header_size]),
                IoSliceMut::new(&mut *first),
                IoSliceMut::new(&mut *rest),
            ];
            match rustix::io::readv(&self.file, &mut parts) {
                Ok(size) => {
                    return Ok(size.checked_sub(header_size).map(|size| Found { header, size }));
                }
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Returns true if the kernel performs these offloads of a frame.
    pub(super) fn takes(&self, left: &Offload) -> bool {
        let is_udp = left.ask().cut.is_some_and(|(kind, _)| kind == Kind::Udp);
        self.has_net_header && (!is_udp || knows_udp_segmentation())
    }

    /// Writes one frame, gathered, with a header in front if this TAP has them.
    pub(super) fn write(
        &self,
        header: &[u8; HEADER_SIZE],
        frame: &Egress<'_, FrameBuf>,
    ) -> Written {
        let header = if self.has_net_header { &header[..] } else { &[] };
        loop {
            match write_gathered(self.file.as_fd(), header, frame) {
                Ok(()) => return Written::All,
                Err(libc::EAGAIN) => return Written::WouldBlock,
                Err(libc::EINTR) => {}
                Err(errno @ (libc::ENOBUFS | libc::ENOMEM)) => return Written::NoMemory(errno),
                Err(errno) => return Written::Refused(errno),
            }
        }
    }
}
