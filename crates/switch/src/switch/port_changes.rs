//! Values of an attached port that change while it runs.
//!
//! | value | frames that wait | later ones |
//! |---|---|---|
//! | rate | leave at the new rate, in their order; a change gives no burst | the same |
//! | default priority | keep their priority | have the new one, if they have none of their own |
//! | allowed prefixes | have passed | are judged by the new list |
//!
//! **Several switches of a host.** Each of them executes every change. The one that reads and
//! writes the port applies its rate and its list; a port that migrates later takes them along.

use alloc::vec::Vec;

use sluice_base::{Buf, IpPrefix, PortId, Priority};

use crate::config::{ConfigError, PortRole, RateLimit, Sources};
use crate::surface::ALLOWED_MAX;
use crate::switch::Switch;
use crate::switch::changes::ChangeError;

/// Values of a port that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortValues {
    /// Rate of its output; `None`: no limit.
    pub rate: Option<RateLimit>,
    /// Priority of received frames without one.
    pub default_priority: Priority,
    /// Prefixes that its bound machines may use beside their own addresses.
    pub allowed: Vec<IpPrefix>,
}

impl<B: Buf> Switch<B> {
    /// Sets the values of an access port. A port that is detached has none, and stays as it is.
    ///
    /// # Errors
    /// [`ChangeError`]; nothing was changed.
    pub fn set_port(&mut self, port: PortId, values: &PortValues) -> Result<(), ChangeError> {
        let at = port.index();
        let p = self.egress.ports().get(at).ok_or(ChangeError::NoSuchPort(port))?;
        if !matches!(p.role(), PortRole::Access { .. }) {
            return Err(ChangeError::NoSuchPort(port));
        }
        let (is_here, is_detached) = (!p.is_elsewhere(), p.is_detached());
        if values.rate.is_some_and(|limit| limit.rate.0 == 0) {
            return Err(ChangeError::Config(ConfigError::RateTooSmall { port }));
        }
        if values.allowed.len() > ALLOWED_MAX {
            let (what, limit) = ("prefixes of a port", ALLOWED_MAX);
            return Err(ChangeError::Config(ConfigError::TooMany { what, limit }));
        }
        if is_detached {
            return Ok(());
        }
        self.egress.set_default_priority(at, values.default_priority);
        if is_here {
            self.egress.set_rate(at, values.rate);
            // A port that takes any source has no list.
            if self.sources.of(at) == Sources::Bound {
                self.set_allowed(port, &values.allowed);
            }
        }
        Ok(())
    }
}
