//! Writes of a port for a virtual machine are marked in the dirty log, as a migration of the
//! machine demands: memory is compared page by page, before and after.

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluice_base::{Batch, Priority, PriorityMask};
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port, PortRequest, SharedRings as _};
use sluice_switch::{Egress, Sink as _, Taken, Window};
use sluice_testkit::guest::{Cut, Guest, GuestConfig, GuestError, Log, Shape, connect, feature};
use support::attended;

const PAGE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);

/// A port with its pool, and the guest behind it.
struct Rig {
    port: VhostUserPort,
    pool: Pool,
    guest: Guest,
    socket: PathBuf,
    sent: usize,
}

impl Rig {
    fn new(config: GuestConfig) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-log-{}-{number}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let of_port = VhostUserConfig {
            socket: socket.clone(),
            role: Role::Server,
            mtu: 1500,
            in_order: false,
            queues: Vec::new(),
            offload: true,
        };
        let port = VhostUserPort::open(&of_port).unwrap();
        let pool = PoolConfig { slots: 64, slot_size: 2_112, populate: false };
        let pool = Pool::new(pool).unwrap();
        let mut rig = Self { port, pool, guest: Guest::new(config).unwrap(), socket, sent: 0 };
        rig.connect();
        rig
    }

    /// Runs `work` as the front end, while the worker handles the port's events.
    fn ask<T: Send>(&mut self, work: impl FnOnce(&mut Guest) -> T + Send) -> T {
        attended(&mut self.port, || work(&mut self.guest))
    }

    fn connect(&mut self) {
        let socket = self.socket.clone();
        self.ask(|guest| guest.attach(connect(&socket, 500).unwrap()).unwrap());
        assert_eq!(self.port.outside().state().device.up, Some(true));
    }

    /// Begins to log, or continues in a new log.
    fn log(&mut self) -> Arc<Log> {
        self.ask(|guest| guest.log(Log::of(guest.memory()).unwrap()).unwrap())
    }

    /// Delivers a frame without zero bytes to the guest.
    fn deliver(&mut self, size: usize) {
        self.sent += 1;
        let of = |at| u8::try_from((self.sent + at) % 255).unwrap() + 1;
        let frame: Vec<u8> = (0..size).map(of).collect();
        let (strip, first, priority) = (0, 0, Priority::ZERO);
        let egress =
            Egress { header: &frame, buf: None, strip, size: 0, first, priority, tunnel: None };
        assert_eq!(self.port.offer(&egress), Taken::All);
    }

    /// Reads the guest's frames, and gives them back. Returns their number.
    fn take(&mut self) -> usize {
        let mut batch: Batch<FrameBuf> = Batch::with_limit(64);
        let window = Window {
            frames: 64,
            bytes: sluice_base::ByteCount(1 << 20),
            closed: PriorityMask::NONE,
            needs_copy: false,
        };
        self.port.read(window, 64, &mut self.pool, &mut batch).unwrap();
        let count = batch.len();
        self.port.give_back(&mut batch, &mut self.pool);
        count
    }

    /// The guest's pages, each with its address.
    fn pages(&self) -> Vec<(u64, Vec<u8>)> {
        let memory = self.guest.memory();
        let page = |at| (memory.guest_address(at), memory.bytes(at, PAGE).to_vec());
        (0..memory.len()).step_by(PAGE).map(page).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.guest.hang_up();
    }
}

/// Addresses of the pages that differ.
fn changed(before: &[(u64, Vec<u8>)], after: &[(u64, Vec<u8>)]) -> BTreeSet<u64> {
    let both = before.iter().zip(after);
    both.filter(|(before, after)| before != after).map(|(before, _)| before.0).collect()
}

fn marked(log: &Log) -> BTreeSet<u64> {
    log.pages().into_iter().collect()
}

fn configs() -> Vec<GuestConfig> {
    // The used rings are larger than a page.
    let base = GuestConfig { ring_size: 1024, ..GuestConfig::default() };
    let mut all = vec![base.clone()];
    for without in [feature::MRG_RXBUF, feature::EVENT_IDX] {
        all.push(GuestConfig { features: feature::ALL & !without, ..base.clone() });
    }
    all.push(GuestConfig {
        receive_buffer_bytes: 300,
        required: feature::MRG_RXBUF | feature::VERSION_1,
        ..base.clone()
    });
    for indirect in [false, true] {
        let shape = Shape { cut: Cut::Pieces, indirect };
        all.push(GuestConfig { sender_shape: shape, receiver_shape: shape, ..base.clone() });
    }
    all.push(GuestConfig { regions: 4, ..base });
    all
}

