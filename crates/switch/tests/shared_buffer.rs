//! One slow container behind an input that pauses its sender: frames are copied to the shared
//! buffer before the wire is paused for all.

mod harness;

use harness::config::{access, config, limit, pausing, underlay, with_tunnels};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::World;
use sluice_base::{BitRate, Buf, InputId, Mac, Nanos, PortId, Priority};
use sluice_switch::RateLimit;

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);
/// The ports: one that takes nothing, one that takes everything, and the wire.
const STUCK: u8 = 0;
const GOES: u8 = 1;
const WIRE: usize = 2;
/// One input may hold half of the partition.
const POOL_FRAMES: u32 = 256;
const PAUSED: u8 = 3;
/// Number of frames that are read at a time.
const BATCH: usize = 64;

fn to(port: u8, size: u32) -> Tenant {
    Tenant::new(address(0, port), SRC, PAUSED << 3, size)
}

/// Runs `hosts` remote hosts that send frames of `size` bytes to the container that is stuck, and
/// as many to the one that is not.
fn slow_container(hosts: u16, size: u32) {
    let ports = vec![access(0), access(0), pausing(underlay(1))];
    let remotes: Vec<u8> = (2..2 + u8::try_from(hosts).unwrap()).collect();
    let mut config = with_tunnels(config(ports), u16::try_from(WIRE).unwrap(), &remotes);
    config.pool.from_underlay = limit(POOL_FRAMES, 1_000_000);
    let mut world = World::new(&config, 1);
    world.at_port(address(0, STUCK), usize::from(STUCK));
    world.at_port(address(0, GOES), usize::from(GOES));
    world.log();
    let input = InputId(u16::try_from(WIRE).unwrap());
    let priority = Priority::new(PAUSED).unwrap();
    let (mut turn, mut free) = (0_u16, 0);
    while !world.switch.pause_state(world.now, PortId(2), priority).pausing {
        let window = world.switch.window(input).of_any();
        let (mut bufs, mut bytes) = (Vec::new(), 0);
        while bufs.len() < BATCH && bytes < window.bytes.0 {
            let port = if turn % 2 == 0 { STUCK } else { GOES };
            free += usize::from(port == GOES);
            let buf = world.tunnel_frame(WIRE, turn / 2 % hosts, &to(port, size));
            bytes += u64::from(buf.size());
            bufs.push(buf);
            turn += 1;
        }
        assert!(!bufs.is_empty(), "{hosts} hosts, {size} bytes: held without a pause");
        world.receive(input, bufs);
        if world.switch.window(input).of_any().needs_copy {
            world.copy_to_shared(input, usize::MAX);
        }
        world.transmit(PortId(GOES.into()), || true);
        world.reclaim_all();
        world.check();
    }
    assert!(
        world.pooled >= POOL_FRAMES as usize / 2,
        "{hosts} hosts, {size} bytes: paused with {} frames in the pool",
        world.pooled
    );
    // Until then no other receiver was held up.
    assert_eq!(world.log().len(), free);
    world.drain(|_| {});
}

#[test]
fn slow_container_fills_shared_buffer_before_wire_pause() {
    for size in [60, 400, 1_450] {
        slow_container(1, size);
    }
}

#[test]
fn slow_container_with_many_senders_fills_shared_buffer() {
    for hosts in [2, 3, 7] {
        for size in [60, 1_450] {
            slow_container(hosts, size);
        }
    }
}

#[test]
fn container_with_large_frames_copied_by_bytes() {
    // 64 frames would fit; the bytes are those of 40 full frames.
    let mut ports = vec![access(0), access(0), access(0)];
    ports[0].input = limit(64, 60_000);
    let mut world = World::new(&config(ports), 1);
    world.at_port(address(0, 1), 1);
    world.at_port(address(0, 2), 2);
    world.fill(0, |world| world.tenant(0, &to(1, 1_514)));
    assert_eq!(world.switch.window(InputId(0)).of_any().frames, 0);
    world.copy_to_shared(InputId(0), usize::MAX);
    world.reclaim_all();
    assert!(world.switch.window(InputId(0)).of_any().frames > 0, "a stuck output stops the others");
    world.drain(|_| {});
}

