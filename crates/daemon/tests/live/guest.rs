//! UDP sockets inside a virtual machine whose agent tells their room: nothing is lost in one that
//! stands still, another one of the machine goes on meanwhile, and an agent that is gone holds
//! nobody.
//!
//! ```text
//!   s1 ─ veth ─┐                              ┌─ iperf3 :5201   stands still for a time
//!              ├─ switch ─ vhost-user ─ eth0 ─┤
//!   s2 ─ veth ─┘                              └─ iperf3 :5202   reads all
//!                            agent ◀─ asks
//! ```
//!
//! QEMU interprets the machine, so speeds are not measured. The same load without the agent loses,
//! which shows that it presses the socket.

use std::time::{Duration, Instant};

use crate::rig::vm::{self, Vm};
use crate::rig::{Daemon, Net, Netns, say, wait_for};

/// Load of each sender. It fills a socket of the kernel's own default in a tenth of a second.
const LOAD: &str = "-l 1300 -b 30M";
/// Time for which a receiver stands still.
const STILL: Duration = Duration::from_millis(900);
const LONG: Duration = Duration::from_secs(60);

struct Case {
    vm: Vm,
    daemon: Daemon,
    senders: Vec<Netns>,
    _net: Net,
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let host = net.netns("host");
        let senders = vec![net.netns("s1"), net.netns("s2")];
        let socket = net.file("vm1.sock");
        let mut ports = format!(
            "[[port]]\nname = \"vm1\"\nkind = \"vhost-user\"\nvnet = \"blue\"\nsocket = \"{}\"\n\
             mac = \"02:00:00:00:00:01\"\n",
            socket.display()
        );
        for (sender, last) in senders.iter().zip(2..) {
            ports += &format!(
                "[[port]]\nname = \"s{}\"\nkind = \"veth\"\nvnet = \"blue\"\ndevice = \"eth0\"\n\
                 netns = \"/run/netns/{}\"\nmac = \"02:00:00:00:00:{last:02x}\"\n",
                last - 1,
                sender.name()
            );
        }
        let rest = format!(
            "policy = \"ZZ\"\nhold = \"forever\"\n[[vnet]]\nname = \"blue\"\nmtu = 1450\n{ports}"
        );
        let daemon = net.daemon(&host, "h1", &rest);
        let mut vm = Vm::boot_with_agent(1, &socket, &net.file(""));
        vm.ready();
        for (sender, last) in senders.iter().zip(2..) {
            sender.ip(&format!("addr add 10.0.0.{last}/24 dev eth0"));
            sender.ip("link set eth0 up");
        }
        let case = Self { vm, daemon, senders, _net: net };
        wait_for("the machine answers", || {
            let ping = "ping -c 1 -W 1 10.0.0.1";
            case.senders.iter().all(|sender| sender.attempt(ping).status.success())
        });
        case
    }

    /// Starts the agent, and waits until the host hears it.
    fn start_agent(&mut self) {
        assert!(self.lacks().contains("sluice guest"), "{}", self.lacks());
        self.vm.run("/opt/sluice-guest eth0 >/tmp/agent 2>&1 & sleep 1");
        wait_for("the host hears the agent", || self.lacks().is_empty());
        let said = self.vm.run("cat /tmp/agent");
        assert!(said.contains("net.core.rmem_max: 67108864"), "{said}");
        assert!(said.contains("eth0 qdisc root: pfifo limit 10000"), "{said}");
        say(&said);
    }

    /// Requirement of the port of the machine for holding for its sockets.
    fn lacks(&self) -> String {
        let row = self.daemon.row("ports", "port", "vm1");
        row["sockets"]["lacks"].as_str().unwrap_or_default().to_owned()
    }

    fn held(&self) -> Vec<String> {
        let row = self.daemon.row("ports", "port", "vm1");
        let held = row["sockets"]["held"].as_array().unwrap().clone();
        held.iter().map(|socket| socket["address"].as_str().unwrap().to_owned()).collect()
    }

    /// Counter of UDP of the machine's kernel.
    fn udp(&mut self, column: u8) -> u64 {
        let line = format!("grep '^Udp:' /proc/net/snmp | awk 'NR==2 {{print ${column}}}'");
        let said = self.vm.run(&line);
        said.split_whitespace().last().unwrap().parse().unwrap()
    }

    fn overflows(&mut self) -> u64 {
        self.udp(6)
    }

    /// Starts two receivers, and what sends to them.
    fn load(&mut self, seconds: u32) -> Vec<std::thread::JoinHandle<String>> {
        self.vm.run(
            "echo 212992 >/proc/sys/net/core/rmem_default; killall iperf3; \
             iperf3 -s -p 5201 >/dev/null & \
             echo $! >/tmp/one; iperf3 -s -p 5202 >/dev/null & \
             until netstat -ltn | grep -q :5201 && netstat -ltn | grep -q :5202; do sleep 1; done",
        );
        let start = |(sender, port): (&Netns, u16)| {
            let (sender, line) = (
                sender.clone(),
                format!("iperf3 -c 10.0.0.1 -p {port} -u {LOAD} -t {seconds} --get-server-output"),
            );
            std::thread::spawn(move || {
                let output = sender.attempt(&line);
                String::from_utf8_lossy(&output.stdout).into_owned()
            })
        };
        let load = self.senders.iter().zip([5201, 5202]).map(start).collect();
        let before = self.udp(2);
        wait_for("datagrams come", || self.udp(2) > before + 300);
        load
    }
}

