//! Answers as tables.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use sluice_api::show::{
    Answer, Audit, AuditRow, Body, ChipRow, DropRow, GuardRow, LossRow, MacRow, PauseRow,
    PlacementRow, PortRow, QueueRow, TunnelRow, WorkerTimes, seconds,
};

/// Number of columns that hold names; the ones after them hold numbers.
type Names = usize;

/// Formats an answer for a terminal.
pub(super) fn render(answer: &Answer) -> String {
    let head = format!(
        "{}  policy {}  {:.1} s\n",
        answer.host,
        answer.policy.name(),
        std::time::Duration::from_nanos(answer.at_ns).as_secs_f64()
    );
    head + &match &answer.body {
        Body::Ports(rows) => ports(rows),
        Body::Queues(rows) => queues(rows),
        Body::Drops(rows) => drops(rows, &answer.outside),
        Body::Audit(audit) => audit_text(audit, &answer.outside),
        Body::Pauses(rows) => pauses(rows, answer.at_ns),
        Body::Tunnels(rows) => tunnels(rows),
        Body::Mac(rows) => macs(rows),
        Body::Worker(times) => workers(times),
        Body::Placement(rows) => placement(rows),
        Body::Chip(row) => chip(row),
    } + &unguarded(&answer.guard)
}

/// Returns the chip, a line for each thing.
fn chip(row: &ChipRow) -> String {
    let mut text = format!(
        "{} forwards what is in its table\n\
         addresses  {} of {}, flows {} of {}; {} evicted\n",
        match row.kind.as_str() {
            "kernel" => "the kernel",
            "switchdev" => "a device, and the kernel behind it,",
            _ => "the switch",
        },
        row.macs,
        row.macs_max,
        row.flows,
        row.flows_max,
        row.evicted,
    );
    if let Some(offloaded) = row.offloaded {
        text += &format!("offloaded  {offloaded} addresses are the device's\n");
    }
    if let Some(forwarded) = row.forwarded {
        text += &format!(
            "frames     {forwarded} forwarded by it\n\
             writes     {} done, {} found no room, {} refused; {} changes of others put right\n",
            row.written, row.full, row.refused, row.mended,
        );
    }
    if let Some(error) = &row.error {
        text += &format!("last error {error}\n");
    }
    text
}

/// Returns the devices without a guard, and the reasons; nothing if there are none.
fn unguarded(rows: &[GuardRow]) -> String {
    let line = |row: &GuardRow| {
        let (device, lacks) = (&row.device, row.lacks.as_ref()?);
        Some(format!("{device} has no guard of the other hosts' VTEPs: {lacks}\n"))
    };
    rows.iter().filter_map(line).collect()
}

/// Columns of a terminal that are enough to wrap long cells.
const COLUMNS_MIN: u16 = 40;

pub(super) fn table(header: &[&str], names: Names, rows: Vec<Vec<String>>, none: &str) -> String {
    if rows.is_empty() {
        return format!("{none}\n");
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    // A terminal may say that it has no columns at all.
    let wraps = table.width().is_some_and(|columns| columns >= COLUMNS_MIN);
    table.set_content_arrangement(match wraps {
        true => ContentArrangement::Dynamic,
        false => ContentArrangement::Disabled,
    });
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}

fn ports(rows: &[PortRow]) -> String {
    let header = [
        "port",
        "kind",
        "vnet",
        "rx frames",
        "tx frames",
        "held",
        "most",
        "queued",
        "most",
        "pending",
        "lost",
    ];
    let cells = rows.iter().map(|row| {
        vec![
            row.port.clone(),
            row.kind.clone(),
            row.vnet.clone(),
            row.rx_frames.to_string(),
            row.tx_frames.to_string(),
            row.held_frames.to_string(),
            row.held_frames_max.to_string(),
            row.queued_frames.to_string(),
            row.queued_frames_max.to_string(),
            row.driver_pending.to_string(),
            row.driver_lost.to_string(),
        ]
    });
    let mut text = table(&header, 3, cells.collect(), "no ports");
    text += &table(&["port", "lossless"], 2, lossless(rows), "");
    let shared = rows.iter().filter(|row| !row.allowed.is_empty());
    let shared: Vec<Vec<String>> = shared
        .map(|row| {
            let allowed: Vec<String> = row.allowed.iter().map(ToString::to_string).collect();
            vec![row.port.clone(), allowed.join(" ")]
        })
        .collect();
    if !shared.is_empty() {
        text += &table(&["port", "may also speak as"], 2, shared, "");
    }
    text += &sockets(rows);
    let mut kernel = Vec::new();
    for row in rows {
        for (name, count) in row.kernel.iter().filter(|(_, count)| **count > 0) {
            kernel.push(vec![row.port.clone(), name.clone(), count.to_string()]);
        }
    }
    text += &table(
        &["port", "kernel counter", "frames"],
        2,
        kernel,
        "every kernel counter of these ports is zero",
    );
    text
}

/// Returns how far datagrams are held for the UDP sockets of containers, and what was counted.
fn sockets(rows: &[PortRow]) -> String {
    let with = rows.iter().filter_map(|row| Some((row, row.sockets.as_ref()?)));
    let cells = with.map(|(row, of)| {
        let promise = match (&of.lacks, of.signalled) {
            (Some(lacks), _) => format!("no, needs {lacks}"),
            (None, true) => "yes".to_owned(),
            (None, false) => "yes, polled".to_owned(),
        };
        let counts = [of.held.len() as u64, of.holds, of.waited, of.port_held, of.stuck];
        let counts = counts.map(|count| count.to_string());
        [row.port.clone(), promise].into_iter().chain(counts).collect()
    });
    let cells: Vec<Vec<String>> = cells.collect();
    if cells.is_empty() {
        return String::new();
    }
    let header = ["port", "held for UDP sockets", "now", "holds", "waited", "port held", "stuck"];
    table(&header, 2, cells, "")
}

/// Joins ports with the same text into one row.
fn lossless(rows: &[PortRow]) -> Vec<Vec<String>> {
    let mut said: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        match said.iter_mut().find(|(text, _)| *text == row.lossless) {
            Some((_, ports)) => ports.push(&row.port),
            None => said.push((&row.lossless, vec![&row.port])),
        }
    }
    said.into_iter().map(|(text, ports)| vec![ports.join(" "), text.to_owned()]).collect()
}

