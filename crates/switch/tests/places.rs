//! Networks and tunnels that come and go: each call in each state, and what ends with them.

mod harness;

use harness::config::{access, config, next_hop, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, in_vxlan};
use harness::ops::address;
use harness::world::{TUNNELS, World};
use harness::{Info, TestBuf};
use sluice_base::{DropReason, InputId, Mac, PortId, Priority, TunnelId, VnetId, Vni};
use sluice_switch::{
    ChangeError, Command, CommandError, ConfigError, Destination, PlaceState, SpareConfig,
    SparePlaces, SwitchConfig, TunnelConfig, VnetConfig,
};

const BLUE: VnetId = VnetId(0);
/// A spare place between two networks.
const SPARE: VnetId = VnetId(1);
const GREEN: VnetId = VnetId(2);
const NEAR: TunnelId = TunnelId(0);
const SPARE_TUNNEL: TunnelId = TunnelId(1);
const FAR: TunnelId = TunnelId(2);
const UNDERLAY: u16 = 2;

/// Returns two ports of the first network, an underlay, a spare port, and a spare place between two
/// networks and between two tunnels.
fn places_config() -> SwitchConfig {
    let ports = vec![access(0), access(0), underlay(1)];
    let mut config = with_tunnels(config(ports), UNDERLAY, &[2, 4]);
    config.vnets[0].tunnels = vec![NEAR, FAR];
    let green = VnetConfig { vni: Vni::new(300), mtu: 1_500, tunnels: vec![FAR] };
    config.vnets.push(green);
    config.spare_places = SparePlaces { vnets: vec![SPARE], tunnels: vec![SPARE_TUNNEL] };
    config.spare = Some(SpareConfig { ports: 1, like: access(0) });
    config
}

/// Returns a world of the first network and tunnel, with spare places behind them.
fn world() -> World {
    let mut config = places_config();
    config.vnets.truncate(1);
    config.tunnels.truncate(1);
    config.vnets[0].tunnels = vec![NEAR];
    config.spare_places =
        SparePlaces { vnets: vec![SPARE, GREEN], tunnels: vec![SPARE_TUNNEL, FAR] };
    let mut world = World::new(&config, 1);
    world.log();
    world
}

fn red(tunnels: &[TunnelId]) -> VnetConfig {
    VnetConfig { vni: Vni::new(200), mtu: 1_500, tunnels: tunnels.to_vec() }
}

fn tunnel_to(n: u8) -> TunnelConfig {
    let next_hop = Some(next_hop(usize::from(n)));
    TunnelConfig { port: PortId(UNDERLAY), remote: vtep(n), next_hop, foreign: false }
}

fn add_tunnel(world: &mut World, tunnel: TunnelId, n: u8) {
    let config = tunnel_to(n);
    world.switch.add_tunnel(world.now, tunnel, &config).unwrap();
    world.tunnels[tunnel.index()] = true;
    world.config.tunnels[tunnel.index()] = config;
    world.oracle.set_tunnel(tunnel.index(), config);
}

fn add_vnet(world: &mut World, vnet: VnetId, config: &VnetConfig) {
    world.switch.add_vnet(vnet, config).unwrap();
    world.vnets[vnet.index()] = true;
    world.config.vnets[vnet.index()] = config.clone();
    world.oracle.set_vnet(vnet.index(), config.clone());
}

fn remove_vnet(world: &mut World, vnet: VnetId) -> u32 {
    let dropped = world.switch.remove_vnet(world.now, vnet).unwrap();
    world.vnets[vnet.index()] = false;
    dropped
}

fn remove_tunnel(world: &mut World, tunnel: TunnelId) -> u32 {
    let dropped = world.switch.remove_tunnel(world.now, tunnel).unwrap();
    world.tunnels[tunnel.index()] = false;
    world.config.vnets.iter_mut().for_each(|vnet| vnet.tunnels.retain(|t| *t != tunnel));
    dropped
}

