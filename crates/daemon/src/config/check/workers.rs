//! Several data workers: their requirements, and features that cannot be shared yet.

use std::collections::BTreeMap;

use sluice_api::config::PortKind;

use super::{At, Check, Key};

/// Most workers of a host.
const WORKERS_MAX: u16 = 64;

impl Check<'_> {
    pub(super) fn workers(&mut self) {
        let host = &self.config.host;
        let count = host.workers;
        if count == 0 || count > WORKERS_MAX {
            self.problem(
                &[Key("host"), Key("workers")],
                format!("{count} workers"),
                format!("Use 1 to {WORKERS_MAX}, and no more than there are CPUs for them."),
            );
        }
        let cpus = host.worker_cpus.len();
        if cpus > 0 && cpus != usize::from(count) {
            self.problem(
                &[Key("host"), Key("worker_cpus")],
                format!("{cpus} CPUs for {count} workers"),
                "Name one CPU for each worker, or leave the key out.",
            );
        }
        if host.worker_cpu.is_some() && (count > 1 || cpus > 0) {
            self.problem(
                &[Key("host"), Key("worker_cpu")],
                "says the CPU of one worker only",
                "Use `worker_cpus` with a CPU for each worker.",
            );
        }
        if host.vcpu_cpus.is_some() && cpus == 0 {
            self.problem(
                &[Key("host"), Key("vcpu_cpus")],
                "no worker is pinned, so it does not matter where machines run",
                "Name the CPU of each worker by `worker_cpus`.",
            );
        }
        if count > 1 {
            self.several();
        }
        self.named();
    }

    /// Checks features that one worker supports and several do not.
    fn several(&mut self) {
        let remedy = "Use `workers = 1` on this host.";
        if self.config.spare_ports() > 0 {
            self.problem(
                &[Key("host"), Key("spare_ports")],
                "ports are added to one worker",
                remedy,
            );
        }
    }

    /// Checks the workers that ports name.
    fn named(&mut self) {
        let config = self.config;
        let count = config.host.workers;
        let what = |worker: u16| format!("there is no worker {worker}");
        let remedy = format!("Use 0 to {}, or raise `workers` of `[host]`.", count.max(1) - 1);
        let beyond = |worker: &Option<u16>| worker.filter(|worker| *worker >= count.max(1));
        if let Some(worker) = config.underlay.as_ref().and_then(|u| beyond(&u.worker)) {
            self.problem(&[Key("underlay"), Key("worker")], what(worker), remedy.clone());
        }
        let mut devices: BTreeMap<&str, (u16, &str)> = BTreeMap::new();
        for (at, port) in config.ports.iter().enumerate() {
            let path = [Key("port"), At(at), Key("worker")];
            if let Some(worker) = beyond(&port.worker) {
                self.problem(&path, what(worker), remedy.clone());
            }
            let Some(worker) = port.worker.filter(|_| port.kind == PortKind::L2) else { continue };
            let (first, name) = *devices.entry(&port.device).or_insert((worker, &port.name));
            if first != worker {
                self.problem(
                    &path,
                    format!("port `{name}` of the same device is served by worker {first}"),
                    "Ports of one device have one worker.",
                );
            }
        }
    }
}
