//! Fuzzes a `vhost-user` port with a hostile front end: messages in any order, with lengths, memory
//! tables, ring addresses and descriptors that fit, and some that do not, between reads and writes
//! of the switch's side. The guest writes into the shared memory.
//!
//! Nothing may panic or touch memory that is not shared. Nothing waits for ever. Handles are wanted
//! back only while some are out, and after the conversation every handle has come back.
#![no_main]

use std::cell::RefCell;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv, sendmsg};
use sluice_base::{Batch, Buf, ByteCount, Priority, PriorityMask};
use sluice_fuzz::Source;
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port, PortRequest, SharedRings as _};
use sluice_switch::{Egress, Sink, Window};

const PATIENCE: Duration = Duration::from_secs(20);
const STEPS_MAX: usize = 60;
/// Largest number of descriptors of a message.
const FDS_MAX: usize = 9;

const GUEST_START: u64 = 0x4000_0000;
const USER_START: u64 = 0x7000_0000_0000;
const MEMORY_SIZE: u64 = 64 << 10;
const RING_SIZE: u32 = 16;
/// Offsets of the parts of a ring in its half of the memory.
const DESC: u64 = 0;
const AVAIL: u64 = 0x1000;
const USED: u64 = 0x2000;
const RING_STRIDE: u64 = 0x4000;

const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_LOG_BASE: u32 = 6;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const SET_PROTOCOL_FEATURES: u32 = 16;
const SET_VRING_ENABLE: u32 = 18;
const NET_SET_MTU: u32 = 20;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;
/// VERSION_1 and the features that a front end may choose: mergeable buffers, indirect descriptors,
/// event indices, protocol features.
const FEATURES: u64 = 1 << 32 | 1 << 15 | 1 << 28 | 1 << 29 | PROTOCOL_FEATURES;
const PROTOCOL_FEATURES: u64 = 1 << 30;
const LOG_ALL: u64 = 1 << 26;

struct Rig {
    port: VhostUserPort,
    pool: Pool,
    socket: PathBuf,
    out: Vec<FrameBuf>,
}

/// The front end of one conversation.
struct FrontEnd {
    stream: UnixStream,
    memory: OwnedFd,
    small: OwnedFd,
    event: OwnedFd,
    /// True if the port has hung up.
    is_over: bool,
}

impl Rig {
    fn new() -> Self {
        let socket = std::env::temp_dir().join(format!("sluice-fuzz-vhost-{}", std::process::id()));
        let config = VhostUserConfig {
            socket: socket.clone(),
            role: Role::Server,
            mtu: 1500,
            in_order: false,
            queues: Vec::new(),
            offload: true,
        };
        let port = VhostUserPort::open(&config).expect("it listens");
        let pool = PoolConfig { slots: 64, slot_size: 2_112, populate: false };
        Self { port, pool: Pool::new(pool).expect("a pool"), socket, out: Vec::new() }
    }

    /// Does the worker's part between two turns.
    fn handle_events(&mut self) {
        if let PortRequest::Handles(_) = self.port.handle_events() {
            assert!(!self.out.is_empty(), "handles are wanted that nobody has");
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        let mut batch = Batch::with_limit(128);
        self.out.drain(..).for_each(|buf| batch.push(buf).expect("room"));
        self.port.give_back(&mut batch, &mut self.pool);
    }

    fn read(&mut self, frames: u32) {
        let mut batch = Batch::with_limit(32);
        let closed = PriorityMask::NONE;
        let window = Window { frames, bytes: ByteCount(20_000), closed, needs_copy: false };
        self.port.read(window, 32, &mut self.pool, &mut batch).expect("a read");
        self.out.extend(batch.drain());
        if self.out.len() > 32 {
            self.give_back();
        }
    }

    fn offer(&mut self) {
        let buf = self.out.pop();
        let header = [7; 60];
        let header: &[u8] = if buf.is_some() { &[] } else { &header };
        let size = buf.as_ref().map_or(60, Buf::size);
        let (strip, first, priority, tunnel) = (0, 0, Priority::ZERO, None);
        let egress = Egress { header, buf: buf.as_ref(), strip, size, first, priority, tunnel };
        let _ = self.port.offer(&egress);
        self.out.extend(buf);
        self.port.flush().expect("a flush");
    }
}

impl FrontEnd {
    fn new(socket: &PathBuf) -> Self {
        let memory = |size| {
            let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
            ftruncate(&fd, size).expect("its size");
            fd
        };
        let stream = UnixStream::connect(socket).expect("the port listens");
        stream.set_nonblocking(true).expect("a socket");
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an event");
        Self { stream, memory: memory(MEMORY_SIZE), small: memory(100), event, is_over: false }
    }

