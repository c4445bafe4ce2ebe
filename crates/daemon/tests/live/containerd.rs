//! `sluice-cni` with containerd as others wrote it, asked as the kubelet asks it: a containerd at
//! each of two hosts, by the Container Runtime Interface.
//!
//! ```text
//!   web ─┐                      ┌─ db      each pod's eth0 is made by the plugin
//!        ├ h1 up0 ═════ up0 h2 ─┤
//! ```

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::rig::containerd::{Containerd, Pod, skip_without_containerd};
use crate::rig::pair::Pair;
use crate::rig::{Daemon, say, skip, wait_for};

/// Address of a container that is no pod.
const DB: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 20);

/// Returns the network of the pods at a host.
fn conflist(case: &Pair, own: usize) -> Value {
    let host = own + 1;
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
        "type": "sluice-cni", "vnet": "blue", "socket": case.file(&format!("h{host}/show.sock")),
        "ipam": {
            "type": "host-local", "dataDir": case.file(&format!("assigned-h{host}")),
            "ranges": [[{
                "subnet": "10.42.0.0/16", "rangeStart": format!("10.42.{host}.10"),
                "rangeEnd": format!("10.42.{host}.250"), "gateway": "10.42.0.1"
            }]],
            "routes": [{"dst": "0.0.0.0/0"}]
        }
    }]})
}

/// Returns the rows of the ports of pods.
fn ports(daemon: &Daemon) -> Vec<Value> {
    let rows = daemon.ask(&["port", "list"])["ports"].take();
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| !row["port"]["cni"].is_null()).cloned().collect()
}

/// Returns the addresses that are assigned to pods of a host.
fn assigned(case: &Pair, own: usize) -> Vec<String> {
    let dir = std::fs::read_dir(case.file(&format!("assigned-h{}/pods", own + 1)));
    let names = dir.into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("10.")).collect()
}

fn ping(from: &Containerd, pod: &Pod, to: &str) {
    let said = from.exec(pod, &format!("ping -c 2 -W 2 {to}"));
    assert!(said.contains(" 0% packet loss"), "{said}");
}

#[test]
#[ignore = "live: needs root"]
fn containerd_runs_pods_that_reach_each_other() {
    if skip_without_containerd("live::containerd") {
        return;
    }
    let mut case = Pair::new("containerd", 8);
    let mut runtimes = [0, 1].map(|own| Containerd::new(&case, own, &conflist(&case, own)));
    say(&runtimes[0].call("Version", &json!({})).to_string());
    let web = runtimes[0].run("web");
    let db = runtimes[1].run("db");
    let addresses = [runtimes[0].ip(&web), runtimes[1].ip(&db)];
    assert_eq!(addresses, ["10.42.1.10", "10.42.2.10"], "as the runtime says it to the kubelet");
    let port = ports(&case.daemons[0]).pop().expect("a port");
    let link = runtimes[0].exec(&web, "ip addr show eth0");
    say(&link);
    for words in [port["port"]["mac"].as_str().unwrap(), "10.42.1.10/16", "mtu 1450"] {
        assert!(link.contains(words), "{words}: {link}");
    }
    let routes = runtimes[0].exec(&web, "ip route");
    assert!(routes.contains("default via 10.42.0.1 dev eth0"), "{routes}");
    ping(&runtimes[0], &web, &addresses[1]);
    ping(&runtimes[1], &db, &addresses[0]);
    assert!(case.daemons[0].drops().is_empty(), "{:?}", case.daemons[0].drops());

    // The runtime dies and comes back; the host stops, whose devices go, and starts again: the pods
    // are there, and reach each other.
    runtimes[0].kill();
    case.daemons[0].stop();
    case.daemons[0].restart_control();
    runtimes[0].start();
    runtimes[0].has_network();
    wait_for("the hosts are connected", || case.daemons[0].is_connected());
    ping(&runtimes[0], &web, &addresses[1]);

    // A pod that cannot be attached does not run, and containerd shows why. The kubelet clears away
    // what is left of it, and tries again.
    case.daemons[0].kill_control();
    let config = runtimes[0].sandbox("late");
    let said = runtimes[0].attempt("RunPodSandbox", &json!({"config": config})).unwrap_err();
    assert!(said.contains("no host answers"), "{said}");
    case.daemons[0].restart_control();
    wait_for("the hosts are connected", || case.daemons[0].is_connected());
    runtimes[0].clear("late");
    assert_eq!((ports(&case.daemons[0]).len(), assigned(&case, 0).len()), (1, 1));
    let late = runtimes[0].run("late");

    for (own, pod) in [(0, &late), (0, &web), (1, &db)] {
        // The kubelet says it more than once, and containerd detaches a pod twice.
        runtimes[own].stop(pod);
        runtimes[own].stop(pod);
        runtimes[own].remove(pod);
    }
    for own in 0..2 {
        assert!(ports(&case.daemons[own]).is_empty(), "{:?}", ports(&case.daemons[own]));
        assert_eq!(assigned(&case, own), [""; 0]);
        assert_eq!(case.daemons[own].show("audit")["closed"], true);
    }
}

/// The same by `crictl`, where it is installed: it takes minutes to build.
#[test]
#[ignore = "live: needs root"]
fn crictl_runs_pod_that_is_reached() {
    const TEST: &str = "live::containerd crictl_runs_pod_that_is_reached";
    if skip_without_containerd(TEST) || skip(TEST, &["crictl"]) {
        return;
    }
    let case = Pair::new("crictl", 8);
    let runtime = Containerd::new(&case, 0, &conflist(&case, 0));
    say(&runtime.crictl(&["version"]));
    let [pod, container] = runtime.files("web");
    let sandbox = runtime.crictl(&["runp", &pod]);
    let id = runtime.crictl(&["create", &sandbox, &container, &pod]);
    runtime.crictl(&["start", &id]);
    case.add(1, 2, DB);
    // Its prefix is narrower than that of the pods.
    case.containers[2].ip("route add 10.42.0.0/16 dev eth0");
    let said =
        runtime.crictl(&["exec", "--sync", &id, "ping", "-c", "2", "-W", "2", &DB.to_string()]);
    assert!(said.contains(" 0% packet loss"), "{said}");
    case.containers[2].ping(Ipv4Addr::new(10, 42, 1, 10), 2);
    say(&runtime.crictl(&["pods"]));
    runtime.crictl(&["stopp", &sandbox]);
    runtime.crictl(&["rmp", &sandbox]);
    assert!(ports(&case.daemons[0]).is_empty());
    assert_eq!(assigned(&case, 0), [""; 0]);
}
