//! Two hosts of a fabric, with a network for each case.

use std::fmt::Write as _;

use super::world::{MTU_MAX, Plug, Subject};
use crate::rig::{Daemon, Net, are_connected, cable};

/// Two hosts. Fields end in this order: the daemons before their namespaces.
pub(crate) struct Fabric {
    daemons: [Daemon; 2],
    _net: Net,
}

impl Fabric {
    /// Starts hosts that have `networks`.
    pub(crate) fn new(networks: usize) -> Self {
        let mut net = Net::new("fabric");
        let hosts = ["h1", "h2"].map(|name| net.netns(name));
        cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
        for host in &hosts {
            host.ip("link set up0 mtu 9000");
        }
        let certificates = net.certificates(&["h1", "h2"]);
        let daemon = |own: usize| {
            let (id, other) = (own + 1, 2 - own);
            let mut text = format!(
                r#"
policy = "ZL"
spare_ports = 128
state_dir = "{state}"
[underlay]
kind = "l2"
device = "up0"
address = "192.0.2.{id}"
[fabric]
name = "parity"
id = {id}
certificates = "{certificates}"
"#,
                state = net.file(&format!("state{id}")).display(),
                certificates = certificates.join(format!("h{id}")).display(),
            );
            for network in 0..networks {
                let vni = network + 100;
                writeln!(text, "[[vnet]]\nname = \"n{network}\"\nvni = {vni}\nmtu = {MTU_MAX}")
                    .unwrap();
            }
            let names: Vec<_> = (0..networks).map(|network| format!("\"n{network}\"")).collect();
            writeln!(
                text,
                "[[peer]]\nname = \"h{other}\"\nid = {other}\nvtep = \"192.0.2.{other}\"\nvnets = \
                 [{}]",
                names.join(", ")
            )
            .unwrap();
            net.daemon(&hosts[own], &format!("h{id}"), &text)
        };
        let daemons = [daemon(0), daemon(1)];
        are_connected(&daemons);
        daemons.iter().for_each(Daemon::next_hops_are_resolved);
        Self { daemons, _net: net }
    }

    fn name(plug: &Plug) -> String {
        format!("p{}-{}", plug.network, plug.number)
    }

    /// Prints the hosts' drops so far, for the analysis of a surprise.
    pub(crate) fn tell_drops(&self) {
        for (daemon, host) in self.daemons.iter().zip(["h1", "h2"]) {
            for ((port, reason), frames) in daemon.drops() {
                crate::rig::say(&format!("{host} dropped {frames} at {port}: {reason}"));
            }
        }
    }

    /// Checks the audit when all cases have ended.
    pub(crate) fn assert_books_balance(&self) {
        for daemon in &self.daemons {
            daemon.drained();
            let audit = daemon.show("audit");
            assert_eq!(audit["closed"], true, "{audit}");
        }
    }
}

impl Subject for Fabric {
    fn word(&self) -> &'static str {
        "sluice"
    }

    fn attach(&self, plug: &Plug) {
        let (name, network) = (Self::name(plug), format!("n{}", plug.network));
        let mut words =
            vec!["port", "add", "--name", &name, "--netns", plug.netns.name(), "--vnet", &network];
        let bound = plug.bound.as_ref();
        if let Some((mac, ip)) = bound {
            words.extend(["--mac", mac, "--ip", ip]);
        }
        let shared = plug.shared.map(|ip| ip.to_string());
        if let Some(ip) = &shared {
            words.extend(["--allow-ip", ip]);
        }
        self.daemons[plug.host.index()].ask(&words);
    }

    fn detach(&self, plug: &Plug) {
        // The case may have removed it.
        self.daemons[plug.host.index()].attempt(&["port", "del", &Self::name(plug)]);
    }
}
