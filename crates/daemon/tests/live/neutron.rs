//! The mechanism driver of OpenStack Neutron: the genuine API server and its periodic workers, and
//! two hosts of a fabric.
//!
//! ```text
//!   python/neutron/tests/server.py ─▶ neutron API ─┐
//!        │                     neutron periodic ───┴─▶ h1, h2
//!        └── "kill_both 1" ─▶ this test
//! ```
//!
//! The script makes networks and ports, injects drift on both sides, and compares. It asks this
//! test, line by line, for what only the owner of the hosts can do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::rig::bridge::Bridge;
use crate::rig::{program, say, skip};

/// The Python of Debian.
const PYTHON: &str = "/usr/bin/python3";
/// Kills at random times, and under `SLUICE_SOAK`.
const KILLS: &str = "4";
const KILLS_LONG: &str = "200";

/// Returns the folder of Neutron's own Python, as `scripts/setup.sh` makes it.
fn venv() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("neutron")
}

fn skip_without_neutron(test: &str) -> bool {
    if skip(test, &[]) {
        return true;
    }
    let is_there = venv().join("bin/neutron-periodic-workers").exists();
    if !is_there {
        say(&format!("SKIPPED {test}: neutron is missing; `scripts/setup.sh test` gets it"));
    }
    !is_there
}

/// Address of the first host's API, which is asked over the network; the second is by its socket.
const AT: &str = "192.0.2.1:9343";

/// A fabric of two hosts, and what the script may ask of it.
struct Case {
    bridge: Bridge,
}

impl Case {
    fn new(word: &str) -> Self {
        let file = |_: &_, own| match own {
            0 => format!("[api.tls]\nlisten = \"{AT}\"\n"),
            _ => String::new(),
        };
        let bridge = Bridge::waiting(word, 2, file);
        bridge.become_fabric();
        let token = bridge.daemons[0].says(&["api", "token", "neutron", "--role", "admin"]);
        std::fs::write(bridge.net.file("h1.token"), token).unwrap();
        Self { bridge }
    }

    /// Starts the script in the namespace of the first host.
    fn script(&self, words: &[&str]) -> Child {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/neutron");
        let mut python = Command::new(venv().join("bin/python"));
        python.arg("-B").arg("tests/server.py").args(words).current_dir(folder);
        python.env("SLUICE_DIR", self.bridge.net.file("neutron"));
        python.env("SLUICE_AT", AT).env("SLUICE_TOKENS", self.bridge.net.file(""));
        python.env("SLUICE_AUTHORITY", self.bridge.net.file("h1/tls/ca.pem"));
        for (own, _) in self.bridge.daemons.iter().enumerate() {
            let name = format!("h{}", own + 1);
            let socket = self.bridge.net.file(&format!("{name}/http.sock"));
            python.env(format!("SLUICE_H{}", own + 1), socket);
        }
        python.stdin(Stdio::piped()).stdout(Stdio::piped());
        self.bridge.hosts[0].inside(|| python.spawn().unwrap())
    }

    /// Runs the script to its end, and does what it asks for.
    fn run(&mut self, words: &[&str]) {
        let mut script = self.script(words);
        let mut answer = script.stdin.take().unwrap();
        for line in BufReader::new(script.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let Some(wish) = line.strip_prefix("do ") else {
                say(&line);
                continue;
            };
            self.execute(wish);
            writeln!(answer, "done").unwrap();
        }
        assert!(script.wait().unwrap().success(), "its last words stand above");
    }

    fn execute(&mut self, wish: &str) {
        let (word, own) = wish.split_once(' ').unwrap();
        let host = &mut self.bridge.daemons[own.parse::<usize>().unwrap()];
        match word {
            "kill_control" => host.kill_control(),
            "kill_data" => return host.kill_data(),
            "kill_both" => host.kill_both(),
            "stop_control" => return host.kill_control(),
            "start_control" => {}
            _ => panic!("`{word}` is nothing that this test does"),
        }
        host.restart_control();
    }
}

#[test]
#[ignore = "live: needs root"]
fn genuine_neutron_binds_and_drift_is_repaired() {
    if skip_without_neutron("genuine_neutron_binds_and_drift_is_repaired") {
        return;
    }
    let usual = if std::env::var_os("SLUICE_SOAK").is_some() { KILLS_LONG } else { KILLS };
    let kills = std::env::var("SLUICE_KILLS").unwrap_or_else(|_| usual.to_owned());
    Case::new("neutron").run(&["--kills", &kills]);
}

/// Prints what the driver adds to the creation of a port; a machine that runs tests judges nothing.
#[test]
#[ignore = "live: needs root"]
fn bench_of_port_creation_runs() {
    if skip_without_neutron("bench_of_port_creation_runs") {
        return;
    }
    if std::env::var_os("SLUICE_SOAK").is_none() {
        say("SKIPPED bench_of_port_creation_runs: it takes two minutes; `make soak` runs it");
        return;
    }
    let case = Case::new("neutronbench");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/neutron");
    let mut python = Command::new(venv().join("bin/python"));
    python.arg("-B").arg("bench.py").current_dir(folder);
    python.arg("--dir").arg(case.bridge.net.file("neutron"));
    python.arg("--host").arg(case.bridge.net.file("h1/http.sock")).args(["--ports", "100"]);
    let output = case.bridge.hosts[0].inside(|| python.output().unwrap());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    say(said.trim());
}

/// The rules by which facts become ports, and the queue: without a Neutron.
#[test]
#[ignore = "live: needs root"]
fn rules_of_driver_hold_without_neutron() {
    if skip("rules_of_driver_hold_without_neutron", &[PYTHON]) {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/neutron");
    let mut python = Command::new(PYTHON);
    python.args(["-B", "-m", "unittest", "discover", "tests"]).current_dir(&folder);
    python.env("PYTHONPATH", format!("{}/src:{}/../src", folder.display(), folder.display()));
    let output = python.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Ran 0"), "{said}");
    say(said.lines().last().unwrap_or_default());
}
