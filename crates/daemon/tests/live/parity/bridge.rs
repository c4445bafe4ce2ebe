//! The kernel's subject: a bridge and a VXLAN device for each network, on two hosts.

use std::collections::BTreeSet;
use std::sync::Mutex;

use super::world::{MTU_MAX, Plug, Subject};
use crate::rig::{Net, Netns, cable};

/// Two hosts.
pub(crate) struct Bridge {
    hosts: [Netns; 2],
    networks: Mutex<BTreeSet<usize>>,
    _net: Net,
}

impl Bridge {
    pub(crate) fn new() -> Self {
        let mut net = Net::new("bridge");
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        for host in &hosts {
            host.ip("link set up0 mtu 9000");
            // A plain bridge: `br_netfilter` would handle packets as a router does.
            host.inside(|| {
                for family in ["arp", "ip", "ip6"] {
                    let path = format!("/proc/sys/net/bridge/bridge-nf-call-{family}tables");
                    // The kernel may lack this setting.
                    _ = std::fs::write(path, "0");
                }
            });
        }
        Self { hosts, networks: Mutex::default(), _net: net }
    }

    fn make(&self, network: usize) {
        if !self.networks.lock().unwrap().insert(network) {
            return;
        }
        for (own, host) in self.hosts.iter().enumerate() {
            host.ip(&format!("link add br{network} mtu {MTU_MAX} type bridge forward_delay 0"));
            host.ip(&format!(
                "link add vx{network} mtu {MTU_MAX} type vxlan id {} local 192.0.2.{} remote \
                 192.0.2.{} dev up0 dstport 4789",
                network + 100,
                own + 1,
                2 - own
            ));
            host.ip(&format!("link set vx{network} master br{network}"));
            host.ip(&format!("link set vx{network} up"));
            host.ip(&format!("link set br{network} up"));
        }
    }
}

impl Subject for Bridge {
    fn word(&self) -> &'static str {
        "bridge"
    }

    fn attach(&self, plug: &Plug) {
        self.make(plug.network);
        let host = &self.hosts[plug.host.index()];
        let port = format!("p{}-{}", plug.network, plug.number);
        host.ip(&format!(
            "link add {port} mtu {MTU_MAX} type veth peer name eth0 netns {}",
            plug.netns.name()
        ));
        host.ip(&format!("link set {port} master br{}", plug.network));
        host.ip(&format!("link set {port} up"));
        // Frames look as on a wire.
        plug.netns.run("ethtool -K eth0 tx off tso off gso off gro off");
    }

    fn detach(&self, plug: &Plug) {
        let port = format!("p{}-{}", plug.network, plug.number);
        let host = self.hosts[plug.host.index()].name();
        // The case may have removed it.
        crate::rig::attempt(&format!("ip -n {host} link del {port}"));
    }
}
