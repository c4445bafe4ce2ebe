//! A data process takes over from another under load: nothing is lost, nothing comes twice, and
//! order is kept. One that cannot changes nothing.
//!
//! ```text
//!   a ─ TAP ─ h0 ═══ up0 ═══ h1 ─ TAP ─ b        datagrams with numbers, both ways
//! ```

mod rig;

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use rig::counted::Counted;
use rig::kernel::Kernel;
use rig::ping::Pinger;
use rig::{Daemon, Net, Netns, cable, say, skip, wait_for};
use serde_json::Value;
use sluice_testkit::bound::at_most;

const VTEPS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
const INNER: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 51, 0, 1), Ipv4Addr::new(10, 51, 0, 2)];
/// How often each host is replaced.
const ROUNDS: usize = 3;
/// For how long nobody may read, at most.
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
    format!(
        r#"policy = "ZL"
workers = {workers}
[underlay]
kind = "{underlay}"
device = "up0"
address = "{own_vtep}"
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
    let mut gaps = Vec::new();
    for _ in 0..ROUNDS {
        for daemon in &case.daemons {
            let before = daemon.data_pid();
            let done = daemon.ask(&["upgrade"]);
            let handed = &done["handed_over"];
            assert_eq!(handed["left"], 0, "{done}");
            assert_eq!(done["from"].to_string(), before, "{done}");
            let number = |key: &str| handed[key].as_u64().unwrap();
            gaps.push((number("gap_us"), number("drain_us")));
            wait_for("the one that took over answers", || {
                daemon.attempt(&["show", "ports"]).status.success()
                    && daemon.data_pid() == handed["to"].to_string()
            });
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    let seen = flows.map(Counted::stop);
    say(&format!("{word}: us without a reader, of which draining: {gaps:?}; {seen:?}"));
    for seen in seen {
        assert!(seen.sent > 1000, "{seen:?}");
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "{seen:?}");
    }
    for (gap_us, _) in gaps {
        at_most("the gap", Duration::from_micros(gap_us), GAP_MAX);
    }
    case.daemons.iter().for_each(Daemon::assert_lossless);
    if let Some(kernel) = kernel {
        let [first, second] = &case.daemons;
        kernel.assert_no_loss(&[(first, "underlay", "up0"), (second, "underlay", "up0")]);
    }
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_of_sockets_goes_on() {
    replaced_under_load("up-udp", "udp", 1);
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_of_sockets_that_two_workers_share_goes_on() {
    replaced_under_load("up-udp2", "udp", 2);
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_with_a_ring_goes_on() {
    replaced_under_load("up-l2", "l2", 1);
}

#[test]
#[ignore = "live: needs root"]
fn an_underlay_with_a_ring_and_two_workers_goes_on() {
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
    if skip("live_upgrade", &[]) {
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
    // It opens its ports while the old one is frozen, and one of them is not there.
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

    // One of another format says so, and data is started anew.
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
