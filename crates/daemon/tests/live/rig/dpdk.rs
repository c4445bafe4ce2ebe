//! A foreign driver of virtio: DPDK's virtio-user card in `dpdk-testpmd`, a process for each card.
//! It polls, fills its ring all at once, and needs no huge pages.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Net;

/// Longest start: it takes a second, and more on a busy machine.
const START_PATIENCE: Duration = Duration::from_secs(30);

/// Properties of a card's rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Descriptors of each ring.
    pub(crate) ring: u16,
    /// Further arguments of the card, each after a comma.
    pub(crate) options: &'static str,
    /// True if the card listens on the socket, and the port connects.
    pub(crate) listens: bool,
}

/// A card and the process that drives it, which is killed when dropped.
pub(crate) struct Card {
    process: Child,
    said: PathBuf,
    /// Number of counter answers that have been read.
    answers: usize,
}

/// Returns the address of a card.
pub(crate) fn mac(number: u8) -> String {
    format!("02:00:00:00:00:{number:02x}")
}

impl Card {
    /// Starts a card on a core, with the number of its port; it does nothing yet. Its frames go to
    /// the card `peer`.
    pub(crate) fn start(net: &Net, number: u8, peer: u8, core: usize, shape: Shape) -> Self {
        let socket = net.file(&format!("vm{number}.sock"));
        let said = net.file(&format!("testpmd{number}"));
        let listens = if shape.listens { ",server=1" } else { "" };
        let Shape { ring, options, .. } = shape;
        // With a file as output it would write in blocks, and late; `stdbuf` becomes the program.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]);
        command.arg(format!("--lcores=0@{core},1@{core}"));
        command.args(["--no-huge", "-m", "64", "--no-pci", "--no-telemetry"]);
        command.arg(format!("--file-prefix={}-{number}", net.name));
        command.arg(format!(
            "--vdev=net_virtio_user0,path={},mac={},queue_size={ring}{options}{listens}",
            socket.display(),
            mac(number)
        ));
        command.args(["--", "-i", "--nb-cores=1", "--total-num-mbufs=8192", "--burst=64"]);
        command.args([format!("--txd={ring}"), format!("--rxd={ring}")]);
        command.args(["--no-lsc-interrupt".to_owned(), format!("--eth-peer=0,{}", mac(peer))]);
        let output = File::create(&said).unwrap();
        command.stdin(Stdio::piped()).stdout(output.try_clone().unwrap()).stderr(output);
        Self { process: command.spawn().unwrap(), said, answers: 0 }
    }

    /// Gives the card a command; commands are executed one after the other.
    pub(crate) fn tell(&mut self, command: &str) {
        let input = self.process.stdin.as_mut().expect("it is piped");
        writeln!(input, "{command}").unwrap_or_else(|error| panic!("{error}: {}", self.said()));
    }

    /// Returns the frames that the card received and that its ring took to send, once all commands
    /// are done.
    pub(crate) fn counts(&mut self) -> (u64, u64) {
        self.tell("show port stats 0");
        let until = Instant::now() + START_PATIENCE;
        loop {
            let said = self.said();
            let values = |key: &str| -> Vec<u64> {
                let values = said.split(key).skip(1).filter_map(|rest| {
                    // A line that is cut off is completed later.
                    let (word, _) = rest.trim_start().split_once(char::is_whitespace)?;
                    word.parse().ok()
                });
                values.collect()
            };
            let of_stats = said.rsplit("NIC statistics").next().unwrap_or_default();
            let answers = said.matches("NIC statistics").count();
            // The line after both counters is there, so they are complete.
            if answers > self.answers && of_stats.contains("Throughput") {
                self.answers = answers;
                let last = |key: &str| *values(key).last().expect("a counter");
                return (last("RX-packets:"), last("TX-packets:"));
            }
            assert!(Instant::now() < until, "no counters of it: {said}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Stops its process, as a hypervisor or a scheduler may at any moment, or lets it continue.
    pub(crate) fn pause(&self, pause: bool) {
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Returns all of its output.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
