//! Receivers that never read: two machines on two hosts flood each other in one priority, with a
//! physical switch between them. Each host's input is full of the other's frames, and a neighbour's
//! pause frames, and all other priorities, must not wait behind them. Isolation is off here, so
//! that both inputs stay full.
//!
//! ```text
//!   vm ─┤                                   ├─ vm      priority 3, no reader
//!       ├ h0 up0 ══ a  s0  b ══ up0 h1 ┤
//!  box ─┤                                   ├─ box     priority 0, pings
//! ```

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};
use serde_json::Value;
use sluice_testkit::bound::is_soak;
use sluice_testkit::guest::{Guest, GuestConfig};

/// Rates of every link in Mbit/s. With the first a pause lasts 335 ms, with the second 33.6 ms,
/// through which a busy machine may well sleep, and without a rate 3.4 ms.
const RATES_MBPS: [Option<u32>; 3] = [Some(100), Some(1000), None];
/// Remaining settings of every link. XOFF is so late that the frames under way then fill the input.
const LINK: &str = "in = { frames = 64, bytes = 40000 }, xoff_bytes = 39000, xon_bytes = 20000";
const VTEPS: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const UNDERLAY_MACS: [&str; 2] = ["02:44:00:00:01:01", "02:44:00:00:01:02"];
const VM_MACS: [[u8; 6]; 2] = [[2, 0x44, 0, 0, 0, 1], [2, 0x44, 0, 0, 0, 2]];
const BOX_MACS: [&str; 2] = ["02:44:00:00:00:03", "02:44:00:00:00:04"];
const BOXES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 44, 0, 3), Ipv4Addr::new(10, 44, 0, 4)];
/// DSCP CS3, which is priority 3, as a TOS octet.
const CS3: u8 = 24 << 2;
/// DSCP CS6, with which the fabric marks its own traffic.
const CS6: u8 = 48 << 2;

/// State of a test. Fields are dropped in this order: machines and daemons before their namespaces.
struct Case {
    guests: [Guest; 2],
    hosts: [Daemon; 2],
    switch: Daemon,
    _net: Net,
    underlays: [Netns; 2],
    boxes: [Netns; 2],
}

impl Case {
    fn new(word: &str, rate_mbps: Option<u32>) -> Self {
        let mut net = Net::new(word);
        let cables = net.netns("s0");
        let underlays = [net.netns("h0"), net.netns("h1")];
        let boxes = [net.netns("b0"), net.netns("b1")];
        for (at, device) in ["a", "b"].iter().enumerate() {
            let address = format!("{}/24", VTEPS[at]);
            cable((&underlays[at], "up0", &address), (&cables, &format!("leg-{device}"), ""));
            underlays[at].ip(&format!("link set up0 address {}", UNDERLAY_MACS[at]));
        }
        let switch = net.daemon(&cables, "s0", &switch_config(rate_mbps));
        let sockets = [net.file("vm0.sock"), net.file("vm1.sock")];
        let start = |at: usize| {
            let config = host_config(at, &sockets[at], &boxes[at], rate_mbps);
            net.daemon(&underlays[at], &format!("h{at}"), &config)
        };
        let hosts = [start(0), start(1)];
        for (netns, address) in boxes.iter().zip(BOXES) {
            netns.ip(&format!("addr add {address}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        let guest = |at: usize| Guest::connected(GuestConfig::default(), &sockets[at]).unwrap();
        let guests = [guest(0), guest(1)];
        // Addresses are resolved before the congestion.
        boxes[0].ping(BOXES[1], 2);
        Self { guests, hosts, switch, _net: net, underlays, boxes }
    }
}

fn rate_key(rate_mbps: Option<u32>) -> String {
    rate_mbps.map(|rate| format!("rate_mbps = {rate}, ")).unwrap_or_default()
}

fn switch_config(rate_mbps: Option<u32>) -> String {
    let rate = rate_key(rate_mbps);
    let mut text =
        "role = \"switch\"\npolicy = \"ZZ\"\nisolate_after_ms = 0\n[[vnet]]\nname = \"cables\"\n"
            .to_owned();
    for (device, mac) in ["a", "b"].iter().zip(UNDERLAY_MACS) {
        text += &format!(
            "[[port]]\nname = \"{device}\"\nkind = \"l2\"\nvnet = \"cables\"\n\
             device = \"leg-{device}\"\nlink = {{ {rate}{LINK} }}\n\
             [[vport]]\nvnet = \"cables\"\nmac = \"{mac}\"\nport = \"{device}\"\n"
        );
    }
    text
}

fn host_config(at: usize, socket: &Path, container: &Netns, rate_mbps: Option<u32>) -> String {
    let (far, rate) = (1 - at, rate_key(rate_mbps));
    let text = |mac: [u8; 6]| mac.map(|octet| format!("{octet:02x}")).join(":");
    format!(
        r#"policy = "ZZ"
isolate_after_ms = 0
[underlay]
kind = "l2"
device = "up0"
address = "{}"
link = {{ {rate}{LINK} }}
[[vnet]]
name = "blue"
vni = 44
[[peer]]
name = "far"
vtep = "{}"
vnets = ["blue"]
[[port]]
name = "vm"
kind = "vhost-user"
vnet = "blue"
socket = "{}"
mac = "{}"
[[port]]
name = "box"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "{}"
[[vport]]
vnet = "blue"
mac = "{}"
peer = "far"
[[vport]]
vnet = "blue"
mac = "{}"
peer = "far"
"#,
        VTEPS[at],
        VTEPS[far],
        socket.display(),
        text(VM_MACS[at]),
        container.name(),
        BOX_MACS[at],
        text(VM_MACS[far]),
        BOX_MACS[far],
    )
}

/// Makes a numbered frame of priority 3, in one of many sizes.
fn frame(from: usize, number: u32) -> Vec<u8> {
    let mut frame = [&VM_MACS[1 - from][..], &VM_MACS[from], &[8, 0, 0x45, CS3]].concat();
    frame.resize(60 + number as usize % 23 * 60, 0);
    frame[34..38].copy_from_slice(&number.to_be_bytes());
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[34..38].try_into().unwrap())
}

/// Runs a machine that sends as fast as it can, and reads nothing until it is stopped.
fn flood(from: usize, mut guest: Guest, stop: &Arc<AtomicBool>) -> JoinHandle<(Guest, u32)> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            if guest.send(&frame(from, sent)) {
                sent += 1;
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
        (guest, sent)
    })
}

