//! Configuration of a placement.

use alloc::vec::Vec;

use sluice_base::Priority;

use crate::mode::Mode;
use crate::share::Share;
use crate::{CoreIndex, cores::Core};

/// Configuration of a placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The rule.
    pub mode: Mode,
    /// Number of entries: 10 to 10,000 as a rule.
    pub entries: u32,
    /// Lowest priority that counts as high: an entry from there on has a core to itself while one
    /// is free. `None` if no priority is high.
    pub high_from: Option<Priority>,
    /// Load up to which a core counts as having room.
    pub full_at: Share,
    /// Minimum gain of a move.
    pub hysteresis: Share,
    /// Maximum of moves in a period.
    pub moves_max: u32,
    /// Number of periods that an entry stays on a core to which it moved for balance.
    pub rest_periods: u32,
    /// Load from which on an entry's stages may be done on two cores. `None` for never.
    pub split_at: Option<Share>,
    /// NUMA node of the memory of received packets, which is that of the card. Work stays there
    /// while a core of it has room. `None` if it is unknown.
    pub node: Option<u16>,
    /// Cores reserved for a priority in [`Mode::Predetermined`]. Other priorities share the
    /// remaining cores.
    pub reserved: Vec<(Priority, CoreIndex)>,
}

impl Config {
    /// Defaults that fit most hosts.
    #[must_use]
    pub const fn new(mode: Mode, entries: u32) -> Self {
        Self {
            mode,
            entries,
            high_from: None,
            full_at: Share::percent(90),
            hysteresis: Share::percent(10),
            moves_max: 16,
            rest_periods: 5,
            split_at: Some(Share::percent(80)),
            node: None,
            reserved: Vec::new(),
        }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// No entries, or more than 2^24.
    Entries(u32),
    /// No cores, more than 65,535, or all are excluded.
    Cores,
    /// A reserved core that is not in the list, or is excluded.
    Reserved(CoreIndex),
    /// Two cores with the same number.
    CoreTwice(u16),
    /// A full mark above a whole core, or of zero; or a hysteresis of zero, with which entries
    /// would move for ever.
    Threshold,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Entries(count) => write!(f, "{count} entries: from 1 to 16,777,216"),
            Self::Cores => write!(f, "no core may do the work: exclude fewer"),
            Self::Reserved(core) => {
                write!(f, "reserved {core}: it is excluded, or there is none of that place")
            }
            Self::CoreTwice(number) => write!(f, "core {number} is listed twice"),
            Self::Threshold => {
                write!(f, "full_at must be above 0 and at most 100 %, hysteresis above 0")
            }
        }
    }
}

impl core::error::Error for ConfigError {}

pub(crate) fn check(config: &Config, cores: &[Core]) -> Result<(), ConfigError> {
    if config.entries == 0 || config.entries > 1 << 24 {
        return Err(ConfigError::Entries(config.entries));
    }
    if u16::try_from(cores.len()).is_err() || cores.iter().all(|core| core.excluded) {
        return Err(ConfigError::Cores);
    }
    for (at, core) in cores.iter().enumerate() {
        if cores[..at].iter().any(|other| other.number == core.number) {
            return Err(ConfigError::CoreTwice(core.number));
        }
    }
    for &(_, core) in &config.reserved {
        if cores.get(core.index()).is_none_or(|core| core.excluded) {
            return Err(ConfigError::Reserved(core));
        }
    }
    let full_at = config.full_at;
    if full_at == Share::ZERO || full_at > Share::WHOLE || config.hysteresis == Share::ZERO {
        return Err(ConfigError::Threshold);
    }
    Ok(())
}
