use std::vec::Vec;

use proptest::prelude::*;
use sluice_base::{Mac, PortId, Vni};

use super::*;
use crate::bridge::LEAP_MAX;
use crate::vport::Ips;

const ME: HostId = HostId(5);
const OTHER: HostId = HostId(2);
const THIRD: HostId = HostId(3);

fn seconds(seconds: u64) -> Nanos {
    Nanos::from_millis(seconds * 1000)
}

fn key(number: u64) -> Key {
    Key { vni: Vni::new(7).unwrap(), mac: Mac::from_u64(number) }
}

fn claim(port: u16, origin: Origin, moves: u32) -> Claim {
    Claim { key: key(1), port: PortId(port), ips: Ips::default(), origin, moves }
}

/// A host's part: its table, its rules.
struct Rig {
    table: Table,
    mobility: Mobility,
}

impl Rig {
    fn new() -> Self {
        Self::of(Limits { often: Often::Freeze, ..Limits::default() })
    }

    fn of(limits: Limits) -> Self {
        Self { table: Table::new(1000, 1), mobility: Mobility::new(limits) }
    }

    fn with(claims: &[(HostId, Claim)]) -> Self {
        let mut rig = Self::new();
        for (owner, claim) in claims {
            rig.announce(Nanos::ZERO, *owner, claim);
        }
        rig
    }

    fn announce(&mut self, now: Nanos, owner: HostId, claim: &Claim) {
        let change = self.table.claim(now, owner, claim).unwrap();
        self.mobility.record(now, &change, Why::Announced);
    }

    fn learn(&mut self, now: Nanos, learned: &Claim) -> Result<Claim, Refusal> {
        let claim = self.mobility.learn(now, &self.table, ME, learned)?;
        let change = self.table.claim(now, ME, &claim).unwrap();
        self.mobility.record(now, &change, Why::Learned);
        Ok(claim)
    }

    /// The other host takes the endpoint, then this one, so that it moves twice.
    fn flap(&mut self, now: Nanos) -> Result<Claim, Refusal> {
        let moves = self.table.find(key(1)).map_or(0, |vport| vport.claim.moves + 1);
        self.announce(now, OTHER, &claim(9, Origin::Learned, moves));
        self.learn(now, &claim(1, Origin::Learned, 0))
    }
}

/// Existing claims, the endpoint learned at port 1, and the resulting claim: origin and moves, or
/// the reason against it.
type Case<'a> = (&'a [(HostId, Claim)], Origin, Result<(Origin, u32), Refusal>);

#[test]
fn every_claim_meets_every_learning() {
    use Origin::{Bound, Learned, Sticky};
    let theirs = |origin| (OTHER, claim(9, origin, 4));
    let mine = |port, origin| (ME, claim(port, origin, 2));
    let at = |owner, port| Holder { owner, port: PortId(port) };
    let (sticky, bound) = (Refusal::Sticky(at(OTHER, 9)), Refusal::Bound(at(OTHER, 9)));
    let cases: &[Case] = &[
        (&[], Learned, Ok((Learned, 0))),
        (&[], Bound, Ok((Bound, 0))),
        (&[mine(1, Learned)], Learned, Ok((Learned, 2))),
        (&[mine(1, Sticky)], Learned, Ok((Sticky, 2))),
        (&[mine(1, Learned)], Bound, Ok((Bound, 2))),
        (&[mine(3, Learned)], Learned, Ok((Learned, 2))),
        (&[mine(3, Sticky)], Learned, Err(Refusal::Sticky(at(ME, 3)))),
        (&[mine(3, Bound)], Sticky, Err(Refusal::Bound(at(ME, 3)))),
        (&[mine(3, Bound)], Bound, Ok((Bound, 2))),
        (&[theirs(Learned)], Learned, Ok((Learned, 5))),
        (&[theirs(Learned)], Sticky, Ok((Sticky, 5))),
        (&[theirs(Sticky)], Learned, Err(sticky)),
        (&[theirs(Sticky)], Sticky, Err(sticky)),
        (&[theirs(Sticky)], Bound, Ok((Bound, 5))),
        (&[theirs(Bound)], Learned, Err(bound)),
        (&[theirs(Bound)], Sticky, Err(bound)),
        (&[theirs(Bound)], Bound, Ok((Bound, 5))),
        (&[theirs(Learned), mine(1, Learned)], Learned, Ok((Learned, 5))),
        (&[(OTHER, claim(9, Sticky, 0)), (THIRD, claim(9, Learned, 7))], Bound, Ok((Bound, 8))),
    ];
    for (had, origin, expected) in cases {
        let mut rig = Rig::with(had);
        let got = rig.learn(seconds(1), &claim(1, *origin, 99));
        assert_eq!(got.map(|claim| (claim.origin, claim.moves)), *expected, "{had:?} {origin:?}");
        let mine = rig.table.find(key(1)).is_some_and(|vport| vport.owner == ME);
        assert_eq!(mine, got.is_ok() || had[0].0 == ME, "what is claimed is won");
    }
}

