//! Validation of a configuration before a switch is made from it.

use alloc::vec;

use sluice_base::{ByteCount, PortId, Priority, TunnelId, VnetId};

use crate::config::{
    ConfigError, InputFull, Limit, PortConfig, PortRole, Service, Sources, SparePlaces,
    SwitchConfig, VnetConfig,
};
use crate::egress::{GROUPS_MAX, NODES_MAX};
use crate::surface::{ALLOWED_MAX, BOUND_MACS_MAX};
use crate::{sizes, tunnel};

/// Returns the first fault of a configuration.
pub(crate) fn check(config: &SwitchConfig) -> Result<(), ConfigError> {
    if let Some(spare) = &config.spare
        && !matches!(spare.like.role, PortRole::Access { .. })
    {
        return Err(ConfigError::SpareUnderlay);
    }
    let whole = config.with_spare();
    counts(&whole)?;
    for (at, class) in config.classes.iter().enumerate() {
        if class.service == Service::Weighted(0) {
            let priority = Priority::all().nth(at).expect("eight classes");
            return Err(ConfigError::ZeroWeight { priority });
        }
    }
    spare_places(config)?;
    let has_vnet = |vnet: VnetId| config.numbered_vnets().any(|(at, _)| at == vnet.index());
    for (at, port) in whole.ports.iter().enumerate() {
        // The network of a spare port is that of the port that will be attached.
        let is_spare = at >= config.ports.len();
        check_port(|vnet| is_spare || has_vnet(vnet), PortId::from_index(at), port)?;
    }
    if config.unresolved.destinations == 0 {
        // A lossless frame for an unknown address would wait for ever, and no miss would be
        // reported.
        let bytes_min = ByteCount::ZERO;
        return Err(ConfigError::LimitTooSmall { what: "unresolved", port: None, bytes_min });
    }
    elsewhere(config)?;
    tunnels(config)?;
    bindings(config)?;
    vnets(config)
}

fn counts(config: &SwitchConfig) -> Result<(), ConfigError> {
    let inputs: usize = config.ports.iter().map(|p| usize::from(p.queues)).sum();
    let groups = sizes::first_hold_group(config) + sizes::holds_max(config);
    let frames = sizes::slot_count(config);
    // One number is reserved for "no port"; sources are inputs, control and tunnels together.
    let limits = [
        ("ports", config.ports.len(), usize::from(u16::MAX) - 1),
        ("networks", config.vnet_places(), usize::from(u16::MAX) - 1),
        ("tunnels and queues", inputs + config.tunnel_places(), usize::from(u16::MAX) - 2),
        ("queue groups", groups, GROUPS_MAX - 1),
        ("buffered frames", usize::try_from(frames).unwrap_or(usize::MAX), NODES_MAX / 2),
    ];
    match limits.into_iter().find(|(_, count, limit)| count > limit) {
        Some((what, _, limit)) => Err(ConfigError::TooMany { what, limit }),
        None => Ok(()),
    }
}

/// Returns an error if the spare numbers are not those that the networks and tunnels leave.
fn spare_places(config: &SwitchConfig) -> Result<(), ConfigError> {
    let SparePlaces { vnets, tunnels } = &config.spare_places;
    let fits = vnets.is_sorted_by(|a, b| a < b)
        && tunnels.is_sorted_by(|a, b| a < b)
        && vnets.last().is_none_or(|last| last.index() < config.vnet_places())
        && tunnels.last().is_none_or(|last| last.index() < config.tunnel_places());
    if fits { Ok(()) } else { Err(ConfigError::SparePlaces) }
}

/// Checks a port for a switch that has some networks.
pub(crate) fn check_port(
    has_vnet: impl Fn(VnetId) -> bool,
    id: PortId,
    port: &PortConfig,
) -> Result<(), ConfigError> {
    if let PortRole::Access { vnet } = port.role
        && !has_vnet(vnet)
    {
        return Err(ConfigError::NoSuch { what: "network", index: vnet.index(), by: "a port" });
    }
    if port.queues == 0 {
        return Err(ConfigError::NoSuch { what: "queue", index: 0, by: "a port" });
    }
    let queues = port.queue_priorities.iter().take(port.queues.into());
    if let Some(queue) = queues.clone().position(|priorities| priorities.is_empty()) {
        return Err(ConfigError::NoPriority { port: id, queue });
    }
    limit("input", Some(id), port.input, port.mtu)?;
    limit("output", Some(id), port.output, port.mtu)?;
    for rate in [port.rate, port.group_rate].into_iter().flatten() {
        if rate.rate.0 == 0 {
            return Err(ConfigError::RateTooSmall { port: id });
        }
    }
    if let InputFull::Pause(pause) = port.input_full {
        let ordered = pause.xon < pause.xoff && pause.xoff < port.input.bytes;
        if !ordered || port.queues != 1 || pause.link.0 == 0 {
            return Err(ConfigError::Thresholds { port: id });
        }
    }
    Ok(())
}

