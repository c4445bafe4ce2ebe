//! Frame formats as checked views.
//!
//! Every format is a module of its own with the same parts. A **view** (`ethernet::Frame`,
//! `ipv4::Packet`, ...) borrows the bytes of a frame: `new_checked` looks at the length once, and
//! from then on no accessor can fail. It shows the bytes as they are, right or wrong: values that
//! no standard knows stay visible, and validity has accessors of its own (`is_well_formed`,
//! `header_checksum_ok`). A **`Repr`** is the same header as plain values: `parse` reads it from a
//! view and `emit` writes it.
//!
//! Frames are seen through their first bytes only, so a view never asks for more than its own
//! header: `payload` gives the part of the payload that is there.
//!
//! Nothing here allocates. The switch decides what to do with a frame that is wrong.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod arp;
pub mod checksum;
pub mod ecn;
pub mod ethernet;
pub mod fabric;
pub mod flow;
pub mod guest_room;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mac_control;
pub mod tcp;
pub mod too_big;
pub mod udp;
pub mod vlan;
pub mod vxlan;

mod ethertype;

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use ethertype::EtherType;

/// The bytes end before the header does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated;

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes end before the header does")
    }
}

impl core::error::Error for Truncated {}

/// Returns the header at the start of `bytes`, and the bytes behind it. The only length check of a
/// view.
#[inline]
fn split<H>(bytes: &[u8]) -> Result<(&H, &[u8]), Truncated>
where
    H: FromBytes + KnownLayout + Immutable + Unaligned,
{
    H::ref_from_prefix(bytes).map_err(|_| Truncated)
}

/// Writes `header` at the start of `out`. A buffer without room for it is the caller's mistake.
#[inline]
fn put<H: IntoBytes + Immutable>(header: &H, out: &mut [u8]) {
    header.write_to_prefix(out).expect("the buffer has room for the header");
}

#[cfg(test)]
mod tests;
