use sluice_api::config::Policy;
use sluice_api::show::{
    Audit, AuditRow, Balance, Body, BucketsRow, DropRow, LossRow, PlacementRow, PortRow, VERSION,
};

use super::*;

fn answer(body: Body) -> Answer {
    let host = "h1".to_owned();
    let (policy, outside, guard) = (Policy::ZZ, Vec::new(), Vec::new());
    Answer { version: VERSION, host, policy, at_ns: 1_500_000_000, outside, guard, body }
}

#[test]
fn drops_are_a_row_each() {
    let row = DropRow {
        port: "c1".into(),
        priority: 3,
        reason: "output_full".into(),
        class: "congestion".into(),
        frames: 12,
        bytes: 3400,
    };
    let text = tables::render(&answer(Body::Drops(vec![row])));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "h1  policy ZZ  1.5 s");
    let words: Vec<&str> = lines[2].split_whitespace().collect();
    assert_eq!(words, ["c1", "output_full", "congestion", "3", "12", "3400"]);
    let text = tables::render(&answer(Body::Drops(Vec::new())));
    assert_eq!(text, "h1  policy ZZ  1.5 s\nnothing was dropped\n");
}

#[test]
fn no_drops_claim_suppressed_by_kernel_losses() {
    let (port, counter) = ("c1".to_owned(), "ring.drops".to_owned());
    let lost = LossRow { port, counter, frames: 12, ago_ns: 3_049_000_000 };
    let audit = Audit { closed: true, rows: Vec::new() };
    for body in [Body::Drops(Vec::new()), Body::Audit(audit)] {
        let text = tables::render(&Answer { outside: vec![lost.clone()], ..answer(body) });
        assert!(!text.contains("nothing was dropped"), "{text}");
        let at = text.find("lost outside the switch:\n").expect("a second table");
        let words: Vec<&str> = text[at..].lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(words, ["c1", "ring.drops", "12", "3.0", "s"]);
    }
}

#[test]
fn ports_with_equal_lossless_verdict_share_row() {
    let port = |name: &str, lossless: &str| PortRow {
        port: name.into(),
        lossless: lossless.into(),
        kernel: [("device.tx_dropped".to_owned(), u64::from(name == "c"))].into(),
        ..PortRow::default()
    };
    let rows = vec![port("a", "yes"), port("b", "no, needs rest"), port("c", "yes")];
    let text = tables::render(&answer(Body::Ports(rows)));
    assert!(text.lines().any(|line| line.split_whitespace().eq(["a", "c", "yes"])), "{text}");
    let counter = ["c", "device.tx_dropped", "1"];
    assert!(text.lines().any(|line| line.split_whitespace().eq(counter)), "{text}");
    assert!(!text.lines().any(|line| line.contains("device.tx_dropped") && line.contains('0')));
}

#[test]
fn an_audit_that_does_not_close_says_so() {
    let frames = Balance { received: 2, delivered: 1, ..Balance::default() };
    let rows = vec![AuditRow { port: "c1".into(), priority: 0, frames, bytes: Balance::default() }];
    let text = tables::render(&answer(Body::Audit(Audit { closed: false, rows })));
    assert!(text.contains("NOT CLOSED"), "{text}");
}

#[test]
fn buckets_of_high_priority_are_marked() {
    let row = |list: &[u16], high| PlacementRow {
        port: "underlay".into(),
        worker: Some(0),
        cpu: Some(3),
        why: "by hash".into(),
        buckets: Some(BucketsRow { list: list.to_vec(), high, load_percent: 12.5 }),
    };
    let rows = vec![row(&[0, 255], false), row(&[256, 300, 319], true)];
    let text = tables::render(&answer(Body::Placement(rows.clone())));
    let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).skip(1);
    let header = ["port", "worker", "CPU", "buckets", "load", "%", "priority", "why"];
    assert_eq!(lines.next().unwrap(), header);
    assert_eq!(lines.next().unwrap(), ["underlay", "0", "3", "2", "12.5", "by", "hash"]);
    assert_eq!(lines.next().unwrap(), ["underlay", "0", "3", "3", "12.5", "high", "by", "hash"]);
    // Without such flows there is no such column.
    let text = tables::render(&answer(Body::Placement(rows[..1].to_vec())));
    assert!(!text.contains("priority"), "{text}");
}
