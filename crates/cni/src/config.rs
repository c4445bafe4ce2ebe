//! The network configuration (section 1, "Configuration format").
//!
//! Unknown keys are others' and stay unread. A key of this plugin with a wrong value is refused
//! with its name. DEL and GC need little of it, and are not refused for the rest.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde_json::{Map, Value};
use sluice_api::client::HostSelector;
use sluice_api::port::{Cidr, Kind, Route};

use crate::error::{Code, Error};
use crate::result::{Addressing, AssignedIp, default_route, route_of};

/// A version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V0_4,
    V1_0,
    V1_1,
}

impl Version {
    pub(crate) const ALL: [Self; 3] = [Self::V0_4, Self::V1_0, Self::V1_1];
    pub(crate) const NEWEST: Self = Self::V1_1;

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::V0_4 => "0.4.0",
            Self::V1_0 => "1.0.0",
            Self::V1_1 => "1.1.0",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A container's interface, as GC names those that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValidAttachment {
    pub(crate) container: String,
    pub(crate) interface: String,
}

/// A network configuration.
#[derive(Clone, Debug)]
pub(crate) struct NetConfig {
    pub(crate) version: Version,
    /// Name of the runtime's network.
    pub(crate) name: String,
    pub(crate) host: HostSelector,
    /// Type of the IPAM plugin; `None`: addresses are said here, or there are none.
    pub(crate) ipam: Option<String>,
    /// The text as it came, for an IPAM plugin.
    pub(crate) bytes: Vec<u8>,
    keys: Map<String, Value>,
}

/// The keys that say how a port is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    pub(crate) vnet: String,
    pub(crate) kind: Kind,
    pub(crate) mtu: Option<u16>,
    pub(crate) mac: Option<String>,
}

impl NetConfig {
    /// Parses a configuration. `version` becomes its version as soon as that is known.
    pub(crate) fn parse(bytes: &[u8], version: &mut Version) -> Result<Self, Error> {
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| Error::undecodable(&error))?;
        let Value::Object(keys) = value else {
            let msg = "the network configuration is no JSON object";
            let details = "give one network's configuration on standard input";
            return Err(Error::new(Code::Undecodable, msg, details));
        };
        *version = version_of(&keys)?;
        let name = text(&keys, "name")?
            .filter(|name| !name.is_empty())
            .ok_or_else(|| Error::key("name", "is missing", "give the network a name"))?;
        let host = host_of(&keys)?;
        let ipam = ipam_of(&keys)?;
        Ok(Self { version: *version, name, host, ipam, bytes: bytes.to_vec(), keys })
    }

    /// Reads how a port is made.
    pub(crate) fn port(&self) -> Result<PortConfig, Error> {
        let kind = text(&self.keys, "kind")?.map(|kind| {
            kind.parse::<Kind>().map_err(|error| Error::sentence(Code::Config, &error))
        });
        let mtu = match self.keys.get("mtu").filter(|mtu| !mtu.is_null()) {
            None => None,
            Some(mtu) => {
                Some(mtu.as_u64().and_then(|mtu| u16::try_from(mtu).ok()).ok_or_else(|| {
                    Error::key("mtu", &format!("{mtu} is no number up to 65535"), "use 1500, say")
                })?)
            }
        };
        // 0 is no MTU, as in other plugins' configurations.
        let mtu = mtu.filter(|mtu| *mtu > 0);
        let mac = self.runtime()?.map(|keys| text(keys, "mac")).transpose()?.flatten();
        Ok(PortConfig { vnet: self.vnet()?, kind: kind.transpose()?.unwrap_or_default(), mtu, mac })
    }

    /// Reads the vnet.
    pub(crate) fn vnet(&self) -> Result<String, Error> {
        let missing = || Error::key("vnet", "is missing", "name a network of `sluice vnet list`");
        text(&self.keys, "vnet")?.filter(|vnet| !vnet.is_empty()).ok_or_else(missing)
    }

    /// Reads the addresses of a network without an IPAM plugin: the runtime's, else those of the
    /// configuration.
    pub(crate) fn addressing(&self) -> Result<Addressing, Error> {
        let (holder, key) = match self.runtime()?.filter(|keys| keys.contains_key("ips")) {
            Some(runtime) => (runtime, "ips"),
            None => (&self.keys, "addresses"),
        };
        let addresses: Vec<Cidr> = list(holder, key)?
            .iter()
            .map(|value| read(key, value.as_str().map(str::parse)))
            .collect::<Result<_, _>>()?;
        let gateway: Option<IpAddr> = match self.keys.get("gateway") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let parsed = value.as_str().map(|text| {
                    text.parse()
                        .map_err(|_| format!("`{text}` is no IP address; use 10.0.0.1, say"))
                });
                Some(read("gateway", parsed)?)
            }
        };
        let mut routes: Vec<Route> = list(&self.keys, "routes")?
            .iter()
            .map(|value| route_of(value).map_err(|error| error.with(Code::Config)))
            .collect::<Result<_, _>>()?;
        if let Some(gateway) = gateway {
            routes.insert(0, default_route(gateway));
        }
        let near = |cidr: &Cidr| gateway.filter(|gateway| cidr.contains(*gateway));
        let ips = addresses.iter().map(|cidr| AssignedIp { address: *cidr, gateway: near(cidr) });
        Ok(Addressing { ips: ips.collect(), routes, dns: None })
    }

    /// Returns the DNS settings for the container.
    pub(crate) fn dns(&self) -> Option<&Value> {
        self.keys.get("dns").filter(|dns| dns.as_object().is_some_and(|keys| !keys.is_empty()))
    }

    /// Returns the result of the plugin before this one, or of the whole list's ADD.
    pub(crate) fn prev_result(&self) -> Option<&Value> {
        self.keys.get("prevResult").filter(|result| !result.is_null())
    }

    /// Reads the attachments that stay (section 2, "GC"). `None` if the runtime does not say:
    /// that is no list without entries.
    pub(crate) fn valid_attachments(&self) -> Result<Option<Vec<ValidAttachment>>, Error> {
        const KEY: &str = "cni.dev/valid-attachments";
        if self.keys.get(KEY).is_none_or(Value::is_null) {
            return Ok(None);
        }
        let entry = |value: &Value| {
            let word = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
            let both = word("containerID").zip(word("ifname"));
            let remedy = "give each entry `containerID` and `ifname`; nothing was deleted";
            both.map(|(container, interface)| ValidAttachment { container, interface })
                .ok_or_else(|| Error::key(KEY, &format!("{value} names no attachment"), remedy))
        };
        list(&self.keys, KEY)?.iter().map(entry).collect::<Result<_, _>>().map(Some)
    }

    /// Returns what the runtime adds to the configuration of each container.
    fn runtime(&self) -> Result<Option<&Map<String, Value>>, Error> {
        object(&self.keys, "runtimeConfig")
    }
}

