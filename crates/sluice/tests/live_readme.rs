//! The five commands of the README, word for word, and their promised results.
//!
//! The commands have fixed names for namespaces and hosts, so the test is skipped if one of these
//! exists already.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const SECTION: &str = "## Two hosts, five commands";
const PATIENCE: Duration = Duration::from_secs(30);

/// Removes everything that was started, also on a panic.
struct Case {
    daemons: Vec<Child>,
    folder: PathBuf,
    root: PathBuf,
}

impl Case {
    fn shell(&self, line: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_sluice")).parent().unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(&self.folder).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", program.display()));
        command
    }

    /// Runs a line until it succeeds: a daemon that was just started takes a moment.
    fn run(&self, line: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let output = self.shell(line).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() {
                return printed;
            }
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(Instant::now() < until, "{line}: {said}{printed}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            _ = kill_process(Pid::from_child(daemon), Signal::TERM);
            _ = daemon.wait();
        }
        _ = self.shell("examples/two-hosts.sh down").status();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the command lines of the section, and the lines that it shows as printed.
fn commands(readme: &str) -> Vec<String> {
    let section = readme.split(SECTION).nth(1).expect("README has the section");
    let section = section.split("\n## ").next().unwrap();
    let mut blocks = section.split("```console\n").skip(1);
    let lines = blocks.by_ref().flat_map(|block| block.split("```").next().unwrap().lines());
    lines.filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

#[test]
#[ignore = "live: needs root"]
fn readme_commands_connect_two_containers_and_hosts() {
    let here = |name: &&&str| Path::new("/run/netns").join(**name).exists();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED live_readme: it makes network namespaces and needs root");
        return;
    }
    if let Some(name) = ["h1", "h2", "web", "db"].iter().find(here) {
        eprintln!("SKIPPED live_readme: there is a network namespace {name} already");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = std::env::temp_dir().join(format!("sluice-readme-{}", std::process::id()));
    let examples = folder.join("examples");
    std::fs::create_dir_all(&examples).unwrap();
    for name in ["h1.toml", "h2.toml", "two-hosts.sh"] {
        std::fs::copy(root.join("examples").join(name), examples.join(name)).unwrap();
    }
    let mut case = Case { daemons: Vec::new(), folder, root };
    let readme = std::fs::read_to_string(case.root.join("README.md")).unwrap();
    let lines = commands(&readme);
    let pings = lines.iter().filter(|line| line.contains("ping ")).count();
    let own =
        lines.iter().filter(|line| line.contains("sluice daemon") || line.contains("port add"));
    assert_eq!((own.count(), pings), (5, 3), "{lines:#?}");
    for line in &lines {
        match line.strip_suffix(" &") {
            Some(daemon) => {
                case.daemons.push(case.shell(&format!("exec {daemon}")).spawn().unwrap())
            }
            None => {
                let printed = case.run(line);
                assert!(
                    !line.contains("ping ") || printed.contains(" 0% packet loss"),
                    "{printed}"
                );
            }
        }
    }
}
