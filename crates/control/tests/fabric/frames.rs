//! Frames as endpoints send them.

use std::net::Ipv4Addr;

use sluice_base::Mac;
use sluice_wire::{EtherType, arp, ethernet};

const IPV4_SIZE: usize = 24;

/// A packet with a number in it.
pub(crate) fn packet(src: (Mac, Ipv4Addr), dst: (Mac, Ipv4Addr), token: u32) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    ethernet::Repr { dst: dst.0, src: src.0, ethertype: EtherType::IPV4 }.emit(&mut bytes);
    let ip = &mut bytes[ethernet::HEADER_SIZE..];
    ip[0] = 0x45;
    ip[3] = u8::try_from(IPV4_SIZE).unwrap();
    (ip[8], ip[9]) = (64, 17);
    ip[12..16].copy_from_slice(&src.1.octets());
    ip[16..20].copy_from_slice(&dst.1.octets());
    ip[20..24].copy_from_slice(&token.to_be_bytes());
    bytes
}

/// The number in a packet.
pub(crate) fn token(bytes: &[u8]) -> Option<u32> {
    let frame = ethernet::Frame::new_checked(bytes).ok()?;
    let number = frame.payload().get(20..24)?;
    (frame.ethertype() == EtherType::IPV4).then(|| u32::from_be_bytes(number.try_into().unwrap()))
}

/// "Who has `target`?"
pub(crate) fn question(src: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    let message = arp::Repr { sender_ip: src.1, ..arp::Repr::probe(src.0, target) };
    arp_frame(Mac::BROADCAST, src.0, &message)
}

/// "Does anybody have `target`? I would like to."
pub(crate) fn probe(src: Mac, target: Ipv4Addr) -> Vec<u8> {
    arp_frame(Mac::BROADCAST, src, &arp::Repr::probe(src, target))
}

/// "I am here."
pub(crate) fn announcement(src: (Mac, Ipv4Addr)) -> Vec<u8> {
    arp_frame(Mac::BROADCAST, src.0, &arp::Repr::announcement(src.0, src.1))
}

/// Answer of an endpoint to a frame.
pub(crate) fn answer(own: (Mac, Ipv4Addr), bytes: &[u8]) -> Option<Vec<u8>> {
    let message = arp_of(bytes)?;
    let asked = message.operation == arp::Operation::REQUEST && message.target_ip == own.1;
    let other = message.sender_mac != own.0;
    (asked && other).then(|| arp_frame(message.sender_mac, own.0, &message.reply(own.0)))
}

/// The ARP message in a frame.
pub(crate) fn arp_of(bytes: &[u8]) -> Option<arp::Repr> {
    let frame = ethernet::Frame::new_checked(bytes).ok()?;
    let packet = arp::Packet::new_checked(frame.payload()).ok()?;
    (frame.ethertype() == EtherType::ARP).then(|| arp::Repr::parse(&packet))?
}

fn arp_frame(dst: Mac, src: Mac, message: &arp::Repr) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    ethernet::Repr { dst, src, ethertype: EtherType::ARP }.emit(&mut bytes);
    message.emit(&mut bytes[ethernet::HEADER_SIZE..]);
    bytes
}
