use super::*;

const DIFF: &str = "\
# fault: x
--- a/src/a.rs
+++ b/src/a.rs
@@ -2,7 +2,7 @@
 one
 two
 three
-four
+4
 five
 six
 seven
--- a/src/b.rs
+++ b/src/b.rs
@@ -1,1 +1,2 @@
 one
+-- two
";

/// A folder with `src/a.rs`, removed after the test.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, lines: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("src")).unwrap();
        let tree = Self(path);
        tree.write("src/a.rs", &lines.replace(' ', "\n"));
        tree.write("src/b.rs", "one\n");
        tree.write("x.patch", DIFF);
        tree
    }

    fn write(&self, file: &str, text: &str) {
        std::fs::write(self.0.join(file), text).unwrap();
    }

    fn apply(&self) -> Result<Fit> {
        apply(&self.0, &self.0.join("x.patch"))
    }

    fn lines(&self) -> String {
        std::fs::read_to_string(self.0.join("src/a.rs")).unwrap().replace('\n', " ")
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_diff_is_read() {
    assert_eq!(files(DIFF), ["src/a.rs", "src/b.rs"].map(PathBuf::from));
    let hunks = hunks(DIFF);
    assert_eq!(hunks[0].before, ["three", "four", "five"]);
    assert_eq!(hunks[1].before, ["one"]);
}

#[test]
fn code_around_a_fault_may_change() {
    for (name, before, fit, after) in [
        (
            "same",
            "one two three four five six seven ",
            Fit::Exact,
            "one two three 4 five six seven ",
        ),
        (
            "moved",
            "0 one two three four five six seven ",
            Fit::Exact,
            "0 one two three 4 five six seven ",
        ),
        ("near", "one 2 three four five 6 seven ", Fit::Loose, "one 2 three 4 five 6 seven "),
    ] {
        let tree = Tree::new(name, before);
        assert_eq!(tree.apply().unwrap(), fit, "{name}");
        assert_eq!(tree.lines(), after, "{name}");
    }
}

#[test]
fn patch_matching_nowhere_or_twice_refused_entirely() {
    for (name, before) in [
        ("gone", "one two three 44 five six seven "),
        ("beside", "one two 3 four five six seven "),
        ("twice", "one 2 three four five 6 three four five "),
    ] {
        let tree = Tree::new(name, before);
        let error = format!("{:#}", tree.apply().unwrap_err());
        assert!(error.contains("src/a.rs fit with less context"), "{name}: {error}");
        assert_eq!(tree.lines(), before, "{name}");
    }
}
