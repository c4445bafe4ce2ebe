use std::sync::mpsc::Receiver;

use sluice_base::{Mac, PortId, Vni};
use sluice_control::mobility::Why;
use sluice_control::plane::{Config, Plane};

use super::*;

const OWN: HostId = HostId(1);
const H2: HostId = HostId(2);
const H3: HostId = HostId(3);

struct ByNumber;

impl Names for ByNumber {
    fn vnet(&self, _: Key) -> String {
        "blue".to_owned()
    }

    fn host(&self, host: HostId) -> String {
        format!("h{host}")
    }
}

fn key(n: u64) -> Key {
    Key { vni: Vni::new(9).unwrap(), mac: Mac::from_u64(0x0200_0000_0000 | n) }
}

fn us(number: u64) -> Nanos {
    Nanos(number * 1_000)
}

fn tracer() -> (EndpointTraces, Receiver<Trace>) {
    let (exporter, traces) = Exporter::channel();
    (EndpointTraces::new(Some(exporter)), traces)
}

/// Returns the hosts as a plane shows them, connected, each with its lag.
fn hosts(lags: &[(HostId, u64)]) -> Vec<HostInfo> {
    let mut plane = Plane::new(&Config::new(OWN, 1, [1; 16], 4), 3, Nanos::ZERO);
    for (host, _) in lags {
        plane.add_host(Nanos::ZERO, *host, &[], Kind::Member);
    }
    let rows = plane.hosts().map(|host| {
        let lag = lags.iter().find(|(there, _)| *there == host.host).unwrap().1;
        HostInfo { is_up: true, lag, ..host }
    });
    rows.collect()
}

fn names(trace: &Trace) -> Vec<(&str, u64, u64)> {
    trace.spans.iter().map(|span| (&*span.name, span.began.0, span.ended.0)).collect()
}

#[test]
fn trace_has_learning_install_and_members() {
    let (mut tracer, traces) = tracer();
    tracer.begin_turn(us(10));
    let Key { vni, mac } = key(1);
    tracer.ordered(us(14), &Command::Install { vni, mac, to: Location::Port(PortId(0)) });
    let event = Event::VportMoved { key: key(1), from: H3, to: OWN, why: Why::Learned };
    tracer.happened(us(15), &event, (OWN, 7), hosts(&[(H2, 1), (H3, 1)]).into_iter());
    // Another claim follows: h2 has the first, h3 neither.
    tracer.acknowledged(us(20), 8, hosts(&[(H2, 1), (H3, 2)]).into_iter(), &ByNumber);
    assert!(traces.try_recv().is_err() && tracer.is_open());
    tracer.acknowledged(us(30), 8, hosts(&[(H2, 0), (H3, 0)]).into_iter(), &ByNumber);
    let trace = traces.try_recv().unwrap();
    let expected = [
        ("learn", 10_000, 15_000),
        ("install", 10_000, 14_000),
        ("replicate h2", 15_000, 20_000),
        ("replicate h3", 15_000, 30_000),
    ];
    assert_eq!(names(&trace), expected);
    assert_eq!((trace.root.began, trace.root.ended), (us(10), us(30)));
    let attributes = [
        ("sluice.vnet", "blue".to_owned()),
        ("sluice.mac", "02:00:00:00:00:01".to_owned()),
        ("sluice.moved_from", "h3".to_owned()),
    ];
    assert_eq!(trace.attributes, attributes);
    assert!(!tracer.is_open());
}

#[test]
fn late_member_has_no_span() {
    let (mut tracer, traces) = tracer();
    tracer.begin_turn(us(0));
    let event = Event::VportAdded(key(1), OWN);
    tracer.happened(us(1), &event, (OWN, 1), hosts(&[(H2, 1)]).into_iter());
    let late = tracer.deadline().unwrap();
    assert_eq!(late, us(1).after(REPLICATED_MAX).after(Nanos(1)));
    tracer.acknowledged(late, 1, hosts(&[(H2, 1)]).into_iter(), &ByNumber);
    assert_eq!(names(&traces.try_recv().unwrap()), [("learn", 0, 1_000)]);
    assert_eq!(tracer.deadline(), None);
}

#[test]
fn few_are_open_and_others_cost_nothing() {
    let (mut tracer, _traces) = tracer();
    tracer.begin_turn(us(0));
    for n in 0..40 {
        if tracer.has_room() {
            let event = Event::VportAdded(key(n), OWN);
            tracer.happened(us(1), &event, (OWN, n), hosts(&[(H2, 1)]).into_iter());
        }
    }
    assert_eq!(tracer.open.len(), OPEN_MAX);
    // What another host has is its own to trace.
    tracer.open.clear();
    let event = Event::VportAdded(key(1), H2);
    tracer.happened(us(1), &event, (OWN, 1), hosts(&[(H2, 1)]).into_iter());
    assert!(!tracer.is_open());
    assert!(!EndpointTraces::new(None).has_room());
}
