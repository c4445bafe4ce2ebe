//! Hosts of a fabric: `sluice daemon` in namespaces, queried over its public socket.
//!
//! ```text
//!   t0 ─ TAP ─┤ h1 up0 ════ cable, or a bridge for more than two ════ up0 h2 ├─ TAP ─ t0
//! ```
//!
//! Each host has one port whose endpoints are learned: a TAP, or a cable where a chip forwards.
//! With several hosts, its other end is in a namespace of its own, in which the benchmark sends
//! frames.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use sluice_api::fabric::{Answer, EventRow, MemberRow, Question};
use sluice_api::show;
use sluice_base::{Mac, Priority};
use sluice_netns::host::{self, Member};
use sluice_ports::Port as _;
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use sluice_switch::{Egress, Sink as _, Taken};

use super::net::{Net, Netns, PATIENCE, cable, signal, wait_for};

/// The other end of a host's port, in its own namespace.
const DEVICE: &str = "t0";

/// Returns the program: `$SLUICE`, or the one beside this one.
///
/// # Errors
/// If it is not built, with the command that builds it.
pub(crate) fn program() -> anyhow::Result<PathBuf> {
    if let Some(path) = std::env::var_os("SLUICE") {
        return Ok(path.into());
    }
    let path = std::env::current_exe()?.with_file_name("sluice");
    ensure!(
        path.is_file(),
        "there is no {}: build it with `cargo build --profile dist --package sluice`",
        path.display()
    );
    Ok(path)
}

/// Parameters of the hosts of a fabric.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Number of hosts.
    pub(crate) hosts: usize,
    /// Lines for `[fabric]` beyond those of every host.
    pub(crate) settings: &'static str,
    /// Lines of `[chip]`; empty: the switch forwards.
    pub(crate) chip: String,
}

impl Setup {
    /// Hosts whose switch forwards.
    pub(super) const fn plain(hosts: usize, settings: &'static str) -> Self {
        Self { hosts, settings, chip: String::new() }
    }
}

/// Hosts that are connected with each other. The daemons end before their namespaces.
pub(crate) struct Hosts {
    pub(crate) all: Vec<Host>,
    _net: Net,
}

impl Hosts {
    /// Starts the hosts and waits until all are connected.
    ///
    /// # Errors
    /// If a host does not start, with its log.
    pub(crate) fn start(word: &str, setup: &Setup) -> anyhow::Result<Self> {
        let program = program()?;
        let mut net = Net::new(word)?;
        let names: Vec<String> = (1..=setup.hosts).map(|id| format!("h{id}")).collect();
        let spaces: anyhow::Result<Vec<Netns>> = names.iter().map(|n| net.netns(n)).collect();
        let spaces = spaces?;
        connect(&mut net, &spaces)?;
        let certificates = net.dir().join("certificates");
        host::certificates(&program, &certificates, &names)?;
        let mut all = Vec::new();
        for (index, (name, netns)) in names.iter().zip(spaces).enumerate() {
            let machine = net.netns(&format!("c{}", index + 1))?;
            if !setup.chip.is_empty() {
                cable((&netns, "p0"), (&machine, DEVICE))?;
            }
            let dir = net.dir().join(name);
            fs::create_dir_all(&dir)?;
            let text = config(setup, index, &dir, &machine, &certificates);
            fs::write(dir.join("host.toml"), text)?;
            let control = host::daemon(&netns, &program, &dir)?;
            let (id, program) = (index + 1, program.clone());
            all.push(Host { id, dir, netns, machine, control, program });
        }
        let mut hosts = Self { all, _net: net };
        for host in &mut hosts.all {
            host.wait_until_it_answers()?;
        }
        hosts.wait_until_connected()?;
        Ok(hosts)
    }

    /// Waits until all hosts are connected.
    ///
    /// # Errors
    /// If they do not connect.
    pub(super) fn wait_until_connected(&self) -> anyhow::Result<()> {
        for host in &self.all {
            wait_for("all hosts are connected", || {
                Ok(host.members()?.iter().all(|member| member.connected))
            })?;
        }
        Ok(())
    }
}

/// Lays the underlay, and gives every host its address.
fn connect(net: &mut Net, spaces: &[Netns]) -> anyhow::Result<()> {
    if let [one, other] = spaces {
        cable((one, "up0"), (other, "up0"))?;
    } else {
        let wire = net.netns("wire")?;
        wire.ip("link add br0 type bridge")?;
        wire.ip("link set br0 up")?;
        for (index, netns) in spaces.iter().enumerate() {
            cable((netns, "up0"), (&wire, &format!("to{index}")))?;
            wire.ip(&format!("link set to{index} master br0"))?;
        }
    }
    for (index, netns) in spaces.iter().enumerate() {
        netns.ip(&format!("addr add 192.0.2.{}/24 dev up0", index + 1))?;
    }
    Ok(())
}

