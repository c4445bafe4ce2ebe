//! ns-3 as a peer: a program of ours (`ns3/pa.cc`) against its library, compiled here.
//!
//! ns-3 runs beside us and waits between two rounds, so that its set-up is in no figure and rounds
//! can be interleaved.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};

const SOURCE: &str = include_str!("../../ns3/pa.cc");
const LIBRARIES: [&str; 5] =
    ["core", "network", "internet", "point-to-point", "nix-vector-routing"];

/// The compiled program of ns-3.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    /// `ns-3 VERSION`.
    pub(super) name: String,
}

impl Program {
    /// Compiles the program. If ns-3 is missing, returns `None` and prints the reason.
    ///
    /// # Errors
    /// ns-3 is there and the program does not compile.
    pub(super) fn compile() -> anyhow::Result<Option<Self>> {
        if !Path::new("/usr/include/ns3/core-module.h").exists() {
            println!("SKIPPED the peer: ns-3 is not installed (`scripts/setup.sh bench`)");
            return Ok(None);
        }
        std::fs::create_dir_all("target/bench").context("cannot make target/bench")?;
        let path = Path::new("target/bench").join("ns3-pa");
        let spawned = Command::new("c++")
            .args(["-x", "c++", "-std=c++17", "-O2", "-o"])
            .arg(&path)
            .arg("-")
            .args(LIBRARIES.map(|library| format!("-lns3-{library}")))
            .stdin(Stdio::piped())
            .spawn();
        let Ok(mut compiler) = spawned else {
            println!("SKIPPED the peer: there is no c++ (`scripts/setup.sh bench`)");
            return Ok(None);
        };
        compiler.stdin.take().context("a pipe")?.write_all(SOURCE.as_bytes())?;
        ensure!(compiler.wait()?.success(), "crates/bench/ns3/pa.cc does not compile");
        let path = path.canonicalize().context("the compiler wrote nothing")?;
        Ok(Some(Self { path, name: format!("ns-3 {}", version()) }))
    }
}

/// Returns the version by Debian's number.
fn version() -> String {
    let output = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "libns3-dev"]).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    let version = text.split('-').next().unwrap_or_default();
    if version.is_empty() { "of unknown version".to_owned() } else { version.to_owned() }
}

/// Configuration of the network in ns-3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Our own routing with a path per flow, no queue disc.
    Tuned,
    /// Nix-vector routing, default queue disc.
    Installed,
}

impl Mode {
    /// Returns the name for results and for the program.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Tuned => "tuned",
            Self::Installed => "installed",
        }
    }
}

/// Figures of ns-3 about some waves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) hops: u64,
    pub(super) seconds: f64,
    pub(super) answers: u64,
    pub(super) fct_p50_ns: u64,
    pub(super) fct_max_ns: u64,
}

/// A running peer.
#[derive(Debug)]
pub(super) struct Peer {
    child: Child,
    ask: Option<ChildStdin>,
    answer: BufReader<ChildStdout>,
    pub(super) mode: Mode,
}

impl Peer {
    /// Starts the peer and runs a wave that does not count.
    ///
    /// # Errors
    /// The peer cannot be started, or ends.
    pub(super) fn start(program: &Program, mode: Mode) -> anyhow::Result<Self> {
        let mut child = Command::new(&program.path)
            .arg(mode.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start ns-3's program")?;
        let answer = BufReader::new(child.stdout.take().context("a pipe")?);
        let ask = child.stdin.take();
        let mut peer = Self { child, ask, answer, mode };
        peer.run(1)?;
        Ok(peer)
    }

    /// Runs a number of waves.
    ///
    /// # Errors
    /// The peer has ended, or some of its answers never came although nothing can be lost.
    pub(super) fn run(&mut self, waves: u32) -> anyhow::Result<Reading> {
        let ask = self.ask.as_mut().context("ns-3's program has no input")?;
        writeln!(ask, "{waves}").context("ns-3's program has ended")?;
        let mut line = String::new();
        self.answer.read_line(&mut line).context("ns-3's program has ended")?;
        let reading = parse(&line)?;
        // With one path per pair some answers of a wave arrive after the next wave has begun.
        let all = u64::from(waves) * 256;
        let complete = reading.answers == all || self.mode == Mode::Installed;
        ensure!(complete, "ns-3 brought {} answers of {all}", reading.answers);
        Ok(reading)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Closing its input ends the peer.
        self.ask = None;
        let _ = self.child.wait();
    }
}

fn parse(line: &str) -> anyhow::Result<Reading> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [hops, seconds, answers, _, p50, max] = fields[..] else {
        bail!("ns-3's program said {line:?}");
    };
    Ok(Reading {
        hops: hops.parse()?,
        seconds: seconds.parse()?,
        answers: answers.parse()?,
        fct_p50_ns: p50.parse()?,
        fct_max_ns: max.parse()?,
    })
}
