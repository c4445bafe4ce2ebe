use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sluice_api::show::{self, Body, DropRow};

use super::catalog::{Kind, Metric};
use super::series::Value;
use super::*;

/// Set to write the golden texts anew.
const UPDATE: &str = "UPDATE_GOLDEN";

fn answer(question: &str, rows: &Json) -> Answer {
    let answer = json!({
        "version": show::VERSION, "host": "h1", "policy": "ZZ", "at_ns": 1_500_000_000_u64,
        question: rows,
    });
    serde_json::from_value(answer).unwrap()
}

fn port(name: &str) -> Json {
    json!({
        "port": name, "kind": "tap", "vnet": "blue", "lossless": "no, needs \"more\"",
        "rx_frames": 7, "rx_bytes": 700, "tx_frames": 5, "tx_bytes": 500, "driver_pending": 0,
        "driver_lost": 0, "held_frames": 1, "held_bytes_max": 0, "held_frames_max": 0,
        "queued_frames": 2, "queued_bytes_max": 0, "queued_frames_max": 0, "ring_frames_max": 0,
        "ring_frames": 0, "kernel": {"device.tx_dropped": 0, "softnet.dropped": 3},
    })
}

fn balance(received: u64, resident: u64) -> Json {
    json!({
        "received": received, "injected": 0, "copied": 0, "delivered": received - resident,
        "consumed": 0, "resident": resident, "dropped": 0, "dropped_congestion": 0,
    })
}

fn data() -> DataAnswers {
    let mut web = port("web");
    web["losses"] = json!([
        {"port": "web", "counter": "ring.drops", "frames": 4, "ago_ns": 1},
        {"port": "web", "counter": "softnet.dropped", "frames": 3, "ago_ns": 1},
    ]);
    web["sockets"] = json!({
        "signalled": true, "holds": 2, "waited": 9, "asked": 11, "full": 0, "beyond": 0,
        "port_held": 0, "stuck": 1, "written_off": 0,
        "held": [
            {"address": "10.0.0.1:9", "priority": 0, "since_ns": 1, "frames": 3, "stuck": true},
        ],
    });
    // A name that the text has to escape. No port can have it; a text from elsewhere may.
    let odd = json!({"port": "a\"b\\c\nd"});
    let mut odd_port = port("web");
    odd_port["port"] = odd["port"].clone();
    DataAnswers {
        ports: answer("ports", &json!([web, port("underlay"), odd_port])),
        queues: answer(
            "queues",
            &json!([
                {"source": "web", "lane": "h2", "priority": 3, "frames": 2, "bytes": 200},
                {"source": "web", "lane": "held for h2", "priority": 3, "frames": 1, "bytes": 100},
                {"source": "web", "lane": "unresolved 02:00:00:00:00:01", "priority": 0,
                 "frames": 1, "bytes": 60},
            ]),
        ),
        drops: answer(
            "drops",
            &json!([
                {"port": "web", "priority": 3, "reason": "receiver_stuck", "class": "stuck",
                 "frames": 6, "bytes": 600},
                {"port": "web", "priority": 5, "reason": "output_full", "class": "congestion",
                 "frames": 8, "bytes": 800},
                {"port": "control", "priority": 3, "reason": "unresolved", "class": "policy",
                 "frames": 1, "bytes": 60},
            ]),
        ),
        audit: answer(
            "audit",
            &json!({"closed": true, "rows": [
                {"port": "web", "priority": 3, "frames": balance(7, 1), "bytes": balance(700, 100)},
            ]}),
        ),
        pauses: answer(
            "pauses",
            &json!([
                {"port": "underlay", "priority": 3, "xoff_sent": 2, "xon_sent": 1, "received": 4,
                 "paused_ns": 2_500_000_000_u64, "paused": true, "pausing": false},
                {"port": "web", "priority": 3, "xoff_sent": 0, "xon_sent": 0, "received": 0,
                 "paused_ns": 0, "paused": false, "pausing": false,
                 "isolated": {"since_ns": 1, "moved_ns": 1, "endpoints": [], "waiting": [],
                              "reserve_frames": 2, "reserve_bytes": 200, "held_at_senders": true,
                              "stuck": true}},
            ]),
        ),
        tunnels: answer(
            "tunnels",
            &json!([
                {"peer": "h2", "vtep": "10.0.0.2", "next_hop": "unresolved", "tx_frames": 12,
                 "rx_frames": 13, "queued_frames": 3, "path_mtu": 1400},
            ]),
        ),
        worker: answer(
            "worker",
            &json!([
                {"busy_ns": 1_250_000_000_u64, "looking_ns": 0, "asleep_ns": 3_000_000_000_u64,
                 "turns": 99, "cpu": 1},
            ]),
        ),
    }
}