fn version_of(keys: &Map<String, Value>) -> Result<Version, Error> {
    let said = text(keys, "cniVersion")?;
    let known = Version::ALL.into_iter().find(|version| said.as_deref() == Some(version.text()));
    known.ok_or_else(|| {
        let said =
            said.map_or("is missing, which means 0.1.0,".to_owned(), |said| format!("`{said}`"));
        Error::new(
            Code::IncompatibleVersion,
            format!("cniVersion {said} is not supported"),
            format!("use one of {}", Version::ALL.map(Version::text).join(", ")),
        )
    })
}

fn host_of(keys: &Map<String, Value>) -> Result<HostSelector, Error> {
    selector(text(keys, "socket")?, text(keys, "host")?)
}

/// Returns the host that the keys `socket` and `host` select.
pub(crate) fn selector(
    socket: Option<String>,
    host: Option<String>,
) -> Result<HostSelector, Error> {
    match (socket, host) {
        (Some(_), Some(_)) => {
            Err(Error::key("socket", "stands beside `host`", "keep one of the two"))
        }
        (Some(path), None) => Ok(HostSelector::Socket(PathBuf::from(path))),
        (None, Some(name)) if name.is_empty() || name.contains('/') => Err(Error::key(
            "host",
            &format!("`{name}` is no host's name"),
            "use `socket` for a path",
        )),
        (None, Some(name)) => Ok(HostSelector::Host(name)),
        (None, None) => Ok(HostSelector::TheOnlyOne),
    }
}

fn ipam_of(keys: &Map<String, Value>) -> Result<Option<String>, Error> {
    let Some(ipam) = object(keys, "ipam")?.filter(|ipam| !ipam.is_empty()) else { return Ok(None) };
    let kind = text(ipam, "type")?.filter(|kind| !kind.is_empty());
    let kind = kind.ok_or_else(|| {
        Error::key(
            "ipam",
            "has no `type`",
            "name an IPAM plugin such as `host-local`, or leave it out",
        )
    })?;
    // A name, not a path out of CNI_PATH.
    if kind.contains('/') {
        return Err(Error::key("ipam", &format!("`{kind}` is a path"), "use the name of a plugin"));
    }
    if keys.contains_key("addresses") {
        let remedy = "keep one of the two";
        return Err(Error::key(
            "addresses",
            "stands beside an `ipam` that gives addresses",
            remedy,
        ));
    }
    Ok(Some(kind))
}

fn text(keys: &Map<String, Value>, key: &str) -> Result<Option<String>, Error> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(Error::key(key, &format!("{other} is no text"), "put it into quotes")),
    }
}

fn object<'a>(
    keys: &'a Map<String, Value>,
    key: &str,
) -> Result<Option<&'a Map<String, Value>>, Error> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(inner)) => Ok(Some(inner)),
        Some(other) => Err(Error::key(key, &format!("{other} is no object"), "write `{…}`")),
    }
}

fn list<'a>(keys: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], Error> {
    match keys.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(list)) => Ok(list),
        Some(other) => Err(Error::key(key, &format!("{other} is no list"), "write `[…]`")),
    }
}

/// Takes a parsed text; `None` if the value was no text.
fn read<T>(key: &str, parsed: Option<Result<T, String>>) -> Result<T, Error> {
    match parsed {
        Some(Ok(value)) => Ok(value),
        Some(Err(error)) => Err(Error::sentence(Code::Config, &format!("`{key}`: {error}"))),
        None => Err(Error::key(key, "a value is no text", "put it into quotes")),
    }
}

#[cfg(test)]
mod tests;
