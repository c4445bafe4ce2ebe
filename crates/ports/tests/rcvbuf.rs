//! Datagrams for UDP sockets without room: held in the port, not lost in the socket.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use sluice_base::{Batch, Mac, Nanos, Priority};
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::veth::{VethConfig, VethPort};
use sluice_ports::{Port, ReceivingSockets, SocketHolds};
use sluice_switch::{Hold, Sink as _, Taken};
use sluice_wire::{checksum, ipv4, ipv6, udp};
use support::{
    Cable, OPEN, Waiter, can_have_namespaces, egress, eventually, inside, kernel_drops, path, pool,
    run,
};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const CONTAINER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const CONTAINER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
const SENDER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 8);
const MTU: u16 = 9000;
const FOREVER: SocketHolds = [Some(Hold::Forever); Priority::COUNT];

/// Kind of a container's card.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Tap,
    Veth,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Tap, Self::Veth];

    fn open(self, netns: &str) -> Box<dyn Port> {
        let addresses = vec![(IpAddr::V4(CONTAINER), 24)];
        match self {
            Self::Tap => {
                let config = TapConfig::new("t0", MTU);
                let netns = Some(path(netns));
                let config = TapConfig { netns, mac: Some(MAC), addresses, ..config };
                Box::new(TapPort::open(&config).unwrap())
            }
            Self::Veth => {
                let config = VethConfig::new("t0", MTU);
                let netns = Some(path(netns));
                let config = VethConfig { netns, mac: Some(MAC), addresses, ..config };
                Box::new(VethPort::open(&config).unwrap())
            }
        }
    }
}

/// A card in a namespace of its own, held by this test as by a worker.
struct Bench {
    cable: Cable,
    port: Box<dyn Port>,
    begun: Instant,
}

impl Bench {
    fn new(kind: Kind, holds: SocketHolds) -> Self {
        let cable = Cable::new();
        let port = kind.open(&cable.left);
        for key in ["all", "t0"] {
            let key = format!("net.ipv6.conf.{key}.disable_ipv6=0");
            run(&format!("ip netns exec {} sysctl -qw {key}", cable.left));
        }
        run(&format!("ip -n {} addr add {CONTAINER6}/64 dev t0 nodad", cable.left));
        let mut bench = Self { cable, port, begun: Instant::now() };
        // It learns of its carrier when it is read.
        let (mut pool, mut batch) = (pool(64), Batch::with_limit(64));
        assert!(eventually(|| {
            bench.port.read(OPEN, 64, &mut pool, &mut batch).unwrap();
            batch.drain().for_each(|buf| pool.give_back(buf));
            bench.port.outside().state().device.up == Some(true)
        }));
        bench.port.read(OPEN, 0, &mut pool, &mut batch).unwrap();
        bench.sockets().hold(holds);
        assert_eq!(bench.sockets().shot().lacks, None);
        bench
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap())
    }

    fn socket(&self, at: &str, buffer: usize) -> UdpSocket {
        inside(&self.cable.left, || {
            let socket = UdpSocket::bind(at).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(&socket, buffer / 2).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
    }

    fn offer(&mut self, bytes: &[u8]) -> Taken {
        let taken = self.port.offer(&egress(bytes, None));
        self.port.flush().unwrap();
        taken
    }

    fn resume(&mut self) -> bool {
        let now = self.now();
        self.sockets().resume(now)
    }

    fn sockets(&mut self) -> &mut dyn ReceivingSockets {
        self.port.receiving_sockets().unwrap()
    }

    fn lost(&self) -> u64 {
        self.port.outside().into_counters().unwrap()["container.udp_rcvbuf_errors"]
    }
}

/// A frame with a datagram of `size` bytes for this port of the container.
fn datagram(port: u16, source: u16, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; 14 + 20 + 8 + size];
    bytes[..6].copy_from_slice(&MAC.0);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 8]);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[14] = 0x45;
    bytes[16..18].copy_from_slice(&u16::try_from(28 + size).unwrap().to_be_bytes());
    bytes[22] = 64;
    bytes[23] = ipv4::PROTOCOL_UDP;
    bytes[26..30].copy_from_slice(&SENDER.octets());
    bytes[30..34].copy_from_slice(&CONTAINER.octets());
    let sum = checksum::internet(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    put_ports(&mut bytes[34..], port, source, size);
    bytes
}

