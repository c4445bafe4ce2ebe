//! Trust in datagrams: what is not to be believed is taken out before the protocol sees it.
//!
//! ```text
//!   datagram of A ── is A's, in the life that A's connection has shown? ── no: refused
//!                 └─ what it says of B ── is in the life that B's connection has shown, and not
//!                                         many rounds ahead? ── no: left out
//! ```
//!
//! A member may be mistaken about others, or lie. It can have one suspected or declared dead, to
//! which that one objects. It cannot give it a life that is not its own, which nobody could object
//! to, nor a round that it could not reach: for each one that is ahead of it the other objects once
//! more. Rounds have to be believed at all, as who is behind a cable that works one way is heard of
//! through others only.

use alloc::vec::Vec;

use foca::{Codec as _, Header, Message};
use sluice_base::HostId;

use super::Life;
use super::codec::{Codec, Malformed};

/// So many rounds ahead of what is known are believed.
const ROUNDS_AHEAD: u32 = 4;
/// Size of the number of members in a datagram.
const COUNT_SIZE: usize = 2;

/// Who has sent a datagram, and what is left of it.
#[derive(Debug)]
pub(super) struct Believed {
    pub(super) src: Life,
    pub(super) datagram: Vec<u8>,
    /// What it says of others, and is believed.
    pub(super) others: Vec<Life>,
}

/// Takes out what is not to be believed of a datagram of `from` to `own`. `known` is the latest
/// life of a member, as its connection has shown it, that was believed.
///
/// # Errors
/// Nothing of it is.
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
    // Behind the members nothing follows: this fabric has no broadcasts of its own.
    if !rest.is_empty() {
        return Err(Malformed);
    }
    let count = u16::try_from(others.len()).map_err(|_| Malformed)?;
    kept[header_size..header_size + COUNT_SIZE].copy_from_slice(&count.to_be_bytes());
    Ok(Believed { src, datagram: kept, others })
}

/// Whether a message is one for members, about other members: nobody is asked about itself, in
/// whatever round, for its answer would go to itself.
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

/// Whether a life is one that its host's connection has shown.
fn is_shown(life: &Life, known: &impl Fn(HostId) -> Option<Life>) -> bool {
    known(life.host).is_some_and(|known| known.incarnation == life.incarnation)
}

/// Whether a life may be a host's.
fn may_be(life: &Life, known: &impl Fn(HostId) -> Option<Life>) -> bool {
    let round = known(life.host).map_or(0, |known| known.round);
    is_shown(life, known) && life.round <= round.saturating_add(ROUNDS_AHEAD)
}
