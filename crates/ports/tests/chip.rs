//! The kernel as a chip, between two hosts and two containers: what is known it forwards by itself,
//! everything else comes to the ring of the switch, and nothing goes both ways.

mod support;

use std::net::Ipv4Addr;

use sluice_base::{Batch, Mac, PortId, TunnelId, VnetId, Vni};
use sluice_ports::Port as _;
use sluice_ports::chip::{
    Capacity, CardConfig, Chip as _, Entry, Hits, KernelCard, KernelChip, KernelConfig, Network,
    Place, Refused, Senders,
};
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use support::{Cable, LEFT, OPEN, RIGHT, can_have_namespaces, eventually, inside, path, pool, run};

const VNET: VnetId = VnetId(3);
const PORT: PortId = PortId(0);
const TUNNEL: TunnelId = TunnelId(1);
const MACS: [Mac; 2] = [Mac([2, 0x10, 0, 0, 0, 1]), Mac([2, 0x10, 0, 0, 0, 2])];
const IPS: [&str; 2] = ["10.1.0.1", "10.1.0.2"];
const IPV6S: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

/// A host with a chip, an underlay and a container.
struct Host {
    namespace: String,
    container: Container,
    /// `None` once its process has ended.
    chip: Option<KernelChip>,
    card: L2Port,
    underlay: L2Port,
}

impl Host {
    fn new(namespace: &str, device: &str, (vtep, own): (Ipv4Addr, usize)) -> Self {
        let container = Container::new(format!("{namespace}c"));
        let (namespace, inner) = (namespace.to_owned(), container.0.clone());
        run(&format!("ip netns exec {namespace} ethtool -K {device} tx on"));
        let made = inside(&namespace, move || {
            let capacity = Capacity { macs: 8, flows: 4 };
            let config = KernelConfig { host: "h".to_owned(), vtep, capacity, offloads: false };
            let mut chip = KernelChip::open(config).unwrap();
            let vni = Vni::new(42).unwrap();
            chip.add_network(Network { vnet: VNET, vni, mtu: 1400 }).unwrap();
            let card = KernelCard::open(&CardConfig {
                host: "h".to_owned(),
                port: "web".to_owned(),
                device: "eth0".to_owned(),
                netns: Some(path(&inner)),
                mac: Some(MACS[own]),
                addresses: vec![(IPS[own].parse().unwrap(), 24)],
                routes: Vec::new(),
                mtu: 1400,
            })
            .unwrap();
            let way = Some(chip.ways().port(VNET));
            let l2 = |device: &str, kernel, way| {
                L2Port::open(&L2Config { kernel, way, ..L2Config::new(device) }).unwrap()
            };
            let port = l2(card.name(), KernelShare::Nothing, way);
            let underlay = l2(device, KernelShare::NoVxlan(vtep), Some(chip.ways().underlay()));
            chip.add_port(PORT, VNET, card.name()).unwrap();
            (chip, port, underlay)
        });
        let (chip, card, underlay) = made;
        Self { namespace, container, chip: Some(chip), card, underlay }
    }

    fn with<T: Send>(&mut self, work: impl FnOnce(&mut KernelChip) -> T + Send) -> T {
        let chip = self.chip.as_mut().unwrap();
        inside(&self.namespace, move || work(chip))
    }

    fn put(&mut self, mac: Mac, to: Place) {
        let entry = Entry { to, senders: Senders::Any };
        self.with(|chip| chip.put(VNET, mac, entry)).unwrap();
    }

    /// Frames that came to the switch.
    fn punted(&mut self) -> usize {
        [&mut self.card, &mut self.underlay]
            .into_iter()
            .map(|port| {
                let (mut pool, mut batch) = (pool(64), Batch::with_limit(64));
                let read = port.read(OPEN, 64, &mut pool, &mut batch).unwrap();
                while let Some(buf) = batch.pop() {
                    pool.give_back(buf);
                }
                read.frames
            })
            .sum()
    }

