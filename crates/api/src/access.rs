//! Holders of tokens and certificates, who use the management API over the network: each has a name
//! and a role.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most tokens of a host.
pub const TOKENS_MAX: usize = 256;
/// Longest name of a token, in bytes.
pub const NAME_SIZE_MAX: usize = 64;
/// Most networks of a tenant's token.
pub const VNETS_MAX: usize = 64;
/// Most names of namespaces of a tenant.
pub const NETNS_MAX: usize = 16;
/// Longest validity, in days.
pub const DAYS_MAX: u32 = 3_650;

/// Rights of the holder of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = TokenRole))]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at the endpoints, ports and values of its own networks, and have ports there in
    /// namespaces of its own.
    Tenant,
    /// Look at everything.
    Viewer,
    /// Also add and delete ports, and let endpoints move again.
    Operator,
    /// Everything that root may.
    Admin,
}

impl Role {
    const ALL: [(Self, &str); 4] = [
        (Self::Tenant, "tenant"),
        (Self::Viewer, "viewer"),
        (Self::Operator, "operator"),
        (Self::Admin, "admin"),
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(role, _)| role == self).map(|(_, word)| *word);
        out.pad(word.unwrap_or_default())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, word)| *word == text).map(|(role, _)| *role);
        found.ok_or_else(|| {
            format!("`{text}` is no role; use `tenant`, `viewer`, `operator` or `admin`")
        })
    }
}

/// The holder of a token, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Name of the holder, for the log.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Networks of a tenant; empty for other roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<String>,
    /// Network namespaces of a tenant, in which it may have ports: names below `/run/netns`, or
    /// their beginnings, as in `shop-*`. Its ports are named so, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netns: Vec<String>,
}

impl Grant {
    /// Checks a grant that somebody asks for.
    ///
    /// # Errors
    /// The mistake, with the remedy.
    pub fn check(&self) -> Result<(), String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '@');
        if self.name.is_empty() || self.name.len() > NAME_SIZE_MAX || !self.name.chars().all(good) {
            return Err(format!(
                "`{}` cannot be the name of a token; use 1 to {NAME_SIZE_MAX} letters, digits, \
                 `-`, `_`, `.` and `@`",
                self.name.escape_default()
            ));
        }
        self.check_netns()?;
        match (self.role, self.vnets.len()) {
            (Role::Tenant, 0) => {
                Err("a tenant has networks of its own; name each by `--vnet`".to_owned())
            }
            (Role::Tenant, count) if count > VNETS_MAX => {
                Err(format!("a tenant has at most {VNETS_MAX} networks; make another token"))
            }
            (Role::Tenant, _) | (_, 0) => Ok(()),
            (role, _) => Err(format!(
                "the role `{role}` is for all networks; leave `--vnet` out, or use `tenant`"
            )),
        }
    }

    /// Checks the namespaces.
    ///
    /// # Errors
    /// The mistake, with the remedy.
    pub fn check_netns(&self) -> Result<(), String> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_good = |pattern: &String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
            begins && name.len() <= NAME_SIZE_MAX && name.chars().all(good)
        };
        if let Some(wrong) = self.netns.iter().find(|pattern| !is_good(pattern)) {
            return Err(format!(
                "`{}` names no namespaces of a tenant; use a name of letters, digits, `-`, `_` and \
                 `.`, or the beginning of names, as in `shop-*`",
                wrong.escape_default()
            ));
        }
        if self.netns.len() > NETNS_MAX {
            return Err(format!("a tenant has at most {NETNS_MAX} names of namespaces; use `*`"));
        }
        if self.role != Role::Tenant && !self.netns.is_empty() {
            return Err(format!(
                "the role `{}` has ports in all namespaces or in none; leave `--netns` out, or use \
                 `tenant`",
                self.role
            ));
        }
        Ok(())
    }

    /// Returns true if a name is one of the tenant's namespaces.
    #[must_use]
    pub fn has_netns(&self, name: &str) -> bool {
        self.netns.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start) && !name.contains('/'),
            None => name == pattern,
        })
    }
}

