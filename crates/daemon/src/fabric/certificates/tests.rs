use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::fabric::identity::Identity;
use crate::fabric::tests::Folder;
use crate::fabric::wall;

fn wanted<'a>(folder: &'a Path, hosts: &'a [String]) -> CertificateRequest<'a> {
    CertificateRequest { folder, hosts, days: 365, replace: false }
}

#[test]
fn certificate_authority_made_once_reused_for_later_hosts() {
    let folder = Folder::new("cert-twice");
    let first = ["h1".to_owned()];
    let later = ["h2".to_owned(), "rack-3.h7".to_owned()];
    assert_eq!(make(&wanted(&folder, &first)).unwrap(), [folder.join("h1")]);
    let authority = fs::read(folder.join(AUTHORITY)).unwrap();
    make(&wanted(&folder, &later)).unwrap();
    assert_eq!(fs::read(folder.join(AUTHORITY)).unwrap(), authority);
    for name in ["h1", "h2", "rack-3.h7"] {
        Identity::load(&folder.join(name), name, &wall()).unwrap();
    }
}

#[test]
fn keys_are_for_their_owner_alone() {
    let folder = Folder::new("cert-mode");
    make(&wanted(&folder, &["h1".to_owned()])).unwrap();
    for path in [folder.join(AUTHORITY_KEY), folder.join("h1").join(KEY)] {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

#[test]
fn what_is_there_is_replaced_only_on_request() {
    let folder = Folder::new("cert-replace");
    let hosts = ["h1".to_owned()];
    make(&wanted(&folder, &hosts)).unwrap();
    let before = fs::read(folder.join("h1").join(CERTIFICATE)).unwrap();
    let error = make(&wanted(&folder, &hosts)).unwrap_err().to_string();
    assert!(error.ends_with("has a certificate; `--replace` makes a new one"), "{error}");
    assert_eq!(fs::read(folder.join("h1").join(CERTIFICATE)).unwrap(), before);
    make(&CertificateRequest { replace: true, ..wanted(&folder, &hosts) }).unwrap();
    assert_ne!(fs::read(folder.join("h1").join(CERTIFICATE)).unwrap(), before);
    Identity::load(&folder.join("h1"), "h1", &wall()).unwrap();
}

#[test]
fn certificate_invalid_host_name_refused_before_any_file() {
    let folder = Folder::new("cert-name");
    for name in ["", "a b", "ä", "h1/../h2"] {
        let error = make(&wanted(&folder, &[name.to_owned()])).unwrap_err().to_string();
        assert!(error.contains("cannot stand in a certificate"), "{name}: {error}");
    }
    assert!(!folder.join(AUTHORITY).exists());
}
