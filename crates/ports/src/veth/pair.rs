//! The pair of devices: made in a namespace of its own, tested there, and its container's end moved
//! where it belongs.
//!
//! ```text
//!   private namespace                              container's namespace
//!   make both ends, XDP, NAPI settings
//!   marker datagram, AF_XDP, stop test
//!   move ────────────────────────────────────────▶ pfifo, addresses, up
//!   switch end stays, without a name anywhere
//! ```
//!
//! In its own namespace the switch end meets no firewall, no network manager, no address of the
//! host and no other device of its name, and it ends with the last descriptor of that namespace,
//! also after SIGKILL. A namespace that a device moves to gives it a new queueing discipline, so
//! that is set there; a program at its egress goes along.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use sluice_base::Mac;
use sluice_wire::{checksum, ethernet, ipv4};

use super::driver::VethConfig;
use super::napi::{self, Poller};
use super::requests::{self, End};
use super::rings::{Plan, Xsk};
use super::stop_test;
use super::waking::{Hint, Words as _};
use crate::device::ioctl_socket;
use crate::ebpf::{self, EXIT, Hook, Insn, MapKind, Program, REDIRECT_MAP, call, set};
use crate::error::OpenError;
use crate::netlink::{CONTAINER_FIFO_FRAMES, Netlink};
use crate::netns;
use crate::sys::{self, DeviceRequest};

/// Names of both ends in their private namespace.
pub(super) const SWITCH_END: &str = "switch";
const CONTAINER_END: &str = "container";
/// Limit of the queueing discipline at the switch end.
const SWITCH_FIFO_FRAMES: u32 = 1_000;
/// Address of the socket that polls, and of the marker's sender (RFC 5737).
const MARKED: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const MARKER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const MARKER_PORT: u16 = 9999;
const MARKED_WITHIN: Duration = Duration::from_secs(1);

/// The switch end with all that serves it.
#[derive(Debug)]
pub(super) struct SwitchEnd {
    /// Deletes the pair first, when this is dropped.
    pub(super) pair: Pair,
    pub(super) xsk: Xsk,
    pub(super) poller: Poller,
    pub(super) hint: Hint,
    /// Holds the XDP program at its hook, and through it the socket in its map.
    pub(super) link: OwnedFd,
    /// Namespace of the switch end.
    pub(super) namespace: OwnedFd,
    pub(super) mac: Mac,
}

/// The pair, which is deleted with this unless it is kept.
#[derive(Debug)]
pub(super) struct Pair {
    netlink: Netlink,
    pub(super) index: u32,
    /// True if it stays for another process.
    pub(super) is_kept: bool,
}

impl Pair {
    /// Takes charge of a pair whose switch end is in the caller's namespace.
    pub(super) fn new(index: u32, is_kept: bool) -> io::Result<Self> {
        Ok(Self { netlink: Netlink::open()?, index, is_kept })
    }

    /// Deletes both ends, unless they are kept. No error if they are gone.
    pub(super) fn close(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.is_kept, true) {
            return Ok(());
        }
        match self.netlink.del_link(self.index) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            done => done,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // If it fails, the private namespace takes the pair along.
        let _goes_with_namespace = self.close();
    }
}

/// A request about a device of the caller's namespace.
struct Ask {
    name: &'static str,
    request: DeviceRequest,
    socket: OwnedFd,
}

// Numbers of `linux/ethtool.h`.
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGRO: u32 = 0x2c;

impl Ask {
    fn of(name: &'static str) -> io::Result<Self> {
        let request = DeviceRequest::new(name).expect("a short name");
        Ok(Self { name, request, socket: ioctl_socket()? })
    }

    fn index(&self) -> io::Result<u32> {
        self.request.index(self.socket.as_fd())
    }

    fn mac(&self) -> io::Result<Mac> {
        self.request.mac(self.socket.as_fd())
    }

    fn up(&self) -> io::Result<()> {
        self.request.set_up(self.socket.as_fd())
    }

    fn feature(&self, command: u32, value: u32) -> io::Result<()> {
        self.request.ethtool(self.socket.as_fd(), command, value).map(drop)
    }
}

