//! The manifests for Kubernetes without a cluster: this test is the kubelet. It runs the pod of the
//! DaemonSet at two nodes, as `packaging/kubernetes/sluice.yaml` has it, each on a containerd, then
//! pods that use what it has installed.
//!
//! ```text
//!   web ─┐                      ┌─ db
//!        ├ h1 up0 ═════ up0 h2 ─┤         sluice, in a container with the node's network
//! ```
//!
//! Not tested: the API server, the kubelet's probes, kube-proxy.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::rig::containerd::{Containerd, IMAGE, modules, skip_without_containerd};
use crate::rig::{Net, Netns, cable, program, run, say, wait_for};

/// Folders that both nodes of this test have in common: names in them tell the nodes apart.
const HOSTS: &str = "/run/sluice";
const NAMESPACES: &str = "/run/netns";

/// Returns the documents of the manifests.
fn manifests() -> Vec<Value> {
    const READ: &str = "import json, sys, yaml\n\
                        print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/kubernetes/sluice.yaml");
    let mut python = Command::new("python3");
    let output = python.args(["-B", "-c", READ]).arg(file).env("PYTHONPATH", modules()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns a mount of a container, which may not be written.
fn mount(host: &Path, inside: &str) -> Value {
    json!({"host_path": host, "container_path": inside, "readonly": true})
}

fn of_kind<'a>(all: &'a [Value], kind: &str) -> &'a Value {
    all.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// A node of the cluster.
struct Node {
    runtime: Containerd,
    name: String,
    /// The pod of the DaemonSet: its template, its sandbox, its container.
    template: Value,
    sandbox: String,
    container: String,
}

impl Node {
    fn new(net: &Net, netns: &Netns, template: &Value) -> Self {
        let name = netns.name().to_owned();
        let runtime = Containerd::without_network(net.file(&name), netns);
        let template = template.clone();
        Self { runtime, name, template, sandbox: String::new(), container: String::new() }
    }

    /// Writes the files of the ConfigMap. Its table of nodes has this test's.
    fn configure(&self, config: &Value, nodes: &str) {
        let folder = self.runtime.at_host("config");
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in config["data"].as_object().unwrap() {
            let text = if file == "nodes" { nodes } else { text.as_str().unwrap() };
            // The two nodes are one machine, and its own addresses are none of theirs.
            let data = self.runtime.at_host("assigned");
            let own = format!("\"host-local\", \"dataDir\": \"{}\",", data.display());
            std::fs::write(folder.join(file), text.replace("\"host-local\",", &own)).unwrap();
        }
    }

    /// Returns the place of a volume.
    fn volume(&self, name: &Value) -> PathBuf {
        let all = self.template["spec"]["volumes"].as_array().unwrap();
        let volume = all.iter().find(|one| one["name"] == *name).expect("the volume is there");
        let Some(path) = volume["hostPath"]["path"].as_str() else {
            let is_known =
                volume["configMap"]["name"] == "sluice" || volume["emptyDir"].is_object();
            assert!(is_known, "{volume}");
            let place = self.runtime.at_host(name.as_str().unwrap());
            std::fs::create_dir_all(&place).unwrap();
            return place;
        };
        assert_eq!(volume["hostPath"]["type"], "DirectoryOrCreate");
        let at_node = if path == HOSTS { path.into() } else { self.runtime.at_host(path) };
        std::fs::create_dir_all(&at_node).unwrap();
        if path == NAMESPACES {
            // A slave: what is taken away here at the end is not taken from others.
            run(&format!("mount --bind {NAMESPACES} {}", at_node.display()));
            run(&format!("mount --make-slave {}", at_node.display()));
        }
        at_node
    }

