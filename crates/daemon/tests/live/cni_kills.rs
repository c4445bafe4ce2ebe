//! Containers that are created and deleted in random order, several at a time, while the plugin and
//! the processes of the host are killed at any moment: nothing is missing, and in the end nothing
//! is left.
//!
//! A runtime that has got no answer knows nothing: it says DEL before the next ADD, says ADD again,
//! or leaves the interface to GC. The oracle is what it was told: an ADD that succeeded holds until
//! its DEL.
//!
//! ```text
//!   k0 … kN ── h1 up0 ═════ up0 h2 ── c3     c3 pings every container that is attached
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::rig::cni::{self, Cni, Done, percentiles, skip_without_peers};
use crate::rig::pair::{Pair, devices};
use crate::rig::ping::Pinger;
use crate::rig::{Daemon, Net, Netns, say, wait_for};
use serde_json::{Value, json};
use sluice_base::Prng;
use sluice_testkit::bound::is_soak;

/// Containers, and looks at all of them in the midst of it; `SLUICE_SOAK=1` has more.
const SHORT: (usize, usize) = (40, 4);
const SOAK: (usize, usize) = (500, 10);
/// Commands at a time; each worker has its own containers.
const WORKERS: usize = 4;
/// Longest time until the plugin is killed: an ADD takes less. Short ones are more frequent.
const KILLED_WITHIN_US: u64 = 80_000;
/// Deaths of the host between two looks, and longest time from one to the next.
const DEATHS: usize = 3;
const HOST_DIES_WITHIN_US: u64 = 800_000;
/// Time until a host that is away is asked again.
const HOST_RETRY: Duration = Duration::from_millis(20);

/// What a runtime knows of a container.
enum State {
    Detached,
    /// Result of the ADD that succeeded.
    Attached(Value),
    /// An answer is missing, and no DEL has come since.
    Unknown,
}

struct Container {
    id: String,
    path: String,
    netns: Netns,
    state: State,
    /// True if an ADD has succeeded at some time.
    has_lived: bool,
}

impl Container {
    fn result(&self) -> Option<&Value> {
        match &self.state {
            State::Attached(result) => Some(result),
            _ => None,
        }
    }

    fn address(&self) -> Option<String> {
        let text = self.result()?["ips"][0]["address"].as_str();
        Some(text.unwrap().split('/').next().unwrap().to_owned())
    }
}

/// Counts of a worker, and the times of its ADDs that succeeded.
#[derive(Default)]
struct Tally {
    killed: usize,
    refused: usize,
    adds: Vec<Duration>,
}

