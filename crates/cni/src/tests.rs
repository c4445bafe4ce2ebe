use std::collections::BTreeMap;
use std::io::BufReader;
use std::io::Write as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use sluice_api::client;
use sluice_api::port::{AddedPorts, Deleted, PortState};
use sluice_api::request::Request;

use super::*;
use crate::claim::Claim;
use crate::host::Host;

/// Environment of an ADD without a host.
const ADD: [(&str, &str); 5] = [
    ("CNI_COMMAND", "ADD"),
    ("CNI_CONTAINERID", "c7"),
    ("CNI_NETNS", "/run/netns/none"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_PATH", "/nowhere"),
];
const NET: &str = r#"{"cniVersion":"1.1.0","name":"pods","vnet":"blue","type":"sluice-cni",
"socket":"/nowhere/show.sock"}"#;

fn ask(changes: &[(&str, &str)], input: &str) -> (Value, bool) {
    let mut all: BTreeMap<&str, &str> = ADD.into_iter().collect();
    all.extend(changes.iter().copied());
    let variable = |name: &str| all.get(name).map(|text| (*text).to_owned());
    let answer = run(&variable, &mut input.as_bytes());
    (serde_json::from_str(&answer.text).unwrap_or_default(), answer.is_error)
}

/// Returns the code and the text of the error that comes.
fn refused(changes: &[(&str, &str)], input: &str) -> (u64, String) {
    let (error, is_error) = ask(changes, input);
    assert!(is_error, "{changes:?} {input}: {error}");
    let word = |key: &str| error[key].as_str().unwrap().to_owned();
    assert!(!word("details").is_empty() && !word("msg").is_empty(), "{error}");
    (error["code"].as_u64().unwrap(), format!("{}; {}", word("msg"), word("details")))
}

