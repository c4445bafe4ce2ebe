//! The fabric's part of a configuration, ready for the control plane.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use sluice_api::config::{self as api, HostConfig};
use sluice_api::fabric::VportPolicy;
use sluice_api::port::AllowedIp;
use sluice_base::{Destination, HostId, IpPrefix, Mac, Nanos, PortId, TunnelId, VnetId, Vni};
use sluice_control::mobility;

use super::evpn::{self, EvpnPlan};
use super::numbers::Numbers;
use super::policy;
use super::workers::Workers;

/// Highest number of a member. Numbers above it are for hosts that are no members.
pub(super) const ID_MAX: u16 = 0x7fff;

/// Namespace and device of a TAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TapPlace {
    /// Namespace, if it is not the host's.
    pub(crate) netns: Option<PathBuf>,
    /// Name of the device.
    pub(crate) device: String,
    /// True if a container's runtime moves it into a namespace of its own.
    pub(crate) is_given_away: bool,
}

/// The host as a member of its fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricPlan {
    /// Identifier of the fabric on the wire.
    pub fabric: [u8; 16],
    /// This host.
    pub own: HostId,
    /// Name of the host, as in its certificate.
    pub name: String,
    /// Address on which the host listens.
    pub listen: SocketAddr,
    /// Folder with its certificates.
    pub certificates: PathBuf,
    /// Networks. Their numbers are [`Self::vnet`].
    pub vnets: Vec<(Vni, String)>,
    /// Numbers of the networks, at the same positions.
    pub vnet_ids: Vec<VnetId>,
    /// MTUs of the networks, at the same positions.
    pub mtus: Vec<u16>,
    /// Policy of flow control.
    pub policy: String,
    /// VTEP of this host.
    pub vtep: IpAddr,
    /// Other hosts. The numbers of their tunnels are [`Self::tunnel`].
    pub hosts: Vec<HostPlan>,
    /// Numbers of the tunnels to the other hosts, at the same positions.
    pub tunnel_ids: Vec<TunnelId>,
    /// Local ports, without the underlay.
    pub ports: BTreeMap<PortId, LocalPort>,
    /// Upper bound of port numbers, exclusive.
    pub ports_max: u16,
    /// Endpoints that are bound to a port.
    pub bound: Vec<Bound>,
    /// Most endpoints that may be learned at a port.
    pub learn_max: u32,
    /// Most endpoints that one other member may claim.
    pub claims_per_host: u32,
    /// Most punts per second of one port for one cause.
    pub punts_per_port: u32,
    /// Limits for endpoints that move too often.
    pub moves: mobility::Limits,
    /// Time for which this host answers for an endpoint that does not speak itself.
    pub confirmed: Nanos,
    /// Most endpoints of other hosts in the forwarding table.
    pub chip_flows: u32,
    /// Most questions per second for frames of one port whose destination is unknown.
    pub asks_per_port: u32,
    /// The data workers.
    pub workers: Workers,
    /// The host as a BGP speaker.
    pub evpn: Option<EvpnPlan>,
    /// Collector of traces.
    pub traces: Option<api::HttpTraces>,
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPlan {
    /// Number of the host.
    pub host: HostId,
    /// Name of the host, as in its certificate.
    pub name: String,
    /// VTEP of the host.
    pub vtep: IpAddr,
    /// Address on which the host listens; `None` if it is no member.
    pub at: Option<SocketAddr>,
    /// Networks that the host has.
    pub vnets: Vec<Vni>,
}

/// A local port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalPort {
    /// Name of the port.
    pub name: String,
    /// Network of the port.
    pub vnet: VnetId,
    /// True if only bound endpoints may use the port.
    pub is_bound: bool,
    /// Policy for the port's endpoints.
    pub policy: VportPolicy,
    /// Prefixes that its bound endpoints may share.
    pub allowed: Vec<IpPrefix>,
    /// Place of its TAP, if it has one.
    pub(crate) tap: Option<TapPlace>,
}

/// An endpoint that is bound to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Number of the port.
    pub port: PortId,
    /// Network of the endpoint.
    pub vni: Vni,
    /// MAC of the endpoint.
    pub mac: Mac,
    /// IP addresses of the endpoint.
    pub ips: Vec<IpAddr>,
    /// Sequence of the binding, if it was taken over from another host; 0 if it was not.
    pub taken: u32,
}

