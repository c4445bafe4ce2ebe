//! Shared parts of this folder's tests, and members of a fabric on the loopback device, without a
//! data process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use sluice_api::fabric::{Answer, MemberRow, Question, VportPolicy, VportRow};
use sluice_api::trace::{self, Between, Hop, Verdict};
use sluice_base::{HostId, Mac, Nanos, PortId, TunnelId, VnetId, Vni};
use sluice_control::plane::Config;
use sluice_control::rpc::Failure;
use sluice_testkit::bound::at_most;
use sluice_testkit::udp;
use sluice_wire::fabric::Topic;

use super::certificates::{CertificateRequest, make};
use super::identity::Wall;
use super::{ConfigPort, Fabric, NoConfig, wall};
use crate::config::{Bound, FabricPlan, HostPlan, LocalPort, Workers};
use crate::control::policy::Held;

mod hostile;

/// A folder that is deleted with the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

fn vni() -> Vni {
    Vni::new(42).unwrap()
}

/// Returns a port that is free at the addresses of all members.
pub(super) fn free_port() -> u16 {
    udp::free_port(&[1, 2, 3, 4, 5, 6, 7, 8, 9].map(|host| Ipv4Addr::new(127, 0, 9, host)))
}

/// Returns the plan of host `own` of `hosts`, with one bound endpoint.
pub(super) fn plan(folder: &Path, own: u8, hosts: u8, port: u16) -> FabricPlan {
    let at = |host| SocketAddr::new(Ipv4Addr::new(127, 0, 9, host).into(), port);
    let others = (1..=hosts).filter(|&host| host != own).map(|host| HostPlan {
        host: HostId(host.into()),
        name: format!("h{host}"),
        vtep: at(host).ip(),
        at: Some(at(host)),
        vnets: vec![vni()],
    });
    FabricPlan {
        fabric: [7; 16],
        own: HostId(own.into()),
        name: format!("h{own}"),
        listen: at(own),
        certificates: folder.join(format!("h{own}")),
        vnets: vec![(vni(), "blue".to_owned())],
        vnet_ids: vec![VnetId(0)],
        mtus: vec![1450],
        policy: "ZL".to_owned(),
        vtep: at(own).ip(),
        tunnel_ids: (0..u16::from(hosts) - 1).map(TunnelId).collect(),
        hosts: others.collect(),
        ports: [(
            PortId(0),
            LocalPort {
                name: "c".to_owned(),
                vnet: VnetId(0),
                is_bound: true,
                policy: VportPolicy::default(),
                allowed: Vec::new(),
                tap: None,
            },
        )]
        .into(),
        ports_max: 4,
        bound: vec![Bound {
            port: PortId(0),
            vni: vni(),
            mac: Mac([2, 0, 0, 0, 0, own]),
            ips: vec![IpAddr::from([10, 0, 0, own])],
            taken: 0,
        }],
        learn_max: 8,
        claims_per_host: 1000,
        punts_per_port: 10_000,
        moves: sluice_control::mobility::Limits::default(),
        confirmed: Nanos::from_millis(30_000),
        chip_flows: 1024,
        asks_per_port: 100,
        workers: Workers { count: 1, ports: vec![] },
        evpn: None,
        traces: None,
    }
}

fn start(folder: &Path, plan: &FabricPlan) -> Fabric {
    start_at(wall(), folder, plan)
}

/// Starts a member with the clock `wall`.
pub(super) fn start_at(wall: Wall, folder: &Path, plan: &FabricPlan) -> Fabric {
    begin(wall, folder, plan, Arc::new(NoConfig))
}

/// Starts a member with a configuration.
pub(super) fn start_with(folder: &Path, plan: &FabricPlan, config: Arc<dyn ConfigPort>) -> Fabric {
    begin(wall(), folder, plan, config)
}

