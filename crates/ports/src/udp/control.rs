//! Control messages beside datagrams: the TOS, and the size of each of several in one buffer.
//!
//! `struct cmsghdr` is the length of header and data, level and kind; the data follow it, and the
//! next header begins at a multiple of eight bytes.

use crate::sys;

/// Words of a header: length, and level with kind.
const HEADER_WORDS: usize = 2;
/// Words of a message with an integer.
const MESSAGE_WORDS: usize = HEADER_WORDS + 1;
const WORD: usize = size_of::<u64>();
const _: () = assert!(size_of::<libc::cmsghdr>() == HEADER_WORDS * WORD);

/// Room for the messages of one datagram, aligned.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Control {
    words: [u64; 2 * MESSAGE_WORDS],
}

/// Content of the messages that came with a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// TOS of the datagram.
    pub(super) tos: u8,
    /// Size of each of the datagrams in the buffer, but for the last one, which may be shorter.
    pub(super) each: Option<u16>,
}

impl Control {
    /// Size of the room in bytes.
    pub(super) const SIZE: usize = 2 * MESSAGE_WORDS * WORD;

    /// Fills in what is sent beside datagrams. Returns the size of the messages in bytes.
    pub(super) fn fill(&mut self, said: Said) -> usize {
        let level = libc::IPPROTO_IP;
        self.put(0, level, libc::IP_TOS, &i32::from(said.tos).to_ne_bytes());
        let Some(each) = said.each else { return MESSAGE_WORDS * WORD };
        self.put(MESSAGE_WORDS, libc::SOL_UDP, libc::UDP_SEGMENT, &each.to_ne_bytes());
        2 * MESSAGE_WORDS * WORD
    }

    fn put(&mut self, at: usize, level: i32, kind: i32, data: &[u8]) {
        let (level, kind) = (level.to_ne_bytes(), kind.to_ne_bytes());
        let mut second = [0; WORD];
        second[..4].copy_from_slice(&level);
        second[4..].copy_from_slice(&kind);
        let mut third = [0; WORD];
        third[..data.len()].copy_from_slice(data);
        self.words[at] = (HEADER_WORDS * WORD + data.len()) as u64;
        self.words[at + 1] = u64::from_ne_bytes(second);
        self.words[at + 2] = u64::from_ne_bytes(third);
    }

    /// Reads what came: `size` bytes of messages.
    pub(super) fn read(&self, size: usize) -> Said {
        let mut said = Said::default();
        let mut left = self.words.get(..size.div_ceil(WORD)).unwrap_or(&self.words);
        while let [length, kind, data, ..] = left {
            let (kind, data) = (kind.to_ne_bytes(), data.to_ne_bytes());
            match kind.as_chunks::<4>().0 {
                [level, kind] if of(*level, *kind) == (libc::IPPROTO_IP, libc::IP_TOS) => {
                    said.tos = data[0];
                }
                [level, kind] if of(*level, *kind) == (libc::SOL_UDP, libc::UDP_GRO) => {
                    let each = i32::from_ne_bytes([data[0], data[1], data[2], data[3]]);
                    said.each = u16::try_from(each).ok().filter(|each| *each > 0);
                }
                _ => {}
            }
            let words = usize::try_from(*length).map_or(left.len(), |bytes| bytes.div_ceil(WORD));
            left = left.get(words.max(MESSAGE_WORDS)..).unwrap_or_default();
        }
        said
    }

    pub(super) const fn as_mut_ptr(&mut self) -> *mut u64 {
        self.words.as_mut_ptr()
    }
}

const fn of(level: [u8; 4], kind: [u8; 4]) -> (i32, i32) {
    (i32::from_ne_bytes(level), i32::from_ne_bytes(kind))
}

/// Lets the kernel join datagrams of one sender and one size in the buffer of a socket.
pub(super) fn join(socket: &std::net::UdpSocket) -> std::io::Result<()> {
    sys::set_option(socket, libc::SOL_UDP, libc::UDP_GRO, &1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_read_as_they_were_filled_in() {
        for (tos, each) in [(0, None), (0xff, None), (0xb8, Some(1)), (3, Some(u16::MAX))] {
            let mut control = Control::default();
            let size = control.fill(Said { tos, each });
            assert_eq!(size, if each.is_some() { 48 } else { 24 });
            // UDP_SEGMENT is what is sent, UDP_GRO what comes: only the TOS is the same.
            assert_eq!(control.read(size), Said { tos, each: None });
        }
    }

    #[test]
    fn control_message_of_joined_datagrams_has_their_size() {
        let mut control = Control::default();
        control.put(0, libc::SOL_UDP, libc::UDP_GRO, &1_400_i32.to_ne_bytes());
        control.put(MESSAGE_WORDS, libc::IPPROTO_IP, libc::IP_TOS, &[7]);
        assert_eq!(control.read(48), Said { tos: 7, each: Some(1_400) });
        assert_eq!(control.read(24), Said { tos: 0, each: Some(1_400) });
        assert_eq!(control.read(0), Said::default());
        control.put(0, libc::SOL_UDP, libc::UDP_GRO, &0_i32.to_ne_bytes());
        assert_eq!(control.read(24), Said::default());
        // Lengths that no kernel writes.
        control.words[0] = 0;
        assert_eq!(control.read(48).tos, 7);
        control.words[0] = u64::MAX;
        assert_eq!(control.read(48), Said::default());
    }
}
