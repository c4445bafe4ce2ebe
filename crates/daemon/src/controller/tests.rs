use sluice_api::placement::{Kept, PlacementMode, Stamped};
use sluice_base::Prng;

use super::*;
use crate::fabric::tests::Folder;

fn of(mode: PlacementMode) -> Policy {
    Policy { mode: Some(mode), ..Policy::default() }
}

fn held(folder: &Folder, own: u16) -> Held {
    let dir = folder.join(format!("h{own}"));
    std::fs::create_dir_all(&dir).unwrap();
    Held::open(&format!("h{own}"), own, &dir).unwrap()
}

/// One asks another which it holds, as over the fabric.
fn ask(from: &Held, to: &Held) {
    let question = Asked { stamp: from.now().stamp, wants_status: false };
    let answer = to.serve(HostId(0), &serde_json::to_vec(&question).unwrap()).unwrap();
    let told = Told::read(&answer).unwrap();
    if let Some(policy) = told.policy {
        from.offer(told.stamp, policy).unwrap();
    }
}

#[test]
fn what_was_set_is_there_after_a_restart_and_for_others_to_read() {
    let folder = Folder::new("controller-file");
    let first = held(&folder, 7);
    assert_eq!(first.now(), Stamped::default());
    let stamp = first.set(of(PlacementMode::Rss)).unwrap();
    assert_eq!((stamp.version, stamp.by), (1, 7));
    let again = held(&folder, 7);
    assert_eq!(again.now(), first.now());
    let text = std::fs::read(folder.join("h7/placement.json")).unwrap();
    let kept: Kept = serde_json::from_slice(&text).unwrap();
    assert_eq!((kept.host.as_str(), kept.stamped), ("h7", first.now()));
}

#[test]
fn a_broken_file_is_named() {
    let folder = Folder::new("controller-broken");
    held(&folder, 1).set(of(PlacementMode::Rss)).unwrap();
    let path = folder.join("h1/placement.json");
    std::fs::write(&path, "{\"host\":").unwrap();
    let error = Held::open("h1", 1, path.parent().unwrap()).unwrap_err();
    assert!(format!("{error:#}").contains("placement.json is not what this program wrote"));
}

#[test]
fn what_cannot_be_written_does_not_hold() {
    let folder = Folder::new("controller-full");
    let held = held(&folder, 1);
    std::fs::remove_dir_all(folder.join("h1")).unwrap();
    let error = held.set(of(PlacementMode::Rss)).unwrap_err();
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(held.now(), Stamped::default());
}

#[test]
fn what_is_too_much_is_refused_from_whomever_it_comes() {
    let folder = Folder::new("controller-bad");
    let held = held(&folder, 1);
    let bad = Policy { excluded_cpus: [9_999].into(), ..Policy::default() };
    assert!(held.set(bad.clone()).unwrap_err().contains("CPU 9999"));
    assert!(
        held.offer(Stamp { version: 9, by: 2, at_ms: 0 }, bad).unwrap_err().contains("CPU 9999")
    );
    assert_eq!(held.now(), Stamped::default());
    held.offer(Stamp { version: u64::MAX, by: 2, at_ms: 0 }, of(PlacementMode::Rss)).unwrap();
    assert!(held.set(of(PlacementMode::Rss)).unwrap_err().contains("no policy above"));
}

#[test]
fn who_is_asked_by_a_newer_one_asks_back_at_once() {
    let folder = Folder::new("controller-hint");
    let (old, new) = (held(&folder, 1), held(&folder, 2));
    new.set(of(PlacementMode::Rss)).unwrap();
    let question = Asked { stamp: new.now().stamp, wants_status: false };
    old.serve(HostId(2), &serde_json::to_vec(&question).unwrap()).unwrap();
    assert_eq!(old.wait(Duration::ZERO), Some(HostId(2)));
    assert_eq!(old.wait(Duration::ZERO), None, "a hint is taken once");
}

