use super::*;

#[test]
fn summary_counts_proved_and_recorded_faults() {
    let choices = [
        Choice::Same,
        Choice::Prove(Why::Drawn),
        Choice::Older,
        Choice::Prove(Why::New),
        Choice::Same,
        Choice::Prove(Why::Drawn),
    ];
    assert_eq!(
        summary(&choices),
        "3 proved now (1 new, 2 drawn), 3 by record (1 of them of older content)"
    );
    assert_eq!(
        summary(&[Choice::Prove(Why::Asked), Choice::NotAsked]),
        "1 proved now (1 asked for)"
    );
    assert_eq!(summary(&[Choice::Same]), "0 proved now, 1 by record");
}

#[test]
fn packages_beside_test_add_no_program() {
    let package = |name: &str, targets: &[(&str, &str)]| Package {
        name: name.to_owned(),
        manifest_path: "Cargo.toml".into(),
        dependencies: Vec::new(),
        targets: targets
            .iter()
            .map(|&(kind, name)| workspace::BuildTarget {
                name: name.to_owned(),
                kind: vec![kind.to_owned()],
            })
            .collect(),
    };
    let metadata = Metadata {
        packages: vec![
            package("with-lib", &[("lib", "with_lib")]),
            package("tool", &[("bin", "tool"), ("test", "other")]),
            package("same-name", &[("bin", "same"), ("test", "swarm")]),
        ],
        target_directory: "target".into(),
    };
    let header = "# fault: x\n# caught by: cargo test -p with-lib --test swarm it\n";
    let fault = fault::parse(Path::new("planted/a.patch"), header).unwrap();
    assert_eq!(beside(&metadata, &[&fault]), ["tool"]);
    assert_eq!(beside(&metadata, &[]), ["tool", "same-name"]);
}

#[test]
fn what_several_faults_change_is_built_incrementally() {
    let package = |name: &str| Package {
        name: name.to_owned(),
        manifest_path: workspace::root().join(name).join("Cargo.toml"),
        dependencies: Vec::new(),
        targets: Vec::new(),
    };
    let metadata = Metadata {
        packages: ["a", "b", "c"].map(package).into(),
        target_directory: "target".into(),
    };
    let fault = |target: &str| {
        let text = format!(
            "# fault: x\n# caught by: cargo test -p a {target} it\n--- a/b/x.rs\n+++ b/b/x.rs\n\
             @@ -1 +1 @@\n-a\n+b\n"
        );
        fault::parse(Path::new("planted/a.patch"), &text).unwrap()
    };
    let (unit, whole) = (fault("--lib"), fault("--test swarm"));
    let names = |faults: &[&Fault]| {
        incremental(&metadata, faults).into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(&[&unit]), "a");
    assert_eq!(names(&[&unit, &unit]), "a b");
    assert_eq!(names(&[&whole]), "");
    assert_eq!(names(&[&whole, &whole]), "a b");
}
