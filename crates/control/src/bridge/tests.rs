use core::net::Ipv4Addr;
use std::vec;

use sluice_base::{Mac, PortId};

use super::*;
use crate::vport::Origin;

const ME: HostId = HostId(1);
const OTHER: HostId = HostId(2);

fn key(n: u64) -> Key {
    Key { vni: Vni::new(5000).unwrap(), mac: Mac::from_u64(n) }
}

fn ip(n: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(n).unwrap()).into()
}

fn claim(n: u64, moves: u32) -> Claim {
    let ips = [ip(n)].into_iter().collect();
    Claim { key: key(n), port: PortId(4), ips, origin: Origin::Learned, moves }
}

struct Both {
    table: Table,
    changes: Vec<Change>,
    aside: RefusedClaims,
    quota: u64,
}

impl Both {
    fn new(limit: u32) -> Self {
        Self {
            table: Table::new(limit, 1),
            changes: Vec::new(),
            aside: RefusedClaims::default(),
            quota: u64::MAX,
        }
    }

    fn intake(&mut self) -> Intake<'_> {
        const VNETS: &[Vni] = &[Vni::new(5000).unwrap()];
        self.intake_of(VNETS)
    }

    fn intake_of<'a>(&'a mut self, vnets: &'a [Vni]) -> Intake<'a> {
        Intake {
            table: &mut self.table,
            now: Nanos(5),
            changes: &mut self.changes,
            bounds: Bounds { vnets, quota: self.quota, aside: &mut self.aside },
        }
    }

    fn state(&self, n: u64) -> Option<State> {
        let view = View { table: &self.table, me: ME, confirmed: |_, _| true };
        let found = view.find(key(n));
        assert_eq!(view.find_ip(key(n).vni, ip(n)), found, "both indices lead to the same");
        found.map(|found| found.state)
    }
}

#[test]
fn session_claims_found_and_changes_reported_once() {
    let mut both = Both::new(100);
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    assert_eq!(both.changes.len(), 1, "to hear it again is no news");
    assert_eq!(both.state(1), Some(State::Authoritative));
    both.table.set_owner(Nanos(6), OTHER, OwnerState::Stale, |_| {});
    assert_eq!(both.state(1), Some(State::Stale));
    both.intake().claim(ME, &claim(1, 1)).unwrap();
    assert_eq!(both.state(1), Some(State::Own));
    both.intake().withdraw(ME, key(1));
    both.intake().withdraw(ME, key(1));
    assert_eq!(both.state(1), Some(State::Stale), "what another host has claimed is there again");
    assert_eq!(both.changes.len(), 3);
}

#[test]
fn snapshot_end_removes_unnamed_claims_reports_each() {
    let mut both = Both::new(5_000);
    for n in 0..3_000 {
        both.intake().claim(OTHER, &claim(n, 0)).unwrap();
    }
    both.changes.clear();
    both.intake().begin_snapshot(OTHER);
    let named = [claim(1, 0), claim(2, 0)];
    for claim in &named {
        both.intake().claim(OTHER, claim).unwrap();
    }
    both.intake().end_snapshot(OTHER);
    assert_eq!(both.changes.len(), 2_998);
    let left: Vec<_> = vec![both.state(0), both.state(1), both.state(2)];
    assert_eq!(left, [None, Some(State::Authoritative), Some(State::Authoritative)]);
    assert_eq!(both.intake().digest(OTHER), named.iter().collect(), "what its owner would say");
}

#[test]
fn a_full_table_says_so() {
    let mut both = Both::new(1);
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    assert_eq!(both.intake().claim(OTHER, &claim(2, 0)), Err(NoRoom));
    assert_eq!(both.changes.len(), 1);
}

fn of_others(n: u64) -> Claim {
    let key = Key { vni: Vni::new(6000).unwrap(), ..key(n) };
    Claim { key, ..claim(n, 0) }
}

#[test]
fn claims_follow_networks_of_owner_digest_stays() {
    let (one, other) = (Vni::new(5000).unwrap(), Vni::new(6000).unwrap());
    let mut both = Both::new(100);
    // The first claim leaps, and is kept with fewer moves.
    let leap = claim(1, u32::MAX);
    let said = [leap, of_others(2), of_others(3)];
    said.iter().for_each(|claim| both.intake_of(&[one, other]).claim(OTHER, claim).unwrap());
    let digest = said.iter().collect();
    assert_eq!(both.intake().digest(OTHER), digest);
    for (vnets, counts) in [
        (&[one][..], [1, 0]),
        (&[other], [0, 2]),
        (&[], [0, 0]),
        (&[other, one], [1, 2]),
        (&[one, other], [1, 2]),
    ] {
        both.intake_of(vnets).follow_networks(OTHER).unwrap();
        assert_eq!(both.intake_of(vnets).digest(OTHER), digest, "{vnets:?}");
        let count = |vni| both.table.claims_of(OTHER).filter(|c| c.key.vni == vni).count();
        assert_eq!([count(one), count(other)], counts, "{vnets:?}");
    }
    assert_eq!(both.changes.len(), 3 + 2 + 3 + 2 + 3);
    let kept = both.table.claims(leap.key).next().unwrap();
    assert_eq!(kept.claim.moves, MOVES_MAX, "its bound holds again");
}

