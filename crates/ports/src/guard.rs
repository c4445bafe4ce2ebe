//! Guard of an underlay: no other program on this host sends to other hosts in its VTEP's name.
//!
//! A tenant may have a way out through the kernel: a `--host` port that routes for it, with or
//! without masquerading. A tenant's packet to another VTEP's VXLAN port would arrive there from
//! this host's own address, and be trusted. The receiver cannot tell; this host can: Sluice marks
//! the packets of its own sockets ([`mark`]), and a program at the devices' tcx egress hook (Linux
//! 6.6) drops and counts every other packet to an [`Endpoint`] of the fabric.
//!
//! ```text
//!   Sluice's sockets, marked ──────┐
//!   the host's own programs ───────┼─▶ tcx egress ─┬─ marked, or to nobody's endpoint ─▶ device
//!   forwarded, masqueraded, forged ┘               └─ to an endpoint, unmarked ─✗ counted
//! ```
//!
//! The source address does not count: a forged one is dropped like the host's own. Ports stand in
//! the first fragment of a datagram; without it the other fragments are useless. Up to two 802.1Q
//! tags are skipped. A TCP reset passes: the kernel itself answers with it, unmarked, for
//! connections that this host has forgotten, and it opens none.
//!
//! Programs and maps end with their descriptors, also after SIGKILL.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::device::is_ethernet;
use crate::ebpf::{
    self, EXIT, Hook, If, Insn, LOAD_BYTES, MAP_LOOKUP, Map, NEXT, Program, SHOT, SKB_LEN,
    SKB_MARK, SKB_PROTOCOL, add, add_register, and, atomic_add, call, load8, load16, load32, mov,
    set, set32, shift_left, store16, store32,
};
use crate::sys;

/// The mark of Sluice's own packets: `SL`, and zeroes in the bits that others use (Kubernetes has
/// bits 14 and 15, Cilium 8 to 11, Tailscale 18 and 19).
pub const MARK: u32 = 0x534c_0000;

/// Marks the packets of a socket as Sluice's own.
///
/// # Errors
/// The kernel's error. A missing permission (`CAP_NET_ADMIN`) is no error: without it no guard
/// could be installed either.
pub fn mark(socket: impl AsFd) -> io::Result<()> {
    let value = MARK.cast_signed();
    match sys::set_option(socket, libc::SOL_SOCKET, libc::SO_MARK, &value) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

/// A listener of another host to which only Sluice may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Its address.
    pub address: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// UDP or TCP.
    pub transport: Transport,
}

/// The two transports of the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    /// VXLAN, and the failure detector.
    Udp = 17,
    /// Sessions.
    Tcp = 6,
}

/// Frames that the guard dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Number of frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Address (4 bytes), port (2) and protocol (1), as they stand in a packet, and a zero.
type Key = [u8; KEY_SIZE];
const KEY_SIZE: usize = 8;
/// The one element of the array of counters.
const COUNTERS: [u8; 4] = [0; 4];

impl Endpoint {
    fn key(self) -> Key {
        let [a, b, c, d] = self.address.octets();
        let [e, f] = self.port.to_be_bytes();
        [a, b, c, d, e, f, self.transport as u8, 0]
    }
}

/// The guard of some devices.
#[derive(Debug)]
pub struct Guard {
    /// The map that the programs look endpoints up in.
    map: Map<KEY_SIZE, 1>,
    /// Endpoints that are in it.
    endpoints: Mutex<BTreeSet<Endpoint>>,
    ended: Map<4, 2>,
    /// Programs for devices whose frames begin with Ethernet, and for others.
    programs: [OwnedFd; 2],
    /// Index and link of each device, by name.
    links: Mutex<BTreeMap<String, (u32, OwnedFd)>>,
}

impl Guard {
    /// Makes a guard that is attached nowhere yet, with room for so many more endpoints.
    ///
    /// # Errors
    /// The kernel's error for the programs or their maps.
    pub fn new(endpoints: &[Endpoint], room: usize) -> io::Result<Self> {
        let known = Map::hash(endpoints.len() + room)?;
        for endpoint in endpoints {
            known.set(&endpoint.key(), &[1])?;
        }
        let all = Mutex::new(endpoints.iter().copied().collect());
        let ended = Map::array(1)?;
        let load = |ethernet| {
            let program = program(ethernet, &known, &ended);
            ebpf::load(&program, "sluice_guard", Hook::Egress)
        };
        let programs = [load(true)?, load(false)?];
        Ok(Self { map: known, endpoints: all, ended, programs, links: Mutex::default() })
    }

    /// Sets the endpoints. Those that stay are guarded throughout.
    ///
    /// # Errors
    /// The kernel's error; every endpoint from before is still guarded.
    pub fn set_endpoints(&self, endpoints: &[Endpoint]) -> io::Result<()> {
        let mut known = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<Endpoint> = endpoints.iter().copied().collect();
        for endpoint in wanted.difference(&known.clone()) {
            self.map.set(&endpoint.key(), &[1])?;
            known.insert(*endpoint);
        }
        for endpoint in known.clone().difference(&wanted) {
            self.map.remove(&endpoint.key())?;
            known.remove(endpoint);
        }
        Ok(())
    }

