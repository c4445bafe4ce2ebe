//! Workloads that wait until a VM's ring has room, as a socket that blocks does.

use sluice_base::Priority;

use super::endpoints::Endpoint;
use super::{Notice, World};
use crate::ids::EndpointId;

/// A workload that waits for a ring to have room.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    speaker: u8,
    token: u32,
    /// The priority of its frames, which tells the ring.
    priority: Priority,
    /// The workload gets a notice when the ring holds no more frames than this.
    most: usize,
}

/// Waiters by station.
#[derive(Debug)]
pub(super) struct Rooms {
    waiters: Vec<Vec<Waiter>>,
    /// Number of waiters of all stations.
    count: u32,
}

impl Rooms {
    pub(super) fn new(stations: usize) -> Self {
        Self { waiters: vec![Vec::new(); stations], count: 0 }
    }

    /// Returns true if no workload waits anywhere.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl World {
    /// Asks for a [`Notice::Room`] with this token when the ring of an endpoint's VM holds `most`
    /// frames or fewer, as a socket that blocks waits: the wait costs nothing until there is room.
    /// Without virtual networks there is always room.
    pub fn tell_room(&mut self, id: EndpointId, most: usize, token: u32) {
        let speaker = self.speaker;
        let Endpoint { station, priority, .. } = self.endpoints[id.0 as usize];
        match &mut self.virt {
            Some(virt) => {
                virt.rooms.waiters[station as usize].push(Waiter {
                    speaker,
                    token,
                    priority,
                    most,
                });
                virt.rooms.count += 1;
                let host = station / virt.vms_per_host;
                self.tell_rooms(host);
            }
            None => self.notices.push_back((speaker, Notice::Room(token))),
        }
    }

    /// Tells the workloads that wait for a ring of this host that has room now.
    #[cold]
    pub(super) fn tell_rooms(&mut self, host: u32) {
        let Some(virt) = &mut self.virt else { return };
        let first = host * virt.vms_per_host;
        for vm in 0..virt.vms_per_host {
            let waiters = &mut virt.rooms.waiters[(first + vm) as usize];
            if waiters.is_empty() {
                continue;
            }
            let has_room = |waiter: &mut Waiter| {
                let frames = virt.hosts[host as usize].ring_frames(vm as usize, waiter.priority);
                frames <= waiter.most
            };
            for waiter in waiters.extract_if(.., has_room) {
                virt.rooms.count -= 1;
                self.notices.push_back((waiter.speaker, Notice::Room(waiter.token)));
            }
        }
    }
}
