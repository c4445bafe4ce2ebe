//! `sluice trace` over two hosts: the predicted path of a frame, and the real one.
//!
//! ```text
//!   c1 ─ TAP ─┤ h1 up0 ═══════ up0 h2 ├─ TAP ─ c2
//! ```
//!
//! Both are bound with their addresses.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::member::member;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};
use serde_json::Value;
use sluice_testkit::bound::at_most;

const C1: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C1_MAC: &str = "02:42:00:00:00:01";
const C2_MAC: &str = "02:42:00:00:00:02";
const NOBODY: &str = "02:42:00:00:00:99";

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
struct Case {
    daemons: [Daemon; 2],
    _net: Net,
    containers: [Netns; 2],
}

fn config(own: usize, container: &Netns, mac: &str, certificates: &Path) -> String {
    let ports = format!(
        r#"
[[port]]
name = "web"
kind = "tap"
vnet = "blue"
device = "t0"
netns = "/run/netns/{}"
mac = "{mac}"
[[vport]]
vnet = "blue"
mac = "{mac}"
ip = "10.42.0.{}"
port = "web"
"#,
        container.name(),
        own + 1,
    );
    member(own, certificates, "", &ports)
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        let containers = ["c1", "c2"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let certificates = net.certificates(&["h1", "h2"]);
        let daemon = |own: usize| {
            let name = format!("h{}", own + 1);
            let mac = [C1_MAC, C2_MAC][own];
            let text = config(own, &containers[own], mac, &certificates);
            net.daemon(&hosts[own], &name, &text)
        };
        let daemons = [daemon(0), daemon(1)];
        for (container, ip) in containers.iter().zip([C1, C2]) {
            container.ip(&format!("addr add {ip}/24 dev t0"));
            container.ip("link set t0 up");
        }
        let case = Self { daemons, _net: net, containers };
        for own in 0..2 {
            wait_for("the hosts know each other's endpoints", || case.knows_both(own));
        }
        case.containers[0].ping(C2, 3);
        case
    }

    fn knows_both(&self, own: usize) -> bool {
        let rows = self.daemons[own].ask(&["vport", "list"])["vports"].take();
        let rows = rows.as_array().unwrap();
        rows.len() == 2 && rows.iter().all(|row| row["state"] != "stale")
    }

    /// Returns the trace of a frame from host `own`.
    fn trace(&self, own: usize, from: &str, to: &str, more: &[&str]) -> Value {
        let words = ["trace", "--vnet", "blue", "--from", from, "--to", to];
        let output = self.daemons[own].attempt(&[&words, more].concat());
        let mut answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let trace = answer["trace"].take();
        let code = match trace["grade"].as_str() {
            Some("pass") => 0,
            Some("warn") => 3,
            Some("stop") => 4,
            Some("unknown") => 5,
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        };
        assert_eq!(output.status.code(), Some(code), "the exit code is the verdict's: {trace}");
        trace
    }

    /// Returns a trace like [`Self::trace`] of hosts that are connected: one without a processor
    /// for a quarter of a second counts as hung, until it has one.
    fn settled(&self, own: usize, from: &str, to: &str, more: &[&str]) -> Value {
        let mut trace = Value::Null;
        wait_for("both hosts answer", || {
            trace = self.trace(own, from, to, more);
            !["not_connected", "no_answer", "host_stale"].contains(&verdict(&trace).0)
        });
        trace
    }

    /// Returns the lines of a host's log about members that do not answer.
    fn alarms(&self, own: usize) -> Vec<String> {
        let is_alarm = |line: &&str| line.contains("hung") || line.contains("suspected");
        self.daemons[own].log().lines().filter(is_alarm).map(str::to_owned).collect()
    }

    /// Pauses both hosts as a machine does that pauses; host `first` is paused for longer, so that
    /// the other one finds nothing from it. Returns whether both know each other connected all the
    /// time; else waits until they are again.
    fn outlives_pause(&self, first: usize) -> bool {
        let both = [first, 1 - first];
        let before = both.map(|own| self.alarms(own));
        both.iter().for_each(|&own| self.daemons[own].hang_control(true));
        std::thread::sleep(Duration::from_millis(700));
        self.daemons[both[1]].hang_control(false);
        std::thread::sleep(Duration::from_millis(20));
        self.daemons[both[0]].hang_control(false);
        let arrives =
            |own: usize| verdict(&self.trace(own, C1_MAC, C2_MAC, &[])) == ("delivered", "");
        let outlived = (0..2).all(arrives) && both.map(|own| self.alarms(own)) == before;
        wait_for("they know each other", || (0..2).all(arrives));
        outlived
    }

    /// Traces from c1 to c2, asked at h1.
    fn forth(&self) -> Value {
        self.trace(0, C1_MAC, C2_MAC, &[])
    }
}

/// Returns verdict and host.
fn verdict(trace: &Value) -> (&str, &str) {
    (trace["verdict"].as_str().unwrap(), trace["at"].as_str().unwrap_or(""))
}

