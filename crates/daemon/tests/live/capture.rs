//! `sluice capture`: a port's frames are those that tcpdump sees on its device, an underlay's have
//! their outer headers, dropped frames have their reason, and a capture that nobody reads costs no
//! frame of a flow. Wireshark lists the host as a device.
//!
//! ```text
//!   c1 ─ tap ─┤ h1 ══ h2 ├─ tap ─ c2
//! ```

use std::fs;
use std::io::{BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sluice_base::Mac;

use crate::rig::bridge::{Bridge, ip};
use crate::rig::counted::Counted;
use crate::rig::raw::{self, Sender};
use crate::rig::wire::{self, Captured};
use crate::rig::{Daemon, Process, program, run, say, skip, wait_for};

const TOOLS: [&str; 4] = ["tcpdump", "tshark", "capinfos", "iperf3"];
/// Pings of a test.
const PINGS: u32 = 10;
/// Fields by which frames are compared.
const ECHO: [&str; 7] =
    ["eth.src", "eth.dst", "ip.id", "icmp.type", "icmp.seq", "icmp.checksum", "frame.len"];
/// Kind of a pcapng block with counts of an interface, and its option for what was not captured.
const STATISTICS: u32 = 5;
const IF_DROP: u16 = 5;

fn two_hosts(word: &str) -> Bridge {
    let bridge = Bridge::fabric(word, 2);
    (0..2).for_each(|own| _ = bridge.add(own));
    bridge.containers[0].ping(ip(1), 3);
    bridge
}

/// A running `sluice capture` into a file.
struct Capture {
    process: Child,
    file: PathBuf,
}

impl Capture {
    /// Starts it; it runs when this returns.
    fn start(daemon: &Daemon, file: PathBuf, words: &[&str]) -> Self {
        let mut command = daemon.command(&["capture", "--json", "--out", file.to_str().unwrap()]);
        let process = command.args(words).stdout(Stdio::piped()).spawn().unwrap();
        // Interfaces are written once a port is captured.
        let runs = || fs::metadata(&file).is_ok_and(|about| about.len() > 100);
        wait_for("a capture runs", runs);
        Self { process, file }
    }

    /// Ends it by SIGINT; returns the frames, and what it says.
    fn stop(mut self) -> (Captured, Value) {
        // Workers hand over what they have within a moment.
        std::thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        self.wait()
    }

    fn wait(&mut self) -> (Captured, Value) {
        let mut printed = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        assert!(self.process.wait().unwrap().success());
        (Captured::of(&self.file), serde_json::from_str(&printed).unwrap())
    }
}

fn sorted(mut rows: Vec<Vec<String>>) -> Vec<Vec<String>> {
    rows.sort();
    rows
}

#[test]
#[ignore = "live: needs root"]
fn capture_agrees_with_tcpdump_on_device() {
    if skip("capture_agrees_with_tcpdump_on_device", &TOOLS) {
        return;
    }
    let bridge = two_hosts("capture");
    let daemon = &bridge.daemons[0];
    let inside = wire::Capture::start(&bridge.net, &bridge.containers[0], "eth0", "icmp");
    let outside = wire::Capture::start(&bridge.net, &bridge.hosts[0], "up0", "udp port 4789");
    let all = Capture::start(daemon, bridge.net.file("all.pcapng"), &[]);
    let words = ["--vnet", "blue", "--underlay", "--snaplen", "120"];
    let of_blue = Capture::start(daemon, bridge.net.file("blue.pcapng"), &words);
    bridge.containers[0].ping(ip(1), PINGS);
    let ((frames, summary), (of_blue, _)) = (all.stop(), of_blue.stop());
    let (inside, outside) = (inside.stop(), outside.stop());
    say(&format!("{summary}"));
    assert_eq!(summary["missed"], 0);
    let about = fs::metadata(bridge.net.file("all.pcapng")).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);

    let own = "icmp&&frame.interface_name==\"c1\"";
    let captured = sorted(frames.frames(own, &ECHO));
    assert_eq!(captured.len(), 2 * PINGS as usize);
    assert_eq!(captured, sorted(inside.frames("icmp", &ECHO)), "byte for byte what tcpdump sees");
    let count = |frames: &Captured, filter: &str| frames.frames(filter, &["frame.len"]).len();
    for (way, kind) in [("1", 8), ("2", 0)] {
        let filter = format!("{own}&&icmp.type=={kind}&&frame.packet_flags_direction=={way}");
        assert_eq!(count(&frames, &filter), PINGS as usize, "{filter}");
    }
    let tunnelled = "icmp&&vxlan.vni==100&&frame.interface_name==\"underlay\"";
    let fields = [&ECHO[..], &["ip.src", "udp.srcport"]].concat();
    let of_wire = sorted(outside.frames("icmp&&vxlan.vni==100", &fields));
    assert_eq!(sorted(frames.frames(tunnelled, &fields)), of_wire);
    assert_eq!(of_wire.len(), 2 * PINGS as usize);
    assert_eq!(count(&of_blue, tunnelled), 2 * PINGS as usize);
    assert_eq!(count(&of_blue, "frame.interface_name!=\"underlay\""), 0, "places are chosen");
    assert_eq!(count(&of_blue, "!vxlan"), 0, "networks are chosen, too");
    assert_eq!(count(&of_blue, "frame.cap_len>120"), 0);
    let text = run(&format!("capinfos {}", bridge.net.file("all.pcapng").display()));
    assert!(text.contains("pcapng") && text.contains("nanoseconds (9)"), "{text}");
    bridge.daemons.iter().for_each(Daemon::assert_lossless);
}

