//! Two hosts of a fabric and three containers without ports.
//!
//! ```text
//!   c1 ─┐                      ┌─ c2
//!       ├ h1 up0 ═════ up0 h2 ─┤
//!   h1 ─┘                      └─ c3
//! ```

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Output;

use serde_json::Value;

use super::member::member;
use super::{Daemon, Net, Netns, are_connected, cable, wait_for};

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
pub(crate) struct Pair {
    pub(crate) daemons: [Daemon; 2],
    net: Net,
    pub(crate) hosts: [Netns; 2],
    pub(crate) containers: [Netns; 3],
}

impl Pair {
    /// Starts everything, and waits until the hosts are connected.
    pub(crate) fn new(word: &str, spare_ports: u16) -> Self {
        Self::with(word, spare_ports, |_, _| String::new())
    }

    /// Starts everything like [`Self::new`], with more in the configuration of each host, such as
    /// ports.
    pub(crate) fn with(word: &str, spare_ports: u16, more: impl Fn(&Net, usize) -> String) -> Self {
        let mut net = Net::new(word);
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        let containers = ["c1", "c2", "c3"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        let certificates = net.certificates(&["h1", "h2"]);
        let daemon = |own: usize| {
            let id = own + 1;
            let port = format!(
                r#"
[[port]]
name = "of-the-file"
kind = "tap"
vnet = "blue"
device = "t0"
mac = "02:42:00:00:00:7{id}"
{}
"#,
                more(&net, own)
            );
            let text = member(own, &certificates, &format!("spare_ports = {spare_ports}"), &port);
            net.daemon(&hosts[own], &format!("h{id}"), &text)
        };
        let daemons = [daemon(0), daemon(1)];
        let case = Self { daemons, net, hosts, containers };
        are_connected(&case.daemons);
        case
    }

    /// Adds a port of container `at` to host `own`, with an address.
    pub(crate) fn add(&self, own: usize, at: usize, ip: Ipv4Addr) -> Value {
        let (netns, ip) = (self.containers[at].name(), format!("{ip}/24"));
        self.daemons[own].ask(&["port", "add", "--netns", netns, "--vnet", "blue", "--ip", &ip])
    }

    /// Returns the path of a file of this test.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.net.file(name)
    }

    /// Deletes a port.
    pub(crate) fn delete(&self, own: usize, name: &str) -> Value {
        self.daemons[own].ask(&["port", "del", name])
    }

    /// Returns the IP addresses of the endpoints that a host knows.
    pub(crate) fn known(&self, own: usize) -> Vec<String> {
        let rows = self.daemons[own].ask(&["vport", "list"])["vports"].take();
        let ips = |row: &Value| row["ips"].as_array().unwrap().clone();
        let rows = rows.as_array().unwrap().iter().flat_map(ips);
        rows.map(|ip| ip.as_str().unwrap().to_owned()).collect()
    }

    /// Waits until both hosts know an address, or neither does.
    pub(crate) fn both_know(&self, ip: Ipv4Addr, known: bool) {
        for own in 0..2 {
            wait_for(&format!("{ip} is known: {known}"), || {
                self.known(own).contains(&ip.to_string()) == known
            });
        }
    }

    /// Runs a command at host `own`, which may fail.
    pub(crate) fn attempt(&self, own: usize, line: &str) -> Output {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.daemons[own].attempt(&words)
    }
}

/// Returns the names of the devices in a namespace.
pub(crate) fn devices(netns: &Netns) -> Vec<String> {
    let text = netns.ip("-o link show");
    let name = |line: &str| line.split(": ").nth(1).unwrap().split('@').next().unwrap().to_owned();
    text.lines().map(name).collect()
}
