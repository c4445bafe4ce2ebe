//! Containers whose cards are veth pairs: their senders are held, whatever stops, and the card
//! stays when the data process does not.
//!
//! ```text
//!   one ─ veth ─┐
//!               ├ host           datagrams with numbers, as fast as they are taken
//!   two ─ veth ─┘
//! ```

use std::io::Write as _;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::kernel::Kernel;
use crate::rig::pair::{Pair, devices};
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, Process, cable, say, skip, wait_for};
use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};

const ONE: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 52, 0, 2);
const PORT: u16 = 9052;
const DATAGRAM_BYTES: usize = 1000;
/// Rate of the receiver's card: its socket has room for more than what comes during a stop.
const SERVICE_MBPS: u32 = 40;
const BUFFER_BYTES: usize = 32 << 20;
const STOP: Duration = Duration::from_millis(300);
/// Time without a datagram after which the reader ends.
const QUIET: Duration = Duration::from_secs(4);
/// Longest time for which a sender is held.
const HELD_MAX: Duration = Duration::from_secs(10);
/// Variable with the address of a reader.
const READER: &str = "SLUICE_VETH_READER";

/// Everything of one test. Fields end in this order: the daemon before its namespaces.
struct Case {
    daemon: Daemon,
    net: Net,
    one: Netns,
    two: Netns,
}

impl Case {
    fn new(word: &str, kind: &str) -> Self {
        let mut net = Net::new(word);
        let (host, peer) = (net.netns("host"), net.netns("peer"));
        let (one, two) = (net.netns("one"), net.netns("two"));
        cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
        let mut text = "policy = \"ZZ\"\n[underlay]\nkind = \"l2\"\ndevice = \"up0\"\n\
                        address = \"192.0.2.1\"\n[[vnet]]\nname = \"blue\"\nvni = 52\n"
            .to_owned();
        for (name, netns, last) in [("one", &one, 1), ("two", &two, 2)] {
            let mac = format!("02:52:00:00:00:0{last}");
            text += &format!(
                "[[port]]\nname = \"{name}\"\nkind = \"{kind}\"\nvnet = \"blue\"\n\
                 device = \"eth0\"\nnetns = \"/run/netns/{}\"\nmac = \"{mac}\"\n\
                 service_mbps = {SERVICE_MBPS}\n",
                netns.name()
            );
        }
        let daemon = net.daemon(&host, "h0", &text);
        for (netns, address) in [(&one, ONE), (&two, TWO)] {
            netns.ip(&format!("addr add {address}/24 dev eth0"));
            netns.ip("link set eth0 up");
        }
        one.ping(TWO, 3);
        // No datagram waits for an answer of ARP.
        one.ip(&format!("neigh replace {TWO} lladdr 02:52:00:00:00:02 dev eth0 nud permanent"));
        two.ip(&format!("neigh replace {ONE} lladdr 02:52:00:00:00:01 dev eth0 nud permanent"));
        Self { daemon, net, one, two }
    }

    /// Starts a process in the second container that reads, so that it can be stopped: this
    /// program, at its test [`reads_numbered_datagrams_if_asked`].
    fn reader(&self) -> Process {
        let program = std::env::current_exe().unwrap();
        let mut command = self.two.command(program.to_str().unwrap());
        command.args(["--exact", "veth::reads_numbered_datagrams_if_asked", "--include-ignored"]);
        command.arg("--nocapture").env(READER, format!("{TWO}:{PORT}"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let reader = Process(command.spawn().unwrap());
        wait_for("the container reads", || {
            let text = self.two.inside(|| std::fs::read_to_string("/proc/thread-self/net/udp"));
            text.unwrap().contains(&format!(":{PORT:04X} 00000000:0000"))
        });
        reader
    }
}

/// Reads datagrams until none comes, and prints how many came, and how many of them late.
#[test]
#[ignore = "live: a process that other tests start"]
fn reads_numbered_datagrams_if_asked() {
    let Ok(address) = std::env::var(READER) else { return };
    let socket = UdpSocket::bind(address).unwrap();
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).unwrap();
    let (mut received, mut late, mut next) = (0u64, 0u64, 0u64);
    let (mut bytes, mut last) = ([0; 2048], None::<Instant>);
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while last.is_none_or(|last| last.elapsed() < QUIET) {
        if socket.recv(&mut bytes).is_err() {
            continue;
        }
        last = Some(Instant::now());
        let number = u64::from_be_bytes(*bytes.first_chunk().unwrap());
        received += 1;
        late += u64::from(number < next);
        next = next.max(number + 1);
    }
    writeln!(std::io::stderr(), "READ {received} {late}").unwrap();
}

/// A sender that sends as fast as its socket takes, from a thread of its own.
struct Flow<'a> {
    sent: &'a AtomicU64,
    done: &'a AtomicBool,
}

