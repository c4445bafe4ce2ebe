//! Questions to rtnetlink that only a veth pair needs.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use sluice_base::Mac;

use crate::netlink::Netlink;

/// One end of a pair that is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End<'a> {
    pub(crate) name: &'a str,
    /// `None` leaves the MAC to the kernel.
    pub(crate) mac: Option<Mac>,
}

/// Makes a veth pair with one queue each way. With more, the owner of an end could send past the
/// one that is served.
pub(crate) fn add_pair(
    netlink: &mut Netlink,
    [own, other]: [End<'_>; 2],
    mtu: u16,
) -> io::Result<()> {
    let mut pair = end(own, mtu);
    let peer = InfoData::Veth(InfoVeth::Peer(end(other, mtu)));
    let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)];
    pair.attributes.push(LinkAttribute::LinkInfo(info));
    netlink.ask(RouteNetlinkMessage::NewLink(pair), NLM_F_CREATE | NLM_F_EXCL).map(drop)
}

fn end(end: End<'_>, mtu: u16) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::Mtu(mtu.into()),
        LinkAttribute::NumTxQueues(1),
        LinkAttribute::NumRxQueues(1),
    ];
    message.attributes.extend(end.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
    message
}

/// Has a device make no IPv6 address for itself, so that the kernel sends nothing in its name.
pub(crate) fn without_own_address(netlink: &mut Netlink, index: u32) -> io::Result<()> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    let none = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
    let inet6 = AfSpecUnspec::Inet6(vec![none]);
    wanted.attributes = vec![LinkAttribute::AfSpecUnspec(vec![inet6])];
    match netlink.ask(RouteNetlinkMessage::SetLink(wanted), 0) {
        // A kernel without IPv6.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
        done => done.map(drop),
    }
}

/// Moves a device into another namespace, under this name.
pub(crate) fn move_link(
    netlink: &mut Netlink,
    index: u32,
    namespace: BorrowedFd<'_>,
    name: &str,
) -> io::Result<()> {
    let mut wanted = LinkMessage::default();
    wanted.header.index = index;
    wanted.attributes =
        vec![LinkAttribute::NetNsFd(namespace.as_raw_fd()), LinkAttribute::IfName(name.to_owned())];
    netlink.ask(RouteNetlinkMessage::SetLink(wanted), 0).map(drop)
}

/// Index of the other end of a device, in the namespace of that end.
pub(super) fn peer(netlink: &mut Netlink, index: u32) -> io::Result<u32> {
    let mut question = LinkMessage::default();
    question.header.index = index;
    let answer = netlink.ask(RouteNetlinkMessage::GetLink(question), 0)?;
    let attributes = answer.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
        _ => None,
    });
    let mut peers = attributes.flatten().filter_map(|attribute| match attribute {
        LinkAttribute::Link(peer) => Some(peer),
        _ => None,
    });
    peers.next().ok_or_else(|| io::Error::other("the kernel knows no other end of it"))
}

/// Gives a device a permanent neighbour.
pub(super) fn add_neighbour(
    netlink: &mut Netlink,
    index: u32,
    ip: Ipv4Addr,
    mac: Mac,
) -> io::Result<()> {
    let mut wanted = NeighbourMessage::default();
    wanted.header.family = AddressFamily::Inet;
    wanted.header.ifindex = index;
    wanted.header.state = NeighbourState::Permanent;
    wanted.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    let flags = NLM_F_CREATE | NLM_F_REPLACE;
    netlink.ask(RouteNetlinkMessage::NewNeighbour(wanted), flags).map(drop)
}
