//! Several workers, each in a thread of its own, whose ports exchange frames.

use std::fmt::Write as _;
use std::sync::Arc;

use sluice_ports::memory::MemoryPort;
use sluice_testkit::guest::{Guest, GuestConfig};

use super::guests::Folder;
use super::*;
use crate::config::{self, KernelDevices, Placed, Why, Workers};
use crate::data::taps::Taps;
use crate::data::worker::Meter;
use crate::data::{Idle, WorkerHandles, handoff, merge, worker_channels};

pub(super) struct Several {
    pub(super) probes: Vec<Probe>,
    pub(super) askers: WorkerHandles,
    pub(super) threads: Vec<JoinHandle<Ended>>,
    pub(super) placed: Workers,
    pub(super) meters: Vec<Arc<Meter>>,
}

/// State of a worker that has ended.
pub(super) struct Ended {
    pub(super) left: Left,
    /// Frames read at each port, if the port was here at the end.
    pub(super) read: Vec<u64>,
    pub(super) dropped: u64,
    /// Ports of the worker at the end.
    pub(super) has: Vec<PortId>,
}

/// Starts a host of containers; `owners` has the worker of each port.
pub(super) fn start(config: &SwitchConfig, owners: &[usize], ring_frames: usize) -> Several {
    start_with(config, owners, ring_frames, |_, port| Box::new(port))
}

/// Starts a host like [`start`]; `make` makes each port from its number and a port in memory.
pub(super) fn start_with(
    config: &SwitchConfig,
    owners: &[usize],
    ring_frames: usize,
    make: impl Fn(usize, MemoryPort) -> Box<dyn Port>,
) -> Several {
    let (workers, rest) = make_workers(config, owners, ring_frames, make);
    Several { threads: workers.into_iter().map(run_here).collect(), ..rest }
}

/// Makes the workers without running them, and the rest of the host.
fn make_workers(
    config: &SwitchConfig,
    owners: &[usize],
    ring_frames: usize,
    make: impl Fn(usize, MemoryPort) -> Box<dyn Port>,
) -> (Vec<Worker>, Several) {
    let count = owners.iter().max().unwrap() + 1;
    let placed =
        |&worker: &usize| Placed { worker: Some(worker), why: Why::FewestPorts, moves: true };
    let workers = Workers { count, ports: owners.iter().map(placed).collect() };
    let (askers, ends) = worker_channels(count).unwrap();
    let wakers: Vec<_> = askers.0.iter().map(|asker| asker.waker.clone()).collect();
    let handoffs = handoff::between(&workers, config, &wakers);
    let memory = MemoryConfig { ring_frames, ..MemoryConfig::default() };
    let made = owners.iter().map(|_| memory::port(&memory).unwrap());
    let (ports, probes): (Vec<_>, Vec<_>) = made.unzip();
    let mut shared: Vec<Vec<Opened>> = (0..count).map(|_| Vec::new()).collect();
    for (at, (port, owner)) in ports.into_iter().zip(owners).enumerate() {
        shared[*owner].push((PortId::from_index(at), format!("p{at}"), make(at, port)));
    }
    let parts = ends.into_iter().zip(shared).zip(handoffs).enumerate();
    let made = parts.map(|(at, (((poller, asks), ports), handoffs))| {
        let addresses = (0..owners.len())
            .map(|port| (VnetId(0), mac(port), Destination::Port(PortId::from_index(port))));
        let shard = workers.shard(config, at);
        let host = Host::new(&shard, addresses, 1, clock::now()).unwrap();
        let slots = u32::try_from(host.switch().capacity() + ports.len() * BATCH).unwrap();
        let pool = Pool::new(PoolConfig::for_mtu(slots, 1500)).unwrap();
        let pacing = Pacing { pace: Nanos::from_micros(100), spin: Nanos::from_micros(50) };
        let mut worker = Worker::new(host, ports, pool, poller, asks, pacing).unwrap();
        worker.join(handoffs);
        worker
    });
    let made = made.collect();
    let (threads, meters) = (Vec::new(), Vec::new());
    (made, Several { probes, askers, threads, placed: workers, meters })
}

