//! A data process takes over from another under load: no frame is lost or duplicated, and order is
//! kept. A process that cannot take over changes nothing.
//!
//! ```text
//!   a ─ TAP ─ h0 ═══ up0 ═══ h1 ─ TAP ─ b        datagrams with numbers, both ways
//!   vm0 ─ vhost-user ─ h0 ─ vhost-user ─ vm1     frames with numbers, both ways
//! ```

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::counted::Counted;
use crate::rig::kernel::Kernel;
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};
use serde_json::Value;
use sluice_api::upgrade::HandedOver;
use sluice_testkit::bound::at_most;
use sluice_testkit::guest::{Guest, GuestConfig};

const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 51, 0, 1), Ipv4Addr::new(10, 51, 0, 2)];
/// Number of replacements of each host.
const ROUNDS: usize = 3;
/// Longest time without a reader.
const GAP_MAX: Duration = Duration::from_millis(50);

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
struct Case {
    daemons: [Daemon; 2],
    net: Net,
    containers: [Netns; 2],
}

impl Case {
    fn new(word: &str, underlay: &str, workers: u32, own_program: bool) -> Self {
        let mut net = Net::new(word);
        let hosts = ["h0", "h1"].map(|name| net.netns(name));
        let containers = ["a", "b"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let daemon = |own: usize| {
            let name = format!("h{own}");
            if own_program {
                fs::create_dir_all(net.file(&name)).unwrap();
                fs::copy(rig::program(), net.file(&name).join("sluice")).unwrap();
            }
            let text = config(own, underlay, workers, &containers[own]);
            net.daemon(&hosts[own], &name, &text)
        };
        let daemons = [daemon(0), daemon(1)];
        for own in 0..2 {
            containers[own].ip(&format!("addr add {}/24 dev t0", INNER[own]));
            containers[own].ip("link set t0 up");
        }
        let case = Self { daemons, net, containers };
        case.daemons.iter().for_each(Daemon::next_hops_are_resolved);
        case.containers[0].ping(INNER[1], 3);
        case
    }

    fn flows(&self) -> [Counted; 2] {
        [0, 1].map(|from| {
            let to = 1 - from;
            Counted::start(
                (&self.containers[from], INNER[from]),
                (&self.containers[to], INNER[to]),
                7000 + u16::try_from(from).unwrap(),
                (16, Duration::from_millis(2), 300),
            )
        })
    }
}

fn config(own: usize, underlay: &str, workers: u32, container: &Netns) -> String {
    let (netns, other) = (container.name(), 1 - own);
    // Frames that waited in the meantime arrive at once: a lossless wire pauses the other host.
    // Sockets cannot: their input has room for frames that arrive while a busy machine runs others.
    let (policy, link) = match underlay {
        "l2" => ("ZZ", ""),
        _ => ("ZL", "link = { in = { frames = 8192, bytes = 16000000 } }"),
    };
    format!(
        r#"policy = "{policy}"
workers = {workers}
[underlay]
kind = "{underlay}"
device = "up0"
address = "{own_vtep}"
{link}
[[vnet]]
name = "blue"
vni = 51
[[peer]]
name = "other"
vtep = "{other_vtep}"
vnets = ["blue"]
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{netns}"
mac = "02:51:00:00:00:0{own}"
[[vport]]
vnet = "blue"
mac = "02:51:00:00:00:0{other}"
peer = "other"
"#,
        own_vtep = VTEPS[own],
        other_vtep = VTEPS[other],
    )
}

fn replaced_under_load(word: &str, underlay: &str, workers: u32) {
    if skip(word, &[]) {
        return;
    }
    let case = Case::new(word, underlay, workers, false);
    let kernel = Kernel::watch(word, &case.net);
    let flows = case.flows();
    std::thread::sleep(Duration::from_millis(500));
    let (mut gaps, mut dropped) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for daemon in &case.daemons {
            let before = daemon.data_pid();
            // The process's counters end with it.
            dropped.push(daemon.drops());
            let done = daemon.ask(&["upgrade"]);
            let handed = &done["handed_over"];
            assert_eq!(handed["left"], 0, "{done}");
            assert_eq!(done["from"].to_string(), before, "{done}");
            let number = |key: &str| handed[key].as_u64().unwrap();
            gaps.push((number("gap_us"), number("drain_us")));
            wait_for("the one that took over answers", || {
                daemon.attempt(&["show", "ports"]).status.success()
                    && daemon.data_pid().parse().ok() == handed["to"].as_u64()
            });
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    let seen = flows.map(Counted::stop);
    dropped.extend(case.daemons.iter().map(Daemon::drops));
    say(&format!("{word}: us without a reader, of which draining: {gaps:?}; {seen:?}"));
    if seen.iter().any(|seen| seen.received != seen.sent) {
        say(&format!("each process dropped: {dropped:?}"));
        kernel.iter().for_each(Kernel::say_all);
    }
    case.daemons.iter().for_each(Daemon::assert_lossless);
    if let Some(kernel) = kernel {
        let [first, second] = &case.daemons;
        kernel.assert_no_loss(&[(first, "underlay", "up0"), (second, "underlay", "up0")]);
    }
    for seen in seen {
        assert!(seen.sent > 1000, "{seen:?}");
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "{seen:?}");
    }
    for (gap_us, _) in gaps {
        at_most("the gap", Duration::from_micros(gap_us), GAP_MAX);
    }
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_of_sockets_goes_on() {
    replaced_under_load("up-udp", "udp", 1);
}

#[test]
#[ignore = "live: needs root"]
fn upgrade_udp_underlay_two_workers_loses_nothing() {
    replaced_under_load("up-udp2", "udp", 2);
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_with_a_ring_goes_on() {
    replaced_under_load("up-l2", "l2", 1);
}

#[test]
#[ignore = "live: needs root"]
fn upgrade_l2_underlay_two_workers_loses_nothing() {
    replaced_under_load("up-l2two", "l2", 2);
}

/// Replaces a program in one step, as a package manager does.
fn install(path: &Path, text: &str) {
    let next = path.with_extension("new");
    fs::write(&next, text).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(next, path).unwrap();
}

#[test]
#[ignore = "live: needs root"]
fn a_process_that_cannot_take_over_changes_nothing() {
    if skip("live::upgrade", &[]) {
        return;
    }
    let case = Case::new("up-not", "l2", 1, true);
    let (daemon, program) = (&case.daemons[0], case.net.file("h0").join("sluice"));
    let real = rig::program();
    let pid = daemon.data_pid();
    let flows = case.flows();
    let refused = |word: &str| {
        let output = daemon.attempt(&["upgrade"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(word), "{said}");
        assert!(said.contains(&format!("data process {pid} goes on")), "{said}");
        assert_eq!(daemon.data_pid(), pid);
        std::thread::sleep(Duration::from_millis(200));
    };
    // The new process opens its ports while the old one is frozen, and one of them is missing.
    let before = fs::read_to_string(case.net.file("h0").join("host.toml")).unwrap();
    daemon.reconfigure(|text| {
        let port = "[[port]]\nname = \"lost\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t9\"\n";
        format!("{text}{port}netns = \"/run/netns/nowhere\"\n")
    });
    refused("exit code 1");
    daemon.reconfigure(|text| text.replacen("policy", "politics", 1));
    refused("configuration");
    daemon.reconfigure(|_| before.clone());
    install(&program, "#!/bin/sh\nexit 3\n");
    refused("exit code 3");
    let seen = flows.map(Counted::stop);
    say(&format!("three that could not take over: {seen:?}"));
    for seen in seen {
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "{seen:?}");
    }
    daemon.assert_lossless();

    // A process with another format reports it, and data is started anew.
    let ready = r#"{"formats":[9],"version":"9.9.9"}"#;
    let real = real.display();
    install(
        &program,
        &format!(
            "#!/bin/sh\ncase \"$*\" in\n*--succeeds*) echo '{ready}' >&0; cat <&0 ;;\n\
             *) exec {real} \"$@\" ;;\nesac\n"
        ),
    );
    let done: Value = daemon.ask(&["upgrade"]);
    assert!(done["why_not"].as_str().unwrap().contains("9.9.9 reads [9]"), "{done}");
    wait_for("another data process answers", || {
        daemon.data_pid() != pid && daemon.attempt(&["show", "ports"]).status.success()
    });
    wait_for("a ping is answered", || Pinger::new(&case.containers[0], INNER[1]).ping(84));
}

#[test]
#[ignore = "live: needs root"]
fn another_number_of_workers_is_started_anew() {
    if skip("live::upgrade", &[]) {
        return;
    }
    let case = Case::new("up-more", "udp", 1, false);
    let daemon = &case.daemons[0];
    for (before, after) in [(1, 2), (2, 3), (3, 1)] {
        let pid = daemon.data_pid();
        daemon.reconfigure(|text| {
            text.replacen(&format!("workers = {before}"), &format!("workers = {after}"), 1)
        });
        let done: Value = daemon.ask(&["upgrade"]);
        let why = done["why_not"].as_str().unwrap();
        assert!(why.contains(&format!("{before} workers read port underlay")), "{done}");
        wait_for("another data process answers", || {
            daemon.data_pid() != pid && daemon.attempt(&["show", "ports"]).status.success()
        });
        wait_for("a ping is answered", || Pinger::new(&case.containers[0], INNER[1]).ping(84));
    }
}

/// Makes a frame between two machines: a number, and its sender.
fn numbered(number: u64, from: u8) -> Vec<u8> {
    let mut frame = vec![2, 0x51, 0, 0, 1, 1 - from, 2, 0x51, 0, 0, 1, from, 0x88, 0xb5];
    frame.extend(number.to_be_bytes());
    frame.resize(120, 0xa5);
    frame
}

/// What a machine has seen.
#[derive(Debug, Default)]
struct Machine {
    sent: u64,
    came: u64,
    /// Frames that it has not got, though later ones came.
    missing: u64,
    gap: Duration,
    /// False if the switch has ended the connection.
    is_connected: bool,
}

/// Sends as the ring has room and takes frames, until it is told to stop sending and nothing has
/// arrived for a while.
fn run_machine(guest: &mut Guest, own: u8, stop: &AtomicBool) -> Machine {
    let mut seen = Machine::default();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) || last.elapsed() < Duration::from_secs(1) {
        if !stop.load(Ordering::Relaxed) {
            for _ in 0..8 {
                seen.sent += u64::from(guest.send(&numbered(seen.sent, own)));
            }
        }
        while let Some(frame) = guest.receive() {
            let next = seen.came + seen.missing;
            let number = u64::from_be_bytes(frame[14..22].try_into().unwrap());
            assert!(number >= next, "each once, in order: {number} after {next}");
            assert_eq!(frame, numbered(number, 1 - own));
            seen.missing += number - next;
            seen.came += 1;
            seen.gap = seen.gap.max(last.elapsed());
            last = Instant::now();
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    assert_eq!(guest.violation(), None);
    seen.is_connected = guest.is_connected();
    seen
}

/// Two machines that send to each other, beneath upgrades.
struct Machines {
    daemon: Daemon,
    guests: [Guest; 2],
    /// Taken down at the end.
    _net: Net,
}

impl Machines {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let netns = net.netns("host");
        let port = |number: u8| {
            let socket = net.file(&format!("vm{number}"));
            format!(
                "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n\
                 socket = \"{}\"\nmac = \"02:51:00:00:01:0{number}\"\n",
                socket.display()
            )
        };
        let vnet = "[[vnet]]\nname = \"blue\"\nmtu = 1450\n";
        let text = format!("policy = \"ZZ\"\n{vnet}{}{}", port(0), port(1));
        let daemon = net.daemon(&netns, "h0", &text);
        let connect = |number: u8| {
            let socket = net.file(&format!("vm{number}"));
            Guest::connected(GuestConfig::default(), &socket).unwrap()
        };
        Self { daemon, guests: [connect(0), connect(1)], _net: net }
    }

    /// Runs them while `during` upgrades the host.
    fn run<T>(&mut self, during: impl FnOnce(&Daemon) -> T) -> (T, Vec<Machine>) {
        let (stop, daemon) = (&AtomicBool::new(false), &self.daemon);
        std::thread::scope(|scope| {
            let guests = self.guests.iter_mut().zip([0, 1]);
            let machines: Vec<_> = guests
                .map(|(guest, own)| scope.spawn(move || run_machine(guest, own, stop)))
                .collect();
            std::thread::sleep(Duration::from_millis(300));
            let done = during(daemon);
            stop.store(true, Ordering::Relaxed);
            (done, machines.into_iter().map(|machine| machine.join().unwrap()).collect())
        })
    }
}

/// Upgrades, and returns what is said of the handover.
fn hand_over(daemon: &Daemon) -> HandedOver {
    let done = daemon.attempt(&["upgrade"]);
    let said: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    serde_json::from_value(said["handed_over"].clone()).unwrap_or_else(|_| panic!("{done:?}"))
}

#[test]
#[ignore = "live: needs root"]
fn machines_notice_nothing() {
    if skip("live::upgrade", &[]) {
        return;
    }
    let mut machines = Machines::new("up-vms");
    let (gaps, seen) = machines.run(|daemon| {
        // A process that has the machines' ports open already when it fails.
        let mut before = String::new();
        daemon.reconfigure(|text| {
            before.clone_from(&text);
            let port =
                "[[port]]\nname = \"lost\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t9\"\n";
            format!("{text}{port}netns = \"/run/netns/nowhere\"\n")
        });
        let failed = daemon.attempt(&["upgrade"]);
        daemon.reconfigure(|_| before);
        let said = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(said.contains("goes on: the new data process ended"), "{said}");
        std::thread::sleep(Duration::from_millis(300));
        let upgrade = |_| {
            let gap = hand_over(daemon);
            std::thread::sleep(Duration::from_millis(700));
            gap
        };
        (0..ROUNDS).map(upgrade).collect::<Vec<_>>()
    });
    say(&format!("machines: {gaps:?}; {seen:?}"));
    let left: u64 = gaps.iter().map(|gap| gap.left).sum();
    if left > 0 {
        // The frames that wait for it do not leave in time, and the session of their sender ends.
        say(&format!("SKIPPED machines_notice_nothing: one had no processor; {left} frames left"));
        return;
    }
    for gap in &gaps {
        assert_eq!(gap.ports, 2, "{gap:?}");
        at_most("the gap", Duration::from_micros(gap.gap_us), GAP_MAX);
    }
    assert!(seen.iter().all(|machine| machine.is_connected && machine.missing == 0), "{seen:?}");
    assert!(seen.iter().all(|machine| machine.sent > 1000), "{seen:?}");
    assert_eq!([seen[0].sent, seen[1].sent], [seen[1].came, seen[0].came], "{seen:?}");
    machines.daemon.assert_lossless();
}
