//! Labs on this machine: built, measured, killed at every moment, taken away.
//!
//! The program is its own `sluice`. Started with `lab …` it is the command line (so the lab starts
//! it again as aggregator and workers); started with `daemon …` it is a stand-in for the daemon
//! that answers questions and moves no frame. Without either it runs the tests, which need root and
//! say so aloud if they have to skip.

mod stand_in;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use sluice_api::results::Results;
use sluice_lab::cli::LabCommand;
use sluice_testkit::bound::{at_least, at_most};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Role,
}

#[derive(Subcommand)]
enum Role {
    #[command(subcommand)]
    Lab(LabCommand),
    Daemon {
        #[arg(long)]
        config: PathBuf,
    },
    /// The stand-in needs no certificates.
    Fabric {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        _words: Vec<String>,
    },
}

const TESTS: [(&str, fn()); 7] = [
    ("queries_over_a_bridge_end_and_are_written_down", queries_over_a_bridge),
    ("an_interrupted_run_leaves_nothing", an_interrupted_run),
    ("a_killed_run_is_cleaned_up_by_the_next", a_killed_run),
    ("a_lab_stands_until_it_is_taken_down", a_lab_stands),
    ("a_foreign_namespace_is_not_touched", a_foreign_namespace),
    ("a_daemon_that_ends_is_an_error_and_leaves_nothing", a_daemon_that_ends),
    ("a_lab_that_cannot_be_built_leaves_nothing", a_lab_that_cannot_be_built),
];