/// Sends frames from the first port to an address.
fn send(world: &mut World, dst: Mac, count: usize) {
    for _ in 0..count {
        let frame = world.tenant(0, &Tenant::new(dst, Mac([2, 1, 0, 0, 0, 1]), 0, 100));
        world.receive(InputId(0), vec![frame]);
    }
}

/// Returns a frame of a peer to an address of a network.
fn from_peer(world: &mut World, n: u8, tunnel: TunnelId, (vni, vnet): (u32, u16), dst: Mac) {
    let (outer_dst, remote) = (underlay_mac(1), vtep(n));
    let outer = Outer { dst: outer_dst, remote, local: vtep(1), vni, dscp: 0, ecn: 0, pcp: None };
    let tenant = Tenant::new(dst, Mac([2, 1, 0, 0, 0, 9]), 0, 100);
    let from = TUNNELS + tunnel.0 * 8;
    let priority = Priority::ZERO;
    let info = Info { id: world.next_id(), from, port: UNDERLAY, vnet, dst, priority, valid: true };
    let buf: TestBuf = world.buf(InputId(UNDERLAY), info, in_vxlan(&outer, &tenant.bytes()));
    world.receive(InputId(UNDERLAY), vec![buf]);
}

fn dropped(world: &World, input: u16, reason: DropReason) -> u64 {
    Priority::all().map(|p| world.switch.dropped(InputId(input), p, reason).frames).sum()
}

#[test]
fn numbers_of_configuration_skip_spare_places() {
    let whole = places_config();
    let switch =
        sluice_switch::Switch::<TestBuf>::new(&whole, 1, sluice_base::Nanos::ZERO).unwrap();
    let states = [BLUE, SPARE, GREEN].map(|vnet| switch.vnet_state(vnet));
    assert_eq!(states, [PlaceState::InUse, PlaceState::Free, PlaceState::InUse]);
    let states = [NEAR, SPARE_TUNNEL, FAR].map(|tunnel| switch.tunnel_state(tunnel));
    assert_eq!(states, [PlaceState::InUse, PlaceState::Free, PlaceState::InUse]);
    for spare in [vec![VnetId(3)], vec![GREEN, SPARE], vec![SPARE, SPARE]] {
        let mut wrong = places_config();
        wrong.spare_places.vnets = spare;
        let made = sluice_switch::Switch::<TestBuf>::new(&wrong, 1, sluice_base::Nanos::ZERO);
        assert!(made.is_err(), "{:?}", wrong.spare_places);
    }
}

#[test]
fn network_added_forwards_between_port_and_peer() {
    let mut world = world();
    add_tunnel(&mut world, FAR, 4);
    add_vnet(&mut world, GREEN, &red(&[FAR]));
    let port = world.plug(&access(GREEN.0)).unwrap();
    let (here, there) = (address(2, 1), address(2, 2));
    world.command(Command::Install { vnet: GREEN, mac: here, to: Destination::Port(port) });
    world.command(Command::Install { vnet: GREEN, mac: there, to: Destination::Tunnel(FAR) });
    from_peer(&mut world, 4, FAR, (200, 2), here);
    let frame = world.tenant(port.index(), &Tenant::new(there, here, 0, 100));
    let input = world.switch.input(port, 0);
    world.receive(input, vec![frame]);
    world.service();
    let ports: Vec<usize> = world.log().iter().map(|sent| sent.port).collect();
    assert_eq!(ports, [usize::from(UNDERLAY), port.index()]);
    world.check_empty();
}

#[test]
fn network_with_port_is_not_removed() {
    let mut world = world();
    let has_port = ChangeError::HasPort(BLUE, PortId(0));
    assert_eq!(world.switch.remove_vnet(world.now, BLUE), Err(has_port));
    send(&mut world, address(0, 1), 1);
    world.check();
    for port in [PortId(0), PortId(1)] {
        world.unplug(port);
    }
    world.misses.clear();
    assert_eq!(remove_vnet(&mut world, BLUE), 0, "its ports ended their frames");
    assert!(world.plug(&access(0)).is_err(), "there is no such network");
    world.drain(|_| {});
}

