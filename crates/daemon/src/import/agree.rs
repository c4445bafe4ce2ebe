//! Comparison of files that are to be one fabric.
//!
//! Settings and networks of a fabric must be alike in all files; each difference is named with both
//! files. Numbers of hosts are compared, too, since a copied one is a mistake, but the fabric gives
//! new ones in the order in which hosts join.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sluice_api::config::{
    Class, Fabric, Foreign, HostConfig, Peer, PortPolicy, Role, UnderlayKind,
};
use sluice_api::fabric_config::{
    ClassSettings, Editable, FabricConfig, Operation, Settings, VnetSettings,
};

use super::{Source, local};
use crate::config::member::{HostFile, local_default};

/// The fabric that files describe.
#[derive(Clone, Debug)]
pub(super) struct Agreed {
    /// Its name.
    pub(super) fabric: String,
    /// Its settings and networks.
    pub(super) change: Vec<Operation>,
    /// Its hosts, in the order of the files.
    pub(super) hosts: Vec<Imported>,
    /// Notes on what changes with the import.
    pub(super) notes: Vec<String>,
}

/// A host of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Imported {
    /// Its name.
    pub(super) name: String,
    /// Its file.
    pub(super) path: PathBuf,
    /// Its VTEP.
    pub(super) vtep: Ipv4Addr,
    /// Text of its short file.
    pub(super) local: String,
}

/// A file that was read.
struct Read<'a> {
    source: &'a Source,
    config: HostConfig,
}

impl Read<'_> {
    fn path(&self) -> std::path::Display<'_> {
        self.source.path.display()
    }

    fn name(&self) -> &str {
        &self.config.host.name
    }

    fn vtep(&self) -> Option<Ipv4Addr> {
        self.config.underlay.as_ref().map(|underlay| underlay.address)
    }

    fn number(&self) -> Option<u16> {
        self.config.fabric.as_ref().map(|fabric| fabric.id)
    }
}

