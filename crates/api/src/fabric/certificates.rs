//! Certificates and the time that they have left.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Certificates that a host knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificates {
    /// Its own, the authority's, and those that members have shown.
    pub rows: Vec<CertificateRow>,
    /// Why the files as they are now were not taken up; absent: they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateRow {
    /// Whose it is.
    pub kind: CertificateKind,
    /// The host; empty for the authority.
    pub host: String,
    /// Its first day, `YYYY-MM-DD` in UTC.
    pub from: String,
    /// Its last day.
    pub until: String,
    /// Whole days until its end; negative: it is over.
    pub days_left: i64,
    /// Its state by the clock of the host that answers.
    pub state: CertificateState,
    /// The remedy; absent: there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Whose a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateKind {
    /// Of the host that answers.
    Own,
    /// Of the authority that all members believe (`ca.pem`); of several, the one that ends first.
    Anchor,
    /// Of another member, as it showed it last.
    Member,
}

/// State of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// It is valid.
    Valid,
    /// It is valid for less than 30 days more.
    Ending,
    /// It is over.
    Expired,
    /// Its time has not begun.
    NotYet,
}

impl CertificateState {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Ending => "ending",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
        }
    }
}

impl CertificateKind {
    /// Its name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Anchor => "anchor",
            Self::Member => "member",
        }
    }
}

impl fmt::Display for CertificateRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            CertificateKind::Anchor => f.write_str("the certificate of the authority (ca.pem)")?,
            _ => write!(f, "the certificate of {}", self.host)?,
        }
        match self.state {
            CertificateState::Expired => write!(f, " ended on {}", self.until),
            CertificateState::NotYet => write!(f, " is valid from {} on", self.from),
            CertificateState::Valid | CertificateState::Ending => {
                write!(f, " ends on {}, in {} days", self.until, self.days_left)
            }
        }
    }
}
