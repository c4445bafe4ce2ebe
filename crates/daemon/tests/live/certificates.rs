//! A host with an expired certificate forwards between its own ports, reports the error, and
//! becomes a member again with a new certificate, without a restart. A broken file changes nothing.
//!
//! ```text
//!   c1 ─ TAP ─┤ h1 up0 ═══════ up0 h2 ├─ TAP ─ c3
//!   c2 ─ TAP ─┘
//! ```

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use crate::rig::member::member;
use crate::rig::{Daemon, Net, Netns, are_connected, cable, program, skip, wait_for};
use serde_json::Value;

const C2: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 2);
const C3: Ipv4Addr = Ipv4Addr::new(10, 42, 0, 3);

fn port(name: &str, netns: &Netns) -> String {
    format!(
        "[[port]]\nname = \"{name}\"\nkind = \"tap\"\nvnet = \"blue\"\ndevice = \"t0\"\n\
         netns = \"/run/netns/{}\"\n",
        netns.name()
    )
}

/// Makes another certificate for a host, valid for `days`.
fn renew(folder: &Path, host: &str, days: &str) {
    let mut command = Command::new(program());
    command.args(["fabric", "cert", "--replace", "--out"]).arg(folder);
    let made = command.arg(format!("--days={days}")).arg(host).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Returns the row of `fabric status` about the certificate of this kind.
fn certificate(daemon: &Daemon, kind: &str) -> Value {
    let told = daemon.ask(&["fabric", "status"])["certificates"].take();
    let rows = told["rows"].as_array().unwrap();
    rows.iter().find(|row| row["kind"] == kind).cloned().unwrap_or_default()
}

#[test]
#[ignore = "live: needs root"]
fn expired_certificate_host_forwards_rejoins_after_renewal() {
    if skip("live::certificates", &[]) {
        return;
    }
    let mut net = Net::new("certs");
    let hosts = ["h1", "h2"].map(|name| net.netns(name));
    let containers = ["c1", "c2", "c3"].map(|name| net.netns(name));
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    let folder = net.certificates(&["h1", "h2"]);
    renew(&folder, "h1", "-3");
    let [c1, c2, c3] = &containers;
    let two = port("one", c1) + &port("two", c2);
    let mut h1 = net.daemon(&hosts[0], "h1", &member(0, &folder, "", &two));
    let h2 = net.daemon(&hosts[1], "h2", &member(1, &folder, "", &port("three", c3)));
    for (at, container) in containers.iter().enumerate() {
        container.ip(&format!("addr add 10.42.0.{}/24 dev t0", at + 1));
        container.ip("link set t0 up");
    }

    c1.ping(C2, 3);
    let own = certificate(&h1, "own");
    assert_eq!((&own["state"], own["days_left"].as_i64() < Some(0)), (&"expired".into(), true));
    let said = h1.print(&["fabric", "status"]);
    assert!(said.contains("Other members refuse this host"), "{said}");
    assert!(said.contains("`sluice fabric cert --replace --out DIR h1`"), "{said}");
    assert_eq!(certificate(&h1, "anchor")["state"], "valid");
    assert!(
        h1.log().contains(" error h1 control: the certificate of h1 ended on "),
        "{}",
        h1.log()
    );
    wait_for("h2 refuses it by name", || h2.log().contains("TLS: the certificate has expired"));
    assert!(!h1.is_connected());

    // Loaded because the files changed.
    renew(&folder, "h1", "20");
    are_connected([&h1, &h2]);
    wait_for("its end is seen", || certificate(&h1, "own")["state"] == "ending");
    assert_eq!(certificate(&h2, "member")["state"], "ending");
    c1.ping(C3, 3);

    // An invalid key, loaded because of a signal.
    fs::write(folder.join("h1/host.key"), "nothing").unwrap();
    h1.reload();
    wait_for("it is refused", || {
        let told = h1.ask(&["fabric", "status"])["certificates"].take();
        told["refused"].as_str().is_some_and(|why| why.contains("host.key is unusable"))
    });
    assert_eq!(certificate(&h1, "own")["state"], "ending");
    assert!(h1.is_connected());
    h1.print(&["fabric", "status"]);
    assert!(h1.log().contains("certificates are not taken up, and those from before stay"));
    renew(&folder, "h1", "365");
    h1.reload();
    wait_for("another one is taken", || certificate(&h1, "own")["state"] == "valid");
    assert!(!h1.log().contains("session-down"), "{}", h1.log());
    c1.ping(C3, 3);
    h1.stop();
}
