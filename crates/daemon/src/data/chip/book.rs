//! Meaning of the switch's numbers to the chip: networks, peers and ports of the plan in force.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{Destination, Mac, PortId, TunnelId, VnetId, Vni};
use sluice_ports::chip::{Cache, Chip, Entry, Hits, KernelChip, Network, Place, Refused, Senders};

use super::Note;
use crate::config::{BoundTo, Plan};

/// A port, and what its bound endpoint may send.
#[derive(Clone, Copy, Debug)]
struct Known {
    vnet: VnetId,
    bound: Option<(Mac, Senders)>,
}

/// The chip, with the meaning of numbers.
#[derive(Debug)]
pub(super) struct Book<C> {
    cache: Cache<C>,
    networks: HashMap<VnetId, (Vni, u16)>,
    peers: HashMap<TunnelId, Ipv4Addr>,
    ports: HashMap<PortId, Known>,
    /// Decap flows, so that those of a peer that changes go.
    decap: HashMap<(VnetId, TunnelId), Ipv4Addr>,
}

impl<C: Chip> Book<C> {
    pub(super) fn new(cache: Cache<C>, plan: &Plan) -> Self {
        let (networks, peers) = (HashMap::new(), HashMap::new());
        let (ports, decap) = (HashMap::new(), HashMap::new());
        let mut book = Self { cache, networks, peers, ports, decap };
        (book.networks, book.peers) = meaning(plan);
        book
    }

    pub(super) const fn cache(&self) -> &Cache<C> {
        &self.cache
    }

    /// Does what notes say, in their order. Addresses that are known one after the other are
    /// written together.
    pub(super) fn notes(&mut self, notes: impl IntoIterator<Item = Note>) -> Result<(), Refused> {
        let (mut first, mut together) = (Ok(()), Vec::new());
        for note in notes {
            if let Note::Known { vnet, mac, to } = note
                && let Some(entry) = self.entry_of(vnet, mac, to)
            {
                match self.network(vnet) {
                    Ok(()) => together.push((vnet, mac, entry)),
                    failed => first = first.and(failed),
                }
                continue;
            }
            first = first.and(self.cache.put_all(together.drain(..)));
            first = first.and(self.note(note));
        }
        first.and(self.cache.put_all(together))
    }

    /// Does what a note says.
    pub(super) fn note(&mut self, note: Note) -> Result<(), Refused> {
        match note {
            Note::Known { vnet, mac, to } => self.known(vnet, mac, to),
            Note::Gone { vnet, mac } => self.cache.remove(vnet, mac),
            Note::Decap { vnet, tunnel, is_on } => self.decap(vnet, tunnel, is_on),
            Note::Port { port, vnet, device, bound } => {
                self.port(port, vnet, &device, bound.as_ref())
            }
            Note::PortGone(port) => {
                self.ports.remove(&port);
                self.cache.remove_port(port)
            }
            Note::Unbound(port, mac) => self.unbound(port, mac),
            Note::Plan(plan) => self.follow(&plan),
        }
    }

    /// Puts right what others changed.
    pub(super) fn mend(&mut self) -> Result<(), Refused> {
        self.cache.mend()
    }

    /// Begins a round.
    pub(super) fn hits(&mut self, each: impl FnMut(VnetId, Mac, Hits)) -> Result<(), Refused> {
        self.cache.hits(each)
    }

    /// Writes an address, if the chip has the place where it is. What it has no place for is the
    /// switch's, as before.
    fn known(&mut self, vnet: VnetId, mac: Mac, to: Destination) -> Result<(), Refused> {
        let Some(entry) = self.entry_of(vnet, mac, to) else {
            return self.cache.remove(vnet, mac);
        };
        self.network(vnet)?;
        self.cache.put_all([(vnet, mac, entry)])
    }

    /// Returns the entry of an address; `None` if the chip does not have the place where it is.
    fn entry_of(&self, vnet: VnetId, mac: Mac, to: Destination) -> Option<Entry> {
        match to {
            Destination::Port(port) => {
                let known = self.ports.get(&port).filter(|known| known.vnet == vnet)?;
                // Another endpoint of a port that is bound has no right to send.
                let senders = match known.bound {
                    None => Senders::Any,
                    Some((of, senders)) if of == mac => senders,
                    Some(_) => Senders::NONE,
                };
                Some(Entry { to: Place::Port(port), senders })
            }
            Destination::Tunnel(tunnel) => {
                let vtep = *self.peers.get(&tunnel)?;
                Some(Entry { to: Place::Tunnel(tunnel, vtep), senders: Senders::Any })
            }
        }
    }

    /// Makes the devices of a network, before its first address.
    fn network(&mut self, vnet: VnetId) -> Result<(), Refused> {
        if self.cache.chip().has_network(vnet) {
            return Ok(());
        }
        let (vni, mtu) = *self.networks.get(&vnet).ok_or(Refused::Unknown)?;
        self.cache.add_network(Network { vnet, vni, mtu })
    }

