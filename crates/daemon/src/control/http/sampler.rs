//! The thread that asks for what the HTTP interface answers: data, the fabric and the
//! configuration, by the requests of `sluice show` and `sluice fabric status`. It may wait for
//! them; nothing that forwards waits for it.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::StatusCode;
use sluice_api::client::{is_busy, while_busy};
use sluice_api::config::{HostConfig, Role};
use sluice_api::fabric;
use sluice_api::http::{Healthy, Problem};
use sluice_api::show::{Answer, Question};
use sluice_api::transaction;
use tokio::sync::oneshot;

use super::problem;
use crate::configuration::Configuration;
use crate::control::show::{Front, Known};
use crate::fabric::Fabric;
use crate::ipc::protocol::{self, Request};
use crate::metrics::{self, DataAnswers, FabricAnswers, Format, Sample};
use crate::sys::threads::spawn_behind;

/// Time for which a sample answers other requests, too.
const FRESH: Duration = Duration::from_millis(250);
/// Requests that may wait.
const ASKS_MAX: usize = 128;
/// Longest time for all answers of the data process.
const DATA_MAX: Duration = Duration::from_secs(4);
/// Longest time for the answer about the configuration.
const CONFIGURATION_MAX: Duration = Duration::from_secs(3);

pub(super) const JSON: &str = "application/json";

/// Facts of a host's configuration that the answers do not have.
#[derive(Clone, Debug)]
pub(in crate::control) struct Facts {
    /// Name of the host.
    pub(in crate::control) host: String,
    role: Role,
    lossless: [bool; 8],
}

impl Facts {
    /// Returns those of a configuration. They change with another data process only, which control
    /// does not survive.
    pub(in crate::control) fn of(config: &HostConfig) -> Self {
        let mut lossless = [true; 8];
        for class in &config.classes {
            if let Some(is_so) = lossless.get_mut(usize::from(class.priority)) {
                *is_so = class.lossless;
            }
        }
        Self { host: config.host.name.clone(), role: config.host.role, lossless }
    }
}

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
        (Err(why), _) if sample.is_waiting => {
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

/// Asks all that know something of the host.
fn sample(front: &Front) -> Sample {
    let began = Instant::now();
    let mut sample = match front.known() {
        Err(why) => Sample {
            host: front.host().to_owned(),
            role: Role::default(),
            lossless: [true; 8],
            is_waiting: true,
            data: Err(why),
            fabric: None,
            configuration: None,
            took: Duration::ZERO,
        },
        Ok(known) => sample_of(known, began),
    };
    sample.took = began.elapsed();
    sample
}

fn sample_of(known: &Known, began: Instant) -> Sample {
    let Facts { host, role, lossless } = &known.facts;
    Sample {
        host: host.clone(),
        role: *role,
        lossless: *lossless,
        is_waiting: false,
        data: ask_data(&known.run_dir, began + DATA_MAX).map(Box::new),
        fabric: known.fabric.as_ref().map(ask_fabric),
        configuration: known.configuration.as_ref().map(ask_configuration),
        took: Duration::ZERO,
    }
}

/// Asks the data process, until a moment. The first question that is not answered is the last one.
fn ask_data(run_dir: &Path, until: Instant) -> Result<DataAnswers, String> {
    let ask = |question| {
        let is_busy = |why: &String| is_busy(why);
        while_busy(until, is_busy, || ask_question(run_dir, question, until))
    };
    Ok(DataAnswers {
        ports: ask(Question::Ports)?,
        queues: ask(Question::Queues)?,
        drops: ask(Question::Drops)?,
        audit: ask(Question::Audit)?,
        pauses: ask(Question::Pauses)?,
        tunnels: ask(Question::Tunnels)?,
        worker: ask(Question::Worker)?,
    })
}

fn ask_question(run_dir: &Path, question: Question, until: Instant) -> Result<Answer, String> {
    let line = protocol::connect_now(run_dir).and_then(|data| {
        // Zero would be no limit.
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        data.set_read_timeout(Some(left))?;
        data.set_write_timeout(Some(left))?;
        protocol::ask(data, &Request::Show(question))
    });
    let line = line.map_err(|error| protocol::silence(&error))?;
    protocol::expect(&line).map_err(|error| format!("{error:#}"))
}

fn ask_fabric(fabric: &Fabric) -> Result<FabricAnswers, String> {
    let fabric::Answer::Members(members) = fabric.answer(fabric::Question::Members)? else {
        return Err("the fabric answers another question".to_owned());
    };
    let answer = fabric.answer(fabric::Question::Certificates)?;
    let fabric::Answer::Certificates(certificates) = answer else {
        return Err("the fabric answers another question".to_owned());
    };
    Ok(FabricAnswers { members, certificates })
}

fn ask_configuration(configuration: &Configuration) -> Result<Box<transaction::Status>, String> {
    match configuration.ask_within(transaction::Question::Status, CONFIGURATION_MAX)? {
        transaction::Answer::Status(status) => Ok(status),
        _ => Err("the configuration answers another question".to_owned()),
    }
}

#[cfg(test)]
pub(super) mod tests;
