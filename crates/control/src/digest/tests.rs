use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{Mac, PortId, Vni};

use super::*;
use crate::vport::{Key, Origin};

fn claim(n: u64) -> Claim {
    let ip = IpAddr::from(Ipv4Addr::from_bits(u32::try_from(n).unwrap()));
    Claim {
        key: Key { vni: Vni::new(1).unwrap(), mac: Mac::from_u64(n) },
        port: PortId(1),
        ips: [ip].into_iter().collect(),
        origin: Origin::Learned,
        moves: 0,
    }
}

#[test]
fn every_field_counts() {
    let one = claim(1);
    let mut others = vec![one; 7];
    others[0].key.vni = Vni::new(2).unwrap();
    others[1].key.mac = Mac::from_u64(2);
    others[2].port = PortId(2);
    others[3].origin = Origin::Sticky;
    others[4].moves = 1;
    others[5].ips.insert(Ipv4Addr::LOCALHOST.into()).unwrap();
    others[6].ips = [Ipv6Addr::from_bits(1).into()].into_iter().collect();
    others.push(one);
    let mut hashes: Vec<u64> = others.iter().map(hash::<true>).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), others.len());
}

#[test]
fn the_order_of_addresses_does_not_count() {
    let ips = [1, 2, 3].map(|n| IpAddr::from(Ipv4Addr::from_bits(n)));
    let (mut a, mut b) = (claim(1), claim(1));
    a.ips = ips.into_iter().collect();
    b.ips = ips.into_iter().rev().collect();
    assert_eq!(hash::<true>(&a), hash::<true>(&b));
}

proptest! {
    #[test]
    fn it_is_of_the_set(claims in prop::collection::btree_set(0..1_000_u64, 0..50), gone: usize) {
        let claims: Vec<Claim> = claims.into_iter().map(claim).collect();
        let mut digest: Digest = claims.iter().rev().collect();
        prop_assert_eq!(digest, claims.iter().collect());
        if let Some(out) = claims.get(gone % claims.len().max(1)) {
            digest.remove(out);
            prop_assert_eq!(digest, claims.iter().filter(|claim| *claim != out).collect());
        }
    }
}
