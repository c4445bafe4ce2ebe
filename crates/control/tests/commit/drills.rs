//! Drills: one story each, without chance.

use sluice_base::{HostId, Nanos};
use sluice_control::commit::{Done, Formats, Output, Policy, Record, Refused, Request};

use super::world::{Ticket, World, proposal};

const SECOND: Nanos = Nanos::from_millis(1_000);

fn fabric(count: u16) -> World {
    let mut world = World::new(7, count);
    world.look(true);
    world.run_for(Nanos::from_millis(3_000));
    world
}

fn is_committed(world: &World, asked: Ticket) -> bool {
    matches!(world.result(asked), Some(Ok(Done::Committed { .. })))
}

fn cut_off(world: &mut World, hosts: &[u16], others: &[u16]) {
    for a in hosts {
        for b in others {
            world.blocked.extend([(*a, *b), (*b, *a)]);
        }
    }
    world.look(true);
}

fn names(world: &World, host: u16) -> Vec<String> {
    let machine = world.hosts[&host].machine.as_ref().expect("it is up");
    machine.doc().expect("a document").names.into_keys().collect()
}

/// The divergence that Netvisor documents: node 1 alone, both down, node 2 alone, node 1 back.
#[test]
fn two_hosts_alone_in_turn_do_not_diverge() {
    let mut world = fabric(2);
    world.crash(2);
    world.look(true);
    let alone = world.commit(1, "add one 1");
    world.run_for(Nanos::from_millis(1_500));
    let words = world.result(alone).unwrap().clone().unwrap_err().to_string();
    assert!(words.contains("no quorum of the 2 voters: host 2 did not answer"), "{words}");
    world.crash(1);
    world.start(2);
    world.look(true);
    let alone = world.commit(2, "add two 2");
    world.run_for(Nanos::from_millis(1_500));
    assert!(matches!(world.result(alone), Some(Err(Refused::NoQuorum { .. }))));
    world.start(1);
    world.look(true);
    world.run_for(Nanos::from_millis(8_000));
    let together = world.commit(2, "add both 3");
    world.run_for(SECOND);
    assert!(is_committed(&world, together), "{:?}", world.result(together));
    assert_eq!(names(&world, 1), ["both"]);
    assert_eq!(names(&world, 2), ["both"]);
}

#[test]
fn minority_refuses_and_names_missing_hosts() {
    let mut world = fabric(5);
    let (minority, majority) = ([1, 2], [3, 4, 5]);
    let voters = world.hosts[&1].machine.as_ref().unwrap().status().voters;
    assert_eq!(voters, [HostId(1), HostId(2), HostId(3)]);
    // One voter of three is on this side.
    cut_off(&mut world, &minority[..1], &[2, 3, 4, 5]);
    world.run_for(Nanos::from_millis(3_000));
    let asked = world.commit(1, "add lonely 1");
    let other = world.commit(majority[0], "add many 1");
    world.run_for(SECOND);
    let refused = Refused::NoQuorum { voters: 3, missing: vec![HostId(2), HostId(3)] };
    assert_eq!(world.result(asked), Some(&Err(refused)));
    assert!(is_committed(&world, other));
    world.blocked.clear();
    world.look(true);
    world.run_for(Nanos::from_millis(4_000));
    assert_eq!(names(&world, 1), ["many"]);
}

/// A change waits while its majority is away, and is committed once that is back.
fn assert_waits_for_majority(world: &mut World, asked: Ticket) {
    world.run_for(Nanos::from_millis(400));
    assert_eq!(world.result(asked), None, "a connection may be made again");
    world.blocked.clear();
    world.look(true);
    world.run_for(Nanos::from_millis(4_000));
    assert!(is_committed(world, asked), "{:?}", world.result(asked));
}

#[test]
fn majority_away_for_a_moment_is_waited_for() {
    let mut world = fabric(3);
    cut_off(&mut world, &[1], &[2, 3]);
    let asked = world.commit(1, "add patient 1");
    assert_waits_for_majority(&mut world, asked);
}

#[test]
fn majority_lost_while_voting_is_asked_again() {
    let mut world = fabric(3);
    let asked = world.commit(1, "add patient 1");
    cut_off(&mut world, &[1], &[2, 3]);
    assert_waits_for_majority(&mut world, asked);
}

