//! Parts of a new configuration that a running data process can take over.
//!
//! | part | takes effect |
//! |---|---|
//! | networks, peers and their networks | now |
//! | values of a network, such as its MTU | now, if no port is in it |
//! | weight and strictness of a class | now |
//! | endpoints behind peers; without a fabric all endpoints | now |
//! | limits and times of `[fabric]` | now; the part of a `learn_max` above 65,536 at a restart |
//! | policies of vports, of added ports too | now |
//! | `host.log`, `[evpn]` | now |
//! | anything else | at a restart of the data process |
//!
//! A network that is removed, or is another one under its name, while a port of the file is in it
//! stays until that port goes, which is at a restart. A port that was added is deleted by its
//! owner: until then the whole configuration is refused.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sluice_api::config::{Class, Fabric, HostConfig, Peer, PortKind, Vnet, Vport};
use sluice_api::port::NewPort;
use sluice_api::reload::AtRestart;

use super::numbers::{VnetKey, is_same_peer, vnet_key};
use super::policy;

/// The part of a new configuration that takes effect now.
#[derive(Clone, Debug)]
pub(crate) struct Merged {
    /// The configuration that is in force afterwards.
    pub(crate) config: HostConfig,
    /// Differences to the one before, in words.
    pub(crate) changed: Vec<String>,
    /// Parts that take effect at a restart.
    pub(crate) at_restart: Vec<AtRestart>,
}

/// Reason against a configuration that moves the host's sockets.
pub(crate) const OTHER_RUN_DIR: &str =
    "the host would have another `run_dir`; stop it and start it anew";

/// Returns the reason against networks or peers for which there is no place.
pub(crate) fn no_place(key: &str) -> String {
    format!(
        "every place for more is taken, or was left a moment ago; raise `{key}` of `[host]`, which \
         takes effect at a restart, or try again"
    )
}

const NEEDS_RESTART: &str = "the data process reads it at its start";
const LISTENS_AT_START: &str = "the control process listens from its start on";

/// Most endpoints of a port that a running host can always learn: as many entries its table has at
/// least, and the table does not grow.
const LEARN_MAX_LIVE: u32 = sluice_control::learn::Config::new(0).entries;

/// Merges a new, checked configuration into the one that is in force. `added` are the ports that
/// were added at run time.
///
/// # Errors
/// If a network is removed that an added port is in.
pub(crate) fn merge(
    now: &HostConfig,
    next: &HostConfig,
    added: &[NewPort],
) -> Result<Merged, String> {
    let mut merge = Merge {
        now,
        next,
        added,
        merged: Merged { config: now.clone(), changed: Vec::new(), at_restart: Vec::new() },
    };
    merge.rest();
    merge.classes();
    merge.vnets()?;
    merge.vport_policies();
    merge.peers();
    merge.vports();
    let Merge { mut merged, .. } = merge;
    if merged.at_restart.is_empty() {
        // The same meaning, in the order of the new file.
        merged.config = next.clone();
    }
    merged.at_restart.sort();
    Ok(merged)
}

struct Merge<'a> {
    now: &'a HostConfig,
    next: &'a HostConfig,
    added: &'a [NewPort],
    merged: Merged,
}