fn datagram6(port: u16, source: u16, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; 14 + ipv6::HEADER_SIZE + 8 + size];
    bytes[..6].copy_from_slice(&MAC.0);
    bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 8]);
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    bytes[14] = 0x60;
    bytes[18..20].copy_from_slice(&u16::try_from(8 + size).unwrap().to_be_bytes());
    (bytes[20], bytes[21]) = (ipv4::PROTOCOL_UDP, 64);
    bytes[22..38].copy_from_slice(&SENDER6.octets());
    bytes[38..54].copy_from_slice(&CONTAINER6.octets());
    put_ports(&mut bytes[54..], port, source, size);
    let mut pseudo = bytes[22..54].to_vec();
    pseudo.extend(u32::try_from(8 + size).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, ipv4::PROTOCOL_UDP]);
    pseudo.extend(&bytes[54..]);
    let sum = checksum::internet(&pseudo);
    bytes[60..62].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    bytes
}

fn put_ports(bytes: &mut [u8], port: u16, source: u16, size: usize) {
    bytes[..2].copy_from_slice(&source.to_be_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    let size = u16::try_from(udp::HEADER_SIZE + size).unwrap();
    bytes[4..6].copy_from_slice(&size.to_be_bytes());
}

/// Takes so many datagrams, if they are there.
fn drain(socket: &UdpSocket, count: usize) -> usize {
    let mut buffer = [0; 10_000];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).take(count).count()
}

/// Takes a datagram, which behind a veth pair is under way for a moment, or waits until others have
/// arrived.
fn take_one(bench: &mut Bench, socket: &UdpSocket) {
    let end = Instant::now() + Duration::from_secs(10);
    while drain(socket, 1) == 0 {
        assert!(Instant::now() < end, "it does not come");
        bench.resume();
    }
}

/// Numbers that look random, the same each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

/// Panics if the kernel dropped a datagram at a socket.
fn assert_none_lost(bench: &Bench, kernel: Option<sluice_dropwatch::Drops>) {
    assert_eq!(bench.lost(), 0);
    if let Some(kernel) = kernel {
        assert_eq!(kernel.losses(), [], "the kernel lost what no counter has");
    }
}

/// Offers datagrams to slow sockets until all were read, and returns how many were.
fn run_load(bench: &mut Bench, slow: &[(u16, UdpSocket)], count: usize, draw: &mut Draw) -> usize {
    let waiter = Waiter::new(&*bench.port);
    let (mut taken, mut received) = (0, 0);
    for _ in 0..count {
        let (port, socket) = &slow[draw.below(slow.len())];
        let source = 1 + u16::try_from(draw.below(8)).unwrap();
        let most = [64, 1473, 8953][draw.below(3)];
        let size = draw.below(most);
        let frame = match draw.below(3) {
            0 => datagram6(*port, source, size),
            _ => datagram(*port, source, size),
        };
        taken += usize::from(bench.offer(&frame) == Taken::All);
        if draw.below(40) == 0 {
            received += drain(socket, 1 + draw.below(60));
        }
        bench.resume();
    }
    let end = Instant::now() + Duration::from_secs(20);
    while received < taken && Instant::now() < end {
        received += slow.iter().map(|(_, socket)| drain(socket, usize::MAX)).sum::<usize>();
        waiter.wait(20);
        bench.resume();
    }
    assert_eq!(received, taken, "{:?}", bench.sockets().shot());
    taken
}

#[test]
fn datagrams_of_any_size_never_overflow_buffer() {
    let test = "datagrams_of_any_size_never_overflow_buffer";
    if !can_have_namespaces(test) {
        return;
    }
    for kind in Kind::ALL {
        any_size(test, kind);
    }
}

fn any_size(test: &str, kind: Kind) {
    let mut bench = Bench::new(kind, FOREVER);
    let kernel = kernel_drops(test, &[&bench.cable.left]);
    // The smallest buffer has room for one datagram.
    let buffers = [0, 5_000, 20_000, 100_000, 212_992];
    let slow: Vec<_> = (7000..)
        .zip(buffers)
        .map(|(port, buffer)| (port, bench.socket(&format!("[::]:{port}"), buffer)))
        .collect();
    let taken = run_load(&mut bench, &slow, 20_000, &mut Draw(1));
    let counters = bench.sockets().shot().counters;
    println!("{kind:?}: {taken} taken, {counters:?}");
    assert!(counters.waited > 100 && counters.full > 100, "{counters:?}");
    assert_none_lost(&bench, kernel);
}

