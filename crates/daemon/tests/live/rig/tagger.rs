//! A machine with VLANs, for kernels without 802.1Q devices: a TAP for each VLAN, whose frames get
//! their tag here and lose it here. It does the same as a VLAN device of the kernel, in both
//! directions, and shares no code about tags with the code under test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use sluice_base::{Batch, ByteCount, Mac, Priority, PriorityMask};
use sluice_ports::l2::{KernelShare, L2Config, L2Port};
use sluice_ports::tap::{TapConfig, TapPort};
use sluice_ports::{Pool, PoolConfig, Port};
use sluice_switch::{Egress, Taken, Window};

use super::Netns;

/// A VLAN of the machine: its number, its device and the device's address.
pub(crate) type Vlan = (u16, &'static str, Mac);

/// Number of received frames by TCI; `None`: untagged.
type Seen = Arc<Mutex<BTreeMap<Option<u16>, u64>>>;

/// The machine; it stops when dropped.
pub(crate) struct Tagger {
    stop: Arc<AtomicBool>,
    seen: Seen,
    thread: Option<JoinHandle<()>>,
}

impl Tagger {
    /// Starts a machine on `wire` of a namespace, with a TAP for each VLAN.
    pub(crate) fn start(netns: &Netns, wire: &str, mtu: u16, vlans: &[Vlan]) -> Self {
        let (wire, taps) = netns.inside(|| {
            let mut config = L2Config::new(wire);
            (config.ring_bytes, config.kernel) = (1_000_000, KernelShare::Nothing);
            let wire = L2Port::open(&config).unwrap();
            let tap = |vlan: &Vlan| {
                let mut config = TapConfig::new(vlan.1, mtu);
                (config.mac, config.up) = (Some(vlan.2), true);
                (vlan.0, TapPort::open(&config).unwrap())
            };
            (wire, vlans.iter().map(tap).collect::<Vec<_>>())
        });
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
        let (stopped, noted) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || bridge(wire, taps, &stopped, &noted));
        Self { stop, seen, thread: Some(thread) }
    }

    /// Returns the number of received frames by TCI so far.
    pub(crate) fn seen(&self) -> BTreeMap<Option<u16>, u64> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Tagger {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

const OPEN: Window = Window {
    frames: u32::MAX,
    bytes: ByteCount(u64::MAX),
    closed: PriorityMask::NONE,
    needs_copy: false,
};

fn bridge(mut wire: L2Port, mut taps: Vec<(u16, TapPort)>, stop: &AtomicBool, seen: &Seen) {
    let mut pool = Pool::new(PoolConfig { slots: 128, slot_size: 2048, populate: false }).unwrap();
    let mut batch = Batch::with_limit(32);
    while !stop.load(Ordering::Relaxed) {
        let mut moved = wire.read(OPEN, 32, &mut pool, &mut batch).unwrap().frames;
        for buf in batch.drain() {
            let bytes = buf.bytes();
            let tag =
                (bytes[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([bytes[14], bytes[15]]));
            *seen.lock().unwrap().entry(tag).or_default() += 1;
            let tap = taps.iter_mut().find(|tap| tag.is_some_and(|tci| tci & 0xfff == tap.0));
            if let Some((_, tap)) = tap {
                give(tap, &[&bytes[..12], &bytes[16..]].concat());
            }
            pool.give_back(buf);
        }
        for (vlan, tap) in &mut taps {
            moved += tap.read(OPEN, 32, &mut pool, &mut batch).unwrap().frames;
            for buf in batch.drain() {
                let bytes = buf.bytes();
                let tag = [0x81, 0, vlan.to_be_bytes()[0], vlan.to_be_bytes()[1]];
                give(&mut wire, &[&bytes[..12], &tag, &bytes[12..]].concat());
                pool.give_back(buf);
            }
        }
        if moved == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn give(port: &mut impl Port, bytes: &[u8]) {
    let size = u32::try_from(bytes.len()).unwrap();
    let (strip, first, priority) = (0, 0, Priority::ZERO);
    let egress = Egress { header: bytes, buf: None, strip, size, first, priority, tunnel: None };
    while port.offer(&egress) == Taken::No {
        port.flush().unwrap();
    }
    port.flush().unwrap();
}
