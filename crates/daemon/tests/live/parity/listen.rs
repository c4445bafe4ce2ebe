//! A packet socket that keeps received frames.

use std::net::UdpSocket;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with, sockopt};
use sluice_base::Mac;

use super::station::{Station, wait};

/// Time to listen for frames that are still under way.
const LINGER_MS: u64 = 400;

/// Listens until asked for its frames.
pub(crate) struct Listener {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Listener {
    pub(crate) fn start(station: &Station) -> Self {
        // ETH_P_ALL, in network order; not bound to a device: a station has one relevant device.
        let all = Protocol::from_raw(NonZero::new(u32::from(3_u16.to_be())).unwrap());
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        let socket = station
            .netns
            .inside(|| socket_with(family, SocketType::RAW, flags, Some(all)).unwrap());
        sockopt::set_socket_recv_buffer_size(&socket, 4_000_000).unwrap();
        // The type only determines how the descriptor is read.
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let (stop, own) = (Arc::new(AtomicBool::new(false)), station.mac);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut frames, mut bytes) = (Vec::new(), vec![0; 10_000]);
            loop {
                match socket.recv(&mut bytes) {
                    Ok(size) if size >= 14 && bytes[6..12] != own.0 => {
                        frames.push(bytes[..size].to_vec());
                    }
                    Ok(_) => {}
                    Err(_) if stopped.load(Ordering::Relaxed) => return frames,
                    Err(_) => {}
                }
            }
        });
        Self { stop, thread }
    }

    /// Returns all received frames, without those that the station sent itself.
    pub(crate) fn heard(self) -> Vec<Vec<u8>> {
        wait(LINGER_MS);
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Returns the number of frames that contain these bytes.
    pub(crate) fn heard_with(self, part: &[u8]) -> usize {
        let has = |frame: &&Vec<u8>| frame.windows(part.len()).any(|bytes| bytes == part);
        self.heard().iter().filter(has).count()
    }
}

/// Returns the source of a frame.
pub(crate) fn source(frame: &[u8]) -> Mac {
    Mac(frame[6..12].try_into().unwrap())
}
