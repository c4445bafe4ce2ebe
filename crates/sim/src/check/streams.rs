//! TCP delivers all written bytes, each once and in order.
//!
//! Bytes have no content here, so that a stream is a range of numbers. The receiver's TCP can
//! deliver no more bytes than packets brought without a gap, which the ledger puts together by
//! itself. The sender's TCP can count no more bytes as acknowledged than were delivered.

use super::{Ledger, Violation};
use crate::world::{Census, Stream};

pub(super) fn check(census: &Census, ledger: &Ledger) -> Result<(), Violation> {
    census.streams.iter().try_for_each(|s| stream(s, ledger))
}

/// Checks one way of a connection.
pub(crate) fn stream(s: &Stream, ledger: &Ledger) -> Result<(), Violation> {
    let brought = ledger.brought(s.to);
    let in_order = s.acknowledged <= s.delivered && s.delivered <= s.written.0;
    if in_order && s.delivered <= brought && s.written.0 == s.written.1 {
        return Ok(());
    }
    Err(Violation::new(
        "streams",
        format!(
            "to endpoint {}: written {}, by its TCP {}; brought without a gap {brought}, delivered \
             {}, acknowledged {}",
            s.to.0, s.written.0, s.written.1, s.delivered, s.acknowledged
        ),
    ))
}
