//! Priority flow control on a real wire: two hosts with a physical switch between them, one
//! priority congested, the frames read by tshark.
//!
//! ```text
//!  bulk ─┤                                           ├─ slow   20 Mbit/s, priority 3
//!        ├ h0 up0 ══ a  s0  b ══ up0 h1 ┤
//!  fast ─┤                                           ├─ quick  priority 0
//! ```

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::rig::iperf::Server;
use crate::rig::kernel::Kernel;
use crate::rig::wire::{Capture, Captured};
use crate::rig::{Daemon, Net, Netns, cable, raw, say, skip, wait_for};
use sluice_base::Mac;
use sluice_testkit::bound::at_most;

const TOOLS: [&str; 4] = ["iperf3", "tcpdump", "tshark", "ss"];
/// Rate of every link.
const LINK_MBPS: u64 = 200;
/// Rate of the slow container.
const SERVICE_MBPS: u64 = 20;
/// DSCP CS3, which is priority 3, as a TOS octet.
const CS3: u8 = 24 << 2;
const BULK: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 1);
const FAST: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 2);
const SLOW: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 3);
const QUICK: Ipv4Addr = Ipv4Addr::new(10, 43, 0, 4);
const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const UNDERLAY_MACS: [&str; 2] = ["02:43:00:00:01:01", "02:43:00:00:01:02"];
/// Name, address, MAC and host of every container.
const CONTAINERS: [(&str, Ipv4Addr, &str, usize); 4] = [
    ("bulk", BULK, "02:43:00:00:00:01", 0),
    ("fast", FAST, "02:43:00:00:00:02", 0),
    ("slow", SLOW, "02:43:00:00:00:03", 1),
    ("quick", QUICK, "02:43:00:00:00:04", 1),
];

