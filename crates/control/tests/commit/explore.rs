//! Every interleaving of the first steps of two transactions on three members.
//!
//! A step is the arrival of the next message on one link, the completion of a write, or one crash
//! and restart. All choices of the first [`DEPTH`] steps are tried; then the run goes on in order,
//! with time, until it is at rest. The state machine is run anew for each sequence of choices.

use std::collections::{BTreeMap, VecDeque};

use proptest::test_runner::Config as Cases;
use sluice_base::{HostId, Nanos};
use sluice_control::commit::{
    Commit, Config, Done, Formats, Mark, Output, Recovered, Refused, Request, Seat, Start, Timing,
    WriteTicket,
};

use super::doc::Doc;
use super::host::Disk;
use super::world::proposal;

/// Steps of which all orders are tried, in the usual number of cases.
const DEPTH: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Written(usize),
    Arrives(usize, usize),
    Crash(usize),
}

struct Small {
    now: Nanos,
    machines: Vec<Commit<Doc<2>>>,
    disks: Vec<Disk>,
    marks: Vec<Option<Mark>>,
    incarnations: Vec<u64>,
    links: BTreeMap<(usize, usize), VecDeque<Vec<u8>>>,
    writes: BTreeMap<usize, (WriteTicket, Vec<sluice_control::commit::Record>)>,
    answers: Vec<Result<Done, Refused>>,
    may_crash: bool,
}

fn machine(host: usize, incarnation: u64, disk: Recovered, now: Nanos) -> Commit<Doc<2>> {
    let id = u16::try_from(host).expect("small") + 1;
    let doc = Doc::new(&[(1, 11), (2, 12), (3, 13)]);
    let config = Config {
        host: HostId(id),
        seat: Seat::new(10 + u64::from(id)).expect("not zero"),
        incarnation,
        seed: u64::from(id),
        timing: Timing::default(),
        start: if host == 0 { Start::Create(doc) } else { Start::Join },
        formats: Formats::OWN,
    };
    Commit::new(config, disk, now).expect("it starts")
}

impl Small {
    /// Makes a fabric at rest, with three voters.
    fn new() -> Self {
        let now = Nanos::from_millis(1_000);
        let start = |host| machine(host, 1, Recovered::default(), now);
        let mut small = Self {
            now,
            machines: (0..3).map(start).collect(),
            disks: vec![Disk::Keys(BTreeMap::new()); 3],
            marks: vec![None; 3],
            incarnations: vec![1; 3],
            links: BTreeMap::new(),
            writes: BTreeMap::new(),
            answers: Vec::new(),
            may_crash: false,
        };
        (0..3).for_each(|host| small.connect(host));
        small.rest(|small| small.machines.iter().all(|machine| machine.status().voters.len() == 3));
        small
    }

    fn connect(&mut self, host: usize) {
        for other in (0..3).filter(|other| *other != host) {
            let id = |host| HostId(u16::try_from(host).expect("small") + 1);
            for (a, b) in [(host, other), (other, host)] {
                self.machines[a].connected(self.now, id(b), false);
                self.machines[a].connected(self.now, id(b), true);
            }
        }
        (0..3).for_each(|host| self.drain(host));
    }

    fn drain(&mut self, host: usize) {
        if let Some(number) = self.machines[host].start_to_take() {
            self.incarnations[host] = number;
            self.machines[host].take_start(number);
        }
        while let Some(output) = self.machines[host].output() {
            match output {
                Output::Send { to, bytes } => {
                    let to = usize::from(to.0) - 1;
                    self.links.entry((host, to)).or_default().push_back(bytes);
                }
                Output::Write { ticket, records } => {
                    assert!(self.writes.insert(host, (ticket, records)).is_none());
                }
                Output::Keep(mark) => self.marks[host] = Some(mark),
                Output::Check { ticket, .. } => {
                    self.machines[host].checked(self.now, ticket, Ok(()));
                }
                Output::Answer { result, .. } => self.answers.push(result),
                Output::Diverged { .. } => panic!("two histories"),
                _ => {}
            }
        }
    }

