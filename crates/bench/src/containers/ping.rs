//! ICMP echo requests out of a container; the kernel at the other end answers.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::{AddressFamily, SocketType, ipproto};
use sluice_wire::checksum;

use crate::fabric::net::{Netns, PATIENCE};

/// Size of the IPv4 header before an answer, and of the ICMP header.
const IPV4_SIZE: usize = 20;
const MESSAGE_SIZE: usize = 64;

/// A raw socket in a namespace.
pub(super) struct Pinger {
    socket: UdpSocket,
    to: Ipv4Addr,
    sequence: u16,
}

impl Pinger {
    pub(super) fn new(from: &Netns, to: Ipv4Addr) -> anyhow::Result<Self> {
        let socket = from.inside(|| {
            let icmp = Some(ipproto::ICMP);
            rustix::net::socket(AddressFamily::INET, SocketType::RAW, icmp)
        })??;
        // The type decides only how the descriptor is read and written.
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { socket, to, sequence: 0 })
    }

    /// Sends a ping and returns the time until the answer.
    pub(super) fn ping(&mut self) -> anyhow::Result<Duration> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![8, 0, 0, 0, 0x51, 0x1c];
        message.extend(self.sequence.to_be_bytes());
        message.resize(MESSAGE_SIZE, 0xa5);
        let sum = checksum::internet(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        let begin = Instant::now();
        self.socket.send_to(&message, (self.to, 0)).context("sending a ping")?;
        let mut bytes = [0; 2048];
        loop {
            let size = self.socket.recv(&mut bytes).context("a ping has no answer")?;
            let answer = bytes.get(IPV4_SIZE..size).unwrap_or_default();
            if answer.first() == Some(&0) && answer.get(4..) == Some(&message[4..]) {
                return Ok(begin.elapsed());
            }
        }
    }
}
