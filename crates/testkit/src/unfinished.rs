//! Frames that a guest leaves to its card to finish (checksum and segmentation offload), and the
//! finished ones.
//!
//! A finished segment is not derived from the frame that was sent: it is written from its fields
//! and its part of the data, so that it can be compared with the output of a device.

use crate::guest::shape::HEADER_BYTES;

/// Payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP over IPv4.
    Udp4,
    /// UDP over IPv6.
    Udp6,
}

/// Flags of TCP that segmentation treats specially (RFC 9293 section 3.1, RFC 3168 section 6.1).
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const PSH: u8 = 0x08;
/// See [`FIN`].
pub const ACK: u8 = 0x10;
/// See [`FIN`].
pub const CWR: u8 = 0x80;

/// A frame whose checksum is left to the device.
#[derive(Clone, Debug)]
pub struct Unfinished {
    /// Its payload.
    pub carries: Carries,
    /// Destination and source MAC addresses.
    pub addresses: [[u8; 6]; 2],
    /// Tags in front of the packet.
    pub tags: Vec<[u8; 4]>,
    /// Options of TCP, a multiple of four bytes.
    pub options: Vec<u8>,
    /// IPv4's identification.
    pub ident: u16,
    /// TCP's sequence number.
    pub seq: u32,
    /// TCP's flags.
    pub flags: u8,
    /// Data of the payload.
    pub data: Vec<u8>,
    /// Bytes of data in each segment; `None`: it is one frame.
    pub each: Option<u16>,
}

/// Content of a checksum's field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    /// Sum of the pseudo-header.
    Open,
    Whole,
}

impl Unfinished {
    /// Returns a frame of `data` bytes of data, to be cut into segments of `each` bytes.
    #[must_use]
    pub fn new(carries: Carries, addresses: [[u8; 6]; 2], data: usize, each: Option<u16>) -> Self {
        let data = (0..data).map(|at| u8::try_from(at % 253).unwrap_or(0)).collect();
        Self {
            carries,
            addresses,
            tags: Vec::new(),
            options: vec![1; 12],
            ident: 0xfffe,
            seq: u32::MAX - 2000,
            flags: ACK | PSH,
            data,
            each,
        }
    }

    const fn is_tcp(&self) -> bool {
        matches!(self.carries, Carries::Tcp4 | Carries::Tcp6)
    }

    const fn is_ipv6(&self) -> bool {
        matches!(self.carries, Carries::Tcp6 | Carries::Udp6)
    }

    /// Returns the offset of the transport header.
    #[must_use]
    pub fn start(&self) -> usize {
        14 + 4 * self.tags.len() + if self.is_ipv6() { 40 } else { 20 }
    }

    /// Returns the offset of the data.
    #[must_use]
    pub fn headers(&self) -> usize {
        self.start() + if self.is_tcp() { 20 + self.options.len() } else { 8 }
    }

    /// Returns the frame as the guest sends it.
    #[must_use]
    pub fn frame(&self) -> Vec<u8> {
        self.build(&self.data, self.ident, self.seq, self.flags, Sum::Open)
    }

