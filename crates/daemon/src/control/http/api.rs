//! `/v1`: the management API. Each path is a request of `show.sock`, answered by the same code, so
//! that the API and the commands of `sluice` cannot differ.
//!
//! ```text
//!   GET  /v1/ports ─▶ paths ─▶ Request::Ports ─▶ one of 8 threads ─▶ control/show.rs
//!                       │                                              │
//!                       └─ who may ask (peer of the socket)            └─▶ envelope, or a problem
//! ```
//!
//! Everything is on the socket alone: a TCP address has neither TLS nor tokens.

mod outcome;
mod paths;

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use tokio::sync::Semaphore;

use self::outcome::Outcome;
use super::accept::Peer;
use super::answer_of;
use crate::ipc::protocol::Request;

/// Requests that are answered at a time, each by a thread that may wait.
pub(super) const AT_ONCE_MAX: usize = 8;

/// Answers a request with a line of JSON, or with the reason why it does not.
pub(super) type Answer = dyn Fn(Request) -> Result<String, String> + Send + Sync;

/// The API of a host.
#[derive(Clone)]
pub(super) struct Api {
    host: Arc<str>,
    answer: Arc<Answer>,
    places: Arc<Semaphore>,
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
        Self { host: host.into(), answer, places: Arc::new(Semaphore::new(AT_ONCE_MAX)) }
    }

    /// Returns the paths.
    pub(super) fn router(self) -> Router {
        paths::router().with_state(self)
    }

    /// Answers a request, if this peer may make it. `made` is true if it makes something new.
    async fn respond(&self, peer: Peer, access: Access, request: Request, made: bool) -> Response {
        let outcome = match may(peer, access) {
            Err(refused) => refused,
            Ok(()) => self.run(request, made).await,
        };
        outcome.into_response(&self.host)
    }

    async fn run(&self, request: Request, made: bool) -> Outcome {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Outcome::busy(AT_ONCE_MAX);
        };
        let answer = Arc::clone(&self.answer);
        let work = tokio::task::spawn_blocking(move || {
            let answered = answer(request);
            drop(place);
            answered
        });
        match tokio::time::timeout(super::ANSWER_MAX, work).await {
            Ok(Ok(Ok(line))) => Outcome::Answer { line, made },
            Ok(Ok(Err(why))) => Outcome::refused(&why),
            // A thread that panics has ended the process.
            Ok(Err(_)) | Err(_) => Outcome::late(super::ANSWER_MAX),
        }
    }
}

/// Judges access. The owner of the host may do anything; others who reach the socket are members of
/// its group.
fn may(peer: Peer, access: Access) -> Result<(), Outcome> {
    match (peer, access) {
        (Peer::Owner, _) | (Peer::Group, Access::Read) => Ok(()),
        (Peer::Group, Access::Write) => Err(Outcome::forbidden(
            "only root may change anything; members of the group may look",
            "Ask as root.",
        )),
        (Peer::Network, _) => Err(Outcome::forbidden(
            "the management API is on the socket alone: this address has neither TLS nor tokens",
            "Use the socket `http.sock` in the host's directory.",
        )),
    }
}

#[cfg(test)]
mod tests;
