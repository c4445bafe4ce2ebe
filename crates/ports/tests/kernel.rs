//! Requirements on the mechanism of each kind: PFC frames, tags and checksums on `l2`, no answers
//! of the kernel beside it, losses that show in a counter, backpressure, and next hops.

mod support;

use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use sluice_base::{Batch, Mac, Nanos, Priority, PriorityMask};
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use sluice_ports::neigh::{Neighbours, NextHop};
use sluice_ports::tap::abandoned::{self, Inhabited};
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::udp::{UdpConfig, UdpPort};
use sluice_ports::{
    Amount, FlowControl as _, Handover as _, Lossless, OpenError, Port, ReadAhead as _,
};
use sluice_switch::{Classifier, Sink as _, Taken, Trust, Window};
use support::{
    Cable, LEFT, OPEN, Peer as _, RIGHT, RawPeer, VXLAN, VtepPeer, Waiter, can_have_namespaces,
    egress, eventually, frame, inside, kernel_drops, path, pool, read_all, receive_all, run,
    test_frame,
};

fn l2(device: &str, kernel: KernelShare) -> L2Port {
    L2Port::open(&L2Config { kernel, ring_bytes: 100_000, ..L2Config::new(device) }).unwrap()
}

fn mac_of(namespace: &str, device: &str) -> Mac {
    inside(namespace, || sluice_ports::device::device(device).unwrap().mac)
}

/// A PFC frame (802.1Qbb): priority 3 stops for 0xffff quanta.
fn pfc() -> Vec<u8> {
    let mut frame = Mac::PAUSE.0.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 0x88, 0x08, 0x01, 0x01, 0x00, 0x08]);
    frame.extend([0, 0, 0, 0, 0, 0, 0xff, 0xff]);
    frame.resize(60, 0);
    frame
}

/// Flow-control frames that a port receives, `count` at least.
fn heard(port: &mut L2Port, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    eventually(|| {
        port.receive_control(&mut |frame| frames.push(frame.to_vec()));
        frames.len() >= count
    });
    frames
}

/// Priorities by class selector.
fn by_dscp() -> Classifier {
    let table = std::array::from_fn(|dscp| Priority::all().nth(dscp / 8).unwrap());
    Classifier::access(Trust::PcpThenDscp, Priority::ZERO, table)
}

/// An IPv4 frame of a priority.
fn marked(nth: usize, priority: u8) -> Vec<u8> {
    let mut frame = test_frame(nth, 200);
    frame.resize(200, 0);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, priority << 5]);
    // Numbers the frame, behind the bytes that were overwritten.
    frame[20..24].copy_from_slice(&u32::try_from(nth).unwrap().to_be_bytes());
    frame
}

/// One priority is closed. The others pass it, flow control passes all, and no frame of any is lost
/// or overtaken, until there is no more room.
#[test]
fn a_closed_priority_stands_in_nobodys_way() {
    if !can_have_namespaces("a_closed_priority_stands_in_nobodys_way") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    port.classify_by(&by_dscp());
    let mut pool = pool(64);
    let closed = Window { closed: PriorityMask(1 << 3), ..OPEN };
    let mut read = |port: &mut L2Port, window| {
        let (mut batch, mut frames) = (Batch::with_limit(64), Vec::new());
        let read = port.read(window, 64, &mut pool, &mut batch).unwrap();
        for buf in batch.drain() {
            frames.push(buf.bytes().to_vec());
            pool.give_back(buf);
        }
        (read.more, frames)
    };
    // Together more than a ring of 100,000 bytes in the smallest frames.
    let mut passed = Vec::new();
    let (mut held, mut sent) = (0, 0);
    for nth in 0..450 {
        for priority in [3, 5] {
            if priority == 5 || held < 400 {
                peer.send(&marked(nth, priority));
                held += usize::from(priority == 3);
                sent += usize::from(priority == 5);
            }
        }
        peer.send(&pfc());
        assert!(eventually(|| {
            passed.extend(read(&mut port, closed).1);
            passed.len() == sent && port.aside().frames == held as u64
        }));
        assert_eq!(heard(&mut port, 1), [pfc()]);
    }
    let all = |priority, count| (0..count).map(|nth| marked(nth, priority)).collect::<Vec<_>>();
    assert!(held == 400 && sent > 400, "{held}, {sent}");
    assert_eq!(passed, all(5, sent), "priority 5 passes, in order");
    assert_eq!(port.aside().bytes, 400 * 200);
    assert!(read(&mut port, closed).0, "there is more, for who has room");
    // Open again: the oldest frames leave first, also before new ones.
    peer.send(&marked(400, 3));
    let mut came = Vec::new();
    assert!(eventually(|| {
        came.extend(read(&mut port, OPEN).1);
        came.len() == 401
    }));
    assert_eq!(came, all(3, 401));
    assert_eq!(port.outside().into_counters().unwrap()["aside.full"], 0);
    // A neighbour that ignores pauses: frames of this priority are dropped and counted, no others.
    for nth in 0..600 {
        peer.send(&marked(nth, 3));
        peer.send(&marked(nth, 5));
        if nth % 16 == 0 {
            read(&mut port, closed);
        }
    }
    passed.clear();
    assert!(eventually(|| {
        passed.extend(read(&mut port, closed).1);
        passed.last() == Some(&marked(599, 5))
    }));
    let aside = port.aside();
    let rows = port.outside().into_counters().unwrap();
    assert_eq!((rows["aside.full"], rows["ring.drops"]), (600 - aside.frames, 0));
    assert!(aside.bytes <= 100_000 && aside.frames > 100_000 / 208 - 2, "{aside:?}");
    // At the end frames that were set aside are handed over, and nothing else is read.
    port.stop_reading();
    peer.send(&marked(600, 5));
    let mut left = Vec::new();
    assert!(eventually(|| {
        let (more, frames) = read(&mut port, OPEN);
        left.extend(frames);
        !more
    }));
    assert_eq!(left, all(3, usize::try_from(aside.frames).unwrap()));
}

