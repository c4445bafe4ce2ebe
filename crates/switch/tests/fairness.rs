//! Shares of an output.

mod harness;

use std::collections::BTreeMap;

use harness::config::{access, config, limit, underlay, with_tunnels};
use harness::frames::{Tenant, pfc};
use harness::world::{Sent, World};
use sluice_base::{BitRate, Mac, Nanos, PortId};
use sluice_switch::{ClassConfig, InputFull, PortConfig, RateLimit, Service};

const QUANTUM: u64 = 1_600;

fn mac(n: usize) -> Mac {
    Mac([2, 0, 0, 0, 1, u8::try_from(n).unwrap()])
}

fn frame(to: usize, priority: u8, size: u32) -> Tenant {
    Tenant::new(mac(to), mac(200), priority << 3, size)
}

/// Sums bytes by `key`.
fn bytes_by<K: Ord>(log: &[Sent], key: impl Fn(&Sent) -> K) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    for sent in log {
        *sums.entry(key(sent)).or_insert(0) += u64::from(sent.size);
    }
    sums
}

fn sender(sent: &Sent) -> u16 {
    sent.info.unwrap().from
}

/// Runs sources that always have frames, of the sizes given, to one output. Returns the bytes by
/// sender after `rounds` in which the driver takes `at_once` frames.
fn saturate(sizes: &[u32], rounds: usize, at_once: usize) -> BTreeMap<u16, u64> {
    let mut ports = vec![access(0); sizes.len() + 1];
    for port in &mut ports {
        port.mtu = 9_000;
        port.input = limit(64, 400_000);
    }
    let mut config = config(ports);
    config.vnets[0].mtu = 9_000;
    let mut world = World::new(&config, 1);
    let out = sizes.len();
    world.at_port(mac(0), out);
    world.log();
    for _ in 0..rounds {
        for (port, &size) in sizes.iter().enumerate() {
            world.fill(port, |world| world.tenant(port, &frame(0, 0, size)));
        }
        let mut room = at_once;
        world.transmit(PortId::from_index(out), || {
            room = room.saturating_sub(1);
            room > 0
        });
        world.reclaim_all();
    }
    world.check();
    bytes_by(&world.log(), sender)
}

fn assert_equal(bytes: &BTreeMap<u16, u64>, slack: u64) {
    let (least, most) = (bytes.values().min().unwrap(), bytes.values().max().unwrap());
    assert!(most - least <= slack, "not fair: {bytes:?}");
}

#[test]
fn sources_with_mixed_frame_sizes_get_equal_bytes() {
    let bytes = saturate(&[60, 1_514, 300, 1_000], 200, 40);
    assert_equal(&bytes, 2 * QUANTUM);
}

#[test]
fn source_with_frames_above_quantum_gets_equal_share() {
    // A debt may be as large as the largest frame.
    let bytes = saturate(&[60, 9_014, 1_514], 400, 40);
    assert_equal(&bytes, 2 * QUANTUM + 9_014);
}

/// Runs source 0, which sends `burst` frames, and the next ones once all of them have left, and
/// source 1, which always has frames. Returns the bytes of both.
fn in_bursts(burst: usize, size: u32, large: u32, out: PortConfig, tunnel: bool) -> [u64; 2] {
    let mut ports = vec![access(0), access(0), out];
    for port in &mut ports[..2] {
        port.mtu = 9_000;
        port.input = limit(64, 400_000);
    }
    ports[2].mtu = 9_050;
    let mut config = config(ports);
    config.vnets[0].mtu = 9_000;
    let mut world = if tunnel {
        let mut world = World::new(&with_tunnels(config, 2, &[2]), 1);
        world.at_tunnel(mac(0), 0);
        world
    } else {
        let mut world = World::new(&config, 1);
        world.at_port(mac(0), 2);
        world
    };
    world.log();
    let mut bytes = [0; 2];
    for _ in 0..4_000 {
        world.fill(1, |world| world.tenant(1, &frame(0, 0, large)));
        let input = world.switch.input(PortId(0), 0);
        if world.switch.held(input).frames == 0 {
            let bufs = (0..burst).map(|_| world.tenant(0, &frame(0, 0, size))).collect();
            world.receive(input, bufs);
        }
        let mut room = 2;
        world.transmit(PortId(2), || {
            room -= 1;
            room > 0
        });
        world.reclaim_all();
        for sent in world.log() {
            bytes[usize::from(sender(&sent))] += u64::from(sent.size);
        }
    }
    bytes
}

#[test]
fn sources_whose_queue_empties_often_get_no_more() {
    // If an empty queue lost its debt, these would get up to two or six times as much.
    for (burst, size) in [(1, 9_014), (2, 1_514), (3, 1_000), (1, 1_700), (30, 60)] {
        for large in [60, 1_514, 9_014] {
            for tunnel in [false, true] {
                let out = if tunnel { underlay(1) } else { access(0) };
                let [often, always] = in_bursts(burst, size, large, out, tunnel);
                let slack = 2 * QUANTUM + u64::from(size.max(large));
                assert!(
                    often <= always + slack,
                    "{burst} of {size} against {large}: {often} to {always}, tunnel {tunnel}"
                );
            }
        }
    }
}

