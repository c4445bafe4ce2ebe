//! Paths of the API, and the request that each of them is. What stands before a function makes its
//! route and its part of the OpenAPI document.

mod configuration;
mod fabric;
mod host;
mod ports;
mod tokens;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, Query};
use axum::http::{HeaderMap, Uri, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::transaction::{self, Away, How};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;

use super::super::{guard, sampler};
use super::outcome::Outcome;
use super::{Api, Asked};
use crate::ipc::protocol::Request;

/// Returns all paths, with what the document says of them.
pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .merge(host::router())
        .merge(ports::router())
        .merge(fabric::router())
        .merge(configuration::router())
        .merge(tokens::router())
}

pub(super) type Name = Result<Path<String>, PathRejection>;
type Body = Result<Bytes, BytesRejection>;

/// Query of a request that is about one network, or about all.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct OfVnet {
    /// Name of the network; absent: any.
    vnet: Option<String>,
}

/// Query of `/v1/config`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct AtRevision {
    /// The revision; absent: the one that holds.
    revision: Option<u64>,
}

/// Query of `/v1/transactions`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Last {
    /// Most of them; absent: 50.
    last: Option<u32>,
}

/// Query of `/v1/events`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct ForSeconds {
    /// Seconds after which the answer ends; absent: when the client goes.
    seconds: Option<u32>,
}

/// Query of a path that has none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Query of a change of the fabric's configuration: the way to make it.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Way {
    /// True if members are only asked for their votes.
    #[serde(default)]
    check: bool,
    /// Remark for the log.
    #[serde(default)]
    comment: String,
    /// Seconds after which it is undone unless it is confirmed.
    confirmed_s: Option<u32>,
    /// True if no member may be away.
    #[serde(default)]
    require_all: bool,
    /// Milliseconds for which members that are away are waited for.
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
        let Way { check, mut comment, confirmed_s, .. } = way;
        if let Some(holder) = guard::current().filter(|_| comment.is_empty()) {
            // The log names hosts: the remark says who asked this one.
            comment = format!("by `{}` over the network", holder.grant.name);
        }
        Ok(Self { comment, check, confirmed_s, away })
    }
}

fn configured(question: transaction::Question) -> Request {
    Request::Transaction(Box::new(question))
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
    read(&body).map_err(|error| {
        Outcome::malformed(format!("the body cannot be read: {error}"), "Correct it.")
    })
}

/// Reads JSON, in which `8.0` is the integer 8 (JSON Schema 2020-12, core, section 4.2.2).
fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, serde_json::Error> {
    // Most bodies have no such number, and an error tells the line of the text as it is.
    serde_json::from_slice(text).or_else(|error| {
        let mut value = serde_json::from_slice(text).unwrap_or(Value::Null);
        if make_integers(&mut value) { serde_json::from_value(value) } else { Err(error) }
    })
}

/// Writes numbers without a fraction as integers. Returns true if there was one.
fn make_integers(value: &mut Value) -> bool {
    /// Up to here each integer is a number of its own (IEEE 754 binary64).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Array(rows) => rows.iter_mut().fold(false, |any, row| make_integers(row) | any),
        Value::Object(keys) => {
            keys.values_mut().fold(false, |any, value| make_integers(value) | any)
        }
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|f| f.fract() == 0.0 && f.abs() <= EXACT_MAX);
            let whole = whole.and_then(|whole| format!("{whole:.0}").parse::<i64>().ok());
            whole.is_some_and(|whole| {
                *value = whole.into();
                true
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
