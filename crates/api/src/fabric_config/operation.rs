//! Operations on the configuration of a fabric.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::set;
use super::{
    AuthorityEntry, FabricConfig, ID_MAX, Member, NotApplicable, Token, TokenUse, Vlan,
    VnetSettings, check_name, check_vnet, short,
};
use crate::placement::{Policy, Stamped, VERSION_MAX};

/// Longest part of an unknown operation that is repeated, in characters.
const UNKNOWN_SIZE_MAX: usize = 96;
/// Largest change in bytes.
pub(super) const CHANGE_SIZE_MAX: usize = 1 << 20;

/// An operation. A change is a list of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// A host joins.
    AddMember {
        /// Name of the host.
        name: String,
        /// The member.
        member: Member,
    },
    /// A host leaves, or is evicted.
    RemoveMember {
        /// Name of the host.
        name: String,
    },
    /// Changes one value of a member.
    SetMember {
        /// Name of the host.
        name: String,
        /// The value's key.
        key: String,
        /// The value; absent: its default.
        #[serde(default)]
        value: Option<Value>,
    },
    /// Makes a network.
    CreateVnet {
        /// Name of the network.
        name: String,
        /// The network.
        vnet: VnetSettings,
    },
    /// Deletes a network.
    DeleteVnet {
        /// Name of the network.
        name: String,
    },
    /// Changes one value of a network.
    SetVnet {
        /// Name of the network.
        name: String,
        /// The value's key.
        key: String,
        /// The value; absent: its default.
        #[serde(default)]
        value: Option<Value>,
    },
    /// Changes one value of a vport's policy.
    SetVport {
        /// Network of the vport.
        vnet: String,
        /// Name of its port, at whichever host it is.
        port: String,
        /// The value's key.
        key: String,
        /// The value; absent: that of its host and its network.
        #[serde(default)]
        value: Option<Value>,
    },
    /// Makes a network of a VLAN of a trunk, or leaves the VLAN alone again.
    SetVlan {
        /// Name of the trunk.
        trunk: String,
        /// The VLAN.
        number: u16,
        /// The network behind it; absent: none.
        #[serde(default)]
        vlan: Option<Vlan>,
    },
    /// Changes a setting.
    Set {
        /// Key of the setting.
        key: String,
        /// The value; absent: its default.
        #[serde(default)]
        value: Option<Value>,
    },
    /// Sets the placement policy of all hosts.
    SetPlacement {
        /// The policy; absent: the one that members hold among themselves. A stamp of zero is
        /// replaced by the host at which the change begins.
        #[serde(default)]
        placement: Option<Stamped>,
    },
    /// Lets one host join.
    AddToken {
        /// Public part of the token.
        id: String,
        /// The token.
        token: Token,
    },
    /// A host joins with a token.
    SpendToken {
        /// Public part of the token.
        id: String,
        /// The host.
        by: TokenUse,
    },
    /// Forgets a token.
    RemoveToken {
        /// Public part of the token.
        id: String,
    },
    /// Replaces the authorities.
    SetAuthorities {
        /// Their certificates in PEM, the one that signs first.
        authorities: Vec<String>,
    },
    /// Trusts another authority, which will sign.
    AddAuthority {
        /// The authority.
        authority: AuthorityEntry,
    },
    /// Makes the next authority the one that signs.
    SignBy {
        /// Its fingerprint, in hexadecimal digits.
        fingerprint: String,
    },
    /// Trusts an authority no more.
    RemoveAuthority {
        /// The authority.
        authority: AuthorityEntry,
    },
    /// Gives the next authority up, before it signs.
    AbandonAuthority {
        /// Its fingerprint, in hexadecimal digits.
        fingerprint: String,
    },
    /// Ends a certificate before its time.
    Revoke {
        /// Serial number in hexadecimal digits.
        serial: String,
        /// Host of the certificate.
        host: String,
    },
}

/// Error: bytes that are no change this program understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They are no list of operations.
    NoChange(String),
    /// This program does not know an operation.
    UnknownOperation(String),
    /// They are too many.
    TooLarge(usize),
}

