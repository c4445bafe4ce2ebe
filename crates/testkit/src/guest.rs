//! A guest: memory, a network device of some queue pairs, and the connection to a switch.
//!
//! ```text
//!        Guest ── attach ──▶ connected ── detach / the switch dies ──▶ Guest ── attach ──▶ …
//!   rings empty              rings live                        rings keep what is in them
//! ```
//!
//! A guest keeps its state when its switch goes: rings keep their frames, and the next connection
//! continues at the index where the last one ended. After `detach` GET_VRING_BASE gives this index;
//! after a crash the used ring gives it, so that a frame is offered twice rather than lost.
//!
//! Queue numbers are those of virtio 1.2, 5.1.2: 2n receives, 2n+1 transmits. Waiting is by polling
//! or by event descriptors, see [`ring`]. The guest has no control queue and no configuration
//! space: network back ends need neither.

pub mod error;
pub mod feature;
pub mod frontend;
pub mod log;
pub mod memory;
pub mod receiver;
pub mod ring;
pub mod sender;
pub mod shape;

#[cfg(test)]
mod tests;

use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

pub use error::{GuestError, Violation};
use frontend::Link;
pub use frontend::{Listener, connect};
pub use log::Log;
pub use memory::{Bytes, Memory, Pages};
pub use receiver::{Received, Receiver};
pub use ring::{Descriptor, Ring};
pub use sender::Sender;
pub use shape::{Cut, Shape};

/// Configuration of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// Features that it wants, of [`feature`]. A feature that the switch does not offer is left
    /// out, but `required` must be there.
    pub features: u64,
    /// Features that it needs to attach.
    pub required: u64,
    /// Queue pairs.
    pub queue_pairs: usize,
    /// Descriptors of each ring, a power of two.
    pub ring_size: u16,
    /// The longest frame that it sends, in bytes.
    pub frame_bytes_max: usize,
    /// Bytes of each receive buffer, without header: less than a frame only with mergeable buffers.
    pub receive_buffer_bytes: usize,
    /// Buffers of each transmit queue, rounded down to a power of two; `None`: the ring's size. A
    /// driver with few buffers uses them again while they are in its cache.
    pub sender_buffers: Option<u16>,
    /// Layout of frames that it sends.
    pub sender_shape: Shape,
    /// Layout of buffers that it receives into.
    pub receiver_shape: Shape,
    /// Pages of its memory.
    pub pages: Pages,
    /// Regions of its memory, eight at most for many back ends.
    pub regions: usize,
    /// Memory beside rings and buffers, for tests that take some: [`Memory::allocate`]. In bytes.
    pub spare_bytes: usize,
    /// True if the switch is to acknowledge each request (`VHOST_USER_PROTOCOL_F_REPLY_ACK`), so
    /// that a refused one is an error here.
    pub acknowledge: bool,
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self {
            features: feature::ALL,
            required: feature::VERSION_1,
            queue_pairs: 1,
            ring_size: 256,
            frame_bytes_max: 2048,
            receive_buffer_bytes: 2048,
            sender_buffers: None,
            sender_shape: Shape::default(),
            receiver_shape: Shape::default(),
            pages: Pages::Small,
            regions: 1,
            spare_bytes: 64 << 10,
            acknowledge: true,
        }
    }
}

impl GuestConfig {
    /// Checks that the features and shapes fit together.
    fn check(&self) {
        let indirect = self.sender_shape.indirect || self.receiver_shape.indirect;
        assert!(
            !indirect || self.features & feature::INDIRECT_DESC != 0,
            "indirect shapes need the feature"
        );
        assert!(self.queue_pairs > 0, "a guest has a queue pair");
    }

