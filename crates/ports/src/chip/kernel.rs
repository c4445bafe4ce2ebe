//! The Linux kernel as a chip.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::NeighbourMessage;
use sluice_base::{Mac, PortId, TunnelId, VnetId};

use super::fdb::{self, Found, Row};
use super::links::{self, Devices, Manner};
use super::maps::{Maps, tunnel_place};
use super::switchdev::Said;
use super::watch::Watch;
use super::{Capacity, Chip, Entry, Hits, Network, Place, Refused, programs};
use crate::device::device;
use crate::ebpf::{self, Hook};
use crate::netlink::{Changes, Netlink};

/// Configuration of the kernel as a chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelConfig {
    /// Name of the host, by which its devices are known again.
    pub host: String,
    /// Address of its VTEP.
    pub vtep: Ipv4Addr,
    /// Its room.
    pub capacity: Capacity,
    /// True if ports of a switch are the device's, which forwards between them (switchdev).
    pub offloads: bool,
}

/// The way of a device's frames: the filter of its ring, and the program behind it.
#[derive(Clone, Debug)]
pub struct Way {
    maps: Arc<Maps>,
    kind: WayKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayKind {
    Port(VnetId),
    Underlay(Ipv4Addr),
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.maps, &other.maps) && self.kind == other.kind
    }
}

impl Eq for Way {}

impl Way {
    /// Has the socket of a device's ring keep what is the switch's.
    pub(crate) fn filter(&self, socket: BorrowedFd<'_>, index: u32) -> io::Result<()> {
        let program = match self.kind {
            WayKind::Port(vnet) => programs::port(&self.maps, vnet, index),
            WayKind::Underlay(vtep) => programs::underlay(&self.maps, vtep),
        };
        ebpf::filter(socket, &ebpf::load_filter(&program, "sluice_chip")?)
    }

    /// Lets the kernel have the rest, for as long as the descriptor lives.
    pub(crate) fn obey(&self, index: u32) -> io::Result<OwnedFd> {
        let program = match self.kind {
            WayKind::Port(_) => programs::obey_port(&self.maps),
            WayKind::Underlay(vtep) => programs::obey_underlay(&self.maps, vtep),
        };
        let program = ebpf::load(&program, "sluice_obey", Hook::Ingress)?;
        ebpf::attach(&program, index, Hook::Ingress)
    }
}

/// The ways of all devices of a chip.
#[derive(Clone, Debug)]
pub struct Ways {
    maps: Arc<Maps>,
    vtep: Ipv4Addr,
}

impl Ways {
    /// Returns the way of the frames of a network's port.
    #[must_use]
    pub fn port(&self, vnet: VnetId) -> Way {
        Way { maps: Arc::clone(&self.maps), kind: WayKind::Port(vnet) }
    }

    /// Returns the way of the underlay's frames.
    #[must_use]
    pub fn underlay(&self) -> Way {
        Way { maps: Arc::clone(&self.maps), kind: WayKind::Underlay(self.vtep) }
    }
}

/// A port of the chip.
#[derive(Clone, Debug)]
pub(super) struct PortDevice {
    pub(super) vnet: VnetId,
    name: String,
    index: u32,
    manner: Manner,
}

impl PortDevice {
    /// True if it is a port of a switch, which forwards by itself.
    pub(super) fn is_of_switch(&self) -> bool {
        self.manner != Manner::Quiet
    }

    pub(super) const fn is(&self, index: u32) -> bool {
        self.index == index
    }
}

/// The kernel's bridges and VXLAN devices.
#[derive(Debug)]
pub struct KernelChip {
    config: KernelConfig,
    pub(super) netlink: Netlink,
    watch: Watch,
    pub(super) maps: Arc<Maps>,
    networks: HashMap<VnetId, (Network, Devices)>,
    pub(super) ports: BTreeMap<PortId, PortDevice>,
    /// Networks of VXLAN devices and ports, by their index.
    of_device: HashMap<u32, VnetId>,
    pub(super) entries: HashMap<(VnetId, Mac), Entry>,
    decap: HashSet<(VnetId, Ipv4Addr)>,
    /// Entries of an earlier process that nobody has asked for yet.
    pub(super) left: HashSet<Row>,
    /// What the device of a switch says.
    pub(super) said: Said,
}

