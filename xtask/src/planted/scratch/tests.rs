use super::*;

/// A folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.0.join(file)).ok()
    }

    fn modified(&self, file: &str) -> std::time::SystemTime {
        fs::metadata(self.0.join(file)).unwrap().modified().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn mirror_copies_changed_leaves_equal_files_untouched() {
    let (from, to) = (Folder::new("from"), Folder::new("to"));
    from.write("a/same.rs", "same");
    from.write("a/changed.rs", "new");
    from.write("not-listed.rs", "x");
    to.write("a/same.rs", "same");
    to.write("a/changed.rs", "old");
    to.write("a/extra.rs", "x");
    to.write("extra/b.rs", "x");
    let before = to.modified("a/same.rs");
    let files = ["a/same.rs", "a/changed.rs"].map(PathBuf::from);
    mirror(&from.0, &to.0, &files).unwrap();
    assert_eq!(to.modified("a/same.rs"), before);
    assert_eq!(to.read("a/changed.rs").as_deref(), Some("new"));
    for gone in ["a/extra.rs", "extra/b.rs", "not-listed.rs"] {
        assert_eq!(to.read(gone), None, "{gone}");
    }
}

#[test]
fn a_patch_is_applied_to_the_copy_only() {
    let home = Folder::new("apply");
    let scratch = Scratch::new(&home.0, &[]).unwrap();
    fs::write(scratch.tree.join("a.txt"), "one\ntwo\n").unwrap();
    home.write(
        "a.patch",
        "# fault: x\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
    );
    scratch.apply(&home.0.join("a.patch")).unwrap();
    assert_eq!(fs::read_to_string(scratch.tree.join("a.txt")).unwrap(), "one\n2\n");
    assert!(scratch.apply(&home.0.join("a.patch")).is_err(), "it applies only once");
}

#[test]
fn the_copy_has_one_user() {
    let home = Folder::new("lock");
    let scratch = Scratch::new(&home.0, &[]).unwrap();
    assert!(Scratch::new(&home.0, &[]).is_err());
    drop(scratch);
    assert!(Scratch::new(&home.0, &[]).is_ok());
}

#[test]
fn what_hangs_is_ended() {
    let sleep = |seconds: &str| {
        let mut command = Command::new("sleep");
        command.arg(seconds).process_group(0).spawn().unwrap()
    };
    assert_eq!(wait(&mut sleep("3600"), Duration::from_millis(50)).unwrap(), None);
    assert!(wait(&mut sleep("0"), Duration::from_secs(60)).unwrap().unwrap().success());
}
