//! Promises that a random run reaches seldom: windows that stay closed, waits that end, and results
//! that do not depend on the size of batches.

mod harness;

use std::collections::BTreeMap;

use harness::config::{access, config, limit, pause_config, underlay, with_tunnels};
use harness::frames::{Tenant, pfc};
use harness::ops::address;
use harness::world::{Sent, World};
use harness::{Info, Owner, TestBuf};
use sluice_base::{
    BitRate, ByteCount, DropReason, InputId, Mac, Nanos, PortId, Priority, PriorityMask, Prng,
    TunnelId, VnetId,
};
use sluice_switch::{
    ClassConfig, Command, ConfigError, InputFull, PauseConfig, RateLimit, Service, Switch,
    SwitchConfig, Target,
};

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);

fn mac(n: u8) -> Mac {
    address(0, n)
}

fn frame(dst: Mac, priority: u8, size: u32) -> Tenant {
    Tenant::new(dst, SRC, priority << 3, size)
}

fn lossy(mut config: SwitchConfig) -> SwitchConfig {
    config.classes = [ClassConfig { service: Service::Strict, lossless: false }; 8];
    config
}

/// Fills the windows of all inputs of a port again and again, up to `most` frames.
fn flood(world: &mut World, port: usize, most: usize, tenant: &Tenant) -> usize {
    let mut count = 0;
    while count < most {
        match world.fill(port, |world| world.tenant(port, tenant)) {
            0 => break,
            n => count += n,
        }
    }
    count
}

#[test]
fn unreclaimed_lossy_frames_spare_memory_guaranteed_to_others() {
    let mut ports = vec![access(0); 6];
    for port in &mut ports {
        port.input = limit(4, 200_000);
        port.output = limit(500, 10_000_000);
    }
    let mut world = World::new(&lossy(config(ports)), 1);
    for port in 0..6 {
        world.at_port(mac(port), usize::from(port));
    }
    for from in 0..6 {
        for to in (0..6).filter(|to| *to != from) {
            flood(&mut world, from, 500, &frame(mac(u8::try_from(to).unwrap()), 0, 60));
        }
        for port in 0..6 {
            world.transmit(PortId(port), || true);
        }
        world.check();
    }
    world.drain(|_| {});
}

#[test]
fn shared_buffer_with_unreclaimed_handles_counts_as_full() {
    let mut ports = vec![access(0); 2];
    ports[0].input = limit(8, 200_000);
    let mut config = config(ports);
    config.pool.from_local = limit(4, 100_000);
    config.pool.pair_share = 64;
    let mut world = World::new(&config, 1);
    world.at_port(mac(1), 1);
    let input = InputId(0);
    for _ in 0..200 {
        world.fill(0, |world| world.tenant(0, &frame(mac(1), 0, 60)));
        world.copy_to_shared(input, usize::MAX);
        world.transmit(PortId(1), || true);
        world.reclaim(input, 64);
        world.check();
    }
    assert!(world.pooled <= 4 + 16, "{} handles of a pool of 4", world.pooled);
    world.drain(|_| {});
}

#[test]
fn broadcasts_whose_handles_nobody_takes_back_are_bounded() {
    let ports = vec![access(0); 3];
    let mut config = config(ports);
    config.pool.replicated_frames = 3;
    let mut world = World::new(&config, 1);
    for _ in 0..100 {
        world.fill(0, |world| world.tenant(0, &frame(Mac::BROADCAST, 0, 60)));
        world.copy_to_shared(InputId(0), usize::MAX);
        for port in [1, 2] {
            world.transmit(PortId(port), || true);
        }
        world.reclaim(InputId(0), 100);
        world.check();
    }
    assert!(world.pooled <= 3, "{} handles for 3 replicated frames", world.pooled);
    world.drain(|_| {});
}

#[test]
fn paused_input_drops_unpausable_priorities_holds_others() {
    // All priorities are lossless here, but the wire can hold back only two of them.
    let mut ports = vec![access(0); 3];
    ports[0].input = limit(16, 100_000);
    let pause = PauseConfig { xoff: ByteCount(10_000), xon: ByteCount(5_000), ..pause_config() };
    ports[0].input_full = InputFull::Pause(pause);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(1), 1);
    for priority in [0, 1, 2, 5] {
        for _ in 0..100 {
            world.fill(0, |world| world.tenant(0, &frame(mac(1), priority, 60)));
            world.fill(0, |world| world.tenant(0, &frame(Mac::BROADCAST, priority, 60)));
            world.reclaim_all();
            world.check();
        }
    }
    // The paused ones still have their room.
    assert!(world.switch.window(InputId(0)).frames >= 16);
    world.drain(|_| {});
}

