//! Two containers, on one host or on two, and a TCP flow between them.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use rustix::process::Signal;

use super::{Card, MTU, Setup, Subject, Underlay};
use crate::fabric::host::program;
use crate::fabric::net::{Net, Netns, cable, signal, veth_pair, wait_for};

/// Bytes of a datagram: with its headers it fits into the network's MTU.
const UDP_BYTES: u16 = 1_400;

/// Two containers that can reach each other. Daemons end before their namespaces.
pub(super) struct Pair {
    pub(super) containers: [Netns; 2],
    daemons: Vec<Child>,
    data: Vec<u32>,
    net: Net,
}

impl Pair {
    pub(super) const ADDRESSES: [Ipv4Addr; 2] =
        [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];

    pub(super) fn new(setup: Setup, setting: &str) -> anyhow::Result<Self> {
        let Setup { subject, hosts, .. } = setup;
        let mut net = Net::new(subject.name())?;
        let containers = [net.netns("c1")?, net.netns("c2")?];
        let spaces = (1..=hosts).map(|host| net.netns(&format!("h{host}")));
        let spaces: Vec<Netns> = spaces.collect::<anyhow::Result<_>>()?;
        if let [one, other] = &spaces[..] {
            wire(setup, (one, "up0"), (other, "up0"))?;
        }
        let mut pair = Self { containers, daemons: Vec::new(), data: Vec::new(), net };
        match subject {
            Subject::Bridge => pair.bridge(setup, &spaces)?,
            Subject::Sluice => pair.daemons(setup, &spaces, setting)?,
        }
        Ok(pair)
    }

    /// Makes a bridge on each host; a tunnel makes one network of two.
    fn bridge(&self, setup: Setup, spaces: &[Netns]) -> anyhow::Result<()> {
        for (index, space) in spaces.iter().enumerate() {
            space.ip("link add br0 type bridge")?;
            space.ip("link set br0 up")?;
            if setup.underlay == Underlay::Vxlan {
                let (own, other) = (index + 1, 2 - index);
                space.ip(&format!("addr add 192.0.2.{own}/24 dev up0"))?;
                space.ip(&format!(
                    "link add vx0 type vxlan id 42 local 192.0.2.{own} remote 192.0.2.{other} \
                     dstport 4789 dev up0"
                ))?;
                space.ip(&format!("link set vx0 mtu {MTU} master br0 up"))?;
            }
        }
        for (index, container) in self.containers.iter().enumerate() {
            let space = &spaces[index.min(spaces.len() - 1)];
            let there = format!("to{index}");
            wire(setup, (container, "eth0"), (space, &there))?;
            space.ip(&format!("link set {there} master br0"))?;
            container.ip(&format!("link set eth0 mtu {MTU}"))?;
            container.ip(&format!("addr add {}/24 dev eth0", Self::ADDRESSES[index]))?;
        }
        Ok(())
    }

    fn daemons(&mut self, setup: Setup, spaces: &[Netns], setting: &str) -> anyhow::Result<()> {
        let program = program()?;
        for (index, space) in spaces.iter().enumerate() {
            let dir = self.net.dir().join(format!("h{}", index + 1));
            fs::create_dir_all(&dir)?;
            if spaces.len() > 1 {
                space.ip(&format!("addr add 192.0.2.{}/24 dev up0", index + 1))?;
            }
            let config = self.config(setup, index, &dir, setting);
            fs::write(dir.join("host.toml"), config)?;
            self.daemons.push(sluice_netns::host::daemon(space, &program, &dir)?);
            wait_for("a daemon answers", || answers(&program, &dir))?;
            let pid = fs::read_to_string(dir.join("data.pid")).context("the data process")?;
            self.data.push(pid.trim().parse()?);
        }
        for (container, address) in self.containers.iter().zip(Self::ADDRESSES) {
            container.ip(&format!("addr add {address}/24 dev eth0"))?;
        }
        Ok(())
    }

