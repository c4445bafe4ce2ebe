//! Hashes of records and of the applied log. They find accidents, not attacks: members are
//! authenticated, and a host checks its own disk.

use alloc::vec::Vec;

use sluice_base::mix;

use super::bytes::Malformed;
use super::record::{Kind, LogEntry};

/// Returns bytes with their checksum behind them.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = extend(0, &bytes);
    bytes.extend(sum.to_be_bytes());
    bytes
}

/// Returns the bytes in front of their checksum; `differs` says that it is another one.
pub(super) fn unsealed<'a>(bytes: &'a [u8], differs: &'static str) -> Result<&'a [u8], Malformed> {
    let (body, sum) = bytes.split_last_chunk().ok_or(Malformed::of("it ends early"))?;
    match extend(0, body) == u64::from_be_bytes(*sum) {
        true => Ok(body),
        false => Err(Malformed::of(differs)),
    }
}

fn extend(hash: u64, bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_be_bytes(word)
    });
    let hash = words.fold(hash, |hash, word| mix(hash ^ word));
    mix(hash ^ bytes.len() as u64)
}

/// Returns the hash of the log up to an entry, from the hash up to the entry before it.
pub(super) fn next(hash: u64, entry: &LogEntry) -> u64 {
    let kind = match entry.kind {
        Kind::Command => 0,
        Kind::Voters => 1,
    };
    let place = mix(mix(hash ^ entry.index) ^ entry.term) ^ kind;
    extend(place, &entry.data)
}
