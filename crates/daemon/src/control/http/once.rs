//! A request that is made once, however often it is sent: one that changes something may have an
//! `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header), and a repetition gets the answer
//! of the first.
//!
//! ```text
//!   first ────────▶ RUNS ── 2xx, 409 ──▶ ANSWERED: a repetition gets this answer
//!                    │ └─── others ────▶ forgotten: the host has done nothing
//!                    └── late (504): RUNS until the host is done, and is ANSWERED then
//! ```
//!
//! Keys are of one holder of a token or certificate, or of the socket; an answer lasts for
//! [`KEPT_MAX`], and until control is started again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ring::digest::{Context, SHA256};
use sluice_api::http::Problem;
use tokio::task::JoinHandle;

use super::api::has_operation;
use super::api::outcome::Outcome;
use super::guard::Proof;
use super::{answer_of, guard, problem, sampler};

/// The header of a request.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Longest key.
pub(super) const KEY_SIZE_MAX: usize = 255;
/// Longest body of a request, as without a key.
const BODY_SIZE_MAX: usize = 2 << 20;
/// Longest answer that is kept: that of a change which every member of a large fabric applies.
const ANSWER_SIZE_MAX: usize = 256 << 10;
/// Answers that are kept.
const ANSWERS_MAX: usize = 256;
/// Time for which an answer is kept.
const KEPT_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Work that goes on after its answer was given up; with true if it makes something new.
type Work = (JoinHandle<Result<String, String>>, bool);

tokio::task_local! {
    /// Work of the request being answered whose answer came too late.
    static LATE: RefCell<Option<Work>>;
}

/// Takes over work whose answer comes too late, if its request has a key.
pub(super) fn take_late(work: Work) {
    _ = LATE.try_with(|late| *late.borrow_mut() = Some(work));
}

/// Name of a request: its holder, and its key.
type Name = (Option<(Proof, String)>, String);
/// SHA-256 of method, address and body.
type Print = [u8; 32];

/// A request that was made.
#[derive(Clone, Debug)]
struct Made {
    print: Print,
    since: Instant,
    /// Its answer; `None`: it is being made.
    answer: Option<(StatusCode, Bytes)>,
}

/// The requests of a host that were made, by their names.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    host: Arc<str>,
    all: Arc<Mutex<BTreeMap<Name, Made>>>,
}

/// State of a request that has come.
#[derive(Debug, PartialEq)]
enum Found {
    /// Nothing: it is being made from now on.
    First,
    Running,
    Answered(StatusCode, Bytes),
    /// Its key is another request's.
    Other,
    /// Too many requests are being made.
    Full,
}

impl Requests {
    pub(super) fn new(host: &str) -> Self {
        Self { host: host.into(), all: Arc::default() }
    }

    /// Looks for a request, and begins it if there is none.
    fn begin(&self, name: &Name, print: Print, now: Instant) -> Found {
        let mut all = self.all();
        all.retain(|_, made| made.answer.is_none() || now.duration_since(made.since) < KEPT_MAX);
        match all.get(name) {
            Some(made) if made.print != print => return Found::Other,
            Some(Made { answer: None, .. }) => return Found::Running,
            Some(Made { answer: Some((status, body)), .. }) => {
                return Found::Answered(*status, body.clone());
            }
            None => {}
        }
        if all.len() >= ANSWERS_MAX {
            let answered = all.iter().filter(|(_, made)| made.answer.is_some());
            let oldest = answered.min_by_key(|(_, made)| made.since).map(|(name, _)| name.clone());
            match oldest {
                Some(oldest) => _ = all.remove(&oldest),
                None => return Found::Full,
            }
        }
        all.insert(name.clone(), Made { print, since: now, answer: None });
        Found::First
    }

