//! Every metric: its name, kind, unit, labels and meaning. `docs/metrics.md` has the same list; a
//! test compares them.

/// Kinds of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, until its process or port begins anew; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Always 1; its labels say something. Its name ends in `_info`.
    Info,
}

/// Units that a name has as its last word. Frames and datagrams are counts, and have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Bytes,
    Seconds,
}

/// The way in which several rows with the same labels become one series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    /// Their sum.
    Sum,
    /// The smallest one: of several states the worst.
    Min,
    /// The largest one.
    Max,
}

macro_rules! metrics {
    ($(#[doc = $help:literal] $metric:ident = $name:literal, $kind:ident, $unit:ident, $fold:ident,
        [$($label:literal),*];)*) => {
        /// A metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum Metric {
            $(#[doc = $help] $metric,)*
        }

        impl Metric {
            /// All metrics, in the order of the text.
            #[cfg(test)]
            pub(super) const ALL: &'static [Self] = &[$(Self::$metric),*];

            /// Returns the name without prefix, unit and suffix.
            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$metric => $name),* }
            }

            pub(super) const fn kind(self) -> Kind {
                match self { $(Self::$metric => Kind::$kind),* }
            }

            pub(super) const fn unit(self) -> Unit {
                match self { $(Self::$metric => Unit::$unit),* }
            }

            pub(super) const fn fold(self) -> Fold {
                match self { $(Self::$metric => Fold::$fold),* }
            }

            /// Returns the names of the labels.
            pub(super) const fn labels(self) -> &'static [&'static str] {
                match self { $(Self::$metric => &[$($label),*]),* }
            }

            /// Returns the meaning, a sentence without its full stop.
            pub(super) fn help(self) -> &'static str {
                let help = match self { $(Self::$metric => $help),* };
                help.trim().trim_end_matches('.')
            }
        }
    };
}

