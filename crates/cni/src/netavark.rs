//! `sluice-netavark`: the plugin by which Podman's network stack puts containers into vnets
//! (netavark's `plugin-API.md`).
//!
//! ```text
//!   podman network create ── create ──▶ checks options and vnet, answers the configuration
//!   netavark at a start   ── setup ───▶ the host adds a port ──▶ status: device, MAC, addresses
//!   netavark at a stop    ── teardown ▶ the host deletes it
//! ```
//!
//! Podman assigns the addresses itself, on each machine from its own range. As the CNI plugin, this
//! one keeps nothing: the host keeps with a port whose interface it is.

mod input;

use serde_json::{Value, json};
use sluice_api::port::{Attachment, NewPort, Route};

use self::input::{Exec, Network};
use crate::attach::has_left_over;
use crate::error::{Code, Error};
use crate::host::Host;
use crate::invocation::place_of;
use crate::options::Options;
use crate::result::default_route;
use crate::{Answer, name, read_bounded};

/// The version of netavark's interface.
const API_VERSION: &str = "1.0.0";

/// Executes a subcommand.
pub(crate) fn run(arguments: &[String], input: &mut dyn std::io::Read) -> Answer {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["create"] => read_bounded(input).and_then(|bytes| create(&bytes)).map(Some),
        ["setup", netns] => read_bounded(input).and_then(|bytes| setup(netns, &bytes)).map(Some),
        ["teardown", _] => read_bounded(input).and_then(|bytes| teardown(&bytes)).map(|()| None),
        ["info"] => Ok(Some(json!({
            "version": env!("CARGO_PKG_VERSION"), "api_version": API_VERSION
        }))),
        _ => Err(Error::new(
            Code::Environment,
            format!("`{}` is no subcommand of a netavark plugin", words.join(" ")),
            "netavark starts this program with create, setup NETNS, teardown NETNS or info; it is \
             no command for people",
        )),
    };
    match done {
        Ok(Some(value)) => Answer { text: format!("{value}\n"), is_error: false },
        Ok(None) => Answer { text: String::new(), is_error: false },
        Err(error) => {
            Answer { text: format!("{}\n", json!({"error": error.text()})), is_error: true }
        }
    }
}

/// Checks a new network, and returns its configuration. The plugin answers no names, so `dns` is
/// switched off in it.
fn create(bytes: &[u8]) -> Result<Value, Error> {
    let mut value: Value = serde_json::from_slice(bytes).map_err(|e| input::undecodable(&e))?;
    let network = Network::parse(value.clone())?;
    let options = network.options()?;
    network.check_ipam()?;
    Host::find(&options.host)?.check_vnet(&options.vnet)?;
    value["dns_enabled"] = Value::Bool(false);
    Ok(value)
}

/// Adds a container's interface, and says what it is.
fn setup(netns: &str, bytes: &[u8]) -> Result<Value, Error> {
    let exec = Exec::parse(bytes)?;
    let options = exec.network.options()?;
    exec.check_ports()?;
    let addresses = exec.addresses()?;
    let attachment = attachment(&exec);
    let port = NewPort {
        place: place_of(netns),
        kind: options.kind,
        vnet: options.vnet.clone(),
        name: Some(name::of(&attachment)),
        device: Some(exec.interface()?),
        ips: addresses.iter().map(|own| own.cidr).collect(),
        mac: exec.mac(),
        allowed: Vec::new(),
        moves: false,
        standby: false,
        change: false,
        taken: 0,
        gateway: None,
        routes: routes(&exec, &options, &addresses)?,
        mtu: options.mtu,
        cni: Some(attachment.clone()),
    };
    let host = Host::find(&options.host)?;
    if has_left_over(&host, &attachment)? {
        host.delete(&attachment)?;
    }
    let made = host.add(port).and_then(|added| host.card(&added.name));
    let card = made.map_err(|error| error.after(host.delete(&attachment)))?;
    let subnets: Vec<Value> = addresses.into_iter().map(input::Address::to_json).collect();
    Ok(json!({
        "dns_search_domains": [],
        "dns_server_ips": exec.network.dns_servers(),
        "interfaces": { card.device: { "mac_address": card.mac, "subnets": subnets } },
    }))
}

/// Deletes a container's interface; no error if it is gone.
fn teardown(bytes: &[u8]) -> Result<(), Error> {
    let exec = Exec::parse(bytes)?;
    // A network whose options were once accepted must go, whatever they are now.
    let host = Host::find(&exec.network.host()?)?;
    host.delete(&attachment(&exec))
}

/// Returns the key of a container's interface. No CNI network has a colon in its name, so that no
/// garbage collection of one takes a port of this plugin for its own.
fn attachment(exec: &Exec) -> Attachment {
    Attachment {
        network: format!("netavark:{}", exec.network.name),
        container: exec.container_id.clone(),
        interface: exec.network_options.interface_name.clone(),
    }
}

/// Returns the routes of an interface: the default ones of its gateways, then those of the network.
fn routes(
    exec: &Exec,
    options: &Options,
    addresses: &[input::Address],
) -> Result<Vec<Route>, Error> {
    let gateways = addresses.iter().filter_map(|own| own.gateway);
    let mut routes: Vec<Route> = Vec::new();
    if !exec.network.internal && options.has_default_route {
        for gateway in gateways {
            let route = default_route(gateway);
            // Two addresses of one subnet have one gateway.
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    routes.extend(exec.network.routes()?);
    Ok(routes)
}

#[cfg(test)]
mod tests;
