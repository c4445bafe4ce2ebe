//! System calls without a safe wrapper: socket options of packet sockets, and the old device
//! ioctls.
#![allow(unsafe_code, reason = "the one place of these system calls")]

use std::ffi::{c_int, c_uint, c_ushort};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use sluice_base::Mac;
use sluice_switch::Egress;

use crate::frame::{FrameBuf, MORE_PIECES_MAX};
use crate::net_header::HEADER_SIZE;

/// A type that the kernel may read from or write to byte by byte.
///
/// # Safety
/// Every bit pattern is a value of it, it has no padding that matters and holds no pointer.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: an integer.
unsafe impl Plain for c_int {}
// SAFETY: integers only.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_umem_reg {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: integers only.
unsafe impl<const N: usize> Plain for [u32; N] {}

/// `AF_INET` and `AF_PACKET` as they stand in addresses.
pub(crate) const ADDRESS_FAMILY_INET: libc::sa_family_t = 2;
const ADDRESS_FAMILY_PACKET: libc::sa_family_t = 17;
const _: () = assert!(ADDRESS_FAMILY_INET as c_int == libc::AF_INET);
const _: () = assert!(ADDRESS_FAMILY_PACKET as c_int == libc::AF_PACKET);
/// All protocols of Ethernet, and a membership of all addresses, as they stand in structs.
pub(crate) const ALL_PROTOCOLS: u16 = 3;
pub(crate) const ALL_ADDRESSES: u16 = 1;
pub(crate) const GROUP_ADDRESS: u16 = 0;
const _: () = assert!(GROUP_ADDRESS as c_int == libc::PACKET_MR_MULTICAST);
const _: () = assert!(ALL_PROTOCOLS as c_int == libc::ETH_P_ALL);
const _: () = assert!(ALL_ADDRESSES as c_int == libc::PACKET_MR_PROMISC);

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn size_of_option<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("an option is small")
}

/// Writes a frame in one call, from all its parts, behind `net_header`. The error is the kernel's
/// number.
pub(crate) fn write_gathered(
    fd: BorrowedFd<'_>,
    net_header: &[u8],
    frame: &Egress<'_, FrameBuf>,
) -> Result<(), c_int> {
    let part = |at: *const u8, size| libc::iovec { iov_base: at.cast_mut().cast(), iov_len: size };
    let mut parts = [part(std::ptr::null(), 0); MORE_PIECES_MAX + 3];
    parts[0] = part(net_header.as_ptr(), net_header.len());
    parts[1] = part(frame.header.as_ptr(), frame.header.len());
    let mut count = 2;
    if let Some(buf) = frame.buf {
        buf.each_part(frame.strip.into(), |at, size| {
            parts[count] = part(at, size);
            count += 1;
        });
    }
    let count = c_int::try_from(count).expect("a few");
    // SAFETY: the kernel reads `count` parts, each of which is mapped while the frame is out.
    let written = unsafe { libc::writev(fd.as_raw_fd(), parts.as_ptr(), count) };
    if written < 0 {
        return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
    }
    Ok(())
}

/// Sets a socket option.
pub(crate) fn set_option<T: Plain>(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `size_of::<T>()` bytes of a live value.
    let result = unsafe {
        libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), size_of_option::<T>())
    };
    check(result).map(drop)
}

/// Binds a socket to a device: it receives only from there. Without privileges this works once
/// (since Linux 5.7).
pub(crate) fn bind_to_device(fd: impl AsFd, device: &str) -> io::Result<()> {
    let size = libc::socklen_t::try_from(device.len()).expect("a name is short");
    // SAFETY: the kernel reads that many bytes of a live value.
    let result = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_BINDTODEVICE);
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, name, device.as_ptr().cast(), size)
    };
    check(result).map(drop)
}

/// Reads a socket option.
pub(crate) fn get_option<T: Plain>(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    mut value: T,
) -> io::Result<T> {
    let mut size = size_of_option::<T>();
    // SAFETY: the kernel writes at most `size` bytes into a live value that may hold any bits.
    let result = unsafe {
        let to = std::ptr::from_mut(&mut value).cast();
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, name, to, &raw mut size)
    };
    check(result).map(|_| value)
}

/// Opens a packet socket that is not bound to a protocol yet.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to a device. `protocol` 0: it receives nothing.
pub(crate) fn bind_packet(fd: impl AsFd, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: ADDRESS_FAMILY_PACKET,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the kernel reads that many bytes of a live value.
    let result = unsafe {
        libc::bind(
            fd.as_fd().as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of_option::<libc::sockaddr_ll>(),
        )
    };
    check(result).map(drop)
}

