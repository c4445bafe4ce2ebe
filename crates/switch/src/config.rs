//! What a switch is made of. All memory is sized from here and taken in [`crate::Switch::new`].
//!
//! The types say what each place may hold and what it does when it is full; the four flow-control
//! policies (`LL`, `LZ`, `ZL`, `ZZ`) are settings of these places and nothing else in the switch
//! knows them by name.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::iter;
use core::net::Ipv4Addr;

use sluice_base::{
    BitRate, ByteCount, IpPrefix, Mac, Nanos, PortId, Priority, PriorityMask, TunnelId, VnetId, Vni,
};

use crate::surface::BoundIps;

/// A whole switch.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The ports; a [`PortId`] is a position in this list.
    pub ports: Vec<PortConfig>,
    /// The networks; a [`VnetId`] is a position in this list.
    pub vnets: Vec<VnetConfig>,
    /// The tunnels; a [`TunnelId`] is a position in this list.
    pub tunnels: Vec<TunnelConfig>,
    /// How each priority is served and whether a full output holds or drops its frames.
    pub classes: [ClassConfig; Priority::COUNT],
    /// Which priority a DSCP means on a port that trusts it.
    pub dscp_to_priority: [Priority; 64],
    /// The DSCP that the outer header of a priority gets.
    pub priority_to_dscp: [u8; Priority::COUNT],
    /// The host pool.
    pub pool: PoolConfig,
    /// The chip.
    pub chip: ChipConfig,
    /// Frames whose destination is not known yet.
    pub unresolved: UnresolvedConfig,
    /// What is there for a control plane.
    pub control: ControlConfig,
    /// Bays for ports that come while it runs; `None`: only a bay whose port was detached can be
    /// given to another.
    pub spare: Option<SpareConfig>,
    /// What it shares with other switches of the same host.
    pub crossing: CrossingConfig,
    /// When a receiver is isolated, and what it has then; `None`: never, and receivers hold their
    /// senders for as long as they like.
    pub isolation: Option<IsolationConfig>,
}

/// Isolation of receivers that do not take what is sent to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolationConfig {
    /// The time for which a receiver may hold more than its share of what all share.
    pub patience: Nanos,
    /// Memory for frames of isolated receivers that came by an input which others share. One
    /// receiver may hold as much of it as is still free of it.
    pub reserve: Limit,
    /// Destinations behind tunnels that may be held here at a time ([`crate::Command::Hold`]).
    pub holds: u16,
    /// Broadcasts that a port, and through tunnels a network, may send in a second; 0: any number.
    pub broadcasts_per_second: u32,
}

impl IsolationConfig {
    /// For a switch whose senders can be told within a few milliseconds.
    #[must_use]
    pub const fn new(reserve: Limit) -> Self {
        Self { patience: Nanos::from_millis(10), reserve, holds: 64, broadcasts_per_second: 0 }
    }
}

/// The hold contract of one priority of a port: the longest time that senders are held for a
/// receiver of which no frame leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// For ever.
    #[default]
    Forever,
    /// So long; then what waits for it, and what comes, ends under
    /// [`ReceiverStuck`](sluice_base::DropReason::ReceiverStuck) until a frame leaves.
    For(Nanos),
}

impl Hold {
    /// Returns true if a receiver of which no frame left for so long is beyond it.
    pub(crate) fn is_over(self, waited: Nanos) -> bool {
        match self {
            Self::Forever => false,
            Self::For(most) => waited > most,
        }
    }
}

/// What a switch shares with others of the same host, each with a thread of its own: all have the
/// same ports, networks and tunnels under the same numbers, and each port is read and written by
/// one of them. Frames for the ports of others cross over ([`crate::Switch::hand_over`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrossingConfig {
    /// The ports that others read and write. Here they have no rate and no flow control.
    pub elsewhere: Vec<PortId>,
    /// The ports that may change hands ([`crate::Switch::give_home`]), wherever they are at first:
    /// every switch takes memory for them.
    pub movable: Vec<PortId>,
    /// How many frames of one priority may be on their way to, or wait in, one of these ports at a
    /// time.
    pub lend_max: u16,
}

