//! Choice of the voters among the members: 1, 2, 3, 5 or 7 of them, the rest learn.
//!
//! One step at a time, so that any quorum before a step meets any quorum after it. Members are
//! promoted before others are removed, and only if they are live and have the log: a voter that
//! lags is one that a quorum cannot use.

use alloc::vec::Vec;

use super::node::Step;
use super::record::Conf;
use super::surface::Role;

/// A member that may vote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) node: u64,
    pub(super) role: Role,
    /// Live, with nearly all of the log.
    pub(super) is_ready: bool,
}

/// Next step towards the voters that the members ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Change(Step),
    /// The leader is to go; another one does it.
    HandOver(u64),
}

/// Returns the number of voters of a fabric.
pub(super) const fn wanted(members: usize) -> usize {
    match members {
        0..=2 => members,
        3..=9 => 3,
        10..=49 => 5,
        _ => 7,
    }
}

/// Returns the next step, or `None` if the voters fit.
pub(super) fn next(members: &[Candidate], conf: &Conf, leader: u64) -> Option<Move> {
    let is_member = |node: &u64| members.iter().any(|member| member.node == *node);
    let knows = |node: &u64| conf.voters.contains(node) || conf.learners.contains(node);
    let may_vote = |node: &u64| {
        members.iter().any(|member| member.node == *node && member.role != Role::Learner)
    };
    let mut nodes: Vec<_> = members.iter().map(|member| member.node).collect();
    nodes.sort_unstable();
    if let Some(node) = nodes.iter().find(|node| !knows(node)) {
        return Some(Move::Change(Step::Learner(*node)));
    }
    let count = wanted(nodes.iter().filter(|node| may_vote(node)).count());
    let fit = conf.voters.iter().filter(|node| may_vote(node)).count();
    let is_ready = |node: &u64| {
        members.iter().any(|member| member.node == *node && member.is_ready) && may_vote(node)
    };
    if fit < count
        && let Some(node) = nodes.iter().find(|node| !conf.voters.contains(node) && is_ready(node))
    {
        return Some(Move::Change(Step::Voter(*node)));
    }
    // Somebody must be left to lead.
    let unfit = conf.voters.iter().find(|node| !may_vote(node) && **node != leader && fit > 0);
    if let Some(node) = unfit {
        let step = if is_member(node) { Step::Learner(*node) } else { Step::Remove(*node) };
        return Some(Move::Change(step));
    }
    if let Some(node) = conf.learners.iter().find(|node| !is_member(node)) {
        return Some(Move::Change(Step::Remove(*node)));
    }
    if conf.voters.contains(&leader) && !may_vote(&leader) {
        return conf.voters.iter().find(|node| is_ready(node)).map(|node| Move::HandOver(*node));
    }
    if fit > count {
        // Those that are not ready go first, then the highest.
        let others = conf.voters.iter().filter(|node| **node != leader);
        let node = others.max_by_key(|node| (!is_ready(node), **node))?;
        return Some(Move::Change(Step::Learner(*node)));
    }
    None
}

#[cfg(test)]
mod tests;
