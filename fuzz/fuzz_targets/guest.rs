//! Fuzzes a port with a hostile guest that writes into its rings, between reads and writes of the
//! switch's side.
//!
//! Nothing may panic or touch memory that is not shared. A head that the switch has read stays the
//! same while its handle is out. After the guest has gone every handle has come back.
#![no_main]

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use sluice_base::{Batch, Buf, ByteCount, Priority, PriorityMask};
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port, PortRequest, SharedRings as _};
use sluice_switch::{Egress, Sink, Window};
use sluice_testkit::guest::{Descriptor, Guest, GuestConfig, Ring, connect, feature};

const RING_SIZE: u16 = 16;
const STEPS_MAX: usize = 400;
const PATIENCE: Duration = Duration::from_secs(20);

/// The remaining bytes of an input; zeros once there are none.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Returns a number that is mostly small, sometimes near the end of its range.
    fn u32(&mut self) -> u32 {
        match self.byte() % 8 {
            0 => u32::MAX - u32::from(self.byte()),
            1 => u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()]),
            2 => u32::from(self.byte() % 4) * 16,
            _ => u32::from(self.u16() % 2_000),
        }
    }
}

/// A port with its pool, and the guest behind it.
struct Rig {
    port: VhostUserPort,
    pool: Pool,
    guest: Guest,
    /// True if the guest may leave checksums and segmentation to the switch.
    leaves: bool,
    socket: PathBuf,
}

/// A handle that is out, with its head as the switch saw it.
struct Out {
    buf: FrameBuf,
    head: Vec<u8>,
}

impl Rig {
    fn new() -> Self {
        let socket = std::env::temp_dir().join(format!("sluice-fuzz-{}", std::process::id()));
        let config = VhostUserConfig {
            socket: socket.clone(),
            role: Role::Server,
            mtu: 1500,
            in_order: false,
            queues: Vec::new(),
            offload: true,
        };
        let port = VhostUserPort::open(&config).unwrap();
        let pool = PoolConfig { slots: 64, slot_size: 2_112, populate: false };
        let config = GuestConfig { ring_size: RING_SIZE, ..GuestConfig::default() };
        let (pool, guest) = (Pool::new(pool).unwrap(), Guest::new(config).unwrap());
        Self { port, pool, guest, leaves: false, socket }
    }

    /// Connects a guest with these features and empty rings.
    fn attach(&mut self, features: u64) {
        self.leaves = features & feature::LEAVES != 0;
        let config = GuestConfig { features, ring_size: RING_SIZE, ..GuestConfig::default() };
        self.guest = Guest::new(config).unwrap();
        let (port, guest, socket) = (&mut self.port, &mut self.guest, &self.socket);
        std::thread::scope(|scope| {
            let there = scope.spawn(|| guest.attach(connect(socket, 500).unwrap()).unwrap());
            while !there.is_finished() {
                assert_eq!(port.handle_events(), PortRequest::Nothing, "there is no handle");
                std::thread::yield_now();
            }
        });
    }

    /// Disconnects the guest. The port wants its handles back, and then nothing more.
    fn detach(&mut self, mut out: Vec<Out>) {
        self.guest.hang_up();
        let until = Instant::now() + PATIENCE;
        let is_gone = |port: &VhostUserPort| {
            let outside = port.outside();
            let device = &outside.state().device;
            let says_so = device.problem.as_ref().is_some_and(|p| p.contains("front end"));
            says_so && device.up != Some(true)
        };
        while !is_gone(&self.port) {
            if self.port.handle_events() == PortRequest::Handles(0) {
                assert!(!out.is_empty(), "handles are wanted that nobody has");
                self.give_back(out.drain(..));
            }
            assert!(Instant::now() < until, "the port does not notice that its guest is gone");
            std::thread::yield_now();
        }
        self.give_back(out.drain(..));
        assert_eq!(self.pool.used(), 0, "a slot of the pool was lost");
    }

    fn give_back(&mut self, out: impl Iterator<Item = Out>) {
        let mut batch = Batch::with_limit(usize::from(RING_SIZE) + 64);
        for out in out {
            assert!(out.buf.head() == out.head, "a frame changed while its handle was out");
            batch.push(out.buf).unwrap();
        }
        self.port.give_back(&mut batch, &mut self.pool);
    }

    fn read(&mut self, window: Window, out: &mut Vec<Out>) {
        let mut batch = Batch::with_limit(32);
        self.port.read(window, 32, &mut self.pool, &mut batch).unwrap();
        out.extend(batch.drain().map(|buf| {
            assert!(buf.head().len() == (buf.size() as usize).min(FrameBuf::HEAD_SIZE_MAX));
            Out { head: buf.head().to_vec(), buf }
        }));
    }

    fn offer(&mut self, source: &mut Source<'_>, buf: Option<&FrameBuf>) {
        let header = [7; 60];
        let header = &header[..usize::from(source.byte() % 61)];
        let whole = buf.map_or(0, Buf::size);
        // A frame is stripped only if it came out of a tunnel, and then it has no open checksum.
        let strip = if self.leaves { 0 } else { u32::from(source.byte()).min(whole) };
        let strip = u16::try_from(strip).unwrap();
        // A super-frame has the outer header once for each segment.
        let segments = u32::from(buf.map_or(1, Buf::segments));
        let size = whole - u32::from(strip) + segments * u32::try_from(header.len()).unwrap();
        let priority = Priority::ZERO;
        let egress = Egress { header, buf, strip, size, first: 0, priority, tunnel: None };
        let _ = self.port.offer(&egress);
    }
}