/// The other end of the cable takes smaller frames only, and refuses larger ones with the same
/// error as a full queue. Frames behind them must not wait for ever.
#[test]
fn l2_frame_never_taken_is_dropped_others_continue() {
    if !can_have_namespaces("l2_frame_never_taken_is_dropped_others_continue") {
        return;
    }
    let cable = Cable::new();
    let mut far = inside(&cable.right, || l2("r0", KernelShare::Nothing));
    inside(&cable.right, || run("ip link set r0 mtu 1000"));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    let mut pool = pool(32);
    let mut large = test_frame(0, 1514);
    large.resize(1514, 7);
    let small = |nth| marked(nth, 0);
    let mut offer = |port: &mut L2Port, bytes: &[u8]| {
        let buf = frame(&mut pool, bytes);
        assert_eq!(port.offer(&egress(&[], Some(&buf))), Taken::All);
        pool.give_back(buf);
    };
    offer(&mut port, &small(0));
    offer(&mut port, &large);
    offer(&mut port, &small(1));
    let mut flushes = 0;
    while port.pending().frames > 0 {
        port.flush().unwrap();
        flushes += 1;
        assert!(flushes < 1_000, "it is bounded");
        assert!(port.pending().frames == 0 || port.retry_after().is_some(), "and is tried again");
    }
    assert!(flushes > 200, "{flushes}: it was not thrown away at once");
    let lost: Vec<_> = port.lost().iter().collect();
    assert_eq!(lost, [(libc::ENOBUFS, Amount { frames: 1, bytes: 1514 })], "counted, and alone");
    // The port notices a cable that takes them again.
    inside(&cable.right, || run("ip link set r0 mtu 1500"));
    offer(&mut port, &large);
    port.flush().unwrap();
    assert_eq!((port.pending().frames, port.lost().total().frames), (0, 1));
    let mut bufs = support::pool(32);
    let read = read_all(&mut far, &mut bufs, 3, 0);
    assert_eq!(read, [small(0), small(1), large], "in order");
    assert_eq!(far.outside().into_counters().unwrap()["ring.drops"], 0);
}

#[test]
fn pfc_frames_and_tags_pass_l2_both_ways() {
    if !can_have_namespaces("pfc_frames_and_tags_pass_l2_both_ways") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut far = inside(&cable.right, || l2("r0", KernelShare::Nothing));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::NoVxlan(LEFT)));
    assert_ne!((port.quiet_method(), far.quiet_method()), ("tcx", "off"));
    let mut tagged = test_frame(3, 1514);
    tagged.splice(12..12, [0x81, 0x00, 0x60, 0x2a]);
    let mut service_tagged = test_frame(4, 1514);
    service_tagged.splice(12..12, [0x88, 0xa8, 0xe0, 0x07, 0x81, 0x00, 0x20, 0x01]);
    let mut priority_tagged = pfc();
    priority_tagged.splice(12..12, [0x81, 0x00, 0xa0, 0x00]);
    let mut largest = test_frame(0, 1514);
    largest.resize(1514, 7);
    largest.splice(12..12, [0x81, 0x00, 0x00, 0x01]);
    // A tag makes it an ordinary frame.
    let frames = [tagged, service_tagged, priority_tagged, largest];
    let mut pool = pool(32);
    (0..5).for_each(|_| peer.send(&pfc()));
    assert_eq!(heard(&mut port, 5), vec![pfc(); 5]);
    let rx_dropped = port.outside().into_counters().unwrap()["device.rx_dropped"];
    assert_eq!(rx_dropped, 0, "PFC frames must not look like losses");
    frames.iter().for_each(|frame| peer.send(frame));
    assert_eq!(read_all(&mut port, &mut pool, frames.len(), 0), frames, "and no flow control");
    for bytes in frames.iter().chain([&pfc()]) {
        let buf = frame(&mut pool, bytes);
        assert_eq!(port.offer(&egress(&[], Some(&buf))), Taken::All);
        pool.give_back(buf);
    }
    // A frame that the switch made itself is all header.
    assert_eq!(port.offer(&egress(&pfc(), None)), Taken::All);
    assert_eq!(port.pending().frames, 6, "flow control leaves among the others");
    port.flush().unwrap();
    assert_eq!(port.pending().frames, 0);
    assert_eq!(read_all(&mut far, &mut pool, frames.len(), 0), frames);
    assert_eq!(heard(&mut far, 2), vec![pfc(); 2]);
    for port in [&port, &far] {
        let rows = port.outside().into_counters().unwrap();
        assert_eq!(rows["ring.drops"] + rows["ring.truncated"], 0);
    }
    assert_eq!(far.outside().into_counters().unwrap()["device.rx_dropped"], 0);
}

