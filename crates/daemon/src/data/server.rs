//! `data.sock`: requests of control to the data process.

use std::io::{self, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use sluice_api::capture;
use sluice_api::show::{Answer, Body, Question};
use sluice_api::trace::{Look, Looked};
use sluice_base::PortId;

use super::answer::Names;
use super::capture::session::Sessions;
use super::look::StateQuery;
use super::next_hops::NextHops;
use super::ports::Changes;
use super::registry::Ports;
use super::taps::Taps;
use super::worker::{Known, WorkerRequest, YieldStep};
use super::{WorkerHandle, WorkerHandles, losses, merge, spawn};
use crate::config::Plan;
use crate::ipc::handover::State;
use crate::ipc::protocol::{self, Done, Failure, Hello, Request};
use crate::ipc::serve;
use crate::sys::descriptors;

pub(super) struct Server {
    pub(super) names: Names,
    pub(super) ports: Ports,
    pub(super) changes: Changes,
    pub(super) taps: Arc<Taps>,
    pub(super) next_hops: NextHops,
    pub(super) askers: WorkerHandles,
    captures: Sessions,
}

/// Answers in a thread of its own for as long as the process lives.
pub(super) fn serve(
    listener: UnixListener,
    plan: Plan,
    (taps, ports): (Arc<Taps>, Ports),
    names: Names,
    next_hops: NextHops,
    askers: WorkerHandles,
) -> anyhow::Result<Arc<Server>> {
    let changes = Changes::new(plan, Arc::clone(&taps), ports.clone());
    let captures = Sessions::default();
    let server = Server { names, ports: ports.clone(), changes, taps, next_hops, askers, captures };
    let server = Arc::new(server);
    let answering = Arc::clone(&server);
    losses::watch(server.names.ledger(), server.askers.clone(), move || ports.ids())?;
    spawn("server", move || {
        // Control keeps a connection open to see this process end, so there is no time limit.
        serve::connections(&listener, None, move |stream, reader| {
            answering.converse(stream, reader);
        });
    })?;
    Ok(server)
}

/// Refusal of what only control knows.
const OF_CONTROL: &str = "the control process answers that";

impl Server {
    fn converse(&self, stream: &UnixStream, reader: &mut BufReader<UnixStream>) {
        loop {
            let written = match protocol::read_request(reader) {
                Ok(None) => return,
                Ok(Some(Request::Hello)) => protocol::write(stream, &self.hello()),
                Ok(Some(Request::Attach(worker))) => match self.askers.0.get(usize::from(worker)) {
                    Some(asker) => return self.attach(stream, asker),
                    None => {
                        let error = format!("there is no worker {worker}");
                        protocol::write(stream, &Failure { error })
                    }
                },
                Ok(Some(
                    Request::Fabric(_)
                    | Request::Placement(_)
                    | Request::Access(_)
                    | Request::Transaction(_)
                    | Request::Who
                    | Request::Ports
                    | Request::Status,
                )) => protocol::write(stream, &Failure { error: OF_CONTROL.to_owned() }),
                Ok(Some(Request::Follow(stamped))) => {
                    protocol::write(stream, &self.names.follow(*stamped))
                }
                Ok(Some(Request::Show(question))) => protocol::reply(stream, self.show(question)),
                Ok(Some(Request::Add(new))) => {
                    let added = self.changes.add(self.askers.first(), &new);
                    protocol::reply(stream, added)
                }
                Ok(Some(Request::Del(name))) => {
                    let deleted = self.changes.delete(self.askers.first(), &name);
                    protocol::reply(stream, deleted)
                }
                Ok(Some(Request::Card(name))) => protocol::reply(stream, self.changes.card(&name)),
                Ok(Some(Request::Lend(ports))) => {
                    descriptors::send(stream, &self.taps.descriptors(&ports))
                }
                Ok(Some(Request::Tidy(known))) => {
                    let tidied = self.changes.tidy(self.askers.first(), &known);
                    protocol::reply(stream, tidied)
                }
                Ok(Some(Request::Pulse)) => protocol::reply(stream, self.pulse()),
                Ok(Some(Request::Yield(format))) => self.yield_to(stream, reader, format),
                Ok(Some(Request::Running)) => protocol::write(stream, &self.running()),
                Ok(Some(Request::Reconfigure(wanted))) => {
                    protocol::reply(stream, self.reconfigure(&wanted))
                }
                Ok(Some(Request::Leave | Request::GoOn | Request::Upgrade | Request::Reload)) => {
                    let error = "nothing is handed over here".to_owned();
                    protocol::write(stream, &Failure { error })
                }
                Ok(Some(Request::Capture(question))) => self.capture(stream, &question),
                Ok(Some(Request::Look(question))) => protocol::reply(stream, self.look(&question)),
                Err(error) => {
                    _ = protocol::write(stream, &Failure { error: error.to_string() });
                    return;
                }
            };
            if written.is_err() {
                return;
            }
        }
    }

    /// Adds ports and addresses as an earlier process had them.
    pub(super) fn restore(&self, state: &State) -> Result<(), String> {
        for new in &state.added {
            // The device still belongs to the other process as long as this one may fail.
            let added = self.changes.add_or_leave(self.askers.first(), new);
            if let Err(refused) = added {
                let name = new.name.as_deref().unwrap_or_default();
                return Err(format!("port {name}: {}", refused.error));
            }
        }
        let known: Vec<Known> =
            state.known.iter().filter_map(|known| self.names.find(known)).collect();
        self.askers.ask_all(|| WorkerRequest::Yield(YieldStep::Know(known.clone())));
        Ok(())
    }

    /// Undoes the side effects of opening ports.
    pub(super) fn undo(&self) {
        self.taps.undo();
    }

    /// Gives the connection to the worker, after the answer.
    fn attach(&self, stream: &UnixStream, worker: &WorkerHandle) {
        if protocol::write(stream, &self.hello()).is_ok()
            && let Ok(stream) = stream.try_clone()
        {
            worker.ask(WorkerRequest::Attach(stream));
        }
    }

    /// Waits until every worker has answered.
    fn pulse(&self) -> Result<Done, String> {
        // Any question that is answered between two turns serves here.
        let asked = |reply| WorkerRequest::IsOpen(PortId(0), reply);
        // A worker that hands over answers, too.
        self.askers.answers_now(asked).map(|_| Done {})
    }

    fn capture(&self, stream: &UnixStream, question: &capture::Question) -> io::Result<()> {
        let known = (&*self.changes.plan(), &self.ports, &self.askers);
        self.captures.serve(stream, question, known)
    }

    fn hello(&self) -> Hello {
        Hello {
            pid: std::process::id(),
            fingerprint: self.changes.plan().fingerprint.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn show(&self, question: Question) -> Result<Answer, String> {
        let shots = self.askers.answers(|reply| WorkerRequest::Show(question, reply))?;
        let shot = merge::snapshots(shots).ok_or("there is no worker")?;
        let mut answer = self.names.answer(shot, &self.next_hops);
        if let (Question::Chip, Some(chip)) = (question, self.taps.chip()) {
            answer.body = Body::Chip(chip.row());
        }
        if matches!(question, Question::Drops | Question::Audit) {
            let shots = losses::shots(&self.askers, &self.ports.ids())?;
            answer.outside = self.names.losses(&shots);
        }
        Ok(answer)
    }

    fn look(&self, question: &Look) -> Result<Looked, String> {
        let wanted = StateQuery::read(question).ok_or("it asks for no addresses")?;
        let seen = self.askers.answers(|reply| WorkerRequest::Look(wanted.clone(), reply))?;
        let seen = merge::looks(seen).ok_or("there is no worker")?;
        Ok(self.names.looked(seen, &self.next_hops))
    }
}
