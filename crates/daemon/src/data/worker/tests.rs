//! The worker in a thread of its own, with ports in this process; the test plays the other ends.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_api::show::Question;
use sluice_base::{BitRate, Mac, VnetId};
use sluice_host::inspect::Source;
use sluice_host::rig;
use sluice_ports::PoolConfig;
use sluice_ports::memory::{self, MemoryConfig, Probe};
use sluice_switch::{Destination, PuntCause, QueueGroupKind, RateLimit, SpareConfig, SwitchConfig};
use sluice_testkit::bound::at_most;

use super::*;
use crate::data::WorkerHandle;
use crate::data::ports::{AddResult, PendingPort};
use crate::data::snapshot::Body;
use crate::ipc::channel::{Command, Event, Pipe};

mod guests;
mod migration;
mod odd;
mod planned;
mod queues;
mod several;
mod spread;
mod underlay;

const PATIENCE: Duration = Duration::from_secs(10);
/// Answers of a worker that are waited for before nothing more is expected of it: time alone says
/// little on a busy machine.
const TURNS_MIN: u32 = 16;

/// Serializes tests that want all processors.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State of a worker that has ended.
struct Ended {
    left: Left,
    spent: Nanos,
    /// Highest use of the pool, of local ports.
    pooled: u32,
}

struct Running {
    probes: Vec<Probe>,
    asker: WorkerHandle,
    thread: JoinHandle<Ended>,
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

/// Starts a host of containers whose rings hold `ring_frames`; address `n` is behind port `n`.
fn start(config: &SwitchConfig, ring_frames: usize) -> Running {
    start_knowing(config, ring_frames, config.ports.len())
}

/// Starts a host like [`start`], but only the first `known` addresses are configured.
fn start_knowing(config: &SwitchConfig, ring_frames: usize, known: usize) -> Running {
    let addresses =
        (0..known).map(|port| (VnetId(0), mac(port), Destination::Port(PortId::from_index(port))));
    let host = Host::new(config, addresses, 1, clock::now()).unwrap();
    let memory = MemoryConfig { ring_frames, ..MemoryConfig::default() };
    let made = config.ports.iter().map(|_| memory::port(&memory).unwrap());
    let (ports, probes): (Vec<_>, Vec<_>) = made.unzip();
    let ports = ports
        .into_iter()
        .enumerate()
        .map(|(at, port)| (PortId::from_index(at), "memory".to_owned(), Box::new(port) as _));
    let ports = ports.collect();
    run(config, host, ports, probes)
}

/// Runs a worker in its thread.
fn run(
    config: &SwitchConfig,
    host: Host<FrameBuf>,
    ports: Vec<Opened>,
    probes: Vec<Probe>,
) -> Running {
    let places = ports.len() + config.spare.as_ref().map_or(0, |spare| spare.ports.into());
    let slots = u32::try_from(host.switch().capacity() + places * BATCH).unwrap();
    let pool = Pool::new(PoolConfig::for_mtu(slots, 1500)).unwrap().with_large(8).unwrap();
    let pacing = Pacing { pace: Nanos::from_micros(100), spin: Nanos::from_micros(50) };
    run_worker(probes, |poller, receiver| {
        Worker::new(host, ports, pool, poller, receiver, pacing).unwrap()
    })
}

/// Runs the worker that `make` makes.
fn run_worker(
    probes: Vec<Probe>,
    make: impl FnOnce(Poller, Receiver<WorkerRequest>) -> Worker,
) -> Running {
    let poller = Poller::new().unwrap();
    let (asks, receiver): (_, Receiver<WorkerRequest>) = sync_channel(4);
    let asker = WorkerHandle { asks, waker: poller.waker() };
    let mut worker = make(poller, receiver);
    let thread = std::thread::spawn(move || {
        let left = worker.run().unwrap();
        worker.close();
        let [local, _] = worker.host.switch().pool_marks();
        Ended { left, spent: cpu_time(), pooled: local.frames_max }
    });
    Running { probes, asker, thread }
}

/// Returns the processor time of this thread.
fn cpu_time() -> Nanos {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanos = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    Nanos(u64::try_from(nanos).unwrap())
}

/// Returns the next frame at a port.
fn receive(probes: &[Probe], port: usize) -> Vec<u8> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(frame) = probes[port].receive() {
            return frame;
        }
        assert!(Instant::now() < until, "port {port} gets a frame");
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Running {
    fn ask(&self, question: Question) -> Body {
        let (reply, answer) = sync_channel(1);
        self.asker.ask(WorkerRequest::Show(question, reply));
        answer.recv_timeout(PATIENCE).expect("the worker answers").body
    }

    /// Returns the number of frames that are held in the switch.
    fn held(&self) -> u64 {
        let Body::Queues(queues) = self.ask(Question::Queues) else { panic!("queues") };
        queues.iter().map(|queue| queue.held.frames).sum()
    }

    fn receive(&self, port: usize) -> Vec<u8> {
        receive(&self.probes, port)
    }

    fn drain(self) -> (Left, Nanos) {
        let ended = self.end();
        (ended.left, ended.spent)
    }

    fn end(self) -> Ended {
        self.asker.ask(WorkerRequest::Drain);
        self.thread.join().unwrap()
    }
}

fn containers(count: usize, frames: u32) -> SwitchConfig {
    rig::host(vec![rig::container(frames); count], &[])
}

/// Control, as the worker sees it.
struct Control(Pipe);

impl Control {
    fn attach(running: &Running) -> Self {
        let (near, far) = UnixStream::pair().unwrap();
        running.asker.ask(WorkerRequest::Attach(far));
        Self(Pipe::new(near).unwrap())
    }