    fn decap(&mut self, vnet: VnetId, tunnel: TunnelId, is_on: bool) -> Result<(), Refused> {
        if !is_on {
            let Some(vtep) = self.decap.remove(&(vnet, tunnel)) else { return Ok(()) };
            return self.cache.set_decap(vnet, (tunnel, vtep), false);
        }
        let Some(vtep) = self.peers.get(&tunnel).copied() else { return Ok(()) };
        self.network(vnet)?;
        self.cache.set_decap(vnet, (tunnel, vtep), true)?;
        self.decap.insert((vnet, tunnel), vtep);
        Ok(())
    }

    fn port(
        &mut self,
        port: PortId,
        vnet: VnetId,
        device: &str,
        bound: Option<&BoundTo>,
    ) -> Result<(), Refused> {
        // The number may have been that of a port whose device went away.
        self.cache.remove_port(port)?;
        let bound = bound.map(|bound| (bound.mac, senders(bound)));
        self.ports.insert(port, Known { vnet, bound });
        self.network(vnet)?;
        self.cache.add_port(port, vnet, device)?;
        match bound {
            Some((mac, _)) => self.known(vnet, mac, Destination::Port(port)),
            None => Ok(()),
        }
    }

    fn unbound(&mut self, port: PortId, mac: Mac) -> Result<(), Refused> {
        let Some(known) = self.ports.get_mut(&port) else { return Ok(()) };
        if let Some((of, senders)) = &mut known.bound
            && *of == mac
        {
            // The switch judges each frame from now on.
            *senders = Senders::NONE;
        }
        let vnet = known.vnet;
        self.cache.remove(vnet, mac)
    }

    /// Follows a new plan: what means something else now goes.
    fn follow(&mut self, plan: &Plan) -> Result<(), Refused> {
        let (networks, peers) = meaning(plan);
        let mut first = Ok(());
        for (vnet, known) in &self.networks {
            if networks.get(vnet) != Some(known) {
                self.decap.retain(|(of, _), _| of != vnet);
                first = first.and(self.cache.remove_network(*vnet));
            }
        }
        let entries: Vec<_> = self.cache.entries().collect();
        for (vnet, mac, entry) in entries {
            if let Place::Tunnel(tunnel, vtep) = entry.to
                && peers.get(&tunnel) != Some(&vtep)
            {
                first = first.and(self.cache.remove(vnet, mac));
            }
        }
        let flows: Vec<_> = self.decap.iter().map(|(key, vtep)| (*key, *vtep)).collect();
        for ((vnet, tunnel), vtep) in flows {
            if peers.get(&tunnel) != Some(&vtep) {
                self.decap.remove(&(vnet, tunnel));
                first = first.and(self.cache.set_decap(vnet, (tunnel, vtep), false));
            }
        }
        (self.networks, self.peers) = (networks, peers);
        first
    }
}

impl Book<KernelChip> {
    /// Returns addresses that the chip learned by itself.
    pub(super) fn heard(&mut self) -> Vec<(VnetId, Mac, PortId)> {
        self.cache.chip_mut().heard()
    }

    /// Removes what an earlier process wrote, and nobody asked for since.
    pub(super) fn forget_left(&mut self) -> Result<(), Refused> {
        self.cache.chip_mut().forget_left().map(drop)
    }
}

/// Returns networks and peers by number.
fn meaning(plan: &Plan) -> (HashMap<VnetId, (Vni, u16)>, HashMap<TunnelId, Ipv4Addr>) {
    let networks = plan.config.vnets.iter().filter_map(|vnet| {
        let id = plan.numbers.vnet(&vnet.name)?;
        let mtu = plan.switch.vnets.iter().find(|known| known.vni.map(Vni::get) == vnet.vni);
        Some((id, (Vni::new(vnet.vni?)?, mtu?.mtu)))
    });
    let peers = plan
        .config
        .peers
        .iter()
        .filter_map(|peer| Some((plan.numbers.tunnel(&peer.name)?, peer.vtep)));
    (networks.collect(), peers.collect())
}

/// Returns what a bound endpoint may send without being looked at by the switch.
fn senders(bound: &BoundTo) -> Senders {
    if bound.routes || bound.ips.is_empty() {
        return Senders::Any;
    }
    // The first of each kind; frames from others go by the switch.
    let (mut ipv4, mut ipv6) = (None, None);
    for ip in &bound.ips {
        match ip {
            IpAddr::V4(ip) => _ = ipv4.get_or_insert(*ip),
            IpAddr::V6(ip) => _ = ipv6.get_or_insert(*ip),
        }
    }
    Senders::Only(ipv4, ipv6)
}

#[cfg(test)]
mod tests;