    /// Returns the memory that it needs, in bytes: rings with a page of their own for each part,
    /// buffers with gaps between pieces, tables.
    fn memory_bytes(&self) -> usize {
        const PIECE: usize = 3 * memory::LINE;
        let slot = |frame_bytes: usize| frame_bytes + 5 * PIECE + 64;
        let size = usize::from(self.ring_size);
        let buffers = slot(self.frame_bytes_max) + slot(self.receive_buffer_bytes);
        let pair = size * buffers + 2 * (6 * 4096 + size * 26) + 2 * 4096;
        // A region ends before an allocation that does not fit.
        let largest = size * slot(self.frame_bytes_max.max(self.receive_buffer_bytes));
        let ends = if self.regions > 1 { (self.regions + 1) * (largest + 4096) } else { 0 };
        pair * self.queue_pairs + ends + self.spare_bytes
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct Pair {
    /// Transmit queue of the guest.
    pub sender: Sender,
    /// Receive queue of the guest.
    pub receiver: Receiver,
}

/// A guest with a network device.
pub struct Guest {
    config: GuestConfig,
    memory: Arc<Memory>,
    pairs: Vec<Pair>,
    link: Option<Link>,
    /// Features agreed on the first connection; they hold for all later ones.
    features: Option<u64>,
    /// Log in which its switch marks pages that it writes, while the guest is migrated.
    log: Option<Arc<Log>>,
    /// Index at which each ring continues, if its last switch gave one.
    bases: Vec<Option<u16>>,
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest")
            .field("config", &self.config)
            .field("features", &self.features)
            .field("connected", &self.link.is_some())
            .finish_non_exhaustive()
    }
}

impl Guest {
    /// Returns a guest that is not connected.
    ///
    /// # Errors
    /// [`GuestError::Memory`], [`GuestError::NoRoom`], [`GuestError::System`].
    ///
    /// # Panics
    /// If the configuration contradicts itself.
    pub fn new(config: GuestConfig) -> Result<Self, GuestError> {
        config.check();
        let memory = Arc::new(Memory::new(config.memory_bytes(), config.pages, config.regions)?);
        let pair = |_| {
            let receiver = Receiver::new(
                &memory,
                config.ring_size,
                config.receiver_shape,
                config.receive_buffer_bytes,
            )?;
            let sender = Sender::new(
                &memory,
                config.ring_size,
                config.sender_shape,
                config.frame_bytes_max,
                config.sender_buffers,
            )?;
            Ok(Pair { sender, receiver })
        };
        let pairs = (0..config.queue_pairs).map(pair).collect::<Result<Vec<_>, GuestError>>()?;
        let bases = vec![None; 2 * pairs.len()];
        Ok(Self { config, memory, pairs, link: None, features: None, log: None, bases })
    }

    /// Returns a guest that is connected to a switch that listens at a path. It waits up to 5 s for
    /// the switch.
    ///
    /// # Errors
    /// As [`Guest::new`] and [`Guest::attach`].
    pub fn connected(config: GuestConfig, path: &Path) -> Result<Self, GuestError> {
        let mut guest = Self::new(config)?;
        guest.attach(connect(path, 250)?)?;
        Ok(guest)
    }

    /// Negotiates over a socket and starts all rings.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::Features`].
    pub fn attach(&mut self, stream: UnixStream) -> Result<(), GuestError> {
        let rings = 2 * self.pairs.len();
        self.link = None;
        let link = Link::new(stream, rings, self.config.features, self.config.acknowledge)?;
        let offered = link.offered();
        let agreed = self.features.unwrap_or(offered & self.config.features);
        let missing = (self.config.required | self.features.unwrap_or(0)) & !offered;
        if missing != 0 {
            return Err(GuestError::Features { missing, offered });
        }
        if self.features.is_none() {
            self.reset(agreed);
        }
        self.features = Some(agreed);
        let logs = if self.log.is_some() { feature::LOG_ALL } else { 0 };
        link.set_features(agreed | logs)?;
        link.set_memory(&self.memory)?;
        self.link = Some(link);
        self.start()
    }

    /// Empties all rings, and sets the agreed features.
    fn reset(&mut self, features: u64) {
        for pair in &mut self.pairs {
            pair.sender.reset(features);
            pair.receiver.reset(features);
        }
        self.bases.fill(None);
    }

    /// Resets all state, as a guest that boots: rings are empty, features will be agreed anew, and
    /// the connection is closed.
    pub fn reboot(&mut self) {
        self.link = None;
        self.features = None;
        self.reset(0);
    }

    fn ring_of(&self, index: usize) -> &Ring {
        let pair = &self.pairs[index / 2];
        if index.is_multiple_of(2) { pair.receiver.ring_ref() } else { pair.sender.ring_ref() }
    }

