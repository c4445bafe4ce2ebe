use sluice_api::config::Policy;
use sluice_api::fabric::{
    CertificateKind, CertificateRow, CertificateState, Certificates, HeldRow,
};
use sluice_api::show::{Isolation, PauseRow};

use super::*;

fn own() -> MemberRow {
    MemberRow {
        host: "h1".to_owned(),
        id: 1,
        vtep: "192.0.2.1".parse().unwrap(),
        kind: "own".to_owned(),
        health: "alive".to_owned(),
        connected: true,
        incarnation: 1,
        vports: 1,
        stale_ns: None,
        sequence: 0,
        lag: 0,
        records_sent: 0,
        records_received: 0,
        talk: [].into(),
        program: None,
        differs: vec![],
        evicted: None,
    }
}

fn holds() -> Holds {
    let isolated = IsolatedRow {
        port: "db".to_owned(),
        endpoints: vec!["blue 02:00:00:00:00:01".to_owned()],
        isolated: vec![3, 5],
        held: vec![3],
        stuck: vec![],
        since_ns: 7,
        senders: vec!["h2".to_owned()],
        cannot_hold: vec![],
    };
    let held = HeldRow {
        vnet: "red".to_owned(),
        mac: "02:00:00:00:00:09".to_owned(),
        host: "h3".to_owned(),
        held: vec![0],
        stuck: vec![0],
        since_ns: 9,
        in_use: true,
    };
    Holds { isolated: vec![isolated], held: vec![held] }
}

fn pauses() -> show::Answer {
    let isolation = Isolation {
        since_ns: 40,
        moved_ns: 30,
        endpoints: vec!["02:00:00:00:00:01".to_owned()],
        waiting: vec!["h2".to_owned(), "web".to_owned()],
        reserve_frames: 1,
        reserve_bytes: 1_000,
        held_at_senders: true,
        stuck: true,
    };
    let row = |port: &str, isolated| PauseRow {
        port: port.to_owned(),
        priority: 3,
        xoff_sent: 0,
        xon_sent: 0,
        received: 0,
        paused_ns: 0,
        paused: false,
        pausing: false,
        isolated,
        sockets: vec![],
    };
    show::Answer {
        version: show::VERSION,
        host: "h1".to_owned(),
        policy: Policy::ZZ,
        at_ns: 100,
        outside: vec![],
        guard: vec![],
        body: Body::Pauses(vec![row("underlay", None), row("db", Some(isolation))]),
    }
}

type Seen<'a> = (&'a str, Option<&'a str>, u8, &'a str, u64, Vec<&'a str>);

fn seen(status: &Status) -> Vec<Seen<'_>> {
    fn row_of(row: &ReceiverRow) -> Seen<'_> {
        let waiting = row.waiting.iter().map(String::as_str).collect();
        (&row.host, row.port.as_deref(), row.priority, &row.state, row.since_ns, waiting)
    }
    status.receivers.iter().map(row_of).collect()
}

#[test]
fn fabric_status_lists_blocked_receivers_with_waiting_senders() {
    let status = composed(vec![own()], &holds(), Ok(pauses()));
    assert_eq!(status.data_silent, None);
    let expected = [
        ("h1", Some("db"), 3, "stuck", 60, vec!["h2", "web"]),
        ("h3", None, 0, "stuck", 9, vec!["h1"]),
    ];
    assert_eq!(seen(&status), expected);
    let text = tables::status(&status);
    for word in ["h1", "db", "02:00:00:00:00:01", "stuck", "h2, web", "red 02:00:00:00:00:09"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn control_says_what_it_knows_while_data_hangs() {
    let status = composed(vec![own()], &holds(), Err("data does not answer".to_owned()));
    let expected = [
        ("h1", Some("db"), 3, "held", 7, vec!["h2"]),
        ("h1", Some("db"), 5, "probation", 7, vec!["h2"]),
        ("h3", None, 0, "stuck", 9, vec!["h1"]),
    ];
    assert_eq!(seen(&status), expected);
    let text = tables::status(&status);
    assert!(text.contains("data does not answer"), "{text}");
}

#[test]
fn host_where_all_take_what_comes_says_so() {
    let none = show::Answer { body: Body::Pauses(vec![]), ..pauses() };
    let status = composed(vec![own()], &Holds::default(), Ok(none));
    assert_eq!(seen(&status), []);
    assert!(tables::status(&status).contains("every receiver takes what comes"));
}

#[test]
fn fabric_status_shows_certificate_days_and_remedy() {
    let row = |kind, host: &str, days_left, state, remedy: Option<&str>| CertificateRow {
        kind,
        host: host.to_owned(),
        from: "2026-01-01".to_owned(),
        until: "2026-11-20".to_owned(),
        days_left,
        state,
        remedy: remedy.map(str::to_owned),
    };
    let rows = vec![
        row(CertificateKind::Own, "h1", -5, CertificateState::Expired, Some("Make another.")),
        row(CertificateKind::Anchor, "", 3_000, CertificateState::Valid, None),
    ];
    let mut status = composed(vec![own()], &holds(), Ok(pauses()));
    let without = tables::status(&status);
    assert!(!without.contains("CERTIFICATE"), "an earlier version tells of none: {without}");
    let refused = Some("host.key is unusable".to_owned());
    status.certificates = Some(Certificates { rows, refused });
    let text = tables::status(&status);
    for line in [
        " CERTIFICATE  KIND    UNTIL       DAYS LEFT  STATE",
        " h1           own     2026-11-20  -5         expired",
        " ca.pem       anchor  2026-11-20  3000       valid",
        "the certificate of h1 ended on 2026-11-20. Make another.",
        "new files are not taken up, and the old ones stay: host.key is unusable",
    ] {
        assert!(text.lines().any(|told| told == line), "{line}: {text}");
    }
}