    /// Returns the configuration file of a host.
    fn config(&self, setup: Setup, index: usize, dir: &Path, setting: &str) -> String {
        let Setup { card, hosts, underlay, offload, .. } = setup;
        let mut text = format!(
            "[host]\nname = \"h{}\"\nrun_dir = \"{}\"\npolicy = \"{}\"\n{setting}\n",
            index + 1,
            dir.display(),
            underlay.policy()
        );
        let mac = |at: usize| format!("02:00:00:00:00:0{}", at + 1);
        if hosts > 1 {
            let other = 1 - index;
            text += &format!(
                "[underlay]\nkind = \"{}\"\ndevice = \"up0\"\naddress = \"192.0.2.{}\"\n\
                 [[peer]]\nname = \"h{}\"\nvtep = \"192.0.2.{}\"\nvnets = [\"blue\"]\n\
                 [[vport]]\nvnet = \"blue\"\npeer = \"h{}\"\nmac = \"{}\"\nip = \"{}\"\n",
                underlay.name(),
                index + 1,
                other + 1,
                other + 1,
                other + 1,
                mac(other),
                Self::ADDRESSES[other]
            );
        }
        if card == Card::Kernel {
            text += "[chip]\nkind = \"kernel\"\n";
        }
        text += &format!("[[vnet]]\nname = \"blue\"\nvni = 42\nmtu = {MTU}\n");
        for (at, container) in self.containers.iter().enumerate() {
            if hosts > 1 && at != index {
                continue;
            }
            text += &format!(
                "[[port]]\nname = \"c{at}\"\nkind = \"{}\"\nvnet = \"blue\"\ndevice = \"eth0\"\n\
                 netns = \"{}\"\nmac = \"{}\"\n",
                card.name(),
                container.path().display(),
                mac(at)
            );
            if card == Card::Tap {
                text += &format!("offload = {offload}\n");
            }
        }
        text
    }

    /// Returns the processor time of the data processes, in seconds.
    fn data_time(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for pid in &self.data {
            let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
            // Fields after the name, which may have blanks: state is the third field.
            let fields: Vec<&str> =
                text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
            sum += ticks / 100.0;
        }
        Ok(sum)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            if signal(daemon, Signal::TERM).is_ok() {
                _ = daemon.wait();
            }
        }
    }
}

/// A cable of the peer's, or between hosts: with the kernel's offloads, or without.
fn wire(setup: Setup, left: (&Netns, &str), right: (&Netns, &str)) -> anyhow::Result<()> {
    let lay = if setup.offload { veth_pair } else { cable };
    Ok(lay(left, right)?)
}

fn answers(program: &Path, dir: &Path) -> anyhow::Result<bool> {
    let mut command = Command::new(program);
    let output = command.args(["show", "ports", "--run-dir"]).arg(dir).output()?;
    Ok(output.status.success())
}

/// Flows from the first container to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flows {
    /// So many TCP flows.
    Tcp(usize),
    /// One of UDP, as fast as the sender's kernel takes it.
    Udp,
}

/// Result of flows.
pub(super) struct Streamed {
    /// Rate at the receiver.
    pub(super) bits_per_s: f64,
    /// Part of the datagrams that did not come, in percent.
    pub(super) lost_percent: f64,
    /// Processor time of both ends and of the data processes, per second.
    pub(super) cores: f64,
}

/// Flows that run.
pub(super) struct Stream {
    flows: Flows,
    server: Child,
    client: Child,
    began: Instant,
    data_before: f64,
}

impl Stream {
    pub(super) fn start(pair: &Pair, flows: Flows, seconds: u64) -> anyhow::Result<Self> {
        let iperf = Path::new("iperf3");
        let mut server = pair.containers[1].command(iperf);
        let server = server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null());
        let server = server.spawn()?;
        wait_for("iperf3 listens", || {
            Ok(pair.containers[1].run("ss -Hltn sport = :5201")?.contains("5201"))
        })?;
        let data_before = pair.data_time()?;
        let mut client = pair.containers[0].command(iperf);
        client.args(["-c", &Pair::ADDRESSES[1].to_string(), "-J"]);
        client.args(["-t", &seconds.to_string()]);
        match flows {
            Flows::Tcp(count) => client.args(["-P", &count.to_string()]),
            Flows::Udp => client.args(["-u", "-b", "0", "-l", &UDP_BYTES.to_string()]),
        };
        let client = client.stdout(Stdio::piped()).spawn()?;
        Ok(Self { flows, server, client, began: Instant::now(), data_before })
    }

    pub(super) fn end(mut self, pair: &Pair) -> anyhow::Result<Streamed> {
        let output = self.client.wait_with_output()?;
        let data = pair.data_time()? - self.data_before;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        self.server.wait()?;
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let end = &said["end"];
        let number = |value: &serde_json::Value| value.as_f64().context("a number of iperf3");
        let percent = &end["cpu_utilization_percent"];
        let ends = number(&percent["host_total"])? + number(&percent["remote_total"])?;
        let cores = ends / 100.0 + data / self.began.elapsed().as_secs_f64();
        let bits_per_s = number(&end["sum_received"]["bits_per_second"])?;
        let lost_percent = match self.flows {
            Flows::Tcp(_) => 0.0,
            Flows::Udp => number(&end["sum"]["lost_percent"])?,
        };
        Ok(Streamed { bits_per_s, lost_percent, cores })
    }
}
