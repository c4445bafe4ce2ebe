//! Namespaces, daemons and pings for a test, all of them removed when it ends.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
const PATIENCE: Duration = Duration::from_secs(30);
/// Ports of both services of a container.
const ECHO_PORT: u16 = 7;
const SINK_PORT: u16 = 9;

/// Writes a line that the test harness does not swallow.
pub(crate) fn say(text: &str) {
    _ = writeln!(std::io::stderr(), "{text}");
}

/// Returns true if a test cannot run here, and says so.
pub(crate) fn skip(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        say(&format!("SKIPPED {test}: it makes network namespaces and needs root"));
    }
    !root
}

/// Containers and the configuration of a host for them.
pub(crate) struct Rig {
    name: String,
    dir: PathBuf,
    containers: Vec<String>,
    /// Number of the first container, from which its addresses are made.
    first: usize,
    /// Namespace of the host itself, if it has an underlay.
    underlay: Option<String>,
}

impl Rig {
    pub(crate) fn new(name: &str, containers: usize) -> Self {
        Self::numbered(name, containers, 0)
    }

    fn numbered(name: &str, containers: usize, first: usize) -> Self {
        let name = format!("sluice-d-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        let numbers = first..first + containers;
        let containers = numbers.map(|number| format!("{name}-{number}")).collect();
        let rig = Self { name, dir, containers, first, underlay: None };
        fs::create_dir_all(&rig.dir).unwrap();
        for (index, netns) in rig.containers.iter().enumerate() {
            ip(&["netns", "add", netns]);
            // A persistent TAP keeps its address when the data process dies.
            let inside = |arguments: &[&str]| ip(&[&["-n", netns], arguments].concat());
            inside(&["tuntap", "add", "t0", "mode", "tap"]);
            inside(&["addr", "add", &format!("{}/24", rig.address(index)), "dev", "t0"]);
            inside(&["link", "set", "t0", "up"]);
        }
        fs::write(rig.config(), rig.text()).unwrap();
        rig
    }

    /// Makes two hosts with a container each, joined by a link.
    pub(crate) fn pair(name: &str, kind: &str, policy: &str) -> [Self; 2] {
        let mut pair = [0, 1].map(|side| Self::numbered(&format!("{name}{side}"), 1, side));
        for rig in &mut pair {
            let netns = format!("{}-host", rig.name);
            ip(&["netns", "add", &netns]);
            rig.underlay = Some(netns);
        }
        let hosts = [&pair[0], &pair[1]].map(|rig| rig.underlay.clone().unwrap());
        ip(&["link", "add", &sluice_netns::veth_arguments((&hosts[0], "e0"), (&hosts[1], "e0"))]);
        for (side, rig) in pair.iter().enumerate() {
            let address = format!("192.168.7.{}", side + 1);
            ip(&["-n", &hosts[side], "addr", "add", &format!("{address}/24"), "dev", "e0"]);
            ip(&["-n", &hosts[side], "link", "set", "e0", "up"]);
            let (other, number) = (2 - side, 1 - side);
            let text = format!(
                "\n[underlay]\nkind = \"{kind}\"\ndevice = \"e0\"\naddress = \"{address}\"\n\
                 link = {{ rate_mbps = 1000, stall_ms = 20 }}\n\n[[peer]]\nname = \"other\"\n\
                 vtep = \"192.168.7.{other}\"\nvnets = [\"blue\"]\n\n[[vport]]\nvnet = \"blue\"\n\
                 mac = \"02:00:00:00:01:{number:02x}\"\npeer = \"other\"\n"
            );
            let text = rig.text().replace("\"ZZ\"", &format!("\"{policy}\"")) + &text;
            fs::write(rig.config(), text).unwrap();
        }
        pair
    }

    fn address(&self, index: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, u8::try_from(self.first + index + 1).unwrap())
    }

    fn text(&self) -> String {
        let mut text = format!(
            "[host]\nname = \"{}\"\npolicy = \"ZZ\"\nrun_dir = \"{}\"\n\n[[vnet]]\nname = \
             \"blue\"\nvni = 42\n",
            self.name,
            self.dir.display()
        );
        for (index, netns) in self.containers.iter().enumerate() {
            let number = self.first + index;
            _ = write!(
                text,
                "[[port]]\nvnet = \"blue\"\nname = \"c{number}\"\nkind = \"tap\"\ndevice = \
                 \"t0\"\nnetns = \"/run/netns/{netns}\"\nmac = \"02:00:00:00:01:{number:02x}\"\n"
            );
        }
        text
    }

    fn config(&self) -> PathBuf {
        self.dir.join("host.toml")
    }