    /// Notes the answer of a request, or forgets it.
    fn end(&self, name: &Name, answer: Option<(StatusCode, Bytes)>) {
        let mut all = self.all();
        match answer {
            Some(answer) => {
                all.entry(name.clone()).and_modify(|made| made.answer = Some(answer));
            }
            None => _ = all.remove(name),
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Name, Made>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers a request with a key once.
pub(super) async fn admit(
    State(requests): State<Requests>,
    request: Request,
    next: Next,
) -> Response {
    let key = match key_of(&request) {
        Ok(Some(key)) => key,
        Ok(None) => return next.run(request).await,
        Err(refused) => return answer_of(StatusCode::BAD_REQUEST, &refused),
    };
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_SIZE_MAX).await else {
        let message = "the body cannot be read to its end".to_owned();
        let refused = problem("malformed", message, "Send less than 2 MiB, and all of it.");
        return answer_of(StatusCode::BAD_REQUEST, &refused);
    };
    let holder = guard::current();
    let owner = holder.as_ref().map(|holder| (holder.proof, holder.grant.name.clone()));
    let name = (owner, key);
    let mut print = Context::new(&SHA256);
    let kind = head.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    for part in [head.method.as_str().as_bytes(), head.uri.to_string().as_bytes(), kind, &body] {
        print.update(&part.len().to_le_bytes());
        print.update(part);
    }
    let print: Print = print.finish().as_ref().try_into().expect("SHA-256 has 32 bytes");
    match requests.begin(&name, print, Instant::now()) {
        Found::First => {
            let request = Request::from_parts(head, Body::from(body));
            // It goes on when its client is gone: a repetition is to find the answer.
            let made = make(requests.clone(), name.clone(), request, next);
            match tokio::spawn(guard::within(holder, made)).await {
                Ok(response) => response,
                Err(_) => forgotten(&requests, &name),
            }
        }
        found => found.into_response(),
    }
}

fn forgotten(requests: &Requests, name: &Name) -> Response {
    requests.end(name, None);
    let message = "the request was broken off".to_owned();
    let refused = problem("late", message, "Look whether it was made before it is tried again.");
    answer_of(StatusCode::GATEWAY_TIMEOUT, &refused)
}

/// Makes a request and notes its answer.
async fn make(requests: Requests, name: Name, request: Request, next: Next) -> Response {
    let (response, late) = LATE
        .scope(RefCell::default(), async {
            let response = next.run(request).await;
            (response, LATE.with(RefCell::take))
        })
        .await;
    if let Some((work, made)) = late {
        tokio::spawn(async move {
            let outcome = match work.await {
                Ok(Ok(line)) => Outcome::Answer { line, made },
                Ok(Err(why)) => Outcome::refused(&why),
                // A thread that panics has ended the process.
                Err(_) => return requests.end(&name, None),
            };
            let (_, answer) = kept(outcome.into_response(&requests.host)).await;
            requests.end(&name, answer);
        });
        return response;
    }
    let (response, answer) = kept(response).await;
    requests.end(&name, answer);
    response
}

/// Returns a response, and what of it is kept for repetitions.
async fn kept(response: Response) -> (Response, Option<(StatusCode, Bytes)>) {
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let is_final = head.status.is_success() || head.status == StatusCode::CONFLICT;
    let answer = is_final.then(|| match body.len() <= ANSWER_SIZE_MAX {
        true => (head.status, body.clone()),
        false => too_long(),
    });
    (Response::from_parts(head, Body::from(body)), answer)
}

/// Returns what is kept of an answer that is too long.
fn too_long() -> (StatusCode, Bytes) {
    let message = "the request was made, and its answer was too long to be kept".to_owned();
    let problem = problem("answered", message, "Look at what it has made.");
    (StatusCode::CONFLICT, serde_json::to_vec(&problem).unwrap_or_default().into())
}

/// Returns the key of a request that may have one.
fn key_of(request: &Request) -> Result<Option<String>, Problem> {
    let Some(value) = request.headers().get(KEY).filter(|_| is_write(request)) else {
        return Ok(None);
    };
    let text = value.to_str().ok().map(|text| text.trim().trim_matches('"'));
    match text.filter(|key| !key.is_empty() && key.len() <= KEY_SIZE_MAX) {
        Some(key) => Ok(Some(key.to_owned())),
        None => {
            let message = "the `Idempotency-Key` cannot be used".to_owned();
            let remedy = "Send 1 to 255 visible characters of ASCII, such as a UUID.";
            Err(problem("malformed", message, remedy))
        }
    }
}

/// Returns true for a request that changes something. Of any other, such as one whose path has no
/// such method, the refusal comes first.
fn is_write(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    !request.method().is_safe() && path.is_some_and(|path| has_operation(request.method(), path))
}

impl Found {
    fn into_response(self) -> Response {
        let (status, code, message, remedy) = match self {
            Self::Answered(status, body) => {
                let head = [
                    (header::CONTENT_TYPE, HeaderValue::from_static(sampler::JSON)),
                    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
                    (REPLAYED, HeaderValue::from_static("true")),
                ];
                return (status, head, body).into_response();
            }
            Self::Running | Self::First => (
                StatusCode::CONFLICT,
                "in_progress",
                "the request with this `Idempotency-Key` is being made",
                "Send it again in a moment.",
            ),
            Self::Other => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "key_reused",
                "this `Idempotency-Key` was sent with another request",
                "Use a key of its own for each request.",
            ),
            Self::Full => (
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "too many requests with an `Idempotency-Key` are being made",
                "Send it again in a moment.",
            ),
        };
        answer_of(status, &problem(code, message.to_owned(), remedy))
    }
}

#[cfg(test)]
mod tests;