/// Returns a port that pauses priorities 3 and 4, and a stuck receiver of priority 3.
fn with_a_full_priority() -> World {
    let mut ports = vec![access(0); 2];
    ports[0].input = limit(16, 100_000);
    let pause = PauseConfig { xoff: ByteCount(10_000), xon: ByteCount(5_000), ..pause_config() };
    ports[0].input_full = InputFull::Pause(pause);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(1), 1);
    while world.switch.window(InputId(0)).closed.is_empty() {
        let buf = world.tenant(0, &frame(mac(1), 3, 60));
        world.receive(InputId(0), vec![buf]);
        world.check();
    }
    world
}

#[test]
fn full_priority_closes_its_own_window_only() {
    let mut world = with_a_full_priority();
    let window = world.switch.window(InputId(0));
    assert_eq!((window.closed, window.frames), (PriorityMask(1 << 3), 16));
    assert_eq!((window.of_any().frames, window.is_shut()), (0, false));
    for priority in [0, 4, 5] {
        let buf = world.tenant(0, &frame(mac(1), priority, 60));
        world.receive(InputId(0), vec![buf]);
        world.check();
    }
    assert_eq!(world.switch.window(InputId(0)).frames, 15, "what priority 4 may have");
    world.drain(|_| {});
    assert!(world.switch.window(InputId(0)).closed.is_empty());
}

#[test]
fn flow_control_is_heard_at_a_full_input() {
    let mut world = with_a_full_priority();
    for priority in [3, 4] {
        for _ in 0..16 {
            let window = world.switch.window(InputId(0));
            if !window.closed.contains(Priority::new(priority).unwrap()) {
                let buf = world.tenant(0, &frame(mac(1), priority, 60));
                world.receive(InputId(0), vec![buf]);
            }
        }
    }
    assert_eq!(world.switch.window(InputId(0)).closed, PriorityMask(0b11 << 3), "nothing goes in");
    let state = |world: &World, priority| {
        world.switch.pause_state(world.now, PortId(0), Priority::new(priority).unwrap())
    };
    world.oracle.paused(world.now, 0, 1 << 6, [9; 8]);
    world.hear(InputId(0), &pfc(1 << 6, [9; 8]));
    assert!(state(&world, 6).paused && !state(&world, 3).paused);
    world.oracle.paused(world.now, 0, 1 << 6, [0; 8]);
    world.hear(InputId(0), &pfc(1 << 6, [0; 8]));
    assert!(!state(&world, 6).paused);
    // A broken one is counted, too.
    let reason = DropReason::BadPause;
    let broken = pfc(1 << 6, [9; 8])[..20].to_vec();
    world.switch.hear(world.now, InputId(0), &broken);
    assert_eq!(world.switch.dropped(InputId(0), Priority::ZERO, reason).frames, 1);
    world.drain(|_| {});
}

#[test]
fn small_frames_cause_xoff_before_the_window_closes() {
    // 16 frames of 60 bytes are far from any threshold in bytes.
    let mut ports = vec![access(0); 2];
    ports[0].input = limit(64, 100_000);
    let pause = PauseConfig { xoff: ByteCount(50_000), xon: ByteCount(25_000), ..pause_config() };
    ports[0].input_full = InputFull::Pause(pause);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(1), 1);
    let state =
        |world: &World| world.switch.pause_state(world.now, PortId(0), Priority::new(3).unwrap());
    for count in 1..=40 {
        let buf = world.tenant(0, &frame(mac(1), 3, 60));
        world.receive(InputId(0), vec![buf]);
        if state(&world).pausing {
            assert!(world.switch.window(InputId(0)).frames >= 16, "no headroom after {count}");
            world.drain(|_| {});
            assert!(!state(&world).pausing, "it goes on");
            return;
        }
    }
    panic!("no XOFF with {} frames of room left", world.switch.window(InputId(0)).frames);
}

