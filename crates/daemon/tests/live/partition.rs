//! Fabrics in parts: hosts that are cut off, killed, hung or without room on their disks. At most
//! one part commits, nothing that was said to be committed is lost, everything heals by itself, and
//! hosts forward all the time. The hosts and containers are those of `rig/bridge.rs`.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::Counted;
use crate::rig::kernel::Kernel;
use crate::rig::ping::{Pinger, Pings};
use crate::rig::scene::Disk;
use crate::rig::{Daemon, Netns, say, skip, wait_for};
use sluice_testkit::bound::is_soak;

/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (4, Duration::from_millis(2), 500);
/// Faults of a short drill, and of a long one.
const FAULTS_SHORT: u64 = 4;
const FAULTS_LONG: u64 = 200;
/// Longest time for an answer while a container is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// Waits until a container is reached from another one.
fn reaches(bridge: &Bridge, from: usize, to: usize) {
    let mut pinger = Pinger::with_patience(&bridge.containers[from], ip(to), PATIENCE);
    wait_for("a container is reached", || pinger.ping(84));
}

/// Starts datagrams from one host's container to another's.
fn flow(bridge: &Bridge, from: usize, to: usize) -> Counted {
    let at = |own: usize| (&bridge.containers[own], ip(own));
    // A container sends one flow and receives another.
    let port = 9_000 + u16::try_from(from).unwrap();
    Counted::start(at(from), at(to), port, FLOW)
}

/// Panics if a datagram was lost or came late.
fn assert_all_came(flow: Counted, what: &str) {
    let seen = flow.stop();
    assert_eq!((seen.received, seen.late), (seen.sent, 0), "{what}: {seen:?}");
}

/// Adds another container at a host, and pings between both.
fn pings_at(bridge: &mut Bridge, own: usize) -> (Netns, Pings) {
    let netns = bridge.net.netns("beside");
    let words = ["port", "add", "--netns", netns.name(), "--vnet", "blue", "--ip", "10.42.0.9/24"];
    bridge.daemons[own].says(&words);
    let mut pinger = Pinger::with_patience(&netns, ip(own), PATIENCE);
    wait_for("a container is reached", || pinger.ping(84));
    let pings = Pings::start(&netns, ip(own));
    (netns, pings)
}

/// Panics unless all hosts have the same configuration and the same transactions.
fn assert_one_history(daemons: &[Daemon]) {
    let [first, others @ ..] = daemons else { return };
    let text = |daemon: &Daemon| {
        let text = daemon.says(&["config", "show"]);
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
    };
    for other in others {
        assert_eq!(text(first), text(other));
        assert_eq!(first.transactions(), other.transactions());
    }
}

