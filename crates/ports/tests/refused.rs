//! Frames that a device never takes end, are counted, and affect no others; frames behind them go
//! on: for any reason of the refusal, and for any number in a row.

mod support;

use std::time::{Duration, Instant};

use sluice_base::{Mac, Priority};
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{Amount, Port, PortRequest, SharedRings as _};
use sluice_switch::{Egress, Sink as _, Taken};
use sluice_testkit::guest::{Cut, Guest, GuestConfig, Shape, connect};
use support::{
    Cable, LEFT, Peer as _, RIGHT, RawPeer, VXLAN, VtepPeer, can_have_namespaces, inside, run,
};

const P3: Priority = Priority::from_low_bits(3);
/// Maximum of flushes for one frame; 200 µs lie between two of them.
const FLUSHES_MAX: u32 = 1_000;

/// Loads rules of a namespace, from text. Returns false, with a message, if the kernel has no
/// support.
fn rules(namespace: &str, text: &str) -> bool {
    let file = std::env::temp_dir().join(format!("{namespace}.nft"));
    std::fs::write(&file, text).unwrap();
    let words = ["netns", "exec", namespace, "nft", "-f"];
    let output = std::process::Command::new("ip").args(words).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!("SKIPPED: nft: {}", String::from_utf8_lossy(&output.stderr));
            false
        }
        Err(error) => {
            eprintln!("SKIPPED: nft: {error}");
            false
        }
    }
}

fn egress(header: &[u8]) -> Egress<'_, sluice_ports::FrameBuf> {
    let size = u32::try_from(header.len()).unwrap();
    Egress { header, buf: None, strip: 0, size, first: 0, priority: P3, tunnel: None }
}

/// A datagram of a tunnel, with its outer headers.
fn datagram() -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend([8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes.extend(LEFT.octets());
    bytes.extend(RIGHT.octets());
    bytes.extend([0xc3, 0x50, 0x12, 0xb5, 0, 0, 0, 0]);
    bytes.extend(VXLAN);
    bytes.extend([7; 100]);
    bytes
}

/// Flushes until nothing is staged. Returns the number of flushes.
fn flush_all(port: &mut dyn Port) -> u32 {
    let mut flushes = 0;
    while port.pending().frames > 0 {
        port.flush().unwrap();
        flushes += 1;
        assert!(flushes < FLUSHES_MAX, "{:?} stay staged", port.pending());
        assert!(port.pending().frames == 0 || port.retry_after().is_some(), "it is tried again");
    }
    flushes
}

fn l2(cable: &Cable) -> L2Port {
    let mut config = L2Config::new("l0");
    config.kernel = KernelShare::Nothing;
    inside(&cable.left, || L2Port::open(&config).unwrap())
}

/// A frame to one of two stations, of a given size.
fn frame(to: u8, size: usize, number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, 9, 0x88, 0xb5, number];
    frame.resize(size, 0x5a);
    frame
}

/// Numbers of the test's frames that arrived.
fn numbers(peer: &mut RawPeer) -> Vec<u8> {
    std::iter::from_fn(|| peer.receive())
        .filter(|f| f[12..14] == [0x88, 0xb5])
        .map(|f| f[14])
        .collect()
}

/// Sends a hundred refused frames and good ones in turn; the good ones all arrive in order.
fn a_hundred_refused(port: &mut L2Port, peer: &mut RawPeer, refused: impl Fn(u8) -> Vec<u8>) {
    let mut flushes = 0;
    for nth in 0..100 {
        for one in [refused(nth), frame(1, 100, nth)] {
            assert_eq!(port.offer(&egress(&one)), Taken::All);
            flushes += flush_all(port);
        }
    }
    // The port waits for the first ones, in all twice the time of one, and not for the others.
    assert!((200..900).contains(&flushes), "{flushes} flushes");
    assert_eq!(numbers(peer), (0..100).collect::<Vec<u8>>());
    assert_eq!(port.lost().total().frames, 100);
    let bytes = port.lost().total().bytes;
    assert_eq!(port.take_refused(), Some((P3, Amount { frames: 100, bytes })));
    assert_eq!(port.take_refused(), None, "each is told once");
}

#[test]
fn l2_frames_above_peer_mtu_dropped_others_arrive() {
    if !can_have_namespaces("l2_frames_above_peer_mtu_dropped_others_arrive") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip -n {} link set r0 mtu 1000", cable.right));
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    // Smaller and smaller: a refusal of one size tells nothing about the next.
    a_hundred_refused(&mut l2(&cable), &mut peer, |nth| frame(1, 1500 - usize::from(nth), 0xff));
}

