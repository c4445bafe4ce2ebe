//! Answers about the fabric as tables.

use std::fmt::Write as _;

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use sluice_api::fabric::{
    Answer, CertificateRow, Certificates, EventRow, Evpn, EvpnNeighborRow, Flows, Holds, MemberRow,
    MoveRow, ReceiverRow, RivalRow, Status, ThawRow, VnetRow, Vport, VportRow,
};
use sluice_api::trace::{Step, Trace};

use crate::client::transaction;

/// Formats an answer for people.
pub(super) fn render(answer: &Answer) -> String {
    match answer {
        Answer::Vports(rows) => vports(rows),
        Answer::Vport(vport) => one(vport),
        Answer::Vnets(rows) => vnets(rows),
        Answer::Members(rows) => members(rows),
        Answer::Flows(flows) => all_flows(flows),
        Answer::Holds(holds) => all_holds(holds),
        Answer::Certificates(certificates) => all_certificates(certificates),
        Answer::Trace(trace) => traced(trace),
        Answer::Rivals(rows) => rivals(rows),
        Answer::Evpn(Some(evpn)) => speaker(evpn),
        Answer::Evpn(None) => "this host speaks no EVPN; add `[evpn]` with `as`, and \
                               `[[evpn.neighbor]]`, to its file\n"
            .to_owned(),
        Answer::Thaw(rows) => thawed(rows),
        Answer::Event(event) => line(event),
    }
}

/// Formats the moves of an endpoint.
pub(super) fn history(answer: &Answer) -> String {
    match answer {
        Answer::Vport(vport) if vport.history.is_empty() => {
            format!("{} has not moved as far as this host knows\n", vport.best.mac)
        }
        Answer::Vport(vport) => moves(&vport.history),
        other => render(other),
    }
}

fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n") + "\n"
}

/// Formats a span for people, in one or two units.
fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", ns / 1_000_000),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn ips(row: &VportRow) -> String {
    if row.ips.is_empty() {
        return "-".to_owned();
    }
    let mark = |ip| if row.shared.contains(ip) { "*" } else { "" };
    let ips: Vec<String> = row.ips.iter().map(|ip| format!("{ip}{}", mark(ip))).collect();
    ips.join(", ")
}

fn vports(rows: &[VportRow]) -> String {
    let header = [
        "VNET", "MAC", "IP", "HOST", "PORT", "STATE", "ORIGIN", "MOVES", "SINCE", "USED", "POLICY",
        "FROM IT", "TO IT", "DROPPED",
    ];
    let cells = rows.iter().map(|row| {
        let policy = row.policy.as_ref().map_or("-", |policy| &policy.flow_control);
        let mut cells = vec![
            row.vnet.clone(),
            row.mac.clone(),
            ips(row),
            row.host.clone(),
            row.port.clone(),
            row.state.clone(),
            row.origin.clone(),
            row.moves.to_string(),
            span(row.there_ns),
            format!("{} ago", span(row.unused_ns)),
            policy.to_owned(),
        ];
        cells.extend(counted(row));
        cells
    });
    table(&header, cells)
}

/// Formats the frames from an endpoint, to it, and those of them that were dropped or lost.
fn counted(row: &VportRow) -> [String; 3] {
    match &row.usage {
        None => ["-", "-", "-"].map(str::to_owned),
        Some(usage) if usage.unknown.is_some() => ["?", "?", "?"].map(str::to_owned),
        Some(usage) => {
            let dropped: u64 = usage.drops.iter().map(|drop| drop.frames).sum();
            let lost: u64 = usage.losses.values().sum();
            [usage.rx_frames, usage.tx_frames, dropped + lost].map(|frames| frames.to_string())
        }
    }
}

fn one(vport: &Vport) -> String {
    let mut text = vports(std::slice::from_ref(&vport.best));
    treated(vport, &mut text);
    let fdb = vport.fdb.as_deref().map_or("not in the FDB".to_owned(), |to| format!("to {to}"));
    _ = writeln!(text, "\nFDB: {fdb}");
    if let Some(ns) = vport.frozen_ns {
        let thaw = format!("`sluice vport thaw {}` ends it", vport.best.mac);
        _ = writeln!(text, "frozen for {} more: it is at two places at once; {thaw}", span(ns));
    } else if vport.moves_often {
        text.push_str("it moved too often lately: are there two machines with one MAC?\n");
    }
    if !vport.others.is_empty() {
        text.push_str("\nalso claimed:\n");
        text.push_str(&vports(&vport.others));
    }
    if !vport.history.is_empty() {
        text.push_str("\nmoves:\n");
        text.push_str(&moves(&vport.history));
    }
    text
}

