//! The product's `adaptive` beside RSS, RSS++ and the paper's rule, and its targets.

use sluice_sim::cpu::{Params, Policy};

use super::params::Testbed;
use super::published::{Rule, SIZES};
use super::testbed::{Answer, Question, ask};

/// Numbers of machines: fewer than cores, all cores but one, more than cores.
pub(crate) const VMS: [u16; 4] = [2, 3, 6, 8];

/// Extent of the comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent<'a> {
    pub(crate) vms: &'a [u16],
    pub(crate) sizes: &'a [u64],
    pub(crate) rules: &'a [Rule],
    /// Number of seeds for `rss`, for `rss++`, and for rules without a hash.
    pub(crate) seeds: [u64; 3],
}

/// One run of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) question: Question,
    pub(crate) answer: Answer,
}

/// All runs of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    pub(crate) runs: Vec<Run>,
    /// Rate of VM1 alone on the host under `adaptive`: (size, policy, Mbit/s).
    pub(crate) alone: Vec<(u64, Policy, f64)>,
}

/// A target and the result.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) needed: String,
    /// Result in the unit of `needed`, with the guard off and on.
    pub(crate) found: [f64; 2],
    pub(crate) is_met: [bool; 2],
}

pub(crate) const fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Drop => "drop",
        Policy::Hold => "hold",
    }
}

/// Compares all rules, sizes and numbers of machines.
pub(crate) fn compare(
    testbed: &Testbed,
    params: &Params,
    seeds: u64,
) -> anyhow::Result<Comparison> {
    let rules = [Rule::Rss, Rule::RssPlusPlus, Rule::VsExtend, Rule::Adaptive];
    let seeds = [seeds, seeds, seeds.min(4)];
    run(testbed, params, &Extent { vms: &VMS, sizes: &SIZES, rules: &rules, seeds })
}

/// Runs the given extent.
pub(crate) fn run(
    testbed: &Testbed,
    params: &Params,
    extent: &Extent<'_>,
) -> anyhow::Result<Comparison> {
    let mut all = Comparison { runs: Vec::new(), alone: Vec::new() };
    for policy in [Policy::Drop, Policy::Hold] {
        for &bytes in extent.sizes {
            let mut question = Question {
                rule: Rule::Adaptive,
                bytes,
                vms: 1,
                has_priority: true,
                is_guarded: false,
                policy,
                seeds: extent.seeds[2],
            };
            let alone = ask(testbed, params, &question)?.total();
            all.alone.push((bytes, policy, alone));
            for &vms in extent.vms {
                (question.vms, question.has_priority) = (vms, vms > 2);
                for &rule in extent.rules {
                    let knows = matches!(rule, Rule::VsExtend | Rule::Adaptive);
                    question.rule = rule;
                    question.seeds = match rule {
                        Rule::Rss => extent.seeds[0],
                        Rule::RssPlusPlus => extent.seeds[1],
                        _ => extent.seeds[2],
                    };
                    let guards = if knows && vms > 2 { &[false, true][..] } else { &[false] };
                    for &is_guarded in guards {
                        question.is_guarded = is_guarded;
                        let answer = ask(testbed, params, &question)?;
                        all.runs.push(Run { question: question.clone(), answer });
                    }
                }
            }
        }
    }
    Ok(all)
}

impl Comparison {
    /// Returns the answer of a rule. A rule without a guard has one answer for both settings.
    pub(crate) fn of(
        &self,
        rule: Rule,
        bytes: u64,
        vms: u16,
        policy: Policy,
        is_guarded: bool,
    ) -> Option<&Answer> {
        let is = |run: &&Run| {
            let q = &run.question;
            (q.rule, q.bytes, q.vms, q.policy) == (rule, bytes, vms, policy)
        };
        let mut same = self.runs.iter().filter(is);
        let exact = same.clone().find(|run| run.question.is_guarded == is_guarded);
        exact.or_else(|| same.next()).map(|run| &run.answer)
    }

    fn alone(&self, bytes: u64, policy: Policy) -> f64 {
        let is = |row: &&(u64, Policy, f64)| (row.0, row.1) == (bytes, policy);
        self.alone.iter().find(is).map_or(0.0, |row| row.2)
    }

