//! The networks that Docker has made, in a file: a driver that is restarted goes on with them.
//!
//! The file is replaced as a whole, and on the disk before Docker hears that its network is made or
//! gone.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sluice_api::client::HostSelector;

use super::protocol::{NewNetwork, Range};
use crate::config::selector;
use crate::error::{Code, Error};
use crate::host::Host;
use crate::options::Options;

/// The options of `docker network create -o`.
const OPTIONS: [&str; 5] = ["vnet", "host", "socket", "mtu", "no_default_route"];
/// Docker's own name of the option, which its other drivers and Compose files use.
const MTU_OPTION: &str = "com.docker.network.driver.mtu";

/// A network of Docker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Network {
    pub(super) vnet: String,
    host: Option<String>,
    socket: Option<String>,
    pub(super) mtu: Option<u16>,
    /// Router of the default route of each family.
    gateway: Option<IpAddr>,
    gateway_v6: Option<IpAddr>,
}

impl Network {
    /// Checks a new network.
    pub(super) fn of(asked: &NewNetwork) -> Result<Self, Error> {
        let mut all = asked.options()?;
        if let Some(mtu) = all.remove(MTU_OPTION) {
            all.entry("mtu".to_owned()).or_insert(mtu);
        }
        let options = Options::read(&all, &OPTIONS)?;
        let has_way_out = options.has_default_route && !asked.is_internal();
        let gateway = |ranges: &Option<Vec<Range>>| {
            let first = ranges.as_ref().and_then(|ranges| ranges.first());
            first.filter(|_| has_way_out).map_or(Ok(None), Range::gateway)
        };
        Ok(Self {
            vnet: options.vnet,
            host: all.remove("host"),
            socket: all.remove("socket"),
            mtu: options.mtu,
            gateway: gateway(&asked.v4)?,
            gateway_v6: gateway(&asked.v6)?,
        })
    }

    /// Finds the host of which it is.
    pub(super) fn find_host(&self) -> Result<Host, Error> {
        let host: HostSelector = selector(self.socket.clone(), self.host.clone())?;
        Host::find(&host)
    }

    /// Returns the answer of `Join`. Without `DisableGatewayService` Docker would connect a
    /// container that has no gateway to a bridge of its own.
    pub(super) fn joined(&self, device: &str, prefix: &str) -> Value {
        let mut answer = json!({
            "InterfaceName": { "SrcName": device, "DstPrefix": prefix },
            "DisableGatewayService": true,
        });
        for (key, gateway) in [("Gateway", self.gateway), ("GatewayIPv6", self.gateway_v6)] {
            if let Some(gateway) = gateway {
                answer[key] = json!(gateway);
            }
        }
        answer
    }
}

/// The file's content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    /// By Docker's identifier.
    networks: BTreeMap<String, Network>,
}

/// All networks.
#[derive(Debug)]
pub(super) struct Networks {
    file: PathBuf,
    content: Mutex<Content>,
}

impl Networks {
    /// Reads the file of a folder, which is made if it is missing.
    pub(super) fn open(dir: &Path) -> Result<Self, Error> {
        let file = dir.join("networks.json");
        fs::create_dir_all(dir).map_err(|error| disk(dir, "make", &error))?;
        let content = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Error::new(
                    Code::Undecodable,
                    format!("{} cannot be read: {error}", file.display()),
                    "delete it, then make the networks of Docker anew (`docker network rm`, \
                     `docker network create`)",
                )
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Content::default(),
            Err(error) => return Err(disk(&file, "read", &error)),
        };
        Ok(Self { file, content: Mutex::new(content) })
    }

    pub(super) fn get(&self, id: &str) -> Option<Network> {
        self.content().networks.get(id).cloned()
    }

    /// Returns a network that must be known.
    pub(super) fn known(&self, id: &str) -> Result<Network, Error> {
        self.get(id).ok_or_else(|| {
            Error::new(
                Code::Config,
                format!(
                    "this driver does not know network {id}; {} has others",
                    self.file.display()
                ),
                "make the network anew: `docker network rm`, then `docker network create`",
            )
        })
    }

    pub(super) fn insert(&self, id: &str, network: Network) -> Result<(), Error> {
        self.change(|networks| networks.insert(id.to_owned(), network))
    }

    pub(super) fn remove(&self, id: &str) -> Result<(), Error> {
        self.change(|networks| networks.remove(id))
    }

    /// Changes the networks, if the file can be written.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, Network>) -> T,
    ) -> Result<(), Error> {
        let mut content = self.content();
        let mut next = content.clone();
        change(&mut next.networks);
        let written = serde_json::to_vec_pretty(&next)
            .map_err(io::Error::from)
            .and_then(|bytes| replace(&self.file, &bytes));
        written.map_err(|error| disk(&self.file, "write", &error))?;
        *content = next;
        Ok(())
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces a file: after a crash it has its old content or its new one.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = file.with_extension("new");
    let mut out = File::create(&next)?;
    out.write_all(bytes)?;
    out.sync_all()?;
    fs::rename(&next, file)?;
    file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

fn disk(file: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(
        Code::Io,
        format!("cannot {what} {}: {error}", file.display()),
        "make room and access for it, or start the driver with another `--state-dir`",
    )
}
