//! The veth pairs of this process. Control holds copies of their descriptors and outlives this
//! process; with the last copy a pair goes.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_ports::veth::{Known, VethConfig, VethPort};
use sluice_ports::{OpenError, PortHandover};

use crate::sys::descriptors::Named;
use crate::sys::veths;

/// Pairs, by port.
#[derive(Debug)]
pub(super) struct Veths(Mutex<BTreeMap<String, Held>>);

#[derive(Debug)]
struct Held {
    copies: PortHandover,
    /// True if a port of this process uses the pair.
    is_open: bool,
}

impl Veths {
    /// Takes the pairs of an earlier process out of what control kept.
    pub(super) fn new(kept: &mut BTreeMap<String, OwnedFd>) -> Self {
        let held = |(port, copies)| (port, Held { copies, is_open: false });
        Self(Mutex::new(veths::take(kept).into_iter().map(held).collect()))
    }

    /// Opens the pair of a port: the one that another process hands over, the one of an earlier
    /// process, or a new one.
    pub(super) fn open(
        &self,
        port: &str,
        config: &VethConfig,
        handed: Option<PortHandover>,
    ) -> Result<VethPort, OpenError> {
        let mut held = self.lock();
        let known = match handed {
            Some(handed) => Some(Known { handed, is_left: false }),
            None => held.remove(port).map(|held| Known { handed: held.copies, is_left: true }),
        };
        let (opened, copies) = VethPort::open_kept(config, known)?;
        held.insert(port.to_owned(), Held { copies, is_open: true });
        Ok(opened)
    }

    /// Deletes the pair of a port that is closed, if it has one.
    pub(super) fn delete(&self, port: &str) {
        let held = self.lock().remove(port);
        if let Some(held) = held {
            veths::delete(port, held.copies);
        }
    }

    /// Deletes the pairs that an earlier process left and no port has taken over.
    pub(super) fn tidy(&self) {
        let mut held = self.lock();
        let (open, left) = std::mem::take(&mut *held).into_iter().partition(|(_, one)| one.is_open);
        *held = open;
        let left: BTreeMap<String, Held> = left;
        left.into_iter().for_each(|(port, held)| veths::delete(&port, held.copies));
    }

    /// Returns copies of the descriptors of these ports, or of all.
    pub(super) fn descriptors(&self, ports: &[String]) -> Vec<Named> {
        let held = self.lock();
        let wanted = held.iter().filter(|(name, _)| ports.is_empty() || ports.contains(name));
        wanted.flat_map(|(name, held)| veths::named(name, &held.copies)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