/// Makes the pair in the namespace of the calling thread, which is private, tests it, and moves the
/// container's end into `container`.
pub(super) fn open(
    config: &VethConfig,
    frame_size_max: usize,
    container: BorrowedFd<'_>,
) -> Result<SwitchEnd, OpenError> {
    let failed = |what| OpenError::device(&config.device, what);
    let lacks = |what| OpenError::lacks(&config.device, what);
    let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
    let ends = [End { name: SWITCH_END, mac: None }, End { name: CONTAINER_END, mac: config.mac }];
    requests::add_pair(&mut netlink, ends, config.mtu).map_err(lacks("make its pair"))?;
    let looked_up = "look its pair up";
    let own = Ask::of(SWITCH_END).map_err(failed(looked_up))?;
    let other = Ask::of(CONTAINER_END).map_err(failed(looked_up))?;
    let index = own.index().map_err(failed(looked_up))?;
    let other_index = other.index().map_err(failed(looked_up))?;
    let mac = own.mac().map_err(failed(looked_up))?;
    let pair = Pair::new(index, false).map_err(failed("open a socket for it"))?;
    let namespace = netns::open(Path::new(netns::OWN))?;
    let link = set_xdp(index).map_err(lacks("attach an XDP program to its switch end"))?;
    for end in [(&own, index, SWITCH_FIFO_FRAMES), (&other, other_index, CONTAINER_FIFO_FRAMES)] {
        prepare(&mut netlink, end).map_err(lacks("set its pair up"))?;
    }
    let napi = napi::find(index).map_err(lacks("find the NAPI of its switch end"))?;
    napi::leave_to_us(napi).map_err(lacks("keep the kernel from running its NAPI"))?;
    let poller = marked(&mut netlink, (index, mac), other_index)
        .map_err(failed("mark a socket with its NAPI"))?;
    if !poller.is_of(napi).map_err(failed("ask for the NAPI of a socket"))? {
        let reason = "no socket gets the number of its NAPI".to_owned();
        return Err(OpenError::NotHeld { device: config.device.clone(), reason });
    }
    let plan = Plan::new(frame_size_max);
    let mut xsk = Xsk::open(index, plan).map_err(|(what, error)| lacks(what)(error))?;
    redirect(&link, &xsk).map_err(lacks("lead its frames to AF_XDP"))?;
    let hint =
        Hint::attach(other_index).map_err(lacks("attach the program that wakes the switch"))?;
    let mut path = stop_test::Path { xsk: &mut xsk, poller: &poller, hint: &hint };
    stop_test::run(&mut netlink, (CONTAINER_END, other_index, mac), &mut path)
        .map_err(failed("test that it holds its senders"))?
        .map_err(|reason| OpenError::NotHeld { device: config.device.clone(), reason })?;
    requests::move_link(&mut netlink, other_index, container, &config.device)
        .map_err(failed("move it into its namespace"))?;
    hint.keep_counts(hint.sent(), 0);
    Ok(SwitchEnd { pair, xsk, poller, hint, link, namespace, mac })
}

/// Attaches a program that passes everything: with one the end has a NAPI, and the other end no
/// segmentation offload.
fn set_xdp(index: u32) -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    let pass = ebpf::load(&[set(0, XDP_PASS), EXIT], "sluice_pass", Hook::Xdp)?;
    ebpf::attach(&pass, index, Hook::Xdp)
}

/// Leads all frames to the socket.
fn redirect(link: &OwnedFd, xsk: &Xsk) -> io::Result<()> {
    let sockets = ebpf::create_map(MapKind::Sockets(1))?;
    ebpf::set_socket(&sockets, 0, xsk.fd())?;
    let program = ebpf::load(&redirecting(&sockets), "sluice_veth", Hook::Xdp)?;
    ebpf::replace(link, &program)
}

/// Redirects a frame to the socket of queue 0; without one the frame is dropped, and counted.
fn redirecting(sockets: &OwnedFd) -> Vec<Insn> {
    const XDP_DROP: i32 = 1;
    let mut program = Program::default();
    program.map(1, sockets.as_fd());
    program.plain(&[set(2, 0), set(3, XDP_DROP), call(REDIRECT_MAP), EXIT]);
    program.finish()
}

/// Sets one end up. Frames that cross with an open checksum or as super-frames would never have
/// been on a wire. The container's end has no segmentation offload, because the other end has XDP;
/// to the container frames take the NAPI's way, which can be full, if its GRO is on and the switch
/// end has no segmentation offload either.
fn prepare(netlink: &mut Netlink, (end, index, frames): (&Ask, u32, u32)) -> io::Result<()> {
    requests::without_own_address(netlink, index)?;
    netlink.set_fifo(index, frames)?;
    end.feature(ETHTOOL_STXCSUM, 0)?;
    if end.name == CONTAINER_END {
        end.feature(ETHTOOL_SGRO, 1)?;
    } else {
        end.feature(ETHTOOL_STSO, 0)?;
    }
    end.up()
}

