use std::process::{Command, Stdio};

use sluice_api::client::HostSelector;

use super::*;

/// A host's directory, without a host.
struct Scene {
    dir: PathBuf,
    host: Host,
    own: Attachment,
}

impl Scene {
    fn new(word: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("sluice-{}-claim-{word}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let host = Host::find(&HostSelector::Socket(dir.join("show.sock"))).unwrap();
        let [network, container, interface] = ["pods", "c7", "eth0"].map(str::to_owned);
        Self { dir, host, own: Attachment { network, container, interface } }
    }

    fn claim(&self) -> Claim {
        Claim::of(&self.host, &self.own).unwrap()
    }

    fn attempt(&self) -> Option<Claim> {
        Claim::attempt(&self.host.claims().join(name::of_claim(&self.own))).unwrap()
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.host.claims()).unwrap().count()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn claim_without_record_leaves_nothing() {
    let scene = Scene::new("bare");
    let claim = scene.claim();
    assert!(scene.attempt().is_none(), "one at a time");
    assert_eq!(recorded(&scene.host).unwrap(), []);
    assert_eq!(scene.files(), 1, "one that is claimed stays");
    drop(claim);
    assert_eq!(scene.files(), 0);
    // Killed before it could record.
    std::fs::write(scene.host.claims().join("0.json"), "").unwrap();
    assert_eq!(recorded(&scene.host).unwrap(), []);
    assert_eq!(scene.files(), 0);
}

#[test]
fn record_stays_until_claim_is_finished() {
    let scene = Scene::new("record");
    let mut claim = scene.claim();
    assert!(!claim.is_left_over());
    claim.record(&scene.own).unwrap();
    drop(claim);
    assert_eq!(recorded(&scene.host).unwrap(), std::slice::from_ref(&scene.own));
    let mut again = scene.claim();
    assert!(again.is_left_over());
    again.record(&scene.own).unwrap();
    drop(again);
    assert_eq!(
        recorded(&scene.host).unwrap(),
        std::slice::from_ref(&scene.own),
        "it is written once"
    );
    scene.claim().finish().unwrap();
    assert_eq!(scene.files(), 0);
    assert!(!scene.claim().is_left_over());
}

#[test]
fn program_that_outlives_command_keeps_claim() {
    let scene = Scene::new("outlives");
    let mut claim = scene.claim();
    claim.record(&scene.own).unwrap();
    let mut ipam = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(claim);
    assert!(scene.attempt().is_none(), "its IPAM plugin still runs");
    drop(ipam.stdin.take());
    ipam.wait().unwrap();
    assert!(scene.claim().is_left_over());
}

#[test]
fn folder_is_made_beside_host_only() {
    let scene = Scene::new("folder");
    let nowhere = Host::find(&HostSelector::Socket(scene.dir.join("none/show.sock"))).unwrap();
    let error = Claim::of(&nowhere, &scene.own).unwrap_err();
    assert_eq!(error.code(), Code::TryAgain);
    assert!(error.text().contains("no host answers on"), "{}", error.text());
    std::fs::write(scene.host.claims(), "").unwrap();
    let error = Claim::of(&scene.host, &scene.own).unwrap_err();
    assert!(error.code() == Code::Io && error.text().contains("cannot be written"), "{error:?}");
}