#[test]
fn a_stale_host_s_claim_stands_against_nothing() {
    let mut rig = Rig::with(&[(OTHER, claim(9, Origin::Bound, 4))]);
    rig.table.set_owner(seconds(1), OTHER, OwnerState::Stale, |_| {});
    let claim = rig.learn(seconds(1), &claim(1, Origin::Learned, 0)).unwrap();
    assert_eq!(claim.moves, 5, "so that it is later when the other comes back");
}

#[test]
fn sixth_move_in_window_freezes_with_one_alarm() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    rig.flap(seconds(1)).unwrap();
    rig.flap(seconds(2)).unwrap();
    let until = seconds(3).after(Limits::default().freeze);
    assert_eq!(rig.flap(seconds(3)), Err(Refusal::Frozen { until, alarm: true }), "the sixth");
    let again = rig.learn(seconds(4), &claim(1, Origin::Learned, 0));
    assert_eq!(again, Err(Refusal::Frozen { until, alarm: false }), "said once");
    assert_eq!(rig.table.find(key(1)).unwrap().owner, OTHER, "it stays");
    assert_eq!(rig.mobility.frozen(seconds(4)).collect::<Vec<_>>(), [(key(1), until)]);
    assert_eq!(rig.mobility.frozen(until).count(), 0);
    rig.learn(until, &claim(1, Origin::Learned, 0)).unwrap();
}

/// An endpoint that is at one place after the other moves on; an endpoint that is at two at once is
/// frozen.
#[test]
fn mac_moves_freeze_by_default_only_when_rapid() {
    let there = |limits| {
        let mut rig = Rig::of(limits);
        rig.announce(Nanos::ZERO, ME, &claim(1, Origin::Learned, 0));
        rig
    };
    let mut rig = there(Limits::default());
    let at = |step: u64| Nanos::from_millis(5_000 + 499 * step);
    rig.flap(at(0)).unwrap();
    rig.flap(at(1)).unwrap();
    assert!(!rig.mobility.moves_often(key(1)));
    let until = at(2).after(Limits::default().freeze);
    assert_eq!(rig.flap(at(2)), Err(Refusal::Frozen { until, alarm: true }), "the sixth in a row");
    assert!(rig.mobility.moves_often(key(1)));
    // The endpoint is back at once each time, and stays for a second: a virtual router that changes
    // hands.
    let mut rig = there(Limits::default());
    for second in 1..100 {
        rig.flap(seconds(second)).unwrap();
    }
    // The endpoint is reported, once.
    let mut rig = there(Limits::default());
    let mut reports = 0;
    for step in 1..50 {
        let theirs = claim(9, Origin::Learned, 2 * step - 1);
        let now = seconds(u64::from(2 * step));
        let change = rig.table.claim(now, OTHER, &theirs).unwrap();
        reports += u32::from(rig.mobility.record(now, &change, Why::Announced));
        rig.learn(now.after(seconds(1)), &claim(1, Origin::Learned, 0)).unwrap();
    }
    assert_eq!(reports, 1);
    // No number of moves is too many.
    let mut rig = there(Limits { moves: 0, often: Often::Freeze, ..Limits::default() });
    for _ in 1..100 {
        rig.flap(seconds(1)).unwrap();
    }
    assert!(!rig.mobility.moves_often(key(1)));
}

#[test]
fn five_moves_in_window_never_freeze() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    for step in 0..20 {
        rig.flap(seconds(step * 90)).unwrap();
    }
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    for step in 0..2 {
        rig.flap(seconds(step)).unwrap();
    }
    assert!(rig.flap(seconds(179)).is_err(), "the first two are in the window");
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    for step in 0..2 {
        rig.flap(seconds(step)).unwrap();
    }
    rig.flap(seconds(180)).unwrap();
}

