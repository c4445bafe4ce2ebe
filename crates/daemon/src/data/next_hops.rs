//! Next hops of the tunnels over an `l2` underlay: a thread follows the kernel's neighbours and
//! tells the worker of changes.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    Configured(Arc<Mutex<BTreeMap<TunnelId, Mac>>>),
    /// A thread follows the kernel's neighbours.
    Followed(Arc<Followed>),
}

/// State that the thread shares.
#[derive(Debug)]
pub(super) struct Followed {
    known: Mutex<BTreeMap<TunnelId, Mac>>,
    /// Tunnels by the address of their far end.
    tunnels: Mutex<BTreeMap<Ipv4Addr, TunnelId>>,
    /// Wakes the thread after the tunnels changed.
    bell: UnixStream,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NextHops {
    /// Returns the MAC of a tunnel's next hop, in words.
    pub(super) fn text(&self, tunnel: TunnelId) -> String {
        let of = |known: &Mutex<BTreeMap<TunnelId, Mac>>| {
            lock(known).get(&tunnel).map_or_else(|| "unresolved".to_owned(), Mac::to_string)
        };
        match self {
            Self::Kernel => "by the kernel".to_owned(),
            Self::Configured(known) => of(known),
            Self::Followed(followed) => of(&followed.known),
        }
    }

    /// Follows the tunnels of another plan from now on. The switch has them already.
    pub(super) fn follow_plan(&self, plan: &Plan) {
        match self {
            Self::Kernel => {}
            Self::Configured(known) => *lock(known) = configured(plan),
            Self::Followed(followed) => {
                let tunnels = tunnels(plan);
                let mut now = lock(&followed.tunnels);
                if *now == tunnels {
                    return;
                }
                lock(&followed.known).retain(|id, _| tunnels.values().any(|tunnel| tunnel == id));
                *now = tunnels;
                drop(now);
                // A full pipe has woken the thread already.
                _ = (&followed.bell).write(&[0]);
            }
        }
    }
}

/// Returns the next hops of the configuration.
fn configured(plan: &Plan) -> BTreeMap<TunnelId, Mac> {
    let tunnels = plan.switch.tunnels.iter();
    let by_address = tunnels.filter_map(|tunnel| Some((tunnel.remote, tunnel.next_hop?)));
    let by_address: BTreeMap<Ipv4Addr, Mac> = by_address.collect();
    let known = tunnels_of(plan).filter_map(|(vtep, id)| Some((id, *by_address.get(&vtep)?)));
    known.collect()
}

fn tunnels_of(plan: &Plan) -> impl Iterator<Item = (Ipv4Addr, TunnelId)> {
    let peers = plan.config.peers.iter();
    peers.filter_map(|peer| Some((peer.vtep, plan.numbers.tunnel(&peer.name)?)))
}

fn tunnels(plan: &Plan) -> BTreeMap<Ipv4Addr, TunnelId> {
    tunnels_of(plan).collect()
}

/// Starts the thread, if there is something to follow.
pub(super) fn follow(plan: &Plan, askers: WorkerHandles) -> anyhow::Result<NextHops> {
    let underlay = plan.ports.last().map(|port| &port.attachment);
    let device = match underlay {
        Some(Attachment::L2 { device, vtep: Some(_), .. }) => device.clone(),
        Some(Attachment::VhostUser { .. }) => {
            return Ok(NextHops::Configured(Arc::new(Mutex::new(configured(plan)))));
        }
        _ => return Ok(NextHops::Kernel),
    };
    let tunnels = tunnels(plan);
    let mut neighbours = open(&device, &tunnels)?;
    let (bell, mut heard) = UnixStream::pair()?;
    bell.set_nonblocking(true)?;
    heard.set_nonblocking(true)?;
    let followed = Arc::new(Followed {
        known: Mutex::new(BTreeMap::new()),
        tunnels: Mutex::new(tunnels),
        bell,
    });
    let next_hops = NextHops::Followed(Arc::clone(&followed));
    spawn("next-hops", move || {
        loop {
            if let Err(error) = tell(&mut neighbours, &followed, &mut heard, &askers) {
                say!(warn: "next hops: {error}; netlink is opened again");
            }
            neighbours = loop {
                // An address that is known is told again, which changes nothing.
                match open(&device, &lock(&followed.tunnels)) {
                    Ok(neighbours) => break neighbours,
                    Err(error) => say!(warn: "next hops: {error}"),
                }
                clock::sleep(RETRY);
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

/// Reports every change until the tunnels change. Waits a moment before it reports that netlink
/// failed.
fn tell(
    neighbours: &mut Neighbours,
    followed: &Followed,
    heard: &mut UnixStream,
    askers: &WorkerHandles,
) -> io::Result<()> {
    loop {
        let changes = neighbours.poll(clock::now()).inspect_err(|_| clock::sleep(RETRY))?;
        for change in changes {
            // Held until the worker is asked: the number must not mean another tunnel by then.
            let tunnels = lock(&followed.tunnels);
            let Some(&tunnel) = tunnels.get(&change.destination) else { continue };
            match change.mac {
                Some(mac) => lock(&followed.known).insert(tunnel, mac),
                None => lock(&followed.known).remove(&tunnel),
            };
            askers.ask_all(|| WorkerRequest::NextHop(tunnel, change.mac));
        }
        let span = neighbours.deadline().since(clock::now()).min(Nanos::from_millis(60_000));
        let (netlink, bell) = (neighbours.fd(), heard.as_fd());
        let mut fds = [PollFd::new(&netlink, PollFlags::IN), PollFd::new(&bell, PollFlags::IN)];
        // The next read of netlink reveals a signal or an error.
        _ = poll(&mut fds, Some(&clock::timespec(span)));
        if heard.read(&mut [0; 64]).is_ok_and(|size| size > 0) {
            return Ok(());
        }
    }
}
