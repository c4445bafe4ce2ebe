//! Sockets of known flows, and the credit that they have until the next question.
//!
//! Credit is a socket's, not a flow's: all flows to a socket spend the same. Both tables are
//! caches: a flow or socket that another one has replaced is asked for again.

use sluice_base::Nanos;

use super::flight::Flight;
use super::flow::Flow;
use super::room::{Room, RoomSource};

/// Known flows; two that meet at one place ask more often.
const FLOWS: usize = 1024;
/// Known sockets.
const SOCKETS: usize = 256;
/// Frames of a flow without a socket until it is looked for again.
const NOBODY_FRAMES: u32 = 32;

const _: () = assert!(FLOWS.is_power_of_two() && SOCKETS.is_power_of_two());

#[derive(Clone, Copy, Debug)]
struct Known {
    flow: Flow,
    /// 0: there is no socket.
    socket: u64,
    /// Without a socket: frames until it is looked for again.
    left: u32,
}

/// Credit of a socket. The place may have been another socket's before, whose charges under way
/// are counted for this one.
#[derive(Clone, Copy, Debug, Default)]
struct Credit {
    socket: u64,
    left: u32,
    /// Credit at the last question, so that the difference is what was spent since.
    granted: u32,
    flight: Flight,
}

/// The known flows and the credit of sockets.
#[derive(Debug)]
pub(super) struct Credits {
    flows: Box<[Option<Known>]>,
    sockets: Box<[Credit]>,
}

impl Credits {
    pub(super) fn new() -> Self {
        Self {
            flows: vec![None; FLOWS].into_boxed_slice(),
            sockets: vec![Credit::default(); SOCKETS].into_boxed_slice(),
        }
    }

    /// Takes the charge from the credit that the flow's socket has. Returns false if there is none.
    #[inline]
    pub(super) fn spend(&mut self, flow: &Flow, charge: u32) -> bool {
        let place = place(flow.hash(), FLOWS);
        let Some(known) = &mut self.flows[place] else { return false };
        if known.flow != *flow {
            return false;
        }
        if known.socket == 0 {
            let passes = known.left > 0;
            known.left = known.left.saturating_sub(1);
            return passes;
        }
        // A socket that is held has no credit.
        let credit = &mut self.sockets[self::place(spread(known.socket), SOCKETS)];
        if credit.socket != known.socket || credit.left < charge {
            return false;
        }
        credit.left -= charge;
        true
    }

    /// Remembers the socket of a flow; 0: it has none.
    pub(super) fn know(&mut self, flow: Flow, socket: u64) {
        let known = Known { flow, socket, left: NOBODY_FRAMES };
        self.flows[place(flow.hash(), FLOWS)] = Some(known);
    }

    /// Returns the socket of a known flow.
    pub(super) fn socket_of(&self, flow: &Flow) -> Option<u64> {
        let known = self.flows[place(flow.hash(), FLOWS)].filter(|known| known.flow == *flow)?;
        Some(known.socket)
    }

    /// Asks for the room of a flow's socket, less what may be under way to it. Its credit is spent
    /// then.
    pub(super) fn ask(
        &mut self,
        source: &mut impl RoomSource,
        now: Nanos,
        flow: &Flow,
    ) -> Option<Room> {
        // Before the question: a frame that arrives in between is counted twice then, not never.
        let arrived = source.arrived(now, flow);
        let sent = source.sent();
        let mut room = source.ask(flow)?;
        let credit = self.credit(room.socket);
        let spent = credit.granted - credit.left;
        credit.granted = credit.left;
        room.in_flight = credit.flight.at_question(spent, sent, arrived);
        Some(room)
    }

    /// Gives a socket credit for this datagram and more, if it has room.
    pub(super) fn grant(&mut self, room: Room, charge: u32) -> bool {
        if !room.takes(charge) {
            return false;
        }
        let granted = room.credit(charge);
        let credit = self.credit(room.socket);
        let unasked = credit.granted - credit.left;
        (credit.socket, credit.left) = (room.socket, granted - charge);
        credit.granted = granted.saturating_add(unasked);
        true
    }

    /// Ends the credit of a socket that begins to be held.
    pub(super) fn end(&mut self, socket: u64) {
        let credit = self.credit(socket);
        if credit.socket == socket {
            (credit.granted, credit.left) = (credit.granted - credit.left, 0);
        }
    }

    /// Counts the charge of a frame that was written without credit.
    pub(super) fn note_spent(&mut self, socket: u64, charge: u32) {
        let granted = &mut self.credit(socket).granted;
        *granted = granted.saturating_add(charge);
    }

    fn credit(&mut self, socket: u64) -> &mut Credit {
        &mut self.sockets[place(spread(socket), SOCKETS)]
    }
}

#[inline]
fn spread(socket: u64) -> u64 {
    socket.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low bits are wanted")]
const fn place(hash: u64, places: usize) -> usize {
    hash as usize & (places - 1)
}
