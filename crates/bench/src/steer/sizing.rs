//! Sizing of the load: as much as both cores can do on this machine, when each core does its own
//! work.
//!
//! A load that is sized for another machine shows little on a faster one, where both kinds of work
//! fit on one core. So the rate is chosen to nearly fill the free core with the sender's and the
//! tunnel's work, and the guest's work to nearly fill its core at that rate. The behaviour with the
//! tunnel work on the guest's core plays no part in the choice.

use super::{Bench, Plan, Quiet, Rig, Subject};

/// A load: size and rate of the datagrams, and the guest's work on each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) bytes: usize,
    pub(super) rate: u32,
    pub(super) work_ns: u32,
}

/// Loads with which sizing begins: one packet a datagram, and six.
const FIRST: [Load; 2] = [
    Load { bytes: 1_400, rate: 85_000, work_ns: 20_000 },
    Load { bytes: 8_192, rate: 20_000, work_ns: 90_000 },
];
/// Target usage of the free core, and of the guest's core.
const FREE_FULL: f64 = 0.92;
const GUEST_FULL: f64 = 0.95;
/// Loss at which the guest counts as overloaded.
const TOO_MUCH: f64 = 0.1;
/// Largest loss, and smallest sent share of the wanted rate, of a load that fits.
const LOSS_MAX: f64 = 0.01;
const SENT_MIN: f64 = 0.98;
/// Factor of the next trial's rate if a load does not fit.
const LESS: f64 = 0.95;
const TRIALS: usize = 10;
/// Milliseconds before a trial and of a trial: core usage is counted in ticks.
const SETTLE_MS: u64 = 500;
const WINDOW_MS: u64 = 2_000;
/// Largest size of a datagram.
const BYTES_MAX: u32 = 65_000;

/// Parses `BYTES,RATE,WORK_NS`.
pub(super) fn load(text: &str) -> Result<Load, String> {
    let wrong = || format!("{text:?}: write BYTES,RATE,WORK_NS, with 8 to {BYTES_MAX} bytes");
    let all: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    match all.map_err(|_| wrong())?[..] {
        [bytes @ 8..=BYTES_MAX, rate @ 1..=u32::MAX, work_ns] => {
            Ok(Load { bytes: usize::try_from(bytes).map_err(|_| wrong())?, rate, work_ns })
        }
        _ => Err(wrong()),
    }
}

/// Returns the loads of this machine.
///
/// # Errors
/// If no load fits, with a remedy.
pub(super) fn loads(rigs: &[Rig; 2], plan: &Plan, quiet: &mut Quiet) -> anyhow::Result<Vec<Load>> {
    FIRST.iter().map(|first| size(rigs, plan, quiet, *first)).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "both are small")]
fn size(rigs: &[Rig; 2], plan: &Plan, quiet: &mut Quiet, first: Load) -> anyhow::Result<Load> {
    let plan = Plan { settle_ms: SETTLE_MS, window_ms: WINDOW_MS, ..plan.clone() };
    let guest_core = 1;
    let mut trial = |load: Load| {
        let seen = quiet.window(|| {
            Bench::start(rigs, &plan, &load, Subject::FreeCore, guest_core)?.measure()
        })?;
        let Load { bytes, rate, work_ns } = load;
        let lost = seen.loss * 100.0;
        eprintln!(
            "sizing: {bytes} bytes, {:.0} of {rate} a second, {work_ns} ns of work on each: \
             {lost:.2} % lost",
            seen.sent
        );
        anyhow::Ok(seen)
    };
    // The guest is overloaded, so that its time for each datagram is known.
    let (mut first, mut seen) = (first, trial(first)?);
    for _ in 0..TRIALS {
        if seen.loss >= TOO_MUCH {
            break;
        }
        first.work_ns *= 2;
        seen = trial(first)?;
    }
    let came = (seen.sent * (1.0 - seen.loss)).max(1.0);
    let beside_ns = (1e9 / came - f64::from(first.work_ns)).max(0.0);
    let free = seen.cores[1 - guest_core];
    let used = (free.user + free.kernel + free.softirq).max(0.01);
    let mut rate = seen.sent * FREE_FULL / used;
    for _ in 0..TRIALS {
        let work_ns = (GUEST_FULL * 1e9 / rate - beside_ns).max(0.0);
        let load = Load { rate: rate as u32, work_ns: work_ns as u32, ..first };
        let seen = trial(load)?;
        if seen.loss <= LOSS_MAX && seen.sent >= SENT_MIN * rate {
            return Ok(load);
        }
        rate = rate.min(seen.sent.max(1.0)) * LESS;
    }
    anyhow::bail!("nothing fits on two cores: is the machine busy? `--load` says what to send")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_argument_parsed_exactly_malformed_refused() {
        let read = load("1400,85000,20000").unwrap();
        assert_eq!((read.bytes, read.rate, read.work_ns), (1_400, 85_000, 20_000));
        for wrong in ["1400,85000", "1400,x,85000,20000", "7,1,1", "1400,0,1", "65001,1,1", ""] {
            assert!(load(wrong).unwrap_err().contains("BYTES,RATE,WORK_NS"), "{wrong}");
        }
    }
}
