//! Interface of an attached control plane: punts, bound ports, decap flows, frames through one
//! tunnel.

mod harness;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use harness::config::{MTU, access, config, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, arp, in_vxlan, neighbor, tagged};
use harness::ops::address;
use harness::world::{CONTROL, TUNNELS, World};
use harness::{Info, TestBuf};
use sluice_base::{
    ByteCount, DropReason, InputId, IpPrefix, Mac, Nanos, PortId, Priority, TunnelId, VnetId,
};
use sluice_switch::{
    Binding, Command, CommandError, DecapFlow, Destination, IsolationConfig, Limit, PortConfig,
    PuntCause, PuntCounters, Sources, SwitchConfig, Target, Used,
};
use sluice_wire::EtherType;

const IP: [u8; 4] = [192, 168, 0, 1];
/// Address without a binding.
const FREE: [u8; 4] = [192, 168, 0, 9];
const IP_V6: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

fn mac(n: u8) -> Mac {
    address(0, n)
}

fn port(sources: Sources) -> PortConfig {
    PortConfig { sources, ..access(0) }
}

/// Returns ports 0 (any), 1 (learn), 2 (bound), the underlay 3, and tunnels to 2 and 3, the latter
/// foreign.
fn punt_config() -> SwitchConfig {
    let ports = vec![port(Sources::Any), port(Sources::Learn), port(Sources::Bound), underlay(1)];
    let mut config = with_tunnels(config(ports), 3, &[2, 3]);
    config.tunnels[1].foreign = true;
    let ips = [Some(IP.into()), None, None, None];
    config.control.bindings = vec![Binding { port: PortId(2), mac: mac(2), ips }];
    config
}

fn world() -> World {
    let mut world = World::new(&punt_config(), 1);
    world.attach(true);
    for n in 0..3 {
        world.at_port(mac(n), usize::from(n));
    }
    world.at_tunnel(mac(10), 0);
    world.log();
    world.punts();
    world
}

/// Receives a frame of any bytes at an access port.
fn give(world: &mut World, port: u16, bytes: Vec<u8>) {
    let input = world.switch.input(PortId(port), 0);
    let dst = Mac(bytes[..6].try_into().unwrap());
    let id = world.next_id();
    let info =
        Info { id, from: input.0, port, vnet: 0, dst, priority: Priority::ZERO, valid: true };
    let buf: TestBuf = world.buf(input, info, bytes);
    world.receive(input, vec![buf]);
    world.copy_to_shared(input, usize::MAX);
}

fn give_plain(world: &mut World, port: u16, src: Mac, dst: Mac) {
    give(world, port, Tenant::new(dst, src, 0, 60).bytes());
}

/// Receives a frame of network 0 out of a tunnel.
fn give_tunnel(world: &mut World, tunnel: u16, inner: &[u8]) {
    let input = world.switch.input(PortId(3), 0);
    let (dst, remote) = (underlay_mac(1), vtep(2 + u8::try_from(tunnel).unwrap()));
    let outer = Outer { dst, remote, local: vtep(1), vni: 100, dscp: 0, ecn: 0, pcp: None };
    let info = Info {
        id: world.next_id(),
        from: TUNNELS + tunnel * 8,
        port: 3,
        vnet: 0,
        dst: Mac(inner[..6].try_into().unwrap()),
        priority: Priority::ZERO,
        valid: true,
    };
    let buf = world.buf(input, info, in_vxlan(&outer, inner));
    world.receive(input, vec![buf]);
    world.copy_to_shared(input, usize::MAX);
}

/// Returns the number of frames that leave each port.
fn sent(world: &mut World) -> [u32; 4] {
    let sent = [0, 1, 2, 3].map(|port| world.transmit(PortId(port), || true));
    world.reclaim_all();
    world.check();
    sent
}

fn dropped(world: &World, port: u16, reason: DropReason) -> u64 {
    let input = world.switch.input(PortId(port), 0);
    Priority::all().map(|p| world.switch.dropped(input, p, reason).frames).sum()
}

fn causes(world: &mut World) -> Vec<(PuntCause, Destination)> {
    world.punts().into_iter().map(|(cause, from, _)| (cause, from)).collect()
}

fn at(port: u16) -> Destination {
    Destination::Port(PortId(port))
}

fn consumed(world: &World) -> u64 {
    world.switch.audit().total(|row| row.frames.consumed)
}