impl CrossingConfig {
    /// How many frames may be lent at the same time.
    #[must_use]
    pub fn loans_max(&self) -> u32 {
        let beside = self.movable.iter().filter(|port| !self.elsewhere.contains(port));
        loans_to(self.elsewhere.len() + beside.count(), self.lend_max)
    }

    pub(crate) fn is_movable(&self, port: usize) -> bool {
        self.movable.iter().any(|p| p.index() == port)
    }

    pub(crate) fn is_elsewhere(&self, port: usize) -> bool {
        self.elsewhere.iter().any(|p| p.index() == port)
    }
}

impl SwitchConfig {
    /// Returns the same with a port in every spare bay: what memory is taken for.
    pub(crate) fn with_spare(&self) -> Cow<'_, Self> {
        let Some(spare) = &self.spare else { return Cow::Borrowed(self) };
        let mut whole = self.clone();
        whole.ports.extend(iter::repeat_n(spare.like.clone(), spare.ports.into()));
        Cow::Owned(whole)
    }
}

/// How many frames may be lent to so many ports.
pub(crate) fn loans_to(ports: usize, lend_max: u16) -> u32 {
    let classes = u32::try_from(ports * Priority::COUNT).unwrap_or(u32::MAX);
    classes.saturating_mul(lend_max.into())
}

/// Bays for ports that come while the switch runs ([`crate::Switch::attach`]).
#[derive(Clone, Debug)]
pub struct SpareConfig {
    /// How many. The numbers of their ports follow those of [`SwitchConfig::ports`].
    pub ports: u16,
    /// An access port that any of them has memory for: what is attached has at most its queues and
    /// its limits. All else is the attached port's own.
    pub like: PortConfig,
}

/// What one input or output may hold. Both numbers bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Frames.
    pub frames: u32,
    /// Bytes of those frames.
    pub bytes: ByteCount,
}

/// One port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// What is behind it.
    pub role: PortRole,
    /// How many queues its driver reads (each is an input, and a source of its own).
    pub queues: u8,
    /// The priorities that frames of each queue may have: one that says another gets the lowest of
    /// its queue, so that a priority that is held back stands in no other's way. Queues beyond the
    /// last place, and those of an underlay, may have all.
    pub queue_priorities: [PriorityMask; Priority::COUNT],
    /// What each of its inputs may hold.
    pub input: Limit,
    /// What happens when an input is full.
    pub input_full: InputFull,
    /// What each of its lanes may hold before a lossy priority drops.
    pub output: Limit,
    /// The rate of the port (a link, the service rate of a vNIC); `None`: as fast as the driver
    /// takes.
    pub rate: Option<RateLimit>,
    /// The rate of each of its lanes.
    pub lane_rate: Option<RateLimit>,
    /// The largest frame that may leave it: the layer-3 MTU, without the Ethernet header and tag.
    pub mtu: u16,
    /// True if received PFC and PAUSE frames stop the output.
    pub obey_pause: bool,
    /// What the priority of a received frame is taken from.
    pub trust: Trust,
    /// The priority of a frame that says none.
    pub default_priority: Priority,
    /// Whose frames an access port takes, and which of them are punted.
    pub sources: Sources,
    /// What its driver does about 802.1Q tags.
    pub tags: Tags,
    /// The hold contract of what leaves by it, by priority. It binds where there is an
    /// [`IsolationConfig`].
    pub hold: [Hold; Priority::COUNT],
}

impl PortConfig {
    /// Returns true if it may change hands among switches of one host: an access port without flow
    /// control. Its own rate goes along.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        let waits = !matches!(self.input_full, InputFull::Pause(_)) && !self.obey_pause;
        waits && self.lane_rate.is_none() && matches!(self.role, PortRole::Access { .. })
    }
}

