//! Network namespaces, daemons and tools for the live tests. Everything is removed when the test
//! ends, also on a panic.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) mod bridge;
pub(crate) mod cni;
pub(crate) mod containerd;
pub(crate) mod counted;
pub(crate) mod culprit;
pub(crate) mod docker;
pub(crate) mod dpdk;
pub(crate) mod http;
pub(crate) mod iperf;
pub(crate) mod kernel;
pub(crate) mod libvirt;
pub(crate) mod member;
pub(crate) mod monitor;
pub(crate) mod netavark;
pub(crate) mod newest;
pub(crate) mod pair;
pub(crate) mod ping;
pub(crate) mod raw;
pub(crate) mod scene;
pub(crate) mod stream;
pub(crate) mod tagger;
pub(crate) mod vm;
pub(crate) mod wire;

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval of looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Writes a line that the test harness does not swallow.
pub(crate) fn say(text: &str) {
    _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip(test: &str, tools: &[&str]) -> bool {
    let there = |tool: &&&str| sluice_netns::is_installed(tool);
    let why = if !rustix::process::geteuid().is_root() {
        "it makes network namespaces and needs root".to_owned()
    } else if let Some(tool) = ["ip", "ethtool"].iter().chain(tools).find(|t| !there(t)) {
        format!("the program `{tool}` is not installed")
    } else if !can_have_namespaces() {
        "this machine lets nobody make network namespaces".to_owned()
    } else {
        return false;
    };
    say(&format!("SKIPPED {test}: {why}"));
    true
}

fn can_have_namespaces() -> bool {
    // Tests that run at a time have one each: the second of a name would be refused.
    static PROBES: AtomicU32 = AtomicU32::new(0);
    let number = PROBES.fetch_add(1, Ordering::Relaxed);
    let name = format!("sluice-i-{}-probe{number}", std::process::id());
    let probe = sluice_netns::Netns::create(&name);
    probe.and_then(|probe| probe.delete()).is_ok()
}

/// Returns the program under test: `$SLUICE`, or the one that cargo built beside this test.
pub(crate) fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("SLUICE") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join("sluice");
    assert!(path.is_file(), "{}: build it with `cargo build --package sluice`", path.display());
    path
}

/// Runs a command line and returns its output; panics with its error output if it fails.
pub(crate) fn run(line: &str) -> String {
    sluice_netns::run(line).unwrap_or_else(|error| panic!("{error}"))
}

/// Runs a command line, which may fail.
pub(crate) fn attempt(line: &str) -> Output {
    let mut words = line.split_whitespace();
    Command::new(words.next().unwrap()).args(words).stdin(Stdio::null()).output().unwrap()
}

/// Waits for an event that must happen.
pub(crate) fn wait_for(what: &str, happened: impl FnMut() -> bool) {
    assert!(sluice_netns::happens(PATIENCE, LOOK_EVERY, happened), "{what} within {PATIENCE:?}");
}

/// Waits until each of these hosts is connected with every other host of its fabric.
pub(crate) fn are_connected<'a>(hosts: impl IntoIterator<Item = &'a Daemon>) {
    for host in hosts {
        wait_for("the hosts are connected", || host.is_connected());
    }
}

/// A network of one test: its namespaces, its daemons, and a directory.
pub(crate) struct Net {
    name: String,
    dir: PathBuf,
    namespaces: Vec<Netns>,
}

