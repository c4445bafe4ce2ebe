use std::fs;

use super::*;
use crate::fabric::tests::{Folder, certificates};
use crate::fabric::wall;

fn with_two(name: &str) -> Folder {
    let folder = Folder::new(name);
    certificates(&folder, &["h1", "h2"]);
    folder
}

fn problem(folder: &Path, own: &str) -> String {
    format!("{:#}", Identity::load(folder, own, &wall()).unwrap_err())
}

#[test]
fn identity_errors_name_folder_cause_and_remedy() {
    let folder = with_two("identity-wrong");
    let h1 = folder.join("h1");
    let other_name = problem(&h1, "h2");
    assert!(other_name.ends_with("the certificate is that of another host"), "{other_name}");
    assert!(other_name.contains("`sluice fabric cert` makes new ones"), "{other_name}");

    fs::copy(folder.join("h2").join(KEY), h1.join(KEY)).unwrap();
    let other_key = problem(&h1, "h1");
    assert!(other_key.contains("host.pem and host.key do not belong together"), "{other_key}");

    fs::write(h1.join(KEY), "nothing").unwrap();
    assert!(problem(&h1, "h1").contains("host.key is unusable"));
    fs::remove_file(h1.join(CERTIFICATE)).unwrap();
    assert!(problem(&h1, "h1").contains("host.pem is unusable"));
    assert!(problem(&folder.join("h3"), "h3").contains("ca.pem is unusable"));

    fs::write(h1.join(AUTHORITY), "").unwrap();
    assert!(problem(&h1, "h1").contains("ca.pem is unusable: no certificate is in it"));

    let stranger = with_two("identity-stranger");
    fs::copy(stranger.join("h2").join(AUTHORITY), folder.join("h2").join(AUTHORITY)).unwrap();
    let foreign = problem(&folder.join("h2"), "h2");
    assert!(foreign.ends_with("the certificate is of another fabric"), "{foreign}");
}

#[test]
fn credentials_made_by_command_accepted_as_identity() {
    let folder = Folder::new("identity-command");
    let wall = wall();
    let files = crate::enroll::Files::of(&folder);
    files.install(&crate::enroll::Credentials::create("h1", seconds(&wall)).unwrap()).unwrap();
    Identity::load(&files.folder(), "h1", &wall).unwrap();
    // And the other way round: `sluice fabric cert` goes on with the authority.
    crate::fabric::certificates::make(&crate::fabric::certificates::CertificateRequest {
        folder: &files.folder(),
        hosts: &["h2".to_owned()],
        days: 1,
        replace: false,
    })
    .unwrap();
    Identity::load(&files.folder().join("h2"), "h2", &wall).unwrap();
}
