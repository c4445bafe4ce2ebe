//! Questions to the kernel's routing netlink (rtnetlink(7)).

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_EXCL, NLM_F_REPLACE,
    NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::stats::{StatsFilterMask, StatsMessage};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

use crate::link::LinkNow;

mod batch;
pub mod reply;

/// Size of a receive buffer: the kernel makes the parts of a long answer no larger.
const BUFFER_SIZE: usize = 32 << 10;
/// Limit of the queueing discipline of a container's card. It must take the send buffers of all
/// sockets together; memory is bounded by these.
pub(crate) const CONTAINER_FIFO_FRAMES: u32 = 200_000;
/// Parts of an answer that are kept. Whoever owns a container says how many addresses, neighbours
/// and routes it has.
const PARTS_MAX: usize = 65_536;
/// Limit of the kernel's time to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Multicast groups of changes to which a socket subscribes, one bit each.
pub(crate) const GROUP_LINK: u32 = 1;
pub(crate) const GROUP_NEIGHBOUR: u32 = 1 << 2;
pub(crate) const GROUP_IPV4_ROUTE: u32 = 1 << 6;

/// Result of reading a socket of changes.
#[derive(Debug)]
pub(crate) enum Changes {
    /// Changes.
    Some(Vec<RouteNetlinkMessage>),
    /// None now.
    None,
    /// More changes than the socket could hold: the caller must look at everything again.
    Overrun,
}

/// One netlink socket, of the namespace in which it was opened.
#[derive(Debug)]
pub(crate) struct Netlink {
    fd: OwnedFd,
    sequence: u32,
    buffer: Box<[u8]>,
}

impl Netlink {
    /// Opens a socket for questions.
    pub(crate) fn open() -> io::Result<Self> {
        let netlink = Self::socket(SocketFlags::CLOEXEC, 0)?;
        sockopt::set_socket_timeout(&netlink.fd, sockopt::Timeout::Recv, Some(ANSWER_WITHIN))?;
        Ok(netlink)
    }

