//! Lists of cores as the kernel writes them: `0-3,8`.

use anyhow::{Context, ensure};

/// More cores than any machine has: a longer list is a mistake.
const CORE_MAX: u16 = 4095;

/// Reads a list; an empty one is one.
///
/// # Errors
/// What is not a list.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<u16>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.trim().parse::<u16>().with_context(|| {
                format!("{text:?} in {:?} is no core: write lists as 0-3,8", part.trim())
            })
        };
        let (first, last) = (number(first)?, number(last)?);
        ensure!(first <= last && last <= CORE_MAX, "{part:?}: from the lower to the higher core");
        cores.extend(first..=last);
    }
    cores.sort_unstable();
    cores.dedup();
    Ok(cores)
}

/// Cores as the mask that the kernel takes: words of 32 bits in hexadecimal, the highest first.
pub(crate) fn mask(cores: &[u16]) -> String {
    let words = cores.iter().max().map_or(1, |core| usize::from(*core) / 32 + 1);
    let mut bits = vec![0_u32; words];
    for core in cores {
        bits[usize::from(*core) / 32] |= 1 << (core % 32);
    }
    let words: Vec<String> = bits.iter().rev().map(|word| format!("{word:08x}")).collect();
    words.join(",")
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

    #[test]
    fn masks_as_the_kernel_reads_them() {
        assert_eq!(mask(&[]), "00000000");
        assert_eq!(mask(&[0, 1, 4]), "00000013");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }
}
