//! Hosts whose files say everything become a fabric while they forward.

use std::fs;
use std::time::Duration;

use crate::rig;
use crate::rig::counted::Counted;
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, cable, skip, wait_for};
use sluice_netns::host::Member;

/// Number of hosts.
const HOSTS: usize = 3;
/// Port of the datagrams.
const PORT: u16 = 9;
/// Datagrams: number at once, time between, size.
const FLOW: (u32, Duration, usize) = (2, Duration::from_millis(4), 300);

/// Hosts on one bridge, each with a container behind a port of its file. Fields end in this order.
struct Files {
    daemons: Vec<Daemon>,
    containers: Vec<Netns>,
    net: Net,
}

fn ip(own: usize) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::new(10, 42, 0, u8::try_from(own + 1).unwrap())
}

/// Returns the file of a host, after its name and directory.
fn file(own: usize, container: &Netns, certificates: &std::path::Path) -> String {
    let id = own + 1;
    let more = format!(
        r#"
[[port]]
name = "c{id}"
kind = "tap"
vnet = "blue"
device = "eth0"
netns = "/run/netns/{}"
mac = "02:00:00:00:00:0{id}"
[[vport]]
vnet = "blue"
mac = "02:00:00:00:00:0{id}"
ip = "{}"
port = "c{id}"
"#,
        container.name(),
        ip(own)
    );
    let (hosts, fabric, host, more) = (HOSTS, "prod", "", &more);
    let (settings, vnet) = ("moves_max = 9", "mtu = 1400");
    Member { id, hosts, fabric, certificates, host, settings, vnet, more }.file()
}

impl Files {
    fn start(word: &str) -> Self {
        let mut net = Net::new(word);
        let mut make = |kind: &str| -> Vec<Netns> {
            (1..=HOSTS).map(|id| net.netns(&format!("{kind}{id}"))).collect()
        };
        let (hosts, containers) = (make("h"), make("c"));
        let wire = net.netns("wire");
        wire.ip("link add br0 type bridge");
        wire.ip("link set br0 up");
        let certificates = net.certificates(&["h1", "h2", "h3"]);
        let mut daemons = Vec::new();
        for (own, host) in hosts.iter().enumerate() {
            let (address, device) = (format!("192.0.2.{}/24", own + 1), format!("to{}", own + 1));
            cable((host, "up0", &address), (&wire, &device, ""));
            wire.ip(&format!("link set {device} master br0"));
            let text = file(own, &containers[own], &certificates);
            daemons.push(net.daemon(host, &format!("h{}", own + 1), &text));
            containers[own].ip(&format!("addr add {}/24 dev eth0", ip(own)));
            containers[own].ip("link set eth0 up");
        }
        Self { daemons, containers, net }
    }

    /// Returns the output of `sluice WORDS` on a host, which must not fail.
    fn says(&self, own: usize, words: &[&str]) -> String {
        let daemon = &self.daemons[own];
        let said = daemon.run_here(words);
        said.unwrap_or_else(|why| panic!("{words:?}: {why}; log:\n{}", daemon.log()))
    }

    fn reaches(&self, from: usize, to: usize) {
        let patience = Duration::from_millis(500);
        let mut pinger = Pinger::with_patience(&self.containers[from], ip(to), patience);
        wait_for("a container is reached", || pinger.ping(84));
    }

    /// Returns the number of frames that the data process of a host has dropped.
    fn dropped(&self, own: usize) -> u64 {
        let drops = self.daemons[own].drops();
        rig::say(&format!("h{} dropped {drops:?}", own + 1));
        drops.values().sum()
    }

    fn dropped_by_all(&self) -> u64 {
        (0..HOSTS).map(|own| self.dropped(own)).sum()
    }

    /// Starts one flow from each container to the next one.
    fn flows(&self) -> [Counted; HOSTS] {
        [(0, 1), (1, 2), (2, 0)].map(|(from, to)| {
            let (from, to) = ((&self.containers[from], ip(from)), (&self.containers[to], ip(to)));
            Counted::start(from, to, PORT + u16::from(to.1.octets()[3]), FLOW)
        })
    }

    fn all_reach_each_other(&self) {
        for (from, to) in [(0, 1), (1, 2), (2, 0), (1, 0), (2, 1), (0, 2)] {
            self.reaches(from, to);
        }
    }
}

