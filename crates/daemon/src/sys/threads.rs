//! Threads that last as long as the process.

use anyhow::Context as _;
use rustix::process::{getpriority_process, setpriority_process};

/// Nice value of threads that let workers go first: a third of a worker's share if both want the
/// same processor all the time. A larger one would keep a host that forwards at its limit from
/// committing.
const NICE: i32 = 5;

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

/// Starts a thread like [`spawn`] that works for milliseconds at a time, and lets workers and
/// tenants go first meanwhile.
///
/// It starts no process: that would have its priority.
///
/// # Errors
/// The kernel's error, with the name of the thread.
pub(crate) fn spawn_behind(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    spawn(name, || {
        // Without it the thread only takes its turn as all others do.
        if getpriority_process(None).is_ok_and(|own| own < NICE) {
            _ = setpriority_process(None, NICE);
        }
        body();
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_behind_has_less_weight_than_worker() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let own = getpriority_process(None).unwrap();
        spawn_behind("behind", move || sender.send(getpriority_process(None)).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap().unwrap(), own.max(NICE));
        assert_eq!(getpriority_process(None).unwrap(), own, "only that thread");
    }
}
