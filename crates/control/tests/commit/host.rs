//! One host of the simulation: the real state machine, in one of two versions, and its disk.

use std::collections::BTreeMap;

use sluice_base::{HostId, Nanos};
use sluice_control::commit::{
    CheckTicket, Commit, Config, Formats, Mark, Output, Record, Recovered, Refused, Request,
    RequestId, Seat, Start, Status, Store, Timing, Transaction, Unwelcome, WriteTicket,
};

use super::doc::Doc;

/// The state machine as an older or the current version of the program has it.
pub(crate) enum Machine {
    Old(Box<Commit<Doc<1>>>),
    New(Box<Commit<Doc<2>>>),
}

macro_rules! each {
    ($self:expr, $commit:ident => $what:expr) => {
        match $self {
            Machine::Old($commit) => $what,
            Machine::New($commit) => $what,
        }
    };
}

impl Machine {
    pub(crate) fn output(&mut self) -> Option<Output> {
        each!(self, commit => commit.output())
    }

    pub(crate) fn deadline(&self) -> Option<Nanos> {
        each!(self, commit => commit.deadline())
    }

    pub(crate) fn tick(&mut self, now: Nanos) {
        each!(self, commit => commit.tick(now));
    }

    pub(crate) fn connected(&mut self, now: Nanos, host: HostId, is: bool) {
        each!(self, commit => commit.connected(now, host, is));
    }

    pub(crate) fn start_to_take(&self) -> Option<u64> {
        each!(self, commit => commit.start_to_take())
    }

    pub(crate) fn take_start(&mut self, number: u64) {
        each!(self, commit => commit.take_start(number));
    }

    pub(crate) fn submit(&mut self, now: Nanos, request: Request) -> RequestId {
        each!(self, commit => commit.submit(now, request))
    }

    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        from: HostId,
        bytes: &[u8],
    ) -> Result<(), Unwelcome> {
        each!(self, commit => commit.receive(now, from, bytes))
    }

    pub(crate) fn checked(&mut self, now: Nanos, ticket: CheckTicket, result: Result<(), String>) {
        each!(self, commit => commit.checked(now, ticket, result));
    }

    pub(crate) fn persisted(&mut self, now: Nanos, ticket: WriteTicket) {
        each!(self, commit => commit.persisted(now, ticket));
    }

    pub(crate) fn write_failed(&mut self, now: Nanos, ticket: WriteTicket, why: &str) {
        each!(self, commit => commit.write_failed(now, ticket, why));
    }

    pub(crate) fn status(&self) -> Status {
        each!(self, commit => commit.status())
    }

    pub(crate) fn revision(&self) -> u64 {
        each!(self, commit => commit.revision())
    }

    pub(crate) fn history(&self) -> Vec<Transaction> {
        each!(self, commit => commit.history().cloned().collect())
    }

    pub(crate) fn inverses(&self, back_to: u64) -> Result<Vec<Vec<u8>>, Refused> {
        each!(self, commit => commit.inverses(back_to))
    }

    pub(crate) fn reservations(&self) -> usize {
        each!(self, commit => commit.reservations().count())
    }

    pub(crate) fn aside(&self) -> usize {
        each!(self, commit => commit.aside().iter().map(|(_, entries)| entries.len()).sum())
    }

    /// The document's names and members.
    pub(crate) fn doc(&self) -> Option<Doc<2>> {
        match self {
            Self::Old(commit) => commit.replica().map(|doc| {
                let (names, members) = (doc.names.clone(), doc.members.clone());
                Doc { names, members, gone: doc.gone.clone() }
            }),
            Self::New(commit) => commit.replica().cloned(),
        }
    }
}

/// Durable records: by key, or one after the other.
#[derive(Clone, Debug)]
pub(crate) enum Disk {
    Keys(BTreeMap<Vec<u8>, Vec<u8>>),
    Log(Vec<Vec<u8>>),
}

impl Store for BTreeMapStore<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    fn remove(&mut self, first: &[u8], end: &[u8]) {
        self.0.retain(|key, _| key.as_slice() < first || key.as_slice() >= end);
    }
}

struct BTreeMapStore<'a>(&'a mut BTreeMap<Vec<u8>, Vec<u8>>);

impl Disk {
    pub(crate) fn write(&mut self, records: &[Record]) {
        for record in records {
            match self {
                Self::Keys(map) => record.store(&mut BTreeMapStore(map)),
                Self::Log(log) => log.push(record.to_bytes()),
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::Keys(map) => map.clear(),
            Self::Log(log) => log.clear(),
        }
    }

    pub(crate) fn read(&self) -> Recovered {
        let records: Vec<&[u8]> = match self {
            Self::Keys(map) => map.values().map(Vec::as_slice).collect(),
            Self::Log(log) => log.iter().map(Vec::as_slice).collect(),
        };
        Recovered::from_records(records).expect("a disk that was written by records")
    }
}

/// A host with its disk. `machine` is `None` while it is down.
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) seat: u64,
    pub(crate) version: u8,
    /// Formats of its messages, in version 2.
    pub(crate) formats: Formats,
    /// Counts its starts, for the simulation.
    pub(crate) incarnation: u64,
    /// Number of the last start, on its disk.
    pub(crate) starts: u64,
    pub(crate) machine: Option<Machine>,
    pub(crate) disk: Disk,
    /// The mark, as the process wrote it, and as it has reached the disk some time.
    pub(crate) mark: Option<Mark>,
    pub(crate) old_mark: Option<Mark>,
    /// The write on its way.
    pub(crate) writing: Option<(WriteTicket, Vec<Record>)>,
    /// Document with which the host creates the fabric, if its disk is empty.
    pub(crate) create: Option<Doc<2>>,
    /// Time until which its disk is full, and slow.
    pub(crate) full_until: Nanos,
    pub(crate) slow_until: Nanos,
    /// Added to the time of the simulation: clocks jump.
    pub(crate) clock: Nanos,
    pub(crate) is_removed: bool,
}

impl Host {
    pub(crate) fn start(&mut self, now: Nanos, seed: u64) {
        self.incarnation += 1;
        self.starts += 1;
        let disk = self.disk.read().with_mark(self.mark);
        let (id, seat) = (self.id, Seat::new(self.seat).expect("not zero"));
        let (incarnation, timing) = (self.starts, Timing::default());
        let seed = seed ^ u64::from(id.0) << 32;
        let now = now.after(self.clock);
        let machine = if self.version == 1 {
            let start = self.create.as_ref().map_or(Start::Join, |doc| {
                let (names, members) = (doc.names.clone(), doc.members.clone());
                Start::Create(Doc { names, members, gone: doc.gone.clone() })
            });
            let formats = Formats::new(1, 1).expect("the first");
            let config = Config { host: id, seat, incarnation, seed, timing, start, formats };
            Machine::Old(Box::new(Commit::new(config, disk, now).expect("it starts")))
        } else {
            let start = self.create.clone().map_or(Start::Join, Start::Create);
            let formats = self.formats;
            let config = Config { host: id, seat, incarnation, seed, timing, start, formats };
            Machine::New(Box::new(Commit::new(config, disk, now).expect("it starts")))
        };
        self.machine = Some(machine);
        self.writing = None;
    }
}
