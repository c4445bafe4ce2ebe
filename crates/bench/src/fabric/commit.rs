//! Changes of the configuration of a fabric of three: one change, a thousand networks in one
//! transaction, a host that joins a fabric with a thousand networks and 100,000 endpoints, and what
//! tenants notice of changes. Beside them etcd, which has no members that may refuse.
//!
//! A change is asked for at a member's socket, one connection for each, as the command line does;
//! the time of starting a process is not in it. It ends when the change is in force at that member
//! and is known to have been applied by the others, which is later than etcd's answer: that comes
//! when the value is durable at a majority. All state is in the folder for temporary files, which
//! is on a disk unless somebody has mounted it elsewhere.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use sluice_api::fabric_config::{Operation, VnetSettings};
use sluice_api::results::Row;
use sluice_api::transaction::{How, Question};

use super::etcd::{self, Etcd};
use super::host::{Sender, Talk, program};
use super::learn;
use super::net::{Net, Netns, PATIENCE, cable, wait_for};
use super::{Plan, percentile, without_peer};

/// Members of the fabric.
const MEMBERS: usize = 3;
/// Networks of a large transaction.
const VNETS: u32 = 1_000;
/// Rounds of a large transaction, and of a join.
const ROUNDS_LARGE: usize = 5;
/// Pings with changes beside them, and without; so many of each.
const ROUNDS_BESIDE: usize = 5;
const PINGS: u32 = 2_000;
/// Changes a second beside pings, at most.
const CHANGES_PER_S: u32 = 10;
/// VNI of the first network that is made here.
const VNI: u32 = 10_000;

/// A host that was started without a fabric.
struct Host {
    dir: PathBuf,
    control: Child,
    program: PathBuf,
    container: Netns,
}

impl Host {
    fn start(net: &Net, name: &str, netns: &Netns, container: Netns) -> anyhow::Result<Self> {
        let (dir, program) = (net.dir().join(name), program()?);
        fs::create_dir_all(&dir)?;
        let text = format!("[host]\nname = \"{name}\"\nrun_dir = \"{}\"\n", dir.display());
        fs::write(dir.join("host.toml"), text)?;
        let control = sluice_netns::host::daemon(netns, &program, &dir)?;
        let host = Self { control, dir, program, container };
        host.wait_until_it_waits()?;
        Ok(host)
    }