impl std::error::Error for Unreadable {}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoChange(why) => write!(f, "this is no change of a configuration: {why}"),
            Self::UnknownOperation(name) => write!(
                f,
                "version {} does not know the operation `{name}`; upgrade this host first",
                env!("CARGO_PKG_VERSION")
            ),
            Self::TooLarge(size) => write!(
                f,
                "a change of {size} bytes is larger than {CHANGE_SIZE_MAX}; make it in parts"
            ),
        }
    }
}

/// Names of the operations, as they are written.
pub(super) const NAMES: [&str; 19] = [
    "add_member",
    "remove_member",
    "set_member",
    "create_vnet",
    "delete_vnet",
    "set_vnet",
    "set_vport",
    "set_vlan",
    "set",
    "set_placement",
    "add_token",
    "spend_token",
    "remove_token",
    "set_authorities",
    "add_authority",
    "sign_by",
    "remove_authority",
    "abandon_authority",
    "revoke",
];

/// Returns the bytes of a change.
///
/// # Panics
/// Never: operations are plain data.
#[must_use]
pub fn write_change(change: &[Operation]) -> Vec<u8> {
    serde_json::to_vec(change).expect("operations are plain data")
}

/// Reads a change.
///
/// # Errors
/// See [`Unreadable`].
pub fn read_change(bytes: &[u8]) -> Result<Vec<Operation>, Unreadable> {
    if bytes.len() > CHANGE_SIZE_MAX {
        return Err(Unreadable::TooLarge(bytes.len()));
    }
    match serde_json::from_slice(bytes) {
        Ok(change) => Ok(change),
        Err(error) => {
            Err(unknown(bytes).unwrap_or_else(|| Unreadable::NoChange(error.to_string())))
        }
    }
}

/// Returns the first operation that this program does not know, or of which it does not know a
/// part. A host that took either for one that does not fit would go on with another configuration
/// than all others.
fn unknown(bytes: &[u8]) -> Option<Unreadable> {
    let all: Vec<Value> = serde_json::from_slice(bytes).ok()?;
    let name = all.iter().find_map(unknown_part)?;
    Some(Unreadable::UnknownOperation(name.chars().take(UNKNOWN_SIZE_MAX).collect()))
}

/// Returns the name of an operation that this program does not know, or that with its unknown part.
fn unknown_part(operation: &Value) -> Option<String> {
    let name = match operation {
        Value::String(name) => name,
        operation => operation.as_object()?.keys().next()?,
    };
    if !NAMES.contains(&name.as_str()) {
        return Some(name.clone());
    }
    let why = Operation::deserialize(operation).err()?.to_string();
    let what = why.split(", ").next().filter(|what| what.starts_with("unknown "))?;
    Some(format!("{name} ({what})"))
}

impl Operation {
    /// Applies the operation, and returns the one that undoes it, if a roll-back does.
    pub(super) fn apply(&self, to: &mut FabricConfig) -> Result<Option<Self>, NotApplicable> {
        match self {
            Self::AddMember { name, member } => add_member(to, name, member).map(|()| None),
            Self::RemoveMember { name } => match to.members.remove(name) {
                Some(_) => Ok(None),
                None => Err(no_member(to, name)),
            },
            Self::SetMember { name, key, value } => {
                set_member(to, name, key, value.as_ref()).map(|()| None)
            }
            Self::CreateVnet { name, vnet } => create_vnet(to, name, vnet).map(Some),
            Self::DeleteVnet { name } => delete_vnet(to, name).map(Some),
            Self::SetVnet { name, key, value } => set_vnet(to, name, key, value.as_ref()).map(Some),
            Self::SetVport { vnet, port, key, value } => {
                super::vport::set_policy(to, (vnet, port), key, value.as_ref()).map(Some)
            }
            Self::SetVlan { trunk, number, vlan } => {
                let before = super::vlan::set(to, trunk, *number, vlan.as_ref())?;
                Ok(Some(Self::SetVlan { trunk: trunk.clone(), number: *number, vlan: before }))
            }
            Self::Set { key, value } => {
                let before = to.settings.set(key, value.as_ref())?;
                Ok(Some(Self::Set { key: key.clone(), value: before }))
            }
            Self::SetPlacement { placement } => set_placement(to, placement.as_ref()).map(Some),
            Self::AddToken { id, token } => match to.tokens.contains_key(id) {
                true => Err(NotApplicable::of(format!("there is a token `{id}` already"))),
                false => {
                    to.tokens.insert(id.clone(), token.clone());
                    Ok(None)
                }
            },
            Self::SpendToken { id, by } => spend(to, id, by).map(|()| None),
            Self::RemoveToken { id } => match to.tokens.remove(id) {
                Some(_) => Ok(None),
                None => Err(NotApplicable::of(format!("there is no token `{id}`"))),
            },
            Self::SetAuthorities { authorities } => {
                to.trust.set_authorities(authorities).map(|()| None)
            }
            Self::AddAuthority { authority } => to.trust.add(authority).map(|()| None),
            Self::SignBy { fingerprint } => to.trust.sign_by(fingerprint).map(|()| None),
            Self::RemoveAuthority { authority } => to.trust.remove(authority).map(|()| None),
            Self::AbandonAuthority { fingerprint } => to.trust.abandon(fingerprint).map(|()| None),
            Self::Revoke { serial, host } => to.trust.revoke(serial, host).map(|()| None),
        }
    }

