//! `data.sock`: what control may ask of the data process.

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use sluice_api::show::{Answer, Question};
use sluice_api::trace::{Look, Looked};
use sluice_base::PortId;

use super::answer::Names;
use super::look::Wanted;
use super::next_hops::NextHops;
use super::ports::Ports;
use super::taps::Taps;
use super::worker::Ask;
use super::{Asker, Askers, losses, merge, spawn};
use crate::config::{Fingerprint, Plan};
use crate::hand;
use crate::protocol::{self, Done, Failure, Hello, Request};
use crate::serve;

struct Server {
    names: Names,
    ports: Ports,
    taps: Arc<Taps>,
    next_hops: NextHops,
    fingerprint: Fingerprint,
    askers: Askers,
}

/// Answers in a thread of its own for as long as the process lives.
pub(super) fn serve(
    listener: UnixListener,
    plan: Plan,
    taps: Arc<Taps>,
    names: Names,
    next_hops: NextHops,
    askers: Askers,
) -> anyhow::Result<()> {
    let fingerprint = plan.fingerprint;
    let ports = Ports::new(plan, Arc::clone(&taps));
    let server = Arc::new(Server { names, ports, taps, next_hops, fingerprint, askers });
    let known = Arc::clone(&server);
    losses::watch(server.names.ledger(), server.askers.clone(), move || known.names.port_ids())?;
    spawn("server", move || {
        // Control keeps a connection open to see this process end, so there is no time limit.
        serve::connections(&listener, None, move |stream, reader| {
            server.converse(stream, reader);
        });
    })
}

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
                Ok(Some(Request::Fabric(_))) => {
                    let error = "the control process knows the fabric".to_owned();
                    protocol::write(stream, &Failure { error })
                }
                Ok(Some(Request::Placement(_) | Request::Who)) => {
                    let error = "the control process answers that".to_owned();
                    protocol::write(stream, &Failure { error })
                }
                Ok(Some(Request::Follow(stamped))) => {
                    protocol::write(stream, &self.names.follow(*stamped))
                }
                Ok(Some(Request::Show(question))) => protocol::reply(stream, self.show(question)),
                Ok(Some(Request::Add(new))) => {
                    let added = self.ports.add(&self.names, self.askers.first(), &new);
                    protocol::reply(stream, added)
                }
                Ok(Some(Request::Del(name))) => {
                    let deleted = self.ports.delete(self.askers.first(), &name);
                    protocol::reply(stream, deleted)
                }
                Ok(Some(Request::Lend(ports))) => hand::send(stream, &self.taps.lend(&ports)),
                Ok(Some(Request::Tidy(known))) => {
                    let tidied = self.ports.tidy(self.askers.first(), &known);
                    protocol::reply(stream, tidied)
                }
                Ok(Some(Request::Pulse)) => {
                    // Any question will do that is answered between two turns.
                    let asked = |reply| Ask::IsOpen(PortId(0), reply);
                    let beats = self.askers.answers(asked);
                    protocol::reply(stream, beats.map(|_| Done {}))
                }
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

    /// The connection is this worker's from now on, after the answer.
    fn attach(&self, stream: &UnixStream, worker: &Asker) {
        if protocol::write(stream, &self.hello()).is_ok()
            && let Ok(stream) = stream.try_clone()
        {
            worker.ask(Ask::Attach(stream));
        }
    }

    fn hello(&self) -> Hello {
        Hello {
            pid: std::process::id(),
            fingerprint: self.fingerprint.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn show(&self, question: Question) -> Result<Answer, String> {
        let shots = self.askers.answers(|reply| Ask::Show(question, reply))?;
        let shot = merge::snapshots(shots).ok_or("there is no worker")?;
        let mut answer = self.names.answer(shot, &self.next_hops);
        if matches!(question, Question::Drops | Question::Audit) {
            let shots = losses::shots(&self.askers, &self.names.port_ids())?;
            answer.outside = self.names.losses(&shots);
        }
        Ok(answer)
    }

    fn look(&self, question: &Look) -> Result<Looked, String> {
        let wanted = Wanted::read(question).ok_or("it asks for no addresses")?;
        let seen = self.askers.answers(|reply| Ask::Look(wanted.clone(), reply))?;
        let seen = merge::looks(seen).ok_or("there is no worker")?;
        Ok(self.names.looked(seen, &self.next_hops))
    }
}
