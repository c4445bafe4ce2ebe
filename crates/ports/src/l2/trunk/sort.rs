//! Demultiplexer of a device: the port of a frame, by its outermost tag (802.1Q clause 6.9).
//!
//! | tag | port | tag as the switch gets it |
//! |---|---|---|
//! | none, or VID 0 | the port that has the untagged frames | value of a priority tag |
//! | TPID 0x8100, a VID that a port has | that port | its value |
//! | any other | none | not allowed |
//!
//! A frame without a port goes to the port that has the untagged frames, or else to the first one,
//! whose switch drops and counts it. MAC Control belongs to the wire: it goes to all ports.

use sluice_base::{Mac, VlanTag};
use sluice_wire::{EtherType, ethernet, mac_control, vlan};

use super::Vlan;
use crate::staging::ADDRESSES_SIZE;

/// The TPID of a customer VLAN tag (802.1Q table 9-1), the only one that chooses a port.
pub(super) const TPID: u16 = EtherType::VLAN.0;

/// Number of values of a VID.
const VIDS: usize = 1 << 12;

/// Returns true if an EtherType is that of a tag.
pub(super) fn is_tag(ethertype: u16) -> bool {
    EtherType(ethertype).is_tag()
}

/// Destination of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// One port.
    Vlan {
        /// Index of the VLAN port.
        vlan: usize,
        /// The tag as the switch gets it.
        tag: VlanTag,
        /// True if the tag is removed.
        tagless: bool,
    },
    /// Every port: flow control, and its source.
    Everyone(Mac, mac_control::Message),
}

/// Index of the port of each VLAN.
#[derive(Debug)]
pub(super) struct Sorter {
    by_vid: Box<[Option<u16>]>,
    untagged: Option<usize>,
    /// Index of the port that gets frames of no port, if none has the untagged frames.
    stray: usize,
}

impl Sorter {
    pub(super) fn new() -> Self {
        Self { by_vid: vec![None; VIDS].into_boxed_slice(), untagged: None, stray: 0 }
    }

    pub(super) fn add(&mut self, state: usize, vlan: Vlan) {
        if let Vlan::Tagged(vid) | Vlan::Native(vid) = vlan {
            assert!(vid != vlan::VID_NONE && vid <= vlan::VID_MAX, "{vid} is no VLAN");
            let place = &mut self.by_vid[usize::from(vid)];
            assert!(place.is_none(), "VLAN {vid} has a port");
            *place = Some(u16::try_from(state).expect("fewer ports than VLANs"));
        }
        if let Vlan::Access | Vlan::Native(_) = vlan {
            assert!(self.untagged.is_none(), "the untagged frames have a port");
            self.untagged = Some(state);
        }
        self.stray = self.stray.min(state);
    }

    /// Removes a closed VLAN port; `left` is another one, if there is any.
    pub(super) fn remove(&mut self, state: usize, vlan: Vlan, left: Option<usize>) {
        if let Vlan::Tagged(vid) | Vlan::Native(vid) = vlan {
            self.by_vid[usize::from(vid)] = None;
        }
        self.untagged = self.untagged.filter(|untagged| *untagged != state);
        self.stray = left.unwrap_or(0);
    }

    /// Returns the destination of a frame: its bytes, and the tag (TPID and TCI) that the kernel
    /// removed.
    pub(super) fn place(&self, bytes: &[u8], taken_out: Option<[u8; 4]>) -> Place {
        let Ok(frame) = ethernet::Frame::new_checked(bytes) else {
            return self.nobodys(VlanTag::AsIs);
        };
        let Some((tpid, tci)) = tag_of(bytes, taken_out) else {
            return self.untagged(&frame);
        };
        if tpid != TPID {
            return self.nobodys(VlanTag::NotAllowed);
        }
        let vid = vlan::vid_of(tci);
        let vlan = match vid {
            vlan::VID_NONE => self.untagged,
            _ => self.by_vid[usize::from(vid)].map(usize::from),
        };
        match vlan {
            Some(vlan) => Place::Vlan { vlan, tag: VlanTag::TakenOff(tci), tagless: true },
            None => self.nobodys(VlanTag::NotAllowed),
        }
    }

    fn untagged(&self, frame: &ethernet::Frame<'_>) -> Place {
        if frame.dst() == Mac::PAUSE && frame.ethertype() == EtherType::MAC_CONTROL {
            return match mac_control::Message::parse(frame.payload()) {
                Ok(mac_control::Message::Unknown { .. }) | Err(_) => self.nobodys(VlanTag::AsIs),
                Ok(message) => Place::Everyone(frame.src(), message),
            };
        }
        match self.untagged {
            Some(vlan) => Place::Vlan { vlan, tag: VlanTag::AsIs, tagless: false },
            None => self.nobodys(VlanTag::NotAllowed),
        }
    }

    fn nobodys(&self, tag: VlanTag) -> Place {
        Place::Vlan { vlan: self.untagged.unwrap_or(self.stray), tag, tagless: false }
    }
}

/// TPID and TCI of the outermost tag, removed by the kernel or in the bytes.
fn tag_of(bytes: &[u8], taken_out: Option<[u8; 4]>) -> Option<(u16, u16)> {
    let in_bytes = || bytes.get(ADDRESSES_SIZE..)?.first_chunk::<4>().copied();
    let [a, b, c, d] = taken_out.or_else(in_bytes)?;
    let tpid = u16::from_be_bytes([a, b]);
    is_tag(tpid).then(|| (tpid, u16::from_be_bytes([c, d])))
}
