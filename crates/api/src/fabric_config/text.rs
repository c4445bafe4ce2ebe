//! The part of a fabric's configuration that people edit, as TOML.
//!
//! ```toml
//! [settings]
//! policy = "ZZ"
//!
//! [settings.class.5]
//! strict = true
//!
//! [vnet.blue]
//! vni = 100
//!
//! [vport.blue.web]
//! service_mbps = 100
//!
//! [vlan.rack.10]
//! vnet = "blue"
//!
//! [placement]
//! mode = "adaptive"
//! ```
//!
//! Members, tokens and certificates are not in it: commands of their own change those.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FabricConfig, Operation, Settings, Vlan, Vlans, VnetSettings};
use crate::config::{PortPolicies, PortPolicy};
use crate::placement::{Policy, PolicyVersion, Stamped};

/// The part that people edit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Editable {
    /// The settings.
    #[serde(default)]
    pub settings: Settings,
    /// The networks by name.
    #[serde(default)]
    pub vnet: BTreeMap<String, VnetSettings>,
    /// The policies of single vports by network and port.
    #[serde(default, skip_serializing_if = "PortPolicies::is_empty")]
    pub vport: PortPolicies,
    /// The VLANs by trunk and number.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    pub vlan: Vlans,
    /// The placement policy; empty: each host's own configuration holds; absent: the policy that
    /// members hold among themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Policy>,
}

/// Error: a text that is no such part, with the line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotText(String);

impl Editable {
    /// Returns that part of a configuration.
    #[must_use]
    pub fn of(config: &FabricConfig) -> Self {
        let placement = config.placement.as_ref().map(|stamped| stamped.policy.clone());
        let (settings, vnet) = (config.settings.clone(), config.vnets.clone());
        let (vport, vlan) = (config.vports.clone(), config.vlans.clone());
        Self { settings, vnet, vport, vlan, placement }
    }

    /// Reads a text. A match of the placement policy may name a network of the text
    /// (`vnet=blue`); it means the VNI that the network has there.
    ///
    /// # Errors
    /// With the line, and what is wrong there.
    pub fn read(text: &str) -> Result<Self, NotText> {
        let not_text = |error: toml::de::Error| NotText(error.to_string());
        match with_numbers(text)? {
            Some(tree) => tree.try_into().map_err(not_text),
            None => toml::from_str(text).map_err(not_text),
        }
    }

    /// Returns the text.
    ///
    /// # Panics
    /// Never: it is plain data.
    #[must_use]
    pub fn text(&self) -> String {
        toml::to_string(self).expect("plain data, and no key without a table")
    }

    /// Returns the operations that make `wanted` of this. A name with another VNI is another
    /// network: its VNI changes in place. A placement policy has no stamp yet.
    #[must_use]
    pub fn difference(&self, wanted: &Self) -> Vec<Operation> {
        let mut all = Vec::new();
        let (unset, set): (Vec<_>, Vec<_>) =
            self.vport_changes(wanted).into_iter().partition(is_default);
        // No network is deleted before the policies of its vports, and none of these are set before
        // their network is there.
        all.extend(unset);
        let (unmapped, mapped) = self.vlan_changes(wanted);
        all.extend(unmapped);
        let gone = self.vnet.keys().filter(|name| !wanted.vnet.contains_key(*name));
        all.extend(gone.map(|name| Operation::DeleteVnet { name: name.clone() }));
        for (name, vnet) in &wanted.vnet {
            match self.vnet.get(name) {
                None => {
                    all.push(Operation::CreateVnet { name: name.clone(), vnet: vnet.clone() });
                }
                Some(before) => {
                    let changes = changes(&values(before), &values(vnet));
                    let set = |(key, value)| Operation::SetVnet { name: name.clone(), key, value };
                    all.extend(changes.into_iter().map(set));
                }
            }
        }
        all.extend(set);
        all.extend(mapped);
        let settings = changes(&self.settings.entries(), &wanted.settings.entries());
        all.extend(settings.into_iter().map(|(key, value)| Operation::Set { key, value }));
        if self.placement != wanted.placement {
            let stamp = PolicyVersion::default();
            let placement = wanted.placement.clone().map(|policy| Stamped { stamp, policy });
            all.push(Operation::SetPlacement { placement });
        }
        all
    }

