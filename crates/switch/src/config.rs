//! Configuration of a switch. It gives the size of all memory, which [`crate::Switch::new`]
//! allocates.
//!
//! The types give the limit of each buffer and its behaviour when it is full. The four flow-control
//! policies (`LL`, `LZ`, `ZL`, `ZZ`) are settings of these buffers; nothing else in the switch
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
    /// The networks; a [`VnetId`] is a position in this list, if there are no spare places.
    pub vnets: Vec<VnetConfig>,
    /// The tunnels; a [`TunnelId`] is a position in this list, if there are no spare places.
    pub tunnels: Vec<TunnelConfig>,
    /// Places for networks and tunnels that come while the switch runs.
    pub spare_places: SparePlaces,
    /// Service of each priority, and its treatment at a full output (hold or drop).
    pub classes: [ClassConfig; Priority::COUNT],
    /// Priority of a DSCP on a port that trusts it.
    pub dscp_to_priority: [Priority; 64],
    /// DSCP in the outer header, by priority.
    pub priority_to_dscp: [u8; Priority::COUNT],
    /// The host pool.
    pub pool: PoolConfig,
    /// The forwarding table (FDB).
    pub fdb: FdbConfig,
    /// Frames whose destination is not known yet.
    pub unresolved: UnresolvedConfig,
    /// Limits and bindings for a control plane.
    pub control: ControlConfig,
    /// Spare ports for ports that attach while the switch runs; `None`: a new port can only take
    /// the place of one that was detached.
    pub spare: Option<SpareConfig>,
    /// Ports shared with other switches of the same host.
    pub handoff: HandoffConfig,
    /// Isolation of receivers; `None`: receivers are never isolated and hold their senders up
    /// without limit.
    pub isolation: Option<IsolationConfig>,
}

/// Isolation of receivers that do not take their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IsolationConfig {
    /// Time for which a receiver may hold more than its share of a shared resource.
    pub patience: Nanos,
    /// Memory for frames of isolated receivers that came in at a shared input. One receiver may
    /// hold as much of it as is still free.
    pub reserve: Limit,
    /// Number of destinations behind tunnels that may be held here at a time
    /// ([`crate::Command::Hold`]).
    pub holds: u16,
    /// Broadcasts per second that a port may send, and a network through its tunnels; 0: no limit.
    pub broadcasts_per_second: u32,
}

impl IsolationConfig {
    /// Returns the settings for a switch whose senders can be informed within a few milliseconds.
    #[must_use]
    pub const fn new(reserve: Limit) -> Self {
        Self { patience: Nanos::from_millis(10), reserve, holds: 64, broadcasts_per_second: 0 }
    }
}

/// The hold contract of one priority of a port: the longest time for which senders are held up by a
/// receiver of which no frame leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// For ever.
    #[default]
    Forever,
    /// For so long. Then frames that wait for the receiver, and new ones, end under
    /// [`ReceiverStuck`](sluice_base::DropReason::ReceiverStuck) until a frame leaves.
    For(Nanos),
}

impl Hold {
    /// Returns true if the contract is over for a receiver of which no frame left for `waited`.
    pub(crate) fn is_over(self, waited: Nanos) -> bool {
        match self {
            Self::Forever => false,
            Self::For(most) => waited > most,
        }
    }
}

/// Ports shared with other switches of the same host, each with a thread of its own. All switches
/// have the same ports, networks and tunnels under the same numbers, and one of them reads and
/// writes each port. Frames for the ports of other switches are handed off
/// ([`crate::Switch::hand_over`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandoffConfig {
    /// Ports that other switches read and write. Here they have no rate and no flow control.
    pub elsewhere: Vec<PortId>,
    /// Ports that may migrate to another switch ([`crate::Switch::export_port`]), wherever they
    /// start: every switch has memory for them.
    pub movable: Vec<PortId>,
    /// Upper bound of the frames of one priority that are on their way to one of these ports, or
    /// wait in it.
    pub refs_max: u16,
}

impl HandoffConfig {
    /// Returns the number of remote references that may exist at the same time.
    #[must_use]
    pub fn remote_refs_max(&self) -> u32 {
        let beside = self.movable.iter().filter(|port| !self.elsewhere.contains(port));
        remote_refs_of(self.elsewhere.len() + beside.count(), self.refs_max)
    }

    pub(crate) fn is_movable(&self, port: usize) -> bool {
        self.movable.iter().any(|p| p.index() == port)
    }

    pub(crate) fn is_elsewhere(&self, port: usize) -> bool {
        self.elsewhere.iter().any(|p| p.index() == port)
    }
}

/// Numbers of networks and tunnels that are free at start ([`crate::Switch::add_vnet`],
/// [`crate::Switch::add_tunnel`]). The networks and tunnels of a configuration have the other
/// numbers, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SparePlaces {
    /// Free numbers of networks, in ascending order, each once.
    pub vnets: Vec<VnetId>,
    /// Free numbers of tunnels, in ascending order, each once.
    pub tunnels: Vec<TunnelId>,
}

