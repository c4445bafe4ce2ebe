//! Frames of neighbours from real clients: router discovery, announcements, questions. Each case
//! runs on two hosts with Linux bridges and the kernel's VXLAN, and on two hosts of a fabric; the
//! same frames must arrive on both.
//!
//! ```text
//!   c1 ─┐                        ┌─ c3
//!       ├ h1 up0 ═══════ up0 h2 ─┘
//!   c2 ─┘
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::rig::member::member;
use crate::rig::raw::{Sender, ethernet};
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};
use sluice_base::Mac;
use sluice_wire::arp;

/// Network between the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bridge,
    Sluice,
}

const KINDS: [Kind; 2] = [Kind::Bridge, Kind::Sluice];
const MACS: [Mac; 3] = [mac(1), mac(2), mac(3)];

const fn mac(n: u8) -> Mac {
    Mac([2, 0x42, 0, 0, 1, n])
}

/// Everything of one case. Fields end in this order: programs before their namespaces.
struct Lab {
    clients: Vec<Child>,
    daemons: Vec<Daemon>,
    net: Net,
    containers: [Netns; 3],
}

impl Drop for Lab {
    fn drop(&mut self) {
        for client in &mut self.clients {
            _ = client.kill();
            _ = client.wait();
        }
    }
}

fn config(own: usize, ports: &[(&str, &Netns)], certificates: &Path) -> String {
    let port = |(name, netns): &(&str, &Netns)| {
        let netns = netns.name();
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
             netns = \"/run/netns/{netns}\"\n"
        )
    };
    member(own, certificates, "", &ports.iter().map(port).collect::<String>())
}

fn write(netns: &Netns, file: &str, text: &str) {
    netns.inside(|| fs::write(format!("/proc/sys/net/{file}"), text).unwrap());
}

