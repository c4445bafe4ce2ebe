//! Ports that migrate between workers while frames come and go.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;

use sluice_api::placement::{PolicyVersion, Stamped};
use sluice_placement::Mode;
use sluice_testkit::guest::{Guest, GuestConfig};

use super::several::{Ended, Several, guests_of, start};
use super::*;
use crate::data::cpus::Cpus;
use crate::data::policy::PolicyWatch;
use crate::data::rebalancer::ports::{self, Mover, Shown};
use crate::data::worker::{MigrationStep, WorkerRequest};

mod given_up;

const PORTS: usize = 4;

/// Returns the duration of the test: three seconds, or the value of the environment.
fn duration() -> Duration {
    let said = std::env::var("SLUICE_MOVE_SECONDS").ok();
    Duration::from_secs(said.and_then(|text| text.parse().ok()).unwrap_or(3))
}

/// Outcomes of migrations.
#[derive(Debug, Default)]
struct Moves {
    done: usize,
    given_up: usize,
    micros: Vec<u128>,
}

/// Moves ports to and fro between two workers until `stop` is set.
fn move_about(mover: &Mover, mut owners: Vec<usize>, stop: &AtomicBool) -> Moves {
    let mut moves = Moves::default();
    for port in (0..owners.len()).cycle() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let (from, begun) = (owners[port], Instant::now());
        let Ok(went) = mover.go(PortId::from_index(port), from, 1 - from) else { break };
        if went {
            owners[port] = 1 - from;
            moves.done += 1;
            moves.micros.push(begun.elapsed().as_micros());
        } else {
            moves.given_up += 1;
        }
    }
    moves.micros.sort_unstable();
    if let [least, .., most] = moves.micros[..] {
        let median = moves.micros[moves.micros.len() / 2];
        let Moves { done, given_up, .. } = moves;
        eprintln!(
            "{done} moves in {least} / {median} / {most} us each, {given_up} given up meanwhile"
        );
    }
    moves
}

/// Frames sent and received, by pair.
#[derive(Default)]
struct Pairs {
    sent: [[u32; PORTS]; PORTS],
    got: [[u32; PORTS]; PORTS],
}

impl Pairs {
    fn all() -> impl Iterator<Item = (usize, usize)> {
        let from = |from| (0..PORTS).filter(move |to| *to != from).map(move |to| (from, to));
        (0..PORTS).flat_map(from)
    }

    fn send(&mut self, from: usize, to: usize, send: impl FnOnce(&[u8]) -> bool) {
        let number = self.sent[from][to];
        self.sent[from][to] += u32::from(send(&frame(from, to, number)));
    }

    /// Takes the next frame of a pair. Panics if frames were lost or reordered.
    fn take(&mut self, to: usize, frame: &[u8]) {
        let from = usize::from(frame[11]);
        assert_eq!(number(frame), self.got[from][to], "{from} to {to}: one is late, or lost");
        self.got[from][to] += 1;
    }

    /// Sends in all directions until `is_over`, and then receives the rest. `send` and `receive`
    /// act on the port's other end.
    fn pass(
        &mut self,
        mut is_over: impl FnMut() -> bool,
        mut send: impl FnMut(usize, &[u8]) -> bool,
        mut receive: impl FnMut(usize) -> Option<Vec<u8>>,
    ) {
        let mut over_since = None;
        while over_since.is_none() || self.sent != self.got {
            if is_over() {
                let since = *over_since.get_or_insert_with(Instant::now);
                assert!(since.elapsed() < PATIENCE, "{:?} of {:?} arrive", self.got, self.sent);
            } else {
                Self::all().for_each(|(from, to)| self.send(from, to, |frame| send(from, frame)));
            }
            for to in 0..PORTS {
                while let Some(frame) = receive(to) {
                    self.take(to, &frame);
                }
            }
        }
        let sum: u32 = self.sent.iter().flatten().sum();
        eprintln!("{sum} frames, none lost and none late");
    }

    /// Checks that each port's counters show the frames sent and received there.
    fn are_shown(&self, running: &Several) {
        let Body::Ports(ports) = running.ask(Question::Ports) else { panic!("ports") };
        assert_eq!(ports.len(), PORTS, "each is shown once");
        for (at, port) in ports.iter().enumerate() {
            let sent: u32 = self.sent[at].iter().sum();
            let got: u32 = self.got.iter().map(|row| row[at]).sum();
            let counts = (port.state.received.frames, port.state.sent.frames);
            assert_eq!(counts, (sent.into(), got.into()), "frames of port {at}");
        }
    }
}

