//! The mechanism that brings packets to their cores: XDP and CPU maps, or RPS.

use std::time::Duration;

use crate::cli::Arguments;
use crate::device::{self, XdpMode};
use crate::force::EffectivePolicy;
use crate::report::warn;
use crate::rps::Rps;
use crate::rules::Rules;
use crate::xdp::{Program, Settings};

/// A packet that has left its queue may not be in its socket yet: length of the pause to wait for,
/// and of the shorter one from half of the patience on.
const SETTLE: Duration = Duration::from_millis(2);
const HURRY: Duration = Duration::from_micros(50);
/// Note: the limits of RPS.
const NO_PRIORITY: &str = "RPS knows no flows: none is of high priority";
/// Mechanism that brings packets to their cores.
pub(super) enum By {
    Program(Box<Program>),
    Rps(Rps),
}

impl By {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Program(_) => "XDP and CPU map",
            Self::Rps(_) => "RPS",
        }
    }

    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Program(_) => "xdp",
            Self::Rps(_) => "rps",
        }
    }

    /// Notes settings that it does not support.
    pub(super) fn note(&self, wanted: &mut EffectivePolicy) {
        if matches!(self, Self::Rps(_)) && wanted.has_high() {
            wanted.notes.push(NO_PRIORITY.to_owned());
        }
    }
}

pub(super) fn attach(
    arguments: &Arguments,
    cores: &[u16],
    high: u32,
    rules: &Rules,
) -> anyhow::Result<By> {
    let settings = Settings {
        settle_ns: u64::try_from(SETTLE.as_nanos())?,
        hurry_ns: u64::try_from(HURRY.as_nanos())?,
        patience_ns: u64::from(arguments.patience_ms) * 1_000_000,
        buckets: arguments.buckets,
        high,
        port: arguments.port,
        high_networks: arguments.high.clone(),
        rules: rules.clone(),
    };
    let device = arguments.device.as_str();
    let program = |native| {
        let mut program = Program::new(cores, &settings)?;
        program.attach(device, native)?;
        anyhow::Ok(By::Program(Box::new(program)))
    };
    let rps = || Rps::new(device).map(By::Rps);
    match arguments.xdp {
        XdpMode::Native => program(true),
        XdpMode::Generic => program(false),
        XdpMode::Rps => rps(),
        XdpMode::Auto => {
            if !device::is_virtual(device)
                && let Ok(by) = program(true)
            {
                return Ok(by);
            }
            program(false).or_else(|error| {
                warn(&format!("no XDP here, RPS instead: {error:#}"));
                rps()
            })
        }
    }
}
