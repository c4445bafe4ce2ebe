//! One host: a switch and the resolver of its misses.
//!
//! The switch reports an unknown destination ([`Notice::Miss`]) and holds its frames meanwhile. The
//! [`Resolver`] answers at once for addresses that the configuration has; a control plane gets all
//! other events, or the frames end at their timeout.
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
    /// The first fault of the configuration.
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

    /// Replaces the addresses that the host knows. Entries of the forwarding table stay.
    pub fn know(&mut self, addresses: impl IntoIterator<Item = (VnetId, Mac, Destination)>) {
        self.resolver = Resolver::new(addresses);
    }

    /// Answers the misses since the last call, as far as the configuration has the addresses, and
    /// returns the number of destinations that this opened. Addresses at a port that was detached
    /// are rejected. All other events go to `control`; without one, frames for unknown destinations
    /// wait until their timeout.
    #[inline]
    pub fn resolve(&mut self, now: Nanos, mut control: impl FnMut(&Notice)) -> u32 {
        let mut opened = 0;
        while let Some(notice) = self.switch.notice() {
            if self.answer(now, &notice) {
                opened += 1;
            } else {
                control(&notice);
            }
        }
        opened
    }

    /// Answers a miss, if the address is known. Returns true if that opened a destination.
    #[inline(never)]
    fn answer(&mut self, now: Nanos, notice: &Notice) -> bool {
        let Notice::Miss { vnet, mac, .. } = *notice else { return false };
        let Some(to) = self.resolver.find(vnet, mac) else { return false };
        let installed = self.switch.command(now, Command::Install { vnet, mac, to });
        let is_gone = matches!(
            installed,
            Err(CommandError::NoSuchPort(_)
                | CommandError::NoSuchTunnel(_)
                | CommandError::NotInNetwork(_))
        );
        if is_gone {
            // The destination is gone; frames for it do not wait for an answer.
            _ = self.switch.command(now, Command::Reject { vnet, mac });
        }
        installed.is_ok()
    }
}

#[cfg(test)]
mod tests;
