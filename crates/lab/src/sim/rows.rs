//! Findings of a simulation, as rows of the one results format.
//!
//! `pa.fct` and `pa.gain` are those of the lab. Further rows are `sim.settings` (one per variant:
//! every parameter and the seed), `sim.goodput`, `sim.datagrams` of UDP sources, and per cell
//! `sim.cell`, `sim.tcp`, `sim.pause` and `sim.high_water`; a check of the lab has `sim.ping` or
//! `sim.stream`. No row depends on the machine or on the elapsed time: the same seed gives the same
//! rows.

use serde_json::{Value, json};
use sluice_api::config::Policy;
use sluice_api::results::{Results, Row};

use super::experiment::{Case, Experiment, Load, Probe};
use super::simulate::Measured;
use crate::results::{CellName, Queries, nanoseconds};

/// Returns the results of a run: one measurement per case, in order.
pub(crate) fn results(experiment: &Experiment, measured: &[Measured]) -> Results {
    Results {
        name: experiment.name.clone(),
        commit: crate::machine::commit(),
        machine: crate::machine::description(),
        rows: rows(experiment, measured),
    }
}

/// Returns the rows alone.
pub(crate) fn rows(experiment: &Experiment, measured: &[Measured]) -> Vec<Row> {
    let names: Vec<CellName<'_>> =
        experiment.cases.iter().map(|case| cell_name(experiment, case)).collect();
    let cells: Vec<Queries<'_>> = names
        .iter()
        .zip(measured)
        .map(|(name, m)| Queries { name, fct_ns: &m.fct_ns, losses: &m.losses })
        .collect();
    let mut rows: Vec<Row> = settings(experiment);
    let queries = experiment.cases.iter().zip(&cells).filter(|(case, _)| case.probe().is_none());
    rows.extend(queries.filter_map(|(_, cell)| cell.fct()));
    for base in cells.iter().filter(|cell| cell.name.policy == Policy::LL) {
        let own = cells.iter().filter(|cell| is_compared(base.name, cell.name));
        rows.extend(own.filter_map(|cell| cell.gain_over(base)));
    }
    for ((case, name), m) in experiment.cases.iter().zip(&names).zip(measured) {
        rows.extend(details(case, name, m));
    }
    rows
}

/// Returns true if the gain of a cell over an `LL` cell is of interest: both have the same size and
/// variant. The `LL` cell of `vm-bound-total`, which runs no other policy, is compared with the
/// cells of `vm-bound`.
fn is_compared(base: &CellName<'_>, cell: &CellName<'_>) -> bool {
    let plain = base.variant.replacen("vm-bound-total", "vm-bound", 1);
    cell.policy != Policy::LL && cell.size == base.size && cell.variant == plain
}

fn cell_name<'a>(experiment: &'a Experiment, case: &'a Case) -> CellName<'a> {
    CellName {
        subject: experiment.subject,
        variant: case.variant.clone(),
        policy: case.policy,
        tcp: case.variant.split_once(" tcp=").map_or(experiment.congestion, |(_, tcp)| tcp),
        profile: experiment.profile,
        rto_min_ms: rto_min_ms(experiment),
        background: experiment.background,
        size: case.size,
    }
}

fn rto_min_ms(experiment: &Experiment) -> Value {
    let micros = experiment.rto_min.0 / 1000;
    let exact = u32::try_from(micros).map_or(f64::MAX, f64::from) / 1000.0;
    if micros.is_multiple_of(1000) { json!(micros / 1000) } else { json!(exact) }
}

fn settings(experiment: &Experiment) -> Vec<Row> {
    let row = |(variant, all): &(String, serde_json::Map<String, Value>)| {
        let mut row = Row::new("sim.settings", "sluice", "count", vec![1.0]);
        row.context.extend(all.clone());
        row.with("variant", variant.as_str())
            .with("about", experiment.about.as_str())
            .with("seed", experiment.seed)
            .with("tcp_profile", experiment.profile)
            .with("tcp_congestion", experiment.congestion)
            .with("rto_min_ms", rto_min_ms(experiment))
    };
    experiment.settings.iter().map(row).collect()
}

