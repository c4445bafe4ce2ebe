//! The device of the underlay: a thread follows its state in the kernel and tells the workers.
//!
//! | event | reaction |
//! |---|---|
//! | another address (a bond's first slave goes) | frames are sent from it and accepted for it |
//! | another MTU | larger frames are dropped under `oversize`, and their senders are told |
//! | set down, no carrier | logged; frames wait (`cables.rs`) |
//! | renamed | logged |
//! | deleted, moved to another namespace | logged; the port waits for a device of its name |
//! | back | the port is opened anew |

use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use sluice_api::config::UnderlayKind;
use sluice_base::{Mac, Nanos, PortId};
use sluice_ports::link::{Link, LinkNow, LinkState};
use sluice_switch::PortRole;

use super::guard::Guard;
use super::taps::Taps;
use super::worker::{Device, WorkerRequest};
use super::{WorkerHandles, attach, cables, spawn};
use crate::config::{Attachment, Plan, PortPlan};
use crate::sys::clock;
use crate::sys::log::say;

/// Time before netlink, or a device that cannot be opened, is tried again.
const RETRY: Nanos = Nanos::from_millis(1000);

/// The device that is followed, and its port.
struct Followed {
    device: String,
    port: PortId,
    plan: PortPlan,
    /// Layer-3 MTU with which the port was opened.
    mtu: u16,
    /// Address of the device when the port was opened.
    mac: Mac,
    /// True if frames carry the device's address, and not one of the configuration.
    takes_mac: bool,
    /// True if frames pass the device itself, and not the kernel's sockets.
    is_l2: bool,
    /// Descriptors to hand over to the next data process.
    taps: Arc<Taps>,
    guard: Guard,
    vnet_mtu_max: u16,
}

/// Starts the thread, if the underlay has a device.
pub(super) fn follow(
    plan: &Plan,
    taps: &Arc<Taps>,
    guard: Guard,
    askers: WorkerHandles,
) -> anyhow::Result<()> {
    let Some(followed) = followed(plan, taps, guard) else { return Ok(()) };
    let mut link = Link::open(&followed.device)?;
    spawn("underlay", move || {
        let mut was = None;
        loop {
            let error = followed.tell(&mut link, &mut was, &askers);
            say!(warn: "underlay: {error}; netlink is opened again");
            link = loop {
                clock::sleep(RETRY);
                match Link::open(&followed.device) {
                    Ok(link) => break link,
                    // The device may be missing for the moment.
                    Err(error) => say!(warn: "underlay: {error}"),
                }
            };
        }
    })
}

fn followed(plan: &Plan, taps: &Arc<Taps>, guard: Guard) -> Option<Followed> {
    let underlay = plan.config.underlay.as_ref()?;
    let at = plan.ports.len().checked_sub(1)?;
    let port = plan.ports.last()?;
    let PortRole::Underlay { mac, .. } = plan.switch.ports.get(at)?.role else { return None };
    let (mtu, is_l2) = match (&port.attachment, underlay.kind) {
        (Attachment::L2 { mtu, .. }, UnderlayKind::L2) => (*mtu, true),
        (Attachment::Udp { mtu, .. }, UnderlayKind::Udp) => (*mtu, false),
        _ => return None,
    };
    Some(Followed {
        device: underlay.device.clone(),
        port: PortId::from_index(at),
        plan: port.clone(),
        mtu,
        mac,
        takes_mac: is_l2 && underlay.mac.is_none(),
        is_l2,
        taps: Arc::clone(taps),
        guard,
        vnet_mtu_max: plan.switch.vnets.iter().map(|vnet| vnet.mtu).max().unwrap_or(0),
    })
}