#[test]
fn full_input_after_resolve_copied_to_shared_buffer() {
    let mut ports = vec![access(0); 3];
    ports[0].input = limit(16, 100_000);
    let mut config = config(ports);
    config.pool.from_local = limit(64, 200_000);
    let mut world = World::new(&config, 1);
    world.at_port(mac(2), 2);
    world.fill(0, |world| world.tenant(0, &frame(mac(1), 0, 60)));
    assert_eq!(world.switch.window(InputId(0)).frames, 0);
    // Now the destination is known, and its port is stuck.
    world.at_port(mac(1), 1);
    for _ in 0..10 {
        if world.switch.window(InputId(0)).needs_copy {
            world.copy_to_shared(InputId(0), usize::MAX);
        }
        world.reclaim_all();
    }
    assert!(world.switch.window(InputId(0)).frames > 0, "a stuck output stops the others");
    let buf = world.tenant(0, &frame(mac(2), 0, 60));
    world.receive(InputId(0), vec![buf]);
    assert_eq!(world.transmit(PortId(2), || true), 1);
    world.drain(|_| {});
}

#[test]
fn inject_of_arbitrary_bytes_at_miss_limit_survives() {
    let mut config = config(vec![access(0); 2]);
    config.unresolved.destinations = 1;
    let mut world = World::new(&config, 1);
    let buf = world.tenant(0, &frame(mac(1), 0, 60));
    world.receive(InputId(0), vec![buf]);
    let control = world.switch.control_input();
    let info = Info {
        id: 0,
        from: 60_000,
        port: u16::MAX,
        vnet: 0,
        dst: mac(7),
        priority: Priority::ZERO,
        valid: false,
    };
    // Another address than that of the frame, and no frame at all.
    for bytes in [frame(Mac::BROADCAST, 0, 60).bytes(), vec![], vec![2; 5]] {
        let buf = world.buf(control, info, bytes);
        if let Err(buf) = world.switch.inject(world.now, buf, Target::Address(VnetId(0), mac(7))) {
            buf.hand_back();
        }
        world.check();
    }
    world.at_port(mac(1), 1);
    world.notices();
    world.at_port(mac(7), 1);
    world.drain(|_| {});
}

#[test]
fn a_configuration_too_large_is_refused() {
    for at in 0..5 {
        let mut config = lossy(config(vec![access(0); 2]));
        match at {
            0 => config.pool.from_local.frames = u32::MAX,
            1 => config.pool.replicated_frames = u32::MAX,
            2 => config.pool.copies_per_group = u32::MAX,
            3 => config.unresolved.frames = u32::MAX,
            _ => config.ports[0].output.frames = u32::MAX,
        }
        let error = Switch::<TestBuf>::new(&config, 1, Nanos::ZERO).map(drop).unwrap_err();
        assert!(matches!(error, ConfigError::TooMany { .. }), "{at}: {error:?}");
    }
}

/// Returns the frames that left and the counters of a switch whose input comes in batches of this
/// size.
fn run_in_batches(batch: usize, lossless: bool) -> (Vec<Sent>, Vec<u64>) {
    let mut ports = vec![access(0), access(0), access(0), underlay(1)];
    for port in &mut ports {
        port.input = limit(512, 2_000_000);
        port.output = limit(40, 100_000);
    }
    let config = with_tunnels(config(ports), 3, &[2, 3]);
    let config = if lossless { config } else { lossy(config) };
    let mut world = World::new(&config, 1);
    for n in 0..3 {
        world.at_port(mac(n), usize::from(n));
    }
    world.at_tunnel(mac(3), 0);
    world.at_tunnel(mac(4), 1);
    world.log();
    let mut rng = Prng::new(7);
    for _ in 0..8 {
        for port in 0..4 {
            let bufs: Vec<TestBuf> = (0..64)
                .map(|_| {
                    // 5 is not known, 6 is a broadcast.
                    let to = u8::try_from(rng.below(7)).unwrap();
                    let dst = if to == 6 { Mac::BROADCAST } else { mac(to) };
                    let size = 60 + u32::try_from(rng.below(1_000)).unwrap();
                    let tenant = frame(dst, u8::try_from(rng.below(2)).unwrap() * 3, size);
                    if port == 3 {
                        world.tunnel_frame(3, u16::from(to % 2), &tenant)
                    } else {
                        world.tenant(port, &tenant)
                    }
                })
                .collect();
            let mut bufs = bufs.into_iter().peekable();
            while bufs.peek().is_some() {
                world.receive(InputId::from_index(port), bufs.by_ref().take(batch).collect());
            }
            world.copy_to_shared(InputId::from_index(port), usize::MAX);
        }
        for port in 0..4 {
            let mut room = 50;
            world.transmit(PortId(port), || {
                room -= 1;
                room > 0
            });
        }
        world.reclaim_all();
        world.now = world.now.after(Nanos::from_micros(100));
        world.advance();
    }
    let mut counters = Vec::new();
    for row in world.switch.audit().rows {
        for b in [row.frames, row.bytes] {
            counters.extend([b.received, b.copied, b.delivered, b.resident, b.dropped]);
        }
    }
    (world.log(), counters)
}

