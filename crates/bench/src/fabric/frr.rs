//! The peer: FRR's BGP-EVPN (RFC 7432, RFC 8365) between two namespaces, a kernel bridge with a
//! VXLAN device in each.
//!
//! ```text
//!   p0 ─┤ br100 ├─ vx100 ─ up0 ════════ up0 ─ vx100 ─┤ br100 ├─ p0
//!           zebra, bgpd                      zebra, bgpd
//! ```
//!
//! The kernel learns nothing by itself: remote addresses come from BGP, local ones are put into the
//! bridge by hand. Timers are those that FRR recommends for data centres: keepalive 3 s, hold 9 s.
//! The package's own service is not used.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::process::Signal;
use sluice_base::Mac;

use super::host::mac_of;
use super::net::{Net, Netns, PATIENCE, cable, is_installed, run, signal};

/// Folder of the package's daemons.
const DAEMONS: &str = "/usr/lib/frr";
/// After this time without a line, the count in the bridge is checked.
const QUIET: Duration = Duration::from_secs(1);
/// Lines that may wait to be read: more than arrive at once.
const LINES_MAX: usize = 1 << 18;
/// Time for a reset session to begin to come up again.
const RECONNECT: Duration = Duration::from_secs(2);
/// Addresses of each host that are not counted.
const PROBES: u32 = 1;

/// A line of `bridge monitor fdb` about an address at the other host.
#[derive(Clone, Debug)]
struct FdbLine {
    mac: String,
    gone: bool,
    at: Instant,
}

/// One host.
struct Host {
    netns: Netns,
    dir: std::path::PathBuf,
    zebra: Child,
    bgpd: Child,
    monitor: Child,
    told: Receiver<FdbLine>,
    bridge: Child,
    commands: ChildStdin,
}

/// Two hosts that are connected by BGP.
pub(super) struct Frr {
    hosts: [Host; 2],
    _net: Net,
}

/// Returns the reason why FRR cannot take part; `None` if it can.
pub(super) fn obstacle() -> Option<String> {
    let there = Path::new(DAEMONS).join("bgpd").is_file() && is_installed("vtysh");
    (!there).then(|| "FRR is not installed (scripts/setup.sh bench)".to_owned())
}

/// Returns the version of FRR, for people.
pub(super) fn version() -> String {
    let said = run(&format!("{DAEMONS}/bgpd --version")).unwrap_or_default();
    said.lines().next().unwrap_or("FRR").to_owned()
}

impl Frr {
    /// Starts both hosts and waits until an address of one is at the other.
    ///
    /// # Errors
    /// If a host does not start.
    pub(super) fn start() -> anyhow::Result<Self> {
        let mut net = Net::new("frr")?;
        let (one, other) = (net.netns("f1")?, net.netns("f2")?);
        cable((&one, "up0"), (&other, "up0"))?;
        let hosts = [Host::start(&net, one, 1)?, Host::start(&net, other, 2)?];
        let mut frr = Self { hosts, _net: net };
        for (from, to) in [(0, 1), (1, 0)] {
            let mac = Mac::from_u64(0x0600_0000_0000 + from as u64);
            frr.hosts[from].put(mac)?;
            frr.hosts[to].wait(mac, false).context("FRR does not pass addresses on")?;
        }
        Ok(frr)
    }

    /// Returns the time until the second host has a new address of the first one.
    ///
    /// # Errors
    /// If the address does not arrive.
    pub(super) fn appears(&mut self, number: u32) -> anyhow::Result<Duration> {
        let mac = mac_of(number);
        let begin = Instant::now();
        self.hosts[0].put(mac)?;
        Ok(self.hosts[1].wait(mac, false)? - begin)
    }

    /// Returns the time until the first host knows that one of its addresses has moved to the
    /// second.
    ///
    /// # Errors
    /// If the first host does not notice.
    pub(super) fn moves(&mut self, number: u32) -> anyhow::Result<Duration> {
        let mac = mac_of(number);
        self.hosts[0].told.try_iter().for_each(drop);
        let begin = Instant::now();
        self.hosts[1].put(mac)?;
        Ok(self.hosts[0].wait(mac, false)? - begin)
    }
}

/// Number of the first endpoint of [`Frr::bulk`].
const BULK: u32 = 0x10_0000;

