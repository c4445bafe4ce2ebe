//! The `ip` commands that make a plan's namespaces into machines.

use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::{Container, HostNode, Plan, RING_FRAMES, SwitchNode, vxlan};
use crate::scenario::{Fabric, Scenario};

/// Returns the commands that lay the cables: every pair of devices is made directly in its two
/// namespaces and is never visible outside of them.
pub(crate) fn cable_commands(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for switch in &plan.switches {
        for cable in &switch.cables {
            let ends = sluice_netns::veth_arguments(
                (&switch.netns, &cable.device),
                (&cable.far_netns, &cable.far_device),
            );
            lines.push(format!("link add {ends}"));
        }
    }
    if plan.fabric == Fabric::LinuxVxlan {
        lines.extend(vxlan::cable_commands(plan));
    }
    lines
}

/// Returns the `ip` commands that set up a switch's namespace.
pub(crate) fn switch_commands(plan: &Plan, switch: &SwitchNode) -> Vec<String> {
    let mut lines = vec!["link set dev lo up".to_owned()];
    let bridge = plan.fabric == Fabric::LinuxBridge;
    let mtu = if bridge { plan.mtu } else { plan.underlay_mtu() };
    if bridge {
        lines.push("link add name br0 type bridge".to_owned());
        lines.push("link set dev br0 up".to_owned());
    }
    for cable in &switch.cables {
        let master = if bridge { " master br0" } else { "" };
        lines.push(format!("link set dev {} mtu {mtu}{master}", cable.device));
        lines.push(format!("link set dev {} up", cable.device));
    }
    if !plan.fabric.has_hosts() {
        // Open vSwitch does not complete a checksum that a guest leaves to its card. Without this
        // header QEMU's card offers no checksum offload.
        let (master, header) = if bridge { (" master br0", " vnet_hdr") } else { ("", "") };
        for vm in plan.containers.iter().filter(|machine| machine.is_vm) {
            lines.push(format!("tuntap add dev {} mode tap{header}", vm.name));
            lines.push(format!("link set dev {} mtu {}{master}", vm.name, plan.mtu));
            lines.push(format!("link set dev {} up", vm.name));
        }
    }
    lines
}

/// Returns the `ip` commands that set up a host's namespace.
pub(crate) fn host_commands(plan: &Plan, host: &HostNode) -> Vec<String> {
    let mut lines = vec![
        "link set dev lo up".to_owned(),
        format!("link set dev up0 address {} mtu {}", host.mac, plan.underlay_mtu()),
        format!("addr add {}/24 dev up0", host.vtep),
        "link set dev up0 up".to_owned(),
    ];
    let near = plan.hosts.iter().filter(|h| h.subnet == host.subnet && h.name != host.name);
    lines.extend(near.map(|h| neighbour(h.vtep, h.mac, "up0")));
    if plan.router.is_some() {
        let router = router_ip(host.subnet);
        lines.push(neighbour(router, router_mac(host.subnet), "up0"));
        lines.push(format!("route add default via {router} dev up0"));
    }
    if plan.fabric == Fabric::LinuxVxlan {
        lines.extend(vxlan::host_commands(plan, host));
    }
    lines
}

/// Returns the `ip` commands that set up the router.
pub(crate) fn router_commands(plan: &Plan) -> Vec<String> {
    let mut lines = vec!["link set dev lo up".to_owned()];
    for switch in &plan.switches {
        let device = format!("leg{}", switch.subnet);
        let mac = router_mac(switch.subnet);
        lines.push(format!("link set dev {device} address {mac} mtu {}", plan.underlay_mtu()));
        lines.push(format!("addr add {}/24 dev {device}", router_ip(switch.subnet)));
        lines.push(format!("link set dev {device} up"));
        let hosts = plan.hosts.iter().filter(|host| host.subnet == switch.subnet);
        lines.extend(hosts.map(|host| neighbour(host.vtep, host.mac, &device)));
    }
    lines
}

/// Returns the `ip` commands that set up a container, or a virtual machine from inside.
pub(crate) fn container_commands(
    plan: &Plan,
    scenario: &Scenario,
    container: &Container,
) -> Vec<String> {
    let Container { ip, mac, .. } = container;
    let mut lines = vec!["link set dev lo up".to_owned()];
    if container.is_vm {
        lines.push(format!("link set dev eth0 mtu {}", plan.mtu));
    } else {
        // `sluice port add` makes the device itself.
        if plan.fabric == Fabric::Sluice && !plan.by_command {
            lines.push("tuntap add dev eth0 mode tap".to_owned());
        }
        let device = format!("link set dev eth0 address {mac} mtu {}", plan.mtu);
        lines.push(format!("{device} txqueuelen {RING_FRAMES}"));
    }
    lines.push(format!("addr add {ip}/16 dev eth0"));
    lines.push("link set dev eth0 up".to_owned());
    if scenario.lab.static_neighbours {
        let others = plan.containers.iter().filter(|other| other.name != container.name);
        lines.extend(others.map(|other| neighbour(other.ip, other.mac, "eth0")));
    }
    if scenario.tcp.profile == crate::scenario::Profile::LinuxNow5ms {
        lines.push(format!(
            "route replace 10.99.0.0/16 dev eth0 proto kernel scope link src {ip} rto_min {}ms",
            scenario.tcp.profile.rto_min_ms()
        ));
    }
    lines
}

fn neighbour(ip: Ipv4Addr, mac: Mac, device: &str) -> String {
    format!("neigh replace {ip} lladdr {mac} nud permanent dev {device}")
}

const fn router_ip(subnet: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, subnet, 254)
}

pub(super) const fn router_mac(subnet: u8) -> Mac {
    Mac([0x02, 0x97, 0, 0, 0, subnet])
}
