//! The authority of a fabric is replaced while it runs. The hosts and containers are those of
//! `rig/bridge.rs`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::Counted;
use crate::rig::ping::Pinger;
use crate::rig::{program, skip, wait_for};
use serde_json::Value;

/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (4, Duration::from_millis(2), 500);

/// Returns a file with credentials of a host.
fn tls(bridge: &Bridge, own: usize, name: &str) -> PathBuf {
    bridge.net.file(&format!("h{}/tls/{name}", own + 1))
}

fn read(bridge: &Bridge, own: usize, name: &str) -> String {
    fs::read_to_string(tls(bridge, own, name)).unwrap()
}

/// Waits until these hosts believe one authority, the same one, which is not `old`.
fn believe_another(bridge: &Bridge, hosts: &[usize], old: &str) {
    wait_for("all believe the new authority alone", || {
        let all: Vec<String> = hosts.iter().map(|own| read(bridge, *own, "ca.pem")).collect();
        let count = all[0].matches("BEGIN CERTIFICATE").count();
        count == 1 && all[0] != old && all.iter().all(|one| *one == all[0])
    });
    let keys: Vec<String> = hosts.iter().map(|own| read(bridge, *own, "ca.key")).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "every member signs by the new authority");
}

/// Gives a host a certificate of an authority whose key was stolen.
fn forge(bridge: &Bridge, own: usize, (certificate, key): (&str, &str)) {
    let (folder, name) = (bridge.net.file("stolen"), format!("h{}", own + 1));
    fs::create_dir_all(&folder).unwrap();
    for (file, text) in [("ca.pem", certificate), ("ca.key", key)] {
        fs::write(folder.join(file), text).unwrap();
        fs::write(tls(bridge, own, file), text).unwrap();
    }
    let mut command = Command::new(program());
    command.args(["fabric", "cert", "--out"]).arg(&folder).arg(&name);
    let made = command.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for file in ["host.pem", "host.key"] {
        fs::copy(folder.join(&name).join(file), tls(bridge, own, file)).unwrap();
    }
}