impl KernelChip {
    /// Opens the chip. Devices and entries of an earlier process of the host stay.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(config: KernelConfig) -> io::Result<Self> {
        Ok(Self {
            netlink: Netlink::open()?,
            watch: Watch::open(config.capacity.macs + 64)?,
            // An address that moves may stand in a table twice for a moment.
            maps: Arc::new(Maps::new(config.capacity.macs + 64)?),
            config,
            networks: HashMap::new(),
            ports: BTreeMap::new(),
            of_device: HashMap::new(),
            entries: HashMap::new(),
            decap: HashSet::new(),
            left: HashSet::new(),
            said: Said::default(),
        })
    }

    /// Deletes the bridges and VXLAN devices of a host whose chip was the kernel, and is no more.
    /// Returns how many there were.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn delete_left(host: &str) -> io::Result<usize> {
        links::delete_left(&mut Netlink::open()?, host)
    }

    /// Returns the ways of frames to it, for its devices.
    #[must_use]
    pub fn ways(&self) -> Ways {
        Ways { maps: Arc::clone(&self.maps), vtep: self.config.vtep }
    }

    /// Removes the entries of an earlier process that nobody has asked for since.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn forget_left(&mut self) -> Result<usize, Refused> {
        let left = std::mem::take(&mut self.left);
        let rows: Vec<Row> = left.into_iter().collect();
        self.unwrite(&rows)?;
        Ok(rows.len())
    }

    /// Returns the place of an address as filters know it.
    pub(super) fn place_of(&self, to: Place) -> Option<u32> {
        match to {
            Place::Port(port) => self.ports.get(&port).map(|port| port.index),
            Place::Tunnel(tunnel, _) => Some(tunnel_place(tunnel)),
        }
    }

    /// Returns the kernel's entries for an address.
    pub(super) fn rows(&self, vnet: VnetId, mac: Mac, entry: Entry) -> Option<Vec<Row>> {
        let (_, devices) = self.networks.get(&vnet)?;
        Some(match entry.to {
            Place::Port(port) => {
                let device = self.ports.get(&port).filter(|port| port.vnet == vnet)?.index;
                vec![Row { mac, device, vtep: None }]
            }
            // The tunnel first: a bridge that leads there must find it.
            Place::Tunnel(_, vtep) => vec![
                Row { mac, device: devices.vxlan, vtep: Some(vtep) },
                Row { mac, device: devices.vxlan, vtep: None },
            ],
        })
    }

    fn write(&mut self, rows: &[Row]) -> Result<(), Refused> {
        self.make_way(rows)?;
        self.want(rows);
        for row in rows {
            row.write(&mut self.netlink)?;
        }
        Ok(())
    }

    /// Removes rows, those last that others lead to.
    pub(super) fn unwrite(&mut self, rows: &[Row]) -> Result<(), Refused> {
        self.unwant(rows)?;
        for row in rows.iter().rev() {
            if self.is_at_switch(row) {
                self.take_away(*row)?;
            } else {
                row.remove(&mut self.netlink)?;
            }
        }
        Ok(())
    }

    /// Notes that rows are wanted, before they are written.
    pub(super) fn want(&mut self, rows: &[Row]) {
        if !self.left.is_empty() {
            rows.iter().for_each(|row| _ = self.left.remove(row));
        }
        let rows = rows.iter().filter_map(|row| Some((*row, self.bridge_of(row)?)));
        let rows: Vec<_> = rows.collect();
        rows.iter().for_each(|(row, _)| self.said.forget(row));
        self.watch.want(&rows);
    }

    pub(super) fn unwant(&self, rows: &[Row]) -> io::Result<()> {
        for row in rows {
            if let Some(bridge) = self.bridge_of(row) {
                self.watch.unwant(row, bridge)?;
            }
        }
        Ok(())
    }

    fn bridge_of(&self, row: &Row) -> Option<u32> {
        let (_, devices) = self.networks.get(self.of_device.get(&row.device)?)?;
        Some(devices.bridge)
    }

    /// Returns the entries that the kernel is to have.
    fn wanted(&self) -> HashSet<Row> {
        let of = |(&(vnet, mac), &entry): (&(VnetId, Mac), &Entry)| self.rows(vnet, mac, entry);
        self.entries.iter().filter_map(of).flatten().collect()
    }

    /// Looks at all devices, and makes those right that are not.
    fn mend_links(&mut self) -> Result<u64, Refused> {
        let mut mended = 0;
        let networks: Vec<_> = self.networks.values().copied().collect();
        for (network, devices) in networks {
            let (vxlan, bridge) = (devices.vxlan, devices.bridge);
            if links::is_right(&mut self.netlink, vxlan, bridge, Manner::Quiet)?
                && programs::marks_tunnelled(devices.vxlan)?
            {
                continue;
            }
            mended += 1;
            self.add_network(network)?;
        }
        let ports: Vec<_> = self.ports.iter().map(|(id, port)| (*id, port.clone())).collect();
        for (_, port) in ports {
            let Some((_, devices)) = self.networks.get(&port.vnet).copied() else { continue };
            // A card that is gone is its port's matter.
            let (index, bridge) = (port.index, devices.bridge);
            if device(&port.name).is_ok_and(|now| now.index == index)
                && !links::is_right(&mut self.netlink, index, bridge, port.manner)?
            {
                mended += 1;
                links::enslave(&mut self.netlink, index, bridge, port.manner)?;
            }
        }
        Ok(mended)
    }

    /// Compares the kernel's entries with what they are to be.
    pub(super) fn mend_entries(&mut self) -> Result<u64, Refused> {
        let (wanted, mut there) = (self.wanted(), HashSet::new());
        let mut mended = 0;
        for Found { row, is_marked, is_learned, .. } in fdb::all(&mut self.netlink)? {
            if !self.of_device.contains_key(&row.device) || self.left.contains(&row) {
                continue;
            }
            if wanted.contains(&row) {
                there.insert(row);
            } else if is_learned && self.hear(row) {
                // Control decides.
            } else if is_marked || row.vtep.is_some() || self.is_known(row.mac) {
                mended += 1;
                row.remove(&mut self.netlink)?;
            }
        }
        // Noted anew, too: devices that were made again have other numbers.
        let missing = wanted.difference(&there).filter(|row| !self.is_heard(row));
        let missing: Vec<Row> = missing.copied().collect();
        self.write(&missing)?;
        Ok(mended + missing.len() as u64)
    }

    /// Returns the network of one of its devices.
    pub(super) fn network_of(&self, device: u32) -> Option<VnetId> {
        self.of_device.get(&device).copied()
    }

    /// True if an address is in the chip, in any network.
    fn is_known(&self, mac: Mac) -> bool {
        self.networks.keys().any(|vnet| self.entries.contains_key(&(*vnet, mac)))
    }

    /// True if a changed entry may differ from what it is to be.
    fn is_suspect(&self, message: &NeighbourMessage, is_there: bool) -> bool {
        let Some(&vnet) = self.of_device.get(&message.header.ifindex) else { return false };
        let Some(row) = Row::read(message) else { return false };
        let entry = self.entries.get(&(vnet, row.mac));
        let is_wanted = entry
            .and_then(|entry| self.rows(vnet, row.mac, *entry))
            .is_some_and(|rows| rows.contains(&row));
        is_there != is_wanted && !self.left.contains(&row)
    }

    /// True if a device is one of the chip's.
    fn has(&self, index: u32) -> bool {
        self.of_device.contains_key(&index)
            || self.networks.values().any(|(_, of)| of.bridge == index)
    }
}

