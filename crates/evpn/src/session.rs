//! One connection with a neighbor (RFC 4271 section 8), from its OPEN on.
//!
//! ```text
//!   begin ── OPEN ──> OpenSent ── OPEN ──> OpenConfirm ── KEEPALIVE ──> Established
//!                        └───────────────────┴─ error, NOTIFICATION, hold timer ─┴──> ended
//! ```
//!
//! Bytes go in by [`Session::feed`], messages come out by [`Session::next`], and bytes for the
//! neighbor by [`Session::output`]. A session that has ended reads nothing; its last bytes are a
//! NOTIFICATION, unless the neighbor sent one.

use std::fmt;
use std::net::Ipv4Addr;

use sluice_base::Nanos;

use crate::wire::{self, Dialect, Heard, Notification, Open, Refresh, Update};

/// Hold time before the neighbor's OPEN (RFC 4271 section 8.2.2).
const HOLD_BEFORE_OPEN: Nanos = Nanos::from_millis(240_000);
/// Least time for a neighbor to take bytes (RFC 9687 section 4); twice the hold time, if that is
/// more.
const SEND_HOLD_MIN: Nanos = Nanos::from_millis(480_000);
/// Bytes that wait for a neighbor before more are made.
pub(crate) const OUTPUT_MAX: usize = 1 << 16;

/// States of RFC 4271 in which there is a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// The own OPEN was sent.
    OpenSent,
    /// The neighbor's OPEN was accepted.
    OpenConfirm,
    /// Routes may come.
    Established,
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The neighbor closed the connection, or the network did.
    Closed,
    /// The neighbor sent a NOTIFICATION: code and subcode.
    Told(u8, u8),
    /// This speaker sent one.
    Sent(u8, u8),
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, code, subcode) = match *self {
            Self::Closed => return f.write_str("the connection was closed, or none came about"),
            Self::Told(code, subcode) => ("the neighbor said", code, subcode),
            Self::Sent(code, subcode) => ("this host said", code, subcode),
        };
        write!(f, "{who}: {} ({code}/{subcode})", words(code, subcode))
    }
}

/// Returns the meaning of a NOTIFICATION (RFC 4271 section 6, RFC 4486, RFC 5492, RFC 9687).
const fn words(code: u8, subcode: u8) -> &'static str {
    match (code, subcode) {
        (1, _) => "error in a message's header",
        (2, 2) => "it expects another AS of the neighbor",
        (2, 3) => "the BGP identifier is zero, or its own",
        (2, 6) => "the hold time is refused",
        (2, 7) => "a capability is missing, most likely EVPN",
        (2, _) => "error in an OPEN",
        (3, _) => "error in an UPDATE",
        (4, _) => "nothing was heard for the hold time",
        (5, _) => "a message that does not belong there",
        (6, 1) => "too many routes",
        (6, 2) => "it is shut down",
        (6, 3) => "the neighbor is not configured any more",
        (6, 4) => "it is reset",
        (6, 5) => "the connection is refused; is this host configured there?",
        (6, 7) => "both connected, and the other connection stays",
        (6, _) => "it ends",
        (7, _) => "error in a route refresh",
        (8, _) => "the neighbor reads nothing",
        _ => "unknown error",
    }
}

/// The speaker's side of an OPEN, and the AS that the neighbor must have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) local_as: u32,
    pub(crate) router_id: Ipv4Addr,
    pub(crate) hold_s: u16,
    /// Time that neighbors give this speaker to come back, in seconds; at most 4095.
    pub(crate) restart_s: u16,
    pub(crate) remote_as: u32,
}

/// A message that the speaker follows.
#[derive(Debug)]
pub(crate) enum Said {
    /// The neighbor's OPEN: collisions are to be looked for.
    Open,
    /// The session is established.
    Established,
    /// Routes.
    Update(Box<Update>),
    /// A request for all routes, or a marker of the answer.
    Refresh(Refresh),
    /// The session has ended.
    Ended,
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    identity: Identity,
    state: State,
    ending: Option<Ending>,
    peer: Option<Open>,
    input: Vec<u8>,
    read: usize,
    output: Vec<u8>,
    written: usize,
    hold: Nanos,
    hold_at: Option<Nanos>,
    keepalive_at: Option<Nanos>,
    send_hold_at: Option<Nanos>,
}

impl Session {
    /// Begins on a new connection, with the own OPEN.
    pub(crate) fn begin(now: Nanos, identity: Identity) -> Self {
        let mut session = Self {
            identity,
            state: State::OpenSent,
            ending: None,
            peer: None,
            input: Vec::new(),
            read: 0,
            output: Vec::new(),
            written: 0,
            hold: HOLD_BEFORE_OPEN,
            hold_at: Some(now.after(HOLD_BEFORE_OPEN)),
            keepalive_at: None,
            send_hold_at: None,
        };
        wire::put_open(&mut session.output, identity);
        session.arm_send_hold(now);
        session
    }

    pub(crate) const fn state(&self) -> State {
        self.state
    }

    /// Returns why the session ended; `None` if it has not.
    pub(crate) const fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    pub(crate) const fn is_established(&self) -> bool {
        matches!((&self.ending, self.state), (None, State::Established))
    }

    /// Returns the neighbor's OPEN, if it was accepted.
    pub(crate) const fn peer(&self) -> Option<&Open> {
        self.peer.as_ref()
    }

