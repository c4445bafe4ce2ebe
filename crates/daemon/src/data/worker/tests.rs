//! The worker in a thread of its own, with ports in this process; the test plays what is behind
//! them.

use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_base::{BitRate, Mac, VnetId};
use sluice_host::inspect::Source;
use sluice_host::rig;
use sluice_ports::PoolConfig;
use sluice_ports::memory::{self, MemoryConfig, Probe};
use sluice_switch::{Destination, LaneKind, RateLimit, SwitchConfig};

use super::*;
use crate::data::Asker;
use crate::data::snapshot::Body;

const PATIENCE: Duration = Duration::from_secs(5);

struct Running {
    probes: Vec<Probe>,
    asker: Asker,
    thread: JoinHandle<(Left, Nanos)>,
}

fn mac(port: usize) -> Mac {
    Mac::from_u64(0x0200_0000_0000 + port as u64)
}

fn frame(from: usize, to: usize, number: u32) -> Vec<u8> {
    let mut frame = [&mac(to).0[..], &mac(from).0, &[0x88, 0xb5], &number.to_be_bytes()].concat();
    frame.resize(100, 0);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// A host of containers whose rings hold `ring_frames`; address `n` is behind port `n`.
fn start(config: &SwitchConfig, ring_frames: usize) -> Running {
    let addresses = (0..config.ports.len())
        .map(|port| (VnetId(0), mac(port), Destination::Port(PortId::from_index(port))));
    let host = Host::new(config, addresses, 1, clock::now()).unwrap();
    let memory = MemoryConfig { ring_frames, ..MemoryConfig::default() };
    let made = config.ports.iter().map(|_| memory::port(&memory).unwrap());
    let (ports, probes): (Vec<_>, Vec<_>) = made.unzip();
    let ports: Vec<(String, Box<dyn Port>)> =
        ports.into_iter().map(|port| ("memory".to_owned(), Box::new(port) as _)).collect();
    let slots = u32::try_from(host.switch().capacity() + ports.len() * BATCH).unwrap();
    let pool = Pool::new(PoolConfig::for_mtu(slots, 1500)).unwrap();
    let poller = Poller::new().unwrap();
    let (asks, receiver): (_, Receiver<Ask>) = sync_channel(4);
    let asker = Asker { asks, waker: poller.waker() };
    let pacing = Pacing { pace: Nanos::from_micros(100), spin: Nanos::ZERO };
    let mut worker = Worker::new(host, ports, 0, pool, poller, receiver, pacing).unwrap();
    let thread = std::thread::spawn(move || {
        let left = worker.run().unwrap();
        worker.close();
        (left, cpu_time())
    });
    Running { probes, asker, thread }
}

/// Processor time of this thread.
fn cpu_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    Nanos(u64::try_from(nanos).unwrap())
}

impl Running {
    fn ask(&self, question: Question) -> Body {
        let (reply, answer) = sync_channel(1);
        self.asker.ask(Ask::Show(question, reply));
        answer.recv_timeout(PATIENCE).expect("the worker answers").body
    }

    fn receive(&self, port: usize) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.probes[port].receive() {
                return frame;
            }
            assert!(Instant::now() < until, "port {port} gets a frame");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn drain(self) -> (Left, Nanos) {
        self.asker.ask(Ask::Drain);
        self.thread.join().unwrap()
    }
}

fn containers(count: usize, frames: u32) -> SwitchConfig {
    rig::host(vec![rig::container(frames); count], &[])
}

