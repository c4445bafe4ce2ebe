use std::string::ToString;

use super::*;

#[test]
fn a_view_says_why_it_cannot_be_had() {
    assert_eq!(ethernet::Frame::new_checked(&[0; 13]).unwrap_err(), Truncated);
    assert_eq!(Truncated.to_string(), "the bytes end before the header does");
}

#[test]
fn an_ethertype_shows_as_the_standards_write_it() {
    assert_eq!(EtherType::IPV4.to_string(), "0x0800");
    assert_eq!(EtherType(5).to_string(), "0x0005");
}

#[test]
fn two_ethertypes_are_tags() {
    assert!(EtherType::VLAN.is_tag() && EtherType::QINQ.is_tag());
    assert!(!EtherType::IPV4.is_tag() && !EtherType(0x9100).is_tag());
}

#[test]
#[should_panic(expected = "room for the header")]
fn header_emit_into_small_buffer_panics() {
    udp::Repr { src_port: 1, dst_port: 2, payload_size: 0 }.emit(&mut [0; 7]);
}

/// A frame as it travels between two hosts, by hand: a tenant's ARP request in VXLAN.
#[test]
fn a_tunnelled_frame_is_read_to_its_end() {
    #[rustfmt::skip]
    let bytes = [
        // Ethernet, then a tag: priority 3, VLAN 100.
        0x02, 0, 0, 0, 0, 0xbb, 0x02, 0, 0, 0, 0, 0xaa, 0x81, 0x00, 0x60, 0x64, 0x08, 0x00,
        // IPv4, 10.0.0.1 to 10.0.0.2, DSCP 24, 78 bytes.
        0x45, 0x60, 0x00, 0x4e, 0, 0, 0x40, 0, 0x40, 0x11, 0x26, 0x3d, 10, 0, 0, 1, 10, 0, 0, 2,
        // UDP 50000 to 4789, 58 bytes, no checksum.
        0xc3, 0x50, 0x12, 0xb5, 0x00, 0x3a, 0, 0,
        // VXLAN, VNI 5001.
        0x08, 0, 0, 0, 0x00, 0x13, 0x89, 0,
        // The tenant's frame.
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0, 0, 0, 1, 0x08, 0x06,
        0, 1, 8, 0, 6, 4, 0, 1, 0x52, 0x54, 0, 0, 0, 1, 192, 168, 1, 1,
        0, 0, 0, 0, 0, 0, 192, 168, 1, 2,
    ];
    let frame = ethernet::Frame::new_checked(&bytes).unwrap();
    assert_eq!(frame.ethertype(), EtherType::VLAN);
    let tag = vlan::Tag::new_checked(frame.payload()).unwrap();
    assert_eq!((tag.priority().get(), tag.vid()), (3, 100));
    assert_eq!(tag.ethertype(), EtherType::IPV4);
    let packet = ipv4::Packet::new_checked(tag.payload()).unwrap();
    assert!(packet.header_checksum_ok());
    assert_eq!((packet.protocol(), packet.dscp()), (ipv4::PROTOCOL_UDP, 24));
    let datagram = udp::Packet::new_checked(packet.payload()).unwrap();
    assert_eq!(datagram.dst_port(), vxlan::PORT);
    let tunnel = vxlan::Header::new_checked(datagram.payload()).unwrap();
    assert!(tunnel.has_vni());
    assert_eq!(tunnel.vni().get(), 5001);
    let inner = ethernet::Frame::new_checked(tunnel.payload()).unwrap();
    assert_eq!(inner.ethertype(), EtherType::ARP);
    let arp = arp::Packet::new_checked(inner.payload()).unwrap();
    assert!(arp.is_well_formed());
    assert_eq!(arp.target_ip().octets(), [192, 168, 1, 2]);
}
