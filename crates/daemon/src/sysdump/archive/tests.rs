use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn folder(word: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("sluice-sysdump-{}-{word}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

fn entries() -> Vec<(String, Vec<u8>)> {
    let long = format!("{}/{}", "a".repeat(120), "b".repeat(120));
    vec![("README.txt".to_owned(), b"one".to_vec()), (long, vec![7; 100_000])]
}

#[test]
fn archive_holds_files_for_owner_alone() {
    let folder = folder("whole");
    let file = folder.join("a.tar.gz");
    let size = write(&Target::File(file.clone()), "top", 1_000, &entries()).unwrap();
    let about = fs::metadata(&file).unwrap();
    assert_eq!((about.len(), about.permissions().mode() & 0o777), (size, 0o600));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(File::open(file).unwrap()));
    let mut seen = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().strip_prefix("top").unwrap().display().to_string();
        assert_eq!(
            (entry.header().mode().unwrap(), entry.header().mtime().unwrap()),
            (0o600, 1_000)
        );
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        seen.push((path, bytes));
    }
    assert!(seen == entries());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn archive_without_place_leaves_nothing() {
    let folder = folder("none");
    // A folder cannot be replaced by a file.
    let taken = folder.join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("x"), "").unwrap();
    for file in [taken, folder.join("absent/a.tar.gz")] {
        let error = write(&Target::File(file), "top", 0, &entries()).unwrap_err();
        assert!(format!("{error:#}").contains("name a place with room by `--out`"), "{error:#}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}