/// Formats the policy of an endpoint, and its usage.
fn treated(vport: &Vport, text: &mut String) {
    let (Some(policy), Some(usage)) = (&vport.best.policy, &vport.best.usage) else {
        let host = &vport.best.host;
        _ = writeln!(text, "\npolicy and usage: its host has them (`--host {host}`)");
        return;
    };
    let holds = policy.hold.iter();
    let hold: Vec<_> = match policy.hold.len() {
        0 | 1 => holds.map(|(time, _)| time.clone()).collect(),
        _ => holds.map(|(time, of)| format!("{time} ({})", numbers(of))).collect(),
    };
    let lossless =
        if policy.lossless.is_empty() { "-".to_owned() } else { numbers(&policy.lossless) };
    let (mut rows, row) = (Vec::new(), |what: &str, is: String| (what.to_owned(), is));
    rows.push(row("flow control", policy.flow_control.clone()));
    rows.push(row("lossless priorities", lossless));
    rows.push(row("hold", hold.join(", ")));
    let believed = if policy.trust { "what they say is believed" } else { "whatever they say" };
    rows.push(row("priority of its frames", format!("{}, {believed}", policy.priority)));
    rows.extend(policy.service_mbps.map(|mbps| row("served at", format!("{mbps} Mbit/s"))));
    if !policy.allowed.is_empty() {
        let all: Vec<String> = policy.allowed.iter().map(ToString::to_string).collect();
        rows.push(row("may use", all.join(", ")));
    }
    if !policy.of_fabric.is_empty() {
        rows.push(row("said by the fabric", policy.of_fabric.join(", ")));
    }
    let bound = "what is bound".to_owned();
    rows.push(row(
        "endpoints",
        policy.learn_max.map_or(bound, |most| format!("{most} are learned")),
    ));
    let most = policy.broadcasts_per_second;
    rows.push(row(
        "broadcasts",
        if most == 0 { "any number".to_owned() } else { format!("{most}/s") },
    ));
    let cells = |rows: Vec<(String, String)>| rows.into_iter().map(|(what, is)| vec![what, is]);
    _ = write!(text, "\n{}", table(&["POLICY", ""], cells(rows)));
    if let Some(why) = &usage.unknown {
        _ = writeln!(text, "\nusage is not known: {why}");
        return;
    }
    let amount = |frames: u64, bytes: u64| format!("{frames} frames, {bytes} bytes");
    let mut rows = vec![
        row("from it", amount(usage.rx_frames, usage.rx_bytes)),
        row("to it", amount(usage.tx_frames, usage.tx_bytes)),
    ];
    rows.extend(usage.drops.iter().map(|drop| {
        let what = format!("dropped, {} (priority {})", drop.reason, drop.priority);
        row(&what, amount(drop.frames, drop.bytes))
    }));
    let lost = |(counter, frames): (&String, &u64)| {
        row(&format!("lost, {counter}"), format!("{frames} frames"))
    };
    rows.extend(usage.losses.iter().map(lost));
    let since = format!("within {}", span(usage.within_ns));
    _ = write!(text, "\n{}", table(&["USAGE", &since], cells(rows)));
    if usage.endpoints > 1 {
        _ = writeln!(text, "of all {} endpoints of its port", usage.endpoints);
    }
}

fn numbers(of: &[u8]) -> String {
    of.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
}

fn thawed(rows: &[ThawRow]) -> String {
    let cells = rows.iter().map(|row| {
        let what = match (row.was_frozen, &row.error) {
            (Some(true), _) => "thawed".to_owned(),
            (Some(false), _) => "was not frozen".to_owned(),
            (None, error) => error.clone().unwrap_or_default(),
        };
        vec![row.host.clone(), what]
    });
    table(&["host", "endpoint"], cells)
}

fn moves(rows: &[MoveRow]) -> String {
    let cells = rows.iter().map(|row| {
        let ago = format!("{} ago", span(row.ago_ns));
        vec![ago, row.from.clone(), row.to.clone(), row.why.clone()]
    });
    table(&["WHEN", "FROM", "TO", "WHY"], cells)
}

fn vnets(rows: &[VnetRow]) -> String {
    let cells = rows.iter().map(|row| {
        vec![
            row.vnet.clone(),
            row.vni.to_string(),
            row.vports.to_string(),
            row.ports.join(", "),
            row.hosts.join(", "),
        ]
    });
    table(&["VNET", "VNI", "VPORTS", "PORTS HERE", "OTHER HOSTS"], cells)
}

