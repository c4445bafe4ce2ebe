//! Other machines at the management API: TLS, with a token.
//!
//! ```text
//!   h2: curl, Python, a fuzzer ── up0 ══ br0 ══ up0 ── h1 at 192.0.2.1:9343
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::rig::bridge::{Bridge, ip};
use crate::rig::http::send;
use crate::rig::{program, say, skip};

/// Address of the first host's interface.
const AT: &str = "192.0.2.1:9343";
/// The Python of Debian, which has the libraries of its packages.
const PYTHON: &str = "/usr/bin/python3";
/// Cases of each operation; and under `SLUICE_SOAK`, when all phases run.
const CASES: &str = "8";
const CASES_LONG: &str = "50";

/// A fabric of two hosts, of which the first listens for other machines.
fn fabric(word: &str) -> Bridge {
    let file = |_: &_, own| match own {
        0 => format!("[api.tls]\nlisten = \"{AT}\"\n"),
        _ => String::new(),
    };
    let bridge = Bridge::waiting(word, 2, file);
    bridge.become_fabric();
    bridge
}

/// Clients that are not ours, from another host, each with the role of its token.
#[test]
#[ignore = "live: needs root"]
fn other_machine_asks_by_role_of_token() {
    if skip("other_machine_asks_by_role_of_token", &[PYTHON, "curl"]) {
        return;
    }
    let bridge = fabric("remote");
    let host = &bridge.daemons[0];
    let token = |role: &str, rest: &str| {
        host.says(&["api", "token", role, "--role", role, rest]).trim().to_owned()
    };
    let (operator, viewer) = (token("operator", "--days=1"), token("viewer", "--days=2"));
    let tenant = token("tenant", "--vnet=blue");
    let authority = bridge.net.file("h1/tls/ca.pem");
    let curl = |token: &str, line: &str, body: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "20", "--resolve", "h1:9343:192.0.2.1", "-X", method, "--cacert"]);
        curl.arg(&authority).args(["-w", "\n%{http_code}", &format!("https://h1:9343{path}")]);
        curl.args(["-H", &format!("Authorization: Bearer {token}")]);
        if !body.is_empty() {
            curl.args(["--json", body]);
        }
        let output = bridge.hosts[1].inside(|| curl.output().unwrap());
        let said = String::from_utf8(output.stdout).unwrap();
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.parse::<u16>().unwrap(), body.to_owned())
    };
    let port = json!({
        "place": {"netns": bridge.containers[0].name()}, "vnet": "blue", "ips": ["10.42.0.1/24"]
    });
    assert_eq!(curl(&viewer, "POST /v1/ports", &port.to_string()).0, 403);
    assert_eq!(curl("sluice-api-0", "GET /v1/ports", "").0, 401);
    let (status, body) = curl(&operator, "POST /v1/ports", &port.to_string());
    assert_eq!(status, 201, "{body}");
    bridge.add(1);
    bridge.containers[0].ping(ip(1), 2);
    let vnet = r#"{"name":"red","vnet":{"vni":200}}"#;
    assert_eq!(curl(&operator, "POST /v1/vnets", vnet).0, 403);
    let made =
        send(&bridge.net.file("h1/http.sock"), "POST /v1/tokens", r#"{"name":"a","role":"admin"}"#);
    assert_eq!(made.status, 201, "{made:?}");
    let admin =
        serde_json::from_str::<Value>(&made.body).unwrap()["token"].as_str().unwrap().to_owned();
    let (status, body) = curl(&admin, "POST /v1/vnets", vnet);
    assert_eq!(status, 201, "{body}");
    assert_eq!(host.transactions()[0]["comment"], "by `a` over the network");
    let (_, body) = curl(&tenant, "GET /v1/vnets", "");
    assert!(body.contains("blue") && !body.contains("red"), "{body}");
    assert_eq!(curl(&tenant, "GET /v1/vports?vnet=red", "").0, 403);
    host.says(&["vnet", "delete", "red"]);

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new(PYTHON);
    python.args(["-B", "-m", "unittest", "tests/test_remote.py"]).current_dir(&folder);
    python.env("PYTHONPATH", folder.join("src")).env("SLUICE_AT", AT).env("SLUICE_NAME", "h1");
    python.env("SLUICE_AUTHORITY", &authority).env("SLUICE_TOKEN", &viewer);
    let output = bridge.hosts[1].inside(|| python.output().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("skipped"), "{said}");
    host.says(&["api", "revoke", "operator"]);
    assert_eq!(curl(&operator, "GET /v1/ports", "").0, 401);
    assert!(!host.says(&["api", "tokens"]).contains("operator"));
}

/// Returns the folder of the fuzzer, as `scripts/setup.sh` makes it.
fn schemathesis() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("schemathesis")
}

/// A fuzzer that is not ours finds no answer that the document does not describe, no server error,
/// and no request that is taken though the document refuses it. A request that the document takes
/// may be refused: it does not say all that a host checks.
#[test]
#[ignore = "live: needs root"]
fn fuzzer_finds_no_answer_against_document() {
    if skip("fuzzer_finds_no_answer_against_document", &[PYTHON]) {
        return;
    }
    let folder = schemathesis();
    if !folder.join("bin/st").exists() {
        say("SKIPPED fuzzer_finds_no_answer_against_document: schemathesis is missing");
        return;
    }
    let bridge = fabric("fuzzer");
    let host = &bridge.daemons[0];
    let token = host.says(&["api", "token", "fuzzer", "--role", "admin"]);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let (phases, cases) = match std::env::var_os("SLUICE_SOAK") {
        Some(_) => ("examples,coverage,fuzzing,stateful", CASES_LONG),
        None => ("fuzzing", CASES),
    };
    let mut fuzzer = Command::new(PYTHON);
    fuzzer.arg(folder.join("bin/st")).arg("run").arg(document);
    fuzzer.args(["--url", &format!("https://{AT}"), "--tls-verify", "false", "--no-color"]);
    fuzzer.args(["-H", &format!("Authorization: Bearer {}", token.trim())]);
    fuzzer.args(["--phases", phases, "-n", cases, "--generation-database", "none"]);
    // The one does not end, the other may end this token; a known key is answered before the method
    // is looked at.
    fuzzer.args(["--exclude-path", "/v1/events", "--exclude-path", "/v1/tokens/{name}"]);
    fuzzer.args(["--exclude-checks", "positive_data_acceptance,unsupported_method"]);
    fuzzer.args(["--continue-on-failure", "--request-timeout", "20", "--no-shrink"]);
    fuzzer.env("PYTHONPATH", &folder).env("PYTHONDONTWRITEBYTECODE", "1");
    fuzzer.current_dir(bridge.net.file(""));
    let output = bridge.hosts[1].inside(|| fuzzer.output().unwrap());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let count = said.lines().find(|line| line.contains("generated,")).expect("it counts its cases");
    say(count.trim());
    host.says(&["api", "tokens"]);
}
