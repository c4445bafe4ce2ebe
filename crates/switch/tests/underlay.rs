//! An underlay that changes while the switch runs: its device's address and MTU, the MTU of the
//! path to a far end, and answers to senders of frames that are too large then.

mod harness;

use harness::config::{access, config, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, in_vxlan};
use harness::ops::address;
use harness::world::World;
use harness::{Info, TestBuf};
use sluice_base::{DropReason, InputId, Mac, Nanos, PortId, Priority, TunnelId, VnetId};
use sluice_switch::{Command, CommandError, Destination, Egress, Notice, Switch, Taken, Target};
use sluice_wire::{checksum, ethernet, ipv4};

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);
const NEW: Mac = Mac([2, 9, 0, 0, 0, 9]);
const UNDERLAY: PortId = PortId(2);
/// Size of a tenant's frame that carries a layer-3 packet of 1500 bytes.
const FULL: u32 = 1_514;

/// Access ports 0 and 1 and the underlay 2 with tunnels to 2 and 3, which takes the frames of a
/// network of MTU 1500.
fn world() -> World {
    let mut config = with_tunnels(config(vec![access(0), access(0), underlay(1)]), 2, &[2, 3]);
    config.vnets[0].mtu = 1_500;
    for port in &mut config.ports {
        port.mtu = 1_600;
    }
    let mut world = World::new(&config, 1);
    world.at_port(address(0, 1), 1);
    world.at_tunnel(address(0, 2), 0);
    world.at_tunnel(address(0, 3), 1);
    world.log();
    world
}

/// Sends a frame of port 0 to the machine behind a tunnel. Returns true if it left.
fn sends(world: &mut World, machine: u8, size: u32) -> bool {
    let buf = world.tenant(0, &Tenant::new(address(0, machine), SRC, 0, size));
    world.receive(InputId(0), vec![buf]);
    let sent = world.transmit(UNDERLAY, || true);
    world.reclaim_all();
    world.check();
    sent == 1
}

/// Gives bytes to the underlay.
fn hears(world: &mut World, bytes: Vec<u8>) {
    let (id, dst, priority) = (world.next_id(), address(0, 1), Priority::ZERO);
    let info = Info { id, from: 0, port: 2, vnet: 0, dst, priority, valid: false };
    let buf: TestBuf = world.buf(InputId(2), info, bytes);
    world.receive(InputId(2), vec![buf]);
    world.reclaim_all();
    world.check();
}

fn notices(world: &mut World) -> Vec<Notice> {
    std::iter::from_fn(|| world.switch.notice()).collect()
}

fn ended(world: &World, input: u16, reason: DropReason) -> u64 {
    Priority::all().map(|p| world.switch.dropped(InputId(input), p, reason).frames).sum()
}

/// Returns "fragmentation needed" of a router about a frame through the tunnel to 2.
fn too_big(mtu: u16, vni: u32, remote: u8) -> Vec<u8> {
    let outer = Outer {
        dst: underlay_mac(1),
        remote: vtep(1),
        local: vtep(remote),
        vni,
        dscp: 0,
        ecn: 0,
        pcp: None,
    };
    let inner = Tenant::new(address(0, 2), SRC, 0, 200).bytes();
    let mut quoted = in_vxlan(&outer, &inner)[14..].to_vec();
    // Makes the quoted packet as large as it may be.
    quoted[2..4].copy_from_slice(&1_550_u16.to_be_bytes());
    quoted.truncate(60);
    let mut message = [&[3, 4, 0, 0, 0, 0], &mtu.to_be_bytes()[..], &quoted].concat();
    let sum = checksum::internet(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut out = vec![0; 34];
    let ethertype = sluice_wire::EtherType::IPV4;
    ethernet::Repr { dst: underlay_mac(1), src: SRC, ethertype }.emit(&mut out);
    let router = vtep(99);
    let payload_size = u16::try_from(message.len()).unwrap();
    let (dscp, ecn, ttl, ident, dont_fragment) = (0, 0, 64, 0, false);
    let (src, dst, protocol) = (router, vtep(1), 1);
    ipv4::Repr { src, dst, protocol, dscp, ecn, ttl, ident, dont_fragment, payload_size }
        .emit(&mut out[14..]);
    out.extend(message);
    out
}

#[test]
fn new_underlay_mac_used_for_send_and_receive() {
    let mut config = with_tunnels(config(vec![access(0), access(0), underlay(1)]), 2, &[2]);
    config.vnets[0].mtu = 1_400;
    let (now, port) = (Nanos(1_000), UNDERLAY);
    let mut switch: Switch<Vec<u8>> = Switch::new(&config, 1, now).unwrap();
    for (n, to) in [(1, Destination::Port(PortId(1))), (2, Destination::Tunnel(TunnelId(0)))] {
        switch.command(now, Command::Install { vnet: VnetId(0), mac: address(0, n), to }).unwrap();
    }
    switch.set_underlay(port, NEW, 1_600).unwrap();
    let mut sent = Vec::new();
    let mut pass = |switch: &mut Switch<Vec<u8>>, input: u16, bytes: Vec<u8>, out: PortId| {
        switch.receive_one(now, InputId(input), bytes);
        switch.transmit(now, out, &mut |egress: &Egress<'_, Vec<u8>>| {
            sent.push(egress.header.to_vec());
            Taken::All
        })
    };
    let tenant = |n| Tenant::new(address(0, n), SRC, 0, 100).bytes();
    assert_eq!(pass(&mut switch, 0, tenant(2), UNDERLAY), 1);
    let outer =
        |dst| Outer { dst, remote: vtep(2), local: vtep(1), vni: 100, dscp: 0, ecn: 0, pcp: None };
    let old = in_vxlan(&outer(underlay_mac(1)), &tenant(1));
    assert_eq!(pass(&mut switch, 2, old, PortId(1)), 0, "it is the old one's");
    assert_eq!(pass(&mut switch, 2, in_vxlan(&outer(NEW), &tenant(1)), PortId(1)), 1);
    assert_eq!(ethernet::Frame::new_checked(&sent[0]).unwrap().src(), NEW);
}

