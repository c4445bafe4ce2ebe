//! Containers that are attached and detached in random order while the plugin and the processes of
//! the host are killed at any moment: in the end nothing is left, and nothing is missing.
//!
//! A runtime that has got no answer knows nothing, and says DEL before the next ADD, or leaves the
//! interface to GC. The oracle is what it was told: an ADD that succeeded holds until its DEL.
//! `host-local` has no GC: the address of an ADD that was killed before there was a port stays
//! until a DEL.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rig::cni::{self, Cni, range, skip_without_peers};
use crate::rig::pair::{Pair, devices};
use crate::rig::{Daemon, Net, Netns, say, wait_for};
use serde_json::{Value, json};
use sluice_base::Prng;
use sluice_testkit::bound::is_soak;

/// Containers; each thread has half of them.
const CONTAINERS: usize = 8;
/// Operations of a short run; `SLUICE_SOAK=1` has more.
const OPERATIONS: usize = 200;
const OPERATIONS_SOAK: usize = 1000;
/// Longest time until the plugin is killed: an ADD takes less.
const KILLED_WITHIN_US: u64 = 40_000;
/// Longest time from the beginning of a round until the host dies.
const HOST_DIES_WITHIN_US: u64 = 400_000;
/// Time until a host that is away is asked again.
const HOST_RETRY: Duration = Duration::from_millis(20);
/// Operations between two deaths of the host.
const HOST_DIES_EVERY: usize = 50;

/// A container, as its runtime knows it.
struct Container {
    id: String,
    path: String,
    netns: Netns,
    /// Result of the ADD that succeeded.
    result: Option<Value>,
    /// True if an answer is missing, and no DEL has come since.
    is_unknown: bool,
}