#[test]
fn arp_and_nd_consumed_with_control_otherwise_flooded() {
    let ip6 = "fd00::1".parse().unwrap();
    let group6 = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
    let question = arp(Mac::BROADCAST, mac(0), IP.into());
    for (bytes, cause) in [
        (question.clone(), PuntCause::Arp),
        (tagged(&question, EtherType::VLAN), PuntCause::Arp),
        (neighbor(group6, mac(0), ip6, ip6), PuntCause::Nd),
    ] {
        let mut world = world();
        give(&mut world, 0, bytes.clone());
        assert_eq!(sent(&mut world), [0; 4], "it ended");
        assert_eq!(consumed(&world), 1);
        let punts = world.punts();
        assert_eq!(punts, [(cause, at(0), bytes[..bytes.len().min(128)].to_vec())]);
        world.attach(false);
        give(&mut world, 0, bytes.clone());
        assert_eq!(sent(&mut world), [0, 1, 1, 2], "it is flooded");
        assert_eq!((consumed(&world), world.punts().len()), (1, 0));
    }
}

/// Returns an ICMPv6 message of this type to all nodes.
fn message(kind: u8, size: usize) -> Vec<u8> {
    let group = Mac([0x33, 0x33, 0, 0, 0, 1]);
    let mut bytes = neighbor(group, mac(0), "fd00::1".parse().unwrap(), "fd00::1".parse().unwrap());
    bytes[14 + 40] = kind;
    bytes.resize(bytes.len().max(size), 0);
    bytes
}

/// Frames that control does not decide about, and frames that it would not see whole.
#[test]
fn router_discovery_redirects_truncated_frames_forwarded_and_snooped() {
    let padded = |size| {
        let mut bytes = arp(Mac::BROADCAST, mac(0), IP.into());
        bytes.resize(size, 0);
        bytes
    };
    let table = [
        (message(133, 0), PuntCause::Snooped),
        (message(134, 0), PuntCause::Snooped),
        (message(137, 0), PuntCause::Snooped),
        (message(135, 128), PuntCause::Nd),
        (message(135, 129), PuntCause::Snooped),
        (message(136, 129), PuntCause::Snooped),
        (padded(128), PuntCause::Arp),
        (padded(129), PuntCause::Snooped),
    ];
    for (bytes, cause) in table {
        let mut world = world();
        give(&mut world, 0, bytes.clone());
        assert_eq!(causes(&mut world), [(cause, at(0))]);
        let gone_on = if cause.is_taken() { [0; 4] } else { [0, 1, 1, 2] };
        assert_eq!(sent(&mut world), gone_on, "{cause:?}, {} bytes", bytes.len());
        assert_eq!(consumed(&world), u64::from(cause.is_taken()));
    }
}

/// Floods a frame as control does.
fn flood(world: &mut World, from: Destination, bytes: Vec<u8>) -> bool {
    let dst = Mac(bytes[..6].try_into().unwrap());
    let priority = Priority::new(7).unwrap();
    let info =
        Info { id: world.next_id(), from: CONTROL, port: 99, vnet: 0, dst, priority, valid: true };
    let buf = world.buf(world.switch.pool_input(), info, bytes).into_pool();
    match world.switch.flood(VnetId(0), from, buf) {
        Ok(()) => world.pooled += 1,
        Err(buf) => {
            buf.hand_back();
            return false;
        }
    }
    world.check();
    true
}

#[test]
fn control_flood_of_punted_frame_reaches_other_members() {
    let mut world = world();
    let question = arp(Mac::BROADCAST, mac(0), IP.into());
    let (port, tunnel) = (Destination::Port(PortId(0)), Destination::Tunnel(TunnelId(0)));
    give(&mut world, 0, question.clone());
    assert_eq!((sent(&mut world), causes(&mut world).len()), ([0; 4], 1));
    assert!(flood(&mut world, port, question.clone()));
    assert_eq!(sent(&mut world), [0, 1, 1, 2]);
    assert!(causes(&mut world).is_empty(), "it is not shown again");
    let audit = world.switch.audit();
    let of_port = |row: &sluice_switch::AuditRow| row.input == InputId(0);
    let row = audit.rows.iter().find(|row| of_port(row) && row.priority.get() == 7).unwrap();
    assert_eq!((row.frames.injected, row.frames.copied, row.frames.delivered), (1, 3, 4));
    // A frame from the underlay never goes back to it.
    assert!(flood(&mut world, tunnel, question.clone()));
    assert_eq!(sent(&mut world), [1, 1, 1, 0]);
    assert!(!flood(&mut world, Destination::Port(PortId(9)), question.clone()));
    assert!(!flood(&mut world, Destination::Tunnel(TunnelId(9)), question));
}