fn fabric() -> FabricAnswers {
    let member = |host: &str, kind: &str, health: &str| {
        let row = json!({
            "host": host, "id": 1, "vtep": "10.0.0.1", "kind": kind, "health": health,
            "connected": health == "alive", "vports": 4, "stale_ns": null, "sequence": 1, "lag": 5,
            "records_sent": 6, "records_received": 7,
        });
        serde_json::from_value(row).unwrap()
    };
    let members = vec![
        member("h1", "own", "alive"),
        member("h2", "member", "alive"),
        member("h3", "member", "down"),
        member("other", "foreign", "unknown"),
    ];
    let certificates = json!({"rows": [
        {"kind": "own", "host": "h1", "from": "2026-01-01", "until": "2026-02-01", "days_left": 20,
         "state": "ending"},
        {"kind": "anchor", "host": "", "from": "2026-01-01", "until": "2025-02-01",
         "days_left": -2, "state": "expired"},
    ]});
    let certificates = serde_json::from_value(certificates).unwrap();
    let evpn = json!({
        "as": 65000, "router_id": "10.0.0.1", "address": "10.0.0.1:179", "announced_routes": 4,
        "heard_macs": 2, "vteps": [], "neighbors": [{
            "address": "10.0.0.254", "as": 65000, "state": "established", "routes": 3,
            "unsent_routes": 1, "kept_out": {
                "not_ours": 5, "looped": 6, "other_tunnel": 0, "other_type": 0, "malformed": 0,
                "too_many": 0,
            },
        }],
    });
    let evpn = Some(serde_json::from_value(evpn).unwrap());
    FabricAnswers { members, certificates, rivals: Vec::new(), evpn }
}

fn sample() -> Sample {
    let status = json!({
        "fabric": "prod", "host": "h1", "revision": 11, "leader": "h1", "writable": true,
        "members": [
            {"name": "h1", "id": 1, "vtep": "10.0.0.1", "part": "voter", "connected": true,
             "revision": 11, "lag": 0},
            {"name": "h2", "id": 2, "vtep": "10.0.0.2", "part": "voter", "connected": true,
             "revision": 9, "lag": 2},
            {"name": "h3", "id": 3, "vtep": "10.0.0.3", "part": "voter", "connected": false,
             "revision": null, "lag": null},
        ],
    });
    let mut lossless = [true; 8];
    lossless[5] = false;
    Sample {
        host: "h1".to_owned(),
        role: Role::Host,
        lossless,
        stage: Stage::Works,
        data: Ok(Box::new(data())),
        fabric: Some(Ok(fabric())),
        configuration: Some(Ok(Box::new(serde_json::from_value(status).unwrap()))),
        traces: (0, 0),
        took: Duration::from_millis(3),
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics/tests")
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn texts_of_both_formats_match_golden_ones() {
    for (format, file) in
        [(Format::OpenMetrics, "openmetrics.txt"), (Format::Prometheus, "prometheus.txt")]
    {
        let (path, text) = (folder().join(file), encode(&sample(), format));
        let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "{file}; {UPDATE}=1 writes it anew");
    }
}

#[test]
fn openmetrics_text_ends_with_its_mark() {
    let text = encode(&sample(), Format::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let odd = r#"port="a\"b\\c\nd""#;
    assert!(text.contains(odd), "{text}");
}

/// Every (port, reason) of a lossless priority is there; what a lossy priority lost is not, though
/// it is among all drops.
#[test]
fn lossless_drops_exported_without_those_of_lossy_priorities() {
    let series = bounded(&sample(), SERIES_MAX);
    let lossless = |reason| series.get(Metric::LosslessDroppedFrames, &["web", reason]);
    assert_eq!(lossless("receiver_stuck"), Some(Value::Count(6)));
    assert_eq!(lossless("output_full"), Some(Value::Count(0)), "of a lossy priority");
    let all = &["web", "5", "output_full", "congestion"];
    assert_eq!(series.get(Metric::PortDroppedFrames, all), Some(Value::Count(8)));

    // Under a policy that drops, no priority is lossless.
    let mut lossy = sample();
    let mut answers = data();
    answers.drops.policy = Policy::LZ;
    lossy.data = Ok(Box::new(answers));
    let series = bounded(&lossy, SERIES_MAX);
    let stuck = series.get(Metric::LosslessDroppedFrames, &["web", "receiver_stuck"]);
    assert_eq!(stuck, Some(Value::Count(0)));
}

/// Counters that may come are there with zero, so that their first value is an increase.
#[test]
fn counters_of_losses_there_before_first_loss() {
    let series = bounded(&sample(), SERIES_MAX);
    for (counter, frames) in [("device.tx_dropped", 0), ("driver.lost", 0), ("ring.drops", 4)] {
        let lost = series.get(Metric::OutsideLostFrames, &["web", counter]);
        assert_eq!(lost, Some(Value::Count(frames)), "{counter}");
    }
    // Of the machine: once, not for each port.
    let machine = series.get(Metric::MachineLostFrames, &["softnet.dropped"]);
    assert_eq!(machine, Some(Value::Count(3)));
    assert_eq!(series.get(Metric::OutsideLostFrames, &["web", "softnet.dropped"]), None);
}

#[test]
fn silent_data_leaves_state_of_host_and_fabric() {
    let silent = Sample { data: Err("it hangs".to_owned()), ..sample() };
    let text = encode(&silent, Format::Prometheus);
    for line in ["sluice_data_up 0\n", "sluice_fabric_up 1\n", "sluice_config_revision 11\n"] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("sluice_port_"), "{text}");
    let silent = Sample { fabric: Some(Err("it is late".to_owned())), ..silent };
    assert!(encode(&silent, Format::Prometheus).contains("sluice_fabric_up 0\n"));
}

/// A host with more than has series of its own: the sums stay.
#[test]
fn series_bounded_without_losing_a_count() {
    let mut many = sample();
    let mut answers = data();
    let names: Vec<String> = (0..3_000).map(|at| format!("p{at:04}")).collect();
    let rows: Vec<Json> = names.iter().map(|name| port(name)).chain([port("underlay")]).collect();
    answers.ports = answer("ports", &rows.into());
    let drop = |name: &String| DropRow {
        port: name.clone(),
        priority: 3,
        reason: "output_full".to_owned(),
        class: "congestion".to_owned(),
        frames: 2,
        bytes: 120,
    };
    answers.drops.body = Body::Drops(names.iter().map(drop).collect());
    many.data = Ok(Box::new(answers));
    let series = bounded(&many, SERIES_MAX);
    assert!(series.count() <= SERIES_MAX, "{}", series.count());
    assert!(series.count() > SERIES_MAX / 2, "{} are too few", series.count());

    let lost = |port: &str| {
        let lost = series.get(Metric::LosslessDroppedFrames, &[port, "output_full"]);
        lost.map(|value| if let Value::Count(count) = value { count } else { u64::MAX })
    };
    let own: Vec<u64> = names.iter().filter_map(|name| lost(name)).collect();
    let shared = names.len() - own.len();
    assert!(shared > 0 && !own.is_empty(), "{shared} ports share a series");
    assert_eq!(own.iter().sum::<u64>() + lost(OTHERS).unwrap(), 6_000, "every loss is there");
    // Beside these ports there is the one of the other answers.
    let said = series.get(Metric::AggregatedNames, &["ports"]);
    assert!([Some(Value::from(shared)), Some(Value::from(shared + 1))].contains(&said), "{said:?}");
    assert_eq!(lost("underlay"), Some(0), "the underlay keeps its own");
}

#[test]
fn several_states_of_one_series_become_the_worst() {
    let mut sample = sample();
    sample.fabric.as_mut().unwrap().as_mut().unwrap().members[2].host = "h2".to_owned();
    let series = bounded(&sample, SERIES_MAX);
    assert_eq!(series.get(Metric::MemberAlive, &["h2"]), Some(Value::Count(0)));
    assert_eq!(series.get(Metric::MemberRecordsSent, &["h2"]), Some(Value::Count(12)));
}

/// Returns the words of a text that are names of metrics.
fn names_in(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c: char| !is_part(c));
    words.filter(|word| word.starts_with("sluice_")).collect()
}