#[test]
fn network_removed_ends_its_frames_under_reason() {
    let mut world = world();
    add_vnet(&mut world, SPARE, &red(&[NEAR]));
    let known = address(1, 1);
    world.command(Command::Install { vnet: SPARE, mac: known, to: Destination::Tunnel(NEAR) });
    // One waits to be resolved, one for its copies, and one of control for the tunnel.
    from_peer(&mut world, 2, NEAR, (200, 1), address(1, 7));
    from_peer(&mut world, 2, NEAR, (200, 1), Mac::BROADCAST);
    assert_eq!(remove_vnet(&mut world, SPARE), 2);
    assert_eq!(dropped(&world, UNDERLAY, DropReason::Removed), 2);
    world.check();
    assert_eq!(world.switch.mac(SPARE, known), None);
    from_peer(&mut world, 2, NEAR, (200, 1), address(1, 7));
    assert_eq!(dropped(&world, UNDERLAY, DropReason::UnknownVni), 1, "it is not known any more");
    world.drain(|_| {});
}

#[test]
fn networks_removed_together_end_frames_of_all() {
    let mut world = world();
    add_vnet(&mut world, SPARE, &red(&[NEAR]));
    let green = VnetConfig { vni: Vni::new(300), mtu: 1_500, tunnels: vec![NEAR] };
    add_vnet(&mut world, GREEN, &green);
    for (vnet, vni) in [(SPARE, 200), (GREEN, 300)] {
        let mac = address(vnet.0, 1);
        world.command(Command::Install { vnet, mac, to: Destination::Tunnel(NEAR) });
        from_peer(&mut world, 2, NEAR, (vni, vnet.0), address(vnet.0, 7));
        from_peer(&mut world, 2, NEAR, (vni, vnet.0), Mac::BROADCAST);
    }
    // All or none: one has a port, or is there twice.
    let refused = |world: &mut World, vnets: &[VnetId]| {
        let refused = world.switch.remove_vnets(world.now, vnets).unwrap_err();
        assert_eq!(dropped(world, UNDERLAY, DropReason::Removed), 0);
        refused
    };
    let has_port = ChangeError::HasPort(BLUE, PortId(0));
    assert_eq!(refused(&mut world, &[SPARE, BLUE]), (1, has_port));
    assert_eq!(refused(&mut world, &[SPARE, SPARE]), (1, ChangeError::NoSuchVnet(SPARE)));
    let ended = world.switch.remove_vnets(world.now, &[SPARE, GREEN]).unwrap();
    for vnet in [SPARE, GREEN] {
        world.vnets[vnet.index()] = false;
        assert_eq!(world.switch.mac(vnet, address(vnet.0, 1)), None);
    }
    assert_eq!((ended, dropped(&world, UNDERLAY, DropReason::Removed)), (4, 4));
    world.check();
    assert_eq!(world.switch.remove_vnets(world.now, &[]), Ok(0));
    world.drain(|_| {});
}

#[test]
fn tunnel_removed_ends_queued_frames_only_its_own() {
    for lossless in [true, false] {
        let mut world = world();
        add_tunnel(&mut world, FAR, 4);
        let tunnels = [NEAR, FAR];
        world.switch.set_vnet(world.now, BLUE, 1_500, &tunnels).unwrap();
        world.config.vnets[0].tunnels = tunnels.to_vec();
        world.at_tunnel(address(0, 1), NEAR.0);
        world.at_tunnel(address(0, 2), FAR.0);
        // A next hop that is not known makes frames wait in queues of their sources.
        if !lossless {
            world.switch.set_next_hop(world.now, FAR, None).unwrap();
        }
        for _ in 0..4 {
            send(&mut world, address(0, 1), 1);
            send(&mut world, address(0, 2), 1);
        }
        assert_eq!(remove_tunnel(&mut world, FAR), 4);
        world.check();
        assert_eq!(dropped(&world, 0, DropReason::Removed), 4);
        assert_eq!(DropReason::Removed.class(), sluice_base::DropClass::Stopped);
        world.service();
        assert_eq!(world.log().len(), 4, "those of the other tunnel");
        world.check_empty();
    }
}

