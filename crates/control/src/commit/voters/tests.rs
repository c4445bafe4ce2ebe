use alloc::vec::Vec;

use super::*;

fn members(nodes: &[u64], ready: &[u64]) -> Vec<Candidate> {
    let candidate =
        |node: &u64| Candidate { node: *node, role: Role::Voter, is_ready: ready.contains(node) };
    nodes.iter().map(candidate).collect()
}

fn conf(voters: &[u64], learners: &[u64]) -> Conf {
    Conf { voters: voters.to_vec(), learners: learners.to_vec() }
}

#[test]
fn number_of_voters_follows_table() {
    let table = [(1, 1), (2, 2), (3, 3), (9, 3), (10, 5), (49, 5), (50, 7), (1_000, 7)];
    for (members, voters) in table {
        assert_eq!(wanted(members), voters, "{members}");
    }
}

#[test]
fn next_step_follows_table() {
    let change = |step| Some(Move::Change(step));
    let table = [
        ("fits", members(&[1, 2, 3], &[1, 2, 3]), conf(&[1, 2, 3], &[]), None),
        ("new", members(&[1, 2], &[1]), conf(&[1], &[]), change(Step::Learner(2))),
        ("ready", members(&[1, 2], &[1, 2]), conf(&[1], &[2]), change(Step::Voter(2))),
        ("not ready", members(&[1, 2], &[1]), conf(&[1], &[2]), None),
        ("gone learner", members(&[1], &[1]), conf(&[1], &[2]), change(Step::Remove(2))),
        ("gone voter", members(&[1, 2], &[1, 2]), conf(&[1, 2, 3], &[]), change(Step::Remove(3))),
        (
            "replaced first",
            members(&[1, 2, 4], &[1, 2, 4]),
            conf(&[1, 2, 3], &[4]),
            change(Step::Voter(4)),
        ),
        ("dead stays", members(&[1, 2, 3, 4], &[1, 2, 4]), conf(&[1, 2, 3], &[4]), None),
        ("leader goes", members(&[2, 3], &[2, 3]), conf(&[1, 2, 3], &[]), Some(Move::HandOver(2))),
        (
            "too many",
            members(&[1, 2, 3, 4], &[1, 2, 3]),
            conf(&[1, 2, 3, 4], &[]),
            change(Step::Learner(4)),
        ),
    ];
    for (name, members, conf, expected) in table {
        assert_eq!(next(&members, &conf, 1), expected, "{name}");
    }
}

#[test]
fn learner_by_role_is_not_promoted() {
    let mut members = members(&[1, 2, 3], &[1, 2, 3]);
    members[2].role = Role::Learner;
    assert_eq!(next(&members, &conf(&[1, 2], &[3]), 1), None);
    let demoted = Some(Move::Change(Step::Learner(3)));
    assert_eq!(next(&members, &conf(&[1, 2, 3], &[]), 1), demoted);
}

/// Steps from any voters to any members end, and any two quorums in a row meet.
#[test]
fn steps_end_with_quorums_that_meet() {
    for bits in 1_u64..(1 << 6) {
        for start in 1_u64..(1 << 6) {
            let set =
                |bits: u64| (1..=6).filter(|n| bits >> (n - 1) & 1 == 1).collect::<Vec<u64>>();
            let (nodes, mut conf) = (set(bits), conf(&set(start), &[]));
            let mut leader = conf.voters[0];
            let mut steps = 0;
            while let Some(step) = next(&members(&nodes, &nodes), &conf, leader) {
                steps += 1;
                assert!(steps < 40, "{nodes:?} {conf:?}");
                let before = conf.voters.len();
                match step {
                    Move::HandOver(node) => leader = node,
                    Move::Change(Step::Voter(node)) => {
                        conf.learners.retain(|other| *other != node);
                        conf.voters.push(node);
                    }
                    Move::Change(Step::Learner(node)) => {
                        conf.voters.retain(|other| *other != node);
                        conf.learners.push(node);
                    }
                    Move::Change(Step::Remove(node)) => {
                        conf.voters.retain(|other| *other != node);
                        conf.learners.retain(|other| *other != node);
                    }
                }
                assert!(conf.voters.len().abs_diff(before) <= 1 && !conf.voters.is_empty());
            }
            conf.voters.sort_unstable();
            assert_eq!(conf.voters.len(), wanted(nodes.len()), "{nodes:?} from {start:b}");
            assert!(conf.voters.iter().all(|node| nodes.contains(node)));
        }
    }
}
