use core::net::Ipv4Addr;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{HostId, PortId, Vni};

use super::*;
use crate::directory::{Directory, Found, Places, PortRule, State};
use crate::vport::{Claim, Ips, Key, Origin};

/// Endpoint `n`: 02:00:00:00:00:n, 10.0.0.n, 2001:db8::n.
pub(crate) fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

pub(crate) fn v4(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

pub(crate) fn v6(n: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n))
}

pub(crate) fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

/// A tag of priority 3 and VLAN 100.
pub(crate) const TAG: [u8; 4] = [0x81, 0, 0x60, 0x64];

/// A frame with these tags.
pub(crate) fn frame(dst: Mac, src: Mac, tags: &[u8], kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let kind = kind.0.to_be_bytes();
    [&dst.0[..], &src.0[..], tags, &kind[..], payload].concat()
}

/// An ARP packet, to all.
pub(crate) fn arp_frame(src: Mac, tags: &[u8], repr: arp::Repr) -> Vec<u8> {
    let mut payload = [0; arp::SIZE];
    repr.emit(&mut payload);
    frame(Mac::BROADCAST, src, tags, EtherType::ARP, &payload)
}

/// A question of endpoint `n` for the address of endpoint `target`.
pub(crate) fn arp_request(n: u8, target: u8) -> Vec<u8> {
    let request = arp::Repr { sender_ip: v4(n), ..arp::Repr::probe(mac(n), v4(target)) };
    arp_frame(mac(n), &[], request)
}

/// A message of neighbours in a frame. A group has its own MAC; any other destination has the MAC
/// of endpoint 1.
pub(crate) fn nd_frame(
    mac_src: Mac,
    tags: &[u8],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    message: icmpv6::Repr,
) -> Vec<u8> {
    let mut payload = std::vec![0; ipv6::HEADER_SIZE + message.size()];
    let header = ipv6::Repr {
        src,
        dst,
        next_header: icmpv6::PROTOCOL,
        dscp: 0,
        ecn: 0,
        flow_label: 0,
        hop_limit: 255,
        payload_size: u16::try_from(message.size()).unwrap(),
    };
    header.emit(&mut payload);
    message.emit(src, dst, &mut payload[ipv6::HEADER_SIZE..]);
    let mac_dst = if dst.is_multicast() { ipv6::group_mac(dst) } else { mac(1) };
    frame(mac_dst, mac_src, tags, EtherType::IPV6, &payload)
}

/// A question of endpoint `n` for endpoint `target`.
pub(crate) fn solicitation(n: u8, target: u8) -> Vec<u8> {
    let message = icmpv6::Repr::Solicitation { target: v6(target), source_mac: Some(mac(n)) };
    nd_frame(mac(n), &[], v6(n), icmpv6::solicited_node(v6(target)), message)
}

/// Endpoint `n` probes for the address of endpoint `target`.
pub(crate) fn nd_probe(n: u8, target: u8) -> Vec<u8> {
    let message = icmpv6::Repr::Solicitation { target: v6(target), source_mac: None };
    let group = icmpv6::solicited_node(v6(target));
    nd_frame(mac(n), &[], Ipv6Addr::UNSPECIFIED, group, message)
}

/// Endpoint `n` announces its address to all, as a router or not.
pub(crate) fn advertisement(n: u8, router: bool) -> Vec<u8> {
    let message = icmpv6::Repr::Advertisement {
        target: v6(n),
        target_mac: Some(mac(n)),
        router,
        solicited: false,
        overrides: true,
    };
    nd_frame(mac(n), &[], v6(n), icmpv6::ALL_NODES, message)
}

/// A frame of data from endpoint `n` to endpoint 9.
pub(crate) fn data(n: u8) -> Vec<u8> {
    frame(mac(9), mac(n), &[], EtherType(0x88b5), &[0; 46])
}

/// A claim for endpoint `n` of network 7, with both of its addresses.
pub(crate) fn found(n: u8, state: State, port: u16, origin: Origin) -> Found {
    let key = Key { vni: vni(7), mac: mac(n) };
    let ips: Ips = [v4(n).into(), v6(n).into()].into_iter().collect();
    let claim = Claim { key, port: PortId(port), ips, origin, moves: 0 };
    let owner = if state == State::Own { HostId(1) } else { HostId(2) };
    Found { claim, owner, state }
}

/// Claims in a list; the first that fits is the best.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(pub(crate) Vec<Found>);

impl Directory for Claims {
    fn find(&self, key: Key) -> Option<Found> {
        self.0.iter().copied().find(|found| found.claim.key == key)
    }

    fn find_ip(&self, vni: Vni, ip: IpAddr) -> Option<Found> {
        let fits = |found: &Found| found.claim.key.vni == vni && found.claim.ips.contains(ip);
        self.0.iter().copied().find(fits)
    }

    fn is_confirmed(&self, _key: Key, ip: IpAddr) -> bool {
        // The last address of all is never confirmed.
        ip != IpAddr::V4(v4(u8::MAX))
    }
}

