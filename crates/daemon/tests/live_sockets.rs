//! UDP sockets of containers that take all, a tenth, a hundredth and nothing of what comes: nothing
//! is lost in them, and the fast one is as fast as if it were alone.
//!
//! ```text
//!   s0 ─ veth ─┐                                   ┌─ :7000  reads all
//!   s1 ─ veth ─┤ host, or h1 ══ up0 ══ h2 ─ card ─ ┤─ :7001  a tenth
//!   s2 ─ veth ─┤                    of a container ├─ :7002  a hundredth
//!   s3 ─ veth ─┘                                   └─ :7003  nothing
//! ```
//!
//! Each sender has two sockets that send 1,000 datagrams a second each, and wait where they are
//! held. In the end all read what is left, and the counts have to agree.

mod rig;

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rig::kernel::Kernel;
use rig::member::member;
use rig::{Daemon, Net, Netns, cable, say, skip, wait_for};

/// Datagrams a second of each socket that sends.
const RATE: u32 = 1000;
/// Sockets of each sender.
const SOCKETS: u16 = 2;
/// Shares of their datagrams that the receivers take, in thousandths.
const SHARES: [u32; 4] = [1000, 100, 10, 0];
const PORT: u16 = 7000;
/// Where the receivers' sockets are.
const RECEIVER: u8 = 100;
const SIZE: usize = 1000;
/// How long a receiver waits for another datagram in the end.
const QUIET: Duration = Duration::from_secs(3);

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 57, 0, last)
}

fn mac(last: u8) -> String {
    format!("02:57:00:00:00:{last:02x}")
}

/// Length of a run.
fn span() -> Duration {
    let soak = std::env::var_os("SLUICE_SOAK").is_some_and(|word| word == "1");
    Duration::from_secs(if soak { 60 } else { 3 })
}

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
struct Case {
    daemons: Vec<Daemon>,
    net: Net,
    senders: Vec<Netns>,
    receiver: Netns,
}

/// Shape of a test.
#[derive(Clone, Copy)]
struct Shape {
    word: &'static str,
    hosts: usize,
    /// Kind of the receivers' card.
    kind: &'static str,
    hold: &'static str,
}

impl Case {
    fn new(shape: Shape) -> Self {
        let mut net = Net::new(shape.word);
        let hosts: Vec<Netns> = (1..=2).map(|host| net.netns(&format!("h{host}"))).collect();
        let senders: Vec<Netns> = (0..SHARES.len()).map(|at| net.netns(&format!("s{at}"))).collect();
        let receiver = net.netns("rx");
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let mut ports: Vec<(usize, String)> = Vec::new();
        for (at, netns) in senders.iter().enumerate() {
            let last = u8::try_from(at + 1).unwrap();
            ports.push((0, port(&format!("s{at}"), "veth", netns, last)));
        }
        ports.push((shape.hosts - 1, port("rx", shape.kind, &receiver, RECEIVER)));
        let certificates = net.certificates(&["h1", "h2"]);
        let daemon = |own: usize| {
            let own_ports: String =
                ports.iter().filter(|(host, _)| *host == own).map(|(_, text)| &**text).collect();
            let head = format!("hold = \"{}\"", shape.hold);
            let text = member(own, &certificates, &head, &own_ports);
            let text = text.replace("policy = \"ZL\"", "policy = \"ZZ\"");
            net.daemon(&hosts[own], &format!("h{}", own + 1), &text)
        };
        let daemons = vec![daemon(0), daemon(1)];
        let case = Self { daemons, net, senders, receiver };
        for daemon in &case.daemons {
            wait_for("the hosts are connected", || daemon.is_connected());
        }
        let all = case.senders.iter().zip(1..).chain([(&case.receiver, RECEIVER)]);
        for (netns, last) in all {
            netns.ip(&format!("addr add {}/24 dev eth0", address(last)));
            netns.ip("link set eth0 up");
        }
        for (sender, last) in case.senders.iter().zip(1..) {
            wait_for("the receiver answers", || {
                let to = address(RECEIVER);
                sender.attempt(&format!("ping -c 1 -W 1 {to}")).status.success()
            });
            let to = address(RECEIVER);
            let mac_of = mac(RECEIVER);
            sender.ip(&format!("neigh replace {to} lladdr {mac_of} dev eth0 nud permanent"));
            let (from, own) = (address(last), mac(last));
            case.receiver.ip(&format!("neigh replace {from} lladdr {own} dev eth0 nud permanent"));
        }
        case
    }

    fn host_of_receiver(&self, shape: Shape) -> &Daemon {
        &self.daemons[shape.hosts - 1]
    }
}

fn port(name: &str, kind: &str, netns: &Netns, last: u8) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\nvnet = \"blue\"\ndevice = \"eth0\"\n\
         netns = \"/run/netns/{}\"\nmac = \"{}\"\n",
        netns.name(),
        mac(last)
    )
}

