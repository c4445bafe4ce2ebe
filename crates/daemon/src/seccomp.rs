//! System calls that the two processes never make: the kernel refuses them (seccomp(2)), so that
//! whoever got hold of a process has them neither.
//!
//! This is a list of what is refused, not of what is allowed: what is not named passes. Kernel
//! modules, mounts, other processes' memory, keys, the clock, io_uring (whose operations no filter
//! sees), and for data also to execute a program. A refused call ends with `EPERM`, as if the
//! process had no capability for it.
//!
//! A filter outlives `exec`, and cannot be taken away. Control becomes a newer program by `exec`,
//! and would have one more after each upgrade: so a mark in the environment says which filter is
//! there, and it counts only if the kernel says that there is one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
use sluice_api::config::Seccomp;

use crate::log::say;

/// The variable of the environment that says which filter a process has from the one before it.
const MARK: &str = "SLUICE_SECCOMP";

/// What neither process does.
const REFUSED: &[libc::c_long] = &[
    // Other processes' memory and files.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    // Another kernel, or more of it.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    // What lies where.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    // Namespaces of its own: it enters those of others.
    libc::SYS_unshare,
    // Keys, the clock, the name.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    // What is done there passes by every filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The same, of one architecture.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// What data does not do either: control starts processes.
const EXECUTING: &[libc::c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Says in which kind of process a filter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// It becomes another program, and starts data.
    Control,
    /// It executes nothing.
    Data,
}

/// Has the kernel refuse these calls to this thread and to those that it starts: to be called
/// before there is another one.
pub(crate) fn install(mode: Seccomp, process: Process) {
    if let Err(error) = have(mode, process) {
        say!(warn: "no list of system calls holds: {error:#}; `host.seccomp = \"off\"` is without");
    }
}

/// The mark of a filter that this process has put in place.
static PLACED: OnceLock<String> = OnceLock::new();

/// Tells a program that this process becomes or starts which filter it has by then.
pub(crate) fn tell(command: &mut Command) {
    if let Some(mark) = PLACED.get() {
        command.env(MARK, mark);
    }
}

fn have(mode: Seccomp, process: Process) -> anyhow::Result<()> {
    let inherited = std::env::var(MARK).ok().filter(|_| is_filtered());
    let mark = mark(mode);
    let action = match mode {
        Seccomp::Off => {
            if inherited.is_some_and(|mark| mark.starts_with(Seccomp::On.name())) {
                say!("the list of system calls holds until control is started anew");
            }
            return Ok(());
        }
        Seccomp::Log => SeccompAction::Log,
        Seccomp::On => SeccompAction::Errno(libc::EPERM.unsigned_abs()),
    };
    let is_there = inherited.as_ref() == Some(&mark);
    let calls = of(process, is_there);
    if calls.is_empty() {
        return Ok(());
    }
    apply_filter(&filter(calls, action)?).context("the kernel does not take it")?;
    _ = PLACED.set(mark);
    Ok(())
}

/// The calls that are still to be refused to a process, which may have the common filter.
fn of(process: Process, has_common: bool) -> Vec<libc::c_long> {
    let common = if has_common { [].iter() } else { REFUSED.iter() };
    let here = if has_common { [].iter() } else { REFUSED_HERE.iter() };
    let own = if process == Process::Data { EXECUTING.iter() } else { [].iter() };
    common.chain(here).chain(own).copied().collect()
}

fn filter(calls: Vec<libc::c_long>, action: SeccompAction) -> anyhow::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut rules = BTreeMap::new();
    for call in calls {
        rules.insert(call, Vec::new());
        // The same call by the numbers of x32, which such a kernel takes from this program too.
        if cfg!(target_arch = "x86_64") {
            rules.insert(call | 0x4000_0000, Vec::new());
        }
    }
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()?)
}

/// A filter by its action and by what is in it.
fn mark(mode: Seccomp) -> String {
    let mut hasher = DefaultHasher::new();
    (REFUSED, REFUSED_HERE).hash(&mut hasher);
    format!("{} {:016x}", mode.name(), hasher.finish())
}

/// Whether the kernel asks a filter about this process's calls.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
}

#[cfg(test)]
mod tests;
