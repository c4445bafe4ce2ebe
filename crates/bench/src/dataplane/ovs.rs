//! Open vSwitch with DPDK, as an instance of its own: its database, its sockets and its TAPs are in
//! a folder and a network namespace that are removed with it. The machine's own instance is not
//! touched.
//!
//! ```text
//!   guests ══ br0: one flow for each address ══ vxlan ┄ br-phy ══ the underlay's guest
//! ```
//!
//! The switch connects to sockets of the guests (`dpdkvhostuserclient`). Its control threads are on
//! the core of its forwarding thread, so no query is sent to it during a measurement.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use sluice_testkit::load::frame::End;

use super::machine::{Running, SWITCH_CORE, is_installed, program};
use super::subject::{PATIENCE, Ports, REMOTE, VNI, VTEPS, Wiring, end, ip, mac};

/// Debian's program with DPDK; the default one may lack it.
const VSWITCHD: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Memory of the buffers, in MiB.
const SOCKET_MIB: u32 = 384;

pub(super) fn obstacle() -> Option<String> {
    let there = Path::new(VSWITCHD).is_file() && is_installed("ovs-vsctl");
    (!there).then(|| {
        "Open vSwitch with DPDK is not installed (Debian: apt-get install openvswitch-switch-dpdk)"
            .to_owned()
    })
}

/// Returns the version, for people.
pub(super) fn version() -> String {
    let output = Command::new(VSWITCHD).arg("--version").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    text.lines().collect::<Vec<_>>().join(", ")
}

/// Runs one of its tools.
fn tool(dir: &Path, name: &str, args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(name);
    command.env("OVS_RUNDIR", dir).env("OVS_DBDIR", dir).env("OVS_LOGDIR", dir);
    let output = command.args(args).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} {}: {}", args.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn vsctl(dir: &Path, words: &str) -> anyhow::Result<String> {
    let db = format!("--db=unix:{}", dir.join("db.sock").display());
    // Without a time limit the tool waits for ever for a switch that died.
    let mut args = vec!["--timeout=20", &db];
    args.extend(words.split_whitespace());
    tool(dir, "ovs-vsctl", &args)
}

pub(super) fn start(dir: &Path, wiring: Wiring) -> anyhow::Result<Ports> {
    let path = |name: &str| dir.join(name).display().to_string();
    _ = std::fs::remove_file(path("conf.db"));
    _ = std::fs::remove_file(path("db.sock"));
    tool(dir, "ovsdb-tool", &["create", &path("conf.db"), SCHEMA])?;
    let mut database = program(dir, "ovsdb", false)?;
    database.arg("ovsdb-server").arg(path("conf.db"));
    database.arg(format!("--remote=punix:{}", path("db.sock")));
    database.arg(format!("--unixctl={}", path("ovsdb.ctl"))).env("OVS_RUNDIR", dir);
    let database = Running(database.stdin(Stdio::null()).spawn()?);
    wait_for_file(&dir.join("db.sock"))?;
    let mask = 1 << SWITCH_CORE;
    vsctl(dir, "--no-wait init")?;
    vsctl(
        dir,
        &format!(
            "--no-wait set Open_vSwitch . other_config:dpdk-init=true \
             other_config:dpdk-socket-mem={SOCKET_MIB} other_config:pmd-cpu-mask={mask:#x} \
             other_config:dpdk-lcore-mask={mask:#x}"
        ),
    )?;
    let extra = "other_config:dpdk-extra=\"--in-memory --single-file-segments --no-pci\"";
    let db = format!("--db=unix:{}", path("db.sock"));
    tool(dir, "ovs-vsctl", &[&db, "--no-wait", "set", "Open_vSwitch", ".", extra])?;
    let mut switch = program(dir, "vswitchd", true)?;
    switch.arg(VSWITCHD).arg(format!("unix:{}", path("db.sock")));
    switch.arg(format!("--unixctl={}", path("ctl"))).args(["-vconsole:warn"]);
    switch.env("OVS_RUNDIR", dir).env("OVS_LOGDIR", dir);
    let switch = Running(switch.stdin(Stdio::null()).spawn()?);
    let sockets: Vec<_> = (0..wiring.ports()).map(|port| dir.join(format!("p{port}"))).collect();
    let ports = Ports { sockets, switch, _others: vec![database] };
    wire(dir, wiring, &ports)?;
    Ok(ports)
}

fn wait_for_file(path: &Path) -> anyhow::Result<()> {
    let is_there = sluice_netns::happens(PATIENCE, Duration::from_millis(20), || path.exists());
    ensure!(is_there, "there is no {}", path.display());
    Ok(())
}

/// Makes bridges, ports and flows.
fn wire(dir: &Path, wiring: Wiring, ports: &Ports) -> anyhow::Result<()> {
    vsctl(dir, "add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure")?;
    let add = |bridge: &str, port: usize| {
        let number = port + 1;
        vsctl(
            dir,
            &format!(
                "add-port {bridge} p{port} -- set Interface p{port} type=dpdkvhostuserclient \
                 ofport_request={number} options:vhost-server-path={}",
                ports.sockets[port].display()
            ),
        )
    };
    for guest in 0..wiring.guests {
        add("br0", guest)?;
        flow(dir, end(guest), guest + 1)?;
    }
    if wiring.underlay {
        vsctl(dir, "add-br br-phy -- set bridge br-phy datapath_type=netdev")?;
        add("br-phy", wiring.guests)?;
        underlay(dir, ports.switch.pid())?;
    }
    Ok(())
}

fn flow(dir: &Path, to: End, port: usize) -> anyhow::Result<()> {
    let rule = format!("dl_dst={},actions=output:{port}", mac(to));
    tool(dir, "ovs-ofctl", &["add-flow", "br0", &rule]).map(drop)
}

/// Makes the tunnel. Its own address is that of `br-phy`, whose TAP is in the switch's namespace.
fn underlay(dir: &Path, pid: u32) -> anyhow::Result<()> {
    const TUNNEL: usize = 100;
    let [other, own] = VTEPS;
    vsctl(
        dir,
        &format!(
            "add-port br0 vx -- set Interface vx type=vxlan ofport_request={TUNNEL} \
             options:remote_ip={} options:key={VNI} -- set bridge br-phy \
             other_config:hwaddr=\"{}\"",
            ip(other),
            mac(own)
        ),
    )?;
    flow(dir, REMOTE, TUNNEL)?;
    let pid = pid.to_string();
    for line in [format!("addr add {}/24 dev br-phy", ip(own)), "link set br-phy up".to_owned()] {
        let mut args = vec!["-t", &pid, "-n", "ip"];
        args.extend(line.split_whitespace());
        tool(dir, "nsenter", &args)?;
    }
    let ctl = dir.join("ctl").display().to_string();
    let arp = ["-t", &ctl, "tnl/arp/set", "br-phy", &ip(other), &mac(other)];
    tool(dir, "ovs-appctl", &arp).map(drop)
}
