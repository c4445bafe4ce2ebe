use super::*;
use sluice_base::Mac;

use crate::config::{DeviceFacts, Devices, plan};

/// A machine that has every device.
struct Every;

impl Devices for Every {
    fn facts(&self, _device: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: Mac([2, 0, 0, 0, 0, 9]), mtu: 1500 })
    }
}

fn placed(text: &str) -> Vec<(Option<usize>, Why)> {
    let plan = plan("host.toml", text, &Every).unwrap();
    plan.workers.ports.into_iter().map(|placed| (placed.worker, placed.why)).collect()
}

const TWO: &str = "[host]\nname = \"h\"\nworkers = 2\n[[vnet]]\nname = \"red\"\n\
    [[vnet]]\nname = \"blue\"\n";

fn tap(name: &str, more: &str) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"red\"\ndevice = \"{name}\"\n{more}\n"
    )
}

#[test]
fn worker_choice_configured_first_else_fewest_ports() {
    let text = [TWO, &tap("a", ""), &tap("b", "worker = 0"), &tap("c", ""), &tap("d", "")].concat();
    let few = Why::FewestPorts;
    let expected = [
        (Some(1), few.clone()),
        (Some(0), Why::Configured),
        (Some(0), few.clone()),
        (Some(1), few),
    ];
    assert_eq!(placed(&text), expected);
}

#[test]
fn one_worker_serves_all() {
    let text = [&TWO.replace("= 2", "= 1"), &tap("a", "")[..]].concat();
    assert_eq!(placed(&text), [(Some(0), Why::Only)]);
}

#[test]
fn ports_of_one_device_have_one_worker() {
    let l2 = |name: &str, vnet: &str, vid: u16| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"l2\"\nvnet = \"{vnet}\"\ndevice = \"eth9\"\n\
             vlan = {vid}\n"
        )
    };
    let text = [TWO, &l2("a", "red", 10), &tap("b", ""), &l2("c", "blue", 20)].concat();
    let shares = Why::SharesDevice("a".to_owned());
    assert_eq!(
        placed(&text),
        [(Some(0), Why::FewestPorts), (Some(1), Why::FewestPorts), (Some(0), shares)]
    );
}

#[test]
fn worker_shard_splits_pool_and_marks_remote_ports() {
    let text = [TWO, &tap("a", ""), &tap("b", "")].concat();
    let plan = plan("host.toml", &text, &Every).unwrap();
    for worker in 0..2 {
        let shard = plan.workers.shard(&plan.switch, worker);
        assert_eq!(shard.handoff.elsewhere.len(), 1);
        assert_eq!(shard.handoff.elsewhere[0].index(), 1 - worker);
        assert_eq!(shard.ports.len(), 4);
        let whole = plan.switch.pool.from_local.frames;
        assert_eq!(shard.pool.from_local.frames, whole.div_ceil(2));
        assert_eq!(shard.handoff.refs_max, 64);
    }
}

/// Returns the keys with errors.
fn wrong(text: &str) -> Vec<String> {
    let report = plan("host.toml", text, &Every).unwrap_err();
    report.problems.into_iter().map(|problem| problem.key).collect()
}

#[test]
fn what_cannot_be_is_refused_by_its_key() {
    let of = |host: &str| TWO.replace("workers = 2", host);
    assert_eq!(wrong(&of("workers = 0")), ["host.workers"]);
    assert_eq!(wrong(&of("workers = 65")), ["host.workers"]);
    assert_eq!(wrong(&of("workers = 2\nworker_cpus = [1]")), ["host.worker_cpus"]);
    assert_eq!(wrong(&of("workers = 2\nworker_cpu = 1")), ["host.worker_cpu"]);
    assert_eq!(wrong(&of("workers = 2\nspare_ports = 4")), ["host.spare_ports"]);
    assert_eq!(wrong(&of("workers = 2\nvcpu_cpus = [1]")), ["host.vcpu_cpus"]);
    assert!(plan("h", &of("workers = 2\nworker_cpus = [1, 2]\nvcpu_cpus = [1]"), &Every).is_ok());
    assert!(plan("h", &of("workers = 2\nplacement = \"rss++\""), &Every).is_ok());
    let port = [TWO, &tap("a", "worker = 2")].concat();
    assert_eq!(wrong(&port), ["port[1].worker"]);
    let l2 = |name: &str, vnet: &str, worker: u16| {
        format!(
            "[[port]]\nname = \"{name}\"\nkind = \"l2\"\nvnet = \"{vnet}\"\ndevice = \"eth9\"\n\
             vlan = 1{worker}\nworker = {worker}\n"
        )
    };
    assert_eq!(wrong(&[TWO, &l2("a", "red", 0), &l2("b", "blue", 1)].concat()), ["port[2].worker"]);
}

#[test]
fn udp_underlay_sockets_spread_without_worker_or_rate() {
    let underlay = |more: &str| {
        let underlay = format!(
            "[underlay]\nkind = \"udp\"\ndevice = \"eth0\"\naddress = \"10.0.0.1\"\n{more}\n"
        );
        let policy = TWO.replace("workers = 2", "workers = 2\npolicy = \"ZL\"");
        let vni =
            policy.replace("\"red\"", "\"red\"\nvni = 7").replace("\"blue\"", "\"blue\"\nvni = 8");
        let text = [&vni, &tap("a", ""), &underlay].map(String::as_str).concat();
        placed(&text).pop().unwrap()
    };
    assert_eq!(underlay(""), (None, Why::Spread));
    assert_eq!(underlay("worker = 1"), (Some(1), Why::Configured));
    assert_eq!(underlay("link = { rate_mbps = 100 }"), (Some(1), Why::FewestPorts));
}

#[test]
fn movable_ports_exclude_pinned_l2_and_static_placement() {
    let l2 = "[[port]]\nname = \"c\"\nkind = \"l2\"\nvnet = \"blue\"\ndevice = \"eth9\"\n";
    let text = [TWO, &tap("a", ""), &tap("b", "worker = 1"), l2].concat();
    let movable = |text: &str| {
        let plan = plan("host.toml", text, &Every).unwrap();
        plan.workers.movable().map(|port| port.index()).collect::<Vec<_>>()
    };
    assert_eq!(movable(&text), [0]);
    for other in ["workers = 2\nplacement = \"rss\"", "workers = 1"] {
        let text = text.replace("workers = 2", other).replace("worker = 1\n", "");
        assert_eq!(movable(&text), [0_usize; 0], "{other}");
    }
}
