//! Tests of the configuration as a document.

use sluice_api::fabric_config::{VnetSettings, write_change};

use super::*;

fn document() -> Document {
    let mut config = FabricConfig::new("prod").unwrap();
    let member = shared::Member {
        id: 3,
        seat: 9,
        vtep: [10, 0, 0, 3].into(),
        address: None,
        role: shared::Role::Witness,
    };
    config.apply(&[Operation::AddMember { name: "h3".to_owned(), member }]).unwrap();
    Document::new(config)
}

fn vnet(name: &str, vni: u32) -> Vec<u8> {
    let vnet = VnetSettings::new(vni);
    write_change(&[Operation::CreateVnet { name: name.to_owned(), vnet }])
}

#[test]
fn document_survives_its_snapshot() {
    let mut document = document();
    document.apply(&vnet("blue", 100)).unwrap();
    assert_eq!(Document::restore(&document.snapshot()).unwrap(), document);
    let member = Member { host: HostId(3), seat: Seat::new(9).unwrap(), role: Role::Witness };
    assert_eq!(document.members(), [member]);
}

#[test]
fn newer_format_is_unknown_not_damaged() {
    let mut config = document().0;
    config.format += 1;
    let bytes = serde_json::to_vec(&config).unwrap();
    assert!(matches!(Document::restore(&bytes), Err(Refusal::Unknown(_))));
    assert!(matches!(Document::restore(b"{"), Err(Refusal::Unfit(_))));
    let newer = br#"[{"paint_vnet":{}}]"#;
    assert_eq!(document().check(newer), Err(Refusal::Unknown("paint_vnet".to_owned())));
}

#[test]
fn check_changes_nothing_and_names_keys() {
    let mut document = document();
    let before = document.clone();
    let keys = document.check(&vnet("blue", 100)).unwrap();
    assert_eq!(keys, [b"VNI 100".to_vec(), b"network blue".to_vec()]);
    assert_eq!(document, before);
    let inverse = document.apply(&vnet("blue", 100)).unwrap();
    assert!(matches!(document.check(&vnet("red", 100)), Err(Refusal::Unfit(_))));
    document.apply(&inverse).unwrap();
    assert_eq!(document, before);
}
