//! Flow control between neighbours: no lossless buffer beyond its limit, XOFF and XON at their
//! thresholds, every pause frame received, and every pause applied.
//!
//! The thresholds follow 802.1Q clause 36 as in the product's sender: from XOFF bytes on a priority
//! is paused, at XON bytes or fewer it is not. The two ends may differ while a pause frame waits or
//! travels. A pause is renewed before it lapses, so that it never ends by itself while it is
//! wanted.

use sluice_base::Priority;

use crate::ledger::Violation;
use crate::net::Census;

pub(super) fn check(census: &Census) -> Result<(), Violation> {
    for (id, link, input) in census.links() {
        let fail = |what: String| Err(Violation::new("headroom", what));
        for priority in Priority::all().filter(|p| census.lossless.contains(*p)) {
            let held = u64::from(input.held[priority.index()]);
            let pauses = input.pausing.contains(priority);
            let of = format!("the buffer behind link {}, priority {}", id.0, priority.get());
            if held > u64::from(input.limit) {
                return fail(format!("{of}, holds {held} bytes; its limit is {}", input.limit));
            }
            if held >= census.xoff && !pauses {
                return fail(format!("{of}, holds {held} bytes and does not pause its neighbour"));
            }
            if held <= census.xon && pauses {
                return fail(format!("{of}, holds {held} bytes and still pauses its neighbour"));
            }
        }
        if !link.obeys {
            continue;
        }
        if link.paused != link.told {
            return fail(format!(
                "link {} was told not to send priorities {:#04x}, and stops {:#04x}",
                id.0, link.told.0, link.paused.0
            ));
        }
        if link.ends_in_buffer && !input.speaks && link.told != input.pausing {
            return fail(format!(
                "the buffer behind link {} pauses priorities {:#04x}, its neighbour heard {:#04x}, \
                 and no pause frame is on its way",
                id.0, input.pausing.0, link.told.0
            ));
        }
        if let Some(priority) = link.chosen.filter(|p| link.paused.contains(*p)) {
            return fail(format!(
                "link {} is about to send a frame of priority {}, which is paused",
                id.0,
                priority.get()
            ));
        }
    }
    Ok(())
}