    fn wait_until_it_waits(&self) -> anyhow::Result<()> {
        wait_for("a host waits for its fabric", || {
            let said = self.command(&["fabric", "status"]).output()?.stderr;
            Ok(String::from_utf8_lossy(&said).contains("in no fabric yet"))
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--run-dir").arg(&self.dir);
        command
    }

    /// Returns the output of `sluice WORDS`.
    fn says(&self, words: &[&str]) -> anyhow::Result<String> {
        let output = self.command(words).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {}", said.trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Makes a change; returns the time until it is in force here and known to be at all others.
    fn change(&self, change: Vec<Operation>) -> anyhow::Result<Duration> {
        let question = Question::Change { change, how: How::default() };
        let line = format!("{}\n", json!({ "transaction": question }));
        let begin = Instant::now();
        let mut stream = UnixStream::connect(self.dir.join("show.sock"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer)?;
        let time = begin.elapsed();
        let answer: Value = serde_json::from_str(&answer).context("the answer to a change")?;
        let behind = answer["committed"]["behind"].as_array();
        ensure!(behind.is_some_and(Vec::is_empty), "a change is not at all members: {answer}");
        Ok(time)
    }

    fn add_port(&self, ip: &str) -> anyhow::Result<()> {
        let words = ["port", "add", "--netns", self.container.name(), "--vnet", "blue", "--ip", ip];
        self.says(&words).map(drop)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The data process ends with its namespace.
        _ = self.control.kill();
        _ = self.control.wait();
    }
}

/// A fabric of three, and a host that is in none. The daemons end before their namespaces.
struct Fabric {
    hosts: Vec<Host>,
    /// Behind the first hosts, with many endpoints.
    crowds: [Netns; 2],
    _net: Net,
}

impl Fabric {
    fn start() -> anyhow::Result<Self> {
        let mut net = Net::new("commit")?;
        let wire = net.netns("wire")?;
        wire.ip("link add br0 type bridge")?;
        wire.ip("link set br0 up")?;
        let mut hosts = Vec::new();
        for id in 1..=MEMBERS + 1 {
            let (netns, container) = (net.netns(&format!("h{id}"))?, net.netns(&format!("c{id}"))?);
            cable((&netns, "up0"), (&wire, &format!("to{id}")))?;
            wire.ip(&format!("link set to{id} master br0"))?;
            netns.ip(&format!("addr add 192.0.2.{id}/24 dev up0"))?;
            hosts.push(Host::start(&net, &format!("h{id}"), &netns, container)?);
        }
        let crowds = [net.netns("crowd1")?, net.netns("crowd2")?];
        let fabric = Self { hosts, crowds, _net: net };
        fabric.hosts[0].says(&["fabric", "create", "bench", "--underlay", "up0"])?;
        for host in &fabric.hosts[1..MEMBERS] {
            fabric.join(host)?;
        }
        fabric.hosts[0].says(&["vnet", "create", "blue", "--vni", "42"])?;
        for (host, ip) in fabric.hosts.iter().zip(["10.42.0.1/24", "10.42.0.2/24"]) {
            host.add_port(ip)?;
        }
        for host in &fabric.hosts[..MEMBERS] {
            wait_for("a host takes changes", || Ok(host.change(create(1)).is_ok()))?;
            wait_for("a host takes changes", || Ok(host.change(delete(1)).is_ok()))?;
        }
        Ok(fabric)
    }

    fn join(&self, host: &Host) -> anyhow::Result<()> {
        let token = self.hosts[0].says(&["fabric", "token"])?;
        host.says(&["fabric", "join", "192.0.2.1", "--token", &token]).map(drop)
    }

    /// Returns the time from the command that joins until a container behind the host that has
    /// joined is answered by one behind another host.
    fn join_and_forward(&self) -> anyhow::Result<Duration> {
        let host = &self.hosts[MEMBERS];
        let begin = Instant::now();
        self.join(host)?;
        host.add_port("10.42.0.4/24")?;
        wait_for("a host that has joined forwards", || {
            Ok(host.container.run("ping -c 1 -W 1 10.42.0.1").is_ok())
        })?;
        let time = begin.elapsed();
        host.says(&["port", "del", &self.port_of(host)?])?;
        // Members may be busy with what has just come.
        wait_for("a host leaves", || Ok(host.says(&["fabric", "leave"]).is_ok()))?;
        host.wait_until_it_waits()?;
        Ok(time)
    }

    /// Lets two hosts learn many endpoints, each behind one port. One host remembers 65,536.
    fn fill(&self) -> anyhow::Result<()> {
        let set = |(key, value): (&str, u32)| Operation::Set {
            key: key.into(),
            value: Some(value.into()),
        };
        self.hosts[0].change(learn::LIMITS.into_iter().map(set).collect())?;
        for (at, (host, crowd)) in (0..).zip(self.hosts.iter().zip(&self.crowds)) {
            host.says(&["port", "add", "--netns", crowd.name(), "--vnet", "blue"])?;
            crowd.ip("link set eth0 up")?;
            let (sender, mut talk) = (Sender::open(crowd, "eth0")?, Talk::open(&host.dir)?);
            let numbers = at * learn::COUNT / 2..(at + 1) * learn::COUNT / 2;
            let own = usize::try_from(at)? + 1;
            learn::teach(sender, numbers, || Ok(talk.member(own)?.vports))?;
        }
        Ok(())
    }

    /// Returns the 99th percentile of round trips between containers of two hosts.
    fn data_p99(&self) -> anyhow::Result<f64> {
        let line = format!("ping -n -i 0.002 -c {PINGS} 10.42.0.1");
        let said = self.hosts[1].container.run(&line)?;
        let time = |line: &str| line.split_once("time=")?.1.split_once(' ')?.0.parse().ok();
        let times: Vec<f64> = said.lines().filter_map(time).collect();
        ensure!(times.len() == PINGS as usize, "{} of {PINGS} pings came back", times.len());
        Ok(percentile(&times, 99))
    }

    /// Returns the same with changes beside them, as a multiple of that without.
    fn data_p99_beside_changes(&self) -> anyhow::Result<f64> {
        let alone = self.data_p99()?;
        let ends = AtomicBool::new(false);
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0_u64.. {
                    if ends.load(Ordering::Relaxed) && number % 2 == 0 {
                        break;
                    }
                    // A member that is busy, and refuses, costs tenants as much.
                    _ = self.hosts[2].change(if number % 2 == 0 { create(1) } else { delete(1) });
                    std::thread::sleep(Duration::from_secs(1) / CHANGES_PER_S);
                }
            });
            let beside = self.data_p99();
            ends.store(true, Ordering::Relaxed);
            beside
        })?;
        Ok(beside / alone)
    }