fn run_here(mut worker: Worker) -> JoinHandle<Ended> {
    std::thread::spawn(move || {
        let left = worker.run().unwrap();
        worker.close();
        let switch = worker.host.switch();
        let ports = (0..worker.handoffs.ports).map(PortId::from_index);
        let read = ports.map(|port| switch.received(switch.input(port, 0)).frames).collect();
        let dropped = switch.audit().total(|row| row.frames.dropped);
        let has = worker.ports.iter().map(|attached| attached.id).collect();
        Ended { left, read, dropped, has }
    })
}

impl Several {
    pub(super) fn ask(&self, question: Question) -> Body {
        let shots = self.askers.answers(|reply| WorkerRequest::Show(question, reply)).unwrap();
        merge::snapshots(shots).unwrap().body
    }

    pub(super) fn send(&self, from: usize, to: usize, number: u32) -> bool {
        self.probes[from].send(&frame(from, to, number))
    }

    pub(super) fn receive(&self, port: usize) -> Vec<u8> {
        receive(&self.probes, port)
    }

    /// Sends until frames have been refused for a while. Returns the number of frames sent.
    pub(super) fn fill(&self, from: usize, to: usize) -> u32 {
        let (mut sent, mut refused, mut turns) = (0, Instant::now(), 0);
        while refused.elapsed() < Duration::from_millis(50) || turns < TURNS_MIN {
            if self.send(from, to, sent) {
                (sent, refused, turns) = (sent + 1, Instant::now(), 0);
            } else {
                _ = self.ask(Question::Audit);
                turns += 1;
            }
        }
        sent
    }

    pub(super) fn no_drops(&self) {
        let Body::Drops(drops) = self.ask(Question::Drops) else { panic!("drops") };
        assert!(drops.is_empty(), "{drops:?}");
    }

    /// Drains, and checks that no frame is left anywhere.
    pub(super) fn end(self) {
        let Body::Audit(audit) = self.ask(Question::Audit) else { panic!("an audit") };
        assert!(audit.closed, "{audit:?}");
        self.askers.ask_all(|| WorkerRequest::Drain);
        for thread in self.threads {
            assert_eq!(thread.join().unwrap().left, Left::default());
        }
    }
}

#[test]
fn left_counts_frames_between_workers() {
    let config = containers(2, 64);
    let (mut workers, rest) = make_workers(&config, &[0, 1], 64, |_, port| Box::new(port));
    assert!((0..3).all(|number| rest.send(0, 1, number)));
    let from = &mut workers[0];
    from.ports[0].readable = true;
    let now = clock::now();
    from.receive_burst(now, 0, &mut Turn::default());
    // Resolves the address.
    _ = from.orders.serve(now, &mut from.host, &mut from.pool);
    let held = Left { resident: 3, pending: 0 };
    assert_eq!(from.left(), held, "before they go over");
    // The other worker is asked twice before its next turn: a handover relies on this.
    assert!(from.send_handoffs());
    let to = &mut workers[1];
    for _ in 0..2 {
        assert_eq!(to.left(), Left { resident: 0, pending: 3 }, "nobody's switch has them");
    }
    assert!(to.receive_handoffs());
    assert_eq!(to.left(), held, "taken");
}

#[test]
fn frames_handed_off_in_order_none_lost() {
    let running = start(&containers(4, 64), &[0, 1, 2, 1], 64);
    let count = 5_000;
    let (mut sent, mut seen) = ([0; 4], [[0; 4]; 4]);
    let until = Instant::now() + PATIENCE * 4;
    while seen.iter().flatten().sum::<u32>() < 4 * count {
        for (from, sent) in sent.iter_mut().enumerate() {
            let to = (from + 1 + *sent as usize % 3) % 4;
            if *sent < count && running.send(from, to, *sent) {
                *sent += 1;
            }
        }
        for (to, seen) in seen.iter_mut().enumerate() {
            while let Some(frame) = running.probes[to].receive() {
                let from = usize::from(frame[11]);
                let (last, number) = (&mut seen[from], number(&frame));
                // Every third frame of a sender is for this receiver.
                let first = (to + 4 - from - 1) % 4;
                assert_eq!(number, *last * 3 + u32::try_from(first).unwrap(), "{from} to {to}");
                *last += 1;
            }
        }
        assert!(Instant::now() < until, "all arrive: {seen:?} of {sent:?}");
    }
    running.no_drops();
    running.end();
}

