//! Harness of the switch's tests: a handle whose loss is detected, frames made by hand,
//! configurations, and a world that checks the promises after every step.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod config;
pub mod frames;
pub mod ops;
pub mod places;
pub mod world;

use std::cell::Cell;
use std::rc::Rc;

use sluice_base::{Buf, Mac, Priority, VlanTag};

/// Properties of a frame that the test made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Unique in a world.
    pub id: u64,
    /// Sender: the input, or 1000 plus the tunnel.
    pub from: u16,
    /// Ingress port; `u16::MAX` for control.
    pub port: u16,
    /// Its network.
    pub vnet: u16,
    /// Destination.
    pub dst: Mac,
    /// The priority that it must get.
    pub priority: Priority,
    /// True if it is well formed, so that the other fields apply.
    pub valid: bool,
}

/// Counts handles that vanish.
#[derive(Debug, Default)]
pub struct Ledger {
    lost: Cell<u32>,
    live: Cell<u32>,
    closing: Cell<bool>,
}

impl Ledger {
    /// Returns the number of handles that were dropped instead of handed back.
    pub fn lost(&self) -> u32 {
        self.lost.get()
    }

    /// Returns the number of handles that are out.
    pub fn live(&self) -> u32 {
        self.live.get()
    }

    /// Allows handles to vanish from now on: the switch ends.
    pub fn close(&self) {
        self.closing.set(true);
    }
}

/// Owner of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The driver of an input.
    Input(u16),
    /// The host pool.
    Pool,
}

/// A handle. It has no `Clone`, so it cannot be in two places; and the ledger counts it if it is
/// dropped instead of handed back.
#[derive(Debug)]
pub struct TestBuf {
    pub info: Info,
    pub owner: Owner,
    /// The first bytes; the rest of the frame is never read.
    pub bytes: Vec<u8>,
    /// Its driver's treatment of its tag.
    pub tag: VlanTag,
    size: u32,
    back: bool,
    ledger: Rc<Ledger>,
}

/// Bytes of a frame that a [`TestBuf`] keeps.
pub const KEPT: usize = 256;

impl TestBuf {
    pub fn new(
        ledger: &Rc<Ledger>,
        info: Info,
        owner: Owner,
        mut bytes: Vec<u8>,
        size: u32,
    ) -> Self {
        bytes.truncate(KEPT);
        assert!(bytes.len() <= size as usize && (bytes.len() == KEPT.min(size as usize)));
        ledger.live.set(ledger.live.get() + 1);
        Self {
            info,
            owner,
            bytes,
            tag: VlanTag::AsIs,
            size,
            back: false,
            ledger: Rc::clone(ledger),
        }
    }

    /// Hands the handle back to its driver.
    pub fn hand_back(mut self) {
        self.back = true;
        self.ledger.live.set(self.ledger.live.get() - 1);
    }

    /// Returns a copy of the frame in the host pool; the handle itself goes back to the driver.
    pub fn into_pool(self) -> Self {
        let bytes = self.bytes.clone();
        let mut copy = Self::new(&self.ledger, self.info, Owner::Pool, bytes, self.size);
        copy.tag = self.tag;
        self.hand_back();
        copy
    }
}

impl Drop for TestBuf {
    fn drop(&mut self) {
        if !self.back && !self.ledger.closing.get() {
            self.ledger.lost.set(self.ledger.lost.get() + 1);
        }
    }
}

impl Buf for TestBuf {
    fn head(&self) -> &[u8] {
        &self.bytes[..self.bytes.len().min(Self::HEAD_SIZE_MAX)]
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn truncate(&mut self, size: u32) {
        self.bytes.truncate(size as usize);
        self.size = size;
    }

    fn vlan_tag(&self) -> VlanTag {
        self.tag
    }
}
