//! Several machines behind one device.

use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::super::seen::Seen;
use super::super::station::Station;
use super::super::world::Host::{H1, H2};
use super::super::world::World;
use super::super::{Case, case};

pub(super) const CASES: &[Case] = &[
    case("macvlan/twenty", twenty),
    case("macvlan/of-both-sides", both_sides),
    case("macvlan/beside-a-bound-address", beside_bound),
];

/// Adds `count` machines, numbered from `from`, behind a station.
fn behind(station: &Station, from: u8, count: u8) -> Vec<Ipv4Addr> {
    // Each answers for its own address only.
    station.sysctl("net/ipv4/conf/all/arp_ignore", "1");
    station.sysctl("net/ipv4/conf/all/arp_announce", "2");
    station.sysctl("net/ipv4/conf/all/rp_filter", "0");
    let add = |at: u8| {
        let ip = Ipv4Addr::new(10, 0, 0, at);
        station.has_macvlan(&format!("m{at}"), Mac([2, 0x50, 0, 2, 0, at]), &format!("{ip}/32"));
        ip
    };
    (from..from + count).map(add).collect()
}

fn twenty(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let ips = behind(&b, 100, 20);
    let reached = ips.iter().filter(|ip| a.reaches(**ip)).count();
    let right = |at: &usize| {
        a.neighbour(ips[*at]) == Some(Mac([2, 0x50, 0, 2, 0, 100 + u8::try_from(*at).unwrap()]))
    };
    let right = (0..ips.len()).filter(right).count();
    Seen::new().count("reached of 20", reached).count("with their own MAC", right)
}

fn both_sides(world: &World<'_>) -> Seen {
    let [a, b] = world.stations([H1, H2]);
    let (near, far) = (behind(&a, 100, 4), behind(&b, 120, 4));
    let mut reached = 0;
    for (from, to) in near.iter().zip(&far) {
        a.does(&format!("route replace {to}/32 dev m{} src {from}", from.octets()[3]));
        reached += usize::from(
            a.prints(&format!("ping -n -c 2 -W 1 -I {from} {to}")).contains("bytes from"),
        );
    }
    Seen::new().count("reached of 4", reached)
}

/// A bound port accepts no other machine: that is the purpose of binding.
fn beside_bound(world: &World<'_>) -> Seen {
    let [a] = world.stations([H1]);
    let b = world.bound(H2);
    let ips = behind(&b, 100, 2);
    let own = a.reaches(b.ip);
    let reached = ips.iter().filter(|ip| a.pings(**ip, 2) > 0).count();
    Seen::new().word("own address", own).count("reached of 2", reached)
}
