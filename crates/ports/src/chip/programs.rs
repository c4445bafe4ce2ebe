//! Which frames go to the kernel and which to the switch, as programs of BPF.
//!
//! The *filter* of a ring keeps what is the switch's. A frame is the kernel's if both of its
//! addresses are in the chip, its source at the place where it came in, and nothing about it needs
//! a decision: no group address, no tag, no ARP, no Neighbor Discovery, a sender that may send it.
//! The filter notes what it decides ([`FORWARD`], [`TAKEN`], [`LEFT`]), with the device, and the
//! program at the ingress hook behind it ([`obey_port`], [`obey_underlay`]) lets the frame pass to
//! the kernel's bridge or VXLAN device, or not. That program takes the note away, so that it is for
//! this frame alone.
//!
//! A frame without a note has met no filter: the ring is not there yet, or not any more, since a
//! process closes its descriptors one after the other. It passes, as if there were no program: the
//! kernel forwards what it knows while nobody else does.
//!
//! Registers: r6 is the frame, r7 the entry of its destination, r8 that of its source or the place
//! of its tunnel, r9 the network of a frame that came through a tunnel.

use std::io;
use std::net::Ipv4Addr;

use sluice_base::{Mac, VnetId};

use super::maps::{
    ANY, HIT_FROM, HIT_TO, IP, IPV6, Maps, ONLY_IPV4, ONLY_IPV6, PLACE, RULE, TUNNEL,
};
use crate::ebpf::{
    self, EXIT, Hook, If, Insn, LOAD_BYTES, Label, MAP_LOOKUP, NEXT, Program, SHOT, SKB_MARK, add,
    add_register, and, call, load8, load16, load32, load64, mov, set, set32, store8, store16,
    store32, store64, sub_register,
};
use crate::guard::MARK;
use crate::l2::icmp_suppress;
use crate::udp::VXLAN_PORT;

/// Notes: this frame is the switch's.
const TAKEN: i32 = 1;
/// It is the kernel's, which is to forward it.
const FORWARD: i32 = 2;
/// It is nobody's to forward: flow control, or the host's own.
const LEFT: i32 = 3;
/// Offsets of the note and of its device in the word of the verdict.
const NOTE: i16 = 0;
const DEVICE: i16 = 4;
/// Offsets in `struct __sk_buff`.
const SKB_PACKET_TYPE: i16 = 4;
const SKB_VLAN_PRESENT: i16 = 20;
const SKB_IFINDEX: i16 = 40;

/// Places on the stack, from r10 on.
const ETHERNET: i16 = -16;
const BYTES: i16 = -24;
const KEY: i16 = -32;
const OUTER: i16 = -64;
const INNER: i16 = -96;
const NUMBER: i16 = -104;

/// EtherTypes.
const IPV4_TYPE: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6_TYPE: u16 = 0x86dd;
const QINQ: u16 = 0x88a8;
const MAC_CONTROL: u16 = 0x8808;
/// Size of the Ethernet header, and offsets of a tunnelled frame.
const ETHERNET_SIZE: i32 = 14;
const VXLAN_AT: i32 = ETHERNET_SIZE + 20 + 8;
const INNER_AT: i32 = VXLAN_AT + 8;

fn net16(value: u16) -> i32 {
    value.to_be().into()
}

/// A filter under construction, with its ends.
struct Filter<'a> {
    program: Program,
    maps: &'a Maps,
    /// The switch takes the frame.
    take: Label,
    /// Neither does the kernel.
    leave: Label,
    /// There is no place for a note, which the verifier has to be told of.
    mute: Label,
}

impl<'a> Filter<'a> {
    fn new(maps: &'a Maps) -> Self {
        let mut program = Program::default();
        let [take, leave, mute] = [(); 3].map(|()| program.label());
        program.plain(&[mov(6, 1)]);
        Self { program, maps, take, leave, mute }
    }

    /// Copies bytes of the frame onto the stack; without them the switch takes it.
    fn load(&mut self, from: i32, to: i16, size: i32) {
        let p = &mut self.program;
        p.plain(&[mov(1, 6), set(2, from), mov(3, 10), add(3, to.into()), set(4, size)]);
        p.plain(&[call(LOAD_BYTES)]);
        p.jump(0, If::IsNot, 0, self.take);
    }

