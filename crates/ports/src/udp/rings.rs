//! The sockets: one that receives, a few that send.
#![allow(unsafe_code, reason = "recvmmsg and sendmmsg with control messages")]

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::control::{self, Control, Said};
use super::driver::UdpConfig;
use super::inbox::{Arrival, BLOCKS, Inbox};
use super::sharing;
use crate::device::device;
use crate::guard;
use crate::series::{DATAGRAMS_SIZE_MAX, PARTS_MAX, SEGMENTS_TOGETHER_MAX, Series};
use crate::staging::{NotStaged, Staging};
use crate::stuck_head::StuckHead;
use crate::sys;

/// Cost of one datagram of full size in a receive buffer (measured: 2,304 bytes for 1,000 to 1,500
/// bytes of data).
pub(super) const RECEIVE_COST: u64 = 2304;

/// Limit of another process's time to close its copy of a socket that it passed on.
const INHERITED_CLOSED_WITHIN: Duration = Duration::from_millis(100);

/// Datagrams staged before the kernel must take some: the segments of one super-frame.
const STAGED_MAX: usize = SEGMENTS_TOGETHER_MAX;

/// Tries of a datagram that a rule refuses or for which there is no memory: for 50 ms.
const SIGNS_FULL: u32 = 250;

fn address(to: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: sys::ADDRESS_FAMILY_INET,
        sin_port: to.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.ip().octets()) },
        sin_zero: [0; 8],
    }
}

fn socket_size<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("an address is small")
}

/// The socket that receives.
#[derive(Debug)]
pub(super) struct Receiver {
    socket: UdpSocket,
    /// True if the kernel knows whether to join datagrams.
    is_set: Cell<bool>,
}

impl Receiver {
    pub(super) fn open(
        config: &UdpConfig,
        inherited: Option<OwnedFd>,
    ) -> Result<Self, (&'static str, io::Error)> {
        let at = SocketAddrV4::new(config.local, config.port);
        let (sharers, device) = (config.sharers, config.device.as_deref());
        let has_inherited = inherited.is_some();
        let inherited = inherited
            .map(UdpSocket::from)
            .filter(|socket| socket.local_addr().is_ok_and(|address| address == at.into()));
        let bound = match inherited {
            Some(socket) => Ok(socket),
            None => bind(at, sharers, device),
        };
        let bound = match bound {
            // The process that passed the other socket on is about to close its own copy.
            Err(error) if has_inherited && error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(INHERITED_CLOSED_WITHIN);
                bind(at, sharers, device)
            }
            bound => bound,
        };
        let socket = bound.map_err(|e| ("bind to it", e))?;
        socket.set_nonblocking(true).map_err(|e| ("make its socket non-blocking", e))?;
        sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &1)
            .map_err(|e| ("ask for the TOS of datagrams", e))?;
        // The kernel doubles the value, for its own overhead.
        let half = i32::try_from(config.receive_buffer_bytes / 2).unwrap_or(i32::MAX / 2);
        let level = libc::SOL_SOCKET;
        sys::set_option(&socket, level, libc::SO_RCVBUFFORCE, &half)
            // Without CAP_NET_ADMIN the system's limit applies.
            .or_else(|_| sys::set_option(&socket, level, libc::SO_RCVBUF, &half))
            .map_err(|e| ("set its receive buffer", e))?;
        // Of several sockets, each gets the datagrams of its buckets alone: none is joined.
        let receiver = Self { socket, is_set: Cell::new(sharers > 1) };
        // A socket that was passed on may be bound to a device that has gone since. A correct
        // binding is left alone: a new one would take the socket out of the group that shares its
        // port.
        device
            .map_or(Ok(()), |device| receiver.take_from_anew(device))
            .map_err(|e| ("take datagrams from its device alone", e))?;
        Ok(receiver)
    }

    /// Receives datagrams from this device alone, by its current index.
    pub(super) fn take_from(&self, device: &str) -> io::Result<()> {
        sys::bind_to_device(&self.socket, device)
    }

    /// Binds to this device again, if its index has changed; the change takes `CAP_NET_RAW`.
    pub(super) fn take_from_anew(&self, name: &str) -> io::Result<()> {
        let bound = sys::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, 0)?;
        match device(name) {
            Ok(now) if now.index.cast_signed() == bound => Ok(()),
            Ok(_) => self.take_from(name),
            // The device has another name now, or is gone.
            Err(_) => Ok(()),
        }
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Lets the kernel join datagrams, before the first is read: an earlier process, which goes on
    /// with the same socket if this one does not take over, may know nothing of joined ones.
    pub(super) fn join_once(&self) {
        if !self.is_set.replace(true) {
            // A kernel before Linux 5.0 joins none.
            _ = control::join(&self.socket);
        }
    }

    pub(super) const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// Memory of the socket: limit and use of its receive buffer, and the datagrams dropped because
    /// it was full. 32 bits, wrapping.
    pub(super) fn memory(&self) -> io::Result<Memory> {
        let info = sys::get_option(&self.socket, libc::SOL_SOCKET, libc::SO_MEMINFO, [0u32; 9])?;
        let get = |index: i32| info[usize::try_from(index).expect("an index")];
        Ok(Memory {
            limit: get(libc::SK_MEMINFO_RCVBUF).into(),
            taken: get(libc::SK_MEMINFO_RMEM_ALLOC).into(),
            drops: get(libc::SK_MEMINFO_DROPS),
        })
    }

    /// Receives into at most `count` buffers.
    pub(super) fn receive(&self, count: usize, inbox: &mut Inbox) -> io::Result<()> {
        const MAX: usize = BLOCKS;
        let count = count.min(MAX);
        // SAFETY: all zero is a value of each of these structs of numbers and pointers.
        let mut messages: [libc::mmsghdr; MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut names: [libc::sockaddr_in; MAX] = unsafe { std::mem::zeroed() };
        let mut controls = [Control::default(); MAX];
        for (nth, room) in inbox.blocks().take(count).enumerate() {
            parts[nth] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let header = &mut messages[nth].msg_hdr;
            header.msg_iov = &raw mut parts[nth];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut names[nth]).cast();
            header.msg_namelen = socket_size::<libc::sockaddr_in>();
            header.msg_control = controls[nth].as_mut_ptr().cast();
            header.msg_controllen = Control::SIZE;
        }
        let vlen = libc::c_uint::try_from(count).expect("at most BLOCKS");
        // SAFETY: the first `count` messages are filled in, and what they point to outlives the
        // call and may be written.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                vlen,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error());
        inbox.filled((0..*received.as_ref().unwrap_or(&0)).map(|nth| {
            let (message, name) = (&messages[nth], &names[nth]);
            Arrival {
                size: message.msg_len as usize,
                from: SocketAddrV4::new(
                    Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes()),
                    u16::from_be(name.sin_port),
                ),
                said: controls[nth].read(message.msg_hdr.msg_controllen),
                truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            }
        }));
        received.map(|_| ())
    }
}