/// A token as it is shown: all but its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenEntry {
    /// The holder.
    #[serde(flatten)]
    pub grant: Grant,
    /// Time at which it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// Time of its end, in milliseconds since 1970; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Name of the holder, for the log.
    #[cfg_attr(feature = "openapi", schema(pattern = "^[-A-Za-z0-9_.@]{1,64}$"))]
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Networks of a tenant; none for other roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<String>,
    /// Network namespaces in which a tenant may have ports: their names, or beginnings (`shop-*`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub netns: Vec<String>,
    /// Days for which it is valid; absent: until it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 3_650))]
    pub days: Option<u32>,
}

/// A question about tokens, or a change of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Make a token.
    Make(NewToken),
    /// List the tokens.
    List,
    /// End a token, by its name.
    Revoke(String),
}

/// A token that was made. Its text is shown once, and kept nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Made {
    /// The text that its holder sends.
    pub token: String,
    /// The part that is kept.
    #[serde(flatten)]
    pub entry: TokenEntry,
}

/// The tokens of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Tokens {
    /// In the order in which they were made.
    pub tokens: Vec<TokenEntry>,
}

/// A token that was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Revoked {
    /// Its name.
    pub revoked: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(name: &str, role: Role, vnets: &[&str]) -> Grant {
        let vnets = vnets.iter().map(|&vnet| vnet.to_owned()).collect();
        Grant { name: name.to_owned(), role, vnets, netns: Vec::new() }
    }

    #[test]
    fn roles_are_read_as_written() {
        for (role, word) in Role::ALL {
            assert_eq!((word.parse(), role.to_string()), (Ok(role), word.to_owned()));
            assert_eq!(serde_json::to_value(role).unwrap(), word);
        }
        assert!("root".parse::<Role>().unwrap_err().contains("`admin`"));
    }

    #[test]
    fn namespaces_are_named_or_begun() {
        let with = |role, netns: &[&str]| {
            let netns = netns.iter().map(|&name| name.to_owned()).collect();
            Grant { netns, ..grant("shop", role, &["blue"]) }
        };
        let tenant = with(Role::Tenant, &["shop-*", "web"]);
        assert_eq!(tenant.check(), Ok(()));
        for (name, is_own) in [
            ("shop-1", true),
            ("shop-", true),
            ("web", true),
            ("shop", false),
            ("web2", false),
            ("shop-/../other", false),
            ("", false),
        ] {
            assert_eq!(tenant.has_netns(name), is_own, "{name}");
        }
        for wrong in ["", "*", "..", "a/b", "a*b", "/run/netns/a", "a b"] {
            let why = with(Role::Tenant, &[wrong]).check().unwrap_err();
            assert!(why.contains("`shop-*`"), "{why}");
        }
        let role = with(Role::Operator, &["web"]).check().unwrap_err();
        assert!(role.contains("leave `--netns` out"), "{role}");
        assert!(with(Role::Tenant, &["a"; NETNS_MAX + 1]).check().is_err());
    }

    #[test]
    fn only_tenants_have_networks() {
        assert_eq!(grant("shop", Role::Tenant, &["blue"]).check(), Ok(()));
        assert_eq!(grant("neutron@cloud.1", Role::Operator, &[]).check(), Ok(()));
        let long = "x".repeat(NAME_SIZE_MAX + 1);
        for (wrong, part) in [
            (grant("", Role::Viewer, &[]), "cannot be the name"),
            (grant("a b", Role::Viewer, &[]), "`a b`"),
            (grant("\u{1b}[2J", Role::Viewer, &[]), "\\u{1b}"),
            (grant(&long, Role::Viewer, &[]), "1 to 64"),
            (grant("shop", Role::Tenant, &[]), "--vnet"),
            (grant("shop", Role::Tenant, &["blue"; VNETS_MAX + 1]), "another token"),
            (grant("ops", Role::Admin, &["blue"]), "leave `--vnet` out"),
        ] {
            let why = wrong.check().unwrap_err();
            assert!(why.contains(part), "{why}");
        }
    }
}
