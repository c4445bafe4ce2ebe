//! The number of frames sent by links equals the number of links passed by frames.
//!
//! Ended frames have passed the links up to the place of their end; the network adds these up. Each
//! other frame has passed as many links as its hop says, and one more if it is on the cable to its
//! host: hops are counted at the beginning of a cable to a switch.

use crate::ledger::Violation;
use crate::net::{Census, Seen, Whereabouts};

pub(super) fn check(census: &Census) -> Result<(), Violation> {
    let passed = |seen: &Seen| match seen.whereabouts {
        // The frame has ended where it stands.
        Whereabouts::Dropped => 0,
        Whereabouts::Travelling if !census.enters(seen) => u64::from(seen.hop) + 1,
        _ => u64::from(seen.hop),
    };
    let resident: u64 = census.frames.iter().map(passed).sum();
    let sent: u64 = census.links.iter().map(|link| link.sent_frames).sum();
    if sent == census.hops_ended + resident {
        return Ok(());
    }
    Err(Violation::new(
        "hops",
        format!(
            "the links have sent {sent} frames; frames that are no more have passed {} links, \
             those that are there {resident}",
            census.hops_ended
        ),
    ))
}
