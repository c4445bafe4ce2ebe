use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::mpsc::Receiver;

use sluice_api::fabric::{Answer, Question, VportPolicy, VportRow};
use sluice_base::{HostId, Mac, PortId, VnetId, Vni};

use super::*;
use crate::config::{Bound, LocalPort};
use crate::fabric::tests::{Folder, certificates, free_port, member, plan, start_at, wait_for};
use crate::fabric::wall;

fn start(folder: &Path, plan: &FabricPlan) -> Fabric {
    start_at(wall(), folder, plan)
}

fn vports(fabric: &Fabric) -> Vec<VportRow> {
    match fabric.answer(Question::Vports { vnet: None }) {
        Ok(Answer::Vports(rows)) => rows,
        other => panic!("{other:?}"),
    }
}

/// Returns the hosts that a host knows endpoints of, without doubles.
fn owners(fabric: &Fabric) -> Vec<String> {
    let mut owners: Vec<String> = vports(fabric).into_iter().map(|row| row.host).collect();
    owners.sort();
    owners.dedup();
    owners
}

fn members(fabric: &Fabric) -> Vec<String> {
    match fabric.answer(Question::Members) {
        Ok(Answer::Members(rows)) => rows.into_iter().map(|row| row.host).collect(),
        other => panic!("{other:?}"),
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

/// Returns the names and contents of the events so far.
fn told(events: &Receiver<Answer>) -> Vec<(String, String)> {
    let rows = events.try_iter().filter_map(|line| match line {
        Answer::Event(row) => Some((row.event, row.what)),
        _ => None,
    });
    rows.map(|(event, what)| (event.to_string(), what)).collect()
}

/// Checks that no session ended, except for those that hung: a busy machine makes them.
fn sessions_stayed<'a>(told: impl Iterator<Item = &'a (String, String)> + Clone) {
    let count = |event| told.clone().filter(|told| told.0 == event).count();
    let (down, hung) = (count("session-down"), count("session-hung"));
    assert!(down <= hung, "{:?}", told.collect::<Vec<_>>());
}

/// Adds a bound port in a network.
fn add_port(fabric: &Fabric, id: u16, (vnet, vni): (u16, u32), mac: u8) {
    let port = LocalPort {
        name: format!("p{id}"),
        vnet: VnetId(vnet),
        is_bound: true,
        policy: VportPolicy::default(),
        allowed: Vec::new(),
        tap: None,
    };
    let bound = Bound {
        port: PortId(id),
        vni: Vni::new(vni).unwrap(),
        mac: Mac([2, 0, 0, 0, 1, mac]),
        ips: vec![IpAddr::from([10, 0, 1, mac])],
        taken: 0,
    };
    fabric.add_port(PortId(id), port, Some(bound)).unwrap();
}

#[test]
fn member_added_and_evicted_sessions_of_others_stay() {
    let folder = Folder::new("fabric-grow");
    certificates(&folder, &["h1", "h2", "h3"]);
    let port = free_port();
    let at = |own, hosts| plan(&folder, own, hosts, port);
    let h1 = start(&folder, &at(1, 1));
    assert_eq!((owners(&h1), members(&h1)), (names(&["h1"]), names(&["h1"])), "a fabric of one");
    let h2 = start(&folder, &at(2, 2));
    h1.reconfigure(&at(1, 2)).unwrap();
    for fabric in [&h1, &h2] {
        wait_for("two know each other", || owners(fabric) == ["h1", "h2"]);
    }
    wait_for("it is alive", || member(&h1, "h2").health == "alive");
    let events = [&h1, &h2].map(Fabric::watch);

    // Claims come and go meanwhile.
    add_port(&h1, 2, (0, 42), 1);
    let h3 = start(&folder, &at(3, 3));
    h1.reconfigure(&at(1, 3)).unwrap();
    h1.del_port("p2").unwrap();
    h2.reconfigure(&at(2, 3)).unwrap();
    add_port(&h1, 2, (0, 42), 2);
    for fabric in [&h1, &h2, &h3] {
        wait_for("three know each other", || owners(fabric) == ["h1", "h2", "h3"]);
        wait_for("no claim is too many", || vports(fabric).len() == 4);
    }
    for fabric in [&h1, &h2] {
        wait_for("it is alive", || member(fabric, "h3").health == "alive");
    }
    let before = events.each_ref().map(told);

    // It is evicted at one host after the other.
    h1.reconfigure(&at(1, 2)).unwrap();
    add_port(&h1, 3, (0, 42), 3);
    h2.reconfigure(&at(2, 2)).unwrap();
    for fabric in [&h1, &h2] {
        wait_for("its claims are gone", || owners(fabric) == ["h1", "h2"]);
        wait_for("no claim is too few", || vports(fabric).len() == 4);
        assert!(!members(fabric).contains(&"h3".to_owned()));
    }
    wait_for("it hears of it", || !member(&h3, "h1").connected && !member(&h3, "h2").connected);
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(!member(&h3, "h1").connected && !member(&h3, "h2").connected, "it is not let in");
    let after = events.each_ref().map(told);
    for told in before.iter().chain(&after) {
        let of_others: Vec<_> = told.iter().filter(|told| !told.1.contains("h3")).collect();
        sessions_stayed(of_others.iter().copied());
        let mut withdrawn = of_others.iter().filter(|told| told.0 == "vport-withdrawn");
        assert!(withdrawn.all(|told| told.1.contains("02:00:00:00:01")), "{of_others:?}");
    }
    for told in after {
        assert!(told.iter().any(|told| told.0 == "session-down" && told.1 == "h3"), "{told:?}");
        let of_evicted = told.iter().filter(|told| ["h3", "host 3"].contains(&told.1.as_str()));
        let mut events = of_evicted.map(|told| told.0.as_str());
        assert!(events.all(|event| event != "session-up" && event != "host-up"), "{told:?}");
    }

    h1.reconfigure(&at(1, 3)).unwrap();
    h2.reconfigure(&at(2, 3)).unwrap();
    for fabric in [&h1, &h2, &h3] {
        wait_for("it is back", || owners(fabric) == ["h1", "h2", "h3"]);
        wait_for("nothing is stale", || vports(fabric).iter().all(|row| row.state != "stale"));
    }
}

#[test]
fn network_added_carries_claims_removed_forgets_them() {
    let folder = Folder::new("fabric-networks");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let blue = |own| plan(&folder, own, 2, port);
    let both = |own| {
        let (mut plan, green) = (blue(own), Vni::new(43).unwrap());
        plan.vnets.push((green, "green".to_owned()));
        plan.vnet_ids.push(VnetId(1));
        plan.mtus.push(1450);
        plan.hosts.iter_mut().for_each(|host| host.vnets.push(green));
        plan
    };
    let [h1, h2] = [1, 2].map(|own| start(&folder, &blue(own)));
    for fabric in [&h1, &h2] {
        wait_for("two know each other", || owners(fabric) == ["h1", "h2"]);
    }
    let events = h2.watch();
    h1.reconfigure(&both(1)).unwrap();
    add_port(&h1, 2, (1, 43), 1);
    // The claim is there before its network.
    wait_for("it is set aside", || told(&events).iter().any(|told| told.0 == "out-of-bounds"));
    assert_eq!(vports(&h2).len(), 2);
    h2.reconfigure(&both(2)).unwrap();
    let green =
        |fabric: &Fabric| fabric.answer(Question::Vports { vnet: Some("green".to_owned()) });
    let count = |fabric: &Fabric| match green(fabric) {
        Ok(Answer::Vports(rows)) => rows.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!((count(&h1), count(&h2)), (1, 1));

    let error = h1.reconfigure(&blue(1)).unwrap_err();
    assert!(error.contains("p2"), "{error}");
    assert_eq!(count(&h1), 1, "nothing has changed");
    // It goes first where it is not in use.
    h2.reconfigure(&blue(2)).unwrap();
    assert!(green(&h2).is_err());
    assert_eq!(vports(&h2).len(), 2);
    h1.del_port("p2").unwrap();
    h1.reconfigure(&blue(1)).unwrap();
    assert_eq!((vports(&h1).len(), vports(&h2).len()), (2, 2));
    assert!(member(&h1, "h2").connected && member(&h2, "h1").connected);
    sessions_stayed(told(&events).iter());
}

#[test]
fn plan_with_fixed_setting_or_contradiction_is_refused() {
    let folder = Folder::new("fabric-fixed");
    certificates(&folder, &["h1", "h2"]);
    let old = plan(&folder, 1, 2, free_port());
    let h1 = start(&folder, &old);
    let refused = |change: fn(&mut FabricPlan)| {
        let mut plan = old.clone();
        plan.hosts.clear();
        change(&mut plan);
        let error = h1.reconfigure(&plan).unwrap_err();
        assert_eq!(members(&h1), ["h1", "h2"], "{error}");
        error
    };
    let second = |plan: &mut FabricPlan| {
        let mut host = HostPlan {
            host: HostId(2),
            name: "h2".to_owned(),
            vtep: plan.vtep,
            at: None,
            vnets: Vec::new(),
        };
        plan.hosts.push(host.clone());
        host.host = HostId(3);
        plan.hosts.push(host);
    };
    assert!(refused(|plan| plan.listen.set_port(1)).contains("address"));
    assert!(refused(|plan| plan.own = HostId(9)).contains("number"));
    assert!(refused(|plan| plan.name.push('x')).contains("name"));
    assert!(refused(|plan| plan.workers.count = 3).contains("workers"));
    let twice = refused(|plan| {
        plan.vnets.push(plan.vnets[0].clone());
        plan.vnet_ids.push(VnetId(1));
    });
    assert!(twice.contains("VNI 42"), "{twice}");
    assert!(refused(|plan| plan.vnets.clear()).contains("port c"));
    assert!(refused(second).contains("name h2"));
    h1.reconfigure(&FabricPlan { hosts: Vec::new(), ..old }).unwrap();
    assert_eq!(members(&h1), ["h1"]);
}

#[test]
fn member_at_another_address_is_connected_again() {
    let folder = Folder::new("fabric-address");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let mut plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let h1 = start(&folder, &plans[0]);
    let h2 = start(&folder, &plans[1]);
    wait_for("two know each other", || owners(&h1) == ["h1", "h2"]);
    h2.leave();
    let at = SocketAddr::new(IpAddr::from([127, 0, 9, 200]), port);
    plans[1].listen = at;
    plans[0].hosts[0].at = Some(at);
    let h2 = start(&folder, &plans[1]);
    assert!(!member(&h1, "h2").connected);
    h1.reconfigure(&plans[0]).unwrap();
    assert_eq!(owners(&h1), ["h1", "h2"], "its claims stay");
    wait_for("it is connected", || member(&h1, "h2").connected && member(&h2, "h1").connected);
    wait_for("its datagrams are heard", || member(&h1, "h2").health == "alive");
    wait_for("its claims are live", || vports(&h1).iter().all(|row| row.state != "stale"));
}

#[test]
fn claims_quota_raised_live_lets_claims_in() {
    let folder = Folder::new("fabric-quota");
    certificates(&folder, &["h1", "h2"]);
    let port = free_port();
    let [small, plan2] = [1, 2].map(|own| plan(&folder, own, 2, port));
    let small = FabricPlan { claims_per_host: 2, ..small };
    let (h1, h2) = (start(&folder, &small), start(&folder, &plan2));
    wait_for("two know each other", || owners(&h1) == ["h1", "h2"]);
    let events = h1.watch();
    add_port(&h2, 2, (0, 42), 1);
    add_port(&h2, 3, (0, 42), 2);
    wait_for("one is too many", || told(&events).iter().any(|told| told.0 == "out-of-bounds"));
    assert_eq!(vports(&h1).len(), 3);
    h1.reconfigure(&FabricPlan { claims_per_host: 3, ..small }).unwrap();
    wait_for("it is taken", || vports(&h1).len() == 4);
}

#[test]
fn policy_of_port_changes_without_withdrawal() {
    let folder = Folder::new("fabric-policy");
    certificates(&folder, &["h1"]);
    let port = free_port();
    let fabric = start(&folder, &plan(&folder, 1, 1, port));
    add_port(&fabric, 2, (0, 42), 1);
    let events = fabric.watch();
    let before = vports(&fabric).into_iter().find(|row| row.port == "p2").unwrap();
    let local = LocalPort {
        name: "p2".to_owned(),
        vnet: VnetId(0),
        is_bound: true,
        policy: VportPolicy { service_mbps: Some(50), ..VportPolicy::default() },
        allowed: vec![sluice_base::IpPrefix::new(IpAddr::from([10, 7, 7, 0]), 24).unwrap()],
        tap: None,
    };
    let bound = Bound {
        port: PortId(2),
        vni: Vni::new(42).unwrap(),
        mac: Mac([2, 0, 0, 0, 1, 1]),
        ips: vec![IpAddr::from([10, 0, 1, 1])],
        taken: 0,
    };
    fabric.add_port(PortId(2), local, Some(bound)).unwrap();
    let after = vports(&fabric).into_iter().find(|row| row.port == "p2").unwrap();
    assert_eq!(after.policy.unwrap().service_mbps, Some(50));
    assert_eq!((&after.mac, after.moves), (&before.mac, before.moves));
    let told = told(&events);
    assert!(told.iter().all(|(_, what)| !what.contains(&after.mac)), "its claim stays: {told:?}");
}
