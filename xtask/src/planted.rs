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
//! A fault that does not compile, a test that crashes or hangs, and a patch that no longer applies
//! prove nothing and count as not caught.
//!
//! Building takes longer than testing, so a verdict is kept with digests of the content that it
//! depends on (`content`), and `choice` says which faults are proved now. The copies start with the
//! build output of the work tree. They stay in the target folder, and faults of one test program
//! follow each other, so that only the code touched by a fault is built (`order`). There are two
//! copies: a worker takes a program that nobody has begun, and helps with the longest line when
//! there is none.
//!
//! With `--tested` the caller has run the tests on this content, as `scripts/test.sh` does in step
//! `unit`, and most are not run again without a fault: each worker runs those of its first program,
//! which shows that tests pass in its copy as they do in the work tree.

mod choice;
mod content;
mod fault;
mod order;
mod patch;
mod record;
mod scratch;
mod verdict;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, bail};

use crate::workspace::{self, Metadata, Package};
use choice::{Choice, Why};
use content::{Evidence, Sources};
use fault::{Fault, Target, Test};
use order::{Depths, Lines};
use patch::Fit;
use record::{Keeper, Record};
use scratch::{Ended, Scratch, TIME_MAX, TIME_MAX_FIRST};
use verdict::Verdict;

/// Number of scratch copies in use at the same time. Each needs the memory of a compiler.
const WORKERS_MAX: usize = 2;

/// Options of the caller.
#[derive(Debug, Default)]
pub(crate) struct Request {
    /// Prove the faults whose name contains this, whatever their verdicts.
    pub(crate) only: Option<String>,
    /// Prove every fault, whatever its verdict.
    pub(crate) all: bool,
    /// Prove the faults without a verdict about this content, and write the record.
    pub(crate) record: bool,
    /// Prove the new faults and those that a change touches, and write the record.
    pub(crate) touched: bool,
    /// Run nothing.
    pub(crate) list: bool,
    /// The caller has run the tests without a fault, and reports those that fail.
    pub(crate) tested: bool,
}

/// Proves the requested faults. Returns `false` if a fault is not caught.
pub(crate) fn run(request: &Request) -> Result<bool> {
    let faults = fault::load()?;
    let metadata = workspace::metadata()?;
    let stamp = workspace::stamp(Path::new(record::FILE))?;
    let sources = Sources::read(&metadata)?;
    let record = Record::load()?;
    let faults: Vec<(&Fault, Evidence)> =
        faults.iter().map(|fault| (fault, sources.evidence(fault))).collect();
    let mut choices = choose(request, &faults, &record, &sources)?;
    if request.list {
        let asked = |it: &(_, &Choice)| *it.1 != Choice::NotAsked;
        for ((fault, _), choice) in faults.iter().zip(&choices).filter(asked) {
            let test = &fault.test;
            println!("{} ({choice}): {}\n    caught by: {test}", fault.name, fault.what);
        }
        return Ok(true);
    }
    let lost = fit_all(&faults, &mut choices);
    let chosen = |choice: &Choice| matches!(choice, Choice::Prove(_));
    let to_prove: Vec<&Fault> = faults
        .iter()
        .zip(&choices)
        .filter(|((fault, _), choice)| chosen(choice) && !lost.contains(&*fault.name))
        .map(|((fault, _), _)| *fault)
        .collect();
    let home = metadata.target_directory.join("planted");
    std::fs::create_dir_all(&home)?;
    let is_asked = request.record || request.touched || request.all;
    let file =
        if is_asked { workspace::root().join(record::FILE) } else { home.join("verdicts.txt") };
    let file = request.only.is_none().then_some(file);
    let keeper = Keeper::new(record, &faults, stamp, file, is_asked);
    lost.iter().try_for_each(|name| keeper.keep(name, false))?;
    let work = Work::new(&to_prove, &metadata, &keeper, request.tested);
    let caught = work.share(workers(&to_prove))?;
    let not_caught = lost.len() + to_prove.len() - caught;
    println!("planted: {}, {not_caught} not caught", summary(&choices));
    Ok(not_caught == 0)
}

/// Chooses the action for each fault.
fn choose(
    request: &Request,
    faults: &[(&Fault, Evidence)],
    record: &Record,
    sources: &Sources,
) -> Result<Vec<Choice>> {
    if let Some(only) = &request.only {
        let choice = |(fault, _): &(&Fault, Evidence)| match fault.name.contains(only) {
            true => Choice::Prove(Why::Asked),
            false => Choice::NotAsked,
        };
        let choices: Vec<Choice> = faults.iter().map(choice).collect();
        if choices.iter().all(|choice| *choice == Choice::NotAsked) {
            bail!("no fault in planted/ has such a name; `cargo xtask planted --list` shows them");
        }
        return Ok(choices);
    }
    if request.all {
        return Ok(vec![Choice::Prove(Why::Asked); faults.len()]);
    }
    if request.record {
        return Ok(choice::unrecorded(faults, record));
    }
    if request.touched {
        return Ok(choice::touched(faults, record));
    }
    let seed = sources.all();
    println!("the draw of this content is {seed}");
    Ok(choice::choose(faults, record, seed))
}