/// Makes a socket that carries the number of the switch end's NAPI: a datagram reaches it that the
/// NAPI delivered.
fn marked(netlink: &mut Netlink, (index, mac): (u32, Mac), other_index: u32) -> io::Result<Poller> {
    netlink.add_address(index, MARKED.into(), 24)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    rustix::net::bind(&socket, &std::net::SocketAddrV4::new(MARKED, MARKER_PORT))?;
    let sender = sys::packet_socket()?;
    sys::bind_packet(&sender, other_index, 0)?;
    rustix::net::send(&sender, &marker(mac), SendFlags::empty())?;
    let until = Instant::now() + MARKED_WITHIN;
    loop {
        match rustix::net::recv(&socket, &mut [0; 1][..], rustix::net::RecvFlags::TRUNC) {
            Ok(_) => break,
            Err(rustix::io::Errno::AGAIN) if Instant::now() < until => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Poller::new(socket)
}

/// The marker: an empty UDP datagram.
fn marker(to: Mac) -> [u8; 60] {
    const UDP: u8 = 17;
    const UDP_SIZE: u16 = 8;
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to.0);
    frame[6] = 2;
    frame[12] = 8;
    let at = ethernet::HEADER_SIZE;
    let packet = &mut frame[at..];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(20 + UDP_SIZE).to_be_bytes());
    packet[8..10].copy_from_slice(&[64, UDP]);
    packet[12..16].copy_from_slice(&MARKER.octets());
    packet[16..20].copy_from_slice(&MARKED.octets());
    let sum = checksum::internet(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[20..22].copy_from_slice(&MARKER_PORT.to_be_bytes());
    packet[22..24].copy_from_slice(&MARKER_PORT.to_be_bytes());
    packet[24..26].copy_from_slice(&UDP_SIZE.to_be_bytes());
    debug_assert!(ipv4::Packet::new_checked(&frame[at..]).is_ok());
    frame
}

/// Configures the container's end, in its namespace. Returns its index. `hinted` is the index of
/// the device that has the program which wakes the switch.
pub(super) fn settle(config: &VethConfig, hinted: u32) -> Result<u32, OpenError> {
    let failed = |what| OpenError::device(&config.device, what);
    let request = DeviceRequest::new(&config.device)
        .ok_or_else(|| OpenError::BadName { device: config.device.clone() })?;
    let socket = ioctl_socket().map_err(failed("open a socket for it"))?;
    let mut netlink = Netlink::open().map_err(failed("open a socket for it"))?;
    let index = request.index(socket.as_fd()).map_err(failed("find its index"))?;
    netlink
        .set_fifo(index, CONTAINER_FIFO_FRAMES)
        .map_err(failed("set its queueing discipline"))?;
    if hinted != index {
        let reason = "the program that wakes the switch did not move along".to_owned();
        return Err(OpenError::NotHeld { device: config.device.clone(), reason });
    }
    for &(ip, prefix) in &config.addresses {
        netlink.add_address(index, ip, prefix).map_err(failed("give it its IP address"))?;
    }
    if config.up {
        request.set_up(socket.as_fd()).map_err(failed("set it up"))?;
    }
    for route in &config.routes {
        netlink
            .add_route(index, route.ip, route.prefix, route.gateway)
            .map_err(failed("give it its route"))?;
    }
    Ok(index)
}

/// The namespace of a container, which must not be kept open: a namespace goes with its last
/// descriptor.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: Option<PathBuf>,
    pub(super) id: (u64, u64),
}

impl Place {
    /// Opens the namespace of a configuration, or the caller's.
    pub(super) fn open(path: Option<&Path>) -> Result<(Self, OwnedFd), OpenError> {
        let fd = netns::open(path.unwrap_or(Path::new(netns::OWN)))?;
        let id = id(&fd).map_err(|source| OpenError::Netns {
            path: path.unwrap_or(Path::new(netns::OWN)).to_owned(),
            what: "identify it",
            source,
        })?;
        Ok((Self { path: path.map(Path::to_owned), id }, fd))
    }

    /// The namespace that had this path, which may have lost it.
    pub(super) fn was(path: Option<&Path>, id: (u64, u64)) -> Self {
        Self { path: path.map(Path::to_owned), id }
    }

    /// Returns false if another namespace has the path now. The namespace may have lost its path.
    pub(super) fn may_be_there(&self) -> bool {
        let now = netns::open(self.path.as_deref().unwrap_or(Path::new(netns::OWN)));
        now.ok().and_then(|fd| id(&fd).ok()).is_none_or(|now| now == self.id)
    }

    /// Runs `work` inside; an error if another namespace has the name now.
    pub(super) fn within<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, OpenError> + Send,
    ) -> Result<T, OpenError> {
        let Some(path) = &self.path else { return work() };
        let gone = |source| OpenError::Netns { path: path.clone(), what: "find it again", source };
        let fd: OwnedFd = File::open(path).map_err(gone)?.into();
        if id(&fd).map_err(gone)? != self.id {
            return Err(gone(io::ErrorKind::NotFound.into()));
        }
        netns::inside(fd.as_fd(), path, work)
    }
}

fn id(fd: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev, stat.st_ino))
}
