//! Continues the work of another data process ([`crate::ipc::handover`]).

use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_ports::PortHandover;

use super::server::Server;
use super::spawn;
use super::worker::{WorkerRequest, YieldStep};
use crate::config::{Attachment, Plan};
use crate::ipc::handover::{self, FORMAT, Go, Opened, Ready, State, Took};
use crate::ipc::protocol::{self, Failure};
use crate::sys::clock;
use crate::sys::descriptors::{self, Named};
use crate::sys::log::say;
use crate::sys::run_dir::{self, Role};

/// Time within which the previous process must be gone after it said that it goes.
const ROLE_WITHIN: Duration = Duration::from_secs(10);
const ROLE_RETRY: Duration = Duration::from_millis(5);

/// A process that takes over, with the TAPs and the other ports that it continues.
pub(super) type Began = (Successor, Vec<Named>, Vec<(String, PortHandover)>);

/// Returns the reason why this configuration can neither continue with the ports handed over nor
/// open them anew while the other process is there: the sockets of an address are numbered as they
/// come and go.
pub(super) fn misfit(plan: &Plan, handed: &[(String, PortHandover)]) -> Option<String> {
    plan.ports.iter().find_map(|port| {
        let Attachment::Udp { sharers, .. } = port.attachment else { return None };
        let before = handed.iter().filter(|(name, _)| *name == port.name).count();
        (before > 0 && before != sharers.max(1))
            .then(|| format!("{before} workers read port {}, and would be {sharers}", port.name))
    })
}

/// The connection to control.
pub(super) struct Successor {
    stream: UnixStream,
    state: State,
    handed: usize,
}

impl Successor {
    /// Reports that this process is ready, and waits for the handover. `None`: there is none.
    pub(super) fn ready() -> io::Result<Option<Began>> {
        let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        protocol::write(&stream, &Ready { formats: vec![FORMAT], version })?;
        let files = match descriptors::receive(&stream) {
            Ok(files) => files,
            // Control has changed its mind, and said so.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        let (state, taps, ports) = handover::unpack(files)?;
        let handed = taps.len() + ports.len();
        Ok(Some((Self { stream, state, handed }, taps, ports)))
    }

    /// Reports that nothing can be taken over.
    pub(super) fn refuse(self, error: String) -> io::Result<()> {
        protocol::write(&self.stream, &Failure { error })
    }

    /// Adds the ports that were added, and forwards as soon as the previous process is gone.
    pub(super) fn follow(self, server: Arc<Server>, run_dir: PathBuf) -> anyhow::Result<()> {
        spawn("successor", move || {
            if let Err(error) = self.take_over(&server, &run_dir) {
                say!(error: "nothing is taken over: {error}");
                server.undo();
                // The other process continues: nothing is closed in order.
                std::process::exit(1);
            }
        })
    }

    fn take_over(&self, server: &Server, run_dir: &Path) -> io::Result<()> {
        server.restore(&self.state).map_err(io::Error::other)?;
        protocol::write(&self.stream, &Opened { ports: self.handed })?;
        if handover::read::<Go>(&self.stream)?.is_none() {
            return Err(io::Error::other("control went away"));
        }
        std::fs::rename(run_dir.join(run_dir::NEXT_SOCKET), run_dir.join(run_dir::DATA_SOCKET))?;
        server.askers.ask_all(|| WorkerRequest::Yield(YieldStep::Thaw));
        let gap_ns = clock::now().0.saturating_sub(self.state.stopped_ns);
        say!(
            "forwarding as another data process did until {} us ago, process {}",
            gap_ns / 1000,
            std::process::id()
        );
        // From here on this process forwards, even if control does not receive the message.
        _ = protocol::write(&self.stream, &Took { gap_ns });
        take_role(run_dir);
        Ok(())
    }
}

/// Takes the role of the previous process, for as long as this one lives.
fn take_role(run_dir: &Path) {
    let until = Instant::now() + ROLE_WITHIN;
    loop {
        match Role::take(run_dir, "data") {
            Ok(role) => return std::mem::forget(role),
            Err(error) if Instant::now() > until => return say!(error: "{error:#}"),
            Err(_) => std::thread::sleep(ROLE_RETRY),
        }
    }
}
