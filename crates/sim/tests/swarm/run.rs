//! Runs a scenario to its end.

use sluice_base::Nanos;
use sluice_sim::check::Checked;
use sluice_sim::workload::{Aggregating, BackgroundTraffic, Waves};
use sluice_sim::world::{End, Place, Summary, Workload, World};

use crate::meter::Metered;
use crate::mix::{Ending, Mix};
use crate::scenario::Scenario;

/// All visible results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    pub(crate) summary: Summary,
    /// Digest of every arrival and drop, with its time.
    pub(crate) digest: u64,
    pub(crate) messages: u64,
    /// Payload of the messages that arrived before the first workload was done.
    pub(crate) bytes: u64,
    /// Time of the last of these arrivals.
    pub(crate) last: Nanos,
    /// Completion times of the workloads.
    pub(crate) fct: Vec<Nanos>,
}

impl Outcome {
    pub(crate) fn losses(&self) -> u64 {
        self.summary.drops_congestion
    }

    /// Losses among these in physical switches.
    pub(crate) fn physical_losses(&self) -> u64 {
        let drops = self.summary.drops.iter();
        drops.filter(|((place, _), _)| *place == Place::Physical).map(|(_, count)| count).sum()
    }

    pub(crate) fn pauses(&self) -> u64 {
        self.summary.pauses[0].0 + self.summary.pauses[1].0
    }

    /// Returns true if any buffer ran full.
    pub(crate) fn is_hard(&self) -> bool {
        self.losses() + self.pauses() > 0
    }
}

/// Longer than any scenario: time-outs back off to minutes.
const TIME_MAX: Nanos = Nanos::from_millis(2_000_000);

/// Time in which background flows begin.
const BACKGROUND: Nanos = Nanos::from_millis(2);

/// Runs a scenario and drains it; the error is a report of the violation.
pub(crate) fn run(
    scenario: &Scenario,
    every: u64,
    repeat: &str,
    prepare: impl FnOnce(&mut World),
) -> Result<Outcome, String> {
    let mut checked =
        Checked::new(&scenario.config, every, repeat.to_owned()).map_err(|e| e.to_string())?;
    prepare(checked.world_mut());
    let mut mix = Mix::new(&scenario.flows);
    let mut asking = scenario.aggregate.clone().map(Aggregating::new);
    let ending = |plan| Ending { inner: BackgroundTraffic::new(plan), until: BACKGROUND };
    let mut background = scenario.background.clone().map(ending);
    let mut waves = scenario.waves.as_ref().map(|plan| {
        let tcp = std::sync::Arc::clone(&plan.tcp);
        let mut waves = Waves::new(tcp, plan.hosts, plan.waves, plan.seed);
        (waves.rack, waves.workers, waves.bytes, waves.gap) =
            (plan.rack, plan.workers, plan.bytes, plan.gap);
        waves
    });
    let mut workloads: Vec<&mut dyn Workload> = Vec::new();
    // An empty mix is done at once, and would end the run.
    workloads.extend((!scenario.flows.is_empty()).then_some(&mut mix as &mut dyn Workload));
    workloads.extend(asking.as_mut().map(|w| w as &mut dyn Workload));
    workloads.extend(waves.as_mut().map(|w| w as &mut dyn Workload));
    let last = usize::try_from(scenario.seed).unwrap() % workloads.len();
    workloads.swap(0, last);
    workloads.extend(background.as_mut().map(|w| w as &mut dyn Workload));
    let mut metered: Vec<Metered<'_>> = workloads.into_iter().map(Metered::new).collect();
    let mut workloads: Vec<_> = metered.iter_mut().map(|w| w as &mut dyn Workload).collect();
    let end = checked.run_all(&mut workloads, TIME_MAX).map_err(|report| report.to_string())?;
    let bytes = metered.iter().map(|workload| workload.bytes).sum();
    let last = metered.iter().map(|workload| workload.last).max().unwrap_or_default();
    // If timers run in step and buffers hold a frame or two, one connection may lose every
    // retransmission: that is TCP's behaviour, and no fault.
    let starved = end == End::Time && checked.world().summary().drops_congestion > 0;
    if end != End::Done && !starved {
        return Err(format!("it ended with {end:?}"));
    }
    if !starved {
        checked.drain(TIME_MAX).map_err(|report| report.to_string())?;
    }
    let mut fct = mix.fct;
    fct.extend(asking.iter().flat_map(|asking| asking.completion_times().iter().copied()));
    fct.extend(waves.iter().flat_map(|waves| waves.fct.iter().copied()));
    Ok(Outcome {
        end,
        summary: checked.world().summary(),
        digest: checked.digest(),
        messages: checked.messages(),
        bytes,
        last,
        fct,
    })
}
