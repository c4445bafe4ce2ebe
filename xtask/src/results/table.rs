//! Every measure that a result file may hold: its unit and the settings without which its values
//! mean nothing. The first part is the design's table of results, in the same order. The second
//! part holds measures that a program adds so that its report can be drawn from the file alone.

/// One line of the table.
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// Keys that the row's context must have; it may have more.
    pub(super) context: &'static [&'static str],
    /// Keys that are enough in their place: two experiments have the measure.
    pub(super) or: Option<&'static [&'static str]>,
}

const SWITCH: &[&str] = &["ports", "macs", "frame_bytes", "policy"];
const LAB_CORES: &[&str] = &["variant", "policy", "size_packets", "own", "stolen", "cores"];
const PARITY: &[&str] = &["size_packets", "policy", "lab", "sim"];
const PA: &[&str] = &[
    "variant",
    "policy",
    "tcp",
    "profile",
    "rto_min_ms",
    "background",
    "size_packets",
    "queries",
    "mean",
    "p50",
    "p95",
    "drops_congestion",
    "drops",
    "audit_closed",
];
const PA_GAIN: &[&str] = &[
    "variant",
    "policy",
    "tcp",
    "profile",
    "rto_min_ms",
    "background",
    "size_packets",
    "queries",
    "mean",
    "p50",
    "p95",
    "drops_congestion",
    "drops",
    "audit_closed",
    "ci95_low",
    "ci95_high",
];
const PATH: &[&str] = &["frame_bytes", "direction", "touch", "lost"];
const LOAD: &[&str] = &["frame_bytes", "lost", "offered"];
const FABRIC_TIME: &[&str] = &["percentile", "hosts", "entries"];
const FABRIC_RATE: &[&str] = &["peers", "entries"];
const TABLE: &[&str] = &["entries", "hosts", "vnets"];
const CELL: &[&str] = &["variant", "policy", "size_packets"];
const CELL_COUNTER: &[&str] = &["variant", "policy", "size_packets", "counter"];
const STEER: &[&str] = &["frame_bytes", "offered", "work_ns", "load_average"];
const STEER_CORE: &[&str] = &["frame_bytes", "offered", "work_ns", "load_average", "core"];
const VS_EXTEND_VARIED: &[&str] = &["parameter", "value", "seeds"];
const CHURN: &[&str] = &["chip", "flows", "working_set", "drawn", "offered"];
const CHURN_OF: &[&str] = &["chip", "flows", "working_set", "drawn", "offered", "of"];
const CHURN_PROCESS: &[&str] = &["chip", "flows", "working_set", "drawn", "offered", "process"];
const OVERLAY: &[&str] = &["write_bytes", "overlay"];
const VS_EXTEND: &[&str] = &["frame_bytes", "mode", "vms", "vm", "core", "published"];

const fn measure(
    name: &'static str,
    unit: &'static str,
    context: &'static [&'static str],
) -> Measure {
    Measure { name, unit, context, or: None }
}

impl Measure {
    const fn or(mut self, context: &'static [&'static str]) -> Measure {
        self.or = Some(context);
        self
    }
}

const MEASURES: &[Measure] = &[
    // switch.json
    measure("switch.forward", "frames/s", SWITCH),
    measure("switch.instructions", "instructions/frame", SWITCH),
    // result.json of a lab run
    measure("pa.fct", "ns", PA),
    measure("pa.gain", "ratio", PA_GAIN),
    measure("loss.at", "frames", &["switch", "offered_mbps", "place"]),
    // dataplane.json
    measure("vm_to_vm", "frames/s", PATH),
    measure("vxlan_encap", "frames/s", PATH),
    measure("vxlan_decap", "frames/s", PATH),
    measure("overload", "frames/s", LOAD),
    measure("asleep", "frames/s", LOAD),
    measure("victim", "frames/s", LOAD),
    measure("busy_time", "cycles/frame", &["frame_bytes"]),
    measure("latency", "ns", &["frame_bytes", "offered", "percentile"]),
    measure("idle_cpu", "cores", &["ports"]),
    measure("tcp_stream", "bit/s", &["port_kind", "mtu", "offload"]),
    measure("ping", "ns", &["hosts", "percentile", "load"]),
    // fabric.json
    measure("mac_visible", "s", FABRIC_TIME),
    measure("mac_moved", "s", FABRIC_TIME),
    measure("commit", "s", FABRIC_TIME),
    measure("resync", "s", FABRIC_TIME),
    measure("hung_detected", "s", FABRIC_TIME),
    measure("bulk_vports", "1/s", FABRIC_RATE),
    measure("learn", "1/s", FABRIC_RATE),
    measure("punts", "1/s", FABRIC_RATE),
    measure("chip_install", "1/s", FABRIC_RATE),
    // chip.json
    measure("chip_put", "1/s", &["chip", "of", "macs", "flows"]),
    measure("chip_remove", "1/s", &["chip", "of", "macs", "flows"]),
    measure("chip_hits", "s", &["chip", "macs", "flows"]),
    measure("chip_mend", "s", &["chip", "macs", "flows"]),
    // result.json of the experiment netvisor-overlay
    measure("server_cpu", "cores", OVERLAY),
    // sim.json
    measure("hops_rate", "1/s", &["workload", "pfc", "overlay", "hosts"]),
    // result.json of the experiment vs-extend
    measure("throughput", "bit/s", VS_EXTEND).or(OVERLAY),
    measure("loss", "ratio", VS_EXTEND),
    measure("softirq", "count", VS_EXTEND),
];

