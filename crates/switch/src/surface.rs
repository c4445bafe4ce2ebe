//! Interface types of the switch, shared by drivers, simulators and control planes.

use core::net::IpAddr;

use sluice_base::{
    ByteCount, Destination, Mac, PUNT_HEAD_SIZE_MAX, PortId, Priority, PriorityMask, PuntCause,
    QueueGroupId, TunnelId, VnetId,
};

/// Frames and bytes that the switch promises to take from an input now.
///
/// The promise holds for each priority: a full priority closes itself and no other. A driver that
/// cannot tell the priority of a frame before it hands the frame over uses [`Self::of_any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Frames of any open priority.
    pub frames: u32,
    /// Bytes of those frames; the last frame may exceed the bound.
    pub bytes: ByteCount,
    /// Priorities of which no frame is taken, at an input that pauses its sender by priority. Flow
    /// control needs no window ([`crate::Switch::hear`]).
    pub closed: PriorityMask,
    /// True if handles of this input should be moved into the host pool first
    /// ([`crate::Switch::copy_to_shared`]): a broadcast waits for its copy, or one destination has
    /// filled its share of the input.
    pub needs_copy: bool,
}

impl Window {
    /// Returns the promise for frames of any priority: none while one is closed.
    #[must_use]
    pub fn of_any(self) -> Self {
        let frames = if self.closed.is_empty() { self.frames } else { 0 };
        Self { frames, ..self }
    }

    /// Returns true if the window is empty also for a driver that keeps priorities apart: no
    /// frames, and no closed priority.
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
/// Every segment of a super-frame ([`Buf::segments`](sluice_base::Buf::segments)) goes by itself,
/// unless the driver's peer takes the frame whole. `header` is then the header of the largest
/// segment; [`crate::resize_outer`] adapts it to a smaller one.
#[derive(Debug)]
pub struct Egress<'a, B> {
    /// Bytes in front of the buffer. Empty for a frame that passes unchanged.
    pub header: &'a [u8],
    /// The buffer; `None` for a frame that the switch made itself, all of it in `header`.
    pub buf: Option<&'a B>,
    /// Bytes of the buffer that are skipped.
    pub strip: u16,
    /// The size of the frame on the wire in bytes, without frame check sequence; for a super-frame,
    /// that of the segments from `first` on.
    pub size: u32,
    /// First segment of a super-frame that no driver took yet.
    pub first: u16,
    /// Its priority.
    pub priority: Priority,
    /// The tunnel that the frame goes through.
    pub tunnel: Option<TunnelId>,
}

/// Answer of a driver to a frame that it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The driver took the frame, and will not read the buffer after `offer` returns.
    All,
    /// The driver took so many more segments of a super-frame, but not all: at least one. The rest
    /// is offered again.
    Segments(u16),
    /// The driver has no room. The frame stays queued and the walk ends, at least for its priority.
    No,
    /// One receiver behind the port has no room, others may have. The frame stays queued, and its
    /// queue waits until the port is resumed ([`crate::Switch::resume_port`]); the walk goes on
    /// with other sources.
    Later,
}

/// An output driver. A driver that does not know its room beforehand answers [`Taken::No`] once it
/// has none.
pub trait Sink<B> {
    /// Offers one frame.
    fn offer(&mut self, frame: &Egress<'_, B>) -> Taken;

    /// Returns the priorities of which it would refuse any frame. A driver that keeps priorities
    /// apart returns them after [`Taken::No`], and the walk goes on with the others.
    fn refuses(&self) -> PriorityMask {
        PriorityMask::NONE
    }

    /// Tells that a frame that was answered by [`Taken::Later`] holds the port, as after
    /// [`Taken::No`]: several senders share its input, which must not wait for one receiver alone.
    fn hold_port(&mut self) {}

    /// Returns true if it would refuse any frame. True saves the switch building a header for a
    /// frame that would be refused; a driver that does not know returns false.
    fn is_full(&self) -> bool {
        false
    }
}

impl<B, F: FnMut(&Egress<'_, B>) -> Taken> Sink<B> for F {
    fn offer(&mut self, frame: &Egress<'_, B>) -> Taken {
        self(frame)
    }
}

/// Number of machines that may be bound to a port.
pub const BOUND_MACS_MAX: usize = 8;
/// Number of addresses that a bound machine may have.
pub const BOUND_IPS_MAX: usize = 4;

/// Number of prefixes that a port may allow its bound machines beside their own addresses.
pub const ALLOWED_MAX: usize = 16;

/// The IP addresses of a bound machine. If there are none, the machine may have any address, or
/// those that its port allows, if it allows some.
pub type BoundIps = [Option<IpAddr>; BOUND_IPS_MAX];

/// Reason why a command of control or a change of a port or tunnel is refused.
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
    /// The tunnel does not belong to the network.
    NotInNetwork(TunnelId),
    /// A group address cannot be installed or bound.
    GroupAddress(Mac),
    /// The port takes frames of any source.
    NotBound(PortId),
    /// [`BOUND_MACS_MAX`] machines are bound to the port.
    TooManyBound(PortId),
    /// The port allows [`ALLOWED_MAX`] prefixes.
    TooManyAllowed(PortId),
    /// The limit of held destinations is reached ([`crate::IsolationConfig::holds`]).
    TooManyHeld,
}