#[test]
fn common_queue_of_large_frames_leaves_input_open() {
    // 17 of the largest frames fill the input, and a common queue could take 16.
    let mut ports = vec![access(0), access(0), access(0)];
    for port in &mut ports {
        port.mtu = 9_000;
        port.input = limit(64, 150_000);
    }
    let mut config = config(ports);
    config.vnets[0].mtu = 9_000;
    let mut world = World::new(&config, 1);
    world.at_port(address(0, 1), 1);
    world.at_port(address(0, 2), 2);
    world.fill(0, |world| world.tenant(0, &to(1, 9_014)));
    world.copy_to_shared(InputId(0), usize::MAX);
    world.reclaim_all();
    assert!(world.switch.window(InputId(0)).of_any().frames > 0, "a stuck output stops the others");
    world.drain(|_| {});
}

#[test]
fn shared_buffer_copies_next_frames_after_last_left() {
    // Serves frames in runs; and one by one, with a rate that does not limit them.
    let catch_up = Nanos::from_millis(1);
    let rate = RateLimit { rate: BitRate::from_gbps(1_000), catch_up, overhead: 24 };
    for group_rate in [None, Some(rate)] {
        two_senders_to_a_tunnel_that_is_stuck(group_rate);
    }
}

fn two_senders_to_a_tunnel_that_is_stuck(group_rate: Option<RateLimit>) {
    let mut ports = vec![access(0), access(0), underlay(1)];
    for port in &mut ports[..WIRE] {
        port.input = limit(16, 60_000);
    }
    ports[WIRE].group_rate = group_rate;
    let mut config = with_tunnels(config(ports), u16::try_from(WIRE).unwrap(), &[7]);
    config.pool.from_local = limit(4_096, 4_000_000);
    let mut world = World::new(&config, 1);
    world.at_tunnel(address(0, 9), 0);
    let mut waiting = 0;
    for stay in (1..8).cycle().take(40) {
        for sender in [0, 1] {
            let input = InputId(sender);
            let tenant = |world: &mut World| world.tenant(sender.into(), &to(9, 100));
            waiting += world.fill(sender.into(), tenant);
            world.copy_to_shared(input, usize::MAX);
            world.reclaim_all();
            assert!(
                world.switch.window(input).of_any().frames > 0,
                "port {sender}: a stuck output stops the others"
            );
        }
        // All frames in the shared buffer leave, and a few of those behind stay.
        world.transmit(PortId(2), || {
            waiting -= 1;
            waiting >= stay
        });
        waiting += 1;
        world.reclaim_all();
        world.check();
    }
    world.drain(|_| {});
}

#[test]
fn migrated_input_keeps_its_frames_in_shared_buffer() {
    // Ten frames wait in the common queue of a port, the rest in a queue of their source; those of
    // another sender stand between them.
    for frames in [10, 40] {
        let mut ports = vec![access(0), access(0), access(0)];
        for port in &mut ports {
            port.input = limit(64, 60_000);
        }
        let mut config = config(ports);
        config.pool.from_local = limit(256, 1_000_000);
        let mut world = World::new(&config, 1);
        world.at_port(address(0, 1), 1);
        world.log();
        for _ in 0..frames / 2 {
            for sender in [0, 2] {
                let pair = [to(1, 100), to(1, 200)].map(|t| world.tenant(sender, &t));
                world.receive(InputId(u16::try_from(sender).unwrap()), pair.into());
            }
        }
        assert_eq!(world.migrate_buffers(InputId(0), usize::MAX), 0, "the pool has room for all");
        assert_eq!(world.pooled, frames);
        world.check();
        // More frames come, and are queued behind them.
        let more = world.tenant(0, &to(1, 300));
        world.receive(InputId(0), vec![more]);
        world.transmit(PortId(1), || true);
        assert_eq!(world.log().len(), 2 * frames + 1);
        world.drain(|_| {});
    }
}

#[test]
fn migrated_frames_beyond_shared_buffer_end_as_stopped() {
    let mut world = World::new(&config(vec![access(0), access(0)]), 1);
    world.at_port(address(0, 1), 1);
    world.log();
    for frames in 1..12 {
        let bufs = (0..frames).map(|_| world.tenant(0, &to(1, 100))).collect();
        world.receive(InputId(0), bufs);
        let ended = world.migrate_buffers(InputId(0), 4);
        assert_eq!(ended, u32::saturating_sub(frames, 4));
        world.transmit(PortId(1), || true);
        world.reclaim_all();
        assert_eq!(world.log().len(), frames.min(4) as usize, "those that were copied");
        world.check();
    }
}
