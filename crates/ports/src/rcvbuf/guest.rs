//! Room of the UDP sockets in a virtual machine, as an agent there answers for it.
//!
//! ```text
//!   gate ─ ask ─▶ what the last answer said ─ flows to ask for ─▶ question n ─▶ receive queue, in
//!                       ▲                                                        order with data
//!                       └── answer n: socket, used, limit ◀── transmit queue ◀── agent
//! ```
//!
//! The gate never waits: it is told the room as of the last answer, and charges what was sent since
//! on top (`flight.rs`). Its numbers are those of questions. A frame that was sent before question
//! n is in its socket when the agent reads that question, for both take the same queue.
//!
//! ```text
//!            hello           answer                       no answer for 500 ms,
//!   ABSENT ────────▶ GREETED ──────▶ HEARD ───────────────────────────────────▶ SILENT
//!      ▲                ▲              │                nothing heard for 5 s      │
//!      └── bye, reset ──┼──────────────┘                                           │
//!                       └───────────────────────── hello ──────────────────────────┘
//! ```
//!
//! Only in HEARD sockets have rooms: else each datagram passes, as without an agent.
//!
//! **A flow that was never asked for** has a little room of its own ([`UNKNOWN`]), or that of the
//! socket that another flow to its address has, until the answer for it.
//!
//! **What an agent may do**: speak of flows of its own port, which are all that is kept. A false
//! answer loses or holds datagrams of its own guest. One question is under way at a time, and only
//! answers to it are read, so that an agent that says more is not heard more often.

mod behind;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use sluice_base::{Mac, Nanos};
use sluice_wire::guest_room::{ENTRIES_MAX, FRAME_SIZE_MAX, FlowEntry, Message, RoomEntry};

use super::charge;
use super::flow::Flow;
use super::gate::HELD_MAX;
use super::room::{Room, RoomSource};

/// Known flows, sockets and receivers; two that meet at one place are asked for more often.
const FLOWS: usize = 1024;
const SOCKETS: usize = 256;
const RECEIVERS: usize = 256;
/// Flows that wait to be asked for.
const WANTED_MAX: usize = 128;
/// Size of the buffer that a socket seems to have before the first answer for it.
const UNKNOWN: u32 = 32 << 10;
/// Bit of the identities of such sockets; a kernel counts its cookies from 1.
const UNKNOWN_BIT: u64 = 1 << 63;
/// Least time between two questions.
const SPACING: Nanos = Nanos::from_micros(200);
/// Time until a question is asked again; it doubles each time.
const AGAIN: Nanos = Nanos::from_millis(20);
/// Time without an answer to questions after which the agent is silent. Less than seven eighths of
/// the usual hold, so that no socket seems stuck because its agent is.
const SILENT: Nanos = Nanos::from_millis(500);
/// Time after which an agent of whom nothing was heard is silent; it says hello each second.
const UNHEARD: Nanos = Nanos::from_millis(5_000);
/// Source of the frames of a host.
const SOURCE: Mac = Mac([2, 0, 0, 0, 0, 0]);

const _: () = assert!(FLOWS.is_power_of_two() && SOCKETS.is_power_of_two());
const _: () = assert!(RECEIVERS.is_power_of_two() && SILENT.0 < 1_000_000_000 / 8 * 7);

/// State of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Absent,
    Greeted,
    Heard,
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct KnownFlow {
    flow: Flow,
    /// `None` before its first answer; 0 if it has no socket.
    socket: Option<u64>,
    /// True if it waits to be asked for, or for an answer.
    is_wanted: bool,
}

/// A socket as of an answer.
#[derive(Clone, Copy, Debug, Default)]
struct KnownSocket {
    socket: u64,
    used: u32,
    limit: u32,
    /// Number of the question.
    number: u64,
}

/// A question without an answer.
#[derive(Debug)]
struct Open {
    /// Its number when it was asked first.
    number: u64,
    /// When it was asked first and last.
    first: Nanos,
    last: Nanos,
    again: Nanos,
    flows: Vec<Flow>,
}