fn begin(wall: Wall, folder: &Path, plan: &FabricPlan, config: Arc<dyn ConfigPort>) -> Fabric {
    let run_dir = folder.join(format!("run-{}", plan.name));
    std::fs::create_dir_all(&run_dir).unwrap();
    let held = Arc::new(Held::open(&plan.name, plan.own.0, &run_dir));
    Fabric::start(plan, (&run_dir, &run_dir), (Nanos::ZERO, wall), (held, config)).unwrap()
}

/// Starts two members that are connected, with the policies that they hold. The directory of one is
/// `run-h1` in the folder.
pub(crate) fn two_that_hold(folder: &Path) -> [(Fabric, Arc<Held>); 2] {
    certificates(folder, &["h1", "h2"]);
    let port = free_port();
    let both = [1, 2].map(|own| {
        let (plan, run_dir) = (plan(folder, own, 2, port), folder.join(format!("run-h{own}")));
        std::fs::create_dir_all(&run_dir).unwrap();
        let held = Arc::new(Held::open(&plan.name, plan.own.0, &run_dir));
        let fabric = Fabric::start(
            &plan,
            (&run_dir, &run_dir),
            (Nanos::ZERO, wall()),
            (held.clone(), Arc::new(NoConfig)),
        )
        .unwrap();
        (fabric, held)
    });
    connected(&[&both[0].0], &["h2"]);
    connected(&[&both[1].0], &["h1"]);
    both
}

fn vports(fabric: &Fabric) -> Vec<VportRow> {
    match fabric.answer(Question::Vports { vnet: None }) {
        Ok(Answer::Vports(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

pub(super) fn member(fabric: &Fabric, name: &str) -> MemberRow {
    match fabric.answer(Question::Members) {
        Ok(Answer::Members(rows)) => rows.into_iter().find(|row| row.host == name).unwrap(),
        other => panic!("{other:?}"),
    }
}

pub(super) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !happened() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A wall clock that is set by hand.
#[derive(Debug)]
pub(super) struct Hand(AtomicU64);

impl Hand {
    /// Makes a clock with the time of the machine's.
    pub(super) fn now() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(UnixTime::now().as_secs())))
    }

    /// Sets the seconds since 1970.
    pub(super) fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    /// Sets the clock forward.
    pub(super) fn pass_days(&self, days: u64) {
        self.0.fetch_add(days * 86_400, Ordering::Relaxed);
    }
}

impl TimeProvider for Hand {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.0.load(Ordering::Relaxed))))
    }
}

/// Makes certificates for hosts of one fabric, valid for 90 days.
pub(crate) fn certificates(folder: &Path, hosts: &[&str]) {
    let hosts: Vec<String> = hosts.iter().map(|&name| name.to_owned()).collect();
    make(&CertificateRequest { folder, hosts: &hosts, days: 90, replace: true }).unwrap();
}

#[test]
fn member_leaving_makes_vports_stale_until_return() {
    let folder = Folder::new("members");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let plans: Vec<FabricPlan> = (1..=3).map(|own| plan(&folder, own, 3, port)).collect();
    let mut members: Vec<Fabric> = plans.iter().map(|plan| start(&folder, plan)).collect();
    for fabric in &members {
        wait_for("everybody knows everybody's endpoint", || vports(fabric).len() == 3);
    }
    let rows = vports(&members[0]);
    let hosts: Vec<&str> = rows.iter().map(|row| row.host.as_str()).collect();
    assert_eq!(hosts, ["h1", "h2", "h3"]);
    assert_eq!(rows[1].ips, [IpAddr::from([10, 0, 0, 2])]);
    assert_eq!((rows[0].port.as_str(), rows[0].origin.as_str()), ("c", "bound"));

    wait_for("it is known to be alive", || member(&members[0], "h3").health == "alive");
    let events = members[0].watch();
    members.remove(2).leave();
    wait_for("its endpoint is stale", || vports(&members[0])[2].state == "stale");
    wait_for("watchers are told", || {
        events.try_iter().any(|line| matches!(line, Answer::Event(row) if row.event == "host-down"))
    });
    members.push(start(&folder, &plans[2]));
    for fabric in &members {
        wait_for("it is live again", || vports(fabric).iter().all(|row| row.state != "stale"));
    }
}

