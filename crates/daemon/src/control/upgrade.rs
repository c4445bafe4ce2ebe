//! Replacement of the running data process by another one, without a frame lost
//! ([`crate::ipc::handover`]). Until the old process has agreed to leave, every failure leaves it
//! as it is, and it continues.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use sluice_api::upgrade::HandedOver;

use super::child::{self, Link};
use crate::config::{NUMBERS, Plan};
use crate::ipc::handover::{self, FORMAT, Go, HandoverState, Opened, Ready, Took};
use crate::ipc::protocol::{self, Done, Request};
use crate::sys::descriptors;
use crate::sys::log::say;
use crate::sys::run_dir;

/// Longest time for a process to allocate its memory.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Longest time for it to open its ports, while no process reads them.
const OPENED_WITHIN: Duration = Duration::from_secs(5);
/// Longest time for the old process to hand over.
const YIELDED_WITHIN: Duration = Duration::from_secs(2);

/// Reason why nothing was handed over.
#[derive(Debug)]
pub(super) enum NotDone {
    /// The two programs do not understand each other, or the new one can neither continue with a
    /// port nor open it anew: data must be drained and restarted.
    Foreign(String),
    /// The old data process continues.
    GoesOn(String),
    /// Both are gone, and control starts a new one as always.
    Lost(String),
}

impl NotDone {
    fn why(self) -> String {
        match self {
            Self::Foreign(why) | Self::GoesOn(why) | Self::Lost(why) => why,
        }
    }
}

/// A data process that may take over. It is killed if it does not.
struct Next {
    child: Option<Child>,
    stream: UnixStream,
    run_dir: PathBuf,
}

impl Drop for Next {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
            let config = self.run_dir.join(run_dir::NEXT_CONFIG_FILE);
            let numbers = config.with_extension(NUMBERS);
            for path in [config, numbers, self.run_dir.join(run_dir::NEXT_SOCKET)] {
                // The files may not exist yet.
                _ = run_dir::remove(&path);
            }
        }
    }
}

/// Lets a new data process of this plan take over.
pub(super) fn hand_over(plan: &Plan, old: &Link) -> Result<(Link, HandedOver, String), NotDone> {
    let goes_on = |error: anyhow::Error| NotDone::GoesOn(format!("{error:#}"));
    let config = plan.run_dir.join(run_dir::NEXT_CONFIG_FILE);
    let mut next = Next::start(plan, &config).map_err(goes_on)?;
    let ready: Ready = next.hear(READY_WITHIN)?;
    if !ready.formats.contains(&FORMAT) {
        return Err(NotDone::Foreign(format!(
            "data process {} hands over in format {FORMAT}, and version {} reads {:?}",
            old.hello.pid, ready.version, ready.formats
        )));
    }
    let (stream, yielded, files) = ask_old(plan)?;
    // From here on no process reads.
    next.stream.set_write_timeout(Some(OPENED_WITHIN)).map_err(|e| goes_on(e.into()))?;
    descriptors::send(&next.stream, &files).map_err(|e| goes_on(e.into()))?;
    drop(files);
    let opened: Opened = next.hear(OPENED_WITHIN)?;
    let own = plan.run_dir.join(run_dir::CONFIG_FILE);
    std::fs::rename(config.with_extension(NUMBERS), own.with_extension(NUMBERS))
        .and_then(|()| std::fs::rename(&config, own))
        .map_err(|e| goes_on(e.into()))?;
    let left = protocol::ask(stream, &Request::Leave);
    let left = left.map_err(anyhow::Error::from).and_then(|line| protocol::expect::<Done>(&line));
    if let Err(error) = left
        && !old.has_ended()
    {
        return Err(goes_on(error));
    }
    let lost = |error: String| NotDone::Lost(error);
    protocol::write(&next.stream, &Go {}).map_err(|error| lost(error.to_string()))?;
    let took: Took = next.hear(OPENED_WITHIN).map_err(|error| lost(error.why()))?;
    let link = protocol::connect(&plan.run_dir)
        .map_err(anyhow::Error::from)
        .and_then(|stream| Link::new(stream, next.child.take()))
        .map_err(|error| lost(format!("{error:#}")))?;
    let handed_over = HandedOver {
        to: link.hello.pid,
        ports: opened.ports,
        gap_us: took.gap_ns / 1000,
        drain_us: yielded.drain_ns / 1000,
        left: yielded.left,
    };
    if yielded.left > 0 {
        say!(warn: "{} frames did not leave in time, and ended", yielded.left);
    }
    Ok((link, handed_over, ready.version))
}

/// Stops the old process, and gets its state. It continues when the connection ends.
fn ask_old(plan: &Plan) -> Result<(UnixStream, HandoverState, Vec<descriptors::Named>), NotDone> {
    let asked = || -> io::Result<_> {
        let stream = protocol::connect(&plan.run_dir)?;
        stream.set_read_timeout(Some(YIELDED_WITHIN))?;
        protocol::write(&stream, &Request::Yield(FORMAT))?;
        let yielded: Option<HandoverState> = handover::read(&stream)?;
        let yielded = yielded.ok_or(io::ErrorKind::UnexpectedEof)?;
        let files = descriptors::receive(&stream)?;
        Ok((stream, yielded, files))
    };
    asked().map_err(|error| match error.kind() {
        // The process reported it: it is of another version.
        io::ErrorKind::Other => NotDone::Foreign(error.to_string()),
        _ => NotDone::GoesOn(format!("the data process does not hand over: {error}")),
    })
}

impl Next {
    fn start(plan: &Plan, config: &Path) -> anyhow::Result<Self> {
        run_dir::replace(config, &plan.text)?;
        run_dir::replace(&config.with_extension(NUMBERS), &plan.numbers.text())?;
        let (stream, theirs) = UnixStream::pair()?;
        let child = child::command(plan, config, "--succeeds")?
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child: Some(child), stream, run_dir: plan.run_dir.clone() })
    }

    /// Reads its next message.
    fn hear<T: serde::de::DeserializeOwned>(&mut self, within: Duration) -> Result<T, NotDone> {
        let heard = self.stream.set_read_timeout(Some(within));
        match heard.and_then(|()| handover::read(&self.stream)) {
            Ok(Some(said)) => Ok(said),
            Ok(None) => Err(NotDone::GoesOn(format!(
                "the new data process {}; it said why above",
                self.end()
            ))),
            // The process reported it.
            Err(error) if error.kind() == io::ErrorKind::Other => {
                Err(NotDone::Foreign(error.to_string()))
            }
            Err(error) => {
                Err(NotDone::GoesOn(format!("the new data process says nothing: {error}")))
            }
        }
    }

    fn end(&mut self) -> String {
        let ended = self.child.as_mut().map(Child::wait);
        match ended {
            Some(Ok(status)) => format!("ended ({})", child::describe(status)),
            _ => "closed its end".to_owned(),
        }
    }
}