#[test]
fn l2_full_ring_fill_level_and_drops_counted() {
    if !can_have_namespaces("l2_full_ring_fill_level_and_drops_counted") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let config = L2Config { ring_bytes: 1, ..L2Config::new("l0") };
    let mut port = inside(&cable.left, || L2Port::open(&config).unwrap());
    let room = port.ring().capacity_frames;
    assert_eq!(room, u64::from(port.ring_plan().frames));
    assert_eq!(port.lossless(), Lossless::Yes);
    let frames = 3 * room;
    for nth in 0..frames {
        peer.send(&test_frame(usize::try_from(nth).unwrap(), 1514));
    }
    let mut pool = pool(256);
    let read = read_all(&mut port, &mut pool, usize::try_from(room).unwrap() + 1, 0);
    assert_eq!(read.len() as u64, room);
    assert_eq!(port.ring().waiting_frames_max, Some(room));
    for _ in 0..2 {
        assert_eq!(port.outside().into_counters().unwrap()["ring.drops"], frames - room, "kept");
    }
    peer.send(&test_frame(1, 1514));
    assert_eq!(read_all(&mut port, &mut pool, 1, 0), [test_frame(1, 1514)], "it goes on");
}

/// The kernel's own sender leaves checksums to the card; frames that are read are finished.
#[test]
fn open_checksums_are_finished() {
    if !can_have_namespaces("open_checksums_are_finished") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip netns exec {} ethtool -K r0 tx on", cable.right));
    run(&format!("ip -n {} neigh add {LEFT} lladdr 02:00:00:00:00:01 dev r0", cable.right));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    inside(&cable.right, || {
        let socket = UdpSocket::bind((RIGHT, 7)).unwrap();
        for size in [0, 1, 700, 701] {
            socket.send_to(&vec![0xa5; size], (LEFT, 9)).unwrap();
        }
    });
    for frame in read_all(&mut port, &mut pool(8), 4, 0) {
        let size = frame.len() - 34;
        let mut sum: u32 = 17 + u32::try_from(size).unwrap();
        for pair in frame[26..].chunks(2) {
            sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        assert_eq!(sum, 0xffff, "UDP checksum of {size} bytes");
    }
    assert_eq!(port.outside().into_counters().unwrap()["ring.checksum_open"], 0);
}

/// Only frames for the switch, or for nobody, enter the ring of an underlay.
#[test]
fn frames_of_the_kernel_never_enter_an_underlay() {
    if !can_have_namespaces("frames_of_the_kernel_never_enter_an_underlay") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::NoVxlan(LEFT)));
    let mac = mac_of(&cable.left, "l0");
    let ip = |protocol: u8, fragment: u16, to: Ipv4Addr, port: u16| {
        let mut frame = [mac.0, [2, 0, 0, 0, 0, 1]].concat();
        frame.extend([0x08, 0x00, 0x45, 0, 0, 86, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0]);
        frame.extend([RIGHT.octets(), to.octets()].concat());
        frame.extend([[0xc0, 0], port.to_be_bytes(), [0, 66], [0, 0]].concat());
        frame.resize(100, 0);
        frame
    };
    let changed = |mut frame: Vec<u8>, at: usize, bytes: &[u8]| {
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        frame
    };
    let good = ip(17, 0, LEFT, 4789);
    let kernels = [
        changed(test_frame(0, 200), 0, &[0xff; 6]),
        changed(changed(test_frame(1, 200), 0, &[0xff; 6]), 12, &[0x08, 0x06]),
        changed(test_frame(2, 200), 0, &mac.0),
        ip(1, 0, LEFT, 4789),
        ip(6, 0, LEFT, 4789),
        ip(17, 0, LEFT, 53),
        ip(17, 0, RIGHT, 4789),
        changed(good.clone(), 0, &[1, 0, 0x5e, 0, 0, 1]),
    ];
    let ours = [
        good.clone(),
        ip(17, 0x2000, LEFT, 53),
        ip(17, 7, LEFT, 53),
        changed(good.clone(), 14, &[0x46]),
        changed(good.clone(), 14, &[0x55]),
        [&good[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 1], &good[12..]].concat(),
        changed(good, 0, &[2, 9, 9, 9, 9, 9]),
        // A router's report about a frame of a tunnel.
        changed(ip(1, 0, LEFT, 0), 34, &[3, 4]),
    ];
    for frame in kernels.iter().chain(&ours) {
        peer.send(frame);
    }
    let read = read_all(&mut port, &mut pool(32), ours.len() + 1, 0);
    assert_eq!(read, ours);
}

