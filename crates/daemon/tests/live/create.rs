//! Fabrics that are made by command: hosts that wait, create, join, change their configuration, and
//! leave. The hosts and containers are those of `rig/bridge.rs`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::time::Duration;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::Counted;
use crate::rig::ping::{Pinger, Pings};
use crate::rig::{Daemon, skip, wait_for};

/// Port of the datagrams.
const PORT: u16 = 9;
/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (4, Duration::from_millis(2), 500);
/// Bytes of a TCP connection.
const STREAM_SIZE: usize = 4 << 20;

/// Sends bytes by TCP from one container to another, and checks them.
fn stream(bridge: &Bridge, from: usize, to: usize) {
    let at = SocketAddrV4::new(ip(to), 5_001);
    let server = bridge.containers[to].inside(|| TcpListener::bind(at).unwrap());
    let bytes: Vec<u8> = (0..=250).cycle().take(STREAM_SIZE).collect();
    let receiver = std::thread::spawn(move || {
        let mut received = Vec::new();
        server.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    let mut client = bridge.containers[from].inside(|| TcpStream::connect(at).unwrap());
    client.write_all(&bytes).unwrap();
    drop(client);
    assert!(receiver.join().unwrap() == bytes, "the bytes arrive as they were sent");
}

/// Waits until a container is reached from another one.
fn reaches(bridge: &Bridge, from: usize, to: usize) {
    let patience = Duration::from_millis(200);
    let mut pinger = Pinger::with_patience(&bridge.containers[from], ip(to), patience);
    wait_for("a container is reached", || pinger.ping(84));
}

/// Returns the newest transaction.
fn newest(daemon: &Daemon) -> serde_json::Value {
    daemon.transactions().swap_remove(0)
}

#[test]
#[ignore = "live: needs root"]
fn six_commands_make_fabric_of_three() {
    if skip("six_commands_make_fabric_of_three", &[]) {
        return;
    }
    let bridge = Bridge::waiting("six", 3, |_, _| String::new());
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    let said = h1.says(&["fabric", "create", "prod", "--underlay", "up0"]);
    assert!(said.contains("h1 is member 1 of fabric prod, with VTEP 192.0.2.1"), "{said}");
    for (own, host) in [h2, h3].into_iter().enumerate() {
        let token = h1.says(&["fabric", "token"]);
        let said = host.says(&["fabric", "join", "192.0.2.1", "--token", token.trim()]);
        let expected = format!("h{0} is member {0} of fabric prod", own + 2);
        assert!(said.contains(&expected), "{said}");
    }
    let said = h1.says(&["vnet", "create", "blue", "--vni", "100"]);
    // A host whose network stands still for a moment is named in the answer, and catches up.
    assert!(said.contains("network blue is made: VNI 100\nrevision "), "{said}");
    if said.contains("not yet at") {
        bridge.all_have_caught_up();
    }
    let netns = bridge.containers[2].name();
    h3.says(&["port", "add", "--netns", netns, "--vnet", "blue", "--ip", "10.42.0.3/24"]);
    bridge.all_have_caught_up();
    for daemon in &bridge.daemons {
        assert_eq!(daemon.vnets(), ["blue"]);
    }
    (0..2).for_each(|own| _ = bridge.add(own));
    for (from, to) in [(0, 2), (2, 1), (1, 0)] {
        reaches(&bridge, from, to);
        bridge.containers[from].ping(ip(to), 10);
        stream(&bridge, from, to);
    }
    for daemon in &bridge.daemons {
        daemon.drained();
        daemon.assert_lossless();
    }
}

#[test]
#[ignore = "live: needs root"]
fn joins_with_bad_token_or_name_are_refused() {
    if skip("joins_with_bad_token_or_name_are_refused", &[]) {
        return;
    }
    let bridge = Bridge::waiting("refused", 4, |_, _| String::new());
    let [h1, h2, h3, h4] = &bridge.daemons[..] else { unreachable!() };
    h1.says(&["fabric", "create", "prod", "--underlay", "up0"]);
    h3.says(&["fabric", "create", "other", "--underlay", "up0"]);
    let token = |daemon: &Daemon| daemon.says(&["fabric", "token"]).trim().to_owned();
    let refuses = |daemon: &Daemon, token: &str, parts: &[&str]| {
        daemon.refuses(&["fabric", "join", "192.0.2.1", "--token", token], parts);
        assert!(daemon.is_waiting(), "it is still in no fabric");
    };
    refuses(h2, "secret", &["it is no token", "sluice fabric token"]);
    let good = token(h1);
    let last = if good.ends_with('0') { "1" } else { "0" };
    let mistyped = format!("{}{last}", &good[..good.len() - 1]);
    refuses(h2, &mistyped, &["mistyped", "copy it again"]);
    refuses(h2, &token(h3), &["fabric"]);
    let short = h1.says(&["fabric", "token", "--valid", "1s"]);
    std::thread::sleep(Duration::from_millis(1_200));
    refuses(h2, short.trim(), &["the token has expired", "sluice fabric token"]);
    bridge.hosts[3].ip("addr add 192.0.2.1/32 dev lo");
    h4.refuses(
        &["fabric", "join", "192.0.2.1", "--token", &good, "--vtep", "192.0.2.1"],
        &["192.0.2.1"],
    );
    bridge.hosts[3].ip("addr del 192.0.2.1/32 dev lo");
    h2.says(&["fabric", "join", "192.0.2.1", "--token", &good]);
    refuses(h4, &good, &["the token was used already", "sluice fabric token"]);
    let mut twin = bridge.net.waiting(&bridge.hosts[3], "twin", "");
    twin.stop();
    twin.rewrite("host.toml", |text| text.replace("\"twin\"", "\"h2\""));
    twin.restart_waiting();
    refuses(&twin, &token(h1), &["the fabric has a member `h2`"]);
    drop(twin);
    let vtep = ["--vtep", "192.0.2.2"];
    let again = token(h1);
    let words = [&["fabric", "join", "192.0.2.1", "--token", &again][..], &vtep].concat();
    h4.refuses(&words, &["192.0.2.2", "`h2`"]);
    h2.refuses(&["fabric", "join", "192.0.2.1", "--token", &again], &["fabric leave"]);
    h2.refuses(&["fabric", "create", "new", "--underlay", "up0"], &["is a member of fabric"]);
    h4.says(&["fabric", "join", "192.0.2.1", "--token", &again]);
    bridge.have_caught_up(&[0, 1, 3]);
}

#[test]
#[ignore = "live: needs root"]
fn vetoed_changes_name_host_and_reason() {
    if skip("vetoed_changes_name_host_and_reason", &[]) {
        return;
    }
    let bridge = Bridge::fabric("vetoed", 3);
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    bridge.add(2);
    let before = h1.revision();
    let parts = ["nothing has changed", "h3 refuses", "port `", "network `blue`", "port del"];
    // While h3 is connected: without it a majority would agree.
    for (host, how) in [(h1, "--require-all"), (h2, "--check")] {
        wait_for("h3 refuses", || {
            let output = host.attempt(&["vnet", "delete", "blue", how]);
            let said = String::from_utf8_lossy(&output.stderr);
            !output.status.success() && parts.iter().all(|part| said.contains(part))
        });
    }
    h2.refuses(&["vnet", "create", "blue", "--vni", "7"], &["blue"]);
    h2.refuses(&["vnet", "create", "red", "--vni", "100"], &["100", "blue"]);
    h3.refuses(&["vnet", "create", "red", "--vni", "16777216"], &["VNI"]);
    h3.refuses(&["config", "set", "learn_maximum=7"], &["learn_maximum"]);
    h3.refuses(&["config", "set", "learn_max=many"], &["learn_max"]);
    h3.refuses(&["vnet", "delete", "green"], &["green"]);
    h3.refuses(&["fabric", "evict", "h9"], &["h9"]);
    assert_eq!((h1.revision(), h3.vnets()), (before, vec!["blue".to_owned()]));
    h3.says(&["port", "del", "c3"]);
    h1.says(&["vnet", "delete", "blue"]);
    wait_for("it is gone everywhere", || bridge.daemons.iter().all(|d| d.vnets().is_empty()));
    h3.rewrite("host.toml", |text| format!("{text}policy = \"ZL\"\n"));
    h3.refuses(&["reload"], &["host.policy", "sluice config set policy="]);
}

#[test]
#[ignore = "live: needs root"]
fn changes_are_checked_confirmed_undone_logged() {
    if skip("changes_are_checked_confirmed_undone_logged", &[]) {
        return;
    }
    let bridge = Bridge::fabric("changes", 3);
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    let before = h1.revision();
    // A machine that pauses may have broken a connection since: a check asks those who are there.
    let accepted = "accepted by h1, h2, h3; nothing has changed";
    wait_for("all accept", || {
        h2.says(&["vnet", "create", "red", "--vni", "7", "--check"]).contains(accepted)
    });
    assert_eq!((h1.revision(), h3.vnets()), (before, vec!["blue".to_owned()]));

    h2.says(&["vnet", "create", "red", "--vni", "7", "--confirmed", "2s"]);
    assert_eq!(h1.progress()["unconfirmed"], h2.revision());
    h3.refuses(&["vnet", "create", "grey", "--vni", "8"], &["waits for `sluice config confirm`"]);
    assert!(h3.vnets().contains(&"red".to_owned()));
    wait_for("it is undone", || h3.vnets() == ["blue"] && h1.vnets() == ["blue"]);
    let row = newest(h3);
    assert_eq!(row["comment"], "not confirmed in time", "{row}");

    h2.says(&["vnet", "create", "red", "--vni", "7", "--confirmed", "2s", "--comment", "try"]);
    h1.says(&["config", "confirm"]);
    h1.refuses(&["config", "confirm"], &["no change waits to be confirmed"]);
    std::thread::sleep(Duration::from_millis(2_500));
    for daemon in &bridge.daemons {
        assert!(daemon.vnets().contains(&"red".to_owned()), "what is confirmed stays");
        assert!(daemon.progress().get("unconfirmed").is_none());
    }
    let row = newest(h3);
    assert_eq!((&row["by"], &row["comment"]), (&"h2".into(), &"try".into()), "{row}");

    let file = bridge.net.file("candidate.toml");
    let text = h1.says(&["config", "show"]);
    fs::write(&file, text.replace("vni = 7", "vni = 70")).unwrap();
    h1.says(&["config", "load", file.to_str().unwrap()]);
    let said = h1.says(&["config", "diff"]);
    assert!(said.contains("red"), "{said}");
    h1.says(&["config", "check"]);
    assert!(h2.says(&["config", "show"]).contains("vni = 7\n"), "a candidate is no change");
    let kept = h3.revision();
    h1.says(&["config", "commit"]);
    wait_for("it is everywhere", || h3.says(&["config", "show"]).contains("vni = 70\n"));
    let said = h1.says(&["config", "diff"]);
    assert!(said.contains("does not differ"), "{said}");

    h3.says(&["config", "rollback", &kept.to_string()]);
    wait_for("it is undone", || h1.says(&["config", "show"]).contains("vni = 7\n"));
    h3.says(&["config", "rollback", &before.to_string()]);
    wait_for("all is undone", || h2.vnets() == ["blue"]);
    let row = newest(h2);
    assert_eq!(row["comment"], format!("back to revision {before}"), "{row}");
    let at = h2.says(&["config", "show", "--at", &kept.to_string()]);
    assert!(at.contains("vni = 7\n"), "{at}");
    fs::write(&file, "learn_max = \"many\"\n").unwrap();
    h1.refuses(&["config", "load", file.to_str().unwrap()], &["is refused", "learn_max"]);
    bridge.all_have_caught_up();
}

#[test]
#[ignore = "live: needs root"]
fn members_leave_and_join_again_beside_traffic() {
    if skip("members_leave_and_join_again_beside_traffic", &[]) {
        return;
    }
    let bridge = Bridge::fabric("leave", 3);
    let [h1, h2, h3] = &bridge.daemons[..] else { unreachable!() };
    (0..2).for_each(|own| _ = bridge.add(own));
    reaches(&bridge, 0, 1);
    let pings = Pings::start(&bridge.containers[0], ip(1));
    let [from, to] = [(&bridge.containers[1], ip(1)), (&bridge.containers[0], ip(0))];
    let flow = Counted::start(from, to, PORT, FLOW);
    for leaves in [true, false] {
        bridge.add(2);
        reaches(&bridge, 2, 0);
        h1.refuses(&["fabric", "evict", "h1"], &["fabric leave"]);
        match leaves {
            true => h3.says(&["fabric", "leave"]),
            false => h2.says(&["fabric", "evict", "h3"]),
        };
        wait_for("the host waits again", || h3.is_waiting());
        bridge.have_caught_up(&[0, 1]);
        let mut pinger =
            Pinger::with_patience(&bridge.containers[0], ip(2), Duration::from_millis(200));
        assert!(!pinger.ping(84), "a host without a fabric forwards nothing");
        bridge.join(2, 1);
        bridge.all_have_caught_up();
        assert_eq!(h3.vnets(), ["blue"]);
    }
    bridge.add(2);
    reaches(&bridge, 2, 1);
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings beside it");
    let seen = flow.stop();
    assert_eq!((seen.received, seen.late), (seen.sent, 0), "datagrams beside it");
    for daemon in [h1, h2] {
        daemon.drained();
        daemon.assert_lossless();
    }
}

#[test]
#[ignore = "live: needs root"]
fn restarted_hosts_forward_without_the_others() {
    if skip("restarted_hosts_forward_without_the_others", &[]) {
        return;
    }
    let mut bridge = Bridge::fabric("restart", 3);
    (0..3).for_each(|own| _ = bridge.add(own));
    reaches(&bridge, 0, 1);
    reaches(&bridge, 2, 0);
    for own in 0..3 {
        let pings = Pings::start(&bridge.containers[own], ip((own + 1) % 3));
        bridge.daemons[own].kill_control();
        bridge.daemons[own].restart_control();
        bridge.all_have_caught_up();
        let (sent, answered) = pings.stop();
        assert_eq!(sent, answered, "pings while control of host {own} starts again");
    }
    // The others are out of reach: nobody tells the host anything.
    bridge.cut(0, true);
    bridge.daemons[0].kill_both();
    bridge.daemons[0].restart_control();
    assert_eq!(bridge.daemons[0].vnets(), ["blue"]);
    let beside = bridge.net.netns("beside");
    let words = ["port", "add", "--netns", beside.name(), "--vnet", "blue", "--ip"];
    bridge.daemons[0].says(&[&words[..], &["10.42.0.9/24"]].concat());
    let mut pinger = Pinger::new(&beside, ip(0));
    wait_for("a port that was added forwards again", || pinger.ping(84));
    bridge.daemons[0].refuses(
        &["vnet", "create", "red", "--vni", "7"],
        &["a majority is needed", "missing: h2, h3"],
    );
    bridge.cut(0, false);
    reaches(&bridge, 0, 1);
    for own in [1, 2] {
        bridge.daemons[own].kill_both();
        bridge.daemons[own].restart_control();
        assert_eq!(bridge.daemons[own].vnets(), ["blue"]);
    }
    bridge.all_have_caught_up();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        reaches(&bridge, from, to);
        bridge.containers[from].ping(ip(to), 10);
    }
    bridge.daemons[0].says(&["vnet", "create", "red", "--vni", "7"]);
}

#[test]
#[ignore = "live: needs root"]
fn configuration_not_in_force_is_retried() {
    if skip("configuration_not_in_force_is_retried", &[]) {
        return;
    }
    let bridge = Bridge::fabric("retry", 3);
    let [h1, _, h3] = &bridge.daemons[..] else { unreachable!() };
    bridge.cut(2, true);
    wait_for("h3 is away", || {
        let members = h1.progress()["members"].take();
        members.as_array().unwrap().iter().any(|member| member["connected"] == false)
    });
    h1.says(&["vnet", "create", "red", "--vni", "7", "--mtu", "1450"]);
    // It did not vote, and its underlay is too small by now.
    bridge.hosts[2].ip("link set up0 mtu 1400");
    bridge.cut(2, false);
    wait_for("it says that the configuration is not in force", || {
        let why = h3.progress()["not_in_force"].take();
        why.as_str().is_some_and(|why| why.contains("mtu"))
    });
    assert_eq!(h3.vnets(), ["blue"], "the one before is in force");
    let said = h3.says(&["config", "show"]);
    assert!(said.contains("# not in force at this host"), "{said}");
    bridge.hosts[2].ip("link set up0 mtu 1500");
    wait_for("it is in force by itself", || h3.progress()["not_in_force"].is_null());
    assert_eq!(h3.vnets(), ["blue", "red"]);
    bridge.all_have_caught_up();
}

/// A configuration that takes a while to be written down, and to be in force.
#[test]
#[ignore = "live: needs root"]
fn joined_host_takes_port_at_once() {
    if skip("joined_host_takes_port_at_once", &[]) {
        return;
    }
    let bridge = Bridge::waiting("at-once", 2, |_, _| String::new());
    let [h1, h2] = &bridge.daemons[..] else { unreachable!() };
    h1.says(&["fabric", "create", "prod", "--underlay", "up0"]);
    let networks = (1..1_000).map(|at| format!("[vnet.n{at}]\nvni = {}\n", 1_000 + at));
    let text: String = networks.chain(["[vnet.blue]\nvni = 100\n".to_owned()]).collect();
    let file = bridge.net.file("networks.toml");
    fs::write(&file, text).unwrap();
    h1.says(&["config", "load", file.to_str().unwrap()]);
    h1.says(&["config", "commit"]);
    bridge.join(1, 0);
    bridge.add(1);
    assert_eq!(h2.vnets().len(), 1_000);
    bridge.add(0);
    reaches(&bridge, 0, 1);
}

#[test]
#[ignore = "live: needs root"]
fn joined_host_names_connection_that_it_lacks() {
    if skip("joined_host_names_connection_that_it_lacks", &[]) {
        return;
    }
    let bridge = Bridge::waiting("lacks", 2, |_, _| String::new());
    let [h1, h2] = &bridge.daemons[..] else { unreachable!() };
    h1.says(&["fabric", "create", "prod", "--underlay", "up0"]);
    // The join has a port of its own; the fabric's is closed, in both directions.
    let rule = |what: &str| {
        for port in ["dport 7474", "sport 7474"] {
            bridge.hosts[1].ip(&format!("rule {what} pref 1 ipproto tcp {port} prohibit"));
        }
    };
    rule("add");
    std::thread::scope(|scope| {
        let join = scope.spawn(|| bridge.join(1, 0));
        wait_for("it says what it waits for", || {
            let output = h2.attempt(&["fabric", "status"]);
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            said.contains("waits for a connection to a member")
                && said.contains("h1 (192.0.2.1)")
                && said.contains("\"fabric\":\"prod\"")
        });
        rule("del");
        join.join().unwrap();
    });
    bridge.all_have_caught_up();
}

#[test]
#[ignore = "live: needs root"]
fn udp_underlay_makes_fabric_by_command() {
    if skip("udp_underlay_makes_fabric_by_command", &[]) {
        return;
    }
    let udp = "[underlay]\nkind = \"udp\"\ndevice = \"up0\"\n";
    let file = |_: &_, own| if own < 2 { udp.to_owned() } else { String::new() };
    let bridge = Bridge::waiting("udp", 4, file);
    let said = bridge.daemons[0].says(&["fabric", "create", "prod"]);
    assert!(said.contains("policy ZL, not ZZ") && said.contains("no pause frames"), "{said}");
    assert!(bridge.daemons[0].says(&["config", "show"]).contains("policy = \"ZL\""));
    // A host whose underlay could pause keeps to what all can.
    (1..3).for_each(|own| bridge.join(own, 0));
    bridge.have_caught_up(&[0, 1, 2]);
    bridge.daemons[2].says(&["vnet", "create", "blue", "--vni", "100"]);
    bridge.have_caught_up(&[0, 1, 2]);
    (0..3).for_each(|own| _ = bridge.add(own));
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        reaches(&bridge, from, to);
        bridge.containers[from].ping(ip(to), 10);
    }
    bridge.daemons[2]
        .refuses(&["config", "set", "policy=ZZ"], &["UDP socket", "`policy = \"ZL\"`"]);
    // A fabric that pauses takes no host that cannot.
    bridge.daemons[3].says(&["fabric", "create", "other", "--underlay", "up0"]);
    bridge.daemons[1].says(&["fabric", "leave"]);
    wait_for("it is in no fabric", || bridge.daemons[1].is_waiting());
    let token = bridge.daemons[3].says(&["fabric", "token"]);
    let join = ["fabric", "join", "192.0.2.4", "--token", token.trim()];
    bridge.daemons[1].refuses(&join, &["policy is ZZ", "config set policy=ZL"]);
    bridge.daemons[3].says(&["config", "set", "policy=ZL"]);
    bridge.daemons[1].says(&join);
}
