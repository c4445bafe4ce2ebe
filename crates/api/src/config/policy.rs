//! Policies of single vports: the fabric's word on a port, by its network and name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{HostConfig, Port, PortKind};
use crate::port::AllowedIp;

/// Policies by network and port.
pub type PortPolicies = BTreeMap<String, BTreeMap<String, PortPolicy>>;

/// Highest rate of a policy, in Mbit/s.
pub const RATE_MBPS_MAX: u64 = 1_000_000;
/// Most entries of a list of addresses.
pub const ALLOWED_MAX: usize = 16;
/// Longest name of a port.
const NAME_SIZE_MAX: usize = 64;

/// Policy of a vport. A value that is absent is left to its host and its network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PortPolicy {
    /// Service rate in Mbit/s: the rate at which its machine takes frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Priority of its frames without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Addresses that its endpoint may use beside its own, in place of the host's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_ip: Option<Vec<AllowedIp>>,
}

impl PortPolicy {
    /// Checks the name and the values.
    ///
    /// # Errors
    /// Reason, with the remedy.
    pub fn check(&self, vnet: &str, port: &str) -> Result<(), String> {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if port.is_empty() || port.len() > NAME_SIZE_MAX || port.contains(bad) {
            return Err(format!(
                "`{}` cannot be the name of a port: use 1 to {NAME_SIZE_MAX} characters without \
                 spaces",
                port.escape_debug()
            ));
        }
        if let Some(mbps) = self.service_mbps.filter(|mbps| !(1..=RATE_MBPS_MAX).contains(mbps)) {
            return Err(format!(
                "the rate of vport {vnet}/{port}, {mbps} Mbit/s, is not within 1 to \
                 {RATE_MBPS_MAX}; leave the key out for no limit"
            ));
        }
        if let Some(priority) = self.priority.filter(|priority| *priority > 7) {
            return Err(format!("the priority of vport {vnet}/{port}, {priority}, is above 7"));
        }
        match self.allow_ip.as_ref().map_or(0, Vec::len) {
            count if count > ALLOWED_MAX => Err(format!(
                "{count} entries of `allow_ip` are more than the {ALLOWED_MAX} of vport \
                 {vnet}/{port}; use prefixes"
            )),
            _ => Ok(()),
        }
    }

    /// Returns true if it leaves everything to host and network.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl HostConfig {
    /// Returns the policy of a port.
    #[must_use]
    pub fn policy_of(&self, port: &Port) -> Option<&PortPolicy> {
        self.vport_policies.get(&port.vnet)?.get(&port.name)
    }

    /// Returns a port with the values that its policy and its network have for it. The policy
    /// stands above the port's own values, and these above the network's.
    #[must_use]
    pub fn complete(&self, port: &Port) -> Port {
        let vnet = self.vnets.iter().find(|vnet| vnet.name == port.vnet);
        let mut whole = vnet.map_or_else(|| port.clone(), |vnet| vnet.complete(port));
        let Some(policy) = self.policy_of(port) else { return whole };
        if port.kind != PortKind::L2 {
            whole.service_mbps = policy.service_mbps.or(whole.service_mbps);
        }
        whole.priority = policy.priority.unwrap_or(whole.priority);
        if let Some(allowed) = policy.allow_ip.as_ref().filter(|_| self.binds(port)) {
            whole.allowed.clone_from(allowed);
        }
        whole
    }

    /// Returns true if a port takes frames of the endpoints that are bound to it only.
    #[must_use]
    pub fn binds(&self, port: &Port) -> bool {
        self.fabric.is_some() && port.mac.is_some()
    }
}

#[cfg(test)]
mod tests;