#[test]
fn an_operator_or_configuration_ends_a_freeze() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    while rig.flap(seconds(1)).is_ok() {}
    assert!(rig.mobility.frozen_until(seconds(2), key(1)).is_some());
    assert!(rig.mobility.clear(seconds(2), key(1)) && !rig.mobility.clear(seconds(2), key(1)));
    rig.learn(seconds(2), &claim(1, Origin::Learned, 0)).unwrap();
    rig.flap(seconds(3)).unwrap();
    while rig.flap(seconds(4)).is_ok() {}
    rig.learn(seconds(5), &claim(1, Origin::Bound, 0)).unwrap();
    assert_eq!(rig.table.find(key(1)).unwrap().owner, ME);
}

#[test]
fn claim_refresh_is_no_move_passes_freeze() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    for step in 0..100 {
        rig.learn(seconds(step), &claim(1, Origin::Learned, 0)).unwrap();
    }
    assert_eq!(rig.mobility.history(key(1)).count(), 0);
    while rig.flap(seconds(100)).is_ok() {}
    let change = rig.table.withdraw(seconds(101), OTHER, key(1));
    rig.mobility.record(seconds(101), &change, Why::Withdrawn);
    rig.learn(seconds(102), &claim(1, Origin::Learned, 0)).unwrap();
}

#[test]
fn move_history_lists_time_source_destination_reason() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    rig.announce(seconds(1), OTHER, &claim(9, Origin::Learned, 1));
    rig.table.set_owner(seconds(2), OTHER, OwnerState::Stale, |change| {
        rig.mobility.record(seconds(2), &change, Why::OwnerStale);
    });
    let step = |when, from, to, why| Move { when: seconds(when), key: key(1), from, to, why };
    assert_eq!(
        rig.mobility.history(key(1)).collect::<Vec<_>>(),
        [step(1, ME, OTHER, Why::Announced), step(2, OTHER, ME, Why::OwnerStale),]
    );
    assert_eq!(rig.mobility.history(key(2)).count(), 0);
}

#[test]
fn the_number_of_frozen_endpoints_is_bounded() {
    let limits = Limits { moves: 1, frozen: 2, often: Often::Freeze, ..Limits::default() };
    let mut mobility = Mobility::new(limits);
    let mut table = Table::new(10, 1);
    for number in 1..=3 {
        let theirs = Claim { key: key(number), ..claim(9, Origin::Learned, 0) };
        table.claim(Nanos::ZERO, OTHER, &theirs).unwrap();
        let change = table.claim(Nanos::ZERO, THIRD, &Claim { moves: 1, ..theirs }).unwrap();
        mobility.record(Nanos::ZERO, &change, Why::Announced);
        let learned = mobility.learn(seconds(number), &table, ME, &theirs);
        assert!(matches!(learned, Err(Refusal::Frozen { alarm: true, .. })));
    }
    let frozen: Vec<Key> = mobility.frozen(seconds(4)).map(|(key, _)| key).collect();
    assert_eq!(frozen, [key(2), key(3)]);
}

/// A table in which claims of all hosts come and go, and host `ME`'s rules.
impl Rig {
    fn withdraw(&mut self, now: Nanos, owner: HostId) {
        let change = self.table.withdraw(now, owner, key(1));
        self.mobility.record(now, &change, Why::Withdrawn);
    }
}

#[test]
fn sequence_and_history_go_on_after_withdrawal() {
    let mut rig = Rig::with(&[(OTHER, claim(9, Origin::Learned, 3))]);
    // The link of the endpoint goes down before this host learns it: a move all the same.
    rig.withdraw(seconds(1), OTHER);
    let mine = rig.learn(seconds(2), &claim(1, Origin::Learned, 0)).unwrap();
    assert_eq!(mine.moves, 4, "a host that has not heard of the withdrawal takes it for the later");
    // The endpoint goes and comes back where it was.
    rig.withdraw(seconds(3), ME);
    assert_eq!(rig.learn(seconds(4), &claim(2, Origin::Learned, 0)).unwrap().moves, 4);
    // The endpoint leaves: its next host claims it with one move more.
    rig.withdraw(seconds(5), ME);
    rig.announce(seconds(6), THIRD, &claim(1, Origin::Learned, 5));
    rig.withdraw(seconds(7), THIRD);
    assert_eq!(rig.learn(seconds(8), &claim(1, Origin::Bound, 0)).unwrap().moves, 6);
    let step = |when, from, to, why| Move { when: seconds(when), key: key(1), from, to, why };
    let expected = [
        step(2, OTHER, ME, Why::Learned),
        step(6, ME, THIRD, Why::Announced),
        step(8, THIRD, ME, Why::Learned),
    ];
    assert_eq!(rig.mobility.history(key(1)).collect::<Vec<_>>(), expected);
}