impl Net {
    pub(crate) fn new(word: &str) -> Self {
        let name = format!("sluice-i-{}-{word}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        fs::create_dir_all(&dir).unwrap();
        Self { name, dir, namespaces: Vec::new() }
    }

    /// Makes a namespace, without IPv6, so that nothing speaks in it unasked.
    pub(crate) fn netns(&mut self, word: &str) -> Netns {
        let netns = Netns(sluice_netns::Netns::create(&format!("{}-{word}", self.name)).unwrap());
        self.namespaces.push(netns.clone());
        netns
    }

    /// Returns the namespace of this process, for devices that cannot leave it.
    pub(crate) fn own_netns(&mut self, word: &str) -> Netns {
        let netns = Netns(sluice_netns::Netns::attach(&format!("{}-{word}", self.name)).unwrap());
        self.namespaces.push(netns.clone());
        netns
    }

    /// Returns the path of a file of this test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes certificates for hosts of a fabric; each host's folder has its name.
    pub(crate) fn certificates(&self, hosts: &[&str]) -> PathBuf {
        let folder = self.file("certificates");
        sluice_netns::host::certificates(&program(), &folder, hosts).unwrap();
        folder
    }

    /// Starts a daemon in a namespace and waits until it answers. `rest` is its configuration after
    /// name and directory, which come first in `[host]`.
    pub(crate) fn daemon(&self, netns: &Netns, name: &str, rest: &str) -> Daemon {
        let mut daemon = self.start(netns, name, rest);
        daemon.wait_until_it_answers(name);
        daemon
    }

    /// Starts a daemon that is in no fabric, and waits until it can be asked to make or join one.
    pub(crate) fn waiting(&self, netns: &Netns, name: &str, rest: &str) -> Daemon {
        let daemon = self.start(netns, name, rest);
        wait_for("a host waits for its fabric", || daemon.is_waiting());
        daemon
    }

    fn start(&self, netns: &Netns, name: &str, rest: &str) -> Daemon {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        let text = format!(
            "[host]\nname = \"{name}\"\nrun_dir = \"{}\"\n{}",
            dir.display(),
            rest.trim_start()
        );
        let config = dir.join("host.toml");
        fs::write(&config, text).unwrap();
        File::create(dir.join("log")).unwrap();
        let control = start_control(netns, &dir);
        Daemon { control, netns: netns.clone(), dir }
    }
}

/// Starts the daemon whose configuration is in a directory.
fn start_control(netns: &Netns, dir: &Path) -> Child {
    // A test that replaces the program of a host has put a copy here.
    let own = dir.join("sluice");
    let program = if own.is_file() { own } else { program() };
    sluice_netns::host::daemon(&netns.0, &program, dir).unwrap()
}

impl Drop for Net {
    fn drop(&mut self) {
        for netns in &self.namespaces {
            // The test may have deleted it.
            _ = netns.0.delete();
        }
        _ = fs::remove_dir_all(&self.dir);
    }
}

/// A namespace.
#[derive(Clone, Debug)]
pub(crate) struct Netns(sluice_netns::Netns);

impl Netns {
    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Returns it as other crates know it.
    pub(crate) const fn plain(&self) -> &sluice_netns::Netns {
        &self.0
    }

    /// Runs `ip` in the namespace.
    pub(crate) fn ip(&self, line: &str) -> String {
        self.0.ip(line).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a command line in the namespace.
    pub(crate) fn run(&self, line: &str) -> String {
        self.0.run(line).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs a command line in the namespace, which may fail.
    pub(crate) fn attempt(&self, line: &str) -> Output {
        attempt(&format!("ip netns exec {} {line}", self.name()))
    }

    /// Returns the command for a program in the namespace. `ip` becomes the program: they are one
    /// process.
    pub(crate) fn command(&self, program: &str) -> Command {
        self.0.command(program)
    }

    /// Runs `work` on a thread in the namespace.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.inside(work).unwrap()
    }

    /// Makes a UDP socket in the namespace.
    pub(crate) fn udp(&self, address: Ipv4Addr, port: u16) -> UdpSocket {
        self.inside(|| UdpSocket::bind(SocketAddrV4::new(address, port)).unwrap())
    }

    /// Returns a counter of its IP stack, such as `Icmp` `OutDestUnreachs`.
    pub(crate) fn snmp(&self, group: &str, name: &str) -> u64 {
        let text = self.inside(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut lines = text.lines().filter(|line| line.split(':').next() == Some(group));
        let names = lines.next().unwrap().split_whitespace();
        let column = names.into_iter().position(|word| word == name).unwrap();
        lines.next().unwrap().split_whitespace().nth(column).unwrap().parse().unwrap()
    }

    /// Sends pings, and panics if one is lost.
    pub(crate) fn ping(&self, to: Ipv4Addr, count: u32) {
        let mut pinger = ping::Pinger::new(self, to);
        let lost = (0..count).filter(|_| !pinger.ping(84)).count();
        assert_eq!(lost, 0, "of {count} pings from {} to {to} were lost", self.name());
    }
}

/// Makes a link between two namespaces, both ends up, with addresses if they are not empty. The
/// offloads of both ends are off, so that frames look as on a wire.
pub(crate) fn cable(left: (&Netns, &str, &str), right: (&Netns, &str, &str)) {
    sluice_netns::cable((&left.0.0, left.1), (&right.0.0, right.1)).unwrap();
    for (netns, device, address) in [left, right] {
        if !address.is_empty() {
            netns.ip(&format!("addr add {address} dev {device}"));
        }
    }
}

/// A running daemon.
pub(crate) struct Daemon {
    control: Child,
    netns: Netns,
    dir: PathBuf,
}

impl Daemon {
    fn wait_until_it_answers(&mut self, name: &str) {
        let answers = sluice_netns::happens(PATIENCE, LOOK_EVERY, || {
            let ended = self.control.try_wait().unwrap().is_some();
            assert!(!ended, "{name} ended:\n{}", self.log());
            self.try_show("ports").is_some()
        });
        assert!(answers, "{name} does not answer:\n{}", self.log());
    }

    /// Kills the control process with SIGKILL.
    pub(crate) fn kill_control(&mut self) {
        self.control.kill().unwrap();
        self.control.wait().unwrap();
    }

    /// Kills both processes with SIGKILL.
    pub(crate) fn kill_both(&mut self) {
        let pid = self.data_pid().parse().ok().and_then(Pid::from_raw);
        _ = kill_process(pid.expect("data has a number"), Signal::KILL);
        self.kill_control();
    }

    /// Lets the control process become the program at its path.
    pub(crate) fn upgrade(&self) {
        kill_process(Pid::from_child(&self.control), Signal::USR2).unwrap();
    }

    /// Lets the control process reload the settings that may change at run time.
    pub(crate) fn reload(&self) {
        kill_process(Pid::from_child(&self.control), Signal::HUP).unwrap();
    }

    /// Stops the host in order.
    pub(crate) fn stop(&mut self) {
        kill_process(Pid::from_child(&self.control), Signal::TERM).unwrap();
        assert!(self.control.wait().unwrap().success(), "{}", self.log());
    }

    /// Changes the configuration file.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(String) -> String) {
        self.rewrite("host.toml", change);
    }

    /// Changes a file of its directory.
    pub(crate) fn rewrite(&self, name: &str, change: impl FnOnce(String) -> String) {
        let path = self.dir.join(name);
        let text = change(fs::read_to_string(&path).unwrap());
        fs::write(path, text).unwrap();
    }

    /// Stops the control process (SIGSTOP), or lets it continue.
    pub(crate) fn hang_control(&self, hang: bool) {
        let signal = if hang { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.control), signal).unwrap();
    }