/// Reads all frames that were sent, in order.
fn read_all(guest: &mut Guest, sent: u32) {
    let (mut next, began) = (0, Instant::now());
    while next < sent {
        match guest.receive() {
            Some(bytes) if bytes[12..16] == [8, 0, 0x45, CS3] => {
                assert_eq!(number(&bytes), next, "missing, or out of order");
                next += 1;
            }
            Some(_) => {}
            None => {
                assert!(began.elapsed() < Duration::from_secs(60), "{next} of {sent} came");
                std::thread::yield_now();
            }
        }
    }
}

/// Opens a connection of the hosts themselves, marked like the fabric's; the far end echoes
/// everything.
fn connection(underlays: &[Netns; 2]) -> TcpStream {
    let mark = |stream: &TcpStream| {
        rustix::net::sockopt::set_ip_tos(stream, CS6).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    };
    let listener = underlays[1].inside(|| TcpListener::bind((VTEPS[1], 4401)).unwrap());
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        mark(&stream);
        let mut bytes = [0; 64];
        while stream.read_exact(&mut bytes).and_then(|()| stream.write_all(&bytes)).is_ok() {}
    });
    let stream = underlays[0].inside(|| TcpStream::connect((VTEPS[1], 4401)).unwrap());
    mark(&stream);
    stream
}

fn count(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or(0)
}

fn pauses(daemon: &Daemon, port: &str) -> Value {
    let rows = daemon.show("pauses");
    let is = |row: &&Value| row["port"] == port && row["priority"] == 3;
    rows.as_array().unwrap().iter().find(is).cloned().unwrap_or_default()
}

/// Returns the frames that the kernel or the driver of any `l2` port lost.
fn lost(daemon: &Daemon) -> u64 {
    let rows = daemon.show("ports");
    let l2 = rows.as_array().unwrap().iter().filter(|row| row["kind"] == "l2");
    l2.map(|row| count(&row["kernel"], "ring.drops") + count(&row["kernel"], "aside.full")).sum()
}

/// Time for which a data process is stopped, and number of stops. Its pauses of 33.6 ms are
/// repeated in time or a little late; frames that arrive in between are not sent again and again.
const STALL: Duration = Duration::from_millis(30);
const STALLS: u32 = 40;
/// Longest stall for which a port has room (`stall_ms`). A busy machine may prolong one.
const STALL_MAX: Duration = Duration::from_millis(50);

/// Stalls the processes one after the other, again and again. Returns the longest stall.
fn stall(daemons: [&Daemon; 3]) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..STALLS {
        for daemon in daemons {
            let began = Instant::now();
            daemon.hang_data(true);
            std::thread::sleep(STALL);
            daemon.hang_data(false);
            longest = longest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(15));
        }
    }
    longest
}

