//! containerd at a host, asked as the kubelet asks it: by the Container Runtime Interface (CRI).
//!
//! Each host has a containerd of its own in the host's network namespace. It makes the namespaces
//! of pods itself, and calls `sluice-cni` for them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::cni::{peers, plugin};
use super::docker::{folder, inside, printed, remove_groups, skip_without_runtime};
use super::pair::Pair;
use super::{Netns, Process, program, say, wait_for};

/// Name of the image of `scripts/docker.sh`: of pods and of containers.
pub(crate) const IMAGE: &str = "sluice.test/box:1";
/// Its folders, below that of the host.
const PLUGINS: &str = "opt/cni/bin";
const NETWORKS: &str = "etc/cni/net.d";
const SOCKET: &str = "containerd.sock";
/// Longest time for containerd to end.
const END_MAX: Duration = Duration::from_secs(10);

/// Installs a plugin for the containerd of a folder.
fn install(plugin: &Path, dir: &Path) {
    let name = plugin.file_name().unwrap();
    std::fs::copy(plugin, dir.join(PLUGINS).join(name)).unwrap();
}

/// Returns the folder that `scripts/cri.sh` fills.
pub(crate) fn modules() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("cri")
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip_without_containerd(test: &str) -> bool {
    let needed = [
        (folder().join("oci.tar"), "scripts/docker.sh"),
        (modules().join("api_pb2_grpc.py"), "scripts/cri.sh"),
        (peers().join("host-local"), "scripts/setup.sh test"),
        (peers().join("loopback"), "scripts/setup.sh test"),
        (plugin(), "cargo build --package sluice-cni"),
    ];
    skip_without_runtime(test, &needed)
}

/// A pod: its sandbox, and the one container in it.
pub(crate) struct Pod {
    sandbox: String,
    container: String,
}

/// `cri.py`, which calls one runtime.
struct Client {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// It is killed when dropped.
    _process: Process,
}

impl Client {
    fn new(socket: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/rig/cri.py");
        let mut python = Command::new("python3");
        python.arg("-B").arg(script).arg(socket).env("PYTHONPATH", modules());
        let mut child = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { input, output: BufReader::new(output), _process: Process(child) }
    }

    fn call(&mut self, method: &str, request: &Value) -> Result<Value, String> {
        let line = json!({"method": method, "request": request});
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).expect("the client answers");
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

/// containerd at one host.
pub(crate) struct Containerd {
    daemon: Option<Process>,
    client: RefCell<Client>,
    dir: PathBuf,
    netns: String,
}

impl Containerd {
    /// Starts it at a host, with the image and the network of its pods.
    pub(crate) fn new(case: &Pair, own: usize, conflist: &Value) -> Self {
        let dir = case.file(&format!("containerd-h{}", own + 1));
        for name in [PLUGINS, NETWORKS] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        install(&plugin(), &dir);
        std::fs::write(dir.join(NETWORKS).join("10-sluice.conflist"), conflist.to_string())
            .unwrap();
        let new = Self::without_network(dir, &case.hosts[own]);
        new.has_network();
        new
    }

