//! The connections to the data process of this host, one to each of its workers. Events of any
//! worker go into the control plane. Commands of the plane go to all of them, since together they
//! are one switch. A frame goes to the worker of its egress port, or of its ingress port if it is
//! flooded.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use sluice_base::Nanos;
use sluice_control::hold::Receiver;
use sluice_control::plane::{self, Command, Plane, PuntFrom};
use sluice_control::punt;

use super::receivers::Receivers;
use crate::channel::{Cause, Order, Pipe, Told, Way};
use crate::config::FabricPlan;
use crate::protocol::{self, Request};
use crate::run_dir::DATA_SOCKET;

/// Longest time for data's answer.
const ATTACH_MAX: Duration = Duration::from_secs(5);
/// Longest answer to the request to attach.
const LINE_SIZE_MAX: usize = 4096;
/// Reads from a worker before others are served.
const READS_MAX: usize = 16;

/// Connections, by worker.
pub(super) struct Data {
    workers: Vec<Worker>,
    receivers: Receivers,
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
        mut receiver: impl FnMut(&mut Plane, &Told<'_>),
    ) -> io::Result<()> {
        for _ in 0..READS_MAX {
            if !self.ready {
                break;
            }
            self.ready = self.pipe.fill()?;
            let taken = self.pipe.take(|bytes| {
                let Some((told, size)) = Told::read(bytes)? else { return Ok(None) };
                self.has_told_all |= told == Told::All;
                tell(now, plan, plane, &told);
                receiver(plane, &told);
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
        (0..workers)
            .map(|number| Worker::attach(run_dir, number))
            .collect::<io::Result<_>>()
            .map(|workers| Self { workers, receivers: Receivers::default() })
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
        let Self { workers, receivers } = self;
        let mut numbered = workers.iter_mut().enumerate();
        numbered.try_for_each(|(number, worker)| {
            worker.read(now, plan, plane, |plane, told| {
                if let Told::Receiver { port, isolated, held, stuck, senders } = *told {
                    let receiver = Receiver { isolated, held, stuck };
                    let all = receivers.told(number, port, receiver, senders.iter());
                    let hosts = all.1.into_iter().filter_map(|tunnel| plan.host(tunnel));
                    plane.receiver(now, port, all.0, hosts);
                }
            })
        })
    }

    /// Returns true if no more commands should be sent now.
    pub(super) fn is_full(&self) -> bool {
        self.workers.iter().any(|worker| worker.pipe.is_full())
    }

    /// Sends a command of the plane, if it concerns the switch.
    pub(super) fn order(&mut self, plan: &FabricPlan, command: &Command) {
        let Some(order) = order_of(plan, command) else { return };
        let is_urgent = matches!(order, Order::Hold { .. });
        let once = match order {
            Order::Send { to: way, .. } | Order::Flood { from: way, .. } => Some(way),
            Order::Refuse { port, .. } => Some(Way::Port(port)),
            _ => None,
        };
        if let Some(way) = once {
            // The worker of the egress port, or of the ingress port.
            let at = plan.worker_of(way);
            if let Some(worker) = self.workers.get_mut(at) {
                order.write(worker.pipe.out());
            }
            return;
        }
        for worker in &mut self.workers {
            if is_urgent {
                let mut record = Vec::new();
                order.write(&mut record);
                worker.pipe.put_ahead(&record);
            } else {
                order.write(worker.pipe.out());
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

const fn cause_of(cause: Cause) -> punt::Cause {
    match cause {
        Cause::Miss => punt::Cause::Miss,
        Cause::NewSource => punt::Cause::NewSource,
        Cause::Moved => punt::Cause::Moved,
        Cause::Arp => punt::Cause::Arp,
        Cause::Nd => punt::Cause::Nd,
        Cause::Snooped => punt::Cause::Snooped,
    }
}

fn tell(now: Nanos, plan: &FabricPlan, plane: &mut Plane, told: &Told<'_>) {
    match *told {
        Told::Punt { cause, vnet, from, head } => {
            let from = match from {
                Way::Port(port) => Some(PuntFrom::Port(port)),
                Way::Tunnel(tunnel) => plan.host(tunnel).map(PuntFrom::Host),
            };
            if let (Some(vni), Some(from)) = (plan.vni(vnet), from) {
                plane.punt(now, from, vni, cause_of(cause), head);
            }
        }
        Told::Decap { vnet, tunnel } => {
            if let (Some(vni), Some(host)) = (plan.vni(vnet), plan.host(tunnel)) {
                plane.decap(now, vni, host);
            }
        }
        Told::Used { vnet, mac } => {
            if let Some(vni) = plan.vni(vnet) {
                plane.used(now, vni, mac);
            }
        }
        Told::Found { vnet, mac, to } => {
            let way = match to {
                Way::Port(port) => Some(plane::Way::Port(port)),
                Way::Tunnel(tunnel) => plan.host(tunnel).map(plane::Way::Host),
            };
            if let (Some(vni), Some(way)) = (plan.vni(vnet), way) {
                plane.adopt(now, vni, mac, way);
            }
        }
        // The reports of several workers about a receiver are merged first.
        Told::All | Told::Receiver { .. } => {}
    }
}

fn order_of<'a>(plan: &FabricPlan, command: &'a Command) -> Option<Order<'a>> {
    let way = |way: plane::Way| match way {
        plane::Way::Port(port) => Some(Way::Port(port)),
        plane::Way::Host(host) => plan.tunnel(host).map(Way::Tunnel),
    };
    Some(match command {
        Command::Install { vni, mac, to } => {
            Order::Install { vnet: plan.vnet(*vni)?, mac: *mac, to: way(*to)? }
        }
        Command::Remove { vni, mac } => Order::Remove { vnet: plan.vnet(*vni)?, mac: *mac },
        Command::Reject { vni, mac } => Order::Reject { vnet: plan.vnet(*vni)?, mac: *mac },
        Command::Send { vni, to, frame } => {
            Order::Send { vnet: plan.vnet(*vni)?, to: way(*to)?, frame }
        }
        Command::Flood { vni, from, frame } => {
            Order::Flood { vnet: plan.vnet(*vni)?, from: way(*from)?, frame }
        }
        Command::Refuse { port, reason, frames, bytes } => {
            Order::Refuse { port: *port, reason: *reason, frames: *frames, bytes: *bytes }
        }
        Command::Unbind { port, mac, ip } => Order::Unbind { port: *port, mac: *mac, ip: *ip },
        Command::ForgetDecap { vni, host } => {
            Order::ForgetDecap { vnet: plan.vnet(*vni)?, tunnel: plan.tunnel(*host)? }
        }
        Command::Hold { vni, mac, host, held, stuck } => Order::Hold {
            vnet: plan.vnet(*vni)?,
            mac: *mac,
            tunnel: plan.tunnel(*host)?,
            held: *held,
            stuck: *stuck,
        },
        // The switch has a place for every member; the state of a tunnel is only shown to people.
        Command::OpenTunnel { .. } | Command::CloseTunnel { .. } => return None,
    })
}

#[cfg(test)]
mod tests;
