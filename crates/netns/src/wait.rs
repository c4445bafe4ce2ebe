//! Waiting for something that must happen: one loop for the lab, the benchmarks and the live tests.

use std::convert::Infallible;
use std::time::{Duration, Instant};

/// Looks until `look` finds something, and calls `pause` between two looks. Returns `None` if the
/// time is over: the last look comes after that.
///
/// # Errors
/// The first error of `look` or `pause`.
pub fn wait<T, E>(
    time_max: Duration,
    mut pause: impl FnMut() -> Result<(), E>,
    mut look: impl FnMut() -> Result<Option<T>, E>,
) -> Result<Option<T>, E> {
    let until = Instant::now() + time_max;
    loop {
        let is_over = Instant::now() >= until;
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if is_over {
            return Ok(None);
        }
        pause()?;
    }
}

/// Waits as [`wait`] until `happened` returns true, and sleeps for `step` between two looks.
/// Returns false if the time is over.
pub fn happens(time_max: Duration, step: Duration, mut happened: impl FnMut() -> bool) -> bool {
    let pause = || {
        std::thread::sleep(step);
        Ok::<_, Infallible>(())
    };
    let Ok(found) = wait(time_max, pause, || Ok(happened().then_some(())));
    found.is_some()
}

#[cfg(test)]
mod tests;
