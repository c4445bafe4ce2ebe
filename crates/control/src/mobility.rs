//! Claims for endpoints that another host has: MAC mobility as in RFC 7432 clause 15, and the
//! history of moves.
//!
//! ```text
//!   own port learns ──> learn ──┬─ nobody ever had it ────> a claim without moves
//!                               ├─ nobody has it any more > one move more than the last claim,
//!                               │                           or as many, if it was this host's
//!                               ├─ this host has it ──────> the same moves; maybe another port
//!                               ├─ another has it ────────> one move more than any claim known
//!                               │    ├─ … and it is to stay ──> refused: sticky, bound
//!                               │    └─ … and it moves on ────> refused: frozen
//!   changes of the table ───────> record ──> history, moves within the window
//! ```
//!
//! **Damping** (clause 15.1): an endpoint that moved [`Limits::moves`] times within
//! [`Limits::window`] is reported. If these moves came in a row, each less than
//! [`Limits::together`] after the one before, and so does the next, the endpoint most likely exists
//! twice: then it is frozen. This host refuses to claim it, so that it stays where it is, until
//! some time has passed or [`Mobility::clear`] is called. An endpoint that moves more slowly is at
//! one place after the other (a virtual router that changes hands, a bond that fails over), and is
//! frozen only with [`Often::Freeze`]. Every host counts all moves it hears of, its own and the
//! others', and so all hosts come to the same result. Claims of others are never refused, or tables
//! would differ.
//!
//! **An endpoint that is withdrawn before it is claimed elsewhere** has moved as well: the sequence
//! goes on, and the move is in the history. Such a move is no reason for alarm, because the
//! endpoint was never there twice.
//!
//! Configuration ([`Origin::Bound`]) is a decision of an operator, and prevails over sticky
//! endpoints and freezes. The claim of a stale host prevails over nothing.
//!
//! **Limits.** One ring holds the last [`Limits::history`] moves of all endpoints. A move that
//! falls out of the ring within the window is no longer counted, so that more moves than the ring
//! holds freeze later. The number of frozen endpoints is bounded; beyond it the endpoint thaws that
//! would be the first to thaw. [`Limits::departed`] endpoints that no host claims any more are
//! remembered; the sequence of any other endpoint begins anew.

mod departed;

use alloc::collections::{BTreeMap, VecDeque};

use sluice_base::{HostId, Nanos};

use self::departed::AllDeparted;
use crate::table::{Change, Holder, OwnerState, Table};
use crate::vport::{Claim, Key, Origin};

/// Reaction to an endpoint that moves too often, one place after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Often {
    /// The endpoint is reported.
    #[default]
    Warn,
    /// The endpoint is frozen as well.
    Freeze,
}

/// Thresholds of damping, and bounds of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Moves within the window that are no reason for alarm (N of RFC 7432 clause 15.1); 0: no
    /// number is.
    pub moves: u32,
    /// The window (M of RFC 7432 clause 15.1).
    pub window: Nanos,
    /// Time for which an endpoint is frozen; not less than the window, so that it starts anew.
    pub freeze: Nanos,
    /// Largest time between two moves that suggests an endpoint which exists twice.
    pub together: Nanos,
    /// Reaction to endpoints that move often, but more slowly than that.
    pub often: Often,
    /// Moves that are remembered, of all endpoints.
    pub history: usize,
    /// Number of endpoints that are frozen at a time.
    pub frozen: usize,
    /// Endpoints without a claim whose last host is remembered.
    pub departed: usize,
}

impl Default for Limits {
    /// Returns 5 moves in 180 s, the defaults of RFC 7432 clause 15.1; frozen for half an hour.
    fn default() -> Self {
        Self {
            moves: 5,
            window: Nanos::from_millis(180_000),
            freeze: Nanos::from_millis(1_800_000),
            together: Nanos::from_millis(1_000),
            often: Often::Warn,
            history: 65_536,
            frozen: 4_096,
            departed: 65_536,
        }
    }
}

/// Reason why an endpoint went from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// An own port learned the endpoint.
    Learned,
    /// Another host claimed the endpoint, or changed its claim.
    Announced,
    /// The host of the endpoint withdrew its claim.
    Withdrawn,
    /// The host of the endpoint ended a snapshot without it.
    Swept,
    /// The host of the endpoint became stale.
    OwnerStale,
    /// A stale host became live.
    OwnerLive,
    /// The host of the endpoint was evicted.
    Evicted,
}

