//! Hand-over of an open device to another process: names of the state, and a check that it fits.

use super::driver::{KernelShare, L2Config};
use super::rings::{Kind, RingPlan};
use crate::handed::PortHandover;

/// Names of the state.
pub(super) const QUIET: &str = "quiet";
pub(super) const INDEX: &str = "index";
pub(super) const FRAMES: &str = "frames";
pub(super) const SLOT_SIZE: &str = "slot_size";
pub(super) const VTEP: &str = "vtep";
/// One if its ring takes datagrams that come as one.
pub(super) const SERIES: &str = "series";

pub(super) const fn ring_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Control => "control",
        Kind::Data(_) => "ring",
    }
}

/// Identifies the kernel's share: the number is the same as long as the share is.
pub(super) fn share_number(share: KernelShare) -> u64 {
    match share {
        KernelShare::All => 1 << 32,
        KernelShare::Nothing => 2 << 32,
        KernelShare::NoVxlan(vtep) => u32::from(vtep).into(),
    }
}

/// Returns true if a ring that was handed over equals the one that would be made.
pub(super) fn fits(
    handed: &PortHandover,
    config: &L2Config,
    index: u32,
    plan: &RingPlan,
    takes_series: bool,
) -> bool {
    let is = |name: &str, value: u64| handed.numbers.get(name) == Some(&value);
    is(INDEX, index.into())
        && is(FRAMES, plan.frames.into())
        && is(SLOT_SIZE, plan.slot_size.into())
        && is(VTEP, share_number(config.kernel))
        && handed.numbers.get(SERIES).is_some_and(|one| *one == 1) == takes_series
        && ["control", "ring"].iter().all(|name| handed.files.contains_key(*name))
}