impl Merge<'_> {
    fn say(&mut self, change: String) {
        self.merged.changed.push(change);
    }

    fn postpone(&mut self, key: String, why: impl Into<String>) {
        self.merged.at_restart.push(AtRestart { key, why: why.into() });
    }

    /// Everything that no other function takes over.
    fn rest(&mut self) {
        if self.now.host.log != self.next.host.log {
            self.merged.config.host.log = self.next.host.log;
            self.say("the level of the log".to_owned());
        }
        if self.now.evpn != self.next.evpn {
            self.merged.config.evpn.clone_from(&self.next.evpn);
            self.say("EVPN".to_owned());
        }
        self.limits();
        let (now, next) = (rest_of(&self.merged.config), rest_of(self.next));
        for key in differences(&now, &next) {
            // The other limits of the fabric have been taken over.
            let why = match key.as_str() {
                "fabric.learn_max" => format!(
                    "the table of learned endpoints is made at the start; up to {LEARN_MAX_LIVE} \
                     take effect now"
                ),
                key if key.starts_with("api.") || key == "api" => LISTENS_AT_START.to_owned(),
                _ => NEEDS_RESTART.to_owned(),
            };
            self.postpone(key, why);
        }
        let ports = |config: &HostConfig| -> BTreeMap<String, Value> {
            let value = |port| serde_json::to_value(port).expect("plain data");
            config.ports.iter().map(|port| (port.name.clone(), value(port))).collect()
        };
        let (now, next) = (ports(self.now), ports(self.next));
        for (name, why) in by_name(&now, &next) {
            let mut all = self.now.ports.iter().chain(&self.next.ports);
            let is_wire = all.any(|port| port.name == name && port.kind == PortKind::L2);
            let rest = match is_wire {
                true => "wires are opened at the start",
                false => {
                    "ports of the file are opened at the start: `sluice port add` adds one now"
                }
            };
            self.postpone(format!("port `{name}`"), format!("{why}; {rest}"));
        }
    }

    /// Limits that only the fabric's thread knows.
    fn limits(&mut self) {
        let before = rest_of(&self.merged.config);
        if let (Some(to), Some(from)) = (&mut self.merged.config.fabric, &self.next.fabric) {
            let has = to.learn_max;
            take_limits(to, from);
            // As much of a larger one as the table that is there can hold.
            to.learn_max = from.learn_max.min(has.max(LEARN_MAX_LIVE));
        }
        let after = rest_of(&self.merged.config);
        self.merged.changed.extend(differences(&before, &after));
    }

    fn classes(&mut self) {
        let (mut classes, mut changed) = (Vec::new(), Vec::new());
        for priority in 0..8 {
            let (old, new) = (class_of(self.now, priority), class_of(self.next, priority));
            let merged = Class { strict: new.strict, weight: new.weight, ..old.clone() };
            if merged != new {
                self.postpone(
                    format!("class {priority}"),
                    "only its weight and strictness change \
                              while frames wait",
                );
            }
            if merged != old {
                changed.push(format!("class {priority}: {}", service(&merged)));
            }
            if merged != Class::new(priority) {
                classes.push(merged);
            }
        }
        if !changed.is_empty() {
            self.merged.config.classes = classes;
        }
        self.merged.changed.append(&mut changed);
    }

    /// Returns the port that is in a network now, and true if it is one of the file.
    fn port_in(&self, vnet: &str) -> Option<(String, bool)> {
        let of_file = self.now.ports.iter().find(|port| port.vnet == vnet);
        let added = self.added.iter().find(|port| port.vnet == vnet);
        let added = added.map(|port| (port.name.clone().unwrap_or_default(), false));
        added.or_else(|| of_file.map(|port| (port.name.clone(), true)))
    }

    fn vnets(&mut self) -> Result<(), String> {
        let mut vnets: Vec<Vnet> = Vec::new();
        let (now, next) = (by_key(&self.now.vnets), by_key(&self.next.vnets));
        for old in self.now.vnets.iter().filter(|old| !next.contains_key(&vnet_key(old))) {
            match self.port_in(&old.name) {
                Some((port, false)) => return Err(refusal(&old.name, &port)),
                Some((port, true)) => {
                    vnets.push(old.clone());
                    let why = format!("port `{port}` of the file is in it until then");
                    self.merged.at_restart.push(AtRestart { key: key_of(old), why });
                }
                None => self.merged.changed.push(format!("network `{}` is removed", old.name)),
            }
        }
        for new in &self.next.vnets {
            let clashes =
                |old: &Vnet| old.name == new.name || (old.vni.is_some() && old.vni == new.vni);
            if let Some(old) = vnets.iter().find(|old| clashes(old)) {
                let why = format!("network `{}` keeps its name and VNI until then", old.name);
                self.merged.at_restart.push(AtRestart { key: key_of(new), why });
                continue;
            }
            let merged = self.changed_vnet(now.get(&vnet_key(new)).copied(), new);
            vnets.push(merged);
        }
        self.merged.config.vnets = vnets;
        Ok(())
    }

    fn changed_vnet(&mut self, old: Option<&Vnet>, new: &Vnet) -> Vnet {
        let Some(old) = old else {
            self.say(format!("network `{}` is added", new.name));
            return new.clone();
        };
        let changes: Vec<&str> = [
            ("mtu", old.mtu != new.mtu),
            ("service_mbps", old.service_mbps != new.service_mbps),
            ("priority", old.priority != new.priority),
            ("hold", old.hold != new.hold),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect();
        if let (Some((port, _)), false) = (self.port_in(&old.name), changes.is_empty()) {
            for key in changes {
                let why = format!("port `{port}` has the network's value since it was attached");
                self.postpone(format!("{}.{key}", key_of(new)), why);
            }
            return old.clone();
        }
        for key in changes {
            self.say(format!("network `{}`: {key}", new.name));
        }
        new.clone()
    }

    /// Takes the policies of vports over. What their ports have follows from them and from the
    /// networks.
    fn vport_policies(&mut self) {
        let config = &mut self.merged.config;
        let vport_policies = self.now.vport_policies.clone();
        let before = HostConfig { vport_policies, ..config.clone() };
        config.vport_policies.clone_from(&self.next.vport_policies);
        let changes = policy::changes(&before, config, self.added);
        self.merged.changed.extend(changes);
    }

    fn peers(&mut self) {
        let names: BTreeSet<&str> =
            self.merged.config.vnets.iter().map(|vnet| vnet.name.as_str()).collect();
        let mut peers: Vec<Peer> = self.next.peers.clone();
        for peer in &mut peers {
            peer.vnets.retain(|vnet| names.contains(vnet.as_str()));
        }
        for old in &self.now.peers {
            match peers.iter().find(|new| is_same_peer(old, new)) {
                None => self.merged.changed.push(format!("peer `{}` is removed", old.name)),
                Some(new) if new != old => {
                    self.merged.changed.push(format!("peer `{}` is changed", old.name));
                }
                Some(_) => {}
            }
        }
        for new in peers.iter().filter(|new| !self.now.peers.iter().any(|o| is_same_peer(o, new))) {
            self.merged.changed.push(format!("peer `{}` is added", new.name));
        }
        self.merged.config.peers = peers;
    }

    fn vports(&mut self) {
        let binds = |vport: &&Vport| self.now.fabric.is_some() && vport.port.is_some();
        let bound = |config: &HostConfig| -> Vec<Vport> {
            config.vports.iter().filter(binds).cloned().collect()
        };
        if bound(self.now) != bound(self.next) {
            let why = "endpoints of ports of the file are bound at the start";
            self.merged.at_restart.push(AtRestart { key: "vport".to_owned(), why: why.to_owned() });
        }
        let config = &self.merged.config;
        let is_there = |vport: &Vport| {
            let port = vport.port.as_ref();
            config.vnets.iter().any(|vnet| vnet.name == vport.vnet)
                && port.is_none_or(|port| config.ports.iter().any(|known| known.name == *port))
        };
        let free = self.next.vports.iter().filter(|vport| !binds(vport));
        let (here, later): (Vec<&Vport>, Vec<&Vport>) = free.partition(|vport| is_there(vport));
        let mut vports: Vec<Vport> = bound(self.now);
        vports.extend(here.into_iter().cloned());
        let later: Vec<AtRestart> = later
            .into_iter()
            .map(|vport| AtRestart {
                key: format!("vport {}", vport.mac),
                why: "its port or network comes at a restart".to_owned(),
            })
            .collect();
        if vports != self.now.vports {
            let (before, after) = (self.now.vports.len(), vports.len());
            self.say(format!("endpoints: {after}, {before} before"));
        }
        self.merged.config.vports = vports;
        self.merged.at_restart.extend(later);
    }
}