fn queues(rows: &[QueueRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.source.clone(),
            row.lane.clone(),
            row.priority.to_string(),
            row.frames.to_string(),
            row.bytes.to_string(),
        ]
    });
    let header = ["source", "lane", "priority", "frames", "bytes"];
    table(&header, 2, cells.collect(), "no frame waits")
}

fn drops(rows: &[DropRow], outside: &[LossRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.port.clone(),
            row.reason.clone(),
            row.class.clone(),
            row.priority.to_string(),
            row.frames.to_string(),
            row.bytes.to_string(),
        ]
    });
    let header = ["port", "reason", "class", "priority", "frames", "bytes"];
    let none = if outside.is_empty() { "nothing was dropped" } else { "no drop in the switch" };
    table(&header, 3, cells.collect(), none) + &losses(outside)
}

/// Returns losses outside the switch, with a title; nothing if there are none.
fn losses(rows: &[LossRow]) -> String {
    let cells = rows.iter().map(|row| {
        let frames = row.frames.to_string();
        vec![row.port.clone(), row.counter.clone(), frames, seconds(row.ago_ns)]
    });
    if rows.is_empty() {
        return String::new();
    }
    let header = ["port", "counter", "frames", "last ago"];
    "lost outside the switch:\n".to_owned() + &table(&header, 2, cells.collect(), "")
}

fn audit_text(audit: &Audit, outside: &[LossRow]) -> String {
    let header = [
        "port",
        "priority",
        "",
        "received",
        "injected",
        "copied",
        "delivered",
        "consumed",
        "resident",
        "dropped",
        "congestion",
    ];
    let mut cells = Vec::new();
    for AuditRow { port, priority, frames, bytes } in &audit.rows {
        for (unit, sum) in [("frames", frames), ("bytes", bytes)] {
            let numbers = [
                sum.received,
                sum.injected,
                sum.copied,
                sum.delivered,
                sum.consumed,
                sum.resident,
                sum.dropped,
                sum.dropped_congestion,
            ];
            let names = [port.clone(), priority.to_string(), unit.to_owned()];
            cells.push(names.into_iter().chain(numbers.map(|n| n.to_string())).collect());
        }
    }
    let text = table(&header, 3, cells, "no frame was seen");
    let verdict = if audit.closed {
        "closed: received + injected + copied = delivered + consumed + resident + dropped"
    } else {
        "NOT CLOSED: frames were lost or counted twice; please report this"
    };
    format!("{text}{verdict}\n{}", losses(outside))
}

fn pauses(rows: &[PauseRow], at_ns: u64) -> String {
    let cells = rows.iter().map(|row| {
        let now = match (row.paused, row.pausing) {
            (true, true) => "paused, pausing",
            (true, false) => "paused",
            (false, true) => "pausing",
            (false, false) => "",
        };
        vec![
            row.port.clone(),
            now.to_owned(),
            row.priority.to_string(),
            row.xoff_sent.to_string(),
            row.xon_sent.to_string(),
            row.received.to_string(),
            format!("{}.{:03}", row.paused_ns / 1_000_000, row.paused_ns / 1000 % 1000),
        ]
    });
    let header = ["port", "now", "priority", "XOFF sent", "XON sent", "received", "paused ms"];
    let text = table(&header, 2, cells.collect(), "no pause was sent or received");
    text + &isolated(rows, at_ns) + &held_sockets(rows, at_ns)
}