    /// Starts it with the image. What is still missing for pods is the plugin and the network.
    pub(crate) fn without_network(dir: PathBuf, netns: &Netns) -> Self {
        for name in [PLUGINS, NETWORKS] {
            std::fs::create_dir_all(dir.join(name)).unwrap();
        }
        for name in ["host-local", "loopback"] {
            install(&peers().join(name), &dir);
        }
        std::fs::write(dir.join("config.toml"), settings(&dir)).unwrap();
        let client = RefCell::new(Client::new(&dir.join(SOCKET)));
        let mut new = Self { daemon: None, client, dir, netns: netns.name().to_owned() };
        new.start();
        let image = folder().join("oci.tar");
        let mut ctr = Command::new(folder().join("bin/ctr"));
        ctr.args(["-a", new.socket().to_str().unwrap(), "-n", "k8s.io", "images", "import"]);
        let output = ctr.args(["--no-unpack", image.to_str().unwrap()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        new
    }

    /// Returns the path of a folder of the host, such as /etc/cni/net.d.
    pub(crate) fn at_host(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }

    fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self) {
        let (bin, dir) = (folder().join("bin"), self.dir.display());
        let line = format!(
            "exec {}/containerd --config {dir}/config.toml >>{dir}/log 2>&1",
            bin.display()
        );
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = inside(&self.netns);
        command.args(["sh", "-c", &line]).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", bin.display()));
        self.daemon = Some(Process(command.spawn().unwrap()));
        wait_for("containerd answers", || self.attempt("Version", &json!({})).is_ok());
    }

    /// Waits until it has read the network of its pods.
    pub(crate) fn has_network(&self) {
        wait_for("the network of the pods is ready", || {
            let said = self.call("Status", &json!({}))["status"]["conditions"].take();
            said.as_array().is_some_and(|all| all.iter().all(|one| one["status"] == true))
        });
    }

    /// Kills it at once. Its pods live on.
    pub(crate) fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Returns what it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// Calls a method, which may fail.
    pub(crate) fn attempt(&self, method: &str, request: &Value) -> Result<Value, String> {
        self.client.borrow_mut().call(method, request).map(|mut answer| answer["answer"].take())
    }

    /// Runs `crictl`, the kubelet's stand-in for people; panics if it fails.
    pub(crate) fn crictl(&self, words: &[&str]) -> String {
        let mut crictl = Command::new("crictl");
        crictl.arg("-r").arg(format!("unix://{}", self.socket().display())).arg("--timeout=60s");
        printed(&crictl.args(words).output().unwrap(), words)
    }

    /// Writes the requests of a pod and of its container for `crictl`, and returns their paths.
    pub(crate) fn files(&self, name: &str) -> [String; 2] {
        [("pod", self.sandbox(name)), ("container", container(name))].map(|(word, request)| {
            let path = self.dir.join(format!("{name}-{word}.json"));
            std::fs::write(&path, request.to_string()).unwrap();
            path.to_str().unwrap().to_owned()
        })
    }

    /// Calls a method; panics if it fails.
    pub(crate) fn call(&self, method: &str, request: &Value) -> Value {
        self.attempt(method, request).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Returns the request for the sandbox of a pod.
    pub(crate) fn sandbox(&self, name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": format!("{name}-uid")},
            "log_directory": self.dir.join("pods"),
            "linux": {"cgroup_parent": format!("/{}", self.netns)}
        })
    }

    /// Runs a pod, with a container that sleeps.
    pub(crate) fn run(&self, name: &str) -> Pod {
        let config = self.sandbox(name);
        let sandbox = self.run_sandbox(&config);
        let container = self.start_container(&sandbox, &config, &container(name));
        Pod { sandbox, container }
    }

    /// Runs the sandbox of a pod, and returns its identifier.
    pub(crate) fn run_sandbox(&self, config: &Value) -> String {
        let said = self.call("RunPodSandbox", &json!({"config": config}));
        said["pod_sandbox_id"].as_str().unwrap().to_owned()
    }

    /// Starts a container in a sandbox, and returns its identifier.
    pub(crate) fn start_container(&self, sandbox: &str, pod: &Value, config: &Value) -> String {
        let request = json!({"pod_sandbox_id": sandbox, "config": config, "sandbox_config": pod});
        let said = self.call("CreateContainer", &request);
        let container = said["container_id"].as_str().unwrap().to_owned();
        self.call("StartContainer", &json!({"container_id": container}));
        container
    }

    /// Returns the address that the runtime has for a pod.
    pub(crate) fn ip(&self, pod: &Pod) -> String {
        let said = self.call("PodSandboxStatus", &json!({"pod_sandbox_id": pod.sandbox}));
        said["status"]["network"]["ip"].as_str().unwrap_or_default().to_owned()
    }

    /// Executes a command in a pod's container, and returns all that it says.
    pub(crate) fn exec(&self, pod: &Pod, line: &str) -> String {
        self.exec_in(&pod.container, line)
    }