    /// Returns the names that the operation decides about: two changes with a common one exclude
    /// each other while neither is decided.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        match self {
            Self::AddMember { name, member } => vec![
                format!("member {name}"),
                format!("number {}", member.id),
                format!("VTEP {}", member.vtep),
            ],
            Self::RemoveMember { name } | Self::SetMember { name, .. } => {
                vec![format!("member {name}")]
            }
            Self::CreateVnet { name, vnet } => {
                vec![format!("network {name}"), format!("VNI {}", vnet.vni)]
            }
            Self::DeleteVnet { name } => vec![format!("network {name}")],
            Self::SetVnet { name, key, value } => {
                let vni = value.as_ref().filter(|_| key == "vni");
                let vni = vni.map(|vni| format!("VNI {vni}"));
                vni.into_iter().chain([format!("network {name}")]).collect()
            }
            Self::SetVport { vnet, port, .. } => vec![format!("vport {vnet}/{port}")],
            // The VLANs of a trunk exclude each other's networks.
            Self::SetVlan { trunk, .. } => vec![format!("trunk {trunk}")],
            Self::Set { key, .. } => {
                let table = key.split('.').take(2).collect::<Vec<_>>().join(".");
                vec![format!("setting {table}")]
            }
            Self::SetPlacement { .. } => vec!["placement policy".to_owned()],
            Self::AddToken { id, .. } | Self::SpendToken { id, .. } | Self::RemoveToken { id } => {
                vec![format!("token {id}")]
            }
            Self::SetAuthorities { .. }
            | Self::AddAuthority { .. }
            | Self::SignBy { .. }
            | Self::RemoveAuthority { .. }
            | Self::AbandonAuthority { .. } => vec!["authorities".to_owned()],
            Self::Revoke { serial, .. } => vec![format!("certificate {serial}")],
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Option<Value>| match value {
            Some(value) => value.to_string(),
            None => "its default".to_owned(),
        };
        match self {
            Self::AddMember { name, member } => {
                write!(f, "member {name} joins: number {}, VTEP {}", member.id, member.vtep)
            }
            Self::RemoveMember { name } => write!(f, "member {name} leaves"),
            Self::SetMember { name, key, value } => {
                write!(f, "member {name}: {key} = {}", shown(value))
            }
            Self::CreateVnet { name, vnet } => {
                write!(f, "network {name} is made: VNI {}", vnet.vni)?;
                vnet.mtu.map_or(Ok(()), |mtu| write!(f, ", MTU {mtu}"))
            }
            Self::DeleteVnet { name } => write!(f, "network {name} is deleted"),
            Self::SetVnet { name, key, value } => {
                write!(f, "network {name}: {key} = {}", shown(value))
            }
            Self::SetVport { vnet, port, key, value } => {
                write!(f, "vport {vnet}/{port}: {key} = {}", shown(value))
            }
            Self::SetVlan { trunk, number, vlan } => {
                super::vlan::write(f, trunk, *number, vlan.as_ref())
            }
            Self::Set { key, value } => write!(f, "{key} = {}", shown(value)),
            Self::SetPlacement { placement } => write_placement(f, placement.as_ref()),
            Self::AddToken { id, .. } => write!(f, "token {id} is made"),
            Self::SpendToken { id, by } => write!(f, "{} joins with token {id}", by.host),
            Self::RemoveToken { id } => write!(f, "token {id} is forgotten"),
            Self::SetAuthorities { authorities } => {
                write!(f, "authorities are replaced: {} of them", authorities.len())
            }
            Self::AddAuthority { authority } => {
                write!(f, "authority {} is trusted beside the one that signs", authority.short())
            }
            Self::SignBy { fingerprint } => {
                write!(f, "authority {} signs from now on", short(fingerprint))
            }
            Self::RemoveAuthority { authority } => {
                write!(f, "authority {} is not believed any more", authority.short())
            }
            Self::AbandonAuthority { fingerprint } => {
                write!(f, "authority {} does not follow, and is not trusted", short(fingerprint))
            }
            Self::Revoke { serial, host } => {
                write!(f, "certificate {serial} of {host} is not believed any more")
            }
        }
    }
}