/// Returns the UDP sockets that have no room; nothing if there are none.
fn held_sockets(rows: &[PauseRow], at_ns: u64) -> String {
    let held = rows.iter().flat_map(|row| row.sockets.iter().map(|socket| (&row.port, socket)));
    let cells = held.map(|(port, socket)| {
        let state = if socket.stuck { "stuck: what comes ends as receiver_stuck" } else { "held" };
        vec![
            port.clone(),
            socket.address.to_string(),
            socket.priority.to_string(),
            state.to_owned(),
            seconds(at_ns.saturating_sub(socket.since_ns)),
            socket.frames.to_string(),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    if cells.is_empty() {
        return String::new();
    }
    table(&["port", "UDP socket", "priority", "state", "for", "frames"], 4, cells, "")
}

/// Returns the isolated receivers; nothing if there are none.
fn isolated(rows: &[PauseRow], at_ns: u64) -> String {
    let ago = |moment_ns: u64| seconds(at_ns.saturating_sub(moment_ns));
    let mut cells = Vec::new();
    for (row, isolation) in rows.iter().filter_map(|row| Some((row, row.isolated.as_ref()?))) {
        let state = match (isolation.stuck, isolation.held_at_senders) {
            (true, _) => "stuck: what comes ends as receiver_stuck",
            (false, true) => "held at its senders",
            (false, false) => "on probation",
        };
        cells.push(vec![
            row.port.clone(),
            isolation.endpoints.join(" "),
            row.priority.to_string(),
            state.to_owned(),
            ago(isolation.since_ns),
            ago(isolation.moved_ns),
            isolation.reserve_frames.to_string(),
            isolation.waiting.join(" "),
        ]);
    }
    if cells.is_empty() {
        return String::new();
    }
    let header =
        ["isolated", "endpoints", "priority", "state", "for", "idle", "reserve", "waiting"];
    table(&header, 4, cells, "")
}

fn tunnels(rows: &[TunnelRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.peer.clone(),
            row.vtep.to_string(),
            row.next_hop.clone(),
            row.tx_frames.to_string(),
            row.rx_frames.to_string(),
            row.queued_frames.to_string(),
            row.path_mtu.map_or_else(|| "-".to_owned(), |mtu| mtu.to_string()),
        ]
    });
    let header = ["peer", "VTEP", "next hop", "tx frames", "rx frames", "queued", "path MTU"];
    table(&header, 3, cells.collect(), "no tunnels")
}

fn placement(rows: &[PlacementRow]) -> String {
    let is_shared = rows.iter().any(|row| row.buckets.is_some());
    let has_high = rows.iter().any(|row| row.buckets.as_ref().is_some_and(|of| of.high));
    let cells = rows.iter().map(|row| {
        let cpu = row.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string());
        let worker = row.worker.map_or_else(|| "all".to_owned(), |worker| worker.to_string());
        let mut cells = vec![row.port.clone(), worker, cpu];
        if is_shared {
            let buckets = row.buckets.as_ref();
            cells.push(buckets.map_or_else(String::new, |of| of.list.len().to_string()));
            cells.push(buckets.map_or_else(String::new, |of| format!("{:.1}", of.load_percent)));
        }
        if has_high {
            let is_high = row.buckets.as_ref().is_some_and(|of| of.high);
            cells.push(if is_high { "high".to_owned() } else { String::new() });
        }
        cells.push(row.why.clone());
        cells
    });
    let shared = if is_shared { &["buckets", "load %"][..] } else { &[] };
    let priority = if has_high { &["priority"][..] } else { &[] };
    let header = [&["port", "worker", "CPU"][..], shared, priority, &["why"]].concat();
    table(&header, 1, cells.collect(), "no ports")
}

fn workers(all: &[WorkerTimes]) -> String {
    all.iter().enumerate().map(|(number, times)| worker(number, times)).collect()
}

fn worker(number: usize, times: &WorkerTimes) -> String {
    let all = (times.busy_ns + times.looking_ns + times.asleep_ns).max(1);
    let row = |what: &str, ns: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let (seconds, part) = (ns as f64 / 1e9, ns as f64 / all as f64 * 100.0);
        vec![what.to_owned(), format!("{seconds:.3}"), format!("{part:.2}")]
    };
    let rows = vec![
        row("moving frames", times.busy_ns),
        row("looking for them", times.looking_ns),
        row("asleep", times.asleep_ns),
    ];
    let worker = format!("worker {number}");
    table(&[&worker, "seconds", "%"], 1, rows, "") + &format!("{} turns\n", times.turns)
}

fn macs(rows: &[MacRow]) -> String {
    let cells = rows.iter().map(|row| vec![row.vnet.clone(), row.mac.clone(), row.to.clone()]);
    table(&["vnet", "MAC", "to"], 3, cells.collect(), "no address is in use")
}