#[test]
#[ignore = "live: needs root"]
fn containers_under_kills_leave_nothing() {
    if skip_without_peers("live::cni_kills") {
        return;
    }
    let seed = std::env::var("SLUICE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let (count, rounds) = if is_soak() { SOAK } else { SHORT };
    say(&format!("SLUICE_SEED={seed}: {count} containers"));
    let mut case = Pair::new("cnikill", u16::try_from(count).unwrap() + 8);
    let mut net = Net::new("cnikillc");
    let words = ["port", "add", "--netns", case.containers[2].name(), "--vnet", "blue"];
    case.daemons[1].ask(&[&words[..], &["--ip", "10.42.0.2/16"]].concat());
    let cni = Cni::new(&case, 0);
    let mut ipam = cni.host_local(["10.42.1.1", "10.42.3.254"].map(str::to_owned));
    ipam["ranges"][0][0]["subnet"] = json!("10.42.0.0/16");
    let config = cni.config(&json!({"ipam": ipam}));
    let mut shares = containers(&mut net, count);
    let before = Remains::of(&case);
    let mut random = Prng::stream(seed, "host");
    let mut tally = Tally::default();
    for round in 1..=rounds {
        // Those that exist by now; each round brings more.
        let open = (count / WORKERS * round).div_ceil(rounds);
        let worker = |(number, share): (usize, &mut Vec<Container>)| {
            let random = Prng::stream(seed, &format!("{number} {round}"));
            work(random, &cni, &config, &mut share[..open])
        };
        let host = &mut case.daemons[0];
        for done in with_deaths(&mut random, host, shares.iter_mut().enumerate(), worker) {
            tally.killed += done.killed;
            tally.refused += done.refused;
            tally.adds.extend(done.adds);
        }
        wait_for("the host is ready", || cni.exec("STATUS", "", None, &config).code() == Some(0));
        let all: Vec<&Container> = shares.iter().flatten().collect();
        as_it_was_told(&case, &cni, &config, &all);
    }
    say(&format!("{} commands were killed, {} refused", tally.killed, tally.refused));
    let [p50, p99] = percentiles(tally.adds);
    say(&format!("ADD, {WORKERS} at a time, deaths included: p50 {p50:.1?}, p99 {p99:.1?}"));
    // How many depends on how fast the machine is.
    assert!(tally.killed > count / 20, "too few were killed to show anything");
    let mut all: Vec<&mut Container> = shares.iter_mut().flatten().collect();
    assert!(all.iter().all(|one| one.has_lived));
    goes_in_any_order(&mut random, &cni, &config, &mut all);
    nothing_is_left(&case, &cni, &before, all.iter().map(|one| &one.netns));
}

/// Makes the containers of each worker.
fn containers(net: &mut Net, count: usize) -> Vec<Vec<Container>> {
    let one = |at: usize| {
        let netns = net.netns(&format!("k{at}"));
        let (id, path, state) = (format!("k{at}"), cni::path_of(&netns), State::Detached);
        Container { id, path, netns, state, has_lived: false }
    };
    let mut all = (0..count).map(one);
    (0..WORKERS).map(|_| all.by_ref().take(count / WORKERS).collect()).collect()
}

/// Runs a worker for each share while processes of the host are killed.
fn with_deaths<S: Send>(
    random: &mut Prng,
    host: &mut Daemon,
    shares: impl Iterator<Item = S>,
    work: impl Fn(S) -> Tally + Sync,
) -> Vec<Tally> {
    std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = shares.map(|share| scope.spawn(move || work(share))).collect();
        for _ in 0..DEATHS {
            std::thread::sleep(Duration::from_micros(random.below(HOST_DIES_WITHIN_US)));
            if workers.iter().any(|one| !one.is_finished()) {
                host_dies(random, host);
            }
        }
        workers.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// Kills one process of the host, or both, while it is asked, and lets it come back.
fn host_dies(random: &mut Prng, host: &mut Daemon) {
    match random.below(3) {
        0 => host.kill_control(),
        1 => return host.kill_data(),
        _ => host.kill_both(),
    }
    host.restart_control();
}

/// Executes random commands until every container has lived.
fn work(mut random: Prng, cni: &Cni, config: &Value, containers: &mut [Container]) -> Tally {
    let mut tally = Tally::default();
    while containers.iter().any(|one| !one.has_lived) {
        let one = pick(&mut random, containers);
        let command = match &one.state {
            // More stay than go, so that there is something to compare.
            State::Attached(_) if random.below(4) != 0 => continue,
            State::Attached(_) => "DEL",
            // One that has lived comes back now and then.
            State::Detached if one.has_lived && random.below(4) != 0 => continue,
            State::Detached => "ADD",
            State::Unknown => ["DEL", "DEL", "ADD"][usize::try_from(random.below(3)).unwrap()],
        };
        let netns = (command == "ADD" || random.below(2) == 0).then_some(one.path.as_str());
        let begin = Instant::now();
        let mut child = cni.start(command, &one.id, netns, config);
        if random.below(3) == 0 {
            let most = random.below(KILLED_WITHIN_US) + 1;
            std::thread::sleep(Duration::from_micros(random.below(most)));
            _ = child.kill();
        }
        let done = Done::of(child);
        let time = begin.elapsed();
        tally.killed += usize::from(done.code().is_none());
        match (done.code(), command) {
            (Some(0), "ADD") => {
                (one.state, one.has_lived) = (State::Attached(done.succeeds()), true);
                tally.adds.push(time);
            }
            (Some(0), _) => one.state = State::Detached,
            // Killed: anything may be there, and what was there may be gone.
            (None, _) => one.state = State::Unknown,
            (Some(_), _) => {
                tally.refused += 1;
                is_refused(one, command, &done.error());
            }
        }
    }
    tally
}

/// Takes an error: the host is away, or one of its processes is, or an ADD that was killed had
/// ended but for its answer.
fn is_refused(one: &mut Container, command: &str, error: &Value) {
    let is_away = [11, 100].map(Value::from).contains(&error["code"]);
    assert!(is_away, "{command} of {}: {error}", one.id);
    one.state = State::Unknown;
    std::thread::sleep(HOST_RETRY);
}

fn pick<'a>(random: &mut Prng, containers: &'a mut [Container]) -> &'a mut Container {
    let at = usize::try_from(random.below(containers.len() as u64)).unwrap();
    &mut containers[at]
}

