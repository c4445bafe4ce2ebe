use super::*;
use crate::planted::fault::parse;

const PATCH: &str = "planted/a-fault.patch";

fn diff(test: &str) -> String {
    format!(
        "# fault: x\n# caught by: cargo test -p a {test}\n--- a/crates/a/src/code.rs\n\
         +++ b/crates/a/src/code.rs\n@@ -1 +1 @@\n-a\n+b\n"
    )
}

fn member(folder: &str, normal: &[&str], dev: &[&str]) -> Member {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let (normal, dev) = (names(normal), names(dev));
    let [normal_outside, dev_outside] = ["", "-tests"].map(|kind| vec![format!("{folder}{kind}")]);
    Member { folder: folder.into(), normal, dev, normal_outside, dev_outside }
}

/// `a` is built from `b`, its tests from `kit` too, and those of `kit` from `far`.
fn sources(test: &str, changed: Option<(&str, &str)>) -> Sources {
    let diff = diff(test);
    let files = [
        (PATCH, &*diff),
        ("Cargo.toml", "profile = 1"),
        ("docs/named.md", "page"),
        ("docs/other.md", "page"),
        ("crates/a/src/code.rs", "fn work() {}"),
        ("crates/a/src/code/tests.rs", "#[test]\nfn works() {}"),
        ("crates/a/src/more/tests.rs", "#[test]\nfn more() {}"),
        ("crates/a/tests/random.rs", "#[test]\nfn all() {}"),
        ("crates/a/tests/random/steps.rs", ""),
        ("crates/a/tests/other.rs", ""),
        ("crates/a/tests/big/main.rs", ""),
        ("crates/a/tests/big/part.rs", ""),
        ("crates/a/tests/support/mod.rs", ""),
        ("crates/b/src/lib.rs", "const PAGE: &str = include_str!(\"../../../docs/named.md\");"),
        ("crates/kit/src/lib.rs", ""),
        ("crates/far/src/lib.rs", ""),
    ];
    let mut texts: BTreeMap<PathBuf, Vec<u8>> =
        files.iter().map(|(path, text)| (path.into(), text.as_bytes().to_vec())).collect();
    if let Some((path, text)) = changed {
        texts.insert(path.into(), text.as_bytes().to_vec());
    }
    let members = [
        ("a", member("crates/a", &["b"], &["kit"])),
        ("b", member("crates/b", &[], &["far"])),
        ("kit", member("crates/kit", &["b"], &["far"])),
        ("far", member("crates/far", &[], &[])),
    ];
    let members = members.into_iter().map(|(name, member)| (name.to_owned(), member)).collect();
    Sources::new(texts, members, "rustc 1".to_owned()).unwrap()
}

fn evidence(test: &str, changed: Option<(&str, &str)>) -> Evidence {
    let sources = sources(test, changed);
    let text = String::from_utf8(sources.texts[Path::new(PATCH)].clone()).unwrap();
    sources.evidence(&parse(Path::new(PATCH), &text).unwrap())
}

/// Returns the effect of a change of the file on both digests.
fn effect(test: &str, file: &str) -> &'static str {
    let (before, after) = (evidence(test, None), evidence(test, Some((file, "changed"))));
    match (before.near == after.near, before.whole == after.whole) {
        (true, true) => "none",
        (true, false) => "far",
        (false, false) => "near",
        (false, true) => panic!("what is near is part of the whole"),
    }
}

#[test]
fn a_change_is_near_far_or_without_effect() {
    for (file, unit, random, big) in [
        ("crates/a/src/code.rs", "near", "near", "near"),
        ("crates/a/src/code/tests.rs", "near", "far", "far"),
        ("crates/a/src/more/tests.rs", "far", "far", "far"),
        ("crates/a/tests/random.rs", "far", "near", "far"),
        ("crates/a/tests/random/steps.rs", "far", "near", "far"),
        ("crates/a/tests/big/part.rs", "far", "far", "near"),
        ("crates/a/tests/other.rs", "far", "far", "far"),
        ("crates/a/tests/support/mod.rs", "far", "near", "near"),
        ("crates/b/src/lib.rs", "far", "far", "far"),
        ("crates/kit/src/lib.rs", "far", "far", "far"),
        ("crates/far/src/lib.rs", "none", "none", "none"),
        ("docs/named.md", "far", "far", "far"),
        ("docs/other.md", "none", "none", "none"),
        ("planted/verdicts.txt", "none", "none", "none"),
    ] {
        // A new file is new content, too.
        assert_eq!(effect("--lib code::tests::works", file), unit, "{file}");
        assert_eq!(effect("--test random all", file), random, "{file}");
        assert_eq!(effect("--test big all", file), big, "{file}");
    }
}

