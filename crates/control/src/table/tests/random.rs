//! Compares the table with maps that keep every claim and look at all of them for each answer.

use proptest::prelude::*;

use super::*;

const HOSTS: u16 = 4;
const KEYS: u64 = 5;

#[derive(Clone, Debug)]
enum Op {
    Claim(HostId, Claim),
    Withdraw(HostId, Key),
    SetOwner(HostId, OwnerState),
    Evict(HostId),
    Begin(HostId),
    Abort(HostId),
    End(HostId),
}

fn op() -> impl Strategy<Value = Op> {
    let host = || (0..HOSTS).prop_map(HostId);
    let origin = prop_oneof![
        6 => Just(Origin::Learned), 1 => Just(Origin::Sticky), 1 => Just(Origin::Bound)
    ];
    let ips = prop::collection::vec((1u8..5, 0u32..3), 0..3);
    let claim =
        (0..KEYS, 0u32..4, ips, origin, 0u16..2).prop_map(|(number, moves, ips, origin, port)| {
            let mut claim = Claim { origin, port: PortId(port), ..claim(number, moves, &[]) };
            for (last, sequence) in ips {
                claim.ips.set(ip(last), sequence).unwrap();
            }
            claim
        });
    prop_oneof![
        12 => (host(), claim).prop_map(|(owner, claim)| Op::Claim(owner, claim)),
        4 => (host(), (0..KEYS).prop_map(key)).prop_map(|(owner, key)| Op::Withdraw(owner, key)),
        1 => host().prop_map(|owner| Op::SetOwner(owner, OwnerState::Stale)),
        1 => host().prop_map(|owner| Op::SetOwner(owner, OwnerState::Live)),
        1 => host().prop_map(Op::Evict),
        2 => host().prop_map(Op::Begin),
        1 => host().prop_map(Op::Abort),
        1 => host().prop_map(Op::End),
    ]
}

#[derive(Clone, Default)]
struct Model {
    claims: BTreeMap<(Key, HostId), Claim>,
    stale: BTreeSet<HostId>,
    /// Endpoints that were named since the snapshot began.
    open: BTreeMap<HostId, BTreeSet<Key>>,
}

impl Model {
    fn winner(&self, key: Key) -> Option<(HostId, Claim)> {
        let of_key = self.claims.iter().filter(|((k, _), _)| *k == key);
        let all: Vec<(HostId, Claim)> = of_key.map(|((_, owner), c)| (*owner, *c)).collect();
        let live = |owner: &HostId| !self.stale.contains(owner);
        all.iter()
            .find(|(owner, claim)| {
                all.iter().filter(|(other, _)| other != owner).all(|(other, others)| {
                    match (live(owner), live(other)) {
                        (true, false) => true,
                        (false, true) => false,
                        _ => claim.beats(*owner, others, *other),
                    }
                })
            })
            .copied()
    }

    fn keys_of(&self, owner: HostId) -> Vec<Key> {
        self.claims.keys().filter(|(_, o)| *o == owner).map(|(key, _)| *key).collect()
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Claim(owner, claim) => {
                self.claims.insert((claim.key, *owner), *claim);
                self.open.entry(*owner).and_modify(|named| {
                    named.insert(claim.key);
                });
            }
            Op::Withdraw(owner, key) => {
                self.claims.remove(&(*key, *owner));
            }
            Op::SetOwner(owner, OwnerState::Stale) => {
                self.stale.insert(*owner);
            }
            Op::SetOwner(owner, OwnerState::Live) => {
                self.stale.remove(owner);
            }
            Op::Evict(owner) => {
                self.claims.retain(|(_, of), _| of != owner);
                self.stale.remove(owner);
                self.open.remove(owner);
            }
            Op::Begin(owner) => {
                self.open.insert(*owner, BTreeSet::new());
            }
            Op::Abort(owner) => {
                self.open.remove(owner);
            }
            Op::End(owner) => {
                if let Some(named) = self.open.remove(owner) {
                    self.claims.retain(|(key, of), _| of != owner || named.contains(key));
                }
            }
        }
    }
}

/// Applies an operation to the table, in steps of one claim if it has steps, and returns the
/// changes.
fn apply(table: &mut Table, op: &Op) -> Vec<Change> {
    let mut changes = Vec::new();
    match op {
        Op::Claim(owner, claim) => changes.push(table.claim(NOW, *owner, claim).unwrap()),
        Op::Withdraw(owner, key) => changes.push(table.withdraw(NOW, *owner, *key)),
        Op::SetOwner(owner, state) => table.set_owner(NOW, *owner, *state, |c| changes.push(c)),
        Op::Evict(owner) => {
            while table.evict(NOW, *owner, 1, |c| changes.push(c)) == Progress::More {}
        }
        Op::Begin(owner) => table.begin_snapshot(*owner),
        Op::Abort(owner) => table.abort_snapshot(*owner),
        Op::End(owner) => {
            while table.end_snapshot(NOW, *owner, 1, |c| changes.push(c)) == Progress::More {}
        }
    }
    changes
}

fn holder(winner: Option<(HostId, Claim)>) -> Option<Holder> {
    winner.map(|(owner, claim)| Holder { owner, port: claim.port })
}