#[test]
fn frames_pass_in_order_and_nothing_is_left() {
    let running = start(&containers(2, 64), 256);
    for count in 0..200 {
        assert!(running.probes[0].send(&frame(0, 1, count)));
    }
    for count in 0..200 {
        assert_eq!(number(&running.receive(1)), count);
    }
    let Body::Audit(audit) = running.ask(Question::Audit) else { panic!("an audit") };
    assert!(audit.closed, "{audit:?}");
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn a_receiver_that_sleeps_holds_its_sender_and_nobody_else() {
    let running = start(&containers(3, 8), 16);
    let (mut sent, until) = (0, Instant::now() + Duration::from_millis(200));
    while Instant::now() < until {
        sent += u32::from(running.probes[0].send(&frame(0, 1, sent)));
    }
    // The receiver's ring, what the input may hold and its share of the pool, the sender's ring.
    assert!((16 + 8 + 16..150).contains(&sent), "{sent} were taken");
    let Body::Queues(queues) = running.ask(Question::Queues) else { panic!("queues") };
    let (from, to) = (Source::Port(PortId(0)), LaneKind::Port(PortId(1)));
    assert!(queues.iter().all(|queue| queue.source == from && queue.to == to), "{queues:?}");
    assert!(queues.iter().map(|queue| queue.held.frames).sum::<u64>() >= 8, "{queues:?}");

    assert!(running.probes[2].send(&frame(2, 0, 7)));
    assert_eq!(number(&running.receive(0)), 7, "the others go on");

    for count in 0..sent {
        assert_eq!(number(&running.receive(1)), count, "the receiver wakes up");
    }
    assert!(running.probes[0].send(&frame(0, 1, sent)));
    assert_eq!(number(&running.receive(1)), sent, "the sender goes on");
    let Body::Drops(drops) = running.ask(Question::Drops) else { panic!("drops") };
    assert!(drops.is_empty(), "{drops:?}");
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn a_worker_that_holds_frames_back_does_not_spin() {
    let running = start(&containers(2, 8), 16);
    while running.probes[0].send(&frame(0, 1, 0)) {
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_millis(500));
    let (left, spent) = running.drain();
    assert!(left.resident >= 8, "the receiver never woke up: {left:?}");
    // Half a second asleep and up to one of draining; a worker that spins takes all of it.
    assert!(spent < Nanos::from_millis(150), "{spent}");
}

#[test]
fn a_rate_is_kept_without_anybody_waking_the_worker() {
    let mut config = containers(2, 64);
    let rate = BitRate::from_mbps(8);
    let catch_up = Nanos::from_micros(500);
    config.ports[1].rate = Some(RateLimit { rate, catch_up, overhead: 0 });
    let running = start(&config, 256);
    let begin = Instant::now();
    for count in 0..200 {
        assert!(running.probes[0].send(&frame(0, 1, count)));
    }
    for count in 0..200 {
        assert_eq!(number(&running.receive(1)), count);
    }
    // 200 frames of 100 bytes at 8 Mbit/s are 20 ms, of which 0.5 may be caught up.
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(18), "{took:?}");
    assert!(took < Duration::from_millis(500), "{took:?}");
    running.drain();
}

#[test]
fn a_broadcast_reaches_everybody_at_once() {
    let running = start(&containers(4, 8), 16);
    let mut all = frame(0, 1, 5);
    all[..6].fill(0xff);
    let begin = Instant::now();
    assert!(running.probes[0].send(&all));
    for port in 1..4 {
        assert_eq!(number(&running.receive(port)), 5);
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "no deadline had to pass");
    assert!(running.probes[0].receive().is_none());
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn draining_sends_what_is_held_and_reads_nothing_more() {
    let running = start(&containers(2, 64), 16);
    for count in 0..40 {
        while !running.probes[0].send(&frame(0, 1, count)) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    running.asker.ask(Ask::Drain);
    // After this answer the worker drains.
    running.ask(Question::Queues);
    assert!(running.probes[0].send(&frame(0, 1, 99)));
    let mut numbers = Vec::new();
    while numbers.len() < 40 {
        numbers.push(number(&running.receive(1)));
    }
    let (left, _) = running.thread.join().unwrap();
    assert_eq!(left, Left::default());
    assert!(numbers.into_iter().eq(0..40));
    assert!(running.probes[1].receive().is_none(), "the last one was not read");
}
