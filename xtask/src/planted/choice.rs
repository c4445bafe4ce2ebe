//! Choice of the faults that are proved in this run; the others stand by their recorded verdict.
//!
//! ```text
//!   no verdict ─────────────────────────────────> prove: new
//!   patch, patched file or test changed ────────> prove: touched
//!   anything else it is built from changed, and the test is an oracle:
//!                   drawn, one in five ─────────> prove: checks an oracle
//!   other ───────── drawn, one in twenty ───────> prove: drawn
//!   not drawn ──────────────────────────────────> by record, of this content or of an older one
//! ```
//!
//! Nearly every change touches something that the oracles are built from. To prove all of their
//! faults each time would cost more than all the rest.
//!
//! The draw depends on the content of the work tree alone: the same commit draws the same faults on
//! each machine, the next commit draws others. It draws packages, and of each all that it has until
//! there are enough: where a few of every package are proved, building them is most of the work.

use std::fmt;

use super::content::{Digest, Evidence};
use super::fault::{Fault, Target};
use super::record::Record;

/// Integration tests that judge everything at once. A change far away can blind them.
const ORACLES: [&str; 5] = ["fabric", "mesh", "random", "shards", "swarm"];

/// One of so many faults of an oracle is drawn when something far from them changed.
const ORACLE_ONE_IN: usize = 5;
/// One of so many of the rest is drawn.
const DRAWN_ONE_IN: usize = 20;

/// Decision about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Choice {
    Prove(Why),
    /// Its verdict is about this content.
    Same,
    /// Its verdict is about an older content of what it is built from.
    Older,
    /// The caller names others.
    NotAsked,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prove(why) => write!(f, "to prove: {why}"),
            Self::Same => f.write_str("by record"),
            Self::Older => f.write_str("by record of older content"),
            Self::NotAsked => f.write_str("not asked for"),
        }
    }
}

/// Why a fault is proved now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    Asked,
    New,
    Touched,
    Oracle,
    Drawn,
    /// Everything that is not of this content is asked for.
    Older,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked for",
            Self::New => "new",
            Self::Touched => "touched",
            Self::Oracle => "checks an oracle",
            Self::Drawn => "drawn",
            Self::Older => "older",
        })
    }
}

/// Decides about each of the faults, in their order.
pub(super) fn choose(faults: &[(&Fault, Evidence)], record: &Record, seed: Digest) -> Vec<Choice> {
    let mut choices: Vec<Choice> =
        faults.iter().map(|(fault, evidence)| by_content(fault, *evidence, record)).collect();
    let mut rest: Vec<usize> =
        (0..faults.len()).filter(|&at| !matches!(choices[at], Choice::Prove(_))).collect();
    // Package by package: to build one more costs as much as proving several faults of it.
    rest.sort_by_key(|&at| {
        let Fault { name, test, .. } = faults[at].0;
        (seed.and(test.package.as_bytes()), seed.and(name.as_bytes()))
    });
    let (oracles, others): (Vec<usize>, Vec<usize>) = rest
        .into_iter()
        .partition(|&at| choices[at] == Choice::Older && is_oracle(&faults[at].0.test.target));
    for (from, one_in, why) in
        [(oracles, ORACLE_ONE_IN, Why::Oracle), (others, DRAWN_ONE_IN, Why::Drawn)]
    {
        for &at in from.iter().take(from.len().div_ceil(one_in)) {
            choices[at] = Choice::Prove(why);
        }
    }
    choices
}

/// Proves all that have no verdict about this content, and draws none.
pub(super) fn unrecorded(faults: &[(&Fault, Evidence)], record: &Record) -> Vec<Choice> {
    let choice = |(fault, evidence): &(&Fault, Evidence)| match by_content(fault, *evidence, record)
    {
        Choice::Older => Choice::Prove(Why::Older),
        choice => choice,
    };
    faults.iter().map(choice).collect()
}

/// Proves the new ones and those that a change touches, and draws none.
pub(super) fn touched(faults: &[(&Fault, Evidence)], record: &Record) -> Vec<Choice> {
    faults.iter().map(|(fault, evidence)| by_content(fault, *evidence, record)).collect()
}

fn by_content(fault: &Fault, evidence: Evidence, record: &Record) -> Choice {
    if record.of(&fault.name).any(|verdict| verdict == evidence) {
        Choice::Same
    } else if record.of(&fault.name).next().is_none() {
        Choice::Prove(Why::New)
    } else if record.of(&fault.name).all(|verdict| verdict.near != evidence.near) {
        Choice::Prove(Why::Touched)
    } else {
        Choice::Older
    }
}

fn is_oracle(target: &Target) -> bool {
    matches!(target, Target::Test(name) if ORACLES.contains(&&**name))
}

#[cfg(test)]
mod tests;