/// Returns the configuration file of a host.
fn config(setup: &Setup, index: usize, dir: &Path, machine: &Netns, certificates: &Path) -> String {
    let id = index + 1;
    let kind = if setup.chip.is_empty() {
        let netns = machine.path();
        format!("kind = \"tap\"\ndevice = \"{DEVICE}\"\nnetns = \"{}\"", netns.display())
    } else {
        format!("kind = \"l2\"\ndevice = \"p0\"\n[chip]\n{}", setup.chip)
    };
    let more = format!("\n[[port]]\nname = \"p0\"\nvnet = \"blue\"\n{kind}\n");
    let (hosts, fabric, settings) = (setup.hosts, "bench", setup.settings);
    let (host, vnet, more) = ("", "", more.as_str());
    let member = Member { id, hosts, fabric, certificates, host, settings, vnet, more };
    format!("[host]\nname = \"h{id}\"\nrun_dir = \"{}\"\n{}", dir.display(), member.file())
}

/// Returns the address of an endpoint by its number.
pub(crate) fn mac_of(number: u32) -> Mac {
    Mac::from_u64(0x0200_0000_0000 | u64::from(number))
}

/// A host.
pub(crate) struct Host {
    /// Its number in the fabric.
    pub(crate) id: usize,
    dir: PathBuf,
    netns: Netns,
    /// Namespace of the other end of its port.
    machine: Netns,
    control: Child,
    program: PathBuf,
}

impl Host {
    /// Waits until a started control process answers.
    ///
    /// # Errors
    /// If the process ends or does not answer, with its log.
    pub(super) fn wait_until_it_answers(&mut self) -> anyhow::Result<()> {
        wait_for("a host answers, or ends", || {
            Ok(self.members().is_ok() || self.control.try_wait()?.is_some())
        })
        .and_then(|()| self.members().map(drop))
        .with_context(|| {
            let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            format!("{} does not answer:\n{log}", self.dir.display())
        })
    }

    /// Opens a connection for queries.
    ///
    /// # Errors
    /// If nobody listens.
    pub(crate) fn talk(&self) -> anyhow::Result<Talk> {
        Talk::open(&self.dir)
    }

    /// Returns the state of all hosts, as this host sees them; its own comes first.
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) fn members(&self) -> anyhow::Result<Vec<MemberRow>> {
        self.talk()?.members()
    }

    /// Subscribes to the events of this host from now on.
    ///
    /// # Errors
    /// If the host does not answer.
    pub(super) fn watch(&self) -> anyhow::Result<Watch> {
        let mut talk = self.talk()?;
        talk.say(&Question::Watch)?;
        // The answer to a later query proves that the subscription is active.
        self.members()?;
        Ok(Watch(talk.0))
    }

    /// Returns a sender behind the port.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub(crate) fn sender(&self) -> anyhow::Result<Sender> {
        Sender::open(&self.machine, DEVICE)
    }

    /// Returns the seconds that the control process and its data process have run on a CPU.
    ///
    /// # Errors
    /// If one of them is gone.
    pub(crate) fn busy(&self) -> anyhow::Result<[f64; 2]> {
        let control = self.control.id();
        let children = fs::read_to_string(format!("/proc/{control}/task/{control}/children"))?;
        let data = children.split_whitespace().next().context("it has no data process")?;
        Ok([ran(&control.to_string())?, ran(data)?])
    }

    /// Stops the control process with SIGSTOP.
    ///
    /// # Errors
    /// If the process is gone.
    pub(super) fn freeze(&self) -> anyhow::Result<()> {
        signal(&self.control, Signal::STOP)
    }

    /// Resumes the control process.
    ///
    /// # Errors
    /// If the process is gone.
    pub(super) fn thaw(&self) -> anyhow::Result<()> {
        signal(&self.control, Signal::CONT)
    }

    /// Kills the control process and starts a new one.
    ///
    /// # Errors
    /// If the new process does not start.
    pub(super) fn restart_control(&mut self) -> anyhow::Result<()> {
        self.control.kill()?;
        self.control.wait()?;
        self.control = host::daemon(&self.netns, &self.program, &self.dir)?;
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The data process ends with its namespace.
        _ = self.control.kill();
        _ = self.control.wait();
    }
}

