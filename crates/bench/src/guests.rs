//! The path from guest to guest in one thread: guests, their ports and the switch take turns, and
//! only the switch's turns count.
//!
//! So only the work itself is counted: no cache line comes from another core, and no thread sleeps
//! or is woken. `make bench PART=dataplane` measures all of these, too.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use sluice_base::{Batch, InputId, Nanos, PortId};
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{FrameBuf, Pool, PoolConfig, Port as _, SharedRings as _};
use sluice_switch::{Command, Destination, Switch};
use sluice_testkit::guest::{Guest, GuestConfig, Pages};
use sluice_testkit::load::frame::{End, plain};
use sluice_testkit::load::{Clock as _, Tsc};

use crate::forward::{Setup, config, mac};

/// Frames sent at a time.
const BATCH: usize = 64;
const RING_SIZE: u16 = 1024;

/// Two guests, their ports and the switch between them.
pub(crate) struct Guests {
    switch: Switch<FrameBuf>,
    ports: [VhostUserPort; 2],
    guests: Vec<Guest>,
    pool: Pool,
    batch: Batch<FrameBuf>,
    frame: Vec<u8>,
    now: Nanos,
    clock: Tsc,
    dir: PathBuf,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    /// Frames that the second guest received.
    pub(crate) frames: u64,
    /// Ticks of the time stamp counter in the switch and its ports.
    pub(crate) ticks: u64,
}

impl Drop for Guests {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Guests {
    /// Connects two guests; the first sends frames of `frame_bytes` bytes to the second.
    pub(crate) fn new(frame_bytes: usize, lossy: bool) -> anyhow::Result<Self> {
        let setup = Setup { ports: 2, macs: 2, lossy };
        let mut switch = Switch::new(&config(&setup), 1, Nanos::ZERO)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        for number in 0..2 {
            let (vnet, to) =
                (sluice_base::VnetId(0), Destination::Port(PortId::from_index(number)));
            let install = Command::Install { vnet, mac: mac(number), to };
            switch.command(Nanos::ZERO, install).expect("the table has room");
        }
        let dir = std::env::temp_dir().join(format!("sluice-guests-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let (mut ports, mut guests) = (Vec::new(), Vec::new());
        for number in 0..2 {
            let (port, guest) = connect(dir.join(number.to_string()))?;
            ports.push(port);
            guests.push(guest);
        }
        let end = |number: u8| End { mac: mac(number.into()).0, ip: [198, 51, 100, number] };
        let ports = <[VhostUserPort; 2]>::try_from(ports).map_err(|_| anyhow::anyhow!("two"))?;
        Ok(Self {
            switch,
            ports,
            guests,
            pool: Pool::new(PoolConfig::for_mtu(256, 1500))?,
            batch: Batch::with_limit(BATCH),
            frame: plain(end(0), end(1), frame_bytes),
            now: Nanos::ZERO,
            clock: Tsc::measured(),
            dir,
        })
    }

    /// Sends at least `frames` frames.
    pub(crate) fn forward(&mut self, frames: u64) -> anyhow::Result<Taken> {
        let mut all = Taken::default();
        while all.frames < frames {
            let (from, to) = self.guests.split_at_mut(1);
            let sender = &mut from[0].pair(0).sender;
            sender.reap();
            for _ in 0..BATCH {
                ensure!(
                    sender.stage(self.frame.len(), |bytes| bytes.write(0, &self.frame)),
                    "no room"
                );
            }
            sender.flush();
            let before = self.clock.now();
            let sent =
                turn(&mut self.switch, &mut self.ports, &mut self.pool, &mut self.batch, self.now)?;
            all.ticks += self.clock.now() - before;
            self.now = self.now.after(Nanos::from_micros(10));
            let came = to[0].pair(0).receiver.burst(BATCH, |_| ());
            ensure!(came == sent && sent == BATCH, "{came} of {sent} frames came");
            all.frames += came as u64;
        }
        Ok(all)
    }

    /// Returns true if every frame is accounted for and none was dropped.
    pub(crate) fn is_clean(&self) -> bool {
        let audit = self.switch.audit();
        audit.is_closed() && audit.total(|row| row.frames.dropped) == 0
    }
}

/// Runs one turn of a worker's loop.
fn turn(
    switch: &mut Switch<FrameBuf>,
    ports: &mut [VhostUserPort; 2],
    pool: &mut Pool,
    batch: &mut Batch<FrameBuf>,
    now: Nanos,
) -> anyhow::Result<usize> {
    let input = InputId(0);
    ports[0].read(switch.window(input).of_any(), BATCH, pool, batch)?;
    switch.receive(now, input, batch);
    let sent = switch.transmit(now, PortId(1), &mut ports[1]);
    ports[1].flush()?;
    while switch.has_ended(input) {
        switch.reclaim(input, batch);
        ports[0].give_back(batch, pool);
    }
    Ok(sent as usize)
}

/// Opens a port and connects a guest to it.
fn connect(socket: PathBuf) -> anyhow::Result<(VhostUserPort, Guest)> {
    let port = VhostUserConfig {
        socket: socket.clone(),
        role: Role::Server,
        mtu: 1500,
        in_order: false,
        queues: Vec::new(),
        offload: true,
    };
    let mut port = VhostUserPort::open(&port)?;
    let guest = GuestConfig { ring_size: RING_SIZE, pages: Pages::Small, ..GuestConfig::default() };
    let guest = std::thread::spawn(move || Guest::connected(guest, &socket));
    while !guest.is_finished() {
        // This thread sets up the rings of the port.
        port.handle_events();
        std::thread::yield_now();
    }
    let guest = guest.join().ok().context("the guest's thread ended")??;
    Ok((port, guest))
}