    /// Takes bytes of the connection.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.ending.is_none() {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Reads the next message that matters to others; `None` if there is none.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Said> {
        while self.ending.is_none() {
            let heard = match wire::read(&self.input[self.read..], self.dialect()) {
                Ok(None) => {
                    self.input.drain(..self.read);
                    self.read = 0;
                    return None;
                }
                Ok(Some((size, heard))) => {
                    self.read += size;
                    self.hear(now, heard)
                }
                Err(notification) => {
                    self.end(&notification);
                    Some(Said::Ended)
                }
            };
            if heard.is_some() {
                return heard;
            }
        }
        None
    }

    fn dialect(&self) -> Dialect {
        Dialect {
            is_wide: self.peer.is_some_and(|open| open.has_wide_as),
            is_internal: self.identity.local_as == self.identity.remote_as,
        }
    }

    fn hear(&mut self, now: Nanos, heard: Heard) -> Option<Said> {
        match (self.state, heard) {
            (_, Heard::Notification(notification)) => {
                self.ending = Some(Ending::Told(notification.code, notification.subcode));
                self.disarm();
                Some(Said::Ended)
            }
            (State::OpenSent, Heard::Open(open)) => match open.check(self.identity) {
                Ok(()) => Some(self.accept(now, open)),
                Err(notification) => {
                    self.end(&notification);
                    Some(Said::Ended)
                }
            },
            (State::OpenConfirm, Heard::Keepalive) => {
                self.state = State::Established;
                self.arm_hold(now);
                Some(Said::Established)
            }
            (State::Established, Heard::Keepalive) => {
                self.arm_hold(now);
                None
            }
            (State::Established, Heard::Update(update)) => {
                self.arm_hold(now);
                Some(Said::Update(update))
            }
            // Other families are none of ours (RFC 2918 section 4).
            (State::Established, Heard::Refresh(refresh)) => refresh.map(Said::Refresh),
            (state, _) => {
                // Subcodes 1 to 3 name the state (RFC 6608 section 3).
                self.end(&Notification::new(5, state as u8 + 1));
                Some(Said::Ended)
            }
        }
    }

    fn accept(&mut self, now: Nanos, open: Open) -> Said {
        let hold_s = open.hold_s.min(self.identity.hold_s);
        self.hold = Nanos::from_millis(u64::from(hold_s) * 1_000);
        self.peer = Some(open);
        self.state = State::OpenConfirm;
        self.hold_at = None;
        self.arm_hold(now);
        self.keepalive(now);
        Said::Open
    }

    /// Sends a KEEPALIVE, and schedules the next one: a third of the hold time (RFC 4271 section
    /// 4.4).
    fn keepalive(&mut self, now: Nanos) {
        wire::put_keepalive(&mut self.output);
        self.keepalive_at = (self.hold > Nanos::ZERO).then(|| now.after(Nanos(self.hold.0 / 3)));
        self.arm_send_hold(now);
    }

    fn arm_hold(&mut self, now: Nanos) {
        self.hold_at = (self.hold > Nanos::ZERO).then(|| now.after(self.hold));
    }

    fn arm_send_hold(&mut self, now: Nanos) {
        let most = SEND_HOLD_MIN.max(Nanos(self.hold.0.saturating_mul(2)));
        self.send_hold_at.get_or_insert(now.after(most));
    }

    fn disarm(&mut self) {
        (self.hold_at, self.keepalive_at, self.send_hold_at) = (None, None, None);
    }

    /// Ends the session with a NOTIFICATION.
    pub(crate) fn end(&mut self, notification: &Notification) {
        if self.ending.is_some() {
            return;
        }
        wire::put_notification(&mut self.output, notification);
        self.ending = Some(Ending::Sent(notification.code, notification.subcode));
        self.disarm();
        (self.input, self.read) = (Vec::new(), 0);
    }

    /// Does what is due: KEEPALIVE, or the end of a session that is silent (RFC 4271 section 6.5)
    /// or takes nothing (RFC 9687).
    pub(crate) fn tick(&mut self, now: Nanos) {
        if self.ending.is_some() {
            return;
        }
        if self.hold_at.is_some_and(|at| at <= now) {
            self.end(&Notification::new(4, 0));
        } else if self.send_hold_at.is_some_and(|at| at <= now) {
            self.end(&Notification::new(8, 0));
        } else if self.keepalive_at.is_some_and(|at| at <= now) {
            self.keepalive(now);
        }
    }

    /// Returns the time at which [`Self::tick`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        [self.hold_at, self.keepalive_at, self.send_hold_at].into_iter().flatten().min()
    }

    /// Returns the bytes for the neighbor.
    pub(crate) fn output(&self) -> &[u8] {
        &self.output[self.written..]
    }

    /// Returns true if more may be put before the connection takes some.
    pub(crate) fn has_room(&self) -> bool {
        self.is_established() && self.output().len() < OUTPUT_MAX
    }

    /// Gives access to the end of the bytes for the neighbor.
    pub(crate) fn put(&mut self, now: Nanos, put: impl FnOnce(&mut Vec<u8>)) {
        put(&mut self.output);
        self.arm_send_hold(now);
    }

    /// Notes that the connection has taken some bytes.
    pub(crate) fn sent(&mut self, now: Nanos, size: usize) {
        self.written += size;
        self.send_hold_at = None;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else {
            if self.written > OUTPUT_MAX {
                self.output.drain(..self.written);
                self.written = 0;
            }
            self.arm_send_hold(now);
        }
    }

    /// Notes that the connection is gone.
    pub(crate) fn closed(&mut self) {
        self.ending.get_or_insert(Ending::Closed);
        self.disarm();
    }
}

#[cfg(test)]
mod tests;
