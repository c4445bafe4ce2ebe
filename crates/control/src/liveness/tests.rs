use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use foca::{Header, Message};
use sluice_base::{HostId, Nanos, Prng};

use super::*;

/// Hosts that exchange datagrams which take a while, get lost, or find no host.
struct Net {
    now: Nanos,
    hosts: BTreeMap<HostId, Liveness>,
    /// Hosts that do nothing: their datagrams wait.
    hung: BTreeSet<HostId>,
    /// Pairs (from, to) whose datagrams are lost.
    cut: BTreeSet<(HostId, HostId)>,
    flying: BTreeMap<(Nanos, u64), (HostId, HostId, Vec<u8>)>,
    count: u64,
    loss_percent: u64,
    /// Incarnations that hosts have shown on their connections.
    shown: BTreeMap<HostId, u64>,
    random: Prng,
    seen: Vec<(Nanos, HostId, Change)>,
}

impl Net {
    fn new(hosts: u16, seed: u64) -> Self {
        let own = |host| Liveness::new(HostId(host), 1, Timing::default(), seed ^ u64::from(host));
        let mut net = Self {
            now: Nanos::ZERO,
            hosts: (0..hosts).map(|host| (HostId(host), own(host))).collect(),
            hung: BTreeSet::new(),
            cut: BTreeSet::new(),
            flying: BTreeMap::new(),
            count: 0,
            loss_percent: 0,
            shown: (0..hosts).map(|host| (HostId(host), 1)).collect(),
            random: Prng::stream(seed, "net"),
            seen: Vec::new(),
        };
        for host in 1..hosts {
            net.hosts.get_mut(&HostId(host)).unwrap().greet(Nanos::ZERO, HostId(0));
        }
        net
    }

    fn collect(&mut self, host: HostId) {
        let liveness = self.hosts.get_mut(&host).unwrap();
        while let Some(change) = liveness.change() {
            self.seen.push((self.now, host, change));
        }
        while let Some((to, bytes)) = liveness.datagram() {
            let lost = self.random.chance(self.loss_percent, 100);
            if lost || self.cut.contains(&(host, to)) {
                continue;
            }
            let late = Nanos(50_000 + self.random.below(2_000_000));
            self.flying.insert((self.now.after(late), self.count), (host, to, bytes));
            self.count += 1;
        }
    }

    /// Lets time pass.
    fn run(&mut self, millis: u64) {
        let end = self.now.after(Nanos::from_millis(millis));
        while self.now < end {
            self.now = self.now.after(Nanos::from_millis(1));
            for host in self.hosts.keys().copied().collect::<Vec<_>>() {
                if !self.hung.contains(&host) {
                    self.hosts.get_mut(&host).unwrap().advance(self.now);
                    self.collect(host);
                }
            }
            while let Some(entry) = self.flying.first_entry()
                && entry.key().0 <= self.now
            {
                let (from, to, bytes) = entry.remove();
                if !self.hung.contains(&to) {
                    self.receive(from, to, &bytes);
                }
            }
        }
    }

    fn receive(&mut self, from: HostId, to: HostId, bytes: &[u8]) {
        let Self { hosts, shown, now, .. } = self;
        let there = hosts.get_mut(&to).unwrap();
        there.receive(*now, from, bytes, |host| shown.get(&host).copied());
        // All members hear of another round.
        if there.take_rejoined() {
            for other in shown.keys().filter(|other| **other != to) {
                there.greet(*now, *other);
            }
        }
        self.collect(to);
    }

    /// Returns the state of `of` in the eyes of `host`, from its changes.
    fn thought(&self, host: HostId, of: HostId) -> Option<Change> {
        let about = |change: &Change| match change {
            Change::Up(host, _) | Change::Suspected(host) | Change::Down(host) => *host,
        };
        let own = self.seen.iter().rev().filter(|(_, by, _)| *by == host);
        own.map(|(_, _, change)| *change).find(|change| about(change) == of)
    }