/// Returns the seconds that a process has run on a CPU.
fn ran(pid: &str) -> anyhow::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold anything; 14 and 15 are what proc(5) calls them.
    let (_, behind) = text.rsplit_once(')').context("it has a name")?;
    let words: Vec<&str> = behind.split_whitespace().collect();
    let ticks: f64 = words[14 - 3].parse::<f64>()? + words[15 - 3].parse::<f64>()?;
    #[expect(clippy::cast_precision_loss, reason = "a hundred")]
    Ok(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// A query connection to a host.
pub(crate) struct Talk(BufReader<UnixStream>);

impl Talk {
    /// Connects to the host of a directory.
    ///
    /// # Errors
    /// If nobody listens.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(dir.join("show.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn say(&mut self, question: &Question) -> anyhow::Result<()> {
        let request = serde_json::json!({ "fabric": question });
        Ok(self.0.get_mut().write_all(format!("{request}\n").as_bytes())?)
    }

    /// Returns the number of entries in the forwarding table (FDB).
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) fn fdb(&mut self) -> anyhow::Result<usize> {
        match self.show("mac")? {
            show::Body::Mac(rows) => Ok(rows.len()),
            other => bail!("no addresses: {other:?}"),
        }
    }

    /// Returns the state of the chip.
    ///
    /// # Errors
    /// If there is no answer.
    pub(crate) fn chip(&mut self) -> anyhow::Result<show::ChipRow> {
        match self.show("chip")? {
            show::Body::Chip(row) => Ok(row),
            other => bail!("no chip: {other:?}"),
        }
    }

    /// Returns the frames that entered the switch at the port.
    ///
    /// # Errors
    /// If there is no answer.
    pub(crate) fn punted(&mut self) -> anyhow::Result<u64> {
        match self.show("ports")? {
            show::Body::Ports(rows) => {
                let row = rows.into_iter().find(|row| row.port == "p0");
                Ok(row.context("there is no port p0")?.rx_frames)
            }
            other => bail!("no ports: {other:?}"),
        }
    }

    fn show(&mut self, what: &str) -> anyhow::Result<show::Body> {
        let question = serde_json::json!({ "show": what });
        self.0.get_mut().write_all(format!("{question}\n").as_bytes())?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        let answer: show::Answer = serde_json::from_str(&line).context(line)?;
        Ok(answer.body)
    }

    /// Returns the state of all hosts, as the host sees them; its own comes first.
    ///
    /// # Errors
    /// If there is no answer.
    pub(super) fn members(&mut self) -> anyhow::Result<Vec<MemberRow>> {
        self.say(&Question::Members)?;
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(Answer::Members(rows)) => Ok(rows),
            _ => bail!("no members: {line}"),
        }
    }

    /// Returns the state of the host of that number.
    ///
    /// # Errors
    /// If there is no answer.
    pub(crate) fn member(&mut self, id: usize) -> anyhow::Result<MemberRow> {
        let found = self.members()?.into_iter().find(|row| usize::from(row.id) == id);
        found.with_context(|| format!("there is no host {id}"))
    }
}

/// A stream of the events of a host.
pub(super) struct Watch(BufReader<UnixStream>);

impl Watch {
    /// Waits for the next event.
    ///
    /// # Errors
    /// If no event comes for a long time, or the host stops.
    pub(super) fn next(&mut self) -> anyhow::Result<EventRow> {
        loop {
            let mut line = String::new();
            ensure!(self.0.read_line(&mut line)? > 0, "the host has stopped");
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(&line)? {
                Answer::Event(row) => return Ok(row),
                other => bail!("not what was asked for: {other:?}"),
            }
        }
    }

    /// Returns the unread events, without waiting for more.
    ///
    /// # Errors
    /// If the host has stopped.
    pub(super) fn pending(&mut self) -> anyhow::Result<Vec<EventRow>> {
        let mut rows = Vec::new();
        self.0.get_ref().set_nonblocking(true)?;
        let mut line = String::new();
        while self.0.read_line(&mut line).is_ok_and(|size| size > 0) {
            if let Ok(Answer::Event(row)) = serde_json::from_str(&line) {
                rows.push(row);
            }
            line.clear();
        }
        self.0.get_ref().set_nonblocking(false)?;
        Ok(rows)
    }

    /// Waits for a matching event; returns the time of its arrival.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(super) fn wait(&mut self, wanted: impl Fn(&EventRow) -> bool) -> anyhow::Result<Instant> {
        while !wanted(&self.next()?) {}
        Ok(Instant::now())
    }
}

/// A packet socket that sends on the other end of a port.
pub(crate) struct Sender(L2Port);

impl Sender {
    /// Opens a sender on a device of a namespace.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub(super) fn open(machine: &Netns, device: &str) -> anyhow::Result<Self> {
        let mut config = L2Config::new(device);
        (config.ring_bytes, config.kernel) = (1, KernelShare::All);
        let port = machine.inside(|| L2Port::open(&config))??;
        Ok(Self(port))
    }

    /// Sends a frame as soon as there is room for it. With `last`, waits until all frames are sent.
    ///
    /// # Errors
    /// If the device is gone.
    pub(crate) fn send(&mut self, frame: &[u8], last: bool) -> anyhow::Result<()> {
        let size = u32::try_from(frame.len())?;
        let egress = Egress {
            header: frame,
            buf: None,
            strip: 0,
            size,
            first: 0,
            priority: Priority::ZERO,
            tunnel: None,
        };
        while self.0.offer(&egress) != Taken::All {
            self.0.flush()?;
        }
        while last && self.0.pending().frames > 0 {
            self.0.flush()?;
        }
        Ok(())
    }
}