#[test]
fn control_flood_without_room_or_receivers_is_counted() {
    let mut config = punt_config();
    config.pool.replicated_frames = 2;
    let mut world = World::new(&config, 1);
    let question = arp(Mac::BROADCAST, mac(0), IP.into());
    let port = Destination::Port(PortId(0));
    let took = [(); 5].map(|()| flood(&mut world, port, question.clone()));
    assert_eq!(took, [true, true, false, false, false]);
    assert_eq!(dropped(&world, 0, DropReason::PuntLimit), 3);
    assert_eq!(sent(&mut world), [0, 2, 2, 4]);
    assert!(flood(&mut world, port, question.clone()), "there is room again");
    sent(&mut world);
    // The network has no other member.
    let mut world = World::new(&config_of_one(), 1);
    assert!(flood(&mut world, port, question));
    world.reclaim_all();
    world.check();
    assert_eq!(dropped(&world, 0, DropReason::NoReceiver), 1);
}

fn config_of_one() -> SwitchConfig {
    config(vec![port(Sources::Any)])
}

#[test]
fn control_refused_frame_is_counted_audit_closes() {
    let mut world = world();
    give(&mut world, 0, arp(Mac::BROADCAST, mac(0), IP.into()));
    world.punts();
    let refuse = |port| {
        let reason = DropReason::RefusedSource;
        Command::Refuse { port, reason, frames: 1, bytes: 60 }
    };
    world.command(refuse(PortId(0)));
    assert_eq!(dropped(&world, 0, DropReason::RefusedSource), 1);
    world.check();
    let no_port = Err(CommandError::NoSuchPort(PortId(9)));
    assert_eq!(world.switch.command(world.now, refuse(PortId(9))), no_port);
}

#[test]
fn unread_punts_end_as_stopped_after_detach() {
    for detaches in [false, true] {
        let mut world = world();
        for port in [0, 1, 1] {
            give(&mut world, port, arp(Mac::BROADCAST, mac(0), FREE.into()));
        }
        // Its punt is not read, and the frame is forwarded.
        give(&mut world, 1, message(134, 0));
        sent(&mut world);
        let ended = |world: &World, port| dropped(world, port, DropReason::Stopped);
        if detaches {
            world.unplug(PortId(1));
            assert_eq!((ended(&world, 0), ended(&world, 1)), (0, 2));
        } else {
            world.attach(false);
            assert_eq!((ended(&world, 0), ended(&world, 1)), (1, 2));
        }
        world.check();
    }
}

#[test]
fn punted_arp_nd_charges_port_broadcast_budget_once() {
    let mut config = punt_config();
    config.isolation = Some(IsolationConfig {
        broadcasts_per_second: 100,
        ..IsolationConfig::new(Limit { frames: 64, bytes: ByteCount(1 << 20) })
    });
    config.control.punts = 16;
    let mut world = World::new(&config, 1);
    world.attach(true);
    world.now = Nanos::from_millis(1_000);
    // Ten and one may come at once: four are taken, the others flooded. Multicast that control
    // takes is charged as well.
    for n in 0..14 {
        let group = Mac([0x33, 0x33, 0xff, 0, 0, 1]);
        let ip = "fd00::1".parse().unwrap();
        let bytes = match n % 2 {
            0 => arp(Mac::BROADCAST, mac(0), IP.into()),
            _ => neighbor(group, mac(0), ip, ip),
        };
        give(&mut world, 0, bytes);
    }
    assert_eq!(dropped(&world, 0, DropReason::StormLimit), 3);
    assert_eq!((consumed(&world), sent(&mut world)), (4, [0, 7, 7, 14]));
    // A frame that is flooded for control was charged before, and another port has a budget of its
    // own.
    let question = arp(Mac::BROADCAST, mac(0), IP.into());
    assert!(flood(&mut world, Destination::Port(PortId(0)), question.clone()));
    give(&mut world, 1, question);
    let of = |port| dropped(&world, port, DropReason::StormLimit);
    assert_eq!((of(0), of(1)), (3, 0));
}

