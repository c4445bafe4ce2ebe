use super::*;

#[test]
fn machine_without_host_is_looked_at() {
    let dir = std::env::temp_dir().join(format!("sluice-sysdump-{}-none", std::process::id()));
    let found = Found::find(&HostSelector::RunDir(dir)).unwrap();
    assert!(found.silent.unwrap().starts_with("no process of it runs in "));
    assert!(found.control.is_none() && found.namespaces.is_empty());
}

#[test]
fn namespaces_found_where_ports_say() {
    let text = r#"{"ports":[{"open":true,"port":{"place":{"netns":"c1"},"vnet":"blue"}},
                   {"port":{"place":{"pid":7}}},{"port":{"place":"host"}}]}"#;
    let mut places = BTreeSet::new();
    places_of(&serde_json::from_str(text).unwrap(), &mut places);
    let named: Vec<String> = places.iter().map(|path| word(path)).collect();
    assert_eq!(named, ["proc-7-ns-net", "c1"]);
}