    /// Changes the configuration file.
    pub(crate) fn change(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.config()).unwrap();
        assert!(text.contains(from));
        fs::write(self.config(), text.replace(from, to)).unwrap();
    }

    /// Deletes the device of a container.
    pub(crate) fn delete_device(&self, container: usize) {
        ip(&["-n", &self.containers[container], "link", "del", "t0"]);
    }

    fn command(&self) -> Command {
        let mut command = Command::new(if self.underlay.is_some() { "ip" } else { SLUICE });
        if let Some(netns) = &self.underlay {
            command.args(["netns", "exec", netns, SLUICE]);
        }
        let log = fs::File::options().create(true).append(true).open(self.dir.join("log"));
        command.args(["daemon", "--config"]).arg(self.config()).stderr(log.unwrap());
        command
    }

    /// Starts a control process and waits until it answers.
    pub(crate) fn start(&self) -> Daemon {
        let daemon = Daemon { control: self.command().spawn().unwrap() };
        let until = Instant::now() + PATIENCE;
        while self.try_show("ports").is_none() {
            assert!(Instant::now() < until, "it answers; it said:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
        daemon
    }

    /// Runs a control process that is expected to refuse, and returns its message.
    pub(crate) fn run_control(&self) -> String {
        let output = self.command().stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    }

    fn ask(&self, question: &str, json: bool) -> Output {
        let mut command = Command::new(SLUICE);
        command.args(["show", question, "--run-dir"]).arg(&self.dir);
        if json { command.arg("--json") } else { &mut command }.output().unwrap()
    }

    pub(crate) fn try_show(&self, question: &str) -> Option<serde_json::Value> {
        let output = self.ask(question, true);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub(crate) fn show(&self, question: &str) -> serde_json::Value {
        self.try_show(question).unwrap_or_else(|| panic!("show {question}; log:\n{}", self.log()))
    }

    pub(crate) fn show_table(&self, question: &str) -> String {
        String::from_utf8(self.ask(question, false).stdout).unwrap()
    }

    pub(crate) fn data_pid(&self) -> i32 {
        fs::read_to_string(self.dir.join("data.pid")).unwrap().trim().parse().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Returns the names of the sockets in the directory.
    pub(crate) fn sockets(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".sock"));
        names.sort();
        names
    }

    /// Makes a pinger from one container to another.
    pub(crate) fn pinger(&self, from: usize, to: usize) -> Pinger {
        self.pinger_to(from, self, to)
    }

    /// Makes a pinger from a container of this host to one of another.
    pub(crate) fn pinger_to(&self, from: usize, there: &Self, to: usize) -> Pinger {
        let echo = socket(&there.containers[to], there.address(to), ECHO_PORT);
        let sink = socket(&there.containers[to], there.address(to), SINK_PORT);
        let pinging = socket(&self.containers[from], self.address(from), 0);
        std::thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((size, from)) = echo.recv_from(&mut bytes) {
                // The device may be gone for a moment.
                _ = echo.send_to(&bytes[..size], from);
            }
        });
        let (arrived, arrivals) = sync_channel(1024);
        std::thread::spawn(move || {
            let mut bytes = [0; 8];
            while sink.recv_from(&mut bytes).is_ok() {
                if arrived.send((u64::from_le_bytes(bytes), Instant::now())).is_err() {
                    return;
                }
            }
        });
        let to = there.address(to);
        Pinger { socket: pinging, to, count: std::cell::Cell::new(0), arrivals }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for role in ["control.pid", "data.pid"] {
            let pid = fs::read_to_string(self.dir.join(role)).unwrap_or_default();
            let ours = |pid: &i32| {
                let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.contains(&self.name)
            };
            if let Some(pid) = pid.trim().parse().ok().filter(ours) {
                kill(pid);
            }
        }
        for netns in self.containers.iter().chain(&self.underlay) {
            _ = Command::new("ip").args(["netns", "del", netns]).status();
        }
        if std::thread::panicking() {
            say(&format!("the log of {}:\n{}", self.name, self.log()));
        }
        _ = fs::remove_dir_all(&self.dir);
    }
}

/// A control process.
pub(crate) struct Daemon {
    control: Child,
}

impl Daemon {
    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.control.kill().unwrap();
        self.control.wait().unwrap();
    }

    /// Sends SIGTERM, and checks for a clean end.
    pub(crate) fn stop(&mut self) {
        let pid = Pid::from_child(&self.control);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(self.control.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = self.control.kill();
        _ = self.control.wait();
    }
}

/// Datagrams from one container to another.
pub(crate) struct Pinger {
    socket: UdpSocket,
    to: Ipv4Addr,
    count: std::cell::Cell<u64>,
    arrivals: Receiver<(u64, Instant)>,
}

impl Pinger {
    fn next(&self) -> u64 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    /// Pings there and back; `None` if no answer came within a second.
    pub(crate) fn ping(&self) -> Option<Duration> {
        self.ping_within(Duration::from_secs(1))
    }

    /// Pings there and back; `None` if no answer came within `span`.
    pub(crate) fn ping_within(&self, span: Duration) -> Option<Duration> {
        self.socket.set_read_timeout(Some(span)).unwrap();
        let (number, begin) = (self.next(), Instant::now());
        self.socket.send_to(&number.to_le_bytes(), (self.to, ECHO_PORT)).ok()?;
        let mut bytes = [0; 8];
        while self.socket.recv_from(&mut bytes).is_ok() {
            if u64::from_le_bytes(bytes) == number {
                return Some(begin.elapsed());
            }
        }
        None
    }

    /// Pings one way, to the receiver's socket.
    pub(crate) fn one_way(&self) -> Option<Duration> {
        let (number, begin) = (self.next(), Instant::now());
        self.socket.send_to(&number.to_le_bytes(), (self.to, SINK_PORT)).ok()?;
        let (arrived, at) = self.arrivals.recv_timeout(Duration::from_secs(1)).ok()?;
        (arrived == number).then(|| at - begin)
    }
}

/// Makes a socket in a container: a socket stays where it was made.
fn socket(netns: &str, address: Ipv4Addr, port: u16) -> UdpSocket {
    let make = || UdpSocket::bind(SocketAddrV4::new(address, port)).unwrap();
    sluice_netns::inside(netns, make).unwrap()
}

fn ip(arguments: &[&str]) {
    sluice_netns::run(&format!("ip {}", arguments.join(" "))).unwrap();
}

/// Sends SIGKILL, and waits until the process is gone.
pub(crate) fn kill(pid: i32) {
    _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    let until = Instant::now() + PATIENCE;
    while alive(pid) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns true if a process runs; a zombie does not.
pub(crate) fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

/// Returns the processor time of a process, over all its threads.
pub(crate) fn cpu_time(pid: i32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.map(|task| {
        let text = fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanos.sum())
}

/// Returns a percentile of sorted values.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}