    fn port_of(&self, host: &Host) -> anyhow::Result<String> {
        let rows: Value = serde_json::from_str(&host.says(&["show", "ports", "--json"])?)?;
        let ports = rows["ports"].as_array().into_iter().flatten();
        let mut names = ports.filter_map(|row| row["port"].as_str());
        let name = names.find(|name| *name != "underlay").context("the host has a port")?;
        Ok(name.to_owned())
    }
}

fn create(count: u32) -> Vec<Operation> {
    let make = |at: u32| Operation::CreateVnet {
        name: format!("n{at}"),
        vnet: VnetSettings::new(VNI + at),
    };
    (0..count).map(make).collect()
}

fn delete(count: u32) -> Vec<Operation> {
    (0..count).map(|at| Operation::DeleteVnet { name: format!("n{at}") }).collect()
}

/// Measures changes and joins.
pub(super) fn rows(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let fabric = Fabric::start()?;
    let mut etcd = match etcd::obstacle() {
        None => {
            println!("the peer: {}", etcd::version());
            without_peer(Etcd::start())
        }
        Some(obstacle) => {
            eprintln!("SKIPPED the peer: {obstacle}");
            None
        }
    };
    let [mut ours, mut theirs] = [const { Vec::new() }; 2];
    for number in 0..plan.samples {
        let host = &fabric.hosts[number as usize / 2 % MEMBERS];
        let change = if number % 2 == 0 { create(1) } else { delete(1) };
        ours.push(host.change(change)?.as_secs_f64());
        if let Some(mut peer) = etcd.take() {
            // A peer that fails once is not asked again.
            if let Some(time) = without_peer(peer.put(number)) {
                theirs.push(time.as_secs_f64());
                etcd = Some(peer);
            }
        }
    }
    drop(etcd);
    let mut rows = Vec::new();
    let beside: anyhow::Result<Vec<f64>> =
        (0..ROUNDS_BESIDE).map(|_| fabric.data_p99_beside_changes()).collect();
    rows.push(
        Row::new("commit.data_p99", "sluice", "ratio", beside?)
            .with("hosts", MEMBERS)
            .with("changes_per_s", CHANGES_PER_S),
    );
    for (subject, values) in [("sluice", ours), ("etcd", theirs)] {
        if !values.is_empty() {
            let p99 = percentile(&values, 99);
            rows.extend([row("commit", subject, 50, 1, values)]);
            rows.extend([row("commit", subject, 99, 1, vec![p99])]);
        }
    }
    match large(&fabric) {
        Ok(both) => rows.extend(both),
        // What was measured before is kept.
        Err(error) => eprintln!("NO FIGURE of {VNETS} networks: {error:#}"),
    }
    Ok(rows)
}

/// Measures large transactions, and joins of a fabric that has many networks.
fn large(fabric: &Fabric) -> anyhow::Result<[Row; 3]> {
    let [mut large, mut removals, mut joins] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS_LARGE {
        large.push(fabric.hosts[0].change(create(VNETS))?.as_secs_f64());
        removals.push(fabric.hosts[1].change(delete(VNETS))?.as_secs_f64());
    }
    fabric.hosts[0].change(create(VNETS))?;
    fabric.fill()?;
    for _ in 0..ROUNDS_LARGE {
        joins.push(fabric.join_and_forward()?.as_secs_f64());
    }
    let join = row("join", "sluice", 50, VNETS, joins).with("vports", learn::COUNT);
    let removal = row("commit.removal", "sluice", 50, VNETS, removals);
    Ok([row("commit", "sluice", 50, VNETS, large), removal, join])
}

fn row(measure: &str, subject: &str, percentile: u32, entries: u32, values: Vec<f64>) -> Row {
    let row = Row::new(measure, subject, "s", values).with("percentile", percentile);
    row.with("hosts", MEMBERS).with("entries", entries)
}
