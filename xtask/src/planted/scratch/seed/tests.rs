use std::time::{Duration, SystemTime};

use super::*;

/// A folder that is removed after the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file whose time is an hour ago.
    fn write(&self, file: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, file).unwrap();
        let hour_ago = SystemTime::now() - Duration::from_secs(3_600);
        fs::File::options().write(true).open(path).unwrap().set_modified(hour_ago).unwrap();
    }

    fn modified(&self, file: &str) -> SystemTime {
        fs::metadata(self.0.join(file)).unwrap().modified().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_build_is_taken_over_with_its_times() {
    let (from, to) = (Folder::new("seed-from"), Folder::new("seed-to"));
    let taken = ["debug/.fingerprint/a/x", "debug/build/b/out/y", "debug/deps/libz.rlib"];
    for file in taken {
        from.write(file);
    }
    from.write("debug/incremental/i");
    artifacts(&from.0, &to.0).unwrap();
    for file in taken {
        assert_eq!(to.modified(file), from.modified(file), "{file}");
    }
    assert!(!to.0.join("debug/incremental").exists());
    // A library serves both; a file that cargo writes in place is copied.
    let inode = |root: &Folder| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(root.0.join(taken[2])).unwrap().ino()
    };
    assert_eq!(inode(&from), inode(&to));
    fs::write(to.0.join(taken[0]), "changed").unwrap();
    assert_eq!(fs::read_to_string(from.0.join(taken[0])).unwrap(), taken[0]);
}

#[test]
fn test_with_path_of_program_is_built_anew() {
    let (from, to) = (Folder::new("bound-from"), Folder::new("bound-to"));
    let lists = [
        ("words-1a", "words-1a: words.rs\n\n# env-dep:CARGO_BIN_EXE_sluice=/x/debug/sluice\n"),
        ("files-2b", "files-2b: files.rs\n# env-dep:CARGO_TARGET_TMPDIR=/x/tmp\n"),
        ("plain-3c", "plain-3c: plain.rs\n# env-dep:CARGO_PKG_NAME=plain\n"),
    ];
    for (name, list) in lists {
        let file = format!("debug/deps/{name}.d");
        from.write(&file);
        fs::write(from.0.join(&file), list).unwrap();
        from.write(&format!("debug/.fingerprint/{name}/invoked.timestamp"));
    }
    // A package has the hash of its test, and another name.
    from.write("debug/.fingerprint/package-1a/x");
    artifacts(&from.0, &to.0).unwrap();
    let stays = |name: &str| to.0.join("debug/.fingerprint").join(name).exists();
    assert!(stays("plain-3c"));
    for name in ["words-1a", "files-2b", "package-1a"] {
        assert!(!stays(name), "{name}");
    }
}

#[test]
fn a_build_that_is_there_stays() {
    let (from, to) = (Folder::new("stay-from"), Folder::new("stay-to"));
    from.write("debug/.fingerprint/a/x");
    to.write("debug/.fingerprint/b/y");
    artifacts(&from.0, &to.0).unwrap();
    assert!(!to.0.join("debug/.fingerprint/a").exists());
    let empty = Folder::new("stay-empty");
    artifacts(&empty.0, &empty.0.join("to")).unwrap();
    assert!(!empty.0.join("to").exists());
}

#[test]
fn a_copy_has_the_times_of_its_originals() {
    let (from, to) = (Folder::new("times-from"), Folder::new("times-to"));
    from.write("a.rs");
    fs::write(to.0.join("a.rs"), "a").unwrap();
    times(&from.0, &to.0, &["a.rs".into()]).unwrap();
    assert_eq!(to.modified("a.rs"), from.modified("a.rs"));
}
