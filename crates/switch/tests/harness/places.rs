//! Networks and tunnels that come, go and change.

use sluice_base::{
    BitRate, DropReason, InputId, Nanos, PortId, Priority, Prng, TunnelId, VnetId, Vni,
};
use sluice_switch::{
    ChangeError, ConfigError, PlaceState, PortRole, PortValues, RateLimit, Service, TunnelConfig,
    VnetConfig,
};

use super::config::{MTU, next_hop, pick, vtep};
use super::ops::any_vnet;
use super::world::World;

/// Changes something about networks or tunnels.
pub fn change(world: &mut World, rng: &mut Prng) {
    match rng.below(8) {
        0 | 1 => add_vnet(world, rng),
        2 => remove_vnet(world, rng),
        3 | 4 => add_tunnel(world, rng),
        5 => remove_tunnel(world, rng),
        6 => set_vnet(world, rng),
        _ => set_service(world, rng),
    }
}

/// Sets other values of an access port.
pub fn set_port(world: &mut World, rng: &mut Prng) {
    let is_access =
        |port: &PortId| matches!(world.config.ports[port.index()].role, PortRole::Access { .. });
    let ports: Vec<PortId> = world.ports().filter(is_access).collect();
    if ports.is_empty() {
        return;
    }
    let port = ports[pick::<usize>(rng, ports.len() as u64)];
    let rate = rng.chance(2, 3).then(|| RateLimit {
        rate: BitRate::from_mbps(1 + rng.below(1_000)),
        catch_up: Nanos(rng.below(100_000)),
        overhead: pick(rng, 25),
    });
    let default_priority = Priority::from_low_bits(pick(rng, 8));
    world.set_port(port, &PortValues { rate, default_priority, allowed: Vec::new() });
}

fn random_vnet(world: &World, rng: &mut Prng, vnet: usize) -> VnetConfig {
    let there = (0..world.tunnels.len()).filter(|at| world.tunnels[*at]);
    let tunnels: Vec<TunnelId> =
        there.filter(|_| rng.chance(3, 4)).map(TunnelId::from_index).collect();
    VnetConfig {
        vni: Vni::new(100 + u32::try_from(vnet).unwrap()),
        mtu: if rng.chance(1, 8) { 600 } else { MTU },
        tunnels,
    }
}

