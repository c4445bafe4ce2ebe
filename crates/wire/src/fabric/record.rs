//! Records of claims: one vport in as few bytes as it takes (25 with one IPv4 address).

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_base::{Mac, PortId, Vni};
use zerocopy::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{put, split};

/// Upper bound of the addresses in a record.
pub const IPS_MAX: usize = 4;
/// The size of a withdrawal in bytes.
pub const WITHDRAWAL_SIZE: usize = size_of::<RawKey>();
/// The size of the largest record that this version writes, in bytes.
pub const RECORD_SIZE_MAX: usize = WITHDRAWAL_SIZE + size_of::<RawClaimed>() + IPS_MAX * (16 + 4);
/// The version since which addresses have sequences.
pub const SEQUENCES_VERSION: u8 = 3;
/// The sequence of an address that has none: its owner speaks an older version.
pub const SEQUENCE_FIRST: u32 = 1;

/// The low bits of `what` if the vport is gone.
const WITHDRAWN: u8 = 0;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawKey {
    /// Number of bytes behind this field.
    size: u8,
    what: u8,
    vni: [u8; 3],
    mac: [u8; 6],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawClaimed {
    port: U16,
    moves: U32,
}

const _: () = assert!(RECORD_SIZE_MAX <= u8::MAX as usize);

/// Origin of the owner's knowledge of the vport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From its frames.
    Learned,
    /// From its frames; frames from elsewhere do not move it.
    Sticky,
    /// From configuration.
    Bound,
}

/// Addresses of a vport, each with its sequence, IPv4 before IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpList {
    places: [Option<(IpAddr, u32)>; IPS_MAX],
}

impl IpList {
    /// Returns the first [`IPS_MAX`] of `ips`, IPv4 before IPv6 and otherwise in their order.
    pub fn new(ips: impl Iterator<Item = (IpAddr, u32)>) -> Self {
        let mut given = [None; IPS_MAX];
        for (place, ip) in given.iter_mut().zip(ips) {
            *place = Some(ip);
        }
        let of = |four| given.into_iter().flatten().filter(move |(ip, _)| ip.is_ipv4() == four);
        let mut places = [None; IPS_MAX];
        for (place, ip) in places.iter_mut().zip(of(true).chain(of(false))) {
            *place = Some(ip);
        }
        Self { places }
    }

    /// Returns the addresses and their sequences.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, u32)> + '_ {
        self.places.iter().flatten().copied()
    }

    fn counts(&self) -> (usize, usize) {
        let four = self.iter().filter(|(ip, _)| ip.is_ipv4()).count();
        (four, self.iter().count() - four)
    }
}

/// One change of a vport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The sender does not have the vport any more.
    Withdrawn {
        /// The network.
        vni: Vni,
        /// The address.
        mac: Mac,
    },
    /// The sender has the vport, with these properties.
    Claimed {
        /// The network.
        vni: Vni,
        /// The address.
        mac: Mac,
        /// The port, as the sender numbers it.
        port: PortId,
        /// Origin of the owner's knowledge.
        origin: Origin,
        /// Number of moves between hosts (RFC 7432 clause 15).
        moves: u32,
        /// The IP addresses of the vport.
        ips: IpList,
    },
}

/// Fault of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordError {
    /// The message ends before its records do.
    Missing,
    /// The record ends before its fields do.
    Short {
        /// Size of the record in bytes.
        size: u8,
    },
    /// It has more than [`IPS_MAX`] addresses.
    TooManyIps {
        /// Number of addresses.
        count: usize,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the message ends before its records do"),
            Self::Short { size } => write!(f, "a record of {size} B ends before its fields do"),
            Self::TooManyIps { count } => {
                write!(f, "a record with {count} IP addresses, {IPS_MAX} are the limit")
            }
        }
    }
}

impl core::error::Error for RecordError {}

