//! Three hosts of a fabric behind a physical switch, with one receiver that may misbehave and its
//! flooder, and three innocent pairs in the same priority that are measured throughout.
//!
//! ```text
//!  culprit ─┤                                ├─ flooder    to the present culprit
//!    slow  ─┤ h1 ══ leg-0  s0  leg-1 ══ h2 ┤
//!     box  ─┤            leg-2              ├─ near       to `victim`, at a rate
//!   victim ─┤              ║
//!                          h3 ── far                      to `victim` and `near`, at a rate
//! ```
//!
//! `culprit` is a machine that may stop reading; `box` is a device of a container with a process
//! that reads datagrams, `slow` another device of the container, whose port has 5 Mbit/s.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_testkit::guest::{Guest, GuestConfig};
use sluice_wire::{ipv4, udp};

use super::{Daemon, Net, Netns, Process, are_connected, cable, wait_for};

const LINK_MBPS: u64 = 1_000;
const SLOW_MBPS: u64 = 5;
pub(crate) const HOSTS: usize = 3;
/// Machines: host, name. The devices of the container come after them.
pub(crate) const CULPRIT: usize = 0;
const VICTIM: usize = 1;
const FLOODER: usize = 2;
const NEAR: usize = 3;
const FAR: usize = 4;
pub(crate) const SLOW: usize = 5;
pub(crate) const BOX: usize = 6;
const MACHINES: [(usize, &str); 5] =
    [(0, "culprit"), (0, "victim"), (1, "flooder"), (1, "near"), (2, "far")];
/// Devices of the container.
const CARDS: [(usize, &str, &str); 2] = [(SLOW, "slow", "t1"), (BOX, "box", "t0")];
/// Pairs without any relation to the culprit.
pub(crate) const INNOCENTS: [(usize, usize); 3] = [(NEAR, VICTIM), (FAR, VICTIM), (FAR, NEAR)];
/// Frames per second of each innocent pair.
const RATE: u64 = 2_000;
const FRAME_BYTES: usize = 1_000;
const PORT: u16 = 9;
/// Octets of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;
/// Environment variable with the address of a container's reader.
const READER: &str = "SLUICE_TEST_READER";
/// Time until addresses are resolved, and pairs talk at their rate.
const SETTLED: Duration = Duration::from_millis(200);
/// Time until frames under way have arrived when all stop sending.
const UNDER_WAY: Duration = Duration::from_millis(500);

fn mac(machine: usize) -> [u8; 6] {
    [2, 0x49, 0, 0, 0, u8::try_from(machine).unwrap()]
}

/// Returns the MAC of a machine, as text.
pub(crate) fn mac_text(machine: usize) -> String {
    mac(machine).map(|octet| format!("{octet:02x}")).join(":")
}

fn ip(machine: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 49, 0, u8::try_from(machine + 1).unwrap())
}

/// Returns the MAC that a host's device has, or has after it was changed.
pub(crate) fn device_mac(host: usize, changed: bool) -> String {
    format!("02:49:00:00:0{}:0{host}", if changed { 2 } else { 1 })
}

/// Configuration of a scene.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SceneConfig {
    pub(crate) policy: &'static str,
    pub(crate) hold: &'static str,
    pub(crate) workers: u8,
    /// Frames per second of the flooder.
    pub(crate) flood: u64,
}

impl SceneConfig {
    /// Draws a configuration. `pick` draws a number below another; `floods` are the rates of the
    /// flooder if the hosts hold frames, and if they drop them.
    pub(crate) fn draw<const N: usize>(
        mut pick: impl FnMut(usize) -> usize,
        floods: [[u64; N]; 2],
    ) -> Self {
        let policy = pick(2);
        Self {
            policy: ["ZZ", "LZ"][policy],
            hold: ["1s", "forever"][pick(2)],
            workers: [1, 2][pick(2)],
            flood: floods[policy][pick(N)],
        }
    }
}

/// The small disk of a host's state; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Disk(PathBuf);

impl Disk {
    fn new(host: PathBuf) -> Self {
        Self::with_size(&host.with_extension("state"), "64k")
    }

    /// Makes a disk at a path, with a size as `mount` takes it.
    pub(crate) fn with_size(path: &Path, size: &str) -> Self {
        std::fs::create_dir_all(path).unwrap();
        super::run(&format!("mount -t tmpfs -o size={size} tmpfs {}", path.display()));
        Self(path.to_owned())
    }