/// The reported changes must be exactly those that the model sees between before and after.
fn check_changes(before: &Model, after: &Model, changes: &[Change]) -> Result<(), TestCaseError> {
    let changes: Vec<&Change> = changes.iter().filter(|change| !change.is_nothing()).collect();
    for number in 0..KEYS {
        let key = key(number);
        let (was, is) = (before.winner(key), after.winner(key));
        let ips = |winner: Option<(HostId, Claim)>| winner.map_or(Ips::default(), |(_, c)| c.ips);
        let (had, has) = (ips(was), ips(is));
        let change = changes.iter().find(|change| change.key == key);
        let Some(change) = change else {
            prop_assert_eq!(holder(was), holder(is), "nothing was told");
            prop_assert_eq!(had.len(), has.len());
            // A sequence that falls is no news.
            let news = has.with_sequences().find(|(ip, now)| had.sequence(*ip) < Some(*now));
            prop_assert_eq!(news, None);
            continue;
        };
        prop_assert_eq!((change.before, change.after), (holder(was), holder(is)));
        prop_assert_eq!(change.gone, only(&had, |(ip, _)| !has.contains(*ip)));
        prop_assert_eq!(change.come, only(&has, |(ip, now)| had.sequence(*ip) < Some(*now)));
        let others = |ip| {
            let mut keys = (0..KEYS).map(super::key).filter(|other| *other != key);
            keys.any(|other| ips(after.winner(other)).contains(ip))
        };
        if changes.len() == 1 {
            prop_assert_eq!(change.duplicates, only(&change.come, |(ip, _)| others(*ip)));
        }
    }
    Ok(())
}

fn check_answers(model: &Model, table: &Table) -> Result<(), TestCaseError> {
    for number in 0..KEYS {
        let found = table.find(key(number)).map(|vport| (vport.owner, vport.claim));
        prop_assert_eq!(found, model.winner(key(number)));
        let state = table.holder(key(number)).map(|(_, state)| state == OwnerState::Stale);
        prop_assert_eq!(state, found.map(|(owner, _)| model.stale.contains(&owner)));
    }
    for last in 1..5 {
        let has = |key: &Key| model.winner(*key).is_some_and(|(_, c)| c.ips.contains(ip(last)));
        let expected: Vec<Key> = (0..KEYS).map(key).filter(has).collect();
        let all = table.all_with_ip(vni(7), ip(last));
        let mut found: Vec<Key> = all.map(|vport| vport.claim.key).collect();
        found.sort_unstable();
        prop_assert_eq!(&found, &expected);
        let best = table.find_ip(vni(7), ip(last)).map(|vport| vport.claim.key);
        let order = |key: &Key| {
            let (owner, claim) = model.winner(*key).unwrap();
            let sequence = claim.ips.sequence(ip(last));
            let is_unbound = claim.origin != Origin::Bound;
            (model.stale.contains(&owner), is_unbound, Reverse(sequence), key.mac)
        };
        prop_assert_eq!(best, expected.into_iter().min_by_key(order));
    }
    for owner in (0..HOSTS).map(HostId) {
        let mut digest = Digest::default();
        for key in model.keys_of(owner) {
            digest.add(&model.claims[&(key, owner)]);
        }
        prop_assert_eq!(table.digest(owner), digest);
        prop_assert_eq!(table.digest_in(owner, vni(7)), digest);
    }
    Ok(())
}

proptest! {
    #[test]
    fn it_answers_like_maps_of_all_claims(ops in prop::collection::vec(op(), 0..80)) {
        let (mut table, mut model) = (Table::new(1000, 1), Model::default());
        for op in &ops {
            let before = model.clone();
            model.apply(op);
            let changes = apply(&mut table, op);
            check_changes(&before, &model, &changes)?;
            check_answers(&model, &table)?;
            table.check();
        }
    }

    /// Tables with the same claims and states, received in another order, agree.
    #[test]
    fn the_order_of_news_does_not_matter(
        ops in prop::collection::vec(op(), 0..40), seed: u64,
    ) {
        let mut model = Model::default();
        ops.iter().for_each(|op| model.apply(op));
        let mut news: Vec<Op> =
            model.claims.iter().map(|((_, owner), c)| Op::Claim(*owner, *c)).collect();
        news.extend(model.stale.iter().map(|owner| Op::SetOwner(*owner, OwnerState::Stale)));
        let mut prng = Prng::new(seed);
        for left in (1..news.len()).rev() {
            let other = usize::try_from(prng.below(left as u64 + 1)).unwrap();
            news.swap(left, other);
        }
        let mut table = Table::new(1000, seed);
        for op in &news {
            apply(&mut table, op);
        }
        check_answers(&model, &table)?;
    }

    /// Two sets of claims have one digest only if they are equal.
    #[test]
    fn a_digest_tells_sets_apart(
        ops in prop::collection::vec(op(), 0..30), others in prop::collection::vec(op(), 0..3),
    ) {
        let mut table = Table::new(1000, 1);
        ops.iter().for_each(|op| drop(apply(&mut table, op)));
        let all = |table: &Table| -> Vec<(Key, Claim)> {
            let mut claims: Vec<_> = table.claims_of(HostId(0)).map(|c| (c.key, c)).collect();
            claims.sort_unstable_by_key(|(key, _)| *key);
            claims
        };
        let (digest, claims) = (table.digest(HostId(0)), all(&table));
        others.iter().for_each(|op| drop(apply(&mut table, op)));
        prop_assert_eq!(digest == table.digest(HostId(0)), claims == all(&table));
    }
}