    /// Stops the data process (SIGSTOP), or lets it continue.
    pub(crate) fn hang_data(&self, hang: bool) {
        let signal = if hang { Signal::STOP } else { Signal::CONT };
        let pid = self.data_pid().parse().ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Starts the control process again, and does not wait for it.
    pub(crate) fn begin_control(&mut self) {
        self.control = start_control(&self.netns, &self.dir);
    }

    /// Starts the control process again.
    pub(crate) fn restart_control(&mut self) {
        self.begin_control();
        self.wait_until_it_answers("a control process that was started again");
    }

    /// Starts a host again that is in no fabric.
    pub(crate) fn restart_waiting(&mut self) {
        self.control = start_control(&self.netns, &self.dir);
        wait_for("a host waits for its fabric", || self.is_waiting());
    }

    pub(crate) fn try_show(&self, question: &str) -> Option<Value> {
        let mut command = Command::new(program());
        command.args(["show", question, "--json", "--run-dir"]).arg(&self.dir);
        let output = command.output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Returns true if it is in no fabric, and can be asked to make or join one.
    pub(crate) fn is_waiting(&self) -> bool {
        let said = self.command(&["config", "log"]).output().unwrap().stderr;
        String::from_utf8_lossy(&said).contains("this host is in no fabric yet")
    }

    /// Returns the command `sluice WORDS` for this host.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(words).arg("--run-dir").arg(&self.dir);
        command
    }

    /// Returns the output of `sluice WORDS`.
    pub(crate) fn print(&self, words: &[&str]) -> String {
        let mut command = Command::new(program());
        let output = command.args(words).arg("--run-dir").arg(&self.dir).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs `sluice WORDS --json`, which may fail.
    pub(crate) fn attempt(&self, words: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(words).args(["--json", "--run-dir"]).arg(&self.dir);
        command.output().unwrap()
    }

    /// Returns the answer to `sluice WORDS --json`.
    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        let output = self.attempt(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}; log:\n{}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns the rows of an answer of `sluice show QUESTION --json`.
    pub(crate) fn show(&self, question: &str) -> Value {
        let answer = self.try_show(question);
        answer.unwrap_or_else(|| panic!("show {question}; log:\n{}", self.log()))[question].take()
    }

    /// Returns the row of an answer whose `key` is `value`.
    pub(crate) fn row(&self, question: &str, key: &str, value: &str) -> Value {
        let rows = self.show(question);
        let row = rows.as_array().unwrap().iter().find(|row| row[key] == value);
        row.unwrap_or_else(|| panic!("no {key} {value} in {rows}")).clone()
    }

    /// Returns dropped frames by port and reason.
    pub(crate) fn drops(&self) -> BTreeMap<(String, String), u64> {
        let mut drops = BTreeMap::new();
        for row in self.show("drops").as_array().unwrap() {
            let word = |key: &str| row[key].as_str().unwrap().to_owned();
            *drops.entry((word("port"), word("reason"))).or_default() +=
                row["frames"].as_u64().unwrap();
        }
        drops
    }

    /// Panics unless the audit closes, no frame was dropped for congestion, and no kernel counter
    /// on the path of a frame shows a loss.
    pub(crate) fn assert_lossless(&self) {
        let audit = self.show("audit");
        assert_eq!(audit["closed"], true, "{audit}");
        for row in audit["rows"].as_array().unwrap() {
            assert_eq!(row["frames"]["dropped_congestion"], 0, "{row}");
        }
        for row in self.show("ports").as_array().unwrap() {
            assert_eq!(row["driver_lost"], 0, "{row}");
            for (name, value) in row["kernel"].as_object().unwrap() {
                assert_eq!(value.as_u64(), Some(0), "{name} of {row}");
            }
        }
    }

    /// Returns true if this host is connected with every other.
    pub(crate) fn is_connected(&self) -> bool {
        let members = self.ask(&["fabric", "members"])["members"].take();
        members.as_array().unwrap().iter().all(|row| row["connected"] == true)
    }

    /// Waits until the next hop of every tunnel is known.
    pub(crate) fn next_hops_are_resolved(&self) {
        wait_for("next hops are resolved", || {
            let tunnels = self.show("tunnels");
            tunnels.as_array().unwrap().iter().all(|row| row["next_hop"] != "unresolved")
        });
    }

    /// Waits until no frame is in the switch.
    pub(crate) fn drained(&self) {
        wait_for("the switch is empty", || {
            let audit = self.show("audit");
            audit["rows"].as_array().unwrap().iter().all(|row| row["frames"]["resident"] == 0)
        });
    }

    /// Returns the id of the process that forwards.
    pub(crate) fn data_pid(&self) -> String {
        fs::read_to_string(self.dir.join("data.pid")).unwrap().trim().to_owned()
    }

    /// Returns the id of the process that answers.
    pub(crate) fn control_pid(&self) -> String {
        self.control.id().to_string()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say(&format!("{}:", self.dir.display()));
            for question in ["drops", "ports", "audit"] {
                say(&self.try_show(question).unwrap_or_default().to_string());
            }
            for words in [["fabric", "progress"], ["config", "log"]] {
                say(&self.print(&words));
            }
            say(&self.log());
        }
        _ = kill_process(Pid::from_child(&self.control), Signal::TERM);
        let has_ended = || !self.control.try_wait().is_ok_and(|end| end.is_none());
        sluice_netns::happens(Duration::from_secs(3), LOOK_EVERY, has_ended);
        _ = self.control.kill();
        _ = self.control.wait();
        self.kill_data();
    }
}

impl Daemon {
    /// Kills the data process at once: one that outlived its control, or to make control start a
    /// new one.
    pub(crate) fn kill_data(&self) {
        let number = fs::read_to_string(self.dir.join("data.pid")).unwrap_or_default();
        let line = fs::read_to_string(format!("/proc/{}/cmdline", number.trim()));
        let ours = line.is_ok_and(|line| line.contains(&*self.dir.to_string_lossy()));
        if let Some(pid) = number.trim().parse().ok().filter(|_| ours).and_then(Pid::from_raw) {
            _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A process that is stopped when dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Stops it (SIGINT), waits, and returns its output and its error output, if these are pipes.
    pub(crate) fn stop(mut self) -> (String, String) {
        use std::io::Read as _;
        let _gone = kill_process(Pid::from_child(&self.0), Signal::INT);
        let (mut printed, mut said) = (String::new(), String::new());
        if let Some(mut pipe) = self.0.stdout.take() {
            pipe.read_to_string(&mut printed).unwrap();
        }
        if let Some(mut pipe) = self.0.stderr.take() {
            pipe.read_to_string(&mut said).unwrap();
        }
        self.0.wait().unwrap();
        (printed, said)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
