//! Names of an enumeration of the running kernel, from its BTF (`/sys/kernel/btf/vmlinux`).
//!
//! `struct btf_header`, then types one after the other, then strings. A type is 12 bytes and the
//! extra bytes of its kind; only enumerations are parsed.

use std::collections::BTreeMap;

const MAGIC: u32 = 0xeb9f;
const HEADER: usize = 24;
const TYPE: usize = 12;
const KIND_ENUM: u32 = 6;

/// Value and name of every member of the enumeration `name`; `None` if there is none or the bytes
/// are not BTF.
pub(crate) fn enumeration(bytes: &[u8], name: &str) -> Option<BTreeMap<u32, String>> {
    if word(bytes, 0)? & 0xffff != MAGIC {
        return None;
    }
    let header = size(word(bytes, 4)?)?;
    let part = |offset: usize, length: usize| {
        let begin = header.checked_add(size(word(bytes, offset)?)?)?;
        bytes.get(begin..begin.checked_add(size(word(bytes, length)?)?)?)
    };
    if header < HEADER {
        return None;
    }
    let (types, strings) = (part(8, 12)?, part(16, 20)?);
    let mut at = 0;
    while at < types.len() {
        let (text, info) = (word(types, at)?, word(types, at + 4)?);
        let (kind, members) = (info >> 24 & 0x1f, size(info & 0xffff)?);
        at += TYPE;
        if kind == KIND_ENUM && members > 0 && string(strings, text)? == name {
            let member = |nth: usize| {
                let at = at + 8 * nth;
                Some((word(types, at + 4)?, string(strings, word(types, at)?)?.to_owned()))
            };
            return (0..members).map(member).collect();
        }
        at += extra(kind, members)?;
    }
    None
}

/// Bytes of a type of this kind behind its first twelve.
fn extra(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,
        3 => 12,
        4 | 5 | 15 | 19 => 12 * members,
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

fn string(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(size(at)?..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests;
