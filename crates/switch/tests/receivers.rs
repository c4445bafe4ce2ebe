//! A receiver of several behind a port that has no room: the queue of its sender waits, others go.

mod harness;

use harness::config::{access, config, pausing, underlay, with_tunnels};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::World;
use sluice_base::{InputId, Mac, PortId};
use sluice_switch::Taken;

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);
/// The port with the receivers, two senders, and the wire.
const OUT: PortId = PortId(0);
const SLOW: u16 = 1;
const FAST: u16 = 2;
const WIRE: usize = 3;

fn world() -> World {
    let ports = vec![access(0), access(0), access(0), pausing(underlay(1))];
    let mut world = World::new(&with_tunnels(config(ports), 3, &[2]), 1);
    world.at_port(address(0, 0), OUT.index());
    world.log();
    world
}

/// Sends frames from a local port, as many as its window takes.
fn send(world: &mut World, from: u16, count: usize) -> usize {
    let input = InputId(from);
    let window = world.switch.window(input).of_any().frames as usize;
    let to = Tenant::new(address(0, 0), SRC, 0, 100);
    let bufs: Vec<_> = (0..count.min(window)).map(|_| world.tenant(from.into(), &to)).collect();
    let sent = bufs.len();
    world.receive(input, bufs);
    sent
}

/// Offers with a receiver that takes nothing of one sender, and returns the number taken.
fn offer(world: &mut World, full: Option<u16>) -> u32 {
    let answer = |from| if full == from { Taken::Later } else { Taken::All };
    let taken = world.transmit_to(OUT, |info| answer(info.map(|info| info.from)));
    world.reclaim_all();
    world.check();
    taken
}

#[test]
fn queue_of_full_receiver_waits_alone() {
    let mut world = world();
    let mut fast = 0;
    let mut slow = 0;
    for _ in 0..200 {
        slow += send(&mut world, SLOW, 3);
        fast += send(&mut world, FAST, 3);
        offer(&mut world, Some(SLOW));
        world.copy_to_shared(InputId(SLOW), usize::MAX);
    }
    assert_eq!(world.oracle.delivered(), fast);
    assert_eq!(fast, 600, "the fast one was never held");
    let held = world.switch.held(InputId(SLOW)).frames;
    assert_eq!(held, slow as u64, "in the sender's own input, nothing in the pool");
    assert_eq!(world.switch.window(InputId(SLOW)).frames, 0, "its sender is held");
    assert!(!world.switch.has_work(world.now, OUT), "nothing is offered until it is resumed");
    world.switch.resume_port(OUT);
    offer(&mut world, None);
    assert_eq!(world.oracle.delivered(), fast + slow);
}

#[test]
fn frame_behind_queue_set_aside_does_not_overtake() {
    let mut world = world();
    send(&mut world, SLOW, 2);
    assert_eq!(offer(&mut world, Some(SLOW)), 0);
    // The oracle panics if one of these goes before the two.
    send(&mut world, SLOW, 2);
    assert_eq!(offer(&mut world, None), 0);
    send(&mut world, FAST, 2);
    assert_eq!(offer(&mut world, None), 2);
    world.switch.resume_port(OUT);
    send(&mut world, SLOW, 1);
    assert_eq!(offer(&mut world, None), 5);
}

#[test]
fn frames_of_a_wire_are_not_set_aside() {
    let mut world = world();
    let to = Tenant::new(address(0, 0), SRC, 0, 100);
    let bufs = vec![world.tunnel_frame(WIRE, 0, &to)];
    world.receive(InputId(3), bufs);
    world.transmit_to(OUT, |_| Taken::Later);
    assert!(world.switch.has_work(world.now, OUT), "the whole port waits");
    assert_eq!(offer(&mut world, None), 1);
}

#[test]
fn detached_sender_takes_frames_set_aside_along() {
    let mut world = world();
    send(&mut world, SLOW, 3);
    send(&mut world, FAST, 1);
    offer(&mut world, Some(SLOW));
    let gone = world.unplug(PortId(SLOW));
    assert_eq!(gone.dropped, 3);
    world.switch.resume_port(OUT);
    send(&mut world, FAST, 1);
    offer(&mut world, None);
    assert_eq!(world.oracle.delivered(), 2);
}
