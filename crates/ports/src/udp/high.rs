//! Match of datagrams against the flows of high priority: the same rule twice, as a classic BPF
//! program for the kernel, and as code for a datagram that the port has read.
//!
//! ```text
//!   datagram:  | VXLAN 8 | Ethernet 14 | 802.1Q 4 or none | IPv4 20 to 60, or IPv6 40 | ports 4
//! ```
//!
//! Both look only at bytes that are there; a field that is missing matches nothing: a frame without
//! IP has no addresses, and one that ends within its TCP header may have no ports. In IPv6 only the
//! fixed header counts, so that a frame with extension headers has the protocol of the first one. A
//! fragment of IPv4 has no ports, since only the first one could show them; so the fragments of a
//! flow that matches by a port are not of high priority, nor in its order.

use std::net::IpAddr;

use sluice_base::{FlowMatch, IpPrefix};

use super::program::{Label, Program};
use crate::buckets::HighFlows;
use crate::sys::bpf::*;

impl HighFlows {
    /// Returns true if a datagram is of one of these flows.
    #[inline]
    pub(super) fn contain(&self, datagram: &[u8]) -> bool {
        !self.is_empty() && self.any_means(datagram)
    }

    fn any_means(&self, datagram: &[u8]) -> bool {
        let facts = Facts::of(datagram);
        facts.is_some_and(|facts| self.matches().iter().any(|flow| facts.agree(flow)))
    }
}

const VNI_AT: u32 = 4;
/// Offsets of the inner MACs, destination and source.
const MACS_AT: [u32; 2] = [8, 14];
const TYPE_AT: u32 = 20;
const UNTAGGED_AT: u32 = TYPE_AT + 2;
const TAGGED_AT: u32 = UNTAGGED_AT + 4;
const TAG: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const IPV4_SIZE: u32 = 20;
const IPV6_SIZE: u32 = 40;
/// Bits of an IPv4 header that a fragment has: more fragments, or an offset.
const FRAGMENT: u16 = 0x3fff;
const TCP: u8 = 6;
const UDP: u8 = 17;
const PORTS_SIZE: u32 = 4;

/// Parsed fields of a datagram, source and destination of its IP header in this order.
#[derive(Debug, Default)]
struct Facts {
    vni: u32,
    macs: [[u8; 6]; 2],
    protocol: Option<u8>,
    addresses: Option<[IpAddr; 2]>,
    ports: Option<[u16; 2]>,
}

fn behind(of: &[u8], at: u32) -> Option<&[u8]> {
    of.get(at as usize..)
}

fn bytes<const N: usize>(of: &[u8], at: u32) -> Option<[u8; N]> {
    behind(of, at)?.first_chunk().copied()
}

fn half(of: &[u8], at: u32) -> Option<u16> {
    bytes(of, at).map(u16::from_be_bytes)
}

impl Facts {
    /// Parses a datagram; `None` if it is too short to be a frame.
    fn of(datagram: &[u8]) -> Option<Self> {
        let [high, middle, low] = bytes(datagram, VNI_AT)?;
        let mut facts = Self {
            vni: u32::from_be_bytes([0, high, middle, low]),
            macs: [bytes(datagram, MACS_AT[0])?, bytes(datagram, MACS_AT[1])?],
            ..Self::default()
        };
        let kind = match half(datagram, TYPE_AT) {
            Some(TAG) => half(datagram, TAGGED_AT - 2).zip(behind(datagram, TAGGED_AT)),
            kind => kind.zip(behind(datagram, UNTAGGED_AT)),
        };
        match kind {
            Some((IPV4, packet)) => facts.read_v4(packet),
            Some((IPV6, packet)) => facts.read_v6(packet),
            _ => None,
        };
        Some(facts)
    }

    fn read_v4(&mut self, packet: &[u8]) -> Option<()> {
        let header: [u8; IPV4_SIZE as usize] = bytes(packet, 0)?;
        let size = u32::from(header[0] & 0xf) * 4;
        if size < IPV4_SIZE {
            return None;
        }
        let address = |at| bytes::<4>(&header, at).map(IpAddr::from);
        self.addresses = address(12).zip(address(16)).map(<[IpAddr; 2]>::from);
        self.protocol = Some(header[9]);
        let is_whole = half(&header, 6)? & FRAGMENT == 0;
        self.ports = ports(header[9], behind(packet, size)?).filter(|_| is_whole);
        Some(())
    }

    fn read_v6(&mut self, packet: &[u8]) -> Option<()> {
        let header: [u8; IPV6_SIZE as usize] = bytes(packet, 0)?;
        let address = |at| bytes::<16>(&header, at).map(IpAddr::from);
        self.addresses = address(8).zip(address(24)).map(<[IpAddr; 2]>::from);
        self.protocol = Some(header[6]);
        self.ports = ports(header[6], behind(packet, IPV6_SIZE)?);
        Some(())
    }

