//! Privileges of the two processes of a host in the kernel's view, while ports are added and
//! deleted and after the programs were replaced.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixDatagram;
use std::process::Child;
use std::time::Duration;

use crate::rig;
use crate::rig::member::member;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, skip, wait_for};
use rustix::process::{Pid, Signal};

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);

/// Returns a line of `/proc/PID/status`.
fn status(pid: &str, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {key} of process {pid}")).trim().to_owned()
}

/// Returns the number of seccomp filters of both processes.
fn filters(daemon: &Daemon) -> [u32; 2] {
    [daemon.control_pid(), daemon.data_pid()].map(|pid| {
        assert_eq!(status(&pid, "NoNewPrivs"), "1");
        status(&pid, "Seccomp_filters").parse().unwrap()
    })
}

/// Two hosts, and a container of each.
struct Case {
    daemons: [Daemon; 2],
    _net: Net,
    hosts: [Netns; 2],
    containers: [Netns; 2],
}

fn case(word: &'static str, head: &str) -> Case {
    let mut net = Net::new(word);
    let hosts = ["h1", "h2"].map(|name| net.netns(name));
    let containers = ["c1", "c2"].map(|name| net.netns(name));
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    let folder = net.certificates(&["h1", "h2"]);
    let daemon = |own: usize| {
        net.daemon(&hosts[own], &format!("h{}", own + 1), &member(own, &folder, head, ""))
    };
    let daemons = [daemon(0), daemon(1)];
    are_connected(&daemons);
    Case { daemons, _net: net, hosts, containers }
}

impl Case {
    /// Adds a port for the container of each host.
    fn add_ports(&self) {
        for (at, container) in self.containers.iter().enumerate() {
            let ip = format!("10.42.0.{}/24", at + 1);
            let netns = container.name();
            let words = ["port", "add", "--netns", netns, "--name", "p", "--vnet", "blue"];
            self.daemons[at].ask(&[&words[..], &["--ip", &ip]].concat());
        }
    }
}

#[test]
#[ignore = "live: needs root"]
fn seccomp_filters_both_processes_without_denied_operation() {
    if skip("live::security", &[]) {
        return;
    }
    let own: u32 = status("self", "Seccomp_filters").parse().unwrap();
    let mut case = case("seccomp", "");
    for daemon in &case.daemons {
        assert_eq!(filters(daemon), [own + 1, own + 2], "control; data executes nothing, either");
        for pid in [daemon.control_pid(), daemon.data_pid()] {
            assert_eq!(status(&pid, "Seccomp"), "2");
            for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
                let thread = thread.unwrap().file_name().into_string().unwrap();
                assert_eq!(status(&format!("{pid}/task/{thread}"), "Seccomp"), "2");
            }
        }
    }
    case.add_ports();
    case.containers[1].ping(C1, 3);

    // A newer program, twice, and a data process that takes over: no additional filter.
    for _ in 0..2 {
        let before = case.daemons[0].data_pid();
        case.daemons[0].ask(&["upgrade"]);
        wait_for("another data process forwards", || case.daemons[0].data_pid() != before);
        wait_for("control answers", || {
            case.daemons[0].attempt(&["show", "ports"]).status.success()
        });
        assert_eq!(filters(&case.daemons[0]), [own + 1, own + 2]);
        case.containers[1].ping(C1, 3);
    }
    // A supervisor restarts control.
    case.daemons[0].kill_control();
    case.daemons[0].restart_control();
    assert_eq!(filters(&case.daemons[0]), [own + 1, own + 2]);
    case.daemons[0].kill_data();
    wait_for("data is started anew", || {
        case.daemons[0].attempt(&["show", "ports"]).status.success()
    });
    case.containers[1].ping(C1, 3);
    for daemon in &mut case.daemons {
        daemon.ask(&["port", "del", "p"]);
        assert!(!daemon.log().contains("not permitted"), "{}", daemon.log());
        daemon.stop();
    }
    drop(case.hosts);
}

#[test]
#[ignore = "live: needs root"]
fn filter_can_be_switched_off() {
    if skip("live::security", &[]) {
        return;
    }
    let own: u32 = status("self", "Seccomp_filters").parse().unwrap();
    let case = case("unfiltered", "seccomp = \"off\"");
    for daemon in &case.daemons {
        assert_eq!(filters(daemon), [own; 2]);
    }
}

