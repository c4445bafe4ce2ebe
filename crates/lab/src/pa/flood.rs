//! A flood of datagrams in one direction: the sender, and the sink that counts them.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

/// UDP port of the sink.
const PORT: u16 = 5202;
/// A sink that receives nothing for this time has received everything.
const QUIET: Duration = Duration::from_secs(2);

/// Sends for a while; returns the number of datagrams that the kernel has accepted.
pub(super) fn send(to: Ipv4Addr, bytes: u16, time: Duration) -> anyhow::Result<u64> {
    let socket = UdpSocket::bind("0.0.0.0:0").context("a socket")?;
    socket.connect(SocketAddrV4::new(to, PORT)).context("connecting")?;
    let payload = vec![0x5a; usize::from(bytes)];
    let end = Instant::now() + time;
    let mut sent = 0;
    while Instant::now() < end {
        // A refused datagram is no loss: the program knows about it.
        if socket.send(&payload).is_ok() {
            sent += 1;
        }
    }
    Ok(sent)
}

/// A counter of received datagrams, in a thread of its own, until the process ends.
#[derive(Debug)]
pub(super) struct Sink {
    received: Arc<AtomicU64>,
}

impl Sink {
    /// Starts to listen.
    pub(super) fn start() -> anyhow::Result<Self> {
        let socket = UdpSocket::bind(("0.0.0.0", PORT)).context("listening for datagrams")?;
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while socket.recv(&mut buffer).is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(Self { received })
    }

    /// Waits until no more datagrams arrive; returns the number received since the last call.
    pub(super) fn take(&self) -> u64 {
        let mut before = self.received.load(Ordering::Relaxed);
        loop {
            thread::sleep(QUIET);
            let now = self.received.load(Ordering::Relaxed);
            if now == before {
                return self.received.swap(0, Ordering::Relaxed);
            }
            before = now;
        }
    }
}
