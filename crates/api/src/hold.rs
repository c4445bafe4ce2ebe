//! The hold contract as written in a configuration: a time with its unit, or `forever`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest time for which senders are held for a receiver that takes no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum HoldTime {
    /// Milliseconds.
    Ms(u32),
    /// Forever, as in the paper on zOVN.
    Forever,
}

impl Default for HoldTime {
    /// Returns one second.
    fn default() -> Self {
        Self::Ms(1_000)
    }
}

/// Error: a text that is no hold time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no hold time: write a time such as \"500ms\" or \"2s\", or \"forever\"")]
pub struct NoHoldTime(String);

impl FromStr for HoldTime {
    type Err = NoHoldTime;

    fn from_str(text: &str) -> Result<Self, NoHoldTime> {
        if text == "forever" {
            return Ok(Self::Forever);
        }
        let (number, factor) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(number), _) => (number, 1),
            (None, Some(number)) => (number, 1_000),
            (None, None) => return Err(NoHoldTime(text.to_owned())),
        };
        let ms = number.trim().parse::<u32>().ok().and_then(|number| number.checked_mul(factor));
        // Zero would hold nothing.
        ms.filter(|ms| *ms > 0).map(Self::Ms).ok_or_else(|| NoHoldTime(text.to_owned()))
    }
}

impl fmt::Display for HoldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever => f.write_str("forever"),
            Self::Ms(ms) if ms.is_multiple_of(1_000) => write!(f, "{}s", ms / 1_000),
            Self::Ms(ms) => write!(f, "{ms}ms"),
        }
    }
}

impl TryFrom<String> for HoldTime {
    type Error = NoHoldTime;

    fn try_from(text: String) -> Result<Self, NoHoldTime> {
        text.parse()
    }
}

impl From<HoldTime> for String {
    fn from(time: HoldTime) -> Self {
        time.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_time_with_unit_round_trips_unitless_refused() {
        for (text, time) in [
            ("1s", HoldTime::Ms(1_000)),
            ("250ms", HoldTime::Ms(250)),
            ("90s", HoldTime::Ms(90_000)),
            ("forever", HoldTime::Forever),
        ] {
            assert_eq!(text.parse(), Ok(time));
            assert_eq!(time.to_string(), text);
        }
        for text in ["", "1", "0s", "-1s", "1 h", "ever", "99999999s", "1.5s"] {
            let error = text.parse::<HoldTime>().unwrap_err();
            assert!(error.to_string().contains("forever"), "{error}");
        }
    }
}
