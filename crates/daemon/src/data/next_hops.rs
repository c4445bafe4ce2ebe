//! Next hops of the tunnels over an `l2` underlay: a thread follows the kernel's neighbours and
//! tells the worker of changes.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, poll};
use sluice_base::{Mac, Nanos, TunnelId};
use sluice_ports::neigh::Neighbours;

use super::worker::WorkerRequest;
use super::{WorkerHandles, spawn};
use crate::config::{Attachment, Plan};
use crate::sys::clock;
use crate::sys::log::say;

/// Time before netlink is tried again.
const RETRY: Nanos = Nanos::from_millis(1000);

/// Source and state of the next hops, for `show tunnels`.
#[derive(Clone, Debug)]
pub(super) enum NextHops {
    /// The kernel resolves the next hop by itself.
    Kernel,
    /// The configuration gives the next hops: no kernel has this underlay.
    Configured(BTreeMap<TunnelId, Mac>),
    /// A thread follows the kernel's neighbours.
    Followed(Arc<Mutex<BTreeMap<TunnelId, Mac>>>),
}

impl NextHops {
    /// Returns the MAC of a tunnel's next hop, in words.
    pub(super) fn text(&self, tunnel: TunnelId) -> String {
        let of = |known: &BTreeMap<TunnelId, Mac>| {
            known.get(&tunnel).map_or_else(|| "unresolved".to_owned(), Mac::to_string)
        };
        match self {
            Self::Kernel => "by the kernel".to_owned(),
            Self::Configured(known) => of(known),
            Self::Followed(known) => {
                of(&known.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
            }
        }
    }
}

/// Returns the next hops of the configuration.
fn configured(plan: &Plan) -> NextHops {
    let tunnels = plan.switch.tunnels.iter().enumerate();
    let known =
        tunnels.filter_map(|(at, tunnel)| Some((TunnelId::from_index(at), tunnel.next_hop?)));
    NextHops::Configured(known.collect())
}

/// Starts the thread, if there is something to follow.
pub(super) fn follow(plan: &Plan, askers: WorkerHandles) -> anyhow::Result<NextHops> {
    let underlay = plan.ports.last().map(|port| &port.attachment);
    let device = match underlay {
        Some(Attachment::L2 { device, vtep: Some(_), .. }) => device.clone(),
        Some(Attachment::VhostUser { .. }) => return Ok(configured(plan)),
        _ => return Ok(NextHops::Kernel),
    };
    let peers = plan.config.peers.iter().enumerate();
    let tunnels: BTreeMap<Ipv4Addr, TunnelId> =
        peers.map(|(index, peer)| (peer.vtep, TunnelId::from_index(index))).collect();
    let neighbours = open(&device, &tunnels)?;
    let known = Arc::new(Mutex::new(BTreeMap::new()));
    let next_hops = NextHops::Followed(Arc::clone(&known));
    spawn("next-hops", move || {
        let mut neighbours = neighbours;
        loop {
            let error = tell(&mut neighbours, &tunnels, &known, &askers);
            say!(warn: "next hops: {error}; netlink is opened again");
            neighbours = loop {
                clock::sleep(RETRY);
                match open(&device, &tunnels) {
                    Ok(neighbours) => break neighbours,
                    Err(error) => say!(warn: "next hops: {error}"),
                }
            };
        }
    })?;
    Ok(next_hops)
}

fn open(device: &str, tunnels: &BTreeMap<Ipv4Addr, TunnelId>) -> anyhow::Result<Neighbours> {
    let mut neighbours = Neighbours::open(device)?;
    for vtep in tunnels.keys() {
        neighbours.watch(*vtep);
    }
    Ok(neighbours)
}

/// Reports every change until netlink fails.
fn tell(
    neighbours: &mut Neighbours,
    tunnels: &BTreeMap<Ipv4Addr, TunnelId>,
    known: &Mutex<BTreeMap<TunnelId, Mac>>,
    askers: &WorkerHandles,
) -> io::Error {
    loop {
        let changes = match neighbours.poll(clock::now()) {
            Ok(changes) => changes,
            Err(error) => return error,
        };
        for change in changes {
            let Some(&tunnel) = tunnels.get(&change.destination) else { continue };
            let mut known = known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match change.mac {
                Some(mac) => known.insert(tunnel, mac),
                None => known.remove(&tunnel),
            };
            drop(known);
            askers.ask_all(|| WorkerRequest::NextHop(tunnel, change.mac));
        }
        let span = neighbours.deadline().since(clock::now()).min(Nanos::from_millis(60_000));
        let fd = neighbours.fd();
        // The next read of netlink reveals a signal or an error.
        _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&clock::timespec(span)));
    }
}
