//! Egress of the switch of a host: one sink for its VMs and for its network card. With one kind of
//! sink there is one copy of the switch's egress code, which stays in the instruction cache.

use std::rc::Rc;

use sluice_base::Priority;
use sluice_switch::{Egress, Sink, Taken};
use sluice_wire::mac_control::Message;

use super::endpoints::Endpoint;
use crate::ids::EndpointId;
use crate::overlay::{Head, Parcel, pause_of};
use crate::packets::{PacketId, Packets};

/// Output of a host's switch to its network card.
pub(super) enum Outgoing {
    /// A tenant's frame of this endpoint behind outer headers.
    Frame { from: EndpointId, head: Rc<Head>, size: u32, packet: PacketId, priority: Priority },
    /// Flow control for the link's other end.
    Pause(Message),
}

/// Takes all frames to a VM, and one frame for the network card.
pub(super) struct Leaving<'a> {
    /// The VM whose port is served; `None`: the network card's port.
    pub(super) vm: Option<u16>,
    /// Packets that have left to VMs.
    pub(super) arrived: &'a mut Vec<(u16, PacketId)>,
    /// The frame that has left to the network card.
    pub(super) out: Option<Outgoing>,
    pub(super) endpoints: &'a mut [Endpoint],
    pub(super) packets: &'a Packets,
}

impl Sink<Parcel> for Leaving<'_> {
    #[inline]
    fn offer(&mut self, frame: &Egress<'_, Parcel>) -> Taken {
        if let Some(vm) = self.vm {
            if let Some(parcel) = frame.buf {
                self.arrived.push((vm, parcel.packet));
            }
            return Taken::All;
        }
        if self.out.is_some() {
            return Taken::No;
        }
        self.out = Some(match frame.buf {
            Some(parcel) => self.outer(frame, parcel),
            None => Outgoing::Pause(pause_of(frame.header)),
        });
        Taken::All
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.out.is_some()
    }
}

impl Leaving<'_> {
    /// Returns a frame behind its outer headers.
    #[inline]
    fn outer(&mut self, frame: &Egress<'_, Parcel>, parcel: &Parcel) -> Outgoing {
        let from = self.packets.to(parcel.packet).peer();
        let heads = self.endpoints[from.0 as usize].heads.as_mut().expect("in a VM");
        Outgoing::Frame {
            from,
            head: heads.behind(frame.header),
            size: frame.size,
            packet: parcel.packet,
            priority: frame.priority,
        }
    }
}