    /// Fills the disk, or makes room again.
    pub(crate) fn fill(&self, full: bool) {
        let filler = self.0.join("filler");
        if full {
            assert!(std::fs::write(&filler, vec![0; 32 << 20]).is_err(), "the disk is full");
        } else {
            std::fs::remove_file(&filler).unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = std::process::Command::new("umount").arg(&self.0).output();
    }
}

/// State that all machines share.
#[derive(Debug)]
struct Flows {
    began: Instant,
    flood: u64,
    /// Machine that is flooded.
    target: AtomicUsize,
    /// True if a machine reads, by machine.
    reads: [AtomicBool; MACHINES.len()],
    /// Counters by innocent pair.
    sent: [AtomicU64; INNOCENTS.len()],
    came: [AtomicU64; INNOCENTS.len()],
    /// Longest time between two received frames of a pair, in µs.
    gap: [AtomicU64; INNOCENTS.len()],
    /// Longest time for which a machine of this test did not run, in µs: gaps include it.
    stall: AtomicU64,
    /// Frames of innocent pairs that came out of order, and those that were missing then.
    late: [AtomicU64; INNOCENTS.len()],
    missing: [AtomicU64; INNOCENTS.len()],
    /// Frames that the flooder sent, and that arrived at machines.
    flooded: AtomicU64,
    taken: AtomicU64,
    /// Latencies of innocent pairs' frames, in µs.
    latencies: Mutex<Vec<u64>>,
    stop_sending: AtomicBool,
    stop: AtomicBool,
}

impl Flows {
    fn new(flood: u64) -> Self {
        Self {
            began: Instant::now(),
            flood,
            target: AtomicUsize::new(CULPRIT),
            reads: std::array::from_fn(|_| AtomicBool::new(true)),
            sent: Default::default(),
            came: Default::default(),
            gap: Default::default(),
            stall: AtomicU64::new(0),
            late: Default::default(),
            missing: Default::default(),
            flooded: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            latencies: Mutex::default(),
            stop_sending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        }
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap()
    }
}

/// Measurements of innocent pairs in a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Received frames of each pair.
    pub(crate) came: [u64; INNOCENTS.len()],
    /// 99th percentile of the latency, in µs.
    pub(crate) p99_us: u64,
    /// Longest time between two frames of each pair, in µs.
    pub(crate) gap_us: [u64; INNOCENTS.len()],
    /// Longest time for which one of the machines itself did not run, in µs.
    pub(crate) stall_us: u64,
}

impl Seen {
    /// Returns the longest gap of a pair, without the stalls of the machines themselves.
    pub(crate) fn gap_of(&self, pair: usize) -> u64 {
        self.gap_us[pair].saturating_sub(self.stall_us)
    }

    /// Returns the smallest share that a pair has of its earlier rate.
    pub(crate) fn share_of(&self, before: &Self) -> f64 {
        let part = |(now, before): (&u64, &u64)| *now as f64 / (*before).max(1) as f64;
        self.came.iter().zip(&before.came).map(part).fold(f64::MAX, f64::min)
    }
}

/// Watches innocent pairs.
pub(crate) struct Watcher(Arc<Flows>);

impl Watcher {
    /// Measures the pairs in a span that begins now.
    pub(crate) fn watch(&self, span: Duration) -> Seen {
        let Self(flows) = self;
        let read = || flows.came.each_ref().map(|came| came.load(Ordering::Relaxed));
        flows.latencies.lock().unwrap().clear();
        flows.gap.iter().for_each(|gap| gap.store(0, Ordering::Relaxed));
        flows.stall.store(0, Ordering::Relaxed);
        let before = read();
        std::thread::sleep(span);
        let after = read();
        let mut all = std::mem::take(&mut *flows.latencies.lock().unwrap());
        all.sort_unstable();
        let p99_us = all.get(all.len() * 99 / 100).copied().unwrap_or(u64::MAX);
        let gap_us = flows.gap.each_ref().map(|gap| gap.load(Ordering::Relaxed));
        let came = std::array::from_fn(|at| after[at] - before[at]);
        Seen { came, p99_us, gap_us, stall_us: flows.stall.load(Ordering::Relaxed) }
    }
}

