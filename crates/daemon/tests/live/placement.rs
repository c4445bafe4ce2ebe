//! One placement policy for three hosts whose workers share an underlay of sockets: set at any of
//! them, followed by all; and the same of a fabric that was made by command, whose configuration
//! has the policy.
//!
//! ```text
//!   c1 ─ h1 ═╗
//!   c2 ─ h2 ═╬═ a bridge
//!        h3 ═╝
//! ```

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::ping::{Pinger, Pings};
use crate::rig::vm::{self, Vm};
use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};
use serde_json::Value;

const HOSTS: [&str; 3] = ["h1", "h2", "h3"];

fn config(own: usize, container: Option<&Netns>, certificates: &Path) -> String {
    let id = own + 1;
    let mut text = format!(
        r#"
policy = "ZL"
workers = 2
worker_cpus = [0, 1]
vcpu_cpus = []
placement = "on-the-fly"
[underlay]
kind = "udp"
device = "up0"
address = "192.0.2.{id}"
link = {{ in = {{ frames = 8192, bytes = 16000000 }} }}
[fabric]
name = "test"
id = {id}
certificates = "{certificates}"
[[vnet]]
name = "blue"
vni = 60
"#,
        certificates = certificates.display(),
    );
    for other in (1..=3).filter(|other| *other != id) {
        text += &format!(
            "[[peer]]\nname = \"h{other}\"\nid = {other}\nvtep = \"192.0.2.{other}\"\n\
             vnets = [\"blue\"]\n"
        );
    }
    if let Some(container) = container {
        text += &web(&format!("02:60:00:00:00:0{id}"), container, &format!("10.60.0.{id}"));
    }
    text
}

/// Returns the row of a host in an answer.
fn of<'a>(answer: &'a Value, host: &str) -> &'a Value {
    let hosts = answer["hosts"].as_array().unwrap();
    hosts.iter().find(|row| row["host"] == host).unwrap_or(&Value::Null)
}

/// Returns the rule of each of some hosts, from the answer of one.
fn rules(answer: &Value, hosts: &[&str]) -> Vec<String> {
    let rule = |host: &&str| of(answer, host)["places"][0]["mode"].as_str().map(str::to_owned);
    hosts.iter().map(|host| rule(host).unwrap_or_default()).collect()
}

fn version(host: &Daemon) -> (u64, u64) {
    let stamp = &host.ask(&["placement", "show"])["stamped"]["stamp"];
    (stamp["version"].as_u64().unwrap(), stamp["by"].as_u64().unwrap())
}

fn connected(host: &Daemon, count: usize) {
    wait_for("the hosts are connected", || {
        let members = host.ask(&["fabric", "members"])["members"].take();
        let up = members.as_array().unwrap().iter().filter(|row| row["connected"] == true).count();
        up == count
    });
}

struct Case {
    daemons: Vec<Daemon>,
    net: Net,
    certificates: PathBuf,
    hosts: [Netns; 3],
    switch: Netns,
    containers: [Netns; 2],
}

impl Case {
    fn new() -> Self {
        let mut net = Net::new("policy");
        let hosts = HOSTS.map(|name| net.netns(name));
        let (switch, containers) = (net.netns("sw"), ["c1", "c2"].map(|name| net.netns(name)));
        switch.ip("link add br0 type bridge");
        switch.ip("link set br0 up");
        for (at, host) in hosts.iter().enumerate() {
            let (port, address) = (format!("p{}", at + 1), format!("192.0.2.{}/24", at + 1));
            cable((host, "up0", &address), (&switch, &port, ""));
            switch.ip(&format!("link set {port} master br0"));
        }
        let certificates = net.certificates(&HOSTS);
        let mut case = Self { daemons: Vec::new(), net, certificates, hosts, switch, containers };
        case.start();
        case.start();
        for own in 0..2 {
            case.set_up(own);
            connected(&case.daemons[own], 2);
        }
        case
    }

