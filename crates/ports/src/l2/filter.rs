//! The switch's share of the frames that an underlay device receives, the counterpart of
//! [`super::icmp_suppress`]: frames for the kernel alone never enter the ring, so that they neither
//! take room there nor end as a drop.
//!
//! ```text
//!   device ─▶ filter ─┬─ VXLAN to this VTEP, "fragmentation needed", MAC Control,
//!                     │  other stations' frames ─▶ ring
//!                     └─ everything else to this host or to a group ─▶ the kernel's alone
//! ```
//!
//! Frames that cannot be told apart here enter: fragments, options, stacked tags, frames too short
//! for their headers. The switch counts their faults by name. The device's MAC does not stand in
//! the program: the kernel knows the destination's kind, also after the MAC changed.

use std::net::Ipv4Addr;

use crate::sys::{Instruction, bpf};
use crate::udp::VXLAN_PORT;

/// `SKF_AD_OFF + SKF_AD_PKTTYPE`: kind of the destination.
const PACKET_TYPE: u32 = 0xffff_f004;
/// `PACKET_HOST`: addressed to this device.
const THIS_HOST: u32 = 0;
/// `PACKET_OTHERHOST`.
const OTHER_HOST: u32 = 3;

/// The protocol number of ICMP.
const ICMP: u32 = 1;
/// Type and code of a router's report that a frame was too large for its path (RFC 792, RFC 1191).
const FRAGMENTATION_NEEDED: u32 = 0x0304;

/// Placeholders of the two ends, until [`program`] knows their distance.
const KEEP: u8 = 254;
const KERNEL: u8 = 255;

/// Builds the program, which keeps nothing but the switch's share.
pub(super) fn program(vtep: Ipv4Addr) -> Vec<Instruction> {
    const HALF: u16 = bpf::LOAD_HALF;
    const EQUAL: u16 = bpf::JUMP_IF_EQUAL;
    // Operation, operand, and targets if a comparison holds, and if not; 0: the next line.
    let lines: [(u16, u32, u8, u8); 24] = [
        (HALF, 12, 0, 0),
        (EQUAL, 0x8808, KEEP, 0),
        // A tag behind the one that the kernel removed.
        (EQUAL, 0x8100, KEEP, 0),
        (EQUAL, 0x88a8, KEEP, 0),
        (bpf::LOAD_WORD, PACKET_TYPE, 0, 0),
        (EQUAL, OTHER_HOST, KEEP, 0),
        (EQUAL, THIS_HOST, 0, KERNEL),
        (HALF, 12, 0, 0),
        (EQUAL, 0x0800, 0, KERNEL),
        (bpf::LOAD_SIZE, 0, 0, 0),
        (bpf::JUMP_IF_NOT_BELOW, 14 + 20 + 8, 0, KEEP),
        (bpf::LOAD_WORD, 14 + 16, 0, 0),
        (EQUAL, u32::from(vtep), 0, KERNEL),
        (bpf::LOAD_BYTE, 14, 0, 0),
        (EQUAL, 0x45, 0, KEEP),
        (bpf::LOAD_BYTE, 14 + 9, 0, 0),
        (EQUAL, ICMP, 0, 2),
        (HALF, 14 + 20, 0, 0),
        (EQUAL, FRAGMENTATION_NEEDED, KEEP, KERNEL),
        (EQUAL, 17, 0, KERNEL),
        (HALF, 14 + 6, 0, 0),
        (bpf::JUMP_IF_ANY, 0x3fff, KEEP, 0),
        (HALF, 14 + 20 + 2, 0, 0),
        (EQUAL, VXLAN_PORT as u32, KEEP, KERNEL),
    ];
    let ends = lines.len();
    let over = |at: usize, to: u8| {
        let end = match to {
            KEEP => ends,
            KERNEL => ends + 1,
            near => return near,
        };
        u8::try_from(end - at - 1).expect("a short program")
    };
    let line = |(at, (code, k, yes, no)): (usize, (u16, u32, u8, u8))| {
        Instruction::jump(code, k, over(at, yes), over(at, no))
    };
    let ends = [Instruction::new(bpf::RET_K, u32::MAX), Instruction::new(bpf::RET_K, 0)];
    lines.into_iter().enumerate().map(line).chain(ends).collect()
}
