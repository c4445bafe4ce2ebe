//! Drops, losses and pauses between two snapshots, by place.
//!
//! A place is named `CLASS NODE`: `vswitch h0` (queues of a virtual switch), `nic h0` (receive
//! queue of a host), `tor s0` (a physical switch), `bridge s0` (the kernel's, in the scenario that
//! has one), `bridge hosts` (the kernel's in every host). Losses of the kernel outside of any
//! switch are kept apart.

use std::collections::BTreeMap;

use anyhow::Context;
use serde::Deserialize;
use sluice_api::config::Policy;
use sluice_api::show::PortRow;

use crate::counters::Counters;
use crate::netns;
use crate::settings::Settings;
use crate::show::Snapshot;

/// Pauses of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paused {
    /// XOFF sent.
    pub(crate) xoff_sent: u64,
    /// Time for which its egress was paused.
    pub(crate) paused_ns: u64,
}

/// Drops, losses and pauses of one cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Losses {
    /// Frames by `PLACE REASON`.
    pub(crate) drops: BTreeMap<String, u64>,
    /// Frames among them dropped for congestion.
    pub(crate) congestion: u64,
    /// Non-zero kernel counters by `NODE/PORT COUNTER`.
    pub(crate) kernel: Counters,
    /// Packets that the kernel itself reports as lost, by `NODE DEVICE REASON`; empty also if it
    /// cannot be asked.
    pub(crate) kfree_skb: Counters,
    /// Pauses by `NODE/PORT`.
    pub(crate) pauses: BTreeMap<String, Paused>,
    /// True if every audit closes; `None`: there is none.
    pub(crate) audit_closed: Option<bool>,
    /// Frames still in a switch.
    pub(crate) resident: u64,
}

/// The most that a place ever held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HighWater {
    /// The place, such as `container output`.
    pub(crate) place: String,
    /// The port that held the most, `NODE/PORT`.
    pub(crate) port: String,
    /// Frames.
    pub(crate) frames: u64,
    /// Bytes, if known.
    pub(crate) bytes: Option<u64>,
    /// Frames that it may hold.
    pub(crate) limit_frames: u64,
    /// Bytes that it may hold, if that binds.
    pub(crate) limit_bytes: Option<u64>,
}

/// A limit in frames that means no limit.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// Returns the difference of two lists of snapshots of the same daemons.
pub(crate) fn between(before: &[Snapshot], after: &[Snapshot]) -> Losses {
    let mut losses = Losses { audit_closed: Some(true), ..Losses::default() };
    for (old, new) in before.iter().zip(after) {
        drops(&mut losses, old, new);
        kernel(&mut losses, old, new);
        for row in &new.pauses {
            let was = old.pauses.iter().find(|r| r.port == row.port && r.priority == row.priority);
            let more = Paused {
                xoff_sent: row.xoff_sent - was.map_or(0, |w| w.xoff_sent).min(row.xoff_sent),
                paused_ns: row.paused_ns - was.map_or(0, |w| w.paused_ns).min(row.paused_ns),
            };
            if more != Paused::default() {
                let sum = losses.pauses.entry(format!("{}/{}", new.node, row.port)).or_default();
                sum.xoff_sent += more.xoff_sent;
                sum.paused_ns += more.paused_ns;
            }
        }
        losses.resident += new.audit.rows.iter().map(|row| row.frames.resident).sum::<u64>();
        if !new.audit.closed {
            losses.audit_closed = Some(false);
        }
    }
    losses
}

fn drops(losses: &mut Losses, old: &Snapshot, new: &Snapshot) {
    for row in &new.drops {
        let same = |r: &&sluice_api::show::DropRow| {
            r.port == row.port && r.priority == row.priority && r.reason == row.reason
        };
        let was = old.drops.iter().find(same).map_or(0, |r| r.frames);
        let more = row.frames.saturating_sub(was);
        // Traffic between the hosts themselves is received by the kernel. An underlay port sees
        // copies of it and drops them for this reason.
        if more == 0 || row.reason == sluice_base::DropReason::NotForUs.name() {
            continue;
        }
        let key = format!("{} {}", place(new, &row.port, &row.reason), row.reason);
        *losses.drops.entry(key).or_default() += more;
        if row.class == sluice_base::DropClass::Congestion.name() {
            losses.congestion += more;
        }
    }
}

/// Returns the place of a drop. A drop is counted at its ingress port; the reason tells whether it
/// happened at ingress or egress.
fn place(node: &Snapshot, port: &str, reason: &str) -> String {
    let underlay = node.ports.iter().any(|row| row.port == port && row.vnet == "underlay");
    let class = if node.node.starts_with('s') {
        "tor"
    } else if underlay && reason == sluice_base::DropReason::InputFull.name() {
        "nic"
    } else {
        "vswitch"
    };
    format!("{class} {}", node.node)
}