/// Makes a socket receive nothing: a classic BPF filter of one instruction, "keep 0 bytes".
pub(crate) fn receive_nothing(fd: impl AsFd) -> io::Result<()> {
    attach_program(fd, libc::SO_ATTACH_FILTER, &mut [Instruction::new(bpf::RET_K, 0)])
}

/// Makes a socket receive only frames that a program of classic BPF keeps.
pub(crate) fn filter(fd: impl AsFd, program: &mut [Instruction]) -> io::Result<()> {
    attach_program(fd, libc::SO_ATTACH_FILTER, program)
}

/// An instruction of classic BPF.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Instruction(libc::sock_filter);

impl Instruction {
    /// An instruction without jumps.
    pub(crate) const fn new(code: u16, k: u32) -> Self {
        Self(libc::sock_filter { code, jt: 0, jf: 0, k })
    }

    /// Operation, jumps and operand.
    #[cfg(test)]
    pub(crate) const fn parts(self) -> (u16, u8, u8, u32) {
        (self.0.code, self.0.jt, self.0.jf, self.0.k)
    }

    /// A comparison with `k`, and the numbers of instructions to skip if it holds, and if not.
    pub(crate) const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Self {
        Self(libc::sock_filter { code, jt, jf, k })
    }
}

/// Operations of classic BPF (`linux/bpf_common.h`, `linux/filter.h`).
pub(crate) mod bpf {
    pub(crate) const LOAD_CONSTANT: u16 = 0x00;
    pub(crate) const LOAD_WORD: u16 = 0x20;
    pub(crate) const LOAD_HALF: u16 = 0x28;
    pub(crate) const LOAD_BYTE: u16 = 0x30;
    /// Size of the packet in bytes.
    pub(crate) const LOAD_SIZE: u16 = 0x80;
    /// Loads from this offset behind X.
    pub(crate) const LOAD_WORD_X: u16 = 0x40;
    pub(crate) const LOAD_HALF_X: u16 = 0x48;
    pub(crate) const LOAD_BYTE_X: u16 = 0x50;
    /// Loads a constant into X.
    pub(crate) const LOAD_X: u16 = 0x01;
    /// Load from and store to the program's own memory.
    pub(crate) const LOAD_STORED: u16 = 0x60;
    pub(crate) const STORE: u16 = 0x02;
    /// Load and store of X.
    pub(crate) const LOAD_X_STORED: u16 = 0x61;
    pub(crate) const STORE_X: u16 = 0x03;
    pub(crate) const JUMP: u16 = 0x05;
    pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
    pub(crate) const JUMP_IF_NOT_BELOW: u16 = 0x35;
    pub(crate) const JUMP_IF_NOT_BELOW_X: u16 = 0x3d;
    /// Jumps if the operands have a bit in common.
    pub(crate) const JUMP_IF_ANY: u16 = 0x45;
    pub(crate) const MISC_TAX: u16 = 0x07;
    pub(crate) const RET_K: u16 = 0x06;
    pub(crate) const RET_A: u16 = 0x16;
    pub(crate) const ALU_K: u16 = 0x04;
    pub(crate) const ALU_X: u16 = 0x0c;
    pub(crate) const ADD: u16 = 0x00;
    pub(crate) const SUB: u16 = 0x10;
    pub(crate) const MUL: u16 = 0x20;
    pub(crate) const AND: u16 = 0x50;
    pub(crate) const LSH: u16 = 0x60;
    pub(crate) const RSH: u16 = 0x70;
    pub(crate) const XOR: u16 = 0xa0;
}

/// Attaches a program that selects among the sockets that share an address: it returns the number
/// of one, in the order of binding.
pub(crate) fn choose_socket(fd: impl AsFd, program: &mut [Instruction]) -> io::Result<()> {
    attach_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

fn attach_program(fd: impl AsFd, option: c_int, program: &mut [Instruction]) -> io::Result<()> {
    let len = c_ushort::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr().cast() };
    // SAFETY: the kernel reads the program and its `len` instructions, all alive; an `Instruction`
    // is laid out as the kernel's.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(&program).cast(),
            size_of_option::<libc::sock_fprog>(),
        )
    };
    check(result).map(drop)
}

/// Locks the programs of a socket, for good.
pub(crate) fn lock_filter(fd: impl AsFd) -> io::Result<()> {
    let on: c_int = 1;
    // SAFETY: the kernel reads one number.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LOCK_FILTER,
            std::ptr::from_ref(&on).cast(),
            size_of_option::<c_int>(),
        )
    };
    check(result).map(drop)
}