#[test]
fn a_flood_makes_no_decap_flow() {
    for attached in [true, false] {
        let mut world = world();
        world.attach(attached);
        give_tunnel(&mut world, 0, &arp(Mac::BROADCAST, mac(10), IP.into()));
        world.notices();
        assert_eq!((world.flows.len(), world.switch.decap_flows().count()), (0, 0));
        assert_eq!(world.switch.tunnel_counters(TunnelId(0)).received.frames, 1, "it counts");
        assert_eq!(sent(&mut world), [1, 1, 1, 0]);
        give_tunnel(&mut world, 0, &Tenant::new(mac(0), mac(10), 0, 60).bytes());
        assert_eq!(world.switch.decap_flows().count(), 1);
        assert_eq!(sent(&mut world), [1, 0, 0, 0]);
    }
}

#[test]
fn unicast_arp_and_plain_broadcasts_are_forwarded() {
    let mut world = world();
    let answer = arp(mac(1), mac(0), IP.into());
    give(&mut world, 0, answer);
    assert_eq!(sent(&mut world), [0, 1, 0, 0]);
    assert_eq!(causes(&mut world), [(PuntCause::Snooped, at(0))]);
    give_plain(&mut world, 0, mac(0), Mac::BROADCAST);
    assert_eq!(sent(&mut world), [0, 1, 1, 2]);
    assert_eq!((causes(&mut world).len(), consumed(&world)), (0, 0));
}

#[test]
fn port_without_punt_places_floods_others_keep_theirs() {
    let mut config = punt_config();
    config.control.punts = 8;
    let mut world = World::new(&config, 1);
    world.attach(true);
    world.punts();
    for _ in 0..5 {
        give(&mut world, 0, arp(Mac::BROADCAST, mac(0), FREE.into()));
    }
    assert_eq!(sent(&mut world), [0, 3, 3, 6], "two places are its quarter");
    give(&mut world, 1, arp(Mac::BROADCAST, mac(1), FREE.into()));
    assert_eq!(sent(&mut world), [0; 4], "another port has its own");
    let counters = |port, cause| world.switch.punt_counters(PortId(port), cause);
    let of_port = PuntCounters { admitted: 2, suppressed: 3 };
    assert_eq!(counters(0, PuntCause::Arp), of_port);
    assert_eq!(counters(0, PuntCause::Nd), PuntCounters::default());
    // A miss finds its place whatever punts wait.
    give_plain(&mut world, 0, mac(0), mac(77));
    assert_eq!(sent(&mut world), [0; 4]);
    assert_eq!((world.punts().len(), &world.misses[..]), (3, &[(VnetId(0), mac(77))][..]));
    give(&mut world, 0, arp(Mac::BROADCAST, mac(0), FREE.into()));
    assert_eq!((sent(&mut world), consumed(&world)), ([0; 4], 4));
    world.command(Command::Reject { vnet: VnetId(0), mac: mac(77) });
    world.check();
}

#[test]
fn learning_port_reports_new_and_moved_sources_undelayed() {
    let mut world = world();
    let events = |world: &mut World, src| {
        give_plain(world, 1, src, mac(0));
        assert_eq!(sent(world), [1, 0, 0, 0], "it goes on as ever");
        causes(world)
    };
    assert_eq!(events(&mut world, mac(1)), [], "the chip says that it is here");
    assert_eq!(events(&mut world, mac(5)), [(PuntCause::NewSource, at(1))]);
    world.at_port(mac(5), 1);
    assert_eq!(events(&mut world, mac(5)), []);
    // The machine moves away and comes back: the port's cached source is cleared.
    world.at_tunnel(mac(5), 0);
    assert_eq!(events(&mut world, mac(5)), [(PuntCause::Moved, at(1))]);
    world.at_port(mac(5), 1);
    assert_eq!(events(&mut world, mac(5)), []);
    world.command(Command::Remove { vnet: VnetId(0), mac: mac(5) });
    assert_eq!(events(&mut world, mac(5)), [(PuntCause::NewSource, at(1))]);
    // ARP is punted as such, and its source is seen all the same.
    give(&mut world, 1, arp(mac(0), mac(6), FREE.into()));
    assert_eq!(causes(&mut world), [(PuntCause::Snooped, at(1))]);
    sent(&mut world);
    world.attach(false);
    assert_eq!(events(&mut world, mac(7)), [], "nobody reads it");
    // A port of any source does not check.
    world.attach(true);
    give_plain(&mut world, 0, mac(8), mac(1));
    assert_eq!(causes(&mut world), []);
}