#[test]
fn input_batch_size_does_not_change_output() {
    for lossless in [true, false] {
        let whole = run_in_batches(64, lossless);
        assert!(whole.0.len() > 500, "{}", whole.0.len());
        for batch in [1, 2, 3, 7, 16, 33, 63] {
            let cut = run_in_batches(batch, lossless);
            assert!(cut == whole, "batches of {batch}, lossless {lossless}");
        }
    }
}

/// 4,096 addresses over a forwarding table (FDB) of 64 entries; control answers misses late and in
/// any order.
#[test]
fn small_fdb_under_churn_keeps_order_without_loss() {
    let mut ports = vec![access(0); 5];
    ports[4] = underlay(1);
    for port in &mut ports {
        port.input.frames = 64;
    }
    let mut config = with_tunnels(config(ports), 4, &[2, 3]);
    config.fdb.macs = 64;
    config.unresolved.destinations = 64;
    config.unresolved.timeout = Nanos::from_millis(1_000);
    let mut world = World::new(&config, 1);
    let mut rng = Prng::new(1);
    let place = |mac: Mac| mac.to_u64() % 5;
    let mut waiting: Vec<(Nanos, VnetId, Mac)> = Vec::new();
    let mut sent: BTreeMap<Mac, u32> = BTreeMap::new();
    for _ in 0..1_500 {
        for port in 0..4 {
            world.fill(port, |world| {
                // Draws many addresses, some of them often.
                let n = if rng.chance(1, 2) { rng.below(4_096) } else { rng.below(60) };
                let mut mac = Mac::from_u64(0x0200_0001_0000 + n);
                while place(mac) == port as u64 {
                    mac = Mac::from_u64(mac.to_u64() + 1);
                }
                *sent.entry(mac).or_insert(0) += 1;
                world.tenant(port, &frame(mac, 0, 60))
            });
        }
        world.notices();
        for (vnet, mac) in std::mem::take(&mut world.misses) {
            let at = world.now.after(Nanos(rng.below(400_000)));
            waiting.push((at, vnet, mac));
        }
        let due = |w: &(Nanos, VnetId, Mac)| w.0 <= world.now;
        let (now, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(due);
        waiting = later;
        for (_, _, mac) in now {
            match place(mac) {
                4 => world.at_tunnel(mac, u16::try_from(mac.to_u64() / 5 % 2).unwrap()),
                port => world.at_port(mac, usize::try_from(port).unwrap()),
            }
        }
        for port in 0..5 {
            let mut room = rng.below(60);
            world.transmit(PortId(port), || {
                room = room.saturating_sub(1);
                room > 0
            });
        }
        world.reclaim_all();
        world.now = world.now.after(Nanos(20_000));
        world.advance();
        if rng.chance(1, 20) {
            world.check();
        }
    }
    for (_, _, mac) in waiting {
        world.at_port(mac, usize::try_from(place(mac) % 4).unwrap());
    }
    world.drain(|world| {
        for (_, mac) in std::mem::take(&mut world.misses) {
            world.at_port(mac, usize::try_from(place(mac) % 4).unwrap());
        }
    });
    let total: u32 = sent.values().sum();
    assert!(sent.len() > 2_000, "{}", sent.len());
    // All frames that came in came out, except those for their own ingress port.
    let back: u64 = (0..4)
        .map(|i| world.switch.dropped(InputId(i), Priority::ZERO, DropReason::SamePort).frames)
        .sum();
    assert_eq!(world.oracle.delivered() as u64 + back, u64::from(total));
}

#[test]
fn tunnel_without_next_hop_holds_then_drops_frames() {
    let mut config = with_tunnels(config(vec![access(0), underlay(1)]), 1, &[2, 3]);
    config.tunnels[0].next_hop = None;
    let mut world = World::new(&config, 1);
    world.at_tunnel(mac(1), 0);
    world.at_tunnel(mac(2), 1);
    for n in 0..10 {
        let buf = world.tenant(0, &frame(mac(1 + n % 2), 0, 60));
        world.receive(InputId(0), vec![buf]);
    }
    assert_eq!(world.transmit(PortId(1), || true), 5, "the other tunnel");
    // It comes up: all five go.
    world.switch.set_next_hop(world.now, TunnelId(0), Some(Mac([2; 6]))).unwrap();
    assert_eq!(world.transmit(PortId(1), || true), 5);
    // It goes down with frames in the port's ring, and stays down.
    for _ in 0..5 {
        let buf = world.tenant(0, &frame(mac(1), 0, 60));
        world.receive(InputId(0), vec![buf]);
    }
    world.switch.set_next_hop(world.now, TunnelId(0), None).unwrap();
    assert_eq!(world.transmit(PortId(1), || true), 0);
    world.check();
    let until = world.switch.deadline().unwrap();
    assert_eq!(until, world.now.after(config.unresolved.timeout));
    world.drain(|_| {});
    let dropped = world.switch.dropped(InputId(0), Priority::ZERO, DropReason::TunnelDown);
    assert_eq!((dropped.frames, world.now), (5, until));
}

#[test]
fn tunnel_down_then_up_keeps_frame_order() {
    let config = with_tunnels(config(vec![access(0), underlay(1)]), 1, &[2, 3]);
    let mut world = World::new(&config, 1);
    world.at_tunnel(mac(1), 0);
    world.at_tunnel(mac(2), 1);
    world.log();
    let send = |world: &mut World, to: u8, sizes: core::ops::Range<u32>| {
        for size in sizes {
            let buf = world.tenant(0, &frame(mac(to), 0, size));
            world.receive(InputId(0), vec![buf]);
        }
    };
    send(&mut world, 1, 60..63);
    send(&mut world, 2, 90..92);
    world.switch.set_next_hop(world.now, TunnelId(0), None).unwrap();
    send(&mut world, 1, 63..66);
    world.check();
    assert_eq!(world.transmit(PortId(1), || true), 2, "the other tunnel");
    world.switch.set_next_hop(world.now, TunnelId(0), Some(Mac([2; 6]))).unwrap();
    send(&mut world, 1, 66..67);
    assert_eq!(world.transmit(PortId(1), || true), 7);
    world.reclaim_all();
    world.check();
    let sizes: Vec<u32> = world.log().iter().map(|sent| sent.size - 50).collect();
    assert_eq!(sizes, [90, 91, 60, 61, 62, 63, 64, 65, 66]);
}

#[test]
fn unanswered_miss_repeats_until_timeout_drops_frames() {
    let config = config(vec![access(0); 2]);
    let mut world = World::new(&config, 1);
    let start = world.now;
    world.fill(0, |world| world.tenant(0, &frame(mac(1), 0, 60)));
    let mut asked = Vec::new();
    loop {
        while world.switch.notice().is_some() {
            asked.push(world.now.since(start));
        }
        let Some(deadline) = world.switch.deadline() else { break };
        assert!(deadline > world.now);
        world.now = deadline;
        world.advance();
        world.reclaim_all();
    }
    let gap = config.unresolved.punt_gap.0;
    assert_eq!(asked, (0..10).map(|n| Nanos(n * gap)).collect::<Vec<_>>());
    assert_eq!(world.now, start.after(config.unresolved.timeout));
    let dropped = world.switch.dropped(InputId(0), Priority::ZERO, DropReason::Unresolved);
    assert_eq!(dropped.frames, 64);
    world.check_empty();
}

#[test]
fn deadline_stays_due_while_driver_or_reader_blocks() {
    let mut ports = vec![access(0), access(0), access(0)];
    let rate = BitRate::from_gbps(1);
    ports[1].rate = Some(RateLimit { rate, catch_up: Nanos::ZERO, overhead: 0 });
    ports[2].input = limit(64, 100_000);
    ports[2].input_full = InputFull::Pause(PauseConfig {
        xoff: ByteCount(100),
        xon: ByteCount(50),
        ..pause_config()
    });
    let mut config = config(ports);
    config.unresolved.destinations = 1;
    let mut world = World::new(&config, 1);
    world.at_port(mac(1), 1);
    assert_eq!(world.switch.deadline(), None);
    // A rate that allows a frame, and a driver without room.
    let buf = world.tenant(0, &frame(mac(1), 0, 60));
    world.receive(InputId(0), vec![buf]);
    world.advance();
    world.transmit(PortId(1), || false);
    assert!(world.switch.deadline().unwrap() <= world.now);
    world.transmit(PortId(1), || true);
    assert_eq!(world.switch.deadline(), None, "nothing waits");
    // A pause frame that is due.
    let buf = world.tenant(2, &frame(mac(1), 3, 1_000));
    world.receive(InputId(2), vec![buf]);
    world.transmit(PortId(2), || false);
    assert_eq!(world.switch.deadline(), Some(Nanos::ZERO));
    world.transmit(PortId(2), || true);
    assert!(world.switch.deadline().unwrap() > world.now, "when it is repeated");
    world.drain(|_| {});
    // A miss that is due again while the first event is not read.
    let buf = world.tenant(0, &frame(mac(9), 0, 60));
    world.receive(InputId(0), vec![buf]);
    world.now = world.switch.deadline().unwrap();
    world.advance();
    assert!(world.switch.deadline().unwrap() <= world.now);
    while world.switch.notice().is_some() {}
    world.advance();
    assert!(world.switch.deadline().unwrap() > world.now);
    world.drain(|_| {});
}

#[test]
fn full_port_does_not_block_frames_to_others() {
    let mut ports = vec![access(0); 3];
    ports[0].input = limit(32, 200_000);
    let mut world = World::new(&config(ports), 1);
    world.at_port(mac(1), 1);
    world.at_port(mac(2), 2);
    world.log();
    // Port 1 takes nothing, ever. Half of the frames are for it.
    for n in 0..64_u8 {
        if world.switch.window(InputId(0)).needs_copy {
            world.copy_to_shared(InputId(0), usize::MAX);
        }
        assert!(world.switch.window(InputId(0)).frames > 0, "stopped after {n}");
        let buf = world.tenant(0, &frame(mac(1 + n % 2), 0, 60));
        world.receive(InputId(0), vec![buf]);
        world.transmit(PortId(1), || false);
        world.transmit(PortId(2), || true);
        world.reclaim_all();
        world.check();
    }
    assert_eq!(world.log().len(), 32);
    world.drain(|_| {});
}

#[test]
fn memory_of_the_two_directions_is_apart() {
    // The partition for frames to the underlay is full; frames from the underlay are copied to the
    // shared buffer all the same.
    let mut ports = vec![access(0), access(0), underlay(1)];
    ports[2].input_full = InputFull::Wait;
    ports[2].input = limit(16, 200_000);
    ports[0].input = limit(16, 200_000);
    let mut config = with_tunnels(config(ports), 2, &[2]);
    config.pool.from_local = limit(8, 100_000);
    config.pool.from_underlay = limit(8, 100_000);
    let mut world = World::new(&config, 1);
    world.at_tunnel(mac(9), 0);
    world.at_port(mac(1), 1);
    let fill = |world: &mut World, port: usize| {
        for _ in 0..10 {
            world.fill(port, |world| match port {
                0 => world.tenant(0, &frame(mac(9), 0, 60)),
                _ => world.tunnel_frame(2, 0, &frame(mac(1), 0, 60)),
            });
            let input = world.switch.input(PortId::from_index(port), 0);
            world.copy_to_shared(input, usize::MAX);
        }
    };
    fill(&mut world, 0);
    let local = world.pooled;
    assert!(local > 0 && local <= 8, "{local}");
    fill(&mut world, 2);
    assert!(world.pooled >= local + 4, "nothing was left for the other direction");
    world.drain(|_| {});
}

/// A tunnel's frames came by two queues of a card and wait for an address in one queue; one of
/// these goes away. The frame of the other still counts among those that wait.
#[test]
fn miss_queue_after_input_migration_counts_remaining_frame() {
    let mut card = underlay(1);
    (card.queues, card.input_full) = (2, InputFull::Drop);
    let mut config = lossy(with_tunnels(config(vec![card]), 0, &[9]));
    config.unresolved.frames = 2;
    let mut world = World::new(&config, 1);
    let give = |world: &mut World, queue: u16, count: usize| {
        let mut bufs = Vec::new();
        for _ in 0..count {
            let mut buf = world.tunnel_frame(0, 0, &frame(mac(9), 0, 60));
            buf.owner = Owner::Input(queue);
            bufs.push(buf);
        }
        world.receive(InputId(queue), bufs);
    };
    give(&mut world, 0, 1);
    give(&mut world, 1, 1);
    assert_eq!(world.migrate_buffers(InputId(0), 0), 1);
    give(&mut world, 1, 3);
    let full = world.switch.dropped(InputId(1), Priority::ZERO, DropReason::UnresolvedFull);
    assert_eq!(full.frames, 2, "of three, one may wait beside the one that stayed");
    world.drain(|_| {});
}

/// Reasons that depend on the state of the switch and not on the frame; the others have their rows
/// beside the classification, and in `tunnels.rs`.
#[test]
fn every_reason_that_is_not_in_the_frame() {
    use DropReason as R;
    let one = |input_full, is_lossy: bool| {
        let mut ports = vec![access(0), access(0), access(1)];
        ports[0].input = limit(4, 200_000);
        ports[0].input_full = input_full;
        ports[1].output = limit(3, 100_000);
        let mut config = config(ports);
        config.vnets.push(config.vnets[0].clone());
        config.vnets[1].vni = None;
        config.unresolved.frames = 2;
        config.pool.copies_per_group = 1;
        let mut world = World::new(&if is_lossy { lossy(config) } else { config }, 1);
        world.at_port(mac(0), 0);
        world.at_port(mac(1), 1);
        world
    };
    let give = |world: &mut World, port: usize, tenant: Tenant, count: usize| {
        let bufs = (0..count).map(|_| world.tenant(port, &tenant)).collect();
        world.receive(InputId::from_index(port), bufs);
    };
    type Step = fn(&mut World, &dyn Fn(&mut World, usize, Tenant, usize));
    let wait = InputFull::Wait;
    let table: Vec<(R, InputFull, bool, u64, Step)> = vec![
        (R::SamePort, wait, false, 1, |w, give| give(w, 0, frame(mac(0), 0, 60), 1)),
        (R::NoReceiver, wait, false, 1, |w, give| {
            give(w, 2, frame(Mac::BROADCAST, 0, 60), 1);
            w.copy_to_shared(InputId(2), 9);
        }),
        (R::ReplicationLimit, wait, false, 1, |w, give| {
            give(w, 0, frame(Mac::BROADCAST, 0, 60), 1);
            w.copy_to_shared(InputId(0), 0);
        }),
        (R::ReplicationLimit, wait, false, 2, |w, give| {
            give(w, 0, frame(Mac::BROADCAST, 0, 60), 3);
            w.copy_to_shared(InputId(0), 9);
        }),
        (R::OutputFull, wait, true, 1, |w, give| give(w, 0, frame(mac(1), 0, 60), 4)),
        (R::InputFull, InputFull::Drop, false, 3, |w, give| give(w, 0, frame(mac(1), 0, 60), 7)),
        (R::UnresolvedFull, wait, true, 2, |w, give| give(w, 0, frame(mac(9), 0, 60), 4)),
        (R::Unresolved, wait, false, 4, |w, give| {
            give(w, 0, frame(mac(9), 0, 60), 4);
            w.command(Command::Reject { vnet: VnetId(0), mac: mac(9) });
        }),
        (R::Oversize, wait, false, 1, |w, give| {
            give(w, 0, frame(mac(1), 0, 1_515), 1);
            w.transmit(PortId(1), || true);
        }),
        (R::Stopped, wait, false, 2, |w, give| {
            give(w, 0, frame(mac(1), 0, 60), 2);
            w.unplug(PortId(1));
        }),
    ];
    for (at, (reason, input_full, is_lossy, count, step)) in table.into_iter().enumerate() {
        let mut world = one(input_full, is_lossy);
        step(&mut world, &give);
        world.check();
        let dropped: u64 = (0..3)
            .map(|input| world.switch.dropped(InputId(input), Priority::ZERO, reason).frames)
            .sum();
        let all = world.switch.audit().total(|row| row.frames.dropped);
        assert_eq!((dropped, all), (count, count), "row {at}: {reason}");
        world.drain(|_| {});
    }
}
