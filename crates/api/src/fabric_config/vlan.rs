//! VLANs of trunks, and the networks behind them.
//!
//! A trunk is a device of a host that leads to a physical network, by a name that hosts have in
//! common: each host's file says which device that is, the configuration which networks its VLANs
//! are.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FabricConfig, NotApplicable, check_name};

/// Highest VLAN (802.1Q table 9-2: 4095 is reserved).
const VLAN_MAX: u16 = 4_094;
/// Most VLANs of all trunks.
pub const VLANS_MAX: usize = 16_384;

/// The VLANs by trunk and number.
pub type Vlans = BTreeMap<String, BTreeMap<u16, Vlan>>;

/// A VLAN of a trunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Vlan {
    /// Network behind it.
    pub vnet: String,
    /// True if the untagged frames of the trunk are of this VLAN too; its own leave untagged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub native: bool,
}

/// Sets a VLAN of a trunk, or takes it out. Returns the one from before.
pub(super) fn set(
    to: &mut FabricConfig,
    trunk: &str,
    number: u16,
    vlan: Option<&Vlan>,
) -> Result<Option<Vlan>, NotApplicable> {
    check_name("trunk", trunk)?;
    if !(1..=VLAN_MAX).contains(&number) {
        return Err(NotApplicable::of(format!("VLAN {number} is not within 1 to {VLAN_MAX}")));
    }
    let Some(vlan) = vlan else {
        let vlans = to.vlans.get_mut(trunk);
        let Some(before) = vlans.and_then(|vlans| vlans.remove(&number)) else {
            return Err(NotApplicable::of(format!(
                "VLAN {number} of trunk `{trunk}` is no network"
            )));
        };
        to.vlans.retain(|_, vlans| !vlans.is_empty());
        return Ok(Some(before));
    };
    if !to.vnets.contains_key(&vlan.vnet) {
        return Err(super::operation::no_vnet(to, &vlan.vnet));
    }
    let vlans = to.vlans.entry(trunk.to_owned()).or_default();
    let clash = clash(vlans, trunk, number, vlan);
    if let Some(why) = clash {
        to.vlans.retain(|_, vlans| !vlans.is_empty());
        return Err(NotApplicable::of(why));
    }
    Ok(vlans.insert(number, vlan.clone()))
}

/// Returns the reason against a VLAN beside the others of its trunk.
fn clash(vlans: &BTreeMap<u16, Vlan>, trunk: &str, number: u16, vlan: &Vlan) -> Option<String> {
    if let Some(there) = vlans.get(&number).filter(|there| there.vnet != vlan.vnet) {
        return Some(format!(
            "VLAN {number} of trunk `{trunk}` is network `{}`; `sluice vlan unmap {trunk} \
             {number}` first",
            there.vnet
        ));
    }
    let mut others = vlans.iter().filter(|(other, _)| **other != number);
    if let Some((other, _)) = others.clone().find(|(_, other)| other.vnet == vlan.vnet) {
        return Some(format!(
            "network `{}` is VLAN {other} of trunk `{trunk}` already, and a second one would be a \
             loop; `sluice vlan unmap {trunk} {other}` first",
            vlan.vnet
        ));
    }
    let native = others.find(|(_, other)| vlan.native && other.native)?;
    Some(format!("VLAN {} of trunk `{trunk}` has its untagged frames already", native.0))
}

/// Returns the trunks that a network is behind, in words; `None` if there are none.
pub(super) fn behind(all: &Vlans, vnet: &str) -> Option<String> {
    let of = |(trunk, vlans): (&String, &BTreeMap<u16, Vlan>)| {
        let at = vlans.iter().find(|(_, vlan)| vlan.vnet == vnet);
        at.map(|(number, _)| format!("VLAN {number} of trunk `{trunk}`"))
    };
    let all: Vec<String> = all.iter().filter_map(of).take(8).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Writes a change of a VLAN in words.
pub(super) fn write(
    f: &mut fmt::Formatter<'_>,
    trunk: &str,
    number: u16,
    vlan: Option<&Vlan>,
) -> fmt::Result {
    match vlan {
        None => write!(f, "VLAN {number} of trunk {trunk} is no network any more"),
        Some(Vlan { vnet, native }) => {
            let native = if *native { ", and has its untagged frames" } else { "" };
            write!(f, "VLAN {number} of trunk {trunk} is network {vnet}{native}")
        }
    }
}