#[test]
fn sleeping_worker_woken_by_handed_off_frame() {
    let running = start(&containers(2, 64), &[0, 1], 64);
    let mut times = Vec::new();
    for number in 0..200 {
        std::thread::sleep(Duration::from_millis(1));
        let begun = Instant::now();
        assert!(running.send(0, 1, number));
        assert_eq!(super::number(&running.receive(1)), number);
        times.push(begun.elapsed());
    }
    times.sort();
    // Without a wake-up it would sleep for an hour, or until another event.
    at_most("woken by a frame handed off, median of 200", times[100], Duration::from_millis(20));
    running.end();
}

#[test]
fn blocked_receiver_holds_only_its_sender_across_workers() {
    let running = start(&containers(4, 64), &[0, 1, 1, 0], 64);
    // Nobody reads at port 1: its sender is held in the end.
    let held = running.fill(0, 1);
    assert!(held > 64 && held < 3_000, "{held}");
    // Another sender of the same worker continues, to the same other worker.
    for number in 0..500 {
        let until = Instant::now() + PATIENCE;
        while !running.send(3, 2, number) {
            assert!(Instant::now() < until, "it is held by a receiver that is not its own");
            std::thread::yield_now();
        }
        assert_eq!(super::number(&running.receive(2)), number);
    }
    for number in 0..held {
        assert_eq!(super::number(&running.receive(1)), number, "in order, and none lost");
    }
    running.no_drops();
    running.end();
}

#[test]
fn a_broadcast_reaches_the_ports_of_all_workers() {
    let running = start(&containers(4, 64), &[0, 1, 2, 0], 64);
    for number in 0..50 {
        let mut bytes = frame(0, 1, number);
        bytes[..6].copy_from_slice(&[0xff; 6]);
        assert!(running.probes[0].send(&bytes));
        for port in 1..4 {
            assert_eq!(super::number(&running.receive(port)), number);
        }
    }
    running.no_drops();
    running.end();
}

#[test]
fn drain_delivers_frames_handed_off_between_workers() {
    let running = start(&containers(2, 64), &[0, 1], 2_048);
    let mut sent = 0;
    while sent < 1_000 && running.send(0, 1, sent) {
        sent += 1;
    }
    // Frames that were read are delivered; the others stay in the sender's ring.
    std::thread::sleep(Duration::from_millis(2));
    running.askers.ask_all(|| WorkerRequest::Drain);
    let Several { probes, threads, .. } = running;
    for thread in threads {
        assert_eq!(thread.join().unwrap().left, Left::default());
    }
    let mut seen = 0;
    while let Some(frame) = probes[1].receive() {
        assert_eq!(number(&frame), seen);
        seen += 1;
    }
    assert!(seen > 0 && seen <= sent, "{seen} of {sent}");
}

#[test]
fn worker_and_port_queries_cover_every_worker() {
    let running = start(&containers(3, 64), &[0, 1, 2], 64);
    let Body::Worker(times) = running.ask(Question::Worker) else { panic!("times") };
    assert_eq!(times.len(), 3);
    let Body::Ports(ports) = running.ask(Question::Ports) else { panic!("ports") };
    assert_eq!(ports.iter().map(|port| port.id.index()).collect::<Vec<_>>(), [0, 1, 2]);
    running.end();
}

/// Guests at the ports of two workers, as a configuration makes them.
fn guests(owners: &[usize]) -> (Several, Vec<Guest>, Folder) {
    guests_of(owners.iter().map(|owner| format!("worker = {owner}\n")))
}