impl Chip for KernelChip {
    fn capacity(&self) -> Capacity {
        self.config.capacity
    }

    fn add_network(&mut self, network: Network) -> Result<(), Refused> {
        let before = self.networks.get(&network.vnet).copied();
        if before.is_some_and(|(known, _)| known.vni != network.vni) {
            self.remove_network(network.vnet)?;
        }
        let what = (network.vni, self.config.vtep, network.mtu);
        let (devices, is_left) = links::ensure(&mut self.netlink, &self.config.host, what)?;
        self.networks.insert(network.vnet, (network, devices));
        if let Some((_, earlier)) = before {
            self.of_device.remove(&earlier.vxlan);
        }
        self.of_device.insert(devices.vxlan, network.vnet);
        self.maps.add_vni(network.vni, network.vnet)?;
        if before.is_none() && is_left {
            let rows = fdb::all(&mut self.netlink)?;
            let of_network = |row: &Row| row.device == devices.vxlan;
            let rows = rows.into_iter().filter(|found| found.is_marked).map(|found| found.row);
            self.left.extend(rows.filter(of_network));
        }
        Ok(())
    }

    fn remove_network(&mut self, vnet: VnetId) -> Result<(), Refused> {
        let Some((network, devices)) = self.networks.get(&vnet).copied() else { return Ok(()) };
        self.maps.remove_vni(network.vni)?;
        let gone: Vec<Mac> =
            self.entries.keys().filter(|(of, _)| *of == vnet).map(|(_, mac)| *mac).collect();
        for mac in gone {
            self.maps.remove(vnet, mac)?;
            if let Some(entry) = self.entries.remove(&(vnet, mac)) {
                self.unwant(&self.rows(vnet, mac, entry).unwrap_or_default())?;
            }
        }
        let peers: Vec<_> = self.decap.iter().filter(|(of, _)| *of == vnet).copied().collect();
        for (vnet, vtep) in peers {
            self.maps.set_decap(vnet, vtep, None)?;
            self.decap.remove(&(vnet, vtep));
        }
        for port in self.ports.values().filter(|port| port.vnet == vnet) {
            links::release(&mut self.netlink, port.index)?;
        }
        self.ports.retain(|_, port| port.vnet != vnet);
        self.of_device.retain(|_, of| *of != vnet);
        links::delete(&mut self.netlink, devices)?;
        self.networks.remove(&vnet);
        self.left.retain(|row| row.device != devices.vxlan);
        Ok(())
    }

