//! Checksums and segmentation that a machine leaves to its port, and accepts from it: two machines
//! under QEMU and a container on one host, a container on another.
//!
//! ```text
//!   vm1 ─┐
//!   vm2 ─┼─ h1 ══ up0 (VXLAN) ══ h2 ─ far
//!   box ─┘
//! ```
//!
//! Between the machines super-frames stay whole; for the containers the driver of the output makes
//! their segments, each with an outer header of its own in the tunnel. QEMU interprets the
//! machines, so the results are a comparison, not a speed.

use std::time::Duration;

use crate::rig::vm::{self, Vm};
use crate::rig::{Daemon, Net, Netns, cable, say};

const TEST: &str = "machines_leave_checksums_and_segments_to_their_ports";
const LONG: Duration = Duration::from_secs(90);
/// MTU of the network and of the machines.
const MTU: u64 = 1450;

struct Case {
    vms: [Vm; 2],
    hosts: [Daemon; 2],
    inside: Netns,
    far: Netns,
    _net: Net,
}

fn underlay(own: u8, other: u8) -> String {
    format!(
        "policy = \"ZZ\"\n[underlay]\nkind = \"l2\"\ndevice = \"up0\"\n\
         address = \"192.0.2.{own}\"\nlink = {{ rate_mbps = 10000 }}\n\
         [[vnet]]\nname = \"blue\"\nvni = 44\nmtu = {MTU}\n\
         [[peer]]\nname = \"other\"\nvtep = \"192.0.2.{other}\"\nvnets = [\"blue\"]\n"
    )
}

fn container(netns: &Netns, number: u8) -> String {
    format!(
        "[[port]]\nname = \"box\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
         netns = \"/run/netns/{}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n",
        netns.name()
    )
}

fn elsewhere(number: u8) -> String {
    format!("[[vport]]\nvnet = \"blue\"\nmac = \"02:00:00:00:00:{number:02x}\"\npeer = \"other\"\n")
}

impl Case {
    fn new(word: &str, offload: bool) -> Self {
        let mut net = Net::new(word);
        let (h1, h2) = (net.netns("h1"), net.netns("h2"));
        let (inside, far) = (net.netns("box"), net.netns("far"));
        cable((&h1, "up0", "192.0.2.1/24"), (&h2, "up0", "192.0.2.2/24"));
        let machine = |number: u8| {
            format!(
                "[[port]]\nname = \"vm{number}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n\
                 offload = {offload}\nsocket = \"{}\"\nmac = \"02:00:00:00:00:{number:02x}\"\n",
                net.file(&format!("vm{number}.sock")).display()
            )
        };
        let of_h1 = [underlay(1, 2), machine(1), machine(2), container(&inside, 3), elsewhere(4)];
        let of_h2: Vec<String> = [underlay(2, 1), container(&far, 4)]
            .into_iter()
            .chain((1..=3).map(elsewhere))
            .collect();
        let hosts =
            [net.daemon(&h1, "h1", &of_h1.concat()), net.daemon(&h2, "h2", &of_h2.concat())];
        for (netns, number) in [(&inside, 3), (&far, 4)] {
            netns.ip(&format!("addr add 10.0.0.{number}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        let boot = |number| Vm::boot(number, &net.file(&format!("vm{number}.sock")));
        let mut vms = [boot(1), boot(2)];
        vms.iter_mut().for_each(Vm::ready);
        for host in &hosts {
            host.next_hops_are_resolved();
        }
        Self { vms, hosts, inside, far, _net: net }
    }

    /// Returns packets and bytes that the first machine has passed to its card.
    fn handed(&mut self) -> (u64, u64) {
        let mut count = |name| {
            let said = self.vms[0].run(&format!("cat /sys/class/net/eth0/statistics/{name}"));
            said.split_whitespace().last().unwrap().parse::<u64>().unwrap()
        };
        (count("tx_packets"), count("tx_bytes"))
    }

    /// Sends by TCP from the first machine. Returns the receiver's report, and the average size of
    /// a packet.
    fn send(&mut self, to: u8) -> (String, u64) {
        let before = self.handed();
        self.vms[0].begin(&format!("iperf3 -c 10.0.0.{to} -t 4 -f m"));
        let said = self.vms[0].end(LONG);
        let after = self.handed();
        let line = said.lines().find(|line| line.contains("receiver"));
        let line = line.unwrap_or_else(|| panic!("iperf3 says {said}"));
        for host in &self.hosts {
            host.drained();
            host.assert_lossless();
        }
        (line.to_owned(), (after.1 - before.1) / (after.0 - before.0))
    }
}

#[test]
#[ignore = "live: needs root"]
fn machines_leave_checksums_and_segments_to_their_ports() {
    if vm::skip(TEST, &["iperf3"]) {
        return;
    }
    for offload in [false, true] {
        let mut case = Case::new(if offload { "vmo" } else { "vmf" }, offload);
        case.vms[1].run("iperf3 -s -D; sleep 1");
        let mut servers: Vec<_> = [&case.inside, &case.far]
            .map(|netns| {
                netns.command("iperf3").args(["-s"]).stdout(std::process::Stdio::null()).spawn()
            })
            .into_iter()
            .map(Result::unwrap)
            .collect();
        for (to, name) in [(2, "a machine"), (3, "a container"), (4, "a container elsewhere")] {
            assert_eq!(case.vms[0].ping(to, 3), 3, "vm1 to {name}");
            let (said, each) = case.send(to);
            say(&format!("offload {offload}, TCP to {name}, {each} bytes a packet: {said}"));
            if offload {
                assert!(each > 2 * MTU, "{each} bytes a packet to {name}: nothing was left");
            } else {
                assert!(each < MTU + 18, "{each} bytes a packet to {name}: something was left");
            }
        }
        // From a container, whose frames are finished.
        let command = "timeout 20 iperf3 -c 10.0.0.2 -t 3 -f m";
        let said = case.far.run(command);
        let line = said.lines().find(|line| line.contains("receiver")).unwrap_or(&said);
        say(&format!("offload {offload}, TCP from a container elsewhere: {line}"));
        for host in &case.hosts {
            host.drained();
            host.assert_lossless();
        }
        for server in &mut servers {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }
}
