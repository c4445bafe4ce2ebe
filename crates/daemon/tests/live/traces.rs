//! Traces of transactions and of endpoints at a collector of OpenTelemetry's own messages; and
//! none, while it is away.

use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::http::send;
use crate::rig::member::member;
use crate::rig::{Net, Netns, are_connected, cable, program, say, skip, wait_for};

const PYTHON: &str = "/usr/bin/python3";
const PORT: &str = "4318";

/// Returns the folder of OpenTelemetry's messages, as `scripts/setup.sh` makes it.
fn messages() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("otlp")
}

/// The collector; it ends with the test.
struct Collector {
    process: Child,
    seen: PathBuf,
}

impl Collector {
    /// Starts a collector in the namespace of a host, and waits until it listens.
    fn start(net: &Net, host: &Netns) -> Self {
        let seen = net.file("traces.jsonl");
        let mut command = Command::new(PYTHON);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/collector.py");
        command.args(["-B", script, "127.0.0.1", PORT]).arg(&seen).env("PYTHONPATH", messages());
        let process = host.inside(|| command.spawn().unwrap());
        let probe = ["-Hltn", "sport", "=", ":4318"];
        wait_for("the collector listens", || {
            let mut command = Command::new("ss");
            let output = host.inside(|| command.args(probe).output().unwrap());
            !output.stdout.is_empty()
        });
        Self { process, seen }
    }

    /// Returns the spans that it took; it refused none.
    fn rows(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.seen).unwrap_or_default();
        let rows: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert!(rows.iter().all(|row| row["wrong"].is_null()), "{rows:?}");
        rows
    }

    /// Returns the spans of the trace whose root has an attribute, and that root.
    fn trace(&self, key: &str, value: &str) -> Option<(Value, Vec<Value>)> {
        let rows = self.rows();
        let root = rows.iter().find(|row| row["attributes"][key] == value)?.clone();
        let spans: Vec<Value> =
            rows.into_iter().filter(|row| row["trace"] == root["trace"]).collect();
        assert_eq!(spans.iter().filter(|span| span["is_root"] == true).count(), 1, "{spans:?}");
        Some((root, spans))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// Says why there can be no collector. True if there can be none.
fn skip_without_collector(test: &str) -> bool {
    if skip(test, &[PYTHON, "ss"]) {
        return true;
    }
    let is_missing = !messages().join("opentelemetry").exists();
    if is_missing {
        say(&format!("SKIPPED {test}: opentelemetry-proto is missing"));
    }
    is_missing
}

/// Checks the spans of a trace: these and no failed one, each within the root.
fn is_whole(root: &Value, spans: &[Value], names: &[&str]) {
    for name in names {
        assert!(spans.iter().any(|span| span["name"] == *name), "{name}: {spans:?}");
    }
    let time = |span: &Value, end: &str| span[end].as_u64().unwrap();
    for span in spans {
        let is_within =
            time(root, "start") <= time(span, "start") && time(span, "end") <= time(root, "end");
        assert!(is_within && span["status"] == 0, "{span} {root}");
    }
    assert_eq!(root["resource"]["host.name"], "h1");
}

#[test]
#[ignore = "live: needs root"]
fn collector_gets_each_transaction_of_host() {
    if skip_without_collector("collector_gets_each_transaction_of_host") {
        return;
    }
    let bridge = Bridge::waiting("traces", 2, |_, own| match own {
        0 => format!("[api.traces]\nendpoint = \"http://127.0.0.1:{PORT}\"\n"),
        _ => String::new(),
    });
    // The fabric is made and joined while nobody collects: that is dropped, and delays nothing.
    bridge.become_fabric();
    bridge.add(0);
    bridge.add(1);
    bridge.containers[0].ping(ip(1), 2);
    let metric = |name: &str| -> u64 {
        let text = send(&bridge.net.file("h1/http.sock"), "GET /metrics", "").body;
        let line = text.lines().find(|line| line.starts_with(&format!("sluice_{name}_total ")));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    wait_for("a trace is dropped", || metric("traces_dropped") > 0);
    assert_eq!(metric("traces_sent"), 0);

    let collector = Collector::start(&bridge.net, &bridge.hosts[0]);
    bridge.daemons[0].says(&[
        "vnet",
        "create",
        "shop",
        "--vni",
        "300",
        "--comment",
        "for the shop",
    ]);
    let of_shop = || collector.trace("sluice.comment", "for the shop");
    wait_for("the trace comes", || of_shop().is_some());
    let (root, spans) = of_shop().unwrap();
    let names = ["transaction", "reserve", "pre-commit", "in force", "apply h2"];
    is_whole(&root, &spans, &names);
    let revision = bridge.daemons[0].revision().to_string();
    assert_eq!(root["attributes"]["sluice.revision"], revision.as_str());
    wait_for("it is counted", || metric("traces_sent") > 0);
}

#[test]
#[ignore = "live: needs root"]
fn collector_gets_way_of_learned_endpoint() {
    if skip_without_collector("collector_gets_way_of_learned_endpoint") {
        return;
    }
    let mut net = Net::new("waytrace");
    let [h1, h2, container] = ["h1", "h2", "c1"].map(|name| net.netns(name));
    cable((&h1, "up0", "192.0.2.1/24"), (&h2, "up0", "192.0.2.2/24"));
    let certificates = net.certificates(&["h1", "h2"]);
    let port = format!(
        "[[port]]\nname = \"c1\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
         netns = \"/run/netns/{}\"\n[api.traces]\nendpoint = \"http://127.0.0.1:{PORT}\"\n",
        container.name()
    );
    let daemons = [
        net.daemon(&h1, "h1", &member(0, &certificates, "", &port)),
        net.daemon(&h2, "h2", &member(1, &certificates, "", "")),
    ];
    let collector = Collector::start(&net, &h1);
    container.ip("addr add 10.42.0.1/24 dev t0");
    // A session may break while others have the processors: another endpoint, then.
    let mut number = 0;
    let (root, spans) = loop {
        number += 1;
        let mac = format!("02:42:00:00:00:{number:02}");
        container.ip(&format!("link set t0 down address {mac}"));
        are_connected(&daemons);
        container.ip("link set t0 up");
        container.attempt("ping -c 1 -W 0.1 10.42.0.9");
        let of_container = || collector.trace("sluice.mac", &mac);
        wait_for("the trace comes", || of_container().is_some());
        let (root, spans) = of_container().unwrap();
        let is_replicated = spans.iter().any(|span| span["name"] == "replicate h2");
        if is_replicated || number == 5 {
            break (root, spans);
        }
        say(&format!("{mac} came while h2 was away"));
    };
    is_whole(&root, &spans, &["endpoint", "learn", "replicate h2"]);
    assert_eq!(root["attributes"]["sluice.vnet"], "blue");
}