#[test]
fn an_address_that_was_evicted_is_new_again() {
    let mut config = punt_config();
    config.fdb.macs = 2;
    let mut world = World::new(&config, 1);
    world.attach(true);
    world.at_port(mac(5), 1);
    give_plain(&mut world, 1, mac(5), mac(5));
    for n in 20..30 {
        world.at_port(mac(n), 0);
    }
    world.punts();
    give_plain(&mut world, 1, mac(5), mac(29));
    assert_eq!(causes(&mut world), [(PuntCause::NewSource, at(1))]);
    assert_eq!(sent(&mut world), [1, 0, 0, 0]);
}

#[test]
fn bound_port_accepts_frames_of_its_guests_only() {
    // With control and without: bindings do not depend on it.
    for attached in [true, false] {
        let mut world = world();
        world.attach(attached);
        let stranger = mac(3);
        let pass = |world: &mut World, bytes: Vec<u8>| {
            give(world, 2, bytes);
            sent(world) == [1, 0, 0, 0]
        };
        let plain = |src| Tenant::new(mac(0), src, 0, 60).bytes();
        for _ in 0..2 {
            assert!(pass(&mut world, plain(mac(2))));
            assert!(!pass(&mut world, plain(stranger)));
        }
        let mut other_ip = plain(mac(2));
        other_ip[29] = 77;
        assert!(!pass(&mut world, other_ip.clone()));
        assert!(pass(&mut world, arp(mac(0), mac(2), IP.into())));
        assert!(!pass(&mut world, arp(mac(0), mac(2), [192, 168, 0, 77].into())));
        let (port, ips) = (PortId(2), [None; 4]);
        world.switch.bind(port, mac(2), ips).unwrap();
        assert!(pass(&mut world, other_ip.clone()), "any address now");
        world.switch.bind(port, stranger, ips).unwrap();
        world.bound.insert((port, stranger));
        assert!(pass(&mut world, plain(stranger)));
        world.command(Command::Unbind { port, mac: mac(2), ip: None });
        world.bound.remove(&(port, mac(2)));
        assert!(!pass(&mut world, plain(mac(2))));
        assert!(pass(&mut world, plain(stranger)));
        let counts = [DropReason::SpoofedMac, DropReason::SpoofedIp].map(|r| dropped(&world, 2, r));
        assert_eq!(counts, [3, 2]);
        let no_port = Err(CommandError::NoSuchPort(PortId(9)));
        assert_eq!(world.switch.bind(PortId(9), stranger, ips), no_port);
        let unbind = Command::Unbind { port: PortId(9), mac: stranger, ip: None };
        assert_eq!(world.switch.command(world.now, unbind), no_port);
    }
}

#[test]
fn bound_port_batch_keeps_order_drops_spoofed_frames() {
    let mut world = world();
    let input = world.switch.input(PortId(2), 0);
    let mut bufs = Vec::new();
    for src in [2, 2, 3, 2, 4, 2] {
        bufs.push(world.tenant(2, &Tenant::new(mac(0), mac(src), 0, 60)));
    }
    world.receive(input, bufs);
    assert_eq!(sent(&mut world), [4, 0, 0, 0]);
    assert_eq!(dropped(&world, 2, DropReason::SpoofedMac), 2);
}

#[test]
fn foreign_tunnel_sources_are_learned_member_ones_ignored() {
    let mut world = world();
    let from = Destination::Tunnel(TunnelId(1));
    let plain = |src| Tenant::new(mac(0), src, 0, 60).bytes();
    let question = arp(Mac::BROADCAST, mac(20), IP.into());
    for (tunnel, is_reported) in [(0, false), (1, true)] {
        let events = |cause| if is_reported { vec![(cause, from)] } else { vec![] };
        for _ in 0..2 {
            give_tunnel(&mut world, tunnel, &plain(mac(20)));
            assert_eq!(sent(&mut world), [1, 0, 0, 0]);
            assert_eq!(causes(&mut world), events(PuntCause::NewSource));
            give_tunnel(&mut world, tunnel, &plain(mac(1)));
            assert_eq!(causes(&mut world), events(PuntCause::Moved));
            assert_eq!(sent(&mut world), [1, 0, 0, 0]);
            give_tunnel(&mut world, tunnel, &question);
            assert_eq!(sent(&mut world), [1, 1, 1, 0], "a copy only");
            assert_eq!(causes(&mut world), events(PuntCause::Snooped));
        }
    }
    world.at_tunnel(mac(20), 1);
    give_tunnel(&mut world, 1, &plain(mac(20)));
    assert_eq!(causes(&mut world), []);
    world.attach(false);
    give_tunnel(&mut world, 1, &plain(mac(21)));
    assert_eq!(sent(&mut world), [2, 0, 0, 0]);
}

