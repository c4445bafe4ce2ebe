//! Docker's daemon at a host, with the driver `sluice-docker`.
//!
//! Each host has a Docker of its own: in the host's network namespace, and in a mount namespace of
//! its own, since Docker looks for its drivers at one fixed place.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::pair::Pair;
use super::{Netns, Process, program, say, skip, wait_for};

/// Longest time for Docker to end.
const END_MAX: Duration = Duration::from_secs(15);

/// Returns the folder that `scripts/docker.sh` fills.
pub(crate) fn folder() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("docker")
}

fn driver() -> PathBuf {
    program().with_file_name("sluice-docker")
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip_without_docker(test: &str) -> bool {
    let image = (folder().join("image.tar"), "scripts/docker.sh");
    skip_without_runtime(test, &[image, (driver(), "cargo build --package sluice-cni")])
}

/// The same for any runtime of containers, which needs these files; a command makes each.
pub(crate) fn skip_without_runtime(test: &str, needed: &[(PathBuf, &str)]) -> bool {
    if skip(test, &["nsenter", "unshare"]) {
        return true;
    }
    let why = if let Some((path, how)) = needed.iter().find(|(path, _)| !path.is_file()) {
        format!("{} is not there: {how}", path.display())
    } else if !Path::new("/sys/fs/cgroup/devices").is_dir()
        && !Path::new("/sys/fs/cgroup/cgroup.controllers").is_file()
    {
        "no cgroups are mounted at /sys/fs/cgroup".to_owned()
    } else {
        return false;
    };
    say(&format!("SKIPPED {test}: {why}"));
    true
}

/// Docker and its driver at one host. The fields end in this order.
pub(crate) struct Docker {
    docker: Child,
    driver: Option<Process>,
    dir: PathBuf,
    netns: String,
    socket: PathBuf,
}

impl Docker {
    /// Starts both, with the image and the network `prod`, whose addresses are 10.42.OWN.0/24 of
    /// 10.42.0.0/16.
    pub(crate) fn new(case: &Pair, own: usize) -> Self {
        let host = format!("h{}", own + 1);
        let dir = case.file(&format!("docker-{host}"));
        std::fs::create_dir_all(dir.join("run/plugins")).unwrap();
        let netns = case.hosts[own].name().to_owned();
        let socket = case.file(&format!("{host}/show.sock"));
        let docker = dockerd(&dir, &netns);
        let mut new = Self { docker, driver: None, dir, netns, socket };
        new.start_driver();
        wait_for("Docker answers", || new.attempt(&["version"]).status.success());
        let image = folder().join("image.tar");
        new.run(&["import", image.to_str().unwrap(), "box"]);
        new
    }

    /// Makes the network `prod`, with further options.
    pub(crate) fn create(&self, own: usize, more: &[&str]) -> Output {
        let socket = format!("socket={}", self.socket.display());
        let range = format!("10.42.{}.0/24", own + 1);
        let mut words = vec!["network", "create", "-d", "sluice", "-o", &socket];
        words.extend(["--subnet", "10.42.0.0/16", "--ip-range", &range]);
        words.extend(["--gateway", "10.42.0.1"]);
        words.extend(more);
        words.push("prod");
        self.attempt(&words)
    }

    /// Starts the driver, and waits until it listens.
    pub(crate) fn start_driver(&mut self) {
        let socket = self.dir.join("run/plugins/sluice.sock");
        let mut command = inside(&self.netns);
        command.arg(driver()).arg("--socket").arg(&socket);
        command.arg("--state-dir").arg(self.dir.join("state"));
        self.driver = Some(Process(command.stdin(Stdio::null()).spawn().unwrap()));
        let listens = || std::os::unix::net::UnixStream::connect(&socket).is_ok();
        wait_for("the driver listens", listens);
    }

    /// Kills the driver at once.
    pub(crate) fn kill_driver(&mut self) {
        drop(self.driver.take());
    }

    /// Starts a container that sleeps.
    pub(crate) fn start(&self, name: &str, more: &[&str]) -> Output {
        let mut words = vec!["run", "-d", "--name", name, "--network", "prod"];
        words.extend(["--stop-signal", "KILL"]);
        words.extend(more);
        words.extend(["box", "sleep", "1000"]);
        self.attempt(&words)
    }

    /// Executes `docker`, which may fail.
    pub(crate) fn attempt(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Returns the command `docker` with its output in pipes.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(folder().join("bin/docker"));
        command.arg("-H").arg(format!("unix://{}", self.dir.join("docker.sock").display()));
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns what Docker's daemon has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Executes `docker`; panics if it fails.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        printed(&self.attempt(words), words)
    }
}

/// Returns the output of a command that must have succeeded.
pub(crate) fn printed(output: &Output, what: &[&str]) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns a command in a network namespace, with the file systems of the caller: runtimes need the
/// cgroups, which `ip netns exec` hides.
pub(crate) fn inside(netns: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{netns}"));
    command
}

fn dockerd(dir: &Path, netns: &str) -> Child {
    let (bin, dir) = (folder().join("bin"), dir.display());
    let line = format!(
        "mkdir -p /run/docker && mount --bind {dir}/run /run/docker && exec dockerd \
         --iptables=false --ip6tables=false --bridge=none --userland-proxy=false \
         --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent {netns} --storage-driver vfs \
         -H unix://{dir}/docker.sock \
         --data-root {dir}/data --exec-root {dir}/exec --pidfile {dir}/pid >{dir}/log 2>&1"
    );
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = inside(netns);
    command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c", &line]);
    command.env("PATH", format!("{}:{path}", bin.display())).stdin(Stdio::null());
    command.spawn().unwrap()
}

impl Netns {
    /// Returns the names of the devices that the driver has made here.
    pub(crate) fn given_away(&self) -> Vec<String> {
        let all = super::pair::devices(self);
        all.into_iter().filter(|name| name.starts_with("sl-")).collect()
    }
}

impl Drop for Docker {
    /// Ends Docker in order: its containers, its mounts and its containerd go with it.
    fn drop(&mut self) {
        _ = kill_process(Pid::from_child(&self.docker), Signal::TERM);
        let until = Instant::now() + END_MAX;
        while Instant::now() < until && matches!(self.docker.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        _ = self.docker.kill();
        _ = self.docker.wait();
        remove_groups(&self.netns);
    }
}

/// Removes the control groups in which a runtime had its containers: of version 2 there is one, of
/// version 1 one for each controller.
pub(crate) fn remove_groups(name: &str) {
    let root = Path::new("/sys/fs/cgroup");
    let folders = std::fs::read_dir(root).into_iter().flatten().flatten().map(|one| one.path());
    for folder in folders.chain([root.to_owned()]) {
        _ = std::fs::remove_dir(folder.join(name));
    }
}
