//! `/metrics` of a host: what it says agrees with `sluice show`, Prometheus and its tools read it,
//! clients that misbehave delay nobody, and a host that is not well says so.
//!
//! ```text
//!   one ─ TAP ─┐                         promtool, prometheus,
//!              ├ host ── 127.0.0.1:9342 ◀── 200 clients that say nothing
//!   two ─ TAP ─┘   └──── http.sock
//! ```

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::rig::http::{Answer, connect, get_tcp, get_unix, series};
use crate::rig::member::member;
use crate::rig::{Daemon, Net, Netns, Process, are_connected, cable, say, skip, wait_for};
use serde_json::Value;

const ONE: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 2);
/// An address that `one` believes to have its own MAC.
const SELF: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 9);
const PORT: u16 = 9342;
const OPEN: &str = "application/openmetrics-text; version=1.0.0";

/// Everything of one test. Fields end in this order: the daemon before its namespaces.
struct Case {
    daemon: Daemon,
    net: Net,
    host: Netns,
    one: Netns,
}

impl Case {
    /// Starts a host whose TCP address another program has at first.
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let host = net.netns("host");
        let (one, two) = (net.netns("one"), net.netns("two"));
        host.ip("link set lo up");
        let taken = host.inside(|| TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap());
        let daemon = net.daemon(&host, "h0", &config(&one, &two));
        wait_for("the host names the address", || {
            daemon.log().contains("cannot listen on 127.0.0.1:9342")
        });
        drop(taken);
        for (netns, address) in [(&one, ONE), (&two, TWO)] {
            netns.ip(&format!("addr add {address}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        let case = Self { daemon, net, host, one };
        wait_for("it listens as soon as it can", || case.tcp("/healthz", "*/*").status == 200);
        case
    }

    fn tcp(&self, path: &str, accept: &str) -> Answer {
        get_tcp(&self.host, PORT, path, accept)
    }

    fn unix(&self, path: &str, accept: &str) -> Answer {
        get_unix(&self.net.file("h0/http.sock"), path, accept)
    }
}

fn config(one: &Netns, two: &Netns) -> String {
    let mut text = format!(
        "policy = \"ZZ\"\ndata_hung_ms = 60000\n[api]\nlisten = \"127.0.0.1:{PORT}\"\n\
         [[vnet]]\nname = \"blue\"\nvni = 46\n"
    );
    for (name, netns, last) in [("one", one, 1), ("two", two, 2)] {
        text += &format!(
            "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
             netns = \"/run/netns/{}\"\nmac = \"02:46:00:00:00:0{last}\"\n",
            netns.name()
        );
    }
    text
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns the values that `sluice show` has for the series of ports.
fn shown(daemon: &Daemon) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
    for row in daemon.show("ports").as_array().unwrap() {
        let port = row["port"].as_str().unwrap();
        for (key, name) in [
            ("tx_frames", "port_tx_frames_total"),
            ("tx_bytes", "port_tx_bytes_total"),
            ("queued_frames", "port_queued_frames"),
        ] {
            all.insert(format!("sluice_{name}{{port=\"{port}\"}}"), number(row, key));
        }
        // By priority in the text; the containers use one.
        for (key, name) in [("rx_frames", "frames"), ("rx_bytes", "bytes")] {
            let series = format!("sluice_port_rx_{name}_total{{port=\"{port}\",priority=\"0\"}}");
            all.insert(series, number(row, key));
        }
        for (counter, frames) in row["kernel"].as_object().unwrap() {
            let frames = frames.as_f64().unwrap();
            let series = match counter.as_str() {
                "softnet.dropped" | "neigh.unresolved_discards" => continue,
                _ => format!(
                    "sluice_outside_lost_frames_total{{port=\"{port}\",counter=\"{counter}\"}}"
                ),
            };
            all.insert(series, frames);
        }
    }
    for row in daemon.show("drops").as_array().unwrap() {
        let word = |key: &str| row[key].as_str().unwrap();
        let labels = format!(
            "{{port=\"{}\",priority=\"{}\",reason=\"{}\",class=\"{}\"}}",
            word("port"),
            row["priority"],
            word("reason"),
            word("class")
        );
        all.insert(format!("sluice_port_dropped_frames_total{labels}"), number(row, "frames"));
        all.insert(format!("sluice_port_dropped_bytes_total{labels}"), number(row, "bytes"));
    }
    all
}

/// Runs a tool with a text as its input; panics with what it says if it fails.
fn check_with(tool: &str, words: &[&str], text: &str) {
    let mut command = Command::new(tool);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{tool} {words:?}: {said}");
}

/// Asks a Prometheus server for the value of an expression.
fn query(netns: &Netns, expression: &str) -> Option<f64> {
    let answer = get_tcp(netns, 9090, &format!("/api/v1/query?query={expression}"), "*/*");
    let answer: Value = serde_json::from_str(&answer.body).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

/// Has a Prometheus server scrape the host.
fn scraped(case: &Case) {
    let test = "live::metrics (scraped by Prometheus)";
    if skip(test, &["prometheus"]) {
        return;
    }
    let config = case.net.file("prometheus.yml");
    let rules = repository("packaging/prometheus/alerts.yml").canonicalize().unwrap();
    let text = format!(
        "global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\nrule_files: [\"{}\"]\n\
         scrape_configs:\n  - job_name: sluice\n    static_configs:\n      \
         - targets: [\"127.0.0.1:{PORT}\"]\n",
        rules.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = case.host.command("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", case.net.file("tsdb").display()));
    command.args(["--web.listen-address=127.0.0.1:9090", "--log.level=warn"]);
    let _server = Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_for("Prometheus scrapes the host", || query(&case.host, "up") == Some(1.0));
    let frames = "sluice_port_dropped_frames_total%7Breason=%22same_port%22%7D";
    let dropped = case.daemon.drops()[&("one".to_owned(), "same_port".to_owned())];
    wait_for("a counter is there", || query(&case.host, frames) == Some(dropped as f64));
    let samples = query(&case.host, "scrape_samples_scraped").unwrap();
    assert!(samples > 50.0, "{samples}");
    wait_for("its rules are evaluated", || {
        let rules = get_tcp(&case.host, 9090, "/api/v1/rules", "*/*").body;
        rules.contains("SluiceDataDown") && !rules.contains("\"health\":\"err\"")
    });
    // Nothing is wrong with this host.
    assert_eq!(query(&case.host, "count(ALERTS%7Balertstate=%22firing%22%7D)"), None);
    say(&format!("Prometheus took {samples} samples of the host"));
}

/// Clients that say nothing, little, nonsense or too much: others are answered, and frames go on.
fn hostile(case: &Case) {
    let idle: Vec<_> = (0..200).filter_map(|_| connect(&case.host, PORT).ok()).collect();
    assert!(idle.len() > 100, "{} could connect", idle.len());
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for text in ["GET /metrics HTTP/1.1\r\nX: ", "\0\u{1}\u{2}\r\n\r\n", "X"] {
            let (case, ends) = (&case, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let Ok(mut stream) = connect(&case.host, PORT) else { continue };
                    for _ in 0..64 {
                        // A server that has enough ends the connection.
                        if stream.write_all(text.repeat(100).as_bytes()).is_err() {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        case.one.ping(TWO, 20);
        for _ in 0..5 {
            let began = Instant::now();
            assert_eq!(case.unix("/healthz", "*/*").status, 200);
            assert_eq!(case.tcp("/metrics", "*/*").status, 200);
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
        ends.store(true, Ordering::Relaxed);
    });
    drop(idle);
    assert_eq!(case.daemon.show("audit")["closed"], true);
}

/// A data process that is stopped: the host is not well, and its metrics say so.
fn hung(case: &Case) {
    case.daemon.hang_data(true);
    let mut health = Answer::default();
    // An answer of a moment before may still be given.
    wait_for("the host is unwell", || {
        health = case.unix("/healthz", "*/*");
        health.status == 503
    });
    let text = case.tcp("/metrics", "*/*");
    case.daemon.hang_data(false);
    let problem: Value = serde_json::from_str(&health.body).unwrap();
    assert_eq!(problem["code"], "data_silent", "{problem}");
    assert_eq!((text.status, series(&text.body)["sluice_data_up"]), (200, 0.0));
    wait_for("it is well again", || case.tcp("/healthz", "*/*").status == 200);
}

#[test]
#[ignore = "live: needs root"]
fn metrics_agree_with_show_and_survive_hostile_clients() {
    let test = "metrics_agree_with_show_and_survive_hostile_clients";
    if skip(test, &[]) {
        return;
    }
    let case = Case::new("metrics");
    case.one.ping(TWO, 20);
    case.one.ip(&format!("neigh add {SELF} lladdr 02:46:00:00:00:01 dev t0 nud permanent"));
    let sender = case.one.udp(ONE, 0);
    for _ in 0..7 {
        sender.send_to(&[0; 100], (SELF, 9)).unwrap();
    }
    case.daemon.drained();
    let dropped = || case.daemon.drops().get(&("one".to_owned(), "same_port".to_owned())).copied();
    wait_for("the drops are counted", || dropped() == Some(7));

    let mut differ = Vec::new();
    let agree = sluice_netns::happens(Duration::from_secs(20), Duration::from_millis(300), || {
        let (shown, text) = (shown(&case.daemon), case.tcp("/metrics", "*/*").body);
        let told = series(&text);
        let is_other = |(name, value): &(&String, &f64)| told.get(*name) != Some(value);
        differ = shown
            .iter()
            .filter(is_other)
            .map(|(name, value)| format!("{name}: {value}, {:?}", told.get(name)))
            .collect();
        shown.len() > 20 && differ.is_empty()
    });
    assert!(agree, "shown and told:\n{}", differ.join("\n"));

    let (plain, open) = (case.tcp("/metrics", "*/*"), case.unix("/metrics", OPEN));
    assert!(plain.head.contains("content-type: text/plain; version=0.0.4"), "{}", plain.head);
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(open.body.ends_with("# EOF\n") && !plain.body.contains("# EOF"));
    let names = |text: &str| series(text).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&plain.body), names(&open.body));
    let told = series(&plain.body);
    let lost = |reason| {
        let labels = format!("{{port=\"one\",reason=\"{reason}\"}}");
        told[&format!("sluice_lossless_dropped_frames_total{labels}")]
    };
    assert_eq!((lost("output_full"), lost("receiver_stuck")), (0.0, 0.0));
    assert_eq!((told["sluice_audit_closed"], told["sluice_data_up"]), (1.0, 1.0));
    assert!(told["sluice_worker_busy_seconds_total{worker=\"0\"}"] > 0.0);
    let other = case.tcp("/", "*/*");
    assert_eq!(other.status, 404);
    assert!(other.body.contains("\"code\":\"not_found\""), "{}", other.body);

    if !skip("live::metrics (promtool)", &["promtool"]) {
        check_with("promtool", &["check", "metrics"], &plain.body);
        let tests = repository("packaging/prometheus/alerts-test.yml");
        check_with("promtool", &["test", "rules", tests.to_str().unwrap()], "");
    }
    scraped(&case);
    hostile(&case);
    hung(&case);
}

/// A member that goes away, and the other's word on it.
#[test]
#[ignore = "live: needs root"]
fn member_metrics_follow_fabric_state() {
    if skip("member_metrics_follow_fabric_state", &[]) {
        return;
    }
    let mut net = Net::new("memet");
    let hosts = ["h1", "h2"].map(|name| net.netns(name));
    let alone = net.netns("alone");
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    let folder = net.certificates(&["h1", "h2"]);
    let h1 = net.daemon(&hosts[0], "h1", &member(0, &folder, "", ""));
    let mut h2 = net.daemon(&hosts[1], "h2", &member(1, &folder, "", ""));
    are_connected([&h1, &h2]);
    let told = |name: &str| {
        let answer = get_unix(&net.file("h1/http.sock"), "/metrics", OPEN);
        series(&answer.body).get(name).copied()
    };
    wait_for("h2 is alive", || told("sluice_member_alive{member=\"h2\"}") == Some(1.0));
    assert_eq!(told("sluice_member_connected{member=\"h2\"}"), Some(1.0));
    assert_eq!(told("sluice_member_lag_records{member=\"h2\"}"), Some(0.0));
    assert_eq!((told("sluice_fabric_up"), told("sluice_fabric_members")), (Some(1.0), Some(2.0)));
    let left = told("sluice_certificate_remaining_seconds{kind=\"own\",member=\"h1\"}");
    assert!(left > Some(30.0 * 86_400.0), "{left:?}");
    assert_eq!(told("sluice_config_revision"), None, "its configuration is a file's");
    // A host that waits for its fabric answers, too.
    let _waits = net.waiting(&alone, "h9", "");
    let health = get_unix(&net.file("h9/http.sock"), "/healthz", "*/*");
    assert_eq!(health.status, 503, "{health:?}");
    assert!(health.body.contains("not_ready") && health.body.contains("in no fabric yet"));
    let text = get_unix(&net.file("h9/http.sock"), "/metrics", OPEN);
    assert_eq!((text.status, series(&text.body)["sluice_data_up"]), (200, 0.0));

    h2.kill_both();
    wait_for("h2 is away", || told("sluice_member_alive{member=\"h2\"}") == Some(0.0));
    assert_eq!(get_unix(&net.file("h1/http.sock"), "/healthz", "*/*").status, 200);
}
