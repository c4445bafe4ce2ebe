//! netavark, Podman's network stack, and its plugin.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::cni::{Done, path_of};
use super::pair::Pair;
use super::{Netns, program, say, skip};

/// Returns the program that `scripts/netavark.sh` gets.
fn stack() -> PathBuf {
    program().ancestors().nth(2).expect("a build folder").join("netavark/netavark")
}

fn plugin() -> PathBuf {
    program().with_file_name("sluice-netavark")
}

/// Returns true if a test cannot run here, and prints the reason.
pub(crate) fn skip_without_netavark(test: &str) -> bool {
    if skip(test, &[]) {
        return true;
    }
    let missing = [stack(), plugin()].into_iter().find(|path| !path.is_file());
    if let Some(path) = &missing {
        say(&format!("SKIPPED {test}: {} is not there: scripts/netavark.sh", path.display()));
    }
    missing.is_some()
}

/// netavark at one host, with the network `pods`.
pub(crate) struct Netavark {
    dir: PathBuf,
    network: Value,
}

impl Netavark {
    pub(crate) fn new(case: &Pair, own: usize) -> Self {
        let host = format!("h{}", own + 1);
        let dir = case.file(&format!("netavark-{host}"));
        std::fs::create_dir_all(dir.join("plugins")).unwrap();
        // The driver has the name of its file.
        std::os::unix::fs::symlink(plugin(), dir.join("plugins/sluice")).unwrap();
        let network = json!({
            "name": "pods", "id": "2f".repeat(32), "driver": "sluice", "internal": false,
            "ipv6_enabled": false, "dns_enabled": true, "network_interface": "",
            "subnets": [{ "subnet": "10.42.0.0/24", "gateway": "10.42.0.1" }],
            "ipam_options": { "driver": "host-local" },
            "options": { "vnet": "blue", "socket": case.file(&format!("{host}/show.sock")) },
        });
        Self { dir, network }
    }

    /// The network as `podman network create` gives it.
    pub(crate) const fn network(&self) -> &Value {
        &self.network
    }

    /// Keeps the network that `create` has answered.
    pub(crate) fn keep(&mut self, network: Value) {
        self.network = network;
    }

    /// Executes netavark for a container's `eth0`, with more keys for its part of the input.
    pub(crate) fn run(
        &self,
        command: &str,
        id: &str,
        netns: &Netns,
        ip: &str,
        more: &Value,
    ) -> Done {
        let mut all = json!({
            "container_id": id, "container_name": id, "port_mappings": null,
            "networks": { "pods": { "interface_name": "eth0", "static_ips": [ip] } },
            "network_info": { "pods": self.network },
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut stack = Command::new(stack());
        stack.arg("--config").arg(&self.dir);
        stack.arg("--plugin-directory").arg(self.dir.join("plugins"));
        stack.args([command, &path_of(netns)]);
        Done::of(start(stack, &all))
    }

    /// Starts the plugin itself, as netavark starts it for a container's `eth0`.
    pub(crate) fn plugin(&self, arguments: &[&str], id: &str, ip: &str) -> Child {
        let exec = json!({
            "container_id": id, "container_name": id, "port_mappings": [], "network": self.network,
            "network_options": { "interface_name": "eth0", "static_ips": [ip] },
        });
        let mut plugin = Command::new(plugin());
        plugin.args(arguments);
        start(plugin, &exec)
    }

    /// Executes `create` of the plugin.
    pub(crate) fn create(network: &Value) -> Done {
        let mut plugin = Command::new(plugin());
        plugin.arg("create");
        Done::of(start(plugin, network))
    }
}

fn start(mut program: Command, input: &Value) -> Child {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().unwrap();
    // One that is killed early does not read it.
    _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
    child
}
