//! Tests of a member's file.

use std::path::PathBuf;

use sluice_control::commit::{Epoch, Seat};

use super::*;

/// A directory that ends with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(word: &str) -> Self {
        let name = format!("sluice-store-{}-{word}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn place() -> Place {
    Place {
        fabric: "prod".to_owned(),
        name: "h1".to_owned(),
        id: 1,
        seat: 7,
        is_founder: true,
        underlay: LocalUnderlay::new("eth0"),
    }
}

fn identity() -> Record {
    Record::Identity { seat: Seat::new(7).unwrap(), epoch: Epoch::default() }
}

#[test]
fn what_was_written_is_there_after_restart() {
    let dir = Dir::new("restart");
    assert!(Disk::open(&dir.0).unwrap().is_none(), "nothing is made by looking");
    let shared = FabricConfig::new("prod").unwrap();
    let hard = Record::HardState { term: 3, vote: 1, commit: 2 };
    {
        let disk = Disk::create(&dir.0).unwrap();
        assert_eq!(disk.place().unwrap(), None);
        disk.begin(&place(), &shared).unwrap();
        disk.write(&[identity(), hard.clone()]).unwrap();
        assert_eq!(disk.next_start().unwrap(), 1);
    }
    let disk = Disk::open(&dir.0).unwrap().unwrap();
    assert_eq!(disk.place().unwrap(), Some(place()));
    assert_eq!(disk.bootstrap().unwrap(), Some(shared));
    assert_eq!(disk.records().unwrap(), [identity().to_bytes(), hard.to_bytes()]);
    assert_eq!(disk.next_start().unwrap(), 2);
}

#[test]
fn candidate_is_kept_and_forgotten() {
    let dir = Dir::new("candidate");
    let disk = Disk::create(&dir.0).unwrap();
    assert_eq!(disk.candidate().unwrap(), None);
    let candidate = Candidate { base: 4, from: "a".to_owned(), text: "b".to_owned() };
    disk.put_candidate(Some(&candidate)).unwrap();
    assert_eq!(disk.candidate().unwrap(), Some(candidate));
    disk.put_candidate(None).unwrap();
    assert_eq!(disk.candidate().unwrap(), None);
}

#[test]
fn damaged_file_is_named_with_remedy() {
    let dir = Dir::new("damaged");
    std::fs::write(dir.0.join(FILE), b"this is no database").unwrap();
    let error = format!("{:#}", Disk::open(&dir.0).unwrap_err());
    assert!(error.contains(FILE) && error.contains("sluice fabric evict"), "{error}");
}

#[test]
fn only_owner_may_read_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = Dir::new("mode");
    Disk::create(&dir.0).unwrap();
    let mode = std::fs::metadata(dir.0.join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
