//! Input of netavark's plugins. Keys that this plugin has no use for stay unread; a value
//! that cannot be kept is refused with its name.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::client::HostSelector;
use sluice_api::port::{Cidr, Route};

use crate::config::selector;
use crate::error::{Code, Error};
use crate::invocation::{DEVICE_NAME_REMEDY, is_device_name};
use crate::options::Options;

/// The options of `podman network create -o`.
const OPTIONS: [&str; 6] = ["vnet", "host", "socket", "kind", "mtu", "no_default_route"];

/// A network of Podman.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Network {
    pub(super) name: String,
    #[serde(default)]
    pub(super) internal: bool,
    subnets: Option<Vec<Subnet>>,
    options: Option<BTreeMap<String, String>>,
    ipam_options: Option<BTreeMap<String, String>>,
    routes: Option<Vec<StaticRoute>>,
    network_dns_servers: Option<Vec<IpAddr>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Subnet {
    subnet: String,
    gateway: Option<IpAddr>,
}

#[derive(Clone, Debug, Deserialize)]
struct StaticRoute {
    destination: String,
    gateway: Option<IpAddr>,
    metric: Option<u32>,
}

/// The input of `setup` and of `teardown`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Exec {
    pub(super) container_id: String,
    pub(super) network: Network,
    pub(super) network_options: PerNetwork,
    port_mappings: Option<Vec<Value>>,
}

/// A container's wishes for its interface.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct PerNetwork {
    pub(super) interface_name: String,
    static_ips: Option<Vec<IpAddr>>,
    static_mac: Option<String>,
}

/// An address that Podman has assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) cidr: Cidr,
    pub(super) gateway: Option<IpAddr>,
}

impl Address {
    pub(super) fn to_json(self) -> Value {
        let mut value = json!({ "ipnet": self.cidr.to_string() });
        if let Some(gateway) = self.gateway {
            value["gateway"] = json!(gateway);
        }
        value
    }
}

impl Network {
    pub(super) fn parse(value: Value) -> Result<Self, Error> {
        serde_json::from_value(value).map_err(|error| undecodable(&error))
    }

    /// Reads the options. Without `vnet` the network has the name of its vnet.
    pub(super) fn options(&self) -> Result<Options, Error> {
        let mut all = self.options.clone().unwrap_or_default();
        all.entry("vnet".to_owned()).or_insert_with(|| self.name.clone());
        Options::read(&all, &OPTIONS)
    }

    /// Returns the host of which the network is.
    pub(super) fn host(&self) -> Result<HostSelector, Error> {
        let option = |key: &str| self.options.as_ref().and_then(|all| all.get(key)).cloned();
        selector(option("socket"), option("host"))
    }

    /// Refuses a way of assigning addresses that nothing here does.
    pub(super) fn check_ipam(&self) -> Result<(), Error> {
        let driver = self.ipam_options.as_ref().and_then(|all| all.get("driver"));
        match driver.map(String::as_str) {
            Some("dhcp") => Err(Error::key(
                "ipam-driver",
                "dhcp is none of this driver",
                "give the network a --subnet, or use --ipam-driver none and a DHCP client in the \
                 container",
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn dns_servers(&self) -> &[IpAddr] {
        self.network_dns_servers.as_deref().unwrap_or_default()
    }

    /// Returns the static routes of the network.
    pub(super) fn routes(&self) -> Result<Vec<Route>, Error> {
        let route = |own: &StaticRoute| {
            let to = &own.destination;
            if own.metric.is_some() {
                let problem = format!("the metric of {to} is not supported");
                return Err(Error::key("route", &problem, "leave it out"));
            }
            let line = own.gateway.map_or_else(|| to.clone(), |via| format!("{to},{via}"));
            line.parse::<Route>().map_err(|error| Error::sentence(Code::Config, &error))
        };
        self.routes.iter().flatten().map(route).collect()
    }
}

impl Exec {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(|error| undecodable(&error))
    }

    /// Refuses ports that were to be published: only the container's own address has them.
    pub(super) fn check_ports(&self) -> Result<(), Error> {
        match self.port_mappings.as_deref() {
            None | Some([]) => Ok(()),
            Some(_) => Err(Error::key(
                "publish",
                "this driver publishes no port on the host",
                "leave -p out, and use the container's own address; or add a second network with \
                 driver bridge for it",
            )),
        }
    }

    /// Returns the name of the interface, which is a file's name in sysfs.
    pub(super) fn interface(&self) -> Result<String, Error> {
        let name = &self.network_options.interface_name;
        if !is_device_name(name) {
            let problem = format!("`{name}` is no name of a device");
            return Err(Error::key("interface_name", &problem, DEVICE_NAME_REMEDY));
        }
        Ok(name.clone())
    }

    pub(super) fn mac(&self) -> Option<String> {
        self.network_options.static_mac.clone().filter(|mac| !mac.is_empty())
    }

    /// Returns the container's addresses, each with the prefix and the gateway of its subnet.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, Error> {
        let mut subnets = Vec::new();
        for own in self.network.subnets.iter().flatten() {
            // A network's own address is no endpoint's, and so no `Cidr` by its text.
            let Route { ip, prefix, .. } = own
                .subnet
                .parse()
                .map_err(|error: String| Error::sentence(Code::Config, &error))?;
            subnets.push((Cidr { ip, prefix }, own.gateway));
        }
        let address = |ip: &IpAddr| {
            let own = subnets.iter().find(|(subnet, _)| subnet.contains(*ip));
            let (subnet, gateway) = own.ok_or_else(|| {
                Error::key(
                    "static_ips",
                    &format!("{ip} is in no subnet of network {}", self.network.name),
                    "give it one of the network's subnets",
                )
            })?;
            let text = format!("{ip}/{}", subnet.prefix);
            let cidr = text.parse().map_err(|e: String| Error::sentence(Code::Config, &e))?;
            Ok(Address { cidr, gateway: *gateway })
        };
        self.network_options.static_ips.iter().flatten().map(address).collect()
    }
}

pub(super) fn undecodable(error: &serde_json::Error) -> Error {
    Error::new(
        Code::Undecodable,
        format!("what netavark gave cannot be read: {error}"),
        "Podman and this plugin do not fit: it is made for netavark's plugin interface 1.0.0",
    )
}