#[test]
fn connected_and_reuseport_sockets_held_apart() {
    let test = "connected_and_reuseport_sockets_held_apart";
    if !can_have_namespaces(test) {
        return;
    }
    for kind in Kind::ALL {
        connected_and_group(test, kind);
    }
}

fn connected_and_group(test: &str, kind: Kind) {
    let mut bench = Bench::new(kind, FOREVER);
    let kernel = kernel_drops(test, &[&bench.cable.left]);
    let namespace = bench.cable.left.clone();
    let open = |port: u16, peer: Option<u16>| {
        inside(&namespace, || {
            use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
            let fd = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            sockopt::set_socket_reuseport(&fd, true).unwrap();
            sockopt::set_socket_recv_buffer_size(&fd, 5_000).unwrap();
            bind(&fd, &std::net::SocketAddrV4::new(CONTAINER, port)).unwrap();
            if let Some(peer) = peer {
                connect(&fd, &std::net::SocketAddrV4::new(SENDER, peer)).unwrap();
            }
            let socket = UdpSocket::from(fd);
            socket.set_nonblocking(true).unwrap();
            socket
        })
    };
    // Two connected sockets at one port: the one that nobody reads does not hold the other.
    let (stopped, read) = (open(7000, Some(1)), open(7000, Some(2)));
    let mut sent = [0; 2];
    for _ in 0..200 {
        sent[0] += usize::from(bench.offer(&datagram(7000, 1, 1000)) == Taken::All);
        assert_eq!(bench.offer(&datagram(7000, 2, 1000)), Taken::All);
        take_one(&mut bench, &read);
        sent[1] += 1;
    }
    assert_eq!((sent[1], bench.sockets().shot().held.len()), (200, 1));
    // A group: each flow has its socket, chosen by the kernel's hash of all four.
    let group = [open(7001, None), open(7001, None), open(7001, None)];
    let mut taken = 0;
    for round in 0..600 {
        let frame = datagram(7001, 1 + round % 50, 1000);
        taken += usize::from(bench.offer(&frame) == Taken::All);
    }
    assert!(bench.sockets().shot().held.len() >= 3);
    let mut received = [0, 0];
    let end = Instant::now() + Duration::from_secs(10);
    while received != [sent[0], taken] && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        received[0] += drain(&stopped, usize::MAX);
        received[1] += group.iter().map(|socket| drain(socket, usize::MAX)).sum::<usize>();
        bench.resume();
    }
    assert_eq!(received, [sent[0], taken]);
    assert_none_lost(&bench, kernel);
}

