//! Datagrams for UDP sockets without room: held in the port, not lost in the socket.

mod support;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

use sluice_base::{Mac, Nanos, Priority};
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::{Port, SocketHolds};
use sluice_switch::{Hold, Sink as _, Taken};
use sluice_wire::{checksum, ipv4, ipv6, udp};
use support::{Cable, Waiter, can_have_namespaces, egress, inside, kernel_drops, path, run};

const MAC: Mac = Mac([2, 0, 0, 0, 0, 7]);
const CONTAINER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 1);
const CONTAINER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 7);
const SENDER: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 2);
const SENDER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 8);
const FOREVER: SocketHolds = [Some(Hold::Forever); Priority::COUNT];

/// A TAP in a namespace of its own, held by this test as by a worker.
struct Bench {
    cable: Cable,
    port: TapPort,
    begun: Instant,
}

impl Bench {
    fn new(holds: SocketHolds) -> Self {
        let cable = Cable::new();
        let mut config = TapConfig::new("t0", 1500);
        config.netns = Some(path(&cable.left));
        config.mac = Some(MAC);
        config.addresses = vec![(IpAddr::V4(CONTAINER), 24)];
        let port = TapPort::open(&config).unwrap();
        for key in ["all", "t0"] {
            let key = format!("net.ipv6.conf.{key}.disable_ipv6=0");
            run(&format!("ip netns exec {} sysctl -qw {key}", cable.left));
        }
        run(&format!("ip -n {} addr add {CONTAINER6}/64 dev t0 nodad", cable.left));
        let mut bench = Self { cable, port, begun: Instant::now() };
        bench.port.hold_for_sockets(holds);
        assert_eq!(bench.port.sockets().unwrap().lacks, None);
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
        self.port.offer(&egress(bytes, None))
    }

    fn resume(&mut self) -> bool {
        let now = self.now();
        self.port.resume_sockets(now)
    }

    fn lost(&self) -> u64 {
        self.port.kernel_counters().unwrap()["container.udp_rcvbuf_errors"]
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

/// Takes every datagram that is there.
fn drain(socket: &UdpSocket) -> usize {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut buffer).ok()).count()
}

#[test]
fn slow_socket_held_and_resumed_loses_nothing() {
    if !can_have_namespaces("slow_socket_held_and_resumed_loses_nothing") {
        return;
    }
    let mut bench = Bench::new(FOREVER);
    let dropped = kernel_drops("slow_socket_held_and_resumed_loses_nothing", &[&bench.cable.left]);
    let slow = bench.socket("0.0.0.0:7000", 20_000);
    let fast = bench.socket("0.0.0.0:7001", 20_000);
    let waiter = Waiter::new(&bench.port);
    let (mut taken, mut received, mut beside, mut woken) = (0, 0, 0, 0);
    for round in 0..200 {
        for size in [0, 100, 700, 1000, 1472] {
            taken += usize::from(bench.offer(&datagram(7000, 9, size)) == Taken::All);
            assert_eq!(bench.offer(&datagram(7001, 9, size)), Taken::All, "it has room");
            beside += drain(&fast);
        }
        if round % 4 == 3 {
            received += drain(&slow);
            while waiter.wait(0) {
                woken += 1;
            }
            bench.resume();
        }
    }
    let end = Instant::now() + Duration::from_secs(10);
    while received < taken && Instant::now() < end {
        received += drain(&slow);
        waiter.wait(20);
        bench.resume();
    }
    let shot = bench.port.sockets().unwrap();
    println!("taken {taken}, received {received}, woken {woken}, {:?}", shot.counters);
    assert_eq!((received, beside), (taken, 1000));
    assert!(shot.is_signalled && shot.held.is_empty() && shot.counters.waited > 100);
    assert_eq!(bench.lost(), 0);
}
