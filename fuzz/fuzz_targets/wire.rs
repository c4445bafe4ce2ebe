//! Fuzzes every parser of `sluice-wire`.
//!
//! Each format is laid over the start of the bytes, whatever they are, and again at the place where
//! the layers before it say that it begins. Nothing may panic. A parsed value that is emitted and
//! parsed again is the same. The results of different accessors agree.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_base::Mac;
use sluice_wire::{
    EtherType, Truncated, arp, checksum, ecn, ethernet, fabric, flow, guest_room, icmpv6, ipv4,
    ipv6, mac_control, tcp, too_big, udp, vlan, vxlan,
};

fuzz_target!(|bytes: &[u8]| {
    for check in [
        ethernet,
        vlan,
        arp,
        ipv4,
        ipv6,
        icmpv6,
        udp,
        tcp,
        vxlan,
        mac_control,
        flow,
        checksum,
        ecn,
        fabric,
        hold,
        errors,
        guest_room,
        guest_room_behind_header,
    ] {
        check(bytes);
    }
    walk(bytes, 0);
});

/// Makes and parses "too large" messages.
fn errors(bytes: &[u8]) {
    let Some((mtu, bytes)) = bytes.split_first_chunk() else { return };
    let mtu = u16::from_be_bytes(*mtu);
    let mut out = [0; too_big::ANSWER_SIZE_MAX];
    if let Some(size) = too_big::answer(bytes, mtu, &mut out) {
        let frame = ethernet::Frame::new_checked(&out[..size]).unwrap();
        if frame.ethertype() == EtherType::IPV4 {
            let ip = ipv4::Packet::new_checked(frame.payload()).unwrap();
            assert!(ip.header_checksum_ok() && checksum::internet(ip.payload()) == 0);
        }
    }
    if let Ok(ip) = ipv4::Packet::new_checked(bytes)
        && let Some(heard) = too_big::Heard::of(&ip)
    {
        assert!(heard.mtu >= too_big::MTU_MIN);
    }
}

/// Follows the headers to the end of the frame, into tunnels as well.
fn walk(bytes: &[u8], depth: u32) {
    ethernet(bytes);
    flow(bytes);
    let Ok(frame) = ethernet::Frame::new_checked(bytes) else { return };
    let (mut ethertype, mut payload) = (frame.ethertype(), frame.payload());
    while ethertype.is_tag() {
        vlan(payload);
        let Ok(tag) = vlan::Tag::new_checked(payload) else { return };
        (ethertype, payload) = (tag.ethertype(), tag.payload());
    }
    let (protocol, payload) = match ethertype {
        EtherType::ARP => return arp(payload),
        EtherType::MAC_CONTROL => return mac_control(payload),
        EtherType::IPV4 => {
            ipv4(payload);
            let Ok(packet) = ipv4::Packet::new_checked(payload) else { return };
            (packet.protocol(), packet.payload())
        }
        EtherType::IPV6 => {
            ipv6(payload);
            let Ok(packet) = ipv6::Packet::new_checked(payload) else { return };
            neighbor(&packet);
            (packet.next_header(), packet.payload())
        }
        _ => return,
    };
    if protocol == ipv4::PROTOCOL_TCP {
        return tcp(payload);
    }
    if protocol != ipv4::PROTOCOL_UDP {
        return;
    }
    udp(payload);
    let Ok(datagram) = udp::Packet::new_checked(payload) else { return };
    if datagram.dst_port() == vxlan::PORT && depth < 4 {
        vxlan(datagram.payload());
        if let Ok(header) = vxlan::Header::new_checked(datagram.payload()) {
            walk(header.payload(), depth + 1);
        }
    }
}

/// Checks that the view is refused below `size_min` bytes and only there.
fn checked<V>(view: Result<V, Truncated>, bytes: &[u8], size_min: usize) -> Option<V> {
    assert_eq!(view.is_ok(), bytes.len() >= size_min);
    if let Err(error) = &view {
        assert!(!error.to_string().is_empty());
    }
    view.ok()
}

fn ethernet(bytes: &[u8]) {
    let view = ethernet::Frame::new_checked(bytes);
    let Some(frame) = checked(view, bytes, ethernet::HEADER_SIZE) else { return };
    assert_eq!(frame.payload(), &bytes[ethernet::HEADER_SIZE..]);
    assert_eq!(frame.ethertype().to_string(), format!("{:#06x}", frame.ethertype().0));
    let mut out = [0; ethernet::HEADER_SIZE];
    ethernet::Repr::parse(&frame).emit(&mut out);
    assert_eq!(out, bytes[..ethernet::HEADER_SIZE]);
}

