use std::vec;
use std::vec::Vec;

use core::net::Ipv6Addr;

use proptest::prelude::*;
use sluice_base::{Mac, Vni};

use super::*;

const TENANT: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const FROM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const TO: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn framed(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 14];
    ethernet::Repr { dst: OTHER, src: TENANT, ethertype }.emit(&mut out);
    out.extend(packet);
    out
}

fn v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, size: u16) -> Vec<u8> {
    let mut out = vec![0; usize::from(size)];
    let payload_size = size - 20;
    let (dscp, ecn, ttl, ident) = (0, 0, 64, 7);
    let dont_fragment = true;
    ipv4::Repr { src, dst, protocol, dscp, ecn, ttl, ident, dont_fragment, payload_size }
        .emit(&mut out);
    for (at, byte) in out[20..].iter_mut().enumerate() {
        *byte = u8::try_from(at % 251).unwrap();
    }
    out
}

fn v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, size: u16) -> Vec<u8> {
    let mut out = vec![0; usize::from(size)];
    let payload_size = size - 40;
    let (dscp, ecn, flow_label, hop_limit) = (0, 0, 0, 64);
    ipv6::Repr { src, dst, next_header, dscp, ecn, flow_label, hop_limit, payload_size }
        .emit(&mut out);
    out
}

fn answered(head: &[u8], mtu: u16) -> Option<Vec<u8>> {
    let mut out = [0; ANSWER_SIZE_MAX];
    let size = answer(&head[..head.len().min(128)], mtu, &mut out)?;
    Some(out[..size].to_vec())
}

#[test]
fn ipv4_df_packet_too_big_answered_from_destination() {
    let packet = v4(FROM, TO, 6, 1500);
    let said = answered(&framed(EtherType::IPV4, &packet), 1350).unwrap();
    let frame = ethernet::Frame::new_checked(&said).unwrap();
    assert_eq!((frame.dst(), frame.src(), frame.ethertype()), (TENANT, OTHER, EtherType::IPV4));
    let ip = ipv4::Packet::new_checked(frame.payload()).unwrap();
    assert!(ip.header_checksum_ok() && usize::from(ip.total_size()) == said.len() - 14);
    assert_eq!((ip.src(), ip.dst(), ip.protocol()), (TO, FROM, PROTOCOL_ICMP));
    let message = ip.payload();
    assert_eq!(checksum::internet(message), 0);
    assert_eq!(message[..2], [3, 4]);
    assert_eq!(message[4..8], [0, 0, 0x05, 0x46], "1350, behind what is not used");
    assert_eq!(message[8..], packet[..114], "what is there of it");
}

#[test]
fn ipv6_packet_too_big_answered_from_destination() {
    let (src, dst) = (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1), "fd00::2".parse().unwrap());
    let packet = v6(src, dst, 6, 1500);
    let said = answered(&framed(EtherType::IPV6, &packet), 1400).unwrap();
    let ip = ipv6::Packet::new_checked(&said[14..]).unwrap();
    assert_eq!((ip.src(), ip.dst(), ip.next_header()), (dst, src, 58));
    assert_eq!(checksum::over_ipv6(dst, src, 58, ip.payload()), 0);
    assert_eq!(ip.payload()[..2], [2, 0]);
    assert_eq!(ip.payload()[4..8], 1400_u32.to_be_bytes());
    assert_eq!(ip.payload()[8..], packet[..114]);
}

/// Returns the frame with a tag of VLAN 5 and priority 3.
fn behind_a_tag(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0x60, 5], &frame[12..]].concat()
}

#[test]
fn a_tag_comes_back() {
    let four = framed(EtherType::IPV4, &v4(FROM, TO, 6, 1500)[..100]);
    let (src, dst) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
    let six = framed(EtherType::IPV6, &v6(src, dst, 6, 1500)[..100]);
    for frame in [four, six] {
        let said = answered(&frame, 1350).unwrap();
        assert_eq!(answered(&behind_a_tag(&frame), 1350).unwrap(), behind_a_tag(&said));
    }
}

#[test]
fn what_has_no_answer() {
    let packet = |protocol| v4(FROM, TO, protocol, 1500);
    let good = framed(EtherType::IPV4, &packet(6));
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let icmp = |kind: u8| {
        let mut frame = framed(EtherType::IPV4, &packet(1));
        frame[34] = kind;
        frame
    };
    let local = "fd00::1".parse().unwrap();
    let six = |dst: &str, next, kind| {
        let mut packet = v6(local, dst.parse().unwrap(), next, 1500);
        packet[40] = kind;
        framed(EtherType::IPV6, &packet)
    };
    let mut later = six("fd00::2", 44, 6);
    later[14 + 43] = 0x10;
    let none: Vec<(&str, Vec<u8>, u16)> = vec![
        ("it fits", good.clone(), 1500),
        ("an MTU that no network has", good.clone(), 575),
        ("it may be fragmented", with(20, 0), 1350),
        ("the first fragment", with(20, 0x60), 1350),
        ("a later fragment", with(21, 5), 1350),
        ("to a group of stations", with(0, 3), 1350),
        ("from a group of stations", with(6, 3), 1350),
        ("to a group of hosts", with(30, 224), 1350),
        ("to all hosts", framed(EtherType::IPV4, &v4(FROM, [255; 4].into(), 6, 1500)), 1350),
        ("from nobody", with(26, 0), 1350),
        ("from itself", with(26, 127), 1350),
        ("not IPv4", with(14, 0x65), 1350),
        ("neither IP", with(13, 6), 1350),
        ("behind two tags", behind_a_tag(&behind_a_tag(&good)), 1350),
        ("behind half a tag", behind_a_tag(&good)[..17].to_vec(), 1350),
        ("without a transport header", good[..14 + 27].to_vec(), 1350),
        ("unreachable", icmp(3), 1350),
        ("time exceeded", icmp(11), 1350),
        ("an error of ICMPv6", six("fd00::2", 58, 1), 1350),
        ("to a group of IPv6", six("ff02::1", 6, 0), 1350),
        ("a later fragment of IPv6", later, 1350),
        ("below what IPv6 has", six("fd00::2", 6, 0), 1279),
    ];
    for (what, frame, mtu) in none {
        assert_eq!(answered(&frame, mtu), None, "{what}");
    }
    assert!(answered(&icmp(8), 1350).is_some(), "a ping");
    assert!(answered(&six("fd00::2", 58, 128), 1350).is_some(), "a ping of IPv6");
}

