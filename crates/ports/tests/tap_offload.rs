//! Offloads of a container's TAP: super-frames stay whole between two containers, what is left open
//! is finished, and what the container's owner chose stays.

#![allow(unsafe_code, reason = "a socket option, and a TAP as an earlier release made it")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sluice_base::{Batch, Buf as _};
use sluice_ports::tap::{KeptTap, KnownTap, TapConfig, TapPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port};
use sluice_switch::{Sink as _, Taken};
use support::{Cable, OPEN, can_have_namespaces, egress, inside, path, run};

const MTU: u16 = 1400;
/// A test fails if nothing happens for so long.
const PATIENCE: Duration = Duration::from_secs(10);
const ONE: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);

fn config(namespace: &str, ip: Ipv4Addr, offload: bool) -> TapConfig {
    TapConfig {
        netns: Some(path(namespace)),
        addresses: vec![(ip.into(), 24)],
        offload,
        ..TapConfig::new("t0", MTU)
    }
}

fn pool() -> Pool {
    Pool::new(PoolConfig::for_mtu(256, MTU)).unwrap().with_large(16).unwrap()
}

/// Frames that one TAP gave.
#[derive(Debug, Default)]
struct Seen {
    /// Size of the largest one in memory.
    size_max: usize,
    /// Largest number of segments of one.
    segments_max: u16,
}

/// Carries all frames of one port to the other one.
fn carry(from: &mut TapPort, to: &mut TapPort, pool: &mut Pool, seen: &mut Seen) {
    let mut batch: Batch<FrameBuf> = Batch::with_limit(64);
    from.read(OPEN, 64, pool, &mut batch).unwrap();
    for buf in batch.drain() {
        seen.size_max = seen.size_max.max(buf.bytes().len());
        seen.segments_max = seen.segments_max.max(buf.segments());
        assert_eq!(to.offer(&egress(&[], Some(&buf))), Taken::All, "the stack takes it at once");
        pool.give_back(buf);
    }
    to.flush().unwrap();
    assert_eq!(to.pending().frames, 0, "the stack takes it at once");
}

/// Carries frames between two ports while `work` runs. Returns what each gave.
fn relay(ports: &mut [TapPort; 2], work: impl FnOnce() + Send) -> [Seen; 2] {
    let (mut pool, mut seen, ended) = (pool(), <[Seen; 2]>::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let [one, other] = &mut *ports;
            while !ended.load(Ordering::Relaxed) {
                carry(one, other, &mut pool, &mut seen[0]);
                carry(other, one, &mut pool, &mut seen[1]);
            }
        });
        let worked = scope.spawn(work).join();
        ended.store(true, Ordering::Relaxed);
        worker.join().unwrap();
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert_eq!(pool.used(), 0, "every slot came back");
    for port in ports {
        let rows = port.outside().into_counters().unwrap();
        assert_eq!((rows["guest_offload"], rows["ring.truncated"]), (0, 0), "{rows:?}");
    }
    seen
}

/// Makes two containers and carries frames between them while `work` runs.
fn between(offload: [bool; 2], work: impl FnOnce(&Cable) + Send) -> [Seen; 2] {
    let cable = Cable::new();
    let sides = [(&cable.left, ONE, offload[0]), (&cable.right, OTHER, offload[1])];
    let mut ports =
        sides.map(|(netns, ip, offload)| TapPort::open(&config(netns, ip, offload)).unwrap());
    relay(&mut ports, || work(&cable))
}

/// Accepts a connection, of which no read waits for ever.
fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let until = Instant::now() + PATIENCE;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                return stream;
            }
            Err(error) => assert!(Instant::now() < until, "nobody connects: {error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends a megabyte of known bytes by TCP from the left container to the right one.
fn transfer(cable: &Cable) {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at * 7 + at / 251).to_le_bytes()[0]).collect();
    let listener = inside(&cable.right, || TcpListener::bind((OTHER, 7)).unwrap());
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut stream = accept(&listener);
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            received
        });
        let address = (OTHER, 7).into();
        let connect = || TcpStream::connect_timeout(&address, PATIENCE).unwrap();
        let mut stream = inside(&cable.left, connect);
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&bytes).unwrap();
        drop(stream);
        receiver.join().unwrap()
    });
    assert!(received == bytes, "{} bytes of {}", received.len(), bytes.len());
}

