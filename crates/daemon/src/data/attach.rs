//! Opening the ports of a plan.

use std::collections::BTreeMap;

use sluice_base::{PriorityMask, VnetId};
use sluice_ports::buckets::BucketTable;
use sluice_ports::chip::KernelCard;
use sluice_ports::l2::{KernelShare, L2Config, L2Port, Trunk, Vlan};
use sluice_ports::tap::TapConfig;
use sluice_ports::udp::{Selector, UdpConfig};
use sluice_ports::veth::VethConfig;
use sluice_ports::vhost_user::{Role, VhostUserConfig, VhostUserPort};
use sluice_ports::{OpenError, Port};

use super::taps::Taps;
use crate::config::{Attachment, PortPlan, RING_MEMORY_BYTES_MAX};

/// Error: a port cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("port {port}: {source}")]
pub(super) struct AttachError {
    port: String,
    source: OpenError,
}

/// Selector of the workers' sockets at one address, and its table.
pub(super) type SharedSelector = (Selector, BucketTable);

/// Resources that several ports may share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Open devices, by name.
    trunks: BTreeMap<String, Trunk>,
    /// Selector of the first port of several at one address.
    selector: Option<SharedSelector>,
}

impl Shared {
    /// Returns the device of a port, opened if this is its first one.
    fn trunk(&mut self, config: &L2Config, pausable: PriorityMask) -> Result<Trunk, OpenError> {
        if let Some(trunk) = self.trunks.get(&config.device) {
            return Ok(trunk.clone());
        }
        let trunk = Trunk::open(config, pausable)?;
        self.trunks.insert(config.device.clone(), trunk.clone());
        Ok(trunk)
    }

    /// Returns the selector of ports at one address, if there were several.
    pub(super) fn into_selector(self) -> Option<SharedSelector> {
        self.selector
    }
}

/// Headroom of the ring behind a card whose frames the kernel forwards: misses and ARP.
const CARD_RING_BYTES: u64 = 256 << 10;

/// Returns the network of a port whose frames a chip may forward, and its device on the host.
pub(super) fn chip_port(host: &str, plan: &PortPlan) -> Option<(VnetId, String)> {
    match &plan.attachment {
        Attachment::Kernel { vnet, .. } => Some((*vnet, KernelCard::name_of(host, &plan.name))),
        Attachment::BareMetal { vnet, device, vlan: Vlan::Access, .. } => {
            Some((*vnet, device.clone()))
        }
        _ => None,
    }
}

/// Returns a TAP with what its owner may do.
fn tap(device: &str, mtu: u16, attachment: &Attachment) -> TapConfig {
    let mut config = TapConfig::new(device, mtu);
    if let Attachment::Tap { offload, is_given_away, .. } = attachment {
        config.offload = *offload;
        // On the host nobody is to speak by it.
        config.up = !is_given_away;
    }
    config
}

/// Returns a device with room for its headroom.
fn l2(device: &str, mtu: u16, ring_bytes: u64) -> L2Config {
    let ring_memory_bytes_max = RING_MEMORY_BYTES_MAX;
    L2Config { mtu: Some(mtu), ring_bytes, ring_memory_bytes_max, ..L2Config::new(device) }
}

/// Opens the card of a container whose frames the kernel forwards.
fn kernel(taps: &Taps, plan: &PortPlan, vnet: VnetId) -> Result<Box<dyn Port>, OpenError> {
    let card = taps.open_card(plan)?;
    let mut config = L2Config::new(card.name());
    config.ring_bytes = CARD_RING_BYTES;
    config.kernel = KernelShare::Nothing;
    config.way = taps.chip().map(|chip| chip.ways().port(vnet));
    L2Port::open(&config).map(|port| Box::new(port) as _)
}

/// Opens one port. `shared` has what the ports before it opened.
pub(super) fn open(
    shared: &mut Shared,
    taps: &Taps,
    plan: &PortPlan,
) -> Result<Box<dyn Port>, AttachError> {
    let opened: Result<Box<dyn Port>, OpenError> = match &plan.attachment {
        Attachment::Tap { device, netns, mac, addresses, routes, ring_frames, mtu, .. } => {
            let mut config = tap(device, *mtu, &plan.attachment);
            config.netns.clone_from(netns);
            config.mac = *mac;
            config.addresses.clone_from(addresses);
            config.routes.clone_from(routes);
            config.ring_frames = ring_frames.unwrap_or(TapConfig::RING_FRAMES);
            taps.open(&plan.name, &config).map(|port| Box::new(port) as _)
        }
        Attachment::Veth { device, netns, mac, addresses, routes, mtu } => {
            let mut config = VethConfig::new(device, *mtu);
            config.netns.clone_from(netns);
            config.mac = *mac;
            config.addresses.clone_from(addresses);
            config.routes.clone_from(routes);
            taps.open_veth(&plan.name, &config).map(|port| Box::new(port) as _)
        }
        Attachment::Kernel { vnet, .. } => kernel(taps, plan, *vnet),
        Attachment::VhostUser { socket, client, mtu, in_order, queues, offload } => {
            let config = VhostUserConfig {
                socket: socket.clone(),
                role: if *client { Role::Client } else { Role::Server },
                mtu: *mtu,
                in_order: *in_order,
                queues: queues.clone(),
                offload: *offload,
            };
            VhostUserPort::adopt(&config, taps.take_handed(&plan.name))
                .map(|port| Box::new(port) as _)
        }
        Attachment::L2 { device, ring_bytes, mtu, vtep } => {
            let mut config = l2(device, *mtu, *ring_bytes);
            config.kernel = vtep.map_or(KernelShare::Nothing, KernelShare::NoVxlan);
            let chip = taps.chip().filter(|_| vtep.is_some());
            config.way = chip.map(|chip| chip.ways().underlay());
            L2Port::adopt(&config, taps.take_handed(&plan.name)).map(|port| Box::new(port) as _)
        }
        Attachment::BareMetal { device, vlan, ring_bytes, vnet, mtu, pausable } => {
            let mut config = l2(device, *mtu, *ring_bytes);
            config.kernel = KernelShare::Nothing;
            let chip = taps.chip().filter(|_| *vlan == Vlan::Access);
            config.way = chip.map(|chip| chip.ways().port(*vnet));
            shared
                .trunk(&config, *pausable)
                .and_then(|trunk| trunk.port(*vlan))
                .map(|port| Box::new(port) as _)
        }
        Attachment::Udp { local, device, mac, receive_bytes, sharers, mtu } => {
            let mut config = UdpConfig::new(*local, *mac, *mtu);
            config.device = Some(device.clone());
            config.sharers = *sharers;
            config.receive_buffer_bytes = usize::try_from(*receive_bytes).unwrap_or(usize::MAX);
            taps.open_udp(&plan.name, &config).map(|mut port| {
                shared.selector = shared.selector.take().or(port.take_selector());
                Box::new(port) as _
            })
        }
    };
    opened.map_err(|source| AttachError { port: plan.name.clone(), source })
}