/// Calls `membarrier` with one of its commands (`linux/membarrier.h`).
fn membarrier(command: c_int) -> io::Result<libc::c_long> {
    // SAFETY: three numbers, no pointer.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

const MEMBARRIER_QUERY: c_int = 0;
/// A grace period of RCU, which also waits for all code with bottom halves off (since 5.0).
const MEMBARRIER_GLOBAL: c_int = 1;

/// Returns true if [`grace_period`] works here; it does not on a kernel with tickless CPUs.
pub(crate) fn knows_grace_period() -> bool {
    let global = libc::c_long::from(MEMBARRIER_GLOBAL);
    membarrier(MEMBARRIER_QUERY).is_ok_and(|commands| commands & global != 0)
}

/// Waits until all network work that the kernel had begun, on any CPU, is done.
pub(crate) fn grace_period() -> io::Result<()> {
    membarrier(MEMBARRIER_GLOBAL).map(drop)
}

/// The IPv4 addresses of this namespace, with the names of their devices.
pub(crate) fn addresses() -> io::Result<Vec<(String, Ipv4Addr)>> {
    let mut first = std::ptr::null_mut::<libc::ifaddrs>();
    // SAFETY: it writes one pointer, to a list that is freed below.
    check(unsafe { libc::getifaddrs(&raw mut first) })?;
    let (mut at, mut found) = (first, Vec::new());
    // SAFETY: the list is alive until it is freed, and ends with null; an address of the family
    // AF_INET is a `sockaddr_in`, a name is a C string.
    unsafe {
        while let Some(entry) = at.as_ref() {
            let is_inet = entry
                .ifa_addr
                .as_ref()
                .is_some_and(|address| address.sa_family == ADDRESS_FAMILY_INET);
            if is_inet {
                let own = entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                let name = std::ffi::CStr::from_ptr(entry.ifa_name).to_string_lossy().into_owned();
                found.push((name, Ipv4Addr::from(own.sin_addr.s_addr.to_ne_bytes())));
            }
            at = entry.ifa_next;
        }
        libc::freeifaddrs(first);
    }
    Ok(found)
}

/// A request about one device.
#[derive(Clone, Copy)]
pub(crate) struct DeviceRequest(libc::ifreq);

impl DeviceRequest {
    /// Makes a request; `None` if Linux takes no such name.
    pub(crate) fn new(name: &str) -> Option<Self> {
        // SAFETY: `ifreq` is integers, and a pointer that may be null.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let bytes = name.as_bytes();
        let bad = |&b: &u8| b == b'/' || b == 0 || b.is_ascii_whitespace();
        if bytes.is_empty() || bytes.len() >= libc::IFNAMSIZ || bytes.iter().any(bad) {
            return None;
        }
        for (to, &from) in request.ifr_name.iter_mut().zip(bytes) {
            *to = from.cast_signed();
        }
        Some(Self(request))
    }

    fn call(mut self, fd: BorrowedFd<'_>, number: libc::c_ulong) -> io::Result<Self> {
        // SAFETY: `number` is one of the requests below, all of which read and write an `ifreq`
        // and nothing else.
        check(unsafe { libc::ioctl(fd.as_raw_fd(), number, &raw mut self.0) })?;
        Ok(self)
    }

    pub(crate) fn index(self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        let answer = self.call(fd, libc::SIOCGIFINDEX)?;
        // SAFETY: the kernel wrote this member.
        Ok(unsafe { answer.0.ifr_ifru.ifru_ifindex }.cast_unsigned())
    }

    pub(crate) fn mtu(self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        let answer = self.call(fd, libc::SIOCGIFMTU)?;
        // SAFETY: the kernel wrote this member.
        Ok(unsafe { answer.0.ifr_ifru.ifru_mtu }.cast_unsigned())
    }

    pub(crate) fn flags(self, fd: BorrowedFd<'_>) -> io::Result<c_int> {
        let answer = self.call(fd, libc::SIOCGIFFLAGS)?;
        // SAFETY: the kernel wrote this member.
        Ok(c_int::from(unsafe { answer.0.ifr_ifru.ifru_flags }))
    }

    pub(crate) fn mac(self, fd: BorrowedFd<'_>) -> io::Result<Mac> {
        let answer = self.call(fd, libc::SIOCGIFHWADDR)?;
        // SAFETY: the kernel wrote this member.
        let bytes = unsafe { answer.0.ifr_ifru.ifru_hwaddr.sa_data };
        Ok(Mac(std::array::from_fn(|n| bytes[n].cast_unsigned())))
    }

    /// Returns true for Ethernet, and for loopback, whose frames begin like those of Ethernet.
    pub(crate) fn has_ethernet(self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        let answer = self.call(fd, libc::SIOCGIFHWADDR)?;
        // SAFETY: the kernel wrote this member.
        let kind = unsafe { answer.0.ifr_ifru.ifru_hwaddr.sa_family };
        Ok(matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
    }

    pub(crate) fn set_mtu(mut self, fd: BorrowedFd<'_>, mtu: u16) -> io::Result<()> {
        self.0.ifr_ifru.ifru_mtu = mtu.into();
        self.call(fd, libc::SIOCSIFMTU).map(drop)
    }

    pub(crate) fn set_queue_frames(mut self, fd: BorrowedFd<'_>, frames: u32) -> io::Result<()> {
        self.0.ifr_ifru.ifru_metric = frames.cast_signed(); // `ifr_qlen` is the same member.
        self.call(fd, libc::SIOCSIFTXQLEN).map(drop)
    }

    pub(crate) fn set_mac(mut self, fd: BorrowedFd<'_>, mac: Mac) -> io::Result<()> {
        let mut address =
            libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: Default::default() };
        for (to, from) in address.sa_data.iter_mut().zip(mac.0) {
            *to = from.cast_signed();
        }
        self.0.ifr_ifru.ifru_hwaddr = address;
        self.call(fd, libc::SIOCSIFHWADDR).map(drop)
    }

    pub(crate) fn set_up(mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let flags = self.flags(fd)? | libc::IFF_UP;
        #[expect(clippy::cast_possible_truncation, reason = "the kernel keeps 16 bits of them")]
        let flags = flags as libc::c_short;
        self.0.ifr_ifru.ifru_flags = flags;
        self.call(fd, libc::SIOCSIFFLAGS).map(drop)
    }

    /// Attaches `tun` to the TAP of this name, making it if there is none. Frames have a
    /// [`net_header`](crate::net_header) in front. With `holds` a full ring holds its senders.
    pub(crate) fn attach_tap(mut self, tun: BorrowedFd<'_>, holds: bool) -> io::Result<()> {
        let hold = if holds { IFF_BACKPRESSURE } else { 0 };
        #[expect(clippy::cast_possible_truncation, reason = "0x5082")]
        let flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | hold) as libc::c_short;
        self.0.ifr_ifru.ifru_flags = flags;
        self.call(tun, libc::TUNSETIFF).map(drop)
    }

    /// Makes one ethtool request: `command` with one value, which may come back changed.
    pub(crate) fn ethtool(
        mut self,
        fd: BorrowedFd<'_>,
        command: u32,
        value: u32,
    ) -> io::Result<u32> {
        /// `struct ethtool_value`.
        #[repr(C)]
        struct Value {
            command: u32,
            data: u32,
        }
        let mut request = Value { command, data: value };
        self.0.ifr_ifru.ifru_data = std::ptr::from_mut(&mut request).cast();
        self.call(fd, libc::SIOCETHTOOL)?;
        // SAFETY: the kernel wrote through the pointer, so the value is read as one that may have
        // changed.
        Ok(unsafe { std::ptr::read_volatile(&raw const request.data) })
    }
}