impl Followed {
    /// Reports every change until netlink fails.
    fn tell(
        &self,
        link: &mut Link,
        was: &mut Option<LinkState>,
        askers: &WorkerHandles,
    ) -> std::io::Error {
        loop {
            match link.poll() {
                Ok(Some(state)) => {
                    self.changed(was.as_ref(), &state, askers);
                    *was = Some(state);
                }
                Ok(None) => {}
                Err(error) => return error,
            }
            let fd = link.fd();
            // The next read of netlink reveals a signal or an error.
            _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], None);
        }
    }

    fn changed(&self, was: Option<&LinkState>, state: &LinkState, askers: &WorkerHandles) {
        let device = &self.device;
        let now = match state {
            LinkState::There(now) => now,
            LinkState::Deleted => {
                return self.gone(format!("its device {device} was deleted"), askers);
            }
            LinkState::Moved => {
                let why = format!("its device {device} was moved to another network namespace");
                return self.gone(why, askers);
            }
        };
        let before = match was {
            Some(LinkState::There(before)) => Some(before),
            _ => None,
        };
        let is_back = was.is_some() && before.is_none_or(|before| before.times != now.times);
        if is_back {
            self.guard.detach(device);
        }
        // The guard comes first, before any frame passes the device.
        self.guard.attach(device, now.index);
        if is_back {
            self.back(askers);
        }
        let mac = if self.takes_mac { now.mac } else { self.mac };
        let mtu = self.mtu.min(u16::try_from(now.mtu).unwrap_or(u16::MAX));
        askers.ask_all(|| WorkerRequest::Device(Device::Is(self.port, mac, mtu)));
        if self.is_l2 {
            let has_carrier = now.up && now.carrier;
            cables::tell_carrier(askers, self.port, has_carrier);
        }
        self.say(before, now);
    }

    fn gone(&self, why: String, askers: &WorkerHandles) {
        self.guard.detach(&self.device);
        if self.is_l2 {
            askers.ask_all(|| WorkerRequest::Device(Device::Gone(self.port, why.clone())));
        } else {
            say!("underlay: {why}");
        }
    }

    /// Opens the port anew. The device may go away again before that succeeds.
    fn back(&self, askers: &WorkerHandles) {
        if !self.is_l2 {
            return;
        }
        match attach::open(&mut attach::Shared::default(), &self.taps, &self.plan) {
            Ok(port) => {
                // An l2 underlay belongs to one worker, which alone takes it.
                let mut port = Some(port);
                for asker in &askers.0 {
                    if let Ok(true) =
                        asker.answer(|reply| WorkerRequest::Device(Device::Has(self.port, reply)))
                        && let Some(port) = port.take()
                    {
                        asker.ask(WorkerRequest::Device(Device::Back(self.port, port)));
                    }
                }
            }
            Err(error) => say!(warn: "underlay: its device is back, but {error}"),
        }
    }

    /// Logs the differences.
    fn say(&self, before: Option<&LinkNow>, now: &LinkNow) {
        let name = &now.name;
        let changed = |of: fn(&LinkNow, &LinkNow) -> bool| before.is_some_and(|b| of(b, now));
        if changed(|a, b| a.name != b.name) {
            say!("underlay: its device {} is called {name} now", self.device);
        }
        if changed(|a, b| a.mac != b.mac) {
            let (mac, taken) = (now.mac, if self.takes_mac { "; frames carry it now" } else { "" });
            say!("underlay: {name} has the address {mac} now{taken}");
        }
        if changed(|a, b| a.up != b.up) {
            say!("underlay: {name} is set {} now", if now.up { "up" } else { "down" });
        }
        if changed(|a, b| a.carrier != b.carrier) {
            say!(
                "underlay: {name} has {} now",
                if now.carrier { "a carrier" } else { "no carrier" }
            );
        }
        if before.is_none_or(|before| before.mtu != now.mtu) {
            self.say_mtu(before.is_some(), now);
        }
    }

    fn say_mtu(&self, changed: bool, now: &LinkNow) {
        let (name, mtu) = (&now.name, now.mtu);
        let needed = u32::from(self.vnet_mtu_max) + 50;
        if mtu < needed {
            say!(
                "underlay: {name} has an MTU of {mtu}, and the largest network needs {needed}: \
                 larger frames end under `oversize`"
            );
        } else if changed {
            say!("underlay: {name} has an MTU of {mtu} now");
        }
    }
}
