//! The two hosts, and the processes on them.
//!
//! ```text
//!   a: sender (VXLAN 77) ─ wire ══ b: wire (steered) ─ vx ─ bridge ─ veth ─ eth0: guest
//!                               ══ b: wire ─ sluice daemon ─ TAP ─ eth0: guest
//! ```

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use serde_json::Value;

use super::{GUEST_MAC, SENDER_MAC, VNI};
use crate::fabric::host::program;
use crate::fabric::net::{Net, Netns, cable, signal, wait_for};

/// The hosts. They exist until this is dropped.
pub(super) struct Rig {
    pub(super) a: Netns,
    pub(super) b: Netns,
    pub(super) guest: Netns,
    net: Net,
}

impl Rig {
    /// Makes two hosts and a guest.
    fn new(word: &str) -> anyhow::Result<Self> {
        let mut net = Net::new(word)?;
        let (a, b, guest) = (net.netns("a")?, net.netns("b")?, net.netns("guest")?);
        cable((&a, "wire"), (&b, "wire"))?;
        a.ip("addr replace 192.0.2.1/24 dev wire")?;
        b.ip("addr replace 192.0.2.2/24 dev wire")?;
        // An incomplete datagram is kept for 30 s by default, and with some 350 of them the guest
        // accepts no more fragments: losses before a window would decide its result.
        for (name, value) in [("ipfrag_time", 1), ("ipfrag_high_thresh", 256 << 20)] {
            guest.run(&format!("sh -c echo${{IFS}}{value}>/proc/sys/net/ipv4/{name}"))?;
        }
        // The guest's addresses are local on any device.
        guest.ip("route add local 10.9.0.96/27 dev lo")?;
        Ok(Self { a, b, guest, net })
    }

    /// Gives the second host the kernel's VXLAN, and a bridge to the guest.
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn kernel() -> anyhow::Result<Self> {
        let rig = Self::new("steer-k")?;
        let Self { b, guest, .. } = &rig;
        cable((b, "tap"), (guest, "eth0"))?;
        b.ip(&format!(
            "link add vx type vxlan id {VNI} nolearning local 192.0.2.2 remote 192.0.2.1 \
             dstport 4789"
        ))?;
        b.ip("link set vx up")?;
        b.ip("link add bridge type bridge")?;
        for device in ["vx", "tap"] {
            b.ip(&format!("link set {device} master bridge"))?;
        }
        b.ip("link set bridge up")?;
        b.run(&format!("bridge fdb replace {GUEST_MAC} dev tap master static"))?;
        guest.ip(&format!("link set eth0 address {GUEST_MAC}"))?;
        Ok(rig)
    }

    /// Makes a rig whose second host will run Sluice ([`Rig::daemon`]).
    ///
    /// # Errors
    /// An error of the kernel.
    pub(super) fn sluice() -> anyhow::Result<Self> {
        Self::new("steer-s")
    }

    /// Starts Sluice on the second host, with the data workers of these configuration lines. The
    /// guest is at a TAP.
    ///
    /// # Errors
    /// The output of the daemon.
    pub(super) fn daemon(&self, workers: &str) -> anyhow::Result<Daemon> {
        let dir = self.net.dir();
        // A UDP socket cannot be paused, so its input bridges the time in which a worker waits for
        // its core. A deeper input would keep placement entries on a worker that lags behind.
        let text = format!(
            "[host]\nname = \"b\"\nrun_dir = \"{}\"\npolicy = \"ZL\"\n{workers}\n\
             [underlay]\nkind = \"udp\"\ndevice = \"wire\"\naddress = \"192.0.2.2\"\n\
             link = {{ in = {{ frames = 1024, bytes = 2000000 }} }}\n\n\
             [[vnet]]\nname = \"blue\"\nvni = {VNI}\n\n\
             [[peer]]\nname = \"a\"\nvtep = \"192.0.2.1\"\nvnets = [\"blue\"]\n\n\
             [[vport]]\nvnet = \"blue\"\nmac = \"{SENDER_MAC}\"\npeer = \"a\"\n\n\
             [[port]]\nname = \"guest\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"eth0\"\n\
             netns = \"{}\"\nmac = \"{GUEST_MAC}\"\n",
            dir.join("run").display(),
            self.guest.path().display(),
        );
        let (file, log) = (dir.join("host.toml"), dir.join("log"));
        std::fs::write(&file, text)?;
        let child = sluice_netns::host::daemon(&self.b, &program()?, dir)?;
        let mut daemon = Daemon(child);
        wait_for("the guest's device is there", || {
            if daemon.0.try_wait()?.is_some() {
                bail!("sluice daemon: {}", std::fs::read_to_string(&log)?);
            }
            Ok(self.guest.ip("link set eth0 up").is_ok())
        })?;
        Ok(daemon)
    }
}

