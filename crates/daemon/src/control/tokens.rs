//! Tokens of the management API: who may ask over the network, and what. A host keeps the hash of
//! each in its state directory, never its text.
//!
//! ```text
//!   sluice-api-xxxxxxxx…   32 random bytes in hexadecimal digits
//!   STATE_DIR/api-tokens.json: name, role, networks, times, and the SHA-256 of the text
//! ```
//!
//! A text with 256 random bits cannot be guessed, so that its plain hash gives nobody the token,
//! and the time of a comparison of hashes tells nothing.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sluice_api::access::{
    DAYS_MAX, Grant, Made, NewToken, Question, Revoked, TOKENS_MAX, TokenEntry, Tokens,
};

use crate::enroll::digits;
use crate::sys::clock::wall_ms;
use crate::sys::log::say;
use crate::sys::run_dir;

const FILE: &str = "api-tokens.json";
const FORMAT: u32 = 1;
const PREFIX: &str = "sluice-api-";
const SECRET_SIZE: usize = 32;
const DAY_MS: u64 = 86_400_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    #[serde(flatten)]
    entry: TokenEntry,
    /// Hash of its text, in hexadecimal digits.
    sha256: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    format: u32,
    tokens: Vec<Record>,
}

/// The tokens of a host.
#[derive(Debug)]
pub(super) struct ApiTokens {
    path: PathBuf,
    /// The tokens, or the reason why they are not known: none is valid then.
    records: Mutex<Result<Vec<Record>, String>>,
}

impl ApiTokens {
    /// Reads the tokens of a state directory. Without a file there are none.
    pub(super) fn load(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE);
        let records = read(&path);
        if let Err(why) = &records {
            say!(error: "no token of the management API is valid: {why}");
        }
        Self { path, records: Mutex::new(records) }
    }

    /// Returns what the holder of a token may do; `None` if it is unknown or has expired.
    pub(super) fn grant(&self, token: &str) -> Option<Grant> {
        let (hash, now) = (hash(token), wall_ms());
        let records = self.records();
        let records = records.as_ref().ok()?;
        let found = records.iter().find(|record| record.sha256 == hash)?;
        let is_valid = found.entry.expires_ms.is_none_or(|end| now < end);
        is_valid.then(|| found.entry.grant.clone())
    }

    /// Makes a token.
    ///
    /// # Errors
    /// If the grant is refused, or the token cannot be kept.
    fn make(&self, new: NewToken) -> Result<Made, String> {
        let NewToken { name, role, vnets, netns, days } = new;
        let grant = Grant { name, role, vnets, netns };
        grant.check()?;
        if days.is_some_and(|days| days == 0 || days > DAYS_MAX) {
            return Err(format!("a token is valid for 1 to {DAYS_MAX} days"));
        }
        let mut records = self.records();
        let now = wall_ms();
        let valid = |record: &&Record| record.entry.expires_ms.is_none_or(|end| now < end);
        let known = records.as_ref().map_err(Clone::clone)?;
        let mut next: Vec<Record> = known.iter().filter(valid).cloned().collect();
        if next.iter().any(|record| record.entry.grant.name == grant.name) {
            return Err(format!(
                "there is a token `{}`; end it first (`sluice api revoke {0}`), or use another \
                 name",
                grant.name
            ));
        }
        if next.len() >= TOKENS_MAX {
            return Err(format!("a host has at most {TOKENS_MAX} tokens; revoke one"));
        }
        let mut secret = [0; SECRET_SIZE];
        let filled = SystemRandom::new().fill(&mut secret);
        filled.map_err(|_| "the kernel gives no random numbers".to_owned())?;
        let token = format!("{PREFIX}{}", digits(&secret));
        let expires_ms = days.map(|days| now + u64::from(days) * DAY_MS);
        let entry = TokenEntry { grant, made_ms: now, expires_ms };
        next.push(Record { entry: entry.clone(), sha256: hash(&token) });
        self.keep(&mut records, next)?;
        Ok(Made { token, entry })
    }

    fn list(&self) -> Result<Tokens, String> {
        let records = self.records();
        let records = records.as_ref().map_err(Clone::clone)?;
        Ok(Tokens { tokens: records.iter().map(|record| record.entry.clone()).collect() })
    }

    /// Ends a token.
    fn revoke(&self, name: &str) -> Result<Revoked, String> {
        let mut records = self.records();
        let known = records.as_ref().map_err(Clone::clone)?;
        let mut next = known.clone();
        next.retain(|record| record.entry.grant.name != name);
        if next.len() == known.len() {
            let name = name.escape_default();
            return Err(format!("there is no token `{name}`; `sluice api tokens` has the names"));
        }
        self.keep(&mut records, next)?;
        Ok(Revoked { revoked: name.to_owned() })
    }

    /// Answers a question with a line of JSON.
    ///
    /// # Errors
    /// The reason why not, with the remedy.
    pub(super) fn answer(&self, question: Question) -> Result<String, String> {
        match question {
            Question::Make(new) => line(&self.make(new)?),
            Question::List => line(&self.list()?),
            Question::Revoke(name) => line(&self.revoke(&name)?),
        }
    }

    /// Writes the tokens; they count when they are on the disk.
    fn keep(
        &self,
        records: &mut Result<Vec<Record>, String>,
        next: Vec<Record>,
    ) -> Result<(), String> {
        let stored = Stored { format: FORMAT, tokens: next };
        let text = line(&stored)?;
        run_dir::replace_for_good(&self.path, &text).map_err(|error| {
            format!("nothing has changed: {} cannot be written: {error}", self.path.display())
        })?;
        *records = Ok(stored.tokens);
        Ok(())
    }

    fn records(&self) -> MutexGuard<'_, Result<Vec<Record>, String>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(path: &Path) -> Result<Vec<Record>, String> {
    let why = |error: &dyn std::fmt::Display| {
        format!(
            "{} cannot be read: {error}; mend it, or move it away and restart the host: then there \
             are no tokens",
            path.display()
        )
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(why(&error)),
    };
    let stored: Stored = serde_json::from_str(&text).map_err(|error| why(&error))?;
    if stored.format != FORMAT {
        return Err(why(&format!(
            "its format is {}, and this program has {FORMAT}",
            stored.format
        )));
    }
    Ok(stored.tokens)
}

fn hash(token: &str) -> String {
    digits(digest(&SHA256, token.as_bytes()).as_ref())
}

fn line(answer: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(answer).map_err(|error| format!("the answer cannot be written: {error}"))
}

#[cfg(test)]
mod tests;
