//! The observer against the kernel's own counters, with losses that are provoked here.

use std::fs;
use std::io::Write as _;
use std::net::UdpSocket;

use sluice_dropwatch::{Drops, Unavailable};

/// A network namespace with a loopback device.
struct Netns(String);

impl Netns {
    fn new(word: &str) -> Self {
        let netns = Self(format!("sluice-dw-{}-{word}", std::process::id()));
        for command in ["netns add NAME", "-n NAME link set lo up"] {
            sluice_netns::run(&format!("ip {}", command.replace("NAME", &netns.0))).unwrap();
        }
        netns
    }

    fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        sluice_netns::inside(&self.0, work).unwrap()
    }

    /// A column of the `Udp` rows of `/proc/net/snmp`.
    fn udp(&self, name: &str) -> u64 {
        let text = self.inside(|| fs::read_to_string("/proc/thread-self/net/snmp").unwrap());
        let mut rows = text.lines().filter(|line| line.starts_with("Udp:"));
        let column = rows.next().unwrap().split_whitespace().position(|word| word == name);
        rows.next().unwrap().split_whitespace().nth(column.unwrap()).unwrap().parse().unwrap()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        _ = sluice_netns::run(&format!("ip netns del {}", self.0));
    }
}

/// An observer, or `None` and a message if it cannot run.
fn watch(test: &str, namespaces: &[&Netns]) -> Option<Drops> {
    match Drops::watch(namespaces.iter().map(|netns| &netns.0)) {
        Ok(drops) => Some(drops),
        Err(error) => {
            _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
            None
        }
    }
}

/// Sends datagrams to a socket that is not read until its buffer is full, and some more.
fn overrun(netns: &Netns, datagrams: usize) {
    netns.inside(|| {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        for _ in 0..datagrams {
            sender.send_to(&[0; 1000], to).unwrap();
        }
    });
}

#[test]
#[ignore = "live: needs root"]
fn rcvbuf_drops_seen_only_in_overrun_netns() {
    let test = "rcvbuf_drops_seen_only_in_overrun_netns";
    let (full, idle) = (Netns::new("full"), Netns::new("idle"));
    let Some(mut drops) = watch(test, &[&full, &idle]) else { return };
    assert_eq!(drops.losses(), [], "before anything was sent");
    let before = full.udp("RcvbufErrors");
    overrun(&full, 3000);
    let lost = full.udp("RcvbufErrors") - before;
    assert!(lost > 0, "no buffer takes 3,000 datagrams");
    let losses = drops.losses();
    assert_eq!(losses.len(), 1, "{losses:?}");
    assert_eq!((&*losses[0].reason, losses[0].frames), ("SOCKET_RCVBUFF", lost));
    assert_eq!((&*losses[0].namespace, &*losses[0].device), (&*full.0, "lo"));
    assert_eq!(drops.frames(&full.0, "lo", "SOCKET_RCVBUFF"), lost);
    assert_eq!(drops.missed(), 0);
    drops.restart();
    assert_eq!(drops.since(), [], "counted from now on");
    overrun(&full, 3000);
    let again = full.udp("RcvbufErrors") - before - lost;
    assert_eq!(drops.frames(&full.0, "lo", "SOCKET_RCVBUFF"), again);
}

#[test]
#[ignore = "live: needs root"]
fn udp_datagram_without_socket_is_no_loss() {
    let test = "udp_datagram_without_socket_is_no_loss";
    let netns = Netns::new("closed");
    let Some(drops) = watch(test, &[&netns]) else { return };
    netns.inside(|| {
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..7 {
            sender.send_to(&[0; 100], "127.0.0.1:9").unwrap();
        }
    });
    assert_eq!(drops.frames(&netns.0, "lo", "NO_SOCKET"), 7, "{:?}", drops.since());
    assert_eq!(drops.losses(), []);
}

#[test]
fn a_namespace_that_is_absent_is_named() {
    let error: Unavailable = Drops::watch(["sluice-no-such-netns"]).err().unwrap();
    assert!(error.to_string().contains("/run/netns/sluice-no-such-netns"), "{error}");
}
