//! Other machines at the management API: TLS, with a token or a certificate.
//!
//! ```text
//!   h2: curl, Python, a fuzzer ── up0 ══ br0 ══ up0 ── h1 at 192.0.2.1:9343
//! ```

use std::ffi::OsStr;
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
    let own_netns = format!("--netns={}", bridge.containers[0].name());
    let (operator, viewer) = (token("operator", "--days=1"), token("viewer", "--days=2"));
    let tenant = host.says(&["api", "token", "tenant", "--role=tenant", "--vnet=blue", &own_netns]);
    let tenant = tenant.trim();
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
    tenant_changes_own_port(&bridge, &port, |line, body| curl(tenant, line, body));
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
    let (_, body) = curl(tenant, "GET /v1/vnets", "");
    assert!(body.contains("blue") && !body.contains("red"), "{body}");
    assert_eq!(curl(tenant, "GET /v1/vports?vnet=red", "").0, 403);
    host.says(&["vnet", "delete", "red"]);

    python_as_viewer(&bridge, &authority, [("SLUICE_TOKEN", OsStr::new(&viewer))]);
    host.says(&["api", "revoke", "operator"]);
    assert_eq!(curl(&operator, "GET /v1/ports", "").0, 401);
    assert!(!host.says(&["api", "tokens"]).contains("operator"));
}

/// A tenant takes the port of its namespace away and adds it again, and nothing else.
fn tenant_changes_own_port(
    bridge: &Bridge,
    port: &Value,
    curl: impl Fn(&str, &str) -> (u16, String),
) {
    let other = json!({"place": {"netns": bridge.containers[1].name()}, "vnet": "blue"});
    for (line, body, status) in [
        ("POST /v1/ports", &other, 403),
        ("POST /v1/ports", &json!({"place": "host", "vnet": "blue"}), 403),
        ("DELETE /v1/ports/other", &Value::Null, 404),
        ("POST /v1/reload", &Value::Null, 403),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (seen, answer) = curl(line, &body);
        assert_eq!(seen, status, "{line} {body}: {answer}");
    }
    let path = format!("/v1/ports/{}", bridge.containers[0].name());
    assert_eq!(curl(&format!("DELETE {path}"), "").0, 200);
    assert_eq!(curl(&format!("GET {path}"), "").0, 404);
    let (status, answer) = curl("POST /v1/ports", &port.to_string());
    assert_eq!(status, 201, "{answer}");
    bridge.containers[0].ping(ip(1), 2);
}