    fn fd(&self, which: u8) -> BorrowedFd<'_> {
        match which % 8 {
            0..=3 => self.memory.as_fd(),
            4 => self.small.as_fd(),
            _ => self.event.as_fd(),
        }
    }

    /// Sends a message with descriptors. The port may have hung up.
    fn send(&mut self, request: u32, flags: u32, size: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut bytes = Vec::with_capacity(12 + body.len());
        [request, flags, size].iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let parts = [IoSlice::new(&bytes)];
        _ = sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL);
    }

    /// Receives replies and ignores them.
    fn listen(&mut self) {
        let mut bytes = [0_u8; 1_024];
        while !self.is_over {
            match recv(&self.stream, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => self.is_over = true,
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => self.is_over = true,
            }
        }
    }

    fn write_memory(&self, at: u64, bytes: &[u8]) {
        _ = rustix::io::pwrite(&self.memory, bytes, at);
    }
}

fn words(of: &[u32]) -> Vec<u8> {
    of.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(of: &[u64]) -> Vec<u8> {
    of.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

/// Returns `right`, or sometimes a value at an edge, or any value.
fn bend(source: &mut Source<'_>, right: u64) -> u64 {
    match source.byte() {
        0..=223 => right,
        224..=231 => right.wrapping_add(u64::from(source.byte())).wrapping_sub(128),
        232..=239 => u64::MAX - u64::from(source.byte()),
        240..=247 => u64::from(source.byte()) << source.pick(&[0, 8, 16, 32, 56]),
        _ => source.u64(),
    }
}

fn index(source: &mut Source<'_>) -> u32 {
    let index = u32::from(source.byte());
    if index < 248 { index % 2 } else { index % 8 }
}

/// Returns a memory region: guest address, size, front end's address, offset in the file.
fn region(source: &mut Source<'_>, at: u64, size: u64) -> Vec<u8> {
    let fields = [GUEST_START + at, size, USER_START + at, at];
    longs(&fields.map(|field| bend(source, field)))
}

/// Returns the body of a request, and its number of descriptors.
fn body(source: &mut Source<'_>, request: u32) -> (Vec<u8>, usize) {
    match request {
        SET_FEATURES => {
            let log = if source.one_in(4) { LOG_ALL } else { 0 };
            (longs(&[bend(source, FEATURES | log)]), 0)
        }
        SET_PROTOCOL_FEATURES => (longs(&[bend(source, 1 << 0 | 1 << 1 | 1 << 15)]), 0),
        NET_SET_MTU => (longs(&[bend(source, 1_500)]), 0),
        SET_MEM_TABLE => {
            let count = if source.one_in(16) { source.byte() } else { source.byte() % 4 };
            let size = MEMORY_SIZE / u64::from(count.max(1));
            let mut bytes = words(&[bend(source, count.into()) as u32, 0]);
            let there = u64::from(count.min(9));
            (0..there)
                .for_each(|n| bytes.extend(region(source, n * (size & !0xfff), size & !0xfff)));
            (bytes, usize::from(count.min(8)))
        }
        ADD_MEM_REG | REM_MEM_REG => {
            let at = u64::from(source.byte() % 4) * 0x4000;
            let mut bytes = longs(&[0]);
            bytes.extend(region(source, at, 0x4000));
            (bytes, usize::from(request == ADD_MEM_REG))
        }
        SET_LOG_BASE => (longs(&[MEMORY_SIZE, 0].map(|field| bend(source, field))), 1),
        SET_VRING_NUM => {
            let index = index(source);
            (words(&[index, bend(source, RING_SIZE.into()) as u32]), 0)
        }
        SET_VRING_BASE | SET_VRING_ENABLE => {
            let index = index(source);
            (words(&[index, bend(source, 1) as u32]), 0)
        }
        SET_VRING_ADDR => {
            let index = index(source);
            let start = USER_START + u64::from(index) * RING_STRIDE;
            let log = GUEST_START + u64::from(index) * RING_STRIDE + USED;
            let mut bytes = words(&[index, u32::from(source.one_in(4))]);
            let parts = [start + DESC, start + USED, start + AVAIL, log];
            bytes.extend(longs(&parts.map(|part| bend(source, part))));
            (bytes, 0)
        }
        SET_VRING_KICK | SET_VRING_CALL | SET_VRING_ERR => {
            let index = u64::from(index(source));
            let none = source.one_in(8);
            (longs(&[bend(source, index | u64::from(none) << 8)]), usize::from(!none))
        }
        11 => (words(&[index(source), 0]), 0),
        _ => (if source.one_in(2) { source.bytes().to_vec() } else { Vec::new() }, 0),
    }
}

fn message(source: &mut Source<'_>, front_end: &mut FrontEnd) {
    const USUAL: [u32; 16] = [
        SET_FEATURES,
        SET_MEM_TABLE,
        SET_LOG_BASE,
        SET_VRING_NUM,
        SET_VRING_ADDR,
        SET_VRING_BASE,
        11,
        SET_VRING_KICK,
        SET_VRING_CALL,
        SET_VRING_ENABLE,
        ADD_MEM_REG,
        REM_MEM_REG,
        SET_VRING_ERR,
        NET_SET_MTU,
        SET_PROTOCOL_FEATURES,
        7,
    ];
    let how = source.byte();
    let request = match how {
        0..=207 => source.pick(&USUAL),
        208..=251 => u32::from(source.byte() % 48),
        _ => source.u32(),
    };
    let (mut body, fds) = body(source, request);
    let flags = match source.byte() {
        0..=127 => 1,
        128..=251 => 1 | 8,
        _ => source.u32(),
    };
    let mut size = body.len() as u32;
    let mut count = fds;
    match source.byte() {
        0..=239 => {}
        240..=243 => size = source.u32(),
        244..=247 => body.truncate(usize::from(source.byte())),
        _ => count = usize::from(source.byte()) % FDS_MAX,
    }
    // A memory descriptor if the request needs memory, an event if it needs an event.
    let is_event = [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR].contains(&request);
    let usual = if is_event { 5 } else { 0 };
    let which: Vec<u8> =
        (0..count).map(|_| if source.one_in(16) { source.byte() } else { usual }).collect();
    let copies: Vec<OwnedFd> = which
        .iter()
        .map(|which| front_end.fd(*which).try_clone_to_owned().expect("a copy"))
        .collect();
    let borrowed: Vec<BorrowedFd<'_>> = copies.iter().map(AsFd::as_fd).collect();
    front_end.send(request, flags, size, &body, &borrowed);
}

/// Sends the messages with which a valid conversation begins.
fn greet(source: &mut Source<'_>, front_end: &mut FrontEnd) {
    let [memory, event] =
        [&front_end.memory, &front_end.event].map(|fd| fd.try_clone().expect("a copy"));
    let mut say = |request: u32, body: &[u8], fds: &[BorrowedFd<'_>]| {
        front_end.send(request, 1, body.len() as u32, body, fds);
    };
    say(SET_OWNER, &[], &[]);
    let left_out = source.pick(&[0, 1 << 15, 1 << 29, PROTOCOL_FEATURES]);
    say(SET_FEATURES, &longs(&[FEATURES & !left_out]), &[]);
    let mut table = words(&[1, 0]);
    table.extend(longs(&[GUEST_START, MEMORY_SIZE, USER_START, 0]));
    say(SET_MEM_TABLE, &table, &[memory.as_fd()]);
    for index in 0..2_u32 {
        let start = USER_START + u64::from(index) * RING_STRIDE;
        let mut place = words(&[index, 0]);
        place.extend(longs(&[start + DESC, start + USED, start + AVAIL, 0]));
        say(SET_VRING_NUM, &words(&[index, RING_SIZE]), &[]);
        say(SET_VRING_BASE, &words(&[index, 0]), &[]);
        say(SET_VRING_ADDR, &place, &[]);
        say(SET_VRING_CALL, &longs(&[index.into()]), &[event.as_fd()]);
        say(SET_VRING_KICK, &longs(&[index.into()]), &[event.as_fd()]);
        if left_out != PROTOCOL_FEATURES {
            say(SET_VRING_ENABLE, &words(&[index, 1]), &[]);
        }
    }
}

/// Makes descriptors available as the guest, valid or not.
fn guest(source: &mut Source<'_>, front_end: &FrontEnd) {
    let ring = u64::from(source.byte() % 2) * RING_STRIDE;
    if source.one_in(4) {
        return front_end.write_memory(u64::from(source.u16()), source.bytes());
    }
    let count = u16::from(source.byte() % (RING_SIZE as u8 + 1));
    for n in 0..count {
        let address = bend(source, GUEST_START + 0x8000 + u64::from(n) * 0x800);
        let flags = if ring == 0 { 2_u16 } else { u16::from(source.byte() % 4) };
        let mut descriptor = longs(&[address]);
        descriptor.extend((bend(source, 256) as u32).to_ne_bytes());
        descriptor.extend(flags.to_ne_bytes());
        descriptor.extend(n.wrapping_add(1).to_ne_bytes());
        front_end.write_memory(ring + DESC + u64::from(n) * 16, &descriptor);
        front_end.write_memory(ring + AVAIL + 4 + u64::from(n) * 2, &n.to_ne_bytes());
    }
    front_end.write_memory(ring + AVAIL + 2, &count.to_ne_bytes());
    _ = rustix::io::write(&front_end.event, &1_u64.to_ne_bytes());
}

thread_local! {
    static RIG: RefCell<Option<Rig>> = const { RefCell::new(None) };
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source::new(bytes);
    RIG.with_borrow_mut(|rig| {
        let rig = rig.get_or_insert_with(Rig::new);
        let mut front_end = FrontEnd::new(&rig.socket);
        if source.byte() % 4 > 0 {
            greet(&mut source, &mut front_end);
        }
        for _ in 0..STEPS_MAX {
            if source.is_empty() || front_end.is_over {
                break;
            }
            match source.byte() % 16 {
                0..=8 => message(&mut source, &mut front_end),
                9 | 10 => guest(&mut source, &front_end),
                11 | 12 => rig.read(u32::from(source.byte() % 24)),
                13 => rig.offer(),
                14 => rig.give_back(),
                _ => std::thread::yield_now(),
            }
            rig.handle_events();
            front_end.listen();
        }
        _ = front_end.stream.shutdown(std::net::Shutdown::Write);
        let until = Instant::now() + PATIENCE;
        // First the conversation ends, then its rings stop.
        while !front_end.is_over || rig.port.outside().state().device.problem.is_none() {
            front_end.listen();
            rig.handle_events();
            assert!(Instant::now() < until, "the conversation does not end");
            std::thread::yield_now();
        }
        assert!(rig.port.outside().state().device.up != Some(true), "nobody is there");
        rig.give_back();
        assert_eq!(rig.pool.used(), 0, "a slot of the pool was lost");
    });
});
