//! A capture from its request to its end, in the thread of its client's connection.
//!
//! The client has three ways to end it: it says nothing more (a half close), and gets what is in
//! the rings and the counts; it goes away; or this process ends.

use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use rtrb::{Consumer, RingBuffer};
use rustix::net::RecvFlags;
use sluice_api::capture::{Begun, PortName, Question, SNAPLEN_MAX, SNAPLEN_MIN};
use sluice_base::{DropReason, PortId};

use super::{CAPTURES_MAX, Capture, Counts, Filter, PORTS_MAX, Wanted};
use crate::config::Plan;
use crate::data::registry::{Port, Ports};
use crate::data::worker::WorkerRequest;
use crate::data::{ANSWER_WAIT, WorkerHandles};
use crate::ipc::capture::{Head, Kind, NO_PORT};
use crate::ipc::protocol::{self, Failure};

/// Size of the ring of a worker.
const RING_SIZE: usize = 4 << 20;
/// Pause when there was nothing to send.
const IDLE: Duration = Duration::from_millis(1);
/// Time between two looks for new ports, and for the client.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Name of a host's underlay, and of its network.
const UNDERLAY: &str = "underlay";

/// The captures that run.
#[derive(Debug, Default)]
pub(in crate::data) struct Sessions {
    running: AtomicUsize,
    last: AtomicU64,
}

impl Sessions {
    /// Captures for a client until it, or the client, ends.
    ///
    /// # Errors
    /// If the client goes away.
    pub(in crate::data) fn serve(
        &self,
        stream: &UnixStream,
        question: &Question,
        (plan, ports, askers): (&Plan, &Ports, &WorkerHandles),
    ) -> io::Result<()> {
        let refuse = |error: String| protocol::write(stream, &Failure { error });
        if !crate::sys::peer::is_owner(stream) {
            return refuse("only root, or the user of the host, may capture".to_owned());
        }
        let wishes = match Wishes::of(question, plan, ports) {
            Ok(wishes) => wishes,
            Err(error) => return refuse(error),
        };
        if self.running.fetch_add(1, Ordering::Relaxed) >= CAPTURES_MAX {
            self.running.fetch_sub(1, Ordering::Relaxed);
            return refuse(format!("{CAPTURES_MAX} captures run already; end one of them"));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        // A client that does not read costs what it does not get, and is not sent away for that.
        let done = stream.set_write_timeout(None).and_then(|()| {
            let begun = Begun { workers: askers.0.len(), buffer_bytes: RING_SIZE };
            protocol::write(stream, &begun)?;
            Session::begin(number, wishes, askers).run(stream, ports)
        });
        self.running.fetch_sub(1, Ordering::Relaxed);
        done
    }
}

/// The question, with names looked up.
#[derive(Debug)]
struct Wishes {
    question: Question,
    filter: Filter,
}

impl Wishes {
    fn of(question: &Question, plan: &Plan, ports: &Ports) -> Result<Self, String> {
        let config = &plan.config;
        for name in &question.ports {
            ports.lock().named(name).ok_or_else(|| {
                format!("there is no port `{name}`; `sluice show ports` names them")
            })?;
        }
        let vni = |name: &String| match config.vnets.iter().find(|vnet| vnet.name == *name) {
            Some(vnet) => Ok(vnet.vni),
            None => Err(format!("there is no network `{name}`; `sluice vnet list` names them")),
        };
        let vnis: Vec<_> = question.vnets.iter().map(vni).collect::<Result<_, _>>()?;
        let vtep = |name: &String| match config.peers.iter().find(|peer| peer.name == *name) {
            Some(peer) => Ok(peer.vtep),
            None => Err(format!("there is no peer `{name}`; `sluice show tunnels` names them")),
        };
        let reason = |name: &String| {
            let mut all = DropReason::ALL.iter();
            all.find(|reason| reason.name() == *name).copied().ok_or_else(|| {
                let names: Vec<&str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
                format!("no frame is dropped for `{name}`; the reasons are {}", names.join(", "))
            })
        };
        if !(SNAPLEN_MIN..=SNAPLEN_MAX).contains(&question.snaplen) {
            return Err(format!("{SNAPLEN_MIN} to {SNAPLEN_MAX} bytes of a frame are captured"));
        }
        let filter = Filter {
            ports: (0..PORTS_MAX).map(|_| AtomicU8::new(Wanted::None as u8)).collect(),
            counts: (0..PORTS_MAX).map(|_| Counts::default()).collect(),
            vnis: vnis.into_iter().flatten().collect(),
            vteps: question.peers.iter().map(vtep).collect::<Result<_, _>>()?,
            frames: question.frames,
            drops: question.drops,
            reason: question.reason.as_ref().map(reason).transpose()?,
            snaplen: question.snaplen as usize,
            drops_missed: AtomicU64::new(0),
        };
        Ok(Self { question: question.clone(), filter })
    }
}

/// Returns which frames of a port are wanted: places and networks both have their say.
fn wanted(question: &Question, port: &Port) -> Wanted {
    let Question { ports, vnets, peers, underlay, .. } = question;
    let is_underlay = port.name == UNDERLAY && port.vnet == UNDERLAY;
    // Links between workers have no network.
    if port.vnet.is_empty() {
        return Wanted::None;
    }
    let is_anywhere = ports.is_empty() && peers.is_empty() && !underlay;
    let of_peers = is_underlay && !peers.is_empty();
    let is_named = ports.contains(&port.name) || is_underlay && *underlay;
    match is_underlay {
        _ if !(is_anywhere || of_peers || is_named) => Wanted::None,
        true if vnets.is_empty() && peers.is_empty() => Wanted::All,
        true => Wanted::Tunnelled,
        false if vnets.is_empty() || vnets.contains(&port.vnet) => Wanted::All,
        false => Wanted::None,
    }
}

/// A capture that runs.
struct Session<'a> {
    number: u64,
    question: Question,
    filter: Arc<Filter>,
    rings: Vec<Consumer<u8>>,
    askers: &'a WorkerHandles,
    /// Names that the client knows, by number of port.
    told: Vec<(PortId, String)>,
}