#[test]
fn underlay_address_of_another_port_is_refused() {
    let mut world = world();
    for port in [PortId(0), PortId(9)] {
        let refused = world.switch.set_underlay(port, NEW, 1_500);
        assert_eq!(refused, Err(CommandError::NoSuchPort(port)));
    }
}

#[test]
fn lowered_device_mtu_drops_oversize_and_notifies_sender() {
    let mut world = world();
    let (port, mac) = (UNDERLAY, underlay_mac(1));
    assert!(sends(&mut world, 2, FULL));
    assert_eq!(notices(&mut world), []);
    world.switch.set_underlay(port, mac, 1_400).unwrap();
    assert!(sends(&mut world, 2, 1_364));
    assert!(!sends(&mut world, 2, 1_365));
    assert_eq!(ended(&world, 0, DropReason::Oversize), 1);
    let events = notices(&mut world);
    let [Notice::TooBig { to: Target::Port(PortId(0)), mtu: 1_350, head }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(head.as_slice()[..6], address(0, 2).0);
    world.switch.set_underlay(port, mac, 1_600).unwrap();
    assert!(sends(&mut world, 2, FULL), "it has become wider again");
}

/// A tenant's own tag takes room from the payload of a tunnel.
#[test]
fn too_big_notice_of_tagged_frame_subtracts_tag() {
    let mut world = world();
    let tagged = |world: &mut World, size| {
        let mut frame = Tenant::new(address(0, 2), SRC, 0, size);
        frame.pcp = Some(0);
        let buf = world.tenant(0, &frame);
        world.receive(InputId(0), vec![buf]);
        let sent = world.transmit(UNDERLAY, || true);
        world.reclaim_all();
        world.check();
        (sent == 1, notices(world))
    };
    assert_eq!(tagged(&mut world, FULL), (true, vec![]));
    world.switch.set_underlay(UNDERLAY, underlay_mac(1), 1_400).unwrap();
    // 1,400 - 50 for the outer headers, 4 for the tag.
    assert_eq!(tagged(&mut world, 18 + 1_346), (true, vec![]));
    let (sent, events) = tagged(&mut world, 18 + 1_347);
    assert!(!sent);
    let [Notice::TooBig { to: Target::Port(PortId(0)), mtu: 1_346, .. }] = &events[..] else {
        panic!("{events:?}");
    };
}

/// Its sender is behind the tunnel, and so the answer goes to that address.
#[test]
fn oversize_decapsulated_frame_sends_too_big_to_sender() {
    let mut config = with_tunnels(config(vec![access(0), access(0), underlay(1)]), 2, &[2, 3]);
    config.vnets[0].mtu = 1_500;
    for (port, mtu) in config.ports.iter_mut().zip([1_600, 1_300, 1_600]) {
        port.mtu = mtu;
    }
    let mut switch: Switch<Vec<u8>> = Switch::new(&config, 1, Nanos(0)).unwrap();
    let now = Nanos(1_000);
    for (n, to) in [(1, Destination::Port(PortId(1))), (2, Destination::Tunnel(TunnelId(0)))] {
        switch.command(now, Command::Install { vnet: VnetId(0), mac: address(0, n), to }).unwrap();
    }
    let far = address(0, 2);
    let from_far = |size| {
        let (dst, remote, local) = (underlay_mac(1), vtep(2), vtep(1));
        let outer = Outer { dst, remote, local, vni: 100, dscp: 0, ecn: 0, pcp: None };
        in_vxlan(&outer, &Tenant::new(address(0, 1), far, 0, size).bytes())
    };
    for (size, fits) in [(1_314, true), (1_315, false)] {
        switch.receive_one(now, InputId(2), from_far(size));
        let taken = switch.transmit(now, PortId(1), &mut |_: &Egress<'_, Vec<u8>>| Taken::All);
        assert_eq!(taken == 1, fits, "{size}");
    }
    let events = std::iter::from_fn(|| switch.notice());
    let events: Vec<_> = events.filter(|event| matches!(event, Notice::TooBig { .. })).collect();
    let [Notice::TooBig { to, mtu: 1_300, head }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(*to, Target::Address(VnetId(0), far));
    // The answer gets there.
    let mut out = [0; sluice_wire::too_big::ANSWER_SIZE_MAX];
    let mut bytes = head.as_slice().to_vec();
    // Sets "don't fragment", as a tenant does that probes its path MTU.
    bytes[20] |= 0x40;
    let size = sluice_wire::too_big::answer(&bytes, 1_200, &mut out).unwrap();
    switch.inject(now, out[..size].to_vec(), *to).unwrap();
    let mut sent = 0;
    switch.transmit(now, UNDERLAY, &mut |egress: &Egress<'_, Vec<u8>>| {
        sent += usize::from(egress.tunnel == Some(TunnelId(0)));
        Taken::All
    });
    assert_eq!(sent, 1);
}

#[test]
fn path_mtu_applies_per_tunnel_for_ten_minutes() {
    let mut world = world();
    hears(&mut world, too_big(1_450, 100, 2));
    assert_eq!(ended(&world, 2, DropReason::NotForUs), 0);
    let learned = Notice::PathMtu { tunnel: TunnelId(0), mtu: Some(1_450) };
    assert_eq!(notices(&mut world), [learned]);
    assert_eq!(world.switch.tunnel_counters(TunnelId(0)).path_mtu, Some(1_450));
    assert!(sends(&mut world, 2, 1_414) && !sends(&mut world, 2, 1_415));
    assert!(sends(&mut world, 3, FULL), "another way");
    let events = notices(&mut world);
    assert!(matches!(events[..], [Notice::TooBig { mtu: 1_400, .. }]), "{events:?}");
    // The MTU is only lowered.
    hears(&mut world, too_big(1_500, 100, 2));
    assert!(!sends(&mut world, 2, 1_415));
    hears(&mut world, too_big(1_420, 100, 2));
    assert!(!sends(&mut world, 2, 1_385));
    notices(&mut world);
    let minute = Nanos::from_millis(60_000);
    for _ in 0..9 {
        world.now = world.now.after(minute);
        world.advance();
    }
    assert!(!sends(&mut world, 2, 1_385));
    world.now = world.now.after(minute);
    world.advance();
    let forgotten = Notice::PathMtu { tunnel: TunnelId(0), mtu: None };
    assert!(notices(&mut world).contains(&forgotten));
    assert!(sends(&mut world, 2, FULL));
}

#[test]
fn strangers_are_not_believed() {
    let mut world = world();
    const ICMP: usize = 14 + 20;
    let mut broken = too_big(1_400, 100, 2);
    broken[ICMP + 8 + 15] -= 1;
    // The quoted packet is of another host, and the checksum is right.
    let mut not_ours = broken.clone();
    let checksum = u16::from_be_bytes([not_ours[ICMP + 2], not_ours[ICMP + 3]]);
    not_ours[ICMP + 2..ICMP + 4].copy_from_slice(&(checksum + 1).to_be_bytes());
    for (what, bytes) in [
        ("a far end that is none", too_big(1_400, 100, 77)),
        ("a network that nobody has", too_big(1_400, 4_242, 2)),
        ("a wrong checksum", broken),
        ("a datagram of another host", not_ours),
        ("a way that is a byte less wide", too_big(1_549, 100, 2)),
    ] {
        let before = ended(&world, 2, DropReason::NotForUs);
        hears(&mut world, bytes);
        let wide = what.starts_with("a way");
        let more = ended(&world, 2, DropReason::NotForUs) - before;
        assert_eq!(more, u64::from(!wide), "{what}");
        assert!(sends(&mut world, 2, if wide { 1_513 } else { FULL }), "{what}");
    }
    assert!(!world.switch.learn_path_mtu(Nanos(1), vtep(77), 900), "no far end");
}

#[test]
fn too_big_notices_per_port_are_rate_limited() {
    let mut world = world();
    assert!(world.switch.learn_path_mtu(world.now, vtep(2), 1_000));
    notices(&mut world);
    let events = |world: &mut World, frames: usize| {
        let mut count = 0;
        for _ in 0..frames {
            assert!(!sends(world, 2, FULL));
            count += notices(world).len();
        }
        count
    };
    assert_eq!(events(&mut world, 100), 16);
    world.now = world.now.after(Nanos::from_millis(30));
    assert_eq!(events(&mut world, 100), 3);
    // Events that are not read are bounded.
    world.now = world.now.after(Nanos::from_millis(1_000));
    for _ in 0..100 {
        assert!(!sends(&mut world, 2, FULL));
    }
    assert_eq!(notices(&mut world).len(), 16);
    assert_eq!(ended(&world, 0, DropReason::Oversize), 300);
}
