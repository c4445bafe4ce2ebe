//! Many addresses written by few system calls.

use std::io;

use sluice_base::{Mac, VnetId};

use super::fdb::Row;
use super::{Chip as _, Entry, KernelChip, Refused};

impl KernelChip {
    /// Writes addresses. Those that are in the kernel already, and lead elsewhere, take the long
    /// way: what is stale goes first.
    pub(super) fn write_all(&mut self, entries: &[(VnetId, Mac, Entry)]) -> Vec<(usize, Refused)> {
        let (mut refused, mut rows, mut of) = (Vec::new(), Vec::new(), Vec::new());
        for (at, &(vnet, mac, entry)) in entries.iter().enumerate() {
            let before = self.entries.get(&(vnet, mac));
            if before.is_some_and(|before| before.to != entry.to) {
                refused.extend(self.put(vnet, mac, entry).err().map(|why| (at, why)));
                continue;
            }
            match self.rows(vnet, mac, entry) {
                Some(more) => {
                    of.resize(of.len() + more.len(), at);
                    rows.extend(more);
                }
                None => refused.push((at, Refused::Unknown)),
            }
        }
        match self.write_rows(&rows) {
            Ok(failed) => {
                // The first error of an address counts.
                let mut of_entry: Vec<_> = failed
                    .into_iter()
                    .map(|(row, error)| (of[row], Refused::from(error)))
                    .collect();
                of_entry.dedup_by_key(|(at, _)| *at);
                of.dedup();
                of.retain(|at| !of_entry.iter().any(|(failed, _)| failed == at));
                for (at, why) in of_entry {
                    self.take_back(entries[at]);
                    refused.push((at, why));
                }
                refused.extend(self.show_filters(entries, &of));
            }
            // What was done is not known: one by one, each with its own answer.
            Err(_) => {
                of.dedup();
                for at in of {
                    let (vnet, mac, entry) = entries[at];
                    refused.extend(self.put(vnet, mac, entry).err().map(|why| (at, why)));
                }
            }
        }
        refused.sort_by_key(|(at, _)| *at);
        refused
    }

    fn write_rows(&mut self, rows: &[Row]) -> io::Result<Vec<(usize, io::Error)>> {
        self.make_way(rows)?;
        self.want(rows);
        Row::write_all(rows, &mut self.netlink)
    }

    /// Removes what was written of an address that the kernel did not take whole.
    fn take_back(&mut self, (vnet, mac, entry): (VnetId, Mac, Entry)) {
        let rows = self.rows(vnet, mac, entry).unwrap_or_default();
        _ = self.unwrite(&rows);
    }

    /// Lets filters leave the frames of addresses to the kernel, which has them by now.
    fn show_filters(
        &mut self,
        entries: &[(VnetId, Mac, Entry)],
        written: &[usize],
    ) -> Vec<(usize, Refused)> {
        let mut values = Vec::with_capacity(written.len());
        for &at in written {
            let (vnet, mac, entry) = entries[at];
            self.entries.insert((vnet, mac), entry);
            let place = self.place_of(entry.to).expect("its rows were known");
            values.push(((vnet, mac), place, entry.senders));
        }
        let done = self.maps.put_all(&values);
        let failed = written.iter().zip(&values).skip(done);
        let mut refused = Vec::new();
        for (&at, &(key, place, senders)) in failed {
            if let Err(error) = self.maps.put(key, place, senders) {
                refused.push((at, error.into()));
            }
        }
        refused
    }
}
