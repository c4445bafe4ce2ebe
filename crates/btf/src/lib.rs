//! The types of a kernel, from its BTF (`/sys/kernel/btf/vmlinux`): numbers of types and functions,
//! offsets of members, and names of enumerations.
//!
//! BTF is `struct btf_header`, then types one after the other, then strings. A type is 12 bytes and
//! the extra bytes of its kind; types are numbered from 1 in their order.
//! <https://docs.kernel.org/bpf/btf.html> has the format.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io;

const MAGIC: u32 = 0xeb9f;
const HEADER_SIZE: usize = 24;
const TYPE_SIZE: usize = 12;
const MEMBER_SIZE: usize = 12;
const ENUMERATOR_SIZE: usize = 8;

/// Reads the BTF of the running kernel.
///
/// # Errors
/// The kernel's error: it was built without BTF, or `/sys` is not mounted.
pub fn running_kernel() -> io::Result<Vec<u8>> {
    std::fs::read("/sys/kernel/btf/vmlinux")
}

/// Kind of a type, as in `BTF_KIND_STRUCT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A structure.
    Struct,
    /// An enumeration of values of 32 bits.
    Enum,
    /// A function.
    Func,
}

impl Kind {
    const fn number(self) -> u32 {
        match self {
            Self::Struct => 4,
            Self::Enum => 6,
            Self::Func => 12,
        }
    }
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Offset in bytes.
    pub offset: u32,
    /// Number of its type.
    pub type_number: u32,
}

/// Types and their names.
#[derive(Clone, Debug)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type; numbers begin with 1.
    offsets: Vec<usize>,
}

impl<'a> Btf<'a> {
    /// Parses BTF; `None` if the bytes are none, or are cut off. Types after the first one of an
    /// unknown kind are not found.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
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
            let info = word(types, at + 4)?;
            offsets.push(at);
            let Some(extra) = extra_size(info >> 24 & 0x1f, count(info)) else { break };
            at += TYPE_SIZE + extra;
        }
        Some(Self { types, strings, offsets })
    }

    /// Returns the number of the first type of this kind and name. A structure or an enumeration
    /// without members, which is only declared, is passed over.
    #[must_use]
    pub fn number(&self, kind: Kind, name: &str) -> Option<u32> {
        let is_it = |at: &usize| {
            let info = word(self.types, at + 4).unwrap_or(0);
            let is_kind = info >> 24 & 0x1f == kind.number();
            let is_whole = kind == Kind::Func || count(info) > 0;
            is_kind && is_whole && self.name(*at) == Some(name.as_bytes())
        };
        u32::try_from(self.offsets.iter().position(is_it)? + 1).ok()
    }

    /// Returns a member of the structure of this number.
    #[must_use]
    pub fn member(&self, of: u32, name: &str) -> Option<Member> {
        let at = self.offset(of)?;
        let info = word(self.types, at + 4)?;
        let has_bit_fields = info >> 31 == 1;
        (0..count(info)).find_map(|nth| {
            let at = at + TYPE_SIZE + MEMBER_SIZE * nth;
            if self.name(at)? != name.as_bytes() {
                return None;
            }
            let bits = word(self.types, at + 8)?;
            let bits = if has_bit_fields { bits & 0x00ff_ffff } else { bits };
            Some(Member { offset: bits / 8, type_number: word(self.types, at + 4)? })
        })
    }

    /// Returns value and name of every member of the enumeration `name`.
    #[must_use]
    pub fn enumeration(&self, name: &str) -> Option<BTreeMap<u32, String>> {
        let at = self.offset(self.number(Kind::Enum, name)?)?;
        let member = |nth: usize| {
            let at = at + TYPE_SIZE + ENUMERATOR_SIZE * nth;
            let name = std::str::from_utf8(self.name(at)?).ok()?;
            Some((word(self.types, at + 4)?, name.to_owned()))
        };
        (0..count(word(self.types, at + 4)?)).map(member).collect()
    }

    fn offset(&self, number: u32) -> Option<usize> {
        self.offsets.get(size(number)?.checked_sub(1)?).copied()
    }

    /// Returns the name that a type or member at this offset begins with.
    fn name(&self, at: usize) -> Option<&'a [u8]> {
        let rest = self.strings.get(size(word(self.types, at)?)?..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        Some(&rest[..end])
    }
}

/// Returns the number of members from a type's `info`.
const fn count(info: u32) -> usize {
    (info & 0xffff) as usize
}

/// Returns the bytes of a type of this kind behind its first twelve; `None` if the kind is unknown.
const fn extra_size(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => MEMBER_SIZE * members,
        6 | 13 => ENUMERATOR_SIZE * members,
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

#[cfg(test)]
mod tests;
