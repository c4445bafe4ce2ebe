use std::fs;
use std::sync::Arc;

use sluice_api::fabric::{Answer, Question};

use super::*;
use crate::fabric::certificates::{CertificateRequest, make};
use crate::fabric::tests::{
    Folder, Hand, certificates, connected, free_port, member, plan, start_at, wait_for,
};

fn told(fabric: &Fabric) -> Certificates {
    match fabric.answer(Question::Certificates) {
        Ok(Answer::Certificates(told)) => told,
        other => panic!("{other:?}"),
    }
}

fn row(fabric: &Fabric, kind: CertificateKind) -> CertificateRow {
    told(fabric).rows.into_iter().find(|row| row.kind == kind).unwrap()
}

fn renew(folder: &Path, host: &str, days: i32) {
    make(&CertificateRequest { folder, hosts: &[host.to_owned()], days, replace: true }).unwrap();
}

/// A certificate of 30 days, day by day.
#[test]
fn certificate_days_left_follow_clock_and_flag_ending() {
    let folder = Folder::new("trust-days");
    renew(&folder, "h1", 30);
    let hand = Hand::now();
    let (trust, _) = Trust::open(&plan(&folder, 1, 1, 1), hand.clone()).unwrap();
    let own = || {
        let row = trust.certificates().rows.remove(0);
        (row.days_left, row.state, row.remedy.is_some())
    };
    // It ends at midnight.
    assert_eq!(own(), (29, CertificateState::Ending, true));
    hand.pass_days(29);
    assert_eq!(own(), (0, CertificateState::Ending, true));
    hand.pass_days(1);
    assert_eq!(own(), (-1, CertificateState::Expired, true));
    let anchor = trust.certificates().rows.remove(1);
    assert_eq!((anchor.state, anchor.remedy), (CertificateState::Valid, None));

    let (early, _) = Trust::open(&plan(&folder, 1, 1, 1), Arc::new(Never)).unwrap();
    let own = early.certificates().rows.remove(0);
    assert_eq!(own.state, CertificateState::NotYet);
    assert_eq!(own.remedy.as_deref(), Some("Is the clock of this host right?"));
}

/// A clock that was never set.
#[derive(Debug)]
struct Never;

impl rustls::time_provider::TimeProvider for Never {
    fn current_time(&self) -> Option<rustls::pki_types::UnixTime> {
        None
    }
}

