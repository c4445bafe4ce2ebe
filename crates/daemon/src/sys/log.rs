//! Lines for the operator, on the standard error:
//! `2026-03-01T12:00:00.123Z info h1 data: text`.
//!
//! | level | content |
//! |---|---|
//! | `error` | something does not work, and needs help |
//! | `warn` | something is not as it should be |
//! | `info` | starts, ends and changes: processes, ports, members |
//! | `debug` | events of endpoints and flows |
//!
//! Lines of level `host.log` and above are written; `SLUICE_LOG` overrides it. Nothing on the path
//! of a frame logs. Write errors are ignored, since a reader may go away.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use sluice_api::config::LogLevel as Level;
use sluice_api::envelope::rfc3339;

/// Environment variable that overrides the configuration.
const VARIABLE: &str = "SLUICE_LOG";

static WHO: OnceLock<String> = OnceLock::new();
/// Lowest level that is written.
static MOST: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Sets the name in every further line, and the lowest level. Only the first call sets the name.
pub(crate) fn init(host: &str, role: &str, level: Option<Level>) {
    _ = WHO.set(format!("{host} {role}"));
    set_level(level);
}

/// Sets the lowest level that is written.
pub(crate) fn set_level(level: Option<Level>) {
    let said = std::env::var(VARIABLE).ok();
    let named = said.as_deref().map(|said| (said, level_named(said)));
    let level = named.and_then(|(_, level)| level).or(level).unwrap_or_default();
    MOST.store(level as u8, Ordering::Relaxed);
    if let Some((said, None)) = named {
        say!(warn: "{VARIABLE} is `{said}`, and none of error, warn, info, debug");
    }
}

fn level_named(name: &str) -> Option<Level> {
    Level::ALL.into_iter().find(|level| level.name() == name)
}

/// Returns true if lines of this level are written.
pub(crate) fn is_on(level: Level) -> bool {
    level as u8 <= MOST.load(Ordering::Relaxed)
}

/// Writes one line, if its level is written.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    if !is_on(level) {
        return;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let who = WHO.get().map_or("sluice", String::as_str);
    let line = format!("{} {} {who}: {text}\n", rfc3339(since.as_millis()), level.name());
    _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes one formatted line: `say!("…")` at level info, `say!(warn: "…")` and so on at others.
macro_rules! say {
    (error: $($part:tt)*) => {
        $crate::sys::log::line($crate::sys::log::Level::Error, format_args!($($part)*))
    };
    (warn: $($part:tt)*) => {
        $crate::sys::log::line($crate::sys::log::Level::Warn, format_args!($($part)*))
    };
    (debug: $($part:tt)*) => {
        $crate::sys::log::line($crate::sys::log::Level::Debug, format_args!($($part)*))
    };
    ($($part:tt)*) => {
        $crate::sys::log::line($crate::sys::log::Level::Info, format_args!($($part)*))
    };
}
pub(crate) use say;

#[cfg(test)]
mod tests;
