//! The host's view of its fabric.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use sluice_api::fabric::EventRow;
use sluice_api::{fabric, transaction};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::Api;
use super::super::answers::{
    Enveloped, FabricPart, FabricQuestion, OneVport, Problems, Thawed, Vports,
};
use super::{ForSeconds, Name, OfVnet, configured, nothing, query, text, unknown};
use crate::ipc::protocol::Request;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(ask_fabric))
        .routes(routes!(vports))
        .routes(routes!(vport))
        .routes(routes!(thaw))
        .routes(routes!(events))
}

/// Shows a part of the fabric.
#[utoipa::path(
    get,
    path = "/v1/fabric/{question}",
    tag = "fabric",
    params(("question" = FabricQuestion, Path, description = "The part")),
    responses((status = 200, description = "The part", body = Enveloped<FabricPart>), Problems)
)]
pub(super) async fn ask_fabric(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = nothing(&uri).and_then(|()| text(name)).and_then(|name| {
        let question = match &*name {
            "members" => fabric::Question::Members,
            "flows" => fabric::Question::Flows,
            "holds" => fabric::Question::Holds,
            "certificates" => fabric::Question::Certificates,
            "rivals" => fabric::Question::Rivals,
            "evpn" => fabric::Question::Evpn,
            "status" => return Ok(configured(transaction::Question::Status)),
            _ => return Err(unknown(&name)),
        };
        Ok(Request::Fabric(question))
    });
    api.respond(asked).await
}

/// Lists the endpoints of a network, or of all.
#[utoipa::path(
    get,
    path = "/v1/vports",
    tag = "fabric",
    params(OfVnet),
    responses((status = 200, description = "The endpoints", body = Enveloped<Vports>), Problems)
)]
pub(super) async fn vports(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<OfVnet>(&uri)
        .map(|OfVnet { vnet }| Request::Fabric(fabric::Question::Vports { vnet }));
    api.respond(asked).await
}

/// Shows an endpoint with its moves and all claims.
#[utoipa::path(
    get,
    path = "/v1/vports/{endpoint}",
    tag = "fabric",
    params(("endpoint" = String, Path, description = "Its MAC or one of its IP addresses"), OfVnet),
    responses((status = 200, description = "The endpoint", body = Enveloped<OneVport>), Problems)
)]
pub(super) async fn vport(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = query::<OfVnet>(&uri).and_then(|OfVnet { vnet }| {
        let endpoint = text(name)?;
        Ok(Request::Fabric(fabric::Question::Vport { vnet, endpoint }))
    });
    api.respond(asked).await
}

/// Allows an endpoint that moved too often to move again.
#[utoipa::path(
    post,
    path = "/v1/vports/{endpoint}/thaw",
    tag = "fabric",
    params(("endpoint" = String, Path, description = "Its MAC or one of its IP addresses"), OfVnet),
    responses(
        (status = 200, description = "The hosts, and whether it was frozen there",
         body = Enveloped<Thawed>),
        Problems
    )
)]
pub(super) async fn thaw(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = query::<OfVnet>(&uri).and_then(|OfVnet { vnet }| {
        let endpoint = text(name)?;
        Ok(Request::Fabric(fabric::Question::Thaw { vnet, endpoint }))
    });
    api.respond(asked).await
}

/// Tells what happens from now on, as server-sent events: members, endpoints, transactions.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "fabric",
    params(ForSeconds),
    responses(
        (status = 200, description = "The events; each `data` is one",
         content_type = "text/event-stream", body = EventRow),
        Problems
    )
)]
pub(super) async fn events(State(api): State<Api>, uri: Uri) -> Response {
    match query::<ForSeconds>(&uri) {
        Ok(ForSeconds { seconds }) => api.events().respond(api.host(), seconds),
        Err(malformed) => malformed.into_response(api.host()),
    }
}
