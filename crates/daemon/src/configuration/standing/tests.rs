//! Tests of the standing of a host.

use sluice_api::fabric_config::{Member, Role, write_change};
use sluice_control::commit::TxnId;

use super::*;

const SEAT: u64 = 0xabc;

fn add(name: &str, id: u16, seat: u64) -> Operation {
    let vtep = [10, 0, 0, u8::try_from(id).unwrap()].into();
    let member = Member { id, seat, vtep, address: None, role: Role::Auto };
    Operation::AddMember { name: name.to_owned(), member }
}

fn remove(name: &str) -> Operation {
    Operation::RemoveMember { name: name.to_owned() }
}

fn revoke(serial: &str) -> Operation {
    Operation::Revoke { serial: serial.to_owned(), host: "h3".to_owned() }
}

fn asker() -> Asker {
    Asker { name: "h3".to_owned(), id: 3, seat: SEAT, serial: "5e".to_owned() }
}

/// Transactions of h1, from revision 1, and the configuration that they make.
fn fabric(changes: &[Vec<Operation>]) -> (FabricConfig, Vec<Transaction>) {
    let mut config = FabricConfig::new("prod").unwrap();
    config.apply(&[add("h1", 1, 1)]).unwrap();
    let transactions = changes.iter().zip(1..).map(|(change, revision)| {
        config.apply(change).unwrap();
        Transaction {
            revision,
            id: TxnId { host: HostId(1), incarnation: 1, number: revision },
            undoes: false,
            author: "h1".to_owned(),
            time_ms: 1_000 * revision,
            comment: String::new(),
            votes: Vec::new(),
            change: write_change(change),
            inverse: Vec::new(),
            outcome: Outcome::Applied,
        }
    });
    let transactions = transactions.collect();
    (config, transactions)
}

fn by_h1(revision: u64) -> Eviction {
    let (by, at_ms) = (Some("h1".to_owned()), Some(1_000 * revision));
    Eviction { revision: Some(revision), by, at_ms }
}

#[test]
fn standing_follows_certificate_log_and_members() {
    let joined = vec![add("h3", 3, SEAT)];
    let again = vec![add("h3", 3, SEAT + 1)];
    let cases = [
        ("a member", vec![joined.clone()], 0, Standing::Member),
        ("evicted", vec![joined.clone(), vec![remove("h3")]], 0, Standing::Evicted(by_h1(2))),
        (
            "its certificate is revoked",
            vec![joined.clone(), vec![remove("h3"), revoke("5e")]],
            2,
            Standing::Evicted(Eviction::default()),
        ),
        (
            "the log has forgotten its join",
            vec![joined.clone(), vec![remove("h3")]],
            1,
            Standing::Missing(by_h1(2)),
        ),
        (
            "the log has forgotten all",
            vec![joined.clone(), vec![remove("h3")]],
            2,
            Standing::Missing(Eviction::default()),
        ),
        (
            "another disk is the member now",
            vec![joined, vec![remove("h3")], again.clone()],
            0,
            Standing::Evicted(by_h1(2)),
        ),
        (
            "the membership that ended was another one",
            vec![again, vec![remove("h3")]],
            0,
            Standing::Missing(by_h1(2)),
        ),
    ];
    for (what, changes, forgotten, expected) in cases {
        let (config, log) = fabric(&changes);
        assert_eq!(standing(&config, log[forgotten..].iter(), &asker()), expected, "{what}");
    }
}

#[test]
fn standing_ignores_refused_transactions() {
    let (config, mut log) = fabric(&[vec![add("h3", 3, SEAT)]]);
    let refused = Outcome::Refused("it came too late".to_owned());
    log.push(Transaction {
        change: write_change(&[remove("h3")]),
        outcome: refused,
        ..log[0].clone()
    });
    let away = FabricConfig::new("prod").unwrap();
    assert_eq!(standing(&config, log.iter(), &asker()), Standing::Member);
    let missing = Standing::Missing(Eviction::default());
    assert_eq!(standing(&away, log.iter(), &asker()), missing);
}

fn answer(revision: u64, standing: Standing) -> StandingAnswer {
    StandingAnswer { revision, standing }
}

#[test]
fn missing_believed_only_of_later_revision() {
    let missing = |revision| answer(revision, Standing::Missing(Eviction::default()));
    assert!(believed(Some(7), &missing(8)).is_some());
    // A member that has not caught up does not know a host that has just joined.
    assert!(believed(Some(7), &missing(7)).is_none());
    assert!(believed(Some(7), &missing(6)).is_none());
    assert!(believed(None, &missing(8)).is_none());
    assert!(believed(None, &answer(1, Standing::Evicted(by_h1(1)))).is_some());
    assert!(believed(Some(7), &answer(9, Standing::Member)).is_none());
}

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