fn nobody_reads(rate_mbps: Option<u32>, run: usize) {
    let Case { guests, hosts, switch, _net, underlays, boxes } = Case::new("stuck", rate_mbps);
    let rate = rate_mbps.map_or("no rate".to_owned(), |rate| format!("{rate} Mbit/s"));
    let mut own = connection(&underlays);
    let stop = Arc::new(AtomicBool::new(false));
    let floods = guests.into_iter().enumerate().map(|(at, guest)| flood(at, guest, &stop));
    let floods: Vec<_> = floods.collect();
    wait_for("both hosts pause the wire", || {
        hosts.iter().all(|host| pauses(host, "underlay")["pausing"] == true)
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(3) {
        // Another priority, and traffic of the hosts themselves.
        boxes[0].ping(BOXES[1], 3);
        let mut bytes = [7; 64];
        own.write_all(&bytes).unwrap();
        own.read_exact(&mut bytes).expect("the hosts' own connections go on");
    }
    let stalled = (rate_mbps != Some(100)).then(|| stall([&hosts[0], &hosts[1], &switch]));
    let xoff: u64 = hosts.iter().map(|host| count(&pauses(host, "underlay"), "xoff_sent")).sum();
    let aside =
        |daemon: &Daemon, port| count(&daemon.row("ports", "port", port), "aside_frames_max");
    let most = [
        aside(&hosts[0], "underlay"),
        aside(&hosts[1], "underlay"),
        aside(&switch, "a"),
        aside(&switch, "b"),
    ];
    let losses = [lost(&hosts[0]), lost(&hosts[1]), lost(&switch)];
    say(&format!(
        "{rate}, run {run}: {losses:?} lost, {xoff} XOFF of the hosts, {most:?} set aside at most"
    ));
    // A busy machine adds stalls of its own, which are invisible here.
    let is_judged = stalled.is_none_or(|longest| longest <= STALL_MAX && is_soak());
    if !is_judged && losses != [0; 3] {
        let longest = stalled.unwrap_or_default();
        say(&format!("{rate}, run {run} is NOT judged: stalled for {longest:?} at least"));
        return;
    }
    assert_eq!(losses, [0; 3], "frames were lost in front of the switch");

    // Then both read: all frames are there.
    stop.store(true, Ordering::Relaxed);
    let ends: Vec<_> = floods.into_iter().map(|flood| flood.join().unwrap()).collect();
    let sent: Vec<u32> = ends.iter().map(|(_, sent)| *sent).collect();
    let readers = ends.into_iter().enumerate().map(|(at, (mut guest, _))| {
        let sent = sent[1 - at];
        std::thread::spawn(move || {
            read_all(&mut guest, sent);
            guest
        })
    });
    let readers: Vec<_> = readers.collect();
    let guests: Vec<Guest> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
    say(&format!("{rate}, run {run}: {sent:?} frames, all read in order"));
    for daemon in [&hosts[0], &hosts[1], &switch] {
        daemon.drained();
        daemon.assert_lossless();
    }
    // A paused sender received every pause frame.
    for (sender, port, receiver, at) in [
        (&hosts[0], "underlay", &switch, "a"),
        (&hosts[1], "underlay", &switch, "b"),
        (&switch, "a", &hosts[0], "underlay"),
        (&switch, "b", &hosts[1], "underlay"),
    ] {
        let row = pauses(sender, port);
        let said = count(&row, "xoff_sent") + count(&row, "xon_sent");
        wait_for("all of it is heard", || count(&pauses(receiver, at), "received") == said);
    }
    drop(guests);
}

#[test]
#[ignore = "live: needs root"]
fn two_that_never_read_stand_in_nobodys_way() {
    if skip("two_that_never_read_stand_in_nobodys_way", &[]) {
        return;
    }
    let runs = if is_soak() { 20 } else { 1 };
    for rate_mbps in RATES_MBPS {
        (0..runs).for_each(|run| nobody_reads(rate_mbps, run));
    }
}

/// The kernel drops frames for a device without a carrier, and counts them nowhere.
#[test]
#[ignore = "live: needs root"]
fn cable_without_carrier_takes_nothing() {
    if skip("cable_without_carrier_takes_nothing", &[]) {
        return;
    }
    let case = Case::new("carrier", Some(1000));
    let [sender, receiver] = [0, 1].map(|at| case.boxes[at].udp(BOXES[at], 7001));
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // All of them may come before the first one is read.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 4_000_000).unwrap();
    case.underlays[1].ip("link set up0 down");
    let line = "leg-b has no carrier";
    wait_for("the switch knows", || case.switch.log().contains(line));
    // More than its queues hold: the sender's host holds the rest.
    for number in 0..500_u32 {
        sender.send_to(&number.to_be_bytes(), (BOXES[1], 7001)).unwrap();
    }
    std::thread::sleep(Duration::from_millis(100));
    case.underlays[1].ip("link set up0 up");
    let mut bytes = [0; 4];
    for number in 0..500 {
        receiver.recv(&mut bytes).unwrap_or_else(|error| panic!("datagram {number}: {error}"));
        assert_eq!(u32::from_be_bytes(bytes), number, "missing, or out of order");
    }
    case.switch.assert_lossless();
}
