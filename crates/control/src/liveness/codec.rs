//! Encoding of the membership protocol: fixed sizes, network byte order.
//!
//! ```text
//!   life     host u16, incarnation u64, round u32
//!   header   source life, its suspicion counter u16, destination life, kind u8,
//!            [number u8, [life]]
//!   member   life, suspicion counter u16, state u8
//! ```

use core::fmt;

use bytes::{Buf, BufMut};
use foca::{Header, Member, Message, State};
use sluice_base::HostId;

use super::Life;

const LIFE_SIZE: usize = 2 + 8 + 4;
const MEMBER_SIZE: usize = LIFE_SIZE + 2 + 1;
const HEADER_SIZE_MAX: usize = 2 * LIFE_SIZE + 2 + 1 + 1 + LIFE_SIZE;

/// Bytes that are no message of the protocol, or no room for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no message of the membership protocol")
    }
}

impl core::error::Error for Malformed {}

pub(super) struct Codec;

const PING: u8 = 1;
const ACK: u8 = 2;
const PING_REQ: u8 = 3;
const INDIRECT_PING: u8 = 4;
const INDIRECT_ACK: u8 = 5;
const FORWARDED_ACK: u8 = 6;
const ANNOUNCE: u8 = 7;
const FEED: u8 = 8;
const GOSSIP: u8 = 9;
const BROADCAST: u8 = 10;
const TURN_UNDEAD: u8 = 11;

fn put_life(life: &Life, buf: &mut impl BufMut) {
    buf.put_u16(life.host.0);
    buf.put_u64(life.incarnation);
    buf.put_u32(life.round);
}

fn get_life(buf: &mut impl Buf) -> Result<Life, Malformed> {
    Ok(Life {
        host: HostId(buf.try_get_u16().map_err(|_| Malformed)?),
        incarnation: buf.try_get_u64().map_err(|_| Malformed)?,
        round: buf.try_get_u32().map_err(|_| Malformed)?,
    })
}

/// Returns the kind of a message, and the number and the life in it.
fn parts(message: &Message<Life>) -> (u8, Option<u8>, Option<&Life>) {
    match message {
        Message::Ping(number) => (PING, Some(*number), None),
        Message::Ack(number) => (ACK, Some(*number), None),
        Message::PingReq { target, probe_number } => (PING_REQ, Some(*probe_number), Some(target)),
        Message::IndirectPing { origin, probe_number } => {
            (INDIRECT_PING, Some(*probe_number), Some(origin))
        }
        Message::IndirectAck { target, probe_number } => {
            (INDIRECT_ACK, Some(*probe_number), Some(target))
        }
        Message::ForwardedAck { origin, probe_number } => {
            (FORWARDED_ACK, Some(*probe_number), Some(origin))
        }
        Message::Announce => (ANNOUNCE, None, None),
        Message::Feed => (FEED, None, None),
        Message::Gossip => (GOSSIP, None, None),
        Message::Broadcast => (BROADCAST, None, None),
        Message::TurnUndead => (TURN_UNDEAD, None, None),
    }
}

fn message(kind: u8, buf: &mut impl Buf) -> Result<Message<Life>, Malformed> {
    let mut number = || buf.try_get_u8().map_err(|_| Malformed);
    Ok(match kind {
        PING => Message::Ping(number()?),
        ACK => Message::Ack(number()?),
        PING_REQ | INDIRECT_PING | INDIRECT_ACK | FORWARDED_ACK => {
            let probe_number = number()?;
            let life = get_life(buf)?;
            match kind {
                PING_REQ => Message::PingReq { target: life, probe_number },
                INDIRECT_PING => Message::IndirectPing { origin: life, probe_number },
                INDIRECT_ACK => Message::IndirectAck { target: life, probe_number },
                _ => Message::ForwardedAck { origin: life, probe_number },
            }
        }
        ANNOUNCE => Message::Announce,
        FEED => Message::Feed,
        GOSSIP => Message::Gossip,
        BROADCAST => Message::Broadcast,
        TURN_UNDEAD => Message::TurnUndead,
        _ => return Err(Malformed),
    })
}

impl foca::Codec<Life> for Codec {
    type Error = Malformed;

    fn encode_header(
        &mut self,
        header: &Header<Life>,
        mut buf: impl BufMut,
    ) -> Result<(), Malformed> {
        if buf.remaining_mut() < HEADER_SIZE_MAX {
            return Err(Malformed);
        }
        put_life(&header.src, &mut buf);
        buf.put_u16(header.src_incarnation);
        put_life(&header.dst, &mut buf);
        let (kind, number, life) = parts(&header.message);
        buf.put_u8(kind);
        if let Some(number) = number {
            buf.put_u8(number);
        }
        if let Some(life) = life {
            put_life(life, &mut buf);
        }
        Ok(())
    }

    fn decode_header(&mut self, mut buf: impl Buf) -> Result<Header<Life>, Malformed> {
        let src = get_life(&mut buf)?;
        let src_incarnation = buf.try_get_u16().map_err(|_| Malformed)?;
        let dst = get_life(&mut buf)?;
        let kind = buf.try_get_u8().map_err(|_| Malformed)?;
        let message = message(kind, &mut buf)?;
        Ok(Header { src, src_incarnation, dst, message })
    }

    fn encode_member(
        &mut self,
        member: &Member<Life>,
        mut buf: impl BufMut,
    ) -> Result<(), Malformed> {
        // Nothing is written if there is no room for all of it.
        if buf.remaining_mut() < MEMBER_SIZE {
            return Err(Malformed);
        }
        put_life(member.id(), &mut buf);
        buf.put_u16(member.incarnation());
        buf.put_u8(match member.state() {
            State::Alive => 0,
            State::Suspect => 1,
            State::Down => 2,
        });
        Ok(())
    }

    fn decode_member(&mut self, mut buf: impl Buf) -> Result<Member<Life>, Malformed> {
        let life = get_life(&mut buf)?;
        let counter = buf.try_get_u16().map_err(|_| Malformed)?;
        let state = match buf.try_get_u8().map_err(|_| Malformed)? {
            0 => State::Alive,
            1 => State::Suspect,
            2 => State::Down,
            _ => return Err(Malformed),
        };
        Ok(Member::new(life, counter, state))
    }
}