/// Lost and sent datagrams, by what the receiver told in the end.
fn lost_of(said: &str) -> (u64, u64) {
    let line = said.lines().find(|line| line.contains("receiver")).unwrap_or_default();
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('/'));
    let mut counts =
        pairs.filter_map(|(lost, sent)| Some((lost.parse().ok()?, sent.parse().ok()?)));
    counts.next().unwrap_or_else(|| panic!("{said}"))
}

#[test]
#[ignore = "live: needs root"]
fn still_socket_in_machine_loses_nothing() {
    if vm::skip_agent("still_socket_in_machine_loses_nothing") {
        return;
    }
    let mut case = Case::new("guest");
    case.start_agent();
    let load = case.load(40);
    let mut held_most = Duration::ZERO;
    for _ in 0..3 {
        let before = case.udp(2);
        case.vm.run("kill -STOP $(cat /tmp/one)");
        let began = Instant::now();
        wait_for("the socket is held", || case.held().contains(&"10.0.0.1:5201".to_owned()));
        std::thread::sleep(STILL.saturating_sub(began.elapsed()));
        // The other socket of the machine goes on.
        let taken = case.udp(2) - before;
        assert!(taken > 300, "{taken} datagrams came while one socket stood still");
        held_most = held_most.max(began.elapsed());
        case.vm.run("kill -CONT $(cat /tmp/one)");
        wait_for("the socket goes on", || case.held().is_empty());
    }
    say(&case.daemon.print(&["show", "ports"]));
    for (load, port) in load.into_iter().zip([5201, 5202]) {
        let (lost, sent) = lost_of(&load.join().unwrap());
        // A receiver of iperf3 is told of the end by TCP, before datagrams that still wait.
        say(&format!("port {port}: {lost} of {sent} not come by the end; still {held_most:?}"));
        assert!(sent > 3_000, "{sent} datagrams are no load");
    }
    assert_eq!(case.overflows(), 0, "datagrams found a socket full");
    case.daemon.drained();
    case.daemon.assert_lossless();
}

/// The same load without an agent loses, and an agent that is killed while a socket is held lets
/// all pass within a bound.
#[test]
#[ignore = "live: needs root"]
fn killed_agent_of_machine_holds_nobody() {
    if vm::skip_agent("killed_agent_of_machine_holds_nobody") {
        return;
    }
    let mut case = Case::new("guest-kill");
    case.start_agent();
    let load = case.load(40);
    case.vm.run("kill -STOP $(cat /tmp/one)");
    wait_for("the socket is held", || !case.held().is_empty());
    assert_eq!(case.overflows(), 0);
    case.vm.run("killall -KILL sluice-guest");
    let began = Instant::now();
    wait_for("nothing is held any more", || case.held().is_empty());
    let bound = began.elapsed();
    wait_for("the silent agent is named", || case.lacks().contains("silent"));
    say(&format!("held for {bound:?} after the agent was killed"));
    assert!(bound < Duration::from_secs(3), "{bound:?}");
    say(&case.daemon.print(&["show", "ports"]));
    std::thread::sleep(STILL);
    case.vm.run("kill -CONT $(cat /tmp/one)");
    load.into_iter().for_each(|load| _ = load.join());
    let lost = case.overflows();
    say(&format!("{lost} datagrams lost in the socket without an agent"));
    assert!(lost > 100, "{lost}: the load does not press the socket");
    // A new agent is heard again.
    case.vm.run("/opt/sluice-guest --no-settings eth0 >/tmp/agent 2>&1 & sleep 1");
    wait_for("the host hears the new agent", || case.lacks().is_empty());
    case.vm.begin("kill $(pidof sluice-guest)");
    case.vm.end(LONG);
    wait_for("an agent that ends says so", || case.lacks().contains("run `sluice guest`"));
}