    fn agree(&self, flow: &FlowMatch) -> bool {
        let end = |end: usize| {
            let has = |ip: IpPrefix| self.addresses.is_some_and(|all| ip.contains(all[end]));
            flow.ip.is_none_or(has)
                && flow.port.is_none_or(|port| self.ports.is_some_and(|all| all[end] == port))
        };
        flow.vni.is_none_or(|vni| vni.get() == self.vni)
            && flow.mac.is_none_or(|mac| self.macs.contains(&mac.0))
            && flow.protocol.is_none_or(|protocol| self.protocol == Some(protocol))
            && (end(0) || end(1))
    }
}

fn ports(protocol: u8, payload: &[u8]) -> Option<[u16; 2]> {
    let both = half(payload, 0).zip(half(payload, 2))?;
    matches!(protocol, TCP | UDP).then_some(both.into())
}

/// Memory words of the program. No field equals `ABSENT`.
const VNI: u32 = 1;
/// 0, or the EtherType of the IP header.
const FAMILY: u32 = 2;
const PROTOCOL: u32 = 3;
/// Source and destination port.
const PORTS: [u32; 2] = [4, 5];
/// Offset of the IP header, its size, and the bytes from its offset to the end.
const START: u32 = 6;
const SIZE: u32 = 7;
const REST: u32 = 14;
const ABSENT: u32 = 1 << 16;
/// Addresses are read from the datagram again. Their offsets in the IP header: source and
/// destination.
const V4_AT: [u32; 2] = [12, 16];
const V6_AT: [u32; 2] = [8, 24];

impl HighFlows {
    /// Jumps to `high` for a datagram of one of these flows, and falls through for others. The
    /// datagram has the bytes up to the end of the inner MACs. The first word of memory is left.
    pub(super) fn compile(&self, program: &mut Program, high: Label) {
        if self.is_empty() {
            return;
        }
        read_all(program);
        for flow in self.matches() {
            let other = program.label();
            compile_one(flow, program, other);
            program.go(high);
            program.here(other);
        }
    }
}

/// Reads all fields that are there.
fn read_all(program: &mut Program) {
    let [done, with_type, v4, v6] = std::array::from_fn(|_| program.label());
    program.plain(&[(LOAD_CONSTANT, 0), (STORE, FAMILY), (STORE, START), (STORE, SIZE)]);
    program.plain(&[(STORE, REST), (LOAD_CONSTANT, ABSENT), (STORE, PROTOCOL)]);
    program.plain(&[(STORE, PORTS[0]), (STORE, PORTS[1])]);
    program.plain(&[(LOAD_WORD, VNI_AT), (ALU_K | RSH, 8), (STORE, VNI)]);
    program.plain(&[(LOAD_SIZE, 0)]);
    program.unless(JUMP_IF_NOT_BELOW, UNTAGGED_AT, done);
    program.plain(&[(LOAD_X, UNTAGGED_AT), (LOAD_HALF, TYPE_AT)]);
    let plain = program.label();
    program.unless(JUMP_IF_EQUAL, TAG.into(), plain);
    program.plain(&[(LOAD_SIZE, 0)]);
    program.unless(JUMP_IF_NOT_BELOW, TAGGED_AT, done);
    program.plain(&[(LOAD_X, TAGGED_AT), (LOAD_HALF, TAGGED_AT - 2)]);
    program.go(with_type);
    program.here(plain);
    program.here(with_type);
    // A is the EtherType, and X the offset behind it, which is not beyond the end.
    program.when(JUMP_IF_EQUAL, IPV4.into(), v4);
    program.when(JUMP_IF_EQUAL, IPV6.into(), v6);
    program.go(done);
    program.here(v4);
    read_rest(program, IPV4_SIZE, done);
    program.plain(&[(LOAD_BYTE_X, 0), (ALU_K | AND, 0xf), (ALU_K | LSH, 2)]);
    program.unless(JUMP_IF_NOT_BELOW, IPV4_SIZE, done);
    program.plain(&[(STORE, SIZE), (LOAD_CONSTANT, IPV4.into()), (STORE, FAMILY)]);
    program.plain(&[(LOAD_BYTE_X, 9), (STORE, PROTOCOL), (LOAD_HALF_X, 6)]);
    program.when(JUMP_IF_ANY, FRAGMENT.into(), done);
    read_ports(program, done);
    program.go(done);
    program.here(v6);
    read_rest(program, IPV6_SIZE, done);
    program.plain(&[(LOAD_CONSTANT, IPV6_SIZE), (STORE, SIZE)]);
    program.plain(&[(LOAD_CONSTANT, IPV6.into()), (STORE, FAMILY)]);
    program.plain(&[(LOAD_BYTE_X, 6), (STORE, PROTOCOL)]);
    read_ports(program, done);
    program.here(done);
}

