//! The fabric's configuration: each write is a transaction.

use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use serde_json::Value;
use sluice_api::fabric_config::Operation;
use sluice_api::http::{ChangeBody, RollbackBody, VnetBody};
use sluice_api::transaction::How;
use sluice_api::{fabric, transaction};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::super::answers::{Changed, Configuration, Enveloped, Log, Problems, VnetPatch, Vnets};
use super::super::outcome::Outcome;
use super::super::{Api, Asked};
use super::{AtRevision, Body, Last, Name, Way, configured, json, plain, query, text};
use crate::ipc::protocol::Request;

/// Transactions of an answer without `last`.
const LAST: u32 = 50;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(vnets, create_vnet))
        .routes(routes!(set_vnet, delete_vnet))
        .routes(routes!(config))
        .routes(routes!(log, change))
        .routes(routes!(confirm))
        .routes(routes!(rollback))
}

/// Lists the networks.
#[utoipa::path(
    get,
    path = "/v1/vnets",
    tag = "configuration",
    responses((status = 200, description = "The networks", body = Enveloped<Vnets>), Problems)
)]
pub(super) async fn vnets(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Fabric(fabric::Question::Vnets))).await
}

/// Makes a network.
#[utoipa::path(
    post,
    path = "/v1/vnets",
    tag = "configuration",
    params(Way),
    request_body = VnetBody,
    responses(
        (status = 201, description = "The change", body = Enveloped<Changed>),
        (status = 200, description = "The votes, with `check`", body = Enveloped<Changed>),
        Problems
    )
)]
pub(super) async fn create_vnet(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let way = way(&uri);
    let is_check = way.as_ref().is_ok_and(|how| how.check);
    let asked = json::<VnetBody>(&head, body).and_then(|VnetBody { name, vnet }| {
        let change = vec![Operation::CreateVnet { name, vnet }];
        Ok(configured(transaction::Question::Change { change, how: way? }))
    });
    match is_check {
        true => api.respond(asked).await,
        false => api.make(asked).await,
    }
}

/// Changes values of a network; null is the default.
#[utoipa::path(
    patch,
    path = "/v1/vnets/{name}",
    tag = "configuration",
    params(("name" = String, Path, description = "Name"), Way),
    request_body = VnetPatch,
    responses((status = 200, description = "The change", body = Enveloped<Changed>), Problems)
)]
pub(super) async fn set_vnet(
    State(api): State<Api>,
    uri: Uri,
    name: Name,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked = text(name).and_then(|name| {
        let values = json::<serde_json::Map<String, Value>>(&head, body)?;
        let set = |(key, value): (String, Value)| {
            let value = Some(value).filter(|value| !value.is_null());
            Operation::SetVnet { name: name.clone(), key, value }
        };
        changing(&uri, values.into_iter().map(set).collect())
    });
    api.respond(asked).await
}

/// Deletes a network.
#[utoipa::path(
    delete,
    path = "/v1/vnets/{name}",
    tag = "configuration",
    params(("name" = String, Path, description = "Name"), Way),
    responses((status = 200, description = "The change", body = Enveloped<Changed>), Problems)
)]
pub(super) async fn delete_vnet(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = text(name).and_then(|name| changing(&uri, vec![Operation::DeleteVnet { name }]));
    api.respond(asked).await
}

/// Shows the configuration, now or at an earlier revision.
#[utoipa::path(
    get,
    path = "/v1/config",
    tag = "configuration",
    params(AtRevision),
    responses(
        (status = 200, description = "The configuration", body = Enveloped<Configuration>),
        Problems
    )
)]
pub(super) async fn config(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<AtRevision>(&uri)
        .map(|AtRevision { revision }| configured(transaction::Question::Show { at: revision }));
    api.respond(asked).await
}

/// Lists transactions, the newest first.
#[utoipa::path(
    get,
    path = "/v1/transactions",
    tag = "configuration",
    params(Last),
    responses((status = 200, description = "The transactions", body = Enveloped<Log>), Problems)
)]
pub(super) async fn log(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<Last>(&uri)
        .map(|Last { last }| configured(transaction::Question::Log { last: last.unwrap_or(LAST) }));
    api.respond(asked).await
}

/// Changes the configuration: all operations, or none.
#[utoipa::path(
    post,
    path = "/v1/transactions",
    tag = "configuration",
    params(Way),
    request_body = ChangeBody,
    responses((status = 200, description = "The change", body = Enveloped<Changed>), Problems)
)]
pub(super) async fn change(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked =
        json::<ChangeBody>(&head, body).and_then(|ChangeBody { change }| changing(&uri, change));
    api.respond(asked).await
}

/// Keeps the transaction that would be undone by itself.
#[utoipa::path(
    post,
    path = "/v1/transactions/confirm",
    tag = "configuration",
    responses((status = 200, description = "What was done", body = Enveloped<Changed>), Problems)
)]
pub(super) async fn confirm(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, configured(transaction::Question::Confirm))).await
}

/// Undoes everything after a revision.
#[utoipa::path(
    post,
    path = "/v1/transactions/rollback",
    tag = "configuration",
    params(Way),
    request_body = RollbackBody,
    responses((status = 200, description = "The change", body = Enveloped<Changed>), Problems)
)]
pub(super) async fn rollback(
    State(api): State<Api>,
    uri: Uri,
    head: HeaderMap,
    body: Body,
) -> Response {
    let asked = json::<RollbackBody>(&head, body).and_then(|RollbackBody { to }| {
        Ok(configured(transaction::Question::Rollback { to, how: way(&uri)? }))
    });
    api.respond(asked).await
}

/// Returns the way to make a change that the query says.
fn way(uri: &Uri) -> Result<How, Outcome> {
    query::<Way>(uri)?.try_into()
}

/// Returns a change of the fabric's configuration in the way that the query says.
fn changing(uri: &Uri, change: Vec<Operation>) -> Asked {
    Ok(configured(transaction::Question::Change { change, how: way(uri)? }))
}