fn vlan(bytes: &[u8]) {
    let Some(tag) = checked(vlan::Tag::new_checked(bytes), bytes, vlan::TAG_SIZE) else { return };
    assert_eq!(tag.payload(), &bytes[vlan::TAG_SIZE..]);
    let mut out = [0; vlan::TAG_SIZE];
    vlan::Repr::parse(&tag).emit(&mut out);
    assert_eq!(out, bytes[..vlan::TAG_SIZE]);
}

fn arp(bytes: &[u8]) {
    let Some(packet) = checked(arp::Packet::new_checked(bytes), bytes, arp::SIZE) else { return };
    let repr = arp::Repr::parse(&packet);
    assert_eq!(repr.is_some(), packet.is_well_formed());
    if let Some(repr) = repr {
        let mut out = [0; arp::SIZE];
        repr.emit(&mut out);
        assert_eq!(out, bytes[..arp::SIZE]);
        assert!(!(repr.is_probe() && repr.is_gratuitous()));
        let reply = repr.reply(repr.sender_mac);
        assert_eq!((reply.sender_ip, reply.target_ip), (repr.target_ip, repr.sender_ip));
    }
}

fn ipv4(bytes: &[u8]) {
    let view = ipv4::Packet::new_checked(bytes);
    let Some(packet) = checked(view, bytes, ipv4::HEADER_SIZE_MIN) else { return };
    assert_eq!(bytes[1], packet.dscp() << 2 | packet.ecn());
    assert!(packet.payload().len() <= usize::from(packet.total_size()));
    let whole = packet.header_checksum_ok();
    for ecn in 0..4 {
        let mut changed = bytes.to_vec();
        ipv4::set_ecn(&mut changed, ecn);
        let after = ipv4::Packet::new_checked(&changed).expect("as long as before");
        assert_eq!((after.ecn(), after.dscp()), (ecn, packet.dscp()));
        assert_eq!(after.header_checksum_ok(), whole);
        // Only the field and the checksum changed.
        changed[1] = bytes[1];
        changed[10..12].copy_from_slice(&packet.header_checksum().to_be_bytes());
        assert_eq!(changed, bytes);
    }
    if let Some(repr) = ipv4::Repr::parse(&packet) {
        assert_eq!((packet.version(), packet.header_size()), (4, ipv4::HEADER_SIZE_MIN));
        let mut out = [0; ipv4::HEADER_SIZE_MIN];
        repr.emit(&mut out);
        let again = ipv4::Packet::new_checked(&out).expect("a whole header");
        assert!(again.header_checksum_ok());
        assert_eq!(ipv4::Repr::parse(&again), Some(repr));
    }
}

fn ipv6(bytes: &[u8]) {
    let view = ipv6::Packet::new_checked(bytes);
    let Some(packet) = checked(view, bytes, ipv6::HEADER_SIZE) else { return };
    assert!(packet.payload().len() <= usize::from(packet.payload_size()));
    let mut changed = bytes.to_vec();
    ipv6::set_ecn(&mut changed, ecn::CE);
    ipv6::set_ecn(&mut changed, packet.ecn());
    assert_eq!(changed, bytes);
    let repr = ipv6::Repr::parse(&packet);
    assert_eq!(repr.is_some(), packet.version() == 6);
    if let Some(repr) = repr {
        let mut out = [0; ipv6::HEADER_SIZE];
        repr.emit(&mut out);
        assert_eq!(out, bytes[..ipv6::HEADER_SIZE]);
    }
}

fn icmpv6(bytes: &[u8]) {
    let view = icmpv6::Packet::new_checked(bytes);
    let Some(packet) = checked(view, bytes, icmpv6::HEADER_SIZE) else { return };
    assert_eq!(icmpv6::Kind::of(bytes), Some(packet.kind()));
    let options: usize = packet.options().map(|option| option.data.len() + 2).sum();
    assert_eq!(packet.options_ok(), options == bytes.len() - icmpv6::HEADER_SIZE);
    let repr = icmpv6::Repr::parse(&packet);
    assert_eq!(repr.is_some(), packet.kind().is_neighbor());
    if let Some(repr) = repr {
        let (src, dst) = (packet.target(), icmpv6::solicited_node(packet.target()));
        assert!(dst.is_multicast() && ipv6::group_mac(dst).is_group());
        let mut out = [0; icmpv6::SIZE_MAX];
        repr.emit(src, dst, &mut out);
        let out = &out[..repr.size()];
        assert_eq!(checksum::over_ipv6(src, dst, icmpv6::PROTOCOL, out), 0);
        let again = icmpv6::Packet::new_checked(out).expect("a whole message");
        assert_eq!(icmpv6::Repr::parse(&again), Some(repr));
    }
}