/// Number of ICMP "unreachable" messages that a namespace sent.
fn icmp_unreachables(namespace: &str) -> u64 {
    let text = inside(namespace, || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
    let mut lines = text.lines().filter(|line| line.starts_with("Icmp:"));
    let names = lines.next().unwrap().split_whitespace();
    let column = names.into_iter().position(|name| name == "OutDestUnreachs").unwrap();
    lines.next().unwrap().split_whitespace().nth(column).unwrap().parse().unwrap()
}

/// Returns true if the kernels of two namespaces can connect by TCP (and so ARP).
fn talks(from: &str, to: &str, address: Ipv4Addr) -> bool {
    let listener = inside(to, || TcpListener::bind((address, 7777)).unwrap());
    let at = listener.local_addr().unwrap();
    inside(from, || TcpStream::connect_timeout(&at, Duration::from_secs(2)).is_ok())
}

#[test]
fn the_kernel_does_not_answer_vxlan() {
    if !can_have_namespaces("the_kernel_does_not_answer_vxlan") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip netns exec {} sysctl -qw net.ipv4.icmp_ratelimit=0", cable.left));
    let peer = inside(&cable.right, || VtepPeer::new(RIGHT, LEFT));
    let send = || {
        for nth in 0..20 {
            peer.socket.send_to(&[&VXLAN[..], &test_frame(nth, 1400)].concat(), peer.to).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // Without it: ICMP (rate limited, but some).
    let mut port = inside(&cable.left, || l2("l0", KernelShare::All));
    assert_eq!(port.quiet_method(), "off");
    send();
    assert!(icmp_unreachables(&cable.left) > 0, "the kernel answers if it may");
    port.close().unwrap();

    let before = icmp_unreachables(&cable.left);
    let mut port = inside(&cable.left, || l2("l0", KernelShare::NoVxlan(LEFT)));
    eprintln!("kept quiet by {}", port.quiet_method());
    send();
    let vxlan = |frames: Vec<Vec<u8>>| {
        let is = |frame: &&Vec<u8>| frame.len() > 50 && frame[36..38] == 4789u16.to_be_bytes();
        frames.iter().filter(is).count()
    };
    // ARP and the like may be among them.
    let read = read_all(&mut port, &mut pool(64), 20, 0);
    assert!(vxlan(read) >= 18);
    assert_eq!(icmp_unreachables(&cable.left), before, "not one answer");
    // All other traffic goes on.
    assert!(talks(&cable.right, &cable.left, LEFT));
    assert!(talks(&cable.left, &cable.right, RIGHT));
    inside(&cable.right, || {
        let socket = UdpSocket::bind((RIGHT, 0)).unwrap();
        socket.send_to(b"no vxlan", (LEFT, 4790)).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    });
    assert_eq!(icmp_unreachables(&cable.left), before + 1, "other ports are answered");
    // Nothing stays behind.
    port.close().unwrap();
    // A child that is just being started may hold the descriptor for a moment longer.
    let end = Instant::now() + Duration::from_secs(20);
    while icmp_unreachables(&cable.left) == before + 1 {
        assert!(Instant::now() < end, "the kernel answers again");
        send();
    }
}

/// A device that sends slowly: frames that the kernel does not take stay staged, at most
/// `staged_max`, and all arrive.
fn all_arrives_over_a_slow_device(
    port: &mut dyn Port,
    header: &[u8],
    staged_max: u64,
    mut received: impl FnMut() -> Vec<Vec<u8>>,
) {
    let mut pool = pool(4);
    let mut frames = Vec::new();
    let mut arrived = Vec::new();
    let (mut refused, mut writable, mut pending_most) = (0, 0, 0);
    let end = Instant::now() + Duration::from_secs(20);
    let waiter = Waiter::new(port);
    for nth in 0..600 {
        frames.push(test_frame(nth, 1464));
        let buf = frame(&mut pool, &frames[nth]);
        while port.offer(&egress(header, Some(&buf))) == Taken::No {
            refused += 1;
            pending_most = pending_most.max(port.pending().frames);
            port.flush().unwrap();
            if port.wants_write() {
                writable += 1;
                assert!(waiter.wait(5000), "no edge when there was room again");
            } else if let Some(span) = port.retry_after() {
                std::thread::sleep(Duration::from_nanos(span.0));
            }
            port.flush().unwrap();
            arrived.extend(received());
            assert!(Instant::now() < end, "it never took frame {nth}");
        }
        pool.give_back(buf);
    }
    while port.pending().frames > 0 && Instant::now() < end {
        waiter.wait(20);
        port.flush().unwrap();
    }
    while arrived.len() < frames.len() && Instant::now() < end {
        arrived.extend(received());
    }
    assert!(refused > 0 && writable > 0, "refused {refused}, writable {writable}");
    assert!((1..=staged_max).contains(&pending_most), "{pending_most}");
    assert_eq!(arrived.len(), frames.len());
    assert!(arrived == frames, "in order and unchanged");
    assert_eq!(port.lost().total().frames, 0);
    assert_eq!(
        port.outside().into_counters().unwrap().get("qdisc.dropped").copied().unwrap_or(0),
        0
    );
}

fn slow(namespace: &str, device: &str) {
    run(&format!(
        "tc -n {namespace} qdisc add dev {device} root tbf rate 40mbit burst 4000 limit 50000000"
    ));
}

#[test]
fn l2_slow_device_holds_frames_without_loss() {
    if !can_have_namespaces("l2_slow_device_holds_frames_without_loss") {
        return;
    }
    let cable = Cable::new();
    slow(&cable.left, "l0");
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    all_arrives_over_a_slow_device(&mut port, &[], 32, || {
        std::iter::from_fn(|| peer.receive()).collect()
    });
}

/// Ethernet, IPv4 (DSCP 46, ECN 2), UDP with a source port, VXLAN.
fn outer(source_port: u16) -> Vec<u8> {
    let mut header = vec![0; 14];
    header[12] = 8;
    header.extend([0x45, 0xb8 | 2, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    header.extend(LEFT.octets());
    header.extend(RIGHT.octets());
    header.extend(source_port.to_be_bytes());
    header.extend([0x12, 0xb5, 0, 0, 0, 0]);
    header.extend(VXLAN);
    header
}

#[test]
fn udp_slow_device_holds_datagrams_without_loss() {
    if !can_have_namespaces("udp_slow_device_holds_datagrams_without_loss") {
        return;
    }
    let cable = Cable::new();
    slow(&cable.left, "l0");
    let mut peer = inside(&cable.right, || VtepPeer::new(RIGHT, LEFT));
    let config = UdpConfig::new(LEFT, Mac([2, 0, 0, 0, 0, 9]), 1514);
    let mut port = inside(&cable.left, || UdpPort::open(&config).unwrap());
    inside(&cable.left, || {
        all_arrives_over_a_slow_device(&mut port, &outer(50_000), 64, || {
            std::iter::from_fn(|| peer.receive()).collect()
        });
    });
}

#[test]
fn l2_holds_frames_while_its_device_is_down() {
    if !can_have_namespaces("l2_holds_frames_while_its_device_is_down") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let mut port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    run(&format!("ip -n {} link set l0 down", cable.left));
    let mut pool = pool(1);
    let mut taken = 0;
    for nth in 0..40 {
        let buf = frame(&mut pool, &test_frame(nth, 1514));
        taken += usize::from(port.offer(&egress(&[], Some(&buf))) == Taken::All);
        pool.give_back(buf);
    }
    assert_eq!((taken, port.pending().frames), (32, 32));
    port.flush().unwrap();
    assert!(port.retry_after().is_some() && port.pending().frames == 32);
    run(&format!("ip -n {} link set l0 up", cable.left));
    let end = Instant::now() + Duration::from_secs(20);
    while port.pending().frames > 0 && Instant::now() < end {
        port.flush().unwrap();
    }
    let received = receive_all(&mut peer, 32);
    assert!(received.iter().enumerate().all(|(nth, frame)| *frame == test_frame(nth, 1514)));
    assert_eq!((received.len(), port.lost().total().frames), (32, 0));
}

#[test]
fn udp_keeps_dscp_ecn_and_entropy() {
    if !can_have_namespaces("udp_keeps_dscp_ecn_and_entropy") {
        return;
    }
    let cable = Cable::new();
    let config = |at| UdpConfig::new(at, Mac([2, 0, 0, 0, 0, 9]), 1500);
    let mut left = inside(&cable.left, || UdpPort::open(&config(LEFT)).unwrap());
    let mut right = inside(&cable.right, || UdpPort::open(&config(RIGHT)).unwrap());
    let mut pool = pool(64);
    let inner = test_frame(5, 1400);
    for source_port in 50_000..50_016 {
        let buf = frame(&mut pool, &inner);
        assert_eq!(left.offer(&egress(&outer(source_port), Some(&buf))), Taken::All);
        pool.give_back(buf);
    }
    assert_eq!(left.pending().frames, 16);
    left.flush().unwrap();
    let read = read_all(&mut right, &mut pool, 16, 0);
    let mut ports: Vec<u16> =
        read.iter().map(|frame| u16::from_be_bytes([frame[34], frame[35]])).collect();
    for frame in &read {
        assert_eq!(frame[..14], [2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 8, 0]);
        assert_eq!((frame[14], frame[15]), (0x45, 0xb8 | 2), "DSCP and ECN");
        assert_eq!(usize::from(u16::from_be_bytes([frame[16], frame[17]])), frame.len() - 14);
        assert_eq!(sluice_wire::checksum::internet(&frame[14..34]), 0);
        assert_eq!((&frame[26..30], &frame[30..34]), (&LEFT.octets()[..], &RIGHT.octets()[..]));
        assert_eq!(u16::from_be_bytes([frame[36], frame[37]]), 4789);
        assert_eq!(usize::from(u16::from_be_bytes([frame[38], frame[39]])), frame.len() - 34);
        assert_eq!((&frame[42..50], &frame[50..]), (&VXLAN[..], &inner[..]));
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 8, "as many as there are sockets");
}

#[test]
fn udp_counts_what_its_full_buffer_drops() {
    if !can_have_namespaces("udp_counts_what_its_full_buffer_drops") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || VtepPeer::new(RIGHT, LEFT));
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    let config = UdpConfig { receive_buffer_bytes: 100_000, ..UdpConfig::new(LEFT, mac, 1500) };
    inside(&cable.left, || {
        let mut port = UdpPort::open(&config).unwrap();
        let sent = 200;
        for nth in 0..sent {
            peer.send(&test_frame(nth, 1400));
        }
        let mut pool = pool(256);
        let read = read_all(&mut port, &mut pool, sent, 0).len();
        let ring = port.ring();
        eprintln!("read {read} of {sent}; {ring:?}");
        let rows = port.outside().into_counters().unwrap();
        assert_eq!(rows["socket.drops"], (sent - read) as u64);
        assert_eq!(rows["udp.rcvbuf_errors"], (sent - read) as u64);
        assert!(ring.waiting_frames_max.unwrap() > 0);
        peer.socket.send_to(&[1; 4], peer.to).unwrap();
        assert_eq!(read_all(&mut port, &mut pool, 1, 0)[0].len(), 46, "it goes on");
    });
}

#[test]
fn a_full_tap_ring_is_counted() {
    if !can_have_namespaces("a_full_tap_ring_is_counted") {
        return;
    }
    let cable = Cable::new();
    let mac = Mac([2, 0, 0, 0, 0, 5]);
    let config = TapConfig {
        netns: Some(path(&cable.left)),
        ring_frames: 50,
        mac: Some(mac),
        ..TapConfig::new("t0", 1400)
    };
    let mut port = TapPort::open(&config).unwrap();
    let found = inside(&cable.left, || sluice_ports::device::device("t0").unwrap());
    assert_eq!((found.mac, found.mtu, found.up), (mac, 1400, true));
    let seen = kernel_drops("a_full_tap_ring_is_counted", &[&cable.left]);
    let mut peer = inside(&cable.left, || RawPeer::new("t0"));
    for nth in 0..80 {
        peer.send(&test_frame(nth, 1400));
    }
    let read = read_all(&mut port, &mut pool(64), 81, 0);
    let rows = port.outside().into_counters().unwrap();
    assert_eq!(read.len() as u64 + rows["device.tx_dropped"], 80, "{rows:?}");
    assert!(rows["device.tx_dropped"] > 0);
    assert!(port.lossless().to_string().starts_with("no, needs"));
    if let Some(seen) = seen {
        let full = seen.frames(&cable.left, "t0", "FULL_RING");
        assert_eq!(full, rows["device.tx_dropped"], "the kernel says {:?}", seen.since());
    }
}

/// A TAP leads to the container's stack, with the buffers of its sockets.
#[test]
fn a_full_socket_of_a_container_is_counted() {
    let test = "a_full_socket_of_a_container_is_counted";
    if !can_have_namespaces(test) {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip -n {} link set lo up", cable.left));
    let overrun = || {
        inside(&cable.left, || {
            let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..2000 {
                sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
            }
        });
    };
    overrun();
    let config = TapConfig { netns: Some(path(&cable.left)), ..TapConfig::new("t0", 1400) };
    let port = TapPort::open(&config).unwrap();
    let lost = || port.outside().into_counters().unwrap()["container.udp_rcvbuf_errors"];
    assert_eq!(lost(), 0, "what was lost before is not this port's");
    let seen = kernel_drops(test, &[&cable.left]);
    overrun();
    assert!(lost() > 0);
    assert_eq!(
        port.outside().into_counters().unwrap()["container.udp_in_errors"],
        0,
        "counted once"
    );
    if let Some(seen) = seen {
        let full = seen.frames(&cable.left, "lo", "SOCKET_RCVBUFF");
        assert_eq!(full, lost(), "the kernel says {:?}", seen.since());
    }
}

/// A runtime moves a device into its container, and out of it at the end.
#[test]
fn counters_follow_tap_into_another_namespace() {
    if !can_have_namespaces("counters_follow_tap_into_another_namespace") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip -n {} link set lo up", cable.right));
    let config =
        TapConfig { netns: Some(path(&cable.left)), up: false, ..TapConfig::new("t0", 1400) };
    let port = TapPort::open(&config).unwrap();
    let counters = || port.outside().into_counters().unwrap();
    let before = counters();
    run(&format!("ip -n {} link set t0 netns {}", cable.left, cable.right));
    assert_eq!(counters(), before, "nothing was lost on its way");
    assert_eq!(port.outside().state().device.up, Some(false));
    run(&format!("ip -n {} link set t0 name eth0 up", cable.right));
    assert_eq!(port.outside().state().device.up, Some(true));
    inside(&cable.right, || {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..2000 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
    });
    assert!(counters()["container.udp_rcvbuf_errors"] > 0);
    run(&format!("ip -n {} link set eth0 netns {} name t0", cable.right, cable.left));
    assert_eq!(counters(), before);
}

/// A persistent device stays, and a second open fails with a reason.
#[test]
fn a_persistent_tap_stays() {
    if !can_have_namespaces("a_persistent_tap_stays") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip -n {} tuntap add dev t0 mode tap", cable.left));
    let config = TapConfig { netns: Some(path(&cable.left)), ..TapConfig::new("t0", 1500) };
    let mut port = TapPort::open(&config).unwrap();
    let error = TapPort::open(&config).unwrap_err().to_string();
    assert!(error.contains("t0") && error.contains("another program"), "{error}");
    port.close().unwrap();
    drop(port);
    run(&format!("ip -n {} link show t0", cable.left));
    assert!(TapPort::open(&config).is_ok());
}

/// When the namespace goes, the port reports an error instead of silence.
#[test]
fn a_tap_whose_namespace_went_is_an_error() {
    if !can_have_namespaces("a_tap_whose_namespace_went_is_an_error") {
        return;
    }
    let cable = Cable::new();
    let config = TapConfig { netns: Some(path(&cable.left)), ..TapConfig::new("t0", 1500) };
    let mut port = TapPort::open(&config).unwrap();
    run(&format!("ip -n {} link del t0", cable.left));
    let (mut pool, mut batch) = (pool(1), Batch::with_limit(1));
    let error = port.read(OPEN, 1, &mut pool, &mut batch).unwrap_err();
    assert!(support::is_gone(&error), "{error}");
    assert_eq!(pool.used(), 0);
}

/// The TAP of a container keeps the namespace alive that the container has left.
#[test]
fn tap_abandoned_without_namespace_name_and_process() {
    if !can_have_namespaces("tap_abandoned_without_namespace_name_and_process") {
        return;
    }
    let cable = Cable::new();
    let name = path(&cable.left);
    let config = TapConfig { netns: Some(name.clone()), ..TapConfig::new("t0", 1500) };
    let port = TapPort::open(&config).unwrap();
    let tap = port.poll_fds()[0].fd.try_clone_to_owned().unwrap();
    let namespace = abandoned::nameless(tap.as_fd(), "/no/such/name".as_ref()).unwrap().unwrap();
    let has_name = || abandoned::nameless(tap.as_fd(), &name).unwrap().is_none();
    let Some(all) = Inhabited::look() else {
        eprintln!("SKIPPED: not all processes of this machine can be seen");
        return;
    };
    assert!(all.contains(namespace), "its name is mounted");
    let is_inhabited = || Inhabited::look().unwrap().contains(namespace);
    let has_carrier = || {
        let output = Command::new("ip").args(["-n", &cable.left, "link", "show", "t0"]).output();
        !String::from_utf8_lossy(&output.unwrap().stdout).contains("NO-CARRIER")
    };

    assert!(has_name());
    for is_on in [false, true] {
        abandoned::set_carrier(tap.as_fd(), is_on).unwrap();
        assert_eq!(has_carrier(), is_on);
    }

    let sleeper = ["netns", "exec", &cable.left, "sleep", "60"];
    let mut sleeper = Command::new("ip").args(sleeper).spawn().unwrap();
    let comm = format!("/proc/{}/comm", sleeper.id());
    assert!(eventually(|| std::fs::read_to_string(&comm).is_ok_and(|comm| comm == "sleep\n")));
    run(&format!("ip netns del {}", cable.left));
    let lives = is_inhabited();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(lives, "a process is in it");
    assert!(!has_name() && !is_inhabited());

    run(&format!("ip netns add {}", cable.left));
    assert!(!has_name() && !is_inhabited(), "the name is that of another namespace");
}

#[test]
fn what_cannot_be_opened_says_why() {
    let no_device = L2Port::open(&L2Config::new("no-such-dev")).unwrap_err();
    assert!(
        matches!(&no_device, OpenError::NoSuchDevice { device, .. } if device == "no-such-dev")
    );
    let netns = Some("/run/netns/no-such-namespace".into());
    let no_netns = TapPort::open(&TapConfig { netns, ..TapConfig::new("t0", 1500) }).unwrap_err();
    assert!(no_netns.to_string().contains("no-such-namespace"), "{no_netns}");
    let bad = TapPort::open(&TapConfig::new("a/b", 1500)).unwrap_err();
    assert!(matches!(bad, OpenError::BadName { .. }));
    let elsewhere = UdpConfig::new(Ipv4Addr::new(192, 0, 2, 1), Mac::default(), 1500);
    let no_address = UdpPort::open(&elsewhere).unwrap_err().to_string();
    assert!(no_address.contains("192.0.2.1:4789") && no_address.contains("give the address"));
}

/// Offloads are off while the port is open, and as before afterwards.
#[test]
fn offloads_come_back() {
    if !can_have_namespaces("offloads_come_back") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip netns exec {} ethtool -K l0 tx on tso on gso on gro on", cable.left));
    let features = || {
        let arguments = ["netns", "exec", &cable.left, "ethtool", "-k", "l0"];
        let output = Command::new("ip").args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let before = features();
    let port = inside(&cable.left, || l2("l0", KernelShare::Nothing));
    let during = features();
    for name in [
        "tx-checksumming: off",
        "tx-tcp-segmentation: off",
        "tx-tcp6-segmentation: off",
        "tx-udp-segmentation: off",
        "generic-segmentation-offload: off",
        "generic-receive-offload: off",
    ] {
        assert!(during.contains(name), "{name} in {during}");
    }
    drop(port);
    assert_eq!(features(), before);
}

fn poll_until(
    neighbours: &mut Neighbours,
    now: &mut Nanos,
    mut done: impl FnMut(&NextHop) -> bool,
) -> Option<Duration> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        for hop in neighbours.poll(*now).unwrap() {
            if done(&hop) {
                return Some(start.elapsed());
            }
        }
        let fd =
            rustix::event::PollFd::from_borrowed_fd(neighbours.fd(), rustix::event::PollFlags::IN);
        let span = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        let _timed_out = rustix::event::poll(&mut [fd], Some(&span));
        *now = Nanos(now.0 + 10_000_000);
    }
    None
}

#[test]
fn next_hops_follow_the_kernel() {
    if !can_have_namespaces("next_hops_follow_the_kernel") {
        return;
    }
    let cable = Cable::new();
    let theirs = mac_of(&cable.right, "r0");
    let far = Ipv4Addr::new(172, 31, 9, 9);
    let mut neighbours = inside(&cable.left, || Neighbours::open("l0").unwrap());
    let mut now = Nanos::ZERO;
    neighbours.watch(RIGHT);
    neighbours.watch(far);
    // Without traffic: the kernel is asked to resolve.
    let known = |to, mac| move |hop: &NextHop| hop.destination == to && hop.mac == mac;
    let took = poll_until(&mut neighbours, &mut now, known(RIGHT, Some(theirs)));
    eprintln!("resolved after {took:?}");
    assert!(took.is_some());
    // A route by a gateway appears.
    run(&format!("ip -n {} route add 172.31.9.0/24 via {RIGHT}", cable.left));
    assert!(poll_until(&mut neighbours, &mut now, known(far, Some(theirs))).is_some());
    // The neighbour gets another MAC.
    run(&format!("ip -n {} link set r0 address 02:00:00:00:aa:bb", cable.right));
    run(&format!("ip -n {} neigh flush dev l0", cable.left));
    let new = Some(Mac([2, 0, 0, 0, 0xaa, 0xbb]));
    assert!(poll_until(&mut neighbours, &mut now, known(RIGHT, new)).is_some());
    // The route goes.
    run(&format!("ip -n {} route del 172.31.9.0/24", cable.left));
    assert!(poll_until(&mut neighbours, &mut now, known(far, None)).is_some());
    // The link goes, and comes back.
    run(&format!("ip -n {} link set l0 down", cable.left));
    assert!(poll_until(&mut neighbours, &mut now, known(RIGHT, None)).is_some());
    run(&format!("ip -n {} link set l0 up", cable.left));
    assert!(poll_until(&mut neighbours, &mut now, known(RIGHT, new)).is_some());
    // An entry set by hand is used, and left alone.
    run(&format!(
        "ip -n {} neigh replace {RIGHT} lladdr 02:00:00:00:cc:dd dev l0 nud permanent",
        cable.left
    ));
    let fixed = Some(Mac([2, 0, 0, 0, 0xcc, 0xdd]));
    assert!(poll_until(&mut neighbours, &mut now, known(RIGHT, fixed)).is_some());
    let later = Nanos(now.0 + 60_000_000_000);
    assert_eq!(neighbours.poll(later).unwrap(), []);
    let arguments = ["-n", &cable.left, "neigh", "show", &RIGHT.to_string()];
    let shown = Command::new("ip").args(arguments).output().unwrap().stdout;
    assert!(String::from_utf8(shown).unwrap().contains("PERMANENT"));
}

/// Frames that came while nobody read are there for the next port, once each and in order, flow
/// control too; a ring of another size is made anew.
#[test]
fn a_ring_goes_on_where_another_port_stopped() {
    if !can_have_namespaces("a_ring_goes_on_where_another_port_stopped") {
        return;
    }
    let cable = Cable::new();
    let mut peer = inside(&cable.right, || RawPeer::new("r0"));
    let config = |bytes| L2Config { ring_bytes: bytes, ..L2Config::new("l0") };
    let mut port = inside(&cable.left, || L2Port::open(&config(100_000)).unwrap());
    let (mut pool, mut came) = (pool(64), Vec::new());
    let mut read = |port: &mut L2Port, wanted: usize| {
        let mut batch = Batch::with_limit(64);
        eventually(|| {
            port.read(OPEN, wanted - came.len(), &mut pool, &mut batch).unwrap();
            for buf in batch.drain() {
                came.push(buf.bytes().to_vec());
                pool.give_back(buf);
            }
            came.len() >= wanted
        });
        came.clone()
    };
    let all = |count| (0..count).map(|nth| marked(nth, 0)).collect::<Vec<_>>();
    for sent in [0, 30, 60] {
        (sent..sent + 20).for_each(|nth| peer.send(&marked(nth, 0)));
        assert_eq!(read(&mut port, sent + 7), all(sent + 7));
        // The rest stays in the ring.
        peer.send(&pfc());
        let handed = port.hand_over().unwrap().unwrap();
        (sent + 20..sent + 30).for_each(|nth| peer.send(&marked(nth, 0)));
        let next = inside(&cable.left, || L2Port::adopt(&config(100_000), Some(handed)));
        // The earlier process ends, and nothing is undone.
        std::mem::forget(std::mem::replace(&mut port, next.unwrap()));
        assert_eq!(read(&mut port, sent + 30), all(sent + 30));
        assert_eq!(heard(&mut port, 1), [pfc()]);
    }
    assert_eq!(port.outside().into_counters().unwrap()["ring.drops"], 0);
    let handed = port.hand_over().unwrap().unwrap();
    let other = inside(&cable.left, || L2Port::adopt(&config(1_000_000), Some(handed)).unwrap());
    assert!(other.ring_plan().frames > port.ring_plan().frames);
}
