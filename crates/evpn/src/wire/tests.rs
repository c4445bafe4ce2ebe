use proptest::prelude::*;
use sluice_base::Vni;

use super::*;
use crate::config::{Network, RouteTarget};
use crate::exports::{Common, Exports, OwnRoute};
use crate::route::{Endpoint, MacKey, Mobility};

const INTERNAL: Dialect = Dialect { is_wide: true, is_internal: true };
const EXTERNAL: Dialect = Dialect { is_wide: true, is_internal: false };
const VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

fn vni() -> Vni {
    Vni::new(100).unwrap()
}

fn origin(is_internal: bool) -> Origin {
    Origin { vtep: VTEP, router_id: VTEP, local_as: 65000, is_internal }
}

fn key(number: u64) -> MacKey {
    MacKey { vni: vni(), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

fn exports() -> Exports {
    let mut exports = Exports::default();
    exports.add_network(Network { vni: vni(), target: RouteTarget::of_as(65000, 100) });
    exports
}

/// Returns an UPDATE with a route of type 2, and the octets of its parts.
fn reach(is_internal: bool, mobility: Mobility) -> Vec<u8> {
    let mut exports = exports();
    exports.put(Endpoint { key: key(1), ips: Vec::new(), mobility });
    let route = OwnRoute::Mac(key(1), None);
    let common = exports.common(&route).unwrap();
    let mut out = Vec::new();
    put_reach(&mut out, &origin(is_internal), true, common, &[route], &exports);
    out
}

fn update(bytes: &[u8], dialect: Dialect) -> Update {
    match read(bytes, dialect) {
        Ok(Some((size, Heard::Update(update)))) => {
            assert_eq!(size, bytes.len());
            *update
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the position of an attribute of a type.
fn attribute(bytes: &[u8], wanted: u8) -> usize {
    let mut at = 23;
    while bytes[at + 1] != wanted {
        let is_long = bytes[at] & 0x10 != 0;
        let length = u16::from_be_bytes([bytes[at + 2], bytes[at + 3]]);
        at += if is_long { 4 + usize::from(length) } else { 3 + usize::from(bytes[at + 2]) };
    }
    at
}

#[test]
fn mac_route_in_octets() {
    let bytes = reach(true, Mobility { is_sticky: true, sequence: 7 });
    let has = |octets: &[u8]| bytes.windows(octets.len()).any(|window| window == octets);
    // RD of type 1, no segment, no tag, 48 bits of MAC, no address, the VNI (RFC 8365).
    let mut nlri = vec![2, 33, 0, 1, 192, 0, 2, 1, 0, 100];
    nlri.extend([0; 14]);
    nlri.extend([48, 2, 0, 0, 0, 0, 1, 0, 0, 0, 100]);
    assert!(has(&nlri), "{bytes:02x?}");
    // Family and next hop.
    assert!(has(&[0, 25, 70, 4, 192, 0, 2, 1, 0]), "{bytes:02x?}");
    // Route target, VXLAN, mobility.
    assert!(has(&[0, 2, 0xfd, 0xe8, 0, 0, 0, 100, 3, 0x0c, 0, 0, 0, 0, 0, 8]));
    assert!(has(&[6, 0, 1, 0, 0, 0, 0, 7]));
    assert!(has(&[0x40, 5, 4, 0, 0, 0, 100]), "LOCAL_PREF inside an AS");
}

#[test]
fn multicast_route_in_octets() {
    let exports = exports();
    let route = OwnRoute::Network(vni());
    let common = exports.common(&route).unwrap();
    let mut bytes = Vec::new();
    put_reach(&mut bytes, &origin(false), true, common, &[route], &exports);
    let has = |octets: &[u8]| bytes.windows(octets.len()).any(|window| window == octets);
    assert!(has(&[3, 17, 0, 1, 192, 0, 2, 1, 0, 100, 0, 0, 0, 0, 32, 192, 0, 2, 1]));
    // Ingress replication to the VTEP (RFC 6514 section 5), the label is the VNI.
    assert!(has(&[22, 9, 0, 6, 0, 0, 100, 192, 0, 2, 1]), "{bytes:02x?}");
    assert!(has(&[0x40, 2, 6, 2, 1, 0, 0, 0xfd, 0xe8]), "the own AS in the path");
    let read = update(&bytes, EXTERNAL);
    assert_eq!((read.attributes.replication, read.attributes.as_path), (Some(100), vec![65000]));
}

#[test]
fn routes_read_as_written() {
    let mobility = Mobility { is_sticky: false, sequence: 3 };
    let read = update(&reach(true, mobility), INTERNAL);
    let rd = [0, 1, 192, 0, 2, 1, 0, 100];
    let nlri = Nlri::MacIp { rd, tag: 0, mac: key(1).mac, ip: None };
    assert_eq!(read.reach, [Route { nlri, label: Some(100) }]);
    assert_eq!((read.attributes.next_hop, read.attributes.mobility()), (Some(VTEP), mobility));
    assert!(read.attributes.is_vxlan() && !read.is_end_of_rib);

    let mut bytes = Vec::new();
    put_unreach(&mut bytes, &origin(true), &[OwnRoute::Mac(key(1), None)], &exports());
    let read = update(&bytes, INTERNAL);
    assert_eq!((read.withdrawn, read.is_end_of_rib), (vec![nlri], false));
}

#[test]
fn end_of_rib_is_empty_unreach() {
    let mut bytes = Vec::new();
    put_end_of_rib(&mut bytes);
    assert_eq!(bytes[19..], [0, 0, 0, 6, 0x80, 15, 3, 0, 25, 70]);
    assert!(update(&bytes, INTERNAL).is_end_of_rib);
    // That of IPv4 is an UPDATE with nothing in it (RFC 4724 section 2).
    let mut other = bytes[..23].to_vec();
    (other[17], other[22]) = (23, 0);
    assert!(!update(&other, INTERNAL).is_end_of_rib);
}

#[test]
fn malformed_attribute_withdraws_routes() {
    let good = reach(true, Mobility::default());
    // ORIGIN of no known value, communities of an odd length that stays in step with the UPDATE.
    let mut origin = good.clone();
    origin[attribute(&good, 1) + 3] = 9;
    let mut communities = good.clone();
    let at = attribute(&good, 16);
    communities[at + 2] -= 1;
    communities.remove(at + 3);
    (communities[17], communities[22]) = (good[17] - 1, good[22] - 1);
    // ORIGIN is missing.
    let mut missing = good.clone();
    missing.drain(23..27);
    (missing[17], missing[22]) = (good[17] - 4, good[22] - 4);
    for bytes in [origin, communities, missing] {
        let read = update(&bytes, INTERNAL);
        assert_eq!((read.reach.len(), read.withdrawn.len(), read.malformed), (0, 1, 1));
    }
}

#[test]
fn routes_that_cannot_be_found_end_session() {
    let mut bytes = reach(true, Mobility::default());
    // The length of the route runs beyond its attribute.
    let at = attribute(&bytes, 14) + 3 + 9 + 1;
    bytes[at] = 200;
    let error = read(&bytes, INTERNAL).map(|_| ()).unwrap_err();
    assert_eq!(error.code, 3);
}

#[test]
fn largest_message_fits() {
    let mut exports = exports();
    let ips: Vec<IpAddr> = (0..ROUTES_MAX)
        .map(|number| IpAddr::V6(std::net::Ipv6Addr::from(number as u128 + (1 << 120))))
        .collect();
    let mobility = Mobility { is_sticky: true, sequence: u32::MAX };
    exports.put(Endpoint { key: key(1), ips: ips.clone(), mobility });
    let routes: Vec<_> = ips.iter().map(|ip| OwnRoute::Mac(key(1), Some(*ip))).collect();
    let common: Common = exports.common(&routes[0]).unwrap();
    let mut bytes = Vec::new();
    put_reach(&mut bytes, &origin(false), true, common, &routes, &exports);
    assert!(bytes.len() <= 4096, "{}", bytes.len());
    assert_eq!(update(&bytes, EXTERNAL).reach.len(), ROUTES_MAX);
}

proptest! {
    /// Octets of a neighbor are read or refused, and never more than there are.
    #[test]
    fn any_octets_are_read_or_refused(
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
        is_wide in any::<bool>(),
        is_internal in any::<bool>(),
    ) {
        let mut bytes = reach(is_internal, Mobility { is_sticky: false, sequence: 1 });
        for (at, value) in changes {
            // The marker stays, or nothing behind it is looked at.
            let at = 16 + usize::from(at) % (bytes.len() - 16);
            bytes[at] = value;
        }
        if let Ok(Some((size, _))) = read(&bytes, Dialect { is_wide, is_internal }) {
            prop_assert!(size <= bytes.len());
        }
    }
}

#[test]
fn open_asks_neighbors_to_keep_routes() {
    let router_id = Ipv4Addr::new(192, 0, 2, 1);
    let own = Identity { local_as: 65000, router_id, hold_s: 9, restart_s: 30, remote_as: 65000 };
    for (restart_s, capability) in
        [(30, &[64, 6, 0, 30, 0, 25, 70, 0x80][..]), (0, &[64, 2, 0, 0][..])]
    {
        let mut bytes = Vec::new();
        put_open(&mut bytes, Identity { restart_s, ..own });
        assert!(bytes.windows(capability.len()).any(|part| part == capability), "{bytes:02x?}");
    }
}
