//! The virtual switches: their audits close, and if flow control reaches from end to end nothing is
//! dropped for congestion, in virtual switches or in physical ones.

use crate::ledger::Violation;
use crate::world::Census;

pub(super) fn check(census: &Census, lossless: bool) -> Result<(), Violation> {
    let fail = |what: String| Err(Violation::new("switches", what));
    let virt = census.virt.unwrap_or_default();
    if let Some(host) = virt.unclosed {
        return fail(format!("the audit of host {host} does not close"));
    }
    if lossless && census.net.dropped + virt.congested > 0 {
        return fail(format!(
            "all links and switches are lossless, but {} frames were dropped by physical switches \
             and {} for congestion by virtual ones",
            census.net.dropped, virt.congested
        ));
    }
    Ok(())
}
