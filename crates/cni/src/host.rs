//! The host of the containers, by its socket.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use sluice_api::client::{self, AnswerError, DATA_SOCKET, FindError, HostSelector};
use sluice_api::fabric::{self, Question};
use sluice_api::port::{Added, AddedPorts, Attachment, Card, Deleted, NewPort, PortState};
use sluice_api::request::Request;

use crate::error::{Code, Error};
use crate::name;

/// Longest time for an answer. The host itself waits less for its parts.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Longest time for which a host that answers many others is asked again.
const BUSY_MAX: Duration = Duration::from_secs(20);

/// Folder beside the socket for what the plugin is about to do.
const CLAIMS_DIR: &str = "cni";

/// A running host.
#[derive(Debug)]
pub(crate) struct Host {
    socket: PathBuf,
}

impl Host {
    /// Finds the host that the configuration selects.
    pub(crate) fn find(selector: &HostSelector) -> Result<Self, Error> {
        let socket = selector.lasting_socket().map_err(|error| match error {
            FindError::Several { .. } => {
                let details = "name one as `host` in the options of the network";
                Error::new(Code::Config, problem(&error), details)
            }
            error => absent(&error),
        })?;
        Ok(Self { socket })
    }

    /// Returns the folder of claims on attachments of this host.
    pub(crate) fn claims(&self) -> PathBuf {
        self.socket.with_file_name(CLAIMS_DIR)
    }

    /// Returns the error of a host that is not there.
    pub(crate) fn absent(&self, source: std::io::Error) -> Error {
        absent(&FindError::Silent { socket: self.socket.clone(), source })
    }

    /// Adds a port.
    pub(crate) fn add(&self, new: NewPort) -> Result<Added, Error> {
        self.ask(&Request::Add(Box::new(new)))
    }

    /// Looks at the device of a port.
    pub(crate) fn card(&self, name: &str) -> Result<Card, Error> {
        self.ask(&Request::Card(name.to_owned()))
    }

    /// Lists the ports that were added.
    pub(crate) fn ports(&self) -> Result<Vec<PortState>, Error> {
        self.ask::<AddedPorts>(&Request::Ports).map(|answer| answer.ports)
    }

    /// Returns the port of an attachment; `None` if there is none, or it is another's.
    pub(crate) fn port_of(&self, attachment: &Attachment) -> Result<Option<PortState>, Error> {
        let name = name::of(attachment);
        let is_it = |state: &PortState| {
            state.port.name.as_deref() == Some(&name) && state.port.cni.as_ref() == Some(attachment)
        };
        Ok(self.ports()?.into_iter().find(is_it))
    }

    /// Deletes the port of an attachment; no error if it is gone.
    pub(crate) fn delete(&self, attachment: &Attachment) -> Result<(), Error> {
        if self.port_of(attachment)?.is_none() {
            return Ok(());
        }
        match self.ask::<Deleted>(&Request::Del(name::of(attachment))) {
            Ok(_) => Ok(()),
            // Another DEL may have come between.
            Err(error) => match self.port_of(attachment)? {
                None => Ok(()),
                Some(_) => Err(error),
            },
        }
    }

    /// Returns the names of the networks that this host knows.
    pub(crate) fn vnets(&self) -> Result<Vec<String>, Error> {
        match self.ask(&Request::Fabric(Question::Vnets))? {
            fabric::Answer::Vnets(rows) => Ok(rows.into_iter().map(|row| row.vnet).collect()),
            _ => Err(self.unreadable("it answers another question")),
        }
    }

    /// Refuses a network that this host does not know.
    pub(crate) fn check_vnet(&self, vnet: &str) -> Result<(), Error> {
        let known = self.vnets()?;
        if known.iter().any(|one| one == vnet) {
            return Ok(());
        }
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(Error::new(
            Code::Config,
            format!("this host knows no network `{vnet}`, only {known}"),
            format!(
                "make it with `sluice vnet create {vnet} --vni NUMBER`, or name another one with \
                 `-o vnet=NAME`"
            ),
        ))
    }

    /// Asks the data process for a sign of life, by way of control.
    pub(crate) fn forwards(&self) -> Result<(), Error> {
        let question = sluice_api::show::Question::Worker;
        self.ask::<serde_json::Value>(&Request::Show(question)).map(drop)
    }

    /// Returns true if a data process listens beside the socket: it forwards without control.
    pub(crate) fn has_data(&self) -> bool {
        let socket = self.socket.parent().map(|dir| dir.join(DATA_SOCKET));
        socket.is_some_and(|socket| client::connect(&socket).is_ok())
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        let is_busy = |error: &AskError| matches!(error, AskError::Busy(_));
        client::while_busy(Instant::now() + BUSY_MAX, is_busy, || self.ask_once(request))
            .map_err(|(AskError::Busy(error) | AskError::Other(error))| error)
    }

    fn ask_once<T: serde::de::DeserializeOwned>(&self, request: &Request) -> Result<T, AskError> {
        let path = self.socket.display();
        let silent = |error: std::io::Error| {
            AskError::Other(Error::new(
                Code::TryAgain,
                format!("{path} did not answer: {error}"),
                "the host's log says why; try again",
            ))
        };
        let stream = client::connect(&self.socket);
        let stream = stream.map_err(|error| AskError::Other(absent(&error)))?;
        stream.set_read_timeout(Some(ANSWER_MAX)).map_err(silent)?;
        let line = client::ask(stream, request).map_err(silent)?;
        client::expect(&line).map_err(|error| match error {
            AnswerError::Refused(text) if client::is_busy(&text) => {
                AskError::Busy(Error::sentence(Code::TryAgain, &text))
            }
            AnswerError::Refused(text) if client::is_unanswered(&text) => {
                AskError::Other(Error::sentence(Code::TryAgain, &text))
            }
            AnswerError::Refused(text) => AskError::Other(Error::sentence(Code::Refused, &text)),
            error => AskError::Other(self.unreadable(&error.to_string())),
        })
    }

    fn unreadable(&self, problem: &str) -> Error {
        Error::new(
            Code::Undecodable,
            format!("the answer of {} cannot be read: {problem}", self.socket.display()),
            "plugin and host are of different versions; install those of one",
        )
    }
}

fn absent(error: &FindError) -> Error {
    let details = "start the host (`sluice daemon`), or name another one as `host` or `socket` in \
                   the options of the network; then try again";
    Error::new(Code::TryAgain, problem(error), details)
}

/// Returns an error with its cause, without the remedy, which is one for the command line.
fn problem(error: &FindError) -> String {
    let text = error.to_string();
    let problem = text.split_once("; ").map_or(text.as_str(), |(problem, _)| problem);
    match std::error::Error::source(error) {
        Some(cause) => format!("{problem}: {cause}"),
        None => problem.to_owned(),
    }
}

/// Reason why one request has no answer.
enum AskError {
    /// Too many others ask.
    Busy(Error),
    Other(Error),
}
