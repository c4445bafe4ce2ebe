//! Three virtual machines under QEMU, with Debian's kernel inside, on one host.
//!
//! ```text
//!   vm1 ─┐
//!        ├─ vhost-user ─ switch ─ vhost-user ─ vm2        two senders, one receiver
//!   vm3 ─┘
//! ```
//!
//! QEMU interprets the machines, so speeds are not measured; the test checks that no frame is lost
//! between the cards, also when machines stop or restart.

use std::time::{Duration, Instant};

use crate::rig::vm::{self, Vm};
use crate::rig::{Daemon, Net, say, wait_for};
use sluice_testkit::bound::is_soak;

const LONG: Duration = Duration::from_secs(60);

struct Host {
    vms: Vec<Vm>,
    daemon: Daemon,
    net: Net,
}

impl Host {
    /// Starts a host with virtual machines 1, 2 and so on, whose ports have these keys, too.
    fn new(word: &str, count: u8, keys: &str) -> Self {
        Self::with_queues(word, count, keys, 1)
    }

    /// Starts a host like [`Self::new`]; each machine has a card with `queues` queue pairs.
    fn with_queues(word: &str, count: u8, keys: &str, queues: u8) -> Self {
        let mut net = Net::new(word);
        let netns = net.netns("host");
        let port = |number| {
            let socket = net.file(&format!("vm{number}.sock"));
            format!(
                "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n{keys}\
                 socket = \"{}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n",
                socket.display()
            )
        };
        let ports: String = (1..=count).map(port).collect();
        let rest = format!("policy = \"ZZ\"\n[[vnet]]\nname = \"blue\"\nmtu = 1450\n{ports}");
        let daemon = net.daemon(&netns, "h1", &rest);
        let boot =
            |number| Vm::boot_with_queues(number, &net.file(&format!("vm{number}.sock")), queues);
        let mut vms: Vec<Vm> = (1..=count).map(boot).collect();
        vms.iter_mut().for_each(Vm::ready);
        Self { vms, daemon, net }
    }

    fn vm(&mut self, number: usize) -> &mut Vm {
        &mut self.vms[number - 1]
    }

    /// Returns the frames that the switch took from a machine.
    fn sent(&self, vm: usize) -> u64 {
        self.daemon.row("ports", "port", &format!("vm{vm}"))["rx_frames"].as_u64().unwrap()
    }

    /// Returns true if frames of one machine wait for another one, which takes none.
    fn waits(&self, from: usize, to: usize) -> bool {
        let (from, to) = (format!("vm{from}"), format!("vm{to}"));
        let rows = self.daemon.show("pauses");
        let mut isolated = rows.as_array().unwrap().iter().filter(|row| row["port"] == to);
        isolated.any(|row| row["isolated"]["waiting"].to_string().contains(&from))
    }

    /// Returns the frames that all cards have sent and received, by the machines' own counts.
    fn counts(&mut self) -> (u64, u64) {
        let mut sum = (0, 0);
        for vm in &mut self.vms {
            let count = |vm: &mut Vm, name| {
                let said = vm.run(&format!("cat /sys/class/net/eth0/statistics/{name}"));
                said.split_whitespace().last().unwrap().parse::<u64>().unwrap()
            };
            sum.0 += count(vm, "tx_packets");
            sum.1 += count(vm, "rx_packets") + count(vm, "rx_dropped");
        }
        sum
    }

    /// Waits until pings pass between two machines.
    fn pings_pass(&mut self, from: usize, to: u8) -> Duration {
        let began = Instant::now();
        while self.vm(from).ping(to, 1) == 0 {
            assert!(began.elapsed() < LONG, "vm{from} reaches vm{to}");
        }
        began.elapsed()
    }
}

