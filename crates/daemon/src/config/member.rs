//! A member's whole configuration, from the fabric's and from its own file.

use std::path::Path;

use sluice_api::config::{
    Class, Fabric, Host, HostConfig, KEYS_OF_FABRIC, LocalConfig, LocalUnderlay, Peer, Role,
    TABLES_OF_FILE, Underlay, Vnet,
};
use sluice_api::fabric_config::{FabricConfig, Settings, VnetSettings};

/// Directory of the certificates, in that of the state.
pub(crate) const TLS_DIR: &str = "tls";

/// Content of a host's file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HostFile {
    /// Everything: members and networks as well.
    Whole,
    /// Parts that differ between hosts; the rest is the fabric's.
    Local(Box<LocalConfig>),
}

impl HostFile {
    /// Reads the file at a path. What cannot be read is left to the reader of a whole file, which
    /// says why.
    ///
    /// # Errors
    /// With the line, and what is wrong there.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(Self::Whole) };
        let mut file = Self::read(&text).map_err(|why| format!("{}: {why}", path.display()))?;
        if let Self::Local(local) = &mut file {
            anchor(local, path);
        }
        Ok(file)
    }

    /// Reads a file. One that has a network, a peer or another part of a fabric says everything.
    ///
    /// # Errors
    /// With the line, and what is wrong there.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let table: toml::Table = match toml::from_str(text) {
            Ok(table) => table,
            // The reader of a whole file reports every error.
            Err(_) => return Ok(Self::Whole),
        };
        let host = table.get("host").and_then(toml::Value::as_table);
        let is_switch = host.and_then(|host| host.get("role")?.as_str()) == Some("switch");
        let underlay = table.get("underlay").and_then(toml::Value::as_table);
        // Only a host that knows no fabric needs to be told the address of its VTEP.
        let has_address = underlay.is_some_and(|underlay| underlay.contains_key("address"));
        if is_switch || has_address || TABLES_OF_FILE.iter().any(|key| table.contains_key(*key)) {
            return Ok(Self::Whole);
        }
        if let Some(key) =
            KEYS_OF_FABRIC.iter().find(|key| host.is_some_and(|h| h.contains_key(**key)))
        {
            return Err(format!(
                "`host.{key}` is the same on all hosts of a fabric: take it out, and use `sluice \
                 config set {key}=…` on a member; or add the networks (`[[vnet]]`) of a host \
                 that stands alone"
            ));
        }
        if table.contains_key("vport_policy") {
            return Err(
                "`vport_policy` is the same on all hosts of a fabric: take it out, and use \
                        `sluice vport set` on a member; a host that stands alone has the values at \
                        its ports (`[[port]]`)"
                    .to_owned(),
            );
        }
        let local: LocalConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        if let Some(vport) = local.vports.iter().find(|vport| vport.port.is_none()) {
            return Err(format!(
                "`[[vport]]` {} names no `port` of this host: take it out, since members say \
                 themselves which endpoints they have",
                vport.mac
            ));
        }
        super::trunks::check(&local)?;
        local.api.check().map_err(|(keys, what, remedy)| {
            format!("api.{}: {what}\n    {remedy}", keys.join("."))
        })?;
        Ok(Self::Local(Box::new(local)))
    }
}

/// Makes relative paths of a file relative to its directory.
fn anchor(local: &mut LocalConfig, file: &Path) {
    let dir = std::path::absolute(file).ok().and_then(|file| Some(file.parent()?.to_owned()));
    let Some(dir) = dir else { return };
    let host = [&mut local.host.run_dir, &mut local.host.state_dir];
    let sockets = local.ports.iter_mut().map(|port| &mut port.socket);
    for path in host.into_iter().chain(sockets).filter_map(Option::as_mut) {
        // An absolute path stays as it is.
        if let Some(whole) = dir.join(&*path).to_str() {
            whole.clone_into(path);
        }
    }
}

/// Returns the file of a host of which nothing but the name is said.
pub(crate) fn local_default(name: &str) -> LocalConfig {
    let text = format!("[host]\nname = {}\n", toml::Value::from(name));
    toml::from_str(&text).expect("every other key has a default")
}

