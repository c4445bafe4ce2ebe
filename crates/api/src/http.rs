//! Answers of the HTTP interface that are not metrics, in JSON.

use serde::{Deserialize, Serialize};

/// A request that is not answered, or a host that is not well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Kind of the problem, for programs: `not_found`, `data_silent`, …
    pub code: String,
    /// The problem, for people.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

/// Answer of `/healthz` of a host that is well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Healthy {
    /// Name of the host.
    pub host: String,
    /// Version of its program.
    pub program: String,
    /// Always true: a host that is not well answers with a [`Problem`].
    pub healthy: bool,
}