    /// Leaves flow control, which has a ring of its own, to that.
    fn without_flow_control(&mut self) {
        let p = &mut self.program;
        let [a, b, c, d, e, f] = Mac::PAUSE.0;
        let other = p.label();
        p.plain(&[load16(2, 10, ETHERNET + 12)]);
        p.jump(2, If::IsNot, net16(MAC_CONTROL), other);
        p.plain(&[load32(2, 6, SKB_VLAN_PRESENT)]);
        p.jump(2, If::IsNot, 0, self.take);
        p.plain(&[load32(2, 10, ETHERNET)]);
        p.jump(2, If::IsNot, i32::from_ne_bytes([a, b, c, d]), self.take);
        p.plain(&[load16(2, 10, ETHERNET + 4)]);
        p.jump(2, If::IsNot, u16::from_ne_bytes([e, f]).into(), self.take);
        p.jump(2, If::Is, u16::from_ne_bytes([e, f]).into(), self.leave);
        p.here(other);
    }

    /// Gives the switch what needs a decision; `header` is on the stack, at `at` in the frame.
    fn without_decisions(&mut self, header: i16, at: i32) {
        const ICMPV6: i32 = 58;
        let done = self.program.label();
        let p = &mut self.program;
        p.plain(&[load8(2, 10, header)]);
        p.jump(2, If::Has, 1, self.take);
        p.plain(&[load16(2, 10, header + 12)]);
        for kind in [ARP, VLAN, QINQ, MAC_CONTROL] {
            p.jump(2, If::Is, net16(kind), self.take);
        }
        p.jump(2, If::IsNot, net16(IPV6_TYPE), done);
        self.load(at + ETHERNET_SIZE + 6, BYTES, 1);
        let p = &mut self.program;
        p.plain(&[load8(2, 10, BYTES)]);
        p.jump(2, If::IsNot, ICMPV6, done);
        self.load(at + ETHERNET_SIZE + 40, BYTES, 1);
        let p = &mut self.program;
        p.plain(&[load8(2, 10, BYTES)]);
        for kind in 133..=137 {
            p.jump(2, If::Is, kind, self.take);
        }
        p.here(done);
    }

    /// Looks up an address on the stack, of the network in r9. The result is in r0.
    fn look_up(&mut self, mac: i16) {
        let p = &mut self.program;
        for half in [0, 2, 4] {
            p.plain(&[load16(2, 10, mac + half), store16(10, KEY + half, 2)]);
        }
        p.plain(&[store16(10, KEY + 6, 9)]);
        p.map(1, self.maps.fdb.fd());
        p.plain(&[mov(2, 10), add(2, KEY.into()), call(MAP_LOOKUP)]);
        p.jump(0, If::Null, 0, self.take);
    }

    /// Notes uses of the entries in r7 and r8, and the verdict.
    fn forward(mut self) -> Vec<Insn> {
        for (entry, hit) in [(7, HIT_TO), (8, HIT_FROM)] {
            let p = &mut self.program;
            let known = p.label();
            p.plain(&[load8(2, entry, hit)]);
            p.jump(2, If::IsNot, 0, known);
            p.plain(&[set(2, 1), store8(entry, hit, 2)]);
            p.here(known);
        }
        self.note(FORWARD);
        // The verdict is still in r0; frames are counted behind it.
        let p = &mut self.program;
        p.plain(&[load64(2, 0, 8), set(3, 1), add_register(2, 3), store64(0, 8, 2)]);
        p.plain(&[set(0, 0), EXIT]);
        p.here(self.leave);
        self.note(LEFT);
        self.program.plain(&[set(0, 0), EXIT]);
        self.program.here(self.take);
        self.note(TAKEN);
        self.program.here(self.mute);
        self.program.plain(&[set(0, -1), EXIT]);
        self.program.finish()
    }

    /// Notes a verdict on the frame. Its place is in r0 then.
    fn note(&mut self, verdict: i32) {
        let p = &mut self.program;
        p.plain(&[set32(10, BYTES, 0)]);
        p.map(1, self.maps.verdict.fd());
        p.plain(&[mov(2, 10), add(2, BYTES.into()), call(MAP_LOOKUP)]);
        p.jump(0, If::Null, 0, self.mute);
        p.plain(&[set(2, verdict), store32(0, NOTE, 2)]);
        p.plain(&[load32(2, 6, SKB_IFINDEX), store32(0, DEVICE, 2)]);
    }
}

/// Returns the filter of the ring of a port, whose device has this index.
pub(super) fn port(maps: &Maps, vnet: VnetId, index: u32) -> Vec<Insn> {
    let own = index.cast_signed();
    let mut filter = Filter::new(maps);
    filter.load(0, ETHERNET, ETHERNET_SIZE);
    filter.without_flow_control();
    let p = &mut filter.program;
    p.plain(&[load32(2, 6, SKB_VLAN_PRESENT)]);
    p.jump(2, If::IsNot, 0, filter.take);
    filter.without_decisions(ETHERNET, 0);
    filter.program.plain(&[set(9, vnet.0.into())]);
    filter.look_up(ETHERNET);
    let p = &mut filter.program;
    p.plain(&[mov(7, 0), load32(2, 7, PLACE)]);
    // The kernel sends nothing back to where it came from.
    p.jump(2, If::Is, own, filter.take);
    filter.look_up(ETHERNET + 6);
    let p = &mut filter.program;
    p.plain(&[mov(8, 0), load32(2, 8, PLACE)]);
    p.jump(2, If::IsNot, own, filter.take);
    filter.only_its_own();
    filter.forward()
}

