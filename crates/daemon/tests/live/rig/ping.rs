//! ICMP echo requests; the kernel at the other end answers.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, ipproto};
use sluice_wire::checksum;

use super::Netns;

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// IPv4 and ICMP headers.
const HEADERS_SIZE: usize = 28;

/// A raw socket in a namespace.
pub(crate) struct Pinger {
    socket: UdpSocket,
    to: Ipv4Addr,
    sequence: u16,
    patience: Duration,
}

impl Pinger {
    pub(crate) fn new(from: &Netns, to: Ipv4Addr) -> Self {
        Self::with_patience(from, to, PATIENCE)
    }

    /// Makes a pinger with another time limit.
    pub(crate) fn with_patience(from: &Netns, to: Ipv4Addr, patience: Duration) -> Self {
        let icmp = Some(ipproto::ICMP);
        let socket =
            from.inside(|| rustix::net::socket(AddressFamily::INET, SocketType::RAW, icmp));
        // The type only determines how the descriptor is read and written.
        Self { socket: UdpSocket::from(socket.unwrap()), to, sequence: 0, patience }
    }

    /// Sends a request in a packet of `size` bytes; returns true if it is answered.
    pub(crate) fn ping(&mut self, size: usize) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = vec![8, 0, 0, 0, 0x51, 0x1c];
        message.extend(self.sequence.to_be_bytes());
        message.resize(size - HEADERS_SIZE + 8, 0xa5);
        let sum = checksum::internet(&message).to_be_bytes();
        message[2..4].copy_from_slice(&sum);
        if self.socket.send_to(&message, (self.to, 0)).is_err() {
            return false;
        }
        let until = Instant::now() + self.patience;
        let mut bytes = [0; 2048];
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).unwrap();
            let Ok(got) = self.socket.recv(&mut bytes) else { continue };
            if got == size && bytes[20] == 0 && bytes[24..size] == message[4..] {
                return true;
            }
        }
        false
    }
}

/// Pings in the background, every 5 ms.
pub(crate) struct Pings {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

impl Pings {
    pub(crate) fn start(from: &Netns, to: Ipv4Addr) -> Self {
        let mut pinger = Pinger::new(from, to);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut sent, mut answered) = (0, 0);
            while !stopped.load(Ordering::Relaxed) {
                sent += 1;
                answered += u64::from(pinger.ping(84));
                std::thread::sleep(Duration::from_millis(5));
            }
            (sent, answered)
        });
        Self { stop, thread }
    }

    /// Returns the numbers of requests and answers.
    pub(crate) fn stop(self) -> (u64, u64) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
