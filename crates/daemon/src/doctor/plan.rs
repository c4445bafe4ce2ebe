//! Needs of a configuration on this machine.

use std::path::Path;

use sluice_api::doctor::Row;
use sluice_api::trace::Grade;
use sluice_ports::device::{Device, device};

use crate::check::{self, Finding};
use crate::config::{self, Attachment, Plan};

const PART: &str = "config";
/// Outer headers of a frame that passes an underlay, in its MTU: IPv4, UDP, VXLAN, Ethernet.
const OUTER: u32 = 50;
/// Free memory of a directory below which the host's state may not be written, in KiB.
const FREE_KIB_MIN: u64 = 1_024;

/// Looks at what the file needs.
pub(super) fn rows(file: &Path) -> Vec<Row> {
    let name = file.display().to_string();
    let plan = match config::load(file, &config::KernelDevices) {
        Ok(plan) => plan,
        Err(error) => {
            let row = Row::pass(PART, "file", format!("{error:#}"));
            return vec![row.but(Grade::Stop, "Mend what it says, line by line.")];
        }
    };
    let mut rows = vec![Row::pass(PART, "file", format!("{name}: {} ports", plan.ports.len()))];
    rows.extend(check::look(&plan).into_iter().map(found));
    rows.extend(devices(&plan));
    rows.extend([("run_dir", &plan.run_dir), ("state_dir", &plan.state_dir)].map(directory));
    rows
}

fn found(finding: Finding) -> Row {
    let row = |text: String| Row::pass(PART, "check", text);
    match finding {
        Finding::Fine(text) => row(text),
        Finding::Warning(text) => row(text).but(Grade::Warn, "See what it says."),
        Finding::Problem(text) => row(text).but(Grade::Stop, "See what it says."),
    }
}

/// Looks at the devices of underlay, cables and servers.
fn devices(plan: &Plan) -> Vec<Row> {
    let vnet_mtu = plan.switch.vnets.iter().map(|vnet| u32::from(vnet.mtu)).max();
    let mut rows = Vec::new();
    for port in &plan.ports {
        let (name, needed) = match &port.attachment {
            Attachment::L2 { device, vtep, .. } => (device, vtep.and(vnet_mtu)),
            Attachment::BareMetal { device, .. } => (device, None),
            _ => continue,
        };
        rows.push(state(name, device(name), needed.map(|mtu| mtu + OUTER)));
    }
    rows
}

fn state(name: &str, now: std::io::Result<Device>, needed: Option<u32>) -> Row {
    let what = "device";
    let now = match now {
        Ok(now) => now,
        Err(error) => {
            let row = Row::pass(PART, what, format!("{name}: {error}"));
            return row.but(Grade::Stop, "Name a device of this network namespace.");
        }
    };
    let row = Row::pass(PART, what, format!("{name}: MTU {}", now.mtu));
    if !now.up {
        return row.but(Grade::Warn, format!("`ip link set {name} up`: frames wait until then."));
    }
    if !now.running {
        return row.but(Grade::Warn, format!("{name} has no carrier: look at its cable."));
    }
    match needed {
        Some(needed) if now.mtu < needed => row.but(
            Grade::Warn,
            format!(
                "`ip link set {name} mtu {needed}`, there and at each switch on the way: the \
                 largest network's frames end as `oversize`."
            ),
        ),
        _ => row,
    }
}

/// Looks at a directory of the host, or at the one that it will be made in.
fn directory((what, dir): (&str, &std::path::PathBuf)) -> Row {
    let there = dir.ancestors().find(|dir| dir.exists()).unwrap_or(dir);
    let row = |seen: String| Row::pass(PART, what, seen);
    match rustix::fs::statvfs(there) {
        Ok(room) => {
            let free = room.f_bavail.saturating_mul(room.f_frsize) / 1_024;
            let row = row(format!("{}: {} MiB free", dir.display(), free / 1_024));
            match free < FREE_KIB_MIN {
                true => row.but(Grade::Warn, "Make room: ports that are added cannot be kept."),
                false => row,
            }
        }
        Err(error) => row(format!("{}: {error}", dir.display()))
            .but(Grade::Stop, "Name a directory that this host may use."),
    }
}

#[cfg(test)]
mod tests;
