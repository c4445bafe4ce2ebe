//! The two programs: one answers for the room of a socket, one tells of its drain.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sluice_base::Nanos;

use super::arrivals::Arrivals;
use super::btf::{self, Places};
use super::flow::Flow;
use super::gate::HELD_MAX;
use super::room::{Room, RoomSource};
use crate::ebpf::{
    self, EXIT, If, Insn, MAP_LOOKUP, Map, MapKind, Program, RING_OUTPUT, add, call, call_kernel,
    exchange, load32, load64, mov, set, set32, store32, store64,
};
use crate::netlink::Netlink;
use crate::shared::SharedPages;

/// Numbers of helpers.
const SK_LOOKUP_UDP: i32 = 85;
const SK_RELEASE: i32 = 86;
const PROBE_READ_KERNEL: i32 = 113;
/// `sizeof` of the two halves of `struct bpf_sock_tuple`.
const TUPLE_V4: i32 = 12;
const TUPLE_V6: i32 = 36;
/// `BPF_F_CURRENT_NETNS`.
const CURRENT_NAMESPACE: i32 = -1;

/// Offsets in the array of a question: the tuple, and the answer.
const FOUND: i16 = 40;
const USED: i16 = 44;
const LIMIT: i16 = 48;
const SOCKET: i16 = 56;
const QUESTION_SIZE: u32 = 64;
/// Bit of a record's length while it is being written (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u64 = 1 << 31;
/// Size of a wake-up in the ring: header and socket.
const RECORD_SIZE: u64 = 16;
/// Size of the ring.
const PAGE: u32 = 4096;
const TRACEPOINT: &CStr = c"sock_recv_length";

/// The kernel's sockets of one namespace.
#[derive(Debug)]
pub(crate) struct KernelRoom {
    /// The programs for IPv4 and IPv6.
    askers: [OwnedFd; 2],
    words: SharedPages,
    /// Goes off while sockets are held.
    timer: OwnedFd,
    /// Reason why drains are polled, if they are.
    drains: Result<Drains, String>,
    /// `None` if sending delivers.
    arrivals: Option<Arrivals>,
    _array: OwnedFd,
}

/// Tells of drains.
#[derive(Debug)]
struct Drains {
    program: OwnedFd,
    /// Attached since the first socket was held.
    link: Option<OwnedFd>,
    /// By socket: told, mark.
    armed: Map<8, 2>,
    ring: OwnedFd,
    consumed: SharedPages,
    produced: SharedPages,
    data: SharedPages,
}

impl KernelRoom {
    /// Loads the programs for the sockets of a network namespace; `None` is the caller's.
    /// `arrivals` counts frames where sending does not deliver.
    ///
    /// # Errors
    /// Says what this kernel, or this process, lacks.
    pub(crate) fn open(
        namespace: Option<BorrowedFd<'_>>,
        arrivals: Option<Arrivals>,
    ) -> Result<Self, String> {
        let places = btf::places().map_err(|error| format!("the kernel's BTF: {error}"))?;
        let number = namespace.map_or(Ok(CURRENT_NAMESPACE), |namespace| {
            Netlink::open()?.namespace_number(namespace)
        });
        let number = number.map_err(|error| format!("a number for its namespace: {error}"))?;
        let array = ebpf::create_map(MapKind::SharedArray(QUESTION_SIZE))
            .map_err(|error| format!("BPF and CAP_BPF: {error}"))?;
        let load = |size| {
            ebpf::load_reader(&asker(&array, &places, size, number), "sluice_room", false).map_err(
                |error| {
                    format!(
                        "a kernel that lets tc programs call bpf_sk_lookup_udp and \
                         bpf_rdonly_cast (Linux 6.2), CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON: \
                         {error}"
                    )
                },
            )
        };
        let askers = [load(TUPLE_V4)?, load(TUPLE_V6)?];
        let failed = |error: io::Error| format!("memory for the programs: {error}");
        let words = SharedPages::map(array.as_fd(), 0, true).map_err(failed)?;
        ebpf::run_once(&askers[0]).map_err(|error| format!("BPF_PROG_TEST_RUN: {error}"))?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| failed(errno.into()))?;
        let drains = Drains::open(&places).map_err(|error| error.to_string());
        Ok(Self { askers, words, timer, drains, arrivals, _array: array })
    }

    /// The count of frames that arrived.
    pub(crate) const fn arrivals(&self) -> Option<&Arrivals> {
        self.arrivals.as_ref()
    }

    /// As [`Self::arrivals`], to be told what is sent.
    pub(crate) const fn arrivals_mut(&mut self) -> Option<&mut Arrivals> {
        self.arrivals.as_mut()
    }

    /// Descriptors that wake the port: a drain, and the timer.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let ring = self.drains.iter().map(|drains| drains.ring.as_fd());
        ring.chain([self.timer.as_fd()])
    }
}

