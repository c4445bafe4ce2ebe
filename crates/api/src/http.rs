//! Bodies of the HTTP interface that are not metrics, in JSON.

use serde::{Deserialize, Serialize};

use crate::fabric_config::{Operation, VnetSettings};

/// Body of `POST /v1/transactions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ChangeBody {
    /// Operations, all of them or none.
    pub change: Vec<Operation>,
}

/// Body of `POST /v1/transactions/rollback`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RollbackBody {
    /// Revision; everything after it is undone.
    pub to: u64,
}

/// Body of `POST /v1/vnets`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VnetBody {
    /// Name of the network.
    pub name: String,
    /// The network.
    pub vnet: VnetSettings,
}

/// A request that is not answered, or a host that is not well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
