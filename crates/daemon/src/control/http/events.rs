//! Events of a host as they happen: server-sent events (WHATWG HTML section 9.2).
//!
//! ```text
//!   fabric, configuration ─▶ 1,024 events ─▶ thread `events` ─▶ a few lines ─▶ connection
//! ```
//!
//! A client that reads too slowly misses events, is told how many, and delays nobody. Each watcher
//! has a thread of its own; there are at most [`WATCHERS_MAX`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use sluice_api::fabric::Answer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::api::outcome::Outcome;
use crate::sys::threads::spawn_behind;

/// Watchers at a time.
const WATCHERS_MAX: usize = 8;
/// Lines that a connection has not written yet.
const LINES_MAX: usize = 16;
/// Time between two lines: a comment shows whether the client is still there.
const BEAT: Duration = Duration::from_secs(10);

/// Source of events, from now on; or the reason why there is none.
pub(super) type Watch = dyn Fn() -> Result<Receiver<Answer>, String> + Send + Sync;

/// Mark of a response that has no end of its own: it may last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lasting;

/// The watchers of a host.
#[derive(Clone)]
pub(super) struct Events {
    watch: Arc<Watch>,
    places: Arc<Semaphore>,
}

impl Events {
    pub(super) fn new(watch: Arc<Watch>) -> Self {
        Self { watch, places: Arc::new(Semaphore::new(WATCHERS_MAX)) }
    }

    /// Answers with every event from now on: for a time, or until the client goes.
    pub(super) fn respond(&self, host: &str, seconds: Option<u32>) -> Response {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Outcome::busy(WATCHERS_MAX).into_response(host);
        };
        let events = match (self.watch)() {
            Ok(events) => events,
            Err(why) => return Outcome::refused(&why).into_response(host),
        };
        let (lines, written) = mpsc::channel(LINES_MAX);
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
        if spawn_behind("events", move || pass_on(&events, &lines, end, place)).is_err() {
            return Outcome::refused("there is no thread for it; try again").into_response(host);
        }
        let head = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        ];
        let mut response = (head, Body::new(Lines(written))).into_response();
        response.extensions_mut().insert(Lasting);
        response
    }
}

/// Passes events on until the client or the time is gone.
fn pass_on(
    events: &Receiver<Answer>,
    lines: &mpsc::Sender<Bytes>,
    end: Option<Instant>,
    _place: OwnedSemaphorePermit,
) {
    // The head of the answer is written with its first bytes.
    let mut text = Some(Bytes::from_static(b": from now on\n\n"));
    loop {
        if let Some(text) = text.take()
            && lines.blocking_send(text).is_err()
        {
            return;
        }
        let left = end.map_or(BEAT, |end| end.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return;
        }
        text = match events.recv_timeout(left.min(BEAT)) {
            Ok(Answer::Event(row)) => {
                let data = serde_json::to_string(&row).unwrap_or_default();
                Some(format!("event: {}\ndata: {data}\n\n", row.event).into())
            }
            Ok(_) => None,
            Err(RecvTimeoutError::Timeout) => Some(Bytes::from_static(b":\n\n")),
            Err(RecvTimeoutError::Disconnected) => return,
        };
    }
}

/// A body of lines that come by and by.
struct Lines(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}

#[cfg(test)]
mod tests;