/// Takes datagrams until `count` have come.
fn take_all(bench: &mut Bench, socket: &UdpSocket, count: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    let mut received = 0;
    while received < count {
        assert!(Instant::now() < end, "{received} of {count}: {:?}", bench.sockets().shot());
        received += drain(socket, usize::MAX);
        bench.resume();
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn resumed_frames_are_never_written_off() {
    let test = "resumed_frames_are_never_written_off";
    if !can_have_namespaces(test) {
        return;
    }
    let mut bench = Bench::new(Kind::Veth, FOREVER);
    // Its half is more frames than the port sends at a time, and less than wait.
    let socket = bench.socket("0.0.0.0:7000", 212_992);
    for _ in 0..20 {
        let mut taken = 0;
        while bench.offer(&datagram(7000, 1, 1000)) == Taken::All {
            taken += 1;
        }
        take_all(&mut bench, &socket, taken);
    }
    let counters = bench.sockets().shot().counters;
    assert!(counters.waited > 1000, "{counters:?}");
    assert_eq!((counters.written_off, bench.lost()), (0, 0));
}

#[test]
fn frames_that_never_arrive_hold_no_socket() {
    let test = "frames_that_never_arrive_hold_no_socket";
    if !can_have_namespaces(test) {
        return;
    }
    let mut bench = Bench::new(Kind::Veth, FOREVER);
    let socket = bench.socket("0.0.0.0:7000", 20_000);
    let netns = bench.cable.left.clone();
    run(&format!("ip -n {netns} link set t0 down"));
    // The port does not know yet, and the kernel drops them without a word.
    for _ in 0..3 {
        assert_eq!(bench.offer(&datagram(7000, 1, 1000)), Taken::All);
    }
    run(&format!("ip -n {netns} link set t0 up"));
    let mut taken = 0;
    while bench.offer(&datagram(7000, 1, 1000)) == Taken::All {
        taken += 1;
    }
    // Others are never silent.
    let other = [[0xff; 6], [2, 0, 0, 0, 0, 8], [0x88, 0xb5, 0, 0, 0, 0]].concat();
    let end = Instant::now() + Duration::from_secs(30);
    let mut received = 0;
    while received < taken {
        assert!(Instant::now() < end, "{received} of {taken}: {:?}", bench.sockets().shot());
        assert_eq!(bench.offer(&other), Taken::All);
        received += drain(&socket, usize::MAX);
        bench.resume();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(bench.sockets().shot().counters.written_off, 3);
}

#[test]
fn drained_socket_wakes_port_without_timer() {
    let test = "drained_socket_wakes_port_without_timer";
    if !can_have_namespaces(test) {
        return;
    }
    let mut bench = Bench::new(Kind::Tap, FOREVER);
    let socket = bench.socket("0.0.0.0:7000", 20_000);
    let waiter = Waiter::new(&*bench.port);
    while bench.offer(&datagram(7000, 1, 1000)) == Taken::All {}
    // Time stands still for the gate, so that it never looks by itself.
    assert!(!bench.sockets().resume(Nanos::ZERO));
    let waiting = bench.port.pending().frames;
    assert!(waiting > 0);
    while waiter.wait(0) {}
    let mut received = drain(&socket, usize::MAX);
    assert!(waiter.wait(1000));
    assert!(bench.sockets().resume(Nanos::ZERO));
    while bench.port.pending().frames > 0 {
        received += drain(&socket, usize::MAX);
        assert!(bench.sockets().resume(Nanos::ZERO), "each drain is told");
    }
    assert!(received > 0 && bench.lost() == 0);
    assert!(bench.sockets().shot().held.is_empty());
}

#[test]
fn closed_port_reports_frames_that_wait() {
    let test = "closed_port_reports_frames_that_wait";
    if !can_have_namespaces(test) {
        return;
    }
    for kind in Kind::ALL {
        let mut bench = Bench::new(kind, FOREVER);
        let _socket = bench.socket("0.0.0.0:7000", 20_000);
        while bench.offer(&datagram(7000, 1, 1000)) == Taken::All {}
        let waiting = bench.port.pending().frames;
        bench.port.close().unwrap();
        assert_eq!((bench.port.lost().total().frames, bench.port.pending().frames), (waiting, 0));
    }
}

/// Prints what an offered datagram costs with and without the gate, to a socket that is drained.
#[test]
#[ignore = "measures: needs root and a quiet machine"]
fn cost_of_gate_for_each_datagram() {
    const ROUNDS: usize = 11;
    const DATAGRAMS: u32 = 20_000;
    let mut bench = Bench::new(Kind::Tap, FOREVER);
    let socket = bench.socket("0.0.0.0:7000", 212_992);
    for size in [18, 1000] {
        let frame = datagram(7000, 9, size);
        let mut measured = [Vec::new(), Vec::new()];
        for round in 0..2 * ROUNDS {
            let holds = if round % 2 == 0 { FOREVER } else { [None; Priority::COUNT] };
            bench.sockets().hold(holds);
            let mut spent = Duration::ZERO;
            for _ in 0..DATAGRAMS / 50 {
                let begun = Instant::now();
                for _ in 0..50 {
                    assert_eq!(bench.offer(&frame), Taken::All);
                }
                spent += begun.elapsed();
                drain(&socket, usize::MAX);
                bench.resume();
            }
            measured[round % 2].push(spent.as_secs_f64() * 1e9 / f64::from(DATAGRAMS));
        }
        for (values, subject) in measured.iter_mut().zip(["held", "not held"]) {
            values.sort_by(f64::total_cmp);
            let middle = values[ROUNDS / 2];
            println!(
                "result: {{\"measure\": \"offer\", \"subject\": \"{subject}\", \
                 \"unit\": \"ns\", \"values\": {values:?}, \"median\": {middle:?}, \
                 \"context\": {{\"bytes\": {size}}}}}"
            );
        }
    }
    assert_eq!(bench.lost(), 0);
}
