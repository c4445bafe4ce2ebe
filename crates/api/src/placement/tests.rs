use super::{
    CpuStatus, EffectivePolicy, HIGH_MAX, HostOverride, LIST_MAX, LOAD_PERCENT_MAX, Match, Mode,
    PlaceStatus, Policy, PolicyVersion, Status,
};
use crate::foreign::TEXT_MAX;

fn read(text: &str) -> Policy {
    toml::from_str(text).unwrap()
}

const FULL: &str = r#"
mode = "adaptive"
excluded_cpus = [0, 4]
high = ["vni=5000", "vni=100,ip=10.0.0.0/24,proto=tcp,port=443"]

[hosts.h2]
excluded_cpus = []
mode = "rss"
"#;

#[test]
fn a_host_may_differ() {
    let policy = read(FULL);
    let high: Vec<_> = ["vni=5000", "vni=100,ip=10.0.0.0/24,proto=tcp,port=443"]
        .map(|m| m.parse().unwrap())
        .into();
    let h1 = EffectivePolicy {
        mode: Some(Mode::Adaptive),
        excluded_cpus: [0, 4].into(),
        high: high.clone(),
    };
    let h2 = EffectivePolicy { mode: Some(Mode::Rss), excluded_cpus: [].into(), high };
    assert_eq!((policy.on("h1"), policy.on("h2")), (h1, h2));
    assert_eq!(Policy::default().on("h1"), EffectivePolicy::default());
}

#[test]
fn a_policy_goes_through_json_as_it_is() {
    let policy = read(FULL);
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    assert_eq!(serde_json::to_string(&Policy::default()).unwrap(), "{}");
}

#[test]
fn what_is_unknown_or_wrong_is_refused() {
    for (text, says) in [
        ("modus = \"rss\"", "unknown field `modus`"),
        ("mode = \"fast\"", "unknown variant `fast`"),
        ("high = [\"vnet=blue\"]", "`vnet` is none of"),
        ("[hosts.h1]\nhigh = []", "unknown field `high`"),
    ] {
        let error = toml::from_str::<Policy>(text).unwrap_err().to_string();
        assert!(error.contains(says), "{text}: {error}");
    }
}

#[test]
fn too_much_is_refused() {
    let one = Match("vni=1".parse().unwrap());
    let mut policy = Policy { high: vec![one; HIGH_MAX], ..Policy::default() };
    assert_eq!(policy.check(), Ok(()));
    policy.high.push(one);
    assert!(policy.check().unwrap_err().contains("33 matches"));
    policy = Policy { excluded_cpus: [4096].into(), ..Policy::default() };
    assert!(policy.check().unwrap_err().contains("CPU 4096"));
    let own = HostOverride { excluded_cpus: Some([9999].into()), mode: None };
    policy = Policy { hosts: [("h1".to_owned(), own.clone())].into(), ..Policy::default() };
    assert!(policy.check().unwrap_err().contains("CPU 9999"));
    let many = (0..65).map(|at| (format!("h{at}"), HostOverride::default()));
    policy = Policy { hosts: many.collect(), ..Policy::default() };
    assert!(policy.check().unwrap_err().contains("65 hosts"));
    let all = HostOverride { excluded_cpus: Some((0..4096).collect()), mode: None };
    policy = Policy { hosts: [("h1".to_owned(), all)].into(), ..Policy::default() };
    assert!(policy.check().unwrap_err().contains("bytes as JSON"));
}

#[test]
fn of_two_policies_one_is_greater() {
    let stamp = |version, by, at_ms| PolicyVersion { version, by, at_ms };
    assert!(stamp(2, 1, 0) > stamp(1, 9, 7) && stamp(1, 9, 0) > stamp(1, 1, 7));
    assert!(stamp(1, 1, 2) > stamp(1, 1, 1) && stamp(1, 0, 0) > PolicyVersion::default());
}

#[test]
fn words_of_another_host_control_no_screen() {
    let bad = "\u{1b}[2J".repeat(200);
    let place = PlaceStatus {
        name: bad.clone(),
        kind: bad.clone(),
        mode: bad.clone(),
        cpus: vec![CpuStatus { load_percent: 1e300, ..CpuStatus::default() }; 1_000],
        ..PlaceStatus::default()
    };
    let (host, notes) = (bad.clone(), vec![bad; 1_000]);
    let mut status = Status { host, notes, places: vec![place; 1_000], ..Status::default() };
    status.clean();
    let text = serde_json::to_string(&status).unwrap();
    assert!(!text.contains("\\u001b"), "{text}");
    assert_eq!((status.places.len(), status.notes.len()), (LIST_MAX, LIST_MAX));
    assert!(status.notes[0].chars().count() == TEXT_MAX && status.places[0].cpus.len() == LIST_MAX);
    let load = status.places[0].cpus[0].load_percent;
    assert!((load - LOAD_PERCENT_MAX).abs() < 1.0, "{load}");
}

#[test]
fn unknown_rule_error_names_all_rules() {
    let error = toml::from_str::<Policy>("mode = \"best\"").unwrap_err().to_string();
    let expected = "unknown variant `best`, expected one of `rss`, `rss++`, `predetermined`, \
                    `on-the-fly`, `adaptive`";
    assert!(error.contains(expected), "{error}");
}