fn limit(
    what: &'static str,
    port: Option<PortId>,
    limit: Limit,
    mtu: u16,
) -> Result<(), ConfigError> {
    let bytes_min = ByteCount(u64::from(mtu) + 18);
    if limit.frames == 0 || limit.bytes < bytes_min {
        return Err(ConfigError::LimitTooSmall { what, port, bytes_min });
    }
    Ok(())
}

/// Checks the ports of other switches and the movable ones. A rate or a pause that two switches
/// apply would be applied twice.
fn elsewhere(config: &SwitchConfig) -> Result<(), ConfigError> {
    for &port in &config.handoff.elsewhere {
        let index = port.index();
        let Some(p) = config.ports.get(index) else {
            return Err(ConfigError::NoSuch { what: "port", index, by: "a handoff" });
        };
        let paces = p.rate.is_some() || p.group_rate.is_some() || p.rx_pause;
        let pauses = matches!(p.input_full, InputFull::Pause(_));
        if paces || pauses || config.handoff.refs_max == 0 || p.role == PortRole::Handoff {
            return Err(ConfigError::Elsewhere { port });
        }
    }
    for &port in &config.handoff.movable {
        let index = port.index();
        let Some(p) = config.ports.get(index) else {
            return Err(ConfigError::NoSuch { what: "port", index, by: "a handoff" });
        };
        if !p.is_movable() || config.handoff.refs_max == 0 {
            return Err(ConfigError::Movable { port });
        }
    }
    Ok(())
}

fn tunnels(config: &SwitchConfig) -> Result<(), ConfigError> {
    for (at, (number, tunnel)) in config.numbered_tunnels().enumerate() {
        let index = tunnel.port.index();
        let Some(port) = config.ports.get(index) else {
            return Err(ConfigError::NoSuch { what: "port", index, by: "a tunnel" });
        };
        if !matches!(port.role, PortRole::Underlay { .. }) {
            return Err(ConfigError::NotUnderlay { tunnel: TunnelId::from_index(number) });
        }
        if config.tunnels[..at].iter().any(|t| t.remote == tunnel.remote) {
            return Err(ConfigError::TunnelTwice { remote: tunnel.remote });
        }
    }
    Ok(())
}

/// Checks the bindings and the allowed prefixes of bound ports.
fn bindings(config: &SwitchConfig) -> Result<(), ConfigError> {
    let mut counts = vec![0; config.ports.len()];
    for binding in &config.control.bindings {
        let index = binding.port.index();
        let is_bound = config.ports.get(index).is_some_and(|port| port.sources == Sources::Bound);
        if !is_bound || binding.mac.is_group() {
            return Err(ConfigError::NoSuch { what: "bound port", index, by: "a binding" });
        }
        counts[index] += 1;
        if counts[index] > BOUND_MACS_MAX {
            return Err(ConfigError::TooMany { what: "bindings of a port", limit: BOUND_MACS_MAX });
        }
    }
    let mut counts = vec![0; config.ports.len()];
    for (port, _) in &config.control.allowed {
        let index = port.index();
        let is_bound = config.ports.get(index).is_some_and(|port| port.sources == Sources::Bound);
        if !is_bound {
            return Err(ConfigError::NoSuch { what: "bound port", index, by: "an allowed prefix" });
        }
        counts[index] += 1;
        if counts[index] > ALLOWED_MAX {
            return Err(ConfigError::TooMany { what: "prefixes of a port", limit: ALLOWED_MAX });
        }
    }
    Ok(())
}

fn vnets(config: &SwitchConfig) -> Result<(), ConfigError> {
    for (at, (number, vnet)) in config.numbered_vnets().enumerate() {
        if let Some(vni) = vnet.vni
            && config.vnets[..at].iter().any(|v| v.vni == Some(vni))
        {
            return Err(ConfigError::VniTwice { vni });
        }
        let mtu_of = |tunnel: TunnelId| {
            config.tunnel_at(tunnel).map(|tunnel| config.ports[tunnel.port.index()].mtu.into())
        };
        check_vnet(VnetId::from_index(number), vnet, mtu_of)?;
    }
    Ok(())
}

/// Checks a network. `mtu_of` returns the MTU of the underlay that a tunnel leads through; `None`
/// if there is no such tunnel.
pub(crate) fn check_vnet(
    id: VnetId,
    vnet: &VnetConfig,
    mtu_of: impl Fn(TunnelId) -> Option<u32>,
) -> Result<(), ConfigError> {
    for tunnel in &vnet.tunnels {
        let Some(mtu) = mtu_of(*tunnel) else {
            let index = tunnel.index();
            return Err(ConfigError::NoSuch { what: "tunnel", index, by: "a network" });
        };
        // Outer IP, UDP, VXLAN and the inner Ethernet header count against the underlay's MTU.
        let mtu_max = mtu.saturating_sub(tunnel::OUTER_BYTES);
        if u32::from(vnet.mtu) > mtu_max {
            let mtu_max = u16::try_from(mtu_max).unwrap_or(u16::MAX);
            return Err(ConfigError::MtuTooLarge { vnet: id, mtu_max });
        }
    }
    Ok(())
}
