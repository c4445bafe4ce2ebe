use sluice_base::{Mac, Nanos, PortId, VnetId};
use sluice_host::inspect::AuditOfPorts;
use sluice_switch::{Destination, TunnelCounters};

use super::*;
use crate::data::worker::Times;

fn shot(at: u64, body: Body) -> Snapshot {
    Snapshot { at: Nanos(at), body }
}

#[test]
fn merged_tunnels_summed_audit_closed_only_if_all() {
    let of = |frames: u32| {
        let mut counters = TunnelCounters::default();
        counters.sent.frames = frames.into();
        counters.queued_frames = frames * 10;
        counters.path_mtu = (frames == 2).then_some(1_400);
        shot(frames.into(), Body::Tunnels(vec![counters]))
    };
    let merged = snapshots(vec![of(1), of(2)]).unwrap();
    let Body::Tunnels(rows) = merged.body else { panic!("tunnels") };
    assert_eq!((rows[0].sent.frames, rows[0].queued_frames), (3, 30));
    assert_eq!(rows[0].path_mtu, Some(1_400), "of the one that learned it");
    assert_eq!(merged.at, Nanos(2), "as of the last one");

    let audit = |closed| shot(0, Body::Audit(AuditOfPorts { rows: Vec::new(), closed }));
    for (first, second) in [(true, true), (true, false), (false, true)] {
        let merged = snapshots(vec![audit(first), audit(second)]).unwrap();
        let Body::Audit(all) = merged.body else { panic!("an audit") };
        assert_eq!(all.closed, first && second);
    }
}

#[test]
fn an_address_that_several_know_stands_there_once() {
    let row = |n: u64| (VnetId(0), Mac::from_u64(n), Destination::Port(PortId(1)));
    let macs = |rows: &[u64]| shot(0, Body::Macs(rows.iter().map(|n| row(*n)).collect()));
    let merged = snapshots(vec![macs(&[3, 1]), macs(&[1, 2])]).unwrap();
    let Body::Macs(rows) = merged.body else { panic!("addresses") };
    assert_eq!(rows, [row(1), row(2), row(3)]);
}

#[test]
fn merged_audit_rows_of_shared_port_summed_closed() {
    let balance =
        |n: u64| Balance { received: 2 * n, delivered: n, resident: n, ..Balance::default() };
    let row = |port: Option<PortId>, n: u64| {
        let (input, priority) = (sluice_base::InputId(0), sluice_base::Priority::ZERO);
        (port, AuditRow { input, priority, frames: balance(n), bytes: balance(n * 100) })
    };
    let shared = Some(PortId(3));
    let audit = |rows| shot(0, Body::Audit(AuditOfPorts { rows, closed: true }));
    let merged =
        snapshots(vec![audit(vec![row(shared, 1), row(None, 2)]), audit(vec![row(shared, 4)])]);
    let Body::Audit(all) = merged.unwrap().body else { panic!("an audit") };
    assert_eq!(all.rows, [row(shared, 5), row(None, 2)]);
    assert!(all.rows.iter().all(|(_, row)| row.frames.is_closed() && row.bytes.is_closed()));
}

#[test]
fn every_worker_has_its_own_times() {
    let times = |turns| shot(0, Body::Worker(vec![Times { turns, ..Times::default() }]));
    let merged = snapshots(vec![times(5), times(7)]).unwrap();
    let Body::Worker(all) = merged.body else { panic!("times") };
    assert_eq!(all.iter().map(|times| times.turns).collect::<Vec<_>>(), [5, 7]);
    assert!(snapshots(Vec::new()).is_none());
}

#[test]
fn merged_lookup_takes_fdb_entry_of_any_worker() {
    let to = Some(Destination::Port(PortId(2)));
    let seen = |fdb| Seen { at: Nanos(0), fdb: vec![fdb], ports: vec![], tunnels: vec![] };
    assert_eq!(looks(vec![seen(None), seen(to), seen(None)]).unwrap().fdb, [to]);
}

#[test]
fn tables_of_several_workers_become_one() {
    let table = |macs, macs_evicted| {
        let state =
            FdbState { macs, macs_max: 9, flows: 1, flows_max: 4, macs_evicted, flows_evicted: 1 };
        shot(0, Body::Fdb(state))
    };
    let merged = snapshots(vec![table(3, 5), table(4, 2)]).unwrap();
    let Body::Fdb(all) = merged.body else { panic!("a table") };
    assert_eq!((all.macs, all.flows, all.macs_max), (4, 1, 9), "both have the same addresses");
    assert_eq!((all.macs_evicted, all.flows_evicted), (7, 2));
}
