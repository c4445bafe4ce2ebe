//! SIGINT and SIGTERM as an error at the next wait, so that everything is taken down on the way
//! out.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Makes SIGINT and SIGTERM set a flag instead of ending the program.
pub(crate) fn catch() -> anyhow::Result<()> {
    let seen = SEEN.get_or_init(|| Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(seen))?;
    }
    Ok(())
}

/// Returns an error if a signal came.
pub(crate) fn check() -> anyhow::Result<()> {
    if SEEN.get().is_some_and(|seen| seen.load(Ordering::Relaxed)) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sleeps; returns an error if a signal came.
pub(crate) fn sleep(time: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + time;
    loop {
        check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

/// Looks until `look` finds something. Returns `None` if the time is over.
///
/// # Errors
/// An error of `look`, or a signal.
pub(crate) fn wait<T>(
    time_max: Duration,
    look: impl FnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    sluice_netns::wait(time_max, || sleep(Duration::from_millis(10)), look)
}
