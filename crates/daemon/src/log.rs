//! Lines for the operator, on the standard error:
//! `2026-03-01T12:00:00.123Z info h1 data: text`.
//!
//! | level | what |
//! |---|---|
//! | `error` | something does not work, and will not by itself |
//! | `warn` | something is not as it should be |
//! | `info` | what comes, goes and begins: processes, ports, members |
//! | `debug` | what endpoints and flows do |
//!
//! Lines of `host.log` and above are written; `SLUICE_LOG` goes before it. Nothing on the path of a
//! frame logs. A reader that went away is no reason to stop, so errors of writing are ignored.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use sluice_api::config::LogLevel as Level;
use sluice_api::envelope::rfc3339;

/// The variable of the environment that goes before the configuration.
const VARIABLE: &str = "SLUICE_LOG";

static WHO: OnceLock<String> = OnceLock::new();
/// The least grave level that is written.
static MOST: AtomicU8 = AtomicU8::new(Level::Info as u8);

/// Says who speaks in every further line, and from which level on. The first call names.
pub(crate) fn speak_as(host: &str, role: &str, level: Option<Level>) {
    _ = WHO.set(format!("{host} {role}"));
    set_level(level);
}

/// Writes lines of this level and above from now on.
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

/// Whether lines of this level are written.
pub(crate) fn is_on(level: Level) -> bool {
    level as u8 <= MOST.load(Ordering::Relaxed)
}

/// Writes one line, if its level is.
pub(crate) fn line(level: Level, text: fmt::Arguments<'_>) {
    if !is_on(level) {
        return;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let who = WHO.get().map_or("sluice", String::as_str);
    let line = format!("{} {} {who}: {text}\n", rfc3339(since.as_millis()), level.name());
    _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Writes one line, formatted: `say!("…")` of level info, `say!(warn: "…")` and so on of others.
macro_rules! say {
    (error: $($part:tt)*) => {
        $crate::log::line($crate::log::Level::Error, format_args!($($part)*))
    };
    (warn: $($part:tt)*) => {
        $crate::log::line($crate::log::Level::Warn, format_args!($($part)*))
    };
    (debug: $($part:tt)*) => {
        $crate::log::line($crate::log::Level::Debug, format_args!($($part)*))
    };
    ($($part:tt)*) => { $crate::log::line($crate::log::Level::Info, format_args!($($part)*)) };
}
pub(crate) use say;

#[cfg(test)]
mod tests;