/// An event of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A destination that the forwarding table does not have. Its frames wait.
    Miss {
        /// The network.
        vnet: VnetId,
        /// The destination.
        mac: Mac,
        /// The port or tunnel that the first waiting frame came in by; `None` for a frame that
        /// control sent.
        from: Option<Destination>,
        /// A copy of the first bytes of that frame.
        head: Head,
    },
    /// A frame that the control plane should see. A frame that was taken ([`PuntCause::is_taken`])
    /// ended there and only its head remains: the control plane decides which ports it reaches. Any
    /// other frame is forwarded as well.
    Punt {
        /// Reason of the punt.
        cause: PuntCause,
        /// The network.
        vnet: VnetId,
        /// The port or tunnel that the frame came in by.
        from: Destination,
        /// A copy of the frame's first bytes, from the tenant's Ethernet header on.
        head: Head,
    },
    /// A frame was too large for its output, and ended under `oversize`. The control plane can
    /// inform its sender (`sluice_wire::too_big`).
    TooBig {
        /// Target of an answer to its sender: the port that the frame came in at, or the sender's
        /// address, if the sender is behind a tunnel or at another switch of the host.
        to: Target,
        /// The largest layer-3 packet that fits the output, with as many tags as the frame has.
        mtu: u16,
        /// A copy of the frame's first bytes.
        head: Head,
    },
    /// The path to a tunnel's far end has another MTU than its device.
    PathMtu {
        /// The tunnel.
        tunnel: TunnelId,
        /// The layer-3 MTU of the path; `None` once the learned one has expired.
        mtu: Option<u16>,
    },
    /// The first frame that a peer sent to a network since the switch started, or since
    /// [`ForgetDecap`](sluice_base::Command::ForgetDecap).
    Decap {
        /// The network.
        vnet: VnetId,
        /// The peer.
        tunnel: TunnelId,
    },
    /// The priorities that senders of a port have to hold changed, or the set of these senders did:
    /// [`crate::Switch::receiver`] returns both.
    Receiver {
        /// The port.
        port: PortId,
    },
}

/// A copy of the first bytes of a frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Head {
    bytes: [u8; Self::SIZE_MAX],
    size: u8,
}

impl Head {
    /// Upper bound of the bytes that it holds.
    pub const SIZE_MAX: usize = PUNT_HEAD_SIZE_MAX;

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

/// Frames and handles of a port that was detached. The handles come out of
/// [`crate::Switch::reclaim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detached {
    /// Frames that ended under `stopped`.
    pub dropped: u32,
    /// Handles of this port's inputs that wait to be reclaimed.
    pub handles: u32,
}

/// Target of a frame that control sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Out of a port, as it is.
    Port(PortId),
    /// To one address of a network.
    Address(VnetId, Mac),
    /// Through one tunnel of a network, whatever its destination address is.
    Tunnel(VnetId, TunnelId),
}

/// Kind of a queue group, by its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueGroupKind {
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
    /// Its queue group.
    pub group: QueueGroupId,
    /// Destination of the queue group.
    pub to: QueueGroupKind,
    /// The index of the source.
    pub source: sluice_base::SourceId,
    /// The priority.
    pub priority: Priority,
    /// Frames that wait.
    pub frames: u32,
    /// Their bytes.
    pub bytes: u64,
}