/// `struct ethtool_cmd` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct LinkSettings {
    command: u32,
    supported: u32,
    advertising: u32,
    speed_low: u16,
    /// Duplex, port, address of the PHY, transceiver, negotiation, MDIO.
    bytes: [u8; 6],
    packets: [u32; 2],
    speed_high: u16,
    crossing: [u8; 2],
    advertised_by_peer: u32,
    reserved: [u32; 2],
}

const _: () = assert!(size_of::<LinkSettings>() == 44);

impl DeviceRequest {
    /// Returns the speed of a device in Mbit/s, as its driver says it; `None` if it knows none.
    pub(crate) fn speed_mbps(mut self, fd: BorrowedFd<'_>) -> io::Result<Option<u32>> {
        /// `ETHTOOL_GSET`.
        const GET_SETTINGS: u32 = 1;
        /// `SPEED_UNKNOWN`.
        const UNKNOWN: u32 = u32::MAX;
        let mut settings = LinkSettings { command: GET_SETTINGS, ..LinkSettings::default() };
        self.0.ifr_ifru.ifru_data = std::ptr::from_mut(&mut settings).cast();
        match self.call(fd, libc::SIOCETHTOOL) {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(None),
            called => _ = called?,
        }
        // SAFETY: the kernel wrote through the pointer, so the value is read as one that may have
        // changed.
        let settings = unsafe { std::ptr::read_volatile(&raw const settings) };
        let speed = u32::from(settings.speed_high) << 16 | u32::from(settings.speed_low);
        Ok(Some(speed).filter(|speed| !matches!(*speed, 0 | UNKNOWN)))
    }
}

