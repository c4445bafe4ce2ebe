//! `sluice-docker`: the driver by which Docker puts containers into vnets (the protocol is that of
//! libnetwork's `docs/remote.md`).
//!
//! ```text
//!   docker network create ── CreateNetwork ──▶ checks options and vnet, writes the network down
//!   docker run ───────────── CreateEndpoint ─▶ the host adds a port: a TAP in its own namespace
//!                            Join ───────────▶ the TAP's name and the gateway
//!     dockerd moves the TAP into the container, and gives it MAC, addresses and routes
//!   docker stop ──────────── Leave ──────────▶ dockerd has moved the TAP back
//!                            DeleteEndpoint ─▶ the host deletes the port
//! ```
//!
//! Docker makes a container's namespace after `Join`, and fills it itself. So the port cannot be
//! opened in there, as the other plugins do it; wherever the TAP is moved, the descriptors that the
//! host has lead to it.
//!
//! Docker tells of a network once, and later names its identifier alone. So the driver keeps the
//! networks (`networks.rs`), and nothing else: the host has with each port the network and the
//! endpoint whose it is. A request that comes twice, as after a restart of the driver, is answered
//! like the first one.
//!
//! Addresses are Docker's, on each machine from its own range. An address that Docker gives to an
//! endpoint is no other endpoint's of that network any more: a port that still has it was left when
//! the driver or the host did not run, and goes.

mod networks;
mod protocol;
mod serve;

use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};
use sluice_api::port::{Attachment, Cidr, Kind, NewPort, Place};

use self::networks::{Network, Networks};
use self::protocol::{Created, EndpointId, NetworkId, NewEndpoint, NewNetwork};
pub use self::serve::serve;
use crate::error::{Code, Error};
use crate::host::Host;
use crate::name;

/// Prefix of the name that a device gets in a container: `eth0` and so on.
const CONTAINER_DEVICE: &str = "eth";
/// Characters of an endpoint's identifier in the name of its device, which has at most 15.
const SHOWN_SIZE: usize = 12;

/// The driver.
#[derive(Debug)]
pub struct Driver {
    networks: Networks,
}