/// Everything of one run. Fields end in this order: machines and daemons before their namespaces.
pub(crate) struct Scene {
    machines: Vec<JoinHandle<Guest>>,
    flows: Arc<Flows>,
    reader: Process,
    /// By innocent pair: frames that were dropped before their receiver's address was resolved. A
    /// lossy virtual network has room for a few only.
    early: [u64; INNOCENTS.len()],
    pub(crate) hosts: Vec<Daemon>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) switch: Daemon,
    pub(crate) container: Netns,
    pub(crate) underlays: Vec<Netns>,
    pub(crate) cables: Netns,
    pub(crate) net: Net,
}

impl Scene {
    /// Starts everything, and waits until all pairs talk.
    pub(crate) fn new(word: &str, config: &SceneConfig) -> Self {
        let mut net = Net::new(word);
        let cables = net.netns("s0");
        let underlays: Vec<_> = (0..HOSTS).map(|at| net.netns(&format!("h{at}"))).collect();
        let container = net.netns("box");
        for (at, netns) in underlays.iter().enumerate() {
            let address = format!("192.0.2.{}/24", at + 1);
            cable((netns, "up0", &address), (&cables, &format!("leg-{at}"), ""));
            netns.ip(&format!("link set up0 address {}", device_mac(at, false)));
        }
        let switch = net.daemon(&cables, "s0", &switch_config(config));
        let names: Vec<String> = (1..=HOSTS).map(|id| format!("h{id}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let certificates = net.certificates(&names);
        let socket = |machine: usize| net.file(&format!("vm{machine}.sock"));
        let disks: Vec<Disk> = names.iter().map(|name| Disk::new(net.file(name))).collect();
        let start = |at: usize| {
            let mut text =
                host_config(at, config, (&disks[at].0, &certificates.join(names[at])), &socket);
            if at == 0 {
                text += &box_config(&container);
            }
            net.daemon(&underlays[at], names[at], &text)
        };
        let hosts: Vec<Daemon> = (0..HOSTS).map(start).collect();
        are_connected(&hosts);
        hosts.iter().for_each(Daemon::next_hops_are_resolved);
        for (machine, _, device) in CARDS {
            container.ip(&format!("addr add {}/32 dev {device}", ip(machine)));
            container.ip(&format!("link set {device} up"));
        }
        let reader = start_reader(&container);
        let flows = Arc::new(Flows::new(config.flood));
        let machines = (0..MACHINES.len()).map(|at| {
            let guest = Guest::connected(GuestConfig::default(), &socket(at)).unwrap();
            machine(at, guest, socket(at), Arc::clone(&flows))
        });
        let machines = machines.collect();
        let early = [0; INNOCENTS.len()];
        let mut scene = Self {
            machines,
            flows,
            reader,
            early,
            hosts,
            disks,
            switch,
            container,
            underlays,
            cables,
            net,
        };
        wait_for("all pairs talk", || {
            scene.flows.came.iter().all(|came| came.load(Ordering::Relaxed) > 0)
                && scene.flows.taken.load(Ordering::Relaxed) > 0
        });
        std::thread::sleep(SETTLED);
        scene.early = scene.missing();
        scene
    }

    /// Makes a machine, or the container, the target of the flood.
    pub(crate) fn flood(&self, machine: usize) {
        self.flows.target.store(machine, Ordering::Relaxed);
    }

    /// Sets whether a machine reads.
    pub(crate) fn reads(&self, machine: usize, reads: bool) {
        self.flows.reads[machine].store(reads, Ordering::Relaxed);
    }

    /// Stops the process in the container, or lets it continue.
    pub(crate) fn stop_reader(&self, stop: bool) {
        let signal = if stop { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.reader.0), signal).unwrap();
    }

    /// Returns the flooder's frames that arrived at a machine.
    pub(crate) fn taken(&self) -> u64 {
        self.flows.taken.load(Ordering::Relaxed)
    }

    /// Measures innocent pairs in a span that begins now.
    pub(crate) fn watch(&self, span: Duration) -> Seen {
        self.watcher().watch(span)
    }

    /// Returns a watcher for use while the scene changes.
    pub(crate) fn watcher(&self) -> Watcher {
        Watcher(Arc::clone(&self.flows))
    }

    /// Waits until each innocent pair receives frames, and so does the culprit.
    pub(crate) fn wait_until_all_talk(&self) {
        let read = || self.flows.came.each_ref().map(|came| came.load(Ordering::Relaxed));
        let (before, taken) = (read(), self.taken());
        wait_for("all pairs talk", || {
            let all = read().into_iter().zip(before).all(|(now, was)| now > was + 10);
            all && self.taken() > taken
        });
    }

    /// Returns the frames of innocent pairs that came out of order, and that are missing so far.
    pub(crate) fn wrong(&self) -> (u64, u64) {
        let missing = self.missing().iter().sum::<u64>() - self.early.iter().sum::<u64>();
        (self.late().iter().sum(), missing)
    }

    /// Returns, by innocent pair, frames that came again, or after a later one.
    pub(crate) fn late(&self) -> [u64; INNOCENTS.len()] {
        self.flows.late.each_ref().map(|late| late.load(Ordering::Relaxed))
    }

    fn missing(&self) -> [u64; INNOCENTS.len()] {
        self.flows.missing.each_ref().map(|missing| missing.load(Ordering::Relaxed))
    }

    /// Stops all senders, and lets frames under way arrive. Returns the frames of innocent pairs
    /// that did not arrive, by pair.
    pub(crate) fn end(&mut self) -> [u64; INNOCENTS.len()] {
        self.flows.stop_sending.store(true, Ordering::Relaxed);
        self.flows.reads.iter().for_each(|reads| reads.store(true, Ordering::Relaxed));
        std::thread::sleep(UNDER_WAY);
        self.flows.stop.store(true, Ordering::Relaxed);
        let guests = std::mem::take(&mut self.machines).into_iter();
        let _guests: Vec<Guest> = guests.map(|machine| machine.join().unwrap()).collect();
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        std::array::from_fn(|at| {
            (read(&self.flows.sent[at]) + read(&self.flows.late[at]))
                .saturating_sub(read(&self.flows.came[at]) + self.early[at])
        })
    }

    /// Returns the hosts and the physical switch.
    pub(crate) fn daemons(&self) -> Vec<&Daemon> {
        self.hosts.iter().chain([&self.switch]).collect()
    }

    /// Returns dropped frames by reason, of each daemon.
    pub(crate) fn dropped(&self) -> Vec<BTreeMap<String, u64>> {
        let of = |daemon: &&Daemon| {
            let mut sums = BTreeMap::new();
            for ((_, reason), frames) in daemon.drops() {
                *sums.entry(reason).or_default() += frames;
            }
            sums
        };
        self.daemons().iter().map(of).collect()
    }

    /// Returns frames that hosts dropped for lack of room at the outputs of these ports.
    pub(crate) fn dropped_at_outputs(&self, ports: &[&str]) -> u64 {
        let all = self.hosts.iter().flat_map(Daemon::drops);
        let at_them = all.filter(|((port, reason), _)| {
            ports.contains(&port.as_str()) && reason == "output_full"
        });
        at_them.map(|(_, frames)| frames).sum()
    }

    /// Returns frames lost outside the switches: host, port, counter, frames.
    pub(crate) fn outside(&self) -> Vec<(String, String, String, u64)> {
        let of = |daemon: &&Daemon| {
            let answer = daemon.ask(&["show", "drops"]);
            let word = |row: &serde_json::Value, key: &str| row[key].as_str().unwrap().to_owned();
            let host = word(&answer, "host");
            let rows = answer["outside"].as_array().cloned().unwrap_or_default();
            let row_of = |row: serde_json::Value| {
                let frames = row["frames"].as_u64().unwrap();
                (host.clone(), word(&row, "port"), word(&row, "counter"), frames)
            };
            rows.into_iter().map(row_of).collect::<Vec<_>>()
        };
        self.daemons().iter().flat_map(of).collect()
    }

    /// Waits until every host is connected with every other.
    pub(crate) fn all_connected(&self) {
        are_connected(&self.hosts);
        self.hosts.iter().for_each(Daemon::next_hops_are_resolved);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.flows.stop.store(true, Ordering::Relaxed);
    }
}

fn switch_config(config: &SceneConfig) -> String {
    let SceneConfig { policy, hold, .. } = config;
    let mut text = format!(
        "role = \"switch\"\npolicy = \"{policy}\"\nhold = \"{hold}\"\n[[vnet]]\nname = \"cables\"\n"
    );
    for at in 0..HOSTS {
        text += &format!(
            "[[port]]\nname = \"leg-{at}\"\nkind = \"l2\"\nvnet = \"cables\"\n\
             device = \"leg-{at}\"\nlink = {{ rate_mbps = {LINK_MBPS} }}\n\
             [[vport]]\nvnet = \"cables\"\nmac = \"02:49:00:00:01:0{at}\"\nport = \"leg-{at}\"\n\
             [[vport]]\nvnet = \"cables\"\nmac = \"02:49:00:00:02:0{at}\"\nport = \"leg-{at}\"\n"
        );
    }
    text
}

fn host_config(
    at: usize,
    config: &SceneConfig,
    (state, certificates): (&Path, &Path),
    socket: &impl Fn(usize) -> PathBuf,
) -> String {
    let SceneConfig { policy, hold, workers, .. } = config;
    let id = at + 1;
    let mut config = format!(
        "state_dir = \"{}\"\npolicy = \"{policy}\"\nhold = \"{hold}\"\nworkers = {workers}\n\
         spare_ports = {spare}\n[underlay]\nkind = \"l2\"\n\
         device = \"up0\"\naddress = \"192.0.2.{id}\"\nlink = {{ rate_mbps = {LINK_MBPS} }}\n\
         [fabric]\nname = \"test\"\nid = {id}\ncertificates = \"{}\"\n\
         [[vnet]]\nname = \"blue\"\nvni = 49\n",
        state.display(),
        certificates.display(),
        // Ports are added to hosts of one worker only.
        spare = if *workers == 1 { 4 } else { 0 },
    );
    for (machine, (_, name)) in MACHINES.iter().enumerate().filter(|(_, (host, _))| *host == at) {
        config += &format!(
            "[[port]]\nname = \"{name}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\nsocket = \"{}\"\n\
             mac = \"{mac}\"\n[[vport]]\nvnet = \"blue\"\nmac = \"{mac}\"\nport = \"{name}\"\n",
            socket(machine).display(),
            mac = mac_text(machine),
        );
    }
    for other in (1..=HOSTS).filter(|other| *other != id) {
        config += &format!(
            "[[peer]]\nname = \"h{other}\"\nid = {other}\nvtep = \"192.0.2.{other}\"\n\
             vnets = [\"blue\"]\n"
        );
    }
    config
}

fn box_config(container: &Netns) -> String {
    let mut text = String::new();
    for (machine, name, device) in CARDS {
        let (netns, mac) = (container.name(), mac_text(machine));
        let rate = format!("service_mbps = {SLOW_MBPS}\n");
        text += &format!(
            "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"{device}\"\n\
             netns = \"/run/netns/{netns}\"\nmac = \"{mac}\"\n{rate}\
             [[vport]]\nvnet = \"blue\"\nmac = \"{mac}\"\nport = \"{name}\"\n",
            rate = if machine == SLOW { &rate } else { "" },
        );
    }
    text
}

/// Starts a process of its own in the container, so that it can be stopped: this program, at its
/// test [`reads_datagrams_if_asked`].
fn start_reader(container: &Netns) -> Process {
    let program = std::env::current_exe().unwrap();
    let mut command = container.command(program.to_str().unwrap());
    command.args([
        "--exact",
        "rig::scene::reads_datagrams_if_asked",
        "--include-ignored",
        "--nocapture",
    ]);
    command.env(READER, format!("0.0.0.0:{PORT}"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let reader = Process(command.spawn().unwrap());
    wait_for("the container reads", || {
        let text = container.inside(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
        text.unwrap().lines().any(|line| line.contains(&format!(":{PORT:04X} 00000000:0000")))
    });
    reader
}

/// Reads datagrams until killed, if this process was started for that.
#[test]
#[ignore = "live: the process of a container, started by other tests"]
fn reads_datagrams_if_asked() {
    let Ok(address) = std::env::var(READER) else { return };
    let socket = UdpSocket::bind(address).unwrap();
    let mut bytes = [0; 2_048];
    while socket.recv(&mut bytes).is_ok() {}
}

fn frame(from: usize, to: usize, number: u32, now_us: u64) -> Vec<u8> {
    let mut frame = [&mac(to)[..], &mac(from), &[8, 0]].concat();
    frame.resize(FRAME_BYTES, 0);
    let payload_size = u16::try_from(FRAME_BYTES - HEADERS).unwrap();
    ipv4::Repr {
        src: ip(from),
        dst: ip(to),
        protocol: ipv4::PROTOCOL_UDP,
        dscp: 0,
        ecn: 0,
        ttl: 64,
        ident: 0,
        dont_fragment: true,
        payload_size: payload_size + 8,
    }
    .emit(&mut frame[14..]);
    udp::Repr { src_port: PORT, dst_port: PORT, payload_size }.emit(&mut frame[34..]);
    frame[HEADERS..HEADERS + 4].copy_from_slice(&number.to_be_bytes());
    frame[HEADERS + 4..HEADERS + 12].copy_from_slice(&now_us.to_be_bytes());
    frame
}

/// Runs a machine: it sends at its rate, and reads all frames, unless told not to.
fn machine(at: usize, guest: Guest, socket: PathBuf, flows: Arc<Flows>) -> JoinHandle<Guest> {
    std::thread::spawn(move || {
        let mut machine = Machine { at, guest, flows, sent: [0; 4], due: [0; 4], came: [None; 3] };
        let mut ran = Instant::now();
        while !machine.flows.stop.load(Ordering::Relaxed) {
            let stall = u64::try_from(ran.elapsed().as_micros()).unwrap();
            machine.flows.stall.fetch_max(stall, Ordering::Relaxed);
            machine.connect_again(&socket);
            ran = Instant::now();
            if !machine.flows.stop_sending.load(Ordering::Relaxed) {
                machine.send();
            }
            if machine.flows.reads[at].load(Ordering::Relaxed) {
                machine.read();
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        machine.guest
    })
}

struct Machine {
    at: usize,
    guest: Guest,
    flows: Arc<Flows>,
    /// By innocent pair, and for the flood: frames that were sent, and that were due. Frames due
    /// while a ring was full are not sent later: a rate is not a debt.
    sent: [u32; 4],
    due: [u64; 4],
    /// By innocent pair: the next number, and the time of the last frame.
    came: [Option<(u32, Instant)>; 3],
}

impl Machine {
    /// Reconnects like a hypervisor whose switch went away.
    fn connect_again(&mut self, socket: &Path) {
        if self.guest.is_connected() {
            return;
        }
        if let Ok(stream) = UnixStream::connect(socket) {
            // The connection may fail again; then it is tried again.
            _ = self.guest.attach(stream);
        }
    }

    fn send(&mut self) {
        let elapsed = self.flows.now_us();
        for (index, (from, to)) in INNOCENTS.into_iter().enumerate() {
            if from == self.at {
                let sent = self.send_some(index, to, elapsed * RATE / 1_000_000);
                self.flows.sent[index].fetch_add(sent, Ordering::Relaxed);
            }
        }
        if self.at == FLOODER {
            let to = self.flows.target.load(Ordering::Relaxed);
            let sent = self.send_some(3, to, elapsed * self.flows.flood / 1_000_000);
            self.flows.flooded.fetch_add(sent, Ordering::Relaxed);
        }
    }

    fn send_some(&mut self, index: usize, to: usize, now: u64) -> u64 {
        self.due[index] = self.due[index].max(now.saturating_sub(64));
        let mut count = 0;
        while count < 32 && self.due[index] < now {
            let frame = frame(self.at, to, self.sent[index], self.flows.now_us());
            if !self.guest.send(&frame) {
                break;
            }
            self.sent[index] += 1;
            self.due[index] += 1;
            count += 1;
        }
        count
    }

    fn read(&mut self) {
        while let Some(bytes) = self.guest.receive() {
            let pair = (usize::from(bytes[11]), self.at);
            let Some(index) = INNOCENTS.into_iter().position(|one| one == pair) else {
                self.flows.taken.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let number = u32::from_be_bytes(bytes[HEADERS..HEADERS + 4].try_into().unwrap());
            let sent = u64::from_be_bytes(bytes[HEADERS + 4..HEADERS + 12].try_into().unwrap());
            let now = Instant::now();
            let (next, last) = self.came[index].unwrap_or((0, now));
            let missing = number.saturating_sub(next);
            self.flows.missing[index].fetch_add(missing.into(), Ordering::Relaxed);
            self.flows.late[index].fetch_add(u64::from(number < next), Ordering::Relaxed);
            let gap = u64::try_from(now.duration_since(last).as_micros()).unwrap();
            self.flows.gap[index].fetch_max(gap, Ordering::Relaxed);
            self.came[index] = Some((next.max(number + 1), now));
            self.flows.came[index].fetch_add(1, Ordering::Relaxed);
            let took = self.flows.now_us().saturating_sub(sent);
            self.flows.latencies.lock().unwrap().push(took);
        }
    }
}
