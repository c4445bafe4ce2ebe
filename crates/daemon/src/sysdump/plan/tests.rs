use std::collections::BTreeSet;

use super::*;

fn found() -> Found {
    Found {
        name: "h1".to_owned(),
        run_dir: Some("/run/sluice/h1".into()),
        control: Some(1),
        namespaces: vec![("c1".to_owned(), "/run/netns/c1".into())],
        ..Found::default()
    }
}

#[test]
fn every_file_has_name_of_its_own() {
    let items = items(&found());
    let names: BTreeSet<&str> = items.iter().map(|item| &item.path[..]).collect();
    assert_eq!(names.len(), items.len());
    let manifest = manifest(&found(), &items);
    assert!(items.iter().all(|item| manifest.contains(&item.path)));
    assert!(names.contains("show/drops.json") && names.contains("namespace/c1/link.json"));
}

#[test]
fn nothing_changes_what_it_looks_at() {
    for item in items(&found()) {
        if let Source::Ask(request) = item.source {
            let looks = match &*request {
                Request::Transaction(question) => !question.changes(),
                Request::Fabric(question) => !matches!(question, fabric::Question::Thaw { .. }),
                Request::Placement(question) => matches!(question, placement::Question::Show),
                other => matches!(other, Request::Show(_) | Request::Status | Request::Ports),
            };
            assert!(looks, "{request:?}");
        }
    }
}
