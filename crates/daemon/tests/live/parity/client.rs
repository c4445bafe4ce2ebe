//! Programs that run in the background of a case.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::station::Station;
use super::world::World;

/// A running program; it is stopped when dropped.
pub(crate) struct Client {
    child: Child,
    log: PathBuf,
}

impl Client {
    /// Starts a command line in a station.
    pub(crate) fn start(world: &World<'_>, station: &Station, line: &str) -> Self {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap();
        let log = world.file(&format!("{program}-{}.log", station.number));
        let file = File::create(&log).unwrap();
        let mut command = station.netns.command(program);
        command.args(words).stdin(Stdio::null());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: command.spawn().unwrap(), log }
    }

    /// Returns its output so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Stops it, and waits.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if self.child.try_wait().unwrap().is_some() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        _ = self.child.kill();
        _ = self.child.wait();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|end| end.is_none()) {
            self.stop();
        }
    }
}
