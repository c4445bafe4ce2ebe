//! Ports that are added at run time, converted to the form that the file would give them.
//!
//! ```text
//!   NewPort ─ complete ─▶ NewPort with name, device and MAC ─ check ─ plan ─▶ AddedPort
//!             by the place                                   against the file and each other
//! ```
//!
//! Control completes and checks a port; data plans the same port once more. So both get the same
//! result, and control keeps the completed form for a restart.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use sluice_api::config::{self as api, ChipKind, PortKind, Role};
use sluice_api::port::{Added, Card, CardAddress, Kind, NewPort, Place, Route, VmSocket};
use sluice_base::{IpPrefix, Mac, Prng, Vni};
use sluice_switch::{ALLOWED_MAX, BoundIps, PortConfig};

use super::build;
use super::check::{DEVICE_NAME_SIZE_MAX, RESERVED, is_device_name};
use super::fabric::{LocalPort, TapPlace, prefixes};
use super::plan::{Attachment, Plan, PortPlan};
use super::policy;
use super::{Bound, KernelDevices};

/// Addresses that one port may be bound to.
const IPS_MAX: usize = sluice_control::vport::IPS_MAX;
const NAME_SIZE_MAX: usize = 64;
/// Name of the device in a namespace, as in containers.
const DEVICE_DEFAULT: &str = "eth0";

/// A port that can be opened and attached.
#[derive(Clone, Debug)]
pub(crate) struct AddedPort {
    pub(crate) plan: PortPlan,
    pub(crate) switch: PortConfig,
    pub(crate) local: LocalPort,
    pub(crate) bound: Option<BoundTo>,
}

/// Endpoint to which a port is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundTo {
    pub(crate) vni: Vni,
    pub(crate) mac: Mac,
    pub(crate) ips: Vec<IpAddr>,
    /// Sequence of the binding, if it was taken over from another host.
    pub(crate) taken: u32,
    /// Addresses that the endpoint may share.
    pub(crate) allowed: Vec<IpPrefix>,
    /// True if the endpoint forwards frames of others, so that its frames may be from any IP
    /// address. Others still resolve only its own addresses.
    pub(crate) routes: bool,
}

impl BoundTo {
    pub(crate) fn at(self, port: sluice_base::PortId) -> Bound {
        let Self { vni, mac, ips, taken, .. } = self;
        Bound { port, vni, mac, ips, taken }
    }

    /// Returns the addresses that its frames may be from; none: any.
    pub(crate) fn senders(&self) -> BoundIps {
        build::bound_ips(if self.routes { &[] } else { &self.ips })
    }

    /// Returns the prefixes that its frames may be from beside these addresses; an endpoint that
    /// routes needs none.
    pub(crate) fn allowed(&self) -> &[IpPrefix] {
        if self.routes { &[] } else { &self.allowed }
    }
}

/// Fills in all defaults. The same input always gives the same port.
///
/// # Errors
/// If the place is not usable.
pub(crate) fn complete(plan: &Plan, new: &NewPort) -> Result<NewPort, String> {
    let (name, device) = match &new.place {
        Place::Netns(text) => {
            let name = Path::new(text).file_name().map(|name| name.to_string_lossy().into_owned());
            (name.unwrap_or_default(), DEVICE_DEFAULT.to_owned())
        }
        Place::Pid(pid) => (format!("pid-{pid}"), DEVICE_DEFAULT.to_owned()),
        Place::Tap(device) => (device.clone(), device.clone()),
        Place::Vm(vm) => {
            let name = Path::new(&vm.socket).file_stem();
            (
                name.map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
                String::new(),
            )
        }
        Place::Host => (format!("host-{}", new.vnet), host_device(&new.vnet)),
    };
    let mut new = new.clone();
    let name = new.name.get_or_insert(name).clone();
    if let (Place::Tap(tap), Some(said)) = (&new.place, &new.device)
        && tap != said
    {
        return Err(format!("the device is called `{tap}` and `{said}`; say it once"));
    }
    match (&new.place, &new.device) {
        (Place::Vm(_), Some(_)) => {
            return Err(
                "a machine's card has a socket and no device; leave `--device` out".to_owned()
            );
        }
        (Place::Vm(_), None) => new.kind = Kind::VhostUser,
        _ => _ = new.device.get_or_insert(device),
    }
    // A container's runtime reports the MAC, so that its port always has one.
    if new.mac.is_none() && (!new.ips.is_empty() || new.cni.is_some()) {
        if has_machine(&new.place) {
            return Err(
                "the machine behind the port has a MAC of its own: say it with `--mac`, or \
                        leave `--ip` out to learn both"
                    .to_owned(),
            );
        }
        new.mac = Some(made_up(plan, &name).to_string());
    }
    Ok(new)
}