#[test]
fn files_for_prometheus_name_metrics_that_exist() {
    let known = names();
    for file in [
        "packaging/prometheus/alerts.yml",
        "packaging/prometheus/alerts-test.yml",
        "packaging/grafana/sluice.json",
    ] {
        let text = std::fs::read_to_string(repository().join(file)).unwrap();
        let named = names_in(&text);
        assert!(named.len() > 5, "{file} names {named:?}");
        let unknown: Vec<_> = named.into_iter().filter(|name| !known.contains(*name)).collect();
        assert!(unknown.is_empty(), "{file} names {unknown:?}, which no host has");
    }
    let dashboard = std::fs::read_to_string(repository().join("packaging/grafana/sluice.json"));
    let dashboard: Json = serde_json::from_str(&dashboard.unwrap()).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 5));
}

/// Returns the rows of the page's table.
fn rows() -> BTreeMap<String, String> {
    let row = |metric: &Metric| {
        let kind = match metric.kind() {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Info => "info",
        };
        let labels: Vec<String> =
            metric.labels().iter().map(|label| format!("`{label}`")).collect();
        let name = metric.full_name();
        let mut row = String::new();
        _ = write!(row, "| `{name}` | {kind} | {} | {} |", labels.join(", "), metric.help());
        (name, row)
    };
    Metric::ALL.iter().map(row).collect()
}

#[test]
fn page_lists_every_metric_as_it_is() {
    let page = std::fs::read_to_string(repository().join("docs/metrics.md")).unwrap();
    let missing: Vec<String> =
        rows().into_values().filter(|row| !page.lines().any(|line| line == row)).collect();
    assert!(missing.is_empty(), "docs/metrics.md lacks:\n{}", missing.join("\n"));
    let known = names();
    let unknown: Vec<_> =
        names_in(&page).into_iter().filter(|name| !known.contains(*name)).collect();
    assert!(unknown.is_empty(), "docs/metrics.md names {unknown:?}, which no host has");
}
