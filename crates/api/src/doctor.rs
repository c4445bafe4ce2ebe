//! Reports: what this machine can do for a host (`sluice doctor`), whether a running host is well
//! (`sluice status`), and what to change.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::trace::Grade;

/// Version of these types.
pub const VERSION: u32 = 1;

/// A report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Report {
    /// Version of the types.
    pub version: u32,
    /// Gravest grade of the rows.
    pub grade: Grade,
    /// Rows, in the order of parts.
    pub rows: Vec<Row>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReportRow))]
pub struct Row {
    /// Part of a host that needs it: `host`, `containers`, `machines`, `underlay` or `config`; part
    /// of a running host that it is about: `host`, `ports` or `fabric`.
    pub part: String,
    /// Subject, in a few words.
    pub what: String,
    /// `pass`: as it should be; `warn`: a host runs, and does less; `stop`: it does not run;
    /// `unknown`: it could not be looked at.
    pub grade: Grade,
    /// Finding.
    pub seen: String,
    /// Remedy, and its gain; empty if nothing is wrong.
    pub remedy: String,
}

impl Report {
    /// Makes a report of rows. An empty one passes.
    #[must_use]
    pub fn new(rows: Vec<Row>) -> Self {
        let grade = rows.iter().map(|row| row.grade).max().unwrap_or(Grade::Pass);
        Self { version: VERSION, grade, rows }
    }
}

impl Row {
    /// Makes a row of something that is as it should be.
    #[must_use]
    pub fn pass(part: &str, what: &str, seen: impl Into<String>) -> Self {
        let (part, what) = (part.to_owned(), what.to_owned());
        Self { part, what, grade: Grade::Pass, seen: seen.into(), remedy: String::new() }
    }

    /// Gives the row another grade, with the remedy.
    #[must_use]
    pub fn but(self, grade: Grade, remedy: impl Into<String>) -> Self {
        Self { grade, remedy: remedy.into(), ..self }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |of: fn(&Row) -> &str| self.rows.iter().map(|row| of(row).len()).max();
        let (parts, whats) = (width(|row| &row.part), width(|row| &row.what));
        let (parts, whats) = (parts.unwrap_or(0), whats.unwrap_or(0));
        for row in &self.rows {
            let Row { part, what, grade, seen, remedy } = row;
            let grade = grade.name();
            writeln!(f, " {part:parts$}  {what:whats$}  {grade:7}  {seen}")?;
            if !remedy.is_empty() {
                writeln!(f, " {:parts$}  {:whats$}           {remedy}", "", "")?;
            }
        }
        let count = |grade| self.rows.iter().filter(|row| row.grade == grade).count();
        let [pass, warn, unknown, stop] =
            [Grade::Pass, Grade::Warn, Grade::Unknown, Grade::Stop].map(count);
        write!(f, "{pass} pass, {warn} warn, {unknown} unknown, {stop} stop")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_grade_is_gravest_and_printed_with_remedy() {
        let fine = Row::pass("host", "kernel", "Linux 6.18");
        let warned = Row::pass("containers", "TAP", "holds no sender").but(Grade::Warn, "Upgrade.");
        assert_eq!(Report::new(vec![]).grade, Grade::Pass);
        let report = Report::new(vec![warned, fine]);
        assert_eq!(report.grade, Grade::Warn);
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], " containers  TAP     warn     holds no sender");
        assert_eq!(lines[1].trim(), "Upgrade.");
        assert_eq!(lines[2], " host        kernel  pass     Linux 6.18");
        assert_eq!(lines[3], "1 pass, 1 warn, 0 unknown, 0 stop");
    }
}
