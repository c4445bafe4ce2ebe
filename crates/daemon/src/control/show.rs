//! `show.sock`: questions are handed on to the data process, answers come back as they are.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use serde_json::value::RawValue;

use super::{connect, spawn};
use crate::protocol::{self, Failure, Request};
use crate::serve;

/// How long a client may think.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// How long data may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// Answers in a thread of its own for as long as the process lives.
pub(super) fn serve(listener: UnixListener, run_dir: &Path) -> anyhow::Result<()> {
    let run_dir = run_dir.to_owned();
    spawn("show", move || {
        serve::connections(&listener, Some(SILENCE_MAX), move |stream, reader| {
            while let Ok(Some(request)) = protocol::read_request(reader) {
                if answer(&run_dir, stream, request).is_err() {
                    break;
                }
            }
        });
    })
}

fn answer(run_dir: &Path, stream: &UnixStream, request: Request) -> io::Result<()> {
    let Request::Show(_) = request else {
        let error = "only `show` is answered here".to_owned();
        return protocol::write(stream, &Failure { error });
    };
    let reply = connect(run_dir).and_then(|data| {
        data.set_read_timeout(Some(ANSWER_MAX))?;
        protocol::ask(data, &request)
    });
    match reply.map(RawValue::from_string) {
        Ok(Ok(line)) => protocol::write(stream, &line),
        Ok(Err(error)) => protocol::write(stream, &Failure { error: error.to_string() }),
        Err(error) => {
            let error =
                format!("the data process does not answer ({error}); it is being restarted");
            protocol::write(stream, &Failure { error })
        }
    }
}
