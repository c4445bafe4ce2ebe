//! Paths of the API, and the request that each of them is.

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use axum::routing::{get, patch, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::fabric_config::Operation;
use sluice_api::http::{ChangeBody, RollbackBody, VnetBody};
use sluice_api::port::NewPort;
use sluice_api::transaction::{Away, How};
use sluice_api::{fabric, placement, show, transaction};

use super::super::sampler;
use super::outcome::Outcome;
use super::{Api, Asked};
use crate::ipc::protocol::Request;

/// Transactions of an answer without `last`.
const LAST: u32 = 50;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/v1", get(index))
        .route("/v1/host", get(host))
        .route("/v1/status", get(status))
        .route("/v1/show/{question}", get(show_switch))
        .route("/v1/fabric/{question}", get(ask_fabric))
        .route("/v1/vports", get(vports))
        .route("/v1/vports/{endpoint}", get(vport))
        .route("/v1/vports/{endpoint}/thaw", post(thaw))
        .route("/v1/ports", get(ports).post(add_port))
        .route("/v1/ports/{name}", get(card).delete(delete_port))
        .route("/v1/vnets", get(vnets).post(create_vnet))
        .route("/v1/vnets/{name}", patch(set_vnet).delete(delete_vnet))
        .route("/v1/config", get(config))
        .route("/v1/transactions", get(log).post(change))
        .route("/v1/transactions/confirm", post(confirm))
        .route("/v1/transactions/rollback", post(rollback))
        .route("/v1/placement", get(policy).put(set_policy))
        .route("/v1/reload", post(reload))
}

/// Paths for a reader.
const PATHS: [&str; 18] = [
    "/v1/host",
    "/v1/status",
    "/v1/show/{ports,queues,drops,audit,pauses,tunnels,mac,worker,placement}",
    "/v1/fabric/{members,status,flows,holds,certificates,rivals}",
    "/v1/vports?vnet=NAME",
    "/v1/vports/MAC-OR-IP?vnet=NAME",
    "/v1/vports/MAC-OR-IP/thaw",
    "/v1/ports",
    "/v1/ports/NAME",
    "/v1/vnets",
    "/v1/vnets/NAME",
    "/v1/config?revision=NUMBER",
    "/v1/transactions?last=NUMBER",
    "/v1/transactions/confirm",
    "/v1/transactions/rollback",
    "/v1/placement",
    "/v1/reload",
    "/metrics, /healthz",
];

type Name = Result<Path<String>, PathRejection>;
type Body = Result<Bytes, BytesRejection>;

/// Query of a request that is about one network, or about all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfVnet {
    vnet: Option<String>,
}

/// Query of `/v1/config`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AtRevision {
    revision: Option<u64>,
}

/// Query of `/v1/transactions`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    last: Option<u32>,
}

/// Query of a path that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Query of a change of the fabric's configuration: the way to make it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Way {
    #[serde(default)]
    check: bool,
    #[serde(default)]
    comment: String,
    confirmed_s: Option<u32>,
    #[serde(default)]
    require_all: bool,
    wait_ms: Option<u32>,
}

impl TryFrom<Way> for How {
    type Error = Outcome;

    fn try_from(way: Way) -> Result<Self, Outcome> {
        let away = match (way.require_all, way.wait_ms) {
            (false, None) => Away::Quorum,
            (true, None) => Away::RequireAll,
            (false, Some(ms)) => Away::Wait(ms),
            (true, Some(_)) => {
                let message = "`require_all` and `wait_ms` exclude each other".to_owned();
                return Err(Outcome::malformed(message, "Leave one of them out."));
            }
        };
        let Way { check, comment, confirmed_s, .. } = way;
        Ok(Self { comment, check, confirmed_s, away })
    }
}

async fn index(State(api): State<Api>) -> Response {
    let line = serde_json::json!({ "paths": PATHS }).to_string();
    Outcome::Answer { line, made: false }.into_response(api.host())
}

async fn host(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Who)).await
}

async fn status(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Status)).await
}

async fn show_switch(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = nothing(&uri).and_then(|()| word::<show::Question>(name)).map(Request::Show);
    api.respond(asked).await
}

async fn ask_fabric(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = nothing(&uri).and_then(|()| text(name)).and_then(|name| {
        let question = match &*name {
            "members" => fabric::Question::Members,
            "flows" => fabric::Question::Flows,
            "holds" => fabric::Question::Holds,
            "certificates" => fabric::Question::Certificates,
            "rivals" => fabric::Question::Rivals,
            "status" => return Ok(transaction(transaction::Question::Status)),
            _ => return Err(unknown(&name)),
        };
        Ok(Request::Fabric(question))
    });
    api.respond(asked).await
}

async fn vports(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<OfVnet>(&uri)
        .map(|OfVnet { vnet }| Request::Fabric(fabric::Question::Vports { vnet }));
    api.respond(asked).await
}

async fn vport(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = query::<OfVnet>(&uri).and_then(|OfVnet { vnet }| {
        let endpoint = text(name)?;
        Ok(Request::Fabric(fabric::Question::Vport { vnet, endpoint }))
    });
    api.respond(asked).await
}

async fn thaw(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = query::<OfVnet>(&uri).and_then(|OfVnet { vnet }| {
        let endpoint = text(name)?;
        Ok(Request::Fabric(fabric::Question::Thaw { vnet, endpoint }))
    });
    api.respond(asked).await
}

