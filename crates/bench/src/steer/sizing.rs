//! What is sent, and what the guest does with it: as much as both cores can do on this machine,
//! when each does its own.
//!
//! A load that is sized for another machine shows little on a faster one, where both fit on one
//! core. So the rate is the one that nearly fills the free core with the sender's work and the
//! tunnel's, and the guest's work is what nearly fills the guest's at that rate. Nothing is chosen
//! by what the wrong core makes of it.

use super::{Bench, Plan, Rig, Subject};

/// What is sent, and what the guest does with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) bytes: usize,
    pub(super) rate: u32,
    pub(super) work_ns: u32,
}

/// One packet a datagram, and six. Where sizing begins.
const FIRST: [Load; 2] = [
    Load { bytes: 1_400, rate: 85_000, work_ns: 20_000 },
    Load { bytes: 8_192, rate: 20_000, work_ns: 90_000 },
];
/// How much of the free core, and of the guest's, should be used.
const FREE_FULL: f64 = 0.92;
const GUEST_FULL: f64 = 0.95;
/// What may be lost at most where it fits.
const LOSS_MAX: f64 = 0.01;
/// If it is more, the next trial has so much less.
const LESS: f64 = 0.95;
const TRIALS: usize = 10;
/// Milliseconds before a trial and of it: cores are looked at by ticks.
const SETTLE_MS: u64 = 500;
const WINDOW_MS: u64 = 2_000;

/// Reads `BYTES,RATE,WORK_NS`.
pub(super) fn load(text: &str) -> Result<Load, String> {
    let wrong = || format!("{text:?}: write BYTES,RATE,WORK_NS");
    let all: Vec<u32> = text.split(',').flat_map(str::parse).collect();
    let [bytes, rate, work_ns] = all[..] else { return Err(wrong()) };
    let bytes = usize::try_from(bytes).map_err(|_| wrong())?;
    if bytes < 8 || rate == 0 { Err(wrong()) } else { Ok(Load { bytes, rate, work_ns }) }
}

/// The loads of this machine.
///
/// # Errors
/// If nothing can be sent without loss, with what to do.
pub(super) fn loads(rigs: &[Rig; 2], plan: &Plan) -> anyhow::Result<Vec<Load>> {
    FIRST.iter().map(|first| size(rigs, plan, *first)).collect()
}

fn size(rigs: &[Rig; 2], plan: &Plan, first: Load) -> anyhow::Result<Load> {
    let plan = Plan { settle_ms: SETTLE_MS, window_ms: WINDOW_MS, ..plan.clone() };
    let guest_core = 1;
    let trial =
        |load: &Load| Bench::start(rigs, &plan, load, Subject::FreeCore, guest_core)?.measure();
    // The guest has more than it can do, so that what it takes for each is known.
    let seen = trial(&first)?;
    let came = (seen.throughput / 8.0 / first.bytes as f64).max(1.0);
    let beside_ns = (1e9 / came - f64::from(first.work_ns)).max(0.0);
    let free = seen.cores[1 - guest_core];
    let used = (free.user + free.kernel + free.softirq).max(0.01);
    let mut rate = f64::from(first.rate) * FREE_FULL / used;
    for _ in 0..TRIALS {
        let work_ns = (GUEST_FULL * 1e9 / rate - beside_ns).max(0.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "both are small"
        )]
        let load = Load { rate: rate as u32, work_ns: work_ns as u32, ..first };
        let seen = trial(&load)?;
        let Load { bytes, rate: all, work_ns } = load;
        eprintln!(
            "sizing: {bytes} bytes, {all} a second, {work_ns} ns of work on each: {:.2} % lost",
            seen.loss * 100.0
        );
        if seen.loss <= LOSS_MAX {
            return Ok(load);
        }
        rate *= LESS;
    }
    anyhow::bail!("nothing fits on two cores: is the machine busy? `--load` says what to send")
}