    /// Returns the header in front of it (virtio 1.2, 5.1.6).
    ///
    /// # Panics
    /// If it is larger than any frame.
    #[must_use]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let half = |number: usize| u16::try_from(number).expect("a small frame").to_le_bytes();
        let [start, offset] = [half(self.start()), half(if self.is_tcp() { 16 } else { 6 })];
        let (mut gso, mut sizes) = (0, [[0; 2]; 2]);
        if let Some(each) = self.each {
            gso = match self.carries {
                Carries::Tcp4 => 1,
                Carries::Tcp6 => 4,
                Carries::Udp4 | Carries::Udp6 => 5,
            };
            gso |= if self.is_tcp() { self.flags & CWR } else { 0 };
            sizes = [half(self.headers()), each.to_le_bytes()];
        }
        let mut header = [0; HEADER_BYTES];
        header[..2].copy_from_slice(&[1, gso]);
        for (at, two) in sizes.into_iter().chain([start, offset]).enumerate() {
            header[2 + 2 * at..][..2].copy_from_slice(&two);
        }
        header
    }

    /// Returns the finished frames, as they are on a wire.
    ///
    /// # Panics
    /// If they are more than can be counted.
    #[must_use]
    pub fn finished(&self) -> Vec<Vec<u8>> {
        let each = self.each.map_or(self.data.len().max(1), usize::from);
        let count = self.data.len().div_ceil(each).max(1);
        let of = |nth: usize| {
            let from = nth * each;
            let part = &self.data[from..(from + each).min(self.data.len())];
            let mut flags = self.flags;
            if nth + 1 < count {
                flags &= !(FIN | PSH);
            }
            if nth > 0 {
                flags &= !CWR;
            }
            let ident = self.ident.wrapping_add(u16::try_from(nth).expect("fewer than 2^16"));
            let seq = self.seq.wrapping_add(u32::try_from(from).expect("a small frame"));
            self.build(part, ident, seq, flags, Sum::Whole)
        };
        (0..count).map(of).collect()
    }

    fn build(&self, data: &[u8], ident: u16, seq: u32, flags: u8, sum: Sum) -> Vec<u8> {
        let transport = self.transport(data, seq, flags, sum);
        let mut frame = self.addresses.concat();
        frame.extend(self.tags.concat());
        if self.is_ipv6() {
            frame.extend([0x86, 0xdd, 0x6b, 0xcd, 0xef, 0x12]);
            frame.extend(half(transport.len()));
            frame.extend([self.protocol(), 61]);
        } else {
            frame.extend([0x08, 0x00]);
            let mut ip = vec![0x45, 0x02];
            ip.extend(half(20 + transport.len()));
            ip.extend(ident.to_be_bytes());
            ip.extend([0x40, 0, 61, self.protocol(), 0, 0]);
            ip.extend(self.pair());
            let sum = slow_sum(&ip);
            ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
            frame.extend(&ip[..12]);
        }
        frame.extend(self.pair());
        frame.extend(transport);
        frame
    }

    const fn protocol(&self) -> u8 {
        if self.is_tcp() { 6 } else { 17 }
    }

    /// Returns both IP addresses.
    fn pair(&self) -> Vec<u8> {
        let end = |mac: [u8; 6]| match self.is_ipv6() {
            true => [&[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0][..], &mac].concat(),
            false => vec![10, 0, mac[4], mac[5]],
        };
        [end(self.addresses[1]), end(self.addresses[0])].concat()
    }

    fn transport(&self, data: &[u8], seq: u32, flags: u8, sum: Sum) -> Vec<u8> {
        let mut bytes = vec![0x30, 0x39, 0x14, 0x51];
        let at = if self.is_tcp() {
            bytes.extend(seq.to_be_bytes());
            let words = u8::try_from(5 + self.options.len() / 4).expect("few options");
            bytes.extend([9, 8, 7, 6, words << 4, flags, 0x12, 0x34, 0, 0, 0, 0]);
            bytes.extend(&self.options);
            16
        } else {
            bytes.extend(half(8 + data.len()));
            bytes.extend([0, 0]);
            6
        };
        bytes.extend(data);
        let mut pseudo = self.pair();
        pseudo.extend([0, self.protocol()]);
        pseudo.extend(half(bytes.len()));
        let value = match sum {
            Sum::Open => slow_sum(&pseudo),
            Sum::Whole => {
                // All parts but the last have an even length.
                let value = !slow_sum(&[pseudo, bytes.clone()].concat());
                if value == 0 && !self.is_tcp() { 0xffff } else { value }
            }
        };
        bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        bytes
    }
}

fn half(number: usize) -> [u8; 2] {
    // The receiver checks values that are too large for the field.
    u16::try_from(number).unwrap_or(0).to_be_bytes()
}

/// Returns the one's complement sum (RFC 1071 section 1), word by word.
fn slow_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, word| {
        let word = u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}