#[test]
fn decap_flow_reported_once_counted_recreated_after_forget() {
    let mut world = world();
    let frame = Tenant::new(mac(0), mac(10), 0, 60).bytes();
    let (vnet, tunnel) = (VnetId(0), TunnelId(0));
    for round in 1..=3 {
        assert_eq!(world.switch.decap_flows().count(), 0);
        for _ in 0..5 {
            give_tunnel(&mut world, 0, &frame);
        }
        world.notices();
        assert_eq!(world.flows, BTreeSet::from([(vnet, tunnel)]));
        let [flow] = world.switch.decap_flows().collect::<Vec<_>>()[..] else { panic!() };
        let DecapFlow { received, .. } = flow;
        assert_eq!((flow.vnet, flow.tunnel), (vnet, tunnel));
        assert_eq!((received.frames, received.bytes), (5, 5 * 110));
        world.command(Command::ForgetDecap { vnet, tunnel });
        world.flows.clear();
        let of_tunnel = world.switch.tunnel_counters(tunnel).received;
        assert_eq!((of_tunnel.frames, of_tunnel.bytes), (round * 5, round * 550));
    }
    assert_eq!(sent(&mut world), [15, 0, 0, 0]);
    let mut forget = |vnet, tunnel| {
        world.switch.command(
            world.now,
            Command::ForgetDecap { vnet: VnetId(vnet), tunnel: TunnelId(tunnel) },
        )
    };
    assert_eq!(forget(7, 0), Err(CommandError::NoSuchVnet(VnetId(7))));
    assert_eq!(forget(0, 7), Err(CommandError::NoSuchTunnel(TunnelId(7))));
}

#[test]
fn unreportable_decap_flow_not_created_frames_still_delivered() {
    let mut config = punt_config();
    config.control.punts = 1;
    let mut world = World::new(&config, 1);
    world.attach(true);
    world.at_port(mac(0), 0);
    world.at_tunnel(mac(20), 1);
    let frame = |src| Tenant::new(mac(0), src, 0, 60).bytes();
    for _ in 0..3 {
        give_tunnel(&mut world, 0, &frame(mac(10)));
        give_tunnel(&mut world, 1, &frame(mac(20)));
    }
    assert_eq!(world.switch.decap_flows().count(), 1, "one place");
    world.notices();
    give_tunnel(&mut world, 1, &frame(mac(20)));
    world.notices();
    assert_eq!(world.flows.len(), 2);
    assert_eq!(world.switch.tunnel_counters(TunnelId(1)).received.frames, 4);
    assert_eq!(sent(&mut world), [7, 0, 0, 0]);
}

#[test]
fn control_sends_through_one_tunnel_whatever_the_address() {
    let mut world = world();
    let input = world.switch.control_input();
    let bytes = arp(Mac::BROADCAST, mac(0), IP.into());
    let mut inject = |vnet, tunnel| {
        let info = Info {
            id: world.next_id(),
            from: CONTROL,
            port: u16::MAX,
            vnet: 0,
            dst: Mac::BROADCAST,
            priority: Priority::new(7).unwrap(),
            valid: true,
        };
        let buf = world.buf(input, info, bytes.clone());
        let to = Target::Tunnel(VnetId(vnet), TunnelId(tunnel));
        world.switch.inject(world.now, buf, to).map_err(TestBuf::hand_back).is_ok()
    };
    assert!(inject(0, 1));
    assert!(!inject(1, 1) && !inject(0, 2), "no such network, no such tunnel");
    assert_eq!(sent(&mut world), [0, 0, 0, 1]);
    let frame = world.log().pop().unwrap();
    assert_eq!((frame.tunnel, frame.size), (Some(1), 110));
    assert_eq!(frame.bytes[50..], bytes);
    assert_eq!(frame.bytes[30..34], vtep(3).octets());
}

