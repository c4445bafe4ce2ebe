//! VXLAN encapsulation and decapsulation, byte by byte.

mod harness;

use std::collections::BTreeSet;

use harness::config::{access, config, next_hop, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, in_vxlan};
use harness::ops::address;
use harness::world::{CONTROL, Sent, TUNNELS, World};
use harness::{Info, TestBuf};
use sluice_base::{DropReason, InputId, Mac, PortId, Priority, TunnelId, VnetId, Vni};
use sluice_switch::{Command, CommandError, Destination, SwitchConfig, Target, VnetConfig};
use sluice_wire::{ecn, ethernet, ipv4, ipv6, udp, vxlan};

const SRC: Mac = Mac([2, 1, 0, 0, 0, 1]);

/// Returns a configuration of two access ports, an underlay port, and tunnels to 2 and 3.
fn tunnel_config() -> SwitchConfig {
    let ports = vec![access(0), access(0), underlay(1)];
    let mut config = with_tunnels(config(ports), 2, &[2, 3]);
    config.vnets[0].mtu = 1_500;
    config
}

fn world() -> World {
    let mut world = World::new(&tunnel_config(), 1);
    world.at_port(address(0, 1), 1);
    world.at_tunnel(address(0, 2), 0);
    world.log();
    world
}

fn outer() -> Outer {
    let (dst, remote) = (underlay_mac(1), vtep(2));
    Outer { dst, remote, local: vtep(1), vni: 100, dscp: 0, ecn: 0, pcp: None }
}

fn tenant() -> Tenant {
    Tenant::new(address(0, 1), SRC, 0, 100)
}

/// Gives bytes to the underlay port and returns the frame that leaves port 1.
fn through(world: &mut World, bytes: Vec<u8>) -> Option<Sent> {
    let info = Info {
        id: world.next_id(),
        from: TUNNELS,
        port: 2,
        vnet: 0,
        dst: address(0, 1),
        priority: Priority::ZERO,
        valid: false,
    };
    let buf: TestBuf = world.buf(InputId(2), info, bytes);
    world.receive(InputId(2), vec![buf]);
    world.transmit(PortId(1), || true);
    world.reclaim_all();
    world.check();
    let mut log = world.log();
    assert!(log.len() <= 1);
    log.pop()
}

fn dropped(world: &World, input: u16, reason: DropReason) -> u64 {
    Priority::all().map(|p| world.switch.dropped(InputId(input), p, reason).frames).sum()
}

#[test]
fn a_frame_gets_exactly_fifty_bytes() {
    let mut world = world();
    let mut inner = Tenant::new(address(0, 2), SRC, 26, 100);
    inner.ecn = ecn::ECT_1;
    let buf = world.tenant(0, &inner);
    world.receive(InputId(0), vec![buf]);
    assert_eq!(world.transmit(PortId(2), || true), 1);
    let sent = world.log().pop().unwrap();
    assert_eq!((sent.size, sent.tunnel), (150, Some(0)));
    let bytes = &sent.bytes;
    assert_eq!(bytes[50..], inner.bytes(), "the tenant's frame is not touched");
    let frame = ethernet::Frame::new_checked(bytes).unwrap();
    assert_eq!((frame.dst(), frame.src()), (next_hop(2), underlay_mac(1)));
    assert_eq!(frame.ethertype().0, 0x0800);
    let ip = ipv4::Packet::new_checked(frame.payload()).unwrap();
    assert!(ip.header_checksum_ok() && ip.dont_fragment() && !ip.is_fragment());
    // Priority 3 is class selector 3 in this configuration; ECN is copied (RFC 6040 section 4.1).
    assert_eq!((ip.version(), ip.header_size(), ip.dscp(), ip.ecn()), (4, 20, 24, ecn::ECT_1));
    assert_eq!((ip.src(), ip.dst(), ip.protocol(), ip.ttl()), (vtep(1), vtep(2), 17, 64));
    assert_eq!(ip.total_size(), 136);
    let datagram = udp::Packet::new_checked(ip.payload()).unwrap();
    assert_eq!((datagram.dst_port(), datagram.size(), datagram.checksum()), (4789, 116, 0));
    assert!(datagram.src_port() >= 49_152);
    // RFC 7348 section 5: flags 0x08, reserved zeros, VNI, a reserved zero.
    assert_eq!(bytes[42..50], [0x08, 0, 0, 0, 0, 0, 100, 0]);
    assert_eq!(vxlan::Header::new_checked(&bytes[42..]).unwrap().vni(), Vni::new(100).unwrap());
}