/// Returns the filter of the underlay's ring. What is not VXLAN to this VTEP is told apart as
/// without a chip (`l2/filter.rs`).
pub(super) fn underlay(maps: &Maps, vtep: Ipv4Addr) -> Vec<Insn> {
    let mut filter = Filter::new(maps);
    filter.load(0, ETHERNET, ETHERNET_SIZE);
    filter.without_flow_control();
    filter.of_vtep(vtep);
    filter.load(VXLAN_AT, INNER, 8 + ETHERNET_SIZE);
    let p = &mut filter.program;
    p.plain(&[load8(2, 10, INNER)]);
    p.jump(2, If::IsNot, 0x08, filter.take);
    // The VNI, without the reserved byte behind it.
    p.plain(&[load32(2, 10, INNER + 4), and(2, i32::from_ne_bytes([255, 255, 255, 0]))]);
    p.plain(&[store32(10, NUMBER, 2)]);
    p.map(1, maps.vnis.fd());
    p.plain(&[mov(2, 10), add(2, NUMBER.into()), call(MAP_LOOKUP)]);
    p.jump(0, If::Null, 0, filter.take);
    p.plain(&[load32(9, 0, 0), load32(2, 10, OUTER + 12), store32(10, KEY, 2)]);
    p.plain(&[store16(10, KEY + 4, 9), set(2, 0), store16(10, KEY + 6, 2)]);
    p.map(1, maps.decap.fd());
    p.plain(&[mov(2, 10), add(2, KEY.into()), call(MAP_LOOKUP)]);
    p.jump(0, If::Null, 0, filter.take);
    p.plain(&[load32(8, 0, 0)]);
    filter.without_decisions(INNER + 8, INNER_AT);
    filter.look_up(INNER + 8);
    let p = &mut filter.program;
    p.plain(&[mov(7, 0), load32(2, 7, PLACE)]);
    // Split horizon: nothing goes from one tunnel into another.
    p.jump(2, If::Has, TUNNEL.cast_signed(), filter.take);
    filter.look_up(INNER + 8 + 6);
    let p = &mut filter.program;
    p.plain(&[load32(2, 0, PLACE), sub_register(2, 8), mov(8, 0)]);
    p.jump(2, If::IsNot, 0, filter.take);
    filter.forward()
}

impl Filter<'_> {
    /// Gives the switch what the entry in r8 may not send. The network in r9 goes.
    fn only_its_own(&mut self) {
        let p = &mut self.program;
        let (allowed, other) = (p.label(), p.label());
        p.plain(&[load8(9, 8, RULE)]);
        p.jump(9, If::Has, ANY.into(), allowed);
        p.plain(&[load16(2, 10, ETHERNET + 12)]);
        p.jump(2, If::IsNot, net16(IPV4_TYPE), other);
        self.unless_ruled(ONLY_IPV4);
        self.compare(ETHERNET_SIZE + 12, IP, 1);
        let p = &mut self.program;
        p.plain(&[set(0, 0)]);
        p.jump(0, If::Is, 0, allowed);
        p.here(other);
        p.jump(2, If::IsNot, net16(IPV6_TYPE), self.take);
        self.unless_ruled(ONLY_IPV6);
        self.compare(ETHERNET_SIZE + 8, IPV6, 4);
        self.program.here(allowed);
    }

    /// Gives the switch the frame if the rule in r9 does not have this bit.
    fn unless_ruled(&mut self, bit: u8) {
        let p = &mut self.program;
        p.plain(&[mov(3, 9), and(3, bit.into())]);
        p.jump(3, If::Is, 0, self.take);
    }

    /// Gives the switch a frame that does not have the words of the entry in r8.
    fn compare(&mut self, at: i32, value: i16, words: i16) {
        for word in 0..words {
            self.load(at + i32::from(4 * word), BYTES, 4);
            let p = &mut self.program;
            p.plain(&[load32(2, 10, BYTES), load32(3, 8, value + 4 * word), sub_register(2, 3)]);
            p.jump(2, If::IsNot, 0, self.take);
        }
    }

    /// Goes on with VXLAN to a VTEP, whose IP and UDP headers are on the stack then.
    fn of_vtep(&mut self, vtep: Ipv4Addr) {
        const THIS_HOST: i32 = 0;
        const OTHER_HOST: i32 = 3;
        const ICMP: i32 = 1;
        const UDP: i32 = 17;
        let p = &mut self.program;
        p.plain(&[load16(2, 10, ETHERNET + 12)]);
        for kind in [MAC_CONTROL, VLAN, QINQ] {
            p.jump(2, If::Is, net16(kind), self.take);
        }
        p.plain(&[load32(2, 6, SKB_PACKET_TYPE)]);
        p.jump(2, If::Is, OTHER_HOST, self.take);
        p.jump(2, If::IsNot, THIS_HOST, self.leave);
        p.plain(&[load16(2, 10, ETHERNET + 12)]);
        p.jump(2, If::IsNot, net16(IPV4_TYPE), self.leave);
        self.load(ETHERNET_SIZE, OUTER, 20 + 8);
        let p = &mut self.program;
        p.plain(&[load32(2, 10, OUTER + 16)]);
        p.jump(2, If::IsNot, i32::from_ne_bytes(vtep.octets()), self.leave);
        p.plain(&[load8(2, 10, OUTER)]);
        p.jump(2, If::IsNot, 0x45, self.take);
        let other = p.label();
        p.plain(&[load8(2, 10, OUTER + 9)]);
        p.jump(2, If::IsNot, ICMP, other);
        // "Fragmentation needed" is the switch's, other ICMP the kernel's.
        p.plain(&[load16(2, 10, OUTER + 20)]);
        p.jump(2, If::Is, net16(0x0304), self.take);
        p.jump(2, If::IsNot, net16(0x0304), self.leave);
        p.here(other);
        p.jump(2, If::IsNot, UDP, self.leave);
        p.plain(&[load16(2, 10, OUTER + 6)]);
        p.jump(2, If::Has, net16(0x3fff), self.take);
        p.plain(&[load16(2, 10, OUTER + 22)]);
        p.jump(2, If::IsNot, net16(VXLAN_PORT), self.leave);
        p.plain(&[load32(2, 6, SKB_VLAN_PRESENT)]);
        p.jump(2, If::IsNot, 0, self.take);
    }
}

