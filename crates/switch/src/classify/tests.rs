use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;
use sluice_base::DropClass;

use super::*;

const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const UNDERLAY: Mac = Mac([2, 0xee, 0, 0, 0, 1]);
const DST: Mac = Mac([2, 0, 0, 0, 0, 9]);
const SRC: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn priorities() -> [Priority; 64] {
    core::array::from_fn(|dscp| Priority::all().nth(dscp >> 3).unwrap())
}

fn p(n: u8) -> Priority {
    Priority::new(n).unwrap()
}

/// Returns an Ethernet frame with this payload.
fn frame(dst: Mac, src: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 14];
    ethernet::Repr { dst, src, ethertype: EtherType(ethertype) }.emit(&mut out);
    out.extend(payload);
    out
}

fn ip_payload(dscp: u8) -> Vec<u8> {
    let mut out = vec![0; 46];
    ipv4::Repr {
        src: Ipv4Addr::new(192, 168, 0, 1),
        dst: Ipv4Addr::new(192, 168, 0, 2),
        protocol: ipv4::PROTOCOL_UDP,
        dscp,
        ecn: 0,
        ttl: 1,
        ident: 0,
        dont_fragment: false,
        payload_size: 26,
    }
    .emit(&mut out);
    out
}

fn tenant_frame() -> Vec<u8> {
    frame(DST, SRC, 0x0800, &ip_payload(26))
}

fn classify_access(bytes: &[u8], trust: Trust) -> Verdict {
    let map = priorities();
    let marking = Marking { trust, default: p(1), dscp_to_priority: &map };
    access(&bytes[..bytes.len().min(128)], u32::try_from(bytes.len()).unwrap(), marking)
}

fn classify_underlay(bytes: &[u8]) -> OuterVerdict {
    let map = priorities();
    let marking = Marking { trust: Trust::PcpThenDscp, default: p(1), dscp_to_priority: &map };
    let size = u32::try_from(bytes.len()).unwrap();
    underlay(&bytes[..bytes.len().min(128)], size, LOCAL, UNDERLAY, marking)
}

fn arp_payload() -> Vec<u8> {
    let mut out = vec![0; 28];
    arp::Repr {
        operation: arp::Operation::REQUEST,
        sender_mac: SRC,
        sender_ip: Ipv4Addr::new(192, 168, 0, 1),
        target_mac: Mac::default(),
        target_ip: Ipv4Addr::new(192, 168, 0, 2),
    }
    .emit(&mut out);
    out
}

/// Returns `bytes` with some of them changed.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

fn tagged(tci: u16, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut tag = vec![];
    tag.extend(tci.to_be_bytes());
    tag.extend(ethertype.to_be_bytes());
    tag.extend(payload);
    frame(DST, SRC, 0x8100, &tag)
}

