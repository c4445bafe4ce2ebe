//! Checks the tables of hosts against a scenario, and listens for ARP requests.
//!
//! Learning at one host reaches another a moment later, so tables are polled until they are as they
//! should be, up to a time limit. ARP requests are not polled: a request that was heard once
//! counts.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType};
use sluice_wire::{EtherType, arp, ethernet};

use crate::interrupt;
use crate::netns;
use crate::plan::{Container, Plan};
use crate::scenario::Tables;
use crate::show;

/// Time limit for tables to become as they should be.
const PATIENCE: Duration = Duration::from_secs(3);

/// Reads the tables of a host, in the form of the scenario.
fn tables(plan: &Plan, socket: &Path) -> anyhow::Result<Tables> {
    let name = |mac: &str| {
        let known = plan.containers.iter().find(|container| container.mac.to_string() == mac);
        known.map_or_else(|| mac.to_owned(), |container| container.name.clone())
    };
    let flows = show::flows(socket)?;
    let sorted = |mut rows: Vec<String>| {
        rows.sort();
        rows
    };
    let (vports, macs) = (show::vports(socket)?, show::macs(socket)?);
    Ok(Tables {
        vports: sorted(vports.iter().map(|r| format!("{} at {}", name(&r.mac), r.host)).collect()),
        macs: sorted(macs.iter().map(|row| format!("{} to {}", name(&row.mac), row.to)).collect()),
        tunnels: sorted(flows.tunnels.into_iter().map(|row| row.host).collect()),
        encap: sorted(
            flows.encap.iter().map(|row| format!("{} to {}", name(&row.mac), row.host)).collect(),
        ),
        decap: sorted(
            flows.decap.iter().map(|row| format!("{} from {}", row.vnet, row.host)).collect(),
        ),
    })
}

/// Returns the differences from the tables that a host should have; waits a while for them to
/// vanish.
pub(crate) fn differences(
    plan: &Plan,
    socket: &Path,
    wanted: &Tables,
) -> anyhow::Result<Vec<String>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = tables(plan, socket)?;
        let differences = compare(wanted, &seen);
        if differences.is_empty() || Instant::now() > until {
            return Ok(differences);
        }
        interrupt::sleep(Duration::from_millis(20))?;
    }
}

fn compare(wanted: &Tables, seen: &Tables) -> Vec<String> {
    let tables = [
        ("vports", &wanted.vports, &seen.vports),
        ("macs", &wanted.macs, &seen.macs),
        ("tunnels", &wanted.tunnels, &seen.tunnels),
        ("encap", &wanted.encap, &seen.encap),
        ("decap", &wanted.decap, &seen.decap),
    ];
    let differing = tables.into_iter().filter(|(_, wanted, seen)| {
        let mut wanted = (*wanted).clone();
        wanted.sort();
        wanted != **seen
    });
    differing.map(|(name, wanted, seen)| format!("{name}: {seen:?} and not {wanted:?}")).collect()
}

/// A socket that receives every ARP frame that reaches a container from now on.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

impl Listener {
    pub(crate) fn at(container: &Container) -> anyhow::Result<Self> {
        let socket = netns::enter(&container.netns, || {
            let protocol = NonZeroU32::new(EtherType::ARP.0.to_be().into());
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (family, kind) = (AddressFamily::PACKET, SocketType::RAW);
            let socket =
                rustix::net::socket_with(family, kind, flags, protocol.map(Protocol::from_raw));
            socket.context("a socket that hears ARP")
        });
        socket.map(Self)
    }

    /// Returns the number of received requests of a container.
    pub(crate) fn requests_of(&self, container: &Container) -> usize {
        let mut bytes = [0; 2048];
        let mut count = 0;
        while let Ok((size, _)) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::empty()) {
            let Ok(frame) = ethernet::Frame::new_checked(&bytes[..size]) else { continue };
            let Ok(packet) = arp::Packet::new_checked(frame.payload()) else { continue };
            let asks = packet.operation() == arp::Operation::REQUEST;
            count += usize::from(asks && packet.sender_ip() == container.ip);
        }
        count
    }
}

#[cfg(test)]
mod tests;
