use super::*;
use alloc::vec;
use core::net::Ipv6Addr;
use sluice_wire::{arp, ethernet, icmpv6, ipv4};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
const IP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const IP6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

fn frame(src: Mac, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 14];
    ethernet::Repr { dst: OTHER, src, ethertype }.emit(&mut out);
    out.extend(payload);
    out
}

fn ip(src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0; 20];
    let (protocol, dont_fragment) = (ipv4::PROTOCOL_UDP, false);
    let (dscp, ecn, ttl, ident, payload_size) = (0, 0, 64, 0, 0);
    ipv4::Repr { src, dst, protocol, dscp, ecn, ttl, ident, dont_fragment, payload_size }
        .emit(&mut out);
    frame(MAC, EtherType::IPV4, &out)
}

fn ip6(src: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 40];
    out[0] = 0x60;
    out[5] = u8::try_from(payload.len()).expect("short");
    out[6] = icmpv6::PROTOCOL;
    out[8..24].copy_from_slice(&src.octets());
    out.extend(payload);
    frame(MAC, EtherType::IPV6, &out)
}

fn advertisement(target: Ipv6Addr) -> Vec<u8> {
    let mut message = vec![0; 24];
    message[0] = 136;
    message[8..24].copy_from_slice(&target.octets());
    ip6(IP6, &message)
}

fn arp_of(operation: arp::Operation, sender_mac: Mac, sender_ip: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0; 28];
    let (target_mac, target_ip) = (OTHER, Ipv4Addr::new(192, 0, 2, 9));
    arp::Repr { operation, sender_mac, sender_ip, target_mac, target_ip }.emit(&mut out);
    frame(MAC, EtherType::ARP, &out)
}

fn tag(frame: &[u8], kind: u16) -> Vec<u8> {
    [&frame[..12], &kind.to_be_bytes(), &[0, 0], &frame[12..]].concat()
}

fn watch(ips: BoundIps) -> Watch {
    let mut watch = Watch {
        sources: Sources::Bound,
        good: NOBODY,
        good_at: 0,
        bound: Vec::with_capacity(BOUND_MACS_MAX),
        allowed: Vec::new(),
    };
    watch.bind(PortId(0), OTHER, [None; 4]).expect("there is room");
    watch.bind(PortId(0), MAC, ips).expect("there is room");
    watch
}

/// Judges a frame, and checks that the fast path lets in no other frame once the source is cached.
fn judge(ips: BoundIps, bytes: &[u8]) -> Result<usize, DropReason> {
    let mut watch = watch(ips);
    let verdict = watch.judge(bytes);
    assert!(!watch.passes(bytes), "nobody is good yet");
    (watch.good, watch.good_at) = (MAC.to_u64(), 1);
    assert!(!watch.passes(bytes) || verdict.is_ok(), "the fast way lets it in: {bytes:x?}");
    verdict
}

const BOTH: BoundIps = [Some(IpAddr::V4(IP)), None, Some(IpAddr::V6(IP6)), None];

#[test]
fn bound_guest_using_foreign_address_is_refused() {
    use arp::Operation as Op;
    let none = Ipv4Addr::UNSPECIFIED;
    let foreign = Ipv4Addr::new(192, 0, 2, 2);
    let foreign6 = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
    let own_link = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
    let secret_link = Ipv6Addr::new(0xfe80, 0, 0, 0, 0xb7c3, 0x77a, 0x44fc, 0x9d1e);
    let other_link = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 2);
    let (ok, mac, address) = (Ok(1), Err(DropReason::SpoofedMac), Err(DropReason::SpoofedIp));
    // With addresses, and without.
    let table = [
        (ip(IP, foreign), ok, ok),
        (ip(foreign, IP), address, ok),
        (ip(none, Ipv4Addr::BROADCAST), ok, ok),
        (ip(none, foreign), address, ok),
        (frame(MAC, EtherType::IPV4, &[0x45; 12]), address, ok),
        (arp_of(Op::REQUEST, MAC, IP), ok, ok),
        (arp_of(Op::REPLY, MAC, IP), ok, ok),
        (arp_of(Op::REQUEST, MAC, none), ok, ok),
        (arp_of(Op::REPLY, MAC, none), address, ok),
        (arp_of(Op::REPLY, MAC, foreign), address, ok),
        (arp_of(Op::REQUEST, MAC, foreign), address, ok),
        (arp_of(Op::REPLY, OTHER, IP), mac, mac),
        (ip6(IP6, &[128]), ok, ok),
        (ip6(Ipv6Addr::UNSPECIFIED, &[135]), ok, ok),
        (ip6(own_link, &[135]), ok, ok),
        (ip6(other_link, &[135]), address, ok),
        (ip6(secret_link, &[135]), ok, ok),
        (advertisement(secret_link), ok, ok),
        (ip6(foreign6, &[128]), address, ok),
        (frame(MAC, EtherType::IPV6, &[0x60; 20]), address, ok),
        (advertisement(IP6), ok, ok),
        (advertisement(own_link), ok, ok),
        (advertisement(foreign6), address, ok),
        (frame(MAC, EtherType(0x88b5), &[]), ok, ok),
        (frame(Mac([2, 0, 0, 0, 0, 3]), EtherType(0x88b5), &[]), mac, mac),
        (vec![2; 13], mac, mac),
    ];
    for (bytes, with, without) in table {
        assert_eq!(judge(BOTH, &bytes), with, "{bytes:x?}");
        assert_eq!(judge([None; 4], &bytes), without, "{bytes:x?}");
        for kind in [0x8100, 0x88a8] {
            if bytes.len() >= 14 {
                assert_eq!(judge(BOTH, &tag(&bytes, kind)), with, "behind a tag: {bytes:x?}");
            }
        }
    }
}