#[test]
#[ignore = "live: needs root"]
fn hosts_from_files_become_fabric_under_traffic() {
    if skip("hosts_from_files_become_fabric_under_traffic", &[]) {
        return;
    }
    let all = Files::start("import");
    let h3 = &all.daemons[2];
    all.all_reach_each_other();
    let files: Vec<String> = (1..=HOSTS)
        .map(|id| all.net.file(&format!("h{id}/host.toml")).to_str().unwrap().to_owned())
        .collect();
    let [f1, f2, f3] = &files[..] else { unreachable!() };

    let before = fs::read_to_string(f1).unwrap();
    let said = all.says(0, &["fabric", "import", f1, f2, f3]);
    assert!(
        said.contains("nothing has changed") && said.contains("fabric import --join"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(f1).unwrap(), before);

    let before = all.dropped_by_all();
    let flows = all.flows();
    // The counters of a data process end with it.
    let mut dropped = all.dropped(0);
    let said = all.says(0, &["fabric", "import", "--create", f1, f2, f3]);
    assert!(said.contains("h1 is a member of fabric prod: h1"), "{said}");
    let tokens: Vec<&str> = said.split_whitespace().filter(|w| w.starts_with("sluice1-")).collect();
    assert_eq!(tokens.len(), 2, "{said}");
    all.all_reach_each_other();
    for (own, file, token) in [(1, f2, tokens[0]), (2, f3, tokens[1])] {
        dropped += all.dropped(own);
        let words = ["fabric", "import", "--join", "192.0.2.1", "--token", token, file];
        let said = all.says(own, &words);
        assert!(said.contains("is a member of fabric prod"), "{said}");
        all.all_reach_each_other();
    }
    wait_for("all have the configuration of the fabric", || {
        all.daemons.iter().all(|daemon| {
            let state = daemon.progress();
            let members = state["members"].as_array().unwrap().clone();
            members.len() == HOSTS && members.iter().all(|member| member["connected"] == true)
        })
    });
    all.all_reach_each_other();
    let mut lost = 0;
    for (flow, to) in flows.into_iter().zip(["h2", "h3", "h1"]) {
        let seen = flow.stop();
        rig::say(&format!("to {to}: {seen:?}"));
        assert!(seen.received > 0, "{to}: {seen:?}");
        assert_eq!(seen.late, 0, "{to}: {seen:?}");
        lost += seen.sent - seen.received;
    }
    all.daemons.iter().for_each(Daemon::drained);
    let dropped = dropped + all.dropped_by_all() - before;
    assert!(lost <= dropped, "{lost} are lost, and drops name {dropped}");
    for (nth, daemon) in all.daemons.iter().enumerate() {
        let text = daemon.says(&["config", "show"]);
        for part in ["policy = \"ZL\"", "moves_max = 9", "vni = 42", "mtu = 1400"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(fs::read_to_string(format!("{}.before", files[nth])).unwrap().contains("[[peer]]"));
        let again = all.says(nth, &["fabric", "import", "--create", &files[nth]]);
        assert!(again.contains("is a member already"), "{again}");
    }
    h3.says(&["vnet", "create", "red", "--vni", "7"]);
    wait_for("a change is everywhere", || all.daemons.iter().all(|d| d.vnets().len() == 2));
}

#[test]
#[ignore = "live: needs root"]
fn files_that_disagree_change_nothing() {
    if skip("files_that_disagree_change_nothing", &[]) {
        return;
    }
    let all = Files::start("differ");
    let files: Vec<String> = (1..=HOSTS)
        .map(|id| all.net.file(&format!("h{id}/host.toml")).to_str().unwrap().to_owned())
        .collect();
    let wrong = fs::read_to_string(&files[1]).unwrap().replace("vni = 42", "vni = 43");
    fs::write(&files[1], &wrong).unwrap();
    let h1 = &all.daemons[0];
    let words = ["fabric", "import", "--create", &files[0], &files[1], &files[2]];
    let why = h1.run_here(&words).expect_err("the files differ");
    for part in ["`vni` of network `blue` is 42", &files[0], &files[1]] {
        assert!(why.contains(part), "{why}");
    }
    assert!(!all.net.file("h1/fabric.redb").exists());
    all.all_reach_each_other();
}