#[test]
fn all_members_required_names_who_is_away() {
    let mut world = fabric(3);
    world.crash(3);
    world.look(true);
    let mut wanted = proposal("add blue 1");
    wanted.policy = Policy::RequireAll;
    let asked = world.submit(1, Request::Commit(wanted.clone()));
    world.run_for(SECOND);
    assert_eq!(world.result(asked), Some(&Err(Refused::Away(vec![HostId(3)]))));
    // Waiting for the host to come back succeeds.
    wanted.policy = Policy::Wait(Nanos::from_millis(3_000));
    let asked = world.submit(1, Request::Commit(wanted));
    world.run_for(SECOND);
    assert_eq!(world.result(asked), None);
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(100));
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
}

/// A reservation is on the disk before its change is checked.
#[test]
fn vetoed_reservation_on_disk_says_yes_to_nobody() {
    let mut world = fabric(2);
    let mut wanted = proposal("add blue 1");
    wanted.policy = Policy::RequireAll;
    // The originator is content with its own change; the other host is not, and its veto is lost.
    world.blocked.extend([(1, 2), (2, 1)]);
    let asked = world.submit(1, Request::Commit(wanted));
    world.run_for(Nanos::from_millis(10));
    world.faults.veto = 1_000;
    world.blocked.remove(&(1, 2));
    let is_writing = |world: &World| {
        let records = world.hosts[&2].writing.iter().flat_map(|(_, records)| records);
        records.into_iter().any(|record| matches!(record, Record::Reservation { .. }))
    };
    for wanted in [true, false] {
        while is_writing(&world) != wanted {
            world.run_for(Nanos::from_micros(20));
        }
    }
    world.crash(2);
    // What it has said is lost by then.
    world.run_for(Nanos::from_millis(50));
    world.start(2);
    let started = world.hosts[&2].machine.as_ref().unwrap();
    assert_eq!(started.reservations(), 1, "it was not taken back yet");
    world.blocked.clear();
    world.look(true);
    world.run_for(SECOND);
    assert!(matches!(world.result(asked), Some(Err(_))), "{:?}", world.result(asked));
    assert!(names(&world, 1).is_empty());
    world.faults.veto = 0;
    world.look(true);
    let again = world.commit(2, "add blue 1");
    world.run_for(Nanos::from_millis(4_000));
    assert!(is_committed(&world, again), "{:?}", world.result(again));
}

#[test]
fn every_veto_is_reported_with_host_and_reason() {
    let mut world = fabric(3);
    world.faults.veto = 1_000;
    // At times the check takes longer than the disk, at times the disk.
    for _ in 0..40 {
        let asked = world.commit(2, "add blue 1");
        world.run_for(SECOND);
        let words = world.result(asked).unwrap().clone().unwrap_err().to_string();
        assert_eq!(words, "refused by host 1: table full; host 2: table full; host 3: table full");
    }
    world.faults.veto = 0;
    let again = world.commit(3, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, again));
}

#[test]
fn check_leaves_nothing_behind() {
    let mut world = fabric(3);
    let before = world.hosts[&1].machine.as_ref().unwrap().status().progress;
    let asked = world.submit(1, Request::Check(b"add blue 1".to_vec()));
    world.run_for(SECOND);
    let yes = vec![HostId(1), HostId(2), HostId(3)];
    assert_eq!(world.result(asked), Some(&Ok(Done::Checked { yes, away: Vec::new() })));
    for host in 1..=3 {
        let status = world.hosts[&host].machine.as_ref().unwrap().status();
        assert_eq!(status.progress, before);
        assert!(status.reserved.is_empty());
    }
}

#[test]
fn unconfirmed_transaction_is_undone_after_leader_change() {
    let mut world = fabric(3);
    let mut wanted = proposal("add blue 1");
    wanted.confirm_within = Some(Nanos::from_millis(2_000));
    let asked = world.submit(1, Request::Commit(wanted.clone()));
    world.run_for(SECOND);
    assert!(is_committed(&world, asked));
    let other = world.commit(2, "add green 1");
    world.run_for(SECOND);
    assert!(matches!(world.result(other), Some(Err(Refused::Unconfirmed(_)))));
    let leader = world.hosts[&2].machine.as_ref().unwrap().status().leader.unwrap().0;
    world.crash(leader);
    world.look(true);
    world.run_for(Nanos::from_millis(5_000));
    let left = if leader == 2 { 3 } else { 2 };
    assert!(names(&world, left).is_empty(), "it is undone");
    let history = world.hosts[&left].machine.as_ref().unwrap().history();
    assert!(history.last().unwrap().undoes);
    // Confirmed in time, it stays.
    wanted.change = b"add red 1".to_vec();
    let asked = world.submit(left, Request::Commit(wanted));
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    let confirm = world.submit(left, Request::Confirm);
    world.run_for(Nanos::from_millis(5_000));
    assert!(matches!(world.result(confirm), Some(Ok(Done::Confirmed(_)))));
    assert_eq!(names(&world, left), ["red"]);
}

