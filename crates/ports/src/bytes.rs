//! Copies and hints for frames: most are short, and most lie in memory that another core wrote.
#![allow(unsafe_code, reason = "frames lie in shared memory, which has no references")]

use std::ptr;

/// Size of a cache line, the unit of a prefetch hint.
const LINE: usize = 64;

/// Copies bytes. Up to two lines take a few moves and no call; bytes in the middle may be copied
/// twice, with their value at the second time. If the places overlap, the content of `to` is
/// unspecified.
///
/// # Safety
/// `from` has `size` bytes to be read and `to` has as many to be written.
#[inline]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, size: usize) {
    // SAFETY: each part lies within the first `size` bytes.
    unsafe {
        match size {
            32..=64 => copy_ends::<32>(from, to, size),
            65..=128 => copy_ends::<64>(from, to, size),
            _ => ptr::copy(from, to, size),
        }
    }
}

/// Copies the first `N` bytes, and the last `N`.
#[inline]
unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, size: usize) {
    debug_assert!((N..=2 * N).contains(&size));
    // SAFETY: the caller has seen that there are between `N` and twice as many.
    unsafe {
        let last = size - N;
        ptr::copy(from, to, N);
        ptr::copy(from.add(last), to.add(last), N);
    }
}

/// Prefetches two lines from here on for reading. Any address is allowed.
#[inline]
pub(crate) fn will_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint touches nothing.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(LINE).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, LINE);
}

/// Prefetches for writing, as [`will_read`] for reading.
#[inline]
pub(crate) fn will_write(at: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint touches nothing, and a processor that does not know it passes it over.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]", "prefetchw [{0} + 64]", in(reg) at,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_are_whole_and_no_longer() {
        let from: Vec<u8> = (0..200).collect();
        for size in 0..=200 {
            let mut to = [255; 202];
            // SAFETY: both are long enough.
            unsafe { copy_short(from.as_ptr(), to.as_mut_ptr().add(1), size) };
            assert_eq!(to[0], 255);
            assert_eq!(to[1..=size], from[..size]);
            assert!(to[size + 1..].iter().all(|&byte| byte == 255), "{size}");
        }
    }
}
