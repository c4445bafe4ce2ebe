//! Namespaces, and the other ends of ports, for tests that need a kernel.
#![allow(unsafe_code, reason = "packet sockets as the other end, independent of the crate's own")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluice_base::{Batch, ByteCount, Priority, PriorityMask};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port, PortRequest, SharedRings};
use sluice_switch::{Egress, Window};

/// Returns true if namespaces can be made here; prints a message if not.
pub(crate) fn can_have_namespaces(test: &str) -> bool {
    let can = rustix::process::geteuid().is_root()
        && Command::new("ip").args(["netns", "list"]).output().is_ok_and(|o| o.status.success());
    if !can {
        eprintln!("SKIPPED {test}: needs root/CAP_NET_ADMIN and iproute2");
    }
    can
}

/// The kernel's own report of drops in these namespaces, or `None` and a message if it is not
/// available.
pub(crate) fn kernel_drops(test: &str, namespaces: &[&str]) -> Option<sluice_dropwatch::Drops> {
    let drops = sluice_dropwatch::Drops::watch(namespaces);
    drops.map_err(|error| eprintln!("SKIPPED part of {test}: {error}")).ok()
}

/// Runs `work` as the other end of a port, while its worker handles the port's events.
pub(crate) fn attended<T: Send>(port: &mut impl SharedRings, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let there = scope.spawn(work);
        while !there.is_finished() {
            assert_eq!(port.handle_events(), PortRequest::Nothing, "no handle is out");
            std::thread::yield_now();
        }
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs a command; panics with its output if it fails.
pub(crate) fn run(command: &str) {
    sluice_netns::run(command).unwrap_or_else(|error| panic!("{error}"));
}

/// Makes a namespace in which the kernel sends nothing unasked: IPv6 is off, and `lo` is down.
pub(crate) fn add_namespace(name: &str) {
    run(&format!("ip netns add {name}"));
    inside(name, sluice_netns::disable_ipv6).unwrap();
}

/// Two namespaces joined by a veth pair: `left` has device `l0`, 10.9.0.1, `right` has `r0`,
/// 10.9.0.2. They go away with this, also when a test panics.
pub(crate) struct Cable {
    pub(crate) left: String,
    pub(crate) right: String,
}

pub(crate) const LEFT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(crate) const RIGHT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);

impl Cable {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("sluice-t-{}-{number}{side}", std::process::id());
        let cable = Self { left: name('l'), right: name('r') };
        for namespace in [&cable.left, &cable.right] {
            add_namespace(namespace);
        }
        let (l, r) = (&cable.left, &cable.right);
        run(&format!("ip link add {}", sluice_netns::veth_arguments((l, "l0"), (r, "r0"))));
        for (namespace, device, address) in [(l, "l0", LEFT), (r, "r0", RIGHT)] {
            run(&format!("ip -n {namespace} addr add {address}/24 dev {device}"));
            run(&format!("ip -n {namespace} link set {device} up"));
            run(&format!("ip netns exec {namespace} ethtool -K {device} tx off"));
        }
        cable
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.left, &self.right] {
            // It may not be there, if the test failed while making it.
            let _gone = Command::new("ip").args(["netns", "del", namespace]).status();
        }
    }
}

pub(crate) fn path(namespace: &str) -> PathBuf {
    sluice_netns::path(namespace)
}

/// Runs `work` on a thread inside a namespace.
pub(crate) fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    sluice_netns::inside(namespace, work).unwrap()
}

/// The other end of a port.
pub(crate) trait Peer {
    /// Sends one frame.
    fn send(&mut self, frame: &[u8]);
    /// The next frame, if one came.
    fn receive(&mut self) -> Option<Vec<u8>>;
}

/// A packet socket on a device.
pub(crate) struct RawPeer(pub(crate) OwnedFd);

impl RawPeer {
    /// Opens a socket on `device` of the caller's namespace.
    pub(crate) fn new(device: &str) -> Self {
        let index = sluice_ports::device::device(device).unwrap().index;
        // SAFETY: no pointers.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, 0) };
        assert!(fd >= 0);
        // SAFETY: just made.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
        // SAFETY: zero is a value of it.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = 17;
        address.sll_protocol = 3u16.to_be();
        address.sll_ifindex = index.cast_signed();
        let (at, size) = (&raw const address, 20);
        // SAFETY: a live address of that size.
        assert_eq!(unsafe { libc::bind(fd.as_raw_fd(), at.cast(), size) }, 0);
        Self(fd)
    }
}

fn set(fd: &impl AsRawFd, level: i32, name: i32, value: i32) {
    let value: *const i32 = &raw const value;
    // SAFETY: a live integer.
    assert_eq!(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.cast(), 4) }, 0);
}

impl Peer for RawPeer {
    fn send(&mut self, frame: &[u8]) {
        let sent = rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty()).unwrap();
        assert_eq!(sent, frame.len());
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 4096];
        let flags = rustix::net::RecvFlags::empty();
        let (_, size) = rustix::net::recv(&self.0, &mut *buffer, flags).ok()?;
        buffer.truncate(size);
        Some(buffer)
    }
}

/// A VTEP on an ordinary socket: VNI 42, frames without their VXLAN header.
pub(crate) struct VtepPeer {
    pub(crate) socket: UdpSocket,
    pub(crate) to: SocketAddrV4,
}