/// Stores X and the bytes from there to the end; fewer than `least` end the parse.
fn read_rest(program: &mut Program, least: u32, done: Label) {
    program.plain(&[(STORE_X, START), (LOAD_SIZE, 0), (ALU_X | SUB, 0), (STORE, REST)]);
    program.unless(JUMP_IF_NOT_BELOW, least, done);
}

/// Reads the ports of TCP and UDP, if they are there. The datagram is no fragment.
fn read_ports(program: &mut Program, done: Label) {
    let has_ports = program.label();
    program.plain(&[(LOAD_STORED, PROTOCOL)]);
    program.when(JUMP_IF_EQUAL, TCP.into(), has_ports);
    program.unless(JUMP_IF_EQUAL, UDP.into(), done);
    program.here(has_ports);
    program.plain(&[(LOAD_STORED, SIZE), (ALU_K | ADD, PORTS_SIZE), (MISC_TAX, 0)]);
    program.plain(&[(LOAD_STORED, REST)]);
    program.unless(JUMP_IF_NOT_BELOW_X, 0, done);
    program.plain(&[(LOAD_X_STORED, START), (LOAD_STORED, SIZE), (ALU_X | ADD, 0)]);
    program.plain(&[(MISC_TAX, 0), (LOAD_HALF_X, 0), (STORE, PORTS[0])]);
    program.plain(&[(LOAD_HALF_X, 2), (STORE, PORTS[1])]);
}

/// Falls through if a datagram matches all given fields, else jumps to `other`.
fn compile_one(flow: &FlowMatch, program: &mut Program, other: Label) {
    let kept = |program: &mut Program, at, value, other| {
        program.plain(&[(LOAD_STORED, at)]);
        program.unless(JUMP_IF_EQUAL, value, other);
    };
    if let Some(vni) = flow.vni {
        kept(program, VNI, vni.get(), other);
    }
    if let Some(mac) = flow.mac {
        let [source, agrees] = std::array::from_fn(|_| program.label());
        let [a, b, c, d, e, f] = mac.0;
        let (first, last) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([e, f]));
        for (at, no) in MACS_AT.into_iter().zip([source, other]) {
            program.plain(&[(LOAD_WORD, at)]);
            program.unless(JUMP_IF_EQUAL, first, no);
            program.plain(&[(LOAD_HALF, at + 4)]);
            program.unless(JUMP_IF_EQUAL, last.into(), no);
            if at == MACS_AT[0] {
                program.go(agrees);
                program.here(source);
            }
        }
        program.here(agrees);
    }
    if let Some(protocol) = flow.protocol {
        kept(program, PROTOCOL, protocol.into(), other);
    }
    if let Some(ip) = flow.ip {
        let family = if ip.address().is_ipv4() { IPV4 } else { IPV6 };
        kept(program, FAMILY, family.into(), other);
        program.plain(&[(LOAD_X_STORED, START)]);
    }
    if flow.ip.is_none() && flow.port.is_none() {
        return;
    }
    let [destination, agrees] = std::array::from_fn(|_| program.label());
    for (end, no) in [destination, other].into_iter().enumerate() {
        if let Some(ip) = flow.ip {
            compile_prefix(ip, end, program, no);
        }
        if let Some(port) = flow.port {
            kept(program, PORTS[end], port.into(), no);
        }
        if end == 0 {
            program.go(agrees);
            program.here(destination);
        }
    }
    program.here(agrees);
}

/// Compares the address of one end, up to the prefix length. X is the offset of the IP header.
fn compile_prefix(ip: IpPrefix, end: usize, program: &mut Program, no: Label) {
    let (octets, at) = match ip.address() {
        IpAddr::V4(address) => (address.octets().to_vec(), V4_AT[end]),
        IpAddr::V6(address) => (address.octets().to_vec(), V6_AT[end]),
    };
    let words = octets.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word));
    for (nth, word) in (0..).zip(words) {
        let bits = u32::from(ip.length()).saturating_sub(nth * u32::BITS).min(u32::BITS);
        if bits == 0 {
            return;
        }
        program.plain(&[(LOAD_WORD_X, at + 4 * nth)]);
        if bits < u32::BITS {
            program.plain(&[(ALU_K | AND, !(u32::MAX >> bits))]);
        }
        program.unless(JUMP_IF_EQUAL, word, no);
    }
}