#[test]
fn outer_dscp_carries_priority_outer_ecn_copies_inner() {
    for dscp in 0..64 {
        for field in 0..4 {
            let mut world = world();
            let mut inner = Tenant::new(address(0, 2), SRC, dscp, 60);
            inner.ecn = field;
            let buf = world.tenant(0, &inner);
            world.receive(InputId(0), vec![buf]);
            world.transmit(PortId(2), || true);
            let sent = world.log().pop().unwrap();
            assert_eq!(sent.bytes[15], (dscp >> 3 << 3) << 2 | field);
        }
    }
}

#[test]
fn vxlan_source_port_is_stable_and_distinguishes_flows() {
    let mut world = world();
    let mut ports = BTreeSet::new();
    for flow in 0..256 {
        let mut of_flow = BTreeSet::new();
        for size in [60, 61, 900] {
            let mut inner = Tenant::new(address(0, 2), SRC, 0, size);
            inner.src_port = 1_000 + flow;
            let buf = world.tenant(0, &inner);
            world.receive(InputId(0), vec![buf]);
            world.transmit(PortId(2), || true);
            let bytes = world.log().pop().unwrap().bytes;
            of_flow.insert(u16::from_be_bytes([bytes[34], bytes[35]]));
            world.reclaim_all();
        }
        assert_eq!(of_flow.len(), 1, "one flow, several paths");
        ports.extend(of_flow);
    }
    assert!(ports.len() > 240, "{} source ports for 256 flows", ports.len());
}

#[test]
fn frame_over_network_or_underlay_mtu_is_dropped() {
    // A tenant's tag does not count in its own network, but it does in the outer packet.
    for (network, underlay, size, pcp, fits) in [
        (1_500, 1_550, 1_514, None, true),
        (1_500, 1_550, 1_515, None, false),
        (1_500, 1_550, 1_518, Some(0), false),
        (1_500, 1_554, 1_518, Some(0), true),
        (1_500, 1_554, 1_519, Some(0), false),
        (1_400, 9_000, 1_414, None, true),
        (1_400, 9_000, 1_415, None, false),
        (9_000, 9_050, 9_014, None, true),
        (65_485, 65_535, 65_499, None, true),
        (65_485, 65_535, 65_503, Some(0), false),
    ] {
        let mut config = tunnel_config();
        config.vnets[0].mtu = network;
        for port in &mut config.ports {
            port.mtu = underlay;
        }
        let mut world = World::new(&config, 1);
        world.at_tunnel(address(0, 2), 0);
        let mut inner = Tenant::new(address(0, 2), SRC, 0, size);
        inner.pcp = pcp;
        let buf = world.tenant(0, &inner);
        world.receive(InputId(0), vec![buf]);
        let sent = world.transmit(PortId(2), || true);
        assert_eq!(sent, u32::from(fits), "{size} over {network}, {underlay}");
        assert_eq!(dropped(&world, 0, DropReason::Oversize), u64::from(!fits));
        world.check();
    }
}

#[test]
fn decapsulated_frame_equals_original_inner_frame() {
    let mut world = world();
    let inner = tenant().bytes();
    for pcp in [None, Some(5)] {
        let sent = through(&mut world, in_vxlan(&Outer { pcp, ..outer() }, &inner)).unwrap();
        assert_eq!(sent.bytes, inner);
        // The outer frame gives the priority.
        assert_eq!(sent.priority.get(), pcp.unwrap_or(0));
    }
    assert_eq!(world.switch.tunnel_counters(TunnelId(0)).received.frames, 2);
}