/// Measures that are not in the design's table.
const BESIDE: &[Measure] = &[
    // fabric.json
    measure("table.insert", "1/s", &["entries", "hosts", "vnets", "of"]),
    measure("table.find", "1/s", &["entries", "hosts", "vnets", "by"]),
    measure("table.bytes", "bytes", TABLE),
    measure("table.stop", "ns", TABLE),
    measure("learn.resent", "frames", FABRIC_RATE),
    measure("learn.fdb", "entries", FABRIC_RATE),
    measure("join", "s", FABRIC_TIME),
    measure("resync.withdrawn", "vports", FABRIC_RATE),
    measure("hung_detected.false_alarms", "count", &["hosts", "load_s", "sent"]),
    // churn.json
    measure("churn.missed", "ratio", CHURN),
    measure("churn.lost", "ratio", CHURN),
    measure("churn.rate", "1/s", CHURN_OF),
    measure("churn.load", "cores", CHURN_PROCESS),
    // sim.json
    measure("hops_rate.ratio", "ratio", &["workload", "pfc", "overlay", "hosts", "over", "bound"]),
    measure("hops_rate.memory", "bytes", &["workload", "pfc", "overlay", "hosts", "bound"]),
    // switch.json
    measure(
        "switch.lossless_cost",
        "ratio",
        &["ports", "macs", "frame_bytes", "policy", "ci95_low", "ci95_high"],
    ),
    // steer.json
    measure("steer.throughput", "bit/s", STEER),
    measure("steer.sent", "1/s", STEER),
    measure("steer.loss", "ratio", STEER),
    measure("steer.late", "ratio", STEER),
    measure("steer.guest_rest", "1/s", STEER),
    measure("steer.others", "cores", STEER),
    measure("steer.user", "ratio", STEER_CORE),
    measure("steer.kernel", "ratio", STEER_CORE),
    measure("steer.softirq", "ratio", STEER_CORE),
    measure("steer.ratio", "ratio", &["frame_bytes", "over", "ci95_low", "ci95_high"]),
    // result.json of the experiment vs-extend
    measure("vs-extend.parameter", "ns", &["name"]),
    measure("vs-extend.jain", "ratio", VS_EXTEND),
    measure("vs-extend.softirq_share", "ratio", VS_EXTEND),
    measure(
        "vs-extend.error",
        "ratio",
        &["group", "cells", "p90", "worst", "worst_at", "points_median", "points_worst"],
    ),
    measure("vs-extend.target", "count", &["what", "needed", "met"]),
    measure("vs-extend.over-rss", "ratio", VS_EXTEND_VARIED),
    measure("vs-extend.over-rss-hold", "ratio", VS_EXTEND_VARIED),
    measure("vs-extend.over-rss++", "ratio", VS_EXTEND_VARIED),
    measure("vs-extend.loss", "ratio", VS_EXTEND_VARIED),
    measure("vs-extend.priority", "ratio", VS_EXTEND_VARIED),
    measure("vs-extend.predicted-error", "ratio", VS_EXTEND_VARIED),
    // result.json of a lab run
    measure("lab.settings", "count", &["variant"]),
    measure("lab.cell", "s", CELL),
    measure("lab.cores", "ratio", LAB_CORES),
    measure("lab.processor", "ns", PA),
    measure("lab.tcp", "count", CELL_COUNTER),
    measure("lab.kernel", "frames", CELL_COUNTER),
    measure("lab.kfree_skb", "frames", CELL_COUNTER),
    measure("lab.pause", "frames", &["variant", "policy", "size_packets", "port", "paused_ns"]),
    measure("lab.high_water", "frames", &["variant", "policy", "place", "port"]),
    measure("lab.ping", "ns", &["from", "to", "policy", "sent"]),
    measure("lab.tables", "count", &["says"]),
    measure("lab.audit", "count", &[]),
    // result.json of a simulation
    measure("sim.settings", "count", &["variant", "seed"]),
    measure("sim.cell", "s", &["variant", "policy", "size_packets", "events", "hops", "asked"]),
    measure("sim.goodput", "bit/s", CELL),
    measure("sim.datagrams", "count", &["variant", "policy", "size_packets", "of"]),
    measure("sim.tcp", "count", CELL_COUNTER),
    measure("sim.pause", "frames", &["variant", "policy", "size_packets", "place", "xon"]),
    measure("sim.high_water", "count", &["variant", "policy", "size_packets", "place", "of"]),
    measure("sim.ping", "ns", &["from", "to", "policy", "sent"]),
    measure("sim.stream", "bit/s", &["from", "to", "policy"]),
    // compare.json of a lab run beside its simulation
    measure(
        "parity.median",
        "ratio",
        &["size_packets", "policy", "lab_ns", "sim_ns", "processor_ns", "with_processor"],
    ),
    measure("parity.mean", "ratio", PARITY),
    measure("parity.timeouts", "ratio", PARITY),
    measure("parity.cores", "ratio", &["own", "stolen", "cores"]),
];

/// Returns the line of a measure.
pub(super) fn find(name: &str) -> Option<&'static Measure> {
    all().find(|measure| measure.name == name)
}

pub(super) fn all() -> impl Iterator<Item = &'static Measure> {
    MEASURES.iter().chain(BESIDE)
}
