use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use sluice_base::{Mac, Priority};

/// Returns an Ethernet frame around `payload`, tagged on request.
fn frame(tagged: bool, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut head = vec![0; ethernet::HEADER_SIZE];
    let (dst, src) = (Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let outer = if tagged { EtherType::VLAN } else { ethertype };
    ethernet::Repr { dst, src, ethertype: outer }.emit(&mut head);
    if tagged {
        let mut tag = [0; vlan::TAG_SIZE];
        let priority = Priority::from_low_bits(3);
        vlan::Repr { priority, drop_eligible: false, vid: 7, ethertype }.emit(&mut tag);
        head.extend(tag);
    }
    head.extend(payload);
    head
}

fn ipv4_packet(src: u32, dst: u32, protocol: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0; ipv4::HEADER_SIZE_MIN];
    let repr = ipv4::Repr {
        src: src.into(),
        dst: dst.into(),
        protocol,
        dscp: 0,
        ecn: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: 8,
    };
    repr.emit(&mut packet);
    packet.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    packet.extend([0; 4]);
    packet
}

fn ipv6_packet(src: u128, dst: u128, next_header: u8, ports: [u16; 2]) -> Vec<u8> {
    let mut packet = vec![0; ipv6::HEADER_SIZE];
    let repr = ipv6::Repr {
        src: src.into(),
        dst: dst.into(),
        next_header,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: 64,
        payload_size: 8,
    };
    repr.emit(&mut packet);
    packet.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    packet.extend([0; 4]);
    packet
}

fn hash_ipv4(src: u32, dst: u32, protocol: u8, ports: [u16; 2]) -> u32 {
    hash(&frame(false, EtherType::IPV4, &ipv4_packet(src, dst, protocol, ports)))
}

fn hash_ipv6(src: u128, dst: u128, next_header: u8, ports: [u16; 2]) -> u32 {
    hash(&frame(false, EtherType::IPV6, &ipv6_packet(src, dst, next_header, ports)))
}

#[test]
fn every_part_of_a_flow_counts() {
    let base = hash_ipv4(1, 2, 6, [3, 4]);
    for other in [
        hash_ipv4(9, 2, 6, [3, 4]),
        hash_ipv4(1, 9, 6, [3, 4]),
        hash_ipv4(1, 2, 17, [3, 4]),
        hash_ipv4(1, 2, 6, [9, 4]),
        hash_ipv4(1, 2, 6, [3, 9]),
    ] {
        assert_ne!(other, base);
    }
    let base = hash_ipv6(1, 2, 6, [3, 4]);
    for other in [
        hash_ipv6(9, 2, 6, [3, 4]),
        hash_ipv6(9 << 64, 2, 6, [3, 4]),
        hash_ipv6(1, 9, 6, [3, 4]),
        hash_ipv6(1, 9 << 64, 6, [3, 4]),
        hash_ipv6(1, 2, 17, [3, 4]),
        hash_ipv6(1, 2, 6, [9, 4]),
        hash_ipv6(1, 2, 6, [3, 9]),
    ] {
        assert_ne!(other, base);
    }
}

#[test]
fn flow_hash_ignores_fields_outside_flow() {
    let packet = ipv4_packet(1, 2, 6, [3, 4]);
    let base = hash(&frame(false, EtherType::IPV4, &packet));
    // A tag, the hop count, ECN, the identification, the payload behind the ports.
    assert_eq!(hash(&frame(true, EtherType::IPV4, &packet)), base);
    for index in [1, 4, 5, 8, 24, 27] {
        let mut other = packet.clone();
        other[index] ^= 1;
        assert_eq!(hash(&frame(false, EtherType::IPV4, &other)), base, "byte {index}");
    }
    let packet = ipv6_packet(1, 2, 17, [3, 4]);
    let base = hash(&frame(false, EtherType::IPV6, &packet));
    assert_eq!(hash(&frame(true, EtherType::IPV6, &packet)), base);
    for index in [1, 3, 5, 7, 44] {
        let mut other = packet.clone();
        other[index] ^= 1;
        assert_eq!(hash(&frame(false, EtherType::IPV6, &other)), base, "byte {index}");
    }
}

#[test]
fn fragments_of_one_packet_are_one_flow() {
    // The first has ports, the second has payload in their place.
    let mut first = ipv4_packet(1, 2, 17, [3, 4]);
    first[6..8].copy_from_slice(&[0x20, 0x00]);
    let mut second = ipv4_packet(1, 2, 17, [0xdead, 0xbeef]);
    second[6..8].copy_from_slice(&[0x00, 0x10]);
    let [first, second] = [first, second].map(|p| hash(&frame(false, EtherType::IPV4, &p)));
    assert_eq!(first, second);
}

