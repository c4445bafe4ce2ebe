//! Hosts on one Linux bridge that become a fabric by command, a container beside each.
//!
//! ```text
//!   c1 ─ veth ─┤ h1 up0 ─┬─ br0 ─┬─ up0 h3 ├─ veth ─ c3
//!                        └─ up0 h2 ├─ veth ─ c2
//! ```

use std::net::Ipv4Addr;

use serde_json::Value;

use super::{Daemon, Net, Netns, cable, wait_for};

/// Everything of one test. Fields end in this order: the daemons before their namespaces.
pub(crate) struct Bridge {
    pub(crate) daemons: Vec<Daemon>,
    pub(crate) net: Net,
    pub(crate) hosts: Vec<Netns>,
    pub(crate) containers: Vec<Netns>,
    pub(crate) wire: Netns,
}

/// Returns the address of a container.
pub(crate) fn ip(own: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 42, 0, u8::try_from(own + 1).unwrap())
}

impl Bridge {
    /// Starts hosts that are in no fabric. `file` says more of host number `own`, from 0, after its
    /// name and directory.
    pub(crate) fn waiting(
        word: &str,
        count: usize,
        mut file: impl FnMut(&Net, usize) -> String,
    ) -> Self {
        let mut net = Net::new(word);
        let mut make = |kind: &str| -> Vec<Netns> {
            (1..=count).map(|id| net.netns(&format!("{kind}{id}"))).collect()
        };
        let (hosts, containers) = (make("h"), make("c"));
        let wire = net.netns("wire");
        wire.ip("link add br0 type bridge");
        wire.ip("link set br0 up");
        for (own, host) in hosts.iter().enumerate() {
            let (address, device) = (format!("192.0.2.{}/24", own + 1), format!("to{}", own + 1));
            cable((host, "up0", &address), (&wire, &device, ""));
            wire.ip(&format!("link set {device} master br0"));
        }
        let daemons = hosts.iter().enumerate();
        let daemons = daemons
            .map(|(own, host)| net.waiting(host, &format!("h{}", own + 1), &file(&net, own)));
        Self { daemons: daemons.collect(), net, hosts, containers, wire }
    }

    /// Makes a fabric of hosts, with the network `blue`.
    pub(crate) fn fabric(word: &str, count: usize) -> Self {
        let bridge = Self::waiting(word, count, |_, _| String::new());
        bridge.become_fabric();
        bridge
    }

    /// Makes a fabric of hosts that wait, with the network `blue`.
    pub(crate) fn become_fabric(&self) {
        self.daemons[0].says(&["fabric", "create", "prod", "--underlay", "up0"]);
        (1..self.daemons.len()).for_each(|own| self.join(own, 0));
        // A machine that pauses may have broken a connection since.
        self.all_have_caught_up();
        self.daemons[0].says(&["vnet", "create", "blue", "--vni", "100"]);
        self.all_have_caught_up();
    }

    /// Makes a host a member, by a token of another one.
    pub(crate) fn join(&self, own: usize, by: usize) {
        let token = self.daemons[by].says(&["fabric", "token"]);
        let address = format!("192.0.2.{}", by + 1);
        self.daemons[own].says(&["fabric", "join", &address, "--token", token.trim()]);
    }

    /// Adds a port of the container of a host to the network `blue`.
    pub(crate) fn add(&self, own: usize) -> Value {
        let (netns, ip) = (self.containers[own].name(), format!("{}/24", ip(own)));
        self.daemons[own].ask(&[
            "port",
            "add",
            "--netns",
            netns,
            "--vnet",
            "blue",
            "--ip",
            &ip,
            "--name",
            &format!("c{}", own + 1),
        ])
    }

    /// Cuts the cable of a host, or mends it.
    pub(crate) fn cut(&self, own: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        self.wire.ip(&format!("link set to{} {state}", own + 1));
    }

    /// Waits until every host knows each member connected and without lag.
    pub(crate) fn all_have_caught_up(&self) {
        let all: Vec<usize> = (0..self.daemons.len()).collect();
        self.have_caught_up(&all);
    }

    /// Waits until these hosts, which are all members, know each other connected and without lag,
    /// at one revision.
    pub(crate) fn have_caught_up(&self, all: &[usize]) {
        wait_for("all members have caught up", || {
            let states = all.iter().map(|own| self.daemons[*own].progress());
            let states: Vec<Value> = states.collect();
            let first = &states[0]["revision"];
            states.iter().all(|state| {
                let members = state["members"].as_array().unwrap();
                state["revision"] == *first
                    && state["writable"] == true
                    && members.len() == all.len()
                    && members
                        .iter()
                        .all(|member| member["connected"] == true && member["lag"] == 0)
            })
        });
    }
}

impl Daemon {
    /// Returns the output of `sluice WORDS`, or its error output if it fails.
    pub(crate) fn try_say(&self, words: &[&str]) -> Result<String, String> {
        let output = self.command(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// Returns the output of `sluice WORDS`, which must not fail.
    pub(crate) fn says(&self, words: &[&str]) -> String {
        let said = self.try_say(words);
        said.unwrap_or_else(|why| panic!("{words:?}: {why}; log:\n{}", self.log()))
    }

    /// Returns the reason for which `sluice WORDS` is refused. It has all these parts.
    pub(crate) fn refuses(&self, words: &[&str], parts: &[&str]) -> String {
        let why = self.try_say(words).expect_err("it is refused");
        for part in parts {
            assert!(why.contains(part), "{words:?}: `{part}` is not in: {why}");
        }
        why
    }

    /// Returns the result of `sluice WORDS` on this host, without its directory.
    pub(crate) fn run_here(&self, words: &[&str]) -> Result<String, String> {
        let mut command = self.netns.command(super::program().to_str().unwrap());
        let output = command.args(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        match output.status.success() {
            true => Ok(text(output.stdout)),
            false => Err(text(output.stderr)),
        }
    }

    /// Returns the state of the configuration; the exit code of `sluice fabric status` depends on
    /// it.
    pub(crate) fn progress(&self) -> Value {
        let output = self.attempt(&["fabric", "status"]);
        let mut status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut configuration = status["configuration"].take();
        let is_well = configuration["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|member| member["connected"] == true && member["lag"] == 0)
            && configuration["not_in_force"].is_null();
        let is_evicted = !configuration["evicted"].is_null();
        let expected = match (configuration["writable"] == true, is_well) {
            _ if is_evicted => 5,
            (false, _) => 4,
            (true, false) => 3,
            (true, true) => 0,
        };
        assert_eq!(output.status.code(), Some(expected), "{configuration}");
        configuration.take()
    }

    /// Returns the transactions, the newest first.
    pub(crate) fn transactions(&self) -> Vec<Value> {
        self.ask(&["config", "log"])["log"].as_array().unwrap().clone()
    }

    /// Returns the revision of the newest transaction. Entries of the log that change nothing come
    /// after it, such as the end of a transaction that was refused.
    pub(crate) fn revision(&self) -> u64 {
        self.transactions()[0]["revision"].as_u64().unwrap()
    }

    /// Returns the names of the networks.
    pub(crate) fn vnets(&self) -> Vec<String> {
        let rows = self.ask(&["vnet", "list"])["vnets"].take();
        let rows = rows.as_array().unwrap();
        rows.iter().map(|row| row["vnet"].as_str().unwrap().to_owned()).collect()
    }
}
