//! A scenario turned into machines: names, addresses, cables, and the configuration of every
//! daemon. Nothing here touches the system.
//!
//! ```text
//!  slab-L-h0c0 ─ TAP ─┐
//!  slab-L-h0c1 ─ TAP ─┤ slab-L-h0 up0 ══ veth ══ h0 slab-L-s0 h1 ══ veth ══ up0 slab-L-h1 ├─ …
//! ```
//!
//! With several subnets each has a switch of its own, and the router `slab-L-r0` has a leg in every
//! one. Addresses: containers, and virtual machines after them, `10.99.HOST.(NUMBER+1)/16`, VTEPs
//! `10.98.SUBNET.(HOST+1)/24`, router `10.98.SUBNET.254`.
//!
//! A virtual machine `h0v1` is planned as a container, with three differences: its port is a
//! vhost-user socket; it has no namespace of its own (QEMU runs in its host's, and uses nothing of
//! it); its addresses are set from inside.

mod commands;
pub(crate) mod vxlan;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sluice_api::config::{
    self as api, ChipKind, Host, HostConfig, Peer, Policy, Port, PortKind, Role, Underlay,
    UnderlayKind, Vnet, Vport,
};
use sluice_base::Mac;
use sluice_placement::Mode;

use crate::scenario::{Fabric, GuestKind, Lab, Scenario, Vnic};
use crate::settings::Settings;
use commands::router_mac;
pub(crate) use commands::{
    cable_commands, container_commands, host_commands, router_commands, switch_commands,
};

/// Root folder of the labs' state, sockets and logs.
pub(crate) const RUN_ROOT: &str = "/run/sluice-lab";
/// The first network of the containers.
const VNET: &str = "lab";
/// VNI of the first network.
const VNI: u32 = 4099;
/// VNI of the first further network.
const VNI_MORE: u32 = 5000;
/// Name of a physical switch's network.
const CABLES: &str = "fabric";
/// Port on which the hosts of the fabric listen.
const FABRIC_PORT: u16 = 7474;
/// Bytes of the outer headers of VXLAN over IPv4.
const OVERHEAD: u16 = 50;
/// Length of a TAP's queue: the shortest that never lost a frame in a lab of this size.
const RING_FRAMES: u32 = 20_000;

/// The machines of a lab.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Name of the lab.
    pub(crate) lab: String,
    /// Kind of switches that join the containers.
    pub(crate) fabric: Fabric,
    /// MTU of the containers.
    pub(crate) mtu: u16,
    /// The hosts.
    pub(crate) hosts: Vec<HostNode>,
    /// The containers; number 0 is the aggregator.
    pub(crate) containers: Vec<Container>,
    /// The physical switches, one per subnet (or the one bridge).
    pub(crate) switches: Vec<SwitchNode>,
    /// The router's namespace, if there are several subnets.
    pub(crate) router: Option<String>,
    /// Number of networks of the containers.
    vnets: usize,
    /// The card of virtual machines.
    pub(crate) vnic: Vnic,
    /// Kernel setup of the virtual machines.
    pub(crate) guests: GuestKind,
    /// True if hosts learn their containers from frames.
    pub(crate) learned: bool,
    /// True if the hosts become a fabric by command.
    pub(crate) by_command: bool,
    /// Chip of the hosts.
    pub(crate) chip: ChipKind,
}

/// A host.
#[derive(Clone, Debug)]
pub(crate) struct HostNode {
    pub(crate) name: String,
    pub(crate) netns: String,
    pub(crate) subnet: u8,
    pub(crate) vtep: Ipv4Addr,
    pub(crate) mac: Mac,
}

/// A container, or a virtual machine.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// Its namespace; for a virtual machine, that of its host.
    pub(crate) netns: String,
    pub(crate) is_vm: bool,
    pub(crate) host: usize,
    /// Its network.
    pub(crate) vnet: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) mac: Mac,
}

/// A physical switch.
#[derive(Clone, Debug)]
pub(crate) struct SwitchNode {
    pub(crate) name: String,
    pub(crate) netns: String,
    pub(crate) subnet: u8,
    pub(crate) cables: Vec<Cable>,
}