/// Padding of the link, a frame check sequence that was left on, and bytes behind a UDP datagram
/// reach no tenant, on the fast path and on the slow path.
#[test]
fn what_is_behind_the_packet_is_cut_off() {
    let mut world = world();
    let inner = tenant().bytes();
    let good = in_vxlan(&outer(), &inner);
    for behind in [0, 1, 4, 60] {
        let sent = through(&mut world, [&good[..], &vec![0xa5; behind]].concat()).unwrap();
        assert_eq!(sent.bytes, inner, "{behind} bytes behind the packet");
    }
    let udp_size = u16::from_be_bytes([good[38], good[39]]);
    let mut shorter = good.clone();
    shorter[38..40].copy_from_slice(&(udp_size - 7).to_be_bytes());
    let sent = through(&mut world, shorter).unwrap();
    assert_eq!(sent.bytes, inner[..inner.len() - 7], "the datagram ends before the packet");
    // With an ECN mark that the inner header takes over, which takes another egress path.
    let marked = Outer { ecn: ecn::CE, ..outer() };
    let capable = Tenant { ecn: ecn::ECT_0, ..tenant() }.bytes();
    let sent = through(&mut world, [&in_vxlan(&marked, &capable)[..], &[9; 5]].concat()).unwrap();
    assert_eq!((sent.bytes.len(), sent.bytes[15] & 3), (capable.len(), ecn::CE));
    // The tunnel counts the bytes of its packets.
    let received = world.switch.tunnel_counters(TunnelId(0)).received;
    let bytes = 4 * good.len() + (good.len() - 7) + good.len();
    assert_eq!((received.frames, received.bytes), (6, bytes as u64));
}

#[test]
fn only_known_peers_networks_and_members_get_in() {
    let mut config = tunnel_config();
    // A second network, which only tunnel 1 has, and a third one without a number.
    config.vnets.push(VnetConfig { vni: Vni::new(200), mtu: 1_400, tunnels: vec![TunnelId(1)] });
    config.vnets.push(VnetConfig { vni: None, mtu: 1_400, tunnels: vec![] });
    config.ports.push(access(1));
    let mut world = World::new(&config, 1);
    world.at_port(address(0, 1), 1);
    world.at_port(address(1, 1), 3);
    world.log();
    let inner = tenant().bytes();
    for (outer, reason) in [
        (Outer { remote: vtep(9), ..outer() }, DropReason::UnknownVtep),
        (Outer { vni: 99, ..outer() }, DropReason::UnknownVni),
        (Outer { vni: 0, ..outer() }, DropReason::UnknownVni),
        // The network is here, but not at that peer.
        (Outer { vni: 200, ..outer() }, DropReason::UnknownVni),
        (Outer { local: vtep(5), ..outer() }, DropReason::NotForUs),
        (Outer { dst: underlay_mac(5), ..outer() }, DropReason::NotForUs),
    ] {
        let before = dropped(&world, 2, reason);
        assert_eq!(through(&mut world, in_vxlan(&outer, &inner)), None, "{outer:?}");
        assert_eq!(dropped(&world, 2, reason), before + 1, "{outer:?}");
    }
    assert!(through(&mut world, in_vxlan(&outer(), &inner)).is_some());
    // The same address in the other network is another station.
    let mut inner = tenant();
    inner.dst = address(1, 1);
    let from_three = Outer { remote: vtep(3), vni: 200, ..outer() };
    assert_eq!(through(&mut world, in_vxlan(&from_three, &inner.bytes())), None);
    assert_eq!(world.transmit(PortId(3), || true), 1);
}

#[test]
fn nothing_from_the_underlay_goes_back_to_it() {
    let mut config = tunnel_config();
    // Another underlay port, with a tunnel of its own.
    config.ports.push(underlay(7));
    config = with_tunnels_over(config, 3, 4);
    let mut world = World::new(&config, 1);
    for (n, tunnel) in [(2, 0), (3, 1), (4, 2)] {
        world.at_tunnel(address(0, n), tunnel);
    }
    for n in [2, 3, 4] {
        let mut inner = tenant();
        inner.dst = address(0, n);
        assert_eq!(through(&mut world, in_vxlan(&outer(), &inner.bytes())), None);
    }
    assert_eq!(dropped(&world, 2, DropReason::SplitHorizon), 3);
    // A broadcast from there reaches the local ports and no tunnel; a local one reaches both.
    for (port, copies) in [(2, [1, 1, 0, 0]), (0, [0, 1, 2, 1])] {
        let broadcast = Tenant::new(Mac::BROADCAST, SRC, 0, 60);
        let buf = match port {
            2 => world.tunnel_frame(2, 0, &broadcast),
            _ => world.tenant(0, &broadcast),
        };
        let input = world.switch.input(PortId(port), 0);
        world.receive(input, vec![buf]);
        world.copy_to_shared(input, 1);
        let sent = [0, 1, 2, 3].map(|port| world.transmit(PortId(port), || true));
        assert_eq!(sent, copies, "from port {port}");
        world.reclaim_all();
        world.check();
    }
}

