//! TAPs whose full ring holds its senders (`IFF_BACKPRESSURE`, Linux 7.3): nothing is lost while
//! nobody reads, and what that costs TCP.
//!
//! ```text
//!   one ─ TAP ─┐
//!              ├ host           datagrams of 16 sockets, as fast as they are taken
//!   two ─ TAP ─┘
//! ```
//!
//! On a machine with an older kernel both run in a virtual machine that has a newer one.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::kernel::Kernel;
use crate::rig::newest::Guest;
use crate::rig::{Daemon, Net, Netns, say, skip};
use rustix::net::sockopt;
use sluice_base::{Batch, Buf as _, ByteCount, Priority, PriorityMask};
use sluice_ports::probe;
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port};
use sluice_switch::{Egress, Sink as _, Taken, Window};
use sluice_testkit::bound::is_soak;

const ONE: Ipv4Addr = Ipv4Addr::new(10, 58, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 58, 0, 2);
const PORT: u16 = 9058;
const DATAGRAM_BYTES: usize = 1000;
const SENDERS: usize = 16;
/// Size of the sender's ring, which is full soon.
const RING_FRAMES: u32 = 512;
const BUFFER_BYTES: usize = 32 << 20;
/// Longest time for which a sender is held.
const HELD_MAX: Duration = Duration::from_secs(30);
/// Time without a datagram after which the rest is lost.
const QUIET: Duration = Duration::from_secs(5);
/// Threads that send by TCP at the same time, and time of one measurement.
const STREAMS: usize = 8;
const SPAN: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// Returns true if a test needs a newer kernel than this one.
fn is_too_old(test: &str) -> bool {
    let is_old = !probe::tap_features().is_ok_and(|features| features.back_pressure);
    if is_old {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        say(&format!("SKIPPED {test}: TAPs of Linux {release} hold nobody, those of 7.3 do"));
    }
    is_old
}

fn daemon(net: &Net, host: &Netns, containers: [&Netns; 2]) -> Daemon {
    let mut text =
        "policy = \"ZZ\"\ndata_hung_ms = 60000\n[[vnet]]\nname = \"blue\"\nmtu = 1450\n".to_owned();
    for (at, netns) in containers.iter().enumerate() {
        text += &format!(
            "[[port]]\nname = \"c{at}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"eth0\"\n\
             netns = \"/run/netns/{}\"\nmac = \"02:58:00:00:00:0{}\"\n\
             ring_frames = {RING_FRAMES}\n",
            netns.name(),
            at + 1
        );
    }
    let daemon = net.daemon(host, "h1", &text);
    for (netns, own, other, last) in [(containers[0], ONE, TWO, 2), (containers[1], TWO, ONE, 1)] {
        netns.ip(&format!("addr add {own}/24 dev eth0"));
        netns.ip("link set eth0 up");
        // No datagram waits for an answer of ARP.
        let mac = format!("02:58:00:00:00:0{last}");
        netns.ip(&format!("neigh replace {other} lladdr {mac} dev eth0 nud permanent"));
    }
    daemon
}

/// Ends threads, also when a test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn send(socket: &UdpSocket, sent: &AtomicU64, done: &AtomicBool) {
    socket.set_write_timeout(Some(HELD_MAX)).unwrap();
    socket.connect(SocketAddrV4::new(TWO, PORT)).unwrap();
    while !done.load(Ordering::Relaxed) {
        socket.send(&[7; DATAGRAM_BYTES]).expect("a held sender waits, and gets no error");
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

fn receive(socket: &UdpSocket, received: &AtomicU64, done: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let (mut bytes, mut last) = ([0; 2048], Instant::now());
    while !done.load(Ordering::Relaxed) || last.elapsed() < QUIET {
        if socket.recv(&mut bytes).is_ok() {
            received.fetch_add(1, Ordering::Relaxed);
            last = Instant::now();
        }
    }
}

/// Stops data three times. Returns the largest number of datagrams that were on their way when
/// everybody was held.
fn stop_three_times(daemon: &Daemon, sent: &AtomicU64, received: &AtomicU64) -> u64 {
    let mut most = 0;
    for round in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        daemon.hang_data(true);
        std::thread::sleep(Duration::from_secs(2));
        let held = sent.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(1));
        let now = sent.load(Ordering::Relaxed);
        let arrived = received.load(Ordering::Relaxed);
        daemon.hang_data(false);
        assert_eq!(now, held, "round {round}: nobody sends while nobody reads");
        most = most.max(held - arrived);
    }
    most
}

#[test]
#[ignore = "live: needs root"]
fn stopped_data_holds_tap_senders() {
    let test = "stopped_data_holds_tap_senders";
    if skip(test, &[]) || is_too_old(test) {
        return;
    }
    let mut net = Net::new("pressure");
    let [host, one, two] = ["host", "one", "two"].map(|name| net.netns(name));
    let daemon = daemon(&net, &host, [&one, &two]);
    say(&daemon.print(&["show", "ports"]));
    let row = daemon.row("ports", "port", "c0");
    assert_eq!((row["kind"].as_str(), row["lossless"].as_str()), (Some("tap"), Some("yes")));
    assert!(one.run("tc qdisc show dev eth0").contains("pfifo"), "{}", one.run("tc qdisc"));
    let kernel = Kernel::watch(test, &net);
    let (sent, received, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let receiver = two.udp(TWO, PORT);
    sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_BYTES).unwrap();
    let senders: Vec<UdpSocket> = (0..SENDERS).map(|_| one.udp(ONE, 0)).collect();
    let most = std::thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| receive(&receiver, &received, &done));
        for socket in &senders {
            scope.spawn(|| send(socket, &sent, &done));
        }
        stop_three_times(&daemon, &sent, &received)
    });
    let (sent, received) = (sent.into_inner(), received.into_inner());
    say(&format!("{test}: {sent} sent, {received} received; {most} held at most"));
    daemon.drained();
    assert!(most > u64::from(RING_FRAMES), "{most}: more than the ring takes");
    assert_eq!(received, sent, "{}", daemon.show("ports"));
    daemon.assert_lossless();
    if let Some(kernel) = kernel {
        kernel.assert_no_loss(&[]);
    }
}