    /// Waits for an event for which `wanted` returns a value.
    fn event<T>(&mut self, mut wanted: impl FnMut(&Event<'_>) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            self.0.fill().unwrap();
            let mut found = None;
            self.0
                .take(|bytes| {
                    let Some((event, size)) = Event::read(bytes)? else { return Ok(None) };
                    found = found.take().or_else(|| wanted(&event));
                    Ok(Some(size))
                })
                .unwrap();
            if let Some(found) = found {
                return found;
            }
            assert!(Instant::now() < until, "the event arrives");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn command(&mut self, command: &Command<'_>) {
        command.write(self.0.out());
        self.0.flush().unwrap();
    }
}

#[test]
fn port_without_carrier_takes_nothing() {
    let running = start(&containers(2, 64), 64);
    let carrier = |is| running.asker.ask(WorkerRequest::Device(Device::Carrier(PortId(1), is)));
    carrier(false);
    // The answer shows that the worker has handled the event.
    running.ask(Question::Ports);
    for number in 0..20 {
        assert!(running.probes[0].send(&frame(0, 1, number)));
    }
    // The other direction continues.
    assert!(running.probes[1].send(&frame(1, 0, 7)));
    assert_eq!(number(&running.receive(0)), 7);
    assert!(running.probes[1].receive().is_none(), "it is held");
    carrier(true);
    for wanted in 0..20 {
        assert_eq!(number(&running.receive(1)), wanted);
    }
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn worker_reports_fdb_miss_and_executes_control_commands() {
    let vnet = VnetId(0);
    let running = start_knowing(&containers(3, 64), 256, 1);
    let mut control = Control::attach(&running);
    assert!(running.probes[0].send(&frame(0, 1, 7)));
    let (from, head) = control.event(|event| match event {
        Event::Punt { cause: PuntCause::Miss, from, head, .. } => Some((*from, head.to_vec())),
        _ => None,
    });
    assert_eq!((from, &head[..]), (Destination::Port(PortId(0)), &frame(0, 1, 7)[..]));
    control.command(&Command::Switch(sluice_switch::Command::Install {
        vnet,
        mac: mac(1),
        to: Destination::Port(PortId(1)),
    }));
    assert_eq!(number(&running.receive(1)), 7, "the frame that waited");
    control.command(&Command::Send {
        vnet,
        to: Destination::Port(PortId(2)),
        frame: &frame(0, 2, 8),
    });
    assert_eq!(number(&running.receive(2)), 8, "a frame of control's own");
    let used = |event: &Event<'_>| matches!(event, Event::Used { mac: at, .. } if *at == mac(1));
    assert!(running.probes[0].send(&frame(0, 1, 9)));
    assert_eq!(number(&running.receive(1)), 9);
    control.event(|event| used(event).then_some(()));

    // The next connection receives the current table, and frames do not wait for it.
    drop(control);
    for count in 10..60 {
        assert!(running.probes[0].send(&frame(0, 1, count)));
        assert_eq!(number(&running.receive(1)), count);
    }
    let found = Control::attach(&running).event(|event| match event {
        Event::Found { mac, to, .. } => Some((*mac, *to)),
        _ => None,
    });
    assert_eq!(found, (mac(1), Destination::Port(PortId(1))));
    assert_eq!(running.drain().0, Left::default());
}

/// Makes a port to add, and the probe at its other end.
fn coming(config: &SwitchConfig, ring_frames: usize) -> (Box<PendingPort>, Probe) {
    let memory = MemoryConfig { ring_frames, ..MemoryConfig::default() };
    let (port, probe) = memory::port(&memory).unwrap();
    let name = "comes".to_owned();
    let config = config.ports[0].clone();
    (Box::new(PendingPort { name, port: Box::new(port), config, bound: None }), probe)
}

impl Running {
    fn add(&self, coming: Box<PendingPort>) -> AddResult {
        let (reply, answer) = sync_channel(1);
        self.asker.ask(WorkerRequest::Add(coming, reply));
        answer.recv_timeout(PATIENCE).expect("the worker answers")
    }

    /// Adds a port, and waits for a place while frames of the last one hold it.
    fn come(&mut self, config: &SwitchConfig) -> (PortId, usize) {
        let until = Instant::now() + PATIENCE;
        let (mut port, probe) = coming(config, 256);
        loop {
            match self.add(port) {
                Ok(id) => {
                    self.probes.push(probe);
                    return (id, self.probes.len() - 1);
                }
                Err((Some(back), _)) => port = back,
                Err((None, error)) => panic!("{error}"),
            }
            assert!(Instant::now() < until, "the place of a port that went is free again");
        }
    }

    fn delete(&self, id: PortId) -> u64 {
        let (reply, answer) = sync_channel(1);
        self.asker.ask(WorkerRequest::Del(id, reply));
        answer.recv_timeout(PATIENCE).expect("the worker answers")
    }
}

#[test]
fn port_add_and_delete_keeps_other_ports_forwarding() {
    let vnet = VnetId(0);
    let mut config = containers(2, 64);
    config.spare = Some(SpareConfig { ports: 3, like: config.ports[0].clone() });
    let mut running = start_knowing(&config, 256, 2);
    let mut control = Control::attach(&running);
    let (first, second, third) =
        (running.come(&config), running.come(&config), running.come(&config));
    let (no_place, _) = coming(&config, 256);
    assert!(matches!(running.add(no_place), Err((None, error)) if error.contains("spare_ports")));
    for (at, (id, probe)) in [first, second, third].into_iter().enumerate() {
        assert_eq!(id, PortId::from_index(2 + at));
        control.command(&Command::Switch(sluice_switch::Command::Install {
            vnet,
            mac: mac(probe),
            to: Destination::Port(id),
        }));
    }
    let mut count = 0;
    let mut pass = |running: &Running, from: usize, to: usize| {
        count += 1;
        let until = Instant::now() + PATIENCE;
        while !running.probes[from].send(&frame(from, to, count)) {
            assert!(Instant::now() < until, "what was for the port that went makes room");
            std::thread::sleep(Duration::from_micros(50));
        }
        assert_eq!(number(&running.receive(to)), count, "from {from} to {to}");
    };
    for probe in [first.1, second.1, third.1] {
        pass(&running, 0, probe);
        pass(&running, probe, 1);
    }
    // The port in the middle goes: the port that takes its position in the list still gets its
    // events.
    running.delete(second.0);
    for probe in [first.1, third.1] {
        std::thread::sleep(Duration::from_millis(5));
        pass(&running, probe, 1);
        pass(&running, 0, probe);
    }
    let mut held_at_the_end = 0;
    // Its place is reused again and again, whatever frames the last port left there.
    for _ in 0..20 {
        let (id, probe) = running.come(&config);
        control.command(&Command::Switch(sluice_switch::Command::Install {
            vnet,
            mac: mac(probe),
            to: Destination::Port(id),
        }));
        pass(&running, 1, probe);
        for number in 0..300 {
            _ = running.probes[0].send(&frame(0, probe, number));
        }
        pass(&running, probe, 1);
        // Frames from the port wait for a full ring when it goes: nobody takes the next one any
        // more.
        let mut refused_since = Instant::now();
        while refused_since.elapsed() < Duration::from_millis(20) {
            if running.probes[probe].send(&frame(probe, 0, 0)) {
                refused_since = Instant::now();
            }
        }
        held_at_the_end += running.delete(id);
        while running.probes[0].receive().is_some() {}
    }
    assert!(held_at_the_end > 0, "none of them had to wait");
    pass(&running, 0, 1);
    let Body::Audit(audit) = running.ask(Question::Audit) else { panic!("an audit") };
    assert!(audit.closed);
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn control_may_send_for_ever() {
    let vnet = VnetId(0);
    let config = containers(2, 64);
    let running = start_knowing(&config, 256, 1);
    let mut control = Control::attach(&running);
    for count in 0..5_000 {
        control.command(&Command::Send {
            vnet,
            to: Destination::Port(PortId(1)),
            frame: &frame(0, 1, count),
        });
        assert_eq!(number(&running.receive(1)), count);
    }
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn control_that_does_not_read_holds_up_nothing() {
    let running = start_knowing(&containers(2, 64), 256, 2);
    let _control = Control::attach(&running);
    for count in 0..3_000 {
        // Each asks for an unknown address, and then sends to a known one.
        _ = running.probes[0].send(&frame(0, 100 + count as usize, count));
        assert!(running.probes[1].send(&frame(1, 0, count)));
        assert_eq!(number(&running.receive(0)), count);
    }
    let Body::Audit(audit) = running.ask(Question::Audit) else { panic!("an audit") };
    assert!(audit.closed);
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
fn blocked_receiver_holds_own_sender_without_drops() {
    let running = start(&containers(3, 8), 16);
    let (mut sent, until) = (0, Instant::now() + Duration::from_millis(200));
    while Instant::now() < until {
        sent += u32::from(running.probes[0].send(&frame(0, 1, sent)));
    }
    // The receiver's ring, the input's limit and its share of the pool, the sender's ring.
    assert!((16 + 8 + 16..150).contains(&sent), "{sent} were taken");
    let Body::Queues(queues) = running.ask(Question::Queues) else { panic!("queues") };
    let (from, to) = (Source::Port(PortId(0)), QueueGroupKind::Port(PortId(1)));
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
fn worker_with_held_frames_sleeps_between_retries() {
    let running = start(&containers(2, 8), 16);
    // A ring that is full may only mean that the worker has not had the processor.
    while running.held() < 8 {
        _ = running.probes[0].send(&frame(0, 1, 0));
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_millis(500));
    let (left, spent) = running.drain();
    assert!(left.resident >= 8, "the receiver never woke up: {left:?}");
    // The worker sleeps half a second and drains for up to one, with a turn each 100 us; a worker
    // that spins takes all of it.
    assert!(spent < Nanos::from_millis(400), "{spent}");
}

#[test]
fn rate_limited_port_paced_by_worker_timer_alone() {
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
    // 200 frames of 100 bytes at 8 Mbit/s take 20 ms, of which 0.5 may be caught up.
    let took = begin.elapsed();
    assert!(took > Duration::from_millis(18), "{took:?}");
    at_most("200 frames at 8 Mbit/s", took, Duration::from_millis(500));
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
    at_most("a broadcast to three", begin.elapsed(), Duration::from_secs(1));
    assert!(running.probes[0].receive().is_none());
    assert_eq!(running.drain().0, Left::default());
}

#[test]
fn drain_delivers_held_frames_and_stops_reading() {
    let running = start(&containers(2, 64), 16);
    for count in 0..40 {
        while !running.probes[0].send(&frame(0, 1, count)) {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    running.asker.ask(WorkerRequest::Drain);
    // After this answer the worker drains.
    running.ask(Question::Queues);
    assert!(running.probes[0].send(&frame(0, 1, 99)));
    let mut numbers = Vec::new();
    while numbers.len() < 40 {
        numbers.push(number(&running.receive(1)));
    }
    let Ended { left, .. } = running.thread.join().unwrap();
    assert_eq!(left, Left::default());
    assert!(numbers.into_iter().eq(0..40));
    assert!(running.probes[1].receive().is_none(), "the last one was not read");
}
