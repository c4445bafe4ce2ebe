use super::*;

#[test]
fn segment_bytes_at_mtu_1450_is_1398() {
    assert_eq!(segment_bytes(1450), 1398);
}

#[test]
fn jobs_and_reports_survive_their_text() {
    let job = Job::Ping { to: Ipv4Addr::new(10, 99, 0, 1), count: 3 };
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(text, r#"{"job":"ping","to":"10.99.0.1","count":3}"#);
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    let report = Report::Cell { fct_ns: vec![1, 2], broken: None };
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}
