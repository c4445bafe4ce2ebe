//! One host: a switch and who answers its questions.
//!
//! The switch asks where an address is ([`Notice::Miss`]) and holds the frames meanwhile. What is
//! known from configuration is answered on the spot by the [`Resolver`]; everything else is left
//! to wait for a control plane, or to end when its time is over.
//!
//! Like the layers below it, this crate reads no clock and opens no socket: a live host and a
//! simulated one are the same.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod inspect;
mod resolver;
pub mod rig;

use sluice_base::{Buf, Mac, Nanos, VnetId};
use sluice_switch::{Command, ConfigError, Destination, Notice, Switch, SwitchConfig};

pub use resolver::Resolver;

/// A switch and its resolver.
#[derive(Debug)]
pub struct Host<B> {
    switch: Switch<B>,
    resolver: Resolver,
}

impl<B: Buf> Host<B> {
    /// Makes a host that knows `addresses`.
    ///
    /// # Errors
    /// The first thing in the configuration that cannot work.
    pub fn new(
        config: &SwitchConfig,
        addresses: impl IntoIterator<Item = (VnetId, Mac, Destination)>,
        seed: u64,
        now: Nanos,
    ) -> Result<Self, ConfigError> {
        let resolver = Resolver::new(addresses);
        Ok(Self { switch: Switch::new(config, seed, now)?, resolver })
    }

    /// The switch.
    #[must_use]
    pub const fn switch(&self) -> &Switch<B> {
        &self.switch
    }

    /// The switch, to drive it.
    pub const fn switch_mut(&mut self) -> &mut Switch<B> {
        &mut self.switch
    }

    /// Answers what the switch asked since the last call, as far as it is known, and returns how
    /// many destinations that opened.
    pub fn resolve(&mut self, now: Nanos) -> u32 {
        let mut opened = 0;
        while let Some(notice) = self.switch.notice() {
            // What the switch may ask will grow; what this host cannot answer waits and times out.
            let Notice::Miss { vnet, mac, .. } = notice else { continue };
            let Some(to) = self.resolver.find(vnet, mac) else { continue };
            let installed = self.switch.command(now, Command::Install { vnet, mac, to });
            opened += u32::from(installed.is_ok());
        }
        opened
    }
}

#[cfg(test)]
mod tests;