fn main() -> ExitCode {
    let first = std::env::args().nth(1).unwrap_or_default();
    if ["lab", "daemon", "fabric"].contains(&first.as_str()) {
        return match Arguments::parse().command {
            Role::Lab(command) => sluice_lab::cli::run(command).unwrap_or_else(|error| {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }),
            Role::Daemon { config } => stand_in::run(&config),
            Role::Fabric { .. } => ExitCode::SUCCESS,
        };
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: tests of labs on this machine need root");
        return ExitCode::SUCCESS;
    }
    for (name, test) in TESTS {
        if !first.is_empty() && !first.starts_with('-') && !name.contains(&first) {
            continue;
        }
        eprint!("test {name} ... ");
        let began = Instant::now();
        test();
        eprintln!("ok ({:.1} s)", began.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// A lab of a test, with a name that nobody else uses.
struct Case {
    lab: String,
    folder: PathBuf,
}

impl Case {
    fn new(word: &str) -> Self {
        let lab = format!("t{}-{word}", std::process::id() % 100_000);
        let folder = std::env::temp_dir().join(format!("sluice-{lab}"));
        std::fs::create_dir_all(&folder).unwrap();
        Self { lab, folder }
    }

    fn scenario(&self, text: &str) -> PathBuf {
        let path = self.folder.join("scenario.toml");
        std::fs::write(&path, text.replace("NAME", &self.lab)).unwrap();
        path
    }

    fn namespaces(&self) -> Vec<String> {
        let Ok(files) = std::fs::read_dir("/run/netns") else { return Vec::new() };
        let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&format!("slab-{}-", self.lab))).collect()
    }

    /// Returns the processes of this lab: its name is in the path of their program or arguments, or
    /// they were started by `__worker` or `__aggregator` of this very program.
    fn processes(&self) -> Vec<String> {
        let own = program().to_string_lossy().into_owned();
        let mut found = Vec::new();
        for folder in std::fs::read_dir("/proc").unwrap().flatten() {
            let Ok(words) = std::fs::read(folder.path().join("cmdline")) else { continue };
            let line = String::from_utf8_lossy(&words).replace('\0', " ");
            let role = line.starts_with(&own) && line.contains("lab __");
            if role || line.contains(&format!("/run/sluice-lab/{}/", self.lab)) {
                found.push(line);
            }
        }
        found
    }

    fn nothing_left(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !self.processes().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(self.processes(), Vec::<String>::new(), "processes are left");
        assert_eq!(self.namespaces(), Vec::<String>::new(), "namespaces are left");
        let state = Path::new("/run/sluice-lab").join(&self.lab).join("state.json");
        assert!(!state.exists(), "the state file is left");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        let _ = lab(&["down", &self.lab]);
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_dir_all(Path::new("/run/sluice-lab").join(&self.lab));
    }
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

fn lab(words: &[&str]) -> Output {
    Command::new(program()).arg("lab").args(words).stdin(Stdio::null()).output().unwrap()
}

fn start(words: &[&str]) -> Child {
    Command::new(program())
        .arg("lab")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Waits until a condition is true.
fn until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check() {
        assert!(Instant::now() < deadline, "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const BRIDGE: &str = r#"
[lab]
name = "NAME"
hosts = 2
containers_per_host = 2
aggregator = true
fabric = "linux-bridge"

[pa]
sizes = [2, 8]
policies = ["LL"]
queries = 20
queries_min = 5
seconds_per_cell = 2.0

[[check]]
kind = "ping"
from = "h0c0"
to = "h1c1"
count = 3

[[check]]
kind = "transfer"
from = "h0c1"
to = "h1c0"
megabytes = 5
"#;

const DAEMONS: &str = r#"
[lab]
name = "NAME"
hosts = 2
containers_per_host = 1

[[check]]
kind = "ping"
from = "h0c0"
to = "h1c0"
count = 1
"#;

fn queries_over_a_bridge() {
    let case = Case::new("pa");
    let scenario = case.scenario(BRIDGE);
    let out = case.folder.join("out");
    let (scenario, out_word) = (scenario.to_string_lossy(), out.to_string_lossy());
    let output = lab(&["run", &scenario, "--out", &out_word]);
    assert!(output.status.success(), "{}", said(&output));
    let text = std::fs::read_to_string(out.join("result.json")).unwrap();
    let results: Results = serde_json::from_str(&text).unwrap();
    let cells: Vec<_> = results.rows.iter().filter(|row| row.measure == "pa.fct").collect();
    assert_eq!(cells.len(), 2);
    for cell in cells {
        assert_eq!(cell.subject, "linux-bridge");
        assert!((5..=20).contains(&cell.values.len()));
        // Four answers at 500 Mbit/s; a faster query did not use the shaped link.
        let bytes = cell.context["size_packets"].as_f64().unwrap() * 1398.0 * 4.0;
        let least = (bytes - 30_000.0).max(0.0) * 8.0 / 500e6 * 1e9;
        assert!(cell.values.iter().all(|&ns| ns > least), "{:?}", cell.values);
        let longest = cell.values.iter().copied().fold(0.0, f64::max);
        at_most("ns until all answers are there", longest, 5e9);
    }
    let row = |measure: &str| results.rows.iter().find(|row| row.measure == measure).unwrap();
    assert_eq!(row("lab.ping").values.len(), 3);
    let rate = row("tcp_stream").median;
    assert!(rate > 0.0 && rate < 505e6, "{rate} through a bucket of 500 Mbit/s");
    at_least("bit/s through a bucket of 500 Mbit/s", rate, 50e6);
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    std::fs::remove_file(out.join("report.html")).unwrap();
    assert!(lab(&["report", &out_word]).status.success());
    assert_eq!(std::fs::read_to_string(out.join("report.html")).unwrap(), page);
    case.nothing_left();
}

/// Interrupts a run at different moments, from the first namespace to the middle of the queries.
fn an_interrupted_run() {
    let case = Case::new("int");
    let scenario = case.scenario(BRIDGE);
    for wait_ms in [0, 60, 200, 500, 1200] {
        let mut child = start(&["run", &scenario.to_string_lossy(), "--queries", "1000000"]);
        until("the first namespace", || !case.namespaces().is_empty());
        std::thread::sleep(Duration::from_millis(wait_ms));
        let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::INT).unwrap();
        let status = child.wait().unwrap();
        let mut text = String::new();
        child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(!status.success() && text.contains("interrupted"), "{wait_ms}: {status} {text}");
        case.nothing_left();
    }
}

fn a_killed_run() {
    let case = Case::new("kill");
    let scenario = case.scenario(BRIDGE);
    let scenario = scenario.to_string_lossy();
    for wait_ms in [0, 60, 500] {
        // Leftovers of the round before are removed by hand, those of the last round by the next
        // run.
        lab(&["down", &case.lab]);
        case.nothing_left();
        let mut child = start(&["run", &scenario, "--queries", "1000000"]);
        until("the first namespace", || !case.namespaces().is_empty());
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!case.namespaces().is_empty(), "there is nothing to clean up");
        let status = lab(&["status"]);
        assert!(said(&status).contains("left over"), "{}", said(&status));
    }
    let output = lab(&["run", &scenario, "--sizes", "2", "--queries", "5", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    let results: Results = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results.rows.iter().any(|row| row.measure == "pa.fct"));
    case.nothing_left();
}

fn a_lab_stands() {
    let case = Case::new("up");
    let scenario = case.scenario(DAEMONS);
    let scenario = scenario.to_string_lossy();
    let output = lab(&["up", &scenario, "--policy", "ZL"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(case.namespaces().len(), 5);
    assert_eq!(case.processes().len(), 3);
    let status = said(&lab(&["status"]));
    let expected = format!("{}: up, policy ZL, 5 of 5 namespaces, 3 of 3 processes", case.lab);
    assert!(status.contains(&expected), "{status}");
    let again = lab(&["run", &scenario]);
    assert!(!again.status.success() && said(&again).contains("is up"), "{}", said(&again));
    assert_eq!(case.processes().len(), 3, "the second start harmed the first");
    assert!(said(&lab(&["down", &case.lab])).contains("is down"));
    case.nothing_left();
    let twice = lab(&["down", &case.lab]);
    assert!(twice.status.success() && said(&twice).contains("there is no lab"));
}

fn a_foreign_namespace() {
    let case = Case::new("own");
    let scenario = case.scenario(DAEMONS);
    let foreign = format!("slab-{}-h1", case.lab);
    let ip = |word: &str| Command::new("ip").args(["netns", word, &foreign]).status().unwrap();
    assert!(ip("add").success());
    let output = lab(&["run", &scenario.to_string_lossy()]);
    assert!(!output.status.success());
    assert!(said(&output).contains("not ours"), "{}", said(&output));
    assert!(said(&lab(&["down", &case.lab])).contains("there is no lab"));
    assert_eq!(case.namespaces(), std::slice::from_ref(&foreign));
    assert!(ip("delete").success());
}

/// Tests a daemon that ends: the stand-in ends at once when it is asked to run `LZ`.
fn a_daemon_that_ends() {
    let case = Case::new("end");
    let scenario = case.scenario(DAEMONS);
    let output = lab(&["up", &scenario.to_string_lossy(), "--policy", "LZ"]);
    assert!(!output.status.success());
    let text = said(&output);
    assert!(text.contains("ended at once") && text.contains("no LZ today"), "{text}");
    case.nothing_left();
}

fn a_lab_that_cannot_be_built() {
    let case = Case::new("bad");
    let text = BRIDGE.replace("[pa]", "[tcp]\ncongestion = \"none-such\"\n\n[pa]");
    let scenario = case.scenario(&text);
    let output = lab(&["run", &scenario.to_string_lossy()]);
    assert!(!output.status.success());
    assert!(said(&output).contains("none-such"), "{}", said(&output));
    case.nothing_left();
}
