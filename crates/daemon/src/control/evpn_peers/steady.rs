//! VTEPs that neighbors name, without the haste of those that come and go.
//!
//! Each change makes a new plan of the whole host. So changes are taken once a second at most, and
//! a network of a VTEP stays a while after it was withdrawn: one second, and twice as long each
//! time the VTEP loses one again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use sluice_base::{Nanos, Vni};

use crate::fabric::Vteps;

/// Shortest time between two changes.
const CHANGE_EVERY: Nanos = Nanos::from_millis(1_000);
/// Time for which a withdrawn network stays, at first and at most.
const STAY_MIN: Nanos = Nanos::from_millis(1_000);
const STAY_MAX: Nanos = Nanos::from_millis(64_000);
/// Time after which it is forgotten that a VTEP has lost networks.
const CALM_AFTER: Nanos = Nanos::from_millis(300_000);
/// Most VTEPs that are followed, and most whose losses are remembered.
const VTEPS_MAX: usize = 4_096;

/// The VTEPs, as they are followed.
#[derive(Debug, Default)]
pub(super) struct Steady {
    vteps: Vteps,
    /// Networks that were withdrawn, and the end of their stay.
    leaving: BTreeMap<(Ipv4Addr, Vni), Nanos>,
    /// Next stay of each VTEP that has lost a network, and the time of the loss.
    losses: BTreeMap<Ipv4Addr, (Nanos, Nanos)>,
    /// Time of the next change.
    next_at: Nanos,
}

impl Steady {
    /// Begins with VTEPs that are peers already.
    pub(super) fn new(vteps: Vteps) -> Self {
        Self { vteps, ..Self::default() }
    }

    pub(super) const fn vteps(&self) -> &Vteps {
        &self.vteps
    }

    /// Forgets all of them, at once.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Follows what is known now. If that is not `all`, what is missing stays. Returns true if
    /// there is a change.
    pub(super) fn follow(&mut self, now: Nanos, known: &Vteps, all: bool) -> bool {
        self.leaving.retain(|(vtep, vni), _| !has(known, *vtep, *vni));
        if all {
            self.let_go(now, known);
        }
        if now < self.next_at {
            return false;
        }
        let leaving = &self.leaving;
        let mut next = self.vteps.clone();
        for (vtep, vnis) in &mut next {
            vnis.retain(|vni| leaving.get(&(*vtep, *vni)).is_none_or(|until| now < *until));
        }
        next.retain(|_, vnis| !vnis.is_empty());
        for (vtep, vnis) in known.iter().filter(|(_, vnis)| !vnis.is_empty()) {
            if next.contains_key(vtep) || next.len() < VTEPS_MAX {
                next.entry(*vtep).or_default().extend(vnis);
            }
        }
        if next == self.vteps {
            return false;
        }
        self.vteps = next;
        let vteps = &self.vteps;
        self.leaving.retain(|(vtep, vni), _| has(vteps, *vtep, *vni));
        self.losses.retain(|_, (_, at)| now.since(*at) < CALM_AFTER);
        self.next_at = now.after(CHANGE_EVERY);
        true
    }

    /// Notes the networks that are withdrawn since now.
    fn let_go(&mut self, now: Nanos, known: &Vteps) {
        let pairs = self.vteps.iter().flat_map(|(vtep, vnis)| vnis.iter().map(|vni| (*vtep, *vni)));
        let gone: Vec<(Ipv4Addr, Vni)> = pairs
            .filter(|(vtep, vni)| {
                !has(known, *vtep, *vni) && !self.leaving.contains_key(&(*vtep, *vni))
            })
            .collect();
        let losers: BTreeSet<Ipv4Addr> = gone.iter().map(|(vtep, _)| *vtep).collect();
        let stays: BTreeMap<Ipv4Addr, Nanos> =
            losers.into_iter().map(|vtep| (vtep, self.stay_of(now, vtep))).collect();
        self.leaving.extend(gone.into_iter().map(|pair| (pair, now.after(stays[&pair.0]))));
    }

    /// Returns the end of the stay of what a VTEP is losing.
    fn leaves_at(&self, vtep: Ipv4Addr) -> Option<Nanos> {
        let ((of, _), until) = self.leaving.range((vtep, Vni::new(0)?)..).next()?;
        (*of == vtep).then_some(*until)
    }

    /// Returns the stay of what a VTEP loses now.
    fn stay_of(&mut self, now: Nanos, vtep: Ipv4Addr) -> Nanos {
        // One that goes loses its networks one after the other: that counts once.
        if let Some(until) = self.leaves_at(vtep) {
            return until.since(now);
        }
        let last = self.losses.get(&vtep).filter(|(_, at)| now.since(*at) < CALM_AFTER);
        let stay = last.map_or(STAY_MIN, |(next, _)| *next);
        if last.is_some() || self.losses.len() < VTEPS_MAX {
            self.losses.insert(vtep, (Nanos(2 * stay.0).min(STAY_MAX), now));
        }
        stay
    }
}