/// Makes a socket at `at`. It is bound to its device before it gets the port: all sockets that
/// share a port must have the same device.
fn bind(at: SocketAddrV4, sharers: usize, device: Option<&str>) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    if let Some(device) = device {
        sys::bind_to_device(&socket, device)?;
    }
    if sharers > 1 {
        return sharing::bind(socket, at, sharers);
    }
    rustix::net::bind(&socket, &at)?;
    Ok(UdpSocket::from(socket))
}

/// The memory of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) limit: u64,
    pub(super) taken: u64,
    pub(super) drops: u32,
}

/// Destination and TOS of a staged datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) to: SocketAddrV4,
    pub(super) tos: u8,
}

/// A socket that sends, and the datagrams staged for it.
#[derive(Debug)]
pub(super) struct Sender {
    socket: UdpSocket,
    pub(super) staging: Staging<STAGED_MAX>,
    pub(super) patience: StuckHead,
    targets: [Target; STAGED_MAX],
    /// Series of each staged datagram.
    series: [SeriesNumber; STAGED_MAX],
}

/// Number of a run of datagrams of one flow and one size, the last of which may be smaller, that
/// the kernel may be given as one; 0: none.
pub(super) type SeriesNumber = u32;

impl Sender {
    pub(super) fn open(
        local: Ipv4Addr,
        datagram_size_max: usize,
    ) -> Result<Self, (&'static str, io::Error)> {
        let socket = UdpSocket::bind(SocketAddrV4::new(local, 0))
            .map_err(|e| ("bind a socket that sends", e))?;
        socket.set_nonblocking(true).map_err(|e| ("make a socket non-blocking", e))?;
        sys::receive_nothing(&socket).map_err(|e| ("close a sending socket's other side", e))?;
        guard::mark(&socket).map_err(|e| ("mark what a socket sends", e))?;
        let set = |level, name, value: i32| sys::set_option(&socket, level, name, &value);
        // Never fragmented (RFC 7348 section 4.3). The outer checksum stays on: the kernel takes
        // several datagrams as one only so, and a network card makes it.
        set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
            .map_err(|e| ("forbid fragments", e))?;
        let nowhere = Target { to: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0), tos: 0 };
        Ok(Self {
            socket,
            staging: Staging::new(datagram_size_max),
            patience: StuckHead::new(SIGNS_FULL),
            targets: [nowhere; STAGED_MAX],
            series: [0; STAGED_MAX],
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// As [`super::UdpPort::refuse_series`]: a socket without checksums.
    #[cfg(test)]
    pub(super) fn refuse_series(&self) {
        sys::set_option(&self.socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, &1).unwrap();
    }

    /// Stages a frame without its first `skip` bytes.
    pub(super) fn push(
        &mut self,
        frame: &sluice_switch::Egress<'_, crate::FrameBuf>,
        skip: usize,
        (target, series): (Target, SeriesNumber),
    ) -> Result<(), NotStaged> {
        self.staging.push(frame, skip)?;
        let place = self.staging.place(self.staging.len() - 1);
        self.targets[place] = target;
        self.series[place] = series;
        Ok(())
    }

    /// Target of the first staged datagram.
    pub(super) fn first_target(&self) -> Target {
        self.targets[self.staging.place(0)]
    }

    /// Number of datagrams, from the `first` staged one on, that the kernel is given as one.
    fn together(&self, first: usize) -> usize {
        let series = self.series[self.staging.place(first)];
        if series == 0 {
            return 1;
        }
        let each = self.staging.get(first).len();
        let (mut end, mut bytes) = (first + 1, each);
        while end < self.staging.len() && self.series[self.staging.place(end)] == series {
            let size = self.staging.get(end).len();
            bytes += size;
            if size > each || bytes > DATAGRAMS_SIZE_MAX {
                break;
            }
            end += 1;
            if size < each {
                break;
            }
        }
        end - first
    }

    /// Returns true if the first staged datagram was to go with others. From now on it and these go
    /// one by one: the kernel, or the device, may take them only so.
    #[cold]
    pub(super) fn part_first(&mut self) -> bool {
        let count = self.together(0);
        (0..count).for_each(|nth| self.series[self.staging.place(nth)] = 0);
        count > 1
    }

    /// Sends a series, of which the kernel takes all or nothing. No datagram is staged.
    pub(super) fn send_series(&self, series: &Series<'_>, target: Target) -> io::Result<()> {
        debug_assert!(self.staging.is_empty(), "no datagram overtakes another");
        // SAFETY: all zero is an empty part of a message, and an empty message.
        let mut parts: [libc::iovec; PARTS_MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        let mut name = address(target.to);
        let mut control = Control::default();
        message.msg_iovlen = series.list(&mut parts);
        message.msg_iov = parts.as_mut_ptr();
        message.msg_name = (&raw mut name).cast();
        message.msg_namelen = socket_size::<libc::sockaddr_in>();
        message.msg_controllen = control.fill(Said { tos: target.tos, each: Some(series.each) });
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: the message is filled in, and what it points to outlives the call; sending only
        // reads it.
        let sent = unsafe {
            libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends staged datagrams from the front on; returns the number that the kernel took.
    pub(super) fn send(&self) -> io::Result<usize> {
        const MAX: usize = STAGED_MAX;
        let count = self.staging.len();
        // SAFETY: all zero is a value of each of these structs of numbers and pointers.
        let mut messages: [libc::mmsghdr; MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; MAX] = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut names: [libc::sockaddr_in; MAX] = unsafe { std::mem::zeroed() };
        let mut controls = [Control::default(); MAX];
        let mut counts = [0; MAX];
        let (mut first, mut calls) = (0, 0);
        while first < count {
            let together = self.together(first);
            for (nth, part) in (first..).zip(&mut parts[first..first + together]) {
                let data = self.staging.get(nth);
                *part =
                    libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
            }
            let target = self.targets[self.staging.place(first)];
            let each = u16::try_from(self.staging.get(first).len()).ok();
            let each = each.filter(|_| together > 1);
            names[calls] = address(target.to);
            let header = &mut messages[calls].msg_hdr;
            header.msg_iov = &raw mut parts[first];
            header.msg_iovlen = together;
            header.msg_name = (&raw mut names[calls]).cast();
            header.msg_namelen = socket_size::<libc::sockaddr_in>();
            header.msg_controllen = controls[calls].fill(Said { tos: target.tos, each });
            header.msg_control = controls[calls].as_mut_ptr().cast();
            counts[calls] = together;
            first += together;
            calls += 1;
        }
        let vlen = libc::c_uint::try_from(calls).expect("at most STAGED_MAX");
        // SAFETY: the first `calls` messages are filled in, and what they point to outlives the
        // call; sending only reads it.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), vlen, flags)
        };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        Ok(counts[..sent].iter().sum())
    }
}

/// The path MTU to a host, as the kernel has learned it (RFC 1191).
pub(super) fn path_mtu(local: Ipv4Addr, to: SocketAddrV4) -> io::Result<u16> {
    let socket = UdpSocket::bind(SocketAddrV4::new(local, 0))?;
    socket.connect(to)?;
    let mtu = sys::get_option(&socket, libc::IPPROTO_IP, libc::IP_MTU, 0_i32)?;
    u16::try_from(mtu).map_err(io::Error::other)
}
