use super::*;

const MANIFEST: &str = r#"
[workspace]
members = ["a"]

[workspace.dependencies]
one = "1"
two = { version = "1", features = ["x"] }

[profile.dev]
opt-level = 1
"#;

const LOCK: &str = r#"
[[package]]
name = "one"
version = "1.0.0"
checksum = "1"
dependencies = ["deep 2.0.0"]

[[package]]
name = "two"
version = "1.0.0"

[[package]]
name = "deep"
version = "1.0.0"

[[package]]
name = "deep"
version = "2.0.0"
"#;

fn of_one(manifest: &str, lock: &str) -> String {
    let texts = [("Cargo.toml", manifest), ("Cargo.lock", lock)];
    let texts = texts.map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
    Outside::read(&texts.into()).unwrap().of(&BTreeSet::from(["one"]))
}

#[test]
fn package_depends_on_its_part_of_lock() {
    let before = of_one(MANIFEST, LOCK);
    for (in_manifest, old, new, is_changed) in [
        (true, "members = [\"a\"]", "members = [\"a\", \"b\"]", false),
        (true, "features = [\"x\"]", "features = [\"y\"]", false),
        (true, "one = \"1\"", "one = { version = \"1\", features = [\"x\"] }", true),
        (true, "opt-level = 1", "opt-level = 2", true),
        (true, "[profile.dev]", "# Fast.\n[profile.dev]", false),
        (
            false,
            "name = \"two\"\nversion = \"1.0.0\"",
            "name = \"two\"\nversion = \"1.0.1\"",
            false,
        ),
        (false, "version = \"2.0.0\"", "version = \"2.0.1\"", true),
        (false, "checksum = \"1\"", "checksum = \"2\"", true),
        (false, "[\"deep 2.0.0\"]", "[]", true),
    ] {
        let edit = |is_it: bool, text: &str| match is_it {
            true => {
                assert!(text.contains(old), "{old}");
                text.replace(old, new)
            }
            false => text.to_owned(),
        };
        let after = of_one(&edit(in_manifest, MANIFEST), &edit(!in_manifest, LOCK));
        assert_eq!(before != after, is_changed, "{old} -> {new}");
    }
}

#[test]
fn unreadable_lock_or_manifest_named() {
    for name in ["Cargo.toml", "Cargo.lock"] {
        let texts = BTreeMap::from([(PathBuf::from(name), b"[".to_vec())]);
        assert!(Outside::read(&texts).unwrap_err().to_string().contains(name));
    }
    assert_eq!(Outside::read(&BTreeMap::new()).unwrap().of(&BTreeSet::new()), "");
}
