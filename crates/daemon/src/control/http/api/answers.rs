//! Shapes of answers, for the OpenAPI document alone: the line of JSON itself is what the command
//! prints, whatever stands here. A test of a live host compares the two.
#![expect(dead_code, reason = "nothing but their schemas is used")]

use serde::Serialize;
use sluice_api::envelope::Envelope;
use sluice_api::fabric::{
    Certificates, Evpn, Flows, Holds, MemberRow, RivalRow, ThawRow, VnetRow, Vport, VportRow,
};
use sluice_api::fabric_config::FabricConfig;
use sluice_api::http::Problem;
use sluice_api::placement;
use sluice_api::transaction::{Committed, LogRow, Status};
use utoipa::{IntoResponses, ToSchema};

/// An answer and its envelope.
#[derive(Serialize, ToSchema)]
pub(super) struct Enveloped<T> {
    #[serde(flatten)]
    envelope: Envelope,
    #[serde(flatten)]
    answer: T,
}

/// Refusals that any path may give.
#[derive(IntoResponses)]
pub(super) enum Problems {
    /// A body, a query or a name cannot be read
    #[response(status = 400)]
    Malformed(Problem),
    /// The request came over the network, and has no valid token or certificate
    #[response(status = 401)]
    Unauthorized(Problem),
    /// The peer may not ask this
    #[response(status = 403)]
    Forbidden(Problem),
    /// No such path, or no port of that name was added
    #[response(status = 404)]
    NotFound(Problem),
    /// The path has no such method
    #[response(status = 405)]
    MethodNotAllowed(Problem),
    /// The host or a member refuses
    #[response(status = 409)]
    Refused(Problem),
    /// The body is not said to be JSON
    #[response(status = 415)]
    NoJson(Problem),
    /// The host is busy, is being started, or its data process is silent
    #[response(status = 503)]
    Unavailable(Problem),
    /// No answer in time; a change may still be made
    #[response(status = 504)]
    Late(Problem),
}

/// The paths.
#[derive(Serialize, ToSchema)]
pub(super) struct Paths {
    paths: Vec<String>,
}

/// Parts of the fabric that can be shown.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FabricQuestion {
    Members,
    Flows,
    Holds,
    Certificates,
    Rivals,
    Evpn,
    Status,
}

/// A part of the fabric, under its name.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FabricPart {
    Members(Vec<MemberRow>),
    Flows(Flows),
    Holds(Holds),
    Certificates(Certificates),
    Rivals(Vec<RivalRow>),
    Evpn(Option<Evpn>),
    Status(Box<Status>),
}

/// Endpoints.
#[derive(Serialize, ToSchema)]
pub(super) struct Vports {
    vports: Vec<VportRow>,
}

/// An endpoint.
#[derive(Serialize, ToSchema)]
pub(super) struct OneVport {
    vport: Vport,
}

/// Hosts at which an endpoint may move again.
#[derive(Serialize, ToSchema)]
pub(super) struct Thawed {
    thaw: Vec<ThawRow>,
}

/// Networks.
#[derive(Serialize, ToSchema)]
pub(super) struct Vnets {
    vnets: Vec<VnetRow>,
}

/// New values of a network; null is the default.
#[derive(Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VnetPatch {
    /// VNI, different in all networks.
    #[schema(minimum = 1, maximum = 16_777_215)]
    vni: Option<u32>,
    /// MTU of its ports.
    #[schema(minimum = 576)]
    mtu: Option<u16>,
    /// Service rate of each of its ports without one of its own, in Mbit/s.
    service_mbps: Option<u64>,
    /// Priority of frames without one.
    #[schema(maximum = 7)]
    priority: Option<u8>,
    /// Hold contract of its ports without one of their own.
    hold: Option<String>,
}

/// Result of a change.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Changed {
    /// It holds.
    Committed(Committed),
    /// All members that were asked would accept it.
    Accepted {
        /// Operations, in words.
        changes: Vec<String>,
        /// Members that voted.
        voted: Vec<String>,
    },
    /// It is done.
    Done {
        /// Result, in words.
        said: String,
    },
}

/// The configuration of the fabric.
#[derive(Serialize, ToSchema)]
pub(super) struct Configuration {
    config: ConfigurationAt,
}

/// The configuration of the fabric at a revision.
#[derive(Serialize, ToSchema)]
pub(super) struct ConfigurationAt {
    /// The revision.
    revision: u64,
    /// The configuration.
    config: FabricConfig,
    /// Reason why it is not in force at this host, which tries again; absent: it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_in_force: Option<String>,
}

/// Transactions, the newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct Log {
    log: Vec<LogRow>,
}

/// Result of a new placement policy: its state, or the transaction of a fabric that was made by
/// command.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum PolicySet {
    State(placement::Answer),
    Transaction(Changed),
}
