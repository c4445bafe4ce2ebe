//! Requests of tenants: those about their own networks, and nothing of others in the answers.
//!
//! ```text
//!   guard: method and path ─▶ request ─ admit ─▶ host ─▶ rows of own networks
//!                                                  └───▶ refusal without names of others
//! ```
//!
//! A request that is not listed here is refused, whatever its path was. A tenant adds and deletes
//! ports in namespaces of its own alone, which its grant names: any other namespace of the host is
//! somebody else's. Its ports are named as its namespaces are, so that a name that is taken tells
//! it of nobody else. It has [`PORTS_MAX`] of them at most: a host's places are everybody's.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use sluice_api::access::{Grant, Role};
use sluice_api::fabric::Question;
use sluice_api::port::{NewPort, Place};

use super::api::Answer;
use super::api::outcome::Outcome;
use super::guard;
use crate::ipc::protocol::Request;
use crate::sys::log::say;

/// Beginning of refusals that are the tenant's lack of rights.
pub(super) const MAY_NOT: &str = "a tenant ";
/// Most ports of a tenant's networks at a host that the tenant may have added.
const PORTS_MAX: usize = 64;
/// Refusal whose words have names of others.
const VEILED: &str = "the host refuses for a reason outside of this tenant's networks; whoever \
                      manages the host finds it in the log";

/// One change of a tenant at a time: what was looked at is so still when it is made.
static CHANGES: Mutex<()> = Mutex::new(());

/// A tenant whose request is being answered.
#[derive(Debug)]
pub(super) struct Tenant(Grant);

