//! Notes for readers who judge the figures.

use super::Content;
use crate::view::{rows, text};

/// Returns the notes that apply to this run.
pub(super) fn html(content: &Content<'_>) -> String {
    if content.cells.is_empty() && !content.is_simulation {
        return String::new();
    }
    let measure = if content.is_simulation { "sim.settings" } else { "lab.settings" };
    let settings = rows(content.results, measure).next();
    let profile = settings.map(|row| text(row, "tcp_profile")).unwrap_or_default();
    let mut notes = vec![
        "<b>Policies.</b> First letter: the virtual network, second: the physical one. L drops \
         when a queue is full, Z holds back (in the virtual switch) or pauses by PFC (on the \
         link). ZZ is lossless from the sending container's ring to the receiving one's."
            .to_owned(),
        if content.is_simulation { simulated_tcp(&profile) } else { tcp(&profile) }.to_owned(),
    ];
    if content.cells.iter().any(|cell| cell.series.variant.starts_with("vm-bound")) {
        notes.push(
            "<b>vm-bound.</b> A container's vNIC takes less than the link brings, and the virtual \
             switch's queue to it is the shortest of the path. That is why LZ is no better than \
             LL here: the physical switch never fills. Where the link is the bottleneck (scenario \
             <code>pa-wire-bound</code>) the order turns round."
                .to_owned(),
        );
    }
    if content.cells.iter().any(|cell| cell.series.variant == "wire-bound") {
        notes.push(
            "<b>wire-bound.</b> Only the links limit, so the only queue that fills is the physical \
             switch's, and PFC alone (LZ) prevents what it would drop."
                .to_owned(),
        );
    }
    if content.cells.iter().any(|cell| cell.series.variant == "vm-bound-total") {
        notes.push(
            "<b>vm-bound-total (dashed, *).</b> LL with the memory of ZZ: every container's output \
             queue may hold its own frames, those of the inputs of all containers of its host and \
             both halves of the host's pool, all at once. That is the most that a host may hold \
             under ZZ. A gain named after this variant is that of plain ZZ over this LL."
                .to_owned(),
        );
    }
    if content.is_simulation {
        notes.extend(SIMULATED.map(str::to_owned));
    } else {
        notes.push(
            "<b>What a gain is made of.</b> Nearly all of it is retransmission time-outs: a query \
             of 32 answers is as slow as its slowest one. Small sizes under lossy policies are \
             bimodal (a time-out happens or not), so read the median and the share above 150 ms \
             beside the mean."
                .to_owned(),
        );
        notes.push(
            "<b>One machine.</b> Hosts, switches and containers share the cores named above; the \
             links are paced in software. Completion times without loss are those of the line \
             rate, which the published testbeds did not reach, so a gain above theirs does not \
             mean that they did less. Policies ran one after the other, not interleaved."
                .to_owned(),
        );
    }
    let items: Vec<String> = notes.iter().map(|note| format!("<li>{note}</li>")).collect();
    format!("<section><h2>Notes</h2><ul>{}</ul></section>\n", items.concat())
}

/// Notes of a simulation.
const SIMULATED: [&str; 3] = [
    "<b>What is real.</b> The virtual switches are the product's own code, frame by frame with \
     real headers. The physical switches, the cables, TCP and the hosts' delays are models. A \
     queue of the model holds exactly what the settings say, and no core is ever busy.",
    "<b>One seed.</b> A run is a function of its settings and its seed: the same seed gives the \
     same figures to the bit. An interval says how much the queries of this run differ, not how \
     much another seed would; sweep over seeds to see that.",
    "<b>Drops and time-outs</b> are counted from the first frame, the queries before the first \
     that counts included.",
];

fn simulated_tcp(profile: &str) -> &'static str {
    match profile {
        "freebsd9" => {
            "<b>TCP freebsd9.</b> A model of FreeBSD 9 with the timers of the study that the zOVN \
             paper builds on (Short and Fat, Hot Interconnects 2011): smallest time-out 2 ms, 20 \
             ms added to every time-out."
        }
        "linux-now" | "linux-now-5ms" => {
            "<b>TCP of today.</b> A model of Linux's TCP with losses found by time (RACK) and tail \
             loss probes, and the smallest retransmission time-out of 200 ms, or of 5 ms \
             (<code>linux-now-5ms</code>). It has neither proportional rate reduction nor HyStart."
        }
        _ => {
            "<b>TCP linux-2013.</b> A model of the TCP of Linux 3.x, before tail loss probes and \
             RACK, with the smallest retransmission time-out of 200 ms."
        }
    }
}

fn tcp(profile: &str) -> &'static str {
    match profile {
        "linux-2013" => {
            "<b>TCP linux-2013.</b> The kernel's TCP with tail loss probes and RACK switched off \
             (<code>tcp_early_retrans=0</code>, <code>tcp_recovery=0</code>) and the smallest \
             retransmission time-out of 200 ms, as in Linux 3.0, which the paper on zOVN used. It \
             is the setting to compare with the paper and <b>not what a kernel of today does</b>: \
             the scenarios <code>pa-now</code> and <code>pa-5ms</code> show that, and less gain."
        }
        "linux-now-5ms" => {
            "<b>TCP linux-now-5ms.</b> The kernel's TCP as it is, with the smallest retransmission \
             time-out set to 5 ms on the route, as a data centre may do. Tail loss probes may \
             retransmit what was not lost: look at drops, not at retransmissions."
        }
        _ => {
            "<b>TCP linux-now.</b> The kernel's TCP as it is: tail loss probes and RACK repair \
             most losses in 10 to 20 ms, before the smallest time-out of 200 ms. Probes may \
             retransmit what was not lost: look at drops, not at retransmissions."
        }
    }
}