/// Sets the stop flag when dropped, even on a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn ports_moving_under_load_keep_frames_and_order() {
    let _alone = alone();
    let running = start(&containers(PORTS, 64), &[0, 1, 0, 1], 64);
    let mover = Mover::new(running.askers.clone(), PATIENCE);
    let (stop, mut pairs) = (AtomicBool::new(false), Pairs::default());
    let until = Instant::now() + duration();
    let moves = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let moving = scope.spawn(|| move_about(&mover, vec![0, 1, 0, 1], &stop));
        let probes = &running.probes;
        pairs.pass(
            || Instant::now() > until,
            |from, frame| probes[from].send(frame),
            |to| probes[to].receive(),
        );
        stop.store(true, Ordering::Release);
        moving.join().unwrap()
    });
    assert!(moves.done > 20, "{moves:?}");
    running.no_drops();
    pairs.are_shown(&running);
    running.end();
}

/// The window in which a frame could be handed off to a port that is quiesced is held open: nobody
/// has to hit it by chance.
#[test]
fn frames_wait_while_port_is_quiesced() {
    let running = start(&containers(2, 64), &[0, 1], 64);
    let step = |worker: usize, step: &dyn Fn(SyncSender<()>) -> MigrationStep| {
        let answer = running.askers.0[worker].request(|reply| WorkerRequest::Migrate(step(reply)));
        answer.recv().unwrap();
    };
    let both =
        |made: &dyn Fn(SyncSender<()>) -> MigrationStep| (0..2).for_each(|at| step(at, made));
    both(&|reply| MigrationStep::Quiesce(PortId(1), reply));
    assert!(running.send(0, 1, 7));
    // A question is answered between two turns.
    let mut turns_since_read = 0;
    while turns_since_read < 20 {
        let Body::Ports(ports) = running.ask(Question::Ports) else { panic!("ports") };
        turns_since_read += u32::from(ports[0].state.received.frames == 1);
    }
    assert_eq!(running.probes[1].receive(), None, "handed off to a port that may be moving");
    both(&|reply| MigrationStep::Resume(PortId(1), 1, reply));
    assert_eq!(number(&running.receive(1)), 7);
    running.no_drops();
    running.end();
}

#[test]
fn guest_ports_moving_under_load_keep_frame_order() {
    let _alone = alone();
    let (running, guests, _dir) = guests_of((0..PORTS).map(|_| String::new()));
    let guests = std::cell::RefCell::new(guests);
    let mover = Mover::new(running.askers.clone(), PATIENCE);
    let (stop, mut pairs) = (AtomicBool::new(false), Pairs::default());
    let until = Instant::now() + duration();
    let moves = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let moving = scope.spawn(|| move_about(&mover, vec![0, 1, 0, 1], &stop));
        pairs.pass(
            || Instant::now() > until,
            |from, frame| guests.borrow_mut()[from].send(frame),
            |to| guests.borrow_mut()[to].receive(),
        );
        stop.store(true, Ordering::Release);
        moving.join().unwrap()
    });
    assert!(moves.done > 20, "{moves:?}");
    assert_eq!(guests.borrow().iter().find_map(Guest::violation), None);
    running.no_drops();
    pairs.are_shown(&running);
    drop(guests);
    running.end();
}

#[test]
fn port_move_with_blocked_frames_abandoned_without_loss() {
    let running = start(&containers(3, 64), &[0, 1, 1], 64);
    let mover = Mover::new(running.askers.clone(), Duration::from_millis(20));
    // Nobody reads at port 1.
    let sent = running.fill(0, 1);
    for (port, from) in [(0, 0), (1, 1)] {
        let begun = Instant::now();
        assert!(!mover.go(PortId(port), from, 1 - from).unwrap(), "port {port} cannot leave");
        assert!(begun.elapsed() < PATIENCE, "it is given up in time");
    }
    // Everything continues as before: other frames pass, and all waiting frames arrive.
    assert!(running.send(2, 0, 7));
    assert_eq!(number(&running.receive(0)), 7);
    for number in 0..sent {
        assert_eq!(super::number(&running.receive(1)), number, "in order, and none lost");
    }
    // With no frames under way the port goes, and serves as before.
    let patient = Mover::new(running.askers.clone(), PATIENCE);
    assert!(patient.go(PortId(1), 1, 0).unwrap());
    for number in 0..100 {
        for (from, to) in [(0, 1), (1, 2), (2, 1)] {
            assert!(running.send(from, to, number));
            assert_eq!(super::number(&running.receive(to)), number, "{from} to {to}");
        }
    }
    running.no_drops();
    running.end();
}

