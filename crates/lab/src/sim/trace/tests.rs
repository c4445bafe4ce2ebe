use serde_json::Value;

use super::super::experiment::Overrides;
use super::super::run::{Options, run};

/// Two machines send datagrams to a third for 2 ms, at 90 % of its link.
const TEXT: &str = "[sim]\nname = \"x\"\npolicies = [\"LL\"]\n\
     [topology]\nkind = \"star\"\nhosts = 3\nlink_mbps = 1000\n\
     [[topology.link]]\nhosts = [2]\ndelay_ns = 300000\n\
     [workload]\nkind = \"udp-sources\"\ngaps = \"poisson\"\nsenders = 2\nload_percent = 90\n\
     duration_ms = 20\n\
     [trace]\ninterval_us = 100\n";

/// Runs a scenario in a folder of its own; returns the lines of its trace.
fn trace_of(name: &str, text: &str) -> Vec<Value> {
    let folder = std::env::temp_dir().join(format!("sluice-trace-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let scenario = folder.join("x.toml");
    std::fs::write(&scenario, text).unwrap();
    let options = Options { out: Some(folder.clone()), quiet: true, ..Options::default() };
    let outcome = run(scenario.to_str().unwrap(), &options).unwrap();
    assert_eq!(outcome.broken, Vec::<String>::new());
    let lines = std::fs::read_to_string(folder.join("trace.jsonl")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_kind_of_sample_is_written() {
    let lines = trace_of("all", TEXT);
    assert!(lines.iter().all(|line| line["policy"] == "LL" && line["variant"] == "x"));
    let of = |key: &str, name: &str| {
        let own = lines.iter().filter(|line| line[key] == name);
        own.cloned().collect::<Vec<Value>>()
    };
    let shared = of("link", "switch 0 to host 0");
    let frames: u64 = shared.iter().map(|line| line["sent_frames"].as_u64().unwrap()).sum();
    assert!((1_300..1_650).contains(&frames), "{frames} frames of 90 % of 1 Gbit/s in 20 ms");
    let queue = |line: &Value| line["queue_bytes"].as_u64().unwrap();
    assert!(shared.iter().any(|line| queue(line) > 1_442), "a queue");
    assert!(shared.iter().any(|line| line["wait_max_ns"].as_u64().unwrap() > 11_728), "a wait");
    let flow = of("flow", "0.0");
    assert_eq!((&flow[0]["from"], &flow[0]["to"]), (&Value::from(1), &Value::from(0)));
    assert!(flow.iter().all(|line| line.get("window_bytes").is_none()), "datagrams have none");
    let rates = flow.iter().map(|line| line["rate_bps"].as_u64().unwrap()).sum::<u64>();
    let mean = rates / 200;
    assert!((350_000_000..500_000_000).contains(&mean), "{mean} bit/s of 427 M");
    // The datagrams of host 2 are 299 us longer on their way.
    let first = |name: &str| of("link", name)[0]["at_ns"].as_u64().unwrap();
    assert!(first("host 2 to switch 0") <= 200_000 && first("host 1 to switch 0") <= 200_000);
}

#[test]
fn windows_of_tcp_are_written_alone() {
    let text = "[sim]\nname = \"x\"\npolicies = [\"LL\"]\n\
         [topology]\nkind = \"star\"\nhosts = 2\nlink_mbps = 1000\n\
         [workload]\nkind = \"permutation\"\nshift = 1\nduration_ms = 5\n\
         [trace]\nwhat = [\"window\"]\ninterval_us = 1000\n";
    let lines = trace_of("window", text);
    assert_eq!(lines.len(), 10, "two flows, five samples");
    assert!(lines.iter().all(|line| line["window_bytes"].as_u64().unwrap() >= 14_480));
    assert!(lines.iter().all(|line| line.get("rate_bps").is_none()));
}

#[test]
fn trace_changes_no_result() {
    let incast = crate::sim::scenario::text_of("incast").unwrap();
    let rows = |text: &str| {
        let overrides =
            Overrides { queries: Some(4), sizes: Some(vec![16]), ..Overrides::default() };
        let folder = std::env::temp_dir().join(format!("sluice-traced-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let scenario = folder.join("incast.toml");
        std::fs::write(&scenario, text).unwrap();
        let options =
            Options { out: Some(folder.clone()), quiet: true, overrides, ..Options::default() };
        let mut rows = run(scenario.to_str().unwrap(), &options).unwrap().results.rows;
        let traced = std::fs::read_to_string(folder.join("trace.jsonl")).unwrap_or_default();
        std::fs::remove_dir_all(&folder).unwrap();
        // The settings say that there is a trace.
        rows.retain(|row| row.measure != "sim.settings");
        (serde_json::to_string(&rows).unwrap(), traced.lines().count())
    };
    let (plain, traced) = (rows(&incast), rows(&(incast.clone() + "[trace]\ninterval_us = 20\n")));
    assert_eq!(plain.0, traced.0);
    assert!(plain.1 == 0 && traced.1 > 1_000, "{} lines", traced.1);
}