impl<'a> Session<'a> {
    /// Gives each worker its end.
    fn begin(number: u64, wishes: Wishes, askers: &'a WorkerHandles) -> Self {
        let (filter, mut rings) = (Arc::new(wishes.filter), Vec::new());
        for asker in &askers.0 {
            let (producer, consumer) = RingBuffer::new(RING_SIZE);
            rings.push(consumer);
            let capture = Capture::new(number, producer, Arc::clone(&filter));
            asker.ask(WorkerRequest::Capture(capture));
        }
        Self { number, question: wishes.question, filter, rings, askers, told: Vec::new() }
    }

    /// Sends records until the client has enough.
    fn run(mut self, stream: &UnixStream, ports: &Ports) -> io::Result<()> {
        let sent = self.send_until_enough(stream, ports);
        self.end();
        sent?;
        while self.send(stream)? {}
        self.send_counts(stream)
    }

    fn send_until_enough(&mut self, stream: &UnixStream, ports: &Ports) -> io::Result<()> {
        let mut look_at = Instant::now();
        loop {
            let now = Instant::now();
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                self.follow_ports(stream, ports)?;
                if has_enough(stream) {
                    return Ok(());
                }
            }
            if !self.send(stream)? {
                std::thread::sleep(IDLE);
            }
        }
    }

    /// Names new ports to the client, and wants their frames then.
    fn follow_ports(&mut self, mut stream: &UnixStream, ports: &Ports) -> io::Result<()> {
        let there: Vec<(PortId, Port)> =
            ports.lock().there().map(|(id, port)| (id, port.clone())).collect();
        for (id, port) in there {
            let is_told = |(told, name): &(PortId, String)| *told == id && *name == port.name;
            let wanted = wanted(&self.question, &port);
            if self.told.iter().any(is_told) || wanted == Wanted::None {
                continue;
            }
            let named = PortName { name: port.name.clone(), vnet: port.vnet };
            let body = serde_json::to_vec(&named)?;
            let head = Head::of(Kind::Port, id.0).bytes(body.len());
            stream.write_all(&[&head[..], &body].concat())?;
            self.told.retain(|(told, _)| *told != id);
            self.told.push((id, port.name));
            self.filter.set(id, wanted);
        }
        Ok(())
    }

    /// Sends what the rings have: whole records. Returns true if there was anything.
    fn send(&mut self, mut stream: &UnixStream) -> io::Result<bool> {
        let mut any = false;
        for ring in &mut self.rings {
            let Ok(chunk) = ring.read_chunk(ring.slots()) else { continue };
            let (first, second) = chunk.as_slices();
            any |= !first.is_empty();
            stream.write_all(first).and_then(|()| stream.write_all(second))?;
            chunk.commit_all();
        }
        Ok(any)
    }

    /// Takes the workers' ends back.
    fn end(&self) {
        let number = self.number;
        let ask = |asker: &crate::data::WorkerHandle| {
            let (reply, answer) = sync_channel(1);
            asker.ask(WorkerRequest::CaptureEnd(number, reply));
            answer
        };
        let answers: Vec<_> = self.askers.0.iter().map(ask).collect();
        for answer in answers {
            // A worker that hangs keeps its end.
            drop(answer.recv_timeout(ANSWER_WAIT));
        }
    }

    fn send_counts(&self, mut stream: &UnixStream) -> io::Result<()> {
        for (id, _) in &self.told {
            let Some(counts) = self.filter.counts.get(id.index()) else { continue };
            let all = [&counts.seen, &counts.missed];
            let body = all.map(|count| count.load(Ordering::Relaxed).to_le_bytes()).concat();
            let head = Head::of(Kind::Counts, id.0).bytes(body.len());
            stream.write_all(&[&head[..], &body].concat())?;
        }
        let missed = self.filter.drops_missed.load(Ordering::Relaxed).to_le_bytes();
        let body = [missed, missed].concat();
        let head = Head::of(Kind::Counts, NO_PORT).bytes(body.len());
        stream.write_all(&[&head[..], &body].concat())
    }
}

/// Returns true if the client says nothing more, or is gone.
fn has_enough(stream: &UnixStream) -> bool {
    let peeked =
        rustix::net::recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Err(rustix::io::Errno::AGAIN))
}

#[cfg(test)]
mod tests;