/// Checks that an accepted message is what the bytes say, and came from no farther than the link.
fn neighbor(packet: &ipv6::Packet<'_>) {
    if packet.next_header() == icmpv6::PROTOCOL {
        icmpv6(packet.payload());
    }
    let Some(repr) = icmpv6::Repr::receive(packet) else { return };
    let view = icmpv6::Packet::new_checked(packet.payload()).expect("a whole message");
    assert_eq!(icmpv6::Repr::parse(&view), Some(repr));
    assert!(view.options_ok() && packet.hop_limit() == icmpv6::HOP_LIMIT);
}

fn udp(bytes: &[u8]) {
    let view = udp::Packet::new_checked(bytes);
    let Some(packet) = checked(view, bytes, udp::HEADER_SIZE) else { return };
    assert!(packet.payload().len() <= usize::from(packet.size()));
    if let Some(repr) = udp::Repr::parse(&packet) {
        let mut out = [0; udp::HEADER_SIZE];
        repr.emit(&mut out);
        let again = udp::Packet::new_checked(&out).expect("a whole header");
        assert_eq!((udp::Repr::parse(&again), again.checksum()), (Some(repr), 0));
        assert!(packet.checksum() != 0 || out == bytes[..udp::HEADER_SIZE]);
    }
}

fn tcp(bytes: &[u8]) {
    let view = tcp::Packet::new_checked(bytes);
    let Some(packet) = checked(view, bytes, tcp::HEADER_SIZE_MIN) else { return };
    let ports = u32::from(packet.src_port()) << 16 | u32::from(packet.dst_port());
    let words = [ports, packet.seq(), packet.ack()].map(u32::to_be_bytes);
    assert_eq!(words.as_flattened(), &bytes[..12]);
    assert_eq!(usize::from(bytes[12] >> 4) * 4, packet.header_size());
    assert_eq!(bytes[13], packet.flags());
    let fields = [packet.window(), packet.checksum(), packet.urgent()].map(u16::to_be_bytes);
    assert_eq!(fields.as_flattened(), &bytes[14..20]);
    assert!(packet.payload().len() <= bytes.len() - tcp::HEADER_SIZE_MIN);
}

fn vxlan(bytes: &[u8]) {
    let view = vxlan::Header::new_checked(bytes);
    let Some(header) = checked(view, bytes, vxlan::HEADER_SIZE) else { return };
    assert_eq!(header.payload(), &bytes[vxlan::HEADER_SIZE..]);
    let repr = vxlan::Repr::parse(&header);
    assert_eq!(repr.is_some(), header.has_vni());
    if let Some(repr) = repr {
        let mut out = [0; vxlan::HEADER_SIZE];
        repr.emit(&mut out);
        let again = vxlan::Header::new_checked(&out).expect("a whole header");
        assert_eq!(vxlan::Repr::parse(&again), Some(repr));
    }
}

/// Frames between the agent of a guest and its host.
fn guest_room(bytes: &[u8]) {
    let Ok(message) = guest_room::Message::parse(bytes) else { return };
    assert!(guest_room::Message::is_one(bytes));
    let mut out = [0xff; guest_room::FRAME_SIZE_MAX];
    let size = message.emit(Mac([2, 0, 0, 0, 0, 1]), &mut out);
    assert!(size >= guest_room::FRAME_SIZE_MIN);
    assert_eq!(guest_room::Message::parse(&out[..size]), Ok(message));
    match message {
        guest_room::Message::Question { flows, .. } => assert!(flows.len() <= 16),
        guest_room::Message::Answer { rooms, .. } => {
            for room in rooms {
                let flow = room.flow();
                let again = guest_room::FlowEntry::new(flow.is_v6(), *flow.tuple());
                assert_eq!(again, *flow);
                let (socket, used, limit) = (room.socket(), room.used(), room.limit());
                assert_eq!(guest_room::RoomEntry::new(again, socket, used, limit), *room);
            }
        }
        _ => {}
    }
}

