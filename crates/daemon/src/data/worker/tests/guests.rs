//! Ports for virtual machines, with the tests' own guests behind them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_testkit::guest::{Cut, Descriptor, Guest, GuestConfig, Listener, Shape, feature};

use super::*;
use crate::data::snapshot::PortShot;

mod offload;
mod refills;

/// A worker with a port for each guest; address `n` is behind guest `n`.
struct Vms {
    running: Running,
    guests: Vec<Guest>,
    /// Folder of the sockets: guests that listen wait there for the worker's port.
    dir: Folder,
}

/// A folder for sockets, deleted when dropped.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("sluice-vm-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn vms(config: &SwitchConfig, of_guest: impl Fn(usize) -> GuestConfig, role: Role) -> Vms {
    vms_in_order(config, of_guest, role, false)
}

fn vms_in_order(
    config: &SwitchConfig,
    of_guest: impl Fn(usize) -> GuestConfig,
    role: Role,
    in_order: bool,
) -> Vms {
    let dir = Folder::new();
    let count = config.ports.len();
    let path = |n: usize| dir.join(&n.to_string());
    let listeners: Vec<Listener> = match role {
        Role::Server => Vec::new(),
        Role::Client => (0..count).map(|n| Listener::bind(&path(n)).unwrap()).collect(),
    };
    let port = |n| {
        let (queues, offload) = (Vec::new(), true);
        let port = VhostUserConfig { socket: path(n), role, mtu: 1500, in_order, queues, offload };
        let opened = Box::new(VhostUserPort::open(&port).unwrap());
        (PortId::from_index(n), format!("vm{n}"), opened as _)
    };
    let ports: Vec<Opened> = (0..count).map(port).collect();
    let addresses =
        (0..count).map(|n| (VnetId(0), mac(n), Destination::Port(PortId::from_index(n))));
    let host = Host::new(config, addresses, 1, clock::now()).unwrap();
    let running = run(config, host, ports, Vec::new());
    let guest = |n| match listeners.get(n) {
        None => Guest::connected(of_guest(n), &path(n)).unwrap(),
        Some(listener) => {
            let mut guest = Guest::new(of_guest(n)).unwrap();
            guest.attach(listener.accept(PATIENCE).unwrap()).unwrap();
            guest
        }
    };
    Vms { guests: (0..count).map(guest).collect(), running, dir }
}