#[test]
#[ignore = "live: needs root"]
fn nothing_is_lost_between_the_cards_of_machines() {
    if vm::skip("nothing_is_lost_between_the_cards_of_machines", &[]) {
        return;
    }
    let mut host = Host::new("vms", 3, "");
    for (from, to) in [(1, 2), (3, 2), (1, 3)] {
        assert_eq!(host.vm(from).ping(to, 5), 5, "vm{from} to vm{to}");
    }
    host.vm(2).run("iperf3 -s -D -p 5201; iperf3 -s -D -p 5202; sleep 1");

    let said = host.vm(1).run("iperf3 -c 10.0.0.2 -t 4 -f m");
    let total = said.lines().find(|line| line.contains("receiver")).unwrap_or(&said);
    say(&format!("TCP between machines: {total}"));
    host.daemon.drained();
    host.daemon.assert_lossless();

    // Two senders of UDP, as fast as they can, to one that is busy receiving.
    let before = host.counts();
    let load = |port| format!("iperf3 -c 10.0.0.2 -p {port} -u -b 0 -l 1300 -t 4");
    host.vm(1).begin(&load(5201));
    host.vm(3).begin(&load(5202));
    for number in [1, 3] {
        let said = host.vm(number).end(LONG);
        let total = said.lines().find(|line| line.contains("receiver")).unwrap_or(&said);
        say(&format!("UDP from vm{number}, two senders (lost in the receiver's socket): {total}"));
        let qdisc = host.vm(number).run("/opt/tc -s qdisc show dev eth0");
        assert!(qdisc.contains("dropped 0,"), "{qdisc}");
    }
    host.daemon.drained();
    host.daemon.assert_lossless();
    let after = host.counts();
    let (sent, received) = (after.0 - before.0, after.1 - before.1);
    say(&format!("{sent} frames sent, {received} received by the cards of all"));
    assert!(sent > 2_000, "{sent}: there was no load");
    assert_eq!(sent, received, "frames were lost between the cards");
}

#[test]
#[ignore = "live: needs root"]
fn a_machine_may_start_again_under_load() {
    if vm::skip("a_machine_may_start_again_under_load", &[]) {
        return;
    }
    if !is_soak() {
        say("SKIPPED a_machine_may_start_again_under_load: takes minutes; SLUICE_SOAK=1 runs it");
        return;
    }
    let mut host = Host::new("vmr", 2, "");
    host.pings_pass(1, 2);
    host.vm(2).run("iperf3 -s -D; sleep 1");
    host.vm(1).begin("timeout 20 iperf3 -c 10.0.0.2 -u -b 0 -l 1300 -t 3");
    std::thread::sleep(Duration::from_millis(1_500));
    host.vms.pop().unwrap().kill();
    host.vms.push(Vm::boot(2, &host.net.file("vm2.sock")));
    host.vm(2).ready();
    host.vm(1).end(LONG);
    host.pings_pass(1, 2);
    host.daemon.drained();
    let audit = host.daemon.show("audit");
    assert_eq!(audit["closed"], true, "{audit}");
}

