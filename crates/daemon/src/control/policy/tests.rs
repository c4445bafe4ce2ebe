use std::collections::BTreeSet;
use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

use sluice_api::placement::{Followed, Mode, PolicyFile, Stamped, VERSION_MAX};
use sluice_base::Prng;

use super::*;
use crate::fabric::PolicyServer as _;
use crate::fabric::tests::{Folder, two_that_hold};
use crate::ipc::protocol::{self, Request};

fn of(mode: Mode) -> Policy {
    Policy { mode: Some(mode), ..Policy::default() }
}

fn held(folder: &Folder, own: u16) -> Held {
    let dir = folder.join(format!("h{own}"));
    std::fs::create_dir_all(&dir).unwrap();
    Held::open(&format!("h{own}"), own, &dir)
}

/// Lets one host ask another for its policy, as over the fabric.
fn ask(from: &Held, to: &Held) {
    let question = Asked { stamp: from.now().stamp, wants_status: false };
    let answer = to.answer(HostId(0), &serde_json::to_vec(&question).unwrap()).unwrap();
    let heard = ReceivedAnswer::read(&answer).unwrap();
    if let Some(policy) = heard.policy {
        from.offer(heard.stamp, policy.unwrap()).unwrap();
    }
}

/// Returns the questions to a data process, one after the other, each with the stream for its
/// answer.
fn data(dir: &Path) -> Receiver<(Stamped, UnixStream)> {
    let listener = UnixListener::bind(dir.join("data.sock")).unwrap();
    let (sender, asked) = sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let Ok(Some(Request::Follow(stamped))) = protocol::read_request(&mut reader) else {
                continue;
            };
            if sender.send((*stamped, stream)).is_err() {
                return;
            }
        }
    });
    asked
}

/// Answers like a data process without places.
fn follow(asked: Receiver<(Stamped, UnixStream)>) {
    std::thread::spawn(move || {
        for (_, stream) in asked {
            _ = protocol::write(&stream, &Followed::default());
        }
    });
}

#[test]
fn placement_policy_persists_across_restart_in_readable_file() {
    let folder = Folder::new("controller-file");
    let first = held(&folder, 7);
    assert_eq!(first.now(), Stamped::default());
    let stamp = first.set(of(Mode::Rss)).unwrap();
    assert_eq!((stamp.version, stamp.by), (1, 7));
    let again = held(&folder, 7);
    assert_eq!(again.now(), first.now());
    let text = std::fs::read(folder.join("h7/placement.json")).unwrap();
    let kept: PolicyFile = serde_json::from_slice(&text).unwrap();
    assert_eq!((kept.host.as_str(), kept.stamped), ("h7", first.now()));
}

#[test]
fn broken_policy_file_set_aside_noted_until_replaced() {
    let folder = Folder::new("controller-broken");
    let path = folder.join("h1/placement.json");
    let too_high = PolicyFile {
        host: "h1".to_owned(),
        stamped: Stamped {
            stamp: PolicyVersion { version: VERSION_MAX + 1, by: 1, at_ms: 0 },
            policy: Policy::default(),
        },
        held: None,
    };
    for text in ["{\"host\":".to_owned(), serde_json::to_string(&too_high).unwrap()] {
        held(&folder, 1).set(of(Mode::Rss)).unwrap();
        std::fs::write(&path, &text).unwrap();
        let held = held(&folder, 1);
        assert_eq!(held.now(), Stamped::default());
        let aside = std::fs::read_to_string(folder.join("h1/placement.json.broken")).unwrap();
        assert_eq!((aside, path.exists()), (text, false));
        let says = || held.status(Duration::ZERO).notes.join("; ").contains("cannot be read");
        assert!(says());
        held.set(of(Mode::Rss)).unwrap();
        assert!(!says());
    }
}

#[test]
fn what_cannot_be_written_does_not_hold() {
    let folder = Folder::new("controller-full");
    let held = held(&folder, 1);
    std::fs::remove_dir_all(folder.join("h1")).unwrap();
    let error = held.set(of(Mode::Rss)).unwrap_err();
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(held.now(), Stamped::default());
}

#[test]
fn policy_with_invalid_cpu_refused_locally_and_remotely() {
    let folder = Folder::new("controller-bad");
    let held = held(&folder, 1);
    let bad = Policy { excluded_cpus: [9_999].into(), ..Policy::default() };
    assert!(held.set(bad.clone()).unwrap_err().contains("CPU 9999"));
    assert!(
        held.offer(PolicyVersion { version: 9, by: 2, at_ms: 0 }, bad)
            .unwrap_err()
            .contains("CPU 9999")
    );
    assert_eq!(held.now(), Stamped::default());
}