    fn all_think(&self, of: HostId, wanted: Change) -> bool {
        let others = self.hosts.keys().filter(|host| **host != of && !self.hung.contains(*host));
        others.into_iter().all(|host| self.thought(*host, of) == Some(wanted))
    }
}

#[test]
fn everybody_finds_everybody_through_one() {
    let mut net = Net::new(8, 1);
    net.run(3_000);
    for host in 0..8 {
        assert!(net.all_think(HostId(host), Change::Up(HostId(host), 1)), "host {host}");
    }
}

#[test]
fn a_hung_host_is_suspected_and_declared_dead() {
    for seed in 0..20 {
        let mut net = Net::new(4, seed);
        net.run(2_000);
        let since = net.now;
        net.hung.insert(HostId(2));
        net.run(1_000);
        assert!(net.all_think(HostId(2), Change::Down(HostId(2))), "seed {seed}");
        let first = net
            .seen
            .iter()
            .find(|(at, _, change)| *at > since && *change == Change::Suspected(HostId(2)));
        let after = first.expect("it was suspected first").0.since(since);
        assert!(after <= Nanos::from_millis(500), "seed {seed}: after {after}");
    }
}

#[test]
fn a_host_that_comes_back_is_alive_again() {
    let mut net = Net::new(4, 3);
    net.run(2_000);
    net.hung.insert(HostId(1));
    net.run(2_000);
    assert!(net.all_think(HostId(1), Change::Down(HostId(1))));
    // The host goes on where it stopped, and learns that it was declared dead.
    net.hung.clear();
    net.run(5_000);
    assert!(net.all_think(HostId(1), Change::Up(HostId(1), 1)), "{:?}", net.seen);
}

#[test]
fn a_restart_is_another_life() {
    let mut net = Net::new(4, 4);
    net.run(2_000);
    let mut again = Liveness::new(HostId(3), 2, Timing::default(), 77);
    again.greet(net.now, HostId(1));
    net.hosts.insert(HostId(3), again);
    net.shown.insert(HostId(3), 2);
    net.run(3_000);
    assert!(net.all_think(HostId(3), Change::Up(HostId(3), 2)));
}

#[test]
fn partition_healed_both_sides_mark_members_up() {
    let mut net = Net::new(6, 5);
    net.run(2_000);
    for left in 0..3 {
        for right in 3..6 {
            net.cut.insert((HostId(left), HostId(right)));
            net.cut.insert((HostId(right), HostId(left)));
        }
    }
    net.run(4_000);
    assert_eq!(net.thought(HostId(0), HostId(5)), Some(Change::Down(HostId(5))));
    assert_eq!(net.thought(HostId(0), HostId(1)), Some(Change::Up(HostId(1), 1)));
    net.cut.clear();
    net.run(15_000);
    for host in 0..6 {
        assert!(net.all_think(HostId(host), Change::Up(HostId(host), 1)), "host {host}");
    }
}