    /// Opens a socket that receives changes and never waits.
    pub(crate) fn subscribe(groups: u32) -> io::Result<Self> {
        Self::socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, groups)
    }

    /// Has a socket of changes hold so many bytes of them, the kernel's bookkeeping included, if
    /// this process may say so.
    pub(crate) fn hold(&self, bytes: usize) {
        // Without it, what does not fit is an overrun, and all is looked at again.
        _ = sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes);
    }

    fn socket(flags: SocketFlags, groups: u32) -> io::Result<Self> {
        let family = rustix::net::AddressFamily::NETLINK;
        let fd = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Self { fd, sequence: 0, buffer: vec![0; BUFFER_SIZE].into_boxed_slice() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Asks a question, and waits for the whole answer.
    pub(crate) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.ask_for(question, flags, PARTS_MAX)
    }

    /// Asks like [`Self::ask`] for an answer of at most `parts_max` parts.
    pub(crate) fn ask_for(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
        parts_max: usize,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        if flags & NLM_F_DUMP != NLM_F_DUMP {
            header.flags |= NLM_F_ACK; // The acknowledgement is the end of the answer.
        }
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        rustix::net::send(&self.fd, &bytes, SendFlags::empty())?;
        let mut answer = Vec::new();
        loop {
            let (_, size) = rustix::net::recv(&self.fd, &mut *self.buffer, RecvFlags::TRUNC)?;
            if size > self.buffer.len() {
                return Err(io::Error::other("an answer of netlink is larger than any should be"));
            }
            if let Some(end) = reply::read(&self.buffer[..size], self.sequence, &mut answer) {
                return end.map(|()| answer);
            }
            if answer.len() > parts_max {
                return Err(io::Error::other(format!(
                    "an answer of netlink has more than {parts_max} parts"
                )));
            }
        }
    }

    /// Reads changes, if there are any.
    pub(crate) fn changes(&mut self) -> io::Result<Changes> {
        match rustix::net::recv(&self.fd, &mut *self.buffer, RecvFlags::TRUNC) {
            Ok((_, size)) if size > self.buffer.len() => Ok(Changes::Overrun),
            Ok((_, size)) => Ok(Changes::Some(reply::changes(&self.buffer[..size]))),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Changes::None),
            Err(rustix::io::Errno::NOBUFS) => Ok(Changes::Overrun),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets the largest number of segments in a super-frame that the kernel gives a device, as `ip
    /// link set … gso_max_segs` does. TCP asks for it at each connection.
    pub(crate) fn set_segments_max(&mut self, index: u32, segments: u32) -> io::Result<()> {
        let mut wanted = LinkMessage::default();
        wanted.header.index = index;
        wanted.attributes = vec![LinkAttribute::GsoMaxSegs(segments)];
        self.ask(RouteNetlinkMessage::SetLink(wanted), 0).map(drop)
    }

    /// Gives a device an address, as `ip address add` does; an address that it has already is kept.
    /// An IPv6 address is usable at once, without duplicate address detection (RFC 4862 section
    /// 5.4).
    pub(crate) fn add_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> io::Result<()> {
        let mut wanted = AddressMessage::default();
        wanted.header.family = match ip {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        wanted.header.index = index;
        wanted.header.prefix_len = prefix;
        wanted.header.flags = AddressHeaderFlags::Nodad;
        wanted.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        match self.ask(RouteNetlinkMessage::NewAddress(wanted), NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map(drop),
        }
    }

    /// Takes an address from a device; no error if the device does not have it.
    pub(crate) fn del_address(&mut self, index: u32, ip: IpAddr, prefix: u8) -> io::Result<()> {
        let mut gone = AddressMessage::default();
        gone.header.family = match ip {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        gone.header.index = index;
        gone.header.prefix_len = prefix;
        gone.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        match self.ask(RouteNetlinkMessage::DelAddress(gone), 0) {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(()),
            done => done.map(drop),
        }
    }

    /// Gives a device a route of the main table, as `ip route add` does; an existing route is kept.
    pub(crate) fn add_route(
        &mut self,
        index: u32,
        ip: IpAddr,
        prefix: u8,
        gateway: Option<IpAddr>,
    ) -> io::Result<()> {
        let mut wanted = RouteMessage::default();
        wanted.header.address_family = match ip {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        wanted.header.destination_prefix_length = prefix;
        wanted.header.table = RouteHeader::RT_TABLE_MAIN;
        wanted.header.protocol = RouteProtocol::Static;
        let on_link = gateway.is_none() && ip.is_ipv4();
        wanted.header.scope = if on_link { RouteScope::Link } else { RouteScope::Universe };
        wanted.header.kind = RouteType::Unicast;
        wanted.attributes = vec![RouteAttribute::Oif(index)];
        if prefix > 0 {
            wanted.attributes.push(RouteAttribute::Destination(ip.into()));
        }
        wanted.attributes.extend(gateway.map(|ip| RouteAttribute::Gateway(ip.into())));
        match self.ask(RouteNetlinkMessage::NewRoute(wanted), NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            done => done.map(drop),
        }
    }

    /// Addresses of a device, with the lengths of their prefixes.
    pub(crate) fn addresses(&mut self, index: u32) -> io::Result<Vec<(IpAddr, u8)>> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        Ok(reply::addresses(&self.ask(question, NLM_F_DUMP)?, index))
    }

    /// Routes of the main table that lead out by a device: destination, length of its prefix,
    /// router.
    pub(crate) fn routes(&mut self, index: u32) -> io::Result<Vec<(IpAddr, u8, Option<IpAddr>)>> {
        let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        Ok(reply::routes(&self.ask(question, NLM_F_DUMP)?, index))
    }

    /// The name of a device and its alias (`ip link set alias`).
    pub(crate) fn name_and_alias(&mut self, index: u32) -> io::Result<(String, String)> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let answer = self.ask(RouteNetlinkMessage::GetLink(question), 0)?;
        let (mut name, mut alias) = (String::new(), String::new());
        for message in answer {
            let RouteNetlinkMessage::NewLink(link) = message else { continue };
            for attribute in link.attributes {
                match attribute {
                    LinkAttribute::IfName(text) => name = text,
                    LinkAttribute::IfAlias(text) => alias = text,
                    _ => {}
                }
            }
        }
        Ok((name, alias))
    }

    /// Sets the alias of a device.
    pub(crate) fn set_alias(&mut self, index: u32, alias: &str) -> io::Result<()> {
        let mut wanted = LinkMessage::default();
        wanted.header.index = index;
        wanted.attributes = vec![LinkAttribute::IfAlias(alias.to_owned())];
        self.ask(RouteNetlinkMessage::SetLink(wanted), 0).map(drop)
    }

    /// Deletes a device.
    pub(crate) fn del_link(&mut self, index: u32) -> io::Result<()> {
        let mut gone = LinkMessage::default();
        gone.header.index = index;
        self.ask(RouteNetlinkMessage::DelLink(gone), 0).map(drop)
    }

    /// Number by which this socket's namespace knows another one, given now if it has none yet.
    pub(crate) fn namespace_number(&mut self, namespace: BorrowedFd<'_>) -> io::Result<i32> {
        let fd = namespace.as_raw_fd().cast_unsigned();
        let message = |more: Option<NsidAttribute>| {
            let mut message = NsidMessage::default();
            message.attributes.push(NsidAttribute::Fd(fd));
            message.attributes.extend(more);
            message
        };
        let chosen = message(Some(NsidAttribute::Id(-1)));
        match self.ask(RouteNetlinkMessage::NewNsId(chosen), 0) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            Err(error) => return Err(error),
        }
        let answer = self.ask(RouteNetlinkMessage::GetNsId(message(None)), 0)?;
        let number = answer.iter().find_map(|message| match message {
            RouteNetlinkMessage::NewNsId(message) => {
                message.attributes.iter().find_map(|attribute| match attribute {
                    NsidAttribute::Id(number) if *number >= 0 => Some(*number),
                    _ => None,
                })
            }
            _ => None,
        });
        number.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The counters of a device.
    pub(crate) fn link_stats(&mut self, index: u32) -> io::Result<Stats64> {
        let mut question = StatsMessage::default();
        question.header.ifindex = index;
        question.header.filter_mask = StatsFilterMask::Link64;
        let answer = self.ask(RouteNetlinkMessage::GetStats(question), 0)?;
        reply::counters(&answer)
            .ok_or_else(|| io::Error::other("the kernel gave no counters of the device"))
    }

    /// State of a device; `None` if there is none of this index.
    pub(crate) fn link(&mut self, index: u32) -> io::Result<Option<LinkNow>> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let answer = match self.ask(RouteNetlinkMessage::GetLink(question), 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            answer => answer?,
        };
        Ok(reply::link(&answer))
    }

    /// Returns the kind of a device that is made by software; `None` for others.
    pub(crate) fn kind(&mut self, index: u32) -> io::Result<Option<InfoKind>> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let answer = self.ask(RouteNetlinkMessage::GetLink(question), 0)?;
        let links = answer.into_iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link.attributes),
            _ => None,
        });
        let infos = links.flatten().filter_map(|attribute| match attribute {
            LinkAttribute::LinkInfo(infos) => Some(infos),
            _ => None,
        });
        Ok(infos.flatten().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        }))
    }

    /// Returns true if a device is set up.
    pub(crate) fn is_up(&mut self, index: u32) -> io::Result<bool> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        let answer = self.ask(RouteNetlinkMessage::GetLink(question), 0)?;
        let mut links = answer.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(link.header.flags),
            _ => None,
        });
        let flags =
            links.next_back().ok_or_else(|| io::Error::other("the kernel told of no device"))?;
        Ok(flags.contains(LinkFlags::Up))
    }

    /// Frames that the queueing discipline at the root of a device dropped, those of its classes
    /// included; 0 if it has none. 32 bits, wrapping.
    pub(crate) fn qdisc_drops(&mut self, index: u32) -> io::Result<u32> {
        let index = index.cast_signed();
        let mut question = TcMessage::with_index(index);
        question.header.family = AddressFamily::Unspec;
        // The root of this device alone: a dump has all devices, and would run once per port.
        question.header.parent = TcHandle::ROOT;
        // Without an echo the kernel answers no more than "no error".
        let question = RouteNetlinkMessage::GetQueueDiscipline(question);
        let answer = match self.ask(question, NLM_F_ECHO) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            answer => answer?,
        };
        Ok(reply::root_drops(&answer, index))
    }

    /// Makes a `pfifo` of so many frames the queueing discipline of a device.
    pub(crate) fn set_fifo(&mut self, index: u32, frames: u32) -> io::Result<()> {
        const TCA_OPTIONS: u16 = 2;
        let mut wanted = TcMessage::with_index(index.cast_signed());
        wanted.header.family = AddressFamily::Unspec;
        wanted.header.parent = TcHandle::ROOT;
        // `struct tc_fifo_qopt` is the limit alone.
        let options = DefaultNla::new(TCA_OPTIONS, frames.to_ne_bytes().to_vec());
        wanted.attributes =
            vec![TcAttribute::Kind("pfifo".to_owned()), TcAttribute::Other(options)];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.ask(RouteNetlinkMessage::NewQueueDiscipline(wanted), flags).map(drop)
    }
}

#[cfg(test)]
mod tests;
