//! Networks and peers come and go in running data processes: nothing of the others is lost, and
//! both processes may be killed in between.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2       datagrams with numbers, pings and TCP in `blue`
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!       └  50 networks and a third host come and go  ┘
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::rig;
use crate::rig::counted::Counted;
use crate::rig::pair::Pair;
use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Daemon, say, skip, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const NEW: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 43, 0, 1), Ipv4Addr::new(10, 43, 0, 2)];
/// Number of networks that come and go.
const NETWORKS: usize = 50;
const ROUNDS: usize = 4;
/// End of the part of a file that does not change.
const MARK: &str = "# networks and peers that come and go\n";

/// Returns the names of the networks that come.
fn names() -> Vec<String> {
    (0..NETWORKS).map(|n| format!("net{n}")).collect()
}

/// Gives the file of a host more networks, which the other host has too, and a third host.
fn give(daemon: &Daemon, networks: &[String], third: bool) {
    let list = |names: &[String]| {
        let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        names.join(", ")
    };
    let blue = "blue".to_owned();
    let all: Vec<String> = std::iter::once(blue.clone()).chain(networks.iter().cloned()).collect();
    daemon.reconfigure(|text| {
        let kept = text.split(MARK).next().unwrap().trim_end().to_owned();
        let (head, tail) = kept.split_once("vnets = [").unwrap();
        let (_, tail) = tail.split_once(']').unwrap();
        let mut text = format!("{head}vnets = [{}]{tail}\n{MARK}", list(&all));
        for (at, name) in networks.iter().enumerate() {
            text += &format!("[[vnet]]\nname = \"{name}\"\nvni = {}\n", 1_000 + at);
        }
        if third {
            // No member: the VTEP of a kernel.
            let vnets = list(&all);
            text +=
                &format!("[[peer]]\nname = \"third\"\nvtep = \"192.0.2.3\"\nvnets = [{vnets}]\n");
        }
        text
    });
}

fn reload(daemon: &Daemon) -> Value {
    let done = daemon.ask(&["reload"]);
    assert_eq!(done["at_restart"], Value::Array(Vec::new()), "{done}");
    done
}

fn kill_data(daemon: &Daemon) {
    let pid = daemon.data_pid().parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("data has a number"), Signal::KILL).unwrap();
}

fn peers(daemon: &Daemon) -> Vec<String> {
    let rows = daemon.show("tunnels");
    let names = rows.as_array().unwrap().iter().map(|row| row["peer"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
#[ignore = "live: needs root"]
fn networks_and_peers_come_and_go_without_loss() {
    if skip("live::reload", &["iperf3"]) {
        return;
    }
    let mut case = Pair::new("reload", 4);
    let [c1, c2, _] = case.containers.clone();
    case.add(0, 0, C1);
    case.add(1, 1, C2);
    case.both_know(C1, true);
    case.both_know(C2, true);
    c1.ping(C2, 5);
    let pids = [0, 1].map(|own| case.daemons[own].data_pid());
    let mut server = c2.command("iperf3");
    let _server = rig::Process(
        server.args(["-s", "-1"]).stdout(std::process::Stdio::null()).spawn().unwrap(),
    );
    std::thread::sleep(Duration::from_millis(500));
    let mut client = c1.command("iperf3");
    let address = C2.to_string();
    let client = client.args(["-c", &address, "-t", "30", "-b", "50M", "--json"]);
    let client = client.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pings = Pings::start(&c1, C2);
    let datagrams =
        [(&c1, C1, &c2, C2, 7_000), (&c2, C2, &c1, C1, 7_001)].map(|(a, at, b, to, port)| {
            Counted::start((a, at), (b, to), port, (16, Duration::from_millis(2), 300))
        });
    let mut changes = 0;
    for round in 0..ROUNDS {
        for networks in [names(), names()[round..].to_vec(), Vec::new()] {
            for daemon in &case.daemons {
                give(daemon, &networks, round % 2 == 0);
                let done = reload(daemon);
                changes += done["changed"].as_array().unwrap().len();
            }
        }
        if round % 2 == 0 {
            assert!(peers(&case.daemons[0]).contains(&"third".to_owned()));
        } else {
            assert_eq!(peers(&case.daemons[0]), ["h2"]);
            // Control may be killed: the next one takes over what is in force, with its numbers.
            case.daemons[1].kill_control();
            case.daemons[1].restart_control();
        }
    }
    assert_eq!([0, 1].map(|own| case.daemons[own].data_pid()), pids, "data goes on");
    for flow in datagrams {
        let seen = flow.stop();
        say(&format!("{changes} changes under load: {seen:?}"));
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "{seen:?}");
    }
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings beside the changes");
    let tcp = client.wait_with_output().unwrap();
    let tcp: Value = serde_json::from_slice(&tcp.stdout).unwrap();
    let bytes = tcp["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
    assert!(bytes > 100_000_000, "{bytes} bytes by TCP");
    case.daemons.iter().for_each(Daemon::assert_lossless);

    new_network_is_usable(&mut case);
}

/// Checks that a container of a new network reaches the other host, before and after both data
/// processes are killed, and that the network stays while it is used.
fn new_network_is_usable(case: &mut Pair) {
    let networks = names()[7..9].to_vec();
    for daemon in &case.daemons {
        give(daemon, &networks, true);
        reload(daemon);
    }
    let name = &networks[1];
    for (own, ip) in NEW.iter().enumerate() {
        let (netns, ip) = (case.containers[own].name(), format!("{ip}/24"));
        let words = ["port", "add", "--netns", netns, "--device", "eth1", "--name", "new"];
        case.daemons[own].ask(&[&words[..], &["--vnet", name, "--ip", &ip]].concat());
    }
    case.both_know(NEW[0], true);
    case.both_know(NEW[1], true);
    case.containers[0].ping(NEW[1], 5);
    // A network that a port uses is not removed, and nothing else changes either.
    give(&case.daemons[0], &networks[..1], false);
    let refused = case.daemons[0].attempt(&["reload"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains(&format!("network `{name}`")), "{why}");
    assert!(why.contains("port `new`"), "{why}");
    assert!(peers(&case.daemons[0]).contains(&"third".to_owned()), "all or nothing");
    case.containers[0].ping(NEW[1], 3);
    give(&case.daemons[0], &networks, true);
    // What is in force outlives the data process.
    for own in 0..2 {
        kill_data(&case.daemons[own]);
        wait_for("another data process answers", || {
            case.daemons[own].attempt(&["show", "ports"]).status.success()
        });
    }
    wait_for("the new network works again", || Pinger::new(&case.containers[0], NEW[1]).ping(84));
    wait_for("the old one does, too", || Pinger::new(&case.containers[0], C2).ping(84));
    // A fault of the file is said by its line, and changes nothing.
    case.daemons[0].reconfigure(|text| format!("{text}[[vnet]]\nname = \"blue\"\nvni = 42\n"));
    let refused = case.daemons[0].attempt(&["reload"]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("line "), "{why}");
    case.containers[0].ping(NEW[1], 3);
}
