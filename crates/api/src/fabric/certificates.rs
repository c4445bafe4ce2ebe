//! Certificates and the time that they have left.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Certificates that a host knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Certificates {
    /// The host's own, the authority's, and those that members have shown.
    pub rows: Vec<CertificateRow>,
    /// Reason why the present files were not accepted; absent: they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CertificateRow {
    /// Owner of the certificate.
    pub kind: CertificateKind,
    /// Name of the host; empty for the authority.
    pub host: String,
    /// First day, `YYYY-MM-DD` in UTC.
    pub from: String,
    /// Last day.
    pub until: String,
    /// Whole days until its end; negative: it has expired.
    pub days_left: i64,
    /// State by the clock of the host that answers.
    pub state: CertificateState,
    /// The remedy; absent: there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Owner of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CertificateKind {
    /// Of the host that answers.
    Own,
    /// Of the authority that all members trust (`ca.pem`); of several, the one that ends first.
    Anchor,
    /// Of another member, as shown last.
    Member,
}

/// State of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum CertificateState {
    /// It is valid.
    Valid,
    /// Valid for less than 30 days more.
    Ending,
    /// Expired.
    Expired,
    /// Not valid yet.
    NotYet,
}

impl CertificateState {
    /// Returns its name, as in JSON.
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
    /// Returns its name, as in JSON.
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