/// Returns networks by what makes them the same ones in another configuration.
fn by_key(vnets: &[Vnet]) -> BTreeMap<VnetKey<'_>, &Vnet> {
    vnets.iter().map(|vnet| (vnet_key(vnet), vnet)).collect()
}

fn refusal(vnet: &str, port: &str) -> String {
    format!(
        "network `{vnet}` cannot be removed: port `{port}`, which was added, is in it; \
         `sluice port del {port}` first"
    )
}

fn key_of(vnet: &Vnet) -> String {
    format!("vnet `{}`", vnet.name)
}

/// Returns the class of a priority; the default one if the file has none.
fn class_of(config: &HostConfig, priority: u8) -> Class {
    let there = config.classes.iter().find(|class| class.priority == priority);
    there.cloned().unwrap_or_else(|| Class::new(priority))
}

fn service(class: &Class) -> String {
    match (class.strict, class.weight) {
        (true, _) => "strict".to_owned(),
        (false, weight) => format!("weight {}", weight.unwrap_or(1)),
    }
}

/// Returns the parts of a configuration that never take effect at run time, but for its ports.
fn rest_of(config: &HostConfig) -> Value {
    let mut rest = HostConfig {
        classes: Vec::new(),
        vnets: Vec::new(),
        ports: Vec::new(),
        peers: Vec::new(),
        vports: Vec::new(),
        vport_policies: Default::default(),
        ..config.clone()
    };
    rest.host.log = None;
    serde_json::to_value(rest).expect("a configuration is plain data")
}