#[test]
fn peer_without_network_ends_its_frames_of_it() {
    let mut world = world();
    world.at_tunnel(address(0, 1), NEAR.0);
    send(&mut world, address(0, 1), 3);
    assert_eq!(world.switch.set_vnet(world.now, BLUE, 1_500, &[]), Ok(3));
    world.config.vnets[0].tunnels.clear();
    world.check();
    from_peer(&mut world, 2, NEAR, (100, 0), address(0, 5));
    assert_eq!(dropped(&world, UNDERLAY, DropReason::UnknownVni), 1);
    assert_eq!(world.switch.mac(BLUE, address(0, 1)), None);
    world.drain(|_| {});
}

#[test]
fn removed_tunnel_number_is_taken_while_frames_wait() {
    let mut world = world();
    world.at_port(address(0, 1), 1);
    from_peer(&mut world, 2, NEAR, (100, 0), address(0, 1));
    assert_eq!(remove_tunnel(&mut world, NEAR), 0, "what came in is delivered");
    assert_eq!(world.switch.tunnel_state(NEAR), PlaceState::Removed);
    let taken = ChangeError::TunnelTaken(NEAR, PlaceState::Removed);
    let config = tunnel_to(9);
    assert_eq!(world.switch.add_tunnel(world.now, NEAR, &config), Err(taken));
    world.service();
    assert_eq!(world.log().len(), 1);
    assert_eq!(world.switch.tunnel_state(NEAR), PlaceState::Free);
    add_tunnel(&mut world, NEAR, 9);
    world.check_empty();
}

/// The first frames wait in the common queue of the port, those behind them in a queue of their
/// source. Either names the tunnel.
#[test]
fn removed_tunnel_is_named_until_last_frame() {
    const FRAMES: usize = 40;
    let mut world = world();
    world.at_port(address(0, 1), 1);
    for _ in 0..FRAMES {
        from_peer(&mut world, 2, NEAR, (100, 0), address(0, 1));
    }
    assert!(world.switch.queues().next().is_some(), "some wait in the queue of their source");
    assert_eq!(remove_tunnel(&mut world, NEAR), 0, "what came in is delivered");
    for sent in 0..FRAMES {
        assert_eq!(world.switch.tunnel_state(NEAR), PlaceState::Removed, "after {sent} frames");
        let mut offers = 0;
        let takes_one = || {
            offers += 1;
            offers == 1
        };
        world.switch.resume_port(PortId(1));
        assert_eq!(world.transmit(PortId(1), takes_one), 1);
    }
    assert_eq!(world.switch.tunnel_state(NEAR), PlaceState::Free);
    world.service();
    world.check_empty();
}

#[test]
fn reused_tunnel_number_has_no_decap_flow() {
    let mut world = world();
    world.attach(true);
    world.at_port(address(0, 1), 1);
    from_peer(&mut world, 2, NEAR, (100, 0), address(0, 1));
    world.service();
    assert_eq!(world.switch.decap_flows().count(), 1);
    remove_tunnel(&mut world, NEAR);
    world.flows.clear();
    assert_eq!(world.switch.decap_flows().count(), 0);
    add_tunnel(&mut world, NEAR, 9);
    world.switch.set_vnet(world.now, BLUE, 1_500, &[NEAR]).unwrap();
    world.config.vnets[0].tunnels = vec![NEAR];
    assert_eq!(world.switch.decap_flows().count(), 0, "nothing came from the new peer");
    assert_eq!(world.switch.tunnel_counters(NEAR).received.frames, 0);
    from_peer(&mut world, 9, NEAR, (100, 0), address(0, 1));
    world.service();
    assert_eq!(world.flows.len(), 1, "its first frame is reported");
}