    /// Returns the request for a container of the template, as the kubelet makes it. The image is
    /// that of all tests, with the machine's libraries and the programs under test in it.
    fn request(&self, container: &Value) -> Value {
        let programs = program().parent().unwrap().to_owned();
        let mut mounts = vec![mount(&programs, "/opt/sluice/bin")];
        let libraries = ["/usr", "/lib", "/lib64"].map(Path::new).into_iter();
        mounts.extend(
            libraries
                .filter(|path| path.exists())
                .map(|path| mount(&path.canonicalize().unwrap(), path.to_str().unwrap())),
        );
        for one in container["volumeMounts"].as_array().unwrap() {
            let mut mount = mount(&self.volume(&one["name"]), one["mountPath"].as_str().unwrap());
            mount["readonly"] = json!(false);
            if one["mountPropagation"] == "HostToContainer" {
                mount["propagation"] = json!("PROPAGATION_HOST_TO_CONTAINER");
            }
            mounts.push(mount);
        }
        let env = container["env"].as_array().unwrap().iter().map(|one| {
            assert_eq!(one["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName");
            json!({"key": one["name"], "value": self.name})
        });
        let path = json!({"key": "PATH", "value": "/usr/sbin:/usr/bin:/bin"});
        let words = container["command"].as_array().unwrap().iter();
        let command: Vec<&str> = words.map(|word| word.as_str().unwrap()).collect();
        let is_privileged = container["securityContext"]["privileged"] == true;
        json!({
            "metadata": {"name": container["name"]}, "image": {"image": IMAGE},
            "command": command, "envs": env.chain([path]).collect::<Vec<_>>(), "mounts": mounts,
            "log_path": format!("{}.log", container["name"].as_str().unwrap()),
            "linux": {"security_context": {
                "privileged": is_privileged, "namespace_options": self.namespaces()
            }}
        })
    }

    /// Returns the namespaces of the node that the pod of the DaemonSet is in.
    fn namespaces(&self) -> Value {
        let of = |key: &str| if self.template["spec"][key] == true { "NODE" } else { "POD" };
        json!({"network": of("hostNetwork"), "pid": of("hostPID"), "ipc": of("hostIPC")})
    }

    /// Returns the request for the sandbox of the DaemonSet's pod.
    fn pod(&self) -> Value {
        let mut pod = self.runtime.sandbox("sluice");
        pod["linux"]["security_context"] =
            json!({"privileged": true, "namespace_options": self.namespaces()});
        pod
    }

    /// Runs the container that installs, to its end; returns its exit code and what it said.
    fn install(&mut self) -> (i64, String) {
        let pod = self.pod();
        if self.sandbox.is_empty() {
            self.sandbox = self.runtime.run_sandbox(&pod);
        }
        let mut request = self.request(&self.template["spec"]["initContainers"][0]);
        let attempt = std::fs::read_dir(self.runtime.at_host("pods")).map_or(0, Iterator::count);
        request["metadata"]["attempt"] = json!(attempt);
        request["log_path"] = json!(format!("install-{attempt}.log"));
        let id = self.runtime.start_container(&self.sandbox, &pod, &request);
        let status = || {
            let said = self.runtime.call("ContainerStatus", &json!({"container_id": id}));
            said["status"].clone()
        };
        wait_for("the container that installs ends", || status()["state"] == "CONTAINER_EXITED");
        let log = self.runtime.at_host("pods").join(format!("install-{attempt}.log"));
        (
            status()["exit_code"].as_i64().unwrap_or_default(),
            std::fs::read_to_string(log).unwrap_or_default(),
        )
    }

    /// Starts the host, and waits until it can be made a member.
    fn start(&mut self) {
        let request = self.request(&self.template["spec"]["containers"][0]);
        self.container = self.runtime.start_container(&self.sandbox, &self.pod(), &request);
        let socket = Path::new(HOSTS).join(&self.name).join("show.sock");
        wait_for("the host of the node listens", || socket.exists());
    }

    /// Executes `sluice` as `kubectl exec` does.
    fn sluice(&self, line: &str) -> String {
        let line = format!("/opt/sluice/bin/sluice {line} --on {}", self.name);
        self.runtime.exec_in(&self.container, &line)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.runtime.at_host("pods/sluice.log"));
            say(&format!("{}:\n{}", self.name, log.unwrap_or_default()));
        }
        self.runtime.clear_all();
        _ = std::fs::remove_dir_all(Path::new(HOSTS).join(&self.name));
    }
}

#[test]
#[ignore = "live: needs root"]
fn manifests_make_network_of_pods_on_two_nodes() {
    if skip_without_containerd("live::kubernetes") {
        return;
    }
    // As on a machine with systemd, and as `ip netns` does it.
    run(&format!("mount --make-shared {NAMESPACES}"));
    let all = manifests();
    let (config, set) = (of_kind(&all, "ConfigMap"), of_kind(&all, "DaemonSet"));
    for kind in ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"] {
        assert!(all.iter().all(|one| one["kind"] != kind), "no right is given");
    }
    let mut net = Net::new("k8s");
    let hosts = ["h1", "h2"].map(|name| net.netns(name));
    cable((&hosts[0], "up0", "192.0.2.1/24"), (&hosts[1], "up0", "192.0.2.2/24"));
    let mut nodes = [0, 1].map(|own: usize| Node::new(&net, &hosts[own], &set["spec"]["template"]));
    // A node that is not in the table is refused by name, and gets no network.
    nodes[0].configure(config, config["data"]["nodes"].as_str().unwrap());
    let (code, said) = nodes[0].install();
    let words = format!("no line for {}: add one to the ConfigMap", nodes[0].name);
    assert!(code == 1 && said.contains(&words), "{code}: {said}");
    let lines = [0, 1].map(|own: usize| {
        let (name, at) = (nodes[own].name.as_str(), own + 1);
        format!("{name} 10.42.{at}.10 10.42.{at}.250 10.42.{at}.1\n")
    });
    for node in &mut nodes {
        node.configure(config, &lines.concat());
        let (code, said) = node.install();
        assert_eq!(code, 0, "{said}");
        node.runtime.has_network();
        node.start();
    }
    say(&nodes[0].sluice("fabric create prod --underlay up0"));
    let token = nodes[0].sluice("fabric token");
    say(&nodes[1].sluice(&format!("fabric join 192.0.2.1 --token {}", token.trim())));
    nodes[0].sluice("vnet create blue --vni 100");
    for (own, node) in nodes.iter().enumerate() {
        let gateway = format!("10.42.{}.1/16", own + 1);
        node.sluice(&format!("port add --host --vnet blue --ip {gateway}"));
    }
    let pods = [nodes[0].runtime.run("web"), nodes[1].runtime.run("db")];
    let addresses = [0, 1].map(|own: usize| nodes[own].runtime.ip(&pods[own]));
    assert_eq!(addresses, ["10.42.1.10", "10.42.2.10"]);
    for (own, to) in [(0, "10.42.2.10"), (1, "10.42.1.10"), (0, "10.42.1.1"), (1, "10.42.1.1")] {
        let said = nodes[own].runtime.exec(&pods[own], &format!("ping -c 2 -W 2 {to}"));
        assert!(said.contains(" 0% packet loss"), "{to}: {said}");
    }
    say(&nodes[0].sluice("port list"));
    for (node, pod) in nodes.iter().zip(&pods) {
        node.runtime.stop(pod);
        node.runtime.remove(pod);
        assert!(!node.sluice("port list").contains("cni-"), "its port is gone");
    }
}