#[test]
#[ignore = "live: needs root"]
fn dropped_frames_captured_with_their_reason() {
    if skip("dropped_frames_captured_with_their_reason", &TOOLS) {
        return;
    }
    let bridge = two_hosts("drops");
    let daemon = &bridge.daemons[0];
    let words = ["--drops", "--count", "5"];
    let mut drops = Capture::start(daemon, bridge.net.file("drops.pcapng"), &words);
    let none = Capture::start(daemon, bridge.net.file("no.pcapng"), &["--drops=no_receiver"]);
    let both = Capture::start(daemon, bridge.net.file("both.pcapng"), &["--with-drops"]);
    let before = daemon.drops();
    // Of a machine that is not bound to the port.
    let mut sender = Sender::new(&bridge.containers[0], "eth0");
    let frame = raw::ethernet(Mac([2, 9, 9, 9, 9, 9]), Mac([2, 8, 8, 8, 8, 8]), 0x88b5, &[7; 200]);
    (0..5).for_each(|_| assert!(sender.send(&frame)));
    let (frames, summary) = drops.wait();
    assert_eq!((&summary["captured"], &summary["missed"]), (&5.into(), &0.into()));
    let after = daemon.drops();
    let (_, reason) =
        after.keys().find(|key| after[key] != *before.get(key).unwrap_or(&0)).unwrap();
    let seen =
        frames.frames("", &["frame.interface_name", "frame.comment", "frame.len", "eth.src"]);
    say(&format!("{seen:?}"));
    for row in &seen {
        assert!(row[1].starts_with(&format!("dropped: {reason} (")), "{row:?}");
        assert_eq!([&row[0], &row[2], &row[3]], ["c1", "214", "02:08:08:08:08:08"]);
    }
    assert_eq!(none.stop().1["captured"], 0, "of another reason");
    let (both, _) = both.stop();
    let of =
        |filter: &str| both.frames(&format!("eth.type==0x88b5&&{filter}"), &["frame.len"]).len();
    assert_eq!((of("frame.comment"), of("!frame.comment")), (5, 5));
    assert_eq!(daemon.show("audit")["closed"], true);
    let wrong = daemon.command(&["capture", "--port", "nobody", "--out", "/dev/null"]).output();
    let said = String::from_utf8(wrong.unwrap().stderr).unwrap();
    assert!(said.contains("there is no port `nobody`; `sluice show ports`"), "{said}");
}

/// Sum of what the interfaces of a file could not capture.
fn missed(file: &[u8]) -> u64 {
    let (mut at, mut sum) = (0, 0);
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let half = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap());
    while at < file.len() {
        let (kind, size) = (word(at), word(at + 4) as usize);
        let mut option = at + 20;
        while kind == STATISTICS && option < at + size - 4 {
            if half(option) == IF_DROP {
                sum += u64::from_le_bytes(file[option + 4..option + 12].try_into().unwrap());
            }
            option += 4 + usize::from(half(option + 2)).next_multiple_of(4);
        }
        at += size;
    }
    sum
}

/// A capture whose output nobody reads yet.
fn unread(daemon: &Daemon) -> (Child, ChildStdout, ChildStderr) {
    let mut command = daemon.command(&["capture"]);
    let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (out, said) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
    (process, out, said)
}

