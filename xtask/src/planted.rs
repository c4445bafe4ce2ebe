//! `cargo xtask planted`: checks the checkers.
//!
//! Each file `planted/NAME.patch` is a fault that a test must catch. The fault is applied to a
//! scratch copy of the work tree, never to the work tree itself, and the test named in its header
//! must fail there:
//!
//! ```text
//!   copy work tree ──> named tests pass ──> for each fault:
//!                                             apply ──> compiles ──> test fails ──> copy again
//!                                               │ no       │ no         │ no
//!                                               └──────────┴────────────┴──> NOT CAUGHT
//! ```
//!
//! A fault that does not compile, a test that crashes or hangs, and a patch that does not apply any
//! more prove nothing and count as not caught. The copy and its build folder stay in the target
//! folder, so that only what a fault touches is built again.

mod fault;
mod scratch;
mod verdict;

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::workspace;
use fault::Fault;
use scratch::Scratch;
use verdict::Verdict;

/// Runs the faults whose name contains `only`, or lists them. `false` if one is not caught.
pub(crate) fn run(only: Option<&str>, list: bool) -> Result<bool> {
    let mut faults = fault::load()?;
    faults.retain(|fault| only.is_none_or(|only| fault.name.contains(only)));
    if faults.is_empty() {
        bail!("no fault in planted/ has such a name; `cargo xtask planted --list` shows them");
    }
    if list {
        for fault in &faults {
            println!("{}: {}\n    caught by: {}", fault.name, fault.what, fault.test.join(" "));
        }
        return Ok(true);
    }
    let scratch = Scratch::new(&workspace::metadata()?.target_directory)?;
    scratch.restore()?;
    if !without_fault_all_pass(&scratch, &faults)? {
        return Ok(false);
    }
    let mut missed = 0;
    for fault in &faults {
        let begin = Instant::now();
        let verdict = judge(&scratch, fault)?;
        scratch.restore()?;
        let seconds = begin.elapsed().as_secs_f64();
        println!("{verdict}: {} ({}) [{seconds:.1} s]", fault.name, fault.what);
        if !verdict.is_caught() {
            missed += 1;
            println!("    command: {}", fault.test.join(" "));
            println!("    its output: {}", scratch.log(&fault.name).display());
        }
    }
    println!("planted: {} of {} faults caught", faults.len() - missed, faults.len());
    Ok(missed == 0)
}

/// A test that fails anyway proves nothing.
fn without_fault_all_pass(scratch: &Scratch, faults: &[Fault]) -> Result<bool> {
    let mut good = true;
    let tests: BTreeSet<&Vec<String>> = faults.iter().map(|fault| &fault.test).collect();
    for (index, test) in tests.into_iter().enumerate() {
        let log = format!("unpatched-{index}");
        let ended = scratch.test(test, &log)?;
        let problem = match verdict::tests_passed(&ended.output) {
            _ if !ended.success => "fails without any fault",
            0 => "runs no test: correct the name of the test",
            _ => continue,
        };
        println!("`{}` {problem}; see {}", test.join(" "), scratch.log(&log).display());
        good = false;
    }
    Ok(good)
}

fn judge(scratch: &Scratch, fault: &Fault) -> Result<Verdict> {
    if let Err(error) = scratch.apply(&fault.path) {
        std::fs::write(scratch.log(&fault.name), error.to_string())?;
        return Ok(Verdict::DoesNotApply);
    }
    if !scratch.compile(&fault.test, &fault.name)?.success {
        return Ok(Verdict::DoesNotCompile);
    }
    Ok(verdict::of(&scratch.test(&fault.test, &fault.name)?))
}