fn members(rows: &[MemberRow]) -> String {
    let header =
        ["HOST", "ID", "VTEP", "KIND", "HEALTH", "CONNECTED", "VERSION", "VPORTS", "STALE", "LAG"];
    let cells = rows.iter().map(|row| {
        vec![
            row.host.clone(),
            if row.id == 0 { "-".to_owned() } else { row.id.to_string() },
            row.vtep.to_string(),
            row.kind.clone(),
            row.health.clone(),
            if row.connected { "yes" } else { "no" }.to_owned(),
            row.program.clone().unwrap_or_else(|| "-".to_owned()),
            row.vports.to_string(),
            row.stale_ns.map_or_else(|| "-".to_owned(), |ns| format!("for {}", span(ns))),
            row.lag.to_string(),
        ]
    });
    let mut text = table(&header, cells);
    for row in rows {
        if let Some(why) = &row.evicted {
            _ = writeln!(text, "{}: {why}", row.host);
        }
        for one in &row.differs {
            _ = writeln!(text, "{}: {one}. {}", row.host, one.what.remedy());
        }
    }
    text
}

fn all_flows(flows: &Flows) -> String {
    let tunnels = flows.tunnels.iter().map(|row| {
        let (encap, decap) = (row.encap_flows.to_string(), row.decap_flows.to_string());
        vec![row.host.clone(), span(row.open_ns), encap, decap]
    });
    let encap = flows.encap.iter().map(|row| {
        let used = format!("{} ago", span(row.unused_ns));
        vec![row.vnet.clone(), row.mac.clone(), row.host.clone(), used]
    });
    let decap = flows.decap.iter().map(|row| vec![row.vnet.clone(), row.host.clone()]);
    format!(
        "tunnels\n{}\nencap flows\n{}\ndecap flows\n{}",
        table(&["TO", "OPEN FOR", "ENCAP", "DECAP"], tunnels),
        table(&["VNET", "MAC", "TO", "USED"], encap),
        table(&["VNET", "FROM"], decap),
    )
}

fn all_holds(holds: &Holds) -> String {
    let numbers = |all: &[u8]| {
        let all: Vec<String> = all.iter().map(u8::to_string).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(",") }
    };
    let isolated = holds.isolated.iter().map(|row| {
        let masks = [&row.isolated, &row.held, &row.stuck].map(|all| numbers(all));
        let told = |host: &String| match row.cannot_hold.contains(host) {
            true => format!("{host} (cannot hold)"),
            false => host.clone(),
        };
        let senders: Vec<String> = row.senders.iter().map(told).collect();
        let mut cells = vec![row.port.clone()];
        cells.extend(masks);
        cells.extend([span(row.since_ns), senders.join(", "), row.endpoints.join(", ")]);
        cells
    });
    let held = holds.held.iter().map(|row| {
        let used = if row.in_use { "yes" } else { "no" }.to_owned();
        let (held, stuck) = (numbers(&row.held), numbers(&row.stuck));
        let (vnet, mac, host) = (row.vnet.clone(), row.mac.clone(), row.host.clone());
        vec![vnet, mac, host, held, stuck, span(row.since_ns), used]
    });
    let header = ["PORT", "ISOLATED", "HELD", "STUCK", "FOR", "TOLD", "ENDPOINTS"];
    format!(
        "isolated here\n{}\nheld for others\n{}",
        table(&header, isolated),
        table(&["VNET", "MAC", "HOST", "HELD", "STUCK", "FOR", "IN USE"], held),
    )
}

fn speaker(evpn: &Evpn) -> String {
    let mut text = format!(
        "AS {}, identifier {}, listens on {}\n{} own routes, {} MACs heard of\n\n",
        evpn.local_as, evpn.router_id, evpn.address, evpn.announced_routes, evpn.heard_macs
    );
    if let Some(why) = &evpn.failure {
        text.insert_str(0, &format!("not in force: {why}\n"));
    }
    let cells = evpn.neighbors.iter().map(|row| {
        let state = if row.is_stale { format!("{}, stale", row.state) } else { row.state.clone() };
        let numbers = [row.routes, row.unsent_routes].map(|number| number.to_string());
        let mut cells = vec![row.address.clone(), row.remote_as.to_string(), state];
        cells.extend(numbers);
        cells.push(row.last_ending.clone().unwrap_or_else(|| "-".to_owned()));
        cells
    });
    let header = ["NEIGHBOR", "AS", "STATE", "ROUTES", "TO BE SENT", "LAST END"];
    text += &table(&header, cells);
    for row in &evpn.neighbors {
        text += &kept_out(row);
    }
    let cells = evpn.vteps.iter().map(|row| {
        let vnis: Vec<String> = row.vnis.iter().map(u32::to_string).collect();
        vec![row.vtep.clone(), vnis.join(", ")]
    });
    text + "\n" + &table(&["VTEP", "VNIS"], cells)
}

