//! What goes in and comes out: the words that a driver, a simulator and a control plane share with
//! the switch.

use core::net::{IpAddr, Ipv4Addr};

use sluice_base::{
    ByteCount, DropReason, InputId, IpPrefix, LaneId, Mac, PortId, Priority, PriorityMask,
    TunnelId, VnetId,
};

use crate::inspect::Counter;

/// What the switch promises to take from an input now.
///
/// The promise is of each priority: one that is full closes itself and no other. A driver that
/// cannot tell the priority of a frame before it hands it over reads by [`Self::of_any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Frames, of whatever priority that is open.
    pub frames: u32,
    /// Bytes of those frames; the last one may exceed it.
    pub bytes: ByteCount,
    /// The priorities of which nothing is taken, at an input that pauses its sender by priority.
    /// Flow control needs no window ([`crate::Switch::hear`]).
    pub closed: PriorityMask,
    /// True if handles of this input should be moved into the host pool first
    /// ([`crate::Switch::spill`]): a broadcast waits for its copy, or one destination has filled
    /// its share of the input.
    pub spill: bool,
}

impl Window {
    /// Returns the promise for frames of any priority: none while one is closed.
    #[must_use]
    pub fn of_any(self) -> Self {
        let frames = if self.closed.is_empty() { self.frames } else { 0 };
        Self { frames, ..self }
    }

    /// Returns true if it has nothing to say to a driver that tells priorities apart either.
    #[must_use]
    pub fn is_shut(self) -> bool {
        self.frames == 0 && self.closed.is_empty()
    }
}

/// A frame as an output driver sees it: `header`, then `buf` from byte `strip` on.
///
/// Everything that the switch puts in front of a frame or changes in it (encapsulation, a tag, an
/// ECN mark) is in `header`; the bytes that it replaces are skipped by `strip`. The buffer is never
/// written.
///
/// Of a super-frame ([`Buf::segments`](sluice_base::Buf::segments)) every segment goes by itself,
/// unless the driver's peer takes it whole. `header` is then what goes in front of the largest one;
/// [`crate::resize_outer`] makes it that of a smaller one.
#[derive(Debug)]
pub struct Egress<'a, B> {
    /// The bytes that go first. Empty for a frame that passes unchanged.
    pub header: &'a [u8],
    /// The buffer; `None` for a frame that the switch made itself, which is all in `header`.
    pub buf: Option<&'a B>,
    /// How many bytes of the buffer are skipped.
    pub strip: u16,
    /// The size of the frame on the wire in bytes, without frame check sequence; of a super-frame
    /// that of the segments from `first` on.
    pub size: u32,
    /// Of a super-frame the first segment that no driver took yet.
    pub first: u16,
    /// Its priority.
    pub priority: Priority,
    /// The tunnel it goes through.
    pub tunnel: Option<TunnelId>,
}

/// What a driver did with a frame that it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It took the frame, and will not look at the buffer after `offer` returns.
    All,
    /// It took so many more segments of a super-frame, but not all: at least one. It is offered the
    /// rest.
    Segments(u16),
    /// It has no room. The frame stays queued and the walk ends, at least for its priority.
    No,
}

/// An output driver. A driver that cannot say beforehand how much room it has answers
/// [`Taken::No`] when it finds out.
pub trait Sink<B> {
    /// Offers one frame.
    fn offer(&mut self, frame: &Egress<'_, B>) -> Taken;

    /// Returns the priorities of which it would refuse whatever it is offered, as it found out. A
    /// driver that keeps them apart says so after [`Taken::No`], and the walk goes on with the
    /// others.
    fn refuses(&self) -> PriorityMask {
        PriorityMask::NONE
    }

    /// Returns true if it would refuse whatever it is offered. A driver that knows spares the
    /// switch the making of headers that nobody takes; one that does not know says no.
    fn is_full(&self) -> bool {
        false
    }
}

impl<B, F: FnMut(&Egress<'_, B>) -> Taken> Sink<B> for F {
    fn offer(&mut self, frame: &Egress<'_, B>) -> Taken {
        self(frame)
    }
}

/// Where frames for an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Out of a local port.
    Port(PortId),
    /// Through a tunnel.
    Tunnel(TunnelId),
}

/// How many machines may be bound to a port.
pub const BOUND_MACS_MAX: usize = 8;
/// How many addresses a bound machine may have.
pub const BOUND_IPS_MAX: usize = 4;

/// How many prefixes a port may allow its bound machines beside their own addresses.
pub const ALLOWED_MAX: usize = 16;

/// The IP addresses of a bound machine; none at all: it may have any, or, if its port allows some,
/// these.
pub type BoundIps = [Option<IpAddr>; BOUND_IPS_MAX];

