//! Options of a network, as `-o KEY=VALUE` of Podman and of Docker gives them.

use std::collections::BTreeMap;

use sluice_api::client::HostSelector;
use sluice_api::port::Kind;

use crate::config::selector;
use crate::error::{Code, Error};

/// The checked options of a network.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) vnet: String,
    pub(crate) host: HostSelector,
    pub(crate) kind: Kind,
    pub(crate) mtu: Option<u16>,
    pub(crate) has_default_route: bool,
}

impl Options {
    /// Reads the options, of which there are only those that are `known`.
    pub(crate) fn read(all: &BTreeMap<String, String>, known: &[&str]) -> Result<Self, Error> {
        if let Some(key) = all.keys().find(|key| !known.contains(&key.as_str())) {
            let remedy = format!("use one of {}", known.join(", "));
            return Err(Error::key(key, "is no option of this driver", &remedy));
        }
        let vnet = all.get("vnet").filter(|vnet| !vnet.is_empty()).ok_or_else(|| {
            Error::key("vnet", "is missing", "name a network of `sluice vnet list`: `-o vnet=NAME`")
        })?;
        let kind = all.get("kind").map(|kind| {
            kind.parse::<Kind>().map_err(|error| Error::sentence(Code::Config, &error))
        });
        let mtu = all.get("mtu").map(|mtu| {
            mtu.parse::<u16>()
                .map_err(|_| Error::key("mtu", &format!("`{mtu}` is no number"), "use 1450, say"))
        });
        let flag = all.get("no_default_route").map(|flag| {
            flag.parse::<bool>()
                .map_err(|_| Error::key("no_default_route", "is no flag", "use true or false"))
        });
        Ok(Self {
            vnet: vnet.clone(),
            host: selector(all.get("socket").cloned(), all.get("host").cloned())?,
            kind: kind.transpose()?.unwrap_or_default(),
            mtu: mtu.transpose()?.filter(|mtu| *mtu > 0),
            has_default_route: !flag.transpose()?.unwrap_or(false),
        })
    }
}
