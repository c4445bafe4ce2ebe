//! The management API of a host: it answers as the commands do, and what it makes forwards.
//!
//! ```text
//!   c1 ── h1 up0 ══ br0 ══ up0 h2 ── c2
//!          └── http.sock: networks, ports, transactions
//! ```

use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::Counted;
use crate::rig::http::{Answer, get_tcp, get_unix, send};
use crate::rig::{Daemon, say, skip, wait_for};
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

/// Group of the hosts, which every Debian has, with its number.
const GROUP: (&str, u32) = ("daemon", 1);
/// A user that is nobody's owner: `nobody`.
const NOBODY: u32 = 65_534;
/// TCP port of the interface, which has no management API.
const PORT: u16 = 9342;
/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (4, Duration::from_millis(2), 500);
/// The Python of Debian, which has the libraries of its packages.
const PYTHON: &str = "/usr/bin/python3";
/// Requests beside which nothing may be lost.
const REQUESTS: u32 = 500;

fn fabric(word: &str) -> Bridge {
    let file = format!("group = \"{}\"\n[api]\nlisten = \"127.0.0.1:{PORT}\"\n", GROUP.0);
    let bridge = Bridge::waiting(word, 2, |_, _| file.clone());
    bridge.become_fabric();
    bridge
}

fn socket(bridge: &Bridge, own: usize) -> PathBuf {
    bridge.net.file(&format!("h{}/http.sock", own + 1))
}

fn json_of(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// Leaves out what differs between two answers to one question: times and ages.
fn without_times(answer: Value) -> Value {
    match answer {
        Value::Object(keys) => {
            let lasts = |key: &str| key != "time" && !key.ends_with("_ns");
            let keys = keys.into_iter().filter(|(key, _)| lasts(key));
            Value::Object(keys.map(|(key, value)| (key, without_times(value))).collect())
        }
        Value::Array(rows) => Value::Array(rows.into_iter().map(without_times).collect()),
        other => other,
    }
}

/// Does work in a thread with the rights of a member of the hosts' group.
fn as_member<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let in_group = || {
            let (group, user) = (Gid::from_raw(GROUP.1), Uid::from_raw(NOBODY));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            work()
        };
        scope.spawn(in_group).join().unwrap()
    })
}

#[test]
#[ignore = "live: needs root"]
fn api_answers_as_commands_do() {
    if skip("api_answers_as_commands_do", &[]) {
        return;
    }
    let bridge = fabric("alike");
    bridge.add(0);
    bridge.add(1);
    let h1 = &bridge.daemons[0];
    wait_for("h1 knows both endpoints", || {
        h1.ask(&["vport", "list"])["vports"].as_array().is_some_and(|all| all.len() == 2)
    });
    for (path, words) in [
        ("/v1/ports", &["port", "list"][..]),
        ("/v1/vnets", &["vnet", "list"]),
        ("/v1/vports", &["vport", "list"]),
        ("/v1/vports/10.42.0.2?vnet=blue", &["vport", "show", "10.42.0.2", "--vnet", "blue"]),
        ("/v1/config", &["config", "show"]),
        ("/v1/transactions?last=2", &["config", "log", "--last", "2"]),
        ("/v1/show/placement", &["show", "placement"]),
        ("/v1/placement", &["placement", "show"]),
    ] {
        let ask = || {
            let answer = get_unix(&socket(&bridge, 0), path, "*/*");
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            without_times(json_of(&answer))
        };
        let mut api = Value::Null;
        // A frame may be counted between two answers.
        wait_for(&format!("{path} and {words:?} say the same"), || {
            api = ask();
            api == without_times(h1.ask(words))
        });
        assert_eq!((&api["host"], &api["format"]), (&json!("h1"), &json!(1)), "{path}");
    }
}

