//! Handing everything over to another data process ([`crate::ipc::handover`]).
//!
//! ```text
//!   yield: no migration between workers ── Stop ── until nothing is left, or moves ── Freeze
//!          ── leave: this process ends ─ anything else, or silence: Thaw, it continues
//! ```
//!
//! Frames that do not leave because their receiver takes nothing for [`STANDS_FOR`] are lost with
//! the process; they are counted and logged. On a busy machine draining only takes longer.

use std::io::{self, BufReader, ErrorKind};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sluice_base::Nanos;
use sluice_ports::PortHandover;

use super::server::Server;
use super::worker::{Left, WorkerRequest, YieldStep};
use crate::ipc::handover::{self, FORMAT, HandoverState, State};
use crate::ipc::protocol::{self, Done, Failure, Request};
use crate::sys::clock;
use crate::sys::descriptors::{self, Named};
use crate::sys::log::say;

/// Longest wait while no frame leaves, and in all.
const STANDS_FOR: Nanos = Nanos::from_millis(30);
const DRAIN_WITHIN: Nanos = Nanos::from_millis(1000);
/// Time between two questions for the remaining frames.
const LOOK_EVERY: Nanos = Nanos::from_micros(200);
/// Longest silence of control.
const SILENCE_MAX: Duration = Duration::from_secs(10);

impl Server {
    /// Hands over, and ends the process if the handover was accepted.
    pub(super) fn yield_to(
        &self,
        stream: &UnixStream,
        reader: &mut BufReader<UnixStream>,
        format: u32,
    ) -> io::Result<()> {
        if format != FORMAT {
            let error = format!("this program hands over in format {FORMAT}, not in {format}");
            return protocol::write(stream, &Failure { error });
        }
        if self.taps.chip().is_some() {
            let error = "the kernel forwards for this host, and its tables are not handed over: \
                         start data anew, the kernel forwards on meanwhile"
                .to_owned();
            return protocol::write(stream, &Failure { error });
        }
        let settled = self.askers.settled();
        let _steady = self.askers.steady();
        self.step(|| YieldStep::Stop);
        let done = self.hand_over(stream, &settled).and_then(|()| {
            stream.set_read_timeout(Some(SILENCE_MAX))?;
            protocol::read_request(reader)
        });
        if let Ok(Some(Request::Leave)) = done {
            say!("another data process goes on; this one, {}, ends", std::process::id());
            _ = protocol::write(stream, &Done {});
            // Nothing is undone or closed in order: everything belongs to the other process now.
            std::process::exit(0);
        }
        self.step(|| YieldStep::Thaw);
        stream.set_read_timeout(None)?;
        let done = done.and_then(|request| request.ok_or_else(|| ErrorKind::UnexpectedEof.into()));
        match done {
            Ok(_) => protocol::write(stream, &Done {}),
            Err(error) => {
                // Control sees the end of the connection: an answer would say that this program is
                // another one.
                say!(warn: "nothing was taken over ({error}); this process goes on");
                Err(error)
            }
        }
    }

    fn step(&self, step: impl Fn() -> YieldStep) {
        self.askers.ask_all(|| WorkerRequest::Yield(step()));
    }

    /// Stops the workers and sends their state.
    fn hand_over(&self, stream: &UnixStream, table: &[u8]) -> io::Result<()> {
        let stopped = clock::now();
        self.wait_until_drained(stopped)?;
        let (left, files) = self.freeze(stopped, table)?;
        let drain_ns = clock::now().since(stopped).0;
        protocol::write(stream, &HandoverState { left: left.resident + left.pending, drain_ns })?;
        descriptors::send(stream, &files)
    }

    /// Waits until no frame is left, as long as frames leave. A frame that is handed off while both
    /// workers are asked is counted when they are asked once more: in the ring between them, or in
    /// the receiver's switch.
    fn wait_until_drained(&self, stopped: Nanos) -> io::Result<()> {
        let (mut progress, mut times) = (Progress::new(stopped), 0);
        while times < 2 {
            let ask = |reply| WorkerRequest::Yield(YieldStep::Left(reply));
            let left = self.askers.answers_now(ask).map_err(io::Error::other)?;
            let left: u64 = left.iter().map(|left| left.resident + left.pending).sum();
            times = if left == 0 { times + 1 } else { 0 };
            if times == 0 && progress.has_ended(clock::now(), left) {
                break;
            }
            if times == 0 {
                clock::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    fn freeze(&self, stopped: Nanos, table: &[u8]) -> io::Result<(Left, Vec<Named>)> {
        let ask = |reply| WorkerRequest::Yield(YieldStep::Freeze(reply));
        let frozen = self.askers.answers_now(ask).map_err(io::Error::other)?;
        let (mut left, mut ports, mut known) = (Left::default(), Vec::new(), Vec::new());
        for frozen in frozen {
            let frozen = frozen?;
            left += frozen.left;
            for (id, mut handed) in frozen.ports {
                handed.bytes = if handed.is_shared() { table.to_vec() } else { Vec::new() };
                ports.extend(self.ports.name(id).map(|name| (name, handed)));
            }
            known.extend(frozen.known.into_iter().filter_map(|known| self.names.known(known)));
        }
        known.sort_unstable();
        known.dedup();
        let added = self.changes.list();
        let state = State { stopped_ns: stopped.0, added, known, ..State::default() };
        let ports: Vec<(String, PortHandover)> = ports;
        Ok((left, handover::pack(state, self.taps.tap_descriptors(), ports)?))
    }
}

/// Tells whether frames still leave.
struct Progress {
    least: u64,
    since: Nanos,
    until: Nanos,
}

impl Progress {
    const fn new(stopped: Nanos) -> Self {
        Self { least: u64::MAX, since: stopped, until: stopped.after(DRAIN_WITHIN) }
    }

    /// Returns true if waiting is over: no frame has left for a time, or the whole drain took too
    /// long.
    fn has_ended(&mut self, now: Nanos, left: u64) -> bool {
        if left < self.least {
            (self.least, self.since) = (left, now);
        }
        now >= self.until || now >= self.since.after(STANDS_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_when_nothing_leaves() {
        let at = Nanos::from_millis;
        let mut progress = Progress::new(at(100));
        assert!(!progress.has_ended(at(129), 10), "the first look");
        assert!(!progress.has_ended(at(158), 9), "one has left");
        assert!(!progress.has_ended(at(187), 9));
        assert!(progress.has_ended(at(188), 9), "30 ms without one");
        let mut progress = Progress::new(at(0));
        let slow = (1..=40).map(|n| progress.has_ended(at(25 * n), 100 - n));
        assert_eq!(slow.take_while(|ended| !ended).count(), 39, "a second, however busy");
    }
}
