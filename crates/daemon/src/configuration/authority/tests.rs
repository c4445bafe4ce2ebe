use std::sync::Arc;

use rustls::time_provider::DefaultTimeProvider;
use sluice_api::fabric_config::{FabricConfig, Operation};

use super::*;
use crate::enroll::{JoinKey, SigningRequest};
use crate::fabric::tests::Folder;

/// A member with an authority that it shares with others.
struct Host {
    keeper: Keeper,
    files: Files,
}

fn now() -> i64 {
    now_s(&wall())
}

fn wall() -> Wall {
    Arc::new(DefaultTimeProvider)
}

impl Host {
    /// Makes a member whose certificate an authority has signed.
    fn new(folder: &Folder, name: &str, authority: &Authority) -> Self {
        let files = Files::of(&folder.join(name));
        let key = JoinKey::generate().unwrap();
        let request = SigningRequest::parse(&key.request(name).unwrap()).unwrap();
        let certificate = authority.sign(&request, name, now(), 365).unwrap();
        let pem = authority.pem().clone();
        let all = vec![pem.certificate.clone()];
        let pair = (certificate, key.pem());
        let made = Credentials::assemble(name, pair, all, Some(pem), now()).unwrap();
        files.install(&made).unwrap();
        Self { keeper: Keeper::new(files.clone(), wall()), files }
    }

    /// Starts it again, with what is on its disk.
    fn restart(&mut self) {
        self.keeper = Keeper::new(self.files.clone(), wall());
    }

    fn give(&self, authority: &Authority) -> Result<(), String> {
        self.keeper.take(&serde_json::to_vec(&Handed::new(authority)).unwrap())
    }

    fn credentials(&self) -> Credentials {
        self.files.load(now()).unwrap()
    }

    fn signs_by(&self) -> Fingerprint {
        self.credentials().authority().unwrap().fingerprint()
    }
}

fn authority() -> Authority {
    Authority::create(now()).unwrap()
}

/// Returns the authorities of a fabric before the first step and after each.
fn steps(old: &Authority, new: &Authority) -> [Trust; 4] {
    let mut config = FabricConfig::new("prod").unwrap();
    let authorities = vec![old.pem().certificate.clone()];
    [
        Operation::SetAuthorities { authorities },
        Operation::AddAuthority { authority: entry(new) },
        Operation::SignBy { fingerprint: new.fingerprint().to_string() },
        Operation::RemoveAuthority { authority: entry(old) },
    ]
    .map(|step| {
        config.apply(&[step]).unwrap();
        config.trust.clone()
    })
}

#[test]
fn files_follow_each_step_across_restarts() {
    let folder = Folder::new("keeper-steps");
    let (old, new) = (authority(), authority());
    let mut host = Host::new(&folder, "h1", &old);
    let all = steps(&old, &new);
    host.keeper.settle(&all[0]).unwrap();
    host.give(&new).unwrap();
    for (at, pair) in all.windows(2).enumerate() {
        host.restart();
        host.keeper.check(&pair[0], &pair[1]).unwrap();
        // Killed before its files follow: they do at the next start.
        host.restart();
        host.keeper.settle(&pair[1]).unwrap();
        let credentials = host.credentials();
        assert_eq!(credentials.authorities(), pair[1].trusted());
        let signs = if at == 0 { &old } else { &new };
        assert_eq!(host.signs_by(), signs.fingerprint());
        // Nothing is written twice.
        let written = credentials.certificate().to_owned();
        host.keeper.settle(&pair[1]).unwrap();
        assert_eq!(host.credentials().certificate(), written);
    }
    assert_eq!(host.credentials().authorities(), [new.pem().certificate.clone()]);
    assert!(host.files.next_authority().unwrap().is_none(), "it does not follow any more");
}