/// Tries all patches, whether proved now or not; returns the names of those that do not apply. A
/// patch that fits with less context is proved: its place may have changed its meaning.
fn fit_all<'a>(faults: &[(&'a Fault, Evidence)], choices: &mut [Choice]) -> BTreeSet<&'a str> {
    let mut lost = BTreeSet::new();
    for ((fault, _), choice) in faults.iter().zip(choices) {
        if *choice == Choice::NotAsked {
            continue;
        }
        match patch::fit(workspace::root(), &workspace::root().join(&fault.path)) {
            Ok(Fit::Exact) => {}
            Ok(Fit::Loose) => {
                println!("{} {}: make it anew when you come by", fault.path.display(), Fit::Loose);
                if !matches!(choice, Choice::Prove(_)) {
                    *choice = Choice::Prove(Why::Touched);
                }
            }
            Err(error) => {
                println!(
                    "{}: {} ({})\n    {error:#}",
                    Verdict::DoesNotApply,
                    fault.name,
                    fault.what
                );
                *choice = Choice::Prove(Why::Touched);
                lost.insert(&*fault.name);
            }
        }
    }
    lost
}

/// Formats the counts for the last line: `31 proved now (3 new, 28 drawn), 244 by record`.
fn summary(choices: &[Choice]) -> String {
    let mut counts: BTreeMap<Choice, usize> = BTreeMap::new();
    for choice in choices {
        *counts.entry(*choice).or_default() += 1;
    }
    let count = |choice| counts.get(&choice).copied().unwrap_or(0);
    let proved: Vec<(Why, usize)> = counts
        .iter()
        .filter_map(|(choice, count)| match choice {
            Choice::Prove(why) => Some((*why, *count)),
            _ => None,
        })
        .collect();
    let total: usize = proved.iter().map(|(_, count)| count).sum();
    let reasons: Vec<String> = proved.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let mut text = format!("{total} proved now");
    if !reasons.is_empty() {
        text += &format!(" ({})", reasons.join(", "));
    }
    let (same, older) = (count(Choice::Same), count(Choice::Older));
    if same + older > 0 {
        text += &format!(", {} by record", same + older);
    }
    if older > 0 {
        text += &format!(" ({older} of them of older content)");
    }
    text
}

/// Returns the number of workers: at most one for each core and one for each package, so that no
/// worker builds what another builds anyway.
fn workers(faults: &[&Fault]) -> usize {
    let packages: BTreeSet<&str> = faults.iter().map(|fault| &*fault.test.package).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    packages.len().min(cores).min(WORKERS_MAX)
}

/// Returns packages that can be selected beside a test and add no program to it.
fn beside(metadata: &Metadata, faults: &[&Fault]) -> Vec<String> {
    let adds_none = |package: &&Package| {
        let tests = faults.iter().filter_map(|fault| match &fault.test.target {
            Target::Test(name) => Some(name),
            Target::Lib => None,
        });
        let mut tests = tests.filter(|name| package.has_target("test", Some(name)));
        !package.has_target("lib", None) && tests.next().is_none()
    };
    metadata.packages.iter().filter(adds_none).map(|package| package.name.clone()).collect()
}

/// Returns the packages of one program that are built incrementally: those that its faults change,
/// if there are several faults, and that of its test. A single fault is built once, and everything
/// else is built already.
fn incremental(metadata: &Metadata, faults: &[&Fault]) -> BTreeSet<String> {
    let test = &faults[0].test;
    if faults.len() < 2 {
        // Unit tests are not optimized here, so that no build of their package exists yet.
        let unit = (test.target == Target::Lib).then(|| test.package.clone());
        return unit.into_iter().collect();
    }
    let is_changed = |package: &&Package| {
        let folder = package.folder();
        let mut files = faults.iter().flat_map(|fault| &fault.files);
        package.name == test.package || files.any(|file| file.starts_with(folder))
    };
    metadata.packages.iter().filter(is_changed).map(|package| package.name.clone()).collect()
}

/// The faults to prove, shared by the workers.
struct Work<'a> {
    programs: Vec<Program<'a>>,
    lines: Mutex<Lines<'a>>,
    caught: AtomicUsize,
    keeper: &'a Keeper,
    /// Target folder of the work tree, which also holds the copies.
    target: &'a Path,
    beside: Vec<String>,
    /// The tests pass without a fault.
    is_tested: bool,
}

