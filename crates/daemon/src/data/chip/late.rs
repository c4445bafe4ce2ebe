//! Notes that found no room on their way to the chip, and that must not be lost.

use std::collections::BTreeMap;

use sluice_base::{Mac, PortId, TunnelId, VnetId};

use super::Note;

/// What a note is about. Of several notes about one thing the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum About {
    Unbound(PortId, Mac),
    Gone(VnetId, Mac),
    Decap(VnetId, TunnelId),
}

/// Such notes. They are no more than there are addresses, ports and decap flows.
#[derive(Debug, Default)]
pub(super) struct Late {
    notes: BTreeMap<About, bool>,
}

impl Late {
    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Keeps a note. That an address is known is not kept: it is said again when it is used.
    pub(super) fn add(&mut self, note: Note) {
        let (about, is_on) = match note {
            Note::Gone { vnet, mac } => (About::Gone(vnet, mac), false),
            Note::Unbound(port, mac) => (About::Unbound(port, mac), false),
            Note::Decap { vnet, tunnel, is_on } => (About::Decap(vnet, tunnel), is_on),
            Note::Known { .. } | Note::Port { .. } | Note::PortGone(_) | Note::Plan(_) => return,
        };
        self.notes.insert(about, is_on);
    }

    /// Returns the first one.
    pub(super) fn first(&self) -> Option<Note> {
        let (about, is_on) = self.notes.first_key_value()?;
        Some(match *about {
            About::Gone(vnet, mac) => Note::Gone { vnet, mac },
            About::Unbound(port, mac) => Note::Unbound(port, mac),
            About::Decap(vnet, tunnel) => Note::Decap { vnet, tunnel, is_on: *is_on },
        })
    }

    pub(super) fn remove_first(&mut self) {
        self.notes.pop_first();
    }
}