fn has(vteps: &Vteps, vtep: Ipv4Addr, vni: Vni) -> bool {
    vteps.get(&vtep).is_some_and(|vnis| vnis.contains(&vni))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn vteps(list: &[(&str, &[u32])]) -> Vteps {
        let vnis =
            |numbers: &[u32]| numbers.iter().map(|number| Vni::new(*number).unwrap()).collect();
        list.iter().map(|(vtep, numbers)| (vtep.parse().unwrap(), vnis(numbers))).collect()
    }

    #[test]
    fn changes_are_taken_once_a_second() {
        let (mut steady, one) = (Steady::default(), vteps(&[("192.0.2.1", &[100])]));
        let two = vteps(&[("192.0.2.1", &[100, 200]), ("192.0.2.2", &[100])]);
        assert!(steady.follow(at(0), &one, true), "the first one at once");
        assert!(!steady.follow(at(999), &two, true));
        assert_eq!(steady.vteps(), &one);
        assert!(steady.follow(at(1_000), &two, true));
        assert_eq!(steady.vteps(), &two);
    }

    #[test]
    fn withdrawn_network_stays_longer_each_time() {
        let (mut steady, none) = (Steady::default(), Vteps::new());
        let there = vteps(&[("192.0.2.1", &[100]), ("192.0.2.2", &[100])]);
        let gone = vteps(&[("192.0.2.2", &[100])]);
        let mut now = 0;
        for stay in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            assert!(steady.follow(at(now), &there, true));
            now += 2_000;
            assert!(!steady.follow(at(now), &gone, true), "it stays at first");
            assert!(!steady.follow(at(now + stay - 1), &gone, true), "{stay}");
            assert!(steady.follow(at(now + stay), &gone, true), "{stay}");
            assert_eq!(steady.vteps(), &gone, "the other one stays");
            now += stay + 1_000;
        }
        // Calm for long enough, it begins anew.
        now += 300_000;
        assert!(steady.follow(at(now), &there, true));
        assert!(!steady.follow(at(now + 2_000), &gone, true));
        assert!(steady.follow(at(now + 3_000), &gone, true));
        // Unless somebody says that there is nothing to follow.
        steady.forget();
        assert_eq!(steady.vteps(), &none);
    }

    /// The one that comes and goes is a peer all the time, and nothing is planned anew.
    #[test]
    fn flapping_vtep_changes_nothing() {
        let (mut steady, none) = (Steady::default(), Vteps::new());
        let there = vteps(&[("192.0.2.1", &[100])]);
        let changes = (0_u64..10_000)
            .filter(|turn| {
                let known = if turn % 2 == 0 { &there } else { &none };
                steady.follow(at(turn * 100), known, true)
            })
            .count();
        assert_eq!((changes, steady.vteps()), (1, &there));
        // Away for longer than the first stays: some changes at first, and none in the end.
        let changes = (0_u64..1_000)
            .filter(|second| {
                let known = if second / 3 % 2 == 0 { &there } else { &none };
                steady.follow(at(2_000_000 + second * 1_000), known, true)
            })
            .count();
        assert!(changes < 10, "{changes} changes");
    }

    #[test]
    fn what_is_not_told_yet_stays() {
        let mut steady = Steady::new(vteps(&[("192.0.2.1", &[100])]));
        let other = vteps(&[("192.0.2.2", &[100])]);
        assert!(steady.follow(at(0), &other, false));
        assert!(!steady.follow(at(100_000), &other, false));
        assert_eq!(steady.vteps().len(), 2);
        assert!(!steady.follow(at(101_000), &other, true));
        assert!(steady.follow(at(102_000), &other, true));
        assert_eq!(steady.vteps(), &other);
    }

    #[test]
    fn networks_that_leave_one_by_one_count_once() {
        let mut steady = Steady::default();
        let all: Vec<u32> = (100..107).collect();
        assert!(steady.follow(at(0), &vteps(&[("192.0.2.1", &all)]), true));
        for left in (0..7).rev() {
            let known = vteps(&[("192.0.2.1", &all[..left])]);
            assert!(!steady.follow(at(2_000 + 10 * (7 - left as u64)), &known, true));
        }
        assert!(steady.follow(at(3_010), &Vteps::new(), true), "one second after the first");
        assert!(steady.vteps().is_empty());
    }

    #[test]
    fn number_of_vteps_is_bounded() {
        let mut steady = Steady::default();
        let vnis = |number: u32| BTreeSet::from([Vni::new(number).unwrap()]);
        let many: Vteps =
            (0..10_000_u32).map(|at| (Ipv4Addr::from(at + (10 << 24)), vnis(100))).collect();
        assert!(steady.follow(at(0), &many, true));
        assert_eq!(steady.vteps().len(), VTEPS_MAX);
        // Those that are there come first, and a network of theirs is no VTEP more.
        let last = *steady.vteps().last_key_value().unwrap().0;
        let mut next = many.clone();
        next.insert(Ipv4Addr::new(1, 1, 1, 1), vnis(100));
        next.insert(last, vnis(200));
        assert!(steady.follow(at(1_000), &next, true));
        assert_eq!(steady.vteps()[&last].len(), 2, "the one withdrawn stays a while");
        assert!(!steady.vteps().contains_key(&Ipv4Addr::new(1, 1, 1, 1)));
    }
}
