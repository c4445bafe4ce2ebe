use super::*;
use crate::settings::{Override, Variant};

fn plan(name: &str) -> (Scenario, Plan) {
    let scenario = Scenario::load(name).unwrap();
    let plan = Plan::new(&scenario);
    (scenario, plan)
}

fn settings() -> Settings {
    Settings::new(Variant::VmBound, &Override::default(), None)
}

#[test]
fn the_demo_has_33_containers_and_32_workers() {
    let (_, plan) = plan("demo");
    assert_eq!(plan.containers.len(), 33);
    assert_eq!(plan.containers_of(0).count(), 9);
    assert_eq!(plan.workers().len(), 32);
    assert_eq!(plan.namespaces().len(), 33 + 4 + 1);
    let hosts: Vec<usize> = plan.workers().iter().take(8).map(|c| c.host).collect();
    assert_eq!(hosts, [0, 1, 2, 3, 0, 1, 2, 3]);
}

#[test]
fn names_of_devices_fit_the_kernel() {
    for (name, _) in crate::scenario::SHIPPED {
        let (_, plan) = plan(name);
        for cable in plan.switches.iter().flat_map(|s| &s.cables) {
            assert!(cable.device.len() <= 15 && cable.far_device.len() <= 15);
        }
    }
}

#[test]
fn addresses_and_namespaces_are_unique() {
    let (_, plan) = plan("demo");
    let count = |mut list: Vec<String>| {
        let all = list.len();
        list.sort();
        list.dedup();
        assert_eq!(list.len(), all);
    };
    count(plan.namespaces());
    count(plan.containers.iter().map(|c| c.ip.to_string()).collect());
    count(plan.containers.iter().map(|c| c.mac.to_string()).collect());
    count(plan.hosts.iter().map(|h| h.mac.to_string()).collect());
}

#[test]
fn configurations_survive_their_text() {
    for name in ["demo", "two-subnets", "smoke"] {
        let (_, plan) = plan(name);
        for policy in Policy::ALL {
            for (node, _, config) in plan.daemons(policy, &settings()) {
                let text = toml::to_string(&config).unwrap();
                let back: HostConfig = toml::from_str(&text).unwrap();
                assert_eq!(back, config, "{name} {node}");
                assert_eq!(config.host.policy, policy);
            }
        }
    }
}

#[test]
fn host_config_lists_only_own_ports_unique_id() {
    let (_, plan) = plan("demo");
    let mut ids = std::collections::BTreeSet::new();
    for index in 0..plan.hosts.len() {
        let config = plan.host_config(index, Policy::ZZ, &settings());
        let fabric = config.fabric.unwrap();
        assert!(ids.insert(fabric.id));
        assert_eq!(config.peers.len(), 3);
        assert!(config.peers.iter().all(|peer| peer.id.is_some_and(|id| id != fabric.id)));
        let own = plan.containers_of(index).count();
        assert_eq!((config.vports.len(), config.ports.len()), (own, own));
        for (vport, port) in config.vports.iter().zip(&config.ports) {
            assert_eq!((vport.port.as_ref(), vport.peer.as_ref()), (Some(&port.name), None));
        }
        assert!(config.ports.iter().all(|port| port.service_mbps == Some(500)));
    }
}

#[test]
fn two_subnets_meet_in_the_router_only() {
    let (scenario, plan) = plan("two-subnets");
    assert_eq!(plan.switches.len(), 2);
    for switch in &plan.switches {
        let devices: Vec<&str> = switch.cables.iter().map(|c| c.device.as_str()).collect();
        assert_eq!(devices, [format!("h{}", switch.subnet).as_str(), "r0"]);
    }
    assert_ne!(plan.hosts[0].vtep.octets()[2], plan.hosts[1].vtep.octets()[2]);
    let lines = host_commands(&plan, &plan.hosts[1]);
    assert!(lines.iter().any(|line| line == "route add default via 10.98.1.254 dev up0"));
    let lines = container_commands(&plan, &scenario, &plan.containers[0]);
    assert!(!lines.iter().any(|line| line.contains("neigh")));
}

