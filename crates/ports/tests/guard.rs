//! Frames that a guarded device lets out, each beside one that differs in one field.

mod support;

use std::net::Ipv4Addr;

use rustix::net::SendFlags;
use sluice_ports::guard::{self, Endpoint, Guard, Transport};
use sluice_wire::checksum;
use support::{Cable, LEFT, Peer as _, RIGHT, RawPeer, can_have_namespaces, inside, receive_all};

const VXLAN: u16 = 4789;
const FABRIC: u16 = 7474;
const UDP: u8 = 17;
const TCP: u8 = 6;
const ACK: u8 = 0x10;
const RST: u8 = 0x04;

/// A frame to be sent.
#[derive(Clone)]
struct Shape {
    tags: &'static [u16],
    dst: Ipv4Addr,
    src: Ipv4Addr,
    options: usize,
    /// Fragment flags and offset.
    fragment: u16,
    protocol: u8,
    port: u16,
    flags: u8,
    cut: usize,
}

const PLAIN: Shape = Shape {
    tags: &[],
    dst: RIGHT,
    src: LEFT,
    options: 0,
    fragment: 0,
    protocol: UDP,
    port: VXLAN,
    flags: ACK,
    cut: 0,
};

impl Shape {
    fn bytes(&self, nth: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, nth];
        for tag in self.tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 5]);
        }
        frame.extend([0x08, 0x00]);
        let mut payload: Vec<u8> = [40_000_u16, self.port].map(u16::to_be_bytes).concat();
        payload.extend([0; 9]);
        payload.push(self.flags);
        payload.extend([0; 30]);
        payload.truncate(payload.len() - self.cut);
        let words = u8::try_from(5 + self.options).unwrap();
        let size = u16::try_from(usize::from(words) * 4 + payload.len()).unwrap();
        let mut ip = vec![0x40 | words, 0];
        ip.extend(size.to_be_bytes());
        ip.extend([0, 7]);
        ip.extend(self.fragment.to_be_bytes());
        ip.extend([64, self.protocol, 0, 0]);
        ip.extend(self.src.octets());
        ip.extend(self.dst.octets());
        ip.resize(usize::from(words) * 4, 1); // No-operation options.
        let sum = checksum::internet(&ip).to_be_bytes();
        ip[10..12].copy_from_slice(&sum);
        frame.extend(ip);
        frame.extend(payload);
        frame
    }
}

/// Shapes of frames; true for those that pass unmarked.
fn shapes() -> Vec<(&'static str, Shape, bool)> {
    let other = Ipv4Addr::new(10, 9, 0, 77);
    let tcp = Shape { protocol: TCP, port: FABRIC, ..PLAIN };
    vec![
        ("VXLAN", PLAIN, false),
        ("VXLAN to nobody's VTEP", Shape { dst: other, ..PLAIN }, true),
        ("a source that is forged", Shape { src: other, ..PLAIN }, false),
        ("another port", Shape { port: VXLAN + 1, ..PLAIN }, true),
        ("with options", Shape { options: 10, ..PLAIN }, false),
        ("behind a tag", Shape { tags: &[0x8100], ..PLAIN }, false),
        ("behind two tags", Shape { tags: &[0x88a8, 0x8100], ..PLAIN }, false),
        ("a first fragment", Shape { fragment: 0x2000, ..PLAIN }, false),
        ("a later fragment", Shape { fragment: 0x2003, ..PLAIN }, true),
        ("not to be fragmented", Shape { fragment: 0x4000, ..PLAIN }, false),
        ("TCP to the port of VXLAN", Shape { protocol: TCP, ..PLAIN }, true),
        ("another protocol", Shape { protocol: 47, ..PLAIN }, true),
        ("a connection to the fabric", tcp.clone(), false),
        ("a reset", Shape { flags: RST | ACK, ..tcp.clone() }, true),
        ("no flags", Shape { cut: 31, ..tcp.clone() }, false),
        ("a datagram to the fabric", Shape { port: FABRIC, ..PLAIN }, false),
    ]
}

#[test]
fn only_what_is_marked_goes_to_an_endpoint() {
    if !can_have_namespaces("only_what_is_marked_goes_to_an_endpoint") {
        return;
    }
    let cable = Cable::new();
    let endpoints = [(VXLAN, Transport::Udp), (FABRIC, Transport::Udp), (FABRIC, Transport::Tcp)]
        .map(|(port, transport)| Endpoint { address: RIGHT, port, transport });
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let (guard, mut unmarked, marked) = inside(&cable.left, || {
        let guard = Guard::new(&endpoints, 4).unwrap();
        let index = sluice_ports::device::device("l0").unwrap().index;
        guard.attach("l0", index).unwrap();
        let marked = RawPeer::new("l0");
        guard::mark(&marked.0).unwrap();
        (guard, RawPeer::new("l0"), marked)
    });
    let shapes = shapes();
    // Frames are told apart by the last byte of their source.
    for by_mark in [false, true] {
        let sender = if by_mark { &marked } else { &unmarked };
        let mut expected = Vec::new();
        let before = guard.ended().unwrap();
        for (nth, (_, shape, passes)) in (0..).zip(&shapes) {
            // The kernel reports a dropped frame to its sender as if there were no room.
            _ = rustix::net::send(&sender.0, &shape.bytes(nth), SendFlags::empty());
            expected.extend((*passes || by_mark).then_some(nth));
        }
        let came = receive_all(&mut peer, expected.len() + 1);
        let came = came.iter().filter(|frame| frame[6..11] == [2, 0, 0, 0, 0]);
        let came: Vec<u8> = came.map(|frame| frame[11]).collect();
        let name = |nth: &u8| shapes[usize::from(*nth)].0;
        let names = |all: &[u8]| all.iter().map(name).collect::<Vec<_>>();
        assert_eq!(names(&came), names(&expected), "marked: {by_mark}");
        let ended = guard.ended().unwrap();
        assert_eq!(ended.frames - before.frames, (shapes.len() - expected.len()) as u64);
    }
    assert!(guard.ended().unwrap().bytes > 0);
    // The guard ends with its descriptors.
    drop(guard);
    unmarked.send(&PLAIN.bytes(0));
    assert_eq!(receive_all(&mut peer, 1).len(), 1);
}
