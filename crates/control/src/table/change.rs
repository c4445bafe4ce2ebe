//! What the table says to those who ask and to those who follow it.

use core::net::IpAddr;

use sluice_base::{HostId, Nanos, PortId};

use crate::vport::{Claim, Ips, Key};

/// What is thought of a host, as far as its claims are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there, or nobody has said otherwise.
    #[default]
    Live,
    /// It is suspected or dead. Its claims forward, but nobody answers for them.
    Stale,
}

/// Who has an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host.
    pub owner: HostId,
    /// The port there.
    pub port: PortId,
}

/// An endpoint as one of its hosts has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vport {
    /// What the host says of it.
    pub claim: Claim,
    /// The host.
    pub owner: HostId,
    /// What is thought of the host.
    pub state: OwnerState,
    /// Since when it is at this host and port; of a claim that does not win, when it came or won.
    pub since: Nanos,
    /// When it was used last, by [`Table::used`](super::Table::used); when it came, if never.
    pub used: Nanos,
    /// Frames since it came.
    pub frames: u64,
}

/// What became of an endpoint by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The endpoint.
    pub key: Key,
    /// Who had it.
    pub before: Option<Holder>,
    /// Who has it.
    pub after: Option<Holder>,
    /// Addresses that it has no more, with the sequences that they had. That another vport has one
    /// of them is told by [`Table::all_with_ip`](super::Table::all_with_ip).
    pub gone: Ips,
    /// Addresses that are new to it, or claimed with a higher sequence than before.
    pub come: Ips,
    /// Those of `come` that another vport of the network has as well (a duplicate, RFC 5227).
    pub duplicates: Ips,
}

impl Change {
    /// Whether it went from one host to another.
    #[must_use]
    pub fn moved(&self) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.owner != after.owner,
            _ => false,
        }
    }

    /// Whether `host` had it and another has it now: its own claim, if there is one, is outdone.
    #[must_use]
    pub fn lost_by(&self, host: HostId) -> bool {
        self.moved() && self.before.is_some_and(|before| before.owner == host)
    }

    /// Whether the call changed nothing of what is forwarded or resolved.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.before == self.after && self.gone.is_empty() && self.come.is_empty()
    }
}

/// Whether a piece of work that is done in steps has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not finished has to be called again"]
pub enum Progress {
    /// Call again.
    More,
    /// It is done.
    Done,
}

/// The table holds as many claims as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Those of some addresses, with their sequences.
pub(super) fn only(ips: &Ips, which: impl Fn(&(IpAddr, u32)) -> bool) -> Ips {
    let mut all = Ips::default();
    for (ip, sequence) in ips.with_sequences().filter(which) {
        all.set(ip, sequence).expect("as many as there were");
    }
    all
}