#[test]
fn control_inject_refused_when_full_dropped_when_oversize() {
    let mut world = world();
    let input = world.switch.control_input();
    let inject = |world: &mut World, size: u32, to| {
        let info = Info {
            id: world.next_id(),
            from: CONTROL,
            port: u16::MAX,
            vnet: 0,
            dst: mac(1),
            priority: Priority::new(7).unwrap(),
            valid: true,
        };
        let bytes = Tenant::new(mac(1), mac(0), 0, size).bytes();
        let buf = world.buf(input, info, bytes);
        world.switch.inject(world.now, buf, to).map_err(TestBuf::hand_back).is_ok()
    };
    for (size, fits) in [(60, 1), (900, 1), (u32::from(MTU) + 14, 1), (u32::from(MTU) + 15, 0)] {
        for (to, port) in
            [(Target::Port(PortId(1)), 1), (Target::Tunnel(VnetId(0), TunnelId(0)), 3)]
        {
            assert!(inject(&mut world, size, to));
            assert_eq!(sent(&mut world)[port], fits, "{size} to {to:?}");
        }
    }
    let control = world.switch.control_input();
    let seven = Priority::new(7).unwrap();
    assert_eq!(world.switch.dropped(control, seven, DropReason::Oversize).frames, 2);
    // No driver takes a frame: so many, and no more.
    for to in [Target::Port(PortId(1)), Target::Tunnel(VnetId(0), TunnelId(0))] {
        let taken = (0..200).filter(|_| inject(&mut world, 60, to)).count();
        assert_eq!(taken, 64);
        world.check();
        assert_eq!(sent(&mut world).iter().sum::<u32>(), 64);
    }
    // A port that goes away takes nothing.
    world.unplug(PortId(1));
    assert!(inject(&mut world, 60, Target::Port(PortId(1))));
    assert_eq!(world.switch.dropped(control, seven, DropReason::Stopped).frames, 1);
    world.check();
}

#[test]
fn flows_have_a_limit_of_their_own() {
    let mut config = punt_config();
    (config.fdb.macs, config.fdb.flows) = (8, 2);
    let mut world = World::new(&config, 1);
    for n in 0..4 {
        world.at_port(mac(n), 0);
    }
    for n in 10..20 {
        world.at_tunnel(mac(n), 0);
    }
    let state = world.switch.fdb_state();
    assert_eq!((state.macs, state.macs_max), (6, 8));
    assert_eq!((state.flows, state.flows_max), (2, 2));
    assert_eq!((state.macs_evicted, state.flows_evicted), (0, 8));
    let local = world.switch.macs().filter(|(_, mac, _)| mac.0[5] < 4).count();
    assert_eq!(local, 4);
}

#[test]
fn control_learns_who_is_idle() {
    let mut world = world();
    let round = |world: &mut World| {
        let mut reported = Vec::new();
        while !world.switch.used_since(7, |_, mac, used| reported.push((mac, used))) {}
        reported.sort_by_key(|(mac, _)| *mac);
        reported
    };
    round(&mut world);
    let both = [
        (mac(0), Used { as_destination: true, as_source: false }),
        (mac(1), Used { as_destination: false, as_source: true }),
    ];
    // The cached source does not hide a new one.
    for _ in 0..3 {
        for _ in 0..3 {
            give_plain(&mut world, 1, mac(1), mac(0));
        }
        assert_eq!(round(&mut world), both);
        assert_eq!(round(&mut world), []);
    }
}