#[test]
fn port_sending_into_three_tunnels_is_one_source() {
    // Source 0 talks to three hosts, source 1 to one of them.
    let mut ports = vec![access(0), access(0), underlay(1)];
    for port in &mut ports[..2] {
        port.input = limit(90, 400_000);
    }
    let config = with_tunnels(config(ports), 2, &[2, 3, 4]);
    let mut world = World::new(&config, 1);
    for tunnel in 0..3_u16 {
        world.at_tunnel(mac(usize::from(tunnel)), tunnel);
    }
    world.log();
    let mut turn = 0;
    for _ in 0..200 {
        world.fill(0, |world| {
            turn += 1;
            world.tenant(0, &frame(turn % 3, 0, 1_000))
        });
        world.fill(1, |world| world.tenant(1, &frame(1, 0, 400)));
        let mut room = 30;
        world.transmit(PortId(2), || {
            room -= 1;
            room > 0
        });
        world.reclaim_all();
    }
    // The first source is ahead by the frames that a common queue takes.
    assert_equal(&bytes_by(&world.log(), sender), 2 * QUANTUM + 16 * 1_050);
}

#[test]
fn remote_peers_get_no_more_than_local_port() {
    let mut ports = vec![access(0), access(0), underlay(1)];
    ports[2].input_full = InputFull::Wait;
    ports[2].input = limit(300, 1_000_000);
    let mut config = with_tunnels(config(ports), 2, &[2, 3, 4]);
    config.pool.pair_share = 256;
    let mut world = World::new(&config, 1);
    world.at_port(mac(0), 1);
    world.log();
    let mut turn = 0_u16;
    for _ in 0..300 {
        world.fill(0, |world| world.tenant(0, &frame(0, 0, 700)));
        world.fill(2, |world| {
            turn += 1;
            world.tunnel_frame(2, turn % 3, &frame(0, 0, 200 + 400 * u32::from(turn % 3)))
        });
        let mut room = 12;
        world.transmit(PortId(1), || {
            room -= 1;
            room > 0
        });
        world.reclaim_all();
    }
    let bytes = bytes_by(&world.log(), sender);
    assert_eq!(bytes.len(), 4);
    // All three hosts are read from one ring; none of them may wait for the local port.
    let local = bytes[&0];
    let hosts: Vec<u64> = bytes.iter().filter(|(from, _)| **from != 0).map(|(_, b)| *b).collect();
    assert!(hosts.iter().all(|host| *host <= local + 2 * QUANTUM), "{bytes:?}");
}

#[test]
fn every_source_is_served_within_one_round() {
    let mut ports = vec![access(0); 41];
    ports[40].input = limit(1, 2_000);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(0), 40);
    for port in 0..40 {
        world.fill(port, |world| world.tenant(port, &frame(0, 0, 1_514)));
    }
    world.log();
    // A quantum holds one full frame, and its rest at most one more.
    let mut room = 40 * 2 + 1;
    world.transmit(PortId(40), || {
        room -= 1;
        room > 0
    });
    let bytes = bytes_by(&world.log(), sender);
    assert_eq!(bytes.len(), 40, "not everybody was served: {bytes:?}");
    assert_equal(&bytes, 2 * QUANTUM);
}

/// Returns the bytes that each priority gets of an output, with these services for priorities 0 to
/// 7, while all of `from` are backlogged.
fn classes(services: [Service; 8], from: &[u8], rounds: usize) -> BTreeMap<u8, u64> {
    let mut config = config(vec![access(0); from.len() + 1]);
    config.classes = services.map(|service| ClassConfig { service, lossless: true });
    let mut world = World::new(&config, 1);
    let out = from.len();
    world.at_port(mac(0), out);
    world.log();
    for _ in 0..rounds {
        for (port, &priority) in from.iter().enumerate() {
            let size = 400 + 300 * u32::from(priority % 4);
            world.fill(port, |world| world.tenant(port, &frame(0, priority, size)));
        }
        let mut room = 15;
        world.transmit(PortId::from_index(out), || {
            room -= 1;
            room > 0
        });
        world.reclaim_all();
    }
    bytes_by(&world.log(), |sent| sent.priority.get())
}

#[test]
fn weighted_priorities_share_by_weight() {
    let mut services = [Service::Weighted(1); 8];
    services[1] = Service::Weighted(2);
    services[5] = Service::Weighted(5);
    let bytes = classes(services, &[0, 1, 5], 2_000);
    let total: u64 = bytes.values().sum();
    for (priority, weight) in [(0, 1), (1, 2), (5, 5)] {
        let (got, share) = (bytes[&priority], total * weight / 8);
        assert!(got.abs_diff(share) <= 2 * QUANTUM * 5, "{priority}: {got} of {share}");
    }
}