/// A frame of an access port for every reason that its classification can give.
#[test]
fn every_reason_of_an_access_port() {
    use DropReason as R;
    let reserved = |last| Mac([1, 0x80, 0xc2, 0, 0, last]);
    let table: Vec<(&str, R, Vec<u8>)> = vec![
        ("nothing", R::Runt, vec![]),
        ("half a header", R::Runt, vec![2; 13]),
        ("a length beyond the frame", R::Runt, frame(DST, SRC, 100, &[0; 99])),
        ("from a group", R::BadSource, frame(DST, Mac([3, 0, 0, 0, 0, 1]), 0x0800, &ip_payload(0))),
        ("from everybody", R::BadSource, frame(DST, Mac::BROADCAST, 0x86dd, &[0; 46])),
        ("from nobody", R::BadSource, frame(DST, Mac([0; 6]), 0x0800, &ip_payload(0))),
        ("a tag cut off", R::BadVlan, frame(DST, SRC, 0x8100, &[0, 0, 8])),
        ("a tag on a tag", R::BadVlan, tagged(0, 0x8100, &[0; 46])),
        ("a customer tag in a service tag", R::BadVlan, frame(DST, SRC, 0x88a8, &[0, 0, 0x81, 0])),
        ("a VLAN", R::VlanNotAllowed, tagged(5, 0x0800, &ip_payload(0))),
        ("the last VLAN, with a priority", R::VlanNotAllowed, tagged(0xefff, 0x0800, &[0; 46])),
        ("ARP cut off", R::BadArp, frame(DST, SRC, 0x0806, &arp_payload()[..27])),
        ("ARP for tokens", R::BadArp, frame(DST, SRC, 0x0806, &with(arp_payload(), 1, &[6]))),
        (
            "ARP with long addresses",
            R::BadArp,
            frame(DST, SRC, 0x0806, &with(arp_payload(), 4, &[8])),
        ),
        ("spanning tree", R::ReservedAddress, frame(reserved(0), SRC, 39, &[0; 46])),
        ("LLDP", R::ReservedAddress, frame(reserved(14), SRC, 0x88cc, &[0; 46])),
        (
            "no pause to the pause address",
            R::ReservedAddress,
            frame(Mac::PAUSE, SRC, 0x0800, &[0; 46]),
        ),
        ("pause to a station", R::ReservedAddress, frame(DST, SRC, 0x8808, &[0, 1, 0, 9])),
        ("pause without opcode", R::BadPause, frame(Mac::PAUSE, SRC, 0x8808, &[0])),
        ("pause without time", R::BadPause, frame(Mac::PAUSE, SRC, 0x8808, &[0, 1, 0])),
        (
            "pause by priority cut off",
            R::BadPause,
            frame(Mac::PAUSE, SRC, 0x8808, &[1, 1, 0, 8, 0, 1]),
        ),
        ("an unknown opcode", R::BadPause, frame(Mac::PAUSE, SRC, 0x8808, &[0, 2, 0, 0])),
    ];
    for (what, reason, bytes) in table {
        for trust in [Trust::Nothing, Trust::PcpThenDscp] {
            assert_eq!(classify_access(&bytes, trust), Verdict::Drop(reason), "{what}");
        }
    }
}

/// Frames that may pass, with the priority that they get when it is trusted.
#[test]
fn what_an_access_port_takes() {
    let table: Vec<(&str, u8, Vec<u8>)> = vec![
        ("IPv4 by DSCP", 3, tenant_frame()),
        ("a tag with priority", 5, tagged(0xa000, 0x0800, &ip_payload(26))),
        ("a tag that may be dropped first", 2, tagged(0x5000, 0x0806, &[0; 46])),
        ("IPv4 cut off", 1, frame(DST, SRC, 0x0800, &[0x45, 0xb8])),
        ("IPv6 by traffic class", 7, frame(DST, SRC, 0x86dd, &with(vec![0; 40], 0, &[0x6e]))),
        ("ARP", 1, frame(DST, SRC, 0x0806, &arp_payload())),
        ("a length", 1, frame(DST, SRC, 46, &[0; 46])),
        ("a type that nobody knows", 1, frame(DST, SRC, 0x88b5, &[])),
        (
            "a group that bridges forward",
            1,
            frame(Mac([1, 0x80, 0xc2, 0, 0, 0x10]), SRC, 0x88b5, &[]),
        ),
    ];
    for (what, priority, bytes) in table {
        let dst = Mac(*bytes.first_chunk().unwrap());
        for (trust, priority) in [(Trust::PcpThenDscp, priority), (Trust::Nothing, 1)] {
            let classified = Classified { dst, priority: p(priority) };
            assert_eq!(classify_access(&bytes, trust), Verdict::Forward(classified), "{what}");
        }
    }
    let xoff = frame(Mac::PAUSE, SRC, 0x8808, &[0, 1, 0xff, 0xff]);
    let message = mac_control::Message::Pause { quanta: 0xffff };
    assert_eq!(classify_access(&xoff, Trust::Nothing), Verdict::Pause(message));
    assert_eq!(classify_underlay(&xoff), OuterVerdict::Pause(message));
}

/// Returns a tenant's frame in VXLAN. Outer headers: Ethernet at 0, IP at 14, UDP at 34, VXLAN at
/// 42.
fn encapsulated(inner: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 50];
    let udp_payload = u16::try_from(inner.len() + 8).unwrap();
    ethernet::Repr { dst: UNDERLAY, src: SRC, ethertype: EtherType::IPV4 }.emit(&mut out);
    ipv4::Repr {
        src: REMOTE,
        dst: LOCAL,
        protocol: ipv4::PROTOCOL_UDP,
        dscp: 34,
        ecn: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: udp_payload + 8,
    }
    .emit(&mut out[14..]);
    udp::Repr { src_port: 50_000, dst_port: vxlan::PORT, payload_size: udp_payload }
        .emit(&mut out[34..]);
    vxlan::Repr { vni: sluice_base::Vni::new(100).unwrap() }.emit(&mut out[42..]);
    out.extend(inner);
    out
}