impl RoomSource for KernelRoom {
    fn ask(&mut self, flow: &Flow) -> Option<Room> {
        for (nth, word) in flow.words().into_iter().enumerate() {
            self.words.word(8 * nth).store(word, Ordering::Relaxed);
        }
        // A namespace that is gone has no sockets, and the frame goes its way.
        ebpf::run_once(&self.askers[usize::from(flow.is_v6())]).ok()?;
        let word = |at: i16| {
            self.words.word(at.cast_unsigned().into()).load(Ordering::Relaxed).to_ne_bytes()
        };
        let half = |bytes: [u8; 8], at: usize| {
            u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
        };
        let first = word(FOUND);
        if half(first, 0) == 0 {
            return None;
        }
        let (used, limit) = (half(first, 4), half(word(LIMIT), 0));
        Some(Room { socket: u64::from_ne_bytes(word(SOCKET)), used, limit, in_flight: 0 })
    }

    fn note_sent(&mut self, total: u64) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.note_sent(total);
        }
    }

    fn sent(&self) -> u64 {
        self.arrivals.as_ref().map_or(0, Arrivals::sent)
    }

    fn arrived(&mut self, now: Nanos, _flow: &Flow) -> u64 {
        self.arrivals.as_mut().map_or(u64::MAX, |arrivals| arrivals.arrived(now))
    }

    fn arm(&mut self, socket: u64, mark: u32) {
        let Ok(drains) = &mut self.drains else { return };
        if let Err(error) = drains.arm(socket, mark) {
            self.drains = Err(error.to_string());
        }
    }

    fn disarm(&mut self, socket: u64) {
        if let Ok(drains) = &self.drains {
            // A socket that stays armed costs one look too many.
            _ = drains.armed.remove(&socket.to_ne_bytes());
        }
    }

    fn next_drained(&mut self) -> Option<u64> {
        self.drains.as_mut().ok()?.next()
    }

    fn is_signalled(&self) -> bool {
        self.drains.is_ok()
    }

    fn tick(&mut self, interval: Option<Nanos>) {
        let span = interval.unwrap_or(Nanos::ZERO).0;
        let span = Timespec {
            tv_sec: i64::try_from(span / 1_000_000_000).expect("a short time"),
            tv_nsec: i64::try_from(span % 1_000_000_000).expect("below a second"),
        };
        let every = Itimerspec { it_interval: span, it_value: span };
        let done = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &every);
        debug_assert!(done.is_ok(), "a valid time for an open timer");
    }
}

impl Drains {
    fn open(places: &Places) -> io::Result<Self> {
        if rustix::param::page_size() != usize::try_from(PAGE).expect("small") {
            return Err(io::Error::other("pages of 4096 bytes, for the ring of its wake-ups"));
        }
        let ring = ebpf::create_map(MapKind::Ring(PAGE))?;
        let armed = Map::hash(2 * HELD_MAX)?;
        let program = ebpf::load_reader(&watcher(&armed, &ring, places), "sluice_drained", true)?;
        let page = u64::from(PAGE);
        Ok(Self {
            consumed: SharedPages::map(ring.as_fd(), 0, true)?,
            produced: SharedPages::map(ring.as_fd(), page, false)?,
            data: SharedPages::map(ring.as_fd(), 2 * page, false)?,
            program,
            link: None,
            armed,
            ring,
        })
    }