/// Tests of one program.
struct Program<'a> {
    tests: BTreeSet<&'a Test>,
    /// Packages that the faults of the program change.
    incremental: BTreeSet<String>,
    /// Tests that run and pass without a fault; set by the first worker that reaches the program.
    good: OnceLock<BTreeSet<&'a Test>>,
}

impl<'a> Work<'a> {
    fn new(
        faults: &[&'a Fault],
        metadata: &'a Metadata,
        keeper: &'a Keeper,
        is_tested: bool,
    ) -> Self {
        let lines = Depths::new(metadata).lines(faults);
        let program = |line: &VecDeque<&'a Fault>| {
            let faults: Vec<&Fault> = line.iter().copied().collect();
            Program {
                tests: line.iter().map(|fault| &fault.test).collect(),
                incremental: incremental(metadata, &faults),
                good: OnceLock::new(),
            }
        };
        Self {
            programs: lines.iter().map(program).collect(),
            lines: Mutex::new(Lines::new(lines)),
            caught: AtomicUsize::new(0),
            keeper,
            target: &metadata.target_directory,
            beside: beside(metadata, faults),
            is_tested,
        }
    }

    fn next(&self, program: &mut Option<usize>) -> Option<&'a Fault> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).next(program)
    }

    /// Proves all faults with several workers; returns the number caught.
    fn share(&self, workers: usize) -> Result<usize> {
        std::thread::scope(|scope| {
            let work = |worker: usize| {
                let home = self.target.join("planted").join(worker.to_string());
                let scratch = Scratch::new(&home, &self.beside)?;
                scratch.seed(self.target)?;
                self.one_by_one(&scratch)
            };
            let threads: Vec<_> =
                (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
            let mut joined = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked"))));
            joined.try_for_each(|ended| ended)
        })?;
        Ok(self.caught.load(Ordering::Relaxed))
    }

    /// Proves the remaining faults.
    fn one_by_one(&self, scratch: &Scratch) -> Result<()> {
        let (mut copy_is_sound, mut at) = (false, None);
        while let Some(fault) = self.next(&mut at) {
            scratch.restore()?;
            let program = at.and_then(|at| self.programs.get(at)).context("it has a program")?;
            // All tests run at once, so that the program is built only once without a fault.
            let good = program.good.get_or_init(|| match self.is_tested && copy_is_sound {
                true => program.tests.clone(),
                false => good(scratch, program),
            });
            copy_is_sound |= good.contains(&fault.test);
            let (verdict, took) = if good.contains(&fault.test) {
                judge(scratch, fault, &program.incremental)?
            } else {
                (Verdict::TestIsNoGood, String::new())
            };
            let mut report = format!("{verdict}: {} ({}){took}", fault.name, fault.what);
            if verdict.is_caught() {
                self.caught.fetch_add(1, Ordering::Relaxed);
            } else {
                let log = scratch.log(&fault.name);
                report +=
                    &format!("\n    command: {}\n    its output: {}", fault.test, log.display());
            }
            println!("{report}");
            self.keeper.keep(&fault.name, verdict.is_caught())?;
        }
        Ok(())
    }
}

/// Returns the tests that run and pass without a fault. A test that fails anyway proves nothing.
fn good<'a>(scratch: &Scratch, program: &Program<'a>) -> BTreeSet<&'a Test> {
    let mut good = BTreeSet::new();
    for &test in &program.tests {
        let log = format!("unpatched {test}").replace([' ', '/'], "_");
        let problem = match scratch.test(test, &program.incremental, &log, TIME_MAX_FIRST) {
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

/// Proves a fault; returns the verdict and the time taken.
fn judge(
    scratch: &Scratch,
    fault: &Fault,
    incremental: &BTreeSet<String>,
) -> Result<(Verdict, String)> {
    if let Err(error) = scratch.apply(&fault.path) {
        std::fs::write(scratch.log(&fault.name), error.to_string())?;
        return Ok((Verdict::DoesNotApply, String::new()));
    }
    let ended = scratch.test(&fault.test, incremental, &fault.name, TIME_MAX)?;
    Ok((verdict::of(&ended), times(&ended)))
}

/// Formats the times in seconds.
fn times(ended: &Ended) -> String {
    let tested = verdict::test_time(&ended.output);
    let built = ended.time.saturating_sub(tested);
    format!(" [built in {:.1} s, tested in {:.1} s]", built.as_secs_f64(), tested.as_secs_f64())
}

#[cfg(test)]
mod tests;