#[test]
fn roll_back_undoes_all_after_revision() {
    let mut world = fabric(3);
    let mut revisions = Vec::new();
    for change in ["add a 1", "set a 2", "add b 1", "del a", "add a 3"] {
        let asked = world.commit(1, change);
        world.run_for(SECOND);
        let Some(Ok(Done::Committed { revision, .. })) = world.result(asked) else {
            panic!("{change}: {:?}", world.result(asked));
        };
        revisions.push(*revision);
    }
    let machine = world.hosts[&3].machine.as_ref().unwrap();
    let inverses = machine.inverses(revisions[0]).unwrap();
    assert_eq!(inverses.len(), 4);
    let change = String::from_utf8(super::doc::compose(&inverses)).unwrap();
    let asked = world.commit(3, &change);
    world.run_for(SECOND);
    assert!(is_committed(&world, asked));
    let doc = world.hosts[&2].machine.as_ref().unwrap().doc().unwrap();
    assert_eq!(doc.names.into_iter().collect::<Vec<_>>(), [("a".into(), "1".into())]);
}

#[test]
fn full_disk_of_one_does_not_stop_others() {
    let mut world = fabric(3);
    world.hosts.get_mut(&2).unwrap().full_until = Nanos::MAX;
    let asked = world.commit(1, "add green 2");
    world.run_for(Nanos::from_millis(4_000));
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    let own = world.commit(2, "add blue 1");
    world.run_for(Nanos::from_millis(4_000));
    let words = world.result(own).unwrap().clone().unwrap_err().to_string();
    assert!(words.contains("cannot write to disk: no space left on device"), "{words}");
    world.hosts.get_mut(&2).unwrap().full_until = Nanos::ZERO;
    world.run_for(Nanos::from_millis(4_000));
    let asked = world.commit(2, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    assert_eq!((names(&world, 3), names(&world, 2)), (green_and_blue(), green_and_blue()));
}

fn green_and_blue() -> Vec<String> {
    ["blue", "green"].map(str::to_owned).to_vec()
}

/// Loses the leader of two for good, at a moment when it may have appended what the other has not
/// heard of. Returns the number of entries that it keeps aside when it comes back nevertheless.
fn recover_without_leader(cut_after: Nanos) -> usize {
    let mut world = fabric(2);
    let before = world.commit(1, "add before 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, before));
    let leader = world.hosts[&1].machine.as_ref().unwrap().status().leader.unwrap().0;
    let survivor = 3 - leader;
    let lost = world.commit(leader, "add lost 1");
    world.run_for(cut_after);
    world.blocked.insert((leader, survivor));
    world.run_for(Nanos::from_millis(300));
    if world.result(lost).is_some() {
        return 0;
    }
    world.crash(leader);
    world.look(true);
    let refused = world.submit(survivor, Request::Recover { without: vec![] });
    assert!(matches!(world.result(refused), Some(Err(Refused::Unfit(_)))));
    let request = Request::Recover { without: vec![HostId(leader)] };
    let asked = world.submit(survivor, request);
    world.run_for(SECOND);
    let Some(Ok(Done::Recovered(epoch))) = world.result(asked).cloned() else {
        panic!("{:?}", world.result(asked));
    };
    assert_eq!((epoch.number, epoch.founder), (2, HostId(survivor)));
    world.checker.recovered(epoch);
    // What host 1 had reserved for the lost host ends, too, when that has been silent for long.
    world.run_for(Nanos::from_millis(12_000));
    assert!(world.hosts[&survivor].machine.as_ref().unwrap().status().reserved.is_empty());
    let alone = world.commit(survivor, "add alone 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, alone), "{:?}", world.result(alone));
    world.blocked.clear();
    world.start(leader);
    world.look(true);
    world.run_for(Nanos::from_millis(8_000));
    assert_eq!(names(&world, leader), names(&world, survivor));
    let status = world.hosts[&leader].machine.as_ref().unwrap().status();
    assert_eq!(status.epoch, epoch);
    assert_eq!(status.voters.len(), 2, "it votes again");
    assert!(world.unwelcome > 0, "messages of the old epoch are refused");
    let last = world.commit(leader, "add last 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, last), "{:?}", world.result(last));
    let aside = world.hosts[&leader].machine.as_ref().unwrap().aside();
    // The state, and what was kept aside, are read back from the disks.
    for host in [1, 2] {
        world.crash(host);
        world.start(host);
        let names = names(&world, host);
        assert!(names.contains(&"alone".into()) && names.contains(&"last".into()), "{names:?}");
    }
    assert_eq!(world.hosts[&leader].machine.as_ref().unwrap().aside(), aside);
    aside
}

#[test]
fn recovered_fabric_keeps_divergent_tail_aside() {
    let aside = (0..40).map(|n| recover_without_leader(Nanos::from_micros(250 * n)));
    let aside: Vec<_> = aside.collect();
    assert!(aside.iter().any(|count| *count > 0), "{aside:?}");
}

#[test]
fn lost_disk_is_stranger_until_joined_anew() {
    let mut world = fabric(3);
    let asked = world.commit(2, "add old 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    world.crash(2);
    let host = world.hosts.get_mut(&2).unwrap();
    host.disk.clear();
    world.checker.forgets(2);
    host.starts = 0;
    host.seat = 9_999;
    world.start(2);
    world.look(true);
    world.run_for(Nanos::from_millis(3_000));
    assert_eq!(world.hosts[&2].machine.as_ref().unwrap().doc(), None);
    let asked = world.commit(1, "evict 2\nmember 2 9999");
    world.run_for(Nanos::from_millis(5_000));
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    let status = world.hosts[&2].machine.as_ref().unwrap().status();
    assert_eq!(status.voters.len(), 3);
    let asked = world.commit(2, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
}

#[test]
fn evicted_host_hears_of_it_and_stops() {
    let mut world = fabric(3);
    let asked = world.commit(1, "evict 1");
    world.run_for(Nanos::from_millis(5_000));
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    assert!(world.hosts[&1].is_removed);
    world.crash(1);
    world.start(1);
    world.look(true);
    world.run_for(SECOND);
    let status = world.hosts[&1].machine.as_ref().unwrap().status();
    assert!(status.is_removed, "it remembers");
    let status = world.hosts[&2].machine.as_ref().unwrap().status();
    assert_eq!(status.voters, [HostId(2), HostId(3)]);
    let asked = world.commit(3, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
}

/// A host with a slow disk answers late, and by then the others may have closed its connection.
#[test]
fn evicted_voter_is_told_without_asking() {
    for slow_after in 0..40 {
        let mut world = fabric(3);
        let asked = world.commit(1, "evict 3");
        world.run_for(Nanos::from_millis(slow_after));
        world.hosts.get_mut(&3).unwrap().slow_until = world.now.after(SECOND);
        let waits = |world: &World| {
            let status = world.hosts[&1].machine.as_ref().unwrap().status();
            !is_committed(world, asked) || !status.departing.is_empty()
        };
        while waits(&world) {
            world.run_for(Nanos::from_millis(1));
        }
        world.blocked.extend([(3, 1), (3, 2)]);
        world.run_for(Nanos::from_millis(10));
        assert!(world.hosts[&3].is_removed, "slow after {slow_after} ms");
    }
}

/// A log of two goes on only with the vote of the one that is taken out.
#[test]
fn evicted_one_of_two_votes_until_told() {
    let mut world = fabric(2);
    let asked = world.commit(1, "evict 2");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    assert!(world.hosts[&2].is_removed);
    let asked = world.commit(1, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
}

#[test]
fn unknown_operation_is_vetoed_by_name() {
    let mut world = fabric(3);
    let asked = world.commit(1, "add blue 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked));
    world.hosts.get_mut(&3).unwrap().version = 1;
    world.crash(3);
    world.start(3);
    world.look(true);
    world.run_for(SECOND);
    let asked = world.commit(1, "mark blue 2");
    world.run_for(SECOND);
    let words = world.result(asked).unwrap().clone().unwrap_err().to_string();
    assert!(words.contains("host 3: operation `mark` is not known to this version"), "{words}");
    // Away, it cannot veto. Back, it stays where it was until it is upgraded.
    world.crash(3);
    world.look(true);
    let asked = world.commit(1, "mark blue 2");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    let status = world.hosts[&3].machine.as_ref().unwrap().status();
    assert!(status.halted.is_some_and(|why| why.contains("`mark`")));
    world.hosts.get_mut(&3).unwrap().version = 2;
    world.crash(3);
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    assert_eq!(world.hosts[&3].machine.as_ref().unwrap().doc(), Some(world.checker.document()));
}

#[test]
fn new_member_catches_up_after_compaction() {
    let mut world = fabric(3);
    for n in 0..400 {
        world.commit(1 + n % 3, &format!("add n{n} 1"));
        world.run_for(Nanos::from_millis(20));
    }
    world.run_for(SECOND);
    assert_eq!(names(&world, 2).len(), 400);
    let asked = world.commit(1, "evict 3\nmember 3 9999");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    world.crash(3);
    let host = world.hosts.get_mut(&3).unwrap();
    host.disk.clear();
    world.checker.forgets(3);
    host.seat = 9_999;
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    assert_eq!(names(&world, 3).len(), 400);
    assert_eq!(world.hosts[&3].machine.as_ref().unwrap().history().len(), 256);
    for host in 1..=3 {
        world.crash(host);
        world.start(host);
        assert_eq!(names(&world, host).len(), 400);
    }
}

/// Two members have said yes, the originator is gone, and there is no leader to end it.
#[test]
fn reservation_outlives_silent_originator_without_leader() {
    let mut world = fabric(3);
    let asked = world.commit(1, "add blue 1");
    while world.hosts[&2].machine.as_ref().unwrap().status().reserved.is_empty() {
        world.run_for(Nanos::from_micros(50));
        assert_eq!(world.result(asked), None);
    }
    let is_reserved =
        |world: &World| !world.hosts[&2].machine.as_ref().unwrap().status().reserved.is_empty();
    world.crash(1);
    world.crash(3);
    world.look(true);
    world.run_for(Nanos::from_millis(60_000));
    assert!(is_reserved(&world), "no entry has ended it");
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(15_000));
    assert!(!is_reserved(&world), "the leader has ended it");
    let asked = world.commit(2, "add green 1");
    world.run_for(SECOND);
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
}

/// Every member that is connected speaks the newest format that both know.
#[test]
fn programs_without_common_format_are_both_named() {
    let mut world = fabric(3);
    let newer = Formats::new(3, 4).expect("formats");
    world.hosts.get_mut(&3).unwrap().formats = newer;
    world.crash(3);
    world.look(true);
    world.start(3);
    world.look(true);
    world.run_for(SECOND);
    let named = Output::OtherFormats { host: HostId(3), theirs: newer, ours: Formats::OWN };
    assert!(world.said.contains(&(1, named)), "{:?}", world.said);
    let named = Output::OtherFormats { host: HostId(1), theirs: Formats::OWN, ours: newer };
    assert!(world.said.contains(&(3, named)), "{:?}", world.said);
    // It counts as one that is away, and keeps nobody from changing anything.
    let mut wanted = proposal("add blue 1");
    wanted.policy = Policy::RequireAll;
    let asked = world.submit(1, Request::Commit(wanted));
    world.run_for(SECOND);
    assert_eq!(world.result(asked), Some(&Err(Refused::Away(vec![HostId(3)]))));
    let asked = world.commit(1, "add blue 1");
    world.run_for(Nanos::from_millis(100));
    assert!(is_committed(&world, asked), "{:?}", world.result(asked));
    // With a program that knows one more format it catches up.
    world.hosts.get_mut(&3).unwrap().formats = Formats::new(2, 3).expect("formats");
    world.crash(3);
    world.look(true);
    world.start(3);
    world.look(true);
    world.run_for(Nanos::from_millis(2_000));
    assert_eq!(names(&world, 3), ["blue"]);
}

#[test]
fn older_and_newer_program_commit_together() {
    for old in 1..=3 {
        let mut world = fabric(3);
        world.hosts.get_mut(&old).unwrap().version = 1;
        world.crash(old);
        world.look(true);
        world.start(old);
        world.look(true);
        world.run_for(Nanos::from_millis(3_000));
        for host in 1..=3 {
            let asked = world.commit(host, &format!("add net{host} {host}"));
            world.run_for(SECOND);
            assert!(is_committed(&world, asked), "{old}, {host}: {:?}", world.result(asked));
        }
        let said = world.said.iter().any(|(_, said)| matches!(said, Output::OtherFormats { .. }));
        assert!(!said, "{:?}", world.said);
    }
}