    fn enabled(&self) -> Vec<Step> {
        let writes = self.writes.keys().map(|host| Step::Written(*host));
        let links = self.links.iter().filter(|(_, link)| !link.is_empty());
        let links = links.map(|((from, to), _)| Step::Arrives(*from, *to));
        let crashes = (0..3).filter(|_| self.may_crash).map(Step::Crash);
        writes.chain(links).chain(crashes).collect()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Written(host) => {
                let (ticket, records) = self.writes.remove(&host).expect("enabled");
                self.disks[host].write(&records);
                self.machines[host].persisted(self.now, ticket);
                self.drain(host);
            }
            Step::Arrives(from, to) => {
                let bytes = self.links.get_mut(&(from, to)).and_then(VecDeque::pop_front);
                let id = HostId(u16::try_from(from).expect("small") + 1);
                let _ = self.machines[to].receive(self.now, id, &bytes.expect("enabled"));
                self.drain(to);
            }
            Step::Crash(host) => {
                self.may_crash = false;
                self.writes.remove(&host);
                self.incarnations[host] += 1;
                let before = self.machines[host].revision();
                let disk = self.disks[host].read().with_mark(self.marks[host]);
                self.machines[host] = machine(host, self.incarnations[host], disk, self.now);
                assert!(self.machines[host].revision() >= before, "an older start");
                self.connect(host);
            }
        }
    }

    /// Goes on in order until nothing is left to do and a condition holds.
    fn rest(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..2_000 {
            while let Some(step) = self.enabled().into_iter().find(|s| !matches!(s, Step::Crash(_)))
            {
                self.step(step);
            }
            if is_done(self) {
                return;
            }
            self.now = self.now.after(Nanos::from_millis(25));
            for host in 0..3 {
                self.machines[host].tick(self.now);
                self.drain(host);
            }
        }
        let statuses: Vec<_> = self.machines.iter().map(Commit::status).collect();
        panic!("not at rest: {statuses:#?}");
    }

    fn is_at_rest(&self) -> bool {
        let first = self.machines[0].status();
        self.machines.iter().all(|machine| {
            let status = machine.status();
            status.progress == first.progress
                && status.reserved.is_empty()
                && status.leader.is_some()
        })
    }
}

/// Runs a sequence of choices; returns the numbers of choices that there were, and what was
/// committed.
fn run(changes: [&str; 2], choices: &[usize], depth: usize) -> (Vec<usize>, usize) {
    let mut small = Small::new();
    small.answers.clear();
    let before = small.machines[0].revision();
    for (host, change) in changes.iter().enumerate() {
        small.machines[host].submit(small.now, Request::Commit(proposal(change)));
        small.drain(host);
    }
    small.may_crash = true;
    let mut widths = Vec::new();
    for n in 0..depth {
        let enabled = small.enabled();
        if enabled.is_empty() {
            break;
        }
        widths.push(enabled.len());
        small.step(enabled[choices.get(n).copied().unwrap_or(0)]);
    }
    small.may_crash = false;
    small.rest(Small::is_at_rest);
    let committed = small.answers.iter().filter_map(|answer| match answer {
        Ok(Done::Committed { revision, .. }) => Some(*revision),
        _ => None,
    });
    let committed: Vec<_> = committed.collect();
    for machine in &small.machines {
        let history: Vec<_> = machine.history().filter(|record| record.revision > before).collect();
        for revision in &committed {
            assert!(history.iter().any(|record| record.revision == *revision), "lost: {choices:?}");
        }
        assert_eq!(machine.replica(), small.machines[0].replica(), "{choices:?}");
    }
    (widths, committed.len())
}

fn explore(changes: [&str; 2], depth: usize) -> (u64, [u64; 3]) {
    let (mut choices, mut runs, mut ends) = (vec![0; depth], 0, [0; 3]);
    loop {
        let (widths, committed) = run(changes, &choices, depth);
        runs += 1;
        ends[committed] += 1;
        // The next sequence, as a number whose digits have these widths.
        let Some(at) = (0..widths.len()).rev().find(|at| choices[*at] + 1 < widths[*at]) else {
            return (runs, ends);
        };
        choices[at] += 1;
        choices[at + 1..].fill(0);
    }
}

#[test]
fn two_transactions_in_every_order() {
    let depth = if Cases::default().cases > 256 { DEPTH + 1 } else { DEPTH };
    let (runs, ends) = explore(["add blue 1", "add green 2"], depth);
    println!("other keys, depth {depth}: {runs} orders, {ends:?} with 0, 1, 2 committed");
    assert!(ends[2] > 0);
    let (runs, ends) = explore(["add blue 1", "add blue 2"], depth);
    println!("same key, depth {depth}: {runs} orders, {ends:?} with 0, 1, 2 committed");
    assert_eq!(ends[2], 0, "one name twice");
    assert!(ends[1] > 0);
}
