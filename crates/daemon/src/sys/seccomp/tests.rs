use std::io::ErrorKind;
use std::thread;

use rustix::io::Errno;
use rustix::process::chroot;
use rustix::time::{ClockId, Timespec, clock_settime};

use super::*;

/// Runs `probe` in a thread under a filter, and then without one.
fn under<T: Send + 'static>(
    mode: Seccomp,
    process: Process,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    thread::spawn(move || {
        have(mode, process).unwrap();
        work()
    })
    .join()
    .unwrap()
}

fn execute() -> Result<bool, ErrorKind> {
    Command::new("true").status().map(|status| status.success()).map_err(|error| error.kind())
}

#[test]
fn data_executes_nothing_and_control_does() {
    assert_eq!(under(Seccomp::On, Process::Data, execute), Err(ErrorKind::PermissionDenied));
    assert_eq!(under(Seccomp::On, Process::Control, execute), Ok(true));
    assert_eq!(under(Seccomp::Log, Process::Data, execute), Ok(true));
    assert_eq!(under(Seccomp::Off, Process::Data, execute), Ok(true));
    assert_eq!(execute(), Ok(true), "other threads are as before");
}

/// Calls without effect, since their arguments are wrong: the kernel says so if it accepts the
/// calls.
#[test]
fn refused_call_ends_with_eperm() {
    let probe = || {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        [clock_settime(ClockId::Monotonic, never), chroot("/not/there")]
    };
    let let_in = [Err(Errno::INVAL), Err(Errno::NOENT)];
    for process in [Process::Control, Process::Data] {
        assert_eq!(under(Seccomp::On, process, probe), [Err(Errno::PERM); 2], "{process:?}");
        assert_eq!(under(Seccomp::Log, process, probe), let_in, "{process:?}");
    }
    assert_eq!(probe(), let_in);
}

#[test]
fn own_namespaces_are_network_ones_only() {
    let probe = || {
        ["-n", "-m", "-nm"].map(|what| {
            let done = Command::new("unshare").args([what, "true"]).output();
            done.is_ok_and(|output| output.status.success())
        })
    };
    let [net, others @ ..] = under(Seccomp::On, Process::Control, probe);
    assert_eq!(others, [false; 2]);
    // Without the capability the kernel refuses all of them.
    assert_eq!(net, probe()[0]);
}

#[test]
fn process_with_common_seccomp_filter_adds_no_second() {
    assert!(of(Process::Control, true).is_empty());
    assert_eq!(of(Process::Data, true), EXECUTING);
    assert_eq!(of(Process::Control, false).len(), REFUSED.len() + REFUSED_HERE.len());
    assert_ne!(mark(Seccomp::On), mark(Seccomp::Log));
}