    /// Returns the targets of `adaptive`, in the order in which they are shown.
    pub(crate) fn targets(&self) -> Vec<Target> {
        let mut all = Vec::new();
        for policy in [Policy::Drop, Policy::Hold] {
            self.totals(&mut all, policy);
            self.losses(&mut all, policy);
            self.priority(&mut all, policy);
            self.beside_rss_plus_plus(&mut all, policy);
            self.many_vms(&mut all, policy);
        }
        all
    }

    fn add(
        all: &mut Vec<Target>,
        policy: Policy,
        (what, needed): (String, String),
        found: [Option<f64>; 2],
        is_met: impl Fn(f64) -> bool,
    ) {
        if let [Some(off), Some(on)] = found {
            all.push(Target {
                what: format!("{}: {what}", policy_name(policy)),
                needed,
                found: [off, on],
                is_met: [is_met(off), is_met(on)],
            });
        }
    }

    /// Compares with RSS as the paper ran it, which drops.
    fn totals(&self, all: &mut Vec<Target>, policy: Policy) {
        for (bytes, least) in [(1400, 1.50), (8192, 6.87)] {
            let found = [false, true].map(|guard| {
                let rss = self.of(Rule::Rss, bytes, 3, Policy::Drop, false)?.total();
                Some(self.of(Rule::Adaptive, bytes, 3, policy, guard)?.total() / rss)
            });
            let what = format!("3 VMs, {bytes} B: total over that of rss, which drops");
            let words = (what, format!(">= {least:.2}"));
            Self::add(all, policy, words, found, |ratio| ratio >= least);
        }
    }

    fn losses(&self, all: &mut Vec<Target>, policy: Policy) {
        for (bytes, most) in [(1400, 0.2), (8192, 1.0)] {
            let found = [false, true].map(|guard| {
                let answer = self.of(Rule::Adaptive, bytes, 2, policy, guard)?;
                Some(answer.loss.iter().copied().fold(0.0, f64::max))
            });
            let is_met = |loss: f64| match policy {
                Policy::Drop => loss < most,
                Policy::Hold => loss <= 0.0,
            };
            let needed = match policy {
                Policy::Drop => format!("< {most} %"),
                Policy::Hold => "0 %".to_owned(),
            };
            let what = format!("2 VMs, {bytes} B: larger loss of both");
            Self::add(all, policy, (what, needed), found, is_met);
        }
    }

    fn priority(&self, all: &mut Vec<Target>, policy: Policy) {
        for bytes in SIZES {
            let found = [false, true].map(|guard| {
                let answer = self.of(Rule::Adaptive, bytes, 3, policy, guard)?;
                Some(100.0 * answer.throughput[0] / self.alone(bytes, policy))
            });
            let what = format!("3 VMs, {bytes} B: VM1, of high priority, of its rate alone");
            Self::add(all, policy, (what, ">= 98 %".to_owned()), found, |part| part >= 98.0);
        }
    }

    fn beside_rss_plus_plus(&self, all: &mut Vec<Target>, policy: Policy) {
        for vms in VMS {
            for bytes in SIZES {
                let found = [false, true].map(|guard| {
                    let other = self.of(Rule::RssPlusPlus, bytes, vms, policy, false)?.total();
                    Some(self.of(Rule::Adaptive, bytes, vms, policy, guard)?.total() / other)
                });
                let what = format!("{vms} VMs, {bytes} B: total over that of rss++");
                // Seeds differ by about a thousandth.
                let words = (what, ">= 1.00".to_owned());
                Self::add(all, policy, words, found, |ratio| ratio >= 0.999);
            }
        }
    }

    fn many_vms(&self, all: &mut Vec<Target>, policy: Policy) {
        for vms in [6, 8] {
            for bytes in SIZES {
                let found = [false, true].map(|guard| {
                    let rss = self.of(Rule::Rss, bytes, vms, policy, false)?.throughput[0];
                    let ours = self.of(Rule::Adaptive, bytes, vms, policy, guard)?.throughput[0];
                    Some(100.0 * (ours / rss - 1.0))
                });
                let what = format!("{vms} VMs, {bytes} B: VM1, of high priority, over rss");
                let words = (what, ">= +24 %".to_owned());
                Self::add(all, policy, words, found, |gain| gain >= 24.0);
            }
        }
    }
}
