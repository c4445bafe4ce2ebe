//! `sluice doctor`: what this machine can do for a host, what it cannot, and what to change. It
//! changes nothing and asks no running host.
//!
//! | file | rows |
//! |---|---|
//! | `machine` | kernel, rights, limits, scheduling, memory |
//! | `means` | what the kernel has for containers and underlays |
//! | `plan` | what a configuration needs: devices, directories, the checks of `--check` |

mod machine;
mod means;
mod plan;

use std::io::Write as _;
use std::path::Path;

use sluice_api::doctor::Report;
use sluice_api::envelope::Envelope;
use sluice_api::trace::Grade;

/// Looks at this machine, and at what the configuration needs if there is one. Prints the report;
/// returns its grade.
///
/// # Errors
/// If the report cannot be printed.
pub fn doctor(file: Option<&Path>, json: bool) -> anyhow::Result<Grade> {
    let report = report(file);
    let text = match json {
        true => Envelope::now(None).around(&serde_json::to_string(&report)?),
        false => report.to_string(),
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.grade)
}

/// Looks, and prints nothing.
pub(crate) fn report(file: Option<&Path>) -> Report {
    let mut rows = machine::rows();
    rows.extend(means::rows());
    rows.extend(file.into_iter().flat_map(plan::rows));
    Report::new(rows)
}
