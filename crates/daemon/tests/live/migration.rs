//! Live migration of a virtual machine under QEMU from one host to another.
//!
//! ```text
//!   vm5 ─┤ h1 up0 ═══════ up0 h2 ├─ vm5, later
//!   c1 ──┘                       └── c2
//! ```
//!
//! The machine sends to `c1` all the while, without loss. Both containers send to it; frames that
//! reach the old host after it has stopped there, before it has spoken at the new one, are lost,
//! and are counted at its old port.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::rig;
use crate::rig::iperf::Server;
use crate::rig::monitor::Monitor;
use crate::rig::pair::Pair;
use crate::rig::vm::{self, Vm};
use crate::rig::{Netns, say, wait_for};

const C1: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const C2: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const VM: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
const MAC: &str = "02:00:00:00:00:05";
const NUMBER: u8 = 5;
/// Time between two datagrams to the machine.
const PACE: Duration = Duration::from_millis(2);

/// Datagrams for the machine, in the background, until stopped.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Sender {
    /// Sends to a port without a listener: the machine's kernel counts each datagram.
    fn start(from: &Netns, own: Ipv4Addr) -> Self {
        // ARP would delay some datagrams in the container.
        from.ip(&format!("neigh replace {VM} lladdr {MAC} dev eth0 nud permanent"));
        let socket = from.udp(own, 0);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while !stopped.load(Ordering::Relaxed) {
                // Not connected: the machine's ICMP answers are no errors here.
                sent += u64::from(socket.send_to(&[0; 200], (VM, 9)).is_ok());
                std::thread::sleep(PACE);
            }
            sent
        });
        Self { stop, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Returns the port of a machine that is learned, on each host.
fn machine_port(net: &rig::Net, own: usize) -> String {
    let socket = net.file(&format!("vm-h{}.sock", own + 1));
    format!(
        "[[port]]\nname = \"vm\"\nkind = \"vhost-user\"\nvnet = \"blue\"\nsocket = \"{}\"\n",
        socket.display()
    )
}

/// Returns the number of datagrams to ports without a listener at the machine.
fn datagrams(vm: &mut Vm) -> u64 {
    let said = vm.run("cat /proc/net/snmp");
    let mut lines = said.lines().filter(|line| line.starts_with("Udp:"));
    let at = lines.next().unwrap().split_whitespace().position(|word| word == "NoPorts");
    lines.next().unwrap().split_whitespace().nth(at.unwrap()).unwrap().parse().unwrap()
}

/// Returns the numbers of lost and of sent datagrams in iperf3's report.
fn datagrams_lost(report: &str) -> (u64, u64) {
    let total = report.lines().find(|line| line.contains("receiver")).unwrap_or(report);
    let words = || total.split_whitespace().filter_map(|word| word.split_once('/'));
    let mut counts = words().filter_map(|(lost, of)| Some((lost.parse().ok()?, of.parse().ok()?)));
    counts.next().unwrap_or_else(|| panic!("iperf3 counted nothing: {report}"))
}

/// Returns the frames that a host could deliver to no machine.
fn lost(pair: &Pair, own: usize) -> u64 {
    pair.daemons[own].row("ports", "port", "vm")["driver_lost"].as_u64().unwrap()
}

/// Returns the place of the machine in the view of a host.
fn host_of(pair: &Pair, own: usize) -> String {
    let vport = pair.daemons[own].ask(&["vport", "show", MAC])["vport"].take();
    vport["host"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "live: needs root"]
fn live_migration_counts_every_lost_frame() {
    if vm::skip("live::migration_counts_every_lost_frame", &["iperf3"]) {
        return;
    }
    let pair = Pair::with("move", 4, machine_port);
    let (file, wire) = (|name: &str| pair.file(name), pair.file("wire.sock"));
    let monitors = [file("monitor-h1.sock"), file("monitor-h2.sock")];
    let mut old = Vm::boot_to_move(NUMBER, &file("vm-h1.sock"), &monitors[0]);
    let mut new = Vm::incoming(NUMBER, &file("vm-h2.sock"), &monitors[1], &wire);
    pair.add(0, 0, C1);
    pair.add(1, 1, C2);
    old.ready();
    assert_eq!((old.ping(1, 3), old.ping(2, 3)), (3, 3), "both containers are reached");
    assert_eq!(host_of(&pair, 1), "h1");
    let server = Server::start(&pair.containers[0], C1);

    let full_before = pair.containers[0].snmp("Udp", "RcvbufErrors");
    let before = (datagrams(&mut old), lost(&pair, 0), lost(&pair, 1));
    old.begin("iperf3 -c 10.0.0.1 -u -b 10M -l 1000 -t 8");
    let senders = [(0, C1), (1, C2)].map(|(at, own)| Sender::start(&pair.containers[at], own));
    let _listens = Monitor::connect(&monitors[1]);
    let moved = Monitor::connect(&monitors[0]).migrate(&wire, Duration::from_secs(30));
    for own in 0..2 {
        wait_for("both hosts know where the machine is", || host_of(&pair, own) == "h2");
    }
    let report = new.end(Duration::from_secs(120));
    let sent: u64 = senders.into_iter().map(Sender::stop).sum();
    pair.daemons.iter().for_each(rig::Daemon::drained);

    say(&format!("moved in {} ms, down for {} ms", moved["total-time"], moved["downtime"]));
    // The sender catches up after its downtime, and the receiver's socket may have no room for
    // that.
    let full = pair.containers[0].snmp("Udp", "RcvbufErrors") - full_before;
    let (missing, of) = datagrams_lost(&report);
    say(&format!("from the machine: {missing} of {of} missing, {full} for want of a buffer there"));
    assert!(of > 1_000 && missing == full, "nothing that it sent is lost on the way: {report}");
    let came = datagrams(&mut new) - before.0;
    let counted = (lost(&pair, 0) - before.1, lost(&pair, 1) - before.2);
    say(&format!("to the machine: {sent} sent, {came} came, {counted:?} counted as lost"));
    assert!(came <= sent && sent - came <= counted.0, "what did not come is counted at h1");
    assert_eq!(counted.1, 0, "h2 was told of it when it was there");

    assert_eq!((new.ping(1, 3), new.ping(2, 3)), (3, 3), "it reaches both from there");
    for (at, own) in [(0, C1), (1, C2)] {
        pair.containers[at].ip(&format!("neigh flush dev eth0 {VM}"));
        pair.containers[at].ping(VM, 20);
        say(&format!("{own} reaches it"));
    }
    drop((old, server));
    for daemon in &pair.daemons {
        let audit = daemon.show("audit");
        assert_eq!(audit["closed"], true, "{audit}");
    }
}
