//! One rule for each test, without faults but the one of the rule.

use sluice_base::{DropReason, HostId, Mac, Nanos, PortId, PuntCause};
use sluice_control::directory::{PortRule, State};
use sluice_control::mobility::Limits;
use sluice_control::plane::{Command, Health, Kind, Location, Plane};
use sluice_control::vport::{Key, Origin};

use crate::frames;
use crate::host::{config, millis};
use crate::world::{World, vni};

const A: HostId = HostId(1);
const B: HostId = HostId(2);

/// Two hosts that know each other, with an endpoint each.
fn pair() -> World {
    let mut world = World::of(7, 2);
    world.add_vm(A, vni(10), false);
    world.add_vm(B, vni(10), false);
    world.run_for(millis(1_500));
    world
}

fn introduce(world: &mut World) {
    for at in 0..world.vms.len() {
        let vm = world.vms[at];
        world.emit(at, frames::announcement((vm.key.mac, vm.ip)));
    }
    world.run_for(millis(300));
}

fn owner(world: &World, at: HostId, key: Key) -> Option<HostId> {
    world.hosts[&at].plane.vport(key).map(|info| info.vport.owner)
}

fn arrives(world: &mut World, from: usize, to: usize, most: Nanos) -> bool {
    let token = world.talk(from, to);
    world.until(most, |world| world.delivered.contains(&token))
}

#[test]
fn nothing_is_installed_before_it_is_used() {
    let mut world = pair();
    introduce(&mut world);
    let (a, b) = (world.vms[0].key, world.vms[1].key);
    assert_eq!((owner(&world, A, b), owner(&world, B, a)), (Some(B), Some(A)), "both are known");
    assert!(!world.hosts[&A].fdb.contains_key(&b), "and nobody has asked");
    // Announcements are frames, too.
    world.run_for(millis(3_000));
    assert!(world.hosts[&A].tunnels.is_empty() && world.hosts[&A].decaps.is_empty());
    assert!(arrives(&mut world, 0, 1, millis(50)));
    assert_eq!(world.hosts[&A].fdb.get(&b), Some(&Location::Host(B)));
    assert!(world.hosts[&A].tunnels.contains(&B) && world.hosts[&B].tunnels.contains(&A));
    assert!(world.hosts[&B].decaps.contains(&(vni(10), A)));
    world.run_for(millis(6_000));
    for host in world.hosts.values() {
        assert!(host.fdb.is_empty(), "{:?}", host.fdb);
        assert!(host.tunnels.is_empty() && host.decaps.is_empty(), "what is unused goes");
    }
}

#[test]
fn silent_endpoint_probed_on_behalf_of_sender() {
    let mut world = pair();
    world.vms[1].is_silent = true;
    assert!(arrives(&mut world, 0, 1, millis(1_000)), "its neighbour entry is static");
    assert_eq!(world.hosts[&A].plane.counts().asked, 1);
}

#[test]
fn what_is_nowhere_is_rejected_after_its_time() {
    let mut plane = Plane::new(&config(A, 1), 1, Nanos::ZERO);
    plane.add_vnet(vni(10));
    let rule = PortRule::Learn { quota: 1, sticky: false };
    assert!(plane.add_port(Nanos::ZERO, PortId(0), vni(10), rule));
    let (src, dst) = (Mac::from_u64(0x0200_0000_0001), Mac::from_u64(0x0200_0000_0002));
    let ips = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let bytes = frames::packet((src, ips.0), (dst, ips.1), 1);
    plane.punt(Nanos::ZERO, Location::Port(PortId(0)), vni(10), PuntCause::Miss, &bytes);
    assert!(matches!(plane.command(), Some(Command::Flood { .. })), "it is asked for");
    assert_eq!(plane.command(), None);
    plane.tick(millis(999));
    assert_eq!(plane.command(), None);
    plane.tick(millis(1_000));
    assert_eq!(plane.command(), Some(Command::Reject { vni: vni(10), mac: dst }));
    assert_eq!(plane.command(), None);
    assert_eq!(plane.wanted_count(), 0);
}

/// The commands for a frame that the switch took at the port of an endpoint.
fn taken(world: &mut World, at: usize, bytes: &[u8]) -> Vec<Command> {
    let vm = world.vms[at];
    let host = world.host(vm.host);
    host.taken_frames.all += 1;
    host.plane.punt(host.clock, Location::Port(vm.port), vm.key.vni, PuntCause::Arp, bytes);
    std::iter::from_fn(|| host.plane.command()).collect()
}