#[test]
fn strict_priorities_served_first_highest_before_all() {
    let mut services = [Service::Strict; 8];
    services[0] = Service::Weighted(200);
    assert_eq!(classes(services, &[0, 6, 2], 50).into_keys().collect::<Vec<_>>(), [6]);
    services[6] = Service::Weighted(1);
    assert_eq!(classes(services, &[0, 6, 2], 50).into_keys().collect::<Vec<_>>(), [2]);
}

#[test]
fn priority_alone_during_pause_carries_no_debt() {
    // Priority 1 waits, paused, while 0 has the link; then both share again.
    let mut config = config(vec![access(0); 3]);
    config.classes = [ClassConfig { service: Service::Weighted(1), lossless: true }; 8];
    let mut world = World::new(&config, 1);
    world.at_port(mac(0), 2);
    let pause = world.tenant(2, &frame(9, 0, 60));
    let input = world.switch.input(PortId(2), 0);
    let mut info = pause.info;
    pause.hand_back();
    info.valid = false;
    let xoff = world.buf(input, info, pfc(0b10, [0xffff; 8]));
    world.receive(input, vec![xoff]);
    world.oracle.paused(world.now, 2, 0b10, [0xffff; 8]);
    world.fill(1, |world| world.tenant(1, &frame(0, 1, 1_000)));
    let run = |world: &mut World, rounds: usize| {
        world.log();
        for _ in 0..rounds {
            world.fill(0, |world| world.tenant(0, &frame(0, 0, 1_000)));
            world.fill(1, |world| world.tenant(1, &frame(0, 1, 1_000)));
            let mut room = 11;
            world.transmit(PortId(2), || {
                room -= 1;
                room > 0
            });
            world.reclaim_all();
        }
        bytes_by(&world.log(), |sent| sent.priority.get())
    };
    assert_eq!(run(&mut world, 100).len(), 1, "1 is paused");
    let xon = world.buf(input, info, pfc(0b10, [0; 8]));
    world.receive(input, vec![xon]);
    world.oracle.paused(world.now, 2, 0b10, [0; 8]);
    let bytes = run(&mut world, 100);
    assert!(bytes[&0].abs_diff(bytes[&1]) <= 2 * QUANTUM, "{bytes:?}");
}

#[test]
fn port_rate_limit_fully_used_never_exceeded() {
    let mut ports = vec![access(0); 3];
    let rate =
        RateLimit { rate: BitRate::from_mbps(300), catch_up: Nanos::from_micros(40), overhead: 24 };
    ports[2].rate = Some(rate);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(0), 2);
    let start = world.now;
    let end = start.after(Nanos::from_millis(100));
    let mut wire_bytes = 0;
    while world.now < end {
        world.fill(0, |world| world.tenant(0, &frame(0, 0, 1_514)));
        world.fill(1, |world| world.tenant(1, &frame(0, 0, 60)));
        world.log();
        world.transmit(PortId(2), || true);
        wire_bytes += world.log().iter().map(|s| u64::from(s.size) + 24).sum::<u64>();
        world.reclaim_all();
        world.now = world.switch.deadline().expect("it waits for its rate");
        world.switch.advance(world.now);
    }
    let may = rate.rate.bytes_in(world.now.since(start).after(rate.catch_up)).0;
    assert!(
        wire_bytes <= may + 1_538 && wire_bytes + 2 * 1_538 >= may - 1_500,
        "{wire_bytes} of {may}"
    );
}

#[test]
fn slow_queue_group_does_not_block_other_groups() {
    let mut ports = vec![access(0), underlay(1)];
    ports[1].group_rate =
        Some(RateLimit { rate: BitRate::from_mbps(8), catch_up: Nanos::ZERO, overhead: 0 });
    ports[0].input = limit(200, 400_000);
    let config = with_tunnels(config(ports), 1, &[2, 3]);
    let mut world = World::new(&config, 1);
    world.at_tunnel(mac(0), 0);
    world.at_tunnel(mac(1), 1);
    for n in 0..100 {
        let buf = world.tenant(0, &frame(usize::from(n > 0), 0, 950));
        world.receive(world.switch.input(PortId(0), 0), vec![buf]);
    }
    world.log();
    // A frame of 1000 bytes takes a millisecond, on either queue group.
    for _ in 0..10 {
        world.transmit(PortId(1), || true);
        world.now = world.now.after(Nanos::from_millis(1));
        world.switch.advance(world.now);
    }
    let sent = world.log();
    assert_eq!(sent.iter().filter(|s| s.tunnel == Some(0)).count(), 1);
    assert_eq!(sent.iter().filter(|s| s.tunnel == Some(1)).count(), 10);
}
