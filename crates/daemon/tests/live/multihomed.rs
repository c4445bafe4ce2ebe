//! A server with a cable to each of two hosts that are switches: one is active, the other one its
//! backup, as the kernel's bonding driver does it (`active-backup`). Both cards have one MAC; on a
//! change the new one announces the address, and nobody tells the hosts anything.
//!
//! ```text
//!   srv ─ e0 ════ p0 ┤ h1 ├ up0 ─┐
//!       └ e1 ════ p0 ┤ h2 ├ up0 ─┴ br0 ─ up0 ┤ h3 ├ TAP ─ c3
//! ```

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use sluice_base::Mac;
use sluice_netns::host::Member;
use sluice_testkit::bound::is_soak;
use sluice_wire::arp;

use crate::rig::ping::{Pinger, Pings};
use crate::rig::raw::{Sender, ethernet};
use crate::rig::{Daemon, Net, Netns, are_connected, cable, say, skip, wait_for};

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 50);
const SERVER_MAC: &str = "02:42:00:00:00:50";
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);
const HOSTS: usize = 3;
/// Time between moves that freezes nobody, and some more.
const TOGETHER: Duration = Duration::from_millis(1_200);

/// Fields end in this order: the daemons before their namespaces.
struct Scene {
    daemons: Vec<Daemon>,
    _net: Net,
    hosts: Vec<Netns>,
    server: Netns,
    /// Senders on the cards of the server.
    cards: [RefCell<Sender>; 2],
    client: Netns,
}

impl Scene {
    /// Starts everything; `chip` is in the file of both switches.
    fn new(word: &str, chip: &str) -> Self {
        let mut net = Net::new(word);
        let hosts: Vec<Netns> = (1..=HOSTS).map(|id| net.netns(&format!("h{id}"))).collect();
        let [server, client, wire] = ["srv", "c3", "wire"].map(|name| net.netns(name));
        wire.ip("link add br0 type bridge");
        wire.ip("link set br0 up");
        // The address is that of the active card alone, and no other card answers for it.
        server.run("sysctl -qw net.ipv4.conf.all.arp_ignore=1");
        for (own, host) in hosts.iter().enumerate() {
            let (address, device) = (format!("192.0.2.{}/24", own + 1), format!("to{own}"));
            cable((host, "up0", &address), (&wire, &device, ""));
            wire.ip(&format!("link set {device} master br0"));
            if own < 2 {
                cable((&server, &format!("e{own}"), ""), (host, "p0", ""));
                server.ip(&format!("link set e{own} address {SERVER_MAC}"));
            }
        }
        let names: Vec<String> = (1..=HOSTS).map(|id| format!("h{id}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let certificates = net.certificates(&names);
        let port = "\n[[port]]\nname = \"p0\"\nvnet = \"blue\"\n";
        let daemons = hosts.iter().enumerate().map(|(own, host)| {
            let more = if own < 2 {
                format!("{port}kind = \"l2\"\ndevice = \"p0\"\n{chip}")
            } else {
                let netns = format!("/run/netns/{}", client.name());
                format!("{port}kind = \"tap\"\ndevice = \"t0\"\nnetns = \"{netns}\"\n")
            };
            let (id, certificates) = (own + 1, &*certificates);
            let (hosts, fabric, more) = (HOSTS, "test", more.as_str());
            let [lines, settings, vnet] = [""; 3];
            let member =
                Member { id, hosts, fabric, certificates, host: lines, settings, vnet, more };
            net.daemon(host, &format!("h{id}"), &member.file())
        });
        let daemons: Vec<Daemon> = daemons.collect();
        are_connected(&daemons);
        client.ip(&format!("addr add {C3}/24 dev t0"));
        client.ip("link set t0 up");
        let cards = ["e0", "e1"].map(|card| RefCell::new(Sender::new(&server, card)));
        let scene = Self { daemons, _net: net, hosts, server, cards, client };
        scene.activate(0);
        scene
    }

    /// Makes a card of the server the active one.
    fn activate(&self, card: usize) {
        self.server.attempt(&format!("ip addr del {SERVER}/24 dev e{}", 1 - card));
        self.server.ip(&format!("addr add {SERVER}/24 dev e{card}"));
        assert!(self.cards[card].borrow_mut().send(&announcement()));
    }

    /// Returns the time until the client is answered.
    fn reached(&self, begin: Instant) -> Duration {
        let patience = Duration::from_millis(50);
        let mut pinger = Pinger::with_patience(&self.client, SERVER, patience);
        wait_for("the client reaches the server", || pinger.ping(84));
        begin.elapsed()
    }

    /// Waits until all hosts say that the server is behind the host of its active card.
    fn all_agree(&self, card: usize) {
        let host = format!("h{}", card + 1);
        for daemon in &self.daemons {
            wait_for("all hosts know where the server is", || {
                daemon.ask(&["vport", "show", SERVER_MAC])["vport"]["host"] == *host
            });
        }
    }
}

/// Returns what a bonding driver says at a change: a gratuitous ARP request.
fn announcement() -> Vec<u8> {
    let (mac, mut payload) = (SERVER_MAC.parse().unwrap(), [0; arp::SIZE]);
    arp::Repr::announcement(mac, SERVER).emit(&mut payload);
    ethernet(Mac::BROADCAST, mac, 0x0806, &payload)
}

/// Prints the median and the most of some times.
fn say_times(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let (middle, last) = (times[times.len() / 2], times[times.len() - 1]);
    say(&format!(
        "{what}: {} times, reached after {middle:?} (median), {last:?} (most)",
        times.len()
    ));
}

/// The server changes from one card to the other, with both cables whole and with one cut.
fn server_changes_sides(word: &str, chip: &str) {
    if skip("live::multihomed", &[]) {
        return;
    }
    let scene = Scene::new(word, chip);
    scene.reached(Instant::now());
    scene.all_agree(0);
    let changes = if is_soak() { 200 } else { 8 };
    let (mut planned, mut cut) = (Vec::new(), Vec::new());
    for nth in 1..=changes {
        let card = nth % 2;
        let begin = Instant::now();
        scene.activate(card);
        planned.push(scene.reached(begin));
        scene.all_agree(card);
        // What changes sooner, again and again, is taken for two machines with one MAC.
        std::thread::sleep(TOGETHER.saturating_sub(begin.elapsed()));
    }
    for nth in 1..=changes {
        let (from, to) = ((nth + 1) % 2, nth % 2);
        let begin = Instant::now();
        scene.hosts[from].ip("link set p0 down");
        scene.activate(to);
        cut.push(scene.reached(begin));
        scene.all_agree(to);
        scene.hosts[from].ip("link set p0 up");
        std::thread::sleep(TOGETHER.saturating_sub(begin.elapsed()));
    }
    say_times(&format!("{word}, planned"), planned);
    say_times(&format!("{word}, cable cut"), cut);
    // Nothing is stuck: both ways and for a while.
    let pings = Pings::start(&scene.client, SERVER);
    scene.server.ping(C3, 20);
    let (sent, answered) = pings.stop();
    assert_eq!(sent, answered, "pings after all changes");
    for daemon in &scene.daemons {
        daemon.drained();
    }
}

#[test]
#[ignore = "live: needs root"]
fn multihomed_server_moves_between_switches() {
    server_changes_sides("multihomed", "");
}

#[test]
#[ignore = "live: needs root"]
fn multihomed_server_moves_between_kernel_chips() {
    server_changes_sides("multi-chip", "[chip]\nkind = \"kernel\"\n");
}