    fn arm(&mut self, socket: u64, mark: u32) -> io::Result<()> {
        if self.link.is_none() {
            self.link = Some(ebpf::attach_tracepoint(&self.program, TRACEPOINT)?);
        }
        self.armed.set(&socket.to_ne_bytes(), &[0, mark.into()])
    }

    /// The next wake-up, if there is one.
    fn next(&mut self) -> Option<u64> {
        let at = self.consumed.word(0).load(Ordering::Relaxed);
        if self.produced.word(0).load(Ordering::Acquire) == at {
            return None;
        }
        // Records of 16 bytes never cross the end of the page.
        let place = usize::try_from(at % u64::from(PAGE)).expect("in a page");
        // A record has its place before it has its bytes. Its end is signalled.
        if header_of(self.data.word(place).load(Ordering::Acquire)) & BUSY != 0 {
            return None;
        }
        let socket = self.data.word(place + 8).load(Ordering::Acquire);
        self.consumed.word(0).store(at + RECORD_SIZE, Ordering::Release);
        Some(socket)
    }
}

/// Length and flags of a record: the first half of its header.
fn header_of(word: u64) -> u64 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d]).into()
}

/// Looks up the socket of the tuple, and answers with its room.
fn asker(array: &OwnedFd, places: &Places, tuple_size: i32, namespace: i32) -> Vec<Insn> {
    let mut program = Program::default();
    let none = program.label();
    program.plain(&[mov(6, 1)]);
    program.map_value(7, array.as_fd());
    program.plain(&[
        set32(7, FOUND, 0),
        mov(1, 6),
        mov(2, 7),
        set(3, tuple_size),
        set(4, namespace),
        set(5, 0),
        call(SK_LOOKUP_UDP),
    ]);
    program.jump(0, If::Null, 0, none);
    program.plain(&[
        mov(8, 0),
        mov(1, 0),
        set(2, places.sock),
        call_kernel(places.cast),
        load32(1, 0, places.used),
        store32(7, USED, 1),
        load32(1, 0, places.limit),
        store32(7, LIMIT, 1),
        store64(7, SOCKET, 8),
        set32(7, FOUND, 1),
        mov(1, 8),
        call(SK_RELEASE),
    ]);
    program.here(none);
    program.plain(&[set(0, 0), EXIT]);
    program.finish()
}

/// Wakes the port once for each arming, when an armed socket was drained to its mark.
fn watcher(armed: &Map<8, 2>, ring: &OwnedFd, places: &Places) -> Vec<Insn> {
    const BPF_RB_FORCE_WAKEUP: i32 = 2;
    let mut program = Program::default();
    let end = program.label();
    program.plain(&[load64(6, 1, 0), store64(10, -8, 6)]);
    program.map(1, armed.fd());
    program.plain(&[mov(2, 10), add(2, -8), call(MAP_LOOKUP)]);
    program.jump(0, If::Null, 0, end);
    program.plain(&[
        mov(7, 0),
        mov(1, 10),
        add(1, -16),
        set(2, 4),
        mov(3, 6),
        add(3, places.used.into()),
        call(PROBE_READ_KERNEL),
        load32(1, 10, -16),
        load64(2, 7, 8),
    ]);
    program.jump_above(1, 2, end);
    program.plain(&[set(1, 1), exchange(7, 0, 1)]);
    program.jump(1, If::IsNot, 0, end);
    program.map(1, ring.as_fd());
    program.plain(&[
        mov(2, 10),
        add(2, -8),
        set(3, 8),
        set(4, BPF_RB_FORCE_WAKEUP),
        call(RING_OUTPUT),
    ]);
    program.here(end);
    program.plain(&[set(0, 0), EXIT]);
    program.finish()
}
