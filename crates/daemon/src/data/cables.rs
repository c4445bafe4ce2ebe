//! Links without a carrier: a thread follows the devices behind ports and tells the workers.
//!
//! The kernel drops frames for a device without a carrier, reports success, and counts them nowhere
//! (`noop_enqueue`). So such a port takes nothing, like a port whose queue is full; its frames wait
//! or are dropped as they would be there.
//! Limit: frames sent to the device before the kernel's notification arrives are lost.

use rustix::event::{PollFd, PollFlags, poll};
use sluice_base::PortId;
use sluice_ports::link::{Link, LinkState};

use super::worker::{Device, WorkerRequest};
use super::{WorkerHandles, spawn};
use crate::config::{Attachment, Plan};
use crate::sys::log::say;

/// A device, and the ports that send through it.
struct Cable {
    device: String,
    link: Link,
    ports: Vec<PortId>,
    has_carrier: bool,
}

/// Starts the thread, if ports use devices other than the underlay.
pub(super) fn follow(plan: &Plan, askers: WorkerHandles) -> anyhow::Result<()> {
    let mut cables = cables(plan)?;
    if cables.is_empty() {
        return Ok(());
    }
    spawn("cables", move || {
        while !cables.is_empty() {
            cables.retain_mut(|cable| cable.tell(&askers));
            let fds: Vec<_> = cables.iter().map(|cable| cable.link.fd()).collect();
            let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            // The next read of netlink reveals a signal or an error.
            _ = poll(&mut fds, None);
        }
    })
}

fn cables(plan: &Plan) -> anyhow::Result<Vec<Cable>> {
    let mut cables: Vec<Cable> = Vec::new();
    for (at, port) in plan.ports.iter().enumerate() {
        let device = match &port.attachment {
            Attachment::L2 { device, vtep: None, .. } | Attachment::BareMetal { device, .. } => {
                device
            }
            _ => continue,
        };
        let id = PortId::from_index(at);
        if let Some(known) = cables.iter_mut().find(|cable| cable.device == *device) {
            known.ports.push(id);
            continue;
        }
        let link = Link::open(device)?;
        cables.push(Cable { device: device.clone(), link, ports: vec![id], has_carrier: true });
    }
    Ok(cables)
}

/// Tells the workers, and waits until each of them acts on it.
pub(super) fn tell_carrier(askers: &WorkerHandles, port: PortId, has_carrier: bool) {
    askers.ask_all(|| WorkerRequest::Device(Device::Carrier(port, has_carrier)));
    // A worker that answers has taken what it was asked before. Nobody waits for one that hangs.
    _ = askers.answers_now(|reply| WorkerRequest::Device(Device::Has(port, reply)));
}

impl Cable {
    /// Reports every change. Returns false if netlink has failed: then the link counts as up.
    fn tell(&mut self, askers: &WorkerHandles) -> bool {
        loop {
            let has_carrier = match self.link.poll() {
                Ok(None) => return true,
                Ok(Some(LinkState::There(now))) => now.up && now.carrier,
                // The device's ports notice by themselves.
                Ok(Some(LinkState::Deleted | LinkState::Moved)) => true,
                Err(error) => {
                    say!(warn: "{}: {error}; its carrier is followed no more", self.device);
                    self.now(true, askers);
                    return false;
                }
            };
            self.now(has_carrier, askers);
        }
    }

    fn now(&mut self, has_carrier: bool, askers: &WorkerHandles) {
        if std::mem::replace(&mut self.has_carrier, has_carrier) == has_carrier {
            return;
        }
        for port in self.ports.iter().copied() {
            tell_carrier(askers, port, has_carrier);
        }
        // It is in force before it is said.
        let what = if has_carrier { "a carrier" } else { "no carrier: it takes nothing" };
        say!("{} has {what} now", self.device);
    }
}
