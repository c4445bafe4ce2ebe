//! The NAPI of the switch end: run by this process alone, and told so by generic netlink
//! (`Documentation/netlink/specs/netdev.yaml`, Linux 6.13).
//!
//! After a poll the kernel waits `gro-flush-timeout` before it polls by itself, so long as polls in
//! vain are fewer than `defer-hard-irqs`. Both are set beyond all use: every poll by the kernel
//! would go on when nobody reads, and drop. A receive call on a socket that carries the NAPI's
//! number is one poll (`SO_PREFER_BUSY_POLL`). A socket gets the number with a datagram that the
//! NAPI delivered; an AF_XDP socket in copy mode never does.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::handed::PortHandover;
use crate::sys;

/// Frames of one poll of the NAPI; a receive call polls up to twice.
pub(super) const BUDGET: u32 = 64;
/// Time until the kernel polls by itself: a year.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Polls in vain until the kernel takes interrupts again: the most it allows.
const DEFER_HARD_IRQS: u32 = i32::MAX.unsigned_abs();

/// Finds the NAPI of a device with one receive queue, in the caller's namespace.
pub(super) fn find(index: u32) -> io::Result<u32> {
    let mut netdev = Generic::open()?;
    let answer = netdev.ask(NAPI_GET, NLM_F_DUMP, &[(NAPI_IFINDEX, &index.to_ne_bytes())])?;
    let mut ids = answer.iter().filter_map(|message| number(message, NAPI_ID));
    ids.next().ok_or_else(|| io::Error::other("the kernel knows no NAPI of it"))
}

/// Has the kernel leave a NAPI to this process.
pub(super) fn leave_to_us(id: u32) -> io::Result<()> {
    let timeout = u64::try_from(FLUSH_TIMEOUT.as_nanos()).expect("a year fits");
    let attributes: [(u16, &[u8]); 3] = [
        (NAPI_ID, &id.to_ne_bytes()),
        (NAPI_DEFER_HARD_IRQS, &DEFER_HARD_IRQS.to_ne_bytes()),
        (NAPI_GRO_FLUSH_TIMEOUT, &timeout.to_ne_bytes()),
    ];
    Generic::open()?.ask(NAPI_SET, NLM_F_ACK, &attributes).map(drop)
}

/// A socket that polls a NAPI.
#[derive(Debug)]
pub(super) struct Poller(OwnedFd);

// Numbers of `asm-generic/socket.h`.
const SO_BUSY_POLL: i32 = 46;
const SO_INCOMING_NAPI_ID: i32 = 56;
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;
/// Name of the descriptor when it is handed over.
const POLLER_FILE: &str = "poller";

impl Poller {
    /// Sets a socket up. It polls once it is [marked](Self::is_of).
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let set = |name, value: i32| sys::set_option(&socket, libc::SOL_SOCKET, name, &value);
        set(SO_PREFER_BUSY_POLL, 1)?;
        // A time without a meaning here: not zero means that a call polls.
        set(SO_BUSY_POLL, 1)?;
        set(SO_BUSY_POLL_BUDGET, BUDGET.cast_signed())?;
        Ok(Self(socket))
    }

    /// Returns true if the socket carries the number of this NAPI.
    pub(super) fn is_of(&self, id: u32) -> io::Result<bool> {
        let its = sys::get_option(&self.0, libc::SOL_SOCKET, SO_INCOMING_NAPI_ID, 0)?;
        Ok(its.cast_unsigned() == id)
    }

    /// Takes up the socket of an earlier process.
    pub(super) fn adopt(handed: &mut PortHandover) -> io::Result<Self> {
        Ok(Self(handed.take_file(POLLER_FILE).ok_or(io::ErrorKind::NotFound)?))
    }

    /// Adds a copy of the descriptor.
    pub(super) fn hand_over(&self, handed: &mut PortHandover) -> io::Result<()> {
        handed.file(POLLER_FILE, self.0.as_fd())
    }

    /// Runs the NAPI: it takes up to [`BUDGET`] frames, twice.
    #[inline]
    pub(super) fn poll(&self) {
        // Nobody sends to the socket; the call's effect is the poll.
        let _nothing = rustix::net::recv(&self.0, &mut [0; 1][..], RecvFlags::DONTWAIT);
    }
}