impl SwitchConfig {
    /// Returns the number of places for networks.
    pub(crate) const fn vnet_places(&self) -> usize {
        self.vnets.len() + self.spare_places.vnets.len()
    }

    /// Returns the number of places for tunnels.
    pub(crate) const fn tunnel_places(&self) -> usize {
        self.tunnels.len() + self.spare_places.tunnels.len()
    }

    /// Returns the networks with their numbers.
    pub(crate) fn numbered_vnets(&self) -> impl Iterator<Item = (usize, &VnetConfig)> + Clone {
        let is_spare = |at: &usize| self.spare_places.vnets.binary_search(&VnetId::from_index(*at));
        let numbers = (0..self.vnet_places()).filter(move |at| is_spare(at).is_err());
        numbers.zip(&self.vnets)
    }

    /// Returns the tunnels with their numbers.
    pub(crate) fn numbered_tunnels(&self) -> impl Iterator<Item = (usize, &TunnelConfig)> + Clone {
        let is_spare =
            |at: &usize| self.spare_places.tunnels.binary_search(&TunnelId::from_index(*at));
        let numbers = (0..self.tunnel_places()).filter(move |at| is_spare(at).is_err());
        numbers.zip(&self.tunnels)
    }

    /// Returns the tunnel of a number.
    pub(crate) fn tunnel_at(&self, tunnel: TunnelId) -> Option<&TunnelConfig> {
        self.numbered_tunnels().find(|(at, _)| *at == tunnel.index()).map(|(_, tunnel)| tunnel)
    }

    /// Returns the configuration with a port in every spare port, which sizes the memory.
    pub(crate) fn with_spare(&self) -> Cow<'_, Self> {
        let Some(spare) = &self.spare else { return Cow::Borrowed(self) };
        let mut whole = self.clone();
        whole.ports.extend(iter::repeat_n(spare.like.clone(), spare.ports.into()));
        Cow::Owned(whole)
    }
}

/// Returns the number of remote references that so many ports may have.
pub(crate) fn remote_refs_of(ports: usize, refs_max: u16) -> u32 {
    let classes = u32::try_from(ports * Priority::COUNT).unwrap_or(u32::MAX);
    classes.saturating_mul(refs_max.into())
}

/// Spare ports for ports that attach while the switch runs ([`crate::Switch::attach`]).
#[derive(Clone, Debug)]
pub struct SpareConfig {
    /// Number of spare ports. The numbers of their ports follow those of [`SwitchConfig::ports`].
    pub ports: u16,
    /// An access port that sizes the memory of a spare port: an attached port has at most its
    /// queues and its limits. All other settings are those of the attached port.
    pub like: PortConfig,
}

/// Limit of one input or output. Both numbers bind.
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
    /// Role of the port.
    pub role: PortRole,
    /// Number of queues that its driver reads (each is an input, and a source of its own).
    pub queues: u8,
    /// Priorities that frames of each queue may have. A frame of another priority gets the lowest
    /// one of its queue, so that a priority that is held back does not block others. Queues beyond
    /// the last place, and those of an underlay, may have all.
    pub queue_priorities: [PriorityMask; Priority::COUNT],
    /// Limit of each of its inputs.
    pub input: Limit,
    /// Behaviour of a full input.
    pub input_full: InputFull,
    /// Limit of each of its queue groups, beyond which a lossy priority drops.
    pub output: Limit,
    /// The rate of the port (a link, the service rate of a vNIC); `None`: as fast as the driver
    /// takes.
    pub rate: Option<RateLimit>,
    /// The rate of each of its queue groups.
    pub group_rate: Option<RateLimit>,
    /// The largest frame that may leave it: the layer-3 MTU, without the Ethernet header and tag.
    pub mtu: u16,
    /// True if received PFC and PAUSE frames stop the output.
    pub rx_pause: bool,
    /// Fields that give the priority of a received frame.
    pub trust: Trust,
    /// Priority of a frame that carries none.
    pub default_priority: Priority,
    /// Sources of which an access port takes frames, and which of them are punted.
    pub sources: Sources,
    /// Treatment of 802.1Q tags by its driver.
    pub tags: Tags,
    /// Hold contract of the frames that leave by it, by priority. It binds if there is an
    /// [`IsolationConfig`].
    pub hold: [Hold; Priority::COUNT],
    /// True if a device forwards between ports that have this. What comes from one of them for
    /// another one has been forwarded or flooded by it, and the switch does not do so again.
    pub is_offloaded: bool,
}

impl PortConfig {
    /// Returns true if the port may migrate between switches of one host: an access port without
    /// flow control. Its own rate goes along.
    #[must_use]
    pub fn is_movable(&self) -> bool {
        let waits = !matches!(self.input_full, InputFull::Pause(_)) && !self.rx_pause;
        waits && self.group_rate.is_none() && matches!(self.role, PortRole::Access { .. })
    }
}