impl Flow<'_> {
    fn send(&self, socket: &UdpSocket) {
        let mut bytes = [0xa5; DATAGRAM_BYTES];
        while !self.done.load(Ordering::Relaxed) {
            let number = self.sent.load(Ordering::Relaxed);
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            match socket.send_to(&bytes, (TWO, PORT)) {
                Err(_) if self.done.load(Ordering::Relaxed) => return,
                sent => sent.expect("a held sender waits, and gets no error"),
            };
            self.sent.store(number + 1, Ordering::Relaxed);
        }
    }
}

/// Ends a flow, also when its test fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends while `work` runs. Returns the numbers of datagrams sent, received and late.
fn numbered(case: &Case, work: impl FnOnce(&Process, &AtomicU64)) -> (u64, u64, u64) {
    let reader = case.reader();
    let (sent, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let socket = case.one.udp(ONE, PORT);
    socket.set_write_timeout(Some(HELD_MAX)).unwrap();
    std::thread::scope(|scope| {
        let _done = Done(&done);
        let flow = Flow { sent: &sent, done: &done };
        scope.spawn(move || flow.send(&socket));
        std::thread::sleep(Duration::from_millis(200));
        work(&reader, &sent);
    });
    let said = wait_and_read(reader);
    let line = said.lines().find_map(|line| line.strip_prefix("READ ")).unwrap_or_default();
    let (received, late) = line.split_once(' ').unwrap_or_else(|| panic!("{said}"));
    (sent.into_inner(), received.parse().unwrap(), late.parse().unwrap())
}

fn wait_and_read(mut reader: Process) -> String {
    use std::io::Read as _;
    let mut said = String::new();
    reader.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

/// Stops the receiver and the data process in turn.
fn stopped_in_turn(case: &Case, reader: &Process, sent: &AtomicU64, is_held: bool) {
    for round in 0..4 {
        let pid = Pid::from_child(&reader.0);
        kill_process(pid, Signal::STOP).unwrap();
        std::thread::sleep(STOP);
        kill_process(pid, Signal::CONT).unwrap();
        std::thread::sleep(STOP);
        case.daemon.hang_data(true);
        std::thread::sleep(STOP / 2);
        let held = sent.load(Ordering::Relaxed);
        std::thread::sleep(STOP / 2);
        let now = sent.load(Ordering::Relaxed);
        case.daemon.hang_data(false);
        assert!(!is_held || now == held, "round {round}: {held}, and {now} after a while");
        std::thread::sleep(STOP);
    }
}

#[test]
#[ignore = "live: needs root"]
fn unbounded_sender_loses_nothing_across_stops() {
    let test = "unbounded_sender_loses_nothing_across_stops";
    if skip(test, &[]) {
        return;
    }
    let case = Case::new("held", "veth");
    let row = case.daemon.row("ports", "port", "one");
    assert_eq!((row["kind"].as_str(), row["lossless"].as_str()), (Some("veth"), Some("yes")));
    let kernel = Kernel::watch(test, &case.net);
    let (sent, received, late) =
        numbered(&case, |reader, sent| stopped_in_turn(&case, reader, sent, true));
    say(&format!("{test}: {sent} sent, {received} received, {late} late"));
    case.daemon.drained();
    assert!(sent > 2_000, "{sent}");
    assert_eq!((received, late), (sent, 0), "{}", case.daemon.show("ports"));
    case.daemon.assert_lossless();
    if let Some(kernel) = kernel {
        kernel.assert_no_loss(&[]);
    }
    // The same from a TAP, which drops before Linux 7.3: the flow above needs to be held.
    if sluice_ports::probe::tap_features().unwrap().back_pressure {
        return;
    }
    drop(case);
    let case = Case::new("lost", "tap");
    let (sent, received, _) =
        numbered(&case, |reader, sent| stopped_in_turn(&case, reader, sent, false));
    say(&format!("{test}: from a TAP, {sent} sent, {received} received"));
    assert!(received < sent, "{received} of {sent}");
}

/// Returns what the owner of a card may see or have set.
fn state(netns: &Netns) -> Vec<String> {
    let link = netns.ip("-o link show dev eth0");
    let words: Vec<&str> = link.split_whitespace().collect();
    let value = |key: &str| words.iter().skip_while(|word| **word != key).nth(1).copied();
    let mut state = vec![format!("{} {}", words[0], words[1])];
    state.extend(["mtu", "link/ether", "qdisc"].map(|key| format!("{key} {:?}", value(key))));
    state.push(netns.ip("-o addr show dev eth0"));
    state.push(netns.ip("route show table all").replace(" linkdown", ""));
    state.push(netns.ip("neigh show nud permanent"));
    state
}

#[test]
#[ignore = "live: needs root"]
fn card_and_its_frames_survive_the_data_process() {
    let test = "card_and_its_frames_survive_the_data_process";
    if skip(test, &[]) {
        return;
    }
    let mut case = Case::new("kept", "veth");
    case.one.ip("route add 10.99.0.0/16 via 10.52.0.2");
    let before = [state(&case.one), state(&case.two)];
    let replaced = |daemon: &Daemon, pid: &str| {
        wait_for("another data process answers", || {
            daemon.data_pid() != pid && daemon.attempt(&["show", "ports"]).status.success()
        });
    };
    let mut left = 0;
    let (sent, received, late) = numbered(&case, |_, _| {
        for _ in 0..3 {
            let pid = case.daemon.data_pid();
            let done = case.daemon.ask(&["upgrade"]);
            let handed = &done["handed_over"];
            say(&format!("{test}: {handed}"));
            // A busy machine may keep the process that yields from sending for 30 ms.
            left += handed["left"].as_u64().unwrap();
            replaced(&case.daemon, &pid);
            std::thread::sleep(STOP);
        }
    });
    say(&format!("{test}: upgraded three times: {sent} sent, {received} received, {late} late"));
    assert_eq!((received + left, late), (sent, 0), "{left} left; {}", case.daemon.log());
    for _ in 0..3 {
        let pid = case.daemon.data_pid();
        let (sent, received, late) = numbered(&case, |_, _| {
            case.daemon.kill_data();
            replaced(&case.daemon, &pid);
            std::thread::sleep(STOP);
        });
        say(&format!("{test}: killed: {sent} sent, {received} received, {late} late"));
        assert_eq!(late, 0);
        assert!(sent - received < 10_000, "only what the process had: {sent}, {received}");
        assert_eq!([state(&case.one), state(&case.two)], before, "{}", case.daemon.log());
    }
    // Control that was killed, and one with another file, which drains data.
    let pid = case.daemon.data_pid();
    case.daemon.kill_control();
    case.daemon.restart_control();
    case.daemon.kill_data();
    replaced(&case.daemon, &pid);
    let pid = case.daemon.data_pid();
    case.daemon.kill_control();
    case.daemon.reconfigure(|text| text.replacen("[host]", "[host]\npace_us = 3", 1));
    case.daemon.restart_control();
    replaced(&case.daemon, &pid);
    wait_for("a ping is answered", || Pinger::new(&case.one, TWO).ping(84));
    assert_eq!([state(&case.one), state(&case.two)], before, "{}", case.daemon.log());
    case.daemon.stop();
    assert_eq!(devices(&case.one), ["lo"], "cards go with the host");
}

#[test]
#[ignore = "live: needs root"]
fn veth_port_added_and_deleted_at_run_time() {
    if skip("live::veth", &[]) {
        return;
    }
    let case = Pair::new("added", 8);
    let name = case.containers[0].name();
    let add = |at: usize, ip: &str| {
        let netns = case.containers[at].name();
        let words = ["port", "add", "--kind", "veth", "--netns", netns, "--vnet", "blue"];
        case.daemons[0].ask(&[&words[..], &["--ip", ip]].concat())
    };
    for round in 0..3 {
        add(0, "10.42.0.1/24");
        add(2, "10.42.0.3/24");
        let row = case.daemons[0].row("ports", "port", name);
        assert_eq!((row["kind"].as_str(), row["lossless"].as_str()), (Some("veth"), Some("yes")));
        case.containers[0].ping(Ipv4Addr::new(10, 42, 0, 3), 3);
        if round == 1 {
            let (pid, card) = (case.daemons[0].data_pid(), state(&case.containers[0]));
            case.daemons[0].kill_data();
            wait_for("another data process has the port", || {
                case.daemons[0].data_pid() != pid
                    && case.daemons[0].attempt(&["show", "ports"]).status.success()
                    && case.daemons[0].show("ports").to_string().contains(name)
            });
            wait_for("a ping is answered", || {
                Pinger::new(&case.containers[0], Ipv4Addr::new(10, 42, 0, 3)).ping(84)
            });
            assert_eq!(state(&case.containers[0]), card);
        }
        // The card is down: nobody is held, and it comes back.
        let downs = || {
            let line = format!("link-down port {}", case.containers[2].name());
            case.daemons[0].log().matches(&line).count()
        };
        let before = downs();
        case.containers[2].ip("link set eth0 down");
        wait_for("its link is seen down", || downs() > before);
        case.containers[2].ip("link set eth0 up");
        wait_for("a ping is answered", || {
            Pinger::new(&case.containers[0], Ipv4Addr::new(10, 42, 0, 3)).ping(84)
        });
        for at in [0, 2] {
            case.delete(0, case.containers[at].name());
            assert_eq!(devices(&case.containers[at]), ["lo"]);
        }
    }
    // A namespace that goes takes its card along, and leaves a port that can be deleted.
    add(0, "10.42.0.1/24");
    rig::run(&format!("ip netns del {name}"));
    wait_for("data notices", || case.daemons[0].log().contains(&format!("port {name}: ")));
    case.delete(0, name);
}
