//! One neighbor: its connections, and the time of the next attempt (RFC 4271 section 8.2.2, states
//! Idle, Connect and Active).

use sluice_base::{Nanos, Prng};

use crate::config::NeighborConfig;
use crate::exports::Backlog;
use crate::session::{Ending, Session, State};

/// First time to the next attempt to connect; doubled with each attempt that comes to nothing.
const RETRY_MIN: Nanos = Nanos::from_millis(1_000);
/// Doublings of that time.
const RETRY_DOUBLINGS: u32 = 5;
/// Time for which a neighbor with too many routes is not spoken to.
pub(crate) const IDLE: Nanos = Nanos::from_millis(60_000);

/// Index of a neighbor in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighborId(pub usize);

/// The side that opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// This speaker.
    Active,
    /// The neighbor.
    Passive,
}

impl Side {
    pub(crate) const ALL: [Self; 2] = [Self::Active, Self::Passive];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Active => Self::Passive,
            Self::Passive => Self::Active,
        }
    }
}

/// A connection with a neighbor: there is at most one of each side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The neighbor.
    pub neighbor: NeighborId,
    /// The side that opened it.
    pub side: Side,
}

/// A neighbor.
#[derive(Debug)]
pub(crate) struct Neighbor {
    pub(crate) config: NeighborConfig,
    sessions: [Option<Session>; 2],
    /// True while the driver tries to connect.
    is_connecting: bool,
    retry_at: Option<Nanos>,
    idle_until: Option<Nanos>,
    failures: u32,
    /// End of the time for which routes of an ended session stay.
    pub(crate) stale_until: Option<Nanos>,
    pub(crate) backlog: Backlog,
    pub(crate) last_ending: Option<Ending>,
}

impl Neighbor {
    pub(crate) fn new(now: Nanos, config: NeighborConfig) -> Self {
        Self {
            config,
            sessions: [None, None],
            is_connecting: false,
            retry_at: (!config.is_passive).then_some(now),
            idle_until: None,
            failures: 0,
            stale_until: None,
            backlog: Backlog::default(),
            last_ending: None,
        }
    }

    pub(crate) const fn session(&self, side: Side) -> Option<&Session> {
        self.sessions[side as usize].as_ref()
    }

    pub(crate) const fn session_mut(&mut self, side: Side) -> Option<&mut Session> {
        self.sessions[side as usize].as_mut()
    }

    /// Puts a new session in its place. The driver has no other connection of this side.
    pub(crate) fn begin(&mut self, side: Side, session: Session) {
        self.is_connecting &= side == Side::Passive;
        self.sessions[side as usize] = Some(session);
    }

    /// Returns true if a new connection from the neighbor is welcome.
    pub(crate) const fn admits(&self) -> bool {
        self.idle_until.is_none() && self.session(Side::Passive).is_none()
    }

    /// Returns the side of the established session.
    pub(crate) fn established(&self) -> Option<Side> {
        let is_up = |side: &Side| self.session(*side).is_some_and(Session::is_established);
        Side::ALL.into_iter().find(is_up)
    }

    /// Returns the state of the session that is farthest.
    pub(crate) fn state(&self) -> Option<State> {
        let alive = self.sessions.iter().flatten().filter(|session| session.ending().is_none());
        alive.map(Session::state).max()
    }

    /// Returns the side of the connection that a collision ends (RFC 4271 section 6.8, RFC 6286
    /// section 2.3), after the OPEN of `opened` came in. `own` and its counterpart are pairs of BGP
    /// identifier and AS.
    pub(crate) fn collision(&self, opened: Side, own: (u32, u32)) -> Option<Side> {
        let other = self.session(opened.other()).filter(|session| session.ending().is_none())?;
        if other.state() == State::Established {
            return Some(opened);
        }
        if other.state() != State::OpenConfirm {
            return None;
        }
        let open = self.session(opened)?.peer()?;
        let theirs = (open.router_id.to_bits(), open.local_as);
        // The connection of the higher speaker stays.
        Some(if own > theirs { Side::Passive } else { Side::Active })
    }

    /// Notes that a session is established: the next attempt after it is the first one again.
    pub(crate) const fn is_up(&mut self) {
        (self.failures, self.retry_at) = (0, None);
    }

    /// Does not speak to the neighbor for a while.
    pub(crate) const fn rest(&mut self, now: Nanos) {
        self.idle_until = Some(now.after(IDLE));
    }

    /// Notes that a connection is gone, or that an attempt failed.
    pub(crate) fn gone(&mut self, now: Nanos, side: Side, random: &mut Prng) {
        self.sessions[side as usize] = None;
        self.is_connecting &= side == Side::Passive;
        if self.config.is_passive || self.is_connecting {
            return;
        }
        if self.sessions.iter().all(Option::is_none) {
            let span = RETRY_MIN.0 << self.failures.min(RETRY_DOUBLINGS);
            self.failures = self.failures.saturating_add(1);
            // Three quarters to the whole of it (RFC 4271 section 10).
            let jittered = span - random.below(span / 4);
            self.retry_at = Some(now.after(Nanos(jittered)));
        }
    }

    /// Returns true if the driver is to connect now.
    pub(crate) fn wants_connection(&mut self, now: Nanos) -> bool {
        if self.idle_until.is_some_and(|until| until <= now) {
            self.idle_until = None;
        }
        let is_due = self.retry_at.is_some_and(|at| at <= now);
        if !is_due || self.idle_until.is_some() {
            return false;
        }
        self.retry_at = None;
        // A connection of the neighbor's may be on its way already.
        self.is_connecting = self.sessions.iter().all(Option::is_none);
        self.is_connecting
    }

    /// Returns the next time at which something is due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let retry = self.retry_at.map(|at| at.max(self.idle_until.unwrap_or_default()));
        let sessions = self.sessions.iter().flatten().filter_map(Session::deadline);
        [retry, self.idle_until, self.stale_until].into_iter().flatten().chain(sessions).min()
    }
}
