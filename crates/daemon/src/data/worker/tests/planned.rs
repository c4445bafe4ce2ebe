//! Hosts made from a configuration, with guests behind their sockets.

use sluice_base::DropReason;
use sluice_testkit::guest::{Guest, GuestConfig};

use super::guests::Folder;
use super::*;
use crate::config::{self, KernelDevices};
use crate::data::attach::{Shared, open};
use crate::data::make_worker;
use crate::data::taps::Taps;

pub(super) struct Host {
    pub(super) running: Running,
    pub(super) guests: Vec<Guest>,
    /// Folder of the sockets, which have the numbers of their guests; it is dropped last.
    pub(super) folder: Folder,
}

/// Starts the host that `text` configures, and a guest of each of these kinds.
pub(super) fn host(
    folder: Folder,
    text: &str,
    guests: impl IntoIterator<Item = GuestConfig>,
) -> Host {
    let plan = config::plan("host.toml", text, &KernelDevices).unwrap();
    let taps = Taps::new(&plan, Vec::new());
    let running = run_worker(Vec::new(), |poller, receiver| {
        let ports = plan.ports.iter().enumerate().map(|(at, port)| {
            let opened = open(&mut Shared::default(), &taps, port).unwrap();
            (PortId::from_index(at), port.name.clone(), opened)
        });
        let mut worker = make_worker(&plan, 0, poller, receiver, clock::now()).unwrap();
        worker.open(&mut ports.collect()).unwrap();
        worker
    });
    let connected =
        |(n, config): (usize, _)| Guest::connected(config, &folder.join(&n.to_string())).unwrap();
    let guests = guests.into_iter().enumerate().map(connected).collect();
    Host { running, guests, folder }
}

impl Host {
    /// Returns the next frame of a queue pair.
    pub(super) fn receive(&mut self, at: usize, pair: usize) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(frame) = self.guests[at].pair(pair).receiver.receive() {
                return frame;
            }
            assert!(Instant::now() < until, "guest {at} gets a frame by pair {pair}");
            std::thread::yield_now();
        }
    }

    /// Sends frames, by their numbers, until the sender is held. Returns the number of frames.
    pub(super) fn until_held(&mut self, mut send: impl FnMut(&mut Self, u32) -> bool) -> u32 {
        let (mut sent, mut since, mut turns) = (0, Instant::now(), 0);
        while since.elapsed() < Duration::from_millis(100) || turns < TURNS_MIN {
            if send(self, sent) {
                (sent, since, turns) = (sent + 1, Instant::now(), 0);
            } else {
                _ = self.running.ask(Question::Audit);
                turns += 1;
            }
            // More than all rings and places together.
            assert!(sent < 5_000, "the sender is held");
        }
        sent
    }

    pub(super) fn drops(&self) -> Vec<(DropReason, u64)> {
        let Body::Drops(drops) = self.running.ask(Question::Drops) else { panic!("drops") };
        drops.iter().map(|row| (row.reason, row.count.frames)).collect()
    }

    pub(super) fn end(mut self) {
        let Body::Audit(audit) = self.running.ask(Question::Audit) else { panic!("an audit") };
        assert!(audit.closed, "{audit:?}");
        assert_eq!(self.guests.iter().find_map(Guest::violation), None);
        self.guests.clear();
        self.running.asker.ask(WorkerRequest::Drain);
    }
}