fn with_tunnels_over(mut config: SwitchConfig, port: u16, remote: u8) -> SwitchConfig {
    let tunnels = config.vnets[0].tunnels.clone();
    config = with_tunnels(config, port, &[remote]);
    assert_eq!(config.vnets[0].tunnels.len(), tunnels.len() + 1);
    config
}

/// RFC 6040 section 4.2, figure 4: rows are the inner field, columns the outer one, both in the
/// order Not-ECT, ECT(0), ECT(1), CE.
const FIELDS: [u8; 4] = [0b00, 0b10, 0b01, 0b11];
const FIGURE_4: [[Option<u8>; 4]; 4] = [
    [Some(0b00), Some(0b00), Some(0b00), None],
    [Some(0b10), Some(0b10), Some(0b01), Some(0b11)],
    [Some(0b01), Some(0b01), Some(0b01), Some(0b11)],
    [Some(0b11), Some(0b11), Some(0b11), Some(0b11)],
];

#[test]
fn ecn_leaves_a_tunnel_as_rfc_6040_says() {
    for (row, inner_field) in FIELDS.into_iter().enumerate() {
        for (column, outer_field) in FIELDS.into_iter().enumerate() {
            for pcp in [None, Some(2)] {
                let mut world = world();
                let mut inner = tenant();
                (inner.ecn, inner.pcp) = (inner_field, pcp);
                let mut bytes = inner.bytes();
                let sent =
                    through(&mut world, in_vxlan(&Outer { ecn: outer_field, ..outer() }, &bytes));
                let Some(field) = FIGURE_4[row][column] else {
                    assert_eq!(sent, None);
                    assert_eq!(dropped(&world, 2, DropReason::NotEcnCapable), 1);
                    continue;
                };
                let at = if pcp.is_some() { 18 } else { 14 };
                ipv4::set_ecn(&mut bytes[at..], field);
                let sent = sent.unwrap();
                assert_eq!(sent.bytes, bytes, "inner {inner_field:#b}, outer {outer_field:#b}");
                let ip = ipv4::Packet::new_checked(&sent.bytes[at..]).unwrap();
                assert!(ip.header_checksum_ok());
                assert_eq!(ip.ecn(), field);
            }
        }
    }
}

#[test]
fn ecn_decap_updates_ipv6_and_leaves_non_ip() {
    for (row, inner_field) in FIELDS.into_iter().enumerate() {
        for (column, outer_field) in FIELDS.into_iter().enumerate() {
            let mut world = world();
            let mut bytes = tenant().bytes();
            bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
            let traffic_class = 0b1010_0100 | inner_field;
            bytes[14] = 0x60 | traffic_class >> 4;
            bytes[15] = traffic_class << 4 | 0x0b;
            let sent =
                through(&mut world, in_vxlan(&Outer { ecn: outer_field, ..outer() }, &bytes));
            let Some(field) = FIGURE_4[row][column] else {
                assert_eq!(sent, None);
                continue;
            };
            let sent = sent.unwrap();
            let ip = ipv6::Packet::new_checked(&sent.bytes[14..]).unwrap();
            assert_eq!((ip.ecn(), ip.dscp(), ip.version()), (field, 0b10_1001, 6));
            assert_eq!(sent.bytes[16..], bytes[16..]);
            assert_eq!(sent.bytes[15] & 0x0f, 0x0b, "the flow label");
        }
    }
    let mut world = world();
    let mut bytes = tenant().bytes();
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    let sent = through(&mut world, in_vxlan(&Outer { ecn: 0b11, ..outer() }, &bytes)).unwrap();
    assert_eq!(sent.bytes, bytes);
}