fn details(case: &Case, name: &CellName<'_>, measured: &Measured) -> Vec<Row> {
    let summary = &measured.summary;
    let row = |measure: &str, unit: &str, values: &[u64]| {
        Row::new(measure, "sluice", unit, nanoseconds(values))
            .with("variant", name.variant.as_str())
            .with("policy", name.policy.name())
            .with("size_packets", name.size)
    };
    let mut seconds = row("sim.cell", "s", &[]);
    let span = std::time::Duration::from_nanos(summary.time.0).as_secs_f64();
    (seconds.values, seconds.median) = (vec![span], span);
    let mut rows = vec![
        seconds
            .with("events", summary.events)
            .with("hops", summary.hops)
            .with("asked", case.asked())
            .with("background_flows", measured.flows)
            .with("background_refused", measured.refused)
            .with("drops", json!(measured.losses.drops))
            .with("drops_congestion", measured.losses.congestion)
            .with("audit_closed", measured.losses.audit_closed)
            .with("broken", measured.broken.clone()),
    ];
    if !measured.delivered.is_empty() && summary.time.0 > 0 {
        let rate = |&bytes: &u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(summary.time.0);
            u64::try_from(bits).unwrap_or(u64::MAX)
        };
        let rates: Vec<u64> = measured.delivered.iter().map(rate).collect();
        rows.push(row("sim.goodput", "bit/s", &rates));
    }
    rows.extend(case.probe().map(|probe| check_row(case, probe, measured)));
    for (place, counts) in ["workload", "background"].into_iter().zip(measured.datagrams) {
        let Some(counts) = counts else { continue };
        rows.push(
            row("sim.datagrams", "count", &[counts.sent])
                .with("of", place)
                .with("arrived", counts.arrived)
                .with("refused", counts.refused),
        );
    }
    let tcp = &summary.tcp;
    for (counter, value) in [
        ("segments", tcp.segments),
        ("retransmissions", tcp.retransmissions),
        ("timeouts", tcp.timeouts),
        ("fast_recoveries", tcp.fast_recoveries),
    ] {
        rows.push(row("sim.tcp", "count", &[value]).with("counter", counter));
    }
    for (place, (xoff, xon)) in ["physical switches", "hosts"].into_iter().zip(summary.pauses) {
        rows.push(row("sim.pause", "frames", &[xoff]).with("place", place).with("xon", xon));
    }
    for (place, unit, value) in [
        ("input of a physical switch", "bytes", summary.physical_held_max),
        ("output to a machine", "frames", summary.vm_queue_max),
        ("input of a network card", "bytes", summary.card_held_max),
    ] {
        rows.push(row("sim.high_water", "count", &[value]).with("place", place).with("of", unit));
    }
    rows
}

/// Returns the row of a check: round-trip times of echoes, or the rate of a transfer.
fn check_row(case: &Case, probe: &Probe, measured: &Measured) -> Row {
    let row = if probe.is_echo {
        Row::new("sim.ping", "sluice", "ns", nanoseconds(&measured.fct_ns))
            .with("sent", case.queries())
    } else {
        let bytes = match &case.load {
            Load::Exchange(plan, _) => plan.response_bytes,
            Load::Aggregate(_) | Load::Search(_) | Load::Permutation { .. } | Load::Sources(_) => 0,
        };
        let rate = |&ns: &u64| {
            let bits = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(ns.max(1));
            u64::try_from(bits).unwrap_or(u64::MAX)
        };
        let rates: Vec<u64> = measured.fct_ns.iter().map(rate).collect();
        Row::new("sim.stream", "sluice", "bit/s", nanoseconds(&rates))
    };
    row.with("from", probe.from.as_str())
        .with("to", probe.to.as_str())
        .with("policy", case.policy.name())
}

#[cfg(test)]
mod tests;