/// What the control plane asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Puts an address into the chip, evicting the least recently used one if it is full, and
    /// releases the frames that wait for it.
    Install {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
        /// Where it is.
        to: Destination,
    },
    /// Takes an address out of the chip. Queued frames stay queued.
    Remove {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
    },
    /// Ends the frames that wait for an address, under `unresolved`.
    Reject {
        /// The network.
        vnet: VnetId,
        /// The address.
        mac: Mac,
    },
    /// Sets the next hop of a tunnel; `None`: it has none, and its frames wait.
    NextHop {
        /// The tunnel.
        tunnel: TunnelId,
        /// The MAC of the next hop.
        mac: Option<Mac>,
    },
    /// From now on a control plane reads [`Notice::Punt`] and [`Notice::Decap`], or none does any
    /// more: then what waits is thrown away, and the switch floods ARP like any broadcast. A switch
    /// begins without one.
    Control {
        /// True if one does.
        attached: bool,
    },
    /// Binds a machine to a port of [`crate::Sources::Bound`], or gives it other addresses.
    Bind {
        /// The port.
        port: PortId,
        /// The machine.
        mac: Mac,
        /// What it may say of itself.
        ips: BoundIps,
    },
    /// The bound machines of a port may speak with an address of this prefix as well, which others
    /// may have, too. It goes with the port.
    Allow {
        /// The port.
        port: PortId,
        /// The addresses.
        prefix: IpPrefix,
    },
    /// Unbinds a machine from a port: its frames end under `spoofed_mac`.
    Unbind {
        /// The port.
        port: PortId,
        /// The machine.
        mac: Mac,
    },
    /// Takes an address from a machine that is bound to a port; one that has no other one is bound
    /// no more. Nothing happens if it may have any.
    UnbindIp {
        /// The port.
        port: PortId,
        /// The machine.
        mac: Mac,
        /// The address.
        ip: IpAddr,
    },
    /// Holds a destination behind a tunnel here, as its host asked: frames for it of some
    /// priorities wait in the inputs of their senders. No priority at all lets go of it: what waits
    /// is sent, in order.
    Hold {
        /// The network.
        vnet: VnetId,
        /// The destination.
        mac: Mac,
        /// The tunnel to its host.
        tunnel: TunnelId,
        /// Priorities that are held.
        held: PriorityMask,
        /// Those among them whose frames end under
        /// [`ReceiverStuck`](sluice_base::DropReason::ReceiverStuck), as the hold contract of the
        /// receiver is over.
        stuck: PriorityMask,
    },
    /// The device of an underlay has this address and this MTU now.
    Underlay {
        /// The port.
        port: PortId,
        /// The address that frames of the underlay come from and go to.
        mac: Mac,
        /// The layer-3 MTU.
        mtu: u16,
    },
    /// A frame to a far end was too large for its way, which has this layer-3 MTU (RFC 1191).
    PathMtu {
        /// The far end.
        remote: Ipv4Addr,
        /// The MTU.
        mtu: u16,
    },
    /// Ends a decap flow. The next frame makes it again.
    ForgetDecap {
        /// The network.
        vnet: VnetId,
        /// The peer.
        tunnel: TunnelId,
    },
    /// Frames that were taken at a port ([`PuntCause::is_taken`]) end there: control neither
    /// answered them nor had them flooded.
    Refuse {
        /// The port.
        port: PortId,
        /// Why.
        reason: DropReason,
        /// How many, and their bytes.
        sum: Counter,
    },
}

/// A command that cannot be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// No network of that number.
    NoSuchVnet(VnetId),
    /// No port of that number, or it was detached.
    NoSuchPort(PortId),
    /// No tunnel of that number.
    NoSuchTunnel(TunnelId),
    /// The port is not a member of the network.
    NotAMember(PortId),
    /// The tunnel is not one of the network's.
    NotInNetwork(TunnelId),
    /// A group address cannot be installed or bound.
    GroupAddress(Mac),
    /// The port takes frames of any source.
    NotBound(PortId),
    /// [`BOUND_MACS_MAX`] machines are bound to the port.
    TooManyBound(PortId),
    /// The port allows [`ALLOWED_MAX`] prefixes.
    TooManyAllowed(PortId),
    /// As many destinations are held as may be ([`crate::IsolationConfig::holds`]).
    TooManyHeld,
    /// No tunnel has this far end.
    NoSuchVtep(Ipv4Addr),
}

