//! Cores that run virtual machines: cores to which a vCPU thread is pinned.
//!
//! QEMU names its vCPU threads `CPU 0/KVM` and `CPU 0/TCG`; libvirt and `taskset` pin them by
//! affinity. A thread that may run on many cores is pinned to none.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cpu_list;

/// Maximum number of cores in the affinity of a pinned vCPU.
const PINNED_TO_MAX: usize = 1;

/// A vCPU's thread and the core to which it is pinned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vcpu {
    /// Its folder in `/proc`.
    pub path: PathBuf,
    /// The core.
    pub core: u16,
}

/// Returns the cores to which vCPUs are pinned.
#[must_use]
pub fn pinned_cores() -> BTreeSet<u16> {
    pinned().iter().map(|vcpu| vcpu.core).collect()
}

/// Returns the pinned vCPUs. Threads that end during the scan are left out.
#[must_use]
pub fn pinned() -> BTreeSet<Vcpu> {
    look(Path::new("/proc"))
}

fn look(proc: &Path) -> BTreeSet<Vcpu> {
    let mut threads = BTreeSet::new();
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    for process in entries(proc) {
        let is_process = process.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        if !is_process {
            continue;
        }
        for thread in entries(&process.path().join("task")) {
            let path = thread.path();
            let comm = fs::read_to_string(path.join("comm")).unwrap_or_default();
            if !is_vcpu(comm.trim()) {
                continue;
            }
            let status = fs::read_to_string(path.join("status")).unwrap_or_default();
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            let allowed = allowed.and_then(|text| cpu_list::parse(text).ok()).unwrap_or_default();
            if allowed.len() <= PINNED_TO_MAX {
                threads.extend(allowed.into_iter().map(|core| Vcpu { path: path.clone(), core }));
            }
        }
    }
    threads
}

fn is_vcpu(name: &str) -> bool {
    let rest = name.strip_prefix("CPU ");
    let parts = rest.and_then(|rest| rest.split_once('/'));
    parts.is_some_and(|(number, kind)| {
        !number.is_empty()
            && number.bytes().all(|b| b.is_ascii_digit())
            && matches!(kind, "KVM" | "TCG" | "HVF" | "WHPX")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vcpu_is_known_by_its_name() {
        assert!(is_vcpu("CPU 0/KVM") && is_vcpu("CPU 12/TCG"));
        for other in
            ["CPU /KVM", "CPU 0", "CPU x/KVM", "qemu-system-x86", "ALL CPUs/TCG", "CPU 0/x"]
        {
            assert!(!is_vcpu(other), "{other}");
        }
    }

    #[test]
    fn only_a_pinned_thread_counts() {
        let name = format!("sluice-pinning-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        let thread = |process: &str, thread: &str, comm: &str, allowed: &str| {
            let path = root.join(process).join("task").join(thread);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("comm"), format!("{comm}\n")).unwrap();
            let status = format!("Name:\t{comm}\nCpus_allowed_list:\t{allowed}\n");
            fs::write(path.join("status"), status).unwrap();
        };
        thread("10", "10", "qemu-system-x86", "3");
        thread("10", "11", "CPU 0/KVM", "2");
        thread("10", "12", "CPU 1/KVM", "4-5");
        thread("20", "21", "CPU 0/TCG", "7");
        thread("self", "21", "CPU 0/TCG", "9");
        let found = look(&root);
        fs::remove_dir_all(&root).unwrap();
        let cores: Vec<u16> = found.iter().map(|thread| thread.core).collect();
        assert_eq!(cores, [2, 7]);
    }
}