#[test]
fn every_change_in_every_state() {
    let mut world = world();
    let now = world.now;
    let (vnet, tunnel) = (VnetId(9), TunnelId(9));
    let switch = &mut world.switch;
    // Where there is no place.
    assert_eq!(switch.add_vnet(vnet, &red(&[])), Err(ChangeError::NoSuchVnet(vnet)));
    assert_eq!(
        switch.add_tunnel(now, tunnel, &tunnel_to(9)),
        Err(ChangeError::NoSuchTunnel(tunnel))
    );
    // At a free place.
    let nothing = ChangeError::NoSuchVnet(SPARE);
    assert_eq!(switch.remove_vnet(now, SPARE), Err(nothing.clone()));
    assert_eq!(switch.set_vnet(now, SPARE, 1_500, &[]), Err(nothing));
    assert_eq!(switch.remove_tunnel(now, FAR), Err(ChangeError::NoSuchTunnel(FAR)));
    let install =
        Command::Install { vnet: SPARE, mac: address(1, 1), to: Destination::Port(PortId(0)) };
    assert_eq!(switch.command(now, install), Err(CommandError::NoSuchVnet(SPARE)));
    let install = Command::Install { vnet: BLUE, mac: address(0, 1), to: Destination::Tunnel(FAR) };
    assert_eq!(switch.command(now, install), Err(CommandError::NoSuchTunnel(FAR)));
    assert_eq!(switch.set_next_hop(now, FAR, None), Err(CommandError::NoSuchTunnel(FAR)));
    // At a place that is in use.
    let taken = ChangeError::VnetTaken(BLUE, PlaceState::InUse);
    assert_eq!(switch.add_vnet(BLUE, &red(&[])), Err(taken));
    let taken = ChangeError::TunnelTaken(NEAR, PlaceState::InUse);
    assert_eq!(switch.add_tunnel(now, NEAR, &tunnel_to(9)), Err(taken));
    // With a wrong configuration.
    let config = |error| Err(ChangeError::Config(error));
    let twice = VnetConfig { vni: Vni::new(100), ..red(&[]) };
    let vni = Vni::new(100).unwrap();
    assert_eq!(switch.add_vnet(SPARE, &twice), config(ConfigError::VniTwice { vni }));
    let no_tunnel = ConfigError::NoSuch { what: "tunnel", index: 2, by: "a network" };
    assert_eq!(switch.add_vnet(SPARE, &red(&[FAR])), config(no_tunnel));
    let large = VnetConfig { mtu: 1_501, ..red(&[NEAR]) };
    let too_large = ConfigError::MtuTooLarge { vnet: SPARE, mtu_max: 1_500 };
    assert_eq!(switch.add_vnet(SPARE, &large), config(too_large));
    let remote = vtep(2);
    let twice = ConfigError::TunnelTwice { remote };
    assert_eq!(switch.add_tunnel(now, FAR, &tunnel_to(2)), config(twice));
    let through_access = TunnelConfig { port: PortId(0), ..tunnel_to(9) };
    let no_underlay = ConfigError::NotUnderlay { tunnel: FAR };
    assert_eq!(switch.add_tunnel(now, FAR, &through_access), config(no_underlay));
    world.check_empty();
}

#[test]
fn least_mtu_follows_networks_that_come_and_go() {
    let mut world = world();
    world.at_tunnel(address(0, 1), NEAR.0);
    let small = VnetConfig { mtu: 600, ..red(&[NEAR]) };
    add_vnet(&mut world, SPARE, &small);
    let send_large = |world: &mut World| {
        let tenant = Tenant::new(address(0, 1), Mac([2, 1, 0, 0, 0, 1]), 0, 1_514);
        let frame = world.tenant(0, &tenant);
        world.receive(InputId(0), vec![frame]);
        world.service();
        world.log().len()
    };
    assert_eq!(send_large(&mut world), 1, "another network's MTU does not bind");
    remove_vnet(&mut world, SPARE);
    assert_eq!(send_large(&mut world), 1);
    world.switch.set_vnet(world.now, BLUE, 1_400, &[NEAR]).unwrap();
    assert_eq!(send_large(&mut world), 0);
    assert_eq!(dropped(&world, 0, DropReason::Oversize), 1);
}
