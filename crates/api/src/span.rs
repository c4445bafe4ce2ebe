//! Spans of time as people write them: a number and a unit.

use std::str::FromStr;
use std::time::Duration;

/// A span: `500ms`, `3s`, `5m`, `1h` or `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

impl Span {
    /// Returns it as a duration.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("`{text}` is no span: use a number with ms, s, m, h or d, such as 3s or 1h");
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let number: u64 = text[..end].parse().map_err(|_| wrong())?;
        let millis = match &text[end..] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(wrong()),
        };
        number
            .checked_mul(millis)
            .map(|millis| Self(Duration::from_millis(millis)))
            .ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_parsed_with_unit_others_refused() {
        for (text, millis) in
            [("500ms", 500), ("3s", 3_000), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)]
        {
            assert_eq!(text.parse::<Span>().unwrap().duration(), Duration::from_millis(millis));
        }
        for text in ["", "3", "s", "-1s", "1.5s", "3 s", "3S", "99999999999999999999s", "1w", "1ä"]
        {
            let error = text.parse::<Span>().unwrap_err();
            assert!(error.contains("such as 3s or 1h"), "{error}");
        }
        let most = format!("{}d", u64::MAX);
        assert!(most.parse::<Span>().is_err());
    }
}
