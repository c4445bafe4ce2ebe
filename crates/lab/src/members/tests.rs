use super::*;
use crate::settings::{Override, Settings, Variant};

#[test]
fn member_file_has_nothing_of_fabric() {
    let scenario = Scenario::load("netvisor-walk").unwrap();
    let plan = Plan::new(&scenario);
    let settings = Settings::new(Variant::WireBound, &Override::default(), None);
    let mut seen = 0;
    for (name, _, config) in plan.daemons(scenario.lab.policy, &settings) {
        let is_member = config.fabric.is_some();
        let text = file(&plan, config).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let of_fabric = ["fabric", "vnet", "peer", "vport", "port"];
        if is_member {
            assert!(of_fabric.iter().all(|key| !table.contains_key(*key)), "{name}: {text}");
            let host = table["host"].as_table().unwrap();
            assert!(KEYS_OF_FABRIC.iter().all(|key| !host.contains_key(*key)), "{name}: {text}");
            assert!(!table["underlay"].as_table().unwrap().contains_key("address"));
            toml::from_str::<LocalConfig>(&text).unwrap();
            seen += 1;
        } else {
            assert!(table.contains_key("vnet"), "{name}: {text}");
        }
    }
    assert_eq!(seen, 2);
}