#[test]
fn fdb_install_to_invalid_destination_is_refused() {
    let mut config = tunnel_config();
    config.vnets[0].tunnels = vec![TunnelId(1)];
    let mut world = World::new(&config, 1);
    let mut install = |vnet, mac, to| {
        world.switch.command(world.now, Command::Install { vnet: VnetId(vnet), mac, to })
    };
    let mac = address(0, 9);
    assert_eq!(install(0, mac, Destination::Port(PortId(0))), Ok(()));
    assert_eq!(install(0, mac, Destination::Tunnel(TunnelId(1))), Ok(()));
    // An underlay port has no stations.
    let no_member = Err(CommandError::NotAMember(PortId(2)));
    assert_eq!(install(0, mac, Destination::Port(PortId(2))), no_member);
    let no_port = Err(CommandError::NoSuchPort(PortId(3)));
    assert_eq!(install(0, mac, Destination::Port(PortId(3))), no_port);
    // Frames that came back from there would be refused.
    let not_in_network = Err(CommandError::NotInNetwork(TunnelId(0)));
    assert_eq!(install(0, mac, Destination::Tunnel(TunnelId(0))), not_in_network);
    let no_tunnel = Err(CommandError::NoSuchTunnel(TunnelId(2)));
    assert_eq!(install(0, mac, Destination::Tunnel(TunnelId(2))), no_tunnel);
    let no_vnet = Err(CommandError::NoSuchVnet(VnetId(1)));
    assert_eq!(install(1, mac, Destination::Port(PortId(0))), no_vnet);
    let group = Err(CommandError::GroupAddress(Mac::BROADCAST));
    assert_eq!(install(0, Mac::BROADCAST, Destination::Port(PortId(0))), group);
}

#[test]
fn encap_result_independent_of_transmit_run_length() {
    let run = |at_once: u32| {
        let mut world = world();
        let mut sent = Vec::new();
        for round in 0..20 {
            for port in 0..2 {
                let size = 60 + 97 * round % 1_400;
                let tenant = Tenant::new(address(0, 2), SRC, 0, size);
                world.fill(port, |world| world.tenant(port, &tenant));
            }
            loop {
                let mut room = at_once;
                let taken = world.transmit(PortId(2), || {
                    room = room.saturating_sub(1);
                    room > 0
                });
                sent.extend(world.log());
                if taken == 0 {
                    break;
                }
            }
            world.reclaim_all();
        }
        world.check();
        let total = sent.iter().map(|sent| u64::from(sent.size)).sum::<u64>();
        let counter = world.switch.tunnel_counters(TunnelId(0)).sent;
        assert_eq!((counter.frames, counter.bytes), (sent.len() as u64, total));
        sent
    };
    let one_by_one = run(2);
    assert!(one_by_one.len() > 500, "{}", one_by_one.len());
    for at_once in [3, 17, u32::MAX] {
        let sent = run(at_once);
        assert!(sent == one_by_one, "{at_once}");
    }
}

#[test]
fn injected_frames_keep_their_vni_in_shared_tunnel() {
    let mut config = tunnel_config();
    let tunnels = config.vnets[0].tunnels.clone();
    config.vnets.push(VnetConfig { vni: Vni::new(101), mtu: 1_500, tunnels });
    let mut world = World::new(&config, 1);
    world.log();
    let input = world.switch.control_input();
    let networks = [0, 0, 1, 0, 1, 1, 0];
    for vnet in networks {
        let info = Info {
            id: world.next_id(),
            from: CONTROL,
            port: u16::MAX,
            vnet,
            dst: address(vnet, 2),
            priority: Priority::new(7).unwrap(),
            valid: true,
        };
        let buf = world.buf(input, info, Tenant::new(address(vnet, 2), SRC, 0, 100).bytes());
        let to = Target::Tunnel(VnetId(vnet), TunnelId(0));
        assert!(world.switch.inject(world.now, buf, to).map_err(TestBuf::hand_back).is_ok());
    }
    assert_eq!(world.transmit(PortId(2), || true), 7);
    let vnis: Vec<u8> = world.log().iter().map(|sent| sent.bytes[48]).collect();
    assert_eq!(vnis, networks.map(|vnet| 100 + u8::try_from(vnet).unwrap()));
}