fn is_flood(commands: &[Command], port: PortId, bytes: &[u8]) -> bool {
    let flood = |command: &Command| match command {
        Command::Flood { from, frame, .. } => *from == Location::Port(port) && frame == bytes,
        _ => false,
    };
    commands.iter().filter(|command| flood(command)).count() == 1
}

#[test]
fn unanswered_arp_frames_flooded_unchanged() {
    let mut world = pair();
    introduce(&mut world);
    let (vm, other) = (world.vms[0], world.vms[1]);
    let own = (vm.key.mac, vm.ip);
    let mut padded = frames::question(own, "10.9.9.9".parse().unwrap());
    padded.resize(128, 7);
    let mut malformed = frames::question(own, "10.9.9.9".parse().unwrap());
    malformed[14] = 9;
    let to_all = |mut bytes: Vec<u8>| {
        bytes[..6].copy_from_slice(&Mac::BROADCAST.0);
        bytes
    };
    let asked = frames::question((other.key.mac, other.ip), vm.ip);
    let reply = to_all(frames::answer(own, &asked).unwrap());
    // A router's virtual MAC in ARP, its own on the frame; and a bond that answers by another port.
    let virtual_mac = Mac::from_u64(0x0000_5e00_0107);
    let mut of_router = frames::announcement((virtual_mac, "10.9.9.1".parse().unwrap()));
    of_router[6..12].copy_from_slice(&vm.key.mac.0);
    let unknown = frames::question(own, "10.9.9.8".parse().unwrap());
    let itself = frames::question((vm.key.mac, "10.9.9.7".parse().unwrap()), vm.ip);
    for bytes in [padded, malformed, reply, of_router, unknown.clone(), unknown, itself] {
        let commands = taken(&mut world, 0, &bytes);
        assert!(is_flood(&commands, vm.port, &bytes), "{bytes:x?}: {commands:?}");
    }
    let commands = taken(&mut world, 0, &frames::question(own, other.ip));
    let answers =
        |command: &Command| matches!(command, Command::Send { to: Location::Port(_), .. });
    assert!(commands.iter().any(answers), "{commands:?}");
}

/// The policer bounds the work of the control plane; every frame is forwarded all the same.
#[test]
fn what_the_policer_refuses_is_given_back() {
    let mut world = pair();
    let vm = world.vms[0];
    let bytes = frames::question((vm.key.mac, vm.ip), "10.9.9.9".parse().unwrap());
    for _ in 0..300 {
        assert!(is_flood(&taken(&mut world, 0, &bytes), vm.port, &bytes));
    }
    let refused = world.hosts[&A].plane.counts().punts_refused;
    assert!(refused > 200, "{refused}");
}

#[test]
fn refused_source_and_punt_limit_counted_at_port() {
    let mut world = World::of(12, 2);
    world.add_vm(A, vni(10), true);
    world.add_vm(A, vni(10), false);
    let (bound, thief) = (world.vms[0], world.vms[1]);
    let announced = world.host(A).plane.command();
    assert!(matches!(announced, Some(Command::Flood { .. })), "who is bound is announced");
    let refused = |commands: &[Command]| match commands {
        [Command::Refuse { port, reason, frames: 1, bytes: 60 }] => Some((*port, *reason)),
        _ => None,
    };
    let mut mismatch = frames::announcement((Mac::from_u64(0x0200_0000_9999), bound.ip));
    mismatch[6..12].copy_from_slice(&thief.key.mac.0);
    for bytes in [
        frames::announcement((bound.key.mac, thief.ip)),
        frames::announcement((thief.key.mac, bound.ip)),
        mismatch,
    ] {
        let commands = taken(&mut world, 1, &bytes);
        let expected = Some((thief.port, DropReason::RefusedSource));
        assert_eq!(refused(&commands), expected, "{commands:?}");
    }
    // The commands are not taken.
    let bytes = frames::announcement((thief.key.mac, thief.ip));
    let host = world.host(A);
    for _ in 0..20_000 {
        let from = Location::Port(thief.port);
        host.plane.punt(host.clock, from, thief.key.vni, PuntCause::Arp, &bytes);
    }
    let commands: Vec<_> = std::iter::from_fn(|| host.plane.command()).collect();
    let floods = commands.iter().filter(|c| matches!(c, Command::Flood { .. })).count() as u64;
    let last = Some(&Command::Refuse {
        port: thief.port,
        reason: DropReason::PuntLimit,
        frames: 20_000 - floods,
        bytes: (20_000 - floods) * 60,
    });
    assert_eq!((commands.last(), floods > 16_000), (last, true), "{floods}");
}