#[test]
#[ignore = "live: needs root"]
fn newest_kernel_holds_tap_senders() {
    let test = "newest_kernel_holds_tap_senders";
    if skip(test, &[]) {
        return;
    }
    let net = Net::new("newest");
    let guest = Guest { image: "backports", options: &[], tests: 1 };
    let inside = "backpressure::stopped_data_holds_tap_senders";
    guest.runs(test, &net, inside, Duration::from_secs(240));
}

fn port(netns: &Netns, ip: Ipv4Addr, holds: bool, ring_frames: u32) -> TapPort {
    let config = TapConfig {
        netns: Some(PathBuf::from(format!("/run/netns/{}", netns.name()))),
        addresses: vec![(ip.into(), 24)],
        offload: true,
        ring_frames,
        holds,
        ..TapConfig::new("eth0", 1450)
    };
    TapPort::open(&config).unwrap()
}

const OPEN: Window = Window {
    frames: u32::MAX,
    bytes: ByteCount(u64::MAX),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

/// Carries what one port has to the other. Returns the number of frames.
fn carry(from: &mut TapPort, to: &mut TapPort, pool: &mut Pool) -> usize {
    let mut batch: Batch<FrameBuf> = Batch::with_limit(64);
    let frames = from.read(OPEN, 64, pool, &mut batch).unwrap().frames;
    for buf in batch.drain() {
        let (strip, first, priority) = (0, 0, Priority::ZERO);
        let size = buf.size();
        let egress =
            Egress { header: &[], buf: Some(&buf), strip, size, first, priority, tunnel: None };
        assert_eq!(to.offer(&egress), Taken::All, "the stack takes it at once");
        pool.give_back(buf);
    }
    to.flush().unwrap();
    frames
}

/// Returns the Mbit/s of eight connections from one container to another.
fn rate(holds: bool, ring_frames: u32) -> u64 {
    let mut net = Net::new("rate");
    let [one, two] = ["one", "two"].map(|name| net.netns(name));
    let mut ports = [port(&one, ONE, holds, ring_frames), port(&two, TWO, holds, ring_frames)];
    let mut pool = Pool::new(PoolConfig::for_mtu(256, 1450)).unwrap().with_large(64).unwrap();
    let (received, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let listener = two.inside(|| TcpListener::bind((TWO, PORT)).unwrap());
    let mut ends = Vec::new();
    std::thread::scope(|scope| {
        let _done = Done(&done);
        let (done, received) = (&done, &received);
        scope.spawn(move || {
            let [one, two] = &mut ports;
            while !done.load(Ordering::Relaxed) {
                if carry(one, two, &mut pool) + carry(two, one, &mut pool) == 0 {
                    std::thread::yield_now();
                }
            }
        });
        for _ in 0..STREAMS {
            let mut to = one.inside(|| TcpStream::connect((TWO, PORT)).unwrap());
            let mut from = listener.accept().unwrap().0;
            ends.extend([to.try_clone().unwrap(), from.try_clone().unwrap()]);
            scope.spawn(move || while to.write_all(&[7; 1 << 16]).is_ok() {});
            scope.spawn(move || {
                let mut bytes = vec![0; 1 << 17];
                while let Ok(size @ 1..) = from.read(&mut bytes) {
                    received.fetch_add(size as u64, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(Duration::from_secs(1));
        let (before, begun) = (received.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(SPAN);
        let bytes = received.load(Ordering::Relaxed) - before;
        // Nobody waits for what is on its way.
        for end in &ends {
            _ = end.shutdown(Shutdown::Both);
        }
        bytes * 8 / u64::try_from(begun.elapsed().as_micros()).unwrap()
    })
}

#[test]
#[ignore = "live: needs root"]
fn eight_streams_with_and_without_hold() {
    let test = "eight_streams_with_and_without_hold";
    if skip(test, &[]) || is_too_old(test) {
        return;
    }
    for ring_frames in [TapConfig::RING_FRAMES, 500] {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (at, holds) in [false, true].into_iter().enumerate() {
                rates[at].push(rate(holds, ring_frames));
                say(&format!(
                    "ring {ring_frames}, holds {holds}: {} Mbit/s",
                    rates[at].last().unwrap()
                ));
            }
        }
        for (holds, mut all) in [false, true].into_iter().zip(rates) {
            all.sort_unstable();
            let (min, median, max) = (all[0], all[ROUNDS / 2], all[ROUNDS - 1]);
            say(&format!("ring {ring_frames}, holds {holds}: {min} / {median} / {max} Mbit/s"));
        }
    }
}

/// Not part of the live tests of a change: it measures for minutes.
#[test]
#[ignore = "live: needs root"]
fn newest_kernel_eight_streams_with_and_without_hold() {
    let test = "newest_kernel_eight_streams_with_and_without_hold";
    if !is_soak() {
        return say(&format!("SKIPPED {test}: it measures for minutes; SLUICE_SOAK=1 runs it"));
    }
    if skip(test, &[]) {
        return;
    }
    let net = Net::new("streams");
    let guest = Guest { image: "backports", options: &[], tests: 1 };
    let inside = "backpressure::eight_streams_with_and_without_hold";
    guest.runs(test, &net, inside, Duration::from_secs(1200));
}
