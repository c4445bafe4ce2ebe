//! The configuration that all members of a fabric share: members, networks, settings, trust.
//!
//! A member derives its whole configuration from it and from its own file, which says only what
//! may differ between hosts (name, devices, CPUs, buffers). A change is a list of [`Operation`]s,
//! applied as a whole or not at all, at all members in the same order.
//!
//! | file | content |
//! |---|---|
//! | `operation` | the operations, and their inverses |
//! | `settings` | the settings, each by its key |
//! | `vport` | policies of single vports |
//! | `vlan` | VLANs of trunks, and the networks behind them |
//! | `trust` | authorities that are trusted, and their replacement |
//! | `text` | the part that people edit, and the operations between two such texts |

mod operation;
mod settings;
mod text;
mod trust;
mod vlan;
mod vport;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use sluice_base::Vni;

use crate::config::PortPolicies;
use crate::hold::HoldTime;
use crate::placement::Stamped;

pub use self::operation::{Operation, Unreadable, read_change, write_change};
pub use self::settings::{ClassSettings, Settings};
pub use self::text::{Editable, NotText};
pub use self::trust::{AuthorityEntry, Trust, short};
pub use self::vlan::{VLANS_MAX, Vlan, Vlans};

/// Version of this format. It rises when an older program would misunderstand a newer one.
pub const FORMAT: u16 = 1;
/// Most members of a fabric.
pub const MEMBERS_MAX: usize = 1_024;
/// Most networks of a fabric.
pub const VNETS_MAX: usize = 4_096;
/// Most vports with a policy of their own.
pub const VPORTS_MAX: usize = 16_384;
/// Most tokens that may be outstanding.
pub const TOKENS_MAX: usize = 64;
/// Most certificates that are revoked before the authority is replaced.
pub const REVOKED_MAX: usize = 1_024;
/// Longest name of a fabric, a host or a network.
pub const NAME_SIZE_MAX: usize = 63;
/// Highest number of a member.
pub const ID_MAX: u16 = 0x7fff;
/// Smallest MTU of a network, that of IPv4.
pub const MTU_MIN: u16 = 576;

/// Reason why a change does not apply, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct NotApplicable {
    why: String,
    /// Key or value that this program does not know; a later one may.
    unknown: Option<String>,
}

impl NotApplicable {
    /// Makes a reason.
    pub(crate) const fn of(why: String) -> Self {
        Self { why, unknown: None }
    }

    /// Makes a reason that may be one for this version of the program alone.
    const fn unknown(why: String, what: String) -> Self {
        Self { why, unknown: Some(what) }
    }

    /// Returns the key that this program does not know, or with a value that it does not know. A
    /// host that refused such a change would go on with another configuration than a host of a
    /// later version.
    #[must_use]
    pub fn of_other_version(&self) -> Option<&str> {
        self.unknown.as_deref()
    }
}

/// The shared configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FabricConfig {
    /// Version of the format: [`FORMAT`].
    pub format: u16,
    /// Name of the fabric.
    pub fabric: String,
    /// Settings; those that are absent have their defaults.
    #[serde(default)]
    pub settings: Settings,
    /// Members by name.
    #[serde(default)]
    pub members: BTreeMap<String, Member>,
    /// Networks by name.
    #[serde(default)]
    pub vnets: BTreeMap<String, VnetSettings>,
    /// Policies of single vports, by network and name of the port; none of them is empty.
    #[serde(default, skip_serializing_if = "PortPolicies::is_empty")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = BTreeMap<String, BTreeMap<String, crate::config::PortPolicy>>)
    )]
    pub vports: PortPolicies,
    /// VLANs of trunks, and the networks behind them; no trunk is empty.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, BTreeMap<String, Vlan>>))]
    pub vlans: Vlans,
    /// Placement policy of all hosts; absent: the one that members hold among themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Stamped>,
    /// Tokens that let a host join, by their public part.
    #[serde(default)]
    pub tokens: BTreeMap<String, Token>,
    /// Certificates that are believed.
    #[serde(default)]
    pub trust: Trust,
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Number of the member, different on all: 1 to [`ID_MAX`].
    pub id: u16,
    /// Identity of its disk: not zero, and less than 2⁴⁸. A host that lost its disk has forgotten
    /// its votes, so it joins again as another member.
    pub seat: u64,
    /// Address of its VTEP.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub vtep: Ipv4Addr,
    /// Address on which it listens for other members; absent: its VTEP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    pub address: Option<Ipv4Addr>,
    /// Part in decisions.
    #[serde(default, skip_serializing_if = "Role::is_default")]
    pub role: Role,
}

impl Member {
    /// Returns the address on which it listens.
    #[must_use]
    pub fn listen(&self) -> Ipv4Addr {
        self.address.unwrap_or(self.vtep)
    }
}

/// Part of a member in decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A voter, as long as there are not enough others.
    #[default]
    Auto,
    /// Never a voter.
    Learner,
    /// A voter before others, without ports of its own.
    Witness,
}

impl Role {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct VnetSettings {
    /// VNI, different in all networks.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 16_777_215))]
    pub vni: u32,
    /// MTU of its ports; absent: the rest that each host's underlay leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 576))]
    pub mtu: Option<u16>,
    /// Service rate of each of its ports without one of its own, in Mbit/s; absent: not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_mbps: Option<u64>,
    /// Priority of frames without one, at ports without one of their own; absent: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 7))]
    pub priority: Option<u8>,
    /// Hold contract of its ports without one of their own; absent: that of the priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldTime>,
}

impl VnetSettings {
    /// Returns a network of this VNI with defaults.
    #[must_use]
    pub const fn new(vni: u32) -> Self {
        Self { vni, mtu: None, service_mbps: None, priority: None, hold: None }
    }
}

/// A token that lets one host join. Its secret is not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Hash of the secret, in hexadecimal digits.
    pub hash: String,
    /// End, in milliseconds since 1970 by the clock of the member that is asked.
    pub expires_ms: u64,
    /// Its use; absent: it is unused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<TokenUse>,
}

