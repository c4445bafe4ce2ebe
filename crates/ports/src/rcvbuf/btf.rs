//! Places in the running kernel, from its BTF (`/sys/kernel/btf/vmlinux`): the number of a type or
//! function, and offsets of members.

use std::io;
use std::sync::OnceLock;

const MAGIC: u32 = 0xeb9f;
const HEADER_SIZE: usize = 24;
const TYPE_SIZE: usize = 12;
const MEMBER_SIZE: usize = 12;
const KIND_STRUCT: u32 = 4;
const KIND_FUNCTION: u32 = 12;

/// Numbers and offsets that the programs need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// Number of the kernel function `bpf_rdonly_cast`.
    pub(super) cast: i32,
    /// Number of `struct sock`.
    pub(super) sock: i32,
    /// Offset of `sk_backlog.rmem_alloc` in it.
    pub(super) used: i16,
    /// Offset of `sk_rcvbuf` in it.
    pub(super) limit: i16,
}

/// The places in the running kernel.
pub(super) fn places() -> io::Result<Places> {
    static PLACES: OnceLock<Result<Places, String>> = OnceLock::new();
    let read = || {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
        find(&bytes).ok_or_else(|| {
            "its BTF has no bpf_rdonly_cast, or no struct sock with rmem_alloc and sk_rcvbuf"
                .to_owned()
        })
    };
    PLACES.get_or_init(read).clone().map_err(io::Error::other)
}

/// The places in this BTF, if it has them.
pub(super) fn find(bytes: &[u8]) -> Option<Places> {
    let btf = Btf::new(bytes)?;
    let sock = btf.number(KIND_STRUCT, "sock")?;
    let (backlog, inner) = btf.member(sock, "sk_backlog")?;
    let (rmem, _) = btf.member(inner, "rmem_alloc")?;
    let (limit, _) = btf.member(sock, "sk_rcvbuf")?;
    Some(Places {
        cast: btf.number(KIND_FUNCTION, "bpf_rdonly_cast")?.try_into().ok()?,
        sock: sock.try_into().ok()?,
        used: (backlog + rmem).try_into().ok()?,
        limit: limit.try_into().ok()?,
    })
}

/// Types and strings.
struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type; numbers begin with 1.
    offsets: Vec<usize>,
}

impl<'a> Btf<'a> {
    fn new(bytes: &'a [u8]) -> Option<Self> {
        if word(bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let header = size(word(bytes, 4)?)?;
        if header < HEADER_SIZE {
            return None;
        }
        let part = |offset: usize, length: usize| {
            let begin = header.checked_add(size(word(bytes, offset)?)?)?;
            bytes.get(begin..begin.checked_add(size(word(bytes, length)?)?)?)
        };
        let (types, strings) = (part(8, 12)?, part(16, 20)?);
        let (mut offsets, mut at) = (Vec::new(), 0);
        while at < types.len() {
            offsets.push(at);
            let info = word(types, at + 4)?;
            at += TYPE_SIZE + extra(info >> 24 & 0x1f, size(info & 0xffff)?)?;
        }
        Some(Self { types, strings, offsets })
    }

    /// Number of the first type of this kind and name that has content.
    fn number(&self, kind: u32, name: &str) -> Option<u32> {
        let is_it = |at: &usize| {
            let info = word(self.types, at + 4).unwrap_or(0);
            let is_kind = info >> 24 & 0x1f == kind;
            let is_whole = kind != KIND_STRUCT || info & 0xffff > 0;
            is_kind && is_whole && self.name(*at) == Some(name.as_bytes())
        };
        u32::try_from(self.offsets.iter().position(is_it)? + 1).ok()
    }

    /// Offset in bytes of a member, and the number of its type.
    fn member(&self, of: u32, name: &str) -> Option<(u32, u32)> {
        let at = *self.offsets.get(size(of)?.checked_sub(1)?)?;
        let info = word(self.types, at + 4)?;
        let has_bit_fields = info >> 31 == 1;
        (0..size(info & 0xffff)?).find_map(|nth| {
            let at = at + TYPE_SIZE + MEMBER_SIZE * nth;
            if self.name(at)? != name.as_bytes() {
                return None;
            }
            let bits = word(self.types, at + 8)?;
            let bits = if has_bit_fields { bits & 0x00ff_ffff } else { bits };
            Some((bits / 8, word(self.types, at + 4)?))
        })
    }

    /// The name that a type or member at this offset begins with.
    fn name(&self, at: usize) -> Option<&'a [u8]> {
        let rest = self.strings.get(size(word(self.types, at)?)?..)?;
        rest.split(|byte| *byte == 0).next()
    }
}

/// Bytes of a type of this kind behind its first twelve.
fn extra(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => MEMBER_SIZE * members,
        6 | 13 => 8 * members,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn size(word: u32) -> Option<usize> {
    usize::try_from(word).ok()
}
