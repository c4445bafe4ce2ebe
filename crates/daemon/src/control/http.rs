//! The HTTP interface of a host: `/metrics`, `/healthz`, and `/v1`, the management API.
//!
//! ```text
//!   clients ─▶ http.sock ─┐   thread `http`: one runtime,      thread `metrics`: asks data,
//!   clients ─▶ TCP ───────┴─▶ each connection a task ─ asks ─▶ fabric and configuration, at
//!                                                              most once in 250 ms
//! ```
//!
//! A client costs a bounded amount: a connection answers one request, has [`CONNECTION_MAX`] for
//! all of it and [`HEAD_MAX`] for its head, of at most [`HEAD_SIZE_MAX`] bytes. A listener has
//! [`CONNECTIONS_MAX`] of them; one more ends the oldest that has not asked yet, or else the
//! oldest, and the owner's after those of others. So clients that do not ask keep nobody out.
//! Metrics are made one at a time, by a thread that may wait; no worker waits for it.

mod accept;
mod api;
mod events;
mod guard;
mod once;
mod sampler;
mod tenant;
mod tls;

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use sluice_api::config::{Host, HttpApi, HttpTls};
use sluice_api::http::Problem;

use self::accept::Limits;
use self::api::Api;
use self::guard::Keys;
use self::once::Requests;
use self::sampler::{Sampler, Wanted};
use super::answering::Answering;
use super::show::Front;
use crate::config;
use crate::metrics::Format;
use crate::sys::log::say;
use crate::sys::run_dir::{self, Role};
use crate::sys::threads::spawn_behind;

/// Connections of a listener at a time.
const CONNECTIONS_MAX: usize = 64;
/// Longest life of a connection.
const CONNECTION_MAX: Duration = Duration::from_secs(15);
/// Longest time for the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// Longest head of a request.
const HEAD_SIZE_MAX: usize = 16 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;
/// Longest wait of a request for its answer; a connection may still write it then.
const ANSWER_MAX: Duration = Duration::from_secs(14);
/// Time between two attempts to listen on an address that another program has.
const LISTEN_EVERY: Duration = Duration::from_secs(1);

const LIMITS: Limits = Limits {
    connections_max: CONNECTIONS_MAX,
    connection_max: CONNECTION_MAX,
    head_max: HEAD_MAX,
    head_size_max: HEAD_SIZE_MAX,
    headers_max: HEADERS_MAX,
};