#[test]
fn loss_and_one_way_link_keep_members_up() {
    for seed in 0..5 {
        let mut net = Net::new(5, seed);
        net.run(2_000);
        net.loss_percent = 5;
        net.cut.insert((HostId(0), HostId(1)));
        net.run(20_000);
        let dead = net.seen.iter().find(|(_, _, change)| matches!(change, Change::Down(_)));
        assert_eq!(dead, None, "seed {seed}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut net = Net::new(5, 9);
        net.loss_percent = 20;
        net.run(5_000);
        (net.count, net.seen)
    };
    assert_eq!(run(), run());
}

#[test]
fn malformed_datagram_counted_membership_unchanged() {
    let mut net = Net::new(3, 6);
    net.run(2_000);
    let mut random = Prng::new(1);
    for size in 0..200 {
        let bytes: Vec<u8> = (0..size).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        net.receive(HostId(1), HostId(0), &bytes);
    }
    let refused = net.hosts[&HostId(0)].refused();
    assert!(refused > 150, "{refused}");
    net.run(2_000);
    assert!(net.all_think(HostId(0), Change::Up(HostId(0), 1)));
}

#[test]
fn who_leaves_is_gone_at_once() {
    let mut net = Net::new(4, 7);
    net.run(2_000);
    let now = net.now;
    net.hosts.get_mut(&HostId(2)).unwrap().leave(now);
    net.collect(HostId(2));
    net.hung.insert(HostId(2));
    net.run(150);
    assert!(net.all_think(HostId(2), Change::Down(HostId(2))));
}

/// A datagram as `src` would write it for `to`, with this news of `members`.
fn written(src: Life, to: HostId, message: &Message<Life>, members: &[Member<Life>]) -> Vec<u8> {
    let dst = Life { host: to, incarnation: 1, round: 0 };
    let header = Header { src, src_incarnation: 0, dst, message: message.clone() };
    let mut bytes = Vec::new();
    foca::Codec::encode_header(&mut Codec, &header, &mut bytes).unwrap();
    if *message != Message::Announce {
        bytes.extend(u16::try_from(members.len()).unwrap().to_be_bytes());
        for member in members {
            foca::Codec::encode_member(&mut Codec, member, &mut bytes).unwrap();
        }
    }
    bytes
}

fn life(host: u16, incarnation: u64, round: u32) -> Life {
    Life { host: HostId(host), incarnation, round }
}

#[test]
fn forged_member_or_unproven_incarnation_message_refused() {
    let mut net = Net::new(4, 8);
    net.run(2_000);
    let (victim, liar) = (HostId(2), HostId(1));
    let forged = [
        // The highest incarnation, in the victim's name: by a stranger without a key, or a member.
        (liar, life(2, u64::MAX, 0), Message::Announce),
        (victim, life(2, u64::MAX, 0), Message::Announce),
        (victim, life(2, 1, 9), Message::Broadcast),
        // Of a host that is no member, and about one.
        (HostId(77), life(77, 1, 0), Message::Announce),
        (liar, life(1, 1, 0), Message::PingReq { target: life(77, 1, 0), probe_number: 3 }),
        (liar, life(1, 1, 0), Message::PingReq { target: life(2, 7, 0), probe_number: 3 }),
    ];
    for (from, src, message) in forged {
        let refused = net.hosts[&HostId(0)].refused();
        net.receive(from, HostId(0), &written(src, HostId(0), &message, &[]));
        assert_eq!(net.hosts[&HostId(0)].refused(), refused + 1, "{from:?} {message:?}");
    }
    let before = net.seen.len();
    net.run(3_000);
    assert_eq!(net.seen[before..], [], "nobody changed their mind");
}

#[test]
fn nobody_is_asked_about_itself_in_any_round() {
    for round in [0, 1, u32::MAX] {
        let own = life(0, 1, round);
        for message in [
            Message::PingReq { target: own, probe_number: 3 },
            Message::IndirectPing { origin: own, probe_number: 3 },
            Message::IndirectAck { target: own, probe_number: 3 },
            Message::ForwardedAck { origin: own, probe_number: 3 },
        ] {
            let mut host = Liveness::new(HostId(0), 1, Timing::default(), 1);
            let datagram = written(life(1, 1, 0), HostId(0), &message, &[]);
            host.receive(Nanos::ZERO, HostId(1), &datagram, |host| {
                (host == HostId(1)).then_some(1)
            });
            assert_eq!(host.refused(), 1, "{message:?}");
            let to = core::iter::from_fn(|| host.datagram()).map(|(to, _)| to);
            assert_eq!(to.filter(|to| *to == HostId(0)).count(), 0, "{message:?}");
        }
    }
}

/// A host that has taken another round knows its round before as a host that is down, and would
/// greet it.
#[test]
fn nobody_writes_to_itself() {
    let mut host = Liveness::new(HostId(0), 1, Timing::default(), 1);
    for to in [life(0, 1, 0), life(0, 1, 1), life(1, 1, 0)] {
        foca::Runtime::send_to(&mut host.wishes, to, &[1]);
    }
    assert_eq!(host.datagram(), Some((HostId(1), Vec::from([1]))));
    assert_eq!(host.datagram(), None);
}

#[test]
fn a_member_that_lies_of_another_is_contradicted() {
    for lie in
        [life(2, 1, 0), life(2, 1, 4), life(2, 1, u32::MAX), life(2, u64::MAX, 0), life(77, 1, 0)]
    {
        let mut net = Net::new(4, 8);
        net.run(2_000);
        for at in [0, 3] {
            let dead = Member::new(lie, u16::MAX, State::Down);
            let bytes = written(life(1, 1, 0), HostId(at), &Message::Gossip, &[dead]);
            net.receive(HostId(1), HostId(at), &bytes);
        }
        net.run(3_000);
        assert!(net.all_think(HostId(2), Change::Up(HostId(2), 1)), "{lie:?}: {:?}", net.seen);
        assert_eq!(net.thought(HostId(0), HostId(77)), None, "who is none is never heard of");
    }
}

#[test]
fn announce_flood_from_member_answered_within_limit() {
    let mut net = Net::new(3, 8);
    net.run(2_000);
    net.collect(HostId(0));
    let announce = written(life(1, 1, 0), HostId(0), &Message::Announce, &[]);
    let sent = net.count;
    for _ in 0..10_000 {
        net.receive(HostId(1), HostId(0), &announce);
    }
    assert!(net.count - sent <= 200, "{} answers", net.count - sent);
    net.run(3_000);
    assert!(net.all_think(HostId(1), Change::Up(HostId(1), 1)));
}

#[test]
fn new_incarnation_believed_only_after_proof() {
    let mut net = Net::new(4, 8);
    net.run(2_000);
    let now = net.now;
    net.hosts.get_mut(&HostId(3)).unwrap().reincarnate(now, 9);
    net.run(1_000);
    assert!(!net.all_think(HostId(3), Change::Up(HostId(3), 9)), "it was not shown");
    net.shown.insert(HostId(3), 9);
    for other in 0..3 {
        let now = net.now;
        net.hosts.get_mut(&HostId(3)).unwrap().greet(now, HostId(other));
    }
    net.collect(HostId(3));
    net.run(3_000);
    assert!(net.all_think(HostId(3), Change::Up(HostId(3), 9)), "{:?}", net.seen);
}

#[test]
fn forgotten_host_gets_nothing_may_return_younger() {
    let mut net = Net::new(3, 4);
    // The host is in a late life.
    net.shown.insert(HostId(2), 9);
    net.hosts.get_mut(&HostId(2)).unwrap().reincarnate(Nanos::ZERO, 9);
    net.hosts.get_mut(&HostId(2)).unwrap().greet(Nanos::ZERO, HostId(0));
    net.collect(HostId(2));
    net.run(2_000);
    assert!(net.all_think(HostId(2), Change::Up(HostId(2), 9)));
    net.shown.remove(&HostId(2));
    let (now, seen) = (net.now, net.seen.len());
    for host in [HostId(0), HostId(1)] {
        let liveness = net.hosts.get_mut(&host).unwrap();
        liveness.forget(now, HostId(2));
        assert!(liveness.foca.iter_membership_state().all(|member| member.id().host != HostId(2)));
        net.collect(host);
    }
    // It goes on, and is not heard; nothing is sent to it either.
    net.run(2_000);
    assert!(net.flying.values().all(|(_, to, _)| *to != HostId(2)));
    let about =
        |(_, by, change): &&(Nanos, HostId, Change)| *by != HostId(2) && change.host() == HostId(2);
    assert_eq!(net.seen[seen..].iter().filter(about).count(), 0);
    // A new machine of that number has a first life.
    net.hosts.insert(HostId(2), Liveness::new(HostId(2), 1, Timing::default(), 77));
    net.shown.insert(HostId(2), 1);
    net.hosts.get_mut(&HostId(2)).unwrap().greet(now, HostId(0));
    net.collect(HostId(2));
    net.run(2_000);
    assert!(net.all_think(HostId(2), Change::Up(HostId(2), 1)), "{:?}", &net.seen[seen..]);
}