fn add_member(to: &mut FabricConfig, name: &str, member: &Member) -> Result<(), NotApplicable> {
    check_name("host", name)?;
    if member.id == 0 || member.id > ID_MAX {
        return Err(NotApplicable::of(format!("number {} is not within 1 to {ID_MAX}", member.id)));
    }
    if member.seat == 0 || member.seat >= 1 << 48 {
        return Err(NotApplicable::of(
            "the identity of its disk does not fit into 48 bits".to_owned(),
        ));
    }
    if to.members.contains_key(name) {
        return Err(NotApplicable::of(format!(
            "there is a member `{name}` already; give the host another name, or evict that member \
             first (`sluice fabric evict {name}`)"
        )));
    }
    check_unique(to, name, member)?;
    to.members.insert(name.to_owned(), member.clone());
    Ok(())
}

/// Checks that no other member has the number or an address of this one.
fn check_unique(all: &FabricConfig, name: &str, member: &Member) -> Result<(), NotApplicable> {
    let others = || all.members.iter().filter(|(other, _)| *other != name);
    if let Some((other, _)) = others().find(|(_, other)| other.id == member.id) {
        return Err(NotApplicable::of(format!("member `{other}` has the number {}", member.id)));
    }
    if let Some((other, _)) = others().find(|(_, other)| other.vtep == member.vtep) {
        return Err(NotApplicable::of(format!(
            "member `{other}` has the VTEP {}; evict it first if that host is gone",
            member.vtep
        )));
    }
    if let Some((other, _)) = others().find(|(_, other)| other.listen() == member.listen()) {
        return Err(NotApplicable::of(format!(
            "member `{other}` listens on {}; evict it first if that host is gone",
            member.listen()
        )));
    }
    Ok(())
}

fn set_member(
    to: &mut FabricConfig,
    name: &str,
    key: &str,
    value: Option<&Value>,
) -> Result<(), NotApplicable> {
    let Some(member) = to.members.get(name) else { return Err(no_member(to, name)) };
    if ["id", "seat"].contains(&key) {
        return Err(NotApplicable::of(format!("`{key}` of a member does not change")));
    }
    let mut next = member.clone();
    set(&mut next, key, value)?;
    check_unique(to, name, &next)?;
    to.members.insert(name.to_owned(), next);
    Ok(())
}

fn create_vnet(
    to: &mut FabricConfig,
    name: &str,
    vnet: &VnetSettings,
) -> Result<Operation, NotApplicable> {
    check_vnet(name, vnet)?;
    if let Some(known) = to.vnets.get(name) {
        return Err(NotApplicable::of(format!(
            "there is a network `{name}` already, with VNI {}",
            known.vni
        )));
    }
    check_vni(to, name, vnet.vni)?;
    to.vnets.insert(name.to_owned(), vnet.clone());
    Ok(Operation::DeleteVnet { name: name.to_owned() })
}