/// Takes over the limits that control applies at run time.
fn take_limits(to: &mut Fabric, from: &Fabric) {
    to.learn_max = from.learn_max;
    to.claims_per_host = from.claims_per_host;
    to.punts_per_port = from.punts_per_port;
    to.moves_max = from.moves_max;
    to.moves_window_s = from.moves_window_s;
    to.on_moves = from.on_moves;
    to.freeze_s = from.freeze_s;
    to.confirmed_s = from.confirmed_s;
    to.asks_per_port = from.asks_per_port;
}

/// Returns the keys of the tables of two configurations whose values differ.
fn differences(now: &Value, next: &Value) -> Vec<String> {
    let empty = serde_json::Map::new();
    let table = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| empty.clone());
    let (now, next) = (table(now), table(next));
    let mut keys = Vec::new();
    for name in keys_of(&now, &next) {
        match (now.get(&name), next.get(&name)) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let inner = keys_of(a, b).into_iter().filter(|key| a.get(key) != b.get(key));
                keys.extend(inner.map(|key| format!("{name}.{key}")));
            }
            (a, b) if a != b => keys.push(name),
            _ => {}
        }
    }
    keys
}

fn keys_of(a: &serde_json::Map<String, Value>, b: &serde_json::Map<String, Value>) -> Vec<String> {
    let mut keys: Vec<String> = a.keys().chain(b.keys()).cloned().collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the names whose values differ, with the kind of their difference.
fn by_name(
    now: &BTreeMap<String, Value>,
    next: &BTreeMap<String, Value>,
) -> Vec<(String, &'static str)> {
    let removed = now.keys().filter(|name| !next.contains_key(*name));
    let mut all: Vec<_> = removed.map(|name| (name.clone(), "it is removed")).collect();
    for (name, value) in next {
        match now.get(name) {
            None => all.push((name.clone(), "it is new")),
            Some(old) if old != value => all.push((name.clone(), "it is changed")),
            Some(_) => {}
        }
    }
    all
}

#[cfg(test)]
mod tests;