/// A full ring stops the queue of its device (Linux 7.3).
pub(crate) const IFF_BACKPRESSURE: c_int = 0x80;

/// State of an attached TAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapState {
    /// Its name, which its owner may have changed.
    pub(crate) name: String,
    /// True if it outlives its descriptors.
    pub(crate) is_persistent: bool,
    /// True if frames have a [`net_header`](crate::net_header) in front.
    pub(crate) has_net_header: bool,
    /// True if a full ring holds its senders.
    pub(crate) holds: bool,
}

/// Returns the state of an attached TAP; an error if its device is gone.
pub(crate) fn tap_state(tun: BorrowedFd<'_>) -> io::Result<TapState> {
    // SAFETY: `ifreq` is integers, and a pointer that may be null.
    let request = DeviceRequest(unsafe { std::mem::zeroed() });
    let answer = request.call(tun, libc::TUNGETIFF)?.0;
    let name = answer.ifr_name.iter().take_while(|&&c| c != 0).map(|&c| c.cast_unsigned());
    // SAFETY: the kernel wrote this member.
    let flags = c_int::from(unsafe { answer.ifr_ifru.ifru_flags });
    Ok(TapState {
        name: String::from_utf8_lossy(&name.collect::<Vec<u8>>()).into_owned(),
        is_persistent: flags & libc::IFF_PERSIST != 0,
        has_net_header: flags & libc::IFF_VNET_HDR != 0,
        holds: flags & IFF_BACKPRESSURE != 0,
    })
}

/// Makes an attached TAP outlive its descriptors.
pub(crate) fn tap_persist(tun: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: this request takes a number, no pointer.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETPERSIST, 1 as libc::c_ulong) })
        .map(drop)
}

/// Returns the flags that this kernel knows for a TAP.
pub(crate) fn tun_features(tun: impl AsFd) -> io::Result<u32> {
    let mut flags: c_uint = 0;
    let fd = tun.as_fd().as_raw_fd();
    // SAFETY: the kernel writes one `unsigned int` behind the pointer, which lives until the call
    // returns.
    check(unsafe { libc::ioctl(fd, libc::TUNGETFEATURES, &raw mut flags) })?;
    Ok(flags)
}

/// Sets the carrier of an attached TAP.
pub(crate) fn tap_carrier(tun: BorrowedFd<'_>, is_on: bool) -> io::Result<()> {
    let carrier = c_int::from(is_on);
    // SAFETY: the kernel reads one `int` behind the pointer, which lives until the call returns.
    check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETCARRIER, &raw const carrier) })
        .map(drop)
}

/// The network namespace in which the device of an attached TAP lies now.
pub(crate) fn tap_netns(tun: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // SAFETY: this request takes nothing and returns a descriptor.
    let fd = check(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNGETDEVNETNS) })?;
    // SAFETY: the kernel just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets size and byte order of the header in front of frames of an attached TAP.
pub(crate) fn tap_net_header(tun: BorrowedFd<'_>) -> io::Result<()> {
    let size = c_int::try_from(HEADER_SIZE).expect("a few bytes");
    let is_little_endian: c_int = 1;
    let set = |request, value: *const c_int| {
        // SAFETY: the kernel reads one `int` behind the pointer, which lives until the call
        // returns.
        check(unsafe { libc::ioctl(tun.as_raw_fd(), request, value) }).map(drop)
    };
    set(libc::TUNSETVNETHDRSZ, &raw const size)?;
    set(libc::TUNSETVNETLE, &raw const is_little_endian)
}

/// Sets the offloads that the kernel may leave to the reader of an attached TAP: open checksums,
/// and the segmentation of TCP and, since Linux 6.2, of UDP; or none of them, so that each read
/// gives one finished wire frame.
pub(crate) fn tap_offloads(tun: BorrowedFd<'_>, are_on: bool) -> io::Result<()> {
    const TCP: c_uint =
        libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    const UDP: c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    let set = |flags: c_uint| {
        // SAFETY: this request takes a number, no pointer.
        check(unsafe {
            libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags))
        })
        .map(drop)
    };
    if !are_on {
        return set(0);
    }
    set(TCP | UDP).or_else(|_older| set(TCP))
}

/// Replaces a descriptor that another owner has by a duplicate of `by`.
pub(crate) fn replace_descriptor(number: RawFd, by: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is touched; the number stays open, and its owner's.
    let done = unsafe { libc::dup3(by.as_raw_fd(), number, libc::O_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