/// Marks what a network's VXLAN device is to encapsulate, for as long as the device lives. The
/// guard of the underlay lets only marked frames through to other hosts, and the mark stays
/// outside. The guard and the programs behind filters come and go one after the other with their
/// process, so that none of them can do it.
pub(super) fn mark_tunnelled(vxlan: u32) -> io::Result<()> {
    let program = [set(2, MARK.cast_signed()), store32(1, SKB_MARK, 2), set(0, NEXT), EXIT];
    let program = ebpf::load(&program, "sluice_mark", Hook::Egress)?;
    ebpf::attach_lasting(&program, vxlan, Hook::Egress)
}

/// True if a VXLAN device has that program, or another one.
pub(super) fn marks_tunnelled(vxlan: u32) -> io::Result<bool> {
    Ok(ebpf::count(vxlan, Hook::Egress)? > 0)
}

/// Begins a program behind a filter: a frame that is the kernel's passes, and one without a note.
/// Others go on.
fn obey(maps: &Maps) -> Program {
    let mut p = Program::default();
    let (pass, other) = (p.label(), p.label());
    p.plain(&[mov(6, 1), set32(10, BYTES, 0)]);
    p.map(1, maps.verdict.fd());
    p.plain(&[mov(2, 10), add(2, BYTES.into()), call(MAP_LOOKUP)]);
    p.jump(0, If::Null, 0, pass);
    p.plain(&[load32(2, 0, NOTE), load32(3, 0, DEVICE), set(4, 0), store64(0, 0, 4)]);
    // A note about a frame of another device was left by a filter without a program behind it.
    p.plain(&[load32(4, 6, SKB_IFINDEX), sub_register(3, 4)]);
    p.jump(3, If::IsNot, 0, pass);
    p.jump(2, If::Is, TAKEN, other);
    p.jump(2, If::Is, LEFT, other);
    p.here(pass);
    p.plain(&[set(0, NEXT), EXIT]);
    p.here(other);
    p
}

/// Returns the program behind the filter of a port: what is not the kernel's does not pass.
pub(super) fn obey_port(maps: &Maps) -> Vec<Insn> {
    let mut program = obey(maps);
    program.plain(&[set(0, SHOT), EXIT]);
    program.finish()
}

/// Returns the program behind the filter of the underlay: VXLAN to this VTEP that is not the
/// kernel's does not pass, the host's own traffic does.
pub(super) fn obey_underlay(maps: &Maps, vtep: Ipv4Addr) -> Vec<Insn> {
    let mut program = obey(maps);
    program.plain(&[mov(1, 6)]);
    let mut insns = program.finish();
    insns.extend(icmp_suppress::drop_vxlan(vtep));
    insns
}
