//! Lines for the operator, on the standard error: `2026-03-01T12:00:00.123Z h1 data: text`.
//!
//! Nothing on the path of a frame logs; what is said here is about processes and ports. A reader
//! that went away is no reason to stop, so errors of writing are ignored.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_api::envelope::rfc3339;

static WHO: OnceLock<String> = OnceLock::new();

/// Says who speaks in every further line. The first call counts.
pub(crate) fn speak_as(host: &str, role: &str) {
    _ = WHO.set(format!("{host} {role}"));
}

/// Writes one line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let who = WHO.get().map_or("sluice", String::as_str);
    let line = format!("{} {who}: {text}\n", rfc3339(since.as_millis()));
    _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes one line, formatted.
macro_rules! say {
    ($($part:tt)*) => { $crate::log::line(format_args!($($part)*)) };
}
pub(crate) use say;
