//! Tokens of those who ask over the network.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use sluice_api::access::{Made, NewToken, Question, Revoked, Tokens};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::Api;
use super::super::answers::{Enveloped, Problems};
use super::{Body, Name, json, nothing, plain, text};
use crate::ipc::protocol::Request;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(tokens, make_token)).routes(routes!(revoke_token))
}

/// Lists the tokens, without their texts.
#[utoipa::path(
    get,
    path = "/v1/tokens",
    tag = "host",
    responses((status = 200, description = "The tokens", body = Enveloped<Tokens>), Problems)
)]
pub(super) async fn tokens(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Access(Question::List))).await
}

/// Makes a token, whose text is shown this once.
#[utoipa::path(
    post,
    path = "/v1/tokens",
    tag = "host",
    request_body = NewToken,
    responses((status = 201, description = "The token", body = Enveloped<Made>), Problems)
)]
pub(super) async fn make_token(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked = nothing(&uri).and_then(|()| json::<NewToken>(&head, body));
    api.make(asked.map(|new| Request::Access(Question::Make(new)))).await
}

/// Ends a token.
#[utoipa::path(
    delete,
    path = "/v1/tokens/{name}",
    tag = "host",
    params(("name" = String, Path, description = "Name")),
    responses((status = 200, description = "Its name", body = Enveloped<Revoked>), Problems)
)]
pub(super) async fn revoke_token(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = nothing(&uri).and_then(|()| text(name));
    api.respond(asked.map(|name| Request::Access(Question::Revoke(name)))).await
}
