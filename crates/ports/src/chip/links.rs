//! The devices of a network: a bridge and a VXLAN device, and the ports of the bridge.
//!
//! ```text
//!   slb5000  bridge ─┬─ slx5000  VXLAN device, VNI 5000, local = this VTEP
//!                    ├─ slp...   container's card (switch end)
//!                    └─ eth1     plain machines
//! ```
//!
//! One bridge for each network, since a kernel need not have VLAN filtering. Nothing is learned and
//! nothing flooded, but at ports of a switch ([`Manner`]). Devices that were made here carry an
//! alias with the host's name; a device of the same name without it is somebody else's, and is left
//! alone.

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoKind, InfoPortData, InfoPortKind, InfoVxlan,
    LinkAttribute, LinkFlags, LinkInfo, LinkMessage, VxlanDf,
};
use sluice_base::Vni;

use super::programs;
use crate::device::device;
use crate::netlink::Netlink;
use crate::udp::VXLAN_PORT;
use crate::veth::requests::without_own_address;

/// Devices of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Devices {
    pub(super) bridge: u32,
    pub(super) vxlan: u32,
}

fn alias(host: &str) -> String {
    format!("sluice {host} chip")
}

/// Name of the bridge of a network.
pub(super) fn bridge_name(vni: Vni) -> String {
    format!("slb{}", vni.get())
}

/// Name of the VXLAN device of a network.
pub(super) fn vxlan_name(vni: Vni) -> String {
    format!("slx{}", vni.get())
}

/// Makes the devices of a network, or takes over those that an earlier process made; the second
/// result tells whether it did.
pub(super) fn ensure(
    netlink: &mut Netlink,
    host: &str,
    (vni, local, mtu): (Vni, Ipv4Addr, u16),
) -> io::Result<(Devices, bool)> {
    let bridge = [InfoBridge::MulticastSnooping(false), InfoBridge::AgeingTime(0)];
    let bridge = (InfoKind::Bridge, InfoData::Bridge(bridge.to_vec()));
    let (bridge, _) = ensure_one(netlink, host, &bridge_name(vni), bridge)?;
    let vxlan = vec![
        InfoVxlan::Id(vni.get()),
        InfoVxlan::Local(local),
        InfoVxlan::Port(VXLAN_PORT),
        InfoVxlan::Learning(false),
        InfoVxlan::Ttl(64),
        // As the tenant's packet, ECN by RFC 6040.
        InfoVxlan::Tos(1),
        InfoVxlan::Df(VxlanDf::Set),
        InfoVxlan::UDPCsum(false),
    ];
    let vxlan = (InfoKind::Vxlan, InfoData::Vxlan(vxlan));
    let (vxlan, is_left) = ensure_one(netlink, host, &vxlan_name(vni), vxlan)?;
    for index in [vxlan, bridge] {
        set_mtu_and_up(netlink, index, mtu)?;
    }
    if !programs::marks_tunnelled(vxlan)? {
        programs::mark_tunnelled(vxlan)?;
    }
    enslave(netlink, vxlan, bridge, Manner::Quiet)?;
    Ok((Devices { bridge, vxlan }, is_left))
}

/// Makes a device, or takes it over; the second result tells whether it was there.
fn ensure_one(
    netlink: &mut Netlink,
    host: &str,
    name: &str,
    (kind, data): (InfoKind, InfoData),
) -> io::Result<(u32, bool)> {
    let alias = alias(host);
    match device(name) {
        Ok(found) => {
            let (_, said) = netlink.name_and_alias(found.index)?;
            if said != alias {
                return Err(io::Error::other(format!(
                    "device {name} is there, and not this host's: delete or rename it"
                )));
            }
            return Ok((found.index, true));
        }
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
        Err(error) => return Err(error),
    }
    let mut wanted = LinkMessage::default();
    let info = vec![LinkInfo::Kind(kind), LinkInfo::Data(data)];
    wanted.attributes = vec![LinkAttribute::IfName(name.to_owned()), LinkAttribute::LinkInfo(info)];
    netlink.ask(RouteNetlinkMessage::NewLink(wanted), NLM_F_CREATE | NLM_F_EXCL)?;
    let index = device(name)?.index;
    netlink.set_alias(index, &alias)?;
    without_own_address(netlink, index)?;
    Ok((index, false))
}

/// Sets the MTU of a device, and sets it up.
pub(super) fn set_mtu_and_up(netlink: &mut Netlink, index: u32, mtu: u16) -> io::Result<()> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    wanted.header.flags = LinkFlags::Up;
    wanted.header.change_mask = LinkFlags::Up;
    wanted.attributes = vec![LinkAttribute::Mtu(mtu.into())];
    netlink.ask(RouteNetlinkMessage::SetLink(wanted), 0).map(drop)
}

/// Behaviour of a port of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// It neither learns nor floods.
    Quiet,
    /// Port of a switch: its device learns, and the bridge says what.
    Learns,
    /// As `Learns`, of a device that floods, too, and cannot be told not to.
    Floods,
}

