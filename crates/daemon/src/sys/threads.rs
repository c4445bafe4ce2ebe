//! Threads that last as long as the process.

use anyhow::Context as _;
use rustix::process::{getpriority_process, setpriority_process};
use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ScheduleParams, ThreadPriority,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id, thread_schedule_policy,
};

/// Nice value of threads that let workers go first: a third of a worker's share if both want the
/// same processor all the time. A larger one would keep a host that forwards at its limit from
/// committing.
const NICE: i32 = 5;
/// Nice value of a thread that goes first without the permission for real time: above all processes
/// with the default.
const NICE_FIRST: i32 = -10;

/// Makes a panic of any thread end the process: it would continue without one of its parts. A
/// supervisor starts it anew, and data forwards meanwhile.
pub(crate) fn end_with_any() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        before(what);
        std::process::abort();
    }));
}

/// Starts a thread that lasts as long as the process.
///
/// # Errors
/// The kernel's error, with the name of the thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let body = || {
        share_time();
        body();
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start the thread `{name}`"))?;
    Ok(())
}

/// Raises the priority of the calling thread, that of the fabric: if it waits for a processor
/// behind tenants, it looks to other members as if it hung. A nice value counts within a session
/// only if the kernel groups by session (sched_autogroup(7)), so this thread gets real-time
/// priority, ahead of all time-shared threads (sched(7)); it works for milliseconds at a time.
/// Without the permission for either, it waits like all others.
pub(crate) fn go_first() {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    let lowest = ThreadPriority::from_posix(ScheduleParams { sched_priority: 1 });
    if set_thread_priority_and_policy(thread_native_id(), lowest, policy).is_err() {
        _ = setpriority_process(None, NICE_FIRST);
    }
}

/// Leaves the real-time priority that a thread has from the one that started it. Workers would wait
/// for it.
fn share_time() {
    if !matches!(thread_schedule_policy(), Ok(ThreadSchedulePolicy::Realtime(_))) {
        return;
    }
    let shared = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
    let none = ThreadPriority::from_posix(ScheduleParams { sched_priority: 0 });
    // No permission is needed for less.
    _ = set_thread_priority_and_policy(thread_native_id(), none, shared);
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
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let own = getpriority_process(None).unwrap();
        spawn_behind("behind", move || sender.send(getpriority_process(None)).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap().unwrap(), own.max(NICE));
        assert_eq!(getpriority_process(None).unwrap(), own, "only that thread");
    }

    #[test]
    fn thread_of_real_time_thread_shares_time() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let parent = std::thread::spawn(move || {
            go_first();
            if !matches!(thread_schedule_policy(), Ok(ThreadSchedulePolicy::Realtime(_))) {
                eprintln!("SKIPPED thread_of_real_time_thread_shares_time: needs CAP_SYS_NICE");
                return;
            }
            spawn("child", move || sender.send(thread_schedule_policy()).unwrap()).unwrap();
        });
        parent.join().unwrap();
        if let Ok(policy) = receiver.recv() {
            let shared = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
            assert_eq!(policy.unwrap(), shared);
        }
    }
}