fn delete_vnet(to: &mut FabricConfig, name: &str) -> Result<Operation, NotApplicable> {
    if let Some(vports) = to.vports.get(name) {
        // A network may have thousands.
        let some: Vec<&str> = vports.keys().take(8).map(String::as_str).collect();
        let more = match vports.len() - some.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        return Err(NotApplicable::of(format!(
            "network `{name}` has vports with a policy: {}{more}; take these out first, by `sluice \
             vport clear` or in the same `sluice config edit`",
            some.join(", ")
        )));
    }
    if let Some(trunks) = super::vlan::behind(&to.vlans, name) {
        return Err(NotApplicable::of(format!(
            "network `{name}` is {trunks}; take that out first, by `sluice vlan unmap` or in the \
             same `sluice config edit`"
        )));
    }
    match to.vnets.remove(name) {
        Some(vnet) => Ok(Operation::CreateVnet { name: name.to_owned(), vnet }),
        None => Err(no_vnet(to, name)),
    }
}

fn check_vni(all: &FabricConfig, name: &str, vni: u32) -> Result<(), NotApplicable> {
    match all.vnets.iter().find(|(other, known)| *other != name && known.vni == vni) {
        Some((other, _)) => Err(NotApplicable::of(format!("network `{other}` has VNI {vni}"))),
        None => Ok(()),
    }
}

fn set_vnet(
    to: &mut FabricConfig,
    name: &str,
    key: &str,
    value: Option<&Value>,
) -> Result<Operation, NotApplicable> {
    let Some(vnet) = to.vnets.get(name) else { return Err(no_vnet(to, name)) };
    let mut next = vnet.clone();
    let value = set(&mut next, key, value)?;
    check_vnet(name, &next)?;
    check_vni(to, name, next.vni)?;
    to.vnets.insert(name.to_owned(), next);
    Ok(Operation::SetVnet { name: name.to_owned(), key: key.to_owned(), value })
}

fn set_placement(
    to: &mut FabricConfig,
    placement: Option<&Stamped>,
) -> Result<Operation, NotApplicable> {
    if let Some(Stamped { stamp, policy }) = placement {
        policy.check().map_err(NotApplicable::of)?;
        if stamp.version > VERSION_MAX {
            return Err(NotApplicable::of(format!(
                "a placement policy has a version up to {VERSION_MAX}, and this one {}",
                stamp.version
            )));
        }
    }
    let before = std::mem::replace(&mut to.placement, placement.cloned());
    Ok(Operation::SetPlacement { placement: before })
}

fn write_placement(f: &mut fmt::Formatter<'_>, placement: Option<&Stamped>) -> fmt::Result {
    match placement {
        None => write!(f, "the placement policy is the one that members hold among themselves"),
        Some(Stamped { policy, .. }) if *policy == Policy::default() => {
            write!(f, "no placement policy: each host's own configuration holds")
        }
        Some(Stamped { policy, .. }) => {
            let text = serde_json::to_string(policy).map_err(|_| fmt::Error)?;
            write!(f, "placement policy = {text}")
        }
    }
}

fn spend(to: &mut FabricConfig, id: &str, by: &TokenUse) -> Result<(), NotApplicable> {
    let Some(token) = to.tokens.get_mut(id) else {
        let why = format!("there is no token `{id}`; make one with `sluice fabric token`");
        return Err(NotApplicable::of(why));
    };
    if let Some(other) = &token.used {
        return Err(NotApplicable::of(format!(
            "`{}` has joined with this token; make another one with `sluice fabric token`",
            other.host
        )));
    }
    token.used = Some(by.clone());
    Ok(())
}

fn no_member(all: &FabricConfig, name: &str) -> NotApplicable {
    let names: Vec<&str> = all.members.keys().map(String::as_str).collect();
    NotApplicable::of(format!("there is no member `{name}`; there is {}", names.join(", ")))
}

pub(super) fn no_vnet(all: &FabricConfig, name: &str) -> NotApplicable {
    // A fabric may have thousands.
    let names: Vec<&str> = all.vnets.keys().take(8).map(String::as_str).collect();
    let known = match (names.is_empty(), all.vnets.len() - names.len()) {
        (true, _) => "there is none at all".to_owned(),
        (false, 0) => format!("there is {}", names.join(", ")),
        (false, more) => format!("there is {} and {more} more", names.join(", ")),
    };
    NotApplicable::of(format!("there is no network `{name}`; {known}"))
}