/// Runs OpenSSL in a folder.
fn openssl(folder: &Path, line: &str) {
    let mut openssl = Command::new("openssl");
    let output = openssl.args(line.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Makes an authority and certificates of clients, as docs/api.md has it: `NAME.pem` with its key.
fn certify(folder: &Path, authority: &str, names: &[&str]) {
    const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    std::fs::write(folder.join("client.ext"), "extendedKeyUsage=clientAuth\n").unwrap();
    let own = format!("-keyout {authority}.key -out {authority}.pem");
    openssl(folder, &format!("req -x509 {KEY} -days 3650 -subj /CN={authority} {own}"));
    for name in names {
        let out = format!("-keyout {name}.key -out {name}.csr");
        openssl(folder, &format!("req -new {KEY} -subj /CN={name} {out}"));
        let by = format!("-CA {authority}.pem -CAkey {authority}.key -extfile client.ext");
        openssl(folder, &format!("x509 -req -in {name}.csr {by} -days 90 -out {name}.crt"));
        join(folder, name, "crt");
    }
}

/// Writes a certificate and its key into one file.
fn join(folder: &Path, name: &str, certificate: &str) {
    let read = |end: &str| std::fs::read_to_string(folder.join(format!("{name}.{end}"))).unwrap();
    std::fs::write(folder.join(format!("{name}.pem")), read(certificate) + &read("key")).unwrap();
}

/// Signs the request of a client for a time that is over, which `openssl x509` cannot.
fn expire(folder: &Path, authority: &str, name: &str) {
    let config = "[ca]\ndefault_ca=d\n[d]\ndatabase=index\nserial=serial\nnew_certs_dir=.\n\
                  default_md=sha256\npolicy=p\nx509_extensions=e\n[p]\n\
                  commonName=supplied\n[e]\nextendedKeyUsage=clientAuth\n";
    std::fs::write(folder.join("ca.cnf"), config).unwrap();
    std::fs::write(folder.join("index"), "").unwrap();
    std::fs::write(folder.join("serial"), "01\n").unwrap();
    let by = format!("-cert {authority}.pem -keyfile {authority}.key -batch -notext");
    let dates = "-startdate 20200101000000Z -enddate 20200201000000Z";
    openssl(folder, &format!("ca -config ca.cnf -in {name}.csr {by} {dates} -out {name}.old"));
    join(folder, name, "old");
}

/// Clients and certificates that are not ours: curl and Python's `ssl`, with OpenSSL's authority.
#[test]
#[ignore = "live: needs root"]
fn certificate_of_other_machine_gives_role() {
    if skip("certificate_of_other_machine_gives_role", &[PYTHON, "curl", "openssl"]) {
        return;
    }
    let mut folder = PathBuf::new();
    let bridge = Bridge::waiting("mutual", 2, |net, own| {
        if own > 0 {
            return String::new();
        }
        folder = net.file("clients");
        std::fs::create_dir(&folder).unwrap();
        certify(&folder, "people", &["grafana", "robot", "stranger", "late"]);
        certify(&folder, "others", &["thief"]);
        expire(&folder, "people", "late");
        let client = |name: &str, role: &str| {
            format!("[[api.tls.client]]\nname = \"{name}\"\nrole = \"{role}\"\n")
        };
        let ca = folder.join("people.pem");
        let all = [("grafana", "viewer"), ("robot", "operator"), ("thief", "admin")];
        let all = all.map(|(name, role)| client(name, role)).concat() + &client("late", "admin");
        format!("[api.tls]\nlisten = \"{AT}\"\nclient_ca = \"{}\"\n{all}", ca.display())
    });
    bridge.become_fabric();
    let authority = bridge.net.file("h1/tls/ca.pem");
    let curl = |name: &str, line: &str| {
        let (method, path) = line.split_once(' ').unwrap();
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-m", "20", "--resolve", "h1:9343:192.0.2.1", "-X", method, "--cacert"]);
        curl.arg(&authority).args(["-w", "\n%{http_code}", &format!("https://h1:9343{path}")]);
        if !name.is_empty() {
            curl.arg("--cert").arg(folder.join(format!("{name}.pem")));
        }
        let output = bridge.hosts[1].inside(|| curl.output().unwrap());
        let said = String::from_utf8(output.stdout).unwrap();
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned() + &String::from_utf8_lossy(&output.stderr))
    };
    for (name, line, status, part) in [
        ("grafana", "GET /v1/config", "200", "blue"),
        ("grafana", "POST /v1/reload", "403", "this certificate"),
        ("robot", "POST /v1/reload", "200", "changed"),
        ("robot", "DELETE /v1/vnets/blue", "403", "operator"),
        ("stranger", "GET /v1", "401", "`stranger`"),
        ("", "GET /v1", "401", "[[api.tls.client]]"),
        // Refused in the handshake, in the words of OpenSSL's side.
        ("thief", "GET /v1", "000", "unknown ca"),
        ("late", "GET /v1", "000", "certificate expired"),
    ] {
        let (said, text) = curl(name, line);
        assert!(said == status && text.contains(part), "{name}: {line}: {said} {text}");
    }
    let viewer = folder.join("grafana.pem");
    python_as_viewer(&bridge, &authority, [("SLUICE_CERTIFICATE", viewer.as_os_str())]);
}

/// Asks by Python from another host; `proof` is a token or a certificate.
fn python_as_viewer(bridge: &Bridge, authority: &Path, proof: [(&str, &OsStr); 1]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new(PYTHON);
    python.args(["-B", "-m", "unittest", "tests/test_remote.py"]).current_dir(&folder);
    python.env("PYTHONPATH", folder.join("src")).env("SLUICE_AT", AT).env("SLUICE_NAME", "h1");
    python.env("SLUICE_AUTHORITY", authority).envs(proof);
    let output = bridge.hosts[1].inside(|| python.output().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("skipped"), "{said}");
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
    // The one does not end, the other may end this token.
    fuzzer.args(["--exclude-path", "/v1/events", "--exclude-path", "/v1/tokens/{name}"]);
    fuzzer.args(["--exclude-checks", "positive_data_acceptance"]);
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