impl Lab {
    fn new(kind: Kind, word: &str) -> Self {
        let mut net = Net::new(&format!("{word}{}", if kind == Kind::Bridge { "b" } else { "s" }));
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        let containers = ["c1", "c2", "c3"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let [c1, c2, c3] = &containers;
        let at = [vec![("c1", c1), ("c2", c2)], vec![("c3", c3)]];
        let mut daemons = Vec::new();
        if kind == Kind::Sluice {
            let certificates = net.certificates(&["h1", "h2"]);
            for own in 0..2 {
                let text = config(own, &at[own], &certificates);
                daemons.push(net.daemon(&hosts[own], &format!("h{}", own + 1), &text));
            }
            are_connected(&daemons);
        } else {
            for (own, host) in hosts.iter().enumerate() {
                bridge(own, host, &at[own]);
            }
        }
        for (container, mac) in containers.iter().zip(MACS) {
            container.ip(&format!("link set t0 address {mac}"));
            // Containers that speak IPv6 enable it themselves.
            write(container, "ipv6/conf/t0/addr_gen_mode", "1");
            for scope in ["all", "default", "t0"] {
                write(container, &format!("ipv6/conf/{scope}/disable_ipv6"), "0");
            }
        }
        Self { clients: Vec::new(), daemons, net, containers }
    }

    fn start(&mut self, at: usize, words: &[&str]) {
        let mut command = self.containers[at].command(words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.clients.push(command.spawn().unwrap());
    }

    /// Gives containers `10.42.0.N`, and enables their devices.
    fn up(&self) {
        for (n, container) in self.containers.iter().enumerate() {
            container.ip(&format!("addr add 10.42.0.{}/24 dev t0", n + 1));
            container.ip("link set t0 up");
        }
    }

    /// Returns dropped frames of neighbours, by reason.
    fn drops(&self) -> Vec<((String, String), u64)> {
        self.daemons.iter().flat_map(Daemon::drops).filter(|row| row.1 > 0).collect()
    }
}

fn bridge(own: usize, host: &Netns, containers: &[(&str, &Netns)]) {
    let (id, other) = (own + 1, 2 - own);
    host.ip("link add br0 type bridge");
    host.ip(&format!(
        "link add vx0 type vxlan id 42 local 192.0.2.{id} remote 192.0.2.{other} dstport 4789"
    ));
    for (name, container) in containers {
        let netns = container.name();
        host.ip(&format!("link add {name} mtu 1450 type veth peer name t0 mtu 1450 netns {netns}"));
        host.ip(&format!("link set {name} master br0 up"));
    }
    host.ip("link set vx0 master br0 up");
    host.ip("link set br0 up");
}

/// Runs a case on both kinds and prints the observations.
fn on_both<T: PartialEq + std::fmt::Debug>(word: &str, run: impl Fn(&mut Lab) -> T) -> T {
    let [of_bridge, of_sluice] = KINDS.map(|kind| {
        let mut lab = Lab::new(kind, word);
        let seen = run(&mut lab);
        say(&format!("{word} {kind:?}: {seen:?}; drops {:?}", lab.drops()));
        seen
    });
    assert_eq!(of_bridge, of_sluice, "a bridge and a fabric");
    of_sluice
}

/// Waits until `count` is `most`, for some seconds at most; returns its last value.
fn reaches(most: usize, seconds: u64, mut count: impl FnMut() -> usize) -> usize {
    let until = Instant::now() + Duration::from_secs(seconds);
    loop {
        let seen = count();
        if seen >= most || Instant::now() > until {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Capture of the ARP frames of a source at a container, from the start on.
struct Ear(Child, std::path::PathBuf);

impl Ear {
    fn new(lab: &Lab, at: usize, source: Mac) -> Self {
        let path = lab.net.file(&format!("heard{at}"));
        let (out, mut err) = (fs::File::create(&path).unwrap(), lab.net.file("listens"));
        err.set_extension(at.to_string());
        let mut command = lab.containers[at].command("tcpdump");
        let filter = format!("ether src {source} and arp");
        // Whole frames would leave room for 128 in its ring, which a pause of the machine fills.
        command.args(["-lnn", "-s", "256", "-B", "8192", "--immediate-mode", "-i", "t0", &filter]);
        command.stdin(Stdio::null()).stdout(out).stderr(fs::File::create(&err).unwrap());
        let child = command.spawn().unwrap();
        wait_for("tcpdump listens", || fs::read_to_string(&err).unwrap().contains("listening on"));
        Self(child, path)
    }

    fn heard(&self) -> usize {
        fs::read_to_string(&self.1).unwrap().lines().count()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Sends frames from `c1`, one per millisecond; returns the numbers that `c2` and `c3` hear.
fn heard_of(lab: &Lab, frames: &[Vec<u8>]) -> [usize; 2] {
    let ears = [1, 2].map(|at| Ear::new(lab, at, MACS[0]));
    let mut sender = Sender::new(&lab.containers[0], "t0");
    for frame in frames {
        assert!(sender.send(frame));
        std::thread::sleep(Duration::from_millis(1));
    }
    let heard = ears.each_ref().map(|ear| reaches(frames.len(), 5, || ear.heard()));
    // None is heard twice.
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(heard, ears.each_ref().map(Ear::heard));
    heard
}

fn arp_frame(message: arp::Repr, size: usize) -> Vec<u8> {
    let mut payload = vec![0; size - 14];
    message.emit(&mut payload);
    ethernet(Mac::BROADCAST, MACS[0], 0x0806, &payload)
}

/// RFC 4861 clause 6: a router that advertises, and hosts that solicit it and take addresses.
#[test]
#[ignore = "live: needs root"]
fn hosts_find_their_router_and_take_addresses() {
    let test = "hosts_find_their_router_and_take_addresses";
    if skip(test, &["radvd", "rdisc6"]) {
        return;
    }
    let seen = on_both("radvd", |lab| {
        let file = lab.net.file("radvd.conf");
        let text = "interface t0 { AdvSendAdvert on; MinRtrAdvInterval 200; MaxRtrAdvInterval 600; \
                    prefix fd00:7::/64 { AdvOnLink on; AdvAutonomous on; }; };";
        fs::write(&file, text).unwrap();
        write(&lab.containers[0], "ipv6/conf/all/forwarding", "1");
        for container in &lab.containers {
            write(container, "ipv6/conf/t0/addr_gen_mode", "0");
        }
        lab.containers[0].ip("link set t0 up");
        let file = file.display().to_string();
        let pid = lab.net.file("radvd.pid").display().to_string();
        lab.start(0, &["radvd", "-n", "-m", "stderr", "-C", &file, "-p", &pid]);
        // Its first advertisements are over: the others have to ask.
        std::thread::sleep(Duration::from_secs(2));
        let has_all = |container: &Netns| {
            let route = container.ip("-6 route show default").contains("proto ra");
            let address = container.ip("-6 addr show dev t0 scope global").contains("fd00:7:");
            usize::from(route && address)
        };
        let others = lab.containers[1..].to_vec();
        others.iter().for_each(|container| _ = container.ip("link set t0 up"));
        let autonomous = reaches(2, 20, || others.iter().map(has_all).sum());
        let told = |container: &Netns| {
            let output = container.attempt("rdisc6 -1 -r 3 -w 2000 t0");
            String::from_utf8_lossy(&output.stdout).contains("fd00:7::/64")
        };
        (autonomous, others.iter().filter(|container| told(container)).count())
    });
    assert_eq!(seen, (2, 2));
}

/// A fail-over with many addresses, a thousand announcements a second. Hosts that hear them, and
/// exchange nothing, have no tunnel and no decap flow for it.
#[test]
#[ignore = "live: needs root"]
fn three_hundred_announcements_reach_everybody_once() {
    if skip("three_hundred_announcements_reach_everybody_once", &["tcpdump"]) {
        return;
    }
    let heard = on_both("garp", |lab| {
        lab.containers.iter().for_each(|container| _ = container.ip("link set t0 up"));
        let ip = |n: u32| Ipv4Addr::from_bits(0x0a2a_0400 + n);
        let frames: Vec<_> =
            (0..300).map(|n| arp_frame(arp::Repr::announcement(MACS[0], ip(n)), 60)).collect();
        let heard = heard_of(lab, &frames);
        for daemon in &lab.daemons {
            let flows = daemon.ask(&["fabric", "flows"])["flows"].take();
            for kind in ["tunnels", "encap", "decap"] {
                assert_eq!(flows[kind].as_array().map(Vec::len), Some(0), "{kind}: {flows}");
            }
        }
        heard
    });
    assert_eq!(heard, [300; 2]);
}

/// Broadcast replies, ARP with another MAC than its frame (VRRP, `balance-alb`), padded and long
/// ones. (ARP with wrong fixed fields is dropped as `bad_arp`, and is not part of this.)
#[test]
#[ignore = "live: needs root"]
fn odd_frames_of_neighbors_reach_everybody_once() {
    if skip("odd_frames_of_neighbors_reach_everybody_once", &["tcpdump"]) {
        return;
    }
    let heard = on_both("odd", |lab| {
        lab.containers.iter().for_each(|container| _ = container.ip("link set t0 up"));
        let ip = Ipv4Addr::new(10, 42, 0, 9);
        let told = arp::Repr::announcement(MACS[0], ip);
        let reply = arp::Repr { operation: arp::Operation::REPLY, ..told };
        let to_one = arp::Repr { target_ip: Ipv4Addr::new(10, 42, 0, 3), ..reply };
        let of_router = arp::Repr::announcement(Mac([0, 0, 0x5e, 0, 1, 7]), ip);
        let asks = arp::Repr { sender_ip: ip, ..arp::Repr::probe(MACS[0], [10, 42, 0, 77].into()) };
        let kinds = [
            arp_frame(reply, 60),
            arp_frame(to_one, 60),
            arp_frame(of_router, 60),
            arp_frame(told, 128),
            arp_frame(told, 129),
            arp_frame(asks, 400),
            arp_frame(asks, 60),
        ];
        heard_of(lab, &(0..10).flat_map(|_| kinds.clone()).collect::<Vec<_>>())
    });
    assert_eq!(heard, [70; 2]);
}

/// Clients have entries of another router: its announcements renew all of them.
#[test]
#[ignore = "live: needs root"]
fn keepalived_announcements_renew_thirty_addresses_at_all_clients() {
    if skip("keepalived_announcements_renew_thirty_addresses_at_all_clients", &["keepalived"]) {
        return;
    }
    let renewed = on_both("vrrp", |lab| {
        lab.up();
        let virtual_ips = || (101..131).map(|n| format!("10.42.0.{n}"));
        let file = lab.net.file("keepalived.conf");
        let ips: String = virtual_ips().map(|ip| format!("    {ip}/24\n")).collect();
        let text = format!(
            "global_defs {{\n  vrrp_garp_master_repeat 1\n  vrrp_garp_master_delay 60\n}}\n\
             vrrp_instance one {{\n  state MASTER\n  interface t0\n  virtual_router_id 7\n  \
             priority 200\n  advert_int 1\n  virtual_ipaddress {{\n{ips}  }}\n}}\n"
        );
        fs::write(&file, text).unwrap();
        for client in &lab.containers[1..] {
            for ip in virtual_ips() {
                client.ip(&format!("neigh add {ip} lladdr 02:de:ad:00:00:01 nud stale dev t0"));
            }
        }
        let name = |word: &str| lab.net.file(word).display().to_string();
        let (file, pid, vrrp) = (name("keepalived.conf"), name("k.pid"), name("v.pid"));
        let words = ["keepalived", "-n", "-P", "-f", &file, "-p", &pid, "-r", &vrrp];
        lab.start(0, &words);
        let own = MACS[0].to_string();
        let clients = lab.containers[1..].to_vec();
        reaches(60, 15, || {
            let tables = clients.iter().map(|client| client.ip("neigh show dev t0"));
            tables.map(|table| table.lines().filter(|line| line.contains(&own)).count()).sum()
        })
    });
    assert_eq!(renewed, 60);
}

/// An unknown IPv6 gateway, after a power cut.
#[test]
#[ignore = "live: needs root"]
fn neighbor_solicitations_for_silent_gateway_all_answered() {
    if skip("neighbor_solicitations_for_silent_gateway_all_answered", &["ping"]) {
        return;
    }
    let answered = on_both("askers", |lab| {
        let [gateway, _, clients] = &lab.containers;
        gateway.ip("link set t0 up");
        clients.ip("link set t0 up");
        let ip = Ipv6Addr::from_bits(0xfd00_0009 << 96 | 1);
        gateway.ip(&format!("addr add {ip}/64 dev t0 nodad"));
        for n in 0..16 {
            clients.ip(&format!("link add m{n} link t0 type macvlan mode bridge"));
            clients.ip(&format!("link set m{n} up"));
            clients.ip(&format!("addr add fe80::{:x}/64 dev m{n} nodad", n + 0x100));
        }
        gateway.ip("addr add fe80::9/64 dev t0 nodad");
        std::thread::sleep(Duration::from_millis(500));
        let ask = |n: usize| {
            let mut command = clients.command("ping");
            command.args(["-6", "-c", "1", "-W", "2", &format!("fe80::9%m{n}")]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
        };
        let asked: Vec<Child> = (0..16).map(ask).collect();
        asked
            .into_iter()
            .map(|mut child| usize::from(child.wait().unwrap().success()))
            .sum::<usize>()
    });
    assert_eq!(answered, 16);
}

/// A scan asks for a whole network at full speed.
#[test]
#[ignore = "live: needs root"]
fn nmap_scan_finds_guest_with_200_addresses() {
    if skip("nmap_scan_finds_guest_with_200_addresses", &["nmap"]) {
        return;
    }
    let found = on_both("nmap", |lab| {
        let [machine, _, scanner] = &lab.containers;
        for n in 1..=200 {
            machine.ip(&format!("addr add 10.42.0.{n}/24 dev t0"));
        }
        machine.ip("link set t0 up");
        scanner.ip("addr add 10.42.0.250/24 dev t0");
        scanner.ip("link set t0 up");
        let text = scanner.run("nmap -sn -n -oG - 10.42.0.0/24");
        let up = text.lines().filter(|line| line.contains("Status: Up"));
        let found: BTreeSet<_> = up.filter_map(|line| line.split_whitespace().nth(1)).collect();
        found.len()
    });
    assert_eq!(found, 201, "and the scanner itself");
}