/// Senders and receivers at work, by receiver.
struct Load {
    sent: Vec<Arc<AtomicU64>>,
    received: Vec<Arc<AtomicU64>>,
    sends: Arc<AtomicBool>,
    reads_all: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Begins. `senders` are the namespaces and addresses of those for each receiver.
    fn start(senders: &[(&Netns, Ipv4Addr)], receiver: (&Netns, Ipv4Addr)) -> Self {
        let count = || SHARES.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let mut load = Self {
            sent: count(),
            received: count(),
            sends: Arc::new(AtomicBool::new(true)),
            reads_all: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        for (at, share) in SHARES.iter().enumerate() {
            let port = PORT + u16::try_from(at).unwrap();
            let socket = receiver.0.udp(receiver.1, port);
            let (count, all) = (load.received[at].clone(), load.reads_all.clone());
            let rate = share * RATE * u32::from(SOCKETS) / 1000;
            load.threads.push(std::thread::spawn(move || receive(&socket, rate, &count, &all)));
            for _ in 0..SOCKETS {
                let socket = senders[at].0.udp(senders[at].1, 0);
                let to = SocketAddrV4::new(receiver.1, port);
                let (count, goes_on) = (load.sent[at].clone(), load.sends.clone());
                load.threads.push(std::thread::spawn(move || send(&socket, to, &count, &goes_on)));
            }
        }
        load
    }

    /// Returns what was sent to each receiver, and what came there so far.
    fn counts(&self) -> [Vec<u64>; 2] {
        [&self.sent, &self.received]
            .map(|all| all.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }

    /// Stops the senders, lets all receivers read the rest, and returns the counts.
    fn end(self) -> [Vec<u64>; 2] {
        self.sends.store(false, Ordering::Relaxed);
        self.reads_all.store(true, Ordering::Relaxed);
        let counts = || {
            [&self.sent, &self.received].map(|all| {
                all.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<u64>>()
            })
        };
        for thread in self.threads {
            thread.join().unwrap();
        }
        counts()
    }
}

/// Sends at [`RATE`], and waits where the card holds it.
fn send(socket: &UdpSocket, to: SocketAddrV4, count: &AtomicU64, goes_on: &AtomicBool) {
    socket.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    socket.connect(to).unwrap();
    let mut due = Instant::now();
    while goes_on.load(Ordering::Relaxed) {
        due = due.max(Instant::now() - Duration::from_millis(20)) + Duration::from_secs(1) / RATE;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if socket.send(&[7; SIZE]).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Takes `rate` datagrams a second, and all in the end until none has come for [`QUIET`].
fn receive(socket: &UdpSocket, rate: u32, count: &AtomicU64, all: &AtomicBool) {
    let mut buffer = [0; 2048];
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut due = Instant::now();
    while !all.load(Ordering::Relaxed) {
        let is_full_rate = rate == RATE * u32::from(SOCKETS);
        if rate == 0 {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        if !is_full_rate {
            due = due.max(Instant::now()) + Duration::from_secs(1) / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        count.fetch_add(u64::from(socket.recv(&mut buffer).is_ok()), Ordering::Relaxed);
    }
    socket.set_read_timeout(Some(QUIET)).unwrap();
    while socket.recv(&mut buffer).is_ok() {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs the load on a case, and requires that nothing is lost.
fn lossless(test: &str, shape: Shape) {
    if skip(test, &["ping"]) {
        return;
    }
    let case = Case::new(shape);
    let kernel = Kernel::watch(test, &case.net);
    let senders: Vec<_> =
        case.senders.iter().zip(1..).map(|(netns, last)| (netns, address(last))).collect();
    let load = Load::start(&senders, (&case.receiver, address(RECEIVER)));
    std::thread::sleep(span());
    let daemon = case.host_of_receiver(shape);
    say(&daemon.print(&["show", "ports"]));
    say(&daemon.print(&["show", "pauses"]));
    let [sent, received] = load.counts();
    say(&format!("while they are slow: sent {sent:?}, received {received:?}"));
    let row = daemon.row("ports", "port", "rx");
    let [all_sent, all_received] = load.end();
    say(&format!("in the end: sent {all_sent:?}, received {all_received:?}"));
    say(&format!("{}", daemon.row("ports", "port", "rx")["sockets"]));
    assert_eq!(all_sent, all_received);
    assert_eq!(case.receiver.snmp("Udp", "RcvbufErrors"), 0);
    if let Some(kernel) = &kernel {
        assert_eq!(kernel.lost_in(&case.receiver), Vec::<String>::new());
    }
    assert!(!row["sockets"]["held"].as_array().unwrap().is_empty(), "{row}");
    // The fast one gets what was sent to it, but for what is on its way.
    assert!(received[0] * 100 >= sent[0] * 95, "{} of {}", received[0], sent[0]);
    let expected = u64::from(RATE * u32::from(SOCKETS)) * span().as_secs();
    assert!(sent[0] * 100 >= expected * 70, "{} of {expected}", sent[0]);
}

#[test]
#[ignore = "live: needs root"]
fn slow_sockets_behind_tap_lose_nothing() {
    let shape = Shape { word: "sock-tap", hosts: 1, kind: "tap", hold: "forever" };
    lossless("slow_sockets_behind_tap_lose_nothing", shape);
}

#[test]
#[ignore = "live: needs root"]
fn slow_sockets_of_other_host_lose_nothing() {
    let shape = Shape { word: "sock-two", hosts: 2, kind: "tap", hold: "forever" };
    lossless("slow_sockets_of_other_host_lose_nothing", shape);
}
