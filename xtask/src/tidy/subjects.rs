//! Subjects of the newest commits: `area: imperative`, short enough for every tool.

use std::process::Command;

use anyhow::Result;

use super::Findings;
use crate::workspace;

const COLUMNS_MAX: usize = 72;

/// Commits that are checked. Older ones cannot be changed any more.
const NEWEST: &str = "--max-count=30";

/// Checks the subjects. A tree without a history, such as an archive, has none.
pub(super) fn check() -> Result<Findings> {
    let mut log = Command::new("git");
    log.current_dir(workspace::root()).args(["log", "--no-merges", NEWEST, "--format=%s"]);
    let Ok(subjects) = workspace::output(&mut log) else {
        let note = "NOT checked: git shows no history here".to_owned();
        return Ok(Findings { problems: Vec::new(), note });
    };
    let problems = subjects.lines().filter_map(problem).collect();
    Ok(Findings { problems, note: format!("{} commits", subjects.lines().count()) })
}

/// Returns the problem of a subject.
fn problem(subject: &str) -> Option<String> {
    let columns = subject.chars().count();
    if columns > COLUMNS_MAX {
        return Some(format!("{subject:?} has {columns} columns, {COLUMNS_MAX} are the limit"));
    }
    let has_area = subject
        .split_once(": ")
        .is_some_and(|(area, act)| !area.is_empty() && !act.is_empty() && !act.ends_with('.'));
    (!has_area).then(|| format!("{subject:?}: write `area: imperative`, without a full stop"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_have_an_area_and_are_short() {
        assert_eq!(problem("switch, ports: wake a port that sleeps"), None);
        assert_eq!(problem(&format!("a: {}", "b".repeat(69))), None);
        for bad in ["wake a port", "ports: wake it.", ": wake", &format!("a: {}", "b".repeat(70))] {
            assert!(problem(bad).is_some(), "{bad}");
        }
    }
}
