//! The host as a member of a fabric: numbers that identify members, and settings that members
//! exchange.

use std::collections::BTreeMap;

use super::{At, Check, Key};
use crate::config::fabric::ID_MAX;

impl Check<'_> {
    pub(super) fn fabric(&mut self) {
        let Some(fabric) = &self.config.fabric else {
            self.no_fabric();
            return;
        };
        if self.config.underlay.is_none() {
            self.problem(
                &[Key("fabric")],
                "there is no underlay to reach the other members by",
                "Add an `[underlay]` with `kind`, `device` and `address`.",
            );
        }
        if fabric.name.is_empty() || fabric.name.len() > 64 {
            self.problem(
                &[Key("fabric"), Key("name")],
                "is no name",
                "Use 1 to 64 characters, the same on every member.",
            );
        }
        if fabric.port == 0 {
            self.problem(
                &[Key("fabric"), Key("port")],
                "no member could be reached",
                "Leave the key out for the default of 7474.",
            );
        }
        if fabric.freeze_s < fabric.moves_window_s {
            self.problem(
                &[Key("fabric"), Key("freeze_s")],
                format!(
                    "moves count for {} s, and what thaws sooner is frozen again by the same ones",
                    fabric.moves_window_s
                ),
                "Make it as long as `moves_window_s` at least.",
            );
        }
        let mut ids = BTreeMap::new();
        self.id(&[Key("fabric"), Key("id")], fabric.id);
        for (index, peer) in self.config.peers.iter().enumerate() {
            let at = [Key("peer"), At(index), Key("id")];
            let Some(id) = peer.id else { continue };
            self.id(&at, id);
            if id == fabric.id {
                self.problem(
                    &at,
                    format!("{id} is the number of this host"),
                    "Give each member a number of its own.",
                );
            } else if let Some(first) = ids.insert(id, index) {
                self.twice(&at, &format!("member {id}"), "peer", first);
            }
        }
    }

    fn id(&mut self, at: &[super::Step<'_>], id: u16) {
        if !(1..=ID_MAX).contains(&id) {
            self.problem(
                at,
                format!("{id} is no number of a member"),
                format!("Use 1 to {ID_MAX}."),
            );
        }
    }

    fn no_fabric(&mut self) {
        for (index, peer) in self.config.peers.iter().enumerate() {
            for (key, there) in [("id", peer.id.is_some()), ("address", peer.address.is_some())] {
                if there {
                    self.problem(
                        &[Key("peer"), At(index), Key(key)],
                        "only a member of a fabric has this, and this host is in none",
                        "Add a `[fabric]` with `name`, `id` and `certificates`, or take it out.",
                    );
                }
            }
        }
    }
}
