use clap::Parser;
use sluice_api::placement::{HostOverride, Match, Policy, Stamped};

use sluice_base::FlowMatch;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn arguments(words: &str) -> Arguments {
    Line::parse_from(format!("steer eth0 {words}").split_whitespace()).arguments
}

fn kept(policy: Policy) -> PolicyFile {
    let stamp = PolicyVersion { version: 3, by: 2, at_ms: 0 };
    PolicyFile { host: "a".into(), stamped: Stamped { stamp, policy }, held: None }
}

#[test]
fn policy_overrides_arguments_unset_fields_use_arguments() {
    let arguments = arguments("--mode on-the-fly --high 7 --high-flow vni=5,ip=10.0.0.1");
    let own = EffectivePolicy::new(&arguments, None, &[0, 1]);
    assert_eq!(
        (own.stamp, own.mode, own.has_high()),
        (PolicyVersion::default(), Mode::OnTheFly, true)
    );
    let empty = EffectivePolicy::new(&arguments, Some(&kept(Policy::default())), &[0, 1]);
    assert_eq!(
        empty,
        EffectivePolicy { stamp: PolicyVersion { version: 3, by: 2, at_ms: 0 }, ..own }
    );
    let one: FlowMatch = "proto=tcp,port=443".parse().unwrap();
    let policy = Policy {
        mode: Some(Mode::Rss),
        excluded_cpus: [1, 7].into(),
        high: vec![Match(one)],
        ..Policy::default()
    };
    let all = EffectivePolicy::new(&arguments, Some(&kept(policy)), &[0, 1]);
    assert_eq!((all.mode, all.excluded), (Mode::Rss, [1].into()));
    assert_eq!(all.rules, Rules { networks: false, matches: vec![one] });
    assert!(all.notes.is_empty());
}

#[test]
fn host_override_wins_excluding_every_core_is_ignored() {
    let own = HostOverride { mode: Some(Mode::RssPlusPlus), excluded_cpus: Some([0, 1].into()) };
    let policy = Policy {
        mode: Some(Mode::Predetermined),
        excluded_cpus: [2].into(),
        hosts: [("a".to_owned(), own)].into(),
        ..Policy::default()
    };
    let kept = kept(policy);
    let force = EffectivePolicy::new(&arguments(""), Some(&kept), &[0, 1, 2]);
    assert_eq!((force.mode, force.excluded), (Mode::RssPlusPlus, [0, 1].into()));
    let force = EffectivePolicy::new(&arguments("--cores 0,1"), Some(&kept), &[0, 1]);
    assert!(force.excluded.is_empty());
    assert!(force.notes[0].contains("excludes every core"), "{:?}", force.notes);
}