/// Returns the hosts with their verdicts.
fn hops(trace: &Value) -> Vec<String> {
    let verdicts = |hop: &Value| {
        let steps = hop["steps"].as_array().unwrap().iter();
        steps.map(|step| step["verdict"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
    };
    let hops = trace["hops"].as_array().unwrap().iter();
    hops.map(|hop| format!("{}: {}", hop["host"].as_str().unwrap(), verdicts(hop))).collect()
}

/// Returns a counter of a step.
fn seen(trace: &Value, host: &str, what: &str, name: &str) -> u64 {
    let hop = trace["hops"].as_array().unwrap().iter().rfind(|hop| hop["host"] == host).unwrap();
    let step = hop["steps"].as_array().unwrap().iter().find(|step| step["what"] == what).unwrap();
    step["seen"][name].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "live: needs root"]
fn trace_reports_each_hop_with_counters_and_verdict() {
    if skip("live::trace", &[]) {
        return;
    }
    let case = Case::new("trace");
    let [c1, c2] = &case.containers;
    let trace = case.settled(0, C1_MAC, "10.42.0.2", &[]);
    assert_eq!(verdict(&trace), ("delivered", ""), "{trace:#}");
    let from_here = "h1: bound port_up resolved installed tunnel_up lossy";
    let there = "h2: accepted installed delivered";
    assert_eq!(hops(&trace), [from_here, there], "{trace:#}");
    assert!(seen(&trace, "h2", "decap", "decap_frames") >= 3, "{trace:#}");
    assert!(seen(&trace, "h1", "tunnel", "tx_frames") >= 3, "{trace:#}");
    // Any host may be asked.
    let trace = case.settled(1, C1_MAC, "10.42.0.2", &[]);
    assert_eq!(hops(&trace), ["h2: source_elsewhere", from_here, there], "{trace:#}");
    assert_eq!(verdict(&trace), ("delivered", ""));
    let words = ["trace", "--vnet", "blue", "--from", C1_MAC, "--to", "10.42.0.2"];
    let printed = case.daemons[0].print(&words);
    say(&printed);
    assert!(printed.contains("pass: delivered: 02:42:00:00:00:02 gets it at port web"));

    // An unknown receiver.
    let trace = case.settled(0, C1_MAC, NOBODY, &[]);
    assert_eq!(verdict(&trace), ("destination_unknown", "h1"), "{trace:#}");
    let trace = case.settled(1, C1_MAC, "10.42.0.99", &[]);
    assert_eq!(verdict(&trace), ("ip_unknown", "h1"), "{trace:#}");
    let trace = case.settled(0, NOBODY, C2_MAC, &[]);
    assert_eq!(verdict(&trace), ("source_unknown", "h1"), "{trace:#}");

    // A spoofed sender: predicted, and real.
    let spoofed = || case.settled(0, NOBODY, C2_MAC, &["--port", "web"]);
    assert_eq!(verdict(&spoofed()), ("spoofed_mac", "h1"));
    c1.ip("link set t0 address 02:42:00:00:00:66");
    c1.udp(C1, 7).send_to(b"it is me", (C2, 7)).unwrap();
    wait_for("its frames are counted", || {
        let trace = case.settled(0, C1_MAC, C2_MAC, &[]);
        seen(&trace, "h1", "port", "drops.spoofed_mac") > 0
    });
    c1.ip(&format!("link set t0 address {C1_MAC}"));

    // The receiver's port is down.
    c2.ip("link set t0 down");
    let trace = case.settled(0, C1_MAC, C2_MAC, &[]);
    assert_eq!(verdict(&trace), ("port_down", "h2"), "{trace:#}");
    assert!(!trace["remedy"].as_str().unwrap().is_empty());
    c2.ip("link set t0 up");
    assert_eq!(verdict(&case.settled(0, C1_MAC, C2_MAC, &[])), ("delivered", ""));
    are_connected(&case.daemons);
}

#[test]
#[ignore = "live: needs root"]
fn sessions_after_pause_of_machine_stay_up() {
    if skip("live::trace", &[]) {
        return;
    }
    let case = Case::new("tracepause");
    for first in [0, 1, 0] {
        // Where the machine pauses while only one of the two runs, the other one is silent indeed.
        // A session that does not outlive a pause falls each time.
        let outlived = (0..10).any(|_| case.outlives_pause(first));
        assert!(outlived, "host {first} is paused for longer: the session falls each time");
    }
}

#[test]
#[ignore = "live: needs root"]
fn trace_with_hung_host_ends_within_time_limit() {
    if skip("live::trace", &[]) {
        return;
    }
    let case = Case::new("tracehang");
    let limited = |own: usize| {
        let begin = Instant::now();
        let trace = case.trace(own, C1_MAC, C2_MAC, &["--limit-ms", "1000"]);
        let took = begin.elapsed();
        at_most("a trace that may take 1 s", took, Duration::from_millis(1_500));
        trace
    };
    // The data process of the receiver's host hangs; asked from both sides.
    case.daemons[1].hang_data(true);
    for own in 0..2 {
        // A machine that pauses may take the time of the answer, or the connection.
        let lost_time = ["no_answer", "not_connected", "host_stale"];
        wait_for("the receiver's host says that its switch is silent", || {
            let trace = limited(own);
            let (said, last) = (verdict(&trace), hops(&trace).pop().unwrap());
            if said.0 != "switch_silent" {
                assert!(lost_time.contains(&said.0), "{said:?}: {trace:#}");
                return false;
            }
            assert_eq!((said.1, said.0), last.split_once(": ").unwrap(), "{trace:#}");
            true
        });
    }
    case.daemons[1].hang_data(false);
    wait_for("it goes on", || verdict(&case.forth()) == ("delivered", ""));

    // Its control process hangs: asked at once, its connection breaks during the wait.
    case.daemons[1].hang_control(true);
    let trace = limited(0);
    let said = verdict(&trace);
    assert!(["not_connected", "no_answer", "host_stale"].contains(&said.0), "{trace:#}");
    say(&format!("a host that hangs: {said:?}, {}", trace["why"]));
    // A while later the host is stale; frames still go there.
    wait_for("the host is stale", || verdict(&limited(0)).0 == "host_stale");
    let trace = limited(0);
    assert_eq!(hops(&trace), ["h1: bound port_up installed host_stale lossy"], "{trace:#}");
    case.containers[0].ping(C2, 3);
    case.daemons[1].hang_control(false);
    wait_for("it is there again", || verdict(&case.forth()) == ("delivered", ""));
}