/// Sockets of a virtual machine.
#[derive(Debug)]
pub(crate) struct GuestRoom {
    /// Goes off while sockets are held.
    timer: OwnedFd,
    agent: Agent,
    heard_at: Nanos,
    flows: Box<[Option<KnownFlow>]>,
    sockets: Box<[KnownSocket]>,
    /// The socket of the last answer for an address and port.
    receivers: Box<[Option<(SocketAddr, u64)>]>,
    wanted: VecDeque<Flow>,
    open: Option<Open>,
    /// Number of the last question, and of the last one that was answered.
    asked: u64,
    answered: u64,
    asked_at: Nanos,
    armed: Vec<(u64, u32)>,
    drained: VecDeque<u64>,
    /// True if a hello waits for a reply.
    is_greeted: bool,
    /// Frames of an agent that say nothing valid.
    invalid: u64,
}

impl GuestRoom {
    /// The sockets of a machine whose agent was not heard yet.
    ///
    /// # Errors
    /// Says what this process lacks.
    pub(crate) fn new() -> Result<Self, String> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|errno| format!("a timer: {errno}"))?;
        Ok(Self {
            timer,
            agent: Agent::Absent,
            heard_at: Nanos::ZERO,
            flows: vec![None; FLOWS].into_boxed_slice(),
            sockets: vec![KnownSocket::default(); SOCKETS].into_boxed_slice(),
            receivers: vec![None; RECEIVERS].into_boxed_slice(),
            wanted: VecDeque::with_capacity(WANTED_MAX),
            open: None,
            asked: 0,
            answered: 0,
            asked_at: Nanos::ZERO,
            armed: Vec::with_capacity(HELD_MAX),
            drained: VecDeque::new(),
            is_greeted: false,
            invalid: 0,
        })
    }

    /// Descriptor that wakes the port while sockets are held.
    pub(crate) fn timer(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }

    /// Returns true if the agent answers.
    pub(crate) fn is_heard(&self) -> bool {
        self.agent == Agent::Heard
    }

    /// Returns true if an agent said hello and was not silent since.
    pub(crate) const fn has_agent(&self) -> bool {
        matches!(self.agent, Agent::Greeted | Agent::Heard)
    }

    /// Frames of an agent that say nothing valid.
    pub(crate) const fn invalid(&self) -> u64 {
        self.invalid
    }

    /// Counts frames of an agent that were not read.
    pub(crate) const fn ignore(&mut self, frames: u64) {
        self.invalid += frames;
    }

    /// Reason why datagrams pass unasked, if they do.
    pub(crate) fn lacks(&self) -> Option<String> {
        match self.agent {
            Agent::Heard => None,
            Agent::Absent => Some("an agent in the guest: run `sluice guest` there".to_owned()),
            Agent::Greeted => Some("an answer of the guest's agent, which said hello".to_owned()),
            Agent::Silent => {
                let needs = "an answer of the guest's agent, which is silent: is `sluice guest` \
                             running there?";
                Some(needs.to_owned())
            }
        }
    }

    /// Reads a frame of the agent.
    pub(crate) fn hear(&mut self, now: Nanos, frame: &[u8]) {
        match Message::parse(frame) {
            Ok(Message::Hello) => {
                (self.heard_at, self.is_greeted) = (now, true);
                if self.agent != Agent::Heard && self.agent != Agent::Greeted {
                    self.forget();
                    self.agent = Agent::Greeted;
                }
            }
            Ok(Message::Answer { number, rooms }) if number <= self.asked => {
                // One that comes late says less than the one before it.
                if number > self.answered {
                    self.take(now, number, rooms);
                }
            }
            Ok(Message::Bye) => self.reset(),
            _ => self.invalid += 1,
        }
    }

    /// Returns true once after each hello.
    pub(crate) const fn take_hello(&mut self) -> bool {
        std::mem::replace(&mut self.is_greeted, false)
    }

    /// Number of the last question.
    pub(crate) const fn asked(&self) -> u64 {
        self.asked
    }

    /// Forgets the agent: the machine starts anew, or its card does.
    pub(crate) fn reset(&mut self) {
        self.forget();
        self.agent = Agent::Absent;
    }

    fn forget(&mut self) {
        self.flows.fill(None);
        self.sockets.fill(KnownSocket::default());
        self.receivers.fill(None);
        self.wanted.clear();
        self.open = None;
        self.armed.clear();
        self.drained.clear();
        self.answered = self.asked;
    }

    fn take(&mut self, now: Nanos, number: u64, rooms: &[RoomEntry]) {
        (self.agent, self.heard_at, self.answered) = (Agent::Heard, now, number);
        let open = self.open.take_if(|open| open.number <= number);
        for flow in open.into_iter().flat_map(|open| open.flows) {
            if let Some(known) = self.known_mut(&flow) {
                known.is_wanted = false;
            }
        }
        for room in rooms {
            self.learn(number, room);
        }
        let sockets = &self.sockets;
        let drained = &mut self.drained;
        self.armed.retain(|(socket, mark)| {
            let known = sockets[place(spread(*socket), SOCKETS)];
            let is_drained = known.socket == *socket && known.used <= *mark;
            if is_drained {
                drained.push_back(*socket);
            }
            !is_drained
        });
    }

    fn learn(&mut self, number: u64, room: &RoomEntry) {
        let flow = Flow::of_entry(room.flow());
        let socket = room.socket() & !UNKNOWN_BIT;
        let guessed = self.guess(&flow);
        let Some(known) = self.known_mut(&flow) else { return };
        let before = known.socket.replace(socket);
        // What was sent to it unknown, behind this question, is not in the answer.
        let unseen = if before.is_none() && guessed != Some(socket) { UNKNOWN } else { 0 };
        if before != Some(socket) {
            // The gate has it under another identity.
            let old = before.or(guessed).unwrap_or(unknown(&flow));
            if self.armed.iter().any(|(socket, _)| *socket == old) {
                self.drained.push_back(old);
            }
        }
        let receiver = flow.receiver();
        let last = &mut self.receivers[place(flow.receiver_hash(), RECEIVERS)];
        if socket == 0 {
            if last.is_some_and(|(known, _)| known == receiver) {
                *last = None;
            }
            return;
        }
        *last = Some((receiver, socket));
        let place = &mut self.sockets[place(spread(socket), SOCKETS)];
        let used = room.used().saturating_add(unseen);
        if place.socket == socket && place.number == number {
            // Two flows of one answer may be of the same socket.
            place.used = place.used.max(used);
        } else {
            *place = KnownSocket { socket, used, limit: room.limit(), number };
        }
    }

    fn known_mut(&mut self, flow: &Flow) -> Option<&mut KnownFlow> {
        let known = self.flows[place(flow.hash(), FLOWS)].as_mut();
        known.filter(|known| known.flow == *flow)
    }

    /// The socket that another flow to the same address and port has.
    fn guess(&self, flow: &Flow) -> Option<u64> {
        let (receiver, socket) = self.receivers[place(flow.receiver_hash(), RECEIVERS)]?;
        (receiver == flow.receiver()).then_some(socket)
    }

    fn socket_of(&self, flow: &Flow) -> Option<u64> {
        let known = self.flows[place(flow.hash(), FLOWS)].filter(|known| known.flow == *flow);
        known.and_then(|known| known.socket).or_else(|| self.guess(flow))
    }

    fn known_socket(&self, flow: &Flow) -> Option<KnownSocket> {
        let socket = self.socket_of(flow)?;
        let known = self.sockets[place(spread(socket), SOCKETS)];
        (known.socket == socket).then_some(known)
    }

    fn want(&mut self, flow: &Flow) {
        let place = &mut self.flows[place(flow.hash(), FLOWS)];
        let known = match place {
            Some(known) if known.flow == *flow => known,
            _ => place.insert(KnownFlow { flow: *flow, socket: None, is_wanted: false }),
        };
        if !known.is_wanted && self.wanted.len() < WANTED_MAX {
            known.is_wanted = true;
            self.wanted.push_back(*flow);
        }
    }

    /// Writes the question that is due, if one is; [`Self::note_asked`] is called once it is sent.
    /// An agent that does not answer is silent from here on.
    pub(crate) fn question(&mut self, now: Nanos, out: &mut [u8; FRAME_SIZE_MAX]) -> Option<usize> {
        self.end_silent(now);
        let is_due = match (&self.open, self.agent) {
            (_, Agent::Absent | Agent::Silent) => false,
            (Some(open), _) => now.since(open.last) >= open.again,
            (None, Agent::Greeted) => true,
            (None, Agent::Heard) => {
                let is_wanted = self.is_greeted || !self.wanted.is_empty();
                is_wanted && now.since(self.asked_at) >= SPACING
            }
        };
        if !is_due {
            return None;
        }
        let before = self.open.iter().flat_map(|open| &open.flows);
        let flows: Vec<FlowEntry> =
            before.chain(&self.wanted).take(ENTRIES_MAX).map(Flow::entry).collect();
        let question = Message::Question { number: self.asked + 1, flows: &flows };
        Some(question.emit(SOURCE, out))
    }

    /// Notes that the question was sent behind all data.
    pub(crate) fn note_asked(&mut self, now: Nanos) {
        (self.asked, self.asked_at, self.is_greeted) = (self.asked + 1, now, false);
        let number = self.asked;
        let open = self.open.get_or_insert_with(|| Open {
            number,
            first: now,
            last: now,
            again: Nanos(AGAIN.0 / 2),
            flows: Vec::with_capacity(ENTRIES_MAX),
        });
        (open.last, open.again) = (now, Nanos(2 * open.again.0));
        while open.flows.len() < ENTRIES_MAX
            && let Some(flow) = self.wanted.pop_front()
        {
            open.flows.push(flow);
        }
    }

    fn end_silent(&mut self, now: Nanos) {
        let is_unanswered = self.open.as_ref().is_some_and(|open| now.since(open.first) >= SILENT);
        let is_unheard = self.agent == Agent::Heard && now.since(self.heard_at) >= UNHEARD;
        if is_unanswered || is_unheard {
            self.forget();
            self.agent = Agent::Silent;
        }
    }
}