/// Requests of the document: its path, the request and its body. Together with those of ports each
/// operation is answered once without a problem.
const DOCUMENTED: [(&str, &str, &str); 47] = [
    ("/v1", "GET /v1", ""),
    ("/v1/openapi.json", "GET /v1/openapi.json", ""),
    ("/v1/host", "GET /v1/host", ""),
    ("/v1/status", "GET /v1/status", ""),
    ("/v1/show/{question}", "GET /v1/show/ports", ""),
    ("/v1/show/{question}", "GET /v1/show/queues", ""),
    ("/v1/show/{question}", "GET /v1/show/drops", ""),
    ("/v1/show/{question}", "GET /v1/show/audit", ""),
    ("/v1/show/{question}", "GET /v1/show/pauses", ""),
    ("/v1/show/{question}", "GET /v1/show/tunnels", ""),
    ("/v1/show/{question}", "GET /v1/show/mac", ""),
    ("/v1/show/{question}", "GET /v1/show/worker", ""),
    ("/v1/show/{question}", "GET /v1/show/placement", ""),
    ("/v1/show/{question}", "GET /v1/show/weather", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/members", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/flows", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/holds", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/certificates", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/rivals", ""),
    ("/v1/fabric/{question}", "GET /v1/fabric/status", ""),
    ("/v1/vports", "GET /v1/vports?vnet=blue", ""),
    ("/v1/vports/{endpoint}", "GET /v1/vports/10.42.0.2?vnet=blue", ""),
    ("/v1/vports/{endpoint}", "GET /v1/vports/10.42.0.99?vnet=blue", ""),
    ("/v1/vports/{endpoint}/thaw", "POST /v1/vports/10.42.0.1/thaw?vnet=blue", ""),
    ("/v1/ports", "POST /v1/ports", r#"{"place":{"netns":"nowhere"},"vnet":"blue"}"#),
    (
        "/v1/tokens",
        "POST /v1/tokens",
        r#"{"name":"shop","role":"tenant","vnets":["blue"],"days":7}"#,
    ),
    ("/v1/tokens", "POST /v1/tokens", r#"{"name":"shop","role":"viewer"}"#),
    ("/v1/tokens", "GET /v1/tokens", ""),
    ("/v1/tokens/{name}", "DELETE /v1/tokens/shop", ""),
    ("/v1/tokens/{name}", "DELETE /v1/tokens/shop", ""),
    ("/v1/vnets", "GET /v1/vnets", ""),
    ("/v1/vnets", "POST /v1/vnets?check=true", r#"{"name":"red","vnet":{"vni":300}}"#),
    ("/v1/vnets", "POST /v1/vnets", r#"{"name":"red","vnet":{"vni":300,"hold":"2s"}}"#),
    ("/v1/vnets", "POST /v1/vnets", r#"{"name":"red","vnet":{"vni":301}}"#),
    ("/v1/vnets/{name}", "PATCH /v1/vnets/red", r#"{"mtu":1400,"hold":null,"priority":3}"#),
    ("/v1/vnets/{name}", "DELETE /v1/vnets/red?colour=red", ""),
    ("/v1/vnets/{name}", "DELETE /v1/vnets/red", ""),
    (
        "/v1/transactions",
        "POST /v1/transactions?confirmed_s=60",
        r#"{"change":[{"create_vnet":{"name":"red","vnet":{"vni":300}}}]}"#,
    ),
    ("/v1/transactions/confirm", "POST /v1/transactions/confirm", ""),
    ("/v1/transactions/confirm", "POST /v1/transactions/confirm", ""),
    ("/v1/transactions/rollback", "POST /v1/transactions/rollback", r#"{"to":7}"#),
    (
        "/v1/transactions",
        "POST /v1/transactions",
        r#"{"change":[
            {"set_vport":{"vnet":"blue","port":"web","key":"priority","value":3}},
            {"set_vlan":{"trunk":"t1","number":7,"vlan":{"vnet":"blue"}}}
        ]}"#,
    ),
    ("/v1/transactions", "GET /v1/transactions", ""),
    ("/v1/config", "GET /v1/config", ""),
    (
        "/v1/placement",
        "PUT /v1/placement",
        r#"{"mode":"rss","high":["vni=100,proto=tcp,port=443"]}"#,
    ),
    ("/v1/placement", "GET /v1/placement", ""),
    ("/v1/reload", "POST /v1/reload", ""),
];

/// Answers of a host, each with the operation of the document that it is of.
struct Answers {
    socket: PathBuf,
    lines: String,
}

impl Answers {
    fn ask(&mut self, path: &str, line: &str, body: &str) -> Answer {
        let answer = send(&self.socket, line, body);
        self.note(path, line, &answer);
        answer
    }

    /// Notes an answer for the check.
    fn note(&mut self, path: &str, line: &str, answer: &Answer) {
        let method = line.split(' ').next();
        let event = || answer.body.lines().find_map(|line| line.strip_prefix("data: "));
        let body = match answer.head.contains("text/event-stream") {
            true => serde_json::from_str(event().expect("something happens")).unwrap(),
            false => json_of(answer),
        };
        let status = answer.status;
        let line = json!({ "method": method, "path": path, "status": status, "body": body });
        self.lines += &format!("{line}\n");
    }

    /// Lets a validator that is not ours compare them with the document.
    fn check(&self) {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi/check.py");
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let mut python = Command::new(PYTHON);
        python.arg(tests).arg(document).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.lines.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "answers and the document differ:\n{said}");
        say(said.trim());
    }
}

#[test]
#[ignore = "live: needs root"]
fn answers_match_openapi_document() {
    if skip("answers_match_openapi_document", &[PYTHON]) {
        return;
    }
    let has_library = Command::new(PYTHON).args(["-c", "import jsonschema"]).status().unwrap();
    if !has_library.success() {
        say("SKIPPED answers_match_openapi_document: the Python library jsonschema is missing");
        return;
    }
    let bridge = fabric("schema");
    bridge.add(0);
    bridge.add(1);
    bridge.containers[0].ping(ip(1), 2);
    let mut answers = Answers { socket: socket(&bridge, 0), lines: String::new() };
    let netns = bridge.containers[0].name();
    let port = json!({
        "place": {"netns": netns}, "vnet": "blue", "name": "web", "ips": ["10.42.0.9/24"],
        "routes": ["10.9.0.0/16"], "allow_ip": ["10.42.0.128/28"], "device": "eth7"
    });
    let name = "/v1/ports/{name}";
    assert_eq!(answers.ask("/v1/ports", "POST /v1/ports", &port.to_string()).status, 201);
    answers.ask("/v1/ports", "GET /v1/ports", "");
    assert_eq!(answers.ask(name, "GET /v1/ports/web", "").status, 200);
    for (path, line, body) in DOCUMENTED {
        answers.ask(path, line, body);
    }
    let events = answers.socket.clone();
    let watch = std::thread::spawn(move || send(&events, "GET /v1/events?seconds=3", ""));
    std::thread::sleep(Duration::from_secs(1));
    let vnet = r#"{"name":"seen","vnet":{"vni":309}}"#;
    answers.ask("/v1/vnets", "POST /v1/vnets", vnet);
    answers.note("/v1/events", "GET /v1/events", &watch.join().unwrap());
    assert_eq!(answers.ask(name, "DELETE /v1/ports/web", "").status, 200);
    assert_eq!(answers.ask(name, "DELETE /v1/ports/web", "").status, 404);
    answers.check();
}

/// The client in Python: each operation of the document against a host, and what needs none.
#[test]
#[ignore = "live: needs root"]
fn python_client_has_each_operation() {
    if skip("python_client_has_each_operation", &[PYTHON]) {
        return;
    }
    let bridge = fabric("python");
    bridge.add(0);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new(PYTHON);
    python.args(["-B", "-m", "unittest", "discover", "tests"]).current_dir(&folder);
    python.env("PYTHONPATH", folder.join("src")).env("SLUICE_SOCKET", socket(&bridge, 0));
    python.env("SLUICE_NETNS", bridge.containers[0].name());
    let output = python.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // The tests of a host over the network have a test of their own.
    assert!(output.status.success() && said.contains("skipped=3"), "{said}");
    say(said.trim());
}

#[test]
#[ignore = "live: needs root"]
fn network_made_by_api_forwards_on_all_hosts() {
    if skip("network_made_by_api_forwards_on_all_hosts", &[]) {
        return;
    }
    let bridge = fabric("made");
    let at = |own| socket(&bridge, own);
    let vnet = r#"{"name":"green","vnet":{"vni":200}}"#;

    let before = bridge.daemons[0].revision();
    // A machine that pauses may have broken a connection since: a check asks those who are there.
    wait_for("both accept", || {
        let check = send(&at(0), "POST /v1/vnets?check=true", vnet);
        check.status == 200 && json_of(&check)["accepted"]["voted"] == json!(["h1", "h2"])
    });
    assert_eq!(bridge.daemons[0].revision(), before, "nothing was made");

    let made = send(&at(0), "POST /v1/vnets?comment=by%20API&require_all=true", vnet);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(json_of(&made)["committed"]["revision"], before + 1, "{made:?}");
    assert_eq!(bridge.daemons[0].transactions()[0]["comment"], "by API");
    let again = send(&at(1), "POST /v1/vnets", vnet);
    assert_eq!((again.status, &json_of(&again)["code"]), (409, &json!("refused")), "{again:?}");
    assert!(again.body.contains("green") && !json_of(&again)["remedy"].is_null(), "{again:?}");

    bridge.all_have_caught_up();
    let address = |own: u8| Ipv4Addr::new(10, 43, 0, own);
    for own in 0..2_u8 {
        let netns = bridge.containers[usize::from(own)].name();
        let port = json!({
            "place": {"netns": netns}, "vnet": "green", "name": "web",
            "ips": [format!("{}/24", address(own + 1))]
        });
        let added = send(&at(usize::from(own)), "POST /v1/ports", &port.to_string());
        assert_eq!((added.status, &json_of(&added)["device"]), (201, &json!("eth0")), "{added:?}");
    }
    bridge.containers[0].ping(address(2), 3);

    let twice = send(&at(0), "DELETE /v1/vnets/green", "");
    assert_eq!(twice.status, 409, "it has ports: {twice:?}");
    for own in 0..2 {
        let gone = send(&at(own), "DELETE /v1/ports/web", "");
        assert_eq!((gone.status, &json_of(&gone)["name"]), (200, &json!("web")), "{gone:?}");
        let missing = send(&at(own), "DELETE /v1/ports/web", "");
        assert_eq!((missing.status, &json_of(&missing)["code"]), (404, &json!("no_such_port")));
    }
    wait_for("the network goes when nobody uses it", || {
        send(&at(0), "DELETE /v1/vnets/green", "").status == 200
    });
    bridge.all_have_caught_up();
    assert_eq!(bridge.daemons[1].vnets(), ["blue"]);
}

#[test]
#[ignore = "live: needs root"]
fn member_of_group_looks_and_changes_nothing() {
    if skip("member_of_group_looks_and_changes_nothing", &[]) {
        return;
    }
    let bridge = fabric("group");
    let at = socket(&bridge, 0);
    let before = bridge.daemons[0].revision();
    let (looked, wrote) = as_member(|| {
        let looked = get_unix(&at, "/v1/vnets", "*/*");
        (looked, send(&at, "POST /v1/vnets", r#"{"name":"green","vnet":{"vni":200}}"#))
    });
    assert_eq!(looked.status, 200, "{looked:?}");
    assert_eq!((wrote.status, &json_of(&wrote)["code"]), (403, &json!("forbidden")), "{wrote:?}");
    // Whoever reaches the network address, were it root, is not even let look.
    bridge.hosts[0].ip("link set lo up");
    wait_for("the address is listened on", || {
        get_tcp(&bridge.hosts[0], PORT, "/healthz", "*/*").status == 200
    });
    let looked = get_tcp(&bridge.hosts[0], PORT, "/v1/vnets", "*/*");
    assert_eq!((looked.status, &json_of(&looked)["code"]), (403, &json!("forbidden")));
    assert_eq!(bridge.daemons[0].revision(), before);
}

#[test]
#[ignore = "live: needs root"]
fn requests_cost_no_frame() {
    if skip("requests_cost_no_frame", &[]) {
        return;
    }
    let bridge = fabric("cost");
    bridge.add(0);
    bridge.add(1);
    let [from, to] = [0, 1].map(|own| (&bridge.containers[own], ip(own)));
    bridge.containers[0].ping(ip(1), 2);
    let flow = Counted::start(from, to, 9, FLOW);
    let (at, began) = (socket(&bridge, 0), Instant::now());
    for count in 0..REQUESTS {
        let path = ["/v1/ports", "/v1/vnets", "/v1/show/ports", "/v1/fabric/status"];
        let answer = get_unix(&at, path[count as usize % path.len()], "*/*");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let took = began.elapsed();
    let seen = flow.stop();
    say(&format!("{:.0} requests/s beside {seen:?}", f64::from(REQUESTS) / took.as_secs_f64()));
    assert_eq!(seen.received, seen.sent);
    bridge.daemons.iter().for_each(Daemon::assert_lossless);
}
