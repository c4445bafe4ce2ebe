//! Several sockets at one address, of which the kernel chooses by the frame inside a datagram.
//!
//! The outer source port would do as well if every peer filled it from the inner flow; RFC 7348
//! section 5 recommends that only. So the choice is made by a classic BPF program of ours over the
//! inner addresses: a pair of machines always comes to one socket. It sees a datagram from its
//! payload on, which begins with the VXLAN header.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys::{self, Instruction};

/// Where the last four bytes of the inner destination and source address are.
const DESTINATION_AT: u32 = 8 + 2;
const SOURCE_AT: u32 = 8 + 6 + 2;
/// Of Fibonacci hashing: addresses that count up come to different sockets.
const FACTOR: u32 = 0x9e37_79b1;

/// A socket at `at`, one of so many. Its number among them is the order of binding.
pub(super) fn bind(at: SocketAddrV4, sharers: usize) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    let count = u32::try_from(sharers).unwrap_or(u32::MAX);
    sys::choose_socket(&socket, &mut program(count))?;
    Ok(UdpSocket::from(socket))
}

/// Says the number of a socket. A datagram that is too short ends the program with 0: the first one
/// counts it as malformed. If there is no socket of the number yet, the kernel takes another one.
fn program(count: u32) -> [Instruction; 8] {
    use crate::sys::bpf::{ALU_K, ALU_X, DIV_MOD, LOAD_WORD, MISC_TAX, MUL, RET_A, RSH, XOR};
    [
        Instruction::new(LOAD_WORD, DESTINATION_AT),
        Instruction::new(MISC_TAX, 0),
        Instruction::new(LOAD_WORD, SOURCE_AT),
        Instruction::new(ALU_X | XOR, 0),
        Instruction::new(ALU_K | MUL, FACTOR),
        Instruction::new(ALU_K | RSH, 16),
        Instruction::new(ALU_K | DIV_MOD, count),
        Instruction::new(RET_A, 0),
    ]
}