impl Tenant {
    /// Returns the tenant whose request is being answered, if it is one's.
    pub(super) fn current() -> Option<Self> {
        let grant = guard::current()?.grant;
        (grant.role == Role::Tenant).then_some(Self(grant))
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The reason why not, with the remedy.
    pub(super) fn answer(&self, request: Request, host: &Answer) -> Result<String, String> {
        let is_change = matches!(request, Request::Add(_) | Request::Del(_));
        let _alone = is_change.then(|| CHANGES.lock().unwrap_or_else(PoisonError::into_inner));
        self.admit(&request, host)?;
        match host(request) {
            Ok(line) => Ok(narrowed_to(&line, &self.0.vnets)),
            Err(why) => Err(self.veil(why, host)),
        }
    }

    fn has(&self, vnet: &str) -> bool {
        self.0.vnets.iter().any(|own| own == vnet)
    }

    fn admit(&self, request: &Request, host: &Answer) -> Result<(), String> {
        match request {
            Request::Who | Request::Ports | Request::Fabric(Question::Vnets) => Ok(()),
            Request::Fabric(
                Question::Vports { vnet: Some(vnet) }
                | Question::Vport { vnet: Some(vnet), .. }
                | Question::Thaw { vnet: Some(vnet), .. },
            ) if self.has(vnet) => Ok(()),
            Request::Card(name) => self.port(name, host).map(|_| ()),
            Request::Del(name) => self.may_have(&self.port(name, host)?),
            Request::Add(new) => {
                self.may_have(new)?;
                let ports = self.ports(host)?;
                let others = ports.iter().filter(|port| port.name != named(new));
                match others.filter(|port| self.may_have(port).is_ok()).count() {
                    0..PORTS_MAX => Ok(()),
                    _ => Err(format!(
                        "{PORTS_MAX} ports of this tenant are on the host; delete one, or use \
                         another host"
                    )),
                }
            }
            _ => Err(format!("{MAY_NOT}may not ask this; use a token of another role")),
        }
    }

    /// Checks a port that the tenant adds or deletes.
    fn may_have(&self, port: &NewPort) -> Result<(), String> {
        let Grant { vnets, netns, .. } = &self.0;
        if !self.has(&port.vnet) {
            let own = vnets.join(", ");
            return Err(format!("{MAY_NOT}has ports in its own networks alone; use one of: {own}"));
        }
        if netns.is_empty() {
            return Err(format!(
                "{MAY_NOT}without namespaces of its own adds and deletes no ports; whoever manages \
                 the host names them (`sluice api token --netns`, or `netns` of \
                 `[[api.tls.client]]`)"
            ));
        }
        let own = netns.join(", ");
        match &port.place {
            Place::Netns(name) if self.0.has_netns(name) => {}
            _ => {
                return Err(format!(
                    "{MAY_NOT}has ports in its own namespaces alone; use `netns` with one of: {own}"
                ));
            }
        }
        if port.name.as_deref().is_some_and(|name| !self.0.has_netns(name)) {
            return Err(format!(
                "{MAY_NOT}names its ports as its namespaces; leave `name` out, or use one of: {own}"
            ));
        }
        if port.cni.is_some() {
            return Err(format!("{MAY_NOT}has no ports of container runtimes; leave `cni` out"));
        }
        Ok(())
    }

    /// Returns a port of the tenant's networks. One of others is as none.
    fn port(&self, name: &str, host: &Answer) -> Result<NewPort, String> {
        let ports = self.ports(host)?;
        let found = ports.into_iter().find(|port| port.name.as_deref() == Some(name));
        found.ok_or_else(|| {
            format!("there is no port `{name}` of this tenant; `GET /v1/ports` has its ports")
        })
    }

    /// Returns the ports of the tenant's networks.
    fn ports(&self, host: &Answer) -> Result<Vec<NewPort>, String> {
        let line = host(Request::Ports)?;
        let all: sluice_api::port::AddedPorts =
            serde_json::from_str(&line).map_err(|_| VEILED.to_owned())?;
        Ok(all.ports.into_iter().map(|row| row.port).filter(|port| self.has(&port.vnet)).collect())
    }

    /// Returns a refusal of the host; another one if its words have names of other networks or of
    /// their ports.
    fn veil(&self, why: String, host: &Answer) -> String {
        // The host's own state has no names.
        if matches!(Outcome::refused(&why), Outcome::Problem(status, _) if status.is_server_error())
        {
            return why;
        }
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        let has_other = self.others(host).is_none_or(|others| {
            others.iter().any(|other| {
                why.match_indices(other.as_str()).any(|(at, _)| {
                    !why[..at].ends_with(is_name) && !why[at + other.len()..].starts_with(is_name)
                })
            })
        });
        if has_other {
            say!(warn: "tenant `{}` is refused, and is not told why: {why}", self.0.name);
            return VEILED.to_owned();
        }
        why
    }

    /// Returns the names of other networks and of their ports here; `None` if they are not known.
    fn others(&self, host: &Answer) -> Option<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        let ports: Value = serde_json::from_str(&host(Request::Ports).ok()?).ok()?;
        for row in ports["ports"].as_array()? {
            names.extend(row["port"]["vnet"].as_str().map(str::to_owned));
            if row["port"]["vnet"].as_str().is_some_and(|vnet| !self.has(vnet)) {
                names.extend(row["port"]["name"].as_str().map(str::to_owned));
            }
        }
        let vnets = host(Request::Fabric(Question::Vnets)).ok()?;
        let vnets: Value = serde_json::from_str(&vnets).ok()?;
        for row in vnets["vnets"].as_array()? {
            let vnet = row["vnet"].as_str()?;
            names.insert(vnet.to_owned());
            let ports = row["ports"].as_array().into_iter().flatten().filter(|_| !self.has(vnet));
            names.extend(ports.filter_map(Value::as_str).map(str::to_owned));
        }
        names.retain(|name| !self.has(name) && !name.is_empty());
        Some(names)
    }
}

/// Returns the name that a port will have: that of its namespace, unless it is said.
fn named(new: &NewPort) -> Option<String> {
    match (&new.name, &new.place) {
        (None, Place::Netns(name)) => Some(name.clone()),
        (name, _) => name.clone(),
    }
}

/// Leaves rows of other networks out: of ports, networks and endpoints.
fn narrowed_to(line: &str, vnets: &[String]) -> String {
    let Ok(mut answer) = serde_json::from_str::<Value>(line) else { return "{}".to_owned() };
    let is_own = |row: &Value| {
        let vnet = row.get("vnet").or_else(|| row.get("port")?.get("vnet"));
        vnet.and_then(Value::as_str).is_some_and(|name| vnets.iter().any(|own| own == name))
    };
    for key in ["ports", "vnets", "vports"] {
        if let Some(Value::Array(rows)) = answer.get_mut(key) {
            rows.retain(is_own);
        }
    }
    answer.to_string()
}

#[cfg(test)]
mod tests;