impl Manner {
    /// Returns its flags that are to be on or off.
    fn flags(self) -> Vec<InfoBridgePort> {
        let mut flags = vec![InfoBridgePort::Learning(self != Self::Quiet)];
        if self != Self::Floods {
            flags.extend([
                InfoBridgePort::UnicastFlood(false),
                InfoBridgePort::MulticastFlood(false),
                InfoBridgePort::BroadcastFlood(false),
            ]);
        }
        flags
    }
}

/// Makes a device a port of a bridge. A driver may refuse flags of a port of a switch: it floods
/// then.
pub(super) fn enslave(
    netlink: &mut Netlink,
    index: u32,
    bridge: u32,
    manner: Manner,
) -> io::Result<Manner> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    wanted.attributes = vec![LinkAttribute::Controller(bridge)];
    netlink.ask(RouteNetlinkMessage::SetLink(wanted), 0)?;
    match set_manner(netlink, index, manner) {
        Err(error) if manner == Manner::Learns && is_not_supported(&error) => {
            set_manner(netlink, index, Manner::Floods)?;
            Ok(Manner::Floods)
        }
        done => done.map(|()| manner),
    }
}

fn set_manner(netlink: &mut Netlink, index: u32, manner: Manner) -> io::Result<()> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    let info = vec![
        LinkInfo::PortKind(InfoPortKind::Bridge),
        LinkInfo::PortData(InfoPortData::BridgePort(manner.flags())),
    ];
    wanted.attributes = vec![LinkAttribute::LinkInfo(info)];
    netlink.ask(RouteNetlinkMessage::NewLink(wanted), 0).map(drop)
}

/// Error numbers of drivers about flags that their device does not have.
fn is_not_supported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

/// Returns the number of the switch whose port a device is; `None` if it is none.
pub(super) fn switch_of(netlink: &mut Netlink, index: u32) -> io::Result<Option<Vec<u8>>> {
    let Some(link) = look_at(netlink, index)? else { return Ok(None) };
    Ok(link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::PhysSwitchId(id) => Some(id.id[..id.len].to_vec()),
        _ => None,
    }))
}

/// Takes a device out of its bridge.
pub(super) fn release(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    wanted.attributes = vec![LinkAttribute::Controller(0)];
    match netlink.ask(RouteNetlinkMessage::SetLink(wanted), 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        done => done.map(drop),
    }
}

/// True if a device is in this bridge.
pub(super) fn is_port(netlink: &mut Netlink, index: u32, bridge: u32) -> io::Result<bool> {
    let Some(link) = look_at(netlink, index)? else { return Ok(false) };
    Ok(link.attributes.contains(&LinkAttribute::Controller(bridge)))
}

/// True if a device is up, in this bridge, and has the flags of its manner.
pub(super) fn is_right(
    netlink: &mut Netlink,
    index: u32,
    bridge: u32,
    manner: Manner,
) -> io::Result<bool> {
    let flags = manner.flags();
    let Some(link) = look_at(netlink, index)? else { return Ok(false) };
    let is_up = link.header.flags.contains(LinkFlags::Up);
    let (mut is_ours, mut right) = (false, 0);
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::Controller(of) => is_ours = of == bridge,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    if let LinkInfo::PortData(InfoPortData::BridgePort(values)) = info {
                        right = flags.iter().filter(|flag| values.contains(flag)).count();
                    }
                }
            }
            _ => {}
        }
    }
    Ok(is_up && is_ours && right == flags.len())
}

/// Returns what the kernel says of a device; `None` if it is gone.
fn look_at(netlink: &mut Netlink, index: u32) -> io::Result<Option<LinkMessage>> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    let answer = match netlink.ask(RouteNetlinkMessage::GetLink(question), 0) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
        answer => answer?,
    };
    Ok(answer.into_iter().find_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(link),
        _ => None,
    }))
}

/// Deletes the bridges and VXLAN devices that an earlier process of the host has left.
pub(super) fn delete_left(netlink: &mut Netlink, host: &str) -> io::Result<usize> {
    let alias = alias(host);
    let is_ours = |link: &LinkMessage| {
        link.attributes.iter().any(|attribute| match attribute {
            LinkAttribute::IfAlias(said) => *said == alias,
            _ => false,
        })
    };
    let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
    let mut count = 0;
    for message in netlink.ask(question, NLM_F_DUMP)? {
        if let RouteNetlinkMessage::NewLink(link) = message
            && is_ours(&link)
        {
            netlink.del_link(link.header.index)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Deletes the devices of a network that an earlier process may have made.
pub(super) fn delete(netlink: &mut Netlink, devices: Devices) -> io::Result<()> {
    for index in [devices.vxlan, devices.bridge] {
        match netlink.del_link(index) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
            done => done?,
        }
    }
    Ok(())
}