#[test]
fn fabric_port_added_claimed_deleted_withdrawn_at_members() {
    let folder = Folder::new("ports");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let [h1, h2] = [1, 2].map(|own| start(&folder, &plan(&folder, own, 2, port)));
    let add = |id: u16, name: &str, mac: u8| {
        let port = LocalPort {
            name: name.to_owned(),
            vnet: VnetId(0),
            is_bound: true,
            policy: VportPolicy::default(),
            allowed: Vec::new(),
            tap: None,
        };
        let (mac, ips) = (Mac([2, 0, 0, 0, 1, mac]), vec![IpAddr::from([10, 0, 1, mac])]);
        h1.add_port(
            PortId(id),
            port,
            Some(Bound { port: PortId(id), vni: vni(), mac, ips, taken: 0 }),
        )
    };
    let known = |fabric: &Fabric| -> Vec<String> {
        let own = |row: &VportRow| row.ips[0].to_string();
        vports(fabric).iter().map(own).filter(|ip| ip.starts_with("10.0.1.")).collect()
    };
    let all_know = |ips: &[&str]| {
        for fabric in [&h1, &h2] {
            wait_for(&format!("{ips:?} are known"), || known(fabric) == ips);
        }
    };
    add(2, "web", 1).unwrap();
    add(3, "db", 2).unwrap();
    all_know(&["10.0.1.1", "10.0.1.2"]);
    h1.del_port("web").unwrap();
    all_know(&["10.0.1.2"]);
    // Data was restarted, and gave the port another number; then the same one again.
    add(2, "db", 2).unwrap();
    add(2, "db", 2).unwrap();
    all_know(&["10.0.1.2"]);
    // The device went away, and another port has the number.
    add(2, "web", 1).unwrap();
    all_know(&["10.0.1.1"]);
    h1.del_port("nobody").unwrap();
    // A machine that is bound at a second host has moved there.
    let there = LocalPort {
        name: "moved".to_owned(),
        vnet: VnetId(0),
        is_bound: true,
        policy: VportPolicy::default(),
        allowed: Vec::new(),
        tap: None,
    };
    let (mac, ips) = (Mac([2, 0, 0, 0, 1, 1]), vec![IpAddr::from([10, 0, 1, 1])]);
    let bound = Bound { port: PortId(3), vni: vni(), mac, ips, taken: 1 };
    h2.add_port(PortId(3), there, Some(bound)).unwrap();
    for fabric in [&h1, &h2] {
        wait_for("it is at the second host", || {
            let rows = vports(fabric);
            rows.iter().any(|row| row.mac == mac.to_string() && row.host == "h2")
        });
    }
}

#[test]
fn foreign_fabric_host_refused_members_unaffected() {
    let (folder, other) = (Folder::new("stranger"), Folder::new("stranger-other"));
    certificates(&folder, &["h1", "h2"]);
    certificates(&other, &["h3"]);
    let port = free_port();
    let h1 = start(&folder, &plan(&folder, 1, 3, port));
    let h2 = start(&folder, &plan(&folder, 2, 3, port));
    let stranger = start(&other, &plan(&other, 3, 3, port));
    for fabric in [&h1, &h2] {
        wait_for("the two know each other", || vports(fabric).len() == 2);
    }
    std::thread::sleep(Duration::from_millis(500));
    for fabric in [&h1, &h2] {
        assert!(!member(fabric, "h3").connected);
        assert_eq!(vports(fabric).len(), 2);
    }
    assert_eq!(vports(&stranger).len(), 1);
}

pub(super) fn connected(fabrics: &[&Fabric], names: &[&str]) {
    let all = |fabric: &&Fabric| names.iter().all(|name| member(fabric, name).connected);
    wait_for("all members are connected", || fabrics.iter().all(all));
}

/// Returns the path from the endpoint of h1 to that of h2.
fn between() -> Between {
    let [from, to] = ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(str::to_owned);
    Between { vni: 42, from, to }
}

