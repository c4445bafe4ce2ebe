//! A host that is in no fabric yet: it waits for the command that makes it a member.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use sluice_api::config::{Host, HostConfig};
use sluice_api::transaction::{Answer, Question};

use super::Event;
use super::show::Front;
use super::source::Source;
use super::{exec, unfit};
use crate::config::member::HostFile;
use crate::config::{self, KernelDevices};
use crate::configuration::setup::{self, Applying, announce_waiting};
use crate::configuration::{Opened, Own};
use crate::sys::log::say;
use crate::sys::notify;

/// Questions that may wait.
const ASKS_MAX: usize = 8;
/// Longest time for an answer: the fabric may decide late.
const ANSWER_MAX: Duration = Duration::from_secs(110);
/// Time between two looks at signals.
const BEAT: Duration = Duration::from_millis(100);

/// Sender of an answer to a person.
pub(super) type Reply = SyncSender<Result<Answer, String>>;
/// Questions of those who would make the host a member, each with its sender of the answer.
pub(super) type Asks = Receiver<(Question, Reply)>;

/// Handle of the socket for the thread that waits.
#[derive(Clone, Debug)]
pub(super) struct Applicants(SyncSender<(Question, Reply)>);

impl Applicants {
    /// Returns the handle, and what comes by it.
    pub(super) fn new() -> (Self, Asks) {
        let (sender, asks) = sync_channel(ASKS_MAX);
        (Self(sender), asks)
    }

    /// Answers a question when the host is a member, or says why it is none.
    pub(super) fn ask(&self, question: Question) -> Result<Answer, String> {
        let (reply, result) = sync_channel(1);
        if self.0.try_send((question, reply)).is_err() {
            return Err("this host is becoming a member; ask again in a moment".to_owned());
        }
        result
            .recv_timeout(ANSWER_MAX)
            .unwrap_or_else(|_| Err("there is no answer yet; see the log of this host".to_owned()))
    }
}

/// Returns what stands behind the sockets, and what applicants ask. A member that is started again
/// waits for none.
pub(super) fn front_of(host: &Host, is_whole: bool) -> anyhow::Result<(Arc<Front>, Asks)> {
    let (applicants, asks) = Applicants::new();
    let waits = !is_whole && setup::place(&config::state_dir(host))?.is_none();
    Ok((Arc::new(Front::new(host, waits.then_some(applicants))), asks))
}

/// A host that became a member, and the one who is to be told when it works.
#[derive(Debug)]
pub(super) struct Became {
    answer: Option<Answer>,
    reply: Reply,
}

impl Became {
    /// Tells that the host works, or why not.
    pub(super) fn tell(mut self, result: Result<(), String>) {
        let answer = self.answer.take().expect("it is told once");
        _ = self.reply.send(result.map(|()| answer));
    }
}

impl Drop for Became {
    fn drop(&mut self) {
        if self.answer.is_some() {
            let why = "the host is a member, but cannot be started; its log says why";
            _ = self.reply.send(Err(why.to_owned()));
            // This process is about to end.
            std::thread::sleep(BEAT);
        }
    }
}

/// What a host begins with.
#[derive(Debug)]
pub(super) struct Beginning {
    plan: Box<config::Plan>,
    opened: Option<Box<Opened>>,
    became: Option<Became>,
}