#[test]
#[ignore = "live: needs root"]
fn random_adds_and_dels_with_kills_leave_nothing() {
    if skip_without_peers("live::cni_kills") {
        return;
    }
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let operations = if is_soak() { OPERATIONS_SOAK } else { OPERATIONS };
    say(&format!("SLUICE_SEED={seed}: {operations} operations"));
    let mut case = Pair::new("cnikill", 24);
    let mut net = Net::new("cnikillc");
    let cni = Cni::new(&case, 0);
    let config = cni.config(&json!({"ipam": cni.host_local(range(10, 60))}));
    let mut halves: [Vec<Container>; 2] = [0, 1].map(|half| {
        let one = |at: usize| {
            let netns = net.netns(&format!("{half}{at}"));
            let path = cni::path_of(&netns);
            Container { id: format!("k{half}{at}"), path, netns, result: None, is_unknown: false }
        };
        (0..CONTAINERS / 2).map(one).collect()
    });
    let mut random = Prng::stream(seed, "host");
    let rounds = operations / HOST_DIES_EVERY;
    let mut killed = 0;
    for round in 0..rounds {
        let (cni, config) = (&cni, &config);
        let host = &mut case.daemons[0];
        let random = &mut random;
        killed += std::thread::scope(|scope| {
            let workers: Vec<_> = halves
                .iter_mut()
                .enumerate()
                .map(|(half, containers)| {
                    let random = Prng::stream(seed, &format!("{half} {round}"));
                    scope.spawn(move || work(random, cni, config, containers))
                })
                .collect();
            // In the last round only the plugin is killed, so that more is attached in the end.
            if round + 1 < rounds {
                host_dies(random, host);
            }
            workers.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        wait_for("the host is ready", || cni.exec("STATUS", "", None, config).code() == Some(0));
    }
    let all: Vec<&Container> = halves.iter().flatten().collect();
    say(&format!("{killed} of {operations} were killed"));
    // How many depends on how fast the machine is.
    assert!(killed > operations / 50, "too few were killed to show anything");
    as_it_was_told(&case, &cni, &config, &all);
}

/// Kills one process of the host, or both, while it is asked, and lets it come back.
fn host_dies(random: &mut Prng, host: &mut Daemon) {
    std::thread::sleep(Duration::from_micros(random.below(HOST_DIES_WITHIN_US)));
    match random.below(3) {
        0 => host.kill_control(),
        1 => return host.kill_data(),
        _ => host.kill_both(),
    }
    host.restart_control();
}

/// Executes random commands; returns how many were killed.
fn work(mut random: Prng, cni: &Cni, config: &Value, containers: &mut [Container]) -> usize {
    let mut killed = 0;
    for _ in 0..HOST_DIES_EVERY / 2 {
        let at = usize::try_from(random.below(containers.len() as u64)).unwrap();
        let one = &mut containers[at];
        // More stay than go, so that there is something to compare in the end.
        if one.result.is_some() && random.below(3) != 0 {
            continue;
        }
        let command = if one.result.is_some() || one.is_unknown { "DEL" } else { "ADD" };
        let netns = (command == "ADD" || random.below(2) == 0).then_some(one.path.as_str());
        let mut child = cni.start(command, &one.id, netns, config);
        if random.below(2) == 0 {
            std::thread::sleep(Duration::from_micros(random.below(KILLED_WITHIN_US)));
            _ = child.kill();
        }
        let output = child.wait_with_output().unwrap();
        killed += usize::from(output.status.code().is_none());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match (output.status.code(), command) {
            (Some(0), "ADD") => one.result = Some(serde_json::from_str(&said).unwrap()),
            (Some(0), _) => (one.result, one.is_unknown) = (None, false),
            // Killed: anything may be there, and what was there may be gone.
            (None, _) => (one.result, one.is_unknown) = (None, true),
            // The host is away, or one of its processes is. A runtime says DEL again.
            (Some(_), _) => {
                let error: Value = serde_json::from_str(&said).unwrap();
                assert!([11, 100].map(Value::from).contains(&error["code"]), "{command}: {said}");
                (one.result, one.is_unknown) = (None, true);
                say(&format!("{command}: {}", error["msg"]));
                std::thread::sleep(HOST_RETRY);
            }
        }
    }
    killed
}

/// Collects what was left, and compares the host, the addresses and the containers with what the
/// runtime was told.
fn as_it_was_told(case: &Pair, cni: &Cni, config: &Value, all: &[&Container]) {
    let told: BTreeMap<&str, &Value> =
        all.iter().filter_map(|one| Some((one.id.as_str(), one.result.as_ref()?))).collect();
    let mut valid = config.clone();
    let here = |id: &&str| json!({"containerID": id, "ifname": "eth0"});
    valid["cni.dev/valid-attachments"] = told.keys().map(here).collect();
    cni.exec("GC", "", None, &valid).succeeds();
    say(&format!("{} of {} containers are attached in the end", told.len(), all.len()));
    assert_eq!(cni.ports(&case.daemons[0]).len(), told.len());
    let mut addresses: Vec<String> = told
        .values()
        .map(|result| result["ips"][0]["address"].as_str().unwrap().replace("/24", ""))
        .collect();
    addresses.sort();
    for (address, owner) in cni.owners() {
        let is_told = addresses.contains(&address);
        let is_unknown = all.iter().any(|one| one.id == owner && one.is_unknown);
        assert!(is_told || is_unknown, "{address} of {owner} is assigned");
    }
    for one in all {
        let Some(result) = told.get(one.id.as_str()) else {
            assert_eq!(devices(&one.netns), ["lo"], "{} has been detached", one.id);
            continue;
        };
        let mut checked = config.clone();
        checked["prevResult"] = (*result).clone();
        cni.exec("CHECK", &one.id, Some(&one.path), &checked).succeeds();
    }
    wait_for("the fabric knows those that are there", || {
        let known = case.known(1).into_iter().filter(|ip| ip.starts_with("10.42."));
        let mut known: Vec<String> = known.collect();
        known.sort();
        known == addresses
    });
    // Nothing at all is left after a DEL for each.
    for one in all {
        cni.exec("DEL", &one.id, None, config).succeeds();
        assert_eq!(devices(&one.netns), ["lo"]);
    }
    assert_eq!(cni.assigned(), [""; 0]);
    assert_eq!(cni.ports(&case.daemons[0]), [""; 0]);
    assert_eq!(case.daemons[0].show("audit")["closed"], true);
}