/// Returns true if the namespace of a port exists now.
pub(crate) fn place_is_there(new: &NewPort) -> bool {
    netns_of(&new.place).is_none_or(|path| Path::new(&path).exists())
}

/// Returns the path of the network namespace of a place, if it has one.
fn netns_of(place: &Place) -> Option<String> {
    match place {
        Place::Netns(text) if text.contains('/') => Some(text.clone()),
        Place::Netns(name) => Some(format!("/run/netns/{name}")),
        Place::Pid(pid) => Some(format!("/proc/{pid}/ns/net")),
        Place::Tap(_) | Place::Vm(_) | Place::Host => None,
    }
}

/// Returns true if a machine with addresses of its own is behind a port.
const fn has_machine(place: &Place) -> bool {
    matches!(place, Place::Tap(_) | Place::Vm(_))
}

/// Returns true if one port is the other with other addresses of its machine.
pub(crate) fn is_rebinding(old: &NewPort, new: &NewPort) -> bool {
    let bare = |port: &NewPort| NewPort {
        ips: Vec::new(),
        allowed: Vec::new(),
        moves: false,
        standby: false,
        taken: 0,
        ..port.clone()
    };
    has_machine(&new.place) && new.mac.is_some() && bare(old) == bare(new)
}

/// Returns a name for a device, cut to the longest that a device may have.
fn host_device(vnet: &str) -> String {
    let whole = format!("sl-{vnet}");
    whole.chars().filter(|c| !c.is_whitespace() && *c != '/').take(DEVICE_NAME_SIZE_MAX).collect()
}

/// Returns a MAC for a port of this name: always the same, and another one on another host. Two
/// bits of its first byte mark it as locally administered and unicast (IEEE 802 clause 8.2).
fn made_up(plan: &Plan, name: &str) -> Mac {
    let (fabric, id) = plan.fabric.as_ref().map_or((0, 0), |f| {
        (u64::from_le_bytes(*f.fabric.first_chunk().expect("sixteen bytes")), f.own.0)
    });
    let [_, a, b, c, d, e, ..] =
        Prng::stream(fabric ^ u64::from(id), name).next_u64().to_le_bytes();
    Mac([0x02, a, b, c, d, e])
}

