//! Numbered datagrams from one container to another.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use super::Netns;

/// Buffer of the receiver's socket, for a thread that does not get a CPU for a while.
const BUFFER_SIZE: usize = 16 << 20;
/// Longest delay of the last datagrams.
const LATE: Duration = Duration::from_millis(1500);

/// A flow that runs.
pub(crate) struct Counted {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u64>,
    receiver: JoinHandle<Seen>,
    done: Arc<AtomicBool>,
}

/// Result of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Datagrams that arrived after one with a higher number, or twice.
    pub(crate) late: u64,
    /// Longest time between two datagrams.
    pub(crate) gap: Duration,
}

impl Counted {
    /// Sends `burst` datagrams of `size` bytes each `pace`.
    pub(crate) fn start(
        from: (&Netns, Ipv4Addr),
        to: (&Netns, Ipv4Addr),
        port: u16,
        (burst, pace, size): (u32, Duration, usize),
    ) -> Self {
        let (sender, receiver) = (from.0.udp(from.1, port), to.0.udp(to.1, port));
        sockopt::set_socket_recv_buffer_size_force(&receiver, BUFFER_SIZE).unwrap();
        let to = SocketAddrV4::new(to.1, port);
        let (stop, done) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (stopped, ended) = (Arc::clone(&stop), Arc::clone(&done));
        Self {
            stop,
            done,
            sender: std::thread::spawn(move || send(&sender, to, &stopped, burst, pace, size)),
            receiver: std::thread::spawn(move || receive(&receiver, &ended)),
        }
    }

    /// Stops the sender, waits for datagrams under way, and counts.
    pub(crate) fn stop(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        std::thread::sleep(LATE);
        self.done.store(true, Ordering::Relaxed);
        Seen { sent, ..self.receiver.join().unwrap() }
    }
}

fn send(
    socket: &UdpSocket,
    to: SocketAddrV4,
    stop: &AtomicBool,
    burst: u32,
    pace: Duration,
    size: usize,
) -> u64 {
    let (mut bytes, mut number) = (vec![0xa5; size], 0u64);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..burst {
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            // A refused datagram was never sent.
            number += u64::from(socket.send_to(&bytes, to).is_ok());
        }
        std::thread::sleep(pace);
    }
    number
}

fn receive(socket: &UdpSocket, done: &AtomicBool) -> Seen {
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let (mut seen, mut next, mut bytes) = (Seen::default(), 0u64, [0; 2048]);
    let mut last: Option<Instant> = None;
    while !done.load(Ordering::Relaxed) {
        let Ok(size) = socket.recv(&mut bytes) else { continue };
        let now = Instant::now();
        seen.gap = last.map_or(seen.gap, |last| seen.gap.max(now - last));
        last = Some(now);
        let number = u64::from_be_bytes(bytes[..size][..8].try_into().unwrap());
        seen.received += 1;
        seen.late += u64::from(number < next);
        next = next.max(number + 1);
    }
    seen
}
