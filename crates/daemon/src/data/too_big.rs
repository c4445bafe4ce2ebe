//! Answers to tenants' frames that were too large, made here and not by control, so that they are
//! made while control is away.

use sluice_base::Nanos;
use sluice_ports::{FrameBuf, Pool};
use sluice_switch::{Head, Notice, Switch, Target};
use sluice_wire::too_big::{ANSWER_SIZE_MAX, answer};

use crate::sys::log::say;

/// Notices of the switch about frames that were too large, until they are answered.
#[derive(Debug, Default)]
pub(super) struct TooBig(Vec<(Target, u16, Head)>);

impl TooBig {
    /// Notes a notice about a frame that was too large, and logs a change of a path MTU.
    pub(super) fn note(&mut self, notice: &Notice) {
        match notice {
            Notice::TooBig { to, mtu, head } => self.0.push((*to, *mtu, *head)),
            Notice::PathMtu { tunnel, mtu: Some(mtu) } => {
                say!("tunnel {tunnel}: the way to its far end has an MTU of {mtu}");
            }
            Notice::PathMtu { tunnel, mtu: None } => {
                say!("tunnel {tunnel}: the MTU of its way was learned too long ago to hold");
            }
            _ => {}
        }
    }

    /// Answers all of them. A frame is not answered if there is no room; the sender's next frame
    /// is.
    pub(super) fn answer(&mut self, now: Nanos, switch: &mut Switch<FrameBuf>, pool: &mut Pool) {
        for (to, mtu, head) in self.0.drain(..) {
            let mut bytes = [0; ANSWER_SIZE_MAX];
            let Some(size) = answer(head.as_slice(), mtu, &mut bytes) else { continue };
            if size > usize::from(pool.slot_size()) {
                continue;
            }
            let Some(mut slot) = pool.take() else { continue };
            slot.bytes_mut()[..size].copy_from_slice(&bytes[..size]);
            if let Err(buf) = switch.inject(now, slot.freeze(0, size), to) {
                pool.give_back(buf);
            }
        }
    }
}