#[test]
fn super_frames_pass_whole_between_two_containers() {
    if !can_have_namespaces("super_frames_pass_whole_between_two_containers") {
        return;
    }
    let [seen, _] = between([true, true], transfer);
    assert!(seen.size_max > 4 * usize::from(MTU) && seen.segments_max > 4, "{seen:?}");
    // A container without offloads takes them: its kernel cuts them.
    let [seen, _] = between([true, false], transfer);
    assert!(seen.segments_max > 4, "{seen:?}");
}

/// Number of frames that were written to a container's card.
fn written(namespace: &str) -> u64 {
    let text = inside(namespace, || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap());
    let row = text.lines().find_map(|line| line.trim().strip_prefix("t0:")).unwrap();
    // Bytes that the container receives, then frames.
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn segments_for_a_container_are_joined() {
    if !can_have_namespaces("segments_for_a_container_are_joined") {
        return;
    }
    let segments = (1 << 20) / u64::from(MTU);
    let [seen, _] = between([false, true], |cable| {
        transfer(cable);
        let written = written(&cable.right);
        assert!(written < segments / 2, "{written} frames of {segments} segments");
    });
    assert_eq!(seen.segments_max, 1, "they came one by one");
    // None are joined for one without offloads.
    between([false, false], |cable| {
        transfer(cable);
        assert!(written(&cable.right) >= segments);
    });
}

#[test]
fn tap_without_offload_gives_wire_frames_only() {
    if !can_have_namespaces("tap_without_offload_gives_wire_frames_only") {
        return;
    }
    let seen = between([false, false], transfer);
    for seen in &seen {
        assert!(seen.size_max <= usize::from(MTU) + 14 && seen.segments_max == 1, "{seen:?}");
    }
}

#[test]
fn datagrams_sent_together_come_apart() {
    if !can_have_namespaces("datagrams_sent_together_come_apart") {
        return;
    }
    let [seen, _] = between([true, true], |cable| {
        let receiver = inside(&cable.right, || UdpSocket::bind((OTHER, 7)).unwrap());
        receiver.set_read_timeout(Some(PATIENCE)).unwrap();
        let sender = inside(&cable.left, || UdpSocket::bind((ONE, 0)).unwrap());
        let each: i32 = 1000;
        let (at, size) = (&raw const each, 4);
        // SAFETY: a live integer of that size.
        let set = unsafe { libc::setsockopt(sender.as_raw_fd(), 17, 103, at.cast(), size) };
        assert_eq!(set, 0, "UDP_SEGMENT");
        let bytes: Vec<u8> = (0..10_u8).flat_map(|nth| [nth; 1000]).collect();
        sender.send_to(&bytes, (OTHER, 7)).unwrap();
        for nth in 0..10 {
            let mut buffer = [0; 2000];
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 1000);
            assert!(buffer[..1000] == [nth; 1000], "datagram {nth}");
        }
    });
    assert_eq!(seen.segments_max, 10, "{seen:?}");
}