/// A running `sluice daemon`; killed when this is dropped.
pub(super) struct Daemon(Child);

impl Daemon {
    /// Returns the process id of the daemon, the parent of the data process.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        _ = signal(&self.0, Signal::TERM);
        _ = self.0.wait();
    }
}

/// A process that answers each line with numbers and ends with its input.
pub(super) struct Talker {
    child: Child,
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
}

impl Talker {
    /// Starts this program with other arguments.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(super) fn start(netns: &Netns, words: &str) -> anyhow::Result<Self> {
        let mut command = netns.command(&std::env::current_exe()?);
        command.args(words.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start this program again")?;
        let ask = child.stdin.take();
        let answer = BufReader::new(child.stdout.take().context("it has an output")?);
        Ok(Self { child, ask, answer })
    }

    /// Asks for the counters so far.
    ///
    /// # Errors
    /// If the process has ended.
    pub(super) fn ask<const N: usize>(&mut self) -> anyhow::Result<[u64; N]> {
        self.ask.as_mut().context("it listens")?.write_all(b"\n")?;
        let mut line = String::new();
        self.answer.read_line(&mut line)?;
        let numbers: Vec<u64> = line.split_whitespace().flat_map(str::parse).collect();
        numbers.try_into().map_err(|_| anyhow::anyhow!("a process has ended: {line:?}"))
    }
}

impl Drop for Talker {
    fn drop(&mut self) {
        drop(self.ask.take());
        _ = self.child.wait();
    }
}

/// A running `sluice steer` on the wire of host b; killed when this is dropped.
pub(super) struct Steer(Option<Child>);

impl Steer {
    /// Starts `sluice steer` and waits until it is active.
    ///
    /// # Errors
    /// The output of the program.
    pub(super) fn start(b: &Netns, words: &str) -> anyhow::Result<Self> {
        let mut command = b.command(&program()?);
        command.args(["steer", "wire", "--json"]).args(words.split_whitespace());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut steer = Self(Some(child));
        let is_rps = words.contains("--xdp rps");
        wait_for("the wire is steered", || {
            let child = steer.0.as_mut().context("it was started")?;
            if child.try_wait()?.is_some() {
                bail!("sluice steer {words}: {}", steer.said()?.1);
            }
            Ok(if is_rps {
                let mask = b.run("cat /sys/class/net/wire/queues/rx-0/rps_cpus")?;
                mask.contains(|digit: char| digit.is_ascii_hexdigit() && digit != '0')
            } else {
                b.ip("link show dev wire")?.contains("xdp")
            })
        })?;
        Ok(steer)
    }

    /// Waits for the end of the program; returns true for success, and the output.
    fn said(&mut self) -> anyhow::Result<(bool, String)> {
        let output = self.0.take().context("it ends once")?.wait_with_output()?;
        let text = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text));
        Ok((output.status.success(), text.concat()))
    }

    /// Ends the program; returns its last line.
    ///
    /// # Errors
    /// If the program fails.
    pub(super) fn end(mut self) -> anyhow::Result<Value> {
        signal(self.0.as_ref().context("it ends once")?, Signal::INT)?;
        let (is_well, said) = self.said()?;
        ensure!(is_well, "sluice steer: {said}");
        let last = said.lines().last().context("sluice steer says nothing")?;
        serde_json::from_str(last).with_context(|| format!("sluice steer says {last}"))
    }
}

impl Drop for Steer {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            _ = child.kill();
            _ = child.wait();
        }
    }
}
