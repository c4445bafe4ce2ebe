//! `show.sock`: questions about the switch are passed to the data process, and its answers passed
//! back unchanged; questions about the fabric are answered here.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::Serialize;
use sluice_api::access;
use sluice_api::config::Host;
use sluice_api::envelope::HostIdentity;
use sluice_api::fabric::{self, Question};
use sluice_api::fabric_config::Operation;
use sluice_api::placement::{self, PolicyVersion, Stamped};
use sluice_api::port::NewPort;
use sluice_api::transaction::{self, How};

use super::answering::Answering;
use super::ports::AddedPorts;
use super::sample::{Facts, forwards, sample};
use super::status;
use super::tokens::ApiTokens;
use super::waiting::Applicants;
use super::{Reloads, Upgrades};
use crate::config;
use crate::configuration::Configuration;
use crate::control::policy::Controller;
use crate::fabric::Fabric;
use crate::ipc::protocol::{self, Failure, Request};
use crate::ipc::serve;
use crate::metrics::Stage;
use crate::sys::peer::{is_gone, is_owner};
use crate::sys::run_dir::{self, Role};
use crate::sys::threads::spawn_behind;

/// Longest silence of a client.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time between two checks of a watching client while there are no events.
const WATCH_BEAT: Duration = Duration::from_secs(1);
/// Longest time for data's answer.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// What stands behind the socket: first a host that waits to become a member of a fabric, if it has
/// to, then one that forwards.
#[derive(Debug)]
pub(super) struct Front {
    host: String,
    run_dir: PathBuf,
    applicants: Option<Applicants>,
    known: OnceLock<Known>,
    answering: Arc<Answering>,
    tokens: Arc<ApiTokens>,
}

impl Front {
    /// Returns that of a host which waits for a fabric, if there are applicants, or is being
    /// started.
    pub(super) fn new(host: &Host, applicants: Option<Applicants>) -> Self {
        let run_dir = config::run_dir(host);
        let (known, answering) = (OnceLock::new(), Arc::default());
        let tokens = Arc::new(ApiTokens::load(&config::state_dir(host)));
        Self { host: host.name.clone(), run_dir, applicants, known, answering, tokens }
    }

    /// Returns the tokens of the management API.
    pub(super) fn tokens(&self) -> &Arc<ApiTokens> {
        &self.tokens
    }

    /// Returns the count of the requests that are being answered.
    pub(super) fn answering(&self) -> &Arc<Answering> {
        &self.answering
    }

    /// The host forwards from now on.
    pub(super) fn open(&self, known: Known) {
        _ = self.known.set(known);
    }

    /// Returns the name of the host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the stage of the control process.
    pub(super) fn stage(&self) -> Stage {
        match (self.known.get(), &self.applicants) {
            (Some(_), _) => Stage::Works,
            (None, Some(_)) => Stage::Waits,
            (None, None) => Stage::Starts { forwards: forwards(&self.run_dir) },
        }
    }

    /// Returns the sources of the answers, or the reason why there are none yet.
    pub(super) fn known(&self) -> Result<&Known, String> {
        self.known.get().ok_or_else(|| {
            let why = if self.applicants.is_some() { NO_FABRIC } else { STARTING };
            why.to_owned()
        })
    }

    /// Returns every event from now on.
    ///
    /// # Errors
    /// If the host is in no fabric yet.
    pub(super) fn watch(&self) -> Result<Receiver<fabric::Answer>, String> {
        let fabric = self.known()?.fabric.as_ref();
        fabric.map(Fabric::watch).ok_or_else(|| NOT_OF_FABRIC.to_owned())
    }

