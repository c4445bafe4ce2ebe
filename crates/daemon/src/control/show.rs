//! `show.sock`: questions about the switch are passed to the data process, and its answers passed
//! back unchanged; questions about the fabric are answered here.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use sluice_api::config::Host;
use sluice_api::envelope::HostIdentity;
use sluice_api::fabric::Question;
use sluice_api::fabric_config::Operation;
use sluice_api::placement::{self, PolicyVersion, Stamped};
use sluice_api::transaction::{self, How};

use super::http::Facts;
use super::ports::AddedPorts;
use super::waiting::Applicants;
use super::{Reloads, Upgrades};
use crate::config;
use crate::configuration::Configuration;
use crate::control::policy::Controller;
use crate::fabric::Fabric;
use crate::ipc::protocol::{self, Failure, Request};
use crate::ipc::serve;
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
    applicants: Option<Applicants>,
    known: OnceLock<Known>,
}

impl Front {
    pub(super) fn new(host: &str, applicants: Option<Applicants>) -> Self {
        Self { host: host.to_owned(), applicants, known: OnceLock::new() }
    }

    /// The host forwards from now on.
    pub(super) fn open(&self, known: Known) {
        _ = self.known.set(known);
    }

    /// Returns the name of the host.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the sources of the answers, or the reason why there are none yet.
    pub(super) fn known(&self) -> Result<&Known, String> {
        self.known.get().ok_or_else(|| {
            let why = if self.applicants.is_some() { NO_FABRIC } else { STARTING };
            why.to_owned()
        })
    }

    fn answer(&self, stream: &UnixStream, request: Request) -> io::Result<()> {
        if let Some(known) = self.known.get() {
            return answer(known, stream, request);
        }
        let fail = |error: &str| protocol::write(stream, &Failure { error: error.to_owned() });
        match (request, &self.applicants) {
            (Request::Who, _) => {
                let program = env!("CARGO_PKG_VERSION").to_owned();
                protocol::write(stream, &HostIdentity { host: self.host.clone(), program })
            }
            (Request::Transaction(_), Some(_)) if !is_owner(stream) => fail(OWNER),
            (Request::Transaction(question), Some(applicants)) => {
                protocol::reply(stream, applicants.ask(*question))
            }
            (_, Some(_)) => fail(NO_FABRIC),
            (_, None) => fail(STARTING),
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

const NO_FABRIC: &str = "this host is in no fabric yet: `sluice fabric create NAME --underlay DEV` \
                         makes one of it, `sluice fabric join ADDRESS --token …` a member of one";
const STARTING: &str = "this host is being started";
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

fn answer(known: &Known, stream: &UnixStream, request: Request) -> io::Result<()> {
    let Known { facts, fabric, ports, controller, upgrades, reloads, configuration, .. } = known;
    let fail = |error: String| protocol::write(stream, &Failure { error });
    if changes(&request) && !is_owner(stream) {
        return fail(OWNER.to_owned());
    }
    match (request, fabric.as_ref()) {
        (Request::Who, _) => {
            let program = env!("CARGO_PKG_VERSION").to_owned();
            protocol::write(stream, &HostIdentity { host: facts.host.clone(), program })
        }
        (request @ (Request::Show(_) | Request::Card(_)), _) => {
            hand_on(&known.run_dir, stream, &request)
        }
        (Request::Fabric(Question::Watch), Some(fabric)) => {
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
        (Request::Fabric(question), Some(fabric)) => {
            protocol::reply(stream, fabric.answer(question))
        }
        (Request::Fabric(_), None) => fail(
            "this host is in no fabric; add a `[fabric]` with `name`, `id` and `certificates` to \
             its configuration"
                .to_owned(),
        ),
        (Request::Add(new), _) => protocol::reply(stream, ports.add(&new)),
        (Request::Del(name), _) => protocol::reply(stream, ports.delete(&name)),
        (Request::Ports, _) => protocol::write(stream, &ports.report()),
        (Request::Upgrade, _) => upgrades.ask(|done| protocol::reply(stream, done)),
        (Request::Transaction(question), _) => match configuration {
            Some(configuration) => protocol::reply(stream, configuration.ask(*question)),
            None => fail(FROM_FILE.to_owned()),
        },
        (Request::Reload, _) => match configuration {
            Some(configuration) => protocol::reply(stream, configuration.reload()),
            None => protocol::reply(stream, reloads.reload()),
        },
        (Request::Placement(question), _) => match (question, configuration) {
            (placement::Question::Set(policy), Some(configuration)) => {
                protocol::reply(stream, configuration.ask(set_placement(*policy)))
            }
            (question, _) => protocol::reply(stream, controller.answer(question)),
        },
        (
            Request::Hello
            | Request::Attach(_)
            | Request::Look(_)
            | Request::Follow(_)
            | Request::Lend(_)
            | Request::Tidy(_)
            | Request::Yield(_)
            | Request::Leave
            | Request::GoOn
            | Request::Running
            | Request::Reconfigure(_)
            | Request::Pulse,
            _,
        ) => fail("only questions are answered here".to_owned()),
    }
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
    let is_change =
        matches!(request, Request::Add(_) | Request::Del(_) | Request::Upgrade | Request::Reload);
    sets || thaws || writes || is_change
}

/// Returns true if the peer is root, or the user as whom this process runs.
fn is_owner(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

fn hand_on(run_dir: &Path, stream: &UnixStream, request: &Request) -> io::Result<()> {
    let reply = protocol::connect(run_dir).and_then(|data| {
        data.set_read_timeout(Some(ANSWER_MAX))?;
        protocol::ask(data, request)
    });
    match reply.map(RawValue::from_string) {
        Ok(Ok(line)) => protocol::write(stream, &line),
        Ok(Err(error)) => protocol::write(stream, &Failure { error: error.to_string() }),
        Err(error) => protocol::write(stream, &Failure { error: protocol::silence(&error) }),
    }
}
