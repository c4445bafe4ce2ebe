//! Frames of a port that the kernel loses are reported as that port's loss, with its time, and
//! agree with the kernel's own report (`kfree_skb`); frames for the kernel itself are no drops.
//!
//! ```text
//!   one ─ TAP ─┐
//!              ├ host up0 ══ up0 peer
//!   two ─ TAP ─┘
//! ```

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::rig::kernel::Kernel;
use crate::rig::{Daemon, Net, Netns, cable, say, skip, wait_for};
use serde_json::Value;

const ONE: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(10, 46, 0, 2);
const HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const RING: usize = 200;

/// Everything of one test. Fields end in this order: the daemon before its namespaces.
struct Case {
    daemon: Daemon,
    net: Net,
    one: Netns,
    two: Netns,
    peer: Netns,
}

impl Case {
    fn new(word: &str) -> Self {
        let mut net = Net::new(word);
        let (host, peer) = (net.netns("host"), net.netns("peer"));
        let (one, two) = (net.netns("one"), net.netns("two"));
        cable((&host, "up0", "192.0.2.1/24"), (&peer, "up0", "192.0.2.2/24"));
        let daemon = net.daemon(&host, "h0", &config(&one, &two));
        for (netns, address) in [(&one, ONE), (&two, TWO)] {
            netns.ip(&format!("addr add {address}/24 dev t0"));
            netns.ip("link set t0 up");
        }
        Self { daemon, net, one, two, peer }
    }

    /// Returns a row of a loss beside an answer.
    fn loss(&self, question: &str, port: &str, counter: &str) -> Option<Value> {
        let answer = self.daemon.ask(&["show", question]);
        let rows = answer["outside"].as_array().cloned().unwrap_or_default();
        rows.into_iter().find(|row| row["port"] == port && row["counter"] == counter)
    }
}

/// The priority is a lossy one: for a lossless one a socket without room holds its senders.
fn config(one: &Netns, two: &Netns) -> String {
    let mut text = format!(
        "policy = \"ZZ\"\n[underlay]\nkind = \"l2\"\ndevice = \"up0\"\naddress = \"{HOST}\"\n\
         [[vnet]]\nname = \"blue\"\nvni = 46\n[[class]]\npriority = 0\nlossless = false\n"
    );
    for (name, netns, last) in [("one", one, 1), ("two", two, 2)] {
        text += &format!(
            "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
             netns = \"/run/netns/{}\"\nmac = \"02:46:00:00:00:0{last}\"\nring_frames = {RING}\n",
            netns.name()
        );
    }
    text
}

#[test]
#[ignore = "live: needs root"]
fn kernel_ring_and_socket_losses_attributed_to_port() {
    let test = "kernel_ring_and_socket_losses_attributed_to_port";
    if skip(test, &[]) {
        return;
    }
    let case = Case::new("losses");
    let daemon = &case.daemon;
    case.one.ping(TWO, 3);
    assert!(daemon.print(&["show", "drops"]).contains("nothing was dropped"));
    let kernel = Kernel::watch(test, &case.net);
    let (receiver, sender) = (case.two.udp(TWO, 9), case.one.udp(ONE, 9));

    // A TAP's ring overflows while it is not read.
    daemon.hang_data(true);
    for _ in 0..3 * RING {
        sender.send_to(&[0; 100], (TWO, 9)).unwrap();
    }
    daemon.hang_data(false);
    let mut lost = 0;
    wait_for("the overflow is told", || {
        lost = case.loss("drops", "one", "device.tx_dropped").map_or(0, frames);
        lost > 0
    });
    say(&format!("{lost} of {} frames found the ring full", 3 * RING));
    assert!(daemon.print(&["show", "drops"]).contains("lost outside the switch"));
    assert!(daemon.print(&["show", "audit"]).contains("lost outside the switch"));
    assert!(case.loss("audit", "one", "device.tx_dropped").is_some());
    let lossless = daemon.row("ports", "port", "one")["lossless"].clone();
    let words = format!("lost {lost} frames outside the switch (device.tx_dropped), last ");
    assert!(lossless.as_str().unwrap().contains(&words), "{lossless}");
    if let Some(kernel) = &kernel {
        assert_eq!(kernel.frames(&case.one, "t0", "FULL_RING"), lost);
    }

    // A socket without a reader. Each burst fits into the ring.
    for _ in 0..40 {
        for _ in 0..RING / 4 {
            sender.send_to(&[0; 1000], (TWO, 9)).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    wait_for("the full socket is told", || {
        case.loss("drops", "two", "container.udp_rcvbuf_errors").is_some()
    });
    daemon.drained();
    let full = case.loss("drops", "two", "container.udp_rcvbuf_errors").map_or(0, frames);
    say(&format!("{full} datagrams found the socket full"));
    assert_eq!(full, case.two.snmp("Udp", "RcvbufErrors"));
    if let Some(kernel) = &kernel {
        assert_eq!(kernel.frames(&case.two, "t0", "SOCKET_RCVBUFF"), full);
    }
    drop(receiver);

    // The time stays that of the loss.
    let ago = |row: Value| row["ago_ns"].as_u64().unwrap();
    let first = case.loss("drops", "one", "device.tx_dropped").map(ago);
    std::thread::sleep(Duration::from_millis(1100));
    let later = case.loss("drops", "one", "device.tx_dropped").map(ago);
    assert!(later > first.map(|ago| ago + 1_000_000_000), "{first:?}, {later:?}");
}

fn frames(row: Value) -> u64 {
    row["frames"].as_u64().unwrap()
}

/// ARP, ping and connections of the host itself, without any of a tenant.
#[test]
#[ignore = "live: needs root"]
fn host_own_kernel_traffic_counts_no_drop() {
    let test = "host_own_kernel_traffic_counts_no_drop";
    if skip(test, &[]) {
        return;
    }
    let case = Case::new("own");
    let kernel = Kernel::watch(test, &case.net);
    case.peer.ping(HOST, 20);
    case.peer.attempt("ip neigh flush all");
    case.peer.ping(HOST, 5);
    let asked = case.peer.inside(|| std::net::TcpStream::connect((HOST, 9)));
    assert!(asked.is_err(), "nobody listens there, and the kernel says so");
    let sender = case.peer.udp(Ipv4Addr::new(192, 0, 2, 2), 0);
    for _ in 0..10 {
        // The kernel's error for one datagram may be reported to the next call.
        _ = sender.send_to(&[0; 100], (HOST, 53));
    }
    case.daemon.drained();
    assert_eq!(case.daemon.drops(), [].into());
    assert_eq!(case.loss("drops", "underlay", "device.rx_dropped"), None);
    let text = case.daemon.print(&["show", "drops"]);
    assert!(text.contains("nothing was dropped"), "{text}");
    if let Some(kernel) = &kernel {
        kernel.assert_no_loss(&[(&case.daemon, "underlay", "up0")]);
    }
}
