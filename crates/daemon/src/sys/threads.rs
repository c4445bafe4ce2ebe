//! Threads that last as long as the process.

use anyhow::Context as _;

/// Starts a thread that lasts as long as the process.
///
/// # Errors
/// The kernel's error, with the name of the thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start the thread `{name}`"))?;
    Ok(())
}
