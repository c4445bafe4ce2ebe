//! Check whether an added port may be bound: no other port has the binding, or it takes over.

use std::net::IpAddr;

use sluice_control::plane::BoundAt;
use sluice_control::vport::Key;

use super::Fabric;
use super::member::{Member, MemberRequest};
use crate::config::BoundTo;

/// State of a wanted binding in the fabric.
#[derive(Debug)]
pub(super) struct Found {
    /// Present owner, in words, and the remedy.
    refusal: Option<String>,
    /// Sequence that a binding needs to take over.
    next: u32,
}

impl Fabric {
    /// Returns the sequence for the binding of a new port: 0, unless it takes over.
    ///
    /// # Errors
    /// If another port is bound to its MAC or one of its addresses, and it does not take over: the
    /// owner, and the remedy.
    pub(crate) fn may_bind(&self, wanted: &BoundTo, takes: bool) -> Result<u32, String> {
        let key = Key { vni: wanted.vni, mac: wanted.mac };
        let ips = wanted.ips.clone();
        let found = self.wait(|reply| MemberRequest::Binding(Box::new((key, ips)), reply))?;
        match found.refusal {
            None => Ok(0),
            Some(_) if takes => Ok(found.next),
            Some(refusal) => Err(refusal),
        }
    }
}

impl Member {
    /// Looks for a binding of an endpoint or its addresses at another host.
    pub(super) fn binding_of(&self, key: Key, ips: &[IpAddr]) -> Found {
        let rival = self.plane.bound_elsewhere(key, ips);
        let refusal = rival.map(|rival| self.refusal(&rival));
        Found { refusal, next: self.plane.next_taking(key, ips) }
    }

    fn refusal(&self, rival: &BoundAt) -> String {
        let BoundAt { key, ip, host, port } = *rival;
        let name = self.plan.host_name(host).map_or_else(|| format!("host {host}"), str::to_owned);
        match ip {
            Some(ip) => format!(
                "{ip} is bound at {name}, to port {port} ({}); to let both have it, give both \
                 ports `--allow-ip {ip}` instead; to take it from there, add `--move`",
                key.mac
            ),
            None => format!(
                "{} is bound at {name}, to port {port}; use another `--mac`, or, to take it from \
                 there, add `--move`",
                key.mac
            ),
        }
    }
}
