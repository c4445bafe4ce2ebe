//! The envelope of every answer in JSON: `sluice … --json` prints one object, whose own keys are
//! beside these.
//!
//! ```json
//! {"format":1,"program":"0.1.0","host":"h1","time":"2026-03-01T12:00:00.123Z","members":[]}
//! {"format":1,"program":"0.1.0","host":null,"time":"…","error":"…","remedy":"…"}
//! ```
//!
//! No answer has a key of its own with one of these names, except for `host`, which has the same
//! meaning.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Version of the envelope, and of the rules for all answers. It rises when a key goes or changes
/// its meaning, not when one is added.
pub const FORMAT: u32 = 1;

/// The envelope of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Envelope {
    /// Version of the format.
    pub format: u32,
    /// Version of the program that answers.
    pub program: String,
    /// Host that answers; absent if none does.
    pub host: Option<String>,
    /// Time, as RFC 3339 in UTC.
    pub time: String,
}

/// Error in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The error.
    pub error: String,
    /// The remedy.
    pub remedy: String,
}

/// Identity of a host on a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostIdentity {
    /// Name of the host.
    pub host: String,
    /// Version of its program.
    pub program: String,
}

impl Envelope {
    /// Makes an envelope for an answer of `who` now; of this program if that is `None`.
    #[must_use]
    pub fn now(who: Option<HostIdentity>) -> Self {
        let (host, program) = who.map(|who| (who.host, who.program)).unzip();
        let program = program.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
        Self { format: FORMAT, program, host, time: rfc3339(now_ms()) }
    }

    /// Puts the keys of a JSON object beside its own.
    ///
    /// # Panics
    /// If it is not an object.
    #[must_use]
    pub fn around(&self, object: &str) -> String {
        /// Keys of the envelope that some answers have themselves; the rest is skipped.
        #[derive(Default, Deserialize)]
        struct Own {
            host: Option<serde::de::IgnoredAny>,
            program: Option<serde::de::IgnoredAny>,
        }
        let rest = object.trim().strip_prefix('{').expect("an answer is an object").trim_start();
        let own = serde_json::from_str::<Own>(object).unwrap_or_default();
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let mut all = format!(r#"{{"format":{}"#, self.format);
        if own.program.is_none() {
            all += r#","program":"#;
            all += &text(&self.program);
        }
        all += r#","time":"#;
        all += &text(&self.time);
        if own.host.is_none() {
            all += r#","host":"#;
            all += &self.host.as_deref().map_or_else(|| "null".to_owned(), text);
        }
        if !rest.starts_with('}') {
            all.push(',');
        }
        all + rest
    }
}

impl Failed {
    /// Makes an error from a sentence: the problem, and the remedy after a semicolon. `whole` is
    /// the sentence with its causes.
    #[must_use]
    pub fn new(sentence: &str, whole: String) -> Self {
        let remedy = sentence
            .split_once("; ")
            .map_or("see `sluice help`, and the log of the host that was asked", |(_, remedy)| {
                remedy
            });
        Self { error: whole, remedy: remedy.to_owned() }
    }
}

/// Returns the milliseconds since 1970.
fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

/// Formats milliseconds since 1970 as RFC 3339 in UTC.
#[must_use]
pub fn rfc3339(millis: u128) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(i64::try_from(days).unwrap_or(0));
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Converts days since 1970-01-01 to year, month and day (Hinnant, "chrono-compatible low-level
/// date algorithms", `civil_from_days`).
#[must_use]
pub fn civil(days: i64) -> (i64, i64, i64) {
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
