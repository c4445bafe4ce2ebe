//! Progress of a run on standard error: a bar per cell on a terminal, otherwise a line.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::stats;

/// The progress of a run.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    quiet: bool,
}

/// The progress of a cell.
#[derive(Debug)]
pub(crate) struct CellBar {
    bar: ProgressBar,
    name: String,
    quiet: bool,
}

impl Progress {
    /// Makes a progress display; `quiet` shows nothing at all.
    pub(crate) const fn new(quiet: bool) -> Self {
        Self { quiet }
    }

    /// Prints a line.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            eprintln!("{line}");
        }
    }

    /// Shows the bar of a cell.
    pub(crate) fn cell(&self, name: &str, queries: u32) -> CellBar {
        let target = if self.quiet || !std::io::stderr().is_terminal() {
            ProgressDrawTarget::hidden()
        } else {
            // Redraws rarely: drawing takes a core that the lab needs.
            ProgressDrawTarget::stderr_with_hz(4)
        };
        let bar = ProgressBar::with_draw_target(Some(u64::from(queries)), target);
        let style = ProgressStyle::with_template("{msg:<28} {bar:30} {pos:>4}/{len} {elapsed:>4}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        CellBar { bar, name: name.to_owned(), quiet: self.quiet }
    }
}

impl CellBar {
    /// Sets the number of queries done.
    pub(crate) fn at(&self, queries: u32) {
        self.bar.set_position(u64::from(queries));
    }

    /// Ends the bar of a cell and prints its figures.
    pub(crate) fn done(self, fct_ns: &[u64], drops: u64) {
        self.bar.finish_and_clear();
        if self.quiet {
            return;
        }
        let values = crate::results::nanoseconds(fct_ns);
        eprintln!(
            "{:<28} {:>4} queries, mean {:>8.2} ms, p95 {:>8.2} ms, {drops} drops",
            self.name,
            values.len(),
            stats::mean(&values) / 1e6,
            stats::percentile(&values, 0.95) / 1e6
        );
    }
}
