//! Traces of transactions at a collector of OpenTelemetry's own messages; and none, while it is
//! away.

use std::path::PathBuf;
use std::process::{Child, Command};

use serde_json::Value;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::http::send;
use crate::rig::{program, say, skip, wait_for};

const PYTHON: &str = "/usr/bin/python3";
const PORT: &str = "4318";

/// Returns the folder of OpenTelemetry's messages, as `scripts/setup.sh` makes it.
fn messages() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("otlp")
}

/// The collector; it ends with the test.
struct Collector(Child);

impl Drop for Collector {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
#[ignore = "live: needs root"]
fn collector_gets_each_transaction_of_host() {
    if skip("collector_gets_each_transaction_of_host", &[PYTHON]) {
        return;
    }
    if !messages().join("opentelemetry").exists() {
        say("SKIPPED collector_gets_each_transaction_of_host: opentelemetry-proto is missing");
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

    let seen = bridge.net.file("traces.jsonl");
    let mut collector = Command::new(PYTHON);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traces/collector.py");
    collector.args(["-B", script, "127.0.0.1", PORT]).arg(&seen).env("PYTHONPATH", messages());
    let _collector = Collector(bridge.hosts[0].inside(|| collector.spawn().unwrap()));
    let probe = ["ss", "-Hltn", "sport", "=", ":4318"];
    let listens = || {
        let mut probe_of = Command::new(probe[0]);
        let output = bridge.hosts[0].inside(|| probe_of.args(&probe[1..]).output().unwrap());
        !output.stdout.is_empty()
    };
    wait_for("the collector listens", listens);
    let rows = || -> Vec<Value> {
        let text = std::fs::read_to_string(&seen).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let of_shop = |rows: &[Value]| {
        let root = rows.iter().find(|row| row["attributes"]["sluice.comment"] == "for the shop");
        root.map(|root| root["trace"].clone())
    };
    bridge.daemons[0].says(&[
        "vnet",
        "create",
        "shop",
        "--vni",
        "300",
        "--comment",
        "for the shop",
    ]);
    wait_for("the trace comes", || of_shop(&rows()).is_some());
    let rows = rows();
    assert!(rows.iter().all(|row| row["wrong"].is_null()), "{rows:?}");
    let trace = of_shop(&rows).unwrap();
    let spans: Vec<&Value> = rows.iter().filter(|row| row["trace"] == trace).collect();
    for name in ["transaction", "reserve", "pre-commit", "in force", "apply h2"] {
        assert!(spans.iter().any(|span| span["name"] == name), "{name}: {spans:?}");
    }
    let [root] = spans.iter().filter(|span| span["is_root"] == true).collect::<Vec<_>>()[..] else {
        panic!("one root: {spans:?}")
    };
    let time = |span: &Value, end: &str| span[end].as_u64().unwrap();
    for span in &spans {
        let is_within =
            time(root, "start") <= time(span, "start") && time(span, "end") <= time(root, "end");
        assert!(is_within && span["status"] == 0, "{span} {root}");
    }
    assert_eq!(root["resource"]["host.name"], "h1");
    let revision = bridge.daemons[0].revision().to_string();
    assert_eq!(root["attributes"]["sluice.revision"], revision.as_str());
    wait_for("it is counted", || metric("traces_sent") > 0);
}