/// A gateway after a power cut: no host claims it, and all ask at once.
#[test]
fn sixteen_simultaneous_requests_for_unknown_all_answered() {
    let mut world = World::of(13, 3);
    let gateway = world.add_vm(HostId(3), vni(10), false);
    for at in 0..16_u16 {
        world.add_vm(if at < 8 { A } else { B }, vni(10), false);
    }
    world.run_for(millis(1_500));
    world.vms[gateway].is_silent = true;
    for at in 0..world.vms.len() {
        if at != gateway {
            world.ask(at, gateway);
        }
    }
    world.run_for(millis(50));
    let ip = world.vms[gateway].ip;
    let answered = world.vms.iter().filter(|vm| world.answers.contains(&(vm.key.mac, ip))).count();
    assert_eq!(answered, 16);
}

#[test]
fn what_moves_is_repointed_at_once() {
    let mut world = World::of(8, 3);
    for host in [A, B] {
        world.add_vm(host, vni(10), false);
    }
    world.run_for(millis(1_500));
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(50)));
    world.move_vm(1, HostId(3), false);
    let key = world.vms[1].key;
    introduce(&mut world);
    assert_eq!(world.hosts[&A].fdb.get(&key), Some(&Location::Host(HostId(3))), "without a miss");
    assert!(arrives(&mut world, 0, 1, millis(50)));
    assert_eq!(world.hosts[&B].plane.claims(key).count(), 1, "the old host has yielded");
    let info = world.hosts[&A].plane.vport(key).unwrap();
    assert_eq!((info.vport.claim.moves, info.history.len()), (1, 1));
    // The endpoint moves back, and its old port goes down.
    world.move_vm(1, B, true);
    let left =
        |world: &mut World| world.hosts[&A].fdb.get(&key) != Some(&Location::Host(HostId(3)));
    assert!(world.until(millis(300), left));
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(50)));
}

#[test]
fn move_after_link_down_counted_beats_late_withdrawal() {
    const C: HostId = HostId(3);
    let mut world = World::of(12, 3);
    let at = world.add_vm(B, vni(10), false);
    world.run_for(millis(1_500));
    introduce(&mut world);
    let (key, port) = (world.vms[at].key, world.vms[at].port);
    // C hears nothing of B, nor that the link went down.
    world.host(C).mute = Some(B);
    let host = world.host(B);
    host.plane.port_link(host.clock, port, false);
    assert!(world.until(millis(50), |world| owner(world, A, key).is_none()));
    assert_eq!(owner(&world, C, key), Some(B));
    world.move_vm(at, A, false);
    let own = (key.mac, world.vms[at].ip);
    world.emit(at, frames::announcement(own));
    assert!(world.until(millis(50), |world| owner(world, C, key) == Some(A)), "it is the later");
    world.host(C).mute = None;
    world.run_for(millis(300));
    for host in [A, B, C] {
        let info = world.hosts[&host].plane.vport(key).unwrap();
        let steps: Vec<_> = info.history.iter().map(|step| (step.from, step.to)).collect();
        assert_eq!((info.vport.claim.moves, steps), (1, vec![(B, A)]), "at host {host}");
    }
}

