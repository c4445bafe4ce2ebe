//! A writer of pcapng (draft-ietf-opsawg-pcapng): one section, an interface for each port, times in
//! nanoseconds.
//!
//! ```text
//!   section header ─ interface (section 4.2) … ─ enhanced packet (4.3) … ─ statistics (4.6)
//! ```
//!
//! Numbers are little-endian. An interface may come at any place before its first packet.

use std::io::{self, Write};

use crate::ipc::capture::{Head, Way};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const ETHERNET: u16 = 1;

/// Numbers of options (sections 3.5, 4.1, 4.2, 4.3 and 4.6).
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const SHB_USERAPPL: u16 = 4;
    pub(super) const IF_NAME: u16 = 2;
    pub(super) const IF_DESCRIPTION: u16 = 3;
    pub(super) const IF_TSRESOL: u16 = 9;
    pub(super) const EPB_FLAGS: u16 = 2;
    pub(super) const ISB_STARTTIME: u16 = 2;
    pub(super) const ISB_ENDTIME: u16 = 3;
    pub(super) const ISB_IFRECV: u16 = 4;
    pub(super) const ISB_IFDROP: u16 = 5;
}

/// Digits of a second's fraction in times.
const NANOSECONDS: u8 = 9;
/// Direction in the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes blocks.
pub(super) struct Writer<W: Write> {
    to: W,
    snaplen: u32,
    block: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(super) const fn new(to: W, snaplen: u32) -> Self {
        Self { to, snaplen, block: Vec::new() }
    }

    /// Writes the section's header.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.word(BYTE_ORDER);
        // Version 1.0, and a length that nobody knows.
        self.block.extend(1_u32.to_le_bytes());
        self.block.extend([0xff; 8]);
        self.option(option::SHB_USERAPPL, concat!("sluice ", env!("CARGO_PKG_VERSION")).as_bytes());
        self.option(option::END, &[]);
        self.end(SECTION)
    }

    /// Writes an interface. They are numbered in their order, from zero.
    pub(super) fn interface(&mut self, name: &str, about: &str) -> io::Result<()> {
        self.word(ETHERNET.into());
        self.word(self.snaplen);
        self.option(option::IF_NAME, name.as_bytes());
        self.option(option::IF_DESCRIPTION, about.as_bytes());
        self.option(option::IF_TSRESOL, &[NANOSECONDS]);
        self.option(option::END, &[]);
        self.end(INTERFACE)
    }

    /// Writes a frame.
    pub(super) fn frame(
        &mut self,
        interface: u32,
        head: &Head,
        at_ns: u64,
        bytes: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        self.word(interface);
        self.time(at_ns);
        self.word(size32(bytes.len()));
        self.word(head.size);
        self.padded(bytes);
        let direction = match head.way {
            Way::In => INBOUND,
            Way::Out => OUTBOUND,
            Way::Dropped => 0,
        };
        self.option(option::EPB_FLAGS, &direction.to_le_bytes());
        if !comment.is_empty() {
            self.option(option::COMMENT, comment.as_bytes());
        }
        self.option(option::END, &[]);
        self.end(PACKET)
    }

    /// Writes what an interface has seen, and what was not captured of it.
    pub(super) fn counts(
        &mut self,
        interface: u32,
        (from_ns, to_ns): (u64, u64),
        (seen, missed): (u64, u64),
    ) -> io::Result<()> {
        self.word(interface);
        self.time(to_ns);
        for (number, at_ns) in [(option::ISB_STARTTIME, from_ns), (option::ISB_ENDTIME, to_ns)] {
            // The half with the higher weight comes first.
            self.option(number, &(at_ns.rotate_left(32)).to_le_bytes());
        }
        self.option(option::ISB_IFRECV, &seen.to_le_bytes());
        self.option(option::ISB_IFDROP, &missed.to_le_bytes());
        self.option(option::END, &[]);
        self.end(STATISTICS)
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }

    fn word(&mut self, word: u32) {
        self.block.extend(word.to_le_bytes());
    }

    fn time(&mut self, at_ns: u64) {
        self.block.extend(at_ns.rotate_left(32).to_le_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.block.extend(bytes);
        self.block.resize(self.block.len().next_multiple_of(4), 0);
    }

    fn option(&mut self, number: u16, value: &[u8]) {
        let value = &value[..value.len().min(u16::MAX.into())];
        let size = u16::try_from(value.len()).expect("cut to that");
        self.block.extend(number.to_le_bytes());
        self.block.extend(size.to_le_bytes());
        self.padded(value);
    }

    /// Writes the block with its kind and its size, which stands at both ends.
    fn end(&mut self, kind: u32) -> io::Result<()> {
        let size = size32(self.block.len() + 12).to_le_bytes();
        self.to.write_all(&kind.to_le_bytes())?;
        self.to.write_all(&size)?;
        self.to.write_all(&self.block)?;
        self.to.write_all(&size)?;
        self.block.clear();
        Ok(())
    }
}

fn size32(size: usize) -> u32 {
    u32::try_from(size).expect("below the largest record")
}

#[cfg(test)]
mod tests;