/// Everything of one test. Fields end in this order: daemons before their namespaces.
struct Case {
    hosts: [Daemon; 2],
    switch: Daemon,
    net: Net,
    cables: Netns,
    containers: Vec<Netns>,
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let cables = net.netns("s0");
        let hosts = [net.netns("h0"), net.netns("h1")];
        let containers: Vec<Netns> = CONTAINERS.iter().map(|c| net.netns(c.0)).collect();
        for (at, device) in ["a", "b"].iter().enumerate() {
            let address = format!("{}/24", VTEPS[at]);
            cable((&hosts[at], "up0", &address), (&cables, &format!("leg-{device}"), ""));
            hosts[at].ip(&format!("link set up0 address {}", UNDERLAY_MACS[at]));
        }
        let switch = net.daemon(&cables, "s0", &switch_config());
        let start =
            |at: usize| net.daemon(&hosts[at], &format!("h{at}"), &host_config(at, &containers));
        let hosts = [start(0), start(1)];
        for (netns, (_, address, ..)) in containers.iter().zip(CONTAINERS) {
            netns.ip(&format!("addr add {address}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        let case = Self { hosts, switch, net, cables, containers };
        // Addresses are resolved before the congestion: ARP has priority 0 and would not wait, but
        // without it the frames on the wire are easier to read.
        case.container("bulk").ping(SLOW, 2);
        case.container("fast").ping(QUICK, 2);
        case
    }

    fn container(&self, name: &str) -> &Netns {
        &self.containers[CONTAINERS.iter().position(|c| c.0 == name).unwrap()]
    }

    fn daemons(&self) -> [&Daemon; 3] {
        [&self.hosts[0], &self.hosts[1], &self.switch]
    }
}

fn switch_config() -> String {
    let mut text =
        "role = \"switch\"\npolicy = \"ZZ\"\nisolate_after_ms = 0\n[[vnet]]\nname = \"cables\"\n"
            .to_owned();
    for (at, device) in ["a", "b"].iter().enumerate() {
        text += &format!(
            r#"
[[port]]
name = "{device}"
kind = "l2"
vnet = "cables"
device = "leg-{device}"
link = {{ rate_mbps = {LINK_MBPS} }}
[[vport]]
vnet = "cables"
mac = "{}"
port = "{device}"
"#,
            UNDERLAY_MACS[at]
        );
    }
    text
}

fn host_config(at: usize, containers: &[Netns]) -> String {
    let far = 1 - at;
    let mut text = format!(
        // Isolation is off, so that the wire stays paused.
        r#"policy = "ZZ"
isolate_after_ms = 0
[underlay]
kind = "l2"
device = "up0"
address = "{}"
link = {{ rate_mbps = {LINK_MBPS} }}
[[vnet]]
name = "blue"
vni = 43
[[peer]]
name = "far"
vtep = "{}"
vnets = ["blue"]
"#,
        VTEPS[at], VTEPS[far]
    );
    for (netns, (name, _, mac, host)) in containers.iter().zip(CONTAINERS) {
        if host == far {
            text += &format!("[[vport]]\nvnet = \"blue\"\nmac = \"{mac}\"\npeer = \"far\"\n");
            continue;
        }
        text += &format!(
            "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
             netns = \"/run/netns/{}\"\nmac = \"{mac}\"\n",
            netns.name()
        );
        if name == "slow" {
            text += &format!("service_mbps = {SERVICE_MBPS}\n");
        }
    }
    text
}

/// Numbered datagrams of one class: one per `gap`, and at most [`WINDOW`] under way. The window is
/// many times the switches' buffers and far less than the ring of a TAP, in which the kernel does
/// not hold the sender of a datagram.
struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Vec<u64>>,
}

const STREAM_PORT: u16 = 4300;
const DATAGRAM_SIZE: usize = 1400;
const WINDOW: u64 = 2000;
/// Silence after which the receiver ends.
const SILENCE: Duration = Duration::from_millis(1500);

impl Stream {
    fn start(from: (&Netns, Ipv4Addr), to: (&Netns, Ipv4Addr), tos: u8, gap: Duration) -> Self {
        let sink = to.0.udp(to.1, STREAM_PORT);
        sink.set_read_timeout(Some(SILENCE)).unwrap();
        // A receiver that is not scheduled for a while must not lose datagrams.
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&sink, 16 << 20).unwrap();
        let source = from.0.udp(from.1, 0);
        rustix::net::sockopt::set_ip_tos(&source, tos).unwrap();
        source.connect((to.1, STREAM_PORT)).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let arrived = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&arrived);
        let sender = std::thread::spawn(move || send_until(&source, gap, &arrived, &stopped));
        let receiver = std::thread::spawn(move || {
            let (mut bytes, mut numbers) = ([0; 2048], Vec::new());
            while let Ok(size) = sink.recv(&mut bytes) {
                assert_eq!(size, DATAGRAM_SIZE);
                numbers.push(u64::from_be_bytes(*bytes.first_chunk().unwrap()));
                seen.store(numbers.len() as u64, Ordering::Relaxed);
            }
            numbers
        });
        Self { stop, sender, receiver }
    }

    /// Ends the stream, and panics unless every datagram arrived, in order. Returns their number.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let numbers = self.receiver.join().unwrap();
        let wrong = numbers.iter().zip(0..).find(|(number, nth)| **number != *nth);
        let arrived = numbers.len() as u64;
        assert_eq!((wrong, arrived), (None, sent), "missing or out of order (is, should be)");
        sent
    }
}

fn send_until(source: &UdpSocket, gap: Duration, arrived: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut bytes = [0; DATAGRAM_SIZE];
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        if sent < arrived.load(Ordering::Relaxed) + WINDOW {
            bytes[..8].copy_from_slice(&sent.to_be_bytes());
            source.send(&bytes).unwrap();
            sent += 1;
        }
        std::thread::sleep(gap);
    }
    sent
}

/// Numbers of XOFF and XON of one direction of a link.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    xoff: u64,
    xon: u64,
}