#[test]
fn member_call_failures_have_distinct_errors() {
    let folder = Folder::new("fabric-talk");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let mut plans = [1, 2, 3].map(|own| plan(&folder, own, 3, port));
    // For h2, h3 is not in the network.
    plans[1].hosts.iter_mut().filter(|host| host.name == "h3").for_each(|host| host.vnets.clear());
    let [h1, h2, h3] = plans.each_ref().map(|plan| start(&folder, plan));
    connected(&[&h1, &h3], &["h2"]);
    let (limit, second) = (Nanos::from_millis(2_000), HostId(2));
    let ask = |fabric: &Fabric, topic| fabric.call(second, topic, limit, &between());
    assert_eq!(ask(&h1, Topic(99)), Err(Failure::UnknownTopic));
    assert_eq!(h1.call(second, Topic::TRACE, limit, &"what?"), Err(Failure::Refused));
    assert_eq!(h1.call(second, Topic::TRACE, limit, &"x".repeat(2_000)), Err(Failure::TooBig));
    assert_eq!(h1.call(HostId(9), Topic::TRACE, limit, &between()), Err(Failure::NotConnected));
    assert_eq!(ask(&h3, Topic::TRACE), Err(Failure::Refused), "it is not in the network");
    // There is no data process, and the answer says so.
    let hop: Hop = serde_json::from_slice(&ask(&h1, Topic::ARRIVAL).unwrap()).unwrap();
    assert_eq!((&*hop.host, hop.steps[0].verdict), ("h2", Verdict::SwitchSilent));
    // The names are those of the counters.
    let count = |name: &str| member(&h1, "h2").talk.get(name).copied().unwrap_or(0);
    // One more is the question for settings at each new connection.
    wait_for("each question is counted", || (count("asked"), count("answered")) == (4, 4));
    let question = trace::Question {
        vnet: "blue".to_owned(),
        from: between().from,
        to: between().to,
        port: None,
        limit_ms: 1_000,
    };
    let Ok(Answer::Trace(told)) = h1.answer(Question::Trace(question.clone())) else {
        panic!("no trace")
    };
    assert_eq!((told.verdict, told.at.as_deref()), (Verdict::SwitchSilent, Some("h1")));
    let other = trace::Question { vnet: "red".to_owned(), ..question };
    let error = h1.answer(Question::Trace(other)).unwrap_err();
    assert!(error.contains("blue"), "{error}");
    drop(h2);
}

#[test]
fn slow_member_call_times_out_concurrent_calls_limited() {
    let folder = Folder::new("fabric-slow");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let [h1, _h2] = plans.each_ref().map(|plan| start(&folder, plan));
    // A data process that accepts questions and answers none.
    let socket = folder.join("run-h2").join(crate::sys::run_dir::DATA_SOCKET);
    let _silent = std::os::unix::net::UnixListener::bind(socket).unwrap();
    connected(&[&h1], &["h2"]);
    let ask =
        |limit_ms| h1.call(HostId(2), Topic::ARRIVAL, Nanos::from_millis(limit_ms), &between());
    let answers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(|| ask(1_500))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let count = |wanted: fn(&Result<Vec<u8>, Failure>) -> bool| {
        answers.iter().filter(|answer| wanted(answer)).count()
    };
    assert_eq!(count(|answer| *answer == Err(Failure::Refused)), 2, "{answers:?}");
    assert_eq!(count(Result::is_ok), 4, "{answers:?}");
    // Less time than the other side would need to notice.
    let begin = Instant::now();
    assert_eq!(ask(1), Err(Failure::TooLate));
    at_most("a call that may take 1 ms", begin.elapsed(), Duration::from_millis(700));
    assert!(member(&h1, "h2").connected, "nothing else follows from it");
}