/// Claims in a network that the member is not in are in no table, and both sides' digests agree all
/// the same: no host asks for them again.
#[test]
fn claims_outside_own_networks_are_set_aside() {
    let mut both = Both::new(100);
    let said = [claim(1, 0), of_others(2), of_others(3)];
    both.intake().begin_snapshot(OTHER);
    said.iter().for_each(|claim| both.intake().claim(OTHER, claim).unwrap());
    both.intake().end_snapshot(OTHER);
    assert_eq!(both.table.find(of_others(2).key), None);
    assert_eq!(both.changes.len(), 1);
    assert_eq!(both.intake().digest(OTHER), said.iter().collect());
    assert_eq!(both.aside.news(), Some((Bound::Network, of_others(2).key)), "told once");
    assert_eq!(both.aside.news(), None);
    both.intake().withdraw(OTHER, of_others(2).key);
    assert_eq!(both.intake().digest(OTHER), [&said[0], &said[2]].into_iter().collect());
    // A claim that the next snapshot does not name is gone.
    both.intake().begin_snapshot(OTHER);
    both.intake().claim(OTHER, &said[0]).unwrap();
    both.intake().end_snapshot(OTHER);
    assert_eq!(both.intake().digest(OTHER), [&said[0]].into_iter().collect());
}

#[test]
fn claims_over_host_quota_refused_other_hosts_kept() {
    let mut both = Both::new(100);
    both.quota = 3;
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    both.intake().claim(OTHER, &claim(2, 0)).unwrap();
    both.intake().claim(OTHER, &of_others(3)).unwrap();
    assert_eq!(both.intake().claim(OTHER, &claim(4, 0)), Err(NoRoom));
    assert_eq!(both.intake().claim(OTHER, &of_others(5)), Err(NoRoom), "what is aside counts");
    // An existing claim may change.
    both.intake().claim(OTHER, &claim(1, 1)).unwrap();
    both.intake().claim(OTHER, &of_others(3)).unwrap();
    both.intake().claim(HostId(3), &claim(4, 0)).unwrap();
    both.intake().withdraw(OTHER, key(1));
    both.intake().claim(OTHER, &claim(4, 1)).unwrap();
}

/// The largest number of moves wins nothing, in any order of claims, and can be outbid.
#[test]
fn leaps_of_moves_lose_to_other_claims() {
    let holder =
        |both: &Both| both.table.find(key(1)).map(|vport| (vport.owner, vport.claim.moves));
    let leap = claim(1, u32::MAX);
    // The owner was there first.
    let mut both = Both::new(100);
    both.intake().claim(ME, &claim(1, 3)).unwrap();
    both.intake().claim(OTHER, &leap).unwrap();
    assert_eq!(holder(&both), Some((ME, 3)));
    assert_eq!(both.intake().digest(OTHER), [&leap].into_iter().collect());
    // Repetition brings the leap no nearer.
    for _ in 0..3 {
        both.intake().claim(OTHER, &claim(1, u32::MAX - 1)).unwrap();
        both.intake().claim(OTHER, &leap).unwrap();
    }
    assert_eq!(holder(&both), Some((ME, 3)));
    // As far as a leap may go; the owner outbids it by one.
    both.intake().claim(OTHER, &claim(1, 3 + LEAP_MAX)).unwrap();
    assert_eq!(holder(&both), Some((OTHER, 3 + LEAP_MAX)));
    both.aside.clear();
    both.intake().claim(ME, &claim(1, 4 + LEAP_MAX)).unwrap();
    assert_eq!(holder(&both), Some((ME, 4 + LEAP_MAX)));
    // The leap was there first: its effective moves leave room above them.
    let mut both = Both::new(100);
    both.intake().claim(OTHER, &leap).unwrap();
    assert_eq!(holder(&both), Some((OTHER, MOVES_MAX)));
    both.intake().claim(ME, &claim(1, MOVES_MAX + 1)).unwrap();
    assert_eq!(holder(&both), Some((ME, MOVES_MAX + 1)));
    // An honest claim with many moves, heard after a restart, is not changed.
    let mut both = Both::new(100);
    both.intake().claim(OTHER, &claim(1, 70_000)).unwrap();
    assert_eq!(holder(&both), Some((OTHER, 70_000)));
    both.intake().claim(ME, &claim(1, 70_001)).unwrap();
    assert_eq!(holder(&both), Some((ME, 70_001)));
}