/// Hosts set policies and ask each other in orders that are drawn; in the end all hold the same,
/// and it is one that was set last by somebody.
#[test]
fn all_come_to_hold_the_same() {
    let modes = [PlacementMode::Rss, PlacementMode::RssPlusPlus, PlacementMode::OnTheFly];
    let mut conflicts = 0;
    for seed in 0..40 {
        let mut prng = Prng::new(seed);
        let folder = Folder::new(&format!("controller-converge-{seed}"));
        let hosts: Vec<Held> = (1..=4).map(|own| held(&folder, own)).collect();
        let mut draw = |below: u64| usize::try_from(prng.below(below)).unwrap();
        for _ in 0..30 {
            let (a, b) = (draw(4), draw(4));
            match draw(3) {
                0 => _ = hosts[a].set(of(modes[draw(3)])).unwrap(),
                _ => ask(&hosts[a], &hosts[b]),
            }
        }
        let stamps: BTreeSet<_> = hosts.iter().map(|host| host.now().stamp.version).collect();
        conflicts += usize::from(stamps.len() < 4);
        let greatest = hosts.iter().map(Held::now).max_by_key(|held| held.stamp).unwrap();
        // Each asks each once: what anybody holds has come to all.
        for _ in 0..2 {
            for a in &hosts {
                hosts.iter().for_each(|b| ask(a, b));
            }
        }
        for host in &hosts {
            assert_eq!(host.now(), greatest, "seed {seed}");
        }
    }
    assert!(conflicts > 0, "two set at once somewhere");
}

#[test]
fn who_is_told_keeps_it() {
    let folder = Folder::new("controller-told");
    let (first, other) = (held(&folder, 1), held(&folder, 2));
    first.set(of(PlacementMode::Rss)).unwrap();
    ask(&other, &first);
    assert_eq!((other.now(), held(&folder, 2).now()), (first.now(), first.now()));
}

/// A host that lost its directory knows no version, and sets one that others have already.
#[test]
fn who_has_forgotten_and_sets_anew_is_followed() {
    let (folder, lost) = (Folder::new("controller-lost"), Folder::new("controller-lost-anew"));
    let (first, other) = (held(&folder, 1), held(&folder, 2));
    first.set(of(PlacementMode::Rss)).unwrap();
    ask(&other, &first);
    let before = first.now();
    let anew = held(&lost, 1);
    std::thread::sleep(Duration::from_millis(2));
    anew.set(of(PlacementMode::OnTheFly)).unwrap();
    assert_eq!(anew.now().stamp.version, before.stamp.version);
    ask(&other, &anew);
    ask(&anew, &other);
    assert_eq!((other.now(), anew.now().policy), (anew.now(), of(PlacementMode::OnTheFly)));
}

#[test]
fn what_steers_the_kernel_beside_is_shown_while_it_writes() {
    use sluice_api::placement::{PlaceStatus, Steered};
    let folder = Folder::new("controller-steer");
    let held = held(&folder, 1);
    let place = PlaceStatus { name: "eth0".to_owned(), ..PlaceStatus::default() };
    let notes = vec!["no core is left".to_owned()];
    let text = serde_json::to_string(&Steered { place: place.clone(), notes }).unwrap();
    let file = folder.join("h1/steer-eth0.json");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.join("h1/steer-eth1.json"), "{").unwrap();
    let status = held.status();
    assert_eq!(status.places, [place]);
    let says = |what: &str| status.notes.iter().any(|note| note.contains(what));
    assert!(says("eth0: no core is left") && says("steer-eth1.json cannot be read"), "{status:?}");
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    let status = held.status();
    assert_eq!(status.places, []);
    assert!(status.notes.iter().any(|note| note.contains("eth0 is not steered any more")));
}

#[test]
fn a_status_fits_into_an_answer() {
    use sluice_api::placement::{CpuStatus, PlaceStatus};
    use sluice_wire::fabric::ANSWER_SIZE_MAX;
    let cpu =
        CpuStatus { cpu: Some(4095), worker: Some(65_535), excluded: true, ..CpuStatus::default() };
    let place = PlaceStatus {
        name: "a-device-name15".to_owned(),
        kind: "workers".to_owned(),
        mode: "predetermined".to_owned(),
        cpus: vec![cpu; 100],
        ..PlaceStatus::default()
    };
    let status = Status {
        host: "h".repeat(64),
        places: vec![place; 20],
        notes: vec!["ä".repeat(500); 50],
        ..Status::default()
    };
    let bounded = talk::bounded(status);
    let size = serde_json::to_vec(&bounded).unwrap().len();
    assert!(size + 256 < ANSWER_SIZE_MAX, "{size} bytes");
    assert!(bounded.notes.iter().any(|note| note.contains("more CPUs")));
}
