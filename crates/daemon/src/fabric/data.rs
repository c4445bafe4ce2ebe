//! The connections to the data process of this host, one to each of its workers. Events of any
//! worker go into the control plane. Commands of the plane go to all of them, since together they
//! are one switch. A frame goes to the worker of its egress port, or of its ingress port if it is
//! flooded.
//!
//! Data may have a network or a tunnel that the plan does not have yet. Its first frames and its
//! receivers are reported once, so both are remembered until the plan has them.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use sluice_base::{self as base, Destination, Nanos, PortId, TunnelId, VnetId};
use sluice_control::plane::{self, Location, Plane};

use super::receivers::{Receivers, Said};
use crate::config::FabricPlan;
use crate::ipc::channel::{Command, Event, Pipe};
use crate::ipc::protocol::{self, Request};
use crate::sys::run_dir::DATA_SOCKET;

/// Longest time for data's answer.
const ATTACH_MAX: Duration = Duration::from_secs(5);
/// Longest answer to the request to attach.
const LINE_SIZE_MAX: usize = 4096;
/// Reads from a worker before others are served.
const READS_MAX: usize = 16;
/// Decap flows with numbers that the plan does not have: as many as are remembered.
const UNKNOWN_MAX: usize = 1 << 12;

/// Connections, by worker.
pub(super) struct Data {
    workers: Vec<Worker>,
    receivers: Receivers,
    /// Decap flows with numbers that the plan does not have.
    unknown: BTreeSet<(VnetId, TunnelId)>,
}

/// The connection to a worker.
struct Worker {
    pipe: Pipe,
    /// True if there may be more to read, or room to write.
    ready: bool,
    /// True if the previous contents of the forwarding table have been reported.
    has_told_all: bool,
}

impl Worker {
    fn attach(run_dir: &Path, number: u16) -> io::Result<Self> {
        let mut stream = UnixStream::connect(run_dir.join(DATA_SOCKET))?;
        stream.set_read_timeout(Some(ATTACH_MAX))?;
        protocol::write(&stream, &Request::Attach(number))?;
        // Byte by byte, since records follow the line.
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte)?;
            match byte {
                [b'\n'] => break,
                _ if line.len() == LINE_SIZE_MAX => return Err(io::ErrorKind::InvalidData.into()),
                [byte] => line.push(byte),
            }
        }
        let answer = String::from_utf8_lossy(&line);
        protocol::expect::<protocol::Hello>(&answer).map_err(io::Error::other)?;
        Ok(Self { pipe: Pipe::new(stream)?, ready: true, has_told_all: false })
    }

    fn read(
        &mut self,
        now: Nanos,
        plan: &FabricPlan,
        plane: &mut Plane,
        mut other: impl FnMut(&mut Plane, &Event<'_>),
    ) -> io::Result<()> {
        for _ in 0..READS_MAX {
            if !self.ready {
                break;
            }
            self.ready = self.pipe.fill()?;
            let taken = self.pipe.take(|bytes| {
                let Some((event, size)) = Event::read(bytes)? else { return Ok(None) };
                self.has_told_all |= event == Event::All;
                if !tell(now, plan, plane, &event) {
                    other(plane, &event);
                }
                Ok(Some(size))
            });
            taken.map_err(io::Error::other)?;
        }
        self.pipe.flush()
    }
}

impl Data {
    /// Attaches to all workers of the data process of a directory. They first report the contents
    /// of their forwarding tables.
    pub(super) fn attach(run_dir: &Path, workers: u16) -> io::Result<Self> {
        (0..workers).map(|number| Worker::attach(run_dir, number)).collect::<io::Result<_>>().map(
            |workers| {
                let (receivers, unknown) = (Receivers::default(), BTreeSet::new());
                Self { workers, receivers, unknown }
            },
        )
    }