/// Returns true if the kernel of a container leaves segmentation to its card.
fn leaves_segmentation(namespace: &str) -> bool {
    let output = Command::new("ip")
        .args(["netns", "exec", namespace, "ethtool", "-k", "t0"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).contains("tcp-segmentation-offload: on")
}

#[test]
fn offloads_chosen_by_owner_stay_when_taken_up() {
    if !can_have_namespaces("offloads_chosen_by_owner_stay_when_taken_up") {
        return;
    }
    let cable = Cable::new();
    let config = config(&cable.left, ONE, true);
    let kept = KeptTap::open(&config, "sluice test", None).unwrap();
    let (index, is_own) = (kept.index, kept.is_own);
    let (port, file) = kept.keep().unwrap();
    assert!(leaves_segmentation(&cable.left));
    run(&format!("ip netns exec {} ethtool -K t0 tso off", cable.left));
    drop(port);
    let given = config.clone();
    let known = KnownTap { index, is_own, given, file: Some(file) };
    let again = KeptTap::open(&config, "sluice test", Some(known)).unwrap();
    assert!(!leaves_segmentation(&cable.left), "its owner has switched it off");
    // A changed configuration is set.
    let (_, file) = again.keep().unwrap();
    let given = TapConfig { offload: false, ..config.clone() };
    let known = KnownTap { index, is_own, given, file: Some(file) };
    let again = KeptTap::open(&config, "sluice test", Some(known)).unwrap();
    assert!(leaves_segmentation(&cable.left));
    drop(again);
}

/// Returns the largest number of segments that the stack of a container gives the TAP as one.
fn segments_max(namespace: &str) -> u64 {
    let output = Command::new("ip")
        .args(["-details", "-netns", namespace, "link", "show", "dev", "t0"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut words = text.split_whitespace().skip_while(|word| *word != "gso_max_segs");
    words.nth(1).unwrap().parse().unwrap()
}

/// Opens a TAP whose descriptor was closed just now. A child that another test starts has it as
/// well between its fork and its exec.
fn open_again(config: &TapConfig) -> TapPort {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match TapPort::open(config) {
            Ok(port) => return port,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn stack_gives_what_one_datagram_holds() {
    if !can_have_namespaces("stack_gives_what_one_datagram_holds") {
        return;
    }
    let cable = Cable::new();
    // A datagram of IPv4 has 65,507 bytes, VXLAN and Ethernet take 22 beside each packet.
    for (mtu, segments) in [(1_400, 46), (1_450, 44), (9_000, 7), (600, 64)] {
        let port = open_again(&TapConfig { mtu, ..config(&cable.left, ONE, true) });
        assert_eq!(segments_max(&cable.left), segments, "MTU {mtu}");
        drop(port);
    }
    let _port = open_again(&config(&cable.left, ONE, false));
    assert_eq!(segments_max(&cable.left), 65_535, "whose super-frames the kernel cuts");
}

/// Makes a TAP as a release without offloads did.
fn earlier_tap() -> OwnedFd {
    let file = std::fs::File::options().read(true).write(true).open("/dev/net/tun").unwrap();
    rustix::io::ioctl_fionbio(&file, true).unwrap();
    // SAFETY: integers, and a pointer that may be null.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"t0") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = 0x1002; // IFF_TAP | IFF_NO_PI
    // SAFETY: the kernel reads and writes the request, which lives until the call returns.
    let attached = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    assert_eq!(attached, 0);
    file.into()
}

#[test]
fn tap_of_earlier_release_taken_up_without_headers() {
    if !can_have_namespaces("tap_of_earlier_release_taken_up_without_headers") {
        return;
    }
    let cable = Cable::new();
    let file = inside(&cable.left, earlier_tap);
    let other = config(&cable.right, OTHER, true);
    let wanted = config(&cable.left, ONE, true);
    let given = TapConfig { offload: false, addresses: Vec::new(), up: false, ..wanted.clone() };
    let known = KnownTap { index: 0, is_own: true, given, file: Some(file) };
    let taken_up = KeptTap::open(&wanted, "sluice test", Some(known)).unwrap();
    assert!(!taken_up.offload, "what its record says later");
    let (one, _file) = taken_up.keep().unwrap();
    let mut ports = [one, TapPort::open(&other).unwrap()];
    let seen = relay(&mut ports, || transfer(&cable));
    assert_eq!(seen[0].segments_max, 1, "its frames have no headers");
}