#[test]
fn l2_frames_refused_by_nftables_dropped_others_arrive() {
    const RULE: &str = "table netdev t { chain c { type filter hook egress device \"l0\" \
                        priority 0; ether daddr 02:00:00:00:00:02 drop; }; }";
    if !can_have_namespaces("l2_frames_refused_by_nftables_dropped_others_arrive") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut port = l2(&cable);
    if rules(&cable.left, RULE) {
        a_hundred_refused(&mut port, &mut peer, |nth| frame(2, 60 + usize::from(nth), 0xff));
    }
}

/// A rule of the host drops frames to one of two far ends: the kernel returns `EPERM`.
#[test]
fn udp_brief_nftables_refusal_kept_permanent_one_dropped() {
    const RULE: &str = "table ip t { chain c { type filter hook output priority 0; \
                        udp dport 4789 drop; }; }";
    if !can_have_namespaces("udp_brief_nftables_refusal_kept_permanent_one_dropped") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || VtepPeer::new(RIGHT, LEFT));
    let config = UdpConfig::new(LEFT, Mac([2, 0, 0, 0, 0, 9]), 1500);
    let mut port = inside(&cable.left, || UdpPort::open(&config).unwrap());
    let offer = |port: &mut UdpPort| {
        assert_eq!(port.offer(&egress(&datagram())), Taken::All);
    };
    if !rules(&cable.left, RULE) {
        return;
    }
    // For a moment: nothing is lost.
    offer(&mut port);
    for _ in 0..100 {
        port.flush().unwrap();
        assert!(port.pending().frames == 1 && port.retry_after().is_some());
    }
    assert!(rules(&cable.left, "flush ruleset"));
    flush_all(&mut port);
    assert_eq!(port.lost().total().frames, 0);
    let end = Instant::now() + Duration::from_secs(20);
    while peer.receive().is_none() {
        assert!(Instant::now() < end, "it arrives");
    }
    // For ever: bounded, for a hundred as for one.
    assert!(rules(&cable.left, RULE));
    let mut flushes = 0;
    for _ in 0..100 {
        offer(&mut port);
        flushes += flush_all(&mut port);
    }
    assert!((200..900).contains(&flushes), "{flushes} flushes");
    let lost: Vec<_> = port.lost().iter().collect();
    assert!(matches!(lost[..], [(libc::EPERM, Amount { frames: 100, .. })]), "{lost:?}");
    assert_eq!(port.take_refused().map(|(priority, sum)| (priority, sum.frames)), Some((P3, 100)));
    assert!(peer.receive().is_none());
}

/// Buffers of 256 bytes that may be merged: all buffers of the ring together are too few for a
/// large frame.
#[test]
fn frame_larger_than_guest_receive_ring_is_dropped() {
    let halves = Shape { cut: Cut::HeaderApart, indirect: false };
    for (nth, (ring_size, shape)) in [(4, Shape::default()), (8, halves)].into_iter().enumerate() {
        let name = format!("sluice-refused-{}-{nth}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let config = VhostUserConfig {
            socket: socket.clone(),
            role: Role::Server,
            mtu: 1500,
            in_order: false,
            queues: Vec::new(),
            offload: false,
        };
        let mut port = VhostUserPort::open(&config).unwrap();
        let config = GuestConfig {
            ring_size,
            receive_buffer_bytes: 256,
            receiver_shape: shape,
            ..GuestConfig::default()
        };
        let mut guest = Guest::new(config).unwrap();
        std::thread::scope(|scope| {
            let there = scope.spawn(|| guest.attach(connect(&socket, 500).unwrap()).unwrap());
            while !there.is_finished() {
                assert_eq!(port.handle_events(), PortRequest::Nothing);
                std::thread::yield_now();
            }
        });
        // The first frame takes two thirds, and then there is no room for a second one.
        assert_eq!(port.offer(&egress(&frame(1, 700, 0))), Taken::All);
        assert_eq!(port.offer(&egress(&frame(1, 700, 1))), Taken::No, "the guest may refill");
        port.flush().unwrap();
        assert_eq!(guest.receive().map(|frame| frame[14]), Some(0));
        for _ in 0..3 {
            assert_eq!(port.offer(&egress(&frame(1, 1500, 2))), Taken::All, "it ends");
        }
        assert_eq!(port.offer(&egress(&frame(1, 700, 3))), Taken::All);
        port.flush().unwrap();
        assert_eq!(guest.receive().map(|frame| frame[14]), Some(3), "others go on");
        assert_eq!(port.take_refused(), Some((P3, Amount { frames: 3, bytes: 4_500 })));
        guest.hang_up();
    }
}
