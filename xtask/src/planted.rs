//! `cargo xtask planted`: checks the checkers.
//!
//! Each file `planted/NAME.patch` is a fault that a test must catch. The fault is applied to a
//! scratch copy of the work tree, never to the work tree itself, and the test named in its header
//! must fail there:
//!
//! ```text
//!   copy work tree ──> named test passes ──> for each fault:
//!                            │ no              apply ──> compiles ──> test fails ──> copy again
//!                            │                  │ no       │ no         │ no
//!                            └──────────────────┴──────────┴────────────┴──> NOT CAUGHT
//! ```
//!
//! A fault that does not compile, a test that crashes or hangs, and a patch that does not apply any
//! more prove nothing and count as not caught.
//!
//! Building takes longer than testing. The copies and their build folders stay in the target
//! folder, and faults of one test program follow each other, so that only what a fault touches is
//! built again. There are two copies: one worker takes faults from the front of the line, the other
//! from its end, so that no more than one package is worked on by both.

mod fault;
mod scratch;
mod verdict;

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Result, anyhow, bail};

use crate::workspace;
use fault::{Fault, Test};
use scratch::{Ended, Scratch, TIME_MAX, TIME_MAX_FIRST};
use verdict::Verdict;

/// Scratch copies at work at the same time. Each has the memory of a compiler.
const WORKERS_MAX: usize = 2;

/// Runs the faults whose name contains `only`, or lists them. `false` if one is not caught.
pub(crate) fn run(only: Option<&str>, list: bool) -> Result<bool> {
    let mut faults = fault::load()?;
    faults.retain(|fault| only.is_none_or(|only| fault.name.contains(only)));
    if faults.is_empty() {
        bail!("no fault in planted/ has such a name; `cargo xtask planted --list` shows them");
    }
    if list {
        for fault in &faults {
            println!("{}: {}\n    caught by: {}", fault.name, fault.what, fault.test);
        }
        return Ok(true);
    }
    let home = workspace::metadata()?.target_directory.join("planted");
    let work = Work::new(&faults);
    let caught = work.share(&home, workers(&faults))?;
    println!("planted: {caught} of {} faults caught", faults.len());
    Ok(caught == faults.len())
}

/// One for each core, but none that would have to build what another builds anyway.
fn workers(faults: &[Fault]) -> usize {
    let packages: BTreeSet<&str> = faults.iter().map(|fault| &*fault.test.package).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    packages.len().min(cores).min(WORKERS_MAX)
}

/// What is to do, shared by the workers.
struct Work<'a> {
    /// Faults of one program stand together.
    line: Mutex<VecDeque<&'a Fault>>,
    programs: Vec<Program<'a>>,
}

/// Tests that one program runs.
struct Program<'a> {
    tests: BTreeSet<&'a Test>,
    /// Those that run, and pass without a fault: once the first worker that came by has seen to it.
    good: OnceLock<BTreeSet<&'a Test>>,
}

impl<'a> Work<'a> {
    fn new(faults: &'a [Fault]) -> Self {
        let mut line: Vec<&Fault> = faults.iter().collect();
        line.sort_by_key(|fault| &fault.test);
        let programs = line
            .chunk_by(|a, b| a.test.same_program(&b.test))
            .map(|faults| Program {
                tests: faults.iter().map(|fault| &fault.test).collect(),
                good: OnceLock::new(),
            })
            .collect();
        Self { line: Mutex::new(line.into()), programs }
    }

    fn next(&self, from_front: bool) -> Option<&'a Fault> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if from_front { line.pop_front() } else { line.pop_back() }
    }

    /// How many are caught, by so many workers.
    fn share(&self, home: &Path, workers: usize) -> Result<usize> {
        std::thread::scope(|scope| {
            let work = |worker: usize| {
                let scratch = Scratch::new(&home.join(worker.to_string()))?;
                self.one_by_one(&scratch, worker == 0)
            };
            let threads: Vec<_> =
                (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
            let joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked"))));
            joined.sum()
        })
    }

    /// How many are caught by one worker.
    fn one_by_one(&self, scratch: &Scratch, from_front: bool) -> Result<usize> {
        let mut caught = 0;
        while let Some(fault) = self.next(from_front) {
            scratch.restore()?;
            let (verdict, took) = if self.is_good(scratch, &fault.test) {
                judge(scratch, fault)?
            } else {
                (Verdict::TestIsNoGood, String::new())
            };
            let mut report = format!("{verdict}: {} ({}){took}", fault.name, fault.what);
            if verdict.is_caught() {
                caught += 1;
            } else {
                let log = scratch.log(&fault.name);
                report +=
                    &format!("\n    command: {}\n    its output: {}", fault.test, log.display());
            }
            println!("{report}");
        }
        Ok(caught)
    }

    /// Whether the test shows anything. The copy is without fault.
    fn is_good(&self, scratch: &Scratch, test: &Test) -> bool {
        let mut programs = self.programs.iter();
        programs.find(|program| program.tests.contains(test)).is_some_and(|program| {
            // All at once, so that it is built only once without a fault.
            program.good.get_or_init(|| good(scratch, &program.tests)).contains(test)
        })
    }
}

/// The tests that run and pass. A test that fails anyway proves nothing.
fn good<'a>(scratch: &Scratch, tests: &BTreeSet<&'a Test>) -> BTreeSet<&'a Test> {
    let mut good = BTreeSet::new();
    for &test in tests {
        let log = format!("unpatched {test}").replace([' ', '/'], "_");
        let problem = match scratch.test(test, &log, TIME_MAX_FIRST) {
            Err(error) => format!("cannot be run: {error:#}"),
            Ok(ended) if !ended.success => "fails without any fault".to_owned(),
            Ok(ended) if verdict::tests_passed(&ended.output) == 0 => {
                "runs no test: correct its name".to_owned()
            }
            Ok(ended) => {
                println!("passes: {test}{}", times(&ended));
                good.insert(test);
                continue;
            }
        };
        println!("`{test}` {problem}; see {}", scratch.log(&log).display());
    }
    good
}

/// What became of the fault, and how long that took.
fn judge(scratch: &Scratch, fault: &Fault) -> Result<(Verdict, String)> {
    if let Err(error) = scratch.apply(&fault.path) {
        std::fs::write(scratch.log(&fault.name), error.to_string())?;
        return Ok((Verdict::DoesNotApply, String::new()));
    }
    let ended = scratch.test(&fault.test, &fault.name, TIME_MAX)?;
    Ok((verdict::of(&ended), times(&ended)))
}

/// In seconds, for the reader.
fn times(ended: &Ended) -> String {
    let tested = verdict::test_time(&ended.output);
    let built = ended.time.saturating_sub(tested);
    format!(" [built in {:.1} s, tested in {:.1} s]", built.as_secs_f64(), tested.as_secs_f64())
}