#[test]
fn lone_host_asks_after_pause_then_rarely() {
    let mut own = OwnStanding::default();
    assert!(!own.tick(at(0), false));
    let asks = (0..200).filter(|step| own.tick(at(1_000 + 500 * step), true));
    assert_eq!(asks.collect::<Vec<_>>(), [10, 70, 130, 190]);
    // A connection begins it anew, and an open question keeps the next round away.
    assert!(!own.tick(at(200_000), false));
    assert!(!own.tick(at(204_000), true));
    own.open = 1;
    assert!(!own.tick(at(300_000), true));
    own.open = 0;
    assert!(own.tick(at(300_500), true));
}

#[test]
fn host_that_departs_asks_without_pause() {
    let mut own = OwnStanding::default();
    own.departs(true);
    assert!(!own.tick(at(0), false), "those who are connected answer");
    assert!(own.tick(at(500), true) && own.tick(at(1_000), true));
    own.departs(false);
    assert!(!own.tick(at(1_500), true));
}

#[test]
fn round_takes_members_in_turn() {
    let mut own = OwnStanding::default();
    assert_eq!(own.choose(&[1, 2, 4, 5]), [1, 2, 4]);
    assert_eq!(own.choose(&[1, 2, 4, 5]), [5, 1, 2]);
    // Member 4 has gone, member 6 has come.
    assert_eq!(own.choose(&[1, 2, 5, 6]), [5, 1, 2]);
    assert_eq!(own.choose(&[1, 2, 5, 6]), [6, 5, 1]);
    assert_eq!(own.choose(&[]), Vec::<u16>::new());
}

#[test]
fn answer_of_latest_revision_holds() {
    let mut own = OwnStanding::default();
    let evicted = answer(18, Standing::Evicted(by_h1(18)));
    assert!(!own.take(Some(9), "h1", &evicted), "a connected host asks nobody");
    own.tick(at(0), true);
    assert!(!own.take(Some(9), "h2", &answer(12, Standing::Member)));
    assert!(own.take(Some(9), "h1", &evicted));
    assert!(!own.take(Some(9), "h2", &answer(17, Standing::Member)), "it has not caught up");
    assert_eq!(own.evicted().map(|known| known.told_by.as_str()), Some("h1"));
    assert!(!own.take(Some(9), "h2", &evicted), "it was told before");
    assert!(own.take(Some(9), "h2", &answer(20, Standing::Member)));
    assert_eq!(own.evicted(), None);
}

#[test]
fn eviction_words_name_cause_and_remedy() {
    let evicted = Evicted {
        told_by: "h2".to_owned(),
        by: Some("h1".to_owned()),
        at_ms: Some(1_767_225_600_000),
        revision: Some(18),
    };
    let text = eviction_in_words("prod", "h3", &evicted);
    assert!(
        text.starts_with(
            "this host was evicted from fabric prod by h1 at 2026-01-01T00:00:00.000Z in revision \
             18, says h2; "
        ),
        "{text}"
    );
    assert!(text.contains("`sluice fabric leave --forget`"), "{text}");
    let unknown = Evicted { by: None, at_ms: None, revision: None, ..evicted.clone() };
    let text = eviction_in_words("prod", "h3", &unknown);
    assert!(text.starts_with("this host was evicted from fabric prod, says h2; "), "{text}");
    let text = eviction_in_words("prod", "h1", &evicted);
    assert!(text.starts_with("this host has left fabric prod at "), "{text}");
}

#[test]
fn host_announced_once_known_never_while_evicted() {
    let mut own = OwnStanding::default();
    let at = |ms: u64| Nanos::from_millis(1_000_000 + ms);
    assert!(!own.may_announce());
    // Alone from its start on: not before a member that is there would have denied it.
    own.tick(at(0), true);
    assert!(!own.becomes_known(at(14_999)) && !own.may_announce());
    assert!(own.becomes_known(at(15_000)) && own.may_announce());
    assert!(!own.becomes_known(at(15_001)), "once");
    // Connected: at once.
    let mut own = OwnStanding::default();
    own.tick(at(0), false);
    assert!(own.becomes_known(at(0)) && own.may_announce());
    let (told_by, by, at_ms, revision) = ("h1".to_owned(), None, None, None);
    own.evicted = Some(Evicted { told_by, by, at_ms, revision });
    assert!(!own.may_announce());
}