/// Started as root, continued as `nobody`, which every machine's list of users has.
#[test]
#[ignore = "live: needs root"]
fn unprivileged_user_runs_all_operations_of_root() {
    if skip("live::security", &[]) {
        return;
    }
    let mut case = case("user", "user = \"nobody\"");
    let is_nobody = |daemon: &Daemon| {
        // The process of an upgrade is written down a moment later.
        wait_for("its processes run", || {
            [daemon.control_pid(), daemon.data_pid()]
                .iter()
                .all(|pid| fs::exists(format!("/proc/{pid}/status")).unwrap())
        });
        for pid in [daemon.control_pid(), daemon.data_pid()] {
            let uids = status(&pid, "Uid");
            assert!(uids.split_whitespace().all(|uid| uid == "65534"), "process {pid}: {uids}");
            let sets = ["CapEff", "CapPrm", "CapAmb"].map(|key| status(&pid, key));
            assert!(sets.iter().all(|set| *set == sets[0]), "{sets:?}");
            let bounds = [&sets[0], &status(&pid, "CapBnd")]
                .map(|set| u64::from_str_radix(set, 16).unwrap());
            assert_eq!(bounds[0] & !bounds[1], 0, "{bounds:x?}");
            // CAP_SETUID, CAP_SYS_MODULE.
            assert_eq!(bounds[0] & (1 << 7 | 1 << 16), 0, "{bounds:x?}");
        }
    };
    case.daemons.iter().for_each(is_nobody);
    case.add_ports();
    case.containers[1].ping(C1, 3);
    case.daemons[0].ask(&["upgrade"]);
    wait_for("control answers", || case.daemons[0].attempt(&["show", "ports"]).status.success());
    is_nobody(&case.daemons[0]);
    case.containers[1].ping(C1, 3);
    // The host's devices outlive its processes, and a supervisor starts it anew.
    let index = case.containers[0].ip("-o link show dev eth0");
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    is_nobody(&case.daemons[0]);
    wait_for("its container is reached", || {
        case.containers[1].attempt(&format!("ping -c 1 -W 1 {C1}")).status.success()
    });
    let again = case.containers[0].ip("-o link show dev eth0");
    let number = |line: &str| line.split(':').next().map(str::to_owned);
    assert_eq!(number(&again), number(&index), "the TAP is the same");
    for daemon in &mut case.daemons {
        daemon.ask(&["port", "del", "p"]);
        daemon.stop();
        let log = daemon.log();
        assert!(!log.contains("not permitted") && !log.contains("ermission denied"), "{log}");
    }
}

/// A process that gave up the right to change its user continues as it is, and reports that; a new
/// start changes the user.
#[test]
#[ignore = "live: needs root"]
fn configured_user_added_later_applies_after_restart() {
    if skip("live::security", &[]) {
        return;
    }
    let mut case = case("later", "");
    let uids = |daemon: &Daemon| {
        [daemon.control_pid(), daemon.data_pid()]
            .map(|pid| status(&pid, "Uid").split_whitespace().next().map(str::to_owned).unwrap())
    };
    let h1 = &mut case.daemons[0];
    let before = h1.data_pid();
    h1.reconfigure(|text| text.replacen("[host]", "[host]\nuser = \"nobody\"", 1));
    h1.ask(&["upgrade"]);
    wait_for("another data process forwards", || h1.data_pid() != before);
    wait_for("control answers", || h1.attempt(&["show", "ports"]).status.success());
    assert_eq!(uids(h1), ["0", "0"]);
    assert!(h1.log().contains("still root"), "{}", h1.log());
    h1.kill_both();
    h1.restart_control();
    assert_eq!(uids(h1), ["65534", "65534"]);
    are_connected([&*h1]);
}

/// A service manager waits for `READY=1`: also of a host whose fabric is yet to be made. While one
/// waits, and while it forwards, it says that it lives.
#[test]
#[ignore = "live: needs root"]
fn waiting_and_forwarding_hosts_notify_service_manager() {
    if skip("live::security", &[]) {
        return;
    }
    /// Signs of life that are many.
    const HEARD_MAX: usize = 100;
    const FORWARDS: &str = r#"policy = "ZL"
[underlay]
kind = "l2"
device = "up0"
address = "192.0.2.1"
[[vnet]]
name = "blue"
vni = 100
"#;
    let mut net = Net::new("notify");
    let [host, other] = ["h1", "h2"].map(|name| net.netns(name));
    cable((&host, "up0", "192.0.2.1/24"), (&other, "up0", "192.0.2.2/24"));
    for (name, rest) in [("waits", ""), ("forwards", FORWARDS)] {
        let manager = UnixDatagram::bind(net.file(&format!("{name}.sock"))).unwrap();
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let dir = net.file(name);
        fs::create_dir_all(&dir).unwrap();
        let config = dir.join("host.toml");
        let [run_dir, state_dir] = ["run", "state"].map(|word| dir.join(word));
        let text = format!(
            "[host]\nname = \"{name}\"\nrun_dir = \"{}\"\nstate_dir = \"{}\"\n{rest}",
            run_dir.display(),
            state_dir.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = host.command(rig::program().to_str().unwrap());
        command.args(["daemon", "--config", config.to_str().unwrap()]);
        command.env("NOTIFY_SOCKET", net.file(&format!("{name}.sock")));
        command.env("WATCHDOG_USEC", "200000");
        let mut control = command.spawn().unwrap();
        let mut heard = Vec::new();
        // It is ready once, and lives again and again.
        let said_all = ["READY=1", "WATCHDOG=1", "WATCHDOG=1"].iter().all(|state| {
            let mut bytes = [0; 64];
            while heard.len() < HEARD_MAX {
                let Ok(size) = manager.recv(&mut bytes) else { break };
                heard.push(String::from_utf8_lossy(&bytes[..size]).into_owned());
                if heard.last().is_some_and(|last| last == state) {
                    return true;
                }
            }
            false
        });
        signal(&control, Signal::TERM);
        let ended = control.wait().unwrap();
        assert!(said_all && ended.success(), "{name}: {ended}, {heard:?}");
    }
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}