#[test]
fn withdrawn_moves_never_freeze() {
    let mut rig = Rig::with(&[(ME, claim(1, Origin::Learned, 0))]);
    for second in 0..20 {
        rig.withdraw(seconds(second), ME);
        rig.announce(seconds(second), OTHER, &claim(9, Origin::Learned, 1));
        rig.withdraw(seconds(second), OTHER);
        rig.learn(seconds(second), &claim(1, Origin::Learned, 0)).unwrap();
    }
    assert_eq!(rig.mobility.history(key(1)).count(), 40);
    // The endpoint was never there twice, until now.
    rig.flap(seconds(21)).unwrap();
    rig.flap(seconds(21)).unwrap();
    assert!(rig.flap(seconds(21)).is_err(), "the sixth");
}

#[test]
fn departed_sequence_is_no_leap() {
    for (moves, next) in [(LEAP_MAX - 1, LEAP_MAX), (LEAP_MAX, 0), (u32::MAX, 0)] {
        let mut rig = Rig::with(&[(OTHER, claim(9, Origin::Learned, moves))]);
        rig.withdraw(seconds(1), OTHER);
        assert_eq!(rig.learn(seconds(2), &claim(1, Origin::Learned, 0)).unwrap().moves, next);
    }
}

#[test]
fn number_of_departed_endpoints_is_bounded() {
    let limits = Limits { departed: 2, ..Limits::default() };
    let mut rig = Rig { table: Table::new(10, 1), mobility: Mobility::new(limits) };
    for (second, number) in [(1, 1), (2, 2), (3, 1), (4, 3)] {
        let theirs = Claim { key: key(number), ..claim(9, Origin::Learned, 7) };
        rig.announce(seconds(second), OTHER, &theirs);
        let change = rig.table.withdraw(seconds(second), OTHER, theirs.key);
        rig.mobility.record(seconds(second), &change, Why::Withdrawn);
    }
    let mut moves_of = |number| {
        let learned = Claim { key: key(number), ..claim(1, Origin::Learned, 0) };
        rig.mobility.learn(seconds(5), &rig.table, ME, &learned).unwrap().moves
    };
    assert_eq!([1, 2, 3].map(&mut moves_of), [8, 0, 8], "the one that departed first is forgotten");
}

proptest! {
    /// Compares with a list of all moves, with a small ring and all kinds of order.
    #[test]
    fn moves_are_counted_as_in_a_list(
        steps in prop::collection::vec((0u64..100, 0u64..3, 0u8..8), 0..120),
        history in 1usize..12,
    ) {
        let limits = Limits { history, ..Limits::default() };
        let mut mobility = Mobility::new(limits);
        let mut list: Vec<(Nanos, Key, bool)> = Vec::new();
        let mut now = Nanos::ZERO;
        for (later, number, kind) in steps {
            now = now.after(seconds(later));
            let key = key(number);
            if kind == 0 {
                mobility.clear(now, key);
                list.iter_mut().filter(|(_, k, _)| *k == key).for_each(|moved| moved.2 = false);
            } else {
                let at = |owner| Some(Holder { owner, port: PortId(0) });
                let (before, after) = (at(ME), at(if kind == 1 { ME } else { OTHER }));
                let (gone, come, duplicates) = Default::default();
                let change = Change { key, before, moves: 0, after, gone, come, duplicates };
                mobility.record(now, &change, Why::Announced);
                if change.moved() {
                    list.push((now, key, true));
                }
            }
            let kept = &list[list.len().saturating_sub(history)..];
            prop_assert_eq!(mobility.history.len(), kept.len());
            let counts = |(when, k, counts): &&(Nanos, Key, bool)| {
                *counts && *k == key && now.since(*when) < limits.window
            };
            let expected = u32::try_from(kept.iter().filter(counts).count()).unwrap();
            mobility.forget_old(now);
            let counted = mobility.recent.get(&key).copied().unwrap_or_default();
            prop_assert_eq!(counted.moves, expected);
        }
    }
}