impl Beginning {
    /// Returns that of a host whose file says everything, or that of a member of a fabric that was
    /// made by command, once it is one; `None` if the host is stopped before. Afterwards nobody
    /// answers the applicants any more: a question that came too late is to be asked again.
    ///
    /// # Errors
    /// If what the member knows of its fabric cannot be used.
    pub(super) fn of(
        whole: Option<config::Plan>,
        source: &Source<'_>,
        asks: Asks,
        events: &Receiver<Event>,
    ) -> anyhow::Result<Option<Self>> {
        if let Some(plan) = whole {
            return Ok(Some(Self { plan: Box::new(plan), opened: None, became: None }));
        }
        let Source::Fabric(local, file) = source else { anyhow::bail!("the file says everything") };
        let state_dir = config::state_dir(&local.host);
        let (local, known) = ((**local).clone(), Vec::new());
        let applying = Applying { local, state_dir: state_dir.clone(), known };
        let became = match setup::place(&state_dir)? {
            Some(_) => None,
            None => match wait(&applying, &asks, events) {
                Some(became) => Some(became),
                None => return Ok(None),
            },
        };
        let place = setup::place(&state_dir)?.context("the host became a member")?;
        let own = Own { local: applying.local, file: file.clone(), place, state_dir };
        let mut opened = Opened::open(own)?;
        if !opened.is_member() {
            unfit::end_membership(opened)?;
            return Err(exec::this_program(None));
        }
        let plan = unfit::plan_of(&mut opened)?;
        Ok(Some(Self { plan: Box::new(plan), opened: Some(Box::new(opened)), became }))
    }

    /// Returns the plan, the member's state, and the one who is to be told.
    pub(super) fn parts(self) -> (config::Plan, Option<Opened>, Option<Became>) {
        (*self.plan, self.opened.map(|opened| *opened), self.became)
    }
}

/// Returns the plan of a host whose file said everything, and now says what is its own: it has
/// become a member meanwhile. `None` if the file says everything still.
///
/// # Errors
/// If the host is no member, or its configuration is refused.
pub(super) fn plan_of_member(
    file: &Path,
    present: &config::Plan,
) -> anyhow::Result<Option<config::Plan>> {
    let HostFile::Local(local) = HostFile::open(file).map_err(anyhow::Error::msg)? else {
        return Ok(None);
    };
    let state_dir = config::state_dir(&local.host);
    anyhow::ensure!(
        state_dir == present.state_dir && local.host.name == present.config.host.name,
        "the host would have another name or `state_dir`; stop it and start it anew"
    );
    let place = setup::place(&state_dir)?.with_context(|| {
        format!(
            "{} says nothing of networks, and this host is in no fabric: `sluice fabric import` \
             makes it a member of one",
            file.display()
        )
    })?;
    let own = Own { local: *local, file: Some(std::path::absolute(file)?), place, state_dir };
    let config = Opened::open(own)?.config()?;
    Ok(Some(config::plan_of(&config, None, &KernelDevices)?))
}

/// Waits for the command; `None` if the host is stopped meanwhile.
fn wait(applying: &Applying, asks: &Asks, events: &Receiver<Event>) -> Option<Became> {
    say!(
        "{} is in no fabric: `sluice fabric create` makes one, `sluice fabric join` makes it a \
         member of one",
        applying.local.host.name
    );
    // Its socket answers, and the command may come at any time: a service manager that waited for
    // it would end the host before.
    notify::tell("READY=1");
    let _announcer = announce_waiting(&applying.local.host.name);
    loop {
        if events.try_iter().any(|event| matches!(event, Event::Stop)) {
            return None;
        }
        let (question, reply) = match asks.recv_timeout(BEAT) {
            Ok(ask) => ask,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        let joined = match question {
            Question::Create { fabric, place } => applying.create(&fabric, &place, check),
            Question::Join { address, token, place } => {
                applying.join((&address, &token), &place, check)
            }
            _ => Err(anyhow::anyhow!(
                "this host is in no fabric yet; `sluice fabric create NAME --underlay DEV` makes \
                 one, `sluice fabric join ADDRESS --token …` makes it a member of one"
            )),
        };
        match joined {
            Ok(joined) => return Some(Became { answer: Some(joined.answer), reply }),
            Err(error) => _ = reply.send(Err(format!("{error:#}"))),
        }
    }
}

/// Finds what is wrong with a whole configuration on this machine, and returns what keeps its ports
/// from being lossless.
fn check(config: &HostConfig) -> Result<Vec<String>, String> {
    let plan = config::plan_of(config, None, &KernelDevices);
    let mut notes = plan.map_err(|report| report.to_string())?.notes;
    notes.retain(|note| note.contains("not lossless"));
    Ok(notes)
}