/// Compares files, and returns the fabric that they describe. `fabric` is its name for files that
/// name none.
///
/// # Errors
/// Everything that keeps them from being one.
pub(super) fn agree(sources: &[Source], fabric: Option<&str>) -> Result<Agreed, Vec<String>> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    for source in sources {
        match read(source) {
            Ok(config) => files.push(Read { source, config }),
            Err(problem) => problems.push(format!("{}: {problem}", source.path.display())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut compare = Compare { files: &files, problems, notes: Vec::new() };
    let name = compare.fabric(fabric);
    compare.hosts();
    compare.peers();
    let mut change = compare.settings();
    change.extend(compare.vnets());
    change.extend(compare.vport_policies());
    compare.left_out();
    let Compare { mut problems, notes, .. } = compare;
    let fits = FabricConfig::new(&name).and_then(|mut shared| shared.apply(&change));
    if let (Err(why), true) = (fits, problems.is_empty()) {
        problems.push(why.to_string());
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let hosts = files.iter().filter_map(|file| {
        let foreign = others(&files, file);
        let vtep = file.vtep()?;
        let (path, local) = (file.source.path.clone(), local::text(file.source, &foreign));
        Some(Imported { name: file.name().to_owned(), path, vtep, local })
    });
    Ok(Agreed { fabric: name, change, hosts: hosts.collect(), notes })
}

/// Reads a file, which must say everything of a host that can be a member.
fn read(source: &Source) -> Result<HostConfig, String> {
    if let HostFile::Local(_) = HostFile::read(&source.text)? {
        return Err("it says nothing of networks or members, so there is nothing to import: \
                    `sluice fabric create` or `join` makes its host a member"
            .to_owned());
    }
    let config: HostConfig = toml::from_str(&source.text).map_err(|error| error.to_string())?;
    if config.host.role == Role::Switch {
        return Err("a switch is no member of a fabric; leave its file out".to_owned());
    }
    match &config.underlay {
        None => Err("it has no `[underlay]`, by which a member reaches others".to_owned()),
        Some(underlay) if underlay.kind == UnderlayKind::VhostUser => {
            Err("a member's underlay is a device of the kernel (`l2` or `udp`), not vhost-user; \
                 this host stays as it is"
                .to_owned())
        }
        Some(_) => Ok(config),
    }
}

/// Returns the hosts that do not speak the protocol, or not yet, as one of the files sees them.
fn others(files: &[Read<'_>], own: &Read<'_>) -> Vec<Foreign> {
    let is_own = |file: &&Read<'_>| file.name() == own.name();
    let hosts = files.iter().filter(|file| !is_own(file));
    let mut all: Vec<Foreign> = hosts
        .filter_map(|file| {
            Some(Foreign { name: file.name().to_owned(), vtep: file.vtep()?, vnets: Vec::new() })
        })
        .collect();
    for peer in &own.config.peers {
        if all.iter().all(|known| known.name != peer.name) {
            let (name, vnets) = (peer.name.clone(), peer.vnets.clone());
            all.push(Foreign { name, vtep: peer.vtep, vnets });
        }
    }
    all
}

struct Compare<'a> {
    files: &'a [Read<'a>],
    problems: Vec<String>,
    notes: Vec<String>,
}

impl<'a> Compare<'a> {
    /// Returns each pair of files.
    fn pairs(&self) -> impl Iterator<Item = (&'a Read<'a>, &'a Read<'a>)> + use<'a> {
        let files = self.files;
        files.iter().enumerate().flat_map(|(at, a)| files[at + 1..].iter().map(move |b| (a, b)))
    }

    fn differs(&mut self, a: &Read<'_>, b: &Read<'_>, what: &str, (x, y): (&str, &str)) {
        let (one, other) = (a.path(), b.path());
        self.problems.push(format!("{what} is {x} in {one} and {y} in {other}; make them alike"));
    }

    /// Returns the name of the fabric.
    fn fabric(&mut self, said: Option<&str>) -> String {
        let names = |file: &'a Read<'_>| {
            file.config.fabric.as_ref().map(|fabric| (fabric.name.as_str(), file))
        };
        let named: Vec<(&str, &Read<'_>)> = self.files.iter().filter_map(names).collect();
        for (name, file) in named.iter().skip(1) {
            let (first, at) = named[0];
            if *name != first {
                self.differs(at, file, "the name of the fabric", (first, name));
            }
        }
        match (said, named.first()) {
            (Some(said), _) => said.to_owned(),
            (None, Some((name, _))) => (*name).to_owned(),
            (None, None) => {
                let why = "no file has a `[fabric]`; name the fabric with `--fabric NAME`";
                self.problems.push(why.to_owned());
                "unnamed".to_owned()
            }
        }
    }

    /// Compares names, numbers and addresses, which no two hosts have.
    fn hosts(&mut self) {
        for (a, b) in self.pairs() {
            let both = format!("{} and {}", a.path(), b.path());
            if a.name() == b.name() {
                let name = a.name();
                self.problems.push(format!("{both} are both of host `{name}`; rename one"));
            }
            if let (Some(vtep), true) = (a.vtep(), a.vtep() == b.vtep()) {
                self.problems.push(format!("{both} have the VTEP {vtep}; correct one"));
            }
            if let (Some(id), true) = (a.number(), a.number() == b.number()) {
                self.problems
                    .push(format!("{both} have the number {id} (`fabric.id`); correct one"));
            }
        }
    }

    /// Compares each `[[peer]]` with the file of that host.
    fn peers(&mut self) {
        for file in self.files {
            for peer in &file.config.peers {
                let of_name = self.files.iter().find(|other| other.name() == peer.name);
                let of_vtep = self.files.iter().find(|other| other.vtep() == Some(peer.vtep));
                match (of_name, of_vtep) {
                    (Some(other), _) => self.peer(file, peer, other),
                    (None, Some(other)) => {
                        let what = format!("the name of the host with VTEP {}", peer.vtep);
                        self.differs(file, other, &what, (&peer.name, other.name()));
                    }
                    (None, None) => self.notes.push(format!(
                        "{}: there is no file of peer `{}` here; it stays a host that does not \
                         speak the protocol (`[[foreign]]`) until it is a member",
                        file.path(),
                        peer.name
                    )),
                }
            }
        }
    }

    fn peer(&mut self, file: &Read<'_>, peer: &Peer, other: &Read<'_>) {
        let name = &peer.name;
        if let Some(vtep) = other.vtep().filter(|vtep| *vtep != peer.vtep) {
            let (x, y) = (peer.vtep.to_string(), vtep.to_string());
            self.differs(file, other, &format!("the VTEP of {name}"), (&x, &y));
        }
        if let (Some(x), Some(y)) = (peer.id, other.number().filter(|id| peer.id != Some(*id))) {
            let (x, y) = (x.to_string(), y.to_string());
            self.differs(file, other, &format!("the number of {name}"), (&x, &y));
        }
        let listens = other.config.fabric.as_ref().map(|fabric| fabric.address.or(other.vtep()));
        let here = peer.address.unwrap_or(peer.vtep);
        if let Some(Some(there)) = listens
            && peer.id.is_some()
            && there != here
        {
            let (x, y) = (here.to_string(), there.to_string());
            self.differs(file, other, &format!("the address on which {name} listens"), (&x, &y));
        }
    }

    /// Compares what all members have alike, and returns the operations that set it.
    fn settings(&mut self) -> Vec<Operation> {
        let of_files: Vec<BTreeMap<String, Value>> =
            self.files.iter().map(|file| settings(&file.config).entries()).collect();
        let Some((first, others)) = of_files.split_first() else { return Vec::new() };
        for (at, other) in others.iter().enumerate() {
            let mut keys: Vec<&String> = first.keys().chain(other.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys.into_iter().filter(|key| first.get(*key) != other.get(*key)) {
                let (x, y) = (shown(first.get(key)), shown(other.get(key)));
                let (a, b) = (&self.files[0], &self.files[at + 1]);
                self.differs(a, b, &format!("`{key}`"), (&x, &y));
            }
        }
        let set = |(key, value): (&String, &Value)| Operation::Set {
            key: key.clone(),
            value: Some(value.clone()),
        };
        first.iter().map(set).collect()
    }

    /// Compares networks, and returns the operations that make them. All members have all networks.
    fn vnets(&mut self) -> Vec<Operation> {
        let mut all: BTreeMap<String, (VnetSettings, &Read<'_>)> = BTreeMap::new();
        for file in self.files {
            for vnet in &file.config.vnets {
                let name = &vnet.name;
                let Some(vni) = vnet.vni else {
                    let path = file.path();
                    self.problems.push(format!("{path}: network `{name}` has no `vni`"));
                    continue;
                };
                let here = VnetSettings {
                    mtu: vnet.mtu,
                    service_mbps: vnet.service_mbps,
                    priority: vnet.priority,
                    hold: vnet.hold,
                    ..VnetSettings::new(vni)
                };
                match all.get(name) {
                    Some((there, first)) if *there != here => {
                        let (there, first) = (there.clone(), *first);
                        self.vnet(name, (&there, first), (&here, file));
                    }
                    Some(_) => {}
                    None => {
                        let same = all.iter().find(|(_, (other, _))| other.vni == vni);
                        if let Some((other, (_, first))) = same {
                            let (other, first) = (other.clone(), *first);
                            let what = format!("the name of the network with VNI {vni}");
                            self.differs(first, file, &what, (&other, name));
                        }
                        all.insert(name.clone(), (here, file));
                    }
                }
            }
        }
        let make = |(name, (vnet, _))| Operation::CreateVnet { name, vnet };
        all.into_iter().map(make).collect()
    }

    /// Compares the policies of vports, and returns the operations that make them.
    fn vport_policies(&mut self) -> Vec<Operation> {
        let mut all: BTreeMap<(&String, &String), (&PortPolicy, &Read<'_>)> = BTreeMap::new();
        let mut wanted = Editable::default();
        for file in self.files {
            for (vnet, vports) in &file.config.vport_policies {
                for (port, policy) in vports {
                    let (there, first) = *all.entry((vnet, port)).or_insert((policy, file));
                    if there != policy {
                        let what = format!("the policy of vport {vnet}/{port}");
                        let (x, y) = (format!("{there:?}"), format!("{policy:?}"));
                        self.differs(first, file, &what, (&x, &y));
                    }
                    let of_vnet = wanted.vport.entry(vnet.clone()).or_default();
                    of_vnet.insert(port.clone(), policy.clone());
                }
            }
        }
        Editable::default().difference(&wanted)
    }

    fn vnet(
        &mut self,
        name: &str,
        (x, a): (&VnetSettings, &Read<'_>),
        (y, b): (&VnetSettings, &Read<'_>),
    ) {
        let mut differ = |key: &str, x: Option<String>, y: Option<String>| {
            if x != y {
                let text =
                    |value: Option<String>| value.unwrap_or_else(|| "its default".to_owned());
                let what = format!("`{key}` of network `{name}`");
                self.differs(a, b, &what, (&text(x), &text(y)));
            }
        };
        differ("vni", Some(x.vni.to_string()), Some(y.vni.to_string()));
        differ("mtu", words(x.mtu), words(y.mtu));
        differ("service_mbps", words(x.service_mbps), words(y.service_mbps));
        differ("priority", words(x.priority), words(y.priority));
        differ("hold", words(x.hold), words(y.hold));
    }

    /// Notes what a member does not take over from its file.
    fn left_out(&mut self) {
        for file in self.files {
            let path = file.path().to_string();
            let of_peers = file.config.vports.iter().filter(|vport| vport.peer.is_some()).count();
            if of_peers > 0 {
                self.notes.push(format!(
                    "{path}: {of_peers} `[[vport]]` of other hosts are left out: each member says \
                     which endpoints it has"
                ));
            }
            let Some(fabric) = &file.config.fabric else { continue };
            if fabric.address.is_some_and(|address| Some(address) != file.vtep()) {
                self.notes.push(format!(
                    "{path}: `fabric.address` is left out: a member listens on its VTEP"
                ));
            }
            if fabric.port != fabric_default().port {
                let port = fabric_default().port;
                self.notes.push(format!(
                    "{path}: `fabric.port` {} is left out: a member listens on {port}",
                    fabric.port
                ));
            }
        }
    }
}

fn words<T: Debug>(value: Option<T>) -> Option<String> {
    value.map(|value| format!("{value:?}"))
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "its default".to_owned(), Value::to_string)
}

/// Returns the settings of a file that are not the defaults.
fn settings(config: &HostConfig) -> Settings {
    let (host, default) = (&config.host, local_default("x").host);
    let mut settings = Settings {
        policy: other(host.policy, default.policy),
        hold: other(host.hold, default.hold),
        unresolved_timeout_ms: other(host.unresolved_timeout_ms, default.unresolved_timeout_ms),
        isolate_after_ms: other(host.isolate_after_ms, default.isolate_after_ms),
        broadcasts_per_second: other(host.broadcasts_per_second, default.broadcasts_per_second),
        ..Settings::default()
    };
    if let Some(fabric) = &config.fabric {
        let default = fabric_default();
        settings.learn_max = other(fabric.learn_max, default.learn_max);
        settings.claims_per_host = other(fabric.claims_per_host, default.claims_per_host);
        settings.punts_per_port = other(fabric.punts_per_port, default.punts_per_port);
        settings.moves_max = other(fabric.moves_max, default.moves_max);
        settings.moves_window_s = other(fabric.moves_window_s, default.moves_window_s);
        settings.on_moves = other(fabric.on_moves, default.on_moves);
        settings.freeze_s = other(fabric.freeze_s, default.freeze_s);
        settings.confirmed_s = other(fabric.confirmed_s, default.confirmed_s);
        settings.asks_per_port = other(fabric.asks_per_port, default.asks_per_port);
    }
    let is_default = |class: &&Class| **class == Class::new(class.priority);
    for class in config.classes.iter().filter(|class| !is_default(class)) {
        let of_class = ClassSettings {
            strict: class.strict,
            weight: class.weight,
            lossless: (!class.lossless).then_some(false),
            hold: class.hold,
            dscp: class.dscp.clone(),
        };
        settings.classes.insert(class.priority, of_class);
    }
    settings
}

/// Returns a value that is not the default.
fn other<T: PartialEq>(value: T, default: T) -> Option<T> {
    (value != default).then_some(value)
}

/// Returns a `[fabric]` in which nothing is said that has a default.
fn fabric_default() -> Fabric {
    toml::from_str("name = \"x\"\nid = 1\ncertificates = \"/\"").expect("the rest has a default")
}

/// Returns the host of a file.
pub(super) fn of<'a>(agreed: &'a Agreed, path: &Path) -> Option<&'a Imported> {
    agreed.hosts.iter().find(|host| host.path == path)
}

#[cfg(test)]
mod tests;
