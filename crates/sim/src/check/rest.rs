//! In the end nothing is left: no frame anywhere, no byte in a buffer, no link paused, and every
//! byte that was written is delivered and acknowledged.
//!
//! This is the check of liveness when the workloads have stopped and no event is left: a frame that
//! waits then waits for ever.

use crate::ledger::{Ledger, Violation};
use crate::world::Census;

pub(super) fn check(census: &Census, ledger: &Ledger) -> Result<(), Violation> {
    let fail = |what: String| Err(Violation::new("rest", what));
    if let Some(seen) = census.net.frames.first() {
        let (id, at) = (seen.id.0, seen.at.0);
        return fail(format!("frame {id} is left at link {at}: {:?}", seen.whereabouts));
    }
    for (id, link, input) in census.net.links() {
        let (id, held) = (id.0, &input.held);
        if !link.idle || link.queued > 0 {
            return fail(format!("link {id} still sends, or has {} bytes to send", link.queued));
        }
        if !link.told.is_empty() || !input.pausing.is_empty() || input.speaks {
            let (told, pausing) = (link.told.0, input.pausing.0);
            return fail(format!("link {id} is left paused: {told:#04x}, wanted {pausing:#04x}"));
        }
        if held.iter().any(|bytes| *bytes > 0) || input.open > 0 {
            return fail(format!("the buffer behind link {id} is left with {held:?} bytes"));
        }
    }
    if let Some(virt) = census.virt.filter(|virt| virt.packets > 0) {
        return fail(format!("the virtual switches are left with packets: {virt:?}"));
    }
    for stream in &census.streams {
        if stream.acknowledged != stream.written.0 {
            return fail(format!("a stream is left incomplete: {stream:?}"));
        }
    }
    match ledger.messages_missing() {
        0 => Ok(()),
        missing => fail(format!("{missing} messages have never arrived")),
    }
}
