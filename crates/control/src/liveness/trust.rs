//! Trust in datagrams: untrusted content is taken out before the protocol sees it.
//!
//! ```text
//!   datagram of A ── is A's, in the life that A's connection has shown? ── no: refused
//!                 └─ its news of B ── is in the life that B's connection has shown, and not
//!                                         many rounds ahead? ── no: left out
//! ```
//!
//! A member may be mistaken about others, or lie. It can have another host suspected or declared
//! dead, to which that host objects. It cannot attribute a false life to the host, to which that
//! host could not object, nor a round out of reach: the host objects once more for each round that
//! is ahead of it. Rounds of others have to be believed at all, because a host behind a cable that
//! works one way is heard of through others only.

use alloc::vec::Vec;

use foca::{Codec as _, Header, Message};
use sluice_base::HostId;

use super::Life;
use super::codec::{Codec, Malformed};

/// Number of rounds beyond the known one that are believed.
const ROUNDS_AHEAD: u32 = 4;
/// Size in bytes of the number of members in a datagram.
const COUNT_SIZE: usize = 2;

/// Sender and trusted content of a datagram.
#[derive(Debug)]
pub(super) struct Believed {
    pub(super) src: Life,
    pub(super) datagram: Vec<u8>,
    /// Other hosts of which the datagram has news that are believed.
    pub(super) others: Vec<Life>,
}

/// Takes untrusted content out of a datagram of `from` to `own`. `known` is the latest believed
/// life of a member, as its connection has shown it.
///
/// # Errors
/// Nothing in the datagram is to be believed.
pub(super) fn believe(
    datagram: &[u8],
    (own, from): (HostId, HostId),
    known: impl Fn(HostId) -> Option<Life>,
) -> Result<Believed, Malformed> {
    let mut rest = datagram;
    let header = Codec.decode_header(&mut rest)?;
    let header_size = datagram.len() - rest.len();
    let src = header.src;
    if src.host != from || !is_shown(&src, &known) || !speaks_of_known(&header, own, &known) {
        return Err(Malformed);
    }
    let mut kept = datagram[..header_size].to_vec();
    if rest.is_empty() {
        return Ok(Believed { src, datagram: kept, others: Vec::new() });
    }
    let (count, mut rest) = rest.split_first_chunk::<COUNT_SIZE>().ok_or(Malformed)?;
    kept.extend([0; COUNT_SIZE]);
    let mut others = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let member_bytes = rest;
        let member = Codec.decode_member(&mut rest)?;
        if may_be(member.id(), &known) {
            kept.extend(&member_bytes[..member_bytes.len() - rest.len()]);
            others.push(*member.id());
        }
    }
    // No bytes follow the members: this fabric has no broadcasts of its own.
    if !rest.is_empty() {
        return Err(Malformed);
    }
    let count = u16::try_from(others.len()).map_err(|_| Malformed)?;
    kept[header_size..header_size + COUNT_SIZE].copy_from_slice(&count.to_be_bytes());
    Ok(Believed { src, datagram: kept, others })
}

/// Returns true if a message is one for members, about other members. No host is asked about
/// itself, in any round, because its answer would go to itself.
fn speaks_of_known(
    header: &Header<Life>,
    own: HostId,
    known: &impl Fn(HostId) -> Option<Life>,
) -> bool {
    match &header.message {
        Message::PingReq { target: life, .. }
        | Message::IndirectPing { origin: life, .. }
        | Message::IndirectAck { target: life, .. }
        | Message::ForwardedAck { origin: life, .. } => life.host != own && is_shown(life, known),
        Message::Broadcast => false,
        _ => true,
    }
}

/// Returns true if a life is one that its host's connection has shown.
fn is_shown(life: &Life, known: &impl Fn(HostId) -> Option<Life>) -> bool {
    known(life.host).is_some_and(|known| known.incarnation == life.incarnation)
}

/// Returns true if a host may have reached a life.
fn may_be(life: &Life, known: &impl Fn(HostId) -> Option<Life>) -> bool {
    let round = known(life.host).map_or(0, |known| known.round);
    is_shown(life, known) && life.round <= round.saturating_add(ROUNDS_AHEAD)
}
