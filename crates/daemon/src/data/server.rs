//! `data.sock`: what control may ask of the data process.

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use sluice_api::show::{Answer, Question};

use super::answer::Names;
use super::next_hops::NextHops;
use super::worker::Ask;
use super::{Asker, spawn};
use crate::config::Fingerprint;
use crate::protocol::{self, Failure, Hello, Request};
use crate::serve;

/// How long the worker may take for an answer. It looks up once per turn; if it does not, it is
/// stuck or the machine is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

struct Server {
    names: Names,
    next_hops: NextHops,
    fingerprint: Fingerprint,
    asker: Asker,
}

/// Answers in a thread of its own for as long as the process lives.
pub(super) fn serve(
    listener: UnixListener,
    names: Names,
    next_hops: NextHops,
    fingerprint: Fingerprint,
    asker: Asker,
) -> anyhow::Result<()> {
    let server = Arc::new(Server { names, next_hops, fingerprint, asker });
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
                Ok(Some(Request::Show(question))) => match self.show(question) {
                    Ok(answer) => protocol::write(stream, &answer),
                    Err(failure) => protocol::write(stream, &failure),
                },
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

    fn hello(&self) -> Hello {
        Hello {
            pid: std::process::id(),
            fingerprint: self.fingerprint.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    fn show(&self, question: Question) -> Result<Answer, Failure> {
        let (reply, answer) = sync_channel(1);
        self.asker.ask(Ask::Show(question, reply));
        let shot = answer.recv_timeout(ANSWER_WAIT).map_err(|_| Failure {
            error: format!("the data process did not answer within {} s", ANSWER_WAIT.as_secs()),
        })?;
        Ok(self.names.answer(shot, &self.next_hops))
    }
}
