//! The guard of this host's links to the others ([`sluice_ports::guard`]): the devices that have
//! it, and its drops.
//!
//! The guard is installed before the first port opens. A host whose kernel cannot install it says
//! so, at the start and with every answer about ports and drops; it still forwards.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_api::config::UnderlayKind;
use sluice_api::show::{DropRow, GuardRow};
use sluice_ports::device::{device, device_with};
use sluice_ports::guard::{self as ports, Endpoint, Transport};
use sluice_ports::udp::VXLAN_PORT;

use crate::config::Plan;
use crate::sys::log::say;

/// Reason under which the guard drops frames.
const REASON: &str = "unmarked_to_vtep";

/// The guard of a host.
#[derive(Clone, Debug)]
pub(super) struct Guard(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kernel: Option<ports::Guard>,
    /// Devices; with an error if the guard is not installed there.
    devices: Mutex<BTreeMap<String, Option<String>>>,
}

impl Guard {
    /// Installs the guard on the devices of a plan.
    pub(super) fn install(plan: &Plan) -> Self {
        let (endpoints, devices) = (endpoints(plan), devices(plan));
        // A peer has VXLAN and, as a member, two more endpoints.
        let room = 3 * usize::from(plan.config.spare_tunnels());
        if endpoints.is_empty() && plan.fabric.is_none() || devices.is_empty() {
            return Self(Arc::default());
        }
        let made = ports::Guard::new(&endpoints, room).map_err(|error| error.to_string());
        let lacks = made.as_ref().err().cloned();
        let known = devices.iter().map(|device| (device.clone(), lacks.clone())).collect();
        let guard = Self(Arc::new(Inner { kernel: made.ok(), devices: Mutex::new(known) }));
        if let Some(lacks) = lacks {
            guard.complain(&devices.join(", "), &lacks);
            return guard;
        }
        for name in devices {
            match device(&name) {
                Ok(found) => guard.attach(&name, found.index),
                Err(error) => guard.set(&name, Some(error.to_string())),
            }
        }
        guard
    }

    /// Guards the endpoints of another plan from now on.
    ///
    /// # Errors
    /// The kernel's error.
    pub(super) fn follow(&self, plan: &Plan) -> Result<(), String> {
        let Some(kernel) = &self.0.kernel else { return Ok(()) };
        let done = kernel.set_endpoints(&endpoints(plan));
        done.map_err(|error| format!("the guard does not take the peers: {error}"))
    }

    /// Installs the guard on a device that has appeared.
    pub(super) fn attach(&self, name: &str, index: u32) {
        let Some(kernel) = &self.0.kernel else { return };
        let lacks = kernel.attach(name, index).err().map(|error| error.to_string());
        self.set(name, lacks);
    }

    /// Removes a device.
    pub(super) fn detach(&self, name: &str) {
        if let Some(kernel) = &self.0.kernel {
            kernel.detach(name);
        }
    }

    fn set(&self, name: &str, lacks: Option<String>) {
        let mut devices = self.0.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let before = devices.insert(name.to_owned(), lacks.clone());
        if let Some(lacks) = lacks
            && before.flatten().as_ref() != Some(&lacks)
        {
            self.complain(name, &lacks);
        }
    }

    fn complain(&self, devices: &str, lacks: &str) {
        say!(
            "no guard on {devices} ({lacks}): what this host's kernel forwards or masquerades can \
             reach other hosts' VXLAN; it needs Linux 6.6, CAP_BPF and CAP_NET_ADMIN. Until then \
             drop UDP to port {VXLAN_PORT} from tenants by a firewall"
        );
    }

    /// Returns the guard's rows for `show`.
    pub(super) fn rows(&self) -> Vec<GuardRow> {
        let devices = self.0.devices.lock().unwrap_or_else(PoisonError::into_inner);
        let row = |(device, lacks): (&String, &Option<String>)| GuardRow {
            device: device.clone(),
            lacks: lacks.clone(),
        };
        devices.iter().map(row).collect()
    }

    /// Returns the guard's drops, if any.
    pub(super) fn drops(&self) -> Option<DropRow> {
        let ended = self.0.kernel.as_ref()?.ended().ok()?;
        (ended.frames > 0).then(|| DropRow {
            port: "host".to_owned(),
            priority: 0,
            reason: REASON.to_owned(),
            class: "policy".to_owned(),
            frames: ended.frames,
            bytes: ended.bytes,
        })
    }
}

/// Returns the endpoints to which only Sluice may send.
fn endpoints(plan: &Plan) -> Vec<Endpoint> {
    let of = |at: SocketAddr, transport| match at.ip() {
        IpAddr::V4(address) => Some(Endpoint { address, port: at.port(), transport }),
        IpAddr::V6(_) => None,
    };
    let vxlan = plan.config.peers.iter().map(|peer| Endpoint {
        address: peer.vtep,
        port: VXLAN_PORT,
        transport: Transport::Udp,
    });
    let members = plan.fabric.iter().flat_map(|fabric| &fabric.hosts).filter_map(|host| host.at);
    let fabric = members.flat_map(|at| [Transport::Udp, Transport::Tcp].map(|by| of(at, by)));
    let mut all: Vec<Endpoint> = vxlan.chain(fabric.flatten()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the device of the underlay, if the kernel has it, and the device with the fabric's
/// address.
fn devices(plan: &Plan) -> Vec<String> {
    let underlay = plan.config.underlay.as_ref();
    let by_kernel = underlay.filter(|underlay| underlay.kind != UnderlayKind::VhostUser);
    let mut all: Vec<String> =
        by_kernel.map(|underlay| underlay.device.clone()).into_iter().collect();
    let listen = plan.fabric.as_ref().map(|fabric| fabric.listen.ip());
    if let Some(IpAddr::V4(address)) = listen
        && underlay.is_none_or(|underlay| underlay.address != address)
        && let Ok(Some(name)) = device_with(address)
        && !all.contains(&name)
    {
        all.push(name);
    }
    all
}

#[cfg(test)]
mod tests;
