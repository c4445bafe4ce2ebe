use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeSet;

use sluice_base::Mac;

use super::*;

#[test]
fn hasher_every_key_part_and_seed_changes_hash() {
    let vni = |number| Vni::new(number).unwrap();
    let key = |number, mac| Key { vni: vni(number), mac: Mac::from_u64(mac) };
    let v4 = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    let mut seen = BTreeSet::new();
    for hasher in [Hasher::new(1), Hasher::new(2)] {
        for key in [key(1, 1), key(2, 1), key(1, 2), key(0x10_0001, 1), key(0, 0)] {
            assert!(seen.insert(hasher.of_key(key)), "{key:?}");
        }
        let as_v6 = Ipv6Addr::from_bits(0x0a00_0001).into();
        for (vni, ip) in [(vni(1), v4), (vni(2), v4), (vni(1), as_v6)] {
            assert!(seen.insert(hasher.of_ip(vni, ip)), "{vni} {ip}");
        }
    }
}