#[test]
fn trace_takes_addresses_and_ports_of_both_sides() {
    let folder = Folder::new("fabric-names");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let mut plans = [1, 2, 3].map(|own| plan(&folder, own, 3, port));
    let name = |plan: &mut FabricPlan, name: &str| {
        plan.ports.values_mut().for_each(|port| port.name = name.to_owned());
    };
    name(&mut plans[0], "web");
    name(&mut plans[1], "db");
    // h3 has a port of the same name, and h1 is not in its networks.
    name(&mut plans[2], "db");
    plans[2].hosts.iter_mut().for_each(|host| host.vnets.clear());
    let [h1, h2, h3] = plans.each_ref().map(|plan| start(&folder, plan));
    connected(&[&h1], &["h2", "h3"]);
    wait_for("h1 knows all endpoints", || vports(&h1).len() == 3);
    let trace = |fabric: &Fabric, from: &str, to: &str| -> Result<_, String> {
        let (vnet, from, to) = ("blue".to_owned(), from.to_owned(), to.to_owned());
        let question = trace::Question { vnet, from, to, port: None, limit_ms: 4_000 };
        match fabric.answer(Question::Trace(question))? {
            Answer::Trace(told) => Ok((told.from, told.to, told.verdict)),
            other => panic!("{other:?}"),
        }
    };
    let [first, second] = ["02:00:00:00:00:01", "02:00:00:00:00:02"].map(str::to_owned);
    let told = |to: &str| Ok((first.clone(), to.to_owned(), Verdict::SwitchSilent));
    assert_eq!(trace(&h1, "10.0.0.1", "10.0.0.2"), told("10.0.0.2"));
    assert_eq!(trace(&h1, "web", &second), told(&second));
    assert_eq!(trace(&h1, "h1/web", "h2/db"), told(&second));
    // h3 reveals nothing to a host that is not in the network, and its port is not counted.
    assert_eq!(trace(&h1, "web", "db"), told(&second));
    // Another host's port as the sender: that host is asked, as for a MAC.
    let (from, ..) = trace(&h1, "db", "web").unwrap();
    assert_eq!(from, second);
    let unheard = ("10.0.0.99".to_owned(), second, Verdict::SourceUnknown);
    assert_eq!(trace(&h1, "10.0.0.99", &unheard.1), Ok(unheard));
    let error = trace(&h1, "web", "mail").unwrap_err();
    assert!(error.contains("`mail`") && error.contains("h3: "), "{error}");
    drop((h2, h3));
}

#[test]
fn flows_are_as_many_as_the_fdb_holds() {
    let folder = Folder::new("fabric-flows");
    for chip_flows in [2, 1_000_000] {
        let plan = FabricPlan { chip_flows, ..plan(&folder, 1, 2, 1) };
        let mut config = Config::new(plan.own, 1, plan.fabric, plan.ports_max);
        super::bound(&plan, &mut config);
        assert_eq!(config.flow_limit, chip_flows as usize);
    }
}

#[test]
fn member_mtu_difference_listed_until_resolved() {
    let folder = Folder::new("fabric-agree");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let [h1, mut other] = [1, 2].map(|own| plan(&folder, own, 2, port));
    other.mtus = vec![1400];
    let h1 = start(&folder, &h1);
    let h2 = start(&folder, &other);
    let said = |fabric: &Fabric, host: &str| {
        let all = member(fabric, host).differs;
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    wait_for("h1 knows", || said(&h1, "h2") == ["mtu of blue is 1450 here and 1400 there"]);
    wait_for("h2 knows", || said(&h2, "h1") == ["mtu of blue is 1400 here and 1450 there"]);
    h2.leave();
    let h2 = start(&folder, &plan(&folder, 2, 2, port));
    wait_for("nothing differs", || said(&h1, "h2").is_empty() && member(&h1, "h2").connected);
    drop(h2);
}

#[test]
fn members_list_version_of_each_program() {
    let folder = Folder::new("fabric-versions");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let h1 = start(&folder, &plan(&folder, 1, 2, port));
    let version = |host: &str| member(&h1, host).program;
    let here = Some(env!("CARGO_PKG_VERSION").to_owned());
    assert_eq!((version("h1"), version("h2")), (here.clone(), None));
    let h2 = start(&folder, &plan(&folder, 2, 2, port));
    wait_for("h2 says its version", || version("h2") == here);
    drop(h2);
}
