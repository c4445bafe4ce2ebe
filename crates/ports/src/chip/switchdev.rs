//! Ports of a switch whose driver offloads bridges (switchdev; Linux
//! `Documentation/networking/switchdev.rst`).
//!
//! ```text
//!   machine ─ port ─┐ device: forwards by its FDB ┌─ port ─ machine
//!                   └── unknown, groups: a copy ──┴─▶ CPU: filter, ring, switch
//! ```
//!
//! The driver takes over what is written on its ports, and marks it `offload`. From then on the
//! device forwards between them, and the CPU sees the rest: copies of what the device flooded, and
//! frames for other hosts, which the kernel behind it takes into tunnels.
//!
//! **The device learns.** It forwards by the destination alone. A machine that answers an address
//! that the device knows, or that moved to another port, is seen by nobody else. So its ports
//! learn, unlike all others. What the device learned stands in the bridge, marked like entries of
//! this host but wanted by nobody: it is *heard*, and control decides as about the source of a
//! punted frame. What it does not want within [`ROUNDS_MAX`] goes again.
//!
//! **Uses.** The driver refreshes an entry about once a second while its machine sends. Frames to a
//! machine are not told.
//!
//! **Full.** A write that finds no room in the device is not refused, since drivers work later: the
//! entry is there without `offload`, and the device floods for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::time::Duration;

use netlink_packet_route::neighbour::NeighbourMessage;
use sluice_base::{Mac, PortId, VnetId};

use super::fdb::{self, Found, Row};
use super::links;
use super::{Hits, KernelChip, Place, Refused};
use crate::device::device;
use crate::netlink::Netlink;

/// Rounds for which an entry stays that nobody wants.
const ROUNDS_MAX: u8 = 3;
/// Age of an entry whose machine has just sent: drivers tell it about once a second.
const FRESH: Duration = Duration::from_secs(2);

/// Returns the number of the switch whose port a device of the caller's namespace is; `None` if it
/// is none.
///
/// # Errors
/// The kernel's error.
pub fn switch_of(name: &str) -> io::Result<Option<Vec<u8>>> {
    links::switch_of(&mut Netlink::open()?, device(name)?.index)
}

/// What the device of a switch says.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Entries that it learned and nobody wants yet, with the rounds since.
    heard: HashMap<Row, u8>,
    /// Those that the caller is to be told of.
    news: Vec<(VnetId, Mac, PortId)>,
    offloaded: u64,
}

impl Said {
    /// Forgets an entry that is wanted now.
    pub(super) fn forget(&mut self, row: &Row) {
        self.heard.remove(row);
    }

    /// Forgets the entries of a port.
    pub(super) fn forget_device(&mut self, index: u32) {
        self.heard.retain(|row, _| row.device != index);
    }

    pub(super) fn take_news(&mut self) -> Vec<(VnetId, Mac, PortId)> {
        std::mem::take(&mut self.news)
    }

    pub(super) const fn offloaded(&self) -> u64 {
        self.offloaded
    }
}

impl KernelChip {
    /// Returns the port of a switch that a device is.
    fn port_of_switch(&self, index: u32) -> Option<(PortId, VnetId)> {
        let mut ports = self.ports.iter().filter(|(_, port)| port.is_of_switch());
        let (id, port) = ports.find(|(_, port)| port.is(index))?;
        Some((*id, port.vnet))
    }

    /// Notes an entry that nobody wants, if the device may have learned it. False if not.
    pub(super) fn hear(&mut self, row: Row) -> bool {
        let Some((port, vnet)) = self.port_of_switch(row.device) else { return false };
        if let Entry::Vacant(place) = self.said.heard.entry(row) {
            place.insert(0);
            self.said.news.push((vnet, row.mac, port));
        }
        true
    }

    /// As [`Self::hear`], of a change.
    pub(super) fn hear_message(&mut self, message: &NeighbourMessage) -> bool {
        Found::read(message).is_some_and(|found| found.is_learned && self.hear(found.row))
    }

    /// True if the device has seen the address of an entry elsewhere, and nobody has decided yet.
    pub(super) fn is_heard(&self, row: &Row) -> bool {
        let vnet = self.network_of(row.device);
        let is_elsewhere =
            |heard: &Row| heard.mac == row.mac && self.network_of(heard.device) == vnet;
        row.vtep.is_none() && self.said.heard.keys().any(is_elsewhere)
    }

    /// True if an entry is at a port of a switch.
    pub(super) fn is_at_switch(&self, row: &Row) -> bool {
        row.vtep.is_none() && self.port_of_switch(row.device).is_some()
    }

    /// Removes an entry that the device may have learned, or had before its machine moved. A driver
    /// ignores the removal of what was not written by others, so that it is written first.
    pub(super) fn take_away(&mut self, row: Row) -> io::Result<()> {
        self.want(&[row]);
        row.write(&mut self.netlink)?;
        self.unwant(&[row])?;
        row.remove(&mut self.netlink)
    }

    /// Takes away what the device may have learned of entries that are about to be written: a
    /// driver would age it, and a write would change nothing.
    pub(super) fn make_way(&mut self, rows: &[Row]) -> io::Result<()> {
        for row in rows {
            if self.is_at_switch(row) {
                self.take_away(*row)?;
            }
        }
        Ok(())
    }

    /// Returns the entries at ports of a switch. An address that was written without a VLAN is in
    /// the bridge for its default one, too, of which its device tells nothing.
    fn rows_of_switch(&mut self) -> io::Result<impl Iterator<Item = Found> + use<>> {
        let mut rows: HashMap<Row, Found> = HashMap::new();
        for found in fdb::all(&mut self.netlink)? {
            if self.is_at_switch(&found.row) {
                let row = rows.entry(found.row).or_insert(found);
                row.is_offloaded |= found.is_offloaded;
                row.age = row.age.min(found.age);
            }
        }
        Ok(rows.into_values())
    }

    /// Reports the machines that sent, tells again of those that nobody wants, and removes these
    /// after a while.
    pub(super) fn hits_of_switch(
        &mut self,
        each: &mut dyn FnMut(VnetId, Mac, Hits),
    ) -> Result<(), Refused> {
        if !self.ports.values().any(|port| port.is_of_switch()) {
            return Ok(());
        }
        let mut still = HashMap::new();
        self.said.offloaded = 0;
        for Found { row, is_learned, is_offloaded, age, .. } in self.rows_of_switch()? {
            let Some((port, vnet)) = self.port_of_switch(row.device) else { continue };
            let wanted = self.entries.get(&(vnet, row.mac));
            if wanted.is_some_and(|entry| entry.to == Place::Port(port)) {
                self.said.offloaded += u64::from(is_offloaded);
                if age < FRESH {
                    each(vnet, row.mac, Hits { to: false, from: true });
                }
                continue;
            }
            if is_learned && age < FRESH {
                self.said.news.push((vnet, row.mac, port));
            }
            if let Some(rounds) = self.said.heard.get(&row) {
                still.insert(row, rounds + 1);
            }
        }
        let late: Vec<Row> =
            still.extract_if(|_, rounds| *rounds > ROUNDS_MAX).map(|(row, _)| row).collect();
        self.said.heard = still;
        for row in &late {
            self.take_away(*row)?;
        }
        if !late.is_empty() {
            // Somebody may want these addresses elsewhere.
            self.mend_entries()?;
        }
        Ok(())
    }
}
