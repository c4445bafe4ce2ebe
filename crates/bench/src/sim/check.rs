//! Checks that a run must pass before its speed counts.
//!
//! - Nothing is lost where nothing may be lost, and nothing is sent twice there.
//! - Hops are within 1 % of a closed form. PA: each answer is a SYN, a SYN-ACK and, per segment of
//!   data, that segment and an ACK; each of these passes 4 links within a pod and 6 otherwise.
//!   PERM: each segment or ACK that has arrived passed 6 links, each that was dropped 1 to 5;
//!   segments in flight are within the 1 %.
//! - No answer is earlier than the link of its receiver allows: in a time `t` each aggregator gets
//!   at most as many answers as their frames fit into `t`.

use anyhow::ensure;
use sluice_base::Nanos;

use super::case::{ANSWER_BYTES, Case, HEADERS, LINK, OUTER_HEADERS, Outcome, WAVE_GAP, Work};

/// Number of answers of a wave to one aggregator.
const WORKERS: u64 = 16;
/// Number of links between hosts of one pod, and of two.
const LINKS: (u64, u64) = (4, 6);

/// Runs all checks.
///
/// # Errors
/// The first failed check.
pub(super) fn all(case: &Case, outcome: &Outcome) -> anyhow::Result<()> {
    let drops: u64 = outcome.summary.drops.values().sum();
    match case.work {
        Work::Pa { waves } => {
            let again = outcome.summary.tcp.retransmissions;
            ensure!(drops == 0 && again == 0, "{drops} frames dropped, {again} sent again");
            let flows = u64::from(waves) * u64::from(case.hosts() / case.tree.hosts_per_edge);
            pa_hops(case, outcome, flows * WORKERS)?;
            fan_in(case, &outcome.fct)?;
        }
        Work::Perm { .. } => {
            ensure!(!case.pfc || drops == 0, "{drops} frames dropped");
            perm_hops(outcome, drops)?;
        }
    }
    let (closed, audits) = outcome.summary.audits_closed;
    ensure!(closed == audits, "{} audits of virtual switches are open", audits - closed);
    Ok(())
}

fn segments(case: &Case) -> u64 {
    ANSWER_BYTES.div_ceil(u64::from(case.mss()))
}

fn pa_hops(case: &Case, outcome: &Outcome, flows: u64) -> anyhow::Result<()> {
    let per_flow = 2 + 2 * segments(case);
    let sent = outcome.summary.tcp.segments;
    ensure!(sent == flows * per_flow, "{sent} segments in {flows} answers, not {per_flow} in each");
    // Workers are drawn evenly from all other racks.
    let rack = u64::from(case.tree.hosts_per_edge);
    let others = u64::from(case.hosts()) - rack;
    let near = rack * u64::from(case.tree.edges_per_pod - 1);
    let links = near * LINKS.0 + (others - near) * LINKS.1;
    within_one_percent(outcome.summary.hops, sent * links / others)
}

/// Checks the hops of PERM. Senders and receivers are in different pods. A frame that a switch
/// drops has passed at least one link and has not passed the last one.
fn perm_hops(outcome: &Outcome, drops: u64) -> anyhow::Result<()> {
    let hops = outcome.summary.hops;
    let arrived = LINKS.1 * outcome.received;
    let (least, most) = (arrived + drops, arrived + (LINKS.1 - 1) * drops);
    within_one_percent(hops, hops.clamp(least, most))
}

fn within_one_percent(hops: u64, expected: u64) -> anyhow::Result<()> {
    let off = hops.abs_diff(expected);
    ensure!(off * 100 <= expected, "{hops} hops are not within 1 % of {expected}");
    Ok(())
}

/// Checks the completion times. Answers are in the order of their completion and a wave is over
/// before the next one begins, so each part of the list is a wave.
fn fan_in(case: &Case, fct: &[Nanos]) -> anyhow::Result<()> {
    let aggregators = usize::try_from(case.hosts() / case.tree.hosts_per_edge)?;
    let outer = if case.overlay { OUTER_HEADERS } else { 0 };
    let answer = ANSWER_BYTES + segments(case) * (HEADERS + outer);
    for wave in fct.chunks(aggregators * usize::try_from(WORKERS)?) {
        for (at, took) in wave.iter().enumerate() {
            ensure!(*took < WAVE_GAP, "an answer took {took}, longer than a wave");
            // The best case: all aggregators get their next answer at the same time.
            let bytes = (u64::try_from(at / aggregators)? + 1) * answer;
            let least = bytes * 8 * 1_000_000_000 / LINK.0;
            ensure!(took.0 >= least, "answer {at} took {took}, and {least} ns are the least");
        }
    }
    Ok(())
}