#[test]
fn host_with_expired_certificate_isolated_until_renewal() {
    let folder = Folder::new("trust-expired");
    certificates(&folder, &["h1", "h2"]);
    let (port, hand) = (free_port(), Hand::now());
    let plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let [h1, h2] = plans.each_ref().map(|plan| start_at(hand.clone(), &folder, plan));
    connected(&[&h1], &["h2"]);
    assert_eq!(row(&h1, CertificateKind::Member).host, "h2");

    // Open connections continue; new ones are refused.
    hand.pass_days(100);
    assert_eq!(row(&h1, CertificateKind::Own).state, CertificateState::Expired);
    assert!(member(&h1, "h2").connected);
    renew(&folder, "h1", 365);
    h1.reload_certificates().unwrap();
    assert!(member(&h1, "h2").connected, "a connection that is open goes on");
    h2.leave();
    wait_for("h2 is gone", || !member(&h1, "h2").connected);
    let h2 = start_at(hand.clone(), &folder, &plans[1]);
    let own = row(&h2, CertificateKind::Own);
    assert_eq!((own.state, own.days_left < 0), (CertificateState::Expired, true));
    let remedy = own.remedy.unwrap();
    assert!(remedy.contains("`sluice fabric cert --replace --out DIR h2`"), "{remedy}");
    assert!(remedy.contains("its ports forward with what is known"), "{remedy}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!member(&h2, "h1").connected);

    // The host loads it by itself.
    renew(&folder, "h2", 365);
    wait_for("h2 is believed again", || member(&h1, "h2").connected);
    assert_eq!(row(&h2, CertificateKind::Own).state, CertificateState::Valid);
    assert_eq!(row(&h1, CertificateKind::Member).state, CertificateState::Valid);
}

#[test]
fn unusable_certificate_file_refused_old_one_kept() {
    let folder = Folder::new("trust-broken");
    certificates(&folder, &["h1", "h2"]);
    let (port, hand) = (free_port(), Hand::now());
    let plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let [h1, h2] = plans.each_ref().map(|plan| start_at(hand.clone(), &folder, plan));
    connected(&[&h1], &["h2"]);
    let before = row(&h1, CertificateKind::Own);
    fs::copy(folder.join("h2").join(KEY), folder.join("h1").join(KEY)).unwrap();
    h1.reload_certificates().unwrap_err();
    let refused = told(&h1).refused.unwrap();
    assert!(refused.contains("host.pem and host.key do not belong together"), "{refused}");
    assert_eq!(row(&h1, CertificateKind::Own), before);
    h2.leave();
    wait_for("h2 is gone", || !member(&h1, "h2").connected);
    let h2 = start_at(hand, &folder, &plans[1]);
    wait_for("the old one is shown", || member(&h1, "h2").connected);
    renew(&folder, "h1", 100);
    h1.reload_certificates().unwrap();
    assert_eq!(told(&h1).refused, None);
    assert_eq!(row(&h1, CertificateKind::Own).days_left, 99);
    drop(h2);
}

/// Both authorities are accepted during a change of authority; the earlier end counts.
#[test]
fn authorities_follow_each_other_in_one_file() {
    let (folder, next) = (Folder::new("trust-anchors"), Folder::new("trust-anchors-next"));
    certificates(&folder, &["h1", "h2"]);
    certificates(&next, &["h2"]);
    let both = [&folder, &next].map(|folder| fs::read_to_string(folder.join(AUTHORITY)).unwrap());
    let both = both.concat();
    fs::copy(next.join("h2").join(CERTIFICATE), folder.join("h2").join(CERTIFICATE)).unwrap();
    fs::copy(next.join("h2").join(KEY), folder.join("h2").join(KEY)).unwrap();
    for host in ["h1", "h2"] {
        fs::write(folder.join(host).join(AUTHORITY), &both).unwrap();
    }
    let (port, hand) = (free_port(), Hand::now());
    let start = |own| start_at(hand.clone(), &folder, &plan(&folder, own, 2, port));
    let (h1, h2) = (start(1), start(2));
    connected(&[&h1], &["h2"]);
    drop(h2);
}

#[test]
fn certificate_files_loaded_after_two_equal_looks() {
    let stamp = |key: u64, certificate: u64| {
        [None, Some((1, certificate, 0, 0, 0)), Some((1, key, 0, 0, 0))]
    };
    let mut settled = Settled { loaded: stamp(1, 1), last: stamp(1, 1) };
    // The key changes, then the certificate; then nothing; then a file goes, and comes back.
    let looks = [
        (stamp(1, 1), false),
        (stamp(2, 1), false),
        (stamp(2, 2), false),
        (stamp(2, 2), true),
        (stamp(2, 2), false),
        ([None; 3], false),
        (stamp(2, 2), false),
        (stamp(2, 2), false),
    ];
    for (at, (now, taken)) in looks.into_iter().enumerate() {
        assert_eq!(settled.look(now), taken, "look {at}");
    }
}

#[test]
fn certificate_warning_repeats_daily_and_after_clock_reset() {
    let mut daily = Daily::default();
    let due = [(0, true), (1, false), (DAY - 1, false), (DAY, true), (DAY + 5, false), (7, true)];
    for (now, is_due) in due {
        assert_eq!(daily.is_due(now), is_due, "at {now}");
    }
}

#[test]
fn certificate_made_by_command_has_own_remedy() {
    let folder = Folder::new("trust-command");
    certificates(&folder, &["h1"]);
    let hand = Hand::now();
    hand.pass_days(89);
    let remedies = || {
        let (trust, _) = Trust::open(&plan(&folder, 1, 1, 1), hand.clone()).unwrap();
        trust.certificates().rows.remove(0).remedy.unwrap()
    };
    assert!(remedies().contains("sluice fabric cert --replace"), "{}", remedies());
    fs::copy(folder.join("ca.key"), folder.join("h1").join(AUTHORITY_KEY)).unwrap();
    assert!(remedies().contains("`sluice fabric rotate-key`"), "{}", remedies());
}

#[test]
fn certificate_made_by_command_renewed_by_its_host() {
    let folder = Folder::new("trust-renewed");
    let hand = Hand::now();
    let now = || {
        let now = rustls::time_provider::TimeProvider::current_time(&*hand).unwrap();
        i64::try_from(now.as_secs()).unwrap()
    };
    let files = Files::of(&folder);
    files.install(&crate::enroll::Credentials::create("h1", now()).unwrap()).unwrap();
    let plan = FabricPlan { certificates: files.folder(), ..plan(&folder, 1, 1, free_port()) };
    let h1 = start_at(hand.clone(), &folder, &plan);
    assert!(row(&h1, CertificateKind::Own).days_left > 300);
    hand.pass_days(340);
    assert_eq!(row(&h1, CertificateKind::Own).state, CertificateState::Ending);
    wait_for("it is renewed, and loaded", || row(&h1, CertificateKind::Own).days_left > 300);
    assert!(!files.load(now()).unwrap().renewal_due(now()));
}

#[test]
fn revoked_certificate_refused_until_renewal() {
    let folder = Folder::new("trust-revoked");
    certificates(&folder, &["h1", "h2"]);
    let (port, hand) = (free_port(), Hand::now());
    let plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let [h1, h2] = plans.each_ref().map(|plan| start_at(hand.clone(), &folder, plan));
    connected(&[&h1], &["h2"]);
    let serial = h1.serial_of("h2").unwrap();
    assert_eq!(h1.serial_of("h3"), None);
    // Each member refuses it by itself, whoever began the connection.
    h2.revoke([h2.serial_of("h1").unwrap()].into());
    wait_for("h1 is refused", || !member(&h2, "h1").connected);
    h2.revoke(BTreeSet::new());
    wait_for("h1 is believed again", || member(&h1, "h2").connected);
    h1.revoke([serial].into());
    wait_for("its open connection ends", || !member(&h1, "h2").connected);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!member(&h1, "h2").connected && !member(&h2, "h1").connected);
    renew(&folder, "h2", 365);
    h2.reload_certificates().unwrap();
    wait_for("h2 has another one", || member(&h1, "h2").connected);
}