/// Returns the whole configuration of the member `name`. `underlay` is the one that was named when
/// the host became a member; the file's own goes before it.
///
/// # Errors
/// If the fabric has no such member, or no underlay is known.
pub(crate) fn compose(
    local: &LocalConfig,
    underlay: Option<&LocalUnderlay>,
    shared: &FabricConfig,
    (name, state_dir): (&str, &Path),
) -> Result<HostConfig, String> {
    let Some(own) = shared.members.get(name) else {
        return Err(format!("fabric `{}` has no member `{name}`", shared.fabric));
    };
    let Some(underlay) = local.underlay.as_ref().or(underlay) else {
        return Err("no underlay is known; name its device in `[underlay]`".to_owned());
    };
    let (mut host, settings) = (local.host.clone(), &shared.settings);
    name.clone_into(&mut host.name);
    host_settings(&mut host, settings);
    let vnets: Vec<String> = shared.vnets.keys().cloned().collect();
    let others = shared.members.iter().filter(|(other, _)| *other != name);
    let peer = |(name, member): (&String, &sluice_api::fabric_config::Member)| Peer {
        name: name.clone(),
        vtep: member.vtep,
        vnets: vnets.clone(),
        next_hop: None,
        id: Some(member.id),
        address: member.address,
        by_evpn: false,
    };
    let mut fabric: Fabric = toml::from_str(&format!(
        "name = {}\nid = {}\ncertificates = {}",
        toml::Value::from(shared.fabric.as_str()),
        own.id,
        toml::Value::from(state_dir.join(TLS_DIR).to_string_lossy().as_ref()),
    ))
    .expect("every other key has a default");
    fabric.address = own.address;
    fabric_settings(&mut fabric, settings);
    host.role = Role::Host;
    Ok(HostConfig {
        host,
        underlay: Some(Underlay {
            kind: underlay.kind,
            device: underlay.device.clone(),
            socket: None,
            client: false,
            mac: None,
            address: own.vtep,
            mtu: underlay.mtu,
            worker: underlay.worker,
            link: underlay.link.clone(),
        }),
        fabric: Some(fabric),
        evpn: local.evpn.clone(),
        api: local.api.clone(),
        chip: local.chip,
        buffers: local.buffers.clone(),
        classes: classes(settings),
        vnets: vnets_of(shared),
        ports: local
            .ports
            .iter()
            .cloned()
            .chain(super::trunks::ports(local, shared).ports)
            .collect(),
        peers: others.map(peer).chain(foreign(local, shared, &vnets)).collect(),
        vports: local.vports.clone(),
        vport_policies: shared.vports.clone(),
    })
}

/// Returns the networks.
fn vnets_of(shared: &FabricConfig) -> Vec<Vnet> {
    let vnet = |(name, vnet): (&String, &VnetSettings)| Vnet {
        name: name.clone(),
        vni: Some(vnet.vni),
        mtu: vnet.mtu,
        service_mbps: vnet.service_mbps,
        priority: vnet.priority,
        hold: vnet.hold,
    };
    shared.vnets.iter().map(vnet).collect()
}

/// Returns the hosts of a file that are no members, nor have the VTEP of one.
fn foreign<'a>(
    local: &'a LocalConfig,
    shared: &'a FabricConfig,
    vnets: &'a [String],
) -> impl Iterator<Item = Peer> + 'a {
    let is_member = |other: &&sluice_api::config::Foreign| {
        shared.members.contains_key(&other.name)
            || shared.members.values().any(|member| member.vtep == other.vtep)
    };
    let has = |other: &sluice_api::config::Foreign, vnet: &&String| {
        other.vnets.is_empty() || other.vnets.contains(*vnet)
    };
    let all = local.foreign.iter().filter(move |other| !is_member(other));
    all.map(move |other| Peer {
        name: other.name.clone(),
        vtep: other.vtep,
        vnets: vnets.iter().filter(|vnet| has(other, vnet)).cloned().collect(),
        next_hop: None,
        id: None,
        address: None,
        by_evpn: false,
    })
}

fn host_settings(host: &mut Host, settings: &Settings) {
    host.policy = settings.policy.unwrap_or_default();
    host.hold = settings.hold.unwrap_or_default();
    put(&mut host.unresolved_timeout_ms, settings.unresolved_timeout_ms);
    put(&mut host.isolate_after_ms, settings.isolate_after_ms);
    put(&mut host.broadcasts_per_second, settings.broadcasts_per_second);
}

fn fabric_settings(fabric: &mut Fabric, settings: &Settings) {
    put(&mut fabric.learn_max, settings.learn_max);
    put(&mut fabric.claims_per_host, settings.claims_per_host);
    put(&mut fabric.punts_per_port, settings.punts_per_port);
    put(&mut fabric.moves_max, settings.moves_max);
    put(&mut fabric.moves_window_s, settings.moves_window_s);
    put(&mut fabric.on_moves, settings.on_moves);
    put(&mut fabric.freeze_s, settings.freeze_s);
    put(&mut fabric.confirmed_s, settings.confirmed_s);
    put(&mut fabric.asks_per_port, settings.asks_per_port);
}

/// Sets a value that is not left to its default.
fn put<T: Copy>(to: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *to = value;
    }
}

fn classes(settings: &Settings) -> Vec<Class> {
    let class = |(priority, class): (&u8, &sluice_api::fabric_config::ClassSettings)| Class {
        priority: *priority,
        strict: class.strict,
        weight: class.weight,
        lossless: class.lossless.unwrap_or(true),
        hold: class.hold,
        dscp: class.dscp.clone(),
    };
    settings.classes.iter().map(class).collect()
}

#[cfg(test)]
mod tests;