/// Asks a host for one step of a replacement, as the command does for each.
fn step(bridge: &Bridge, own: usize) -> Value {
    let socket = bridge.net.file(&format!("h{}/show.sock", own + 1));
    let mut stream = UnixStream::connect(socket).unwrap();
    writeln!(stream, r#"{{"transaction":{{"rotate_ca":{{"begin":true}}}}}}"#).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

#[test]
#[ignore = "live: needs root"]
fn authority_replaced_beside_traffic_without_loss() {
    if skip("authority_replaced_beside_traffic_without_loss", &[]) {
        return;
    }
    let mut bridge = Bridge::waiting("rotate", 4, |_, _| String::new());
    bridge.daemons[0].says(&["fabric", "create", "prod", "--underlay", "up0"]);
    (1..3).for_each(|own| bridge.join(own, 0));
    bridge.have_caught_up(&[0, 1, 2]);
    bridge.daemons[0].says(&["vnet", "create", "blue", "--vni", "100"]);
    bridge.have_caught_up(&[0, 1, 2]);
    (0..3).for_each(|own| _ = bridge.add(own));
    for to in [1, 2] {
        let patience = Duration::from_millis(200);
        let mut pinger = Pinger::with_patience(&bridge.containers[0], ip(to), patience);
        wait_for("a container is reached", || pinger.ping(84));
    }
    let (old, old_key) = (read(&bridge, 2, "ca.pem"), read(&bridge, 2, "ca.key"));
    let early = bridge.daemons[0].says(&["fabric", "token"]);
    let flows = [(1, 0, 9), (2, 1, 10)].map(|(from, to, port)| {
        let end = |own: usize| (&bridge.containers[own], ip(own));
        Counted::start(end(from), end(to), port, FLOW)
    });
    // Any member replaces it.
    let said = bridge.daemons[1].says(&["fabric", "rotate-ca"]);
    let steps: Vec<&str> = said.lines().map(|line| &line[..11]).collect();
    assert_eq!(steps, ["step 1 of 3", "step 2 of 3", "step 3 of 3"], "{said}");
    believe_another(&bridge, &[0, 1, 2], &old);
    // Connections with the new certificates have taken the place of those from before.
    bridge.have_caught_up(&[0, 1, 2]);
    let made = bridge.daemons[2].says(&["vnet", "create", "red", "--vni", "7"]);
    assert!(made.contains("network red is made"), "{made}");
    for flow in flows {
        let seen = flow.stop();
        assert_eq!((seen.received, seen.late), (seen.sent, 0), "datagrams beside it");
    }
    for daemon in &bridge.daemons[..3] {
        daemon.drained();
        daemon.assert_lossless();
    }
    // A host joins by a token of the new authority, not by one of the old.
    let words = ["fabric", "join", "192.0.2.1", "--token", early.trim()];
    bridge.daemons[3].refuses(&words, &["fabric"]);
    bridge.join(3, 2);
    bridge.all_have_caught_up();
    bridge.daemons[3].kill_both();
    bridge.daemons[3].restart_control();
    bridge.all_have_caught_up();
    // A certificate of the old authority is refused by every member, and known as such at home.
    bridge.daemons[2].stop();
    let stolen = bridge.net.file("h3/tls");
    let signed = fs::read_to_string(stolen.join("host.pem")).unwrap();
    forge(&bridge, 2, (&old, &old_key));
    assert_ne!(fs::read_to_string(stolen.join("host.pem")).unwrap(), signed);
    bridge.daemons[2].restart_control();
    wait_for("it is refused by name of the reason", || {
        bridge.daemons[0].log().contains("TLS: the certificate is of another fabric")
    });
    let status = bridge.daemons[0].progress();
    let members = status["members"].as_array().unwrap();
    let is_away = |name: &str| {
        members.iter().any(|member| member["name"] == name && member["connected"] == false)
    };
    assert!(is_away("h3"), "{status}");
}

#[test]
#[ignore = "live: needs root"]
fn stopped_replacement_continues_at_another_member() {
    if skip("stopped_replacement_continues_at_another_member", &[]) {
        return;
    }
    let mut bridge = Bridge::waiting("halfway", 4, |_, _| String::new());
    bridge.daemons[0].says(&["fabric", "create", "prod", "--underlay", "up0"]);
    (1..3).for_each(|own| bridge.join(own, 0));
    bridge.have_caught_up(&[0, 1, 2]);
    let old = read(&bridge, 0, "ca.pem");
    bridge.cut(2, true);
    wait_for("h3 is away", || {
        let status = bridge.daemons[0].progress();
        let members = status["members"].as_array().unwrap();
        members.iter().any(|member| member["name"] == "h3" && member["connected"] == false)
    });
    let parts = ["h3", "it is away", "fabric evict", "rotate-ca` again"];
    bridge.daemons[0].refuses(&["fabric", "rotate-ca"], &parts);
    for own in 0..3 {
        assert_eq!(read(&bridge, own, "ca.pem"), old, "no step was taken");
    }
    bridge.cut(2, false);
    bridge.have_caught_up(&[0, 1, 2]);
    // The first step alone: its operation, as the command gives it.
    let stopped = step(&bridge, 0);
    assert_eq!(stopped["rotation"]["step"], 1, "{stopped}");
    bridge.have_caught_up(&[0, 1, 2]);
    wait_for("all believe both", || {
        (0..3).all(|own| read(&bridge, own, "ca.pem").matches("BEGIN CERTIFICATE").count() == 2)
    });
    for own in 0..3 {
        bridge.daemons[own].kill_control();
        bridge.daemons[own].restart_control();
    }
    bridge.have_caught_up(&[0, 1, 2]);
    // A host that joins in between has both authorities, and both keys.
    bridge.join(3, 1);
    bridge.all_have_caught_up();
    let next = |own: usize| fs::read_to_string(bridge.net.file(&format!("h{}/ca.next", own + 1)));
    assert_eq!(next(3).unwrap(), next(0).unwrap(), "the key of the next one");
    let said = bridge.daemons[1].says(&["fabric", "rotate-ca", "--json"]);
    let steps: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let steps: Vec<_> = steps.iter().map(|step| &step["rotation"]["step"]).collect();
    assert_eq!(steps, [2, 3], "{said}");
    believe_another(&bridge, &[0, 1, 2, 3], &old);
    bridge.all_have_caught_up();
}

#[test]
#[ignore = "live: needs root"]
fn certificate_of_evicted_host_refused_by_all() {
    if skip("certificate_of_evicted_host_refused_by_all", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("revoked", 3);
    let files = ["host.pem", "host.key"];
    let old = files.map(|file| read(&bridge, 2, file));
    bridge.daemons[0].says(&["fabric", "evict", "h3"]);
    wait_for("the host waits again", || bridge.daemons[2].is_waiting());
    let config = bridge.daemons[1].ask(&["config", "show"]);
    let revoked = &config["config"]["config"]["trust"]["revoked"];
    let hosts: Vec<&Value> = revoked.as_object().unwrap().values().collect();
    assert_eq!(hosts, ["h3"], "{config}");
    bridge.join(2, 1);
    bridge.all_have_caught_up();
    // The name is a member's again, and the certificate from before names it.
    bridge.daemons[2].stop();
    let new = files.map(|file| read(&bridge, 2, file));
    for (file, text) in files.iter().zip(&old) {
        fs::write(tls(&bridge, 2, file), text).unwrap();
    }
    bridge.daemons[2].restart_control();
    for daemon in &bridge.daemons[..2] {
        wait_for("it is refused", || daemon.log().contains("h3: its certificate was revoked"));
    }
    bridge.daemons[2].stop();
    for (file, text) in files.iter().zip(&new) {
        fs::write(tls(&bridge, 2, file), text).unwrap();
    }
    bridge.daemons[2].restart_control();
    bridge.all_have_caught_up();
}

#[test]
#[ignore = "live: needs root"]
fn evicted_host_that_was_away_is_told() {
    if skip("evicted_host_that_was_away_is_told", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("away", 3);
    // The host with the highest number waits for connections, the one with the lowest connects.
    for (away, by) in [(2, 0), (0, 1)] {
        let (name, by_name) = (format!("h{}", away + 1), format!("h{}", by + 1));
        let others: Vec<usize> = (0..3).filter(|own| *own != away).collect();
        bridge.add(away);
        let beside = bridge.net.netns(&format!("beside{away}"));
        let words = ["port", "add", "--netns", beside.name(), "--vnet", "blue", "--ip"];
        bridge.daemons[away].says(&[&words[..], &["10.42.0.9/24"]].concat());
        bridge.daemons[away].kill_both();
        bridge.daemons[by].says(&["fabric", "evict", &name]);
        bridge.have_caught_up(&others);
        bridge.daemons[away].restart_control();
        let own = &bridge.daemons[away];
        wait_for("it is told", || own.progress()["evicted"]["by"] == *by_name);
        let cause = format!("this host was evicted from fabric prod by {by_name} at ");
        let parts = [cause.as_str(), "`sluice fabric leave --forget`"];
        for part in parts {
            let members = own.says(&["fabric", "members"]);
            assert!(members.contains(part), "{members}");
            let status = own.command(&["fabric", "status"]).output().unwrap();
            assert_eq!(status.status.code(), Some(5));
            let status = String::from_utf8(status.stdout).unwrap();
            assert!(status.contains(part), "{status}");
        }
        let rows = own.ask(&["fabric", "members"])["members"].take();
        let rows = rows.as_array().unwrap();
        let marked = rows.iter().filter(|row| !row["evicted"].is_null());
        assert_eq!(marked.map(|row| &row["host"]).collect::<Vec<_>>(), [name.as_str()]);
        assert_eq!(own.log().matches(&cause).count(), 1, "one warning: {}", own.log());
        // Nor does it say to those who listen that it is a member.
        let heard = bridge.daemons[by].run_here(&["fabric", "discover", "--json", "--for", "3s"]);
        let heard: Value = serde_json::from_str(&heard.unwrap()).unwrap();
        let heard = heard["hosts"].as_array().unwrap().iter().map(|row| row["host"].clone());
        let mut heard: Vec<_> = heard.map(|host| host.as_str().unwrap().to_owned()).collect();
        heard.sort();
        let members: Vec<String> = others.iter().map(|own| format!("h{}", own + 1)).collect();
        assert_eq!(heard, members, "all but {name} announce themselves");
        // It forwards between its ports, and takes part in nothing.
        let mut pinger = Pinger::new(&beside, ip(away));
        wait_for("its ports forward", || pinger.ping(84));
        own.refuses(&["vnet", "create", "red", "--vni", "7"], &parts);
        own.refuses(&["fabric", "token"], &parts);
        assert!(own.says(&["config", "log"]).contains("network blue is made"));
        own.says(&["fabric", "leave", "--forget"]);
        wait_for("the host waits again", || own.is_waiting());
        bridge.join(away, by);
        bridge.all_have_caught_up();
        bridge.add(away);
        let has = |own: usize| bridge.daemons[own].progress()["evicted"].is_null();
        assert!((0..3).all(has), "nobody is evicted");
    }
    // The hosts forward to each other again.
    let patience = Duration::from_millis(200);
    let mut pinger = Pinger::with_patience(&bridge.containers[0], ip(2), patience);
    wait_for("a container is reached", || pinger.ping(84));
}

#[test]
#[ignore = "live: needs root"]
fn replacement_is_abandoned_after_first_step() {
    if skip("replacement_is_abandoned_after_first_step", &[]) {
        return;
    }
    let bridge = Bridge::fabric("abandon", 2);
    let old = read(&bridge, 0, "ca.pem");
    let none = ["no replacement of the authority is under way"];
    bridge.daemons[0].refuses(&["fabric", "rotate-ca", "--abandon"], &none);
    let stopped = step(&bridge, 0);
    assert_eq!(stopped["rotation"]["step"], 1, "{stopped}");
    bridge.all_have_caught_up();
    let next = |own: usize| bridge.net.file(&format!("h{}/ca.next", own + 1));
    let first = fs::read_to_string(next(1)).unwrap();
    let said = bridge.daemons[1].says(&["fabric", "rotate-ca", "--abandon"]);
    assert!(said.contains("does not follow, and is not trusted"), "{said}");
    wait_for("all believe the old one alone, and have no other key", || {
        (0..2).all(|own| read(&bridge, own, "ca.pem") == old && !next(own).exists())
    });
    bridge.daemons[0].refuses(&["fabric", "rotate-ca", "--abandon"], &none);
    // Another replacement begins with another authority.
    let said = bridge.daemons[1].says(&["fabric", "rotate-ca"]);
    assert_eq!(said.lines().count(), 3, "{said}");
    believe_another(&bridge, &[0, 1], &old);
    assert!(!first.contains(&read(&bridge, 0, "ca.pem")), "not with the one that was given up");
    bridge.all_have_caught_up();
}
