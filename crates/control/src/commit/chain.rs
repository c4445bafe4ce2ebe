//! Hashes of records and of the applied log. They find accidents, not attacks: members are
//! authenticated, and a host checks its own disk.

use sluice_base::mix;

use super::record::{Kind, LogEntry};

/// Returns the checksum of a byte string.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    extend(0, bytes)
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