/// A move of an endpoint between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Time at which this host came to know.
    pub when: Nanos,
    /// The endpoint.
    pub key: Key,
    /// The host before.
    pub from: HostId,
    /// The host after.
    pub to: HostId,
    /// Reason of the move.
    pub why: Why,
}

/// Reason why an endpoint of an own port is not claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The endpoint is sticky at the port that has it.
    Sticky(Holder),
    /// The endpoint is configured at the port that has it.
    Bound(Holder),
    /// The endpoint moves too often.
    Frozen {
        /// Time of the thaw.
        until: Nanos,
        /// True if the endpoint was frozen just now, so that it is to be reported: once for each
        /// freeze.
        alarm: bool,
    },
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    what: Move,
    /// True if the move is among the recent moves of its endpoint.
    counts: bool,
}

/// Moves of an endpoint within the window.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    moves: u32,
    /// Number of last moves that followed another one at once.
    row: u32,
    last: Nanos,
}

impl Recent {
    /// Returns true if a move now follows another one at once.
    fn is_followed(&self, now: Nanos, together: Nanos) -> bool {
        self.moves > 0 && now.since(self.last) < together
    }
}

/// The rules of mobility, with their memory.
#[derive(Debug)]
pub struct Mobility {
    limits: Limits,
    /// Moves in the order of time.
    history: VecDeque<Remembered>,
    /// Number of moves, from the beginning of the history, that are older than the window.
    old_count: usize,
    recent: BTreeMap<Key, Recent>,
    /// Time of the thaw, by endpoint.
    frozen: BTreeMap<Key, Nanos>,
    departed: AllDeparted,
}