/// Collects what was left, and compares the host, the addresses and the containers with what the
/// runtime was told.
fn as_it_was_told(case: &Pair, cni: &Cni, config: &Value, all: &[&Container]) {
    let told: BTreeMap<String, &Container> =
        all.iter().filter_map(|one| Some((one.address()?, *one))).collect();
    let here = |one: &&Container| json!({"containerID": one.id, "ifname": "eth0"});
    let mut valid = config.clone();
    valid["cni.dev/valid-attachments"] = told.values().map(here).collect();
    cni.exec("GC", "", None, &valid).succeeds();
    let unknown = all.iter().filter(|one| matches!(one.state, State::Unknown)).count();
    say(&format!("{} of {} containers are attached, {unknown} left to GC", told.len(), all.len()));
    assert_eq!(cni.ports(&case.daemons[0]).len(), told.len());
    let owners = told.iter().map(|(address, one)| (address.clone(), one.id.clone()));
    assert_eq!(cni.owners(), owners.collect());
    assert_eq!(cni.claims(), [""; 0]);
    for one in all {
        let Some(result) = one.result() else {
            assert_eq!(devices(&one.netns), ["lo"], "{} has been detached", one.id);
            continue;
        };
        let mut checked = config.clone();
        checked["prevResult"] = result.clone();
        // After a death its port may still be on its way back.
        wait_for(&format!("{} is as it was made", one.id), || {
            cni.exec("CHECK", &one.id, Some(&one.path), &checked).code() == Some(0)
        });
    }
    wait_for("the fabric knows those that are there", || {
        let known = case.known(1).into_iter().filter(|ip| ip.starts_with("10.42."));
        let known: BTreeSet<String> = known.filter(|ip| ip != "10.42.0.2").collect();
        known.iter().eq(told.keys())
    });
    for (address, one) in &told {
        let to: Ipv4Addr = address.parse().unwrap();
        let mut pinger = Pinger::new(&case.containers[2], to);
        wait_for(&format!("{} answers on {address}", one.id), || pinger.ping(84));
    }
}

/// Deletes the containers in random order, but for those that are left to the last GC.
fn goes_in_any_order(random: &mut Prng, cni: &Cni, config: &Value, all: &mut [&mut Container]) {
    for end in (1..all.len()).rev() {
        let at = usize::try_from(random.below(end as u64 + 1)).unwrap();
        all.swap(at, end);
    }
    for some in all.chunks(WORKERS) {
        let dels: Vec<_> = some
            .iter()
            .filter(|_| random.below(4) != 0)
            .map(|one| cni.start("DEL", &one.id, None, config))
            .collect();
        dels.into_iter().for_each(|child| _ = Done::of(child).succeeds());
    }
    let mut valid = config.clone();
    valid["cni.dev/valid-attachments"] = json!([]);
    cni.exec("GC", "", None, &valid).succeeds();
}

/// Everything of a host that a container could leave something in.
#[derive(Debug, PartialEq, Eq)]
struct Remains {
    /// Devices in the namespace of the host.
    devices: Vec<String>,
    ports: usize,
    endpoints: usize,
    /// Records of TAPs.
    taps: BTreeSet<PathBuf>,
    /// TAPs that each process has open.
    open: [usize; 2],
    namespaces: BTreeSet<PathBuf>,
}

impl Remains {
    fn of(case: &Pair) -> Self {
        let host = &case.daemons[0];
        let open = [host.control_pid(), host.data_pid()].map(|pid| {
            let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let files = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
            files.filter(|path| path.ends_with("net/tun")).count()
        });
        let own = format!("{}-cnikill", std::process::id());
        let is_own = |path: &PathBuf| path.to_string_lossy().contains(&own);
        Self {
            devices: devices(&case.hosts[0]),
            ports: host.show("ports").as_array().unwrap().len(),
            endpoints: case.known(0).len(),
            taps: entries(&case.file("h1/taps")),
            open,
            namespaces: entries("/run/netns".as_ref()).into_iter().filter(is_own).collect(),
        }
    }
}

fn entries(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn nothing_is_left<'a>(
    case: &Pair,
    cni: &Cni,
    before: &Remains,
    all: impl Iterator<Item = &'a Netns>,
) {
    for netns in all {
        assert_eq!(devices(netns), ["lo"], "{}", netns.name());
    }
    assert_eq!(cni.assigned(), [""; 0]);
    assert_eq!(cni.claims(), [""; 0]);
    assert_eq!(cni.ports(&case.daemons[0]), [""; 0]);
    // The kernel takes its time to end devices, and the fabric to forget endpoints.
    wait_for("the host is as it was before", || Remains::of(case) == *before);
    assert_eq!(case.daemons[0].show("audit")["closed"], true);
}
