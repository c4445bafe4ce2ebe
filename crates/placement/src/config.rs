//! What a placement is told at start.

use alloc::vec::Vec;

use sluice_base::Priority;

use crate::share::Share;
use crate::{CoreIndex, cores::Core};

/// By which rule cores are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By the entry's number: as receive-side scaling does, which knows neither load nor pinning.
    Rss,
    /// As [`Mode::Rss`], and entries move from the core that has most to the one that has least.
    /// It knows load, and neither pinning nor priority (RSS++, Barbette et al., CoNEXT 2019).
    RssPlusPlus,
    /// Assigned in advance: a priority has its cores ([`Config::reserved`]).
    Predetermined,
    /// By load, pinning and priority when the first packet comes; then it stays, unless a rule
    /// about pinning or priority is broken.
    OnTheFly,
    /// As [`Mode::OnTheFly`], with rebalancing, and with the work of an elephant on two cores.
    Adaptive,
}

impl Mode {
    /// Its name in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::RssPlusPlus => "rss++",
            Self::Predetermined => "predetermined",
            Self::OnTheFly => "on-the-fly",
            Self::Adaptive => "adaptive",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all =
            [Self::Rss, Self::RssPlusPlus, Self::Predetermined, Self::OnTheFly, Self::Adaptive];
        all.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether entries leave a core for the load that it has.
    pub(crate) const fn balances(self) -> bool {
        matches!(self, Self::RssPlusPlus | Self::Adaptive)
    }

    /// Whether it knows pinning and priority.
    pub(crate) const fn has_rules(self) -> bool {
        matches!(self, Self::OnTheFly | Self::Adaptive)
    }
}

/// How a placement decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The rule.
    pub mode: Mode,
    /// How many entries there are: 10 to 10,000 as a rule.
    pub entries: u32,
    /// From this priority on, an entry is of high priority: it has a core to itself while one is
    /// free. `None`: none is.
    pub high_from: Option<Priority>,
    /// Up to where a core counts as having room.
    pub full_at: Share,
    /// How much must be gained before anything moves.
    pub hysteresis: Share,
    /// How many entries may move in a period.
    pub moves_max: u32,
    /// How many periods an entry stays where it came to for balance.
    pub rest_periods: u32,
    /// From which load on an entry's stages may be done on two cores. `None`: never.
    pub split_at: Option<Share>,
    /// The NUMA node of the memory in which packets come, which is that of the card. Work stays
    /// there while a core of it has room. `None`: nobody knows.
    pub node: Option<u16>,
    /// Cores that a priority has in [`Mode::Predetermined`]. Priorities without one share the rest.
    pub reserved: Vec<(Priority, CoreIndex)>,
}

impl Config {
    /// What fits most hosts.
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
    /// Two cores of one number.
    CoreTwice(u16),
    /// More than a whole core counts as full, or nothing does; or the hysteresis is zero, with
    /// which entries would move for ever.
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