    /// Guards the device that was configured under this name, by its current index.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach(&self, name: &str, index: u32) -> io::Result<()> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.get(name).is_some_and(|(known, _)| *known == index) {
            return Ok(());
        }
        let [ethernet, other] = &self.programs;
        let program = if is_ethernet(name)? { ethernet } else { other };
        links.insert(name.to_owned(), (index, ebpf::attach(program, index, Hook::Egress)?));
        Ok(())
    }

    /// Drops the link of a device that is gone: another one may have its index.
    pub fn detach(&self, name: &str) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Frames dropped so far.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn ended(&self) -> io::Result<Ended> {
        let [frames, bytes] = self.ended.get(&COUNTERS)?;
        Ok(Ended { frames, bytes })
    }
}

/// Stack offsets of variables, below r10.
const IP: i16 = -24;
const PORTS: i16 = -28;
const FLAGS: i16 = -32;
const KEY: i16 = -40;
const KIND: i16 = -44;
const WHICH: i16 = -48;

/// Calls `bpf_skb_load_bytes`: `size` bytes from r`at` + `over` on, to the stack. r0 is 0 on
/// success.
fn load_bytes(program: &mut Program, (at, over): (u8, i32), to: i16, size: i32) {
    let to_stack = [mov(3, 10), add(3, to.into()), set(4, size), call(LOAD_BYTES)];
    program.plain(&[mov(1, 6), mov(2, at), add(2, over)]);
    program.plain(&to_stack);
}

/// Drops packets to an endpoint without the mark. r6: the frame; r7: offset of the IPv4 header; r8:
/// its protocol; r9: offset of the next header. Comparisons are of bytes as they lie in memory.
fn program(ethernet: bool, endpoints: &Map<KEY_SIZE, 1>, ended: &Map<4, 2>) -> Vec<Insn> {
    let net16 = |value: u16| i32::from(value.to_be());
    let mut program = Program::default();
    let p = &mut program;
    let (pass, shot, known) = (p.label(), p.label(), p.label());
    p.plain(&[mov(6, 1), load32(1, 6, SKB_MARK)]);
    p.jump(1, If::Is, MARK.cast_signed(), pass);
    if ethernet {
        // By the bytes of the frame: the sender may have set any other protocol in the kernel's
        // metadata.
        p.plain(&[set(7, 12)]);
        let ip = p.label();
        for _ in 0..3 {
            let tagged = p.label();
            load_bytes(p, (7, 0), KIND, 2);
            p.jump(0, If::IsNot, 0, pass);
            p.plain(&[load16(1, 10, KIND), add(7, 2)]);
            p.jump(1, If::Is, net16(0x0800), ip);
            p.jump(1, If::Is, net16(0x8100), tagged);
            p.jump(1, If::IsNot, net16(0x88a8), pass);
            p.here(tagged);
            p.plain(&[add(7, 2)]);
        }
        p.plain(&[set(0, NEXT), EXIT]);
        p.here(ip);
    } else {
        p.plain(&[set(7, 0), load32(1, 6, SKB_PROTOCOL)]);
        p.jump(1, If::IsNot, net16(0x0800), pass);
    }
    load_bytes(p, (7, 0), IP, 20);
    p.jump(0, If::IsNot, 0, pass);
    p.plain(&[load16(1, 10, IP + 6), and(1, net16(0x1fff))]);
    p.jump(1, If::IsNot, 0, pass);
    // The next header, with the ports.
    p.plain(&[load8(9, 10, IP), and(9, 0x0f), shift_left(9, 2), add_register(9, 7)]);
    load_bytes(p, (9, 0), PORTS, 4);
    p.jump(0, If::IsNot, 0, pass);
    // The rest of the key is zero but for the protocol, its 7th byte.
    p.plain(&[load8(8, 10, IP + 9), load32(1, 10, IP + 16), store32(10, KEY, 1)]);
    p.plain(&[load16(1, 10, PORTS + 2), set32(10, KEY + 4, 0), store16(10, KEY + 4, 1)]);
    p.plain(&[ebpf::store8(10, KEY + 6, 8)]);
    p.map(1, endpoints.fd());
    p.plain(&[mov(2, 10), add(2, KEY.into()), call(MAP_LOOKUP)]);
    p.jump(0, If::Null, 0, pass);
    p.jump(8, If::IsNot, Transport::Tcp as i32, known);
    load_bytes(p, (9, 13), FLAGS, 1);
    // No honest sender makes a first fragment without the TCP flags.
    p.jump(0, If::IsNot, 0, known);
    p.plain(&[load8(1, 10, FLAGS)]);
    p.jump(1, If::Has, TCP_RESET, pass);
    p.here(known);
    p.plain(&[set32(10, WHICH, 0)]);
    p.map(1, ended.fd());
    p.plain(&[mov(2, 10), add(2, WHICH.into()), call(MAP_LOOKUP)]);
    p.jump(0, If::Null, 0, shot);
    p.plain(&[set(1, 1), atomic_add(0, 0, 1), load32(1, 6, SKB_LEN), atomic_add(0, 8, 1)]);
    p.here(shot);
    p.plain(&[set(0, SHOT), EXIT]);
    p.here(pass);
    p.plain(&[set(0, NEXT), EXIT]);
    program.finish()
}

/// The flag RST (RFC 9293 section 3.1).
const TCP_RESET: i32 = 0x04;

#[cfg(test)]
mod tests;
