//! Errors as CNI has them: a code, one line, and what to do (section 5, "Error").

use serde_json::{Value, json};
use sluice_api::envelope::Failed;

use crate::config::Version;

/// Codes of the specification (section 5) and of this plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The configuration has a version that is not supported.
    IncompatibleVersion,
    /// A variable of the environment is missing or wrong.
    Environment,
    /// Input or output failed.
    Io,
    /// A text is not the JSON that it has to be.
    Undecodable,
    /// The configuration is wrong.
    Config,
    /// A condition that will pass; the runtime tries again.
    TryAgain,
    /// STATUS: an ADD would fail.
    Unavailable,
    /// STATUS: an ADD would fail, and containers may be cut off.
    LimitedConnectivity,
    /// The host refused a request.
    Refused,
    /// CHECK: the container's interface is not as it was made.
    Differs,
    /// An IPAM plugin's own code.
    Delegate(u32),
}

impl Code {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::Environment => 4,
            Self::Io => 5,
            Self::Undecodable => 6,
            Self::Config => 7,
            Self::TryAgain => 11,
            Self::Unavailable => 50,
            Self::LimitedConnectivity => 51,
            Self::Refused => 100,
            Self::Differs => 101,
            Self::Delegate(number) => number,
        }
    }
}

/// An error for the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    code: Code,
    msg: String,
    details: String,
}

impl Error {
    pub(crate) fn new(code: Code, msg: impl Into<String>, details: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: details.into() }
    }

    /// Makes an error of a key of the configuration.
    pub(crate) fn key(key: &str, problem: &str, remedy: &str) -> Self {
        Self::new(Code::Config, format!("`{key}`: {problem}"), remedy)
    }

    pub(crate) fn undecodable(error: &serde_json::Error) -> Self {
        let msg = format!("the network configuration is no JSON: {error}");
        Self::new(Code::Undecodable, msg, "correct the file in the runtime's CNI folder")
    }

    /// Makes an error of a host's own sentence: the problem, and after a semicolon the remedy.
    pub(crate) fn sentence(code: Code, sentence: &str) -> Self {
        let remedy = Failed::new(sentence, String::new()).remedy;
        let problem = sentence
            .strip_suffix(&remedy)
            .map_or(sentence, |rest| rest.trim_end().trim_end_matches(';'));
        Self::new(code, problem, remedy)
    }

    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// Returns the same error with another code.
    pub(crate) fn with(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Appends a second problem to the details.
    pub(crate) fn and(mut self, other: &Self) -> Self {
        self.details = format!("{}; beside it {}: {}", self.details, other.msg, other.details);
        self
    }

    /// Returns the same error after what it failed at was undone; with a second problem if that
    /// failed as well.
    pub(crate) fn after(self, undone: Result<(), Self>) -> Self {
        match undone {
            Ok(()) => self,
            Err(more) => self.and(&more),
        }
    }

    /// Returns one line: the problem, and what to do.
    pub(crate) fn text(&self) -> String {
        format!("{}; {}", self.msg, self.details)
    }

    pub(crate) fn to_json(&self, version: Version) -> Value {
        json!({
            "cniVersion": version.text(),
            "code": self.code.number(),
            "msg": self.msg,
            "details": self.details,
        })
    }
}
