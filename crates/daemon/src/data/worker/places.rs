//! Networks and tunnels that come and go, as this worker carries the changes out.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use sluice_base::{Mac, Nanos, PortId, VnetId};
use sluice_switch::{ChangeError, Command, FreePlaces};

use super::Worker;
use crate::data::places::{Address, PlaceChange};

/// Result of a change: the number of frames that ended with it.
type ChangeResult = Result<u32, ChangeError>;

/// Result of some changes: the number of frames that ended with them. They end with the first one
/// that is refused, whose position comes with the reason.
pub(in crate::data) type ChangesResult = Result<u64, (usize, ChangeError)>;

/// Addresses that are known from now on.
pub(in crate::data) struct NewAddresses {
    pub(in crate::data) known: Vec<Address>,
    /// Addresses that lead elsewhere, or nowhere, now.
    pub(in crate::data) moved: Vec<(VnetId, Mac)>,
}

/// A step of a reconfiguration.
pub(in crate::data) enum PlaceStep {
    /// Which places are free?
    Free(SyncSender<FreePlaces>),
    /// Carry changes out, in their order.
    Change(Arc<Vec<PlaceChange>>, SyncSender<ChangesResult>),
    /// Know these addresses from now on, and forget those entries.
    Addresses(Arc<NewAddresses>, SyncSender<()>),
    /// Number of turns so far.
    Turns(SyncSender<u64>),
}

impl Worker {
    /// Carries out a step of a reconfiguration.
    pub(super) fn place_step(&mut self, now: Nanos, step: PlaceStep) {
        // The thread that asked may be gone.
        match step {
            PlaceStep::Free(reply) => _ = reply.send(self.host.switch().free_places()),
            PlaceStep::Change(changes, reply) => _ = reply.send(self.change_places(now, &changes)),
            PlaceStep::Addresses(addresses, reply) => {
                self.host.know(addresses.known.iter().copied());
                for &(vnet, mac) in &addresses.moved {
                    // The network may be gone as well.
                    _ = self.host.switch_mut().command(now, Command::Remove { vnet, mac });
                }
                _ = reply.send(());
            }
            PlaceStep::Turns(reply) => _ = reply.send(self.watch.times().turns),
        }
    }

    fn change_places(&mut self, now: Nanos, changes: &[PlaceChange]) -> ChangesResult {
        let vnets = changes.iter().filter_map(|change| match change {
            PlaceChange::AddVnet(id, _) => Some(*id),
            _ => None,
        });
        let tunnels = changes.iter().filter_map(|change| match change {
            PlaceChange::AddTunnel(id, _) => Some(*id),
            _ => None,
        });
        let (vnets, tunnels): (Vec<_>, Vec<_>) = (vnets.collect(), tunnels.collect());
        if !vnets.is_empty() || !tunnels.is_empty() {
            // All workers had no frame for them after two turns of each.
            self.host.switch_mut().clear_places(&vnets, &tunnels);
        }
        let (mut ended, mut at) = (0, 0);
        while let Some(change) = changes.get(at) {
            let removed = changes[at..].iter().map_while(|change| match change {
                PlaceChange::RemoveVnet(id) => Some(*id),
                _ => None,
            });
            let removed: Vec<VnetId> = removed.collect();
            let (frames, count) = match removed.len() {
                0 => (self.change_place(now, change).map_err(|error| (at, error))?, 1),
                count => {
                    let removed = self.host.switch_mut().remove_vnets(now, &removed);
                    (removed.map_err(|(of, error)| (at + of, error))?, count)
                }
            };
            ended += u64::from(frames);
            at += count;
        }
        Ok(ended)
    }

    fn change_place(&mut self, now: Nanos, change: &PlaceChange) -> ChangeResult {
        let switch = self.host.switch_mut();
        match change {
            PlaceChange::AddTunnel(id, config) => switch.add_tunnel(now, *id, config).map(|()| 0),
            PlaceChange::RemoveTunnel(id) => switch.remove_tunnel(now, *id),
            PlaceChange::AddVnet(id, config) => switch.add_vnet(*id, config).map(|()| 0),
            PlaceChange::RemoveVnet(id) => switch.remove_vnet(now, *id),
            PlaceChange::SetVnet(id, config) => {
                switch.set_vnet(now, *id, config.mtu, &config.tunnels)
            }
            PlaceChange::SetNextHop(id, mac) => switch
                .set_next_hop(now, *id, *mac)
                .map(|()| 0)
                .map_err(|_| ChangeError::NoSuchTunnel(*id)),
            PlaceChange::SetService(priority, class) => {
                switch.set_service(*priority, class.service).map(|()| 0)
            }
            PlaceChange::SetPort(id, values) => {
                switch.set_port(*id, values)?;
                self.classify_anew(*id);
                Ok(0)
            }
        }
    }

    /// Gives the driver of a port the switch's rule for priorities, if it tells them apart.
    fn classify_anew(&mut self, id: PortId) {
        let Some(position) = self.positions.get(id.index()).copied().flatten() else { return };
        let attached = &mut self.ports[position];
        let classifier = self.host.switch().classifier(attached.input);
        if let Some(flow_control) = attached.port.flow_control() {
            flow_control.classify_by(&classifier);
        }
    }
}
