//! Numbered datagrams to one address, and the two receivers that have it in turn.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Netns;

const PORT: u16 = 9_000;
const PACE: Duration = Duration::from_micros(200);
/// Time for frames that are on their way when the stream stops.
const REST: Duration = Duration::from_millis(300);

/// Number and time of each received datagram.
pub(crate) type Received = Vec<(u32, Instant)>;

/// A running stream.
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<u32>,
    receivers: [JoinHandle<Received>; 2],
}

impl Stream {
    /// Starts a sender and two receivers.
    pub(crate) fn start(from: &Netns, to: Ipv4Addr, at: [&Netns; 2]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let receivers = at.map(|netns| {
            let socket = netns.udp(Ipv4Addr::UNSPECIFIED, PORT);
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let stopped = Arc::clone(&stop);
            std::thread::spawn(move || {
                let (mut received, mut bytes) = (Received::new(), [0; 64]);
                let mut end = None;
                while end.is_none_or(|end| Instant::now() < end) {
                    if socket.recv(&mut bytes).is_ok_and(|size| size == 4) {
                        let number = u32::from_be_bytes(bytes[..4].try_into().unwrap());
                        received.push((number, Instant::now()));
                    }
                    if end.is_none() && stopped.load(Ordering::Relaxed) {
                        end = Some(Instant::now() + REST);
                    }
                }
                received
            })
        });
        let (socket, stopped) = (from.udp(Ipv4Addr::UNSPECIFIED, 0), Arc::clone(&stop));
        let sender = std::thread::spawn(move || {
            let mut sent = 0_u32;
            while !stopped.load(Ordering::Relaxed) {
                // A full socket is a pause.
                if socket.send_to(&sent.to_be_bytes(), (to, PORT)).is_ok() {
                    sent += 1;
                }
                std::thread::sleep(PACE);
            }
            sent
        });
        Self { stop, sender, receivers }
    }

    /// Returns the number of sent datagrams, and what each receiver got.
    pub(crate) fn stop(self) -> (u32, [Received; 2]) {
        self.stop.store(true, Ordering::Relaxed);
        (self.sender.join().unwrap(), self.receivers.map(|r| r.join().unwrap()))
    }
}

/// A stream's receiver changed: what was lost, and for how long nobody received.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) lost: u64,
    #[expect(dead_code, reason = "printed with the struct")]
    pub(crate) gap: Duration,
}

impl Change {
    /// Compares what was sent with what the old and the new receiver got.
    pub(crate) fn of((sent, [old, new]): (u32, [Received; 2])) -> Self {
        let (last, first) = (old.last().expect("before it"), new.first().expect("after it"));
        let lost = u64::from(sent) - (old.len() + new.len()) as u64;
        Self { lost, gap: first.1.saturating_duration_since(last.1) }
    }
}