pub(crate) const VXLAN: [u8; 8] = [8, 0, 0, 0, 0, 0, 42, 0];

impl VtepPeer {
    pub(crate) fn new(local: Ipv4Addr, to: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind(SocketAddrV4::new(local, 4789)).unwrap();
        socket.set_nonblocking(true).unwrap();
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20);
        Self { socket, to: SocketAddrV4::new(to, 4789) }
    }
}

impl Peer for VtepPeer {
    fn send(&mut self, frame: &[u8]) {
        let datagram = [&VXLAN, frame].concat();
        // A busy kernel delivers later, and the socket's own buffer is full until then.
        while let Err(error) = self.socket.send_to(&datagram, self.to) {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            std::thread::yield_now();
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut buffer = [0; 4096];
        let size = self.socket.recv(&mut buffer).ok()?;
        assert_eq!(buffer[..8], VXLAN);
        Some(buffer[8..size].to_vec())
    }
}

impl Peer for sluice_ports::memory::Probe {
    fn send(&mut self, frame: &[u8]) {
        assert!(Self::send(self, frame), "the ring has room");
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        Self::receive(self)
    }
}

/// Time without a frame after which a wait ends.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A window that limits nothing.
pub(crate) const OPEN: Window = Window {
    frames: u32::MAX,
    bytes: ByteCount(u64::MAX),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

pub(crate) fn pool(slots: u32) -> Pool {
    Pool::new(PoolConfig { slots, slot_size: 2048, populate: false }).unwrap()
}

pub(crate) fn egress<'a>(header: &'a [u8], buf: Option<&'a FrameBuf>) -> Egress<'a, FrameBuf> {
    let payload = buf.map_or(0, |buf| buf.bytes().len());
    let size = u32::try_from(header.len() + payload).unwrap();
    Egress { header, buf, strip: 0, size, first: 0, priority: Priority::ZERO, tunnel: None }
}

/// A frame in a slot.
pub(crate) fn frame(pool: &mut Pool, bytes: &[u8]) -> FrameBuf {
    let mut slot = pool.take().unwrap();
    slot.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
    slot.freeze(0, bytes.len())
}

/// The `nth` test frame: sizes from 60 to 1514, an EtherType nobody handles, and bytes that
/// identify the frame and their offset.
pub(crate) fn test_frame(nth: usize, size_max: usize) -> Vec<u8> {
    let size = 60 + nth * 131 % (size_max - 59);
    let mut frame: Vec<u8> =
        (0..size).map(|at| u8::try_from((at * 7 + nth) % 256).unwrap()).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&u32::try_from(nth).unwrap().to_be_bytes());
    frame
}

/// Waits for a port's descriptors, edge-triggered, as a worker's loop does.
pub(crate) struct Waiter(OwnedFd);

impl Waiter {
    pub(crate) fn new(port: &dyn Port) -> Self {
        use rustix::event::epoll;
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        for fd in port.poll_fds() {
            let mut flags = epoll::EventFlags::ET;
            flags.set(epoll::EventFlags::IN, fd.read);
            flags.set(epoll::EventFlags::OUT, fd.write);
            epoll::add(&waiter, fd.fd, epoll::EventData::new_u64(0), flags).unwrap();
        }
        Self(waiter)
    }

    /// Waits up to this many milliseconds. Returns true if there was an event.
    pub(crate) fn wait(&self, milliseconds: i64) -> bool {
        let mut events = Vec::with_capacity(32);
        let nanos = milliseconds % 1000 * 1_000_000;
        let span = rustix::event::Timespec { tv_sec: milliseconds / 1000, tv_nsec: nanos };
        loop {
            let room = rustix::buffer::spare_capacity(&mut events);
            match rustix::event::epoll::wait(&self.0, room, Some(&span)) {
                Ok(count) => return count > 0,
                // The process was stopped and continued.
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Reads frames until `count` came, each without its first `strip` bytes, or none came for too
/// long.
pub(crate) fn read_all(
    port: &mut dyn Port,
    pool: &mut Pool,
    count: usize,
    strip: usize,
) -> Vec<Vec<u8>> {
    let mut batch = Batch::with_limit(64);
    let mut frames = Vec::new();
    let waiter = Waiter::new(port);
    let mut end = Instant::now() + SILENCE_MAX;
    while frames.len() < count && Instant::now() < end {
        let read = port.read(OPEN, 64, pool, &mut batch).unwrap();
        assert_eq!(read.frames, batch.len());
        for buf in batch.drain() {
            end = Instant::now() + SILENCE_MAX;
            frames.push(buf.bytes()[strip..].to_vec());
            pool.give_back(buf);
        }
        if !read.more {
            waiter.wait(2);
        }
    }
    frames
}

/// Receives at a peer until `count` frames came, or none came for too long.
pub(crate) fn receive_all(peer: &mut dyn Peer, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut end = Instant::now() + SILENCE_MAX;
    while frames.len() < count && Instant::now() < end {
        match peer.receive() {
            Some(frame) => {
                frames.push(frame);
                end = Instant::now() + SILENCE_MAX;
            }
            None => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    frames
}

/// Returns true if `error` means that a device is gone.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV | libc::EBADFD))
}

/// Returns true if `what` becomes true within 20 s. A closed descriptor lives on for a moment in a
/// child that another test is just starting.
pub(crate) fn eventually(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if what() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}