    /// The same, in a container.
    pub(crate) fn exec_in(&self, container: &str, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let request = json!({"container_id": container, "cmd": words, "timeout": 20});
        let answer = self.client.borrow_mut().call("ExecSync", &request);
        let mut answer = answer.unwrap_or_else(|error| panic!("{line}: {error}"));
        // What is 0 is left out.
        assert!(answer["answer"]["exit_code"].is_null(), "{line}: {answer}");
        let Value::String(said) = answer["said"].take() else { panic!("{line}: {answer}") };
        said
    }

    /// Stops a pod: the runtime ends its containers, and detaches it. It may be said twice.
    pub(crate) fn stop(&self, pod: &Pod) {
        self.call("StopPodSandbox", &json!({"pod_sandbox_id": pod.sandbox}));
    }

    /// Removes a pod.
    pub(crate) fn remove(&self, pod: &Pod) {
        self.call("RemovePodSandbox", &json!({"pod_sandbox_id": pod.sandbox}));
    }

    /// Returns the paths that are mounted below its folder, the last one first.
    fn mounts(&self) -> Vec<String> {
        let text = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let paths = text.lines().filter_map(|line| line.split_whitespace().nth(1));
        let below = paths.filter(|path| Path::new(path).starts_with(&self.dir));
        below.map(str::to_owned).collect::<Vec<_>>().into_iter().rev().collect()
    }

    /// Stops and removes the sandboxes of a pod, as the kubelet does with what has failed.
    pub(crate) fn clear(&self, name: &str) {
        for row in self.sandboxes().iter().filter(|row| row["metadata"]["name"] == name) {
            for method in ["StopPodSandbox", "RemovePodSandbox"] {
                self.call(method, &json!({"pod_sandbox_id": row["id"]}));
            }
        }
    }

    /// Stops and removes all, as far as that can be done: the newest first, which needs the others.
    pub(crate) fn clear_all(&self) {
        let mut all = self.sandboxes();
        all.sort_by_key(|row| row["created_at"].as_str().and_then(|text| text.parse::<u64>().ok()));
        for row in all.iter().rev() {
            for method in ["StopPodSandbox", "RemovePodSandbox"] {
                _ = self.attempt(method, &json!({"pod_sandbox_id": row["id"]}));
            }
        }
    }

    fn sandboxes(&self) -> Vec<Value> {
        let said = self.attempt("ListPodSandbox", &json!({})).unwrap_or_default();
        said["items"].as_array().cloned().unwrap_or_default()
    }
}

/// Returns the request for the container of a pod, which sleeps.
fn container(pod: &str) -> Value {
    json!({
        "metadata": {"name": "box"}, "image": {"image": IMAGE}, "log_path": format!("{pod}.log")
    })
}

/// Returns the configuration of containerd. Namespaces of pods are where it makes them unasked, in
/// `/run/netns`: what is mounted there is seen by a host in a mount namespace of its own, too.
fn settings(dir: &Path) -> String {
    let (mut text, dir) = (String::new(), dir.display());
    let runc = r#"plugins."io.containerd.grpc.v1.cri".containerd"#;
    write!(
        text,
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
address = "{dir}/{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{dir}/{PLUGINS}"
conf_dir = "{dir}/{NETWORKS}"
[{runc}]
snapshotter = "native"
[{runc}.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#
    )
    .unwrap();
    text
}

impl Drop for Containerd {
    /// Ends the pods, then containerd, and takes away what was mounted.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.lines().count().saturating_sub(20);
            let last: Vec<&str> = log.lines().skip(from).collect();
            say(&format!("containerd of {}:\n{}", self.netns, last.join("\n")));
        }
        self.clear_all();
        if let Some(mut daemon) = self.daemon.take() {
            _ = kill_process(Pid::from_child(&daemon.0), Signal::TERM);
            let until = Instant::now() + END_MAX;
            while Instant::now() < until && matches!(daemon.0.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        for path in self.mounts() {
            _ = Command::new("umount").args(["-l", &path]).status();
        }
        remove_groups(&self.netns);
        // Its shims use one fixed place. It stays if another containerd runs here.
        for folder in ["s", "runc/k8s.io", "runc", ""] {
            _ = std::fs::remove_dir(Path::new("/run/containerd").join(folder));
        }
    }
}