impl Vms {
    fn receive(&mut self, at: usize) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.guests[at].receive() {
                return frame;
            }
            assert!(Instant::now() < until, "guest {at} gets a frame");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn send(&mut self, from: usize, frame: &[u8]) {
        let until = Instant::now() + PATIENCE;
        while !self.guests[from].send(frame) {
            assert!(Instant::now() < until, "guest {from} sends a frame");
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Sends `count` frames of all sizes and expects each of them, in order and whole.
    fn exchange(&mut self, from: usize, to: usize, count: u32) {
        let (mut sent, mut seen) = (0, 0);
        let sized = |number: u32| {
            let size = 60 + (number as usize * 37) % 1_400;
            let mut frame = frame(from, to, number);
            frame.extend((frame.len()..size).map(|at| u8::try_from(at % 251).unwrap()));
            frame.truncate(size);
            frame
        };
        while seen < count {
            while sent < count && sent < seen + 40 && self.guests[from].send(&sized(sent)) {
                sent += 1;
            }
            // The buffers of frames that came may not be back yet.
            if sent == seen {
                self.send(from, &sized(sent));
                sent += 1;
            }
            assert!(self.receive(to) == sized(seen), "frame {seen} of {count}");
            seen += 1;
        }
        assert_eq!(self.guests.iter().find_map(Guest::violation), None);
    }

    fn port(&self, port: usize) -> PortShot {
        let Body::Ports(ports) = self.running.ask(Question::Ports) else { panic!("ports") };
        ports.into_iter().nth(port).unwrap()
    }

    fn problem(&self, port: usize) -> Option<String> {
        self.port(port).outside.state().device.problem.clone()
    }

    fn drops(&self) -> u64 {
        let Body::Drops(drops) = self.running.ask(Question::Drops) else { panic!("drops") };
        drops.iter().map(|row| row.count.frames).sum()
    }

    /// Checks that every frame is accounted for.
    fn end(mut self) {
        self.guests.clear();
        let Body::Audit(audit) = self.running.ask(Question::Audit) else { panic!("an audit") };
        assert!(audit.closed, "{audit:?}");
        self.running.asker.ask(WorkerRequest::Drain);
    }
}

/// Returns configurations with each feature left out once, and each way to lay out frames.
fn guest_configs() -> Vec<GuestConfig> {
    let base = GuestConfig::default();
    let mut all = vec![base.clone()];
    for without in [feature::MRG_RXBUF, feature::INDIRECT_DESC, feature::EVENT_IDX] {
        all.push(GuestConfig { features: feature::ALL & !without, ..base.clone() });
    }
    let small = GuestConfig { receive_buffer_bytes: 300, ..base.clone() };
    all.push(GuestConfig { required: feature::MRG_RXBUF | feature::VERSION_1, ..small });
    for cut in [Cut::Whole, Cut::HeaderApart, Cut::Pieces] {
        for indirect in [false, true] {
            let shape = Shape { cut, indirect };
            all.push(GuestConfig { sender_shape: shape, receiver_shape: shape, ..base.clone() });
        }
    }
    all.push(GuestConfig { regions: 4, ..base });
    all
}

#[test]
fn guests_of_all_kinds_talk_to_each_other() {
    let configs = guest_configs();
    for (n, config) in configs.iter().enumerate() {
        let other = &configs[(n * 5 + 3) % configs.len()];
        let role = if n % 2 == 0 { Role::Server } else { Role::Client };
        let of = |guest| if guest == 0 { config.clone() } else { other.clone() };
        let mut vms = vms_in_order(&containers(2, 64), of, role, n % 3 == 0);
        vms.exchange(0, 1, 600);
        vms.exchange(1, 0, 600);
        assert_eq!((vms.drops(), vms.problem(0), vms.problem(1)), (0, None, None));
        vms.end();
    }
}

/// A queue beyond its share of the input has the rest of the turn to send the excess.
#[test]
fn frames_forwarded_in_arrival_turn_bypass_pool() {
    const BURST: u32 = 60;
    let mut vms = plain(2);
    for round in 0..20 {
        let sender = &mut vms.guests[0].pair(0).sender;
        while sender.room() < BURST as usize {
            std::thread::yield_now();
        }
        for number in 0..BURST {
            let frame = frame(0, 1, round * BURST + number);
            assert!(sender.stage(frame.len(), |bytes| bytes.write(0, &frame)));
        }
        sender.flush();
        for number in 0..BURST {
            assert_eq!(self::number(&vms.receive(1)), round * BURST + number);
        }
    }
    vms.guests.clear();
    assert_eq!(vms.running.end().pooled, 0, "of a receiver that had room for all");
}

fn plain(count: usize) -> Vms {
    vms(&containers(count, 64), |_| GuestConfig::default(), Role::Server)
}

/// Sends to a receiver that takes nothing until the sender is held. Returns the number of frames
/// sent.
fn fill(vms: &mut Vms, from: usize, to: usize) -> u32 {
    let (mut sent, mut since, mut turns) = (0, Instant::now(), 0);
    while since.elapsed() < Duration::from_millis(100) || turns < TURNS_MIN {
        if vms.guests[from].send(&frame(from, to, sent)) {
            (sent, since, turns) = (sent + 1, Instant::now(), 0);
        } else {
            _ = vms.running.ask(Question::Audit);
            turns += 1;
        }
    }
    sent
}

#[test]
fn blocked_guest_holds_own_sender_without_drops() {
    let mut vms = plain(3);
    let sent = fill(&mut vms, 0, 1);
    // The receiver's ring and the sender's at least.
    assert!(sent >= 512, "{sent}");
    vms.exchange(2, 0, 300);
    vms.exchange(0, 2, 0);
    for number in 0..sent {
        assert_eq!(number_of(&mut vms, 1), number, "in order, once, and none lost");
    }
    vms.exchange(0, 1, 300);
    assert_eq!(vms.drops(), 0);
    vms.end();
}

#[test]
fn in_order_completions_wait_behind_held_frame() {
    let config = containers(3, 64);
    let mut vms = vms_in_order(&config, |_| GuestConfig::default(), Role::Server, true);
    // The receiver's ring, and some frames that find no room.
    let (sent, held) = (256 + 5, 5);
    for number in 0..sent {
        vms.send(0, &frame(0, 1, number));
    }
    let until = Instant::now() + PATIENCE;
    while vms.port(0).state.held.frames < held {
        assert!(Instant::now() < until, "the switch holds what has no room");
    }
    vms.exchange(0, 2, 40);
    let outstanding = |vms: &mut Vms| {
        let sender = &mut vms.guests[0].pair(0).sender;
        sender.reap();
        sender.outstanding()
    };
    assert!(outstanding(&mut vms) >= 45, "40 came, and are completed behind those that wait");
    for number in 0..sent {
        assert_eq!(number_of(&mut vms, 1), number);
    }
    while outstanding(&mut vms) > 0 {
        assert!(Instant::now() < until, "all is completed");
    }
    assert_eq!((vms.guests[0].violation(), vms.drops()), (None, 0));
    vms.end();
}

fn number_of(vms: &mut Vms, at: usize) -> u32 {
    number(&vms.receive(at))
}

#[test]
fn stopping_guest_gets_chains_back_frames_delivered() {
    let mut vms = plain(2);
    for _ in 0..20 {
        // The receiver's ring, and the frames that the pool has room for.
        let sent = 256 + 30;
        for number in 0..sent {
            vms.send(0, &frame(0, 1, number));
        }
        let until = Instant::now() + PATIENCE;
        while vms.port(0).state.held.frames < 30 {
            assert!(Instant::now() < until, "the switch holds what has no room");
        }
        let began = Instant::now();
        vms.guests[0].stop().unwrap();
        at_most("a guest has its chains back", began.elapsed(), Duration::from_millis(500));
        // The taken frames are used, and the others still belong to the guest: they come when it
        // starts.
        vms.guests[0].start().unwrap();
        for number in 0..sent {
            assert_eq!(number_of(&mut vms, 1), number);
        }
        assert_eq!(vms.guests[0].violation(), None);
    }
    assert_eq!(vms.drops(), 0);
    vms.end();
}

#[test]
fn stopping_guest_frames_beyond_pool_counted_as_drops() {
    let mut vms = plain(2);
    let sent = fill(&mut vms, 0, 1);
    vms.guests[0].stop().unwrap();
    let lost = vms.drops();
    assert!((1..=64).contains(&lost), "{lost}: no more than an input may hold");
    vms.guests[0].start().unwrap();
    let mut last = None;
    for _ in 0..u64::from(sent) - lost {
        let number = number_of(&mut vms, 1);
        assert!(last < Some(number), "{number} behind {last:?}");
        last = Some(number);
    }
    assert_eq!((last, vms.guests[1].receive()), (Some(sent - 1), None));
    vms.end();
}

#[test]
fn stopped_receiver_loses_and_counts_only_frames_meanwhile() {
    let mut vms = plain(2);
    vms.exchange(0, 1, 100);
    vms.guests[1].stop().unwrap();
    for number in 0..1_000 {
        vms.send(0, &frame(0, 1, number));
    }
    let until = Instant::now() + PATIENCE;
    // Frames are lost as on a cable that is not plugged in.
    while vms.port(1).lost.frames < 1_000 {
        assert!(Instant::now() < until, "{} are counted", vms.port(1).lost.frames);
        std::thread::sleep(Duration::from_millis(1));
    }
    vms.guests[1].start().unwrap();
    vms.exchange(0, 1, 100);
    assert_eq!(vms.port(1).lost.frames, 1_000);
    vms.end();
}

#[test]
fn a_guest_that_is_killed_comes_back() {
    let mut vms = plain(3);
    for round in 0..10 {
        // The port has frames of its own waiting, and frames wait for it.
        fill(&mut vms, 0, 1);
        fill(&mut vms, 2, 0);
        vms.guests[0].hang_up();
        let until = Instant::now() + PATIENCE;
        while vms.problem(0).is_none() {
            assert!(Instant::now() < until, "round {round}: the port notices");
            std::thread::sleep(Duration::from_millis(1));
        }
        while vms.guests[1].receive().is_some() {}
        vms.guests[0].reboot();
        let path = vms.dir.join("0");
        let stream = sluice_testkit::guest::connect(&path, 100).unwrap();
        vms.guests[0].attach(stream).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        while vms.guests.iter_mut().any(|guest| guest.receive().is_some()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        vms.exchange(0, 1, 50);
        vms.exchange(2, 0, 50);
    }
    vms.end();
}

/// A guest's violation of the ring's rules, and the message expected.
type Misdeed = (&'static str, fn(&mut Guest));

/// Offers one descriptor of the transmit queue unchanged.
fn offer(guest: &mut Guest, descriptor: Descriptor) {
    let ring = guest.pair(0).sender.ring();
    ring.put_descriptor(0, descriptor);
    let at = ring.avail_idx();
    ring.put_avail(at, 0);
    ring.put_avail_idx(at.wrapping_add(1));
    ring.kick();
}

fn misdeeds() -> Vec<Misdeed> {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    vec![
        ("available index is 300 ahead", |guest| {
            let ring = guest.pair(0).sender.ring();
            let at = ring.avail_idx();
            ring.put_avail_idx(at.wrapping_add(300));
            ring.kick();
        }),
        ("descriptor 999 is beyond", |guest| {
            let ring = guest.pair(0).sender.ring();
            let at = ring.avail_idx();
            ring.put_avail(at, 999);
            ring.put_avail_idx(at.wrapping_add(1));
            ring.kick();
        }),
        ("descriptor 700 is beyond", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 20, flags: NEXT, next: 700 });
        }),
        ("has no end", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 20, flags: NEXT, next: 0 });
        }),
        ("not shared memory", |guest| {
            offer(guest, Descriptor { addr: 0xdead_beef_0000, len: 60, flags: 0, next: 0 });
        }),
        ("not shared memory", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: u32::MAX, flags: 0, next: 0 });
        }),
        ("not shared memory", |guest| {
            offer(guest, Descriptor { addr: u64::MAX - 5, len: 60, flags: 0, next: 0 });
        }),
        ("wrong direction", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 60, flags: WRITE, next: 0 });
        }),
        ("indirect table", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 17, flags: INDIRECT, next: 0 });
        }),
        ("indirect table", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 0, flags: INDIRECT, next: 0 });
        }),
        ("indirect table", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 32, flags: INDIRECT | NEXT, next: 1 });
        }),
        ("not shared memory", |guest| {
            offer(guest, Descriptor { addr: 1 << 60, len: 32, flags: INDIRECT, next: 0 });
        }),
        ("too short", |guest| {
            let addr = guest.memory().guest_address(0);
            offer(guest, Descriptor { addr, len: 11, flags: 0, next: 0 });
        }),
        ("available twice", |guest| {
            let frame = [&[0; 12], &frame(2, 99, 0)[..]].concat();
            let at = guest.memory().allocate(frame.len(), 64).unwrap();
            guest.memory().bytes(at, frame.len()).write(0, &frame);
            let addr = guest.memory().guest_address(at);
            let ring = guest.pair(0).sender.ring();
            ring.put_descriptor(0, Descriptor { addr, len: 60, flags: 0, next: 0 });
            let at = ring.avail_idx();
            for nth in 0..2_u16 {
                ring.put_avail(at.wrapping_add(nth), 0);
            }
            ring.put_avail_idx(at.wrapping_add(2));
            ring.kick();
        }),
    ]
}

