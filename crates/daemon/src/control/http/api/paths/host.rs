//! The host itself: who it is, how it is, its switch, its placement.

use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse as _, Response};
use sluice_api::envelope::Envelope;
use sluice_api::{doctor, placement, reload, show};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::answers::{Enveloped, Paths, PolicySet, Problems};
use super::super::outcome::Outcome;
use super::super::{Api, openapi};
use super::{Body, Name, json, nothing, plain, word};
use crate::control::http::sampler;
use crate::ipc::protocol::Request;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(index))
        .routes(routes!(document))
        .routes(routes!(host))
        .routes(routes!(status))
        .routes(routes!(show_switch))
        .routes(routes!(policy, set_policy))
        .routes(routes!(reload_file))
}

/// Lists the paths.
#[utoipa::path(
    get,
    path = "/v1",
    tag = "host",
    responses((status = 200, description = "The paths", body = Enveloped<Paths>), Problems)
)]
pub(super) async fn index(State(api): State<Api>) -> Response {
    let line = serde_json::json!({ "paths": openapi::path_names() }).to_string();
    Outcome::Answer { line, made: false }.into_response(api.host())
}

/// Returns this document.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    tag = "host",
    responses((status = 200, description = "This document", body = Object), Problems)
)]
pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, sampler::JSON)], openapi::text()).into_response()
}

/// Names the host and its version.
#[utoipa::path(
    get,
    path = "/v1/host",
    tag = "host",
    responses((status = 200, description = "The host", body = Envelope), Problems)
)]
pub(super) async fn host(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Who)).await
}

/// Judges the host and its fabric, as `sluice status`.
#[utoipa::path(
    get,
    path = "/v1/status",
    tag = "host",
    responses(
        (status = 200, description = "Its report", body = Enveloped<doctor::Report>),
        Problems
    )
)]
pub(super) async fn status(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Status)).await
}

/// Shows the switch, as `sluice show`.
#[utoipa::path(
    get,
    path = "/v1/show/{question}",
    tag = "host",
    params(("question" = show::Question, Path, description = "What is shown")),
    responses((status = 200, description = "The rows", body = Enveloped<show::Answer>), Problems)
)]
pub(super) async fn show_switch(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = nothing(&uri).and_then(|()| word::<show::Question>(name)).map(Request::Show);
    api.respond(asked).await
}

/// Shows the placement policy that holds, and its state on each host.
#[utoipa::path(
    get,
    path = "/v1/placement",
    tag = "host",
    responses(
        (status = 200, description = "The policy", body = Enveloped<placement::Answer>),
        Problems
    )
)]
pub(super) async fn policy(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Placement(placement::Question::Show))).await
}

/// Sets the placement policy of all hosts.
#[utoipa::path(
    put,
    path = "/v1/placement",
    tag = "host",
    request_body = placement::Policy,
    responses(
        (status = 200, description = "What holds now", body = Enveloped<PolicySet>),
        Problems
    )
)]
pub(super) async fn set_policy(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked = nothing(&uri).and_then(|()| json::<placement::Policy>(&head, body));
    let set = |policy| Request::Placement(placement::Question::Set(Box::new(policy)));
    api.respond(asked.map(set)).await
}

/// Reads the file of the host again, and applies it.
#[utoipa::path(
    post,
    path = "/v1/reload",
    tag = "host",
    responses(
        (status = 200, description = "What changed", body = Enveloped<reload::Reloaded>),
        Problems
    )
)]
pub(super) async fn reload_file(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Reload)).await
}
