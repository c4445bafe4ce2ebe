//! Questions to the kernel for the memory of one UDP socket (sock_diag(7)).

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};
use sluice_wire::guest_room::{FlowEntry, TUPLE_SIZE};

/// `SOCK_DIAG_BY_FAMILY`, `NLMSG_ERROR`, `NLM_F_REQUEST`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// `AF_INET`, `AF_INET6` and `IPPROTO_UDP`.
const INET: u8 = 2;
const INET6: u8 = 10;
const UDP: u8 = 17;
/// `INET_DIAG_SKMEMINFO`: the attribute, and places in it (`SK_MEMINFO_*`).
const MEMORY: u16 = 7;
const MEMORY_USED: usize = 0;
const MEMORY_LIMIT: usize = 4;
/// Sizes of `struct nlmsghdr`, `struct inet_diag_req_v2` and `struct inet_diag_msg`, and the place
/// of the cookie in the last one.
const HEADER_SIZE: usize = 16;
const REQUEST_SIZE: usize = HEADER_SIZE + 56;
const MESSAGE_SIZE: usize = 72;
const COOKIE: usize = 44;
/// Limit of the kernel's time to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Room of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketRoom {
    /// Identity of the socket (`SO_COOKIE`).
    pub(super) cookie: u64,
    pub(super) used: u32,
    pub(super) limit: u32,
}

/// A socket for such questions.
#[derive(Debug)]
pub(super) struct Diag {
    fd: OwnedFd,
    sequence: u32,
}

impl Diag {
    /// Opens one, and asks for a socket that is there.
    pub(super) fn open() -> io::Result<Self> {
        let fd = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
        let mut diag = Self { fd, sequence: 0 };
        let own = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let mut tuple = [0; TUPLE_SIZE];
        tuple[..8].copy_from_slice(&[127, 0, 0, 1, 127, 0, 0, 1]);
        tuple[8..10].copy_from_slice(&9_u16.to_be_bytes());
        tuple[10..12].copy_from_slice(&own.local_addr()?.port().to_be_bytes());
        // Without the module the kernel says of each socket that it is not there.
        let found = diag.room(&FlowEntry::new(false, tuple))?;
        found.map(|_| diag).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Asks for the room of a flow's socket; `None` if there is none.
    pub(super) fn room(&mut self, flow: &FlowEntry) -> io::Result<Option<SocketRoom>> {
        self.sequence = self.sequence.wrapping_add(1);
        rustix::net::send(&self.fd, &request(flow, self.sequence), SendFlags::empty())?;
        let mut buffer = [0; 1024];
        loop {
            let (size, _) = rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::empty())?;
            if let Some(answer) = answer(&buffer[..size], self.sequence) {
                return answer;
            }
        }
    }
}

/// A question for the socket of a flow. The kernel takes the local end as the destination there.
fn request(flow: &FlowEntry, sequence: u32) -> [u8; REQUEST_SIZE] {
    let mut bytes = [0; REQUEST_SIZE];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&u32::try_from(REQUEST_SIZE).expect("small").to_ne_bytes());
    put(&BY_FAMILY.to_ne_bytes());
    put(&REQUEST.to_ne_bytes());
    put(&sequence.to_ne_bytes());
    put(&[0; 4]);
    put(&[if flow.is_v6() { INET6 } else { INET }, UDP, 1 << (MEMORY - 1), 0]);
    put(&u32::MAX.to_ne_bytes());
    let (address, tuple) = (if flow.is_v6() { 16 } else { 4 }, flow.tuple());
    put(&tuple[2 * address..2 * address + 4]);
    for end in [&tuple[..address], &tuple[address..2 * address]] {
        put(end);
        put(&[0; 16][address..]);
    }
    put(&[0; 4]);
    // `INET_DIAG_NOCOOKIE`: any socket.
    put(&u64::MAX.to_ne_bytes());
    bytes
}

/// Reads an answer; `None` if it is to another question.
fn answer(bytes: &[u8], sequence: u32) -> Option<io::Result<Option<SocketRoom>>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_SIZE>()?;
    if word(header, 8)? != sequence {
        return None;
    }
    match u16::from_ne_bytes([header[4], header[5]]) {
        ERROR => {
            let number = word(rest, 0)?.cast_signed();
            Some(match number.checked_neg() {
                Some(libc::ENOENT) => Ok(None),
                Some(number) if number > 0 => Err(io::Error::from_raw_os_error(number)),
                _ => Err(io::Error::other("the kernel acknowledges and does not answer")),
            })
        }
        BY_FAMILY => {
            let size = usize::try_from(word(header, 0)?).ok()?.checked_sub(HEADER_SIZE)?;
            let room = rest.get(..size).and_then(message);
            let lacks = || io::Error::other("it does not tell a socket's memory");
            Some(room.ok_or_else(lacks).map(Some))
        }
        _ => None,
    }
}

fn message(bytes: &[u8]) -> Option<SocketRoom> {
    let cookie = u64::from_ne_bytes(*bytes.get(COOKIE..)?.first_chunk()?);
    let mut attributes = bytes.get(MESSAGE_SIZE..)?;
    loop {
        let (head, _) = attributes.split_first_chunk::<4>()?;
        let size = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let value = attributes.get(4..size)?;
        if u16::from_ne_bytes([head[2], head[3]]) == MEMORY {
            let (used, limit) = (word(value, MEMORY_USED)?, word(value, MEMORY_LIMIT)?);
            return Some(SocketRoom { cookie, used, limit });
        }
        attributes = attributes.get(size.next_multiple_of(4)..)?;
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
