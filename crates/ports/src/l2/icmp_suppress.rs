//! Keeps the switch's frames from the kernel's own stack.
//!
//! The kernel keeps the underlay's address, and so it also sees the VXLAN datagrams to it. No
//! socket of the kernel takes them, so it would answer each with ICMP "port unreachable", at the
//! cost of its whole receive path. They are dropped behind the point at which AF_PACKET sees them:
//!
//! ```text
//!   device ─▶ AF_PACKET (this port) ─▶ tcx ingress: drop ─✗
//!                                           └── anything else ─▶ ARP, ICMP, TCP of the host
//! ```
//!
//! From Linux 6.6 on this is a BPF program of 30 instructions at the device's tcx ingress hook,
//! assembled here and attached by a link that ends with its descriptor: after SIGKILL nothing is
//! left behind. Before 6.6 it is a UDP socket that owns the port and whose filter keeps nothing: no
//! ICMP either, at a higher cost per frame.
//!
//! The program also drops MAC Control frames (PAUSE, PFC), which the kernel would otherwise count
//! under the device's `rx_dropped`, where a real loss could hide among them.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use super::driver::KernelShare;
use crate::ebpf::{
    self, EXIT, Hook, Insn, LOAD_BYTES, NEXT, SHOT, SKB_PROTOCOL, add, and, call, if_equal, if_not,
    load8, load16, load32, mov, set, shift_left,
};
use crate::sys::receive_nothing;
use crate::udp::VXLAN_PORT;

/// Method in use. It ends when this is dropped.
#[derive(Debug)]
pub enum KernelBypass {
    /// The kernel sees everything.
    Off,
    /// A program at the device's tcx ingress hook.
    Tcx(OwnedFd),
    /// A socket that owns the VXLAN port and discards all data.
    Socket(UdpSocket),
}

impl KernelBypass {
    /// Keeps frames of a device from the kernel, as `share` demands.
    ///
    /// # Errors
    /// The kernel's error, if neither way works.
    pub fn open(index: u32, share: KernelShare) -> io::Result<Self> {
        Self::take_up(index, share, None)
    }

    /// As [`Self::open`], with the descriptor that an earlier process handed over for the same
    /// device and share.
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
        let attached = ebpf::load(&program, "sluice_quiet", Hook::Ingress)
            .and_then(|program| ebpf::attach(&program, index, Hook::Ingress));
        match (attached, share) {
            (Ok(link), _) => Ok(Self::Tcx(link)),
            (Err(_), KernelShare::NoVxlan(vtep)) => own_port(vtep).map(Self::Socket),
            // Without the hook the kernel looks at foreign frames, and drops them.
            (Err(_), _) => Ok(Self::Off),
        }
    }

    /// Its descriptor, for a hand-over.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Off => None,
            Self::Tcx(link) => Some(link.as_fd()),
            Self::Socket(socket) => Some(socket.as_fd()),
        }
    }

    /// Name of the method.
    #[must_use]
    pub fn method(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Tcx(_) => "tcx",
            Self::Socket(_) => "socket",
        }
    }
}

/// Opens the socket of the method before Linux 6.6.
fn own_port(vtep: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(SocketAddrV4::new(vtep, VXLAN_PORT))?;
    receive_nothing(&socket)?;
    Ok(socket)
}

/// Placeholders of the two ends, until [`finish`] knows their distance.
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

/// Drops everything.
fn drop_all() -> Vec<Insn> {
    vec![set(0, SHOT), EXIT] // The verifier allows no instruction that is never reached.
}

/// Drops UDP to `vtep`, port 4789, and MAC Control.
///
/// The stack holds 20 bytes of the IPv4 header from r10 - 24 on, and 4 bytes of the UDP header from
/// r10 - 28 on. Comparisons are of bytes as they lie in memory, that is in network order.
pub(crate) fn drop_vxlan(vtep: Ipv4Addr) -> Vec<Insn> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Older kernels: a datagram is neither answered with ICMP nor kept.
    #[test]
    fn the_socket_takes_and_keeps_nothing() {
        let vtep = Ipv4Addr::new(127, 77, 0, 1);
        let sender = UdpSocket::bind((vtep, 0)).unwrap();
        sender.connect((vtep, VXLAN_PORT)).unwrap();
        let refused = |_| sender.send(&[0; 100]).is_err();
        assert!((0..4).any(refused), "without it the kernel answers, and the sender is told");
        let socket = own_port(vtep).unwrap();
        let _late_error = sender.take_error();
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