// Numbers of `linux/genetlink.h`, `linux/netdev.h` and `linux/netlink.h`.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NAPI_GET: u8 = 11;
const NAPI_SET: u8 = 14;
const NAPI_IFINDEX: u16 = 1;
const NAPI_ID: u16 = 2;
const NAPI_DEFER_HARD_IRQS: u16 = 5;
const NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const TYPE_MASK: u16 = 0x3fff;
/// Sizes of the headers of netlink, generic netlink and an attribute.
const HEADER_SIZE: usize = 16;
const GENERIC_SIZE: usize = 4;
const ATTRIBUTE_SIZE: usize = 4;
const ALIGN: usize = 4;
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const BUFFER_SIZE: usize = 16 << 10;

/// A socket for the family `netdev`.
struct Generic {
    fd: OwnedFd,
    family: u16,
}

impl Generic {
    fn open() -> io::Result<Self> {
        let family = rustix::net::netlink::GENERIC;
        let (kind, flags) = (SocketType::RAW, SocketFlags::CLOEXEC);
        let fd = rustix::net::socket_with(AddressFamily::NETLINK, kind, flags, Some(family))?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
        let name: [(u16, &[u8]); 1] = [(CTRL_ATTR_FAMILY_NAME, b"netdev\0")];
        let answer = ask(&fd, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, NLM_F_ACK, &name)?;
        let id = answer.iter().find_map(|message| {
            attribute(message, CTRL_ATTR_FAMILY_ID)?.first_chunk().copied().map(u16::from_ne_bytes)
        });
        let family = id.ok_or_else(|| io::Error::other("the kernel has no `netdev` netlink"))?;
        Ok(Self { fd, family })
    }

    fn ask(
        &mut self,
        command: u8,
        flags: u16,
        attributes: &[(u16, &[u8])],
    ) -> io::Result<Vec<Vec<u8>>> {
        ask(&self.fd, self.family, command, flags, attributes)
    }
}

/// Asks a question; returns the attributes of each message of the answer.
fn ask(
    fd: impl AsFd,
    family: u16,
    command: u8,
    flags: u16,
    attributes: &[(u16, &[u8])],
) -> io::Result<Vec<Vec<u8>>> {
    let mut question = vec![0; HEADER_SIZE];
    question[4..6].copy_from_slice(&family.to_ne_bytes());
    question[6..8].copy_from_slice(&(flags | NLM_F_REQUEST).to_ne_bytes());
    question.extend([command, 1, 0, 0]);
    for (kind, value) in attributes {
        let size = u16::try_from(ATTRIBUTE_SIZE + value.len()).expect("a small attribute");
        question.extend(size.to_ne_bytes().into_iter().chain(kind.to_ne_bytes()));
        question.extend_from_slice(value);
        question.resize(question.len().next_multiple_of(ALIGN), 0);
    }
    let size = u32::try_from(question.len()).expect("a small question");
    question[..4].copy_from_slice(&size.to_ne_bytes());
    rustix::net::send(&fd, &question, SendFlags::empty())?;
    let (mut buffer, mut answer) = (vec![0; BUFFER_SIZE], Vec::new());
    loop {
        let (_, size) = rustix::net::recv(&fd, &mut *buffer, RecvFlags::empty())?;
        let mut rest = &buffer[..size];
        while let Some((kind, body)) = message(&mut rest) {
            match kind {
                NLMSG_DONE => return Ok(answer),
                NLMSG_ERROR => {
                    let code = body.first_chunk().copied().map_or(0, i32::from_ne_bytes);
                    return match code.checked_abs() {
                        Some(0) => Ok(answer),
                        code => Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))),
                    };
                }
                _ => answer.extend(body.get(GENERIC_SIZE..).map(<[u8]>::to_vec)),
            }
        }
    }
}

/// Takes one message off: its type, and what follows its header.
fn message<'a>(rest: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let size = u32::from_ne_bytes(*rest.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*rest.get(4..)?.first_chunk()?);
    let body = rest.get(HEADER_SIZE..size)?;
    *rest = rest.get(size.next_multiple_of(ALIGN)..).unwrap_or_default();
    Some((kind, body))
}

/// The value of an attribute.
fn attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let size = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?) & TYPE_MASK;
        let value = rest.get(ATTRIBUTE_SIZE..size)?;
        if kind == wanted {
            return Some(value);
        }
        rest = rest.get(size.next_multiple_of(ALIGN)..)?;
    }
}

fn number(message: &[u8], wanted: u16) -> Option<u32> {
    attribute(message, wanted)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests;