impl FabricPlan {
    /// Returns the host of a tunnel.
    #[must_use]
    pub fn host(&self, tunnel: TunnelId) -> Option<HostId> {
        let at = self.tunnel_ids.iter().position(|id| *id == tunnel)?;
        self.hosts.get(at).map(|host| host.host)
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn worker_count(&self) -> u16 {
        u16::try_from(self.workers.count).expect("checked: a few")
    }

    /// Returns the worker that sends there. If all of them could, it is the first one.
    #[must_use]
    pub(crate) fn worker_of(&self, to: Destination) -> usize {
        let placed = match to {
            Destination::Port(port) => self.workers.ports.get(port.index()),
            // The underlay is the last port.
            Destination::Tunnel(_) => self.workers.ports.last(),
        };
        placed.and_then(|placed| placed.worker).unwrap_or(0)
    }

    /// Returns the tunnel to a host.
    #[must_use]
    pub fn tunnel(&self, host: HostId) -> Option<TunnelId> {
        let at = self.hosts.iter().position(|known| known.host == host)?;
        self.tunnel_ids.get(at).copied()
    }

    /// Returns the VNI of a network.
    #[must_use]
    pub fn vni(&self, vnet: VnetId) -> Option<Vni> {
        let at = self.vnet_ids.iter().position(|id| *id == vnet)?;
        self.vnets.get(at).map(|vnet| vnet.0)
    }

    /// Returns the network of a VNI.
    #[must_use]
    pub fn vnet(&self, vni: Vni) -> Option<VnetId> {
        let at = self.vnets.iter().position(|known| known.0 == vni)?;
        self.vnet_ids.get(at).copied()
    }

    /// Returns the name of the network of a VNI.
    #[must_use]
    pub fn vnet_name(&self, vni: Vni) -> Option<&str> {
        self.vnets.iter().find(|known| known.0 == vni).map(|known| known.1.as_str())
    }

    /// Returns the network of this name.
    ///
    /// # Errors
    /// If there is none, with the existing names.
    pub fn vnet_named(&self, name: &str) -> Result<(VnetId, Vni), String> {
        let at = self.vnets.iter().position(|vnet| vnet.1 == name);
        at.map(|at| (self.vnet_ids[at], self.vnets[at].0)).ok_or_else(|| {
            let names: Vec<&str> = self.vnets.iter().map(|vnet| vnet.1.as_str()).collect();
            format!("there is no network `{name}` here; there is {}", names.join(", "))
        })
    }

    /// Returns the name of a host.
    #[must_use]
    pub fn host_name(&self, host: HostId) -> Option<&str> {
        if host == self.own {
            return Some(&self.name);
        }
        self.hosts.iter().find(|known| known.host == host).map(|known| known.name.as_str())
    }
}

/// Returns the fabric of a configuration that passed every check.
pub(super) fn plan(
    config: &HostConfig,
    numbers: &Numbers,
    mtu: impl Fn(&api::Vnet) -> u16,
) -> Option<FabricPlan> {
    let (fabric, underlay) = (config.fabric.as_ref()?, config.underlay.as_ref()?);
    let vnis: BTreeMap<&str, Vni> = (config.vnets.iter())
        .filter_map(|vnet| Some((vnet.name.as_str(), Vni::new(vnet.vni?)?)))
        .collect();
    let vni_of = |name: &str| vnis.get(name).copied();
    let tunnel_of = |peer: &api::Peer| numbers.tunnel(&peer.name).expect("every peer has a number");
    let listen = fabric.address.unwrap_or(underlay.address);
    let host = |peer: &api::Peer| {
        let foreign = u16::MAX - tunnel_of(peer).0;
        let at = peer.address.unwrap_or(peer.vtep);
        HostPlan {
            host: HostId(peer.id.unwrap_or(foreign)),
            name: peer.name.clone(),
            vtep: peer.vtep.into(),
            at: peer.id.map(|_| SocketAddr::new(at.into(), fabric.port)),
            vnets: peer.vnets.iter().filter_map(|name| vni_of(name)).collect(),
        }
    };
    Some(FabricPlan {
        fabric: number_of(&fabric.name),
        own: HostId(fabric.id),
        name: config.host.name.clone(),
        listen: SocketAddr::new(listen.into(), fabric.port),
        certificates: PathBuf::from(&fabric.certificates),
        vnets: config
            .vnets
            .iter()
            .filter_map(|v| Some((vni_of(&v.name)?, v.name.clone())))
            .collect(),
        vnet_ids: config
            .vnets
            .iter()
            .filter(|v| vni_of(&v.name).is_some())
            .filter_map(|v| numbers.vnet(&v.name))
            .collect(),
        mtus: config.vnets.iter().filter(|v| vni_of(&v.name).is_some()).map(mtu).collect(),
        policy: config.host.policy.name().to_owned(),
        vtep: underlay.address.into(),
        hosts: config.peers.iter().map(host).collect(),
        tunnel_ids: config.peers.iter().map(tunnel_of).collect(),
        ports: local_ports(config, numbers, fabric.learn_max),
        ports_max: u16::try_from(config.ports.len() + 1)
            .expect("checked: as many as fit")
            .saturating_add(config.spare_ports()),
        bound: bound(config),
        learn_max: fabric.learn_max,
        claims_per_host: fabric.claims_per_host,
        punts_per_port: fabric.punts_per_port,
        moves: moves(fabric),
        confirmed: Nanos::from_millis(1_000 * u64::from(fabric.confirmed_s)),
        // Flows are entries of the MAC table as well.
        chip_flows: config.host.chip_flows.min(config.host.chip_macs),
        asks_per_port: fabric.asks_per_port,
        workers: Workers::of(config),
        evpn: evpn::plan(config),
        traces: config.api.traces.clone(),
    })
}

/// Returns the local ports of the file, by number.
fn local_ports(
    config: &HostConfig,
    numbers: &Numbers,
    learn_max: u32,
) -> BTreeMap<PortId, LocalPort> {
    config
        .ports
        .iter()
        .enumerate()
        .map(|(index, port)| {
            let vnet = numbers.vnet(&port.vnet).expect("checked: the network exists");
            let name = port.name.clone();
            let tap = port.kind.is_card().then(|| TapPlace {
                netns: port.netns.as_ref().map(PathBuf::from),
                device: port.device.clone(),
                is_given_away: false,
            });
            let policy = policy::of(config, port, learn_max);
            let allowed = prefixes(&config.complete(port).allowed);
            let is_bound = port.mac.is_some();
            let local = LocalPort { name, vnet, is_bound, policy, allowed, tap };
            (PortId::from_index(index), local)
        })
        .collect()
}

/// Returns the prefixes of a port's list.
pub(super) fn prefixes(allowed: &[AllowedIp]) -> Vec<IpPrefix> {
    allowed.iter().map(|allowed| allowed.0).collect()
}

/// Returns the limits for endpoints that move too often.
fn moves(fabric: &api::Fabric) -> mobility::Limits {
    let seconds = |seconds: u32| Nanos::from_millis(1_000 * u64::from(seconds));
    mobility::Limits {
        moves: fabric.moves_max,
        window: seconds(fabric.moves_window_s),
        freeze: seconds(fabric.freeze_s),
        often: match fabric.on_moves {
            api::MobilityPolicy::Warn => mobility::Often::Warn,
            api::MobilityPolicy::Freeze => mobility::Often::Freeze,
        },
        ..mobility::Limits::default()
    }
}

/// Returns the bound endpoints, each with the data of all ports and endpoints of the file that name
/// it.
fn bound(config: &HostConfig) -> Vec<Bound> {
    let mut all: Vec<Bound> = Vec::new();
    let mut places: BTreeMap<(Vni, Mac), usize> = BTreeMap::new();
    let ports = config.ports.iter().filter_map(|port| {
        Some((port.name.as_str(), port.vnet.as_str(), port.mac.as_deref()?, None))
    });
    let vports = config.vports.iter().filter_map(|vport| {
        Some((vport.port.as_deref()?, vport.vnet.as_str(), vport.mac.as_str(), vport.ip))
    });
    for (port, vnet, mac, ip) in ports.chain(vports) {
        let known = |name: &str| config.vnets.iter().find(|vnet| vnet.name == name)?.vni;
        let Some(vni) = known(vnet).and_then(Vni::new) else { continue };
        let Ok(mac) = mac.parse::<Mac>() else { continue };
        let index = config.ports.iter().position(|known| known.name == port);
        let port = PortId::from_index(index.expect("checked: the port exists"));
        let ips = ip.map(IpAddr::from);
        let at = *places.entry((vni, mac)).or_insert(all.len());
        match all.get_mut(at) {
            Some(one) => one.ips.extend(ips),
            None => {
                let ips = ips.into_iter().collect();
                all.push(Bound { port, vni, mac, ips, taken: 0 });
            }
        }
    }
    all
}

/// Returns 128 bits of a name: FNV-1a, which identifies fabrics but keeps no attacker out.
/// Certificates do.
pub(crate) fn number_of(name: &str) -> [u8; 16] {
    let hash = name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    hash.to_be_bytes()
}