/// Returns the encapsulated frame with bytes of the outer IP header changed and its checksum
/// updated.
fn with_ip(at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = with(encapsulated(&tenant_frame()), 14 + at, new);
    bytes[24..26].fill(0);
    let sum = sluice_wire::checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// A frame of an underlay port for every reason that its classification can give.
#[test]
fn every_reason_of_an_underlay_port() {
    use DropReason as R;
    let good = || encapsulated(&tenant_frame());
    let inside = |inner: &[u8]| encapsulated(inner);
    let tag = |bytes: &[u8]| {
        let mut out = bytes[..12].to_vec();
        out.extend([0x81, 0, 0x60, 0]);
        out.extend(&bytes[12..]);
        out
    };
    let table: Vec<(&str, R, Vec<u8>)> = vec![
        ("nothing", R::Runt, vec![]),
        ("for another station", R::NotForUs, with(good(), 5, &[7])),
        ("a broadcast", R::NotForUs, with(good(), 0, &[0xff; 6])),
        ("ARP", R::NotForUs, with(good(), 12, &[8, 6])),
        ("IPv6", R::NotForUs, with(good(), 12, &[0x86, 0xdd])),
        ("for another address", R::NotForUs, with_ip(16, &[10, 0, 0, 9])),
        ("TCP", R::NotForUs, with_ip(9, &[6])),
        ("another port", R::NotForUs, with(good(), 36, &[0, 53])),
        ("a tag cut off", R::BadVlan, with(good(), 12, &[0x81, 0])[..17].to_vec()),
        ("an IP header cut off", R::BadIp, good()[..33].to_vec()),
        ("version 6 in an IPv4 frame", R::BadIp, with_ip(0, &[0x65])),
        ("a header of 16 bytes", R::BadIp, with_ip(0, &[0x44])),
        ("a wrong checksum", R::BadIp, with(good(), 24, &[0xde, 0xad])),
        ("the first part of a packet", R::BadIp, with_ip(6, &[0x20, 0])),
        ("a later part of a packet", R::BadIp, with_ip(6, &[0, 1])),
        ("a byte of the packet missing", R::BadIp, good()[..good().len() - 1].to_vec()),
        ("IP without room for UDP", R::BadUdp, with_ip(2, &[0, 27])),
        ("IP smaller than its header", R::BadUdp, with_ip(2, &[0, 19])),
        ("UDP longer than IP", R::BadUdp, with(good(), 38, &[0, 200])),
        ("UDP that ends within VXLAN", R::BadVxlan, with(good(), 38, &[0, 15])),
        ("UDP that ends within the inner header", R::BadVxlan, with(good(), 38, &[0, 29])),
        ("a length inside beyond UDP", R::Runt, {
            let inner = inside(&frame(DST, SRC, 50, &[0; 50]));
            with(inner, 38, &[0, 8 + 8 + 14 + 49])
        }),
        ("UDP shorter than its header", R::BadUdp, with(good(), 38, &[0, 7])),
        ("no VNI", R::BadVxlan, with(good(), 42, &[0])),
        ("VXLAN with nothing in it", R::BadVxlan, inside(&[])),
        ("half a frame", R::BadVxlan, inside(&[2; 13])),
        (
            "spanning tree inside",
            R::ReservedAddress,
            inside(&with(tenant_frame(), 0, &[1, 0x80, 0xc2, 0, 0, 0])),
        ),
        (
            "pause inside",
            R::ReservedAddress,
            inside(&frame(Mac::PAUSE, SRC, 0x8808, &[0, 1, 0, 0])),
        ),
        ("from a group inside", R::BadSource, inside(&with(tenant_frame(), 6, &[1]))),
        ("a VLAN inside", R::VlanNotAllowed, inside(&tagged(5, 0x0800, &ip_payload(0)))),
        ("two tags inside", R::BadVlan, inside(&tagged(0, 0x88a8, &[0; 46]))),
        ("bad ARP inside", R::BadArp, inside(&frame(DST, SRC, 0x0806, &[0; 28]))),
        ("a length beyond the frame inside", R::Runt, inside(&frame(DST, SRC, 100, &[0; 50]))),
        ("congestion that nobody would hear", R::NotEcnCapable, with_ip(1, &[34 << 2 | 3])),
        ("a pause cut off", R::BadPause, frame(Mac::PAUSE, SRC, 0x8808, &[1, 1])),
        ("the same behind a tag", R::BadVxlan, with(tag(&good()), 46, &[0])),
    ];
    let mut reached = alloc::collections::BTreeSet::new();
    for (what, reason, bytes) in table {
        match classify_underlay(&bytes) {
            OuterVerdict::Drop(found, _) => assert_eq!(found, reason, "{what}"),
            // Reason that applies unless the network carries tags.
            OuterVerdict::Forward(Decapsulated { own_tag: Some(found), .. }) => {
                assert_eq!(found, reason, "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
        reached.insert(reason);
    }
    // Both tables together reach every reason of class malformed.
    let malformed = DropReason::ALL.iter().filter(|r| r.class() == DropClass::Malformed);
    for reason in malformed {
        assert!(reached.contains(reason), "{reason} has no row");
    }
}

#[test]
fn what_an_underlay_port_takes() {
    let inner = Classified { dst: DST, priority: p(4) };
    let size = 50 + u32::try_from(tenant_frame().len()).unwrap();
    let plain =
        Decapsulated { inner, remote: REMOTE, vni: 100, size, strip: 50, ecn: None, own_tag: None };
    assert_eq!(
        classify_underlay(&encapsulated(&tenant_frame())),
        OuterVerdict::Forward(plain),
        "the outer DSCP says the priority"
    );
    // IP options: four bytes more in front.
    let mut bytes = encapsulated(&tenant_frame());
    bytes.splice(34..34, [1, 1, 1, 0]);
    bytes[14] = 0x46;
    let total = u16::try_from(bytes.len() - 14).unwrap();
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = sluice_wire::checksum::internet(&bytes[14..38]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        classify_underlay(&bytes),
        OuterVerdict::Forward(Decapsulated { size: size + 4, strip: 54, ..plain })
    );
    // ECT(1) outside, ECT(0) inside: becomes ECT(1).
    let bytes = encapsulated(&with(tenant_frame(), 15, &[26 << 2 | 0b10]));
    let mut bytes = with(bytes, 15, &[34 << 2 | 0b01]);
    bytes[24..26].fill(0);
    let sum = sluice_wire::checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        classify_underlay(&bytes),
        OuterVerdict::Forward(Decapsulated { ecn: Some(0b01), ..plain })
    );
}

/// The lengths of IP and UDP give the end of a frame, whatever its link or a sender put behind it.
#[test]
fn vxlan_bytes_beyond_ip_udp_length_are_cut() {
    let size = 50 + u32::try_from(tenant_frame().len()).unwrap();
    let forwarded = |bytes: &[u8]| match classify_underlay(bytes) {
        OuterVerdict::Forward(found) => (found.size, found.strip),
        other => panic!("{other:?}"),
    };
    for behind in [1, 4, 46, 1_000] {
        let padded = [&encapsulated(&tenant_frame())[..], &vec![0xa5; behind]].concat();
        assert_eq!(forwarded(&padded), (size, 50), "{behind} bytes of the link");
    }
    // A UDP length below the payload of IP: the rest belongs to nothing.
    let udp_size = u16::try_from(size - 34).unwrap();
    for less in [1, 4, 20] {
        let shorter = with(encapsulated(&tenant_frame()), 38, &(udp_size - less).to_be_bytes());
        assert_eq!(forwarded(&shorter), (size - u32::from(less), 50), "{less} bytes of IP");
    }
    // Both, behind an outer tag.
    let mut both = with(encapsulated(&tenant_frame()), 38, &(udp_size - 3).to_be_bytes());
    both.splice(12..12, [0x81, 0, 0x60, 0]);
    both.extend([1, 2, 3, 4]);
    assert_eq!(forwarded(&both), (size + 1, 54));
}

#[test]
fn only_what_differs_is_rewritten() {
    let bytes = with(tenant_frame(), 15, &[26 << 2 | 0b10]);
    let mut out = [0; 128];
    assert_eq!(with_ecn(&bytes, 0b11, &mut out), 34);
    assert_eq!((out[15], &out[..14], &out[26..34]), (26 << 2 | 0b11, &bytes[..14], &bytes[26..34]));
    let small = &mut [0; 20];
    assert_eq!(with_ecn(&bytes, 0b11, small), 0, "no room");
    assert_eq!(with_ecn(&bytes[..30], 0b11, &mut out), 0, "cut off");
    assert_eq!(with_ecn(&frame(DST, SRC, 0x0806, &arp_payload()), 0b11, &mut out), 0, "no IP");
}

proptest! {
    /// The fast path and the slow path give the same result.
    #[test]
    fn access_fast_path_matches_full_classifier(
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        ethertype in any::<bool>(),
        trusts in any::<bool>(),
    ) {
        if ethertype && bytes.len() >= 14 {
            bytes[12..14].copy_from_slice(&[8, 0]);
        }
        let trust = if trusts { Trust::PcpThenDscp } else { Trust::Nothing };
        let map = priorities();
        let marking = Marking { trust, default: p(1), dscp_to_priority: &map };
        if let Some((dst, priority)) = plain(&bytes, marking) {
            let classified = Classified { dst: Mac::from_u64(dst), priority: p(priority) };
            prop_assert_eq!(classify_access(&bytes, trust), Verdict::Forward(classified));
        }
    }

    /// No bytes cause a panic, and a frame that passes is longer than its headers.
    #[test]
    fn underlay_fast_path_matches_full_classifier(
        changes in prop::collection::vec((0_usize..110, any::<u8>()), 0..3),
        marks in any::<(u8, u8)>(),
        size in 60_usize..120,
        behind in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        // Marks of both headers first, with good checksums; then anything.
        let mut inner = tenant_frame();
        inner[15] = marks.1;
        let mut bytes = encapsulated(&inner);
        bytes[15] = marks.0;
        bytes[24..26].fill(0);
        let sum = sluice_wire::checksum::internet(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        for (at, value) in changes {
            bytes[at] = value;
        }
        bytes.truncate(if size < 90 { size } else { bytes.len() });
        bytes.extend(behind);
        let map = priorities();
        let marking = Marking { trust: Trust::PcpThenDscp, default: p(1), dscp_to_priority: &map };
        let size = u32::try_from(bytes.len()).unwrap();
        if let Some(plain) = plain_underlay(&bytes, size, LOCAL, UNDERLAY, marking) {
            let OuterVerdict::Forward(long) = classify_underlay(&bytes) else {
                panic!("the long way does not take it");
            };
            prop_assert_eq!(plain.dst, long.inner.dst.to_u64());
            prop_assert_eq!(plain.priority, long.inner.priority.get());
            prop_assert_eq!((plain.remote, plain.vni), (long.remote.to_bits(), long.vni));
            prop_assert_eq!((usize::from(long.strip), long.ecn), (PLAIN_OUTER_SIZE, None));
            prop_assert_eq!(long.size, size, "what has to be cut goes the long way");
        }
    }

    #[test]
    fn any_bytes_are_classified(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        at in 0usize..110,
        start in 0usize..4,
    ) {
        // Half of the time a good frame with something overwritten.
        let mut frame = encapsulated(&tenant_frame());
        if start < 3 {
            let end = (at + bytes.len() / 40).min(frame.len());
            let count = end.saturating_sub(at);
            frame[at.min(end)..end].copy_from_slice(&bytes[..count]);
        } else {
            frame = bytes;
        }
        if let OuterVerdict::Forward(decapsulated) = classify_underlay(&frame) {
            let size = usize::try_from(decapsulated.size).unwrap();
            prop_assert!(usize::from(decapsulated.strip) + 14 <= size && size <= frame.len());
        }
        classify_access(&frame, Trust::PcpThenDscp);
    }
}

#[test]
fn a_frame_of_the_common_case_is_plain() {
    let map = priorities();
    let marking = Marking { trust: Trust::PcpThenDscp, default: p(1), dscp_to_priority: &map };
    let bytes = encapsulated(&tenant_frame());
    let size = u32::try_from(bytes.len()).unwrap();
    assert!(plain_underlay(&bytes, size, LOCAL, UNDERLAY, marking).is_some());
    let bad = with(bytes, 24, &[0, 0]);
    assert_eq!(plain_underlay(&bad, size, LOCAL, UNDERLAY, marking), None, "the checksum is wrong");
}

fn classify_behind_driver(bytes: &[u8], trust: Trust, tag: VlanTag) -> Verdict {
    let map = priorities();
    let marking = Marking { trust, default: p(1), dscp_to_priority: &map };
    let size = u32::try_from(bytes.len()).unwrap();
    behind_driver(&bytes[..bytes.len().min(128)], size, marking, tag)
}

/// Frames whose driver has handled their tag.
#[test]
fn a_tag_that_is_off_says_the_priority() {
    let forward = |priority| Verdict::Forward(Classified { dst: DST, priority: p(priority) });
    let drop = Verdict::Drop;
    let (trusted, not) = (Trust::PcpThenDscp, Trust::Nothing);
    let off = VlanTag::TakenOff;
    let own = |vid| tagged(vid, 0x0800, &ip_payload(0));
    let arp = frame(DST, SRC, 0x0806, &arp_payload());
    let table: Vec<(&str, Vec<u8>, VlanTag, Verdict, Verdict)> = vec![
        ("IPv4", tenant_frame(), off(0x600a), forward(3), forward(1)),
        ("IPv4 of no VLAN, PCP 0", tenant_frame(), off(0), forward(0), forward(1)),
        ("ARP", arp, off(0xe00a), forward(7), forward(1)),
        ("its own VLAN", own(20), off(0x600a), forward(3), forward(1)),
        ("its own priority tag", own(0xa000), off(0x600a), forward(3), forward(1)),
        ("a stack of its own", tagged(0, 0x8100, &[0; 46]), off(10), forward(0), forward(1)),
        (
            "a service tag of its own",
            frame(DST, SRC, 0x88a8, &[0, 0, 0x81, 0]),
            off(10),
            forward(0),
            forward(1),
        ),
        (
            "half a tag of its own",
            frame(DST, SRC, 0x8100, &[0, 0, 8]),
            off(10),
            drop(DropReason::BadVlan),
            drop(DropReason::BadVlan),
        ),
        (
            "a VLAN behind a priority tag",
            own(20),
            off(0xa000),
            drop(DropReason::VlanNotAllowed),
            drop(DropReason::VlanNotAllowed),
        ),
        (
            "nobody's VLAN",
            own(30),
            VlanTag::NotAllowed,
            drop(DropReason::VlanNotAllowed),
            drop(DropReason::VlanNotAllowed),
        ),
        (
            "nobody's priority tag",
            own(0xa000),
            VlanTag::NotAllowed,
            drop(DropReason::VlanNotAllowed),
            drop(DropReason::VlanNotAllowed),
        ),
        (
            "no tag",
            tenant_frame(),
            VlanTag::NotAllowed,
            drop(DropReason::Untagged),
            drop(DropReason::Untagged),
        ),
        (
            "of a bridge, no tag",
            frame(Mac([1, 0x80, 0xc2, 0, 0, 0]), SRC, 0x88cc, &[0; 46]),
            VlanTag::NotAllowed,
            drop(DropReason::ReservedAddress),
            drop(DropReason::ReservedAddress),
        ),
        (
            "from a group",
            frame(DST, Mac([3, 0, 0, 0, 0, 1]), 0x8100, &[0; 46]),
            off(10),
            drop(DropReason::BadSource),
            drop(DropReason::BadSource),
        ),
    ];
    for (name, bytes, tag, if_trusted, if_not) in table {
        assert_eq!(classify_behind_driver(&bytes, trusted, tag), if_trusted, "{name}");
        assert_eq!(classify_behind_driver(&bytes, not, tag), if_not, "{name}, not trusted");
        let as_is = classify_behind_driver(&bytes, trusted, VlanTag::AsIs);
        assert_eq!(as_is, classify_access(&bytes, trusted), "{name}, as it is");
    }
}

/// Flow control has no tag and belongs to the wire, whatever its VLANs are.
#[test]
fn pause_frame_untagged_on_tagged_port_is_accepted() {
    let mut bytes = [0; mac_control::FRAME_SIZE];
    let message = mac_control::Message::Pause { quanta: 5 };
    message.emit(SRC, &mut bytes);
    let verdict = classify_behind_driver(&bytes, Trust::PcpThenDscp, VlanTag::NotAllowed);
    assert_eq!(verdict, Verdict::Pause(message));
}
