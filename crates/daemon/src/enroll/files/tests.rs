use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::fabric::tests::Folder;

const NOW: i64 = 1_800_000_000;

fn created() -> Credentials {
    Credentials::create("h1", NOW).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn credentials_on_disk_for_owner_alone() {
    let folder = Folder::new("files-mode");
    let files = Files::of(&folder.join("h1"));
    assert!(!files.has_credentials());
    let made = created();
    files.install(&made).unwrap();
    assert!(files.has_credentials());
    assert_eq!(files.load(NOW).unwrap(), made);
    assert_eq!(mode(&files.folder()), 0o700);
    for name in [AUTHORITY, AUTHORITY_KEY, CERTIFICATE, KEY] {
        assert_eq!(mode(&files.folder().join(name)), 0o600, "{name}");
    }
    let left: Vec<_> = fs::read_dir(folder.join("h1")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    files.remove().unwrap();
    assert!(!files.has_credentials());
    files.remove().unwrap();
}

#[test]
fn credentials_replaced_whole_never_mixed() {
    let folder = Folder::new("files-swap");
    let files = Files::of(&folder);
    let made = created();
    files.install(&made).unwrap();
    let rekeyed = made.rekeyed(NOW).unwrap();
    files.install(&rekeyed).unwrap();
    assert_eq!(files.load(NOW).unwrap(), rekeyed);
    // Two authorities: the key on the disk is that of the second.
    let next = Authority::create(NOW).unwrap();
    let both = vec![made.authorities()[0].clone(), next.pem().certificate.clone()];
    let trusting = rekeyed.trusting(both, NOW).unwrap();
    let reissued = trusting.reissued_by(next.pem(), NOW).unwrap();
    files.install(&reissued).unwrap();
    assert_eq!(files.load(NOW).unwrap(), reissued);
}

/// States of the directory in which a crash leaves it.
#[test]
fn credentials_survive_crash_at_each_step() {
    let folder = Folder::new("files-crash");
    let files = Files::of(&folder);
    let made = created();
    let rekeyed = made.rekeyed(NOW).unwrap();
    files.install(&made).unwrap();
    // Within the writing of the next folder.
    fs::create_dir(folder.join(NEXT)).unwrap();
    fs::write(folder.join(NEXT).join(KEY), "half").unwrap();
    assert_eq!(files.load(NOW).unwrap(), made);
    files.install(&rekeyed).unwrap();
    assert_eq!(files.load(NOW).unwrap(), rekeyed);
    // Between the two renames of a file system without an exchange.
    fs::rename(files.folder(), folder.join(BEFORE)).unwrap();
    assert!(files.has_credentials());
    assert_eq!(files.load(NOW).unwrap(), rekeyed);
    // After them, before the old folder is deleted.
    fs::create_dir(folder.join(BEFORE)).unwrap();
    fs::write(folder.join(BEFORE).join(KEY), "old").unwrap();
    assert_eq!(files.load(NOW).unwrap(), rekeyed);
    files.install(&made).unwrap();
    assert_eq!(files.load(NOW).unwrap(), made);
}

#[test]
fn join_key_kept_until_credentials_are_there() {
    let folder = Folder::new("files-join-key");
    let files = Files::of(&folder.join("state"));
    let key = files.join_key().unwrap();
    assert_eq!(mode(&folder.join("state").join(JOIN_KEY)), 0o600);
    assert_eq!(files.join_key().unwrap().pem(), key.pem());
    files.install(&created()).unwrap();
    assert_ne!(files.join_key().unwrap().pem(), key.pem());
    fs::write(folder.join("state").join(JOIN_KEY), "").unwrap();
    let error = files.join_key().unwrap_err().to_string();
    assert!(error.contains("join.key") && error.contains("unusable"), "{error}");
    files.forget_join_key().unwrap();
    files.join_key().unwrap();
}

#[test]
fn credentials_unwritable_or_broken_named() {
    let folder = Folder::new("files-broken");
    fs::write(folder.join("state"), "a file").unwrap();
    let files = Files::of(&folder.join("state"));
    let error = files.install(&created()).unwrap_err().to_string();
    assert!(error.contains("cannot make") && error.ends_with("read-only?"), "{error}");
    let files = Files::of(&folder);
    assert!(files.load(NOW).unwrap_err().to_string().contains("cannot read"));
    files.install(&created()).unwrap();
    fs::copy(files.folder().join(KEY), files.folder().join(AUTHORITY_KEY)).unwrap();
    let error = files.load(NOW).unwrap_err().to_string();
    assert!(error.contains("does not belong to its certificate"), "{error}");
}

#[test]
fn certificate_renewed_on_disk_when_due() {
    let folder = Folder::new("files-renew");
    let files = Files::of(&folder);
    files.install(&created()).unwrap();
    assert!(!files.renew_if_due(NOW).unwrap());
    let late = NOW + 340 * 86_400;
    assert!(files.renew_if_due(late).unwrap());
    assert!(files.load(late).unwrap().days_left(late) > 300);
    // As made by files: the authority's key is elsewhere.
    fs::remove_file(files.folder().join(AUTHORITY_KEY)).unwrap();
    assert!(!files.renew_if_due(late + 340 * 86_400).unwrap());
}

#[test]
fn credentials_updated_or_left_as_they_were() {
    let folder = Folder::new("files-update");
    let files = Files::of(&folder);
    let made = created();
    files.install(&made).unwrap();
    let next = Authority::create(NOW).unwrap();
    let error = files.update(NOW, |present| present.reissued_by(next.pem(), NOW)).unwrap_err();
    assert!(error.to_string().contains("no authority that is trusted"), "{error}");
    assert_eq!(files.load(NOW).unwrap(), made);
    let rekeyed = files.update(NOW, |present| present.rekeyed(NOW)).unwrap();
    assert_eq!(files.load(NOW).unwrap(), rekeyed);
}

#[test]
fn folder_with_anything_else_never_replaced() {
    let folder = Folder::new("files-at");
    let files = Files::of(&folder);
    files.install(&created()).unwrap();
    assert!(Files::at(&files.folder()).is_some());
    fs::create_dir(files.folder().join("h2")).unwrap();
    assert!(Files::at(&files.folder()).is_none());
    fs::remove_dir(files.folder().join("h2")).unwrap();
    fs::remove_file(files.folder().join(AUTHORITY_KEY)).unwrap();
    assert!(Files::at(&files.folder()).is_none() && Files::at(&folder).is_none());
}
