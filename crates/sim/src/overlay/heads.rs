//! The first bytes of frames. The frames of a connection differ only in bytes that the switch does
//! not read, so that they share one head; a head with outer headers is made for each size of frame.
//! The tenant's frame is behind them in the same head: the less memory a connection has, the more
//! of it stays in cache.

use std::rc::Rc;

use sluice_base::Mac;
use sluice_wire::ethernet;
use sluice_wire::mac_control::Message;

/// Number of bytes of a frame that a switch is shown.
const SHOWN: usize = 128;
/// Ethernet, IPv4, UDP, VXLAN: of a known size, so that a comparison is a few instructions.
const OUTER: usize = 14 + 20 + 8 + 8;

/// The first bytes of a tenant's frame, and in front of them its outer headers; behind its own
/// headers they are zero.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: [u8; OUTER + SHOWN],
}

impl Head {
    /// Creates the head of a tenant's frame with these headers, whose outer headers are not known
    /// yet.
    pub(crate) fn new(headers: &[u8]) -> Self {
        Self::behind(&[0; OUTER], headers)
    }

    /// Creates the head of a frame of the underlay that carries no tenant's frame.
    pub(crate) fn bare(headers: &[u8]) -> Self {
        let mut bytes = [0; OUTER + SHOWN];
        bytes[..headers.len()].copy_from_slice(headers);
        Self { bytes }
    }

    fn behind(outer: &[u8; OUTER], headers: &[u8]) -> Self {
        let mut bytes = [0; OUTER + SHOWN];
        bytes[..OUTER].copy_from_slice(outer);
        bytes[OUTER..OUTER + headers.len()].copy_from_slice(headers);
        Self { bytes }
    }

    /// Returns the shown bytes of a tenant's frame of this size.
    #[inline]
    pub(crate) fn inner(&self, size: u16) -> &[u8] {
        &self.bytes[OUTER..OUTER + SHOWN.min(size.into())]
    }

    /// Returns the shown bytes with the outer headers.
    #[inline]
    pub(crate) fn outer(&self, size: u16) -> &[u8] {
        &self.bytes[..SHOWN.min(size.into())]
    }

    /// Returns the hash by which a physical switch chooses among equal paths: of addresses and
    /// ports.
    pub(crate) fn flow(&self) -> u64 {
        u64::from(sluice_wire::flow::hash(&self.bytes[..SHOWN]))
    }

    /// Returns true if these are its first bytes. Compares by words, of which the last two overlap:
    /// a call would cost more than the comparison.
    #[inline]
    fn is_behind(&self, header: &[u8; OUTER]) -> bool {
        const WORDS: [usize; 7] = [0, 8, 16, 24, 32, 40, OUTER - 8];
        let word =
            |bytes: &[u8], at: usize| bytes[at..].first_chunk().map(|w| u64::from_ne_bytes(*w));
        WORDS.iter().all(|at| word(&self.bytes, *at) == word(header, *at))
    }
}

/// The heads of the frames that an end of a connection sends: full segments, acknowledgements, and
/// now and then another.
#[derive(Debug)]
pub(crate) struct Heads {
    /// The last two heads, the newest first.
    kept: [Rc<Head>; 2],
}

impl Heads {
    pub(crate) fn new(head: Head) -> Self {
        let head = Rc::new(head);
        Self { kept: [Rc::clone(&head), head] }
    }

    /// Returns the head for a tenant's frame: the same for all.
    #[inline]
    pub(crate) fn inner(&self) -> Rc<Head> {
        Rc::clone(&self.kept[0])
    }

    /// Returns the head with these outer headers.
    ///
    /// # Panics
    /// If the headers are not VXLAN over IPv4 without options.
    #[inline]
    pub(crate) fn behind(&mut self, header: &[u8]) -> Rc<Head> {
        let header: &[u8; OUTER] = header.try_into().expect("the switch's outer headers");
        for head in &self.kept {
            if head.is_behind(header) {
                return Rc::clone(head);
            }
        }
        self.make(header)
    }

    #[cold]
    fn make(&mut self, header: &[u8; OUTER]) -> Rc<Head> {
        let [last, older] = &mut self.kept;
        *older = Rc::new(Head::behind(header, &last.bytes[OUTER..]));
        self.kept.swap(0, 1);
        Rc::clone(&self.kept[0])
    }
}

/// Returns the content of a pause frame that the switch made.
#[cold]
pub(crate) fn pause_of(frame: &[u8]) -> Message {
    let frame = ethernet::Frame::new_checked(frame).expect("the switch makes whole frames");
    debug_assert_eq!(frame.dst(), Mac::PAUSE);
    Message::parse(frame.payload()).expect("the switch makes whole frames")
}
