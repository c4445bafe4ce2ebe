//! ICMP echo (RFC 792): reachability of another container and its round-trip time.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};

const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST: u8 = 8;
const PAYLOAD: usize = 56;
/// Time limit of one echo.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends echo requests, one after the other; returns the times of the answered ones.
pub(crate) fn ping(to: Ipv4Addr, count: u32) -> anyhow::Result<Vec<u64>> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::ICMP),
    )?;
    let address = SocketAddrV4::new(to, 0);
    let process = std::process::id().to_be_bytes();
    let mut times = Vec::new();
    for number in 0..count {
        let request = message(ECHO_REQUEST, [process[2], process[3]], number.to_be_bytes());
        let began = Instant::now();
        sendto(&socket, &request, SendFlags::empty(), &address)?;
        let mut buffer = [0; 512];
        loop {
            let left = TIMEOUT.saturating_sub(began.elapsed());
            if left.is_zero() {
                break;
            }
            let left = Timespec::try_from(left)?;
            if poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&left))? == 0 {
                break;
            }
            let (got, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
            if is_reply(&buffer[..got], to, &request) {
                times.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(times)
}

fn message(kind: u8, id: [u8; 2], number: [u8; 4]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, id[0], id[1], number[2], number[3]];
    message.resize(8 + PAYLOAD, 0x5a);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Returns true if an IPv4 packet is the answer of `from` to the request.
fn is_reply(packet: &[u8], from: Ipv4Addr, request: &[u8]) -> bool {
    let Some(&first) = packet.first() else { return false };
    let header = usize::from(first & 0x0f) * 4;
    let Some(message) = packet.get(header..).filter(|_| header >= 20) else { return false };
    message.len() == request.len()
        && packet[12..16] == from.octets()
        && message[0] == ECHO_REPLY
        && message[4..] == request[4..]
        && checksum(message) == 0
}

/// Computes the checksum of RFC 1071, over a whole number of 16-bit words.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests;
