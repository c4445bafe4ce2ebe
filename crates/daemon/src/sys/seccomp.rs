//! System calls that the two processes never make: the kernel refuses them (seccomp(2)), also to an
//! attacker who controls a process.
//!
//! The list names refused calls, not allowed ones: every other call passes. It has kernel modules,
//! mounts, other processes' memory, keys, the clock, io_uring (whose operations no filter sees),
//! and for data also execution of a program. A refused call ends with `EPERM`, as if the process
//! had no capability for it.
//!
//! A filter outlives `exec`, and cannot be removed. Control becomes a newer program by `exec`, and
//! would gain one more filter at each upgrade. So a mark in the environment names the filter in
//! place; it counts only if the kernel reports a filter.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use sluice_api::config::Seccomp;

use crate::sys::log::say;

/// Environment variable that names the filter inherited from the previous program.
const MARK: &str = "SLUICE_SECCOMP";

/// Calls that neither process makes.
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
    // A new kernel, or kernel modules.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_syslog,
    // Mounts and file handles.
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
    // Own namespaces, except for a network one: the switch end of a veth pair has its own.
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
    // Operations there bypass every filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// The only argument with which `unshare` passes.
const UNSHARED: u64 = libc::CLONE_NEWNET.unsigned_abs() as u64;

/// More calls, of one architecture.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Calls that data does not make either: control starts processes.
const EXECUTING: &[libc::c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Kind of process for a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Becomes another program, and starts data.
    Control,
    /// Executes nothing.
    Data,
}

/// Makes the kernel refuse these calls to this thread and to threads that it starts: to be called
/// before there is another one.
pub(crate) fn install(mode: Seccomp, process: Process) {
    if let Err(error) = have(mode, process) {
        say!(warn: "no list of system calls holds: {error:#}; `host.seccomp = \"off\"` is without");
    }
}

/// Mark of a filter that this process has installed.
static PLACED: OnceLock<String> = OnceLock::new();

/// Passes the mark of the filter to a program that this process becomes or starts.
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

/// Returns the calls that are still to be refused to a process, which may have the common filter.
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
        let refused = refused_of(call)?;
        rules.insert(call, refused.clone());
        // The same call by its x32 number, which such a kernel accepts from this program too.
        if cfg!(target_arch = "x86_64") {
            rules.insert(call | 0x4000_0000, refused);
        }
    }
    Ok(SeccompFilter::new(rules, SeccompAction::Allow, action, arch)?.try_into()?)
}

/// Returns the arguments with which a call is refused; none: with all.
fn refused_of(call: libc::c_long) -> anyhow::Result<Vec<SeccompRule>> {
    if call != libc::SYS_unshare {
        return Ok(Vec::new());
    }
    let (size, is_other) = (SeccompCmpArgLen::Qword, SeccompCmpOp::Ne);
    let other = SeccompCondition::new(0, size, is_other, UNSHARED)?;
    Ok(vec![SeccompRule::new(vec![other])?])
}

/// Returns the mark of a filter, made of its action and contents.
fn mark(mode: Seccomp) -> String {
    let mut hasher = DefaultHasher::new();
    (REFUSED, REFUSED_HERE, UNSHARED).hash(&mut hasher);
    format!("{} {:016x}", mode.name(), hasher.finish())
}

/// Returns true if a filter of the kernel applies to this process's calls.
fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.split_whitespace().eq(["Seccomp:", "2"]))
}

#[cfg(test)]
mod tests;