#[test]
fn lock_counts_where_something_is_built_from_it() {
    let before = evidence("--lib works", None);
    let lock = |package: &str| format!("[[package]]\nname = \"{package}\"\nversion = \"1\"\n");
    for (package, is_used) in [
        ("crates/a", true),
        ("crates/a-tests", true),
        ("crates/b", true),
        ("crates/b-tests", false),
        ("crates/kit", true),
        ("crates/kit-tests", false),
        ("crates/far", false),
    ] {
        let after = evidence("--lib works", Some(("Cargo.lock", &lock(package))));
        assert_eq!(after.near, before.near, "{package}");
        assert_eq!(after.whole != before.whole, is_used, "{package}");
    }
    let after = evidence("--lib works", Some(("Cargo.toml", "profile = 2")));
    assert_eq!((after.near, after.whole == before.whole), (before.near, false));
}

#[test]
fn another_compiler_or_command_is_another_content() {
    let before = evidence("--lib works", None);
    let after = evidence("--lib code", None);
    assert_ne!(before.near, after.near);
    let mut sources = sources("--lib works", None);
    sources.compiler = "rustc 2".to_owned();
    let fault = parse(Path::new(PATCH), &diff("--lib works")).unwrap();
    assert_eq!(sources.evidence(&fault).near, before.near);
    assert_ne!(sources.evidence(&fault).whole, before.whole);
}

#[test]
fn test_source_file_found_by_test_name() {
    let src = Path::new("crates/a/src");
    let names = |path: &str, filter| {
        names_test(&src.join(path), src, "    #[test]\n    fn it_works() {", filter)
    };
    assert!(names("code/tests.rs", "code::tests::it_works"));
    assert!(names("code/tests.rs", "tests::it"));
    assert!(names("code/tests/mod.rs", "code::tests::"));
    assert!(names("code.rs", "code::tests::it_works"), "`mod tests` inside of the file");
    assert!(!names("code/tests.rs", "other::tests"));
    assert!(!names("code/tests.rs", "it_fails"));
}

#[test]
fn bytes_do_not_move_from_part_to_part() {
    assert_ne!(Digest::EMPTY.and(b"ab").and(b"c"), Digest::EMPTY.and(b"a").and(b"bc"));
    assert_ne!(Digest::EMPTY.and(b""), Digest::EMPTY);
    let one_bit = (Digest::EMPTY.and(b"0").short() ^ Digest::EMPTY.and(b"1").short()).count_ones();
    assert!(one_bit > 8, "{one_bit} bits differ");
}

#[test]
fn comments_and_context_decide_nothing() {
    let code = "//! Page.\n\nfn work() { // why\n    \"// text\" /* a\nb */\n}\n";
    let essence = |path: &str, text: &str| {
        String::from_utf8(essence(Path::new(path), text.as_bytes()).into_owned()).unwrap()
    };
    assert_eq!(essence("a/b.rs", code), "\nfn work() {\n    \"// text\"\n}\n");
    assert_eq!(essence("a/b.md", code), code);
    let patch = "# fault: x\n--- a/c.rs\n+++ b/c.rs\n@@ -1 +1 @@\n near\n-    // y\n-a\n+b\n";
    assert_eq!(essence("a.patch", patch), "# fault: x\n--- a/c.rs\n+++ b/c.rs\n-a\n+b\n");
    let prose = ("crates/a/src/code.rs", "// Works.\nfn work() {}");
    assert_eq!(evidence("--lib tests::works", Some(prose)).near, {
        evidence("--lib tests::works", Some(("crates/a/src/code.rs", "fn work() {}\n"))).near
    });
}