#[test]
fn guests_reconnecting_during_port_moves_disturb_no_bystander() {
    let _alone = alone();
    let (running, mut guests, dir) = guests_of((0..3).map(|_| String::new()));
    let mover = Mover::new(running.askers.clone(), Duration::from_millis(50));
    let stop = AtomicBool::new(false);
    let moves = std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        let moving = scope.spawn(|| move_about(&mover, vec![0, 1, 0], &stop));
        let (mut count, mut last) = (0, None);
        // Guests 1 and 2 are not touched: all frames between them arrive.
        let mut bystanders = Pairs::default();
        for round in 0..40 {
            let begun = Instant::now();
            let mut came = 0;
            while came == 0 || begun.elapsed() < Duration::from_millis(3 + round % 5) {
                assert!(begun.elapsed() < PATIENCE, "round {round}: nothing comes to guest 0");
                for (from, to) in [(0, 1), (1, 0), (2, 0)] {
                    count += u32::from(guests[from].send(&frame(from, to, count)));
                }
                bystanders.send(2, 1, |frame| guests[2].send(frame));
                while let Some(frame) = guests[0].receive() {
                    came += u32::from(frame[11] != 0);
                }
                // Guest 1 pauses now and then, so that frames wait at the worker to which they were
                // handed off.
                let looks = round % 2 == 0 || begun.elapsed() > Duration::from_millis(2);
                while let Some(frame) = looks.then(|| guests[1].receive()).flatten() {
                    if frame[11] == 0 {
                        assert!(last < Some(number(&frame)), "what guest 0 sent overtakes");
                        last = Some(number(&frame));
                    } else {
                        bystanders.take(1, &frame);
                    }
                }
            }
            drop(guests.remove(0));
            guests.insert(0, Guest::connected(GuestConfig::default(), &dir.join("0")).unwrap());
        }
        let until = Instant::now() + PATIENCE;
        while bystanders.got != bystanders.sent {
            assert!(Instant::now() < until, "{:?} of {:?}", bystanders.got, bystanders.sent);
            while let Some(frame) = guests[1].receive() {
                if frame[11] != 0 {
                    bystanders.take(1, &frame);
                }
            }
        }
        stop.store(true, Ordering::Release);
        moving.join().unwrap()
    });
    assert!(moves.done > 0, "{moves:?}");
    let Body::Audit(audit) = running.ask(Question::Audit) else { panic!("an audit") };
    assert!(audit.closed, "{audit:?}");
    assert_eq!(guests.iter().find_map(Guest::violation), None);
    guests.clear();
    running.end();
}

#[test]
fn stopping_while_ports_move_delivers_what_was_read() {
    let _alone = alone();
    for round in 0..10 {
        let running = start(&containers(PORTS, 64), &[0, 1, 0, 1], 2_048);
        let mover = Mover::new(running.askers.clone(), PATIENCE);
        let stop = AtomicBool::new(false);
        let (askers, probes, threads) = (running.askers, running.probes, running.threads);
        let mut sent = [0; PORTS];
        let ended = std::thread::scope(|scope| {
            let _stop = Stop(&stop);
            let moving = scope.spawn(|| move_about(&mover, vec![0, 1, 0, 1], &stop));
            let until = Instant::now() + Duration::from_millis(5 + round);
            while Instant::now() < until {
                for (from, sent) in sent.iter_mut().enumerate() {
                    let frame = frame(from, (from + 1) % PORTS, *sent);
                    *sent += u32::from(*sent < 1_500 && probes[from].send(&frame));
                }
            }
            askers.ask_all(|| WorkerRequest::Drain);
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            let ended: Vec<Ended> = ended.collect();
            drop(moving);
            ended
        });
        for worker in &ended {
            assert_eq!((worker.left, worker.dropped), (Left::default(), 0));
        }
        for (to, probe) in probes.iter().enumerate() {
            let from = (to + PORTS - 1) % PORTS;
            let read: u64 = ended.iter().map(|worker| worker.read[from]).sum();
            let mut seen = 0;
            while let Some(frame) = probe.receive() {
                assert_eq!(number(&frame), seen);
                seen += 1;
            }
            assert!(seen <= sent[from]);
            // The counters of a port between two workers are with neither.
            if !ended.iter().any(|worker| worker.has.contains(&PortId::from_index(from))) {
                continue;
            }
            assert_eq!(u64::from(seen), read, "of {from}, all that was read and nothing else");
        }
    }
}

