//! Datagrams that only members can have written.
//!
//! The keys of two members come out of their connection (the exporter of TLS 1.3, RFC 8446 section
//! 7.5), so that the writer of a host's datagram has shown the host's certificate. Each direction
//! has a key of its own. A new connection brings new keys; the keys of the one before still open
//! datagrams under way.
//!
//! ```text
//!   version u8, key [u8; 4], sequence u64, the datagram, HMAC-SHA-256 of all that [u8; 32]
//! ```
//!
//! A datagram opens once: sequences that are too old for the window, or were seen, are rejected (as
//! in RFC 4303 section 3.4.3). Its contents are not secret.

use std::collections::BTreeMap;

use ring::hmac;
use sluice_base::HostId;

/// Bytes that a connection gives for its keys.
pub(super) const SECRET_SIZE: usize = ID_SIZE + 2 * KEY_SIZE;
/// Overhead of a sealed datagram.
pub(super) const SEAL_SIZE: usize = HEADER_SIZE + TAG_SIZE;

const VERSION: u8 = 1;
const ID_SIZE: usize = 4;
const KEY_SIZE: usize = 32;
const TAG_SIZE: usize = 32;
const SEQUENCE_START: usize = 1 + ID_SIZE;
const HEADER_SIZE: usize = SEQUENCE_START + size_of::<u64>();
/// Connections of a host whose keys are kept.
const KEYS_MAX: usize = 2;
/// Largest distance of a datagram behind the newest one: as many as the window has bits.
const WINDOW: u64 = u64::BITS as u64;

/// Sequences received in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// The sequence above the newest.
    next: u64,
    /// Bit n is set if the sequence n below the newest was received.
    seen: u64,
}

impl Window {
    /// Returns true if a sequence is new, and notes it.
    fn admit(&mut self, sequence: u64) -> bool {
        if sequence >= self.next {
            let step = sequence - self.next + 1;
            self.seen = if step < WINDOW { self.seen << step } else { 0 } | 1;
            self.next = sequence.saturating_add(1);
            return true;
        }
        let behind = self.next - 1 - sequence;
        let is_new = behind < WINDOW && self.seen & (1 << behind) == 0;
        if is_new {
            self.seen |= 1 << behind;
        }
        is_new
    }
}

/// The keys of one connection.
#[derive(Debug)]
struct Keys {
    id: [u8; ID_SIZE],
    send: hmac::Key,
    receive: hmac::Key,
    sequence: u64,
    window: Window,
}

/// The keys of all members.
#[derive(Debug, Default)]
pub(super) struct DatagramKeys {
    /// Keys by host, those of the newest connection first.
    hosts: BTreeMap<HostId, Vec<Keys>>,
}

impl DatagramKeys {
    /// Adds the keys of a new connection to a host. `began` is true if this side began it.
    pub(super) fn add(&mut self, host: HostId, secret: &[u8; SECRET_SIZE], began: bool) {
        let (id, keys) = secret.split_at(ID_SIZE);
        let (ours, theirs) = keys.split_at(KEY_SIZE);
        let (ours, theirs) = if began { (ours, theirs) } else { (theirs, ours) };
        let key = |bytes| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        let keys = Keys {
            id: id.try_into().expect("as many bytes"),
            send: key(ours),
            receive: key(theirs),
            sequence: 0,
            window: Window::default(),
        };
        let all = self.hosts.entry(host).or_default();
        all.truncate(KEYS_MAX - 1);
        all.insert(0, keys);
    }

    /// Forgets the keys of a host: none of its datagrams opens any more.
    pub(super) fn remove(&mut self, host: HostId) {
        self.hosts.remove(&host);
    }

    /// Seals a datagram for a host; `None` if there was no connection to it yet.
    pub(super) fn seal(&mut self, host: HostId, datagram: &[u8]) -> Option<Vec<u8>> {
        let keys = self.hosts.get_mut(&host)?.first_mut()?;
        let mut sealed = Vec::with_capacity(datagram.len() + SEAL_SIZE);
        sealed.push(VERSION);
        sealed.extend(keys.id);
        sealed.extend(keys.sequence.to_be_bytes());
        sealed.extend(datagram);
        keys.sequence += 1;
        let tag = hmac::sign(&keys.send, &sealed);
        sealed.extend(tag.as_ref());
        Some(sealed)
    }

