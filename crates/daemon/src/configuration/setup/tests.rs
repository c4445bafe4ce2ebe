//! Tests of how a host becomes a member.

use sluice_api::config::UnderlayKind;

use super::*;
use crate::config::member::local_default;

fn applying(word: &str) -> (Applying, std::path::PathBuf) {
    let name = format!("sluice-setup-{}-{word}", std::process::id());
    let state_dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&state_dir).unwrap();
    let (local, known) = (local_default("h1"), Vec::new());
    (Applying { local, state_dir: state_dir.clone(), known }, state_dir)
}

fn loopback() -> api::Place {
    let (underlay, vtep) = (Some("lo".to_owned()), Some([10, 0, 0, 1].into()));
    api::Place { underlay, vtep, rate_mbps: None }
}

#[test]
fn created_fabric_has_one_member_on_disk() {
    let (applying, dir) = applying("create");
    let joined = applying.create("prod", &loopback(), |config| {
        assert_eq!(config.underlay.as_ref().unwrap().device, "lo");
        Ok(Vec::new())
    });
    assert!(matches!(joined.unwrap().answer, api::Answer::Member { id: 1, .. }));
    let place = place(&dir).unwrap().unwrap();
    assert_eq!((place.fabric.as_str(), place.is_founder), ("prod", true));
    assert!(Files::of(&dir).has_credentials());
    // A second fabric would need the first one to be left.
    let error = applying.create("other", &loopback(), |_| Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("another fabric"), "{error}");
    forget(&dir).unwrap();
    assert!(super::place(&dir).unwrap().is_none() && !Files::of(&dir).has_credentials());
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn refused_configuration_leaves_nothing_behind() {
    let (applying, dir) = applying("refused");
    let error = applying.create("prod", &loopback(), |_| Err("no such device".to_owned()));
    assert_eq!(error.unwrap_err().to_string(), "no such device");
    let named = applying.create("../prod", &loopback(), |_| Ok(Vec::new())).unwrap_err();
    assert!(named.to_string().contains("cannot be the name of a fabric"));
    let bare = applying.create("prod", &api::Place::default(), |_| Ok(Vec::new())).unwrap_err();
    assert!(bare.to_string().contains("--underlay eth0"), "{bare}");
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn wrong_address_or_token_is_refused_before_anything() {
    let (applying, dir) = applying("token");
    let join = |address: &str, token: &str| {
        let joined = applying.join((address, token), &loopback(), |_| Ok(Vec::new()));
        format!("{:#}", joined.unwrap_err())
    };
    assert!(join("h1.example", "x").contains("is no address of a member"));
    assert!(join("10.0.0.1:65535", "x").contains("cannot be that of a fabric"));
    assert!(!join("10.0.0.1", "nonsense").is_empty());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn address_of_member_gets_port_of_joins() {
    assert_eq!(address_of("10.0.0.1").unwrap(), "10.0.0.1:7475".parse().unwrap());
    assert_eq!(address_of("10.0.0.1:8000").unwrap(), "10.0.0.1:8001".parse().unwrap());
}

#[test]
fn named_rate_of_underlay_is_kept() {
    let (mut applying, dir) = applying("rate");
    let with_rate = api::Place { rate_mbps: Some(1_000), ..loopback() };
    let rate_of = |config: &HostConfig| config.underlay.as_ref().unwrap().link.rate_mbps;
    let created = applying.create("prod", &with_rate, |config| {
        assert_eq!(rate_of(config), Some(1_000));
        Ok(Vec::new())
    });
    created.unwrap();
    assert_eq!(place(&dir).unwrap().unwrap().underlay.link.rate_mbps, Some(1_000));
    forget(&dir).unwrap();
    // A device of software says no speed.
    let created = applying.create("prod", &loopback(), |config| {
        assert_eq!(rate_of(config), None);
        Ok(Vec::new())
    });
    created.unwrap();
    forget(&dir).unwrap();
    applying.local.underlay = Some(LocalUnderlay::new("lo"));
    let error = applying.create("prod", &with_rate, |_| Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("link = { rate_mbps = 1000 }"), "{error}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn named_underlay_beside_another_of_file_is_refused() {
    let (mut applying, dir) = applying("underlay");
    applying.local.underlay = Some(LocalUnderlay { mtu: Some(1_400), ..LocalUnderlay::new("lo") });
    let other = api::Place { underlay: Some("eth9".to_owned()), ..loopback() };
    let error = applying.create("prod", &other, |_| Ok(Vec::new())).unwrap_err().to_string();
    assert!(
        error.contains("the device `lo`") && error.contains("leave `--underlay eth9`"),
        "{error}"
    );
    // The same device is no contradiction, and the file says more of it.
    let created = applying.create("prod", &loopback(), |config| {
        assert_eq!(config.underlay.as_ref().unwrap().mtu, Some(1_400));
        Ok(Vec::new())
    });
    created.unwrap();
    assert_eq!(place(&dir).unwrap().unwrap().underlay.mtu, Some(1_400));
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn policy_of_created_fabric_fits_underlay() {
    let (mut applying, dir) = applying("policy");
    let notes = |applying: &Applying, policy: Policy| {
        let joined = applying.create("prod", &loopback(), |config| {
            assert_eq!(config.host.policy, policy);
            Ok(vec!["a note".to_owned()])
        });
        forget(&dir).unwrap();
        match joined.unwrap().answer {
            api::Answer::Member { notes, .. } => notes,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(notes(&applying, Policy::ZZ), ["a note"]);
    let udp = LocalUnderlay { kind: UnderlayKind::Udp, ..LocalUnderlay::new("lo") };
    applying.local.underlay = Some(udp);
    let said = notes(&applying, Policy::ZL);
    assert!(
        said[0].contains("policy ZL, not ZZ") && said[0].contains("no pause frames"),
        "{said:?}"
    );
    // What was said before holds.
    let value = Some("LL".into());
    applying.known = vec![Operation::Set { key: "policy".to_owned(), value }];
    assert_eq!(notes(&applying, Policy::LL), ["a note"]);
    std::fs::remove_dir_all(dir).unwrap();
}
