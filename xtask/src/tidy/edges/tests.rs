use super::*;

fn found(from: &str, to: &str, kind: Option<&str>, path: bool) -> Vec<String> {
    let dependency = Dependency {
        name: to.to_owned(),
        kind: kind.map(str::to_owned),
        path: path.then(|| "/elsewhere".into()),
    };
    let package = Package {
        name: from.to_owned(),
        manifest_path: "Cargo.toml".into(),
        dependencies: vec![dependency],
        targets: Vec::new(),
    };
    check(&Metadata { packages: vec![package], target_directory: "/target".into() }).problems
}

#[test]
fn edges_of_the_table_pass() {
    assert!(found("sluice-wire", "sluice-base", None, true).is_empty());
    assert!(found("sluice-wire", "zerocopy", None, false).is_empty());
    assert!(found("sluice-ports", "rustix", None, false).is_empty());
}

#[test]
fn upward_or_sideways_crate_dependency_reported() {
    for (from, to) in [
        ("sluice-base", "sluice-wire"),
        ("sluice-ports", "sluice-host"),
        ("sluice-lab", "sluice-daemon"),
        ("sluice", "sluice-switch"),
    ] {
        assert_eq!(found(from, to, None, true).len(), 1, "{from} -> {to}");
        assert_eq!(found(from, to, Some("build"), true).len(), 1, "{from} -> {to}");
    }
}

#[test]
fn tests_may_look_down_but_not_up() {
    assert!(found("sluice-api", "sluice-wire", Some("dev"), true).is_empty());
    assert_eq!(found("sluice-switch", "sluice-ports", Some("dev"), true).len(), 1);
    assert_eq!(found("sluice-lab", "sluice-daemon", Some("dev"), true).len(), 1);
}

#[test]
fn pure_crate_external_dependency_reported_except_dev() {
    assert_eq!(found("sluice-switch", "rand", None, false).len(), 1);
    assert!(found("sluice-switch", "proptest", Some("dev"), false).is_empty());
}

#[test]
fn a_new_crate_must_be_in_the_table() {
    assert!(found("sluice-new", "serde", None, false)[0].contains("give it a layer"));
}

#[test]
fn the_table_itself_points_down() {
    for rule in RULES {
        for to in rule.may_use {
            let other = RULES.iter().find(|other| other.name == *to).expect("the crate has a rule");
            assert!(other.layer < rule.layer, "{} -> {to}", rule.name);
        }
    }
}
