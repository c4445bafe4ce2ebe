use std::net::Ipv4Addr;

use sluice_api::placement::Stamped;
use sluice_base::Mac;
use sluice_ports::Port as _;
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_testkit::udp;

use super::*;
use crate::data::rebalancer::apply_policy;
use crate::data::worker::Meter;
use crate::data::worker_channels;

fn change((bucket, from, to): (u16, u8, u8)) -> Change {
    Change { bucket, from, to }
}

#[test]
fn in_a_round_nobody_gives_and_takes() {
    let wanted = [(0, 0, 1), (1, 2, 1), (2, 1, 0), (3, 1, 3), (4, 3, 2), (5, 3, 1), (6, 0, 2)];
    let round = one_round(wanted.into_iter().map(change));
    // Changes 2 and 3 would take from a taker, 4 and 6 would give to a giver.
    assert_eq!(round, [(0, 0, 1), (1, 2, 1), (5, 3, 1)].map(change));
}

#[test]
fn a_round_is_bounded() {
    let round = one_round((0..BUCKETS).map(|bucket| change((bucket, 0, 1))));
    assert_eq!(round.len(), ROUND_MAX);
}

#[test]
fn changed_high_matches_recheck_kernel_before_buckets_move() {
    let free = udp::free_port(&[Ipv4Addr::LOCALHOST]);
    let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST, Mac([2, 0, 0, 0, 0, 1]), 1500);
    (config.port, config.sharers) = (free, 2);
    let part = |port: &mut UdpPort| Part {
        gauges: port.buckets().unwrap().gauges(),
        meter: Arc::new(Meter::new(2)),
    };
    let mut ports = [0, 1].map(|_| UdpPort::open(&config).unwrap());
    let parts = ports.iter_mut().map(part).collect();
    let (askers, _ends) = worker_channels(2).unwrap();
    let (wanted, cpus) = (PolicyWatch::of("h1", Mode::Adaptive), Cpus::new(&[None; 2], Some(&[])));
    let mover = Mover::new(askers, ports[0].take_selector().unwrap());
    let movable = MovableBuckets::new("underlay", parts, mover);
    let mut rebalancer = Rebalancer::new(movable, wanted.clone(), cpus).unwrap();
    let Rebalancer { movable, decisions, .. } = &mut rebalancer;
    for (version, high) in [(1, "vni=42"), (2, "vni=43")] {
        let stamp = PolicyVersion { version, ..PolicyVersion::default() };
        let policy = toml::from_str(&format!("high = [\"{high}\"]")).unwrap();
        wanted.set(Stamped { stamp, policy });
        apply_policy(movable, decisions);
        assert_eq!(movable.progress, Progress::Done, "whether the kernel takes them is not known");
        assert!(movable.gather(decisions).unwrap().is_some(), "buckets have to move first");
        assert_eq!(movable.progress, Progress::Gathers);
    }
}
