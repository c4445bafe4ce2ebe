//! The paper's host in the model: four cores, VM n pinned to core n, one stream of UDP to each.

use sluice_base::{BitRate, Nanos, Priority, Prng};
use sluice_placement::{Config, CoreIndex, Mode};
use sluice_sim::cpu::{Flow, Params, Policy, Report, Scenario};

use super::params::Testbed;
use super::published::{Case, Rule};

/// Entries of a card's indirection table.
const BUCKETS: u32 = 128;
/// The priority of VM1's flow if priorities count.
const HIGH: Priority = Priority::from_low_bits(5);
/// Warm-up and duration of runs in which no entry moves.
const SHORT: (Nanos, Nanos) = (Nanos::from_millis(50), Nanos::from_millis(400));
/// Warm-up and duration of runs in which entries may move: a decision is made once in 100 ms.
const LONG: (Nanos, Nanos) = (Nanos::from_millis(2_500), Nanos::from_millis(1_000));

/// One experiment on the testbed.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) rule: Rule,
    pub(crate) bytes: u64,
    pub(crate) vms: u16,
    /// VM1's flow is of high priority.
    pub(crate) has_priority: bool,
    /// The core of VM1 is excluded from tunnel work if the rule knows exclusions.
    pub(crate) is_guarded: bool,
    pub(crate) policy: Policy,
    /// Number of seeds.
    pub(crate) seeds: u64,
}

/// Means over all seeds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Mbit/s of each VM.
    pub(crate) throughput: Vec<f64>,
    /// Hundredths of each VM's datagrams.
    pub(crate) loss: Vec<f64>,
    /// Each core's hundredths of all softirq work.
    pub(crate) softirq: Vec<f64>,
    /// Pieces of softirq work that each core did in a run.
    pub(crate) pieces: Vec<f64>,
    /// The same in a second.
    pub(crate) pieces_per_second: Vec<f64>,
    /// Mbit/s of all VMs under each seed.
    pub(crate) totals: Vec<f64>,
}

impl Answer {
    pub(crate) fn total(&self) -> f64 {
        self.throughput.iter().sum()
    }
}

/// Returns Jain's index of values; zero if all are.
pub(crate) fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (count(values.len()) * squares) } else { 0.0 }
}

pub(crate) fn count(items: usize) -> f64 {
    u32::try_from(items).map_or(f64::MAX, f64::from)
}

fn offered(testbed: &Testbed, bytes: u64) -> BitRate {
    BitRate(testbed.offered_bps(bytes))
}

/// Returns the entry of a flow: an entry of its own if the rule sees inner flows, its bucket if the
/// card hashes. A card sees no ports in fragments, so that they hash by the two hosts' addresses.
fn entry(testbed: &Testbed, rule: Rule, flow: &Flow, at: u32, seed: u64) -> u32 {
    match rule {
        Rule::Rss | Rule::RssPlusPlus if flow.segments() > 1 => u32::from(testbed.fragments_core),
        Rule::Rss | Rule::RssPlusPlus => {
            let drawn = Prng::stream(seed, &format!("bucket {at}")).below(u64::from(BUCKETS));
            u32::try_from(drawn).unwrap_or(0)
        }
        Rule::Default | Rule::VsExtend | Rule::Adaptive => at,
    }
}

fn steering(question: &Question) -> Config {
    let mode = match question.rule {
        Rule::Default | Rule::Rss => Mode::Rss,
        Rule::RssPlusPlus => Mode::RssPlusPlus,
        Rule::VsExtend => Mode::OnTheFly,
        Rule::Adaptive => Mode::Adaptive,
    };
    let mut config = Config::new(mode, BUCKETS);
    config.high_from = question.has_priority.then_some(HIGH);
    config
}

