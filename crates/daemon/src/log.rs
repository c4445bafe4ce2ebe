//! Lines for the operator, on the standard error: `2026-03-01T12:00:00.123Z h1 data: text`.
//!
//! Nothing on the path of a frame logs; what is said here is about processes and ports. A reader
//! that went away is no reason to stop, so errors of writing are ignored.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

static WHO: OnceLock<String> = OnceLock::new();

/// Says who speaks in every further line. The first call counts.
pub(crate) fn speak_as(host: &str, role: &str) {
    _ = WHO.set(format!("{host} {role}"));
}

/// Writes one line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let who = WHO.get().map_or("sluice", String::as_str);
    let line = format!("{} {who}: {text}\n", timestamp(since.as_millis()));
    _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes one line, formatted.
macro_rules! say {
    ($($part:tt)*) => { $crate::log::line(format_args!($($part)*)) };
}
pub(crate) use say;

/// Milliseconds since 1970 as RFC 3339 in UTC.
fn timestamp(millis: u128) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(i64::try_from(days).unwrap_or(0));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Days since 1970-01-01 as year, month and day (Hinnant, "chrono-compatible low-level date
/// algorithms", `civil_from_days`).
pub(crate) fn civil(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests;