/// Use of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenUse {
    /// Host that joined with it.
    pub host: String,
    /// Hash of that host's public key, in hexadecimal digits.
    pub key: String,
}

impl FabricConfig {
    /// Returns the configuration of a new fabric, without a member.
    ///
    /// # Errors
    /// If the name cannot be one.
    pub fn new(fabric: &str) -> Result<Self, NotApplicable> {
        check_name("fabric", fabric)?;
        Ok(Self {
            format: FORMAT,
            fabric: fabric.to_owned(),
            settings: Settings::default(),
            members: BTreeMap::new(),
            vnets: BTreeMap::new(),
            vports: PortPolicies::new(),
            vlans: Vlans::new(),
            placement: None,
            tokens: BTreeMap::new(),
            trust: Trust::default(),
        })
    }

    /// Applies all operations, or none, and returns the operations that undo them. Operations on
    /// members, tokens and trust have no inverse: a roll-back leaves them.
    ///
    /// # Errors
    /// Reason why an operation does not apply.
    pub fn apply(&mut self, change: &[Operation]) -> Result<Vec<Operation>, NotApplicable> {
        let mut next = self.clone();
        let mut inverse = Vec::new();
        for operation in change {
            inverse.extend(operation.apply(&mut next)?);
        }
        next.check_limits()?;
        inverse.reverse();
        *self = next;
        Ok(inverse)
    }

    /// Returns a change with the effect of `change` on this configuration, without operations that
    /// cancel each other. Operations on members, tokens and trust stay.
    ///
    /// # Errors
    /// Reason why an operation does not apply.
    pub fn net_change(&self, change: &[Operation]) -> Result<Vec<Operation>, NotApplicable> {
        let mut wanted = self.clone();
        wanted.apply(change)?;
        let mut net = Editable::of(self).difference(&Editable::of(&wanted));
        // The text has no stamp.
        net.retain(|operation| !matches!(operation, Operation::SetPlacement { .. }));
        if self.placement != wanted.placement {
            net.push(Operation::SetPlacement { placement: wanted.placement.clone() });
        }
        let mut reached = self.clone();
        // Some orders matter: two networks that exchange their VNIs need a third one in between.
        let is_whole = reached.apply(&net).is_ok() && reached == wanted;
        Ok(if is_whole { net } else { change.to_vec() })
    }

    /// Returns the lowest number that no member has.
    #[must_use]
    pub fn free_id(&self) -> Option<u16> {
        (1..=ID_MAX).find(|id| self.members.values().all(|member| member.id != *id))
    }

    /// Returns the name and the entry of a member by its number.
    #[must_use]
    pub fn member_of(&self, id: u16) -> Option<(&str, &Member)> {
        let mut all = self.members.iter();
        all.find(|(_, member)| member.id == id).map(|(name, member)| (name.as_str(), member))
    }

    fn check_limits(&self) -> Result<(), NotApplicable> {
        for (what, count, max) in [
            ("members", self.members.len(), MEMBERS_MAX),
            ("networks", self.vnets.len(), VNETS_MAX),
            (
                "policies of vports",
                self.vports.values().map(BTreeMap::len).sum::<usize>(),
                VPORTS_MAX,
            ),
            ("VLANs", self.vlans.values().map(BTreeMap::len).sum(), VLANS_MAX),
            ("tokens", self.tokens.len(), TOKENS_MAX),
            ("revoked certificates", self.trust.revoked.len(), REVOKED_MAX),
        ] {
            if count > max {
                return Err(NotApplicable::of(format!(
                    "a fabric has at most {max} {what}, and this would make it {count}; delete \
                     some first"
                )));
            }
        }
        Ok(())
    }
}

/// Checks a name, which becomes a name of files and a word on the command line.
fn check_name(what: &str, name: &str) -> Result<(), NotApplicable> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    if first && name.len() <= NAME_SIZE_MAX && name.chars().all(good) {
        return Ok(());
    }
    Err(NotApplicable::of(format!(
        "`{}` cannot be the name of a {what}: use 1 to {NAME_SIZE_MAX} letters, digits, `-`, `_` \
         and `.`, and begin with a letter or digit",
        name.escape_debug()
    )))
}

/// Checks the values of a network.
fn check_vnet(name: &str, vnet: &VnetSettings) -> Result<(), NotApplicable> {
    check_name("network", name)?;
    if Vni::new(vnet.vni).is_none() {
        return Err(NotApplicable::of(format!(
            "VNI {} of network `{name}` does not fit into 24 bits; use 0 to 16777215",
            vnet.vni
        )));
    }
    if let Some(mtu) = vnet.mtu.filter(|mtu| *mtu < MTU_MIN) {
        return Err(NotApplicable::of(format!(
            "the MTU of network `{name}`, {mtu}, is below {MTU_MIN}, which IPv4 requires"
        )));
    }
    if let Some(priority) = vnet.priority.filter(|priority| *priority > 7) {
        return Err(NotApplicable::of(format!(
            "the priority of network `{name}`, {priority}, is above 7"
        )));
    }
    if vnet.service_mbps == Some(0) {
        return Err(NotApplicable::of(format!(
            "a rate of 0 Mbit/s would serve no port of network `{name}`; leave the key out for no \
             limit"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
