//! Rules for flows of high priority, in the program's layout.

use std::net::IpAddr;

use sluice_base::FlowMatch;

/// Maximum of matches (`RULES_MAX`): the program checks each for every packet.
pub(crate) const MATCHES_MAX: usize = 32;
/// Words of `struct match` and of `struct rules`.
const MATCH_WORDS: usize = 10;
pub(crate) const RULES_WORDS: usize = 1 + MATCHES_MAX * MATCH_WORDS;
/// Flags for a packet with ports (`HAS_PORT`), and with a protocol.
const HAS_PORT: u64 = 0x1_0000;
const HAS_PROTOCOL: u64 = 0x100;

/// The flows of high priority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// True if flows of the networks that were given at start are included.
    pub(crate) networks: bool,
    /// Matches of further flows.
    pub(crate) matches: Vec<FlowMatch>,
}

impl Rules {
    /// Encodes them as `struct rules` (`bpf/steer.bpf.c`). Matches beyond the limit are left out.
    pub(crate) fn words(&self) -> [u64; RULES_WORDS] {
        let mut words = [0; RULES_WORDS];
        let count = self.matches.len().min(MATCHES_MAX);
        let count = u32::try_from(count).unwrap_or(0);
        words[0] = pair(count, self.networks.into());
        for (to, one) in words[1..].chunks_exact_mut(MATCH_WORDS).zip(&self.matches) {
            to.copy_from_slice(&match_words(one));
        }
        words
    }
}

/// Two numbers of 32 bits, adjacent in memory.
pub(crate) fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Encodes a match; a field that is not given has an empty mask.
fn match_words(one: &FlowMatch) -> [u64; MATCH_WORDS] {
    let mut kind = (0, 0);
    if let Some(vni) = one.vni {
        kind = (vni.get().into(), u32::MAX.into());
    }
    if let Some(protocol) = one.protocol {
        kind.0 |= (HAS_PROTOCOL | u64::from(protocol)) << 32;
        kind.1 |= 0x1ff << 32;
    }
    let (mut ip, mut ip_mask) = ([0; 2], [0; 2]);
    if let Some(prefix) = one.ip {
        let version: u64 = if prefix.address().is_ipv4() { 4 } else { 6 };
        kind.0 |= version << 48;
        kind.1 |= 0xf << 48;
        ip = ip_words(prefix.address());
        ip_mask = ip_words(mask(prefix.address(), prefix.length()));
    }
    let mac = one.mac.map_or((0, 0), |mac| (mac_word(mac.0), mac_word([0xff; 6])));
    let port = one.port.map_or((0, 0), |port| {
        let port = u16::from_ne_bytes(port.to_be_bytes());
        (HAS_PORT | u64::from(port), HAS_PORT | 0xffff)
    });
    let [ip_0, ip_1] = ip;
    let [mask_0, mask_1] = ip_mask;
    [kind.0, kind.1, mac.0, mac.1, port.0, port.1, ip_0, ip_1, mask_0, mask_1]
}

/// The address with the highest `length` bits set.
fn mask(like: IpAddr, length: u8) -> IpAddr {
    let unset = |bits: u8| u32::from(bits.saturating_sub(length));
    match like {
        IpAddr::V4(_) => IpAddr::V4(u32::MAX.checked_shl(unset(32)).unwrap_or(0).into()),
        IpAddr::V6(_) => IpAddr::V6(u128::MAX.checked_shl(unset(128)).unwrap_or(0).into()),
    }
}

/// A MAC in the program's layout: its last four bytes, then its first two.
fn mac_word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from(u32::from_ne_bytes([c, d, e, f])) | u64::from(u16::from_ne_bytes([a, b])) << 32
}

/// An address in the program's layout: words of 32 bits as they are in memory, two in each of 64.
fn ip_words(address: IpAddr) -> [u64; 2] {
    let mut octets = [0; 16];
    match address {
        IpAddr::V4(v4) => octets[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => octets.copy_from_slice(&v6.octets()),
    }
    let word = |at: usize| {
        let word = |at: usize| {
            u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        u64::from(word(at)) | u64::from(word(at + 4)) << 32
    };
    [word(0), word(8)]
}
