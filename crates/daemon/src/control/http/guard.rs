//! Rights over the network: a request by TLS has a token (RFC 6750), whose role is judged by method
//! and path before anything else of the request is read.
//!
//! | role | may |
//! |---|---|
//! | tenant | GET `/v1`, `/v1/host`, `/v1/openapi.json`; networks, ports and endpoints of its own |
//! | viewer | GET |
//! | operator | also ports, `/v1/reload`, and `thaw` of an endpoint |
//! | admin | everything |
//!
//! Everything else is refused.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use sluice_api::access::{Grant, Role};

use super::accept::Peer;
use super::{answer_of, problem};
use crate::control::tokens::ApiTokens;
use crate::sys::log::say;

tokio::task_local! {
    /// Holder of the token with which the request being answered was made.
    static HOLDER: Grant;
}

/// Longest path in the log.
const LOGGED_SIZE_MAX: usize = 200;

/// Admits a request of the network if its token does.
pub(super) async fn admit(
    State(tokens): State<Arc<ApiTokens>>,
    Extension(peer): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if peer != Peer::Remote {
        return next.run(request).await;
    }
    let Some(grant) = bearer(request.headers()).and_then(|token| tokens.grant(token)) else {
        return unknown();
    };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    if !may(&grant, &method, &uri) {
        return forbidden(&grant);
    }
    let response = HOLDER.scope(grant.clone(), next.run(request)).await;
    if !method.is_safe() {
        let path: String = uri.path().chars().take(LOGGED_SIZE_MAX).collect();
        let (name, role, status) = (&grant.name, grant.role, response.status().as_u16());
        say!("{method} {path} of `{name}` ({role}) over the network: {status}");
    }
    response
}

/// Returns the name of the holder whose request is being answered, if it came over the network.
pub(super) fn holder() -> Option<String> {
    HOLDER.try_with(|grant| grant.name.clone()).ok()
}

/// Returns the grant of the request being answered, if it came over the network.
pub(super) fn current() -> Option<Grant> {
    HOLDER.try_with(Clone::clone).ok()
}

/// Runs a part of a request in another task, for the same holder.
pub(super) async fn within<T>(holder: Option<Grant>, work: impl Future<Output = T>) -> T {
    match holder {
        Some(grant) => HOLDER.scope(grant, work).await,
        None => work.await,
    }
}

/// Leaves out what a tenant may not see of a list, if a tenant's request is being answered.
pub(super) fn narrowed(line: String) -> String {
    let of_tenant = |grant: &Grant| (grant.role == Role::Tenant).then(|| grant.vnets.clone());
    match HOLDER.try_with(of_tenant) {
        Ok(Some(vnets)) => narrowed_to(&line, &vnets),
        _ => line,
    }
}

/// Returns the token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Judges a request.
fn may(grant: &Grant, method: &Method, uri: &Uri) -> bool {
    let path = uri.path();
    match grant.role {
        Role::Admin => true,
        Role::Operator => method.is_safe() || operates(method, path),
        Role::Viewer => method.is_safe(),
        Role::Tenant => *method == Method::GET && is_of_tenant(path, uri, &grant.vnets),
    }
}

fn operates(method: &Method, path: &str) -> bool {
    let is_under = |folder: &str| path.strip_prefix(folder).is_some_and(|name| !name.is_empty());
    match *method {
        Method::POST => {
            let thaws = is_under("/v1/vports/") && path.ends_with("/thaw");
            thaws || matches!(path, "/v1/ports" | "/v1/reload")
        }
        Method::DELETE => is_under("/v1/ports/"),
        _ => false,
    }
}

/// Network of a question; other keys are the question's own concern.
#[derive(Deserialize)]
struct OfVnet {
    vnet: String,
}

fn is_of_tenant(path: &str, uri: &Uri, vnets: &[String]) -> bool {
    let is_own =
        || Query::<OfVnet>::try_from_uri(uri).is_ok_and(|Query(of)| vnets.contains(&of.vnet));
    match path {
        // What these list is narrowed afterwards.
        "/v1" | "/v1/host" | "/v1/openapi.json" | "/v1/vnets" | "/v1/ports" => true,
        "/v1/vports" => is_own(),
        _ => path.starts_with("/v1/vports/") && is_own(),
    }
}

/// Leaves rows of other networks out: of ports, networks and endpoints.
fn narrowed_to(line: &str, vnets: &[String]) -> String {
    let Ok(mut answer) = serde_json::from_str::<Value>(line) else { return "{}".to_owned() };
    let is_own = |row: &Value| {
        let vnet = row.get("vnet").or_else(|| row.get("port")?.get("vnet"));
        vnet.and_then(Value::as_str).is_some_and(|name| vnets.iter().any(|own| own == name))
    };
    for key in ["ports", "vnets", "vports"] {
        if let Some(Value::Array(rows)) = answer.get_mut(key) {
            rows.retain(is_own);
        }
    }
    answer.to_string()
}

/// Refuses a request without a valid token (RFC 6750 section 3).
fn unknown() -> Response {
    let message = "the request has no token, or one that this host does not know any more";
    let remedy = "Send `Authorization: Bearer TOKEN`; `sluice api token NAME --role ROLE` on the \
                  host makes one.";
    let problem = problem("unauthorized", message.to_owned(), remedy);
    let mut response = answer_of(StatusCode::UNAUTHORIZED, &problem);
    let challenge = HeaderValue::from_static("Bearer realm=\"sluice\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

fn forbidden(grant: &Grant) -> Response {
    let message = match grant.role {
        Role::Tenant => format!(
            "a tenant asks for its own networks alone: {} (`?vnet=NAME` of `/v1/vports`)",
            grant.vnets.join(", ")
        ),
        role => format!("the role `{role}` of this token may not do this"),
    };
    let remedy = "Use a token of another role; `sluice api token` makes one.";
    answer_of(StatusCode::FORBIDDEN, &problem("forbidden", message, remedy))
}

#[cfg(test)]
mod tests;