#[test]
fn policy_impossible_version_ignored_maximal_version_final() {
    let folder = Folder::new("controller-version");
    let controller = Controller { held: Arc::new(held(&folder, 1)), fabric: None };
    let held = &controller.held;
    let hear = |version: u64| {
        let text =
            format!("{{\"stamp\":{{\"version\":{version},\"by\":2,\"at_ms\":0}},\"policy\":{{}}}}");
        controller.hear(HostId(2), text.as_bytes()).unwrap();
    };
    for version in [u64::MAX, VERSION_MAX + 1] {
        hear(version);
        assert_eq!((held.now(), held.refusal()), (Stamped::default(), None));
        assert!(held.troubles().join("; ").contains(&version.to_string()));
    }
    held.set(of(Mode::Rss)).unwrap();
    hear(VERSION_MAX);
    assert_eq!(held.now().stamp.version, VERSION_MAX);
    assert!(held.set(of(Mode::Rss)).unwrap_err().contains("no version above"));
}

#[test]
fn policy_question_from_newer_member_triggers_question_back() {
    let folder = Folder::new("controller-hint");
    let (old, new) = (held(&folder, 1), held(&folder, 2));
    new.set(of(Mode::Rss)).unwrap();
    let question = Asked { stamp: new.now().stamp, wants_status: false };
    old.answer(HostId(2), &serde_json::to_vec(&question).unwrap()).unwrap();
    assert_eq!(old.wait(Duration::ZERO), Some(HostId(2)));
    assert_eq!(old.wait(Duration::ZERO), None, "a hint is taken once");
}