/// A machine that sends to a stopped one, through the queue of one priority, reaches others through
/// the queue of another; through the same queue it does not.
#[test]
#[ignore = "live: needs root"]
fn guest_queue_held_by_priority_leaves_other_flowing() {
    const TEST: &str = "guest_queue_held_by_priority_leaves_other_flowing";
    // By `mqprio`, socket priorities 4 to 7 use the second queue. The type of service of 0x10
    // (RFC 1349) means socket priority 6 to Linux, and nothing to the switch: its DSCP is 4.
    const MQPRIO: &str = "/opt/tc qdisc replace dev eth0 root handle 1: mqprio num_tc 2 \
                          map 0 0 0 0 1 1 1 1 0 0 0 0 0 0 0 0 queues 1@0 1@1 hw 0 && \
                          /opt/tc qdisc replace dev eth0 parent 1:1 pfifo limit 10000 && \
                          /opt/tc qdisc replace dev eth0 parent 1:2 pfifo limit 10000 && echo SET";
    if vm::skip(TEST, &[]) {
        return;
    }
    let keys = "queues = [[0, 1, 2, 3], [4, 5, 6, 7]]\nhold = \"forever\"\n";
    let mut host = Host::with_queues("vmq", 3, keys, 2);
    for number in 1..=3 {
        let said = host.vm(number).run(MQPRIO);
        assert!(said.contains("SET"), "remove target/guest and run scripts/guest.sh: {said}");
    }
    for (from, to) in [(1, 2), (1, 3)] {
        assert_eq!(host.vm(from).ping(to, 5), 5, "vm{from} to vm{to}");
    }
    host.vm(2).run("iperf3 -s -D; sleep 1");
    let mut came = [0, 0];
    // Several sockets: one socket's limit of frames under way does not fill a ring.
    for (held, tos) in [(1, "-S 0x10"), (0, "")] {
        let before = host.sent(1);
        host.vm(1).run(&format!(
            "(iperf3 -c 10.0.0.2 -u -b 0 -l 1300 -t 600 -P 4 {tos} >/tmp/load 2>&1 &)"
        ));
        wait_for("the load runs", || host.sent(1) > before + 200);
        host.vm(2).pause(true);
        // The first frame of the queue waits for vm2, and all others behind it. A machine that has
        // no time for a moment sends nothing either.
        let (mut sent, mut same) = (0, 0);
        wait_for("the queue of vm1 is held", || {
            let before = std::mem::replace(&mut sent, host.sent(1));
            same = if before == sent { same + 1 } else { 0 };
            same >= 25 && host.waits(1, 2)
        });
        came[held] = host.vm(1).ping(3, 5);
        host.vm(2).pause(false);
        // However slow the machine is, its load had not ended before.
        host.vm(1).run("killall iperf3; while pidof iperf3 >/dev/null; do sleep 1; done");
        host.daemon.drained();
        let queues = host.vm(1).run("/opt/tc -s qdisc show dev eth0");
        let sent: Vec<&str> = queues.lines().filter(|line| line.contains("Sent")).collect();
        say(&format!("queue {held} held: {} of 5 pings by queue 0; {sent:?}", came[held]));
        assert!(
            queues.lines().all(|line| !line.contains("dropped") || line.contains("dropped 0,"))
        );
    }
    assert_eq!(came[1], 5, "the other queue is free");
    assert_eq!(came[0], 0, "a queue that is held holds all that is in it");
    host.pings_pass(1, 2);
    host.daemon.drained();
    host.daemon.assert_lossless();
}

/// Ports that complete in order: otherwise the sender's driver loops forever after a kill.
#[test]
#[ignore = "live: needs root"]
fn the_data_process_may_be_killed_under_load() {
    const TEST: &str = "the_data_process_may_be_killed_under_load";
    if vm::skip(TEST, &[]) {
        return;
    }
    if !is_soak() {
        say(&format!("SKIPPED {TEST}: takes minutes; SLUICE_SOAK=1 runs it"));
        return;
    }
    let mut host = Host::new("vmk", 3, "in_order = true\n");
    host.pings_pass(1, 2);
    host.pings_pass(1, 3);
    for number in [2, 3] {
        host.vm(number).run("iperf3 -s -D; sleep 1");
    }
    for round in 0..6 {
        // Without busybox's `timeout`, whose watcher ends process 1 if its parent is gone first.
        let load = |to| format!("iperf3 -c 10.0.0.{to} -u -b 0 -l 1300 -t 5");
        let both = format!("{} & {}; wait", load(3), load(2));
        host.vm(1).begin(&format!("setsid sh -c '{both}' </dev/null >/dev/null 2>&1"));
        std::thread::sleep(Duration::from_millis(2_000 + 70 * round));
        // One receiver takes nothing, so that the sender's frames complete out of order.
        host.vm(3).pause(true);
        std::thread::sleep(Duration::from_millis(20 + 30 * round));
        let before = host.daemon.data_pid();
        host.daemon.kill_data();
        wait_for("control has started another", || host.daemon.data_pid() != before);
        host.vm(3).pause(false);
        host.vm(1).end(LONG);
        let took = [2, 3].map(|to| host.pings_pass(1, to));
        for row in host.daemon.show("ports").as_array().unwrap() {
            assert_eq!(row["lossless"], "yes", "{row}");
        }
        say(&format!("round {round}: pings pass after {took:?}"));
        // Control waits longer each time for a process that ends soon.
        std::thread::sleep(Duration::from_secs(3));
    }
    host.daemon.drained();
    let audit = host.daemon.show("audit");
    assert_eq!(audit["closed"], true, "{audit}");
}