fn add_vnet(world: &mut World, rng: &mut Prng) {
    let at: usize = pick(rng, world.vnets.len() as u64);
    let id = VnetId::from_index(at);
    let config = random_vnet(world, rng, at);
    let state = world.switch.vnet_state(id);
    if at.is_multiple_of(2) {
        world.switch.clear_places(&[id], &[]);
    }
    match world.switch.add_vnet(id, &config) {
        Ok(()) => {
            assert_eq!(state, PlaceState::Free, "{id} was taken");
            (world.vnets[at], world.config.vnets[at]) = (true, config.clone());
            world.oracle.set_vnet(at, config);
            world.vnets_came += 1;
        }
        Err(ChangeError::VnetTaken(of, was)) => {
            assert_eq!((of, was), (id, state));
            assert_ne!(state, PlaceState::Free);
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn remove_vnet(world: &mut World, rng: &mut Prng) {
    let first = any_vnet(world, rng);
    let member_of = |world: &World, id: VnetId| {
        let role = PortRole::Access { vnet: id };
        world.ports().find(|port| world.config.ports[port.index()].role == role)
    };
    let there = (0..world.vnets.len()).filter(|at| world.vnets[*at]);
    // Mostly those without a port: one in the way keeps all of them.
    let may_go = |id: &VnetId, rng: &mut Prng| {
        *id != first && rng.chance(1, 3) && (member_of(world, *id).is_none() || rng.chance(1, 8))
    };
    let others = there.map(VnetId::from_index).filter(|id| may_go(id, rng));
    let mut ids: Vec<VnetId> = [first].into_iter().chain(others).collect();
    let count = world.vnets.iter().filter(|is_there| **is_there).count();
    ids.truncate(count - 1);
    let dropped = removed_frames(world);
    let members: Vec<_> = ids.iter().map(|id| member_of(world, *id)).collect();
    let in_way = members.iter().position(Option::is_some);
    match world.switch.remove_vnets(world.now, &ids) {
        Ok(count) => {
            assert_eq!(in_way, None, "one of {ids:?} has a port");
            assert_eq!(removed_frames(world), dropped + u64::from(count));
            for id in &ids {
                world.vnets[id.index()] = false;
                world.misses.retain(|(vnet, _)| vnet != id);
                world.flows.retain(|(vnet, _)| vnet != id);
            }
        }
        Err((at, error)) => {
            assert_eq!(in_way, Some(at), "{error:?}");
            assert_eq!(members[at].map(|port| ChangeError::HasPort(ids[at], port)), Some(error));
            assert_eq!(removed_frames(world), dropped, "nothing was changed");
        }
    }
}

fn set_vnet(world: &mut World, rng: &mut Prng) {
    let id = any_vnet(world, rng);
    let VnetConfig { mtu, tunnels, .. } = random_vnet(world, rng, id.index());
    let dropped = removed_frames(world);
    let count = world.switch.set_vnet(world.now, id, mtu, &tunnels).unwrap();
    assert_eq!(removed_frames(world), dropped + u64::from(count));
    world.flows.retain(|(vnet, tunnel)| *vnet != id || tunnels.contains(tunnel));
    let config = &mut world.config.vnets[id.index()];
    (config.mtu, config.tunnels) = (mtu, tunnels);
}

fn add_tunnel(world: &mut World, rng: &mut Prng) {
    if world.tunnels.is_empty() {
        return;
    }
    let at: usize = pick(rng, world.tunnels.len() as u64);
    let id = TunnelId::from_index(at);
    let is_underlay =
        |port: &PortId| matches!(world.config.ports[port.index()].role, PortRole::Underlay { .. });
    let port = (0..world.config.ports.len()).map(PortId::from_index).find(is_underlay);
    let config = TunnelConfig {
        port: port.unwrap_or(PortId(0)),
        remote: vtep(2 + u8::try_from(at).unwrap()),
        next_hop: rng.chance(3, 4).then(|| next_hop(at)),
        foreign: rng.chance(1, 4),
    };
    let state = world.switch.tunnel_state(id);
    if at.is_multiple_of(2) {
        world.switch.clear_places(&[], &[id]);
    }
    match world.switch.add_tunnel(world.now, id, &config) {
        Ok(()) => {
            assert_eq!((state, port.is_some()), (PlaceState::Free, true), "{id} was taken");
            (world.tunnels[at], world.config.tunnels[at]) = (true, config);
            world.oracle.set_tunnel(at, config);
            world.tunnels_came += 1;
        }
        Err(ChangeError::TunnelTaken(of, was)) => {
            assert_eq!((of, was), (id, state));
            assert_ne!(state, PlaceState::Free);
        }
        Err(ChangeError::Config(ConfigError::NotUnderlay { .. })) => assert_eq!(port, None),
        Err(error) => panic!("{error:?}"),
    }
}

fn remove_tunnel(world: &mut World, rng: &mut Prng) {
    if world.tunnels.is_empty() {
        return;
    }
    let id = TunnelId(pick(rng, world.tunnels.len() as u64));
    let dropped = removed_frames(world);
    match world.switch.remove_tunnel(world.now, id) {
        Ok(count) => {
            assert_eq!(removed_frames(world), dropped + u64::from(count));
            world.tunnels[id.index()] = false;
            world.flows.retain(|(_, tunnel)| *tunnel != id);
            for vnet in &mut world.config.vnets {
                vnet.tunnels.retain(|tunnel| *tunnel != id);
            }
        }
        Err(error) => {
            assert_eq!(error, ChangeError::NoSuchTunnel(id));
            assert!(!world.tunnels[id.index()]);
        }
    }
}

fn set_service(world: &mut World, rng: &mut Prng) {
    let priority = Priority::new(pick(rng, 8)).unwrap();
    let service =
        if rng.chance(1, 3) { Service::Strict } else { Service::Weighted(1 + pick::<u8>(rng, 4)) };
    world.switch.set_service(priority, service).unwrap();
    assert!(world.switch.set_service(priority, Service::Weighted(0)).is_err());
}

/// Returns the frames that ended with a network or tunnel.
fn removed_frames(world: &World) -> u64 {
    let inputs = (0..=world.switch.pool_input().0).map(InputId);
    let rows = inputs.flat_map(|input| Priority::all().map(move |priority| (input, priority)));
    rows.map(|(input, priority)| world.switch.dropped(input, priority, DropReason::Removed).frames)
        .sum()
}