    /// Opens a sealed datagram of a host; `None` if the host has not written it, or it was received
    /// before.
    pub(super) fn open<'a>(&mut self, host: HostId, sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (signed, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_SIZE)?)?;
        let (header, datagram) = signed.split_at_checked(HEADER_SIZE)?;
        let id = &header[1..SEQUENCE_START];
        let keys = self.hosts.get_mut(&host)?.iter_mut().find(|keys| keys.id == id)?;
        if header[0] != VERSION || hmac::verify(&keys.receive, signed, tag).is_err() {
            return None;
        }
        let sequence = u64::from_be_bytes(header[SEQUENCE_START..].try_into().ok()?);
        keys.window.admit(sequence).then_some(datagram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HostId = HostId(1);
    const B: HostId = HostId(2);

    fn secret(seed: u8) -> [u8; SECRET_SIZE] {
        std::array::from_fn(|at| seed.wrapping_mul(31).wrapping_add(at.to_le_bytes()[0]))
    }

    /// Returns the two ends of one connection.
    fn pair(seed: u8) -> (DatagramKeys, DatagramKeys) {
        let (mut a, mut b) = (DatagramKeys::default(), DatagramKeys::default());
        a.add(B, &secret(seed), true);
        b.add(A, &secret(seed), false);
        (a, b)
    }

    #[test]
    fn what_one_seals_the_other_opens_once() {
        let (mut a, mut b) = pair(1);
        let sealed = a.seal(B, b"ping").unwrap();
        assert_eq!(sealed.len(), 4 + SEAL_SIZE);
        assert_eq!(b.open(A, &sealed), Some(&b"ping"[..]));
        assert_eq!(b.open(A, &sealed), None, "it came before");
        let answer = b.seal(A, b"").unwrap();
        assert_eq!(a.open(B, &answer), Some(&b""[..]));
        // A host rejects its own datagrams.
        let own = a.seal(B, b"echo").unwrap();
        assert_eq!(a.open(B, &own), None);
    }

    #[test]
    fn nothing_else_opens() {
        let (mut a, mut b) = pair(1);
        let sealed = a.seal(B, b"who is down").unwrap();
        for at in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(b.open(A, &bent), None, "byte {at}");
            assert_eq!(b.open(A, &sealed[..at]), None, "{at} bytes");
        }
        assert_eq!(b.open(HostId(3), &sealed), None, "it is another's");
        let (mut stranger, _) = pair(2);
        assert_eq!(b.open(A, &stranger.seal(B, b"who is down").unwrap()), None);
        assert!(b.open(A, &sealed).is_some(), "what was refused was not counted as seen");
        assert_eq!(DatagramKeys::default().seal(B, b"x"), None);
    }

    #[test]
    fn late_ones_open_within_the_window() {
        let (mut a, mut b) = pair(1);
        let sealed: Vec<_> = (0..200_u8).map(|n| a.seal(B, &[n]).unwrap()).collect();
        for (n, opens) in [(0, true), (70, true), (7, true), (6, false), (69, true), (70, false)] {
            assert_eq!(b.open(A, &sealed[n]).is_some(), opens, "{n}");
        }
        assert!(b.open(A, &sealed[199]).is_some() && b.open(A, &sealed[136]).is_some());
        assert_eq!(b.open(A, &sealed[135]), None);
        assert_eq!(b.open(A, &sealed[69]), None);
    }

    #[test]
    fn keys_of_the_connection_before_still_open() {
        let (mut a, mut b) = pair(1);
        let old = a.seal(B, b"old").unwrap();
        let older = a.seal(B, b"older").unwrap();
        for seed in [2, 3] {
            a.add(B, &secret(seed), true);
            b.add(A, &secret(seed), false);
            let new = a.seal(B, b"new").unwrap();
            assert!(b.open(A, &new).is_some());
            if seed == 2 {
                assert!(b.open(A, &old).is_some());
            }
        }
        assert_eq!(b.open(A, &older), None, "two connections ago");
    }

    #[test]
    fn datagram_of_removed_host_does_not_open() {
        let (mut a, mut b) = pair(1);
        let [first, second] = [0, 1].map(|_| a.seal(B, b"news").unwrap());
        assert!(b.open(A, &first).is_some());
        b.remove(A);
        assert_eq!((b.open(A, &second), b.seal(A, b"news")), (None, None));
        // Nor does it if the host is back, with another connection.
        b.add(A, &secret(2), false);
        assert_eq!(b.open(A, &second), None);
    }
}