/// Resizes a guest's memory, as its front end may do at any time.
fn resize_memory(guest: &Guest, size: usize) {
    // A process that maps the memory holds its file.
    let file = std::fs::File::from(guest.memory().fd().try_clone_to_owned().unwrap());
    file.set_len(size as u64).unwrap();
}

#[test]
fn guest_memory_gone_reported_other_guests_forward_on() {
    for waiting in [0, 20] {
        let mut vms = plain(3);
        vms.exchange(0, 1, 30);
        // Handles point into the memory when it goes.
        for number in 0..waiting {
            vms.send(2, &frame(2, 0, number));
        }
        let size = vms.guests[2].memory().len();
        resize_memory(&vms.guests[2], 0);
        vms.guests[2].pair(0).sender.ring().kick();
        let until = Instant::now() + PATIENCE;
        while vms.problem(2).is_none_or(|problem| !problem.contains("memory is gone")) {
            assert!(Instant::now() < until, "nobody noticed: {:?}", vms.problem(2));
            std::thread::sleep(Duration::from_millis(1));
        }
        while vms.guests[0].receive().is_some() {}
        vms.exchange(0, 1, 200);
        vms.exchange(1, 0, 200);
        // A front end that comes back with memory is accepted.
        resize_memory(&vms.guests[2], size);
        vms.guests[2].hang_up();
        vms.guests[2].reboot();
        let stream = sluice_testkit::guest::connect(&vms.dir.join("2"), 100).unwrap();
        vms.guests[2].attach(stream).unwrap();
        vms.exchange(2, 1, 50);
        assert_eq!(vms.problem(2), None);
        vms.end();
    }
}

#[test]
fn guest_protocol_violation_reported_other_guests_forward_on() {
    for (said, misdeed) in misdeeds() {
        let mut vms = plain(3);
        vms.exchange(0, 1, 30);
        misdeed(&mut vms.guests[2]);
        let until = Instant::now() + PATIENCE;
        let problem = loop {
            if let Some(problem) = vms.problem(2) {
                break problem;
            }
            assert!(Instant::now() < until, "{said}: nobody noticed");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(problem.contains(said), "{said}: {problem}");
        vms.exchange(0, 1, 200);
        vms.exchange(1, 0, 200);
        // The guest may correct itself.
        vms.guests[2].hang_up();
        vms.guests[2].reboot();
        let stream = sluice_testkit::guest::connect(&vms.dir.join("2"), 100).unwrap();
        vms.guests[2].attach(stream).unwrap();
        vms.exchange(2, 0, 50);
        assert_eq!(vms.problem(2), None);
        vms.end();
    }
}