/// Checks a completed port against the file and the `others` that were added, and plans it.
///
/// # Errors
/// The error, and the remedy.
pub(crate) fn plan(plan: &Plan, others: &[NewPort], new: &NewPort) -> Result<AddedPort, String> {
    let fabric = plan.fabric.as_ref().ok_or_else(|| {
        "ports come while it runs on a member of a fabric only; add a `[fabric]` with `name`, `id` \
         and `certificates` to the configuration"
            .to_owned()
    })?;
    if plan.config.host.role == Role::Switch {
        return Err("a physical switch has the ports of its file".to_owned());
    }
    let name = text(new.name.as_ref());
    let device = text(new.device.as_ref());
    check_names(plan, others, new, name, device)?;
    let (vnet, vni) = fabric.vnet_named(&new.vnet)?;
    let mac = new.mac.as_deref().map(endpoint_mac).transpose()?;
    if new.ips.len() > IPS_MAX {
        return Err(format!("{} addresses are more than the {IPS_MAX} of a port", new.ips.len()));
    }
    check_addresses(plan, others, new, mac)?;
    check_allowed(new, mac)?;
    let port = as_of_file(new, kind_of(plan, new)?);
    let (mut port_plan, mut switch) = build::one_port(plan, &port, &KernelDevices);
    let is_given_away = new.cni.is_some() && matches!(new.place, Place::Tap(_));
    if let Attachment::Tap { is_given_away: given, .. } = &mut port_plan.attachment {
        *given = is_given_away;
    }
    if let Attachment::Tap { mac, addresses, routes, mtu, .. }
    | Attachment::Veth { mac, addresses, routes, mtu, .. }
    | Attachment::Kernel { mac, addresses, routes, mtu, .. } = &mut port_plan.attachment
    {
        if matches!(new.place, Place::Tap(_)) {
            *mac = None;
        } else {
            *addresses = new.ips.iter().map(|cidr| (cidr.ip, cidr.prefix)).collect();
        }
        *routes = routing::of(new)?;
        routing::check_mtu(new, *mtu)?;
        *mtu = new.mtu.unwrap_or(*mtu);
        switch.mtu = *mtu;
    }
    if let Attachment::VhostUser { mtu, .. } = &mut port_plan.attachment {
        routing::of(new)?;
        routing::check_mtu(new, *mtu)?;
        *mtu = new.mtu.unwrap_or(*mtu);
        switch.mtu = *mtu;
    }
    let tap = card_place(&port_plan.attachment, is_given_away);
    let ips = new.ips.iter().map(|cidr| cidr.ip).collect();
    let routes = new.place == Place::Host;
    let allowed = prefixes(&plan.config.complete(&port).allowed);
    Ok(AddedPort {
        plan: port_plan,
        switch,
        local: LocalPort {
            name: name.to_owned(),
            vnet,
            is_bound: mac.is_some(),
            policy: policy::of(&plan.config, &port, fabric.learn_max),
            allowed: allowed.clone(),
            tap,
        },
        bound: mac.map(|mac| BoundTo { vni, mac, ips, taken: new.taken, allowed, routes }),
    })
}

/// Returns the place of a container's card, if a port has one.
fn card_place(attachment: &Attachment, is_given_away: bool) -> Option<TapPlace> {
    match attachment {
        Attachment::Tap { netns, device, .. }
        | Attachment::Veth { netns, device, .. }
        | Attachment::Kernel { netns, device, .. } => {
            Some(TapPlace { netns: netns.clone(), device: device.clone(), is_given_away })
        }
        _ => None,
    }
}

/// Returns the entry that the file would have for a port.
fn as_of_file(new: &NewPort, kind: PortKind) -> api::Port {
    let vm = if let Place::Vm(vm) = &new.place { Some(vm) } else { None };
    api::Port {
        socket: vm.map(|vm| vm.socket.clone()),
        client: vm.is_some_and(|vm| vm.client),
        // QEMU goes on at the used index when the switch is killed.
        in_order: vm.is_some(),
        netns: netns_of(&new.place),
        mac: new.mac.clone(),
        allowed: new.allowed.clone(),
        ..api::Port::new(text(new.name.as_ref()), kind, &new.vnet, text(new.device.as_ref()))
    }
}

/// Returns the entry that the file would have for a port that was added.
pub(super) fn entry(new: &NewPort) -> api::Port {
    let kind = match new.kind {
        Kind::Tap => PortKind::Tap,
        Kind::Veth => PortKind::Veth,
        Kind::Kernel => PortKind::Kernel,
        Kind::VhostUser => PortKind::VhostUser,
    };
    as_of_file(new, kind)
}

/// Returns a port that was added with the values that its policy and its network have for it.
pub(crate) fn completed(config: &api::HostConfig, new: &NewPort) -> api::Port {
    config.complete(&entry(new))
}

fn kind_of(plan: &Plan, new: &NewPort) -> Result<PortKind, String> {
    if new.kind == Kind::Kernel && plan.config.chip.kind == ChipKind::Software {
        return Err("the kernel is not the chip of this host: write `kind = \"kernel\"` into \
                    `[chip]` of its file and start data anew, or use `--kind veth`"
            .to_owned());
    }
    match (new.kind, &new.place) {
        (Kind::VhostUser, Place::Vm(vm)) => check_socket(vm).map(|()| PortKind::VhostUser),
        (Kind::VhostUser, _) | (_, Place::Vm(_)) => {
            Err("kind `vhost-user` and a machine's socket (`--vm`) go together".to_owned())
        }
        (Kind::Tap, _) => Ok(PortKind::Tap),
        (Kind::Veth, Place::Tap(device)) => Err(format!(
            "`{device}` would be a veth pair, not a TAP: leave `--kind veth` out, or use `--netns` \
             or `--pid`"
        )),
        (Kind::Veth, _) => Ok(PortKind::Veth),
        (Kind::Kernel, Place::Tap(device)) => Err(format!(
            "`{device}` would be a veth pair, not a TAP: leave `--kind kernel` out, or use \
             `--netns` or `--pid`"
        )),
        (Kind::Kernel, _) => Ok(PortKind::Kernel),
    }
}