#[test]
fn moves_received_together_leave_fdb_matching_table() {
    const C: HostId = HostId(3);
    let mut world = World::of(11, 3);
    let at = world.add_vm(C, vni(10), false);
    world.vms[at].is_silent = true;
    world.run_for(millis(1_500));
    introduce(&mut world);
    let key = world.vms[at].key;
    let arrive = |world: &mut World, to| {
        world.move_vm(at, to, false);
        let vm = world.vms[at];
        world.emit(at, frames::announcement((key.mac, vm.ip)));
        assert!(world.until(millis(50), |world| owner(world, B, key) == Some(to)));
    };
    // The endpoint goes from C to A, which does not hear that C yields.
    world.host(C).mute = Some(A);
    arrive(&mut world, A);
    assert_eq!(world.hosts[&A].fdb.get(&key), Some(&Location::Port(world.vms[at].port)));
    // The endpoint goes on to B and leaves it again: A hears of both at once, when it hears of B
    // again.
    world.host(A).mute = Some(B);
    arrive(&mut world, B);
    world.run_for(millis(30));
    world.move_vm(at, C, true);
    world.run_for(millis(30));
    world.host(A).mute = None;
    assert!(world.until(millis(50), |world| owner(world, A, key) == Some(C)), "A has yielded");
    assert_eq!(world.hosts[&A].fdb.get(&key), Some(&Location::Host(C)));
    let info = world.hosts[&A].plane.vport(key).unwrap();
    assert_eq!(info.state, State::Authoritative, "nobody was silent for too long");
    assert_eq!(info.history.last().map(|last| last.to), Some(C));
    assert_eq!(world.hosts[&A].plane.claims(key).count(), 1);
}

#[test]
fn what_is_withdrawn_leaves_the_fdb() {
    let mut world = pair();
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(50)));
    let vm = world.vms[1];
    world.host(B).remove_port(vm.port);
    assert!(world.until(millis(300), |world| !world.hosts[&A].fdb.contains_key(&vm.key)));
    assert_eq!(owner(&world, A, vm.key), None);
    assert!(world.hosts[&A].mac_events(vm.key.mac).contains(&"vport-withdrawn"));
}

#[test]
fn what_is_stale_is_forwarded_and_not_answered() {
    let mut world = pair();
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(50)));
    let key = world.vms[1].key;
    let answered = |world: &mut World| {
        let before = world.packets_to_ports();
        world.ask(0, 1);
        world.run_for(millis(20));
        world.packets_to_ports() > before
    };
    assert!(answered(&mut world), "for who is live, here");
    world.host(B).is_down = true;
    assert!(world.until(millis(1_500), |world| {
        world.hosts[&A].plane.vport(key).is_some_and(|info| info.state == State::Stale)
    }));
    assert!(world.hosts[&A].plane.vport(key).is_some(), "its claims stay");
    world.talk(0, 1);
    world.run_for(millis(20));
    assert_eq!(world.hosts[&A].fdb.get(&key), Some(&Location::Host(B)), "it is forwarded");
    world.run_for(millis(500));
    assert!(!answered(&mut world), "nobody speaks for it");
    assert!(world.hosts[&A].plane.vport(key).is_some(), "its claims stay for a long time");
    world.run_for(millis(16_000));
    assert_eq!(owner(&world, A, key), None, "its long time is over");
    world.restart(B);
    world.run_for(millis(3_000));
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(500)), "and it is back");
}

#[test]
fn hung_session_marks_endpoints_stale_despite_liveness() {
    let mut world = pair();
    introduce(&mut world);
    let key = world.vms[1].key;
    let state = |world: &World| world.hosts[&A].plane.vport(key).map(|info| info.state);
    world.host(A).mute = Some(B);
    assert!(world.until(millis(1_000), |world| state(world) == Some(State::Stale)));
    let health = |world: &World| world.hosts[&A].plane.hosts().next().map(|info| info.health);
    assert_eq!(health(&world), Some(Health::Alive(1)), "the failure detector has nothing to say");
    world.host(A).mute = None;
    assert!(world.until(millis(4_000), |world| state(world) == Some(State::Authoritative)));
}

#[test]
fn a_refused_move_is_claimed_later() {
    let mut world = pair();
    introduce(&mut world);
    let key = world.vms[1].key;
    let mut limits = Limits { moves: 1, ..config(A, 1).mobility };
    (limits.window, limits.freeze) = (millis(1_000), millis(1_000));
    world.with_limits(limits);
    world.run_for(millis(1_500));
    introduce(&mut world);
    world.move_vm(1, A, false);
    introduce(&mut world);
    assert_eq!(owner(&world, B, key), Some(A), "the first move");
    world.move_vm(1, B, false);
    introduce(&mut world);
    assert_eq!(owner(&world, B, key), Some(A), "the second one is one too many");
    assert!(world.hosts[&B].mac_events(key.mac).contains(&"frozen"));
    world.run_for(millis(1_200));
    introduce(&mut world);
    assert_eq!((owner(&world, A, key), owner(&world, B, key)), (Some(B), Some(B)), "it thaws");
}

