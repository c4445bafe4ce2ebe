use sluice_control::commit::Outcome;

use super::*;
use crate::telemetry::counts;

const ID: TxnId = TxnId { host: HostId(1), incarnation: 1, number: 1 };

fn done() -> Transaction {
    Transaction {
        revision: 7,
        id: ID,
        undoes: false,
        author: "h1".to_owned(),
        time_ms: 0,
        comment: "for the shop".to_owned(),
        votes: Vec::new(),
        change: Vec::new(),
        inverse: Vec::new(),
        outcome: Outcome::Applied,
    }
}

fn names(trace: &Trace) -> Vec<(&str, u64, u64)> {
    trace.spans.iter().map(|span| (&*span.name, span.began.0, span.ended.0)).collect()
}

/// Returns a tracer, and what it hands over.
fn tracer() -> (Transactions, std::sync::mpsc::Receiver<Trace>) {
    let (exporter, traces) = Exporter::channel();
    (Transactions { exporter, open: Vec::new(), reported: BTreeMap::new() }, traces)
}

#[test]
fn trace_has_phases_and_members() {
    let (mut tracer, traces) = tracer();
    let ms = Nanos::from_millis;
    for (at, phase) in [(1, OwnPhase::Reserves), (3, OwnPhase::Reserves), (5, OwnPhase::PreCommits)]
    {
        tracer.phase(ms(at), Some((ID, phase)));
    }
    tracer.phase(ms(9), None);
    // h2 has reported before this host knows that it is committed.
    tracer.applied(ms(9), "h2".to_owned(), 7);
    tracer.committed(ms(10), &done(), ["h2", "h3"].map(str::to_owned).into());
    tracer.applied(ms(12), "h3".to_owned(), 6);
    tracer.in_effect(ms(13), 7, None);
    tracer.phase(ms(14), None);
    assert!(traces.try_recv().is_err(), "h3 has not applied it");
    tracer.applied(ms(20), "h3".to_owned(), 8);
    tracer.phase(ms(20), None);
    let trace = traces.try_recv().unwrap();
    let at = |ms: u64| ms * 1_000_000;
    let expected = [
        ("reserve", at(1), at(5)),
        ("pre-commit", at(5), at(9)),
        ("apply h2", at(10), at(10)),
        ("in force", at(10), at(13)),
        ("apply h3", at(10), at(20)),
    ];
    assert_eq!(names(&trace), expected);
    assert_eq!((trace.root.began, trace.root.ended), (ms(1), ms(20)));
    assert!(trace.attributes.contains(&("sluice.revision", "7".to_owned())));
    assert_eq!(trace.root.failed, None);
}

#[test]
fn late_member_and_refusal_end_traces() {
    let (mut tracer, traces) = tracer();
    let ms = Nanos::from_millis;
    tracer.phase(ms(1), Some((ID, OwnPhase::Reserves)));
    tracer.phase(ms(2), None);
    tracer.phase(ms(900), None);
    assert!(traces.try_recv().is_err(), "its entry of the log may come");
    tracer.phase(ms(1_100), None);
    let trace = traces.try_recv().unwrap();
    assert!(trace.root.failed.is_some());

    tracer.phase(ms(2_000), Some((ID, OwnPhase::PreCommits)));
    tracer.committed(ms(2_001), &done(), ["h2".to_owned()].into());
    tracer.in_effect(ms(2_002), 7, Some("no room"));
    tracer.phase(ms(4_100), None);
    let trace = traces.try_recv().unwrap();
    assert_eq!(trace.spans.last().unwrap().failed.as_deref(), Some("no room"));
    assert!(names(&trace).iter().all(|(name, ..)| !name.starts_with("apply")));
    assert!(tracer.open.is_empty());
    // Whoever has no room counts: no trace is lost unseen.
    let before = counts().1;
    drop(traces);
    tracer.phase(ms(5_000), Some((ID, OwnPhase::Aborts)));
    tracer.phase(ms(5_001), None);
    tracer.phase(ms(7_000), None);
    assert!(counts().1 > before);
}