    /// Answers a client of the socket.
    fn answer(&self, stream: &UnixStream, request: Request) -> io::Result<()> {
        if self.is_reserved(&request) && !is_owner(stream) {
            return protocol::write(stream, &Failure { error: OWNER.to_owned() });
        }
        if let Some(known) = self.known.get() {
            match (&request, &known.fabric) {
                (Request::Fabric(Question::Watch), Some(fabric)) => return watch(fabric, stream),
                (Request::Upgrade, _) => {
                    return known.upgrades.ask(|done| protocol::reply(stream, done));
                }
                _ => {}
            }
        }
        let _answer = self.answering.begin();
        if let (Request::Add(new), Some(known)) = (&request, self.known.get()) {
            return add(&known.ports, stream, new);
        }
        match self.respond(request) {
            Ok(line) => protocol::write_line(stream, &line),
            Err(error) => protocol::write(stream, &Failure { error }),
        }
    }

    /// Returns true for requests of the owner of the host alone.
    fn is_reserved(&self, request: &Request) -> bool {
        let joins = matches!(request, Request::Transaction(_)) && self.known.get().is_none();
        joins || changes(request)
    }

    /// Answers a request of somebody who may make it with a line of JSON.
    ///
    /// # Errors
    /// The reason why not, with the remedy.
    pub(super) fn respond(&self, request: Request) -> Result<String, String> {
        if request == Request::Status {
            return line(&status::report(&sample(self)));
        }
        if let Request::Access(question) = request {
            return self.tokens.answer(question);
        }
        if let Some(known) = self.known.get() {
            return respond(known, request);
        }
        match (request, &self.applicants) {
            (Request::Who, _) => line(&who(&self.host)),
            (Request::Transaction(question), Some(applicants)) => line(&applicants.ask(*question)?),
            (_, Some(_)) => Err(NO_FABRIC.to_owned()),
            (_, None) => Err(STARTING.to_owned()),
        }
    }
}

/// Answers in a thread of its own for as long as the process lives.
pub(super) fn serve(role: &Role, host: &Host, front: Arc<Front>) -> anyhow::Result<()> {
    let socket = config::run_dir(host).join(run_dir::SHOW_SOCKET);
    let listener = role.listen(&socket, host.group.as_deref())?;
    spawn_behind("show", move || {
        serve::connections(&listener, Some(SILENCE_MAX), move |stream, reader| {
            while let Some(request) = protocol::next_request(stream, reader) {
                if front.answer(stream, request).is_err() {
                    break;
                }
            }
        });
    })
}

/// Refusal of a host that waits for a command.
pub(super) const NO_FABRIC: &str = "this host is in no fabric yet: \
                                    `sluice fabric create NAME --underlay DEV` makes one of it, \
                                    `sluice fabric join ADDRESS --token …` a member of one";
/// Refusal of a host that does not forward yet.
pub(super) const STARTING: &str = "this host is being started";
const NO_STREAM: &str = "this is asked on `show.sock` alone";
pub(super) const NOT_OF_FABRIC: &str = "this host is in no fabric; add a `[fabric]` with `name`, \
                                        `id` and `certificates` to its configuration";
const OWNER: &str = "only root may change anything; members of the group may look";

/// Sources of the answers.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) facts: Facts,
    pub(super) run_dir: PathBuf,
    pub(super) fabric: Option<Fabric>,
    pub(super) ports: Arc<AddedPorts>,
    pub(super) controller: Controller,
    pub(super) upgrades: Upgrades,
    pub(super) reloads: Reloads,
    /// The configuration of a fabric that was made by command.
    pub(super) configuration: Option<Configuration>,
}

const FROM_FILE: &str = "this host takes its whole configuration from its file; a host without \
                         networks and peers in its file can be made a member of a fabric by \
                         command (`sluice fabric create`, `sluice fabric join`)";

