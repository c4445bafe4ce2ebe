//! Lists of cores as the kernel writes them: `0-3,8`.

/// Highest number of a core, above that of any machine: a higher one is a mistake.
const CORE_MAX: u16 = 4095;

/// Error of a list of cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// A part that is no number.
    #[error("{0:?} is no core: write lists as 0-3,8")]
    NoCore(String),
    /// A part that ends before it begins, or above the highest number.
    #[error("{0:?}: from the lower to the higher core, {CORE_MAX} at most")]
    Range(String),
}

/// Reads a list; it may be empty.
///
/// # Errors
/// The first part that is wrong.
pub fn parse(text: &str) -> Result<Vec<u16>, ListError> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim().parse::<u16>().map_err(|_| ListError::NoCore(part.trim().to_owned()))
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last > CORE_MAX {
            return Err(ListError::Range(part.to_owned()));
        }
        cores.extend(first..=last);
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(parse("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(parse("").unwrap(), [] as [u16; 0]);
        assert_eq!(parse("5,1,5").unwrap(), [1, 5]);
        for wrong in ["a", "3-1", "1-", "0-99999", "-1", "1-2-3"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