#[test]
#[ignore = "live: needs root"]
fn hosts_that_are_alone_never_diverge() {
    if skip("hosts_that_are_alone_never_diverge", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("alone", 2);
    let create = |name, vni| ["vnet", "create", name, "--vni", vni];
    // Each alone would make a network of its own, and never see the other one's.
    bridge.daemons[1].kill_both();
    bridge.daemons[0].refuses(&create("t1", "1"), &["nothing has changed", "missing: h2"]);
    bridge.daemons[0].kill_both();
    bridge.daemons[1].restart_control();
    bridge.daemons[1].refuses(&create("t2", "2"), &["nothing has changed", "missing: h1"]);
    bridge.daemons[0].restart_control();
    bridge.all_have_caught_up();
    assert_eq!((bridge.daemons[0].vnets(), bridge.daemons[1].vnets()).0, ["blue"]);
    bridge.daemons[1].says(&create("t3", "3"));
    bridge.daemons[0].says(&create("t4", "4"));
    bridge.all_have_caught_up();
    assert_one_history(&bridge.daemons);
}

#[test]
#[ignore = "live: needs root"]
fn minority_refuses_changes_and_keeps_forwarding() {
    if skip("minority_refuses_changes_and_keeps_forwarding", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("minority", 3);
    (0..3).for_each(|own| _ = bridge.add(own));
    reaches(&bridge, 0, 1);
    let (_beside, pings) = pings_at(&mut bridge, 2);
    let apart = flow(&bridge, 0, 1);
    bridge.cut(2, true);
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    wait_for("it is noticed", || h3.progress()["writable"] == false);
    let parts = ["nothing has changed", "1 of 3 voters", "missing: h1, h2", "go on forwarding"];
    h3.refuses(&["vnet", "create", "red", "--vni", "7"], &parts);
    h3.refuses(&["vnet", "create", "red", "--vni", "7", "--check"], &["h1", "h2"]);
    wait_for("the others have a leader", || h1.progress()["writable"] == true);
    wait_for("h3 is away", || !h1.is_connected());
    let all = ["vnet", "create", "green", "--vni", "8", "--require-all"];
    h1.refuses(&all, &["nothing has changed", "h3 is away"]);
    let said = h2.says(&["vnet", "create", "red", "--vni", "9"]);
    assert!(said.contains("not yet at h3"), "{said}");
    assert_eq!(h3.vnets(), ["blue"]);
    let why = h3.progress()["why"].as_str().unwrap().to_owned();
    assert!(why.contains("h1") && why.contains("h2"), "{why}");
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings at the host that is cut off");
    bridge.cut(2, false);
    bridge.all_have_caught_up();
    assert_eq!(h3.vnets().len(), 2);
    assert_all_came(apart, "datagrams of the others");
    reaches(&bridge, 2, 0);
    assert_one_history(&bridge.daemons);
}

#[test]
#[ignore = "live: needs root"]
fn survivor_recovers_without_lost_host() {
    if skip("survivor_recovers_without_lost_host", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("recover", 2);
    bridge.daemons[1].kill_both();
    bridge.daemons[0].refuses(
        &["vnet", "create", "red", "--vni", "7"],
        &["missing: h2", "sluice fabric recover"],
    );
    bridge.daemons[0].refuses(&["fabric", "recover", "--without", "h9", "--yes"], &["h9"]);
    let said = bridge.daemons[0].says(&["fabric", "recover", "--without", "h2", "--yes"]);
    say(&said);
    bridge.daemons[0].says(&["vnet", "create", "red", "--vni", "7"]);
    bridge.daemons[1].restart_control();
    wait_for("they are of one mind again", || bridge.daemons[1].vnets().len() == 2);
    bridge.daemons[1].says(&["vnet", "create", "green", "--vni", "8"]);
    bridge.all_have_caught_up();
    assert_one_history(&bridge.daemons);
}

#[test]
#[ignore = "live: needs root"]
fn full_disk_is_named_and_heals_by_itself() {
    if skip("full_disk_is_named_and_heals_by_itself", &["mount", "umount"]) {
        return;
    }
    let mut disk = None;
    let bridge = Bridge::waiting("full", 3, |net, own| {
        if own != 2 {
            return String::new();
        }
        let path = net.file("h3.state");
        // What is mounted after a host has started is not seen in its namespace.
        disk = Some(Disk::with_size(&path, "16m"));
        format!("state_dir = \"{}\"\n", path.display())
    });
    let disk = disk.unwrap();
    bridge.become_fabric();
    let [h1, _, h3] = &bridge.daemons[..] else { unreachable!() };
    (0..3).for_each(|own| _ = bridge.add(own));
    reaches(&bridge, 0, 2);
    let apart = flow(&bridge, 0, 2);
    disk.fill(true);
    // A small change still finds room that the file has already.
    let file = bridge.net.file("candidate.toml");
    let more = (1_000..2_000).map(|vni| format!("[vnet.n{vni}]\nvni = {vni}\n"));
    let text = h1.says(&["config", "show"]) + &more.collect::<String>();
    std::fs::write(&file, text).unwrap();
    h1.says(&["config", "load", file.to_str().unwrap()]);
    // A host that cannot write is as if it were away: it stops nobody else.
    h1.says(&["config", "commit"]);
    // It tries to write what was committed, and finds out.
    wait_for("host 3 knows that its disk is full", || h3.progress()["writable"] == false);
    h3.refuses(
        &["vnet", "create", "red", "--vni", "7"],
        &["nothing has changed", "the disk of this host cannot be written"],
    );
    disk.fill(false);
    bridge.all_have_caught_up();
    h3.says(&["vnet", "create", "green", "--vni", "9"]);
    bridge.all_have_caught_up();
    assert_eq!(h3.vnets().len(), 1_002);
    assert_all_came(apart, "datagrams beside a full disk");
    assert_one_history(&bridge.daemons);
    drop(bridge);
    drop(disk);
}

#[test]
#[ignore = "live: needs root"]
fn commits_lose_no_frame_of_lossless_priority() {
    if skip("commits_lose_no_frame_of_lossless_priority", &[]) {
        return;
    }
    let bridge = Bridge::fabric("lossless", 3);
    let kernel = Kernel::watch("commits_lose_no_frame_of_lossless_priority", &bridge.net);
    (0..3).for_each(|own| _ = bridge.add(own));
    reaches(&bridge, 0, 1);
    reaches(&bridge, 2, 0);
    let flows = [flow(&bridge, 0, 1), flow(&bridge, 2, 0)];
    let pings = Pings::start(&bridge.containers[1], ip(2));
    let rounds = if is_soak() { 30 } else { 4 };
    for round in 0..rounds {
        let daemon = &bridge.daemons[round % 3];
        daemon.says(&["vnet", "create", "red", "--vni", "7"]);
        daemon.says(&["vnet", "set", "red", "mtu=1400"]);
        daemon.says(&["config", "set", &format!("learn_max={}", 500 + round)]);
        daemon.says(&["vnet", "delete", "red"]);
    }
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings through {rounds} rounds of commits");
    for flow in flows {
        assert_all_came(flow, "datagrams through commits");
    }
    bridge.all_have_caught_up();
    for daemon in &bridge.daemons {
        daemon.drained();
        daemon.assert_lossless();
    }
    if let Some(kernel) = &kernel {
        for netns in bridge.hosts.iter().chain([&bridge.wire]) {
            let mut lost = kernel.lost_in(netns);
            // Beacons of the hosts, which nobody asked for here.
            lost.retain(|row| !row.contains("ip_rcv_finish_core"));
            assert_eq!(lost, [""; 0], "lost by the kernel");
        }
    }
}

/// A fault of one host.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    KillControl,
    KillData,
    KillBoth,
    HangControl,
    HangData,
    Cut,
}

const FAULTS: [Fault; 7] = [
    Fault::None,
    Fault::KillControl,
    Fault::KillData,
    Fault::KillBoth,
    Fault::HangControl,
    Fault::HangData,
    Fault::Cut,
];

impl Fault {
    fn strike(self, bridge: &mut Bridge, own: usize) {
        match self {
            Self::None => {}
            Self::KillControl => bridge.daemons[own].kill_control(),
            Self::KillData => bridge.daemons[own].kill_data(),
            Self::KillBoth => bridge.daemons[own].kill_both(),
            Self::HangControl => bridge.daemons[own].hang_control(true),
            Self::HangData => bridge.daemons[own].hang_data(true),
            Self::Cut => bridge.cut(own, true),
        }
    }

    fn heal(self, bridge: &mut Bridge, own: usize) {
        match self {
            Self::None | Self::KillData => {}
            Self::KillControl | Self::KillBoth => bridge.daemons[own].restart_control(),
            Self::HangControl => bridge.daemons[own].hang_control(false),
            Self::HangData => bridge.daemons[own].hang_data(false),
            Self::Cut => bridge.cut(own, false),
        }
    }
}

/// Begins to make the network `red`, or to delete it.
fn begin(daemon: &Daemon, is_there: bool) -> Child {
    let words: &[&str] = match is_there {
        true => &["vnet", "delete", "red"],
        false => &["vnet", "create", "red", "--vni", "7"],
    };
    let mut command = daemon.command(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the answer; `None`: the fate of the change is not known.
fn end(change: Child) -> (Option<bool>, String) {
    let output = change.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_done = match output.status.success() {
        true => Some(true),
        false => said.contains("nothing has changed").then_some(false),
    };
    (is_done, said)
}

/// Draws faults, of hosts that forward and commit, one after another.
fn drill(seed: u64, faults: u64) {
    let mut bridge = Bridge::fabric("random", 3);
    (0..3).for_each(|own| _ = bridge.add(own));
    let mut rng = sluice_base::Prng::new(seed);
    let mut pick = |count: u64| usize::try_from(rng.below(count)).unwrap();
    let mut is_there = false;
    for step in 0..faults {
        let (fault, own, at) = (FAULTS[pick(7)], pick(3), pick(3));
        let last = Duration::from_millis(200 + 100 * pick(14) as u64);
        let (from, to) = ((own + 1) % 3, (own + 2) % 3);
        reaches(&bridge, from, to);
        let apart = flow(&bridge, from, to);
        fault.strike(&mut bridge, own);
        let began = Instant::now();
        let change = begin(&bridge.daemons[at], is_there);
        std::thread::sleep(last);
        fault.heal(&mut bridge, own);
        let (is_done, said) = end(change);
        bridge.all_have_caught_up();
        let healed = began.elapsed();
        reaches(&bridge, own, from);
        let now = bridge.daemons[own].vnets().contains(&"red".to_owned());
        say(&format!(
            "seed {seed}, step {step}: {fault:?} of h{} for {last:?}, change at h{}: {}; all have \
             caught up after {healed:?} {}",
            own + 1,
            at + 1,
            is_done.map_or("unknown", |done| if done { "done" } else { "refused" }),
            said.trim(),
        ));
        assert_one_history(&bridge.daemons);
        if let Some(is_done) = is_done {
            assert_eq!(now, is_there ^ is_done, "the answer to the change was true");
        }
        is_there = now;
        assert_all_came(apart, "datagrams of the others");
    }
    for daemon in &bridge.daemons {
        daemon.drained();
        assert_eq!(daemon.show("audit")["closed"], true);
    }
}

#[test]
#[ignore = "live: needs root"]
fn random_faults_leave_one_configuration() {
    if skip("random_faults_leave_one_configuration", &[]) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let faults = if is_soak() { FAULTS_LONG } else { FAULTS_SHORT };
    drill(number("SLUICE_SEED").unwrap_or(1), number("SLUICE_RUNS").unwrap_or(faults));
}