impl Mobility {
    /// Creates the rules, without any move.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let least = limits.history.min(limits.frozen).min(limits.departed);
        assert!(least > 0, "something is remembered");
        assert!(limits.freeze >= limits.window, "what thaws has no recent moves");
        Self {
            limits,
            history: VecDeque::new(),
            old_count: 0,
            recent: BTreeMap::new(),
            frozen: BTreeMap::new(),
            departed: AllDeparted::new(limits.departed),
        }
    }

    /// Returns the thresholds.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the thresholds. The bounds of memory stay as they are, and so do endpoints that are
    /// frozen.
    ///
    /// # Panics
    /// If endpoints would be frozen for less than the window.
    pub const fn set_thresholds(&mut self, limits: &Limits) {
        assert!(limits.freeze.0 >= limits.window.0, "what thaws has no recent moves");
        let Limits { history, frozen, departed, .. } = self.limits;
        self.limits = Limits { history, frozen, departed, ..*limits };
    }

    /// Returns the claim of host `me` when one of its ports learned an endpoint: `learned` with the
    /// right number of moves. A claim of the same port keeps its strongest origin.
    ///
    /// # Errors
    /// The endpoint must not be claimed.
    pub fn learn(
        &mut self,
        now: Nanos,
        table: &Table,
        me: HostId,
        learned: &Claim,
    ) -> Result<Claim, Refusal> {
        let mut claims = table.claims(learned.key);
        let Some(winner) = claims.next() else {
            let moves = self.departed.get(learned.key).map_or(0, |last| last.moves_at(me));
            return Ok(Claim { moves, ..*learned });
        };
        let holder = Holder { owner: winner.owner, port: winner.claim.port };
        let mine = winner.owner == me;
        if mine && holder.port == learned.port {
            let origin = learned.origin.max(winner.claim.origin);
            return Ok(Claim { origin, moves: winner.claim.moves, ..*learned });
        }
        if winner.state == OwnerState::Live && learned.origin != Origin::Bound {
            match winner.claim.origin {
                Origin::Learned => {}
                Origin::Sticky => return Err(Refusal::Sticky(holder)),
                Origin::Bound => return Err(Refusal::Bound(holder)),
            }
        }
        if mine {
            return Ok(Claim { moves: winner.claim.moves, ..*learned });
        }
        if learned.origin != Origin::Bound {
            self.damp(now, learned.key)?;
        }
        let moves = claims.map(|vport| vport.claim.moves).fold(winner.claim.moves, u32::max);
        Ok(Claim { moves: moves.saturating_add(1), ..*learned })
    }

    /// Checks that an endpoint may move once more.
    fn damp(&mut self, now: Nanos, key: Key) -> Result<(), Refusal> {
        if let Some(until) = self.frozen_until(now, key) {
            return Err(Refusal::Frozen { until, alarm: false });
        }
        self.frozen.remove(&key);
        self.forget_old(now);
        let Limits { moves: most, often, together, .. } = self.limits;
        let recent = self.recent.get(&key).copied().unwrap_or_default();
        let count = match often {
            Often::Freeze => recent.moves,
            Often::Warn if recent.is_followed(now, together) => recent.row + 1,
            Often::Warn => 0,
        };
        if most == 0 || count < most {
            return Ok(());
        }
        if self.frozen.len() == self.limits.frozen {
            let first = self.frozen.iter().min_by_key(|(_, until)| **until).map(|(key, _)| *key);
            self.frozen.remove(&first.expect("there are so many"));
        }
        let until = now.after(self.limits.freeze);
        self.frozen.insert(key, until);
        Err(Refusal::Frozen { until, alarm: true })
    }

    /// Remembers a change of the table, if it is a move. The caller passes every change, in the
    /// order of time. True if the endpoint has moved too often just now, so that it is to be
    /// reported.
    pub fn record(&mut self, now: Nanos, change: &Change, why: Why) -> bool {
        let key = change.key;
        let (from, to, counts) = match (change.before, change.after) {
            (Some(before), Some(after)) => (before.owner, after.owner, true),
            (Some(before), None) => {
                self.departed.put(key, before.owner, change.moves);
                return false;
            }
            (None, Some(after)) => match self.departed.take(key) {
                Some(last) => (last.from, after.owner, false),
                None => return false,
            },
            (None, None) => return false,
        };
        from != to && self.remember(Move { when: now, key, from, to, why }, counts)
    }

    fn remember(&mut self, what: Move, counts: bool) -> bool {
        let Move { when: now, key, .. } = what;
        self.forget_old(now);
        if self.history.len() == self.limits.history {
            let first = self.history.pop_front().expect("something is remembered");
            self.uncount(first);
            self.old_count = self.old_count.saturating_sub(1);
        }
        if !counts {
            self.history.push_back(Remembered { what, counts });
            return false;
        }
        let recent = self.recent.entry(key).or_default();
        let is_at_once = recent.is_followed(now, self.limits.together);
        recent.row = if is_at_once { recent.row + 1 } else { 0 };
        recent.moves += 1;
        recent.last = now;
        self.history.push_back(Remembered { what, counts });
        recent.moves == self.limits.moves
    }

    /// Returns true if an endpoint has moved too often within the window.
    #[must_use]
    pub fn moves_often(&self, key: Key) -> bool {
        let most = self.limits.moves;
        most > 0 && self.recent.get(&key).is_some_and(|recent| recent.moves >= most)
    }

    /// Iterates over the remembered moves of an endpoint, the oldest first. Looks through the moves
    /// of all endpoints.
    pub fn history(&self, key: Key) -> impl Iterator<Item = Move> + '_ {
        self.history.iter().map(|remembered| remembered.what).filter(move |what| what.key == key)
    }

    /// Returns the time until which an endpoint is frozen, if it is.
    #[must_use]
    pub fn frozen_until(&self, now: Nanos, key: Key) -> Option<Nanos> {
        self.frozen.get(&key).copied().filter(|until| *until > now)
    }

    /// Iterates over the frozen endpoints, in order, each with the time of its thaw.
    pub fn frozen(&self, now: Nanos) -> impl Iterator<Item = (Key, Nanos)> + '_ {
        let all = self.frozen.iter().map(|(key, until)| (*key, *until));
        all.filter(move |(_, until)| *until > now)
    }

    /// Thaws an endpoint, and ignores its moves until now. True if it was frozen.
    pub fn clear(&mut self, now: Nanos, key: Key) -> bool {
        let was = self.frozen.remove(&key).is_some_and(|until| until > now);
        for remembered in self.history.iter_mut().skip(self.old_count) {
            remembered.counts &= remembered.what.key != key;
        }
        self.recent.remove(&key);
        was
    }

    /// Ceases to count moves that have left the window.
    fn forget_old(&mut self, now: Nanos) {
        while let Some(oldest) = self.history.get_mut(self.old_count)
            && now.since(oldest.what.when) >= self.limits.window
        {
            let was = *oldest;
            oldest.counts = false;
            self.old_count += 1;
            self.uncount(was);
        }
    }

    fn uncount(&mut self, remembered: Remembered) {
        if !remembered.counts {
            return;
        }
        let recent = self.recent.get_mut(&remembered.what.key).expect("it counts");
        recent.moves -= 1;
        if recent.moves == 0 {
            self.recent.remove(&remembered.what.key);
        }
    }
}

#[cfg(test)]
mod tests;