async fn ports(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Ports)).await
}

async fn add_port(State(api): State<Api>, uri: Uri, head: HeaderMap, body: Body) -> Response {
    let asked = nothing(&uri).and_then(|()| json::<NewPort>(&head, body));
    api.make(asked.map(|port| Request::Add(Box::new(port)))).await
}

async fn card(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    api.respond(nothing(&uri).and_then(|()| text(name)).map(Request::Card)).await
}

async fn delete_port(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    api.respond(nothing(&uri).and_then(|()| text(name)).map(Request::Del)).await
}

async fn vnets(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Fabric(fabric::Question::Vnets))).await
}

async fn create_vnet(State(api): State<Api>, uri: Uri, head: HeaderMap, body: Body) -> Response {
    let operations = json::<VnetBody>(&head, body)
        .map(|VnetBody { name, vnet }| vec![Operation::CreateVnet { name, vnet }]);
    let is_check = query::<Way>(&uri).is_ok_and(|way| way.check);
    let asked = operations.and_then(|operations| changing(&uri, operations));
    match is_check {
        true => api.respond(asked).await,
        false => api.make(asked).await,
    }
}

async fn set_vnet(
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

async fn delete_vnet(State(api): State<Api>, uri: Uri, name: Name) -> Response {
    let asked = text(name).and_then(|name| changing(&uri, vec![Operation::DeleteVnet { name }]));
    api.respond(asked).await
}

async fn config(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<AtRevision>(&uri)
        .map(|AtRevision { revision }| transaction(transaction::Question::Show { at: revision }));
    api.respond(asked).await
}

async fn log(State(api): State<Api>, uri: Uri) -> Response {
    let asked = query::<Last>(&uri).map(|Last { last }| {
        transaction(transaction::Question::Log { last: last.unwrap_or(LAST) })
    });
    api.respond(asked).await
}

async fn change(State(api): State<Api>, uri: Uri, head: HeaderMap, body: Body) -> Response {
    let asked =
        json::<ChangeBody>(&head, body).and_then(|ChangeBody { change }| changing(&uri, change));
    api.respond(asked).await
}

async fn confirm(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, transaction(transaction::Question::Confirm))).await
}

async fn rollback(State(api): State<Api>, uri: Uri, head: HeaderMap, body: Body) -> Response {
    let asked = json::<RollbackBody>(&head, body).and_then(|RollbackBody { to }| {
        let how = query::<Way>(&uri)?.try_into()?;
        Ok(transaction(transaction::Question::Rollback { to, how }))
    });
    api.respond(asked).await
}

async fn policy(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Placement(placement::Question::Show))).await
}

async fn set_policy(State(api): State<Api>, uri: Uri, head: HeaderMap, body: Body) -> Response {
    let asked = nothing(&uri).and_then(|()| json::<placement::Policy>(&head, body));
    let set = |policy| Request::Placement(placement::Question::Set(Box::new(policy)));
    api.respond(asked.map(set)).await
}

async fn reload(State(api): State<Api>, uri: Uri) -> Response {
    api.respond(plain(&uri, Request::Reload)).await
}

fn transaction(question: transaction::Question) -> Request {
    Request::Transaction(Box::new(question))
}

/// Returns a change of the fabric's configuration in the way that the query says.
fn changing(uri: &Uri, change: Vec<Operation>) -> Asked {
    let how = query::<Way>(uri)?.try_into()?;
    Ok(transaction(transaction::Question::Change { change, how }))
}

fn plain(uri: &Uri, request: Request) -> Asked {
    nothing(uri).map(|()| request)
}

fn nothing(uri: &Uri) -> Result<(), Outcome> {
    query::<Nothing>(uri).map(|Nothing {}| ())
}

fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, Outcome> {
    Query::try_from_uri(uri).map(|Query(query)| query).map_err(|error| {
        Outcome::malformed(error.body_text(), "Correct the part of the address behind `?`.")
    })
}

fn text(name: Name) -> Result<String, Outcome> {
    name.map(|Path(name)| name).map_err(|error| {
        Outcome::malformed(error.body_text(), "Escape bytes of a name that are no letters by `%`.")
    })
}

/// Reads a part of a path as one of the words of `T`.
fn word<T: DeserializeOwned>(name: Name) -> Result<T, Outcome> {
    let name = text(name)?;
    serde_json::from_value(Value::from(&*name)).map_err(|_| unknown(&name))
}

fn unknown(name: &str) -> Outcome {
    Outcome::missing(format!("there is no question `{name}` here"), "`/v1` has the paths.")
}

fn json<T: DeserializeOwned>(head: &HeaderMap, body: Body) -> Result<T, Outcome> {
    let is_json =
        |kind: &str| kind.split(';').next().is_some_and(|kind| kind.trim() == sampler::JSON);
    if !head.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).is_some_and(is_json) {
        return Err(Outcome::no_json());
    }
    let body = body.map_err(|error| {
        Outcome::malformed(error.body_text(), "Send less than 2 MiB, and all of it.")
    })?;
    serde_json::from_slice(&body).map_err(|error| {
        Outcome::malformed(format!("the body cannot be read: {error}"), "Correct it.")
    })
}