/// What the driver of an access port does about 802.1Q tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Nothing: they stay in their frames, and only priority tags may come in.
    #[default]
    Kept,
    /// It takes priority tags off and says so ([`sluice_base::VlanTag`]).
    Access,
    /// As `Access`, and the tag of the port's VLAN as well, which it puts on what leaves. A tag
    /// behind that one is the tenant's own and stays; where a network has such a port, peers may
    /// send frames with tags of their own to it (RFC 7348 section 6.1: unless configured
    /// otherwise, they are discarded).
    Trunk,
}

/// Whose frames an access port takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// Anybody's. Nobody looks.
    #[default]
    Any,
    /// Anybody's; while control is attached it is shown frames of sources that the chip does not
    /// know at this port.
    Learn,
    /// As `Learn`, and only those of the machines that are bound to the port.
    Bound,
}

/// A machine that is bound to a port of [`Sources::Bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The port.
    pub port: PortId,
    /// The machine.
    pub mac: Mac,
    /// Its IP addresses; none: it may have any, or those that its port allows.
    pub ips: BoundIps,
}

/// What is there for a control plane.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// How many punts may wait to be read; a port may have a quarter of them. As many decap flows
    /// may wait beside them. 0 for a switch that no control plane attaches to.
    pub punts: u16,
    /// The machines that are bound at start.
    pub bindings: Vec<Binding>,
    /// What ports allow their bound machines at start ([`crate::Command::Allow`]).
    pub allowed: Vec<(PortId, IpPrefix)>,
}

impl Default for ControlConfig {
    /// 256 punts, 50 KB, and no bindings.
    fn default() -> Self {
        Self { punts: 256, bindings: Vec::new(), allowed: Vec::new() }
    }
}

/// What is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortRole {
    /// Members of one network: a container, a VM, or a cable of a physical switch.
    Access {
        /// The network.
        vnet: VnetId,
    },
    /// The underlay: frames leave and arrive in VXLAN.
    Underlay {
        /// The address of this host's VTEP.
        local: Ipv4Addr,
        /// The MAC of the underlay interface.
        mac: Mac,
    },
    /// Another switch of the host, which hands frames over for the ports of this one. Nothing
    /// leaves by it.
    Crossing,
}

/// What happens when an input is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFull {
    /// The driver does not read on; frames wait where they are (a guest's own ring).
    Wait,
    /// The driver reads on and the frame is dropped (a NIC without flow control).
    Drop,
    /// The sender is paused before it happens (802.1Q clause 36); frames of other priorities are
    /// dropped when the input is full.
    Pause(PauseConfig),
}

/// When to pause a sender. Thresholds are bytes that wait at this input in one priority, as a part
/// of its limit; the same part of the limit in frames counts as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PauseConfig {
    /// The priorities that are paused.
    pub priorities: PriorityMask,
    /// XOFF is sent at this many bytes.
    pub xoff: ByteCount,
    /// XON is sent at this many bytes or fewer.
    pub xon: ByteCount,
    /// The rate of the link, which gives the pause quantum its length (512 bit times).
    pub link: BitRate,
    /// The source address of the pause frames: the MAC of this end of the link.
    pub source: Mac,
}

/// A token bucket in bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The rate.
    pub rate: BitRate,
    /// How far back unused time may still be used: the burst is `rate * catch_up`.
    pub catch_up: Nanos,
    /// Bytes that a frame costs beside its own (preamble, check sequence, inter-frame gap: 24).
    pub overhead: u16,
}

/// What a frame's priority is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The port's default, whatever the frame says.
    Nothing,
    /// The PCP of an 802.1Q tag, else the DSCP, else the default.
    PcpThenDscp,
}

/// One network.
#[derive(Clone, Debug)]
pub struct VnetConfig {
    /// Its number on the wire; `None` for a network without tunnels (a physical switch).
    pub vni: Option<Vni>,
    /// The layer-3 MTU of its members.
    pub mtu: u16,
    /// The tunnels to the other hosts that have it: broadcast goes to each once, and only from
    /// them is it accepted.
    pub tunnels: Vec<TunnelId>,
}