metrics! {
    /// Version of the program.
    Build = "build", Info, None, Max, ["version"];
    /// Name and flow-control policy of the host.
    Host = "host", Info, None, Max, ["host", "policy"];
    /// 1 if the data process answers, else 0.
    DataUp = "data_up", Gauge, None, Min, [];
    /// Time since the data process began.
    DataUptime = "data_uptime", Gauge, Seconds, Max, [];
    /// Time that it took to collect these metrics.
    ScrapeDuration = "scrape_duration", Gauge, Seconds, Max, [];
    /// Traces that the collector of `api.traces` took.
    TracesSent = "traces_sent", Counter, None, Sum, [];
    /// Traces that were dropped: the collector was away, refused or was too slow.
    TracesDropped = "traces_dropped", Counter, None, Sum, [];
    /// Names without series of their own; their values are in those of the name (others).
    AggregatedNames = "aggregated_names", Gauge, None, Max, ["of"];
    /// 1 if the audit closes, in frames and in bytes, else 0.
    AuditClosed = "audit_closed", Gauge, None, Min, [];

    /// A port, and whether it loses nothing.
    Port = "port", Info, None, Max, ["port", "kind", "vnet", "lossless"];
    /// Frames that entered the switch at the port.
    PortRxFrames = "port_rx_frames", Counter, None, Sum, ["port", "priority"];
    /// Bytes of the frames that entered the switch at the port.
    PortRxBytes = "port_rx", Counter, Bytes, Sum, ["port", "priority"];
    /// Frames that left the switch at the port.
    PortTxFrames = "port_tx_frames", Counter, None, Sum, ["port"];
    /// Bytes of the frames that left the switch at the port.
    PortTxBytes = "port_tx", Counter, Bytes, Sum, ["port"];
    /// Frames from the port that are in the switch now.
    PortHeldFrames = "port_held_frames", Gauge, None, Sum, ["port", "priority"];
    /// Bytes of the frames from the port that are in the switch now.
    PortHeldBytes = "port_held", Gauge, Bytes, Sum, ["port", "priority"];
    /// Frames that wait for the port now.
    PortQueuedFrames = "port_queued_frames", Gauge, None, Sum, ["port"];
    /// Frames that wait for a destination now; absent: none.
    QueueFrames = "queue_frames", Gauge, None, Sum, ["to", "priority"];
    /// Bytes of the frames that wait for a destination now; absent: none.
    QueueBytes = "queue", Gauge, Bytes, Sum, ["to", "priority"];

    /// Frames from the port that were dropped; absent: none.
    PortDroppedFrames = "port_dropped_frames", Counter, None, Sum,
        ["port", "priority", "reason", "class"];
    /// Bytes of the frames from the port that were dropped; absent: none.
    PortDroppedBytes = "port_dropped", Counter, Bytes, Sum, ["port", "priority", "reason", "class"];
    /// Frames of lossless priorities that were dropped for congestion or a stuck receiver.
    LosslessDroppedFrames = "lossless_dropped_frames", Counter, None, Sum, ["port", "reason"];
    /// Frames of the port that the kernel or a device lost.
    OutsideLostFrames = "outside_lost_frames", Counter, None, Sum, ["port", "counter"];
    /// Frames that the kernel lost, of any program of the machine.
    MachineLostFrames = "machine_lost_frames", Counter, None, Max, ["counter"];

    /// XOFF sent by the port, with those that refresh one.
    PortXoffSent = "port_xoff_sent", Counter, None, Sum, ["port", "priority"];
    /// XON sent by the port.
    PortXonSent = "port_xon_sent", Counter, None, Sum, ["port", "priority"];
    /// Pauses received by the port.
    PortPausesReceived = "port_pauses_received", Counter, None, Sum, ["port", "priority"];
    /// Time for which the output of the port was paused.
    PortPausedTime = "port_paused", Counter, Seconds, Sum, ["port", "priority"];
    /// 1 if the output of the port is paused now.
    PortIsPaused = "port_is_paused", Gauge, None, Max, ["port", "priority"];
    /// 1 if the port pauses its sender now.
    PortIsPausing = "port_is_pausing", Gauge, None, Max, ["port", "priority"];
    /// Priorities whose receiver is isolated at the port.
    PortIsolatedPriorities = "port_isolated_priorities", Gauge, None, Sum, ["port"];
    /// Priorities whose receiver is beyond its hold contract at the port.
    PortStuckPriorities = "port_stuck_priorities", Gauge, None, Sum, ["port"];
    /// Frames for isolated receivers of the port that are in the reserve now.
    PortReserveFrames = "port_reserve_frames", Gauge, None, Sum, ["port"];

    /// UDP sockets behind the port that are held now, as they have no room.
    PortHeldSockets = "port_held_sockets", Gauge, None, Sum, ["port"];
    /// UDP sockets behind the port that are beyond their hold.
    PortStuckSockets = "port_stuck_sockets", Gauge, None, Sum, ["port"];
    /// Number of times that a UDP socket behind the port began to be held.
    PortSocketHolds = "port_socket_holds", Counter, None, Sum, ["port"];
    /// Datagrams that waited for a UDP socket behind the port.
    PortSocketWaited = "port_socket_waited_datagrams", Counter, None, Sum, ["port"];
    /// Datagrams that ended because their UDP socket was beyond its hold.
    PortSocketStuck = "port_socket_stuck_datagrams", Counter, None, Sum, ["port"];

    /// Frames sent to the peer.
    PeerTxFrames = "peer_tx_frames", Counter, None, Sum, ["peer"];
    /// Frames received from the peer.
    PeerRxFrames = "peer_rx_frames", Counter, None, Sum, ["peer"];
    /// Frames that wait for the peer now.
    PeerQueuedFrames = "peer_queued_frames", Gauge, None, Sum, ["peer"];
    /// 1 if the next hop to the peer is known, else 0.
    PeerNextHop = "peer_next_hop_resolved", Gauge, None, Min, ["peer"];
    /// Layer-3 MTU of the path to the peer, if it was learned and is below the device's.
    PeerPathMtu = "peer_path_mtu", Gauge, Bytes, Min, ["peer"];

    /// Time for which the data worker moved frames.
    WorkerBusy = "worker_busy", Counter, Seconds, Sum, ["worker"];
    /// Time for which the data worker looked for frames and found none.
    WorkerLooking = "worker_looking", Counter, Seconds, Sum, ["worker"];
    /// Time for which the data worker slept.
    WorkerAsleep = "worker_asleep", Counter, Seconds, Sum, ["worker"];
    /// Turns of the data worker.
    WorkerTurns = "worker_turns", Counter, None, Sum, ["worker"];
    /// CPU to which the data worker is pinned.
    Worker = "worker", Info, None, Max, ["worker", "cpu"];

    /// 1 if the thread of the fabric answers, else 0; absent: the host is in no fabric.
    FabricUp = "fabric_up", Gauge, None, Min, [];
    /// Members of the fabric that this host knows, itself included.
    FabricMembers = "fabric_members", Gauge, None, Max, [];
    /// 1 if this host knows the other member to be alive, else 0.
    MemberAlive = "member_alive", Gauge, None, Min, ["member"];
    /// 1 if the other member is connected, else 0.
    MemberConnected = "member_connected", Gauge, None, Min, ["member"];
    /// Endpoints that the other member claims.
    MemberVports = "member_vports", Gauge, None, Sum, ["member"];
    /// Changes of this host's endpoints that the other member has not acknowledged.
    MemberLag = "member_lag_records", Gauge, None, Max, ["member"];
    /// Records of endpoints sent to the other member.
    MemberRecordsSent = "member_records_sent", Counter, None, Sum, ["member"];
    /// Records of endpoints received from the other member.
    MemberRecordsReceived = "member_records_received", Counter, None, Sum, ["member"];

    /// Revision of the fabric's configuration that this host has applied.
    ConfigRevision = "config_revision", Gauge, None, Max, [];
    /// 1 if the configuration can be changed, else 0.
    ConfigWritable = "config_writable", Gauge, None, Min, [];
    /// 1 if the newest revision is in force at this host, else 0.
    ConfigInForce = "config_in_force", Gauge, None, Min, [];
    /// Transactions that the member lacks; absent: it has not said so.
    ConfigLag = "config_lag_transactions", Gauge, None, Max, ["member"];

    /// 1 if the session with the BGP neighbor is established, else 0.
    EvpnNeighborUp = "evpn_neighbor_up", Gauge, None, Min, ["neighbor"];
    /// Routes of the neighbor that are in use.
    EvpnNeighborRoutes = "evpn_neighbor_routes", Gauge, None, Sum, ["neighbor"];
    /// Routes of the neighbor that are not in use.
    EvpnRoutesKeptOut = "evpn_neighbor_routes_kept_out", Counter, None, Sum, ["neighbor"];
    /// Own routes that the neighbor does not know yet.
    EvpnRoutesUnsent = "evpn_neighbor_routes_unsent", Gauge, None, Sum, ["neighbor"];
    /// Own routes.
    EvpnRoutesOwn = "evpn_own_routes", Gauge, None, Sum, [];

    /// Time until the end of the certificate, in whole days; negative: it has expired.
    CertificateRemaining = "certificate_remaining", Gauge, Seconds, Min, ["kind", "member"];
    /// 1 if the present files of certificates were refused, else 0.
    CertificatesRefused = "certificates_refused", Gauge, None, Max, [];
}

impl Metric {
    /// Returns the name as the text has it.
    #[cfg(test)]
    pub(super) fn full_name(self) -> String {
        let unit = match self.unit() {
            Unit::None => "",
            Unit::Bytes => "_bytes",
            Unit::Seconds => "_seconds",
        };
        let suffix = match self.kind() {
            Kind::Counter => "_total",
            Kind::Gauge => "",
            Kind::Info => "_info",
        };
        format!("sluice_{}{unit}{suffix}", self.name())
    }
}
