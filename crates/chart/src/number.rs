//! Numbers as text.

/// Formats a number without needless digits.
#[must_use]
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Returns a number of things as a factor of lengths.
pub(crate) fn count(things: usize) -> f64 {
    u32::try_from(things).map_or(f64::MAX, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_no_needless_digits() {
        for (value, text) in
            [(0.0, "0"), (0.05, "0.05"), (1.0, "1"), (2.5, "2.5"), (20.0, "20"), (1000.0, "1000")]
        {
            assert_eq!(number(value), text);
        }
    }
}