/// Exchanges frames both ways; then the changed pages must be the marked ones. `ever` has the pages
/// that changed before: the same bytes may be written there again, such as the entry of a buffer
/// that is full once more.
fn check_round(rig: &mut Rig, log: &Log, round: usize, ever: &mut BTreeSet<u64>) {
    while rig.guest.receive().is_some() {}
    let sent = (0..30).filter(|_| rig.guest.send(&[0xa5; 100])).count();
    let before = rig.pages();
    assert_eq!(rig.take(), sent, "round {round}");
    for nth in 0..40 {
        rig.deliver(60 + (nth * 37) % 1_400);
    }
    rig.port.flush().unwrap();
    let (after, marked) = (rig.pages(), marked(log));
    let changed = changed(&before, &after);
    let missing: Vec<_> = changed.difference(&marked).collect();
    assert!(missing.is_empty(), "round {round}: written, not marked: {missing:#x?}");
    ever.extend(changed);
    let extra: Vec<_> = marked.difference(ever).collect();
    assert!(extra.is_empty(), "round {round}: marked, not written: {extra:#x?}");
    assert!(marked.len() < after.len() / 4, "round {round}: {} of {}", marked.len(), after.len());
}

#[test]
fn dirty_log_marks_exactly_pages_port_wrote() {
    for (number, config) in configs().into_iter().enumerate() {
        println!("guest {number}");
        let mut rig = Rig::new(config);
        // Enough rounds to pass the end of each ring.
        let mut ever = BTreeSet::new();
        for round in 0..30 {
            let log = rig.log();
            check_round(&mut rig, &log, round, &mut ever);
        }
    }
}

/// A migration by a hypervisor: it copies all pages, then again and again the marked ones, while
/// the port writes; and in the end, when the rings have stopped, the last ones.
#[test]
fn dirty_log_live_copy_equals_whole_guest_memory() {
    for round in 0..10 {
        let mut rig = Rig::new(GuestConfig { ring_size: 1024, ..GuestConfig::default() });
        let log = rig.log();
        let memory = Arc::clone(rig.guest.memory());
        let (mut copy, done) = (rig.pages(), AtomicBool::new(false));
        let copy_marked = |copy: &mut Vec<(u64, Vec<u8>)>| {
            for page in log.take() {
                let at = copy.binary_search_by_key(&page, |(at, _)| *at).unwrap();
                copy[at].1 = memory.bytes(at * PAGE, PAGE).to_vec();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    copy_marked(&mut copy);
                }
            });
            for nth in 0..1_000 {
                rig.deliver(60 + (nth * 37) % 1_400);
                if nth % 3 == 0 {
                    rig.port.flush().unwrap();
                }
            }
            rig.ask(|guest| guest.stop().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        copy_marked(&mut copy);
        let differing = changed(&copy, &rig.pages());
        assert!(differing.is_empty(), "round {round}: {differing:#x?} are not what was written");
    }
}

#[test]
fn dirty_log_ignores_writes_before_and_after_logging() {
    let mut rig = Rig::new(GuestConfig::default());
    rig.deliver(1_000);
    rig.port.flush().unwrap();
    let first = rig.log();
    let of_start = marked(&first);
    let second = rig.log();
    rig.deliver(1_000);
    rig.port.flush().unwrap();
    assert_eq!(marked(&first), of_start, "another log has taken its place");
    rig.ask(|guest| guest.end_log().unwrap());
    let of_second = marked(&second);
    rig.deliver(1_000);
    rig.port.flush().unwrap();
    assert_eq!(marked(&second), of_second, "nobody moves it any more");
    assert!(rig.guest.receive().is_some() && rig.guest.violation().is_none());
}

#[test]
fn dirty_log_resumes_after_front_end_reconnect() {
    let mut rig = Rig::new(GuestConfig::default());
    rig.log();
    rig.guest.hang_up();
    let until = Instant::now() + PATIENCE;
    while rig.port.outside().state().device.up == Some(true)
        || rig.port.outside().state().device.problem.is_none()
    {
        assert_eq!(rig.port.handle_events(), PortRequest::Nothing);
        assert!(Instant::now() < until, "the port notices");
        std::thread::yield_now();
    }
    // The front end enables the log before it sends one.
    rig.connect();
    let log = rig.log();
    check_round(&mut rig, &log, 0, &mut BTreeSet::new());
}

#[test]
fn dirty_log_too_small_refused_by_name() {
    let mut rig = Rig::new(GuestConfig::default());
    let result = rig.ask(|guest| guest.log(Log::with_bytes(4096).unwrap()).map(drop));
    assert!(matches!(result, Err(GuestError::Request { .. })), "{result:?}");
    let until = Instant::now() + PATIENCE;
    let problem = loop {
        assert_eq!(rig.port.handle_events(), PortRequest::Nothing);
        if let Some(problem) = rig.port.outside().state().device.problem.clone() {
            break problem;
        }
        assert!(Instant::now() < until, "the port says why");
        std::thread::yield_now();
    };
    assert!(problem.contains("the dirty log ends at guest address 0x8000000"), "{problem}");
}
