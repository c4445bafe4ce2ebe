//! Results of look-ups in the table, and of changes of it.

use core::net::IpAddr;

use sluice_base::{HostId, Nanos, PortId};

use crate::vport::{Claim, Ips, Key};

/// State of a host, as far as its claims are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerState {
    /// The host is there, or its state was never set.
    #[default]
    Live,
    /// The host is suspected or dead. Frames to its endpoints are forwarded, but no host answers
    /// for them.
    Stale,
}

/// Place of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host.
    pub owner: HostId,
    /// The port there.
    pub port: PortId,
}

/// An endpoint as one of its hosts claims it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vport {
    /// The claim of the host.
    pub claim: Claim,
    /// The host.
    pub owner: HostId,
    /// State of the host.
    pub state: OwnerState,
    /// Time since which the endpoint is at this host and port; for a claim that does not win, the
    /// time when it came or won.
    pub since: Nanos,
    /// Time of the last use, by [`Table::used`](super::Table::used); if never used, the time when
    /// the claim came.
    pub used: Nanos,
    /// Frames since the claim came.
    pub frames: u64,
}

/// Change of an endpoint by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The endpoint.
    pub key: Key,
    /// Place before.
    pub before: Option<Holder>,
    /// Moves in the winning claim before; zero if there was none.
    pub moves: u32,
    /// Place after.
    pub after: Option<Holder>,
    /// Addresses that the endpoint has no more, with their last sequences.
    /// [`Table::all_with_ip`](super::Table::all_with_ip) finds other vports that have one of them.
    pub gone: Ips,
    /// Addresses that are new to the endpoint, or claimed with a higher sequence than before.
    pub come: Ips,
    /// Addresses of `come` that another vport of the network has as well (a duplicate, RFC 5227).
    pub duplicates: Ips,
}

impl Change {
    /// Returns true if the endpoint went from one host to another.
    #[must_use]
    pub fn moved(&self) -> bool {
        match (self.before, self.after) {
            (Some(before), Some(after)) => before.owner != after.owner,
            _ => false,
        }
    }

    /// Returns true if `host` had the endpoint and another host has it now: `host`'s own claim, if
    /// there is one, is outdone.
    #[must_use]
    pub fn lost_by(&self, host: HostId) -> bool {
        self.moved() && self.before.is_some_and(|before| before.owner == host)
    }

    /// Returns true if the call changed nothing that is forwarded or resolved.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.before == self.after && self.gone.is_empty() && self.come.is_empty()
    }
}

/// Progress of work that is done in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not finished has to be called again"]
pub enum Progress {
    /// The work goes on: call again.
    More,
    /// The work is done.
    Done,
}

/// The table holds as many claims as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Returns the addresses for which `which` returns true, with their sequences.
pub(super) fn only(ips: &Ips, which: impl Fn(&(IpAddr, u32)) -> bool) -> Ips {
    let mut all = Ips::default();
    for (ip, sequence) in ips.with_sequences().filter(which) {
        all.set(ip, sequence).expect("as many as there were");
    }
    all
}
