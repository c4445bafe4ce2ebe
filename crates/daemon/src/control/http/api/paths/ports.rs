//! Ports of the host.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sluice_api::port::{Added, AddedPorts, Card, Deleted, NewPort};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::Api;
use super::super::answers::{Enveloped, Problems};
use super::{Body, Name, json, nothing, plain, text};
use crate::ipc::protocol::Request;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(ports, add_port)).routes(routes!(card, delete_port))
}

/// Lists the ports that were added.
#[utoipa::path(
    get,
    path = "/v1/ports",
    tag = "ports",
    responses((status = 200, description = "The ports", body = Enveloped<AddedPorts>), Problems)
)]
pub(super) async fn ports(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Ports)).await
}

/// Adds a port.
#[utoipa::path(
    post,
    path = "/v1/ports",
    tag = "ports",
    request_body = NewPort,
    responses((status = 201, description = "The port", body = Enveloped<Added>), Problems)
)]
pub(super) async fn add_port(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked = nothing(&uri).and_then(|()| json::<NewPort>(&head, body));
    api.make(asked.map(|port| Request::Add(Box::new(port)))).await
}

/// Looks at the device of a port as it is now.
#[utoipa::path(
    get,
    path = "/v1/ports/{name}",
    tag = "ports",
    params(("name" = String, Path, description = "Name")),
    responses((status = 200, description = "The device", body = Enveloped<Card>), Problems)
)]
pub(super) async fn card(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    api.respond(nothing(&uri).and_then(|()| text(name)).map(Request::Card)).await
}

/// Deletes a port.
#[utoipa::path(
    delete,
    path = "/v1/ports/{name}",
    tag = "ports",
    params(("name" = String, Path, description = "Name")),
    responses(
        (status = 200, description = "The port that was", body = Enveloped<Deleted>),
        Problems
    )
)]
pub(super) async fn delete_port(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    api.respond(nothing(&uri).and_then(|()| text(name)).map(Request::Del)).await
}
