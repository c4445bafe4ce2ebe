//! Addresses that move between machines, with unmodified clients: on two hosts of a fabric, and for
//! comparison on two hosts with a Linux bridge and the kernel's VXLAN.
//!
//! ```text
//!   c1 ─ TAP ─┤ h1 up0 ═══ up0 h2 ├─ TAP ─ c3       b1 ─ veth ─┤ g1 ═══ g2 ├─ veth ─ b3
//!   c2 ─ TAP ─┘                                     b2 ─ veth ─┘
//! ```
//!
//! A case is a few lines of shell for the machines, and the time for which the third machine then
//! waits for answers. The bridge shows the behaviour that operators are used to.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::rig::member::member;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};
use sluice_testkit::bound;

/// Address that moves.
const VIP: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 100);
/// Time for which a machine trusts a neighbour entry (30 s by default, which only makes both sides
/// wait): a random 0.5 to 1.5 of it (RFC 4861 clause 6.3.2); and its wait before it asks again.
const BELIEVED: [&str; 2] = ["base_reachable_time_ms=4000", "delay_first_probe_time=1"];
/// Longest recovery: the life of an entry, the wait, and three more questions.
const HEALED_MAX: Duration = Duration::from_secs(40);

/// Three machines in one network, and the device of each.
struct Machines {
    machines: [Netns; 3],
}

/// A fabric with its machines.
struct Fabric {
    daemons: [Daemon; 2],
    machines: Machines,
}

fn config(own: usize, machines: &[&Netns], certificates: &Path) -> String {
    let port = |machine: &&Netns| {
        format!(
            "[[port]]\nname = \"{0}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\nnetns = \
             \"/run/netns/{0}\"\n",
            machine.name(),
        )
    };
    member(own, certificates, "", &machines.iter().map(port).collect::<String>())
}

impl Machines {
    /// Gives the machines their addresses, and lets them resolve each other.
    fn start(&self) {
        for (n, machine) in self.machines.iter().enumerate() {
            machine.ip(&format!("link set t0 address 02:42:00:00:00:0{}", n + 1));
            machine.ip(&format!("addr add 10.42.0.{}/24 dev t0", n + 1));
            machine.ip("link set t0 up");
            for setting in BELIEVED {
                machine.run(&format!("sysctl -q net.ipv4.neigh.t0.{setting}"));
            }
        }
        wait_for("the machines reach each other", || {
            self.reaches(Ipv4Addr::new(10, 42, 0, 1)) && self.reaches(Ipv4Addr::new(10, 42, 0, 2))
        });
    }

    /// Returns true if a ping of the third machine is answered within 200 ms.
    fn reaches(&self, to: Ipv4Addr) -> bool {
        self.machines[2].attempt(&format!("ping -n -q -c 1 -W 0.2 {to}")).status.success()
    }

    /// Returns the time until the third machine reaches an address again.
    fn healed(&self, to: Ipv4Addr) -> Option<Duration> {
        let begin = Instant::now();
        while begin.elapsed() < HEALED_MAX {
            if self.reaches(to) {
                return Some(begin.elapsed());
            }
        }
        None
    }

    fn run(&self, machine: usize, lines: &[&str]) {
        for line in lines.iter().copied() {
            // An unanswered question is a failure to `arping`, and so is an announcement.
            let output = self.machines[machine].attempt(line);
            assert!(line.starts_with("arping") || output.status.success(), "{line}: {output:?}");
        }
    }
}

