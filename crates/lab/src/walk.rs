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
use sluice_api::config::ChipKind;
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
    (host, socket): (&str, &Path),
    wanted: &Tables,
) -> anyhow::Result<Vec<String>> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen = tables(plan, socket)?;
        let mut differences = compare(wanted, &seen);
        if plan.chip == ChipKind::Kernel {
            let (wanted, seen) = (of_chip(&wanted.macs), of_kernel(plan, host)?);
            if wanted != seen {
                differences.push(format!("kernel: {seen:?} and not {wanted:?}"));
            }
        }
        if differences.is_empty() || Instant::now() > until {
            return Ok(differences);
        }
        interrupt::sleep(Duration::from_millis(20))?;
    }
}

/// Returns what a chip is to hold of a forwarding table: it knows ports by their devices.
fn of_chip(macs: &[String]) -> Vec<String> {
    let of = |row: &String| match row.split_once(" to ") {
        // A port has the name of its container.
        Some((name, to)) if to == name => format!("{name} to a port"),
        _ => row.clone(),
    };
    let mut rows: Vec<String> = macs.iter().map(of).collect();
    rows.sort();
    rows
}

/// Reads the kernel's own tables at a host: bridges lead to ports, and VXLAN devices to VTEPs.
fn of_kernel(plan: &Plan, host: &str) -> anyhow::Result<Vec<String>> {
    let node = plan.hosts.iter().find(|node| node.name == host).context("a host")?;
    let text = netns::enter(&node.netns, || Ok(sluice_netns::run("bridge fdb show")?))?;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mac, "dev", device, ..] = words[..] else { return None };
        let container = plan.containers.iter().find(|known| known.mac.to_string() == mac)?;
        let vtep = words.iter().position(|word| *word == "dst").and_then(|at| words.get(at + 1));
        match vtep {
            Some(vtep) => {
                let known = plan.hosts.iter().find(|node| node.vtep.to_string() == **vtep);
                let to = known.map_or(*vtep, |node| node.name.as_str());
                Some(format!("{} to {to}", container.name))
            }
            None => device.starts_with("slp").then(|| format!("{} to a port", container.name)),
        }
    };
    let mut rows: Vec<String> =
        text.lines().filter(|line| line.contains("extern_learn")).filter_map(row).collect();
    rows.sort();
    Ok(rows)
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