/// The same with a valid beginning, which bytes seldom have.
fn guest_room_behind_header(bytes: &[u8]) {
    let mut frame = guest_room::ADDRESS.0.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame.extend(b"SLgr");
    frame.extend(bytes);
    guest_room(&frame);
    if let Err(error) = guest_room::Message::parse(&frame) {
        assert!(!error.to_string().is_empty());
    }
}

fn mac_control(bytes: &[u8]) {
    let Ok(message) = mac_control::Message::parse(bytes) else {
        assert!(bytes.len() < 20);
        return;
    };
    let (src, mut out) = (Mac([2, 0, 0, 0, 0, 1]), [0xff; mac_control::FRAME_SIZE]);
    message.emit(src, &mut out);
    let frame = ethernet::Frame::new_checked(&out).expect("a whole frame");
    assert_eq!((frame.dst(), frame.src()), (Mac::PAUSE, src));
    assert_eq!(frame.ethertype(), EtherType::MAC_CONTROL);
    assert_eq!(mac_control::Message::parse(frame.payload()), Ok(message));
}

fn flow(bytes: &[u8]) {
    let hash = flow::hash(bytes);
    assert_eq!(hash, flow::hash(&bytes[..bytes.len().min(128)]));
    assert!(flow::source_port(hash) >= flow::SOURCE_PORT_MIN);
}

/// Checks that a message summed together with its checksum gives zero.
fn checksum(bytes: &[u8]) {
    let mut whole = bytes.to_vec();
    whole.resize(bytes.len().next_multiple_of(2), 0);
    whole.extend(checksum::internet(bytes).to_be_bytes());
    assert_eq!(checksum::internet(&whole), 0);
}

/// Checks that a congestion mark is never lost, and that only a packet of a transport without ECN
/// is dropped.
fn ecn(bytes: &[u8]) {
    let &[outer, inner, ..] = bytes else { return };
    let (congested, deaf) = (outer & 3 == ecn::CE, inner & 3 == ecn::NOT_ECT);
    match ecn::decapsulate(outer, inner) {
        None => assert!(congested && deaf),
        Some(ecn::CE) => assert!(!deaf),
        Some(_) => assert!(deaf || !congested),
    }
}

/// Checks that a message is written as it was read, without additions of newer versions.
fn hold(bytes: &[u8]) {
    let Ok(part) = fabric::HoldPart::new_checked(bytes) else { return };
    let mut writer = fabric::HoldWriter::new();
    let fits = part.iter().take_while(|one| writer.push(one)).count();
    let again = writer.finish(part.order()).to_vec();
    let again = fabric::HoldPart::new_checked(&again).expect("it was written");
    assert!(again.order() == part.order() && again.iter().eq(part.iter().take(fits)));
}

fn fabric(bytes: &[u8]) {
    let (message, used) = match fabric::Message::parse(bytes) {
        Ok(Some(read)) => read,
        Ok(None) => return,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(used <= bytes.len().min(fabric::FRAME_SIZE_MAX));
    if let fabric::Message::Claims(claims) = message {
        let mut out = vec![0; fabric::FRAME_SIZE_MAX];
        let mut writer = fabric::ClaimsWriter::new(&mut out);
        for record in claims.records.iter() {
            assert!(record.size() <= fabric::RECORD_SIZE_MAX && writer.push(&record));
        }
        assert_eq!(writer.count(), claims.records.count());
        let size = writer.finish(claims.after, claims.up_to);
        let Ok(Some((fabric::Message::Claims(again), _))) = fabric::Message::parse(&out[..size])
        else {
            panic!("claims are written that cannot be read");
        };
        assert!(again.records.iter().eq(claims.records.iter()));
    }
    if let fabric::Message::Hello(hello) = message {
        let common = hello.common_version(fabric::VERSIONS);
        assert!(common.is_none_or(|version| version <= hello.versions.1));
    }
    let mut out = vec![0; fabric::FRAME_SIZE_MAX];
    let size = message.emit(&mut out);
    let (again, again_used) =
        fabric::Message::parse(&out[..size]).expect("it was written").expect("all of it");
    assert!(again_used == size && size <= used);
    let mut twice = vec![0; fabric::FRAME_SIZE_MAX];
    assert_eq!(again.emit(&mut twice), size);
    assert_eq!(out, twice);
}
