//! The datagram: a line of JSON.
//!
//! ```json
//! {"sluice":1,"host":"h1","program":"0.1.0","port":7474,
//!  "fabric":{"name":"prod","authority":"…64 hexadecimal digits…"}}
//! ```
//!
//! A host without a fabric leaves `fabric` out. The address is that of the sender. Unknown keys are
//! ignored; a beacon of another format is unreadable.

use serde::{Deserialize, Serialize};

/// Largest beacon: no network fragments it (RFC 791: 576 bytes with headers).
pub const BEACON_SIZE_MAX: usize = 512;

const FORMAT: u32 = 1;
/// Longest name of a host or a fabric, and longest version, in bytes.
const TEXT_SIZE_MAX: usize = 64;
const FINGERPRINT_DIGITS: usize = 64;

/// Reason why a datagram is no beacon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeaconError {
    /// It is longer than [`BEACON_SIZE_MAX`].
    #[error("a beacon has {BEACON_SIZE_MAX} bytes at most; use shorter names")]
    Size,
    /// It is no JSON of a beacon.
    #[error("it is no beacon")]
    Form,
    /// It is of another format.
    #[error("its format is another; compare `sluice --version` of the hosts")]
    Format,
    /// One of its texts could control a terminal, or is too long.
    #[error("a name in it is empty, longer than {TEXT_SIZE_MAX} bytes, or not printable")]
    Text,
}

/// Words of a host about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacon {
    sluice: u32,
    host: String,
    program: String,
    port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fabric: Option<Membership>,
}

/// Fabric that a host says it is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    name: String,
    authority: String,
}

impl Membership {
    /// Returns the name of the fabric.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fingerprint of its authority.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

impl Beacon {
    /// Makes the beacon of a host that waits to create or join a fabric. `port` is that of fabric
    /// sessions.
    ///
    /// # Errors
    /// If the name cannot be shown, or is too long.
    pub fn waiting(host: &str, port: u16) -> Result<Self, BeaconError> {
        let (host, program) = (host.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        Self { sluice: FORMAT, host, program, port, fabric: None }.checked()
    }

    /// Makes the beacon of a member of fabric `name`, with the fingerprint of its authority.
    ///
    /// # Errors
    /// If a name cannot be shown, or is too long.
    pub fn member(
        host: &str,
        port: u16,
        (name, authority): (&str, &str),
    ) -> Result<Self, BeaconError> {
        let (name, authority) = (name.to_owned(), authority.to_owned());
        let fabric = Some(Membership { name, authority });
        Self { fabric, ..Self::waiting(host, port)? }.checked()
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// If it is no beacon, or could not be shown.
    pub fn parse(datagram: &[u8]) -> Result<Self, BeaconError> {
        /// Beginning that beacons of all formats have.
        #[derive(Deserialize)]
        struct Header {
            sluice: u32,
        }
        if datagram.len() > BEACON_SIZE_MAX {
            return Err(BeaconError::Size);
        }
        let none = |_| BeaconError::Form;
        let header: Header = serde_json::from_slice(datagram).map_err(none)?;
        if header.sluice != FORMAT {
            return Err(BeaconError::Format);
        }
        serde_json::from_slice::<Self>(datagram).map_err(none)?.checked()
    }

    /// Returns the datagram.
    #[must_use]
    pub fn datagram(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers")
    }

    /// Returns the name of the host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the version of its program.
    #[must_use]
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Returns the port of its fabric sessions.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Returns its fabric, if it has one.
    #[must_use]
    pub const fn fabric(&self) -> Option<&Membership> {
        self.fabric.as_ref()
    }

    fn checked(self) -> Result<Self, BeaconError> {
        let is_fine =
            |fabric: &Membership| is_plain(&fabric.name) && is_fingerprint(&fabric.authority);
        let is_member_fine = self.fabric.as_ref().is_none_or(is_fine);
        if !is_plain(&self.host) || !is_plain(&self.program) || !is_member_fine {
            return Err(BeaconError::Text);
        }
        if self.datagram().len() > BEACON_SIZE_MAX {
            return Err(BeaconError::Size);
        }
        Ok(self)
    }
}

/// Returns true for a text that looks the same on any terminal.
fn is_plain(text: &str) -> bool {
    let is_short = (1..=TEXT_SIZE_MAX).contains(&text.len());
    is_short && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_fingerprint(text: &str) -> bool {
    text.len() == FINGERPRINT_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
