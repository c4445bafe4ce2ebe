//! The thread that samples the host for what the HTTP interface answers. It may wait for the
//! answers; nothing that forwards waits for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use sluice_api::http::{Healthy, Problem};
use tokio::sync::oneshot;

use super::problem;
use crate::control::sample::sample;
use crate::control::show::Front;
use crate::metrics::{self, Format, Sample, Stage};
use crate::sys::threads::spawn_behind;

/// Time for which a sample answers other requests, too.
const FRESH: Duration = Duration::from_millis(250);
/// Requests that may wait.
const ASKS_MAX: usize = 128;

pub(super) const JSON: &str = "application/json";

/// A request to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The metrics in a format.
    Metrics(Format),
    /// The state of the host.
    Health,
}

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) status: StatusCode,
    pub(super) content_type: &'static str,
    pub(super) body: Bytes,
}

type Ask = (Wanted, oneshot::Sender<Made>);

/// Handle of the thread.
#[derive(Clone, Debug)]
pub(super) struct Sampler(SyncSender<Ask>);

impl Sampler {
    /// Starts the thread.
    pub(super) fn start(front: Arc<Front>) -> anyhow::Result<Self> {
        Self::with(move || sample(&front))
    }

    /// Starts the thread with a source of samples.
    pub(super) fn with(take: impl Fn() -> Sample + Send + 'static) -> anyhow::Result<Self> {
        let (sender, asks) = sync_channel(ASKS_MAX);
        spawn_behind("metrics", move || run(&asks, take))?;
        Ok(Self(sender))
    }

    /// Asks without waiting. The answer is `None` if the thread is gone.
    pub(super) fn ask(&self, wanted: Wanted) -> Result<oneshot::Receiver<Made>, Problem> {
        let (sender, answer) = oneshot::channel();
        match self.0.try_send((wanted, sender)) {
            Err(TrySendError::Full(_)) => {
                let message = format!("{ASKS_MAX} requests wait for an answer");
                Err(problem("busy", message, "Try again, and ask less often."))
            }
            // A thread that is gone has ended the process, too.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(answer),
        }
    }
}

/// Answers one request after the other, several by one sample.
fn run(asks: &Receiver<Ask>, take: impl Fn() -> Sample) {
    let mut last: Option<Taken> = None;
    for (wanted, answer) in asks.iter() {
        // The client is gone: nobody waits for the answer.
        if answer.is_closed() {
            continue;
        }
        let taken = match &mut last {
            Some(taken) if taken.at.elapsed() < FRESH => taken,
            other => {
                let sample = take();
                other.insert(Taken { at: Instant::now(), sample, made: Vec::new() })
            }
        };
        _ = answer.send(taken.answer(wanted));
    }
}

/// A sample, and the answers that it was made into.
struct Taken {
    at: Instant,
    sample: Sample,
    made: Vec<(Wanted, Made)>,
}

impl Taken {
    fn answer(&mut self, wanted: Wanted) -> Made {
        if let Some((_, made)) = self.made.iter().find(|(known, _)| *known == wanted) {
            return made.clone();
        }
        let made = match wanted {
            Wanted::Metrics(format) => Made {
                status: StatusCode::OK,
                content_type: format.content_type(),
                body: metrics::encode(&self.sample, format).into(),
            },
            Wanted::Health => health(&self.sample),
        };
        self.made.push((wanted, made.clone()));
        made
    }
}

/// Returns the answer of `/healthz`.
fn health(sample: &Sample) -> Made {
    let remedy = "See the log of the host, and `sluice doctor`.";
    let unwell = match (&sample.data, &sample.fabric) {
        (Err(why), _) if sample.stage != Stage::Works => {
            let remedy = "Wait; a host that is in no fabric waits for a command.";
            Some(problem("not_ready", why.clone(), remedy))
        }
        (Err(why), _) => Some(problem("data_silent", why.clone(), remedy)),
        (_, Some(Err(why))) => Some(problem("fabric_silent", why.clone(), remedy)),
        _ => None,
    };
    let (status, body) = match unwell {
        Some(unwell) => (StatusCode::SERVICE_UNAVAILABLE, serde_json::to_string(&unwell)),
        None => {
            let program = env!("CARGO_PKG_VERSION").to_owned();
            let healthy = Healthy { host: sample.host.clone(), program, healthy: true };
            (StatusCode::OK, serde_json::to_string(&healthy))
        }
    };
    Made { status, content_type: JSON, body: body.unwrap_or_default().into() }
}

#[cfg(test)]
pub(super) mod tests;