/// Longest path of a socket (unix(7)).
const SOCKET_SIZE_MAX: usize = 107;

fn check_socket(vm: &VmSocket) -> Result<(), String> {
    let path = &vm.socket;
    if !path.starts_with('/') || path.ends_with('/') || path.contains('\0') {
        return Err(format!("`{path}` is no absolute path of a socket"));
    }
    match path.len() {
        0..=SOCKET_SIZE_MAX => Ok(()),
        size => Err(format!(
            "`{path}`: {size} bytes are more than the {SOCKET_SIZE_MAX} of a socket's path"
        )),
    }
}

/// Returns the socket of a port, if a virtual machine is behind it.
fn socket_of(new: &NewPort) -> Option<&str> {
    if let Place::Vm(vm) = &new.place { Some(&vm.socket) } else { None }
}

fn text(word: Option<&String>) -> &str {
    word.map_or("", String::as_str)
}

fn check_names(
    plan: &Plan,
    others: &[NewPort],
    new: &NewPort,
    name: &str,
    device: &str,
) -> Result<(), String> {
    let bad = |c: char| c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > NAME_SIZE_MAX || name.contains(bad) {
        return Err(format!(
            "`{name}` cannot be the name of a port: use 1 to {NAME_SIZE_MAX} characters without \
             spaces (`--name`)"
        ));
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` means something else in answers; use `--name`"));
    }
    if plan.config.ports.iter().any(|port| port.name == name) {
        return Err(format!("port `{name}` is in the configuration file; use `--name`"));
    }
    if others.iter().any(|other| text(other.name.as_ref()) == name) {
        return Err(format!("there is a port `{name}`; delete it first, or use `--name`"));
    }
    if let Some(socket) = socket_of(new) {
        return check_socket_is_free(plan, others, socket);
    }
    if !is_device_name(device) {
        return Err(format!(
            "`{device}` cannot be the name of a network device: use 1 to {DEVICE_NAME_SIZE_MAX} \
             characters without spaces and `/`"
        ));
    }
    let taken = |other: &&NewPort| other.place == new.place && other.device == new.device;
    match others.iter().find(taken) {
        Some(other) => Err(format!(
            "port `{}` has the device `{device}` there; use `--device`",
            text(other.name.as_ref())
        )),
        None => Ok(()),
    }
}

fn check_socket_is_free(plan: &Plan, others: &[NewPort], socket: &str) -> Result<(), String> {
    let of_file = plan.config.ports.iter().find(|port| port.socket.as_deref() == Some(socket));
    let added = || others.iter().find(|other| socket_of(other) == Some(socket));
    match of_file.map(|port| port.name.as_str()).or_else(|| Some(text(added()?.name.as_ref()))) {
        Some(port) => Err(format!("port `{port}` has the socket `{socket}`; use another path")),
        None => Ok(()),
    }
}

fn endpoint_mac(text: &str) -> Result<Mac, String> {
    let mac: Mac = text.parse().map_err(|error| format!("`{text}` is no MAC: {error}"))?;
    if mac.is_group() || mac == Mac::default() {
        return Err(format!(
            "{mac} is the address of no endpoint: the second hexadecimal digit must be even, as in \
             02:00:00:00:00:01"
        ));
    }
    Ok(mac)
}

/// Checks that no endpoint of this network has the port's addresses, by the file or by an earlier
/// command. The fabric checks those on other hosts.
fn check_addresses(
    plan: &Plan,
    others: &[NewPort],
    new: &NewPort,
    mac: Option<Mac>,
) -> Result<(), String> {
    let config = &plan.config;
    let of_ports = config.ports.iter().filter(|port| port.vnet == new.vnet);
    let of_vports = || config.vports.iter().filter(|vport| vport.vnet == new.vnet);
    let place = |vport: &api::Vport| vport.port.clone().or_else(|| vport.peer.clone());
    let beside = || others.iter().filter(|other| other.vnet == new.vnet);
    let macs = of_ports.filter_map(|port| Some((port.mac.clone()?, port.name.clone())));
    let macs = macs.chain(of_vports().filter_map(|one| Some((one.mac.clone(), place(one)?))));
    let named = |other: &NewPort| other.name.clone().unwrap_or_default();
    let mut macs = macs.chain(beside().filter_map(|one| Some((one.mac.clone()?, named(one)))));
    let is_same = |text: &str| mac.is_some() && text.parse::<Mac>().ok() == mac;
    let host = &config.host.name;
    if let Some((mac, port)) = macs.find(|(text, _)| is_same(text)) {
        return Err(format!(
            "{mac} is bound here at {host}, to port `{port}` of `{}`; use another `--mac`, or \
             delete that port first",
            new.vnet
        ));
    }
    let of_file = of_vports().filter_map(|one| Some((IpAddr::from(one.ip?), place(one)?)));
    let ips = |other: &NewPort| other.ips.clone().into_iter().map(|cidr| cidr.ip);
    let added = beside().flat_map(|other| ips(other).map(|ip| (ip, named(other))));
    let known: Vec<(IpAddr, String)> = of_file.chain(added).collect();
    let taken = known.iter().find(|(ip, _)| new.ips.iter().any(|cidr| cidr.ip == *ip));
    taken.map_or(Ok(()), |(ip, port)| {
        Err(format!(
            "{ip} is bound here at {host}, to port `{port}` of `{}`; to let both have it, give \
             both ports `--allow-ip {ip}` instead; to take it, delete that port first",
            new.vnet
        ))
    })
}

/// Checks that a list of addresses belongs to a bound port, and is not too long.
fn check_allowed(new: &NewPort, mac: Option<Mac>) -> Result<(), String> {
    let count = new.allowed.len();
    if count > ALLOWED_MAX {
        return Err(format!(
            "{count} entries of `--allow-ip` are more than the {ALLOWED_MAX} of a port; use \
             prefixes"
        ));
    }
    match (new.allowed.first(), mac) {
        (Some(_), None) => Err("a port that learns takes any address: leave `--allow-ip` out, or \
                                bind the port with `--ip` or `--mac`"
            .to_owned()),
        _ => Ok(()),
    }
}

/// Returns the answer for the client that added the port.
pub(crate) fn answer(new: &NewPort, added: &AddedPort, number: sluice_base::PortId) -> Added {
    let netns = match &added.plan.attachment {
        Attachment::Tap { netns, .. }
        | Attachment::Veth { netns, .. }
        | Attachment::Kernel { netns, .. } => netns.as_ref().map(PathBuf::as_path),
        _ => None,
    };
    Added {
        name: text(new.name.as_ref()).to_owned(),
        vnet: new.vnet.clone(),
        device: socket_of(new).unwrap_or_else(|| text(new.device.as_ref())).to_owned(),
        netns: netns.map(|path| path.display().to_string()),
        mac: new.mac.clone(),
        ips: new.ips.clone(),
        allowed: added.plan.allowed.clone(),
        number: number.0,
    }
}

/// Returns the answer about a port's device as it is now.
pub(crate) fn card_answer(device: &str, card: &sluice_ports::card::Card) -> Card {
    let address = |&(ip, prefix): &(IpAddr, u8)| CardAddress { ip, prefix };
    let route = |&(ip, prefix, gateway): &(IpAddr, u8, _)| Route { ip, prefix, gateway };
    Card {
        device: device.to_owned(),
        mac: card.device.mac.to_string(),
        mtu: card.device.mtu,
        up: card.device.up,
        addresses: card.addresses.iter().map(address).collect(),
        routes: card.routes.iter().map(route).collect(),
    }
}

mod routing;

#[cfg(test)]
mod tests;