#[test]
#[ignore = "live: needs root"]
fn unread_capture_loses_no_frame_of_flow() {
    if skip("unread_capture_loses_no_frame_of_flow", &TOOLS) {
        return;
    }
    let bridge = two_hosts("unread");
    let daemon = &bridge.daemons[0];
    let (mut process, out, mut said) = unread(daemon);
    let (mut gone, gone_out, _gone_said) = unread(daemon);
    // Time for both to begin: nothing is read that would tell.
    std::thread::sleep(Duration::from_millis(500));
    let [one, two] = &bridge.containers[..] else { panic!("two containers") };
    let pace = (20, Duration::from_millis(1), 1_200);
    let flow = Counted::start((one, ip(0)), (two, ip(1)), 7_000, pace);
    std::thread::sleep(Duration::from_secs(3));
    let seen = flow.stop();
    say(&format!("{seen:?}"));
    assert!(seen.sent > 10_000, "{seen:?}");
    assert_eq!((seen.received, seen.late), (seen.sent, 0), "no frame of the flow is lost");
    bridge.daemons.iter().for_each(Daemon::assert_lossless);

    // A client that goes away ends its capture, also one that is blocked.
    kill_process(Pid::from_child(&gone), Signal::KILL).unwrap();
    gone.wait().unwrap();
    drop(gone_out);
    kill_process(Pid::from_child(&process), Signal::INT).unwrap();
    let mut bytes = Vec::new();
    BufReader::new(out).read_to_end(&mut bytes).unwrap();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(process.wait().unwrap().success(), "{text}");
    say(text.trim());
    let missed = missed(&bytes);
    assert!(missed > 0 && text.contains(&format!("; {missed} more found no room")), "{text}");
    fs::write(bridge.net.file("cut.pcapng"), &bytes).unwrap();
    run(&format!("capinfos {}", bridge.net.file("cut.pcapng").display()));
    // No capture is left: as many as there may be can begin.
    let file = |at: usize| bridge.net.file(&format!("{at}.pcapng"));
    let all: Vec<Capture> = (0..4).map(|at| Capture::start(daemon, file(at), &[])).collect();
    let output = daemon.command(&["capture", "--out", "/dev/null"]).output().unwrap();
    let refused = String::from_utf8(output.stderr).unwrap();
    assert!(refused.contains("4 captures run already"), "{refused}");
    all.into_iter().for_each(|capture| drop(capture.stop()));
    daemon.drained();
    assert_eq!(daemon.show("audit")["closed"], true);
}

#[test]
#[ignore = "live: needs root"]
fn wireshark_lists_host_and_captures_there() {
    if skip("wireshark_lists_host_and_captures_there", &["tshark", "unshare", "mount"]) {
        return;
    }
    let bridge = two_hosts("extcap");
    let folder = bridge.net.file("extcap");
    fs::create_dir_all(&folder).unwrap();
    let wrapper = folder.join("sluice-extcap");
    let run_dir = bridge.net.file("h1");
    let text = format!(
        "#!/bin/sh\nexec {} extcap --run-dir {} \"$@\"\n",
        program().display(),
        run_dir.display()
    );
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    // As root Wireshark believes no variable of its environment: the folder takes the place of its
    // own, for this command alone.
    let folders = run("tshark -G folders");
    let line = folders.lines().find(|line| line.starts_with("Extcap path:")).unwrap();
    let own = line.split_whitespace().last().unwrap();
    let script = format!("mount --bind {} {own}; exec tshark \"$@\"", folder.display());
    let tshark = || {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &script, "tshark"]).stdin(Stdio::null());
        command
    };
    let listed = tshark().arg("-D").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    say(listed.trim());
    assert!(listed.contains("sluice-h1 (Sluice, ports of h1)"), "{listed}");
    let mut command = tshark();
    command.args(["-i", "sluice-h1", "-c", "4", "-T", "fields", "-e", "icmp.seq", "-Y", "icmp"]);
    let captured = command.args(["-o", "extcap.sluice_h1.port:c1"]).stdout(Stdio::piped());
    let mut captured = Process(captured.stderr(Stdio::null()).spawn().unwrap());
    let mut pinged = 0;
    wait_for("Wireshark has four frames", || {
        bridge.containers[0].ping(ip(1), 1);
        pinged += 1;
        captured.0.try_wait().unwrap().is_some()
    });
    let mut printed = String::new();
    captured.0.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    say(&format!("{pinged} pings: {printed:?}"));
    assert!(!printed.trim().is_empty());
}