    fn has_network(&self, vnet: VnetId) -> bool {
        self.networks.contains_key(&vnet)
    }

    fn add_port(&mut self, port: PortId, vnet: VnetId, name: &str) -> Result<(), Refused> {
        let (_, devices) = *self.networks.get(&vnet).ok_or(Refused::Unknown)?;
        let index = device(name)?.index;
        if links::is_port(&mut self.netlink, index, devices.bridge)? {
            // An earlier process has left it, and entries with it.
            let rows = fdb::all(&mut self.netlink)?.into_iter();
            let rows = rows.filter(|found| found.is_marked && found.row.device == index);
            self.left.extend(rows.map(|found| found.row));
        }
        let is_of_switch =
            self.config.offloads && links::switch_of(&mut self.netlink, index)?.is_some();
        let manner = if is_of_switch { Manner::Learns } else { Manner::Quiet };
        let manner = links::enslave(&mut self.netlink, index, devices.bridge, manner)?;
        self.ports.insert(port, PortDevice { vnet, name: name.to_owned(), index, manner });
        self.of_device.insert(index, vnet);
        Ok(())
    }

    fn remove_port(&mut self, port: PortId) -> Result<(), Refused> {
        let Some(gone) = self.ports.get(&port).cloned() else { return Ok(()) };
        let macs: Vec<_> = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.to == Place::Port(port))
            .map(|(key, _)| *key)
            .collect();
        for (vnet, mac) in macs {
            self.remove(vnet, mac)?;
        }
        links::release(&mut self.netlink, gone.index)?;
        self.ports.remove(&port);
        self.of_device.remove(&gone.index);
        self.left.retain(|row| row.device != gone.index);
        self.said.forget_device(gone.index);
        Ok(())
    }

    fn put(&mut self, vnet: VnetId, mac: Mac, entry: Entry) -> Result<(), Refused> {
        let rows = self.rows(vnet, mac, entry).ok_or(Refused::Unknown)?;
        let before = self.entries.get(&(vnet, mac)).copied();
        if let Some(before) = before.filter(|before| before.to != entry.to) {
            // The switch has its frames until they have the new way.
            self.maps.remove(vnet, mac)?;
            let stale = self.rows(vnet, mac, before).unwrap_or_default();
            let stale: Vec<_> = stale.into_iter().filter(|row| !rows.contains(row)).collect();
            self.entries.remove(&(vnet, mac));
            self.unwrite(&stale)?;
        }
        self.write(&rows)?;
        self.entries.insert((vnet, mac), entry);
        let place = self.place_of(entry.to).ok_or(Refused::Unknown)?;
        self.maps.put((vnet, mac), place, entry.senders)?;
        Ok(())
    }

    fn put_all(&mut self, entries: &[(VnetId, Mac, Entry)]) -> Vec<(usize, Refused)> {
        self.write_all(entries)
    }

    fn remove(&mut self, vnet: VnetId, mac: Mac) -> Result<(), Refused> {
        let Some(entry) = self.entries.get(&(vnet, mac)).copied() else { return Ok(()) };
        self.maps.remove(vnet, mac)?;
        let rows = self.rows(vnet, mac, entry).unwrap_or_default();
        self.entries.remove(&(vnet, mac));
        self.unwrite(&rows)
    }

    fn set_decap(
        &mut self,
        vnet: VnetId,
        (tunnel, vtep): (TunnelId, Ipv4Addr),
        is_on: bool,
    ) -> Result<(), Refused> {
        if !self.networks.contains_key(&vnet) {
            return Err(Refused::Unknown);
        }
        self.maps.set_decap(vnet, vtep, is_on.then_some(tunnel))?;
        if is_on {
            self.decap.insert((vnet, vtep));
        } else {
            self.decap.remove(&(vnet, vtep));
        }
        Ok(())
    }

    fn hits(&mut self, each: &mut dyn FnMut(VnetId, Mac, Hits)) -> Result<(), Refused> {
        self.maps.hits(each)?;
        self.hits_of_switch(each)
    }

    fn heard(&mut self) -> Vec<(VnetId, Mac, PortId)> {
        self.said.take_news()
    }

    fn offloaded(&self) -> Option<u64> {
        self.config.offloads.then(|| self.said.offloaded())
    }

    fn mend(&mut self) -> Result<u64, Refused> {
        let (mut links, mut entries) = (false, false);
        loop {
            match self.watch.read()? {
                Changes::None => break,
                Changes::Overrun => (links, entries) = (true, true),
                Changes::Some(messages) => {
                    for message in &messages {
                        match message {
                            RouteNetlinkMessage::NewNeighbour(message) => {
                                entries |=
                                    self.is_suspect(message, true) && !self.hear_message(message);
                            }
                            RouteNetlinkMessage::DelNeighbour(message) => {
                                entries |= self.is_suspect(message, false);
                            }
                            RouteNetlinkMessage::NewLink(message)
                            | RouteNetlinkMessage::DelLink(message) => {
                                links |= self.has(message.header.index);
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        let mended = if links { self.mend_links()? } else { 0 };
        // Entries go with the port that they lead to.
        let more = if entries || mended > 0 { self.mend_entries()? } else { 0 };
        Ok(mended + more)
    }

    fn forwarded(&self) -> Result<u64, Refused> {
        Ok(self.maps.forwarded()?)
    }
}
