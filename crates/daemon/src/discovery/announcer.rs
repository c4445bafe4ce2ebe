//! The thread that sends beacons.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, sockopt};
use sluice_ports::device;

use super::beacon::Beacon;
use super::{GROUP, PORT, Place};
use crate::sys::log::say;
use crate::sys::{marked, threads};

/// Shortest time between two beacons, in milliseconds.
const EVERY_MS_MIN: u64 = 800;
/// Span above it, from which each pause is drawn, so that hosts that start together spread out.
const JITTER_MS: u64 = 400;

/// Sends the beacon of this host until it is dropped.
#[derive(Debug)]
pub struct Announcer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    places: Vec<Place>,
    beacon: Beacon,
    /// Number of changes, so that sockets are made again.
    change: u64,
    is_over: bool,
}

impl Announcer {
    /// Begins to announce this host at these places.
    ///
    /// # Errors
    /// If no thread can be had.
    pub fn start(places: Vec<Place>, beacon: Beacon) -> anyhow::Result<Self> {
        let state = Mutex::new(State { places, beacon, change: 0, is_over: false });
        let shared = Arc::new(Shared { state, changed: Condvar::new() });
        let sending = Arc::clone(&shared);
        threads::spawn("beacon", move || send(&sending))?;
        Ok(Self(shared))
    }

    /// Announces this from now on.
    pub fn set(&self, places: Vec<Place>, beacon: Beacon) {
        let mut state = self.0.state();
        (state.places, state.beacon) = (places, beacon);
        state.change += 1;
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place with its socket.
#[derive(Debug)]
struct Outgoing {
    place: Place,
    socket: Option<UdpSocket>,
    /// True after an error was logged, until a beacon is sent again.
    is_failing: bool,
}

impl Outgoing {
    const fn new(place: Place) -> Self {
        Self { place, socket: None, is_failing: false }
    }

    /// Sends a beacon. After an error another socket is tried: a device may come, go and change its
    /// address.
    fn send(&mut self, datagram: &[u8]) {
        match self.try_send(datagram) {
            Ok(()) => self.is_failing = false,
            Err(error) => {
                let device = &self.place.device;
                if !self.is_failing {
                    say!("this host is not announced on {device} for now: {error}");
                }
                (self.socket, self.is_failing) = (None, true);
            }
        }
    }

    fn try_send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => open(&self.place)?,
        };
        self.socket.insert(socket).send_to(datagram, SocketAddrV4::new(GROUP, PORT)).map(drop)
    }
}

fn send(shared: &Shared) {
    let mut outgoing: Vec<Outgoing> = Vec::new();
    let mut change = None;
    let mut state = shared.state();
    while !state.is_over {
        let datagram = state.beacon.datagram();
        if change != Some(state.change) {
            change = Some(state.change);
            outgoing = state.places.iter().cloned().map(Outgoing::new).collect();
        }
        drop(state);
        for one in &mut outgoing {
            one.send(&datagram);
        }
        state = shared.state();
        if !state.is_over && change == Some(state.change) {
            // A change ends the pause, and is announced at once.
            let waited = shared.changed.wait_timeout(state, pause());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Returns a pause; without random bytes of the kernel, the same each time.
fn pause() -> Duration {
    let mut bytes = [0; 8];
    _ = SystemRandom::new().fill(&mut bytes);
    Duration::from_millis(EVERY_MS_MIN + u64::from_le_bytes(bytes) % (JITTER_MS + 1))
}

fn open(place: &Place) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    device::bind_to(&socket, &place.device)?;
    marked::mark(&socket)?;
    bind(&socket, &SocketAddrV4::new(place.address, 0))?;
    sockopt::set_ip_multicast_ttl(&socket, 1)?;
    Ok(socket.into())
}