/// Hosts set policies and ask each other in random orders; in the end all hold the same policy,
/// which is the last one that some host set.
#[test]
fn all_come_to_hold_the_same() {
    let modes = [Mode::Rss, Mode::RssPlusPlus, Mode::OnTheFly];
    let mut conflicts = 0;
    // Each policy is written to disk.
    for seed in 0..12 {
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
        let stamps: BTreeSet<PolicyVersion> = hosts.iter().map(|host| host.now().stamp).collect();
        let versions: BTreeSet<u64> = stamps.iter().map(|stamp| stamp.version).collect();
        conflicts += usize::from(versions.len() < stamps.len());
        let greatest = hosts.iter().map(Held::now).max_by_key(|held| held.stamp).unwrap();
        // Each asks each once: every policy has reached all.
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
fn policy_from_member_persists_across_restart() {
    let folder = Folder::new("controller-told");
    let (first, other) = (held(&folder, 1), held(&folder, 2));
    first.set(of(Mode::Rss)).unwrap();
    ask(&other, &first);
    assert_eq!((other.now(), held(&folder, 2).now()), (first.now(), first.now()));
}

/// A host that lost its directory knows no version, and sets one that others have already.
#[test]
fn who_has_forgotten_and_sets_anew_is_followed() {
    let (folder, lost) = (Folder::new("controller-lost"), Folder::new("controller-lost-anew"));
    let (first, other) = (held(&folder, 1), held(&folder, 2));
    first.set(of(Mode::Rss)).unwrap();
    ask(&other, &first);
    let before = first.now();
    let anew = held(&lost, 1);
    std::thread::sleep(Duration::from_millis(2));
    anew.set(of(Mode::OnTheFly)).unwrap();
    assert_eq!(anew.now().stamp.version, before.stamp.version);
    ask(&other, &anew);
    ask(&anew, &other);
    assert_eq!((other.now(), anew.now().policy), (anew.now(), of(Mode::OnTheFly)));
}

#[test]
fn steer_status_shown_while_file_is_fresh() {
    use sluice_api::placement::{PlaceStatus, Steered};
    let folder = Folder::new("controller-steer");
    let held = held(&folder, 1);
    let place = PlaceStatus { name: "eth0".to_owned(), ..PlaceStatus::default() };
    let notes = vec!["no core is left".to_owned()];
    let text = serde_json::to_string(&Steered { place: place.clone(), notes }).unwrap();
    let file = folder.join("h1/steer-eth0.json");
    std::fs::write(&file, text).unwrap();
    std::fs::write(folder.join("h1/steer-eth1.json"), "{").unwrap();
    let status = held.status(Duration::ZERO);
    assert_eq!(status.places, [place]);
    let says = |what: &str| status.notes.iter().any(|note| note.contains(what));
    assert!(says("eth0: no core is left") && says("steer-eth1.json cannot be read"), "{status:?}");
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
    let status = held.status(Duration::ZERO);
    assert_eq!(status.places, []);
    assert!(status.notes.iter().any(|note| note.contains("eth0 is not steered any more")));
}

#[test]
fn a_status_fits_into_an_answer() {
    use sluice_api::placement::{CpuStatus, PlaceStatus, Status};
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

#[test]
fn unknown_newer_policy_noted_and_local_set_refused() {
    let folder = Folder::new("controller-later");
    let controller = Controller { held: Arc::new(held(&folder, 1)), fabric: None };
    let text = r#"{"stamp":{"version":5,"by":2,"at_ms":0},"policy":{"mode":"psychic"}}"#;
    let heard = controller.hear(HostId(2), text.as_bytes()).unwrap();
    assert_eq!((heard.stamp.version, controller.held.now()), (5, Stamped::default()));
    let notes = controller.held.status(Duration::ZERO).notes.join("; ");
    assert!(notes.contains("psychic") && notes.contains("update this host"), "{notes}");
    let error = controller.set(of(Mode::Rss), LIMITS).unwrap_err();
    assert!(error.contains("version 5 of host 2 holds"), "{error}");
    assert_eq!(controller.held.now(), Stamped::default());
    // An answer that cannot be read at all is reported, too, and is no obstacle.
    assert_eq!(controller.hear(HostId(2), b"{}").unwrap_err(), Silence::Unread);
    assert!(controller.held.troubles().join("; ").contains("update this host"));
    assert_eq!(controller.held.refusal(), None);
    controller.hear(HostId(2), text.as_bytes()).unwrap();
    assert!(controller.held.refusal().is_some());
    controller.held.forget_others(&[HostId(2), HostId(3)]);
    assert!(controller.held.refusal().is_some(), "it is a member");
    controller.held.forget_others(&[HostId(3)]);
    assert_eq!(controller.held.refusal(), None, "it is one no more");
    let text = text.replace("psychic", "rss").replace(":5", ":6");
    controller.hear(HostId(2), text.as_bytes()).unwrap();
    assert_eq!(controller.held.troubles(), Vec::<String>::new());
    assert_eq!(controller.held.now().policy, of(Mode::Rss));
}

#[test]
fn policy_write_failure_noted_until_write_succeeds() {
    let folder = Folder::new("controller-refused");
    let controller = Controller { held: Arc::new(held(&folder, 1)), fabric: None };
    std::fs::remove_dir_all(folder.join("h1")).unwrap();
    let text = r#"{"stamp":{"version":5,"by":2,"at_ms":0},"policy":{"mode":"rss"}}"#;
    for member in [2, 3, 3] {
        controller.hear(HostId(member), text.as_bytes()).unwrap();
    }
    let troubles = controller.held.troubles();
    assert!(troubles.len() == 1 && troubles[0].contains("cannot write"), "{troubles:?}");
    assert!(controller.held.status(Duration::ZERO).notes.contains(&troubles[0]));
    std::fs::create_dir_all(folder.join("h1")).unwrap();
    controller.hear(HostId(3), text.as_bytes()).unwrap();
    assert_eq!(controller.held.troubles(), Vec::<String>::new());
}

#[test]
fn whose_data_is_silent_does_not_follow() {
    let folder = Folder::new("controller-silent");
    let held = held(&folder, 1);
    assert!(!held.status(Duration::from_secs(1)).follows);
    follow(data(&folder.join("h1")));
    assert!(held.status(Duration::from_secs(1)).follows);
}

/// Data must not receive a policy after a newer one.
#[test]
fn policy_messages_to_data_never_overlap() {
    let folder = Folder::new("controller-turns");
    let held = &held(&folder, 1);
    let asked = data(&folder.join("h1"));
    let first = held.set(of(Mode::Rss)).unwrap();
    std::thread::scope(|scope| {
        let tell = || scope.spawn(|| held.tell_data(told::DATA_MAX));
        let slow = tell();
        let (stamped, reply) = asked.recv().unwrap();
        assert_eq!(stamped.stamp, first);
        let second = held.set(of(Mode::OnTheFly)).unwrap();
        let next = tell();
        // A second question would arrive at once, and the slow one would be read last.
        let early = asked.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "a second question while the first one is open: {early:?}");
        protocol::write(&reply, &Followed::default()).unwrap();
        let (stamped, reply) = asked.recv().unwrap();
        assert_eq!(stamped.stamp, second);
        protocol::write(&reply, &Followed::default()).unwrap();
        assert!(slow.join().unwrap().is_ok() && next.join().unwrap().is_ok());
    });
}

/// Another host sets a policy at the same time.
#[test]
fn policy_set_concurrently_error_names_winning_version() {
    let folder = Folder::new("controller-gone");
    let held = Arc::new(held(&folder, 1));
    let (asked, also) = (data(&folder.join("h1")), Arc::clone(&held));
    std::thread::spawn(move || {
        for (stamped, reply) in asked {
            let stamp = PolicyVersion { by: 2, ..stamped.stamp };
            _ = also.offer(stamp, of(Mode::OnTheFly));
            _ = protocol::write(&reply, &Followed::default());
        }
    });
    let controller = Controller { held, fabric: None };
    let error = controller.set(of(Mode::Rss), LIMITS).unwrap_err();
    assert!(error.contains("version 1 of host 2 holds instead of version 1 of host 1"), "{error}");
}

/// As after a restart of a machine whose directory is in memory.
#[test]
fn policy_set_after_restart_exceeds_version_of_member() {
    let folder = Folder::new("controller-learn");
    let [(fabric, anew), (_other, known)] = two_that_hold(&folder);
    follow(data(&folder.join("run-h1")));
    known.offer(PolicyVersion { version: 10, by: 2, at_ms: 0 }, of(Mode::OnTheFly)).unwrap();
    let controller = Controller { held: anew, fabric: Some(fabric) };
    let long = Duration::from_secs(20);
    let limits = Limits { learn: long, ask_again: Duration::ZERO, answer: long };
    let answer = controller.set(of(Mode::Rss), limits).unwrap();
    assert_eq!((answer.stamped.stamp.version, answer.stamped.stamp.by), (11, 1));
    assert_eq!(answer.stamped.policy, of(Mode::Rss));
    // No host asks for the other policy here.
    let of_hosts: Vec<_> =
        answer.hosts.iter().map(|host| (host.stamp.unwrap().version, host.follows)).collect();
    assert_eq!(of_hosts, [(11, true), (10, false)]);
}

/// Returns a policy of a fabric's configuration.
fn committed(version: u64, mode: Mode) -> Stamped {
    Stamped { stamp: PolicyVersion { version, by: 2, at_ms: 7 }, policy: of(mode) }
}

#[test]
fn committed_policy_wins_over_newer_of_member() {
    let folder = Folder::new("controller-committed");
    let (own, other) = (Arc::new(held(&folder, 1)), held(&folder, 2));
    let first = committed(1, Mode::Rss);
    assert_eq!(own.commit(Some(&first)), Ok(true));
    assert_eq!(own.commit(Some(&first)), Ok(false), "it holds already");
    let newer = PolicyVersion { version: 9, by: 2, at_ms: 0 };
    other.offer(newer, of(Mode::OnTheFly)).unwrap();
    assert_eq!(own.offer(newer, of(Mode::OnTheFly)), Ok(false));
    let text = serde_json::to_string(&other.now()).unwrap();
    let controller = Controller { held: Arc::clone(&own), fabric: None };
    controller.hear(HostId(2), text.as_bytes()).unwrap();
    // One that only a later version can read does not matter either.
    controller.hear(HostId(2), text.replace("on-the-fly", "psychic").as_bytes()).unwrap();
    assert_eq!((own.now(), own.troubles()), (first, Vec::new()));
    // Nobody is told it as one of those that members hold among themselves.
    let asked = Asked { stamp: PolicyVersion::default(), wants_status: false };
    let body = serde_json::to_vec(&asked).unwrap();
    let answer = own.answer(HostId(2), &body).unwrap();
    assert!(ReceivedAnswer::read(&answer).unwrap().policy.is_none());
    assert!(controller.show(Some(&[]), Instant::now()).0.committed);
}

#[test]
fn held_policy_returns_when_configuration_has_none() {
    let folder = Folder::new("controller-uncommitted");
    let own = held(&folder, 1);
    own.set(of(Mode::Rss)).unwrap();
    let before = own.now();
    for committed in [committed(2, Mode::OnTheFly), committed(1, Mode::Rss)] {
        own.commit(Some(&committed)).unwrap();
        // Another process of the host begins with both.
        let after = held(&folder, 1);
        assert_eq!((after.now(), after.commit(Some(&committed))), (committed.clone(), Ok(false)));
        assert_eq!(own.now(), committed);
    }
    assert_eq!(own.version(), 2, "the next one is above all before");
    let after = held(&folder, 1);
    after.commit(None).unwrap();
    assert_eq!((after.now(), held(&folder, 1).now()), (before.clone(), before));
}

#[test]
fn committed_policy_is_written_when_disk_allows() {
    let folder = Folder::new("controller-unwritten");
    let own = held(&folder, 1);
    std::fs::remove_dir_all(folder.join("h1")).unwrap();
    let first = committed(1, Mode::Rss);
    let why = own.put_in_force(Some(&first)).unwrap_err();
    assert!(why.contains("cannot write"), "{why}");
    assert_eq!(own.now(), first, "it holds all the same");
    std::fs::create_dir_all(folder.join("h1")).unwrap();
    own.put_in_force(Some(&first)).unwrap();
    assert_eq!(held(&folder, 1).now(), first);
}
