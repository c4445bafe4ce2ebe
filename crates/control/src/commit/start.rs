//! Start of a host: with an empty disk, or with what a disk holds.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};
use core::fmt;

use sluice_base::{HostId, Nanos, Prng};

use super::Commit;
use super::drive::{Batch, Writing};
use super::format::Formats;
use super::lead::Leading;
use super::log::Log;
use super::node::{Node, Ticks, node_of};
use super::origin::Origin;
use super::record::{Conf, Record};
use super::recovered::{Recovered, Unreadable};
use super::reserve::Held;
use super::state::State;
use super::surface::{Epoch, Replica, Seat};
use super::timing::Timing;

/// Index of the first snapshot of a fabric, so that no member begins without one.
const FIRST: u64 = 1;

/// Beginning of a host whose disk is empty.
#[derive(Clone, Debug)]
pub enum Start<R> {
    /// The first member of a new fabric, with its document.
    Create(R),
    /// A host that was or will be made a member by others.
    Join,
}

/// Settings of a host.
#[derive(Clone, Debug)]
pub struct Config<R> {
    /// This host.
    pub host: HostId,
    /// Its disk's seat; that of the disk if it has one ([`Recovered::seat`]).
    pub seat: Seat,
    /// Number of this start: higher than at all earlier ones ([`Commit::start_to_take`]).
    pub incarnation: u64,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Times of the protocol.
    pub timing: Timing,
    /// Beginning, if the disk is empty.
    pub start: Start<R>,
    /// Formats of its messages: [`Formats::OWN`], or those of another version of the program.
    pub formats: Formats,
}

/// A host that cannot start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The disk.
    Disk(Unreadable),
    /// The settings.
    Config(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(why) => why.fmt(f),
            Self::Config(why) => f.write_str(why),
        }
    }
}

impl core::error::Error for StartError {}

fn unreadable(why: String) -> StartError {
    StartError::Disk(Unreadable(why))
}

/// Returns the contents of the disk of a new host, and the records that make them durable.
fn begin<R: Replica>(config: &Config<R>) -> Result<(Recovered, Vec<Record>), StartError> {
    let (seat, mut disk) = (config.seat, Recovered::default());
    let Start::Create(replica) = &config.start else {
        disk.identity = Some((seat, Epoch::default()));
        return Ok((disk, vec![Record::Identity { seat, epoch: Epoch::default() }]));
    };
    let members = replica.members();
    if !members.iter().any(|member| (member.host, member.seat) == (config.host, seat)) {
        let host = config.host.0;
        return Err(StartError::Config(format!("host {host} is no member of its own fabric")));
    }
    let epoch = Epoch { number: 1, founder: config.host, base: 0 };
    let state = State::new(replica.clone(), FIRST).to_bytes();
    let conf = Conf { voters: vec![node_of(config.host, seat)], learners: Vec::new() };
    disk.identity = Some((seat, epoch));
    disk.hard = (1, 0, FIRST);
    disk.snapshot = Some((FIRST, 1, conf.clone(), state.clone()));
    let records = vec![
        Record::Identity { seat, epoch },
        Record::HardState { term: 1, vote: 0, commit: FIRST },
        Record::Snapshot { index: FIRST, term: 1, conf, state },
    ];
    Ok((disk, records))
}

impl<R: Replica> Commit<R> {
    /// Starts a host from what its disk holds.
    ///
    /// # Errors
    /// The disk holds something that does not fit together, or the settings do not fit the disk.
    pub fn new(config: Config<R>, disk: Recovered, now: Nanos) -> Result<Self, StartError> {
        let has_joined = matches!(config.start, Start::Join);
        let (disk, records) = if disk.is_empty() { begin(&config)? } else { (disk, Vec::new()) };
        let (seat, epoch) = disk.identity.unwrap_or((config.seat, Epoch::default()));
        if seat != config.seat {
            return Err(StartError::Config("the disk has another seat than the settings".into()));
        }
        let bytes = disk.snapshot.as_ref().map(|(.., state)| state).or(disk.kept.as_ref());
        let state = bytes.map(|bytes| State::parse(bytes)).transpose().map_err(unreadable)?;
        let snapshot = disk.snapshot.unwrap_or_default();
        let revision = state.as_ref().map_or(snapshot.0, |state| state.revision);
        if disk.kept.is_none() && revision != snapshot.0 {
            return Err(unreadable("the snapshot is of another entry than it says".into()));
        }
        let (base, conf, bytes) = ((snapshot.0, snapshot.1), snapshot.2, snapshot.3);
        let log = Log::new(base, disk.entries, disk.hard, conf, &bytes);
        let timing = config.timing;
        let ticks = Ticks { heartbeat: timing.heartbeat, election: timing.election };
        let mut prng = Prng::new(config.seed ^ sluice_base::mix(config.incarnation));
        let own = node_of(config.host, seat);
        let node = Node::new(own, log, ticks, &mut prng).map_err(unreadable)?;
        let held = disk.reservations.into_iter();
        let (term, vote, commit) = disk.hard;
        // A mark does not outlive the machine.
        let marked = disk.is_marked.then_some(Record::HardState { term, vote, commit }).into_iter();
        let mut commit = Self {
            own: config.host,
            seat,
            incarnation: config.incarnation,
            formats: config.formats,
            has_joined,
            timing,
            prng,
            now,
            next_tick: now.after(timing.tick),
            next_progress: now.after(timing.progress),
            epoch,
            state,
            is_stale: disk.kept.is_some(),
            replay_to: disk.hard.2,
            node,
            peers: BTreeMap::new(),
            held: held.map(|(id, keys, change)| (id, Held::found(keys, change, now))).collect(),
            vetoes: VecDeque::new(),
            origin: Origin::default(),
            leading: Leading::default(),
            durable_vote: if records.is_empty() { (disk.hard.0, disk.hard.1) } else { (0, 0) },
            pending: Batch::first(marked.chain(records).collect(), (disk.hard.0, disk.hard.1)),
            writing: Writing::default(),
            aside: disk.aside,
            disk: None,
            halted: None,
            removed: disk.removed,
            next_ticket: 0,
            next_request: 0,
            out: VecDeque::new(),
        };
        commit.pump();
        commit.node.campaign_alone(&mut commit.prng);
        commit.pump();
        Ok(commit)
    }
}