/// A remote VTEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelConfig {
    /// The underlay port that leads to it.
    pub port: PortId,
    /// Its address.
    pub remote: Ipv4Addr,
    /// The MAC of the next hop, if it is known at start.
    pub next_hop: Option<Mac>,
    /// True if it is no member of the fabric, like the VTEP of a kernel: while control is attached
    /// it is shown who is behind it.
    pub foreign: bool,
}

/// How a priority is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Its place among the other priorities of a port.
    pub service: Service,
    /// True if a full output holds its frames (true) or drops them.
    pub lossless: bool,
}

/// The order among the priorities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Before every weighted priority, and before lower strict ones.
    Strict,
    /// A share of what the strict ones leave, in proportion to the weight (1 to 255).
    Weighted(u8),
}

/// The host pool. It is parted by direction, so that what came from the underlay never waits for
/// memory held by what goes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// What frames that came from the underlay may take.
    pub from_underlay: Limit,
    /// What frames that came from local ports may take.
    pub from_local: Limit,
    /// How much of its input one (source, lane) pair may fill before it spills, in 1/256.
    pub pair_share: u16,
    /// Frames that wait for replication or are being replicated.
    pub replicated_frames: u32,
    /// Copies that one output lane may hold.
    pub copies_per_lane: u32,
}

/// The chip: the fast tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChipConfig {
    /// Entries of the MAC table.
    pub macs: u32,
    /// How many of them may lead through tunnels (encap flows), at least one.
    pub flows: u32,
}

/// Frames whose destination is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvedConfig {
    /// How many destinations may be unresolved at a time.
    pub destinations: u16,
    /// How many frames of lossy priorities may wait for unresolved destinations, all together.
    pub frames: u32,
    /// After this time without an answer the frames end under `unresolved`.
    pub timeout: Nanos,
    /// The shortest time between two punts for one destination.
    pub punt_gap: Nanos,
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// More ports, queues, networks or tunnels than identifiers can count.
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many may be configured.
        limit: usize,
    },
    /// A port, network or tunnel is named that the list does not hold.
    NoSuch {
        /// The kind of thing.
        what: &'static str,
        /// The number that was named.
        index: usize,
        /// Where it was named.
        by: &'static str,
    },
    /// A limit of zero frames, or fewer bytes than one full frame.
    LimitTooSmall {
        /// Whose limit.
        what: &'static str,
        /// The port, or `None` for the pool.
        port: Option<PortId>,
        /// The least number of bytes.
        bytes_min: ByteCount,
    },
    /// PFC thresholds that cannot work: XON must be below XOFF and XOFF below the limit, and the
    /// port must have one queue.
    Thresholds {
        /// The port.
        port: PortId,
    },
    /// Two networks with one VNI.
    VniTwice {
        /// The VNI that two networks have.
        vni: Vni,
    },
    /// Two tunnels to one address.
    TunnelTwice {
        /// The address.
        remote: Ipv4Addr,
    },
    /// A tunnel over a port that is no underlay.
    NotUnderlay {
        /// The tunnel.
        tunnel: TunnelId,
    },
    /// The MTU of a network does not fit into the underlay's with 50 bytes of headers.
    MtuTooLarge {
        /// The network.
        vnet: VnetId,
        /// The largest MTU it may have.
        mtu_max: u16,
    },
    /// A port that is elsewhere has a rate or flow control, or nothing may be lent to it.
    Elsewhere {
        /// The port.
        port: PortId,
    },
    /// A port that cannot change hands ([`PortConfig::is_movable`]), or to which nothing may be
    /// lent, is to be movable.
    Movable {
        /// The port.
        port: PortId,
    },
    /// A spare bay for an underlay port: only access ports come while the switch runs.
    SpareUnderlay,
    /// A queue whose frames may have no priority.
    NoPriority {
        /// The port.
        port: PortId,
        /// The queue.
        queue: usize,
    },
    /// A weight of zero would never be served.
    ZeroWeight {
        /// The priority.
        priority: Priority,
    },
    /// A rate of zero, or a burst smaller than one frame.
    RateTooSmall {
        /// The port.
        port: PortId,
    },
}