    /// Returns the descriptors for the poller.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.workers.iter().map(|worker| worker.pipe.as_fd())
    }

    /// Notes an event of the poller for one of them.
    pub(super) fn wake(&mut self) {
        for worker in &mut self.workers {
            worker.ready = true;
        }
    }

    /// Returns true if all have reported the previous contents of the forwarding table.
    pub(super) fn has_told_all(&self) -> bool {
        self.workers.iter().all(|worker| worker.has_told_all)
    }

    /// Returns true if one is to be served without an edge.
    pub(super) fn is_ready(&self) -> bool {
        self.workers.iter().any(|worker| worker.ready)
    }

    /// Reads the events. A worker ends only with the process, so if one is gone, all are.
    pub(super) fn read(
        &mut self,
        now: Nanos,
        plan: &FabricPlan,
        plane: &mut Plane,
    ) -> io::Result<()> {
        let Self { workers, receivers, unknown } = self;
        let mut numbered = workers.iter_mut().enumerate();
        numbered.try_for_each(|(number, worker)| {
            worker.read(now, plan, plane, |plane, event| match *event {
                Event::Receiver { port, state, senders } => {
                    let all = receivers.told(number, port, state, senders.iter());
                    tell_receiver(now, plan, plane, (port, all));
                }
                Event::Decap { vnet, tunnel } if unknown.len() < UNKNOWN_MAX => {
                    unknown.insert((vnet, tunnel));
                }
                _ => {}
            })
        })
    }

    /// Takes up what was reported with numbers that the plan has now.
    pub(super) fn recall(&mut self, now: Nanos, plan: &FabricPlan, plane: &mut Plane) {
        let is_known = |(vnet, tunnel): &(VnetId, TunnelId)| {
            plan.vni(*vnet).is_some() && plan.host(*tunnel).is_some()
        };
        let known: Vec<_> = self.unknown.iter().copied().filter(is_known).collect();
        for (vnet, tunnel) in known {
            self.unknown.remove(&(vnet, tunnel));
            // The switch reports the next frame of it again.
            let command = Command::Switch(base::Command::ForgetDecap { vnet, tunnel });
            self.workers.iter_mut().for_each(|worker| command.write(worker.pipe.out()));
        }
        for report in self.receivers.iter() {
            tell_receiver(now, plan, plane, report);
        }
        self.flush();
    }

    /// Returns true if no more commands should be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.workers.iter().any(|worker| worker.pipe.is_full())
    }

    /// Sends a command of the plane, if it concerns the switch.
    pub(super) fn order(&mut self, plan: &FabricPlan, command: &plane::Command) {
        let Some(command) = command_of(plan, command) else { return };
        let is_urgent = matches!(command, Command::Switch(base::Command::Hold { .. }));
        let once = match command {
            Command::Send { to: once, .. } | Command::Flood { from: once, .. } => Some(once),
            Command::Switch(base::Command::Refuse { port, .. }) => Some(Destination::Port(port)),
            _ => None,
        };
        if let Some(destination) = once {
            // The worker of the egress port, or of the ingress port.
            let at = plan.worker_of(destination);
            if let Some(worker) = self.workers.get_mut(at) {
                command.write(worker.pipe.out());
            }
            return;
        }
        for worker in &mut self.workers {
            if is_urgent {
                let mut record = Vec::new();
                command.write(&mut record);
                worker.pipe.put_ahead(&record);
            } else {
                command.write(worker.pipe.out());
            }
        }
    }

    /// Returns true if not even a hold should be sent now.
    pub(super) fn is_crammed(&self) -> bool {
        self.workers.iter().any(|worker| worker.pipe.is_crammed())
    }

    /// Sends the waiting commands. The next read reveals a failure.
    pub(super) fn flush(&mut self) {
        for worker in &mut self.workers {
            worker.ready |= worker.pipe.flush().is_err();
        }
    }
}

/// Returns the location of a destination, which the switch names by its own numbers.
fn location(plan: &FabricPlan, at: Destination) -> Option<Location> {
    match at {
        Destination::Port(port) => Some(Location::Port(port)),
        Destination::Tunnel(tunnel) => plan.host(tunnel).map(Location::Host),
    }
}