#[test]
fn version_lists_what_is_supported() {
    let version = [("CNI_COMMAND", "VERSION")];
    for (input, said) in
        [("", "1.1.0"), (r#"{"cniVersion":"0.3.1"}"#, "0.3.1"), (r#"{"cniVersion":"9"}"#, "9")]
    {
        let (answer, is_error) = ask(&version, input);
        assert!(!is_error);
        assert_eq!(answer["cniVersion"], said);
        assert_eq!(answer["supportedVersions"], json!(["0.4.0", "1.0.0", "1.1.0"]));
    }
    assert_eq!(refused(&version, "{").0, 6);
}

#[test]
fn bad_input_is_refused_with_its_name() {
    let with = |key: &str, value: &str| NET.replacen('{', &format!("{{\"{key}\":{value},"), 1);
    let of = |from: &str, to: &str| NET.replace(from, to);
    let path = [("CNI_COMMAND", "ADD")];
    for (input, code, words) in [
        (String::new(), 6, "no JSON"),
        ("[]".to_owned(), 6, "no JSON object"),
        (of(r#""cniVersion":"1.1.0","#, ""), 1, "means 0.1.0"),
        (of("1.1.0", "0.3.1"), 1, "`0.3.1` is not supported; use one of 0.4.0, 1.0.0, 1.1.0"),
        (of(r#""name":"pods","#, ""), 7, "`name`: is missing"),
        (of(r#""vnet":"blue","#, ""), 7, "`vnet`: is missing"),
        (of(r#""blue""#, "7"), 7, "`vnet`: 7 is no text"),
        (with("host", r#""h1""#), 7, "`socket`: stands beside `host`"),
        (of("socket", "host"), 7, "`host`: `/nowhere/show.sock` is no host's name"),
        (with("kind", r#""macvlan""#), 7, "use `tap`, `veth`, `kernel` or"),
        (with("mtu", "70000"), 7, "`mtu`: 70000"),
        (with("mtu", r#""1500""#), 7, "`mtu`"),
        (with("ipam", r#"{"subnet":"10.0.0.0/8"}"#), 7, "`ipam`: has no `type`"),
        (with("ipam", r#"{"type":"../host-local"}"#), 7, "is a path"),
        (with("ipam", r#"{"type":"host-local"}"#), 7, "no program `host-local` is in CNI_PATH"),
        (with("ipam", r#""host-local""#), 7, "`ipam`: \"host-local\" is no object"),
        (with("runtimeConfig", "[]"), 7, "`runtimeConfig`"),
    ] {
        let (found, text) = refused(&path, &input);
        assert!(found == code && text.contains(words), "{input}: {found} {text}");
    }
}

#[test]
fn bad_environment_is_refused_with_its_name() {
    let long = "x".repeat(16);
    for (name, value) in [
        ("CNI_COMMAND", ""),
        ("CNI_COMMAND", "REMOVE"),
        ("CNI_CONTAINERID", ""),
        ("CNI_CONTAINERID", "-c7"),
        ("CNI_CONTAINERID", "c7/../c8"),
        ("CNI_IFNAME", ""),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "a:b"),
        ("CNI_IFNAME", &long),
        ("CNI_NETNS", ""),
        ("CNI_NETNS", "web"),
    ] {
        let (code, text) = refused(&[(name, value)], NET);
        assert!(code == 4 && text.starts_with(name), "{name}={value}: {code} {text}");
    }
}

#[test]
fn commands_of_1_1_need_its_version() {
    let old = NET.replace("1.1.0", "1.0.0");
    for command in ["GC", "STATUS"] {
        let (code, text) = refused(&[("CNI_COMMAND", command)], &old);
        assert!(code == 1 && text.contains(command), "{text}");
    }
}

#[test]
fn absent_host_gives_each_command_its_code() {
    for (command, code) in [("ADD", 11), ("DEL", 11), ("STATUS", 51)] {
        let (found, text) = refused(&[("CNI_COMMAND", command)], NET);
        assert_eq!(found, code, "{command}: {text}");
        assert!(text.contains("no host answers on /nowhere/show.sock"), "{text}");
    }
    let (code, text) = refused(&[("CNI_COMMAND", "CHECK")], NET);
    assert!(code == 7 && text.starts_with("`prevResult`"), "{text}");
}

#[test]
fn gc_without_list_deletes_nothing() {
    let gc = [("CNI_COMMAND", "GC")];
    let with =
        |value: &str| NET.replacen('{', &format!("{{\"cni.dev/valid-attachments\":{value},"), 1);
    // No host is asked, and no IPAM plugin.
    let ipam = r#"{"ipam":{"type":"host-local"},"#;
    for input in [NET.to_owned(), with("null"), NET.replacen('{', ipam, 1)] {
        assert_eq!(ask(&gc, &input), (Value::Null, false), "{input}");
    }
    for (value, code) in [("[]", 11), (r#"[{"containerID":"c7"}]"#, 7), ("{}", 7), ("[7]", 7)] {
        assert_eq!(refused(&gc, &with(value)).0, code, "{value}");
    }
}

#[test]
fn input_beyond_its_limit_is_refused() {
    let long = format!("{{\"name\":\"{}\"}}", "x".repeat(CONFIG_SIZE_MAX));
    let (code, text) = refused(&[("CNI_COMMAND", "ADD")], &long);
    assert!(code == 6 && text.contains("longer than 1048576 bytes"), "{text}");
}

/// Writes an executable script. Another process does it: a file that this one had open could not be
/// executed while another thread starts a program.
pub(crate) fn write_program(path: &Path, text: &str) {
    let mut shell = Process::new("sh");
    shell.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
}

/// A host that refuses what `refuses` says, and an IPAM plugin that writes down what it is asked.
/// The live tests have real ones; these fail at a chosen moment.
struct Scene {
    dir: PathBuf,
    net: String,
}

impl Scene {
    fn new(word: &str, refuses: fn(&Request) -> bool) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-{}-cni-{word}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = r#"#!/bin/sh
echo $CNI_COMMAND >>${0%/*}/asked
cat >/dev/null
[ $CNI_COMMAND != ADD ] || echo '{"ips":[{"address":"10.0.0.7/24"}]}'
"#;
        write_program(&dir.join("fixed"), script);
        let listener = UnixListener::bind(dir.join("show.sock")).unwrap();
        std::thread::spawn(move || serve(&listener, refuses));
        let socket = dir.join("show.sock").display().to_string();
        let net = NET.replace("/nowhere/show.sock", &socket);
        Self { dir, net: net.replacen('{', r#"{"ipam":{"type":"fixed"},"#, 1) }
    }

    /// Leaves what a command that was killed leaves: a claim with a record.
    fn is_killed(&self) {
        let config = NetConfig::parse(self.net.as_bytes(), &mut Version::NEWEST.clone()).unwrap();
        let host = Host::find(&config.host).unwrap();
        let invocation = Invocation::read(Command::Add, &|name| {
            let found = ADD.iter().find(|(key, _)| *key == name);
            found.map(|(_, text)| (*text).to_owned())
        });
        let attachment = attach::attachment(&invocation.unwrap(), &config);
        Claim::of(&host, &attachment).unwrap().record(&attachment).unwrap();
    }

    /// Returns the number of claims.
    fn claims(&self) -> usize {
        std::fs::read_dir(self.dir.join("cni")).map_or(0, Iterator::count)
    }

    /// Executes a command; returns the code of its error, and what the IPAM plugin was asked.
    fn ask(&self, command: &str) -> (u64, String) {
        let dir = self.dir.display().to_string();
        let (answer, _) = ask(&[("CNI_COMMAND", command), ("CNI_PATH", &dir)], &self.net);
        let asked = std::fs::read_to_string(self.dir.join("asked")).unwrap_or_default();
        _ = std::fs::remove_file(self.dir.join("asked"));
        (answer["code"].as_u64().unwrap_or_default(), asked.replace('\n', " "))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Answers as a host does; an ADD that it refuses leaves its port nevertheless.
fn serve(listener: &UnixListener, refuses: fn(&Request) -> bool) {
    let mut ports: Vec<PortState> = Vec::new();
    for stream in listener.incoming() {
        let stream = stream.unwrap();
        let line = client::read_line(&mut BufReader::new(&stream), 1 << 20).unwrap().unwrap();
        let request: Request = serde_json::from_str(&line).unwrap();
        let refused = refuses(&request);
        let answer = match request {
            Request::Ports => serde_json::to_value(AddedPorts { ports: ports.clone() }).unwrap(),
            Request::Add(new) => {
                let name = new.name.clone();
                ports.push(PortState { port: *new, open: true });
                json!({"name": name, "vnet": "blue", "device": "eth0", "number": 1})
            }
            Request::Card(_) => json!({
                "device": "eth0", "mac": "02:00:00:00:00:07", "mtu": 1450, "up": true,
                "addresses": [], "routes": []
            }),
            Request::Del(name) if !refused => {
                ports.clear();
                serde_json::to_value(Deleted { name, frames: 0 }).unwrap()
            }
            _ => Value::Null,
        };
        let refusal = json!({"error": "it cannot be done; try something else"});
        client::write(&stream, if refused { &refusal } else { &answer }).unwrap();
    }
}

#[test]
fn failed_add_gives_address_back() {
    let scene = Scene::new("refused", |request| matches!(request, Request::Add(_)));
    assert_eq!(scene.ask("ADD"), (100, "ADD DEL ".to_owned()));
    assert_eq!(scene.ask("DEL"), (0, "DEL ".to_owned()));
    assert_eq!(scene.claims(), 0);
}

#[test]
fn address_of_port_that_stays_is_kept() {
    let stays = |request: &Request| matches!(request, Request::Add(_) | Request::Del(_));
    let scene = Scene::new("stays", stays);
    assert_eq!(scene.ask("ADD"), (100, "ADD ".to_owned()));
    assert_eq!(scene.ask("DEL"), (100, String::new()));
    // GC shall find it.
    assert_eq!(scene.claims(), 1);
}

#[test]
fn repeated_add_takes_back_what_killed_one_left() {
    let scene = Scene::new("again", |_| false);
    assert_eq!(scene.ask("ADD"), (0, "ADD ".to_owned()));
    assert_eq!(scene.claims(), 0);
    // An interface that was reported is in use, and stays so however often it is asked for.
    for _ in 0..2 {
        assert_eq!(scene.ask("ADD"), (100, String::new()));
        assert_eq!(scene.claims(), 0);
    }
    // Nobody heard of one whose command was killed.
    scene.is_killed();
    assert_eq!(scene.ask("ADD"), (0, "DEL ADD ".to_owned()));
    assert_eq!(scene.ask("DEL"), (0, "DEL ".to_owned()));
    assert_eq!(scene.claims(), 0);
}

#[test]
fn gc_frees_address_of_each_port_that_goes() {
    let mut scene = Scene::new("gc", |_| false);
    assert_eq!(scene.ask("ADD"), (0, "ADD ".to_owned()));
    let net = scene.net.clone();
    let with =
        |valid: &str| net.replacen('{', &format!("{{\"cni.dev/valid-attachments\":{valid},"), 1);
    scene.net = with(r#"[{"containerID":"c7","ifname":"eth0"}]"#);
    assert_eq!(scene.ask("GC"), (0, "GC ".to_owned()));
    scene.net = with("[]");
    assert_eq!(scene.ask("GC"), (0, "DEL GC ".to_owned()));
}

#[test]
fn gc_frees_address_without_port() {
    let mut scene = Scene::new("gcleft", |_| false);
    scene.is_killed();
    let net = scene.net.clone();
    let with =
        |valid: &str| net.replacen('{', &format!("{{\"cni.dev/valid-attachments\":{valid},"), 1);
    scene.net = with(r#"[{"containerID":"c7","ifname":"eth0"}]"#);
    assert_eq!((scene.ask("GC"), scene.claims()), ((0, "GC ".to_owned()), 1));
    scene.net = with("[]");
    assert_eq!((scene.ask("GC"), scene.claims()), ((0, "DEL GC ".to_owned()), 0));
    assert_eq!(scene.ask("GC"), (0, "GC ".to_owned()));
}
