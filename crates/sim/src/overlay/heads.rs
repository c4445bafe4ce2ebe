//! The first bytes of frames. The frames of a connection differ in what the switch does not read,
//! so that they share one head; a head with outer headers is made once for each size of frame.

use std::rc::Rc;

use sluice_base::Mac;
use sluice_wire::ethernet;
use sluice_wire::mac_control::Message;

/// How many bytes a switch is shown of a frame.
const SHOWN: usize = 128;
/// Ethernet, IPv4, UDP, VXLAN: of a known size, so that comparing them is a few instructions.
const OUTER: usize = 14 + 20 + 8 + 8;

/// The first bytes of a frame; behind its headers they are zero.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: [u8; SHOWN],
}

impl Head {
    pub(crate) fn new(headers: &[u8]) -> Self {
        let mut bytes = [0; SHOWN];
        bytes[..headers.len()].copy_from_slice(headers);
        Self { bytes }
    }

    /// What a frame of this size shows.
    #[inline]
    pub(crate) fn shown(&self, size: u32) -> &[u8] {
        &self.bytes[..SHOWN.min(size as usize)]
    }

    /// What a physical switch hashes to choose among equal paths: addresses and ports.
    pub(crate) fn flow(&self) -> u64 {
        u64::from(sluice_wire::flow::hash(&self.bytes))
    }

    /// Whether these are its first bytes. In words, of which the last two overlap: a call would
    /// cost more than it compares.
    #[inline]
    fn is_behind(&self, header: &[u8; OUTER]) -> bool {
        const WORDS: [usize; 7] = [0, 8, 16, 24, 32, 40, OUTER - 8];
        let word =
            |bytes: &[u8], at: usize| bytes[at..].first_chunk().map(|w| u64::from_ne_bytes(*w));
        WORDS.iter().all(|at| word(&self.bytes, *at) == word(header, *at))
    }

    /// The outer headers, then what the tenant's frame shows after `strip` bytes.
    fn behind(header: &[u8], inner: &[u8]) -> Self {
        let mut bytes = [0; SHOWN];
        let rest = (SHOWN - header.len()).min(inner.len());
        bytes[..header.len()].copy_from_slice(header);
        bytes[header.len()..header.len() + rest].copy_from_slice(&inner[..rest]);
        Self { bytes }
    }
}

/// The heads of a connection's encapsulated frames: full segments, acknowledgements, and now and
/// then another.
#[derive(Debug, Default)]
pub(crate) struct OuterHeads {
    kept: [Option<Rc<Head>>; 2],
    next: usize,
}

impl OuterHeads {
    /// The head with these outer headers before this tenant's.
    ///
    /// # Panics
    /// If they are not those of VXLAN over IPv4 without options.
    #[inline]
    pub(crate) fn get(&mut self, header: &[u8], inner: &[u8]) -> Rc<Head> {
        let header: &[u8; OUTER] = header.try_into().expect("the switch's outer headers");
        for head in self.kept.iter().flatten() {
            if head.is_behind(header) {
                return Rc::clone(head);
            }
        }
        self.make(header, inner)
    }

    #[cold]
    fn make(&mut self, header: &[u8; OUTER], inner: &[u8]) -> Rc<Head> {
        let head = Rc::new(Head::behind(header, inner));
        self.kept[self.next] = Some(Rc::clone(&head));
        self.next = 1 - self.next;
        head
    }
}

/// What a pause frame made by the switch says.
#[cold]
pub(crate) fn pause_of(frame: &[u8]) -> Message {
    let frame = ethernet::Frame::new_checked(frame).expect("the switch makes whole frames");
    debug_assert_eq!(frame.dst(), Mac::PAUSE);
    Message::parse(frame.payload()).expect("the switch makes whole frames")
}
