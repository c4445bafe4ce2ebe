//! Whether a port that comes may be bound: nobody else is, or it takes over.

use std::net::IpAddr;

use sluice_control::plane::BoundAt;
use sluice_control::vport::Key;

use super::Fabric;
use super::member::{Ask, Member};
use crate::config::BoundTo;

/// What the fabric knows of a binding that is wanted.
#[derive(Debug)]
pub(super) struct Found {
    /// Who has it, in words, and what to do.
    refusal: Option<String>,
    /// How late a binding has to be to take it over.
    next: u32,
}

impl Fabric {
    /// How late the binding of a port that comes is to be: 0, unless it takes over.
    ///
    /// # Errors
    /// Somebody is bound to its MAC or one of its addresses, and it does not take over: who, and
    /// what to do.
    pub(crate) fn may_bind(&self, wanted: &BoundTo, takes: bool) -> Result<u32, String> {
        let key = Key { vni: wanted.vni, mac: wanted.mac };
        let ips = wanted.ips.clone();
        let found = self.wait(|reply| Ask::Binding(Box::new((key, ips)), reply))?;
        match found.refusal {
            None => Ok(0),
            Some(_) if takes => Ok(found.next),
            Some(refusal) => Err(refusal),
        }
    }
}

impl Member {
    /// Who is bound to an endpoint or its addresses at another host.
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
