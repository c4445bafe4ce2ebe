//! Results as a table for the terminal.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use sluice_api::results::Results;

use crate::stats;
use crate::view::{self, drops_text, gain_text};

/// Renders the table, and a line for each check.
pub(crate) fn render(results: &Results) -> String {
    let cells = view::cells(results);
    let mut text = String::new();
    if !cells.is_empty() {
        text += &format!("{}\n", cells_table(results, &cells));
    }
    text += &crate::today::text(results);
    for row in view::rows(results, "lab.ping").chain(view::rows(results, "sim.ping")) {
        text += &format!(
            "ping {} to {}: {} of {} came back, median {:.0} us\n",
            view::text(row, "from"),
            view::text(row, "to"),
            row.values.len(),
            view::text(row, "sent"),
            row.median / 1e3
        );
    }
    for row in view::rows(results, "lab.tables") {
        let differing = row.median;
        let found = if differing == 0.0 {
            "as it should be".to_owned()
        } else {
            format!("{differing} differ")
        };
        text += &format!("tables: {}: {found}\n", view::text(row, "says"));
    }
    for row in view::rows(results, "flood.point") {
        text += &format!(
            "point {} {:<14} {:>9.0} frames (median of {})\n",
            view::text(row, "point"),
            view::text(row, "place"),
            row.median,
            row.values.len()
        );
    }
    for row in view::rows(results, "tcp_stream").chain(view::rows(results, "sim.stream")) {
        text += &format!(
            "transfer {} to {}: {:.0} Mbit/s\n",
            view::text(row, "from"),
            view::text(row, "to"),
            row.median / 1e6
        );
    }
    text += &endless(results);
    let kernel = [("lab.kernel", "kernel counter"), ("lab.kfree_skb", "the kernel lost")];
    for (measure, word) in kernel {
        for row in view::rows(results, measure) {
            text += &format!(
                "{word}, {} {} packets: {} = {}\n",
                view::Series::of(row).label(false),
                view::text(row, "size_packets"),
                view::text(row, "counter"),
                row.median
            );
        }
    }
    text
}

/// Returns lines about endless flows and UDP sources of a simulation.
fn endless(results: &Results) -> String {
    let mut text = String::new();
    for row in view::rows(results, "sim.goodput") {
        text += &format!(
            "{}: mean of {} flows {:.0} Mbit/s, slowest {:.0}, fastest {:.0}\n",
            view::text(row, "policy"),
            row.values.len(),
            stats::mean(&row.values) / 1e6,
            stats::percentile(&row.values, 0.0) / 1e6,
            stats::percentile(&row.values, 1.0) / 1e6
        );
    }
    for row in view::rows(results, "sim.datagrams") {
        text += &format!(
            "{}: datagrams of the {}: {} sent, {} arrived, {} refused\n",
            view::text(row, "policy"),
            view::text(row, "of"),
            row.median,
            view::text(row, "arrived"),
            view::text(row, "refused")
        );
    }
    text
}

fn cells_table(results: &Results, cells: &[view::Fct]) -> Table {
    let several = view::several_variants(cells);
    let is_simulation = view::is_simulation(results);
    let gains = view::gains(results);
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    let mut header = vec!["packets", "policy", "mean ms", "p50", "p95", "queries", ">150 ms"];
    if is_simulation {
        header.extend(["time-outs per query", "XOFF"]);
    }
    let numbers = header.len();
    header.extend(["gain over LL (95 %)", "drops", "audit"]);
    table.set_header(header);
    let mut order: Vec<&view::Fct> = cells.iter().collect();
    order.sort_by_key(|cell| cell.size);
    for cell in order {
        let late = stats::share_above(&cell.values, stats::TIMED_OUT_NS);
        let digits = if is_simulation { 3 } else { 2 };
        let ms = |ns: f64| format!("{:.digits$}", ns / 1e6);
        let mut row = vec![
            cell.size.to_string(),
            cell.series.label(several),
            ms(cell.mean),
            ms(cell.p50),
            ms(cell.p95),
            cell.values.len().to_string(),
            format!("{:.0} %", late * 100.0),
        ];
        if is_simulation {
            let each = view::timeouts(results, &cell.series, cell.size).unwrap_or(0.0);
            let pauses = view::pauses(results, &cell.series, cell.size);
            row.extend([format!("{each:.2}"), format!("{pauses:.0}")]);
        }
        let audit = cell.audit_closed.map_or("none", |yes| if yes { "closes" } else { "OPEN" });
        row.extend([gains_of(cell, &gains), drops_text(&cell.drops), audit.to_owned()]);
        table.add_row(row);
    }
    for column in (0..numbers).filter(|column| *column != 1) {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Renders the gains of a cell over every `LL` cell that it is compared with, a line each.
fn gains_of(cell: &view::Fct, gains: &[view::Gain]) -> String {
    let own = gains.iter().filter(|g| g.size == cell.size && cell.series.gains(&g.series));
    let gains: Vec<String> = own
        .map(|gain| match gain.series.variant == cell.series.variant {
            true => gain_text(gain),
            false => format!("{}: {}", gain.series.variant, gain_text(gain)),
        })
        .collect();
    gains.join("\n")
}
