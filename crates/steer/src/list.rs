//! Lists of cores as masks.

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
    fn masks_as_the_kernel_reads_them() {
        assert_eq!(mask(&[]), "00000000");
        assert_eq!(mask(&[0, 1, 4]), "00000013");
        assert_eq!(mask(&[0, 33]), "00000002,00000001");
    }
}