/// Returns an address: in the guest's memory, at its edges, or outside.
fn address(source: &mut Source<'_>, guest: &Guest) -> u64 {
    let (start, size) = (guest.memory().guest_address(0), guest.memory().len() as u64);
    match source.byte() % 8 {
        0 => start + size - u64::from(source.byte()),
        1 => start.wrapping_sub(u64::from(source.byte())),
        2 => u64::MAX - u64::from(source.u32()),
        _ => start + u64::from(source.u32()) % size,
    }
}

fn ring<'a>(guest: &'a mut Guest, transmit: bool) -> &'a mut Ring {
    let pair = guest.pair(0);
    if transmit { pair.sender.ring() } else { pair.receiver.ring() }
}

/// Does a random step of the guest.
fn misbehave(source: &mut Source<'_>, guest: &mut Guest) {
    let transmit = source.byte() % 4 > 0;
    match source.byte() % 7 {
        0 | 1 => {
            let addr = address(source, guest);
            let (len, flags) = (source.u32(), u16::from(source.byte() % 8));
            let next = u16::from(source.byte()) % (RING_SIZE + 2);
            let at = u16::from(source.byte()) % RING_SIZE;
            ring(guest, transmit).put_descriptor(at, Descriptor { addr, len, flags, next });
        }
        2 => {
            let (at, head) = (source.u16(), u16::from(source.byte()) % (RING_SIZE + 1));
            ring(guest, transmit).put_avail(at, head);
        }
        3 => {
            let ring = ring(guest, transmit);
            let ahead = u16::from(source.byte() % (RING_SIZE as u8 + 2));
            ring.put_avail_idx(ring.avail_idx().wrapping_add(ahead));
        }
        4 => {
            let (flags, event) = (source.u16(), source.u16());
            ring(guest, transmit).put_avail_flags(flags);
            ring(guest, transmit).put_used_event(event);
        }
        5 => unfinished(source, guest),
        _ => {
            // Any part of the memory, rings included.
            let size = guest.memory().len();
            let at = source.u32() as usize % (size - 64);
            let bytes: Vec<u8> = (0..source.byte() % 64).map(|_| source.byte()).collect();
            guest.memory().bytes(at, 64).write(0, &bytes);
        }
    }
}

/// Writes a frame that leaves its checksum, and perhaps segmentation, to the switch, somewhere into
/// the guest's memory. Most fields make sense, some do not.
fn unfinished(source: &mut Source<'_>, guest: &Guest) {
    const KINDS: [u8; 5] = [0, 1, 4, 5, 0x81];
    let mut bytes = [0; 12 + 14 + 20 + 20];
    // virtio_net_hdr: flags, kind, length of the headers, of a segment, checksum start, checksum
    // offset.
    bytes[0] = source.byte() % 4;
    bytes[1] = KINDS[usize::from(source.byte()) % KINDS.len()];
    let fields = [54, 1 + u16::from(source.byte()), 34, 16];
    for (at, field) in fields.into_iter().enumerate() {
        let field = if source.byte() % 8 == 0 { source.u16() } else { field };
        bytes[2 + 2 * at..][..2].copy_from_slice(&field.to_le_bytes());
    }
    let frame = &mut bytes[12..];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&source.u16().to_be_bytes());
    frame[23] = if source.byte() % 4 == 0 { 17 } else { 6 };
    frame[46] = 0x50;
    if source.byte() % 4 == 0 {
        let at = usize::from(source.byte()) % frame.len();
        frame[at] = source.byte();
    }
    let at = source.u32() as usize % (guest.memory().len() - bytes.len());
    guest.memory().bytes(at, bytes.len()).write(0, &bytes);
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

fuzz_target!(|data: &[u8]| {
    let mut source = Source(data);
    RIG.with_borrow_mut(|rig| {
        let rig = rig.get_or_insert_with(Rig::new);
        let left_out = [0, feature::MRG_RXBUF, feature::EVENT_IDX, feature::INDIRECT_DESC];
        let choice = source.byte();
        let offload = if choice & 4 == 0 { feature::LEAVES | feature::TAKES } else { 0 };
        rig.attach((feature::ALL | offload) & !left_out[usize::from(choice % 4)]);
        let mut out = Vec::new();
        for _ in 0..STEPS_MAX {
            if source.0.is_empty() {
                break;
            }
            match source.byte() % 8 {
                0..=3 => misbehave(&mut source, &mut rig.guest),
                4 | 5 => {
                    let (frames, bytes) = (u32::from(source.byte() % 24), source.u16());
                    let bytes = ByteCount(bytes.into());
                    let closed = PriorityMask::NONE;
                    rig.read(Window { frames, bytes, closed, needs_copy: false }, &mut out);
                }
                6 => {
                    let last = out.pop();
                    rig.offer(&mut source, last.as_ref().map(|out: &Out| &out.buf));
                    out.extend(last);
                    rig.port.flush().unwrap();
                }
                _ => {
                    let count = usize::from(source.byte()) % (out.len() + 1);
                    let some: Vec<Out> = out.drain(..count).collect();
                    rig.give_back(some.into_iter());
                }
            }
        }
        rig.detach(out);
    });
});
