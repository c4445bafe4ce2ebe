//! Hand-over of a machine's port from one driver to another, as between two processes: its guest
//! continues without an interruption, with every frame once and in order.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sluice_base::{Batch, ByteCount, Priority, PriorityMask};
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{FrameBuf, Handover as _, Pool, PoolConfig, Port, SharedRings as _};
use sluice_switch::{Egress, Sink as _, Taken, Window};
use sluice_testkit::guest::{Guest, GuestConfig, connect};
use support::attended;

const PATIENCE: Duration = Duration::from_secs(10);

struct Rig {
    port: VhostUserPort,
    config: VhostUserConfig,
    pool: Pool,
    guest: Guest,
    sent: u8,
}

impl Rig {
    fn new(in_order: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluice-handed-{}-{number}", std::process::id());
        let socket: PathBuf = std::env::temp_dir().join(name);
        let config = VhostUserConfig {
            socket: socket.clone(),
            role: Role::Server,
            mtu: 1500,
            in_order,
            queues: Vec::new(),
            offload: true,
        };
        let port = VhostUserPort::open(&config).unwrap();
        let pool = Pool::new(PoolConfig { slots: 64, slot_size: 2_112, populate: false }).unwrap();
        let guest = Guest::new(GuestConfig::default()).unwrap();
        let mut rig = Self { port, config, pool, guest, sent: 0 };
        rig.ask(|guest| guest.attach(connect(&socket, 500).unwrap()).unwrap());
        rig
    }

    /// Runs `work` as the front end, while the worker handles the port's events.
    fn ask<T: Send>(&mut self, work: impl FnOnce(&mut Guest) -> T + Send) -> T {
        attended(&mut self.port, || work(&mut self.guest))
    }

    /// The next frame of the guest.
    fn frame(&mut self) -> [u8; 100] {
        self.sent = self.sent.wrapping_add(1);
        [self.sent; 100]
    }

    fn read(&mut self) -> Batch<FrameBuf> {
        let mut batch = Batch::with_limit(64);
        let bytes = ByteCount(1 << 20);
        let window = Window { frames: 64, bytes, closed: PriorityMask::NONE, needs_copy: false };
        self.port.read(window, 64, &mut self.pool, &mut batch).unwrap();
        batch
    }

    /// Exchanges frames both ways; the guest sent `waiting` before.
    fn exchange(&mut self, waiting: &[u8]) {
        let mut wanted = waiting.to_vec();
        for _ in 0..5 {
            let frame = self.frame();
            assert!(self.guest.send(&frame));
            wanted.push(frame[0]);
        }
        let mut batch = self.read();
        let mut came = Vec::new();
        for buf in batch.drain() {
            // A frame in a guest's memory can be read after a copy.
            let copy = self.port.copy_to_pool(buf, &mut self.pool).unwrap();
            came.push(copy.bytes()[0]);
            self.pool.give_back(copy);
        }
        assert_eq!(came, wanted, "each once, in order");
        for nth in 0..5 {
            let (strip, first, priority) = (0, 0, Priority::ZERO);
            let header = [nth; 80];
            let egress = Egress {
                header: &header,
                buf: None,
                strip,
                size: 0,
                first,
                priority,
                tunnel: None,
            };
            assert_eq!(self.port.offer(&egress), Taken::All);
        }
        self.port.flush().unwrap();
        for nth in 0..5 {
            assert_eq!(self.guest.receive().unwrap(), [nth; 80]);
        }
        assert_eq!(self.guest.receive(), None);
        assert_eq!(self.guest.violation(), None);
    }

    /// Hands over to another driver. The old one is left behind as by a process that ends.
    fn hand_over(&mut self) {
        let handed = loop {
            let handed = self.port.hand_over().unwrap().unwrap();
            if handed.files.contains_key("connection") {
                break handed;
            }
            // The last request of its front end is still in progress.
            self.port.take_back();
        };
        let next = VhostUserPort::adopt(&self.config, Some(handed)).unwrap();
        std::mem::forget(std::mem::replace(&mut self.port, next));
        let (port, until) = (&mut self.port, Instant::now() + PATIENCE);
        while port.outside().state().device.up != Some(true) {
            assert!(
                Instant::now() < until,
                "the rings run: {:?}",
                port.outside().state().device.problem
            );
            port.handle_events();
            std::thread::yield_now();
        }
    }
}

#[test]
fn handover_keeps_guest_session_and_waiting_frames() {
    for in_order in [false, true] {
        let mut rig = Rig::new(in_order);
        rig.exchange(&[]);
        for round in 0..40 {
            // The guest sends while nobody reads.
            let waiting: Vec<u8> = (0..3).map(|_| rig.frame()[0]).collect();
            waiting.iter().take(2).for_each(|byte| assert!(rig.guest.send(&[*byte; 100])));
            rig.hand_over();
            assert!(rig.guest.send(&[waiting[2]; 100]));
            rig.exchange(&waiting);
            assert!(rig.guest.is_connected(), "round {round}");
        }
        // The session continues, with the negotiated features.
        for ring in [0, 1] {
            rig.ask(|guest| guest.stop_ring(ring).unwrap());
            rig.ask(|guest| guest.start_ring(ring).unwrap());
            rig.ask(|guest| guest.enable(ring, true).unwrap());
        }
        rig.exchange(&[]);
        rig.guest.hang_up();
    }
}

#[test]
fn a_port_that_nobody_took_over_goes_on() {
    let mut rig = Rig::new(false);
    rig.exchange(&[]);
    drop(rig.port.hand_over().unwrap());
    // No request is taken meanwhile, and none is lost.
    let (port, guest) = (&mut rig.port, &mut rig.guest);
    std::thread::scope(|scope| {
        let there = scope.spawn(|| guest.stop_ring(1).unwrap());
        std::thread::sleep(Duration::from_millis(50));
        assert!(!there.is_finished());
        port.take_back();
        while !there.is_finished() {
            port.handle_events();
            std::thread::yield_now();
        }
    });
    rig.ask(|guest| guest.start_ring(1).unwrap());
    rig.exchange(&[]);
    rig.guest.hang_up();
}

#[test]
fn handover_with_guest_frames_outstanding_forces_reconnect() {
    let mut rig = Rig::new(false);
    assert!(rig.guest.send(&[7; 100]));
    let mut batch = rig.read();
    let handed = rig.port.hand_over().unwrap().unwrap();
    let names: Vec<_> = handed.files.keys().map(String::as_str).collect();
    assert_eq!(names, ["listener"], "its chain is not given back yet");
    rig.port.give_back(&mut batch, &mut rig.pool);
    rig.exchange(&[]);
    rig.guest.hang_up();
}