/// Returns a router's message about a datagram of a VTEP, with `quoted` bytes of it.
fn heard(mtu: u16, datagram: &[u8], quoted: usize) -> Vec<u8> {
    let mut message = vec![3, 4, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&datagram[..quoted.min(datagram.len())]);
    let sum = checksum::internet(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let size = u16::try_from(message.len() + 20).unwrap();
    let mut packet = v4(Ipv4Addr::new(192, 0, 2, 254), FROM, 1, size);
    packet[20..].copy_from_slice(&message);
    packet
}

fn datagram(size: u16) -> Vec<u8> {
    let mut out = v4(FROM, TO, 17, size);
    udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_size: size - 28 }
        .emit(&mut out[20..]);
    vxlan::Repr { vni: Vni::new(77).unwrap() }.emit(&mut out[28..]);
    out
}

fn read(packet: &[u8], there: usize) -> Option<Heard> {
    Heard::of(&ipv4::Packet::new_checked(&packet[..there.min(packet.len())]).unwrap())
}

#[test]
fn icmp_frag_needed_of_tunnel_packet_parsed() {
    let all = Heard { mtu: 1400, src: FROM, dst: TO, vni: Some(77) };
    let whole = heard(1400, &datagram(1500), 548);
    assert_eq!(read(&whole, 2000), Some(all));
    assert_eq!(read(&whole, 110), Some(all), "cut by whoever shows it");
    // RFC 792 asks for no more than eight bytes of the datagram.
    let short = heard(1400, &datagram(1500), 28);
    assert_eq!(read(&short, 2000), Some(Heard { vni: None, ..all }));
    assert_eq!(read(&heard(68, &datagram(1500), 100), 2000).unwrap().mtu, 576, "the floor");
    assert_eq!(read(&heard(0, &datagram(1500), 100), 2000).unwrap().mtu, 1492, "a plateau");
    assert_eq!(read(&heard(0, &datagram(900), 100), 2000).unwrap().mtu, 576, "the last one");
}

#[test]
fn what_no_router_says_is_not_believed() {
    let with = |at: usize, new: &[u8]| {
        let mut inner = datagram(1500);
        inner[at..at + new.len()].copy_from_slice(new);
        heard(1400, &inner, 100)
    };
    let mut wrong_sum = heard(1400, &datagram(1500), 100);
    wrong_sum[22] ^= 1;
    let mut unreachable = heard(1400, &datagram(1500), 100);
    unreachable[21] = 3;
    for (what, packet) in [
        ("it would have passed", heard(1500, &datagram(1500), 100)),
        ("a small one would have passed", heard(100, &datagram(576), 100)),
        ("it may be fragmented", with(6, &[0])),
        ("it is a fragment", with(7, &[1])),
        ("not UDP", with(9, &[6])),
        ("another port", with(22, &53_u16.to_be_bytes())),
        ("a source port of no VTEP", with(20, &1024_u16.to_be_bytes())),
        ("no VNI", with(28, &[0])),
        ("options", with(0, &[0x46])),
        ("half a datagram", heard(1400, &datagram(1500), 24)),
        ("a wrong checksum", wrong_sum),
        ("another code", unreachable),
    ] {
        assert_eq!(read(&packet, 2000), None, "{what}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 20..200),
        at in 0_usize..110,
        value in any::<u8>(),
        mtu in any::<u16>(),
    ) {
        _ = read(&bytes, 200);
        _ = answered(&bytes, mtu);
        let mut packet = heard(mtu, &datagram(1500), 80);
        packet[at % 100] = value;
        if let Some(heard) = read(&packet, 200) {
            prop_assert!(heard.mtu >= MTU_MIN && heard.mtu < 1500 || at > 28);
        }
        let mut frame = framed(EtherType::IPV4, &v4(FROM, TO, 6, 1500));
        frame[at] = value;
        if let Some(said) = answered(&frame, mtu) {
            let ip = ipv4::Packet::new_checked(&said[14..]).unwrap();
            prop_assert!(said.len() <= ANSWER_SIZE_MAX && ip.header_checksum_ok());
            prop_assert_eq!(answered(&said, mtu), None);
        }
    }
}