/// Ports with a rule each, all of them in network 7, which hosts 2 and 3 have as well.
pub(crate) struct House {
    pub(crate) rules: Vec<PortRule>,
    /// Addresses that each port allows.
    pub(crate) allowed: Vec<(PortId, IpAddr)>,
    ports: Vec<PortId>,
}

impl House {
    pub(crate) fn new(rules: impl IntoIterator<Item = PortRule>) -> Self {
        let rules: Vec<_> = rules.into_iter().collect();
        let ports = (0..rules.len()).map(PortId::from_index).collect();
        Self { rules, allowed: Vec::new(), ports }
    }
}

impl Places for House {
    fn is_member(&self, _port: PortId, network: Vni) -> bool {
        network == vni(7)
    }

    fn rule(&self, port: PortId) -> PortRule {
        self.rules[port.index()]
    }

    fn allows(&self, port: PortId, ip: IpAddr) -> bool {
        self.allowed.contains(&(port, ip))
    }

    fn ports(&self, _vni: Vni) -> &[PortId] {
        &self.ports
    }

    fn hosts(&self, _vni: Vni) -> &[HostId] {
        &[HostId(2), HostId(3)]
    }
}

#[test]
fn arp_request_parsed_behind_at_most_two_tags() {
    let outer = [0x88, 0xa8, 0, 5];
    let request = arp::Repr { sender_ip: v4(1), ..arp::Repr::probe(mac(1), v4(2)) };
    for tags in [&[][..], &TAG, &[outer, TAG].concat()] {
        let bytes = arp_frame(mac(1), tags, request);
        let read = Frame::parse(&bytes).unwrap();
        assert_eq!((read.dst, read.src, read.tags), (Mac::BROADCAST, mac(1), tags));
        assert_eq!(read.body, Body::Arp(request));
        assert_eq!(read.asks_for(), Some(v4(2).into()));
    }
    let bytes = arp_frame(mac(1), &[outer, TAG, TAG].concat(), request);
    assert_eq!(Frame::parse(&bytes).unwrap().body, Body::Other, "a third tag");
}

#[test]
fn only_questions_ask() {
    let reply = arp::Repr::probe(mac(1), v4(2)).reply(mac(2));
    let announcement = arp::Repr::announcement(mac(1), v4(1));
    let rows = [
        (arp_request(1, 2), Some(v4(2).into())),
        (arp_frame(mac(1), &[], arp::Repr::probe(mac(1), v4(2))), Some(v4(2).into())),
        (arp_frame(mac(1), &[], announcement), None),
        (arp_frame(mac(2), &[], reply), None),
        (solicitation(1, 2), Some(v6(2).into())),
        (nd_probe(1, 2), Some(v6(2).into())),
        (advertisement(1, false), None),
        (data(1), None),
    ];
    for (row, (bytes, expected)) in rows.into_iter().enumerate() {
        assert_eq!(Frame::parse(&bytes).unwrap().asks_for(), expected, "row {row}");
    }
}

#[test]
fn frame_breaking_rules_malformed_unrelated_frame_other() {
    let mut arp = arp_request(1, 2);
    arp[14] ^= 1;
    let mut nd = solicitation(1, 2);
    nd[14 + 40 + 2] ^= 1;
    let mut other = solicitation(1, 2);
    other[14 + 40] = 133;
    let rows = [
        (arp, Body::Malformed),
        (arp_request(1, 2)[..30].to_vec(), Body::Malformed),
        (nd, Body::Malformed),
        (other, Body::Other),
        (solicitation(1, 2)[..14 + 39].to_vec(), Body::Other),
        (data(1), Body::Other),
    ];
    for (row, (bytes, expected)) in rows.into_iter().enumerate() {
        assert_eq!(Frame::parse(&bytes).unwrap().body, expected, "row {row}");
    }
}

#[test]
fn a_frame_without_type_is_none() {
    let bytes = arp_frame(mac(1), &TAG, arp::Repr::probe(mac(1), v4(2)));
    assert!((0..18).all(|size| Frame::parse(&bytes[..size]).is_err()));
    assert!(Frame::parse(&bytes[..18]).is_ok());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>, kind in 0..6_usize) {
        let starts = [
            data(1), arp_request(1, 2), solicitation(1, 2), nd_probe(1, 2), advertisement(1, true),
            arp_frame(mac(1), &TAG, arp::Repr::announcement(mac(1), v4(1))),
        ];
        let mut mixed = starts[kind].clone();
        for (at, byte) in bytes.iter().enumerate() {
            let at = at * 37 % mixed.len();
            mixed[at] ^= byte;
        }
        for bytes in [bytes, mixed] {
            if let Ok(frame) = Frame::parse(&bytes) {
                prop_assert!(frame.tags.len() <= TAGS_MAX * 4);
                prop_assert_eq!(&frame.src.0[..], &bytes[6..12]);
            }
        }
    }
}