impl Frr {
    /// Puts `count` addresses into the bridge of the first host at once; returns the time until the
    /// second host has them all.
    ///
    /// # Errors
    /// If the second host does not get them.
    pub(super) fn bulk(&mut self, count: u32) -> anyhow::Result<Duration> {
        self.hosts[1].told.try_iter().for_each(drop);
        let begin = Instant::now();
        self.hosts[0].batch("replace", "master dynamic", count)?;
        let end = self.hosts[1].count(count..=u32::MAX)?;
        Ok(end - begin)
    }

    /// Removes the addresses of [`Self::bulk`].
    ///
    /// # Errors
    /// If they do not disappear.
    pub(super) fn remove(&mut self, count: u32) -> anyhow::Result<()> {
        self.hosts[0].batch("del", "master", count)?;
        self.hosts[1].count(0..=count / 2)?;
        Ok(())
    }

    /// Resets the session; returns the time until all addresses are back, and the number withdrawn.
    ///
    /// # Errors
    /// If the addresses do not come back.
    pub(super) fn reset(&mut self, count: u32) -> anyhow::Result<(Duration, u32)> {
        self.hosts[1].told.try_iter().for_each(drop);
        let dir = self.hosts[1].dir.display().to_string();
        let begin = Instant::now();
        let mut command = std::process::Command::new("vtysh");
        let command = command.args(["--vty_socket", &dir, "-c", "clear bgp l2vpn evpn *"]);
        let output = command.output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let (mut least, until) = (u32::MAX, Instant::now() + RECONNECT);
        // The smallest number seen in the bridge: lines of withdrawals may be lost.
        while Instant::now() < until && least > 0 {
            least = least.min(self.hosts[1].remote()?.saturating_sub(PROBES));
        }
        let end = self.hosts[1].count(count..=u32::MAX)?;
        Ok((end - begin, count - least.min(count)))
    }

    /// Stops `bgpd` of the first host; returns the time until its addresses are gone.
    ///
    /// # Errors
    /// If the addresses stay.
    pub(super) fn hangs(&mut self) -> anyhow::Result<Duration> {
        let mac = Mac::from_u64(0x0600_0000_0000);
        self.hosts[0].put(mac)?;
        std::thread::sleep(Duration::from_millis(500));
        self.hosts[1].told.try_iter().for_each(drop);
        let begin = Instant::now();
        signal(&self.hosts[0].bgpd, Signal::STOP)?;
        let end = self.hosts[1].wait(mac, true);
        signal(&self.hosts[0].bgpd, Signal::CONT)?;
        let end = end?;
        self.hosts[1].wait(mac, false)?;
        Ok(end - begin)
    }
}

impl Host {
    /// Adds or deletes `count` addresses in one batch of `bridge` commands.
    fn batch(&self, verb: &str, rest: &str, count: u32) -> anyhow::Result<()> {
        let path = self.dir.join("batch");
        let mut text = String::new();
        for mac in (BULK..BULK + count).map(mac_of) {
            _ = writeln!(text, "fdb {verb} {mac} dev p0 {rest}");
        }
        fs::write(&path, text)?;
        self.netns.run(&format!("bridge -batch {}", path.display()))?;
        Ok(())
    }

    /// Waits until the number of addresses of the other host is in the range; returns the time of
    /// the kernel's last line. The kernel loses lines when there are many, so the addresses are
    /// counted in the bridge, too, whenever no line has come for a while.
    fn count(&mut self, there: std::ops::RangeInclusive<u32>) -> anyhow::Result<Instant> {
        let (mut last, until) = (Instant::now(), Instant::now() + 4 * PATIENCE);
        loop {
            match self.told.recv_timeout(QUIET) {
                Ok(line) => last = line.at,
                Err(_) if there.contains(&self.remote()?) => return Ok(last),
                Err(_) => ensure!(Instant::now() < until, "{} are there", self.remote()?),
            }
        }
    }

    /// Returns the number of the other host's addresses in the bridge.
    fn remote(&self) -> anyhow::Result<u32> {
        let text = self.netns.run("bridge fdb show dev vx100")?;
        Ok(u32::try_from(text.lines().filter(|line| line.contains("master")).count())?)
    }