/// Treatment of 802.1Q tags by the driver of an access port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Tags stay in their frames, and only priority tags may come in.
    #[default]
    Kept,
    /// The driver takes priority tags off and reports them ([`sluice_base::VlanTag`]).
    Access,
    /// As `Access`, and the driver takes the tag of the port's VLAN off as well and puts it on
    /// frames that leave. A tag behind that one is the tenant's own and stays. If a network has
    /// such a port, peers may send frames with tags of their own to the network (RFC 7348 section
    /// 6.1: unless configured otherwise, they are discarded).
    Trunk,
}

/// Sources of which an access port takes frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sources {
    /// Any source, without a check.
    #[default]
    Any,
    /// Any source. While control is attached, frames of a source that the forwarding table does not
    /// have at this port are punted.
    Learn,
    /// As `Learn`, and only machines that are bound to the port.
    Bound,
}

/// A machine that is bound to a port of [`Sources::Bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The port.
    pub port: PortId,
    /// The machine.
    pub mac: Mac,
    /// Its IP addresses; without any, it may have all, or those that its port allows.
    pub ips: BoundIps,
}

/// Limits and bindings for a control plane.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// Number of punts that may wait to be read; a port may have a quarter of them. As many decap
    /// flows may wait beside them. 0 for a switch that no control plane attaches to.
    pub punts: u16,
    /// The machines that are bound at start.
    pub bindings: Vec<Binding>,
    /// Prefixes that ports allow their bound machines at start ([`crate::Switch::allow`]).
    pub allowed: Vec<(PortId, IpPrefix)>,
}

impl Default for ControlConfig {
    /// Returns 256 punts, 50 KB, and no bindings.
    fn default() -> Self {
        Self { punts: 256, bindings: Vec::new(), allowed: Vec::new() }
    }
}

/// Role of a port.
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
    Handoff,
}

/// Behaviour of a full input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFull {
    /// The driver stops reading; frames wait where they are (a guest's own ring).
    Wait,
    /// The driver reads on and the frame is dropped (a NIC without flow control).
    Drop,
    /// The sender is paused before the input is full (802.1Q clause 36); frames of priorities that
    /// are not paused are dropped at a full input.
    Pause(PauseConfig),
}

/// Pause of a sender. Thresholds are bytes that wait at this input in one priority, as a part of
/// its limit; the same part of the limit in frames counts as much.
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
    /// Upper bound of unused time that counts: the burst is `rate * catch_up`.
    pub catch_up: Nanos,
    /// Bytes that a frame costs beside its own (preamble, check sequence, inter-frame gap: 24).
    pub overhead: u16,
}

/// Fields that give a frame's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The port's default, whatever the frame carries.
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
    /// Tunnels to the other hosts of the network. A broadcast goes to each once, and frames are
    /// accepted from these only.
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
    /// True if it is no member of the fabric, like the VTEP of a kernel. While control is attached,
    /// frames of new sources behind it are punted.
    pub foreign: bool,
}

/// Service of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassConfig {
    /// Its place among the other priorities of a port.
    pub service: Service,
    /// True if a full output holds its frames, false if it drops them.
    pub lossless: bool,
}

/// The order among the priorities of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Before every weighted priority, and before lower strict ones.
    Strict,
    /// A share of the rate that strict priorities leave, in proportion to the weight (1 to 255).
    Weighted(u8),
}

/// The host pool. It is partitioned by direction, so that a frame from the underlay never waits for
/// memory held by frames to the underlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Limit for frames from the underlay.
    pub from_underlay: Limit,
    /// Limit for frames from local ports.
    pub from_local: Limit,
    /// Share of its input that one (source, queue group) pair may fill before its frames are copied
    /// to the shared buffer, in 1/256.
    pub pair_share: u16,
    /// Frames that wait for replication or are being replicated.
    pub replicated_frames: u32,
    /// Copies that one output queue group may hold.
    pub copies_per_group: u32,
}

/// Size of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbConfig {
    /// Entries of the MAC table.
    pub macs: u32,
    /// Entries that may lead through tunnels (encap flows), at least one.
    pub flows: u32,
}

/// Frames whose destination is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnresolvedConfig {
    /// Number of destinations that may be unresolved at a time.
    pub destinations: u16,
    /// Number of frames of lossy priorities that may wait for all unresolved destinations together.
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
        /// Kind of the things that are too many.
        what: &'static str,
        /// Number that may be configured.
        limit: usize,
    },
    /// A reference to a port, network or tunnel that the list does not hold.
    NoSuch {
        /// The kind of thing.
        what: &'static str,
        /// Number in the reference.
        index: usize,
        /// Setting that refers to it.
        by: &'static str,
    },
    /// A limit of zero frames, or fewer bytes than one full frame.
    LimitTooSmall {
        /// Owner of the limit.
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
    /// Numbers of spare places that are not in ascending order, or leave a gap behind the networks
    /// or tunnels.
    SparePlaces,
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
    /// A port of another switch has a rate or flow control, or may not have remote references.
    Elsewhere {
        /// The port.
        port: PortId,
    },
    /// A movable port cannot migrate ([`PortConfig::is_movable`]), or may not have remote
    /// references.
    Movable {
        /// The port.
        port: PortId,
    },
    /// A spare port for an underlay port: only access ports attach while the switch runs.
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
