//! Fuzzes the parser of the kernel's answers, in datagrams of any size: messages with a valid
//! header, and attributes and bytes of any kind behind it.
//!
//! Nothing may panic. An answer ends with its end message. The number of parsed messages never
//! exceeds the number of headers that the bytes have room for. Parsed values are of the requested
//! device.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_fuzz::Source;
use sluice_ports::netlink::reply;

const SEQUENCE: u32 = 7;
const HEADER_SIZE: usize = 16;
/// Message types: done, error, the types of rtnetlink that Sluice asks for (links, addresses,
/// routes, neighbours, queueing disciplines, counters), and some others.
const KINDS: [u16; 14] = [2, 3, 16, 17, 20, 24, 25, 28, 29, 36, 37, 92, 1, 0x4242];
/// Sizes of the structures before the attributes: `ifinfomsg`, `rtmsg`, `ndmsg`, `tcmsg`,
/// `if_stats_msg`.
const HEADS: [usize; 5] = [16, 12, 12, 20, 12];

/// Writes an attribute with a plausible number, sometimes with nested attributes.
fn attribute(source: &mut Source<'_>, depth: u32, out: &mut Vec<u8>) {
    let (kind, how) = (u16::from(source.byte() % 64), source.byte());
    let start = out.len();
    out.extend([0; 4]);
    match how % 8 {
        0 if depth < 3 => (0..how / 64).for_each(|_| attribute(source, depth + 1, out)),
        1 => out.extend(b"eth0\0"),
        2 => out.extend(source.u64().to_ne_bytes()),
        3 => out.extend(source.u32().to_ne_bytes()),
        4 => out.extend([2, 0, 0, 0, 0, how]),
        5 => out.extend(vec![how; usize::from(source.byte())]),
        _ => out.extend(source.bytes()),
    }
    let size = (out.len() - start) as u16;
    let size = if source.one_in(32) { source.u16() } else { size };
    out[start..start + 2].copy_from_slice(&size.to_ne_bytes());
    out[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

fn message(source: &mut Source<'_>, out: &mut Vec<u8>) {
    let (kind, how) = (source.pick(&KINDS), source.byte());
    let sequence = if how >= 0xf0 { SEQUENCE - 1 } else { SEQUENCE };
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind.to_ne_bytes());
    out.extend(u16::from(how & 2).to_ne_bytes());
    out.extend(sequence.to_ne_bytes());
    out.extend([0; 4]);
    for _ in 0..source.pick(&HEADS) / 4 {
        let word = if source.one_in(4) { source.u32() } else { u32::from(source.byte()) };
        out.extend(word.to_ne_bytes());
    }
    (0..how % 8).for_each(|_| attribute(source, 0, out));
    let size = (out.len() - start) as u32;
    let size = if source.one_in(32) { source.u32() } else { size };
    out[start..start + 4].copy_from_slice(&size.to_ne_bytes());
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source::new(bytes);
    let mut answer = Vec::new();
    for _ in 0..16 {
        if source.is_empty() {
            break;
        }
        let mut datagram = Vec::new();
        if source.one_in(8) {
            datagram.extend(source.bytes());
        } else {
            (0..=source.byte() % 4).for_each(|_| message(&mut source, &mut datagram));
        }
        let before = answer.len();
        let all = reply::changes(&datagram);
        assert!(all.len() <= datagram.len() / HEADER_SIZE, "more than there is room for");
        let end = reply::read(&datagram, SEQUENCE, &mut answer);
        assert!(answer.len() - before <= all.len(), "not all are of this question");
        if let Some(link) = reply::link(&all) {
            assert!(all.len() > 0 && link.name.len() <= datagram.len());
        }
        for message in &all {
            if let netlink_packet_route::RouteNetlinkMessage::NewNeighbour(entry) = message {
                let known = reply::neighbor_mac(entry).is_some();
                assert!(!known || !entry.attributes.is_empty());
                _ = reply::neighbor_address(entry);
            }
        }
        _ = reply::counters(&all);
        assert!(reply::addresses(&all, 3).len() <= all.len());
        assert!(reply::routes(&all, 3).len() <= all.len());
        let drops = reply::root_drops(&all, 3);
        assert!(drops == 0 || !all.is_empty());
        if let Some(Err(error)) = end {
            assert!(!error.to_string().is_empty());
        }
    }
});