impl Record {
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Withdrawn { .. } => WITHDRAWAL_SIZE,
            Self::Claimed { ips, .. } => {
                let (four, six) = ips.counts();
                WITHDRAWAL_SIZE + size_of::<RawClaimed>() + four * (4 + 4) + six * (16 + 4)
            }
        }
    }

    /// Reads the record at the start of `bytes` and returns it with the bytes behind it.
    pub(super) fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), RecordError> {
        let (raw, _) = split::<RawKey>(bytes).map_err(|_| RecordError::Missing)?;
        let end = 1 + usize::from(raw.size);
        let (record, rest) = bytes.split_at_checked(end).ok_or(RecordError::Missing)?;
        let short = RecordError::Short { size: raw.size };
        let fields = record.get(WITHDRAWAL_SIZE..).ok_or(short)?;
        let [high, middle, low] = raw.vni;
        let vni = Vni::new(u32::from_be_bytes([0, high, middle, low]));
        let (vni, mac) = (vni.expect("three bytes are 24 bits"), Mac(raw.mac));
        let origin = match raw.what & 3 {
            WITHDRAWN => return Ok((Self::Withdrawn { vni, mac }, rest)),
            1 => Origin::Learned,
            2 => Origin::Sticky,
            _ => Origin::Bound,
        };
        let (four, six) = (usize::from(raw.what >> 2 & 7), usize::from(raw.what >> 5));
        if four + six > IPS_MAX {
            return Err(RecordError::TooManyIps { count: four + six });
        }
        let (claimed, addresses) = split::<RawClaimed>(fields).map_err(|_| short)?;
        // An older version has no sequences; fields of a newer one behind them are skipped.
        let (four, addresses) = addresses.split_at_checked(four * 4).ok_or(short)?;
        let (six, sequences) = addresses.split_at_checked(six * 16).ok_or(short)?;
        let (four, _) = four.as_chunks::<4>();
        let (six, _) = six.as_chunks::<16>();
        let four = four.iter().map(|&octets| IpAddr::from(Ipv4Addr::from(octets)));
        let six = six.iter().map(|&octets| IpAddr::from(Ipv6Addr::from(octets)));
        let mut ips = IpList::default();
        for (place, ip) in ips.places.iter_mut().zip(four.chain(six)) {
            *place = Some((ip, SEQUENCE_FIRST));
        }
        if !sequences.is_empty() {
            let mut sequences = sequences.as_chunks::<4>().0.iter();
            for (_, sequence) in ips.places.iter_mut().flatten() {
                *sequence = u32::from_be_bytes(*sequences.next().ok_or(short)?);
            }
        }
        let (port, moves) = (PortId(claimed.port.get()), claimed.moves.get());
        Ok((Self::Claimed { vni, mac, port, origin, moves, ips }, rest))
    }

    /// Writes the record into the start of `out`, which has room, and returns its size.
    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let size = self.size();
        let key = |what, vni: Vni, mac: Mac| {
            let [_, high, middle, low] = vni.get().to_be_bytes();
            let size = u8::try_from(size - 1).expect("a record is small");
            RawKey { size, what, vni: [high, middle, low], mac: mac.0 }
        };
        match *self {
            Self::Withdrawn { vni, mac } => put(&key(WITHDRAWN, vni, mac), out),
            Self::Claimed { vni, mac, port, origin, moves, ips } => {
                let what = match origin {
                    Origin::Learned => 1,
                    Origin::Sticky => 2,
                    Origin::Bound => 3,
                };
                let (four, six) = ips.counts();
                let count = |ips| u8::try_from(ips).expect("a record has few addresses");
                put(&key(what | count(four) << 2 | count(six) << 5, vni, mac), out);
                let mut at = WITHDRAWAL_SIZE;
                put(&RawClaimed { port: U16::new(port.0), moves: U32::new(moves) }, &mut out[at..]);
                at += size_of::<RawClaimed>();
                for (ip, _) in ips.iter() {
                    match ip {
                        IpAddr::V4(ip) => put(&ip.octets(), &mut out[at..]),
                        IpAddr::V6(ip) => put(&ip.octets(), &mut out[at..]),
                    }
                    at += if ip.is_ipv4() { 4 } else { 16 };
                }
                for (_, sequence) in ips.iter() {
                    put(&sequence.to_be_bytes(), &mut out[at..]);
                    at += size_of::<u32>();
                }
            }
        }
        size
    }
}

/// The records of a message. All of them can be read.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    count: u16,
}

impl<'a> Records<'a> {
    /// Returns a view of `count` records at the start of `bytes`. The bytes behind them are
    /// skipped.
    ///
    /// # Errors
    /// [`RecordError`] of the first that cannot be read.
    pub fn new_checked(bytes: &'a [u8], count: u16) -> Result<Self, RecordError> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = Record::parse(rest)?;
        }
        Ok(Self { bytes: &bytes[..bytes.len() - rest.len()], count })
    }

    /// Returns the records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Record> + use<'a> {
        let (mut rest, count) = (self.bytes, self.count);
        (0..count).map_while(move |_| {
            let (record, after) = Record::parse(rest).ok()?;
            rest = after;
            Some(record)
        })
    }

    /// Returns the number of records.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}