#[test]
fn a_bridge_has_no_daemon_and_no_host() {
    let (scenario, plan) = plan("linux-bridge");
    assert!(plan.daemons(Policy::LL, &settings()).is_empty());
    assert_eq!(plan.namespaces().len(), 34);
    assert_eq!(plan.switches[0].cables.len(), 33);
    let lines = container_commands(&plan, &scenario, &plan.containers[0]);
    assert!(!lines.iter().any(|line| line.contains("tuntap")));
}

#[test]
fn linux_vxlan_hosts_have_bridge_and_no_daemon() {
    let mut scenario = Scenario::load("demo").unwrap();
    scenario.lab.fabric = Fabric::LinuxVxlan;
    let plan = Plan::new(&scenario);
    let daemons = plan.daemons(Policy::LL, &settings());
    assert_eq!(daemons.iter().map(|daemon| daemon.0.as_str()).collect::<Vec<_>>(), ["s0"]);
    assert_eq!(plan.namespaces().len(), 33 + 4 + 1);
    assert_eq!(cable_commands(&plan).len(), 33 + 4);
    let host = &plan.hosts[1];
    let lines = host_commands(&plan, host);
    assert!(lines.iter().any(|line| line.contains("type vxlan id 4099 local 10.98.0.2")));
    assert!(lines.iter().any(|line| line == "link set dev h1c7 mtu 1450 master br0"));
    assert!(!lines.iter().any(|line| line.contains("h2c")));
    let elsewhere = vxlan::elsewhere(&plan, host);
    assert_eq!(elsewhere.len(), 33 - 8);
    assert!(elsewhere.contains(&("02:99:00:00:02:01".to_owned(), Ipv4Addr::new(10, 98, 0, 3))));
}

#[test]
fn linux_vxlan_host_shapes_containers_and_uplink() {
    let mut scenario = Scenario::load("demo").unwrap();
    scenario.lab.fabric = Fabric::LinuxVxlan;
    let plan = Plan::new(&scenario);
    let shaped = vxlan::shaped(&plan, &plan.hosts[3], &settings());
    let rates: Vec<u64> = shaped.iter().map(|device| device.rate_mbps).collect();
    assert_eq!(rates, [500, 500, 500, 500, 500, 500, 500, 500, 1000]);
    let words = shaped[0].words(200).join(" ");
    assert_eq!(words, "qdisc add dev h3c0 root tbf rate 500mbit burst 12500 limit 114900");
}

#[test]
fn vm_port_has_vhost_user_socket_without_netns() {
    let text = include_str!("../../../../scenarios/pa-vms.toml");
    let text = text.replace("hosts = 2", "hosts = 2\ncontainers_per_host = 1\naggregator = true");
    let scenario = Scenario::parse(&text).unwrap();
    let plan = Plan::new(&scenario);
    let names: Vec<&str> = plan.containers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["h0c0", "h0c1", "h0v0", "h0v1", "h1c0", "h1v0", "h1v1"]);
    assert_eq!(plan.namespaces().len(), 1 + 2 + 3, "a switch, two hosts, three containers");
    let ips: std::collections::BTreeSet<_> = plan.containers.iter().map(|c| c.ip).collect();
    assert_eq!(ips.len(), plan.containers.len());
    let config = plan.host_config(1, Policy::ZZ, &settings());
    let kinds: Vec<PortKind> = config.ports.iter().map(|port| port.kind).collect();
    assert_eq!(kinds, [PortKind::Tap, PortKind::VhostUser, PortKind::VhostUser]);
    let vm = &config.ports[1];
    assert_eq!(vm.socket.as_deref(), Some("/run/sluice-lab/pa-vms/h1v0.sock"));
    assert!(vm.device.is_empty() && vm.netns.is_none() && vm.ring_frames.is_none());
    let lines = container_commands(&plan, &scenario, plan.container("h1v0").unwrap());
    assert!(!lines.iter().any(|line| line.contains("tuntap") || line.contains(" address ")));
    assert!(lines.iter().any(|line| line == "addr add 10.99.1.2/16 dev eth0"));
}

#[test]
fn short_rto_min_set_on_container_route() {
    let (scenario, plan) = plan("pa-5ms");
    let lines = container_commands(&plan, &scenario, &plan.containers[3]);
    assert!(lines.last().unwrap().ends_with("src 10.99.0.4 rto_min 5ms"));
}