/// Reads all PFC frames from `src` about priority 3 with tshark, and panics if one violates
/// 802.1Qbb, or is about another priority than 3 and 0.
fn read_pfc(captured: &Captured, src: &str) -> Seen {
    let mut fields = vec!["eth.dst", "eth.type", "macc.opcode", "macc.cbfc.enbv", "frame.len"];
    let times: Vec<String> = (0..8).map(|p| format!("macc.cbfc.pause_time.c{p}")).collect();
    fields.extend(times.iter().map(String::as_str));
    let bad = "_ws.malformed||macc.cbfc.enbv.not_zero||macc.dst_address_invalid";
    assert_eq!(captured.frames(bad, &["frame.number"]), Vec::<Vec<String>>::new());
    let mut seen = Seen { xoff: 0, xon: 0 };
    for frame in captured.frames(&format!("eth.type==0x8808&&eth.src=={src}"), &fields) {
        let head = ["01:80:c2:00:00:01", "0x8808", "0x0101"];
        assert_eq!((&frame[..3], &*frame[4]), (&head.map(str::to_owned)[..], "60"), "{frame:?}");
        let quanta = &frame[5..];
        // A machine that stands still for a moment fills the buffer of the other one as well.
        let (with_other, is_about) = match &*frame[3] {
            "0x0008" => (false, true),
            "0x0009" => (true, true),
            "0x0001" => (true, false),
            _ => panic!("{frame:?}"),
        };
        let is_about_it = |p: usize| p == 3 && is_about || p == 0 && with_other;
        assert!(quanta.iter().enumerate().all(|(p, q)| is_about_it(p) || q == "0"), "{frame:?}");
        if !is_about {
            continue;
        }
        match &*quanta[3] {
            "65535" => seen.xoff += 1,
            "0" => seen.xon += 1,
            other => panic!("a pause of {other} quanta: {frame:?}"),
        }
    }
    seen
}

fn pauses(daemon: &Daemon, port: &str, priority: u64) -> serde_json::Value {
    let rows = daemon.show("pauses");
    let is = |row: &&serde_json::Value| row["port"] == port && row["priority"] == priority;
    rows.as_array().unwrap().iter().find(is).cloned().unwrap_or_default()
}

fn number(row: &serde_json::Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or(0)
}

fn mac_of(netns: &Netns, device: &str) -> String {
    netns.run(&format!("cat /sys/class/net/{device}/address")).trim().to_owned()
}

#[test]
#[ignore = "live: needs root"]
fn pfc_pauses_one_priority_other_continues() {
    if skip("pfc_pauses_one_priority_other_continues", &TOOLS) {
        return;
    }
    let case = Case::new("pfc");
    let kernel = Kernel::watch("pfc_pauses_one_priority_other_continues", &case.net);
    let (fast, quick) = (case.container("fast"), case.container("quick"));
    let server = Server::start(quick, QUICK);
    // A steady share of the link, so that only the slow container is short of room.
    let steady = "--bitrate 60M";
    let before = server.rate(fast, 1, steady) / 1_000_000;

    let near = Capture::start(&case.net, &case.cables, "leg-a", "ether proto 0x8808");
    let far = Capture::start(&case.net, &case.cables, "leg-b", "ether proto 0x8808");
    let from = (case.container("bulk"), BULK);
    let stream =
        Stream::start(from, (case.container("slow"), SLOW), CS3, Duration::from_micros(100));
    wait_for("the pause reaches the sending host", || {
        number(&pauses(&case.hosts[0], "underlay", 3), "received") > 0
    });
    let paused = || number(&pauses(&case.hosts[0], "underlay", 3), "paused_ns");
    let (began, paused_before) = (Instant::now(), paused());
    let during = server.rate(fast, 3, steady) / 1_000_000;
    let paused_ms = (paused() - paused_before) / 1_000_000;
    let span_ms = began.elapsed().as_millis();
    let datagrams = stream.stop();
    say(&format!(
        "priority 0: {before} Mbit/s alone, {during} Mbit/s while priority 3 was paused for \
         {paused_ms} of {span_ms} ms; {datagrams} datagrams of priority 3, none lost"
    ));
    // The slow container takes a tenth of the link; the rest allows for a shared machine.
    assert!(during * 3 >= before, "priority 0 suffers: {during} of {before} Mbit/s");
    assert!(u128::from(paused_ms) * 2 >= span_ms, "paused for {paused_ms} of {span_ms} ms");

    let (near, far) = (near.stop(), far.stop());
    let of_host = read_pfc(&far, UNDERLAY_MACS[1]);
    let of_switch = read_pfc(&near, &mac_of(&case.cables, "leg-a"));
    say(&format!("h1 pauses s0: {of_host:?}; s0 pauses h0: {of_switch:?}"));
    for (seen, sender, port, receiver, at) in [
        (of_host, &case.hosts[1], "underlay", &case.switch, "b"),
        (of_switch, &case.switch, "a", &case.hosts[0], "underlay"),
    ] {
        assert!(seen.xoff > 0 && seen.xon > 0, "{seen:?}");
        let row = pauses(sender, port, 3);
        let counted = Seen { xoff: number(&row, "xoff_sent"), xon: number(&row, "xon_sent") };
        assert_eq!(seen, counted, "on the wire, and in `show pauses`");
        assert_eq!(row["pausing"], false, "{row}");
        let row = pauses(receiver, at, 3);
        assert_eq!(number(&row, "received"), seen.xoff + seen.xon, "{row}");
        assert_eq!(row["paused"], false, "{row}");
    }
    for daemon in case.daemons() {
        daemon.drained();
        daemon.assert_lossless();
        // A machine that stands still for a moment fills the buffer of the other priority as well;
        // what was paused then goes on.
        let other = pauses(daemon, "underlay", 0);
        let is_on = |key: &str| other[key].as_bool().unwrap_or(false);
        assert!(!is_on("paused") && !is_on("pausing"), "{other}");
    }
    if let Some(kernel) = kernel {
        kernel.assert_no_loss(&[
            (&case.hosts[0], "underlay", "up0"),
            (&case.hosts[1], "underlay", "up0"),
            (&case.switch, "a", "leg-a"),
            (&case.switch, "b", "leg-b"),
        ]);
    }
}