/// Opposite of [`location`].
fn destination(plan: &FabricPlan, at: Location) -> Option<Destination> {
    match at {
        Location::Port(port) => Some(Destination::Port(port)),
        Location::Host(host) => plan.tunnel(host).map(Destination::Tunnel),
    }
}

/// Tells the plane of the state of a receiver, over all workers.
fn tell_receiver(now: Nanos, plan: &FabricPlan, plane: &mut Plane, report: (PortId, Said)) {
    let (port, (state, senders)) = report;
    let hosts = senders.into_iter().filter_map(|tunnel| plan.host(tunnel));
    plane.receiver(now, port, state, hosts);
}

/// Tells the plane of an event. False for a decap flow with numbers that the plan does not have,
/// and for events that are merged first.
fn tell(now: Nanos, plan: &FabricPlan, plane: &mut Plane, event: &Event<'_>) -> bool {
    match *event {
        Event::Punt { cause, vnet, from, head } => {
            if let (Some(vni), Some(from)) = (plan.vni(vnet), location(plan, from)) {
                plane.punt(now, from, vni, cause, head);
            }
        }
        Event::Decap { vnet, tunnel } => {
            let (Some(vni), Some(host)) = (plan.vni(vnet), plan.host(tunnel)) else {
                return false;
            };
            plane.decap(now, vni, host);
        }
        Event::Used { vnet, mac } => {
            if let Some(vni) = plan.vni(vnet) {
                plane.used(now, vni, mac);
            }
        }
        Event::Found { vnet, mac, to } => {
            if let (Some(vni), Some(to)) = (plan.vni(vnet), location(plan, to)) {
                plane.adopt(now, vni, mac, to);
            }
        }
        // The reports of several workers about a receiver are merged first.
        Event::All | Event::Receiver { .. } => return false,
    }
    true
}

/// Returns the command in the numbers of the switch, if it concerns the switch and all that it
/// names is configured.
fn command_of<'a>(plan: &FabricPlan, command: &'a plane::Command) -> Option<Command<'a>> {
    Some(Command::Switch(match *command {
        plane::Command::Install { vni, mac, to } => {
            base::Command::Install { vnet: plan.vnet(vni)?, mac, to: destination(plan, to)? }
        }
        plane::Command::Remove { vni, mac } => base::Command::Remove { vnet: plan.vnet(vni)?, mac },
        plane::Command::Reject { vni, mac } => base::Command::Reject { vnet: plan.vnet(vni)?, mac },
        plane::Command::Refuse { port, reason, frames, bytes } => {
            base::Command::Refuse { port, reason, frames, bytes }
        }
        plane::Command::Unbind { port, mac, ip } => base::Command::Unbind { port, mac, ip },
        plane::Command::ForgetDecap { vni, host } => {
            base::Command::ForgetDecap { vnet: plan.vnet(vni)?, tunnel: plan.tunnel(host)? }
        }
        plane::Command::Hold { vni, mac, host, held, stuck } => {
            let (vnet, tunnel) = (plan.vnet(vni)?, plan.tunnel(host)?);
            base::Command::Hold { vnet, mac, tunnel, held, stuck }
        }
        plane::Command::Send { vni, to, ref frame } => {
            return Some(Command::Send {
                vnet: plan.vnet(vni)?,
                to: destination(plan, to)?,
                frame,
            });
        }
        plane::Command::Flood { vni, from, ref frame } => {
            let from = destination(plan, from)?;
            return Some(Command::Flood { vnet: plan.vnet(vni)?, from, frame });
        }
        // The switch has a place for every member; the state of a tunnel is only shown to people.
        plane::Command::OpenTunnel { .. } | plane::Command::CloseTunnel { .. } => return None,
    }))
}

#[cfg(test)]
mod tests;
