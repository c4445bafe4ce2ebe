//! TCP delivers all written bytes, each once and in order.
//!
//! Bytes have no content here, so that a stream is a range of numbers. The receiver's TCP can
//! deliver no more bytes than packets brought without a gap, which the ledger puts together by
//! itself. The sender's TCP can count no more bytes as acknowledged than were delivered.

use super::{Ledger, Violation};
use crate::ids::EndpointId;

/// Both ends of one way of an open connection, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The receiver.
    pub(crate) to: EndpointId,
    /// Bytes that the sender's application has written: in all, and by its TCP's account.
    pub(crate) written: (u64, u64),
    pub(crate) acknowledged: u64,
    pub(crate) delivered: u64,
}

impl Stream {
    /// Checks this way of a connection against the ledger.
    pub(crate) fn check(&self, ledger: &Ledger) -> Result<(), Violation> {
        let brought = ledger.brought(self.to);
        let in_order = self.acknowledged <= self.delivered && self.delivered <= self.written.0;
        if in_order && self.delivered <= brought && self.written.0 == self.written.1 {
            return Ok(());
        }
        Err(Violation::new(
            "streams",
            format!(
                "to endpoint {}: written {}, by its TCP {}; brought without a gap {brought}, \
                 delivered {}, acknowledged {}",
                self.to.0, self.written.0, self.written.1, self.delivered, self.acknowledged
            ),
        ))
    }
}
