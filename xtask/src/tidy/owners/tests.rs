use super::*;
use crate::rust_source::RustSource;

fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let files: Vec<RustFile> = files
        .iter()
        .map(|(path, text)| RustFile {
            path: Path::new(FOLDER).join(path),
            text: (*text).to_owned(),
            source: RustSource::new(text),
        })
        .collect();
    check(&files).problems
}

/// Files with one text for each of three parts: the root, its owner and the owner's value.
fn three(root: &str, owner: &str, item: &str) -> Vec<String> {
    problems(&[("switch.rs", root), ("slots.rs", owner), ("slots/slot.rs", item)])
}

const ROOT_TEXT: &str = "pub struct Switch<B> {\n    slots: Slots<B>,\n}\n";
const OWNER_TEXT: &str = "pub(crate) struct Slots<B> {\n    all: Box<[Slot<B>]>,\n}\n";
const ITEM_TEXT: &str = "#[repr(align(64))]\npub(crate) struct Slot<B> {\n    buf: Option<B>,\n}\n";

#[test]
fn private_fields_are_no_problem() {
    assert!(three(ROOT_TEXT, OWNER_TEXT, ITEM_TEXT).is_empty());
}

#[test]
fn open_field_of_root_is_named() {
    for visibility in ["pub", "pub(crate)", "pub(super)", "pub(in crate::switch)"] {
        let root = ROOT_TEXT.replace("    slots", &format!("    {visibility} slots"));
        let found = three(&root, OWNER_TEXT, ITEM_TEXT);
        assert_eq!(found.len(), 1, "{visibility}: {found:?}");
        let place = "crates/switch/src/switch.rs:2: `Switch`";
        assert!(found[0].contains(place) && found[0].contains(visibility), "{found:?}");
    }
}

#[test]
fn open_field_of_what_owner_has_is_named() {
    let item = ITEM_TEXT
        .replace("    buf", "    /// Its handle.\n    #[allow(unused)]\n    pub(super) buf");
    let found = three(ROOT_TEXT, OWNER_TEXT, &item);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("slots/slot.rs:5: `Slot`"), "{found:?}");
}

#[test]
fn open_field_of_tuple_is_named() {
    let owner = "pub(crate) struct Slots<B>(pub(crate) Vec<B>, u32);";
    assert_eq!(three(ROOT_TEXT, owner, "").len(), 1);
}

#[test]
fn what_no_part_has_may_be_open() {
    let owner = format!("{OWNER_TEXT}pub(crate) struct Turn {{\n    pub(crate) leaf: u32,\n}}\n");
    assert!(three(ROOT_TEXT, &owner, ITEM_TEXT).is_empty());
}

#[test]
fn public_value_has_public_fields_only() {
    let item = "pub struct Slot<B> {\n    pub buf: Option<B>,\n}\n";
    assert!(three(ROOT_TEXT, OWNER_TEXT, item).is_empty());
    let item = item.replace("pub buf", "pub(crate) buf");
    assert_eq!(three(ROOT_TEXT, OWNER_TEXT, &item).len(), 1);
}

#[test]
fn types_of_one_name_are_told_apart() {
    let owner = "pub(crate) struct Slots<B> {\n    all: Box<[Entry<B>]>,\n}\nstruct Entry<B>(B);\n";
    let other = "pub(crate) struct Entry {\n    pub(crate) port: u16,\n}\n";
    assert!(three(ROOT_TEXT, owner, other).is_empty());
}

#[test]
fn methods_stand_beside_their_type() {
    let methods = "impl<B: Fn(u8) -> u8> Slots<B> {}\nimpl<B> Drop for Slots<B> {}\n";
    assert!(three(ROOT_TEXT, OWNER_TEXT, &format!("{ITEM_TEXT}{methods}")).is_empty());
    let found = three(&format!("{ROOT_TEXT}{methods}"), OWNER_TEXT, ITEM_TEXT);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("switch.rs:4: methods of `Slots`"), "{found:?}");
}

#[test]
fn check_without_root_fails() {
    assert_eq!(problems(&[("slots.rs", OWNER_TEXT)]).len(), 1);
}