/// A machine at an unbound port cannot claim, to one machine or to all, an address that another
/// port is bound to.
#[test]
fn an_unbound_port_cannot_claim_a_bound_address() {
    let other = [192, 168, 0, 77];
    let (ip6, other6) = ("fd00::1".parse().unwrap(), "fd00::77".parse().unwrap());
    for attached in [true, false] {
        let mut world = world();
        world.attach(attached);
        let (port, ips) = (PortId(2), [Some(IP.into()), Some(IP_V6.into()), None, None]);
        world.switch.bind(port, mac(2), ips).unwrap();
        let claims = [
            arp(mac(0), mac(1), IP.into()),
            tagged(&arp(mac(0), mac(1), IP.into()), EtherType::VLAN),
            neighbor(mac(0), mac(1), ip6, other6),
            neighbor(mac(0), mac(1), other6, ip6),
        ];
        for (nth, claim) in (1..).zip(&claims) {
            give(&mut world, 1, claim.clone());
            assert_eq!(sent(&mut world), [0; 4], "claim {nth}");
            assert_eq!(dropped(&world, 1, DropReason::SpoofedIp), nth);
            assert_eq!(causes(&mut world), [], "nobody is told of it");
        }
        // Its own addresses, and frames without a claim, pass.
        for fine in [
            arp(mac(0), mac(1), other.into()),
            neighbor(mac(0), mac(1), other6, other6),
            Tenant::new(mac(0), mac(1), 0, 60).bytes(),
        ] {
            give(&mut world, 1, fine);
            assert_eq!(sent(&mut world), [1, 0, 0, 0]);
        }
        // The machine that is bound may.
        give(&mut world, 2, arp(mac(0), mac(2), IP.into()));
        assert_eq!(sent(&mut world), [1, 0, 0, 0]);
        world.command(Command::Unbind { port, mac: mac(2), ip: None });
        world.bound.remove(&(port, mac(2)));
        give(&mut world, 1, claims[0].clone());
        assert_eq!(sent(&mut world), [1, 0, 0, 0], "nobody is bound to it any more");
        world.check();
    }
}

/// Returns an IPv4 packet from an address.
fn packet(dst: Mac, src: Mac, ip: Ipv4Addr) -> Vec<u8> {
    let mut bytes = Tenant::new(dst, src, 0, 60).bytes();
    bytes[26..30].copy_from_slice(&ip.octets());
    bytes
}

/// Port 2 is bound, and allowed a single address and a prefix.
#[test]
fn bound_port_may_claim_allowed_addresses_only() {
    let prefix = |ip: Ipv4Addr, length| IpPrefix::new(ip.into(), length).unwrap();
    for attached in [true, false] {
        let mut config = punt_config();
        let vip = Ipv4Addr::new(192, 168, 0, 40);
        let other = Ipv4Addr::new(192, 168, 0, 41);
        let routed = Ipv4Addr::new(10, 1, 2, 3);
        config.control.allowed = vec![(PortId(2), prefix(vip, 32))];
        let mut world = World::new(&config, 1);
        world.attach(attached);
        for n in 0..3 {
            world.at_port(mac(n), usize::from(n));
        }
        world.log();
        world.punts();
        for _ in 0..2 {
            give(&mut world, 2, arp(mac(0), mac(2), vip));
            assert_eq!(sent(&mut world), [1, 0, 0, 0]);
        }
        give(&mut world, 2, arp(mac(0), mac(2), other));
        give(&mut world, 2, packet(mac(0), mac(2), routed));
        assert_eq!(sent(&mut world), [0; 4]);
        assert_eq!(dropped(&world, 2, DropReason::SpoofedIp), 2);
        // More can be allowed while it runs.
        let more = prefix(Ipv4Addr::new(10, 1, 0, 0), 16);
        world.switch.allow(PortId(2), more).unwrap();
        give(&mut world, 2, packet(mac(0), mac(2), routed));
        assert_eq!(sent(&mut world), [1, 0, 0, 0]);
        // A port that is not allowed an address cannot claim it if another port is, as a single
        // one.
        give(&mut world, 1, arp(mac(0), mac(1), vip));
        assert_eq!((sent(&mut world), dropped(&world, 1, DropReason::SpoofedIp)), ([0; 4], 1));
        give(&mut world, 1, arp(mac(0), mac(1), routed));
        assert_eq!(sent(&mut world), [1, 0, 0, 0], "a prefix is no name");
        world.check();
    }
}

/// A machine that is bound by its MAC alone may have any address but another's.
#[test]
fn guest_bound_by_mac_cannot_claim_bound_address() {
    let mut config = punt_config();
    config.ports[0] = port(Sources::Bound);
    config.control.bindings.push(Binding { port: PortId(0), mac: mac(0), ips: [None; 4] });
    let mut world = World::new(&config, 1);
    for n in 0..3 {
        world.at_port(mac(n), usize::from(n));
    }
    give(&mut world, 0, arp(mac(1), mac(0), IP.into()));
    assert_eq!((sent(&mut world), dropped(&world, 0, DropReason::SpoofedIp)), ([0; 4], 1));
    give(&mut world, 0, arp(mac(1), mac(0), FREE.into()));
    assert_eq!(sent(&mut world), [0, 1, 0, 0]);
    world.check();
}