/// Beside its own addresses, and without any.
#[test]
fn bound_guest_using_allowed_prefix_is_accepted() {
    use arp::Operation as Op;
    let vip = Ipv4Addr::new(198, 51, 100, 7);
    let other = Ipv4Addr::new(198, 51, 100, 8);
    let vip6 = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 7);
    let other6 = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 7);
    let (ok, address) = (Ok(1), Err(DropReason::SpoofedIp));
    let table = [
        (ip(vip, IP), ok, ok),
        (arp_of(Op::REPLY, MAC, vip), ok, ok),
        (arp_of(Op::REPLY, OTHER, vip), Err(DropReason::SpoofedMac), Err(DropReason::SpoofedMac)),
        (ip6(vip6, &[128]), ok, ok),
        (advertisement(vip6), ok, address), // Its IPv6 source is not on the list.
        (ip(other, IP), address, address),
        (arp_of(Op::REQUEST, MAC, other), address, address),
        (ip6(other6, &[128]), address, address),
        (advertisement(other6), address, address),
        (ip(IP, vip), ok, address),
        (arp_of(Op::REQUEST, MAC, Ipv4Addr::UNSPECIFIED), ok, ok),
    ];
    for (bytes, with, without) in table {
        for (ips, expected) in [(BOTH, with), ([None; 4], without)] {
            let mut watch = watch(ips);
            let vips = IpPrefix::new(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0).into(), 48);
            for prefix in [IpPrefix::new(vip.into(), 32), vips] {
                watch.allow(PortId(0), prefix.expect("exact")).expect("there is room");
            }
            assert_eq!(watch.judge(&bytes), expected, "{ips:?} {bytes:x?}");
            (watch.good, watch.good_at) = (MAC.to_u64(), 1);
            let is_plain = bytes[12..14] == [8, 0] && expected.is_ok();
            assert_eq!(watch.passes(&bytes), is_plain, "at first sight: {bytes:x?}");
        }
    }
}

#[test]
fn a_port_allows_only_so_many() {
    let prefix = |n: u8| IpPrefix::new(Ipv4Addr::new(10, 0, 0, n).into(), 32).expect("exact");
    let mut watch = watch(BOTH);
    for n in 0..16 {
        assert_eq!(watch.allow(PortId(3), prefix(n)), Ok(()));
    }
    assert_eq!(watch.allow(PortId(3), prefix(7)), Ok(()), "it is there");
    assert_eq!(watch.allow(PortId(3), prefix(16)), Err(CommandError::TooManyAllowed(PortId(3))));
    watch.restart(Sources::Learn);
    assert!(watch.allowed.is_empty(), "another port is here");
    assert_eq!(watch.allow(PortId(3), prefix(0)), Err(CommandError::NotBound(PortId(3))));
}

#[test]
fn the_plain_case_passes_at_first_sight() {
    for (ips, bytes) in [(BOTH, ip(IP, IP)), ([None; 4], ip(IP, IP)), ([None; 4], ip6(IP6, &[6]))] {
        let mut watch = watch(ips);
        (watch.good, watch.good_at) = (MAC.to_u64(), 1);
        assert!(watch.passes(&bytes));
        watch.unbind(OTHER);
        assert!(!watch.passes(&bytes), "bindings have moved");
    }
    let mut watch = watch([None; 4]);
    (watch.good, watch.good_at) = (OTHER.to_u64(), 0);
    watch.unbind(OTHER);
    assert!(!watch.passes(&frame(OTHER, EtherType::IPV4, &[0x45; 20])), "it is bound no more");
}

#[test]
fn unbind_of_last_ip_removes_mac_binding() {
    let (four, six) = (ip(IP, IP), ip6(IP6, &[6]));
    let spoofed = |reason| Err(reason);
    let mut watch = watch(BOTH);
    (watch.good, watch.good_at) = (MAC.to_u64(), 1);
    watch.unbind_ip(MAC, Ipv4Addr::new(192, 0, 2, 9).into());
    assert_eq!((watch.judge(&four), watch.judge(&six)), (Ok(1), Ok(1)), "not its own");
    watch.unbind_ip(MAC, IP.into());
    assert!(!watch.passes(&four), "it is not good any more");
    assert_eq!(watch.judge(&four), spoofed(DropReason::SpoofedIp));
    assert_eq!(watch.judge(&six), Ok(1));
    watch.unbind_ip(MAC, IP6.into());
    assert_eq!(watch.judge(&six), spoofed(DropReason::SpoofedMac));
    // A machine that may have any address keeps that right.
    watch.unbind_ip(OTHER, IP.into());
    assert_eq!(watch.judge(&frame(OTHER, EtherType::IPV6, &[])), Ok(0));
}

#[test]
fn only_bound_ports_bind_and_only_so_many() {
    let mut watch = watch([None; 4]);
    let bind = |watch: &mut Watch, n: u8| watch.bind(PortId(3), Mac([4, 0, 0, 0, 0, n]), BOTH);
    for n in 2..8 {
        assert_eq!(bind(&mut watch, n), Ok(()));
    }
    assert_eq!(bind(&mut watch, 9), Err(CommandError::TooManyBound(PortId(3))));
    assert_eq!(bind(&mut watch, 7), Ok(()), "it is there and changes");
    watch.unbind(MAC);
    assert_eq!(bind(&mut watch, 9), Ok(()));
    let group = Err(CommandError::GroupAddress(Mac::BROADCAST));
    assert_eq!(watch.bind(PortId(3), Mac::BROADCAST, BOTH), group);
    watch.sources = Sources::Learn;
    assert_eq!(bind(&mut watch, 7), Err(CommandError::NotBound(PortId(3))));
}