    /// Sets up the container of a host.
    fn set_up(&self, own: usize) {
        let netns = &self.containers[own];
        // A device that outlived its host has the address already.
        netns.ip(&format!("addr replace 10.60.0.{}/24 dev t0", own + 1));
        netns.ip("link set t0 up");
    }

    /// Starts the next host.
    fn start(&mut self) {
        let own = self.daemons.len();
        let certificates = self.certificates.join(HOSTS[own]);
        let text = config(own, self.containers.get(own), &certificates);
        let daemon = self.net.daemon(&self.hosts[own], HOSTS[own], &text);
        self.daemons.push(daemon);
    }

    fn ask(&self, own: usize, line: &str) -> Value {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemons[own].ask(&words)
    }

    /// Asks one host, and once more which policy hosts follow that did not answer it in time.
    fn ask_all(&self, own: usize, line: &str, hosts: &[&str]) -> Value {
        let mut answer = self.ask(own, line);
        let all_say = |answer: &Value| !rules(answer, hosts).contains(&String::new());
        if !all_say(&answer) {
            wait_for("all say what they follow", || {
                answer["hosts"] = self.ask(own, "placement show")["hosts"].take();
                all_say(&answer)
            });
        }
        answer
    }

    /// Waits until all hosts hold the same policy.
    fn agree_on(&self, wanted: (u64, u64)) {
        wait_for(&format!("all hold {wanted:?}"), || {
            self.daemons.iter().all(|host| version(host) == wanted)
        });
    }
}

