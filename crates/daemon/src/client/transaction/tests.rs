//! Tests of answers in words.

use sluice_api::transaction::Progress;

use super::*;

fn committed_at(applied: &[&str], behind: &[&str]) -> Committed {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Committed {
        revision: 7,
        changes: vec!["network blue is made: VNI 100".to_owned()],
        applied: names(applied),
        behind: names(behind),
        confirm_within_s: None,
        at_restart: Vec::new(),
        not_in_force: None,
    }
}

#[test]
fn commit_names_members_that_lag() {
    let all = render(&Answer::Committed(committed_at(&["h1", "h2"], &[])));
    assert_eq!(all, "network blue is made: VNI 100\nrevision 7: at all 2 members\n");
    let some = render(&Answer::Committed(committed_at(&["h1"], &["h2", "h3"])));
    assert!(some.ends_with("revision 7: at h1; not yet at h2, h3\n"), "{some}");
    let unconfirmed = Committed { confirm_within_s: Some(300), ..committed_at(&["h1"], &[]) };
    assert!(render(&Answer::Committed(unconfirmed)).contains("undone in 300 s unless"));
}

#[test]
fn log_shows_originator_time_and_inverse() {
    let row = LogRow {
        revision: 3,
        by: "h2".to_owned(),
        at_ms: 1_767_225_600_000,
        comment: "for the shop".to_owned(),
        changes: vec!["moves_max = 9".to_owned()],
        inverse: vec!["moves_max = its default".to_owned()],
        state: "committed".to_owned(),
        why: String::new(),
    };
    assert_eq!(
        render(&Answer::Log(vec![row])),
        "3  2026-01-01T00:00:00.000Z  by h2  # for the shop\n    moves_max = 9\n    undone by: \
         moves_max = its default\n"
    );
}

#[test]
fn status_without_quorum_says_what_is_missing() {
    let member = Progress {
        name: "h2".to_owned(),
        id: 2,
        vtep: [10, 0, 0, 2].into(),
        part: "voter".to_owned(),
        connected: false,
        revision: None,
        lag: None,
    };
    let text = render(&Answer::Status(Box::new(Status {
        fabric: "prod".to_owned(),
        host: "h1".to_owned(),
        revision: 4,
        leader: None,
        writable: false,
        why: "1 of 3 voters is reachable; missing: h2, h3".to_owned(),
        members: vec![member],
        unconfirmed: None,
        aside: Vec::new(),
        at_restart: Vec::new(),
        not_in_force: Some("device `up0` is missing".to_owned()),
        evicted: None,
    })));
    assert!(text.contains("tries again until it is: device `up0` is missing\n"), "{text}");
    assert!(text.contains("no change can be committed: 1 of 3 voters"), "{text}");
    assert!(text.contains('?'), "{text}");
}

#[test]
fn configuration_not_in_force_is_noted_as_comment() {
    let config = FabricConfig::new("prod").unwrap();
    let text = text_of(4, &config, Some("it is wrong\nvnet[0].mtu: too large"));
    assert!(text.contains("# not in force at this host"), "{text}");
    assert!(text.contains("\n#   vnet[0].mtu: too large\n"), "{text}");
    assert!(Editable::read(&text).is_ok(), "{text}");
    assert!(!text_of(4, &config, None).contains("in force"));
}
