//! Results as a table for the terminal.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use sluice_api::results::Results;

use crate::stats;
use crate::view::{self, drops_text, gain_text};

/// The table, and a line for each check.
pub(crate) fn render(results: &Results) -> String {
    let cells = view::cells(results);
    let mut text = String::new();
    if !cells.is_empty() {
        text += &format!("{}\n", cells_table(results, &cells));
    }
    for row in view::rows(results, "lab.ping") {
        text += &format!(
            "ping {} to {}: {} of {} came back, median {:.0} us\n",
            view::text(row, "from"),
            view::text(row, "to"),
            row.values.len(),
            view::text(row, "sent"),
            row.median / 1e3
        );
    }
    for row in view::rows(results, "tcp_stream") {
        text += &format!(
            "transfer {} to {}: {:.0} Mbit/s\n",
            view::text(row, "from"),
            view::text(row, "to"),
            row.median / 1e6
        );
    }
    for row in view::rows(results, "lab.kernel") {
        text += &format!(
            "kernel counter, {} {} packets: {} = {}\n",
            view::text(row, "policy"),
            view::text(row, "size_packets"),
            view::text(row, "counter"),
            row.median
        );
    }
    text
}

fn cells_table(results: &Results, cells: &[view::Fct]) -> Table {
    let several = view::several_variants(cells);
    let gains = view::gains(results);
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(vec![
        "packets",
        "policy",
        "mean ms",
        "p50",
        "p95",
        "queries",
        ">150 ms",
        "gain over LL (95 %)",
        "drops",
        "audit",
    ]);
    let mut order: Vec<&view::Fct> = cells.iter().collect();
    order.sort_by_key(|cell| cell.size);
    for cell in order {
        let own = gains.iter().filter(|g| {
            g.size == cell.size
                && g.series.policy == cell.series.policy
                && g.series.switch_kb == cell.series.switch_kb
        });
        let gains: Vec<String> = own
            .map(|gain| match gain.series.variant == cell.series.variant {
                true => gain_text(gain),
                false => format!("{}: {}", gain.series.variant, gain_text(gain)),
            })
            .collect();
        let late = stats::share_above(&cell.values, stats::TIMED_OUT_NS);
        table.add_row(vec![
            cell.size.to_string(),
            cell.series.label(several),
            format!("{:.2}", cell.mean / 1e6),
            format!("{:.2}", cell.p50 / 1e6),
            format!("{:.2}", cell.p95 / 1e6),
            cell.values.len().to_string(),
            format!("{:.0} %", late * 100.0),
            gains.join("\n"),
            drops_text(&cell.drops),
            cell.audit_closed
                .map_or("none", |closed| if closed { "closes" } else { "OPEN" })
                .to_owned(),
        ]);
    }
    for column in [0, 2, 3, 4, 5, 6] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