#[test]
fn flow_hash_uses_ports_behind_options_if_present() {
    let plain = ipv4_packet(1, 2, 6, [3, 4]);
    let mut options = plain.clone();
    options[0] = 0x46;
    options.splice(20..20, [1, 1, 1, 1]);
    let ipv4 = |p: &[u8]| hash(&frame(false, EtherType::IPV4, p));
    assert_eq!(ipv4(&options), ipv4(&plain));
    // ICMP, ESP and IPv6 extension headers have none.
    assert_eq!(hash_ipv4(1, 2, 1, [3, 4]), hash_ipv4(1, 2, 1, [5, 6]));
    assert_eq!(hash_ipv6(1, 2, 44, [3, 4]), hash_ipv6(1, 2, 44, [5, 6]));
    // A packet that ends before its ports do.
    assert_eq!(ipv4(&plain[..23]), ipv4(&plain[..20]));
}

#[test]
fn flow_hash_of_invalid_ip_uses_mac_addresses() {
    for (ethertype, version) in [(EtherType::IPV4, 0x65), (EtherType::IPV6, 0x45)] {
        let mut payload = [0xaa; 64];
        payload[0] = version;
        let wrong = hash(&frame(false, ethertype, &payload));
        assert_eq!(wrong, hash(&frame(false, ethertype, &[])), "version");
    }
    let mut payload = ipv4_packet(1, 2, 6, [3, 4]);
    payload[0] = 0x44;
    assert_eq!(
        hash(&frame(false, EtherType::IPV4, &payload)),
        hash(&frame(false, EtherType::IPV4, &[])),
        "header size"
    );
}

#[test]
fn without_ip_the_macs_and_the_ethertype_count() {
    let base = frame(false, EtherType::ARP, &[1; 28]);
    assert_eq!(hash(&base), hash(&frame(false, EtherType::ARP, &[2; 28])));
    for index in 0..ethernet::HEADER_SIZE {
        let mut other = base.clone();
        other[index] ^= 1;
        assert_ne!(hash(&base), hash(&other), "byte {index}");
    }
    assert_eq!(hash(&base[..13]), 0);
    // A tag that is cut off is an EtherType like any other.
    assert_ne!(hash(&frame(true, EtherType::ARP, &[])[..17]), 0);
}

#[test]
fn source_ports_are_the_dynamic_ones() {
    assert_eq!(source_port(0), 49152);
    assert_eq!(source_port(u32::MAX), 65535);
    assert_eq!(source_port(1 << 18), 49153);
}

/// Returns the imbalance of `hashes` over 64 shares of the ports' 16384 values: the fullest share
/// in percent of an even one.
fn fullest_percent(hashes: impl Iterator<Item = u32>) -> u64 {
    let mut counts = [0u64; 64];
    for hash in hashes {
        counts[usize::from(source_port(hash)) % 64] += 1;
    }
    counts.into_iter().max().unwrap() * 100 * 64 / counts.into_iter().sum::<u64>()
}

#[test]
fn flows_that_differ_by_a_counter_spread_evenly() {
    // 16384 flows, 256 for each share: five standard deviations above are 131 percent.
    let by_port = (0..16384).map(|n| hash_ipv4(0x0a00_0001, 0x0a00_0002, 6, [32768 + n, 80]));
    assert!(fullest_percent(by_port) < 131);
    let by_address = (0..16384).map(|n| hash_ipv4(0x0a00_0000 + n, 0x0a00_0001, 6, [5001, 5001]));
    assert!(fullest_percent(by_address) < 131);
    let by_both = (0..16384u16).map(|n| hash_ipv6(u128::from(n >> 7), 1, 17, [n & 127, 4789]));
    assert!(fullest_percent(by_both) < 131);
}

#[test]
fn the_hash_is_the_same_everywhere() {
    assert_eq!(hash_ipv4(0x0a00_0001, 0x0a00_0002, 6, [40000, 80]), 2_491_361_362);
    assert_eq!(hash_ipv6(1, 2, 17, [40000, 53]), 2_487_831_654);
    assert_eq!(hash(&frame(false, EtherType::ARP, &[])), 2_454_913_170);
}

proptest! {
    #[test]
    fn the_first_128_bytes_decide(mut bytes in prop::collection::vec(any::<u8>(), 128..200),
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x8100]), first: u8) {
        bytes[12..14].copy_from_slice(&kind.to_be_bytes());
        bytes[14] = first;
        bytes[16..18].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        prop_assert_eq!(hash(&bytes), hash(&bytes[..128]));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>) {
        let _ = hash(&bytes);
    }
}
