//! Keeping the kernel's own stack away from frames that are the switch's.
//!
//! The kernel keeps the underlay's address, and so it also sees the VXLAN datagrams to it. Nobody
//! in the kernel listens to them, so it would answer each with ICMP "port unreachable", at the
//! cost of its whole receive path. They are taken away behind the place where AF_PACKET sees them:
//!
//! ```text
//!   device ─▶ AF_PACKET (this port) ─▶ tcx ingress: drop ─✗
//!                                           └── anything else ─▶ ARP, ICMP, TCP of the host
//! ```
//!
//! From Linux 6.6 on this is a BPF program of 30 instructions at the device's tcx ingress hook,
//! assembled here and attached by a link that ends with its descriptor: after SIGKILL nothing is
//! left behind. Before 6.6 it is a UDP socket that owns the port and whose filter keeps nothing:
//! no ICMP either, at a higher cost per frame.
//!
//! The program also takes MAC Control frames (PAUSE, PFC) away, which the kernel would otherwise
//! count under the device's `rx_dropped`, where a real loss could hide among them.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::driver::KernelShare;
use crate::sys::receive_nothing;
use crate::udp::VXLAN_PORT;

/// What keeps the kernel away. It ends when this is dropped.
#[derive(Debug)]
pub enum Quiet {
    /// The kernel sees everything.
    Off,
    /// A program at the device's tcx ingress hook.
    Tcx(OwnedFd),
    /// A socket that owns the VXLAN port and throws away what it gets.
    Socket(UdpSocket),
}

impl Quiet {
    /// Keeps what `share` says away from the kernel, for a device.
    ///
    /// # Errors
    /// What the kernel said, if neither way works.
    pub fn open(index: u32, share: KernelShare) -> io::Result<Self> {
        Self::take_up(index, share, None)
    }

    /// The same, with what an earlier process handed over for the same device and share.
    pub(super) fn take_up(
        index: u32,
        share: KernelShare,
        kept: Option<OwnedFd>,
    ) -> io::Result<Self> {
        if let Some(kept) = kept {
            let is_socket = rustix::net::sockopt::socket_type(&kept).is_ok();
            return Ok(if is_socket { Self::Socket(kept.into()) } else { Self::Tcx(kept) });
        }
        let program = match share {
            KernelShare::All => return Ok(Self::Off),
            KernelShare::Nothing => drop_all(),
            KernelShare::NoVxlan(vtep) => drop_vxlan(vtep),
        };
        match (attach(index, &program), share) {
            (Ok(link), _) => Ok(Self::Tcx(link)),
            (Err(_), KernelShare::NoVxlan(vtep)) => own_port(vtep).map(Self::Socket),
            // Without the hook the kernel looks at frames that are not for it, and drops them.
            (Err(_), _) => Ok(Self::Off),
        }
    }

    /// What it stands on, if that can be handed over.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Off => None,
            Self::Tcx(link) => Some(link.as_fd()),
            Self::Socket(socket) => Some(socket.as_fd()),
        }
    }

    /// The way that was taken, in words.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tcx(_) => "tcx",
            Self::Socket(_) => "socket",
        }
    }
}

/// The way before Linux 6.6.
fn own_port(vtep: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddrV4::new(vtep, VXLAN_PORT))?;
    receive_nothing(&socket)?;
    Ok(socket)
}

/// One instruction of BPF (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    value: i32,
}

/// What `bpf_skb_load_bytes` is called by.
const LOAD_BYTES: i32 = 26;
/// `TC_ACT_SHOT`: the frame ends here.
const SHOT: i32 = 2;
/// `TCX_NEXT`: go on with the next program, or the stack.
const NEXT: i32 = -1;
/// Offset of `protocol` in `struct __sk_buff`: the EtherType in network order.
const SKB_PROTOCOL: i16 = 16;

const fn insn(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Insn {
    Insn { code, registers: from << 4 | to, offset, value }
}

/// r`to` = r`from`
const fn mov(to: u8, from: u8) -> Insn {
    insn(0xbf, to, from, 0, 0)
}

/// r`to` = value
const fn set(to: u8, value: i32) -> Insn {
    insn(0xb7, to, 0, 0, value)
}

/// r`to` += value
const fn add(to: u8, value: i32) -> Insn {
    insn(0x07, to, 0, 0, value)
}

/// r`to` &= value
const fn and(to: u8, value: i32) -> Insn {
    insn(0x57, to, 0, 0, value)
}

/// r`to` <<= value
const fn shift_left(to: u8, value: i32) -> Insn {
    insn(0x67, to, 0, 0, value)
}

/// r`to` = the 32, 16 or 8 bits at r`from` + offset
const fn load32(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x61, to, from, offset, 0)
}
const fn load16(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x69, to, from, offset, 0)
}
const fn load8(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x71, to, from, offset, 0)
}

const fn call(function: i32) -> Insn {
    insn(0x85, 0, 0, 0, function)
}

const EXIT: Insn = insn(0x95, 0, 0, 0, 0);

/// If the low 32 bits of r`of` are (are not) `value`, go to one of the two ends of the program.
const fn if_equal(of: u8, value: i32, end: i16) -> Insn {
    insn(0x16, of, 0, end, value)
}
const fn if_not(of: u8, value: i32, end: i16) -> Insn {
    insn(0x56, of, 0, end, value)
}