impl Fabric {
    fn new(net: &mut Net) -> Self {
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        let machines = ["c1", "c2", "c3"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let certificates = net.certificates(&["h1", "h2"]);
        let [c1, c2, c3] = &machines;
        let daemons = [(0, vec![c1, c2]), (1, vec![c3])].map(|(own, machines)| {
            let name = format!("h{}", own + 1);
            let text = config(own, &machines, &certificates);
            net.daemon(&hosts[own], &name, &text)
        });
        let fabric = Self { daemons, machines: Machines { machines } };
        are_connected(&fabric.daemons);
        fabric.machines.start();
        fabric
    }
}

/// Makes machines with two Linux bridges and a VXLAN device between them.
fn bridge(net: &mut Net) -> Machines {
    let hosts = ["g1", "g2"].map(|name| net.netns(name));
    let machines = ["b1", "b2", "b3"].map(|name| net.netns(name));
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    for (own, host) in hosts.iter().enumerate() {
        host.ip("link add br0 type bridge");
        host.ip(&format!(
            "link add vx0 type vxlan id 42 dstport 4789 local 192.0.2.{} remote 192.0.2.{}",
            own + 1,
            2 - own
        ));
        for line in ["link set vx0 master br0", "link set vx0 up", "link set br0 up"] {
            host.ip(line);
        }
    }
    for (n, machine) in machines.iter().enumerate() {
        let host = &hosts[n / 2];
        host.ip(&format!("link add p{n} type veth peer name t0 netns {}", machine.name()));
        host.ip(&format!("link set p{n} master br0"));
        host.ip(&format!("link set p{n} up"));
    }
    let machines = Machines { machines };
    machines.start();
    machines
}

/// A move of the address: the commands of both machines, the new owner, and the reached address.
struct Case {
    name: &'static str,
    steps: &'static [(usize, &'static [&'static str])],
    /// Address at which the machine is reached.
    to: Ipv4Addr,
    /// True if the new owner announces itself.
    is_announced: bool,
}

const ADD: &str = "ip addr add 10.42.0.100/24 dev t0";
const DEL: &str = "ip addr del 10.42.0.100/24 dev t0";
/// Gratuitous: the address is both its sender and its target.
const TELL: &str = "arping -q -U -c 1 -i t0 -S 10.42.0.100 10.42.0.100";

/// Each case leaves the address where the next one expects it.
const CASES: [Case; 6] = [
    Case {
        name: "new address is announced",
        steps: &[(0, &[ADD, TELL])],
        to: VIP,
        is_announced: true,
    },
    Case {
        name: "taken over by a higher MAC, announced, nothing said by the old one",
        steps: &[(0, &[DEL]), (1, &[ADD, TELL])],
        to: VIP,
        is_announced: true,
    },
    Case {
        name: "back to the lower MAC, announced",
        steps: &[(1, &[DEL]), (0, &[ADD, TELL])],
        to: VIP,
        is_announced: true,
    },
    Case {
        name: "added elsewhere, not announced",
        steps: &[(0, &[DEL]), (1, &[ADD])],
        to: VIP,
        is_announced: false,
    },
    Case {
        name: "MAC of a machine changed, nothing said",
        steps: &[(0, &["ip link set t0 address 02:42:00:00:00:a1"])],
        to: Ipv4Addr::new(10, 42, 0, 1),
        is_announced: false,
    },
    Case {
        name: "MAC changed, machine asks for another",
        steps: &[(
            0,
            &["ip link set t0 address 02:42:00:00:00:a2", "arping -q -c 1 -w 1 -i t0 10.42.0.2"],
        )],
        to: Ipv4Addr::new(10, 42, 0, 1),
        is_announced: false,
    },
];

#[test]
#[ignore = "live: needs root"]
fn addresses_move_as_on_a_linux_bridge() {
    if skip("live::addresses", &["arping", "ping"]) {
        return;
    }
    let (mut one, mut other) = (Net::new("addr"), Net::new("addrbr"));
    let (fabric, bridge) = (Fabric::new(&mut one), bridge(&mut other));
    for case in CASES {
        let took = [&fabric.machines, &bridge].map(|machines| {
            for (machine, lines) in case.steps {
                machines.run(*machine, lines);
            }
            if case.is_announced {
                // A client that resolves the address anew, and not only one that heard the
                // announcement.
                std::thread::sleep(Duration::from_millis(300));
                machines.run(2, &["ip neigh flush dev t0"]);
            }
            machines.healed(case.to)
        });
        say(&format!("{}: {:?}, on a bridge {:?}", case.name, took[0], took[1]));
        let healed = took[0].unwrap_or_else(|| {
            panic!("{}: never\n{}", case.name, fabric.daemons[0].print(&["vport", "list"]))
        });
        let bridge = took[1].expect("a bridge heals");
        // Without an announcement the client's kernel decides, at a random time on both sides.
        let limit = if case.is_announced { 1.0 } else { HEALED_MAX.as_secs_f64() };
        bound::at_most(case.name, healed.as_secs_f64(), limit);
        say(&format!("{}: a bridge took {bridge:?}", case.name));
    }
    for daemon in &fabric.daemons {
        daemon.assert_lossless();
    }
}