    fn ping(&self, ip: &str, count: u32) -> bool {
        let netns = ["netns", "exec", &self.container.0, "ping", "-n", "-i", "0.01", "-W", "1"];
        let ping = std::process::Command::new("ip")
            .args(netns)
            .args(["-c", &count.to_string(), ip])
            .output()
            .unwrap();
        ping.status.success()
    }
}

/// The namespace of a container, deleted with this.
struct Container(String);

impl Container {
    fn new(name: String) -> Self {
        support::add_namespace(&name);
        Self(name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _gone = std::process::Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

fn pair(cable: &Cable) -> [Host; 2] {
    let hosts =
        [Host::new(&cable.left, "l0", (LEFT, 0)), Host::new(&cable.right, "r0", (RIGHT, 1))];
    for (at, other) in [(0, 1), (1, 0)] {
        let container = &hosts[at].container.0;
        run(&format!("ip -n {container} neigh add {} lladdr {} dev eth0", IPS[other], MACS[other]));
    }
    hosts
}

/// Writes both addresses and the decap flow at both hosts.
fn know(hosts: &mut [Host; 2]) {
    for (at, other, vtep) in [(0, 1, RIGHT), (1, 0, LEFT)] {
        hosts[at].put(MACS[at], Place::Port(PORT));
        hosts[at].put(MACS[other], Place::Tunnel(TUNNEL, vtep));
        hosts[at].with(|chip| chip.set_decap(VNET, (TUNNEL, vtep), true)).unwrap();
    }
}

#[test]
fn chip_forwards_what_it_knows_alone() {
    if !can_have_namespaces("chip_forwards_what_it_knows_alone") {
        return;
    }
    let cable = Cable::new();
    let mut hosts = pair(&cable);
    assert!(!hosts[0].ping(IPS[1], 1), "nothing is known");
    assert!(hosts[0].punted() > 0, "a miss is the switch's");
    know(&mut hosts);
    assert!(eventually(|| hosts[0].ping(IPS[1], 1)));
    let _neighbor_discovery = (hosts[0].punted(), hosts[1].punted());
    assert!(hosts[0].ping(IPS[1], 20));
    assert_eq!(hosts[1].underlay_waiting(), 0, "the switch sees nothing of it");
    for host in &mut hosts {
        assert!(host.with(|chip| chip.forwarded()).unwrap() >= 40);
        let mut hit = Vec::new();
        host.with(|chip| chip.hits(&mut |_, mac, hits| hit.push((mac, hits)))).unwrap();
        let both = Hits { to: true, from: true };
        hit.sort_by_key(|(mac, _)| *mac);
        assert_eq!(hit, [(MACS[0], both), (MACS[1], both)]);
        let mut again = 0;
        host.with(|chip| chip.hits(&mut |_, _, _| again += 1)).unwrap();
        assert_eq!(again, 0, "a hit is told once");
    }
    // ARP is the switch's, whatever is known.
    let container = hosts[0].container.0.clone();
    run(&format!("ip -n {container} neigh del {} dev eth0", IPS[1]));
    let before = hosts[0].punted();
    assert!(!hosts[0].ping(IPS[1], 1));
    assert!(hosts[0].punted() > 0, "{before}");
}

impl Host {
    fn underlay_waiting(&mut self) -> usize {
        let (mut pool, mut batch) = (pool(64), Batch::with_limit(64));
        let frames = self.underlay.read(OPEN, 64, &mut pool, &mut batch).unwrap().frames;
        while let Some(buf) = batch.pop() {
            pool.give_back(buf);
        }
        frames
    }
}

#[test]
fn removed_address_comes_back_to_the_switch() {
    if !can_have_namespaces("removed_address_comes_back_to_the_switch") {
        return;
    }
    let cable = Cable::new();
    let mut hosts = pair(&cable);
    know(&mut hosts);
    assert!(eventually(|| hosts[0].ping(IPS[1], 1)));
    let _earlier = hosts[0].punted();
    hosts[0].with(|chip| chip.remove(VNET, MACS[1])).unwrap();
    assert!(!hosts[0].ping(IPS[1], 1));
    assert!(hosts[0].punted() > 0);
    hosts[0].put(MACS[1], Place::Tunnel(TUNNEL, RIGHT));
    assert!(hosts[0].ping(IPS[1], 1));
    // A host whose decap flow is gone, and a stranger's VTEP, are the switch's.
    hosts[1].with(|chip| chip.set_decap(VNET, (TUNNEL, LEFT), false)).unwrap();
    assert!(!hosts[0].ping(IPS[1], 1));
    assert!(hosts[1].underlay_waiting() > 0);
}

#[test]
fn senders_may_send_what_is_theirs() {
    if !can_have_namespaces("senders_may_send_what_is_theirs") {
        return;
    }
    let cable = Cable::new();
    let mut hosts = pair(&cable);
    know(&mut hosts);
    for (at, other) in [(0, 1), (1, 0)] {
        let container = &hosts[at].container.0;
        run(&format!("ip netns exec {container} sysctl -qw net.ipv6.conf.eth0.disable_ipv6=0"));
        run(&format!("ip -n {container} addr add {}/64 dev eth0 nodad", IPV6S[at]));
        let neighbour = format!("{} lladdr {} dev eth0", IPV6S[other], MACS[other]);
        run(&format!("ip -n {container} neigh add {neighbour}"));
    }
    let ipv4 = IPS.map(|ip| Some(ip.parse().unwrap()));
    let ipv6 = IPV6S.map(|ip| Some(ip.parse().unwrap()));
    let near = Some("2001:db8::1:1".parse().unwrap());
    for (senders, passes) in [
        (Senders::Only(ipv4[0], None), [true, false]),
        (Senders::Only(ipv4[1], None), [false, false]),
        (Senders::Only(None, ipv6[0]), [false, true]),
        (Senders::Only(None, ipv6[1]), [false, false]),
        (Senders::Only(ipv4[0], near), [true, false]),
        (Senders::Only(ipv4[0], ipv6[0]), [true, true]),
        (Senders::NONE, [false, false]),
        (Senders::Any, [true, true]),
    ] {
        let entry = Entry { to: Place::Port(PORT), senders };
        hosts[0].with(|chip| chip.put(VNET, MACS[0], entry)).unwrap();
        for (ip, passes) in [IPS[1], IPV6S[1]].into_iter().zip(passes) {
            // No switch runs here, so what passes is the kernel's. IPv6 says things of itself, too.
            let _earlier = hosts[0].punted();
            assert_eq!(hosts[0].ping(ip, 1), passes, "{ip} {senders:?}");
            assert!(passes || hosts[0].punted() > 0, "{ip} {senders:?}");
        }
    }
}

#[test]
fn changes_of_others_are_put_right() {
    if !can_have_namespaces("changes_of_others_are_put_right") {
        return;
    }
    let cable = Cable::new();
    let mut hosts = pair(&cable);
    know(&mut hosts);
    assert!(eventually(|| hosts[0].ping(IPS[1], 1)));
    assert_eq!(hosts[0].with(|chip| chip.mend()).unwrap(), 0, "own changes are nobody's");
    let namespace = hosts[0].namespace.clone();
    let inside = |command: &str| run(&format!("ip netns exec {namespace} {command}"));
    for (command, what) in [
        (format!("bridge fdb del {} dev slx42 master", MACS[1]), "an entry is gone"),
        (format!("bridge fdb del {} dev slx42 self", MACS[1]), "a tunnel's entry is gone"),
        (
            format!("bridge fdb replace {} dev slx42 dst 192.0.2.9 self", MACS[1]),
            "it leads elsewhere",
        ),
        ("bridge link set dev slx42 learning on flood on".to_owned(), "it learns and floods"),
        ("ip link set slx42 nomaster".to_owned(), "its device left the bridge"),
        ("ip link set slx42 down".to_owned(), "its device is down"),
        ("ip link del slx42".to_owned(), "its device is gone"),
        ("ip link del slb42".to_owned(), "its bridge is gone"),
        (format!("bridge fdb del {} dev slx42 master", MACS[1]), "an entry of the new devices"),
        (format!("bridge fdb del {} dev slx42 self", MACS[1]), "a tunnel's entry of them"),
    ] {
        inside(&command);
        assert!(hosts[0].with(|chip| chip.mend()).unwrap() > 0, "{what}");
        assert!(eventually(|| hosts[0].ping(IPS[1], 1)), "{what}");
        hosts[0].with(|chip| chip.mend()).unwrap();
        assert_eq!(hosts[0].with(|chip| chip.mend()).unwrap(), 0, "{what}: it is right now");
    }
}

#[test]
fn devices_of_others_are_left_alone() {
    if !can_have_namespaces("devices_of_others_are_left_alone") {
        return;
    }
    let cable = Cable::new();
    run(&format!("ip -n {} link add slb7 type bridge", cable.left));
    let refused = inside(&cable.left, || {
        let capacity = Capacity { macs: 8, flows: 4 };
        let config = KernelConfig { host: "h".to_owned(), vtep: LEFT, capacity, offloads: false };
        let mut chip = KernelChip::open(config).unwrap();
        chip.add_network(Network { vnet: VNET, vni: Vni::new(7).unwrap(), mtu: 1400 })
    });
    let Err(Refused::Broken(error)) = refused else { panic!("{refused:?}") };
    assert!(error.to_string().contains("slb7 is there, and not this host's"), "{error}");
}

#[test]
fn next_chip_adopts_what_is_there() {
    if !can_have_namespaces("next_chip_adopts_what_is_there") {
        return;
    }
    let cable = Cable::new();
    let mut hosts = pair(&cable);
    know(&mut hosts);
    assert!(eventually(|| hosts[0].ping(IPS[1], 1)));
    let [mut first, mut second] = hosts;
    // The process ends, and the kernel goes on.
    let (namespace, chip) = (first.namespace.clone(), first.chip.take());
    inside(&namespace, move || drop(chip));
    first.card.close().unwrap();
    first.underlay.close().unwrap();
    let container = first.container.0.clone();
    let ping = |what: &str| {
        let ping = format!("ip netns exec {container} ping -n -c 3 -i 0.01 -W 1 {}", IPS[1]);
        run(&ping);
        what.len()
    };
    ping("fail static");
    let mut next = inside(&namespace, || {
        let capacity = Capacity { macs: 8, flows: 4 };
        let config = KernelConfig { host: "h".to_owned(), vtep: LEFT, capacity, offloads: false };
        let mut chip = KernelChip::open(config).unwrap();
        let vni = Vni::new(42).unwrap();
        chip.add_network(Network { vnet: VNET, vni, mtu: 1400 }).unwrap();
        chip
    });
    ping("adopted");
    // What nobody asks for is forgotten; what is asked for stays.
    inside(&namespace, || {
        let entry = Entry { to: Place::Tunnel(TUNNEL, RIGHT), senders: Senders::Any };
        next.put(VNET, MACS[1], entry).unwrap();
        assert_eq!(next.forget_left().unwrap(), 0);
    });
    ping("kept");
    inside(&namespace, || {
        next.remove(VNET, MACS[1]).unwrap();
        assert_eq!(next.mend().unwrap(), 0);
    });
    assert_eq!(inside(&namespace, || KernelChip::delete_left("other")).unwrap(), 0);
    assert_eq!(inside(&namespace, || KernelChip::delete_left("h")).unwrap(), 2);
    second.with(|chip| chip.remove_network(VNET)).unwrap();
    assert!(inside(&second.namespace, || sluice_ports::device::device("slb42")).is_err());
}
