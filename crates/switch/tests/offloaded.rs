//! Ports between which a device forwards by itself: what the switch sees of their frames are
//! copies, and it sends none of them a second time.

mod harness;

use harness::config::{access, config, underlay, with_tunnels};
use harness::frames::Tenant;
use harness::ops::address;
use harness::world::World;
use sluice_base::{DropReason, InputId, Mac, PortId, Priority};
use sluice_switch::{PortConfig, SwitchConfig};

/// Returns a configuration of two ports of a device, an access port beside them and a tunnel.
fn device_config() -> SwitchConfig {
    let of_device = || PortConfig { is_offloaded: true, ..access(0) };
    let ports = vec![of_device(), of_device(), access(0), underlay(1)];
    with_tunnels(config(ports), 3, &[2])
}

fn frame(to: Mac, from: u8) -> Tenant {
    Tenant::new(to, address(0, from), 0, 60)
}

/// Receives frames at a port, and returns how many leave by each port.
fn through(world: &mut World, port: usize, frames: &[Tenant]) -> [u32; 4] {
    let input = InputId(u16::try_from(port).unwrap());
    let bufs = frames.iter().map(|frame| world.tenant(port, frame)).collect();
    world.receive(input, bufs);
    world.copy_to_shared(input, usize::MAX);
    let sent = [0, 1, 2, 3].map(|port| world.transmit(PortId(port), || true));
    world.check();
    sent
}

fn dropped(world: &World) -> u64 {
    world.switch.dropped(InputId(0), Priority::ZERO, DropReason::SplitHorizon).frames
}

#[test]
fn device_forwards_between_its_ports_alone() {
    let mut world = World::new(&device_config(), 1);
    for port in 0..3 {
        world.at_port(address(0, port), port.into());
    }
    world.at_tunnel(address(0, 9), 0);
    // One by one, and as a batch, whose routes are found together.
    for count in [1, 3] {
        let frames = |to| vec![frame(address(0, to), 0); count];
        let n = u32::try_from(count).unwrap();
        assert_eq!(through(&mut world, 0, &frames(2)), [0, 0, n, 0], "an ordinary port");
        assert_eq!(through(&mut world, 0, &frames(9)), [0, 0, 0, n], "another host");
        let before = dropped(&world);
        assert_eq!(through(&mut world, 0, &frames(1)), [0; 4], "its neighbour has it");
        assert_eq!(dropped(&world) - before, u64::from(n));
    }
    assert_eq!(through(&mut world, 2, &[frame(address(0, 1), 2)]), [0, 1, 0, 0], "to the device");
    // What is flooded at the device reaches the others only, and from them all of its ports.
    assert_eq!(through(&mut world, 0, &[frame(Mac::BROADCAST, 0)]), [0, 0, 1, 1]);
    assert_eq!(through(&mut world, 2, &[frame(Mac::BROADCAST, 2)]), [1, 1, 0, 1]);
    world.drain(|_| {});
}

#[test]
fn resolved_destination_at_device_ends_waiting_copy() {
    let mut world = World::new(&device_config(), 1);
    assert_eq!(through(&mut world, 0, &[frame(address(0, 1), 0)]), [0; 4], "it waits");
    world.at_port(address(0, 1), 1);
    assert_eq!(through(&mut world, 0, &[]), [0; 4], "the device has flooded it");
    assert_eq!(dropped(&world), 1);
    world.drain(|_| {});
}