fn respond(known: &Known, request: Request) -> Result<String, String> {
    let Known { facts, fabric, ports, controller, reloads, configuration, .. } = known;
    match (request, fabric.as_ref()) {
        (Request::Who, _) => line(&who(&facts.host)),
        (request @ (Request::Show(_) | Request::Card(_)), _) => hand_on(&known.run_dir, &request),
        (Request::Fabric(Question::Watch), Some(_)) => Err(NO_STREAM.to_owned()),
        (Request::Fabric(question), Some(fabric)) => line(&fabric.answer(question)?),
        (Request::Fabric(_), None) => Err(NOT_OF_FABRIC.to_owned()),
        (Request::Add(new), _) => line(&ports.add(&new)?),
        (Request::Del(name), _) => line(&ports.delete(&name)?),
        (Request::Ports, _) => line(&ports.report()),
        (Request::Transaction(question), _) => match configuration {
            Some(configuration) => line(&configuration.ask(*question)?),
            None => Err(FROM_FILE.to_owned()),
        },
        (Request::Reload, _) => match configuration {
            Some(configuration) => line(&configuration.reload()?),
            None => line(&reloads.reload()?),
        },
        (Request::Placement(question), _) => match (question, configuration) {
            (placement::Question::Set(policy), Some(configuration)) => {
                line(&configuration.ask(set_placement(*policy))?)
            }
            (question, _) => line(&controller.answer(question)?),
        },
        (Request::Upgrade, _) => Err(NO_STREAM.to_owned()),
        (
            Request::Hello
            | Request::Attach(_)
            | Request::Look(_)
            | Request::Follow(_)
            | Request::Lend(_)
            | Request::Capture(_)
            | Request::Tidy(_)
            | Request::Yield(_)
            | Request::Leave
            | Request::GoOn
            | Request::Running
            | Request::Reconfigure(_)
            | Request::Pulse
            | Request::Access(_)
            | Request::Status,
            _,
        ) => Err("only questions are answered here".to_owned()),
    }
}

/// Adds a port, and undoes that if its client cannot be told.
fn add(ports: &AddedPorts, stream: &UnixStream, new: &NewPort) -> io::Result<()> {
    match ports.add_for(new, || is_gone(stream)) {
        Ok((added, notice)) => {
            let written = protocol::write(stream, &added);
            ports.settle(&notice, written.is_ok());
            written
        }
        Err(error) => protocol::write(stream, &Failure { error }),
    }
}

/// Writes events of the fabric for as long as the client listens.
fn watch(fabric: &Fabric, stream: &UnixStream) -> io::Result<()> {
    let lines = fabric.watch();
    loop {
        match lines.recv_timeout(WATCH_BEAT) {
            Ok(line) => protocol::write(stream, &line)?,
            // An empty line shows whether the client still listens.
            Err(RecvTimeoutError::Timeout) => protocol::write_empty(stream)?,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn who(host: &str) -> HostIdentity {
    HostIdentity { host: host.to_owned(), program: env!("CARGO_PKG_VERSION").to_owned() }
}

fn line(answer: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(answer).map_err(|error| format!("the answer cannot be written: {error}"))
}

/// Returns the change of a fabric's configuration that sets a policy.
fn set_placement(policy: placement::Policy) -> transaction::Question {
    let placement = Some(Stamped { stamp: PolicyVersion::default(), policy });
    let change = vec![Operation::SetPlacement { placement }];
    transaction::Question::Change { change, how: How::default() }
}

/// Returns true if a request changes something.
fn changes(request: &Request) -> bool {
    let sets = matches!(request, Request::Placement(placement::Question::Set(_)));
    let thaws = matches!(request, Request::Fabric(Question::Thaw { .. }));
    let writes = matches!(request, Request::Transaction(question) if question.changes());
    let grants =
        matches!(request, Request::Access(question) if *question != access::Question::List);
    let is_change =
        matches!(request, Request::Add(_) | Request::Del(_) | Request::Upgrade | Request::Reload);
    sets || thaws || writes || grants || is_change
}

/// Passes a request to data, and data's answer back unchanged.
fn hand_on(run_dir: &Path, request: &Request) -> Result<String, String> {
    let reply =
        protocol::connect_within(run_dir, ANSWER_MAX).and_then(|data| protocol::ask(data, request));
    let line = reply.map_err(|error| protocol::silence(&error))?;
    match protocol::failure(&line) {
        Some(Failure { error }) => Err(error),
        None => Ok(line),
    }
}