    /// Starts all rings, from where they stopped.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn start(&mut self) -> Result<(), GuestError> {
        for index in 0..self.bases.len() {
            let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
            let ring = self.ring_of(index);
            let base = self.bases[index].unwrap_or_else(|| ring.rewind());
            link.start(index, ring, &self.memory, base, self.log.is_some())?;
            self.bases[index] = None;
        }
        // Sets the log this late, as QEMU does.
        if let (Some(link), Some(log)) = (&self.link, &self.log) {
            link.set_log(log)?;
        }
        for index in 0..self.bases.len() {
            self.enable(index, true)?;
        }
        // Buffers that became available while no switch served the rings need another kick.
        for pair in &mut self.pairs {
            pair.receiver.ring().kick();
            pair.sender.ring().kick();
        }
        Ok(())
    }

    /// Stops all rings: the switch gives back the buffers that it holds. The rings keep their
    /// content.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn stop(&mut self) -> Result<(), GuestError> {
        let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
        for (index, base) in self.bases.iter_mut().enumerate() {
            *base = Some(link.stop(index)?);
        }
        Ok(())
    }

    /// Stops one ring; numbers are those of virtio.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn stop_ring(&mut self, ring: usize) -> Result<(), GuestError> {
        let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
        self.bases[ring] = Some(link.stop(ring)?);
        Ok(())
    }

    /// Starts one ring, from where it stopped, and enables it.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn start_ring(&mut self, ring: usize) -> Result<(), GuestError> {
        let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
        let base = self.bases[ring].unwrap_or_else(|| self.ring_of(ring).rewind());
        link.start(ring, self.ring_of(ring), &self.memory, base, self.log.is_some())?;
        self.bases[ring] = None;
        self.enable(ring, true)?;
        let pair = &mut self.pairs[ring / 2];
        let started =
            if ring.is_multiple_of(2) { pair.receiver.ring() } else { pair.sender.ring() };
        started.kick();
        Ok(())
    }

    /// Makes the switch mark pages that it writes in this log from now on. A hypervisor starts a
    /// migration of the guest like this, or continues it with another log.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn log(&mut self, log: Log) -> Result<Arc<Log>, GuestError> {
        let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
        link.set_log(&log)?;
        let log = Arc::new(log);
        if self.log.replace(Arc::clone(&log)).is_none() {
            self.tell_log(true)?;
        }
        Ok(log)
    }

    /// Ends the marking of pages: the guest is not migrated.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn end_log(&mut self) -> Result<(), GuestError> {
        self.log = None;
        self.tell_log(false)
    }

    fn tell_log(&self, logs: bool) -> Result<(), GuestError> {
        let link = self.link.as_ref().ok_or(GuestError::NotConnected)?;
        link.set_features(self.features() | if logs { feature::LOG_ALL } else { 0 })?;
        (0..self.bases.len())
            .try_for_each(|index| link.place(index, self.ring_of(index), &self.memory, logs))
    }

    /// Enables or disables one ring; numbers are those of virtio.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`].
    pub fn enable(&mut self, ring: usize, enable: bool) -> Result<(), GuestError> {
        self.link.as_ref().ok_or(GuestError::NotConnected)?.enable(ring, enable)
    }

    /// Stops all rings and closes the connection.
    ///
    /// # Errors
    /// [`GuestError::Request`], [`GuestError::NotConnected`]; the connection is closed anyway.
    pub fn detach(&mut self) -> Result<(), GuestError> {
        let stopped = self.stop();
        self.link = None;
        stopped
    }

    /// Closes the connection without stopping the rings, as a hypervisor that is killed.
    pub fn hang_up(&mut self) {
        self.link = None;
    }

    /// Returns true if there is a switch at the other end.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_up)
    }

    /// Returns the agreed features; none before the first connection.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features.unwrap_or(0)
    }

    /// Returns its memory.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns the number of queue pairs.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.pairs.len()
    }

    /// Returns a queue pair.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn pair(&mut self, pair: usize) -> &mut Pair {
        &mut self.pairs[pair]
    }

    /// Sends a frame through the first queue pair. Returns false if its ring is full.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.pairs[0].sender.send(frame)
    }

    /// Returns the next frame of any queue pair, if one is there.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        self.pairs.iter_mut().find_map(|pair| pair.receiver.receive())
    }

    /// Returns the first violation of a switch.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        let of = |pair: &Pair| pair.sender.violation().or(pair.receiver.violation());
        self.pairs.iter().find_map(of)
    }
}