/// Why a frame is punted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PuntCause {
    /// The chip does not know its source.
    NewSource,
    /// The chip knows its source at another place.
    Moved,
    /// It is ARP (RFC 826) to a group, and was taken out of the data path.
    Arp,
    /// It is a Neighbor Solicitation or Advertisement (RFC 4861 sections 4.3 and 4.4) to a group,
    /// and was taken out of the data path.
    Nd,
    /// It is ARP or Neighbor Discovery, router discovery and redirects among it, that goes its way.
    Snooped,
}

impl PuntCause {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 5] = [Self::NewSource, Self::Moved, Self::Arp, Self::Nd, Self::Snooped];
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the cause as an index below [`Self::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns true if the frame was taken out of the data path: control answers it, has it
    /// flooded, or says why it ends.
    #[must_use]
    pub const fn is_taken(self) -> bool {
        matches!(self, Self::Arp | Self::Nd)
    }
}

/// Where a punted frame came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PuntFrom {
    /// At a port.
    Input(InputId),
    /// Out of a tunnel.
    Tunnel(TunnelId),
}

/// What the switch has to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A destination that the chip does not know. Its frames wait.
    Miss {
        /// The network.
        vnet: VnetId,
        /// The destination.
        mac: Mac,
        /// Where the first waiting frame came in.
        from: PuntFrom,
        /// A copy of the first bytes of that frame.
        head: Head,
    },
    /// A frame that the control plane should see. One that was taken ([`PuntCause::is_taken`])
    /// ended there, and its head is all of it: whom it should reach is for the control plane to
    /// say. Any other goes on.
    Punt {
        /// Why.
        cause: PuntCause,
        /// The network.
        vnet: VnetId,
        /// Where it came in.
        from: PuntFrom,
        /// A copy of its first bytes, from the tenant's Ethernet header on.
        head: Head,
    },
    /// A frame was too large for where it goes, and ended under `oversize`. Its sender can be told
    /// (`sluice_wire::too_big`).
    TooBig {
        /// The way to its sender: the port that it came in at, or the sender's address, if that is
        /// behind a tunnel or at another switch of the host.
        to: Target,
        /// The largest layer-3 packet that passes there, with as many tags as the frame has.
        mtu: u16,
        /// A copy of the frame's first bytes.
        head: Head,
    },
    /// The way to a tunnel's far end has another MTU than its device.
    PathMtu {
        /// The tunnel.
        tunnel: TunnelId,
        /// The layer-3 MTU of the way; `None`: what was learned is too old to be believed.
        mtu: Option<u16>,
    },
    /// The first frame that a peer sent to a network since the switch began, or since
    /// [`Command::ForgetDecap`].
    Decap {
        /// The network.
        vnet: VnetId,
        /// The peer.
        tunnel: TunnelId,
    },
    /// The senders of a port have to hold other priorities than before, or others of them have to:
    /// [`crate::Switch::receiver`] says which and who.
    Receiver {
        /// The port.
        port: PortId,
    },
}

/// A local port as those that send to it through tunnels should treat it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverState {
    /// Priorities that senders are to hold.
    pub held: PriorityMask,
    /// Those among them whose hold contract is over.
    pub stuck: PriorityMask,
}

/// A copy of the first bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; Self::SIZE_MAX],
    size: u8,
}

impl Head {
    /// How many bytes it can hold.
    pub const SIZE_MAX: usize = 128;

    /// Returns a copy of the first bytes of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let size = bytes.len().min(Self::SIZE_MAX);
        let mut head = Self { bytes: [0; Self::SIZE_MAX], size: 0 };
        head.bytes[..size].copy_from_slice(&bytes[..size]);
        head.size = u8::try_from(size).expect("at most 128");
        head
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.size)]
    }
}

impl core::fmt::Debug for Head {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Head({} bytes)", self.size)
    }
}

/// What a detached port leaves behind: its handles come out of [`crate::Switch::reclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detached {
    /// Frames that ended under `stopped`.
    pub dropped: u32,
    /// Handles of this port's inputs that wait to be reclaimed.
    pub handles: u32,
}

/// Where control's own frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Out of a port, as it is.
    Port(PortId),
    /// To one address of a network.
    Address(VnetId, Mac),
    /// Through one tunnel of a network, whatever its destination address is.
    Tunnel(VnetId, TunnelId),
}

/// A lane, told apart by what it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// A local port.
    Port(PortId),
    /// A tunnel.
    Tunnel(TunnelId),
    /// A destination that is not resolved.
    Unresolved(VnetId, Mac),
    /// A destination behind a tunnel that is held here.
    Held(TunnelId),
    /// Not in use.
    Free,
}

/// A queue in use, for inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// Its lane.
    pub lane: LaneId,
    /// What the lane leads to.
    pub to: LaneKind,
    /// The index of the source.
    pub source: sluice_base::SourceId,
    /// The priority.
    pub priority: Priority,
    /// Frames that wait.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
}