    fn start(net: &Net, netns: Netns, id: usize) -> anyhow::Result<Self> {
        let dir = net.dir().join(format!("f{id}"));
        fs::create_dir_all(&dir)?;
        // The daemons of FRR change to a user of their own before they make their sockets here.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777))?;
        let address = format!("192.0.2.{id}");
        for line in [
            format!("addr add {address}/24 dev up0"),
            "link add br100 type bridge".to_owned(),
            format!("link add vx100 type vxlan id 100 local {address} dstport 4789 nolearning"),
            "link set vx100 master br100".to_owned(),
            "link add p0 type veth peer name q0".to_owned(),
            "link set p0 master br100".to_owned(),
        ] {
            netns.ip(&line)?;
        }
        for device in ["br100", "vx100", "p0", "q0"] {
            netns.ip(&format!("link set {device} up"))?;
        }
        netns.run("bridge link set dev vx100 learning off neigh_suppress on")?;
        fs::write(dir.join("zebra.conf"), "hostname bench\n")?;
        fs::write(dir.join("bgpd.conf"), bgp(id))?;
        let zebra = daemon(&netns, &dir, "zebra")?;
        std::thread::sleep(Duration::from_millis(500));
        let bgpd = daemon(&netns, &dir, "bgpd")?;
        let mut command = netns.command(Path::new("bridge"));
        // `bridge` reports lost lines on standard error, which is expected.
        command.args(["monitor", "fdb"]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut monitor = command.spawn()?;
        let lines = BufReader::new(monitor.stdout.take().context("a pipe was asked for")?);
        let (sender, told) = sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some(line) = parse(&line)
                    && sender.send(line).is_err()
                {
                    return;
                }
            }
        });
        let mut bridge = netns.command(Path::new("bridge"));
        let mut bridge = bridge.args(["-batch", "-"]).stdin(Stdio::piped()).spawn()?;
        let commands = bridge.stdin.take().context("a pipe was asked for")?;
        Ok(Self { netns, dir, zebra, bgpd, monitor, told, bridge, commands })
    }

    /// Puts an address behind the local port.
    fn put(&mut self, mac: Mac) -> anyhow::Result<()> {
        self.commands.write_all(format!("fdb replace {mac} dev p0 master dynamic\n").as_bytes())?;
        Ok(self.commands.flush()?)
    }

    /// Waits until the kernel reports an address at the other host.
    fn wait(&mut self, mac: Mac, gone: bool) -> anyhow::Result<Instant> {
        let (text, until) = (mac.to_string(), Instant::now() + PATIENCE);
        loop {
            let line = self.told.recv_timeout(until.saturating_duration_since(Instant::now()));
            let line = line.with_context(|| format!("FRR tells nothing of {mac}"))?;
            if line.mac == text && line.gone == gone {
                return Ok(line.at);
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in [&mut self.bridge, &mut self.monitor, &mut self.bgpd, &mut self.zebra] {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

/// Parses a line of the kernel about an address behind the VXLAN device.
fn parse(line: &str) -> Option<FdbLine> {
    let (gone, rest) = line.strip_prefix("Deleted ").map_or((false, line), |rest| (true, rest));
    // The kernel reports each address twice: for the bridge, and for the device.
    if !rest.contains("dev vx100") || !rest.contains("master") {
        return None;
    }
    Some(FdbLine { mac: rest.split(' ').next()?.to_owned(), gone, at: Instant::now() })
}

/// Starts a daemon of FRR.
fn daemon(netns: &Netns, dir: &Path, name: &str) -> anyhow::Result<Child> {
    let path = Path::new(DAEMONS).join(name);
    let log = File::create(dir.join(format!("{name}.log")))?;
    let mut command = netns.command(&path);
    command.arg("-f").arg(dir.join(format!("{name}.conf")));
    command.arg("-i").arg(dir.join(format!("{name}.pid")));
    command.arg("-z").arg(dir.join("zserv.api")).arg("--vty_socket").arg(dir);
    command.args(["-P", "0", "--log", "stdout"]);
    if name == "zebra" {
        // The package's value: with a smaller buffer, a burst from the kernel is lost.
        command.args(["-s", "90000000"]);
    }
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", path.display()))
}

/// Returns the configuration of BGP for host 1 or 2.
fn bgp(id: usize) -> String {
    let other = 3 - id;
    format!(
        "router bgp 65000
 bgp router-id 192.0.2.{id}
 no bgp default ipv4-unicast
 timers bgp 3 9
 neighbor 192.0.2.{other} remote-as 65000
 neighbor 192.0.2.{other} timers connect 1
 address-family l2vpn evpn
  neighbor 192.0.2.{other} activate
  advertise-all-vni
 exit-address-family
"
    )
}
