//! Unanswered probes for free addresses.
//!
//! A client that wants an address asks for it first (RFC 5227 section 2.1.1; RFC 4862 clause 5.4).
//! Some clients announce the address then, others just use it. The first use by the client whose
//! probe was not answered is worth as much as an announcement.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use sluice_base::{Mac, Nanos, Vni};

/// Time from the first probe to the first use: three probes and the wait for an answer (RFC 5227
/// section 1.1), and as much again for slow clients.
const LIFE: Nanos = Nanos::from_millis(15_000);
/// Number of probes that are remembered. Beyond it a use after a probe is a plain use.
const PROBES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Probes {
    by_ip: BTreeMap<(Vni, IpAddr), (Mac, Nanos)>,
}

impl Probes {
    pub(super) fn insert(&mut self, now: Nanos, vni: Vni, ip: IpAddr, mac: Mac) {
        if self.by_ip.len() >= PROBES_MAX && !self.by_ip.contains_key(&(vni, ip)) {
            self.by_ip.retain(|_, (_, until)| now < *until);
            if self.by_ip.len() >= PROBES_MAX {
                return;
            }
        }
        self.by_ip.insert((vni, ip), (mac, now.after(LIFE)));
    }

    /// Returns true if `mac` probed for the address, no endpoint answered, and this is its first
    /// use.
    pub(super) fn is_won(&mut self, now: Nanos, vni: Vni, ip: IpAddr, mac: Mac) -> bool {
        let Some((prober, until)) = self.by_ip.remove(&(vni, ip)) else { return false };
        prober == mac && now < until
    }

    /// Forgets the probe for an address if `holder` is another endpoint than the prober.
    pub(super) fn heard(&mut self, vni: Vni, ip: IpAddr, holder: Mac) {
        if self.by_ip.get(&(vni, ip)).is_some_and(|(prober, _)| *prober != holder) {
            self.by_ip.remove(&(vni, ip));
        }
    }
}