/// Returns the scenario of a question.
pub(crate) fn scenario(
    testbed: &Testbed,
    params: &Params,
    question: &Question,
    seed: u64,
) -> Scenario {
    let flow = |vm: u16| {
        let is_high = question.has_priority && vm == 0;
        let mut flow = Flow {
            vm: usize::from(vm),
            bytes: question.bytes,
            rate: offered(testbed, question.bytes),
            entry: 0,
            priority: if is_high { HIGH } else { Priority::ZERO },
        };
        flow.entry = entry(testbed, question.rule, &flow, u32::from(vm), seed);
        flow
    };
    let others = (0..testbed.cores).filter(|core| *core != testbed.default_core);
    let excluded = match question.rule {
        Rule::Default => others.collect(),
        Rule::VsExtend | Rule::Adaptive if question.is_guarded => vec![0],
        _ => Vec::new(),
    };
    let (warm_up, span) = span(question.rule);
    Scenario {
        cores: testbed.cores,
        excluded,
        vms: (0..question.vms).map(|vm| Some(vm % testbed.cores)).collect(),
        flows: (0..question.vms).map(flow).collect(),
        steering: steering(question),
        policy: question.policy,
        link: BitRate::from_mbps(testbed.link_mbps),
        seed,
        warm_up,
        span,
        params: *params,
    }
}

/// Runs a question under each of its seeds.
pub(crate) fn ask(
    testbed: &Testbed,
    params: &Params,
    question: &Question,
) -> anyhow::Result<Answer> {
    let run = |seed| sluice_sim::cpu::run(&scenario(testbed, params, question, seed));
    let reports: Vec<Report> = (1..=question.seeds).map(run).collect::<Result<_, _>>()?;
    Ok(answer(&reports, span(question.rule).1))
}

/// Returns warm-up and measured span of a rule's runs.
const fn span(rule: Rule) -> (Nanos, Nanos) {
    match rule {
        Rule::Default | Rule::Rss => SHORT,
        Rule::RssPlusPlus | Rule::VsExtend | Rule::Adaptive => LONG,
    }
}

fn answer(reports: &[Report], span: Nanos) -> Answer {
    let runs = count(reports.len());
    let mean = |of: &dyn Fn(&Report) -> f64| reports.iter().map(of).sum::<f64>() / runs;
    let flows = reports.first().map_or(0, |report| report.flows.len());
    let cores = reports.first().map_or(0, |report| report.cores.len());
    let softirq = |report: &Report, core: usize| {
        let all: u64 = report.cores.iter().map(|core| core.softirq_ns).sum();
        100.0 * whole(report.cores[core].softirq_ns) / whole(all.max(1))
    };
    let mbps = |bps: u64| whole(bps) / 1e6;
    let pieces: Vec<f64> =
        (0..cores).map(|at| mean(&|report| whole(report.cores[at].softirq_pieces))).collect();
    let seconds = whole(span.0) / 1e9;
    Answer {
        throughput: (0..flows)
            .map(|at| mean(&|report| mbps(report.flows[at].throughput_bps)))
            .collect(),
        loss: (0..flows)
            .map(|at| mean(&|report| whole(report.flows[at].loss_ppm()) / 1e4))
            .collect(),
        softirq: (0..cores).map(|at| mean(&|report| softirq(report, at))).collect(),
        pieces_per_second: pieces.iter().map(|pieces| pieces / seconds).collect(),
        pieces,
        totals: reports.iter().map(|report| mbps(report.total_bps())).collect(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and bit/s of a run are below 2^53")]
pub(crate) fn whole(value: u64) -> f64 {
    value as f64
}

/// Runs a cell of Table 4, with flows assigned to cores in advance. Returns Mbit/s of all flows.
pub(crate) fn table_4(
    testbed: &Testbed,
    params: &Params,
    case: Case,
    bytes: u64,
) -> anyhow::Result<f64> {
    let cores = case.cores();
    let vms = u16::try_from(cores.len())?;
    let question = Question {
        rule: Rule::VsExtend,
        bytes,
        vms,
        has_priority: false,
        is_guarded: false,
        policy: Policy::Drop,
        seeds: 1,
    };
    let mut scenario = scenario(testbed, params, &question, 1);
    (scenario.warm_up, scenario.span) = SHORT;
    scenario.steering = Config::new(Mode::Predetermined, BUCKETS);
    for (at, core) in cores.iter().enumerate() {
        let priority = Priority::from_low_bits(u8::try_from(at)? + 1);
        scenario.flows[at].priority = priority;
        scenario.steering.reserved.push((priority, CoreIndex(*core)));
    }
    Ok(whole(sluice_sim::cpu::run(&scenario)?.total_bps()) / 1e6)
}