/// A cable of a switch, and the device at its other end.
#[derive(Clone, Debug)]
pub(crate) struct Cable {
    /// The device in the switch's namespace.
    pub(crate) device: String,
    /// The namespace at the other end.
    pub(crate) far_netns: String,
    /// The device in that namespace.
    pub(crate) far_device: String,
    /// MAC address of that device.
    pub(crate) far_mac: Mac,
}

impl Plan {
    /// Plans the machines of a scenario.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let lab = &scenario.lab;
        let netns = |name: &str| format!("slab-{}-{name}", lab.name);
        let mut hosts = Vec::new();
        let mut containers = Vec::new();
        for h in 0..lab.hosts {
            let subnet = h % lab.subnets;
            let name = format!("h{h}");
            hosts.push(HostNode {
                netns: netns(&name),
                name,
                subnet,
                vtep: Ipv4Addr::new(10, 98, subnet, h + 1),
                mac: Mac([0x02, 0x98, 0, 0, subnet, h + 1]),
            });
            let more = u8::from(lab.aggregator && h == 0);
            for c in 0..lab.containers_per_host + more {
                let name = format!("h{h}c{c}");
                containers.push(machine(lab, (h, c), netns(&name), name));
            }
            for v in 0..lab.vms_per_host {
                let number = lab.containers_per_host + more + v;
                let host = netns(&format!("h{h}"));
                let vm = machine(lab, (h, number), host, format!("h{h}v{v}"));
                containers.push(Container { is_vm: true, ..vm });
            }
        }
        let mut plan = Self {
            lab: lab.name.clone(),
            fabric: lab.fabric,
            mtu: lab.mtu,
            hosts,
            containers,
            switches: Vec::new(),
            router: (lab.subnets > 1).then(|| netns("r0")),
            vnets: usize::from(lab.vnets),
            vnic: lab.vnic,
            guests: lab.guests,
            learned: lab.learned,
            by_command: lab.by_command,
            chip: lab.chip,
        };
        plan.switches = (0..lab.subnets).map(|subnet| plan.switch(subnet)).collect();
        if !plan.fabric.has_hosts() {
            plan.hosts.clear();
            for vm in plan.containers.iter_mut().filter(|machine| machine.is_vm) {
                vm.netns = plan.switches[0].netns.clone();
            }
        }
        plan
    }

    fn switch(&self, subnet: u8) -> SwitchNode {
        let name = format!("s{subnet}");
        let mut cables = Vec::new();
        match self.fabric {
            Fabric::Sluice | Fabric::LinuxVxlan => {
                let hosts = self.hosts.iter().filter(|host| host.subnet == subnet);
                cables.extend(hosts.map(|host| Cable {
                    device: host.name.clone(),
                    far_netns: host.netns.clone(),
                    far_device: "up0".to_owned(),
                    far_mac: host.mac,
                }));
                cables.extend(self.router.iter().map(|router| Cable {
                    device: "r0".to_owned(),
                    far_netns: router.clone(),
                    far_device: format!("leg{subnet}"),
                    far_mac: router_mac(subnet),
                }));
            }
            Fabric::LinuxBridge | Fabric::Ovs => {
                let containers = self.containers.iter().filter(|machine| !machine.is_vm);
                cables.extend(containers.map(|c| Cable {
                    device: c.name.clone(),
                    far_netns: c.netns.clone(),
                    far_device: "eth0".to_owned(),
                    far_mac: c.mac,
                }));
            }
        }
        SwitchNode { netns: format!("slab-{}-{name}", self.lab), name, subnet, cables }
    }

    /// Returns every namespace of the lab.
    pub(crate) fn namespaces(&self) -> Vec<String> {
        let switches = self.switches.iter().map(|s| s.netns.clone());
        let hosts = self.hosts.iter().map(|h| h.netns.clone());
        let containers = self.containers.iter().filter(|c| !c.is_vm).map(|c| c.netns.clone());
        switches.chain(self.router.clone()).chain(hosts).chain(containers).collect()
    }

    /// Returns the container of that name.
    pub(crate) fn container(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// Returns the containers of a host.
    pub(crate) fn containers_of(&self, host: usize) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(move |container| container.host == host)
    }

    /// Returns the workers, interleaved over the hosts, so that a burst of requests reaches all
    /// hosts at once and no uplink first.
    pub(crate) fn workers(&self) -> Vec<&Container> {
        let hosts = self.containers.iter().map(|c| c.host).max().unwrap_or(0) + 1;
        let mut per_host: Vec<std::collections::VecDeque<&Container>> =
            vec![std::collections::VecDeque::new(); hosts];
        for container in self.containers.iter().skip(1) {
            per_host[container.host].push_back(container);
        }
        let mut workers = Vec::new();
        while workers.len() + 1 < self.containers.len() {
            workers.extend(per_host.iter_mut().filter_map(std::collections::VecDeque::pop_front));
        }
        workers
    }

    /// Returns the folder of the lab's state.
    pub(crate) fn run_dir(&self) -> PathBuf {
        run_dir(&self.lab)
    }

    /// Returns the folder of the hosts' certificates.
    pub(crate) fn certificates(&self) -> PathBuf {
        self.run_dir().join("certificates")
    }

    /// Returns the MTU of the links.
    pub(crate) const fn underlay_mtu(&self) -> u16 {
        self.mtu + OVERHEAD
    }

    /// Returns the daemons of the lab: name, namespace, configuration. Switches come first.
    pub(crate) fn daemons(
        &self,
        policy: Policy,
        settings: &Settings,
    ) -> Vec<(String, String, HostConfig)> {
        if !self.fabric.has_hosts() {
            return Vec::new();
        }
        let switches = self
            .switches
            .iter()
            .map(|s| (s.name.clone(), s.netns.clone(), self.switch_config(s, policy, settings)));
        let is_own = self.fabric == Fabric::Sluice;
        let hosts =
            self.hosts.iter().enumerate().filter(|_| is_own).map(|(i, h)| {
                (h.name.clone(), h.netns.clone(), self.host_config(i, policy, settings))
            });
        switches.chain(hosts).collect()
    }

    fn host(&self, name: &str, role: Role, policy: Policy) -> Host {
        let run_dir = self.run_dir().join(name);
        Host {
            name: name.to_owned(),
            role,
            policy,
            run_dir: Some(run_dir.to_string_lossy().into_owned()),
            state_dir: None,
            group: None,
            user: None,
            seccomp: api::Seccomp::default(),
            data_hung_ms: 5_000,
            log: None,
            worker_cpu: None,
            workers: 1,
            worker_cpus: Vec::new(),
            placement: Mode::default(),
            vcpu_cpus: None,
            pace_us: 100,
            spin_us: 0,
            seed: None,
            chip_macs: 4096,
            chip_flows: 4096,
            spare_ports: None,
            spare_vnets: None,
            spare_tunnels: None,
            unresolved_timeout_ms: 1000,
            isolate_after_ms: 10,
            broadcasts_per_second: 10_000,
            hold: api::HoldTime::default(),
        }
    }

    fn host_config(&self, index: usize, policy: Policy, settings: &Settings) -> HostConfig {
        let node = &self.hosts[index];
        let local: Vec<&Container> = self.containers_of(index).collect();
        let count = u32::try_from(local.len()).unwrap_or(u32::MAX);
        HostConfig {
            chip: api::Chip { kind: self.chip, ..api::Chip::default() },
            host: self.host(&node.name, Role::Host, policy),
            underlay: Some(Underlay {
                kind: UnderlayKind::L2,
                device: "up0".to_owned(),
                socket: None,
                client: false,
                worker: None,
                mac: None,
                address: node.vtep,
                mtu: None,
                link: settings.link(),
            }),
            fabric: Some(api::Fabric {
                name: self.lab.clone(),
                id: member(index),
                address: None,
                port: FABRIC_PORT,
                certificates: self.certificates().join(&node.name).to_string_lossy().into_owned(),
                learn_max: 16,
                claims_per_host: 1 << 17,
                punts_per_port: 10_000,
                moves_max: 5,
                moves_window_s: 180,
                on_moves: api::MobilityPolicy::Warn,
                freeze_s: 1_800,
                confirmed_s: 1,
                asks_per_port: 100,
            }),
            evpn: None,
            api: api::HttpApi::default(),
            buffers: settings.buffers(count),
            classes: Vec::new(),
            vnets: self.vnets().collect(),
            ports: local.iter().map(|c| self.port(c, settings)).collect(),
            peers: self
                .hosts
                .iter()
                .enumerate()
                .filter(|(_, peer)| peer.name != node.name)
                .map(|(at, peer)| Peer {
                    name: peer.name.clone(),
                    vtep: peer.vtep,
                    vnets: self.vnets().map(|vnet| vnet.name).collect(),
                    next_hop: None,
                    id: Some(member(at)),
                    address: None,
                    by_evpn: false,
                })
                .collect(),
            // The other hosts announce their own endpoints.
            vports: local.iter().filter(|_| !self.learned).map(|c| vport(c)).collect(),
            vport_policies: Default::default(),
        }
    }

    /// Returns the networks of the containers.
    pub(crate) fn vnets(&self) -> impl Iterator<Item = Vnet> + '_ {
        let numbers = std::iter::once(VNI).chain(VNI_MORE..).take(self.vnets);
        numbers.enumerate().map(|(index, vni)| Vnet {
            mtu: Some(self.mtu),
            ..Vnet::new(&vnet_name(index), Some(vni))
        })
    }

    fn port(&self, machine: &Container, settings: &Settings) -> Port {
        let kind = if machine.is_vm { PortKind::VhostUser } else { PortKind::Tap };
        let plain = Port {
            mac: (!self.learned).then(|| machine.mac.to_string()),
            service_mbps: settings.service_mbps,
            ..Port::new(&machine.name, kind, &machine.vnet, "")
        };
        if machine.is_vm {
            let socket = self.file(machine, "sock").to_string_lossy().into_owned();
            return Port { socket: Some(socket), ..plain };
        }
        Port {
            device: "eth0".to_owned(),
            netns: Some(format!("/run/netns/{}", machine.netns)),
            ring_frames: Some(RING_FRAMES),
            ..plain
        }
    }

    /// Returns the path of a virtual machine's file: `sock`, its card; `control`, its serial port;
    /// `log`, its console.
    pub(crate) fn file(&self, vm: &Container, kind: &str) -> PathBuf {
        self.run_dir().join(format!("{}.{kind}", vm.name))
    }

    fn switch_config(&self, node: &SwitchNode, policy: Policy, settings: &Settings) -> HostConfig {
        HostConfig {
            chip: api::Chip::default(),
            host: self.host(&node.name, Role::Switch, policy),
            underlay: None,
            fabric: None,
            evpn: None,
            api: api::HttpApi::default(),
            buffers: settings.buffers(0),
            classes: Vec::new(),
            vnets: vec![Vnet { mtu: Some(self.underlay_mtu()), ..Vnet::new(CABLES, None) }],
            ports: node
                .cables
                .iter()
                .map(|cable| Port {
                    link: Some(settings.link()),
                    ..Port::new(&cable.device, PortKind::L2, CABLES, &cable.device)
                })
                .collect(),
            peers: Vec::new(),
            vports: node
                .cables
                .iter()
                .map(|cable| Vport {
                    vnet: CABLES.to_owned(),
                    mac: cable.far_mac.to_string(),
                    ip: None,
                    peer: None,
                    port: Some(cable.device.clone()),
                })
                .collect(),
            vport_policies: Default::default(),
        }
    }
}

/// Plans a container's addresses and network.
fn machine(lab: &Lab, (host, number): (u8, u8), netns: String, name: String) -> Container {
    Container {
        netns,
        is_vm: false,
        name,
        host: usize::from(host),
        vnet: vnet_name(usize::from(number % lab.vnets)),
        ip: Ipv4Addr::new(10, 99, host, number + 1),
        mac: Mac([0x02, 0x99, 0, 0, host, number + 1]),
    }
}

fn vport(container: &Container) -> Vport {
    Vport {
        vnet: container.vnet.clone(),
        mac: container.mac.to_string(),
        ip: Some(container.ip),
        peer: None,
        port: Some(container.name.clone()),
    }
}

/// Returns the number of a host in the fabric.
fn member(index: usize) -> u16 {
    u16::try_from(index + 1).expect("a lab has few hosts")
}

/// Returns the name of a network of the containers.
fn vnet_name(index: usize) -> String {
    if index == 0 { VNET.to_owned() } else { format!("{VNET}{index}") }
}

/// Returns the folder of a lab's state.
pub(crate) fn run_dir(lab: &str) -> PathBuf {
    Path::new(RUN_ROOT).join(lab)
}

#[cfg(test)]
mod tests;