fn kernel(losses: &mut Losses, old: &Snapshot, new: &Snapshot) {
    for row in &new.ports {
        let was = old.ports.iter().find(|r| r.port == row.port);
        let lost = ("driver_lost".to_owned(), row.driver_lost);
        for (name, value) in row.kernel.iter().map(|(n, v)| (n.clone(), *v)).chain([lost]) {
            let old = was.map_or(0, |w| match name.as_str() {
                "driver_lost" => w.driver_lost,
                name => w.kernel.get(name).copied().unwrap_or(0),
            });
            if value > old {
                losses.kernel.insert(format!("{}/{} {name}", new.node, row.port), value - old);
            }
        }
    }
}

/// Returns the packets that the kernel reports as lost in the lab's namespaces.
pub(crate) fn kfree_skb(lab: &str, rows: Vec<sluice_dropwatch::Dropped>) -> Counters {
    let prefix = format!("slab-{lab}-");
    let mut sums = Counters::new();
    for row in rows.into_iter().filter(sluice_dropwatch::Dropped::is_loss) {
        let node = row.namespace.strip_prefix(&prefix).unwrap_or(&row.namespace);
        let device = if row.device.is_empty() { "-" } else { &row.device };
        *sums.entry(format!("{node} {device} {}", row.reason)).or_default() += row.frames;
    }
    sums
}

/// Returns the fullest port of each kind of place since the daemons started. An egress queue with
/// backpressure has no limit of its own: frames that wait for it count at the inputs and are
/// limited there.
pub(crate) fn high_water(
    snapshots: &[Snapshot],
    settings: &Settings,
    policy: Policy,
) -> Vec<HighWater> {
    let mut marks: Vec<HighWater> = Vec::new();
    for node in snapshots {
        let containers = node.ports.iter().filter(|row| is_machine(row)).count();
        let containers = u32::try_from(containers).unwrap_or(u32::MAX);
        for row in &node.ports {
            for mark in marks_of(&node.node, row, settings, (containers, policy)) {
                match marks.iter_mut().find(|known| known.place == mark.place) {
                    Some(known) if (known.bytes, known.frames) < (mark.bytes, mark.frames) => {
                        *known = mark;
                    }
                    Some(_) => {}
                    None => marks.push(mark),
                }
            }
        }
    }
    marks.sort_by(|a, b| a.place.cmp(&b.place));
    marks
}

/// Returns true if a container or a virtual machine is behind the port.
fn is_machine(row: &PortRow) -> bool {
    ["tap", "vhost-user"].contains(&row.kind.as_str())
}

fn marks_of(
    node: &str,
    row: &PortRow,
    settings: &Settings,
    (containers, policy): (u32, Policy),
) -> Vec<HighWater> {
    let cable = (UNLIMITED, Some(settings.switch_kb * 1000));
    let physical = node.starts_with('s');
    let holds_back = if physical { policy.physical_lossless() } else { policy.virtual_lossless() };
    let (name, input, output) = if physical {
        ("switch", cable, cable)
    } else if is_machine(row) {
        let output = settings.vport_out(containers);
        ("container", (settings.vport_in_frames, None), (output, None))
    } else {
        let (input, output) = (settings.underlay_in_frames, settings.underlay_out_frames);
        ("host", (input, None), (output, None))
    };
    let output = if holds_back { (UNLIMITED, None) } else { output };
    let mark = |end: &str, frames: u64, bytes: Option<u64>, limit: (u32, Option<u64>)| HighWater {
        place: format!("{name} {end}"),
        port: format!("{node}/{}", row.port),
        frames,
        bytes,
        limit_frames: u64::from(limit.0),
        limit_bytes: limit.1,
    };
    let held = (u64::from(row.held_frames_max), Some(row.held_bytes_max));
    let queued = (u64::from(row.queued_frames_max), Some(row.queued_bytes_max));
    let mut marks =
        vec![mark("input", held.0, held.1, input), mark("output", queued.0, queued.1, output)];
    if row.ring_frames > 0 {
        let mut ring = mark("kernel ring", row.ring_frames_max, None, (0, None));
        ring.limit_frames = row.ring_frames;
        marks.push(ring);
    }
    marks
}

#[derive(Deserialize)]
struct Qdisc {
    #[serde(default)]
    drops: u64,
}

/// Returns the frames that the queues of a namespace have dropped, such as those of a bridge.
pub(crate) fn bridge_drops(namespace: &str) -> anyhow::Result<u64> {
    netns::enter(namespace, || {
        let output = std::process::Command::new("tc")
            .args(["-s", "-j", "qdisc", "show"])
            .output()
            .context("starting tc")?;
        let queues: Vec<Qdisc> = serde_json::from_slice(&output.stdout).context("reading tc")?;
        Ok(queues.iter().map(|queue| queue.drops).sum())
    })
}

#[cfg(test)]
mod tests;