/// An authority follows another one: a connection that began with the old one does not outlive it.
#[test]
fn connection_of_removed_authority_ends_until_renewal() {
    let folder = Folder::new("trust-removed");
    certificates(&folder, &["h1", "h2"]);
    let new = folder.join("new");
    let hosts = ["h1", "h2"].map(str::to_owned);
    make(&CertificateRequest { folder: &new, hosts: &hosts, days: 365, replace: false }).unwrap();
    let (port, hand) = (free_port(), Hand::now());
    let plans = [1, 2].map(|own| plan(&folder, own, 2, port));
    let [h1, h2] = plans.each_ref().map(|plan| start_at(hand.clone(), &folder, plan));
    connected(&[&h1], &["h2"]);
    let both = [&*folder, &*new].map(|from| fs::read_to_string(from.join(AUTHORITY)).unwrap());
    for host in &hosts {
        fs::write(folder.join(host).join(AUTHORITY), both.concat()).unwrap();
    }
    let renewed = |fabric: &Fabric, host: &str| {
        for file in [CERTIFICATE, KEY] {
            fs::copy(new.join(host).join(file), folder.join(host).join(file)).unwrap();
        }
        fabric.reload_certificates().unwrap();
    };
    h2.reload_certificates().unwrap();
    renewed(&h1, "h1");
    assert!(member(&h1, "h2").connected, "both authorities are trusted");
    fs::copy(new.join(AUTHORITY), folder.join("h1").join(AUTHORITY)).unwrap();
    h1.reload_certificates().unwrap();
    wait_for("the old certificate of h2 is not believed", || !member(&h1, "h2").connected);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(!member(&h1, "h2").connected && !member(&h2, "h1").connected);
    renewed(&h2, "h2");
    wait_for("h2 has another one", || member(&h1, "h2").connected);
}
