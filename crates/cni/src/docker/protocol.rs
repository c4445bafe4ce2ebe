//! Requests of Docker. Keys that this driver has no use for stay unread.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_api::port::Cidr;

use crate::error::{Code, Error};

/// Key of the options that `docker network create -o` gives.
const GENERIC: &str = "com.docker.network.generic";
/// Key of `docker network create --internal`.
const INTERNAL: &str = "com.docker.network.internal";
/// Key of the ports that `docker run -p` publishes.
const PORT_MAP: &str = "com.docker.network.portmap";
/// Length of an identifier: that of Docker's is 64.
const ID_SIZE_MAX: usize = 128;

/// The address ranges of one family.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Range {
    #[serde(rename = "Gateway", default)]
    gateway: String,
}

impl Range {
    /// Returns the router's address, which comes with the prefix of its network.
    pub(super) fn gateway(&self) -> Result<Option<IpAddr>, Error> {
        let text = self.gateway.split_once('/').map_or(self.gateway.as_str(), |(ip, _)| ip);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let problem = format!("`{}` is no address", self.gateway);
            Error::key("gateway", &problem, "use 10.42.0.1, say")
        })
    }
}

/// `CreateNetwork`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NewNetwork {
    #[serde(rename = "NetworkID", deserialize_with = "id")]
    pub(super) network_id: String,
    #[serde(rename = "Options")]
    options: Option<BTreeMap<String, Value>>,
    #[serde(rename = "IPv4Data")]
    pub(super) v4: Option<Vec<Range>>,
    #[serde(rename = "IPv6Data")]
    pub(super) v6: Option<Vec<Range>>,
}

impl NewNetwork {
    /// Returns the options of `-o`.
    pub(super) fn options(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut options = BTreeMap::new();
        let given = self.options.as_ref().and_then(|all| all.get(GENERIC));
        for (key, value) in given.and_then(Value::as_object).into_iter().flatten() {
            let text = value.as_str().ok_or_else(|| {
                Error::key(key, &format!("{value} is no text"), "give it with `-o KEY=VALUE`")
            })?;
            options.insert(key.clone(), text.to_owned());
        }
        Ok(options)
    }

    /// Returns true if its containers have no way out.
    pub(super) fn is_internal(&self) -> bool {
        let given = self.options.as_ref().and_then(|all| all.get(INTERNAL));
        given.is_some_and(|value| *value == true || *value == "true")
    }
}

/// `DeleteNetwork`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NetworkId {
    #[serde(rename = "NetworkID", deserialize_with = "id")]
    pub(super) network_id: String,
}

/// `DeleteEndpoint`, `EndpointOperInfo`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct EndpointId {
    #[serde(rename = "NetworkID", deserialize_with = "id")]
    pub(super) network_id: String,
    #[serde(rename = "EndpointID", deserialize_with = "id")]
    pub(super) endpoint_id: String,
}

/// `CreateEndpoint`, `Join`, `ProgramExternalConnectivity`.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct NewEndpoint {
    #[serde(rename = "NetworkID", deserialize_with = "id")]
    pub(super) network_id: String,
    #[serde(rename = "EndpointID", deserialize_with = "id")]
    pub(super) endpoint_id: String,
    #[serde(rename = "Interface", default, deserialize_with = "or_default")]
    pub(super) interface: Interface,
    #[serde(rename = "Options")]
    options: Option<BTreeMap<String, Value>>,
}

impl NewEndpoint {
    /// Refuses ports that were to be published: only the container's own address has them.
    pub(super) fn check_ports(&self) -> Result<(), Error> {
        let published = self.options.as_ref().and_then(|all| all.get(PORT_MAP));
        match published {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(ports)) if ports.is_empty() => Ok(()),
            Some(_) => Err(Error::key(
                "publish",
                "this driver publishes no port on the host",
                "leave -p out, and use the container's own address; or connect the container to \
                 a second network with driver bridge for it",
            )),
        }
    }
}

/// Docker's wishes for an endpoint's interface.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Interface {
    #[serde(rename = "Address", default)]
    address: String,
    #[serde(rename = "AddressIPv6", default)]
    address_v6: String,
    #[serde(rename = "MacAddress", default)]
    mac: String,
}

impl Interface {
    pub(super) fn mac(&self) -> Option<String> {
        (!self.mac.is_empty()).then(|| self.mac.clone())
    }

    /// Returns the addresses, each with the prefix of its network. `--ipam-driver null` gives none.
    pub(super) fn addresses(&self) -> Result<Vec<Cidr>, Error> {
        let given = [&self.address, &self.address_v6];
        let given = given.into_iter().filter(|text| !text.is_empty() && *text != "0.0.0.0/0");
        let read = |text: &String| {
            text.parse().map_err(|error: String| Error::sentence(Code::Config, &error))
        };
        given.map(read).collect()
    }
}

/// Answer of `CreateEndpoint`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Created {
    #[serde(rename = "Interface")]
    pub(super) interface: Value,
}

/// Reads a request.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| {
        Error::new(
            Code::Undecodable,
            format!("the request cannot be read: {error}"),
            "Docker and this driver do not fit: it is made for remote network drivers of Docker \
             20.10 and newer",
        )
    })
}

/// Reads an identifier, which becomes part of names.
fn id<'de, D: serde::Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let text = String::deserialize(input)?;
    let fits = (1..=ID_SIZE_MAX).contains(&text.len());
    if fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Ok(text);
    }
    Err(serde::de::Error::custom("an identifier has 1 to 128 letters and digits"))
}

/// Reads a value in place of which null may stand.
fn or_default<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(input).map(Option::unwrap_or_default)
}