/// Marks of the two ends, until [`finish`] knows how far they are.
const TO_SHOT: i16 = -1;
const TO_NEXT: i16 = -2;

/// Adds the two ends and resolves the jumps to them.
fn finish(mut program: Vec<Insn>) -> Vec<Insn> {
    let shot = i16::try_from(program.len()).expect("a short program");
    let next = shot + 2;
    program.extend([set(0, SHOT), EXIT, set(0, NEXT), EXIT]);
    for (at, insn) in (0i16..).zip(&mut program) {
        if matches!(insn.code, 0x16 | 0x56) {
            let target = if insn.offset == TO_SHOT { shot } else { next };
            insn.offset = target - at - 1;
        }
    }
    program
}

/// Takes everything away.
fn drop_all() -> Vec<Insn> {
    vec![set(0, SHOT), EXIT] // The verifier allows no instruction that is never reached.
}

/// Takes away UDP to `vtep`, port 4789, and MAC Control.
///
/// The stack holds 20 bytes of the IPv4 header from r10 - 24 on, and 4 bytes of the UDP header from
/// r10 - 28 on. Comparisons are of bytes as they lie in memory, that is in network order.
fn drop_vxlan(vtep: Ipv4Addr) -> Vec<Insn> {
    let net16 = |value: u16| i32::from(value.to_be());
    const IP: i16 = -24;
    const UDP: i16 = -28;
    finish(vec![
        mov(6, 1),
        load32(2, 6, SKB_PROTOCOL),
        if_equal(2, net16(0x8808), TO_SHOT),
        if_not(2, net16(0x0800), TO_NEXT),
        // The IPv4 header behind Ethernet's 14 bytes.
        mov(1, 6),
        set(2, 14),
        mov(3, 10),
        add(3, IP.into()),
        set(4, 20),
        call(LOAD_BYTES),
        if_not(0, 0, TO_NEXT),
        load8(1, 10, IP + 9),
        if_not(1, 17, TO_NEXT),
        load32(1, 10, IP + 16),
        if_not(1, i32::from_ne_bytes(vtep.octets()), TO_NEXT),
        // Only a first fragment has ports.
        load16(1, 10, IP + 6),
        and(1, net16(0x1fff)),
        if_not(1, 0, TO_NEXT),
        // The UDP header behind the IPv4 header and its options.
        load8(2, 10, IP),
        and(2, 0x0f),
        shift_left(2, 2),
        add(2, 14),
        mov(1, 6),
        mov(3, 10),
        add(3, UDP.into()),
        set(4, 4),
        call(LOAD_BYTES),
        if_not(0, 0, TO_NEXT),
        load16(1, 10, UDP + 2),
        if_not(1, net16(VXLAN_PORT), TO_NEXT),
    ])
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach_type: u32,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE`, with its part for tcx.
#[repr(C)]
#[derive(Default)]
struct LinkAttr {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;

/// # Safety
/// `attr` is the right one for `command`, and all its pointers are good.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads that many bytes of a live value; the rest is the caller's promise.
    let fd =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    match i32::try_from(fd) {
        // SAFETY: the kernel just made it, and nobody else knows it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Loads a program and attaches it to the tcx ingress hook of a device.
fn attach(index: u32, program: &[Insn]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..12].copy_from_slice(b"sluice_quiet");
    let load = LoadAttr {
        kind: BPF_PROG_TYPE_SCHED_CLS,
        instructions: u32::try_from(program.len()).expect("a short program"),
        program: program.as_ptr() as u64,
        license: c"Apache-2.0".as_ptr() as u64,
        name,
        attach_type: BPF_TCX_INGRESS,
        ..LoadAttr::default()
    };
    // SAFETY: program and license are alive during the call.
    let program = unsafe { bpf(BPF_PROG_LOAD, &load) }?;
    let link = LinkAttr {
        program: program.as_raw_fd().cast_unsigned(),
        device: index,
        attach_type: BPF_TCX_INGRESS,
        ..LinkAttr::default()
    };
    // SAFETY: there is no pointer in it.
    unsafe { bpf(BPF_LINK_CREATE, &link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of older kernels: a datagram is neither answered with ICMP nor kept.
    #[test]
    fn the_socket_takes_and_keeps_nothing() {
        let vtep = Ipv4Addr::new(127, 77, 0, 1);
        let sender = UdpSocket::bind((vtep, 0)).unwrap();
        sender.connect((vtep, VXLAN_PORT)).unwrap();
        let refused = |_| sender.send(&[0; 100]).is_err();
        assert!((0..4).any(refused), "without it the kernel answers, and the sender is told");
        let socket = own_port(vtep).unwrap();
        let _told_late = sender.take_error();
        assert!(!(0..4).any(refused));
        socket.set_nonblocking(true).unwrap();
        let error = socket.recv(&mut [0; 200]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn jumps_end_at_the_two_ends() {
        let program = drop_vxlan(Ipv4Addr::new(10, 0, 0, 1));
        let (shot, next) = (program.len() - 4, program.len() - 2);
        for (at, insn) in program.iter().enumerate() {
            if matches!(insn.code, 0x16 | 0x56) {
                let target = at + 1 + usize::try_from(insn.offset).unwrap();
                assert!(target == shot || target == next, "instruction {at}");
            }
        }
        assert_eq!(program[2].offset, 30 - 3, "MAC Control is dropped");
    }
}
