//! `/v1`: the management API. Each path is a request of `show.sock`, answered by the same code, so
//! that the API and the commands of `sluice` cannot differ.
//!
//! ```text
//!   GET  /v1/ports ─▶ paths ─▶ Request::Ports ─▶ one of 8 threads ─▶ control/show.rs
//!                       │                                              │
//!                       └─ who may ask (peer of the socket)            └─▶ envelope, or a problem
//! ```
//!
//! It is on the socket, and by TLS for those who have a token or a certificate (`http/guard.rs`);
//! the loopback address has neither.

mod answers;
mod openapi;
pub(super) mod outcome;
mod paths;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request as HttpRequest, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(super) use self::openapi::has_operation;
#[cfg(test)]
pub(super) use self::openapi::operations;
use self::outcome::Outcome;
use super::accept::Peer;
use super::events::{Events, Watch};
use super::tenant::Tenant;
use super::{answer_of, once};
use crate::control::show::NOT_OF_FABRIC;
use crate::ipc::protocol::Request;

/// Requests that are answered at a time, each by a thread that may wait.
pub(super) const AT_ONCE_MAX: usize = 8;
/// Threads for the owner of the host alone: others, much as they ask, do not keep it out.
const OWNERS: usize = 2;

/// Answers a request with a line of JSON, or with the reason why it does not.
pub(super) type Answer = dyn Fn(Request) -> Result<String, String> + Send + Sync;

/// A request, or the reason why it is none.
type Asked = Result<Request, Outcome>;

/// The API of a host.
#[derive(Clone)]
pub(super) struct Api {
    host: Arc<str>,
    answer: Arc<Answer>,
    places: Arc<Semaphore>,
    /// Places for others than the owner: each of them takes one of both.
    of_others: Arc<Semaphore>,
    answer_max: Duration,
    events: Events,
}

tokio::task_local! {
    /// The peer whose request is being answered.
    static ASKS: Peer;
}

/// Kind of access that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// To look.
    Read,
    /// To change something.
    Write,
}

impl Api {
    pub(super) fn new(host: &str, answer: Arc<Answer>) -> Self {
        let [places, of_others] =
            [AT_ONCE_MAX, AT_ONCE_MAX - OWNERS].map(|count| Arc::new(Semaphore::new(count)));
        let events = Events::new(Arc::new(|| Err(NOT_OF_FABRIC.to_owned())));
        let answer_max = super::ANSWER_MAX;
        Self { host: host.into(), answer, places, of_others, answer_max, events }
    }

    /// Has what happens told by this source.
    pub(super) fn watching(self, watch: Arc<Watch>) -> Self {
        Self { events: Events::new(watch), ..self }
    }

    /// Waits for an answer no longer than this.
    #[cfg(test)]
    pub(super) fn within(self, answer_max: Duration) -> Self {
        Self { answer_max, ..self }
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    const fn events(&self) -> &Events {
        &self.events
    }

    /// Returns the paths. Who may not ask is told so before anything of the request is read.
    pub(super) fn router(self) -> Router {
        let admit = middleware::from_fn_with_state(self.clone(), admit);
        let (router, _) = paths::router().split_for_parts();
        router.route_layer(admit).with_state(self)
    }

    /// Answers a request, or says why it is none.
    async fn respond(&self, asked: Asked) -> Response {
        self.outcome(asked, false).await.into_response(&self.host)
    }

    /// Answers a request that makes something new.
    async fn make(&self, asked: Asked) -> Response {
        self.outcome(asked, true).await.into_response(&self.host)
    }

    async fn outcome(&self, asked: Asked, made: bool) -> Outcome {
        match asked {
            Ok(request) => self.run(request, made).await,
            Err(malformed) => malformed,
        }
    }

    /// Takes a place for the present peer.
    fn place(&self) -> Option<(OwnedSemaphorePermit, Option<OwnedSemaphorePermit>)> {
        let of_owner = ASKS.try_with(|peer| *peer == Peer::Owner).unwrap_or_default();
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        let other = if of_owner { None } else { Some(take(&self.of_others)?) };
        Some((take(&self.places)?, other))
    }

    /// Runs a request. `made` is true if it makes something new.
    async fn run(&self, request: Request, made: bool) -> Outcome {
        let Some(place) = self.place() else { return Outcome::busy(AT_ONCE_MAX) };
        let answer = Arc::clone(&self.answer);
        let tenant = Tenant::current();
        let mut work = tokio::task::spawn_blocking(move || {
            let answered = match tenant {
                Some(tenant) => tenant.answer(request, &*answer),
                None => answer(request),
            };
            drop(place);
            answered
        });
        match tokio::time::timeout(self.answer_max, &mut work).await {
            Ok(Ok(Ok(line))) => Outcome::Answer { line, made },
            Ok(Ok(Err(why))) => Outcome::refused(&why),
            // A thread that panics has ended the process.
            Ok(Err(_)) => Outcome::late(self.answer_max),
            Err(_) => {
                once::take_late((work, made));
                Outcome::late(self.answer_max)
            }
        }
    }
}

/// Hands a request on if its peer may make it: one that only looks has a safe method (RFC 9110
/// section 9.2.1).
async fn admit(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let access = if request.method().is_safe() { Access::Read } else { Access::Write };
    match may(peer, access) {
        Ok(()) => ASKS.scope(peer, next.run(request)).await,
        Err(refused) => refused.into_response(&api.host),
    }
}

/// Judges access. The owner of the host may do anything; others who reach the socket are members of
/// its group.
fn may(peer: Peer, access: Access) -> Result<(), Outcome> {
    match (peer, access) {
        // The holder of a request over the network was judged before.
        (Peer::Owner | Peer::Remote, _) | (Peer::Group, Access::Read) => Ok(()),
        (Peer::Group, Access::Write) => Err(Outcome::forbidden(
            "only root may change anything; members of the group may look",
            "Ask as root.",
        )),
        (Peer::Network, _) => Err(Outcome::forbidden(
            "the management API is not at this address, which has neither TLS nor tokens",
            "Use the socket `http.sock` in the host's directory, or the address of `[api.tls]`.",
        )),
    }
}

#[cfg(test)]
mod tests;
