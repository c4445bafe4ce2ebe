//! `sluice status`: a well host passes on one screen; what is not well is named with its remedy,
//! and the exit code is its grade's. The hosts and containers are those of `rig/bridge.rs`; h1
//! keeps its state on a small disk.
//!
//! ```text
//!   c1 ─ veth ─┤ h1 ══ h2 ├─ veth ─ c2 :9, which nobody reads
//! ```

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::rig;
use crate::rig::bridge::{Bridge, ip};
use crate::rig::{Daemon, skip, wait_for};
use serde_json::Value;
use sluice_testkit::bound::at_most;

const PORT: u16 = 9;
/// Lines of a screen.
const SCREEN: usize = 24;
const PASS: i32 = 0;
const WARN: i32 = 3;
const STOP: i32 = 4;

/// File of both hosts: a data process that hangs is not replaced, and the underlay has room for
/// its rate.
const HOST: &str = "data_hung_ms = 60000\n[underlay]\ndevice = \"up0\"\n\
                    link = { rate_mbps = 1000 }\n";

/// A mount that goes with the test.
struct Mount(PathBuf);

impl Mount {
    fn small(path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        rig::run(&format!("mount -t tmpfs -o size=8m tmpfs {}", path.display()));
        Self(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Files of a daemon that is about to end may still be open.
        _ = rig::attempt(&format!("umount -l {}", self.0.display()));
    }
}

/// An answer of `sluice status`.
struct Answer {
    code: Option<i32>,
    text: String,
}

impl Answer {
    fn has(&self, code: i32, parts: &[&str]) -> bool {
        self.code == Some(code) && parts.iter().all(|part| self.text.contains(part))
    }
}

fn status(daemon: &Daemon) -> Answer {
    let output = daemon.command(&["status"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().count() <= SCREEN, "{text}");
    Answer { code: output.status.code(), text }
}

/// Waits until a host says something, with an exit code. JSON then says the same.
fn says(what: &str, daemon: &Daemon, code: i32, parts: &[&str]) {
    let mut last = Answer { code: None, text: String::new() };
    let is_said =
        sluice_netns::happens(Duration::from_secs(30), Duration::from_millis(100), || {
            last = status(daemon);
            last.has(code, parts)
        });
    let Answer { code: seen, text } = last;
    assert!(is_said, "{what}: {code} and {parts:?} are not in {seen:?}\n{text}");
    agrees(daemon);
}

/// Checks that text and JSON are the same report, but for the digits of times.
fn agrees(daemon: &Daemon) {
    let mut seen = String::new();
    let is_same =
        sluice_netns::happens(Duration::from_secs(30), Duration::from_millis(100), || {
            let output = daemon.attempt(&["status"]);
            let json: Value = serde_json::from_slice(&output.stdout).unwrap();
            let Answer { code, text } = status(daemon);
            seen = format!("{json}\n{text}");
            output.status.code() == code && json["format"] == 1 && shows(&text, &json["rows"])
        });
    assert!(is_same, "text and JSON differ:\n{seen}");
}

/// Returns true if a text has these rows, each with its remedy below it, and a line of counts.
fn shows(text: &str, rows: &Value) -> bool {
    let without_digits = |text: &str| text.replace(|letter: char| letter.is_ascii_digit(), "");
    let mut lines = text.lines().map(str::trim);
    for row in rows.as_array().unwrap() {
        let word = |key: &str| row[key].as_str().unwrap();
        let line = lines.next().unwrap_or_default();
        let words = without_digits(&line.split_whitespace().collect::<Vec<_>>().join(" "));
        let expected = ["part", "what", "grade", "seen"].map(word).join(" ");
        let is_there = words == without_digits(&expected);
        let remedy = word("remedy");
        if !is_there || (!remedy.is_empty() && lines.next() != Some(remedy)) {
            return false;
        }
    }
    lines.next().is_some_and(|line| line.contains(" pass, ")) && lines.next().is_none()
}

#[test]
#[ignore = "live: needs root"]
fn status_names_each_fault_with_remedy() {
    if skip("status_names_each_fault_with_remedy", &["mount", "umount"]) {
        return;
    }
    let mut disk = None;
    let mut bridge = Bridge::waiting("status", 2, |net, own| {
        let state = match own {
            0 => {
                let mount = disk.insert(Mount::small(net.file("disk")));
                format!("state_dir = \"{}\"\n", mount.0.display())
            }
            _ => String::new(),
        };
        state + HOST
    });
    let disk = disk.unwrap();
    let waits = ["this host is in no fabric yet", "sluice fabric create", "1 stop"];
    says("a host waits", &bridge.daemons[1], STOP, &waits);
    bridge.become_fabric();
    for own in 0..2 {
        let (netns, address) = (bridge.containers[own].name(), format!("{}/24", ip(own)));
        let words = ["port", "add", "--kind", "veth", "--netns", netns, "--vnet", "blue", "--ip"];
        bridge.daemons[own].says(&[&words[..], &[&address]].concat());
    }
    bridge.containers[0].ping(ip(1), 3);
    let well = ["2 of 2 well", "every frame is accounted for", "0 warn, 0 unknown, 0 stop"];
    for daemon in &bridge.daemons {
        says("both are well", daemon, PASS, &well);
    }
    stuck_socket(&bridge);
    hung_data(&bridge.daemons[1]);
    control_restarts(&mut bridge.daemons[1]);
    full_disk(&bridge, &disk);
    bridge.daemons[1].kill_both();
    let gone = ["h2 is down", "sluice fabric evict", "sluice fabric recover", "1 of 2 voters"];
    says("h2 is gone", &bridge.daemons[0], WARN, &gone);
    let nobody = bridge.daemons[1].command(&["status"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1), "no host answers: {nobody:?}");
    bridge.daemons[1].restart_control();
    says("h2 is back", &bridge.daemons[0], PASS, &well);
}

/// A socket that nobody reads is named once its hold is over, and is well when it reads again.
fn stuck_socket(bridge: &Bridge) {
    let receiver = bridge.containers[1].udp(ip(1), PORT);
    let sender = bridge.containers[0].udp(ip(0), 0);
    sender.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
    let named = format!("socket {}:{PORT} behind ", ip(1));
    let began = Instant::now();
    loop {
        (0..200).for_each(|_| _ = sender.send_to(&[7; 1_000], (ip(1), PORT)));
        let answer = status(&bridge.daemons[1]);
        if answer.has(WARN, &["stuck: ", &named, "Look at what does not read there"]) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{}", answer.text);
    }
    agrees(&bridge.daemons[1]);
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut bytes = [0; 2_000];
    while receiver.recv(&mut bytes).is_ok() {}
    let frames = ["all take what comes", "of receivers that were stuck"];
    says("the socket is read", &bridge.daemons[1], PASS, &frames);
}

/// A data process that is stopped costs a bounded time.
fn hung_data(daemon: &Daemon) {
    daemon.hang_data(true);
    let began = Instant::now();
    let answer = status(daemon);
    let took = began.elapsed();
    daemon.hang_data(false);
    let parts = ["does not answer", "See the log of the host"];
    assert!(answer.has(STOP, &parts), "{:?}\n{}", answer.code, answer.text);
    at_most("the verdict on a data process that hangs", took, Duration::from_secs(20));
    says("data answers again", daemon, PASS, &["every frame is accounted for"]);
}

/// A member whose control process restarts is neither in no fabric nor does it stop forwarding,
/// whenever it is asked.
fn control_restarts(daemon: &mut Daemon) {
    for _ in 0..3 {
        daemon.kill_control();
        daemon.begin_control();
        let mut early = 0;
        wait_for("control has started", || {
            let Answer { code, text } = status(daemon);
            let is_wrong = text.contains("in no fabric") || code == Some(STOP);
            assert!(!is_wrong, "{code:?}\n{text}");
            early += u32::from(text.contains("control is being started"));
            code == Some(PASS)
        });
        eprintln!("{early} answers came while control was being started");
    }
}

/// A disk without room: what is configured stays, and no more can be.
fn full_disk(bridge: &Bridge, disk: &Mount) {
    let h1 = &bridge.daemons[0];
    let filler = disk.0.join("filler");
    assert!(std::fs::write(&filler, vec![0; 16 << 20]).is_err(), "the disk is full");
    let mut vni = 200;
    let begin =
        |vni: u32| h1.try_say(&["vnet", "create", &format!("n{vni}"), "--vni", &vni.to_string()]);
    wait_for("a change finds the disk full", || {
        vni += 1;
        begin(vni).is_err()
    });
    let parts = ["the disk of this host cannot be written", "Give its disk room"];
    says("the disk is full", h1, WARN, &parts);
    bridge.containers[0].ping(ip(1), 3);
    std::fs::remove_file(&filler).unwrap();
    wait_for("a change finds room", || {
        vni += 1;
        begin(vni).is_ok()
    });
    says("the disk has room", h1, PASS, &["2 of 2 well"]);
}