/// Starts guests like [`guests`]; `ports` has the rest of each port's configuration.
pub(super) fn guests_of(ports: impl Iterator<Item = String>) -> (Several, Vec<Guest>, Folder) {
    let dir = Folder::new();
    let mut text =
        "[host]\nname = \"t\"\nworkers = 2\nisolate_after_ms = 0\n[[vnet]]\nname = \"blue\"\n"
            .to_owned();
    let mut count = 0;
    for (n, more) in ports.enumerate() {
        let socket = dir.join(&n.to_string());
        let (socket, mac) = (socket.display(), mac(n));
        write!(
            text,
            "[[port]]\nname = \"vm{n}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\n\
             mac = \"{mac}\"\nsocket = \"{socket}\"\n{more}"
        )
        .unwrap();
        count += 1;
    }
    let plan = config::plan("host.toml", &text, &KernelDevices).unwrap_or_else(|r| panic!("{r}"));
    let mut idle = Idle::new(&plan).unwrap();
    idle.open(&plan, &Taps::new(&plan, Vec::new())).unwrap();
    let Idle { askers, mut workers, .. } = idle;
    let meters = workers.iter_mut().map(|worker| worker.meter(count)).collect();
    let threads = workers.into_iter().map(run_here).collect();
    let guest =
        |n: usize| Guest::connected(GuestConfig::default(), &dir.join(&n.to_string())).unwrap();
    let guests = (0..count).map(guest).collect();
    (Several { probes: Vec::new(), askers, threads, placed: plan.workers, meters }, guests, dir)
}

impl Several {
    /// Waits until `frames` wait in a port's own memory.
    fn held(&self, port: usize, frames: u64) {
        let until = Instant::now() + PATIENCE;
        loop {
            let Body::Ports(ports) = self.ask(Question::Ports) else { panic!("ports") };
            let held = ports[port].state.held.frames;
            if held == frames {
                return;
            }
            assert!(Instant::now() < until, "{held} frames are held, not {frames}");
        }
    }
}

#[test]
fn leaving_guest_buffers_returned_at_once_across_workers() {
    let (running, mut guests, _dir) = guests(&[0, 1]);
    // Guest 1 takes nothing, so that the last frames of guest 0 wait at worker 1 as remote
    // references.
    let waiting = 10;
    let taken = u32::from(GuestConfig::default().ring_size);
    let sent = taken + waiting;
    for number in 0..sent {
        if number == taken {
            // Earlier frames have left: nothing is over its share, and none of it in the pool.
            running.held(0, 0);
        }
        let until = Instant::now() + PATIENCE;
        while !guests[0].send(&frame(0, 1, number)) {
            assert!(Instant::now() < until, "guest 0 sends");
        }
    }
    running.held(0, waiting.into());
    drop(guests.remove(0));
    running.held(0, 0);
    // The pool of worker 1 took them: they arrive, in order and once.
    for number in 0..sent {
        let until = Instant::now() + PATIENCE;
        let frame = loop {
            if let Some(frame) = guests[0].receive() {
                break frame;
            }
            assert!(Instant::now() < until, "frame {number} of {sent} arrives");
        };
        assert_eq!(super::number(&frame), number);
    }
    running.no_drops();
    running.end();
}

/// A guest goes under full load, again and again, while each guest reads the other's memory through
/// another worker.
#[test]
fn guests_reconnecting_under_load_disturb_no_other_worker() {
    let (running, mut guests, dir) = guests(&[0, 1, 1]);
    let mut number = 0;
    let mut last = None;
    for round in 0..40 {
        let begun = Instant::now();
        let mut came = 0;
        while came == 0 || begun.elapsed() < Duration::from_millis(3 + round % 5) {
            assert!(begun.elapsed() < PATIENCE, "round {round}: nothing comes to guest 0");
            for (from, to) in [(0, 1), (1, 0), (2, 0), (2, 1)] {
                number += u32::from(guests[from].send(&frame(from, to, number)));
            }
            while let Some(frame) = guests[0].receive() {
                came += u32::from(frame[11] != 0);
            }
            while let Some(frame) = guests[1].receive() {
                if frame[11] == 0 {
                    assert!(last < Some(super::number(&frame)), "what guest 0 sent overtakes");
                    last = Some(super::number(&frame));
                }
            }
        }
        // The guest neither drains nor stops: its memory goes away under frames that others hold.
        drop(guests.remove(0));
        guests.insert(0, Guest::connected(GuestConfig::default(), &dir.join("0")).unwrap());
    }
    let Body::Audit(audit) = running.ask(Question::Audit) else { panic!("an audit") };
    assert!(audit.closed, "{audit:?}");
    assert_eq!(guests.iter().find_map(Guest::violation), None);
    guests.clear();
    running.end();
}