/// Returns the longest silence between two data frames.
fn longest_silence_ms(captured: &Captured) -> u64 {
    let frames = captured.frames("vxlan", &["frame.time_epoch"]);
    let times: Vec<f64> = frames.iter().map(|frame| frame[0].parse().unwrap()).collect();
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = gaps.fold(0.0, f64::max);
    format!("{:.0}", longest * 1000.0).parse().unwrap()
}

/// 802.3 annex 31B: PAUSE holds every priority, for a time in quanta of 512 bits, or until a PAUSE
/// of zero.
#[test]
#[ignore = "live: needs root"]
fn link_pause_applied_for_its_quanta() {
    if skip("link_pause_applied_for_its_quanta", &TOOLS) {
        return;
    }
    let case = Case::new("pause");
    let mut sender = raw::Sender::new(&case.cables, "leg-a");
    let mut pause = |quanta: u16| {
        let [high, low] = quanta.to_be_bytes();
        let mut frame = raw::mac_control(Mac([2, 0, 0, 0, 0, 9]), &[0, 1, high, low]);
        frame.resize(60, 0);
        assert!(sender.send(&frame));
    };
    let to = (case.container("quick"), QUICK);
    let gap = Duration::from_millis(1);
    let stream = Stream::start((case.container("fast"), FAST), to, 0, gap);
    let silence = |pausing: &mut dyn FnMut()| {
        let from_h0 = format!("ether src {}", UNDERLAY_MACS[0]);
        let capture = Capture::start(&case.net, &case.cables, "leg-a", &from_h0);
        std::thread::sleep(Duration::from_millis(200));
        pausing();
        std::thread::sleep(Duration::from_millis(500));
        longest_silence_ms(&capture.stop())
    };
    let asked_ms = 65535 * 512 / (LINK_MBPS * 1000);
    let none = silence(&mut || {});
    let whole = silence(&mut || pause(u16::MAX));
    let ended = silence(&mut || {
        pause(u16::MAX);
        std::thread::sleep(Duration::from_millis(60));
        pause(0);
    });
    say(&format!(
        "silence: {none} ms without a PAUSE; {whole} ms for one of {asked_ms} ms; {ended} ms for \
         one that was ended after 60 ms"
    ));
    // The machine may add time; it cannot shorten it.
    assert!(whole >= asked_ms - 5, "{whole} of {asked_ms} ms");
    assert!(ended >= 55, "{ended} ms");
    at_most("ms of silence for a PAUSE", whole, asked_ms + 100);
    at_most("ms of silence for one that was ended", ended, asked_ms - 10);
    at_most("ms of silence without one", none, asked_ms / 2);
    let sent = stream.stop();
    for priority in 0..8 {
        let row = pauses(&case.hosts[0], "underlay", priority);
        assert_eq!(number(&row, "received"), 3, "{row}");
    }
    say(&format!("{sent} datagrams, none lost"));
    for daemon in case.daemons() {
        daemon.drained();
        daemon.assert_lossless();
    }
}