#[test]
#[ignore = "live: needs root"]
fn a_policy_is_set_once_and_followed_everywhere() {
    if skip("placement", &[]) {
        return;
    }
    let mut case = Case::new();
    let two = ["h1", "h2"];
    let answer = case.ask_all(0, "placement show", &two);
    assert_eq!(rules(&answer, &two), ["on-the-fly"; 2], "their own: {answer}");

    // At one host: the answer shows that all of them follow, except for one that is not there.
    let line = "placement set --mode rss++ --high vnet=blue,proto=tcp,port=443";
    let answer = case.ask_all(0, line, &two);
    assert_eq!(rules(&answer, &two), ["rss++"; 2], "{answer}");
    assert_eq!(answer["stamped"]["policy"]["high"][0], "vni=60,proto=tcp,port=443", "{answer}");
    assert_eq!(version(&case.daemons[1]), (1, 1));
    for host in ["h1", "h2"] {
        let place = &of(&answer, host)["places"][0];
        let high: u64 = (0..2).map(|at| place["cpus"][at]["high"].as_u64().unwrap()).sum();
        assert_eq!((place["high"].as_u64(), high), (Some(1), 64), "{answer}");
    }
    assert_eq!(of(&answer, "h2")["places"][0]["stamp"]["version"], 1, "{answer}");
    let follows = HOSTS.map(|host| of(&answer, host)["follows"].clone());
    assert_eq!(follows, [true, true, false], "{answer}");
    let absent = of(&answer, "h3")["notes"][0].as_str().unwrap();
    assert!(absent.contains("can be asked again"), "{answer}");

    // At another host, from a file, with an exception for a host.
    let file = case.net.file("policy.toml");
    std::fs::write(&file, "mode = \"adaptive\"\n[hosts.h1]\nexcluded_cpus = [1]\n").unwrap();
    let answer = case.ask_all(1, &format!("placement set {}", file.display()), &two);
    assert_eq!(rules(&answer, &two), ["adaptive"; 2], "{answer}");
    let excluded =
        |host: &str, at: usize| of(&answer, host)["places"][0]["cpus"][at]["excluded"].clone();
    assert_eq!((excluded("h1", 1), excluded("h1", 0)), (true.into(), Value::Null), "{answer}");
    assert_eq!(excluded("h2", 1), Value::Null, "{answer}");
    case.agree_on((2, 2));
    case.containers[0].ping(Ipv4Addr::new(10, 60, 0, 2), 20);
    say(&case.daemons[0].print(&["placement", "show"]));

    // A host that joins later asks for the policy; a restarted one has it.
    case.start();
    case.agree_on((2, 2));
    case.daemons[0].kill_both();
    case.daemons[0].restart_control();
    case.set_up(0);
    case.agree_on((2, 2));
    wait_for("its new data process follows", || {
        rules(&case.ask(2, "placement show"), &HOSTS) == ["adaptive"; 3]
    });
    case.ask(0, "placement clear");
    case.agree_on((3, 1));
    wait_for("their own configurations hold", || {
        rules(&case.ask(1, "placement show"), &HOSTS) == ["on-the-fly"; 3]
    });
    case.containers[1].ping(Ipv4Addr::new(10, 60, 0, 1), 20);
    case.daemons.iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root"]
fn partitioned_hosts_converge_on_highest_policy_version() {
    if skip("placement apart", &[]) {
        return;
    }
    let mut case = Case::new();
    case.start();
    (0..3).for_each(|own| connected(&case.daemons[own], 3));
    case.ask(0, "placement set --mode rss");
    case.agree_on((1, 1));
    // h3 is cut off; both sides set another policy, the larger side twice.
    case.switch.ip("link set p3 down");
    wait_for("h3 is missed", || {
        let answer = case.ask(0, "placement show");
        of(&answer, "h3")["stamp"].is_null() && !of(&answer, "h3")["notes"][0].is_null()
    });
    case.ask(2, "placement set --mode rss++");
    case.ask(1, "placement set --mode predetermined");
    case.ask(0, "placement set --mode adaptive");
    assert_eq!((version(&case.daemons[2]), version(&case.daemons[1])), ((2, 3), (3, 1)));
    case.switch.ip("link set p3 up");
    case.agree_on((3, 1));
    wait_for("h3 follows", || rules(&case.ask(0, "placement show"), &HOSTS) == ["adaptive"; 3]);
}

/// Sets the memory that the kernel allows for a socket's program; returns false if all namespaces
/// share that limit.
fn allow_programs(host: &Netns, bytes: u32) -> bool {
    let mut shell = host.command("sh");
    let line = format!("echo {bytes} > /proc/sys/net/core/optmem_max");
    shell.args(["-c", &line]).stderr(Stdio::null()).status().unwrap().success()
}

/// File of a member of a fabric made by command, with its workers.
const WORKERS: &str = r#"
workers = 2
worker_cpus = [0, 1]
vcpu_cpus = []
placement = "on-the-fly"
[underlay]
kind = "udp"
device = "up0"
"#;

/// Returns the port of a container in the network `blue`, for the file of a host.
fn port(own: usize, container: &Netns) -> String {
    web(&format!("02:60:00:00:00:0{}", own + 1), container, &ip(own).to_string())
}

/// Returns the port `web` of a container, bound to its addresses, for a file.
fn web(mac: &str, container: &Netns, ip: &str) -> String {
    let name = container.name();
    format!(
        r#"
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{name}"
mac = "{mac}"
[[vport]]
vnet = "blue"
mac = "{mac}"
ip = "{ip}"
port = "web"
"#
    )
}

/// Returns the stamp of the policy that holds at a host, and true if the configuration has it.
fn committed(host: &Daemon) -> (Value, bool) {
    let answer = host.ask(&["placement", "show"]);
    (answer["stamped"]["stamp"].clone(), answer["committed"] == true)
}

/// Waits until all hosts follow one policy of the configuration, by this rule at each.
fn follow_committed(bridge: &Bridge, modes: [&str; 3]) {
    wait_for("all follow the committed policy", || {
        let first = committed(&bridge.daemons[0]);
        bridge.daemons.iter().all(|host| {
            let answer = host.ask(&["placement", "show"]);
            let follow =
                answer["hosts"].as_array().unwrap().iter().all(|row| row["follows"] == true);
            committed(host) == first && first.1 && follow && rules(&answer, &HOSTS) == modes
        })
    });
}

#[test]
#[ignore = "live: needs root"]
fn policy_of_configured_fabric_is_transaction() {
    if skip("placement of a fabric", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("placed", 3);
    // Sockets, which the workers of a host share, send no pauses.
    bridge.daemons[0].says(&["config", "set", "policy=ZL"]);
    bridge.all_have_caught_up();
    // How much of the log is committed reaches a disk with the next change.
    bridge.daemons[0].says(&["config", "set", "moves_max=9"]);
    bridge.all_have_caught_up();
    for (own, daemon) in bridge.daemons.iter_mut().enumerate() {
        let container = &bridge.containers[own];
        let port = port(own, container);
        daemon.rewrite("host.toml", |text| format!("{text}{WORKERS}{port}"));
        daemon.kill_both();
        daemon.restart_control();
        container.ip(&format!("addr replace {}/24 dev t0", ip(own)));
        container.ip("link set t0 up");
    }
    bridge.all_have_caught_up();
    let patience = Duration::from_millis(200);
    let mut pinger = Pinger::with_patience(&bridge.containers[0], ip(1), patience);
    wait_for("a container is reached", || pinger.ping(84));
    let pings = Pings::start(&bridge.containers[0], ip(1));
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    assert!(!committed(h1).1, "none is committed yet");
    let kept = h1.revision();

    // At one host: its answer is that of any other change.
    let answer = h1.ask(&["placement", "set", "--mode", "rss++", "--high", "vnet=blue"]);
    let done = &answer["committed"];
    assert_eq!(done["revision"], h1.revision(), "{answer}");
    assert!(done["changes"][0].as_str().unwrap().contains("vni=100"), "{answer}");
    follow_committed(&bridge, ["rss++"; 3]);
    let first = h2.revision();
    let text = h3.says(&["config", "show"]);
    assert!(text.contains("[placement]\nmode = \"rss++\"\nhigh = [\"vni=100\"]"), "{text}");
    let text = h2.says(&["placement", "show"]);
    assert!(text.contains("# version 1, set at host 1, in the fabric's configuration"), "{text}");

    // From a text, with an exception for a host.
    let file = bridge.net.file("candidate.toml");
    let policy = "[placement]\nmode = \"adaptive\"\nexcluded_cpus = [0]\n[placement.hosts.h2]\n\
                  mode = \"rss++\"\nexcluded_cpus = [1]\n";
    let text = h2.says(&["config", "show"]);
    let others = text.split("[placement]").next().unwrap();
    std::fs::write(&file, format!("{others}{policy}")).unwrap();
    h2.says(&["config", "load", file.to_str().unwrap()]);
    let said = h2.says(&["config", "diff"]);
    assert!(said.contains("placement policy = {\"mode\":\"adaptive\""), "{said}");
    h2.says(&["config", "commit"]);
    follow_committed(&bridge, ["adaptive", "rss++", "adaptive"]);
    let (stamp, _) = committed(h3);
    assert_eq!((stamp["version"].as_u64(), stamp["by"].as_u64()), (Some(2), Some(2)));

    // A host that cannot follow refuses, while it is connected.
    let before = h1.revision();
    std::fs::write(&file, "[hosts.h2]\nexcluded_cpus = [0, 1]\n").unwrap();
    wait_for("h2 refuses", || {
        let words = ["placement", "set", file.to_str().unwrap(), "--require-all"];
        let why = h3.try_say(&words).expect_err("no worker would be left");
        why.contains("h2 refuses") && why.contains("excludes every CPU of its workers (0, 1)")
    });
    assert_eq!(h1.revision(), before);

    // A host that is cut off keeps the last one, after a restart too, and sets none.
    bridge.cut(2, true);
    wait_for("h3 misses the others", || h3.progress()["writable"] == false);
    h3.refuses(
        &["placement", "set", "--mode", "rss"],
        &["nothing has changed", "a majority is needed", "missing: h1, h2"],
    );
    h1.says(&["placement", "set", "--mode", "predetermined", "--comment", "without h3"]);
    bridge.daemons[2].kill_both();
    bridge.daemons[2].restart_control();
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    assert_eq!(committed(h3), (stamp.clone(), true), "it holds what was committed before");
    wait_for("its new data process follows", || {
        rules(&h3.ask(&["placement", "show"]), &["h3"]) == ["adaptive"]
    });
    bridge.cut(2, false);
    bridge.all_have_caught_up();
    follow_committed(&bridge, ["predetermined"; 3]);

    // A roll-back restores the policy, and its stamp; then that there is none.
    h2.says(&["config", "rollback", &first.to_string()]);
    follow_committed(&bridge, ["rss++"; 3]);
    assert_eq!(committed(h3).0["version"], 1);
    h3.says(&["placement", "clear"]);
    follow_committed(&bridge, ["on-the-fly"; 3]);
    h3.says(&["config", "rollback", &kept.to_string()]);
    wait_for("none is committed", || bridge.daemons.iter().all(|host| !committed(host).1));
    let text = h1.says(&["config", "show"]);
    assert!(!text.contains("[placement]"), "{text}");
    bridge.all_have_caught_up();
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings beside it");
    [h1, h2].into_iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root"]
fn policy_refused_by_kernel_noted_then_followed_later() {
    if skip("placement without memory", &[]) {
        return;
    }
    let case = Case::new();
    // The limit before Linux 6.7.
    if !allow_programs(&case.hosts[0], 20_480) {
        return say(
            "SKIPPED placement without memory: namespaces have no `optmem_max` of their own",
        );
    }
    let matches: Vec<String> = (0..32)
        .map(|n| {
            format!(
                "\"vni=60,mac=02:60:00:00:01:{n:02x},ip=fd00:1:2:3:4:5:6:{n:x},proto=udp,port={n}\""
            )
        })
        .collect();
    let file = case.net.file("policy.toml");
    std::fs::write(&file, format!("high = [{}]", matches.join(", "))).unwrap();
    let answer = case.ask_all(1, &format!("placement set {}", file.display()), &["h1", "h2"]);
    assert_eq!(of(&answer, "h2")["places"][0]["high"], 32, "it has the memory: {answer}");
    let place = &of(&answer, "h1")["places"][0];
    assert_eq!((&place["high"], &place["stamp"]["version"]), (&0.into(), &0.into()), "{answer}");
    let notes = of(&answer, "h1")["notes"].to_string();
    assert!(notes.contains("raise net.core.optmem_max"), "{answer}");
    let follows = ["h1", "h2"].map(|host| of(&answer, host)["follows"].clone());
    assert_eq!(follows, [false, true], "{answer}");
    let shown = case.daemons[0].show("placement").to_string();
    assert!(shown.contains("the kernel refuses 1"), "{shown}");
    // Everything else continues: flows leave a CPU that is excluded.
    let pings = Pings::start(&case.containers[1], Ipv4Addr::new(10, 60, 0, 1));
    wait_for("its flow is placed", || flow(&case.daemons[0]).is_some());
    let at = flow(&case.daemons[0]).unwrap();
    let text = format!("high = [{}]\n[hosts.h1]\nexcluded_cpus = [{at}]\n", matches.join(", "));
    std::fs::write(&file, text).unwrap();
    case.ask(1, &format!("placement set {}", file.display()));
    wait_for("the flow has left it", || flow(&case.daemons[0]).is_some_and(|worker| worker != at));
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings while the flow moved");
    assert!(allow_programs(&case.hosts[0], 131_072));
    wait_for("it follows", || of(&case.ask(1, "placement show"), "h1")["places"][0]["high"] == 32);
    case.daemons.iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root"]
fn placement_invalid_policy_refused_without_effect() {
    if skip("placement refused", &[]) {
        return;
    }
    let case = Case::new();
    let file = case.net.file("policy.toml");
    for (text, says) in [
        ("mode = \"fast\"", "unknown variant `fast`"),
        ("high = [\"vnet=green\"]", "the host knows no network `green`; there are blue"),
        ("high = [\"port=443\"]", "a port needs proto=tcp"),
        ("excluded_cpus = [5000]", "CPU 5000 cannot be excluded"),
        ("cpus = [1]", "unknown field `cpus`"),
    ] {
        std::fs::write(&file, text).unwrap();
        let output = case.daemons[0].attempt(&["placement", "set", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(says), "{text}: {said}");
    }
    let many = case.daemons[0].attempt(&["placement", "set", "--exclude-cpus", "0-4095"]);
    let said = String::from_utf8_lossy(&many.stderr).into_owned();
    assert!(!many.status.success() && said.contains("8192 are the most"), "{said}");
    let empty = case.daemons[0].attempt(&["placement", "set"]);
    assert!(!empty.status.success(), "nothing is not a policy: `clear` is");
    assert_eq!(version(&case.daemons[0]), (0, 0));
}

/// Returns the configuration of a host with a virtual machine: two workers, each on a CPU of its
/// own.
fn with_machine(socket: &Path) -> String {
    format!(
        r#"
policy = "ZL"
workers = 2
worker_cpus = [0, 1]
[underlay]
kind = "udp"
device = "up0"
address = "192.0.2.1"
[[vnet]]
name = "blue"
vni = 60
mtu = 1450
[[port]]
name = "vm"
kind = "vhost-user"
vnet = "blue"
mac = "02:00:00:00:00:01"
socket = "{}"
worker = 0
[[peer]]
name = "h2"
vtep = "192.0.2.2"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:02"
peer = "h2"
"#,
        socket.display()
    )
}

/// Returns the configuration of a host with a container.
fn with_container(container: &Netns) -> String {
    format!(
        r#"
policy = "ZL"
[underlay]
kind = "udp"
device = "up0"
address = "192.0.2.2"
[[vnet]]
name = "blue"
vni = 60
mtu = 1450
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "02:00:00:00:00:02"
[[peer]]
name = "h1"
vtep = "192.0.2.1"
vnets = ["blue"]
[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:01"
peer = "h1"
"#,
        container.name()
    )
}

/// Returns the worker that gets most of the flow.
fn flow(host: &Daemon) -> Option<usize> {
    let rows = host.show("placement");
    let load = |row: &Value| row["buckets"]["load_percent"].as_f64().unwrap_or(0.0);
    let rows = rows.as_array().unwrap().iter().filter(|row| load(row) > 0.0);
    let row = rows.max_by(|a, b| load(a).total_cmp(&load(b)))?;
    usize::try_from(row["worker"].as_u64()?).ok()
}

#[test]
#[ignore = "live: needs root"]
fn tunnel_flows_leave_cpu_with_pinned_vcpu() {
    if vm::skip("a pinned machine", &[]) {
        return;
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return say("SKIPPED a pinned machine: it needs two CPUs");
    }
    let mut net = Net::new("pinned");
    let (h1, h2, c2) = (net.netns("h1"), net.netns("h2"), net.netns("c2"));
    cable((&h1, "up0", "192.0.2.1/24"), (&h2, "up0", "192.0.2.2/24"));
    let socket = net.file("vm.sock");
    let hosts = [
        net.daemon(&h1, "h1", &with_machine(&socket)),
        net.daemon(&h2, "h2", &with_container(&c2)),
    ];
    c2.ip("addr add 10.0.0.2/24 dev t0");
    c2.ip("link set t0 up");
    let mut machine = Vm::boot(1, &socket);
    machine.ready();
    let pings = Pings::start(&c2, Ipv4Addr::new(10, 0, 0, 1));
    let runs_vcpu = |cpu: usize| {
        let answer = hosts[0].ask(&["placement", "show"]);
        answer["hosts"][0]["places"][0]["cpus"][cpu]["runs_vcpu"] == true
    };
    wait_for("its flow is placed", || flow(&hosts[0]).is_some());
    for _ in 0..2 {
        let at = flow(&hosts[0]).unwrap();
        machine.pin(at);
        wait_for("its CPU is known", || runs_vcpu(at) && !runs_vcpu(1 - at));
        wait_for("the flow has left it", || flow(&hosts[0]).is_some_and(|worker| worker != at));
    }
    say(&hosts[0].print(&["show", "placement"]));
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings while the flow moved");
    for host in &hosts {
        host.drained();
        host.assert_lossless();
    }
}
