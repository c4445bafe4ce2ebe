//! The plugin as a runtime executes it, by `cnitool` or directly.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::pair::Pair;
use super::{Daemon, Netns, program, say, skip};

/// Programs of others, in a folder of their own (`scripts/setup.sh`).
const PEERS: [&str; 4] = ["cnitool", "host-local", "portmap", "bandwidth"];

/// Returns the folder with programs of others: `$SLUICE_CNI_PEERS`, or the one that
/// `scripts/setup.sh` makes.
pub(crate) fn peers() -> PathBuf {
    std::env::var_os("SLUICE_CNI_PEERS").map_or_else(
        || program().ancestors().nth(2).expect("a build folder").join("cni-peers"),
        PathBuf::from,
    )
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip_without_peers(test: &str) -> bool {
    if skip(test, &[]) {
        return true;
    }
    let (dir, plugin) = (peers(), plugin());
    let missing = PEERS.map(|name| dir.join(name)).into_iter().chain([plugin]);
    let missing = missing.into_iter().find(|path| !path.is_file());
    if let Some(path) = &missing {
        say(&format!("SKIPPED {test}: {} is not installed", path.display()));
    }
    missing.is_some()
}

pub(crate) fn plugin() -> PathBuf {
    program().with_file_name("sluice-cni")
}

/// Returns the path of a namespace, as runtimes name it.
pub(crate) fn path_of(netns: &Netns) -> String {
    format!("/run/netns/{}", netns.name())
}

/// Returns the part of `10.42.0.0/24` from which addresses are assigned.
pub(crate) fn range(first: u8, last: u8) -> [String; 2] {
    [first, last].map(|number| format!("10.42.0.{number}"))
}

/// Returns p50 and p99 of measured times.
pub(crate) fn percentiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort();
    [50, 99].map(|share| times[(times.len() - 1) * share / 100])
}

/// Result of an execution.
#[derive(Debug)]
pub(crate) struct Done(Output);

impl Done {
    /// Waits for the end of an execution.
    pub(crate) fn of(child: Child) -> Self {
        Self(child.wait_with_output().unwrap())
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.0.status.code()
    }

    /// Returns everything that was written.
    pub(crate) fn said(&self) -> String {
        let [printed, said] =
            [&self.0.stdout, &self.0.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        format!("{} {}", printed.trim(), said.trim())
    }

    /// Returns the result; `Null` if there is none.
    pub(crate) fn succeeds(&self) -> Value {
        assert_eq!(self.code(), Some(0), "{}", self.said());
        serde_json::from_slice(&self.0.stdout).unwrap_or_default()
    }

    /// Returns the error in the form of CNI.
    pub(crate) fn error(&self) -> Value {
        assert_ne!(self.code(), Some(0), "{}", self.said());
        serde_json::from_slice(&self.0.stdout).unwrap_or_else(|_| panic!("{}", self.said()))
    }
}

/// The plugin at one host, with a folder for configurations and one for assigned addresses.
pub(crate) struct Cni {
    dir: PathBuf,
    socket: PathBuf,
    network: String,
}

impl Cni {
    pub(crate) fn new(case: &Pair, own: usize) -> Self {
        let host = format!("h{}", own + 1);
        let dir = case.file(&format!("cni-{host}"));
        std::fs::create_dir_all(dir.join("net.d")).unwrap();
        let network = format!("pods-{}-{host}", std::process::id());
        Self { dir, socket: case.file(&format!("{host}/show.sock")), network }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the `ipam` of a network whose addresses `host-local` assigns.
    pub(crate) fn host_local(&self, [first, last]: [String; 2]) -> Value {
        json!({
            "type": "host-local",
            "dataDir": self.dir.join("assigned"),
            "ranges": [[{
                "subnet": "10.42.0.0/24", "rangeStart": first, "rangeEnd": last,
                "gateway": "10.42.0.1"
            }]],
            "routes": [{"dst": "0.0.0.0/0"}]
        })
    }

    /// Returns the addresses that `host-local` has assigned.
    pub(crate) fn assigned(&self) -> Vec<String> {
        let dir = std::fs::read_dir(self.dir.join("assigned").join(&self.network));
        let names = dir.into_iter().flatten().flatten();
        let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("10.")).collect();
        names.sort();
        names
    }

