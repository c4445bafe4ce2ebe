//! One host: a switch and who answers its questions.
//!
//! The switch asks where an address is ([`Notice::Miss`]) and holds the frames meanwhile. What is
//! known from configuration is answered on the spot by the [`Resolver`]; everything else is for a
//! control plane, or ends when its time is over.
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
use sluice_switch::{
    Command, CommandError, ConfigError, Destination, Notice, Switch, SwitchConfig,
};

pub use resolver::Resolver;

/// A switch and its resolver.
#[derive(Debug)]
#[repr(C)]
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

    /// Returns the switch.
    #[must_use]
    pub const fn switch(&self) -> &Switch<B> {
        &self.switch
    }

    /// Returns the switch, to drive it.
    pub const fn switch_mut(&mut self) -> &mut Switch<B> {
        &mut self.switch
    }

    /// Answers what the switch asked since the last call, as far as it is known from configuration,
    /// and returns how many destinations that opened. What is known to be at a port that was
    /// detached is rejected. Everything else goes to `control`; without one, frames for what is not
    /// known wait until their time is over.
    #[inline]
    pub fn resolve(&mut self, now: Nanos, mut control: impl FnMut(&Switch<B>, &Notice)) -> u32 {
        let mut opened = 0;
        while let Some(notice) = self.switch.notice() {
            if self.answer(now, &notice) {
                opened += 1;
            } else {
                control(&self.switch, &notice);
            }
        }
        opened
    }

    /// Answers what the switch asks, if it is known. True if that opened a destination.
    #[inline(never)]
    fn answer(&mut self, now: Nanos, notice: &Notice) -> bool {
        let Notice::Miss { vnet, mac, .. } = *notice else { return false };
        let Some(to) = self.resolver.find(vnet, mac) else { return false };
        let installed = self.switch.command(now, Command::Install { vnet, mac, to });
        if let Err(CommandError::NoSuchPort(_)) = installed {
            // The port is gone; whoever sends to it does not wait for an answer.
            _ = self.switch.command(now, Command::Reject { vnet, mac });
        }
        installed.is_ok()
    }
}

#[cfg(test)]
mod tests;