/// Answers on the socket of the host's directory and, if the configuration says so, on a TCP
/// address, for as long as the process lives.
///
/// # Errors
/// If there is no socket or no thread. An address that is in use is tried again and again: a host
/// forwards without it.
pub(super) fn serve(
    role: &Role,
    host: &Host,
    api: HttpApi,
    front: &Arc<Front>,
) -> anyhow::Result<()> {
    let socket = config::run_dir(host).join(run_dir::HTTP_SOCKET);
    let listener = role.listen(&socket, host.group.as_deref())?;
    listener.set_nonblocking(true)?;
    let sampler = Sampler::start(Arc::clone(front))?;
    let answering = Arc::clone(front.answering());
    let clients = api.tls.as_ref().map(|tls| tls.clients.clone()).unwrap_or_default();
    let keys = Arc::new(Keys::new(Arc::clone(front.tokens()), clients));
    let state_dir = config::state_dir(host);
    let (asked, watched) = (Arc::clone(front), Arc::clone(front));
    let managed = Api::new(&host.name, Arc::new(move |request| asked.respond(request)))
        .watching(Arc::new(move || watched.watch()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(api::AT_ONCE_MAX)
        .build()
        .context("cannot make the runtime of the HTTP interface")?;
    spawn_behind("http", move || {
        let served = (router(sampler, managed, keys), answering);
        if let Some(tls) = api.tls {
            runtime.spawn(remote(tls, state_dir, served.clone()));
        }
        runtime.block_on(both(listener, api.listen, served))
    })
}

/// Serves other machines.
async fn remote(tls: HttpTls, state_dir: PathBuf, served: (Router, Arc<Answering>)) {
    if let Some(listener) = tls::listen(&tls, &state_dir).await {
        accept::serve(listener, LIMITS, served).await;
    }
}

/// Serves both listeners. A failure of one does not end the other.
async fn both(socket: UnixListener, tcp: Option<SocketAddr>, served: (Router, Arc<Answering>)) {
    let of_tcp = served.clone();
    tokio::spawn(async move {
        if let Some(at) = tcp {
            accept::serve(listen(at, "api.listen").await, LIMITS, of_tcp).await;
        }
    });
    match tokio::net::UnixListener::from_std(socket) {
        Ok(socket) => accept::serve(socket, LIMITS, served).await,
        Err(error) => say!(error: "no HTTP on {}: {error}", run_dir::HTTP_SOCKET),
    }
    std::future::pending::<()>().await;
}

/// Listens on an address, as soon as no other program has it.
async fn listen(at: SocketAddr, key: &str) -> tokio::net::TcpListener {
    let mut is_told = false;
    loop {
        match tokio::net::TcpListener::bind(at).await {
            Ok(listener) => {
                say!("HTTP on {at}");
                return listener;
            }
            Err(error) if !is_told => {
                is_told = true;
                say!(
                    warn: "cannot listen on {at}, which is tried again each second: {error}; \
                           `{key}` may have another address"
                );
            }
            Err(_) => {}
        }
        tokio::time::sleep(LISTEN_EVERY).await;
    }
}

fn router(sampler: Sampler, api: Api, keys: Arc<Keys>) -> Router {
    let requests = Requests::new(api.host());
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(health))
        .with_state(sampler)
        .merge(api.router())
        .method_not_allowed_fallback(no_method)
        .fallback(no_path)
        .layer(middleware::from_fn_with_state(requests, once::admit))
        .layer(middleware::from_fn_with_state(keys, guard::admit))
}

async fn metrics(State(sampler): State<Sampler>, headers: HeaderMap) -> Response {
    ask(&sampler, Wanted::Metrics(format_of(&headers))).await
}

async fn health(State(sampler): State<Sampler>) -> Response {
    ask(&sampler, Wanted::Health).await
}

async fn ask(sampler: &Sampler, wanted: Wanted) -> Response {
    let answer = async { Ok::<_, Problem>(sampler.ask(wanted)?.await.ok()) };
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(Ok(Some(answer))) => {
            let kind = [
                (header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type)),
                (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            ];
            (answer.status, kind, answer.body).into_response()
        }
        Ok(Err(problem)) => answer_of(StatusCode::SERVICE_UNAVAILABLE, &problem),
        Ok(Ok(None)) | Err(_) => {
            let message = format!("there is no answer within {} s", ANSWER_MAX.as_secs());
            answer_of(
                StatusCode::SERVICE_UNAVAILABLE,
                &problem("late", message, "Try again; the log of the host may say why."),
            )
        }
    }
}

async fn no_path(uri: Uri) -> Response {
    let message = format!("there is no `{}` here", uri.path());
    answer_of(
        StatusCode::NOT_FOUND,
        &problem(
            "not_found",
            message,
            "Ask for `/metrics`, `/healthz`, or `/v1`, which has the others.",
        ),
    )
}

async fn no_method(method: Method, uri: Uri) -> Response {
    let message = format!("`{method}` is not understood at `{}`", uri.path());
    let problem = problem("method_not_allowed", message, "The head `Allow` has what is.");
    answer_of(StatusCode::METHOD_NOT_ALLOWED, &problem)
}

fn problem(code: &str, message: String, remedy: &str) -> Problem {
    Problem { code: code.to_owned(), message, remedy: remedy.to_owned() }
}

fn answer_of(status: StatusCode, body: &Problem) -> Response {
    let text = serde_json::to_string(body).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static(sampler::JSON))], text)
        .into_response()
}

/// Returns the format that a client wants: OpenMetrics if it names that, and does not prefer the
/// other (RFC 9110 section 12.5.1). A person with `curl` gets what `promtool` reads.
fn format_of(headers: &HeaderMap) -> Format {
    let (mut open, mut plain) = (0, 0);
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    for range in values.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let (mut quality, mut version) = (1_000, None);
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            match key.trim() {
                "q" => quality = thousandths(value.trim()),
                "version" => version = Some(value.trim().trim_matches('"')),
                _ => {}
            }
        }
        match kind {
            "application/openmetrics-text" if version.is_none_or(|one| one == "1.0.0") => {
                open = open.max(quality);
            }
            "text/plain" => plain = plain.max(quality),
            _ => {}
        }
    }
    if open > 0 && open >= plain { Format::OpenMetrics } else { Format::Prometheus }
}

/// Returns a weight (`0.75`) in thousandths; one that cannot be read is none.
fn thousandths(weight: &str) -> u32 {
    let (whole, rest) = weight.split_once('.').unwrap_or((weight, ""));
    let digits = format!("{whole}{rest:0<3}");
    match digits.parse() {
        Ok(value) if rest.len() <= 3 && value <= 1_000 => value,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
