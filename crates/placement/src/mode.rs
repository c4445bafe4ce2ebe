//! Rules by which cores are chosen, and their names.

use core::fmt;
use core::str::FromStr;

/// Rule by which cores are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// By the entry's number: as receive-side scaling, which ignores load and pinning.
    Rss,
    /// As [`Mode::Rss`], and entries move from the busiest core to the least busy one. It uses
    /// load, but neither pinning nor priority (RSS++, Barbette et al., CoNEXT 2019).
    RssPlusPlus,
    /// Assigned in advance: a priority has its cores ([`Config::reserved`](crate::Config)).
    Predetermined,
    /// By load, pinning and priority when the first packet comes; then the entry stays, unless a
    /// rule about pinning or priority is broken.
    OnTheFly,
    /// As [`Mode::OnTheFly`], with rebalancing, and with the work of an elephant flow on two cores.
    #[default]
    Adaptive,
}

impl Mode {
    /// All rules, in the order of their names.
    pub const ALL: [Self; 5] =
        [Self::Rss, Self::RssPlusPlus, Self::Predetermined, Self::OnTheFly, Self::Adaptive];

    /// The names of all rules.
    pub const NAMES: [&str; 5] = ["rss", "rss++", "predetermined", "on-the-fly", "adaptive"];

    /// Returns its name in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns true if entries leave a core because of its load.
    pub(crate) const fn balances(self) -> bool {
        matches!(self, Self::RssPlusPlus | Self::Adaptive)
    }

    /// Returns true if it uses pinning and priority.
    pub(crate) const fn has_rules(self) -> bool {
        matches!(self, Self::OnTheFly | Self::Adaptive)
    }
}

/// A name that is no rule's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseModeError;

impl fmt::Display for ParseModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one of ")?;
        for (at, name) in Mode::NAMES.iter().enumerate() {
            write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for ParseModeError {}

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(name: &str) -> Result<Self, ParseModeError> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or(ParseModeError)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn names_stand_in_order_of_rules() {
        for (at, mode) in Mode::ALL.into_iter().enumerate() {
            assert_eq!((mode as usize, mode.name().parse()), (at, Ok(mode)));
        }
        assert_eq!(Mode::OnTheFly.name(), "on-the-fly");
        let error = "best".parse::<Mode>().unwrap_err().to_string();
        assert_eq!(error, "one of rss, rss++, predetermined, on-the-fly, adaptive");
    }
}