impl Driver {
    /// Makes the driver with the networks that an earlier process has written down in `dir`.
    ///
    /// # Errors
    /// The reason why they cannot be read, and the remedy.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let networks = Networks::open(dir).map_err(|error| error.text())?;
        Ok(Self { networks })
    }

    /// Answers a request; `None` if there is no such method.
    #[must_use]
    pub fn answer(&self, path: &str, body: &[u8]) -> Option<Value> {
        let done = match path {
            "/Plugin.Activate" => Ok(json!({ "Implements": ["NetworkDriver"] })),
            // Of this machine's Docker alone, with endpoints that reach those of other machines.
            "/NetworkDriver.GetCapabilities" => {
                Ok(json!({ "Scope": "local", "ConnectivityScope": "global" }))
            }
            "/NetworkDriver.CreateNetwork" => self.create_network(body),
            "/NetworkDriver.DeleteNetwork" => self.delete_network(body),
            "/NetworkDriver.CreateEndpoint" => self.create_endpoint(body),
            "/NetworkDriver.EndpointOperInfo" => self.endpoint_info(body),
            "/NetworkDriver.DeleteEndpoint" => self.delete_endpoint(body),
            "/NetworkDriver.Join" => self.join(body),
            "/NetworkDriver.ProgramExternalConnectivity" => protocol::read::<NewEndpoint>(body)
                .and_then(|asked| {
                    asked.check_ports()?;
                    Ok(json!({}))
                }),
            // Docker takes the device out of a container itself, and learns of other machines'
            // containers from nobody.
            "/NetworkDriver.Leave"
            | "/NetworkDriver.DiscoverNew"
            | "/NetworkDriver.DiscoverDelete"
            | "/NetworkDriver.RevokeExternalConnectivity" => Ok(json!({})),
            _ => return None,
        };
        Some(done.unwrap_or_else(|error| {
            let text = error.text();
            eprintln!("{path}: {text}");
            json!({ "Err": text })
        }))
    }

    fn create_network(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: NewNetwork = protocol::read(body)?;
        let network = Network::of(&asked)?;
        network.find_host()?.check_vnet(&network.vnet)?;
        self.networks.insert(&asked.network_id, network)?;
        Ok(json!({}))
    }

    /// Forgets a network. Docker deletes only those without endpoints: ports that it still has are
    /// left-overs.
    fn delete_network(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: NetworkId = protocol::read(body)?;
        if let Some(network) = self.networks.get(&asked.network_id) {
            let host = network.find_host()?;
            let owner = owner(&asked.network_id);
            clear(&host, |other, _| other.network == owner)?;
            self.networks.remove(&asked.network_id)?;
        }
        Ok(json!({}))
    }

    fn create_endpoint(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: NewEndpoint = protocol::read(body)?;
        asked.check_ports()?;
        let network = self.networks.known(&asked.network_id)?;
        let own = attachment(&asked.network_id, &asked.endpoint_id);
        let ips = asked.interface.addresses()?;
        let mac = asked.interface.mac();
        let given_mac = mac.is_some();
        let mac = mac.unwrap_or_else(|| made_up(&asked.endpoint_id, &ips));
        let host = network.find_host()?;
        let is_reused = |port: &NewPort| port.ips.iter().any(|had| ips.contains(had));
        clear(&host, |other, port| {
            other.network == own.network && *other != own && is_reused(port)
        })?;
        host.add(NewPort {
            place: Place::Tap(own.interface.clone()),
            kind: Kind::Tap,
            vnet: network.vnet.clone(),
            name: Some(name::of(&own)),
            device: None,
            ips: ips.clone(),
            mac: Some(mac.clone()),
            allowed: Vec::new(),
            moves: false,
            standby: false,
            change: false,
            taken: 0,
            gateway: None,
            routes: Vec::new(),
            mtu: network.mtu,
            cni: Some(own),
        })?;
        // Docker refuses an answer that says again what it has said.
        let interface = if given_mac { json!({}) } else { json!({ "MacAddress": mac }) };
        Ok(json!(Created { interface }))
    }

    fn endpoint_info(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: EndpointId = protocol::read(body)?;
        let network = self.networks.known(&asked.network_id)?;
        let own = attachment(&asked.network_id, &asked.endpoint_id);
        let value = match network.find_host()?.port_of(&own)? {
            Some(state) => json!({
                "vnet": state.port.vnet, "port": state.port.name, "mac": state.port.mac
            }),
            None => json!({}),
        };
        Ok(json!({ "Value": value }))
    }

    /// Deletes an endpoint's port; no error if it is gone.
    fn delete_endpoint(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: EndpointId = protocol::read(body)?;
        // Of a network that is forgotten there is nothing left.
        if let Some(network) = self.networks.get(&asked.network_id) {
            let own = attachment(&asked.network_id, &asked.endpoint_id);
            network.find_host()?.delete(&own)?;
        }
        Ok(json!({}))
    }

    /// Answers the name of the device that Docker shall move. It must be where Docker looks for it.
    fn join(&self, body: &[u8]) -> Result<Value, Error> {
        let asked: NewEndpoint = protocol::read(body)?;
        asked.check_ports()?;
        let network = self.networks.known(&asked.network_id)?;
        let own = attachment(&asked.network_id, &asked.endpoint_id);
        let host = network.find_host()?;
        let state = host.port_of(&own)?.filter(|state| state.open).ok_or_else(|| {
            Error::new(
                Code::Refused,
                format!("the host has no port for endpoint {}", asked.endpoint_id),
                "start the container again; `sluice port list` shows the ports",
            )
        })?;
        let card = host.card(state.port.name.as_deref().unwrap_or_default())?;
        Ok(network.joined(&card.device, CONTAINER_DEVICE))
    }
}

/// Deletes the ports of containers that are `left`.
fn clear(host: &Host, left: impl Fn(&Attachment, &NewPort) -> bool) -> Result<(), Error> {
    for state in host.ports()? {
        match &state.port.cni {
            Some(other) if left(other, &state.port) => host.delete(other)?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the network of attachments. No CNI network has a colon in its name, so that no garbage
/// collection of one takes a port of this driver for its own.
fn owner(network: &str) -> String {
    format!("docker:{network}")
}

/// Returns the key of an endpoint, whose interface has the name that its device has outside of
/// containers.
fn attachment(network: &str, endpoint: &str) -> Attachment {
    let shown: String = endpoint.chars().take(SHOWN_SIZE).collect();
    Attachment {
        network: owner(network),
        container: endpoint.to_owned(),
        interface: format!("sl-{shown}"),
    }
}

/// Returns a MAC for an endpoint: that which Docker's own drivers make of an IPv4 address. So a
/// container that comes back with its address has its MAC again.
fn made_up(endpoint: &str, ips: &[Cidr]) -> String {
    let v4 = ips.iter().find_map(|cidr| match cidr.ip {
        IpAddr::V4(ip) => Some(ip.octets()),
        IpAddr::V6(_) => None,
    });
    let [a, b, c, d] = v4.unwrap_or_else(|| {
        // Identifiers are random.
        let digits = endpoint.get(..8).unwrap_or_default();
        u32::from_str_radix(digits, 16).unwrap_or_default().to_be_bytes()
    });
    let first = if v4.is_some() { "02:42" } else { "06:42" };
    format!("{first}:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

#[cfg(test)]
mod tests;
