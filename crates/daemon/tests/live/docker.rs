//! `sluice-docker` with Docker as others wrote it: a daemon of Docker at each of two hosts.
//!
//! ```text
//!   web ─┐                      ┌─ db      Docker moves each container's eth0 into it
//!        ├ h1 up0 ═════ up0 h2 ─┤
//! ```

use std::process::Output;

use crate::rig::docker::{Docker, printed, skip_without_docker};
use crate::rig::pair::Pair;
use crate::rig::{Daemon, say, wait_for};

/// Returns the rows of the ports of containers.
fn ports(daemon: &Daemon) -> Vec<serde_json::Value> {
    let rows = daemon.ask(&["port", "list"])["ports"].take();
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| !row["port"]["cni"].is_null()).cloned().collect()
}

fn ping(docker: &Docker, name: &str, to: &str) {
    let said = docker.run(&["exec", name, "ping", "-c", "3", "-W", "2", to]);
    assert!(said.contains(" 0% packet loss"), "{said}");
}

fn refuses(output: &Output, words: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(words), "{words}: {said}");
}

#[test]
#[ignore = "live: needs root"]
fn docker_runs_containers_that_reach_each_other() {
    if skip_without_docker("live::docker") {
        return;
    }
    let case = Pair::new("docker", 8);
    let mut dockers = [0, 1].map(|own| Docker::new(&case, own));
    for (own, docker) in dockers.iter().enumerate() {
        refuses(&docker.create(own, &["-o", "vnet=red"]), "sluice vnet create red --vni NUMBER");
        refuses(&docker.create(own, &["-o", "vlan=7"]), "`vlan`: is no option of this driver");
        printed(&docker.create(own, &["-o", "vnet=blue"]), &["create"]);
    }
    let published = dockers[0].start("no", &["-p", "8080:80"]);
    refuses(&published, "`publish`: this driver publishes no port");
    dockers[0].run(&["rm", "no"]);
    printed(&dockers[0].start("web", &["--ip", "10.42.1.10"]), &["web"]);
    printed(&dockers[1].start("db", &["--ip", "10.42.2.10"]), &["db"]);
    let rows = ports(&case.daemons[0]);
    let (port, mac) = (&rows[0]["port"], rows[0]["port"]["mac"].as_str().unwrap());
    let link = dockers[0].run(&["exec", "web", "ip", "addr", "show", "eth0"]);
    say(&link);
    for words in [mac, "10.42.1.10/16", "mtu 1450"] {
        assert!(link.contains(words), "{words}: {link}");
    }
    let routes = dockers[0].run(&["exec", "web", "ip", "route"]);
    assert!(routes.contains("default via 10.42.0.1 dev eth0"), "{routes}");
    assert!(case.hosts[0].given_away().is_empty(), "it is in the container");
    ping(&dockers[0], "web", "10.42.2.10");
    ping(&dockers[1], "db", "10.42.1.10");

    // The device was moved: its counters are read where it is, and its link is not said to be down.
    let name = port["name"].as_str().unwrap();
    let row = case.daemons[0].row("ports", "port", name);
    assert!(!row.to_string().contains("kernel.unreadable"), "{row}");
    assert!(case.daemons[0].drops().is_empty(), "{:?}", case.daemons[0].drops());
    assert!(!case.daemons[0].log().contains("link-down port cni-"), "{}", case.daemons[0].log());

    // The driver is killed, and starts again while Docker asks it; the data process is killed.
    dockers[0].kill_driver();
    ping(&dockers[0], "web", "10.42.2.10");
    let restart = dockers[0].command(&["restart", "-t", "1", "web"]).spawn().unwrap();
    wait_for("Docker has asked in vain", || {
        dockers[0].log().contains("Unable to connect to plugin")
    });
    dockers[0].start_driver();
    printed(&restart.wait_with_output().unwrap(), &["restart"]);
    ping(&dockers[0], "web", "10.42.2.10");
    case.daemons[0].kill_data();
    wait_for("a new data process", || case.daemons[0].is_connected());
    ping(&dockers[0], "web", "10.42.2.10");
    assert_eq!(ports(&case.daemons[0]).len(), 1);

    for (own, name) in [(0, "web"), (1, "db")] {
        dockers[own].run(&["rm", "-f", name]);
        dockers[own].run(&["network", "rm", "prod"]);
        assert!(ports(&case.daemons[own]).is_empty());
        assert!(case.hosts[own].given_away().is_empty());
    }
}