fn kept_out(row: &EvpnNeighborRow) -> String {
    let reasons: Vec<String> =
        row.kept_out.reasons().map(|(why, count)| format!("{count} {why}")).collect();
    match reasons.is_empty() {
        true => String::new(),
        false => format!("{}: routes not in use: {}\n", row.address, reasons.join(", ")),
    }
}

fn all_certificates(certificates: &Certificates) -> String {
    let cells = certificates.rows.iter().map(|row: &CertificateRow| {
        let host = if row.host.is_empty() { "ca.pem".to_owned() } else { row.host.clone() };
        let (kind, state) = (row.kind.name().to_owned(), row.state.name().replace('_', " "));
        vec![host, kind, row.until.clone(), row.days_left.to_string(), state]
    });
    let mut text = table(&["CERTIFICATE", "KIND", "UNTIL", "DAYS LEFT", "STATE"], cells);
    for row in &certificates.rows {
        if let Some(remedy) = &row.remedy {
            _ = writeln!(text, "{row}. {remedy}");
        }
    }
    if let Some(why) = &certificates.refused {
        _ = writeln!(text, "new files are not taken up, and the old ones stay: {why}");
    }
    text
}

fn rivals(rows: &[RivalRow]) -> String {
    let cells = rows.iter().map(|row| {
        let first = [&row.vnet, &row.what, &row.first, &row.first_port].map(String::clone);
        let second = [&row.second, &row.second_port].map(String::clone);
        first.into_iter().chain(second).collect()
    });
    table(&["VNET", "BOUND TO", "FIRST", "PORT", "SECOND", "PORT"], cells)
}

/// Formats the state of a host and of its fabric.
pub(super) fn status(status: &Status) -> String {
    let mut text = members(&status.members);
    text.push('\n');
    if let Some(certificates) = &status.certificates {
        text.push_str(&all_certificates(certificates));
        text.push('\n');
    }
    if let Some(configuration) = &status.configuration {
        text.push_str(&transaction::status(configuration));
        text.push('\n');
    }
    if let Some(why) = &status.data_silent {
        _ = writeln!(text, "the data process of {} is silent: {why}\n", status.host);
    }
    if !status.bound_twice.is_empty() {
        text += "bound at two hosts; the first one is followed\n";
        text += &rivals(&status.bound_twice);
        text.push('\n');
    }
    if status.receivers.is_empty() {
        return text + "every receiver takes what comes\n";
    }
    let cells = status.receivers.iter().map(|row: &ReceiverRow| {
        vec![
            row.host.clone(),
            row.port.clone().unwrap_or_else(|| "-".to_owned()),
            row.endpoints.join(", "),
            row.priority.to_string(),
            row.state.clone(),
            span(row.since_ns),
            row.waiting.join(", "),
        ]
    });
    let header = ["HOST", "PORT", "ENDPOINTS", "PRIORITY", "STATE", "FOR", "WAITING"];
    text + "receivers that do not take what comes\n" + &table(&header, cells)
}

fn traced(trace: &Trace) -> String {
    let rows = trace.hops.iter().flat_map(|hop| {
        hop.steps.iter().enumerate().map(|(at, step)| {
            let host = if at == 0 { hop.host.clone() } else { String::new() };
            let (grade, verdict) = (step.grade.name().to_owned(), step.verdict.to_string());
            vec![host, step.what.clone(), grade, verdict, step.why.clone(), seen(step)]
        })
    });
    let head = format!("{}: {} to {}\n", trace.vnet, trace.from, trace.to);
    let rows = table(&["HOST", "STEP", "", "VERDICT", "WHY", "SEEN"], rows);
    let at = trace.at.as_ref().map_or_else(String::new, |at| format!(" at {at}"));
    let mut text =
        format!("{head}{rows}\n{}: {}{at}: {}\n", trace.grade.name(), trace.verdict, trace.why);
    if !trace.remedy.is_empty() {
        text.push_str(&trace.remedy);
        text.push('\n');
    }
    text
}

/// Formats the counters of a step that are not zero.
fn seen(step: &Step) -> String {
    let words = step.seen.iter().filter(|(_, value)| **value > 0).map(|(name, value)| {
        match name.strip_suffix("_ns") {
            Some(name) => format!("{name} {}", span(*value)),
            None => format!("{name} {value}"),
        }
    });
    words.collect::<Vec<_>>().join(", ")
}

fn line(event: &EventRow) -> String {
    let at = event.at_ns / 1_000_000;
    format!("{:>8}.{:03}  {:16} {}\n", at / 1000, at % 1000, event.event, event.what)
}
