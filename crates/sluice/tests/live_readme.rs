//! Commands of the README and of the first steps, word for word, and their promised results.
//!
//! The commands have fixed names for namespaces and hosts, so a test is skipped if one of these
//! exists already. The tests run one after the other (`scripts/test.sh`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// Removes everything that was started, also on a panic.
struct Case {
    daemons: Vec<Child>,
    folder: PathBuf,
    script: &'static str,
}

/// A section with commands.
struct Section {
    page: &'static str,
    title: &'static str,
    script: &'static str,
    namespaces: &'static [&'static str],
}

const THREE_HOSTS: Section = Section {
    page: "README.md",
    title: "## Three hosts, six commands",
    script: "examples/three-hosts.sh",
    namespaces: &["h1", "h2", "h3", "wire", "web", "db"],
};

const TWO_FILES: Section = Section {
    page: "docs/first-steps.md",
    title: "## Two hosts from files",
    script: "examples/two-hosts.sh",
    namespaces: &["h1", "h2", "web", "db"],
};

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
        _ = self.shell(&format!("{} down", self.script)).status();
        _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the lines of the section that people type as root.
fn commands(page: &str, title: &str) -> Vec<String> {
    let section = page.split(title).nth(1).unwrap_or_else(|| panic!("no section {title}"));
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap().lines());
    lines.filter_map(|line| line.strip_prefix("# ")).map(str::to_owned).collect()
}

/// Runs the commands of a section, and returns them; `None` if this machine cannot.
fn run(section: &Section) -> Option<Vec<String>> {
    let here = |name: &&&str| Path::new("/run/netns").join(**name).exists();
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED live_readme: it makes network namespaces and needs root");
        return None;
    }
    if let Some(name) = section.namespaces.iter().find(here) {
        eprintln!("SKIPPED live_readme: there is a network namespace {name} already");
        return None;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let folder = std::env::temp_dir().join(format!("sluice-readme-{}", std::process::id()));
    let examples = folder.join("examples");
    std::fs::create_dir_all(&examples).unwrap();
    for file in std::fs::read_dir(root.join("examples")).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), examples.join(file.file_name())).unwrap();
        }
    }
    let page = std::fs::read_to_string(root.join(section.page)).unwrap();
    let lines = commands(&page, section.title);
    let mut case = Case { daemons: Vec::new(), folder, script: section.script };
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
    Some(lines)
}

/// Returns the number of lines with a word.
fn count(lines: &[String], word: &str) -> usize {
    lines.iter().filter(|line| line.contains(word)).count()
}

#[test]
#[ignore = "live: needs root"]
fn readme_commands_make_fabric_of_three_hosts() {
    let Some(lines) = run(&THREE_HOSTS) else { return };
    let own = lines.iter().filter(|line| line.starts_with("sluice "));
    assert_eq!((own.count(), count(&lines, "ping ")), (6, 1), "{lines:#?}");
    assert_eq!(count(&lines, "sluice daemon"), 3, "{lines:#?}");
}

#[test]
#[ignore = "live: needs root"]
fn first_steps_from_files_connect_containers_and_host() {
    let Some(lines) = run(&TWO_FILES) else { return };
    let own =
        lines.iter().filter(|line| line.contains("sluice daemon") || line.contains("port add"));
    assert_eq!((own.count(), count(&lines, "ping ")), (5, 3), "{lines:#?}");
}
