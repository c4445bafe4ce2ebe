use core::net::{Ipv4Addr, Ipv6Addr};
use std::string::{String, ToString};

use sluice_base::{PortId, Prng};

use super::*;
use crate::vport::Origin;

mod random;

const ME: HostId = HostId(5);
/// Wins when all else is equal.
const LOWER: HostId = HostId(2);
const HIGHER: HostId = HostId(9);
const NOW: Nanos = Nanos::from_millis(1);

fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

fn key(number: u64) -> Key {
    Key { vni: vni(7), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

fn claim(number: u64, moves: u32, ips: &[u8]) -> Claim {
    let ips = ips.iter().map(|last| ip(*last)).collect();
    Claim { key: key(number), port: PortId(1), ips, origin: Origin::Learned, moves }
}

fn table() -> Table {
    Table::new(100, 1)
}

fn owner_of(table: &Table, number: u64) -> Option<HostId> {
    table.find(key(number)).map(|vport| vport.owner)
}

fn put(table: &mut Table, owner: HostId, claim: &Claim) -> Change {
    table.claim(NOW, owner, claim).unwrap()
}

/// Claims of endpoint 1 in the table before an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Had {
    Nothing,
    Mine,
    OthersLower,
    OthersHigher,
    MineAndLower,
    MineAndHigher,
    LowerStale,
    MineStaleAndHigher,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    ClaimMine,
    ClaimMineMoved,
    WithdrawMine,
    WithdrawLower,
    LowerStale,
    LowerLive,
    EvictMine,
    EmptySnapshotOfMine,
    OpenSnapshotOfMine,
}

fn prepared(had: Had) -> Table {
    let mut table = table();
    let (stale, owners): (Option<HostId>, &[HostId]) = match had {
        Had::Nothing => (None, &[]),
        Had::Mine => (None, &[ME]),
        Had::OthersLower => (None, &[LOWER]),
        Had::OthersHigher => (None, &[HIGHER]),
        Had::MineAndLower => (None, &[ME, LOWER]),
        Had::MineAndHigher => (None, &[ME, HIGHER]),
        Had::LowerStale => (Some(LOWER), &[LOWER]),
        Had::MineStaleAndHigher => (Some(ME), &[ME, HIGHER]),
    };
    for owner in owners {
        put(&mut table, *owner, &claim(1, 0, &[1]));
    }
    if let Some(owner) = stale {
        table.set_owner(NOW, owner, OwnerState::Stale, |_| {});
    }
    table
}

fn happen(table: &mut Table, event: Event) -> Option<Change> {
    let mut reported = None;
    let tell = |change| assert!(reported.replace(change).is_none(), "there is one endpoint");
    match event {
        Event::ClaimMine => return Some(put(table, ME, &claim(1, 0, &[1]))),
        Event::ClaimMineMoved => return Some(put(table, ME, &claim(1, 1, &[1]))),
        Event::WithdrawMine => return Some(table.withdraw(NOW, ME, key(1))),
        Event::WithdrawLower => return Some(table.withdraw(NOW, LOWER, key(1))),
        Event::LowerStale => table.set_owner(NOW, LOWER, OwnerState::Stale, tell),
        Event::LowerLive => table.set_owner(NOW, LOWER, OwnerState::Live, tell),
        Event::EvictMine => assert_eq!(table.evict(NOW, ME, 9, tell), Progress::Done),
        Event::EmptySnapshotOfMine => {
            table.begin_snapshot(ME);
            assert_eq!(table.end_snapshot(NOW, ME, 9, tell), Progress::Done);
        }
        Event::OpenSnapshotOfMine => table.begin_snapshot(ME),
    }
    reported
}

/// The winner after each event in the order of [`Event`], for each state: 2, 5, 9 or none.
#[rustfmt::skip]
const EXPECTED: [(Had, &str); 8] = [
    //                        claim   withdraw  lower    evict snapshot
    //                        0   1   5   2   stale live   5   empty open
    (Had::Nothing,            "5   5   -   -     -   -     -     -   -"),
    (Had::Mine,               "5   5   -   5     5   5     -     -   5"),
    (Had::OthersLower,        "2   5   2   -     2   2     2     2   2"),
    (Had::OthersHigher,       "5   5   9   9     9   9     9     9   9"),
    (Had::MineAndLower,       "2   5   2   5     5   2     2     2   2"),
    (Had::MineAndHigher,      "5   5   9   5     5   5     9     9   5"),
    (Had::LowerStale,         "5   5   2   -     2   2     2     2   2"),
    (Had::MineStaleAndHigher, "9   9   9   9     9   9     9     9   9"),
];

#[test]
fn every_state_meets_every_event() {
    let events = [
        Event::ClaimMine,
        Event::ClaimMineMoved,
        Event::WithdrawMine,
        Event::WithdrawLower,
        Event::LowerStale,
        Event::LowerLive,
        Event::EvictMine,
        Event::EmptySnapshotOfMine,
        Event::OpenSnapshotOfMine,
    ];
    for (had, expected) in EXPECTED {
        let expected: Vec<&str> = expected.split_whitespace().collect();
        assert_eq!(expected.len(), events.len());
        for (event, expected) in events.into_iter().zip(expected) {
            let mut table = prepared(had);
            let before = owner_of(&table, 1);
            let change = happen(&mut table, event);
            table.check();
            let after = owner_of(&table, 1);
            let shown = after.map_or("-".to_string(), |owner| owner.to_string());
            assert_eq!(shown, expected, "{had:?}, {event:?}");
            let reported = change.filter(|change| !change.is_nothing());
            match reported {
                None => assert_eq!(before, after, "{had:?}, {event:?}: nothing is told"),
                Some(change) => {
                    assert_eq!(change.before.map(|holder| holder.owner), before, "{had:?}");
                    assert_eq!(change.after.map(|holder| holder.owner), after, "{event:?}");
                    assert_eq!(change.moved(), before.is_some() && after.is_some());
                }
            }
            let found = table.find_ip(vni(7), ip(1)).map(|vport| vport.owner);
            assert_eq!(found, after, "{had:?}, {event:?}: the winner has the address");
        }
    }
}

#[test]
fn stale_host_endpoint_stays_found_marked_stale() {
    let mut table = prepared(Had::LowerStale);
    let vport = table.find(key(1)).unwrap();
    assert_eq!((vport.owner, vport.state), (LOWER, OwnerState::Stale));
    assert_eq!(table.find_ip(vni(7), ip(1)).unwrap().state, OwnerState::Stale);
    let taken = put(&mut table, HIGHER, &claim(1, 0, &[1]));
    assert!(taken.lost_by(LOWER) && taken.come.is_empty(), "the address stays, the host is new");
    let mut changes = Vec::new();
    table.set_owner(NOW, LOWER, OwnerState::Live, |change| changes.push(change));
    assert_eq!(changes.len(), 1, "back by the claims alone");
    assert!(changes[0].lost_by(HIGHER));
}

#[test]
fn live_host_claim_wins_over_any_stale_claim() {
    let mut table = table();
    put(&mut table, LOWER, &Claim { origin: Origin::Bound, moves: 99, ..claim(1, 0, &[]) });
    assert_eq!(owner_of(&table, 1), Some(LOWER));
    table.set_owner(NOW, LOWER, OwnerState::Stale, |_| {});
    put(&mut table, HIGHER, &claim(1, 0, &[]));
    assert_eq!(owner_of(&table, 1), Some(HIGHER));
    let all: Vec<HostId> = table.claims(key(1)).map(|vport| vport.owner).collect();
    assert_eq!(all, [HIGHER, LOWER]);
}

#[test]
fn addresses_come_and_go_with_the_claim() {
    let mut table = table();
    let came = put(&mut table, ME, &claim(1, 0, &[1, 2]));
    assert_eq!((came.come.len(), came.gone.len()), (2, 0));
    let changed = put(&mut table, ME, &claim(1, 0, &[2, 3]));
    assert_eq!((changed.come, changed.gone), (claim(1, 0, &[3]).ips, claim(1, 0, &[1]).ips));
    assert!(put(&mut table, ME, &claim(1, 0, &[3, 2])).is_nothing(), "order means nothing");
    assert!(table.find_ip(vni(7), ip(1)).is_none() && table.find_ip(vni(8), ip(2)).is_none());
    assert_eq!(table.find_ip(vni(7), ip(3)).unwrap().claim.key, key(1));
    let went = table.withdraw(NOW, ME, key(1));
    assert_eq!((went.come.len(), went.gone.len()), (0, 2));
    assert!(table.find_ip(vni(7), ip(3)).is_none());
}

#[test]
fn ipv4_address_distinct_from_its_mapped_ipv6() {
    let mut table = table();
    let v4 = Ipv4Addr::new(10, 0, 0, 1);
    let ips = [IpAddr::V6(v4.to_ipv6_mapped())].into_iter().collect();
    put(&mut table, ME, &Claim { ips, ..claim(1, 0, &[]) });
    assert!(table.find_ip(vni(7), v4.into()).is_none());
    assert!(table.find_ip(vni(7), v4.to_ipv6_mapped().into()).is_some());
    assert!(table.find_ip(vni(7), Ipv6Addr::UNSPECIFIED.into()).is_none());
}

#[test]
fn duplicate_address_of_two_vports_reported_both_found() {
    let mut table = table();
    assert!(put(&mut table, ME, &claim(2, 0, &[1])).duplicates.is_empty());
    let second = put(&mut table, HIGHER, &claim(1, 0, &[1, 2]));
    assert_eq!(second.duplicates, claim(1, 0, &[1]).ips);
    assert!(put(&mut table, HIGHER, &claim(1, 1, &[1, 2])).duplicates.is_empty(), "said already");
    assert_eq!(table.all_with_ip(vni(7), ip(1)).count(), 2);
    assert_eq!(table.find_ip(vni(7), ip(1)).unwrap().claim.key, key(1), "the lower MAC");
    table.set_owner(NOW, HIGHER, OwnerState::Stale, |_| {});
    assert_eq!(table.find_ip(vni(7), ip(1)).unwrap().claim.key, key(2), "the live host");
    table.withdraw(NOW, ME, key(2));
    assert_eq!(table.find_ip(vni(7), ip(1)).unwrap().claim.key, key(1));
    table.check();
}

#[test]
fn a_loser_s_addresses_are_not_found() {
    let mut table = table();
    put(&mut table, ME, &claim(1, 0, &[1]));
    put(&mut table, LOWER, &claim(1, 0, &[2]));
    assert!(table.find_ip(vni(7), ip(1)).is_none());
    put(&mut table, ME, &claim(1, 0, &[3]));
    assert!(table.find_ip(vni(7), ip(3)).is_none());
    let back = table.withdraw(NOW, LOWER, key(1));
    assert_eq!((back.come, back.gone), (claim(1, 0, &[3]).ips, claim(1, 0, &[2]).ips));
    assert!(table.find_ip(vni(7), ip(3)).is_some());
}

#[test]
fn table_snapshot_removes_unnamed_claims_in_steps() {
    let mut table = table();
    for number in 1..=5 {
        put(&mut table, ME, &claim(number, 0, &[1]));
    }
    put(&mut table, LOWER, &claim(6, 0, &[]));
    table.begin_snapshot(ME);
    for number in [4, 2, 7] {
        put(&mut table, ME, &claim(number, 0, &[1]));
    }
    let mut gone = Vec::new();
    for expected in [Progress::More, Progress::More, Progress::Done] {
        let progress = table.end_snapshot(NOW, ME, 1, |change| gone.push(change.key));
        assert_eq!(progress, expected);
    }
    assert_eq!(gone, [key(1), key(3), key(5)]);
    assert_eq!(
        table.claims_of(ME).map(|claim| claim.key).collect::<Vec<_>>(),
        [key(7), key(2), key(4)]
    );
    assert_eq!(table.digest(LOWER).count, 1);
    table.check();
}

#[test]
fn an_interrupted_snapshot_takes_nothing_out() {
    let mut table = table();
    for number in 1..=3 {
        put(&mut table, ME, &claim(number, 0, &[]));
    }
    let never = |change| panic!("{change:?}");
    table.begin_snapshot(ME);
    put(&mut table, ME, &claim(1, 0, &[]));
    table.abort_snapshot(ME);
    assert_eq!(table.end_snapshot(NOW, ME, 9, never), Progress::Done, "none is open");
    table.begin_snapshot(ME);
    put(&mut table, ME, &claim(2, 0, &[]));
    table.begin_snapshot(ME);
    assert_eq!(table.digest(ME).count, 3, "the second interrupts the first");
    for number in [3, 1, 2] {
        put(&mut table, ME, &claim(number, 0, &[]));
    }
    assert_eq!(table.end_snapshot(NOW, ME, 9, never), Progress::Done);
    assert_eq!(table.digest(ME).count, 3);
}

#[test]
fn eviction_goes_in_steps_and_forgets_the_host() {
    let mut table = table();
    for number in 1..=5 {
        put(&mut table, ME, &claim(number, 0, &[]));
    }
    put(&mut table, HIGHER, &claim(3, 0, &[]));
    table.set_owner(NOW, ME, OwnerState::Stale, |_| {});
    let mut count = 0;
    while table.evict(NOW, ME, 2, |_| count += 1) == Progress::More {}
    assert_eq!((count, table.claim_count(), table.vport_count()), (5, 1, 1));
    assert_eq!((table.owner(ME), table.digest(ME)), (OwnerState::Live, Digest::default()));
    table.check();
}

#[test]
fn a_full_table_refuses_what_is_new() {
    let mut table = Table::new(2, 1);
    put(&mut table, ME, &claim(1, 0, &[]));
    put(&mut table, LOWER, &claim(1, 0, &[]));
    assert_eq!(table.claim(NOW, HIGHER, &claim(1, 9, &[])), Err(Full));
    assert_eq!(table.claim(NOW, ME, &claim(2, 0, &[])), Err(Full));
    assert!(put(&mut table, ME, &claim(1, 1, &[])).lost_by(LOWER), "what is there may change");
    table.withdraw(NOW, LOWER, key(1));
    put(&mut table, ME, &claim(2, 0, &[]));
    table.check();
}

#[test]
fn vport_shows_last_move_time_and_use() {
    let mut table = table();
    let at = |millis| Nanos::from_millis(millis);
    table.claim(at(1), ME, &claim(1, 0, &[])).unwrap();
    table.claim(at(2), ME, &claim(1, 0, &[1])).unwrap();
    assert_eq!(table.find(key(1)).unwrap().since, at(1), "an address is no move");
    table.claim(at(3), HIGHER, &claim(1, 1, &[])).unwrap();
    assert_eq!(table.find(key(1)).unwrap().since, at(3));
    table.withdraw(at(4), HIGHER, key(1));
    assert_eq!(table.find(key(1)).unwrap().since, at(4), "it came back");
    assert!(table.used(at(5), key(1), 3) && table.used(at(6), key(1), 4));
    assert!(!table.used(at(5), key(2), 3));
    let vport = table.find(key(1)).unwrap();
    assert_eq!((vport.used, vport.frames), (at(6), 7));
}

#[test]
fn a_network_is_listed_by_pages() {
    let mut table = table();
    for number in [3, 1, 9, 4] {
        put(&mut table, ME, &claim(number, 0, &[]));
    }
    put(&mut table, LOWER, &claim(9, 0, &[]));
    let other = Key { vni: vni(8), ..key(1) };
    put(&mut table, HIGHER, &Claim { key: other, ..claim(1, 0, &[]) });
    let page = |after, count| -> Vec<(Key, HostId)> {
        let page = table.list(vni(7), after, count);
        page.iter().map(|vport| (vport.claim.key, vport.owner)).collect()
    };
    assert_eq!(page(None, 2), [(key(1), ME), (key(3), ME)]);
    assert_eq!(page(Some(key(3).mac), 9), [(key(4), ME), (key(9), LOWER)]);
    assert_eq!(page(None, 0), []);
    assert_eq!(table.vnets().collect::<Vec<_>>(), [(vni(7), 4), (vni(8), 1)]);
    assert_eq!(table.hosts_of(vni(7)).collect::<Vec<_>>(), [(LOWER, 1), (ME, 4)]);
    assert_eq!(table.contested().collect::<Vec<_>>(), [key(9)]);
    assert!(table.list(vni(9), None, 9).is_empty());
}

#[test]
fn a_digest_depends_on_every_field() {
    let digest = |claim: &Claim| {
        let mut digest = Digest::default();
        digest.add(claim);
        digest
    };
    let base = claim(1, 0, &[1, 2]);
    let v6 = [ip(1), Ipv6Addr::from_bits(0x0a00_0002).into()].into_iter().collect();
    let others = [
        claim(2, 0, &[1, 2]),
        claim(1, 1, &[1, 2]),
        claim(1, 0, &[1, 3]),
        claim(1, 0, &[1]),
        Claim { ips: v6, ..base },
        Claim { port: PortId(2), ..base },
        Claim { origin: Origin::Sticky, ..base },
        Claim { key: Key { vni: vni(8), ..base.key }, ..base },
    ];
    for other in &others {
        assert_ne!(digest(&base), digest(other), "{other:?}");
    }
    assert_eq!(digest(&base), digest(&claim(1, 0, &[2, 1])));
    assert_eq!(digest(&base).sum, 0xace6_962c_a114_439f, "all hosts of all releases agree");
}

#[test]
fn a_digest_knows_what_was_withdrawn() {
    let mut table = table();
    let empty = table.digest(ME);
    put(&mut table, ME, &claim(1, 0, &[1]));
    let one = table.digest(ME);
    put(&mut table, ME, &claim(2, 0, &[1]));
    put(&mut table, ME, &claim(2, 0, &[2]));
    table.withdraw(NOW, ME, key(2));
    assert_eq!((table.digest(ME), table.digest_in(ME, vni(7))), (one, one));
    table.withdraw(NOW, ME, key(1));
    assert_eq!((table.digest(ME), table.digest_in(ME, vni(7))), (empty, empty));
}

/// 1.2 million vports with an IPv4 address each, of 200 hosts in 1,000 networks.
#[test]
fn a_vport_takes_at_most_200_bytes() {
    const COUNT: u32 = 1_200_000;
    let mut table = Table::new(COUNT, 3);
    let mut worst = 0;
    let mut steps = String::new();
    for number in 0..COUNT {
        let key = Key { vni: vni(number % 1000), mac: Mac::from_u64(u64::from(number)) };
        let ips = [IpAddr::V4(Ipv4Addr::from_bits(number))].into_iter().collect();
        let owner = HostId(u16::try_from(number / 1000 % 200).unwrap());
        let claim = Claim { key, ips, ..claim(1, 0, &[]) };
        put(&mut table, owner, &claim);
        if number >= 100_000 && number % 50_000 == 0 {
            let bytes = table.memory_bytes() / number as usize;
            worst = worst.max(bytes);
            steps += &std::format!(" {bytes}");
        }
    }
    let bytes = table.memory_bytes() / COUNT as usize;
    assert!(bytes <= 200, "{bytes} bytes, on the way{steps}");
    assert!(worst <= 240, "on the way{steps}");
    assert!(table.by_key.segment_items_max() < 1500, "one call rehashes so many places at most");
    std::println!("{bytes} bytes for each vport, on the way{steps}");
}

#[test]
fn the_seed_changes_nothing_that_is_seen() {
    let all = |seed| {
        let mut table = Table::new(1000, seed);
        let mut prng = Prng::new(3);
        for _ in 0..500 {
            let owner = HostId(u16::try_from(prng.below(4)).unwrap());
            put(&mut table, owner, &claim(prng.below(90), 0, &[1]));
        }
        let mut seen: Vec<Vport> = (0..90).filter_map(|n| table.find(key(n))).collect();
        seen.extend(table.find_ip(vni(7), ip(1)));
        seen
    };
    assert_eq!(all(1), all(2));
    assert!(all(1).len() > 80);
}

impl Table {
    /// Checks the invariants between the parts of a table.
    pub(super) fn check(&self) {
        let mut claims = 0;
        for (index, owner) in self.owners.iter().enumerate() {
            let mut digest = Digest::default();
            for at in owner.claims.iter(&self.slots, Of::Owner) {
                assert_eq!(self.slots[at].owner, HostId::from_index(index));
                digest.add(&self.claim_at(at));
            }
            assert_eq!(digest, owner.digest, "the digest is that of the claims");
            claims += digest.count;
        }
        assert_eq!(claims, u64::from(self.slots.count()), "each claim is one host's");
        let (mut vports, mut indexed, mut ips, mut contested) = (0, 0, 0, 0);
        for (vni, vnet) in &self.vnets {
            let mut winners = 0;
            for at in vnet.claims.iter(&self.slots, Of::Vnet) {
                assert_eq!(self.slots[at].vni, *vni);
                let key = self.slots[at].key();
                ips += self.ip_slots_of(at).count();
                let head = self.head(self.hasher.of_key(key), key).unwrap();
                assert_eq!(self.slots[at].winner, at == head, "the first of a chain wins");
                if at != head {
                    continue;
                }
                winners += 1;
                indexed += self.ip_slots_of(at).count();
                let chain: Vec<u32> = self.chain(Some(head)).collect();
                assert!(chain.windows(2).all(|pair| self.precedes(pair[0], pair[1])));
                assert_eq!(self.contested.contains(&key), chain.len() > 1);
                contested += usize::from(chain.len() > 1);
            }
            assert!(winners > 0);
            assert_eq!(winners, vnet.vports);
            vports += winners;
        }
        assert_eq!(vports, self.vports);
        assert_eq!(self.by_key.len(), vports as usize);
        assert_eq!(self.contested.len(), contested);
        assert_eq!(self.ip_slots.count() as usize, ips);
        assert!(self.by_ip.len() <= indexed);
    }
}
