//! Rights over the network: a request by TLS has a token (RFC 6750), or its connection a client's
//! certificate. The role of either is judged by method and path before anything else of the request
//! is read. A token that is sent decides alone.
//!
//! | role | may |
//! |---|---|
//! | tenant | its own networks, endpoints, ports: `tenant` looks at request and answer, too |
//! | viewer | GET |
//! | operator | also ports, `/v1/reload`, and `thaw` of an endpoint |
//! | admin | everything |
//!
//! Everything else is refused.

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use serde::Deserialize;
use sluice_api::access::{Grant, Role};
use sluice_api::config::HttpClient;

use super::accept::Peer;
use super::{answer_of, problem};
use crate::control::tokens::ApiTokens;
use crate::sys::log::say;

tokio::task_local! {
    /// Holder of the token or certificate with which the request being answered was made.
    static HOLDER: Holder;
}

/// Longest path in the log.
const LOGGED_SIZE_MAX: usize = 200;

/// Names in the certificate that the other side of a connection has shown, and proved to have; none
/// if it showed none.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown(pub(super) Option<Arc<[String]>>);

/// Proof of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Proof {
    Token,
    Certificate,
}

impl Proof {
    const fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Certificate => "certificate",
        }
    }
}

/// Somebody who asks over the network.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) grant: Grant,
    pub(super) proof: Proof,
}

/// Everything by which holders are known.
#[derive(Debug)]
pub(super) struct Keys {
    tokens: Arc<ApiTokens>,
    clients: Vec<HttpClient>,
}

impl Keys {
    pub(super) const fn new(tokens: Arc<ApiTokens>, clients: Vec<HttpClient>) -> Self {
        Self { tokens, clients }
    }

    /// Returns the holder of a request, or the reason why it has none.
    fn holder(&self, request: &Request) -> Result<Holder, String> {
        let headers = request.headers();
        if headers.contains_key(header::AUTHORIZATION) {
            let grant = bearer(headers).and_then(|token| self.tokens.grant(token));
            return match grant {
                Some(grant) => Ok(Holder { grant, proof: Proof::Token }),
                None => {
                    Err("this host does not know the token of the request, or not any more"
                        .to_owned())
                }
            };
        }
        match request.extensions().get::<Shown>() {
            Some(Shown(Some(names))) => {
                let grant = self.of_certificate(names)?;
                Ok(Holder { grant, proof: Proof::Certificate })
            }
            _ => {
                Err("the request has no token, and its client has shown no certificate".to_owned())
            }
        }
    }

    /// Returns the grant of the first client that a certificate names.
    fn of_certificate(&self, names: &[String]) -> Result<Grant, String> {
        let client = self.clients.iter().find(|client| names.contains(&client.name));
        client.map(HttpClient::grant).ok_or_else(|| {
            let names = names.join("`, `");
            format!("the certificate is of `{names}`, which is no client of this host")
        })
    }
}

/// Admits a request of the network if its token or its certificate does.
pub(super) async fn admit(State(keys): State<Arc<Keys>>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Peer>() != Some(&Peer::Remote) {
        return next.run(request).await;
    }
    let holder = match keys.holder(&request) {
        Ok(holder) => holder,
        Err(why) => return unknown(why),
    };
    let (method, uri) = (request.method().clone(), request.uri().clone());
    if !may(&holder.grant, &method, &uri) {
        return forbidden(&holder);
    }
    let response = HOLDER.scope(holder.clone(), next.run(request)).await;
    if !method.is_safe() {
        let path: String = uri.path().chars().take(LOGGED_SIZE_MAX).collect();
        let Holder { grant: Grant { name, role, .. }, proof } = &holder;
        let (proof, status) = (proof.word(), response.status().as_u16());
        say!("{method} {path} of `{name}` ({role}, by {proof}) over the network: {status}");
    }
    response
}

/// Returns the holder whose request is being answered, if it came over the network.
pub(super) fn current() -> Option<Holder> {
    HOLDER.try_with(Clone::clone).ok()
}

/// Runs a part of a request in another task, for the same holder.
pub(super) async fn within<T>(holder: Option<Holder>, work: impl Future<Output = T>) -> T {
    match holder {
        Some(holder) => HOLDER.scope(holder, work).await,
        None => work.await,
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
        Role::Tenant => is_of_tenant(method, uri, &grant.vnets),
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

fn is_of_tenant(method: &Method, uri: &Uri, vnets: &[String]) -> bool {
    let is_own =
        || Query::<OfVnet>::try_from_uri(uri).is_ok_and(|Query(of)| vnets.contains(&of.vnet));
    let parts: Vec<&str> = uri.path().split('/').skip(1).collect();
    match (method.as_str(), &*parts) {
        ("GET", ["v1"] | ["v1", "host" | "openapi.json" | "vnets" | "ports"])
        | ("POST", ["v1", "ports"]) => true,
        ("GET" | "DELETE", ["v1", "ports", name]) => !name.is_empty(),
        ("GET", ["v1", "vports"]) => is_own(),
        ("GET", ["v1", "vports", endpoint]) | ("POST", ["v1", "vports", endpoint, "thaw"]) => {
            !endpoint.is_empty() && is_own()
        }
        _ => false,
    }
}

/// Refuses a request without a valid token or certificate (RFC 6750 section 3).
fn unknown(message: String) -> Response {
    let remedy = "Send `Authorization: Bearer TOKEN`; `sluice api token NAME --role ROLE` on the \
                  host makes one. Or show a certificate that `[[api.tls.client]]` names.";
    let problem = problem("unauthorized", message, remedy);
    let mut response = answer_of(StatusCode::UNAUTHORIZED, &problem);
    let challenge = HeaderValue::from_static("Bearer realm=\"sluice\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    response
}

fn forbidden(Holder { grant, proof }: &Holder) -> Response {
    let message = match grant.role {
        Role::Tenant => format!(
            "a tenant asks for its own networks alone, and changes ports in them: {} (`?vnet=NAME` \
             of `/v1/vports`)",
            grant.vnets.join(", ")
        ),
        role => format!("the role `{role}` of this {} may not do this", proof.word()),
    };
    let remedy = "Use a token of another role, which `sluice api token` makes; or another \
                  certificate.";
    answer_of(StatusCode::FORBIDDEN, &problem("forbidden", message, remedy))
}

#[cfg(test)]
mod tests;