/// Keeps all guests sending and receiving until `is_over`.
fn busy(guests: &mut [Guest], mut is_over: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + PATIENCE * 2;
    let mut pairs = Pairs::default();
    let guests = std::cell::RefCell::new(guests);
    let mut was_over = false;
    pairs.pass(
        || {
            was_over |= is_over();
            was_over || Instant::now() > until
        },
        |from, frame| guests.borrow_mut()[from].send(frame),
        |to| guests.borrow_mut()[to].receive(),
    );
    was_over
}

fn follow(running: &mut Several, mode: Mode, cpus: Cpus) -> (PolicyWatch, Shown) {
    let wanted = PolicyWatch::of("h1", mode);
    let meters = std::mem::take(&mut running.meters);
    let shown = ports::follow(&running.placed, wanted.clone(), cpus, meters, &running.askers);
    (wanted, shown.unwrap())
}

#[test]
fn ports_leave_worker_with_pinned_vcpu() {
    let _alone = alone();
    let said = ["", "", "worker = 0\n", ""].map(str::to_owned).into_iter();
    let (mut running, mut guests, _dir) = guests_of(said);
    let before: Vec<_> = running.placed.owners();
    assert_eq!(before, [Some(1), Some(0), Some(0), Some(1)]);
    let (_, shown) =
        follow(&mut running, Mode::Adaptive, Cpus::new(&[Some(2), Some(3)], Some(&[2])));
    let row = || shown.lock().unwrap().rows.get(&PortId(1)).cloned();
    assert!(busy(&mut guests, || row().is_some()), "port 1 leaves");
    let (worker, why) = row().unwrap();
    assert!(worker == 1 && why.contains("pinned vCPU"), "{worker} {why}");
    assert_eq!(shown.lock().unwrap().rows.len(), 1, "what is told where to be stays");
    running.no_drops();
    guests.clear();
    running.end();
}

#[test]
fn by_number_nothing_moves() {
    let _alone = alone();
    let (mut running, mut guests, _dir) = guests_of((0..PORTS).map(|_| String::new()));
    let (_, shown) = follow(&mut running, Mode::Rss, Cpus::new(&[Some(2), Some(3)], Some(&[2])));
    let until = Instant::now() + Duration::from_millis(500);
    assert!(busy(&mut guests, || Instant::now() > until));
    assert_eq!(shown.lock().unwrap().rows.len(), 0);
    guests.clear();
    running.end();
}

#[test]
fn ports_leave_excluded_worker_and_return_once_allowed() {
    let (mut running, mut guests, _dir) = guests_of((0..PORTS).map(|_| String::new()));
    let cpus = Cpus::new(&[Some(2), Some(3)], Some(&[]));
    let (wanted, shown) = follow(&mut running, Mode::Rss, cpus);
    let here = |version| {
        let place = shown.lock().unwrap().place.clone().unwrap();
        let ports: Vec<u32> = place.cpus.iter().map(|cpu| cpu.buckets).collect();
        (place.stamp.version == version).then_some(ports)
    };
    let at_first = here(0).unwrap();
    assert!(at_first.iter().all(|ports| *ports > 0), "{at_first:?}");
    for (version, text, expected) in
        [(1, "excluded_cpus = [2]", vec![0, at_first[0] + at_first[1]]), (2, "", at_first.clone())]
    {
        let stamp = PolicyVersion { version, ..PolicyVersion::default() };
        wanted.set(Stamped { stamp, policy: toml::from_str(text).unwrap() });
        let is_so = busy(&mut guests, || here(version).as_ref() == Some(&expected));
        assert!(is_so, "{text}: {:?}", here(version));
    }
    running.no_drops();
    guests.clear();
    running.end();
}