#[test]
fn what_is_bound_is_published_and_stays() {
    let mut world = World::of(9, 2);
    world.add_vm(A, vni(10), true);
    world.add_vm(B, vni(10), false);
    let key = world.vms[0].key;
    assert!(world.until(millis(1_500), |world| owner(world, B, key) == Some(A)));
    // An endpoint at the other host pretends to be the bound one.
    let thief = world.vms[1];
    let bytes = frames::announcement((key.mac, thief.ip));
    let host = world.host(B);
    host.taken_frames.all += 1;
    host.plane.punt(host.clock, Location::Port(thief.port), vni(10), PuntCause::Arp, &bytes);
    world.run_for(millis(300));
    assert_eq!((owner(&world, A, key), owner(&world, B, key)), (Some(A), Some(A)));
    assert!(world.hosts[&B].mac_events(key.mac).contains(&"refused"));
    let host = world.host(A);
    host.plane.unbind(host.clock, key);
    assert!(world.until(millis(300), |world| owner(world, B, key).is_none()));
}

#[test]
fn the_least_recently_used_flow_makes_room() {
    let mut world = World::of(10, 3);
    for at in 0..8_u16 {
        world.add_vm(if at < 1 { A } else { HostId(2 + at % 2) }, vni(10), false);
    }
    world.run_for(millis(1_500));
    introduce(&mut world);
    for to in 1..8 {
        assert!(arrives(&mut world, 0, to, millis(50)));
    }
    let host = &world.hosts[&A];
    assert_eq!((host.plane.flow_count(), host.plane.counts().flows_evicted), (6, 1));
    assert!(!host.fdb.contains_key(&world.vms[1].key), "the first was used least recently");
    assert!(arrives(&mut world, 0, 1, millis(300)), "and comes back when it is needed");
}

#[test]
fn a_host_that_is_removed_leaves_nothing() {
    let mut world = pair();
    introduce(&mut world);
    assert!(arrives(&mut world, 0, 1, millis(50)));
    let key = world.vms[1].key;
    world.cut(A, B, false);
    world.host(A).remove_peer(B);
    world.run_for(millis(100));
    let host = &world.hosts[&A];
    assert!(host.plane.vport(key).is_none() && !host.fdb.contains_key(&key));
    assert!(host.tunnels.is_empty() && host.decaps.is_empty());
    assert_eq!(host.plane.hosts().count(), 0);
}

#[test]
fn endpoints_of_foreign_hosts_are_learned_here_only() {
    let mut world = pair();
    let foreign = HostId(99);
    let host = world.host(A);
    host.plane.add_host(host.clock, foreign, &[vni(10)], Kind::Foreign);
    let (mac, ip) = (Mac::from_u64(0x0200_00ff_0001), "10.7.7.7".parse().unwrap());
    let bytes = frames::announcement((mac, ip));
    host.plane.punt(host.clock, Location::Host(foreign), vni(10), PuntCause::Snooped, &bytes);
    world.run_for(millis(500));
    let key = Key { vni: vni(10), mac };
    let info = world.hosts[&A].plane.vport(key).expect("it was learned");
    assert_eq!((info.vport.owner, info.vport.claim.origin), (foreign, Origin::Learned));
    assert!(info.vport.claim.ips.contains(ip.into()));
    assert_eq!(owner(&world, B, key), None, "it is nobody's to publish");
    world.run_for(millis(59_000));
    assert!(owner(&world, A, key).is_some());
    world.run_for(millis(1_500));
    assert_eq!(owner(&world, A, key), None, "it has an age of its own");
}

#[test]
fn host_without_stored_incarnation_recovers_it_from_peers() {
    let mut world = pair();
    introduce(&mut world);
    world.restart(B);
    world.run_for(millis(3_000));
    introduce(&mut world);
    assert_eq!(world.disagreement(), None);
    // The host comes back without its disk, and begins to count again.
    let before = world.hosts[&B].incarnation;
    world.host(B).incarnation = 0;
    world.restart(B);
    world.run_for(millis(3_000));
    introduce(&mut world);
    world.run_for(millis(2_000));
    let info = world.hosts[&A].plane.hosts().next().unwrap();
    assert_eq!((info.is_up, info.have.incarnation), (true, before + 1));
    assert_eq!(info.health, Health::Alive(before + 1));
    assert_eq!(world.disagreement(), None);
}