impl RoomSource for GuestRoom {
    fn ask(&mut self, flow: &Flow) -> Option<Room> {
        if self.agent != Agent::Heard {
            return None;
        }
        self.want(flow);
        if self.socket_of(flow) == Some(0) {
            return None;
        }
        let unknown =
            || KnownSocket { socket: unknown(flow), limit: UNKNOWN, ..KnownSocket::default() };
        let KnownSocket { socket, used, limit, .. } =
            self.known_socket(flow).unwrap_or_else(unknown);
        Some(Room { socket, used, limit, in_flight: 0 })
    }

    fn arm(&mut self, socket: u64, mark: u32) {
        self.disarm(socket);
        if self.armed.len() < 2 * HELD_MAX {
            self.armed.push((socket, mark));
        }
    }

    fn disarm(&mut self, socket: u64) {
        self.armed.retain(|(armed, _)| *armed != socket);
    }

    fn next_drained(&mut self) -> Option<u64> {
        self.drained.pop_front()
    }

    /// An answer comes only after a question: held sockets are asked for again and again.
    fn is_signalled(&self) -> bool {
        false
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

    /// Frames that are sent now are in their sockets at the next question's answer.
    fn sent(&self) -> u64 {
        self.asked + 1
    }

    fn arrived(&mut self, _now: Nanos, flow: &Flow) -> u64 {
        self.known_socket(flow).map_or(0, |known| known.number)
    }

    fn charge(&self, bytes: u32) -> u32 {
        charge::of_guest_frame(bytes)
    }
}

/// Identity of the socket of a flow before its first answer.
fn unknown(flow: &Flow) -> u64 {
    flow.hash() | UNKNOWN_BIT
}

fn spread(socket: u64) -> u64 {
    socket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
const fn place(hash: u64, places: usize) -> usize {
    hash as usize & (places - 1)
}

#[cfg(test)]
mod tests;