    /// Returns the operations that make the wanted policies of vports.
    fn vport_changes(&self, wanted: &Self) -> Vec<Operation> {
        let (before, after) = (by_vport(&self.vport), by_vport(&wanted.vport));
        let (none, mut all) = (PortPolicy::default(), Vec::new());
        let vports: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
        for vport in vports {
            let of = |side: &BTreeMap<_, &PortPolicy>| {
                side.get(&vport).map_or_else(|| values(&none), |policy| values(*policy))
            };
            let (vnet, port) = (vport.0.to_owned(), vport.1.to_owned());
            all.extend(changes(&of(&before), &of(&after)).into_iter().map(|(key, value)| {
                Operation::SetVport { vnet: vnet.clone(), port: port.clone(), key, value }
            }));
        }
        all
    }
}

/// Returns a text whose matches name networks by their VNIs; `None` if none names one otherwise.
fn with_numbers(text: &str) -> Result<Option<toml::Table>, NotText> {
    // The reader of the whole text says what is wrong with its form, and where.
    let Ok(mut tree) = toml::from_str::<toml::Table>(text) else { return Ok(None) };
    let vnets = tree.get("vnet").cloned();
    let high = tree.get_mut("placement").and_then(|placement| placement.get_mut("high"));
    let mut has_names = false;
    for one in high.and_then(toml::Value::as_array_mut).into_iter().flatten() {
        let toml::Value::String(one) = one else { continue };
        let number = |part: &str| match part.split_once('=') {
            Some(("vnet", name)) => vni_of(vnets.as_ref(), name).map(|vni| format!("vni={vni}")),
            _ => Ok(part.to_owned()),
        };
        let parts: Vec<String> = one.split(',').map(number).collect::<Result<_, _>>()?;
        let next = parts.join(",");
        has_names |= next != *one;
        *one = next;
    }
    Ok(has_names.then_some(tree))
}

/// Returns the VNI of a network of a text.
fn vni_of(vnets: Option<&toml::Value>, name: &str) -> Result<i64, NotText> {
    let vnet = vnets.and_then(|vnets| vnets.get(name));
    vnet.and_then(|vnet| vnet.get("vni")?.as_integer()).ok_or_else(|| {
        NotText(format!(
            "`placement.high` names `vnet={name}`, and the text has no network `{name}` with a \
             `vni`: add `[vnet.{name}]`, or name the network by `vni=`"
        ))
    })
}

impl Editable {
    /// Returns the operations that make the wanted VLANs: those that free VLANs and networks of
    /// trunks, and those that take them.
    fn vlan_changes(&self, wanted: &Self) -> (Vec<Operation>, Vec<Operation>) {
        let (before, after) = (by_number(&self.vlan), by_number(&wanted.vlan));
        let set = |(trunk, number): &(&str, u16), vlan: Option<&Vlan>| {
            let (trunk, number) = ((*trunk).to_owned(), *number);
            Operation::SetVlan { trunk, number, vlan: vlan.cloned() }
        };
        let gone = before.iter().filter(|(key, vlan)| after.get(*key) != Some(*vlan));
        let come = after.iter().filter(|(key, vlan)| before.get(*key) != Some(*vlan));
        (
            gone.map(|(key, _)| set(key, None)).collect(),
            come.map(|(key, vlan)| set(key, Some(vlan))).collect(),
        )
    }
}

fn by_number(all: &Vlans) -> BTreeMap<(&str, u16), &Vlan> {
    let all = all.iter().flat_map(|(trunk, vlans)| {
        vlans.iter().map(move |(number, vlan)| ((trunk.as_str(), *number), vlan))
    });
    all.collect()
}

const fn is_default(operation: &Operation) -> bool {
    matches!(operation, Operation::SetVport { value: None, .. })
}

fn by_vport(all: &PortPolicies) -> BTreeMap<(&str, &str), &PortPolicy> {
    let all = all.iter().flat_map(|(vnet, vports)| {
        vports.iter().map(move |(port, policy)| ((vnet.as_str(), port.as_str()), policy))
    });
    all.collect()
}

fn values(of: &impl Serialize) -> BTreeMap<String, Value> {
    match serde_json::to_value(of).expect("plain data") {
        Value::Object(map) => map.into_iter().collect(),
        _ => BTreeMap::new(),
    }
}

/// Returns the keys whose values differ, with the wanted values.
fn changes(
    from: &BTreeMap<String, Value>,
    to: &BTreeMap<String, Value>,
) -> Vec<(String, Option<Value>)> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), None));
    let set = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
    gone.chain(set.map(|(key, value)| (key.clone(), Some(value.clone())))).collect()
}