#[test]
fn host_without_new_key_vetoes() {
    let folder = Folder::new("keeper-key");
    let (old, new, other) = (authority(), authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let all = steps(&old, &new);
    let veto = |from: usize| host.keeper.check(&all[from], &all[from + 1]).unwrap_err();
    assert!(veto(0).contains("does not have the key"), "{}", veto(0));
    host.give(&other).unwrap();
    assert!(veto(0).contains("rotate-ca"), "it has that of another authority");
    assert!(veto(1).contains("does not have the key"), "{}", veto(1));
    host.give(&new).unwrap();
    for pair in all[..3].windows(2) {
        host.keeper.check(&pair[0], &pair[1]).unwrap();
    }
}

#[test]
fn host_with_old_certificate_vetoes_removal() {
    let folder = Folder::new("keeper-old");
    let (old, new) = (authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let [_, _, both, alone] = steps(&old, &new);
    // The step before it was committed without this host.
    let why = host.keeper.check(&both, &alone).unwrap_err();
    assert!(why.contains("no key of authority"), "{why}");
    // Nor does it stop believing itself.
    host.keeper.settle(&alone).unwrap_err();
    let kept = host.credentials();
    assert_eq!(kept.authorities().len(), 2);
    assert_eq!(host.signs_by(), old.fingerprint());
    host.give(&new).unwrap();
    host.keeper.settle(&alone).unwrap();
    assert_eq!(host.credentials().authorities(), [new.pem().certificate.clone()]);
    assert_eq!(host.signs_by(), new.fingerprint());
}

#[test]
fn wrong_authority_is_not_taken() {
    let folder = Folder::new("keeper-wrong");
    let (old, new, other) = (authority(), authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let all = steps(&old, &new);
    // A key of another certificate.
    let mixed =
        AuthorityPem { certificate: new.pem().certificate.clone(), key: other.pem().key.clone() };
    let body = serde_json::json!({ "certificate": mixed.certificate, "key": mixed.key });
    let why = host.keeper.take(&serde_json::to_vec(&body).unwrap()).unwrap_err();
    assert!(why.contains("does not belong to its certificate"), "{why}");
    assert_eq!(host.keeper.take(b"secret"), Err("it is no authority".to_owned()));
    // One beside that which the configuration names.
    host.give(&new).unwrap();
    host.keeper.settle(&all[1]).unwrap();
    let why = host.give(&other).unwrap_err();
    assert!(why.contains("is about to follow already"), "{why}");
    assert!(host.keeper.held(&new.fingerprint().to_string()).is_ok());
    // A fingerprint that is not the certificate's.
    let mut false_name = all[1].clone();
    false_name.next.as_mut().unwrap().fingerprint = other.fingerprint().to_string();
    let why = host.keeper.check(&all[0], &false_name).unwrap_err();
    assert!(why.contains("is not that of the authority's certificate"), "{why}");
}

#[test]
fn next_authority_made_once() {
    let folder = Folder::new("keeper-next");
    let mut host = Host::new(&folder, "h1", &authority());
    let made = host.keeper.next().unwrap().fingerprint();
    host.restart();
    assert_eq!(host.keeper.next().unwrap().fingerprint(), made, "an earlier command has made it");
}

#[test]
fn authority_replaced_at_once_is_vetoed() {
    let folder = Folder::new("keeper-at-once");
    let (old, new) = (authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let [before, _, _, after] = steps(&old, &new);
    host.give(&new).unwrap();
    let why = host.keeper.check(&before, &after).unwrap_err();
    assert!(why.contains("is still of the authority"), "{why}");
}

#[test]
fn key_of_abandoned_authority_is_deleted() {
    let folder = Folder::new("keeper-abandoned");
    let (old, new) = (authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let [first, both, ..] = steps(&old, &new);
    host.keeper.settle(&first).unwrap();
    host.give(&new).unwrap();
    host.keeper.settle(&first).unwrap();
    assert!(host.files.next_authority().unwrap().is_some(), "the first step is about to come");
    host.keeper.settle(&both).unwrap();
    host.keeper.check(&both, &first).unwrap();
    host.keeper.abandon(old.fingerprint().to_string());
    host.keeper.settle(&first).unwrap();
    assert!(host.files.next_authority().unwrap().is_some(), "it was not given up");
    host.keeper.abandon(new.fingerprint().to_string());
    host.keeper.settle(&first).unwrap();
    assert!(host.files.next_authority().unwrap().is_none());
    assert_eq!(host.credentials().authorities(), [old.pem().certificate.clone()]);
    assert_ne!(host.keeper.next().unwrap().fingerprint(), new.fingerprint());
}

#[test]
fn failed_settle_of_unchanged_trust_is_repeated() {
    let folder = Folder::new("keeper-unchanged");
    let (old, new) = (authority(), authority());
    let host = Host::new(&folder, "h1", &old);
    let [_, _, _, alone] = steps(&old, &new);
    host.keeper.settle_changed(&alone);
    assert_eq!(host.signs_by(), old.fingerprint(), "it has no key of the new one");
    host.give(&new).unwrap();
    host.keeper.settle_changed(&alone);
    assert_eq!(host.signs_by(), new.fingerprint());
}