    /// Returns the files of claims on attachments.
    pub(crate) fn claims(&self) -> Vec<String> {
        let dir = std::fs::read_dir(self.socket.with_file_name("cni"));
        let names = dir.into_iter().flatten().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Lets `host-local` begin with the first address again, not after the last one.
    pub(crate) fn assign_anew(&self) {
        std::fs::remove_dir_all(self.dir.join("assigned")).unwrap();
    }

    /// Returns the container that has each assigned address.
    pub(crate) fn owners(&self) -> BTreeMap<String, String> {
        let dir = self.dir.join("assigned").join(&self.network);
        // Its first line is the container's name.
        let owner = |address: &String| {
            let text = std::fs::read_to_string(dir.join(address)).unwrap();
            text.lines().next().unwrap_or_default().trim().to_owned()
        };
        self.assigned().into_iter().map(|address| (address.clone(), owner(&address))).collect()
    }

    /// Returns the names of the ports of containers at a host.
    pub(crate) fn ports(&self, daemon: &Daemon) -> Vec<String> {
        let rows = daemon.ask(&["port", "list"])["ports"].take();
        let of_cni = rows.as_array().unwrap().iter().filter(|row| !row["port"]["cni"].is_null());
        of_cni.map(|row| row["port"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the configuration of one execution.
    pub(crate) fn config(&self, more: &Value) -> Value {
        let mut all = json!({
            "cniVersion": "1.1.0", "name": self.network, "type": "sluice-cni",
            "vnet": "blue", "socket": self.socket
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    }

    /// Writes the network for `cnitool`, with this plugin alone.
    pub(crate) fn network(&self, more: &Value) {
        let mut plugin = self.config(more);
        let keys = plugin.as_object_mut().unwrap();
        let version = keys.remove("cniVersion").unwrap();
        keys.remove("name");
        self.write(&version, &[plugin]);
    }

    /// Writes a network with several plugins.
    pub(crate) fn chain(&self, plugins: &[Value]) {
        self.write(&json!("1.1.0"), plugins);
    }

    fn write(&self, version: &Value, plugins: &[Value]) {
        let list = json!({"cniVersion": version, "name": self.network, "plugins": plugins});
        std::fs::write(self.dir.join("net.d/10-sluice.conflist"), list.to_string()).unwrap();
    }

    fn search_path() -> String {
        format!("{}:{}", plugin().parent().unwrap().display(), peers().display())
    }

    /// Executes `cnitool COMMAND` for a container.
    pub(crate) fn cnitool(&self, command: &str, container: &Netns) -> Done {
        self.cnitool_with(command, container, &json!({}))
    }

    /// The same, with arguments of capabilities.
    pub(crate) fn cnitool_with(&self, command: &str, container: &Netns, given: &Value) -> Done {
        self.run_cnitool(Command::new(peers().join("cnitool")), command, container, given)
    }

    /// The same, in a host's namespace.
    pub(crate) fn cnitool_in(
        &self,
        host: &Netns,
        command: &str,
        container: &Netns,
        given: &Value,
    ) -> Done {
        let tool = host.command(peers().join("cnitool").to_str().unwrap());
        self.run_cnitool(tool, command, container, given)
    }

    fn run_cnitool(
        &self,
        mut tool: Command,
        command: &str,
        container: &Netns,
        given: &Value,
    ) -> Done {
        tool.args([command, &self.network, &path_of(container)])
            .env("CNI_PATH", Self::search_path())
            .env("NETCONFPATH", self.dir.join("net.d"))
            .env("CAP_ARGS", given.to_string());
        Done(tool.output().unwrap())
    }

    /// Starts the plugin for a container's `eth0`.
    pub(crate) fn start(
        &self,
        command: &str,
        id: &str,
        netns: Option<&str>,
        config: &Value,
    ) -> Child {
        Self::spawn(&plugin(), command, id, netns, "eth0", config)
    }

    /// Executes the IPAM plugin by itself, as the plugin does.
    #[expect(clippy::unused_self, reason = "a call reads as one at a host")]
    pub(crate) fn exec_ipam(&self, command: &str, id: &str, netns: &str, config: &Value) -> Done {
        let program = peers().join("host-local");
        Done::of(Self::spawn(&program, command, id, Some(netns), "eth0", config))
    }

    /// Executes the plugin for a container's `eth0`.
    pub(crate) fn exec(
        &self,
        command: &str,
        id: &str,
        netns: Option<&str>,
        config: &Value,
    ) -> Done {
        self.exec_as(command, id, netns, "eth0", config)
    }

    /// Executes the plugin for a container's interface.
    #[expect(clippy::unused_self, reason = "a call reads as one at a host")]
    pub(crate) fn exec_as(
        &self,
        command: &str,
        id: &str,
        netns: Option<&str>,
        interface: &str,
        config: &Value,
    ) -> Done {
        Done::of(Self::spawn(&plugin(), command, id, netns, interface, config))
    }

    fn spawn(
        program: &Path,
        command: &str,
        id: &str,
        netns: Option<&str>,
        interface: &str,
        config: &Value,
    ) -> Child {
        let mut plugin = Command::new(program);
        plugin
            .env("CNI_COMMAND", command)
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", interface)
            .env("CNI_PATH", Self::search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(netns) = netns {
            plugin.env("CNI_NETNS", netns);
        }
        let mut child = plugin.spawn().unwrap();
        // One that is killed early does not read it.
        _ = child.stdin.take().unwrap().write_all(config.to_string().as_bytes());
        child
    }
}
